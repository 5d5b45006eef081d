"""Guarantees of the ramp: rules of group and score, groups by probabilities, and protected numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fairfix.data.data_spec import DataSpec
from fairfix.data.table import Table
from fairfix.methods.guarantee import GuaranteeAdapter
from fairfix.models.predictors import GroupwiseCurve, GroupwiseRamp, RepairedPredictor

if TYPE_CHECKING:
    from fairfix.methods.ramp import Ramp


class RampGuarantee(GuaranteeAdapter):
    """A slack, or a smallest ratio, of rates or covariances."""

    method: Ramp

    def refusal(self, data_spec: DataSpec, features: tuple[str, ...] | None) -> str:
        """Return why nothing can be guaranteed: a stream keeps no rows."""
        streams = self.method.solver == "stream"
        return "`solver=stream` streams rows and keeps none; use `solver=exact`" if streams else ""

    @property
    def assumptions(self) -> str:
        """The assumptions about membership probabilities, or about the scales of numbers."""
        if self.method.membership:
            what = "decisions and labels" if self.method.about_labels else "decisions"
            own = "that the membership probabilities are right"
            return f", {own}, and that {what} are independent of the true group given them"
        if self.method.parsed_constraint.numbers:
            return (
                ", and that the ends and the standard deviations of numbers on the training rows are those of "
                "the population"
            )
        return ""

    @property
    def rising(self) -> bool:
        """A threshold and a ramp rise; both rates by label may take one that falls, and a sigmoid may fall."""
        return len(self.method.events) == 1 and self.method.calibration != "sigmoid"

    def restricted(self, rule: RepairedPredictor, fitted: Table) -> RepairedPredictor:
        """Return a rule without the sums of multipliers of groups that no training row is in."""
        if not self.method.parsed_constraint.each:
            return rule
        assert isinstance(rule, GroupwiseRamp | GroupwiseCurve)
        kept = np.unique(fitted.codes(rule.columns, rule.levels))
        levels = tuple(rule.levels[k] for k in kept)
        if isinstance(rule, GroupwiseRamp):
            return replace(rule, levels=levels, offsets=rule.offsets[kept], remainders=rule.remainders[kept])
        return replace(rule, levels=levels, curves=tuple(rule.curves[k] for k in kept))
