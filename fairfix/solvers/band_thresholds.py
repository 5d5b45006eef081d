"""Thresholds whose mean rates lie within bands.

The problem and its certificate are in :mod:`fairfix.solvers.bands`. A merge of slopes solves one band, tangents solve
two bands of no width (equalized odds), and column generation solves all others: a linear program whose columns are
thresholds of cells, taken in as its prices ask for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import linprog

from fairfix.solvers.arrays import Floats, Ints, run_starts
from fairfix.solvers.bands import PROMISED, Bands
from fairfix.solvers.threshold_curves import NOTHING, TIE, Curve, Mixture, between, mean_of, nearest

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
    """Linear programs that were solved; 0 where none was needed."""


def solve_thresholds(scores: npt.ArrayLike, bands: Bands, cells: npt.ArrayLike) -> Thresholds:
    """Return the optimal shares of all points.

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
        Curve.of(f, bands, columns, part)
        for part in np.split(order, np.cumsum(np.bincount(cell))[:-1])
        if part.size
    ]
    mixed = [{int(np.argmax(curve.value)): 1.0} for curve in curves]
    means = _means(curves, mixed, bands)
    centres, rounds, bound = bands.idle(means), 0, -np.inf
    if centres is None:
        best = _one_band(curves, bands) or _one_point(curves, bands) or _mixtures(curves, bands)
        mixed, centres, bound, rounds = best
        means = _means(curves, mixed, bands)
    value = sum(float(mean_of(curve.value, own)) for curve, own in zip(curves, mixed, strict=True))
    gap = max(bound - value, 0.0)
    shares = np.zeros(f.size)
    for curve, own in zip(curves, mixed, strict=True):
        for at, part in own.items():
            shares[curve.points[: curve.ends[at]]] += part
    converged = bands.outside(means, centres) <= PROMISED and abs(gap) <= PROMISED
    shares = np.where(shares > 1 - NOTHING, 1.0, shares)  # parts sum to 1 but for rounding
    return Thresholds(shares, centres, means, value, gap, bool(converged), rounds)


Solution = tuple[list[Mixture], Floats, float, int]
"""The mixtures of all cells, the centres, a bound on the value, and how many programs were solved."""


def _means(curves: list[Curve], mixed: list[Mixture], bands: Bands) -> Floats:
    out = np.zeros(bands.mass.size)
    for curve, own in zip(curves, mixed, strict=True):
        out[curve.rows] += mean_of(curve.adds, own)
    return out


def _paid(curves: list[Curve], bands: Bands, prices: Floats) -> tuple[float, list[Floats]]:
    """Return what the bands allow at some prices, and what the thresholds of each cell pay.

    By weak duality, no shares have a value above that and the most that each cell has left.
    """
    prices = bands.balanced(prices)
    allowed = np.abs(prices) * bands.half + bands.moves(prices) * prices * bands.target
    pull = bands.mass * prices
    return float(bands.mass @ allowed), [pull[curve.rows] @ curve.adds for curve in curves]


# ---------------------------------------------------------------------- bands of cells with rows of their own


def _own_rows(curves: list[Curve], bands: Bands, kinds: int) -> bool:
    """Return whether each cell alone has a row of each kind, and the bands of a kind are the same for all cells."""
    rows = np.stack([curve.rows for curve in curves]) if {c.rows.size for c in curves} == {kinds} else None
    return (
        rows is not None
        and min(curve.adds[:, -1].min() for curve in curves) > 0
        and np.unique(rows).size == rows.size == bands.mass.size
        and not any(np.ptp(part[rows], axis=0).any() for part in (bands.centre, bands.target, bands.half))
    )


def _bound(curves: list[Curve], bands: Bands, pulls: Floats) -> float:
    """Return a value that no shares exceed, from what each cell pays for its means."""
    prices = np.zeros(bands.mass.size)
    for curve, pull in zip(curves, pulls, strict=True):
        prices[curve.rows] = pull
    bound, paid = _paid(curves, bands, prices / bands.mass)
    return bound + sum(float((curve.value - cost).max()) for curve, cost in zip(curves, paid, strict=True))


def _one_band(curves: list[Curve], bands: Bands) -> Solution | None:
    """Return the optimum where the one mean of each cell is in a band that all share; else None.

    The mean of a cell is that of its best threshold, clipped to the band. So the slope of the value in the centre is
    the sum of the slopes of the cells beyond the band; it falls where an edge of the band passes a threshold.
    """
    if not (bands.ratio and _own_rows(curves, bands, 1)):
        return None
    half, ratio, centre = float(bands.half[0]), bands.ratio, float(bands.target[0])
    low, high = (
        np.concatenate([curve.adds[0, part] for curve in curves]) for part in (slice(-1), slice(1, None))
    )
    wide = low < high
    cell = np.repeat(np.arange(len(curves)), [curve.gains.size for curve in curves])[wide]
    gains, steps = (
        np.concatenate(part)[wide] for part in zip(*((c.gains, c.steps[0]) for c in curves), strict=True)
    )
    up, down = np.maximum(gains / steps, 0.0), np.minimum(gains / steps, 0.0)
    begin = run_starts(cell)
    up_next, down_before = np.append(up[1:], 0.0), np.append(0.0, down[:-1])
    up_next[begin[1:] - 1] = down_before[begin] = 0.0
    passes = np.concatenate([high[wide] - half, (low[wide] + half) / ratio])
    falls = np.concatenate([up - up_next, down_before - down])
    passed = (passes <= centre).astype(np.float64)
    if bands.centres:
        order = np.argsort(passes, kind="stable")
        order = order[falls[order] > 0]
        drops = (np.repeat([1.0, ratio], up.size) * falls)[order]
        fallen = np.cumsum(drops)
        total = min(float(up[begin].sum()), float(fallen[-1]))
        last = int(np.searchsorted(fallen, total))
        centre = float(passes[order[last]])
        passed[order] = np.arange(order.size) < last
        passed[order[last]] = 1.0 - (fallen[last] - total) / drops[last]
    pulls = up[begin] - np.bincount(np.tile(cell, 2), falls * passed)
    mixed = [_of_mean(curve, ratio * centre - half, centre + half) for curve in curves]
    return mixed, np.full(bands.centres, centre), _bound(curves, bands, pulls[:, None]), 0


def _of_mean(curve: Curve, low: float, high: float) -> Mixture:
    """Return the best mixture of a cell whose one mean is within limits."""
    top, line = int(np.argmax(curve.bent)), curve.adds[0]
    wanted = float(np.clip(line[top], low, high))
    if wanted == line[top]:
        return {top: 1.0}
    return between(line, min(wanted, float(line[-1])), "right" if wanted < line[top] else "left")


class _Hull(NamedTuple):
    """The thresholds of a cell of two means, by the sum and the difference of these, which is concave in the sum."""

    sums: Floats
    above: Floats
    slopes: Floats
    """Slope of the difference in the sum on each step, falling, shape (s,)."""
    bases: Floats
    """Values of the lines of all steps at the sum 0, shape (s,)."""
    worth: Floats
    """Value of a unit of the sum, and of the difference, shape (2,)."""
    rows: tuple[int, int]

    @classmethod
    def of(cls, curve: Curve) -> _Hull | None:
        """Return the hull; None where the value is not linear in the means, or the last of these are not 1."""
        sums, above, rows = curve.pair
        a, b = curve.steps[list(rows)]
        top, per_sum = int(np.argmax(above)), float(curve.value[-1] / sums[-1])
        rest = curve.value - per_sum * sums
        worth = np.array([per_sum, float(rest[top] / above[top]) if above[top] > NOTHING else 0.0])
        off = max(np.abs(rest - worth[1] * above).max(), np.abs(curve.adds[:, -1] - 1.0).max())
        if off > NOTHING or (a + b).min() <= 0:
            return None
        slopes = np.minimum.accumulate((a - b) / (a + b))
        return cls(sums, above, slopes, above[:-1] - slopes * sums[:-1], worth, rows)


def _one_point(curves: list[Curve], bands: Bands) -> Solution | None:
    """Return the optimum where all cells have the same two means, in which their value is linear; else None.

    The best point is on the lowest of all curves. Of its lines, one that rises and one that falls in the direction of
    the value meet above it. They give way to lines of the curve that is lowest there, until none is lower.
    """
    if bands.centres != 2 or not bands.tied.all() or not _own_rows(curves, bands, 2):
        return None
    hulls = [hull for hull in map(_Hull.of, curves) if hull is not None]
    apart = {hull.rows for hull in hulls if hull.above.max() > NOTHING}
    worth = np.sum([hull.worth for hull in hulls], axis=0)
    if len(hulls) < len(curves) or len(apart) != 1 or worth[1] <= 0:
        return None
    level = TIE - worth[0] / worth[1]  # slope of the curve where the value is the largest
    left = min(((hull.slopes[0], hull.bases[0], k) for k, hull in enumerate(hulls)))
    right = max(((hull.slopes[-1], hull.bases[-1], k) for k, hull in enumerate(hulls)))
    at = 0.0 if left[0] <= level else 2.0
    if left[0] <= level or right[0] > level:
        left = right = left if left[0] <= level else right
    for _ in range(sum(hull.slopes.size for hull in hulls)):
        if left != right:
            at = float(np.clip((right[1] - left[1]) / (left[0] - right[0]), 0.0, 2.0))
        heights = [float(np.interp(at, hull.sums, hull.above)) for hull in hulls]
        low = int(np.argmin(heights))
        if left == right or heights[low] >= left[1] + left[0] * at - PROVEN:
            break
        hull = hulls[low]
        before, after = (int(np.searchsorted(hull.sums, at, side)) - 1 for side in ("left", "right"))
        steps = [(hull.slopes[k], hull.bases[k], low) for k in (before, min(after, hull.slopes.size - 1))]
        left = next((step for step in reversed(steps) if step[0] > level), left)
        right = next((step for step in steps if step[0] <= level), right)
    share = np.clip((level - right[0]) / max(left[0] - right[0], PROVEN), 0.0, 1.0)
    paid = np.zeros((len(hulls), 2))
    paid[left[2]] = share * worth[1] * np.array([-left[0], 1.0])
    paid[right[2]] += worth - share * worth[1] * np.array([-left[0], 1.0])
    turn = np.array([[1.0, 1.0], [1.0, -1.0]])[list(apart.pop())]  # of sum and difference to the two means
    pulls = ([hull.worth for hull in hulls] - paid) @ turn.T
    point = turn @ (at, min(heights)) / 2
    mixed = [own for own in (nearest(curve, point) for curve in curves) if own is not None]
    return (mixed, point, _bound(curves, bands, pulls), 0) if len(mixed) == len(curves) else None


# ---------------------------------------------------------------------- all other bands


def _mixtures(curves: list[Curve], bands: Bands) -> Solution:
    """Return the optimum by a linear program that takes in thresholds as its prices ask for them."""
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
    mixed = [
        nearest(curve, mean_of(curve.adds, own)) or own for curve, own in zip(curves, mixed, strict=True)
    ]
    return mixed, centres, proven, rounds


def _spread(low: int, high: int) -> Ints:
    """Return a limited number of thresholds from one to another, both among them."""
    return np.unique(np.linspace(low, high, PLACES + 1).round().astype(np.int64))


def _more(curve: Curve, places: Ints, own: Mixture, asked: int) -> Ints:
    """Return thresholds with those that prices ask for, and with more next to those of the mixture."""
    last = curve.ends.size - 1
    out = [places, np.clip(np.arange(asked - 1, asked + 2), 0, last)]
    for at in (asked, *own):
        k = int(np.searchsorted(places, at))
        out.append(_spread(int(places[max(k - 1, 0)]), int(places[min(k + 1, places.size - 1)])))
    return np.unique(np.concatenate(out))


def _program(curves: list[Curve], kept: list[Ints], bands: Bands) -> tuple[list[Mixture], Floats, Floats]:
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
