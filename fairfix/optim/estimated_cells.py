r"""The fair logistic game where a rule does not see who is in which cell, but has chances of it.

Rows have chances ``q_k(x)`` to lie in the cells, and pay ``c(x) = sum_k lambda_k q_k(x) / p_k``, which is linear in the
prices as where the cell is known (:mod:`fairfix.optim.robust_log_loss`). What is to be alike are the rates of the
*recorded* cells under the rule that comes out:

.. math::
    P(x) = \begin{cases} \min(s,\, 1/c) & c > 1 \\ \max(s,\, 1 + 1/c) & c < -1 \\ s & \text{else,} \end{cases}
    \qquad |\mathrm{rate}_k(P) - r_e| \le \epsilon/2 , \quad \mathrm{rate}_k(P) = \sum_{i \in k} w_i P(x_i) / p_k .

Chances need not be right: with ``d_k`` for what the rates by chances differ from the recorded ones at the solution, it
is a saddle point of the convex game whose rates are those by chances less ``d_k``, and certified as such. Newton's
steps are those of that game but for the rates, which are recorded; where they stop to help, the slack falls by stages
from that of the free model, and then Levenberg and Marquardt's steps are tried. A solution need not exist: where
chances tell nothing, no price moves the rates of one group alone.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy.optimize import least_squares

from fairfix.optim.arrays import Floats
from fairfix.optim.robust_log_loss import FREE, TOLERANCE, Cells, Game, Point, Solution, newton, placed

SOLVED = 1e-8
"""Residual from which on the slack holds and the point is optimal, as far as anything shows it."""

STAGES = 40
"""Slacks that are tried on the way to the one that is asked for, at most; most ways take 3 to 10."""

TRIALS = 300
"""Points that the search by Levenberg and Marquardt looks at, at most; it takes 10 to 100."""

DRIFTS = 200
"""Steps of prices that follow the gaps, at most; it takes 5 to 60."""

GROWN = 1.3
"""Times that the largest gap may grow in such a step: a gap that closes may open another. Of 200 random problems with
given scores 190 are solved with it, with 1 or 2 some 30 fewer of those with many cells."""

ROUNDING = 1e-15
"""Excess of a rate that is rounding of sums."""


class EstimatedGame(Game):
    """The game with chances of cells, shape (n, K), as what prices are paid by, and recorded cells as what is counted.

    ``recorded`` has a 1 in the column of each row's cell, or no 1, shape (n, K).
    """

    def __init__(
        self,
        X: Floats,
        y: Floats,
        w: Floats,
        cell_chances: Floats,
        recorded: Floats,
        cells: Cells,
        slack: float,
        ridge: Floats,
        given: Floats | None = None,
    ) -> None:
        self.X, self.y, self.w, self.events = X, y, w, cells.events
        self.given = np.zeros_like(w) if given is None else given
        self.slack, self.ridge, self.hessians = slack, ridge, 0
        self.recorded, self.shares, self.counts = recorded, w @ recorded, recorded.sum(axis=0)
        self.per_price = cell_chances / self.shares
        self.matrix = (np.arange(cells.events.max() + 1)[:, None] == cells.events).astype(float)
        self.scaled = np.empty_like(X)
        self.wy = X.T @ (w * y)

    def _per_cell(self, each: Floats) -> Floats:
        """Return the sums of values of rows over each recorded cell, shape (K,)."""
        return np.asarray(each @ self.recorded)

    def costs(self, prices: Floats) -> Floats:
        """Return ``c`` of each row."""
        return np.asarray(self.per_price @ prices)

    def rows_of(self, each: Floats) -> Floats:
        """Return what is one for each row already."""
        return each

    def slopes(self, at: Point, weighted: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the slopes of the gradient in prices, and of the recorded rates in coefficients and prices."""
        counted = self.recorded / self.shares
        cost = self.costs(at.prices)
        capped = np.zeros_like(cost)
        capped[~at.between] = -self.w[~at.between] / cost[~at.between] ** 2
        return (
            self.X.T @ (weighted[:, None] * self.per_price),
            counted.T @ (weighted[:, None] * self.X),
            counted.T @ (capped[:, None] * self.per_price),
        )

    def _chance(self, at: Point) -> Floats:
        """Return ``P`` of each row."""
        cost = self.costs(at.prices)
        low, high = 1.0 + 1.0 / np.minimum(cost, -1.0), 1.0 / np.maximum(cost, 1.0)
        return np.asarray(np.clip(at.s, low, high))

    def value(self, at: Point) -> float:
        """Return ``L`` at a point, of the game whose rates are those by chances less what differs from the records."""
        differs = (self.w * self._chance(at)) @ self.per_price - at.rates
        return super().value(at) - float(at.prices @ differs)

    def certified(self, at: Point) -> float:
        """Return the certified distance of the value from the saddle value of that game; infinite where none is.

        As in docs/methods/logloss.md, with ``P' = P - t(x) P (1 - P)`` for ``t(x)`` linear in the chances, which makes
        no row's loss larger by more than ``-log(1 - |t|)``.
        """
        below = float((at.gradient**2 / (2.0 * self.ridge)).sum())
        half, over = 0.5 * self.slack, at.rates - at.rate[self.events]
        wanted = np.sign(over) * np.maximum(np.abs(over) - half, 0.0)
        chance, moved, cost = self._chance(at), np.zeros_like(over), 0.0
        if np.abs(wanted).max() > ROUNDING:
            cell_chances = self.per_price * self.shares
            moves = self.per_price.T @ ((self.w * chance * (1.0 - chance))[:, None] * cell_chances)
            moved = np.linalg.lstsq(moves, wanted, rcond=1e-12)[0]
            by_row = np.abs(cell_chances @ moved)
            if np.abs(moves @ moved - wanted).max() > ROUNDING or by_row.max() >= 1.0:
                return math.inf
            cost = float(self.w @ -np.log1p(-by_row))
        owed = half * np.abs(at.prices) - at.prices * over
        return below + max(cost + float(owed.sum()), 0.0)

    def followed(self, start: Point) -> Point:
        """Return where Newton's steps lead while the slack falls from the largest gap of a point without prices."""
        target, held = self.slack, [start.rates[row > 0] for row in self.matrix]
        middle = np.array([(own.min() + own.max()) / 2.0 for own in held])
        at, reached = replace(start, rate=middle), max(float(np.ptp(own)) for own in held)
        step = reached - target
        for _ in range(STAGES):
            if reached <= target:
                break
            self.slack = max(target, reached - step)
            tried = newton(self, self.at(at.theta, at.prices, at.rate, at.z))
            if tried.merit <= SOLVED:
                at, reached, step = tried, self.slack, 2.0 * step
            else:
                step /= 3.0
        self.slack = target
        return self.at(at.theta, at.prices, at.rate, at.z)

    def drifted(self, start: Point) -> Point:
        """Return where prices come to that rise where rates are too high and fall where they are too low.

        Pseudo-transient continuation (Kelley and Keyes, SIAM J. Numer. Anal. 35, 1998): Newton's steps held back by a
        pace, which doubles as long as gaps do not grow much. Where scores are given, rates do not change with prices
        that cap no row, and Newton's steps lead nowhere; these go on at their pace.
        """
        at, pace = start, 1.0
        for _ in range(DRIFTS):
            if at.merit <= SOLVED:
                break
            step = self.step(self.system(at, 1.0 / pace), at)
            tried = self.moved(at, step, self.slope(step), 1.0)
            if tried.merit <= GROWN * at.merit:
                at, pace = tried, 2.0 * pace
            else:
                pace /= 4.0
        return at

    def searched(self, start: Point) -> Point:
        """Return where Levenberg and Marquardt's search for a root of the residual leads, and Newton's from there."""
        sizes = np.cumsum([start.theta.size, start.prices.size])

        def at(place: Floats) -> Point:
            return self.at(*np.split(place, sizes))

        def residual(place: Floats) -> Floats:
            there = at(place)
            return np.concatenate([there.gradient, there.residual, self.matrix @ there.prices])

        first = np.concatenate([start.theta, start.prices, start.rate])

        def slopes(place: Floats) -> Floats:
            return self.derivative(at(place), 0.0)

        end = least_squares(
            residual,
            first,
            jac=slopes,
            method="lm",
            x_scale="jac",
            xtol=1e-12,
            ftol=1e-12,
            max_nfev=TRIALS,
        )
        there = at(end.x)
        closer = newton(self, there)
        return closer if closer.merit < there.merit else there


def solve_estimated(
    X: Floats,
    y: Floats,
    cells: Cells,
    cell_chances: Floats,
    weight: Floats | None = None,
    *,
    start: Solution,
    slack: float = 0.0,
    l2: float = 1e-3,
    penalize_intercept: bool = False,
) -> Solution:
    """Return the saddle point at which the recorded cells' rates hold the slack under a rule that sees their chances.

    ``X``, ``y``, ``weight``, ``slack`` (below 1), ``l2`` and ``penalize_intercept`` are as in
    :func:`~fairfix.optim.robust_log_loss.solve`. ``cells``: the recorded cells, each with rows. ``cell_chances``: those
    of every row to lie in each of them, shape (n, K), which may be wrong. ``start``: the free model, or a solution of a
    similar problem. ``rates`` of the result are the recorded ones; it has not converged where none was found that holds
    the slack.
    """
    w = np.full(y.size, 1.0 / y.size) if weight is None else weight / weight.sum()
    ridge = np.append(np.full(X.shape[1], l2), l2 if penalize_intercept else FREE)
    full = np.column_stack([X, np.ones(y.size)])
    game = _game(full, y, cells, cell_chances, w, slack, ridge)
    at = _solved(game, np.append(start.coef, start.intercept), start.prices)
    return replace(_solution(game, at), coef=at.theta[:-1], intercept=float(at.theta[-1]))


def solve_estimated_prices(
    z: Floats,
    y: Floats,
    cells: Cells,
    cell_chances: Floats,
    weight: Floats | None = None,
    *,
    slack: float = 0.0,
    start: Floats,
) -> Solution:
    """Return the prices at which recorded rates hold the slack, where the linear scores ``z``, shape (n,), are given.

    ``start``: prices near them, shape (K,). The others are as for :func:`solve_estimated`; ``coef`` is empty.
    """
    w = np.full(y.size, 1.0 / y.size) if weight is None else weight / weight.sum()
    game = _game(np.zeros((y.size, 1)), y, cells, cell_chances, w, slack, np.array([FREE]), z)
    at = newton(game, placed(game, np.zeros(1), start), 0.1 * TOLERANCE)
    for begin in (start, np.zeros_like(start)):
        if at.merit > SOLVED:
            drifted = game.drifted(placed(game, np.zeros(1), begin))
            at = min(at, newton(game, drifted, 0.1 * TOLERANCE), key=lambda point: point.merit)
    return _solution(game, at)


def _game(
    full: Floats,
    y: Floats,
    cells: Cells,
    cell_chances: Floats,
    w: Floats,
    slack: float,
    ridge: Floats,
    given: Floats | None = None,
) -> EstimatedGame:
    recorded = (cells.codes[:, None] == np.arange(cells.events.size)).astype(np.float64)
    return EstimatedGame(full, y.astype(np.float64), w, cell_chances, recorded, cells, slack, ridge, given)


def _solved(game: EstimatedGame, theta: Floats, prices: Floats) -> Point:
    """Return the point where steps from coefficients and prices, or other ways from these coefficients, lead."""
    free = np.zeros(game.events.size)
    at = newton(game, placed(game, theta, prices if prices.size == free.size else free), 0.1 * TOLERANCE)
    for other in (game.followed, game.searched, game.drifted):
        if at.merit > SOLVED:
            at = min(at, other(placed(game, theta, free)), key=lambda point: point.merit)
    return at


def _solution(game: EstimatedGame, at: Point) -> Solution:
    """Return a point as a solution without coefficients."""
    return Solution(
        coef=np.zeros(0),
        intercept=0.0,
        prices=at.prices,
        shares=game.shares,
        rates=at.rates,
        objective=game.value(at),
        gap=game.certified(at),
        steps=game.hessians,
        converged=at.merit <= SOLVED,
    )
