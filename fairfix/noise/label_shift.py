"""Tables of other people, carried over to the noisy groups of the data.

A table has joint masses of true and noisy groups, shape (..., J, K), of any total; leading axes may be labels or
replicates. The data have masses of noisy groups, shape (..., K). Either ``P(true | noisy)`` or ``P(noisy | true)``
stays.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from fairfix.noise.rates import Floats, quotient

MATCH = 1e-8
"""Largest difference of a column of a table to its noisy group's mass that counts as rounding."""

TRACE = 1e-9
"""Mass of a true group that fits best without any, in all: so nothing is known of it, rather than nothing there."""

VERTICES = 500
"""Choices of true groups that :func:`smallest_shares` looks at; each is an inversion per draw."""


def transport_columns(C: Floats, noisy: Floats) -> Floats:
    """Return the table with the data's masses of noisy groups and its own ``P(true | noisy)``.

    ValueError if a noisy group of the data has no mass in the table.
    """
    have = C.sum(-2)
    if ((have <= 0) & (noisy > 0)).any():
        raise ValueError("the table lacks a noisy group that the data have")
    return np.asarray(C * quotient(noisy, have, 0.0)[..., None, :])


def noise_of(C: Floats, empty: float = 0.0) -> Floats:
    """Return ``P(noisy | true)``, shape (..., J, K); ``empty`` for a true group without mass."""
    return quotient(C, C.sum(-1, keepdims=True), empty)


def transport_rows(C: Floats, noisy: Floats) -> Floats:
    """Return the table with the data's masses of noisy groups and, as far as can be, its own ``P(noisy | true)``.

    Masses of true groups are those, 0 or more, whose noise comes nearest to the noisy groups of the data (least
    squares); what is left is put right by :func:`transport_columns`, which see for errors.
    """
    from scipy.optimize import nnls  # 0.3 s, which an audit without noise need not wait for

    lead = np.broadcast_shapes(C.shape[:-2], noisy.shape[:-1])
    T = noise_of(np.broadcast_to(C, (*lead, *C.shape[-2:])))
    mass = np.broadcast_to(noisy, (*lead, noisy.shape[-1]))
    prior = np.zeros(T.shape[:-1])
    for at in np.ndindex(*lead):
        prior[at] = nnls(T[at].T, mass[at])[0]
    prior = np.maximum(prior, TRACE * mass.sum(-1, keepdims=True))
    return transport_columns(T * prior[..., None], mass)


def smallest_shares(C: Floats, noisy: Floats) -> Floats:
    """Return, for each true group, the table with its own ``P(noisy | true)`` in which the group's mass is smallest.

    For tables of a rank less than J, as with more true than noisy groups: the masses of true groups ``pi >= 0`` with
    ``T' pi`` the masses of noisy groups are a polytope then. Its vertices have no more groups than the rank, and all of
    them are looked at (ValueError beyond :data:`VERTICES`). Where it is empty, the tables are those of
    :func:`transport_rows`. Of shape (J, ..., J, K): first the group that is smallest.
    """
    groups, noisy_groups = C.shape[-2:]
    nearest = transport_rows(C, noisy)
    lead = nearest.shape[:-2]
    T = noise_of(np.broadcast_to(C, nearest.shape))
    mass = np.broadcast_to(noisy, (*lead, noisy_groups))
    few = int(np.linalg.matrix_rank(T).max(initial=1))
    if math.comb(groups, few) > VERTICES:
        raise ValueError(f"there are too many ways to record {groups} groups as {few}")
    best = np.broadcast_to(nearest.sum(-1), (groups, *lead, groups)).copy()
    any_fits = np.zeros(lead, dtype=bool)
    for chosen in itertools.combinations(range(groups), few):
        own = np.swapaxes(T[..., list(chosen), :], -1, -2)
        shares = (np.linalg.pinv(own) @ mass[..., None])[..., 0]
        off = np.abs((own @ shares[..., None])[..., 0] - mass).max(-1)
        fits = (shares >= -MATCH).all(-1) & (off <= MATCH * mass.sum(-1))
        prior = np.zeros((*lead, groups))
        prior[..., list(chosen)] = np.maximum(shares, 0.0)
        for j in range(groups):
            less = fits & (~any_fits | (prior[..., j] < best[j, ..., j]))
            best[j] = np.where(less[..., None], prior, best[j])
        any_fits |= fits
    best = np.maximum(best, TRACE * mass.sum(-1, keepdims=True))
    return transport_columns(T * best[..., None], np.broadcast_to(mass, (groups, *lead, noisy_groups)))


def total_variation(p: Floats, q: Floats) -> Floats:
    """Return the total variation between distributions, shape (..., K) to (...); masses are normalised."""
    return np.asarray(0.5 * np.abs(p / p.sum(-1, keepdims=True) - q / q.sum(-1, keepdims=True)).sum(-1))
