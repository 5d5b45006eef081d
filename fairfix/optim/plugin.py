r"""Scores near to everybody's distribution at every threshold, by a rule that does not see the group.

Rows have ``eta``, the expected label, and ``pi_a``, the probability of group ``a``, whose mean is ``p_a``; with
``r_a = pi_a / p_a - 1``, a rule ``u`` of ``(eta, pi)`` has ``P(u > z | a) - P(u > z) = E[r_a 1(u > z)]``. Over rules
with values in a grid ``u_0 < ... < u_Z``, with thresholds ``t_j`` between them,

.. math::
    \min_u\; E[\bar l(\eta, u)] \quad\text{s.t.}\quad
    |E[r_a 1(u > t_j)]| \le e_a \text{ for each group } a \text{ and threshold } j ,

where ``\bar l`` is the loss expected of ``eta``. The dual is concave in the multipliers ``m``,

.. math::
    \max_m\; E\Big[\min_k \big(\bar l(\eta, u_k) + \sum_{j \le k} m_j^T r\big)\Big] - \sum_{a, j} e_a |m_{aj}| .

Its inner minimum is the rule: each row takes the value of least priced loss. The minimum is smoothed to a softmin whose
temperature falls, and the dual maximised by L-BFGS-B over ``m = m^+ - m^-``. Alike rows are one cell; value and bound
are of the same cells, so their difference is a certificate for all maps of cells into the grid, mixtures included.

The rule that is kept gives each row the point of the chosen grid cell that is nearest to its ``eta``: where no price is
paid, ``eta`` itself. Its distances are measured on rows, by the caller, with the groups as they are.

References
----------
I. Agarwal, M. Dudik, Z. S. Wu, *Fair regression* (2019), for the constraint; the dual is our own writing of it for
estimated ``eta`` and ``pi``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fairfix.optim.parity import ks_to_overall
from fairfix.optim.quantiles import second

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

THRESHOLDS = 96
"""Thresholds, two thirds of them even in the distribution of the score, one third in the score."""

HALVINGS = 10
"""Halvings that make the cells of alike rows: at most 1,024."""

TEMPERATURES = (1e-2, 3e-3, 1e-3, 3e-4, 1e-4)
"""Of the softmin, in units of the loss of the constant."""

ITERATIONS = 150
"""Most L-BFGS iterations for each temperature."""

CHUNK = 1 << 13
"""Rows that are scored at once."""


def expected_loss(loss: str, eta: Floats, u: Floats) -> Floats:
    """Return the loss expected of scores where the label's mean is ``eta``; shapes broadcast.

    ``square`` is without what no score can change; ``logistic`` is infinite where a possible label gets chance 0.
    """
    if loss == "square":
        return np.asarray((eta - u) ** 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        yes = np.where(eta > 0, -eta * np.log(u), 0.0)
        return np.asarray(yes + np.where(eta < 1, -(1.0 - eta) * np.log1p(-u), 0.0))


@dataclass(frozen=True, eq=False)
class PluginRule:
    """A score of ``(eta, pi)``.

    Attributes
    ----------
    thresholds
        Increasing, shape (Z,); empty where scores are left as they are.
    grid
        Values between them, shape (Z + 1,).
    prices
        Of passing each threshold, per group, shape (K, Z).
    shares
        ``p``, shape (K,).
    logistic
        Whether the loss is the log loss, else the square loss.
    """

    thresholds: Floats
    grid: Floats
    prices: Floats
    shares: Floats
    logistic: bool

    def score(self, eta: Floats, pi: Floats) -> Floats:
        """Return the scores of rows, shape (n,), from ``eta`` (n,) and ``pi`` (n, K)."""
        if not self.thresholds.size:
            return eta
        parts = [self._some(eta[i : i + CHUNK], pi[i : i + CHUNK]) for i in range(0, eta.size, CHUNK)]
        return np.concatenate(parts) if parts else eta

    def _some(self, eta: Floats, pi: Floats) -> Floats:
        passed = np.cumsum(self.prices, axis=1)
        priced = expected_loss("logistic" if self.logistic else "square", eta[:, None], self.grid)
        priced[:, 1:] += (pi / self.shares - 1.0) @ passed
        cell = priced.argmin(axis=1)
        low, high = np.append(-np.inf, self.thresholds), np.append(self.thresholds, np.inf)
        return np.clip(eta, low[cell], high[cell])


@dataclass(frozen=True, eq=False)
class PluginSolution:
    """A rule and the certificate of its multipliers.

    Attributes
    ----------
    rule
        The rule.
    multipliers
        To begin another slack from, shape (2 K Z,).
    value, bound
        Loss of a mixture of maps of cells into the grid that holds the slack, and the least that any can have.
    iterations
        Evaluations of the dual.
    """

    rule: PluginRule
    multipliers: Floats
    value: float
    bound: float
    iterations: int

    @property
    def gap(self) -> float:
        """How far the value may lie above the least."""
        return self.value - self.bound


@dataclass(frozen=True, eq=False)
class PluginProblem:
    """Rows by their expected label and their probabilities of groups.

    Attributes
    ----------
    eta
        Shape (n,); in [0, 1] for the logistic loss.
    pi
        Shape (n, K), rows sum to 1.
    weight
        Shape (n,), of any sum; None for 1 each.
    loss
        ``square`` or ``logistic``.
    """

    eta: Floats
    pi: Floats
    weight: Floats | None
    loss: str

    @cached_property
    def share(self) -> Floats:
        """Weight of each row, shape (n,), summing to 1."""
        weight = np.ones(self.eta.size) if self.weight is None else self.weight
        return np.asarray(weight / weight.sum())

    @cached_property
    def shares(self) -> Floats:
        """``p``, shape (K,)."""
        return np.asarray(self.share @ self.pi)

    @cached_property
    def thresholds(self) -> Floats:
        """Thresholds inside the range of ``eta``, shape (Z,)."""
        order = np.argsort(self.eta, kind="stable")
        level = np.cumsum(self.share[order])
        even = np.linspace(0, 1, THRESHOLDS * 2 // 3 + 2)[1:-1]
        at = self.eta[order[np.minimum(np.searchsorted(level, even * level[-1]), order.size - 1)]]
        steps = np.linspace(self.eta.min(), self.eta.max(), THRESHOLDS // 3 + 2)[1:-1]
        reach = max(float(np.ptp(self.eta)), 1e-300)
        return np.unique((np.concatenate([at, steps]) / reach).round(12) * reach)

    @cached_property
    def grid(self) -> Floats:
        """Values between the thresholds, shape (Z + 1,)."""
        t = self.thresholds
        ends = (float(self.eta.min()) + t[0]) / 2, (float(self.eta.max()) + t[-1]) / 2
        return np.concatenate([ends[:1], (t[1:] + t[:-1]) / 2, ends[1:]])

    @cached_property
    def cells(self) -> tuple[Floats, Floats, Floats]:
        """Weight, ``eta`` and ``r`` of each cell of alike rows, shapes (C,), (C,) and (C, K).

        Rounded far below what matters, so that row order and repeated rows change nothing of the iterations.
        """
        reach = max(float(np.ptp(self.eta)), 1e-300)
        points = np.column_stack([2.0 * self.eta / reach, self.pi / np.sqrt(self.shares.round(12))])
        code = _halved(points.round(10), self.share)
        many = int(code.max()) + 1
        weight = np.bincount(code, self.share, many).astype(np.float64)
        eta = np.bincount(code, self.share * self.eta, many) / weight
        pi = np.stack([np.bincount(code, self.share * part, many) / weight for part in self.pi.T], axis=1)
        return weight.round(13), (eta / reach).round(12) * reach, (pi / self.shares - 1.0).round(11)

    @cached_property
    def losses(self) -> Floats:
        """Loss of each cell at each value, shape (C, Z + 1)."""
        return np.asarray(expected_loss(self.loss, self.cells[1][:, None], self.grid))

    @cached_property
    def of_constant(self) -> float:
        """Loss of the best constant, the unit of temperatures and multipliers."""
        weight, eta, _ = self.cells
        constant = np.full(eta.size, weight @ eta)
        return max(float(weight @ expected_loss(self.loss, eta, constant)), 1e-300)

    def free(self) -> PluginRule:
        """Return the rule that leaves scores as they are."""
        none = np.zeros(0)
        return PluginRule(none, none, np.zeros((self.shares.size, 0)), self.shares, self.loss == "logistic")

    def solve(self, slack: Floats, start: Floats | None = None) -> PluginSolution:
        """Return the rule for slacks of the groups, shape (K,), at least 0.

        Parameters
        ----------
        slack
            Largest distance of each group to everybody; infinite where none is asked.
        start
            Multipliers of another slack to begin from.
        """
        from scipy.optimize import minimize

        dual = _Dual(self, slack)
        now = np.zeros(2 * dual.price.size) if start is None else start
        evaluations = 0
        for temperature in TEMPERATURES if start is None else TEMPERATURES[2:]:
            found = minimize(
                dual.smooth,
                now,
                args=(temperature * self.of_constant,),
                jac=True,
                method="L-BFGS-B",
                bounds=[(0.0, None if asked else 0.0) for asked in np.tile(dual.asked.ravel(), 2)],
                options={"maxiter": ITERATIONS, "maxcor": 20, "ftol": 1e-10, "gtol": 1e-9},
            )
            now, evaluations = found.x, evaluations + int(found.nfev)
        value, bound = dual.certificate(now, TEMPERATURES[-1] * self.of_constant)
        rule = PluginRule(self.thresholds, self.grid, dual.prices(now), self.shares, self.loss == "logistic")
        return PluginSolution(rule, now, value, bound, evaluations)

    def certified(self, solution: PluginSolution, slack: Floats) -> PluginSolution:
        """Return the solution with the least value found that holds the slack: those of slightly smaller slacks too."""
        whole, best = _Dual(self, slack), solution
        temperature = TEMPERATURES[-1] * self.of_constant
        for shrunk in (0.99, 0.97, 0.93, 0.8, 0.6):
            if best.gap <= 1e-4 * self.of_constant:
                break
            other = self.solve(shrunk * slack, solution.multipliers)
            value, _ = whole.certificate(other.multipliers, temperature)
            best = replace(best, value=min(best.value, value), iterations=best.iterations + other.iterations)
        return best


class _Dual:
    """The dual of one slack; multipliers are in units of the constant's loss over the number of thresholds."""

    def __init__(self, problem: PluginProblem, slack: Floats) -> None:
        self.problem = problem
        self.weight, _, self.r = problem.cells
        self.pull: Floats = self.weight[:, None] * self.r
        self.unit = problem.of_constant / problem.thresholds.size
        shape = slack.size, problem.thresholds.size
        self.asked = np.broadcast_to(np.isfinite(slack)[:, None], shape)
        self.price: Floats = np.where(self.asked, np.where(np.isfinite(slack), slack, 0.0)[:, None], 0.0)

    def prices(self, x: Floats) -> Floats:
        """Return the prices ``m``, shape (K, Z)."""
        up, down = x.reshape(2, *self.price.shape)
        return np.asarray((up - down) * self.unit)

    def _priced(self, x: Floats) -> Floats:
        out: Floats = self.problem.losses.copy()
        out[:, 1:] += self.r @ np.cumsum(self.prices(x), axis=1)
        return out

    def smooth(self, x: Floats, temperature: float) -> tuple[float, Floats]:
        """Return minus the smoothed dual and its gradient."""
        least, chance, total = self._softmin(x, temperature)
        value = float(self.weight @ (least - temperature * np.log(total)))
        away = self._away(chance)
        slope = np.stack([away - self.price, -away - self.price]) * self.unit
        paid = self.unit * float(np.tile(self.price.ravel(), 2) @ x)
        return paid - value, -slope.ravel()

    def _softmin(self, x: Floats, temperature: float) -> tuple[Floats, Floats, Floats]:
        priced = self._priced(x)
        least = priced.min(axis=1)
        chance = np.exp((least[:, None] - priced) / temperature)
        total = chance.sum(axis=1)
        chance /= total[:, None]
        return least, chance, total

    def _away(self, chance: Floats) -> Floats:
        """Return ``E[r_a 1(u > t_j)]``, shape (K, Z)."""
        above = np.cumsum(chance[:, ::-1], axis=1)[:, -2::-1]
        away: Floats = self.pull.T @ above
        return away

    def certificate(self, x: Floats, temperature: float) -> tuple[float, float]:
        """Return the loss of a mixture that holds the slack, and the dual's bound.

        The mixture is the softmin; where it breaks the slack, a share of everybody gets the best constant, whose
        distances are 0.
        """
        least, chance, _ = self._softmin(x, temperature)
        bound = float(self.weight @ least) - self.unit * float(np.tile(self.price.ravel(), 2) @ x)
        away = np.abs(self._away(chance))
        kept = np.divide(
            self.price, away, out=np.ones_like(away), where=self.asked & (away > self.price)
        ).min()
        own = float(self.weight @ (chance * self.problem.losses).sum(axis=1))
        return float(kept * own + (1.0 - kept) * self.problem.of_constant), bound


def _halved(points: Floats, weight: Floats) -> Ints:
    """Return a cell for each point, shape (n,): halved at the median of the widest coordinate, again and again."""
    code = np.zeros(len(points), dtype=np.int64)
    parts = [np.arange(len(points))]
    for _ in range(HALVINGS):
        parts = [half for part in parts for half in _halves(points, weight, part)]
    for cell, part in enumerate(parts):
        code[part] = cell
    return code


def _halves(points: Floats, weight: Floats, part: Ints) -> list[Ints]:
    """Return the two halves of a part, or itself where all its points are the same."""
    some = points[part]
    value = some[:, int(np.argmax(np.ptp(some, axis=0).round(9)))]
    order = np.argsort(value, kind="stable")
    mass = np.cumsum(weight[part[order]])
    middle = value[order[int(np.searchsorted(mass, mass[-1] * (0.5 - 1e-9)))]]
    left = value <= middle if (value > middle).any() else value < middle
    return [part[left], part[~left]] if left.any() and not left.all() else [part]


# ---------------------------------------------------------------------- the rows of a fit

EVALUATIONS = 9
"""Most rules that are solved for in one search."""


@dataclass(frozen=True, eq=False)
class PluginFit:
    """A rule fitted to rows whose groups are known.

    Attributes
    ----------
    rule
        The rule.
    constant, share
        With chance ``share`` a row gets the constant.
    values
        Score of each row before the share of constants, shape (n,).
    ks
        Distance of each group to everybody on these rows, expected over the share, shape (K,).
    gap
        Of the certificate; NaN where there is a share of constants.
    multipliers
        To begin another slack from.
    evaluations
        Rules that were solved for.
    """

    rule: PluginRule
    constant: float
    share: float
    values: Floats
    ks: Floats
    gap: float
    multipliers: Floats | None
    evaluations: int


def fit_plugin(problem: PluginProblem, codes: Ints, slack: Floats, start: Floats | None = None) -> PluginFit:
    """Return the rule whose distances on the rows at hand, by their groups as they are, are within the slack.

    The slack inside is lowered until the measured distances hold; where even none does, a share of the rows gets
    everybody's mean.

    Parameters
    ----------
    problem
        The rows.
    codes
        Group of each row, shape (n,).
    slack
        Largest distance of each group to everybody, shape (K,).
    start
        Multipliers to begin from.
    """
    asked, many = np.isfinite(slack), slack.size

    def fitted(rule: PluginRule, multipliers: Floats | None) -> PluginFit:
        values = rule.score(problem.eta, problem.pi)
        ks = ks_to_overall(values, codes, problem.weight, many)
        return PluginFit(
            rule, float(problem.share @ problem.eta), 0.0, values, ks, np.nan, multipliers, tried
        )

    def excess(fit: PluginFit) -> float:
        """Return the largest ratio of a distance to its slack, less 1."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(fit.ks[asked] > 0, fit.ks[asked] / slack[asked], 0.0)
        return float(ratio.max(initial=0.0)) - 1.0

    tried = 0
    best = fitted(problem.free(), start)
    if excess(best) <= 0:
        return replace(best, gap=0.0)
    low, high, factor, now = 0.0, np.inf, 1.0, start
    found: PluginFit | None = None
    while tried < EVALUATIONS and not (slack[asked] == 0).any():
        tried += 1
        solved = problem.solve(np.where(asked, factor * slack, np.inf), now)
        now = solved.multipliers
        fit = fitted(solved.rule, now)
        over = excess(fit)
        if over <= 0:
            low, found, inside, reached = factor, fit, np.where(asked, factor * slack, np.inf), solved
            if over > -0.02 or factor >= 4:
                break
        else:
            high, best = factor, fit
        if low == 0 and factor < 0.05:
            break
        aim = factor / (1.0 + over) if over > -0.9 else 2 * factor
        between = low + 0.1 * (high - low) <= aim <= high - 0.1 * (high - low) if high < np.inf else aim > low
        factor = aim if between else (0.5 * (low + high) if low > 0 else 0.3 * high)
    if found is not None:
        gap = problem.certified(reached, inside).gap
        return replace(found, gap=gap, evaluations=tried)
    with np.errstate(divide="ignore"):
        kept = float(np.where(best.ks[asked] > 0, slack[asked] / best.ks[asked], 1.0).min())
    return replace(best, share=1.0 - kept, ks=kept * best.ks, evaluations=tried)


def mixed(values: Floats, constant: float, share: float, draw: Floats) -> Floats:
    """Return the values with the constant for a share of the rows, by a draw in [0, 1) per row."""
    return np.where(second(draw) < share, constant, values) if share > 0 else values
