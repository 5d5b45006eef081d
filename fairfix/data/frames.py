"""Frames: rows in memory, of the kinds that programs have, as sources of Arrow batches.

=============================================  ==============================================================
kind                                           is read
=============================================  ==============================================================
Arrow table, batch, Polars data frame          as it is
pandas data frame, dict of columns, records,   into an Arrow table at once
structured array of numpy
Polars lazy frame, DuckDB relation, Spark      by its engine, which counts the rows (:mod:`fairfix.data.engines`)
frame
Dask data frame                                a partition at a time, where the partition is
                                               (:mod:`fairfix.data.dask_frames`)
Arrow dataset                                  a batch at a time, so it may be larger than memory
reader of batches, other Arrow C streams       once, into an Arrow table
=============================================  ==============================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from fairfix.data.files import BATCH_ROWS, NO_TYPES, FrameSource, Source, SourcePart, Types
from fairfix.data.frame_columns import arrow_table
from fairfix.data.typed import rebatched
from fairfix.data.urls import hidden
from fairfix.errors import ColumnError, DataError

KINDS = (
    "a path, a data frame (pandas, Polars, Dask, Spark), an Arrow table or dataset, a DuckDB relation, a dict of "
    "columns, a list of dicts, or an array with names"
)
"""Rows that fairfix takes, for messages."""


class DatasetSource(Source):
    """An Arrow dataset, which is read a batch at a time."""

    def __init__(self, dataset: Any) -> None:
        self.name, self.schema = "data", dataset.schema
        with fetched("dataset"):
            self.rows = self.about_rows = int(dataset.count_rows())
        self._dataset = dataset

    def parts(self, columns: Sequence[str], types: Types = NO_TYPES) -> list[SourcePart]:
        """Return the rows as one part."""

        def batches() -> Iterator[pa.RecordBatch]:
            with fetched("dataset"):
                yield from rebatched(
                    self._dataset.to_batches(columns=list(columns), batch_size=BATCH_ROWS), BATCH_ROWS
                )

        return [SourcePart(self.name, batches)]


def frame_source(data: Any) -> Source:
    """Return rows in memory as a source; a DataError where they are of no kind that is known, or cannot be read."""
    if isinstance(data, pa.RecordBatch):
        return FrameSource(pa.Table.from_batches([data]))
    if isinstance(data, pa.Table):
        return FrameSource(data)
    if isinstance(data, Mapping):
        return _by_column(data)
    if isinstance(data, (list, tuple)) and data and all(isinstance(row, Mapping) for row in data):
        return _by_column(columns_of(data))
    if isinstance(data, np.ndarray) and data.ndim == 1 and data.dtype.names:
        return _by_column({name: data[name] for name in data.dtype.names})
    if isinstance(data, np.ndarray) and data.ndim == 2 and data.shape[1]:
        return _by_column({f"x{i}": data[:, i] for i in range(data.shape[1])})
    if (lazy := _lazy(data)) is not None:
        return lazy
    if hasattr(data, "columns") and hasattr(data, "iloc"):
        if getattr(data.columns, "nlevels", 1) > 1:
            raise ColumnError(
                "the columns of the data frame have several levels; give each one name: "
                "data.columns = ['_'.join(map(str, names)) for names in data.columns]"
            )
        return _by_column(data)
    is_series = hasattr(data, "dtype") and not hasattr(data, "columns")
    if hasattr(data, "__arrow_c_stream__") and not is_series:
        with fetched(type(data).__name__):
            return FrameSource(streamed(data))
    shape = getattr(data, "shape", None)
    shaped = f" of shape {tuple(shape)}" if isinstance(shape, tuple) else ""
    raise DataError(f"cannot read data from a {type(data).__name__}{shaped}; give {KINDS}")


ENGINES = {
    ("polars", "collect"): "Polars frame",
    ("duckdb", "project"): "DuckDB relation",
    ("pyspark", "groupBy"): "Spark frame",
    ("sqlframe", "groupBy"): "SQLFrame",
    ("dask", "to_delayed", "dtypes"): "Dask frame",
    ("ibis", "aggregate", "schema"): "Ibis table",
}
"""Package, and what its frames have -> what messages call a frame of an engine."""


def engine_of(data: Any) -> str:
    """Return what messages call a frame of an engine, which reads the rows when it is asked; empty for other rows."""
    library = type(data).__module__.partition(".")[0].lstrip("_")
    kinds = (
        kind
        for (package, *signs), kind in ENGINES.items()
        if package == library and all(hasattr(data, sign) for sign in signs)
    )
    return next(kinds, "")


def _lazy(data: Any) -> Source | None:
    """Return a source that reads only the columns that are used, or none; None for data without such a way."""
    kind = engine_of(data)
    if kind == "Dask frame":
        from fairfix.data.dask_frames import DaskSource

        return DaskSource(data)
    if kind:
        from fairfix.data.engines import LazySource

        return LazySource(data, kind)
    library = type(data).__module__.partition(".")[0]
    if library == "polars" and hasattr(data, "collect_schema"):
        with fetched("Polars frame"):
            return FrameSource(streamed(known_types(data)))
    if library == "pyarrow" and hasattr(data, "count_rows") and hasattr(data, "to_batches"):
        if hasattr(data, "get_fragments"):
            return DatasetSource(data)
        with fetched("scanner"):
            return FrameSource(data.to_table())
    return None


def columns_of(rows: Sequence[Mapping[Any, Any]]) -> dict[Any, list[Any]]:
    """Return the columns of a list of records; a key that a record lacks is a missing value."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _by_column(data: Any) -> Source:
    """Return a data frame of pandas, or a dict of columns; columns that no table can hold are left out."""
    table, unreadable = arrow_table(data)
    return FrameSource(table, unreadable=unreadable)


def known_types(frame: Any) -> Any:
    """Return a Polars frame, lazy or not, with integers of 128 bits as texts, since Arrow has no such type."""
    import polars as pl
    from polars.selectors import by_dtype

    wide = [getattr(pl, name) for name in ("Int128", "UInt128") if hasattr(pl, name)]
    return frame.with_columns(by_dtype(*wide).cast(pl.String))


def streamed(data: Any) -> pa.Table:
    """Return the rows of an Arrow C stream."""
    return pa.RecordBatchReader.from_stream(data).read_all()


@contextmanager
def fetched(kind: str) -> Iterator[None]:
    """Turn an error of whatever makes the rows into a DataError."""
    try:
        yield
    except (MemoryError, DataError):
        raise
    except Exception as error:  # libraries have errors of their own
        reason = hidden(str(error)).strip() or type(error).__name__
        raise DataError(f"the rows of the {kind} cannot be read: {reason}") from None
