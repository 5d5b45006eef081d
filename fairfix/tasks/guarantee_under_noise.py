"""Behind noise: what held-out rows prove of true groups that nobody sees, under what is assumed of the noise.

Each true group has a limit that its rate is tested against, from far down to near: the first that is not proven ends
the row, so that testing many costs nothing (fixed sequence). What limits there are is chosen by the rows of the fit and
the number of held-out rows. A test is one of a mean of prices (:mod:`fairfix.noise.dual_certificates`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from fairfix.data.counts import Floats, Ints
from fairfix.data.memberships import memberships
from fairfix.data.names import group_name
from fairfix.data.table import Table
from fairfix.models.predictors import RepairedPredictor
from fairfix.noise.dual_certificates import Allowed, Asked, Behind, RuledRows
from fairfix.stats.population import Evidence
from fairfix.stats.tails import stake_of, upper_mean
from fairfix.tasks.before_after import results_on

OVERALL = 0.1
"""Part of the miscoverage that goes to the rates over everybody, which are known best."""

SURVEY = 0.2
"""Part that goes to the table, where it is a survey."""

STEPS = (1.5, 1.0, 0.7, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0, -0.1, -0.2)
"""Limits that are tested, beyond the one that is expected to be proven: in widths of the bound."""

HALVINGS = 11
"""Of [0, 1], for the limits that are tested: to less than a thousandth; twice as many for what is shown."""


@dataclass(frozen=True, kw_only=True)
class BehindNoise(Evidence):
    """How far true groups may be from everybody."""

    fit: RuledRows
    held: RuledRows
    """The same rows, where those of the fit are judged as if they had been held out."""
    behind: Behind
    """What may be; the share of alpha that a survey takes is taken from ``alpha`` already."""

    @cached_property
    def _starts(self) -> dict[tuple[int, str, float, int], float]:
        """Limits that the rows of the fit allow, which are asked for again and again."""
        return {}

    @cached_property
    def _overall(self) -> dict[str, tuple[float, float]]:
        """Rate -> the rate over everybody and the share of the rows that it is about."""
        out = {}
        for rate, _ in self.behind.demands:
            inside = self.held.inside(rate)
            share = float(self.held.mass[inside].sum())
            out[rate] = float(self.held.mass[inside] @ self.held.own[inside]) / max(share, 1e-300), share
        return out

    def _each(self) -> Iterator[tuple[str, float, int]]:
        """Yield what is to hold: rate, side and true group; the side is 1 where the rate has an upper limit."""
        for (rate, sign), group in product(self.behind.demands, range(len(self.behind.true))):
            yield rate, -sign, group

    @cached_property
    def seen(self) -> Floats:
        """The largest distance that is allowed on these rows."""
        far = 0.0
        for rate, side, group in self._each():
            worst = max(_root(self.held, one, rate, side, group) for one in self.behind.exact)
            far = max(far, side * (_limit(worst, side) - self._overall[rate][0]))
        return np.array([far])

    def of(self, rows: Ints) -> Floats:
        """Return the largest distance with what rows may be off; a sum of that of a group and of everybody.

        One of the distances is the largest of the population, so the limits of each have all of alpha.
        """
        many, cost = int(rows[0]), -math.log(self.alpha * OVERALL)
        own = -math.log(self.alpha * (1 - OVERALL))
        far = 0.0
        for rate, side, group in self._each():
            mean, share = self._overall[rate]
            most = float(upper_mean(1.0 - mean if side > 0 else mean, many * share, cost, counted=False))
            over = 1.0 - most if side > 0 else most
            limit = max(self._proven(one, rate, side, group, many, own) for one in self.behind.allowed)
            far = max(far, side * (_limit(limit, side) - over))
        return np.array([min(far, 1.0)])

    def _proven(self, allowed: Allowed, rate: str, side: float, group: int, many: int, cost: float) -> float:
        """Return the last limit that is proven, as a distance from the end that says nothing: 1 is nothing."""
        key = id(allowed), rate, side, group
        if key not in self._starts:
            self._starts[key] = _root(self.fit, allowed, rate, side, group)
        start = self._starts[key]
        low, high = start, 1.0
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            proven = self._tested(self.fit, allowed, rate, side, group, middle, many, cost)
            low, high = (low, middle) if proven else (middle, high)
        last = 1.0
        for limit in sorted(
            {min(max(high + step * (high - start), 0.0), 1.0) for step in STEPS}, reverse=True
        ):
            if limit < 1.0 and not self._tested(self.held, allowed, rate, side, group, limit, many, cost):
                break
            last = limit
        return last

    def _tested(
        self,
        rows: RuledRows,
        allowed: Allowed,
        rate: str,
        side: float,
        group: int,
        limit: float,
        many: int,
        cost: float,
    ) -> bool:
        """Tell whether bets that the mean price is above 0 have lost ``exp(cost)`` on so many rows."""
        asked = Asked(rate, group, side, _limit(limit, side))
        was, now, least, most = allowed.priced(asked, self.fit, rows)
        if most <= least:
            return most <= 0.0
        zero = -least / (most - least)
        was, now = (was - least) / (most - least), (now - least) / (most - least)
        spread = math.sqrt(max(float(self.fit.mass @ was**2) - float(self.fit.mass @ was) ** 2, 0.0))
        stake = float(stake_of(spread, many, cost)) if spread > 0 else 1.0
        gain = np.maximum(1.0 + stake * (zero - now), 1e-300)
        return bool(many * float(rows.mass @ np.log(gain)) >= cost)


def ruled_rows(rule: RepairedPredictor, table: Table, behind: Behind) -> RuledRows:
    """Return what the rules of all recorded groups give each row of a table, with its probabilities of membership."""
    recorded = behind.recorded
    own, label = results_on(table, rule)[1].chance, table.rows.label
    assert own is not None
    assert label is not None  # who repairs behind noise has labels
    each = np.repeat(own[:, None], len(recorded), 1)
    if (of_each := rule.of_each_group(table)) is not None:
        levels, chance_of_each = of_each
        each[:, [recorded.index(group_name(level)) for level in levels]] = chance_of_each
    groups = table.groups()
    code = np.array([recorded.index(name) for name in groups.names], dtype=np.int64)[groups.codes]
    member = memberships(table, behind.columns) if behind.columns else None
    return RuledRows.of(code, label.astype(np.int64), each, member)


def _limit(distance: float, side: float) -> float:
    """Return a limit of a rate by its distance from the end that says nothing less: 0 above, 1 below."""
    return distance if side > 0 else 1.0 - distance


def _root(rows: RuledRows, allowed: Allowed, rate: str, side: float, group: int) -> float:
    """Return the least limit that the rows themselves allow, from above."""
    low, high = 0.0, 1.0
    for _ in range(2 * HALVINGS):
        middle = (low + high) / 2
        prices = allowed.priced(Asked(rate, group, side, _limit(middle, side)), rows, rows)[0]
        low, high = (low, middle) if float(rows.mass @ prices) <= 0.0 else (middle, high)
    return high
