"""What fair regression promises of people who are not in the data: its part of :mod:`fairfix.tasks.guarantee`."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, cast

from fairfix.data.counts import Floats
from fairfix.data.reading import Reading
from fairfix.data.table import Groups, Table
from fairfix.errors import DataError, UsageError
from fairfix.methods.base import Repairer
from fairfix.methods.fair_regression.group_loss import bounded_losses, kept_within
from fairfix.models.predictors import RepairedPredictor
from fairfix.solvers.losses import row_loss

if TYPE_CHECKING:
    from fairfix.methods.fair_regression import FairRegression


class Promised(Repairer):
    """Bounds on losses, and slacks of all or of single groups, as something that can be promised."""

    label_range: str

    @property
    @abstractmethod
    def bounds_losses(self) -> bool:
        """Whether losses of groups are bounded."""

    @abstractmethod
    def loss_of(self, reading: Reading) -> str:
        """Return the name of the loss in force."""

    @abstractmethod
    def loss_on(self, table: Table) -> str:
        """Return the loss in force with its number."""

    @abstractmethod
    def limits(self, groups: Groups) -> Floats:
        """Return the bound on the loss of each group, shape (K,)."""

    @abstractmethod
    def slacks(self, groups: Groups) -> Floats:
        """Return the slack of each group, shape (K,)."""

    def without_guarantee(self, reading: Reading) -> str:
        """Return why nothing is promised of other people: losses without an end."""
        if self.bounds_losses and self.ends_on(reading) is None:
            return (
                "the mean loss in the population has a bound only if labels have one; give the range of all labels in "
                "the population, such as `label_range=0,100`; use possible values, not those of these rows"
            )
        return ""

    @property
    def granted(self) -> str:
        """Where labels lie."""
        if self.label_ends is None:
            return ""
        low, high = self.label_ends
        return f", and that every label is between {low:g} and {high:g}"

    @property
    def asked_by(self) -> str:
        """Name of the parameter in force."""
        return "constraint" if self.bounds_losses or self.wanted.limits else "slack"

    def largest_gaps(self, groups: Groups) -> Floats | None:
        """Return the bounds on losses, or the slacks, of each group; the one slack where there is one."""
        if self.bounds_losses:
            return self.limits(groups)
        return self.slacks(groups) if self.wanted.limits else super().largest_gaps(groups)

    def tighter(self, by: Floats) -> Repairer:
        """Return the repairer with so much less of each."""
        return (
            super().tighter(by)
            if self.asked_by == "slack"
            else replace(cast("FairRegression", self), margin=tuple(by.tolist()))
        )

    def promisable(self, rule: RepairedPredictor, fitted: Table) -> RepairedPredictor:
        """Return a rule of bounded losses with its values kept where they are on the rows of the fit."""
        return kept_within(rule, fitted) if self.bounds_losses else rule

    def losses_of(
        self, rule: RepairedPredictor, fitted: Table, table: Table
    ) -> tuple[str, Floats, float] | None:
        """Return the loss that is bounded, that of each row, and the largest there is; None where none is bounded."""
        if not self.bounds_losses:
            return None
        ends = self.ends_on(table.reading)
        assert ends is not None
        self.check_ends(table)
        return bounded_losses(row_loss(self.loss_on(fitted)), rule, fitted, table, ends)

    @cached_property
    def label_ends(self) -> tuple[float, float] | None:
        """The ends of `label_range`; None where there is none."""
        if not self.label_range:
            return None
        parts = self.label_range.split(",")
        try:
            low, high = map(float, parts)
        except ValueError:
            low = high = math.nan
        if not -math.inf < low < high < math.inf:
            raise UsageError(
                f"`label_range={self.label_range}`: write two numbers, LOW,HIGH, the smaller one first"
            )
        return low, high

    def ends_on(self, reading: Reading) -> tuple[float, float] | None:
        """Return where all labels lie; None where nobody knows."""
        if reading.task == "classification" or self.loss_of(reading) == "logistic":
            return 0.0, 1.0
        return self.label_ends

    def check_ends(self, table: Table) -> None:
        """Raise where labels lie where none was said to lie."""
        reading, label = table.reading, table.rows.label
        if self.label_ends is None or label is None:
            return
        if reading.task == "classification":
            raise UsageError(
                "fair-regression: `label_range` is for real-valued labels, and these are 0 and 1; leave it out"
            )
        (low, high), least, most = self.label_ends, float(label.min()), float(label.max())
        if least < low or most > high:
            raise DataError(
                f"label column {reading.columns.label!r} goes from {least:g} to {most:g}, which is not within "
                f"`label_range={self.label_range}`; give the range of all possible labels"
            )
