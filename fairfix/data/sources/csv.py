"""CSV files, with what their heads show between columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa

from fairfix.data.dialect import (
    Dialect,
    Head,
    cells_of,
    columns_of,
    footers_of,
    head_text,
    layout_of,
    named,
    sniffed,
    stated,
    usual,
)
from fairfix.data.encodings import known_encoding
from fairfix.data.files import NO_TYPES, FileSource, SourcePart, Types, Write, readable
from fairfix.data.notation import Notation, Seen, decimal_of, notation_of
from fairfix.data.storage import FileLocation
from fairfix.data.text_stream import AHEAD, TextFile, odd_value, reader_of
from fairfix.data.typed import parsed
from fairfix.errors import ColumnError, DataError

TAIL = 4096
"""Bytes at the end of a file that are looked at for lines that are no rows."""


class CsvSource(FileSource):
    """One or more CSV files with the same header."""

    kind = "CSV"
    endings = (".csv", ".tsv")
    text = True

    def __init__(
        self,
        places: Sequence[FileLocation],
        name: str,
        delimiter: str | None = None,
        decimal: str | None = None,
        encoding: str | None = None,
        header: bool | None = None,
    ) -> None:
        """Look at the heads of the files; what is stated of them is taken as it is."""
        super().__init__(places, name)
        for place in places:
            if place.size == 0:
                raise DataError(f"{place.name} is empty")
        encoding = None if encoding is None else known_encoding(encoding)
        heads = [head_text(place, encoding) for place in places]
        sign = None if delimiter is None else stated(delimiter)
        dialects = _alike(places, heads, name, sign, decimal)
        self.dialect = dialects[0]
        files = []
        for place, head, own in zip(places, heads, dialects, strict=True):
            layout = layout_of(head, own, header)
            if not head.whole:
                layout = replace(layout, footers=_footers(place, own, len(layout.names)))
            files.append(TextFile(place, own, layout, encoding is not None))
        self.ambiguous: Mapping[str, tuple[str, ...]] = {}
        files = self._kept_apart(files, heads)
        _check_columns(files, name)
        self._files = {file.place: file for file in files}
        first = self._files[places[0]]
        remarks = self._remarks(first, encoding)
        if sign and len(first.columns) == 1:
            better = sniffed(places[0], None, decimal, heads[0]).delimiter
            if better != sign:
                more = f"{named(better)} makes more: leave out `delimiter`"
                remarks.append(f"{named(sign)} makes one column, {more}")
        with readable(places[0], self.kind), reader_of(first, first.columns, NO_TYPES, whole=False) as reader:
            schema = reader.schema
        for i, field in enumerate(schema):
            if pa.types.is_binary(
                field.type
            ):  # a few bytes are no text, which stops nobody who does not use them
                schema = schema.set(i, field.with_type(pa.string()))
        self.schema = schema
        names = schema.names
        self.about_rows = sum(place.size or 0 for place in places) // 100  # bytes of a row, roughly
        self._stated, self._whole = decimal, all(head.whole for head in heads)
        seen: dict[str, Seen] = {}
        for file, head in zip(files, heads, strict=True):
            seen = columns_of(head, file.dialect, file.layout, seen)
        self._shown = decimal_of(seen.values())
        if not first.layout.header:
            cells = cells_of(heads[0], first.dialect, first.layout)
            self.examples = {one: own[0].strip() for one, own in cells.items() if own}
        at_head = {one: seen.get(one, Seen()) for one in names}
        open_ = [one for one, own in at_head.items() if self._is_open(one, own)]
        at_all = at_head | (self._all_of(open_) if open_ else {})
        self._written = {one: self._notation_of(one, own) for one, own in at_all.items()}
        shows = {one for one, own in seen.items() if self._whole or own.text or own.decimal}
        self._proven = {one for one in shows if not seen[one].mark}
        for one, how in self._written.items():
            remarks += _said_of(one, how, self._usual)
        self.remark = "; ".join(remarks)
        self.doubtful = {one: how.doubt for one, how in self._written.items() if how.doubt}
        for one, how in self._written.items():
            shown, at = at_all[one], self.schema.get_field_index(one)
            is_text = pa.types.is_string(self.schema.field(at).type)
            # beside marks of missing values, or empty texts in quotes, which Arrow takes for texts
            are_numbers = is_text and shown.units and not (shown.text or shown.code)
            if how.doubt or are_numbers or how != self._usual:
                wanted = pa.string() if how.doubt else pa.float64()
                self.schema = self.schema.set(at, self.schema.field(at).with_type(wanted))

    def _remarks(self, first: TextFile, encoding: str | None) -> list[str]:
        """Return how the files are read, where that is not as usual."""
        dialect, layout = first.dialect, first.layout
        remarks = []
        shown = Dialect(dialect.delimiter, self.dialect.decimal, dialect.encoding)
        as_usual = Dialect(usual(first.place.content_name), self.dialect.decimal)
        if shown != as_usual or self.dialect.decimal == ",":
            guessed = encoding is None and not dialect.encoding.startswith("utf")
            remarks = [f"read with {shown}" + (" (else: `encoding=NAME`)" if guessed else "")]
        if dialect.padded:
            remarks.append("blanks next to separators are left out")
        if dialect.zeros:
            remarks.append("zero bytes are left out")
        remarks += layout.remarks
        for name, own in (layout.repeated or {}).items():
            if name not in self.ambiguous:
                same = ", ".join(map(repr, own))
                remarks.append(f"the name {name!r} is repeated, with the same entries:  {same}")
        for name, own in self.ambiguous.items():
            remarks.append(f"the name {name!r} is repeated: its columns are {', '.join(map(repr, own))}")
        if layout.footers:
            remarks.append("lines at the end, such as totals, are left out")
        return remarks

    def _kept_apart(self, files: list[TextFile], heads: Sequence[Head]) -> list[TextFile]:
        """Return the files, with a number for the first one too of repeated columns that differ in some row."""
        ambiguous: dict[str, tuple[str, ...]] = {}
        for name in dict.fromkeys(name for file in files for name in file.layout.repeated or ()):
            if not all(_equal(file, head, name) for file, head in zip(files, heads, strict=True)):
                names = (files[0].layout.repeated or {}).get(name, (name,))
                ambiguous[name] = (f"{name}.0", *names[1:])
        self.ambiguous, out = ambiguous, []
        for file in files:
            own = tuple(f"{one}.0" if one in ambiguous else one for one in file.layout.names)
            out.append(replace(file, layout=replace(file.layout, names=own)))
        return out

    def require(self, columns: Sequence[str]) -> None:
        """Raise a ColumnError where a column is not there, or its name stands for columns that differ."""
        for name in columns:
            if name in self.ambiguous:
                first, *others = self.ambiguous[name]
                raise ColumnError(
                    f"{self.name} has {len(others) + 1} columns {name!r} with different entries; write {first!r} for "
                    f"the first, or {' or '.join(map(repr, others))}"
                ).without_values()
        super().require(columns)

    @property
    def _usual(self) -> Notation:
        """The notation that Arrow reads by itself."""
        return Notation(self.dialect.decimal or ".")

    def _is_open(self, name: str, seen: Seen) -> bool:
        """Tell whether the values that were seen of a column do not show how it is written."""
        unknown = pa.types.is_string(self.schema.field(name).type) and not seen.text
        return not self._whole and (unknown or (bool(seen.open) and not seen.decimal))

    def _notation_of(self, name: str, seen: Seen) -> Notation:
        """Return how a column is written, as far as its values were seen."""
        if seen.is_plain:
            return self._usual
        shown = self._shown
        if self.dialect.delimiter == "," and self._stated is None:
            if {*seen.decimal} == {","}:
                doubt = f"holds {seen.decimal[',']!r}; set `decimal=,` if the comma is its decimal sign"
                return Notation(doubt=doubt)
            if shown is None and {*seen.open} == {","}:
                shown = "."  # a comma that separates columns separates no decimals
        return notation_of(seen, self._stated, shown)

    def settled(self, name: str, cells: Sequence[str]) -> Notation | None:
        """Return how a column is written by some of its values, or by all if these do not show it.

        None where they are whole numbers. A DataError where it stays open.
        """
        seen = Seen()
        seen.add(cells)
        if seen.text or not (seen.open or seen.decimal or seen.thousands or seen.unit):
            return None
        how = self._notation_of(name, self._all_of([name])[name] if self._is_open(name, seen) else seen)
        if how.doubt:
            raise DataError(f"column {name!r} of {self.name} {how.doubt}")
        return how

    def _all_of(self, names: Sequence[str]) -> dict[str, Seen]:
        """Return what all values of some columns show, which are read once for all of them."""
        seen = {name: Seen() for name in names}
        for file in self._own:
            with (
                readable(file.place, self.kind),
                reader_of(file, list(names), dict.fromkeys(names, pa.string()), AHEAD) as reader,
            ):
                for batch in reader:
                    for name in names:
                        seen[name].add(_distinct(batch.column(name)))
        return seen

    @property
    def _own(self) -> list[TextFile]:
        """The files that are read, of all that were opened together."""
        return [self._files[place] for place in self.places]

    def parts(self, columns: Sequence[str], types: Types = NO_TYPES) -> list[SourcePart]:
        """Return one part per file: CSV text has no places to start from."""
        self.require(columns)
        # every file gets the types of the first, so that "01" does not turn into 1 from file to file
        wanted = {name: self.schema.field(name).type for name in columns} | dict(types)
        wanted = {name: kind for name, kind in wanted.items() if not pa.types.is_null(kind)}
        asked = dict(types)
        for name in columns:
            if name in self.doubtful and not _is_text(asked.get(name)):
                raise DataError(f"column {name!r} of {self.name} {self.doubtful[name]}")
        # a column that shows no decimals in the head may have what is open behind it
        own = {
            name: how if how != self._usual else None
            for name in columns
            if pa.types.is_floating(wanted.get(name, pa.null()))
            and ((how := self._written[name]) != self._usual or name not in self._proven)
        }
        return [
            SourcePart(file.place.name, partial(_batches, file, list(columns), wanted, own, self.settled))
            for file in self._own
        ]

    @classmethod
    @contextmanager
    def writer(cls, file: IO[bytes], path: Path, schema: pa.Schema) -> Iterator[Write]:
        """Yield Arrow's writing of a batch."""
        from pyarrow import csv

        options = csv.WriteOptions(delimiter=usual(path.name))
        with csv.CSVWriter(file, schema, write_options=options) as writer:
            yield writer.write_batch


def _footers(place: FileLocation, dialect: Dialect, columns: int) -> frozenset[str]:
    """Return the last lines of a file of this machine that are no rows; none of others, whose end costs a request."""
    if not place.is_direct or not place.size:
        return frozenset()
    with place.opened() as file:
        file.seek(max(0, file.size() - TAIL))
        text = file.read().decode(dialect.encoding, errors="replace")
    return footers_of(text.partition("\n")[2], dialect, columns)


def _said_of(name: str, how: Notation, plain: Notation) -> Iterator[str]:
    """Yield how a column is written, if it is not as usual."""
    if how.unit:
        yield f"{how.unit!r} next to the numbers of column {name!r} is left out"
    if how.brackets:
        yield f"numbers in brackets in column {name!r} are negative"
    if how.thousands:
        yield f"{named(how.thousands)} separates thousands in column {name!r}"
    elif how.decimal != plain.decimal:
        yield f"{how.decimal!r} is the decimal sign in column {name!r}"
    if how.note:
        yield f"column {name!r} is read as decimals: {how.note}"


def _equal(file: TextFile, head: Head, name: str) -> bool:
    """Tell whether the columns of a repeated name have the same entries in all rows; the head is looked at first."""
    names = list((file.layout.repeated or {}).get(name, (name,)))
    cells = cells_of(head, file.dialect, file.layout)
    if any(cells[one] != cells[name] for one in names):
        return False
    if head.whole:
        return True
    with (
        readable(file.place, CsvSource.kind),
        reader_of(file, names, dict.fromkeys(names, pa.binary()), AHEAD) as reader,
    ):
        return all(column.equals(batch.column(0)) for batch in reader for column in batch.columns)


def _alike(
    places: Sequence[FileLocation],
    heads: Sequence[Head],
    name: str,
    delimiter: str | None,
    decimal: str | None,
) -> list[Dialect]:
    """Return the dialects of the files, with one decimal sign; a DataError names two that differ."""
    dialects = [sniffed(place, delimiter, decimal, head) for place, head in zip(places, heads, strict=True)]
    shown = next((one for one in dialects if one.decimal), dialects[0])
    for place, other in zip(places, dialects, strict=True):
        first = dialects[0] if other.delimiter != dialects[0].delimiter else shown
        if other.delimiter != first.delimiter or (other.decimal or shown.decimal) != shown.decimal:
            raise DataError(
                f"{name}: these files have different formats: {places[dialects.index(first)].name} has {first}, "
                f"{place.name} has {other}; use a pattern that matches files of one kind, or set `delimiter` and "
                "`decimal`"
            )
    return [replace(one, decimal=shown.decimal) for one in dialects]


def _check_columns(files: Sequence[TextFile], name: str) -> None:
    """Raise a DataError that names two files that differ in their columns."""
    first, *others = files
    for file in others:
        if missing := set(first.columns) ^ set(file.columns):
            column = min(missing)
            with_it, without = (first, file) if column in first.columns else (file, first)
            raise DataError(
                f"{name}: these files have different columns: {with_it.place.name} has {column!r}, "
                f"{without.place.name} does not. Use a pattern that matches files of one kind"
            )


def _is_text(kind: pa.DataType | None) -> bool:
    return kind is not None and (pa.types.is_string(kind) or pa.types.is_dictionary(kind))


def _distinct(column: pa.Array) -> list[str]:
    """Return the values of a column of text, each once, without what is missing."""
    return [value for value in column.dictionary_encode().dictionary.to_pylist() if value is not None]


Settle = Callable[[str, Sequence[str]], Notation | None]


def _batches(
    file: TextFile,
    columns: list[str],
    types: Mapping[str, pa.DataType],
    own: Mapping[str, Notation | None],
    settle: Settle,
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a file; ``own`` has columns that are read as text, with what numbers in them are like.

    None where this is not known yet, since all numbers in the head are whole; then ``settle`` knows it by more of them.
    Where Arrow meets an entry that is no plain number, all columns of numbers are read so from there on.
    """
    plain = [name for name in columns if name not in own and pa.types.is_floating(types.get(name, pa.null()))]
    row = 0
    with readable(file.place, CsvSource.kind):
        try:
            for batch in _converted(file, columns, types, own, settle):
                row += batch.num_rows
                yield batch
        except pa.ArrowInvalid as error:
            if not plain or "conversion error to double" not in str(error):
                raise odd_value(file, error) from error
        else:
            return
    for batch in _batches(file, columns, types, {**own, **dict.fromkeys(plain)}, settle):
        if batch.num_rows > row:
            yield batch.slice(row)
        row = max(0, row - batch.num_rows)


def _converted(
    file: TextFile,
    columns: list[str],
    types: Mapping[str, pa.DataType],
    own: Mapping[str, Notation | None],
    settle: Settle,
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a file, with numbers made of the columns that are read as text."""
    how, usual_notation, row = dict(own), Notation(file.dialect.decimal or "."), 0
    with reader_of(file, columns, {**types, **dict.fromkeys(own, pa.string())}, AHEAD) as reader:
        for batch in reader:
            for name in own:
                at = batch.schema.get_field_index(name)
                numbers = _whole(batch.column(at))
                if numbers is None and how[name] is None:
                    how[name] = settle(name, _distinct(batch.column(at)))
                if numbers is None:
                    shown = how[name] or usual_notation
                    signs = f"{shown.decimal!r} as decimal sign"
                    signs += f" and {named(shown.thousands)} between thousands" if shown.thousands else ""
                    fault = f"is not a number with {signs}; correct the value"
                    numbers = parsed(batch.column(at), name, file.place.name, row, shown.number, fault)
                batch = batch.set_column(at, pa.field(name, pa.float64()), numbers)  # noqa: PLW2901  one step after another
            row += batch.num_rows
            yield batch


DIGITS = np.isin(np.arange(256), list(b"0123456789-"))
"""Which bytes are of whole numbers."""


def _whole(column: pa.Array) -> pa.Array | None:
    """Return a column of text as numbers if they are whole and without any other sign; else None, or where empty."""
    text = column.buffers()[2]
    if text is None or not DIGITS[np.frombuffer(text, dtype=np.uint8)].all():
        return None
    try:
        return column.cast(pa.float64())
    except pa.ArrowInvalid:  # such as 1-2
        return None
