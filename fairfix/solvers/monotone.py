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

import numpy as np
import numpy.typing as npt
from scipy.optimize import isotonic_regression, minimize
from scipy.special import expit, log_expit

from fairfix.solvers.arrays import Floats, ascending, locked, run_starts

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
    f, y = np.asarray(scores, dtype=np.float64), np.asarray(labels)
    order = ascending(f)
    f, positive = f[order], (y == 1)[order].astype(np.float64)
    first = run_starts(f)
    if weights is None:
        mass = np.diff(np.append(first, f.size)).astype(np.float64)
    else:
        w = np.asarray(weights, dtype=np.float64)[order]
        mass, positive = np.add.reduceat(w, first), w * positive
    f, positive = f[first], np.add.reduceat(positive, first)
    fitted = isotonic_regression(positive / mass, weights=mass)
    starts = fitted.blocks[:-1]
    heavy = np.add.reduceat(mass, starts)
    shares = np.add.reduceat(positive, starts) / heavy
    fresh = np.concatenate([[True], shares[1:] > shares[:-1]])  # blocks that rounding kept apart
    starts = starts[fresh]
    if not fresh.all():
        heavy = np.add.reduceat(mass, starts)
        shares = np.add.reduceat(positive, starts) / heavy
    edges = f[starts].copy()
    below = f[starts[1:] - 1]
    middle = below + (edges[1:] - below) / 2
    edges[1:] = np.where(middle > below, middle, edges[1:])
    return Isotonic(locked(edges), locked(shares), locked(heavy))


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
