"""People: what a repair changes for the members of each group, and the rule that it decides them by.

Both are facts of the proof. Of a group: its rates before and after, and the shares of its rows whose decision goes from
no to yes and from yes to no, expected where decisions are drawn. Of a rule of the score: the probability of a yes at
each score.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from fairfix.data.counts import Floats, Ints
from fairfix.data.table import Table
from fairfix.models.predictors import OfGroups, RepairedPredictor
from fairfix.schema.audit import Audit
from fairfix.schema.common import BeforeAfter, Block, GroupChange, GroupChanges
from fairfix.schema.repair import GroupRule

SHOWN = (
    *("selection_rate", "true_positive_rate", "false_positive_rate"),
    *("accuracy", "mean_score", "mean_error"),
)
"""Metrics of a group that are shown before and after a repair, where both are there."""

GRID = 201
"""Scores at which a rule is drawn: each is at most half a per cent of the range from the next."""

BESIDE = 2.0**-40
"""Part of the range that the scores on either side of a jump lie from it: far above the rounding of a knot."""

JUMP, ZOOMS, PARTS = 0.02, 3, 64
"""Least rise in a step of the grid in which a rule without known knots may jump; rounds of refinement; parts of a step
in each."""

SAME = 1e-9
"""Two probabilities that differ by less are one."""


def changes_of(base: Table, repaired: Table, before: Audit, after: Audit) -> tuple[GroupChanges, ...]:
    """Return what changes for the groups of each attribute; rows of both tables are the same, in one order."""
    return tuple(
        GroupChanges(
            attribute=block.attribute,
            groups=tuple(_of_block(base, repaired, before.block(block.attribute), block)),
        )
        for block in after.attributes
        if block.groups
    )


def _of_block(base: Table, repaired: Table, was: Block, now: Block) -> Iterator[GroupChange]:
    before = {one.levels: one for one in was.groups}
    moved = _moved(base, repaired, now.columns)
    for one in now.groups:
        old = before[one.levels]
        metrics = {
            name: BeforeAfter(before=old.metrics[name], after=one.metrics[name])
            for name in SHOWN
            if name in old.metrics and name in one.metrics
        }
        up, down = moved.get(one.levels, (None, None))
        yield GroupChange(group=one.group, rows=one.rows, metrics=metrics, up=up, down=down)


def _moved(
    base: Table, repaired: Table, columns: tuple[str, ...]
) -> dict[tuple[str, ...], tuple[float, float]]:
    """Return levels -> weighted shares of decisions that go up and down; of the groups that have any such share."""
    groups = repaired.groups(columns)
    of_cell, sums = repaired.cell_codes(columns, groups.levels), np.zeros((3, len(groups.levels)))
    for was, now in zip(base.pieces(), repaired.pieces(), strict=True):
        p, q, w = was.chance, now.chance, now.weight
        if p is None or q is None:
            return {}
        code = of_cell[now.rows.cell]
        sums += [np.bincount(code, part, sums.shape[1]) for part in (w, w * ((1 - p) * q), w * (p * (1 - q)))]
    inhabited = np.flatnonzero(sums[0])
    return {
        groups.levels[k]: (float(sums[1, k] / sums[0, k]), float(sums[2, k] / sums[0, k])) for k in inhabited
    }


# ---------------------------------------------------------------------- the rule


def acceptance_curves(table: Table, predictor: RepairedPredictor) -> tuple[GroupRule, ...]:
    """Return the rule of every group of the table; none where decisions depend on more than the score and the group.

    A jump is two scores that lie a millionth of a millionth of the range apart. Between two scores the probability is
    a straight line.

    The predictor is asked once: at a grid of scores, at the scores of the rows where they are few, and at and around
    its knots. Where it does not know its knots, it is asked again where it may jump.
    """
    if predictor.gives != "decision" or predictor.features or not predictor.needs_score:
        return ()
    ends = float(table.scores.min()), float(table.scores.max())
    low, high = (0.0, 1.0) if table.data_spec.score_scale == "probability" else ends
    grid = np.linspace(low, high, GRID)
    scores = np.zeros(0)
    for piece in table.pieces():
        if scores.size <= GRID:
            scores = np.union1d(scores, piece.scores)
    if scores.size <= GRID:
        grid = np.concatenate([grid, scores])
    names: tuple[str, ...] = ("everybody",)
    rows = np.zeros(1, dtype=np.int64)
    if predictor.inputs:
        groups = table.groups(predictor.inputs)
        names, rows = groups.names, groups.first
        seen = np.flatnonzero(~predictor.unseen(table.take(rows)))
        names, rows = tuple(names[k] for k in seen), rows[seen]
    knots, beside = predictor.knots(table.data_spec), BESIDE * (high - low) * np.arange(-1, 2)
    if knots is None or not isinstance(predictor, OfGroups):
        drawn = _zoomed(table, predictor, rows, np.unique(grid))
    else:
        own = [knots[k] for k in table.cell_codes(predictor.columns, predictor.levels)[table.rows.cell[rows]]]
        near = [(x[(x >= low) & (x <= high)][:, None] + beside).ravel() for x in own]
        drawn = _asked(table, predictor, rows, [np.unique(np.append(grid, x).clip(low, high)) for x in near])
    return tuple(
        GroupRule(group=name, scores=tuple(x.tolist()), probabilities=tuple(q.tolist()))
        for name, (x, q) in zip(names, itertools.starmap(_corners, drawn), strict=True)
    )


def _asked(
    table: Table, predictor: RepairedPredictor, rows: Ints, scores: Sequence[Floats]
) -> list[tuple[Floats, Floats]]:
    """Return scores, and the probability of a yes that each row would have at its own."""
    sizes = [one.size for one in scores]
    taken = table.take(np.repeat(rows, sizes))
    chance = predictor.predict(replace(taken, rows=replace(taken.rows, score=np.concatenate(scores))))
    return list(zip(scores, np.split(chance, np.cumsum(sizes)[:-1]), strict=True))


def _zoomed(
    table: Table, predictor: RepairedPredictor, rows: Ints, grid: Floats
) -> list[tuple[Floats, Floats]]:
    """Return the same at a grid, which is cut finer again and again where the rule may jump."""
    drawn = _asked(table, predictor, rows, [grid] * rows.size)
    for _ in range(ZOOMS):
        steep = [np.flatnonzero(np.abs(np.diff(q)) > JUMP) for _, q in drawn]
        if not any(part.size for part in steep):
            break
        finer = [
            np.unique(np.append(x, np.linspace(x[part], x[part + 1], PARTS)))
            for (x, _), part in zip(drawn, steep, strict=True)
        ]
        drawn = _asked(table, predictor, rows, finer)
    return drawn


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
