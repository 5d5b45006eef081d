"""Data frames and dicts of columns as Arrow tables, one column at a time.

A column of objects of several types is read as the texts that a CSV file would have of them. A column that no table can
hold, such as one of lists and dicts, is left out: it stops nothing unless somebody names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, time
from decimal import Decimal
from numbers import Number
from typing import Any

import pyarrow as pa

from fairfix.data.canonical import canonical
from fairfix.errors import DataError

ENTRIES = (str, Number, Decimal, date, time)
"""Types of single values; a complex number is none of them, though Python counts it as a number."""

WRONG = (OverflowError, pa.ArrowException, ValueError, TypeError, AttributeError)
"""Exceptions of Arrow and pandas for values that they cannot hold."""


def arrow_table(data: Any) -> tuple[pa.Table, dict[str, str]]:
    """Return a table of a pandas frame or of a dict of columns, and why columns of it are left out, by name.

    Raises
    ------
    DataError
        The columns differ in length, or none can be read.
    """
    named: Iterable[tuple[Any, Any]]
    if isinstance(data, Mapping):
        named = data.items()
    else:
        named = ((name, data.iloc[:, at]) for at, name in enumerate(data.columns))
    names, columns, unreadable, fault = list[str](), list[pa.ChunkedArray](), dict[str, str](), ""
    for name, entries in named:
        try:
            column = _column(entries)
        except WRONG as error:
            fault = "; ".join(map(str, error.args)) or type(error).__name__
            unreadable[str(name)] = fault
            continue
        names.append(str(name))
        columns.append(column)
    if unreadable and not columns:
        raise DataError(f"none of the {len(unreadable)} columns can be read: {fault}")
    lengths = dict(zip(names, map(len, columns), strict=True))
    if len({*lengths.values()}) > 1:
        few, many = min(lengths, key=lengths.__getitem__), max(lengths, key=lengths.__getitem__)
        raise DataError(
            f"column {few!r} has {lengths[few]:,} entries and column {many!r} has {lengths[many]:,}; give all columns "
            "the same length"
        )
    for name in names:  # one that is there in another place can be used
        unreadable.pop(name, None)
    return pa.table(columns, names=names), unreadable


def _column(entries: Any) -> pa.ChunkedArray:
    """Return the entries of a column; raises one of :data:`WRONG`."""
    if hasattr(entries, "sparse"):
        entries = entries.sparse.to_dense()
    try:
        made = pa.array(entries, from_pandas=hasattr(entries, "iloc") or None)
    except WRONG:
        made = pa.array(_texts(entries), pa.string())
    return made if isinstance(made, pa.ChunkedArray) else pa.chunked_array([made])


def _texts(entries: Any) -> list[str | None]:
    """Return single values of several types as texts; a TypeError where one is no single value."""
    out: list[str | None] = []
    for entry in entries:
        # NaN differs from itself, and so does a time that is none; pandas' NA answers no question
        if (
            entry is None
            or type(entry).__name__ in ("NAType", "NaTType")
            or (isinstance(entry, float) and entry != entry)
        ):
            out.append(None)
        elif isinstance(entry, complex) or not isinstance(entry, ENTRIES):
            raise TypeError(f"it contains a {type(entry).__name__} among other values")
        else:
            out.append(canonical(entry))
    return out
