r"""The ramp under a general linear constraint: points pull on it with slopes of their own.

Point ``i`` has a score ``f_i``, a slope ``z_i`` (any real number), a weight ``w_i > 0`` and a share ``q_i``:

.. math::
    \min_q \sum_i w_i \left(\tfrac{\gamma}{2} q_i^2 - f_i q_i\right)
    \quad\text{s.t.}\quad 0 \le q_i \le 1,\quad
    l \le \frac{1}{W} \sum_i w_i z_i q_i \le u, \qquad W = \sum_i w_i .

``z = s - mean(s)`` is the covariance of the shares with ``s`` (appendix E.1 of the paper); ``z = 1`` is the mean
of :mod:`fairfix.optim.ramp`; ``z = eta / mean(eta)`` is the mean share of the points weighted by ``eta``.

With one multiplier ``t`` per point of ``W``, the Lagrangian falls apart over the points, and

.. math::
    q_i = \mathrm{clip}\left((f_i - t z_i)/\gamma, 0, 1\right), \qquad
    \phi(t) = \frac{1}{W} \sum_i w_i z_i q_i .

Whatever the sign of ``z_i``, the term ``z_i q_i`` never increases with ``t``: it is linear between
``(f_i - gamma)/z_i`` and ``f_i/z_i`` (in either order) and constant outside. So ``phi`` is continuous, never
increasing and piecewise linear, and the optimum is ``t = 0`` where ``l <= phi(0) <= u``, else the root of ``phi``
at the edge that ``phi(0)`` is beyond. Many such cells under one common band are solved like means:
:class:`LinearCell` gives :func:`fairfix.optim.ramp.solve` what it asks for, and ``W`` weighs its multiplier.

**How.** Nothing is sorted. Newton's method on ``phi``, guarded by bisection, takes one pass over the points a step,
and is exact once a step stays on its linear piece: four to eight passes from a cold start, two or three from a
neighbour's root.

References
----------
I. Alabdulmohsin and M. Lucic, *A near-optimal algorithm for debiasing trained machine learning models* (2021),
appendix E.1, for the covariance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fairfix.optim.ramp import SAME_RATE, STEPS, Floats, MeanCurve

EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class LinearCell(MeanCurve):
    """Points under one linear constraint; made by :meth:`LinearCell.of`.

    Attributes
    ----------
    scores, slopes, weights
        Shape (n,) each, in any order.
    total
        Sum of the weights.
    """

    scores: Floats
    slopes: Floats
    weights: Floats
    total: float

    @classmethod
    def of(
        cls, scores: npt.ArrayLike, slopes: npt.ArrayLike, weights: npt.ArrayLike | None = None
    ) -> LinearCell:
        """Check the points of a cell.

        Parameters
        ----------
        scores, slopes
            Finite numbers, shape (n,), n >= 1.
        weights
            Positive numbers, shape (n,); None for 1 each.

        Raises
        ------
        ValueError
            If shapes differ, there is no point, a number is not finite or a weight is not positive.
        """
        f, z = (np.array(a, dtype=np.float64) for a in (scores, slopes))
        w = np.ones(f.shape) if weights is None else np.array(weights, dtype=np.float64)
        if f.ndim != 1 or not f.size or not f.shape == z.shape == w.shape:
            raise ValueError(
                f"scores, slopes and weights must be rows of one length, got {f.shape}, {z.shape}, {w.shape}"
            )
        if not (np.isfinite(f).all() and np.isfinite(z).all()):
            raise ValueError("scores and slopes must be finite")
        if not (w.min() > 0 and math.isfinite(w.max())):
            raise ValueError("weights must be positive and finite: leave out points of weight 0")
        for array in (f, z, w):
            array.flags.writeable = False
        return cls(f, z, w, float(w.sum()))

    @property
    def largest(self) -> float:
        """Largest absolute score."""
        return float(np.abs(self.scores).max())

    def rounding(self, t: float, gamma: float) -> float:
        """Return what rounding ``t z`` may cost the mean: no remainder makes up for a slope."""
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
        """Return where each point with a slope enters and leaves its ramp as the multiplier grows."""
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
        t, before = (
            (guess if guess is not None and low < guess < high else low + (high - low) / 2),
            high - low,
        )
        on_ramp = 0.0
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


@dataclass(frozen=True, eq=False)
class LinearSolution:
    """The optimum under one linear constraint.

    Attributes
    ----------
    multiplier
        ``t``; 0 where the constraint does not bind.
    shares
        ``clip((f - t z)/gamma, 0, 1)``, shape (n,).
    mean
        ``sum w z q / sum w`` at the optimum.
    objective
        Divided by the total weight.
    gap
        Objective minus dual value, divided by the total weight.
    """

    multiplier: float
    shares: Floats
    mean: float
    objective: float
    gap: float


def solve_linear(
    scores: npt.ArrayLike,
    slopes: npt.ArrayLike,
    gamma: float,
    low: float,
    high: float,
    weights: npt.ArrayLike | None = None,
) -> LinearSolution:
    """Return the shares of least objective whose weighted mean of ``slope * share`` lies in [low, high].

    Raises
    ------
    ValueError
        If the interval cannot be reached: the message says what can. If a number is out of its range.
    """
    cell = LinearCell.of(scores, slopes, weights)
    if not 0 < gamma < math.inf:
        raise ValueError(f"gamma must be positive and finite, got {gamma!r}")
    least, most = cell.range()
    if not low <= high or low > most + SAME_RATE or high < least - SAME_RATE:
        raise ValueError(
            f"the mean can lie in [{least:g}, {most:g}], which [{low:g}, {high:g}] does not meet"
        )
    free = cell.reached(0.0, 0.0, gamma)[0]
    t, edge = 0.0, free
    if not low <= free <= high:
        edge = min(max(low if free < low else high, least), most)
        t = cell.locate(edge, gamma, None)[0]
        t = max(t, 0.0) if free > edge else min(t, 0.0)
    q = cell.shares(t, gamma)
    mean = float((cell.weights * cell.slopes * q).sum()) / cell.total
    return LinearSolution(t, q, mean, cell.objective(t, 0.0, gamma) / cell.total, t * (edge - mean))
