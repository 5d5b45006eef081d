"""Quantiles that intervals need: of the beta, Student's t, the normal and Kolmogorov's distribution.

:mod:`scipy.special` has the first two; it is imported when the first quantile is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats: TypeAlias = NDArray[np.float64]

MANY = 64
"""Least number of quantiles for which looking for equal ones pays."""

EXACT = 2.0**53
"""Whole numbers below it are exact as floats."""


def beta_quantile(tail: ArrayLike, a: ArrayLike, b: ArrayLike) -> Floats:
    """Return the point of Beta(a, b), with real shapes, that leaves ``tail`` in (0, 1) below it."""
    from scipy.special import betaincinv

    shapes = [np.asarray(shape, dtype=np.float64) for shape in (a, b)]
    tail = np.asarray(tail, dtype=np.float64)
    search: Callable[..., Floats] = betaincinv
    if tail.ndim or shapes[0].size < MANY or shapes[0].shape != shapes[1].shape:
        return np.asarray(search(*shapes, tail))
    # of many groups, a lot have as many rows and successes as another, and a look-up is cheaper than a search
    width = float(shapes[1].max()) + 1.0
    code = shapes[0] * width + shapes[1]
    if not (code.max() < EXACT and all((shape == np.floor(shape)).all() for shape in shapes)):
        return np.asarray(search(*shapes, tail))
    code, place = np.unique(code, return_inverse=True)
    quantile = np.asarray(search(code // width, code % width, tail))
    return quantile[place].reshape(shapes[0].shape)


def student_quantile(tail: ArrayLike, df: ArrayLike) -> Floats:
    """Return the ``t >= 0`` that Student's t with ``df`` degrees of freedom exceeds with probability ``tail``.

    0 for a tail above 1/2.
    """
    from scipy.special import stdtrit

    below = stdtrit(np.asarray(df, dtype=np.float64), np.asarray(tail, dtype=np.float64))
    return np.maximum(-np.asarray(below), 0.0)


def normal_quantile(tail: float) -> float:
    """Return the point that a standard normal exceeds with probability ``tail``."""
    return -NormalDist().inv_cdf(tail)


def kolmogorov_quantile(alpha: float) -> float:
    """Return ``sqrt(-ln(alpha/2)/2)``: by the first term of Kolmogorov's series, an upper bound on its quantile."""
    return math.sqrt(-math.log(alpha / 2) / 2)
