"""Table: the one place where raw columns become validated, read-only arrays.

A batch of Arrow columns enters, :class:`Rows` comes out: a cell code per row, a
0/1 label, a finite score, a weight. What cannot be used is counted by reason,
what must not be there is a :class:`~fairfix.errors.DataError` naming column,
value, row and remedy. Whoever holds a ``Rows`` or a :class:`Table` never checks
again.

Group levels are text everywhere (``True`` and ``"True"`` are the same group), so
a group means the same in Parquet, in CSV and in a saved artifact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fairfix.data.counts import Bools, Floats, Ints
from fairfix.data.draws import apart
from fairfix.data.names import group_name
from fairfix.errors import ColumnError, DataError, UsageError

PLAIN_SCORE = "model score as it is"
"""Name of the column of a model's scores beside those that a repair made of them; no feature."""

MISSING = "(missing)"
"""The level of rows whose group is missing, under ``missing_group="group"``."""

Task = Literal["classification", "regression"]
ScoreScale = Literal["probability", "margin", "logit", "raw"]
MissingGroup = Literal["error", "group", "drop"]
MissingRows = Literal["error", "drop"]

SCORE_RANGE: Mapping[str, tuple[float, float]] = {"probability": (0.0, 1.0), "margin": (-1.0, 1.0)}
"""Scales whose values must lie in a known range."""

NATURAL_THRESHOLD: Mapping[str, float] = {"probability": 0.5, "margin": 0.0, "logit": 0.0}
"""Where the probability is one half; a raw score has no such point."""


@dataclass(frozen=True)
class Columns:
    """Which column plays which part; every other column is a feature.

    Attributes
    ----------
    protected
        Columns whose groups are compared.
    label
        Observed outcome: 0/1, or a real number for regression.
    score
        The model's score, or the real-valued prediction for regression.
    prediction
        Hard decisions (0/1), instead of or beside a score.
    probability
        Probability of a positive decision of a randomised rule (``p_positive`` of ``fairfix predict``).
    weight, strata, id
        Row weight; columns within whose levels groups are also compared; row identity.
    """

    protected: tuple[str, ...]
    label: str | None = None
    score: str | None = None
    prediction: str | None = None
    probability: str | None = None
    weight: str | None = None
    strata: tuple[str, ...] = ()
    id: str | None = None

    @property
    def cell_keys(self) -> tuple[str, ...]:
        """Columns that make up a cell: strata, then protected."""
        return (*self.strata, *self.protected)

    @property
    def counted(self) -> tuple[str, ...]:
        """Columns an audit has to read, each once."""
        single = (self.label, self.score, self.prediction, self.probability, self.weight)
        return tuple(dict.fromkeys((*self.cell_keys, *(name for name in single if name))))

    @property
    def roles(self) -> tuple[str, ...]:
        """Columns that are not features."""
        return (*self.counted, *((self.id,) if self.id else ()))

    def check(self, *, protected: bool = True) -> None:
        """Raise where one column plays two parts that exclude each other, or none is ``protected`` and one must be."""
        if protected and not self.protected:
            raise UsageError("no protected column is named; name one with --protected COLUMN")
        parts = [
            *((name, "--strata") for name in self.strata),
            *((name, "--protected") for name in self.protected),
            (self.label, "--label"),
            (self.score, "--score"),
            (self.prediction, "--prediction"),
            (self.probability, "--probability"),
            (self.weight, "--weight"),
        ]
        seen: dict[str, str] = {}
        for name, option in parts:
            if name is None:
                continue
            if name in seen:
                raise UsageError(
                    f"column {name!r} is given to {seen[name]} and to {option}; it can play one part"
                )
            seen[name] = option
        if self.prediction and self.probability:
            raise UsageError("--prediction and --probability both say what was decided; give one of them")


@dataclass(frozen=True)
class Reading:
    """How columns are to be understood: the settings of the gate.

    ``thresholds`` are in the units of the score; the first one makes the decisions.
    """

    columns: Columns
    task: Task = "classification"
    score_scale: ScoreScale = "probability"
    thresholds: tuple[float, ...] = ()
    positive_label: str | None = None
    missing_group: MissingGroup = "error"
    missing_rows: MissingRows = "error"
    max_groups: int = 1000

    def check(self, *, protected: bool = True) -> None:
        """Raise where the columns contradict each other or a threshold cannot be one.

        Parameters
        ----------
        protected
            Whether a protected column must be named; a predictor that looks at none needs none.

        Raises
        ------
        UsageError
            Names the column or the threshold.
        """
        self.columns.check(protected=protected)
        low, high = (-math.inf, math.inf)
        if self.task == "classification":
            low, high = SCORE_RANGE.get(self.score_scale, (low, high))
        for cut in self.thresholds:
            if not (math.isfinite(cut) and low <= cut <= high):
                raise UsageError(
                    f"--threshold {cut:g} is no score of the scale {self.score_scale!r}"
                    + (f", which goes from {low:g} to {high:g}" if math.isfinite(low) else "")
                )

    def in_type_of(self, schema: pa.Schema) -> Reading:
        """Return the reading with its thresholds in the float type of the score column.

        ``float32(0.7) >= 0.7`` holds in float32 and fails after a cast to float64, so a threshold has to be
        rounded as the scores were.
        """
        name = self.columns.score
        if name is None or name not in schema.names:
            return self
        kind = schema.field(name).type
        if not (pa.types.is_float32(kind) or pa.types.is_float16(kind)):
            return self
        with np.errstate(over="ignore"):  # above all scores of that type lies infinity
            rounded = np.array(self.thresholds).astype(kind.to_pandas_dtype())
        return replace(self, thresholds=tuple(float(cut) for cut in rounded))

    @property
    def binary(self) -> bool:
        """Whether labels are 0/1."""
        return self.task == "classification" and self.columns.label is not None

    @property
    def threshold(self) -> float | None:
        """The score at and above which a decision is positive; None when decisions are read or undefined."""
        decided = self.columns.prediction or self.columns.probability
        return None if decided or not self.thresholds else self.thresholds[0]

    @property
    def cut(self) -> float:
        """The threshold as a probability: 0.5 where none is given, or the scale of the score has no probability."""
        return self.cuts[0] if self.cuts else 0.5

    @property
    def cuts(self) -> tuple[float, ...]:
        """The thresholds as probabilities; none where the scale of the score has no probability."""
        if self.score_scale not in NATURAL_THRESHOLD:
            return ()
        return tuple(float(cut) for cut in to_probability(np.array(self.thresholds), self.score_scale))


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
        """Return the batch's rows, checked; rows that miss a value are left out and counted.

        Raises
        ------
        DataError
            A score is infinite, out of range or not a number; a label is not binary; a weight is negative.
        """
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
        flat = _flatten([codes for codes, _ in coded], sizes)
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
        known, limit = self._levels[name], self.reading.max_groups
        if len(levels) > limit:  # a dictionary may name levels that no row has
            known.update(levels[code] for code in np.unique(codes))
        else:
            known.update(levels)
        if len(known) > limit:
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
        values, missing = _numbers(_column(batch, name), name, part)
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
        values, missing = _numbers(array, name, part, keep_integers=True)
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
    """Raise where rows were left out although the policy is ``error``.

    Raises
    ------
    DataError
        Names the column's part, the number of rows and the option that decides.
    """
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
    """Raise where the positive label is named and no row holds it; ``labels`` is non-zero for positives.

    Raises
    ------
    DataError
        Names the column and the value.
    """
    if reading.binary and reading.positive_label is not None and labels is not None and not labels.any():
        raise DataError(
            f"no row used has the value {reading.positive_label!r} in label column {reading.columns.label!r}, though "
            f"--positive-label names it; check its spelling"
        )


def _flatten(codes: Sequence[Ints], sizes: Sequence[int]) -> Ints:
    """Return the row-major product code of several coded columns."""
    flat = codes[0]
    for more, size in zip(codes[1:], sizes[1:], strict=True):
        flat = flat * size
        flat += more
    return flat


def _without(rows: Rows, drop: Mapping[str, Bools]) -> Rows:
    """Return the rows without the marked ones; a row with several faults counts for the first."""
    left = np.ones(rows.read, dtype=bool)
    excluded: dict[str, int] = {}
    for reason, bad in drop.items():
        excluded[reason] = int(np.count_nonzero(bad & left))
        left &= ~bad

    def cut(values: npt.NDArray[Any] | None) -> Any:
        return None if values is None else values[left]

    return replace(
        rows,
        cell=rows.cell[left],
        label=cut(rows.label),
        score=cut(rows.score),
        decision=cut(rows.decision),
        weight=cut(rows.weight),
        excluded=excluded,
        kept=left,
    )


def scores_of(batch: pa.RecordBatch, reading: Reading) -> Floats:
    """Return the scores of a batch that has been through the gate before: present, finite, in range."""
    name = reading.columns.score
    assert name is not None
    values: Floats = _numbers(_column(batch, name), name, "score")[0]
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


def _numbers(
    array: pa.Array, name: str, part: str, *, keep_integers: bool = False
) -> tuple[npt.NDArray[Any], Bools | None]:
    """Return a numeric column as float64 (or as the integers it holds) and its null mask."""
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
            f"{part} column {name!r} is of type {kind}, but numbers are needed; "
            f"convert it, or name another column with --{part.split()[-1]}"
        )
    values = primitive(array, kind.to_pandas_dtype())
    if not keep_integers:
        values = values.astype(np.float64, copy=False)
    return values, null_mask(array)


def group_codes(array: pa.Array, name: str) -> tuple[Ints, list[str], Bools | None]:
    """Return (code per row, level names, which rows are missing or None); missing rows code the last level.

    Raises
    ------
    ColumnError
        The column's type cannot name groups (lists, structs, maps).
    """
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


# ---------------------------------------------------------------------- whole tables


@dataclass(frozen=True)
class Groups:
    """Groups of a table's rows: a code per row and a name per code.

    Attributes
    ----------
    columns
        Columns whose levels, taken together, make a group.
    levels
        One tuple of column levels per group, sorted.
    codes
        Index into ``levels``, shape (n,).
    """

    columns: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]
    codes: Ints

    @property
    def names(self) -> tuple[str, ...]:
        """Printable names, in the order of ``levels``."""
        return tuple(group_name(level) for level in self.levels)


@dataclass(frozen=True)
class Table:
    """A whole data set in memory, validated; all arrays are read-only and of length n.

    Attributes
    ----------
    features
        Columns without a role, as Arrow data, for methods that learn from them.
    draw
        Makes of row numbers a number in [0, 1) for each, of the rows' identities, as if these rows were all there are;
        None where nobody knows identities.
    """

    reading: Reading
    rows: Rows
    features: pa.Table
    draw: Callable[[Ints], Floats] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def groups(self, columns: Sequence[str] | None = None) -> Groups:
        """Return the groups of some cell columns (default: the cells of all protected columns)."""
        keys = self.reading.columns.cell_keys
        names = tuple(self.reading.columns.protected if columns is None else columns)
        at = [keys.index(name) for name in names]
        level_of_cell = [tuple(cell[i] for i in at) for cell in self.rows.cells]
        present = np.flatnonzero(np.bincount(self.rows.cell))
        levels = tuple(sorted({level_of_cell[c] for c in present}))
        place = {level: i for i, level in enumerate(levels)}
        into = np.array([place.get(level, -1) for level in level_of_cell], dtype=np.int64)
        return Groups(names, levels, _frozen(into[self.rows.cell]))

    def take(self, rows: Ints) -> Table:
        """Return the table of the given row numbers, in that order."""

        def at(values: npt.NDArray[Any] | None) -> Any:
            return None if values is None else _frozen(values[rows])

        some = replace(
            self.rows,
            cell=at(self.rows.cell),
            label=at(self.rows.label),
            score=at(self.rows.score),
            decision=at(self.rows.decision),
            weight=at(self.rows.weight),
            read=rows.size,
            excluded={},
            kept=None,
        )
        features = self.features.take(arrow_array(rows)) if self.features.num_columns else self.features
        whole = self.draw
        draw = None if whole is None else lambda some: whole(rows[some])
        return replace(self, rows=some, features=features, draw=draw)

    @property
    def weight(self) -> Floats:
        """Row weights, shape (n,); ones when there are none."""
        return np.ones(len(self)) if self.rows.weight is None else self.rows.weight

    def with_decision(self, decision: Floats) -> Table:
        """Return the table with the given probabilities of a positive decision instead of its own."""
        columns = replace(self.reading.columns, prediction=None, probability="p_positive")
        return replace(
            self,
            reading=replace(self.reading, columns=columns),
            rows=replace(self.rows, decision=_frozen(np.array(decision, dtype=np.float64))),
        )

    def with_score(self, values: Floats) -> Table:
        """Return the table with the given scores instead of its own: probabilities, or values of a regression."""
        columns = replace(self.reading.columns, score="prediction", prediction=None, probability=None)
        cuts = (self.reading.cuts or (0.5,)) if self.reading.task == "classification" else ()
        reading = replace(self.reading, columns=columns, score_scale="probability", thresholds=cuts)
        rows = replace(self.rows, score=_frozen(np.array(values, dtype=np.float64)), decision=None)
        return replace(self, reading=reading, rows=rows)

    @cached_property
    def draws(self) -> Floats:
        """A number in [0, 1) per row, shape (n,): the given ones, else from a hash of the row's own values."""
        return apart(_hashes(self), {}) if self.draw is None else self.draw(np.arange(len(self)))

    @property
    def has_equals(self) -> Bools:
        """Which rows have the levels, score and features of another row, shape (n,)."""
        _, place, many = np.unique(_hashes(self), return_inverse=True, return_counts=True)
        return np.asarray(many[place] > 1)

    @property
    def chance(self) -> Floats | None:
        """The probability of a positive decision, shape (n,), 0 or 1 by threshold; None where nothing is decided."""
        if self.rows.decision is not None:
            return self.rows.decision
        if self.reading.threshold is None or self.reading.task == "regression" or self.rows.score is None:
            return None
        return (self.rows.score >= self.reading.threshold).astype(np.float64)

    @property
    def probability(self) -> Floats:
        """The score as a probability, shape (n,).

        Raises
        ------
        DataError
            There is no score, or its scale has no probability (``raw``).
        """
        if self.rows.score is None:
            raise DataError("a score column is needed; name it with --score")
        return to_probability(self.rows.score, self.reading.score_scale)

    @property
    def ranking(self) -> Floats:
        """What orders the rows, shape (n,): ``2 p - 1``, or a raw score as it is.

        Raises
        ------
        DataError
            There is no score.
        """
        if self.rows.score is not None and self.reading.score_scale == "raw":
            return self.rows.score.copy()
        return 2.0 * self.probability - 1.0


def _hashes(table: Table) -> npt.NDArray[np.uint64]:
    """Return a hash of 53 bits of the levels, score and features of each row, shape (n,)."""
    from pandas import DataFrame
    from pandas.util import hash_pandas_object

    frame = table.features.to_pandas() if table.features.num_columns else DataFrame(index=range(len(table)))
    frame = frame.set_axis([f"feature {name}" for name in frame.columns], axis=1)
    frame["cell"] = np.array([group_name(cell) for cell in table.rows.cells], dtype=object)[table.rows.cell]
    if table.rows.score is not None:
        frame["score"] = table.rows.score
    mixed = hash_pandas_object(frame, index=False).to_numpy()
    return np.asarray(mixed >> np.uint64(11))


def to_probability(score: Floats, scale: ScoreScale) -> Floats:
    """Return the probability that a score on the given scale stands for."""
    if scale == "probability":
        return score
    if scale == "margin":
        return (1.0 + score) / 2.0
    if scale == "logit":
        return 1.0 / (1.0 + np.exp(-np.clip(score, -745.0, 745.0)))
    raise DataError("a raw score stands for no probability; say --score-scale probability, margin or logit")


def assemble(
    batches: Sequence[pa.RecordBatch], reading: Reading, where: str = "", raw: Sequence[str] = ()
) -> Table:
    """Return one table of all batches, with every policy on missing values applied.

    ``raw`` names columns with a role that are kept among the features as they come.

    Raises
    ------
    DataError
        No rows, or rows that the policies do not allow to be left out.
    """
    encoder = Encoder(reading, where)
    parts = [encoder.encode(batch) for batch in batches]
    excluded: dict[str, int] = {}
    for part in parts:
        for reason, count in part.excluded.items():
            excluded[reason] = excluded.get(reason, 0) + count
    read = sum(part.read for part in parts)
    check_excluded(excluded, read, reading)
    if not sum(len(part) for part in parts):
        raise DataError("no rows are left to work with" if read else "the data has no rows")

    def joined(pick: Callable[[Rows], npt.NDArray[Any] | None]) -> Any:
        columns = [values for part in parts if (values := pick(part)) is not None]
        return _frozen(np.concatenate(columns)) if columns else None

    rows = Rows(
        joined(lambda r: r.cell),
        encoder.cells,
        joined(lambda r: r.label),
        joined(lambda r: r.score),
        joined(lambda r: r.decision),
        joined(lambda r: r.weight),
        read,
        excluded,
    )
    check_positive(rows.label, reading)
    return Table(reading, rows, _features(batches, parts, reading, raw))


def _features(
    batches: Sequence[pa.RecordBatch], parts: Sequence[Rows], reading: Reading, raw: Sequence[str]
) -> pa.Table:
    """Return the columns without a role and those asked for, for the rows that were kept."""
    roles = set(reading.columns.roles) - set(raw)
    names = [name for name in batches[0].schema.names if name not in roles]
    kept = []
    for batch, part in zip(batches, parts, strict=True):
        some = batch.select(names)
        kept.append(some if part.kept is None else some.take(arrow_array(np.flatnonzero(part.kept))))
    try:
        return pa.Table.from_batches(kept)
    except pa.ArrowInvalid as error:
        said = " ".join(str(error).split())
        raise DataError(f"the feature columns differ in type from file to file: {said}") from error


def _frozen(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    values = np.ascontiguousarray(values)
    values.setflags(write=False)
    return values
