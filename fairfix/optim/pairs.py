r"""The ramp under several means at once: every cell has a few means, and each kind of mean is nearly common.

Point ``i`` of cell ``k`` has a score ``f_i``, a weight ``w_i``, slopes ``z_ij`` for the kinds ``j`` and a share
``q_i``. With ``W_k`` the weight of cell ``k``, ``r_kj`` its means and ``d = slack / 2``,

.. math::
    \min_{q, c} \sum_i w_i \left(\tfrac{\gamma}{2} q_i^2 - f_i q_i\right)
    \quad\text{s.t.}\quad 0 \le q_i \le 1,\quad |r_{kj} - c_j| \le d,\quad
    r_{kj} = \frac{1}{W_k} \sum_{i \in k} w_i z_{ij} q_i .

With ``z_1 = eta / mean(eta)`` and ``z_2 = (1 - eta) / mean(1 - eta)`` the two means are a cell's true and false
positive rates, if ``eta`` is the probability of label 1. Multipliers ``u_kj`` (per unit of ``W_k``) with
``sum_k W_k u_kj = 0`` give

.. math:: q_i = \mathrm{clip}\left(\left(f_i - \sum_j u_{kj} z_{ij}\right) / \gamma, 0, 1\right),

and ``u_kj`` is positive only at the upper edge of its band, negative only at the lower.

**How.** The dual in the positive and the negative parts of ``u`` is convex, with a slope that is a few passes over the
points, and has few unknowns: sequential quadratic programs find it. Newton's method on the constraints that are active
then gives the last digits; a step of it is kept only if it makes the violation smaller.

The shares above attain the minimum of the Lagrangian, so ``sum_kj W_k (d |u_kj| - u_kj (r_kj - c_j))`` is the distance
from the optimum of any shares within the band, computed without cancellation.

References
----------
The form of ``q`` is that of Alabdulmohsin and Lucic (2021) with one multiplier per mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from fairfix.optim.arrays import Bools, Floats, Ints, positive_weights

STEPS = 1000
"""Steps on the dual at most; 5 to 60 in practice, 300 for thirty cells."""

POLISH = 12
"""Steps of the polish at most; two or three in practice."""

PROMISED = 1e-9
"""Distance of means from the band, and gap, with which the solution has converged."""


@dataclass(frozen=True, eq=False)
class PairsSolution:
    """The optimum."""

    multipliers: Floats
    """``u``, shape (K, J)."""
    centres: Floats
    """``c``, shape (J,)."""
    means: Floats
    """``r`` at these multipliers, shape (K, J)."""
    objective: float
    gap: float
    """``objective`` and ``gap``: divided by the total weight."""
    converged: bool
    """Whether the means lie within the band and the gap is small, both to 1e-9."""
    iterations: int
    """Steps on the dual."""


def solve_pairs(
    scores: npt.ArrayLike,
    slopes: npt.ArrayLike,
    cells: npt.ArrayLike,
    gamma: float,
    slack: float,
    weights: npt.ArrayLike | None = None,
) -> PairsSolution:
    """Return the optimal multipliers of all cells.

    ``scores``: shape (n,). ``slopes``: shape (n, J). ``cells``: index of each point's cell, 0..K-1, each with a point;
    shape (n,). ``gamma``, ``slack``: width of the ramp, above 0; largest allowed difference of a mean between two
    cells, 0 or more. ``weights``: positive, shape (n,); None for 1 each.
    """
    problem = _Problem.of(scores, slopes, cells, gamma, slack, weights)
    idle = np.zeros((problem.size, problem.kinds))
    free = problem.means(problem.shares(idle))
    if np.ptp(free, axis=0).max(initial=0.0) <= slack:
        return problem.certified(idle, (free.min(axis=0) + free.max(axis=0)) / 2, 0)
    multipliers, centres, steps = _dual(problem)
    multipliers, centres = _polished(problem, multipliers, centres)
    return problem.certified(multipliers, centres, steps)


@dataclass(frozen=True, eq=False)
class _Problem:
    """The numbers of a problem; weights are divided by their sum, ``share`` is ``W_k`` by the total."""

    f: Floats
    z: Floats
    cell: Ints
    w: Floats
    gamma: float
    d: float
    share: Floats

    @classmethod
    def of(
        cls,
        scores: npt.ArrayLike,
        slopes: npt.ArrayLike,
        cells: npt.ArrayLike,
        gamma: float,
        slack: float,
        weights: npt.ArrayLike | None,
    ) -> _Problem:
        f, z = np.asarray(scores, dtype=np.float64), np.asarray(slopes, dtype=np.float64)
        cell = np.asarray(cells, dtype=np.int64)
        if f.ndim != 1 or not f.size or z.ndim != 2 or not f.shape == z.shape[:1] == cell.shape:
            raise ValueError(f"one row per point is needed, got {f.shape}, {z.shape}, {cell.shape}")
        if not (np.isfinite(f).all() and np.isfinite(z).all()):
            raise ValueError("scores and slopes must be finite")
        if not 0 < gamma < np.inf or not slack >= 0:
            raise ValueError(
                f"gamma must be positive and finite and slack 0 or more, got {gamma!r} and {slack!r}"
            )
        w = positive_weights(weights, f.shape)
        w = w / w.sum()
        share = np.bincount(cell, w).astype(np.float64)
        if cell.min() < 0 or not share.all():
            raise ValueError("every cell needs a point")
        return cls(f, z, cell, w, gamma, min(slack, 2.0 * float(np.abs(z).max()) + 1.0) / 2, share)

    @property
    def size(self) -> int:
        return int(self.share.size)

    @property
    def kinds(self) -> int:
        return int(self.z.shape[1])

    def per_cell(self, each: Floats) -> Floats:
        """Return sums over the points of each cell, shape (K,)."""
        return np.bincount(self.cell, each, self.size).astype(np.float64)

    def means(self, q: Floats) -> Floats:
        """Return ``r``, shape (K, J)."""
        columns = [self.per_cell(self.w * self.z[:, j] * q) / self.share for j in range(self.kinds)]
        return np.stack(columns, axis=1)

    def pull(self, u: Floats) -> Floats:
        """Return ``sum_j u_kj z_ij`` per point."""
        return np.asarray((u[self.cell] * self.z).sum(axis=1))

    def shares(self, u: Floats) -> Floats:
        """Return ``q`` at the multipliers."""
        return np.clip((self.f - self.pull(u)) / self.gamma, 0.0, 1.0)

    def curvature(self, each: Floats) -> Floats:
        """Return sums of ``each * z_j * z_l`` over each cell, by its weight, shape (K, J, J)."""
        kinds = range(self.kinds)
        entries = [[self.per_cell(each * self.z[:, j] * self.z[:, m]) for m in kinds] for j in kinds]
        return np.moveaxis(np.array(entries), 2, 0) / self.share[:, None, None]

    def certified(self, u: Floats, c: Floats, steps: int) -> PairsSolution:
        """Return the solution with its value and the proof of its optimality."""
        q = self.shares(u)
        means = self.means(q)
        objective = float((self.w * (self.gamma / 2 * q - self.f) * q).sum())
        gap = float((self.share[:, None] * (self.d * np.abs(u) - u * (means - c))).sum())
        outside = float((np.abs(means - c) - self.d).max(initial=0.0))
        unbalanced = float(np.abs(self.share @ u).max(initial=0.0))
        good = outside <= PROMISED and abs(gap) <= PROMISED and unbalanced <= PROMISED
        return PairsSolution(u, c, means, objective, gap, bool(good), steps)


def _dual(problem: _Problem) -> tuple[Floats, Floats, int]:
    """Return multipliers, centres and steps: the least of the dual in the parts of ``u`` above and below 0."""
    share, shape = problem.share[:, None], (2, problem.size, problem.kinds)

    def value(x: Floats) -> tuple[float, Floats]:
        up, down = x.reshape(shape)
        over = problem.f - problem.pull(up - down)
        q = np.clip(over / problem.gamma, 0.0, 1.0)
        paid = problem.d * float((share * (up + down)).sum())
        slope, edge = share * problem.means(q), problem.d * share
        gradient = np.stack([edge - slope, edge + slope]).ravel()
        return float(problem.w @ (q * (over - problem.gamma / 2 * q))) + paid, gradient

    balance = np.kron(problem.share, np.eye(problem.kinds))  # of u, which the centres leave no choice
    balance = np.concatenate([balance, -balance], axis=1)
    solve: Any = minimize
    answer = solve(
        value,
        np.zeros(2 * problem.size * problem.kinds),
        jac=True,
        method="SLSQP",
        bounds=[(0.0, None)] * (2 * problem.size * problem.kinds),
        constraints=[{"type": "eq", "fun": lambda x: balance @ x, "jac": lambda x: balance}],
        options={"maxiter": STEPS, "ftol": 1e-16},
    )
    up, down = answer.x.reshape(shape)
    u = up - down
    means = problem.means(problem.shares(u))
    active = np.abs(u) > 1e-7  # far above what the polish cannot mend
    edges = np.where(active, means - problem.d * np.sign(u), 0.0).sum(axis=0)
    middle = (means.min(axis=0) + means.max(axis=0)) / 2
    centres = np.where(active.any(axis=0), edges / np.maximum(active.sum(axis=0), 1), middle)
    return u, centres, int(answer.nit)


def _polished(problem: _Problem, u: Floats, c: Floats) -> tuple[Floats, Floats]:
    """Return the multipliers after Newton's method on the constraints that hold with equality."""
    d = problem.d
    u = u - problem.share @ u  # exact balance
    off = problem.means(problem.shares(u)) - c
    side = np.where((np.abs(np.abs(off) - d) < 1e-6) & (np.abs(u) > 1e-9), np.sign(u), 0.0) if d else 0.0 * u
    active = side != 0 if d else np.ones(u.shape, dtype=bool)
    u = np.where(active, u, 0.0)
    best, least = (u, c), np.inf
    for _ in range(POLISH):
        q = problem.shares(u)
        off = np.where(active, problem.means(q) - c - side * d, 0.0)
        balance = problem.share @ u
        violation = float(max(np.abs(off).max(), np.abs(balance).max()))
        if violation < least:
            best, least = (u, c), violation
        if violation <= 1e-15:
            break
        inside = (q > 0) & (q < 1)
        curved = problem.curvature(problem.w * inside / problem.gamma)
        du, dc = _solved(problem, curved, active, off, -balance)
        u, c = u + du, c + dc
    return best


def _solved(
    problem: _Problem, curved: Floats, active: Bools, rest: Floats, balance: Floats
) -> tuple[Floats, Floats]:
    """Return (du, dc): ``curved_k du_k + dc = rest_k`` where active, else ``du`` 0, and ``share' du = balance``.

    Scaled to be symmetric and of size 1; the least solution where the system is singular.
    """
    size, kinds = active.shape
    many, root = size * kinds, np.sqrt(problem.share)
    system = np.zeros((many + kinds, many + kinds))
    for k in range(size):
        at = slice(k * kinds, (k + 1) * kinds)
        system[at, at] = curved[k]
        system[at, many:] = system[many:, at] = root[k] * np.eye(kinds)
    right = np.concatenate([(root[:, None] * rest).ravel(), balance])
    keep = np.concatenate([active.ravel(), active.any(axis=0)])
    out = np.zeros(many + kinds)
    out[keep] = np.linalg.lstsq(system[np.ix_(keep, keep)], right[keep], rcond=1e-15)[0]
    return out[:many].reshape(size, kinds) / root[:, None], out[many:]
