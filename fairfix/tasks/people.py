"""People: what a repair changes for the members of each group, and the rule that it decides them by.

Both are facts of the proof. Of a group: its rates before and after, and the shares of its rows whose decision goes from
no to yes and from yes to no, expected where decisions are drawn. Of a rule of the score: the probability of a yes at
each score.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from fairfix.auditing.results import AuditReport, Block, Value
from fairfix.data.counts import Floats
from fairfix.data.table import Table
from fairfix.models.predictors import RepairedPredictor

SHOWN = (
    *("selection_rate", "true_positive_rate", "false_positive_rate"),
    *("accuracy", "mean_score", "mean_error"),
)
"""Metrics of a group that are shown before and after a repair, where both are there."""

GRID = 201
"""Scores at which a rule is drawn: each is at most half a per cent of the range from the next."""

HALVINGS = 60
"""Of a step of the grid: then the place of a jump is known to the last digit of a score."""

SAME = 1e-9
"""Two probabilities that differ by less are one."""


@dataclass(frozen=True)
class GroupChange:
    """What a repair changes for a group.

    ``up`` and ``down`` are weighted shares of its rows whose decision goes from 0 to 1 and from 1 to 0, expected over
    the draws of decisions; None where nothing is decided. ``metrics`` has a pair (before, after) by metric.
    """

    group: str
    rows: int
    metrics: Mapping[str, tuple[Value, Value]]
    up: float | None = None
    down: float | None = None


@dataclass(frozen=True)
class Rule:
    """The probability of a positive decision of a group at increasing scores, arrays of one length.

    A jump is two scores that are next to one another; between two scores the probability is a straight line.
    """

    group: str
    scores: tuple[float, ...]
    probabilities: tuple[float, ...]


def changes_of(
    base: Table, repaired: Table, before: AuditReport, after: AuditReport
) -> dict[str, tuple[GroupChange, ...]]:
    """Return attribute -> what changes for each of its groups; rows of both tables are the same, in one order."""
    return {
        block.attribute: tuple(_of_block(base, repaired, before.block(block.attribute), block))
        for block in after.blocks
        if not block.stratum and block.groups
    }


def _of_block(base: Table, repaired: Table, was: Block, now: Block) -> Iterator[GroupChange]:
    groups = repaired.groups(now.columns)
    then, chance, weight = base.chance, repaired.chance, repaired.weight
    for one in now.groups:
        old = next(group for group in was.groups if group.levels == one.levels)
        metrics = {
            name: (old.metrics[name], one.metrics[name])
            for name in SHOWN
            if name in old.metrics and name in one.metrics
        }
        inside = groups.codes == groups.levels.index(one.levels)
        if then is None or chance is None or not weight[inside].any():
            yield GroupChange(one.name, one.rows, metrics)
            continue
        p, q, w = then[inside], chance[inside], weight[inside]
        up, down = (float(np.average(part, weights=w)) for part in ((1 - p) * q, p * (1 - q)))
        yield GroupChange(one.name, one.rows, metrics, up, down)


# ---------------------------------------------------------------------- the rule


def rules_of(table: Table, predictor: RepairedPredictor) -> tuple[Rule, ...]:
    """Return the rule of every group of the table; none where decisions hang on more than the score and the group.

    It is the predictor itself that is asked, at a grid of scores, at the scores of the rows where they are few, and on
    either side of every jump.
    """
    if predictor.gives != "decision" or predictor.features or not predictor.needs_score:
        return ()
    assert table.rows.score is not None
    scores = np.unique(table.rows.score)
    low, high = (0.0, 1.0) if table.reading.score_scale == "probability" else (scores[0], scores[-1])
    grid = np.linspace(low, high, GRID)
    if scores.size <= GRID:
        middles = (scores[1:] + scores[:-1]) / 2
        grid = np.unique(np.concatenate([grid, scores, middles]))
    if not predictor.inputs:
        return (Rule("everybody", *_with_jumps(table, predictor, 0, grid)),)
    groups = table.groups(predictor.inputs)
    rules = []
    for k, name in enumerate(groups.names):
        row = int(np.flatnonzero(groups.codes == k)[0])
        if not np.isnan(_ask(table, predictor, row, grid[:1])).any():  # else it is a group that the fit lacks
            rules.append(Rule(name, *_with_jumps(table, predictor, row, grid)))
    return tuple(rules)


def _with_jumps(
    table: Table, predictor: RepairedPredictor, row: int, grid: Floats
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return scores and probabilities with both sides of every bend or jump, which are where a grid step is no line."""
    chance, bent = _ask(table, predictor, row, grid), np.zeros(grid.size - 1, dtype=bool)
    for part in (0.25, 0.5, 0.75):
        inside, line = (ends[:-1] + part * np.diff(ends) for ends in (grid, chance))
        bent |= np.abs(_ask(table, predictor, row, inside) - line) > SAME
    if bent.mean() > 0.5:  # a curve, which the grid draws
        return tuple(map(float, grid)), tuple(map(float, chance))
    xs, qs = [grid], [chance]
    for left in (
        True,
        False,
    ):  # where the chance leaves that of the left end, and where it reaches that of the right
        low, high = grid[:-1][bent], grid[1:][bent]
        end = (chance[:-1] if left else chance[1:])[bent]
        for _ in range(HALVINGS if bent.any() else 0):
            half = (low + high) / 2
            alike = np.abs(_ask(table, predictor, row, half) - end) <= SAME
            low, high = np.where(alike == left, half, low), np.where(alike == left, high, half)
        xs += [low, high]
        qs += [_ask(table, predictor, row, low), _ask(table, predictor, row, high)]
    x, first = np.unique(np.concatenate(xs), return_index=True)
    q, kept = np.concatenate(qs)[first], [0]
    for i in range(1, x.size):  # a point on the line from the one before to the next says nothing more
        if i + 1 < x.size:
            a, b = kept[-1], i + 1
            line = q[a] + (q[b] - q[a]) * (x[i] - x[a]) / (x[b] - x[a])
            if abs(line - q[i]) <= SAME:
                continue
        kept.append(i)
    return tuple(map(float, x[kept])), tuple(map(float, q[kept]))


def _ask(table: Table, predictor: RepairedPredictor, row: int, scores: Floats) -> Floats:
    """Return the probability of a yes for a row as it is, but with other scores."""
    taken = table.take(np.full(scores.size, row))
    return predictor.predict(replace(taken, rows=replace(taken.rows, score=scores)))
