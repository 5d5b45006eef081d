r"""The ramp with every mean near the mean of all: the covariance form for more than two cells.

With the cells, scores and weights of :mod:`fairfix.optim.ramp`, ``p_k = W_k / W`` and ``r_k`` the mean share of
cell ``k``,

.. math::
    \min_q \sum_i w_i \left(\tfrac{\gamma}{2} q_i^2 - f_i q_i\right)
    \quad\text{s.t.}\quad 0 \le q_i \le 1,\quad p_k\, |r_k - \bar r| \le \epsilon, \quad \bar r = \sum_k p_k r_k .

``p_k (r_k - \bar r)`` is the covariance of the shares with the indicator of cell ``k``. For two cells it is
``p_1 p_2 (r_1 - r_2)``, so the problem is that of a common band with ``slack = epsilon / (p_1 p_2)``.

Given the mean ``rho`` of all, offsets are ``nu`` inside the band and the root of ``phi_k`` at its edge otherwise, and
``nu`` is a root in one number. The best ``rho`` is the root of ``sum_k W_k t_k(rho)``, which never increases. The
derivation is in docs/methods/ramp.md.

References
----------
I. Alabdulmohsin and M. Lucic, *A near-optimal algorithm for debiasing trained machine learning models* (2021),
appendix E.1, for the covariance with one attribute of two values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from fairfix.optim.arrays import Floats, check_band
from fairfix.optim.ramp import PROMISED_GAP, SAME_RATE, Cell, RampSolution, solve

PROMISED_RATE = 1e-10
"""Distance of covariances from the slack with which the solution has converged."""


def solve_covariance(cells: Sequence[Cell], gamma: float, slack: float) -> RampSolution:
    """Return the optimal offsets; ``rho`` is the mean of all.

    ``cells``: at least one. ``gamma``: width of the ramp, above 0. ``slack``: largest allowed absolute covariance,
    ``epsilon``; 0 to infinity.
    """
    check_band(cells, slack)
    mass = np.array([cell.total for cell in cells])
    part = mass / math.fsum(mass)
    if len(cells) <= 2 or slack == 0:
        return solve(cells, gamma, slack / float(np.prod(part)) if len(cells) == 2 else slack)
    problem = _Covariances(cells, gamma, slack, part)
    free = np.array([cell.reached(0.0, 0.0, gamma)[0] for cell in cells])
    mean = float(part @ free)
    if (part * np.abs(free - mean)).max() <= slack:
        return problem.certified(np.zeros(len(cells)), mean, 0.0, 0)
    low, high = float(free.min()), float(free.max())
    tried = 0

    def pull(rho: float) -> float:
        nonlocal tried
        tried += 1
        return float(part @ problem.offsets(rho)[0])

    return problem.certified(*problem.balanced(_falling_root(pull, low, high)), tried)


def _falling_root(f: Callable[[float], float], low: float, high: float) -> float:
    """Return the root of a function that never increases, or the end that is nearest, to the last digit."""
    if f(low) <= 0:
        return low
    return high if f(high) >= 0 else float(brentq(f, low, high, xtol=1e-15, rtol=4 * np.finfo(float).eps))


@dataclass(frozen=True, eq=False)
class _Covariances:
    """Cells, width, slack, and the shares ``p_k`` of the cells."""

    cells: Sequence[Cell]
    gamma: float
    slack: float
    part: Floats

    def offsets(self, rho: float) -> tuple[Floats, float]:
        """Return the offsets and ``nu`` for a given mean of all."""
        band = self.slack / self.part

        def excess(nu: float) -> float:
            means = np.array([cell.mean(nu, self.gamma) for cell in self.cells])
            return float(self.part @ np.clip(means, rho - band, rho + band)) - rho

        low = min(float(cell.scores[0]) for cell in self.cells) - self.gamma
        high = max(float(cell.scores[-1]) for cell in self.cells)
        nu = _falling_root(excess, low, high)
        offsets = np.full(len(self.cells), nu)
        for k, cell in enumerate(self.cells):
            mean = cell.mean(nu, self.gamma)
            edge = min(max(mean, rho - band[k], 0.0), rho + band[k], 1.0)
            if abs(edge - mean) > SAME_RATE:
                offsets[k] = cell.root(edge, self.gamma)
        return offsets, nu

    def balanced(self, rho: float) -> tuple[Floats, float, float]:
        """Return the offsets at the best mean, that mean and ``nu``.

        On a flat piece of some ``phi_k`` the pull jumps through zero; the offsets are then taken inside the jump, such
        that it is zero, which changes no share.
        """
        (left, nu), (right, mu) = (self.offsets(rho + step) for step in (-SAME_RATE, SAME_RATE))
        before, after = float(self.part @ left), float(self.part @ right)
        if not before > 0 > after:
            left, nu = self.offsets(rho)
            return left, rho, nu
        share = before / (before - after)
        return left + share * (right - left), rho, nu + share * (mu - nu)

    def certified(self, offsets: Floats, rho: float, nu: float, tried: int) -> RampSolution:
        """Return the solution with its value and the proof of its optimality.

        With ``y_k = t_k - nu`` the gap is ``sum_k W_k (d_k |y_k| - y_k (r_k - rho) - nu (r_k - rho))``, plus what an
        unbalanced pull may gain over [0, 1].
        """
        pairs = list(zip(self.cells, offsets, strict=True))
        rates = np.array([cell.reached(t, 0.0, self.gamma)[0] for cell, t in pairs])
        objective = math.fsum(cell.objective(t, 0.0, self.gamma) for cell, t in pairs)
        off, y, pull = rates - rho, offsets - nu, float(self.part @ offsets)
        gap = float((self.slack * np.abs(y) - self.part * (y + nu) * off).sum()) if offsets.any() else 0.0
        gap += max(0.0, pull) - rho * pull
        beyond = float((self.part * np.abs(rates - self.part @ rates)).max()) - self.slack
        outside = max(beyond, abs(float(self.part @ off)))
        good = bool(outside <= PROMISED_RATE and abs(gap) <= PROMISED_GAP)
        value = objective / math.fsum(cell.total for cell in self.cells)
        return RampSolution(offsets, np.zeros(len(pairs)), rho, rates, value, gap, good, tried)
