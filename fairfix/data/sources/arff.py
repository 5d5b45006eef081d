"""ARFF files of Weka, OpenML and UCI: a header of attributes, and rows of comma-separated values."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import ClassVar

import pyarrow as pa

from fairfix.data import files
from fairfix.data.files import FileSource, Part, readable, require
from fairfix.data.storage import FileLocation
from fairfix.data.typed import asked_batches, parsed, told_apart
from fairfix.errors import DataError

LONGEST = 16 << 20
"""Characters of a line."""

ATTRIBUTE = re.compile(
    r"""@attribute\s+(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|([^\s{]+))\s*(.*)""",
    re.IGNORECASE | re.DOTALL,
)
"""Name of an attribute, perhaps in quotes, and its type."""

ENTRY = re.compile(r"""\s*(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|([^,'"]*[^,'"\s])?)\s*(,|$)""")
"""Value, perhaps in quotes, and what ends it."""

NUMBERS = ("numeric", "real", "integer")

Attributes = dict[str, bool]
"""Name -> whether it holds numbers."""


class ArffSource(FileSource):
    """One or more ARFF files with the same attributes."""

    kind = "ARFF"
    endings = (".arff",)
    signatures: ClassVar[tuple[tuple[int, bytes], ...]] = ((0, b"@relation"), (0, b"@RELATION"))

    def __init__(self, places: Sequence[FileLocation], name: str) -> None:
        super().__init__(places, name)
        self._attributes: dict[FileLocation, Attributes] = {}
        for place in places:
            with _opened(place) as lines:
                self._attributes[place] = _header(lines, place)
        first = self._attributes[places[0]]
        self.schema = pa.schema(
            {one: pa.float64() if numeric else pa.string() for one, numeric in first.items()}
        )
        self.about_rows = sum(place.size or 0 for place in places) // 100  # bytes of a row, roughly

    def parts(self, columns: Sequence[str], types: Mapping[str, pa.DataType] | None = None) -> list[Part]:
        """Return one part per file, since text has no places to start from."""
        out = []
        for place in self.places:
            require(columns, list(self._attributes[place]), f"{place.name} (of {self.name})")
            out.append(Part(place.name, partial(_read, place, list(columns), types or {})))
        return out


@contextmanager
def _opened(place: FileLocation) -> Iterator[Iterator[str]]:
    """Yield the lines of a file that are neither blank nor comments."""

    def lines(stream: io.BufferedReader) -> Iterator[str]:
        while raw := stream.readline(LONGEST):
            if len(raw) == LONGEST:
                raise DataError(f"{place.name} has a line of {LONGEST >> 20} MB, which is not a row")
            try:
                line = raw.decode("utf-8").strip()
            except UnicodeDecodeError:
                line = raw.decode("latin-1").strip()
            if line and not line.startswith("%"):
                yield line.removeprefix("\ufeff")

    with readable(place, ArffSource.kind), place.opened() as file:
        yield lines(io.BufferedReader(file, 1 << 20))


def _header(lines: Iterator[str], place: FileLocation) -> Attributes:
    """Return the attributes of a file, up to its rows; a DataError names a line that is none of a header."""
    heads = []
    for line in lines:
        word = line.split(maxsplit=1)[0].lower()
        if word == "@data":
            break
        match = ATTRIBUTE.fullmatch(line) if word == "@attribute" else None
        if match is None and word != "@relation":
            raise DataError(
                f"{place.name} cannot be read as ARFF: {line[:60]!r} is in its header; expected @attribute"
            )
        if match is not None:
            single, double, plain, kind = match.groups()
            head = plain if plain is not None else _unescaped(single if single is not None else double)
            heads.append((head, kind.lower().partition(" ")[0]))
            if heads[-1][1] == "relational":
                raise DataError(f"{place.name} has a relational attribute, {head!r}; save the data as CSV")
    else:
        raise DataError(f"{place.name} cannot be read as ARFF: it has no line @data")
    if not heads:
        raise DataError(f"{place.name} cannot be read as ARFF: it has no @attribute")
    return dict(
        zip(told_apart(head for head, _ in heads), (kind in NUMBERS for _, kind in heads), strict=True)
    )


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text) if "\\" in text else text


def _read(
    place: FileLocation, columns: list[str], types: Mapping[str, pa.DataType]
) -> Iterator[pa.RecordBatch]:
    return asked_batches(_batches(place, columns), types, place.name)


def _batches(place: FileLocation, columns: list[str]) -> Iterator[pa.RecordBatch]:
    with _opened(place) as lines:
        attributes = _header(lines, place)
        names, before = list(attributes), 0
        rows: list[list[str | None]] = []
        wanted = [(name, names.index(name)) for name in columns]

        def batch() -> pa.RecordBatch:
            arrays = [
                _array([row[at] for row in rows], name, attributes[name], place, before)
                for name, at in wanted
            ]
            return pa.RecordBatch.from_arrays(arrays, columns)

        for line in lines:
            rows.append(_entries(line, len(names), place, before + len(rows) + 1))
            if len(rows) == files.BATCH_ROWS:
                yield batch()
                before, rows = before + len(rows), []
        yield batch()


def _entries(line: str, many: int, place: FileLocation, row: int) -> list[str | None]:
    """Return the values of a row, None where they are missing."""
    if line.startswith("{"):
        raise DataError(
            f"{place.name} has a sparse row, {line[:40]!r} in row {row:,}; save the data as CSV or as dense ARFF"
        )
    if "'" not in line and '"' not in line:
        out = [None if entry == "?" or not entry else entry for entry in map(str.strip, line.split(","))]
    else:
        out, at = [], 0
        while at <= len(line):
            match = ENTRY.match(line, at)
            if match is None:
                raise DataError(f"{place.name}: quotes do not match in row {row:,}: {line[at : at + 40]!r}")
            single, double, plain, end = match.groups()
            quoted = single if single is not None else double
            out.append(_unescaped(quoted) if quoted is not None else None if plain == "?" else plain)
            at = match.end() if end else len(line) + 1
    if len(out) != many:
        raise DataError(
            f"{place.name} has {len(out):,} values in row {row:,}, and {many:,} attributes; correct the row"
        )
    return out


def _array(entries: list[str | None], name: str, numeric: bool, place: FileLocation, before: int) -> pa.Array:
    column = pa.array(entries, pa.string())
    return parsed(column, name, place.name, before) if numeric else column
