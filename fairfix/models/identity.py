"""Identity: what tells the rows of a repair apart, for the draws of their results.

An id where one is named, else the columns that the rule reads; in the kind that the rows of the repair had.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from fairfix.data.arrow_normalize import entries_of, texts_of
from fairfix.data.canonical import canonical_text
from fairfix.data.counts import Floats, Ints
from fairfix.data.data_spec import DataSpec
from fairfix.data.encoder import arrow_array
from fairfix.data.files import require
from fairfix.data.once import once_per_object
from fairfix.data.row_hash import SEPARATOR, draws_of, entry_of
from fairfix.data.table import row_hashes
from fairfix.errors import DataError

IDENTITY_TYPES: Mapping[str, pa.DataType] = {
    "text": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
}
"""Kinds of identity columns, with the type a text file is read as."""


def identity_columns(
    schema: pa.Schema, data_spec: DataSpec, read: Collection[str] | None = None
) -> dict[str, str]:
    """Return column -> kind of what identifies a row: the id, else the columns that may be ``read``.

    None reads every column but label, weight and decisions.
    """
    columns = data_spec.columns
    hidden = {columns.label, columns.weight, columns.prediction, columns.probability}
    own = (name for name in schema.names if read is None or name in read)
    single = (name for name in own if schema.names.count(name) == 1 and name not in hidden)
    names = [columns.id] if columns.id else sorted(single)
    require(names, schema.names, "the data")
    return {name: _kind(schema.field(name).type, as_text=bool(columns.id)) for name in names}


def _kind(kind: pa.DataType, *, as_text: bool) -> str:
    types = {"boolean": pa.types.is_boolean, "integer": pa.types.is_integer, "number": pa.types.is_floating}
    if as_text:  # an id is a name even where it looks like a number: 007 is not 7
        return "text"
    return next((name for name, is_kind in types.items() if is_kind(kind)), "text")


def identities(columns: Sequence[pa.Array], kinds: Mapping[str, str]) -> Iterator[bytes]:
    """Yield the identity of each row from its columns, in the order of ``kinds``."""
    parts = [_written(_as(column, kind)) for column, kind in zip(columns, kinds.values(), strict=True)]
    return iter(parts[0]) if len(parts) == 1 else map(SEPARATOR.join, zip(*parts, strict=True))


def _written(column: pa.Array) -> Iterable[bytes]:
    """Return the entries of a column as an identity has them."""
    texts = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    if texts and not column.null_count:  # the same, in half of the time
        return map(str.encode, map(canonical_text, column.to_pylist()))
    return map(entry_of, entries_of(column))


def _as(column: pa.Array, kind: str) -> pa.Array:
    """Return a column of identity in its kind: numbers and truth values may be texts here, and truth values numbers."""
    wanted, own = IDENTITY_TYPES[kind], column.type
    texts = pa.types.is_string(own) or pa.types.is_large_string(own)
    numbers = kind == "boolean" and (pa.types.is_integer(own) or pa.types.is_floating(own))
    if kind == "text" or not (texts or numbers):
        return column
    try:
        return column.cast(wanted)
    except pa.ArrowInvalid:  # texts that the fit has not seen stay what they are
        return column


def check_unique(ids: Sequence[pa.Array], name: str) -> None:
    """Raise a DataError where identities repeat or are missing."""
    whole = pa.chunked_array([*map(texts_of, ids)], pa.string())
    if whole.null_count:
        raise DataError(
            f"id column {name!r} is missing in {whole.null_count:,} of {len(whole):,} rows; fill it, leave these rows "
            "out, or name another column with `id`"
        )
    distinct = len(whole.unique())
    if distinct == len(whole):
        return
    again = int(np.argmax(whole.to_pandas().duplicated())) + 1
    raise DataError(
        f"id column {name!r} has {len(whole) - distinct:,} repeated values in {len(whole):,} rows "
        f"(the first again in row {again:,}); IDs seed the randomized decisions, so they must be unique: "
        "correct them, name another column, or give rows with one ID the same draw with `duplicates=share`"
    )


@dataclass(frozen=True, eq=False)
class RowDraws:
    """Makes the draws of rows by number, as prediction on a file of just these rows does.

    Rows that no id tells apart are told apart by occurrence.
    """

    columns: pa.Table
    identity: Mapping[str, str]
    key: bytes
    by_id: bool
    rows: Ints | None = None
    """Rows of the columns that have a number here, shape (n,); None for all, as they come."""

    def __call__(self, rows: Ints) -> Floats:
        """Return the draws of rows, shape (n,)."""
        columns = self._columns_of(rows if self.rows is None else self.rows[rows]).columns
        parts = [column.combine_chunks() for column in columns]
        return draws_of(identities(parts, self.identity), self.key, None if self.by_id else {})

    @cached_property
    def every(self) -> Floats:
        """The draws of all rows, shape (n,)."""
        return self(np.arange(self.columns.num_rows if self.rows is None else self.rows.size))

    def take(self, rows: Ints) -> RowDraws:
        """Return what makes the draws of some of the rows, by their new numbers."""
        return replace(self, rows=rows if self.rows is None else self.rows[rows])

    @once_per_object
    def narrowed(self, *names: str) -> RowDraws:
        """Return what makes the draws from fewer columns."""
        return replace(self, identity={name: self.identity[name] for name in names})

    def repeated(self, others: Sequence[RowDraws]) -> int:
        """Return how many of these numbered rows, and others of the same columns, have the identity of another one."""
        rows = np.concatenate([one.rows for one in (self, *others) if one.rows is not None])
        many = np.unique(row_hashes(self._columns_of(rows), {}), return_counts=True)[1]
        return int(many[many > 1].sum())

    def _columns_of(self, rows: Ints) -> pa.Table:
        return self.columns.select(list(self.identity)).take(arrow_array(rows))
