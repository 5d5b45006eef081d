"""Types of columns whose format has a type per value: spreadsheets, JSON, files of statistics packages.

A column gets one Arrow type of all its values. Values that no one type holds become their canonical texts, so a mixed
column still names groups. A column that is asked for as numbers is parsed then, and a value that is no number is named.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from fairfix.data.arrow_normalize import texts_of
from fairfix.data.canonical import canonical
from fairfix.errors import DataError

NUMERAL = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")
"""A number in text whose name is that of the number; ``01`` and ``1e5`` are codes."""

Labels = Mapping[Any, str]
"""Value of a column -> the label that a statistics package shows for it."""

CODED = pa.dictionary(pa.int32(), pa.string())
"""Type of a column whose values are shown as labels."""


def column_of(entries: Sequence[Any], *, numerals: bool = False) -> pa.Array:
    """Return an array of Python values of any types, None where missing.

    With ``numerals``, texts count as numbers where each of them is the canonical text of a number.
    """
    kinds = set(map(type, entries)) - {type(None)}
    if numerals and str in kinds and kinds <= {str, int, float} and all(map(_is_numeral, entries)):
        entries = [_number(one) if isinstance(one, str) else one for one in entries]
        kinds = set(map(type, entries)) - {type(None)}
    if not kinds:
        return pa.nulls(len(entries))
    if kinds == {float, int}:
        return pa.array([None if one is None else float(one) for one in entries], pa.float64())
    if kinds == {date, datetime}:
        entries = [datetime(*one.timetuple()[:3]) if type(one) is date else one for one in entries]
    if len(kinds) == 1 or kinds == {date, datetime} or kinds <= {list, dict}:
        with suppress(pa.ArrowException, OverflowError, UnicodeEncodeError):
            return pa.array(entries)
    return pa.array([None if one is None or one != one else _text(one) for one in entries], pa.string())


def _is_numeral(entry: Any) -> bool:
    return not isinstance(entry, str) or (len(entry) < 16 and NUMERAL.fullmatch(entry) is not None)


def _number(text: str) -> int | float:
    return float(text) if "." in text else int(text)


def _text(entry: Any) -> str:
    if isinstance(entry, (list, dict)):
        return json.dumps(entry, ensure_ascii=False, default=str)
    return canonical(entry).encode("utf-8", "replace").decode()  # half a surrogate pair is no text


def unified(kinds: Iterable[pa.DataType]) -> pa.DataType:
    """Return the type that holds values of all these types; text where there is no other."""
    schemas = [pa.schema({"": kind}) for kind in dict.fromkeys(kinds)]
    try:
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except pa.ArrowException:
        return pa.string()


def recast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array in the unified type of its column."""
    if array.type == kind:
        return array
    if pa.types.is_string(kind):
        if pa.types.is_nested(array.type):
            return pa.array([None if one is None else _text(one) for one in array.to_pylist()], kind)
        return texts_of(array)
    return array.cast(kind)


def without_blanks(entries: Iterable[Any]) -> list[Any]:
    """Return values with None for what is missing, as blank texts are."""
    return [None if one is None or one != one or one == "" else one for one in entries]


def told_apart(names: Iterable[str]) -> list[str]:
    """Return column names with ``.1``, ``.2`` behind those that repeat, as pandas has them."""
    out, times = list(names), Counter[str]()
    taken = set(out)
    for i, name in enumerate(out):
        number = times[name]
        times[name] += 1
        while number and out[i] in taken:
            out[i], number = f"{name}.{number}", number + 1
        taken.add(out[i])
    return out


def asked_batches(
    batches: Iterable[pa.RecordBatch],
    types: Mapping[str, pa.DataType],
    where: str,
    labels: Mapping[str, Labels],
    names: Collection[str],
) -> Iterator[pa.RecordBatch]:
    """Yield batches with texts as numbers where numbers are asked for, and labels where names are.

    ``names`` are the columns with labels that are names where nothing is asked for. A DataError names the first text
    that is no number.
    """
    row = 0
    for batch in batches:
        columns = []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            asked = types.get(name)
            as_number = asked is not None and pa.types.is_floating(asked)
            if name in labels and not as_number and (asked is not None or name in names):
                column = labelled(column, labels[name])  # noqa: PLW2901  one step after another
            elif pa.types.is_string(column.type) and as_number:
                column = parsed(column, name, where, row)  # noqa: PLW2901  one step after another
            columns.append(column)
        yield pa.RecordBatch.from_arrays(columns, batch.schema.names)
        row += batch.num_rows


def decoded(raw: bytes) -> str:
    """Return a text in UTF-8, or else in Latin-1, of a format that does not say which."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def rebatched(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield batches of ``rows`` rows, so that sums are those of other formats to the last bit.

    The last one, and the last of a schema, may have fewer.
    """
    kept: list[pa.RecordBatch] = []
    for batch in batches:
        if kept and batch.schema != kept[0].schema:
            yield pa.concat_batches(kept)
            kept = []
        kept.append(batch)
        while (total := sum(map(len, kept))) >= rows:
            joined = pa.concat_batches(kept)
            yield joined.slice(0, rows)
            kept = [joined.slice(rows)] if total > rows else []
    if kept:
        yield pa.concat_batches(kept)


def parsed(
    column: pa.Array,
    name: str,
    where: str,
    before: int,
    number: Callable[[str], float | None] | None = None,
    fault: str = "is not a number; correct the value, or leave it empty",
) -> pa.Array:
    """Return texts as numbers; a DataError names the first that is none, and its row after ``before`` others.

    ``number`` returns the number that a text is, None where it is none; else Python's spelling counts.
    """
    coded = column.dictionary_encode()
    read = number or _plain_number
    entries = [None if text is None else read(text) for text in coded.dictionary.to_pylist()]
    wrong = {i for i, entry in enumerate(entries) if entry is None}
    for row, code in enumerate(coded.indices.to_pylist() if wrong else ()):
        if code in wrong:
            raise DataError(
                f"column {name!r} holds {coded.dictionary[code].as_py()!r} at row {before + row + 1:,} of {where}, "
                f"which {fault}"
            )
    return pa.array(entries, pa.float64(), from_pandas=True).take(coded.indices)


def _plain_number(text: str) -> float | None:
    try:
        return float(text) if "_" not in text else None
    except ValueError:
        return None


# ---------------------------------------------------------------------- value labels


def labelled(column: pa.Array, labels: Labels) -> pa.Array:
    """Return the labels of values as a dictionary array; a value without a label has its canonical text."""
    coded = column.dictionary_encode()
    texts = [
        None if one is None or one != one else labels.get(one, canonical(one))
        for one in coded.dictionary.to_pylist()
    ]
    names = pa.array(texts, pa.string()).dictionary_encode()
    return pa.DictionaryArray.from_arrays(names.indices.take(coded.indices), names.dictionary)


def with_labels(batch: pa.RecordBatch, labels: Mapping[str, Labels]) -> pa.RecordBatch:
    """Return a batch, or a table, with the labels of values in its metadata."""
    if not labels:
        return batch
    pairs = {name: list(each.items()) for name, each in labels.items()}
    return batch.replace_schema_metadata({"labels": json.dumps(pairs, default=lambda number: number.item())})


def labels_in(batch: pa.RecordBatch) -> dict[str, Labels]:
    """Return the labels of values by column."""
    kept = json.loads((batch.schema.metadata or {}).get(b"labels", b"{}"))
    return {name: dict(pairs) for name, pairs in kept.items()}


def unlabelled(column: pa.Array, labels: Labels) -> bool:
    """Tell whether a column has a value without a label."""
    return any(one is not None and one == one and one not in labels for one in column.unique().to_pylist())


def whole(array: pa.Array) -> pa.Array:
    """Return floats as integers where all of them are, for formats that have floats alone."""
    if not pa.types.is_floating(array.type):
        return array
    try:
        return array.cast(pa.int64())
    except pa.ArrowInvalid:
        return array
