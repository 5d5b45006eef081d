"""Tables of counts: one weighted row for the rows of a cell, a label and a score bin, its score the middle of the bin.

So whatever works on weighted rows works on counts, and :func:`counts_of` finds the very counts again in such a table.
What single rows know besides is in :class:`Entries`: how many there are and their squared weights, by which intervals
are made. No interval may be made of the number of entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fairfix.data.counts import Counts, Floats, Grid, Ints, code_of, groups_of_cells

if TYPE_CHECKING:
    from fairfix.data.data_spec import DataSpec
    from fairfix.data.encoder import EntryRows


@dataclass(frozen=True)
class Entries:
    """Properties of rows that stand for many: arrays of length n."""

    grid: Grid
    """Bins of the score."""
    place: Ints
    """Bin of each."""
    rows: Ints
    """Number of rows that each stands for."""
    square_weight: Floats
    """Sum of their squared weights."""
    weighted: bool
    """Whether these rows have weights; else each weighs 1."""
    sums: Mapping[str, Floats] = field(default_factory=dict)
    """Sums of a cell and label that bins cannot give, as in the counts, by the order of the cells; none where some
    entries were left out."""
    exact: bool = False
    """Whether the score of an entry is that of all of its rows, and not the middle of their bin: then it is another
    score than that of the bins."""

    def mapped(self, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Entries:
        """Return the entries with every array changed."""
        changed: Any = {name: change(getattr(self, name)) for name in ("place", "rows", "square_weight")}
        return replace(self, sums={}, **changed)


def middles(grid: Grid, data_spec: DataSpec) -> Floats:
    """Return the middle of each bin, or of the part of it that can hold scores, shape (B,)."""
    low, high = grid.edges[:-1], np.minimum(grid.edges[1:], data_spec.range[1])
    with np.errstate(over="ignore", invalid="ignore"):
        middle = low + (high - low) / 2
    return np.where(np.isfinite(middle), middle, low)


def of_columns(counts: Counts, keys: tuple[str, ...]) -> Counts:
    """Return counts with the cells of fewer columns."""
    if keys == counts.keys:
        return counts
    levels, group = groups_of_cells(counts.keys, counts.cells, keys)
    return replace(counts.fold(group, len(levels)), keys=keys, cells=levels)


def bins_of_groups(counts: Counts, data_spec: DataSpec) -> Ints:
    """Return the first bin of each cell whose rows are selected, by the threshold of its group, (C,)."""
    from fairfix.data.encoder import group_cuts

    cuts = group_cuts(data_spec, counts.cells, np.arange(len(counts.cells)))
    return np.array([counts.bins.start(cut) for cut in cuts.tolist()], dtype=np.int64)


def decided_by_bins(counts: Counts, data_spec: DataSpec) -> Counts:
    """Return counts with the decisions that follow from the threshold of each group, an edge of the score bins."""
    if counts.grid is None:
        return counts
    yes = np.arange(counts.grid.size) >= bins_of_groups(counts, data_spec)[:, None]
    tables = (counts.weights, counts.square_weights)
    parts = [(table * side[:, None]).sum(axis=-1) for table in tables for side in (yes, ~yes)]
    return replace(counts, decisions=np.stack(parts, axis=-1))


def entries_of(counts: Counts, data_spec: DataSpec) -> EntryRows:
    """Return the rows that stand for counts, which have a score and rows, in the order of the table."""
    from fairfix.data.encoder import EntryRows

    cell, label, place = np.nonzero(counts.rows)
    decision = None
    if data_spec.group_thresholds is not None:
        decision = (place >= bins_of_groups(counts, data_spec)[cell]).astype(np.float64)
    at = cell, label, place
    square = counts.square_weights[at]
    entries = Entries(counts.bins, place, counts.rows[at], square, counts.weighted, counts.sums)
    return EntryRows(
        cell,
        counts.cells,
        label.astype(np.uint8) if counts.has_labels else None,
        middles(counts.bins, data_spec)[place],
        decision,
        counts.weights[at],
        counts.read,
        dict(counts.excluded),
        entries=entries,
    )


def divided(rows: EntryRows, entry: Ints, chance: Floats) -> EntryRows:
    """Return entries in parts, such as by draws of their rows: the entry of each part, and its fraction of it, (m,).

    The parts of an entry are behind one another and add up to it. Weights are divided as they are; the numbers of rows
    are rounded to whole ones, so that they add up too.
    """
    own, weight = rows.entries, rows.weight
    if entry.size == len(rows):
        return rows
    first = np.flatnonzero(np.diff(entry, prepend=-1))
    many = np.diff(np.append(first, entry.size))
    before = np.cumsum(chance) - chance
    upto = np.rint(own.rows[entry] * np.minimum(before + chance - np.repeat(before[first], many), 1.0))
    upto[first + many - 1] = own.rows
    parts = np.diff(upto, prepend=0.0)
    parts[first] = upto[first]
    sums = own.sums if own.weighted else {name: np.tile(each, 2) for name, each in own.sums.items()}
    whole = rows.mapped(lambda array: array[entry])
    entries = replace(
        own,
        place=own.place[entry],
        rows=parts.astype(np.int64),
        square_weight=own.square_weight[entry] * chance,
        weighted=True,
        sums=sums,
    )
    return replace(whole, weight=weight[entry] * chance, entries=entries)


def rebinned(rows: EntryRows, grid: Grid, quantities: Iterable[tuple[str, Floats]], labels: int) -> EntryRows:
    """Return entries whose scores are exact, with the bins of these scores and the sums of what is known of each."""
    own, weight, many = rows.entries, rows.weight, len(rows.cells)
    code = code_of(rows.cell, rows.label, labels)
    weights = (weight, own.square_weight) if own.weighted else (weight,)
    sums: dict[str, Floats] = {}
    for name, value in quantities:
        each = [np.bincount(code, w * power, many * labels) for w in weights for power in (value, value**2)]
        sums[name] = np.stack(each, axis=-1).reshape(many, labels, -1).astype(np.float64)
    return replace(rows, entries=replace(own, grid=grid, place=grid.index(rows.score), sums=sums))


def counts_of(rows: EntryRows, keys: tuple[str, ...], labels: int) -> Counts:
    """Return the counts that rows stand for, with the decisions of these rows."""
    own, weight = rows.entries, rows.weight
    many, size = len(rows.cells), own.grid.size
    code = code_of(rows.cell, rows.label, labels)
    place = code * size + own.place

    def table(each: npt.NDArray[Any]) -> Floats:
        added = np.bincount(place, each, many * labels * size).astype(np.float64)
        return added.reshape(many, labels, size)

    decisions = None
    if (q := rows.decision) is not None:
        parts = [w * part for w in (weight, own.square_weight) for part in (q, 1.0 - q)]
        sums = [np.bincount(code, part, many * labels).reshape(many, labels) for part in parts]
        decisions = np.stack(sums, axis=-1).astype(np.float64)
    unordered = Counts(
        keys,
        rows.cells,
        own.grid,
        table(own.rows).astype(np.int64),
        table(weight) if own.weighted else None,
        table(own.square_weight) if own.weighted else None,
        decisions,
        own.sums,
        int(own.rows.sum()) + sum(rows.excluded.values()),
        dict(rows.excluded),
    )
    return unordered.in_order()
