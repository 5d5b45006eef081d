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
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from fairfix.noisy.rates import Floats, quotient

Ints = npt.NDArray[np.int64]

PRECISION = 1e-6
"""Of the bisection over eps."""

WIDE = 400
"""Variables of a call, as long as one program has fewer: for small ones the call costs more than the solution."""


class Refuted(ValueError):  # noqa: N818 - the data say so; nothing went wrong
    """No joint distribution satisfies the assumption; ``smallest_eps`` is the least eps that the data allow."""

    def __init__(self, eps: float, smallest_eps: float) -> None:
        super().__init__(
            f"the data refute that noise depends on outcomes by at most {eps:g}: "
            f"the least eps they allow is {smallest_eps:.6f}"
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


def joint_masses(parts: Sequence[tuple[Floats, Floats]], eps: float) -> Polytope:
    """Return the joint masses that fit one or more parts of the data, each with a table of its own.

    Parameters
    ----------
    parts
        Pairs of masses by noisy group and cell, shape (K, cells), and table, shape (J, K), with equal columns.
    eps
        Largest difference of ``P(noisy = k | true = j, cell)`` to ``T_jk`` in each part; from 1 on it says nothing.
    """
    equal, under, variables = _Rows(), _Rows(), _Rows()
    right, masses = [], []
    for mass, table in parts:
        q = variables.new((*table.shape, mass.shape[1]))
        masses.append(q)
        for axis, sums in ((0, mass), (2, table)):
            equal.put(np.expand_dims(equal.new(sums.shape), axis), q, 1.0)
            right.append(sums.ravel())
        if eps >= 1:
            continue
        total = variables.new((len(table), mass.shape[1]))
        row = equal.new(total.shape)
        equal.put(row[:, None], q, 1.0)
        equal.put(row, total, -1.0)
        right.append(np.zeros(total.size))
        share = quotient(table, table.sum(1, keepdims=True), 1.0 / table.shape[1])
        for sign in (1.0, -1.0):
            says = share + eps < 1.0 if sign > 0 else share > eps
            j, k, c = np.nonzero(np.broadcast_to(says[:, :, None], q.shape))
            row = under.new(j.shape)
            under.put(row, q[j, k, c], sign)
            under.put(row, total[j, c], -sign * share[j, k] - eps)
    width = variables.height
    limits = under.matrix(width) if under.height else sparse.csr_matrix((0, width))
    return Polytope(equal.matrix(width), np.concatenate(right), limits, tuple(masses))


def ratio_ends(space: Polytope, ends: Sequence[tuple[Floats, Floats, float]]) -> Floats:
    """Return the least (sign 1) or the largest (-1) ``top @ x / bottom @ x`` for each top, bottom and sign.

    NaN where no ``x`` has a denominator, as where there is none at all; infinite where the solver gives up.
    """
    rows, width = space.right.size + space.under.shape[0], space.equal.shape[1] + 1
    shared = sparse.bmat([[space.equal, sparse.csr_matrix(-space.right[:, None])], [space.under, None]])
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


def is_empty(space: Polytope) -> bool:
    """Return whether nothing is in it; where it is all but nothing and the solver cannot tell, it is."""
    limits = [LinearConstraint(space.equal, space.right, space.right)]
    if space.under.shape[0]:
        limits.append(LinearConstraint(space.under, -np.inf, 0.0))
    for presolve in (True, False):
        answer = _called(np.zeros(space.equal.shape[1]), limits, presolve=presolve)
        if answer.status in (0, 2):
            return bool(answer.status == 2)
    return True


def _called(goal: Floats, limits: Any, *, presolve: bool) -> Any:
    """Return the answer of the solver."""
    return milp(goal, constraints=limits, bounds=Bounds(0.0, np.inf), options={"presolve": presolve})


def smallest_eps(parts: Sequence[tuple[Floats, Floats]]) -> float:
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
