"""Base of formats that pandas reads as frames, some rows at a time."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fairfix.data import files
from fairfix.data.files import FileSource, Part, readable, require
from fairfix.data.storage import FileLocation
from fairfix.data.typed import CODED, Labels, asked_batches, column_of, recast, unified, unlabelled
from fairfix.errors import DataError

if TYPE_CHECKING:
    from pandas import DataFrame

HEAD_ROWS = 10_000
"""Rows of the first chunk, which shows the types of the columns."""

Frames = Callable[[int, Sequence[str] | None], Iterator["DataFrame"]]
"""Yields frames of ``rows`` rows, of all columns or of those at least."""


class FrameFile(FileSource):
    """Files of one kind that pandas reads in chunks."""

    def __init__(self, places: Sequence[FileLocation], name: str) -> None:
        """Read the first rows of each file, and all values of columns with labels."""
        super().__init__(places, name)
        self._labels: dict[FileLocation, Mapping[str, Labels]] = {}
        kinds: dict[str, dict[pa.DataType, None]] = {}
        bare: set[str] = set()
        """Columns that have a value without a label."""
        for place in places:
            with self._open(place) as (frames, labels):
                self._labels[place] = labels
                batch = next(map(_batch, frames(HEAD_ROWS, None)), None)
                for field in batch.schema if batch else ():
                    kinds.setdefault(field.name, {})[field.type] = None
            bare |= kinds.keys() - labels.keys() | self._bare(place)
        self._kinds = {one: unified(each) for one, each in kinds.items()}
        self._names = self._kinds.keys() - bare
        self.schema = pa.schema(
            {one: CODED if one in self._names else kind for one, kind in self._kinds.items()}
        )
        self.about_rows = sum(place.size or 0 for place in places) // (8 * max(len(kinds), 1))

    @classmethod
    @abstractmethod
    @contextmanager
    def frames(cls, file: pa.NativeFile) -> Iterator[tuple[Frames, Mapping[str, Labels]]]:
        """Yield what reads an open file, and the labels of the values of its columns."""

    @contextmanager
    def _open(self, place: FileLocation) -> Iterator[tuple[Frames, Mapping[str, Labels]]]:
        """Yield what reads a file; whatever pandas raises for a damaged one is a DataError."""
        try:
            with readable(place, self.kind), place.opened() as file, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with self.frames(file) as frames:
                    yield frames
        except (DataError, MemoryError, GeneratorExit):
            raise
        except Exception as error:
            first = [*str(error).strip().splitlines(), type(error).__name__][0].rstrip(".")
            raise DataError(
                f"{place.name} cannot be read as {self.kind}: it is damaged, incomplete or of an unknown version "
                f"({first}); save it again, or as CSV or Parquet"
            ) from error

    def _bare(self, place: FileLocation) -> set[str]:
        """Return the columns with labels that have a value without one, or none at all."""
        labels = self._labels[place]
        left, filled = set(labels), set[str]()
        if left:
            with self._open(place) as (frames, _):
                for frame in frames(files.BATCH_ROWS, list(labels)):
                    batch = _batch(frame[list(labels)])
                    arrays = dict(zip(labels, batch.columns, strict=True))
                    filled |= {one for one, array in arrays.items() if array.null_count < len(array)}
                    left -= {one for one in left if unlabelled(arrays[one], labels[one])}
        return labels.keys() - (left & filled)

    def parts(self, columns: Sequence[str], types: Mapping[str, pa.DataType] | None = None) -> list[Part]:
        """Return one part per file."""
        require(columns, list(self._kinds), self.name)
        return [
            Part(place.name, partial(self._read, place, list(columns), types or {})) for place in self.places
        ]

    def _read(
        self, place: FileLocation, columns: list[str], types: Mapping[str, pa.DataType]
    ) -> Iterator[pa.RecordBatch]:
        with self._open(place) as (frames, labels):
            batches = (self._chosen(frame, columns, place) for frame in frames(files.BATCH_ROWS, columns))
            yield from asked_batches(batches, types, place.name, labels, self._names)

    def _chosen(self, frame: DataFrame, columns: list[str], place: FileLocation) -> pa.RecordBatch:
        require(columns, list(frame.columns), f"{place.name} (of {self.name})")
        batch = _batch(frame[columns])
        arrays = [
            recast(column, self._kinds[name]) for name, column in zip(columns, batch.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, columns)


def _batch(frame: DataFrame) -> pa.RecordBatch:
    """Return a frame as Arrow data, with missing and blank texts as nulls."""
    return pa.RecordBatch.from_arrays([_array(frame[name]) for name in frame.columns], list(frame.columns))


def _array(column: Any) -> pa.Array:
    if column.dtype.kind in "iufbM":
        return pa.array(column.to_numpy(), from_pandas=True)
    return column_of([None if one is None or one != one or one == "" else one for one in column.tolist()])
