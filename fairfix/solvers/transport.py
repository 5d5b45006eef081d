r"""The most that rows gain when they are moved to listed candidates by at most a mean distance.

Row ``i`` has weight ``w_i`` (of sum 1) and candidates ``j`` with gain ``d_Y(i, j)`` at distance ``d_X(i, j)``; to stay
gains and costs nothing. The linear program over transport plans has a dual in one number:

.. math::
    \max_{P \ge 0} \sum P_{ij} d_Y(i, j) \;\text{s.t.}\; \sum_j P_{ij} \le w_i,\;
    \sum P_{ij} d_X(i, j) \le \epsilon \quad = \quad \min_{\lambda \ge 0} \lambda \epsilon
    + \sum_i w_i \max(0, \max_j d_Y(i, j) - \lambda d_X(i, j)) .

It is convex and piecewise linear. Tangents from both sides of a bracket meet in a lower bound and in the next trial;
every third trial bisects, so that the bracket shrinks.

References
----------
M. Yurochkin and Y. Sun, *SenSeI: Sensitive set invariance for enforcing individual fairness*, ICLR 2021.
"""

from __future__ import annotations

import math

import numpy as np

from fairfix.solvers.arrays import Floats, Ints, run_starts, shares_of

TRIALS = 200
"""Most evaluations of the dual; bisection alone takes half as many."""


def share_across(costs: Floats, eps: float, weight: Floats | None = None) -> tuple[float, float]:
    """Return the greatest share of rows that plans within a mean distance take across a border, and its multiplier.

    ``costs``: of the cheapest way across, shape (n,): 0 where it costs nothing, infinite where there is none. ``eps``:
    mean distance. ``weight``: of rows, shape (n,); None for 1 each.
    """
    there = np.flatnonzero(np.isfinite(costs))
    most, multiplier = regularizer_empirical(
        there, np.ones(there.size), costs[there], eps, many=costs.size, weight=weight
    )
    return min(most, 1.0), multiplier


def left_across(costs: Floats, multiplier: float) -> Floats:
    """Return what getting across is worth to each row beyond its price, in [0, 1], shape (n,).

    By duality ``multiplier * eps`` plus its mean is at least the share of rows that any plan takes across: for any
    multiplier, and for the distribution of the rows as well as for rows.
    """
    there = np.isfinite(costs)
    return np.asarray(np.where(there, np.maximum(1.0 - multiplier * np.where(there, costs, 0.0), 0.0), 0.0))


def regularizer_empirical(
    rows: Ints,
    gains: Floats,
    distances: Floats,
    eps: float,
    *,
    many: int,
    weight: Floats | None = None,
) -> tuple[float, float]:
    """Return the greatest mean gain of transport plans within a mean distance, and ``lambda`` there.

    The gain is the dual at this ``lambda``, which no plan exceeds, and above the greatest gain by rounding alone.

    ``rows``: row of each candidate, from 0, in any order, shape (m,). ``gains``, ``distances``: ``d_Y`` and ``d_X`` of
    each, finite, distances not negative, shape (m,). ``eps``: mean distance. ``many``: number of rows. ``weight``: of
    rows, shape (many,); None for 1 each.
    """
    share = shares_of(weight, many)
    if not 0 <= eps < math.inf:
        raise ValueError(f"eps must be finite and not negative: {eps}")
    if not (np.isfinite(gains).all() and np.isfinite(distances).all()) or distances.min(initial=0.0) < 0:
        raise ValueError("gains and distances must be finite, and distances not negative")
    useful = np.flatnonzero(gains > 0)
    useful = useful[np.argsort(rows[useful], kind="stable")]
    if not useful.size:
        return 0.0, 0.0
    gain, cost, row = gains[useful], distances[useful], rows[useful]
    starts = run_starts(row)
    counts = np.diff(np.append(starts, row.size))
    mass = share[row[starts]]

    def at(multiplier: float) -> tuple[float, float]:
        """Return the dual and its slope from the right: of the best candidates, the nearest moves."""
        left = gain - multiplier * cost
        best = np.maximum.reduceat(left, starts)
        near = np.where(left >= np.repeat(best, counts), cost, np.inf)
        moved = np.where(best > 0, np.minimum.reduceat(near, starts), 0.0)
        return multiplier * eps + float(mass @ np.maximum(best, 0.0)), eps - float(mass @ moved)

    low, (least, slope) = 0.0, at(0.0)
    if slope >= 0:
        return least, 0.0
    far = cost > 0
    high = float((gain[far] / cost[far]).max()) * (1.0 + 1e-12)
    most, rise = at(high)
    value, multiplier, bound = (*min((least, low), (most, high)), -math.inf)
    for turn in range(TRIALS):
        meet = (most - least + slope * low - rise * high) / (slope - rise) if slope < rise else high
        bound = max(bound, least + slope * (meet - low))
        trial = meet if turn % 3 and low < meet < high else (low + high) / 2
        if not low < trial < high:
            break
        dual, lean = at(trial)
        if dual < value:
            value, multiplier = dual, trial
        if value - bound <= 4e-16 * abs(value):  # two roundings
            break
        if lean < 0:
            low, least, slope = trial, dual, lean
        else:
            high, most, rise = trial, dual, lean
    return value, multiplier
