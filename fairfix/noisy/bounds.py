r"""Rates of groups that were seen through noise: exact bounds, inversion and sensitivity.

The main data give masses ``m_k(c)`` of the four cells TP, FN, FP, TN in every noisy group ``k``, of total 1. Another
source gives ``C_jk``, the joint mass of true group ``j`` and noisy group ``k``, or ``C^y_jk`` by label. What is unknown
is ``q_jk(c)``, the mass of true group ``j`` in cell ``c`` of noisy group ``k``:

.. math::
    q \ge 0, \qquad \sum_j q_{jk}(c) = m_k(c), \qquad \sum_c q_{jk}(c) = C_{jk} ,

which can only hold if the columns of the table have the masses of the noisy groups: see the transports below. A rate is
a ratio ``A / (A + B)`` of cells. Write ``a_k, b_k, t_k`` for the masses of A, of B and of all cells in noisy group k.

**The table only** (:func:`soft_bounds`). What group j leaves of a cell can go to the other groups in proportion
``C_j'k / (t_k - C_jk)``, so one group alone is a knapsack per noisy group. The lowest rate takes B first, then cells in
neither, then A; the numerator is then least and the rest of the denominator largest, both at once:

.. math::
    lo_j = \frac{x}{x + y}, \quad x = \sum_k (C_{jk} - t_k + a_k)_+, \quad y = \sum_k \min(b_k, C_{jk}) ,

and the highest rate with A and B exchanged. Bounds are sharp.

**The table by label** (:func:`labelled_bounds`). The two labels of a noisy group are two noisy groups of their own, so
the same formula over the 2K pairs is exact for every rate, precision included: its numerator lives in one label and the
rest of its denominator in the other. Where A and B together fill a label or both, denominators are fixed, and the gap
``hi_a - lo_b`` of two groups is sharp as well: A must give ``min(a, C_a) + (C_b - t + a)_+ <= a`` if
``C_a + C_b <= t``, so both extremes exist in one and the same ``q``.

**A ball** (:func:`tv_bounds`). Within total variation ``gamma_j`` of the distribution of cells in noisy group j, with
shares a and b of A and B, mass moves from A to B first:

.. math:: lo_j = (a - \gamma_j)_+ / (a + b), \qquad hi_j = 1 - (b - \gamma_j)_+ / (a + b) .

On the scale of a rate the radius is ``gamma_j / (a + b)``, not ``gamma_j``. A radius that always holds
(:func:`valid_radius`) is ``1 - C_jj / max(P(G = j), P(noisy = j))``: the true and the noisy group share the mass
``C_jj`` of one distribution, with shares ``C_jj`` over either mass. The radius ``P(noisy != j | G = j)``
(:func:`conditional_radius`) is the same where both marginals are equal, and does not hold otherwise.

**Noise that depends on nothing but the group** (:func:`identified`). With ``T_jk = C_jk / sum_k C_jk`` the masses of
the true groups solve ``m = T' M``. A rate may leave [0, 1]; that is sampling error or a wrong assumption, and is not
clipped.

**Noise that depends on the cell by at most eps** (:func:`sensitivity`). A linear program over ``q`` with

.. math:: |q_{jk}(c) - T_{jk} \sum_{k'} q_{jk'}(c)| \le \varepsilon \sum_{k'} q_{jk'}(c) ,

whose ratio is made linear by scaling (Charnes and Cooper). At eps = 1 nothing is added to the bounds above, and at
eps = 0 it is the inversion if that has no negative mass. If no ``q`` exists the data refute the assumption.

Rates without a denominator are NaN. Arrays may have leading axes for replicates, except in the linear programs.

References
----------
S. Wang, W. Guo, H. Narasimhan, A. Cotter, M. Gupta and M. I. Jordan, *Robust optimization for fairness with noisy
protected groups* (2020), for the ball and the soft assignments. The closed forms, the radius that always holds, the
bounds by label and the sensitivity analysis are derived above.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import linprog, nnls

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

TP, FN, FP, TN = range(4)

MATCH = 1e-8
"""Largest difference of a column of a table to its noisy group's mass that counts as rounding."""

TRACE = 1e-9
"""Mass of a true group that fits best without any, in all."""

PRECISION = 1e-6
"""Of the bisections over eps."""

VERTICES = 500
"""Choices of true groups that :func:`smallest_shares` looks at; each is an inversion per draw."""


class Refuted(ValueError):  # noqa: N818 - the data say so; nothing went wrong
    """No joint distribution satisfies the assumption.

    Attributes
    ----------
    smallest_eps
        The least eps that the data allow.
    """

    def __init__(self, eps: float, smallest_eps: float) -> None:
        super().__init__(
            f"the data refute that noise depends on outcomes by at most {eps:g}: "
            f"the least eps they allow is {smallest_eps:.6f}"
        )
        self.smallest_eps = smallest_eps


# ---------------------------------------------------------------------- rates


@dataclass(frozen=True)
class Ratio:
    """A rate ``A / (A + B)``; which of TP, FN, FP, TN are in A and which in B."""

    a: tuple[bool, bool, bool, bool]
    b: tuple[bool, bool, bool, bool]

    def __post_init__(self) -> None:
        if not any(self.a) or not any(self.b) or any(x and y for x, y in zip(self.a, self.b, strict=True)):
            raise ValueError("A and B must each have a cell and share none")

    def masses(self, cells: Floats) -> tuple[Floats, Floats]:
        """Return the masses of A and of B; ``cells`` has shape (..., 4)."""
        return cells @ np.array(self.a, dtype=np.float64), cells @ np.array(self.b, dtype=np.float64)

    def of(self, cells: Floats) -> Floats:
        """Return the rate of cell masses, shape (..., 4) to (...); NaN without a denominator."""
        a, b = self.masses(cells)
        return _ratio(a, a + b)


def flipped(ratio: Ratio) -> Ratio:
    """Return the rate's complement, whose lowest value has the weights of the rate's highest."""
    return Ratio(ratio.b, ratio.a)


RATIOS = {
    "true_positive_rate": Ratio((True, False, False, False), (False, True, False, False)),
    "false_positive_rate": Ratio((False, False, True, False), (False, False, False, True)),
    "selection_rate": Ratio((True, False, True, False), (False, True, False, True)),
    "accuracy": Ratio((True, False, False, True), (False, True, True, False)),
    "positive_predictive_value": Ratio((True, False, False, False), (False, False, True, False)),
}


def _ratio(top: Floats, bottom: Floats) -> Floats:
    """Return ``top / bottom``, NaN where the bottom is not positive."""
    good = bottom > 0
    return np.where(good, top / np.where(good, bottom, 1.0), np.nan)


def _checked(m: npt.ArrayLike, C: npt.ArrayLike, *, labelled: bool = False) -> tuple[Floats, Floats]:
    """Return both as arrays; refuse shapes, signs and columns that do not fit one another."""
    cells, table = np.asarray(m, dtype=np.float64), np.asarray(C, dtype=np.float64)
    if cells.ndim < 2 or cells.shape[-1] != 4:
        raise ValueError(f"masses must have shape (..., K, 4), got {cells.shape}")
    if table.ndim < 2 + labelled or table.shape[-1] != cells.shape[-2] or (labelled and table.shape[-3] != 2):
        raise ValueError(
            f"the table must have shape (...,{' 2,' if labelled else ''} J, K), "
            f"got {table.shape} for {cells.shape[-2]} noisy groups"
        )
    if not (cells.min(initial=0.0) >= 0 and table.min(initial=0.0) >= 0):
        raise ValueError("masses must be 0 or more, and numbers")
    labels = np.stack([cells[..., [FP, TN]].sum(-1), cells[..., [TP, FN]].sum(-1)], axis=-2)
    own = labels if labelled else cells.sum(-1)
    if np.abs(table.sum(-2) - own).max(initial=0.0) > MATCH:
        raise ValueError("columns of the table must have the masses of the noisy groups: transport it first")
    return cells, table


# ---------------------------------------------------------------------- closed forms


def soft_bounds(m: npt.ArrayLike, C: npt.ArrayLike, ratio: Ratio) -> tuple[Floats, Floats]:
    """Return the sharp bounds of each true group's rate, given the table.

    Parameters
    ----------
    m
        Masses of the cells in noisy groups, shape (..., K, 4).
    C
        Joint masses of true and noisy groups, shape (..., J, K), with the columns of ``m``.
    ratio
        The rate.

    Returns
    -------
    Lowest and highest rate, shape (..., J) each. Where a group may be without a denominator, the bounds are those of
    the rate whenever it is defined; where it must be, they are NaN.

    Raises
    ------
    ValueError
        If shapes do not fit, a mass is negative, or columns of the table do not have the masses of the noisy groups.
    """
    return _knapsacks(*_checked(m, C), ratio)


def _knapsacks(cells: Floats, table: Floats, ratio: Ratio) -> tuple[Floats, Floats]:
    """Return the bounds of :func:`soft_bounds`, unchecked."""
    a, b = (part[..., None, :] for part in ratio.masses(cells))
    rest = cells @ (1.0 - np.array(ratio.a) - np.array(ratio.b))
    rest = rest[..., None, :]
    least_a = np.maximum(table - (b + rest), 0.0).sum(-1)
    most_a = np.minimum(a, table).sum(-1)
    least_b = np.maximum(table - (a + rest), 0.0).sum(-1)
    most_b = np.minimum(b, table).sum(-1)
    lo = np.where(most_b > 0, _ratio(least_a, least_a + most_b), np.where(most_a > 0, 1.0, np.nan))
    hi = np.where(most_a > 0, _ratio(most_a, most_a + least_b), np.where(most_b > 0, 0.0, np.nan))
    return lo, hi


def labelled_bounds(m: npt.ArrayLike, C: npt.ArrayLike, ratio: Ratio) -> tuple[Floats, Floats]:
    """Return the sharp bounds of each true group's rate, given the table by label.

    Parameters
    ----------
    m
        Shape (..., K, 4).
    C
        Shape (..., 2, J, K): joint masses for label 0, then for label 1.
    ratio
        Any of them; the bounds are sharp for all.

    Returns
    -------
    As :func:`soft_bounds`.
    """
    return _knapsacks(*_by_label(*_checked(m, C, labelled=True)), ratio)


def _by_label(cells: Floats, table: Floats) -> tuple[Floats, Floats]:
    """Return masses and table with each label of a noisy group as a noisy group, shapes (..., 2K, 4), (..., J, 2K)."""
    one, zero = np.array([1.0, 1.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0, 1.0])
    split = np.concatenate([cells * zero, cells * one], axis=-2)
    return split, np.concatenate([table[..., 0, :, :], table[..., 1, :, :]], axis=-1)


def tv_bounds(m: npt.ArrayLike, gamma: npt.ArrayLike, ratio: Ratio) -> tuple[Floats, Floats]:
    """Return the sharp bounds over all distributions near that of the noisy group of the same number.

    Parameters
    ----------
    m
        Shape (..., K, 4).
    gamma
        Radii in total variation, shape (..., K), or one number.
    ratio
        The rate.

    Returns
    -------
    Lowest and highest rate, shape (..., K) each. Distributions live where the data live: if no group has B, the rate
    is 1, and if none has A, it is 0. An empty noisy group has no centre and allows every distribution.
    """
    cells = np.asarray(m, dtype=np.float64)
    if cells.ndim < 2 or cells.shape[-1] != 4 or not cells.min(initial=0.0) >= 0:
        raise ValueError("masses must have shape (..., K, 4) and be 0 or more")
    radius = np.broadcast_to(np.asarray(gamma, dtype=np.float64), cells.shape[:-1])
    if not (radius.min(initial=0.0) >= 0):
        raise ValueError("radii must be 0 or more")
    total = cells.sum(-1)
    radius = np.where(total > 0, radius, 1.0)
    a, b = (part / np.where(total > 0, total, 1.0) for part in ratio.masses(cells))
    some_a, some_b = (part.sum(-1, keepdims=True) > 0 for part in ratio.masses(cells))
    own = a + b > 0
    lo = np.where(own, _ratio(np.maximum(a - radius, 0.0), a + b), np.where(radius > 0, 0.0, np.nan))
    hi = np.where(own, 1.0 - _ratio(np.maximum(b - radius, 0.0), a + b), np.where(radius > 0, 1.0, np.nan))
    lo = np.where(some_b, lo, np.where(some_a, lo * 0.0 + 1.0, np.nan))
    hi = np.where(some_a, hi, np.where(some_b, hi * 0.0, np.nan))
    return lo, hi


def _square(C: npt.ArrayLike) -> tuple[Floats, Floats, Floats]:
    """Return diagonal and both marginals of a table whose groups are the same on both sides."""
    table = np.asarray(C, dtype=np.float64)
    if table.ndim < 2 or table.shape[-1] != table.shape[-2]:
        raise ValueError("a radius needs as many true as noisy groups")
    return np.diagonal(table, axis1=-2, axis2=-1), table.sum(-1), table.sum(-2)


def valid_radius(C: npt.ArrayLike) -> Floats:
    """Return a bound of the total variation between true and noisy group that always holds.

    Parameters
    ----------
    C
        Shape (..., K, K).

    Returns
    -------
    ``1 - C_jj / max(P(G = j), P(noisy = j))``, shape (..., K); 1 for a group that is empty on both sides.
    """
    both, true, noisy = _square(C)
    most = np.maximum(true, noisy)
    return np.clip(1.0 - np.where(most > 0, both / np.where(most > 0, most, 1.0), 0.0), 0.0, 1.0)


def conditional_radius(C: npt.ArrayLike) -> Floats:
    """Return ``P(noisy != j | G = j)``, which bounds the total variation only if the marginals are equal.

    Parameters
    ----------
    C
        Shape (..., K, K).

    Returns
    -------
    Shape (..., K); 1 for a true group without mass. Use :func:`valid_radius` unless to compare.
    """
    both, true, _ = _square(C)
    return np.clip(1.0 - np.where(true > 0, both / np.where(true > 0, true, 1.0), 0.0), 0.0, 1.0)


def pairwise_gaps(lo: Floats, hi: Floats) -> Floats:
    """Return ``hi_a - lo_b`` for each ordered pair of groups, shape (..., J) to (..., J, J); 0 on the diagonal.

    The largest possible lead of a over b, sharp for rates with fixed denominators: the selection rate and accuracy,
    and by label the true and false positive rate as well. An outer bound elsewhere.
    """
    gaps = np.array(hi[..., :, None] - lo[..., None, :])
    own = np.arange(gaps.shape[-1])
    gaps[..., own, own] = np.where(np.isnan(gaps[..., own, own]), np.nan, 0.0)
    return gaps


def vacuous(m: npt.ArrayLike, C: npt.ArrayLike, ratio: Ratio = RATIOS["true_positive_rate"]) -> Bools:
    """Return where no decision rule can have a bound of any use, given the table without labels.

    If ``C_jk <= P(other label, noisy = k)`` for all k, group j may lie in the other label wholly but for what the
    adversary chooses: the lowest rate is 0 as soon as some noisy group with ``C_jk > 0`` has B, and the highest is 1
    as soon as one has A. Labels alone say this, so no rule is free of it.

    Parameters
    ----------
    m, C
        As in :func:`soft_bounds`.
    ratio
        The true or the false positive rate.

    Returns
    -------
    Shape (..., J); False for a group without mass.

    Raises
    ------
    ValueError
        If the cells of the rate are not those of one label.
    """
    cells, table = _checked(m, C)
    asked = tuple(x or y for x, y in zip(ratio.a, ratio.b, strict=True))
    if asked not in ((True, True, False, False), (False, False, True, True)):
        raise ValueError("the test is for the true and the false positive rate")
    other = cells @ (1.0 - np.array(asked))
    fits = (table <= other[..., None, :]).all(-1)
    return np.asarray(fits & (table.sum(-1) > 0))


# ---------------------------------------------------------------------- inversion


@dataclass(frozen=True, eq=False)
class Inversion:
    """Masses of true groups, if noise depends on nothing but the group.

    Attributes
    ----------
    rates
        Shape (..., J), not clipped; NaN where the denominator is not positive.
    masses
        Cells of true groups, shape (..., J, 4); may be negative.
    weights
        Left inverse ``A`` of ``T'``, shape (..., J, K).
    residual
        ``m - T' M``, shape (..., K, 4): 0 if K = J, and what contradicts the assumption if K > J.
    """

    rates: Floats
    masses: Floats
    weights: Floats
    residual: Floats


def left_inverse(C: Floats) -> tuple[Floats, Floats]:
    """Return ``T = C / sum_k C`` and the left inverse of ``T'``, shapes (..., J, K).

    With more noisy than true groups, squares are weighed by the inverse mass of the noisy group, to which the variance
    of a cell is in proportion. Replicates that cannot be inverted are NaN.

    Raises
    ------
    ValueError
        If there are fewer noisy than true groups, or one table alone has no inverse.
    """
    table = np.asarray(C, dtype=np.float64)
    groups, noisy = table.shape[-2:]
    true = table.sum(-1, keepdims=True)
    T = np.where(true > 0, table / np.where(true > 0, true, 1.0), 0.0)
    full = np.linalg.matrix_rank(T) >= groups
    if noisy < groups or (table.ndim == 2 and not full):
        raise ValueError(
            f"the table has rank {int(np.linalg.matrix_rank(T).min())} for {groups} true groups: masses of true "
            "groups are not identified; use bounds"
        )
    mass = table.sum(-2)[..., None]
    root = np.sqrt(np.where(mass > 0, 1.0 / np.where(mass > 0, mass, 1.0), 0.0))
    weights = np.linalg.pinv(root * np.swapaxes(T, -1, -2)) * np.swapaxes(root, -1, -2)
    return T, np.where(full[..., None, None], weights, np.nan)


def identified(m: npt.ArrayLike, C: npt.ArrayLike, ratio: Ratio) -> Inversion:
    """Return the rates of true groups if noise depends on nothing but the true group.

    Only for decisions that do not use the noisy group: else see :func:`identified_by_rule`.

    Parameters
    ----------
    m, C
        As in :func:`soft_bounds`.
    ratio
        The rate.

    Raises
    ------
    ValueError
        If the rank of ``T`` is less than J, besides what :func:`soft_bounds` refuses.
    """
    cells, table = _checked(m, C)
    T, weights = left_inverse(table)
    masses = weights @ cells
    return Inversion(ratio.of(masses), masses, weights, cells - np.swapaxes(T, -1, -2) @ masses)


def identified_by_label(m: npt.ArrayLike, C: npt.ArrayLike, ratio: Ratio) -> Inversion:
    """Return the rates of true groups if noise depends on nothing but the true group and the label.

    Only for decisions that do not use the noisy group.

    Parameters
    ----------
    m, C
        As in :func:`labelled_bounds`.
    ratio
        The rate.

    Returns
    -------
    As :func:`identified`; weights have shape (..., 2, J, K).

    Raises
    ------
    ValueError
        If for one of the labels the rank of ``T`` is less than J, besides what :func:`labelled_bounds` refuses.
    """
    cells, table = _checked(m, C, labelled=True)
    pairs = [left_inverse(table[..., y, :, :]) for y in (0, 1)]
    masses = np.concatenate([pairs[1][1] @ cells[..., [TP, FN]], pairs[0][1] @ cells[..., [FP, TN]]], axis=-1)
    fitted = [np.swapaxes(T, -1, -2) for T, _ in pairs]
    left = np.concatenate([fitted[1] @ masses[..., [TP, FN]], fitted[0] @ masses[..., [FP, TN]]], axis=-1)
    return Inversion(ratio.of(masses), masses, np.stack([w for _, w in pairs], axis=-3), cells - left)


def identified_by_rule(m: npt.ArrayLike, C: npt.ArrayLike, ratio: Ratio) -> Inversion:
    """Return the rates of true groups for decisions that use the noisy group.

    Parameters
    ----------
    m
        Shape (..., K, K, 4): first the noisy group whose rule was applied, to all rows; then the noisy group of the
        row. Then ``M_j = sum_k T_jk M_j(rule k)``.
    C
        Shape (..., J, K).
    ratio
        The rate.

    Returns
    -------
    As :func:`identified`; the residual is that of each rule, shape (..., K, K, 4).
    """
    rules = np.asarray(m, dtype=np.float64)
    table = np.asarray(C, dtype=np.float64)
    if rules.ndim < 3 or rules.shape[-3] != rules.shape[-2]:
        raise ValueError("there must be a rule for each noisy group: shape (..., K, K, 4)")
    for k in range(rules.shape[-3]):
        _checked(rules[..., k, :, :], table)
    T, weights = left_inverse(table)
    masses = weights[..., None, :, :] @ rules
    own = np.einsum("...jk,...kjc->...jc", T, masses)
    left = rules - np.swapaxes(T, -1, -2)[..., None, :, :] @ masses
    return Inversion(ratio.of(own), own, weights, left)


def standard_error(m: npt.ArrayLike, found: Inversion, ratio: Ratio, rows: float) -> Floats:
    r"""Return the standard error of :func:`identified` or of :func:`identified_by_label`, the table taken as known.

    A row of noisy group k moves the rate of group j by ``A_jk (1[A] - rate_j 1[A or B]) / P_j``, with ``P_j`` the
    denominator. Its mean is 0, so

    .. math:: \mathrm{se}_j^2 = \frac{1}{n P_j^2} \sum_k A_{jk}^2 \{ a_k (1 - r_j)^2 + b_k r_j^2 \} .

    Parameters
    ----------
    m
        Shape (..., K, 4), of total 1.
    found
        From the same masses.
    ratio
        The same rate.
    rows
        Number of rows, or their effective number if they have weights.

    Returns
    -------
    Shape (..., J).
    """
    cells = np.asarray(m, dtype=np.float64)
    bottom = np.add(*ratio.masses(found.masses))
    weights = found.weights
    by_label = weights.ndim > found.masses.ndim
    own = [weights[..., y, :, :] if by_label else weights for y in (1, 1, 0, 0)]
    r = found.rates[..., None]
    square = np.zeros_like(bottom)
    for c, w in enumerate(own):
        step = (1.0 - r) if ratio.a[c] else r if ratio.b[c] else 0.0 * r
        square = square + (w**2 * cells[..., None, :, c] * step**2).sum(-1)
    return _ratio(np.sqrt(square / rows), bottom)


# ---------------------------------------------------------------------- linear programs


@dataclass(frozen=True, eq=False)
class Polytope:
    """All joint masses ``q >= 0`` with ``equal @ q = right`` and ``under @ q <= 0``.

    Attributes
    ----------
    equal, right, under
        Sparse matrix, vector, sparse matrix.
    shapes
        Of each part of ``q``, (J, K, cells); parts follow one another, in C order.
    """

    equal: Any
    right: Floats
    under: Any
    shapes: tuple[tuple[int, int, int], ...]

    def place(self, parts: Sequence[Floats]) -> Floats:
        """Return a vector over ``q`` from one array of the shape of each part."""
        return np.concatenate(
            [np.broadcast_to(p, s).ravel() for p, s in zip(parts, self.shapes, strict=True)]
        )


def joint_masses(parts: Sequence[tuple[Floats, Floats]], eps: float) -> Polytope:
    """Return the joint masses that fit one or more parts of the data, each with a table of its own.

    Parameters
    ----------
    parts
        Pairs of masses by noisy group and cell, shape (K, cells), and table, shape (J, K), with the same columns.
    eps
        Largest difference of ``P(noisy = k | true = j, cell)`` to ``T_jk`` in each part; 1 or more adds nothing.
    """
    equal, right, under, shapes = [], [], [], []
    for mass, table in parts:
        groups, (noisy, cells) = table.shape[0], mass.shape
        one = sparse.identity(cells, format="csr")
        equal.append(
            sparse.vstack(
                [
                    sparse.kron(np.ones((1, groups)), sparse.identity(noisy * cells)),
                    sparse.kron(sparse.identity(groups * noisy), np.ones((1, cells))),
                ]
            )
        )
        right.append(np.concatenate([mass.ravel(), table.ravel()]))
        shapes.append((groups, noisy, cells))
        true = table.sum(1, keepdims=True)
        T = np.where(true > 0, table / np.where(true > 0, true, 1.0), 1.0 / noisy)
        rows = []
        if eps < 1:
            for sign in (1.0, -1.0):
                near = [
                    sparse.kron(sign * np.eye(noisy) - np.outer(sign * t + eps, np.ones(noisy)), one)
                    for t in T
                ]
                rows.append(sparse.block_diag(near))
        under.append(sparse.vstack(rows) if rows else sparse.csr_matrix((0, groups * noisy * cells)))
    return Polytope(
        sparse.block_diag(equal, format="csr"),
        np.concatenate(right),
        sparse.block_diag(under, format="csr"),
        tuple(shapes),
    )


def ratio_range(space: Polytope, top: Floats, bottom: Floats) -> tuple[float, float] | None:
    """Return the least and the largest ``top @ q / bottom @ q``, by scaling the denominator to 1.

    None if there is no ``q`` with a denominator.
    """
    low = ratio_end(space, top, bottom, 1.0)
    if low is None:
        return None
    high = ratio_end(space, top, bottom, -1.0)
    return None if high is None else (low, high)  # a solver may see an all but empty space in two ways


def ratio_end(space: Polytope, top: Floats, bottom: Floats, sign: float) -> float | None:
    """Return the least (sign 1) or the largest (-1) of :func:`ratio_range` alone."""
    many = space.right.size
    equal = sparse.vstack(
        [
            sparse.hstack([space.equal, sparse.csr_matrix(-space.right[:, None])]),
            sparse.csr_matrix(np.append(bottom, 0.0)[None, :]),
        ],
        format="csr",
    )
    under = sparse.hstack([space.under, sparse.csr_matrix((space.under.shape[0], 1))], format="csr")
    found: Any = linprog(
        sign * np.append(top, 0.0),
        A_ub=under if under.shape[0] else None,
        b_ub=np.zeros(under.shape[0]) if under.shape[0] else None,
        A_eq=equal,
        b_eq=np.append(np.zeros(many), 1.0),
        method="highs",
    )
    if found.status == 2:
        return None
    if found.status:
        raise ArithmeticError(f"the solver gave up: {found.message}")
    return sign * float(found.fun)


def is_empty(space: Polytope) -> bool:
    """Return whether no joint masses are in it; where they are all but none and the solver cannot tell, it is."""
    for presolve in (True, False):
        found: Any = linprog(
            np.zeros(space.equal.shape[1]),
            A_ub=space.under if space.under.shape[0] else None,
            b_ub=np.zeros(space.under.shape[0]) if space.under.shape[0] else None,
            A_eq=space.equal,
            b_eq=space.right,
            method="highs",
            options={"presolve": presolve},
        )
        if found.status in (0, 2):
            return bool(found.status == 2)
    return True


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


def least_eps(m: npt.ArrayLike, C: npt.ArrayLike) -> float:
    """Return the least eps that masses and table allow; arguments as in :func:`sensitivity`."""
    return smallest_eps(cell_parts(m, C)[0])


@dataclass(frozen=True)
class Sensitivity:
    """What a group's rate can be if noise depends on outcomes by at most eps.

    Attributes
    ----------
    lo, hi
        NaN if the assumption is refuted, or the rate has no denominator.
    smallest_eps
        None, or if the data refute the assumption, the least eps that they allow.
    """

    lo: float
    hi: float
    smallest_eps: float | None = None

    @property
    def refuted(self) -> bool:
        """Whether no joint distribution satisfies the assumption."""
        return self.smallest_eps is not None


def cell_parts(m: npt.ArrayLike, C: npt.ArrayLike) -> tuple[list[tuple[Floats, Floats]], list[list[int]]]:
    """Return parts for :func:`joint_masses` and the cells that each consists of; the table may be by label."""
    labelled = np.asarray(C).ndim == 3
    cells, table = _checked(m, C, labelled=labelled)
    if cells.ndim != 2 or table.ndim != 2 + labelled:
        raise ValueError("linear programs take no replicates: masses (K, 4), table (J, K) or (2, J, K)")
    which = [[FP, TN], [TP, FN]] if labelled else [[TP, FN, FP, TN]]
    tables = list(table) if labelled else [table]
    return [(cells[:, cs], t) for cs, t in zip(which, tables, strict=True)], which


def _ends(space: Polytope, which: list[list[int]], ratio: Ratio, group: int) -> list[Floats]:
    """Return numerator and denominator of a group's rate, as vectors over a polytope of cells."""
    ends = []
    for mask in (np.array(ratio.a), np.array(ratio.a) | np.array(ratio.b)):
        parts = []
        for cells, shape in zip(which, space.shapes, strict=True):
            part = np.zeros(shape)
            part[group] = mask[cells]
            parts.append(part)
        ends.append(space.place(parts))
    return ends


def _range(space: Polytope, which: list[list[int]], ratio: Ratio, group: int) -> tuple[float, float] | None:
    """Return the range of a group's rate over a polytope of cells."""
    return ratio_range(space, *_ends(space, which, ratio, group))


def sensitivity(m: npt.ArrayLike, C: npt.ArrayLike, ratio: Ratio, eps: float, group: int) -> Sensitivity:
    """Return the sharp bounds of a group's rate if noise depends on the cell by at most eps.

    Parameters
    ----------
    m
        Shape (K, 4).
    C
        Shape (J, K), or (2, J, K) by label; then noise may depend on the label freely, and on decisions by eps.
    ratio
        The rate.
    eps
        Largest ``|P(noisy = k | true = j, cell) - T_jk|``.
    group
        True group j.
    """
    if not eps >= 0:
        raise ValueError(f"eps must be 0 or more, got {eps!r}")
    parts, which = cell_parts(m, C)
    space = joint_masses(parts, eps)
    found = _range(space, which, ratio, group)
    if found is not None:
        return Sensitivity(*found)
    return Sensitivity(np.nan, np.nan, smallest_eps(parts) if is_empty(space) else None)


@dataclass(frozen=True)
class Breakdown:
    """How much noise may depend on outcomes before a limit can be broken.

    Attributes
    ----------
    eps
        The largest eps at which the limits hold for certain; NaN if they do not even at the least that the data allow.
    smallest_eps
        The least eps that the data allow.
    """

    eps: float
    smallest_eps: float


def breakdown(
    m: npt.ArrayLike,
    C: npt.ArrayLike,
    ratio: Ratio,
    *,
    lowest: npt.ArrayLike = -np.inf,
    highest: npt.ArrayLike = np.inf,
    gap: float = np.inf,
    tolerance: float = 1e-7,
) -> Breakdown:
    """Return the largest eps at which limits of the rates of true groups still hold.

    Parameters
    ----------
    m, C, ratio
        As in :func:`sensitivity`.
    lowest, highest
        Limits of the rates, one number or shape (J,).
    gap
        Limit of the difference of any two groups; held against ``hi_a - lo_b``.
    tolerance
        What limits may be missed by, for rounding.

    Returns
    -------
    ``eps`` in [0, 1]; 1 means that the limits hold whatever the noise. Groups without a denominator do not count.
    """
    parts, which = cell_parts(m, C)
    groups = parts[0][1].shape[0]
    low = np.broadcast_to(np.asarray(lowest, dtype=np.float64), groups)
    high = np.broadcast_to(np.asarray(highest, dtype=np.float64), groups)

    def hold(eps: float) -> bool:
        space = joint_masses(parts, eps)
        ends = [_range(space, which, ratio, j) for j in range(groups)]
        known = [(e[0] - x, e[1] - y, e) for e, x, y in zip(ends, low, high, strict=True) if e is not None]
        if any(under < -tolerance or over > tolerance for under, over, _ in known):
            return False
        pairs = [a[2][1] - b[2][0] for i, a in enumerate(known) for j, b in enumerate(known) if i != j]
        return max(pairs, default=-np.inf) <= gap + tolerance

    start = smallest_eps(parts)
    if not hold(start):
        return Breakdown(np.nan, start)
    if hold(1.0):
        return Breakdown(1.0, start)
    inside, outside = start, 1.0
    while outside - inside > PRECISION:
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if hold(middle) else (inside, middle)
    return Breakdown(inside, start)


# ---------------------------------------------------------------------- transports


def transport_columns(C: npt.ArrayLike, noisy: npt.ArrayLike) -> Floats:
    """Return the table with other masses of noisy groups and the same ``P(true | noisy)``.

    Parameters
    ----------
    C
        Shape (..., J, K), of any total; leading axes may be labels.
    noisy
        Masses of noisy groups in the main data, shape (..., K).

    Raises
    ------
    ValueError
        If a noisy group of the main data has no mass in the table.
    """
    table, mass = np.asarray(C, dtype=np.float64), np.asarray(noisy, dtype=np.float64)
    have = table.sum(-2)
    if ((have <= 0) & (mass > 0)).any():
        raise ValueError("the table knows nothing of a noisy group that the main data have")
    share = np.where(have > 0, mass / np.where(have > 0, have, 1.0), 0.0)
    return np.asarray(table * share[..., None, :])


def transport_rows(C: npt.ArrayLike, noisy: npt.ArrayLike) -> Floats:
    """Return the table with other masses of noisy groups and, as far as can be, the same ``P(noisy | true)``.

    Masses of true groups are those, 0 or more, whose noise comes nearest to the noisy groups of the main data (least
    squares); what is left is put right by :func:`transport_columns`.

    Parameters
    ----------
    C, noisy
        As in :func:`transport_columns`.

    Raises
    ------
    ValueError
        If a noisy group of the main data has no mass in the result.
    """
    table, mass = np.asarray(C, dtype=np.float64), np.asarray(noisy, dtype=np.float64)
    lead = np.broadcast_shapes(table.shape[:-2], mass.shape[:-1])
    table = np.broadcast_to(table, (*lead, *table.shape[-2:]))
    mass = np.broadcast_to(mass, (*lead, mass.shape[-1]))
    true = table.sum(-1, keepdims=True)
    T = np.where(true > 0, table / np.where(true > 0, true, 1.0), 0.0)
    prior = np.zeros(true.shape[:-1])
    for at in np.ndindex(*prior.shape[:-1]):
        prior[at] = nnls(T[at].T, mass[at])[0]
    # a group that fits best without any mass keeps a trace, so that nothing is known of it rather than nothing there
    prior = np.maximum(prior, TRACE * mass.sum(-1, keepdims=True))
    return transport_columns(T * prior[..., None], mass)


def smallest_shares(C: npt.ArrayLike, noisy: npt.ArrayLike) -> Floats:
    """Return, for each true group, the table of the same ``P(noisy | true)`` in which its mass is smallest.

    For tables of a rank less than J, as with more true than noisy groups: the masses of true groups ``pi >= 0`` with
    ``T' pi`` the masses of noisy groups are a polytope then. Its vertices have no more groups than the rank, and all of
    them are looked at. Where it is empty, the tables are those of :func:`transport_rows`.

    Parameters
    ----------
    C, noisy
        As in :func:`transport_columns`.

    Returns
    -------
    Shape (J, ..., J, K): first the group that is smallest.

    Raises
    ------
    ValueError
        If a noisy group of the main data has no mass in the result, or there are more than :data:`VERTICES` choices.
    """
    table, mass = np.asarray(C, dtype=np.float64), np.asarray(noisy, dtype=np.float64)
    groups, noisy_groups = table.shape[-2:]
    nearest = transport_rows(table, mass)
    lead = nearest.shape[:-2]
    T = np.broadcast_to(table, nearest.shape)
    true = T.sum(-1, keepdims=True)
    T = np.where(true > 0, T / np.where(true > 0, true, 1.0), 0.0)
    mass = np.broadcast_to(mass, (*lead, noisy_groups))
    few = int(np.linalg.matrix_rank(T).max(initial=1))
    if math.comb(groups, few) > VERTICES:
        raise ValueError(f"there are too many ways in which {groups} groups may be recorded as {few}")
    best = np.broadcast_to(nearest.sum(-1), (groups, *lead, groups)).copy()
    known = np.zeros(lead, dtype=bool)
    for chosen in itertools.combinations(range(groups), few):
        own = np.swapaxes(T[..., list(chosen), :], -1, -2)
        some = (np.linalg.pinv(own) @ mass[..., None])[..., 0]
        fits = (some >= -MATCH).all(-1) & (
            np.abs((own @ some[..., None])[..., 0] - mass).max(-1) <= MATCH * mass.sum(-1)
        )
        prior = np.zeros((*lead, groups))
        prior[..., list(chosen)] = np.maximum(some, 0.0)
        for j in range(groups):
            less = fits & (~known | (prior[..., j] < best[j, ..., j]))
            best[j] = np.where(less[..., None], prior, best[j])
        known |= fits
    best = np.maximum(best, TRACE * mass.sum(-1, keepdims=True))
    return transport_columns(T * best[..., None], np.broadcast_to(mass, (groups, *lead, noisy_groups)))


def total_variation(p: npt.ArrayLike, q: npt.ArrayLike) -> Floats:
    """Return the total variation between distributions, shape (..., K) to (...); masses are normalised."""
    x, y = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    return np.asarray(0.5 * np.abs(x / x.sum(-1, keepdims=True) - y / y.sum(-1, keepdims=True)).sum(-1))
