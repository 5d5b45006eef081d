r"""Sensitive set invariance: models whose logit hardly changes within sets of rows that count as comparable.

Rows ``x`` with label ``y`` and weight ``w_i`` (of sum 1), a logit ``h``, and a distance ``d_X`` that is small between
rows that are to be treated alike:

.. math::
    \min_h\; E\, \ell(y, h(x)) + \rho R(h), \qquad
    R(h) = \inf_{\lambda \ge 0}\; \lambda \epsilon
    + E \sup_{x'} \left[ d_Y(h(x), h(x')) - \lambda\, d_X(x, x') \right] , \qquad d_Y(a, b) = (a - b)^2 .

``R`` is the most that ``E d_Y`` can be under a transport of the rows that moves them ``epsilon`` on average. Here a
row first takes one of its listed moves ``delta_k``, at no cost (a protected value changed to another), and then any
step ``u`` at the cost ``u' Sigma u``.

**Linear logit**, ``h = w'x + b``. Where ``w`` has a component in the null space of ``Sigma``, free steps change the
logit without end and ``R`` is infinite; so free directions are projected out. Else let ``q = w' Sigma^+ w``: a step
of the logit by ``t = w'u`` costs at least ``t^2 / q``. With ``D = w' delta_k``, ``(D + t)^2 - lambda t^2 / q`` is
unbounded for ``lambda < q``, and for ``lambda > q`` is largest at ``t = D q / (lambda - q)``, with the value ``D^2
lambda / (lambda - q)``: the worst move is that of the greatest ``|D|``. With ``m = E max_k (w' delta_k)^2``,

.. math::
    R = \inf_{\lambda > q}\; \lambda \epsilon + \frac{m \lambda}{\lambda - q}
      = \left( \sqrt{\epsilon q} + \sqrt{m} \right)^2, \qquad \lambda^* = q + \sqrt{m q / \epsilon} ,

by ``epsilon = m q / (lambda - q)^2``, which also says that the steps ``t_i = D_i q / (lambda* - q)`` cost ``epsilon``
on average; their ``E (D + t)^2`` is ``m (lambda* / (lambda* - q))^2``, the same value: it is attained. Special cases:
``epsilon = 0`` gives ``m``, invariance to the moves alone; ``m = 0`` gives ``epsilon q`` (at ``lambda = q``), a
ridge; ``q = 0`` gives ``m``. ``sqrt(q)`` and ``sqrt(m)`` are seminorms of ``w``, so ``R`` is convex, but it has
kinks, where ``m = 0``, ``q = 0``, or two moves are equally bad, and optima like to lie there. With

.. math::
    \left( \sqrt{\epsilon q} + \sqrt{m} \right)^2 = \min_{0 < \theta < 1} \frac{\epsilon q}{\theta}
    + \frac{m}{1 - \theta} , \qquad m = \min \left\{ E u^2 : u_i \ge |w' \delta_{ik}| \right\} ,

all is smooth and jointly convex in ``(w, b, theta, u)``: :func:`fit_linear` follows the path of the logarithmic
barrier ``- mu [log theta + log(1 - theta) + E sum_k log(u^2 - (w' delta_k)^2)]`` by Newton's method, the ``u``
eliminated, down to a ``mu`` at which the objective is at most ``2 mu (K + 1)`` above the least. Rows with the same
moves share a ``u``.

**Network.** One hidden layer of ReLUs, trained by Adam until rows that are not learned from say that it gets no
better: :func:`stopped_network`. The worst listed move is found by trying all. At it, with the slope ``g`` of the
logit there, ``D`` its change, and ``q = g' Sigma^+ g``, the linear formulas give a further step ``u = D Sigma^+ g /
(lambda - q)``, ``lambda`` the root of ``E q D^2 / (lambda - q)^2 = epsilon`` above every ``q``; more steps go along
the slope. Steps are cut at the bounds of the columns: in an unbounded space ``R`` of a network is infinite unless it
is constant, far out, along free directions. Of all places that were visited rows take the best for the exact
``lambda`` over them. That is a plan, so a lower bound of ``R``; :func:`network_regularizer` looks further, and bounds
``R`` from above as well.

**Observed rows only.** Where ``x'`` runs through listed candidates, ``R`` is a linear program over transport plans;
its dual is convex and piecewise linear in ``lambda`` alone: :func:`regularizer_empirical`. It bounds ``R`` from
below.

**Equal rates, decided blindly.** With ``p = P(y=1|x)``, ``p_1 = p``, ``p_0 = 1 - p``, and ``P(a=k|x,y)`` for each
value of each protected attribute, balanced accuracy and the rates of a decision ``A(x)`` in [0, 1] are linear in it:

.. math::
    BA = \tfrac12 + E\, c_0 A,\quad c_0 = \tfrac12 \left[ \frac{p_1}{\pi_1} - \frac{p_0}{\pi_0} \right], \qquad
    r_{yk} - r_y = E\, z_{yk} A,\quad z_{yk} = \frac{p_y P(a=k|x,y)}{\pi_{yk}} - \frac{p_y}{\pi_y} ,

``pi`` the means of the numerators. The greatest ``BA`` with ``|r_{yk} - r_y| <= tol`` for all ``y`` and ``k`` has the
dual ``min_mu E max(0, c) + tol |mu|_1``, ``c = c_0 + z' mu``, and accepts where ``c > 0``. :func:`equal_rates` adds
``tau (log A + log(1 - A))`` and the like for the bounds on the rates: the dual becomes smooth, its optimum is
feasible, and it is within ``2 tau (1 + J)`` of the best, ``J`` the number of constraints; ``tau`` goes to 0 in steps.

References
----------
M. Yurochkin and Y. Sun, *SenSeI: Sensitive set invariance for enforcing individual fairness*, ICLR 2021.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar
from scipy.special import expit
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

CUT = 1e-9
"""Directions whose singular value is below this share of the greatest depend on the others."""

FREE = 1e-10
"""Weight of the squared intercept: it keeps the optimum finite where there is one class only."""

GAP = 1e-10
"""How far above the least an objective may be, by the barrier."""

STEPS = 400
"""Newton steps at most."""

CLIP = 8.0
"""Logits are cut at plus and minus this before they are compared."""


class Moves(Protocol):
    """Listed moves of rows."""

    @property
    def many(self) -> int:
        """Number of moves."""

    def delta(self, k: int) -> Floats:
        """Return what a move adds to each row, shape (n, d); zero where it does not apply."""


class Variants(Protocol):
    """Listed variants of rows."""

    @property
    def many(self) -> int:
        """Number of variants."""

    def variant(self, k: int, rows: Ints) -> Floats:
        """Return a variant of some rows, shape (len(rows), d); the row itself where it does not apply."""


def _shares(weight: Floats | None, rows: int) -> Floats:
    """Return weights of sum 1, shape (n,)."""
    w = np.ones(rows) if weight is None else np.asarray(weight, dtype=float)
    total = float(w.sum())
    if w.shape != (rows,) or not np.isfinite(total) or total <= 0 or w.min() < 0:
        raise ValueError(f"weights must be {rows} numbers, none negative, that do not sum to 0")
    return w / total


def distinct_rows(values: Floats | Ints) -> tuple[Ints, Ints]:
    """Return the first of every kind of equal rows, shape (G,), and the kind of each row, shape (n,).

    Kinds are in the order of their values. Sorts columns and not rows, for columns have few values.
    """
    code, many = np.zeros(len(values), dtype=np.int64), 1
    for column in values.T:
        kinds = np.unique(column)
        code = code * kinds.size + np.searchsorted(kinds, column)
        many *= kinds.size
        if many > 2**31:
            code = np.unique(code, return_inverse=True)[1].reshape(-1)
            many = int(code.max()) + 1
    _, first, code = np.unique(code, return_index=True, return_inverse=True)
    return first, code.reshape(-1)


# ---------------------------------------------------------------------- linear logit


@dataclass(frozen=True, eq=False)
class LinearRegularizer:
    """``R`` of a linear logit.

    Attributes
    ----------
    value
        ``(sqrt(eps q) + sqrt(m))^2``, infinite where a free step changes the logit.
    flips, ridge
        ``m`` and ``q``.
    multiplier
        ``lambda*``; infinite where ``eps = 0`` and both ``m`` and ``q`` are positive.
    """

    value: float
    flips: float
    ridge: float
    multiplier: float

    def dual(self, eps: float) -> float:
        """Return the infimum over ``lambda``, found by a search that does not know the formula."""
        if not math.isfinite(self.value) or self.ridge == 0.0 or self.flips == 0.0:
            return self.value if not math.isfinite(self.value) else self.flips + eps * self.ridge
        if eps == 0.0:
            return self.flips  # the limit as lambda grows

        def over(log: float) -> float:
            above = math.exp(log)
            return (self.ridge + above) * eps + self.flips * (1.0 + self.ridge / above)

        middle = 0.5 * math.log(self.flips * self.ridge / eps)
        found = minimize_scalar(
            over, bounds=(middle - 40.0, middle + 45.0), method="bounded", options={"xatol": 1e-10}
        )
        return float(found.fun)


@dataclass(frozen=True, eq=False)
class LinearFit:
    """A linear logit of least loss and variation.

    Attributes
    ----------
    coef, intercept
        Shape (d,), without any component along free directions; and a number.
    regularizer, dual
        ``R``, and its dual value, found by a search over ``lambda``: it certifies ``R`` from above.
    flips, ridge
        ``m`` and ``q``.
    objective
        Mean log loss, plus ``rho R``, plus ``l2 |coef|^2``.
    gap
        How far the objective may be above the least: by the barrier, at the end of its path.
    gradient
        Norm of the gradient, in coefficients and intercept, of what Newton's method minimised last: the objective
        where it is smooth, else the objective with its barrier, which is steep near kinks.
    steps
        Newton steps.
    converged
        Whether the last Newton decrement came below the tolerance.
    """

    coef: Floats
    intercept: float
    regularizer: float
    dual: float
    flips: float
    ridge: float
    objective: float
    gap: float
    gradient: float
    steps: int
    converged: bool

    def logit(self, X: Floats) -> Floats:
        """Return the logit of rows, shape (n, d)."""
        return np.asarray(X @ self.coef + self.intercept)


def linear_regularizer(
    w: Floats,
    moves: Moves,
    metric_inverse: Floats | None = None,
    *,
    eps: float = 0.0,
    weight: Floats | None = None,
) -> LinearRegularizer:
    """Return ``R`` of the logit ``w'x + b``.

    Parameters
    ----------
    w
        Coefficients, shape (d,).
    moves
        Of the rows; ``m`` is a mean over them.
    metric_inverse
        ``Sigma^+``, shape (d, d), symmetric, with the free directions as null space; None for the identity.
    eps
        Mean distance that rows may be moved.
    weight
        Of rows, shape (n,); None for 1 each.
    """
    worst: Floats | None = None
    for k in range(moves.many):
        change = (moves.delta(k) @ w) ** 2
        worst = change if worst is None else np.maximum(worst, change)
    m = 0.0 if worst is None else float(_shares(weight, worst.size) @ worst)
    if metric_inverse is None:
        return _regularizer(m, float(w @ w), eps)
    values, vectors = np.linalg.eigh(metric_inverse)
    free = vectors[:, np.abs(values) <= CUT * max(float(np.abs(values).max(initial=0.0)), 1e-300)]
    if np.abs(free.T @ w).max(initial=0.0) > CUT * float(np.linalg.norm(w)):
        return LinearRegularizer(math.inf, m, math.inf, math.inf)
    return _regularizer(m, max(float(w @ metric_inverse @ w), 0.0), eps)


def _regularizer(m: float, q: float, eps: float) -> LinearRegularizer:
    """Return ``R`` by the formula."""
    multiplier = q
    if m > 0.0:
        multiplier = 0.0 if q == 0.0 else math.inf if eps == 0.0 else q + math.sqrt(m * q / eps)
    return LinearRegularizer((math.sqrt(eps * q) + math.sqrt(m)) ** 2, m, q, multiplier)


@dataclass(frozen=True, eq=False)
class _Patterns:
    """Rows that share their moves: ``deltas`` (G, K, d) and the share of the rows of each, (G,)."""

    deltas: Floats
    shares: Floats

    @classmethod
    def of(cls, moves: Moves, share: Floats, d: int) -> _Patterns:
        """Return the patterns of all moves; rows that no move changes are left out."""
        code = np.zeros(share.size, dtype=np.int64)
        parts: list[Floats] = []
        codes: list[Ints] = []
        for k in range(moves.many):
            delta = np.asarray(moves.delta(k), dtype=float)
            if delta.shape != (share.size, d) or not np.isfinite(delta).all():
                raise ValueError(f"move {k} must be finite and of shape {(share.size, d)}")
            columns = np.flatnonzero((delta != 0).any(axis=0))
            first, own = distinct_rows(delta[:, columns])
            parts.append(delta[first])
            codes.append(own)
            code = distinct_rows(np.stack([code, own], axis=1))[1]
        mass = np.bincount(code, share)
        first = np.unique(code, return_index=True)[1]
        deltas = np.zeros((mass.size, moves.many, d))
        for k, (part, own) in enumerate(zip(parts, codes, strict=True)):
            deltas[:, k] = part[own[first]]
        kept = (mass > 0) & (deltas != 0).any(axis=(1, 2))
        return cls(deltas[kept], mass[kept])

    def worst(self, w: Floats) -> float:
        """Return ``m``."""
        return float(self.shares @ ((self.deltas @ w) ** 2).max(axis=1, initial=0.0))


def _split(directions: Floats, d: int) -> Floats:
    """Return an orthonormal basis, shape (d, d - r), of what is orthogonal to ``r`` independent directions of many."""
    size = np.linalg.norm(directions, axis=1)
    unit = directions[size > 0] / size[size > 0, None]
    if not len(unit):
        return np.eye(d)
    if len(unit) > d:
        unit = np.linalg.qr(unit, mode="r")
    _, values, rows = np.linalg.svd(unit, full_matrices=True)
    return np.asarray(rows[int((values > CUT * values[0]).sum()) :].T)


def fit_linear(
    X: Floats,
    y: Floats,
    weight: Floats | None,
    moves: Moves,
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
    moves
        Listed moves of these rows.
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
    share = _shares(weight, n)
    if math.isnan(rho) or rho < 0 or not 0 <= eps < math.inf or not 0 <= l2 < math.inf:
        raise ValueError(f"rho, eps and l2 must not be negative, and eps and l2 finite: {rho}, {eps}, {l2}")
    if math.isinf(rho) and eps > 0:
        raise ValueError(
            "with an infinite rho and a positive eps only constant logits are left: set eps to 0"
        )
    patterns = _Patterns.of(moves, share, d)
    free = np.zeros((0, d)) if span is None else np.asarray(span, dtype=float).reshape(-1, d)
    exact = math.isinf(rho)
    if exact:
        free = np.concatenate([free, np.unique(patterns.deltas.reshape(-1, d), axis=0)])
        rho, patterns = 0.0, _Patterns(np.zeros((0, 0, d)), np.zeros(0))
    basis = _split(free, d) if len(free) else np.eye(d)
    metric = basis.T @ (np.eye(d) if metric_inverse is None else metric_inverse) @ basis
    if len(free):
        X = X @ basis
        patterns = _Patterns(patterns.deltas @ basis, patterns.shares)
    with threadpool_limits(1):
        problem = _Penalised(np.column_stack([X, np.ones(n)]), np.asarray(y, dtype=float), share, l2, metric)
        end = _solved(problem, patterns, rho, eps)
    v = end.x[:-1]
    form = _regularizer(patterns.worst(v), max(float(v @ metric @ v), 0.0), eps)
    objective = problem.loss(end.x) + l2 * float(v @ v) + (rho * form.value if rho else 0.0)
    return LinearFit(
        basis @ v,
        float(end.x[-1]),
        form.value,
        form.dual(eps),
        form.flips,
        form.ridge,
        objective,
        max(objective - end.bound, 0.0),
        end.gradient,
        end.steps,
        end.converged,
    )


@dataclass(eq=False)
class _Penalised:
    """Log loss with quadratic penalties; the last column of ``X`` is the intercept's, ``metric`` is ``Sigma^+``."""

    X: Floats
    y: Floats
    share: Floats
    l2: float
    metric: Floats

    def __post_init__(self) -> None:
        self.ridge = np.full(self.X.shape[1], 2.0 * self.l2)
        self.ridge[-1] = FREE
        self.quadratic = np.diag(self.ridge)
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


@dataclass(frozen=True, eq=False)
class _End:
    """Where a solver ended: coefficients with intercept, and a lower bound of the objective."""

    x: Floats
    bound: float
    gradient: float
    steps: int
    converged: bool


def _direction(matrix: Floats, gradient: Floats) -> Floats:
    """Return the Newton step, the least one where the matrix is singular."""
    scale = np.sqrt(np.maximum(np.diag(matrix), 1e-300))
    scaled = matrix / np.outer(scale, scale)
    scaled[np.diag_indices_from(scaled)] += 1e-14
    try:
        step = np.linalg.solve(scaled, -gradient / scale) / scale
    except np.linalg.LinAlgError:
        step = np.full(gradient.size, np.nan)
    if not np.isfinite(step).all() or step @ gradient > 0:
        step = np.linalg.lstsq(scaled, -gradient / scale, rcond=1e-12)[0] / scale
    return np.asarray(step)


def _solved(problem: _Penalised, patterns: _Patterns, rho: float, eps: float) -> _End:
    """Return the optimum: by plain Newton steps where all is smooth, else along the path of the barrier."""
    d = problem.X.shape[1] - 1
    many = patterns.deltas.shape[1] if len(patterns.shares) else 0
    if rho == 0 or many == 0:
        problem.quadratic[:d, :d] += 2.0 * rho * eps * problem.metric
        return _plain(problem)
    if many == 1 and eps == 0:
        rows = patterns.deltas[:, 0] * np.sqrt(patterns.shares)[:, None]
        problem.quadratic[:d, :d] += 2.0 * rho * rows.T @ rows
        return _plain(problem)
    return _barrier(problem, patterns, rho, eps)


def _plain(problem: _Penalised) -> _End:
    """Return the optimum of log loss and quadratic penalty."""
    x = np.zeros(problem.X.shape[1])
    value, half, done, steps = problem.value(x), math.inf, False, 0
    while steps < STEPS:
        steps += 1
        gradient, hessian = problem.slopes(x)
        step = _direction(hessian, gradient)
        half = -0.5 * float(gradient @ step)
        if half <= 1e-20:  # squared distance, in loss
            done = True
            break
        length, new = 1.0, problem.value(x + step)
        while new > value - 0.1 * length * half and length > 1e-6:
            length *= 0.5
            new = problem.value(x + length * step)
        if new > value and length <= 1e-6:
            done = half <= 1e-13
            break
        x, value = x + length * step, new
    gradient, _ = problem.slopes(x)
    return _End(x, value - 2.0 * half, float(np.linalg.norm(gradient)), steps, done)


@dataclass(frozen=True, eq=False)
class _Inner:
    """A point inside the bounds: ``x`` with intercept, ``u`` of each pattern, ``theta`` and ``1 - theta``."""

    x: Floats
    u: Floats
    theta: float
    rest: float

    def moved(self, step: _Inner, length: float) -> _Inner:
        """Return a point some way along a step."""
        return _Inner(
            self.x + length * step.x,
            self.u + length * step.u,
            self.theta + length * step.theta,
            self.rest + length * step.rest,
        )


@dataclass(eq=False)
class _Barrier:
    """The smooth problem with its barrier."""

    problem: _Penalised
    patterns: _Patterns
    rho: float
    eps: float
    mu: float = 1.0

    def objective(self, at: _Inner) -> float:
        """Return the objective without the barrier."""
        v, rest = at.x[:-1], at.rest
        ridge = self.eps * float(v @ self.problem.metric @ v) / at.theta if self.eps else 0.0
        flips = float(self.patterns.shares @ at.u**2) / rest
        return self.problem.value(at.x) + self.rho * (ridge + flips)

    def value(self, at: _Inner) -> float:
        """Return the objective with the barrier."""
        a = self.patterns.deltas @ at.x[:-1]
        room = (at.u[:, None] - a) * (at.u[:, None] + a)
        logs = float(self.patterns.shares @ np.log(room).sum(axis=1))
        if self.eps:
            logs += math.log(at.theta) + math.log(at.rest)
        return self.objective(at) - self.mu * logs

    def room(self, at: _Inner, step: _Inner) -> float:
        """Return how far along a step the bounds let go."""
        now, move = self.patterns.deltas @ at.x[:-1], self.patterns.deltas @ step.x[:-1]
        u, up = at.u[:, None], step.u[:, None]
        lead = np.concatenate([(u - now).ravel(), (u + now).ravel(), [at.theta, at.rest]])
        pace = np.concatenate([(up - move).ravel(), (up + move).ravel(), [step.theta, step.rest]])
        back = pace < 0
        return float((lead[back] / -pace[back]).min(initial=math.inf))

    def newton(self, at: _Inner) -> tuple[_Inner, float, Floats]:
        """Return the Newton step, its decrement (squared, halved) and the gradient in ``x``."""
        shares, deltas, mu, rho = self.patterns.shares, self.patterns.deltas, self.mu, self.rho
        d = at.x.size - 1
        v, u, theta, rest = at.x[:-1], at.u, at.theta, at.rest
        a = deltas @ v
        room = (u[:, None] - a) * (u[:, None] + a)
        own, cross = 2.0 * (u[:, None] ** 2 + a**2) / room**2, 4.0 * u[:, None] * a / room**2
        g, H = self.problem.slopes(at.x)
        size = d + 2 if self.eps else d + 1
        gradient, matrix = np.zeros(size), np.zeros((size, size))
        gradient[: d + 1], matrix[: d + 1, : d + 1] = g, H
        gradient[:d] += mu * np.einsum("g,gk,gkd->d", shares, 2.0 * a / room, deltas)
        flat = deltas.reshape(-1, d)
        matrix[:d, :d] += flat.T @ (flat * (mu * shares[:, None] * own).reshape(-1, 1))
        of_u = shares * (2.0 * rho * u / rest - mu * (2.0 * u[:, None] / room).sum(axis=1))
        curve = shares * (2.0 * rho / rest + mu * own.sum(axis=1))
        mixed = np.zeros((u.size, size))
        mixed[:, :d] = -mu * shares[:, None] * np.einsum("gk,gkd->gd", cross, deltas)
        if self.eps:
            pull = self.problem.metric @ v
            q, m = float(v @ pull), float(shares @ u**2)
            gradient[:d] += 2.0 * rho * self.eps * pull / theta
            matrix[:d, :d] += 2.0 * rho * self.eps * self.problem.metric / theta
            matrix[:d, -1] = matrix[-1, :d] = -2.0 * rho * self.eps * pull / theta**2
            gradient[-1] = rho * (m / rest**2 - self.eps * q / theta**2) + mu * (1.0 / rest - 1.0 / theta)
            matrix[-1, -1] = 2.0 * rho * (self.eps * q / theta**3 + m / rest**3)
            matrix[-1, -1] += mu * (1.0 / theta**2 + 1.0 / rest**2)
            mixed[:, -1] = 2.0 * rho * shares * u / rest**2
        over = mixed / curve[:, None]
        step = _direction(matrix - mixed.T @ over, gradient - over.T @ of_u)
        along = -(of_u + mixed @ step) / curve
        decrement = -0.5 * float(gradient @ step + of_u @ along)
        turn = float(step[-1]) if self.eps else 0.0
        return _Inner(step[: d + 1], along, turn, -turn), decrement, gradient[: d + 1]


def _barrier(problem: _Penalised, patterns: _Patterns, rho: float, eps: float) -> _End:
    """Return the end of the path of the barrier."""
    constraints = 2.0 * (patterns.deltas.shape[1] + 1)
    start = np.zeros(problem.X.shape[1])
    rate = float(np.clip(problem.share @ problem.y, 1e-6, 1.0 - 1e-6))
    start[-1] = math.log(rate / (1.0 - rate))
    at = _Inner(start, np.ones(patterns.shares.size), 0.5 if eps else 0.0, 0.5 if eps else 1.0)
    game = _Barrier(problem, patterns, rho, eps, 0.1)
    last, steps, done = GAP / constraints, 0, False
    while True:
        final = game.mu <= last
        value = game.value(at)
        while steps < STEPS:
            step, decrement, _ = game.newton(at)
            steps += 1
            if (
                decrement <= (1e-3 if final else 0.1) * game.mu
            ):  # full steps converge, and values are too rough
                before, done = math.inf, final
                while decrement < 0.5 * before:
                    at, before = at.moved(step, min(1.0, 0.9 * game.room(at, step))), decrement
                    if not final or decrement <= 1e-8 * game.mu:
                        break
                    step, decrement, _ = game.newton(at)
                    steps += 1
                break
            length = min(1.0, 0.99 * game.room(at, step))
            new = at.moved(step, length)
            while game.value(new) > value - 0.1 * length * decrement and length > 1e-9:
                length *= 0.5
                new = at.moved(step, length)
            if length <= 1e-9:
                done = final and decrement <= constraints * game.mu
                break
            at, value = new, game.value(new)
        if final or steps >= STEPS:
            break
        game.mu = max(0.1 * game.mu, last)
    gradient = game.newton(at)[2]
    bound = game.objective(at) - constraints * game.mu - FREE / 2.0 * float(at.x[-1]) ** 2
    return _End(at.x, bound, float(np.linalg.norm(gradient)), steps, done)


# ---------------------------------------------------------------------- network


@dataclass(frozen=True, eq=False)
class Network:
    """One hidden layer of ReLUs and one logit.

    Attributes
    ----------
    W1, b1
        Of the hidden layer, shape (d, h) and (h,).
    w2, b2
        Of the logit, shape (h,) and a number.
    """

    W1: Floats
    b1: Floats
    w2: Floats
    b2: float

    def logit(self, X: Floats) -> Floats:
        """Return the logit of rows, shape (n, d); the same bits for any number of threads."""
        with threadpool_limits(1):
            return _forward(self, X)[1]


Gradient = tuple[Floats, Floats, Floats, float]
"""Derivatives in ``W1``, ``b1``, ``w2`` and ``b2``."""


def _forward(network: Network, X: Floats) -> tuple[Floats, Floats]:
    """Return the hidden layer, shape (n, h), and the logit, shape (n,)."""
    return _rectified(network, _sums(network, X))


def _sums(network: Network, X: Floats) -> Floats:
    """Return the hidden layer before it is cut at 0, shape (n, h)."""
    sums = X @ network.W1
    sums += network.b1
    return np.asarray(sums)


def _rectified(network: Network, sums: Floats) -> tuple[Floats, Floats]:
    """Return the hidden layer, which takes the place of its sums, and the logit."""
    np.maximum(sums, 0.0, out=sums)
    return sums, np.asarray(sums @ network.w2 + network.b2)


def _change(s: Floats, other: Floats) -> Floats:
    """Return the squared change of cut logits."""
    return np.asarray((np.clip(s, -CLIP, CLIP) - np.clip(other, -CLIP, CLIP)) ** 2)


@dataclass(frozen=True, eq=False)
class Worst:
    """The worst variant of each row.

    Attributes
    ----------
    rows
        The variants, shape (m, d).
    which
        Number of each; -1 where none changes the logit, and the row is its own.
    change
        Squared change of the cut logits, shape (m,).
    """

    rows: Floats
    which: Ints
    change: Floats


def worst_variant(network: Network, X: Floats, variants: Variants, rows: Ints) -> Worst:
    """Return the variant of each row that changes the logit most.

    Parameters
    ----------
    network
        The model.
    X
        The rows themselves, shape (m, d).
    variants
        Of all rows.
    rows
        Which of them ``X`` holds, shape (m,).
    """
    listed = _Listed.of(X, variants, rows)
    with threadpool_limits(1):
        sums = _sums(network, X)
        found = _worst(network, sums, _rectified(network, sums.copy())[1], listed)
    return listed.worst(X, found)


@dataclass(frozen=True, eq=False)
class _Listed:
    """Variants of rows in the columns that any of them changes: most change few, and a hidden layer adds up.

    ``columns`` has shape (C,); ``own``, (n, C), and ``values``, (n, K, C), are of the rows.
    """

    columns: Ints
    own: Floats
    values: Floats

    @classmethod
    def of(cls, X: Floats, variants: Variants, rows: Ints) -> _Listed:
        """Return the variants of rows, whose values ``X`` holds."""
        columns = _columns(X, variants, rows)
        values = [variants.variant(k, rows)[:, columns] for k in range(variants.many)]
        full = np.stack(values, axis=1) if values else np.zeros((len(X), 0, 0))
        return cls(columns, X[:, columns], full)

    def worst(self, X: Floats, found: _Found) -> Worst:
        """Return the worst variants as whole rows, of rows ``X``."""
        out, changed = X.copy(), np.flatnonzero(found.which >= 0)
        out[np.ix_(changed, self.columns)] = self.values[changed, found.which[changed]]
        return Worst(out, found.which, found.change)

    @property
    def added(self) -> Floats:
        """What the variants add, shape (n, K, C)."""
        return self.values - self.own[:, None]


def _columns(X: Floats, variants: Variants, rows: Ints) -> Ints:
    """Return the columns that any variant changes, shape (C,)."""
    changed = np.zeros(X.shape[1], dtype=bool)
    for k in range(variants.many):
        changed |= (variants.variant(k, rows) != X).any(axis=0)
    return np.flatnonzero(changed)


@dataclass(frozen=True, eq=False)
class _Kinds:
    """Variants of all rows, in the columns that any changes, and the same for rows of a kind: few have their own.

    ``columns`` has shape (C,), ``own`` (n, C), ``values`` (G, K, C), ``kind``, which says those of each row, (n,).
    """

    columns: Ints
    own: Floats
    values: Floats
    kind: Ints

    @classmethod
    def of(cls, X: Floats, variants: Variants) -> _Kinds:
        """Return the variants of all rows."""
        rows = np.arange(len(X))
        columns, kind = _columns(X, variants, rows), np.zeros(len(X), dtype=np.int64)
        for k in range(variants.many):
            same = distinct_rows(variants.variant(k, rows)[:, columns])[1]
            kind = distinct_rows(np.stack([kind, same], axis=1))[1]
        first = np.unique(kind, return_index=True)[1]
        values = [variants.variant(k, first)[:, columns] for k in range(variants.many)]
        full = np.stack(values, axis=1) if values else np.zeros((first.size, 0, 0))
        return cls(columns, X[:, columns], full, kind)

    def take(self, rows: Ints) -> _Listed:
        """Return those of some rows."""
        return _Listed(self.columns, self.own[rows], self.values[self.kind[rows]])


@dataclass(frozen=True, eq=False)
class _Found:
    """The worst variant of each row: its number, the change of the logit, and what it adds, shape (m, C)."""

    which: Ints
    change: Floats
    added: Floats


def _worst(network: Network, sums: Floats, s: Floats, listed: _Listed) -> _Found:
    """Return the worst variant of each row, whose hidden sums and logits are known."""
    weights, added = network.W1[listed.columns], listed.added
    which, most = np.full(s.size, -1), np.zeros(s.size)
    for k in range(added.shape[1]):
        there = added[:, k] @ weights
        there += sums
        change = _change(s, _rectified(network, there)[1])
        worse = change > most
        which[worse], most[worse] = k, change[worse]
    some = np.flatnonzero(which >= 0)
    best = np.zeros((s.size, listed.columns.size))
    best[some] = added[some, which[some]]
    return _Found(which, most, best)


def free_steps(
    delta: Floats, slopes: Floats, metric_inverse: Floats | None, share: Floats, eps: float
) -> Floats:
    """Return the steps beyond the worst moves that change linearised logits most.

    They maximise ``E (D_i + g_i'u_i)^2`` over steps whose ``u' Sigma u`` is ``eps`` on average.

    Parameters
    ----------
    delta
        ``D``, change of the logit by the move, shape (m,).
    slopes
        ``g``, slope of the logit after the move, shape (m, d).
    metric_inverse
        ``Sigma^+``, shape (d, d); None for the identity.
    share
        Weights of the rows, of sum 1, shape (m,).
    eps
        Mean cost.
    """
    pull = slopes if metric_inverse is None else slopes @ metric_inverse
    q = np.einsum("ij,ij->i", slopes, pull)
    top = int(np.argmax(np.where(share > 0, q, -1.0)))
    most, mean = float(q[top]), float(share @ (q * delta**2))
    if eps <= 0 or most <= 0:
        return np.zeros_like(slopes)
    back = most - np.minimum(q, most)

    def cost(above: float) -> Floats:
        return np.asarray(share * q * (delta / (above + back)) ** 2)

    low, high = 1e-9 * most, math.sqrt(mean / eps)
    if (
        high <= low or cost(low).sum() <= eps
    ):  # lambda is the greatest q: the steepest row spends what is left
        spent = cost(low)
        spent[top] = 0.0
        steps = (delta / (low + back))[:, None] * pull
        length = math.sqrt(max(eps - float(spent.sum()), 0.0) / (float(share[top]) * most))
        steps[top] = (length if delta[top] >= 0 else -length) * pull[top]
        return np.asarray(steps)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if cost(middle).sum() > eps else (low, middle)
    return np.asarray((delta / (high + back))[:, None] * pull)


LENGTHS = np.array([1.0, 3.0])
"""Lengths, in roots of the radius, of the steps along the slope that training tries beside the best step for linearised
logits: a plan may leave most rows where they are and move a few far."""


@dataclass(frozen=True, eq=False)
class _Ascent:
    """What the free steps need: radius, metric, its inverse, and bounds."""

    eps: float
    metric: Floats
    inverse: Floats
    bounds: Floats

    @classmethod
    def of(cls, eps: float, metric_inverse: Floats | None, bounds: Floats) -> _Ascent:
        """Return it for a metric's inverse; a column that is 0 in it stays as it is."""
        inverse = np.eye(bounds.shape[1]) if metric_inverse is None else metric_inverse
        return cls(eps, np.linalg.pinv(inverse, hermitian=True), inverse, bounds)

    def cost(self, steps: Floats) -> Floats:
        """Return ``u' Sigma u`` of each row."""
        return np.einsum("ij,ij->i", steps @ self.metric, steps)

    def inside(self, starts: Floats, steps: Floats) -> Floats:
        """Return the rows with their steps, cut at the bounds; what does not move stays to the bit."""
        return np.where(steps == 0.0, starts, np.clip(starts + steps, self.bounds[0], self.bounds[1]))

    def moved(self, network: Network, X: Floats, listed: _Listed, share: Floats) -> Floats:
        """Return rows moved so that the logits change most, as far as a few steps find it.

        Of all places that were visited, the bare moves among them, rows get the best for the exact multiplier of the
        radius over them.
        """
        sums = _sums(network, X)
        _, s = _rectified(network, sums.copy())
        starts = listed.worst(X, _worst(network, sums, s, listed)).rows
        found = _Visited(s, self)
        there = found.add(network, starts, starts)
        self.linear(network, found, starts, share)
        sign = np.where(there >= s, 1.0, -1.0)
        for way in (sign, -sign):  # where variants change little, the other way may be the worse one
            self.along(network, found, starts, way, LENGTHS, 1)
        return found.plan(share).near

    def linear(self, network: Network, found: _Visited, starts: Floats, share: Floats) -> None:
        """Visit where the best steps for linearised logits lead."""
        there, slopes = _slope(network, starts)
        steps = free_steps(there - found.s, slopes, self.inverse, share, self.eps)
        found.add(network, starts, self.inside(starts, steps))

    def along(
        self, network: Network, found: _Visited, starts: Floats, sign: Floats, lengths: Floats, turns: int
    ) -> None:
        """Visit where steps of some lengths lead along the slope, up or down, each from where the last one led."""
        here = starts
        for length in lengths * math.sqrt(self.eps):
            for _ in range(turns):
                pull = (sign[:, None] * _slope(network, here)[1]) @ self.inverse
                here = self.stretched(starts, pull, length)
                found.add(network, starts, here)

    def stretched(self, starts: Floats, pull: Floats, length: float) -> Floats:
        """Return rows a step of a length along a direction: what the bounds cut off, other columns take over."""
        rows, free = starts, pull
        for _ in range(3):
            left, more = length**2 - self.cost(rows - starts), self.cost(free)
            steps = np.sqrt(np.maximum(left, 0.0) / np.where(more > 0, more, np.inf))[:, None] * free
            rows = self.inside(rows, steps)
            free = np.where((rows <= self.bounds[0]) | (rows >= self.bounds[1]), 0.0, pull)
        return rows


class _Visited:
    """Where rows may move to, with what that changes and costs; the first are free."""

    def __init__(self, s: Floats, ascent: _Ascent) -> None:
        self.s, self.ascent = s, ascent
        self.rows: list[Floats] = []
        self.gains: list[Floats] = []
        self.costs: list[Floats] = []

    def add(self, network: Network, starts: Floats, rows: Floats) -> Floats:
        """Add a place for each row, which lies a step from its free start; returns the logits there."""
        there = _forward(network, rows)[1]
        self.rows.append(rows)
        self.gains.append(_change(self.s, there))
        self.costs.append(self.ascent.cost(rows - starts))
        return there

    def plan(self, share: Floats) -> Plan:
        """Return the best plan over what was visited: the exact multiplier's, two places for rows at a tie."""
        gains, costs = np.stack(self.gains, axis=1), np.stack(self.costs, axis=1)
        n, many = gains.shape
        number = np.repeat(np.arange(n), many)
        eps = self.ascent.eps
        price = regularizer_empirical(
            number, gains.ravel(), costs.ravel(), eps, many=n, weight=share
        ).multiplier
        every, ends = np.arange(n), []
        for factor in (1.0 + TIE, 1.0 - TIE):
            best = np.argmax(gains - price * factor * costs, axis=1)
            spent = float(share @ costs[every, best])
            ends.append((best, spent))
        (near, low), (far, high) = ends
        mixed = float(np.clip((eps - low) / (high - low), 0.0, 1.0)) if high > low else 0.0
        rows = np.stack(self.rows, axis=1)
        value = float(share @ ((1.0 - mixed) * gains[every, near] + mixed * gains[every, far]))
        spent = (1.0 - mixed) * low + mixed * high
        return Plan(rows[every, near], rows[every, far], mixed, value, spent)


TIE = 1e-9
"""Relative distance from the exact multiplier at which rows take their places: ties go either way."""


@dataclass(frozen=True, eq=False)
class Plan:
    """A transport of rows: of each, a share goes to one place and the rest to another.

    Attributes
    ----------
    near, far
        The places, shape (n, d); the same for all rows but those at a tie.
    mixed
        Share that goes far.
    value, cost
        Mean squared change of the cut logits, and mean cost.
    """

    near: Floats
    far: Floats
    mixed: float
    value: float
    cost: float


def _slope(network: Network, X: Floats) -> tuple[Floats, Floats]:
    """Return the logits of rows, shape (n,), and their slopes, shape (n, d)."""
    hidden, s = _forward(network, X)
    return s, ((hidden > 0) * network.w2) @ network.W1.T


def network_gradient(
    network: Network, X: Floats, y: Floats, share: Floats, moved: Floats, rho: float
) -> tuple[float, Gradient]:
    """Return value and gradient of the mean log loss plus ``rho`` times the mean squared change of the cut logits.

    Parameters
    ----------
    network
        Where.
    X, y, share
        Rows, shape (m, d), labels and weights of sum 1, shape (m,) each.
    moved
        The rows they are compared with, shape (m, d), held fixed: by Danskin's theorem, with the worst ones, the
        gradient is that of the maximum.
    rho
        Weight of the change.
    """
    (hidden, s), (there, s_there) = _forward(network, X), _forward(network, moved)
    value, slope, pull = _slopes(s, s_there, y, share, rho)
    back, more = _back(network, hidden, slope), _back(network, there, pull)
    first = X.T @ back + moved.T @ more
    outer = slope @ hidden + pull @ there
    return value, (first, (back + more).sum(axis=0), outer, float(slope.sum() + pull.sum()))


def _slopes(s: Floats, there: Floats, y: Floats, share: Floats, rho: float) -> tuple[float, Floats, Floats]:
    """Return the objective and its derivatives in the logits of the rows, and in those they are compared with."""
    cut, far = np.clip(s, -CLIP, CLIP), np.clip(there, -CLIP, CLIP)
    value = float(share @ (np.logaddexp(0.0, s) - y * s + rho * (cut - far) ** 2))
    pull = 2.0 * rho * share * (cut - far)
    slope = share * (expit(s) - y) + np.where(np.abs(s) < CLIP, pull, 0.0)
    return value, slope, np.where(np.abs(there) < CLIP, -pull, 0.0)


def _back(network: Network, hidden: Floats, slope: Floats) -> Floats:
    """Return derivatives in the sums of the hidden layer, shape (n, h), from those in the logits."""
    back = slope[:, None] * network.w2
    back *= hidden > 0
    return np.asarray(back)


def _flip_gradient(
    network: Network, X: Floats, y: Floats, share: Floats, listed: _Listed, rho: float
) -> Gradient:
    """Return the gradient where rows are compared with their worst variants, from what the variants add.

    That of :func:`network_gradient`, to rounding: a variant changes few columns, so that its hidden sums are those of
    its row and a little more, and the products with whole rows are made once.
    """
    if rho == 0 or not listed.columns.size:
        hidden, s = _forward(network, X)
        _, slope, _ = _slopes(s, s, y, share, 0.0)
        back = _back(network, hidden, slope)
        return X.T @ back, back.sum(axis=0), slope @ hidden, float(slope.sum())
    sums = _sums(network, X)
    hidden, s = _rectified(network, sums.copy())
    added = _worst(network, sums, s, listed).added
    sums += added @ network.W1[listed.columns]
    there, s_there = _rectified(network, sums)
    _, slope, pull = _slopes(s, s_there, y, share, rho)
    back, more = _back(network, hidden, slope), _back(network, there, pull)
    back += more
    first = X.T @ back
    first[listed.columns] += added.T @ more
    return first, back.sum(axis=0), slope @ hidden + pull @ there, float(slope.sum() + pull.sum())


@dataclass(eq=False)
class _Adam:
    """Adam's moments, of all parameters in one vector."""

    rate: float
    first: Floats
    second: Floats
    count: int = 0

    @classmethod
    def of(cls, rate: float, size: int) -> _Adam:
        """Return it without any past."""
        return cls(rate, np.zeros(size), np.zeros(size))

    def step(self, gradient: Floats) -> Floats:
        """Return the step."""
        self.count += 1
        self.first += 0.1 * (gradient - self.first)
        self.second += 0.001 * (gradient**2 - self.second)
        scale = math.sqrt(1.0 - 0.999**self.count) / (1.0 - 0.9**self.count)
        return -self.rate * scale * self.first / (np.sqrt(self.second) + 1e-8)


@dataclass(frozen=True, eq=False)
class _Draw:
    """Rows drawn in proportion to their weights, as many of each part; a part is the rows of a class, or all."""

    parts: tuple[tuple[Ints, Floats], ...]

    @classmethod
    def of(cls, y: Floats, share: Floats, *, balanced: bool) -> _Draw:
        """Return it for labels and weights."""
        masks = [y == 0, y == 1] if balanced else [np.ones(y.size, dtype=bool)]
        kept = [np.flatnonzero(mask & (share > 0)) for mask in masks]
        return cls(tuple((rows, np.cumsum(share[rows])) for rows in kept if rows.size))

    def rows(self, batch: int, rng: np.random.Generator) -> Ints:
        """Return the numbers of some rows, with replacement."""
        sizes = [(batch + i) // len(self.parts) for i in range(len(self.parts))]
        drawn = [
            rows[np.minimum(np.searchsorted(sums, rng.random(size) * sums[-1], side="right"), rows.size - 1)]
            for size, (rows, sums) in zip(sizes, self.parts, strict=True)
        ]
        return np.concatenate(drawn)


class _Trainer:
    """A network in training, by Adam on rows drawn with replacement in proportion to their weights."""

    def __init__(
        self,
        X: Floats,
        y: Floats,
        share: Floats,
        variants: Variants,
        ascent: _Ascent,
        *,
        hidden: int,
        rho: float,
        l2: float,
        batch: int,
        seed: int,
        balanced: bool,
    ) -> None:
        d = X.shape[1]
        self.X, self.y, self.rho, self.l2, self.ascent = X, y, rho, l2, ascent
        self.kinds = _Kinds.of(X, variants)
        self.rng = np.random.default_rng(seed)
        self.draw = _Draw.of(y, share, balanced=balanced)
        self.batch, self.even = batch, np.full(batch, 1.0 / batch)
        rate = 0.5 if balanced else float(np.clip(share @ y, 1e-6, 1.0 - 1e-6))
        first = self.rng.normal(size=(d, hidden)) * math.sqrt(2.0 / d)
        # nothing goes out of the hidden layer at first: the logit begins as the best constant
        start = (first.ravel(), np.zeros(hidden), np.zeros(hidden), [math.log(rate / (1.0 - rate))])
        self.values = np.concatenate(start)
        self.shape = d, hidden
        self.shrunk = np.concatenate([np.ones(first.size), np.zeros(hidden), np.ones(hidden), [0.0]])

    @property
    def network(self) -> Network:
        """The network as it is."""
        return _unpacked(self.values, *self.shape)

    def run(self, steps: int, adam: _Adam) -> None:
        """Go some steps."""
        for _ in range(steps):
            rows = self.draw.rows(self.batch, self.rng)
            some, network = self.kinds.take(rows), self.network
            if self.ascent.eps > 0 and self.rho > 0:
                moved = self.ascent.moved(network, self.X[rows], some, self.even)
                _, gradient = network_gradient(
                    network, self.X[rows], self.y[rows], self.even, moved, self.rho
                )
            else:
                gradient = _flip_gradient(network, self.X[rows], self.y[rows], self.even, some, self.rho)
            whole = np.concatenate([np.ravel(part) for part in gradient])
            whole += 2.0 * self.l2 * self.shrunk * self.values
            self.values = self.values + adam.step(whole)


def fit_network(
    X: Floats,
    y: Floats,
    weight: Floats | None,
    variants: Variants,
    *,
    hidden: int = 100,
    rho: float,
    eps: float = 0.0,
    l2: float = 0.0,
    steps: int,
    batch: int = 1000,
    rate: float = 1e-3,
    seed: int,
    balanced: bool,
    bounds: Floats | None = None,
    metric_inverse: Floats | None = None,
) -> Network:
    """Return a network of little loss whose logit the worst variants change little, after so many steps.

    Parameters
    ----------
    X, y, weight
        Rows, shape (n, d), their labels, 0 or 1, and weights, shape (n,) each; None for weights of 1.
    variants
        Listed variants of these rows.
    hidden
        Number of ReLUs.
    rho
        Weight of ``R``.
    eps
        Mean cost of the steps beyond the variants; 0 for none.
    l2
        Weight of the squared weights of both layers, without their intercepts.
    steps, batch, rate
        Of Adam: steps, rows drawn for each (with replacement, in proportion to their weights), and length.
    seed
        Of the first weights and of the draws.
    balanced
        Whether half of the rows drawn are of either class.
    bounds
        Least and greatest value of each column, shape (2, d), for the free steps; None for those of ``X``.
    metric_inverse
        ``Sigma^+`` of the free steps, shape (d, d); None for the identity.
    """
    share, ascent = _prepared(X, weight, rho, eps, bounds, metric_inverse)
    with threadpool_limits(1):
        trainer = _Trainer(
            X,
            y,
            share,
            variants,
            ascent,
            hidden=hidden,
            rho=rho,
            l2=l2,
            batch=batch,
            seed=seed,
            balanced=balanced,
        )
        trainer.run(steps, _Adam.of(rate, trainer.values.size))
    return trainer.network


def _prepared(
    X: Floats,
    weight: Floats | None,
    rho: float,
    eps: float,
    bounds: Floats | None,
    metric_inverse: Floats | None,
) -> tuple[Floats, _Ascent]:
    """Return shares of the rows and what free steps need."""
    if not 0 <= rho < math.inf or not 0 <= eps < math.inf:
        raise ValueError(f"rho and eps must be finite and not negative: {rho}, {eps}")
    limits = np.array([X.min(axis=0), X.max(axis=0)]) if bounds is None else np.asarray(bounds, dtype=float)
    return _shares(weight, len(X)), _Ascent.of(eps, metric_inverse, limits)


CHECK, PATIENCE = 50, 10
"""Steps between two looks at the rows that judge, and looks without a gain after which a rate is done."""

RATES = (1e-3, 1e-4)
"""Lengths of Adam's steps, one after the other: the second settles what the first leaves jumping."""

MOST_STEPS = 20_000
"""Steps after which training is given up as not converged; Adult takes two to five thousand."""

HIDDEN, ROWS_PER_HIDDEN, FEWEST = 100, 10, 4
"""ReLUs at most, rows that each of them takes, and ReLUs at least: 56 rows do not carry a hundred."""


@dataclass(frozen=True, eq=False)
class NetworkFit:
    """A network and how its training ended.

    Attributes
    ----------
    network
        That of the least objective on the rows that judge.
    objective
        Mean log loss plus ``rho R`` on these rows, ``R`` of the variants and of the steps that training tries.
    steps
        Of Adam.
    converged
        Whether the objective on these rows stood still at the least rate, before the steps ran out.
    """

    network: Network
    objective: float
    steps: int
    converged: bool


def stopped_network(
    X: Floats,
    y: Floats,
    weight: Floats | None,
    variants: Variants,
    judged: Ints,
    *,
    rho: float,
    eps: float = 0.0,
    l2: float = 0.0,
    seed: int,
    bounds: Floats | None = None,
    metric_inverse: Floats | None = None,
) -> NetworkFit:
    """Return a network that is trained until rows it does not learn from say that it gets no better.

    Parameters
    ----------
    X, y, weight, variants, rho, eps, l2, seed, bounds, metric_inverse
        As for :func:`fit_network`.
    judged
        Numbers of the rows that judge and are not learned from, shape (m,); none for all rows to do both.
    """
    share, ascent = _prepared(X, weight, rho, eps, bounds, metric_inverse)
    learned = np.setdiff1d(np.arange(len(X)), judged) if judged.size else np.arange(len(X))
    judged = judged if judged.size else learned
    kinds, own = _Kinds.of(X, variants).take(judged), share[judged] / share[judged].sum()

    def objective(network: Network) -> float:
        s = _forward(network, X[judged])[1]
        value = float(own @ (np.logaddexp(0.0, s) - y[judged] * s))
        if rho == 0:
            return value
        if eps > 0:
            moved = ascent.moved(network, X[judged], kinds, own)
            return value + rho * float(own @ _change(s, _forward(network, moved)[1]))
        return value + rho * float(own @ _worst(network, _sums(network, X[judged]), s, kinds).change)

    with threadpool_limits(1):
        trainer = _Trainer(
            X[learned],
            y[learned],
            share[learned] / share[learned].sum(),
            _Some(variants, learned),
            ascent,
            hidden=int(np.clip(learned.size // ROWS_PER_HIDDEN, FEWEST, HIDDEN)),
            rho=rho,
            l2=l2,
            batch=min(1000, learned.size),
            seed=seed,
            balanced=False,
        )
        best, value, steps = trainer.values, objective(trainer.network), 0
        for rate in RATES:
            trainer.values, adam, still = best, _Adam.of(rate, best.size), 0
            while still < PATIENCE and steps < MOST_STEPS:
                trainer.run(CHECK, adam)
                steps += CHECK
                found = objective(trainer.network)
                still = still + 1
                if found < value:
                    best, value, still = trainer.values, found, 0
    return NetworkFit(_unpacked(best, *trainer.shape), value, steps, steps < MOST_STEPS)


@dataclass(frozen=True, eq=False)
class _Some:
    """Variants of some rows."""

    variants: Variants
    kept: Ints

    @property
    def many(self) -> int:
        return self.variants.many

    def variant(self, k: int, rows: Ints) -> Floats:
        return self.variants.variant(k, self.kept[rows])


def _unpacked(values: Floats, d: int, hidden: int) -> Network:
    """Return the network whose parameters one vector holds."""
    first, b1, w2, b2 = np.split(values, np.cumsum([d * hidden, hidden, hidden]))
    return Network(first.reshape(d, hidden), b1, w2, float(b2[0]))


# ---------------------------------------------------------------------- how far a network's logit moves

RADII = 2.0 ** (np.arange(-3, 9) / 2.0)
"""Lengths of the steps that the search for a plan tries, in roots of the radius: a plan may move few rows far."""

TURNS = 3
"""Steps that the search takes at each length, each along the slope where the last one led."""

SWEEPS = 60
"""Rounds of the relaxation of the slope's bound; what is left then is added to the bound."""

SPACING, REACH = 1.05, 100.0
"""Ratio of the lengths at which rows are bounded, and the greatest in roots of the radius; one over it is the least."""

MOST_LISTED = 16
"""Variants that are bounded one by one; of more, all by the greatest slope."""


@dataclass(frozen=True, eq=False)
class NetworkRegularizer:
    """``R`` of a network on some rows, from both sides.

    Attributes
    ----------
    plan
        A plan that keeps the radius; its value is a lower bound.
    upper
        What no plan within the bounds of the columns exceeds.
    trained
        The value that the steps reach which training takes.
    slope
        What no slope of the logit exceeds anywhere: ``sqrt(g' Sigma^+ g)``.
    """

    plan: Plan
    upper: float
    trained: float
    slope: float


def network_regularizer(
    network: Network,
    X: Floats,
    variants: Variants,
    *,
    eps: float,
    bounds: Floats,
    weight: Floats | None = None,
    metric_inverse: Floats | None = None,
) -> NetworkRegularizer:
    r"""Return a plan that moves the logits of rows much, and a bound that holds for all plans.

    **Below**: steps along the slope, at many lengths and both ways, from the variants of the highest and the lowest
    logit, cut at the bounds; the exact plan over all that was visited.

    **Above**: with hidden sums ``z_j`` of a variant, a step of length ``r`` changes them by at most ``a_j r``, ``a_j =
    sqrt(W_j' Sigma^+ W_j)``, and a ReLU is off its slope by at most ``(a_j r - |z_j|)_+`` and never below it. So the
    logit rises by at most ``|g| r + sum_j (w_j)_+ (a_j r - |z_j|)_+``, falls by at most the same with ``(-w_j)_+``, and
    either by at most ``L r``. ``L`` is the greatest slope over all patterns of ReLUs, a quadratic program over signs,
    bounded by the dual of its semidefinite relaxation (Raghunathan et al.). Lengths between two of a grid count as the
    longer one and cost as the shorter one.

    Parameters
    ----------
    network, X, variants
        The model, the rows, shape (n, d), and their variants.
    eps
        Mean cost of the steps beyond the variants.
    bounds
        Least and greatest value of each column, shape (2, d).
    weight
        Of rows, shape (n,); None for 1 each.
    metric_inverse
        ``Sigma^+``, shape (d, d); None for the identity.

    References
    ----------
    A. Raghunathan, J. Steinhardt and P. Liang, *Certified defenses against adversarial examples*, ICLR 2018.
    """
    share, ascent = _prepared(X, weight, 0.0, eps, bounds, metric_inverse)
    values, vectors = np.linalg.eigh(ascent.inverse)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))).T
    rows = np.arange(len(X))
    listed = [X, *(variants.variant(k, rows) for k in range(variants.many))]
    with threadpool_limits(1):
        logits = np.stack([_forward(network, one)[1] for one in listed])
        plan = _searched(network, X, listed, logits, ascent, share)
        there = ascent.moved(network, X, _Kinds.of(X, variants).take(rows), share)
        trained = float(share @ _change(logits[0], _forward(network, there)[1]))
        slope = _steepest(root @ network.W1 * network.w2) if eps > 0 else 0.0
        upper = _bounded(network, listed, logits, root, slope, eps, share)
    return NetworkRegularizer(plan, max(upper, plan.value), trained, slope)


def _searched(
    network: Network, X: Floats, listed: Sequence[Floats], logits: Floats, ascent: _Ascent, share: Floats
) -> Plan:
    """Return the best plan over steps of many lengths, up from the highest variant and down from the lowest."""
    found, rows = _Visited(logits[0], ascent), np.arange(len(X))
    every = np.stack(listed)
    for sign, which in ((1.0, logits.argmax(axis=0)), (-1.0, logits.argmin(axis=0))):
        starts = every[which, rows]
        found.add(network, starts, starts)
        if ascent.eps > 0:
            ascent.linear(network, found, starts, share)
            ascent.along(network, found, starts, np.full(len(X), sign), RADII, TURNS)
    return found.plan(share)


def _bounded(
    network: Network,
    listed: Sequence[Floats],
    logits: Floats,
    root: Floats,
    slope: float,
    eps: float,
    share: Floats,
) -> float:
    """Return what no plan exceeds."""
    own = np.clip(logits[0], -CLIP, CLIP)
    top, bottom = logits.max(axis=0), logits.min(axis=0)
    bare = float(share @ np.maximum(_change(own, top), _change(own, bottom)))
    if eps == 0:
        return bare
    grid = (
        math.sqrt(eps)
        / REACH
        * SPACING ** np.arange(1 + math.ceil(2.0 * math.log(REACH) / math.log(SPACING)))
    )
    high, low = top[:, None] + slope * grid, bottom[:, None] - slope * grid
    if len(listed) <= MOST_LISTED:
        reach = np.linalg.norm(root @ network.W1, axis=0)
        near_high, near_low = np.full_like(high, -np.inf), np.full_like(low, np.inf)
        for one, logit in zip(listed, logits, strict=True):
            sums = _sums(network, one)
            steep = np.linalg.norm(((sums > 0) * network.w2) @ network.W1.T @ root.T, axis=1)
            for j, radius in enumerate(grid):
                over = np.maximum(reach * radius - np.abs(sums), 0.0)
                up, down = over @ np.maximum(network.w2, 0.0), over @ np.maximum(-network.w2, 0.0)
                near_high[:, j] = np.maximum(near_high[:, j], logit + steep * radius + up)
                near_low[:, j] = np.minimum(near_low[:, j], logit - steep * radius - down)
        high, low = np.minimum(high, near_high), np.maximum(low, near_low)
    most = np.maximum(np.clip(high, -CLIP, CLIP) - own[:, None], own[:, None] - np.clip(low, -CLIP, CLIP))
    gains = np.column_stack([most, CLIP + np.abs(own)]) ** 2
    costs = np.concatenate([[0.0], grid]) ** 2
    number = np.repeat(np.arange(own.size), gains.shape[1])
    price = np.tile(costs, own.size)
    value = regularizer_empirical(number, gains.ravel(), price, eps, many=own.size, weight=share).value
    closed = (math.sqrt(bare) + slope * math.sqrt(eps)) ** 2
    return min(value, closed) * (1.0 + 1e-9)


def _steepest(V: Floats) -> float:
    """Return an upper bound of ``|V s|`` over ``s`` in ``[0, 1]^h``: by the semidefinite relaxation over signs."""
    half = 0.5 * np.column_stack([V.sum(axis=1), V])
    M = half.T @ half
    n = len(M)
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(math.ceil(math.sqrt(2.0 * n)) + 1, n))
    Z /= np.linalg.norm(Z, axis=0)
    for _ in range(SWEEPS):
        for i in range(n):
            g = Z @ M[:, i] - M[i, i] * Z[:, i]
            size = float(np.linalg.norm(g))
            if size > 0:
                Z[:, i] = g / size
    prices = np.diag(M) + np.linalg.norm(Z @ M - np.diag(M) * Z, axis=0)
    left = max(-float(np.linalg.eigvalsh(np.diag(prices) - M)[0]), 0.0)
    return math.sqrt(max(float(prices.sum()) + n * left, 0.0)) * (1.0 + 1e-9)


# ---------------------------------------------------------------------- observed rows


@dataclass(frozen=True, eq=False)
class EmpiricalRegularizer:
    """``R`` over listed candidates.

    Attributes
    ----------
    value
        The dual at ``multiplier``, which is at least ``R``.
    gap
        How far it may be above ``R``: above what tangents of the dual, a lower bound, leave.
    multiplier
        ``lambda`` at the optimum.
    """

    value: float
    gap: float
    multiplier: float


def regularizer_empirical(
    rows: Ints,
    gains: Floats,
    distances: Floats,
    eps: float,
    *,
    many: int,
    weight: Floats | None = None,
) -> EmpiricalRegularizer:
    r"""Return ``R`` over transport plans to listed candidates.

    .. math::
        \max_{P \ge 0} \sum P_{ij} d_Y(i, j) \;\text{s.t.}\; \sum_j P_{ij} \le w_i,\;
        \sum P_{ij} d_X(i, j) \le \epsilon \quad = \quad \min_{\lambda \ge 0} \lambda \epsilon
        + \sum_i w_i \max(0, \max_j d_Y(i, j) - \lambda d_X(i, j))

    To stay costs nothing and gains nothing. The dual is convex and piecewise linear in one number: tangents from both
    sides meet in a lower bound and in the next trial, and bisection keeps the bracket shrinking.

    Parameters
    ----------
    rows
        Row of each candidate, from 0, in any order, shape (m,).
    gains, distances
        ``d_Y`` and ``d_X`` of each, finite, distances not negative, shape (m,).
    eps
        Mean distance.
    many
        Number of rows.
    weight
        Of rows, shape (many,); None for 1 each.
    """
    share = _shares(weight, many)
    if not 0 <= eps < math.inf:
        raise ValueError(f"eps must be finite and not negative: {eps}")
    if not (np.isfinite(gains).all() and np.isfinite(distances).all()) or distances.min(initial=0.0) < 0:
        raise ValueError("gains and distances must be finite, and distances not negative")
    useful = np.flatnonzero(gains > 0)
    useful = useful[np.argsort(rows[useful], kind="stable")]
    if not useful.size:
        return EmpiricalRegularizer(0.0, 0.0, 0.0)
    gain, cost, row = gains[useful], distances[useful], rows[useful]
    starts = np.flatnonzero(np.append(True, row[1:] != row[:-1]))
    counts = np.diff(np.append(starts, row.size))
    mass = share[row[starts]]

    def at(multiplier: float) -> tuple[float, float]:
        """Return the dual and its slope from the right: of the best candidates, the nearest moves."""
        left = gain - multiplier * cost
        best = np.maximum.reduceat(left, starts)
        near = np.where(left >= np.repeat(best, counts), cost, np.inf)
        moved = np.where(best > 0, np.minimum.reduceat(near, starts), 0.0)
        return multiplier * eps + float(mass @ np.maximum(best, 0.0)), eps - float(mass @ moved)

    low, (least, slope) = 0.0, at(0.0)
    if slope >= 0:
        return EmpiricalRegularizer(least, 0.0, 0.0)
    far = cost > 0
    high = float((gain[far] / cost[far]).max()) * (1.0 + 1e-12)
    most, rise = at(high)
    value, multiplier, bound = (*min((least, low), (most, high)), -math.inf)
    for turn in range(200):
        meet = (most - least + slope * low - rise * high) / (slope - rise) if slope < rise else high
        bound = max(bound, least + slope * (meet - low))
        trial = meet if turn % 3 and low < meet < high else (low + high) / 2
        if not low < trial < high:
            break
        found, lean = at(trial)
        if found < value:
            value, multiplier = found, trial
        if value - bound <= 4e-16 * abs(value):
            break
        if lean < 0:
            low, least, slope = trial, found, lean
        else:
            high, most, rise = trial, found, lean
    return EmpiricalRegularizer(value, max(value - bound, 0.0), multiplier)


def regularizer_flips(logit: Floats, variants: Floats, weight: Floats | None = None) -> float:
    """Return ``R`` with ``eps = 0``: the mean of the worst squared change of the logit, cut at plus and minus 8.

    Parameters
    ----------
    logit
        Of the rows, shape (n,).
    variants
        Of their variants, shape (n, K), K >= 0.
    weight
        Of rows, shape (n,); None for 1 each.
    """
    return float(_shares(weight, logit.size) @ _change(logit[:, None], variants).max(axis=1, initial=0.0))


# ---------------------------------------------------------------------- equal rates

TAU = 1e-9
"""Smoothing at which the search for equal rates ends."""

Chances = Sequence[tuple[Floats, Floats]]
"""For each protected attribute ``P(a=k | x, y=1)`` and ``P(a=k | x, y=0)``, shape (n, K) each."""


@dataclass(frozen=True, eq=False)
class EqualRates:
    """A rule of nearly equal rates, that sees chances of groups but not groups: accept where :meth:`score` > 0.

    Attributes
    ----------
    mu
        Multiplier of each group of each attribute: of ``y = 1``, then of ``y = 0``, shape (K,) each.
    prior
        ``pi_0`` and ``pi_1``.
    cells
        ``pi_1k`` and ``pi_0k`` of each attribute.
    value, bound
        Balanced accuracy of the randomised decision that the search ended with, by the chances it was given, and
        what no decision that keeps the tolerance can exceed.
    largest
        Largest ``|r_yk - r_y|`` of the rule on the rows of the fit.
    tied
        Share of the rows on which that decision is random. Where it is not about 0, many rows have the same chances
        and lie at ``c = 0``: then the rule may be off the tolerance, by up to what these rows weigh.
    converged
        Whether that decision keeps the tolerance, to rounding.
    """

    mu: tuple[tuple[Floats, Floats], ...]
    prior: tuple[float, float]
    cells: tuple[tuple[Floats, Floats], ...]
    value: float
    bound: float
    largest: float
    tied: float
    converged: bool

    def score(self, p: Floats, groups: Chances) -> Floats:
        """Return ``c`` of rows from ``P(y=1|x)``, shape (n,), and the chances of their groups.

        Added column by column, so that ``c`` of a row does not hang on the rows beside it: at the optimum many equal
        rows may lie at 0.
        """
        out = 0.5 * (p / self.prior[1] - (1.0 - p) / self.prior[0])
        for mu, cells, chances in zip(self.mu, self.cells, groups, strict=True):
            for y in (1, 0):
                q = p if y else 1.0 - p
                gaps = _gaps(q, chances[1 - y], self.prior[y], cells[1 - y])
                for price, gap in zip(mu[1 - y], gaps.T, strict=True):
                    out += price * gap
        return np.asarray(out)

    def priced(self, mu: Floats) -> EqualRates:
        """Return the rule of other multipliers, shape (J,): of each attribute those of ``y = 1``, then of ``y = 0``."""
        sizes = np.cumsum([part.size for pair in self.mu for part in pair])
        parts = np.split(mu, sizes[:-1])
        return replace(self, mu=tuple(zip(parts[::2], parts[1::2], strict=True)))


def _gaps(q: Floats, chances: Floats, prior: float, cells: Floats) -> Floats:
    """Return ``z_yk``, shape (n, K); 0 for groups that have no rows."""
    held = cells > 0
    ratio = np.where(held, chances / np.where(held, cells, 1.0), 1.0 / prior)
    return np.asarray(q[:, None] * (ratio - 1.0 / prior))


def _accept(c: Floats, tau: float) -> tuple[Floats, Floats]:
    """Return ``A`` and ``1 - A`` that maximise ``c A + tau (log A + log(1 - A))``."""
    less = 2.0 * tau / (np.abs(c) + 2.0 * tau + np.sqrt(c**2 + 4.0 * tau**2))
    return np.where(c > 0, 1.0 - less, less), np.where(c > 0, less, 1.0 - less)


def equal_rates(p: Floats, groups: Chances, *, tolerance: float, weight: Floats | None = None) -> EqualRates:
    """Return the rule of the greatest balanced accuracy whose rates in groups are nearly the overall ones.

    The tolerance bounds, for every attribute, every one of its groups and ``y`` in (0, 1), how far the rate of the
    group among rows of label ``y`` is from the rate of all rows of that label: rates are shares accepted. Two groups
    then differ by at most twice as much; where there are two groups with shares ``s`` and ``1 - s`` of a label, by at
    most ``tolerance / max(s, 1 - s)``. Rates are those that the chances imply.

    Parameters
    ----------
    p
        ``P(y=1|x)``, shape (n,).
    groups
        For each attribute ``P(a=k | x, y=1)`` and ``P(a=k | x, y=0)``, shape (n, K) each; K may differ.
    tolerance
        At least 0.
    weight
        Of rows, shape (n,); None for 1 each.
    """
    share = _shares(weight, p.size)
    if not 0 <= tolerance < math.inf:
        raise ValueError(f"the tolerance must be finite and not negative: {tolerance}")
    prior = (float(share @ (1.0 - p)), float(share @ p))
    if min(prior) <= 0 or p.min() < 0 or p.max() > 1:
        raise ValueError("p must lie in [0, 1] and not be all 0 or all 1")
    cells = tuple((share @ (p[:, None] * g1), share @ ((1.0 - p)[:, None] * g0)) for g1, g0 in groups)
    columns = [np.zeros((p.size, 0))]
    for (g1, g0), (m1, m0) in zip(groups, cells, strict=True):
        columns += [_gaps(p, g1, prior[1], m1), _gaps(1.0 - p, g0, prior[0], m0)]
    z = np.concatenate(columns, axis=1)
    start = 0.5 * (p / prior[1] - (1.0 - p) / prior[0])
    with threadpool_limits(1):
        mu, accept, done = _priced(start, z, share, tolerance)
        c = start + z @ mu
        bound = 0.5 + float(share @ np.maximum(c, 0.0)) + tolerance * float(np.abs(mu).sum())
        value = 0.5 + float(share @ (start * accept))
        largest = float(np.abs((share * (c > 0)) @ z).max(initial=0.0))
    sizes = np.cumsum([g.shape[1] for pair in groups for g in pair])
    parts = np.split(mu, sizes[:-1]) if len(sizes) else []
    return EqualRates(
        tuple((parts[2 * i], parts[2 * i + 1]) for i in range(len(groups))),
        prior,
        cells,
        value,
        bound,
        largest,
        float(share @ ((accept > 0.01) & (accept < 0.99))),
        done,
    )


def _priced(start: Floats, z: Floats, share: Floats, tolerance: float) -> tuple[Floats, Floats, bool]:
    """Return the multipliers, the decision and whether it keeps the tolerance, by Newton's method as tau falls."""
    many = z.shape[1]
    mu = np.zeros(many)

    def at(mu: Floats, tau: float) -> tuple[float, Floats, Floats]:
        """Return the smoothed dual without constants, the decision, and the gaps that the bounds would allow."""
        c, turned = start + z @ mu, -2.0 * tolerance * mu
        yes, no = _accept(c, tau)
        value = float(share @ (c * yes + tau * (np.log(yes) + np.log(no))))
        if tolerance == 0:
            return value, yes, np.zeros(many)
        up, down = _accept(turned, tau)
        value += float((tolerance * mu + turned * up + tau * (np.log(up) + np.log(down))).sum())
        return value, yes, tolerance * (up - down)

    def curve(mu: Floats, tau: float) -> Floats:
        """Return the Hessian."""
        yes, no = _accept(start + z @ mu, tau)
        rows = z * np.sqrt(share / (tau * (yes**-2.0 + no**-2.0)))[:, None]
        out = rows.T @ rows
        if tolerance > 0:
            up, down = _accept(-2.0 * tolerance * mu, tau)
            out[np.diag_indices(many)] += 4.0 * tolerance**2 / (tau * (up**-2.0 + down**-2.0))
        return np.asarray(out)

    tau, off = 0.1, np.zeros(many)
    while True:
        value, yes, allowed = at(mu, tau)
        for _ in range(STEPS):
            off = (share * yes) @ z - allowed
            step = _direction(curve(mu, tau), off)
            decrement = -0.5 * float(off @ step)
            if decrement <= (1e-10 if tau <= TAU else 0.01) * tau:
                break
            length, new = 1.0, at(mu + step, tau)
            while new[0] > value - 0.1 * length * decrement and length > 1e-10:
                length *= 0.5
                new = at(mu + length * step, tau)
            if length <= 1e-10:
                break
            mu = mu + length * step
            value, yes, allowed = new
        if tau <= TAU:
            break
        tau = max(0.2 * tau, TAU)
    gap = np.abs((share * yes) @ z).max(initial=0.0)
    return mu, yes, bool(gap <= tolerance + 1e-7)
