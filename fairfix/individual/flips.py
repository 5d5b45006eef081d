"""Flips: which differences between two people do not count, as changed copies of rows.

Two kinds of statement. The *protected* columns: a person of another group is comparable, whatever the group; all levels
that the data have, all protected columns jointly. *Comparable values* inside another column, such as ``relationship=
Husband,Wife``: people who have one of the values are comparable to people who have another one of them.

A :class:`Flip` is one such change. It is made in the protected columns of a table's rows and in its feature columns of
the same names, so that whatever looks at a table, a model or a repaired predictor, sees the changed person.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from msgspec.structs import replace as fields_replaced

from fairfix.data.counts import Bools, Ints
from fairfix.data.encoder import Rows, arrow_array, group_codes
from fairfix.data.merging import MISSING
from fairfix.data.names import attribute_name, listed
from fairfix.data.table import Table
from fairfix.errors import ColumnError, UsageError
from fairfix.individual.similar import Comparable, written_values
from fairfix.models.features import column_of
from fairfix.models.scored_source import RowChange

MOST = 256
"""Flips of a row that are looked at, at most."""


@dataclass(frozen=True)
class Flip:
    """A change of rows: the level of each protected column that every row gets, and a value of each comparable column.

    The latter is for rows with one of the comparable values, or for ``everybody``.
    """

    protected: Mapping[str, str] = field(default_factory=dict)
    comparable: Mapping[str, str] = field(default_factory=dict)
    everybody: bool = False

    def __str__(self) -> str:
        parts = [f"{name}={value}" for name, value in (*self.protected.items(), *self.comparable.items())]
        return ", ".join(parts)


def check_comparable(table: Table, comparable: Comparable) -> None:
    """Raise a ColumnError or a UsageError where a comparable column or value is not there."""
    for name, alike in comparable:
        if name in table.data_spec.columns.protected:
            raise UsageError(f"`similar`: all levels of protected column {name!r} are comparable already")
        if name not in table.features.column_names:
            raise ColumnError(
                f"`similar`: there is no feature column {name!r}; there are "
                f"{', '.join(table.features.column_names) or 'none'}"
            )
        _, _, levels = levels_of(table, name)
        for value in alike:
            if value not in levels:
                shown = listed(sorted(level for level in levels if level != MISSING))
                raise UsageError(
                    f"`similar`: no row has the value {value!r} in column {name!r}; it has {shown}"
                )


def protected_flips(table: Table, columns: Sequence[str], comparable: Comparable = ()) -> list[Flip]:
    """Return the flips of some protected columns, all levels jointly, and of comparable values jointly with them.

    A missing level is a level that rows are flipped from, but none that they are flipped to. UsageError where there are
    too many.
    """
    levels = [tuple(n for n in table.groups([name]).names if n != MISSING) for name in columns]
    levels += [alike for _, alike in comparable]
    many = math.prod(map(len, levels))
    if many > MOST:
        what = attribute_name((*columns, *(name for name, _ in comparable)))
        raise UsageError(
            f"{what} has {many:,} combinations of levels; at most {MOST} are supported: name fewer protected "
            "columns or comparable values, or merge rare groups"
        )
    others = [name for name, _ in comparable]
    return [
        Flip(
            dict(zip(columns, chosen[: len(columns)], strict=True)),
            dict(zip(others, chosen[len(columns) :], strict=True)),
        )
        for chosen in product(*levels)
    ]


def flipped(table: Table, flip: Flip, comparable: Comparable = ()) -> Table:
    """Return the table with every row changed, and its score where a model can be asked."""
    features = table.features
    for name, level in (*flip.protected.items(), *flip.comparable.items()):
        if name in flip.comparable or name in features.column_names:
            column, codes, levels = levels_of(table, name)
            index = np.full(len(column), _example(codes, levels, name, level))
            if name in flip.comparable and not flip.everybody:
                index = np.where(
                    np.isin(codes, _among(levels, dict(comparable)[name])), index, np.arange(len(column))
                )
            own = features.schema.get_field_index(name)
            features = features.set_column(own, features.schema.field(own), column.take(arrow_array(index)))
    out = replace(table, rows=_in_cells(table, flip.protected), features=features)
    return out if out.rescore is None else out.rescore(out)


def changes_of(table: Table, columns: Sequence[str], comparable: Comparable) -> tuple[RowChange, ...]:
    """Return all flips as changes of a model's rows, by their shares of the rows.

    The protected columns are changed jointly, by the share of each of their combinations; comparable values by their
    shares among the rows that have them, each column by itself.
    """
    groups = table.groups(list(columns))
    masses = np.bincount(groups.codes, table.weight)
    whole = [
        (level, mass)
        for level, mass in zip(groups.levels, masses, strict=True)
        if MISSING not in level and mass > 0
    ]
    parts = []
    for name, alike in comparable:
        _, codes, levels = levels_of(table, name)
        mass = np.bincount(codes, table.weight, len(levels))
        parts.append([(value, mass[levels.index(value)]) for value in alike])

    def typed(name: str, level: str) -> Any:
        column, codes, levels = levels_of(table, name)
        return column[_example(codes, levels, name, level)].as_py()

    out = []
    for (level, mass), *chosen in product(whole or [((), 1.0)], *parts):
        everybody = {name: typed(name, value) for name, value in zip(columns, level, strict=True)}
        among = {
            name: (typed(name, value), tuple(typed(name, one) for one in alike))
            for (name, alike), (value, _) in zip(comparable, chosen, strict=True)
        }
        out.append(RowChange(float(mass * math.prod(own for _, own in chosen)), everybody, among))
    if len(out) > MOST:
        raise UsageError(
            f"there are {len(out):,} combinations to average over, and at most {MOST} are supported"
        )
    total = sum(one.share for one in out)
    return tuple(fields_replaced(one, share=one.share / total) for one in out)


def concerned(table: Table, name: str, alike: Sequence[str]) -> Bools:
    """Return which rows have one of the comparable values in a feature column, shape (n,)."""
    _, codes, levels = levels_of(table, name)
    return np.isin(codes, _among(levels, alike))


def _among(levels: Sequence[str], alike: Sequence[str]) -> list[int]:
    """Return the codes of comparable values."""
    return [i for i, level in enumerate(levels) if level in alike]


def _example(codes: Ints, levels: Sequence[str], name: str, level: str) -> int:
    """Return the first row of a level of a column; UsageError where there is none."""
    rows = np.flatnonzero([] if level not in levels else codes == levels.index(level))
    if not rows.size:
        raise UsageError(f"column {name!r} has no row with the value {level!r}")
    return int(rows[0])


def _in_cells(table: Table, protected: Mapping[str, str]) -> Rows:
    """Return the rows with the given levels of the protected columns."""
    if not protected:
        return table.rows
    keys = table.data_spec.columns.cell_keys
    changed = [
        tuple(protected.get(name, level) for name, level in zip(keys, cell, strict=True))
        for cell in table.rows.cells
    ]
    cells = tuple(dict.fromkeys(changed))
    place = {cell: i for i, cell in enumerate(cells)}
    into = np.array([place[cell] for cell in changed], dtype=table.rows.cell.dtype)
    return replace(table.rows, cell=into[table.rows.cell], cells=cells)


def levels_of(table: Table, name: str) -> tuple[pa.Array, Ints, list[str]]:
    """Return a feature column, the code of each row's level, shape (n,), and the names of the levels."""
    if table.data_spec.bands.get(name):
        raise UsageError(
            f"column {name!r} is cut into bands, and a band is not a value of a person; leave out "
            "`bands`, or use scores, without `model`"
        )
    column = column_of(table, name)
    return column, *group_codes(column, name, table.data_spec.merge.get(name))[:2]


def described(columns: Sequence[str], comparable: Comparable) -> str:
    """Return in words what does not count."""
    parts = [f"any other {' and '.join(columns)}"] if columns else []
    parts += [f"{name} {' or '.join(alike)}" for name, alike in comparable]
    return "; ".join(parts)


class Proxy(NamedTuple):
    """Values of a column that nearly tell the group."""

    column: str
    alike: tuple[str, ...]
    protected: str

    def __str__(self) -> str:
        return f"{written_values(self.column, self.alike)} (they predict {self.protected})"


def proxies(table: Table, columns: Sequence[str]) -> Iterator[Proxy]:
    """Yield comparable values that a scan proposes: values of one column that nearly tell the group.

    Two or more values of a feature column, each of at least 1% of the rows and each held by one level of a protected
    column in at least 99% of its rows, not all by the same level.
    """
    n = len(table)
    for protected in columns:
        groups = table.groups([protected])
        for name in table.features.column_names:
            if name == protected:
                continue
            column = column_of(table, name)
            kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
            if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_boolean(kind)):
                continue
            codes, levels, _ = group_codes(column, name)
            if len(levels) > n / 20 or len(levels) < 2:
                continue
            counts = np.zeros((len(levels), len(groups.levels)))
            np.add.at(counts, (codes, groups.codes), 1.0)
            mass = counts.sum(axis=1)
            with np.errstate(invalid="ignore"):
                pure = (mass >= 0.01 * n) & (counts.max(axis=1) >= 0.99 * mass)
            chosen = [i for i in np.flatnonzero(pure) if levels[i] != MISSING]
            if len(chosen) > 1 and len({int(counts[i].argmax()) for i in chosen}) > 1:
                yield Proxy(name, tuple(sorted(levels[i] for i in chosen)), protected)
