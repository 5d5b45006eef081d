r"""Statistical parity of the scores of a model class: a reduction to fits of priced rows.

Over distributions ``Q`` on models ``f`` of a class, with scores in [0, 1],

.. math::
    \min_Q\; E_{f \sim Q}\, E[l(Y, f(X))] \quad\text{s.t.}\quad
    \sup_z |P_Q(f > z \mid a) - P_Q(f > z)| \le e_a \text{ for each group } a .

The master is a linear program over the models found so far and the best constant, which makes it feasible for every
slack. Its constraints are those of a grid of thresholds; thresholds at which the mixture breaks the slack are added
until none does, so the slack holds at all. With the prices ``lambda`` of the constraints a model costs

.. math::
    \frac{1}{W} \sum_i w_i \Big( l(y_i, u_i) + S_{a_i}(u_i) \Big), \qquad
    S_a(u) = \sum_{z < u} \Big( \frac{\lambda_{a,z}}{p_a} - \sum_b \lambda_{b,z} \Big) ,

a loss plus a staircase. An oracle looks for a model of least cost:

==================  ====================================================================================================
``direct``          minimises it over linear models, steps smoothed by a logistic kernel of shrinking width
``least-squares``   fits a learner to the scores ``U_i`` of least cost for each row on the grid, by least squares
``risk``            the same by the log loss with soft labels ``U_i``
``cost-sensitive``  minimises the convex hinge of the steps over linear models with coefficients of at most 1
==================  ====================================================================================================

**How good it is.** The *gap seen* by the oracle, the loss of the mixture minus the largest estimate of a bound that the
oracle's answers give, bounds the true gap from below only: nothing is certified. The search has converged when it is at
most ``nu``.

**Where prices come from.** By default they are the multipliers of the master's program (column generation). With a
:class:`~fairfix.solvers.exponentiated_gradient.Game` they are those of the paper's Algorithm 1, played over the models
that the oracle finds; the mixture of these models is the master's all the same, so that the slack holds at all
thresholds.

Soft labels are others than the paper's: see docs/methods/fair-regression.md.

References
----------
A. Agarwal, M. Dudik and Z. S. Wu, *Fair regression* (2019), sections 3 and 4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from fairfix.solvers.arrays import Floats, Ints
from fairfix.solvers.exponentiated_gradient import Game, Saddle, play
from fairfix.solvers.losses import EDGE, RowLoss, row_loss
from fairfix.solvers.mixtures import best_mixture
from fairfix.solvers.parity import ks_to_overall

GRID = 40
"""Thresholds of the first grid."""

STEEP = 50.0
"""Largest exponent of a score in the direct oracle; scores are at most 1 in the end."""

WIDTHS = (0.1, 0.025)
"""Smoothing of the steps in the direct oracle, one after the other."""

CUTS = 60
"""Most rounds of added thresholds."""

NU = 1e-2
"""Gap seen with which the search has converged, as a share of what the free model saves over the best constant: the
saving itself differs by more from one sample of a few thousand rows to the next."""


@dataclass(frozen=True, eq=False)
class Penalised:
    """Problem of an oracle: rows with their loss, and a staircase per group."""

    y: Floats
    codes: Ints
    share: Floats
    """``y``, ``codes`` and ``share``: label, group and weight of each row, shape (n,) each; weights sum to 1."""
    loss: RowLoss
    """Loss of a score."""
    thresholds: Floats
    """Places of the steps, increasing, shape (Z,)."""
    steps: Floats
    """Heights, shape (K, Z)."""

    @cached_property
    def heights(self) -> Floats:
        """Price of a score below each threshold and above all, shape (K, Z + 1)."""
        return np.pad(np.cumsum(self.steps, axis=1), ((0, 0), (1, 0)))

    def cost(self, u: Floats) -> float:
        """Return the cost of scores, shape (n,)."""
        paid = self.heights[self.codes, np.searchsorted(self.thresholds, u, side="left")]
        return float(self.share @ (self.loss.value(self.y, u) + paid))

    def smooth(self, u: Floats, width: float) -> tuple[float, Floats]:
        """Return the cost with smoothed steps and its slope per row, weights included."""
        own = self.steps[self.codes]
        passed = 0.5 * (1.0 + np.tanh((u[:, None] - self.thresholds) / (2.0 * width)))
        value = self.loss.value(self.y, u) + (own * passed).sum(axis=1)
        slope = self.loss.slope(self.y, u) + (own * passed * (1.0 - passed)).sum(axis=1) / width
        return float(self.share @ value), self.share * slope

    @cached_property
    def points(self) -> Floats:
        """Scores between the thresholds, shape (Z + 1,)."""
        z = self.thresholds
        return np.concatenate([[z[0] / 2], (z[1:] + z[:-1]) / 2, [(1 + z[-1]) / 2]])

    @cached_property
    def on_grid(self) -> Floats:
        """Cost of each row at each point, weights aside, shape (n, Z + 1)."""
        return np.asarray(self.loss.value(self.y[:, None], self.points) + self.heights[self.codes])

    def targets(self) -> Floats:
        """Return the point of least cost for each row, the middle of a plateau, shape (n,)."""
        cost = self.on_grid
        best = cost <= cost.min(axis=1, keepdims=True) + 1e-12
        first = best.argmax(axis=1)
        last = best.shape[1] - 1 - best[:, ::-1].argmax(axis=1)
        return np.asarray((self.points[first] + self.points[last]) / 2)


Oracle = Callable[[Penalised], tuple[Any, Floats]]
"""Takes one set of prices, and returns a model of low cost and its scores on the rows, shape (n,)."""


@dataclass(frozen=True, eq=False)
class LinearModel:
    """``X coef + intercept``, or its sigmoid, or its exponential."""

    coef: Floats
    intercept: float


class Direct:
    """The direct oracle over linear models; remembers its answers to begin from."""

    def __init__(self, X: Floats, *, link: Literal["identity", "sigmoid", "exp"], l2: float = 0.0) -> None:
        self.A = np.column_stack([X, np.ones(len(X))])
        self.link, self.l2 = link, l2
        self.starts: list[Floats] = []
        # in these coordinates the columns are uncorrelated and of scale 1, which L-BFGS likes
        center = X.mean(axis=0)
        _, size, axes = np.linalg.svd((X - center) / np.sqrt(len(X)), full_matrices=False)
        keep = size > 1e-8 * max(float(size.max(initial=0.0)), 1e-300)
        back = axes[keep].T / size[keep]
        self.back = np.block(
            [[back, np.zeros((X.shape[1], 1))], [-(center @ back)[None, :], np.ones((1, 1))]]
        )
        self.B = self.A @ self.back

    def __call__(self, problem: Penalised) -> tuple[LinearModel, Floats]:
        """Return the best of what is found from the unpriced optimum and from the last answers."""
        if not self.starts:
            plain = replace(problem, steps=0 * problem.steps)
            self.starts.append(self._descend(plain, np.zeros(self.B.shape[1])))
        starts = sorted(self.starts, key=lambda v: problem.cost(self._scores(v)))[:2]
        ends = [self._descend(problem, v) for v in starts]
        best = min([*ends, *starts], key=lambda v: problem.cost(self._scores(v)) + self._penalty(v)[0])
        self.starts.append(best)
        whole = self.back @ best
        return LinearModel(whole[:-1], float(whole[-1])), self._scores(best)

    def _scores(self, v: Floats) -> Floats:
        form = self.B @ v
        if self.link == "exp":
            return np.asarray(np.exp(np.minimum(form, STEEP)))
        return np.asarray(0.5 * (1.0 + np.tanh(form / 2.0)) if self.link == "sigmoid" else form)

    def _penalty(self, v: Floats) -> tuple[float, Floats]:
        own = self.back[:-1] @ v
        return self.l2 * float(own @ own), 2.0 * self.l2 * (self.back[:-1].T @ own)

    def _descend(self, problem: Penalised, start: Floats) -> Floats:
        from scipy.optimize import minimize

        now = start
        constant = np.full(problem.y.size, problem.share @ problem.y)
        unit = max(float(problem.share @ problem.loss.value(problem.y, constant)), 1e-12)

        def value(v: Floats, *about: Any) -> tuple[float, Floats]:
            cost, slope = self.value(v, *about)
            return cost / unit, slope / unit  # the tolerances of L-BFGS-B are absolute below 1

        for width in WIDTHS:
            answer: Any = minimize(
                value, now, args=(problem, width), jac=True, method="L-BFGS-B", options={"maxiter": 100}
            )
            now = answer.x
        return now

    def value(self, v: Floats, problem: Penalised, width: float) -> tuple[float, Floats]:
        """Return the smoothed cost of whitened coefficients and its gradient."""
        u = self._scores(v)
        cost, slope = problem.smooth(u, width)
        held, pull = self._penalty(v)
        steep: dict[str, Floats | float] = {"identity": 1.0, "sigmoid": u * (1.0 - u), "exp": u}
        inner = slope * steep[self.link]
        return cost + held, self.B.T @ inner + pull


class CostSensitive:
    """The hinge oracle over linear models with coefficients of at most 1; columns of X must be scaled."""

    def __init__(self, X: Floats, *, margin: float = 0.5 / GRID, smoothing: float = 2e-4) -> None:
        self.A = np.column_stack([X, np.ones(len(X))])
        self.margin, self.smoothing = margin, smoothing
        self.last = np.zeros(self.A.shape[1])

    def __call__(self, problem: Penalised) -> tuple[LinearModel, Floats]:
        """Return the minimiser of the hinge, Huber-smoothed less and less."""
        from scipy.optimize import minimize

        gain = np.diff(problem.on_grid, axis=1)
        side, size = -np.sign(gain), np.abs(gain) * problem.share[:, None]
        now = self.last
        for smoothing in (100 * self.smoothing, 10 * self.smoothing, self.smoothing):
            answer: Any = minimize(
                self.value,
                now,
                args=(problem.thresholds, side, size, smoothing),
                jac=True,
                method="L-BFGS-B",
                bounds=[(-1.0, 1.0)] * (self.A.shape[1] - 1) + [(None, None)],
                options={"maxiter": 500, "maxfun": 2000, "ftol": 1e-12},
            )
            now = answer.x
        self.last = now
        return LinearModel(now[:-1], float(now[-1])), self.A @ now

    def value(
        self, v: Floats, thresholds: Floats, side: Floats, size: Floats, smoothing: float
    ) -> tuple[float, Floats]:
        """Return the smoothed hinge of coefficients and its gradient."""
        short = self.margin - side * ((self.A @ v)[:, None] - thresholds)
        inside = np.clip(short, 0.0, smoothing)
        value = float((size * (inside * inside / (2 * smoothing) + np.maximum(short - smoothing, 0.0))).sum())
        slope = -(size * side * inside / smoothing).sum(axis=1)
        return value, self.A.T @ slope


@dataclass(frozen=True, eq=False)
class WeightedModels:
    """A distribution over models."""

    models: tuple[Any, ...]
    """As the oracle returned them; a number for the constant."""
    weights: Floats
    """Their chances, shape (M,), positive, of sum 1."""
    scores: Floats
    """Score of each row by each model, shape (M, n)."""
    loss: float
    """Expected loss."""
    ks: Floats
    """Distance of each group to all rows, of the mixture, over all thresholds, shape (K,)."""
    spread: float
    """Mean over rows of the standard deviation of the models' scores."""
    calls: int
    """Calls of the oracle."""
    estimate: float
    """Largest estimate of the least loss, as the oracle's answers have it; no bound."""
    nu: float
    """Gap seen with which the search has converged."""
    saddle: Saddle | None = None
    """The game that found the prices, if one did."""

    @property
    def gap_seen(self) -> float:
        """The loss minus the largest estimate of the least."""
        return max(self.loss - self.estimate, 0.0)

    @property
    def converged(self) -> bool:
        """Whether the oracle sees next to nothing to gain."""
        return self.gap_seen <= self.nu


def mixture_distances(scores: Floats, weights: Floats, codes: Ints, share: Floats, groups: int) -> Floats:
    """Return the distance of each group to all rows of a mixture with scores (M, n), over all thresholds."""
    rows = weights[:, None] * share
    return ks_to_overall(scores.ravel(), np.tile(codes, len(scores)), rows.ravel(), groups)


def reduce(
    y: Floats,
    codes: Ints,
    weight: Floats | None,
    slack: Floats,
    loss: str,
    oracle: Oracle,
    *,
    rounds: int = 30,
    nu: float = NU,
    game: GameOf | None = None,
) -> WeightedModels:
    """Return the mixture of least loss that the oracle's models make within the slack.

    ``y``: shape (n,), in [0, 1]. ``codes``, ``weight``: group and weight of each row, shape (n,) each. ``slack``: of
    each group, shape (K,), at least 0; infinite where none is asked. ``loss``: a name of
    :mod:`fairfix.solvers.losses`, of labels in [0, 1]. ``oracle``: finds models. Their scores are moved into [0, 1],
    and by ``EDGE`` away from 0 for the Poisson deviance. ``rounds``: most calls of the oracle. ``nu``: gap seen with
    which to stop, as a share of what the oracle's answer to no prices saves over the best constant. ``game``: how the
    game is played that finds the prices, in place of the master; it takes that saving, and ``nu`` times it.
    """
    master = _Master(y, codes, weight, slack, row_loss(loss))
    least = EDGE if loss == "poisson" else 0.0
    master.add(float(master.constant), np.full(y.size, master.constant))
    prices, estimate = np.zeros(master.away[0].shape), -np.inf

    def asked(prices: Floats) -> None:
        model, scores = oracle(master.penalised(prices))
        master.add(model, np.clip(scores, least, 1.0))

    for call in range(1, rounds + 1):
        asked(prices)
        if call == 1:
            saved = max(master.losses[0] - master.losses[1], 1e-3 * master.losses[0])
            nu *= saved
            if game is not None and np.isfinite(master.slack).any():
                return _played(master, asked, game(saved, nu))
        estimate = max(estimate, master.least(prices))
        value, _, new = master.solve()
        if value - estimate <= nu:  # at the thresholds so far; now at all
            master.cut()
            value, _, new = master.solve()
            if value - estimate <= nu:
                break
        prices = 0.5 * (prices + new) if call > 1 and prices.shape == new.shape else new
    return master.mixture(call, estimate, nu)


GameOf = Callable[[float, float], Game]
"""Takes what the oracle's answer to no prices saves over the best constant, and ``nu``, and returns how to play."""


def _played(master: _Master, asked: Callable[[Floats], None], game: Game) -> WeightedModels:
    """Return the master's mixture of the models that a game finds."""
    held = np.isfinite(master.slack)
    wide = master.thresholds.size
    limit = np.repeat(master.slack[held], wide)

    def priced(up_and_down: Floats) -> Floats:
        up, down = np.split(up_and_down, 2)
        prices = np.zeros((master.slack.size, wide))
        prices[held] = (up - down).reshape(-1, wide)
        return prices

    def answer(up_and_down: Floats) -> tuple[float, Floats]:
        asked(priced(up_and_down))
        at = master.forget_repeated()
        away = master.away[at][held].ravel()
        return master.losses[at], np.concatenate([away - limit, -away - limit])

    saddle = play(answer, 2 * limit.size, game)
    estimate = max(
        master.least(prices) for prices in (priced(saddle.prices), np.zeros((master.slack.size, wide)))
    )
    return replace(master.mixture(saddle.answers + 1, estimate, game.nu), saddle=saddle)


class _Master:
    """The linear program over models found, with thresholds added where the slack breaks."""

    def __init__(self, y: Floats, codes: Ints, weight: Floats | None, slack: Floats, loss: RowLoss) -> None:
        self.y, self.codes, self.slack, self.loss = y, codes, np.asarray(slack, dtype=np.float64), loss
        w = np.ones(y.size) if weight is None else weight
        self.share: Floats = w / w.sum()
        self.shares = np.bincount(codes, self.share, slack.size)
        self.thresholds: Floats = (np.arange(GRID) + 0.5) / GRID
        self.models: list[Any] = []
        self.scores: list[Floats] = []
        self.losses: list[float] = []
        self.away: list[Floats] = []

    @cached_property
    def constant(self) -> float:
        """The constant of least loss, to a thousandth."""
        tried = np.unique(np.concatenate([np.linspace(0, 1, 1001), [self.share @ self.y]]))
        return float(
            tried[int(np.argmin([self.share @ self.loss.value(self.y, np.full(1, c)) for c in tried]))]
        )

    def add(self, model: Any, scores: Floats) -> None:
        """Add a model with its scores."""
        self.models.append(model)
        self.scores.append(scores)
        self.losses.append(float(self.share @ self.loss.value(self.y, scores)))
        self.away.append(self._away(scores, self.thresholds))

    def forget_repeated(self) -> int:
        """Return the number of the first model that scores all rows as the last does, which is forgotten if another."""
        for at, (loss, scores) in enumerate(zip(self.losses[:-1], self.scores[:-1], strict=True)):
            if loss == self.losses[-1] and np.array_equal(scores, self.scores[-1]):
                for each in (self.models, self.scores, self.losses, self.away):
                    each.pop()
                return at
        return len(self.losses) - 1

    def _away(self, scores: Floats, thresholds: Floats) -> Floats:
        """Return ``P(u > z | a) - P(u > z)``, shape (K, Z)."""
        cell = np.searchsorted(thresholds, scores, side="left")
        wide = thresholds.size + 1
        mass = np.bincount(self.codes * wide + cell, self.share, self.slack.size * wide)
        mass = mass.reshape(self.slack.size, wide)
        above = np.cumsum(mass[:, ::-1], axis=1)[:, -2::-1]
        return np.asarray(above / self.shares[:, None] - above.sum(axis=0))

    def penalised(self, prices: Floats) -> Penalised:
        """Return the problem of the oracle at prices, shape (K, Z)."""
        steps = prices / self.shares[:, None] - prices.sum(axis=0)
        return Penalised(self.y, self.codes, self.share, self.loss, self.thresholds, steps)

    def solve(self) -> tuple[float, Floats, Floats]:
        """Return the least loss of a mixture, its weights and the prices of the constraints."""
        asked = np.isfinite(self.slack)
        table = np.stack([part[asked].ravel() for part in self.away], axis=1)
        limit = np.repeat(self.slack[asked], self.thresholds.size)
        # the constant has no distances
        best = best_mixture(np.array(self.losses), np.concatenate([table, -table]), np.tile(limit, 2))
        assert best is not None
        prices = np.zeros((self.slack.size, self.thresholds.size))
        up, down = np.split(best[1], 2)
        prices[asked] = (up - down).reshape(-1, self.thresholds.size)
        return best[2], best[0], prices

    def least(self, prices: Floats) -> float:
        """Return a lower bound on the loss of mixtures of the models within the slack, by prices, shape (K, Z)."""
        asked = np.isfinite(self.slack)
        paid = float((np.abs(prices[asked]).sum(axis=1) * self.slack[asked]).sum())
        return (
            min(own + float((prices * away).sum()) for own, away in zip(self.losses, self.away, strict=True))
            - paid
        )

    def cut(self) -> Floats:
        """Add thresholds until the best mixture holds the slack at all, and return its weights."""
        scores = np.array(self.scores)
        for _ in range(CUTS):
            _, q, _ = self.solve()
            more = self._broken(scores, q)
            if not more.size:
                break
            self.thresholds = np.unique(np.concatenate([self.thresholds, more]))
            self.away = [self._away(one, self.thresholds) for one in self.scores]
        return q

    def mixture(self, calls: int, estimate: float, nu: float) -> WeightedModels:
        """Return the mixture that holds the slack at all thresholds."""
        q, scores = self.cut(), np.array(self.scores)
        q = self._mended(scores, q)
        kept = q > 1e-9
        q = q[kept] / q[kept].sum()
        scores = scores[kept]
        mean = q @ scores
        spread = float(self.share @ np.sqrt(np.maximum(q @ (scores - mean) ** 2, 0.0)))
        ks = mixture_distances(scores, q, self.codes, self.share, self.slack.size)
        loss = float(q @ np.array(self.losses)[kept])
        models = tuple(model for model, keep in zip(self.models, kept, strict=True) if keep)
        return WeightedModels(models, q, scores, loss, ks, spread, calls, estimate, nu)

    def _broken(self, scores: Floats, q: Floats) -> Floats:
        """Return the thresholds at which groups are furthest beyond their slack."""
        used = q > 1e-12
        rows = np.unique(scores[used].ravel())
        if rows.size > 20_000:
            rows = rows[:: rows.size // 20_000]
        away = sum(chance * self._away(one, rows) for chance, one in zip(q[used], scores[used], strict=True))
        over = np.abs(away) - self.slack[:, None]
        worst = over.argmax(axis=1)
        return np.unique(rows[worst[over.max(axis=1) > 1e-10]])

    def _mended(self, scores: Floats, q: Floats) -> Floats:
        """Return the weights with as much more of the constant as the slack still needs."""
        ks = mixture_distances(scores, q, self.codes, self.share, self.slack.size)
        keep = float(np.min(np.divide(self.slack, ks, out=np.ones_like(ks), where=ks > self.slack)))
        out = keep * q
        out[0] += 1.0 - keep
        return out
