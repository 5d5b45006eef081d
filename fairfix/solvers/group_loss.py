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

Losses with a kink are made smooth by a barrier that is lowered along the way; it is nowhere above the loss, so what
holds of it by duality holds of the loss.

**Units.** Losses are solved for labels of mean 0 and variance 1, or of mean 1 (Poisson deviance), so tolerances mean
the same in any unit.

The proof that no linear model holds the bounds, and models whose values are moved into a range, which may hold them
then, are derived in docs/methods/fair-regression.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from fairfix.solvers.arrays import Bools, Floats, Ints
from fairfix.solvers.linear_losses import (
    At,
    GroupedSample,
    HingeLosses,
    LinearLosses,
    in_label_units,
    losses_of,
    solved_system,
    standard_of,
)
from fairfix.solvers.losses import in_units, row_loss
from fairfix.solvers.mixtures import matrix_game
from fairfix.solvers.newton import least_holding

ROUNDS = 200
"""Most cutting planes."""

STEPS = 100
"""Most Newton steps on the multipliers."""

SURE = 1e-9
"""Rounding of a loss of labels of variance 1, and of the ratio of a loss to its bound."""

NEAR = 1e-6
"""Largest gap, as a share of the loss of the free model, with which a solver has converged."""

LOST = 100.0
"""Cost of a barrier of height 1, in the same fraction: some 2 for each unit of multipliers and of loss."""

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
    level, unit = standard_of(y, weight, loss)
    rows = GroupedSample.of(X, (y - level) / unit, codes, weight, bounds.size, l2)
    ends = None if into is None else ((into[0] - level) / unit, (into[1] - level) / unit)
    scale = unit ** row_loss(loss).power
    solved = _LossSearch(losses_of(rows, in_units(loss, unit)), bounds / scale, ends).run()
    scaled = (
        ("excess", "losses", "level") if isinstance(solved, Infeasible) else ("losses", "objective", "bound")
    )
    solved = replace(solved, **{name: getattr(solved, name) * scale for name in scaled})
    if isinstance(solved, Infeasible):
        return solved
    coef, intercept = in_label_units(np.append(solved.coef, solved.intercept), level, unit, loss)
    return replace(solved, coef=coef, intercept=intercept)


class _LossSearch:
    """The search for a model within the bounds; losses are of labels of variance 1, or in nats."""

    def __init__(self, model: LinearLosses, bounds: Floats, into: tuple[float, float] | None = None) -> None:
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
            moved = self._moved(free, inside, self.into)
            if isinstance(moved, GroupLossSolution):
                return moved
            return replace(proof, losses=self.shipped(moved))
        return proof

    def least_excess(self, start: Floats, free: At) -> tuple[Floats, Infeasible]:
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

    def _solution(self, v: Floats, multipliers: Floats, dual: float, free: At) -> GroupLossSolution:
        losses = self.shipped(v)
        value = self._value(v, losses)
        near = value - dual <= (NEAR + LOST * self.model.heights[-1]) * float(free.losses.max())
        return GroupLossSolution(
            v[:-1], float(v[-1]), losses, multipliers, value, dual, self.model.solved, near
        )

    def within(self, v: Floats, inside: Floats) -> Floats:
        """Return the model nearest to ``v`` on the way to one inside the bounds that holds them."""

        def holds(u: Floats) -> bool:
            return bool((self.shipped(u) <= self.bounds)[self.asked].all())

        if holds(v) or not holds(inside):
            return v if self.holds(v) else inside
        return v + least_holding(lambda share: holds(v + share * (inside - v))) * (inside - v)

    # ------------------------------------------------------------------ values moved into a range

    def _moved(self, free: At, inside: Floats, into: tuple[float, float]) -> GroupLossSolution | Floats:
        """Return a model that holds the bounds once its values are moved, or the best that was found."""
        rows, best = self.model.rows, inside
        hinge = HingeLosses(rows, into)
        search = _LossSearch(hinge, self.bounds, into)
        none = np.zeros(self.bounds.size)
        for _ in range(TRIMS if np.isin(rows.y, into).all() else 0):
            v, proof = search.least_excess(best, free)
            if self.holds(v) and not proof.excess:
                multipliers, at, dual = _multipliers(
                    hinge, self.zeta, self.asked, hinge.best(rows.shares, 1.0, v)
                )
                better = search.within(at.v, v)
                near = self._value(better, hinge.at(better)) - dual <= NEAR * float(free.losses.max())
                return replace(self._solution(better, multipliers, math.nan, free), converged=near)
            best = min(v, best, key=lambda u: float((self.shipped(u) - self.zeta)[self.asked].max()))
            low, high = into
            form = rows.A @ v
            beyond = np.where(rows.y == low, form > high, form < low)
            if self.holds(best) or (beyond == hinge.given_up).all():
                break
            hinge.given_up = beyond
        return self._solution(best, none, math.nan, free) if self.holds(best) else best


def _least_excess(
    model: LinearLosses, zeta: Floats, asked: Bools, units: Floats, start: Floats
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
        if upper - best <= SURE + 2.0 * at.short * scale or (best_mu == mu).all():
            break
    weights = np.zeros(zeta.size)
    weights[asked] = best_mu / units[asked]
    excess = max(best - SURE, 0.0) / weights.sum()
    return inside, Infeasible(weights / weights.sum(), excess, model.at(inside))


def _multipliers(model: LinearLosses, zeta: Floats, asked: Bools, free: At) -> tuple[Floats, At, float]:
    """Return the multipliers, the model that is best for them, and what they prove, by projected Newton steps."""
    now, at = np.zeros(zeta.size), free
    for height in model.heights:
        now, at, value = _multipliers_at(model, zeta, asked, now, at.v, height)
    if len(model.heights) > 1:  # without the last barrier
        at = model.best(model.rows.shares + now, 1.0, at.v)
        value = _dual(model, zeta, now, at)
    return now, at, value - at.short


def _dual(model: LinearLosses, zeta: Floats, multipliers: Floats, at: At) -> float:
    """Return the value of the dual problem where ``at`` solves the inner one."""
    own = (model.rows.shares + multipliers) @ at.losses + model.rows.penalty @ at.v**2
    return float(own - multipliers @ zeta)


def _multipliers_at(
    model: LinearLosses, zeta: Floats, asked: Bools, now: Floats, start: Floats, height: float
) -> tuple[Floats, At, float]:
    """Return the same for losses with a barrier, with the value of the dual, from multipliers and coefficients."""
    units = np.maximum(np.abs(zeta), 1e-300)

    def dual(m: Floats, start: Floats) -> tuple[float, At]:
        at = model.smooth(model.rows.shares + m, start, height)
        return _dual(model, zeta, m, at), at

    value, at = dual(now, start)
    for _ in range(STEPS):
        slope = np.where(asked, at.losses - zeta, 0.0)
        open_ = asked & ((now > 0) | (slope > 0))
        if not open_.any() or (np.abs(slope) / units)[open_].max() <= max(1e-11, 0.01 * height):
            break
        g = at.slopes[open_]
        curve = g @ solved_system(at.curvature, g.T)
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
    return now, at, value
