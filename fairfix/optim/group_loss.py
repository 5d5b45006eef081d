r"""Bounded group loss: the linear model of least loss whose loss in every group is bounded.

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

**Units.** The square loss is solved for labels of mean 0 and variance 1, so tolerances mean the same in any unit.

The proof that no linear model holds the bounds, and models whose values are moved into a range, which may hold them
then, are derived in docs/methods/fair-regression.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fairfix.optim.arrays import Bools, Floats, Ints
from fairfix.optim.mixtures import matrix_game
from fairfix.optim.newton import descend, least_share, newton_step

TINY = 1e-10
"""Ridge, in units of the Gram matrix, that keeps systems solvable where columns hang together."""

ROUNDS = 200
"""Most cutting planes."""

STEPS = 100
"""Most Newton steps on the multipliers, and inside on the coefficients."""

SURE = 1e-9
"""Rounding of a loss of labels of variance 1, and of the ratio of a loss to its bound."""

NEAR = 1e-6
"""Largest gap, as a share of the loss of the free model, with which a solver has converged."""

TRIMS = 20
"""Most times that rows are given up."""


@dataclass(frozen=True, eq=False)
class GroupLossSolution:
    """A model within the bounds."""

    coef: Floats
    intercept: float
    """``coef`` and ``intercept``: of the linear form, shape (d,) and a number."""
    losses: Floats
    multipliers: Floats
    """``losses`` and ``multipliers``: loss and multiplier of each group, shape (K,) each."""
    objective: float
    bound: float
    """``objective`` and ``bound``: its penalised loss, and the certified least of any linear model within the bounds;
    the latter NaN where none is within them but for its values being moved into a range.
    """
    iterations: int
    """Inner problems that were solved."""
    converged: bool
    """Whether the gap is within tolerance; where there is none, that of the convex problem that was solved instead."""


@dataclass(frozen=True, eq=False)
class Infeasible:
    """No model that holds the bounds was found; and for linear models a proof that none does."""

    weights: Floats
    """``mu``, of sum 1, shape (K,)."""
    excess: float
    """Proven: every linear model has a group whose loss lies at least so far above its bound; 0 where nothing is
    proven.
    """
    losses: Floats
    """Losses of the best that was found, as it would be shipped, shape (K,)."""
    level: float = math.nan
    """Least bound for all groups that was reached by a linear model, as it is; NaN where it was not looked for."""


@dataclass(frozen=True, eq=False)
class _At:
    """Coefficients with the losses, gradients and Hessian there."""

    v: Floats
    losses: Floats
    slopes: Floats
    curvature: Floats
    short: float = 0.0
    """Distance of the inner problem from its least, by its last Newton step."""


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows with a constant column, labels, groups, weights of sum 1 in each group, shares of groups, and penalty."""

    A: Floats
    y: Floats
    codes: Ints
    w: Floats
    shares: Floats
    penalty: Floats

    @classmethod
    def of(cls, X: Floats, y: Floats, codes: Ints, weight: Floats | None, groups: int, l2: float) -> _Rows:
        w = np.ones(len(y)) if weight is None else weight
        mass = np.bincount(codes, w, groups)
        penalty = np.append(np.full(X.shape[1], l2), 0.0)
        return cls(
            np.column_stack([X, np.ones(len(X))]), y, codes, w / mass[codes], mass / mass.sum(), penalty
        )

    def by_group(self, each: Floats) -> Floats:
        """Return the mean in each group of a number per row, shape (K,)."""
        return np.asarray(np.bincount(self.codes, self.w * each, self.shares.size), dtype=np.float64)


class _Model:
    """Group losses of linear models. ``weights`` are of groups, shape (K,); coefficients end with the intercept."""

    def __init__(self, rows: _Rows) -> None:
        self.rows, self.solved = rows, 0

    @cached_property
    def ridge(self) -> Floats:
        """Diagonal that keeps the systems solvable, shape (d + 1,)."""
        return TINY * np.maximum(np.average(self.rows.A**2, axis=0, weights=self.rows.w), 1e-300)

    def best(self, weights: Floats, penalised: float, start: Floats | None) -> _At:
        """Return the minimiser of the weighted group losses plus the penalty times ``penalised``."""
        raise NotImplementedError

    def at(self, v: Floats) -> Floats:
        """Return the group losses of coefficients, shape (K,)."""
        raise NotImplementedError

    def shipped(self, v: Floats, into: tuple[float, float] | None) -> Floats:
        """Return the group losses of a model whose values are moved into a range, from its rows, shape (K,)."""
        form = self.rows.A @ v
        moved = form if into is None else np.clip(form, *into)
        return self.rows.by_group((moved - self.rows.y) ** 2)


class _Square(_Model):
    @cached_property
    def grams(self) -> tuple[Floats, Floats, Floats]:
        """Per group: Gram matrix, moments with y, mean of y squared; shapes (K, d, d), (K, d), (K,)."""
        parts = []
        for k in range(self.rows.shares.size):
            i = self.rows.codes == k
            A, y, w = self.rows.A[i], self.rows.y[i], self.rows.w[i]
            parts.append(((A * w[:, None]).T @ A, A.T @ (w * y), float(w @ (y * y))))
        G, b, c = zip(*parts, strict=True)
        return np.stack(G), np.stack(b), np.array(c)

    def best(self, weights: Floats, penalised: float, start: Floats | None) -> _At:
        self.solved += 1
        G, b, _ = self.grams
        diagonal = penalised * self.rows.penalty + weights.sum() * self.ridge
        H = np.tensordot(weights, G, axes=1) + np.diag(diagonal)
        v = _solved(H, weights @ b)
        return _At(v, self.at(v), 2.0 * (G @ v - b), 2.0 * H)

    def at(self, v: Floats) -> Floats:
        G, b, c = self.grams
        return np.asarray(np.maximum(G @ v @ v - 2.0 * b @ v + c, 0.0))


class _Newton(_Model):
    """Losses with a slope and a curvature per row; inner problems by Newton's method from the last one."""

    def of_rows(self, form: Floats) -> tuple[Floats, Floats, Floats]:
        """Return loss, slope and curvature of each row at linear forms, shape (n,) each."""
        raise NotImplementedError

    def best(self, weights: Floats, penalised: float, start: Floats | None) -> _At:
        A, w, codes = self.rows.A, self.rows.w, self.rows.codes
        row = w * weights[codes]
        diagonal = penalised * self.rows.penalty + weights.sum() * self.ridge

        def value(v: Floats) -> float:
            return float(row @ self.of_rows(A @ v)[0] + diagonal @ v**2)

        def curvature(bend: Floats) -> Floats:
            H = (A * (row * bend)[:, None]).T @ A + np.diag(2.0 * diagonal)
            return np.asarray(H + 1e-14 * np.trace(H) * np.eye(len(H)))

        def direction(v: Floats) -> tuple[Floats, float]:
            _, slope, bend = self.of_rows(A @ v)
            downhill = A.T @ (row * slope) + 2.0 * diagonal * v
            step = newton_step(curvature(bend), downhill)
            return step, -0.5 * float(downhill @ step)

        begin = np.zeros(A.shape[1]) if start is None else start
        small = 5e-14 * max(abs(value(begin)), 1e-3)  # a few hundred roundings of the value
        end = descend(begin, value, direction, tolerance=small, rough=10 * small, most=STEPS)
        self.solved += end.steps
        _, slope, bend = self.of_rows(A @ end.x)
        pull = w * slope
        slopes = np.stack([A.T @ np.where(codes == k, pull, 0.0) for k in range(self.rows.shares.size)])
        return _At(end.x, self.at(end.x), slopes, curvature(bend), max(2.0 * end.decrement, 0.0))

    def at(self, v: Floats) -> Floats:
        return self.rows.by_group(self.of_rows(self.rows.A @ v)[0])


class _Logistic(_Newton):
    def of_rows(self, form: Floats) -> tuple[Floats, Floats, Floats]:
        chance = 0.5 * (1.0 + np.tanh(0.5 * form))
        return np.logaddexp(0.0, form) - self.rows.y * form, chance - self.rows.y, chance * (1.0 - chance)

    def shipped(self, v: Floats, into: tuple[float, float] | None) -> Floats:
        return self.at(v)


class _Hinge(_Newton):
    """The squared hinge of labels at the ends of a range, and the whole range for rows that are given up."""

    def __init__(self, rows: _Rows, ends: tuple[float, float]) -> None:
        super().__init__(rows)
        self.ends, self.given_up = ends, np.zeros(rows.y.size, dtype=bool)

    def of_rows(self, form: Floats) -> tuple[Floats, Floats, Floats]:
        y = self.rows.y
        short = np.where(y == self.ends[0], np.maximum(form, y), np.minimum(form, y)) - y
        short[self.given_up] = 0.0
        own = np.where(self.given_up, (self.ends[1] - self.ends[0]) ** 2, short**2)
        return own, 2.0 * short, 2.0 * (short != 0)


def _solved(H: Floats, right: Floats) -> Floats:
    """Return the solution of a positive definite system."""
    from scipy.linalg import cho_factor, cho_solve

    return np.asarray(cho_solve(cho_factor(H), right))


def solve_linear(
    X: Floats,
    y: Floats,
    codes: Ints,
    weight: Floats | None,
    bounds: Floats,
    *,
    loss: str,
    l2: float = 0.0,
    into: tuple[float, float] | None = None,
) -> GroupLossSolution | Infeasible:
    """Return the linear model of least loss within the bounds, or the proof that there is none.

    ``X``, ``y``: shapes (n, d), without a constant column, and (n,); y in [0, 1] for the logistic loss. ``codes``:
    Group of each row, shape (n,); every group has rows. ``weight``: shape (n,), positive; None for 1 each. ``bounds``:
    Largest mean loss of each group, shape (K,), in squared units of y or in nats; infinite where none is asked.
    ``loss``: ``square`` or ``logistic``. ``l2``: of the penalty. ``into``: range that values are moved into where the
    model is used, which holds all labels; None for none. Losses and objective of the solution are those of the moved
    values.
    """
    if loss != "square":
        return _Search(_Logistic(_Rows.of(X, y, codes, weight, bounds.size, l2)), bounds).run()
    level, unit = standard_of(y, weight)
    model = _Square(_Rows.of(X, (y - level) / unit, codes, weight, bounds.size, l2))
    ends = None if into is None else ((into[0] - level) / unit, (into[1] - level) / unit)
    solved = _Search(model, bounds / unit**2, ends).run()
    squared = (
        ("excess", "losses", "level") if isinstance(solved, Infeasible) else ("losses", "objective", "bound")
    )
    solved = replace(solved, **{name: getattr(solved, name) * unit**2 for name in squared})
    if isinstance(solved, Infeasible):
        return solved
    return replace(solved, coef=solved.coef * unit, intercept=level + solved.intercept * unit)


def standard_of(y: Floats, weight: Floats | None) -> tuple[float, float]:
    """Return the mean of labels and their standard deviation; labels that are all the same have the unit 1."""
    if y.min() == y.max():
        return float(y[0]), 1.0
    level = float(np.average(y, weights=weight))
    unit = math.sqrt(float(np.average(((y - level) / np.ptp(y)) ** 2, weights=weight))) * float(np.ptp(y))
    return level, unit


class _Search:
    """The search for a model within the bounds; losses are of labels of variance 1, or in nats."""

    def __init__(self, model: _Model, bounds: Floats, into: tuple[float, float] | None = None) -> None:
        self.model, self.bounds, self.into = model, bounds, into
        self.asked = np.isfinite(bounds)
        self.zeta = np.where(self.asked, bounds, 0.0)

    def run(self) -> GroupLossSolution | Infeasible:
        """Return the best model found, or what is known of there being none."""
        free = self.model.best(self.model.rows.shares, 1.0, None)
        none = np.zeros(self.bounds.size)
        if self.holds(free.v):
            return self._solution(free.v, none, self._value(free.v, self.model.at(free.v)) - free.short, free)
        inside, proof = self.least_excess(free.v, free)
        if not proof.excess:
            multipliers, at, dual = _multipliers(self.model, self.zeta, self.asked, free)
            v = self.within(at.v, inside)
            if self.holds(v):
                return self._solution(v, multipliers, dual, free)
        elif self.into is not None:
            moved = self._moved(free, inside)
            if isinstance(moved, GroupLossSolution):
                return moved
            return replace(proof, losses=self.shipped(moved))
        return proof

    def least_excess(self, start: Floats, free: _At) -> tuple[Floats, Infeasible]:
        """Return the model of least excess over the bounds, and what it proves, in units of the bounds.

        The unit is the same for all where all bounds are, so that the excess is that over the least common bound.
        """
        if np.ptp(self.zeta[self.asked]):
            units = np.maximum(np.maximum(np.abs(self.zeta), 1e-3 * free.losses), 1e-300)
            return _least_excess(self.model, self.zeta, self.asked, units, start)
        units = np.full(self.zeta.size, max(float(free.losses[self.asked].max()), 1e-300))
        inside, proof = _least_excess(self.model, self.zeta, self.asked, units, start)
        return inside, replace(proof, level=float(proof.losses[self.asked].max()))

    def holds(self, v: Floats) -> bool:
        """Return whether a model holds the bounds, as it would be shipped."""
        allowed = self.bounds + SURE * np.abs(self.zeta)
        return bool((self.shipped(v) <= allowed)[self.asked].all())

    def shipped(self, v: Floats) -> Floats:
        """Return the group losses of a model as it would be shipped, from its rows, shape (K,)."""
        return self.model.shipped(v, self.into)

    def _value(self, v: Floats, losses: Floats) -> float:
        return float(self.model.rows.shares @ losses + self.model.rows.penalty @ v**2)

    def _solution(self, v: Floats, multipliers: Floats, dual: float, free: _At) -> GroupLossSolution:
        losses = self.shipped(v)
        value = self._value(v, losses)
        near = value - dual <= NEAR * float(free.losses.max())
        return GroupLossSolution(
            v[:-1], float(v[-1]), losses, multipliers, value, dual, self.model.solved, near
        )

    def within(self, v: Floats, inside: Floats) -> Floats:
        """Return the model nearest to ``v`` on the way to one inside the bounds that holds them."""

        def holds(u: Floats) -> bool:
            return bool((self.shipped(u) <= self.bounds)[self.asked].all())

        if holds(v) or not holds(inside):
            return v if self.holds(v) else inside
        return v + least_share(lambda share: holds(v + share * (inside - v))) * (inside - v)

    # ------------------------------------------------------------------ values moved into a range

    def _moved(self, free: _At, inside: Floats) -> GroupLossSolution | Floats:
        """Return a model that holds the bounds once its values are moved, or the best that was found."""
        assert self.into is not None
        rows, best = self.model.rows, inside
        hinge = _Hinge(rows, self.into)
        search = _Search(hinge, self.bounds, self.into)
        none = np.zeros(self.bounds.size)
        for _ in range(TRIMS if np.isin(rows.y, self.into).all() else 0):
            v, proof = search.least_excess(best, free)
            if self.holds(v) and not proof.excess:
                multipliers, at, dual = _multipliers(
                    hinge, self.zeta, self.asked, hinge.best(rows.shares, 1.0, v)
                )
                better = search.within(at.v, v)
                near = self._value(better, hinge.at(better)) - dual <= NEAR * float(free.losses.max())
                return replace(self._solution(better, multipliers, math.nan, free), converged=near)
            best = min(v, best, key=lambda u: float((self.shipped(u) - self.zeta)[self.asked].max()))
            low, high = self.into
            form = rows.A @ v
            beyond = np.where(rows.y == low, form > high, form < low)
            if self.holds(best) or (beyond == hinge.given_up).all():
                break
            hinge.given_up = beyond
        return self._solution(best, none, math.nan, free) if self.holds(best) else best


def _least_excess(
    model: _Model, zeta: Floats, asked: Bools, units: Floats, start: Floats
) -> tuple[Floats, Infeasible]:
    """Return the model of least excess over the bounds in their units, and what it proves, by cutting planes."""

    def over(losses: Floats) -> Floats:
        return np.asarray(((losses - zeta) / units)[asked])

    points, cuts = [start], [over(model.at(start))]
    mu = np.full(int(asked.sum()), 1.0 / asked.sum())
    best, best_mu = -np.inf, mu
    inside, upper = start, float(cuts[0].max())
    for _ in range(ROUNDS):
        pull = np.zeros(zeta.size)
        pull[asked] = mu / units[asked]
        scale = pull.sum()
        at = model.best(pull / scale, 0.0, points[-1])
        reached = float(mu @ over(at.losses)) - at.short * scale
        if reached > best:
            best, best_mu = reached, mu
        points.append(at.v)
        cuts.append(over(at.losses))
        mixture, mu = matrix_game(np.array(cuts))
        v = np.tensordot(mixture, np.array(points), axes=1)
        if (worst := float(over(model.at(v)).max())) < upper:
            inside, upper = v, worst
        if upper - best <= SURE or (best_mu == mu).all():
            break
    weights = np.zeros(zeta.size)
    weights[asked] = best_mu / units[asked]
    excess = max(best - SURE, 0.0) / weights.sum()
    return inside, Infeasible(weights / weights.sum(), excess, model.at(inside))


def _multipliers(model: _Model, zeta: Floats, asked: Bools, free: _At) -> tuple[Floats, _At, float]:
    """Return the multipliers, the model that is best for them, and what they prove, by projected Newton steps."""
    now = np.zeros(zeta.size)
    units = np.maximum(np.abs(zeta), 1e-300)

    def dual(m: Floats, start: Floats) -> tuple[float, _At]:
        at = model.best(model.rows.shares + m, 1.0, start)
        own = float((model.rows.shares + m) @ at.losses + model.rows.penalty @ at.v**2 - m @ zeta)
        return own, at

    value, at = dual(now, free.v)
    for _ in range(STEPS):
        slope = np.where(asked, at.losses - zeta, 0.0)
        open_ = asked & ((now > 0) | (slope > 0))
        if not open_.any() or (np.abs(slope) / units)[open_].max() <= 1e-11:
            break
        g = at.slopes[open_]
        curve = g @ _solved(at.curvature, g.T)
        curve += 1e-12 * max(float(np.trace(curve)), 1e-300) * np.eye(len(g))
        moved = False
        # where the Newton step leads over an edge it need not lead uphill; each multiplier by itself does
        for step in (np.linalg.solve(curve, slope[open_]), slope[open_] / np.diag(curve)):
            whole = np.zeros(zeta.size)
            whole[open_] = step
            length = 1.0
            while length > 1e-6:
                tried = np.maximum(now + length * whole, 0.0)
                new, there = dual(tried, at.v)
                moved = new > value and new >= value + 1e-4 * float(slope @ (tried - now))
                if moved:
                    break
                length /= 2
            if moved:
                break
        if not moved:
            break
        now, value, at = tried, new, there
    return now, at, value - at.short
