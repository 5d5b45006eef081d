r"""Bounds of rates of groups seen through noise, for decisions that are drawn with known chances.

A row of noisy group ``k`` and level ``i`` is accepted with chance ``F_k(i)``. Who is recorded as what was settled
before anything was drawn, so noise may depend on level and label, and not on the draw. Cells of expected masses
(accepted, not accepted) would let it: their bounds hold, but are wider than need be. Here a row counts by its value
``v``, its chance to be in the numerator, and the unknown masses are ``q_jk(i, y)``, at most ``n_k(i, y)`` each, of sum
``C_jk``.

The lowest rate is ``min sum q v / sum q`` over rows that the rate is about. For a rate ``t`` the least of
``sum q (v - t)`` fills the levels below ``t`` first, from the lowest, then rows that the rate is not about, then the
levels above ``t``; the ratio at that ``q`` is the next ``t`` (Dinkelbach). It falls to the least ratio in few steps.
With denominators that are fixed there is nothing else to fill, and one step is all. The highest rate is one minus the
lowest of ``1 - v``.

References
----------
W. Dinkelbach, *On nonlinear fractional programming* (1967). The rest is derived above.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

STEPS = 60
"""Most steps; each is a move to another vertex, and there are few."""

STILL = 1e-13
"""Change of a rate that ends the steps."""

LABELS_OF = {
    "selection_rate": (0, 1),
    "true_positive_rate": (1,),
    "false_positive_rate": (0,),
    "accuracy": (0, 1),
}
"""Rates that are known here, with the labels of the rows that they are about."""


def level_bounds(n: npt.ArrayLike, C: npt.ArrayLike, F: npt.ArrayLike, rate: str) -> tuple[Floats, Floats]:
    """Return the sharp bounds of each true group's rate, given the table.

    Parameters
    ----------
    n
        Masses by noisy group, level and label, shape (..., K, I, 2).
    C
        Joint masses of true and noisy groups with the columns of ``n``: shape (..., J, K), or by label
        (..., 2, J, K), told apart by :func:`numpy.ndim` against that of ``n``.
    F
        Chances, shape (K, I).
    rate
        One of :data:`LABELS_OF`.

    Returns
    -------
    Lowest and highest rate, shape (..., J) each; NaN where a group has no row that the rate is about.
    """
    mass, table, chance = (np.asarray(x, dtype=np.float64) for x in (n, C, F))
    about = LABELS_OF[rate]
    values = np.stack([1.0 - chance if rate == "accuracy" else chance, chance], -1)  # K, I, label
    if table.ndim == mass.ndim:  # by label: the labels of a noisy group are noisy groups of their own
        items = np.concatenate([mass[..., y] for y in about], -2)
        value = np.concatenate([values[..., y] for y in about], 0)
        known = np.concatenate([table[..., y, :, :] for y in about], -1)
        other = np.zeros(items.shape[:-1])
    else:
        items = np.concatenate([mass[..., y] for y in about], -1)
        value = np.concatenate([values[..., y] for y in about], -1)
        known = table
        other = mass.sum((-2, -1)) - items.sum(-1)
    return _lowest(items, other, known, value), 1.0 - _lowest(items, other, known, 1.0 - value)


def _lowest(items: Floats, other: Floats, table: Floats, value: Floats) -> Floats:
    """Return the lowest mean value; items (..., K, I), other (..., K), table (..., J, K), value (K, I)."""
    order = np.argsort(value, axis=-1, kind="stable")
    v = np.take_along_axis(value, order, -1)
    w = np.take_along_axis(items, np.broadcast_to(order, items.shape), -1)[..., None, :, :]
    before, room = np.cumsum(w, -1) - w, np.maximum(other, 0.0)[..., None, :, None]
    amount = table[..., None]
    t = np.full(table.shape[:-1], np.inf)  # at first all levels before the rest
    for _ in range(STEPS):
        q = np.clip(amount - before - room * (v >= t[..., None, None]), 0.0, w)
        bottom = q.sum((-2, -1))
        some = bottom > 0
        new = np.where(some, (q * v).sum((-2, -1)) / np.where(some, bottom, 1.0), t)
        done = ~(new < t - STILL)
        t = np.minimum(new, t)
        if done.all():
            break
    return np.where(np.isinf(t), np.nan, t)
