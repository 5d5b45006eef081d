"""Thresholds whose mean rates lie within bands: a linear program that takes in columns as its prices ask for them.

The problem and its certificate are in :mod:`fairfix.solvers.bands`. A column is a threshold of a cell: the value of the
points above it, and what they add to the means of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import linprog

from fairfix.solvers.arrays import Floats, Ints
from fairfix.solvers.bands import PROMISED, Bands

_beside: Any = sparse.hstack
_below: Any = sparse.vstack

PLACES = 64
"""Thresholds of a cell that the linear program begins with, and that are added between two neighbours."""

ROUNDS = 60
"""Linear programs at most; three to six in practice."""

FINEST = 1e-10
"""Feasibility that is asked of a linear program, the finest that HiGHS takes."""

SCALED = 1e4
"""What values of a linear program are multiplied by, so that it is exact to 1e-14 of a value."""

TIE = 5e-10
"""Largest value that is given away where several rules are nearly the best."""

PROVEN = 1e-14
"""Gap of a linear program at which no more thresholds are added: rounding of sums."""

NOTHING = 1e-11
"""Weight of a threshold in a mixture that is rounding of the linear program."""


@dataclass(frozen=True, eq=False)
class Thresholds:
    """The optimum with ``gamma = 0``, and its proof."""

    shares: Floats
    """``q`` of each point, shape (n,): falling with the score inside a cell, and between 0 and 1 for few scores."""
    centres: Floats
    """``c`` of the free centres, shape (J,)."""
    means: Floats
    """``m`` of the rows, shape (m,)."""
    value: float
    """Largest value of ``sum w f q``, divided by the total weight."""
    gap: float
    """No feasible shares that rise with the score inside every cell have a value that is larger by more."""
    converged: bool
    """Whether the means lie within their bands and the gap is small, both to 1e-9."""
    rounds: int
    """Linear programs that were solved; 0 if no multiplier was needed."""


@dataclass(frozen=True, eq=False)
class _Curve:
    """The thresholds of a cell: what its best points give, and what they add to its rows."""

    points: Ints
    """Points of the cell by falling score, shape (k,)."""
    ends: Ints
    """Number of points above each threshold, which no tie is split by, shape (s + 1,), from 0 to k."""
    rows: Ints
    """Rows that points of the cell are in, shape (l,)."""
    value: Floats
    """``sum w f`` of the points above each threshold, shape (s + 1,)."""
    taken: Floats
    """Weight of the points above each threshold, shape (s + 1,)."""
    bent: Floats
    """The value less a little that grows with the rate: of equal rules, that of the lowest rates is taken."""
    adds: Floats
    """What the points above each threshold add to the means of the rows, shape (l, s + 1)."""

    @classmethod
    def of(cls, f: Floats, bands: Bands, columns: Any, points: Ints) -> _Curve:
        order = points[np.argsort(-f[points], kind="stable")]
        falls = f[order]
        ends = np.concatenate([[0], np.flatnonzero(falls[1:] != falls[:-1]) + 1, [order.size]])
        w = bands.weights[order]
        part = columns[:, order]
        rows = np.unique(part.indices)
        each = part.tocsr()[rows].toarray() * (w / bands.mass[rows, None])
        value = np.concatenate([[0.0], np.cumsum(w * falls)])[ends]
        taken = np.concatenate([[0.0], np.cumsum(w)])[ends]
        bent = value - TIE * taken**2 / taken[-1]
        adds = np.concatenate([np.zeros((rows.size, 1)), np.cumsum(each, axis=1)], axis=1)[:, ends]
        return cls(order, ends, rows, value, taken, bent, adds)

    def spread(self, low: int, high: int) -> Ints:
        """Return at most so many thresholds from one to another, both among them."""
        return np.unique(np.linspace(low, high, PLACES + 1).round().astype(np.int64))


def solve_thresholds(scores: npt.ArrayLike, bands: Bands, cells: npt.ArrayLike) -> Thresholds:
    """Return the optimal shares of all points, by column generation over the thresholds of each cell.

    ``scores``: finite, shape (n,); what points add to a row per unit of value must fall with the score inside a cell.
    ``cells``: number of each point's cell, shape (n,); points of a cell are in the same rows.
    """
    f, cell = np.asarray(scores, dtype=np.float64), np.asarray(cells, dtype=np.int64)
    if f.shape != bands.weights.shape or cell.shape != f.shape:
        raise ValueError(f"there must be one score and one cell per point, got {f.shape} and {cell.shape}")
    if not np.isfinite(f).all():
        raise ValueError("scores must be finite: drop or fill missing and infinite ones first")
    order = np.argsort(cell, kind="stable")
    columns = bands.slopes.tocsc()
    curves = [
        _Curve.of(f, bands, columns, part)
        for part in np.split(order, np.cumsum(np.bincount(cell))[:-1])
        if part.size
    ]
    free = [int(np.argmax(curve.value)) for curve in curves]
    mixed = [{at: 1.0} for at in free]
    means = _means(curves, mixed, bands)
    centres, rounds, bound = bands.idle(means), 0, -np.inf
    if centres is None:
        mixed, centres, bound, rounds = _mixtures(curves, bands)
        mixed = [_nearest(curve, own) for curve, own in zip(curves, mixed, strict=True)]
        means = _means(curves, mixed, bands)
    value = sum(_mean(curve.value, own) for curve, own in zip(curves, mixed, strict=True))
    gap = max(bound - value, 0.0)
    shares = np.zeros(f.size)
    for curve, own in zip(curves, mixed, strict=True):
        for at, part in own.items():
            shares[curve.points[: curve.ends[at]]] += part
    converged = bands.outside(means, centres) <= PROMISED and abs(gap) <= PROMISED
    shares = np.where(shares > 1 - NOTHING, 1.0, shares)  # parts sum to 1 but for rounding
    return Thresholds(shares, centres, means, value, gap, bool(converged), rounds)


Mixture = dict[int, float]
"""Threshold of a cell -> its part in the rule; parts of sum 1."""


def _means(curves: list[_Curve], mixed: list[Mixture], bands: Bands) -> Floats:
    out = np.zeros(bands.mass.size)
    for curve, own in zip(curves, mixed, strict=True):
        for at, part in own.items():
            out[curve.rows] += part * curve.adds[:, at]
    return out


def _mixtures(curves: list[_Curve], bands: Bands) -> tuple[list[Mixture], Floats, float, int]:
    """Return the mixtures of all cells, the centres, a bound on the value, and how many programs were solved."""
    kept = [curve.spread(0, curve.ends.size - 1) for curve in curves]
    proven, rounds = np.inf, 0
    while True:
        rounds += 1
        mixed, centres, prices = _program(curves, kept, bands)
        prices = bands.balanced(prices)
        # weak duality: no shares have a value above what each cell takes at these prices, and what the bands allow
        allowed = np.abs(prices) * bands.half + bands.moves(prices) * prices * bands.target
        left, bound, asked = float(bands.mass @ allowed), float(bands.mass @ allowed), []
        for curve, own in zip(curves, mixed, strict=True):
            paid = (bands.mass * prices)[curve.rows] @ curve.adds
            asked.append(int(np.argmax(curve.bent - paid)))
            bound += float((curve.value - paid).max())
            left += float((curve.bent - paid)[asked[-1]]) - _mean(curve.bent, own)
        proven = min(proven, bound)
        more = [_more(*one) for one in zip(curves, kept, mixed, asked, strict=True)]
        if left <= PROVEN or rounds == ROUNDS or sum(map(len, more)) == sum(map(len, kept)):
            return mixed, centres, proven, rounds
        kept = more


def _nearest(curve: _Curve, own: Mixture) -> Mixture:
    """Return the mixture with the same means whose thresholds are nearest: the least mean square of the rate taken.

    Where a cell gives up more than one threshold can, many mixtures have its means, and this one leaves the fewest
    points to chance.
    """
    if len(own) == 1 or (len(own) == 2 and max(own) - min(own) == 1):
        return own
    adds = curve.adds / np.abs(curve.adds).max(axis=1, keepdims=True)
    wanted = sum(adds[:, at] * part for at, part in own.items())
    square = (curve.taken / curve.taken[-1]) ** 2
    places = np.unique(
        np.concatenate([curve.spread(0, curve.ends.size - 1), np.fromiter(own, dtype=np.int64)])
    )
    program: Any = linprog
    for _ in range(ROUNDS):
        answer = program(
            square[places],
            A_eq=np.vstack([adds[:, places], np.ones(places.size)]),
            b_eq=np.append(wanted, 1.0),
            bounds=(0, None),
            method="highs",
            options={"primal_feasibility_tolerance": FINEST, "dual_feasibility_tolerance": FINEST},
        )
        if answer.x is None:
            return own
        parts = np.where(answer.x > NOTHING, answer.x, 0.0)
        nearest = {int(at): float(part / parts.sum()) for at, part in zip(places, parts, strict=True) if part}
        prices = answer.eqlin.marginals
        spare = square - prices[:-1] @ adds - prices[-1]
        more = _more(curve, places, nearest, int(np.argmin(spare)))
        if spare.min() >= -FINEST or more.size == places.size:
            break
        places = more
    return nearest


def _mean(numbers: Floats, own: Mixture) -> float:
    """Return the mean of a mixture."""
    return sum(float(numbers[at]) * part for at, part in own.items())


def _more(curve: _Curve, places: Ints, own: Mixture, asked: int) -> Ints:
    """Return thresholds with those that prices ask for, and with more beside those of the mixture."""
    last = curve.ends.size - 1
    out = [places, np.clip(np.arange(asked - 1, asked + 2), 0, last)]
    for at in (asked, *own):
        k = int(np.searchsorted(places, at))
        out.append(curve.spread(int(places[max(k - 1, 0)]), int(places[min(k + 1, places.size - 1)])))
    return np.unique(np.concatenate(out))


def _program(curves: list[_Curve], kept: list[Ints], bands: Bands) -> tuple[list[Mixture], Floats, Floats]:
    """Return mixtures of the kept thresholds, centres, and multipliers per unit of mass, of the linear program."""
    sizes = [places.size for places in kept]
    owner = np.repeat(np.arange(len(curves)), sizes)
    value = SCALED * np.concatenate([curve.bent[places] for curve, places in zip(curves, kept, strict=True)])
    total, free = owner.size, bands.centres
    rows = np.concatenate([np.repeat(c.rows, p.size) for c, p in zip(curves, kept, strict=True)])
    starts = np.concatenate([[0], np.cumsum(sizes)])
    columns = np.concatenate(
        [
            np.tile(np.arange(a, b), c.rows.size)
            for c, a, b in zip(curves, starts[:-1], starts[1:], strict=True)
        ]
    )
    adds = np.concatenate([c.adds[:, p].ravel() for c, p in zip(curves, kept, strict=True)])
    means = sparse.csr_array((adds, (rows, columns)), (bands.mass.size, total))
    belongs = bands.belongs
    above = _beside([means, -belongs])
    below = _beside([-means, bands.ratio * belongs])
    one = _beside(
        [sparse.csr_array((np.ones(total), (owner, np.arange(total)))), np.zeros((len(curves), free))]
    )
    program: Any = linprog
    answer = program(
        np.concatenate([-value, np.zeros(free)]),
        A_ub=_below([above, below]).tocsr(),
        b_ub=np.concatenate([bands.half + bands.target, bands.half - bands.ratio * bands.target]),
        A_eq=one.tocsr(),
        b_eq=np.ones(len(curves)),
        bounds=[(0, None)] * total + [(None, None)] * free,
        method="highs",
        options={"primal_feasibility_tolerance": FINEST, "dual_feasibility_tolerance": FINEST},
    )
    if answer.x is None:
        raise ValueError(f"the linear program of thresholds found no solution: {answer.message}")
    paid = -answer.ineqlin.marginals / SCALED
    size = bands.mass.size
    parts = np.where(answer.x[:total] > NOTHING, answer.x[:total], 0.0)
    parts /= np.bincount(owner, parts, len(curves))[owner]
    places = np.concatenate(kept)
    mixed: list[Mixture] = [
        {int(at): float(part) for at, part in zip(places[owner == k], parts[owner == k], strict=True) if part}
        for k in range(len(curves))
    ]
    return mixed, answer.x[total:], (paid[:size] - paid[size:]) / bands.mass
