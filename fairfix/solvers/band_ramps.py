"""Ramps whose mean rates lie within bands: an interior point method, and Newton's method for the last digits.

The problem and its certificate are in :mod:`fairfix.solvers.bands`. A step of the interior point method solves as many
equations as there are rows and centres, whatever the number of points.

References
----------
S. Mehrotra, *On the implementation of a primal-dual interior point method* (1992).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import lu_factor, lu_solve

from fairfix.solvers.arrays import Bools, Floats
from fairfix.solvers.bands import PROMISED, Bands

STEPS = 80
"""Steps of the interior point method at most; 10 to 30 in practice."""

COMPLEMENTARY = 1e-14
"""Mean product of slacks and multipliers at which the interior point method ends: rounding of scores of size 1."""

TINY = 1e-300
"""Least diagonal of a system, which is scaled by it."""

STEADY = 1e-13
"""Added to the diagonal of a scaled system, a thousand roundings; refinement removes its effect."""

INSIDE = 0.995
"""Part of the way to the boundary that a step takes at most."""

POLISH = 15
"""Steps of the polish at most; two or three in practice."""


@dataclass(frozen=True, eq=False)
class Ramps:
    """The optimum with ``gamma > 0``, and its proof."""

    multipliers: Floats
    """``u``, shape (m,)."""
    centres: Floats
    """``c`` of the free centres, shape (J,)."""
    means: Floats
    """``m`` of the rows at these multipliers, shape (m,)."""
    objective: float
    """Least value of the objective, divided by the total weight."""
    gap: float
    """Objective minus dual bound, divided by the total weight: no feasible shares are better by more."""
    converged: bool
    """Whether the means lie within their bands and the gap is small, both to 1e-9."""
    iterations: int
    """Steps of the interior point method; 0 if no multiplier was needed."""
    missed: float
    """Largest of the distance of means from their bands, the gap, and the pull of free centres."""


def solve_ramps(scores: npt.ArrayLike, bands: Bands, gamma: float) -> Ramps:
    """Return the optimal multipliers of all rows.

    ``scores``: finite, shape (n,). ``gamma``: width of the ramp, above 0.
    """
    f = np.asarray(scores, dtype=np.float64)
    if f.shape != bands.weights.shape:
        raise ValueError(f"there must be one score per point, got {f.shape} and {bands.weights.shape}")
    if not np.isfinite(f).all():
        raise ValueError("scores must be finite: drop or fill missing and infinite ones first")
    if not 0 < gamma < np.inf:
        raise ValueError(f"gamma must be positive and finite, got {gamma!r}")
    problem = _RampProblem(f, bands, gamma)
    none = np.zeros(bands.mass.size)
    if (centres := bands.idle(bands.means(problem.shares(none)))) is not None:
        return problem.certified(none, centres, 0)
    u, centres, steps = problem.interior()
    tried = [problem.certified(u, centres, steps)]
    # what is off by 1e-9 in a multiplier is off by 1e-9 over gamma in a mean, so some edges are hard to tell
    for near in (1e-6, 1e-4, 1e-2):
        tried.append(problem.certified(*problem.polished(u, centres, near), steps))
        if tried[-1].converged:
            break
    return min(tried, key=lambda one: one.missed)


@dataclass(frozen=True, eq=False)
class _RampProblem:
    """Scores, bands, and the width of the ramp."""

    f: Floats
    bands: Bands
    gamma: float

    def shares(self, u: Floats) -> Floats:
        """Return ``q`` at the multipliers."""
        return np.clip((self.f - self.bands.prices(u)) / self.gamma, 0.0, 1.0)

    def certified(self, u: Floats, centres: Floats, steps: int) -> Ramps:
        """Return the solution with its value and the proof of its optimality, without cancellation.

        The gap is ``sum_r W_r (d_r |u_r| - u_r (m_r - e_r c_r))``.
        """
        bands = self.bands
        q = self.shares(u)
        means, moves = bands.means(q), bands.moves(u)
        off = means - moves * bands.around(centres)
        objective = float((bands.weights * (self.gamma / 2 * q - self.f) * q).sum())
        gap = float((bands.mass * (bands.half * np.abs(u) - u * off)).sum())
        pulls = np.abs(bands.belongs.T @ (bands.mass * moves * u))
        missed = max(bands.outside(means, centres), abs(gap), float(pulls.max(initial=0.0)))
        return Ramps(u, centres, means, objective, gap, missed <= PROMISED, steps, missed)

    def interior(self) -> tuple[Floats, Floats, int]:
        """Return multipliers, centres and steps, by Mehrotra's interior point method: the most exact point seen."""
        scale = max(1.0, float(np.abs(self.f).max()))
        at = _Point.start(self.bands, scale)
        best, least, steps = at, np.inf, 0
        while steps < STEPS:
            steps += 1
            system = _System(self, at)
            ahead = system.direction(_Point(*np.zeros(len(at))))
            there = at.moved(at.reach(ahead, system.loose), ahead)
            mu, after = (system.complementarity(one) for one in (at, there))
            aim = mu * (max(after, 0.0) / mu) ** 3
            change = system.direction(ahead, aim)
            at = at.moved(min(1.0, INSIDE * at.reach(change, system.loose)), change)
            off = max(system.complementarity(at), self.unbalanced(at))
            if off < least:
                best, least = at, off
            if off <= COMPLEMENTARY * scale or off > 1e3 * least:
                break
        return best.up - best.down, best.centres, steps

    def unbalanced(self, at: _Point) -> float:
        """Return the largest slope of the Lagrangian: in a share, per unit of weight, or in a centre.

        Where two rows nearly depend on each other, late steps may move their multipliers by what a mean does not show.
        """
        bands = self.bands
        slope = self.gamma * at.q - self.f + bands.prices(at.up - at.down) - at.low + at.high
        pull = bands.belongs.T @ (bands.mass * (at.up - bands.ratio * at.down))
        return float(max(np.abs(slope).max(), np.abs(pull).max(initial=0.0)))

    def polished(self, u: Floats, centres: Floats, near: float) -> tuple[Floats, Floats]:
        """Return multipliers and centres after Newton's method on the edges that means lie on, or nearly so."""
        bands = self.bands
        tie, moves = bands.tied, bands.moves(u)
        off = bands.means(self.shares(u)) - moves * bands.around(centres)
        active = tie | ((np.abs(u) > 1e-9) & (np.abs(off - np.sign(u) * bands.half) < near))
        edge = np.where(tie, 0.0, np.sign(u) * bands.half)
        u = np.where(active, u, 0.0)
        pull = (bands.mass * moves)[:, None] * bands.belongs
        best, least = (u, centres), np.inf
        for _ in range(POLISH):
            q = self.shares(u)
            rest = np.where(active, bands.means(q) - moves * bands.around(centres) - edge, 0.0)
            balance = pull.T @ u
            violation = float(max(np.abs(rest).max(), np.abs(balance).max(initial=0.0)))
            if violation < least:
                best, least = (u, centres), violation
            if violation <= 1e-15:
                break
            curved = bands.curvature(((q > 0) & (q < 1)) / self.gamma)
            step, moved = _newton(curved, pull, bands.mass, active, rest, -balance)
            u, centres = u + step, centres + moved
        return best


class _Point(NamedTuple):
    """Unknowns of the interior point method, or a change of them.

    A row with a band of no width has one multiplier of any sign, in ``up``.
    """

    q: Any
    rest: Any
    """``q`` and ``rest``: shares, and 1 less these, which keeps its digits near 0, shape (n,)."""
    centres: Any
    """Shape (J,)."""
    above: Any
    below: Any
    """``above`` and ``below``: distances of means from their upper and lower edges, shape (m,)."""
    up: Any
    down: Any
    """``up`` and ``down``: multipliers of the edges, shape (m,)."""
    low: Any
    high: Any
    """``low`` and ``high``: multipliers of ``q >= 0`` and ``q <= 1``, shape (n,)."""

    @classmethod
    def start(cls, bands: Bands, scale: float) -> _Point:
        """Return the first point, with multipliers of the size of the scores."""
        rows, points = bands.mass.size, bands.weights.size
        q = np.full(points, 0.5)
        means = bands.means(q)
        centres = np.array([means[bands.centre == j].mean() for j in range(bands.centres)])
        edge = np.where(bands.tied, 0.0, scale)
        wide, outer = np.full(rows, 0.5), np.full(points, scale)
        return cls(q, 1 - q, centres, wide, wide, edge, edge, outer, outer)

    def moved(self, step: float, change: _Point) -> _Point:
        """Return the point a step further."""
        return _Point(*(one + step * by for one, by in zip(self, change, strict=True)))

    def reach(self, change: _Point, loose: Bools) -> float:
        """Return the longest step, at most 1, that leaves slacks and multipliers at 0 or more."""
        most = 1.0
        for value, by in (
            (self.q, change.q),
            (self.rest, change.rest),
            (self.low, change.low),
            (self.high, change.high),
            *(
                (getattr(self, name)[loose], getattr(change, name)[loose])
                for name in ("above", "below", "up", "down")
            ),
        ):
            falls = by < 0
            most = min(most, float((-value[falls] / by[falls]).min(initial=1.0)))
        return most


class _System:
    """The equations of a step: ``m + J`` of them, for the new ``u`` and the change of the centres."""

    def __init__(self, problem: _RampProblem, at: _Point) -> None:
        bands, ratio = problem.bands, problem.bands.ratio
        self.problem, self.at, self.loose = problem, at, ~bands.tied
        means, centre = bands.means(at.q), bands.around(at.centres)
        self.miss_above = centre + bands.half - means - at.above
        self.miss_below = means - ratio * centre + bands.half - at.below
        self.off = means - centre
        self.inner = 1.0 / (problem.gamma + at.low / at.q + at.high / at.rest)
        self.by_above = np.where(self.loose, at.up / at.above, 0.0)
        self.by_below = np.where(self.loose, at.down / at.below, 0.0)
        stiff = self.by_above + self.by_below
        pull = self.by_above + ratio * self.by_below
        self.give = np.where(self.loose, 1.0 / np.where(self.loose, stiff, 1.0), 0.0)
        self.part = np.where(self.loose, pull * self.give, 1.0)
        rest = np.where(self.loose, self.by_above + ratio**2 * self.by_below - pull * self.part, 0.0)
        rows, many = bands.mass.size, bands.mass.size + bands.centres
        matrix = np.zeros((many, many))
        matrix[:rows, :rows] = bands.curvature(self.inner) + np.diag(bands.mass * self.give)
        matrix[:rows, rows:] = (bands.mass * self.part)[:, None] * bands.belongs
        matrix[rows:, :rows] = matrix[:rows, rows:].T
        matrix[rows:, rows:] = -(bands.belongs.T * (bands.mass * rest)) @ bands.belongs
        root = np.sqrt(np.maximum(np.diag(matrix), TINY))
        root[rows:] = np.abs(matrix[:rows, rows:] / root[:rows, None]).max(axis=0, initial=0.0)
        self.root, self.matrix = root, matrix / np.outer(root, root)
        # a little more than rounding on the diagonal, which makes rows that depend on others solvable
        self.steady = lu_factor(self.matrix + np.diag(np.where(np.arange(many) < rows, STEADY, -STEADY)))

    def complementarity(self, at: _Point) -> float:
        """Return the mean product of slacks and multipliers, by mass."""
        bands, loose = self.problem.bands, self.loose
        edges = (at.above * at.up + at.below * at.down)[loose]
        inner = bands.weights @ (at.q * at.low + at.rest * at.high) + bands.mass[loose] @ edges
        return float(inner) / (2.0 + 2.0 * float(bands.mass[loose].sum()))

    def direction(self, ahead: _Point, aim: float = 0.0) -> _Point:
        """Return the change that makes all products ``aim``, given the change ``ahead`` for terms of second order."""
        at, bands, loose, ratio = self.at, self.problem.bands, self.loose, self.problem.bands.ratio
        q, other = at.q, at.rest
        low, high = aim - ahead.q * ahead.low, aim - ahead.rest * ahead.high
        above = (aim - ahead.above * ahead.up) / at.above - self.by_above * self.miss_above
        below = (aim - ahead.below * ahead.down) / at.below - self.by_below * self.miss_below
        lift, pull = above - below, above - ratio * below
        worth = self.problem.f - self.problem.gamma * q + low / q - high / other
        right = np.concatenate(
            [
                bands.slopes @ (bands.weights * worth * self.inner)
                + bands.mass * np.where(loose, lift * self.give, self.off),
                bands.belongs.T @ (bands.mass * np.where(loose, self.part * lift - pull, 0.0)),
            ]
        )
        right = right / self.root
        answer = lu_solve(self.steady, right)
        for _ in range(2):  # takes back what the diagonal was raised by
            answer = answer + lu_solve(self.steady, right - self.matrix @ answer)
        answer = answer / self.root
        u, moved = answer[: bands.mass.size], answer[bands.mass.size :]
        dq = (worth - bands.prices(u)) * self.inner
        means, centre = bands.means(dq), bands.belongs @ moved
        to_above, to_below = centre - means + self.miss_above, means - ratio * centre + self.miss_below
        up = (aim - ahead.above * ahead.up) / at.above - at.up - self.by_above * to_above
        down = (aim - ahead.below * ahead.down) / at.below - at.down - self.by_below * to_below
        # of the nearer edge, the multiplier is what the other leaves of u, and the slack follows from it: computed from
        # a slack near 0 it would lose all digits
        turn, nearer = u - (at.up - at.down), self.by_above > self.by_below
        up, down = np.where(nearer, turn + down, up), np.where(nearer, down, up - turn)
        by_up, by_down = np.where(at.up, at.up, 1.0), np.where(at.down, at.down, 1.0)
        to_above = np.where(
            nearer, (aim - ahead.above * ahead.up - at.above * (at.up + up)) / by_up, to_above
        )
        to_below = np.where(
            nearer, to_below, (aim - ahead.below * ahead.down - at.below * (at.down + down)) / by_down
        )
        return _Point(
            dq,
            -dq,
            moved,
            np.where(loose, to_above, 0.0),
            np.where(loose, to_below, 0.0),
            np.where(loose, up, turn),
            np.where(loose, down, 0.0),
            low / q - at.low - at.low / q * dq,
            high / other - at.high + at.high / other * dq,
        )


def _newton(
    curved: Floats, pull: Floats, mass: Floats, active: Bools, rest: Floats, balance: Floats
) -> tuple[Floats, Floats]:
    """Return (du, dc): ``curved du + pull dc = mass rest`` where active, else ``du`` 0, and ``pull' du = balance``.

    Scaled to be symmetric and of size 1; the least solution where the system is singular.
    """
    size, many = mass.size, mass.size + balance.size
    root = np.sqrt(mass)
    system = np.zeros((many, many))
    system[:size, :size] = curved / np.outer(root, root)
    system[:size, size:] = pull / root[:, None]
    system[size:, :size] = system[:size, size:].T
    right = np.concatenate([root * rest, balance])
    keep = np.concatenate([active, (pull[active] != 0).any(axis=0)])
    out = np.zeros(many)
    out[keep] = np.linalg.lstsq(system[np.ix_(keep, keep)], right[keep], rcond=1e-15)[0]
    return out[:size] / root, out[size:]
