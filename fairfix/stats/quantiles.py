"""Quantiles that intervals need: of the beta, Student's t, the normal and Kolmogorov's distribution.

:mod:`scipy.special` has the first two; it is imported when the first quantile is asked for.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats: TypeAlias = NDArray[np.float64]


def beta_quantile(tail: ArrayLike, a: ArrayLike, b: ArrayLike) -> Floats:
    """Return the point of Beta(a, b), with real shapes, that leaves ``tail`` in (0, 1) below it."""
    from scipy.special import betaincinv

    return np.asarray(betaincinv(*(np.asarray(v, dtype=np.float64) for v in (a, b, tail))))


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
