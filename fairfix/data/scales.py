"""Scales: how columns of numbers, such as age and income, are counted where no unit and no zero may matter.

A number counts as its distance from the mean in standard deviations, after what lies beyond either end of the scale is
moved to that end. Ends, mean and deviation are those of the rows of a fit, and stay as they are for all other rows: so
what is counted is bounded, by ends that do not depend on the rows that it is counted on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fairfix.data.counts import Floats
from fairfix.data.memberships import numbers_of
from fairfix.data.names import quoted_name
from fairfix.data.table import Table
from fairfix.errors import DataError

TAIL = 100
"""Each end of a scale leaves one row in this number, by weight, beyond it. Fewer could make most of a deviation, and so
hide all others in it; more are no longer the tail."""


@dataclass(frozen=True)
class Scale:
    """Scale of a column of numbers."""

    column: str
    low: float
    high: float
    """The ends, beyond which a number counts as the end."""
    mean: float
    deviation: float
    """Mean and deviation of the training rows within the ends; the deviation is that of a population."""

    @property
    def widest(self) -> float:
        """The largest distance of two numbers, in deviations."""
        return (self.high - self.low) / self.deviation

    def of(self, numbers: Floats) -> Floats:
        """Return numbers in deviations from the mean, same shape; NaN for NaN."""
        return np.asarray((np.clip(numbers, self.low, self.high) - self.mean) / self.deviation)


def complete(table: Table, columns: Sequence[str]) -> Table:
    """Return a table without the rows that lack one of some numbers, where its reading drops what lacks a group.

    A DataError names the column and what to do where the reading does not. A number is no group of its own.
    """
    lacking = np.zeros(len(table), dtype=bool)
    excluded = dict(table.rows.excluded)
    for name in columns:
        missing = np.isnan(numbers_of(table, name)) & ~lacking
        if not missing.any():
            continue
        reason = f"missing number ({name})"
        if table.data_spec.policy(name) != "drop":
            raise DataError(
                f"{reason} in {int(missing.sum()):,} of {len(table):,} rows; fill the values, or use `missing=drop`, "
                f"or `missing={quoted_name(name, '=')}=drop` for this column alone"
            )
        excluded[reason] = int(missing.sum())
        lacking |= missing
    if not lacking.any():
        return table
    if lacking.all():
        raise DataError("no rows are left to work with")
    left = table.take(np.flatnonzero(~lacking))
    return replace(left, rows=replace(left.rows, read=table.rows.read, excluded=excluded))


def scale_of(table: Table, column: str) -> Scale:
    """Return the scale of a feature column by the rows of a table, each by its weight.

    A DataError or ColumnError names the column where a number is missing or infinite, or where all are the same.
    """
    x, weight = numbers_of(table, column), table.weight
    if not np.isfinite(x).all():
        bad = int(np.argmin(np.isfinite(x)))
        what = "is missing" if np.isnan(x[bad]) else "is infinite"
        raise DataError(
            f"column {column!r} {what} in {int((~np.isfinite(x)).sum()):,} of {len(x):,} rows to fit on; fill these "
            "entries, or leave the rows out"
        )
    x, weight = x[weight > 0], weight[weight > 0]
    order = np.argsort(x, kind="stable")
    upto = np.cumsum(weight[order])
    downto = np.cumsum(weight[order][::-1])[::-1]
    # products and no quotients: with whole weights both sides are whole, and rows may count twice or come twice
    low = float(x[order][np.argmax(TAIL * upto >= upto[-1])])
    high = float(x[order][TAIL * downto >= downto[0]][-1])
    if not low < high:  # nearly all rows have one number
        low, high = float(x.min()), float(x.max())
    if not 0 < high - low < math.inf:
        same = f"has the number {low + 0.0:g} in all rows"
        what = same if low == high else "has numbers of more than 1e308 in rows"
        raise DataError(f"column {column!r} {what} to fit on, so its covariance is undefined; leave it out")
    share = (np.clip(x, low, high) - low) / (high - low)  # whose squares neither vanish nor overflow
    middle = float(np.average(share, weights=weight))
    spread = math.sqrt(float(np.average((share - middle) ** 2, weights=weight)))
    mean, deviation = low + middle * (high - low), spread * (high - low)
    return Scale(column, low, high, mean, deviation)


def scaled(table: Table, scales: Sequence[Scale]) -> Floats:
    """Return feature columns of a table in deviations from their means, shape (n, J); NaN where a number is missing."""
    return np.stack([scale.of(numbers_of(table, scale.column)) for scale in scales], -1)
