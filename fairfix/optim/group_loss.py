r"""Bounded group loss: the least loss of a model whose loss in every group is bounded.

With group losses ``L_a``, shares ``p_a`` and bounds ``zeta_a``, over coefficients ``v`` of a linear model,

.. math::
    \min_v\; \sum_a p_a L_a(v) + \lambda \lVert v \rVert^2
    \quad\text{s.t.}\quad L_a(v) \le \zeta_a \text{ for each group } a ,

``L_a`` the mean square loss, or the mean log loss of the sigmoid; the intercept is free of the penalty. All is convex,
so one model is optimal and no mixture is better (Jensen). The dual is concave in the K multipliers ``m >= 0``:

.. math::
    \max_{m \ge 0}\; \min_v \sum_a (p_a + m_a) L_a(v) + \lambda \lVert v \rVert^2 - \sum_a m_a \zeta_a ,

with gradient ``L_a(v) - zeta_a`` and Hessian ``- g_a^T H^{-1} g_b``, ``g_a`` the gradient of ``L_a`` and ``H`` the
Hessian of the inner problem. For the square loss the inner problem is one linear system of the groups' Gram matrices,
whatever the number of rows; for the log loss it is a Newton fit from the last one. The multipliers are found by
projected Newton steps. Value and bound are both evaluated: their difference is the gap.

**Infeasible bounds.** ``t* = max_{mu in simplex} min_v sum_a mu_a (L_a(v) - zeta_a)`` is the least excess over the
bounds that some model reaches in all groups, by cutting planes. Where it is positive, ``mu`` proves that no model holds
the bounds, whatever the penalty.

**Any learner.** :func:`solve_members` has a learner fitted to reweighted rows, takes the best mixture of what was
found by a linear program, whose multipliers weigh the rows of the next fit, and averages the predictions, which costs
no more than the mixture. Nothing is certified there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

TINY = 1e-10
"""Ridge, in units of the Gram matrix, that keeps systems solvable where columns hang together."""

ROUNDS = 200
"""Most cutting planes."""

STEPS = 100
"""Most Newton steps on the multipliers, and inside on the coefficients."""


@dataclass(frozen=True, eq=False)
class GroupLossSolution:
    """A model within the bounds.

    Attributes
    ----------
    coef, intercept
        Of the linear form, shape (d,) and a number.
    losses, multipliers
        Loss and multiplier of each group, shape (K,) each.
    objective, bound
        Its penalised loss, and the certified least of any within the bounds.
    iterations
        Inner problems that were solved.
    converged
        Whether the gap is within tolerance.
    """

    coef: Floats
    intercept: float
    losses: Floats
    multipliers: Floats
    objective: float
    bound: float
    iterations: int
    converged: bool

    @property
    def gap(self) -> float:
        """How far the objective may lie above the least."""
        return self.objective - self.bound


@dataclass(frozen=True, eq=False)
class Infeasible:
    """A proof that no model holds the bounds.

    Attributes
    ----------
    weights
        ``mu``, of sum 1, shape (K,).
    excess
        ``t*``: every model has a group whose loss lies at least so far above its bound.
    losses
        Losses of the model that reaches it, shape (K,).
    certified
        Whether ``excess`` holds for all models, or only for those that were tried.
    """

    weights: Floats
    excess: float
    losses: Floats
    certified: bool = True


@dataclass(frozen=True, eq=False)
class _At:
    """Coefficients with the losses, gradients and Hessian there."""

    v: Floats
    losses: Floats
    slopes: Floats
    curvature: Floats


class _Linear:
    """Group losses of linear models. ``weights`` are of groups, shape (K,); coefficients end with the intercept."""

    def __init__(
        self, X: Floats, y: Floats, codes: Ints, weight: Floats | None, groups: int, l2: float
    ) -> None:
        self.A = np.column_stack([X, np.ones(len(X))])
        self.y, self.codes, self.groups = y, codes, groups
        w = np.ones(len(y)) if weight is None else weight
        mass = np.bincount(codes, w, groups)
        self.shares: Floats = mass / mass.sum()
        self.w: Floats = w / mass[codes]
        self.penalty = np.append(np.full(X.shape[1], l2), 0.0)
        self.solved = 0

    @cached_property
    def ridge(self) -> Floats:
        """Diagonal that keeps the systems solvable, shape (d + 1,)."""
        return TINY * np.maximum(np.average(self.A**2, axis=0, weights=self.w), 1e-300)

    def best(self, weights: Floats, penalised: float, start: Floats | None) -> _At:
        """Return the minimiser of the weighted group losses plus the penalty times ``penalised``."""
        raise NotImplementedError

    def at(self, v: Floats) -> Floats:
        """Return the group losses of coefficients, shape (K,)."""
        raise NotImplementedError


class _Square(_Linear):
    @cached_property
    def grams(self) -> tuple[Floats, Floats, Floats]:
        """Per group: Gram matrix, moments with y, mean of y squared; shapes (K, d, d), (K, d), (K,)."""
        parts = []
        for k in range(self.groups):
            i = self.codes == k
            A, y, w = self.A[i], self.y[i], self.w[i]
            parts.append(((A * w[:, None]).T @ A, A.T @ (w * y), float(w @ (y * y))))
        G, b, c = zip(*parts, strict=True)
        return np.stack(G), np.stack(b), np.array(c)

    def best(self, weights: Floats, penalised: float, start: Floats | None) -> _At:
        self.solved += 1
        G, b, _ = self.grams
        H = np.tensordot(weights, G, axes=1) + np.diag(penalised * self.penalty + weights.sum() * self.ridge)
        v = _solved(H, weights @ b)
        return _At(v, self.at(v), 2.0 * (G @ v - b), 2.0 * H)

    def at(self, v: Floats) -> Floats:
        G, b, c = self.grams
        return np.asarray(np.maximum(G @ v @ v - 2.0 * b @ v + c, 0.0))


class _Logistic(_Linear):
    def best(self, weights: Floats, penalised: float, start: Floats | None) -> _At:
        v = np.zeros(self.A.shape[1]) if start is None else start
        row = self.w * weights[self.codes]
        diagonal = penalised * self.penalty + weights.sum() * self.ridge
        value = self._value(v, row, diagonal)
        for _ in range(STEPS):
            self.solved += 1
            chance = _sigmoid(self.A @ v)
            slope = self.A.T @ (row * (chance - self.y)) + 2.0 * diagonal * v
            H = (self.A * (row * chance * (1.0 - chance))[:, None]).T @ self.A + np.diag(2.0 * diagonal)
            step = _solved(H + 1e-14 * np.trace(H) * np.eye(len(H)), slope)
            fall, length = float(slope @ step), 1.0
            if fall <= 1e-13 * max(abs(value), 1e-3):
                break
            while (
                new := self._value(v - length * step, row, diagonal)
            ) > value - 1e-4 * length * fall and length > 1e-8:
                length /= 2
            v, value = v - length * step, new
        chance = _sigmoid(self.A @ v)
        pull = self.w * (chance - self.y)
        slopes = np.stack([self.A.T @ np.where(self.codes == k, pull, 0.0) for k in range(self.groups)])
        H = (self.A * (row * chance * (1.0 - chance))[:, None]).T @ self.A + np.diag(2.0 * diagonal)
        return _At(v, self.at(v), slopes, H + 1e-14 * np.trace(H) * np.eye(len(H)))

    def _value(self, v: Floats, row: Floats, diagonal: Floats) -> float:
        return float(row @ self._losses(v) + diagonal @ v**2)

    def _losses(self, v: Floats) -> Floats:
        form = self.A @ v
        return np.asarray(np.logaddexp(0.0, form) - self.y * form)

    def at(self, v: Floats) -> Floats:
        return np.asarray(np.bincount(self.codes, self.w * self._losses(v), self.groups), dtype=np.float64)


def _solved(H: Floats, right: Floats) -> Floats:
    """Return the solution of a positive definite system."""
    from scipy.linalg import cho_factor, cho_solve

    return np.asarray(cho_solve(cho_factor(H), right))


def _sigmoid(form: Floats) -> Floats:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * form)))


# ---------------------------------------------------------------------- linear models


def solve_linear(
    X: Floats,
    y: Floats,
    codes: Ints,
    weight: Floats | None,
    bounds: Floats,
    *,
    loss: str,
    l2: float = 0.0,
) -> GroupLossSolution | Infeasible:
    """Return the linear model of least loss within the bounds, or the proof that there is none.

    Parameters
    ----------
    X, y
        Shapes (n, d), without a constant column, and (n,); y in [0, 1] for the logistic loss.
    codes
        Group of each row, shape (n,); every group has rows.
    weight
        Shape (n,), positive; None for 1 each.
    bounds
        Largest mean loss of each group, shape (K,); infinite where none is asked.
    loss
        ``square`` or ``logistic``.
    l2
        Of the penalty.
    """
    kind = _Square if loss == "square" else _Logistic
    model = kind(X, y, codes, weight, bounds.size, l2)
    free = model.best(model.shares, 1.0, None)
    asked = np.isfinite(bounds)
    if (free.losses <= bounds)[asked].all():
        return _solution(model, free.v, np.zeros(bounds.size), _value(model, free.v), 0.0)
    inside, found = _least_excess(model, bounds, asked, free.v)
    scale = max(float(free.losses.max()), 1e-300)
    if found.excess > 1e-9 * scale:
        return found
    multipliers, at, dual = _multipliers(model, bounds, asked, free)
    v = _within(model, at.v, inside, bounds, asked)
    return _solution(model, v, multipliers, dual, scale)


def _solution(model: _Linear, v: Floats, multipliers: Floats, dual: float, scale: float) -> GroupLossSolution:
    value = _value(model, v)
    good = value - dual <= 1e-6 * max(scale, 1e-300)
    return GroupLossSolution(v[:-1], float(v[-1]), model.at(v), multipliers, value, dual, model.solved, good)


def _value(model: _Linear, v: Floats) -> float:
    return float(model.shares @ model.at(v) + model.penalty @ v**2)


def best_level(
    X: Floats, y: Floats, codes: Ints, weight: Floats | None, groups: int, *, loss: str
) -> tuple[float, Floats]:
    """Return the least bound that one linear model holds in every group, and the weights that prove it, shape (K,)."""
    kind = _Square if loss == "square" else _Logistic
    model = kind(X, y, codes, weight, groups, 0.0)
    start = model.best(model.shares, 0.0, None).v
    _, found = _least_excess(model, np.zeros(groups), np.ones(groups, dtype=bool), start)
    return found.excess, found.weights


def _least_excess(
    model: _Linear, bounds: Floats, asked: npt.NDArray[np.bool_], start: Floats
) -> tuple[Floats, Infeasible]:
    """Return the model of least excess over the bounds, and that excess with its proof, by cutting planes."""
    zeta = np.where(asked, bounds, 0.0)
    points, cuts = [start], [(model.at(start) - zeta)[asked]]
    mu = np.where(asked, 1.0, 0.0) / asked.sum()
    best, best_mu = -np.inf, mu
    for _ in range(ROUNDS):
        at = model.best(np.where(asked, mu, 0.0), 0.0, points[-1])
        reached = float(mu[asked] @ (at.losses - zeta)[asked])
        if reached > best:
            best, best_mu = reached, mu
        points.append(at.v)
        cuts.append((at.losses - zeta)[asked])
        mixture, weights, upper = _matrix_game(np.array(cuts))
        mu = np.zeros(bounds.size)
        mu[asked] = weights
        if upper - best <= 1e-8 * max(1e-3, abs(float(model.at(start).max()))):
            break
    v = np.tensordot(mixture, np.array(points), axes=1)
    return v, Infeasible(best_mu, best, model.at(v))


def _matrix_game(cuts: Floats) -> tuple[Floats, Floats, float]:
    """Return the mixture of rows with the least greatest column, the weights of columns against it, and the value."""
    from scipy.optimize import linprog

    rows, columns = cuts.shape
    found: Any = linprog(
        np.append(np.zeros(rows), 1.0),
        A_ub=np.column_stack([cuts.T, -np.ones(columns)]),
        b_ub=np.zeros(columns),
        A_eq=[np.append(np.ones(rows), 0.0)],
        b_eq=[1.0],
        bounds=[(0, None)] * rows + [(None, None)],
        method="highs",
    )
    weights = np.maximum(-found.ineqlin.marginals, 0.0)
    return found.x[:-1], weights / weights.sum(), float(found.fun)


def _multipliers(
    model: _Linear, bounds: Floats, asked: npt.NDArray[np.bool_], free: _At
) -> tuple[Floats, _At, float]:
    """Return the multipliers, the model that is best for them, and the dual value, by projected Newton steps."""
    zeta = np.where(asked, bounds, 0.0)
    now = np.zeros(bounds.size)

    def dual(m: Floats, start: Floats) -> tuple[float, _At]:
        at = model.best(model.shares + m, 1.0, start)
        own = float((model.shares + m) @ at.losses + model.penalty @ at.v**2 - m @ zeta)
        return own, at

    value, at = dual(now, free.v)
    for _ in range(STEPS):
        slope = np.where(asked, at.losses - zeta, 0.0)
        open_ = asked & ((now > 0) | (slope > 0))
        if not open_.any() or np.abs(slope[open_]).max() <= 1e-11 * max(float(at.losses.max()), 1e-300):
            break
        g = at.slopes[open_]
        curve = g @ _solved(at.curvature, g.T)
        curve += 1e-12 * max(float(np.trace(curve)), 1e-300) * np.eye(len(g))
        step = np.zeros(bounds.size)
        step[open_] = np.linalg.solve(curve, slope[open_])
        length = 1.0
        while length > 1e-12:
            tried = np.maximum(now + length * step, 0.0)
            new, there = dual(tried, at.v)
            if new >= value + 1e-4 * float(slope @ (tried - now)):
                break
            length /= 2
        if new - value <= 1e-15 * max(abs(value), 1e-300) and length < 1.0:
            break
        now, value, at = tried, new, there
    return now, at, value


def _within(
    model: _Linear, v: Floats, inside: Floats, bounds: Floats, asked: npt.NDArray[np.bool_]
) -> Floats:
    """Return the model nearest to ``v`` on the way to one inside the bounds that holds them."""

    def holds(u: Floats) -> bool:
        return bool((model.at(u) <= bounds)[asked].all())

    if holds(v) or not holds(inside):
        return v
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(v + middle * (inside - v)) else (middle, high)
    return v + high * (inside - v)


# ---------------------------------------------------------------------- any learner


@dataclass(frozen=True, eq=False)
class MembersSolution:
    """An average of fitted models within the bounds.

    Attributes
    ----------
    models, weights
        Members as they were returned, and their weights in the average, positive and of sum 1.
    values
        Average on the rows of the fit, shape (n,).
    losses
        Of the average, per group, shape (K,).
    objective
        Mean loss of the average.
    rounds
        Fits.
    """

    models: tuple[Any, ...]
    weights: Floats
    values: Floats
    losses: Floats
    objective: float
    rounds: int


def solve_members(
    fit: Callable[[Floats], tuple[Any, Floats]],
    loss: Callable[[Floats], Floats],
    codes: Ints,
    weight: Floats | None,
    bounds: Floats,
    *,
    rounds: int = 8,
) -> MembersSolution | Infeasible:
    """Return an average of models within the bounds, by column generation.

    Parameters
    ----------
    fit
        Takes row weights, shape (n,), and returns a model and its predictions, shape (n,).
    loss
        Takes predictions and returns the loss of each row, convex in the prediction.
    codes, weight, bounds
        As in :func:`solve_linear`.
    rounds
        Most fits.
    """
    w = np.ones(codes.size) if weight is None else weight
    mass = np.bincount(codes, w, bounds.size)
    shares, asked = mass / mass.sum(), np.isfinite(bounds)

    def by_group(values: Floats) -> Floats:
        return np.asarray(np.bincount(codes, w * loss(values), bounds.size) / mass)

    models: list[Any] = []
    columns: list[Floats] = []
    pull, mixture, excess = shares, np.ones(1), 0.0
    for _ in range(rounds):
        model, values = fit(w / mass[codes] * pull[codes] * w.sum())
        models.append(model)
        columns.append(values)
        table = np.array([by_group(one) for one in columns])
        mixture, prices, excess = _bounded_mixture(table, shares, bounds, asked)
        wanted = prices if excess > 0 else shares + prices
        if len(models) > 1 and np.abs(wanted - pull).max() <= 1e-6 * wanted.max():
            break
        pull = wanted
    mixture = _averaged(columns, mixture, by_group, shares, bounds, asked)
    average = np.tensordot(mixture, np.array(columns), axes=1)
    losses = by_group(average)
    over = float((losses - bounds)[asked].max(initial=-np.inf))
    if over > 1e-9 * float(losses.max()):
        return Infeasible(pull / pull.sum(), over, losses, certified=False)
    kept = mixture > 1e-9
    return MembersSolution(
        tuple(model for model, keep in zip(models, kept, strict=True) if keep),
        mixture[kept] / mixture[kept].sum(),
        average,
        losses,
        float(shares @ losses),
        len(models),
    )


def _bounded_mixture(
    table: Floats, shares: Floats, bounds: Floats, asked: npt.NDArray[np.bool_]
) -> tuple[Floats, Floats, float]:
    """Return the mixture of least loss within the bounds, prices of groups, and the excess where there is none."""
    from scipy.optimize import linprog

    over = np.where(asked, table - np.where(asked, bounds, 0.0), -1.0)
    game, weights, excess = _matrix_game(over[:, asked])
    prices = np.zeros(bounds.size)
    if excess > 0:
        prices[asked] = weights
        return game, prices, excess
    found: Any = linprog(
        table @ shares,
        A_ub=over[:, asked].T,
        b_ub=np.zeros(int(asked.sum())),
        A_eq=[np.ones(len(table))],
        b_eq=[1.0],
        method="highs",
    )
    if found.status:
        return game, prices, 0.0
    prices[asked] = np.maximum(-found.ineqlin.marginals, 0.0)
    return found.x, prices, 0.0


def _averaged(
    columns: list[Floats],
    mixture: Floats,
    by_group: Callable[[Floats], Floats],
    shares: Floats,
    bounds: Floats,
    asked: npt.NDArray[np.bool_],
) -> Floats:
    """Return weights that use what averaging gains: the least loss, or least excess, of the average itself."""
    from scipy.optimize import minimize

    table = np.array(columns)
    if len(columns) == 1:
        return mixture

    def over(q: Floats) -> Floats:
        return np.asarray((bounds - by_group(q @ table))[asked])

    def value(x: Floats) -> float:
        return float(shares @ by_group(x[:-1] @ table)) + heavy * float(x[-1])

    start = np.append(mixture, max(0.0, float(-over(mixture).min())))
    heavy = 1e3 * float(shares @ by_group(mixture @ table))
    held: list[Any] = [
        {"type": "eq", "fun": lambda x: float(x[:-1].sum()) - 1.0},
        {"type": "ineq", "fun": lambda x: over(x[:-1]) + x[-1]},
    ]
    limits = [(0.0, 1.0)] * len(columns) + [(0.0, None)]
    found: Any = minimize(
        value, start, method="SLSQP", bounds=limits, constraints=held, options={"maxiter": 60, "ftol": 1e-10}
    )
    new = np.maximum(found.x[:-1], 0.0)
    new /= new.sum()
    excess, was = max(0.0, float(-over(new).min())), max(0.0, float(-over(mixture).min()))
    better = excess <= was + 1e-12 and (
        excess < was or shares @ by_group(new @ table) <= shares @ by_group(mixture @ table)
    )
    return new if better else mixture
