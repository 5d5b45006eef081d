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
from fairfix.data.counts import Floats, Ints, rows_of_each
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
class AcceptanceCurve:
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
    before = {one.levels: one for one in was.groups}
    rows = dict(zip(groups.levels, groups.rows, strict=True))
    for one in now.groups:
        old = before[one.levels]
        metrics = {
            name: (old.metrics[name], one.metrics[name])
            for name in SHOWN
            if name in old.metrics and name in one.metrics
        }
        inside = rows[one.levels]
        if then is None or chance is None or not weight[inside].any():
            yield GroupChange(one.name, one.rows, metrics)
            continue
        p, q, w = then[inside], chance[inside], weight[inside]
        up, down = (float(np.average(part, weights=w)) for part in ((1 - p) * q, p * (1 - q)))
        yield GroupChange(one.name, one.rows, metrics, up, down)


# ---------------------------------------------------------------------- the rule


def acceptance_curves(table: Table, predictor: RepairedPredictor) -> tuple[AcceptanceCurve, ...]:
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
    names: tuple[str, ...] = ("everybody",)
    rows = np.zeros(1, dtype=np.int64)
    if predictor.inputs:
        groups = table.groups(predictor.inputs)
        rows = np.unique(groups.codes, return_index=True)[1]
        seen = ~np.isnan(_ask(table, predictor, rows, np.full(rows.size, grid[0])))  # others the fit lacks
        names, rows = tuple(name for name, one in zip(groups.names, seen, strict=True) if one), rows[seen]
    return tuple(
        AcceptanceCurve(name, tuple(map(float, x)), tuple(map(float, q)))
        for name, (x, q) in zip(names, _with_jumps(table, predictor, rows, grid), strict=True)
    )


def _with_jumps(
    table: Table, predictor: RepairedPredictor, rows: Ints, grid: Floats
) -> Iterator[tuple[Floats, Floats]]:
    """Yield scores and probabilities of each row's group, with both sides of every bend or jump.

    These are where a step of the grid is no line. All groups are asked at once, since an answer for few scores takes as
    long as one for many.
    """

    def ask_each(scores: Floats) -> Floats:
        """Return probabilities of shape (G, S) at scores of shape (S,)."""
        flat = _ask(table, predictor, np.repeat(rows, scores.size), np.tile(scores, rows.size))
        return flat.reshape(rows.size, scores.size)

    chance, bent = ask_each(grid), np.zeros((rows.size, grid.size - 1), dtype=bool)
    for part in (0.25, 0.5, 0.75):
        inside, line = (ends[..., :-1] + part * np.diff(ends) for ends in (grid, chance))
        bent |= np.abs(ask_each(inside) - line) > SAME
    curved = bent.mean(axis=1) > 0.5
    k, step = (np.tile(part, 2) for part in np.nonzero(bent & ~curved[:, None]))
    # where the chance leaves that of the left end of a step, and where it reaches that of the right one
    left = np.arange(k.size) < k.size // 2
    low, high, end = grid[step], grid[step + 1], chance[k, np.where(left, step, step + 1)]
    for _ in range(HALVINGS if k.size else 0):
        half = (low + high) / 2
        alike = np.abs(_ask(table, predictor, rows[k], half) - end) <= SAME
        low, high = np.where(alike == left, half, low), np.where(alike == left, high, half)
    sides = np.stack([low, high])
    answers = np.stack([_ask(table, predictor, rows[k], side) for side in sides])
    for g, own in enumerate(rows_of_each(k, rows.size)):
        if curved[g]:  # the grid draws it
            yield grid, chance[g]
            continue
        x, first = np.unique(np.append(grid, sides[:, own]), return_index=True)
        yield _corners(x, np.append(chance[g], answers[:, own])[first])


def _corners(x: Floats, q: Floats) -> tuple[Floats, Floats]:
    """Return the points but for those on the line from the one before to the next, which say nothing more."""
    kept = [0]
    for i in range(1, x.size):
        if i + 1 < x.size:
            a, b = kept[-1], i + 1
            line = q[a] + (q[b] - q[a]) * (x[i] - x[a]) / (x[b] - x[a])
            if abs(line - q[i]) <= SAME:
                continue
        kept.append(i)
    return x[kept], q[kept]


def _ask(table: Table, predictor: RepairedPredictor, rows: Ints, scores: Floats) -> Floats:
    """Return the probability of a yes for rows as they are, but with other scores; all of shape (n,)."""
    taken = table.take(rows)
    return predictor.predict(replace(taken, rows=replace(taken.rows, score=scores)))
