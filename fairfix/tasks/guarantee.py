r"""Guarantee: a bound on the gap of the population under a repair, with a stated confidence.

The slack holds on the training rows. Of the population they were drawn from nothing is certain, but a bound on its gap
holds with probability ``confidence`` over the draw of the rows, for any number of them (:mod:`fairfix.stats.tails`).
There are three ways to one:

===============  =====================================================================================================
``uniform``      rules of group and of a score that was there before: the gap on the training rows plus how far any
                 such rule can be off. It holds for all of them at once, so for whatever the rows chose
``held-out``     whatever was learned: the finished rule is tested once, on rows that had no part in it
``construction``  decisions that do not use what is changed cannot change with it
===============  =====================================================================================================

The fit is given less slack than was asked for, so that the bound is within it. How much less depends on the training
rows and on numbers of rows alone: held-out rows choose nothing. Rows are split without looking at labels, and, where
overall rates count, without looking at groups. Derivations are in docs/guarantee.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np

from fairfix.auditing.comparisons import Comparison
from fairfix.data.arrow_normalize import texts_of
from fairfix.data.counts import Floats, Ints
from fairfix.data.names import attribute_name
from fairfix.data.table import Table
from fairfix.errors import DataError, UsageError
from fairfix.methods.base import Repairer
from fairfix.methods.guarantee import adapter_of
from fairfix.models.predictors import RepairedPredictor
from fairfix.noise.description import Noise
from fairfix.schema.repair import Needed, Price, RowsOfGroup
from fairfix.stats.population import BoundedStatistic
from fairfix.tasks.guarantee_result import GuaranteeResult, Limit, Way
from fairfix.tasks.guarantee_statistics import GuaranteeStatistics

TRIES = 30
"""Number of fits with ever smaller slack; at least every third one halves the range that is left to search."""

NEAR = 1e-4
"""... until the bound is within the slack and above it less this part, which costs nothing noticeable."""

OTHER_WAY = 0.2
"""Part of alpha for held-out rows where the bound over all rules may be too wide for rare rates."""

HELD_OUT_TRIES = 3
"""Number of fits with less slack where the rule is not expected to be certified on held-out rows."""

MOST_ROWS = 10**9
"""The largest number of rows that is ever asked for."""

GRAIN = 0.03
"""Numbers of rows that are needed are searched to this part of them, ..."""

DIGITS = 2
"""Digits that a slack is rounded up to."""

UNLUCKY = 1.3
"""Standard deviations by which the rows of a group that come into a part may be fewer than its share of the data's: in
nine in ten repairs they are not."""

AGAIN = 1.1
"""As many times the rows there are as are asked for where chance alone was against them."""

WORTH = 1e-3
"""Part of a bound below which what more rows take off it is not worth a sentence."""

AUDITED = ("between_groups", "to_overall", "within_strata")
"""Scopes of what an audit of decisions compares too."""

NAME_IT = {
    "slack": "set the largest allowed gap with `slack`, such as `slack=0.05`",
    "constraint": "set another limit in `constraint`, such as dp.ratio>=0.8 or square_loss.max<=0.2",
}
"""Parameter of the limit -> what to set instead."""

PARTS = (1.0, 0.5, 0.25)
"""Fractions by which a bound on losses is tightened; no rule may meet the tightest bound."""

Made = tuple[Repairer, RepairedPredictor]
"""A finished rule, with the method that made it."""


@dataclass(frozen=True)
class GuaranteeProblem(GuaranteeStatistics):
    """A guarantee that is asked for: finds the rule of most slack that keeps it, and evaluates it."""

    @property
    def gaps(self) -> Floats:
        """The largest allowed gaps that are finite, shape (m,)."""
        return self.requested[self.bounded]

    @property
    def strata(self) -> Ints:
        """Strata of the split, shape (n,): one stratum where overall rates count, or groups overlap."""
        against_all = self.comparison.scope in ("to_overall", "under_flips")
        overlap = len(self.attributes) > 1 or self.true_groups is not None
        cell = np.asarray(self.table.rows.cell)
        whole = overlap or (against_all and self.comparison.kind != "covariance")
        return np.zeros_like(cell) if whole else cell

    def _tightened(self, by: Floats) -> Repairer:
        """Return the repairer with allowed gaps smaller by ``by``, shape (m,)."""
        every = np.zeros(self.requested.size)
        every[self.bounded] = np.minimum(by, self.gaps)
        return self.adapter.tightened(every)

    def _shaped(self, numbers: Floats) -> Floats:
        """Return numbers of groups in the shape of :attr:`gaps`: the largest where one is for all."""
        return numbers if numbers.size == self.gaps.size else np.array([numbers.max()])

    def _within(self, bounds: Floats) -> bool:
        return bool((self._shaped(bounds) <= self.gaps).all())

    # ------------------------------------------------------------------ the way to a bound

    def _ways(self, rule: RepairedPredictor) -> tuple[Way, ...]:
        """Return the ways to a bound of a rule; two share alpha, and the training rows choose.

        Groups that overlap, or are not observed, have no rules of a score alone.
        """
        used, of = {*rule.inputs, *rule.features}, self.comparison
        if of.scope == "under_flips" and used.isdisjoint(self.table.data_spec.columns.protected):
            return ("construction",)
        if rule.variation is None or len(self.attributes) > 1 or self.true_groups is not None:
            return ("held-out",)
        of_rates = of.metric != "ks" and of.kind in ("difference", "ratio")
        return ("uniform", "held-out") if of_rates else ("uniform",)

    def _statistic(self, way: Way, rule: RepairedPredictor, fitted: Table, held: Table) -> BoundedStatistic:
        """Return the statistic whose bound is known in a way."""
        both, uniform = len(self._ways(rule)) > 1, way == "uniform"
        alpha = self.alpha * ((1 - OTHER_WAY if uniform else OTHER_WAY) if both else 1)
        return self.uniform(rule, fitted, alpha) if uniform else self.held_out(rule, fitted, held, alpha)

    def _way(self, rule: RepairedPredictor, fitted: Table, held: Table) -> Way:
        """Return the way for a rule: held-out rows have no part in the choice but by their numbers."""
        first, *others = self._ways(rule)
        if not others or self._within(self._statistic(first, rule, fitted, held).bounds):
            return first
        wide, shown = self._planned(rule, fitted)(self._statistic("held-out", rule, fitted, held).rows)
        return "held-out" if self._within(shown + wide) else "uniform"

    def _planned(
        self, rule: RepairedPredictor, fitted: Table, *, unlucky: float = 0.0, inner: Floats | float = 0.0
    ) -> Callable[[Ints], tuple[Floats, Floats]]:
        """Return a function of numbers of held-out rows: how far bounds will be above the training gaps, and those.

        With what chance may add to the gaps on held-out rows, so that nine in ten repairs are proven. ``unlucky``: the
        standard deviations by which rates are taken to be too large, where ratios depend on them. ``inner``: what less
        slack would take off the gaps.
        """
        training = self._statistic("held-out", rule, fitted, fitted)
        planned = training.pessimistic(unlucky, self.repairer.slack / 2)
        gaps = np.asarray(np.maximum(self._shaped(training.observed) - inner, 0.0))

        def of(rows: Ints) -> tuple[Floats, Floats]:
            if rows.shape != planned.rows.shape or not rows.min() > 0:
                return self.gaps, gaps
            bounds = planned.bound_at(rows)
            most = bounds + planned.excess(rows, bounds - planned.observed)
            return self._shaped(most) - self._shaped(planned.observed), gaps

        return of

    # ------------------------------------------------------------------ the search

    def fitted(self, fit: Callable[[Repairer], RepairedPredictor], fitted: Table, held: Ints) -> Made:
        """Return the rule whose bound is, as far as training rows show, within the allowed gaps.

        ``held``: numbers of the held-out rows; only their cells are used.
        """

        def made_by(repairer: Repairer) -> Made:
            return repairer, adapter_of(repairer).restricted(fit(repairer), fitted)

        first, kept = made_by(self.repairer), self.table.take(held)
        ways = self._ways(first[1])
        if "construction" in ways or self.adapter.gaps(self.table.groups()) is None:
            return first
        if "uniform" not in ways:
            return self._expected(made_by, fitted, kept, first)
        best = self._searched(made_by, fitted, first)
        if len(ways) == 1 or self._within(self._statistic("uniform", best[1], fitted, kept).bounds):
            return best
        tested = self._expected(made_by, fitted, kept, first)
        return tested if self._way(tested[1], fitted, kept) == "held-out" else best

    def _searched(self, made_by: Callable[[Repairer], Made], fitted: Table, first: Made) -> Made:
        """Return the rule of most slack whose uniform bound is within the allowed gaps; that of no slack if none is."""
        statistic = self._statistic("uniform", first[1], fitted, fitted)
        bounds = self._shaped(statistic.bounds)
        if self._within(bounds):
            return first

        def trial(by: Floats) -> tuple[Floats, Made]:
            made = made_by(self._tightened(by))
            return self._shaped(self._statistic("uniform", made[1], fitted, fitted).bounds) - self.gaps, made

        return most_slack(trial, self.gaps, bounds - self.gaps, bounds - self._shaped(statistic.observed))

    def _expected(self, made_by: Callable[[Repairer], Made], fitted: Table, held: Table, first: Made) -> Made:
        """Return the rule of most slack that held-out rows are expected to prove."""
        rows = self._statistic("held-out", first[1], fitted, held).rows
        by, shown = self._planned(first[1], fitted)(rows)
        if (shown + by <= self.gaps).all():
            return first
        if self.comparison.kind == "max":
            for part in PARTS:
                with suppress(DataError):  # no rule has so small losses
                    return made_by(self._tightened(part * by))
            return first
        for _ in range(HELD_OUT_TRIES):
            made = made_by(self._tightened(by))
            wide, shown = self._planned(made[1], fitted)(rows)
            beyond = shown + wide - self.gaps  # of another rule the bound may be wider
            if (beyond <= 0).all() or (by >= self.gaps).all():
                break
            by = by + np.maximum(beyond, 0.0)
        return made

    # ------------------------------------------------------------------ the result

    def judged(self, made: Repairer, rule: RepairedPredictor, fitted: Table, held: Table) -> GuaranteeResult:
        """Return the guarantee of a finished rule, which ``made`` made of ``fitted``."""
        way = self._way(rule, fitted, held)
        looked_at = {"uniform": fitted, "held-out": held, "construction": self.table}[way]
        statistic = None if way == "construction" else self._statistic(way, rule, fitted, held)
        names: tuple[str, ...] = ("everybody",)
        numbers = [len(looked_at)]
        if statistic is not None:
            names, numbers = statistic.names, statistic.rows.tolist()
        losses = self.adapter.losses(rule, fitted, held)
        groups = " and ".join(map(attribute_name, self.attributes))
        if self.true_groups is not None:
            groups = f"the true groups behind {groups}"
        return GuaranteeResult(
            confidence=self.confidence,
            criterion=self.comparison.id,
            attribute=groups if len(self.attributes) == 1 else f"{groups}, each alone",
            title=self.comparison.title if losses is None else f"mean {losses.name}",
            way=way,
            tail="" if statistic is None else statistic.tail,
            limits=self._limits(made, statistic),
            parameter=self.adapter.parameter,
            rows=tuple(RowsOfGroup(group=name, rows=many) for name, many in zip(names, numbers, strict=True)),
            looked_at=len(looked_at),
            share=len(looked_at) / len(self.table),
            needed=None if statistic is None else self._needed(made, rule, fitted, held, way),
            price=None if statistic is None else self._price(statistic, len(looked_at) / len(self.table)),
            checks=self._checks(),
            conditions=self._conditions(rule),
        )

    def _conditions(self, rule: RepairedPredictor) -> str:
        text = ", and that the score was not learned from them" if rule.needs_score else ""
        text += self.adapter.assumptions if self.true_groups is None else self.true_groups.words
        if excluded := sum(self.table.rows.excluded.values()):
            text += f"; it does not cover people like the {excluded:,} rows that were left out"
        return text

    def _limits(self, made: Repairer, statistic: BoundedStatistic | None) -> tuple[Limit, ...]:
        """Return what was asked for with what is known of it; gaps of ratios are what they lack to 1."""
        given, zero = adapter_of(made).gaps(self.table.groups()), np.zeros(self.gaps.size)
        names = self.table.groups().names if self.requested.size > 1 else ("",)
        bounds, observed = zero, zero
        if statistic is not None:
            bounds, observed = self._shaped(statistic.bounds), self._shaped(statistic.observed)
        out = []
        for at, bound, shown in zip(self.bounded, bounds.tolist(), observed.tolist(), strict=True):
            if not math.isfinite(self.requested[at]):  # nothing is asked of that group
                continue
            inner = None if given is None or statistic is None else float(given[at])
            own = Limit(names[at], float(self.requested[at]), bound, shown, inner)
            if (asked := self.repairer.parsed_constraint.least) is not None:
                own = Limit(own.group, asked, 1.0 - bound, 1.0 - shown, made.parsed_constraint.least)
            out.append(own)
        return tuple(out)

    def _checks(self) -> tuple[str, ...]:
        """Return the checks of an audit that state what is asked; none of what an audit of decisions does not have."""
        of, least = self.comparison, self.repairer.parsed_constraint.least
        recorded = self.true_groups is None and not self.repairer.membership
        if not recorded or of.scope not in AUDITED or self.requested.size > 1:
            return ()
        end = f"<={float(self.requested[0])!r}" if least is None else f">={least!r}"
        scope = "" if of.scope == "between_groups" else of.scope
        short = replace(of, metric=min((of.metric, *of.entry.aliases), key=len), scope=scope)
        return tuple(f"{replace(short, attribute=attribute_name(one))}{end}" for one in self.attributes)

    def _price(self, statistic: BoundedStatistic, share: float) -> Price | None:
        """Return what about half as many more rows of the smallest group would do to the bound.

        ``share``: part of the data's rows that the bound is made of.
        """
        smallest, rows = int(statistic.rows.argmin()), statistic.rows.copy()
        many = int(rows[smallest] / share / 2)
        # rows of one group alone would change the fractions that overall rates depend on
        overall = self.comparison.scope == "to_overall" and rows.size > 1
        if many < 1 or self.gaps.size > 1 or overall:
            return None
        more = int(round(many, 1 - len(str(many))))
        rows[smallest] += round(more * share)
        then = float(np.clip(statistic.bound_at(rows), 0.0, statistic.upper).max())
        if not then < statistic.bounds.max() * (1 - WORTH):
            return None
        ratio = self.repairer.parsed_constraint.least is not None
        return Price(group=statistic.names[smallest], rows=more, bound=1.0 - then if ratio else then)

    def _needed(
        self, made: Repairer, rule: RepairedPredictor, fitted: Table, held: Table, way: Way
    ) -> Needed | None:
        """Return the groups that have too few rows, with how many of each the data would need, in the cheaper way."""
        answers = []
        for one in self._ways(rule):
            statistic = self._statistic(one, rule, fitted, held)
            if way == one and self._within(statistic.bounds):
                return None
            if one == "uniform":
                kept, expected = len(fitted), statistic.pessimistic(UNLUCKY, 0.0).bound_at
            else:
                slack = adapter_of(made).gaps(self.table.groups())
                # less slack leaves less of a gap, but no bound on losses leaves less of a loss
                inner = 0.0 if slack is None or self.comparison.kind == "max" else slack[self.bounded]
                planned = self._planned(rule, fitted, unlucky=UNLUCKY, inner=inner)
                kept, expected = len(held), partial(_sum_of, planned)
            answers.append(self._rows_for(statistic, kept / len(self.table), expected))
        return min((one for one in answers if one is not None), key=lambda one: one.rows, default=None)

    def _rows_for(
        self, statistic: BoundedStatistic, kept: float, bounds_at: Callable[[Ints], Floats]
    ) -> Needed | None:
        """Return the groups with too few rows, and how many rows of data would do; ``kept`` of them count."""

        def enough(many: int) -> bool:
            return self._within(bounds_at(np.maximum(statistic.rows, many)))

        if not enough(MOST_ROWS):
            return None
        low, high = max(math.floor(int(statistic.rows.min()) * AGAIN), 1), MOST_ROWS
        if enough(low):  # as expected, and chance was against it
            high = low
        while high > low + 1 + low * GRAIN:
            middle = min(max(math.isqrt(low * high), low + 1), high - 1)
            low, high = (low, middle) if enough(middle) else (middle, high)
        over = np.full(statistic.rows.size, True)
        if statistic.bounds.size == statistic.rows.size:
            over = statistic.bounds > self.gaps
        few = tuple(np.array(statistic.names)[(statistic.rows < high) & over].tolist())
        rows = (high + UNLUCKY * math.sqrt(high * (1 - kept))) / kept
        grain = 10 ** max(len(str(int(rows))) - DIGITS, 0)
        groups = few or (statistic.names[int(statistic.rows.argmin())],)
        return Needed(groups=groups, rows=int(math.ceil(rows / grain) * grain))


def _sum_of(planned: Callable[[Ints], tuple[Floats, Floats]], rows: Ints) -> Floats:
    wide, gaps = planned(rows)
    return gaps + wide


Trial = TypeVar("Trial")


def most_slack(
    trial: Callable[[Floats], tuple[Floats, Trial]], gaps: Floats, missing: Floats, width: Floats
) -> Trial:
    """Return what is made with most slack of all that are within ``gaps``; what is made with none if none is.

    The bound falls with the slack of the fit, so there is one point to find, between a slack that is too large and one
    that is small enough: by the straight line through both, or, where that leaves much, by half. What is returned was
    itself evaluated to be within, or is what is left when nothing can be taken away.

    Parameters
    ----------
    trial
        How far beyond ``gaps`` the bounds are with so much less slack, shape (m,), and what was made.
    missing, width
        How far beyond ``gaps`` the bounds are, and how far above the observed gaps, with all of the slack.
    """
    over = missing > 0  # whose slack is too large; those of other groups stay as they are
    low, high, least, most = np.zeros(gaps.size), np.where(over, gaps, 0.0), float(missing.max()), 0.0
    best: Trial | None = None
    before = math.inf
    # most rules use all of their slack and keep it to the digit, so that this much less is within
    by = np.where(over, np.minimum(width * (1 + NEAR / 2), high), 0.0)
    for _ in range(TRIES):
        missing, made = trial(by)
        if (more := (missing > 0) & ~over).any():  # a slack that was small enough is no longer
            over, best = over | more, None
            high = np.where(over, gaps, 0.0)
        beyond = float(missing[over].max())
        if beyond > 0:
            if best is None and (by >= high).all():
                return made
            low, least = by, beyond
        else:
            high, most, best = by, beyond, made
            if (missing[over] >= -NEAR * gaps[over]).any():
                break
        part = 1.0 if best is None else least / (least - most) * (1 + NEAR)
        useless = beyond > before / 2  # the line went from one that is too large to another
        if best is not None and (useless or part >= 1.0):
            part = 0.5
        before = beyond if beyond > 0 else math.inf
        by = low + part * (high - low)
    return made if best is None else best


# ---------------------------------------------------------------------- what cannot be guaranteed


def guarantee_problem(
    repairer: Repairer,
    confidence: float,
    table: Table,
    comparison: Comparison,
    features: tuple[str, ...] | None,
    noise: Noise | None = None,
) -> GuaranteeProblem:
    """Return a guarantee that is asked for; UsageError, with a remedy, where nothing can be guaranteed.

    ``features`` are those that the repair learns from; None for a score.
    """
    require_plain(table)
    if why := adapter_of(repairer).refusal(table.data_spec, features):
        raise UsageError(f"`guarantee`: {why}")
    problem = GuaranteeProblem(repairer, confidence, table, comparison, noise)
    _ = problem.true_groups  # raises where too little is known about the noise
    finite, remedy = problem.gaps[np.isfinite(problem.gaps)], NAME_IT[problem.adapter.parameter]
    if not finite.size:
        raise UsageError(f"`guarantee`: a gap of at most inf limits nothing; {remedy}")
    if (
        not finite.min() > 0 and problem.comparison.scope != "under_flips"
    ):  # there may be none, whatever the rows
        kind = {"ratio": "ratio of 1", "max": "loss of at most 0"}.get(
            problem.comparison.kind, "gap of at most 0"
        )
        raise UsageError(
            f"`guarantee`: a {kind} in the whole population cannot be shown by any number of rows; {remedy}"
        )
    return problem


def require_plain(table: Table) -> None:
    """Raise where rows are no independent draws from a population."""
    columns = table.data_spec.columns
    if table.weighted:
        raise UsageError(
            f"`guarantee`: rows have weights ({columns.weight!r}), so they are not identically distributed "
            "draws, and no bound here covers that; leave out `weight`, and the guarantee is about the population that "
            "the rows are sampled from"
        )
    if columns.id is not None and columns.id in table.features.column_names:
        ids = texts_of(table.features.column(columns.id).combine_chunks()).to_pandas()
        if again := int(ids.duplicated().sum()):
            raise UsageError(
                f"`guarantee`: {again:,} rows repeat an ID in {columns.id!r}: rows of one person are not independent; "
                "keep one row per ID"
            )
