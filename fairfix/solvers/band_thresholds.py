"""Thresholds whose mean rates lie within bands.

The problem and its certificate are in :mod:`fairfix.solvers.bands`. Column generation solves it: a linear program
whose columns are thresholds of cells, taken in as its prices ask for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import linprog

from fairfix.solvers.arrays import Floats, Ints, finite_scores
from fairfix.solvers.bands import PROMISED, Bands
from fairfix.solvers.threshold_curves import NOTHING, TIE, Mixture, ThresholdCurve, mean_of, nearest

PLACES = 64
"""Thresholds of a cell that the linear program begins with, and that are added between two neighbours."""

ROUNDS = 60
"""Linear programs at most; three to six in practice."""

FINEST = 1e-10
"""Feasibility that is asked of a linear program, the finest that HiGHS takes."""

SCALED = 1e4
"""Scale of the values of a linear program, so that it is exact to 1e-14 of a value."""

PROVEN = 1e-14
"""Gap of a linear program at which no more thresholds are added: rounding of sums."""


@dataclass(frozen=True, eq=False)
class BandThresholds:
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
    """Linear programs that were solved; 0 where none was needed."""


def solve_thresholds(scores: npt.ArrayLike, bands: Bands, cells: npt.ArrayLike) -> BandThresholds:
    """Return the optimal shares of all points.

    ``scores``: finite, shape (n,); what points add to a row per unit of value must fall with the score inside a cell.
    ``cells``: number of each point's cell, shape (n,); points of a cell are in the same rows.
    """
    f, cell = finite_scores(scores, bands.weights.shape), np.asarray(cells, dtype=np.int64)
    if cell.shape != f.shape:
        raise ValueError(f"there must be one cell per point, got shapes {cell.shape} and {f.shape}")
    order = np.argsort(cell, kind="stable")
    columns = bands.slopes.tocsc()
    curves = [
        ThresholdCurve.of(f, bands, columns, part)
        for part in np.split(order, np.cumsum(np.bincount(cell))[:-1])
        if part.size
    ]
    mixed = [{int(np.argmax(curve.value)): 1.0} for curve in curves]
    means = _means(curves, mixed, bands)
    centres, rounds, bound = bands.idle(means), 0, -np.inf
    if centres is None:
        mixed, centres, bound, rounds = _mixtures(curves, bands)
        means = _means(curves, mixed, bands)
    value = sum(float(mean_of(curve.value, own)) for curve, own in zip(curves, mixed, strict=True))
    gap = max(bound - value, 0.0)
    shares = np.zeros(f.size)
    for curve, own in zip(curves, mixed, strict=True):
        for at, part in own.items():
            shares[curve.points[: curve.ends[at]]] += part
    converged = bands.outside(means, centres) <= PROMISED and abs(gap) <= PROMISED
    shares = np.where(shares > 1 - NOTHING, 1.0, shares)  # parts sum to 1 but for rounding
    return BandThresholds(shares, centres, means, value, gap, bool(converged), rounds)


def _means(curves: list[ThresholdCurve], mixed: list[Mixture], bands: Bands) -> Floats:
    out = np.zeros(bands.mass.size)
    for curve, own in zip(curves, mixed, strict=True):
        out[curve.rows] += mean_of(curve.adds, own)
    return out


def _paid(curves: list[ThresholdCurve], bands: Bands, prices: Floats) -> tuple[float, list[Floats]]:
    """Return what the bands allow at some prices, and what the thresholds of each cell pay.

    By weak duality, no shares have a value above that and the most that each cell has left.
    """
    prices = bands.balanced(prices)
    allowed = np.abs(prices) * bands.half + bands.moves(prices) * prices * bands.target
    pull = bands.mass * prices
    return float(bands.mass @ allowed), [pull[curve.rows] @ curve.adds for curve in curves]


def _mixtures(curves: list[ThresholdCurve], bands: Bands) -> tuple[list[Mixture], Floats, float, int]:
    """Return the mixtures of all cells, the centres, a bound on the value, and how many programs were solved."""
    kept = [_spread(0, curve.ends.size - 1) for curve in curves]
    proven, rounds = np.inf, 0
    while True:
        rounds += 1
        mixed, centres, prices = _program(curves, kept, bands)
        left, paid = _paid(curves, bands, prices)
        bound, asked = left, []
        for curve, own, cost in zip(curves, mixed, paid, strict=True):
            asked.append(int(np.argmax(curve.bent - cost)))
            bound += float((curve.value - cost).max())
            left += float((curve.bent - cost)[asked[-1]] - mean_of(curve.bent, own))
        proven = min(proven, bound)
        more = [_more(*one) for one in zip(curves, kept, mixed, asked, strict=True)]
        if left <= PROVEN or rounds == ROUNDS or sum(map(len, more)) == sum(map(len, kept)):
            break
        kept = more
    for k, (curve, own) in enumerate(zip(curves, mixed, strict=True)):
        near = nearest(curve, mean_of(curve.adds, own))
        # points that add nothing to a mean, as of a probability of 0, may have a value
        if near is not None and mean_of(curve.bent, near) >= mean_of(curve.bent, own) - TIE:
            mixed[k] = near
    return mixed, centres, proven, rounds


def _spread(low: int, high: int) -> Ints:
    """Return a limited number of thresholds from one to another, both among them."""
    return np.unique(np.linspace(low, high, PLACES + 1).round().astype(np.int64))


def _more(curve: ThresholdCurve, places: Ints, own: Mixture, asked: int) -> Ints:
    """Return thresholds with those that prices ask for, and with more next to those of the mixture."""
    last = curve.ends.size - 1
    out = [places, np.clip(np.arange(asked - 1, asked + 2), 0, last)]
    for at in (asked, *own):
        k = int(np.searchsorted(places, at))
        out.append(_spread(int(places[max(k - 1, 0)]), int(places[min(k + 1, places.size - 1)])))
    return np.unique(np.concatenate(out))


def _program(
    curves: list[ThresholdCurve], kept: list[Ints], bands: Bands
) -> tuple[list[Mixture], Floats, Floats]:
    """Return mixtures of the kept thresholds, centres, and multipliers per unit of mass, of the linear program."""
    sizes, free, size = [places.size for places in kept], bands.centres, bands.mass.size
    owner = np.repeat(np.arange(len(curves)), sizes)
    total = owner.size
    value = SCALED * np.concatenate([curve.bent[places] for curve, places in zip(curves, kept, strict=True)])
    rows = np.concatenate([np.repeat(c.rows, p.size) for c, p in zip(curves, kept, strict=True)])
    columns = np.concatenate([np.tile(np.flatnonzero(owner == k), c.rows.size) for k, c in enumerate(curves)])
    adds = np.concatenate([c.adds[:, p].ravel() for c, p in zip(curves, kept, strict=True)])
    centred = np.flatnonzero(bands.centre >= 0)
    of_centre, ones = total + bands.centre[centred], np.ones(centred.size)
    within = sparse.csr_array(
        (
            np.concatenate([adds, -ones, -adds, bands.ratio * ones]),
            (
                np.concatenate([rows, centred, size + rows, size + centred]),
                np.concatenate([columns, of_centre, columns, of_centre]),
            ),
        ),
        (2 * size, total + free),
    )
    whole = sparse.csr_array((np.ones(total), (owner, np.arange(total))), (len(curves), total + free))
    program: Any = linprog
    answer = program(
        np.concatenate([-value, np.zeros(free)]),
        A_ub=within,
        b_ub=np.concatenate([bands.half + bands.target, bands.half - bands.ratio * bands.target]),
        A_eq=whole,
        b_eq=np.ones(len(curves)),
        bounds=np.stack(
            [np.append(np.zeros(total), np.full(free, -np.inf)), np.full(total + free, np.inf)], axis=1
        ),
        method="highs",
        options={"primal_feasibility_tolerance": FINEST, "dual_feasibility_tolerance": FINEST},
    )
    if answer.x is None:
        raise ValueError(f"the linear program of thresholds found no solution: {answer.message}")
    paid = -answer.ineqlin.marginals / SCALED
    parts = np.where(answer.x[:total] > NOTHING, answer.x[:total], 0.0)
    parts /= np.bincount(owner, parts, len(curves))[owner]
    places = np.concatenate(kept)
    mixed: list[Mixture] = [
        {int(at): float(part) for at, part in zip(places[owner == k], parts[owner == k], strict=True) if part}
        for k in range(len(curves))
    ]
    return mixed, answer.x[total:], (paid[:size] - paid[size:]) / bands.mass
