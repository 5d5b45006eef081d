"""Row filters of engines: conditions as narwhals expressions, with the meaning that they have in files.

An engine compares numbers, and texts that are plain words, itself. Of other columns fairfix reads the different
entries, compares them here, and names those that meet the condition in the statement.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from fairfix.data.arrow_normalize import entries_of
from fairfix.data.canonical import canonical
from fairfix.data.count_queries import as_level, as_real, number
from fairfix.data.data_spec import ORDERS
from fairfix.data.encoder import arrow_array, group_codes
from fairfix.data.engines import EngineSource
from fairfix.data.files import Source
from fairfix.data.row_filter import (
    VALUED,
    ColumnTest,
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
"""Most different entries of a column that are compared here, and most that messages show."""


def filtered_table(source: Any, condition: Condition) -> Source:
    """Return a source of the rows of a table that meet a condition.

    Raises
    ------
    UsageError, DataError
        A column is not there, a comparison can meet no row, no row meets the condition, or a column whose entries
        only fairfix can compare has more than ``MOST_ENTRIES``.
    """
    names = columns_of(condition)
    require_columns(names, source)
    made = _Filter(source, observing(condition))
    out: EngineSource = source.meeting(combined(condition, made.expression))
    if source.backend and is_dry():
        return out
    made.observe()
    out.notes = tuple(check_observed(made.observed, source.name))
    read, rows = int(source.rows or 0), int(out.rows or 0)
    out.left_out = read - rows
    require_rows(rows, read, condition, out)
    return out


def observe(source: Any, observed: Mapping[ColumnTest, Observed]) -> None:
    """Note what entries comparisons meet, by statements."""
    _Filter(source, observed).observe()


@dataclass(frozen=True)
class _Filter:
    """Expressions of comparisons with the columns of a table."""

    source: EngineSource
    observed: Mapping[ColumnTest, Observed]
    _entries: dict[str, pa.Array] = field(default_factory=dict)

    def expression(self, comparison: ColumnTest) -> Any:
        """Return the expression of a comparison: true or false for every row."""
        name = comparison.column
        kind = self.source.schema.field(name).type
        nan = self.source.backend != "sqlite"
        own = as_real(name, kind, nan=nan) if pa.types.is_floating(kind) else nw.col(name)
        if comparison.operator == "is missing":
            return own.is_null()
        if pa.types.is_integer(kind) or pa.types.is_float64(kind):
            limits = limits_of(comparison, whole=pa.types.is_integer(kind))
            compare: Callable[[Any, Any], Any] = ORDERS.get(comparison.operator, operator.eq)
            met = [compare(own, limit if isinstance(limit, int) else number(limit)) for limit in limits]
            return true_of(reduce(operator.or_, met)) if met else _never(own)
        if not _compares(kind, comparison):
            return self._of_entries(comparison)
        return true_of(own.is_in(list(comparison.operands)))

    def _of_entries(self, comparison: ColumnTest) -> nw.Expr:
        """Return whether an entry is one of those that meet a comparison."""
        entries, column = self.entries(comparison.column), as_level(comparison.column, self.source.texts)
        codes, levels, missing = group_codes(entries, comparison.column)
        levels = levels if missing is None else levels[:-1]
        if comparison in self.observed:
            self.observed[comparison].add(comparison, levels)
        met = np.array([*map(comparison.meets, levels), False])[codes] & ~missing_in(entries)
        chosen, others = (entries.filter(arrow_array(one)) for one in (met, ~met & ~missing_in(entries)))
        if len(chosen) > len(others):  # the shorter list is asked for
            there = ~column.is_null()
            return there & ~true_of(column.is_in(others.to_pylist())) if len(others) else there
        return true_of(column.is_in(chosen.to_pylist())) if len(chosen) else _never(column)

    def entries(self, name: str) -> pa.Array:
        """Return the different entries of a column, as they are read."""
        if name not in self._entries:
            frame = self.source.frame.select(entry=as_level(name, self.source.texts))
            different = frame.group_by("entry").agg(n=nw.len()).head(MOST_ENTRIES + 1).select("entry")
            batches = list(self.source.ask(different))
            made = pa.concat_arrays([one.column(0) for one in batches]) if batches else pa.nulls(0)
            if len(made) > MOST_ENTRIES:
                raise DataError(
                    f"`where`: column {name!r} of {self.source.name} has more than {MOST_ENTRIES:,} different entries, "
                    "too many to compare here; give the rows by `sql` instead"
                )
            self._entries[name] = made
        return self._entries[name]

    def observe(self) -> None:
        """Note what entries the comparisons meet that the engine makes: a few, and which values are there."""
        for one, seen in self.observed.items():
            if seen.kinds or one.column in self._entries:
                continue
            there = self.source.frame.filter(~nw.col(one.column).is_null()).select(entry=nw.col(one.column))
            few = there.group_by("entry").agg(n=nw.len()).head(SHOWN).select("entry")
            for batch in self.source.ask(few):
                seen.add(one, [canonical(entry) for entry in entries_of(batch.column(0)) if entry == entry])
            for value in set(one.operands) - seen.matched if one.operator in VALUED else ():
                met = self.expression(replace(one, operator="==", operands=(value,)))
                for answer in self.source.ask(self.source.frame.filter(met).select(n=nw.len())):
                    seen.matched |= {value} if answer["n"][0].as_py() else set()


def true_of(condition: nw.Expr) -> nw.Expr:
    """Return a condition that is false where it would be null."""
    return condition.fill_null(False)


def _never(column: nw.Expr) -> nw.Expr:
    """Return a condition that no row meets."""
    return column.is_null() & ~column.is_null()


def _compares(kind: pa.DataType, comparison: ColumnTest) -> bool:
    """Tell whether an engine compares a column of texts as fairfix does: with words that have one spelling."""
    plain = all(
        kind_of(value) == "text" and not re.match(r"\d{4}-\d{2}-\d{2}", value)
        for value in comparison.operands
    )
    texts = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return bool(texts and plain and comparison.operator in VALUED)
