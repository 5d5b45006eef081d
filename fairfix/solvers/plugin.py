r"""Scores near to the overall distribution at every threshold, by a drawn rule that does not see the group.

Rows have ``eta``, the expected label, and ``pi_a``, the probability of group ``a``. A tree cuts the space of ``(eta,
pi)`` into cells ``c`` of weight ``w_c``, in which group ``a``, whose share is ``p_a``, has the share ``s_ca``. A rule
gives each cell a distribution ``Q_c`` over values ``u_0 < ... < u_Z``, and ``r_ca = s_ca / p_a - 1`` says how far a
group is from all rows:

.. math::
    \min_Q\; \sum_c w_c \sum_k Q_{ck}\, \bar l(\eta_c, u_k) \quad\text{s.t.}\quad
    \Big|\sum_c w_c\, r_{ca} \sum_{l \ge k} Q_{cl}\Big| \le e_a \text{ for each group } a \text{ and value } k ,

where ``\bar l`` is the loss expected of ``eta``. It is a linear program, and its solution is what is shipped: a row
draws its value from ``Q`` of its cell. The distances of a rule with these values are those of the program, at every
threshold, so on the training rows they are within the slack in expectation over the draws.

In small cells recorded shares are mostly chance, so the slack is asked of expected shares as well. A bound on the loss
of every rule that keeps the slack comes from weak duality, rows summed one by one; both are explained in
docs/methods/fair-regression.md.

All is solved in units of the standard deviation of ``eta`` and of the loss of the constant.

References
----------
I. Agarwal, M. Dudik, Z. S. Wu, *Fair regression* (2019), for the constraint; the program over cells is our own writing
of it for estimated ``eta`` and ``pi``.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np

from fairfix.solvers.arrays import Bools, Floats, Ints
from fairfix.solvers.losses import in_units, row_loss
from fairfix.solvers.newton import falling_root
from fairfix.solvers.parity import ks_to_overall
from fairfix.solvers.plugin_rule import PluginRule, expected_loss, leaves_of, stationary
from fairfix.solvers.residuals import Around

CELLS = 512
"""Most cells; twice as many lower the loss by 1% of what the slack costs, in three times the time."""

ROWS = 4
"""Rows that a cell holds on average, at least: cells of single rows would know each row's group."""

VALUES = 64
"""Values of the program, two thirds of them even in the distribution of the score, one third in the score."""

REPEATED = 10
"""Greatest whole weight that is surely taken for a number of repetitions; survey weights are mostly above."""

KNOWN = 100
"""Least rows of one point whose recorded share of a group is taken for the population's, ..."""

FEW = 64
"""... if the point is also more than one in this number of rows: chance adds up over points."""

AGREED = 2000
"""Rows over which expected shares are moved to agree with the recorded ones: there chance is a hundredth."""

LEAST = 1e-6
"""Least chance among the values of the program, and one less the greatest: the log loss is infinite at 0."""

CHUNK = 1 << 13
"""Rows that are worked on at once."""


# ---------------------------------------------------------------------- the rows of a fit


@dataclass(frozen=True, eq=False)
class PluginFit:
    """A rule fitted to rows whose groups are known."""

    rule: PluginRule
    """The rule."""
    loss: float
    """Expected of the rule on these rows, over its draws."""
    bound: float
    """No rule of ``eta`` and the cell that keeps the slack by the shares of the program has a smaller loss."""
    ks: Floats
    """Distance of each group to all rows on these rows, expected over the draws, shape (K,)."""
    drawn: float
    """Share of the rows with a value that depends on the draw."""
    solved: bool
    """Whether the program was solved; else all rows get the best constant."""
    iterations: int
    """Iterations of the solver."""

    @property
    def gap(self) -> float:
        """Bound on the distance of the loss from the least."""
        return max(self.loss - self.bound, 0.0)


@dataclass(frozen=True, eq=False)
class PluginProblem:
    """Rows by their expected label, their probabilities of groups and their groups."""

    eta: Floats
    """Shape (n,); in [0, 1] for the logistic loss, not negative for the Poisson deviance."""
    pi: Floats
    """Shape (n, K), rows sum to 1."""
    codes: Ints
    """Group of each row, shape (n,); every group has rows."""
    weight: Floats | None
    """Shape (n,), of any sum; None for 1 each."""
    loss: str
    """A name of :mod:`fairfix.solvers.losses`."""
    by_label: bool = False
    """Whether cells are of ``eta`` alone, since ``pi`` is known from it; then the rule does not look at ``pi``."""
    label: Floats | None = None
    """Shape (n,); None where the loss depends on the mean of the label alone."""

    @cached_property
    def share(self) -> Floats:
        """Weight of each row, shape (n,), summing to 1."""
        weight = np.ones(self.eta.size) if self.weight is None else self.weight
        return np.asarray(weight / weight.sum())

    @cached_property
    def rows(self) -> float:
        """Number of rows: the sum of weights that count repetitions, else how many equal weights would tell as much.

        Whole weights count repetitions if they are small, or if rows share points, as in a table of counts. Else they
        are those of a survey, and each row is one person, whatever the unit of its weight.
        """
        weight = np.ones(self.eta.size) if self.weight is None else self.weight
        if (weight == np.rint(weight)).all():
            points = np.unique(np.column_stack([self.eta, self.pi])[weight > 0], axis=0)
            if weight.max() <= REPEATED or len(points) <= self.eta.size / 2:
                return float(weight.sum())
        return float(1.0 / (self.share @ self.share))

    @cached_property
    def shares(self) -> Floats:
        """``p``, shape (K,)."""
        return np.bincount(self.codes, self.share, self.pi.shape[1]).astype(np.float64)

    @cached_property
    def units(self) -> tuple[float, float]:
        """Origin and unit in which the problem is solved: mean and deviation of ``eta``.

        For chances they are 0 and 1, for means of counts 0 and their mean.
        """
        if self.loss == "logistic":
            return 0.0, 1.0
        mean = float(self.share @ self.eta)
        if self.loss == "poisson":
            return 0.0, mean or 1.0
        # of the deviations from the mean: a square of the score itself may leave the range of numbers
        far = max(float(np.abs(self.eta - mean).max(initial=0.0)), 1e-300)
        return mean, far * float(np.sqrt(self.share @ ((self.eta - mean) / far) ** 2)) or 1.0

    @cached_property
    def standard(self) -> Floats:
        """``eta`` in units of the solution, shape (n,), free of the last bits."""
        origin, unit = self.units
        return np.asarray(((self.eta - origin) / unit).round(12))

    @cached_property
    def of_constant(self) -> float:
        """Loss of the best constant in units of the solution, which is the unit of losses."""
        best = np.full(1, self._best_constant)
        return float(self.share @ self.expected(self.standard, np.clip(best, *self._ends))[:, 0])

    @cached_property
    def around(self) -> Around | None:
        """Expected labels around a score, in units of the solution; None for losses of the mean."""
        if self.label is None:
            return None
        origin, unit = self.units
        label = ((self.label - origin) / unit).round(12)
        return Around.of(in_units(self.loss, unit), self.standard, label, self.share, self.rows)

    def expected(self, standard: Floats, u: Floats) -> Floats:
        """Return the loss expected of scores ``u``, shape (n, V) or (V,), where ``eta`` is ``standard``, shape (n,).

        All in units of the solution; shape (n, V).
        """
        if self.around is not None:
            return self.around.cost(standard, u)
        return expected_loss(self.loss, standard[:, None], u)

    @property
    def scale(self) -> float:
        """Factor from losses in units of the solution to those of the label."""
        return float(self.units[1] ** row_loss(self.loss).power)

    @property
    def _ends(self) -> tuple[float, float]:
        """Least and greatest value of the program."""
        least = -np.inf if self.loss not in ("logistic", "poisson") else LEAST
        return least, 1.0 - LEAST if self.loss == "logistic" else np.inf

    @cached_property
    def _best_constant(self) -> float:
        """The constant of least loss in units of the solution."""
        around = self.around
        if around is None:
            return float(self.share @ self.standard)

        def fall(u: float) -> tuple[float, float]:
            return -float(self.share @ around.slope(self.standard, np.full(1, u))[:, 0]), 0.0

        low, high = float(self.standard.min()), float(self.standard.max())
        return falling_root(fall, low, high) if low < high else low

    @property
    def constant(self) -> PluginRule:
        """The rule that gives all rows the constant of least loss."""
        origin, unit = self.units
        if self.around is None:
            return PluginRule.of_constant(float(self.share @ self.eta))
        return PluginRule.of_constant(origin + unit * self._best_constant)

    def losses(self, rule: PluginRule) -> float:
        """Return the loss expected of a rule on these rows, over its draws."""
        origin, unit = self.units
        if not rule.moves:
            if self.around is not None:
                own = self.expected(self.standard, self.standard[:, None])[:, 0]
                return self.scale * float(self.share @ own)
            return float(self.share @ expected_loss(self.loss, self.eta, self.eta))
        levels, chance = rule.distributions()
        cell = rule.cells(self.eta, self.pi)
        total = 0.0
        for i in range(0, self.eta.size, CHUNK):
            rows = slice(i, i + CHUNK)
            if self.around is not None:
                each = self.scale * self.expected(self.standard[rows], (levels - origin) / unit)
            else:
                each = expected_loss(self.loss, self.eta[rows, None], levels)
            own = chance[cell[rows]]
            total += float(
                self.share[rows] @ np.multiply(own, each, out=np.zeros_like(own), where=own > 0).sum(axis=1)
            )
        return total

    def distances(self, rule: PluginRule) -> Floats:
        """Return the distance of each group to all rows on these rows, expected over the draws, shape (K,)."""
        many = self.shares.size
        if not rule.moves:
            return ks_to_overall(self.eta, self.codes, self.weight, many)
        _, chance = rule.distributions()
        cell = rule.cells(self.eta, self.pi)
        mass = np.bincount(cell * many + self.codes, self.share, len(chance) * many).reshape(-1, many)
        away = (mass / self.shares - mass.sum(axis=1, keepdims=True)).T @ np.cumsum(chance, axis=1)
        return np.asarray(np.abs(away).max(axis=1))

    @cached_property
    def _tree(self) -> _Tree:
        return _Tree.grown(self)

    def fit(self, slack: Floats) -> PluginFit:
        """Return the rule of least loss whose distances on these rows are within the slack, expected over its draws.

        ``slack``: largest distance of each group to all rows, shape (K,), at least 0; infinite where none is asked.
        """
        free = PluginRule.free()
        ks = self.distances(free)
        if (ks <= slack).all():
            loss = self.losses(free)
            return PluginFit(free, loss, loss, ks, 0.0, True, 0)
        solved = _PluginProgram(self, slack).solve()
        if solved is None:
            rule = self.constant
            return PluginFit(rule, self.losses(rule), -np.inf, self.distances(rule), 0.0, False, 0)
        rule, bound, iterations = solved
        drawn = float(self.share @ rule.drawn(self.eta, self.pi))
        return PluginFit(rule, self.losses(rule), bound, self.distances(rule), drawn, True, iterations)


# ---------------------------------------------------------------------- cells


@dataclass(frozen=True, eq=False)
class _Tree:
    """The cells of a problem."""

    part: Ints
    cut: Floats
    below: Ints
    """``part``, ``cut`` and ``below``: as in :class:`PluginRule`."""
    code: Ints
    """Cell of each row, shape (n,)."""
    coarse: Ints
    """Part of some thousand rows that each row is in, shape (n,)."""
    single: Bools
    """Whether all rows of a cell are at one point, shape (C,)."""

    @classmethod
    def grown(cls, problem: PluginProblem) -> _Tree:
        """Return the tree: the part in which some coordinate varies most is cut at its mean, again and again.

        Coordinates are in units of their deviations, ``eta`` in half of it, since the loss is of ``eta``.
        """
        weighed = problem.share > 0
        own, share = np.column_stack([problem.standard, problem.pi])[weighed], problem.share[weighed]
        mean = share @ own
        spread = np.sqrt(share @ (own - mean) ** 2)
        scale = np.where(spread > 1e-9, 1.0 / np.maximum(spread, 1e-9), 0.0) * np.array(
            [2.0] + [1.0 / np.sqrt(problem.pi.shape[1] - 1.0)] * problem.pi.shape[1]
        )
        if problem.by_label:
            scale[1:] = 0.0
        points = (own * scale).round(9)  # two points nearer than that are one
        most = int(np.clip(problem.rows / ROWS, 1, CELLS))
        goal = max(int(problem.rows / AGREED), 1)
        part, cut, below, number = [0], [0.0], [-1], count()
        heap: list[tuple[float, int, int, int, Ints]] = []

        def push(node: int, rows: Ints) -> None:
            here, w = points[rows], share[rows]
            middle = w @ here / w.sum()
            vary = np.where(np.ptp(here, axis=0) > 0, w @ (here - middle) ** 2, 0.0)
            wide = int(np.argmax(vary.round(12)))
            heapq.heappush(heap, (-round(float(vary[wide]), 12), next(number), node, wide, rows))

        coarse = np.zeros(weighed.size, dtype=np.int64)
        kept = np.flatnonzero(weighed)
        push(0, np.arange(len(own)))
        while True:
            if len(heap) == goal:
                for k, leaf in enumerate(heap):
                    coarse[kept[leaf[-1]]] = k
            if len(heap) >= most or heap[0][0] == 0:
                break
            _, _, node, wide, rows = heapq.heappop(heap)
            value = points[rows, wide]
            w = share[rows]
            left = value <= w @ value / w.sum() + 1e-9
            if left.all():
                left = value < value.max()
            raw = own[rows, wide]
            part[node], cut[node] = wide, float(raw[left].max() + raw[~left].min()) / 2
            below[node] = len(part)
            part += [0, 0]
            cut += [0.0, 0.0]
            below += [-1, -1]
            push(below[node], rows[left])
            push(below[node] + 1, rows[~left])
        if len(heap) < goal:
            for k, leaf in enumerate(heap):
                coarse[kept[leaf[-1]]] = k
        single = np.zeros(len(heap), dtype=bool)
        for c, (_, _, node, _, rows) in enumerate(heap):
            part[node] = c
            single[c] = not np.ptp(points[rows], axis=0).any()
        origin, unit = problem.units
        parts, cuts, next_ = np.array(part), np.array(cut), np.array(below)
        of_eta = (next_ >= 0) & (parts == 0)
        cuts[of_eta] = origin + unit * cuts[of_eta]
        code = leaves_of(parts, cuts, next_, problem.eta, problem.pi)
        return cls(parts, cuts, next_, code, coarse, single)


# ---------------------------------------------------------------------- the program


class _PluginProgram:
    """The linear program of one slack, over the chances of values in cells and the distances they make."""

    def __init__(self, problem: PluginProblem, slack: Floats) -> None:
        self.problem, self.slack, self.tree = problem, slack, problem._tree
        code, share = self.tree.code, problem.share
        many = self.tree.single.size
        self.weight: Floats = np.bincount(code, share, many).astype(np.float64).round(13)
        self.eta: Floats = (
            np.bincount(code, share * problem.standard, many) / np.maximum(self.weight, 1e-300)
        ).round(12)
        self.recorded = self._away(np.eye(problem.shares.size)[problem.codes])
        low, high = problem._ends
        order = np.argsort(self.eta, kind="stable")
        level = np.cumsum(self.weight[order])
        even = np.linspace(0, level[-1], VALUES * 2 // 3)
        at = self.eta[order[np.minimum(np.searchsorted(level, even - 1e-12), order.size - 1)]]
        steps = np.linspace(self.eta.min(), self.eta.max(), VALUES // 3)
        own = self.eta if many <= VALUES else at  # few cells keep values of their own
        self.grid: Floats = np.unique(np.clip(np.concatenate([own, at, steps]).round(9), low, high))

    def _away(self, members: Floats) -> Floats:
        """Return ``r`` of memberships of rows (n, K) in each cell, shape (C, K)."""
        code, share = self.tree.code, self.problem.share
        sums = np.stack([np.bincount(code, share * m, self.weight.size) for m in members.T], axis=1)
        own = sums / np.maximum(self.weight, 1e-300)[:, None]
        return np.asarray((own / self.problem.shares - 1.0).round(11))

    def _expected(self) -> Floats | None:
        """Return ``r`` by expected shares, shape (C, K); None where all cells are known by their records."""
        problem, tree = self.problem, self.tree
        recorded = tree.single & (self.weight * problem.rows >= max(KNOWN, problem.rows / FEW))
        if recorded[self.weight > 0].all():
            return None
        sure = recorded[tree.code]
        parts = np.where(sure, 0, tree.coarse + 1)
        mass = np.maximum(np.bincount(parts, problem.share), 1e-300)
        truth = np.eye(problem.shares.size)[problem.codes]
        off = np.stack([np.bincount(parts, problem.share * d) / mass for d in (truth - problem.pi).T], axis=1)
        expected = self._away(np.where(sure[:, None], truth, problem.pi + off[parts]))
        return None if np.array_equal(expected, self.recorded) else expected

    def _cost(self) -> Floats:
        """Return the loss that is expected of each value in each cell, in units of the solution, shape (C, Z + 1)."""
        import scipy.sparse as sp

        problem, code = self.problem, self.tree.code
        if problem.around is None:  # hangs on the mean of the cell alone
            return expected_loss(problem.loss, self.eta[:, None], self.grid)
        total = np.zeros((self.weight.size, self.grid.size))
        for i in range(0, code.size, CHUNK):
            rows = slice(i, i + CHUNK)
            own = code[rows]
            of_cell = sp.csr_matrix((problem.share[rows], (own, np.arange(own.size))), (len(total), own.size))
            total += np.asarray(of_cell @ problem.expected(problem.standard[rows], self.grid))
        return np.asarray(total / np.maximum(self.weight, 1e-300)[:, None])

    def solve(self) -> tuple[PluginRule, float, int] | None:
        """Return the rule, the bound on the loss of any and the iterations; None where the solver fails."""
        from scipy import optimize

        program: Any = optimize.linprog  # its stubs know no limits as an array
        problem, slack = self.problem, self.slack
        cells, wide = self.weight.size, self.grid.size
        if wide < 2:
            return None
        cost = self._cost() / problem.of_constant
        expected = self._expected()
        sets = [self.recorded] if expected is None else [self.recorded, expected]
        matrix, right, limits, prices_at = self._constraints(sets)
        paid = np.concatenate([(cells * self.weight[:, None] * cost).ravel(), np.zeros(len(limits))])
        bounds = np.concatenate([np.tile([0.0, np.inf], (cells * wide, 1)), limits])
        for method in ("highs-ipm", "highs-ds"):
            answer = program(
                paid,
                A_eq=matrix,
                b_eq=right,
                bounds=bounds,
                method=method,
                options={"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9},
            )
            if answer.status == 0:
                break
        else:
            return None
        chance = np.asarray(answer.x[: cells * wide]).reshape(cells, wide)
        prices = prices_at(np.asarray(answer.eqlin.marginals) / cells)
        rule = self._rule(chance)
        return rule, self._bound(sets, prices, slack), int(answer.nit)

    def _constraints(self, sets: list[Floats]) -> tuple[Any, Floats, Floats, Any]:
        """Return equations, their right side, limits of the distances, and how multipliers become prices (S, K, Z).

        A distance at a value is that at the next value plus what the cells add between: so each chance is in one row
        per group. The last group's distances follow from the others', whose weighted sum with its own is 0.
        """
        import scipy.sparse as sp

        cells, steps, groups = self.weight.size, self.grid.size - 1, self.problem.shares.size
        shares = self.problem.shares
        pick = sp.csr_matrix((np.ones(steps), (np.arange(steps), np.arange(1, steps + 1))))
        chain = cells * (sp.eye(steps) - sp.eye(steps, k=1))
        # slack is kept a millionth below what is asked, so that rounding does not lie above it
        limit = np.where(np.isfinite(self.slack), (1.0 - 1e-6) * self.slack, np.inf)
        many = len(sets) * groups  # chains of distances, one per set and group
        rows: list[list[Any]] = [[sp.kron(sp.eye(cells), np.ones((1, steps + 1))), *[None] * many]]
        right = [np.ones(cells)]
        for s, r in enumerate(sets):
            for a in range(groups - 1):
                row: list[Any] = [sp.kron(sp.csr_matrix((cells * self.weight * r[:, a])[None]), pick)]
                row += [-chain if k == s * groups + a else None for k in range(many)]
                rows.append(row)
            last: list[Any] = [None] * (many + 1)
            for a in range(groups):
                last[1 + s * groups + a] = shares[a] * sp.eye(steps)
            rows.append(last)
            right.append(np.zeros(groups * steps))
        limits = np.repeat(np.tile(np.column_stack([-limit, limit]), (len(sets), 1)), steps, axis=0)

        def prices(marginals: Floats) -> Floats:
            """Return the price of passing each value, of a unit of distance, for each set and group."""
            passed = -cells * marginals[cells:].reshape(len(sets), groups, steps)
            passed[:, -1] = 0.0  # these are of the equation that ties the last group to the others
            return np.diff(passed, axis=2, prepend=0.0)

        return sp.bmat(rows, format="csc"), np.concatenate(right), limits, prices

    def _rule(self, chance: Floats) -> PluginRule:
        """Return the rule of chances (C, Z + 1).

        For losses of the mean, each value is moved to the mean of the rows that get it, in order.
        """
        from scipy.optimize import isotonic_regression

        chance = np.where(chance > 1e-9, chance, 0.0)
        chance /= chance.sum(axis=1, keepdims=True)
        mass = self.weight @ chance
        used = mass > 1e-12
        chance, mass = chance[:, used], mass[used]
        levels = self.grid[used]
        if self.problem.around is None:
            mean = (self.weight * self.eta) @ chance / mass
            levels = isotonic_regression(mean, weights=mass).x
        origin, unit = self.problem.units
        # levels are rounded in units of the solution, and no score may leave its range by that
        levels = np.clip(origin + unit * levels, self.problem.eta.min(), self.problem.eta.max())
        cell, place = np.nonzero(chance)
        upto = cell + np.cumsum(chance, axis=1)[cell, place]
        last = np.append(cell[1:] != cell[:-1], True)
        upto[last] = cell[last] + 1.0
        return PluginRule(self.tree.part, self.tree.cut, self.tree.below, upto, levels[place])

    def _bound(self, sets: list[Floats], prices: Floats, slack: Floats) -> float:
        """Return the loss that no rule can go below by the prices (S, K, Z), in units of the label."""
        problem, asked = self.problem, np.isfinite(slack)
        passed, paid = np.zeros((self.weight.size, self.grid.size)), 0.0
        for r, own in zip(sets, prices, strict=True):
            price = _cheapest(own, problem.shares, slack)
            price[~asked] = 0.0
            passed[:, 1:] += r @ np.cumsum(price, axis=1)
            paid += float((slack[asked, None] * np.abs(price[asked])).sum())
        total = 0.0
        for i in range(0, problem.eta.size, CHUNK):
            rows = slice(i, i + CHUNK)
            total += float(
                problem.share[rows] @ self._least(problem.standard[rows], passed[self.tree.code[rows]])
            )
        return (total - paid) * problem.of_constant * problem.scale

    def _least(self, eta: Floats, passed: Floats) -> Floats:
        """Return the least loss and price of any score, shape (n,), of rows with prices at the values (n, Z + 1)."""
        loss, unit = self.problem.loss, self.problem.of_constant
        if self.problem.around is not None:
            return self.problem.around.least_priced(eta, self.grid, passed * unit) / unit
        step = np.diff(self.grid)
        slope = np.diff(passed, axis=1) / step * unit
        slope = np.pad(slope, ((0, 0), (1, 1)))  # below and above all values no price is added
        low, high = np.append(-np.inf, self.grid), np.append(self.grid, np.inf)
        if loss in ("logistic", "poisson"):
            low = np.maximum(low, 0.0)
        if loss == "logistic":
            high = np.minimum(high, 1.0)
        best = np.clip(stationary(loss, eta[:, None], slope), low, high)
        start = np.append(self.grid[0], self.grid)
        price = np.column_stack([passed[:, :1], passed]) + slope / unit * (best - start)
        return np.asarray((expected_loss(loss, eta[:, None], best) / unit + price).min(axis=1))


def _cheapest(prices: Floats, shares: Floats, slack: Floats) -> Floats:
    """Return prices (K, Z) that are the same for every rule and pay least for the slack.

    ``sum_a p_a r_a = 0``, so a multiple of ``p`` may be taken off: the best makes the price of one group 0 (a weighted
    median), or of those without a slack, if there is one.
    """
    ratio = prices / shares[:, None]
    free = np.flatnonzero(~np.isfinite(slack))
    if free.size:
        return np.asarray(prices - shares[:, None] * ratio[free[0]])
    cost = [(slack[:, None] * np.abs(prices - shares[:, None] * one)).sum(axis=0) for one in ratio]
    best = np.argmin(cost, axis=0)
    return np.asarray(prices - shares[:, None] * ratio[best, np.arange(prices.shape[1])])
