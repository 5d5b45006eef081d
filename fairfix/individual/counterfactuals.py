"""Counterfactual copies: people as they are, but for other values in columns that the user names.

Flips change the protected columns alone. Whoever knows better what would be different, of a text in which names are
exchanged or of a form that a person of the other sex would have filled in, writes it down: a table with the column of
ids and the columns that change. Each of its rows is a copy of the person with that id; all other columns keep their
values. A person may have several copies, or none.

References
----------
S. Garg et al., *Counterfactual fairness in text classification through robustness*, AIES 2019: the counterfactual gap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from fairfix.data.arrow_normalize import entries_of, texts_of
from fairfix.data.counts import Ints
from fairfix.data.data_spec import ColumnRoles
from fairfix.data.encoder import Rows, arrow_array, group_codes
from fairfix.data.files import Source, open_source
from fairfix.data.merging import MISSING
from fairfix.data.names import INDEX_NAME, did_you_mean, few
from fairfix.data.table import Table, assemble
from fairfix.errors import ColumnError, DataError, FairfixError, UsageError
from fairfix.models.features import Features, kind_of
from fairfix.models.trace import Caution, Note

MOST = 256
"""Copies of a person, at most; as many as flips."""

NAMED = 5
"""Ids that a message names, at most."""


@dataclass(frozen=True, eq=False)
class Counterfactuals:
    """Copies of people.

    Attributes
    ----------
    source
        Name of the file.
    id
        Column of the data with the names of people.
    people
        Of whom each copy is, m texts.
    changed
        The values of the copies in feature columns that change, m rows, in the types of the data.
    levels
        Protected column that changes -> the levels of the copies, m texts.
    unknown
        Ids of the file that no row of the data has; their copies are left out.
    aside
        Columns of the file that nobody looks at.
    scored
        The copies with scores of their own, m rows, where no model is there to score them.
    """

    source: str
    id: str
    people: tuple[str, ...]
    changed: pa.Table
    levels: Mapping[str, tuple[str, ...]]
    unknown: tuple[str, ...] = ()
    aside: tuple[str, ...] = ()
    scored: Table | None = None

    @property
    def columns(self) -> frozenset[str]:
        """Columns in which copies differ."""
        return frozenset((*self.changed.column_names, *self.levels))

    def of(self, table: Table) -> tuple[Ints, Table]:
        """Return the copies of the people in a table: the number of each one's row, shape (c,), and the copies, c rows.

        The table has the ids among its features.
        """
        place = {one: row for row, one in enumerate(_names(table, self.id))}
        matches = [(copy, place[one]) for copy, one in enumerate(self.people) if one in place]
        copy, row = np.array(matches, dtype=np.int64).reshape(-1, 2).T
        copies = table.take(row)
        features = copies.features
        for name in self.changed.column_names:
            at = features.schema.get_field_index(name)
            column = self.changed.column(name).take(arrow_array(copy))
            features = features.set_column(at, self.changed.schema.field(name), column)
        rows = self._in_cells(copies, copy)
        if self.scored is not None:
            own = self.scored.rows
            score, decision = (None if one is None else one[copy] for one in (own.score, own.decision))
            rows = replace(rows, score=score, decision=decision)
        return row, replace(copies, rows=rows, features=features)

    def by_person(self, table: Table) -> tuple[Ints, Ints, Table, str]:
        """Return the rows of people with copies, each copy's person among these, the copies, and how many in words."""
        row, copies = self.of(table)
        people, of = np.unique(row, return_inverse=True)
        return people, of, copies, f"{row.size:,} copies of {people.size:,} people"

    def _in_cells(self, copies: Table, copy: Ints) -> Rows:
        """Return the rows of copies with their own levels of the protected columns."""
        rows, keys = copies.rows, copies.data_spec.columns.cell_keys
        if not self.levels:
            return rows
        cells = [list(rows.cells[cell]) for cell in rows.cell]
        for name, levels in self.levels.items():
            at = keys.index(name)
            for cell, number in zip(cells, copy, strict=True):
                cell[at] = levels[number]
        place = dict[tuple[str, ...], int]()
        codes = [place.setdefault(tuple(cell), len(place)) for cell in cells]
        return replace(rows, cell=np.array(codes, dtype=np.int64), cells=tuple(place))


def read_counterfactuals(
    data: Any, table: Table, columns: Sequence[str], *, learned: bool = False, scored: bool = False
) -> Counterfactuals:
    """Return the copies of people that a file holds, as far as the people are in a table.

    Parameters
    ----------
    data
        A file or what else a source can be made of.
    table
        The data, validated, with its ids among its features.
    columns
        All columns of the data, in it or not.
    learned
        Whether a model is learned from the features: then each column that changes has to be one, and a category has
        to be one that the data have. A model of the user's may look at anything.
    scored
        Whether the copies come with scores, or decisions, of their own; other columns are left aside then.

    Raises
    ------
    ColumnError, DataError, UsageError
        The file has no column of ids or none that changes, a column cannot, or a value cannot be in it.
    """
    source, data_spec = open_source(data), table.data_spec
    own, roles, protected = str(data_spec.columns.id), data_spec.columns.roles, data_spec.columns.protected
    if own not in source.columns:
        raise ColumnError(
            f"{source.name} has no column {own!r}, which names the original row of each copy; it has "
            f"{', '.join(source.columns)}"
        )
    names = [name for name in source.columns if name != own]
    names = [name for name in names if name in columns or not INDEX_NAME.fullmatch(name)]
    results = [name for name in _results(data_spec.columns) if name in names] if scored else []
    if scored and not results:
        wanted = " or ".join(map(repr, _results(data_spec.columns)))
        raise UsageError(
            f"copies need scores: give the model with `model`, or their scores in a column {wanted} of "
            f"{source.name}"
        )
    lacking = [name for name in _results(data_spec.columns) if scored and name not in results]
    if lacking:
        raise ColumnError(
            f"{source.name} has no column {lacking[0]!r}, which has the results of people in the data, so the "
            "results of copies cannot be compared; add the column to the copies, or remove it from the data"
        )
    inside = {name for name in table.features.column_names if name != own} | {*protected}
    changing, aside = list[str](), list[str]()
    for name in names:
        if scored:
            aside += [name] if name not in results else []
            continue
        if name in roles and name not in protected:
            raise ColumnError(
                f"{source.name}: column {name!r} has a role that copies cannot change; leave it out of the file"
            )
        if name not in columns:
            hint = did_you_mean(name, columns)
            raise ColumnError(f"{source.name} has a column {name!r}, which the data lack{hint}")
        if learned and name not in inside:
            raise ColumnError(
                f"{source.name}: column {name!r} is not learned from; name it with `features`, or leave it out"
            )
        (changing if name in inside else aside).append(name)
    if not changing and not results:
        raise ColumnError(
            f"{source.name} has no used column except {own!r}, so its copies are equal to the rows; it has "
            f"{', '.join(source.columns)}"
        )
    for name in changing:
        if name in protected and data_spec.bands.get(name):
            raise UsageError(
                f"{source.name}: column {name!r} is cut into bands, and a copy has a single value; leave out "
                "`bands`, or the column"
            )
    read, owners, unknown = _known(source, table, own, [*changing, *results])
    features, levels = {}, {}
    for name in changing:
        column = read.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if name in protected:
            levels[name] = _levels(table, name, column, source.name)
        if name in table.features.column_names:
            features[name] = _values(table, name, column, source.name, learned=learned)
    graded = None
    if scored:
        own_parts: dict[str, Any] = {
            one: name for one in GIVEN if (name := getattr(data_spec.columns, one)) in results
        }
        alone = ColumnRoles((), **own_parts)
        graded = assemble(
            read.select(results).to_batches(),
            replace(data_spec, columns=alone, missing_rows="error", missing_of={}),
        )
    made = Counterfactuals(
        source.name, own, owners, pa.table(features), levels, unknown, tuple(aside), graded
    )
    if learned and features:
        try:
            rows = table.take(np.zeros(len(owners), dtype=np.int64))
            Features.learn(table, list(features)).matrix(replace(rows, features=made.changed))
        except FairfixError as error:
            raise DataError(f"{source.name}: {error}") from error
    return made


def read_predictions(data: Any, table: Table, name: str) -> Counterfactuals:
    """Return copies with the predictions that a file has for them, each a class in the column ``name``.

    The table has the ids among its features, and the column among those of its cells. Errors are those of
    :func:`read_counterfactuals`; other columns of the file are left aside.
    """
    source, own = open_source(data), str(table.data_spec.columns.id)
    source.require([own, name])
    read, owners, unknown = _known(source, table, own, [name])
    codes, levels, missing = group_codes(read.column(name).combine_chunks(), name)
    if missing is not None:
        whose = owners[int(np.argmax(missing))]
        raise DataError(
            f"{source.name}: column {name!r} is missing for a copy of {whose!r}; write its prediction, or "
            "remove the row"
        )
    aside = tuple(one for one in source.columns if one not in (own, name) and not INDEX_NAME.fullmatch(one))
    classes = tuple(levels[code] for code in codes)
    return Counterfactuals(source.name, own, owners, pa.table({}), {name: classes}, unknown, aside)


GIVEN = ("score", "prediction", "probability")
"""Roles of columns that hold what a model gives."""


def _results(columns: ColumnRoles) -> list[str]:
    """Return the columns that hold what a model gives."""
    return [name for one in GIVEN if (name := getattr(columns, one))]


def _known(
    source: Source, table: Table, own: str, names: Sequence[str]
) -> tuple[pa.Table, tuple[str, ...], tuple[str, ...]]:
    """Return the copies of people in a table, whose they are, and the ids of the others."""
    read = _read(source, table, own, names)
    people = texts_of(read.column(own).combine_chunks()).to_pylist()
    unknown = _check_people(people, table, source.name, own)
    gone = {*unknown}
    there = [copy for copy, one in enumerate(people) if one not in gone]
    return read.take(pa.array(there, pa.int64())), tuple(people[copy] for copy in there), unknown


def _read(source: Source, table: Table, own: str, names: Sequence[str]) -> pa.Table:
    """Return the columns of the file; of text files with the types of the data's texts."""
    types = {own: pa.string()} | dict.fromkeys(table.data_spec.columns.protected, pa.string())
    types |= {
        name: pa.float64()
        for name in (table.data_spec.columns.score, table.data_spec.columns.probability)
        if name
    }
    for field in table.features.schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            types[field.name] = pa.string()
    wanted = [own, *names]
    types = {name: kind for name, kind in types.items() if name in wanted}
    batches = [batch for batch in source.batches(wanted, types) if batch.num_rows]
    if not batches:
        raise DataError(f"{source.name} has no copies; write one in each row")
    try:
        return pa.Table.from_batches([batch.select(wanted) for batch in batches])
    except pa.ArrowInvalid as error:
        reason = " ".join(str(error).split())
        raise DataError(f"the columns of {source.name} differ in type from file to file: {reason}") from error


def _check_people(people: Sequence[str | None], table: Table, where: str, own: str) -> tuple[str, ...]:
    """Return the ids that no row of the table has; a DataError where copies cannot be told whose they are."""
    if None in people:
        row = people.index(None) + 1
        raise DataError(
            f"{where}: copy {row:,} has no {own!r}, so its original row is unknown; write it, or remove the row"
        )
    many, rows = Counter(people), Counter(_names(table, own))
    if twice := [one for one in many if rows[str(one)] > 1]:
        raise DataError(
            f"{where} has a copy of {twice[0]!r}, and {rows[str(twice[0])]:,} rows of the data have that "
            f"{own!r}, so the original row "
            "is unknown; give every row its own ID"
        )
    unknown = tuple(str(one) for one in many if not rows[str(one)])
    if len(unknown) == len(many):
        raise DataError(
            f"{where} has only copies of {few(unknown, NAMED)}, and none of these is the {own!r} of a row that is used"
        )
    one, most = many.most_common(1)[0]
    if most > MOST:
        raise DataError(
            f"{where} has {most:,} copies of {one!r}, and at most {MOST} are used; leave some out"
        )
    return unknown


def left_out(copies: Counterfactuals) -> Iterator[Note]:
    """Yield what is left out of a file, and why."""
    if copies.unknown:
        yield Caution(
            f"{copies.source} has copies of people who are in no row that is used: {few(copies.unknown, NAMED)}; they "
            "are left out",
            "unknown_copies",
        )
    if copies.aside:
        yield Note(f"{copies.source}: unused columns: {', '.join(copies.aside)}", "copies")


def _names(table: Table, own: str) -> list[str]:
    """Return the id of each row as a text."""
    return [str(one) for one in texts_of(table.features.column(own).combine_chunks()).to_pylist()]


def _levels(table: Table, name: str, column: pa.ChunkedArray, where: str) -> tuple[str, ...]:
    """Return the level of each copy in a protected column; a DataError where the data have no such level."""
    levels_there = {level for (level,) in table.groups([name]).levels}
    codes, levels, _ = group_codes(column.combine_chunks(), name, table.data_spec.merge.get(name))
    if levels_there.issuperset(out := tuple(levels[code] for code in codes)):
        return out
    strange = next(levels[code] for code in codes if levels[code] not in levels_there)
    what = "is missing" if strange == MISSING else f"holds {strange!r}"
    raise DataError(
        f"{where}: protected column {name!r} {what}, and no row of the data does; it has "
        f"{', '.join(sorted(levels_there))}"
    )


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> Iterator[pa.ChunkedArray]:
    """Yield the column in another type, if it can be."""
    try:
        yield column.cast(kind)
    except pa.ArrowException:
        return


def _values(
    table: Table, name: str, column: pa.ChunkedArray, where: str, *, learned: bool
) -> pa.ChunkedArray:
    """Return a feature column of copies in the type of the data; an error where a value cannot be in that column."""
    data = table.features.column(name)
    kind, types = data.type, pa.types
    number = all(types.is_integer(one) or types.is_floating(one) for one in (kind, column.type))
    ways = (
        (kind, pa.float64()) if number else (kind,)
    )  # a half is a number too where the data have whole ones
    out = next((cast for one in ways for cast in _cast(column, one)), None)
    if out is None:
        first = next(
            (e for e in entries_of(column.combine_chunks()) if not _fits(e, column.type, kind)), None
        )
        raise ColumnError(
            f"{where}: column {name!r} holds {first!r} ({column.type}), where the data have {kind}; convert it"
            + (", and save lists as Parquet" if types.is_nested(kind) else "")
        )
    if out.null_count and not data.null_count:
        raise DataError(
            f"{where}: column {name!r} has a missing value, and no row of the data has; write the value that "
            "the person has, or leave the column out"
        )
    if learned and kind_of(name, kind) == "category":
        seen, new = (set(_texts(one)) for one in (data, out))
        if strange := sorted(new - seen):
            raise DataError(
                f"{where}: column {name!r} holds {strange[0]!r}, and no row of the data does, so nothing is "
                "learned about it; correct it, or add such rows"
            )
    return out


def _fits(entry: Any, given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether one entry can be of another type."""
    try:
        pa.array([entry], given).cast(wanted)
    except (pa.ArrowException, TypeError, ValueError):
        return False
    return True


def _texts(column: pa.ChunkedArray) -> Iterable[str]:
    """Return the levels of a column of texts that some row has."""
    codes, levels, _ = group_codes(column.combine_chunks(), "")
    return (levels[code] for code in np.unique(codes))
