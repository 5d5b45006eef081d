"""Engines: tables that are counted where they are, by the statements of :mod:`fairfix.data.count_queries`.

An engine is whatever runs a narwhals expression without loading the rows here: a database through Ibis
(:mod:`fairfix.data.database`), a Polars lazy frame, a DuckDB relation, a Spark frame. Few rows are read instead, and so
are rows that are needed one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from copy import copy
from typing import Any, Self

import narwhals as nw
import pyarrow as pa

from fairfix.data.arrow_normalize import plain_batch, plain_schema
from fairfix.data.count_queries import CountQueries, Frame, as_level, framed
from fairfix.data.counts import BinSlice, Counts, Grid
from fairfix.data.data_spec import DataSpec
from fairfix.data.files import BATCH_ROWS, NO_TYPES, FrameSource, Source, SourcePart, Types
from fairfix.data.frames import fetched, known_types
from fairfix.data.query_results import counts_of, rows_of_bins, summarised
from fairfix.data.scan import SORT_ROWS, KeptRows
from fairfix.data.workers import Cluster, Workers
from fairfix.errors import DataError, UsageError


class EngineSource(Source):
    """A table of an engine, counted by statements; rows that are needed are read as one part.

    Parameters
    ----------
    frame
        The table.
    schema
        Names and types of its columns, as they are read.
    name
        The name in messages.
    """

    answers = True
    backend = ""
    """Ibis's name of the database; empty for other engines."""
    texts: frozenset[str] = frozenset()
    """Columns whose values are read as texts where each has a meaning."""

    def __init__(self, frame: Frame, schema: pa.Schema, name: str) -> None:
        self.frame, self.schema, self.name, self._kind = frame, schema, name, name
        self._rows: int | None = None
        self._kept: pa.Table | None = None

    @property
    def rows(self) -> int | None:  # type: ignore[override]  # asked for when it is needed
        """Number of rows; None where nothing may be asked."""
        if self._rows is None:
            for answer in self.ask(self.frame.select(n=nw.len())):
                self._rows = int(answer["n"][0].as_py())
        return self._rows

    @property
    def about_rows(self) -> int:  # type: ignore[override]  # it asks for the rows
        """Number of rows."""
        return self.rows or 0

    def read_by(self, workers: Workers) -> Self:
        """Return the source as it is, since its engine does the work; a UsageError for a cluster."""
        if isinstance(workers, Cluster):
            raise UsageError(
                f"`cluster` reads files and Dask frames, and {self.name} is counted by its own engine; leave it out"
            )
        return super().read_by(workers)

    def parts(self, columns: Sequence[str], types: Types = NO_TYPES) -> list[SourcePart]:
        """Return the table as one part."""
        return [SourcePart(self.name, lambda: self.ask(self.selected(columns, types)))]

    def selected(self, columns: Sequence[str], types: Types = NO_TYPES) -> Frame:
        """Return the statement for all rows, with these columns."""
        coded = {name for name, kind in types.items() if pa.types.is_dictionary(kind)}
        columns_of = {
            name: as_level(name, self.texts)
            if name in coded or name not in self.texts
            else nw.col(name).cast(nw.Float64)
            for name in columns
        }
        return self.frame.select(**columns_of)

    def counted(self, data_spec: DataSpec, *, exact: bool, losses: bool) -> Counts | None:
        """Return the counts of all rows; None where they are so few that exact distances take all of them."""
        queries = self.queries(data_spec, losses=losses)
        summary = summarised(self.ask, queries, self.name)
        self._rows = summary.read
        if exact and data_spec.columns.score and summary.read <= SORT_ROWS:
            return None
        return counts_of(self.ask, queries, summary, self.name, exact=exact)

    def collected(
        self,
        data_spec: DataSpec,
        counts: Counts,
        slices: Sequence[BinSlice],
        columns: tuple[str, ...] | None = None,
        finer: Grid | None = None,
    ) -> KeptRows:
        """Return the rows in slices of the scores, or how many there are in finer bins, by one statement."""
        return rows_of_bins(self.ask, self.queries(data_spec), counts, slices, self.name, columns, finer)

    def queries(self, data_spec: DataSpec, *, losses: bool = False) -> CountQueries:
        """Return the statements for a reading; a ColumnError where a column has a type that its part cannot have."""
        queries = CountQueries(self.frame, self.schema, data_spec, losses, self.backend, self.texts)
        queries.check_types()
        return queries

    def meeting(self, condition: nw.Expr) -> Self:
        """Return a source of the rows that meet a condition."""
        out = copy(self)
        out.frame, out._rows, out._kept = self.frame.filter(condition), None, None
        return out

    def ask(self, statement: Frame) -> Iterator[pa.RecordBatch]:
        """Yield the answer to a statement."""
        with self._asking():
            for batch in answer_of(statement):
                if batch.num_rows:
                    yield plain_batch(batch)

    def _asking(self) -> AbstractContextManager[None]:
        """Return a context that turns an error of the engine into a DataError."""
        return fetched(self._kind)


class LazySource(EngineSource):
    """A lazy frame of this process or of a cluster; the columns that were read last are kept.

    A frame must give the same rows in the same order each time it is read.

    Parameters
    ----------
    data
        A Polars lazy frame, a DuckDB relation or a Spark frame.
    kind
        The kind of rows, for messages.
    """

    def __init__(self, data: Any, kind: str) -> None:
        with fetched(kind):
            frame = framed(known_types(data) if kind == "Polars frame" else data)
            schema = schema_of(frame)
        super().__init__(frame, plain_schema(schema), "data")
        self._kind = kind

    def parts(self, columns: Sequence[str], types: Types = NO_TYPES) -> list[SourcePart]:
        """Return the rows as one part; a DataError where their number has changed since they were read last."""
        kept, names = self._kept, list(columns) or self.schema.names[:1]
        if kept is None or not set(names) <= set(kept.column_names):
            before = () if kept is None else kept.column_names
            wanted = list(dict.fromkeys((*before, *names)))
            schema = pa.schema([self.schema.field(name) for name in wanted])
            self._kept = kept = pa.Table.from_batches(self.ask(self.selected(wanted)), schema)
            if self._rows not in (None, kept.num_rows):
                raise DataError(
                    f"the {self._kind} gave {self._rows:,} rows, and {kept.num_rows:,} when it was read again; collect "
                    "it first"
                )
            self._rows = kept.num_rows
        return FrameSource(kept, self.name).parts(columns)


def schema_of(frame: Frame) -> pa.Schema:
    """Return the names and types of the columns, as an engine that is none of Ibis answers with them."""
    if frame.implementation.is_duckdb():  # no row is asked for: no table can hold those of some types
        return reader_of(frame.to_native()).schema
    return next(iter(answer_of(frame.head(0)))).schema


def answer_of(statement: Frame) -> Iterator[pa.RecordBatch]:
    """Yield the answer of an engine that is none of Ibis; where it has no rows, perhaps a batch without any."""
    if statement.implementation.is_duckdb():
        yield from reader_of(statement.to_native())
        return
    more = {"engine": "streaming"} if statement.implementation.is_polars() else {}
    made: pa.Table = statement.collect("pyarrow", **more).to_native()
    yield from made.to_batches() or [pa.RecordBatch.from_pylist([], schema=made.schema)]


def reader_of(relation: Any) -> pa.RecordBatchReader:
    """Return the rows of a DuckDB relation as batches, by either of the names that the function has had."""
    return (getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader)(BATCH_ROWS)
