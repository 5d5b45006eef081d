"""Row filters of databases: conditions as expressions of Ibis, with the meaning that they have in files.

A database compares numbers, and texts that are plain words, itself. Of other columns its different entries are asked
for, compared here, and those that meet the condition are named in the query.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import ibis
import numpy as np
import pyarrow as pa

from fairfix.data.arrow_normalize import entries_of
from fairfix.data.canonical import canonical
from fairfix.data.count_queries import as_coded, as_real
from fairfix.data.encoder import arrow_array, group_codes
from fairfix.data.reading import ORDERS
from fairfix.data.row_filter import (
    VALUED,
    Comparison,
    Condition,
    Observed,
    check_observed,
    columns_of,
    combined,
    kind_of,
    limits_of,
    missing_in,
    observing,
    require_columns,
    require_rows,
)
from fairfix.data.urls import is_dry
from fairfix.errors import DataError

MOST_ENTRIES, SHOWN = 10_000, 50
"""Different entries of a column that are compared here, and of those that messages may show."""


def filtered_table(source: Any, condition: Condition) -> Any:
    """Return a source of the rows of a table that meet a condition.

    Raises
    ------
    UsageError, DataError
        A column is not there, a comparison can meet no row, no row meets the condition, or a column whose entries
        only fairfix can compare has more than ``MOST_ENTRIES``.
    """
    names = columns_of(condition)
    require_columns(names, source)
    source.stream(names)  # raises where a type cannot be read
    made = _Filter(source, observing(condition))
    out = copy(source)
    out._table = source._table.filter(combined(condition, made.expression))
    out._rows, out._unfiltered = None, source._table  # whose end closes the connection
    if is_dry():
        return out
    made.observe()
    out.notes = tuple(check_observed(made.observed, source.name))
    read, rows = int(source.rows or 0), int(out.rows or 0)
    out.left_out = read - rows
    require_rows(rows, read, condition, out)
    return out


def observe(source: Any, observed: Mapping[Comparison, Observed]) -> None:
    """Note what comparisons are about, by questions."""
    _Filter(source, observed).observe()


@dataclass(frozen=True)
class _Filter:
    """Expressions of comparisons with the columns of a table."""

    source: Any
    observed: Mapping[Comparison, Observed]
    _entries: dict[str, pa.Array] = field(default_factory=dict)

    def expression(self, comparison: Comparison) -> Any:
        """Return what a database has for a comparison: true or false for every row."""
        column = self.source._table[comparison.column]
        kind = column.type()
        own = as_real(column) if kind.is_floating() else column
        if comparison.operator == "is missing":
            return own.isnull()
        if kind.is_integer() or kind.is_float64():
            limits = limits_of(comparison, whole=kind.is_integer())
            compare: Callable[[Any, Any], Any] = ORDERS.get(comparison.operator, operator.eq)
            met = [compare(own, _number(limit)) for limit in limits]
            return reduce(operator.or_, met).fill_null(False) if met else ibis.literal(False)
        if not _compares(kind, comparison):
            return self._of_entries(comparison, as_coded(column))
        return own.isin(list(comparison.operands)).fill_null(False)

    def _of_entries(self, comparison: Comparison, column: Any) -> Any:
        """Return whether an entry is one of those that meet a comparison."""
        entries = self.entries(comparison.column)
        codes, levels, missing = group_codes(entries, comparison.column)
        levels = levels if missing is None else levels[:-1]
        if comparison in self.observed:
            self.observed[comparison].add(comparison, levels)
        met = np.array([*map(comparison.meets, levels), False])[codes] & ~missing_in(entries)
        chosen, others = (entries.filter(arrow_array(one)) for one in (met, ~met & ~missing_in(entries)))
        if len(chosen) > len(others):  # the shorter list is asked for
            return column.notnull() & ~column.isin(others.to_pylist()).fill_null(False)
        return column.isin(chosen.to_pylist()).fill_null(False) if len(chosen) else ibis.literal(False)

    def entries(self, name: str) -> pa.Array:
        """Return the different entries of a column, as they are streamed."""
        if name not in self._entries:
            column = as_coded(self.source._table[name])
            asked = self.source._table.select(entry=column).distinct().limit(MOST_ENTRIES + 1)
            batches = list(self.source.ask(asked))
            made = pa.concat_arrays([one.column(0) for one in batches]) if batches else pa.nulls(0)
            if len(made) > MOST_ENTRIES:
                raise DataError(
                    f"`where`: column {name!r} of {self.source.name} has more than {MOST_ENTRIES:,} different entries, "
                    "too many to compare here; give the rows by `sql` instead"
                )
            self._entries[name] = made
        return self._entries[name]

    def observe(self) -> None:
        """Note what comparisons are about that the database has compared: a few entries, and which values are there."""
        table = self.source._table
        for one, seen in self.observed.items():
            if seen.kinds or one.column in self._entries:
                continue
            column = table[one.column]
            there = table.filter(column.notnull())
            few = there.select(entry=there[one.column]).distinct().limit(SHOWN)
            for batch in self.source.ask(few):
                seen.add(one, [canonical(entry) for entry in entries_of(batch.column(0)) if entry == entry])
            for value in set(one.operands) - seen.matched if one.operator in VALUED else ():
                met = table.filter(self.expression(replace(one, operator="==", operands=(value,))))
                for answer in self.source.ask(met.aggregate(n=met.count())):
                    seen.matched |= {value} if answer["n"][0].as_py() else set()


def _compares(kind: Any, comparison: Comparison) -> bool:
    """Return whether a database compares a column of texts as fairfix does: with words that have one spelling."""
    plain = all(
        kind_of(value) == "text" and not re.match(r"\d{4}-\d{2}-\d{2}", value)
        for value in comparison.operands
    )
    return bool(kind.is_string() and plain and comparison.operator in VALUED)


def _number(value: int | float) -> Any:
    """Return a number of a database: a whole one as it is, another as the very double."""
    return ibis.literal(value) if isinstance(value, int) else ibis.literal(repr(value)).cast("float64")
