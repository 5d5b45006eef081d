"""Partitions: columns that are written in the names of folders, as Hive, Spark and DuckDB do.

The files ``loans/year=2024/state=CA/part-0.parquet`` have the columns ``year`` and ``state`` with one value each. A
column that is in the files as well is taken from there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from fairfix.data.files import NO_TYPES, DerivedSource, FileSource, Source, SourcePart, Types
from fairfix.data.storage import FileLocation

MISSING = "__HIVE_DEFAULT_PARTITION__"
"""Name of a folder's value that is missing."""

WHOLE = re.compile(r"-?[1-9][0-9]{0,17}|0")
"""An integer as it is written in one way only: 01 stays a text, as in every other kind of data."""


def partitioned(source: FileSource) -> Source:
    """Return the source with the columns that the folders of all its files have; itself where there are none."""
    folders = [folder_columns(place) for place in source.places]
    everywhere = [name for name in folders[0] if all(name in one for one in folders)]
    names = [name for name in everywhere if name not in source.columns]
    if not names:
        return source
    return PartitionedSource(source, [{name: one[name] for name in names} for one in folders])


def folder_columns(place: FileLocation) -> dict[str, str | None]:
    """Return the columns of the folders directly above a file, with its value of each; None for a missing one."""
    folders = re.split(r"[/\\]", place.shown)[:-1]
    columns: dict[str, str | None] = {}
    for folder in reversed(folders):
        name, sign, value = folder.partition("=")
        if not sign or not name:
            break
        columns = {unquote(name): None if value == MISSING else unquote(value), **columns}
    return columns


class PartitionedSource(DerivedSource):
    """Files of one kind with further columns, which have one value in each file."""

    def __init__(self, source: FileSource, entries: Sequence[Mapping[str, str | None]]) -> None:
        super().__init__(source)
        self.rows, self.about_rows = source.rows, source.about_rows
        self._entries = list(entries)
        fields = [pa.field(name, _type_of([one[name] for one in entries])) for name in entries[0]]
        self._added = {field.name: field.type for field in fields}
        self.schema = pa.schema([*source.schema, *fields])

    def parts(self, columns: Sequence[str], types: Types = NO_TYPES) -> list[SourcePart]:
        """Return the parts of each file, with the columns of its folders."""
        inner = [name for name in columns if name not in self._added]
        asked = {name: kind for name, kind in types.items() if name not in self._added}
        kinds = {name: types.get(name, kind) for name, kind in self._added.items()}
        read = inner or [self.source.columns[0]]  # for the number of rows
        out = []
        for (_, one), entries in zip(self.source.files(), self._entries, strict=True):
            scalars = {name: _constant(entry, kinds[name]) for name, entry in entries.items()}
            extended = partial(_extended, columns=list(columns), constants=scalars)
            out += [part.mapped(extended) for part in one.parts(read, asked)]
        return out

    def files(self) -> list[tuple[str, Source]]:
        """Return (path, source) of each file, with the columns of its folders, typed as for all of them."""
        out: list[tuple[str, Source]] = []
        for (path, one), entries in zip(self.source.files(), self._entries, strict=True):
            assert isinstance(one, FileSource)
            own = PartitionedSource(one, [entries])
            own._added, own.schema = self._added, self.schema
            out.append((path, own))
        return out

    def spells(self, name: str) -> bool:
        """Tell whether numbers of a column have signs whose meaning only the source knows."""
        return name not in self._added and self.source.spells(name)


def _type_of(texts: Sequence[str | None]) -> pa.DataType:
    """Return the type of a column: integers where all are."""
    present = [text for text in texts if text is not None]
    return pa.int64() if present and all(map(WHOLE.fullmatch, present)) else pa.string()


def _constant(text: str | None, kind: pa.DataType) -> pa.Array:
    """Return an array of one value in a type that was asked for."""
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    array = pa.array([text], pa.string()).cast(inner)
    return array.dictionary_encode() if pa.types.is_dictionary(kind) else array


def _extended(batch: pa.RecordBatch, columns: list[str], constants: Mapping[str, pa.Array]) -> pa.RecordBatch:
    index = pa.repeat(pa.scalar(0, pa.int32()), batch.num_rows)
    arrays: list[Any] = [
        constants[name].take(index) if name in constants else batch.column(name) for name in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=columns)
