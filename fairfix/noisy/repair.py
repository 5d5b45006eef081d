r"""Score thresholds that keep the rates of groups near the overall rate, where groups are seen through noise.

The data are masses ``n_k(b, y)`` by noisy group, bin of the score and label. A row of noisy group ``k`` in bin ``b`` is
accepted with probability ``F_k(b)``, which does not decrease in ``b``: a mixture of thresholds. Expected error and
overall rates are linear in ``F``:

.. math:: \min_F \sum_{k,b} n_k(b, 0) F_k(b) + n_k(b, 1) \{1 - F_k(b)\}

subject to ``|TPR_j - TPR| <= slack`` for every true group (equal opportunity), that and ``|FPR_j - FPR| <= slack``
(equalized odds), or ``|SR_j - SR| <= slack`` (demographic parity). The paper's constraints are one-sided: a group must
not be worse off, with ``TPR_j >= TPR - slack`` and ``FPR_j <= FPR + slack``; they are there under names of their own.
The rates of true groups are known only as far as an assumption says; the constraint holds for all that it allows. Where
several tables may be true, it holds for all that any of them allows.

**Identified.** If noise depends on nothing but the true group, ``M_j(b, y) = sum_k A_jk n_k(b, y)`` with ``A`` the left
inverse of ``T'``, and ``TPR_j = sum_k T_jk sum_b F_k(b) M_j(b, 1) / P_j``. A margin of z standard errors makes ``F``
safe on other rows of the same population: the standard error (table taken as known) is a norm of a linear function of
``F``, with ``f_j(b) = sum_k T_jk F_k(b)``,

.. math:: \mathrm{se}_j^2 = \frac{1}{N P_j^2} \sum_{k,b} A_{jk}^2 n_k(b, 1) \{f_j(b) - \mathrm{TPR}_j\}^2 .

The problem is convex. With ``v`` the terms whose squares are summed, ``se <= t`` is ``v_i^2 <= s_i t, sum s <= t``
(Vielma and others), and tangents ``2 a v_i - a^2 t <= s_i`` at ``a = v_i / |v|`` are added where a solution needs them;
tangents of the norm itself are far slower. Each linear program bounds the least error from below. A constant ``F`` has
standard error 0 and satisfies all constraints, so with ``slack >= 0`` there always is a solution: a violation is
removed by moving towards a constant, or towards the best solution so far. (A margin held fixed at the standard error
of an earlier solution can be infeasible; this one cannot.)

**Certified.** The table by label is all that is known. The worst case of TPR_j is a knapsack in each noisy group: the
adversary fills the bins of the lowest ``F`` first. As ``F_k`` does not decrease, these are the lowest bins whatever
``F`` is, so the worst case is linear, and no dual is needed:

.. math:: \min_q \sum_{k,b} q_{jk}(b) F_k(b) = \sum_{k,b} q^{low}_{jk}(b) F_k(b) .

**Sensitivity.** Also ``|P(noisy = k | true = j, b, y) - T_jk| <= eps``. The least of ``sum q F`` over the polytope is
concave in ``F``; by duality it is at least ``r' u`` for any ``u`` and any ``w >= 0`` with ``E' u - H' w <= F``, where
``E q = r`` and ``H q <= 0`` describe the polytope, and ``u, w`` are variables of the same program. If the polytope is
empty the dual is unbounded and the constraint would vanish in silence; this is refused (:class:`Refuted`).

**Soft.** The table without labels is all that is known. Selection rates are as in the certified case. Denominators of
the other rates are unknown, but ``TPR_j >= t`` for all q is ``min_q sum q(b, 1) {F_k(b) - t} >= 0``, which is linear in
``F`` and ``t`` for each q. By duality again ``F``, ``t``, ``u`` and ``w`` are variables of one linear program, with
``TPR <= t + slack``; no search over ``t`` is needed. The same holds for sensitivity with a table without labels.

References
----------
S. Wang, W. Guo, H. Narasimhan, A. Cotter, M. Gupta and M. I. Jordan, *Robust optimization for fairness with noisy
protected groups* (2020), for the problem; J. P. Vielma, I. Dunning, J. Huchette and M. Lubin, *Extended formulations in
mixed integer conic quadratic programming* (2017), for the tangents. The linear programs are derived above.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import linprog

from fairfix.noisy.bounds import (
    MATCH,
    Breakdown,
    Polytope,
    Refuted,
    is_empty,
    joint_masses,
    left_inverse,
    ratio_end,
    ratio_range,
    smallest_eps,
)
from fairfix.noisy.levels import level_bounds

Floats = npt.NDArray[np.float64]

Parity = Literal[
    "demographic_parity",
    "equal_opportunity",
    "equalized_odds",
    "one_sided_demographic_parity",
    "one_sided_equal_opportunity",
    "one_sided_equalized_odds",
]
RateName = Literal["selection_rate", "true_positive_rate", "false_positive_rate"]

LABELS: dict[RateName, tuple[int, ...]] = {
    "selection_rate": (0, 1),
    "true_positive_rate": (1,),
    "false_positive_rate": (0,),
}

DEMANDS: dict[Parity, tuple[tuple[RateName, float], ...]] = {
    "demographic_parity": (("selection_rate", 1.0), ("selection_rate", -1.0)),
    "equal_opportunity": (("true_positive_rate", 1.0), ("true_positive_rate", -1.0)),
    "equalized_odds": (
        ("true_positive_rate", 1.0),
        ("true_positive_rate", -1.0),
        ("false_positive_rate", 1.0),
        ("false_positive_rate", -1.0),
    ),
    "one_sided_demographic_parity": (("selection_rate", 1.0),),
    "one_sided_equal_opportunity": (("true_positive_rate", 1.0),),
    "one_sided_equalized_odds": (("true_positive_rate", 1.0), ("false_positive_rate", -1.0)),
}
"""Rate and side: 1 for ``rate_j >= rate - slack``, -1 for ``rate_j <= rate + slack``."""


def where_of(demands: Iterable[tuple[str, float]]) -> str:
    """Return in words where a true group must not be, seen from the rate over everybody."""
    held = set(demands)
    return "away from" if all((rate, -sign) in held for rate, sign in held) else "on the wrong side of"


ROUNDS = 40
"""Most rounds of tangents."""

GAP = 1e-4
"""Distance of the error to its bound at which tangents are good enough."""

UNIT = 0.01
"""Of margins inside programs, so that they are not lost in the precision of the solver."""

TOLERANCE = 1e-7
"""Of constraints, as linear programs are solved to no more."""


@dataclass(frozen=True)
class Identified:
    """Noise depends on nothing but the true group.

    Attributes
    ----------
    z
        Margin in standard errors.
    rows
        Number of rows behind the masses; only for the standard errors.
    """

    z: float = 0.0
    rows: float = np.inf


@dataclass(frozen=True)
class Certified:
    """Any noise that fits the table by label."""


@dataclass(frozen=True)
class Sensitive:
    """Noise depends on bin and label by at most eps; on the bin, if the table is by label."""

    eps: float


@dataclass(frozen=True)
class Soft:
    """Any noise that fits the table without labels."""


Assumption = Identified | Certified | Sensitive | Soft


@dataclass(frozen=True, eq=False)
class NoisyRepair:
    """Mixtures of thresholds.

    Attributes
    ----------
    F
        Probability to accept by noisy group and bin, shape (K, B), nondecreasing in the bin.
    error
        Expected error on the data.
    excess
        What the worst rate of each true group that the assumption allows, margin included, misses its limit by; shape
        (demands, J), demands in the order of :data:`DEMANDS`. At most 0 where the constraint holds; NaN for a rate
        without a denominator.
    feasible
        Whether the constraint can be satisfied; if not, ``F`` has the least greatest excess.
    bound
        No ``F`` whose constraint holds has less error, but for rounding; NaN if there is none.
    programs
        Linear programs that were solved.
    """

    F: Floats
    error: float
    excess: Floats
    feasible: bool
    bound: float
    programs: int

    @property
    def converged(self) -> bool:
        """Whether the error is as near to its bound as tangents can bring it; not where there is no bound."""
        return self.feasible and self.error - self.bound <= GAP

    @property
    def violation(self) -> float:
        """The greatest excess."""
        return float(np.nanmax(self.excess, initial=-np.inf))


def solve_noisy(
    n: npt.ArrayLike,
    table: npt.ArrayLike,
    parity: Parity,
    slack: float,
    assumption: Assumption,
    *,
    blind: bool = False,
    others: Sequence[npt.ArrayLike] = (),
) -> NoisyRepair:
    """Return the thresholds of least error whose constraint holds under the assumption.

    Parameters
    ----------
    n
        Masses by noisy group, bin in increasing order of the score and label, shape (K, B, 2), of total 1. The score
        must not use the noisy group.
    table
        Joint masses of true and noisy groups with the columns of ``n``: by label, shape (2, J, K), or without, shape
        (J, K). :class:`Certified` needs labels, :class:`Soft` takes none.
    parity
        Which rates are held together.
    slack
        Allowed difference to the overall rate. Less than 0 asks for more than equality, and may be infeasible.
    assumption
        What is known of the noise.
    blind
        Whether all noisy groups have the same thresholds.
    others
        More tables like ``table`` that may be the true one; the constraint holds for each. For :class:`Certified` and
        :class:`Soft`, which take any noise that fits a table.

    Raises
    ------
    Refuted
        If no noise satisfies the assumption; with a table by label, among the labels that the constraint looks at.
    ValueError
        If shapes or columns do not fit, the table does not go with the assumption, a label is missing that the
        constraint needs, or true groups are not identified but should be.
    """
    problem = _Problem.of(n, table, parity, slack, assumption, blind, others)
    if isinstance(assumption, Identified):
        return problem.identified(assumption)
    return problem.worst_case()


def rate_bounds(
    n: npt.ArrayLike, table: npt.ArrayLike, F: npt.ArrayLike, rate: RateName, assumption: Assumption
) -> tuple[Floats, Floats]:
    """Return the range of each true group's rate that the assumption allows, for decisions ``F``.

    Parameters
    ----------
    n, table, assumption
        As in :func:`solve_noisy`. With :class:`Identified`, rates less and plus z standard errors; of the table only
        ``P(noisy | true)`` is looked at then, so its columns may have any masses.
    F
        Shape (K, B); need not be nondecreasing.
    rate
        The rate.

    Returns
    -------
    Lowest and highest, shape (J,) each; NaN without a denominator.

    Raises
    ------
    Refuted
        If no noise satisfies the assumption.
    """
    mass, joint = _checked(n, table, assumption)
    accept = np.asarray(F, dtype=np.float64)
    if isinstance(assumption, Identified):
        inverse = _Inverse.of(mass, joint, LABELS[rate], assumption)
        mean = inverse.coefficients.reshape(-1, accept.size) @ accept.ravel()
        margin = assumption.z * inverse.errors(accept) if assumption.z else np.zeros(mean.size)
        return mean - margin, mean + margin
    eps = _eps(assumption)
    if eps >= 1:
        return level_bounds(mass, joint, accept, rate)
    parts = _parts(mass, joint, LABELS[rate], eps)
    ends = np.full((2, joint.shape[-2]), np.nan)
    for j in range(joint.shape[-2]):
        space, top, bottom = _fraction(parts, eps, j, accept)
        found = ratio_range(space, top, bottom)
        if found is not None:
            ends[:, j] = found
        elif is_empty(space):  # no rate is not the same as no noise that fits
            raise Refuted(eps, smallest_eps([(p.mass, p.table) for p in parts]))
    return ends[0], ends[1]


def breakdown_of(
    n: npt.ArrayLike,
    table: npt.ArrayLike,
    F: npt.ArrayLike,
    parity: Parity,
    slack: float,
    *,
    precision: float = 1e-3,
    tolerance: float = 1e-6,
) -> Breakdown:
    """Return how much noise may depend on outcomes before decisions ``F`` can break a constraint.

    Parameters
    ----------
    n, table
        As in :func:`solve_noisy`.
    F
        Shape (K, B).
    parity, slack
        The constraint.
    precision
        Of the bisection.
    tolerance
        What the slack may be missed by, for rounding.

    Returns
    -------
    ``eps`` in [0, 1], from below; 1 if the constraint holds whatever the noise, NaN if it does not even at the least
    eps that the data allow. A group is looked at only if some noise breaks its limit, and searched only if its limit
    breaks below what is known.
    """
    plain = Sensitive(1.0)
    mass, joint = _checked(n, table, plain)
    accept = np.asarray(F, dtype=np.float64)
    start = smallest_eps(_looked_at(mass, joint, parity))
    start += precision / 10 if start > 0 else 0.0  # some room for the solver
    suspects = []
    for rate, sign in DEMANDS[parity]:
        own = mass[:, :, list(LABELS[rate])].sum(2)
        limit = float((own * accept).sum() / own.sum()) - sign * slack
        worst = rate_bounds(mass, joint, accept, rate, plain)[0 if sign > 0 else 1]
        over = np.nan_to_num(sign * (limit - worst), nan=-np.inf)
        suspects += [(float(over[j]), rate, sign, limit, int(j)) for j in np.flatnonzero(over > tolerance)]

    def holds(eps: float, rate: RateName, sign: float, limit: float, group: int) -> bool:
        parts = _parts(mass, joint, LABELS[rate], min(eps, 1.0 - tolerance))
        space, top, bottom = _fraction(parts, min(eps, 1.0 - tolerance), group, accept)
        try:
            end = ratio_end(space, top, bottom, sign)
            if end is None:  # no rate, or by rounding nothing at all
                return not is_empty(space)
        except ArithmeticError:
            return False
        return sign * (limit - end) <= tolerance

    best = 1.0
    for _, rate, sign, limit, group in sorted(suspects, reverse=True):
        if best < 1 and holds(best, rate, sign, limit, group):
            continue
        if not holds(start, rate, sign, limit, group):
            return Breakdown(np.nan, start)
        low, high = start, best
        while high - low > precision:
            middle = (low + high) / 2
            low, high = (middle, high) if holds(middle, rate, sign, limit, group) else (low, middle)
        best = low
    return Breakdown(best, start)


def _checked(n: npt.ArrayLike, table: npt.ArrayLike, assumption: Assumption) -> tuple[Floats, Floats]:
    """Return masses and table as arrays; refuse what does not fit."""
    mass, joint = np.asarray(n, dtype=np.float64), np.asarray(table, dtype=np.float64)
    if mass.ndim != 3 or mass.shape[2] != 2 or not mass.min(initial=0.0) >= 0:
        raise ValueError("masses must have shape (K, B, 2) and be 0 or more")
    labelled = joint.ndim == 3
    if joint.ndim not in (2, 3) or joint.shape[-1] != len(mass) or (labelled and len(joint) != 2):
        raise ValueError(
            f"the table must have shape (J, K) or (2, J, K), got {joint.shape} for K = {len(mass)}"
        )
    if not joint.min(initial=0.0) >= 0:
        raise ValueError("the table must be 0 or more")
    if isinstance(assumption, Certified) and not labelled:
        raise ValueError("the certified repair needs the table by label")
    if isinstance(assumption, Soft) and labelled:
        raise ValueError("there is a table by label: the certified repair says more")
    own = mass.sum(1).T if labelled else mass.sum((1, 2))
    if isinstance(assumption, Identified):
        return mass, joint
    if np.abs(joint.sum(-2) - own).max() > MATCH:
        raise ValueError("columns of the table must have the masses of the noisy groups: transport it first")
    return mass, joint


def _eps(assumption: Assumption) -> float:
    """Return how much noise may depend on outcomes; 1 says nothing."""
    return assumption.eps if isinstance(assumption, Sensitive) else 1.0


# ---------------------------------------------------------------------- worst cases


@dataclass(frozen=True, eq=False)
class _Part:
    """Cells with a table of their own: masses (K, c), table (J, K), bins (c,), whether they count (c,)."""

    mass: Floats
    table: Floats
    bins: npt.NDArray[np.int64]
    relevant: npt.NDArray[np.bool_]


def _parts(n: Floats, table: Floats, labels: Sequence[int], eps: float) -> list[_Part]:
    """Return the cells that matter for a rate over some labels."""
    bins = np.arange(n.shape[1])
    if table.ndim == 3:
        return [_Part(n[:, :, y], table[y], bins, np.ones(bins.size, dtype=bool)) for y in labels]
    if len(labels) == 2 and eps >= 1:
        return [_Part(n.sum(2), table, bins, np.ones(bins.size, dtype=bool))]
    asked, other = n[:, :, labels[0]], n[:, :, 1 - labels[0]]
    if eps >= 1:  # cells that do not count are alike
        mass = np.concatenate([asked, other.sum(1, keepdims=True)], axis=1)
        return [_Part(mass, table, np.append(bins, 0), np.append(np.ones(bins.size, dtype=bool), False))]
    counts = np.repeat([True, len(labels) == 2], bins.size)
    return [_Part(np.concatenate([asked, other], axis=1), table, np.tile(bins, 2), counts)]


def _space(parts: Sequence[_Part], eps: float, group: int) -> tuple[Polytope, int]:
    """Return the polytope of a group's worst case and the group's number in it.

    Where eps says nothing, what a group leaves can be shared among the others: they are one.
    """
    if eps < 1:
        return joint_masses([(p.mass, p.table) for p in parts], eps), group
    two = [np.stack([p.table[group], np.maximum(p.mass.sum(1) - p.table[group], 0.0)]) for p in parts]
    return joint_masses([(p.mass, t) for p, t in zip(parts, two, strict=True)], eps), 0


def _fraction(
    parts: Sequence[_Part], eps: float, group: int, accept: Floats
) -> tuple[Polytope, Floats, Floats]:
    """Return the polytope of a group's rate, its numerator and its denominator."""
    space, own = _space(parts, eps, group)
    top = [
        _of_group(s, own, accept[:, p.bins] * p.relevant) for s, p in zip(space.shapes, parts, strict=True)
    ]
    bottom = [_of_group(s, own, p.relevant * 1.0) for s, p in zip(space.shapes, parts, strict=True)]
    return space, space.place(top), space.place(bottom)


def _of_group(shape: tuple[int, int, int], group: int, values: npt.ArrayLike) -> Floats:
    """Return an array of the shape (J, K, c) that has values at one group only."""
    out = np.zeros(shape)
    out[group] = values
    return out


def _fill(mass: Floats, amounts: Floats) -> Floats:
    """Return what each amount (J,) takes from bins (c,) in their order, shape (J, c)."""
    before = np.cumsum(mass) - mass
    return np.clip(amounts[:, None] - before, 0.0, mass)


@dataclass(frozen=True, eq=False)
class _Inverse:
    """Rates of true groups, linear in F, and their standard errors.

    Attributes
    ----------
    coefficients
        Shape (J, K, B).
    noise
        ``T`` of each label, shape (labels, J, K).
    variance
        Weight of the square of ``f_j(b) - rate_j``, shape (labels, J, B).
    """

    coefficients: Floats
    noise: Floats
    variance: Floats

    @classmethod
    def of(cls, n: Floats, table: Floats, labels: Sequence[int], assumption: Identified) -> _Inverse:
        """Invert the noise of each label."""
        pairs = [left_inverse(table[y] if table.ndim == 3 else table) for y in labels]
        noise, weights = np.stack([p[0] for p in pairs]), np.stack([p[1] for p in pairs])
        own = np.moveaxis(n[:, :, list(labels)], 2, 0)  # label, k, b
        masses = weights @ own
        total = masses.sum((0, 2))
        if not total.min() > 0:
            raise ValueError("a true group has no mass with the labels of the rate: it has no rate")
        rates = np.einsum("yjk,yjb->jkb", noise, masses) / total[:, None, None]
        variance = (weights**2 @ own) / (total**2)[:, None] / assumption.rows
        return cls(rates, noise, variance)

    def terms(self, accept: Floats) -> Floats:
        """Return the terms whose squares sum to those of the standard errors, shape (labels, J, B)."""
        mean = np.einsum("jkb,kb->j", self.coefficients, accept)
        return np.asarray(np.sqrt(self.variance) * (self.noise @ accept - mean[:, None]))

    def errors(self, accept: Floats) -> Floats:
        """Return standard errors, shape (J,)."""
        return np.asarray(np.sqrt((self.terms(accept) ** 2).sum((0, 2))))


# ---------------------------------------------------------------------- linear programs


class _Program:
    """A linear program that is put together block by block; rows say at most."""

    def __init__(self) -> None:
        self.low: list[Floats] = []
        self.high: list[Floats] = []
        self.columns = 0
        self.rows = 0
        self.limits: list[Floats] = []
        self.blocks: list[tuple[int, int, Any]] = []

    def add(self, count: int, low: float, high: float) -> int:
        """Return the first of new variables."""
        self.low.append(np.full(count, low))
        self.high.append(np.full(count, high))
        self.columns += count
        return self.columns - count

    def at_most(self, blocks: Sequence[tuple[int, Any]], limit: npt.ArrayLike) -> None:
        """Add rows: the sum of matrices, each at its first variable, is at most the limit."""
        limits = np.atleast_1d(np.asarray(limit, dtype=np.float64))
        self.blocks += [
            (self.rows, start, sparse.coo_matrix(np.atleast_2d(b) if isinstance(b, np.ndarray) else b))
            for start, b in blocks
        ]
        self.limits.append(limits)
        self.rows += limits.size

    def solve(self, cost: Floats, relaxed: int, relax: bool) -> Any:
        """Return the solution; the variable ``relaxed`` is held at 0, or is itself the cost."""
        data = np.concatenate([b.data for _, _, b in self.blocks])
        row = np.concatenate([b.row + r for r, _, b in self.blocks])
        column = np.concatenate([b.col + c for _, c, b in self.blocks])
        matrix = sparse.csr_matrix((data, (row, column)), shape=(self.rows, self.columns))
        bounds = np.column_stack([np.concatenate(self.low), np.concatenate(self.high)])
        goal = np.zeros(self.columns)
        if relax:
            goal[relaxed], bounds[relaxed, 1] = 1.0, np.inf
        else:
            goal[: cost.size], bounds[relaxed, 1] = cost, 0.0
        solve: Any = linprog  # its stubs know no sparse matrix
        return solve(goal, A_ub=matrix, b_ub=np.concatenate(self.limits), bounds=bounds, method="highs")


class _Cones:
    """The margins of a rate, ``z`` standard errors in :data:`UNIT`, as variables of a program, and tangents to them."""

    def __init__(self, program: _Program, inverse: _Inverse, z: float, spread: Any) -> None:
        self.inverse, self.scale, self.spread = inverse, z / UNIT, spread
        labels, groups, bins = inverse.variance.shape
        self.shape = (labels, groups, bins)
        self.mean = program.add(groups, -np.inf, np.inf)
        self.margin = program.add(groups, 0.0, np.inf)
        self.squares = program.add(labels * groups * bins, 0.0, np.inf)
        rates = sparse.csr_matrix(inverse.coefficients.reshape(groups, -1)) @ spread
        for sign in (1.0, -1.0):
            program.at_most([(0, sign * rates), (self.mean, -sign * np.eye(groups))], np.zeros(groups))
        sums = sparse.kron(sparse.kron(np.ones((1, labels)), sparse.identity(groups)), np.ones((1, bins)))
        program.at_most([(self.squares, sums), (self.margin, -np.eye(groups))], np.zeros(groups))

    def touch(self, program: _Program, accept: Floats) -> None:
        """Add the tangents at a solution; those of groups without an error say nothing and are left out."""
        terms = self.scale * self.inverse.terms(accept)
        size = np.sqrt((terms**2).sum((0, 2), keepdims=True))
        label, group, bin_ = np.nonzero((size > 0) & (self.inverse.variance > 0))
        at = (terms / np.where(size > 0, size, 1.0))[label, group, bin_]
        weight = 2 * at * self.scale * np.sqrt(self.inverse.variance[label, group, bin_])
        rows, (_, groups, bins) = np.arange(at.size), self.shape
        noise = self.inverse.noise[label, group]  # row, k
        noisy = noise.shape[1]
        columns = np.arange(noisy) * bins + bin_[:, None]
        values = sparse.csr_matrix(
            ((weight[:, None] * noise).ravel(), (np.repeat(rows, noisy), columns.ravel())),
            shape=(at.size, noisy * bins),
        )
        flat = np.ravel_multi_index((label, group, bin_), self.shape)
        blocks = [
            (0, values @ self.spread),
            (self.mean, sparse.csr_matrix((-weight, (rows, group)), shape=(at.size, groups))),
            (self.margin, sparse.csr_matrix((-(at**2), (rows, group)), shape=(at.size, groups))),
            (
                self.squares,
                sparse.csr_matrix(
                    (-np.ones(at.size), (rows, flat)), shape=(at.size, int(np.prod(self.shape)))
                ),
            ),
        ]
        program.at_most(blocks, np.zeros(at.size))


@dataclass(frozen=True, eq=False)
class _Problem:
    """A repair; ``spread`` takes the free variables to F."""

    n: Floats
    table: Floats
    demands: tuple[tuple[RateName, float], ...]
    slack: float
    assumption: Assumption
    spread: Any
    free: bool
    """Whether denominators of single labels are unknown."""
    others: tuple[Floats, ...] = ()

    @classmethod
    def of(
        cls,
        n: npt.ArrayLike,
        table: npt.ArrayLike,
        parity: Parity,
        slack: float,
        assumption: Assumption,
        blind: bool,
        others: Sequence[npt.ArrayLike] = (),
    ) -> _Problem:
        """Check and prepare."""
        if parity not in DEMANDS:
            raise ValueError(f"parity must be one of {', '.join(DEMANDS)}, got {parity!r}")
        if not np.isfinite(slack):
            raise ValueError(f"slack must be a number, got {slack!r}")
        if isinstance(assumption, Identified) and not (assumption.z >= 0 and assumption.rows > 0):
            raise ValueError("z must be 0 or more, and rows positive")
        if isinstance(assumption, Sensitive) and not assumption.eps >= 0:
            raise ValueError(f"eps must be 0 or more, got {assumption.eps!r}")
        mass, joint = _checked(n, table, assumption)
        more = tuple(_checked(n, other, assumption)[1] for other in others)
        if more and not isinstance(assumption, Certified | Soft):
            raise ValueError(
                "several tables are for the worst noise that fits any of them: certified or soft"
            )
        demands = DEMANDS[parity]
        if any(mass[:, :, list(LABELS[rate])].sum() <= 0 for rate, _ in demands):
            raise ValueError("the data have no row of a label that the constraint needs")
        if isinstance(assumption, Sensitive) and assumption.eps < 1:
            _refuse_refuted(mass, joint, parity, assumption.eps)
        noisy, bins, _ = mass.shape
        eye = sparse.identity(bins, format="csr")
        spread = (
            sparse.kron(np.ones((noisy, 1)), eye, format="csr") if blind else sparse.identity(noisy * bins)
        )
        unknown = joint.ndim == 2 and not isinstance(assumption, Identified)
        return cls(mass, joint, demands, slack, assumption, sparse.csr_matrix(spread), unknown, more)

    @property
    def groups(self) -> int:
        """Number of true groups."""
        return int(self.table.shape[-2])

    def overall(self, rate: RateName) -> Floats:
        """Return the overall rate as coefficients of F, shape (K * B,)."""
        own = self.n[:, :, list(LABELS[rate])].sum(2)
        return np.asarray(own.ravel() / own.sum())

    def error(self, accept: Floats) -> float:
        """Return the expected error."""
        return float((self.n[:, :, 0] * accept + self.n[:, :, 1] * (1 - accept)).sum())

    def excess(self, accept: Floats) -> Floats:
        """Return what the worst rates miss their limits by, shape (demands, J)."""
        rows = []
        for rate, sign in self.demands:
            found = [
                rate_bounds(self.n, table, accept, rate, self.assumption)
                for table in (self.table, *self.others)
            ]
            worst = np.fmin.reduce([sign * (lo if sign > 0 else hi) for lo, hi in found])
            rows.append(sign * float(self.overall(rate) @ accept.ravel()) - worst - self.slack)
        return np.array(rows)

    def finish(self, accept: Floats, feasible: bool, bound: float, programs: int) -> NoisyRepair:
        """Return the solution with its worst cases."""
        excess = self.excess(accept)
        return NoisyRepair(
            accept, self.error(accept), excess, feasible, bound if feasible else np.nan, programs
        )

    def start(self) -> tuple[_Program, int]:
        """Return a program with F, nondecreasing, as its first variables, and the number of the violation."""
        program, (bins, size) = _Program(), (self.n.shape[1], self.spread.shape[1])
        program.add(size, 0.0, 1.0)
        relaxed = program.add(1, 0.0, np.inf)
        if bins > 1:
            eye = sparse.identity(bins, format="csr")
            step = eye[:-1] - eye[1:]
            rising = sparse.kron(sparse.identity(size // bins), step)
            program.at_most([(0, rising)], np.zeros(rising.shape[0]))
        return program, relaxed

    def run(self, program: _Program, relaxed: int) -> tuple[Floats, bool, float]:
        """Return F, whether the constraint could be satisfied, and the least error or, if not, the least violation."""
        cost = self.spread.T @ (self.n[:, :, 0] - self.n[:, :, 1]).ravel()
        found = program.solve(cost, relaxed, relax=False)
        feasible = found.status == 0
        if not feasible:
            found = program.solve(cost, relaxed, relax=True)
        assert found.x is not None  # a violation variable makes every constraint feasible
        values = np.clip(self.spread @ found.x[: self.spread.shape[1]], 0.0, 1.0).reshape(self.n.shape[:2])
        value = float(found.fun) + (float(self.n[:, :, 1].sum()) if feasible else 0.0)
        return np.maximum.accumulate(values, axis=1), feasible, value

    # ------------------------------------------------------------------ known noise

    def identified(self, assumption: Identified) -> NoisyRepair:
        """Return the best thresholds, by tangents of the standard errors."""
        rates = list(dict.fromkeys(rate for rate, _ in self.demands))
        inverses = {rate: _Inverse.of(self.n, self.table, LABELS[rate], assumption) for rate in rates}
        program, relaxed = self.start()
        minus = -np.ones((self.groups, 1))
        cones: dict[RateName, _Cones] = {}
        if assumption.z and np.isfinite(assumption.rows):
            cones = {rate: _Cones(program, inverses[rate], assumption.z, self.spread) for rate in rates}
        plain = []
        for rate, sign in self.demands:
            rows = sign * (self.overall(rate) - inverses[rate].coefficients.reshape(self.groups, -1))
            plain.append(rows)
            blocks: list[tuple[int, Any]] = [(0, rows @ self.spread), (relaxed, minus)]
            if cones:
                blocks.append((cones[rate].margin, UNIT * np.eye(self.groups)))
            program.at_most(blocks, np.full(self.groups, self.slack))

        def excess(accept: Floats) -> Floats:
            margin = [assumption.z * inverses[r].errors(accept) if cones else 0.0 for r, _ in self.demands]
            rows = [r @ accept.ravel() + m - self.slack for r, m in zip(plain, margin, strict=True)]
            return np.array(rows)

        constants = [np.full(self.n.shape[:2], c) for c in (0.0, 1.0)]
        best: Floats | None = min(constants, key=self.error) if self.slack >= 0 else None
        done, bound = 0, np.nan
        while done < ROUNDS:
            accept, feasible, value = self.run(program, relaxed)
            done += 1
            over = excess(accept)
            if not feasible:
                best, limit = accept, value
            else:
                bound, limit = value, 0.0
                if best is not None:
                    ends = [
                        _towards(accept, end, lambda f: float(excess(f).max())) for end in (*constants, best)
                    ]
                    best = min([best, *ends], key=self.error)
                if over.max() <= TOLERANCE or (best is not None and self.error(best) <= bound + GAP):
                    best = accept if best is None else best
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
        eps = _eps(self.assumption)
        for rate, sign in self.demands:
            overall = sign * self.overall(rate) @ self.spread
            level = program.add(1, 0.0, 1.0) if self.free and len(LABELS[rate]) == 1 else None
            if level is not None:
                program.at_most([(0, overall), (level, sign * minus), (relaxed, minus)], self.slack)
            for table in (self.table, *self.others):
                parts = _parts(self.n, table, LABELS[rate], eps)
                total = np.sum([p.table.sum(1) for p in parts], axis=0)
                for j in np.flatnonzero(total > 0):
                    worst = self._worst(program, parts, int(j), sign, eps, level)
                    blocks = [(start, -row / total[j]) for start, row in worst]
                    if level is None:
                        program.at_most([*blocks, (0, overall), (relaxed, minus)], self.slack)
                    else:
                        program.at_most(blocks, 0.0)
        return self.finish(*self.run(program, relaxed), 1)

    def _worst(
        self,
        program: _Program,
        parts: Sequence[_Part],
        group: int,
        sign: float,
        eps: float,
        level: int | None,
    ) -> list[tuple[int, Floats]]:
        """Return rows whose sum is the least of ``sign * sum q (F - level)``, or can be, over joint masses ``q``."""
        noisy, bins, _ = self.n.shape
        if level is None and eps >= 1:
            row = np.zeros((noisy, bins))
            for part in parts:
                for k, mass in enumerate(part.mass):
                    step = int(sign)  # the lowest bins first, or the highest
                    row[k, part.bins[::step]] += _fill(mass[::step], part.table[[group], k])[0]
            return [(0, sign * row.ravel() @ self.spread)]
        space, own = _space(parts, eps, group)
        first = program.add(space.right.size, -np.inf, np.inf)
        second = program.add(space.under.shape[0], 0.0, np.inf)
        relevant = space.place(
            [_of_group(s, own, p.relevant * 1.0) for s, p in zip(space.shapes, parts, strict=True)]
        )
        at = space.place(
            [
                _of_group(s, own, np.arange(noisy)[:, None] * bins + p.bins)
                for s, p in zip(space.shapes, parts, strict=True)
            ]
        )
        which = np.flatnonzero(relevant)
        cells = sparse.csr_matrix(
            (np.full(which.size, -sign), (which, at[which].astype(np.int64))), shape=(at.size, noisy * bins)
        )
        blocks = [(first, space.equal.T), (second, -space.under.T), (0, cells @ self.spread)]
        if level is not None:
            blocks.append((level, sign * relevant[:, None]))
        program.at_most(blocks, np.zeros(at.size))
        return [(first, space.right)]


def _towards(start: Floats, target: Floats, over: Callable[[Floats], float]) -> Floats:
    """Return the point nearest to the start on the way to a target that satisfies a convex constraint."""
    if over(start) <= 0:
        return start
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if over(start + middle * (target - start)) <= 0 else (middle, high)
    return np.asarray(start + high * (target - start))


def _looked_at(n: Floats, table: Floats, parity: Parity) -> list[tuple[Floats, Floats]]:
    """Return masses and tables of the labels that a constraint looks at: by label they are problems of their own."""
    labels = sorted({label for rate, _ in DEMANDS[parity] for label in LABELS[rate]})
    return [(p.mass, p.table) for p in _parts(n, table, labels, 0.0)]


def _refuse_refuted(n: Floats, table: Floats, parity: Parity, eps: float) -> None:
    """Raise if no noise within eps fits the data that the constraint looks at."""
    parts = _looked_at(n, table, parity)
    if any(is_empty(joint_masses([part], eps)) for part in parts):
        raise Refuted(eps, smallest_eps(parts))
