"""Sharp bounds of the rates of true groups in closed form, from masses by noisy group and a table or radii.

The data give masses ``m_k(c)`` of the cells TP, FN, FP, TN in every noisy group ``k``, shape (..., K, 4), of total 1. A
table gives ``C_jk``, the joint mass of true group ``j`` and noisy group ``k``, shape (..., J, K), or by label
``C^y_jk``, shape (..., 2, J, K), with the columns of the data. With ``a_k, b_k, t_k`` the masses of A, of B and of all
cells in noisy group k, the lowest rate ``A / (A + B)`` of group j is

* given a table, ``x / (x + y)`` with ``x = sum_k (C_jk - t_k + a_k)_+`` and ``y = sum_k min(b_k, C_jk)``; if it is by
  label, the two labels of noisy groups are 2 K noisy groups
* given radii, ``(a - gamma_j)_+ / (a + b)`` with shares of the noisy group that j is near

and the highest rate follows with A and B exchanged. Rates without a denominator are NaN. That the bounds are sharp is
shown in ``docs/methods/noise.md``.

References
----------
S. Wang, W. Guo, H. Narasimhan, A. Cotter, M. Gupta and M. I. Jordan, *Robust optimization for fairness with noisy
protected groups* (2020), for the ball and the soft assignments.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fairfix.noise.label_shift import MATCH
from fairfix.noise.rates import CELLS_OF_LABEL, RATIOS, Floats, Ratio, quotient

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Pair = tuple[Floats, Floats]
"""Lowest and highest rates, shape (..., J) each."""


def masses_of(cells: Floats, *, by_label: bool) -> Floats:
    """Return the masses of noisy groups, shape (..., K), or by label (..., 2, K)."""
    if not by_label:
        return np.asarray(cells.sum(-1))
    return np.stack([cells[..., own].sum(-1) for own in CELLS_OF_LABEL], -2)


def require_fit(cells: Floats, table: Floats, *, by_label: bool = False) -> None:
    """Refuse shapes, signs and columns that do not fit one another (ValueError)."""
    if cells.ndim < 2 or cells.shape[-1] != 4:
        raise ValueError(f"masses must have shape (..., K, 4), got {cells.shape}")
    if table.ndim < 2 + by_label or table.shape[-1] != cells.shape[-2] or (by_label and table.shape[-3] != 2):
        raise ValueError(
            f"the table must have shape (...,{' 2,' if by_label else ''} J, K), "
            f"got {table.shape} for {cells.shape[-2]} noisy groups"
        )
    if not (cells.min(initial=0.0) >= 0 and table.min(initial=0.0) >= 0):
        raise ValueError("masses must be 0 or more, and numbers")
    if np.abs(table.sum(-2) - masses_of(cells, by_label=by_label)).max(initial=0.0) > MATCH:
        raise ValueError("columns of the table must have the masses of the noisy groups: transport it first")


IS_OF_LABEL = np.array([[cell in own for cell in range(4)] for own in CELLS_OF_LABEL])
"""Label -> whether each cell is of it; training asks at every step."""


def split_labels(m: Floats, C: Floats) -> Pair:
    """Return masses and table; if it is by label, with the labels of a noisy group as noisy groups of their own."""
    if C.ndim == m.ndim:
        return m, C
    parts = [m * own for own in IS_OF_LABEL]
    return np.concatenate(parts, -2), np.concatenate([C[..., 0, :, :], C[..., 1, :, :]], -1)


def table_bounds(m: Floats, C: Floats, ratio: Ratio) -> Pair:
    """Return the sharp bounds of each true group's rate, given a table, by label or not, shape (..., J) each.

    Where a group may be without a denominator, the bounds are those of the rate whenever it is defined; where it must
    be, they are NaN. What a group leaves of a cell goes to the others, so each group is a knapsack by itself.
    """
    require_fit(m, C, by_label=C.ndim > m.ndim)
    return open_bounds(m, C, C, ratio)


def open_bounds(m: Floats, least: Floats, most: Floats, ratio: Ratio) -> Pair:
    """Return the bounds of each true group's rate where each entry of a table lies between two, shape (..., J) each.

    They are sharp if all entries of a true group may lie where they like at once.
    """
    cells, low = split_labels(m, least)
    _, high = split_labels(m, most)
    a, b = (part[..., None, :] for part in ratio.masses(cells))
    rest = cells @ (1.0 - np.array(ratio.a) - np.array(ratio.b))
    rest = rest[..., None, :]
    least_a = np.maximum(low - (b + rest), 0.0).sum(-1)
    most_a = np.minimum(a, high).sum(-1)
    least_b = np.maximum(low - (a + rest), 0.0).sum(-1)
    most_b = np.minimum(b, high).sum(-1)
    lo = np.where(most_b > 0, quotient(least_a, least_a + most_b), np.where(most_a > 0, 1.0, np.nan))
    hi = np.where(most_a > 0, quotient(most_a, most_a + least_b), np.where(most_b > 0, 0.0, np.nan))
    return lo, hi


def tv_bounds(m: Floats, gamma: npt.ArrayLike, ratio: Ratio, home: Ints | None = None) -> Pair:
    """Return the sharp bounds over all distributions near that of a noisy group, shape (..., J) each.

    Parameters
    ----------
    m
        Shape (..., K, 4).
    gamma
        Radii in total variation, shape (..., J), or one number.
    ratio
        The rate. Distributions live where the data live: if no group has B, the rate is 1, and if none has A, it is 0.
        An empty noisy group has no centre and allows every distribution.
    home
        Number of the noisy group that each true group is near, shape (J,); None: that of like number.
    """
    own_m = m if home is None else m[..., home, :]
    total = own_m.sum(-1)
    radius = np.where(total > 0, gamma, 1.0)
    a, b = (quotient(part, total, 0.0) for part in ratio.masses(own_m))
    any_a, any_b = (part.sum(-1, keepdims=True) > 0 for part in ratio.masses(m))
    own = a + b > 0
    lo = np.where(own, quotient(np.maximum(a - radius, 0.0), a + b), np.where(radius > 0, 0.0, np.nan))
    hi = np.where(own, 1.0 - quotient(np.maximum(b - radius, 0.0), a + b), np.where(radius > 0, 1.0, np.nan))
    lo = np.where(any_b, lo, np.where(any_a, lo * 0.0 + 1.0, np.nan))
    hi = np.where(any_a, hi, np.where(any_b, hi * 0.0, np.nan))
    return lo, hi


def widest(bounds: list[Pair]) -> Pair:
    """Return the lowest and the highest ends of all that may be, of what is defined."""
    low, high = zip(*bounds, strict=True)
    return np.fmin.reduce(low), np.fmax.reduce(high)


def _radius(C: Floats, mass: Floats, home: Ints | None = None) -> Floats:
    """Return the share of a mass, (..., J), that is not in the noisy group each true one is near; 1 without mass."""
    both = C[..., np.arange(C.shape[-2]), np.arange(C.shape[-2]) if home is None else home]
    return np.clip(1.0 - quotient(both, mass, 0.0), 0.0, 1.0)


def valid_radius(C: Floats, home: Ints | None = None) -> Floats:
    """Return a bound of the total variation between true and noisy group that always holds, (..., J, K) to (..., J).

    It is ``1 - C_jk / max(P(G = j), P(noisy = k))`` with ``k`` the noisy group that ``j`` is near, ``home``, shape (J,)
    (None: that of like number): both share the mass ``C_jk`` of one distribution.
    """
    noisy = C.sum(-2)
    return _radius(C, np.maximum(C.sum(-1), noisy if home is None else noisy[..., home]), home)


def conditional_radius(C: Floats) -> Floats:
    """Return ``P(noisy != j | G = j)``, which bounds the total variation only if both marginals are equal."""
    return _radius(C, C.sum(-1))


def vacuous(m: Floats, C: Floats, ratio: Ratio = RATIOS["true_positive_rate"]) -> Bools:
    """Return where no decision rule can have a bound of any use, given the table without labels, shape (..., J).

    If ``C_jk <= P(other label, noisy = k)`` for all k, group j may lie in the other label wholly but for what the
    adversary chooses: the lowest rate is 0 as soon as some noisy group with ``C_jk > 0`` has B, and the highest is 1
    as soon as one has A. Labels alone say this, so no rule is free of it. False for a group without mass.
    The rate is the true or the false positive rate.
    """
    require_fit(m, C)
    other = m @ (1.0 - np.array(ratio.rows))
    fits = (other[..., None, :] >= C).all(-1)
    return np.asarray(fits & (C.sum(-1) > 0))
