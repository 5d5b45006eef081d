"""Bounds of many rates of true groups at once, if noise depends on the cell by at most eps.

Each end of a rate's range is a linear program over the joint masses of :mod:`fairfix.noisy.polytope`. From eps = 1 on
there is a closed form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairfix.noisy.bounds import Pair, require_fit, table_bounds
from fairfix.noisy.polytope import joint_masses, ratio_ends, smallest_eps
from fairfix.noisy.rates import CELLS_OF_LABEL, Floats, Ratio


@dataclass(frozen=True)
class End:
    """An end of a range: the least (sign 1) or the largest (-1) rate of a true group."""

    ratio: Ratio
    group: int
    sign: float


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
    out = np.full(len(ends), np.inf)
    if eps < 1:
        space = joint_masses(parts, eps)

        def counted(mask: Sequence[bool], group: int) -> Floats:
            return space.placed(group, [np.array(mask)[own] for own in which])

        out = ratio_ends(
            space, [(counted(e.ratio.a, e.group), counted(e.ratio.rows, e.group), e.sign) for e in ends]
        )
    lost = {i: ends[i] for i in np.flatnonzero(np.isinf(out)).tolist()}
    any_noise = {ratio: table_bounds(m, C, ratio) for ratio in {end.ratio for end in lost.values()}}
    for i, end in lost.items():
        out[i] = any_noise[end.ratio][0 if end.sign > 0 else 1][end.group]
    return out


def sensitivity_bounds(m: Floats, C: Floats, ratio: Ratio, eps: float) -> Pair:
    """Return the sharp bounds of every group's rate, shape (J,) each; see :func:`sensitivity_ends`."""
    groups = C.shape[-2]
    ends = [End(ratio, j, sign) for sign in (1.0, -1.0) for j in range(groups)]
    lo, hi = sensitivity_ends(m, C, eps, ends).reshape(2, groups)
    return lo, hi
