"""Rows by cell: what a method that works on scores is given, and the recalibration of their scores.

A cell is a group, or a group within a stratum. :func:`cells_of` sorts the rows of a problem into cells, unlabelled rows
included; :func:`points_of` turns each cell into the points that are solved for: its rows as they are, its rows with a
recalibrated score, or the blocks of its isotonic regression, which are few.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial

import numpy as np
import numpy.typing as npt

from fairfix.data.counts import Floats, Ints, rows_of_each, spans, tallied
from fairfix.data.names import group_name
from fairfix.data.once import once_per_object
from fairfix.data.table import Groups, Table
from fairfix.errors import DataError
from fairfix.methods.problem import RepairProblem
from fairfix.solvers.monotone import Isotonic, Sigmoid, isotonic, sigmoid
from fairfix.solvers.piecewise import Piecewise


@dataclass(frozen=True, eq=False)
class CellScores:
    """The rows of one group in one stratum.

    Attributes
    ----------
    name
        Of the stratum and the group, for messages.
    score
        ``2 p - 1``, shape (n,); rows with labels first.
    weight
        Shape (n,).
    labels
        Gathers the labels; None where there are none.
    square_weight
        Squared weights of the rows with labels, shape (m,); None where they are those of the weights.
    """

    name: str
    score: Floats
    weight: Floats
    labels: Callable[[], npt.NDArray[np.generic]]
    square_weight: Floats | None = None

    @cached_property
    def label(self) -> npt.NDArray[np.generic]:
        """Labels, gathered when they are first asked for; empty where there are none."""
        return self.labels()

    @property
    def labelled(self) -> tuple[Floats, npt.NDArray[np.generic], Floats]:
        """Scores, labels and weights of the rows that have labels."""
        many = self.label.size
        return self.score[:many], self.label, self.weight[:many]


@dataclass(frozen=True, eq=False)
class GroupScores:
    """All cells, with the levels of their columns: strata first, then groups."""

    columns: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]
    cells: tuple[CellScores, ...]
    stratum: tuple[int, ...]

    def strata(self) -> dict[int, list[int]]:
        """Return the cells of each stratum, in order."""
        return {s: [k for k, own in enumerate(self.stratum) if own == s] for s in dict.fromkeys(self.stratum)}


@once_per_object
def cells_of(problem: RepairProblem) -> GroupScores:
    """Return the rows by cell; DataError where unlabelled rows are of a cell that no labelled row has."""
    table, (groups, stratum) = problem.table, within_strata(problem)
    columns, levels = groups.columns, groups.levels
    parts = [(table, groups.codes)]
    if (more := problem.unlabelled) is not None:
        parts.append((more, _codes_of_more(more, columns, levels)))
    scores = _by_cell(parts, lambda rows: rows.ranking, len(levels))
    weights = _by_cell(parts, lambda rows: rows.weight, len(levels))
    squares = None
    if table.rows.entries is not None:
        squares = _by_cell(parts[:1], lambda rows: rows.square_weight, len(levels))

    @cache
    def rows() -> list[Ints]:
        return rows_of_each(groups.codes, len(levels))

    def labels_of(k: int) -> npt.NDArray[np.generic]:
        return np.zeros(0) if table.rows.label is None else np.asarray(table.labels[rows()[k]])

    cells = tuple(
        CellScores(
            group_name(level),
            scores[k],
            weights[k],
            partial(labels_of, k),
            None if squares is None else squares[k],
        )
        for k, level in enumerate(levels)
    )
    return GroupScores(columns, levels, cells, tuple(stratum.tolist()))


def _by_cell(
    parts: Sequence[tuple[Table, Ints]], value: Callable[[Table], Floats], many: int
) -> list[Floats]:
    """Return a number of each row by cell, in the order of the rows, without an array of it for all rows.

    ``parts``: tables, and the cell of each of their rows.
    """
    sizes = np.sum([tallied(codes, many) for _, codes in parts], axis=0)
    out, begun = [np.empty(size) for size in sizes.tolist()], [0] * many
    for table, codes in parts:
        for piece, own in table.pieces_with(codes):
            each = value(piece)
            for k, rows in enumerate(rows_of_each(own, many)):
                if rows.size:
                    out[k][begun[k] : begun[k] + rows.size] = each[rows]
                    begun[k] += rows.size
    return out


@once_per_object
def within_strata(problem: RepairProblem) -> tuple[Groups, Ints]:
    """Return the groups inside each stratum that have rows, as groups of the columns of both, and the stratum of each.

    Strata are counted from 0; without them the groups are as they are, all of stratum 0.
    """
    groups, strata = problem.groups, problem.strata
    if strata is None:
        return groups, np.zeros(len(groups.levels), dtype=np.int64)
    many = len(groups.levels)
    seen, code = np.unique(strata.codes * many + groups.codes, return_inverse=True)
    levels = tuple(
        (*strata.levels[s], *groups.levels[g]) for s, g in zip(seen // many, seen % many, strict=True)
    )
    return Groups((*strata.columns, *groups.columns), levels, lambda: code), seen // many


def _codes_of_more(table: Table, columns: Sequence[str], levels: Sequence[tuple[str, ...]]) -> Ints:
    """Return the cell of each unlabelled row, shape (n,)."""
    code = table.codes(columns, levels)
    if (code < 0).any():
        groups = table.groups(columns)
        name = groups.names[int(groups.codes[int(np.argmax(code < 0))])]
        raise DataError(
            f"unlabelled rows belong to the group {name!r} of {' x '.join(columns)!r}, which no labelled row has; "
            "leave these rows out"
        )
    return code


# ---------------------------------------------------------------------- calibrated points


@dataclass(frozen=True, eq=False)
class Points:
    """Scores of a cell for the solver: its rows, or the blocks of its isotonic regression.

    Attributes
    ----------
    score
        ``2 eta - 1``, shape (m,).
    weight
        Shape (m,).
    raw
        Scores as they come: of the rows, or the least of each block.
    blocks, map
        The recalibration, if there is one.
    """

    score: Floats
    weight: Floats
    raw: Floats
    blocks: Isotonic | None = None
    map: Sigmoid | None = None

    @cached_property
    def eta(self) -> Floats:
        """Probability of label 1."""
        return (1.0 + self.score) / 2.0 if self.blocks is None else self.blocks.shares

    def curve(self, share: Floats) -> Piecewise:
        """Return the rule on the raw score that gives the points their shares."""
        if self.blocks is not None:
            return Piecewise.steps(self.raw, share)
        return Piecewise.separating(self.raw, share)

    def of_rows(self, raw: Floats) -> Floats:
        """Return the probability of label 1 at raw scores."""
        if self.blocks is not None:
            return self.blocks.shares[self.blocks.block(raw)]
        return self.map.apply(raw) if self.map else (1.0 + raw) / 2.0


@once_per_object
def points_of(problem: RepairProblem, how: str) -> list[Points]:
    """Return the points of every cell: ``how`` is none, isotonic or sigmoid."""
    return [calibrated(cell, how) for cell in cells_of(problem).cells]


def calibrated(cell: CellScores, how: str) -> Points:
    """Return the points of a cell after its recalibration."""
    if how == "none":
        return Points(cell.score, cell.weight, cell.score)
    score, label, weight = cell.labelled
    if how == "sigmoid":
        map_ = sigmoid(score, label, weight)
        return Points(2.0 * map_.apply(cell.score) - 1.0, cell.weight, cell.score, map=map_)
    blocks = isotonic(score, label, weight)
    mass = blocks.mass
    if cell.score.size > score.size:  # unlabelled rows count as well
        mass = np.bincount(blocks.block(cell.score), cell.weight, blocks.shares.size).astype(np.float64)
    return Points(2.0 * blocks.shares - 1.0, mass, blocks.edges, blocks=blocks)


def miscalibration(cells: Sequence[CellScores]) -> tuple[float, float]:
    """Return the mean distance of score and label over ten bins per cell, and what chance alone gives of it."""
    off = chance = total = 0.0
    for cell in cells:
        if not cell.label.size:
            continue
        score, label, weight = cell.labelled
        cuts = np.quantile(score, np.arange(0.1, 1.0, 0.1))
        mass, p, y, squares = np.zeros((4, 10))
        for inside in spans(score.size):
            own = score[inside]
            w = weight[inside]
            square = w * w if cell.square_weight is None else cell.square_weight[inside]
            bin_ = np.searchsorted(cuts, own, side="right")
            mass += np.bincount(bin_, w, 10)
            p += np.bincount(bin_, w * ((1 + own) / 2), 10)
            y += np.bincount(bin_, w * (label[inside] == 1).astype(np.float64), 10)
            squares += np.bincount(bin_, square, 10)
        full = mass > 0
        mean = p[full] / mass[full]
        off += float(np.abs(p - y).sum())
        spread = squares[full] * mean * (1 - mean)
        chance += float(np.sqrt(2 / math.pi * spread).sum())
        total += float(mass.sum())
    return (off / total, chance / total) if total else (0.0, 0.0)
