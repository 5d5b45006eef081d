r"""A linear logit that listed moves of rows, and small steps after them, hardly change.

Rows ``x`` with label ``y`` and weight ``w_i`` (of sum 1), a logit ``h = w'x + b``, listed moves ``delta_k`` at no cost,
and further steps ``u`` at the cost ``u' Sigma u``, of mean at most ``eps``:

.. math::
    \min_{w, b}\; E\, \ell(y, h(x)) + \rho R + \mathrm{l2}\, |w|^2, \qquad
    R = \left( \sqrt{\epsilon q} + \sqrt{m} \right)^2, \quad q = w' \Sigma^+ w, \quad m = E \max_k (w' \delta_k)^2 .

``R`` is the most that the mean squared change of the logit can be. Directions along which steps are free are projected
out. The kinks of ``R`` are written in smooth form with ``theta`` and one ``u`` for all rows of the same moves, and the
problem is solved along the path of a barrier by Newton's method; both are in docs/methods/sensei.md.

References
----------
M. Yurochkin and Y. Sun, *SenSeI: Sensitive set invariance for enforcing individual fairness*, ICLR 2021.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import null_space
from scipy.special import expit
from threadpoolctl import threadpool_limits

from fairfix.optim.arrays import CUT, Floats, joint_kinds, shares_of
from fairfix.optim.network import Variants
from fairfix.optim.newton import STEPS, descend, newton_step

FREE = 1e-10
"""Weight of the squared intercept: it keeps the optimum finite where there is one class only."""

GAP = 1e-10
"""Distance of the objective from the least, by the barrier, at which the path ends."""


@dataclass(frozen=True, eq=False)
class LinearFit:
    """A linear logit of least loss and variation."""

    coef: Floats
    intercept: float
    """``coef`` and ``intercept``: shape (d,), without any component along free directions; and a number."""
    objective: float
    """Mean log loss, plus ``rho R``, plus ``l2 |coef|^2``."""
    gap: float
    """Bound on the distance of the objective from the least: by the barrier, at the end of its path."""
    steps: int
    """Newton steps."""
    converged: bool
    """Whether the last Newton decrement came below the tolerance."""


def linear_regularizer(m: float, q: float, eps: float) -> float:
    """Return ``R`` of a linear logit, in squared logits, from ``m`` and ``q``."""
    return (math.sqrt(eps * q) + math.sqrt(m)) ** 2


def linear_crossings(logits: Floats, level: float, q: float) -> Floats:
    """Return the least cost ``u' Sigma u`` of a step after which a linear logit is on the other side of a level, (n,).

    ``logits``: of rows and of their variants, shape (K + 1, n), the rows first: a step may begin at each. A logit at
    the level is above it. ``q``: ``w' Sigma^+ w``, so that to change the logit by ``t`` costs ``t^2 / q``.
    """
    across = (logits >= level) != (logits[0] >= level)
    with np.errstate(divide="ignore", invalid="ignore"):
        far = (logits - level) ** 2 / q
    return np.asarray(np.where(across, 0.0, np.where(q > 0, far, np.inf)).min(axis=0))


@dataclass(frozen=True, eq=False)
class Patterns:
    """Rows that share their moves: ``deltas`` (G, K, d) and the share of the rows of each, (G,)."""

    deltas: Floats
    shares: Floats

    @classmethod
    def of(cls, X: Floats, variants: Variants, share: Floats) -> Patterns:
        """Return the patterns of the moves of rows to all variants; rows that no variant changes are left out."""
        n, d = X.shape
        rows = np.arange(n)

        def moves() -> Iterator[Floats]:
            for k in range(variants.many):
                delta = variants.variant(k, rows) - X
                if delta.shape != (n, d) or not np.isfinite(delta).all():
                    raise ValueError(f"variant {k} must be finite and of shape {(n, d)}")
                yield delta[:, (delta != 0).any(axis=0)]

        kind = joint_kinds(moves(), n)
        first, mass = np.unique(kind, return_index=True)[1], np.bincount(kind, share)
        deltas = np.zeros((first.size, variants.many, d))
        for k in range(variants.many):
            deltas[:, k] = variants.variant(k, first) - X[first]
        kept = (mass > 0) & (deltas != 0).any(axis=(1, 2))
        return cls(deltas[kept], mass[kept])

    def worst(self, w: Floats) -> float:
        """Return ``m``."""
        return float(self.shares @ ((self.deltas @ w) ** 2).max(axis=1, initial=0.0))


def complement(directions: Floats, d: int) -> Floats:
    """Return an orthonormal basis, shape (d, d - r), of all that is orthogonal to directions of rank ``r``."""
    size = np.linalg.norm(directions, axis=1)
    unit = directions[size > 0] / size[size > 0, None]
    return np.asarray(null_space(np.linalg.qr(unit, mode="r"), rcond=CUT)) if len(unit) else np.eye(d)


def fit_linear(
    X: Floats,
    y: Floats,
    weight: Floats | None,
    variants: Variants,
    span: Floats | None = None,
    *,
    rho: float,
    eps: float = 0.0,
    l2: float = 0.0,
    metric_inverse: Floats | None = None,
) -> LinearFit:
    """Return the linear logit that minimises mean log loss, ``rho R`` and ``l2 |coef|^2``.

    Parameters
    ----------
    X, y, weight
        Rows, shape (n, d), their labels, 0 or 1, and weights, shape (n,) each; None for weights of 1.
    variants
        Listed variants of these rows, each a move.
    span
        Directions along which moves are free, shape (r, d), in any number and dependent or not: the logit is constant
        along them. None for none.
    rho
        Weight of ``R``. Infinite for a logit that no listed move changes, by projection; then ``eps`` must be 0,
        because else the constant logit alone has a finite objective.
    eps
        Mean cost of the steps beyond the listed moves, ``u' Sigma u`` but for what is along ``span``.
    l2
        Weight of ``|coef|^2``.
    metric_inverse
        ``Sigma^+``, shape (d, d), symmetric; a column that no step may change is 0 in it. None for the identity.
    """
    n, d = X.shape
    share = shares_of(weight, n)
    if math.isnan(rho) or rho < 0 or not 0 <= eps < math.inf or not 0 <= l2 < math.inf:
        raise ValueError(f"rho, eps and l2 must not be negative, and eps and l2 finite: {rho}, {eps}, {l2}")
    if math.isinf(rho) and eps > 0:
        raise ValueError(
            "with an infinite rho and a positive eps only constant logits are left: set eps to 0"
        )
    patterns = Patterns.of(X, variants, share)
    free = np.zeros((0, d)) if span is None else np.asarray(span, dtype=float).reshape(-1, d)
    if math.isinf(rho):
        free = np.concatenate([free, np.unique(patterns.deltas.reshape(-1, d), axis=0)])
        rho, patterns = 0.0, Patterns(np.zeros((0, 0, d)), np.zeros(0))
    basis = complement(free, d) if len(free) else np.eye(d)
    metric = basis.T @ (np.eye(d) if metric_inverse is None else metric_inverse) @ basis
    if len(free):
        X = X @ basis
        patterns = Patterns(patterns.deltas @ basis, patterns.shares)
    with threadpool_limits(1):
        problem = _Penalised(np.column_stack([X, np.ones(n)]), np.asarray(y, dtype=float), share, l2, metric)
        end = _solved(problem, patterns, rho, eps)
    v = end.x[:-1]
    regularizer = linear_regularizer(patterns.worst(v), max(float(v @ metric @ v), 0.0), eps)
    objective = problem.loss(end.x) + l2 * float(v @ v) + (rho * regularizer if rho else 0.0)
    gap = max(objective - end.bound, 0.0)
    return LinearFit(basis @ v, float(end.x[-1]), objective, gap, end.steps, end.converged)


@dataclass(eq=False)
class _Penalised:
    """Log loss with quadratic penalties; the last column of ``X`` is the intercept's, ``metric`` is ``Sigma^+``."""

    X: Floats
    y: Floats
    share: Floats
    l2: float
    metric: Floats

    def __post_init__(self) -> None:
        ridge = np.full(self.X.shape[1], 2.0 * self.l2)
        ridge[-1] = FREE
        self.quadratic = np.diag(ridge)
        self.xy = self.X.T @ (self.share * self.y)

    def loss(self, x: Floats) -> float:
        """Return the mean log loss."""
        return float(self.share @ np.logaddexp(0.0, self.X @ x) - self.xy @ x)

    def value(self, x: Floats) -> float:
        """Return loss and penalty."""
        return self.loss(x) + 0.5 * float(x @ self.quadratic @ x)

    def slopes(self, x: Floats) -> tuple[Floats, Floats]:
        """Return gradient and Hessian of :meth:`value`."""
        s = expit(self.X @ x)
        rows = self.X * np.sqrt(self.share * s * (1.0 - s))[:, None]
        return self.X.T @ (self.share * s) - self.xy + self.quadratic @ x, rows.T @ rows + self.quadratic

    def direction(self, x: Floats) -> tuple[Floats, float]:
        """Return the Newton step and its decrement."""
        gradient, hessian = self.slopes(x)
        step = newton_step(hessian, gradient)
        return step, -0.5 * float(gradient @ step)


@dataclass(frozen=True, eq=False)
class _End:
    """Where a solver ended: coefficients with intercept, and a lower bound of the objective."""

    x: Floats
    bound: float
    steps: int
    converged: bool


def _solved(problem: _Penalised, patterns: Patterns, rho: float, eps: float) -> _End:
    """Return the optimum: by plain Newton steps where all is smooth, else along the path of the barrier."""
    d = problem.X.shape[1] - 1
    many = patterns.deltas.shape[1] if len(patterns.shares) else 0
    if rho > 0 and (many > 1 or (many == 1 and eps > 0)):
        return _path(_Barrier(problem, patterns, rho, eps))
    if many and rho > 0:
        rows = patterns.deltas[:, 0] * np.sqrt(patterns.shares)[:, None]
        problem.quadratic[:d, :d] += 2.0 * rho * rows.T @ rows
    else:
        problem.quadratic[:d, :d] += 2.0 * rho * eps * problem.metric
    end = descend(
        np.zeros(d + 1), problem.value, problem.direction, tolerance=1e-20, rough=1e-13
    )  # of a loss of about 1
    return _End(end.x, problem.value(end.x) - 2.0 * end.decrement, end.steps, end.converged)


@dataclass(eq=False)
class _Barrier:
    """The smooth problem with its barrier.

    A point is one vector: coefficients with intercept, the ``u`` of each pattern, ``theta`` and ``1 - theta``, which
    is carried along because a difference would round to 0. Without steps (``eps`` 0) they are 0 and 1 and stay.
    """

    problem: _Penalised
    patterns: Patterns
    rho: float
    eps: float
    mu: float = 0.1

    def parts(self, at: Floats) -> tuple[Floats, Floats, float, float]:
        """Return the parts of a point."""
        d = self.problem.X.shape[1]
        return at[:d], at[d:-2], float(at[-2]), float(at[-1])

    def start(self) -> Floats:
        """Return the best constant logit with much room."""
        start = np.zeros(self.problem.X.shape[1])
        rate = float(np.clip(self.problem.share @ self.problem.y, 1e-6, 1.0 - 1e-6))
        start[-1] = math.log(rate / (1.0 - rate))
        theta = 0.5 if self.eps else 0.0
        return np.concatenate([start, np.ones(self.patterns.shares.size), [theta, 1.0 - theta]])

    def objective(self, at: Floats) -> float:
        """Return the objective without the barrier."""
        x, u, theta, rest = self.parts(at)
        ridge = self.eps * float(x[:-1] @ self.problem.metric @ x[:-1]) / theta if self.eps else 0.0
        flips = float(self.patterns.shares @ u**2) / rest
        return self.problem.value(x) + self.rho * (ridge + flips)

    def value(self, at: Floats) -> float:
        """Return the objective with the barrier."""
        x, u, theta, rest = self.parts(at)
        a = self.patterns.deltas @ x[:-1]
        room = (u[:, None] - a) * (u[:, None] + a)
        logs = float(self.patterns.shares @ np.log(room).sum(axis=1))
        if self.eps:
            logs += math.log(theta) + math.log(rest)
        return self.objective(at) - self.mu * logs

    def room(self, at: Floats, step: Floats) -> float:
        """Return the length of a step, in steps, at which a bound is met."""
        ends = []
        for part in (at, step):
            x, u, theta, rest = self.parts(part)
            a = self.patterns.deltas @ x[:-1]
            ends.append(np.concatenate([(u[:, None] - a).ravel(), (u[:, None] + a).ravel(), [theta, rest]]))
        lead, pace = ends
        back = pace < 0
        return float((lead[back] / -pace[back]).min(initial=math.inf))

    def direction(self, at: Floats) -> tuple[Floats, float]:
        """Return the Newton step and its decrement."""
        shares, deltas, mu, rho, eps = self.patterns.shares, self.patterns.deltas, self.mu, self.rho, self.eps
        x, u, theta, rest = self.parts(at)
        v, d = x[:-1], x.size - 1
        a = deltas @ v
        room = (u[:, None] - a) * (u[:, None] + a)
        own, cross = 2.0 * (u[:, None] ** 2 + a**2) / room**2, 4.0 * u[:, None] * a / room**2
        size = d + 2 if eps else d + 1
        gradient, matrix = np.zeros(size), np.zeros((size, size))
        gradient[: d + 1], matrix[: d + 1, : d + 1] = self.problem.slopes(x)
        gradient[:d] += mu * np.einsum("g,gk,gkd->d", shares, 2.0 * a / room, deltas)
        flat = deltas.reshape(-1, d)
        matrix[:d, :d] += flat.T @ (flat * (mu * shares[:, None] * own).reshape(-1, 1))
        of_u = shares * (2.0 * rho * u / rest - mu * (2.0 * u[:, None] / room).sum(axis=1))
        curve = shares * (2.0 * rho / rest + mu * own.sum(axis=1))
        mixed = np.zeros((u.size, size))
        mixed[:, :d] = -mu * shares[:, None] * np.einsum("gk,gkd->gd", cross, deltas)
        if eps:
            pull = self.problem.metric @ v
            q, m = float(v @ pull), float(shares @ u**2)
            gradient[:d] += 2.0 * rho * eps * pull / theta
            matrix[:d, :d] += 2.0 * rho * eps * self.problem.metric / theta
            matrix[:d, -1] = matrix[-1, :d] = -2.0 * rho * eps * pull / theta**2
            gradient[-1] = rho * (m / rest**2 - eps * q / theta**2) + mu * (1.0 / rest - 1.0 / theta)
            matrix[-1, -1] = 2.0 * rho * (eps * q / theta**3 + m / rest**3)
            matrix[-1, -1] += mu * (1.0 / theta**2 + 1.0 / rest**2)
            mixed[:, -1] = 2.0 * rho * shares * u / rest**2
        over = mixed / curve[:, None]
        step = newton_step(matrix - mixed.T @ over, gradient - over.T @ of_u)
        along = -(of_u + mixed @ step) / curve
        decrement = -0.5 * float(gradient @ step + of_u @ along)
        turn = float(step[-1]) if eps else 0.0
        return np.concatenate([step[: d + 1], along, [turn, -turn]]), decrement


def _path(barrier: _Barrier) -> _End:
    """Return the end of the path of the barrier."""
    constraints = 2.0 * (barrier.patterns.deltas.shape[1] + 1)
    at, steps, last = barrier.start(), 0, GAP / constraints
    while True:
        mu, final = barrier.mu, barrier.mu <= last
        end = descend(
            at,
            barrier.value,
            barrier.direction,
            tolerance=(1e-8 if final else 0.1) * mu,
            rough=1e-3 * mu if final else 0.0,
            most=STEPS - steps,
            room=barrier.room,
        )
        at, steps = end.x, steps + end.steps
        if final or steps >= STEPS:
            break
        if end.converged:  # one step more, which is known, ends far nearer to the path
            at = at + min(1.0, 0.9 * barrier.room(at, end.step)) * end.step
        barrier.mu = max(0.1 * mu, last)
    x = barrier.parts(at)[0]
    bound = barrier.objective(at) - constraints * barrier.mu - FREE / 2.0 * float(x[-1]) ** 2
    return _End(x, bound, steps, final and (end.converged or end.decrement <= constraints * barrier.mu))
