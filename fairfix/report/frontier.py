"""The frontier of a comparison of methods: which numbers are drawn against which, and the points of each panel.

Both drawings of it read this: the pictures of the HTML page (:mod:`fairfix.report.svg`) and the figures of ``plot``
(:mod:`fairfix.report.picture`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.metrics import METRICS
from fairfix.report.svg import Place, Spread
from fairfix.schema.compare import Compare, Point

NOTHING = "There are no candidates to show: no method has both a gap and a quality."


@dataclass(frozen=True)
class Panel:
    """The points of a comparison that have this gap and this quality."""

    gap: str
    quality: str
    points: tuple[Point, ...]
    titles: tuple[str, ...]
    """Every method of the comparison, also those without a point here: a method has one marker in all panels."""

    @property
    def better(self) -> str:
        """Where better points are: up or down."""
        return "up" if METRICS[self.quality].better == "larger" else "down"

    def is_front(self, point: Point) -> bool:
        """Tell whether no other point has a smaller gap and better quality."""
        return f"{self.gap}|{self.quality}" in point.front

    def place(self, point: Point) -> Place | None:
        """Return gap and quality of a point; None where one is undefined."""
        gap, quality = point.gaps[self.gap].value, point.qualities[self.quality].value
        return None if gap is None or quality is None else (gap, quality)

    def front(self) -> list[tuple[Place, Point]]:
        """Return the points of the frontier with their places, from the smallest gap on."""
        placed = [(self.place(point), point) for point in self.points if self.is_front(point)]
        there = [(place, point) for place, point in placed if place is not None]
        return sorted(there, key=lambda placed: placed[0])

    def clouds(self) -> dict[str, list[Spread]]:
        """Return per method gap, quality and the ends of its interval, an open one as the quality itself."""
        clouds: dict[str, list[Spread]] = {title: [] for title in self.titles}
        for point in self.points:
            if (place := self.place(point)) is not None:
                quality = point.qualities[self.quality]
                ends = (place[1] if end is None else end for end in (quality.low, quality.high))
                low, high = ends
                clouds[point.title].append((*place, low, high))
        return clouds


def quality_of(result: Compare) -> str:
    """Return the requested quality of a comparison, or an empty text."""
    return (result.settings.quality or "").partition("(")[0].strip()


def panels(points: Sequence[Point], asked: str = "") -> list[Panel]:
    """Return what is drawn: ``asked``, or accuracy against the selection rate, the loss against KS, per attribute."""
    points = [point for point in points if not point.failure]
    titles = tuple(dict.fromkeys(point.title for point in points))
    qualities = {quality for point in points for quality in point.qualities}
    loss = next((name for name in ("log_loss", "square_loss") if name in qualities), None)
    out = []
    for gap in dict.fromkeys(gap for point in points for gap in point.gaps):
        quality = {"selection_rate": asked or "accuracy", "ks": asked or loss}.get(
            Comparison.parse(gap).metric
        )
        if quality in qualities:
            shown = tuple(p for p in points if gap in p.gaps and quality in p.qualities)
            out.append(Panel(gap, str(quality), shown, titles))
    return out
