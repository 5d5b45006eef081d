r"""Bounds of many rates of true groups at once, if noise depends on the cell by at most eps.

Each end of a rate's range is a linear program over the joint masses of :mod:`fairfix.noisy.polytope`; programs differ
in what is scaled to 1 and in the goal. With ``Q_j(c) = sum_k q_jk(c)`` as variables beside ``q``, the rows

.. math:: (T_{jk} - \varepsilon) Q_j(c) \le q_{jk}(c) \le (T_{jk} + \varepsilon) Q_j(c)

have two numbers each, and a rate is a ratio of sums of ``Q_j``. The left row says nothing where ``T_jk <= eps``, nor
does the right one where ``T_jk + eps >= 1``. Several programs are given to the solver at once, as blocks: for small
ones the call costs more than the solution. From eps = 1 on there is a closed form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from fairfix.noisy.bounds import Pair, labelled_bounds, require_fit, soft_bounds
from fairfix.noisy.polytope import row_shares, smallest_eps
from fairfix.noisy.rates import CELLS_OF_LABEL, Floats, Ratio

Ints = npt.NDArray[np.int64]

WIDE = 400
"""Variables of a call, as long as one program has fewer."""


@dataclass(frozen=True)
class End:
    """An end of a range: the least (sign 1) or the largest (-1) rate of a true group."""

    ratio: Ratio
    group: int
    sign: float


class _Sheet:
    """The rows that all programs share; the row ``one`` is left for the denominator, which is scaled to 1."""

    def __init__(
        self, parts: Sequence[tuple[Floats, Floats]], which: Sequence[list[int]], eps: float
    ) -> None:
        self.height = self.width = 0
        self._places: list[tuple[Ints, Ints, Floats]] = []
        self._limits: list[tuple[Floats, Floats]] = []
        scale = self._columns(1)[0]
        self.totals = np.zeros((parts[0][1].shape[0], 4), dtype=np.int64)
        """Columns of ``Q_j(c)``, shape (J, 4), in the order of TP, FN, FP, TN."""
        for (mass, table), cells in zip(parts, which, strict=True):
            self.totals[:, cells] = self._part(mass, table, scale, eps)
        self.one = int(self._rows(1, 1.0, 1.0)[0])
        self.row, self.column, self.value = (np.concatenate(part) for part in zip(*self._places, strict=True))
        self.low, self.high = (np.concatenate(part) for part in zip(*self._limits, strict=True))

    def asked(self, end: End) -> tuple[Ints, Ints]:
        """Return the columns of an end's numerator and denominator."""
        own = self.totals[end.group]
        return own[np.array(end.ratio.a)], own[np.array(end.ratio.rows)]

    def _columns(self, *shape: int) -> Ints:
        first, self.width = self.width, self.width + int(np.prod(shape))
        return np.arange(first, self.width).reshape(shape)

    def _rows(self, size: int, low: float, high: float) -> Ints:
        """Return new rows between two limits."""
        first, self.height = self.height, self.height + size
        self._limits.append((np.full(size, low), np.full(size, high)))
        return np.arange(first, self.height)

    def _put(self, row: Ints, column: Ints, number: npt.ArrayLike) -> None:
        """Put numbers at rows and columns."""
        at, to, what = np.broadcast_arrays(row, column, np.asarray(number, dtype=np.float64))
        self._places.append((at.ravel(), to.ravel(), what.ravel()))

    def _part(self, mass: Floats, table: Floats, scale: Ints, eps: float) -> Ints:
        """Write the rows of masses (K, c) with a table (J, K); return the columns of the totals (J, c)."""
        (noisy, cells), groups = mass.shape, len(table)
        q, total = self._columns(groups, noisy, cells), self._columns(groups, cells)
        for axis, right in ((0, mass), (2, table)):
            row = self._rows(right.size, 0.0, 0.0).reshape(right.shape)
            self._put(np.expand_dims(row, axis), q, 1.0)
            self._put(row, scale, -right)
        row = self._rows(total.size, 0.0, 0.0).reshape(total.shape)
        self._put(row[:, None], q, 1.0)
        self._put(row, total, -1.0)
        share = row_shares(table)
        for sign in (1.0, -1.0):
            says = share + eps < 1.0 if sign > 0 else share > eps
            j, k, c = np.nonzero(np.broadcast_to(says[:, :, None], q.shape))
            row = self._rows(j.size, -np.inf, 0.0)
            self._put(row, q[j, k, c], sign)
            self._put(row, total[j, c], -sign * share[j, k] - eps)
        return total


def cell_parts(m: Floats, C: Floats) -> tuple[list[tuple[Floats, Floats]], list[list[int]]]:
    """Return pairs of masses and table, one by label, and the cells of each."""
    by_label = C.ndim == 3
    require_fit(m, C, by_label=by_label)
    which = list(CELLS_OF_LABEL) if by_label else [[0, 1, 2, 3]]
    return [(m[:, own], table) for own, table in zip(which, C if by_label else [C], strict=True)], which


def least_eps(m: Floats, C: Floats) -> float:
    """Return the least eps that masses and table allow; arguments as in :func:`sensitivity_ends`."""
    return smallest_eps(cell_parts(m, C)[0])


def sensitivity_ends(m: Floats, C: Floats, eps: float, ends: Sequence[End]) -> Floats:
    """Return ends of the range of rates if noise depends on the cell by at most eps.

    Parameters
    ----------
    m
        Masses of TP, FN, FP, TN in noisy groups, shape (K, 4).
    C
        Joint masses of true and noisy groups with the columns of ``m``, shape (J, K), or (2, J, K) by label.
    eps
        Largest ``|P(noisy = k | true = j, cell) - T_jk|``; with a table by label noise may depend on the label freely,
        and on decisions by eps.
    ends
        The ends wanted.

    Returns
    -------
    A number for each; NaN where a group has no denominator, and everywhere if the data refute the assumption. Where
    the solver gives up, as it may near the least eps that the data allow, the end is that of any noise: it holds.
    """
    parts, which = cell_parts(m, C)
    if eps >= 1:
        return _closed(m, C, ends)
    sheet = _Sheet(parts, which, eps)
    size = max(1, WIDE // sheet.column.max())
    cuts = [*range(0, len(ends), size), len(ends)]
    found = np.concatenate([np.zeros(0), *(_solved(sheet, ends[a:b]) for a, b in pairwise(cuts))])
    lost = np.flatnonzero(np.isinf(found)).tolist()
    found[lost] = _closed(m, C, [ends[i] for i in lost])
    return found


def _closed(m: Floats, C: Floats, ends: Sequence[End]) -> Floats:
    """Return the ends if noise may depend on anything."""
    bounds = labelled_bounds if C.ndim == 3 else soft_bounds
    known = {ratio: bounds(m, C, ratio) for ratio in {end.ratio for end in ends}}
    return np.array([known[end.ratio][0 if end.sign > 0 else 1][end.group] for end in ends])


def _solved(sheet: _Sheet, ends: Sequence[End]) -> Floats:
    """Return ends by one call of the solver; one by one, if one of them has no solution; infinite if it gives up."""
    many, rows, columns = len(ends), sheet.low.size, int(sheet.column.max()) + 1
    asked = [sheet.asked(end) for end in ends]
    step = np.arange(many)[:, None]
    bottoms = [bottom + i * columns for i, (_, bottom) in enumerate(asked)]
    ones = [np.full(bottom.size, sheet.one + i * rows) for i, bottom in enumerate(bottoms)]
    row = np.concatenate([(sheet.row + step * rows).ravel(), *ones])
    column = np.concatenate([(sheet.column + step * columns).ravel(), *bottoms])
    value = np.concatenate([np.tile(sheet.value, many), np.ones(sum(b.size for b in bottoms))])
    matrix = sparse.csc_matrix((value, (row, column)), shape=(many * rows, many * columns))
    goal = np.zeros((many, columns))
    for i, (end, (top, _)) in enumerate(zip(ends, asked, strict=True)):
        goal[i, top] = end.sign
    limits = LinearConstraint(matrix, np.tile(sheet.low, many), np.tile(sheet.high, many))
    if many > 1:
        found = _called(goal.ravel(), limits, presolve=False)
        if found.status != 0:
            return np.concatenate([_solved(sheet, [end]) for end in ends])
    else:  # near the least eps that the data allow, one way of solving may fail where the other does not
        found = _called(goal.ravel(), limits, presolve=False)
        again = found if found.status == 0 else _called(goal.ravel(), limits, presolve=True)
        if again.status != 0:
            return np.full(1, np.nan if 2 in (found.status, again.status) else np.inf)
        found = again
    signs = np.array([end.sign for end in ends])
    return np.asarray(signs * (goal * found.x.reshape(goal.shape)).sum(1))


def _called(goal: Floats, limits: LinearConstraint, *, presolve: bool) -> Any:
    """Return what the solver finds."""
    return milp(goal, constraints=limits, bounds=Bounds(0.0, np.inf), options={"presolve": presolve})


def sensitivity_bounds(m: Floats, C: Floats, ratio: Ratio, eps: float) -> Pair:
    """Return the sharp bounds of every group's rate, shape (J,) each; see :func:`sensitivity_ends`."""
    groups = C.shape[-2]
    ends = [End(ratio, j, sign) for sign in (1.0, -1.0) for j in range(groups)]
    lo, hi = sensitivity_ends(m, C, eps, ends).reshape(2, groups)
    return lo, hi
