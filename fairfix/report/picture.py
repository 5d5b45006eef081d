"""The picture of a comparison: quality against gap, a panel for each pair, drawn from the JSON form.

Drawn by matplotlib, an extra. Methods differ by marker as well as by colour, and the frontier is a line, so the picture
can be read without colours. The same result gives the same bytes.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from fairfix.errors import UsageError
from fairfix.report.frontier import NOTHING, Panel, panels
from fairfix.report.layout import parted
from fairfix.report.svg import COLOURS

FORMATS = ("png", "svg")
MARKERS = "osD^vP*X<>ph"
NAMES = {
    "ks.to_overall": "KS distance to everybody",
    "selection_rate.difference.between_groups": "selection rate difference",
    "equalized_odds.difference.between_groups": "equalized odds difference",
    "selection_rate.difference.true_groups.worst_case": "selection rate difference, true groups at worst",
}
"""Names of gaps at the axes; others stand as they are."""


def draw(result: Mapping[str, Any], kind: str) -> bytes:
    """Return the picture of a comparison's JSON form as PNG or SVG.

    Raises
    ------
    UsageError
        matplotlib is not installed, or there is nothing to draw.
    """
    if find_spec("matplotlib") is None:
        raise UsageError(
            "a picture needs matplotlib, which is not installed: pip install 'fairfix[plot]', or leave out `picture`"
        )
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    drawn = panels(result["points"])
    if not drawn:
        raise UsageError(f"{NOTHING[0].lower()}{NOTHING[1:-1]}")
    style: Any = {"svg.hashsalt": "fairfix", "svg.fonttype": "none", "font.size": 9, "text.parse_math": False}
    with rc_context(style):
        figure = Figure(figsize=(5.2 * len(drawn), 4.6), layout="constrained")
        key: dict[str, Any] = {}
        for axes, panel in zip(figure.subplots(1, len(drawn), squeeze=False)[0], drawn, strict=True):
            _panel(axes, panel)
            lines, names = axes.get_legend_handles_labels()
            key |= dict(zip(names, lines, strict=True))
        figure.legend(key.values(), key.keys(), loc="outside lower center", ncols=2 * len(drawn), fontsize=8)
        out = io.BytesIO()
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(out, format=kind, dpi=150, metadata=metadata)
    return out.getvalue()


def _panel(axes: Any, panel: Panel) -> None:
    for i, (title, cloud) in enumerate(panel.clouds().items()):
        if not cloud:
            continue
        xs, ys, lows, highs = zip(*cloud, strict=True)
        colour, marker = COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]
        axes.plot(xs, ys, linestyle="none", markersize=5, label=title, zorder=3, color=colour, marker=marker)
        below = [max(y - low, 0.0) for y, low in zip(ys, lows, strict=True)]
        above = [max(high - y, 0.0) for y, high in zip(ys, highs, strict=True)]
        axes.errorbar(xs, ys, yerr=[below, above], fmt="none", ecolor=colour, alpha=0.35)
    front = [panel.place(point) for point in panel.front()]
    axes.plot(
        [x for x, _ in front], [y for _, y in front], color="0.3", linewidth=0.9, label="frontier", zorder=2
    )
    metric, attribute = parted(panel.gap)
    axes.set_xlabel(f"{NAMES.get(metric, metric)} {attribute}, held-out rows")
    axes.set_ylabel(f"{panel.quality.replace('_', ' ')} (better is {panel.better})")
    axes.set_xlim(left=0)
    axes.grid(alpha=0.25)
