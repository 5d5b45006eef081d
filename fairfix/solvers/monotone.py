r"""Recalibration: scores become probabilities of label 1, by a map that keeps their order.

Two maps, each fitted to pairs (score ``f_i``, label ``y_i``, weight ``w_i``):

.. math::
    \text{isotonic:} \quad & \min_{\eta} \sum_i w_i (y_i - \eta(f_i))^2, \quad \eta \text{ non-decreasing} \\
    \text{sigmoid:} \quad & \min_{a \ge 0,\, b} -\sum_i w_i \left(\tau_i \log \sigma(a \ell_i + b)
    + (1 - \tau_i) \log(1 - \sigma(a \ell_i + b))\right), \quad \ell = \log \tfrac{p}{1 - p},\; p = \tfrac{1 + f}{2}

with Platt's targets ``tau`` = (N1 + 1)/(N1 + 2) for label 1 and 1/(N0 + 2) for label 0, which keep the map finite where
the scores separate the labels (``N`` are weights). The isotonic solution is a step function whose blocks are the faces
of the concave hull of the ROC curve: on each block it is the share of label 1, so any rule that is constant on the
blocks has the same means over the rows whether it is counted with ``eta`` or with the labels. It follows every
whim of small samples; the sigmoid has two numbers to fit.

References
----------
Barlow, Bartholomew, Bremner and Brunk, *Statistical inference under order restrictions* (1972); J. Platt,
*Probabilistic outputs for support vector machines* (1999).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import isotonic_regression, minimize
from scipy.special import expit, log_expit

from fairfix.solvers.arrays import Floats, locked, run_starts

LARGEST_LOGIT = 36.7  # of the largest float below 1


@dataclass(frozen=True, eq=False)
class Isotonic:
    """A non-decreasing step function; made by :func:`isotonic`."""

    edges: Floats
    """Least score of each block, increasing, shape (B,); the first block reaches down to minus infinity."""
    shares: Floats
    """Share of label 1 in each block, increasing, shape (B,)."""
    mass: Floats
    """Weight of the fitted points in each block, shape (B,)."""

    def block(self, scores: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return the block of each score."""
        at = np.searchsorted(self.edges, np.asarray(scores, dtype=np.float64), side="right") - 1
        return np.maximum(at, 0).astype(np.int64)


def isotonic(scores: npt.ArrayLike, labels: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> Isotonic:
    """Return the isotonic regression of labels on scores.

    ``scores``: finite, shape (n,), n >= 1. ``labels``: 0 or 1, shape (n,). ``weights``: positive, shape (n,); None
    for 1 each.

    Notes
    -----
    Between two blocks the edge stands midway between the largest score below and the least score above.
    """
    f, one = np.asarray(scores, dtype=np.float64), np.asarray(labels) == 1
    w = np.ones(f.shape) if weights is None else np.asarray(weights, dtype=np.float64)
    parts = list[_Blocks]()
    for low, high in pairwise([-np.inf, *_cuts(f), np.inf]):  # neighbours may be pooled in any order
        rows = np.flatnonzero((low <= f) & (f < high))
        if not rows.size:
            continue
        rows = rows[np.argsort(f[rows], kind="stable")]
        mass, ordered = w[rows], f[rows]
        first = run_starts(ordered)
        level = ordered[first]
        sums = (np.add.reduceat(part, first) for part in (mass, mass * one[rows]))
        parts.append(_pooled(_Blocks(level, level, *sums)))
    pooled = _pooled(_Blocks(*map(np.concatenate, zip(*parts, strict=True))))
    edges, below = pooled.low.copy(), pooled.high[:-1]
    middle = below + (edges[1:] - below) / 2
    edges[1:] = np.where(middle > below, middle, edges[1:])
    return Isotonic(locked(edges), locked(pooled.positive / pooled.mass), locked(pooled.mass))


STRETCH = 1 << 18
"""Points that are sorted and pooled at once: some megabytes, however many points there are."""


def _cuts(f: Floats) -> Floats:
    """Return scores, increasing, that have about :data:`STRETCH` points between them."""
    few = f[:: max(1, STRETCH // 256)]
    return np.unique(np.sort(few)[256::256])


class _Blocks(NamedTuple):
    """Blocks of equal value in the order of their scores: the ends of each, its weight, and that of label 1, (B,)."""

    low: Floats
    high: Floats
    mass: Floats
    positive: Floats


def _pooled(points: _Blocks) -> _Blocks:
    """Return the blocks of the isotonic regression of some blocks, each with a larger share than the one before."""
    starts = isotonic_regression(points.positive / points.mass, weights=points.mass).blocks[:-1]
    while True:
        mass, positive = (np.add.reduceat(part, starts) for part in (points.mass, points.positive))
        share = positive / mass
        fresh = np.concatenate([[True], share[1:] > share[:-1]])  # blocks that rounding kept apart
        if fresh.all():
            ends = np.append(starts[1:], points.low.size) - 1
            return _Blocks(points.low[starts], points.high[ends], mass, positive)
        starts = starts[fresh]


@dataclass(frozen=True)
class Sigmoid:
    """The map ``sigma(slope * logit(p) + intercept)``; made by :func:`sigmoid`."""

    slope: float
    intercept: float

    def apply(self, scores: npt.ArrayLike) -> Floats:
        """Return the recalibrated probability of each score ``f = 2 p - 1``."""
        return sigmoid_of(scores, self.slope, self.intercept)


def sigmoid_of(scores: npt.ArrayLike, slope: float | Floats, intercept: float | Floats) -> Floats:
    """Return ``sigma(slope * logit(p) + intercept)`` of scores ``f = 2 p - 1``."""
    return np.asarray(expit(slope * logit_of(np.asarray(scores, dtype=np.float64)) + intercept))


def sigmoid_inverse(scores: Floats, slope: float, intercept: float) -> Floats:
    """Return the ``f = 2 p - 1`` that :func:`sigmoid_of` maps to ``(scores + 1) / 2``; none where it is constant."""
    return np.tanh((logit_of(scores) - intercept) / (2.0 * slope)) if slope else np.empty(0)


def logit_of(f: Floats) -> Floats:
    """Return ``log(p / (1 - p))`` of scores ``f = 2 p - 1``, finite at both ends, same shape."""
    with np.errstate(divide="ignore"):
        return np.clip(2.0 * np.arctanh(f), -LARGEST_LOGIT, LARGEST_LOGIT)


def sigmoid(scores: npt.ArrayLike, labels: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> Sigmoid:
    """Return the sigmoid map of least log loss against Platt's targets; its slope is not negative.

    ``scores``: ``2 p - 1``, in [-1, 1], shape (n,), n >= 1. ``labels``: 0 or 1, shape (n,). ``weights``: positive,
    shape (n,); None for 1 each.
    """
    logit, y = logit_of(np.asarray(scores, dtype=np.float64)), np.asarray(labels) == 1
    w = np.ones(y.shape) if weights is None else np.asarray(weights, dtype=np.float64)
    ones, zeros = float(w[y].sum()), float(w[~y].sum())
    target = np.where(y, (ones + 1) / (ones + 2), 1 / (zeros + 2))
    total = ones + zeros
    rows = np.stack([logit, np.ones(logit.size)])

    def loss(x: Floats) -> tuple[float, Floats]:
        u = x @ rows
        value = -(w * (target * log_expit(u) + (1 - target) * log_expit(-u))).sum() / total
        return float(value), rows @ (w * (expit(u) - target)) / total

    def curvature(x: Floats) -> Floats:
        u = x @ rows
        return np.asarray((rows * (w * expit(u) * expit(-u) / total)) @ rows.T)

    base = float(np.average(target, weights=w))
    start = np.array([1.0, 0.0])
    fitted = minimize(loss, start, jac=True, hess=curvature, method="trust-exact", options={"gtol": 1e-12})
    a, b = (float(part) for part in fitted.x)
    return Sigmoid(a, b) if a > 0 else Sigmoid(0.0, float(np.log(base / (1 - base))))
