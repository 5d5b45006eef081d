"""The frontiers of a comparison of methods: for each gap a picture of the quality that is drawn against it."""

from __future__ import annotations

from collections.abc import Sequence

from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.metrics import METRICS
from fairfix.report import svg
from fairfix.report.comparisons import quality_of, slack_of
from fairfix.report.figures import Figure, FigurePart
from fairfix.report.layout import Columns, TextTable, interval, show, titled, titled_gap
from fairfix.report.svg import Spread
from fairfix.schema.compare import Axes, Compare, Point

NOTHING = "There are no candidates to show: no method has both a gap and a quality."

TEXT = (
    "Quality of each method against its remaining gap, on held-out rows, with the interval of the "
    "quality. Each method has its own marker; the line is the frontier, where no other candidate has a "
    "smaller gap and better quality."
)


def frontier(result: Compare) -> FigurePart:
    """Return a picture for each gap of a comparison of methods."""
    points = [point for point in result.points if not point.failure]
    drawn = tuple(_figure(axes, points) for axes in _axes(points, quality_of(result)))
    return FigurePart(text=(TEXT if drawn else NOTHING,), figures=drawn, size="large")


def _axes(points: Sequence[Point], asked: str) -> list[Axes]:
    """Return the axes of each picture: ``asked``, or accuracy for the selection rate and the loss for KS."""
    qualities = {quality for point in points for quality in point.qualities}
    loss = next((name for name in ("log_loss", "square_loss") if name in qualities), "")
    usual = {"selection_rate": "accuracy", "ks": loss}
    gaps = dict.fromkeys(one.gap for point in points for one in point.gaps)
    against = {gap: Comparison.parse(gap.comparison).metric for gap in gaps}
    axes = [
        Axes(gap=gap, quality=asked or usual[metric]) for gap, metric in against.items() if metric in usual
    ]
    return [one for one in axes if one.quality in qualities]


def _figure(axes: Axes, points: Sequence[Point]) -> Figure:
    """Return the points that have a gap and a quality, and those of them that no other beats in both."""
    clouds: dict[str, list[Spread]] = {
        point.title: [] for point in points
    }  # a method has one marker everywhere
    gap, quality = axes.gap, axes.quality
    shown = [point for point in points if gap in point.by_gap and quality in point.qualities]
    front: list[tuple[tuple[float, float], Point]] = []
    for point in shown:
        x, y = point.by_gap[gap].value, point.qualities[quality]
        if x is None or y.value is None:
            continue
        low, high = (y.value if end is None else end for end in (y.low, y.high))
        clouds[point.title].append((x, y.value, low, high))
        if axes in point.front:
            front.append(((x, y.value), point))
    front.sort(key=lambda placed: placed[0])
    heading, short = f"{titled(quality)} against {titled_gap(gap)}", quality.replace("_", " ")
    better = "up" if METRICS[quality].better == "larger" else "down"
    described = (
        f"{point.title}{'' if point.slack is None else f' with slack {point.slack}'}: "
        f"gap {show(x)}, {short} {show(y)}"
        for (x, y), point in front
    )
    columns: Columns = {
        "method": "title",
        "slack": slack_of,
        "gap": lambda point: interval(point.by_gap[gap]),
        short: lambda point: interval(point.qualities[quality]),
        "on it": lambda point: "frontier" if axes in point.front else "",
    }
    titles = titled_gap(gap), f"{short} (better is {better})"
    drawing = svg.scatter(clouds, [place for place, _ in front], titles)
    grid = TextTable.of(columns, shown, 5, heading)
    return Figure(heading, drawing, "On the frontier: " + "; ".join(described), grid)
