r"""Joint masses of true groups, noisy groups and cells: the polytope that data and table allow, and ratios over it.

The masses ``q_jk(c)`` satisfy ``q >= 0``, ``sum_j q_jk(c) = m_k(c)``, ``sum_c q_jk(c) = C_jk`` and, with ``T_jk = C_jk
/ sum_k C_jk`` and ``Q_j(c) = sum_k q_jk(c)``, which are variables too,

.. math:: (T_{jk} - \varepsilon) Q_j(c) \le q_{jk}(c) \le (T_{jk} + \varepsilon) Q_j(c) :

noise depends on the cell by at most eps. The left row says nothing where ``T_jk <= eps``, nor does the right one where
``T_jk + eps >= 1``. Ratios are made linear by scaling (Charnes and Cooper).
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
from fairfix.noisy.rates import Floats, quotient

Ints = npt.NDArray[np.int64]

PRECISION = 1e-6
"""Of the bisection over eps."""

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
class Polytope:
    """All vectors ``x >= 0`` with ``equal @ x = right`` and ``under @ x <= 0``; matrices are sparse."""

    equal: Any
    right: Floats
    under: Any
    masses: tuple[Ints, ...]
    """Places of ``q`` in ``x``, shape (J, K, cells) for each part of the data."""
    cells: tuple[Ints, ...] = ()
    """Rows of ``equal`` with the masses of the cells, shape (K, cells) for each part."""
    limits: tuple[Ints, ...] = ()
    """Rows of ``under`` with the right and with the left limit of noise, shape (2, J, K, cells), for each part with a
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


class _Rows:
    """Rows of a sparse matrix, which is put together number by number."""

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

    def matrix(self, width: int) -> Any:
        """Return the matrix."""
        row, column, number = (np.concatenate(part) for part in zip(*self.numbers, strict=True))
        return sparse.csr_matrix((number, (row, column)), shape=(self.height, width))


@dataclass(frozen=True, eq=False)
class Range:
    """All tables whose ``P(true | noisy)`` or ``P(noisy | true)`` lies between two, as a survey leaves it open."""

    low: Floats
    """Shape (J, K), or by label (2, J, K)."""
    high: Floats
    keep: Keep
    """Of which the ends are."""

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
) -> Polytope:
    """Return the joint masses that fit one or more parts of the data, each with a table or a range of its own.

    Parameters
    ----------
    parts
        Pairs of masses by noisy group and cell, shape (K, cells), and table, shape (J, K), with equal columns.
    eps
        Largest difference of ``P(noisy = k | true = j, cell)`` to ``T_jk`` in each part; from 1 on it says nothing. In
        a range each cell may have another ``T``, so no less is allowed than by one for all.
    group
        The true group whose masses matter, which are first then; the others are one, since where eps says nothing they
        can share what it leaves. None: all groups.
    at_least
        Whether the masses of cells are the least that there are; the columns of tables have more then.
    """
    equal, under, variables = _Rows(), _Rows(), _Rows()
    right, masses, cells, limited = [], [], [], []
    for mass, given in parts:
        cells.append(equal.height + np.arange(mass.size).reshape(mass.shape))
        if isinstance(given, Range):
            at, sides = _of_range(equal, under, variables, mass, given, eps, group)
            masses.append(at)
            right += sides
            continue
        table = given
        if group is not None:
            table = np.stack([given[group], np.maximum(mass.sum(1) - given[group], 0.0)])
        q = variables.new((*table.shape, mass.shape[1]))
        masses.append(q)
        for axis, sums in ((0, mass), (2, table)):
            equal.put(np.expand_dims(equal.new(sums.shape), axis), q, 1.0)
            right.append(sums.ravel())
        if at_least:
            equal.put(cells[-1], variables.new(mass.shape), -1.0)
        if eps >= 1:
            continue
        total = variables.new((len(table), mass.shape[1]))
        row = equal.new(total.shape)
        equal.put(row[:, None], q, 1.0)
        equal.put(row, total, -1.0)
        right.append(np.zeros(total.size))
        share = quotient(table, table.sum(1, keepdims=True), 1.0 / table.shape[1])
        limited.append(np.full((2, *q.shape), -1))
        for side, sign in enumerate((1.0, -1.0)):
            says = share + eps < 1.0 if sign > 0 else share > eps
            j, k, c = np.nonzero(np.broadcast_to(says[:, :, None], q.shape))
            row = limited[-1][side, j, k, c] = under.new(j.shape)
            under.put(row, q[j, k, c], sign)
            under.put(row, total[j, c], -sign * share[j, k] - eps)
    width = variables.height
    limits = under.matrix(width) if under.height else sparse.csr_matrix((0, width))
    return Polytope(
        equal.matrix(width), np.concatenate(right), limits, tuple(masses), tuple(cells), tuple(limited)
    )


def _of_range(
    equal: _Rows, under: _Rows, variables: _Rows, mass: Floats, between: Range, eps: float, group: int | None
) -> tuple[Ints, list[Floats]]:
    """Add the rows of a part whose table is open; return the places of its masses and the right sides of its rows."""
    (groups, noisy), cells = between.shape, mass.shape[1]
    q, table = (
        variables.new((groups if group is None else 2, noisy, cells)),
        variables.new((groups, noisy)),
    )
    equal.put(np.expand_dims(equal.new(mass.shape), 0), q, 1.0)
    sums = equal.new((groups, noisy) if group is None else (1, noisy))
    own = slice(None) if group is None else slice(group, group + 1)
    equal.put(sums[:, :, None], q[: len(sums)], 1.0)
    equal.put(sums, table[own], -1.0)
    equal.put(np.expand_dims(equal.new((noisy,)), 0), table, 1.0)
    right = [mass.ravel(), np.zeros(sums.size), mass.sum(1)]
    whole = 0 if between.keep == "true-given-noisy" else 1  # the axis of which an entry is a share
    for sign, end, says in (
        (1.0, between.high, between.high < 1.0),
        (-1.0, between.low, between.low > 0.0),
    ):
        for j, k in zip(*np.nonzero(says), strict=True):
            row = under.new((1,))
            under.put(row, table[[j], [k]], sign)
            under.put(row, table[:, k] if whole == 0 else table[j], -sign * end[j, k])
    if eps < 1:
        if whole == 0:
            raise ValueError(OF_RECORDING)
        total = variables.new((groups, cells))
        row = equal.new(total.shape)
        equal.put(row[:, None], q, 1.0)
        equal.put(row, total, -1.0)
        right.append(np.zeros(total.size))
        for sign, end in ((1.0, between.high + eps), (-1.0, between.low - eps)):
            says = end < 1.0 if sign > 0 else end > 0.0
            j, k, c = np.nonzero(np.broadcast_to(says[:, :, None], q.shape))
            row = under.new(j.shape)
            under.put(row, q[j, k, c], sign)
            under.put(row, total[j, c], -sign * end[j, k])
    return q, right


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
    ``home``, shape (J,); see :func:`fairfix.noisy.bounds.valid_radius`.
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


def ratio_ends(space: Polytope, ends: Sequence[tuple[Floats, Floats, float]]) -> Floats:
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
class Optimum:
    """A least ``top @ x / bottom @ x``, where it is, and what it costs that ``x`` keeps to the polytope."""

    least: float
    x: Floats
    """Scaled to ``bottom @ x = 1``."""
    of_cells: tuple[Floats, ...]
    """Multipliers of the masses of the cells, shape (K, cells) for each part."""
    of_limits: tuple[Floats, ...]
    """Multipliers of the limits of noise, 0 or more, shape (2, J, K, cells) for each part."""


def optimum(space: Polytope, top: Floats, bottom: Floats) -> Optimum | None:
    """Return the least ``top @ x / bottom @ x`` with its multipliers; None where the solver finds none."""
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
    of_equal, of_under = answer.eqlin.marginals, np.append(-answer.ineqlin.marginals, 0.0)
    return Optimum(
        float(answer.fun),
        answer.x[:-1],
        tuple(of_equal[rows] for rows in space.cells),
        tuple(np.maximum(of_under[rows], 0.0) for rows in space.limits),
    )


def inner_point(space: Polytope, bottoms: Floats) -> tuple[Floats, float]:
    """Return the ``x`` at which the least of ``bottoms @ x``, or 1, is largest, and that number; NaN if it is empty."""
    width, many = space.equal.shape[1], len(bottoms)
    rows = [
        sparse.hstack([space.equal, sparse.csr_matrix((space.right.size, 1))]),
        sparse.hstack([space.under, sparse.csr_matrix((space.under.shape[0], 1))]),
        sparse.hstack([sparse.csr_matrix(bottoms), sparse.csr_matrix(-np.ones((many, 1)))]),
    ]
    unlimited, none = np.full(space.under.shape[0], -np.inf), np.zeros(space.under.shape[0])
    limits = LinearConstraint(
        sparse.vstack(rows, format="csc"),
        np.concatenate([space.right, unlimited, np.zeros(many)]),
        np.concatenate([space.right, none, np.full(many, np.inf)]),
    )
    goal, largest = np.append(np.zeros(width), -1.0), np.append(np.full(width, np.inf), 1.0)
    answer: Any = milp(goal, constraints=limits, bounds=Bounds(0.0, largest), options={"presolve": False})
    if answer.status != 0:
        return np.full(width, np.nan), np.nan
    return answer.x[:-1], float(answer.x[-1])


def is_empty(space: Polytope) -> bool:
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
        if not is_empty(joint_masses([part], worst)):
            continue
        low, high = worst, 1.0
        while high - low > PRECISION:
            middle = (low + high) / 2
            low, high = (middle, high) if is_empty(joint_masses([part], middle)) else (low, middle)
        worst = high
    return worst
