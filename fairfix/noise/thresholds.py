r"""Score thresholds that keep the rates of true groups near the overall rate, where groups are seen through noise.

The data are masses ``n_k(b, y)`` by noisy group, bin of the score and label. A row of noisy group ``k`` in bin ``b`` is
accepted with probability ``F_k(b)``, which does not decrease in ``b``: a mixture of thresholds. Expected error and
overall rates are linear in ``F``:

.. math:: \min_F \sum_{k,b} n_k(b, 0) F_k(b) + n_k(b, 1) \{1 - F_k(b)\}

subject to ``|TPR_j - TPR| <= slack`` for every true group, or another constraint of
:data:`fairfix.noise.rates.DEMANDS`. The rates of true groups are those of :mod:`fairfix.noise.score_bin_bounds`; the
constraint holds for all that an assumption and any of several tables allow.

=====================  =================================================================================================
assumption             how ``F`` is solved for
=====================  =================================================================================================
``ClassConditional``   rates are linear; the margin of z standard errors is a second-order cone, approximated by
                       tangents ``2 a v_i - a^2 t <= s_i`` of ``v_i^2 <= s_i t, sum s <= t`` where a solution needs them
``KnownTableByLabel``  the adversary fills the bins of the lowest ``F`` first, whatever ``F`` is: the worst case is
                       linear
``BoundedDependence``  the dual of the worst case: ``r' u`` with ``E' u - H' w <= F``, ``w >= 0``; variables of one
                       program
``KnownTable``         selection rates as ``KnownTableByLabel``; else the dual with the level of the rate as one more
                       variable
``KnownMembership``    as ``ClassConditional``
``TotalVariation``     the dual of the worst case, as ``BoundedDependence``
=====================  =================================================================================================

Derivations, and why each program is exact, are in ``docs/methods/noise.md``.

References
----------
S. Wang, W. Guo, H. Narasimhan, A. Cotter, M. Gupta and M. I. Jordan, *Robust optimization for fairness with noisy
protected groups* (2020), for the problem; J. P. Vielma, I. Dunning, J. Huchette and M. Lubin, *Extended formulations in
mixed integer conic quadratic programming* (2017), for the tangents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import linprog

from fairfix.noise.bounds import widest
from fairfix.noise.rates import DEMANDS, LABELS, Floats, Parity, require_labels, shortfalls
from fairfix.noise.score_bin_bounds import (
    Assumption,
    BoundedDependence,
    CellBlock,
    ClassConditional,
    Inverse,
    KnownMembership,
    TotalVariation,
    eps_of,
    looked_at,
    parts_of,
    rate_bounds,
    require_fit,
    space_of,
)
from fairfix.noise.uncertainty_set import (
    IMPOSSIBLE,
    Range,
    Refuted,
    SparseMatrix,
    UncertaintySet,
    is_empty,
    joint_masses,
    near_group,
    smallest_eps,
)
from fairfix.solvers.newton import least_holding

ROUNDS = 40
"""Most rounds of tangents."""

GAP = 1e-4
"""Distance of the error to its bound at which tangents are good enough."""

UNIT = 0.01
"""Scale of margins inside programs, so that they are not lost in the precision of the solver."""

TOLERANCE = 1e-7
"""Tolerance of constraints, which is that of linear programs."""

HALVINGS = 30
"""Halvings of the way towards a feasible point; the end inside is taken, so only 2^-30 of the way is lost."""


@dataclass(frozen=True, eq=False)
class NoisyRepair:
    """Mixtures of thresholds."""

    F: Floats
    """Probability to accept by noisy group and bin, shape (K, B), nondecreasing in the bin."""
    error: float
    """Expected error on the data."""
    excess: Floats
    """By how much the worst rate of each true group, margin included, misses its limit, shape (demands, J).

    At most 0 where the constraint holds; NaN for a rate without a denominator.
    """
    feasible: bool
    """Whether the constraint can be satisfied; if not, ``F`` has the least greatest excess."""
    bound: float
    """No ``F`` whose constraint holds has less error, but for rounding; NaN if there is none."""
    programs: int
    """Linear programs that were solved."""
    least_excess: float = np.nan
    """No ``F`` has less excess, but for rounding, where the constraint cannot hold."""
    largest_error: float = np.nan
    """For minimax, the largest error rate of a true group that the assumption allows, margin included."""
    least_largest_error: float = np.nan
    """Lower bound of ``F`` in it, to rounding."""

    @property
    def converged(self) -> bool:
        """Whether the error is as near to its bound as tangents can bring it; not where the constraint cannot hold."""
        return self.feasible and self.error - self.bound <= GAP

    @property
    def violation(self) -> float:
        """The greatest excess."""
        return float(np.nanmax(self.excess, initial=-np.inf))


def solve_noisy(
    n: Floats,
    table: Floats | Range,
    parity: Parity,
    slack: float,
    assumption: Assumption,
    *,
    rules: Sequence[int] | None = None,
    others: Sequence[Floats | Range] = (),
) -> NoisyRepair:
    """Return the thresholds of least error whose constraint holds under the assumption.

    Parameters
    ----------
    n
        Masses by noisy group, bin in increasing order of the score and label, shape (K, B, 2), of total 1. The score
        must not use the noisy group.
    table, others
        Joint masses of true and noisy groups with the columns of ``n``: by label, shape (2, J, K), or without, shape
        (J, K). :class:`~fairfix.noise.score_bin_bounds.KnownTableByLabel` needs labels, ``KnownTable`` takes none; for
        both the constraint holds for each of several tables, or for all tables of a range. ``TotalVariation`` takes
        radii in total variation, shape (J,), and ``KnownMembership`` sums by membership.
    parity, slack, assumption
        Which rates are held together, and the allowed difference to the overall rate. Less than 0 asks for more than
        equality, and may be infeasible.
    rules
        Number of each noisy group's rule, of 0, 1, ...: groups of one number have one rule. None: each has its own.

    Raises
    ------
    Refuted
        If no noise satisfies the assumption; with a table by label, among the labels that the constraint looks at.
    ValueError
        If columns do not fit, the table does not go with the assumption, a label is missing that the constraint needs,
        or true groups are not identified but should be.
    """
    own = np.arange(len(n)) if rules is None else np.asarray(rules, dtype=np.int64)

    def solved(slack: float, start: Floats | None = None) -> NoisyRepair:
        problem = _NoisyProblem(n, (table, *others), parity, slack, assumption, own)
        if isinstance(assumption, ClassConditional | KnownMembership):
            return problem.identified(assumption, start)
        return problem.worst_case()

    if parity != "minimax":
        return solved(slack)
    least = solved(0.0)  # no error at all: what it is missed by is the largest error
    level = slack + max(least.violation, 0.0)
    best = solved(level + TOLERANCE, least.F)
    best = best if best.feasible and best.violation <= TOLERANCE else least
    return replace(best, largest_error=level, least_largest_error=np.nan_to_num(least.least_excess))


# ---------------------------------------------------------------------- linear programs


class _ThresholdProgram:
    """A linear program that is put together block by block; rows say at most."""

    def __init__(self) -> None:
        self.bounds = np.zeros((0, 2))
        self.limits = np.zeros(0)
        self.matrix = SparseMatrix()

    def add(self, count: int, low: float, high: float) -> int:
        """Return the first of new variables."""
        self.bounds = np.append(self.bounds, np.tile([low, high], (count, 1)), 0)
        return len(self.bounds) - count

    def at_most(self, blocks: Sequence[tuple[int, Any]], limit: npt.ArrayLike) -> None:
        """Add rows: the sum of matrices, each at its first variable, is at most the limit."""
        rows = self.matrix.new(np.shape(np.atleast_1d(limit)))
        for start, one in blocks:
            block = sparse.coo_matrix(np.atleast_2d(one) if isinstance(one, np.ndarray) else one)
            self.matrix.put(rows[block.row], start + block.col.astype(np.int64), block.data)
        self.limits = np.append(self.limits, limit)

    def solve(self, cost: Floats, relaxed: int, relax: bool) -> Any:
        """Return the solution; the variable ``relaxed`` is held at 0, or is itself the cost."""
        goal, bounds = np.zeros(len(self.bounds)), self.bounds.copy()
        if relax:
            goal[relaxed], bounds[relaxed, 1] = 1.0, np.inf
        else:
            goal[: cost.size], bounds[relaxed, 1] = cost, 0.0
        solve: Any = linprog  # its stubs know no sparse matrix
        matrix = self.matrix.of_width(goal.size)
        return solve(goal, A_ub=matrix, b_ub=self.limits, bounds=bounds, method="highs")


class _Cones:
    """The margins of a rate, ``z`` standard errors in :data:`UNIT`, as variables of a program, and tangents to them."""

    def __init__(self, program: _ThresholdProgram, inverse: Inverse, z: float, spread: Any) -> None:
        self.inverse, self.scale, self.spread = inverse, z / UNIT, spread
        labels, groups, bins = inverse.variance.shape
        self.shape = (labels, groups, bins)
        self.mean = program.add(groups, -np.inf, np.inf)
        self.margin = program.add(groups, 0.0, np.inf)
        self.squares = program.add(labels * groups * bins, 0.0, np.inf)
        rates = sparse.csr_matrix(inverse.coefficients.reshape(groups, -1)) @ spread
        for sign in (1.0, -1.0):
            program.at_most(
                [(0, sign * rates), (self.mean, -sign * np.eye(groups))], -sign * inverse.constant
            )
        sums = sparse.kron(sparse.kron(np.ones((1, labels)), sparse.identity(groups)), np.ones((1, bins)))
        program.at_most([(self.squares, sums), (self.margin, -np.eye(groups))], np.zeros(groups))

    def touch(self, program: _ThresholdProgram, accept: Floats) -> None:
        """Add the tangents at a solution; those of groups without an error say nothing and are left out."""
        terms = self.scale * self.inverse.terms(accept)
        size = np.sqrt((terms**2).sum((0, 2), keepdims=True))
        label, group, bin_ = np.nonzero((size > 0) & (self.inverse.variance > 0))
        at = (terms / np.where(size > 0, size, 1.0))[label, group, bin_]
        weight = 2 * at * self.scale * np.sqrt(self.inverse.variance[label, group, bin_])
        rows, (_, groups, bins) = np.arange(at.size), self.shape
        refused = self.inverse.refused[label]
        noise = np.where(refused, -1.0, 1.0)[:, None] * self.inverse.noise[label, group]  # row, k

        def placed(numbers: Floats, columns: npt.NDArray[np.int64], width: int) -> Any:
            return sparse.csr_matrix((numbers, (rows, columns)), shape=(at.size, width))

        noisy = noise.shape[1]
        rates = sum(placed(weight * noise[:, k], k * bins + bin_, noisy * bins) for k in range(noisy))
        flat = np.ravel_multi_index((label, group, bin_), self.shape)
        blocks = [
            (0, rates @ self.spread),
            (self.mean, placed(-weight, group, groups)),
            (self.margin, placed(-(at**2), group, groups)),
            (self.squares, placed(-np.ones(at.size), flat, int(np.prod(self.shape)))),
        ]
        program.at_most(blocks, np.where(refused, -weight, 0.0))


class _NoisyProblem:
    """A repair: its masses, tables and demands."""

    def __init__(
        self,
        n: Floats,
        tables: Sequence[Floats | Range],
        parity: Parity,
        slack: float,
        assumption: Assumption,
        rules: npt.NDArray[np.int64],
    ) -> None:
        for table in tables:
            require_fit(n, table, assumption)
        self.n, self.tables, self.slack, self.assumption = n, tables, slack, assumption
        self.demands = DEMANDS[parity]
        require_labels(n.sum((0, 1)), parity)
        eps = eps_of(assumption)
        for table in tables:
            if isinstance(table, Range) and any(
                is_empty(joint_masses([p], 1.0)) for p in looked_at(n, table, parity)
            ):
                raise ValueError(IMPOSSIBLE.format(table.keep.replace("-given-", " | ")))
        if isinstance(assumption, BoundedDependence) and eps < 1:
            parts = looked_at(n, tables[0], parity)
            if any(is_empty(joint_masses([part], eps)) for part in parts):
                raise Refuted(eps, smallest_eps(parts))
        noisy, bins, _ = n.shape
        of_rule = np.eye(int(rules.max()) + 1)[rules]
        self.spread: Any = sparse.csr_matrix(sparse.kron(of_rule, sparse.identity(bins)))
        """Takes the free variables to F."""
        self.groups = groups_of(tables[0], noisy, assumption)

    def overall(self, rate: str) -> tuple[Floats, float]:
        """Return what a rate is compared with: coefficients of F, shape (K * B,), and a constant; accuracy with 1."""
        own = self.n[:, :, list(LABELS[rate])].sum(2)
        if rate == "accuracy":
            return np.zeros(own.size), 1.0
        return np.asarray(own.ravel() / own.sum()), 0.0

    def error(self, accept: Floats) -> float:
        """Return the expected error."""
        return float((self.n[:, :, 0] * accept + self.n[:, :, 1] * (1 - accept)).sum())

    def excess(self, accept: Floats) -> Floats:
        """Return what the worst rates miss their limits by, shape (demands, J)."""
        every = shortfalls(
            self.demands,
            lambda rate: float(self.overall(rate)[0] @ accept.ravel()),
            lambda rate: widest([rate_bounds(self.n, t, accept, rate, self.assumption) for t in self.tables]),
        )
        return np.array(every) - self.slack

    def finish(self, accept: Floats, feasible: bool, bound: float, programs: int) -> NoisyRepair:
        """Return the solution with its worst cases; ``bound`` is of the excess where the constraint cannot hold."""
        bound, least = (bound, np.nan) if feasible else (np.nan, bound)
        return NoisyRepair(accept, self.error(accept), self.excess(accept), feasible, bound, programs, least)

    def start(self) -> tuple[_ThresholdProgram, int]:
        """Return a program with F, nondecreasing, as its first variables, and the number of the violation."""
        program, (bins, size) = _ThresholdProgram(), (self.n.shape[1], self.spread.shape[1])
        program.add(size, 0.0, 1.0)
        relaxed = program.add(1, 0.0, np.inf)
        if bins > 1:
            eye = sparse.identity(bins, format="csr")
            step = eye[:-1] - eye[1:]
            rising = sparse.kron(sparse.identity(size // bins), step)
            program.at_most([(0, rising)], np.zeros(rising.shape[0]))
        return program, relaxed

    def run(self, program: _ThresholdProgram, relaxed: int) -> tuple[Floats, bool, float]:
        """Return F, whether the constraint could be satisfied, and the least error or, if not, the least violation."""
        cost = self.spread.T @ (self.n[:, :, 0] - self.n[:, :, 1]).ravel()
        answer = program.solve(cost, relaxed, relax=False)
        feasible = answer.status == 0
        if not feasible:
            answer = program.solve(cost, relaxed, relax=True)
        # a violation variable makes every constraint feasible
        accept = np.clip(self.spread @ answer.x[: self.spread.shape[1]], 0.0, 1.0).reshape(self.n.shape[:2])
        value = float(answer.fun) + (float(self.n[:, :, 1].sum()) if feasible else 0.0)
        return np.maximum.accumulate(accept, axis=1), feasible, value

    # ------------------------------------------------------------------ known noise

    def identified(
        self, assumption: ClassConditional | KnownMembership, start: Floats | None = None
    ) -> NoisyRepair:
        """Return the best thresholds, by tangents of the standard errors; ``start``: some that hold the limits."""
        rates, table = list(dict.fromkeys(rate for rate, _ in self.demands)), self.tables[0]
        assert isinstance(table, np.ndarray)
        inverses = {rate: Inverse.of(self.n, table, rate, assumption) for rate in rates}
        program, relaxed = self.start()
        minus = -np.ones((self.groups, 1))
        cones: dict[str, _Cones] = {}
        if assumption.z and (isinstance(assumption, KnownMembership) or np.isfinite(assumption.rows)):
            cones = {rate: _Cones(program, inverses[rate], assumption.z, self.spread) for rate in rates}
        plain = []
        for rate, sign in self.demands:
            level, least = self.overall(rate)
            rows = sign * (level - inverses[rate].coefficients.reshape(self.groups, -1))
            limits = self.slack - sign * (least - inverses[rate].constant)
            plain.append((rows, limits))
            blocks: list[tuple[int, Any]] = [(0, rows @ self.spread), (relaxed, minus)]
            if cones:
                blocks.append((cones[rate].margin, UNIT * np.eye(self.groups)))
            program.at_most(blocks, limits)

        def excess(accept: Floats) -> Floats:
            margin = [assumption.z * inverses[r].errors(accept) if cones else 0.0 for r, _ in self.demands]
            rows = [r @ accept.ravel() + m - limit for (r, limit), m in zip(plain, margin, strict=True)]
            return np.array(rows)

        # a constant has equal rates; of accuracy only a start is known to hold the limit
        inside = [np.full(self.n.shape[:2], c) for c in (0.0, 1.0)] if start is None else [start]
        best: Floats | None = min(inside, key=self.error) if excess(inside[0]).max() <= TOLERANCE else None
        done, bound = 0, np.nan
        while done < ROUNDS:
            accept, feasible, value = self.run(program, relaxed)
            done += 1
            over = excess(accept)
            if not feasible:
                best, limit, bound = accept, value, value
            else:
                bound, limit = value, 0.0
                if best is not None:
                    ends = [
                        _towards(accept, end, lambda f: float(excess(f).max())) for end in (*inside, best)
                    ]
                    best = min([best, *ends], key=self.error)
                holds = bool(over.max() <= TOLERANCE)
                if holds and (best is None or self.error(accept) < self.error(best) - GAP):
                    best = accept  # with a slack of 0 rounding leaves no way to the inside but a constant
                if holds or (best is not None and self.error(best) <= bound + GAP):
                    break
            if not (over > limit + TOLERANCE).any():
                break
            for cone in cones.values():
                cone.touch(program, accept)
        best = accept if best is None else best
        return self.finish(best, feasible, bound, done)

    # ------------------------------------------------------------------ worst cases

    def worst_case(self) -> NoisyRepair:
        """Return the best thresholds for the worst noise."""
        program, relaxed = self.start()
        minus = -np.ones((1, 1))
        eps = eps_of(self.assumption)
        for rate, sign in self.demands:
            of_all, least = self.overall(rate)
            overall, slack = sign * of_all @ self.spread, self.slack - sign * least
            free = self.tables[0].ndim < 3 and len(LABELS[rate]) == 1  # the denominator is unknown
            free = free or isinstance(self.tables[0], Range)
            level = program.add(1, 0.0, 1.0) if free else None
            if level is not None:
                program.at_most([(0, overall), (level, sign * minus), (relaxed, minus)], slack)
            for table in self.tables:
                homes = (
                    self.assumption.homes(len(self.n))
                    if isinstance(self.assumption, TotalVariation)
                    else None
                )
                parts = [] if homes is not None else parts_of(self.n, table, rate, eps)
                masses = [p.table.sum(1) for p in parts if isinstance(p.table, np.ndarray)]
                total = np.sum(masses, axis=0) if masses else np.ones(self.groups)
                for j in np.flatnonzero(total > 0):
                    if homes is not None and isinstance(table, np.ndarray):
                        worst, given = self._near(program, int(homes[j]), float(table[j]), rate, sign, level)
                    else:
                        worst, given = self._worst(program, parts, int(j), sign, eps, level)
                    blocks = [(start, -row / total[j]) for start, row in worst]
                    if level is None:
                        program.at_most([*blocks, (0, overall), (relaxed, minus)], slack + given / total[j])
                    else:
                        program.at_most(blocks, given)
        return self.finish(*self.run(program, relaxed), 1)

    def _worst(
        self,
        program: _ThresholdProgram,
        parts: Sequence[CellBlock],
        group: int,
        sign: float,
        eps: float,
        level: int | None,
    ) -> tuple[list[tuple[int, Floats]], float]:
        """Return rows whose sum is the least of ``sign * sum q (v - level)``, or can be, over joint masses ``q``.

        ``v`` is ``F``, or ``1 - F`` of cells whose rows count by being refused; a constant is to be added to the rows.
        """
        noisy, bins, _ = self.n.shape
        if level is None and eps >= 1 and all(len({*part.refused.tolist()}) == 1 for part in parts):
            row, given = np.zeros((noisy, bins)), 0.0
            for part in parts:
                assert isinstance(part.table, np.ndarray)
                turned = -1.0 if part.refused[0] else 1.0
                step = int(sign * turned)  # the lowest values first, or the highest
                mass = part.mass[:, ::step]
                before = np.cumsum(mass, axis=1) - mass
                taken = np.clip(part.table[group][:, None] - before, 0.0, mass)
                row[:, part.bins[::step]] += turned * taken
                given += sign * float(taken.sum()) * bool(part.refused[0])
            return [(0, sign * row.ravel() @ self.spread)], given
        space, own = space_of(parts, eps, group)
        cells = [
            space.placed(own, numbers)
            for numbers in (
                [p.relevant for p in parts],
                [np.arange(noisy)[:, None] * bins + p.bins for p in parts],
                [p.refused for p in parts],
            )
        ]
        return self._dual(program, space, cells, sign, level)

    def _dual(
        self,
        program: _ThresholdProgram,
        space: UncertaintySet,
        cells: Sequence[Floats],
        sign: float,
        level: int | None,
    ) -> tuple[list[tuple[int, Floats]], float]:
        """Return rows as :meth:`_worst`, by the dual of an uncertainty set.

        ``cells`` say of each of its variables whether the rate is about it, the place of its ``F``, and whether it
        counts by being refused.
        """
        relevant, at, refused = cells
        first = program.add(space.right.size, -np.inf, np.inf)
        second = program.add(space.under.shape[0], 0.0, np.inf)
        which = np.flatnonzero(relevant)
        signs: Any = np.where(refused[which] > 0, sign, -sign)
        shape = at.size, self.spread.shape[0]
        decided: Any = sparse.csr_matrix((signs, (which, at[which].astype(np.int64))), shape=shape)
        blocks = [(first, space.equal.T), (second, -space.under.T), (0, decided @ self.spread)]
        if level is not None:
            blocks.append((level, sign * relevant[:, None]))
        program.at_most(blocks, sign * refused)
        return [(first, space.right)], 0.0

    def _near(
        self, program: _ThresholdProgram, group: int, radius: float, rate: str, sign: float, level: int | None
    ) -> tuple[list[tuple[int, Floats]], float]:
        """Return rows as :meth:`_worst`, of the distributions near a recorded group; other rows count 0.

        What is moved goes to the lowest value of a rule, or the highest: whoever the others are, F increases.
        """
        noisy, bins, _ = self.n.shape
        labels = list(LABELS[rate])
        refused = np.repeat([rate == "accuracy" and not y for y in labels], bins)
        mass, total = self.n[group][:, labels].T.ravel(), self.n[group].sum()  # by label, then bin
        rest = total - mass.sum()
        if total <= 0:  # no centre: any distribution
            radius, rest, total = 1.0, 1.0, 1.0
        own, turned = np.flatnonzero(mass > 0), np.unique(refused)
        ends = np.where((sign > 0) != turned, 0, bins - 1)[:, None] + np.arange(noisy) * bins
        space = near_group(np.append(mass[own], max(rest, 0.0)) / total, radius, ends.size)
        cells = (
            np.concatenate([np.ones(own.size), [0.0], np.ones(ends.size)]),
            np.concatenate([group * bins + own % bins, [0], ends.ravel()]),
            np.concatenate([refused[own], [False], np.repeat(turned, noisy)]),
        )
        return self._dual(program, space, [space.placed(0, [numbers]) for numbers in cells], sign, level)


def groups_of(table: Floats | Range, noisy: int, assumption: Assumption) -> int:
    """Return the number of true groups."""
    if isinstance(assumption, TotalVariation):
        return assumption.homes(noisy).size
    return int(table.shape[1 if isinstance(assumption, KnownMembership) else -2])


def _towards(start: Floats, target: Floats, over: Callable[[Floats], float]) -> Floats:
    """Return the point nearest to the start on the way to a target that satisfies a convex constraint."""
    if over(start) <= 0:
        return start
    share = least_holding(lambda share: over(start + share * (target - start)) <= 0, halvings=HALVINGS)
    return np.asarray(start + share * (target - start))
