"""The frontier of a comparison of methods: which numbers are drawn against which, and the points of each panel.

Both drawings of it read this: the pictures of the HTML page (:mod:`fairfix.report.svg`) and the figures of ``plot``
(:mod:`fairfix.report.picture`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.metrics import METRICS
from fairfix.report.layout import Json
from fairfix.report.svg import Place, Spread

NOTHING = "There are no candidates to show: no method has both a gap and a quality."


@dataclass(frozen=True)
class Panel:
    """The points of a comparison that have this gap and this quality."""

    gap: str
    quality: str
    points: tuple[Json, ...]
    titles: tuple[str, ...]
    """Every method of the comparison, also those without a point here: a method has one marker in all panels."""

    @property
    def better(self) -> str:
        """Where better points are: up or down."""
        return "up" if METRICS[self.quality].better == "larger" else "down"

    def is_front(self, point: Json) -> bool:
        """Tell whether no other point has a smaller gap and better quality."""
        return f"{self.gap}|{self.quality}" in point["front"]

    def place(self, point: Json) -> Place:
        """Return gap and quality of a point."""
        return point["gaps"][self.gap]["value"], point["qualities"][self.quality]["value"]

    def front(self) -> list[Json]:
        """Return the points of the frontier, from the smallest gap on."""
        return sorted(filter(self.is_front, self.points), key=self.place)

    def clouds(self) -> dict[str, list[Spread]]:
        """Return per method gap, quality and the ends of its interval, an open one as the quality itself."""
        clouds: dict[str, list[Spread]] = {title: [] for title in self.titles}
        for point in self.points:
            gap, value = self.place(point)
            if gap is not None and value is not None:
                low, high = (point["qualities"][self.quality][end] for end in ("low", "high"))
                ends = value if low is None else low, value if high is None else high
                clouds[point["title"]].append((gap, value, *ends))
        return clouds


def panels(points: Sequence[Json]) -> list[Panel]:
    """Return what is drawn: accuracy against the selection rate, the loss against KS, per attribute."""
    points = [point for point in points if "failure" not in point]
    titles = tuple(dict.fromkeys(point["title"] for point in points))
    qualities = {quality for point in points for quality in point["qualities"]}
    loss = next((name for name in ("log_loss", "square_loss") if name in qualities), None)
    out = []
    for gap in dict.fromkeys(gap for point in points for gap in point["gaps"]):
        quality = {"selection_rate": "accuracy", "ks": loss}.get(Comparison.parse(gap).metric)
        if quality in qualities:
            shown = tuple(p for p in points if gap in p["gaps"] and quality in p["qualities"])
            out.append(Panel(gap, str(quality), shown, titles))
    return out
