r"""Parts of a gap: how much of the difference of two groups' means each feature accounts for.

**By regression** (Oaxaca-Blinder). With coefficients ``b`` of a linear regression of the outcome on features and group,

    mean_a(y) - mean_b(y) = Σ_j (mean_a(x_j) - mean_b(x_j)) b_j + rest

The group is in the regression, so its own effect stays in the rest and out of ``b`` (Jann 2008). A part is the sum over
the columns of a feature. It is unique if all least-squares solutions agree on it; features whose parts are not unique
are taken together, and those that only the group tells apart have none. The rest is what is left, so all add up.

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
class UnitSums:
    """Sums of what independent units add to the error of numbers, (3, k): sizes, squares and fourth powers."""

    sums: Floats

    @classmethod
    def of(cls, each: Floats, factor: Floats | float = 1.0) -> UnitSums:
        """Return the sums of what units add, (n, k), each times a factor, (k,)."""
        square = each * each
        sums = (np.abs(each).sum(axis=0), square.sum(axis=0), np.einsum("ij,ij->j", square, square))
        return cls(
            np.stack([one * np.abs(factor) ** power for one, power in zip(sums, (1, 2, 4), strict=True)])
        )

    def __add__(self, other: UnitSums) -> UnitSums:
        return UnitSums(self.sums + other.sums)

    def limits(self, value: Floats, alpha: float, farthest: Floats | float = 0.0) -> Floats:
        """Return numbers with limits that hold for all at once (Bonferroni), ``farthest`` outwards in addition, (3, k).

        Student's degrees of freedom are ``(Σx²)² / Σx⁴``: the units that the variance is known from. There is no limit
        where few units carry the error, see :data:`~fairfix.stats.estimates.CARRIED`.
        """
        (size, square, fourth), moves = self.sums, self.sums[2] > 0
        tail, inf = alpha / (2 * max(value.size, 1)), np.full(value.shape, math.inf)
        freedom = np.divide(square**2, fourth, out=inf.copy(), where=moves)
        carrying = np.divide(size**2, square, out=inf.copy(), where=moves)
        reach = student_quantile(tail, np.maximum(freedom, 1.0)) * np.sqrt(square)
        reach = np.where(carrying < CARRIED * math.log(1 / tail), math.inf, reach) + farthest
        return np.stack([value, value - reach, value + reach])


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
class UniqueParts:
    """Features whose parts are unique, in ``sets`` of their numbers, and a generalised inverse that solves for them."""

    sets: tuple[tuple[int, ...], ...]
    aside: tuple[tuple[int, ...], ...]
    """Features, alone or together, that differ between the groups and not within them."""
    inverse: Floats
    """(k, k), of the cross products."""


def solved(own: Regression, feature: Ints) -> UniqueParts:
    """Return which features, or sets of them, have parts of their own; ``feature`` is that of each column, (k,)."""
    from scipy.sparse.csgraph import connected_components

    total = float(own.weight.sum())
    spread = np.sqrt(np.maximum(np.diag(own.xx) / total, 0.0))
    varies = spread**2 > SAME
    scale = np.where(varies, spread, 1.0)
    size, axes = np.linalg.eigh(own.xx / total / np.outer(scale, scale) * np.outer(varies, varies))
    free = size <= SAME * max(float(size.max()), 1.0)
    still, differs = axes[:, free], own.apart / scale
    members = (np.arange(int(feature.max()) + 1)[:, None] == feature).astype(float)
    joined = members @ (np.abs(still @ still.T) > NEAR) @ members.T
    component = connected_components(joined)[1]
    sets, aside = list[tuple[int, ...]](), list[tuple[int, ...]]()
    for one in range(component.max() + 1):
        there = np.flatnonzero(component == one)
        unsure = np.abs((np.isin(feature, there) * differs) @ still).max(initial=0.0) > NEAR
        (aside if unsure else sets).append(tuple(there.tolist()))
    solves = axes[:, ~free] / scale[:, None]
    return UniqueParts(tuple(sorted(sets)), tuple(aside), (solves / size[~free]) @ solves.T / total)


def of_regression(
    pieces: Callable[[], Iterable[Piece]], own: Regression, solution: UniqueParts, feature: Ints, alpha: float
) -> list[Floats]:
    """Return the parts and the rest of the gap of each outcome with limits, (3, parts + 1).

    ``pieces`` yields the rows anew, and ``own`` has their sums.
    """
    columns = np.array([np.isin(feature, one) for one in solution.sets], dtype=float).reshape(
        -1, feature.size
    )
    slopes = solution.inverse @ own.xy
    directions = (columns * own.apart) @ solution.inverse
    amounts = (columns * own.apart) @ slopes
    sums: list[UnitSums] = []
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
            each.append(UnitSums.of(np.column_stack([parts, residual[:, k] * moved - parts.sum(axis=1)])))
        sums = [a + b for a, b in zip(sums, each, strict=True)] if sums else each
    parts = np.vstack([amounts, own.y[0] - own.y[1] - amounts.sum(axis=0)])
    return [influence.limits(parts[:, k], alpha) for k, influence in enumerate(sums)]


# ---------------------------------------------------------------------- by a model


def of_model(
    mixed: Mixed,
    outcomes: tuple[Floats, Floats],
    weights: tuple[Floats, Floats],
    columns: int,
    alpha: float,
    spans: Sequence[float],
    rng: np.random.Generator,
) -> tuple[list[Floats], int, int]:
    """Return the parts of the gap of each outcome with limits, (3, p), and the numbers of drawn pairs and orders.

    0 orders are all of them.

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
    there = [np.flatnonzero(w > 0) for w in weights]
    sizes = [len(one) for one in there]
    few, cost = int(np.argmin(sizes)), max(2 * (columns - 1), 1)
    pairs = max(SCORED // cost, 1)
    each = max(1, min(sizes[1 - few] // sizes[few], pairs // sizes[few]))
    units = min(sizes[few], max(pairs // each, 1))
    rows = [rng.permutation(one)[: units * (1 if side == few else each)] for side, one in enumerate(there)]
    rows[few] = np.repeat(rows[few], each)
    ends = outcomes[0][rows[0]], outcomes[1][rows[1]]

    def of(inside: Bools) -> Floats:
        """Return the outcomes of mixed rows, some at a time; ``inside`` is for each row, or for all of them."""
        inside = np.broadcast_to(inside, (units * each, columns))
        spans = (slice(start, start + AT_ONCE) for start in range(0, units * each, AT_ONCE))
        return np.concatenate([mixed(rows[0][at], rows[1][at], inside[at]) for at in spans])

    if columns == 1 or (2**columns - 2) * units * each <= SCORED:
        orders, shares = 0, _exact(of, ends, columns)
    else:
        orders = max(1, min(MOST_ORDERS, SCORED // (units * each * cost)))
        shares = _sampled(of, ends, columns, orders, rng)
    w = (weights[0][rows[0]] * weights[1][rows[1]]).reshape(units, each)
    everything = np.concatenate([shares, ends[0][:, None], ends[1][:, None]], axis=1)
    means = (
        np.einsum("ue,ue...->u...", w, everything.reshape(units, each, columns + 2, -1))
        / w.sum(axis=1)[:, None, None]
    )
    parts = [
        _carried_over(means[..., k], w.sum(axis=1), [one[:, k] for one in outcomes], weights, alpha, span)
        for k, span in enumerate(spans)
    ]
    return parts, units * each, orders


def _carried_over(
    means: Floats,
    unit: Floats,
    outcomes: Sequence[Floats],
    weights: Sequence[Floats],
    alpha: float,
    span: float,
) -> Floats:
    """Return parts of drawn units with limits, carried over to the means of all rows by regression on the outcomes.

    ``means`` has the parts of each unit, and the outcomes of its rows of both groups, (u, p + 2).
    """
    unit = unit / unit.sum()
    mean = unit @ means
    root, away = np.sqrt(unit)[:, None], means - mean
    slopes = np.linalg.lstsq(root * away[:, -2:], root * away[:, :-2], rcond=1e-10)[0]
    whole = np.array([w @ one / w.sum() for one, w in zip(outcomes, weights, strict=True)])
    factor = unit[:, None] * math.sqrt(len(unit) / max(len(unit) - 1, 1))
    influence = UnitSums.of((away[:, :-2] - away[:, -2:] @ slopes) * factor)
    for outcome, w, mu, slope in zip(outcomes, weights, whole, slopes, strict=True):
        influence += UnitSums.of((w * (outcome - mu) / w.sum())[:, None], slope)
    farthest = (1.0 + np.abs(slopes).sum(axis=0)) * span * unit.max() if math.isfinite(span) else 0.0
    return influence.limits(mean[:-2] + (whole - mean[-2:]) @ slopes, alpha, farthest)


def _exact(of: Callable[[Bools], Floats], ends: tuple[Floats, Floats], columns: int) -> Floats:
    """Return the Shapley values of each pair of rows, (n, p, q), by all sets of columns, each a number of its bits."""
    first, second = ends
    bits, full = np.arange(columns), (1 << columns) - 1
    between = [of(chosen >> bits & 1 == 1) for chosen in range(1, full)]
    outcomes = [second, *between, first]
    shares = np.zeros((len(first), columns, first.shape[1]))
    for chosen, before in enumerate(outcomes):
        for j in (j for j in range(columns) if not chosen >> j & 1):
            orders = columns * math.comb(columns - 1, chosen.bit_count())
            shares[:, j] += (outcomes[chosen | 1 << j] - before) / orders
    return shares


def _sampled(
    of: Callable[[Bools], Floats],
    ends: tuple[Floats, Floats],
    columns: int,
    orders: int,
    rng: np.random.Generator,
) -> Floats:
    """Return estimated Shapley values of each pair of rows, (n, p, q), by random orders and their reverses."""
    first, second = ends
    shares, place = np.zeros((len(first), columns, first.shape[1])), np.arange(len(first))
    for _ in range(orders):
        order = rng.permuted(np.tile(np.arange(columns), (len(first), 1)), axis=1)
        for path in (order, order[:, ::-1]):
            inside, before = np.zeros((len(first), columns), dtype=bool), second
            for step in range(columns):
                inside[place, path[:, step]] = True
                after = first if step == columns - 1 else of(inside)
                shares[place, path[:, step]] += (after - before) / (2 * orders)
                before = after
    return shares
