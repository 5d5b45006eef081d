"""Masses of true groups if noise depends on nothing but the true group (and the label, for a table by label).

With ``T_jk = P(noisy = k | true = j)`` the masses of the true groups' cells solve ``m = T' M``. A rate of ``M`` may
leave [0, 1]; that is sampling error or a wrong assumption, and is not clipped. Only for decisions that do not look at
the noisy group, or with the cells of each noisy group's rule: then ``M_j = sum_k T_jk M_j(rule k)``. Derivations are in
``docs/methods/noise.md``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairfix.noise.label_shift import noise_of
from fairfix.noise.rates import CELLS_OF_LABEL, Floats, Ratio, quotient


@dataclass(frozen=True, eq=False)
class Inversion:
    """Masses of true groups, from those of noisy groups."""

    masses: Floats
    """Cells of true groups, shape (..., J, 4); may be negative, and are NaN for a replicate that has no inverse."""
    weights: Floats
    """Left inverse ``A`` of ``T'``, shape (..., J, K), or by label (..., 2, J, K)."""
    residual: Floats
    """``m - T' M``, shape (..., K, 4): 0 if K = J, and what contradicts the assumption if K > J."""


def left_inverse(C: Floats) -> tuple[Floats, Floats]:
    """Return ``T`` and the left inverse of ``T'``, shapes (..., J, K).

    With more noisy than true groups, squares are weighed by the inverse mass of the noisy group, to which the variance
    of a cell is in proportion. Replicates that cannot be inverted are NaN.

    Raises
    ------
    ValueError
        If there are fewer noisy than true groups, or one table alone has no inverse.
    """
    groups, noisy = C.shape[-2:]
    T = noise_of(C)
    rank = np.linalg.matrix_rank(T)
    full = rank >= groups
    if noisy < groups or (C.ndim == 2 and not full):
        raise ValueError(
            f"the table has rank {int(rank.min())} for {groups} true groups: masses of true "
            "groups are not identified; use bounds"
        )
    mass = C.sum(-2)[..., None]
    root = np.sqrt(quotient(np.ones(1), mass, 0.0))
    weights = np.linalg.pinv(root * np.swapaxes(T, -1, -2)) * np.swapaxes(root, -1, -2)
    return T, np.where(full[..., None, None], weights, np.nan)


def invert(m: Floats, C: Floats, rules: Floats | None = None, *, by_label: bool = False) -> Inversion:
    """Return the masses of true groups; ValueError as :func:`left_inverse`.

    Parameters
    ----------
    m, C
        Masses of the cells in noisy groups, shape (..., K, 4), and a table with the right ``P(noisy | true)``, shape
        (..., J, K), or by label (..., 2, J, K); its columns may have any masses.
    rules
        For decisions that look at the noisy group, shape (..., K, K, 4): first the noisy group whose rule is applied,
        to all rows; then the noisy group of the row. A true group has each rule as often as it is recorded so.
    """
    masses, left, weights = [], [], []
    for y in (1, 0) if by_label else (None,):
        own = range(4) if y is None else CELLS_OF_LABEL[y]
        T, inverse = left_inverse(C if y is None else C[..., y, :, :])
        mass = inverse @ m[..., own]
        left.append(m[..., own] - np.swapaxes(T, -1, -2) @ mass)
        weights.append(inverse)
        if rules is not None:
            mass = np.einsum("...jr,...rjc->...jc", T, inverse[..., None, :, :] @ rules[..., own])
        masses.append(mass)
    return Inversion(
        np.concatenate(masses, -1),
        np.stack(weights[::-1], -3) if by_label else weights[0],
        np.concatenate(left, -1),
    )


def standard_error(m: Floats, inversion: Inversion, ratio: Ratio, rows: float) -> Floats:
    r"""Return the standard error of a rate of inverted masses, shape (..., J), the table taken as known.

    A row of noisy group k moves the rate of group j by ``A_jk (1[A] - rate_j 1[A or B]) / P_j``, with ``P_j`` the
    denominator. Its mean is 0, so ``se_j^2 = sum_k A_jk^2 { a_k (1 - r_j)^2 + b_k r_j^2 } / (n P_j^2)``.
    Masses ``m`` are of total 1; ``rows`` is the effective number of rows behind them.
    """
    bottom = np.add(*ratio.masses(inversion.masses))
    by_label = inversion.weights.ndim > inversion.masses.ndim
    r = ratio.of(inversion.masses)[..., None]
    square = np.zeros_like(bottom)
    for c, label in enumerate((1, 1, 0, 0)):
        step = (1.0 - r) if ratio.a[c] else r if ratio.b[c] else 0.0 * r
        weights = inversion.weights[..., label, :, :] if by_label else inversion.weights
        square = square + (weights**2 * m[..., None, :, c] * step**2).sum(-1)
    return quotient(np.sqrt(square / rows), bottom)
