r"""Group losses of linear models, and the model of least weighted loss: by one system, or by Newton's method.

Labels are in the units of :func:`standard_of`. A linear form ``x'v`` is the score itself, or its sigmoid (log loss), or
its exponential (Poisson deviance).

**Losses with a kink.** The pinball loss of a residual ``r = y - x'v`` is the least ``q a + (1 - q) b`` over ``a, b >=
0`` with ``a - b = r``. A barrier ``- h (log a + log b)`` makes it smooth, with the slope ``theta = q - h / a``, and is
lowered from one optimum to the next. As ``l(r) >= theta r`` for any ``theta`` in ``[q - 1, q]``, the least loss is at
most the mean of ``l(r) - theta r``, some ``2 h``, below what is reached. The absolute loss is twice the pinball loss of
level 1/2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fairfix.solvers.arrays import Floats, Ints
from fairfix.solvers.losses import deviance, in_units, name_of, number_of, row_loss
from fairfix.solvers.newton import descend, newton_step

TINY = 1e-10
"""Ridge, in units of the Gram matrix, that keeps systems solvable where columns depend on each other."""

STEPS = 100
"""Most Newton steps on the coefficients, for each width of a smoothed kink."""

BARRIERS = (1.0, 1e-3, 1e-6)
"""Heights of the barrier, one after the other, in standard deviations of the label; the last costs 1e-5 of a loss."""


@dataclass(frozen=True, eq=False)
class At:
    """Coefficients with the losses, gradients and Hessian there."""

    v: Floats
    losses: Floats
    slopes: Floats
    curvature: Floats
    short: float = 0.0
    """Distance of the inner problem from its least, by its last Newton step."""


@dataclass(frozen=True, eq=False)
class GroupedSample:
    """Rows with a constant column, labels, groups, weights of sum 1 in each group, shares of groups, and penalty."""

    A: Floats
    y: Floats
    codes: Ints
    w: Floats
    shares: Floats
    penalty: Floats

    @classmethod
    def of(
        cls, X: Floats, y: Floats, codes: Ints, weight: Floats | None, groups: int, l2: float
    ) -> GroupedSample:
        """Return the rows of a problem; ``X`` is without a constant column."""
        w = np.ones(len(y)) if weight is None else weight
        mass = np.bincount(codes, w, groups)
        penalty = np.append(np.full(X.shape[1], l2), 0.0)
        return cls(
            np.column_stack([X, np.ones(len(X))]), y, codes, w / mass[codes], mass / mass.sum(), penalty
        )

    def by_group(self, each: Floats) -> Floats:
        """Return the mean in each group of a number per row, shape (K,)."""
        return np.asarray(np.bincount(self.codes, self.w * each, self.shares.size), dtype=np.float64)


class LinearLosses:
    """Group losses of linear models. ``weights`` are of groups, shape (K,); coefficients end with the intercept."""

    heights: tuple[float, ...] = (0.0,)
    """Barriers by which the losses are made smooth, one after the other."""

    def __init__(self, rows: GroupedSample) -> None:
        self.rows, self.solved = rows, 0

    @cached_property
    def ridge(self) -> Floats:
        """Diagonal that keeps the systems solvable, shape (d + 1,)."""
        return TINY * np.maximum(np.average(self.rows.A**2, axis=0, weights=self.rows.w), 1e-300)

    def best(self, weights: Floats, penalised: float, start: Floats | None) -> At:
        """Return the minimiser of the weighted group losses plus the penalty times ``penalised``."""
        raise NotImplementedError

    def smooth(self, weights: Floats, start: Floats | None, height: float) -> At:
        """Return the penalised minimiser of the weighted group losses with a barrier, and these losses there."""
        return self.best(weights, 1.0, start)

    def at(self, v: Floats) -> Floats:
        """Return the group losses of coefficients, shape (K,)."""
        raise NotImplementedError

    def shipped(self, v: Floats, into: tuple[float, float] | None) -> Floats:
        """Return the group losses of a model whose values are moved into a range, if any, from its rows, shape (K,)."""
        return self.at(v)


class _SquareLosses(LinearLosses):
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

    def best(self, weights: Floats, penalised: float, start: Floats | None) -> At:
        self.solved += 1
        G, b, _ = self.grams
        diagonal = penalised * self.rows.penalty + weights.sum() * self.ridge
        H = np.tensordot(weights, G, axes=1) + np.diag(diagonal)
        v = solved_system(H, weights @ b)
        return At(v, self.at(v), 2.0 * (G @ v - b), 2.0 * H)

    def at(self, v: Floats) -> Floats:
        G, b, c = self.grams
        return np.asarray(np.maximum(G @ v @ v - 2.0 * b @ v + c, 0.0))

    def shipped(self, v: Floats, into: tuple[float, float] | None) -> Floats:
        return _moved_squares(self.rows, v, into)


def _moved_squares(rows: GroupedSample, v: Floats, into: tuple[float, float] | None) -> Floats:
    form = rows.A @ v
    moved = form if into is None else np.clip(form, *into)
    return rows.by_group((moved - rows.y) ** 2)


class _NewtonLosses(LinearLosses):
    """Losses with a slope and a curvature per row; inner problems by Newton's method from the last one."""

    def of_rows(self, form: Floats) -> tuple[Floats, Floats, Floats]:
        """Return loss, slope and curvature of each row at linear forms, shape (n,) each."""
        raise NotImplementedError

    def best(self, weights: Floats, penalised: float, start: Floats | None) -> At:
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
        return At(end.x, self.at(end.x), slopes, curvature(bend), max(2.0 * end.decrement, 0.0))

    def at(self, v: Floats) -> Floats:
        return self.rows.by_group(self.of_rows(self.rows.A @ v)[0])


class _LogisticLosses(_NewtonLosses):
    def of_rows(self, form: Floats) -> tuple[Floats, Floats, Floats]:
        chance = 0.5 * (1.0 + np.tanh(0.5 * form))
        return np.logaddexp(0.0, form) - self.rows.y * form, chance - self.rows.y, chance * (1.0 - chance)


class HingeLosses(_NewtonLosses):
    """The squared hinge of labels at the ends of a range, and the whole range for rows that are given up."""

    def __init__(self, rows: GroupedSample, ends: tuple[float, float]) -> None:
        super().__init__(rows)
        self.ends, self.given_up = ends, np.zeros(rows.y.size, dtype=bool)

    def of_rows(self, form: Floats) -> tuple[Floats, Floats, Floats]:
        """Return loss, slope and curvature of each row at linear forms, shape (n,) each."""
        y = self.rows.y
        short = np.where(y == self.ends[0], np.maximum(form, y), np.minimum(form, y)) - y
        short[self.given_up] = 0.0
        own = np.where(self.given_up, (self.ends[1] - self.ends[0]) ** 2, short**2)
        return own, 2.0 * short, 2.0 * (short != 0)

    def shipped(self, v: Floats, into: tuple[float, float] | None) -> Floats:
        """Return the group losses, square, of a model whose values are moved into a range, shape (K,)."""
        return _moved_squares(self.rows, v, into)


class _CountLosses(_NewtonLosses):
    """The Poisson deviance of the exponential of the form; labels are not negative."""

    @cached_property
    def floor(self) -> Floats:
        """Deviance of each row minus ``2 (exp(form) - y form)``, shape (n,)."""
        return deviance(self.rows.y, np.ones(self.rows.y.size)) - 2.0

    def of_rows(self, form: Floats) -> tuple[Floats, Floats, Floats]:
        with np.errstate(over="ignore"):  # a step too far is infinite, and taken back
            mean = np.exp(form)
        return 2.0 * (mean - self.rows.y * form) + self.floor, 2.0 * (mean - self.rows.y), 2.0 * mean


class _HuberLosses(_NewtonLosses):
    def __init__(self, rows: GroupedSample, loss: str) -> None:
        super().__init__(rows)
        self.loss, self.delta = row_loss(loss), number_of(loss)

    def of_rows(self, form: Floats) -> tuple[Floats, Floats, Floats]:
        y = self.rows.y
        bend = (np.abs(form - y) <= self.delta).astype(np.float64)
        return self.loss.value(y, form), self.loss.slope(y, form), bend


class _KinkLosses(_NewtonLosses):
    """The pinball and the absolute loss, by barriers."""

    heights = BARRIERS

    def __init__(self, rows: GroupedSample, loss: str) -> None:
        super().__init__(rows)
        self.loss, self.height = row_loss(loss), BARRIERS[0]
        self.level, self.factor = (0.5, 2.0) if loss == "absolute" else (number_of(loss), 1.0)

    def parts(self, residual: Floats) -> tuple[Floats, Floats]:
        """Return the part above 0 and the part below of residuals, both positive, as the barrier has them."""
        far = np.abs(residual)
        more = self.height + 0.5 * (np.hypot(far, 2.0 * self.height) + far)
        less = self.height * more / (more - self.height)
        return np.where(residual > 0, more, less), np.where(residual > 0, less, more)

    def of_rows(self, form: Floats) -> tuple[Floats, Floats, Floats]:
        residual = self.rows.y - form
        above, below = self.parts(residual)
        theta = self.level - self.height / above
        # moved by a constant so that it is nowhere above the loss: bounds that can be held can be held with it
        value = theta * residual - self.height * (
            np.log(above / (2.0 * self.height)) + np.log(below / (2.0 * self.height))
        )
        bend = self.height / (above**2 + below**2)
        return self.factor * value, -self.factor * theta, self.factor * bend

    def smooth(self, weights: Floats, start: Floats | None, height: float) -> At:
        self.height = height
        at = super().best(weights, 1.0, start)
        return replace(at, losses=self.rows.by_group(self.of_rows(self.rows.A @ at.v)[0]))

    def best(self, weights: Floats, penalised: float, start: Floats | None) -> At:
        end = start
        for height in self.heights:
            self.height = height
            at = super().best(weights, penalised, end)
            end = at.v
        residual = self.rows.y - self.rows.A @ at.v
        proven = self.factor * (self.level - self.height / self.parts(residual)[0]) * residual
        short = self.rows.by_group(self.loss.value(residual, np.zeros(1)) - proven)
        return replace(at, short=at.short + float(weights @ short))

    def at(self, v: Floats) -> Floats:
        return self.rows.by_group(self.loss.value(self.rows.y, self.rows.A @ v))


def losses_of(rows: GroupedSample, loss: str) -> LinearLosses:
    """Return the group losses of linear models by a loss of labels in the units of :func:`standard_of`."""
    plain = {"square": _SquareLosses, "logistic": _LogisticLosses, "poisson": _CountLosses}
    if loss in plain:
        return plain[loss](rows)
    return (_HuberLosses if name_of(loss) == "huber" else _KinkLosses)(rows, loss)


def fit_linear(X: Floats, y: Floats, weight: Floats, loss: str, l2: float) -> tuple[Floats, float]:
    """Return coefficients and intercept of the form that minimises the mean loss plus ``l2`` times their squares.

    ``X``, ``y``, ``weight``: shapes (n, d), (n,) and (n,). ``l2``: weight of the squared coefficients where labels are
    in the units of :func:`standard_of`, so that a change of unit changes nothing else.
    """
    level, unit = standard_of(y, weight, loss)
    rows = GroupedSample.of(X, (y - level) / unit, np.zeros(len(y), dtype=np.int64), weight, 1, l2)
    v = losses_of(rows, in_units(loss, unit)).best(np.ones(1), 1.0, None).v
    return in_label_units(v, level, unit, loss)


def in_label_units(v: Floats, level: float, unit: float, loss: str) -> tuple[Floats, float]:
    """Return the coefficients and the intercept of a form for labels ``level + unit * y``, from those for ``y``."""
    if name_of(loss) in ("logistic", "poisson"):
        return v[:-1], float(v[-1]) + math.log(unit)
    return unit * v[:-1], level + unit * float(v[-1])


def solved_system(H: Floats, right: Floats) -> Floats:
    """Return the solution of a positive definite system."""
    from scipy.linalg import cho_factor, cho_solve

    return np.asarray(cho_solve(cho_factor(H), right))


def standard_of(y: Floats, weight: Floats | None, loss: str = "square") -> tuple[float, float]:
    """Return origin and unit of labels in which a loss is minimised: mean and standard deviation, where both may move.

    Labels that are all the same have the unit 1. The origin of counts is 0, and their unit the mean; chances have none.
    """
    if name_of(loss) == "logistic":
        return 0.0, 1.0
    if name_of(loss) == "poisson":
        return 0.0, float(np.average(y, weights=weight)) or 1.0
    if y.min() == y.max():
        return float(y[0]), 1.0
    level = float(np.average(y, weights=weight))
    unit = math.sqrt(float(np.average(((y - level) / np.ptp(y)) ** 2, weights=weight))) * float(np.ptp(y))
    return level, unit


GRAIN = 2.0**-32
"""Rounding of labels, in standard deviations: far below what any label means, far above what a change of unit
does to them, so that learners see the same labels in any unit."""


def standardised(y: Floats, weight: Floats | None, loss: str) -> tuple[Floats, float, float]:
    """Return labels in units of the fit with what they were, ``level + unit * label``; for the log loss as is."""
    if loss == "logistic":
        return y, 0.0, 1.0
    level, unit = standard_of(y, weight, loss)
    return np.round((y - level) / unit / GRAIN) * GRAIN, level, unit
