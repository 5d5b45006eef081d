r"""Parts of a gap: how much of the difference of two groups' means each feature accounts for.

**By regression** (Oaxaca-Blinder). With coefficients ``b`` of a linear regression of the outcome on features and group,

    mean_a(y) - mean_b(y) = Σ_j (mean_a(x_j) - mean_b(x_j)) b_j + rest

The group is in the regression, so its own effect stays in the rest and out of ``b`` (Jann 2008). A part is the sum over
the columns of a feature. It is unique if all least-squares solutions agree on it; features whose parts are not unique
are taken together, and what only the group tells apart is left out. The rest is what is left, so parts and rest add up.

**By a model** (Shapley). With ``v(S) = E f(columns in S of a row of a, all others of a row of b)``, the rows drawn
independently, the part of column ``j`` is the mean of ``v(S + j) - v(S)`` over the orders of the columns, ``S`` being
those before ``j``. The parts of a linear ``f`` are those of its own coefficients. Disjoint pairs of rows are
independent draws from the two groups, so the limits contain the sampling of rows and of orders. A regression on the
outcomes of both rows then carries the parts over to the means of all rows: they add up to the gap of all rows.

Limits are Student's, by influence functions: of rows left out one by one for regressions (HC3), of pairs for models.

References
----------
Oaxaca (1973), International Economic Review 14. Blinder (1973), Journal of Human Resources 8. Jann (2008), Stata
Journal 8. Fortin, Lemieux and Firpo (2011), Handbook of Labor Economics 4. Lundberg and Lee (2017), NeurIPS.
Begley et al. (2020), arXiv:2010.07389.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fairfix.stats.estimates import CARRIED
from fairfix.stats.quantiles import student_quantile

Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int64]

SAME = 1e-10
"""Fraction of the variance of standardised columns below which a combination of them does not vary."""

NEAR = 1e-6
"""Size from which a combination of standardised columns that does not vary within groups has a part in the gap."""

LEAST_LEFT = 0.05
"""Least part of a row's residual that is not its own doing: a row that alone decides a coefficient counts 20 times."""

SCORED = 200_000
"""Mixed rows that a model scores for one gap: some seconds of most models."""

AT_ONCE = 1 << 16
"""Mixed rows that are made at once."""

MOST_ORDERS = 32
"""Pairs of an order and its reverse for one pair of rows; more change nothing next to the sampling of rows."""

Piece: TypeAlias = tuple[Floats, Floats, Bools, Floats]
"""Rows: columns (n, k), outcomes (n, q), which are of the first group (n,), weights (n,)."""

Mixed: TypeAlias = Callable[[Ints, Ints, Bools], Floats]
"""Rows of both groups, (n,) each, and columns taken from the first, (n, p) -> outcomes (n, q)."""


@dataclass(frozen=True)
class Limited:
    """Numbers with limits that hold at once, each (k,)."""

    value: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True)
class Parts:
    """Parts of the gap of one outcome, in the order of the features' ``sets``; with a model there is no rest."""

    parts: Limited
    rest: Limited | None = None


@dataclass(frozen=True)
class Influence:
    """Sums of what independent units add to the error of numbers, (k,) each: sizes, squares and fourth powers."""

    sums: Floats

    @classmethod
    def of(cls, each: Floats) -> Influence:
        """Return the sums of what units add, (n, k)."""
        return cls(np.stack([np.abs(each).sum(axis=0), (each**2).sum(axis=0), (each**4).sum(axis=0)]))

    def __add__(self, other: Influence) -> Influence:
        return Influence(self.sums + other.sums)

    def scaled(self, factor: Floats) -> Influence:
        """Return the sums where every unit adds a factor (k,) of what it adds here."""
        return Influence(self.sums * np.stack([np.abs(factor), factor**2, factor**4]))

    def limits(self, value: Floats, alpha: float, farthest: Floats | float = 0.0) -> Limited:
        """Return limits that hold for all numbers at once (Bonferroni), ``farthest`` outwards in addition.

        Student's degrees of freedom are ``(Σx²)² / Σx⁴``: the units that the variance is known from. There is no limit
        where few units carry the error, see :data:`~fairfix.stats.estimates.CARRIED`.
        """
        size, square, fourth = self.sums
        tail = alpha / (2 * max(value.size, 1))
        moves = square > 0
        freedom, carrying = (
            np.divide(x**2, y, out=np.full(x.shape, math.inf), where=moves & (y > 0))
            for x, y in ((square, fourth), (size, square))
        )
        reach = np.zeros(value.shape)
        reach[moves] = student_quantile(tail, np.maximum(freedom[moves], 1.0)) * np.sqrt(square[moves])
        reach[carrying < CARRIED * math.log(1 / tail)] = math.inf
        reach += farthest
        return Limited(value, value - reach, value + reach)


# ---------------------------------------------------------------------- by regression


@dataclass(frozen=True)
class Regression:
    """Sums of rows: weights, means and cross products within the groups, of columns and outcomes."""

    weight: Floats
    """(2,), of the first group and the second."""
    x: Floats
    """(2, k) means."""
    y: Floats
    """(2, q) means."""
    xx: Floats
    """(k, k) sums of products of the deviations from the group's means."""
    xy: Floats
    """(k, q)."""

    @classmethod
    def of(cls, pieces: Iterable[Piece]) -> Regression:
        """Return the sums over all pieces of the rows."""
        sums: list[Floats] = []
        for X, y, first, w in pieces:
            member = np.stack([first * w, ~first * w])
            weighted = X * w[:, None]
            own = [member.sum(axis=1), member @ X, member @ y, weighted.T @ X, weighted.T @ y]
            sums = [a + b for a, b in zip(sums, own, strict=True)] if sums else own
        weight, x, y, xx, xy = sums
        x, y = x / weight[:, None], y / weight[:, None]
        between = x.T * weight
        return cls(weight, x, y, xx - between @ x, xy - between @ y)

    @property
    def apart(self) -> Floats:
        """Differences of the means of the columns, first group minus second, (k,)."""
        return np.asarray(self.x[0] - self.x[1])


@dataclass(frozen=True)
class Solution:
    """Features whose parts are unique: ``sets`` of their numbers, those ``aside``, and the inverse that solves."""

    sets: tuple[tuple[int, ...], ...]
    aside: tuple[tuple[int, ...], ...]
    """Features, alone or together, that differ between the groups and not within them."""
    inverse: Floats
    """(k, k) generalised inverse of the cross products, without the columns that are aside."""


def solved(own: Regression, feature: Ints) -> Solution:
    """Return which features, or sets of them, have parts of their own; ``feature`` is that of each column, (k,)."""
    aside: list[tuple[int, ...]] = []
    total, many = float(own.weight.sum()), int(feature.max(initial=-1)) + 1
    while True:
        at = np.flatnonzero(~np.isin(feature, [j for one in aside for j in one]))
        spread = np.sqrt(np.maximum(np.diag(own.xx)[at] / total, 0.0))
        varies = spread**2 > SAME
        scale = np.where(varies, spread, 1.0)
        unit = own.xx[np.ix_(at, at)] / total / np.outer(scale, scale) * np.outer(varies, varies)
        size, axes = np.linalg.eigh(unit)
        free = size <= SAME * max(float(size.max(initial=0.0)), 1.0)
        still, differs = axes[:, free], own.apart[at] / scale
        members = [feature[at] == j for j in range(many)]

        def unsure(columns: Bools, still: Floats = still, differs: Floats = differs) -> bool:
            """Tell whether solutions differ in the part of some columns."""
            return bool(np.abs((columns * differs) @ still).max(initial=0.0) > NEAR)

        joined = np.array(
            [[np.abs(still[a] @ still[b].T).max(initial=0.0) > NEAR for b in members] for a in members],
            dtype=bool,
        ).reshape(many, many)
        sets, more = list[tuple[int, ...]](), list[tuple[int, ...]]()
        for one in _components(joined):
            there = tuple(j for j in one if members[j].any())
            if not any(unsure(members[j]) for j in there):
                sets += [(j,) for j in there]
            else:
                (more if unsure(np.logical_or.reduce([members[j] for j in there])) else sets).append(there)
        if more:
            aside += more
            continue
        solves, inverse = axes[:, ~free] / scale[:, None], np.zeros(own.xx.shape)
        inverse[np.ix_(at, at)] = (solves / size[~free]) @ solves.T / total
        return Solution(tuple(sorted(sets)), tuple(aside), inverse)


def _components(joined: Bools) -> list[list[int]]:
    """Return the connected sets of a symmetric relation."""
    left, out = set(range(len(joined))), []
    while left:
        reached, edge = set[int](), {min(left)}
        while edge:
            reached |= edge
            edge = {j for i in edge for j in np.flatnonzero(joined[i]).tolist()} - reached
        out.append(sorted(reached))
        left -= reached
    return out


def of_regression(
    pieces: Callable[[], Iterable[Piece]], own: Regression, solution: Solution, feature: Ints, alpha: float
) -> list[Parts]:
    """Return the parts of the gap of each outcome; ``pieces`` yields the rows anew, ``own`` has their sums."""
    columns = np.array([np.isin(feature, one) for one in solution.sets], dtype=float).reshape(
        -1, feature.size
    )
    slopes = solution.inverse @ own.xy
    directions = (columns * own.apart) @ solution.inverse
    amounts = (columns * own.apart) @ slopes
    gaps = own.y[0] - own.y[1]
    sums: list[Influence] = []
    for X, y, first, w in pieces():
        group = np.where(first, 0, 1)
        away, residual = X - own.x[group], y - own.y[group]
        alone = w / own.weight[group]
        leverage = alone + w * np.einsum("ij,ij->i", away @ solution.inverse, away)
        left = w / np.maximum(1.0 - leverage, LEAST_LEFT)
        moved = np.where(first, 1.0, -1.0) * alone / np.maximum(1.0 - alone, LEAST_LEFT)
        along = away @ directions.T
        each = []
        for k in range(y.shape[1]):
            slope = slopes[:, k]
            by_slope = along * (left * (residual[:, k] - away @ slope))[:, None]
            parts = by_slope + (away @ (columns * slope).T) * moved[:, None]
            each.append(Influence.of(np.column_stack([parts, residual[:, k] * moved - parts.sum(axis=1)])))
        sums = [a + b for a, b in zip(sums, each, strict=True)] if sums else each
    out = []
    for k, influence in enumerate(sums):
        value = np.append(amounts[:, k], gaps[k] - amounts[:, k].sum())
        whole = influence.limits(value, alpha)
        halves = [
            Limited(*(x[part] for x in (whole.value, whole.low, whole.high)))
            for part in (np.s_[:-1], np.s_[-1:])
        ]
        out.append(Parts(*halves))
    return out


# ---------------------------------------------------------------------- by a model


@dataclass(frozen=True)
class Drawn:
    """Numbers of pairs of rows that were drawn, and of orders of each; 0 orders are all of them."""

    pairs: int
    orders: int


def of_model(
    mixed: Mixed,
    outcomes: tuple[Floats, Floats],
    weights: tuple[Floats, Floats],
    columns: int,
    alpha: float,
    spans: Sequence[float],
    rng: np.random.Generator,
) -> tuple[list[Parts], Drawn]:
    """Return the parts of the gap of each outcome, one for each column of a model.

    Parameters
    ----------
    mixed
        Outcomes of rows whose columns are in part of the first group.
    outcomes, weights
        Of all rows of the first group and of the second: (n, q) and (n,).
    columns
        Number of columns of the model.
    spans
        Largest distance of two values of each outcome; infinite where it has no limit.
    """
    sizes = [len(one) for one in weights]
    few = int(np.argmin(sizes))
    cost = max(2 * (columns - 1), 1)
    pairs = max(SCORED // cost, 1)
    each = max(1, min(sizes[1 - few] // sizes[few], pairs // sizes[few]))
    units = min(sizes[few], max(pairs // each, 1))
    rows = [rng.permutation(size)[: units * (1 if side == few else each)] for side, size in enumerate(sizes)]
    rows[few] = np.repeat(rows[few], each)
    ends = [outcome[own] for outcome, own in zip(outcomes, rows, strict=True)]
    exact = columns <= 1 or (2**columns - 2) * units * each <= SCORED
    orders = 0 if exact else max(1, min(MOST_ORDERS, SCORED // (units * each * cost)))
    drawn, both = (rows[0], rows[1]), (ends[0], ends[1])
    shares = (
        _exact(mixed, drawn, both, columns) if exact else _sampled(mixed, drawn, both, columns, orders, rng)
    )
    w = (weights[0][rows[0]] * weights[1][rows[1]]).reshape(units, each)
    unit = w.sum(axis=1)

    def of_units(x: Floats) -> Floats:
        """Return the weighted means of units, (units, ...), of numbers of pairs."""
        split = x.reshape(units, each, *x.shape[1:])
        return np.asarray(np.einsum("ue,ue...->u...", w, split) / unit[:, None] if each > 1 else split[:, 0])

    return [
        _carried_over(
            of_units(shares[:, :, k]),
            (of_units(ends[0][:, [k]])[:, 0], of_units(ends[1][:, [k]])[:, 0]),
            unit,
            (outcomes[0][:, k], outcomes[1][:, k]),
            weights,
            alpha,
            span,
        )
        for k, span in enumerate(spans)
    ], Drawn(units * each, orders)


def _carried_over(
    shares: Floats,
    ends: tuple[Floats, Floats],
    unit: Floats,
    outcomes: tuple[Floats, Floats],
    weights: tuple[Floats, Floats],
    alpha: float,
    span: float,
) -> Parts:
    """Return parts of drawn units, (u, p), carried over to the means of all rows by regression on the outcomes."""
    mean = unit @ shares / unit.sum()
    drawn = np.array([unit @ one / unit.sum() for one in ends])
    whole = np.array([w @ one / w.sum() for one, w in zip(outcomes, weights, strict=True)])
    root = np.sqrt(unit)[:, None]
    away = np.stack(ends, axis=1) - drawn
    slopes = np.linalg.lstsq(root * away, root * (shares - mean), rcond=1e-10)[0]
    value = mean + (whole - drawn) @ slopes
    left = (
        (shares - mean - away @ slopes)
        * unit[:, None]
        / unit.sum()
        * math.sqrt(len(unit) / max(len(unit) - 1, 1))
    )
    influence = Influence.of(left)
    for outcome, w, mu, slope in zip(outcomes, weights, whole, slopes, strict=True):
        influence += Influence.of((w * (outcome - mu) / w.sum())[:, None]).scaled(slope)
    farthest = (
        span * (1.0 + np.abs(slopes).sum(axis=0)) * unit.max() / unit.sum() if math.isfinite(span) else 0.0
    )
    return Parts(influence.limits(value, alpha, farthest))


def _exact(mixed: Mixed, rows: tuple[Ints, Ints], ends: tuple[Floats, Floats], columns: int) -> Floats:
    """Return the Shapley values of each pair of rows, (n, p, q), by all sets of columns, each a number of its bits."""
    first, second = ends
    full = (1 << columns) - 1
    bits = np.arange(columns)
    outcomes = [
        second
        if not chosen
        else first
        if chosen == full
        else _of(mixed, rows, (chosen >> bits & 1 == 1)[None])
        for chosen in range(full + 1)
    ]
    shares = np.zeros((len(first), columns, first.shape[1]))
    for chosen, before in enumerate(outcomes):
        for j in (j for j in range(columns) if not chosen >> j & 1):
            orders = columns * math.comb(columns - 1, chosen.bit_count())
            shares[:, j] += (outcomes[chosen | 1 << j] - before) / orders
    return shares


def _sampled(
    mixed: Mixed,
    rows: tuple[Ints, Ints],
    ends: tuple[Floats, Floats],
    columns: int,
    orders: int,
    rng: np.random.Generator,
) -> Floats:
    """Return estimated Shapley values of each pair of rows, (n, p, q), by random orders and their reverses."""
    first, second = ends
    shares = np.zeros((len(first), columns, first.shape[1]))
    place = np.arange(len(first))
    for _ in range(orders):
        order = rng.permuted(np.tile(np.arange(columns), (len(first), 1)), axis=1)
        for path in (order, order[:, ::-1]):
            inside, before = np.zeros((len(first), columns), dtype=bool), second
            for step in range(columns):
                inside[place, path[:, step]] = True
                after = first if step == columns - 1 else _of(mixed, rows, inside)
                shares[place, path[:, step]] += (after - before) / (2 * orders)
                before = after
    return shares


def _of(mixed: Mixed, rows: tuple[Ints, Ints], inside: Bools) -> Floats:
    """Return outcomes of mixed rows, some at a time."""
    inside = np.broadcast_to(inside, (len(rows[0]), inside.shape[1]))
    starts = range(0, len(rows[0]), AT_ONCE)
    first, second = rows
    spans = (slice(start, start + AT_ONCE) for start in starts)
    return np.concatenate([mixed(first[at], second[at], inside[at]) for at in spans])
