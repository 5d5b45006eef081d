"""Ramps whose mean rates lie within bands: the concave dual, and Newton's method for the last digits.

The problem and its certificate are in :mod:`fairfix.solvers.bands`. The dual has two multipliers for each row, of its
upper and its lower edge, which are not negative and leave no pull on free centres. Sequential quadratic programming
solves it, whatever the number of points.

References
----------
D. Kraft, *A software package for sequential quadratic programming* (1988).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from fairfix.solvers.arrays import Bools, Floats, finite_scores
from fairfix.solvers.bands import PROMISED, Bands

STEPS = 500
"""Steps of the dual at most; 10 to 30 in practice."""

FINEST = 1e-16
"""Change of the dual value at which its steps end: rounding."""

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
    """Values of the dual that were looked at; 0 if no multiplier was needed."""
    missed: float
    """Largest of the distance of means from their bands, the gap, and the pull of free centres."""


def solve_ramps(scores: npt.ArrayLike, bands: Bands, gamma: float) -> Ramps:
    """Return the optimal multipliers of all rows.

    ``scores``: finite, shape (n,). ``gamma``: width of the ramp, above 0.
    """
    f = finite_scores(scores, bands.weights.shape)
    if not 0 < gamma < np.inf:
        raise ValueError(f"gamma must be positive and finite, got {gamma!r}")
    problem = _RampProblem(f, bands, gamma)
    none = np.zeros(bands.mass.size)
    if (centres := bands.idle(bands.means(problem.shares(none)))) is not None:
        return problem.certified(none, centres, 0)
    u, centres, steps = problem.dual()
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

    def dual(self) -> tuple[Floats, Floats, int]:
        """Return the multipliers of the largest dual value, with centres, and how many values were looked at.

        Unknowns are the multipliers of upper and of lower edges, times the root of the mass.
        """
        bands, ratio = self.bands, self.bands.ratio
        size, root = bands.mass.size, np.sqrt(bands.mass)
        edges = np.concatenate([bands.half + bands.target, bands.half - ratio * bands.target])

        def value(x: Floats) -> tuple[float, Floats]:
            up, down = np.split(x, 2)
            over = self.f - bands.prices((up - down) / root)
            q = np.clip(over / self.gamma, 0.0, 1.0)
            means = bands.means(q)
            worth = float((bands.weights * (over - self.gamma / 2 * q)) @ q)
            slopes = np.tile(root, 2) * (edges - np.concatenate([means, -means]))
            return worth + float(np.tile(root, 2) * edges @ x), slopes

        pull = root[:, None] * bands.belongs
        balance = np.concatenate([pull, -ratio * pull]).T
        free: dict[str, Any] = {"type": "eq", "fun": lambda x: balance @ x, "jac": lambda _: balance}
        solve: Any = minimize  # its stubs know no linear constraint as a dictionary
        answer = solve(
            value,
            np.zeros(2 * size),
            jac=True,
            bounds=[(0.0, None)] * (2 * size),
            constraints=[free] if bands.centres else [],
            method="SLSQP",
            options={"maxiter": STEPS, "ftol": FINEST},
        )
        up, down = np.split(answer.x, 2)
        u = (up - down) / root
        low, high = bands.ranges(bands.means(self.shares(u)))
        return u, np.where(np.isfinite(high), (low + high) / 2, np.maximum(low, 0.0)), int(answer.nfev)

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
