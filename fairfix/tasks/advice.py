"""Advice: which of the compared repairs to take for a gap of at most so much; and the frontiers that they lie on.

No repair is advised that ``repair`` would warn of with one of :data:`REFUSED`; its other warnings are said with it.
The choice is by the held-out rows that the points are judged by, so what is chosen looks better there than it is. Its
own intervals are therefore those that hold for all points at once (Bonferroni): whichever of them is chosen, they hold.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product

from msgspec.structs import replace as fields_replaced

from fairfix.auditing.metrics import METRICS
from fairfix.report.comparisons import MAIN
from fairfix.schema.compare import Advice, Axes, Point

TRIVIAL = "constant"
"""Title of the candidate that gives all rows one score: it has no gap, and no use."""


REFUSED = frozenset(
    (
        *("no_help", "gap_after", "levelled_down", "rounding", "cost"),
        *("selection", "selection_moved", "constant", "infeasible"),
    )
)
"""Codes of warnings that a repair does not what it is for, or does it at a price that nobody asked for."""


def is_refused(point: Point) -> bool:
    """Whether a warning forbids to advise a point."""
    return any(one.severity == "warning" and one.code in REFUSED for one in point.messages)


def advice_of(points: Sequence[Point], limits: Sequence[float], asked: str | None = None) -> Iterator[Advice]:
    """Yield for every gap and limit, in order, the point of the best quality; the first of equals.

    ``asked`` is the quality; points without it are not compared. By default it is the first of :data:`MAIN` that
    all have.
    """
    gaps = [point.by_gap for point in points]
    for gap in dict.fromkeys(one.gap for point in points for one in point.surer):
        sure = [any(one.gap == gap for one in point.surer) for point in points]
        having = [i for i, point in enumerate(points) if sure[i] and point.title != TRIVIAL]
        having = [i for i in having if asked is None or asked in points[i].qualities]
        quality = next(
            (
                name
                for name in ((asked,) if asked else MAIN)
                if all(name in points[i].qualities for i in having)
            ),
            None,
        )
        if quality is None or not having:
            continue
        sign = -1.0 if METRICS[quality].better == "larger" else 1.0
        losses = {i: sign * points[i].qualities[quality].point for i in having}
        for limit in sorted(one for one in set(limits) if math.isfinite(one) and one > 0):
            within = [i for i in having if gaps[i][gap].point <= limit]
            within = [i for i in within if math.isfinite(losses[i])]
            within.sort(key=lambda i: (losses[i], bool(points[i].protected_at_predict), i))
            best = next((i for i in within if not is_refused(points[i])), None)
            first = next(iter(within), None)
            yield Advice(
                gap=gap, at_most=limit, quality=quality, point=best, refused=None if first == best else first
            )


def with_fronts(points: Sequence[Point]) -> Iterator[Point]:
    """Yield the points with the frontiers they lie on: no other has both a smaller gap and a better quality."""
    places: dict[Axes, list[tuple[float, float, int]]] = {}
    for i, point in enumerate(points):
        for gap, (name, quality) in product(point.gaps, point.qualities.items()):
            loss = -quality.point if METRICS[name].better == "larger" else quality.point
            if math.isfinite(gap.point) and math.isfinite(loss):
                places.setdefault(Axes(gap=gap.gap, quality=name), []).append((gap.point, loss, i))
    fronts: list[list[Axes]] = [[] for _ in points]
    for axes, placed in places.items():
        best = math.inf
        for _, loss, i in sorted(placed):
            if loss < best:
                fronts[i].append(axes)
                best = loss
    for point, front in zip(points, fronts, strict=True):
        yield fields_replaced(point, front=tuple(front))
