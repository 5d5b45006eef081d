"""Table: a whole data set in memory, validated, with its groups and features."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fairfix.data.arrow_normalize import entries_of, widened_batch
from fairfix.data.binned import Entries, divided
from fairfix.data.counts import (
    Bools,
    Floats,
    Ints,
    groups_of_cells,
    rows_of_each,
    rows_of_levels,
    spans,
    tallied,
)
from fairfix.data.data_spec import DataSpec, to_probability
from fairfix.data.encoder import (
    COLUMNS,
    Encoder,
    EntryRows,
    Rows,
    arrow_array,
    check_excluded,
    check_positive,
    group_codes,
    numbers,
)
from fairfix.data.names import group_name
from fairfix.data.numeric_groups import check_sizes
from fairfix.data.row_hash import apart
from fairfix.errors import DataError

Number = TypeVar("Number", bound=np.generic)
Column = TypeVar("Column")

PLAIN_SCORE = "model score as it is"
"""Name of the column of a model's original scores where a repair made others of them; no feature."""


@dataclass(frozen=True)
class Groups:
    """Groups of a table's rows: a code per row and a name per code."""

    columns: tuple[str, ...]
    """Columns whose levels, taken together, make a group."""
    levels: tuple[tuple[str, ...], ...]
    """One tuple of column levels per group, in order."""
    of_rows: Callable[[], Ints]
    """Makes the codes of the rows."""

    @cached_property
    def codes(self) -> Ints:
        """Index into ``levels``, shape (n,); made when it is first asked for."""
        return _frozen(self.of_rows())

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Printable names, in the order of ``levels``."""
        return tuple(group_name(level) for level in self.levels)

    @cached_property
    def first(self) -> Ints:
        """Number of the first row of each group, shape (K,)."""
        out = np.full(len(self.levels), -1, dtype=np.int64)
        for inside in spans(self.codes.size):
            group, row = np.unique(self.codes[inside], return_index=True)
            new = out[group] < 0
            out[group[new]] = inside.start + row[new]
            if (out >= 0).all():
                break
        return out

    @cached_property
    def rows(self) -> list[Ints]:
        """Numbers of the rows of each group, in their order."""
        return rows_of_each(self.codes, len(self.levels))


@dataclass(frozen=True, eq=False)
class Table:
    """A whole data set in memory, validated; all arrays are read-only and of length n."""

    data_spec: DataSpec
    rows: Rows
    features: pa.Table
    """Columns without a role, as Arrow data, for methods that learn from them."""
    draw: Callable[[Ints], Floats] | None = None
    """Makes of row numbers a number in [0, 1) for each, of the rows' identities, as if these rows were all there are;
    None where nobody knows identities."""
    rescore: Callable[[Table], Table] | None = None
    """Makes the scores of the features anew, once these are changed; None where no model can be asked."""

    def __len__(self) -> int:
        return len(self.rows)

    def groups(self, columns: Sequence[str] | None = None) -> Groups:
        """Return the groups of some cell columns (default: the cells of all protected columns)."""
        names = tuple(self.data_spec.columns.protected if columns is None else columns)
        present = [self.rows.cells[c] for c in np.flatnonzero(tallied(self.rows.cell, len(self.rows.cells)))]
        spec = self.data_spec
        levels, _ = groups_of_cells(spec.columns.cell_keys, present, names, bands=spec.bands)
        return Groups(names, levels, lambda: self.codes(names, levels))

    def cell_codes(self, columns: Sequence[str], levels: Sequence[tuple[str, ...]]) -> Ints:
        """Return the index of each cell's group among ``levels``, shape (C,), -1 for a group that is not there."""
        codes = groups_of_cells(self.data_spec.columns.cell_keys, self.rows.cells, columns, levels)[1]
        return codes.astype(np.int32)

    def codes(self, columns: Sequence[str], levels: Sequence[tuple[str, ...]]) -> Ints:
        """Return the index of each row's group among ``levels``, shape (n,), -1 for a group that is not there."""
        return self.cell_codes(columns, levels)[self.rows.cell]

    def take(self, rows: Ints | Bools) -> Table:
        """Return the table of the given row numbers, in that order, or of the rows in a mask, shape (n,)."""
        return self._beside(rows, self.rows.mapped(lambda array: _frozen(array[rows])))

    def _beside(self, rows: Ints | Bools, taken: Rows) -> Table:
        """Return the table of some rows, which are taken already."""
        features, draw, whole = self.features, None, self.draw
        if features.num_columns or whole is not None:
            at = np.flatnonzero(rows) if rows.dtype == bool else np.asarray(rows, dtype=np.int64)
            features = features.take(arrow_array(at)) if features.num_columns else features
            own = getattr(whole, "take", None)
            draw = own(at) if own else None if whole is None else lambda numbers: whole(at[numbers])
        taken = replace(taken, read=len(taken), excluded={}, kept=None)
        return replace(self, rows=taken, features=features, draw=draw)

    def pieces(self) -> Iterator[Table]:
        """Yield the rows in their order, some at a time without a copy; few rows, or entries of counts, at once.

        A piece has no draws.
        """
        parts = [*spans(len(self))]
        if len(parts) == 1 or self.rows.entries is not None:
            yield self
            return
        for inside in parts:
            rows = self.rows.mapped(lambda array, inside=inside: array[inside])  # type: ignore[misc]  # mypy knows no types of defaults
            rows = replace(rows, read=len(rows), excluded={}, kept=None)
            yield replace(self, rows=rows, features=self.features.slice(inside.start, len(rows)), draw=None)

    def pieces_with(self, each: npt.NDArray[Number]) -> Iterator[tuple[Table, npt.NDArray[Number]]]:
        """Yield the pieces, each with its part of an array of a number per row, shape (n,)."""
        start = 0
        for piece in self.pieces():
            yield piece, each[start : start + len(piece)]
            start += len(piece)

    @property
    def level_rows(self) -> dict[str, dict[str, int]]:
        """Column of a cell -> level -> its rows."""
        own = self.rows.entries
        rows = tallied(self.rows.cell, len(self.rows.cells), None if own is None else own.rows)
        return rows_of_levels(self.data_spec.columns.cell_keys, self.rows.cells, rows)

    @property
    def ungrouped(self) -> Table:
        """The table without protected columns: all rows are in one cell."""
        data_spec = replace(self.data_spec, columns=replace(self.data_spec.columns, protected=()), bands={})
        rows = replace(self.rows, cell=_frozen(np.zeros(len(self), dtype=np.int64)), cells=((),))
        return replace(self, data_spec=data_spec, rows=rows)

    @property
    def weight(self) -> Floats:
        """Row weights, shape (n,); ones when there are none."""
        return np.ones(len(self)) if self.rows.weight is None else self.rows.weight

    @property
    def square_weight(self) -> Floats:
        """Squared weights, shape (n,); of entries of counts the sums of those of their rows."""
        return self.weight**2 if self.rows.entries is None else self.rows.entries.square_weight

    @property
    def spread(self) -> Floats | float:
        """Factor of the square of a sum over the rows of an entry of counts; 1 for plain rows."""
        if self.rows.entries is None:
            return 1.0
        square = self.weight**2
        return np.divide(self.square_weight, square, out=np.zeros_like(square), where=square > 0)

    @property
    def weighted(self) -> bool:
        """Whether rows have weights of their own."""
        entries = self.rows.entries
        return self.rows.weight is not None if entries is None else entries.weighted

    @property
    def stands_for(self) -> Ints:
        """Rows that each one stands for, shape (n,): 1, but for entries of counts."""
        return np.ones(len(self), dtype=np.int64) if self.rows.entries is None else self.rows.entries.rows

    @property
    def used(self) -> int:
        """Number of rows, those that entries of counts stand for."""
        return len(self) if self.rows.entries is None else int(self.rows.entries.rows.sum())

    @property
    def entries(self) -> Entries:
        """The entries of counts that the rows stand for; a ValueError for plain rows."""
        if self.rows.entries is None:
            raise ValueError("the rows are not entries of counts")
        return self.rows.entries

    def divided(self, entry: Ints, chance: Floats) -> Table:
        """Return entries of counts in parts: each part's entry and its fraction of it, (m,); see :mod:`.binned`."""
        assert isinstance(self.rows, EntryRows)
        return replace(self, rows=divided(self.rows, entry, chance), draw=None)

    def with_decision(self, decision: Floats) -> Table:
        """Return the table with the given probabilities of a positive decision instead of its own."""
        columns = replace(self.data_spec.columns, prediction=None, probability="p_positive")
        data_spec = replace(self.data_spec.of_one_threshold, columns=columns)
        return replace(self, data_spec=data_spec, rows=replace(self.rows, decision=_own(decision)))

    def with_score(self, score: Floats) -> Table:
        """Return the table with the given scores instead of its own: probabilities, or values of a regression."""
        # counts of real labels have no label
        label = None if self.rows.label is None else self.data_spec.columns.label
        own, spec = self.rows.entries, self.data_spec.of_one_threshold
        columns = replace(spec.columns, score="prediction", prediction=None, probability=None, label=label)
        cuts = (spec.cuts or (0.5,)) if spec.task == "classification" else ()
        spec = replace(spec, columns=columns, score_scale="probability", thresholds=cuts)
        entries = None if own is None else replace(own, sums={}, exact=True)
        rows = replace(self.rows, score=_own(score), decision=None, entries=entries)
        return replace(self, data_spec=spec, rows=rows)

    @cached_property
    def draws(self) -> Floats:
        """A number in [0, 1) per row, shape (n,): the given ones, else from a hash of the row's own values."""
        if self.draw is None:
            return apart(_hashes(self), {})
        every = getattr(self.draw, "every", None)  # the same for changed copies of the rows
        return self.draw(np.arange(len(self))) if every is None else every

    @property
    def labels(self) -> npt.NDArray[Any]:
        """The labels, shape (n,); a DataError where there are none."""
        return _needed(self.rows.label, "label")

    @property
    def scores(self) -> Floats:
        """The scores as they are, shape (n,); a DataError where there are none."""
        return _needed(self.rows.score, "score")

    @property
    def decisions(self) -> Floats:
        """The probability of a positive decision, shape (n,); a DataError where nothing is decided."""
        return _needed(self.chance, "prediction")

    @property
    def chance(self) -> Floats | None:
        """The probability of a positive decision, shape (n,), 0 or 1 by threshold; None where nothing is decided."""
        if self.rows.decision is not None:
            return self.rows.decision
        if self.data_spec.threshold is None or self.data_spec.task == "regression" or self.rows.score is None:
            return None
        return (self.rows.score >= self.data_spec.threshold).astype(np.float64)

    @property
    def probability(self) -> Floats:
        """The score as a probability, shape (n,); a DataError where there is none, or its scale is ``raw``."""
        return to_probability(self.scores, self.data_spec.score_scale)

    @property
    def ranking(self) -> Floats:
        """Values that order the rows, shape (n,): ``2 p - 1``, or a raw score as it is."""
        if self.rows.score is not None and self.data_spec.score_scale == "raw":
            return self.rows.score.copy()
        return 2.0 * self.probability - 1.0


def _needed(column: Column | None, role: str) -> Column:
    """Return a column that has to be there; a DataError where it is not."""
    if column is None:
        raise DataError(f"a {role} column is needed; name it with `{role}`")
    return column


def _hashes(table: Table) -> npt.NDArray[np.uint64]:
    """Return a hash of 53 bits of the levels, score and features of each row, shape (n,)."""
    names = np.array([group_name(cell) for cell in table.rows.cells], dtype=object)
    more: dict[str, Any] = {"cell": names[table.rows.cell]}
    if table.rows.score is not None:
        more["score"] = table.rows.score
    return np.asarray(row_hashes(table.features, more) >> np.uint64(11))


def row_hashes(columns: pa.Table, more: Mapping[str, Any]) -> npt.NDArray[np.uint64]:
    """Return a hash of 64 bits of the entries of each row, and of ``more`` columns, shape (n,)."""
    from pandas import DataFrame
    from pandas.util import hash_pandas_object

    own = zip(columns.column_names, columns.columns, strict=True)
    named = {f"feature {name}": _hashable(column) for name, column in own} | dict(more)
    return np.asarray(hash_pandas_object(DataFrame(named), index=False), dtype=np.uint64)


def _hashable(column: pa.ChunkedArray) -> Any:
    """Return a column as pandas can hash it: numbers of any type as floats, all else as the one text of its values."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    whole = column.combine_chunks()
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return np.asarray(numbers(whole, "feature", "feature"), dtype=np.float64)
    if pa.types.is_nested(kind):
        return [str(entry) for entry in entries_of(whole)]
    codes, levels, _ = group_codes(whole, "feature")
    return np.array(levels, dtype=object)[codes]


def assemble(
    batches: Iterable[pa.RecordBatch], data_spec: DataSpec, where: str = "", raw: Sequence[str] = ()
) -> Table:
    """Return one table of all batches, with every policy on missing values applied.

    Cells are numbered below :data:`~fairfix.data.counts.MOST_CELLS`, so two bytes hold a row's.
    A batch is let go of once it is encoded, but for its features. ``raw`` names columns with a role that are kept among
    the features as they come.
    """
    encoder: Encoder | None = None
    excluded: Counter[str] = Counter()
    read = 0
    columns = {name: _Column() for name in COLUMNS}
    features = []
    for batch in batches:
        if encoder is None:
            data_spec = data_spec.in_type_of(batch.schema)
            encoder = Encoder(data_spec, where)
        part = encoder.encode(batch)
        excluded.update(part.excluded)
        read += part.read
        for name, own in columns.items():
            own.add(getattr(part, name), np.int16 if name == "cell" else None)
        roles = set(data_spec.columns.roles) - set(raw)
        kept = widened_batch(batch.select([name for name in batch.schema.names if name not in roles]))
        features.append(kept if part.kept is None else kept.filter(arrow_array(part.kept)))
    release()
    check_excluded(excluded, read, data_spec)
    arrays = {name: own.done() for name, own in columns.items()}
    if encoder is None or not arrays["cell"].size:
        raise DataError("no rows are left to work with" if read else "the data has no rows")
    sizes = tallied(arrays["cell"], len(encoder.cells))
    level_rows = rows_of_levels(data_spec.columns.cell_keys, encoder.cells, sizes)
    for name in data_spec.columns.protected:
        check_sizes(name, list(level_rows[name].values()), data_spec.bands)
    rows = Rows(cells=encoder.cells, read=read, excluded=dict(excluded), **arrays)
    check_positive(rows.label, data_spec, rows.decision)
    try:
        return Table(data_spec, rows, pa.Table.from_batches(features))
    except pa.ArrowInvalid as error:
        reason = " ".join(str(error).split())
        raise DataError(f"the feature columns differ in type from file to file: {reason}") from error


def _own(array: npt.ArrayLike) -> Floats:
    """Return numbers that nobody changes: the very array where it is read-only, else a copy."""
    own = np.asarray(array, dtype=np.float64)
    return own if not own.flags.writeable else _frozen(own.copy())


def parted(whole: list[Table], inside: Bools) -> tuple[Table, Table]:
    """Return the rows of a table outside and inside a mask, shape (n,).

    The table is taken out of a list. Its columns are parted one by one, so that where nobody else holds it, there is
    never more than one of them twice.
    """
    table = whole.pop()
    if table.rows.entries is not None:
        return table.take(~inside), table.take(inside)
    columns = {name: getattr(table.rows, name) for name in COLUMNS}
    bare = replace(table, rows=table.rows.mapped(lambda array: array[:0].copy()))
    del table
    masks = ~inside, inside
    parts: tuple[dict[str, Any], dict[str, Any]] = {}, {}
    for name in COLUMNS:
        column = columns.pop(name)
        for part, mask in zip(parts, masks, strict=True):
            part[name] = None if column is None else _frozen(column[mask])
    made = [bare._beside(mask, replace(bare.rows, **part)) for part, mask in zip(parts, masks, strict=True)]
    return made[0], made[1]


def release() -> None:
    """Give the system back memory of batches and arrays that are gone, which allocators keep for later ones."""
    for pool in (pa.default_memory_pool(), pa.system_memory_pool()):
        pool.release_unused()


class _Column:
    """A column that grows at its end, where most allocators only move pages, so that no second copy is made."""

    def __init__(self) -> None:
        self._array: npt.NDArray[Any] | None = None
        self._size = 0

    def add(self, more: npt.NDArray[Any] | None, kind: Any = None) -> None:
        """Append the entries of more rows, which all or none have."""
        if more is None:
            return
        if self._array is None:
            self._array = np.empty(more.size, dtype=kind or more.dtype)
        end = self._size + more.size
        if end > self._array.size:
            self._array.resize(max(end, self._array.size * 9 // 8), refcheck=False)
        self._array[self._size : end] = more
        self._size = end

    def done(self) -> Any:
        """Return the whole column, read-only; None where no rows have one."""
        if self._array is None:
            return None
        self._array.resize(self._size, refcheck=False)
        return _frozen(self._array)


def _frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array = np.ascontiguousarray(array)
    array.setflags(write=False)
    return array
