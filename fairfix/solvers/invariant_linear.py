r"""Linear logits that listed moves of rows, and small steps after them, hardly change.

Rows ``x`` of a label ``y`` and a weight ``w_i`` (of sum 1), K logits ``s = W'x + b``, listed moves ``delta_k`` at no
cost, and further steps ``u`` at the cost ``u' Sigma u``, of mean at most ``eps``:

.. math::
    \min_{W, b}\; E\, \ell(y, s(x)) + \rho R + \mathrm{l2}\, |W|^2, \qquad
    R = \left( \sqrt{\epsilon q} + \sqrt{m} \right)^2, \quad q = w' \Sigma^+ w, \quad
    m = E \max_k \frac{1}{K} | C W' \delta_k |^2, \quad C = I - \tfrac{1}{K} 1 1' .

One logit is that of label 1 against label 0, with ``C = 1``; several are those of K classes, without steps (``eps`` 0).
``R`` is the most that the mean squared change of the logits can be, the mean over centred logits. Directions along
which steps are free are projected out. The kinks of ``R`` are written in smooth form with ``theta`` and one ``u`` for
all rows of the same moves. Newton's method solves the problem along the path of a barrier of second-order cones; both
are in docs/methods/sensei.md.

References
----------
M. Yurochkin and Y. Sun, *SenSeI: Sensitive set invariance for enforcing individual fairness*, ICLR 2021.
Y. Nesterov and A. Nemirovskii, *Interior-point polynomial algorithms in convex programming* (1994), section 5.4: the
barrier of a second-order cone, of parameter 2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import helmert, null_space
from threadpoolctl import threadpool_limits

from fairfix.solvers.arrays import CUT, Floats, Ints, joint_kinds, shares_of
from fairfix.solvers.network import Variants
from fairfix.solvers.newton import STEPS, descend, newton_step

FREE = 1e-10
"""Weight of the squared intercept: it keeps the optimum finite where there is one class only."""

GAP = 1e-10
"""Distance of the objective from the least, by the barrier, at which the path ends."""

NEAR = 0.1
"""Change of logits up to which the curvature of the loss is kept: it changes by the factor ``exp(2 NEAR)`` at most."""


@dataclass(frozen=True, eq=False)
class LinearFit:
    """Linear logits of least loss and variation."""

    coef: Floats
    intercept: Floats
    """Shapes (d, K), without any component along free directions, and (K,); several logits sum to 0."""
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
    """Rows that share their moves: ``deltas`` (G, M, d) and the share of the rows of each, (G,)."""

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

    def worst(self, coef: Floats) -> float:
        """Return ``m`` of coefficients, shape (r, d), of free logits."""
        return float(self.shares @ ((self.deltas @ coef.T) ** 2).sum(axis=2).max(axis=1, initial=0.0))


def complement(directions: Floats, d: int) -> Floats:
    """Return an orthonormal basis, shape (d, d - r), of all that is orthogonal to directions of rank ``r``."""
    size = np.linalg.norm(directions, axis=1)
    unit = directions[size > 0] / size[size > 0, None]
    return np.asarray(null_space(np.linalg.qr(unit, mode="r"), rcond=CUT)) if len(unit) else np.eye(d)


def fit_linear(
    X: Floats,
    y: Floats | Ints,
    weight: Floats | None,
    variants: Variants,
    span: Floats | None = None,
    *,
    logits: int = 1,
    rho: float,
    eps: float = 0.0,
    l2: float = 0.0,
    metric_inverse: Floats | None = None,
) -> LinearFit:
    """Return the linear logits that minimise mean log loss, ``rho R`` and ``l2 |coef|^2``.

    Parameters
    ----------
    X, y, weight
        Rows, shape (n, d), their labels, 0 or 1, or classes, 0 to K - 1, and weights, shape (n,) each; None for weights
        of 1.
    variants
        Listed variants of these rows, each a move.
    span
        Directions along which moves are free, shape (r, d), in any number and dependent or not: logits are constant
        along them. None for none.
    logits
        K: 1 for that of label 1, else one for each class.
    rho
        Weight of ``R``. Infinite for logits that no listed move changes, by projection; then ``eps`` must be 0, because
        else constant logits alone have a finite objective.
    eps
        Mean cost of the steps beyond the listed moves, ``u' Sigma u`` but for what is along ``span``; 0 for classes.
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
    if logits > 1 and eps > 0:
        raise ValueError("steps of several logits have no closed form: set eps to 0")
    patterns = Patterns.of(X, variants, share)
    free = np.zeros((0, d)) if span is None else np.asarray(span, dtype=float).reshape(-1, d)
    if math.isinf(rho):
        free = np.concatenate([free, np.unique(patterns.deltas.reshape(-1, d), axis=0)])
        rho, patterns = 0.0, Patterns(np.zeros((0, 0, d)), np.zeros(0))
    basis = complement(free, d) if len(free) else np.eye(d)
    metric = basis.T @ (np.eye(d) if metric_inverse is None else metric_inverse) @ basis
    if len(free):
        X = X @ basis
    patterns = Patterns(patterns.deltas @ basis / math.sqrt(logits), patterns.shares)
    # logits of classes from free ones: of label 1 against 0, or centred ones in an orthonormal basis
    contrast = np.array([[0.0], [1.0]]) if logits == 1 else helmert(logits).T
    with threadpool_limits(1):
        problem = _Penalised(np.column_stack([X, np.ones(n)]), y.astype(int), share, l2, metric, contrast)
        end = _solved(problem, patterns, rho, eps)
    x = problem.shaped(end.x)
    own = x[:, :-1]
    regularizer = linear_regularizer(patterns.worst(own), max(float((own @ metric * own).sum()), 0.0), eps)
    objective = problem.loss(end.x) + l2 * float((own**2).sum()) + (rho * regularizer if rho else 0.0)
    whole = x if logits == 1 else contrast @ x
    gap = max(objective - end.bound, 0.0)
    return LinearFit(basis @ whole[:, :-1].T, whole[:, -1], objective, gap, end.steps, end.converged)


@dataclass(eq=False)
class _Penalised:
    """Log loss of r free logits with quadratic penalties, which solvers see as a function of one vector, (r (d + 1),).

    The last column of ``X`` is the intercept's, ``metric`` is ``Sigma^+``, and ``contrast``, of shape (C, r), makes the
    logits of all labels from the free ones.
    """

    X: Floats
    y: Ints
    share: Floats
    l2: float
    metric: Floats
    contrast: Floats
    kept: tuple[Floats, Floats] | None = None
    """Logits, and the curvature of the loss there, shape (r (d + 1), r (d + 1))."""

    def __post_init__(self) -> None:
        ridge = np.full(self.X.shape[1], 2.0 * self.l2)
        ridge[-1] = FREE
        self.quadratic = np.diag(ridge)
        self.xy = (self.share * self.contrast[self.y].T) @ self.X

    def shaped(self, x: Floats) -> Floats:
        """Return a vector as coefficients of the free logits, shape (r, d + 1)."""
        return x.reshape(self.contrast.shape[1], -1)

    def logits(self, x: Floats) -> Floats:
        """Return the logits of all labels, shape (C, n)."""
        return np.asarray(self.contrast @ (self.shaped(x) @ self.X.T))

    def loss(self, x: Floats) -> float:
        """Return the mean log loss."""
        return float(self.share @ _normalised(self.logits(x))[0] - self.xy.ravel() @ x)

    def value(self, x: Floats) -> float:
        """Return loss and penalty."""
        v = self.shaped(x)
        return self.loss(x) + 0.5 * float((v @ self.quadratic * v).sum())

    def slopes(self, x: Floats) -> tuple[Floats, Floats]:
        """Return gradient and Hessian of :meth:`value`; the curvature of the loss is that of logits nearby."""
        v, s = self.shaped(x), self.logits(x)
        chance = _normalised(s)[1]
        mean = self.contrast.T @ chance
        gradient = (self.share * mean) @ self.X - self.xy + v @ self.quadratic
        if self.kept is None or np.abs(s - self.kept[0]).max() > NEAR:
            both = self.contrast[:, :, None] * self.contrast[:, None]
            curve = np.tensordot(both, chance, (0, 0)) - mean[:, None] * mean
            self.kept = s, _blocks(self.X, self.share * curve)
        hessian = self.kept[1].copy()
        _diagonal(hessian, len(v))[:] += self.quadratic
        return gradient.ravel(), hessian

    def direction(self, x: Floats) -> tuple[Floats, float]:
        """Return the Newton step and its decrement."""
        gradient, hessian = self.slopes(x)
        step = newton_step(hessian, gradient)
        return step, -0.5 * float(gradient @ step)


def _normalised(s: Floats) -> tuple[Floats, Floats]:
    """Return the logarithm of the sum of exponentials over labels, shape (n,), and their shares, (C, n)."""
    top = s.max(axis=0)
    chance = np.exp(s - top)
    total = chance.sum(axis=0)
    chance /= total
    return top + np.log(total), chance


def _blocks(rows: Floats, curve: Floats) -> Floats:
    """Return the sum over rows, shape (n, d), of the Kronecker products ``curve_i (x) x_i x_i'``, (r d, r d).

    ``curve``: a positive semidefinite matrix for each row, shape (r, r, n).
    """
    r, d = len(curve), rows.shape[1]
    out = np.zeros((r, d, r, d))
    for a in range(r):
        half = rows * np.sqrt(np.maximum(curve[a, a], 0.0))[:, None]
        out[a, :, a] = half.T @ half  # in half the time of other blocks
        for b in range(a):
            out[a, :, b] = out[b, :, a] = rows.T @ (rows * curve[a, b][:, None])
    return out.reshape(r * d, r * d)


def _diagonal(matrix: Floats, r: int) -> Floats:
    """Return a view of the r blocks on the diagonal of a matrix, shape (r, D, D)."""
    four = matrix.reshape(r, len(matrix) // r, r, -1)
    return np.asarray(np.einsum("adae->ade", four))


@dataclass(frozen=True, eq=False)
class _End:
    """Where a solver ended: coefficients with intercepts, and a lower bound of the objective."""

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
        np.zeros(problem.xy.size), problem.value, problem.direction, tolerance=1e-20, rough=1e-13
    )  # of a loss of about 1
    return _End(end.x, problem.value(end.x) - 2.0 * end.decrement, end.steps, end.converged)


@dataclass(eq=False)
class _Barrier:
    """The smooth problem with its barrier.

    A point is one vector: coefficients with intercepts, the ``u`` of each pattern, ``theta`` and ``1 - theta``, which
    is carried along because a difference would round to 0. Without steps (``eps`` 0) they are 0 and 1 and stay.
    """

    problem: _Penalised
    patterns: Patterns
    rho: float
    eps: float
    mu: float = 0.1

    def parts(self, at: Floats) -> tuple[Floats, Floats, Floats, float, float]:
        """Return coefficients with intercepts, those of the moves by their patterns, (G, M, r), and the other parts."""
        size = self.problem.xy.size
        x = at[:size]
        moved = self.patterns.deltas @ self.problem.shaped(x)[:, :-1].T
        return x, moved, at[size:-2], float(at[-2]), float(at[-1])

    def start(self) -> Floats:
        """Return the best constant logits with much room."""
        problem = self.problem
        start = np.zeros(problem.xy.shape)
        labels = np.arange(len(problem.contrast))
        rate = np.bincount(problem.y, problem.share, labels.size)
        level = np.log(np.clip(rate, 1e-6, 1.0 - 1e-6))
        start[:, -1] = np.linalg.pinv(problem.contrast - problem.contrast.mean(axis=0)) @ (
            level - level.mean()
        )
        theta = 0.5 if self.eps else 0.0
        return np.concatenate([start.ravel(), np.ones(self.patterns.shares.size), [theta, 1.0 - theta]])

    def objective(self, at: Floats) -> float:
        """Return the objective without the barrier."""
        x, _, u, theta, rest = self.parts(at)
        own = self.problem.shaped(x)[:, :-1]
        ridge = self.eps * float((own @ self.problem.metric * own).sum()) / theta if self.eps else 0.0
        flips = float(self.patterns.shares @ u**2) / rest
        return self.problem.value(x) + self.rho * (ridge + flips)

    def value(self, at: Floats) -> float:
        """Return the objective with the barrier."""
        _, moved, u, theta, rest = self.parts(at)
        logs = float(self.patterns.shares @ np.log(_room(moved, u)).sum(axis=1))
        if self.eps:
            logs += math.log(theta) + math.log(rest)
        return self.objective(at) - self.mu * logs

    def room(self, at: Floats, step: Floats) -> float:
        """Return the length of a step, in steps, at which a bound is met."""
        (_, moved, u, theta, rest), (_, turn, pace, of_theta, of_rest) = self.parts(at), self.parts(step)
        # (u + t pace)^2 = |moved + t turn|^2 is quadratic in t; its first root ahead, without a difference
        bent = pace[:, None] ** 2 - (turn**2).sum(axis=2)
        lean = u[:, None] * pace[:, None] - (moved * turn).sum(axis=2)
        lead = _room(moved, u)
        under = np.sqrt(np.maximum(lean**2 - bent * lead, 0.0)) - lean
        ends = [
            *(lead[under > 0] / under[under > 0]),
            *(-at / to for at, to in ((theta, of_theta), (rest, of_rest)) if to < 0),
        ]
        return float(min(ends, default=math.inf))

    def direction(self, at: Floats) -> tuple[Floats, float]:
        """Return the Newton step and its decrement; the ``u`` are eliminated."""
        shares, deltas, mu, rho, eps = self.patterns.shares, self.patterns.deltas, self.mu, self.rho, self.eps
        x, moved, u, theta, rest = self.parts(at)
        own = self.problem.shaped(x)[:, :-1]
        r, d = own.shape
        room, of_x = _room(moved, u), x.size
        size = of_x + 1 if eps else of_x
        gradient, matrix = np.zeros(size), np.zeros((size, size))
        gradient[:of_x], matrix[:of_x, :of_x] = self.problem.slopes(x)
        of_own = gradient[:of_x].reshape(r, d + 1)[:, :d]
        of_both = matrix[:of_x, :of_x].reshape(r, d + 1, r, d + 1)[:, :d, :, :d]
        pull = mu * shares[:, None] / room
        flat, turned = deltas.reshape(-1, d), moved.reshape(-1, r).T
        of_own += 2.0 * (pull.ravel() * turned) @ flat
        curve = 4.0 * (pull / room).ravel() * turned[:, None] * turned
        curve[np.arange(r), np.arange(r)] += 2.0 * pull.ravel()
        of_both += _blocks(flat, curve).reshape(r, d, r, d)
        of_u = 2.0 * (rho * shares / rest - pull.sum(axis=1)) * u
        bent = 2.0 * rho * shares / rest + (
            2.0 * pull / room * (u[:, None] ** 2 + (moved**2).sum(axis=2))
        ).sum(axis=1)
        mixed = np.zeros((u.size, size))
        lean = -4.0 * (u[:, None] * pull / room)[:, :, None] * moved
        mixed[:, :of_x].reshape(u.size, r, d + 1)[:, :, :d] = lean.transpose(0, 2, 1) @ deltas
        if eps:
            steep = own @ self.problem.metric
            q, m = float((own * steep).sum()), float(shares @ u**2)
            of_own += 2.0 * rho * eps * steep / theta
            _diagonal(matrix[:of_x, :of_x], r)[:, :d, :d] += 2.0 * rho * eps * self.problem.metric / theta
            of_theta = matrix[-1, :of_x].reshape(r, d + 1)
            of_theta[:, :d] = -2.0 * rho * eps * steep / theta**2
            matrix[:of_x, -1] = matrix[-1, :of_x]
            gradient[-1] = rho * (m / rest**2 - eps * q / theta**2) + mu * (1.0 / rest - 1.0 / theta)
            matrix[-1, -1] = 2.0 * rho * (eps * q / theta**3 + m / rest**3)
            matrix[-1, -1] += mu * (1.0 / theta**2 + 1.0 / rest**2)
            mixed[:, -1] = 2.0 * rho * shares * u / rest**2
        over = mixed / bent[:, None]
        step = newton_step(matrix - mixed.T @ over, gradient - over.T @ of_u)
        along = -(of_u + mixed @ step) / bent
        decrement = -0.5 * float(gradient @ step + of_u @ along)
        turn = float(step[-1]) if eps else 0.0
        return np.concatenate([step[:of_x], along, [turn, -turn]]), decrement


def _room(moved: Floats, u: Floats) -> Floats:
    """Return ``u^2 - |a|^2`` of changes ``a`` of the logits, shape (G, M, r), and bounds ``u``, (G,); shape (G, M)."""
    size = np.linalg.norm(moved, axis=2)
    return np.asarray((u[:, None] - size) * (u[:, None] + size))


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
    free = FREE / 2.0 * float((barrier.problem.shaped(x)[:, -1] ** 2).sum())
    bound = barrier.objective(at) - constraints * barrier.mu - free
    return _End(x, bound, steps, final and (end.converged or end.decrement <= constraints * barrier.mu))
