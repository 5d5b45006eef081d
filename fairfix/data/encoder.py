"""Encoder: the one place where raw columns become validated, read-only arrays.

A batch of Arrow columns enters, :class:`Rows` comes out: a cell code per row, a 0/1 label, a finite score, a weight.
What cannot be used is counted by reason, what must not be there is a :class:`~fairfix.errors.DataError` naming column,
value, row and remedy. Whoever holds a ``Rows`` never checks again.

Group levels are texts of :func:`fairfix.data.canonical.canonical` everywhere, so a group means the same in Parquet, in
CSV and in a saved artifact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fairfix.data.arrow_normalize import entries_of
from fairfix.data.binned import Entries
from fairfix.data.canonical import canonical
from fairfix.data.counts import Bools, Floats, Ints, check_cells
from fairfix.data.data_spec import DataSpec
from fairfix.data.merging import MISSING, SIGNS, UNKNOWN, plain_form
from fairfix.data.names import quoted_name, with_values
from fairfix.data.numeric_groups import (
    MOST_NUMBERS,
    Edges,
    as_number,
    band_names,
    bands_of,
    check_many,
    check_numbers,
)
from fairfix.errors import ColumnError, DataError, EntryError

MOST_CLASSES = 100
"""Classes of a label: each has tables of its own, and of more nobody reads them. A row's own number has more."""

LARGEST = 1 << 62
"""Codes of crossed columns stay below it, so that an integer holds them."""


COLUMNS = ("cell", "label", "score", "decision", "weight")
"""Names of the arrays of rows."""


@dataclass(frozen=True)
class Rows:
    """Validated rows; arrays of equal length n, ``None`` where there is no such column."""

    cell: Ints
    """Index into ``cells``, shape (n,)."""
    cells: tuple[tuple[str, ...], ...]
    """Levels of the cell's columns, one tuple per cell, in order of first appearance."""
    label: npt.NDArray[Any] | None
    """0/1 (uint8) for classification, real (float64) for regression."""
    score: Floats | None
    decision: Floats | None
    weight: Floats | None
    """float64; ``decision`` is the probability of a positive decision."""
    read: int
    excluded: Mapping[str, int] = field(default_factory=dict)
    """Rows that came in; rows left out, by reason."""
    kept: Bools | None = None
    """Which rows that came in are here; None for all."""
    entries: Entries | None = None
    """Properties of rows that each stand for an entry of counts; None for plain ones."""

    def __len__(self) -> int:
        return int(self.cell.size)

    def mapped(self, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Self:
        """Return the rows with every array changed."""
        arrays = {name: getattr(self, name) for name in COLUMNS}
        changed: dict[str, Any] = {name: change(array) for name, array in arrays.items() if array is not None}
        if self.entries is not None:
            changed["entries"] = self.entries.mapped(change)
        return replace(self, **changed)


@dataclass(frozen=True)
class EntryRows(Rows):
    """Rows that each stand for an entry of counts, which has a score and a weight."""

    score: Floats
    weight: Floats
    entries: Entries = field(kw_only=True)


class Encoder:
    """Turns batches into :class:`Rows`, learning the cells as they appear.

    One encoder serves one part of a source, in order; ``where`` names the part in messages and ``first_row``
    says how many rows come before.
    """

    def __init__(self, data_spec: DataSpec, where: str = "", first_row: int = 0) -> None:
        self.data_spec = data_spec
        self.where = where
        self._cells: dict[tuple[str, ...], int] = {}
        self._levels: dict[str, set[str]] = {name: set() for name in data_spec.columns.cell_keys}
        self._row, self._counted = first_row, False

    @property
    def cells(self) -> tuple[tuple[str, ...], ...]:
        """The cells seen so far."""
        return tuple(self._cells)

    def encode(self, batch: pa.RecordBatch, times: Ints | None = None) -> Rows:
        """Return the batch's rows; rows that miss an entry are left out and counted, a wrong entry is a DataError.

        Each row stands for as many as ``times`` says, shape (n,): they were counted elsewhere, and have no number.
        """
        self._counted = times is not None
        columns, drop = self.data_spec.columns, dict[str, Bools]()
        cell = self._cell_codes(batch, drop)
        score = self._real(batch, columns.score, "score", drop)
        label: npt.NDArray[Any] | None
        decision: Floats | None
        if columns.label and self.data_spec.task == "classification":
            label = self._binary(batch, columns.label, "label", drop)
        else:
            label = self._real(batch, columns.label, "label", drop)
        if columns.prediction:
            decision = self._binary(batch, columns.prediction, "prediction", drop).astype(np.float64)
        else:
            decision = self._real(batch, columns.probability, "decision probability", drop)
        weight = self._real(batch, columns.weight, "weight", drop)
        if weight is not None and (zero := (weight == 0) & ~drop.get("missing weight", np.False_)).any():
            drop["zero weight"] = zero
        self._row += batch.num_rows
        read = batch.num_rows if times is None else int(times.sum())
        rows = Rows(cell, self.cells, label, score, decision, weight, read)
        rows = _without(rows, drop, times) if drop else rows
        return self._decided(rows)

    def _decided(self, rows: Rows) -> Rows:
        """Return the rows with decisions by the threshold of their group, where groups have their own."""
        if self.data_spec.group_thresholds is None or rows.score is None:
            return rows
        cuts = group_cuts(self.data_spec, rows.cells, np.unique(rows.cell))
        return replace(rows, decision=(rows.score >= cuts[rows.cell]).astype(np.float64))

    def _cell_codes(self, batch: pa.RecordBatch, drop: dict[str, Bools]) -> Ints:
        """Return the cell of each row, registering new cells."""
        names = self.data_spec.columns.cell_keys
        if not names:
            self._cells.setdefault((), 0)
            return np.zeros(batch.num_rows, dtype=np.int64)
        coded = [self._group_codes(batch, name, drop) for name in names]
        sizes = [len(levels) for _, levels in coded]
        flat, many = coded[0][0], sizes[0]
        for (more, _), size in zip(coded[1:], sizes[1:], strict=True):
            if many * size > LARGEST:  # no more codes than rows are there, in the same order
                flat, many = np.unique(flat, return_inverse=True)[1], batch.num_rows
            flat, many = flat * size + more, many * size
        if many > max(4096, batch.num_rows):
            _, first, inverse = np.unique(flat, return_index=True, return_inverse=True)
            return self._register([codes[first] for codes, _ in coded], coded)[inverse]
        # a few cells without rows cost less than looking for them
        present = np.arange(many) if many <= 256 else np.flatnonzero(np.bincount(flat, minlength=many))
        place = np.full(many, -1, dtype=np.int64)
        place[present] = self._register(np.unravel_index(present, sizes), coded)
        return flat if np.array_equal(place, np.arange(many)) else place[flat]

    def _register(self, parts: Iterable[Ints], coded: Iterable[tuple[Ints, list[str]]]) -> Ints:
        """Return the index of cells, (k,); ``parts`` has the codes of each column, (k,)."""
        levels = [[names[i] for i in part] for part, (_, names) in zip(parts, coded, strict=True)]
        cells = self._cells
        index = [cells.setdefault(key, len(cells)) for key in zip(*levels, strict=True)]
        check_cells(self.data_spec.columns.cell_keys, len(cells))
        return np.array(index, dtype=np.int64)

    def _group_codes(
        self, batch: pa.RecordBatch, name: str, drop: dict[str, Bools]
    ) -> tuple[Ints, list[str]]:
        bands = self.data_spec.bands
        if edges := bands.get(name):
            codes, levels, missing = self._band_codes(batch.column(name), name, edges)
        else:
            codes, levels, missing = group_codes(batch.column(name), name, self.data_spec.merge.get(name))
        seen, of_classes = self._levels[name], name in self.data_spec.columns.classes
        many = len(seen)
        # a dictionary may name levels that no row has
        few = len(levels) <= MOST_NUMBERS
        seen.update(levels if few else [levels[code] for code in np.unique(codes)])
        if of_classes and len(seen) > MOST_CLASSES:
            raise ColumnError(
                f"column {name!r} has more than {MOST_CLASSES} distinct values, the largest number of classes; "
                "choose another column, merge rare values into one class, name one with `label=COLUMN=VALUE` instead "
                "of `task=multiclass`, or set `task=regression` for a real-valued target"
            )
        if len(seen) > max(many, MOST_NUMBERS) and not of_classes:
            check_numbers(name, seen, bands)
        if not of_classes:
            check_many(name, len(seen), bands)
        if missing is not None and of_classes:
            drop[f"missing class ({name})"] = missing
        elif missing is not None and self.data_spec.policy(name) != "group":
            drop[f"missing group ({name})"] = missing
        return codes, levels

    def _band_codes(self, array: pa.Array, name: str, edges: Edges) -> tuple[Ints, list[str], Bools | None]:
        """Return what :func:`group_codes` does, of a column of numbers that is cut into bands."""
        column, levels = group_numbers(array, name, self._at), band_names(edges)
        missing = np.isnan(column)
        if not missing.any():
            return bands_of(column, edges, array.type), levels, None
        codes = np.where(missing, len(levels), bands_of(column, edges, array.type))
        return codes, [*levels, MISSING], missing

    def _real(
        self, batch: pa.RecordBatch, name: str | None, part: str, drop: dict[str, Bools]
    ) -> Floats | None:
        """Return a real column; missing entries are marked in ``drop``, infinities and what is out of range refused."""
        if name is None:
            return None
        column = numbers(batch.column(name), name, part)
        # NaN and infinities show in the least and the largest entry, so sound data costs two passes and no mask
        low, high = (float(column.min()), float(column.max())) if column.size else (0.0, 0.0)
        if math.isnan(low):
            drop[f"missing {part}"] = missing = np.isnan(column)
            column = np.where(missing, 0.0, column)
            low, high = float(column.min()), float(column.max())
        if not (math.isfinite(low) and math.isfinite(high)):
            row = int(np.argmin(np.isfinite(column)))
            raise DataError(
                f"{part} column {name!r} holds {column[row]} at {self._at(row)}; "
                f"scores, labels and weights must be finite: replace or remove it"
            )
        ranges = {"score": self.data_spec.range, "weight": (0.0, math.inf), "label": (-math.inf, math.inf)}
        least, most = ranges.get(part, (0.0, 1.0))  # of a decision probability
        if low < least or high > most:
            row = int(np.argmax((column < least) | (column > most)))
            entry = shown(float(column[row]), least, most)
            place = f"{part} column {name!r} holds {entry} at {self._at(row)}"
            if part == "score":
                raise EntryError(
                    part,
                    name,
                    f"{place}, outside [{least:g}, {most:g}]: not a {self.data_spec.score_scale}",
                    "; set its scale with `score_scale=percent` (100p), margin (2p-1), logit or raw, or use "
                    "`task=regression` for a real-valued target",
                )
            remedy = "; weights must not be negative" if part == "weight" else ", outside [0, 1]"
            raise DataError(place + remedy)
        return column

    def _binary(self, batch: pa.RecordBatch, name: str, part: str, drop: dict[str, Bools]) -> Ints:
        """Return a 0/1 column (uint8) from numbers, booleans or text."""
        array = batch.column(name)
        data_spec, kind = self.data_spec, array.type
        own = part == "prediction" and bool(data_spec.positive_prediction)
        positive = data_spec.positive_prediction if own else data_spec.positive_label
        test = data_spec.label_test if part == "label" else None
        if test is None and not positive and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            return self._binary_numbers(array, name, part, drop)
        codes, levels, missing = group_codes(array, name, data_spec.merge.get(name))
        if missing is not None:
            drop[f"missing {part}"] = missing
            levels.pop()
        signs, stated = UNKNOWN if positive else SIGNS, {*positive, *data_spec.merge.get(name, ())}
        marks = [i for i, one in enumerate(levels) if one.lower() in signs and one not in stated]
        if (marked := np.isin(codes, marks)).any():
            drop[f"missing {part}"] = marked if missing is None else missing | marked
        table = np.zeros(len(levels) + 1, dtype=np.uint8)
        for i, level in enumerate(levels):
            shared = part == "prediction" and not own
            if test is not None:
                yes = _compared(level, *test)
            else:
                yes = _is_positive(level, positive, shared=shared) if positive else truth(level)
            for alike in () if yes else positive:
                if plain_form(level) == plain_form(alike):
                    self._refuse_alike(part, name, level, alike, codes == i)
            if yes is not None:
                table[i] = yes
            elif (
                i not in marks and (here := codes == i).any()
            ):  # a dictionary may name levels that no row has
                at = self._at(int(np.argmax(here)))
                if test is not None:
                    raise DataError(
                        f"label column {name!r} holds {level!r} at {at}, which is not a number, as "
                        f"`label={name}{data_spec.label_threshold}` needs; correct it, or name positive values instead"
                    )
                raise _not_binary(part, name, level, at)
        return table[codes]  # type: ignore[return-value]  # uint8 is what callers want

    def _refuse_alike(self, part: str, name: str, level: str, positive: str, here: Bools) -> None:
        """Raise where rows have what is the positive value but for case or blanks, and no name of its own."""
        if here.any() and level not in self.data_spec.merge.get(name, ()):
            row, merge = int(np.argmax(here)), with_values(name, (positive, level))
            raise DataError(
                f"{part} column {name!r} holds {level!r} at {self._at(row)}, which differs from the positive value "
                f"{positive!r} only in case or blanks; if both mean the same, add `merge={merge}`; otherwise add "
                f"`merge={with_values(name, (level,))}`"
            )

    def _binary_numbers(self, array: pa.Array, name: str, part: str, drop: dict[str, Bools]) -> Ints:
        column = numbers(array, name, part, keep_integers=True)
        if column.dtype.kind == "f" and column.size and math.isnan(float(np.min(column))):
            drop[f"missing {part}"] = missing = np.isnan(column)
            column = np.where(missing, 0.0, column)
        small = not column.size or (column.min() >= 0 and column.max() <= 1)
        out = column.astype(np.uint8) if small else np.zeros(0, dtype=np.uint8)
        if not small or (column.dtype.kind == "f" and not np.array_equal(out, column)):
            row = int(np.argmax((column != 0) & (column != 1)))
            raise _not_binary(part, name, f"{column[row]:g}", self._at(row))
        return out  # type: ignore[return-value]  # uint8 is what callers want

    def _at(self, row: int) -> str:
        """Name a row of the current batch."""
        if self._counted:
            return f"some row of {self.where}"
        return row_name(self.where, self._row, row)


def group_cuts(data_spec: DataSpec, cells: Sequence[tuple[str, ...]], used: Ints) -> Floats:
    """Return the threshold of each cell, (C,); a UsageError where a group of the ``used`` cells has none."""
    own = data_spec.group_thresholds
    assert own is not None
    at = data_spec.columns.cell_keys.index(own.attribute)
    own.require(cells[k][at] for k in used.tolist())
    return np.array([own.cuts.get(cell[at], math.inf) for cell in cells])


def shown(number: float, low: float, high: float) -> str:
    """Return a number in the fewest digits, six or more, that show on which side of the ends of a range it lies."""
    texts = (f"{number:.{digits}g}" for digits in range(6, 18))
    return next(text for text in texts if (low <= float(text) <= high) == (low <= number <= high))


def row_name(where: str, before: int, row: int) -> str:
    """Name a row that comes after some others, counted from 1."""
    return f"row {before + row + 1:,}" + (f" of {where}" if where else "")


def check_excluded(excluded: Mapping[str, int], read: int, data_spec: DataSpec) -> None:
    """Raise a DataError where rows were left out although the policy is ``error``."""
    for reason, rows in excluded.items():
        kind, _, name = reason.removesuffix(")").partition(" (")
        if not rows or not kind.startswith("missing"):
            continue
        column = name or data_spec.column_of(kind)
        if data_spec.policy(column) == "error":
            key = quoted_name(column, "=")
            own = f" or `missing={key}=group` (a separate group)" if kind == "missing group" else ""
            raise DataError(
                f"{kind} ({column}) in {rows:,} of {read:,} rows; fill the values, or use `missing=drop`, or "
                f"`missing={key}=drop` for this column alone{own}"
            )


def _not_binary(part: str, name: str, value: str, at: str) -> EntryError:
    more = ", or `task=regression` for a real-valued target" if part == "label" else ""
    return EntryError(
        part,
        name,
        f"{part} column {name!r} holds {value!r} at {at}, but binary values (0/1, true/false) are needed",
        f"; name the positive one with `{part}={with_values(name, ['VALUE'])}`{more}",
    )


def truth(level: str) -> float | None:
    """Return 0/1 for the usual spellings of a truth value as words or numbers, None for any other text."""
    text = level.strip().lower()
    if text in ("true", "false"):
        return float(text == "true")
    with suppress(ValueError):  # the level may be no number
        return float(text) if float(text) in (0.0, 1.0) else None
    return None


def _compared(level: str, compare: Callable[[Any, Any], Any], limit: float) -> float | None:
    """Return 1 for a number that a comparison with a limit holds for, 0 for another one, None for any other text."""
    number = float(level) if level in ("inf", "-inf") else as_number(level)
    return None if number is None else float(compare(number, limit))


def _is_positive(level: str, positive: Sequence[str], *, shared: bool) -> float:
    """Return 1 for a level that ``positive`` names, else 0.

    "1" names True as well. Where the name is that of a label, and ``shared``, decisions written as truth values keep
    their own meaning.
    """
    if level in positive:
        return 1.0
    own, named = truth(level), {truth(one) for one in positive} - {None}
    if own is not None and (named or shared):
        return float(own in named) if named else own
    return 0.0


def check_positive(
    labels: npt.NDArray[Any] | None, data_spec: DataSpec, decisions: npt.NDArray[Any] | None = None
) -> None:
    """Raise a DataError where no row holds a positive value that is named; arrays are non-zero for positives."""
    columns, words = data_spec.columns, [one for one in data_spec.positive_prediction if truth(one) is None]
    if columns.prediction and words and decisions is not None and not decisions.any():
        raise _none_positive("prediction", columns.prediction, data_spec.positive_prediction)
    if not (data_spec.binary and columns.label) or labels is None or labels.any():
        return
    if data_spec.label_threshold:
        raise DataError(
            f"no row used has a number {data_spec.label_threshold} in label column {columns.label!r}; choose "
            f"another threshold in `label={columns.label}{data_spec.label_threshold}`"
        )
    if data_spec.positive_label:
        raise _none_positive("label", columns.label, data_spec.positive_label)


def _none_positive(part: str, column: str, levels: Sequence[str]) -> EntryError:
    """Return the error that no row has a value that is said to be positive."""
    named = " or ".join(map(repr, levels))
    return EntryError(
        part,
        column,
        f"no row used has the value {named} in {part} column {column!r}, though `{part}` names it",
        "; check its spelling",
    )


def _without(rows: Rows, drop: Mapping[str, Bools], times: Ints | None) -> Rows:
    """Return the rows without the marked ones; a row with several faults counts for the first."""
    left = np.ones(len(rows), dtype=bool)
    excluded: dict[str, int] = {}
    for reason, bad in drop.items():
        gone = bad & left
        excluded[reason] = int(np.count_nonzero(gone) if times is None else times[gone].sum())
        left &= ~bad
    return replace(rows.mapped(lambda array: array[left]), excluded=excluded, kept=left)


# Buffers are read and made directly: Array.to_numpy, numpy.asarray and pa.array import pandas on the first
# call, which costs an audit of a small file more than the audit itself.


def null_mask(array: pa.Array) -> Bools | None:
    """Return which entries are null, shape (n,); None when none is."""
    if not array.null_count:
        return None
    if pa.types.is_null(array.type):
        return np.ones(len(array), dtype=bool)
    bits = np.frombuffer(array.buffers()[0], dtype=np.uint8)
    valid = np.unpackbits(bits, bitorder="little", count=array.offset + len(array))[array.offset :]
    return np.asarray(valid == 0)


def primitive(array: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return a view of a fixed-width Arrow array; entries that are null hold anything."""
    data = array.buffers()[1]
    if data is None:
        return np.zeros(len(array), dtype=dtype)
    kind = np.dtype(dtype)
    return np.frombuffer(data, dtype=kind, count=len(array), offset=array.offset * kind.itemsize)


def numbers(
    array: pa.Array, name: str, part: str, *, keep_integers: bool = False, remedy: str = ""
) -> npt.NDArray[Any]:
    """Return a numeric column as float64 (or as integers where it has no nulls), null as NaN; else a ColumnError."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        array, kind = array.dictionary_decode(), kind.value_type
    if pa.types.is_null(kind):
        return np.full(len(array), np.nan)
    if pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        kind = pa.uint8() if pa.types.is_boolean(kind) else pa.float64()
        array = array.cast(kind)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise ColumnError(
            f"{part} column {name!r} is of type {kind}, but numbers are needed"
            + (remedy or f"; convert it, or name another column with `{part.split()[-1]}`")
        )
    column, missing = primitive(array, kind.to_pandas_dtype()), null_mask(array)
    if not keep_integers or missing is not None:
        column = column.astype(np.float64, copy=False)
    return column if missing is None else np.where(missing, np.nan, column)


def group_codes(
    array: pa.Array, name: str, merged: Mapping[str, str] | None = None
) -> tuple[Ints, list[str], Bools | None]:
    """Return (code per row, level names, which rows are missing or None); missing rows code the last level.

    Names that are ``merged`` are taken for others, or for missing.
    """
    kind = array.type
    if pa.types.is_nested(kind) and not pa.types.is_dictionary(kind):
        raise ColumnError(f"column {name!r} is of type {kind}, whose values cannot be groups")
    if pa.types.is_null(kind):
        return np.zeros(len(array), dtype=np.int64), [MISSING], np.ones(len(array), dtype=bool)
    if not pa.types.is_dictionary(kind):
        array = array.dictionary_encode()
    raw, index = [_name_of(value, merged) for value in entries_of(array.dictionary)], dict[str, int]()
    gone = [level is None for level in raw]
    place = np.array(
        [*(-1 if level is None else index.setdefault(level, len(index)) for level in raw), -1], dtype=np.int64
    )
    names, missing = list(index), null_mask(array)
    codes = primitive(array.indices, array.type.index_type.to_pandas_dtype()).astype(np.int64)
    if missing is None and not any(gone):
        return (codes if len(names) == len(raw) else place[codes]), names, None
    place[place < 0] = len(names)
    out = place[codes if missing is None else np.where(missing, len(raw), codes)]
    return out, [*names, MISSING], out == len(names)


def group_numbers(array: pa.Array, name: str, at: Callable[[int], str]) -> Floats:
    """Return the numbers of a column of groups, also where they are texts, shape (n,); NaN where they are missing.

    ``at`` names a row; a DataError names the first entry that is no finite number.
    """
    kind = array.type
    as_text = not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
    if not as_text:
        column: Floats = numbers(array, name, "group")
    else:
        codes, levels, missing = group_codes(array, name)
        read = [as_number(level) for level in levels]
        if missing is not None:
            read[-1] = math.nan
        table = np.array([math.inf if number is None else number for number in read])
        column = table[codes]
    if (bad := np.isinf(column)).any():
        row = int(np.argmax(bad))
        entry = repr(levels[codes[row]]) if as_text else column[row]
        raise DataError(
            f"column {name!r} holds {entry} at {at(row)}, which is not a number and fits no band; correct it, or "
            f"leave out `bands={name}`"
        )
    return column


def level_of(value: Any, merged: Mapping[str, str] | None = None) -> str:
    """Return the level that an entry of a column of groups is."""
    name = _name_of(value, merged)
    return MISSING if name is None else name


def _name_of(value: Any, merged: Mapping[str, str] | None) -> str | None:
    """Return the name of an entry, None where it is missing or taken for that."""
    if value is None or value != value:  # NaN differs from itself
        return None
    name = canonical(value)
    if not merged or name not in merged:
        return name
    return None if merged[name] == MISSING else merged[name]


def arrow_array(entries: npt.NDArray[Any], missing: Bools | None = None) -> pa.Array:
    """Return an Arrow array of a numpy array's entries, from buffers; ``missing`` marks nulls."""
    kind = pa.from_numpy_dtype(entries.dtype)
    bits = np.packbits(entries, bitorder="little") if entries.dtype == bool else np.ascontiguousarray(entries)
    valid = None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    return pa.Array.from_buffers(kind, entries.size, [valid, pa.py_buffer(bits)])
