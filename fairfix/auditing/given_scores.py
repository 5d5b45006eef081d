"""Intervals of log losses given the scores, where rows are too few for intervals of all people.

Given its score a row has one of two known losses (:mod:`fairfix.stats.two_valued`). A group or a comparison whose log
loss has no limit also gets the interval for people with the scores of these rows. It is another interval, so it has a
name of its own and decides no check.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from msgspec.structs import replace

from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.group_estimates import GAPS, Measured
from fairfix.data.data_spec import to_probability
from fairfix.schema import common
from fairfix.schema.common import Estimate, Group
from fairfix.stats.estimates import sidak
from fairfix.stats.gaps import Contrasts, Gap, worst
from fairfix.stats.two_valued import TwoValued

LOG_LOSS = "log_loss"

MOST_GROUPS = 100
"""Groups of an attribute whose log losses have such intervals, at some milliseconds each."""


@dataclass(frozen=True)
class GivenScores:
    """Intervals given the scores, of one view."""

    measured: Measured

    @cached_property
    def losses(self) -> TwoValued | None:
        """The losses of the rows by group; a group with a score of 0 or 1 has none, since one may be infinite.

        None unless a group has too few rows for a limit of its log loss, and rows are there to find another.
        """
        view, evidence = self.measured.view, self.measured.evidence
        rows, scale = evidence.labelled, evidence.data_spec.score_scale
        if rows is None or view.size > MOST_GROUPS or LOG_LOSS not in self.measured.estimates:
            return None
        estimates, _ = self.measured.estimates[LOG_LOSS]
        high = estimates.limits(self.measured.alpha)[1]
        if not np.isinf(high[np.isfinite(estimates.value)]).any():
            return None
        group = view.group_of_cell[rows.cell]
        with np.errstate(divide="ignore"):
            if scale == "logit":
                of_1, of_0 = np.logaddexp(0.0, -rows.score), np.logaddexp(0.0, rows.score)
            else:
                chance = np.clip(to_probability(rows.score, scale), 0.0, 1.0)  # rounding leaves the interval
                of_1, of_0 = np.abs(np.log(chance)), np.abs(np.log(1.0 - chance))
        endless = np.isinf(of_1) | np.isinf(of_0)
        group = np.where(np.isin(group, group[endless]), -1, group)
        larger = np.where(rows.labels == 1, of_1 >= of_0, of_0 > of_1).astype(np.float64)
        ends = np.minimum(of_1, of_0), np.where(endless, 0.0, np.maximum(of_1, of_0))
        return TwoValued.of_rows(group, view.size, *ends, larger, rows.weight)

    def groups(self, reports: tuple[Group, ...]) -> tuple[Group, ...]:
        """Return the groups, with such an interval where the log loss has no limit."""
        if self.losses is None:
            return reports
        defined = np.count_nonzero(~np.isnan(self.measured.estimates[LOG_LOSS][0].value))
        ends = zip(*self.losses.limits(sidak(self.measured.alpha, int(defined))), strict=True)
        return tuple(
            replace(one, metrics={**one.metrics, LOG_LOSS: _with_ends(one.metrics[LOG_LOSS], own)})
            for one, own in zip(reports, ends, strict=True)
        )

    def comparisons(self, reports: Iterable[common.SavedComparison]) -> Iterator[common.SavedComparison]:
        """Yield the comparisons, those of log losses with such an interval where they have no limit."""
        for report in reports:
            of = Comparison.parse(report.id)
            losses = self.losses if of.metric == LOG_LOSS else None
            yield report if losses is None else self._compared(losses, of, report)

    def _compared(
        self, losses: TwoValued, of: Comparison, report: common.SavedComparison
    ) -> common.SavedComparison:
        measured, ratio = self.measured, of.kind == "ratio"
        if of.kind in ("min", "max"):
            gap = worst(losses, measured.alpha, smallest=of.kind == "min")
            return _with_ends(report, (gap.low, gap.high))
        more: dict[str, tuple[Any, ...]] = {"to_reference": (measured.view.reference,)}
        if of.scope == "to_overall":
            weight = measured.sizes[0]
            more["to_overall"] = losses.rest, weight / weight.sum()
        result = GAPS[of.scope, of.kind](losses, *more.get(of.scope, ()), measured.alpha)
        gap = result if isinstance(result, Gap) else result.gap
        per_group = dict(report.per_group)
        if isinstance(result, Contrasts):
            ends = zip(result.low.tolist(), result.high.tolist(), strict=True)
            each = zip(report.per_group.items(), ends, strict=True)
            per_group = {name: _with_ends(value, own, ratio=ratio) for (name, value), own in each}
        return replace(_with_ends(report, (gap.low, gap.high), ratio=ratio), per_group=per_group)


SomeEstimate = TypeVar("SomeEstimate", bound=Estimate)


def _with_ends(value: SomeEstimate, ends: tuple[float, float], *, ratio: bool = False) -> SomeEstimate:
    """Return a value without a limit with its interval given the scores, if that has both ends.

    A ratio has no limit where its interval begins at 0.
    """
    low, high = map(float, ends)
    closed = value.high is not None and not (ratio and value.low == 0)
    undefined = value.value is None or not (math.isfinite(low) and math.isfinite(high))
    if closed or undefined or (ratio and low == 0):
        return value
    return replace(value, given_scores=(min(low, value.point), max(high, value.point)))
