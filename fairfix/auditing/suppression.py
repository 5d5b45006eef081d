"""Suppression: which groups a report must not show, so that the size of a small one cannot be computed.

A group with fewer rows than a limit ``N`` is *small*; its table row is left out. That alone does not hide it: the total
minus the groups shown is its size, and so may be the difference of two tables. So other groups are hidden too, until
every small group's size could, for all that is published, be any of a range of numbers ``N/2`` wide or wider.

What is published are sums of the sizes ``x >= 0`` of the finest cells (strata by protected columns): the total, and
every group shown of every attribute, intersection and stratum. The range of a small group is the smallest and the
largest value of its sum under these equations, two linear programs. All other counts of a report, such as selections,
positives and score bins, are sums over the same cells, so what the equations leave open for rows stays open for them.

Hidden besides is the smallest group shown whose equation keeps the range narrow (it has a price in the program), of the
same table if there is one, with every group that is a part of it. At last, those that turn out not to be needed are
shown again. That finds a pattern that holds, not always the one with the fewest groups.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fairfix.data.counts import Bools, Floats, Ints

TOLERANCE, FITS = 1e-6, 1e-3
"""A price of a program above 0, and rows by which its sizes may miss what is published: far above its rounding."""
TRIED = 100
"""Groups hidden for others that are tried without, at most."""


def hidden_groups(
    partitions: Sequence[tuple[Ints, int]], rows: Ints, least: int, pairs: Sequence[bool]
) -> list[Bools]:
    """Return which groups of each table to hide.

    Parameters
    ----------
    partitions
        Per table: the group of every cell, -1 where the cell is in none, and the number of groups.
    rows
        (C,) rows in every cell.
    least
        A group with fewer rows is small.
    pairs
        Per table, whether one with hidden groups is left out unless two are shown.
    """
    members = [group[None] == np.arange(size)[:, None] for group, size in partitions]
    sizes = [inside @ rows for inside in members]
    hidden = [size < least for size in sizes]
    small = [(t, int(g)) for t, hide in enumerate(hidden) for g in np.flatnonzero(hide)]
    if not small:
        return hidden
    width = (least + 1) // 2
    wanted = np.array([members[t][g] for t, g in small], dtype=np.float64)
    sizes_of_cells = [rows.astype(np.float64)]

    def exposed() -> tuple[int, list[tuple[int, int]]] | None:
        """Return which small group is exposed, and by which groups shown; None if none is."""
        shown = [(t, int(g)) for t, hide in enumerate(hidden) for g in np.flatnonzero(~hide)]
        published = np.array([np.ones(rows.size), *(members[t][g] for t, g in shown)], dtype=np.float64)
        narrow = _exposed(published, sizes_of_cells, wanted, width)
        if narrow is None or not shown:
            return None
        used = [one for one, binds in zip(shown, narrow[1][1:], strict=True) if binds]
        return narrow[0], used or shown

    def leave_out() -> None:
        for table, pair in enumerate(pairs):
            if pair and hidden[table].any() and (~hidden[table]).sum() < 2:
                hidden[table][:] = True

    leave_out()
    while (narrow := exposed()) is not None:
        one, used = narrow
        own = [group for group in used if group[0] == small[one][0]]
        table, group = min(own or used, key=lambda one: (sizes[one[0]][one[1]], one))
        for inside, hide in zip(members, hidden, strict=True):  # and its parts, whose sum it is
            hide[~(inside & ~members[table][group]).any(axis=1)] = True
        leave_out()
    covers = [
        (t, int(g))
        for t, hide in enumerate(hidden)
        for g in np.flatnonzero(hide & (sizes[t] >= least))
        if not (pairs[t] and hide.all())
    ]
    for table, group in sorted(covers, key=lambda one: (one[0], -sizes[one[0]][one[1]]))[:TRIED]:
        hidden[table][group] = False
        hidden[table][group] = exposed() is not None
    return hidden


def _exposed(published: Floats, sizes: list[Floats], groups: Floats, width: int) -> tuple[int, Bools] | None:
    """Return the first group whose size lies in a range narrower than ``width``, and the sums that keep it there.

    ``sizes`` are sizes of the cells, the true ones first; those of a program are added, to serve other questions too.
    """
    from scipy.optimize import linprog

    total = published @ sizes[0]
    fits = np.abs(published @ np.array(sizes).T - total[:, None]).max(axis=0) < FITS
    seen = groups @ np.array(sizes).T[:, fits]
    low, high = seen.min(axis=1), seen.max(axis=1)
    for i, inside in enumerate(groups):
        used = np.zeros(len(published), dtype=bool)
        for sign in (-1.0, 1.0):  # the largest, then the smallest size that fits what is published
            if high[i] - low[i] >= width - TOLERANCE:
                break
            done = linprog(sign * inside, A_eq=published, b_eq=total, bounds=(0, None), method="highs")
            if done.x is None:
                continue
            sizes.append(done.x)
            reached = groups @ done.x  # of the other groups too
            low, high = np.minimum(low, reached), np.maximum(high, reached)
            used |= np.abs(done.eqlin.marginals) > TOLERANCE
        if high[i] - low[i] < width - TOLERANCE:
            return i, used
    return None
