"""Bases of formats that have a type per value, or label the values of columns: read in chunks, or whole."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pyarrow as pa

from fairfix.data import files
from fairfix.data.confined import BYTES, TOO_LARGE, read_confined
from fairfix.data.files import NO_TYPES, FileSource, SourcePart, Types, readable, require
from fairfix.data.storage import FileLocation
from fairfix.data.typed import (
    CODED,
    Labels,
    asked_batches,
    column_of,
    labels_in,
    rebatched,
    recast,
    unified,
    unlabelled,
    with_labels,
    without_blanks,
)
from fairfix.errors import DataError, first_line

if TYPE_CHECKING:
    from pandas import DataFrame


class TypedFile(FileSource):
    """Files of one kind, whose columns get one type of all their chunks."""

    typed_columns: ClassVar[bool] = False
    """Whether the first chunk of a file shows the types of its columns."""

    def __init__(self, places: Sequence[FileLocation], name: str) -> None:
        """Read the files once, for types and rows; of typed columns without labels the first chunk alone."""
        super().__init__(places, name)
        kinds: dict[str, dict[pa.DataType, None]] = {}
        filled, bare, rows = set[str](), set[str](), 0
        for place in places:
            for batch in self.chunks(place):
                labels = labels_in(batch)
                for one, column in zip(batch.schema.names, batch.columns, strict=True):
                    kinds.setdefault(one, {})[column.type] = None
                    if one not in bare and column.null_count < len(column):
                        filled.add(one)
                        bare |= {one} if one not in labels or unlabelled(column, labels[one]) else set()
                rows += batch.num_rows
                if self.typed_columns and not labels:
                    break
        self._kinds = {one: unified(each) for one, each in kinds.items()}
        self._names = filled - bare
        self.schema = pa.schema(self._kinds | dict.fromkeys(filled - bare, CODED))
        self.rows = None if self.typed_columns else rows
        size = sum(place.size or 0 for place in places)
        self.about_rows = self.rows or size // (8 * max(len(kinds), 1))

    @abstractmethod
    def chunks(self, place: FileLocation, wanted: pa.Schema | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file: all columns, or the wanted ones at least, in any types.

        Labels of values are in the metadata of the chunks (:func:`fairfix.data.typed.with_labels`).
        """

    def parts(self, columns: Sequence[str], types: Types = NO_TYPES) -> list[SourcePart]:
        """Return one part per file, since most such formats have no places to start from."""
        require(columns, self.schema.names, self.name)
        wanted = pa.schema({one: self._kinds[one] for one in columns})
        return [
            SourcePart(place.name, partial(self.alone(place)._read, place, wanted, types))
            for place in self.places
        ]

    def alone(self, place: FileLocation) -> Self:
        """Return the source with what is kept of one file, which may go to another process."""
        return self

    def _read(
        self, place: FileLocation, wanted: pa.Schema, types: Mapping[str, pa.DataType]
    ) -> Iterator[pa.RecordBatch]:
        labels: dict[str, Labels] = {}

        def chosen() -> Iterator[pa.RecordBatch]:
            for batch in self.chunks(place, wanted):
                require(wanted.names, batch.schema.names, f"{place.name} (of {self.name})")
                labels.update(labels_in(batch))
                arrays = [recast(batch.column(field.name), field.type) for field in wanted]
                yield pa.RecordBatch.from_arrays(arrays, schema=wanted) if arrays else batch.select([])

        return asked_batches(rebatched(chosen(), files.BATCH_ROWS), types, place.name, labels, self._names)


class WholeFile(TypedFile):
    """Files that a library reads whole, each in another process when the source is opened, by ``read`` of the module.

    ``read`` gets the bytes, the name of the table that is named and that of the file. It returns a table, whose
    metadata may have a remark.
    """

    needs: ClassVar[tuple[str, str]]
    """Module that reads the format, and the extra of fairfix that brings it."""

    def __init__(self, places: Sequence[FileLocation], name: str, table: str | None = None) -> None:
        if find_spec(self.needs[0]) is None:
            raise DataError(
                f"{self.kind} files need {self.needs[0]}, which is not installed: "
                f"pip install 'fairfix[{self.needs[1]}]'"
            )
        reader, remarks = f"{type(self).__module__}:read", list[str]()
        self._tables: dict[FileLocation, pa.Table] = {}
        for place in places:
            made = read_confined(place, self.kind, reader, sheet=table, name=place.name)
            self._tables[place] = made
            if sum(one.nbytes for one in self._tables.values()) > BYTES:
                raise DataError(f"{name} {TOO_LARGE}")
            remarks.append((made.schema.metadata or {}).get(b"remark", b"").decode())
        super().__init__(places, name)
        self.remark = "; ".join(filter(None, remarks))

    def alone(self, place: FileLocation) -> Self:
        """Return the source with the table of one file."""
        one = copy(self)
        one._tables = {place: self._tables[place]}
        return one

    def chunks(self, place: FileLocation, wanted: pa.Schema | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are in memory; of no rows, a batch without any, for the columns."""
        table = self._tables[place]
        yield from table.to_batches(files.BATCH_ROWS) or [pa.RecordBatch.from_pylist([], schema=table.schema)]


class FrameFile(TypedFile):
    """Files that pandas reads in frames."""

    typed_columns = True

    @classmethod
    @abstractmethod
    def frames(
        cls, file: pa.NativeFile, rows: int, columns: Sequence[str] | None
    ) -> Iterator[tuple[DataFrame, Mapping[str, Labels]]]:
        """Yield frames of ``rows`` rows of an open file, with these columns at least, and the labels of values."""

    def chunks(self, place: FileLocation, wanted: pa.Schema | None = None) -> Iterator[pa.RecordBatch]:
        """Yield frames as Arrow data, blank texts as missing; what pandas raises for a damaged file is a DataError."""
        columns = None if wanted is None else wanted.names
        try:
            with readable(place, self.kind), place.opened() as file, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for frame, labels in self.frames(file, files.BATCH_ROWS, columns):
                    names = [one for one in frame.columns if columns is None or one in columns]
                    arrays = [_array(frame[one]) for one in names]
                    yield with_labels(pa.RecordBatch.from_arrays(arrays, names), labels)
        except (DataError, MemoryError, GeneratorExit):
            raise
        except Exception as error:
            raise DataError(
                f"{place.name} cannot be read as {self.kind}: it is damaged, incomplete or of an unknown version "
                f"({first_line(error).rstrip('.')}); save it again, or as CSV or Parquet"
            ) from error


def _array(column: Any) -> pa.Array:
    if column.dtype.kind in "iufbM":
        return pa.array(column.to_numpy(), from_pandas=True)
    return column_of(without_blanks(column.tolist()))
