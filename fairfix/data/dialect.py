"""Dialects of text tables: separator, decimal sign, encoding, and which lines are rows, by the head of a file.

A file is read with commas (``.tsv``: tabs) wherever that splits its head into records of one length, two or more: so
no quoted semicolon, and no semicolon in a file of commas, changes how it is read. Only else is another separator
taken, which splits the head best: evenly, or but for titles, comments and footers, or most of its records; last come
runs of blanks. A comma is a decimal sign only where it separates no columns, and where a column of numbers cannot be
one of thousands (:mod:`fairfix.data.notation`).
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from fairfix.data.encodings import encoding_of
from fairfix.data.files import head_of
from fairfix.data.merging import SIGNS
from fairfix.data.notation import Seen, decimal_of, is_number
from fairfix.data.storage import FileLocation
from fairfix.data.typed import told_apart
from fairfix.errors import UsageError

HEAD = 1 << 16
"""Bytes that are looked at: some hundred rows, whatever the size of the file."""

BLANKS = " "
"""The separator that stands for runs of blanks and tabs; such a file is read with tabs in their place."""

SEPARATORS = (",", ";", "\t", "|")
NAMES = {"\t": "a tab", BLANKS: "blanks", "\u00a0": "a no-break space", "\u202f": "a narrow space"}
WORDS = {"tab": "\t", "\\t": "\t", "blank": BLANKS}
"""Words that a user may write for a separator."""

EXCEL = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)
"""The first line by which Excel is told the separator."""

BETWEEN = re.compile(r"(?<!\d),|,(?!\d)")
"""A comma that is no decimal sign."""

COMMENTS = ("#", "%", "|")
"""Signs with which a comment line begins."""

FOOTER = re.compile(
    r"\W*(?:(?:grand |sub)?total|sum|count|rows?|records?|number of|source|notes?|generated|exported|created|"
    r"downloaded|report|end of|filters?|applied|copyright|confidential|\d[\d,.]* (?:rows?|records?))\b",
    re.IGNORECASE,
)
"""First words of a last line that is no row."""

TITLES = 20
"""Lines that may come before the header."""

RUNS = re.compile(r'"(?:[^"]|"")*"|[ \t]+')


@dataclass(frozen=True)
class Dialect:
    """Format of the files of a source; ``decimal`` is None where no number of their heads shows it."""

    delimiter: str = ","
    decimal: str | None = None
    encoding: str = "utf-8"
    padded: bool = False
    """Whether blanks surround separators; they are not part of the cells."""
    zeros: bool = False
    """Whether there are zero bytes, which are no part of the text."""

    @property
    def read_delimiter(self) -> str:
        """The separator in the text of :meth:`plain`."""
        return "\t" if self.delimiter == BLANKS else self.delimiter

    @property
    def is_plain(self) -> bool:
        """Whether text can be read as it is."""
        return self.delimiter != BLANKS and not (self.padded or self.zeros)

    def plain(self, text: str) -> str:
        """Return whole lines with one separator between cells, and no zero bytes."""
        text = text.replace("\0", "")
        if self.delimiter == BLANKS:
            if '"' in text:
                text = RUNS.sub(lambda match: match[0] if match[0][0] == '"' else "\t", text)
            else:
                text = re.sub(r"[ \t]+", "\t", text)
            return re.sub(r"^\t|\t(?=\r?$)", "", text, flags=re.MULTILINE)
        if self.padded:
            sign = re.escape(self.delimiter)
            beside = rf"[ ]*({sign}|^|\r?$)[ ]*"
            if '"' not in text:
                return re.sub(beside, r"\1", text, flags=re.MULTILINE)
            quoted = re.compile(rf'"(?:[^"]|"")*"|{beside}', re.MULTILINE)
            return quoted.sub(lambda match: match[0] if match[1] is None else match[1], text)
        return text

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


@dataclass(frozen=True)
class HeadRecord:
    """A record of a head, and the number of lines before it."""

    before: int
    cells: list[str]

    @property
    def filled(self) -> int:
        """The number of cells that are not empty."""
        return sum(bool(cell.strip()) for cell in self.cells)

    @property
    def is_comment(self) -> bool:
        """Whether it begins with the sign of a comment."""
        return self.cells[0].lstrip().startswith(COMMENTS)


@dataclass(frozen=True)
class Layout:
    """Which lines of a file are rows, and how its columns are called."""

    names: tuple[str, ...]
    """Names of the cells of a row, without repetition."""
    dropped: frozenset[str] = frozenset()
    """Those of them that have neither name nor entries."""
    repeated: Mapping[str, tuple[str, ...]] | None = None
    """Name that stands more than once in the header -> the names of its columns."""
    before: int = 0
    """Lines before the header, or before the first row."""
    header: bool = True
    comments: bool = False
    """Whether there are lines of comments, which no row looks like."""
    footers: frozenset[str] = frozenset()
    """Last lines that are no rows."""
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fit:
    """Grade of a separator on a head: 3 splits evenly, 2 except lines that are no rows, 1 mostly, 0 not at all."""

    grade: int = 0
    columns: int = 0
    first: int = 0
    """The record that is the header, or the first row."""


def named(sign: str) -> str:
    """Return a sign for reading."""
    return NAMES.get(sign, repr(sign))


def usual(name: str) -> str:
    """Return the separator that the name of a file stands for."""
    return "\t" if name.lower().endswith(".tsv") else ","


def stated(delimiter: str) -> str:
    """Return what a user writes for a separator: one character, ``tab`` or ``blank``; else a UsageError."""
    sign = WORDS.get(delimiter, delimiter)
    if len(sign) != 1 or not sign.isascii() or sign in '"\r\n\0':
        raise UsageError(f"`delimiter={delimiter}` is not one character of ASCII; write it, or tab or blank")
    return sign


def sniffed(
    place: FileLocation, delimiter: str | None = None, decimal: str | None = None, head: Head | None = None
) -> Dialect:
    """Return the dialect of a file by its head; stated properties are taken as they are."""
    head = head or head_text(place)
    if delimiter is None:
        by_excel = EXCEL.fullmatch(head.text.split("\n", 1)[0])
        delimiter = stated(by_excel[1]) if by_excel else _best(head, usual(place.content_name))
    dialect = Dialect(delimiter, decimal, head.encoding, zeros="\0" in head.text)
    dialect = replace(dialect, padded=delimiter != BLANKS and _is_padded(head, dialect))
    if decimal is None and delimiter != ",":
        dialect = replace(dialect, decimal=decimal_of(columns_of(head, dialect).values()))
    return dialect


def head_text(place: FileLocation, encoding: str | None = None) -> Head:
    """Return the beginning of a file, in its encoding or in one that is stated."""
    data = head_of(place, HEAD)
    whole = len(data) < HEAD
    encoding = encoding or encoding_of(data, whole=whole)
    text = data.decode("utf-8-sig" if encoding == "utf-8" else encoding, errors="replace")
    return Head(text.removeprefix("\ufeff"), encoding, whole)


def _best(head: Head, own: str) -> str:
    """Return the separator that splits a head best; the one of its name wherever that does evenly, or as well."""
    fits = {own: _fit(head, own)}
    decimals = own == "," and "," in head.text and BETWEEN.search(head.text) is None
    if fits[own].grade < 3 or decimals:
        fits |= {sign: _fit(head, sign) for sign in SEPARATORS}
    best = max(fits, key=lambda sign: (fits[sign].grade, fits[sign].columns, (sign == own) != decimals))
    if decimals or not fits[best].grade:
        blanks = _fit(head, BLANKS)
        if blanks.grade >= max(2, fits[best].grade) and blanks.columns > fits[best].columns:
            return BLANKS
    return best


def _fit(head: Head, delimiter: str) -> Fit:
    """Return how well a separator splits a head."""
    records = _records(head, Dialect(delimiter))
    sizes = Counter(len(one.cells) for one in records)
    if not sizes or max(sizes) < 2:
        return Fit()
    if len(sizes) == 1:
        return Fit(3, *sizes)
    columns = max(sizes, key=lambda size: (sizes[size], size))
    cells = max(2, columns - 1)
    first = next((i for i, one in enumerate(records) if len(one.cells) >= cells and not one.is_comment), 0)
    last = max(i for i, one in enumerate(records) if len(one.cells) == columns)
    rest = records[first : last + 1]
    own = [one for one in rest if len(one.cells) == columns]
    # a header may lack the name of the first column, or have no cell for a separator at the end of rows
    odd = [one for one in rest[1:] if len(one.cells) != columns and not one.is_comment]
    titles = [one for one in records[:first] if not one.is_comment]
    footers = records[last + 1 :]
    sound = (
        columns > 1
        and rest
        and not odd
        and _heads(rest[0].cells, [one.cells for one in own], columns)
        and len(titles) <= TITLES
        and all(one.filled <= 1 or 2 * one.filled < columns for one in titles)
        and (not titles or delimiter != BLANKS)
        and (not titles or len(own) > 2 or records[first].before > titles[-1].before + 1)
        and all(is_footer(delimiter.join(one.cells)) or one.is_comment for one in footers)
    )
    if sound:
        return Fit(2, columns, first)
    header = len(records[0].cells)
    return Fit(1, header) if header > 1 and 2 * sizes[header] > len(records) else Fit()


def _heads(cells: Sequence[str], rows: Sequence[Sequence[str]], columns: int) -> bool:
    """Tell whether a record has the names of rows, be it with one cell more or less that is empty or names no rows."""
    more = len(cells) - columns
    if more == -1:  # the rows end in a separator, or begin with a name of the row, as R writes them
        first = [row[0] for row in rows]
        return all(not row[-1].strip() for row in rows) or (len(rows) > 1 and len({*first}) == len(first))
    return more == 0 or (more == 1 and not cells[-1].strip())


def is_footer(text: str) -> bool:
    """Tell whether a line that has not the cells of a row is one that ends a report, such as a number of rows."""
    return FOOTER.match(text) is not None


def footers_of(text: str, dialect: Dialect, columns: int) -> frozenset[str]:
    """Return the last lines of a text that are no rows of that many columns but end a report."""
    out = set[str]()
    for line in reversed(dialect.plain(text).splitlines()[-2 * TITLES :]):
        cells = next(csv.reader([line], delimiter=dialect.read_delimiter), [])
        if len(cells) == columns or (cells and not is_footer(cells[0])):
            break
        out |= {line.strip()} - {""}
    return frozenset(out)


@lru_cache(maxsize=4)
def _records(head: Head, dialect: Dialect) -> list[HeadRecord]:
    """Return the records of a head that are there as a whole, without empty lines and Excel's line of a separator."""
    before = EXCEL.fullmatch(head.text.split("\n", 1)[0]) is not None
    text = dialect.plain(head.text)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=dialect.read_delimiter)
    out, line = list[HeadRecord](), 0
    try:
        for cells in reader:
            if (len(cells) > 1 or "".join(cells).strip()) and not (before and line == 0):
                out.append(HeadRecord(line, cells))
            line = reader.line_num
    except csv.Error:  # a field without end
        pass
    return out if head.whole else out[:-1]


def _is_padded(head: Head, dialect: Dialect) -> bool:
    """Tell whether some column behind the first has a blank before each of its cells, perhaps but for its name."""
    records = [one for one in _records(head, dialect) if not one.is_comment]
    size = Counter(len(one.cells) for one in records).most_common(1)
    rows = [one.cells for one in records if len(one.cells) == size[0][0]]
    columns = list(zip(*(rows[1:] or rows), strict=True))
    return any("".join(cells).strip() and all(cell[:1] == " " for cell in cells) for cells in columns[1:])


def columns_of(
    head: Head, dialect: Dialect, layout: Layout | None = None, decided: Mapping[str, Seen] | None = None
) -> dict[str, Seen]:
    """Return what the values in a head show of the notation of numbers, by column, added to what others showed."""
    layout = layout or layout_of(head, dialect)
    seen = dict(decided or {})
    for name, cells in cells_of(head, dialect, layout).items():
        own = seen.setdefault(name, Seen())
        if not own.text:
            own.add(dict.fromkeys(cells))
    return seen


def cells_of(head: Head, dialect: Dialect, layout: Layout) -> dict[str, list[str]]:
    """Return the cells of each column in the rows of a head."""
    rows = [one for one in _records(head, dialect) if one.before >= layout.before][layout.header :]
    full = [one.cells for one in rows if len(one.cells) == len(layout.names)]
    return {name: [cells[i] for cells in full] for i, name in enumerate(layout.names)}


def layout_of(head: Head, dialect: Dialect, header: bool | None = None) -> Layout:
    """Return which lines of a file are rows, and the names of its columns; ``header`` if the user says it."""
    records = _records(head, dialect)
    if not records:
        return Layout(())
    fit = _fit(replace(head, text=dialect.plain(head.text)), dialect.read_delimiter)
    first = fit.first if fit.grade else 0
    limit = max(1, fit.columns // 4)
    filled = [i for i, one in enumerate(records[: first + TITLES]) if i >= first and one.filled > limit]
    if fit.columns > 2 and filled:  # behind titles of a sheet, which is padded with separators
        first = filled[0]
    records, titles = records[first:], records[:first]
    top, rest = records[0], records[1:]
    columns = fit.columns if fit.grade > 1 else len(top.cells)
    rows = [one.cells for one in rest if len(one.cells) == columns]
    comments = [one for one in (*titles, *rest) if len(one.cells) != columns and one.is_comment]
    remarks = []
    footers = footers_of(head.text, dialect, columns) if head.whole else frozenset()
    if lines := [one for one in titles if one not in comments]:
        many = f"the first {len(lines)} lines are titles"
        remarks.append(many if len(lines) > 1 else "the first line is a title")
    if comments:
        remarks.append("lines of comments are left out")
    doubt = ""
    stated_header, body = header, [top.cells, *rows]
    if header is None:
        header, doubt = _has_header(top.cells, rows)
    if header:
        cells, body = _names(top.cells, rows, columns), rows
    empty = [bool(body) and not any(row[i].strip() for row in body) for i in range(columns)]
    if not header:
        columns = max((i + 1 for i in range(columns) if not empty[i]), default=columns)
        cells = [f"c{i + 1}" for i in range(columns)] + [""] * (len(empty) - columns)
        if stated_header is None:
            called = f"the columns are called c1 to c{columns}"
            remarks.append(f"the first row is data, so {called} (else: `header=True`)")
    if doubt:
        why = f"since {doubt!r} would name a column of numbers"
        remarks.append(f"the first row may be data, {why} (then: `header=False`)")
    if dropped := [i for i, cell in enumerate(cells) if not cell and empty[i]]:
        several = f"{len(dropped)} columns without name and entries are left out"
        remarks.append(several if len(dropped) > 1 else "a column without name and entries is left out")
    names = told_apart(cell or f"Unnamed: {i}" for i, cell in enumerate(cells))
    pairs = list(zip(names, cells, strict=True))
    again = [cell for cell, times in Counter(cells).items() if cell and times > 1]
    return Layout(
        tuple(names),
        frozenset(names[i] for i in dropped),
        {cell: tuple(own for own, one in pairs if one == cell) for cell in again},
        top.before,
        header,
        bool(comments),
        footers,
        remarks=tuple(remarks),
    )


def _names(cells: Sequence[str], rows: Sequence[Sequence[str]], columns: int) -> list[str]:
    """Return the names in a header, stripped and as many as a row has cells."""
    names = [" ".join(cell.split()) if "\n" not in cell else cell.strip() for cell in cells]
    if len(names) == columns - 1:
        at_end = all(not row[-1].strip() for row in rows)
        return [*names, ""] if at_end else ["", *names]  # R names no column of row names
    return (names + [""] * columns)[:columns]


def _has_header(first: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[bool, str]:
    """Return whether the first record has names, and a number in it that lets one doubt that, or an empty text.

    It is a row if numbers in it stand in columns of numbers and a text in it comes again in its column, if all of it
    are such numbers, if most of it are such numbers and some are equal, or if all of its texts come again.
    """
    columns = [set(column) for column in zip(*rows, strict=True)]
    if len(columns) != len(first):
        return True, ""
    numbers, texts, again = list[str](), list[str](), 0
    for cell, column in zip((cell.strip() for cell in first), columns, strict=True):
        if is_number(cell):
            entries = [one for one in column if one.strip().lower() not in SIGNS]
            if entries and all(map(is_number, entries)):
                numbers.append(cell)
        elif cell.lower() not in SIGNS:
            texts.append(cell)
            again += cell in column
    if not numbers:
        same = any(list(map(str.strip, row)) == [cell.strip() for cell in first] for row in rows)
        return not (len(texts) > 1 and again == len(texts) and not same), ""
    equal = 2 * len(numbers) > len(first) and len(set(numbers)) < len(numbers)  # no two columns have one name
    is_names = again == 0 and not equal if texts else _is_counting(numbers)
    return is_names, numbers[0] if is_names and texts else ""


def _is_counting(numbers: Sequence[str]) -> bool:
    """Tell whether numbers may be names: one after the other, as of columns without names, or years."""
    if not all(one.isdecimal() for one in numbers):
        return False
    whole = list(map(int, numbers))
    steps = all(b == a + 1 for a, b in pairwise(whole))
    return steps and (whole[0] in (0, 1) or all(1900 <= one < 2100 for one in whole))
