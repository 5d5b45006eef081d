"""Guarantees of fair regression: bounds on losses, and slacks of all groups or of single ones."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from fairfix.data.counts import Floats
from fairfix.data.data_spec import DataSpec
from fairfix.data.table import Groups, Table
from fairfix.errors import DataError, UsageError
from fairfix.methods.base import Repairer
from fairfix.methods.fair_regression.group_loss import kept_within, losses_within
from fairfix.methods.guarantee import GuaranteeAdapter, RowLosses
from fairfix.models.predictors import RepairedPredictor
from fairfix.solvers.losses import row_loss

if TYPE_CHECKING:
    from fairfix.methods.fair_regression import FairRegression


class RegressionGuarantee(GuaranteeAdapter):
    """Limits of each group, where the constraint sets such."""

    method: FairRegression

    def refusal(self, data_spec: DataSpec, features: tuple[str, ...] | None) -> str:
        """Return why nothing can be guaranteed: labels, and so losses, are unbounded."""
        if self.method.bounds_losses and self._label_range(data_spec) is None:
            return (
                "the mean loss in the population has a bound only if labels have one; give the range of all labels in "
                "the population, such as `label_range=0,100`; use possible values, not those of these rows"
            )
        return ""

    @property
    def _by_group(self) -> bool:
        return self.method.bounds_losses or bool(self.method.parsed_constraint.limits)

    @property
    def parameter(self) -> str:
        """Name of the parameter that sets the limit."""
        return "constraint" if self._by_group else "slack"

    @property
    def assumptions(self) -> str:
        """The range of labels."""
        ends = label_range(self.method.label_range)
        return "" if ends is None else f", and that every label is between {ends[0]:g} and {ends[1]:g}"

    def gaps(self, groups: Groups) -> Floats | None:
        """Return the largest loss or distance of each group, or the slack of all."""
        if self.method.bounds_losses:
            return self.method.limits(groups)
        return self.method.slacks(groups) if self._by_group else super().gaps(groups)

    def tightened(self, by: Floats) -> Repairer:
        """Return the method with smaller limits."""
        return replace(self.method, margin=tuple(by.tolist())) if self._by_group else super().tightened(by)

    def restricted(self, rule: RepairedPredictor, fitted: Table) -> RepairedPredictor:
        """Return a rule of bounded losses with its predictions kept in their range on the training rows."""
        return kept_within(rule, fitted) if self.method.bounds_losses else rule

    def losses(self, rule: RepairedPredictor, fitted: Table, table: Table) -> RowLosses | None:
        """Return the bounded loss of a table's rows."""
        if not self.method.bounds_losses or (labels := self._label_range(table.data_spec)) is None:
            return None
        check_labels(self.method.label_range, table)
        return losses_within(row_loss(self.method.loss_on(fitted)), rule, fitted, table, labels)

    def _label_range(self, data_spec: DataSpec) -> tuple[float, float] | None:
        """Return the range of all labels; None where it is unknown."""
        if data_spec.task == "classification" or self.method.loss_of(data_spec) == "logistic":
            return 0.0, 1.0
        return label_range(self.method.label_range)


def label_range(text: str) -> tuple[float, float] | None:
    """Read the parameter ``label_range``; None where it is empty."""
    if not text:
        return None
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        low = high = math.nan
    if not -math.inf < low < high < math.inf:
        raise UsageError(f"`label_range={text}`: write two numbers, LOW,HIGH, the smaller one first")
    return low, high


def check_labels(text: str, table: Table) -> None:
    """Raise where labels are outside ``label_range``."""
    ends, label, data_spec = label_range(text), table.rows.label, table.data_spec
    if ends is None or label is None:
        return
    if data_spec.task == "classification":
        raise UsageError(
            "fair-regression: `label_range` is for real-valued labels, and these are 0 and 1; leave it out"
        )
    low, high = float(label.min()), float(label.max())
    if low < ends[0] or high > ends[1]:
        raise DataError(
            f"label column {data_spec.columns.label!r} goes from {low:g} to {high:g}, which is not within "
            f"`label_range={text}`; give the range of all possible labels"
        )
