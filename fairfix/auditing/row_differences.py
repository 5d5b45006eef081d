"""Differences row by row: the mean of a quantity that rows have under two models, whose common part cancels."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fairfix.auditing.results import first_of
from fairfix.data.binned import Entries
from fairfix.data.counts import Bools, Floats, Grid, Ints
from fairfix.data.encoder import Rows
from fairfix.data.table import Table
from fairfix.schema.common import Estimate, Number, estimate
from fairfix.stats.estimates import Means, powers

Range = tuple[float, float]

ANY: Range = (-math.inf, math.inf)
SHARE: Range = (-1.0, 1.0)
"""Ranges of a change of a row: of any size, or of a share."""

DECIDED = ("selection_rate", "accuracy")
"""Quantities of decisions; the others are losses."""


NO_BINS = Grid(0, 0, 0)
"""Bins of entries that have no scores."""


def merged(old: Table, new: Table) -> tuple[Table, Table]:
    """Return the same rows under two models by their decisions, without scores: rows that are alike are one entry.

    Alike are rows of one cell with the same labels and the same decisions, which no chance decides. What is computed of
    labels and decisions alone is the same of some hundred entries, and of the rows that chance decides. Rows with
    weights, and rows that have no decisions, are returned as they are.
    """
    plain = not any(table.rows.entries is not None or table.weighted for table in (old, new))
    if not plain or old.data_spec.binary != new.data_spec.binary:
        return old, new
    labels = 2 if new.data_spec.binary else 1
    kinds = len(new.rows.cells) * labels**2 * 4
    many = np.zeros(kinds, dtype=np.int64)
    by_chance: list[tuple[Ints | Floats, ...]] = []
    for was, now in zip(old.pieces(), new.pieces(), strict=True):
        before, after = was.chance, now.chance
        if before is None or after is None:
            return old, new
        label = _label_codes(was, now, labels)
        sure = _is_sure(before) & _is_sure(after)
        code = (now.rows.cell.astype(np.int64) * labels**2 + label) * 4
        many += np.bincount((code + 2 * (before == 1) + (after == 1))[sure], minlength=kinds)
        drawn = np.flatnonzero(~sure)
        by_chance.append((code[drawn] // 4, before[drawn], after[drawn]))
    there = np.flatnonzero(many)
    chance = [np.concatenate(part) for part in zip(*by_chance, strict=True)]
    code = np.concatenate([there // 4, chance[0]])
    decided = (np.concatenate([there // 2 % 2, chance[1]]), np.concatenate([there % 2, chance[2]]))
    rows = np.concatenate([many[there], np.ones(chance[0].size, dtype=np.int64)])
    cell, label = np.divmod(code, labels**2)
    entries = Entries(NO_BINS, np.zeros_like(rows), rows, rows.astype(np.float64), weighted=False)

    def of(table: Table, label: Ints, decision: Floats) -> Table:
        own = Rows(
            cell,
            new.rows.cells,
            label.astype(np.uint8) if labels == 2 else None,
            None,
            decision.astype(np.float64),
            rows.astype(np.float64),
            len(table),
            entries=entries,
        )
        return replace(
            table, rows=own, features=table.features.slice(0, 0).select([]), draw=None, rescore=None
        )

    return of(old, label // 2, decided[0]), of(new, label % 2, decided[1])


def _is_sure(chance: Floats) -> Bools:
    return np.asarray((chance == 0) | (chance == 1))


def _label_codes(old: Table, new: Table, labels: int) -> Ints | int:
    """Return both labels of each row as one number, shape (n,); 0 where there are none."""
    if labels == 1:
        return 0
    return np.asarray(old.labels.astype(np.int64) * 2 + new.labels)


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
    y, u = table.labels, table.scores if table.data_spec.task == "regression" else table.probability
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


def mean_change(
    before: Floats, after: Floats, table: Table, confidence: float, support: Range
) -> Estimate | None:
    """Return the mean change of a number of each row, as :func:`mean_of_rows` does; None if some is infinite."""
    with np.errstate(invalid="ignore"):  # both may be infinite
        change = after - before
    return mean_of_rows(change, table, confidence, support) if np.isfinite(change).all() else None


def mean_of_rows(each: Floats, table: Table, confidence: float, support: Range) -> Estimate:
    """Return the weighted mean of a number of each row, shape (n,), as :meth:`RowSums.mean` does."""
    sums = RowSums()
    sums.add(each, table)
    return sums.mean(confidence, support)


def between_limits(old: Number, new: Number) -> Estimate:
    """Return a change between the limits of both, each at half the miscoverage: wide, and true whatever they share."""
    return estimate(new.point - old.point, new.lower - old.upper, new.upper - old.lower)
