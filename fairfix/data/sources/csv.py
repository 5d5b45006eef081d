"""CSV files, with what their heads show between columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from fairfix.data.dialect import (
    Dialect,
    Head,
    columns_of,
    head_text,
    header,
    named,
    sniffed,
    stated,
    usual,
)
from fairfix.data.files import FileSource, Part, Write, readable
from fairfix.data.notation import Notation, Seen, decimal_of, notation_of
from fairfix.data.places import Place
from fairfix.errors import DataError

BLOCK = 1 << 20
"""Bytes of text parsed at a time."""

AHEAD = 8 << 20
"""Bytes that come from a store at a time."""


class CsvSource(FileSource):
    """One or more CSV files with the same header."""

    kind = "CSV"
    endings = (".csv", ".tsv")
    text = True

    def __init__(
        self, places: Sequence[Place], name: str, delimiter: str | None = None, decimal: str | None = None
    ) -> None:
        """Look at the heads of the files; ``delimiter`` and ``decimal`` are stated instead."""
        super().__init__(places, name)
        for place in places:
            if place.size == 0:
                raise DataError(f"{place.name} is empty")
        heads = list(map(head_text, places))
        self.dialect = _alike(places, heads, name, None if delimiter is None else stated(delimiter), decimal)
        remarks = []
        if (
            self.dialect != Dialect(usual(places[0].content_name), self.dialect.decimal)
            or self.dialect.decimal == ","
        ):
            remarks = [f"read with {self.dialect}"]
        with _open(places[0], self.dialect, None, None) as reader:
            schema = reader.schema
            names = schema.names  # may be no UTF-8, which the reader leaves to whoever looks
        self.schema = schema
        self.require(names)  # a CSV reader finds columns by their names
        self.about_rows = sum(place.size or 0 for place in places) // 100  # bytes of a row, roughly
        self._stated, self._whole = decimal, all(head.whole for head in heads)
        seen: dict[str, Seen] = {}
        for head in heads:
            seen = columns_of(head, self.dialect.delimiter, seen)
        self._shown = decimal_of(seen.values())
        self._written = {one: self._notation(one, seen.get(one, Seen())) for one in names}
        self._proven = {one for one, own in seen.items() if self._whole or own.text or own.decimal}
        for one, how in self._written.items():
            if how.thousands:
                remarks.append(f"{named(how.thousands)} separates thousands in column {one!r}")
            elif how.decimal != self._usual.decimal:
                remarks.append(f"{how.decimal!r} is the decimal sign in column {one!r}")
            if how.note:
                remarks.append(f"column {one!r} is read as decimals: {how.note}")
        self.remark = "; ".join(remarks)
        self.doubtful = {one: how.doubt for one, how in self._written.items() if how.doubt}
        for one, how in self._written.items():
            wanted = pa.string() if how.doubt else pa.float64()
            if how.doubt or how != self._usual:
                at = self.schema.get_field_index(one)
                self.schema = self.schema.set(at, self.schema.field(at).with_type(wanted))

    @property
    def _usual(self) -> Notation:
        """The notation that Arrow reads by itself."""
        return Notation(self.dialect.decimal or ".")

    def _notation(self, name: str, seen: Seen) -> Notation:
        """Return how a column is written, as far as its values were seen."""
        kind = self.schema.field(name).type
        unknown = pa.types.is_string(kind) and not seen.text
        if not self._whole and (unknown or (seen.open and not seen.decimal)):
            seen = self._all_of(name)
        if seen.is_plain:
            return self._usual
        shown = self._shown
        if self.dialect.delimiter == "," and self._stated is None:
            if {*seen.decimal} == {","}:
                return Notation(
                    doubt=f"holds {seen.decimal[',']!r}; say `decimal=,` if the comma is its decimal sign"
                )
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
        how = self._notation(name, seen)
        if how.doubt:
            raise DataError(f"column {name!r} of {self.name} {how.doubt}")
        return how

    def _all_of(self, name: str) -> Seen:
        """Return what all values of a column show."""
        seen = Seen()
        for place in self.places:
            with _open(place, self.dialect, [name], {name: pa.string()}, AHEAD) as reader:
                for batch in reader:
                    seen.add(_distinct(batch.column(0)))
        return seen

    def parts(self, columns: Sequence[str], types: Mapping[str, pa.DataType] | None = None) -> list[Part]:
        """Return one part per file: CSV text has no places to start from."""
        # every file gets the types of the first, so that "01" does not turn into 1 from file to file
        wanted = {name: self.schema.field(name).type for name in columns} | dict(types or {})
        wanted = {name: kind for name, kind in wanted.items() if not pa.types.is_null(kind)}
        asked = dict(types or {})
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
        settle = self.settled if None in own.values() else None
        return [
            Part(place.name, partial(_batches, place, self.dialect, list(columns), wanted, own, settle))
            for place in self.places
        ]

    @classmethod
    @contextmanager
    def writer(cls, file: IO[bytes], path: Path, schema: pa.Schema) -> Iterator[Write]:
        """Yield Arrow's writing of a batch."""
        from pyarrow import csv

        options = csv.WriteOptions(delimiter=usual(path.name))
        with csv.CSVWriter(file, schema, write_options=options) as writer:
            yield writer.write_batch


def _alike(
    places: Sequence[Place], heads: Sequence[Head], name: str, delimiter: str | None, decimal: str | None
) -> Dialect:
    """Return the dialect of all files, or raise a DataError that names two that differ in it or in their columns."""
    (first, head), *others = zip(places, heads, strict=True)
    dialect = sniffed(first, delimiter, decimal, head)
    for place, text in others:
        other = sniffed(place, delimiter, decimal, text)
        own = dialect.decimal or other.decimal
        if replace(dialect, decimal=own) != replace(other, decimal=other.decimal or own):
            raise DataError(
                f"{name}: the files are not written alike: {first.name} has {dialect}, {place.name} has {other}; "
                "name those of one kind by a pattern, or state `delimiter` and `decimal`"
            )
        dialect = replace(dialect, decimal=own)
    names = header(head, dialect) if others else []
    for place, text in others:
        if missing := set(names) ^ set(header(text, dialect)):
            column = min(missing)
            with_it, without = (first, place) if column in names else (place, first)
            raise DataError(
                f"{name}: the files have not the same columns: {with_it.name} has {column!r}, {without.name} has not; "
                "name those of one kind by a pattern"
            )
    return dialect


def _is_text(kind: pa.DataType | None) -> bool:
    return kind is not None and (pa.types.is_string(kind) or pa.types.is_dictionary(kind))


def _distinct(column: pa.Array) -> list[str]:
    """Return the values of a column of text, each once, without what is missing."""
    return [value for value in column.dictionary_encode().dictionary.to_pylist() if value is not None]


def _batches(
    place: Place,
    dialect: Dialect,
    columns: list[str],
    types: Mapping[str, pa.DataType],
    own: Mapping[str, Notation | None],
    settle: Callable[[str, Sequence[str]], Notation | None] | None,
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a file; ``own`` has columns that are read as text, with what numbers in them are like.

    None where this is not known yet, since all numbers in the head are whole; then ``settle`` knows it by more of them.
    """
    how, plain, row = dict(own), Notation(dialect.decimal or "."), 0
    with _open(place, dialect, columns, {**types, **dict.fromkeys(own, pa.string())}, AHEAD) as reader:
        for batch in reader:
            for name in own:
                at = batch.schema.get_field_index(name)
                numbers = _whole(batch.column(at))
                if numbers is None and how[name] is None and settle is not None:
                    how[name] = settle(name, _distinct(batch.column(at)))
                if numbers is None:
                    numbers = _numbers(batch.column(at), how[name] or plain, name, place.name, row)
                batch = batch.set_column(at, pa.field(name, pa.float64()), numbers)  # noqa: PLW2901
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


def _numbers(column: pa.Array, how: Notation, name: str, where: str, before: int) -> pa.Array:
    """Return a column of text as numbers; a DataError names the first value that is none in its notation."""
    coded = column.dictionary_encode()
    entries = [None if text is None else how.number(text) for text in coded.dictionary.to_pylist()]
    wrong = {i for i, entry in enumerate(entries) if entry is None}
    if wrong:
        for row, code in enumerate(coded.indices.to_pylist()):
            if code in wrong:
                between = f" and {named(how.thousands)} between thousands" if how.thousands else ""
                raise DataError(
                    f"column {name!r} holds {coded.dictionary[code].as_py()!r} at row {before + row + 1:,} of {where}, "
                    f"which is no number with {how.decimal!r} as decimal sign{between}; correct the value"
                )
    return pa.array(entries, pa.float64(), from_pandas=True).take(coded.indices)


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

    with (
        readable(place, CsvSource.kind),
        place.streamed(ahead) as text,
        csv.open_csv(
            text,
            read_options=csv.ReadOptions(use_threads=False, block_size=BLOCK, encoding=dialect.encoding),
            parse_options=csv.ParseOptions(delimiter=dialect.delimiter, newlines_in_values=True),
            convert_options=csv.ConvertOptions(
                include_columns=columns,
                column_types=types,
                decimal_point=dialect.decimal or ".",
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,  # "NA" in quotes is a name, NA without is a missing value
            ),
        ) as reader,
    ):
        yield reader
