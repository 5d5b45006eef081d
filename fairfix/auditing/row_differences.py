"""Differences row by row: the mean of a quantity that rows have under two models, whose common part cancels."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fairfix.auditing.results import first_of
from fairfix.data.counts import Floats
from fairfix.data.table import Table
from fairfix.schema.common import Estimate, Number, estimate
from fairfix.stats.estimates import Means, powers

Range = tuple[float, float]

ANY: Range = (-math.inf, math.inf)
SHARE: Range = (-1.0, 1.0)
"""Ranges of a change of a row: of any size, or of a share."""

DECIDED = ("selection_rate", "accuracy")
"""Quantities of decisions; the others are losses."""


@dataclass(frozen=True, eq=False)
class PairedDifference:
    """A quantity of each row under an earlier and a later model, shape (n,) each; ``unit`` has the rows' weights."""

    before: Floats
    after: Floats
    unit: Table

    def mean(self, confidence: float, support: Range) -> Estimate | None:
        """Return the mean difference with its limits, where a row's is within ``support``; None if some is infinite."""
        with np.errstate(invalid="ignore"):  # both may be infinite
            change = self.after - self.before
        return mean_of_rows(change, self.unit, confidence, support) if np.isfinite(change).all() else None


def change_of(name: str, old: Table, new: Table, confidence: float, support: Range) -> Estimate | None:
    """Return the change of an overall metric on the same rows; None where a row lacks a value that it needs."""
    sums = RowSums()
    for was, now in zip(old.pieces(), new.pieces(), strict=True):
        before, after = (quantity_of_rows(name, one) for one in (was, now))
        if before is None or after is None:
            return None
        with np.errstate(invalid="ignore"):  # both may be infinite
            change = after - before
        if not np.isfinite(change).all():
            return None
        sums.add(change, was)
    return sums.mean(confidence, support)


def quantity_of_rows(name: str, table: Table) -> Floats | None:
    """Return what each row adds to a metric that is a mean over all rows, shape (n,); None where it is not known."""
    if name not in DECIDED:
        return None if table.rows.label is None else loss_of_rows(name, table)
    chance = table.chance
    if name == "selection_rate" or chance is None:
        return chance
    return np.where(table.rows.label == 1, chance, 1 - chance) if table.data_spec.binary else None


def loss_of_rows(name: str, table: Table) -> Floats:
    """Return the loss of each row by its score, shape (n,)."""
    y, u = table.rows.label, table.rows.score if table.data_spec.task == "regression" else table.probability
    assert y is not None
    assert u is not None
    if name == "log_loss":
        with np.errstate(divide="ignore"):
            return np.asarray(-np.log(np.where(y == 1, u, 1 - u)))
    return np.asarray(np.abs(u - y) if name == "absolute_loss" else (u - y) ** 2)


class RowSums:
    """Sums of a number of each row, by which its mean and its limits are known; rows are added in their order."""

    def __init__(self) -> None:
        self._sums: Floats | float = 0.0
        self._sizes = 0.0

    def add(self, each: Floats, rows: Table) -> None:
        """Add a number of each of some rows, shape (n,)."""
        weight = rows.weight
        self._sums = self._sums + powers(weight, each, rows.square_weight).sum(axis=1, keepdims=True)
        self._sizes += float((weight * np.abs(each)).sum())

    def mean(self, confidence: float, support: Range) -> Estimate:
        """Return the weighted mean of the number, whose smallest and largest possible value are ``support``."""
        mean = Means.from_sums(self._sums, support, [self._sizes])
        return first_of(mean.value, mean.limits(1.0 - confidence))


def mean_of_rows(each: Floats, table: Table, confidence: float, support: Range) -> Estimate:
    """Return the weighted mean of a number of each row, shape (n,), as :meth:`RowSums.mean` does."""
    sums = RowSums()
    sums.add(each, table)
    return sums.mean(confidence, support)


def between_limits(old: Number, new: Number) -> Estimate:
    """Return a change between the limits of both, each at half the miscoverage: wide, and true whatever they share."""
    return estimate(new.point - old.point, new.lower - old.upper, new.upper - old.lower)
