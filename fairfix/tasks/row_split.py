"""The split of the rows of a repair into parts.

The rows are split at random inside each (group, label), so that small groups are in every part. The *fit* part
makes the predictor, the *validation* part chooses among parameter values when several are given, the *holdout*
part judges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fairfix.data.counts import Ints, spans, tallied
from fairfix.data.names import attribute_name
from fairfix.data.table import Table
from fairfix.errors import DataError, UsageError

FIT, VALIDATION, HOLDOUT = range(3)
"""Parts of the rows."""


@dataclass(frozen=True)
class Split:
    """Parts of the rows."""

    part: npt.NDArray[np.uint8]
    """Part of each row, shape (n,): 0 fit, 1 validation, 2 holdout."""

    @property
    def fit(self) -> Ints:
        """Row numbers of the part that the predictor is fitted on, sorted."""
        return np.flatnonzero(self.part == FIT)

    @property
    def validation(self) -> Ints:
        """Row numbers of the part that chooses among parameter values, sorted."""
        return np.flatnonzero(self.part == VALIDATION)

    @property
    def holdout(self) -> Ints:
        """Row numbers of the part for the evaluation, sorted."""
        return np.flatnonzero(self.part == HOLDOUT)

    @property
    def sizes(self) -> dict[str, int]:
        """Number of rows of each part, by its name."""
        fit, validation, holdout = tallied(self.part, 3).tolist()
        return {"fit": fit, "validation": validation, "holdout": holdout}


def split_rows(
    table: Table, rng: np.random.Generator, *, validation: float, holdout: float, alike: Ints | None = None
) -> Split:
    """Split at random inside each (cell, label), or each part of rows that are ``alike``, (n,), by shares.

    A UsageError where the shares leave no rows to fit on.
    """
    if not (0 <= validation < 1 and 0 < holdout < 1 and validation + holdout < 1):
        raise UsageError(
            f"`validation={validation:g}` and `holdout={holdout:g}` must be fractions that leave rows to fit on; "
            "0.2 and 0.3 are usual"
        )
    many, labels = len(table), 1
    stratum: npt.NDArray[Any] = table.rows.cell if alike is None else alike
    if alike is None and table.data_spec.binary and table.rows.label is not None:
        labels = 2
    most = labels * (int(stratum.max(initial=0)) + 1)
    stratum = stratum.astype(np.uint16 if most <= 1 << 16 else np.int64)  # few bytes: a radix sort
    if labels == 2:
        stratum *= 2
        stratum += table.rows.label
    order = np.arange(many, dtype=np.int32 if many < 1 << 31 else np.int64)
    rng.shuffle(order)
    sizes = tallied(stratum, most)
    held = np.round(sizes * holdout)
    chosen = held + np.round(sizes * validation)
    part, before = np.full(many, FIT, dtype=np.uint8), np.zeros(sizes.size, dtype=np.int64)
    for inside in spans(many):
        rows = order[inside]
        rows = rows[np.argsort(stratum[rows], kind="stable")]
        own = stratum[rows]
        seen = np.bincount(own, minlength=sizes.size)
        # the rank of each row among those of its stratum, in the shuffled order
        rank = np.arange(rows.size) + (before - (np.cumsum(seen) - seen))[own]
        part[rows] = np.where(rank < held[own], HOLDOUT, np.where(rank < chosen[own], VALIDATION, FIT))
        before += seen
    return Split(part)


def check_split(table: Table, split: Split) -> None:
    """Raise a DataError where no rows are held out, or a group has none to fit on: before anything is fitted."""
    if not split.sizes["holdout"]:
        raise DataError(f"{len(table)} rows are too few to hold some out for the evaluation; raise `holdout`")
    groups = table.groups()
    many = len(groups.levels)
    has, fitted = (tallied(codes, many) for codes in (groups.codes, groups.codes[split.part == FIT]))
    without = np.flatnonzero((has > 0) & (fitted == 0))
    if without.size:
        k = int(without[0])
        rows = "the only row" if has[k] == 1 else f"none of the {has[k]:,} rows"
        left = "is not left" if has[k] == 1 else "are left"
        raise DataError(
            f"{rows} of group {groups.names[k]!r} of {attribute_name(groups.columns)!r} {left} to fit on; lower "
            "`holdout` or `validation`, or merge the group into another"
        )
