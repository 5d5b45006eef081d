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
from collections.abc import Sequence

import numpy as np
from scipy.optimize import brentq

from fairfix.optim.arrays import Floats
from fairfix.optim.ramp import PROMISED_GAP, Cell, RampSolution, solve

PROMISED_RATE = 1e-10
XTOL = 1e-15
JUMP = 1e-14  # beside the best mean, where its pull changes sign


def solve_covariance(cells: Sequence[Cell], gamma: float, slack: float) -> RampSolution:
    """Return the optimal offsets; ``rho`` is the mean of all.

    ``cells``: at least one. ``gamma``: width of the ramp, above 0. ``slack``: largest allowed absolute covariance,
    ``epsilon``; 0 to infinity.
    """
    if not cells:
        raise ValueError("there must be at least one cell")
    total = math.fsum(cell.total for cell in cells)
    part = np.array([cell.total / total for cell in cells])
    if len(cells) <= 2 or slack == 0:
        return solve(cells, gamma, slack / float(np.prod(part)) if len(cells) == 2 else slack)
    if not slack > 0:
        raise ValueError(f"slack must be 0 or more, got {slack!r}")
    free = np.array([cell.reached(0.0, 0.0, gamma)[0] for cell in cells])
    mean = float(part @ free)
    if (part * np.abs(free - mean)).max() <= slack:
        return _found(cells, gamma, slack, part, np.zeros(len(cells)), mean, 0.0)
    low, high = float(free.min()), float(free.max())
    tried = 0

    def pull(rho: float) -> float:
        nonlocal tried
        tried += 1
        return float(part @ _offsets(cells, gamma, slack / part, part, rho)[0])

    if pull(low) > 0 > pull(high):
        rho = float(brentq(pull, low, high, xtol=XTOL, rtol=4 * np.finfo(float).eps))
    else:
        rho = low if pull(low) <= 0 else high
    offsets, nu = _balanced(cells, gamma, slack / part, part, rho)
    return _found(cells, gamma, slack, part, offsets, rho, nu, tried)


def _balanced(
    cells: Sequence[Cell], gamma: float, band: Floats, part: Floats, rho: float
) -> tuple[Floats, float]:
    """Return the offsets at the best mean and ``nu``.

    On a flat piece of some ``phi_k`` the pull jumps through zero; the offsets are then taken inside the jump, such that
    it is zero, which changes no share.
    """
    sides = [_offsets(cells, gamma, band, part, rho + step) for step in (-JUMP, JUMP)]
    pulls = [float(part @ offsets) for offsets, _ in sides]
    if not pulls[0] > 0 > pulls[1]:
        return _offsets(cells, gamma, band, part, rho)
    share = pulls[0] / (pulls[0] - pulls[1])
    (left, nu), (right, mu) = sides
    return left + share * (right - left), nu + share * (mu - nu)


def _offsets(
    cells: Sequence[Cell], gamma: float, band: Floats, part: Floats, rho: float
) -> tuple[Floats, float]:
    """Return the offsets and ``nu`` for a given mean of all."""

    def excess(nu: float) -> float:
        means = np.array([cell.mean(nu, gamma) for cell in cells])
        return float(part @ np.clip(means, rho - band, rho + band)) - rho

    low = min(float(cell.scores[0]) for cell in cells) - gamma
    high = max(float(cell.scores[-1]) for cell in cells)
    if excess(low) <= 0:
        nu = low
    elif excess(high) >= 0:
        nu = high
    else:
        nu = float(brentq(excess, low, high, xtol=XTOL, rtol=4 * np.finfo(float).eps))
    offsets = np.full(len(cells), nu)
    for k, cell in enumerate(cells):
        mean = cell.mean(nu, gamma)
        edge = min(max(mean, rho - band[k], 0.0), rho + band[k], 1.0)
        if abs(edge - mean) > 1e-14:
            offsets[k] = cell.root(edge, gamma)
    return offsets, nu


def _found(
    cells: Sequence[Cell],
    gamma: float,
    slack: float,
    part: Floats,
    offsets: Floats,
    rho: float,
    nu: float,
    tried: int = 0,
) -> RampSolution:
    """Return the solution with its value and the proof of its optimality.

    With ``y_k = t_k - nu`` the gap is ``sum_k W_k (d_k |y_k| - y_k (r_k - rho) - nu (r_k - rho))``, plus what an
    unbalanced pull may gain over [0, 1].
    """
    rates = np.array([cell.reached(t, 0.0, gamma)[0] for cell, t in zip(cells, offsets, strict=True)])
    objective = math.fsum(cell.objective(t, 0.0, gamma) for cell, t in zip(cells, offsets, strict=True))
    off, y = rates - rho, offsets - nu
    pull = float(part @ offsets)
    gap = float((slack * np.abs(y) - part * (y + nu) * off).sum()) if offsets.any() else 0.0
    gap += max(0.0, pull) - rho * pull
    outside = max(float((part * np.abs(rates - part @ rates)).max()) - slack, abs(float(part @ off)))
    total = math.fsum(cell.total for cell in cells)
    return RampSolution(
        offsets=offsets,
        remainders=np.zeros(len(cells)),
        rho=rho,
        rates=rates,
        objective=objective / total,
        gap=gap,
        converged=bool(outside <= PROMISED_RATE and abs(gap) <= PROMISED_GAP),
        iterations=tried,
    )
