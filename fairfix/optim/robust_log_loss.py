r"""The fair logistic game: a saddle point in coefficients and prices, solved to a certified optimum.

Rows carry features ``x`` (with an intercept), a label ``y``, a weight ``w`` (of sum 1) and may lie in one cell ``k`` of
mass ``p_k``; cells of one event are to get the same rate. With ``z = x' theta``, ``s = sigmoid(z)`` and prices
``lambda_k``, of sum 0 in each event, let ``c = lambda_k / p_k`` for rows of cell ``k``, else 0:

.. math::
    \min_\theta \max_\lambda\; L(\theta, \lambda) = \sum_i w_i\, [\phi(z_i, c_i) - z_i y_i]
    + \tfrac C2 |\theta|^2 - \tfrac\epsilon2 \sum_k |\lambda_k| ,
    \qquad \phi(z, c) = \min_{0 \le P \le 1} \max(z - \log P,\, -\log(1 - P)) + c P .

``P`` is ``s``, capped at ``1/c`` for ``c > 1`` and lifted to ``1 + 1/c`` for ``c < -1``; the adversary ``Q = P (1 + c
(1 - P))`` is the slope of ``phi`` in ``z``. The solver (joint Newton steps, then rounds of the method of multipliers),
the certificate, and what the paper has otherwise are derived in docs/methods/logloss.md.

References
----------
A. Rezaei, R. Fathony, O. Memarrast and B. Ziebart, *Fairness for robust log loss classification*, AAAI 2020:
Definition 4, Theorems 1 and 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy.linalg import lapack
from scipy.special import expit

from fairfix.optim.arrays import Bools, Floats, Ints
from fairfix.optim.newton import descend
from fairfix.optim.robust_prices import proximal_prices

Solver = Callable[[Floats], Floats]

TOLERANCE = 1e-11
"""Residual of the optimality conditions (largest entry) at which the solver stops."""

CERTIFIED = 1e-9
"""Certified distance from the optimum above which further steps are tried."""

STEPS = 60
"""Newton steps at most in one go."""

ROUNDS = 13
"""Rounds of multipliers at most; in each the proximal term is a fifth of the last."""

FREE = 1e-9
"""Weight of the squared intercept where it is not to be penalised: it keeps the optimum finite, and moves nothing."""

SAMPLED = 8
"""About one row in so many makes the start, where there are enough of them."""

LEAST = 50
"""Rows of a cell that are drawn at least, if it has them."""


@dataclass(frozen=True, eq=False)
class Cells:
    """Cells of rows, and events within which cells are to get the same rate."""

    codes: Ints
    """Cell of each row, shape (n,); -1 for none."""
    events: Ints
    """Event of each cell, shape (K,), counted from 0."""


@dataclass(frozen=True, eq=False)
class Solution:
    """A saddle point."""

    coef: Floats
    intercept: float
    """``coef`` and ``intercept``: of the linear score ``z``; shape (d,)."""
    prices: Floats
    """``lambda_k``, shape (K,)."""
    shares: Floats
    """``p_k``, shape (K,)."""
    rates: Floats
    """Mean of ``P`` in each cell, shape (K,)."""
    objective: float
    """``L``."""
    gap: float
    """Certified distance of ``L`` from the saddle value, either way."""
    steps: int
    """Second derivatives that it took, those of a part of the rows among them."""
    converged: bool
    """Whether the residual came below the tolerance."""


def truncated(score: Floats, price: Floats) -> Floats:
    """Return ``P`` for scores ``s`` and prices ``c``, shape (n,) each."""
    return np.clip(score, *_limits(price))


def adversary(score: Floats, price: Floats) -> Floats:
    """Return ``Q = P (1 + c (1 - P))`` for scores ``s`` and prices ``c``, shape (n,) each, in [0, 1]."""
    chance = truncated(score, price)
    return np.clip(chance * (1.0 + price * (1.0 - chance)), 0.0, 1.0)


def _limits(price: Floats) -> tuple[Floats, Floats]:
    """Return the least and the most that ``P`` may be at prices ``c``."""
    return np.asarray(1.0 + 1.0 / np.minimum(price, -1.0)), np.asarray(1.0 / np.maximum(price, 1.0))


def _sigmoid(z: Floats) -> Floats:
    """Return ``1 / (1 + exp(-z))``, several times as fast as scipy's."""
    with np.errstate(over="ignore"):
        return np.asarray(1.0 / (1.0 + np.exp(-z)))


@dataclass(eq=False)
class Point:
    """The game at ``(theta, lambda, r)``."""

    theta: Floats
    prices: Floats
    rate: Floats  # (E,)
    z: Floats
    s: Floats
    between: Bools
    gradient: Floats
    rates: Floats
    residual: Floats  # of the prices
    active: Bools

    @property
    def merit(self) -> float:
        """Largest entry of the residual."""
        return float(max(np.abs(self.gradient).max(), np.abs(self.residual).max(initial=0.0)))

    @property
    def size(self) -> float:
        """Squared residual."""
        return float(self.gradient @ self.gradient + self.residual @ self.residual)


class Game:
    """Rows in the order of their cells, those without one last, with all that does not change."""

    def __init__(
        self,
        X: Floats,
        y: Floats,
        w: Floats,
        starts: Ints,
        events: Ints,
        slack: float,
        ridge: Floats,
        given: Floats | None = None,
    ) -> None:
        self.X, self.y, self.w, self.starts, self.events = X, y, w, starts, events
        self.slack, self.ridge, self.hessians = slack, ridge, 0
        self.given = np.zeros_like(w) if given is None else given
        self.counts = np.diff(starts)
        self.sizes = np.append(self.counts, y.size - starts[-1])
        self.shares = self._per_cell(w)
        self.matrix = (np.arange(events.max(initial=-1) + 1)[:, None] == events).astype(float)
        self.scaled = np.empty_like(X)  # room for the rows times weights
        self.wy = X.T @ (w * y)

    def _per_cell(self, each: Floats) -> Floats:
        """Return the sums of values of rows over each cell, shape (K,)."""
        if not self.counts.size:
            return np.zeros(0)
        return np.asarray(np.add.reduceat(each[: self.starts[-1]], self.starts[:-1]))

    def costs(self, prices: Floats) -> Floats:
        """Return ``c`` of each cell and, last, of the rows without one: 0."""
        return np.append(prices / self.shares, 0.0)

    def rows_of(self, each: Floats) -> Floats:
        """Return for each row the value of its cell; the last value is for rows without one."""
        return np.repeat(each, self.sizes)

    def at(self, theta: Floats, prices: Floats, rate: Floats, z: Floats | None = None) -> Point:
        """Return the game at a point."""
        z = self.X @ theta + self.given if z is None else z
        s = _sigmoid(z)
        if self.counts.size:
            c = self.costs(prices)
            P = np.clip(s, *map(self.rows_of, _limits(c)))
            between = s == P
            rates = self._per_cell(self.w * P) / self.shares
            Q = P * (1.0 + self.rows_of(c) * (1.0 - P))
        else:
            between, Q, rates = np.ones(z.size, dtype=bool), s, np.zeros(0)
        gradient = self.X.T @ (self.w * Q) - self.wy + self.ridge * theta
        if self.slack > 0:
            aim = prices + (rates - rate[self.events])
            half = 0.5 * self.slack
            kept = np.sign(aim) * np.maximum(np.abs(aim) - half, 0.0)
            residual, active = kept - prices, kept != 0
        else:
            residual, active = rates - rate[self.events], np.ones(rates.size, dtype=bool)
        return Point(theta, prices, rate, z, s, between, gradient, rates, residual, active)

    def value(self, at: Point) -> float:
        """Return ``L`` at a point."""
        c = self.rows_of(self.costs(at.prices))
        phi = np.logaddexp(0.0, at.z) + c * at.s
        cut = ~at.between
        phi[cut] = np.where(c[cut] > 0, at.z[cut], c[cut]) + np.log(np.abs(c[cut])) + 1.0
        tolled = 0.5 * self.slack * float(np.abs(at.prices).sum()) if self.slack > 0 else 0.0
        moments = self.wy @ at.theta + (self.w * self.y) @ self.given
        return float(self.w @ phi - moments + 0.5 * self.ridge @ at.theta**2) - tolled

    def system(self, at: Point, give: float) -> Solver:
        """Return what solves systems with the derivative of the residual."""
        return _factorised(self.derivative(at, give))

    def derivative(self, at: Point, give: float) -> Floats:
        """Return the derivative of the residual, with ``-give`` added to the prices' own slopes."""
        self.hessians += 1
        many, cells, events = at.theta.size, at.prices.size, at.rate.size
        spread = at.s * (1.0 - at.s) * at.between
        curve = self.w * spread * (1.0 + self.rows_of(self.costs(at.prices)) * (1.0 - 2.0 * at.s))
        rows = np.multiply(self.X, np.sqrt(np.maximum(curve, 0.0))[:, None], out=self.scaled)
        size = many + cells + events
        system = np.zeros((size, size))
        system[:many, :many] = rows.T @ rows
        system[np.arange(many), np.arange(many)] += self.ridge
        of_gradient, of_rates, own = self.slopes(at, self.w * spread)
        system[:many, many : many + cells] = of_gradient
        for k in range(cells):
            if at.active[k]:
                system[many + k, :many] = of_rates[k]
                system[many + k, many : many + cells] = own[k]
                system[many + k, many + k] -= give
                system[many + k, many + cells + self.events[k]] = -1.0
            else:
                system[many + k, many + k] = -1.0
            system[many + cells + self.events[k], many + k] = 1.0
        for e in range(events):
            if not at.active[self.events == e].any():  # the rate is anything between: it stays
                system[many + cells + e, :] = 0.0
                system[many + cells + e, many + cells + e] = 1.0
        return system

    def slopes(self, at: Point, weighted: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the slopes of the gradient in prices, (d, K), and of the rates in coefficients and prices.

        The latter have the shapes (K, d) and (K, K). ``weighted``: slopes of ``P`` in ``z`` times weights, shape (n,).
        """
        slope = np.zeros((at.prices.size, at.theta.size))
        own = np.zeros(at.prices.size)
        for k in range(at.prices.size):
            inside = slice(self.starts[k], self.starts[k + 1])
            slope[k] = weighted[inside] @ self.X[inside] / self.shares[k]
            cut = float(self.w[inside] @ ~at.between[inside])
            own[k] = -cut / at.prices[k] ** 2 if cut > 0 else 0.0
        return slope.T, slope, np.diag(own)

    def step(self, system: Solver, at: Point) -> Floats:
        """Return the step of ``(theta, prices, rate)`` that a derivative and the residual of a point make."""
        return system(-np.concatenate([at.gradient, at.residual, self.matrix @ at.prices]))

    def moved(self, at: Point, step: Floats, slope: Floats, length: float) -> Point:
        """Return the game some way along a step whose slope in ``z`` is known."""
        ahead = np.concatenate([at.theta, at.prices, at.rate]) + length * step
        theta, prices, rate = np.split(ahead, np.cumsum([at.theta.size, at.prices.size]))
        return self.at(theta, prices, rate, at.z + length * slope)

    def slope(self, step: Floats) -> Floats:
        """Return the slope in ``z`` of a step."""
        return np.asarray(self.X @ step[: self.X.shape[1]])

    def certified(self, at: Point) -> float:
        """Return the certified distance of the value from the saddle value."""
        below = float((at.gradient**2 / (2.0 * self.ridge)).sum())
        if not at.prices.size:
            return below
        half, over = 0.5 * self.slack, at.rates - at.rate[self.events]
        room = np.where(over > 0, at.rates, 1.0 - at.rates)
        moved = np.maximum(np.abs(over) - half, 0.0) / np.maximum(room, 1e-300)
        cost = self.shares @ -np.log1p(-np.minimum(moved, 1.0 - 1e-16))
        owed = half * np.abs(at.prices) - at.prices * over
        return below + max(float(cost + owed.sum()), 0.0)

    def best_prices(self, s: Floats, before: Floats, tau: float) -> tuple[Floats, Floats]:
        """Return (prices, rates of events) that maximise the game less ``|prices - before|^2 / (2 tau)``."""
        ends = pairwise(self.starts)
        cells = [(s[a:b], self.w[a:b]) for a, b in ends]
        return proximal_prices(cells, self.events, max(self.slack, 0.0), before, tau)

    def sensible(self, at: Point) -> bool:
        """Tell whether prices are within ten times the size of best ones, which mean scores of the cells bound."""
        mean = self._per_cell(self.w * at.s) / self.shares
        for row in self.matrix > 0:
            ends = float(mean[row].min()), 1.0 - float(mean[row].max())
            least, most = (np.minimum(self.shares[row] / max(end, 1e-300), 1e300) for end in ends)
            bound = np.minimum(np.maximum(least, most), min(least.sum(), most.sum()))
            if (np.abs(at.prices[row]) > 10.0 * bound).any():
                return False
        return True


def _factorised(matrix: Floats) -> Solver:
    """Return what solves systems with a matrix, by the least solution where it is singular."""
    lu, pivots, _ = lapack.dgetrf(matrix)

    def solution(right: Floats) -> Floats:
        out, _ = lapack.dgetrs(lu, pivots, right)
        if not np.isfinite(out).all():
            out = np.linalg.lstsq(matrix, right, rcond=1e-13)[0]
        return np.asarray(out)

    return solution


def newton(game: Game, at: Point, tolerance: float = TOLERANCE) -> Point:
    """Return where joint Newton steps lead, as long as they help; near the end one derivative serves several steps.

    How far is left to go is told by the step that a derivative makes from a point: unlike the size of the residual it
    does not hang on the units of the features.
    """
    best = at
    for _ in range(STEPS):
        if best.merit <= tolerance:
            break
        system = game.system(at, 1e-12)
        step, length = game.step(system, at), 1.0
        slope, far = game.slope(step), float(step @ step)
        while length > 0.05:
            tried = game.moved(at, step, slope, length)
            after = game.step(system, tried)
            shrunk = float(after @ after) / far
            if tried.size < (1.0 - 0.1 * length) * at.size:
                break
            length *= 0.5
        else:
            break
        at = tried
        if length == 1.0 and shrunk < 0.05:
            at = _again(game, at, system, after, 0.05, tolerance)
        best = at if at.size < best.size else best
    return best


def _again(game: Game, at: Point, system: Solver, step: Floats, factor: float, tolerance: float) -> Point:
    """Return where steps by a derivative of another point lead, as long as each is enough shorter than the last."""
    far = float(step @ step)
    while at.merit > tolerance:
        tried = game.moved(at, step, game.slope(step), 1.0)
        step = game.step(system, tried)
        far, before = float(step @ step), far
        if not far < factor * before:
            return tried if tried.size < at.size else at
        at = tried
    return at


def _round(game: Game, at: Point, tau: float, tolerance: float) -> Point:
    """Return the minimum in ``theta`` of the proximal maximum around the point's prices."""
    before, last = at.prices, at

    def inner(theta: Floats) -> Point:
        """Return the proximal maximum at coefficients; that of the last ones is kept."""
        nonlocal last
        if theta is not last.theta or last is at:
            z = game.X @ theta + game.given
            last = game.at(theta, *game.best_prices(expit(z), before, tau), z)
        return last

    def value(theta: Floats) -> float:
        there = inner(theta)
        return game.value(there) - float(((there.prices - before) ** 2).sum()) / (2.0 * tau)

    def direction(theta: Floats) -> tuple[Floats, float]:
        there = inner(theta)
        flat = replace(there, residual=np.zeros_like(there.residual), active=there.prices != 0)
        if game.slack == 0:
            flat.active[:] = True
        if float(np.abs(there.gradient).max()) <= tolerance:
            return np.zeros_like(theta), 0.0
        step = game.step(game.system(flat, 1.0 / tau), flat)[: theta.size]
        return step, -0.5 * float(step @ there.gradient)

    end = descend(at.theta, value, direction, tolerance=0.0, rough=1e-12, most=STEPS)  # of a loss of about 1
    return inner(end.x)


def solve(
    X: Floats,
    y: Floats,
    cells: Cells,
    weight: Floats | None = None,
    *,
    slack: float = 0.0,
    l2: float = 1e-3,
    penalize_intercept: bool = False,
    start: Solution | None = None,
) -> Solution:
    """Return the saddle point.

    ``X``, ``y``: features of shape (n, d) and labels 0/1 of shape (n,). ``cells``: which rows are to get the same rate.
    ``weight``: row weights, shape (n,); None for equal ones. ``slack``: largest difference between two rates of an
    event; 1 or more: any. ``l2``: ``C > 0``. ``penalize_intercept``: whether ``C`` is about the intercept too, as in
    the authors' code. ``start``: a solution of a similar problem.
    """
    w = np.full(y.size, 1.0 / y.size) if weight is None else weight / weight.sum()
    ridge = np.append(np.full(X.shape[1], l2), l2 if penalize_intercept else FREE)
    game = _ordered(np.column_stack([X, np.ones(y.size)]), y, cells, w, slack, ridge)
    at = _settled(game, _first(game, start), TOLERANCE)
    if game.certified(at) > CERTIFIED:
        more = newton(game, at, 1e-3 * TOLERANCE)
        at = more if more.merit < at.merit else at
    prices, shares, rates = at.prices, game.shares, at.rates
    if not prices.size:
        inside, many = cells.codes >= 0, cells.events.size
        code, mass = cells.codes[inside], w[inside]
        score = expit(X[inside] @ at.theta[:-1] + at.theta[-1])
        prices, shares = np.zeros(many), np.asarray(np.bincount(code, mass, many), dtype=np.float64)
        rates = np.bincount(code, mass * score, many) / shares
    return Solution(
        coef=at.theta[:-1],
        intercept=float(at.theta[-1]),
        prices=prices,
        shares=shares,
        rates=rates,
        objective=game.value(at),
        gap=game.certified(at),
        steps=game.hessians,
        converged=at.merit <= 1e3 * TOLERANCE,
    )


def solve_prices(
    z: Floats,
    y: Floats,
    cells: Cells,
    weight: Floats | None = None,
    *,
    slack: float = 0.0,
    start: Floats,
) -> Solution:
    """Return the best prices where the linear scores ``z``, shape (n,), are given.

    Its value is the least of all probabilities that hold the slack, given these scores. ``start``: prices near the best
    ones, shape (K,). The others are as for :func:`solve`; ``coef`` is empty and ``intercept`` 0, up to rounding.
    """
    w = np.full(y.size, 1.0 / y.size) if weight is None else weight / weight.sum()
    game = _ordered(np.zeros((y.size, 1)), y, cells, w, slack, np.array([FREE]), z)
    at = _settled(game, newton(game, placed(game, np.zeros(1), start)), TOLERANCE)
    return Solution(
        np.zeros(0),
        0.0,
        at.prices,
        game.shares,
        at.rates,
        game.value(at),
        game.certified(at),
        game.hessians,
        converged=at.merit <= 1e3 * TOLERANCE,
    )


def _ordered(
    full: Floats,
    y: Floats,
    cells: Cells,
    w: Floats,
    slack: float,
    ridge: Floats,
    given: Floats | None = None,
) -> Game:
    """Return the game with its rows in the order of their cells; without cells where any rates will do.

    ``full``: the matrix with a column for the intercept; ``given``: what scores begin with, 0 by default.
    """
    if slack >= 1.0:  # rates differ by no more than 1
        cells, slack = Cells(np.full(y.size, -1), np.zeros(0, dtype=np.int64)), 0.0
    last = np.where(cells.codes < 0, cells.events.size, cells.codes)
    order = np.argsort(last, kind="stable")
    starts = np.searchsorted(last[order], np.arange(cells.events.size + 1))
    own = None if given is None else given[order]
    return Game(full[order], y[order].astype(float), w[order], starts, cells.events, slack, ridge, own)


def _settled(game: Game, at: Point, tolerance: float) -> Point:
    """Return where rounds of multipliers lead from where Newton steps ended too soon."""
    if not game.sensible(at):
        at = placed(game, at.theta, np.zeros_like(at.prices))
    best, tau = at, 1.0
    for _ in range(ROUNDS):
        if at.merit <= tolerance:
            break
        after = _round(game, at, tau, tolerance)
        at = newton(game, after, tolerance)
        at = at if at.size <= after.size and game.sensible(at) else after
        best = at if at.merit < best.merit else best
        tau *= 5.0
    return best


def _first(game: Game, start: Solution | None) -> Point:
    """Return where Newton steps lead from a solution, from a part of the rows if there are many, or from none."""
    n, many = game.X.shape
    if start is not None:
        alike = start.prices.size == game.shares.size
        prices = start.prices if alike else np.zeros(game.shares.size)
        return newton(game, placed(game, np.append(start.coef, start.intercept), prices))
    theta = np.zeros(many)
    mean = float(np.clip(game.w @ game.y, 1e-12, 1 - 1e-12))
    theta[-1] = math.log(mean / (1.0 - mean))
    if n < 3000 * SAMPLED or n < 20 * SAMPLED * many:
        return _cold(game, theta)
    return newton(game, _sampled(game, placed(game, theta, np.zeros(game.shares.size))))


def placed(game: Game, theta: Floats, prices: Floats) -> Point:
    """Return the game at coefficients and prices, with the mean rate of each event's cells."""
    at = game.at(theta, prices, np.zeros(len(game.matrix)))
    mass = game.matrix * game.shares
    return game.at(theta, prices, mass @ at.rates / mass.sum(axis=1), at.z) if prices.size else at


def _cold(game: Game, theta: Floats, tolerance: float = TOLERANCE) -> Point:
    """Return where Newton steps lead without prices to begin with, and if that is nowhere, from a round of multipliers.

    Without prices no score is capped, and the joint step may give small cells prices without measure. A step of plain
    regression and the best prices near none are a better start there.
    """
    none = placed(game, theta, np.zeros(game.shares.size))
    at = newton(game, none, tolerance)
    if at.merit <= max(tolerance, 1e-3 * none.merit) or not at.prices.size:
        return at
    flat = replace(none, residual=np.zeros_like(none.rates), active=np.zeros(none.rates.size, dtype=bool))
    step = game.step(game.system(flat, 0.0), flat)
    z = none.z + game.slope(step)
    prices, rate = game.best_prices(_sigmoid(z), none.prices, 1.0)
    other = newton(game, game.at(theta + step[: theta.size], prices, rate, z), tolerance)
    return other if other.size < at.size or not game.sensible(at) else at


def _sampled(game: Game, at: Point) -> Point:
    """Return where a part of the rows leads, and the steps by its derivative.

    A row is drawn with a chance in proportion to its squared length and weight, or to what small cells need, and
    counts for so many. Rows of rare categories, which are long where columns are of like spread, are all there:
    without them their coefficients would begin far off, where the logistic curve is flat and Newton steps overshoot.
    """
    length = game.w * np.einsum("ij,ij->i", game.X, game.X)
    small = game.rows_of(SAMPLED * LEAST / np.maximum(game.sizes, 1.0))
    chance = np.clip(np.maximum(length / length.mean(), small), 1.0, SAMPLED) / SAMPLED
    rows = np.flatnonzero(np.diff(np.floor(np.cumsum(chance) + 1e-9), prepend=0.0))
    starts = np.searchsorted(rows, game.starts)
    w = game.w[rows] / chance[rows]
    if not all(w[a:b].any() for a, b in pairwise(starts)):
        return at
    own = game.events, game.slack, game.ridge, game.given[rows]
    part = Game(game.X[rows], game.y[rows], w / w.sum(), starts, *own)
    settled = _settled(part, _cold(part, at.theta, 1e-5), 1e-5)
    game.hessians += part.hessians
    if not settled.merit < 1e-3:
        return at
    at, system = placed(game, settled.theta, settled.prices), part.system(settled, 1e-12)
    return _again(game, at, system, game.step(system, at), 0.4, TOLERANCE)


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
