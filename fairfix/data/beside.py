"""Arrays aligned with rows: labels, scores, groups and the like that are not columns of the data.

An array is aligned with the rows by position, as scikit-learn does. Where the data and a pandas object both have an
index, the two must not contradict each other:

- equal indexes: aligned;
- the same labels in another order: refused, since position and label mean different rows;
- different labels: aligned by position if one of the two is the default index 0, 1, 2, ..., else refused.

The values become a column, named after the array, or else after its parameter. A dictionary of one name and its values
names the column; that of a label or a prediction may name the positive value, too: ``label={"loan=paid": y}``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from fairfix.data.choices import ROLES, SEVERAL, VALUED
from fairfix.data.files import NO_TYPES, DerivedSource, Source, SourcePart, Types, open_source
from fairfix.data.frames import fetched
from fairfix.data.names import ValuedColumn
from fairfix.data.urls import is_database
from fairfix.errors import DataError, UsageError


class BesideSource(DerivedSource):
    """Rows with further columns, whose values were given as arrays.

    Raises
    ------
    DataError
        There are not as many values as rows; at once where the number of rows is known, else when they are read.
    """

    def __init__(self, source: Source, added: Source) -> None:
        super().__init__(source)
        self.rows = self.about_rows = int(added.rows or 0)
        self.schema = pa.schema([*source.schema, *added.schema])
        self._added = added
        if source.rows is not None and source.rows != self.rows:
            raise self._unequal(f"{source.rows:,}")

    def parts(self, columns: Sequence[str], types: Types = NO_TYPES) -> list[SourcePart]:
        """Return the rows as one part."""
        own = [name for name in columns if name in self.source.schema.names]
        names = [name for name in columns if name in self._added.schema.names]
        asked = {name: kind for name, kind in types.items() if name in own}

        def batches() -> Iterator[pa.RecordBatch]:
            entries = pa.Table.from_batches(list(self._added.batches(names)))
            if not own:
                yield from entries.select(list(columns)).to_batches()
                return
            entries, row = entries.combine_chunks(), 0
            for batch in self.source.batches(own, asked):
                if row + batch.num_rows > self.rows:
                    raise self._unequal(f"more than {self.rows:,}")
                beside = entries.slice(row, batch.num_rows).to_batches()
                row += batch.num_rows
                if not batch.num_rows:
                    continue
                columns_of = {**_columns(batch), **(_columns(beside[0]) if names else {})}
                yield pa.RecordBatch.from_arrays([columns_of[name] for name in columns], list(columns))
            if row != self.rows:
                raise self._unequal(f"{row:,}")

        return [SourcePart(self.name, batches)]

    def _unequal(self, rows: str) -> DataError:
        names = ", ".join(map(repr, self._added.schema.names))
        return DataError(
            f"{names}: {self.rows:,} values for data of {rows} rows; give one value for each row"
        )


def _columns(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return dict(zip(batch.schema.names, batch.columns, strict=True))


def with_arrays(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters in which arrays have become columns of the data, and names of these.

    Raises
    ------
    UsageError
        Arrays go with no rows in memory, or with an index that contradicts that of the data.
    DataError
        There are not as many values as rows, or values cannot be one column.
    """
    data, out = given.get("data"), dict(given)
    arrays = {
        role: columns
        for role in ROLES
        if (columns := _arrays(role, given.get(role), _names_of(data))) is not None
    }
    if not arrays:
        return out
    first = next(iter(arrays))
    if isinstance(data, (str, os.PathLike)) or is_database(data):
        raise UsageError(
            f"`{first}`: values go with rows in memory; give the name of a column, or read the data first, as in "
            "data=pandas.read_csv(...)"
        )
    source = None if data is None else open_source(data)
    taken = set(source.schema.names) if source else set[str]()
    added: dict[str, pa.Array] = {}
    as_arrays: dict[str, tuple[str, ...]] = {}
    for role, columns in arrays.items():
        names, asked = [], ValuedColumn("")
        for named, entries in columns:
            _check_index(role, entries, data)
            array = _array(role, entries)
            _check_length(role, array, source, added)
            if role in VALUED and isinstance(given[role], Mapping):
                asked = ValuedColumn.parse(named, (), role)
            own = asked.column or named or role
            if own in taken and source is not None and _same(source, own, array):
                names.append(own)
                continue
            alone = () if role in SEVERAL else (role,)
            name = next(
                one
                for one in (own, *alone, f"{own} ({role})", *(f"{own} ({role} {i})" for i in range(2, 1000)))
                if one not in taken and one not in added
            )
            added[name] = array
            names.append(name)
        if len(set(names)) < len(names):
            raise UsageError(f"`{role}` has the values of column {names[0]!r} more than once; give them once")
        out[role] = tuple(names) if role in SEVERAL else str(asked._replace(column=names[0]))
        if added.keys() & {*names}:
            as_arrays[role] = tuple(names)
    if added:
        beside = open_source(pa.table(added))
        out["data"] = beside if source is None else BesideSource(source, beside)
        out["data"].as_arrays = as_arrays
    return out


def _names_of(data: Any) -> frozenset[str]:
    """Return the names of the columns of data, as far as they show without reading it."""
    if hasattr(data, "collect_schema"):  # of Polars, which warns where it is asked for columns
        data = data.collect_schema()
    names = data if isinstance(data, Mapping) else getattr(data, "columns", ())
    try:
        return frozenset(one for one in names if isinstance(one, str))
    except TypeError:
        return frozenset()


def _arrays(role: str, value: Any, columns: frozenset[str]) -> list[tuple[str, Any]] | None:
    """Return (name, values) of each column that a parameter gives; None where it gives names of columns."""
    if value is None or isinstance(value, (str, bytes)):
        return None
    if isinstance(value, Mapping):
        if value and role not in SEVERAL and len(value) != 1:
            raise UsageError(f"`{role}` takes one column, and this dictionary has {len(value)}")
        return [(str(name), one) for name, one in value.items()] or None
    if hasattr(value, "columns") and _is_array(value):
        names = getattr(value, "column_names", value.columns)  # of Arrow, whose columns are arrays
        many = [(one if isinstance(one, str) else "", value[one]) for one in names]
        if role not in SEVERAL and len(many) != 1:
            raise UsageError(f"`{role}` takes one column, and this {type(value).__name__} has {len(many)}")
        return many
    if _is_array(value):
        first = value[: len(columns) + 1] if getattr(value, "ndim", 1) == 1 else [value]
        texts = all(isinstance(one, str) for one in first)
        if role in SEVERAL and texts and len(value) and set(value) <= columns:
            return None  # the names of columns, such as frame.columns[:2]
        name = getattr(value, "name", None)
        return [(name if isinstance(name, str) else "", value)]
    if not isinstance(value, (list, tuple)) or not value:
        return None
    if role not in SEVERAL:
        return [("", value)]
    if all(isinstance(one, str) for one in value):
        return None
    if all(map(_is_array, value)):
        return [pair for one in value for pair in _arrays(role, one, columns) or [("", one)]]
    if any(isinstance(one, str) or _is_array(one) for one in value):
        raise UsageError(
            f"`{role}`: names of columns and values are mixed; give either, or a dict of name and values"
        )
    return [("", value)]


def _is_array(value: Any) -> bool:
    """Tell whether a value holds one entry for each row, in one of the usual kinds."""
    if getattr(value, "ndim", 1) == 0 or isinstance(value, type):
        return False
    return any(hasattr(value, one) for one in ("__array__", "__arrow_c_array__", "__arrow_c_stream__"))


def _array(role: str, entries: Any) -> pa.Array:
    """Return values as one Arrow array."""
    if getattr(entries, "ndim", 1) == 2 and entries.shape[1] == 1:
        entries = np.asarray(entries).ravel()
    if getattr(entries, "ndim", 1) != 1:
        raise DataError(
            f"`{role}`: an array of shape {entries.shape} has no names for its columns; give one value for each row, "
            "or a data frame"
        )
    with fetched(f"array of `{role}`"):
        if hasattr(entries, "to_arrow"):  # of Polars
            entries = entries.to_arrow()
        elif hasattr(entries, "iloc") or isinstance(entries, (list, tuple)):
            entries = pa.array(entries, from_pandas=True)
        elif not isinstance(entries, (pa.Array, pa.ChunkedArray)):
            # an index, a categorical
            typed = hasattr(entries, "dtype") and not isinstance(entries, np.ndarray)
            entries = pa.array(entries if typed else np.asarray(entries), from_pandas=True)
    if isinstance(entries, pa.ChunkedArray):
        entries = entries.combine_chunks()
        entries = pa.concat_arrays(entries.chunks) if isinstance(entries, pa.ChunkedArray) else entries
    return entries


def _check_length(role: str, array: pa.Array, source: Source | None, added: Mapping[str, pa.Array]) -> None:
    """Raise a DataError where there are not as many values as rows."""
    if source is not None and source.rows is not None:
        rows, of = source.rows, "`data`"
    elif added:
        name, first = next(iter(added.items()))
        rows, of = len(first), f"{name!r}"
    else:
        return
    if len(array) != rows:
        raise DataError(
            f"`{role}` has {len(array):,} values, and {of} has {rows:,} rows; give one value for each row"
        )


def _check_index(role: str, entries: Any, data: Any) -> None:
    """Raise a UsageError where the indexes of two pandas objects mean other rows than their positions do."""
    if not (hasattr(entries, "iloc") and hasattr(entries, "index") and hasattr(data, "iloc")):
        return
    own, rows = entries.index, data.index
    if len(own) != len(rows) or own.equals(rows):
        return
    default = any(_is_default(index) for index in (own, rows))
    if not own.is_unique or not rows.is_unique:
        alike = sorted(map(repr, own)) == sorted(map(repr, rows))
    else:
        alike = bool(rows.isin(own).all())
    if alike or not default:
        how = "has the rows of `data` in another order" if alike else "has other rows than `data`"
        raise UsageError(
            f"`{role}`: its index {how}; to align by the index, give {role}.loc[data.index]; to align by position, "
            f"give {role}.to_numpy()"
        )


def _is_default(index: Any) -> bool:
    return getattr(index, "start", None) == 0 and getattr(index, "step", None) == 1


def _same(source: Source, name: str, array: pa.Array) -> bool:
    """Tell whether a column of the data has these values."""
    column, entries = _values(source, name), _values(open_source(pa.table({name: array})), name)
    return bool(column.type == entries.type and column.equals(entries))


def _values(source: Source, name: str) -> pa.ChunkedArray:
    return pa.chunked_array(
        [batch.column(0) for batch in source.batches([name])], source.schema.field(name).type
    )
