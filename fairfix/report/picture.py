"""The picture of a comparison: quality against gap, a panel for each pair, drawn from the JSON form.

Drawn by matplotlib, an extra. Methods differ by marker as well as by colour, and the frontier is a line, so the picture
can be read without colours. The same result gives the same bytes.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from fairfix.errors import UsageError
from fairfix.report.svg import COLOURS

FORMATS = ("png", "svg")
MARKERS = "osD^vP*X<>ph"
NAMES = {
    "ks.to_overall": "KS distance to everybody",
    "selection_rate.difference.between_groups": "selection rate difference",
    "equalized_odds.difference.between_groups": "equalized odds difference",
    "selection_rate.difference.true_groups.worst_case": "selection rate difference, true groups at worst",
    "accuracy": "accuracy",
    "log_loss": "log loss",
    "square_loss": "square loss",
    "absolute_loss": "absolute loss",
}


NOTHING = "There are no points to draw: no method has both a gap and a quality."


def draw(result: Mapping[str, Any], kind: str) -> bytes:
    """Return the picture of a comparison's JSON form as PNG or SVG.

    Raises
    ------
    UsageError
        matplotlib is not installed, or there is nothing to draw.
    """
    if find_spec("matplotlib") is None:
        raise UsageError(
            "a picture needs matplotlib, which is not installed: pip install 'fairfix[plot]', or leave out --picture"
        )
    points = [point for point in result["points"] if "failure" not in point]
    found = panels(points)
    if not found:
        raise UsageError(f"{NOTHING[0].lower()}{NOTHING[1:-1]}")
    return _drawn(points, found, kind, (5.2 * len(found), 4.6))


def draw_panel(result: Mapping[str, Any], gap: str, quality: str) -> bytes:
    """Return one panel of the picture as SVG, of a size for a telephone."""
    points = [point for point in result["points"] if "failure" not in point]
    return _drawn(points, [(gap, quality)], "svg", (4.6, 4.8))


def _drawn(
    points: Sequence[Mapping[str, Any]],
    found: Sequence[tuple[str, str]],
    kind: str,
    size: tuple[float, float],
) -> bytes:
    """Draw panels side by side over one key."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    titles = list(dict.fromkeys(point["title"] for point in points))
    with rc_context(
        {"svg.hashsalt": "fairfix", "svg.fonttype": "none", "font.size": 9, "text.parse_math": False}
    ):
        figure = Figure(figsize=size, layout="constrained")
        key: dict[str, Any] = {}
        for axes, (gap, quality) in zip(figure.subplots(1, len(found), squeeze=False)[0], found, strict=True):
            _panel(axes, points, titles, gap, quality)
            lines, names = axes.get_legend_handles_labels()
            key |= dict(zip(names, lines, strict=True))
        figure.legend(key.values(), key.keys(), loc="outside lower center", ncols=2 * len(found), fontsize=8)
        out = io.BytesIO()
        figure.savefig(
            out, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else {"Software": None}
        )
    return out.getvalue()


def panels(points: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return the pairs that are drawn: accuracy against the selection rate, the loss against KS, per attribute."""
    out = []
    gaps = dict.fromkeys(gap for point in points for gap in point["gaps"])
    have = {quality for point in points for quality in point["qualities"]}
    loss = next((name for name in ("log_loss", "square_loss") if name in have), None)
    for gap in gaps:
        if gap.startswith("selection_rate") and "accuracy" in have:
            out.append((gap, "accuracy"))
        if gap.startswith("ks") and loss:
            out.append((gap, loss))
    return out


def _panel(
    axes: Any, points: Sequence[Mapping[str, Any]], titles: Sequence[str], gap: str, quality: str
) -> None:
    for i, title in enumerate(titles):
        some = [
            (p["gaps"][gap], p["qualities"][quality])
            for p in points
            if p["title"] == title and gap in p["gaps"] and quality in p["qualities"]
        ]
        some = [(x, y) for x, y in some if x["value"] is not None and y["value"] is not None]
        if not some:
            continue
        xs, ys = [x["value"] for x, _ in some], [y["value"] for _, y in some]
        colour = COLOURS[i % len(COLOURS)]
        style = {"color": colour, "marker": MARKERS[i % len(MARKERS)]}
        axes.plot(xs, ys, linestyle="none", markersize=5, label=title, zorder=3, **style)
        axes.errorbar(xs, ys, yerr=_reach(ys, [y for _, y in some]), fmt="none", ecolor=colour, alpha=0.35)
    front = sorted(
        (p["gaps"][gap]["value"], p["qualities"][quality]["value"])
        for p in points
        if f"{gap}|{quality}" in p["front"]
    )
    axes.plot(
        [x for x, _ in front], [y for _, y in front], color="0.3", linewidth=0.9, label="frontier", zorder=2
    )
    metric, _, attribute = gap.partition(" ")
    axes.set_xlabel(f"{NAMES.get(metric, metric)} {attribute}, held-out rows")
    axes.set_ylabel(f"{NAMES[quality]} (better is {'up' if quality == 'accuracy' else 'down'})")
    axes.set_xlim(left=0)
    axes.grid(alpha=0.25)


def _reach(values: Sequence[float], limits: Sequence[Mapping[str, Any]]) -> list[list[float]]:
    """Return how far the intervals reach below and above; nothing where they are open."""
    low = [v - (v if one["low"] is None else one["low"]) for v, one in zip(values, limits, strict=True)]
    high = [(v if one["high"] is None else one["high"]) - v for v, one in zip(values, limits, strict=True)]
    return [[max(part, 0.0) for part in low], [max(part, 0.0) for part in high]]
