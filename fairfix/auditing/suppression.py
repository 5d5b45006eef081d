"""Suppression: results that are made only of the rows of groups that are large enough to be shown.

A group with fewer rows than a limit ``N`` is *small*. To leave it out of a table does not hide it: totals, margins,
score bins and sums over all rows share cells with it. So the rows of small groups are left out of the data before
anything is computed, overall numbers included. A group that thereby falls below the limit goes too, until every group
of every table has no rows or at least ``N``. What is kept is the largest set of rows with this property.

Therefore a result is a function of the rows kept. It is the same, byte for byte, whatever the size of a small group
is (any number below ``N``, also 0) and whatever labels, scores and weights its rows have. In terms of statistical
disclosure control, records are suppressed by a threshold, in place of primary and secondary suppression of cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fairfix.data.counts import Bools, Ints, groups_of_cells
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.encoder import Encoder, arrow_array
from fairfix.data.files import BATCH_ROWS, NO_TYPES, DerivedSource, Source, SourcePart, Types
from fairfix.data.names import each_and_crossed
from fairfix.data.scan import column_types, scan
from fairfix.data.table import Table
from fairfix.data.typed import rebatched
from fairfix.data.urls import name_of, scheme_of
from fairfix.errors import DataError, EntryError, FairfixError

Cell = tuple[str, ...]


def tables_of(columns: ColumnRoles, *, intersect: bool) -> list[tuple[str, ...]]:
    """Return the columns of every table of groups: each attribute, perhaps the intersection, also within strata."""
    chosen = each_and_crossed(columns.protected, crossed=intersect)
    within = [(*columns.strata, *names) for names in chosen] if columns.strata else []
    return [*chosen, *within]


def shown_cells(
    keys: Sequence[str], cells: Sequence[Cell], rows: Ints, tables: Sequence[Sequence[str]], least: int
) -> Bools:
    """Return the cells to keep, so that every group of every table has no rows or at least ``least``.

    Parameters
    ----------
    keys, cells
        Columns, and a level of each per cell.
    rows
        (C,) rows in every cell.
    tables
        Columns of each table whose groups are to be large enough.
    least
        A group with fewer rows is small.
    """
    groups = [groups_of_cells(keys, cells, table)[1] for table in tables]
    shown = rows > 0
    while True:
        before = shown
        for group in groups:
            sizes = np.bincount(group, rows * shown, minlength=1)
            shown = shown & (sizes[group] >= least)
        if np.array_equal(shown, before):
            return shown


class ShownRows(DerivedSource):
    """The complete rows of another source that are in cells to be shown; there are no others, for all that reads it."""

    most_hidden: int
    """Largest possible number of rows in small cells: it depends on how many of these there are, not on their sizes."""

    def __init__(
        self, source: Source, data_spec: DataSpec, cells: Sequence[Cell], rows: int, most_hidden: int
    ) -> None:
        super().__init__(source)
        self._data_spec, self._cells, self.most_hidden = data_spec, tuple(cells), most_hidden
        self.rows = self.about_rows = rows

    def parts(self, columns: Sequence[str], types: Types = NO_TYPES) -> list[SourcePart]:
        """Return the rows to be shown as one part, in batches of one size.

        The batches of the source end where rows that are left out make them end. A sum over them would differ in its
        last digits with the number of those rows.
        """
        own = self._data_spec.columns.counted
        names = list(dict.fromkeys((*columns, *own)))
        of_own = column_types(self._data_spec, self.source)
        parts = self.source.parts(names, {**of_own, **types})
        return [SourcePart(self.name, partial(self._batches, parts, list(columns)))]

    def _batches(self, parts: Sequence[SourcePart], columns: list[str]) -> Iterator[pa.RecordBatch]:
        return rebatched((batch for part in parts for batch in self._inside(part, columns)), BATCH_ROWS)

    def _inside(self, part: SourcePart, columns: list[str]) -> Iterator[pa.RecordBatch]:
        encoder, keys = (
            Encoder(self._data_spec, part.where, part.first_row),
            self._data_spec.columns.cell_keys,
        )
        for batch in part.batches():
            rows = encoder.encode(batch)
            complete = np.ones(batch.num_rows, dtype=bool) if rows.kept is None else rows.kept.copy()
            complete[complete] = groups_of_cells(keys, encoder.cells, keys, self._cells)[1][rows.cell] >= 0
            yield batch.select(columns).filter(arrow_array(complete))


def shown_rows(source: Source, data_spec: DataSpec, tables: Sequence[Sequence[str]], least: int) -> ShownRows:
    """Return a source of the rows that may be counted in tables of these columns; a DataError where there are none."""
    if isinstance(source, ShownRows):  # its rows have been chosen for this run
        return source
    counts = scan(source, data_spec, exact=False, losses=False).counts
    rows = counts.rows.sum(axis=(1, 2))
    shown = shown_cells(counts.keys, counts.cells, rows, tables, least)
    require_some(shown, least)
    cells = [counts.cells[i] for i in np.flatnonzero(shown)]
    most = int((~shown).sum()) * (least - 1)
    return ShownRows(source, data_spec, cells, int(rows[shown].sum()), most)


def shown_table(table: Table, tables: Sequence[Sequence[str]], least: int) -> Table:
    """Return a table of the rows that may be counted; a DataError where there are none."""
    own = table.rows
    rows = np.bincount(own.cell, minlength=len(own.cells))
    shown = shown_cells(table.data_spec.columns.cell_keys, own.cells, rows, tables, least)
    require_some(shown, least)
    return table.take(np.flatnonzero(shown[own.cell]))


@contextmanager
def withholding(least: int, data: Any = None) -> Iterator[None]:
    """Replace messages of errors that may quote values of the data; with ``least`` 0, none.

    Only errors known to quote no values pass, and those about a file that is not there.
    """
    remedy = "to see it, run without `suppress_below` where nobody else reads the messages"
    try:
        yield
    except (MemoryError, OSError):
        raise
    except FairfixError as error:
        absent = isinstance(data, str) and not scheme_of(data) and not Path(data).exists()
        if not least or not error.quotes or absent:
            raise
        where = f" in {error.part} column {error.column!r}" if isinstance(error, EntryError) else ""
        if isinstance(data, str):
            where += f" of {name_of(data)}"
        withheld = DataError(
            f"`suppress_below={least}`: something{where} cannot be used; the reason may quote values of the data "
            f"and is not shown: {remedy}"
        )
        withheld.code = error.code
        raise withheld from None
    except Exception as error:
        if not least:
            raise
        raise RuntimeError(
            f"{type(error).__name__}, whose message may quote values of the data; {remedy}"
        ) from None


def require_some(shown: Bools, least: int) -> None:
    """Raise a DataError where nothing may be shown."""
    if not shown.any():
        raise DataError(
            f"`suppress_below={least}`: no rows are left, since no group has {least} rows or more in every table; "
            "a smaller number, or fewer columns in `protected` and `strata`, shows more"
        ).without_values()
