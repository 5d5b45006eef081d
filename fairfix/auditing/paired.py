r"""Paired baselines: how much worse a model has become on the same rows.

Two files that hold the same people are matched by id. Both audits are then of the rows that are in both, with the
same groups in both; each row counts once, so errors that the two audits have in common cancel.

**One group.** A rate is ``p = Σ w b a / Σ w b`` (*b*: the row is in the denominator, *a*: it is a success), the mean of
a score has ``b = 1``. Each row's part of the error of ``p`` is ``ψ_i = w_i b_i (a_i - p) / Σ w b`` up to second
order; ``Σ (ψ'_i - ψ_i)²`` is the variance of the change ``D = p' - p``. A rate's change is the difference of two shares
of one table, the parts that rise and those that fall, each with Clopper-Pearson limits, combined by MOVER with their
correlation; a mean's has Student t limits.

**Several groups.** A gap is a largest value over pairs. Pairs that another one surely exceeds (limits at ``α/20`` in
each file) are left out; ``low`` is the smallest change over those that are left in the old file, ``high`` is alike,
each with 45 % of ``α``.

KS distances, AUC, calibration errors, the pooled median, ratios of rates of 0 and comparisons of more than
:data:`MEMBERS` pairs keep the interval of independent samples. ``docs/methods/paired.md`` has the derivation.

References
----------
Newcombe (1998), Statistics in Medicine 17. Hsu (1981), Annals of Statistics 9. Särndal, Swensson and Wretman (1992),
Model Assisted Survey Sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
import pyarrow as pa

from fairfix.auditing.checks import Ruling, rule
from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.metrics import EQUALIZED_ODDS, Mean, Rate, metrics_for
from fairfix.auditing.sums import means
from fairfix.data.counts import Bools, Floats, Ints
from fairfix.data.encoder import null_mask, primitive
from fairfix.data.reading import Reading
from fairfix.data.scan import quantities
from fairfix.data.table import Table
from fairfix.errors import DataError
from fairfix.stats.estimates import Estimates, Means, Proportions, carrying_rows

MEMBERS = 400
"""More pairs than this are not compared with one another."""

LEAST_SHARE = 0.5
"""With a smaller share of the new rows in both files, a change says little of the new ones."""

# ---------------------------------------------------------------------- matching


@dataclass(frozen=True)
class Matched:
    """Rows that are in both files, in the order of the new one.

    Attributes
    ----------
    old, new
        The rows whose groups are the same in both.
    only_old, only_new
        Usable rows whose id the other file does not have.
    moved
        Rows in both with another group (or stratum).
    """

    old: Table
    new: Table
    only_old: int
    only_new: int
    moved: int

    @property
    def share(self) -> float:
        """Share of the new rows that are compared."""
        return len(self.new) / (len(self.new) + self.only_new + self.moved)

    def to_dict(self, name: str) -> dict[str, Any]:
        """Return the JSON form; ``name`` is the column of ids."""
        return {
            "id": name,
            "rows": len(self.new),
            "only_in_baseline": self.only_old,
            "only_now": self.only_new,
            "other_group": self.moved,
        }


def match(old: Table, new: Table, name: str) -> Matched:
    """Match the rows of two tables by an id among their features.

    Raises ``DataError`` where an id is missing or repeats, or no row is in both with one group.
    """
    ids = [_ids(table, name, which) for table, which in ((old, "the baseline"), (new, "the data"))]
    import pyarrow.compute as pc

    found = pc.index_in(ids[1], value_set=ids[0])
    missing = null_mask(found)
    there = np.ones(len(new), dtype=bool) if missing is None else ~missing
    rows_new = np.flatnonzero(there)
    rows_old = primitive(found, np.int32)[rows_new].astype(np.int64)
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

    column = table.features.column(name).combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_floating(column.type):
        whole = pc.all(pc.equal(pc.floor(column), column)).as_py()
        column = column.cast(pa.int64()) if whole else column
    ids = column.cast(pa.string())
    if ids.null_count:
        raise DataError(
            f"id column {name!r} of {which} is missing in {ids.null_count:,} of {len(ids):,} rows"
        )
    counts = pc.value_counts(ids)
    often = pc.filter(counts.field("values"), pc.greater(counts.field("counts"), 1))
    if len(often):
        raise DataError(
            f"id column {name!r} of {which} has {len(often):,} values more than once, such as {often[0].as_py()!r}; "
            "rows can be paired only by ids that are unique"
        )
    return ids


def doubt(checks: Iterable[dict[str, Any]], matched: Matched) -> None:
    """Make checks undecided where few of the new rows could be compared."""
    if matched.share >= LEAST_SHARE:
        return
    for check in checks:
        why = f"only {matched.share:.0%} of the rows are in the baseline too; {LEAST_SHARE:.0%} are needed"
        rule(check, Ruling("undecided", "few_common_rows", f"{why} ({check['reason']})"))


# ---------------------------------------------------------------------- one group


@dataclass(frozen=True)
class Reaches:
    """How far limits lie below and above values of units, shape (U,) each: old, new, and their difference."""

    old: tuple[Floats, Floats]
    new: tuple[Floats, Floats]
    change: tuple[Floats, Floats]

    @property
    def finite(self) -> bool:
        """Whether every limit is a number."""
        return all(np.isfinite(part).all() for pair in (self.old, self.new, self.change) for part in pair)


@dataclass(frozen=True)
class Units:
    """One metric of independent units (groups, or groups of a stratum) in both files.

    Attributes
    ----------
    old, new
        Estimates.
    share_old, share_new
        Each unit's share of the denominator.
    rate
        Whether it is a rate; else a mean.
    rise, fall
        Parts of the change that rise and that fall.
    size, variance
        Effective size of the change, and its variance.
    apart
        What the variance would be if the two files had nothing to do with one another.
    """

    old: Estimates
    new: Estimates
    share_old: Floats
    share_new: Floats
    rate: bool
    rise: Floats
    fall: Floats
    size: Floats
    variance: Floats
    apart: Floats

    @property
    def alike(self) -> bool:
        """Whether both files err alike, in every unit."""
        return bool((self.variance <= self.apart * (1 + 1e-9)).all())

    @property
    def defined(self) -> bool:
        """Whether every unit has a value in both files."""
        return not np.isnan(self.old.value).any() and not np.isnan(self.new.value).any()

    def reaches(self, level: float) -> Reaches:
        """Return how far limits at a two-sided miscoverage reach."""
        return Reaches(
            _reach_of(self.old, level),
            _reach_of(self.new, level),
            (self._change(level, 0), self._change(level, 1)),
        )

    @property
    def _carried(self) -> Floats:
        """Effective number of rows that carry the change of a mean; infinite where none has changed."""
        either, change = self.rise + self.fall, self.rise - self.fall
        carried = carrying_rows(either, self.size * self.variance + change**2, self.size)
        return np.where(either > 0, carried, np.inf)

    def _change(self, level: float, up: int) -> Floats:
        if not self.rate:
            width = self.old.support[1] - self.old.support[0]
            value = self.new.value - self.old.value
            support = (-width, width)
            means = Means(value, self.variance * self.size, self.size, support, carried=self._carried)
            return _reach_of(means, level)[up]
        parts = [Proportions(part * self.size, self.size) for part in (self.rise, self.fall)]
        more, less = parts if up else parts[::-1]
        x, y = _reach_of(more, level)[1], _reach_of(less, level)[0]
        rise, fall = (part.value for part in parts)
        with np.errstate(invalid="ignore", divide="ignore"):
            kappa = np.sqrt(rise * fall / ((1 - rise) * (1 - fall)))
        kappa = np.minimum(np.nan_to_num(kappa, nan=1.0, posinf=1.0), 1.0)
        return np.asarray(np.sqrt(x * x + y * y + 2 * kappa * x * y))


def _reach_of(estimates: Estimates, level: float) -> tuple[Floats, Floats]:
    low, high = estimates.limits(level)
    return np.maximum(estimates.value - low, 0.0), np.maximum(high - estimates.value, 0.0)


def _units(name: str, old: Table, new: Table, code: Ints, count: int) -> Units | None:
    """Return a metric of both tables by unit; None where it is no mean of rows."""
    metric = metrics_for(new.reading.task)[name]
    if not isinstance(metric, (Rate, Mean)):
        return None
    sides = [_contributions(metric, table) for table in (old, new)]
    if sides[0] is None or sides[1] is None:
        return None
    weighted = old.rows.weight is not None or new.rows.weight is not None

    def by(values: Floats) -> Floats:
        return np.asarray(np.bincount(code, weights=values, minlength=count), dtype=np.float64)

    estimates, parts, places, sizes, shares = [], [], [], [], []
    for side, table in zip(sides, (old, new), strict=True):
        assert side is not None
        value, base = side
        weight = table.weight
        mass = weight * base
        total = by(mass)
        estimates.append(_estimates(metric, table.reading, value, weight, base, by, weighted=weighted))
        with np.errstate(invalid="ignore", divide="ignore"):
            place = mass / total[code]
            sizes.append(np.nan_to_num(total**2 / by(weight * mass)))
            shares.append(np.nan_to_num(total / total.sum()))
        with np.errstate(invalid="ignore"):
            parts.append(np.nan_to_num(place * (value - estimates[-1].value[code]), nan=0.0, posinf=0.0))
        places.append(np.nan_to_num(place))
    d, v = parts[1] - parts[0], (places[0] + places[1]) / 2
    with np.errstate(invalid="ignore"):
        change = np.nan_to_num(estimates[1].value - estimates[0].value)
    e = d + v * change[code]
    rise, fall, variance = by(np.maximum(e, 0.0)), by(np.maximum(-e, 0.0)), by(d * d)
    apart = by(parts[0] ** 2) + by(parts[1] ** 2)
    size = np.minimum(*sizes)
    is_rate = isinstance(metric, Rate)
    if is_rate:
        alike = by(np.abs(places[1] - places[0])) < 1e-9
        most = np.where(alike | weighted, 1.0, 2.0)
        ratio = ((rise + fall) * size + 1) / (variance * size**2 + 1)
        size = size * np.minimum(ratio, most)
    elif weighted:  # a few light rows must not make the variance small by luck
        spread = np.divide(d * d, v, out=np.zeros_like(d), where=v > 0)
        variance = np.maximum(variance, np.divide(by(spread), size, out=np.zeros_like(size), where=size > 0))
    return Units(estimates[0], estimates[1], shares[0], shares[1], is_rate, rise, fall, size, variance, apart)


def _estimates(
    metric: Rate | Mean,
    reading: Reading,
    value: Floats,
    weight: Floats,
    base: Floats,
    by: Callable[[Floats], Floats],
    *,
    weighted: bool,
) -> Estimates:
    """Return the estimates of one table, as an audit makes them."""
    if isinstance(metric, Rate):
        success, failure = base * value, base * (1 - value)
        if weighted:
            sums = (
                by(weight * success),
                by(weight * failure),
                by(weight**2 * success),
                by(weight**2 * failure),
            )
            return Proportions.weighted(*sums)
        return Proportions(by(success), by(success) + by(failure))
    with np.errstate(invalid="ignore", over="ignore"):
        sums = by(weight), by(weight**2), by(weight * value), by(weight * value * value)
    return means(metric, reading, *sums)


def _contributions(metric: Rate | Mean, table: Table) -> tuple[Floats, Floats] | None:
    """Return (value, part in the denominator) of each row; None where the table does not have them."""
    if isinstance(metric, Rate):
        return _of_rate(metric, table)
    value, label = (
        dict(quantities(table.rows, table.reading, losses=True)).get(metric.quantity),
        table.rows.label,
    )
    if value is None or (metric.error and label is None):
        return None
    every = np.asarray(value, dtype=np.float64)
    return every - np.asarray(label, dtype=np.float64) if metric.error else every, np.ones(len(table))


def _of_rate(rate: Rate, table: Table) -> tuple[Floats, Floats] | None:
    label = table.rows.label if table.reading.binary else None
    if "label" in rate.needs and label is None:
        return None
    chance = table.chance if "decision" in rate.needs else np.zeros(len(table))
    if chance is None:
        return None
    either = (chance, 1 - chance)  # the probability of a positive and of a negative decision

    def mass(entries: Sequence[tuple[int, int]]) -> Floats:
        out = np.zeros(len(table))
        if "label" not in rate.needs:
            for decision in {d for _, d in entries}:
                out += either[1 - decision]
            return out
        for y, decision in entries:
            out += (label == y) * either[1 - decision]
        return out

    success, base = mass(rate.success), mass((*rate.success, *rate.failure))
    return np.divide(success, base, out=np.zeros_like(base), where=base > 0), base


# ---------------------------------------------------------------------- several groups


@dataclass(frozen=True)
class Family:
    """Numbers of which the largest is compared: values (m,) and gradients by unit (m, U), old and new."""

    old: Floats
    new: Floats
    slope_old: Floats
    slope_new: Floats


def _reach(x: Floats, y: Floats, by: Reaches) -> tuple[Floats, Floats]:
    """Return how far ``Σ_u x_u p'_u - y_u p_u`` may lie below and above its estimate, for arrays (..., U)."""
    return _one_reach(x, y, by), _one_reach(-x, -y, by)


def _one_reach(x: Floats, y: Floats, by: Reaches) -> Floats:
    a0 = np.where(x > 0, by.new[0], by.new[1])
    b0 = np.where(y > 0, by.old[1], by.old[0])
    d0 = np.where(x > 0, by.change[0], by.change[1])
    a, b = np.abs(x) * a0, np.abs(y) * b0
    apart = (a + b) ** 2
    shared = x * y
    together = (a - b) ** 2 + shared * (d0**2 - (a0 - b0) ** 2)
    least = (np.minimum(np.abs(x), np.abs(y)) * d0) ** 2
    together = np.minimum(np.maximum(together, least), apart)
    return np.asarray(np.sqrt(np.where(shared > 0, together, apart).sum(axis=-1)))


def _may_be_largest(value: Floats, slope: Floats, reach: tuple[Floats, Floats]) -> Bools:
    """Return which members are not surely smaller than another, shape (m,)."""
    out = np.ones(value.size, dtype=bool)
    for c in range(value.size):
        x = slope - slope[c]
        down = np.sqrt((np.where(x > 0, x * reach[0], x * reach[1]) ** 2).sum(axis=1))
        low = value - value[c] - down
        low[c] = -np.inf
        out[c] = not (low > 0).any()
    return out


def _change_of_largest(family: Family, units: Units, alpha: float) -> tuple[float, float] | str:
    """Return limits of the change of the largest member, or why there are none."""
    m = family.old.size
    select = units.reaches(2 * (alpha / 20) / max(m - 1, 1))
    ends = units.reaches(0.9 * alpha)
    if not (ends.finite and select.finite):
        return "a group has too few rows"
    was = _may_be_largest(family.old, family.slope_old, select.old)
    now = _may_be_largest(family.new, family.slope_new, select.new)
    step = family.new - family.old
    down, up = _reach(family.slope_new, family.slope_old, ends)
    both = was & now
    low = [float((step - down)[both].min())] if both.any() else []
    high = [float((step + up)[both].max())] if both.any() else []
    for c in np.flatnonzero(was & ~now):
        x, y = family.slope_new[now], np.broadcast_to(family.slope_old[c], family.slope_new[now].shape)
        low.append(float((family.new[now] - family.old[c] - _reach(x, y, ends)[0]).min()))
    for c in np.flatnonzero(now & ~was):
        x, y = np.broadcast_to(family.slope_new[c], family.slope_old[was].shape), family.slope_old[was]
        high.append(float((family.new[c] - family.old[was] + _reach(x, y, ends)[1]).max()))
    return min(low), max(high)


@dataclass(frozen=True)
class _Side:
    """Values of units in one file, their shares, and which of them are compared with which."""

    value: Floats
    share: Floats
    pairs: Sequence[tuple[int, int]]
    groups: Sequence[Sequence[int]]

    def members(self, kind: str, scope: str) -> tuple[Floats, Floats]:
        """Return values (m,) and gradients (m, U), so that the largest is the worst."""
        unit = np.eye(self.value.size)
        if kind in ("min", "max"):
            sign = 1.0 if kind == "max" else -1.0
            return sign * self.value, sign * unit
        if scope == "to_overall" or kind == "covariance":
            return self._to_overall(kind)
        i, j = np.array(self.pairs).T
        p, q = self.value[i], self.value[j]
        if kind == "difference":
            return p - q, unit[i] - unit[j]
        return -p / q, -(unit[i] / q[:, None] - unit[j] * (p / q**2)[:, None])

    def _to_overall(self, kind: str) -> tuple[Floats, Floats]:
        unit = np.eye(self.value.size)
        values, slopes = [], []
        for block in self.groups:
            at = np.array(block)
            share = np.zeros(self.value.size)
            share[at] = self.share[at] / self.share[at].sum()
            everybody = float(share @ self.value)
            for g in at:
                p = float(self.value[g])
                if kind == "ratio":
                    values += [-p / everybody, -everybody / p]
                    slopes.append(-(unit[g] / everybody - share * p / everybody**2))
                    slopes.append(-(share / p - unit[g] * everybody / p**2))
                    continue
                scale = float(share[g]) if kind == "covariance" else 1.0
                values += [scale * (p - everybody), scale * (everybody - p)]
                slopes += [scale * (unit[g] - share), scale * (share - unit[g])]
        return np.array(values), np.array(slopes)


class Changes:
    """Limits of changes on matched rows; ``reference`` has the reference group by attribute."""

    def __init__(self, matched: Matched, confidence: float, reference: Mapping[str, str]) -> None:
        self.matched = matched
        self.alpha = 1.0 - confidence
        self.reference = reference
        self._known: dict[tuple[str, tuple[str, ...]], Units | None] = {}

    def limits(self, of: Comparison, columns: Sequence[str]) -> tuple[float, float, bool] | str:
        """Return the limits of the change of a number, or why rows cannot be paired for it.

        The third entry tells whether the limits of independent samples hold as well.
        """
        kind, scope = of.kind, of.scope
        names = EQUALIZED_ODDS if of.metric == "equalized_odds" else (of.metric,)
        inside = scope == "within_strata"
        keys = (*self.matched.new.reading.columns.strata, *columns) if inside else tuple(columns)
        found = [self._units(name, keys) for name in names]
        units = [one for one in found if one is not None]
        if len(units) < len(found):
            return "it is no mean over rows"
        groups = self.matched.new.groups(keys)
        if of.group:
            return self._of_group(units[0], groups.names.index(of.group))
        if not all(one.defined for one in units):
            return "a group has no value"
        whole = units[0] if len(units) == 1 else _joined(units)
        if kind == "ratio" and not (whole.old.value.all() and whole.new.value.all()):
            return "a group's value is 0"
        blocks = _blocks([level[: len(keys) - len(columns)] for level in groups.levels], len(units))
        pairs = [pair for block in blocks for pair in permutations(block, 2)]
        if scope == "to_reference":
            at = groups.names.index(self.reference[of.attribute or ""])
            stands = {at + len(groups.names) * copy for copy in range(len(units))}
            pairs = [pair for pair in pairs if stands & set(pair)]
        if len(pairs) > MEMBERS:
            return "too many pairs of groups"
        sides = [
            _Side(value, share, pairs, blocks).members(kind, scope)
            for value, share in ((whole.old.value, whole.share_old), (whole.new.value, whole.share_new))
        ]
        family = Family(sides[0][0], sides[1][0], sides[0][1], sides[1][1])
        ends = _change_of_largest(family, whole, self.alpha)
        if isinstance(ends, str):
            return ends
        if kind not in ("ratio", "min"):
            return (*ends, whole.alike)
        return -ends[1], -ends[0], whole.alike  # the smallest number is minus the largest of their negatives

    def _of_group(self, units: Units, at: int) -> tuple[float, float, bool] | str:
        if np.isnan(units.old.value[at]) or np.isnan(units.new.value[at]):
            return "the group has no value"
        every = -np.expm1(np.log1p(-self.alpha) / len(units.old))  # as the group table: all groups at once
        down, up = units.reaches(float(every)).change
        value = units.new.value[at] - units.old.value[at]
        return float(value - down[at]), float(value + up[at]), False

    def _units(self, name: str, keys: tuple[str, ...]) -> Units | None:
        if (name, keys) not in self._known:
            old, new = self.matched.old, self.matched.new
            groups = new.groups(keys)
            self._known[name, keys] = _units(name, old, new, groups.codes, len(groups.levels))
        return self._known[name, keys]


def _blocks(strata: Sequence[tuple[str, ...]], copies: int) -> list[list[int]]:
    """Return the numbers of the units that are compared with one another: by stratum, and by metric."""
    alike: dict[tuple[str, ...], list[int]] = {}
    for unit, stratum in enumerate(strata):
        alike.setdefault(stratum, []).append(unit)
    blocks = [block for block in alike.values() if len(block) > 1]
    return [[unit + copy * len(strata) for unit in block] for copy in range(copies) for block in blocks]


def _joined(units: Sequence[Units]) -> Units:
    """Return several rates, which are of other rows each, as units beside one another."""
    old, new = (
        Proportions.joined([part for part in side if isinstance(part, Proportions)])
        for side in ([one.old for one in units], [one.new for one in units])
    )
    arrays = ("share_old", "share_new", "rise", "fall", "size", "variance", "apart")
    joined: dict[str, Any] = {name: np.concatenate([getattr(one, name) for one in units]) for name in arrays}
    return Units(old, new, rate=True, **joined)
