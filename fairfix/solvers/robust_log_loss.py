r"""The fair logistic game: a saddle point in coefficients and prices, solved to a certified optimum.

Rows carry features ``x`` (with an intercept), a label ``y``, a weight ``w`` (of sum 1) and may be recorded in one cell
``k`` of mass ``p_k``; cells of one event are to get the same rate. A rule has chances ``q_k(x)`` of the cells: 0 and 1
where it sees them. With ``z = x' theta``, ``s = sigmoid(z)`` and prices ``lambda_k``, of sum 0 in each event, let
``c(x) = sum_k lambda_k q_k(x) / p_k``:

.. math::
    \min_\theta \max_\lambda\; L(\theta, \lambda) = \sum_i w_i\, [\phi(z_i, c_i) - z_i y_i]
    + \tfrac C2 |\theta|^2 - \tfrac\epsilon2 \sum_k |\lambda_k| ,
    \qquad \phi(z, c) = \min_{0 \le P \le 1} \max(z - \log P,\, -\log(1 - P)) + c P .

``P`` is ``s``, capped at ``1/c`` for ``c > 1`` and lifted to ``1 + 1/c`` for ``c < -1``; the adversary ``Q = P (1 + c
(1 - P))`` is the slope of ``phi`` in ``z``. What is to be alike are the rates of the *recorded* cells under the rule
that comes out. With chances that are wrong, that is a saddle point of the game whose rates are those by chances less
what these differ from the recorded ones at the solution.

Powell's method finds the root of the optimality conditions. Where it ends too soon, the inner maximum less a proximal
term is exact, and smooth in the coefficients (Danskin's theorem): rounds of the method of multipliers minimise it, and
always converge. With chances, prices follow the gaps, or the solution is followed from the game that sees the cells.
Solver and certificate are
derived in docs/methods/logloss.md.

References
----------
A. Rezaei, R. Fathony, O. Memarrast and B. Ziebart, *Fairness for robust log loss classification*, AAAI 2020:
Definition 4, Theorems 1 and 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize, root
from scipy.sparse import csr_array
from scipy.special import expit

from fairfix.solvers.arrays import Bools, Floats, Ints, shares_of
from fairfix.solvers.log_loss_multipliers import proximal_prices

SOLVED = 1e-8
"""Residual of the optimality conditions (largest entry) at which the slack holds and the point is optimal."""

CERTIFIED = 1e-10
"""Certified distance from the optimum above which further rounds are tried."""

POINTS = 300
"""Points that one search looks at, at most; most look at 10 to 40."""

ROUNDS = 13
"""Rounds of multipliers at most; in each the proximal term is a fifth of the last."""

STAGES = 40
"""Games at most between the one that sees the cells and the one by chances; most ways take 2 to 10."""

DRIFTS = 200
"""Steps of prices that follow the gaps, at most; it takes 5 to 60."""

GROWN = 1.3
"""Times that the largest gap may grow in such a step: a gap that closes may open another."""

FREE = 1e-9
"""Weight of the squared intercept where it is not to be penalised: it keeps the optimum finite, and moves nothing."""

SAMPLED = 8
"""About one row in this number makes the start, where there are enough of them."""

LEAST = 50
"""Rows of a cell that are drawn at least, if it has them."""

ROUNDING = 1e-15
"""Excess of a rate that is rounding of sums."""


@dataclass(frozen=True, eq=False)
class ConstraintGroups:
    """Cells of rows, and events within which cells are to get the same rate."""

    codes: Ints
    """Cell of each row, shape (n,); -1 for none."""
    events: Ints
    """Event of each cell, shape (K,), counted from 0."""


@dataclass(frozen=True, eq=False)
class SaddlePoint:
    """A saddle point."""

    coef: Floats
    intercept: float
    """``coef`` and ``intercept``: of the linear score ``z``; shape (d,)."""
    prices: Floats
    """``lambda_k``, shape (K,)."""
    shares: Floats
    """``p_k``, shape (K,)."""
    rates: Floats
    """Mean of ``P`` in each recorded cell, shape (K,)."""
    objective: float
    """``L``."""
    gap: float
    """Certified distance of ``L`` from the saddle value, either way; infinite where nothing is known."""
    steps: int
    """Second derivatives that it took, those of a part of the rows among them."""
    converged: bool
    """Whether the residual came below the tolerance."""


def truncated(score: Floats, price: Floats) -> Floats:
    """Return ``P`` for scores ``s`` and prices ``c``, shape (n,) each."""
    return np.asarray(np.clip(score, 1.0 + 1.0 / np.minimum(price, -1.0), 1.0 / np.maximum(price, 1.0)))


def adversary(score: Floats, price: Floats) -> Floats:
    """Return ``Q = P (1 + c (1 - P))`` for scores ``s`` and prices ``c``, shape (n,) each, in [0, 1]."""
    chance = truncated(score, price)
    return np.clip(chance * (1.0 + price * (1.0 - chance)), 0.0, 1.0)


@dataclass(frozen=True, eq=False)
class GamePoint:
    """The game at ``x = (theta, lambda, r)``: ``r`` are the rates of the events, shape (E,)."""

    x: Floats
    z: Floats
    s: Floats
    c: Floats
    P: Floats
    gradient: Floats
    rates: Floats
    over: Floats  # of the rates of the cells over those of their events
    active: Bools  # cells whose rate is at an end of the slack
    residual: Floats

    @property
    def between(self) -> Bools:
        """Rows that are neither capped nor lifted."""
        return np.asarray(self.s == self.P)

    @property
    def merit(self) -> float:
        """Largest entry of the residual."""
        return float(np.abs(self.residual).max())


class LogLossSaddle:
    """Rows with all that does not change; ``cell_chances`` has shape (n, K), None where the rule sees the cells."""

    def __init__(
        self,
        X: Floats,
        y: Floats,
        w: Floats,
        cells: ConstraintGroups,
        cell_chances: Floats | None,
        slack: float,
        ridge: Floats,
        given: Floats | None = None,
    ) -> None:
        self.X, self.y, self.w, self.cells, self.events = X, y, w, cells, cells.events
        self.slack, self.ridge, self.given, self.steps = slack, ridge, given, 0
        recorded = _one_each(cells)
        self.shares = np.asarray(recorded.T @ w)
        self.counted = recorded.multiply(1.0 / self.shares[None, :]).tocsr()
        self.seen = cell_chances is None
        self.per_price = self.counted if cell_chances is None else cell_chances / self.shares
        self.rates_of, self.spread_of = self.counted.T, self.per_price.T
        self.matrix = (np.arange(self.events.max(initial=-1) + 1)[:, None] == self.events).astype(float)
        self.ends = np.cumsum([X.shape[1], self.events.size])
        self.wy = X.T @ (w * y)

    def parts(self, x: Floats) -> list[Floats]:
        """Return coefficients, prices and rates of events."""
        return np.split(x, self.ends)

    def linear_scores(self, theta: Floats) -> Floats:
        """Return ``z`` of each row, shape (n,)."""
        z = self.X @ theta
        return np.asarray(z if self.given is None else z + self.given)

    def at(self, x: Floats, z: Floats | None = None) -> GamePoint:
        """Return the game at a point; ``z``: its scores, where they are known."""
        theta, prices, rate = self.parts(x)
        if z is None:
            z = self.linear_scores(theta)
        with np.errstate(over="ignore"):
            s = 1.0 / (1.0 + np.exp(-z))  # several times as fast as scipy's
        c = self.per_price @ prices
        P = truncated(s, c)
        mass = self.w * P
        rates = self.rates_of @ mass
        gradient = self.X.T @ (mass * (1.0 + c * (1.0 - P))) - self.wy + self.ridge * theta
        over = rates - rate[self.events]
        aim, half = prices + over, 0.5 * self.slack
        active = (np.abs(aim) > half) | (half == 0)
        of_prices = np.where(active, over - half * np.sign(aim), -prices)
        return GamePoint(
            x, z, s, c, P, gradient, rates, over, active,
            np.concatenate([gradient, of_prices, self.matrix @ prices]),
        )  # fmt: skip

    def placed(self, theta: Floats, prices: Floats) -> GamePoint:
        """Return the game at coefficients and prices, with rates of events in the middle of their cells'."""
        at = self.at(np.concatenate([theta, prices, np.zeros(len(self.matrix))]))
        held = [at.rates[row > 0] for row in self.matrix]
        return self.at(np.concatenate([theta, prices, [(own.min() + own.max()) / 2.0 for own in held]]), at.z)

    def derivative(self, at: GamePoint, give: float = 0.0) -> Floats:
        """Return the derivative of the residual, with ``-give`` added to the prices' own slopes."""
        self.steps += 1
        d, many, between = self.X.shape[1], self.events.size, at.between
        spread = self.w * at.s * (1.0 - at.s) * between
        rows = self.X * np.sqrt(np.maximum(spread * (1.0 + at.c * (1.0 - 2.0 * at.s)), 0.0))[:, None]
        out = np.zeros((at.x.size, at.x.size))
        prices, events = slice(d, d + many), d + many + self.events
        out[:d, :d] = rows.T @ rows
        out[np.arange(d), np.arange(d)] += self.ridge
        spread_rows = np.multiply(self.X, spread[:, None], out=rows)
        out[prices, :d] = self.rates_of @ spread_rows
        out[:d, prices] = out[prices, :d].T if self.seen else (self.spread_of @ spread_rows).T
        capped = -self.w * ~between / np.where(between, 1.0, at.c) ** 2
        if self.seen:
            out[prices, prices] = np.diag(self.rates_of @ capped / self.shares)
        else:
            out[prices, prices] = self.rates_of @ (self.per_price * capped[:, None])
        own = np.arange(d, d + many)
        out[own, own] -= give
        out[own, events] = -1.0
        out[own[~at.active]] = 0.0
        out[own[~at.active], own[~at.active]] = -1.0
        out[events, own] = 1.0
        idle = (
            d + many + np.flatnonzero(self.matrix @ at.active == 0)
        )  # rates that are anything between: they stay
        out[idle] = 0.0
        out[idle, idle] = 1.0
        return out

    def value(self, at: GamePoint) -> float:
        """Return ``L`` at a point, of the game whose rates are those by chances less what differs from the records."""
        theta, prices, _ = self.parts(at.x)
        phi, cut = np.logaddexp(0.0, at.z) + at.c * at.s, ~at.between
        c = at.c[cut]
        phi[cut] = np.where(c > 0, at.z[cut], c) + np.log(np.abs(c)) + 1.0
        paid = 0.5 * self.slack * np.abs(prices).sum()
        if not self.seen:
            paid += prices @ (self.spread_of @ (self.w * at.P) - at.rates)
        return float(self.w @ (phi - self.y * at.z) + 0.5 * self.ridge @ theta**2 - paid)

    def certified(self, at: GamePoint) -> float:
        """Return the certified distance of the value from the saddle value of that game; infinite where none is.

        As in docs/methods/logloss.md: by chances, ``P' = P - t(x) P (1 - P)`` has the rates that are wanted, for
        ``t(x)`` linear in the chances, and no row's loss is larger by more than ``-log(1 - |t|)``.
        """
        below = float((at.gradient**2 / (2.0 * self.ridge)).sum())
        prices, half = self.parts(at.x)[1], 0.5 * self.slack
        wanted = np.sign(at.over) * np.maximum(np.abs(at.over) - half, 0.0)
        cost = 0.0
        if self.seen:
            moved = np.abs(wanted) / np.maximum(np.where(at.over > 0, at.rates, 1.0 - at.rates), 1e-300)
            cost = float(self.shares @ -np.log1p(-np.minimum(moved, 1.0 - 1e-16)))
        elif np.abs(wanted).max() > ROUNDING:
            cell_chances = self.per_price * self.shares
            moves = self.spread_of @ (cell_chances * (self.w * at.P * (1.0 - at.P))[:, None])
            moved = np.linalg.lstsq(moves, wanted, rcond=1e-12)[0]
            by_row = np.abs(cell_chances @ moved)
            if np.abs(moves @ moved - wanted).max() > ROUNDING or by_row.max() >= 1.0:
                return math.inf
            cost = float(self.w @ -np.log1p(-by_row))
        owed = half * np.abs(prices) - prices * at.over
        return below + max(cost + float(owed.sum()), 0.0)

    def solved(self, at: GamePoint) -> bool:
        """Tell whether a point is the saddle point, as far as anything shows it."""
        return at.merit <= SOLVED and self.certified(at) <= CERTIFIED


def _one_each(cells: ConstraintGroups) -> csr_array:
    """Return a 1 in the column of each row's cell, or no 1, shape (n, K)."""
    inside = cells.codes >= 0
    ends = np.concatenate([[0], np.cumsum(inside)])
    return csr_array((np.ones(ends[-1]), cells.codes[inside], ends), shape=(inside.size, cells.events.size))


def _powell(game: LogLossSaddle, at: GamePoint) -> GamePoint:
    """Return where Powell's hybrid method leads, if that is nearer to a root of the residual.

    Its trust region is scaled by the columns of the derivative, so that units of the features do not matter.
    """
    last = at

    def there(x: Floats) -> GamePoint:
        nonlocal last
        if not np.array_equal(last.x, x):
            last = game.at(x.copy())
        return last

    def residual(x: Floats) -> Floats:
        return there(x).residual.copy()  # the search writes into what it is given

    def derivative(x: Floats) -> Floats:
        return game.derivative(there(x))

    # the last steps converge fast: where they are this short, the certificates of most games are below 1e-11
    settings: dict[str, Any] = {"method": "hybr", "options": {"xtol": 1e-9, "maxfev": POINTS}}
    end = there(root(residual, at.x, jac=derivative, **settings).x)
    return end if end.merit < at.merit else at


def _round(game: LogLossSaddle, at: GamePoint, tau: float) -> GamePoint:
    """Return the minimum in ``theta`` of the inner maximum less ``|lambda - lambda_t|^2 / (2 tau)``."""
    d, before, last = game.X.shape[1], game.parts(at.x)[1], at
    inside = [np.flatnonzero(game.cells.codes == k) for k in range(game.events.size)]

    def inner(theta: Floats) -> GamePoint:
        nonlocal last
        if last is at or not np.array_equal(last.x[:d], theta):
            z = game.linear_scores(theta)
            s = expit(z)
            scored = [(s[rows], game.w[rows]) for rows in inside]
            last = game.at(
                np.concatenate([theta, *proximal_prices(scored, game.events, game.slack, before, tau)]), z
            )
        return last

    def value(theta: Floats) -> tuple[float, Floats]:
        there = inner(theta)
        moved = game.parts(there.x)[1] - before
        return game.value(there) - float(moved @ moved) / (2.0 * tau), there.gradient

    def curvature(theta: Floats) -> Floats:
        there = inner(theta)
        priced = (game.parts(there.x)[1] != 0) | (game.slack == 0)
        whole = game.derivative(replace(there, active=priced), 1.0 / tau)
        out = whole[:d, :d] - whole[:d, d:] @ np.linalg.pinv(whole[d:, d:]) @ whole[d:, :d]
        return np.asarray(out + out.T) / 2.0

    end = minimize(value, at.x[:d], jac=True, hess=curvature, method="trust-exact", options={"gtol": 1e-9})
    return inner(end.x)


def _saddle(game: LogLossSaddle, start: GamePoint) -> GamePoint:
    """Return the saddle point of a game that sees the cells."""
    best, at = _powell(game, start), start
    for k in range(ROUNDS):
        if game.solved(best):
            break
        at = _powell(game, _round(game, at, 5.0**k))
        best = at if at.merit < best.merit else best
    return best


def _drifted(game: LogLossSaddle, start: GamePoint) -> GamePoint:
    """Return where prices come to that rise where rates are too high and fall where they are too low.

    Pseudo-transient continuation (Kelley and Keyes, SIAM J. Numer. Anal. 35, 1998): Newton's steps held back by a pace,
    which doubles as long as gaps do not grow much. Where scores are given, rates do not change with prices that cap no
    row, and a search for a root leads nowhere; these steps go on.
    """
    at, pace = start, 1.0
    for _ in range(DRIFTS):
        if at.merit <= SOLVED:
            break
        step = np.linalg.lstsq(game.derivative(at, 1.0 / pace), -at.residual, rcond=1e-13)[0]
        tried = game.at(at.x + step)
        at, pace = (tried, 2.0 * pace) if tried.merit <= GROWN * at.merit else (at, pace / 4.0)
    return _powell(game, at)


def _followed(game: LogLossSaddle, start: GamePoint, cell_chances: Floats) -> GamePoint:
    """Return the solution by chances, or the one that is nearest to it on the way from the game that sees the cells."""
    best = start
    for search in (_powell, _drifted):
        best = min(best, search(game, start), key=lambda point: point.merit)
        if best.merit <= SOLVED:
            return best
    truth, reached, step = _one_each(game.cells).toarray(), 0.0, 0.5
    own = game.X, game.y, game.w, game.cells
    more = game.slack, game.ridge, game.given
    seen = LogLossSaddle(*own, None, *more)
    at = _saddle(seen, start)
    game.steps += seen.steps
    for _ in range(STAGES):
        share = min(reached + step, 1.0)
        part = (
            game if share == 1.0 else LogLossSaddle(*own, (1.0 - share) * truth + share * cell_chances, *more)
        )
        tried = _powell(part, part.at(at.x))
        game.steps += part.steps * (part is not game)
        if tried.merit <= SOLVED:
            if share == 1.0:
                return tried
            at, reached, step = tried, share, 2.0 * step
        else:
            step /= 3.0
    return min(best, game.at(at.x), key=lambda point: point.merit)


def solve(
    X: Floats,
    y: Floats,
    cells: ConstraintGroups,
    weight: Floats | None = None,
    *,
    cell_chances: Floats | None = None,
    slack: float = 0.0,
    l2: float = 1e-3,
    penalize_intercept: bool = False,
    start: SaddlePoint | None = None,
) -> SaddlePoint:
    """Return the saddle point.

    ``X``, ``y``: features of shape (n, d) and labels 0/1 of shape (n,). ``cells``: which rows are to get the same rate.
    ``weight``: row weights, shape (n,); None for equal ones. ``cell_chances``: of each row to lie in each cell, shape
    (n, K), where the rule does not see the cells; they may be wrong. ``slack``: largest difference between two rates of
    an event; 1 or more: any. ``l2``: ``C > 0``. ``penalize_intercept``: whether ``C`` is about the intercept too, as in
    the authors' code. ``start``: a solution of a similar problem.

    With ``cell_chances`` a solution need not exist, and it has not converged where none was found that holds the slack.
    """
    full, w = np.column_stack([X, np.ones(y.size)]), shares_of(weight, y.size)
    ridge = np.append(np.full(X.shape[1], l2), l2 if penalize_intercept else FREE)
    by = None if slack >= 1.0 else cell_chances
    game = LogLossSaddle(
        full, y.astype(float), w, cells, by, min(slack, 1.0), ridge
    )  # rates differ by no more than 1
    if start is None:
        at = _first(game)
    else:
        alike = start.prices.size == cells.events.size
        prices = start.prices if alike else np.zeros(cells.events.size)
        at = game.placed(np.append(start.coef, start.intercept), prices)
    at = _saddle(game, at) if by is None else _followed(game, at, by)
    return replace(_solution(game, at), coef=at.x[: X.shape[1]], intercept=float(at.x[X.shape[1]]))


def solve_prices(
    z: Floats,
    y: Floats,
    cells: ConstraintGroups,
    weight: Floats | None = None,
    *,
    cell_chances: Floats | None = None,
    slack: float = 0.0,
    start: Floats,
) -> SaddlePoint:
    """Return the best prices where the linear scores ``z``, shape (n,), are given.

    Its value is the least of all probabilities that hold the slack, given these scores. ``start``: prices near the best
    ones, shape (K,). The others are as for :func:`solve`; ``coef`` is empty and ``intercept`` 0, up to rounding.
    """
    nothing, w = np.zeros((y.size, 1)), shares_of(weight, y.size)
    game = LogLossSaddle(
        nothing, y.astype(float), w, cells, cell_chances, min(slack, 1.0), np.array([FREE]), z
    )
    at = game.placed(np.zeros(1), start)
    return _solution(game, _saddle(game, at) if cell_chances is None else _followed(game, at, cell_chances))


def _solution(game: LogLossSaddle, at: GamePoint) -> SaddlePoint:
    """Return a point as a solution without coefficients."""
    return SaddlePoint(
        coef=np.zeros(0),
        intercept=0.0,
        prices=game.parts(at.x)[1],
        shares=game.shares,
        rates=at.rates,
        objective=game.value(at),
        gap=game.certified(at),
        steps=game.steps,
        converged=at.merit <= SOLVED,
    )


def _first(game: LogLossSaddle) -> GamePoint:
    """Return the saddle point of a part of the rows if there are many, or the game without coefficients or prices.

    A row is drawn with a chance in proportion to its squared length and weight, or to what small cells need, and
    is weighted by the inverse. Rows of rare categories, which are long where columns are of like spread, are all there:
    without them their coefficients would begin far off, where the logistic curve is flat.
    """
    n, d = game.X.shape
    mean = float(np.clip(game.w @ game.y, 1e-12, 1.0 - 1e-12))
    theta, free = np.append(np.zeros(d - 1), math.log(mean / (1.0 - mean))), np.zeros(game.events.size)
    if n < 3000 * SAMPLED or n < 20 * SAMPLED * d:
        return game.placed(theta, free)
    length, codes = game.w * np.einsum("ij,ij->i", game.X, game.X), game.cells.codes
    small = np.append(SAMPLED * LEAST / np.bincount(codes[codes >= 0], minlength=free.size), 0.0)[codes]
    chance = np.clip(np.maximum(length / length.mean(), small), 1.0, SAMPLED) / SAMPLED
    rows = np.flatnonzero(np.diff(np.floor(np.cumsum(chance) + 1e-9), prepend=0.0))
    w, cells = game.w[rows] / chance[rows], ConstraintGroups(codes[rows], game.events)
    if not np.bincount(cells.codes[cells.codes >= 0], w[cells.codes >= 0], free.size).all():
        return game.placed(theta, free)
    part = LogLossSaddle(game.X[rows], game.y[rows], w / w.sum(), cells, None, game.slack, game.ridge)
    end = _saddle(part, part.placed(theta, free))
    game.steps += part.steps
    return game.placed(*part.parts(end.x)[:2])


def marginal(score: Floats, price_of_0: Floats, price_of_1: Floats) -> tuple[Floats, Floats]:
    r"""Return (P, pi) where the label is not known: eqs. 14 to 16 of the paper.

    The label's chance is the fixed point of the adversary, ``pi = pi Q(. | y = 1) + (1 - pi) Q(. | y = 0)``, so ``pi =
    Q_0 / (1 - Q_1 + Q_0)``; where both are certain of the label they are given (``Q_1 = 1``, ``Q_0 =
    0``) every ``pi`` is one, and the plain score is taken. Then ``P = pi P_1 + (1 - pi) P_0``.

    ``score``: ``s``, shape (n,). ``price_of_0``, ``price_of_1``: ``c`` of the row if its label were 0, or 1; shape
    (n,) each.
    """
    one, zero = adversary(score, price_of_1), adversary(score, price_of_0)
    total = (1.0 - one) + zero
    with np.errstate(invalid="ignore", divide="ignore"):
        label = np.where(total > 1e-12, zero / total, score)
    label = np.clip(label, 0.0, 1.0)
    chance = label * truncated(score, price_of_1) + (1.0 - label) * truncated(score, price_of_0)
    return np.clip(chance, 0.0, 1.0), label
