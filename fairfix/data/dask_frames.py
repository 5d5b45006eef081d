"""Dask data frames: rows in partitions, each counted by the tally where Dask has it.

A partition is a pandas frame, so the tally of pandas frames counts it in one pass, and its counts are added as those of
the parts of files are. A group-by of Dask would shuffle what narwhals expressions make, several columns for each sum.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib import import_module
from itertools import islice
from typing import Any
from uuid import uuid4

import pyarrow as pa

from fairfix.data.arrow_normalize import plain_batch, plain_schema
from fairfix.data.files import BATCH_ROWS, Part, Source
from fairfix.data.frame_columns import arrow_table
from fairfix.data.frames import fetched
from fairfix.data.workers import Cluster, Made, Some, Threads, Workers

AHEAD = 8
"""Partitions whose results are made at once where they are wanted one by one."""

_LOADED: ContextVar[Mapping[str, Any]] = ContextVar("_LOADED", default={})  # noqa: B039  never changed
"""Partition -> its pandas frame, while a task of Dask works on it."""


class DaskSource(Source):
    """A Dask data frame; each partition is a part."""

    def __init__(self, frame: Any) -> None:
        import pandas as pd

        self.name, self._frame = "data", frame
        self.workers: DaskWorkers = DaskWorkers()
        kinds = {name: "string" if kind == object else kind for name, kind in frame.dtypes.items()}  # noqa: E721
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

    def parts(self, columns: Sequence[str], types: Mapping[str, pa.DataType] | None = None) -> list[Part]:
        """Return one part per partition."""
        wanted = list(columns) or self.schema.names[:1]
        with fetched("Dask frame"):
            named = {str(name): name for name in self._frame.columns}
            partitions = self._frame[[named[name] for name in wanted]].to_delayed()
        parts: list[Part] = []
        for number, partition in enumerate(partitions, 1):
            batches = _Batches(uuid4().hex, partition)
            parts.append(_Partition(f"partition {number} of {self.name}", batches, loaded_by=batches))
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
        loaded = _LOADED.get()
        with fetched("Dask frame"):
            frame = loaded[self.key] if self.key in loaded else self.partition.compute()
            table, _ = arrow_table(frame)
        for batch in table.combine_chunks().to_batches(max_chunksize=BATCH_ROWS):
            yield plain_batch(batch)


@dataclass(frozen=True)
class _Partition(Part):
    """A part that is a partition, perhaps with some of its rows."""

    loaded_by: _Batches | None = None


@dataclass(frozen=True)
class DaskWorkers(Workers):
    """Dask's own scheduler, or the workers of a client; parts that are no partitions are worked on here."""

    client: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as threads: what goes to a worker brings no cluster along."""
        return Threads, ()

    def replaced_by(self, workers: Workers) -> Workers:
        """Return the workers for a frame of Dask where others were asked for: a cluster's client, or Dask's own."""
        return DaskWorkers(workers.client) if isinstance(workers, Cluster) else self

    def each(self, pieces: Sequence[Some], work: Callable[[Some], Made]) -> Iterator[Made]:
        """Yield ``work(piece)`` in the order of the pieces, a few of them ahead."""
        if not all(isinstance(piece, _Partition) for piece in pieces):
            yield from map(work, pieces)
            return
        leaves = iter(self._leaves(pieces, work))
        while few := list(islice(leaves, AHEAD)):
            with self._errors(pieces):
                made = self.computed(few)
            yield from made

    def total(self, pieces: Sequence[Some], work: Callable[[Some], Made]) -> Made | None:
        """Return the sum of ``work(piece)`` over all pieces, added as a tree by Dask."""
        if not pieces or not all(isinstance(piece, _Partition) for piece in pieces):
            return super().total(pieces, work)
        level, add = self._leaves(pieces, work), import_module("dask").delayed(operator.add)
        while len(level) > 1:
            pairs = [add(*level[i : i + 2]) for i in range(0, len(level) - 1, 2)]
            level = pairs + level[len(level) - len(level) % 2 :]
        with self._errors(pieces):
            made: Made = self.computed(level)[0]
            return made

    def _leaves(self, pieces: Sequence[Any], work: Callable[[Any], Any]) -> list[Any]:
        run = uuid4().hex
        worked = import_module("dask").delayed(_worked, pure=False, traverse=False)
        return [
            worked(
                work, piece.where, piece.batches, piece.first_row, piece.loaded_by.key, piece.loaded_by.partition,
                dask_key_name=f"fairfix-{run}-{number}",
            )
            for number, piece in enumerate(pieces)
        ]  # fmt: skip

    def computed(self, leaves: Sequence[Any]) -> list[Any]:
        """Return the results of delayed work."""
        if self.client is None:
            return list(import_module("dask").compute(*leaves))
        return [future.result() for future in self.client.compute(list(leaves))]

    @contextmanager
    def _errors(self, pieces: Sequence[Any]) -> Iterator[None]:
        """Turn what Dask says into an error of the data."""
        with fetched("Dask frame"):
            if self.client is None:
                yield
            else:
                with Cluster(self.client).naming(pieces):
                    yield


def _worked(
    work: Callable[[Part], Any], where: str, batches: Any, first_row: int, key: str, frame: Any
) -> Any:
    """Work on a partition, in a task of Dask."""
    token = _LOADED.set({**_LOADED.get(), key: frame})
    try:
        return work(Part(where, batches, first_row))
    finally:
        _LOADED.reset(token)
