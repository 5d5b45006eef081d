r"""The ramp for many points: only those near the ramp are sorted.

The optimum of :mod:`fairfix.solvers.ramp` depends on the points near its ramps. Points below a ramp, wherever it may
come to stand, have share 0, points above it share 1; of them only sums are needed. So:

1. Solve a small sample, points of each cell at equal steps. Its rates are within a few times ``1/sqrt(sample)``.
2. Take that much room, ``ROOM``, on both sides of each cell's rate: two roots on the sample give an interval
   ``[low_k, high_k]`` for the offset. One pass keeps the points in ``[low_k, high_k + gamma]`` and adds up those
   above.
3. Sort what is kept and solve exactly, the centre of the band inside ``rho +- ROOM``.
4. If an offset comes to lie at an end of its interval, or the pull has one sign on the whole range of ``rho``, the
   sample was misleading (sorted data, say): everything is sorted instead.

The result is the same to rounding in either way: the sample decides what is looked at, never what comes out. Weighted
points gain most, since sorting them costs an argsort and two gathers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fairfix.solvers.arrays import Floats
from fairfix.solvers.ramp import Cell, Problem, RampSolution, solve

SAMPLE = 4096
"""Points of each cell that are solved first."""

ROOM = 0.04
"""Rate on either side of the sample's: five standard errors of its mean share."""

MANY = 1 << 16
MANY_WEIGHTED = 1 << 14
"""Fewer points than this in the largest cell are sorted at once; weighted ones are dearer to sort."""

WIDE = 0.6
"""If more than this share of the points is kept, sorting all is as fast."""


def solve_points(
    scores: Sequence[Floats],
    weights: Sequence[Floats | None],
    gamma: float,
    slack: float,
    rho: float | None = None,
    ratio: float = 1.0,
) -> RampSolution:
    """Return the optimum of :func:`fairfix.solvers.ramp.solve` for cells of points that are not sorted.

    ``scores``, ``weights``: per cell, as :meth:`Cell.of` takes them. ``gamma``, ``slack``, ``rho``,
    ``ratio``: as :func:`~fairfix.solvers.ramp.solve` takes them.
    """
    near = None
    if max(f.size for f in scores) >= (MANY if weights[0] is None else MANY_WEIGHTED):
        near = _near_the_ramp(scores, weights, gamma, slack, rho, ratio)
    if near is not None:
        return near
    return solve([Cell.of(f, w) for f, w in zip(scores, weights, strict=True)], gamma, slack, rho, ratio)


def _near_the_ramp(
    scores: Sequence[Floats],
    weights: Sequence[Floats | None],
    gamma: float,
    slack: float,
    rho: float | None,
    ratio: float,
) -> RampSolution | None:
    """Return the solution from the points near the ramps; None if the sample misled or most points are near."""
    samples = [_sample(f, w) for f, w in zip(scores, weights, strict=True)]
    guess = solve(samples, gamma, slack, rho, ratio)
    if not guess.iterations:
        return None
    ends = [
        (cell.root(min(rate + ROOM, 1.0), gamma), cell.root(max(rate - ROOM, 0.0), gamma))
        for cell, rate in zip(samples, guess.rates, strict=True)
    ]
    cells = []
    for f, w, (low, high) in zip(scores, weights, ends, strict=True):
        cell = _window(f, w, low, high + gamma)
        if cell is None:
            return None
        cells.append(cell)
    free = [
        cell.reached(min(max(0.0, low), high), 0.0, gamma)[0]
        for cell, (low, high) in zip(cells, ends, strict=True)
    ]
    problem = Problem.of(cells, gamma, np.full(len(cells), slack / 2), ratio=ratio)
    problem = replace(problem, free=np.array(free))
    near = (max(guess.rho - ROOM / 2, 0.0), min(guess.rho + ROOM / 2, 1.0)) if rho is None else (rho, rho)
    if not _reaches(problem, ends, near):
        return None
    best, tried = problem.balanced(*near) if rho is None else (problem.at(rho), 1)
    if rho is None and best.rho in near:
        return None
    solution = problem.certified(best, given=rho is not None, iterations=tried)
    inside = all(low < t < high for t, (low, high) in zip(solution.offsets, ends, strict=True))
    return solution if inside and solution.converged else None


def _reaches(problem: Problem, ends: Sequence[tuple[float, float]], centres: tuple[float, float]) -> bool:
    """Return whether each cell's interval holds the offsets of all rates that may be asked for."""
    rates = np.transpose([problem.within(problem.free, rho) for rho in centres])
    for cell, free, asked, (low, high) in zip(problem.cells, problem.free, rates, ends, strict=True):
        most, least = (cell.reached(t, 0.0, problem.gamma)[0] for t in (low, high))
        if any(rate != free for rate in asked) and not (least < min(asked) and max(asked) < most):
            return False
    return True


def _sample(f: Floats, w: Floats | None) -> Cell:
    """Return points of a cell at equal steps, with the cell's weight."""
    step = max(f.size // SAMPLE, 1)
    heavy = np.ones(-(-f.size // step)) if w is None else w[::step]
    total = float(f.size if w is None else w.sum())
    return Cell.of(f[::step], heavy * (total / heavy.sum()))


def _window(f: Floats, w: Floats | None, low: float, high: float) -> Cell | None:
    """Return the points of a cell inside [low, high], with the sums of those above."""
    over = f > high
    kept = (f >= low) & ~over
    many = int(np.count_nonzero(kept))
    if not many or many > WIDE * f.size:
        return None
    near = Cell.of(f[kept], None if w is None else w[kept])
    if w is None:
        above, above_sum = float(np.count_nonzero(over)), float(f.sum(where=over))
        return replace(near, total=float(f.size), above=above, above_sum=above_sum)
    heavy = np.where(over, w, 0.0)
    return replace(near, total=float(w.sum()), above=float(heavy.sum()), above_sum=float(heavy @ f))
