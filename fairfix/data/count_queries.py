"""Push-down: what is asked of a table that stays in its database, as statements of Ibis.

Two questions make the counts. The first has a row per cell, label and decision, as they are written in the table, with
the number of rows and every sum that bins cannot give; the second adds the score bins. The third, for exact distances,
has a row per score in the bins that matter. A bin in SQL is the integer that :meth:`fairfix.data.counts.Grid.index`
gives: a product with a power of two, a floor, and a comparison per threshold, all of them exact.

The values come back as Arrow columns, of which :mod:`fairfix.data.query_results` makes counts. They go through the same
:class:`~fairfix.data.encoder.Encoder` as rows of a file, each standing for as many rows as were counted, so groups,
truth values, bands and what is done with missing entries are the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add, or_
from typing import Any

import numpy as np
import pyarrow as pa

from fairfix.data.counts import Floats, Grid, Ints, Slice
from fairfix.data.encoder import arrow_array, group_codes, numbers, primitive
from fairfix.data.names import threshold_sign
from fairfix.data.numeric_groups import Edges, halved, pieces
from fairfix.data.quantities import summed
from fairfix.data.reading import Reading
from fairfix.data.scan import SORT_ROWS, fineness, fixed_grid

Expression = Any
"""What Ibis makes of columns; it is imported by whoever opens a database."""

OBSERVED = ("1", "0")
"""Labels that a sum is made for where only the answer can tell which ones are positive."""

WITH_ARRAYS = frozenset(("duckdb", "postgres"))
"""Databases in which a list of bins is one text."""

LISTED_BINS, RANGES = 4096, 8
"""So many bins are listed in a question to another database; more are asked for in so many ranges."""

EVERY_ROW = 1 << 62
"""More rows than any table has."""

TINY, HUGE = 1e-150, 1e150
FAR = 1e308
"""Label of the rows above a threshold, and with a minus of those below."""
"""Numbers whose square is no float, which is an error in PostgreSQL, where numpy has 0 and infinity."""


def number(value: float) -> Expression:
    """Return a number as the very double it is, which its shortest text stands for in every dialect."""
    import ibis

    return ibis.literal(repr(float(value))).cast("float64")


def as_real(column: Expression, *, whole: bool = False) -> Expression:
    """Return a column of numbers or truth values as doubles, NaN as null; a whole one has neither."""
    import ibis

    kind = column.type()
    if kind.is_boolean():
        return column.cast("int32").cast("float64")
    real = column if kind.is_float64() else column.cast("float64")
    if whole or kind.is_integer() or column._find_backend(use_default=True).name == "sqlite":
        return real  # SQLite keeps NaN as null
    return ibis.ifelse(real.isnan(), ibis.null("float64"), real)


def bin_of(score: Expression, grid: Grid) -> Expression:
    """Return the bin of a score, as :meth:`Grid.index` does; the score must lie inside the grid."""
    import ibis

    scaled = (score * number(math.ldexp(1.0, grid.exponent))).floor()
    if grid.exponent < 0:  # a small score times a small power would be too small for a float
        width = number(grid.width)
        small = [(score >= 0) & (score < width), (score < 0) & (score >= -width)]
        scaled = ibis.cases((small[0], number(0.0)), (small[1], number(-1.0)), else_=scaled)
    passed = [ibis.ifelse(score >= number(cut), 1, 0).cast("int64") for cut in grid.thresholds]
    return reduce(add, passed, scaled.cast("int64") - grid.first)


def in_bins(place: Expression, bins: Ints, backend: str = "") -> Expression:
    """Return whether a bin is one of some, which rise; where they are too many to be listed, of ranges that hold them.

    Where the database has arrays the list is a text, since an expression per bin takes Ibis 0.2 ms of its own.
    """
    import ibis

    if bins.size == bins[-1] - bins[0] + 1:
        return place.between(int(bins[0]), int(bins[-1]))
    if backend in WITH_ARRAYS:
        listed = ibis.literal(",".join(map(str, bins.tolist()))).split(",").cast("array<int64>")
        return place.isin(listed.unnest().name("bin").as_table().bin)
    if bins.size <= LISTED_BINS:
        return place.isin(bins.tolist())
    gaps = np.diff(bins)
    cuts = np.sort(np.argsort(gaps)[1 - RANGES :])
    cuts = cuts[gaps[cuts] > 1]
    ends = zip(bins[np.append(0, cuts + 1)].tolist(), bins[np.append(cuts, -1)].tolist(), strict=True)
    return reduce(or_, [place.between(first, last) for first, last in ends])


def log1p(value: Expression) -> Expression:
    """Return ``log(1 + v)`` for v in [0, 1], to 12 digits also where v is small."""
    import ibis

    series = value * (number(1.0) - value * (number(0.5) - value * number(1 / 3)))
    return ibis.ifelse(value < number(1e-4), series, (number(1.0) + value).ln())


def exp_minus(size: Expression) -> Expression:
    """Return ``exp(-v)`` for v >= 0, 0 where it would be too small for a float."""
    import ibis

    return ibis.ifelse(size > number(700.0), number(0.0), (-size).exp())


def chance_of(score: Expression, scale: str) -> Expression:
    """Return the probability that a score stands for, as ``to_probability`` does."""
    import ibis

    if scale == "percent":
        return score / number(100.0)
    if scale == "margin":
        return (number(1.0) + score) / number(2.0)
    if scale == "logit":
        small = exp_minus(score.abs())
        return ibis.ifelse(score >= 0, number(1.0), small) / (number(1.0) + small)
    return score


@dataclass(frozen=True)
class Questions:
    """What is asked of a table for a reading.

    ``losses`` asks for sums of losses, ``backend`` is what Ibis calls the database; ``whole`` says that the first
    answer left no row out, so that no number is missing.
    """

    table: Expression
    reading: Reading
    losses: bool = False
    backend: str = "duckdb"
    whole: bool = False

    @property
    def bands(self) -> dict[str, Edges]:
        """Columns of numbers that are cut into bands in the database, with the cuts where a band may begin."""
        out = {}
        for name, edges in self.reading.bands.items():
            kind = self.table[name].type()
            if edges and kind.is_numeric():
                out[name] = tuple(pieces(halved(edges) if kind.is_float16() else edges)[0])
        return out

    @property
    def banded(self) -> dict[str, str]:
        """Short name -> column of numbers that are cut into bands."""
        keys = self.reading.columns.cell_keys
        return {f"band_{i}": name for i, name in enumerate(keys) if name in self.bands}

    @property
    def reals(self) -> dict[str, str]:
        """Part -> column of what is read as a real number."""
        columns = self.reading.columns
        parts = {"score": columns.score, "probability": columns.probability, "weight": columns.weight}
        if self.reading.task == "regression":
            parts["label"] = columns.label
        return {part: name for part, name in parts.items() if name}

    @property
    def coded(self) -> dict[str, str]:
        """Part -> column of what is read as values that have a meaning each."""
        columns = self.reading.columns
        parts = {"label": columns.label, "prediction": columns.prediction}
        return {part: name for part, name in parts.items() if name and part not in self.reals}

    def _cells(self) -> dict[str, Expression]:
        """Return the columns of a cell, by short names; of a column with bands the number of the band."""
        import ibis

        out = {}
        for i, name in enumerate(self.reading.columns.cell_keys):
            if edges := self.bands.get(name):
                real = self._real(name)
                steps = [ibis.ifelse(real >= number(edge), 1, 0) for edge in edges]
                ends = ((real == number(-math.inf), -1), (real == number(math.inf), len(edges) + 1))
                band = ibis.cases(*ends, else_=reduce(add, steps))
                out[f"key_{i}"] = ibis.ifelse(real.isnull(), ibis.null("int32"), band.cast("int32"))
            else:
                out[f"key_{i}"] = as_coded(self.table[name])
        return out

    def _real(self, name: str, *, whole: bool = False) -> Expression:
        """Return a column of real numbers; SQLite keeps no NaN, and has no word for it."""
        return as_real(self.table[name], whole=whole or self.backend == "sqlite")

    def _rows(self) -> Expression:
        """Return the rows with what questions are about, by short names."""
        coded = {part: as_coded(self.table[name]) for part, name in self.coded.items()}
        if (above := self._above()) is not None:
            coded["label"] = above
        reals = {part: self._real(name, whole=self.whole) for part, name in self.reals.items()}
        banded = {name: self._real(of) for name, of in self.banded.items()}
        return self._stage(self.table.select(**self._cells(), **coded, **reals, **banded))

    def _above(self) -> Expression | None:
        """Return +1e308 for labels above their threshold, -1e308 for others; None where no numbers are compared."""
        import ibis

        name, test = self.coded.get("label"), self.reading.label_test
        if name is None or test is None or not self.table[name].type().is_numeric():
            return None
        sign, real = threshold_sign(self.reading.label_threshold), self._real(name)
        limit = number(test[1])
        above = real > limit if sign in (">", "<=") else real >= limit
        high = ibis.ifelse(above, number(FAR), number(-FAR))
        return ibis.ifelse(real.isnull(), ibis.null("float64"), high)

    def _asked(self, rows: Expression, keys: Sequence[str], made: Mapping[str, Expression]) -> Expression:
        """Return a question: a row per value of the keys, with the number of rows and the ends of the bands."""
        every: dict[str, Expression] = {"n": rows.count()}
        for name in self.banded:
            every |= {f"low_{name}": rows[name].min(), f"high_{name}": rows[name].max()}
        every |= made
        return rows.group_by(*keys).aggregate(**every) if keys else rows.aggregate(**every)

    @property
    def keys(self) -> list[str]:
        """Short names of the columns whose values are counted."""
        return [*(f"key_{i}" for i in range(len(self.reading.columns.cell_keys))), *self.coded]

    def summary(self) -> Expression:
        """Return the first question: a row per cell, label, decision and kind of missing entry, with all sums."""
        import ibis

        rows, parts, keys = self._rows(), list(self.reals), self.keys
        faults = [ibis.ifelse(rows[part].isnull(), 1 << i, 0) for i, part in enumerate(parts)]
        if "weight" in parts:
            faults.append(ibis.ifelse((rows.weight == 0).fill_null(False), 1 << len(parts), 0))
        if faults:
            rows, keys = rows.mutate(state=reduce(add, faults).cast("int32")), [*keys, "state"]
        rows, sums = self._sums(rows)
        made: dict[str, Expression] = {}
        for part in parts:
            made |= {f"low_{part}": rows[part].min(), f"high_{part}": rows[part].max()}
        made |= {name: value.sum() for name, value in sums.items()}
        return self._asked(rows, keys, made)

    def _stage(self, rows: Expression, **columns: Expression) -> Expression:
        """Return rows with more columns.

        PostgreSQL would write a column's expression in the place of its every use, and work it out as often; a limit
        keeps it from that.
        """
        rows = rows.mutate(**columns) if columns else rows
        return rows.limit(EVERY_ROW) if self.backend == "postgres" else rows

    def _sums(self, rows: Expression) -> tuple[Expression, dict[str, Expression]]:
        """Return rows with more columns, and what is summed over them, by the name of the sum."""
        columns = self.reading.columns
        rows, quantities = self._quantities(rows)
        weight = rows.weight if columns.weight else None
        out: dict[str, Expression] = {}
        if weight is not None:
            out |= {"w": weight, "ww": self.square(weight)}
        if columns.probability:
            yes, no = rows.probability, number(1.0) - rows.probability
            powers = (number(1.0),) if weight is None else (weight, self.square(weight))
            for p, power in enumerate(powers, 1):
                out |= {f"yes_{p}": power * yes, f"no_{p}": power * no}
        for name, column in quantities.items():
            value = rows[column]
            if name.startswith("impossible"):
                out[f"{name}_1"] = value if weight is None else weight * value
                continue
            parts = [value, self.square(value)]
            if weight is not None:
                parts = [power * part for power in (weight, self.square(weight)) for part in parts]
            out |= {f"{name}_{i}": part for i, part in enumerate(parts, 1)}
        return rows, out

    def _quantities(self, rows: Expression) -> tuple[Expression, dict[str, str]]:
        """Return rows with the quantities of :mod:`fairfix.data.quantities`, and by the name of each its column.

        A loss has one for each label where SQL cannot tell which labels are positive. Where the observed label had the
        probability 0 its logarithm is left out, and the row counted as ``impossible``.
        """
        import ibis

        names, reading = summed(self.reading) if self.losses else (), self.reading
        if not names:
            return rows, {}
        if reading.task == "regression":
            if "label" not in names:
                return rows, {"score": "score"}
            rows = self._stage(rows, error=rows.score - rows.label)
            rows = self._stage(rows, square_loss=self.square(rows.error), absolute_loss=rows.error.abs())
            return rows, {name: name for name in ("score", "label", "square_loss", "absolute_loss")}
        rows = self._stage(rows, chance=chance_of(rows.score, reading.score_scale))
        out = {"score": "chance"}
        if "square_loss" not in names:
            return rows, out
        for variant, positive in self._variants(rows).items():
            one = number(1.0)
            if reading.score_scale == "logit":
                toward = ibis.ifelse(positive, -rows.score, rows.score)
                small = {"small": exp_minus(rows.score.abs()), "toward": ibis.greatest(toward, number(0.0))}
                rows = self._stage(rows, error=ibis.ifelse(positive, one - rows.chance, rows.chance), **small)
                loss = {f"log_loss{variant}": rows.toward + log1p(rows.small)}
            else:
                likely = ibis.ifelse(positive, rows.chance, one - rows.chance)
                rows = self._stage(
                    rows, error=ibis.ifelse(positive, one - rows.chance, rows.chance), likely=likely
                )
                never = rows.likely <= 0
                loss = {
                    f"log_loss{variant}": ibis.ifelse(never, one, rows.likely).ln().abs(),
                    f"impossible{variant}": ibis.ifelse(never, one, number(0.0)),
                }
            made = {f"square_loss{variant}": self.square(rows.error), **loss}
            rows = self._stage(rows, **made)
            out |= {name: name for name in made}
        return rows, out

    def _variants(self, rows: Expression) -> dict[str, Expression]:
        import ibis

        kind = self.table[self.coded["label"]].type()
        if self.reading.label_test is not None:
            compare, limit = self.reading.label_test
            if kind.is_numeric():
                return {"": compare(rows.label, number(limit))}
            return {variant: ibis.literal(variant == "1") for variant in OBSERVED}
        if kind.is_boolean() and not self.reading.positive_label:
            return {"": rows.label}
        if (kind.is_integer() or kind.is_floating()) and not self.reading.positive_label:
            return {"": rows.label == 1}
        return {variant: ibis.literal(variant == "1") for variant in OBSERVED}

    def _sound(self) -> Expression:
        """Return the rows without those that are left out for a number; the others have no missing number."""
        rows = self._rows()
        if self.whole:
            return rows
        sound = [rows[part].notnull() for part in self.reals]
        if "weight" in self.reals:
            sound.append(rows.weight != 0)
        return rows.filter(sound)

    def _weights(self, rows: Expression) -> dict[str, Expression]:
        weighted = self.reading.columns.weight
        return {"w": rows.weight.sum(), "ww": self.square(rows.weight).sum()} if weighted else {}

    def binned(self, grid: Grid) -> Expression:
        """Return the second question: a row per cell, label, decision and score bin."""
        rows = self._sound()
        rows = self._stage(rows, bin=bin_of(rows.score, grid))
        return self._asked(rows, [*self.keys, "bin"], self._weights(rows))

    def scores(self, slices: Sequence[Slice], finer: Grid | None = None) -> Expression:
        """Return the third question: a row per cell, label, decision and score in some bins, or finer bin there."""
        rows = self._sound()
        by_grid = dict[Grid, list[Ints]]()
        for one in slices:
            by_grid.setdefault(one.grid, []).append(one.bins)
        inside = [
            in_bins(bin_of(rows.score, grid), np.unique(np.concatenate(bins)), self.backend)
            for grid, bins in by_grid.items()
        ]
        rows = rows.filter(reduce(or_, inside))
        if finer is not None:
            rows = self._stage(rows, bin=bin_of(rows.score, finer))
        place = "score" if finer is None else "bin"
        return self._asked(rows, [*self.keys, place], self._weights(rows))

    def square(self, value: Expression) -> Expression:
        """Return the square of numbers, 0 and infinity where it is no float, as numpy has them."""
        import ibis

        if self.backend == "duckdb":
            return value * value
        size = value.abs()
        out = ((size < number(TINY), number(0.0)), (size > number(HUGE), number(math.inf)))
        return ibis.cases(*out, else_=value * value)

    # ------------------------------------------------------------------ answers

    def batch(self, answer: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows as the encoder reads them: each group's own values, of numbers the end that is most amiss."""
        columns: dict[str, pa.Array] = {}
        for i, name in enumerate(self.reading.columns.cell_keys):
            if name not in self.bands:
                columns[name] = answer[f"key_{i}"]
                continue
            low, high = (real_of(answer[f"{end}_band_{i}"]) for end in ("low", "high"))
            kind = self.table[name].type()
            narrow = kind.to_pandas().type if kind.is_float32() or kind.is_float16() else np.float64
            columns[name] = arrow_array(np.where(np.isinf(high), high, low).astype(narrow))
        columns |= {name: answer[part] for part, name in self.coded.items()}
        tops = {"score": self.reading.range[1], "probability": 1.0}
        for part, name in self.reals.items():
            low, high = (real_of(answer[f"{end}_{part}"]) for end in ("low", "high"))
            worst = np.isinf(high) | (high > tops.get(part, math.inf))
            columns[name] = arrow_array(np.where(worst, high, low))
        return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def as_coded(column: Expression) -> Expression:
    """Return a column whose values have a meaning each: decimals of no fixed scale, too, as their texts."""
    kind = column.type()
    texts = is_text_in_files(kind) or (kind.is_decimal() and kind.scale is None)
    return column.cast("string") if texts else column


def is_text_in_files(kind: Any) -> bool:
    """Return whether values of a type of Ibis come as objects of their own, which files have as text."""
    return bool(kind.is_uuid() or kind.is_json() or kind.is_inet() or kind.is_macaddr())


def real_of(column: pa.Array) -> Floats:
    """Return numbers of an answer, null as NaN."""
    return np.asarray(numbers(column, "answer", "number"), dtype=np.float64)


def whole_of(column: pa.Array) -> Ints:
    """Return whole numbers of an answer."""
    return primitive(column.cast(pa.int64()), np.int64)


def planned(questions: Questions, rows: Expression, *, exact: bool) -> dict[str, Expression]:
    """Return what would be asked, by what it is for; ``rows`` is the question for the counted columns of all rows."""
    reading = questions.reading
    out = {"rows and sums per group, label and decision": questions.summary()}
    if not reading.columns.score:
        return out
    bins, _ = fineness(SORT_ROWS + 1, exact=exact)
    grid = fixed_grid(reading, bins) or Grid.over(-1.0, 1.0, bins=bins // 2, thresholds=reading.thresholds)
    follows = "bins are finer or coarser, depending on rows, groups and scores in the first result"
    out[f"rows per score bin too; {follows}"] = questions.binned(grid)
    if exact:
        few = [Slice(grid, np.arange(3), 0)]
        finer = "rows in finer bins of those that can hold an exact distance, for each attribute, while they are many"
        out[finer] = questions.scores(few, grid.finer(1))
        out["scores of the bins that are left"] = questions.scores(few)
        out[f"instead of the second and third, where the first counts at most {SORT_ROWS:,} rows"] = rows
    return out


def check_types(schema: pa.Schema, reading: Reading) -> None:
    """Raise a ColumnError where a column has a type that its part cannot have."""
    columns, cut = reading.columns, [name for name, edges in reading.bands.items() if edges]
    reals = {"score": columns.score, "decision probability": columns.probability, "weight": columns.weight}
    named = [*columns.cell_keys, columns.prediction]
    if reading.task == "regression":
        reals["label"] = columns.label
    else:
        named.append(columns.label)
    for part, name in reals.items():
        if name:
            numbers(pa.nulls(0, schema.field(name).type), name, part)
    for name in named:
        if name and name not in cut:
            group_codes(pa.nulls(0, schema.field(name).type), name)
