"""Paired baselines: how much worse a model has become on the same rows.

Two files that hold the same people are matched by id. Both audits are then of the rows that are in both, with the
same groups in both; each row counts once, so errors that the two audits have in common cancel.

A rate's change is the difference of two shares of one table, the parts that rise and those that fall, each with
Clopper-Pearson limits, combined by MOVER with their correlation; a mean's has Student t limits, with the variance of
the rows' own changes. A gap is a largest value over pairs: pairs that another one surely exceeds are left out, and the
limits are over those that are left in the old and in the new file. ``docs/methods/paired.md`` has the derivation.

KS distances, AUC, calibration errors, the pooled median, ratios of rates of 0 and comparisons of more than
:data:`MEMBERS` pairs keep the interval of independent samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice, permutations
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from fairfix.auditing.checks import Ruling, ruled
from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.metrics import EQUALIZED_ODDS, EntryMean, Mean, Rate, metrics_for
from fairfix.auditing.row_differences import merged
from fairfix.auditing.sufficient_statistics import (
    entries_of_rows,
    entry_estimates,
    entry_size,
    entry_sums,
    means,
    numbers_of_rows,
)
from fairfix.data.arrow_normalize import texts_of
from fairfix.data.counts import Bools, Floats, Ints
from fairfix.data.encoder import null_mask, primitive
from fairfix.data.table import Table
from fairfix.errors import DataError
from fairfix.schema.common import Paired, SavedCheck
from fairfix.stats.estimates import Estimates, Limits, Means, Proportions, carrying_rows, powers, sidak

MEMBERS = 400
"""More pairs than this are not compared with one another."""

LEAST_SHARE = 0.5
"""With a smaller share of the new rows in both files, a change says little of the new ones."""

# ---------------------------------------------------------------------- matching


@dataclass(frozen=True)
class Matched:
    """Rows that are in both files, in the order of the new one."""

    old: Table
    new: Table
    """The rows whose groups are the same in both."""
    only_old: int = 0
    only_new: int = 0
    """Usable rows whose id the other file does not have."""
    moved: int = 0
    """Rows in both with another group (or stratum)."""

    @cached_property
    def merged(self) -> tuple[Table, Table]:
        """The rows by their decisions; see :func:`~fairfix.auditing.row_differences.merged`."""
        return merged(self.old, self.new)

    @property
    def share(self) -> float:
        """Share of the new rows that are compared."""
        return len(self.new) / (len(self.new) + self.only_new + self.moved)

    def paired(self, name: str) -> Paired:
        """Return how the rows belong together; ``name`` is the column of ids."""
        return Paired(
            id=name,
            rows=len(self.new),
            only_in_baseline=self.only_old,
            only_now=self.only_new,
            other_group=self.moved,
        )


def match(old: Table, new: Table, name: str) -> Matched:
    """Match the rows of two tables by an id among their features.

    Raises ``DataError`` where an id is missing or repeats, or no row is in both with one group.
    """
    ids = [_ids(table, name, which) for table, which in ((old, "the baseline"), (new, "the data"))]
    import pyarrow.compute as pc

    places = pc.index_in(ids[1], value_set=ids[0])
    missing = null_mask(places)
    there = np.ones(len(new), dtype=bool) if missing is None else ~missing
    rows_new = np.flatnonzero(there)
    rows_old = primitive(places, np.int32)[rows_new].astype(np.int64)
    if not rows_new.size:
        raise DataError(f"no value of the id column {name!r} is in both files; nothing can be paired")
    cells = {cell: code for code, cell in enumerate(new.rows.cells)}
    codes = np.array([cells.get(cell, -1) for cell in old.rows.cells], dtype=np.int64)
    same = codes[old.rows.cell[rows_old]] == new.rows.cell[rows_new]
    if not same.any():
        raise DataError(f"no row that is in both files (by {name!r}) has the same groups in both")
    return Matched(
        old.take(rows_old[same]),
        new.take(rows_new[same]),
        len(old) - rows_old.size,
        len(new) - rows_new.size,
        int(np.count_nonzero(~same)),
    )


def _ids(table: Table, name: str, which: str) -> pa.Array:
    """Return the ids as text; a number means the same in CSV and Parquet."""
    import pyarrow.compute as pc

    ids = texts_of(table.features.column(name).combine_chunks())
    if ids.null_count:
        raise DataError(
            f"id column {name!r} of {which} is missing in {ids.null_count:,} of {len(ids):,} rows; fill it, or "
            "remove these rows"
        )
    counts = pc.value_counts(ids)
    often = pc.filter(counts.field("values"), pc.greater(counts.field("counts"), 1))
    if len(often):
        raise DataError(
            f"id column {name!r} of {which} has {len(often):,} values more than once, such as {often[0].as_py()!r}; "
            "rows can be paired only by ids that are unique"
        )
    return ids


def doubted(checks: Sequence[SavedCheck], matched: Matched) -> tuple[SavedCheck, ...]:
    """Return checks, undecided where few of the new rows could be compared."""
    if matched.share >= LEAST_SHARE:
        return tuple(checks)
    why = f"only {matched.share:.0%} of the rows are in the baseline too; {LEAST_SHARE:.0%} are needed"
    return tuple(
        ruled(check, Ruling("undecided", "few_common_rows", f"{why} ({check.reason})")) for check in checks
    )


# ---------------------------------------------------------------------- one group


class Reaches(NamedTuple):
    """Distances of limits below and above values of units, shape (U,) each: old, new, and their difference."""

    old: Limits
    new: Limits
    change: Limits


@dataclass(frozen=True)
class Units:
    """One metric of independent units (groups, or groups of a stratum) in both files, arrays of shape (U,)."""

    old: Estimates
    new: Estimates
    """Estimates."""
    rate: bool
    """Whether it is a rate; else a mean."""
    share_old: Floats
    share_new: Floats
    """Each unit's share of the denominator."""
    rise: Floats
    fall: Floats
    """Parts of the change that rise and that fall."""
    size: Floats
    variance: Floats
    """Effective size of the change, and its variance."""
    apart: Floats
    """The variance if the two files were independent."""

    @property
    def alike(self) -> bool:
        """Whether both files err alike, in every unit."""
        return bool((self.variance <= self.apart * (1 + 1e-9)).all())

    @property
    def width(self) -> float:
        """Largest distance of two values; infinite where they are unbounded."""
        return self.old.support[1] - self.old.support[0]

    def reaches(self, level: float) -> Reaches:
        """Return how far limits at a two-sided miscoverage reach."""
        return Reaches(_reach_of(self.old, level), _reach_of(self.new, level), self._change(level))

    def _change(self, level: float) -> Limits:
        width = self.width
        if not self.rate:
            either, change = self.rise + self.fall, self.rise - self.fall
            carried = carrying_rows(either, self.size * self.variance + change**2, self.size)
            carried = np.where(either > 0, carried, np.inf)  # infinite where no row has changed
            value, variance = self.new.value - self.old.value, self.variance * self.size
            return _reach_of(Means(value, variance, self.size, (-width, width), carried), level)
        parts = [Proportions(part * self.size, self.size) for part in (self.rise, self.fall)]
        rise, fall = (part.value for part in parts)
        with np.errstate(invalid="ignore", divide="ignore"):
            kappa = np.sqrt(rise * fall / ((1 - rise) * (1 - fall)))
        kappa = np.minimum(np.nan_to_num(kappa, nan=1.0, posinf=1.0), 1.0)
        (rise_down, rise_up), (fall_down, fall_up) = (_reach_of(part, level) for part in parts)
        down, up = (
            width * np.sqrt(x * x + y * y + 2 * kappa * x * y)
            for x, y in ((fall_up, rise_down), (rise_up, fall_down))
        )
        return down, up


def _possible(ends: tuple[float, float], width: float) -> tuple[float, float]:
    """Return limits of a change of what lies in a range of a width, without what no change can be."""
    return max(ends[0], -width), min(ends[1], width)


def _reach_of(estimates: Estimates, level: float) -> Limits:
    low, high = estimates.limits(level)
    return np.maximum(estimates.value - low, 0.0), np.maximum(high - estimates.value, 0.0)


def _units(name: str, old: Table, new: Table, code: Ints, count: int) -> Units | None:
    """Return a metric of both tables by unit; None where it is no mean of rows."""
    metric = metrics_for(new.data_spec.task)[name]
    if not isinstance(metric, (Mean, EntryMean)):
        return None
    rate = isinstance(metric, EntryMean) and metric.has_two_values
    weighted = old.weighted or new.weighted
    weighted |= isinstance(metric, EntryMean) and len({*metric.below} - {0.0}) > 1
    least, span = (metric.bounds[0], metric.bounds[1] - metric.bounds[0]) if rate else (0.0, 1.0)

    pieces = list(zip(old.pieces(), new.pieces(), strict=True))
    codes = [own for _, own in new.pieces_with(code)]

    @lru_cache(maxsize=2)  # few rows are one piece, which is looked at twice
    def rows_of(i: int, side: int) -> tuple[Floats, Floats]:
        table = pieces[i][side]
        if isinstance(metric, EntryMean):
            return _of_entries(metric, table)
        return numbers_of_rows(metric, table), np.ones(len(table))

    def by(i: int, summands: Floats) -> Floats:
        return np.asarray(np.bincount(codes[i], summands, count), dtype=np.float64)

    estimates: list[Estimates] = []
    totals, sizes, shares = [], [], []
    for side, table in enumerate((old, new)):
        total, spread, sums = np.zeros(count), np.zeros(count), list[Floats]()
        for i, pair in enumerate(pieces):
            piece, (value, base) = pair[side], rows_of(i, side)
            weight, square = piece.weight, piece.square_weight
            mass = weight * base
            total += by(i, mass)
            with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
                spread += by(i, weight * mass * piece.spread)
                if isinstance(metric, Rate):
                    yes, no = base * value, base * (1 - value)
                    each = [by(i, w * part) for part in (yes, no) for w in (weight, square)]
                elif isinstance(metric, EntryMean):
                    entries = entries_of_rows(metric, piece, weight, square)
                    each = [by(i, column) for column in entry_sums(metric, entries).T]
                else:
                    each = [by(i, part) for part in powers(weight, value, square)]
            sums = [one + more for one, more in zip(sums, each, strict=True)] if sums else each
        of_units = np.stack(sums)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            if isinstance(metric, EntryMean):
                estimates.append(entry_estimates(metric, of_units.T, weighted))
            else:
                estimates.append(means(metric, table.data_spec, of_units))
            sizes.append(np.nan_to_num(total**2 / spread))
            shares.append(np.nan_to_num(total / total.sum()))
        totals.append(total)
    with np.errstate(invalid="ignore"):
        change = np.nan_to_num(estimates[1].value - estimates[0].value) / span
    centres = [(one.value - least) / span for one in estimates]
    rise, fall, variance, apart, moved, spread = np.zeros((6, count))
    for i, pair in enumerate(pieces):
        places, parts = [], []
        for side, piece in enumerate(pair):
            value, base = rows_of(i, side)
            with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
                place = piece.weight * base / totals[side][codes[i]]
                part = np.nan_to_num(place * (value - centres[side][codes[i]]), nan=0.0, posinf=0.0)
            places.append(np.nan_to_num(place))
            parts.append(part)
        d, v = parts[1] - parts[0], (places[0] + places[1]) / 2
        e = d + v * change[codes[i]]
        rise += by(i, np.maximum(e, 0.0))
        fall += by(i, np.maximum(-e, 0.0))
        square = d * d * pair[1].spread
        variance += by(i, square)
        apart += by(i, parts[0] ** 2 * pair[0].spread) + by(i, parts[1] ** 2 * pair[1].spread)
        if rate:
            moved += by(i, np.abs(places[1] - places[0]))
        elif weighted:
            spread += by(i, np.divide(square, v, out=np.zeros_like(d), where=v > 0))
    size = np.minimum(*sizes)
    if rate:
        ratio = ((rise + fall) * size + 1) / (variance * size**2 + 1)
        size = size * np.minimum(ratio, np.where((moved < 1e-9) | weighted, 1.0, 2.0))
    elif weighted:  # a few light rows must not make the variance small by luck
        variance = np.maximum(variance, np.divide(spread, size, out=np.zeros_like(size), where=size > 0))
    (before, after), (share_before, share_after) = estimates, shares
    return Units(before, after, rate, share_before, share_after, rise, fall, size, variance, apart)


def _of_entries(metric: EntryMean, table: Table) -> tuple[Floats, Floats]:
    """Return (value, part in the denominator) of each row; a DataError where the table does not have them.

    A metric with two values is a rate of the larger one.
    """
    ones = np.ones(len(table))
    entries = entries_of_rows(metric, table, ones, ones)
    sums = entry_sums(metric, entries)
    base, above = entry_size(metric, sums), sums[:, 0 if metric.has_two_values else 1]
    return np.divide(above, base, out=np.zeros_like(base), where=base > 0), base


# ---------------------------------------------------------------------- several groups


Family = tuple[Floats, Floats]
"""Numbers whose largest is compared: values (m,) and gradients by unit (m, U)."""


def _reach(x: Floats, y: Floats, by: Reaches) -> Limits:
    """Return how far ``Σ_u x_u p'_u - y_u p_u`` may lie below and above its estimate, for arrays (..., U)."""
    return _one_reach(x, y, by), _one_reach(-x, -y, by)


def _one_reach(x: Floats, y: Floats, by: Reaches) -> Floats:
    a0 = np.where(x > 0, *by.new)
    b0 = np.where(y > 0, *by.old[::-1])
    d0 = np.where(x > 0, *by.change)
    a, b = np.abs(x) * a0, np.abs(y) * b0
    apart, shared = (a + b) ** 2, x * y
    together = (a - b) ** 2 + shared * (d0**2 - (a0 - b0) ** 2)
    least = (np.minimum(np.abs(x), np.abs(y)) * d0) ** 2
    together = np.minimum(np.maximum(together, least), apart)
    return np.asarray(np.sqrt(np.where(shared > 0, together, apart).sum(axis=-1)))


def _may_be_largest(family: Family, reach: Limits) -> Bools:
    """Return which members are not surely smaller than another, shape (m,)."""
    value, slope = family
    out = np.ones(value.size, dtype=bool)
    for c in range(value.size):
        x = slope - slope[c]
        down = np.sqrt((np.where(x > 0, x * reach[0], x * reach[1]) ** 2).sum(axis=1))
        low = value - value[c] - down
        low[c] = -np.inf
        out[c] = not (low > 0).any()
    return out


def _change_of_largest(old: Family, new: Family, units: Units, alpha: float) -> tuple[float, float] | str:
    """Return limits of the change of the largest member, or why there are none."""
    select = units.reaches(
        2 * (alpha / 20) / max(old[0].size - 1, 1)
    )  # a twentieth to leave out in each file
    ends = units.reaches(0.9 * alpha)  # the rest, half of it for either limit
    if not np.isfinite([ends, select]).all():
        return "a group has too few rows"
    was, now = _may_be_largest(old, select.old), _may_be_largest(new, select.new)
    low, high = math.inf, -math.inf
    for c in np.flatnonzero(was | now):  # every member that may be it now, against one that may have been it
        if was[c]:
            rivals = np.array([c]) if now[c] else np.flatnonzero(now)
            down, _ = _reach(new[1][rivals], np.broadcast_to(old[1][c], new[1][rivals].shape), ends)
            low = min(low, float((new[0][rivals] - old[0][c] - down).min()))
        if now[c]:
            rivals = np.array([c]) if was[c] else np.flatnonzero(was)
            _, up = _reach(np.broadcast_to(new[1][c], old[1][rivals].shape), old[1][rivals], ends)
            high = max(high, float((new[0][c] - old[0][rivals] + up).max()))
    return low, high


def _members(
    kind: str,
    scope: str,
    value: Floats,
    share: Floats,
    blocks: Sequence[list[int]],
    pairs: Sequence[tuple[int, int]],
) -> Family:
    """Return the numbers whose largest is the worst, of units with these values and shares in one file."""
    unit = np.eye(value.size)
    if kind in ("min", "max"):
        sign = 1.0 if kind == "max" else -1.0
        return sign * value, sign * unit
    if scope != "to_overall" and kind != "covariance":
        i, j = np.array(pairs).T
        p, q = value[i], value[j]
        if kind == "difference":
            return p - q, unit[i] - unit[j]
        return -p / q, -(unit[i] / q[:, None] - unit[j] * (p / q**2)[:, None])
    numbers, slopes = [], []
    for at in map(np.array, blocks):
        part = np.zeros(value.size)
        part[at] = share[at] / share[at].sum()
        everybody, p = float(part @ value), value[at]
        if kind == "ratio":
            numbers += [-p / everybody, -everybody / p]
            slopes.append(-(unit[at] / everybody - p[:, None] * part / everybody**2))
            slopes.append(-(part / p[:, None] - unit[at] * (everybody / p**2)[:, None]))
            continue
        scale = part[at] if kind == "covariance" else np.ones(at.size)
        for sign in (1, -1):
            numbers.append(sign * scale * (p - everybody))
            slopes.append(sign * scale[:, None] * (unit[at] - part))
    return np.concatenate(numbers), np.concatenate(slopes)


class Changes:
    """Limits of changes on matched rows; ``reference`` has the reference group by attribute."""

    def __init__(self, matched: Matched, confidence: float, reference: Mapping[str, str]) -> None:
        self.matched = matched
        self.alpha = 1.0 - confidence
        self.reference = reference
        self._cache: dict[tuple[str, tuple[str, ...]], Units | None] = {}  # many comparisons share a metric

    def limits(self, of: Comparison, columns: Sequence[str]) -> tuple[float, float, bool] | str:
        """Return the limits of the change of a number, or why rows cannot be paired for it.

        The third entry tells whether the limits of independent samples hold as well.
        """
        kind, scope = of.kind, of.scope
        names = EQUALIZED_ODDS if of.metric == "equalized_odds" else (of.metric,)
        strata = self.matched.new.data_spec.columns.strata if scope == "within_strata" else ()
        keys = (*strata, *columns)
        units = [one for name in names if (one := self._units(name, keys)) is not None]
        if len(units) < len(names):
            return "it is not a mean over rows"
        groups = self.matched.new.groups(keys)
        if of.group:
            return self._of_group(units[0], groups.names.index(of.group))
        whole = units[0] if len(units) == 1 else _joined(units)
        both = np.concatenate([whole.old.value, whole.new.value])
        if np.isnan(both).any():
            return "a group has no value"
        if kind == "ratio" and not both.all():
            return "a group's value is 0"
        alike: dict[tuple[str, ...], list[int]] = {}  # units that are compared, by stratum
        for unit, level in enumerate(groups.levels):
            alike.setdefault(level[: len(strata)], []).append(unit)
        many = len(groups.levels)
        blocks = [
            [unit + copy * many for unit in block]
            for copy in range(len(units))
            for block in alike.values()
            if len(block) > 1
        ]
        every = (pair for block in blocks for pair in permutations(block, 2))
        if scope == "to_reference":
            at = groups.names.index(self.reference[of.attribute or ""])
            every = (pair for pair in every if at in (pair[0] % many, pair[1] % many))
        pairs = [*islice(every, MEMBERS + 1)]  # all pairs of thousands of groups would take seconds
        if len(pairs) > MEMBERS:
            return "too many pairs of groups"
        old = _members(kind, scope, whole.old.value, whole.share_old, blocks, pairs)
        new = _members(kind, scope, whole.new.value, whole.share_new, blocks, pairs)
        ends = _change_of_largest(old, new, whole, self.alpha)
        if isinstance(ends, str):
            return ends
        if kind in ("ratio", "min"):  # the smallest number is minus the largest of their negatives
            ends = -ends[1], -ends[0]
        return (*_possible(ends, 1.0 if kind == "ratio" else whole.width), whole.alike)

    def _of_group(self, units: Units, at: int) -> tuple[float, float, bool] | str:
        value = float(units.new.value[at] - units.old.value[at])
        if math.isnan(value):
            return "the group has no value"
        down, up = units.reaches(sidak(self.alpha, len(units.old))).change  # as in the group table
        ends = value - float(down[at]), value + float(up[at])
        return (*_possible(ends, units.width), False)

    def _units(self, name: str, keys: tuple[str, ...]) -> Units | None:
        if (name, keys) not in self._cache:
            mean = isinstance(metrics_for(self.matched.new.data_spec.task)[name], Mean)
            both = (self.matched.old, self.matched.new) if mean else self.matched.merged
            groups = both[1].groups(keys)
            self._cache[name, keys] = None
            with suppress(DataError):  # a table has not what it is a mean of
                self._cache[name, keys] = _units(name, *both, groups.codes, len(groups.levels))
        return self._cache[name, keys]


def _joined(units: Sequence[Units]) -> Units:
    """Return several rates, each of other rows, as units one after the other."""
    old, new = (
        Proportions.joined([part for part in side if isinstance(part, Proportions)])
        for side in ([one.old for one in units], [one.new for one in units])
    )
    arrays = ("share_old", "share_new", "rise", "fall", "size", "variance", "apart")
    return Units(old, new, True, *(np.concatenate([getattr(one, name) for one in units]) for name in arrays))
