"""GuaranteeAdapter: what :mod:`fairfix.tasks.guarantee` needs to know of a method, by default from its constraint.

A method that differs has a subclass, which its attribute ``guarantee_adapter`` names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fairfix.auditing.criteria import CRITERIA, metric_of
from fairfix.data.counts import Floats
from fairfix.data.data_spec import DataSpec
from fairfix.data.table import Groups, Table
from fairfix.models.predictors import RepairedPredictor
from fairfix.noise.description import Noise
from fairfix.noise.dual_certificates import PossibleTrueGroups

if TYPE_CHECKING:
    from fairfix.methods.base import Repairer


class RowLosses(NamedTuple):
    """The loss whose group means are bounded."""

    name: str
    loss: Floats
    """Loss of each row, shape (n,)."""
    upper: float
    """The largest loss of any label and prediction."""


class GuaranteeAdapter:
    """A method's limits, and how to tighten them for a fit."""

    method: Any
    """A :class:`~fairfix.methods.base.Repairer`."""

    def __init__(self, method: Repairer) -> None:
        self.method = method

    def refusal(self, data_spec: DataSpec, features: tuple[str, ...] | None) -> str:
        """Return why nothing can be guaranteed about such data, and a remedy; empty where it can.

        ``features``: those that the repair learns from; None for a score. By default only gaps of criteria of equal
        rates have a bound.
        """
        of = self.method.bounded_comparison(data_spec).partition(".")[0]
        if of in map(metric_of, CRITERIA):
            return ""
        return f"{self.method.name} bounds {of}, whose gaps have no bound for the population; leave out `guarantee`"

    @property
    def parameter(self) -> str:
        """Name of the parameter that sets the limit."""
        return "constraint" if self.method.parsed_constraint.least else "slack"

    @property
    def assumptions(self) -> str:
        """Assumptions besides independent rows, as the end of a sentence."""
        return ""

    @property
    def rising(self) -> bool:
        """Whether every rule of group and score rises with the score, whatever the rows are."""
        return False

    def gaps(self, groups: Groups) -> Floats | None:
        """Return the largest allowed gap of all groups, (1,), or of each, (K,); None if it does not change the fit.

        The gap of a ratio is one minus the ratio.
        """
        least = self.method.parsed_constraint.least
        limit = 1.0 - least if least else self.method.shared_slack
        return None if limit is None else np.array([limit])

    def tightened(self, by: Floats) -> Repairer:
        """Return the method with smaller limits, by ``by`` in the shape of :meth:`gaps`."""
        if least := self.method.parsed_constraint.least:
            ratio = min(least + float(by[0]), 1.0)
            tightened: Repairer = replace(
                self.method, constraint=self.method.parsed_constraint.with_least(ratio)
            )
        else:
            tightened = replace(self.method, slack=max(self.method.slack - float(by[0]), 0.0))
        return tightened

    def restricted(self, rule: RepairedPredictor, fitted: Table) -> RepairedPredictor:
        """Return the part of a rule that the training rows support."""
        return rule

    def losses(self, rule: RepairedPredictor, fitted: Table, table: Table) -> RowLosses | None:
        """Return the bounded loss of a table's rows; None where no loss is bounded. ``fitted``: the training rows."""
        return None

    def true_groups(
        self, noise: Noise, names: Sequence[str], column: str, alpha: float
    ) -> PossibleTrueGroups | None:
        """Return the possible true groups behind the recorded groups ``names`` of ``column``; None for recorded ones.

        ``alpha``: probability that the limits of a survey are wrong.
        """
        return None


def adapter_of(method: Repairer) -> GuaranteeAdapter:
    """Return the adapter of a method."""
    return method.guarantee_adapter(method)
