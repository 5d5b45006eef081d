"""Pictures of results by matplotlib, drawn from the JSON form: groups, before and after, quality against gap.

Drawn by matplotlib, an extra. Methods differ by marker as well as by colour, and the frontier is a line, so the picture
can be read without colours. The same result gives the same bytes.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.metrics import METRICS
from fairfix.auditing.own import added
from fairfix.errors import UsageError
from fairfix.report.classes import gap_id, gap_metrics, gap_of
from fairfix.report.frontier import NOTHING, Panel, panels
from fairfix.report.layout import Json, kind_of, parted, titled
from fairfix.report.svg import COLOURS
from fairfix.report.words import named

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")
MARKERS = "osD^vP*X<>ph"
NAMES = {
    "ks.to_overall": "KS distance to all rows",
    "selection_rate.difference.between_groups": "selection rate difference",
    "equalized_odds.difference.between_groups": "equalized odds difference",
    "selection_rate.difference.true_groups.worst_case": "selection rate difference, true groups, worst case",
}
"""Names of gaps at the axes; others stand as they are."""

RATES_FIRST = ("selection_rate", "true_positive_rate", "false_positive_rate", "mean_score", "square_loss")
"""Metrics of groups that are drawn where none is asked for, three at most."""

STYLE: Any = {"svg.hashsalt": "fairfix", "svg.fonttype": "none", "font.size": 9, "text.parse_math": False}


def draw(result: Mapping[str, Any], kind: str) -> bytes:
    """Return the picture of a comparison's JSON form as PNG or SVG.

    Raises
    ------
    UsageError
        matplotlib is not installed, or there is nothing to draw.
    """
    _require_matplotlib("leave out `picture`")
    from matplotlib import rc_context, rcdefaults, rcParams

    with (
        rc_context()
    ):  # the settings of this folder, or this machine, change neither the bytes nor what is run for them
        rcdefaults()
        rcParams.update(STYLE)
        figure = _frontier(result)
        out = io.BytesIO()
        metadata = {"Date": None, "Title": "fairfix"} if kind == "svg" else {"Software": "fairfix"}
        figure.savefig(out, format=kind, dpi=150, metadata=metadata)
    return out.getvalue()


def figure_of(result: Mapping[str, Any], numbers: Sequence[str] = ()) -> Figure:
    """Return a matplotlib figure of a result's JSON form, which a notebook shows by itself.

    Parameters
    ----------
    result
        JSON form. Of an audit, metrics of each group with their intervals are drawn; of a repair, numbers before and
        after on held-out rows; of a comparison of methods, quality against gap.
    numbers
        Which metrics, or which numbers of the proof; by default the usual ones. A comparison draws all of its own.

    Raises
    ------
    UsageError
        matplotlib is not installed, there is nothing to draw, or a number is none of the result.
    """
    _require_matplotlib("use `to_frame` and another plotting library")
    from matplotlib import rc_context

    kind = kind_of(result)
    if kind == "compare" and numbers:
        raise UsageError("`numbers`: a comparison of methods shows all its numbers; leave it out")
    if kind == "compare":
        with rc_context(STYLE):
            return _frontier(result)
    with rc_context({"font.size": STYLE["font.size"]}):
        if kind == "repair":
            return _dots(_of_proof(result, numbers))
        if kind == "classes":
            return _dots(_of_gaps(result, numbers))
        with added(result.get("own_metrics", ())):
            return _dots(_of_groups(result, numbers))


def _require_matplotlib(instead: str) -> None:
    if find_spec("matplotlib") is None:
        raise UsageError(
            f"a picture needs matplotlib, which is not installed: pip install 'fairfix[plot]', or {instead}"
        )


def _new_figure(width: float, height: float) -> Figure:
    """Return an empty figure that IPython shows, whether pyplot is imported or not."""
    from matplotlib.figure import Figure

    class Shown(Figure):
        def _repr_png_(self) -> bytes:
            out = io.BytesIO()
            self.savefig(out, format="png", dpi=100)
            return out.getvalue()

    return Shown(figsize=(width, height), layout="constrained")


# ---------------------------------------------------------------------- rows of dots with intervals


@dataclass(frozen=True)
class Dots:
    """Rows with names, each with a value and limits in every series; NaN is not drawn."""

    title: str
    names: tuple[str, ...]
    series: Mapping[str, tuple[Json, ...]]
    everybody: float | None = None
    """Where a line is drawn through all rows."""


def _of_groups(result: Json, metrics: Sequence[str]) -> list[list[Dots]]:
    """Return a row of panels for each attribute, with a panel for each metric; strata are left to ``to_frame``."""
    everybody = result["overall"]["metrics"]
    there = [name for name, value in everybody.items() if value["value"] is not None]
    for name in metrics:
        if name not in everybody:
            raise UsageError(
                f"`numbers`: {name!r} is not a metric of this audit; it has {', '.join(everybody)}"
            )
    shown = list(metrics) or ([name for name in RATES_FIRST if name in there] or there)[:3]
    blocks = [block for block in result["attributes"] if block["groups"]]
    if not shown or not blocks:
        raise UsageError("there is nothing to show: no metric of a recorded group has a value")
    return [
        [
            Dots(
                METRICS[name].title,
                tuple(str(group["group"]) for group in block["groups"]),
                {block["attribute"]: tuple(group["metrics"][name] for group in block["groups"])},
                everybody[name]["value"],
            )
            for name in shown
        ]
        for block in blocks
    ]


def _of_gaps(result: Json, chosen: Sequence[str]) -> list[list[Dots]]:
    """Return a row of panels for each attribute, with the gaps of all classes in each metric."""
    names = [name for name in gap_metrics(result) if not chosen or name in chosen]
    if not names:
        raise UsageError(f"`numbers`: the gaps of classes are those of {', '.join(gap_metrics(result))}")
    return [
        [
            Dots(
                titled(gap_id(name)),
                tuple(one["class"] for one in result["classes"]),
                {
                    block["attribute"]: tuple(
                        gap_of(one, block["attribute"], name) for one in result["classes"]
                    )
                },
            )
            for name in names
        ]
        for block in result["attributes"]
    ]


def _of_proof(result: Json, chosen: Sequence[str]) -> list[list[Dots]]:
    """Return one panel of numbers in shares before and after the repair, or of the numbers asked for."""
    where = "holdout" if "holdout" in result["proof"] else "fit"
    table = result["proof"][where]["table"]
    for name in chosen:
        if name not in [row["id"] for row in table]:
            names = ", ".join(dict.fromkeys(row["id"] for row in table))
            raise UsageError(f"`numbers`: {name!r} is not a number of this evaluation; it has {names}")
    rows = [row for row in table if row["id"] in chosen or not (chosen or _is_loss(row))]
    series = {when: tuple(row[when] for row in rows) for when in ("before", "after")}
    rows_of = "held-out rows" if where == "holdout" else "training rows"
    return [[Dots(f"before and after, {rows_of}", tuple(titled(row["name"]) for row in rows), series)]]


def _is_loss(row: Json) -> bool:
    """Tell whether a number is on a scale of its own, so that it does not go with shares."""
    return METRICS[Comparison.parse(row["id"]).metric].scale in ("loss", "data")


def _dots(rows: Sequence[Sequence[Dots]]) -> Figure:
    """Draw rows of panels, which share their names."""
    high = [max(1.4, 0.5 + 0.32 * len(row[0].names)) for row in rows]
    figure = _new_figure(1.6 + 2.8 * len(rows[0]) + 1.6 * (len(rows[0]) == 1), sum(high) + 0.5)
    grid = figure.subplots(len(rows), len(rows[0]), squeeze=False, sharex="col", height_ratios=high)
    for row, line in zip(rows, grid, strict=True):
        for panel, axes in zip(row, line, strict=True):
            _draw_dots(axes, panel)
            first = axes is line[0]
            axes.set_yticks(range(len(panel.names)), [_literal(n) for n in panel.names] if first else [])
            if first and len(panel.series) == 1:
                axes.set_ylabel(_literal(*panel.series))
    return figure


def _draw_dots(axes: Any, panel: Dots) -> None:
    many = len(panel.series) > 1
    for i, (title, numbers) in enumerate(panel.series.items()):
        colour, marker = COLOURS[i], MARKERS[i]
        shift = (i - (len(panel.series) - 1) / 2) * 0.3
        for y, number in enumerate(numbers):
            if (value := number["value"]) is None:
                axes.annotate("undefined", (0.02, y + shift), xycoords=("axes fraction", "data"), va="center")
                continue
            low, high = (value if number[end] is None else number[end] for end in ("low", "high"))
            axes.plot([low, high], [y + shift] * 2, color=colour, linewidth=1.5, alpha=0.5)
            axes.plot([value], [y + shift], color=colour, marker=marker, linestyle="none", markersize=5)
        if many:
            axes.plot([], [], color=colour, marker=marker, linestyle="none", label=title)
    if panel.everybody is not None:
        axes.axvline(panel.everybody, color="0.4", linewidth=0.9, linestyle="--", label="all rows")
    axes.set_ylim(len(panel.names) - 0.5, -0.5)
    axes.set_title(_literal(panel.title), fontsize=9)
    axes.grid(axis="x", alpha=0.25)
    if many or panel.everybody is not None:
        axes.legend(fontsize=7, loc="best")


def _literal(text: str) -> str:
    """Return a text in which no dollar opens mathematics, wherever it is drawn."""
    return named(text).replace("$", r"\$")


# ---------------------------------------------------------------------- the frontier


def _frontier(result: Json) -> Figure:
    """Draw quality against gap, a panel for each pair."""
    drawn = panels(result["points"])
    if not drawn:
        raise UsageError(f"{NOTHING[0].lower()}{NOTHING[1:-1]}")
    figure = _new_figure(5.2 * len(drawn), 4.6)
    key: dict[str, Any] = {}
    for axes, panel in zip(figure.subplots(1, len(drawn), squeeze=False)[0], drawn, strict=True):
        _panel(axes, panel)
        lines, names = axes.get_legend_handles_labels()
        key |= dict(zip(names, lines, strict=True))
    figure.legend(key.values(), key.keys(), loc="outside lower center", ncols=2 * len(drawn), fontsize=8)
    return figure


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
