"""Guarantees about true groups that nobody observes: what held-out rows prove, under an assumption about the noise.

The limit of each true group's rate is tested from far down to near: the first that is not proven ends the sequence, so
testing many costs nothing (fixed sequence). Training rows and the number of held-out rows choose which are tested. A
test is one of a mean of dual values (:mod:`fairfix.noise.dual_certificates`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from fairfix.data.counts import Floats, Ints
from fairfix.data.memberships import memberships
from fairfix.data.names import group_name
from fairfix.data.table import Table
from fairfix.models.predictors import RepairedPredictor
from fairfix.noise.dual_certificates import AllowedGroups, PossibleTrueGroups, RateHypothesis, RuledRows
from fairfix.solvers.newton import least_holding
from fairfix.stats.population import BoundedStatistic
from fairfix.stats.tails import stake_of, upper_mean
from fairfix.tasks.repaired_rows import RepairedRows

OVERALL = 0.1
"""Part of alpha for the overall rates, which are known best."""

SURVEY = 0.2
"""Part for the table, where it is a survey."""

STEPS = (1.5, 1.0, 0.7, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0, -0.1, -0.2)
"""Limits that are tested, beyond the one that is expected to be proven: in widths of the bound."""

HALVINGS = 11
"""Halvings of [0, 1] for the limits that are tested: to less than a thousandth; twice as many for those shown."""


@dataclass(frozen=True, kw_only=True)
class TrueGroupDistances(BoundedStatistic):
    """The largest possible distance of true groups to all rows."""

    fit: RuledRows
    held: RuledRows
    """The training rows again where they are evaluated as if they had been held out."""
    true_groups: PossibleTrueGroups
    """Which are possible; ``alpha`` is without the part of a survey."""

    @cached_property
    def _starts(self) -> dict[tuple[int, RateHypothesis], float]:
        """The limits that training rows allow, which are needed again and again."""
        return {}

    @cached_property
    def _limits(self) -> list[tuple[RateHypothesis, float, float]]:
        """A requirement, with the overall rate and the fraction of the rows that it is about."""
        out = []
        for (rate, sign), group in product(self.true_groups.demands, range(len(self.true_groups.true))):
            inside = self.held.inside[rate]
            share = float(self.held.mass[inside].sum())
            mean = float(self.held.mass[inside] @ self.held.own[inside]) / max(share, 1e-300)
            out.append((RateHypothesis(rate, group, -sign), mean, share))
        return out

    @cached_property
    def observed(self) -> Floats:
        """The largest distance that is possible on these rows."""
        far = [0.0]
        for one, mean, _ in self._limits:
            worst = max(_root(self.held, of, one) for of in self.true_groups.exact)
            far.append(one.side * (one.at(worst).limit - mean))
        return np.array([max(far)])

    def bound_at(self, rows: Ints) -> Floats:
        """Return the largest distance; each is a sum of a group's and an overall one.

        One of the distances is the largest of the population, so the limits of each have all of alpha.
        """
        many, cost, far = int(rows[0]), -math.log(self.alpha * OVERALL), [0.0]
        for one, mean, share in self._limits:
            most = float(upper_mean(1.0 - mean if one.side > 0 else mean, many * share, cost, counted=False))
            limit = one.at(max(self._proven(of, one, many) for of in self.true_groups.allowed)).limit
            far.append(one.side * (limit - (1.0 - most if one.side > 0 else most)))
        return np.array([min(max(far), 1.0)])

    def _proven(self, allowed: AllowedGroups, one: RateHypothesis, many: int) -> float:
        """Return the last limit that is proven, as a distance from the end that says nothing: 1 is nothing."""
        key = id(allowed), one
        if key not in self._starts:
            self._starts[key] = _root(self.fit, allowed, one)
        start, cost = self._starts[key], -math.log(self.alpha * (1 - OVERALL))
        planned = least_holding(
            lambda limit: self._tested(self.fit, allowed, one.at(limit), many, cost), start, halvings=HALVINGS
        )
        limits = {min(max(planned + step * (planned - start), 0.0), 1.0) for step in STEPS}
        last = 1.0
        for limit in sorted(limits, reverse=True):
            if limit < 1.0 and not self._tested(self.held, allowed, one.at(limit), many, cost):
                break
            last = limit
        return last

    def _tested(
        self, rows: RuledRows, allowed: AllowedGroups, asked: RateHypothesis, many: int, cost: float
    ) -> bool:
        """Tell whether bets that the mean dual value is above 0 have lost ``exp(cost)`` on that number of rows."""
        was, now, least, most = allowed.dual_values(asked, self.fit, rows)
        if most <= least:
            return most <= 0.0
        zero = -least / (most - least)
        was, now = (was - least) / (most - least), (now - least) / (most - least)
        spread = math.sqrt(max(float(self.fit.mass @ was**2) - float(self.fit.mass @ was) ** 2, 0.0))
        stake = float(stake_of(spread, many, cost)) if spread > 0 else 1.0
        gain = np.maximum(1.0 + stake * (zero - now), 1e-300)
        return bool(many * float(rows.mass @ np.log(gain)) >= cost)


def rows_of_rules(rule: RepairedPredictor, table: Table, true_groups: PossibleTrueGroups) -> RuledRows:
    """Return what the rules of all recorded groups give each row of a table, with its probabilities of membership."""
    recorded = true_groups.recorded
    own, label = RepairedRows(table, rule).shipped.repaired.decisions, table.labels
    each = np.repeat(own[:, None], len(recorded), 1)
    if (of_each := rule.of_each_group(table)) is not None:
        levels, chance_of_each = of_each
        each[:, [recorded.index(group_name(level)) for level in levels]] = chance_of_each
    groups = table.groups()
    code = np.array([recorded.index(name) for name in groups.names], dtype=np.int64)[groups.codes]
    member = memberships(table, true_groups.columns) if true_groups.columns else None
    return RuledRows.of(code, label.astype(np.int64), each, member)


def _root(rows: RuledRows, allowed: AllowedGroups, one: RateHypothesis) -> float:
    """Return the least limit that the rows themselves allow."""
    return least_holding(
        lambda limit: float(rows.mass @ allowed.dual_values(one.at(limit), rows, rows)[0]) <= 0.0,
        halvings=2 * HALVINGS,
    )
