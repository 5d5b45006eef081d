"""The rows of a robust fit: their masses by recorded group, bin and label, and what is known of the noise in them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from fairfix.data.choices import Keep
from fairfix.data.counts import Bools, Floats, Ints
from fairfix.data.memberships import memberships
from fairfix.data.names import attribute_name
from fairfix.errors import DataError, UsageError
from fairfix.methods.learned import OutOfFoldScores, label_of
from fairfix.methods.problem import RepairProblem
from fairfix.noise.description import Noise, NoiseTable
from fairfix.noise.membership_audit import merged
from fairfix.noise.rates import DEMANDS, LABELS, Parity, cells_of
from fairfix.noise.score_bin_bounds import (
    Assumption,
    BoundedDependence,
    ClassConditional,
    KnownMembership,
    KnownTable,
    TotalVariation,
)
from fairfix.noise.total_variation_radii import Balls, balls_for, balls_of, recorded_in
from fairfix.noise.training import Adversary, AnyTable, TableInterval, TotalVariationBalls
from fairfix.noise.uncertainty_set import Range, entry_ends, largest_radii
from fairfix.stats.quantiles import beta_quantile

SAME = 1e-9
"""Difference of joint masses below which tables are one."""


FINEST = 50
"""Bins of like probabilities of membership, at most: a worst case over each takes a share of the rows, which
:data:`fairfix.noise.membership_audit.LEAST` bounds for few rows, and for many rows a program should not be a large
one."""


@dataclass(frozen=True, eq=False)
class Kinds:
    """Groups of rows that a description of noise tells apart, and the rule of each."""

    codes: Ints
    """Kind of each row, shape (n,)."""
    rules: Ints
    """Number of each kind's rule, shape (K,): that of its recorded group, or 0 for all."""
    vectors: Floats | None = None
    """Probabilities of membership of the rows, shape (n, J), where these describe the noise."""

    @classmethod
    def recorded(cls, problem: RepairProblem, *, blind: bool) -> Kinds:
        """Return the recorded groups, or with probabilities of membership those of rules."""
        groups, noise = problem.groups, problem.known_noise
        if noise.membership is None:
            many = len(groups.levels)
            return cls(groups.codes, np.zeros(many, dtype=np.int64) if blind else np.arange(many))
        codes = np.zeros_like(groups.codes) if blind else groups.codes
        rules = np.arange(1 if blind else len(groups.levels))
        return cls(codes, rules, memberships(problem.table, tuple(noise.membership.values())))

    def by_vector(self, problem: RepairProblem) -> Kinds:
        """Return bins of like vectors, each within one rule; the same kinds where there are no vectors.

        Raises
        ------
        UsageError
            Rows of one vector are in two recorded groups: the probabilities are about both together.
        """
        if self.vectors is None:
            return self
        own = problem.weight > 0
        distinct, into = np.unique(self.vectors[own], axis=0, return_inverse=True)
        into, used = into.ravel(), self.codes[own]
        rule = np.zeros(len(distinct), dtype=np.int64)
        rule[into] = used
        odd = np.flatnonzero(rule[into] != used)
        if odd.size:
            names, columns = problem.groups.names, attribute_name(problem.groups.columns)
            both = sorted((names[used[odd[0]]], names[rule[into[odd[0]]]]))
            raise UsageError(
                f"robust: rows with the same membership probabilities are in the groups {both[0]!r} and {both[1]!r} "
                f"of {columns!r}, so the probabilities do not distinguish them. Use `group=unused`, or name "
                "a column with `protected` that the probabilities determine, such as the most likely group"
            )
        many = np.bincount(into, minlength=len(distinct)).astype(np.int64)
        bins, first = np.zeros(len(distinct), dtype=np.int64), 0
        for number in self.rules:
            here = np.flatnonzero(rule == number)
            most = max(FINEST // self.rules.size, 1)
            bins[here] = first + merged(distinct[here], many[here], most=most)
            first = int(bins[here].max()) + 1
        codes = np.zeros_like(self.codes)
        codes[own] = bins[into]
        rules = np.zeros(first, dtype=np.int64)
        rules[bins] = rule
        return replace(self, codes=codes, rules=rules)

    def joint(self, vectors: Floats, weight: Floats) -> Floats:
        """Return the joint masses of true groups and kinds that probabilities make, shape (J, K), of total 1."""
        many = self.rules.size
        sums = [np.bincount(self.codes, weight * z, many) for z in vectors.T]
        return np.asarray(sums / weight.sum())


@dataclass(frozen=True, eq=False)
class RowNoise:
    """Knowledge about the noise in the training rows."""

    tables: tuple[Floats, ...]
    """All joint masses of true and recorded groups that may be, (J, K) each, or by label (2, J, K); none for radii."""
    recording: Floats | None
    """Those that statements about ``P(noisy | true)`` are about (N3); None where the table does not tell them."""
    conditional: Floats | None
    """A table with the ``P(noisy | true)`` itself, of any shares (N4); None without a table."""
    balls: Balls | None
    """Around recorded groups; None where probabilities of membership describe the noise."""
    ranges: tuple[Range, ...] = ()
    """All that a survey leaves open of what may hold for the rows, the recording last; none where a table is known."""
    plain_ranges: tuple[Range, ...] = ()
    """The same without labels."""
    masses: Floats | None = None
    """Masses of recorded groups by label, shape (K, 2), of total 1, where a survey leaves the table open."""
    members: Floats | None = None
    """Sums by probabilities of membership, (2, J, K, B, 2), as those of
    :class:`fairfix.noise.score_bin_bounds.KnownMembership`."""

    @classmethod
    def of(cls, problem: RepairProblem, rows: Binned) -> RowNoise:
        """Say what is known of binned rows."""
        noise, kinds = problem.known_noise, rows.kinds
        if noise.membership is None or kinds.vectors is None:
            return cls.of_groups(problem, rows.n.sum(1))
        index, weight = kinds.codes * rows.edges.size + rows.at, problem.weight
        label, square = label_of(problem) == 1, problem.table.square_weight
        shape = (2, kinds.vectors.shape[1], *rows.n.shape)
        sums = np.zeros(shape)
        for j, z in enumerate(kinds.vectors.T):
            for y, own in enumerate((~label, label)):
                for part, value in enumerate((weight * z, square * z * z)):
                    flat = np.bincount(index, value * own, rows.n.shape[0] * rows.n.shape[1])
                    sums[part, j, :, :, y] = flat.reshape(rows.n.shape[:2])
        return cls((kinds.joint(kinds.vectors, weight),), None, None, None, members=sums)

    @classmethod
    def of_groups(cls, problem: RepairProblem, own: Floats) -> RowNoise:
        """Carry the table over to masses of recorded groups by label, shape (K, 2), of total 1."""
        names, noise = problem.groups.names, problem.known_noise
        _require_cells(problem, noise)
        given = None
        if noise.radii is not None:
            given = balls_for(noise.radii, names, attribute_name(problem.groups.columns))
        if noise.table is None:
            return cls((), None, None, given)
        table, masses = noise.table.for_data(names, own.T if noise.table.by_label else own.sum(1))
        here = slice(len(names))
        joints = table.tables(masses)[..., here]
        tables = [joints[0], *(joint for joint in joints[1:] if np.abs(joint - joints[0]).max() > SAME)]
        recording = table.recording(masses)
        if given is None:
            given = balls_of(np.stack([over_labels(one) for one in tables]), table.true, names)
        recording = None if recording is None else recording[..., here]
        return cls(tuple(tables), recording, table.conditional(masses)[..., here], given)

    @property
    def known_balls(self) -> Balls:
        """The balls; a ValueError where probabilities of membership describe the noise."""
        if self.balls is None:
            raise ValueError("nothing is known of distances to recorded groups")
        return self.balls

    @property
    def by_label(self) -> bool:
        """Whether the table is by label."""
        return bool(self.tables) and self.tables[0].ndim == 3

    def surveyed(self, problem: RepairProblem, table: NoiseTable, own: Floats, confidence: float) -> RowNoise:
        """Return what a survey of counts leaves open at a confidence; masses of recorded groups as in `of_groups`."""
        names = problem.groups.names
        table, _ = table.for_data(names, own.T if self.by_label else own.sum(1))
        here = slice(len(names))

        def ranges(counts: Floats) -> tuple[Range, ...]:
            whole = (range_of(counts, keep, confidence) for keep in table.ways)
            return tuple(Range(one.low[..., here], one.high[..., here], one.keep) for one in whole)

        plain, balls = ranges(over_labels(table.entries)), self.balls
        if balls is not None and problem.known_noise.radii is None:
            masses = own.sum(1)
            radii = np.max([largest_radii(masses, one, balls.home) for one in plain], axis=0)
            balls = replace(balls, radii=radii)
        return replace(self, ranges=ranges(table.entries), plain_ranges=plain, balls=balls, masses=own)

    def of_assumption(self, assumed: Assumption) -> tuple[Floats | Range, ...]:
        """Return the tables, or ranges of them, that an assumption is about."""
        if isinstance(assumed, KnownMembership):
            return () if self.members is None else (self.members,)
        if isinstance(assumed, ClassConditional):
            return () if self.conditional is None else (self.conditional,)
        if isinstance(assumed, BoundedDependence):
            return () if self.recording is None else (self.ranges or (self.recording,))[-1:]
        if isinstance(assumed, TotalVariation):
            return () if self.balls is None else (self.balls.radii,)
        if self.ranges:
            return self.plain_ranges if isinstance(assumed, KnownTable) else self.ranges
        return (
            tuple(over_labels(one) for one in self.tables) if isinstance(assumed, KnownTable) else self.tables
        )

    def adversary(self, assumed: Assumption) -> Adversary:
        """Return the balls, or any noise that fits one of the tables, by label or not."""
        if isinstance(assumed, TotalVariation):
            return TotalVariationBalls(self.known_balls.radii, self.known_balls.home)
        each = tuple(self._within(one) for one in self.of_assumption(assumed))
        return each[0] if len(each) == 1 else AnyTable(each)

    def _within(self, table: Floats | Range) -> TableInterval:
        """Return any noise that fits a table, or tables whose entries are between the ends of those of a range.

        Where the range is of ``P(noisy | true)`` these are a few more than it holds.

        Raises
        ------
        ValueError
            A range holds no table.
        """
        if isinstance(table, np.ndarray):
            return TableInterval(table)
        assert self.masses is not None
        if table.ndim == 2:
            return TableInterval(*entry_ends(self.masses.sum(1), table))
        low, high = zip(*(entry_ends(self.masses[:, y], table[y]) for y in (0, 1)), strict=True)
        return TableInterval(np.stack(low), np.stack(high))


def shares_of(problem: RepairProblem) -> Floats:
    """Return the masses of recorded groups by label, shape (K, 2), of total 1."""
    many, label = len(problem.groups.names), label_of(problem).astype(np.int64)
    own = np.bincount(2 * problem.groups.codes + label, problem.weight, 2 * many).reshape(many, 2)
    return np.asarray(own / problem.weight.sum())


def _require_cells(problem: RepairProblem, noise: Noise) -> None:
    """Raise a UsageError where noise is described for one of several columns, whose cells are the groups."""
    columns, names = problem.groups.columns, problem.groups.names
    named = [recorded_in(key, names) for key in noise.radii or ()]
    if noise.table is not None:
        named = [*noise.table.noisy]
    if len(columns) > 1 and not set(named) & set(names):
        what = noise.table.source if noise.table is not None else "`noise=radius:...`"
        raise UsageError(
            f"robust: `protected` names {', '.join(columns)}, whose intersections are the groups, such as "
            f"{names[0]!r}. "
            f"{what} does not describe them. Describe the noise of the intersections under such names, or name the "
            "one column that it describes. `noise=FILE(true=A x B,recorded=C x D)` counts a file with a row per person "
            "in this way"
        )


@dataclass(frozen=True, eq=False)
class Binned:
    """Counts of the data that the fit uses."""

    n: Floats
    """Masses by noisy group, bin and label, shape (K, B, 2), of total 1."""
    edges: Floats
    """Least ``2 s - 1`` of each bin, shape (B,); lower ones are in the first bin."""
    rows: float
    """Effective number of rows."""
    kinds: Kinds
    """The noisy groups."""
    at: Ints
    """Bin of each row, shape (n,)."""

    @classmethod
    def of(
        cls, problem: RepairProblem, scored: OutOfFoldScores, constraint: Parity, bins: int, kinds: Kinds
    ) -> Binned:
        """Count the rows; a row without weight has no part in anything."""
        score, label, weight = 2.0 * scored.scores - 1.0, label_of(problem).astype(np.int64), problem.weight
        of_label = any(len(LABELS[rate]) == 1 for rate, _ in DEMANDS[constraint])
        asked = (weight > 0) & (label == 1) if of_label else weight > 0
        if not asked.any():
            raise DataError(f"there is no row with label 1, which {constraint} needs")
        edges = bin_edges(score, weight, asked, bins, 2.0 * problem.threshold - 1.0)
        return cls.counted(problem, bins_of(edges, score), edges, kinds)

    @classmethod
    def counted(cls, problem: RepairProblem, at: Ints, edges: Floats, kinds: Kinds) -> Binned:
        """Count rows in given bins, shape (n,)."""
        label, weight = label_of(problem).astype(np.int64), problem.weight
        shape = (kinds.rules.size, edges.size, 2)
        index = np.ravel_multi_index((kinds.codes, at, label), shape)
        n = np.bincount(index, weight, math.prod(shape)).reshape(shape)
        rows = float(weight.sum() ** 2 / problem.table.square_weight.sum())
        return cls(n / n.sum(), edges, rows, kinds, at)

    @classmethod
    def decided(
        cls, problem: RepairProblem, each: Floats, kinds: Kinds | None = None
    ) -> tuple[Binned, Floats]:
        """Return rows counted by what each kind's rule decides, (n, K), and the chances of these bins, (K, B).

        Edges are the mean probabilities of the bins; one score serves all groups.
        """
        at = np.zeros(len(each), dtype=np.int64)
        own = problem.weight > 0  # a row without weight makes no bin
        levels, into = np.unique(each[own], axis=0, return_inverse=True)
        at[own] = into.ravel()
        kinds = kinds or Kinds.recorded(problem, blind=False)
        return cls.counted(problem, at, 2.0 * levels.mean(1) - 1.0, kinds), levels.T

    def merged(self, chance: Floats) -> Merged:
        """Return the data with bins joined that are decided alike in every group."""
        starts = np.flatnonzero(np.r_[True, (np.diff(chance, axis=1) != 0).any(axis=0)])
        return Merged(np.add.reduceat(self.n, starts, axis=1), chance[:, starts], starts)


@dataclass(frozen=True, eq=False)
class Merged:
    """Masses (K, m, 2) and chances (K, m) by level of the decision."""

    n: Floats
    chance: Floats
    starts: Ints
    """First bin of each level, shape (m,)."""

    def members(self, sums: Floats) -> Floats:
        """Return sums by membership, (2, J, K, B, 2), by level."""
        return np.asarray(np.add.reduceat(sums, self.starts, axis=3))

    def overall(self, rate: str) -> float:
        """Return the overall rate."""
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


def bin_edges(score: Floats, weight: Floats, asked: Bools, bins: int, cut: float) -> Floats:
    """Return where bins begin: at quantiles of the scores that are asked for, one moved to the base's threshold.

    The rows that score less than all of these are a bin of their own, where they weigh as much as those of a bin: that
    they are refused costs nobody whom the constraint is about.
    """
    below, own = (weight > 0) & (score < score[asked].min()), weight[asked].sum()
    if bins > 2 and weight[below].sum() * bins >= own:
        rest = bin_edges(score[~below], weight[~below], asked[~below], bins - 1, cut)
        return np.append(score[below].min(), rest)
    levels, inverse = np.unique(score[asked], return_inverse=True)
    total = np.cumsum(np.bincount(inverse, weight[asked]))
    first = np.searchsorted(total * bins, np.arange(bins) * total[-1], side="right")
    edges = levels[np.minimum(first, levels.size - 1)]
    edges = np.unique(np.append(edges, levels[0]))
    if levels[0] < cut <= levels[-1]:
        accepted = levels[np.searchsorted(levels, cut)]  # the least score that the base accepts
        near = int(np.searchsorted(edges, accepted))
        if (
            near == edges.size or edges[near] != accepted
        ):  # in place of the nearest, so that no bin is nearly empty
            near = 1 + int(np.argmin(np.abs(edges[1:] - cut))) if edges.size > 1 else 1
        edges = np.unique(np.append(np.delete(edges, near) if edges.size > near else edges, cut))
    return edges


def range_of(counts: Floats, keep: Keep, confidence: float) -> Range:
    """Return the tables that counts leave open, shape (J, K) or by label (2, J, K).

    With at least the confidence, over the draw of the rows that were counted, every ``P(true | noisy)`` or every
    ``P(noisy | true)`` lies in its limits: each misses with a chance of at most (1 - confidence) / entries, by
    Bonferroni. A share of no rows may be anything.
    """
    totals = counts.sum(-2 if keep == "true-given-noisy" else -1, keepdims=True)
    others, tail = totals - counts, (1.0 - confidence) / counts.size / 2.0
    low, below = (
        np.where(own > 0, beta_quantile(tail, np.where(own > 0, own, 1.0), rest + 1.0), 0.0)
        for own, rest in ((counts, others), (others, counts))
    )
    return Range(low, 1.0 - below, keep)
