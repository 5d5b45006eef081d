"""CSV files, with what their heads show between columns; packed by gzip where the name ends in ``.gz``."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from fairfix.data.dialect import Dialect, header, sniffed, stated, usual, zipped
from fairfix.data.files import FileSource, Part, Write, readable
from fairfix.data.places import Place
from fairfix.errors import DataError

BLOCK = 1 << 20
"""Bytes of text parsed at a time."""

AHEAD = 8 << 20
"""Bytes that come from a store at a time."""


class CsvSource(FileSource):
    """One or more CSV files with the same header."""

    kind = "CSV"
    endings = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
    text = True

    def __init__(
        self, places: Sequence[Place], name: str, delimiter: str | None = None, decimal: str | None = None
    ) -> None:
        """Look at the heads of the files; ``delimiter`` and ``decimal`` are stated instead."""
        super().__init__(places, name)
        for place in places:
            if place.size == 0:
                raise DataError(f"{place.name} is empty")
        self.dialect = _alike(places, name, None if delimiter is None else stated(delimiter), decimal)
        if self.dialect != Dialect(usual(places[0]), self.dialect.decimal) or self.dialect.decimal == ",":
            self.remark = f"read with {self.dialect}"
        with _open(places[0], self.dialect, None, None) as reader:
            self.schema = reader.schema
            names = self.schema.names  # may be no UTF-8, which the reader leaves to whoever looks
        self.require(names)  # a CSV reader finds columns by their names
        self.about_rows = sum(place.size or 0 for place in places) // 100  # bytes of a row, roughly

    def parts(self, columns: Sequence[str], types: Mapping[str, pa.DataType] | None = None) -> list[Part]:
        """Return one part per file: CSV text has no places to start from."""
        # every file gets the types of the first, so that "01" does not turn into 1 from file to file
        wanted = {name: self.schema.field(name).type for name in columns} | dict(types or {})
        wanted = {name: kind for name, kind in wanted.items() if not pa.types.is_null(kind)}
        return [
            Part(place.name, partial(_batches, place, self.dialect, list(columns), wanted))
            for place in self.places
        ]

    @classmethod
    @contextmanager
    def writer(cls, file: IO[bytes], path: Path, schema: pa.Schema) -> Iterator[Write]:
        """Yield Arrow's writing of a batch; what is packed has no name and no time inside: same rows, same bytes."""
        from pyarrow import csv

        packed = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) if zipped(path) else None
        options = csv.WriteOptions(delimiter=usual(path))
        with (
            packed or nullcontext(file) as stream,
            csv.CSVWriter(stream, schema, write_options=options) as writer,
        ):
            yield writer.write_batch


def _alike(places: Sequence[Place], name: str, delimiter: str | None, decimal: str | None) -> Dialect:
    """Return the dialect of all files, or raise a DataError that names two that differ in it or in their columns."""
    first, *others = places
    dialect = sniffed(first, delimiter, decimal)
    for place in others:
        other = sniffed(place, delimiter, decimal)
        own = dialect.decimal or other.decimal
        if replace(dialect, decimal=own) != replace(other, decimal=other.decimal or own):
            raise DataError(
                f"{name}: the files are not written alike: {first.name} has {dialect}, {place.name} has {other}; "
                "name those of one kind by a pattern, or state `delimiter` and `decimal`"
            )
        dialect = replace(dialect, decimal=own)
    names = header(first, dialect) if others else []
    for place in others:
        if missing := set(names) ^ set(header(place, dialect)):
            column = min(missing)
            with_it, without = (first, place) if column in names else (place, first)
            raise DataError(
                f"{name}: the files have not the same columns: {with_it.name} has {column!r}, {without.name} has not; "
                "name those of one kind by a pattern"
            )
    return dialect


def _batches(
    place: Place, dialect: Dialect, columns: list[str], types: Mapping[str, pa.DataType]
) -> Iterator[pa.RecordBatch]:
    with _open(place, dialect, columns, types, AHEAD) as reader:
        yield from reader


@contextmanager
def _open(
    place: Place,
    dialect: Dialect,
    columns: list[str] | None,
    types: Mapping[str, pa.DataType] | None,
    ahead: int = BLOCK,
) -> Iterator[Any]:
    """Yield the reader of a file; from a store it comes ``ahead`` bytes at a time."""
    from pyarrow import csv

    with readable(place, CsvSource.kind), place.opened() as file:
        packed = "gzip" if zipped(place) else None
        text = pa.BufferedInputStream(file, ahead) if place.is_remote else file
        with csv.open_csv(
            pa.input_stream(text, compression=packed),
            read_options=csv.ReadOptions(use_threads=False, block_size=BLOCK, encoding=dialect.encoding),
            parse_options=csv.ParseOptions(delimiter=dialect.delimiter, newlines_in_values=True),
            convert_options=csv.ConvertOptions(
                include_columns=columns,
                column_types=types,
                decimal_point=dialect.decimal or ".",
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,  # "NA" in quotes is a name, NA without is a missing value
            ),
        ) as reader:
            yield reader
