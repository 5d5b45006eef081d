"""Dialects of CSV: what stands between columns, the decimal sign and the encoding, by the head of a file.

A file is read with commas (``.tsv``: tabs) wherever that splits its head into records of one length, two or more: so
no quoted semicolon, and no semicolon in a file of commas, changes how it is read. Only else is another separator
taken, if one splits header and rows evenly, or, where none does, header and most rows. A comma is a decimal sign only
where it separates no columns, and where a column of numbers cannot be one of thousands.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fairfix.data.files import head_of
from fairfix.data.places import Place
from fairfix.errors import UsageError

HEAD = 1 << 16
"""Characters that are looked at: some hundred rows, whatever the size of the file."""

SEPARATORS = (",", ";", "\t", "|")
NAMES = {"\t": "a tab", " ": "a blank"}
MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
"""Byte order marks of encodings other than UTF-8, whose own mark says nothing new."""

GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
"""A number that may have its thousands set off by commas."""

WITH_COMMA = re.compile(r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?")
WITH_POINT = re.compile(r"[+-]?\d*\.\d+(?:[eE][+-]?\d+)?")


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


def named(sign: str) -> str:
    """Return a sign for reading."""
    return NAMES.get(sign, repr(sign))


def usual(path: Path | Place) -> str:
    """Return the separator that the name of a file stands for."""
    return "\t" if path.name.lower().endswith((".tsv", ".tsv.gz")) else ","


def zipped(path: Path | Place) -> bool:
    """Tell whether a file is packed, by its name."""
    return path.name.lower().endswith(".gz")


def stated(delimiter: str) -> str:
    """Return what a user writes for a separator: one character, or ``tab``; else a UsageError."""
    sign = "\t" if delimiter in ("tab", "\\t") else delimiter
    if len(sign) != 1 or not sign.isascii() or sign in '"\r\n\0':
        raise UsageError(f"`delimiter={delimiter}` is not one character of ASCII; write it, or tab")
    return sign


def sniffed(place: Place, delimiter: str | None = None, decimal: str | None = None) -> Dialect:
    """Return the dialect of a file, of which only the head is read; what is stated is taken as it is."""
    text, encoding, whole = _head(place)
    if delimiter is None:
        delimiter = usual(place)
        if not _columns(text, delimiter, whole=whole):
            columns = {sign: _columns(text, sign, whole=whole) for sign in SEPARATORS}
            if not any(columns.values()):
                columns = {sign: _mostly(text, sign, whole=whole) for sign in SEPARATORS}
            if columns[delimiter] < max(columns.values()):
                delimiter = max(SEPARATORS, key=columns.__getitem__)
    if decimal is None and delimiter != ",":
        decimal = _decimal(text, delimiter, whole=whole)
    return Dialect(delimiter, decimal, encoding)


def header(place: Place, dialect: Dialect) -> list[str]:
    """Return the names of the columns of a file in a dialect, as far as its head shows them."""
    text, _, _ = _head(place)
    return next(iter(csv.reader(io.StringIO(text, newline=""), delimiter=dialect.delimiter)), [])


def _head(place: Place) -> tuple[str, str, bool]:
    """Return the beginning of a file, its encoding, and whether that is all of it."""
    data = head_of(place, HEAD, packed=zipped(place))
    encoding = MARKS.get(data[:2], "utf-8")
    text = data.decode(encoding if encoding != "utf-8" else "utf-8-sig", errors="replace")
    return text, encoding, len(data) < HEAD


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


def _decimal(text: str, delimiter: str, *, whole: bool) -> str | None:
    """Return the decimal sign that the columns of numbers show; None where none does, or they differ."""
    rows = [*_records(text, delimiter, whole=whole)][1:]
    signs = set()
    for column in zip(*rows, strict=False):
        cells = [cell.strip() for cell in column if cell.strip()]
        for sign, number in ((",", WITH_COMMA), (".", WITH_POINT)):
            with_sign = [cell for cell in cells if sign in cell]
            plain = (cell for cell in cells if sign not in cell)
            if not with_sign or not all(map(number.fullmatch, with_sign)):
                continue
            if not all(re.fullmatch(r"[+-]?\d+|NA|NaN|nan|null|NULL|N/A", cell) for cell in plain):
                continue
            if sign == "." or not all(map(GROUPED.fullmatch, with_sign)):
                signs.add(sign)
    return signs.pop() if len(signs) == 1 else None
