"""The scan: who reads the parts of a source and adds up what they hold.

One pass fills :class:`~fairfix.data.counts.Counts`: parts go to workers (:mod:`fairfix.data.workers`), each part is
counted in order by one of them, and the parts' counts are added in the order of the data, so the result does not
depend on the number of workers to the last bit. Exact distances between score distributions need the rows of a few
bins: up to ``KEEP_ROWS`` rows are kept from the first pass, beyond that a second pass collects the rows of the bins
that matter.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fairfix.data.binned import counts_of, rebinned
from fairfix.data.counts import (
    Bools,
    Counts,
    Floats,
    Grid,
    Ints,
    code_of,
    groups_of_cells,
    moved_bins,
    rows_of_levels,
    spans,
)
from fairfix.data.data_spec import DataSpec
from fairfix.data.encoder import (
    Encoder,
    EntryRows,
    Rows,
    check_excluded,
    check_positive,
    group_numbers,
    row_name,
)
from fairfix.data.files import NO_TYPES, Source, SourcePart, Types, open_source
from fairfix.data.numeric_groups import (
    PARTS,
    Edges,
    NumbersAsGroupsError,
    check_numbers,
    check_sizes,
    distribution,
    parse_bands,
    proposal,
    quantile_edges,
)
from fairfix.data.quantities import quantities
from fairfix.data.table import Table, assemble
from fairfix.data.workers import added
from fairfix.errors import DataError

KEEP_ROWS = 1 << 20
"""Up to this many rows keep (score, cell, label) from the first pass, about 20 MB, and need no second one."""

SORT_ROWS = 1 << 17
"""Up to this many rows are sorted whole, which makes the AUC exact; the few bins that KS needs always are."""

BINS = 1024
"""Score bins of a single pass: the table of 60 cells then fits the processor's cache."""

FINE_BINS = 1 << 14
"""Score bins where few rows have to be found among many."""

TABLE_BYTES = 16 << 20
"""Beyond this size of the table, or 0.4 bytes a row if that is more, the bins are folded in pairs."""


@dataclass(frozen=True)
class KeptRows:
    """Scores of single rows, in any order, for what bins cannot tell exactly.

    ``score`` (n,) float64, ``cell`` (n,) index into the counts' cells, ``label`` (n,) 0/1 or None,
    ``weight`` (n,) or None.
    """

    score: Floats
    cell: Ints
    label: npt.NDArray[np.uint8] | None
    weight: Floats | None
    square_weight: Floats | None = None
    """Sums of squared weights where weighted rows were merged; None: each row is one."""
    rows: Ints | None = None
    """Number of rows that each stands for, in an answer of a database."""

    @property
    def labels(self) -> npt.NDArray[np.uint8]:
        """The label of each, shape (n,); a ValueError where there are none."""
        if self.label is None:
            raise ValueError("the rows have no labels")
        return self.label

    @property
    def mass(self) -> Floats:
        """The weight of each, shape (n,): that of as many rows as it stands for where rows have none."""
        if self.weight is not None:
            return self.weight
        return np.ones(self.score.size) if self.rows is None else self.rows.astype(np.float64)

    @classmethod
    def joined(cls, parts: Sequence[KeptRows]) -> KeptRows:
        """Return the rows of all parts; where only some were merged, these have weights, and so the others."""

        def column(name: str) -> Any:
            columns = [getattr(part, name) for part in parts]
            if all(one is None for one in columns):
                return None
            pairs = zip(parts, columns, strict=True)
            return np.concatenate([part.mass if one is None else one for part, one in pairs])

        return cls(*(column(one.name) for one in fields(cls)))

    def take(self, rows: Ints | Bools | slice) -> KeptRows:
        """Return some of the rows, by number, by mask or by place."""
        taken: Any = {name: column[rows] for name, column in vars(self).items() if column is not None}
        return replace(self, **taken)

    def in_cells(
        self, keys: Sequence[str], cells: tuple[tuple[str, ...], ...], now: tuple[tuple[str, ...], ...]
    ) -> KeptRows:
        """Return the rows, whose cells are numbered as in ``cells``, numbered as in ``now``."""
        if cells == now:
            return self
        _, into = groups_of_cells(keys, cells, keys, now)
        return replace(self, cell=into.astype(self.cell.dtype)[self.cell])

    def in_bins(self, grid: Grid, chosen: Bools) -> Bools:
        """Return which rows lie in chosen bins, (B,), without a table of the bins of all."""
        out = np.empty(self.score.size, dtype=bool)
        for inside in spans(out.size):
            out[inside] = chosen[grid.index(self.score[inside])]
        return out

    def merged(self) -> KeptRows:
        """Return the rows with those of equal score, cell and label merged and their weights added."""
        code = code_of(self.cell, self.label)
        order = np.lexsort((code, self.score))
        rows, code = self.take(order), code[order]
        new = (rows.score[1:] != rows.score[:-1]) | (code[1:] != code[:-1])
        first = np.flatnonzero(np.concatenate([[True], new]))
        weight = np.add.reduceat(rows.mass, first)
        sums: Any = {
            name: np.add.reduceat(column, first)
            for name in ("square_weight", "rows")
            if (column := getattr(rows, name)) is not None
        }
        return replace(rows.take(first), weight=weight, **sums)

    def by_score(self) -> KeptRows:
        """Return the rows sorted by score."""
        return self.take(np.argsort(self.score))


@dataclass(frozen=True)
class Scan:
    """Result of a scan: counts, all rows' scores when there are few, and their specification."""

    counts: Counts
    kept: KeptRows | None
    """None where there are many, or none with a score."""
    data_spec: DataSpec

    def __add__(self, other: Scan) -> Scan:
        """Return the scan of both pieces of the data, in this order."""
        counts = self.counts + other.counts
        if self.kept is None or other.kept is None or counts.used > KEEP_ROWS:
            return Scan(counts, None, self.data_spec)
        both = (self.kept, self.counts.cells), (other.kept, other.counts.cells)
        kept = KeptRows.joined([rows.in_cells(counts.keys, cells, counts.cells) for rows, cells in both])
        return Scan(counts, kept, self.data_spec)


class Tally:
    """Counts of the batches of one part.

    The steps of a batch: encode, place the scores in bins, one ``bincount`` of the combined index, and
    one weighted ``bincount`` per (cell, label) for each sum that bins cannot give exactly.
    """

    def __init__(
        self,
        data_spec: DataSpec,
        bins: int,
        *,
        losses: bool = True,
        keep: bool = False,
        room: int = TABLE_BYTES,
    ) -> None:
        self.data_spec, self.bins, self.losses, self.room = data_spec, bins, losses, room
        self.grid = fixed_grid(data_spec, bins)
        self.fixed = self.grid is not None
        self.labels = 2 if data_spec.binary else 1
        self.cells: tuple[tuple[str, ...], ...] = ()
        self.kept: list[KeptRows] | None = [] if keep else None
        self.read = self.used = 0
        self.excluded: Counter[str] = Counter()
        self._tables: dict[str, npt.NDArray[Any]] = {}
        self._sums: dict[str, Floats] = {}

    def add(self, rows: Rows) -> None:
        """Count some rows; ``rows.cells`` must begin with the cells of the rows before."""
        self.cells = rows.cells
        self.read += rows.read
        self.excluded.update(rows.excluded)
        if not len(rows):
            return
        self.used += len(rows)
        if self.kept is not None:
            self._keep(self.kept, rows)
        code = code_of(rows.cell, rows.label, self.labels)
        self._count_bins(rows, code)
        w = 1.0 if rows.weight is None else rows.weight
        if rows.decision is not None:
            q = rows.decision
            self._add_sums("decisions", code, *(w**p * part for p in (1, 2) for part in (q, 1.0 - q)))
        with np.errstate(invalid="ignore", over="ignore"):  # an infinite loss stays infinite
            for name, value in quantities(rows, self.data_spec, losses=self.losses):
                if rows.weight is None:
                    self._add_sums(name, code, value, value * value)
                else:
                    parts = (value * w, value * w * w)
                    self._add_sums(name, code, *(of for once in parts for of in (once, once * value)))

    def _keep(self, kept: list[KeptRows], rows: Rows) -> None:
        if self.used > KEEP_ROWS or rows.score is None:
            self.kept = None
            return
        label = rows.label if self.labels == 2 else None
        kept.append(KeptRows(rows.score, rows.cell.astype(np.int32), label, rows.weight))

    def _count_bins(self, rows: Rows, code: Ints) -> None:
        if rows.score is None:
            self._bump(code, 1, rows.weight)
            return
        grid = self._fit_grid(rows.score)
        place = grid.index(rows.score)
        place += code * grid.size
        self._bump(place, grid.size, rows.weight)
        if self._tables["rows"].nbytes > self.room and grid.size > 2 * BINS:
            self._regrid(grid, grid.halved())

    def _fit_grid(self, score: Floats) -> Grid:
        """Return the grid, made to cover the batch's scores; a fixed one always does."""
        grid = self.grid
        if grid is None or not self.fixed:
            ours = grid_over(self.data_spec, self.bins, score.min(), score.max())
            if grid is None:
                grid = ours
            elif (wider := grid.covering(ours, most=2 * self.bins)) != grid:
                grid = self._regrid(grid, wider)
        if not self._tables:  # the cells of the first rows say how fine a table has room
            grid = grid.halved_to(max(2 * BINS, self.room // (8 * len(self.cells) * self.labels)))
        self.grid = grid
        return grid

    def cover(self, score: Floats) -> None:
        """Take the grid that these scores want, as that of all rows that come."""
        if score.size:
            self.grid = grid_over(self.data_spec, self.bins, score.min(), score.max())
            self.fixed = True

    def _regrid(self, old: Grid, grid: Grid) -> Grid:
        """Move what was counted onto a coarser or wider grid."""
        into, self.grid = old.onto(grid), grid
        self._tables = {name: moved_bins(table, into, grid.size) for name, table in self._tables.items()}
        return grid

    @np.errstate(over="ignore", under="ignore")  # which check_whole refuses
    def _bump(self, place: Ints, bins: int, weight: Floats | None) -> None:
        """Add rows to the tables at flat places; the tables grow with the cells."""
        weights: dict[str, Floats | None] = {"rows": None}
        if weight is not None:
            weights |= {"mass": weight, "square_mass": weight**2}
        for name, each in weights.items():
            table = self._tables.get(name)
            if table is None or len(table) < len(self.cells) * self.labels:
                kind = np.int64 if each is None else np.float64
                grown = np.zeros((len(self.cells) * self.labels, bins), dtype=kind)
                if table is not None:
                    grown[: len(table)] = table
                table = self._tables[name] = grown
            _tally(table.reshape(-1), place, each)

    def _add_sums(self, name: str, code: Ints, *columns: Floats) -> None:
        size = len(self.cells) * self.labels
        sums: Any = np.stack([np.bincount(code, column, size) for column in columns], axis=-1)
        if name in self._sums:
            sums[: len(self._sums[name])] += self._sums[name]
        self._sums[name] = sums

    def counts(self) -> Counts:
        """Return what was counted so far, cells with rows in sorted order."""
        about = self.read, dict(self.excluded)
        return tabulated(self.data_spec, self.cells, self.grid, self._tables, self._sums, *about)

    def scan(self) -> Scan:
        """Return what was counted so far, with the rows that were kept."""
        counts = self.counts()
        if self.kept is None:
            return Scan(counts, None, self.data_spec)
        if not self.kept:
            none = np.zeros(0)
            label = none.astype(np.uint8) if self.labels == 2 else None
            weight = none if self.data_spec.columns.weight else None
            return Scan(counts, KeptRows(none, none.astype(np.int32), label, weight), self.data_spec)
        rows = self.kept[0] if len(self.kept) == 1 else KeptRows.joined(self.kept)
        return Scan(counts, rows.in_cells(counts.keys, self.cells, counts.cells), self.data_spec)


def tabulated(
    data_spec: DataSpec,
    cells: tuple[tuple[str, ...], ...],
    grid: Grid | None,
    tables: Mapping[str, npt.NDArray[Any]],
    sums: Mapping[str, Floats],
    read: int,
    excluded: Mapping[str, int],
) -> Counts:
    """Return counts of tables with a row per cell and label, perhaps not the last ones; cells with rows, sorted."""
    labels = 2 if data_spec.binary else 1
    if not tables:
        cells, none = (), np.zeros((0, 1))
        tables = {"rows": none.astype(np.int64)}
        tables |= {"mass": none, "square_mass": none} if data_spec.columns.weight else {}
        grid = None

    def shaped(table: npt.NDArray[Any] | None) -> Any:
        if table is None:
            return None
        full = np.zeros((len(cells) * labels, table.shape[1]), dtype=table.dtype)
        full[: len(table)] = table
        return full.reshape(len(cells), labels, table.shape[1])

    unordered = Counts(
        data_spec.columns.cell_keys,
        cells,
        grid,
        shaped(tables["rows"]),
        shaped(tables.get("mass")),
        shaped(tables.get("square_mass")),
        shaped(sums.get("decisions")),
        {name: shaped(table) for name, table in sums.items() if name != "decisions"},
        read,
        excluded,
    )
    return unordered.in_order()


def fineness(about: int, *, exact: bool) -> tuple[int, int]:
    """Return the number of bins for scores of about ``rows`` rows, and the bytes that their table may take."""
    fine = exact and about > SORT_ROWS
    bins = FINE_BINS * (1 if about <= 2 * KEEP_ROWS else 4) if fine else BINS
    return bins, max(TABLE_BYTES, int(0.4 * about)) if exact else TABLE_BYTES


def fixed_grid(data_spec: DataSpec, bins: int) -> Grid | None:
    """Return the grid of a score whose range is fixed by its scale; None where the data has to show its range."""
    if not data_spec.columns.score or math.isinf(data_spec.range[0]):
        return None
    return Grid.over(*data_spec.range, bins=bins, thresholds=data_spec.thresholds)


def grid_over(data_spec: DataSpec, bins: int, low: float, high: float) -> Grid:
    """Return the grid of a scale, or that of the range of the scores."""
    fixed = fixed_grid(data_spec, bins)
    return fixed or Grid.over(float(low), float(high), bins=bins // 2, thresholds=data_spec.thresholds)


def _tally(table: npt.NDArray[Any], place: Ints, weight: Floats | None) -> None:
    """Add rows into a flat table; of the two ways the one that is faster for its size."""
    if table.size <= 2 * place.size:
        added = np.bincount(place, weight)
        table[: added.size] += added
    else:  # bincount would make and add a whole table per batch
        np.add.at(table, place, 1 if weight is None else weight)


def scan(
    source: Source,
    data_spec: DataSpec,
    *,
    exact: bool = True,
    losses: bool = True,
    each: Callable[[Counts], None] | None = None,
) -> Scan:
    """Count a source in one pass; a DataError where no row can be used, or rows that must not be left out are.

    Parameters
    ----------
    exact
        Keep what exact distances need: the rows' scores of small data, finer bins for large data. Without it, what
        is counted in a part of the source does not depend on what else is in the source.
    losses
        Sum the losses per group; without them the scan costs about half.
    each
        Called with the counts of every part, in the order of the data. The source may be a piece of a whole then, so
        it need not have what a whole must: :func:`check_whole` is left to the caller.
    """
    source.require(data_spec.columns.counted)
    data_spec = data_spec.with_threshold().in_type_of(source.schema)
    with proposing_bands(source):
        there = source.counted(data_spec, exact=exact, losses=losses)
    if there is not None and each is not None:
        each(there)
    bins, room = fineness(source.about_rows, exact=exact)
    keep = exact and data_spec.columns.score is not None and (source.rows is None or source.rows <= KEEP_ROWS)

    def count(part: SourcePart) -> Scan:
        tally = Tally(data_spec, bins, losses=losses, keep=keep, room=room)
        encoder = Encoder(data_spec, part.where, part.first_row)
        for batch in part.batches():
            tally.add(encoder.encode(batch))
        return tally.scan()

    with proposing_bands(source):
        if there is not None:
            total: Scan | None = Scan(there, None, data_spec)
        else:
            parts = source.parts(data_spec.columns.counted, column_types(data_spec, source))
            if each is None:
                total = source.workers.total(parts, count)
            else:
                total = added(_telling(source.workers.each(parts, count), each))
        total = total or Scan(Tally(data_spec, bins).counts(), None, data_spec)
        counts = total.counts
        for name, rows in rows_of_levels(counts.keys, counts.cells, counts.rows.sum(axis=(1, 2))).items():
            if name not in data_spec.columns.classes:
                check_numbers(name, rows, data_spec.bands)
            if each is None and name in data_spec.columns.protected:
                check_sizes(name, list(rows.values()), data_spec.bands)
    check_excluded(counts.excluded, counts.read, data_spec)
    if each is None:
        check_whole(counts, data_spec, source.name)
    return total


def _telling(scans: Iterable[Scan], each: Callable[[Counts], None]) -> Iterator[Scan]:
    for one in scans:
        each(one.counts)
        yield one


def check_whole(counts: Counts, data_spec: DataSpec, name: str) -> None:
    """Raise a DataError where no row is left, weights have no squares, or no label is the positive one."""
    if not counts.read:
        raise DataError(f"{name} has no rows")
    if not counts.used:
        why = ", ".join(f"{reason} {rows:,}" for reason, rows in counts.excluded.items())
        raise DataError(f"{name}: no rows are left to audit; left out: {why}")
    counts.require_squares(data_spec.columns.weight)
    decided = None if counts.decisions is None else counts.decisions[..., 0]
    check_positive(counts.rows[:, -1], data_spec, decided)


def column_types(data_spec: DataSpec, source: Source) -> dict[str, pa.DataType]:
    """Return the column types to ask a source for."""
    coded = pa.dictionary(pa.int32(), pa.string())
    types: dict[str, pa.DataType] = dict.fromkeys(data_spec.columns.cell_keys, coded)
    types |= {name: pa.float64() for name, edges in data_spec.bands.items() if edges and source.spells(name)}
    columns = data_spec.columns
    for name in (columns.score, columns.weight, columns.probability):
        if name:
            types[name] = pa.float64()
    if columns.label:
        real = data_spec.task == "regression" or data_spec.label_threshold
        types[columns.label] = pa.float64() if real else coded
    if columns.prediction:
        types[columns.prediction] = coded
    return types


def read_table(
    data: Any,
    data_spec: DataSpec,
    columns: Iterable[str] | None = None,
    raw: Types = NO_TYPES,
) -> Table:
    """Return data (a path, a frame, a source) as one table in memory, with its features.

    ``columns`` are the feature columns to read, None for all without a role; ``raw`` has columns to keep among the
    features whatever their role, with the types that text files are read as.
    """
    source = open_source(data)
    source.require(data_spec.columns.counted)
    wanted = source.columns if columns is None else columns
    batches = (batch for _, _, batch in stream_batches(source, data_spec, raw, wanted))
    with proposing_bands(source):
        return assemble(batches, data_spec, source.name, tuple(raw))


def stream_batches(
    source: Source,
    data_spec: DataSpec,
    more: Types = NO_TYPES,
    columns: Iterable[str] = (),
) -> Iterator[tuple[int, SourcePart, pa.RecordBatch]]:
    """Yield (rows before, part, batch) of the counted columns and others, one batch in memory at a time.

    ``more`` names columns with the types that text files are read as, ``columns`` those of any type.
    """
    before = 0
    names = list(dict.fromkeys((*data_spec.columns.counted, *columns, *more)))
    for part in source.parts(names, {**more, **column_types(data_spec, source)}):
        for batch in part.batches():
            if batch.num_rows:
                yield before, part, batch
                before += batch.num_rows


def settled_bands(rules: Mapping[str, Edges | str], source: Source) -> dict[str, Edges]:
    """Return bands with the edges that words stand for in a source; a DataError where there are none."""
    out: dict[str, Edges] = {}
    for name, rule in rules.items():
        if isinstance(rule, str):
            kind = source.schema.field(name).type
            out[name] = quantile_edges(name, rule, _numbers(source, name), kind) if rule in PARTS else ()
        else:
            out[name] = rule
    return out


def bands_of_groups(columns: Any, bands: Any) -> dict[str, Edges]:
    """Return the edges of the bands of all columns of groups, none where one is not cut."""
    source, rules = open_source(columns), parse_bands(bands or ())
    source.require(list(rules))
    with proposing_bands(source):
        for name in source.columns:
            check_numbers(name, set(columns.column(name).to_pylist()) - {None}, rules)
    return dict.fromkeys(source.columns, ()) | settled_bands(rules, source)


@contextmanager
def proposing_bands(source: Source) -> Iterator[None]:
    """Add edges that fit the data to the error that numbers are no groups."""
    try:
        yield
    except NumbersAsGroupsError as error:
        name = error.column
        try:
            numbers, rows = distribution(_numbers(source, name))
        except DataError:  # some entries are no numbers
            raise error from None
        raise NumbersAsGroupsError(name, proposal(numbers, rows)) from None


def _numbers(source: Source, name: str) -> Iterator[Floats]:
    """Yield the numbers of a column of groups, NaN where there is none."""
    kind = pa.float64() if source.spells(name) else pa.dictionary(pa.int32(), pa.string())
    for part in source.parts([name], {name: kind}):
        row = part.first_row
        for batch in part.batches():
            yield group_numbers(batch.column(0), name, partial(row_name, part.where, row))
            row += batch.num_rows


def count_table(table: Table, *, exact: bool = False) -> Scan:
    """Count a table in memory, decisions and losses included; ``exact`` as in :func:`scan`."""
    rows = table.rows
    if isinstance(rows, EntryRows):
        return _count_entries(table, rows)
    bins, room = fineness(len(rows), exact=exact)
    tally = Tally(table.data_spec, bins, room=room)
    if rows.score is not None and not tally.fixed:
        tally.cover(rows.score)
    for piece in table.pieces():
        tally.add(piece.rows)
    tally.read, tally.excluded = rows.read, Counter(rows.excluded)
    if rows.score is not None:  # all of them, however many
        label = rows.label if table.data_spec.binary else None
        tally.kept = [KeptRows(rows.score, rows.cell, label, rows.weight)]
    return tally.scan()


def _count_entries(table: Table, rows: EntryRows) -> Scan:
    """Count entries of counts, whose scores are middles of bins, or exact."""
    data_spec = table.data_spec
    keys, labels = data_spec.columns.cell_keys, 2 if data_spec.binary else 1
    if not rows.entries.exact:
        return Scan(counts_of(rows, keys, labels), None, data_spec)
    grid = grid_over(data_spec, BINS, rows.score.min(), rows.score.max())
    counts = counts_of(rebinned(rows, grid, quantities(rows, data_spec, losses=True), labels), keys, labels)
    _, into = groups_of_cells(keys, rows.cells, keys, counts.cells)
    label = rows.label if data_spec.binary else None
    kept = KeptRows(rows.score, into[rows.cell], label, rows.weight, table.square_weight)
    return Scan(counts, kept, data_spec)
