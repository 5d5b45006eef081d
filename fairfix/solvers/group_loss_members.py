r"""Bounded group loss of any learner: an average of fitted models.

A learner is fitted to reweighted rows. A linear program takes the best mixture of the models so far; its multipliers
weigh the rows of the next fit, or the prices of a :class:`~fairfix.solvers.exponentiated_gradient.Game` do, which is
the paper's Algorithm 2. The predictions are averaged, which costs no more than the mixture where losses are convex in
them (Jensen). The average is certified among averages of the models found; that the learner found the right models is
not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairfix.solvers.arrays import Bools, Floats, Ints
from fairfix.solvers.exponentiated_gradient import Game, Saddle, play
from fairfix.solvers.group_loss import SURE, Infeasible
from fairfix.solvers.mixtures import EXACT, best_mixture, matrix_game
from fairfix.solvers.newton import least_holding

GAIN = 1e-3
"""Gain of another fit, as a share of the mean loss, below which fitting more is taken to be of no use.

A fit of trees itself varies by more than that with the rows it sees.
"""

RowLosses = Callable[[Floats], tuple[Floats, Floats]]
"""Takes predictions, shape (n,), and returns the loss of each row, convex in its prediction, and its slope."""


@dataclass(frozen=True, eq=False)
class MembersSolution:
    """An average of fitted models within the bounds."""

    models: tuple[Any, ...]
    weights: Floats
    """``models`` and ``weights``: members as they were returned, and their weights in the average, positive and of
    sum 1.
    """
    scores: Floats
    """Average on the training rows, shape (n,)."""
    losses: Floats
    multipliers: Floats
    """``losses`` and ``multipliers``: of the average and its bounds, per group, shape (K,) each."""
    objective: float
    bound: float
    """``objective`` and ``bound``: mean loss of the average, and the certified least of any average within the bounds
    of the models found.
    """
    left: float
    """Gain in mean loss of the last fit at the prices it was made for; 0 where it gained nothing."""
    rounds: int
    """Fits, some of whose models have no weight."""
    converged: bool
    """Whether the last fit gained next to nothing, and the objective is that near to its bound."""
    saddle: Saddle | None = None
    """The game that found the prices, if one did; its numbers are in units of ``unit``."""
    unit: float = 1.0
    """Mean loss of the fit without prices."""


def solve_members(
    fit: Callable[[Floats], tuple[Any, Floats]],
    loss: RowLosses,
    codes: Ints,
    weight: Floats | None,
    bounds: Floats,
    *,
    rounds: int = 12,
    game: Game | None = None,
) -> MembersSolution | Infeasible:
    """Return an average of models within the bounds, by column generation or by a game.

    ``fit``: takes row weights, shape (n,), and returns a model and its predictions, shape (n,). ``loss``: of
    predictions. ``codes``, ``weight``, ``bounds``: as in :func:`fairfix.solvers.group_loss.solve_linear`. ``rounds``:
    most fits of column generation. ``game``: how prices are found instead, with losses in units of that of the fit
    without prices.
    """
    w = np.ones(codes.size) if weight is None else weight
    mass = np.bincount(codes, w, bounds.size)
    shares, asked = mass / mass.sum(), np.isfinite(bounds)

    def by_group(each: Floats) -> Floats:
        return np.asarray(np.bincount(codes, w * each, bounds.size) / mass)

    models: list[Any] = []
    columns: list[Floats] = []
    table = np.zeros((0, bounds.size))

    def fitted(pull: Floats) -> Floats:
        """Return the loss of each group, of a model that is fitted with these weights of the groups and kept."""
        model, scores = fit(w / mass[codes] * pull[codes] * w.sum())
        models.append(model)
        columns.append(scores)
        return by_group(loss(scores)[0])

    losses = fitted(shares)
    unit = max(float(shares @ losses), 1e-300)  # losses are counted in it, whatever the labels are in
    zeta, table = np.where(asked, bounds, 0.0) / unit, losses[None] / unit
    left, settled, saddle = math.nan, False, None

    def answer(prices: Floats) -> tuple[float, Floats]:
        nonlocal table
        pull = shares.copy()
        pull[asked] += prices
        table = np.vstack([table, fitted(pull) / unit])
        return float(shares @ table[-1]), (table[-1] - zeta)[asked]

    if game is not None and asked.any():
        saddle = play(answer, int(asked.sum()), game)
        settled = saddle.gap <= game.nu
        mixture, wanted, _ = _bounded_mixture(table, shares, zeta, asked)
    else:
        pull = shares
        for _ in range(rounds):
            mixture, wanted, level = _bounded_mixture(table, shares, zeta, asked)
            if np.abs(wanted - pull).max() <= SURE * wanted.max():  # the same fit again
                left, settled = 0.0, True
            if settled or len(models) == rounds:
                break
            pull = wanted
            losses = fitted(pull)
            left = max(level - float(pull @ losses) / unit, 0.0)
            settled = left <= GAIN
            table = np.vstack([table, losses / unit])
    program = _Averages(np.array(columns), loss, by_group, shares, zeta, asked, unit)
    mixture = program.improved(mixture)
    average = mixture @ program.columns
    losses = by_group(loss(average)[0])
    if ((losses > bounds + SURE * unit) & asked).any():
        return Infeasible(wanted / wanted.sum(), 0.0, losses)
    bound, multipliers = program.proven(mixture)
    value = float(shares @ losses)
    kept = mixture > SURE
    return MembersSolution(
        tuple(model for model, keep in zip(models, kept, strict=True) if keep),
        mixture[kept] / mixture[kept].sum(),
        average,
        losses,
        multipliers,
        value,
        bound * unit,
        left * unit,
        len(models),
        bool(settled and value - bound * unit <= (GAIN if game is None else max(GAIN, game.nu)) * unit),
        saddle,
        unit,
    )


def _bounded_mixture(
    table: Floats, shares: Floats, zeta: Floats, asked: Bools
) -> tuple[Floats, Floats, float]:
    """Return the mixture of least loss within the bounds, what to weigh groups with, and what a model costs then.

    The cost of a model is its weighted loss; one that costs less than the level returned improves the mixture. Where no
    mixture is within the bounds, it is the one of least excess.
    """
    over = (table - zeta)[:, asked]
    prices = np.zeros(zeta.size)
    game, prices[asked] = matrix_game(over) if asked.any() else (np.ones(1), 0.0)
    excess = float((game @ over).max(initial=-np.inf))
    if excess > SURE:
        return game, prices, excess + float(prices @ zeta)
    best = best_mixture(table @ shares, over.T, np.full(int(asked.sum()), max(excess, 0.0)), EXACT)
    if best is None:
        return game, shares + prices, math.inf
    mixture, prices[asked], cost = best
    return mixture, shares + prices, cost + float(prices @ zeta)


@dataclass(frozen=True, eq=False)
class _Averages:
    """The convex program of averaging models: weights ``q`` of columns, shape (M, n); losses in units of ``unit``."""

    columns: Floats
    loss: RowLosses
    by_group: Callable[[Floats], Floats]
    shares: Floats
    zeta: Floats
    asked: Bools
    unit: float

    def losses(self, q: Floats) -> Floats:
        """Return the group losses of an average, shape (K,)."""
        return self.by_group(self.loss(q @ self.columns)[0]) / self.unit

    def slopes(self, q: Floats) -> Floats:
        """Return their slopes, shape (K, M)."""
        slope = self.loss(q @ self.columns)[1] / self.unit
        return np.stack([self.by_group(slope * column) for column in self.columns], axis=1)

    def improved(self, mixture: Floats) -> Floats:
        """Return weights that use what averaging gains: the least loss, or least excess, of the average itself."""
        from scipy.optimize import minimize

        many = len(self.columns)
        if many == 1:
            return mixture

        def room(q: Floats) -> Floats:
            return np.asarray((self.zeta - self.losses(q))[self.asked])

        def excess(q: Floats) -> float:
            return max(0.0, float(-room(q).min(initial=np.inf)))

        heavy = 1e3  # times the mean loss, so that no loss is worth an excess
        held: list[Any] = [
            {
                "type": "eq",
                "fun": lambda x: float(x[:-1].sum()) - 1.0,
                "jac": lambda x: np.append(np.ones(many), 0.0),
            },
            {
                "type": "ineq",
                "fun": lambda x: room(x[:-1]) + x[-1],
                "jac": lambda x: np.column_stack(
                    [-self.slopes(x[:-1])[self.asked], np.ones(int(self.asked.sum()))]
                ),
            },
        ]
        solve: Any = minimize
        answer = solve(
            lambda x: float(self.shares @ self.losses(x[:-1])) + heavy * float(x[-1]),
            np.append(mixture, excess(mixture)),
            jac=lambda x: np.append(self.shares @ self.slopes(x[:-1]), heavy),
            method="SLSQP",
            bounds=[(0.0, 1.0)] * many + [(0.0, None)],
            constraints=held,
            options={"maxiter": 100, "ftol": 1e-12},
        )
        new = np.maximum(answer.x[:-1], 0.0)
        new /= new.sum()
        if excess(new) > SURE >= excess(mixture):  # a step back to the mixture, which is within the bounds
            back = mixture - new
            new = new + least_holding(lambda share: excess(new + share * back) <= SURE) * back
        worth = [(excess(q), float(self.shares @ self.losses(q))) for q in (new, mixture)]
        better = worth[0][0] <= worth[1][0] + SURE and (
            worth[0][0] < worth[1][0] or worth[0][1] <= worth[1][1]
        )
        return new if better else mixture

    def proven(self, q: Floats) -> tuple[float, Floats]:
        """Return a bound on the loss of every average within the bounds, and the multipliers that prove it.

        Losses are convex, so for multipliers ``m >= 0`` no average goes below ``f(q) + m (L(q) - zeta) + min_j d_j - d
        q``, ``d = grad f + m grad L``. The best ``m`` is that of a linear program.
        """
        from scipy.optimize import linprog

        losses, slopes = self.losses(q), self.slopes(q)
        whole = slopes - (slopes @ q)[:, None]
        free, held, room = self.shares @ whole, whole[self.asked], (losses - self.zeta)[self.asked]
        solve: Any = linprog  # its stubs want lists of bounds
        answer = solve(
            np.append(-room, -1.0),
            A_ub=np.column_stack([-held.T, np.ones(len(self.columns))]),
            b_ub=free,
            bounds=[(0, None)] * room.size + [(None, None)],
            method="highs",
            options=EXACT,
        )
        multipliers = np.zeros(self.zeta.size)
        if not answer.status:
            multipliers[self.asked] = np.maximum(answer.x[:-1], 0.0)
        own = multipliers[self.asked]
        least = float((free + own @ held).min())
        return float(self.shares @ losses + own @ room) + least, multipliers
