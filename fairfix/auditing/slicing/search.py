"""Search of all conjunctions of up to three conditions: exact, from one table per set of columns.

The rows of a set of columns are counted in one pass, by a code of their levels. Pairs of levels of too few rows are
left out before a third column is added, so the cells of a table are at most as many as rows allow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fairfix.auditing.slicing.quantity import SliceMetric
from fairfix.data.counts import Bools, Floats, Ints
from fairfix.data.row_filter import Condition
from fairfix.data.slice_levels import SliceLevels, conjunction

DEPTH = 3
"""Conditions of a slice, at most."""

POOL = 2000
"""Slices that are kept for a closer look, those of the best ranks."""

DENSE = 4
"""A table of more cells than this many times the rows is made of the cells that are there."""

FEW = 0.3
"""Fraction of rows below which a copy of these rows pays."""

Place = tuple[tuple[int, int], ...]
"""A slice: a column and a level of each condition."""


@dataclass(frozen=True)
class Cells:
    """Rows with their levels, each once or as many times as ``times`` says, and the quantity that they have."""

    levels: tuple[SliceLevels, ...]
    quantity: SliceMetric
    times: Floats | None = None
    """Rows that each entry stands for, shape (n,)."""

    def __len__(self) -> int:
        return int(self.quantity.key.size)

    def take(self, rows: Ints) -> Cells:
        """Return the given entries."""
        levels = tuple(one.take(rows) for one in self.levels)
        return Cells(levels, self.quantity.take(rows), None if self.times is None else self.times[rows])

    def condition(self, place: Place) -> Condition:
        """Return the condition that the rows of a slice meet."""
        return conjunction(self.levels[column].conditions[level] for column, level in place)

    def holds(self, place: Place) -> Bools:
        """Return which entries a slice has, shape (n,)."""
        out = np.ones(len(self), dtype=bool)
        for column, level in place:
            out &= self.levels[column].codes == level
        return out

    def table(self, rows: Bools | None = None) -> Floats:
        """Return the table of the entries, or of the marked ones, shape (K, 1 + p)."""
        own = slice(None) if rows is None else np.flatnonzero(rows)
        key, times = self.quantity.key[own], None if self.times is None else self.times[own]
        return np.asarray(_table(key, 1, self.quantity.keys, self.quantity.sums[:, own], times)[0])

    def merged(self) -> Cells:
        """Return the cells with equal entries added up, where all combinations of levels are fewer."""
        sizes = [len(one.conditions) + 1 for one in self.levels]
        cells = np.prod([float(size) for size in sizes]) * self.quantity.keys
        if cells * 2 > len(self):
            return self
        code = np.zeros(len(self), dtype=np.int64)
        for one, size in zip(self.levels, sizes, strict=True):
            code = code * size + one.codes
        keys = self.quantity.keys
        table = _table(
            code * keys + self.quantity.key, int(cells) // keys, keys, self.quantity.sums, self.times
        )
        flat = table.reshape(-1, table.shape[-1])
        there = np.flatnonzero(flat[:, 0])
        rest, levels = there // keys, list[SliceLevels]()
        for one, size in zip(reversed(self.levels), reversed(sizes), strict=True):
            levels.append(SliceLevels(one.column, rest % size, one.conditions, one.rows, one.pooled))
            rest //= size
        quantity = SliceMetric(
            **{**vars(self.quantity), "key": there % keys, "sums": np.ascontiguousarray(flat[there, 1:].T)}
        )
        return Cells(tuple(reversed(levels)), quantity, flat[there, 0].copy())


@dataclass(frozen=True)
class Cube:
    """All slices of a set of columns with enough rows: levels of shape (S, depth), tables of shape (S, K, 1 + p)."""

    columns: tuple[int, ...]
    levels: Ints
    tables: Floats


@dataclass(frozen=True)
class Pool:
    """Slices of the best ranks among all that were searched."""

    searched: int
    """Slices of enough rows."""
    tables: dict[Place, Floats]
    """In order of their ranks."""


def _table(code: npt.NDArray[Any], cells: int, keys: int, sums: Floats, times: Floats | None) -> Floats:
    """Return tables of rows by ``code = cell * keys + key``, shape (cells, keys, 1 + p)."""
    many = cells * keys
    out = np.empty((many, 1 + len(sums)))
    out[:, 0] = np.bincount(code, times, many)
    for i, one in enumerate(sums, 1):
        out[:, i] = np.bincount(code, one, many)
    return out.reshape(cells, keys, -1)


def _present(
    code: npt.NDArray[Any], cells: int, keys: int, sums: Floats, times: Floats | None
) -> tuple[Ints, Floats]:
    """Return the cells that are looked at, and their tables; of very many only those that have rows."""
    if cells * keys <= DENSE * code.size + 4096:
        return np.arange(cells), _table(code, cells, keys, sums, times)
    there, place = np.unique(code // keys, return_inverse=True)
    return there, _table(place * keys + code % keys, there.size, keys, sums, times)


def cubes(cells: Cells, least: int, depth: int = DEPTH) -> Iterator[Cube]:
    """Yield every set of up to ``depth`` columns with its slices of at least ``least`` rows."""
    quantity, times = cells.quantity, cells.times
    keys, many = quantity.keys, len(cells.levels)
    sizes = [len(one.conditions) for one in cells.levels]
    keyed = [one.codes * np.int64(keys) + quantity.key for one in cells.levels]

    def enough(tables: Floats, allowed: Bools) -> Ints:
        return np.flatnonzero((quantity.rows(tables) >= least) & allowed)

    for a in range(many):
        tables = _table(keyed[a], sizes[a] + 1, keys, quantity.sums, times)[: sizes[a]]
        kept = enough(tables, np.ones(sizes[a], dtype=bool))
        yield Cube((a,), kept[:, None], tables[kept])
    if depth < 2:
        return
    for a in range(many):
        for b in range(a + 1, many):
            wide = sizes[b] + 1
            code = cells.levels[a].codes * np.int64(wide * keys) + keyed[b]
            present, tables = _present(code, (sizes[a] + 1) * wide, keys, quantity.sums, times)
            first, second = present // wide, present % wide
            kept = enough(tables, (first < sizes[a]) & (second < sizes[b]))
            pairs = np.stack([first[kept], second[kept]], axis=1)
            yield Cube((a, b), pairs, tables[kept])
            if depth > 2 and kept.size and b + 1 < many:
                yield from _triples(cells, (a, b), present[kept], pairs, code // keys, keyed, least)


def _triples(
    cells: Cells,
    pair: tuple[int, int],
    kept: Ints,
    pairs: Ints,
    code: Ints,
    keyed: Sequence[Ints],
    least: int,
) -> Iterator[Cube]:
    """Yield the cubes of a pair of columns with every later one, over the pairs of levels of enough rows."""
    quantity, keys, times = cells.quantity, cells.quantity.keys, cells.times
    if kept[-1] < DENSE * code.size + 4096:
        new = np.full(int(code.max()) + 1, kept.size)
        new[kept] = np.arange(kept.size)
        place = new[code]
    else:
        place = np.minimum(np.searchsorted(kept, code), kept.size - 1)
        place = np.where(kept[place] == code, place, kept.size)
    inside = np.flatnonzero(place < kept.size)
    few = inside.size < FEW * place.size
    if few:
        place, times = place[inside], None if times is None else times[inside]
    sums = quantity.sums[:, inside] if few and len(quantity.sums) else quantity.sums
    room = np.empty_like(place)
    for c in range(pair[1] + 1, len(cells.levels)):
        size = len(cells.levels[c].conditions)
        np.multiply(place, (size + 1) * keys, out=room)
        room += keyed[c][inside] if few else keyed[c]
        present, tables = _present(room, (kept.size + 1) * (size + 1), keys, sums, times)
        first, third = present // (size + 1), present % (size + 1)
        own = np.flatnonzero((quantity.rows(tables) >= least) & (first < kept.size) & (third < size))
        yield Cube((*pair, c), np.concatenate([pairs[first[own]], third[own, None]], axis=1), tables[own])


def search(cells: Cells, least: int, alpha: float, depth: int = DEPTH) -> Pool:
    """Return the slices that are farthest on the worse side of the overall value, by a limit near to that at ``alpha``.

    ``alpha`` is for all slices together; their number is bounded by the levels of the columns.
    """
    quantity = cells.quantity
    whole = quantity.nearly(cells.table(), 0.5)[0]
    overall = (whole, whole, whole)
    level = alpha / max(most_slices(cells, least, depth), 1)
    searched, threshold = 0, -np.inf
    places, tables, ranks = list[Place](), list[Floats](), list[Floats]()
    for cube in cubes(cells, least, depth):
        searched += len(cube.levels)
        value = quantity.nearly(cube.tables, 0.5)[0]
        worse = np.flatnonzero(quantity.excess((value, value, value), overall) > 0)
        rank = quantity.excess(quantity.nearly(cube.tables[worse], level), overall)
        kept = np.flatnonzero(rank > threshold)
        if not kept.size:
            continue
        for own in cube.levels[worse[kept]].tolist():
            places.append(tuple(zip(cube.columns, own, strict=True)))
        tables.append(cube.tables[worse[kept]])
        ranks.append(rank[kept])
        if len(places) > 4 * POOL:
            best = _best(cells, places, np.concatenate(ranks))
            joined, own_ranks = np.concatenate(tables)[best], np.concatenate(ranks)[best]
            places, tables, ranks = [places[i] for i in best.tolist()], [joined], [own_ranks]
            threshold = float(own_ranks[-1])
    if not places:
        return Pool(searched, {})
    best = _best(cells, places, np.concatenate(ranks))
    joined = np.concatenate(tables)
    return Pool(searched, {places[i]: joined[i] for i in best.tolist()})


def _best(cells: Cells, places: Sequence[Place], ranks: Floats) -> Ints:
    """Return the numbers of the slices of the best ranks, the best first; of equal ones, the shorter first."""
    order = np.argsort(-ranks, kind="stable")[: POOL + 1]
    if order.size > POOL:
        order = np.flatnonzero(ranks >= ranks[order[POOL - 1]])
    names = {i: (len(places[i]), str(cells.condition(places[i]))) for i in order.tolist()}
    ordered = sorted(names, key=lambda i: (-ranks[i], *names[i]))
    return np.array(ordered[:POOL], dtype=np.int64)


def most_slices(cells: Cells, least: int, depth: int = DEPTH) -> int:
    """Return an upper bound on the number of slices with enough rows, from the levels of single columns."""
    rows = len(cells) if cells.times is None else int(cells.times.sum())
    room = max(rows // max(least, 1), 1)
    by_depth = [1.0, 0.0, 0.0, 0.0]
    for size in (len(one.conditions) for one in cells.levels):
        for many in range(depth, 0, -1):
            by_depth[many] += by_depth[many - 1] * size
    sets = [1.0, 0.0, 0.0, 0.0]
    for _ in cells.levels:
        for many in range(depth, 0, -1):
            sets[many] += sets[many - 1]
    return int(sum(min(by_depth[many], sets[many] * room) for many in range(1, depth + 1)))
