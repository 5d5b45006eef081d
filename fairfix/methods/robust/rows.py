"""The rows of a robust fit: their masses by recorded group, bin and label, and what is known of the noise in them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fairfix.data.counts import Floats, Ints
from fairfix.data.names import attribute_name
from fairfix.errors import DataError, UsageError
from fairfix.methods.base import RepairProblem
from fairfix.methods.learned import Scored, label_of
from fairfix.noisy.binned import Assumption, Identified, Sensitive, Soft
from fairfix.noisy.bounds import valid_radius
from fairfix.noisy.description import radii_for
from fairfix.noisy.rates import DEMANDS, LABELS, Parity, cells_of
from fairfix.noisy.training import Adversary, Either, Near, Within

SAME = 1e-9
"""Difference of joint masses below which tables are one."""


@dataclass(frozen=True)
class Radii:
    """True groups are near the recorded ones of the same name."""


@dataclass(frozen=True, eq=False)
class RowNoise:
    """What is known of the noise in the rows of the fit."""

    tables: tuple[Floats, ...]
    """All joint masses of true and recorded groups that may be, (J, K) each, or by label (2, J, K); none for radii."""
    recording: Floats | None
    """Those that statements about ``P(noisy | true)`` are about (N3); None where the table does not tell them."""
    conditional: Floats | None
    """A table with the ``P(noisy | true)`` itself, of any shares (N4); None without a table."""
    radii: Floats | None
    """Shape (K,); None where true and recorded groups have other names."""

    @classmethod
    def of(cls, problem: RepairProblem, own: Floats) -> RowNoise:
        """Carry the table over to masses of recorded groups by label, shape (K, 2), of total 1."""
        names, noise = problem.cells.names, problem.noise
        assert noise is not None
        given = None
        if noise.radii is not None:
            given = radii_for(noise.radii, names, attribute_name(problem.cells.columns))
        if noise.table is None:
            return cls((), None, None, given)
        noise, masses = noise.for_data(names, own.T if noise.table.by_label else own.sum(1))
        table = noise.table
        assert table is not None
        here = slice(len(names))
        joints = noise.tables(masses)[..., here]
        tables = [joints[0], *(joint for joint in joints[1:] if np.abs(joint - joints[0]).max() > SAME)]
        recording = noise.recording(masses)
        if given is None and set(names) == set(table.true):
            order = [table.true.index(name) for name in names]
            given = np.max([valid_radius(over_labels(one)[order]) for one in tables], axis=0)
        recording = None if recording is None else recording[..., here]
        return cls(tuple(tables), recording, noise.conditional(masses)[..., here], given)

    @property
    def by_label(self) -> bool:
        """Whether the table is by label."""
        return bool(self.tables) and self.tables[0].ndim == 3

    def of_assumption(self, assumed: Assumption) -> tuple[Floats, ...]:
        """Return the tables that an assumption is about."""
        if isinstance(assumed, Identified):
            return () if self.conditional is None else (self.conditional,)
        if isinstance(assumed, Sensitive):
            return () if self.recording is None else (self.recording,)
        return tuple(over_labels(one) for one in self.tables) if isinstance(assumed, Soft) else self.tables

    def adversary(self, problem: RepairProblem, assumed: Assumption | Radii, what: str) -> Adversary:
        """Return the balls, or any noise that fits one of the tables, by label or not; ``what`` asks for it."""
        if isinstance(assumed, Radii):
            return Near(self.radii_for(problem, what))
        each = tuple(Within(one) for one in self.of_assumption(assumed))
        return each[0] if len(each) == 1 else Either(each)

    def radii_for(self, problem: RepairProblem, what: str) -> Floats:
        """Return the radii of balls; UsageError where there are none, as true groups have other names."""
        if self.radii is None:
            assert problem.noise is not None
            assert problem.noise.table is not None
            raise UsageError(
                f"robust: {what} needs the same true as recorded groups, since a ball is around each; the noise "
                f"table has {', '.join(problem.noise.table.true)} and the data {', '.join(problem.cells.names)}. Take "
                "`assumption` or `solver=soft`"
            )
        return self.radii


@dataclass(frozen=True, eq=False)
class Binned:
    """What the fit sees of the data."""

    n: Floats
    """Masses by noisy group, bin and label, shape (K, B, 2), of total 1."""
    edges: Floats
    """Least ``2 s - 1`` of each bin, shape (B,); lower ones are in the first bin."""
    rows: float
    """Effective number of rows."""

    @classmethod
    def of(cls, problem: RepairProblem, scored: Scored, constraint: Parity, bins: int) -> Binned:
        """Count the rows; a row without weight has no part in anything."""
        score, label, weight = 2.0 * scored.scores - 1.0, label_of(problem).astype(np.int64), problem.weight
        of_label = any(len(LABELS[rate]) == 1 for rate, _ in DEMANDS[constraint])
        asked = (weight > 0) & (label == 1) if of_label else weight > 0
        if not asked.any():
            raise DataError(f"there is no row with label 1, which {constraint} needs")
        edges = bin_edges(score[asked], weight[asked], bins, 2.0 * problem.table.reading.cut - 1.0)
        return cls.counted(problem, bins_of(edges, score), edges)

    @classmethod
    def counted(cls, problem: RepairProblem, at: Ints, edges: Floats) -> Binned:
        """Count rows in given bins, shape (n,)."""
        label, weight, groups = label_of(problem).astype(np.int64), problem.weight, problem.cells
        shape = (len(groups.levels), edges.size, 2)
        index = np.ravel_multi_index((groups.codes, at, label), shape)
        n = np.bincount(index, weight, math.prod(shape)).reshape(shape)
        return cls(n / n.sum(), edges, float(weight.sum() ** 2 / problem.table.square_weight.sum()))

    def bins(self, scored: Scored) -> Ints:
        """Return the bin of each row, shape (n,)."""
        return bins_of(self.edges, 2.0 * scored.scores - 1.0)

    @classmethod
    def decided(cls, problem: RepairProblem, each: Floats) -> tuple[Binned, Floats]:
        """Return rows counted by what each group's rule decides, (n, K), and the chances of these bins, (K, B).

        Edges are the mean chances of the bins, of which there is one score for all groups.
        """
        at = np.zeros(len(each), dtype=np.int64)
        own = problem.weight > 0  # a row without weight makes no bin
        levels, into = np.unique(each[own], axis=0, return_inverse=True)
        at[own] = into.ravel()
        return cls.counted(problem, at, 2.0 * levels.mean(1) - 1.0), levels.T

    def merged(self, chance: Floats) -> Merged:
        """Return the data with bins joined that are decided alike in every group."""
        starts = np.flatnonzero(np.r_[True, (np.diff(chance, axis=1) != 0).any(axis=0)])
        return Merged(np.add.reduceat(self.n, starts, axis=1), chance[:, starts])


@dataclass(frozen=True, eq=False)
class Merged:
    """Masses (K, m, 2) and chances (K, m) by level of the decision."""

    n: Floats
    chance: Floats

    def overall(self, rate: str) -> float:
        """Return the rate over everybody."""
        own = self.n[:, :, list(LABELS[rate])].sum(2)
        return float((own * self.chance).sum() / own.sum())

    @property
    def cells(self) -> Floats:
        """Masses of TP, FN, FP, TN by noisy group, shape (K, 4), expected over draws."""
        yes, no = self.chance[:, :, None] * self.n, (1 - self.chance)[:, :, None] * self.n
        return cells_of(yes.sum(1), no.sum(1))


def bins_of(edges: Floats, score: Floats) -> Ints:
    """Return the bin of each score ``2 s - 1``, shape (n,); those below all edges are in the first."""
    return np.asarray(np.maximum(np.searchsorted(edges, score, side="right") - 1, 0))


def over_labels(table: Floats) -> Floats:
    """Return a table of true and noisy groups without labels, shape (m, K), of one by label, (2, m, K), or as it is."""
    return np.asarray(table.sum(0)) if table.ndim == 3 else table


def bin_edges(score: Floats, weight: Floats, bins: int, cut: float) -> Floats:
    """Return where bins begin: at quantiles of the scores, one of them moved to the base's threshold."""
    levels, inverse = np.unique(score, return_inverse=True)
    total = np.cumsum(np.bincount(inverse, weight))
    first = np.searchsorted(total * bins, np.arange(bins) * total[-1], side="right")
    edges = levels[np.minimum(first, levels.size - 1)]
    edges = np.unique(np.append(edges, levels[0]))
    if levels[0] < cut <= levels[-1]:  # in place of the nearest, so that no bin is nearly empty
        near = 1 + int(np.argmin(np.abs(edges[1:] - cut))) if edges.size > 1 else 1
        edges = np.unique(np.append(np.delete(edges, near) if edges.size > near else edges, cut))
    return edges
