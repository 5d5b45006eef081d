r"""Training of a linear rule that keeps true groups alike behind noisy ones, against the exact worst case.

A row has features ``x_i``, label ``y_i``, noisy group ``k_i`` and weight ``w_i``, of total 1. The rule is ``d_i = 1[f_i
>= 0]`` with ``f_i = x_i v + b``; the noisy group may be among the features. Wanted is

.. math::
    \min_v\; \sum_i w_i 1[d_i \ne y_i] \quad\text{s.t.}\quad
    g_{rj}(d) = \max_{q \in \mathcal{U}_j(d)} \pm \{ R(d) - R_j(q, d) \} - \epsilon \le 0

for each rate ``R`` of the constraint and each true group ``j``, where ``U`` holds the joint masses that an
:class:`Adversary` allows. Each step

1. takes the worst weights ``r_jk(c)``, the shares of the cells in a group's denominator, for the decisions so far;
2. takes a step of Adam on the hinge surrogate of the Lagrangian, a weighted error with costs ``c_i = 1 - 2 y_i + sum +-
   lambda_rj (1 / P(A, B) - r_jk(c) / m_k(c))``;
3. takes a step of ascent ``lambda = (lambda + rate g)_+`` with the exact ``g`` of the decisions.

Of every few iterates, each with cuts of its form at 0 and at quantiles, the rule of least error among those whose exact
``g`` is at most 0 is returned. The rules that accept no row and all rows are among them, and have equal rates whatever
the noise. The worst case of the rule is exact on the rows given; that it is optimal is not claimed, as the problem is
not convex.

Derivations are in ``docs/methods/noise.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy import sparse
from threadpoolctl import threadpool_limits

from fairfix.noise.bounds import IS_OF_LABEL, Pair, open_bounds, split_labels, table_bounds, tv_bounds, widest
from fairfix.noise.rates import (
    DEMANDS,
    RATIOS,
    Floats,
    Parity,
    Ratio,
    cells_of,
    flipped,
    quotient,
    require_labels,
    shortfalls,
)

Ints = npt.NDArray[np.int64]

STEPS = 300
"""Steps of a run."""

PACE = 0.02
"""Step of Adam on the coefficients; it falls with the root of the number of steps."""

ASCENTS = (0.02, 0.05)
"""Steps of the ascent on the multipliers, a run for each."""

EVERY = 5
"""Steps from one iterate that is looked at to the next."""

SPARSE = 0.3
"""Share of numbers that are not 0 below which a sparse matrix is faster."""

CUTS = 200
"""Cuts of an iterate that are looked at."""

APART = 1e-9
"""Forms nearer than this are not cut apart, as rounding may exchange them."""

HOLDS = 1e-12
"""Tolerance of a constraint for rounding of sums."""


class Adversary(Protocol):
    """Possible true groups, given the cells of the noisy ones."""

    def bounds(self, cells: Floats, ratio: Ratio) -> Pair:
        """Return the lowest and the highest rate of each true group; ``cells`` (..., K, 4) to (..., J)."""
        ...

    def shares(self, cells: Floats, ratio: Ratio) -> Floats:
        """Return where the denominator of each group's lowest rate lies: (K, 4) to (J, K, 4), of sum 1 or NaN."""
        ...


@dataclass(frozen=True, eq=False)
class TableInterval:
    """Any noise that fits a table, or a table whose entries lie between two."""

    table: Floats
    """Joint masses of true and noisy groups, shape (J, K), or by label (2, J, K), with the data's columns; the least
    of them, where there are the most."""
    most: Floats | None = None
    """The most of each of them, where a survey leaves the table open."""

    def bounds(self, cells: Floats, ratio: Ratio) -> Pair:
        """Return the bounds, sharp for a table."""
        whole = (*cells.shape[:-2], *self.table.shape)
        if self.most is None:
            return table_bounds(cells, np.broadcast_to(self.table, whole), ratio)
        return open_bounds(
            cells, np.broadcast_to(self.table, whole), np.broadcast_to(self.most, whole), ratio
        )

    def shares(self, cells: Floats, ratio: Ratio) -> Floats:
        """Return the knapsacks, B first and A last, normalised."""
        split, table = split_labels(cells, self.table)
        most = table if self.most is None else split_labels(cells, self.most)[1]
        a, b = ratio.masses(split)
        in_b = np.minimum(b, most)[..., None] * _spread(split, ratio.b)
        in_a = np.maximum(table - (split.sum(-1) - a), 0.0)[..., None] * _spread(split, ratio.a)
        return _normalised((in_a + in_b).reshape(len(table), -1, *cells.shape).sum(1))


def _spread(cells: Floats, chosen: tuple[bool, ...]) -> Floats:
    """Return the shares of chosen cells among them in each noisy group, shape (K, 4); zeros where they are empty."""
    own = cells * np.array(chosen)
    return quotient(own, own.sum(-1, keepdims=True), 0.0)


def _normalised(masses: Floats) -> Floats:
    """Return masses of each group (J, K, 4) divided by their sum; NaN where that is nothing."""
    return quotient(masses, masses.sum((-2, -1), keepdims=True))


@dataclass(frozen=True, eq=False)
class AnyTable:
    """Any noise that fits one of several tables."""

    tables: tuple[TableInterval, ...]

    def bounds(self, cells: Floats, ratio: Ratio) -> Pair:
        """Return the lowest and the highest ends of all."""
        return widest([one.bounds(cells, ratio) for one in self.tables])

    def shares(self, cells: Floats, ratio: Ratio) -> Floats:
        """Return, for each group, those of the table under which its lowest rate is lowest."""
        low = np.stack([one.bounds(cells, ratio)[0] for one in self.tables])
        worst = np.where(np.isnan(low), np.inf, low).argmin(0)
        shares = np.stack([one.shares(cells, ratio) for one in self.tables])
        return np.asarray(shares[worst, np.arange(worst.size)])


@dataclass(frozen=True, eq=False)
class TotalVariationBalls:
    """Any distribution in a ball of total variation around a noisy group: radii and numbers of groups, shape (J,)."""

    radius: Floats
    home: Ints

    def bounds(self, cells: Floats, ratio: Ratio) -> Pair:
        """Return the sharp bounds."""
        return tv_bounds(cells, self.radius, ratio, self.home)

    def shares(self, cells: Floats, ratio: Ratio) -> Floats:
        """Return the centre of each ball with as much moved from A to B as the radius allows."""
        total = cells[self.home].sum(-1)
        a, b = (quotient(part[self.home], total, 0.0) for part in ratio.masses(cells))
        radius = np.where(total > 0, self.radius, 1.0)
        own = np.eye(len(cells))[self.home, :, None]
        in_a, in_b = own * _spread(cells, ratio.a), own * _spread(cells, ratio.b)
        everywhere = cells * np.array(ratio.b)
        if everywhere.sum() > 0:  # a group without B takes that of all
            in_b[b == 0] = everywhere / everywhere.sum()
            moved = np.minimum(radius, a)
        else:
            moved = np.zeros(self.home.size)
        nothing = (a + b == 0) & (radius > 0)
        left, come = a - moved, np.where(nothing, 1.0, b + moved)
        return _normalised(left[:, None, None] * in_a + come[:, None, None] * in_b)


@dataclass(frozen=True, eq=False)
class Trained:
    """A linear rule: accepted is who has ``x coef + intercept >= 0``."""

    coef: Floats
    intercept: float
    error: float
    """Share of wrong decisions."""
    excess: Floats
    """By how much the worst case of each rate and true group misses its limit, shape (rates, J); NaN without a rate."""
    feasible: bool
    """Whether all of it is at most 0."""
    constant: bool
    """Whether all rows get one decision."""
    steps: int
    """Steps made, in all runs."""


@dataclass(frozen=True, eq=False)
class NoisyRows:
    """Training rows: features with a last column of ones, labels, noisy groups, weights of total 1.

    Features that are mostly zeros, as indicators of categories are, are kept as a sparse matrix.
    """

    A: Any
    y: Ints
    codes: Ints
    weight: Floats
    groups: int

    @classmethod
    def of(cls, X: Floats, y: npt.ArrayLike, codes: Ints, weight: Floats | None, groups: int) -> NoisyRows:
        """Return rows; those without weight are left out."""
        w = np.ones(len(X)) if weight is None else weight
        own = np.flatnonzero(w > 0)
        label = np.asarray(y).astype(np.int64)[own]
        A: Any = np.column_stack([X[own], np.ones(own.size)])
        if np.count_nonzero(A) < SPARSE * A.size:
            A = sparse.csr_array(A)
        return cls(A, label, codes[own], w[own] / w.sum(), groups)

    def places(self, accept: npt.NDArray[np.bool_]) -> Ints:
        """Return noisy group and cell of each row as one number, ``4 k + c``."""
        return np.asarray(4 * self.codes + np.where(self.y == 1, 1 - accept, 3 - accept))

    def cells(self, accept: npt.NDArray[np.bool_]) -> Floats:
        """Return the masses of the cells, shape (K, 4)."""
        return np.asarray(
            np.bincount(self.places(accept), self.weight, 4 * self.groups).reshape(-1, 4), np.float64
        )


def excess_of(cells: Floats, adversary: Adversary, parity: Parity, slack: float) -> Floats:
    """Return ``g``, exactly; ``cells`` (..., K, 4) to (..., rates, J)."""
    every = shortfalls(
        DEMANDS[parity],
        lambda rate: RATIOS[rate].of(cells.sum(-2))[..., None],
        lambda rate: adversary.bounds(cells, RATIOS[rate]),
    )
    return np.stack([one - slack for one in every], axis=-2)


def costs_of(cells: Floats, adversary: Adversary, parity: Parity, multipliers: Floats) -> Floats:
    """Return the cost of accepting a row in the Lagrangian, without ``1 - 2 y``, by its cell, shape (K, 4).

    Worst weights are for the decisions of ``cells``, shape (K, 4); ``multipliers`` have shape (rates, J).
    """
    out = np.zeros_like(cells)
    for (rate, sign), price in zip(DEMANDS[parity], multipliers, strict=True):
        ratio = RATIOS[rate]
        counted = np.array(ratio.rows)
        everybody = counted / cells[:, counted].sum()
        worst = adversary.shares(cells, ratio if sign > 0 else flipped(ratio))
        has = ~np.isnan(worst[:, 0, 0])
        each = quotient(np.tensordot(price[has], worst[has], axes=1), cells, 0.0)
        if rate == "accuracy":  # compared with 1; to accept is an error of label 0, and not to of label 1
            out += np.where(IS_OF_LABEL[0], each, -each)
            continue
        out += sign * (price[has].sum() * everybody - each)
    return out


def surrogate(
    rows: NoisyRows, v: Floats, costs: Floats, l2: float, form: Floats | None = None
) -> tuple[float, Floats]:
    """Return the hinge surrogate (without ``- eps sum lambda``) and its gradient, at fixed costs ``c_i`` of the rows.

    In ``v`` the intercept is last, and free of the penalty ``l2``; ``form`` are the ``f_i`` where they are at hand.
    """
    f = rows.A @ v if form is None else form
    up, down = rows.weight * np.maximum(costs, 0.0), rows.weight * np.maximum(-costs, 0.0)
    free = np.append(v[:-1], 0.0)
    value = up @ np.maximum(1.0 + f, 0.0) + down @ (np.maximum(1.0 - f, 0.0) - 1.0)
    value += rows.weight @ rows.y + l2 * free @ free
    slope = rows.A.T @ (up * (f > -1.0) - down * (f < 1.0)) + 2.0 * l2 * free
    return float(value), np.asarray(slope)


def train(
    X: Floats,
    y: npt.ArrayLike,
    codes: Ints,
    weight: Floats | None,
    groups: int,
    adversary: Adversary,
    parity: Parity,
    slack: float,
    *,
    l2: float = 0.0,
    start: Floats | None = None,
    steps: int = STEPS,
) -> Trained:
    """Return the best rule that was met whose worst case is within the constraint; see the module's docstring.

    Features have shape (n, d), without a constant column, labels (n,), of 0 and 1, like noisy groups (of ``groups``)
    and weights (None: 1 each). ``l2`` is a penalty, ``start`` coefficients to begin with, the intercept last (None:
    zeros), and ``steps`` those of each run.
    """
    rows = NoisyRows.of(X, y, codes, weight, groups)
    require_labels(np.bincount(rows.y, rows.weight, 2).astype(np.float64), parity)
    begin = np.zeros(rows.A.shape[1]) if start is None else np.asarray(start, dtype=np.float64)
    search = _RuleSearch(rows, adversary, parity, slack)
    with threadpool_limits(1):
        for ascent in ASCENTS:
            _run(rows, search, begin, ascent, l2, steps)
        return search.best_rule(steps * len(ASCENTS))


def _run(rows: NoisyRows, search: _RuleSearch, v: Floats, ascent: float, l2: float, steps: int) -> None:
    """Show the search the iterates of a run from ``v``."""
    first, second = np.zeros_like(v), np.zeros_like(v)
    multipliers = np.zeros(1)
    for step in range(1, steps + 1):
        f = rows.A @ v
        if step % EVERY == 1:
            search.look(v, f)
        accept = f >= 0.0
        cells = rows.cells(accept)
        multipliers = np.maximum(multipliers + ascent * np.nan_to_num(search.excess(cells), nan=0.0), 0.0)
        extra = costs_of(cells, search.adversary, search.parity, multipliers)
        costs = 1.0 - 2.0 * rows.y + extra.ravel()[rows.places(accept)]
        slope = surrogate(rows, v, costs, l2, f)[1]
        first = 0.9 * first + 0.1 * slope
        second = 0.999 * second + 0.001 * slope**2
        size = PACE / np.sqrt(1.0 + step / 50.0)
        v = v - size * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-12)
    search.look(v, rows.A @ v)


class _RuleSearch:
    """Keeps the best rule of those it is shown."""

    def __init__(self, rows: NoisyRows, adversary: Adversary, parity: Parity, slack: float) -> None:
        self.rows, self.adversary, self.parity, self.slack = rows, adversary, parity, slack
        self.best: tuple[tuple[float, float], Floats, bool] = (np.inf, np.inf), np.zeros(0), False

    def excess(self, cells: Floats) -> Floats:
        """Return ``g``, exactly."""
        return excess_of(cells, self.adversary, self.parity, self.slack)

    def look(self, v: Floats, f: Floats) -> None:
        """Look at an iterate with the cuts of its form."""
        order = np.argsort(f, kind="stable")
        ranked, many = f[order], f.size
        allowed = np.flatnonzero(
            np.r_[True, np.diff(ranked) > APART, True]
        )  # one may cut before each of these places
        quantiles = np.searchsorted(np.cumsum(self.rows.weight[order]), np.arange(1, CUTS) / CUTS)
        wanted = np.r_[0, quantiles, np.searchsorted(ranked, 0.0), many]
        after = np.searchsorted(allowed, np.minimum(wanted, many))
        cuts = np.unique(
            np.r_[allowed[after], allowed[np.maximum(after - 1, 0)]]
        )  # refused are the first `cut` rows
        cells = self._cells(order, cuts)
        excess = self.excess(cells)
        worst = np.nanmax(np.where(np.isnan(excess), -np.inf, excess), axis=(1, 2))
        errors = cells[:, :, [1, 2]].sum((1, 2))
        miss = np.where(worst <= HOLDS, 0.0, worst)
        at = int(np.lexsort((errors, miss))[0])
        key = (float(miss[at]), float(errors[at]))
        if not key < (self.best[0][0], self.best[0][1] - HOLDS):
            return
        cut = int(cuts[at])
        made = v.copy()
        if cut in (0, many):
            made[:] = 0.0
            made[-1] = 1.0 if cut == 0 else -1.0
        else:
            made[-1] -= ranked[cut - 1] + (ranked[cut] - ranked[cut - 1]) / 2
        self.best = key, made, cut in (0, many)

    def _cells(self, order: Ints, cuts: Ints) -> Floats:
        """Return the cells if the first rows in the order are refused, shape (cuts, K, 4)."""
        rows = self.rows
        kind, weight = (2 * rows.codes + rows.y)[order], rows.weight[order]
        piece = np.searchsorted(cuts, np.arange(order.size), side="right")
        shape = (cuts.size + 1, 2 * rows.groups)
        counts = np.bincount(piece * shape[1] + kind, weight, shape[0] * shape[1])
        parts = np.asarray(counts.reshape(shape), dtype=np.float64)
        below = np.cumsum(parts, axis=0)[:-1].reshape(-1, rows.groups, 2)
        above = np.maximum(np.cumsum(parts[::-1], axis=0)[::-1][1:], 0.0).reshape(-1, rows.groups, 2)
        return cells_of(above, below)

    def best_rule(self, steps: int) -> Trained:
        """Return the best rule, judged again by its own decisions."""
        _, v, constant = self.best
        cells = self.rows.cells(self.rows.A @ v >= 0.0)
        excess = self.excess(cells)
        error = float(cells[:, [1, 2]].sum())
        feasible = bool(np.nanmax(excess, initial=-np.inf) <= 2 * HOLDS)
        return Trained(v[:-1].copy(), float(v[-1]), error, excess, feasible, constant, steps)
