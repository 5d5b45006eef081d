"""The pictures of a repair: what changes for each group, and the probability of yes at each score."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from fairfix.auditing.metrics import METRICS
from fairfix.report import svg
from fairfix.report.figures import MOST_ROWS, Figure, FigurePart, pairs_of
from fairfix.report.layout import CERTAIN, TextTable, interval, show
from fairfix.report.repairs import in_words
from fairfix.report.svg import CURVES, Curve
from fairfix.schema.common import GroupChanges
from fairfix.schema.repair import GroupRule


def people(changes: GroupChanges) -> Iterator[FigurePart]:
    """Yield the rates of every group before and after a repair, on one axis."""
    groups, attribute = changes.groups[:MOST_ROWS], changes.attribute
    for metric in ("selection_rate", "mean_score"):
        shown = [group for group in groups if metric in group.metrics]
        if not shown:
            continue
        drawn = {group.group: (group.metrics[metric].before, group.metrics[metric].after) for group in shown}
        heading = f"{METRICS[metric].title} by {attribute}, before and after"
        numbers = tuple((name, *map(interval, both)) for name, both in drawn.items())
        grid = TextTable(("group", "before", "after"), numbers, 1, heading)
        share = METRICS[metric].scale == "share"
        yield FigurePart(figures=(pairs_of(heading, drawn, grid, zero=share, most=1.0 if share else None),))
        return


def rule(rules: Sequence[GroupRule]) -> Iterator[FigurePart]:
    """Yield the probability of yes against the score, a line per group."""
    drawn = rules[:CURVES]
    curves = [Curve(one.group, tuple(zip(one.scores, one.probabilities, strict=True))) for one in drawn]
    every = [x for one in drawn for x in one.scores]
    span, moving = (min(every), max(every)), [x for one in drawn for x in _moving(one)]
    if moving:  # where the rules move, and a third of that on either side
        room = max((max(moving) - min(moving)) / 3, (span[1] - span[0]) / 50)
        span = max(span[0], min(moving) - room), min(span[1], max(moving) + room)
    if span[0] == span[1]:
        return
    more = (
        "" if len(drawn) == len(rules) else f" of {len(drawn)} of the {len(rules)} groups; the table has all"
    )
    words = "; ".join(f"{one.group}: {in_words(one)}" for one in drawn)
    heading = "Probability of yes against the score"
    rows = tuple(
        (one.group, show(x), show(q))
        for one in rules
        for x, q in zip(one.scores, one.probabilities, strict=True)
    )
    grid = TextTable(("group", "score", "probability of yes"), rows, 1, heading)
    drawing = svg.lines(curves, ("score", "probability of yes"), span)
    figure = Figure(heading, drawing, f"The rule by group{more}. {words}.", grid)
    yield FigurePart(figures=(figure,), size="wide")


def _moving(one: GroupRule) -> list[float]:
    """Return the scores at whose either side the chance moves."""
    points = list(zip(one.scores, one.probabilities, strict=True))
    moves = [(a, b) for (a, p), (b, q) in pairwise(points) if abs(p - q) > CERTAIN]
    return [x for ends in moves for x in ends]
