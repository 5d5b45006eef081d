r"""The ramp under several kinds of means at once, each of which is nearly common to the cells of its kind.

Point ``i`` has a score ``f_i``, a weight ``w_i``, slopes ``z_ij`` for the kinds ``j``, is in cell ``k(i, j)`` of each
kind and gets a share ``q_i``. With ``W_kj`` the weight of cell ``k`` of kind ``j``, ``r_kj`` its mean and ``d = slack /
2``,

.. math::
    \min_{q, c} \sum_i w_i \left(\tfrac{\gamma}{2} q_i^2 - f_i q_i\right)
    \quad\text{s.t.}\quad 0 \le q_i \le 1,\quad |r_{kj} - c_j| \le d,\quad
    r_{kj} = \frac{1}{W_{kj}} \sum_{i: k(i, j) = k} w_i z_{ij} q_i .

Where all kinds have the same cells, and ``z_1 = eta / mean(eta)`` and ``z_2 = (1 - eta) / mean(1 - eta)``, the two
means are a cell's true and false positive rates, if ``eta`` is the probability of label 1. Where kinds are protected
columns with cells of their own and ``z = 1``, the means are the rates of the groups of each column alone, which
overlap. Multipliers ``u_kj`` (per unit of ``W_kj``) with ``sum_k W_kj u_kj = 0`` give

.. math:: q_i = \mathrm{clip}\left(\left(f_i - \sum_j u_{k(i, j) j} z_{ij}\right) / \gamma, 0, 1\right),

and ``u_kj`` is positive only at the upper edge of its band, negative only at the lower.

**How.** The dual in the positive and the negative parts of ``u`` is convex, with a slope that is a few passes over the
points, and has few unknowns: sequential quadratic programs find it. Newton's method on the constraints that are active
then gives the last digits; a step of it is kept only if it makes the violation smaller. Where that misses the optimum,
it is followed from wider ramps to narrower ones.

**Soft cells** (:func:`solve_soft`). A point may also belong to all cells of a kind, to cell ``k`` of kind ``j`` with
the part ``z_ikj >= 0``: then ``W_kj = sum_i w_i z_ikj``, ``r_kj = sum_i w_i z_ikj q_i / W_kj``, and the point pays
``sum_kj u_kj z_ikj``. Kinds may have slacks of their own. All else is as above.

**Covariances** (:func:`solve_covariances`) of the shares with numbers ``x_j`` of weighted mean 0 are of this form: with
the two cells ``max(x_j, 0)`` and ``max(-x_j, 0)``, which have one weight ``W_j``, ``sum_i w_i x_ij q_i = W_j (r_1j -
r_2j)``, and since ``u_2j = -u_1j`` a point pays ``u_1j x_ij``.

The shares above attain the minimum of the Lagrangian, so ``sum_kj W_kj (d |u_kj| - u_kj (r_kj - c_j))`` is the distance
from the optimum of any shares within the band, computed without cancellation.

References
----------
The form of ``q`` is that of Alabdulmohsin and Lucic (2021) with one multiplier per mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from fairfix.optim.arrays import Bools, Floats, Ints, positive_weights

STEPS = 1000
"""Steps on the dual at most; 5 to 60 in practice, 300 for thirty cells."""

POLISH = 12
"""Steps of the polish at most; two or three in practice."""

WIDE, NARROWER = 0.5, 1.5
"""Width of the ramp with which narrow ones begin, of scores from -1 to 1, and by what each is narrower than the last:
by a factor of 3 the active constraints change too much for the start to help."""

NEAR = (1e-6, 1e-4, 1e-2)
"""How near to the edge of its band a mean is taken to lie on it by the polish, one after the other: what is off by 1e-9
in a multiplier is off by 1e-9 over gamma in a mean."""

PROMISED = 1e-9
"""Distance of means from the band, and gap, with which the solution has converged."""


@dataclass(frozen=True, eq=False)
class PairsSolution:
    """The optimum."""

    multipliers: Floats
    """``u``, shape (K, J); 0 where a kind has fewer than K cells."""
    centres: Floats
    """``c``, shape (J,)."""
    means: Floats
    """``r`` at these multipliers, shape (K, J); the centre where a kind has fewer than K cells."""
    objective: float
    gap: float
    """``objective`` and ``gap``: divided by the total weight."""
    converged: bool
    """Whether the means lie within the band and the gap is small, both to 1e-9."""
    iterations: int
    """Steps on the dual."""
    missed: float
    """The larger of the distance of means from the band, and the gap."""


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
    shape (n,), or (n, J) for kinds with cells of their own, of which some may have fewer than K. ``gamma``, ``slack``:
    width of the ramp, above 0; largest allowed difference of a mean between two cells, 0 or more. ``weights``:
    positive, shape (n,); None for 1 each.
    """
    return _solution(_Problem.of(scores, slopes, cells, gamma, slack, weights))


def solve_soft(
    scores: npt.ArrayLike,
    parts: npt.ArrayLike,
    gamma: float,
    slack: float | Floats,
    weights: npt.ArrayLike | None = None,
) -> PairsSolution:
    """Return the optimal multipliers of cells to which every point belongs in part.

    ``parts``: how much of each point belongs to each cell, 0 or more, each cell with some; shape (n, K), or (n, K, J)
    for several kinds. ``slack``: one, or of each kind, (J,). The others are those of :func:`solve_pairs`.
    """
    return _solution(_SoftProblem.soft(scores, parts, gamma, slack, weights))


def solve_covariances(
    scores: npt.ArrayLike,
    numbers: npt.ArrayLike,
    gamma: float,
    slack: float,
    weights: npt.ArrayLike | None = None,
) -> tuple[Floats, PairsSolution]:
    """Return the multipliers ``t``, (J,), of ``|mean(x_j q)| <= slack``, and the solution that they are of.

    The shares are ``clip((scores - numbers @ t) / gamma, 0, 1)``. ``numbers``: ``x``, each with a weighted mean of 0,
    up to rounding, and not all 0; shape (n, J). The others are those of :func:`solve_pairs`.
    """
    x = np.asarray(numbers, dtype=np.float64)
    parts = np.stack([np.maximum(x, 0.0), np.maximum(-x, 0.0)], axis=1)
    w = positive_weights(weights, x.shape[:1])
    best = solve_soft(scores, parts, gamma, slack * w.sum() / (w @ parts[:, 0]), w)
    return (best.multipliers[0] - best.multipliers[1]) / 2, best


def _solution(problem: _Problem) -> PairsSolution:
    """Return the optimum of a problem."""
    idle = np.zeros((problem.size, problem.kinds))
    least, most = problem.ends(problem.means(problem.shares(idle)))
    if (most - least <= 2 * problem.d).all():
        return problem.certified(idle, (least + most) / 2, 0)
    best = _from(problem, idle)
    if best.converged:
        return best
    # the dual of a narrow ramp is nearly linear in pieces, which stops the programs far from the optimum; that of a
    # wide one is smooth, and its optimum a start for one that is a little narrower
    wide = max(WIDE, problem.gamma)
    many = math.ceil(math.log(wide / problem.gamma) / math.log(NARROWER))
    u, steps = idle, best.iterations
    for gamma in np.geomspace(wide, problem.gamma, many + 1)[:-1].tolist():
        start = _from(replace(problem, gamma=gamma), u)
        u, steps = start.multipliers, steps + start.iterations
    last = _from(problem, u)
    return replace(min(best, last, key=lambda one: one.missed), iterations=steps + last.iterations)


def _from(problem: _Problem, start: Floats) -> PairsSolution:
    """Return the optimum from multipliers to start with, (K, J): the best of the dual as it ends and as polished."""
    u, c, steps = _dual(problem, start)
    best = problem.certified(u, c, steps)
    for within in NEAR:
        polished = problem.certified(*_polished(problem, u, c, within), steps)
        if polished.converged:
            return polished
        best = min(best, polished, key=lambda one: one.missed)
    return best


@dataclass(frozen=True, eq=False)
class _Problem:
    """The numbers of a problem; weights are divided by their sum, ``share`` is ``W_kj`` by the total, (K, J).

    ``cell`` has the shape (n, J), ``d`` (J,). A share of 0 is a cell that its kind does not have.
    """

    f: Floats
    z: Floats
    cell: Ints
    w: Floats
    gamma: float
    d: Floats
    share: Floats

    @classmethod
    def of(
        cls,
        scores: npt.ArrayLike,
        slopes: npt.ArrayLike,
        cells: npt.ArrayLike,
        gamma: float,
        slack: float | Floats,
        weights: npt.ArrayLike | None,
    ) -> _Problem:
        f, z = np.asarray(scores, dtype=np.float64), np.asarray(slopes, dtype=np.float64)
        cell = np.asarray(cells, dtype=np.int64)
        if cell.ndim == 1 and z.ndim == 2:
            cell = np.repeat(cell[:, None], z.shape[1], axis=1)
        if f.ndim != 1 or not f.size or z.ndim != 2 or cell.shape != z.shape or f.shape != z.shape[:1]:
            raise ValueError(f"one row per point is needed, got {f.shape}, {z.shape}, {cell.shape}")
        if not (np.isfinite(f).all() and np.isfinite(z).all()):
            raise ValueError("scores and slopes must be finite")
        if not 0 < gamma < np.inf or not np.all(np.asarray(slack) >= 0):
            raise ValueError(
                f"gamma must be positive and finite and slack 0 or more, got {gamma!r} and {slack!r}"
            )
        w = positive_weights(weights, f.shape)
        w = w / w.sum()
        if cell.min() < 0:
            raise ValueError("every cell needs a point")
        most = int(cell.max()) + 1
        share = np.stack([np.bincount(own, w, most) for own in cell.T], axis=1).astype(np.float64)
        if any((np.diff((part > 0).astype(np.int64)) > 0).any() or not part[0] for part in share.T):
            raise ValueError("every cell needs a point")
        d = np.minimum(slack, 2.0 * float(np.abs(z).max()) + 1.0) / 2
        return cls(f, z, cell, w, gamma, np.broadcast_to(d, z.shape[1:]), share)

    @property
    def size(self) -> int:
        return int(self.share.shape[0])

    @property
    def kinds(self) -> int:
        return int(self.share.shape[1])

    @property
    def there(self) -> Bools:
        """Which cells there are, shape (K, J)."""
        return self.share > 0

    def means(self, q: Floats) -> Floats:
        """Return ``r``, shape (K, J); 0 where there is no cell."""
        sums = [
            np.bincount(own, self.w * z * q, self.size) for own, z in zip(self.cell.T, self.z.T, strict=True)
        ]
        return np.stack(sums, axis=1) / np.where(self.there, self.share, 1.0)

    def ends(self, means: Floats) -> tuple[Floats, Floats]:
        """Return the least and the greatest mean of each kind, shape (J,) each."""
        there = self.there
        return means.min(axis=0, where=there, initial=np.inf), means.max(axis=0, where=there, initial=-np.inf)

    def away(self, means: Floats, c: Floats) -> Floats:
        """Return how far means are from their centres, shape (K, J); 0 where there is no cell."""
        return np.where(self.there, means - c, 0.0)

    def pull(self, u: Floats) -> Floats:
        """Return ``sum_j u_kj z_ij`` per point."""
        return np.asarray((u[self.cell, np.arange(self.kinds)] * self.z).sum(axis=1))

    def shares(self, u: Floats) -> Floats:
        """Return ``q`` at the multipliers."""
        return np.clip((self.f - self.pull(u)) / self.gamma, 0.0, 1.0)

    def curvature(self, each: Floats) -> Floats:
        """Return sums of ``each * z_j * z_l`` over the points that two cells have in common, shape (K J, K J)."""
        size, kinds = self.size, self.kinds
        out = np.zeros((size, kinds, size, kinds))
        for j in range(kinds):
            for m in range(kinds):
                both = self.cell[:, j] * size + self.cell[:, m]
                sums = np.bincount(both, each * self.z[:, j] * self.z[:, m], size * size)
                out[:, j, :, m] = sums.reshape(size, size)
        return out.reshape(size * kinds, size * kinds)

    def certified(self, u: Floats, c: Floats, steps: int) -> PairsSolution:
        """Return the solution with its value and the proof of its optimality."""
        q = self.shares(u)
        off = self.away(self.means(q), c)
        objective = float((self.w * (self.gamma / 2 * q - self.f) * q).sum())
        gap = float((self.share * (self.d * np.abs(u) - u * off)).sum())
        outside = float((np.abs(off) - self.d).max(initial=0.0))
        unbalanced = float(np.abs((self.share * u).sum(axis=0)).max(initial=0.0))
        missed = max(outside, abs(gap), unbalanced)
        return PairsSolution(u, c, c + off, objective, gap, missed <= PROMISED, steps, missed)


@dataclass(frozen=True, eq=False)
class _SoftProblem(_Problem):
    """A problem of cells to which points belong in parts ``z``, (n, K J), the kinds of a cell beside one another."""

    @classmethod
    def soft(
        cls,
        scores: npt.ArrayLike,
        parts: npt.ArrayLike,
        gamma: float,
        slack: float | Floats,
        weights: Any,
    ) -> _SoftProblem:
        """Return the problem of parts."""
        z = np.asarray(parts, dtype=np.float64)
        if z.ndim not in (2, 3) or not (z >= 0).all():  # NaN is refused too
            raise ValueError(f"parts must be 0 or more, of shape (n, K) or (n, K, J), got {z.shape}")
        kinds = z.shape[2] if z.ndim == 3 else 1
        z = z.reshape(len(z), -1)
        whole = _Problem.of(scores, z, np.zeros(z.shape, dtype=np.int64), gamma, slack=0.0, weights=weights)
        share = (whole.w @ z).reshape(-1, kinds)
        if not share.all():
            raise ValueError("every cell needs a part of a point")
        if not np.all(np.asarray(slack) >= 0):
            raise ValueError(f"slack must be 0 or more, got {slack!r}")
        d = np.broadcast_to(np.minimum(slack, 2.0) / 2, (kinds,))
        return cls(whole.f, z, whole.cell, whole.w, gamma, d, share)

    def means(self, q: Floats) -> Floats:
        """Return ``r``, shape (K, J)."""
        return np.asarray(((self.w * q) @ self.z).reshape(self.share.shape) / self.share)

    def pull(self, u: Floats) -> Floats:
        """Return ``sum_kj u_kj z_ikj`` per point."""
        return np.asarray(self.z @ u.ravel())

    def curvature(self, each: Floats) -> Floats:
        """Return sums of ``each`` times both parts over the points, shape (K J, K J)."""
        return np.asarray((self.z * each[:, None]).T @ self.z)


def _dual(problem: _Problem, start: Floats) -> tuple[Floats, Floats, int]:
    """Return multipliers, centres and steps: the least of the dual in the parts of ``u`` above and below 0."""
    share, shape = problem.share, (2, problem.size, problem.kinds)

    def value(x: Floats) -> tuple[float, Floats]:
        up, down = x.reshape(shape)
        over = problem.f - problem.pull(up - down)
        q = np.clip(over / problem.gamma, 0.0, 1.0)
        paid = float((problem.d * share * (up + down)).sum())
        slope, edge = share * problem.means(q), problem.d * share
        gradient = np.stack([edge - slope, edge + slope]).ravel()
        return float(problem.w @ (q * (over - problem.gamma / 2 * q))) + paid, gradient

    # of u, which the centres leave no choice
    balance = (share[:, None, :] * np.eye(problem.kinds)).transpose(1, 0, 2).reshape(problem.kinds, -1)
    balance = np.concatenate([balance, -balance], axis=1)
    solve: Any = minimize
    answer = solve(
        value,
        np.stack([np.maximum(start, 0.0), np.maximum(-start, 0.0)]).ravel(),
        jac=True,
        method="SLSQP",
        bounds=[(0.0, None if there else 0.0) for there in np.tile(problem.there.ravel(), 2)],
        constraints=[{"type": "eq", "fun": lambda x: balance @ x, "jac": lambda x: balance}],
        options={"maxiter": STEPS, "ftol": 1e-16},
    )
    up, down = answer.x.reshape(shape)
    u = up - down
    means = problem.means(problem.shares(u))
    active = np.abs(u) > 1e-7  # far above what the polish cannot mend
    edges = np.where(active, means - problem.d * np.sign(u), 0.0).sum(axis=0)
    middle = sum(problem.ends(means)) / 2
    centres = np.where(active.any(axis=0), edges / np.maximum(active.sum(axis=0), 1), middle)
    return u, centres, int(answer.nit)


def _polished(problem: _Problem, u: Floats, c: Floats, within: float) -> tuple[Floats, Floats]:
    """Return the multipliers after Newton's method on the constraints that hold with equality, or nearly ``within``."""
    d = problem.d
    share, there = problem.share, problem.there
    u = np.where(there, u - (share * u).sum(axis=0), 0.0)  # exact balance
    off = problem.away(problem.means(problem.shares(u)), c)
    near = (np.abs(np.abs(off) - d) < within) & (np.abs(u) > 1e-9)
    side = np.where(near & (d > 0), np.sign(u), 0.0)
    active = np.where(d > 0, side != 0, there)
    u = np.where(active, u, 0.0)
    best, least = (u, c), np.inf
    for _ in range(POLISH):
        q = problem.shares(u)
        off = np.where(active, problem.means(q) - c - side * d, 0.0)
        balance = (share * u).sum(axis=0)
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
    """Return (du, dc): ``curved du / share + dc = rest`` where active, else ``du`` 0, and ``share' du = balance``.

    Scaled to be symmetric and of size 1; the least solution where the system is singular.
    """
    size, kinds = active.shape
    many, root = size * kinds, np.sqrt(np.where(problem.there, problem.share, 1.0)).ravel()
    system = np.zeros((many + kinds, many + kinds))
    system[:many, :many] = curved / np.outer(root, root)
    system[:many, many:] = root[:, None] * np.tile(np.eye(kinds), (size, 1))
    system[many:, :many] = system[:many, many:].T
    right = np.concatenate([root * rest.ravel(), balance])
    keep = np.concatenate([active.ravel(), active.any(axis=0)])
    out = np.zeros(many + kinds)
    out[keep] = np.linalg.lstsq(system[np.ix_(keep, keep)], right[keep], rcond=1e-15)[0]
    return (out[:many] / root).reshape(size, kinds), out[many:]
