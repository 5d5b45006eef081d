r"""Joint masses of true group, recorded group and cell: the linear rows of each assumption, and ratios over them.

Assumptions are rows on the masses ``q_jk(c) >= 0``, whose sums over true groups are the masses of the data:

* a known table (N1), or one by label, whose labels are parts with a table each (N2): ``sum_c q_jk(c) = C_jk``; with
  probabilities of membership, rows of like probabilities are the recorded groups
* a table between limits, which is a variable then: ``low_jk W <= C_jk <= high_jk W`` with ``W`` the mass of its row or
  of its column (:class:`Range`)
* noise that depends on the cell by at most eps (N3; with eps = 0 class-conditional, N4). With ``T_jk`` the noise of the
  table, and ``Q_j(c) = sum_k q_jk(c)``, which are variables too,

  .. math:: (T_{jk} - \varepsilon) Q_j(c) \le q_{jk}(c) \le (T_{jk} + \varepsilon) Q_j(c)

* a total variation of at most a radius (N0): :func:`near_group`

A limit of 0 or less, or of 1 or more, says nothing and has no row. Ratios are made linear by scaling (A. Charnes and W.
Cooper, *Programming with linear fractional functionals*, 1962).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from fairfix.data.choices import Keep
from fairfix.noise.label_shift import noise_of
from fairfix.noise.rates import Floats
from fairfix.solvers.newton import least_holding

Ints = npt.NDArray[np.int64]

PRECISION = 1e-6
"""Precision of the bisection over eps."""

OF_RECORDING = (
    "eps is about P(noisy | true), and the survey is used for P(true | noisy): leave out keep of the file"
)

IMPOSSIBLE = (
    "no P({}) that is consistent with the survey gives the recorded groups of these rows. State with "
    "`noise=FILE(keep=...)` what holds for them, or use a larger `survey_confidence`"
)

WIDE = 400
"""Variables of a call, as long as one program has fewer: for small ones the call costs more than the solution."""


class Refuted(ValueError):  # noqa: N818 - the data say so; nothing went wrong
    """No joint distribution satisfies the assumption; ``smallest_eps`` is the least eps that the data allow."""

    def __init__(self, eps: float, smallest_eps: float) -> None:
        super().__init__(
            f"the data refute that noise depends on outcomes by at most {eps:g}: "
            f"the smallest eps they allow is {smallest_eps:.6f}"
        )
        self.smallest_eps = smallest_eps


@dataclass(frozen=True, eq=False)
class UncertaintySet:
    """All vectors ``x >= 0`` with ``equal @ x = right`` and ``under @ x <= 0``; matrices are sparse."""

    equal: Any
    right: Floats
    under: Any
    masses: tuple[Ints, ...]
    """Places of ``q`` in ``x``, shape (J, K, cells) for each part of the data."""
    cells: tuple[Ints, ...] = ()
    """Rows of ``equal`` with the masses of the cells, shape (K, cells) for each part."""
    tables: tuple[Ints, ...] = ()
    """Rows of ``equal`` with the entries of tables, shape (J, K) for each part with a known table."""
    limits: tuple[Ints, ...] = ()
    """Rows of ``under`` with the upper and the lower limit of noise, shape (2, J, K, cells), for each part with a
    table if eps is below 1; -1 where there is none."""

    @cached_property
    def scaled(self) -> tuple[Any, Any]:
        """``equal`` and ``under`` for ``x`` up to its scale, which is the last variable."""
        none = sparse.csr_matrix((self.under.shape[0], 1))
        return (
            sparse.hstack([self.equal, sparse.csr_matrix(-self.right[:, None])], format="csr"),
            sparse.hstack([self.under, none], format="csr"),
        )

    def placed(self, group: int, numbers: Sequence[npt.ArrayLike]) -> Floats:
        """Return a vector over ``x`` that has the numbers of each part at one group, and 0 elsewhere."""
        out = np.zeros(self.equal.shape[1])
        for at, own in zip(self.masses, numbers, strict=True):
            out[at[group]] = own
        return out


class SparseMatrix:
    """A sparse matrix that is put together number by number."""

    def __init__(self) -> None:
        self.height = 0
        self.numbers: list[tuple[Ints, Ints, Floats]] = []

    def new(self, shape: tuple[int, ...]) -> Ints:
        """Return the numbers of new rows."""
        first, self.height = self.height, self.height + int(np.prod(shape))
        return np.arange(first, self.height).reshape(shape)

    def put(self, row: Ints, column: Ints, number: npt.ArrayLike) -> None:
        """Put numbers at rows and columns."""
        at, to, what = np.broadcast_arrays(row, column, np.asarray(number, dtype=np.float64))
        self.numbers.append((at.ravel(), to.ravel(), what.ravel()))

    def of_width(self, width: int) -> Any:
        """Return the matrix."""
        if not self.height:
            return sparse.csr_matrix((0, width))
        row, column, number = (np.concatenate(part) for part in zip(*self.numbers, strict=True))
        return sparse.csr_matrix((number, (row, column)), shape=(self.height, width))


class _Rows:
    """The rows of an uncertainty set while it is put together."""

    def __init__(self) -> None:
        self.equal, self.under, self.variables = SparseMatrix(), SparseMatrix(), SparseMatrix()
        self.right: list[Floats] = []

    def new(self, *shape: int) -> Ints:
        """Return the places of new variables."""
        return self.variables.new(shape)

    def sums(self, x: Ints, axis: int, right: Floats) -> Ints:
        """Add rows: the sums of variables over an axis are numbers, of whose shape the rows are."""
        rows = self.equal.new(right.shape)
        self.equal.put(np.expand_dims(rows, axis), x, 1.0)
        self.right.append(right.ravel())
        return rows

    def limit(self, x: Ints, whole: Ints, low: Floats, high: Floats) -> Ints:
        """Add rows: ``low W <= x <= high W``, ``W`` the sum of the variables on the last axis of ``whole``.

        Return the rows of the upper and of the lower limit, shape (2, *x.shape); -1 where a limit says nothing.
        """
        out = np.full((2, *x.shape), -1)
        whole = np.broadcast_to(whole, (*x.shape, whole.shape[-1]))
        for side, (sign, of_all) in enumerate(((1.0, high), (-1.0, low))):
            end = np.broadcast_to(of_all, x.shape)
            at = np.nonzero(end < 1.0 if sign > 0 else end > 0.0)
            rows = out[side][at] = self.under.new(at[0].shape)
            self.under.put(rows, x[at], sign)
            self.under.put(rows[:, None], whole[at], -sign * end[at][:, None])
        return out

    def done(self, masses: Sequence[Ints], **rows: tuple[Ints, ...]) -> UncertaintySet:
        """Return the set."""
        width = self.variables.height
        equal, under = self.equal.of_width(width), self.under.of_width(width)
        return UncertaintySet(equal, np.concatenate(self.right), under, tuple(masses), **rows)


@dataclass(frozen=True, eq=False)
class Range:
    """All tables whose ``P(true | noisy)`` or ``P(noisy | true)`` lies between two, as a survey leaves it open."""

    low: Floats
    """Shape (J, K), or by label (2, J, K)."""
    high: Floats
    keep: Keep
    """Conditional distribution that the ends are of."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a table."""
        return self.low.shape

    @property
    def ndim(self) -> int:
        """2, or 3 by label."""
        return self.low.ndim

    def __getitem__(self, label: int) -> Range:
        return Range(self.low[label], self.high[label], self.keep)


def joint_masses(
    parts: Sequence[tuple[Floats, Floats | Range]],
    eps: float,
    group: int | None = None,
    *,
    at_least: bool = False,
) -> UncertaintySet:
    """Return the joint masses that fit one or more parts of the data, each with a table or a range of its own.

    Parameters
    ----------
    parts
        Pairs of masses by noisy group and cell, shape (K, cells), and table, shape (J, K), with equal columns.
    eps
        Largest difference of ``P(noisy = k | true = j, cell)`` to ``T_jk`` in each part; 1 or more says nothing. In
        a range each cell may have another ``T``, so no less is allowed than by one for all.
    group
        The true group whose masses matter, which are first then; the others are one, since where eps says nothing they
        can share what it leaves. None: all groups.
    at_least
        Whether the masses of cells are the least that there are; the columns of tables have more then.
    """
    rows = _Rows()
    masses, cells, tables, limits = [], [], [], []
    for mass, given in parts:
        groups = given.shape[0] if group is None else 2
        q = rows.new(groups, *mass.shape)
        masses.append(q)
        cells.append(rows.sums(q, 0, mass))
        if at_least:
            rows.equal.put(cells[-1], rows.new(*mass.shape), -1.0)
        if isinstance(given, Range):
            _table_between(rows, q, mass, given, group)
            low, high = given.low, given.high
            if eps < 1 and given.keep == "true-given-noisy":
                raise ValueError(OF_RECORDING)
        else:
            table = given
            if group is not None:
                table = np.stack([given[group], np.maximum(mass.sum(1) - given[group], 0.0)])
            tables.append(rows.sums(q, 2, table))
            low = high = noise_of(table, 1.0 / table.shape[-1])
        if eps < 1:
            limits.append(_bounded_dependence(rows, q, low - eps, high + eps))
    return rows.done(masses, cells=tuple(cells), tables=tuple(tables), limits=tuple(limits))


def _bounded_dependence(rows: _Rows, q: Ints, low: Floats, high: Floats) -> Ints:
    """Add rows: ``P(noisy | true, cell)`` is between two, shape (J, K); the totals of cells are variables."""
    total = rows.new(q.shape[0], q.shape[2])
    rows.equal.put(rows.sums(q, 1, np.zeros(total.shape)), total, -1.0)
    return rows.limit(q, total[:, None, :, None], low[:, :, None], high[:, :, None])


def _table_between(rows: _Rows, q: Ints, mass: Floats, between: Range, group: int | None) -> None:
    """Add rows: the masses have one of the tables of a range; of the others of a group, nothing is said."""
    table = rows.new(*between.shape)
    own = slice(None) if group is None else slice(group, group + 1)
    sums = rows.sums(q[: len(table[own])], 2, np.zeros(table[own].shape))
    rows.equal.put(sums, table[own], -1.0)
    rows.sums(table, 0, mass.sum(1))
    whole = table.T[None] if between.keep == "true-given-noisy" else table[:, None]
    rows.limit(table, whole, between.low, between.high)


def near_group(mass: Floats, radius: float, ends: int) -> UncertaintySet:
    """Return the distributions within total variation of one, shape (c,) of sum 1, whose mass moves to other cells.

    Its masses have shape (1, 1, c + ends): what is kept in each cell, and what comes to each of the others.
    """
    rows = _Rows()
    kept, left, come = rows.new(mass.size), rows.new(mass.size), rows.new(ends)
    rows.sums(np.stack([kept, left]), 0, mass)
    rows.equal.put(rows.sums(left[None], 1, np.zeros(1)), come, -1.0)
    rows.equal.put(rows.sums(left[None], 1, np.array([radius])), rows.new(1), 1.0)
    return rows.done([np.concatenate([kept, come])[None, None]])


def entry_ends(mass: Floats, between: Range) -> tuple[Floats, Floats]:
    """Return the least and the largest of each joint mass that the tables of a range have, shape (J, K) each.

    Masses are those of noisy groups, shape (K,). With ``P(true | noisy)`` all entries of a true group can be at any of
    their ends at once.

    Raises
    ------
    ValueError
        There is no such table.
    """
    space = joint_masses([(mass[:, None], between)], 1.0)
    own, whole = space.masses[0][..., 0], np.zeros(space.equal.shape[1])
    whole[own.ravel()] = 1.0
    total = mass.sum()
    tops = np.zeros((own.size, whole.size))
    tops[np.arange(own.size), own.ravel()] = 1.0
    ends = ratio_ends(space, [(top, whole, sign) for sign in (1.0, -1.0) for top in tops])
    if np.isnan(ends).any():
        raise ValueError(IMPOSSIBLE.format(between.keep.replace("-given-", " | ")))
    low, high = np.split(np.where(np.isinf(ends), np.repeat([0.0, np.inf], own.size), ends * total), 2)
    shape = own.shape
    return np.maximum(low, 0.0).reshape(shape), np.minimum(high.reshape(shape), mass)


def largest_radii(mass: Floats, between: Range, home: npt.NDArray[np.int64]) -> Floats:
    """Return the largest radii of total variation that a table of a range has, shape (J,).

    That of a table is ``1 - C_jk / max(P(true = j), P(noisy = k))`` with ``k`` the noisy group that ``j`` is near,
    ``home``, shape (J,); see :func:`fairfix.noise.bounds.valid_radius`.
    """
    out = np.ones(home.size)
    for j, k in enumerate(home):
        space = joint_masses([(mass[:, None], between)], 1.0, j)
        own, rest = space.masses[0][0, :, 0], space.masses[0][1, :, 0]
        top, true, noisy = (np.zeros(space.equal.shape[1]) for _ in range(3))
        top[own[k]] = true[own] = noisy[own[k]] = noisy[rest[k]] = 1.0
        ends = ratio_ends(space, [(top, true, 1.0), (top, noisy, 1.0)])
        out[j] = 1.0 - np.min(np.nan_to_num(ends, nan=0.0, posinf=0.0), initial=1.0)
    return np.clip(out, 0.0, 1.0)


def ratio_ends(space: UncertaintySet, ends: Sequence[tuple[Floats, Floats, float]]) -> Floats:
    """Return the least (sign 1) or the largest (-1) ``top @ x / bottom @ x`` for each top, bottom and sign.

    NaN where no ``x`` has a denominator, as where there is none at all; infinite where the solver gives up.
    """
    rows, width = space.right.size + space.under.shape[0], space.equal.shape[1] + 1
    shared = sparse.vstack(space.scaled)
    low = np.append(np.zeros(space.right.size), np.full(space.under.shape[0], -np.inf))
    size = max(1, WIDE // width)

    def solved(ends: Sequence[tuple[Floats, Floats, float]]) -> Floats:
        """Return ends by one call of the solver; one by one, if one of them has no solution."""
        many = len(ends)
        goal = np.array([sign * np.append(top, 0.0) for top, _, sign in ends])
        ones = sparse.block_diag([np.append(bottom, 0.0)[None] for _, bottom, _ in ends])
        limits = LinearConstraint(
            sparse.vstack([sparse.kron(sparse.identity(many), shared), ones], format="csc"),
            np.append(np.tile(low, many), np.ones(many)),
            np.append(np.zeros(many * rows), np.ones(many)),
        )
        answer = _called(goal.ravel(), limits, presolve=False)
        if answer.status != 0 and many > 1:
            return np.concatenate([solved([end]) for end in ends])
        if (
            answer.status != 0
        ):  # near the least eps allowed one way of solving may fail where the other does not
            again = _called(goal.ravel(), limits, presolve=True)
            if again.status != 0:
                return np.full(1, np.nan if 2 in (answer.status, again.status) else np.inf)
            answer = again
        signs = np.array([sign for _, _, sign in ends])
        return np.asarray(signs * (goal * answer.x.reshape(goal.shape)).sum(1))

    return np.concatenate([np.zeros(0), *(solved(ends[at : at + size]) for at in range(0, len(ends), size))])


@dataclass(frozen=True, eq=False)
class Influence:
    """A least ``top @ x / bottom @ x``, where it is, and by how much it moves with masses, tables and noise."""

    least: float
    of_cells: tuple[Floats, ...]
    """Derivatives by the masses of the cells of each part, shape (K, cells)."""
    of_tables: tuple[Floats, ...]
    """Derivatives by the entries of its table, shape (J, K), its noise as it is."""
    of_noise: tuple[Floats, ...]
    """Derivatives by its noise ``T``, shape (J, K)."""


def influence(space: UncertaintySet, top: Floats, bottom: Floats) -> Influence | None:
    """Return the least ``top @ x / bottom @ x`` with its derivatives, by duals; None where the solver finds none.

    With ``s`` the scale of the solution and ``y`` the multipliers, a row's right side counts ``s y``. All
    parts have a known table, and eps is below 1. Where the optimum is degenerate, derivatives are those of one side.
    """
    equal, under = space.scaled
    answer: Any = linprog(
        np.append(top, 0.0),
        A_ub=under,
        b_ub=np.zeros(under.shape[0]),
        A_eq=sparse.vstack([equal, sparse.csr_matrix(np.append(bottom, 0.0))], format="csr"),
        b_eq=np.append(np.zeros(space.right.size), 1.0),
        method="highs",
        options={"presolve": False},  # as in ratio_ends: it takes longer than it saves
    )
    if answer.status != 0:
        return None
    of_equal, of_under = answer.x[-1] * answer.eqlin.marginals, np.append(answer.ineqlin.marginals, 0.0)
    return Influence(
        float(answer.fun),
        tuple(of_equal[cells] for cells in space.cells),
        tuple(of_equal[table] for table in space.tables),
        tuple(
            np.einsum("jkc,jc->jk", of_under[high] - of_under[low], answer.x[places].sum(1))
            for places, (high, low) in zip(space.masses, space.limits, strict=True)
        ),
    )


def is_empty(space: UncertaintySet) -> bool:
    """Return whether nothing is in it; where it is all but nothing and the solver cannot tell, it is."""
    low = np.append(space.right, np.full(space.under.shape[0], -np.inf))
    high = np.append(space.right, np.zeros(space.under.shape[0]))
    rows = sparse.vstack(
        [space.equal, space.under], format="csc"
    )  # by itself, SciPy 1.13 makes no model of two parts
    limits = LinearConstraint(rows, low, high)
    for presolve in (True, False):
        answer = _called(np.zeros(space.equal.shape[1]), limits, presolve=presolve)
        if answer.status in (0, 2):
            return bool(answer.status == 2)
    return True


def _called(goal: Floats, limits: Any, *, presolve: bool) -> Any:
    """Return the answer of the solver."""
    return milp(goal, constraints=limits, bounds=Bounds(0.0, np.inf), options={"presolve": presolve})


def smallest_eps(parts: Sequence[tuple[Floats, Floats | Range]]) -> float:
    """Return the least eps that the data allow, from above, by bisection; 1 always is allowed."""
    worst = 0.0
    for part in parts:

        def allowed(eps: float, part: tuple[Floats, Floats | Range] = part) -> bool:
            return not is_empty(joint_masses([part], eps))

        if not allowed(worst):
            worst = least_holding(allowed, worst, width=PRECISION)
    return worst
