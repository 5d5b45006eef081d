"""Selection: which slices are shown to be worse, without those that others explain.

Without held-out rows the limits of all slices of the lattice hold at once (Bonferroni over as many as have enough rows,
which the features alone decide). With them, the slices proposed by one part of the rows are tested on the other, step
by step (Holm). A tenth of ``alpha`` goes to the overall value: a slice is worse than all rows together where, and only
where, it is worse than the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from fairfix.auditing.slicing.quantity import Interval
from fairfix.auditing.slicing.search import Cells, Place, Pool, cubes, most_slices, search
from fairfix.data.counts import Bools, Floats
from fairfix.data.row_filter import Condition

OF_WHOLE = 0.1
"""Part of ``alpha`` for the overall value, and for the rest of a larger slice."""

MOST = 10
"""Slices that are reported, or proposed to the held-out rows."""


@dataclass(frozen=True)
class SliceEstimate:
    """A slice with its estimate; of held-out rows where rows are held out."""

    condition: Condition
    rows: int
    value: float
    low: float
    high: float
    excess: float
    """By how much it is shown to be worse than all rows; not above 0 where it is not."""
    worse: bool
    error: float | None
    """Fraction of the whole error that is in the slice."""
    proposed: tuple[int, float] | None = None
    """Rows and value among the rows that proposed it, where others confirm it."""


@dataclass(frozen=True)
class Searched:
    """Results of a search: the overall interval, and slices from the worst."""

    searched: int
    rows: int
    """Rows that the estimates are of."""
    overall: tuple[float, float, float]
    slices: tuple[SliceEstimate, ...]
    extreme: tuple[float, float, float] | None = None
    """The worst value of all slices and its limits; None where nothing was asked of it."""
    extreme_slice: Condition | None = None
    """The slice with the worst value."""
    more: bool = False
    """Whether more slices than are reported are shown to be worse."""


def _one(interval: Interval) -> tuple[float, float, float]:
    value, low, high = (float(one) for one in interval)
    return value, low, high


def searched(cells: Cells, least: int, alpha: float, *, extreme: bool = False) -> Searched:
    """Return the slices shown to be worse, by limits that hold for all slices of at least ``least`` rows at once."""
    cells = cells.merged()
    quantity, table = cells.quantity, cells.table()
    pool = search(cells, least, alpha * (1.0 - OF_WHOLE))
    each = alpha * (1.0 - OF_WHOLE) / max(pool.searched, 1)
    whole = quantity.limits(table, alpha * OF_WHOLE)
    chosen = list(_non_redundant(cells, pool, (each, each), whole, alpha))
    out = tuple(_estimate(cells, place, pool.tables[place], table, each, whole) for place in chosen[:MOST])
    most, where = _extreme(cells, least, alpha * (1.0 - OF_WHOLE)) if extreme else (None, None)
    rows = int(quantity.rows(table))
    return Searched(pool.searched, rows, _one(whole), out, most, where, len(chosen) > MOST)


def confirmed(cells: Cells, held: Bools, least: int, alpha: float) -> Searched:
    """Return the slices that the other rows propose, with tests and limits from the held-out rows."""
    proposing, tested = cells.take(np.flatnonzero(~held)).merged(), cells.take(np.flatnonzero(held)).merged()
    rest, quantity = alpha * (1.0 - OF_WHOLE), tested.quantity
    table, fraction = tested.table(), float(np.mean(held))
    pool = search(proposing, max(int(least * (1.0 - fraction)), 1), rest)
    enough = {
        place: own
        for place, own in pool.tables.items()
        if quantity.rows(own) + quantity.rows(tested.table(tested.holds(place))) >= least
    }
    pool = replace(pool, tables=enough)
    overall = proposing.quantity.limits(proposing.table(), alpha)
    proposals = list(_non_redundant(proposing, pool, (rest, rest / max(pool.searched, 1)), overall, alpha))[
        :MOST
    ]
    tables = [tested.table(tested.holds(place)) for place in proposals]
    whole = quantity.limits(table, alpha * OF_WHOLE)
    shown = set[int]()
    while left := len(proposals) - len(shown):  # Holm: what is shown leaves more of alpha to the others
        new = {
            i
            for i, own in enumerate(tables)
            if i not in shown and quantity.excess(quantity.limits(own, rest / left), whole) > 0
        }
        if not new:
            break
        shown |= new
    each = rest / max(len(proposals), 1)
    out = []
    for i, place in enumerate(proposals):
        one = _estimate(tested, place, tables[i], table, each, whole)
        then = pool.tables[place]
        value = float(proposing.quantity.limits(then, alpha)[0])
        proposed = int(proposing.quantity.rows(then)), value
        out.append(replace(one, worse=i in shown, proposed=proposed))
    out.sort(key=lambda one: (not one.worse, -one.excess, str(one.condition)))
    worst, where = _worst_of(cells, out)
    return Searched(pool.searched, int(quantity.rows(table)), _one(whole), tuple(out), worst, where)


def _estimate(
    cells: Cells, place: Place, table: Floats, whole_table: Floats, each: float, whole: Interval
) -> SliceEstimate:
    quantity = cells.quantity
    interval = quantity.limits(table, each)
    own, total = quantity.error(table), quantity.error(whole_table)
    error = float(own / total) if own is not None and total is not None and total > 0 else None
    excess = float(quantity.excess(interval, whole))
    rows = int(quantity.rows(table))
    return SliceEstimate(cells.condition(place), rows, *_one(interval), excess, excess > 0, error)


def _non_redundant(
    cells: Cells, pool: Pool, levels: tuple[float, float], whole: Interval, alpha: float
) -> Iterator[Place]:
    """Yield slices shown to be worse at the first of two levels, from the worst, up to one more than are reported.

    A slice is left out where a more general one is shown to be worse too, and the slice is not shown to be worse than
    the rest of that; and where its rows outside of all slices before it are not shown to be worse themselves, or not
    worse than those of a more general one. The second level is of the comparison with more general ones.
    """
    quantity, places, (each, strict) = cells.quantity, list(pool.tables), levels
    if not places:
        return
    tables = np.stack([pool.tables[place] for place in places])
    excess = quantity.excess(quantity.limits(tables, each), whole)
    all_tables = dict(pool.tables)
    shown = {place: bool(excess[i] > 0) for i, place in enumerate(places)}
    kept, covered = list[Place](), np.zeros(len(cells), dtype=bool)

    def table_of(place: Place) -> Floats:
        if place not in all_tables:
            all_tables[place] = cells.table(cells.holds(place))
        return all_tables[place]

    def is_worse(table: Floats, than: Interval, level: float = each) -> bool:
        return bool(quantity.excess(quantity.limits(table, level), than) > 0)

    def is_shown(place: Place) -> bool:
        if place not in shown:
            shown[place] = is_worse(table_of(place), whole)
        return shown[place]

    def is_explained(table: Floats, larger: Floats) -> bool:
        """Tell whether a part of a larger slice is not shown to be worse than the rest of that."""
        rest = larger - table
        return bool(quantity.rows(rest) <= 0) or not is_worse(
            table, quantity.limits(rest, alpha * OF_WHOLE), strict
        )

    order = sorted(
        np.flatnonzero(excess > 0).tolist(),
        key=lambda i: (-excess[i], len(places[i]), str(cells.condition(places[i]))),
    )
    for i in order:
        place, own = places[i], tables[i]
        larger = [one for many in range(1, len(place)) for one in combinations(place, many) if is_shown(one)]
        if any(is_explained(own, table_of(one)) for one in larger):
            continue
        here = cells.holds(place)
        if not any(set(one) < set(place) for one in kept):
            left = cells.table(here & ~covered)
            if not is_worse(left, whole):
                continue
            outside = [cells.table(cells.holds(one) & ~covered) for one in larger] if kept else []
            if any(is_worse(one, whole) and is_explained(left, one) for one in outside):
                continue
        kept.append(place)
        covered |= here
        yield place
        if len(kept) > MOST:
            return


def _extreme(
    cells: Cells, least: int, alpha: float
) -> tuple[tuple[float, float, float] | None, Condition | None]:
    """Return the worst value of all slices with limits that hold for all at once, and the slice that has it."""
    quantity, where = cells.quantity, None
    each = alpha / max(most_slices(cells, least), 1)
    sign = 1.0 if quantity.worse > 0 else -1.0
    out = np.full(3, -np.inf)
    for cube in cubes(cells, least):
        if not len(cube.levels):
            continue
        ends = sign * np.where(
            np.isnan(limits := np.stack(quantity.limits(cube.tables, each))), -sign * np.inf, limits
        )
        best = int(ends[0].argmax())
        if ends[0, best] > out[0]:
            where = cells.condition(tuple(zip(cube.columns, cube.levels[best].tolist(), strict=True)))
        out = np.maximum(out, ends.max(axis=1))
    return (_one(tuple(sign * out)), where) if np.isfinite(out[0]) else (None, None)


def _worst_of(
    cells: Cells, slices: Sequence[SliceEstimate]
) -> tuple[tuple[float, float, float] | None, Condition | None]:
    """Return the worst value of tested slices; slices that were not tested may be worse, so one end is open."""
    sign = 1.0 if cells.quantity.worse > 0 else -1.0
    there = [one for one in slices if not np.isnan(one.value)]
    if not there:
        return None, None
    worst = max(there, key=lambda one: sign * one.value)
    end = max(sign * (one.low if sign > 0 else one.high) for one in there) * sign
    least, most = cells.quantity.ends if cells.quantity.kind != "free" else (-np.inf, np.inf)
    return (worst.value, *((end, most) if sign > 0 else (least, end))), worst.condition
