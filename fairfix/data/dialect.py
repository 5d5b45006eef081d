"""Dialects of CSV: what stands between columns, the decimal sign and the encoding, by the head of a file.

A file is read with commas (``.tsv``: tabs) wherever that splits its head into records of one length, two or more: so
no quoted semicolon, and no semicolon in a file of commas, changes how it is read. Only else is another separator
taken, if one splits header and rows evenly, or, where none does, header and most rows. A comma is a decimal sign only
where it separates no columns, and where a column of numbers cannot be one of thousands (:mod:`fairfix.data.notation`).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fairfix.data.files import head_of
from fairfix.data.notation import Seen, decimal_of
from fairfix.data.places import Place
from fairfix.errors import UsageError

HEAD = 1 << 16
"""Characters that are looked at: some hundred rows, whatever the size of the file."""

SEPARATORS = (",", ";", "\t", "|")
NAMES = {"\t": "a tab", " ": "a blank", "\u00a0": "a no-break space", "\u202f": "a narrow space"}
MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
"""Byte order marks of encodings other than UTF-8, whose own mark says nothing new."""


@dataclass(frozen=True)
class Dialect:
    """How a CSV file is written; ``decimal`` is None where its head has no number that shows it."""

    delimiter: str = ","
    decimal: str | None = None
    encoding: str = "utf-8"

    def __str__(self) -> str:
        """Return it in words."""
        between = f"{named(self.delimiter)} between columns"
        decimal = f" and {self.decimal!r} as decimal sign" if self.decimal == "," else ""
        return between + decimal + ("" if self.encoding == "utf-8" else f", in {self.encoding.upper()}")


@dataclass(frozen=True)
class Head:
    """The beginning of a file as text, its encoding, and whether that is all of it."""

    text: str
    encoding: str
    whole: bool


def named(sign: str) -> str:
    """Return a sign for reading."""
    return NAMES.get(sign, repr(sign))


def usual(name: str) -> str:
    """Return the separator that the name of a file stands for."""
    return "\t" if name.lower().endswith(".tsv") else ","


def stated(delimiter: str) -> str:
    """Return what a user writes for a separator: one character, or ``tab``; else a UsageError."""
    sign = "\t" if delimiter in ("tab", "\\t") else delimiter
    if len(sign) != 1 or not sign.isascii() or sign in '"\r\n\0':
        raise UsageError(f"`delimiter={delimiter}` is not one character of ASCII; write it, or tab")
    return sign


def sniffed(
    place: Place, delimiter: str | None = None, decimal: str | None = None, head: Head | None = None
) -> Dialect:
    """Return the dialect of a file, of which only the head is read; what is stated is taken as it is."""
    head = head or head_text(place)
    text, whole = head.text, head.whole
    if delimiter is None:
        delimiter = usual(place.content_name)
        if not _columns(text, delimiter, whole=whole):
            columns = {sign: _columns(text, sign, whole=whole) for sign in SEPARATORS}
            if not any(columns.values()):
                columns = {sign: _mostly(text, sign, whole=whole) for sign in SEPARATORS}
            if columns[delimiter] < max(columns.values()):
                delimiter = max(SEPARATORS, key=columns.__getitem__)
    if decimal is None and delimiter != ",":
        decimal = decimal_of(columns_of(head, delimiter).values())
    return Dialect(delimiter, decimal, head.encoding)


def header(head: Head, dialect: Dialect) -> list[str]:
    """Return the names of the columns of a file in a dialect, as far as its head shows them."""
    return next(iter(csv.reader(io.StringIO(head.text, newline=""), delimiter=dialect.delimiter)), [])


def head_text(place: Place) -> Head:
    """Return the beginning of a file."""
    data = head_of(place, HEAD)
    encoding = MARKS.get(data[:2], "utf-8")
    text = data.decode(encoding if encoding != "utf-8" else "utf-8-sig", errors="replace")
    return Head(text, encoding, len(data) < HEAD)


def _records(text: str, delimiter: str, *, whole: bool) -> Iterator[list[str]]:
    """Yield the records of a head that are there as a whole, without empty lines."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        before: list[str] | None = None
        for record in reader:
            if before:
                yield before
            before = record
        if before and whole:
            yield before
    except csv.Error:  # a field without end
        return


def _columns(text: str, delimiter: str, *, whole: bool) -> int:
    """Return the number of columns if all records have the same, and at least two; else 0."""
    sizes = {len(record) for record in _records(text, delimiter, whole=whole)}
    return sizes.pop() if len(sizes) == 1 and min(sizes) > 1 else 0


def _mostly(text: str, delimiter: str, *, whole: bool) -> int:
    """Return the number of names in the header if more than half of the records have as many, and two or more; else 0.

    So that the reader names the record that differs, rather than read all of them as one column.
    """
    sizes = [len(record) for record in _records(text, delimiter, whole=whole)]
    alike = sizes.count(sizes[0]) if sizes and sizes[0] > 1 else 0
    return sizes[0] if 2 * alike > len(sizes) else 0


def columns_of(head: Head, delimiter: str, decided: Mapping[str, Seen] | None = None) -> dict[str, Seen]:
    """Return what the values in a head show of the notation of numbers, by column, added to what others showed."""
    names, *rows = [*_records(head.text, delimiter, whole=head.whole)] or [[]]
    seen = dict(decided or {})
    for name, *cells in zip(names, *rows, strict=False):
        own = seen.setdefault(name, Seen())
        if not own.text:
            own.add(dict.fromkeys(cells))
    return seen
