"""Atoms: neighbouring scores that are taken together, where they begin and where they end."""

from __future__ import annotations

import numpy as np

from fairfix.solvers.arrays import Floats, Ints


def cuts(knots: Floats, mass: Floats, most: int) -> Ints:
    """Return where atoms begin, so that there are about ``most``: as even in mass as in what pooling them costs.

    Pooling costs least where bins are even in ``(density)^{1/3}`` (Panter and Dite, 1951); heavy scores stand alone.
    """
    if knots.size <= most:
        return np.arange(knots.size)
    gap = np.gradient(knots)
    cost = np.cumsum(np.cbrt(mass * gap**2))
    even = np.cumsum(mass)
    heavy = mass > even[-1] / most
    bin_ = np.floor(0.5 * most * ((even - mass / 2) / even[-1] + cost / cost[-1]))
    new = np.diff(bin_) > 0
    return np.flatnonzero(np.concatenate([[True], new | heavy[1:] | heavy[:-1]]))


def of_least(first: Ints, rows: Floats | Ints, least: int) -> Ints:
    """Return where atoms of at least ``least`` rows begin, made of neighbouring ones; ``rows`` are those of each score.

    What is left at the end belongs to the last atom.
    """
    if least <= 1:
        return first
    upto = np.append(0, np.cumsum(np.add.reduceat(rows, first)))
    starts = [0]
    while upto[-1] - upto[starts[-1]] >= 2 * least:
        after = int(np.searchsorted(upto, upto[starts[-1]] + least))
        if upto[-1] - upto[after] < least:
            break
        starts.append(after)
    return first[starts]


def ends_between(knots: Floats, first: Ints, last: Ints, mean: Floats) -> tuple[Floats, Floats]:
    """Return the ends of atoms, which are no scores of single rows: in the middle between two atoms.

    Only an atom that is one score, of many rows, ends at it. The outermost ends are means, since scores beyond them
    belong to the same atom.
    """
    between = (knots[last[:-1]] + knots[first[1:]]) / 2
    alone = first == last
    low = np.where(alone, knots[first], np.append(mean[0], between))
    high = np.where(alone, knots[last], np.append(between, mean[-1]))
    return low, np.maximum(low, high)
