"""ARFF files of Weka, OpenML and UCI: a header of attributes, and rows of comma-separated values."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import ClassVar

import pyarrow as pa

from fairfix.data import files
from fairfix.data.files import readable
from fairfix.data.sources.typed_file import TypedFile
from fairfix.data.storage import FileLocation
from fairfix.data.typed import decoded, parsed, told_apart
from fairfix.errors import DataError

LONGEST = 16 << 20
"""Characters of a line."""

ATTRIBUTE = re.compile(
    r"""@attribute\s+(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|([^\s{]+))\s*(.*)""",
    re.IGNORECASE | re.DOTALL,
)
"""Name of an attribute, perhaps in quotes, and its type."""

ENTRY = re.compile(r"""\s*+(?:'((?:[^'\\]|\\.)*+)'|"((?:[^"\\]|\\.)*+)"|([^,'"]*+))\s*+(,|$)""")
"""Value, perhaps in quotes, and what ends it."""

NUMBERS = ("numeric", "real", "integer")

Attributes = dict[str, bool]
"""Name -> whether it holds numbers."""


class ArffSource(TypedFile):
    """One or more ARFF files with the same attributes."""

    kind = "ARFF"
    endings = (".arff",)
    signatures: ClassVar[tuple[tuple[int, bytes], ...]] = ((0, b"@relation"), (0, b"@RELATION"))
    typed_columns = True

    def chunks(self, place: FileLocation, wanted: pa.Schema | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the values of attributes, which are texts or numbers."""
        with _opened(place) as lines:
            attributes, before = _header(lines, place), 0
            names = list(attributes) if wanted is None else wanted.names
            places = [(one, at) for at, one in enumerate(attributes) if one in names]
            more = True
            while more:
                few = enumerate(islice(lines, files.BATCH_ROWS), before + 1)
                rows = [_entries(line, len(attributes), place, row) for row, line in few]
                arrays = []
                for one, at in places:
                    column = pa.array([row[at] for row in rows], pa.string())
                    arrays.append(parsed(column, one, place.name, before) if attributes[one] else column)
                yield pa.RecordBatch.from_arrays(arrays, [one for one, _ in places])
                before, more = before + len(rows), len(rows) == files.BATCH_ROWS


@contextmanager
def _opened(place: FileLocation) -> Iterator[Iterator[str]]:
    """Yield the lines of a file that are neither blank nor comments."""

    def lines(stream: io.BufferedReader) -> Iterator[str]:
        while raw := stream.readline(LONGEST):
            if len(raw) == LONGEST:
                raise DataError(f"{place.name} has a line of {LONGEST >> 20} MB, which is not a row")
            line = decoded(raw).strip()
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
    names = told_apart(head for head, _ in heads)
    return dict(zip(names, (kind in NUMBERS for _, kind in heads), strict=True))


def _plain(text: str) -> str | None:
    """Return a value without quotes, None where it is missing."""
    text = text.strip()
    return None if text in ("", "?") else text


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text) if "\\" in text else text


def _entries(line: str, many: int, place: FileLocation, row: int) -> list[str | None]:
    """Return the values of a row, None where they are missing."""
    if line.startswith("{"):
        raise DataError(
            f"{place.name} has a sparse row, {line[:40]!r} in row {row:,}; save the data as CSV or as dense ARFF"
        )
    if "'" not in line and '"' not in line:
        out = list(map(_plain, line.split(",")))
    else:
        out, at = list[str | None](), 0
        while at <= len(line):
            match = ENTRY.match(line, at)
            if match is None:
                raise DataError(f"{place.name}: quotes do not match in row {row:,}: {line[at : at + 40]!r}")
            single, double, plain, end = match.groups()
            quoted = single if single is not None else double
            out.append(_plain(plain) if quoted is None else _unescaped(quoted))
            at = match.end() if end else len(line) + 1
    if len(out) != many:
        raise DataError(
            f"{place.name} has {len(out):,} values in row {row:,}, and {many:,} attributes; correct the row"
        )
    return out
