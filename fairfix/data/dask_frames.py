"""Dask data frames: rows in partitions, each counted by the tally where Dask has it.

A partition is a pandas frame, so the tally of pandas frames counts it in one pass, and its counts are added as those of
the parts of files are. A group-by of Dask would shuffle what narwhals expressions make, several columns for each sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pyarrow as pa

from fairfix.data.arrow_normalize import plain_batch, plain_schema
from fairfix.data.files import BATCH_ROWS, NO_TYPES, Source, SourcePart, Types
from fairfix.data.frame_columns import arrow_table
from fairfix.data.frames import fetched
from fairfix.data.workers import LOADED, Cluster


class DaskSource(Source):
    """A Dask data frame; each partition is a part."""

    def __init__(self, frame: Any) -> None:
        import pandas as pd

        self.name, self._frame = "data", frame
        self.workers: Cluster = Cluster(partitions=True)
        kinds = {name: "string" if kind == object else kind for name, kind in frame.dtypes.items()}  # noqa: E721  a type of numpy, which has no identity
        empty, self.unreadable = arrow_table(
            pd.DataFrame({name: pd.Series([], dtype=kind) for name, kind in kinds.items()})
        )
        self.schema = plain_schema(empty.schema)
        self._rows: int | None = None

    @property
    def rows(self) -> int:  # type: ignore[override]  # computed when it is needed
        """Number of rows, which Dask computes."""
        if self._rows is None:
            with fetched("Dask frame"):
                self._rows = int(self.workers.computed([self._frame.shape[0]])[0])
        return self._rows

    @property
    def about_rows(self) -> int:  # type: ignore[override]  # it computes the rows
        """Number of rows."""
        return self.rows

    def parts(self, columns: Sequence[str], types: Types = NO_TYPES) -> list[SourcePart]:
        """Return one part per partition."""
        wanted = list(columns) or self.schema.names[:1]
        with fetched("Dask frame"):
            named = {str(name): name for name in self._frame.columns}
            partitions = self._frame[[named[name] for name in wanted]].to_delayed()
        parts = list[SourcePart]()
        for number, partition in enumerate(partitions, 1):
            batches = _Batches(uuid4().hex, partition)
            parts.append(SourcePart(f"partition {number} of {self.name}", batches, loaded_by=batches))
        return parts


@dataclass(frozen=True)
class _Batches:
    """Yields the rows of a partition: in a task of Dask those it was given, elsewhere computed now."""

    key: str
    partition: Any = field(compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel without the graph, since a task gets the rows separately."""
        return _Batches, (self.key, None)

    def __call__(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in plain batches."""
        loaded = LOADED.get()
        with fetched("Dask frame"):
            frame = loaded[self.key] if self.key in loaded else self.partition.compute()
            table, _ = arrow_table(frame)
        for batch in table.combine_chunks().to_batches(max_chunksize=BATCH_ROWS):
            yield plain_batch(batch)
