r"""Cells of the ramp under a linear constraint of their own: points pull on it with slopes.

Point ``i`` has a score ``f_i``, a slope ``z_i`` (any real number), a weight ``w_i > 0`` and a share ``q_i``. The cell
gives :func:`fairfix.optim.ramp.solve` the mean ``phi`` below; alone its problem would be

.. math::
    \min_q \sum_i w_i \left(\tfrac{\gamma}{2} q_i^2 - f_i q_i\right)
    \quad\text{s.t.}\quad 0 \le q_i \le 1,\quad
    l \le \frac{1}{W} \sum_i w_i z_i q_i \le u, \qquad W = \sum_i w_i .

``z = 1`` is the mean of :mod:`fairfix.optim.ramp`; ``z = eta / mean(eta)`` is the mean share of the points weighted by
``eta``.

With one multiplier ``t`` per point of ``W``, the Lagrangian falls apart over the points, and

.. math::
    q_i = \mathrm{clip}\left((f_i - t z_i)/\gamma, 0, 1\right), \qquad
    \phi(t) = \frac{1}{W} \sum_i w_i z_i q_i .

Whatever the sign of ``z_i``, the term ``z_i q_i`` never increases with ``t``: it is linear between
``(f_i - gamma)/z_i`` and ``f_i/z_i`` (in either order) and constant outside. So ``phi`` is continuous, never
increasing and piecewise linear, and the optimum is ``t = 0`` where ``l <= phi(0) <= u``, else the root of ``phi``
at the edge that ``phi(0)`` is beyond. Many such cells under one common band are solved like means, ``W`` the weight of
a multiplier.

**How.** Nothing is sorted. Newton's method on ``phi``, guarded by bisection, takes one pass over the points a step,
and is exact once a step stays on its linear piece: four to eight passes from a cold start, two or three from a
neighbour's root.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fairfix.optim.arrays import Floats, locked, positive_weights
from fairfix.optim.ramp import SAME_RATE, STEPS, MeanCurve

EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class LinearCell(MeanCurve):
    """Points under one linear constraint; made by :meth:`LinearCell.of`."""

    scores: Floats
    slopes: Floats
    weights: Floats
    """``scores``, ``slopes`` and ``weights``: shape (n,) each, in any order."""
    total: float
    """Sum of the weights."""

    @classmethod
    def of(
        cls, scores: npt.ArrayLike, slopes: npt.ArrayLike, weights: npt.ArrayLike | None = None
    ) -> LinearCell:
        """Check the points of a cell.

        ``scores``, ``slopes``: finite numbers, shape (n,), n >= 1. ``weights``: positive numbers, shape (n,); None
        for 1 each.
        """
        f, z = (np.array(a, dtype=np.float64) for a in (scores, slopes))
        if f.ndim != 1 or not f.size or f.shape != z.shape:
            raise ValueError(f"scores and slopes must be rows of one length, got {f.shape} and {z.shape}")
        if not (np.isfinite(f).all() and np.isfinite(z).all()):
            raise ValueError("scores and slopes must be finite")
        w = positive_weights(weights, f.shape).copy()
        return cls(locked(f), locked(z), locked(w), float(w.sum()))

    @property
    def largest(self) -> float:
        """Largest absolute score."""
        return float(np.abs(self.scores).max())

    def rounding(self, t: float, gamma: float) -> float:
        """Return the change of the mean by rounding ``t z``: no remainder makes up for a slope."""
        mean_slope = float(np.average(np.abs(self.slopes), weights=self.weights))
        return 2 * EPS * (self.largest + abs(t) * float(np.abs(self.slopes).max())) / gamma * mean_slope

    def shares(self, t: float, gamma: float, remainder: float = 0.0) -> Floats:
        """Return the shares at a multiplier, shape (n,)."""
        return np.clip((self.scores - t * self.slopes - remainder * self.slopes) / gamma, 0.0, 1.0)

    def range(self) -> tuple[float, float]:
        """Return the least and the greatest value that the constraint's mean can take."""
        pull = self.slopes * self.weights
        return float(np.minimum(pull, 0).sum()) / self.total, float(np.maximum(pull, 0).sum()) / self.total

    def reached(self, t: float, remainder: float, gamma: float) -> tuple[float, float]:
        """Return the mean and the share of ``w z**2`` on the ramp."""
        q = self.shares(t, gamma, remainder)
        pull = self.slopes * self.weights
        inside = (q > 0) & (q < 1)
        on_ramp = float((pull * self.slopes)[inside].sum())
        return float((pull * q).sum()) / self.total, on_ramp / self.total

    def objective(self, t: float, remainder: float, gamma: float) -> float:
        """Return the weighted sum of ``gamma/2 q^2 - f q``."""
        q = self.shares(t, gamma, remainder)
        return float((self.weights * (gamma / 2 * q - self.scores) * q).sum())

    def ramps(self, gamma: float) -> tuple[Floats, Floats]:
        """Return the multipliers at which each point with a slope enters and leaves its ramp, shape (m,) each."""
        moves = self.slopes != 0
        z = self.slopes[moves]
        a, b = (self.scores[moves] - gamma) / z, self.scores[moves] / z
        return np.minimum(a, b), np.maximum(a, b)

    def locate(self, rate: float, gamma: float, guess: float | None) -> tuple[float, float]:
        """Return a multiplier whose mean is ``rate``, and the ``w z**2`` on the ramp there.

        The middle of a flat piece; the finite end of an unbounded one. A rate out of reach gives the nearest end.
        """
        enter, leave = self.ramps(gamma)
        if not enter.size:
            return 0.0, 0.0
        low, high = float(enter.min()), float(leave.max())
        least, most = self.range()
        near = SAME_RATE * (most - least)
        if rate >= most - near:
            return low, 0.0
        if rate <= least + near:
            return high, 0.0
        t = guess if guess is not None and low < guess < high else low + (high - low) / 2
        before, on_ramp = high - low, 0.0
        for _ in range(STEPS):
            mean, on_ramp = self.reached(t, 0.0, gamma)
            if abs(mean - rate) <= near and not on_ramp:
                return self._middle(t, enter, leave), 0.0
            step = (mean - rate) * gamma / on_ramp if on_ramp > 0 else math.inf
            low, high = (t, high) if mean > rate else (low, t)
            if abs(mean - rate) <= near or abs(step) <= EPS * abs(t):
                break
            if not (low < t + step < high and abs(step) <= before / 2):
                # far apart on both sides of zero the middle is found in the size of the numbers, not in between
                step = _between(low, high) - t
            if t + step in (low, high):
                break
            t, before = t + step, abs(step)
        return t, on_ramp * self.total

    def _middle(self, t: float, enter: Floats, leave: Floats) -> float:
        """Return the middle of the flat piece around ``t``."""
        left, right = leave[leave <= t], enter[enter >= t]
        low = float(left.max()) if left.size else float(right.min())
        high = float(right.min()) if right.size else low
        return low + (high - low) / 2


def _between(low: float, high: float) -> float:
    """Return a point between two floats: the middle, or the geometric middle where they differ in size."""
    if low > 0 and high > 16 * low:
        return math.sqrt(low) * math.sqrt(high)
    if high < 0 and low < 16 * high:
        return -math.sqrt(-low) * math.sqrt(-high)
    return low + (high - low) / 2
