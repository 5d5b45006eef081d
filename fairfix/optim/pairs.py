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

**How.** A primal-dual interior point method (Mehrotra, 1992) on this quadratic program. The Hessian is diagonal and a
cell's means meet only their own cell, so each step is a few passes over the points and one linear system with as
many unknowns as there are multipliers. Ties, clumps and flat pieces, on which Newton's method for the dual breaks down,
do not matter to it. Newton's method on the constraints that are active then gives the last digits.

The shares above attain the minimum of the Lagrangian, so ``sum_kj W_k (d |u_kj| - u_kj (r_kj - c_j))`` is the distance
from the optimum of any shares within the band, computed without cancellation.

References
----------
S. Mehrotra, *On the implementation of a primal-dual interior point method* (1992), for the method. The form of ``q`` is
that of Alabdulmohsin and Lucic (2021) with one multiplier per mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fairfix.optim.arrays import Bools, Floats, Ints, positive_weights

STEPS = 100
"""Steps of the interior point method at most; 15 to 30 in practice."""

POLISH = 12
"""Steps of the polish at most; two or three in practice."""

SMALL = 1e-13
"""Mean complementarity at which the interior point method stops."""

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
    """Steps of the interior point method."""


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
    multipliers, centres, steps = _interior(problem)
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
        out = np.empty((self.size, self.kinds, self.kinds))
        for j in range(self.kinds):
            for m in range(j + 1):
                entry = self.per_cell(each * self.z[:, j] * self.z[:, m]) / self.share
                out[:, j, m] = out[:, m, j] = entry
        return out

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


def _interior(problem: _Problem) -> tuple[Floats, Floats, int]:
    """Return multipliers and centres by Mehrotra's predictor and corrector."""
    point, steps = _Point.start(problem), 0
    while steps < STEPS:
        product = point.mean_product()
        if product <= SMALL and point.residual() <= SMALL:
            break
        ahead = point.direction(0.0, None)
        there = point.moved(ahead, point.length(ahead)).mean_product()
        ahead = point.direction(product * (there / product) ** 3, ahead)
        length = 0.995 * point.length(ahead)
        if not length > 1e-12:  # rounding leaves no way on; the certificate tells how far that is
            break
        point, steps = point.moved(ahead, length), steps + 1
    return point.u, point.c, steps


@dataclass(frozen=True, eq=False)
class _Point:
    """A point of the method, or a step from one.

    ``room`` has the shares ``q``, their rests ``1 - q``, and the distances ``s + d`` and ``d - s`` of ``s = r - c``
    from the edges of the band (none without slack, where ``s`` is 0); ``held`` has their multipliers. Distances are
    carried beside what they measure: recomputed, they would round to 0.
    """

    problem: _Problem
    u: Floats
    c: Floats
    s: Floats
    room: tuple[Floats, ...]
    held: tuple[Floats, ...]

    @classmethod
    def start(cls, problem: _Problem) -> _Point:
        q = np.clip(problem.f / problem.gamma, 0.1, 0.9)
        means, d = problem.means(q), problem.d
        c = np.asarray(problem.share @ means)
        s = np.clip(means - c, -d / 2, d / 2)
        one = np.full(problem.f.size, max(1.0, float(np.abs(problem.f).max())))
        room, held = (q, 1 - q, s + d, d - s), (one, one, np.ones(means.shape), np.ones(means.shape))
        many = 4 if d else 2
        return cls(problem, np.zeros(means.shape), c, s, room[:many], held[:many])

    def residual(self) -> float:
        """Return the largest violation of the linear equations."""
        means = self.problem.means(self.room[0]) - self.c - self.s
        return float(max(np.abs(means).max(), np.abs(self.problem.share @ self.u).max()))

    def mean_product(self) -> float:
        """Return the mean complementarity, that of a share counted by its weight."""
        problem, share = self.problem, self.problem.share[:, None]
        weights = (problem.w, problem.w, share, share)
        total = sum(
            float((w * far * m).sum()) for w, far, m in zip(weights, self.room, self.held, strict=False)
        )
        return total / (2 + (2 * problem.kinds if problem.d else 0))

    def direction(self, aim: float, before: _Point | None) -> _Point:
        """Return the Newton step towards complementarity ``aim``; ``before`` gives its second-order terms."""
        problem, q = self.problem, self.room[0]
        pairs = list(zip(self.room, self.held, strict=True))
        second: list[Any] = (
            [0.0] * 4
            if before is None
            else [far * m for far, m in zip(before.room, before.held, strict=True)]
        )
        push = [(aim - bent) / far - m for bent, (far, m) in zip(second, pairs, strict=False)]
        bend = [m / far for far, m in pairs]
        weight = problem.gamma + bend[0] + bend[1]
        slope = problem.gamma * q - problem.f + problem.pull(self.u) - self.held[0] + self.held[1]
        rest = push[0] - push[1] - slope
        # the band gives way: ds = pressed + soft du
        soft = pressed = np.zeros_like(self.s)
        if problem.d:
            soft = 1.0 / (bend[2] + bend[3])
            pressed = (self.u - self.held[3] + self.held[2] + push[2] - push[3]) * soft
        target = problem.means(rest / weight) - (self.c + self.s - problem.means(q)) - pressed
        curved = problem.curvature(problem.w / weight) + soft[:, :, None] * np.eye(problem.kinds)
        every = np.ones(soft.shape, dtype=bool)
        du, dc = _solved(problem, curved, every, target, -(problem.share @ self.u))
        dq, ds = (rest - problem.pull(du)) / weight, pressed + soft * du
        room = (dq, -dq, ds, -ds)[: len(pairs)]
        held = tuple(a - b * far for a, b, far in zip(push, bend, room, strict=True))
        return _Point(problem, du, dc, ds, room, held)

    def length(self, ahead: _Point) -> float:
        """Return the longest step, at most 1, that keeps everything positive."""
        longest = 1.0
        for now, change in zip((*self.room, *self.held), (*ahead.room, *ahead.held), strict=True):
            falling = change < 0
            longest = min(longest, float((now[falling] / -change[falling]).min(initial=1.0)))
        return longest

    def moved(self, ahead: _Point, length: float) -> _Point:
        """Return the point a step further."""

        def sums(one: Sequence[Floats], more: Sequence[Floats]) -> tuple[Floats, ...]:
            return tuple(a + length * b for a, b in zip(one, more, strict=True))

        u, c, s = sums((self.u, self.c, self.s), (ahead.u, ahead.c, ahead.s))
        return _Point(self.problem, u, c, s, sums(self.room, ahead.room), sums(self.held, ahead.held))


def _polished(problem: _Problem, u: Floats, c: Floats) -> tuple[Floats, Floats]:
    """Return the multipliers after Newton's method on the constraints that hold with equality."""
    size, kinds, d = problem.size, problem.kinds, problem.d
    u = u - problem.share @ u  # exact balance
    side = np.zeros((size, kinds))
    if d:
        off = problem.means(problem.shares(u)) - c
        side = np.where(np.abs(np.abs(off) - d) < 1e-6, np.sign(u), 0.0)
        side = np.where(np.abs(u) > 1e-9, side, 0.0)
    active = np.ones((size, kinds), dtype=bool) if not d else side != 0
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
