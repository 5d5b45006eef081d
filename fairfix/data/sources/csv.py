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
from fairfix.errors import DataError

BLOCK = 1 << 20
"""Bytes of text parsed at a time."""


class CsvSource(FileSource):
    """One or more CSV files with the same header."""

    kind = "CSV"
    endings = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
    text = True

    def __init__(
        self, paths: Sequence[Path], name: str, delimiter: str | None = None, decimal: str | None = None
    ) -> None:
        """Look at the heads of the files; ``delimiter`` and ``decimal`` are stated instead."""
        super().__init__(paths, name)
        for path in paths:
            if not path.stat().st_size:
                raise DataError(f"{path.name} is empty")
        self.dialect = _alike(paths, name, None if delimiter is None else stated(delimiter), decimal)
        if self.dialect != Dialect(usual(paths[0]), self.dialect.decimal) or self.dialect.decimal == ",":
            self.remark = f"read with {self.dialect}"
        with readable(paths[0], self.kind), _open(paths[0], self.dialect, None, None) as reader:
            self.schema = reader.schema
        self.require(self.schema.names)  # a CSV reader finds columns by their names
        self.about_rows = sum(path.stat().st_size for path in paths) // 100  # bytes of a row, roughly

    def parts(self, columns: Sequence[str], types: Mapping[str, pa.DataType] | None = None) -> list[Part]:
        """Return one part per file: CSV text has no places to start from."""
        # every file gets the types of the first, so that "01" does not turn into 1 from file to file
        wanted = {name: self.schema.field(name).type for name in columns} | dict(types or {})
        wanted = {name: kind for name, kind in wanted.items() if not pa.types.is_null(kind)}
        # truth values are spelled in many ways; as booleans they have one name each
        wanted |= {n: pa.bool_() for n in columns if pa.types.is_boolean(self.schema.field(n).type)}
        return [
            Part(path.name, partial(_batches, path, self.dialect, list(columns), wanted))
            for path in self.paths
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


def _alike(paths: Sequence[Path], name: str, delimiter: str | None, decimal: str | None) -> Dialect:
    """Return the dialect of all files, or raise a DataError that names two that differ in it or in their columns."""
    first, *others = paths
    dialect = sniffed(first, delimiter, decimal)
    for path in others:
        other = sniffed(path, delimiter, decimal)
        own = dialect.decimal or other.decimal
        if replace(dialect, decimal=own) != replace(other, decimal=other.decimal or own):
            raise DataError(
                f"{name}: the files are not written alike: {first.name} has {dialect}, {path.name} has {other}; "
                "name those of one kind by a pattern, or state `delimiter` and `decimal`"
            )
        dialect = replace(dialect, decimal=own)
    names = header(first, dialect) if others else []
    for path in others:
        if missing := set(names) ^ set(header(path, dialect)):
            column = min(missing)
            with_it, without = (first, path) if column in names else (path, first)
            raise DataError(
                f"{name}: the files have not the same columns: {with_it.name} has {column!r}, {without.name} has not; "
                "name those of one kind by a pattern"
            )
    return dialect


def _batches(
    path: Path, dialect: Dialect, columns: list[str], types: Mapping[str, pa.DataType]
) -> Iterator[pa.RecordBatch]:
    with readable(path, CsvSource.kind), _open(path, dialect, columns, types) as reader:
        yield from reader


def _open(
    path: Path, dialect: Dialect, columns: list[str] | None, types: Mapping[str, pa.DataType] | None
) -> Any:
    from pyarrow import csv

    return csv.open_csv(
        pa.input_stream(str(path), compression="gzip" if zipped(path) else None),
        read_options=csv.ReadOptions(use_threads=False, block_size=BLOCK, encoding=dialect.encoding),
        parse_options=csv.ParseOptions(delimiter=dialect.delimiter, newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            include_columns=columns,
            column_types=types,
            decimal_point=dialect.decimal or ".",
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,  # "NA" in quotes is a name, NA without is a missing value
        ),
    )
