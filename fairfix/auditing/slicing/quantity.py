"""Quantities of slices: a plain rate or mean, or the largest gap between groups inside a slice, from additive tables.

A slice has a table of shape (K, 1 + p): the rows of each key, and sums of p numbers over them. Tables of disjoint
slices add up to that of their union, and that of a part may be subtracted from that of the whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from fairfix.auditing.metrics import Mean, Metric, Rate, metrics_for
from fairfix.auditing.sufficient_statistics import entries_of_rows, entry_sums, numbers_of_rows
from fairfix.data.counts import Floats, Ints
from fairfix.data.table import Groups, Table
from fairfix.errors import UsageError
from fairfix.stats.estimates import Means, powers
from fairfix.stats.slice_limits import mean_limits, share_limits

Interval: TypeAlias = tuple[Floats, Floats, Floats]
"""Value, lower and upper limit."""

Kind = Literal["counted", "share", "bounded", "free"]

WORSE = {"larger": -1, "smaller": 1}
"""Which way is better -> the sign of what is worse."""


@dataclass(frozen=True)
class SliceMetric:
    """A metric of slices, and what its table sums: ``key`` in [0, K) of shape (n,), ``sums`` of shape (p, n)."""

    metric: Metric
    kind: Kind
    """``counted``: keys say success and failure. ``share``: sums of success and failure, of at most 1 a row.
    ``bounded``: sums of numbers in [0, 1] and their squares. ``free``: sums of powers, see ``Means.from_sums``."""
    worse: int
    """1 where larger is worse, -1 where smaller is, 0 where both are."""
    groups: tuple[str, ...]
    """Groups whose largest gap is the value; none for the metric itself."""
    key: Ints
    keys: int
    sums: Floats
    ends: tuple[float, float] = (0.0, 1.0)
    """Values of 0 and 1 of the sums in the units of the metric."""

    @property
    def is_gap(self) -> bool:
        """Whether it compares groups inside a slice."""
        return bool(self.groups)

    @property
    def name(self) -> str:
        """Name as in checks, such as ``accuracy`` or ``selection_rate.difference``."""
        return f"{self.metric.name}.difference" if self.is_gap else self.metric.name

    def take(self, rows: Ints) -> SliceMetric:
        """Return the quantity of the given row numbers."""
        return replace(self, key=self.key[rows], sums=self.sums[:, rows])

    # ------------------------------------------------------------------ tables of shape (..., K, 1 + p)

    def rows(self, table: Floats) -> Floats:
        """Return the rows of slices, shape (...)."""
        return np.asarray(table[..., 0].sum(axis=-1))

    def limits(self, table: Floats, alpha: float) -> Interval:
        """Return the values and limits that hold for each slice with probability ``1 - alpha``, shape (...)."""
        many = max(len(self.groups), 1)
        return self._joined(*self._of_groups(table, alpha / (2 * many)))

    def nearly(self, table: Floats, alpha: float) -> Interval:
        """Return the same by normal approximation, in closed form, to rank many slices."""
        many = max(len(self.groups), 1)
        return self._joined(*self._approximate(table, math.sqrt(-2.0 * math.log(alpha / (2 * many)))))

    def excess(self, one: Interval, other: Interval) -> Floats:
        """Return by how much a number is shown to be worse than another; below 0, or -inf, where it is not."""
        above, below = one[1] - other[2], other[1] - one[2]
        out = above if self.worse > 0 else below if self.worse < 0 else np.maximum(above, below)
        return np.where(np.isnan(out), -np.inf, out)

    def error(self, table: Floats) -> Floats | None:
        """Return how much of the error is in slices, shape (...); None where the metric is no error."""
        if self.is_gap or (not self.metric.better and self.metric.name != "selection_rate"):
            return None
        if self.kind == "free":
            return np.asarray(table[..., 0, 2 if table.shape[-1] > 4 else 1])
        part, total = self._parts(table)
        share = part[..., 0]
        if self.kind == "bounded":
            return np.asarray(share) if self.ends[0] == 0 else None
        return np.asarray(share if self.worse > 0 else total[..., 0] - share)

    def _parts(self, table: Floats) -> tuple[Floats, Floats]:
        """Return success and total of each group, shape (..., G)."""
        if self.kind == "counted":
            counts = table[..., 0].reshape(*table.shape[:-2], self.keys // 3, 3)
            return counts[..., 1], counts[..., 1] + counts[..., 2]
        if self.kind == "share":
            return table[..., 1], table[..., 1] + table[..., 2]
        return table[..., 1], table[..., 0]

    def _means(self, table: Floats) -> Means:
        """Return means of numbers without a range, as one row of estimates."""
        rows, sums = table[..., 0].ravel(), [table[..., i].ravel() for i in range(1, table.shape[-1])]
        return Means.from_sums(np.stack([rows, *sums] if len(sums) == 2 else sums))

    def _of_groups(self, table: Floats, tail: float) -> Interval:
        if self.kind == "free":
            means = self._means(table)
            shape = table.shape[:-1]
            limits = (one.reshape(shape) for one in means.limits(2 * tail))
            low, high = limits
            return means.value.reshape(shape), low, high
        part, total = self._parts(table)
        if self.kind == "bounded":
            low, high = mean_limits(part, table[..., 2], total, tail)
        else:
            low, high = share_limits(part, total, tail, counted=self.kind == "counted")
        return self._scaled(part, total, low, high)

    def _approximate(self, table: Floats, z: float) -> Interval:
        if self.kind == "free":
            means = self._means(table)
            sizes = np.maximum(means.sizes, 1.0)
            reach = z * np.sqrt(means.variance / sizes) * (1.0 + z**2 / sizes)
            value, reach = (one.reshape(table.shape[:-1]) for one in (means.value, reach))
            return value, value - reach, value + reach
        part, total = self._parts(table)
        many = np.where(total > 0, total, np.nan)  # a group without rows has no value
        mean = part / many
        if self.kind == "bounded":
            reach = z * np.sqrt(np.maximum(table[..., 2] / many - mean**2, 0.0) / many) + z**2 / (3.0 * many)
            return self._scaled(part, total, mean - reach, mean + reach)
        middle = (mean + z**2 / (2.0 * many)) / (1.0 + z**2 / many)
        reach = z * np.sqrt(mean * (1.0 - mean) / many + z**2 / (4.0 * many**2)) / (1.0 + z**2 / many)
        return self._scaled(part, total, middle - reach, middle + reach)

    def _scaled(self, part: Floats, total: Floats, low: Floats, high: Floats) -> Interval:
        start, width = self.ends[0], self.ends[1] - self.ends[0]
        value = np.divide(part, total, out=np.full(total.shape, np.nan), where=total > 0)
        return start + width * value, start + width * low, start + width * high

    def _joined(self, value: Floats, low: Floats, high: Floats) -> Interval:
        """Return what groups make of a slice: its own number, or the largest gap of the groups that have a value."""
        if not self.is_gap:
            return value[..., 0], low[..., 0], high[..., 0]
        there = ~np.isnan(value)

        def apart(upper: Floats, lower: Floats) -> Floats:
            gap = np.where(there, upper, -np.inf).max(-1) - np.where(there, lower, np.inf).min(-1)
            return np.where(there.sum(-1) >= 2, gap, np.nan)

        return apart(value, value), np.maximum(apart(low, high), 0.0), apart(high, low)


def quantity_of(table: Table, metric: Metric, groups: Groups | None) -> SliceMetric:
    """Return the quantity of a metric over the rows of a table; a UsageError where it has none."""
    code = np.zeros(len(table), dtype=np.int64) if groups is None else groups.codes
    names = () if groups is None else groups.names
    many = max(len(names), 1)
    worse = (
        1 if groups is not None else -1 if metric.name == "selection_rate" else WORSE.get(metric.better, 0)
    )
    weight = table.rows.weight

    def made(
        kind: Kind, key: Ints, sums: list[Floats], ends: tuple[float, float] = (0.0, 1.0)
    ) -> SliceMetric:
        keys = 3 * many if kind == "counted" else many
        stacked = np.stack(sums) if sums else np.zeros((0, key.size))
        return SliceMetric(metric, kind, worse, names, key, keys, stacked, ends)

    if isinstance(metric, Rate):
        ones = np.ones(len(table))
        entries = entries_of_rows(metric, table, ones, ones)
        success, _, failure, _ = entry_sums(metric, entries).T
        whole = not np.any((success != 0) & (success != 1)) and not np.any((failure != 0) & (failure != 1))
        if weight is None and whole:
            return made("counted", code * 3 + (success + 2 * failure).astype(np.int64), [])
        total = (success + failure) * table.weight
        most = float(total.max(initial=0.0)) or 1.0
        return made("share", code, [success * table.weight / most, failure * table.weight / most])
    if not isinstance(metric, Mean):
        plain = [
            name for name, one in metrics_for(table.data_spec.task).items() if isinstance(one, (Rate, Mean))
        ]
        raise UsageError(
            f"`slice_metric`: {metric.name} is not a plain rate or mean; use one of {', '.join(plain)}"
        )
    number = numbers_of_rows(metric, table)
    low, high = metric.bounds
    if metric.quantity == "score" and not metric.error and table.data_spec.task != "regression":
        low, high = (0.0, 1.0) if table.data_spec.score_scale != "raw" else (low, high)
    if math.isfinite(low) and math.isfinite(high):
        scaled = (number - low) / (high - low)
        if weight is None:
            return made("bounded", code, [scaled, scaled**2], (low, high))
        share = weight / (float(weight.max(initial=0.0)) or 1.0)
        return made("share", code, [share * scaled, share * (1.0 - scaled)], (low, high))
    if not np.isfinite(number).all():
        raise UsageError(f"`slice_metric={metric.name}`: {metric.undefined}")
    sums = [number, number**2] if weight is None else list(powers(weight, number))
    return made("free", code, sums)
