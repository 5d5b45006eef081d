"""The counting query: statements that count a table on the engine that holds it, written once for all engines.

The statements are narwhals expressions, so they run on Ibis tables (databases), Polars lazy frames, DuckDB relations
and Spark frames. Two statements make the counts. The first has a row per cell, label and decision, as they are written
in the table, with the number of rows and every sum that bins cannot give. The second adds the score bins. The third,
for exact distances, has a row per score in the bins that matter. A bin is the integer that
:meth:`fairfix.data.counts.Grid.index` gives: a product with a power of two, a floor, and a comparison per threshold,
all of them exact.

The values come back as Arrow columns, which :mod:`fairfix.data.query_results` turns into counts. They go through the
same :class:`~fairfix.data.encoder.Encoder` as rows of a file, each standing for as many rows as were counted, so
groups, truth values, bands and the handling of missing entries are the same.

Narwhals leaves two things to the engine's own expressions: a natural logarithm in Ibis, which it would take to the base
2.718..., in decimal arithmetic on PostgreSQL; and long lists of bins in Ibis and DuckDB.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add, or_
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from fairfix.data.counts import BinSlice, Floats, Grid, Ints
from fairfix.data.data_spec import DataSpec
from fairfix.data.encoder import arrow_array, group_codes, numbers, primitive
from fairfix.data.names import threshold_sign
from fairfix.data.numeric_groups import Edges, halved, pieces
from fairfix.data.quantities import summed
from fairfix.data.scan import SORT_ROWS, fineness, grid_over

Frame = nw.LazyFrame[Any]
"""A table of some engine, or a statement about one."""

OBSERVED = ("1", "0")
"""Labels that a sum is made for where only the answer can tell which ones are positive."""

WITH_ARRAYS = frozenset(("duckdb", "postgres"))
"""Databases in which a list of bins is one text."""

LISTED_BINS, RANGES = 4096, 8
"""Most bins that a statement lists; more are asked for in this many ranges that contain them."""

EVERY_ROW = 1 << 62
"""More rows than any table has."""

TINY, HUGE = 1e-150, 1e150
"""Numbers whose square is no float, which is an error in PostgreSQL, where numpy has 0 and infinity."""

FAR = 1e308
"""Label of the rows above a threshold, and with a minus of those below."""


def framed(table: Any) -> Frame:
    """Return a table of an engine as a narwhals frame."""
    out: Frame = nw.from_native(table).lazy()
    return out


def number(value: float) -> nw.Expr:
    """Return a number as the exact double, which its shortest text stands for in every dialect."""
    return nw.lit(repr(float(value))).cast(nw.Float64)


def choose(condition: nw.Expr | bool, yes: nw.Expr, no: nw.Expr) -> nw.Expr:
    """Return one of two expressions; that for ``no`` also where the condition is null."""
    if isinstance(condition, bool):
        return yes if condition else no
    return nw.when(condition).then(yes).otherwise(no)


def is_number(kind: pa.DataType) -> bool:
    """Tell whether a type holds numbers."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def as_real(name: str, kind: pa.DataType, *, nan: bool = True) -> nw.Expr:
    """Return a column of numbers or truth values as doubles, NaN as null; without ``nan`` there is none."""
    column = nw.col(name)
    if pa.types.is_boolean(kind):
        return column.cast(nw.Int32).cast(nw.Float64)
    real = column.cast(nw.Float64)
    return real.fill_nan(None) if nan and not pa.types.is_integer(kind) else real


def as_level(name: str, texts: frozenset[str]) -> nw.Expr:
    """Return a column whose values have a meaning each; those in ``texts`` as texts."""
    return nw.col(name).cast(nw.String) if name in texts else nw.col(name)


def bin_of(score: nw.Expr, grid: Grid) -> nw.Expr:
    """Return the bin of a score, as :meth:`Grid.index` does; the score must lie inside the grid."""
    scaled = (score * number(math.ldexp(1.0, grid.exponent))).floor()
    if grid.exponent < 0:  # a small score times a small power would be too small for a float
        width = number(grid.width)
        negative = choose((score < 0) & (score >= -width), number(-1.0), scaled)
        scaled = choose((score >= 0) & (score < width), number(0.0), negative)
    passed = [choose(score >= number(cut), nw.lit(1), nw.lit(0)).cast(nw.Int64) for cut in grid.thresholds]
    return reduce(add, passed, scaled.cast(nw.Int64) - grid.first)


def in_bins(rows: Frame, name: str, bins: Ints, backend: str = "") -> Frame:
    """Add the truth column ``in_NAME``: whether a bin is one of some, which rise.

    Where there are too many to list, it is whether ranges hold it that contain them all.
    """
    column, out = nw.col(name), f"in_{name}"
    if bins.size == bins[-1] - bins[0] + 1:
        return rows.with_columns(column.is_between(int(bins[0]), int(bins[-1])).alias(out))
    listed = ",".join(map(str, bins.tolist()))
    table: Any = rows.to_native()
    if rows.implementation.is_duckdb():  # narwhals would search a list for every row
        table = table.project(f"*, {name} IN ({listed}) AS {out}")
        return framed(table)
    if backend in WITH_ARRAYS:  # an expression per bin takes Ibis 0.2 ms of its own
        import ibis

        places = ibis.literal(listed).split(",").cast("array<int64>").unnest().name("bin").as_table().bin
        return framed(table.mutate(**{out: table[name].isin(places)}))
    if bins.size <= LISTED_BINS:
        return rows.with_columns(column.is_in(bins.tolist()).alias(out))
    gaps = np.diff(bins)
    cuts = np.sort(np.argsort(gaps)[1 - RANGES :])
    cuts = cuts[gaps[cuts] > 1]
    ends = zip(bins[np.append(0, cuts + 1)].tolist(), bins[np.append(cuts, -1)].tolist(), strict=True)
    return rows.with_columns(reduce(or_, [column.is_between(*each) for each in ends]).alias(out))


def with_logarithm(rows: Frame) -> Frame:
    """Add ``log``, the natural logarithm of the positive column ``more``."""
    if rows.implementation.is_ibis():
        table: Any = rows.to_native()
        return framed(table.mutate(log=table.more.ln()))
    return rows.with_columns(log=nw.col("more").log())


def exp_minus(size: nw.Expr) -> nw.Expr:
    """Return ``exp(-v)`` for v >= 0, 0 where it would be too small for a float."""
    return choose(size > number(700.0), number(0.0), (number(0.0) - size).exp())


def chance_of(score: nw.Expr, scale: str) -> nw.Expr:
    """Return the probability that a score stands for, as ``to_probability`` does."""
    if scale == "percent":
        return score / number(100.0)
    if scale == "margin":
        return (number(1.0) + score) / number(2.0)
    if scale == "logit":
        small = exp_minus(score.abs())
        return choose(score >= 0, number(1.0), small) / (number(1.0) + small)
    return score


@dataclass(frozen=True)
class CountQueries:
    """The statements that count a table.

    Parameters
    ----------
    frame
        The table.
    schema
        Names and types of its columns, as fairfix reads them.
    data_spec
        Which columns are counted, and how their entries are understood.
    losses
        Sum the losses per group.
    backend
        Ibis's name of the database; empty for an engine that is none of Ibis.
    texts
        Columns whose values are read as texts where each has a meaning.
    complete
        No row was left out by the first statement, so no number is missing.
    """

    frame: Frame
    schema: pa.Schema
    data_spec: DataSpec
    losses: bool = False
    backend: str = ""
    texts: frozenset[str] = frozenset()
    complete: bool = False

    def kind(self, name: str) -> pa.DataType:
        """Return the type of a column."""
        return self.schema.field(name).type

    @property
    def bands(self) -> dict[str, Edges]:
        """Columns of numbers that the statements cut into bands, with the cuts where a band may begin."""
        out = {}
        for name, edges in self.data_spec.bands.items():
            if edges and is_number(self.kind(name)):
                out[name] = tuple(pieces(halved(edges) if pa.types.is_float16(self.kind(name)) else edges)[0])
        return out

    @property
    def banded(self) -> dict[str, str]:
        """Short name -> column of numbers that are cut into bands."""
        keys = self.data_spec.columns.cell_keys
        return {f"band_{i}": name for i, name in enumerate(keys) if name in self.bands}

    @property
    def reals(self) -> dict[str, str]:
        """Part -> column that is read as a real number."""
        columns = self.data_spec.columns
        parts = {"score": columns.score, "probability": columns.probability, "weight": columns.weight}
        if self.data_spec.task == "regression":
            parts["label"] = columns.label
        return {part: name for part, name in parts.items() if name}

    @property
    def coded(self) -> dict[str, str]:
        """Part -> column that is read as values that have a meaning each."""
        columns = self.data_spec.columns
        parts = {"label": columns.label, "prediction": columns.prediction}
        return {part: name for part, name in parts.items() if name and part not in self.reals}

    @property
    def keys(self) -> list[str]:
        """Short names of the columns whose values are counted."""
        return [*(f"key_{i}" for i in range(len(self.data_spec.columns.cell_keys))), *self.coded]

    def check_types(self) -> None:
        """Raise a ColumnError where a column has a type that its part cannot have."""
        for part, name in self.reals.items():
            numbers(pa.nulls(0, self.kind(name)), name, part.replace("probability", "decision probability"))
        for name in (*self.data_spec.columns.cell_keys, *self.coded.values()):
            if not self.data_spec.bands.get(name):
                group_codes(pa.nulls(0, self.kind(name)), name)

    def _real(self, name: str, *, complete: bool = False) -> nw.Expr:
        """Return a column of real numbers; SQLite keeps NaN as null."""
        return as_real(name, self.kind(name), nan=not complete and self.backend != "sqlite")

    def _cells(self) -> dict[str, nw.Expr]:
        """Return the columns of a cell, by short names; of a column with bands the number of the band."""
        out: dict[str, nw.Expr] = {}
        for i, name in enumerate(self.data_spec.columns.cell_keys):
            if edges := self.bands.get(name):
                real = self._real(name)
                steps = reduce(add, [choose(real >= number(edge), nw.lit(1), nw.lit(0)) for edge in edges])
                high = choose(real == number(math.inf), nw.lit(len(edges) + 1), steps)
                band = choose(real == number(-math.inf), nw.lit(-1), high)
                out[f"key_{i}"] = nw.when(~real.is_null()).then(band.cast(nw.Int32))
            else:
                out[f"key_{i}"] = as_level(name, self.texts)
        return out

    def _rows(self) -> Frame:
        """Return the rows with the columns that statements use, by short names."""
        coded = {part: as_level(name, self.texts) for part, name in self.coded.items()}
        if (above := self._above()) is not None:
            coded["label"] = above
        reals = {part: self._real(name, complete=self.complete) for part, name in self.reals.items()}
        banded = {name: self._real(of) for name, of in self.banded.items()}
        return self._stage(self.frame.select(**self._cells(), **coded, **reals, **banded))

    def _above(self) -> nw.Expr | None:
        """Return +1e308 for labels above their threshold, -1e308 for others; None where no numbers are compared."""
        name, test = self.coded.get("label"), self.data_spec.label_test
        if name is None or test is None or not is_number(self.kind(name)):
            return None
        sign, real = threshold_sign(self.data_spec.label_threshold), self._real(name)
        limit = number(test[1])
        above = real > limit if sign in (">", "<=") else real >= limit
        return nw.when(~real.is_null()).then(choose(above, number(FAR), number(-FAR)))

    def _counted(self, rows: Frame, keys: Sequence[str], made: Mapping[str, nw.Expr]) -> Frame:
        """Return a row per value of the keys, with the number of rows and the ends of the bands."""
        every: dict[str, nw.Expr] = {"n": nw.len()}
        for name in self.banded:
            every |= {f"low_{name}": nw.col(name).min(), f"high_{name}": nw.col(name).max()}
        every |= made
        return rows.group_by(*keys).agg(**every) if keys else rows.select(**every)

    def summary(self) -> Frame:
        """Return the first statement: a row per cell, label, decision and kind of missing entry, with all sums."""
        rows, parts, keys = self._rows(), list(self.reals), self.keys
        zero = nw.lit(0)
        faults = [choose(nw.col(part).is_null(), nw.lit(1 << i), zero) for i, part in enumerate(parts)]
        if "weight" in parts:
            faults.append(choose(nw.col("weight") == 0, nw.lit(1 << len(parts)), zero))
        if faults:
            rows, keys = rows.with_columns(state=reduce(add, faults).cast(nw.Int32)), [*keys, "state"]
        rows, sums = self._sums(rows)
        made: dict[str, nw.Expr] = {}
        for part in parts:
            made |= {f"low_{part}": nw.col(part).min(), f"high_{part}": nw.col(part).max()}
        rows = rows.with_columns(**{f"sum_{name}": value for name, value in sums.items()}) if sums else rows
        made |= {name: nw.col(f"sum_{name}").sum() for name in sums}
        return self._counted(rows, keys, made)

    def _stage(self, rows: Frame, **columns: nw.Expr) -> Frame:
        """Return rows with more columns.

        PostgreSQL would write a column's expression in the place of its every use, and work it out as often; a limit
        keeps it from that.
        """
        rows = rows.with_columns(**columns) if columns else rows
        return rows.head(EVERY_ROW) if self.backend == "postgres" else rows

    def _sums(self, rows: Frame) -> tuple[Frame, dict[str, nw.Expr]]:
        """Return rows with more columns, and what is summed over them, by the name of the sum."""
        columns = self.data_spec.columns
        rows, quantities = self._quantities(rows)
        weight = nw.col("weight") if columns.weight else None
        out: dict[str, nw.Expr] = {}
        if weight is not None:
            out |= {"w": weight, "ww": self.square(weight)}
        if columns.probability:
            yes, no = nw.col("probability"), number(1.0) - nw.col("probability")
            powers = (number(1.0),) if weight is None else (weight, self.square(weight))
            for p, power in enumerate(powers, 1):
                out |= {f"yes_{p}": power * yes, f"no_{p}": power * no}
        for name, column in quantities.items():
            value = nw.col(column)
            if name.startswith("impossible"):
                out[f"{name}_1"] = value if weight is None else weight * value
                continue
            parts = [value, self.square(value)]
            if weight is not None:
                parts = [power * part for power in (weight, self.square(weight)) for part in parts]
            out |= {f"{name}_{i}": part for i, part in enumerate(parts, 1)}
        return rows, out

    def _quantities(self, rows: Frame) -> tuple[Frame, dict[str, str]]:
        """Return rows with the quantities of :mod:`fairfix.data.quantities`, and the column of each by its name.

        A loss has a column for each label where the engine cannot tell which labels are positive. Where the observed
        label had the probability 0 its logarithm is left out, and the row counted as ``impossible``.
        """
        names, data_spec = summed(self.data_spec) if self.losses else (), self.data_spec
        if not names:
            return rows, {}
        score, one, zero = nw.col("score"), number(1.0), number(0.0)
        if data_spec.task == "regression":
            if "label" not in names:
                return rows, {"score": "score"}
            rows, error = self._stage(rows, error=score - nw.col("label")), nw.col("error")
            rows = self._stage(rows, square_loss=self.square(error), absolute_loss=error.abs())
            return rows, {name: name for name in ("score", "label", "square_loss", "absolute_loss")}
        logit, chance = data_spec.score_scale == "logit", nw.col("chance")
        small = {"small": exp_minus(score.abs())} if logit else {}
        rows = self._stage(rows, chance=chance_of(score, data_spec.score_scale), **small)
        out = {"score": "chance"}
        if "square_loss" not in names:
            return rows, out
        for variant, positive in self._variants().items():
            likely = choose(positive, chance, one - chance)
            more = one + nw.col("small") if logit else choose(likely <= 0, one, likely)
            rows = self._stage(rows, error=choose(positive, one - chance, chance), likely=likely, more=more)
            rows = self._stage(with_logarithm(rows))
            made = {f"square_loss{variant}": self.square(nw.col("error"))}
            if logit:  # log(1 + v) to 12 digits also where v is small
                v, toward = nw.col("small"), choose(positive, zero - score, score)
                series = v * (one - v * (number(0.5) - v * number(1 / 3)))
                made[f"log_loss{variant}"] = choose(toward > 0, toward, zero) + choose(
                    v < number(1e-4), series, nw.col("log")
                )
            else:
                made[f"log_loss{variant}"] = nw.col("log").abs()
                made[f"impossible{variant}"] = choose(nw.col("likely") <= 0, one, zero)
            rows = self._stage(rows, **made)
            out |= {name: name for name in made}
        return rows, out

    def _variants(self) -> dict[str, nw.Expr | bool]:
        """Return which labels are positive; for each that may be observed where only the answer can tell."""
        label, kind = nw.col("label"), self.kind(self.coded["label"])
        own = self.coded["label"] not in self.texts and not self.data_spec.positive_label
        if self.data_spec.label_test is not None:
            compare, limit = self.data_spec.label_test
            if is_number(kind):
                return {"": compare(label, number(limit))}
        elif own and pa.types.is_boolean(kind):
            return {"": label}
        elif own and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            return {"": label == 1}
        return {variant: variant == "1" for variant in OBSERVED}

    def _sound(self) -> Frame:
        """Return the rows without those that are left out for a number; the others have no missing number."""
        rows = self._rows()
        if self.complete or not self.reals:
            return rows
        sound = [~nw.col(part).is_null() for part in self.reals]
        return rows.filter(*sound, *([nw.col("weight") != 0] if "weight" in self.reals else []))

    def _weights(self, rows: Frame) -> tuple[Frame, dict[str, nw.Expr]]:
        """Return rows with what weights are summed of, and the sums."""
        if not self.data_spec.columns.weight:
            return rows, {}
        rows = rows.with_columns(sum_ww=self.square(nw.col("weight")))
        return rows, {"w": nw.col("weight").sum(), "ww": nw.col("sum_ww").sum()}

    def binned(self, grid: Grid) -> Frame:
        """Return the second statement: a row per cell, label, decision and score bin."""
        rows, weights = self._weights(self._stage(self._sound(), bin=bin_of(nw.col("score"), grid)))
        return self._counted(rows, [*self.keys, "bin"], weights)

    def scores(self, slices: Sequence[BinSlice], finer: Grid | None = None) -> Frame:
        """Return the third statement: a row per cell, label, decision and score in some bins, or finer bin there."""
        rows = self._sound()
        by_grid = dict[Grid, list[Ints]]()
        for one in slices:
            by_grid.setdefault(one.grid, []).append(one.bins)
        places = {f"place_{i}": bin_of(nw.col("score"), grid) for i, grid in enumerate(by_grid)}
        rows = rows.with_columns(**places)
        for name, bins in zip(places, by_grid.values(), strict=True):
            rows = in_bins(rows, name, np.unique(np.concatenate(bins)), self.backend)
        rows = rows.filter(reduce(or_, [nw.col(f"in_{name}") for name in places]))
        if finer is not None:
            rows = self._stage(rows, bin=bin_of(nw.col("score"), finer))
        rows, weights = self._weights(rows)
        return self._counted(rows, [*self.keys, "score" if finer is None else "bin"], weights)

    def square(self, value: nw.Expr) -> nw.Expr:
        """Return the square of numbers, 0 and infinity where it is no float, as numpy has them."""
        if self.backend in ("", "duckdb"):
            return value * value
        size = value.abs()
        own = choose(size > number(HUGE), number(math.inf), value * value)
        return choose(size < number(TINY), number(0.0), own)

    # ------------------------------------------------------------------ answers

    def batch(self, answer: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows as the encoder reads them: each group's own values, and the most extreme of its numbers."""
        columns: dict[str, pa.Array] = {}
        for i, name in enumerate(self.data_spec.columns.cell_keys):
            if name not in self.bands:
                columns[name] = answer[f"key_{i}"]
                continue
            low, high = (real_of(answer[f"{end}_band_{i}"]) for end in ("low", "high"))
            kind = self.kind(name)
            narrow = pa.types.is_float32(kind) or pa.types.is_float16(kind)
            own = kind.to_pandas_dtype() if narrow else np.float64
            columns[name] = arrow_array(np.where(np.isinf(high), high, low).astype(own))
        columns |= {name: answer[part] for part, name in self.coded.items()}
        tops = {"score": self.data_spec.range[1], "probability": 1.0}
        for part, name in self.reals.items():
            low, high = (real_of(answer[f"{end}_{part}"]) for end in ("low", "high"))
            worst = np.isinf(high) | (high > tops.get(part, math.inf))
            columns[name] = arrow_array(np.where(worst, high, low))
        return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def real_of(column: pa.Array) -> Floats:
    """Return numbers of an answer, null as NaN."""
    return np.asarray(numbers(column, "answer", "number"), dtype=np.float64)


def whole_of(column: pa.Array) -> Ints:
    """Return whole numbers of an answer."""
    return primitive(column.cast(pa.int64()), np.int64)


def planned(queries: CountQueries, rows: Frame, *, exact: bool) -> dict[str, Frame]:
    """Return the statements that would run, by purpose; ``rows`` yields the counted columns of all rows."""
    data_spec = queries.data_spec
    out = {"rows and sums per group, label and decision": queries.summary()}
    if not data_spec.columns.score:
        return out
    bins, _ = fineness(SORT_ROWS + 1, exact=exact)
    grid = grid_over(data_spec, bins, -1.0, 1.0)
    follows = "bins are finer or coarser, depending on rows, groups and scores in the first result"
    out[f"rows per score bin too; {follows}"] = queries.binned(grid)
    if exact:
        few = [BinSlice(grid, np.arange(3), 0)]
        finer = "rows in finer bins of those that can hold an exact distance, for each attribute, while they are many"
        out[finer] = queries.scores(few, grid.finer(1))
        out["scores of the bins that are left"] = queries.scores(few)
        out[f"instead of the second and third, where the first counts at most {SORT_ROWS:,} rows"] = rows
    return out
