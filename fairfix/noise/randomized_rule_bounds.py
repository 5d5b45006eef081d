"""Bounds of rates of true groups, for decisions that are drawn with given probabilities after the recording.

A row of noisy group ``k`` and level ``i`` is accepted with probability ``F_k(i)``. Noise may depend on level and label,
and not on the draw. A row counts by its value ``v``, its probability to be in the numerator; the lowest rate is ``min
sum q v / sum q`` over masses ``q_jk(i, y)`` of at most ``n_k(i, y)`` and sum ``C_jk``.

1. For a rate ``t``, fill the levels below ``t`` first, then rows that the rate is not about, then the others.
2. The ratio at that ``q`` is the next ``t`` (Dinkelbach), until it stays. With fixed denominators one step is all.
3. The highest rate is one minus the lowest of ``1 - v``.

Within a ball of total variation around a recorded group, the masses are that group's but for a part, which is taken
from the end of the same order and goes to the lowest value that anybody can have.

Source: W. Dinkelbach, *On nonlinear fractional programming* (1967); ``docs/methods/noise.md``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fairfix.noise.bounds import Pair
from fairfix.noise.rates import LABELS, Floats, quotient

STEPS = 60
"""Most steps; each is a move to another vertex, and there are few."""

STILL = 1e-13
"""Change of a rate that ends the steps."""


def level_bounds(n: Floats, C: Floats, F: Floats, rate: str) -> Pair:
    """Return the sharp bounds of each true group's rate, given the table, shape (..., J) each.

    Masses ``n`` are by noisy group, level and label, shape (..., K, I, 2); the table has their columns, shape (..., J,
    K) or by label (..., 2, J, K); ``F`` are probabilities to be accepted, shape (K, I). NaN where a group has no row
    that the rate is about.
    """
    about, counted = LABELS[rate], _counted(F, rate)
    by_label = C.ndim == n.ndim  # the labels of a noisy group are noisy groups of their own then
    items = np.concatenate([n[..., y] for y in about], -2 if by_label else -1)
    value = np.concatenate([counted[..., y] for y in about], 0 if by_label else -1)
    table = np.concatenate([C[..., y, :, :] for y in about], -1) if by_label else C
    other = np.zeros(items.shape[:-1]) if by_label else n.sum((-2, -1)) - items.sum(-1)
    each = items[..., None, :, :], other[..., None, :], table
    return _lowest(*each, value), 1.0 - _lowest(*each, 1.0 - value)


def _counted(F: Floats, rate: str) -> Floats:
    """Return the probability of a row to be in the numerator of a rate, by label, shape (K, I, 2)."""
    return np.stack([1.0 - F if rate == "accuracy" else F, F], -1)


def ball_bounds(
    n: Floats,
    radii: Floats,
    F: Floats,
    rate: str,
    accepted: Floats | None = None,
    home: npt.NDArray[np.int64] | None = None,
) -> Pair:
    """Return the sharp bounds of each true group's rate within radii of total variation, shape (..., J) each.

    ``n`` and ``F`` as in :func:`level_bounds`, radii (..., J), ``home`` the number of the noisy group that each true
    group is near, (J,) (None: that of like number). The lowest rate leaves out the radius of that group's mass from the
    top of the order above, and puts it on the lowest of all probabilities to be ``accepted`` (default: those of ``F``).
    Whether these rows have such a row of the right label does not matter, since others may.
    """
    about, every, counted = LABELS[rate], F if accepted is None else accepted, _counted(F, rate)
    items = np.concatenate([n[..., y] for y in about], -1)
    value = np.concatenate([counted[..., y] for y in about], -1)
    total = n.sum((-2, -1))
    if home is not None:
        items, value, total = items[..., home, :], value[home], total[..., home]
    share = quotient(items, total[..., None], 0.0)
    other = quotient(total, total, 0.0) - share.sum(-1)
    least, most = float(every.min()), float(every.max())
    if rate == "accuracy":
        least, most = min(least, 1.0 - most), max(most, 1.0 - least)
    moved = np.where(total > 0, radii, 1.0)
    moved = np.broadcast_to(moved, other.shape)
    each, v = (share[..., None, :], other[..., None], (1.0 - moved)[..., None]), value[:, None]
    return _lowest(*each, v, moved, least), 1.0 - _lowest(*each, 1.0 - v, moved, 1.0 - most)


def _lowest(
    items: Floats,
    other: Floats,
    amount: Floats,
    value: Floats,
    moved: Floats | float = 0.0,
    floor: float = 0.0,
) -> Floats:
    """Return the lowest mean value of an amount of each noisy group's rows, and of moved mass at the floor.

    Items and values (..., J or 1, K, I), others (..., J or 1, K), amounts (..., J, K), and moved mass (..., J).
    """
    order = np.argsort(value, axis=-1, kind="stable")
    v = np.take_along_axis(value, order, -1)
    w = np.take_along_axis(items, np.broadcast_to(order, items.shape), -1)
    before, room = np.cumsum(w, -1) - w, np.maximum(other, 0.0)[..., None]
    t = np.full(amount.shape[:-1], np.inf)  # at first all levels before the rest
    for _ in range(STEPS):
        q = np.clip(amount[..., None] - before - room * (v >= t[..., None, None]), 0.0, w)
        bottom = q.sum((-2, -1)) + moved
        new = np.where(bottom > 0, quotient((q * v).sum((-2, -1)) + moved * floor, bottom), t)
        done = ~(new < t - STILL)
        t = np.minimum(new, t)
        if done.all():
            break
    return np.where(np.isinf(t), np.nan, t)
