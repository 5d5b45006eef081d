"""Encoder: the one place where raw columns become validated, read-only arrays.

A batch of Arrow columns enters, :class:`Rows` comes out: a cell code per row, a 0/1 label, a finite score, a weight.
What cannot be used is counted by reason, what must not be there is a :class:`~fairfix.errors.DataError` naming column,
value, row and remedy. Whoever holds a ``Rows`` never checks again.

Group levels are text everywhere (``True`` and ``"True"`` are one group), so a group means the same in Parquet, in CSV
and in a saved artifact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fairfix.data.counts import Bools, Floats, Ints
from fairfix.data.reading import SCORE_RANGE, Reading
from fairfix.errors import ColumnError, DataError

MISSING = "(missing)"
"""The level of rows whose group is missing, under ``missing_group="group"``."""


@dataclass(frozen=True)
class Rows:
    """Validated rows; arrays of equal length n, ``None`` where there is no such column.

    Attributes
    ----------
    cell
        Index into ``cells``, shape (n,).
    cells
        Levels of the cell's columns, one tuple per cell, in order of first appearance.
    label
        0/1 (uint8) for classification, real (float64) for regression.
    score, decision, weight
        float64; ``decision`` is the probability of a positive decision.
    read, excluded
        Rows that came in; rows left out, by reason.
    kept
        Which rows that came in are here; None for all.
    """

    cell: Ints
    cells: tuple[tuple[str, ...], ...]
    label: npt.NDArray[Any] | None
    score: Floats | None
    decision: Floats | None
    weight: Floats | None
    read: int
    excluded: Mapping[str, int] = field(default_factory=dict)
    kept: Bools | None = None

    def __len__(self) -> int:
        return int(self.cell.size)

    def mapped(self, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Rows:
        """Return the rows with every array changed."""
        arrays = {name: getattr(self, name) for name in ("cell", "label", "score", "decision", "weight")}
        changed: dict[str, Any] = {name: change(array) for name, array in arrays.items() if array is not None}
        return replace(self, **changed)


class Encoder:
    """Turns batches into :class:`Rows`, learning the cells as they appear.

    One encoder serves one part of a source, in order; ``where`` names the part in messages and ``first_row``
    says how many rows come before.
    """

    def __init__(self, reading: Reading, where: str = "", first_row: int = 0) -> None:
        self.reading = reading
        self.where = where
        self._cells: dict[tuple[str, ...], int] = {}
        self._levels: dict[str, set[str]] = {name: set() for name in reading.columns.cell_keys}
        self._row = first_row

    @property
    def cells(self) -> tuple[tuple[str, ...], ...]:
        """The cells seen so far."""
        return tuple(self._cells)

    def encode(self, batch: pa.RecordBatch) -> Rows:
        """Return the batch's rows; rows that miss a value are left out and counted, a wrong value is a DataError."""
        columns, n = self.reading.columns, batch.num_rows
        drop: dict[str, Bools] = {}
        cell = self._cell_codes(batch, drop)
        score = self._real(batch, columns.score, "score", drop)
        label = self._label(batch, drop)
        decision = self._decision(batch, drop)
        weight = self._weight(batch, drop)
        self._row += n
        rows = Rows(cell, self.cells, label, score, decision, weight, n)
        return _without(rows, drop) if drop else rows

    # ------------------------------------------------------------------ groups

    def _cell_codes(self, batch: pa.RecordBatch, drop: dict[str, Bools]) -> Ints:
        """Return the cell of each row, registering new cells."""
        names = self.reading.columns.cell_keys
        if not names:
            self._cells.setdefault((), 0)
            return np.zeros(batch.num_rows, dtype=np.int64)
        coded = [self._group_codes(batch, name, drop) for name in names]
        sizes = [len(levels) for _, levels in coded]
        many = math.prod(sizes)
        flat = coded[0][0]
        for (more, _), size in zip(coded[1:], sizes[1:], strict=True):
            flat = flat * size
            flat += more
        if many <= 256:  # a few cells without rows cost less than looking for them
            lookup = self._register(np.arange(many), coded, sizes)
            return flat if np.array_equal(lookup, np.arange(many)) else lookup[flat]
        if many <= max(4096, batch.num_rows):
            lookup = np.full(many, -1, dtype=np.int64)
            seen = np.flatnonzero(np.bincount(flat, minlength=many))
            lookup[seen] = self._register(seen, coded, sizes)
            return lookup[flat]
        seen, inverse = np.unique(flat, return_inverse=True)
        return self._register(seen, coded, sizes)[inverse]

    def _register(self, flat: Ints, coded: list[tuple[Ints, list[str]]], sizes: list[int]) -> Ints:
        """Return the cell index of each flat code (product of the columns' codes)."""
        parts = np.unravel_index(flat, sizes) if sizes else ()
        levels = [[names[i] for i in part] for part, (_, names) in zip(parts, coded, strict=True)]
        cells = self._cells
        return np.array(
            [cells.setdefault(key, len(cells)) for key in zip(*levels, strict=True)], dtype=np.int64
        )

    def _group_codes(
        self, batch: pa.RecordBatch, name: str, drop: dict[str, Bools]
    ) -> tuple[Ints, list[str]]:
        codes, levels, missing = group_codes(_column(batch, name), name)
        seen, limit = self._levels[name], self.reading.max_groups
        if len(levels) > limit:  # a dictionary may name levels that no row has
            seen.update(levels[code] for code in np.unique(codes))
        else:
            seen.update(levels)
        if len(seen) > limit:
            raise ColumnError(
                f"column {name!r} has more than {limit:,} distinct values, which does not look like groups; "
                f"choose another column, fold it into fewer groups, or raise --max-groups"
            )
        if missing is not None and self.reading.missing_group != "group":
            drop[f"missing group ({name})"] = missing
        return codes, levels

    # ------------------------------------------------------------------ numbers

    def _real(
        self, batch: pa.RecordBatch, name: str | None, part: str, drop: dict[str, Bools]
    ) -> Floats | None:
        """Return a real column; missing values are marked in ``drop``, infinities refused."""
        if name is None:
            return None
        values, missing = numbers(_column(batch, name), name, part)
        if missing is not None:
            values = np.where(missing, np.nan, values)
        # NaN and infinities show in the least and the largest value, so sound data costs two passes and no mask
        low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
        if math.isnan(low):
            drop[f"missing {part}"] = missing = np.isnan(values)
            values = np.where(missing, 0.0, values)
            low, high = float(values.min()), float(values.max())
        if not (math.isfinite(low) and math.isfinite(high)):
            row = int(np.argmin(np.isfinite(values)))
            raise DataError(
                f"{part} column {name!r} holds {values[row]} at {self._at(row)}; "
                f"scores, labels and weights must be finite: replace or remove it"
            )
        if part == "score":
            self._check_score(values, name, low, high)
        return values

    def _check_score(self, score: Floats, name: str, least: float, largest: float) -> None:
        scale = self.reading.score_scale
        if self.reading.task == "regression" or scale not in SCORE_RANGE:
            return
        low, high = SCORE_RANGE[scale]
        if least < low or largest > high:
            row = int(np.argmax((score < low) | (score > high)))
            raise DataError(
                f"score column {name!r} holds {score[row]:g} at {self._at(row)}, outside [{low:g}, {high:g}]: not a "
                f"{scale}; say what it is with --score-scale margin (2p-1), logit or raw"
                + ("" if scale == "margin" else ", or --task regression for a real-valued target")
            )

    def _label(self, batch: pa.RecordBatch, drop: dict[str, Bools]) -> npt.NDArray[Any] | None:
        name = self.reading.columns.label
        if name is None:
            return None
        if self.reading.task == "regression":
            return self._real(batch, name, "label", drop)
        return self._binary(batch, name, "label", drop)

    def _binary(self, batch: pa.RecordBatch, name: str, part: str, drop: dict[str, Bools]) -> Ints:
        """Return a 0/1 column (uint8) from numbers, booleans or text."""
        array = _column(batch, name)
        positive = self.reading.positive_label
        kind = array.type
        if positive is None and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            return self._binary_numbers(array, name, part, drop)
        codes, levels, missing = group_codes(array, name)
        if missing is not None:
            drop[f"missing {part}"] = missing
        table = np.zeros(max(len(levels), 1), dtype=np.uint8)
        for i, level in enumerate(levels):
            if missing is not None and i == len(levels) - 1:
                continue
            value = _truth(level) if positive is None else _is_positive(level, positive, kind, part)
            if value is not None:
                table[i] = value
            elif (here := codes == i).any():  # a dictionary may name levels that no row has
                raise DataError(_not_binary(part, name, level, self._at(int(np.argmax(here)))))
        return table[codes]  # type: ignore[return-value]  # uint8 is what callers want

    def _binary_numbers(self, array: pa.Array, name: str, part: str, drop: dict[str, Bools]) -> Ints:
        values, missing = numbers(array, name, part, keep_integers=True)
        if missing is not None:
            values = np.where(missing, np.nan, values)
        if values.dtype.kind == "f" and values.size and math.isnan(float(np.min(values))):
            drop[f"missing {part}"] = missing = np.isnan(values)
            values = np.where(missing, 0.0, values)
        small = not values.size or (values.min() >= 0 and values.max() <= 1)
        out = values.astype(np.uint8) if small else np.zeros(0, dtype=np.uint8)
        if not small or (values.dtype.kind == "f" and not np.array_equal(out, values)):
            row = int(np.argmax((values != 0) & (values != 1)))
            raise DataError(_not_binary(part, name, f"{values[row]:g}", self._at(row)))
        return out  # type: ignore[return-value]  # uint8 is what callers want

    def _decision(self, batch: pa.RecordBatch, drop: dict[str, Bools]) -> Floats | None:
        columns = self.reading.columns
        if columns.prediction:
            return self._binary(batch, columns.prediction, "prediction", drop).astype(np.float64)
        chance = self._real(batch, columns.probability, "decision probability", drop)
        if chance is not None and chance.size and (chance.min() < 0 or chance.max() > 1):
            row = int(np.argmax((chance < 0) | (chance > 1)))
            raise DataError(
                f"decision probability column {columns.probability!r} holds {chance[row]:g} at {self._at(row)}, "
                f"outside [0, 1]"
            )
        return chance

    def _weight(self, batch: pa.RecordBatch, drop: dict[str, Bools]) -> Floats | None:
        weight = self._real(batch, self.reading.columns.weight, "weight", drop)
        if weight is not None and weight.size and weight.min() <= 0:
            if weight.min() < 0:
                row = int(np.argmin(weight))
                raise DataError(
                    f"weight column {self.reading.columns.weight!r} holds {weight[row]:g} at {self._at(row)}; "
                    f"weights must not be negative"
                )
            if (zero := (weight == 0) & ~drop.get("missing weight", np.zeros(weight.size, bool))).any():
                drop["zero weight"] = zero
        return weight

    def _at(self, row: int) -> str:
        """Name a row of the current batch, counted from 1."""
        return f"row {self._row + row + 1:,}" + (f" of {self.where}" if self.where else "")


def check_excluded(excluded: Mapping[str, int], read: int, reading: Reading) -> None:
    """Raise a DataError where rows were left out although the policy is ``error``."""
    for reason, rows in excluded.items():
        if reason.startswith("missing group"):
            policy, option = reading.missing_group, "--missing-group group (a group of its own) or drop"
        elif reason.startswith("missing"):
            policy, option = reading.missing_rows, "--missing drop"
        else:
            continue
        if rows and policy == "error":
            raise DataError(f"{reason} in {rows:,} of {read:,} rows; fill the values, or choose {option}")


def _not_binary(part: str, name: str, value: str, at: str) -> str:
    more = ", or --task regression for a real-valued target" if part == "label" else ""
    return (
        f"{part} column {name!r} holds {value!r} at {at}, but binary values (0/1, true/false) are needed; "
        f"name the positive one with --positive-label VALUE{more}"
    )


def _truth(level: str) -> float | None:
    """Return 0/1 for the usual spellings of a truth value, None for any other text."""
    return {"0": 0.0, "1": 1.0, "0.0": 0.0, "1.0": 1.0, "false": 0.0, "true": 1.0}.get(level.strip().lower())


def _is_positive(level: str, positive: str, kind: pa.DataType, part: str) -> float:
    """Return 1 for the level that ``--positive-label`` names, else 0.

    Numbers and truth values match however they are spelled: "1" names 1.0 and "true" names True. The name is
    that of a label; decisions given as truth values beside it keep their own meaning.
    """
    if level == positive:
        return 1.0
    if part == "prediction" and _truth(positive) is None and (own := _truth(level)) is not None:
        return own
    if pa.types.is_boolean(kind):
        return float(_truth(level) == _truth(positive))
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return float(_number(level) == _number(positive))
    return 0.0


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def check_positive(labels: npt.NDArray[Any] | None, reading: Reading) -> None:
    """Raise a DataError where no row holds the positive label that is named; ``labels`` is non-zero for positives."""
    if reading.binary and reading.positive_label is not None and labels is not None and not labels.any():
        raise DataError(
            f"no row used has the value {reading.positive_label!r} in label column {reading.columns.label!r}, though "
            f"--positive-label names it; check its spelling"
        )


def _without(rows: Rows, drop: Mapping[str, Bools]) -> Rows:
    """Return the rows without the marked ones; a row with several faults counts for the first."""
    left = np.ones(rows.read, dtype=bool)
    excluded: dict[str, int] = {}
    for reason, bad in drop.items():
        excluded[reason] = int(np.count_nonzero(bad & left))
        left &= ~bad
    return replace(rows.mapped(lambda values: values[left]), excluded=excluded, kept=left)


def scores_of(batch: pa.RecordBatch, reading: Reading) -> Floats:
    """Return the scores of a batch that has been through the gate before: present, finite, in range."""
    name = reading.columns.score
    assert name is not None
    values: Floats = numbers(_column(batch, name), name, "score")[0]
    return values


# ---------------------------------------------------------------------- Arrow to numpy
#
# Buffers are read directly: Array.to_numpy and numpy.asarray import pandas on the first call, which costs
# an audit of a small file more than the audit itself.


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    return batch.column(batch.schema.get_field_index(name))


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
) -> tuple[npt.NDArray[Any], Bools | None]:
    """Return a numeric column as float64 (or as the integers it holds) and its null mask; else a ColumnError."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        array, kind = array.dictionary_decode(), kind.value_type
    if pa.types.is_null(kind):
        return np.zeros(len(array)), np.ones(len(array), dtype=bool)
    if pa.types.is_boolean(kind):
        array, kind = array.cast(pa.uint8()), pa.uint8()
    if pa.types.is_decimal(kind):
        array, kind = array.cast(pa.float64()), pa.float64()
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise ColumnError(
            f"{part} column {name!r} is of type {kind}, but numbers are needed"
            + (remedy or f"; convert it, or name another column with --{part.split()[-1]}")
        )
    values = primitive(array, kind.to_pandas_dtype())
    if not keep_integers:
        values = values.astype(np.float64, copy=False)
    return values, null_mask(array)


def group_codes(array: pa.Array, name: str) -> tuple[Ints, list[str], Bools | None]:
    """Return (code per row, level names, which rows are missing or None); missing rows code the last level."""
    kind = array.type
    if pa.types.is_nested(kind) and not pa.types.is_dictionary(kind):
        raise ColumnError(f"column {name!r} is of type {kind}, whose values cannot name groups")
    if pa.types.is_null(kind):
        return np.zeros(len(array), dtype=np.int64), [MISSING], np.ones(len(array), dtype=bool)
    if not pa.types.is_dictionary(kind):
        array = array.dictionary_encode()
    raw = array.dictionary.to_pylist()
    names, place = _level_names(raw)
    missing = null_mask(array)
    codes = primitive(array.indices, array.type.index_type.to_pandas_dtype())
    if missing is not None or any(p < 0 for p in place):
        where = np.array([*(p if p >= 0 else len(names) for p in place), len(names)], dtype=np.int64)
        wide = codes.astype(np.int64)  # the type of the codes may have no room for one more
        safe = wide if missing is None else np.where(missing, len(raw), wide)
        out = where[safe]
        return out, [*names, MISSING], out == len(names)
    if place == list(range(len(raw))):
        return codes.astype(np.int64), names, None
    return np.array(place, dtype=np.int64)[codes], names, None


def _level_names(raw: list[Any]) -> tuple[list[str], list[int]]:
    """Return the distinct level names and, for each raw value, its place among them (-1: missing)."""
    index: dict[str, int] = {}
    place = []
    for value in raw:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            place.append(-1)
            continue
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
        place.append(index.setdefault(text, len(index)))
    return list(index), place


def arrow_array(values: npt.NDArray[Any], missing: Bools | None = None) -> pa.Array:
    """Return an Arrow array of a numpy array's values; ``missing`` marks nulls.

    Built from buffers, since ``pa.array`` imports pandas on the first call.
    """
    kind = pa.from_numpy_dtype(values.dtype)
    bits = np.packbits(values, bitorder="little") if values.dtype == bool else np.ascontiguousarray(values)
    valid = None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    return pa.Array.from_buffers(kind, values.size, [valid, pa.py_buffer(bits)])
