"""Streams of text tables: rows of a file through Arrow's reader, and the error where it stops.

Arrow parses the bytes of a file as they are wherever it can. Other encodings, runs of blanks and blanks next to
separators are made plain on the way, a block at a time. Only when Arrow stops is a file read again, to name the place.
"""

from __future__ import annotations

import csv as python_csv
import io
import re
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from fairfix.data.dialect import COMMENTS, Dialect, Layout
from fairfix.data.encodings import decoded
from fairfix.data.storage import FileLocation
from fairfix.errors import DataError

BLOCK = 1 << 20
"""Bytes of text parsed at a time."""

AHEAD = 8 << 20
"""Bytes that come from a store at a time."""

ENDING = 4 * BLOCK
"""Bytes in which a quote has to open that is open at the end: one that opens before makes Arrow stop."""

VALUE = re.compile(
    r"In CSV column #(\d+): Row #(\d+): CSV conversion error to (\w+).*?: invalid value '(.*)'", re.DOTALL
)
"""Messages of Arrow about an entry."""

LONGEST = 16 << 20
"""Characters of an open quote, after which a block is taken as it is."""

WIDEST = 2 * BLOCK
"""Characters of a line; Arrow reads none that is longer than two blocks."""


@dataclass(frozen=True)
class TextFile:
    """A file, how it is written, and which lines of it are rows."""

    place: FileLocation
    dialect: Dialect
    layout: Layout
    stated: bool = False
    """Whether the user says the encoding."""

    @property
    def columns(self) -> list[str]:
        """The columns that can be read."""
        return [name for name in self.layout.names if name not in self.layout.dropped]


class _Stream(io.RawIOBase):
    """Bytes in pieces, as a file that Arrow reads; the first error is kept, and double quotes are counted."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, memoryview(b"")
        self.error: DataError | None = None
        self.quotes, self.ended = 0, False

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        out, wanted = [], BLOCK if size is None or size < 0 else size
        while wanted > 0:
            if not self._rest:
                try:
                    piece = next(self._pieces, None)
                except DataError as error:
                    self.error = error
                    raise
                if piece is None:
                    self.ended = True
                    break
                self.quotes += piece.count(b'"')
                self._rest = memoryview(piece)
            out.append(bytes(self._rest[:wanted]))
            wanted -= len(out[-1])
            self._rest = self._rest[len(out[-1]) :]
        return out[0] if len(out) == 1 else b"".join(out)


def _pieces(file: TextFile, stream: pa.NativeFile) -> Iterator[bytes]:
    """Yield the text of a file in UTF-8, with one separator between cells."""
    if file.dialect.is_plain and file.dialect.encoding == "utf-8":
        yield from iter(partial(stream.read, BLOCK), b"")
        return
    plain = _texts(file, stream)
    if not file.dialect.is_plain:
        plain = map(file.dialect.plain, _whole_lines(plain))
    yield from (text.encode("utf-8", errors="replace") for text in plain if text)


def _texts(file: TextFile, stream: pa.NativeFile) -> Iterator[str]:
    blocks = iter(partial(stream.read, BLOCK), b"")
    return decoded(blocks, file.dialect.encoding, file.place.name, stated=file.stated)


def _whole_lines(texts: Iterator[str]) -> Iterator[str]:
    """Yield texts that end with a line, outside of quotes."""
    rest, quoted = "", False
    for text in texts:
        quoted ^= text.count('"') % 2 == 1  # at the end of the text, ...
        cut, end, inside = 0, len(text), quoted
        while end >= 0 and not cut:  # ... and at each quote before it
            start = text.rfind('"', 0, end) + 1
            cut = 0 if inside else text.rfind("\n", start, end) + 1
            end, inside = start - 1, not inside
        if not cut and len(rest) >= LONGEST:
            cut = text.rfind("\n") + 1 or len(text)
            quoted = text.count('"', cut) % 2 == 1
        if cut:
            yield rest + text[:cut]
            rest = text[cut:]
        else:
            rest += text
    yield rest


@contextmanager
def reader_of(
    file: TextFile,
    columns: list[str],
    types: Mapping[str, pa.DataType],
    ahead: int = BLOCK,
    *,
    whole: bool = True,
) -> Iterator[Any]:
    """Yield the reader of a file, which is read ``whole``; from a store it comes ``ahead`` bytes at a time.

    A DataError where a row has not the cells of the others, a quote is open at the end, or bytes are no text.
    """
    from pyarrow import csv

    place, dialect, layout = file.place, file.dialect, file.layout
    odd: list[Any] = []

    def other_row(row: Any) -> str:
        text = row.text.strip()
        if not text or (layout.comments and text.startswith(COMMENTS)) or text in layout.footers:
            return "skip"
        odd.append(row)
        return "error"

    with place.streamed(ahead) as raw:
        as_it_is = dialect.is_plain and dialect.encoding == "utf-8" and place.is_direct
        stream = _Stream(_pieces(file, raw))
        try:
            with (
                csv.open_csv(
                    raw if as_it_is else pa.PythonFile(stream, mode="r"),
                    read_options=csv.ReadOptions(
                        use_threads=False,
                        block_size=BLOCK,
                        column_names=list(layout.names),
                        skip_rows=layout.before,
                        skip_rows_after_names=int(layout.header),
                    ),
                    parse_options=csv.ParseOptions(
                        delimiter=dialect.read_delimiter,
                        newlines_in_values=True,
                        invalid_row_handler=other_row,
                    ),
                    convert_options=csv.ConvertOptions(
                        include_columns=columns,
                        column_types=types,
                        decimal_point=dialect.decimal or ".",
                        strings_can_be_null=True,
                        quoted_strings_can_be_null=False,  # "NA" in quotes is a name, NA without is a missing value
                    ),
                ) as reader
            ):
                yield reader
            if stream.quotes % 2 if stream.ended else whole and as_it_is and _is_open_at_end(place):
                _check_quotes(file)
        except pa.ArrowInvalid as error:
            if stream.error is not None:
                raise stream.error from None
            if odd or "straddling" in str(error):
                _check_quotes(file)
            if odd:
                raise _odd_row(file, odd[0]) from None
            if "UTF8" in str(error):  # the first place that is no text is named
                with place.streamed() as again:
                    deque(_texts(file, again), maxlen=0)
            raise


def _is_open_at_end(place: FileLocation) -> bool:
    """Tell whether the double quotes at the end of a file are of an odd number, so that one may be open."""
    with place.opened() as file:
        start = max(0, file.size() - ENDING)
        file.seek(start)
        text: bytes = file.read()
    return text.count(b'"', text.find(b"\n") if start else 0) % 2 == 1


def _odd_row(file: TextFile, row: Any) -> DataError:
    """Return the error of a row that has not the cells of the others."""
    number = row.number - file.layout.before - file.layout.header
    sign = file.dialect.delimiter
    if row.actual_columns > row.expected_columns:
        remedy = f"put double quotes around cells that contain {sign!r}, or remove the extra cells"
    else:
        remedy = "complete the row, or remove it"
    return DataError(
        f"row {number:,} of {file.place.name} has {row.actual_columns} cells, and the file has "
        f"{row.expected_columns} columns: {row.text[:60]!r}; {remedy}"
    )


def odd_value(file: TextFile, error: pa.ArrowException) -> Exception:
    """Return the error of an entry that has not the type of those before it; any other error as it is."""
    match = VALUE.search(str(error))
    if match is None:
        other: Exception = error
        return other
    name, row = file.layout.names[int(match[1])], int(match[2]) - file.layout.before - file.layout.header
    return DataError(
        f"column {name!r} holds {match[4]!r} at row {row:,} of {file.place.name}, where entries before it are of type "
        f"{match[3]}; correct the entry, or save the data as Parquet, which keeps types"
    )


def _lines(file: TextFile) -> Iterator[str]:
    """Yield the lines of a file as Arrow parses them."""
    with file.place.streamed() as raw:
        rest, before = "", 0
        for text in decoded(_pieces(file, raw), "utf-8", file.place.name):
            *lines, rest = re.split(r"(?<=\n)|(?<=\r)(?!\n|$)", rest + text)
            yield from lines
            before += len(lines)
            if len(rest) > WIDEST:
                raise DataError(
                    f"line {before + 1:,} of {file.place.name} has more than {WIDEST:,} characters, too many for a row"
                )
        yield rest


def _check_quotes(file: TextFile) -> None:
    """Raise a DataError where a quoted cell has no end."""
    lines = list[str]()

    def kept() -> Iterator[str]:
        for line in _lines(file):
            lines.append(line)
            yield line

    reader, before = python_csv.reader(kept(), delimiter=file.dialect.read_delimiter, strict=True), 0
    while True:
        try:
            next(reader)
        except StopIteration:
            return
        except python_csv.Error as error:
            if "end of data" not in str(error) and "field larger" not in str(error):
                lines.clear()
                before = reader.line_num
                continue
            text = lines[0].strip()
            raise DataError(
                f"line {before + 1:,} of {file.place.name} opens a quote that is never closed: {text[:60]!r}; "
                "close it, or remove it"
            ) from None
        lines.clear()
        before = reader.line_num
