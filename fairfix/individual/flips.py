"""Flips: which differences between two people do not count, as changed copies of rows.

Two kinds of statement. The *protected* columns: a person of another group is comparable, whatever the group; all levels
that the data have, all protected columns jointly. *Comparable values* inside another column, such as ``relationship=
Husband,Wife``: people who have one of the values are comparable to people who have another one of them.

A :class:`Flip` is one such change. It is made in the protected columns of a table's rows and in its feature columns of
the same names, so that whatever looks at a table, a model or a repaired predictor, sees the changed person.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa

from fairfix.data.counts import Bools
from fairfix.data.encoder import MISSING, Rows, arrow_array, group_codes
from fairfix.data.names import attribute_name
from fairfix.data.table import Table
from fairfix.errors import ColumnError, UsageError
from fairfix.models.scoring import Change

MOST = 256
"""Flips of a row that are looked at, at most."""

Comparable = tuple[tuple[str, tuple[str, ...]], ...]
"""Columns with the values that are comparable in each."""


@dataclass(frozen=True)
class Flip:
    """A change of rows.

    Attributes
    ----------
    protected
        Protected column -> level that every row gets.
    comparable
        Column -> value that every row with one of the comparable values gets.
    everybody
        Whether rows with none of the comparable values get it too.
    """

    protected: Mapping[str, str] = field(default_factory=dict)
    comparable: Mapping[str, str] = field(default_factory=dict)
    everybody: bool = False

    def __str__(self) -> str:
        parts = [f"{name}={value}" for name, value in (*self.protected.items(), *self.comparable.items())]
        return ", ".join(parts)


def parse_comparable(text: str) -> Comparable:
    """Return the comparable values of ``column=a,b;other=c,d``.

    Raises
    ------
    UsageError
        A part names no column, or fewer than two different values.
    """
    out: dict[str, tuple[str, ...]] = {}
    for part in filter(None, (one.strip() for one in text.split(";"))):
        name, sign, values = (piece.strip() for piece in part.partition("="))
        found = tuple(dict.fromkeys(value.strip() for value in values.split(",") if value.strip()))
        if not sign or not name or len(found) < 2:
            raise UsageError(
                f"--comparable {part!r}: write COLUMN=VALUE,VALUE with two or more values, "
                "such as relationship=Husband,Wife"
            )
        if name in out:
            raise UsageError(f"--comparable: column {name!r} is named twice; list all its values once")
        out[name] = found
    return tuple(out.items())


def written(comparable: Comparable) -> str:
    """Return comparable values as :func:`parse_comparable` reads them."""
    return "; ".join(f"{name}={','.join(values)}" for name, values in comparable)


def check_comparable(table: Table, comparable: Comparable) -> None:
    """Raise where a comparable value is not there.

    Raises
    ------
    ColumnError, UsageError
        Names the column, the value and the values there are.
    """
    for name, values in comparable:
        if name in table.reading.columns.protected:
            raise UsageError(f"--comparable {name}: all levels of a protected column are comparable already")
        if name not in table.features.column_names:
            raise ColumnError(
                f"--comparable {name}: there is no such feature column; it has "
                f"{', '.join(table.features.column_names) or 'none'}"
            )
        _, levels, _ = group_codes(_whole(table, name), name)
        for value in values:
            if value not in levels:
                shown = ", ".join(sorted(level for level in levels if level != MISSING)[:20])
                raise UsageError(f"--comparable {name}: no row has the value {value!r}; it has {shown}")


def protected_flips(table: Table, columns: Sequence[str], comparable: Comparable = ()) -> list[Flip]:
    """Return the flips of some protected columns, all levels jointly, and of comparable values jointly with them.

    A missing level is a level that rows are flipped from, but none that they are flipped to.

    Raises
    ------
    UsageError
        There are too many.
    """
    levels = [tuple(n for n in table.groups([name]).names if n != MISSING) for name in columns]
    sizes = [len(found) for found in levels] + [len(values) for _, values in comparable]
    many = int(np.prod(sizes)) if sizes else 0
    if many > MOST:
        what = attribute_name((*columns, *(name for name, _ in comparable)))
        raise UsageError(
            f"{what} has {many:,} combinations of levels; at most {MOST} are flipped: name fewer protected columns or "
            "comparable values, or fold rare groups together"
        )
    out = []
    for chosen in product(*levels, *(values for _, values in comparable)):
        own = dict(zip(columns, chosen[: len(columns)], strict=True))
        others = dict(zip((name for name, _ in comparable), chosen[len(columns) :], strict=True))
        out.append(Flip(own, others))
    return out


def flipped(table: Table, flip: Flip, comparable: Comparable = ()) -> Table:
    """Return the table with every row changed."""
    features = table.features
    for name, level in flip.protected.items():
        if name in features.column_names:
            features = _set(table, features, name, level, None)
    values = dict(comparable)
    for name, value in flip.comparable.items():
        where = None if flip.everybody else concerned(table, name, values[name])
        features = _set(table, features, name, value, where)
    return replace(table, rows=_in_cells(table, flip.protected), features=features)


def changes_of(table: Table, columns: Sequence[str], comparable: Comparable) -> tuple[Change, ...]:
    """Return all flips as changes of a model's rows, by their shares of the rows.

    The protected columns are changed jointly, by the share of each of their combinations; comparable values by their
    shares among the rows that have them, each column by itself.
    """
    weight = table.weight
    groups = table.groups(list(columns))
    whole = [
        (level, mass)
        for level, mass in zip(groups.levels, np.bincount(groups.codes, weight), strict=True)
        if MISSING not in level and mass > 0
    ]
    parts = []
    for name, values in comparable:
        codes, levels, _ = group_codes(_whole(table, name), name)
        mass = np.bincount(codes, weight, len(levels))
        parts.append([(value, float(mass[levels.index(value)])) for value in values])
    out, total = [], 0.0
    for (level, mass), *chosen in product(whole or [((), 1.0)], *parts):
        share = float(mass) * float(np.prod([own for _, own in chosen]))
        everybody = {name: _typed(table, name, value) for name, value in zip(columns, level, strict=True)}
        among = {
            name: (_typed(table, name, value), tuple(_typed(table, name, one) for one in values))
            for (name, values), (value, _) in zip(comparable, chosen, strict=True)
        }
        out.append(Change(share, everybody, among))
        total += share
    if len(out) > MOST:
        raise UsageError(f"there are {len(out):,} combinations to average over, and at most {MOST} are taken")
    return tuple(replace(one, share=one.share / total) for one in out)


def _typed(table: Table, name: str, level: str) -> Any:
    """Return a value of a feature column as the column holds it."""
    column = _whole(table, name)
    codes, levels, _ = group_codes(column, name)
    return column[int(np.argmax(codes == levels.index(level)))].as_py()


def concerned(table: Table, name: str, values: Sequence[str]) -> Bools:
    """Return which rows have one of the values in a feature column, shape (n,)."""
    codes, levels, _ = group_codes(_whole(table, name), name)
    return np.isin(codes, [i for i, level in enumerate(levels) if level in values])


def _in_cells(table: Table, protected: Mapping[str, str]) -> Rows:
    """Return the rows with the given levels of the protected columns."""
    if not protected:
        return table.rows
    keys = table.reading.columns.cell_keys
    changed = [
        tuple(protected.get(name, level) for name, level in zip(keys, cell, strict=True))
        for cell in table.rows.cells
    ]
    cells = tuple(dict.fromkeys(changed))
    place = {cell: i for i, cell in enumerate(cells)}
    into = np.array([place[cell] for cell in changed], dtype=table.rows.cell.dtype)
    return replace(table.rows, cell=into[table.rows.cell], cells=cells)


def _set(table: Table, features: pa.Table, name: str, level: str, where: Bools | None) -> pa.Table:
    """Return the features with a value of a column set, in the type of the column."""
    column = _whole(table, name)
    codes, levels, _ = group_codes(column, name)
    if level not in levels or not (codes == levels.index(level)).any():
        raise UsageError(f"column {name!r} has no row with the value {level!r}")
    example = int(np.argmax(codes == levels.index(level)))
    index = np.arange(len(column)) if where is not None else np.full(len(column), example)
    if where is not None:
        index[where] = example
    changed = column.take(arrow_array(index))
    return features.set_column(features.column_names.index(name), features.schema.field(name), changed)


def _whole(table: Table, name: str) -> pa.Array:
    column = table.features.column(name).combine_chunks()
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def described(columns: Sequence[str], comparable: Comparable) -> str:
    """Return in words what does not count."""
    parts = [f"any other {' and '.join(columns)}"] if columns else []
    parts += [f"{name} {' or '.join(values)}" for name, values in comparable]
    return "; ".join(parts)


def proxies(
    table: Table, columns: Sequence[str], *, share: float = 0.01, purity: float = 0.99
) -> Iterator[str]:
    """Yield comparable values that a scan proposes: values of one column that nearly tell the group.

    Two or more values of a feature column, each of at least ``share`` of the rows and each held by one level of a
    protected column in at least ``purity`` of its rows, not all by the same level.
    """
    n = len(table)
    for protected in columns:
        groups = table.groups([protected])
        for name in table.features.column_names:
            if name == protected:
                continue
            column = _whole(table, name)
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
                pure = (mass >= share * n) & (counts.max(axis=1) >= purity * mass)
            chosen = [i for i in np.flatnonzero(pure) if levels[i] != MISSING]
            if len(chosen) > 1 and len({int(counts[i].argmax()) for i in chosen}) > 1:
                yield f"{name}={','.join(sorted(levels[i] for i in chosen))} (they tell {protected})"
