"""Counts: the additive statistic that every group metric is a function of.

For a cell (one combination of the strata and protected columns), a label and a score bin, the table holds the number of
rows and the sums of their weights and squared weights; per cell and label, sums of the decision probability and of the
losses. All of them are sums over rows, so ``count(A) + count(B) == count(A and B together)``: threads, files and
machines are loops of additions. Nothing downstream of this module sees a row.

Scores fall into the bins of a dyadic :class:`Grid`: multiplying by a power of two is exact in binary floating point, so
a bin never takes a score that belongs to its neighbour, and two grids of different fineness fold into each other
without loss. Each decision threshold is an extra edge of its own, so rates at the thresholds are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from fairfix.data.numeric_groups import Edges, in_order
from fairfix.errors import DataError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class SavedCounts:
    """Counts that are data in place of rows; what they are is up to :mod:`fairfix.auditing.countfile`."""


@dataclass(frozen=True)
class Grid:
    """Half-open score bins ``[k, k + 1) / 2**exponent`` for ``first <= k <= last``, cut at thresholds too."""

    exponent: int
    """Fineness: a bin is ``2**-exponent`` wide (in units of the score). May be negative."""
    first: int
    last: int
    """Index of the lowest and of the highest grid bin."""
    thresholds: tuple[float, ...] = ()
    """Sorted decision thresholds; each is the lower edge of a bin, so ``score >= threshold`` is exact."""

    @classmethod
    def over(cls, low: float, high: float, *, bins: int = 1024, thresholds: Sequence[float] = ()) -> Grid:
        """Return the finest dyadic grid of at most ``bins`` + 1 bins that covers ``[low, high]``."""
        largest = max(abs(low), abs(high), 2.0**-900)
        exponent = 51 - int(np.ceil(np.log2(largest)))  # bin indices stay exact integers
        half = high / 2 - low / 2  # halves, because the range itself may overflow a float
        finest = int(np.floor(np.log2(bins) - np.log2(half))) - 1 if half > 0 else 10
        exponent = min(exponent, finest)
        exponent = int(np.clip(exponent, -1021, 1021))  # 2**exponent is a normal float
        first, last = (int(k) for k in _floors(np.array([low, high]), exponent))
        return cls(exponent, first, last, tuple(sorted(set(thresholds))))

    @property
    def size(self) -> int:
        """Number of bins, thresholds' extra bins included."""
        return self.last - self.first + 1 + len(self.thresholds)

    @property
    def width(self) -> float:
        """Width of a grid bin, in units of the score."""
        return float(np.ldexp(1.0, -self.exponent))

    @cached_property
    def _layout(self) -> tuple[Ints, Ints]:
        """For each bin: its grid index ``k`` and how many thresholds lie at or below it."""
        k = np.arange(self.first, self.last + 1, dtype=np.int64)
        cuts = np.array(self.thresholds, dtype=np.float64)
        with np.errstate(over="ignore"):  # a cut far above all scores
            cut_k = np.clip(_floors(cuts, self.exponent), self.first - 1, self.last + 1).astype(np.int64)
        grid_index = np.sort(np.concatenate([k, np.clip(cut_k, self.first, self.last)]), kind="stable")
        passed = np.arange(grid_index.size) - (grid_index - self.first)
        return grid_index, passed.astype(np.int64)

    @cached_property
    def edges(self) -> Floats:
        """Bin edges, shape (size + 1,): bin ``j`` holds ``edges[j] <= score < edges[j + 1]``.

        The last edge is the upper end of the last grid bin.
        """
        with np.errstate(over="ignore"):  # above the largest float lies infinity
            grid = np.ldexp(np.arange(self.first, self.last + 2, dtype=np.float64), -self.exponent)
        inner = np.clip(np.array(self.thresholds, dtype=np.float64), grid[0], grid[-1])
        return np.sort(np.concatenate([grid, inner]))

    def index(self, scores: Floats) -> Ints:
        """Return the bin of each score; the scores must lie inside the grid."""
        out = _floors(scores, self.exponent).astype(np.int64)
        if self.first:
            out -= self.first
        for cut in self.thresholds:
            out += scores >= cut
        return out

    def start(self, threshold: float) -> int:
        """Return the first bin at or above ``threshold``, which must be one of the grid's."""
        _, passed = self._layout
        return int(np.searchsorted(passed, self.thresholds.index(threshold), side="right"))

    def covering(self, other: Grid, *, most: int) -> Grid:
        """Return the coarsest needed common grid of both, of at most ``most`` bins where that is possible."""
        exponent = min(self.exponent, other.exponent)
        while True:
            first = min(g.first >> (g.exponent - exponent) for g in (self, other))
            last = max(g.last >> (g.exponent - exponent) for g in (self, other))
            if last - first < most:
                return Grid(exponent, first, last, self.thresholds)
            exponent -= 1

    def between(self, first: int, last: int) -> Grid:
        """Return the grid from the grid bin that holds bin ``first`` to the one that holds bin ``last``."""
        grid_index, _ = self._layout
        return replace(self, first=int(grid_index[first]), last=int(grid_index[last]))

    def halved(self) -> Grid:
        """Return the grid with its bins folded in pairs."""
        return Grid(self.exponent - 1, self.first >> 1, self.last >> 1, self.thresholds)

    def halved_to(self, most: int) -> Grid:
        """Return the grid, halved until it has at most ``most`` bins, which are more than its thresholds."""
        grid = self
        while grid.size > most:
            grid = grid.halved()
        return grid

    def finer(self, steps: int) -> Grid:
        """Return the grid with every bin halved ``steps`` times, or as often as bins stay exact integers."""
        largest = max(abs(self.first), abs(self.last + 1))
        steps = max(min(steps, 51 - largest.bit_length(), 1021 - self.exponent), 0)
        ends = self.first << steps, ((self.last + 1) << steps) - 1
        return Grid(self.exponent + steps, *ends, self.thresholds)

    def tops(self, bins: Ints) -> Floats:
        """Return the highest number in each of some bins that are not empty, without a table of all bins."""
        cuts = np.array([*self.thresholds, np.inf])
        with np.errstate(over="ignore"):  # above the largest float lies infinity
            begin = np.clip(_floors(cuts[:-1], self.exponent), self.first - 1, self.last + 1)
            passed = np.searchsorted(begin - self.first + np.arange(1, cuts.size), bins, side="right")
            end = np.ldexp((bins - passed + self.first + 1).astype(np.float64), -self.exponent)
        top: Floats = np.nextafter(np.minimum(end, cuts[passed]), -np.inf)
        return top

    def onto(self, coarser: Grid) -> Ints:
        """Return, for each bin of this grid, the bin of a coarser or wider grid that holds it."""
        assert coarser.thresholds == self.thresholds
        assert coarser.exponent <= self.exponent
        grid_index, passed = self._layout
        return (grid_index >> (self.exponent - coarser.exponent)) - coarser.first + passed


@dataclass(frozen=True)
class BinSlice:
    """Some bins of a grid, which rise, and how many rows they hold."""

    grid: Grid
    bins: Ints
    rows: int

    def holds(self, score: Floats) -> Bools:
        """Return which scores lie in the bins."""
        return np.isin(self.grid.index(score), self.bins)


def _floors(scores: Floats, exponent: int) -> Floats:
    """Return ``floor(scores * 2**exponent)``, exactly: a negative score that underflows lies below zero."""
    scaled = scores * float(np.ldexp(1.0, exponent))
    if exponent < 0:
        scaled[(scaled == 0) & (scores < 0)] = -1.0
    return np.floor(scaled, out=scaled)


MOST_CELLS = 1 << 15
"""Crossed cells of one run. At labels and 2,048 bins a table of these takes 1 GB, and an audit holds several."""


def check_cells(columns: Sequence[str], cells: int) -> None:
    """Raise a DataError where cells are too many to count, before memory is taken for them."""
    if cells > MOST_CELLS:
        raise DataError(
            f"{', '.join(map(repr, columns))} together have more than {MOST_CELLS:,} intersections, too many to count. "
            "Name fewer columns in one run, or cut numbers into `bands`"
        )


@dataclass(frozen=True)
class Counts:
    """Weighted counts over (cell x label x score bin), with the sums that bins cannot give exactly."""

    keys: tuple[str, ...]
    """Columns that make up a cell: the strata first, then the protected columns."""
    cells: tuple[tuple[str, ...], ...]
    """One tuple of levels per cell, sorted; only cells that have rows."""
    grid: Grid | None
    """Bins of the score; None when there is no score (then there is one bin)."""
    rows: Ints
    """Rows per cell, label and bin, int64 of shape (C, L, B). ``L`` is 2 with binary labels, else 1."""
    mass: Floats | None = None
    square_mass: Floats | None = None
    """Sums of weights and of squared weights, float64 of the same shape; None when unweighted."""
    decisions: Floats | None = None
    """Shape (C, L, 4): sums of ``w q``, ``w (1 - q)``, ``w^2 q``, ``w^2 (1 - q)`` where ``q`` is the probability of a
    positive decision (0 or 1 for hard decisions); None when decisions follow from a threshold on the score."""
    sums: Mapping[str, Floats] = field(default_factory=dict)
    """Per name, shape (C, L, 2): sums of ``w v`` and ``w v^2`` of a real quantity ``v`` (score, losses); with weights,
    shape (C, L, 4): also of ``w^2 v`` and ``w^2 v^2``."""
    read: int = 0
    excluded: Mapping[str, int] = field(default_factory=dict)
    """Rows read but not counted, by reason. ``read == rows.sum() + sum(excluded.values())``."""
    private: float | None = None
    """Budget epsilon of noise (:mod:`fairfix.stats.geometric_noise`); None for exact counts. With noise, ``decisions``
    has noisy counts, which may be negative, and in place of sums of squared weights the number of noisy counts in
    each. ``rows`` is their sum in a cell and label, or 0 where that is negative."""

    @property
    def bins(self) -> Grid:
        """Bins of the score; a ValueError where there is no score."""
        if self.grid is None:
            raise ValueError("counts without a score have no bins")
        return self.grid

    @property
    def weighted(self) -> bool:
        """Whether rows carry weights."""
        return self.mass is not None

    @property
    def used(self) -> int:
        """Rows counted."""
        return int(self.rows.sum())

    @property
    def has_labels(self) -> bool:
        """Whether the label axis tells positives from negatives."""
        return int(self.rows.shape[1]) == 2

    def require_squares(self, column: str | None) -> None:
        """Raise a DataError where weights are so large or small that the sums of their squares are no numbers."""
        if self.mass is None or self.square_mass is None:
            return
        lost = (self.mass > 0.0) & (self.square_mass == 0.0)
        if lost.any() or not np.isfinite(self.square_mass).all():
            raise DataError(
                f"weight column {column!r} holds numbers whose squares are too large or too small; a weight is 0, or "
                "from 1e-100 to 1e100: multiply all of them by one number"
            )

    @property
    def weights(self) -> Floats:
        """Sum of weights per cell, label and bin (the rows themselves when unweighted)."""
        return self._rows_as_weights if self.mass is None else self.mass

    @property
    def square_weights(self) -> Floats:
        """Sum of squared weights per cell, label and bin (the rows themselves when unweighted)."""
        return self._rows_as_weights if self.square_mass is None else self.square_mass

    @property
    def held_weights(self) -> npt.NDArray[Any]:
        """The weights in the type that they are held in, so that large tables are not copied to be added up."""
        return self.rows if self.mass is None else self.mass

    @property
    def held_square_weights(self) -> npt.NDArray[Any]:
        """The squared weights in the type that they are held in."""
        return self.rows if self.square_mass is None else self.square_mass

    @cached_property
    def _rows_as_weights(self) -> Floats:
        weights = self.rows.astype(np.float64)
        weights.setflags(write=False)
        return weights

    def fold(self, group_of_cell: Ints, groups: int) -> Counts:
        """Return the counts with cells added up into ``groups`` groups; index -1 leaves a cell out."""
        order = np.argsort(group_of_cell, kind="stable")
        order = order[group_of_cell[order] >= 0]
        present, first = np.unique(group_of_cell[order], return_index=True)
        members = np.split(order, first[1:])
        alike = np.array_equal(group_of_cell, np.arange(groups))  # nothing is added, or copied

        def added(table: npt.NDArray[Any]) -> npt.NDArray[Any]:
            if alike:
                return table
            out = np.zeros((groups, *table.shape[1:]), dtype=table.dtype)
            if first.size == order.size:
                out[present] = table[order]
                return out
            # no copy of the table, and faster
            for group, cells in zip(present.tolist(), members, strict=True):
                out[group] = table[cells].sum(axis=0)
            return out

        return self.mapped(added, ("group",), tuple((str(g),) for g in range(groups)))

    def regrid(self, grid: Grid) -> Counts:
        """Return the counts on a coarser or wider grid with the same thresholds."""
        if self.grid is None or grid == self.grid:
            return self
        return self._moved(grid, slice(None))

    def trimmed(self) -> Counts:
        """Return the counts without the score bins below the first and above the last one that has rows."""
        if self.grid is None or not self.cells:
            return self
        seen = np.flatnonzero(self.rows.any(axis=(0, 1)))
        grid = self.grid.between(int(seen[0]), int(seen[-1]))
        return self._moved(grid, slice(seen[0], seen[-1] + 1))

    def _moved(self, grid: Grid, own: slice) -> Counts:
        """Return the counts of some of the bins on another grid."""
        into, moved = self.bins.onto(grid)[own], dict[str, Any]()
        for name, table in self._tables():
            if name != "decisions":
                moved[name] = moved_bins(table[..., own], into, grid.size)
        return replace(self, grid=grid, **moved)

    def _tables(self) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        """Yield the name and the table of what is counted, but for the sums."""
        for name in ("rows", "mass", "square_mass", "decisions"):
            if (table := getattr(self, name)) is not None:
                yield name, table

    def __add__(self, other: Counts) -> Counts:
        """Return the counts of both data sets together."""
        if (self.keys, self.weighted, self.has_labels) != (other.keys, other.weighted, other.has_labels):
            raise ValueError("counts of different columns, weights or labels cannot be added")
        excluded = {
            reason: self.excluded.get(reason, 0) + other.excluded.get(reason, 0)
            for reason in sorted({*self.excluded, *other.excluded})
        }
        read: dict[str, Any] = {"read": self.read + other.read, "excluded": excluded}
        if not self.used or not other.used:  # an empty part has no cells and no grid worth keeping
            return replace(self if self.used or not other.used else other, **read)
        if self._holds() != other._holds():
            raise ValueError("counts of different thresholds, decisions or losses cannot be added")
        left, right = self, other
        if self.grid != other.grid:
            # many parts with scores far apart must not add up to a huge table
            grid = self.bins.covering(other.bins, most=max(self.bins.size, other.bins.size, 2048))
            left, right = self.regrid(grid), other.regrid(grid)
        cells = tuple(sorted({*left.cells, *right.cells}))
        check_cells(left.keys, len(cells))
        left, right = left._spread(cells), right._spread(cells)
        added: Any = {name: table + getattr(right, name) for name, table in left._tables()}
        sums = {name: table + right.sums[name] for name, table in left.sums.items()}
        return replace(left, **added, sums=sums, **read)

    def _holds(self) -> tuple[object, ...]:
        """Return the quantities that were counted in addition to the rows; parts without rows do not know."""
        cuts = None if self.grid is None else self.grid.thresholds
        return cuts, self.decisions is None, frozenset(self.sums)

    def _spread(self, cells: tuple[tuple[str, ...], ...]) -> Counts:
        """Return the counts with empty cells added, in the order of ``cells``."""
        if cells == self.cells:
            return self
        _, into = groups_of_cells(self.keys, self.cells, self.keys, cells)

        def spread(table: npt.NDArray[Any]) -> npt.NDArray[Any]:
            out = np.zeros((len(cells), *table.shape[1:]), dtype=table.dtype)
            out[into] = table
            return out

        return self.mapped(spread, self.keys, cells)

    def cells_at(self, places: Ints) -> Counts:
        """Return the counts of some of the cells, in the order of their places."""
        return self.mapped(lambda table: table[places], self.keys, tuple(self.cells[i] for i in places))

    def in_order(self) -> Counts:
        """Return the counts of the cells that have rows, sorted."""
        seen = np.flatnonzero(self.rows.any(axis=(1, 2)))
        return self.cells_at(np.array(sorted(seen, key=lambda i: self.cells[i]), dtype=np.int64))

    def mapped(
        self,
        change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]],
        keys: tuple[str, ...],
        cells: tuple[tuple[str, ...], ...],
    ) -> Counts:
        """Return counts of other cells, whose every table went through ``change`` along the cell axis."""
        changed: Any = {name: change(table) for name, table in self._tables()}
        sums = {name: change(table) for name, table in self.sums.items()}
        return replace(self, keys=keys, cells=cells, sums=sums, **changed)


def code_of(cell: Ints, label: npt.NDArray[Any] | None, labels: int = 2) -> Ints:
    """Return ``cell * labels + label``, shape (n,): the cell itself where labels are not binary or not known."""
    cell = cell.astype(np.int64, copy=False)
    return cell if labels == 1 or label is None else cell * labels + label


def groups_of_cells(
    keys: Sequence[str],
    cells: Sequence[tuple[str, ...]],
    columns: Sequence[str],
    levels: Sequence[tuple[str, ...]] | None = None,
    *,
    bands: Mapping[str, Edges] = MappingProxyType({}),
) -> tuple[tuple[tuple[str, ...], ...], Ints]:
    """Return the groups that cells belong to, as levels of ``columns``, and the index of each cell's group, (C,).

    Cells are tuples of a level per key. Without ``levels``, the groups are all that there are, in order (bands
    of columns by their edges, others as texts); with them, a cell of another group has the index -1.
    """
    at = [keys.index(name) for name in columns]
    own = [tuple(cell[i] for i in at) for cell in cells]
    levels = in_order(set(own), columns, bands) if levels is None else tuple(levels)
    place = {level: k for k, level in enumerate(levels)}
    return levels, np.array([place.get(level, -1) for level in own], dtype=np.int64)


def rows_of_levels(
    keys: Sequence[str], cells: Sequence[tuple[str, ...]], rows: npt.NDArray[Any]
) -> dict[str, dict[str, int]]:
    """Return key -> level -> rows of the cells that have it, given the rows of each cell, (C,)."""
    out = {key: dict[str, int]() for key in keys}
    for cell, many in zip(cells, rows.tolist(), strict=True):
        if many:
            for own, level in zip(out.values(), cell, strict=True):
                own[level] = own.get(level, 0) + int(many)
    return out


PIECE_ROWS = 1 << 17
"""Rows that a sum over a table looks at together: what it makes of them stays small, whatever the table holds."""


def spans(many: int) -> Iterator[slice]:
    """Yield slices of :data:`PIECE_ROWS` rows that make up ``many``; one at least."""
    for start in range(0, max(many, 1), PIECE_ROWS):
        yield slice(start, min(start + PIECE_ROWS, many))


def tallied(codes: npt.NDArray[Any], many: int, times: Ints | None = None) -> Ints:
    """Return how often each of the codes 0 to ``many - 1`` is there, shape (many,); each row ``times`` its number.

    ``numpy.bincount`` would copy codes of few bytes, all at once.
    """
    out = np.zeros(many, dtype=np.int64)
    for inside in spans(codes.size):
        own = np.bincount(codes[inside], None if times is None else times[inside], many)
        out += own.astype(np.int64)
    return out


def rows_of_each(codes: Ints, many: int) -> list[Ints]:
    """Return the places of each of the codes 0 to ``many - 1``: a look for each of a few, one stable sort for many."""
    if many <= 8:
        return [np.flatnonzero(codes == k) for k in range(many)]
    order = np.argsort(codes.astype(np.uint16) if many < 1 << 16 else codes, kind="stable")
    return list(np.split(order, np.cumsum(np.bincount(codes, minlength=many))[:-1]))


def moved_bins(table: npt.NDArray[Any], into: Ints, size: int) -> npt.NDArray[Any]:
    """Return a table whose last axis of bins is added up into ``size`` other bins."""
    out = np.zeros((*table.shape[:-1], size), dtype=table.dtype)
    if into.size and (np.diff(into) >= 0).all():
        first = np.flatnonzero(np.diff(into, prepend=-1))
        out[..., into[first]] = np.add.reduceat(table, first, axis=-1)
        return out
    np.add.at(out, (..., into), table)  # type: ignore[arg-type]  # numpy's stubs know no tuples here
    return out
