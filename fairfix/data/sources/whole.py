"""Base of formats that a library reads whole: one table per file, bounded in memory."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import ClassVar

import pyarrow as pa

from fairfix.data import files
from fairfix.data.confined import BYTES, TOO_LARGE
from fairfix.data.files import FileSource, Part, require
from fairfix.data.storage import FileLocation
from fairfix.data.typed import CODED, Labels, asked_batches, recast, unified, unlabelled
from fairfix.errors import DataError


class WholeFile(FileSource):
    """Files of one kind, each read into memory when the source is opened."""

    needs: ClassVar[tuple[str, str] | None] = None
    """Module that reads the format, and the extra of fairfix that brings it; None where the base has it."""

    def __init__(self, places: Sequence[FileLocation], name: str, table: str | None = None) -> None:
        """Read the files; ``table`` names a sheet of formats that have several."""
        super().__init__(places, name)
        self.sheet = table
        if self.needs and find_spec(self.needs[0]) is None:
            raise DataError(
                f"{self.kind} files need {self.needs[0]}, which is not installed: "
                f"pip install 'fairfix[{self.needs[1]}]'"
            )
        self._tables: dict[FileLocation, pa.Table] = {}
        self._labels: dict[FileLocation, dict[str, Labels]] = {}
        for place in places:
            self._tables[place], self._labels[place] = self.table(place)
            if sum(table.nbytes for table in self._tables.values()) > BYTES:
                raise DataError(f"{name} {TOO_LARGE}")
        schemas = [table.schema for table in self._tables.values()]
        self._kinds = {
            one: unified(schema.field(one).type for schema in schemas if one in schema.names)
            for one in schemas[0].names
        }
        self._names = {
            one
            for one in self._kinds
            if all(
                labels.get(one)
                and not any(unlabelled(part, labels[one]) for part in self._tables[place].column(one).chunks)
                for place, labels in self._labels.items()
            )
        }
        self.schema = pa.schema(
            {one: CODED if one in self._names else kind for one, kind in self._kinds.items()}
        )
        self.rows = self.about_rows = sum(table.num_rows for table in self._tables.values())

    @abstractmethod
    def table(self, place: FileLocation) -> tuple[pa.Table, dict[str, Labels]]:
        """Return the rows of a file, and the labels of the values of columns; a DataError names what cannot be read."""

    def parts(self, columns: Sequence[str], types: Mapping[str, pa.DataType] | None = None) -> list[Part]:
        """Return one part per file."""
        out = []
        for place in self.places:
            table = self._tables[place]
            require(columns, table.schema.names, f"{place.name} (of {self.name})")
            chosen = [_cast(table.column(name), self._kinds[name]) for name in columns]
            batches = pa.table(chosen, names=list(columns)).to_batches(max_chunksize=files.BATCH_ROWS)
            asked = types or {}, place.name, self._labels[place], self._names
            out.append(Part(place.name, partial(asked_batches, batches, *asked)))
        return out


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return (
        column
        if column.type == kind
        else pa.chunked_array([recast(one, kind) for one in column.chunks], kind)
    )
