"""MOVER: limits of differences and ratios of two independent numbers, from limits of each.

References
----------
Newcombe (1998), Statistics in Medicine 17. Zou and Donner (2008), Statistics in Medicine 27.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairfix.stats.quantiles import Floats

if TYPE_CHECKING:
    from fairfix.stats.estimates import Limits

_CELLS = 1 << 17  # pairs held at once: 1 MB an array, so memory does not grow with the square of the groups


def largest_pair(plus: Limits, minus: Limits, sign: int) -> float:
    """``max over i != j of  x_i + y_j + sign sqrt(a_i² + b_j²)`` for ``plus = x, a`` and ``minus = y, b``."""
    (first, x, a), (second, y, b) = (_outermost(*limits, sign) for limits in (plus, minus))
    best, step = -math.inf, max(1, _CELLS // len(y))
    for start in range(0, len(x), step):
        block = slice(start, start + step)
        total = x[block, None] + y + sign * np.hypot(a[block, None], b)
        total[first[block, None] == second] = -math.inf
        best = max(best, float(total.max()))
    return best


def _outermost(x: Floats, a: Floats, sign: int) -> tuple[NDArray[np.intp], Floats, Floats]:
    """Return the places, and the entries there, at which a sum that grows with ``x`` and ``sign a`` can be largest.

    One that two others reach in both cannot be: one of the two is not the partner. Few are left, like the corners of
    a cloud of points.
    """
    order = np.lexsort((-sign * a, -x))
    reach = sign * a[order]
    most = np.maximum.accumulate(reach)
    second = np.maximum.accumulate(np.minimum(reach[1:], most[:-1]))
    left = np.concatenate([order[:2], order[2:][reach[2:] > second[:-1]]])
    return left, x[left], a[left]


def mover(p: Floats, ends: Limits, q: Floats, other_ends: Limits) -> Limits:
    """Limits of ``p - q`` from limits of each."""
    (low, high), (other_low, other_high) = ends, other_ends
    return p - q - np.hypot(p - low, other_high - q), p - q + np.hypot(high - p, q - other_low)


def log_mover(p: Floats, ends: Limits, q: Floats, other_ends: Limits) -> Limits:
    """Limits of ``log(p/q)``: MOVER where both are positive, else the rectangle."""
    low, high = (logarithm(v) for v in ends)
    other_low, other_high = (logarithm(v) for v in other_ends)
    positive = (p > 0) & (q > 0)
    x, y = np.log(np.where(positive, p, 1.0)), np.log(np.where(positive, q, 1.0))
    both = mover(x, (low, high), y, (other_low, other_high))
    with np.errstate(invalid="ignore"):  # -inf - -inf if both ends are open
        low, high = low - other_high, high - other_low
    return np.where(positive, both[0], low), np.where(positive, both[1], high)


def logarithm(numbers: ArrayLike) -> Floats:
    """Return the logarithms, minus infinity of 0."""
    with np.errstate(divide="ignore"):
        return np.log(np.asarray(numbers, dtype=np.float64))
