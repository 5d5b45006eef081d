r"""Guarantee: what a repair promises of people who are not in the data, with a stated confidence.

The slack holds on the rows of the fit. Of the population they were drawn from nothing is known for certain, but a bound
on its gap is, with a chance of ``confidence`` over the draw of the rows and at any number of them
(:mod:`fairfix.stats.tails`). There are three ways to one:

===============  =====================================================================================================
``uniform``      rules of group and of a score that was there before: the gap on the rows of the fit plus how far any
                 such rule can be off. It holds for all of them at once, so for whatever the rows chose
``held-out``     whatever was learned: the finished rule is tested once, on rows that had no part in it
``construction``  decisions that do not look at what is changed cannot change with it
===============  =====================================================================================================

The fit is given less slack than was asked, so that the bound is within it. How much less hangs on the rows of the fit
and on numbers of rows alone: held-out rows choose nothing, and the proof on them stays what it is.

Which rows are in which part is drawn without looking at labels, so that the rows of a group in a part are independent
draws from the group, given how many there are. Where rates over everybody count, it is drawn without looking at groups.
Derivations are in docs/guarantee.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any, Literal

import numpy as np

from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.criteria import events_of
from fairfix.auditing.results import in_percent
from fairfix.data.counts import Floats, Ints
from fairfix.data.names import attribute_name, group_name
from fairfix.data.plain import texts_of
from fairfix.data.table import Table
from fairfix.errors import UsageError
from fairfix.individual.by_model import decisions_that_change
from fairfix.methods.base import Repairer
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.scorers import GroupTube
from fairfix.models.trace import Caution, Note
from fairfix.stats.tails import largest_difference, reach_of, share_distance, upper_mean
from fairfix.tasks.proof import results_on

Way = Literal["uniform", "held-out", "construction"]

SHARES = 0.1
"""Part of the miscoverage that goes to the shares of groups, which matter little: they weigh gaps that are small."""

ROUNDING = 1e-9
"""Slack that is kept back, far above the tolerance of the exact solvers and below what is shown."""

TRIES = 8
"""Fits with less and less slack until the bound is within it, where a rule does not keep its slack to the digit..."""

MORE = 1.1
"""... each with this much less than was missing, so that they do not creep up to the slack without reaching it."""

ALLOWANCE = {"ks": 0.8}
"""By metric, the part of the width of a bound on held-out rows that is kept back for chance: how far above the gap of
the fit the held-out rows may show it. A distance of distributions is always shown too large."""

USUAL = 0.4
"""That part of other metrics: a bound is some three standard deviations wide, so nine in ten repairs are proven."""

MOST_ROWS = 10**9
"""No more rows are ever said to be needed."""

DIGITS = 2
"""Digits of numbers of rows that are needed, which are rounded up."""

BY = {
    "uniform": "uniform over all rules of this kind, by the inequality of Dvoretzky, Kiefer and Wolfowitz",
    "held-out": "the finished rule on held-out rows, by {tail}",
    "construction": "by construction: the rule does not look at what is changed",
}
"""How a bound is known, in words."""


@dataclass(frozen=True)
class Guarantee:
    """A bound on the gap of the population, and whether it is within the slack.

    Attributes
    ----------
    criterion, attribute
        What is bounded, and of which groups.
    bound
        The gap of the population is at most this, with the confidence.
    measured
        The gap on the rows that the bound is made of.
    slack, inner_slack
        What was asked, and what the fit was given; None where the slack does not change the fit.
    rows
        Name of each group that is looked at -> rows that the bound is made of.
    needed
        Groups that have too few rows, and how many of each would do; of all rows of the data.
    left_out
        Rows of the data that were left out: they are of people of whom nothing is promised.
    """

    confidence: float
    criterion: str
    attribute: str
    way: Way
    tail: str
    bound: float
    measured: float
    slack: float
    inner_slack: float | None
    rows: tuple[tuple[str, int], ...]
    needed: tuple[tuple[str, ...], int] | None
    left_out: int
    learned: bool

    @property
    def holds(self) -> bool:
        """Whether the bound is within the slack."""
        return self.bound <= self.slack

    @property
    def by(self) -> str:
        """How the bound is known, in words."""
        return BY[self.way].format(tail=self.tail)

    @property
    def says(self) -> str:
        """The promise, to be read alone."""
        what = f"by {self.attribute}, the {Comparison.parse(self.criterion).title} of this rule"
        sure = f"with {in_percent(self.confidence)} confidence over the draw of these rows"
        least = self.slack if self.holds else self.bound
        of_fit = "the rows of the fit" if self.way == "uniform" else "held-out rows"
        measured = (
            ""
            if self.way == "construction"
            else f"; on {of_fit}, {self._number_of_rows:,}, it is {self.measured:.4f}"
        )
        text = (
            f"{sure}, {what} is at most {_up(least)} among people like them (bound {_up(self.bound)}, {self.by}"
            f"{measured})"
        )
        if self.way != "construction":
            text += f". This takes the rows for independent draws of the people it is about{self._conditions}"
        if self.holds:
            return f"{text[0].upper()}{text[1:]}."
        return f"not proven within the slack {self.slack:g}: {text}. {self._remedy}"

    @property
    def _number_of_rows(self) -> int:
        return sum(many for _, many in self.rows)

    @property
    def _conditions(self) -> str:
        """What the promise rests on besides."""
        text = "" if self.learned else ", and the score for one that was not learned from them"
        if self.left_out:
            text += f"; nothing is promised of people like the {self.left_out:,} rows that were left out"
        return text

    @property
    def _remedy(self) -> str:
        """What would make it proven."""
        if self.needed is None:
            return "More rows alone do not help; allow more `slack`"
        groups, many = self.needed
        counts = dict(self.rows)
        named = ", ".join(f"{name!r} ({counts[name]:,} here)" for name in groups[:3])
        more = f" and {len(groups) - 3:,} more" if len(groups) > 3 else ""
        return f"It takes about {many:,} rows in the data of each of {named}{more}; or allow more `slack`"

    @property
    def messages(self) -> tuple[Note, ...]:
        """A caution where it does not hold."""
        return () if self.holds else (Caution(self.says, "guarantee"),)

    def state(self) -> dict[str, Any]:
        """Return the JSON form."""
        out: dict[str, Any] = {
            "confidence": self.confidence,
            "criterion": self.criterion,
            "attribute": self.attribute,
            "holds": self.holds,
            "bound": self.bound,
            "measured": self.measured,
            "slack": self.slack,
            "inner_slack": self.inner_slack,
            "way": self.way,
            "by": self.by,
            "rows": [{"group": name, "rows": many} for name, many in self.rows],
            "says": self.says,
        }
        if self.needed is not None:
            out["needed"] = {"groups": list(self.needed[0]), "rows": self.needed[1]}
        return out


def _up(number: float) -> str:
    """Return a number to four decimals, not rounded down."""
    return f"{math.ceil(round(number * 1e4, 6)) / 1e4:.4g}" if number > 0 else "0"


# ---------------------------------------------------------------------- evidence


@dataclass(frozen=True, kw_only=True)
class Evidence(ABC):
    """What rows show of a rule, and the bound that follows for any numbers of rows."""

    names: tuple[str, ...]
    """Of the groups, (K,), or of the groups in each event."""
    rows: Ints
    """Of each of ``names``, in all axes of the numbers."""
    alpha: float
    tail: str = ""

    @property
    @abstractmethod
    def measured(self) -> float:
        """The gap on these rows."""

    @abstractmethod
    def of(self, rows: Ints) -> float:
        """Return the bound if the same had been seen on so many rows."""

    @cached_property
    def bound(self) -> float:
        """The bound on the gap of the population."""
        return min(max(self.of(self.rows), 0.0), 1.0) if self.rows.min() > 0 else 1.0


@dataclass(frozen=True, kw_only=True)
class OfPairs(Evidence):
    """Rates of groups that are compared in pairs: of one event, of both labels, or inside strata."""

    rates: Floats
    """Shape (m,), one for each group in each event and stratum."""
    blocks: Ints
    """Which of them are compared with one another, shape (m,)."""

    @property
    def measured(self) -> float:
        """The largest difference."""
        return max(
            (float(np.ptp(inside)) for inside in self._by_block(self.rates) if inside.size > 1), default=0.0
        )

    def _by_block(self, numbers: Any) -> list[Any]:
        return [numbers[self.blocks == block] for block in np.unique(self.blocks)]


@dataclass(frozen=True, kw_only=True)
class PairsOfRules(OfPairs):
    """Rates on the rows of the fit, of a rule of a score: the bound is uniform over such rules."""

    variation: Floats
    """Of the rule, shape (m,)."""

    def of(self, rows: Ints) -> float:
        """Return the largest difference with what both rates may be off; pairs of blocks are all compared at once."""
        number = np.arange(rows.size)
        pairs = np.array([pair for inside in self._by_block(number) for pair in combinations(inside, 2)])
        if not pairs.size:
            return 0.0
        ones = np.ones(pairs.shape)
        reach = reach_of(ones, rows[pairs], self.alpha, groups=rows.size, balls=len(pairs))
        far = np.abs(self.rates[pairs[:, 0]] - self.rates[pairs[:, 1]])
        return float((far + reach(self.variation[pairs], rows[pairs])).max())


@dataclass(frozen=True, kw_only=True)
class PairsHeldOut(OfPairs):
    """Rates of a finished rule on held-out rows."""

    counted: bool

    def of(self, rows: Ints) -> float:
        """Return the largest difference by the tails of both groups together, each block at its part of alpha."""
        parts = list(zip(self._by_block(self.rates), self._by_block(rows), strict=True))
        parts = [(rates, many) for rates, many in parts if many.size > 1]
        alpha = self.alpha / max(len(parts), 1)
        return max(
            (largest_difference(rates, many, alpha, counted=self.counted) for rates, many in parts),
            default=0.0,
        )


@dataclass(frozen=True, kw_only=True)
class Distances(Evidence):
    """Distances of distributions of values, each group against everybody, at every threshold."""

    far: Floats
    """Distance of each group to the mixture of all by ``shares``, shape (K,)."""
    apart: float
    """Largest distance of two groups."""
    shares: Floats
    """Of the groups, among all rows of the data."""
    total: int

    @property
    def measured(self) -> float:
        """The largest distance to everybody."""
        return float(self.far.max())

    def of(self, rows: Ints) -> float:
        """Return the largest distance with what the distributions and the shares may be off."""
        many = len(self.names)
        alpha = self.alpha * (1 - SHARES)
        weights: Floats = np.tile(self.shares, (many, 1))
        np.fill_diagonal(weights, 1.0 - self.shares)
        reach = reach_of(weights, np.tile(rows, (many, 1)), alpha, groups=many, balls=1)
        pairs = np.array(list(combinations(range(many), 2)))
        apart = self.apart + float(reach(np.ones(pairs.shape), rows[pairs]).max())
        off = share_distance(round(self.total * rows.sum() / self.rows.sum()), many, self.alpha * SHARES)
        return float(np.max(self.far + reach(weights, rows))) + off * min(apart, 1.0)


@dataclass(frozen=True, kw_only=True)
class ToOthers(Evidence):
    """Rates of groups against everybody's, of a finished rule: by those of all others, and the share of these.

    A rate over everybody is ``s`` times that of a group plus ``1 - s`` times that of all others, so the group is
    ``1 - s`` times as far from everybody as from the others.
    """

    rates: Floats
    """Of each group in each event and of all others there, shape (m, 2)."""
    counted: bool

    @property
    def measured(self) -> float:
        """The largest distance to everybody."""
        return float((np.abs(np.diff(self.rates, axis=1)[:, 0]) * self._others(self.rows)).max())

    def _others(self, rows: Ints) -> Floats:
        each = rows.reshape(-1, 2)
        return np.asarray(each[:, 1] / each.sum(axis=1))

    def of(self, rows: Ints) -> float:
        """Return the largest distance; all of them share alpha."""
        each, alpha = rows.reshape(-1, 2), self.alpha / len(self.rates)
        total = each.sum(axis=1)
        most = upper_mean(self._others(rows), total, -math.log(alpha * SHARES), counted=True)
        far = [
            largest_difference(rate, many, alpha * (1 - SHARES), counted=self.counted)
            for rate, many in zip(self.rates, each.astype(np.float64), strict=True)
        ]
        return float((np.array(far) * most).max())


@dataclass(frozen=True, kw_only=True)
class OfEverybody(Evidence):
    """A share of everybody, such as of those whose decision changes under flips."""

    share: float
    counted: bool

    @property
    def measured(self) -> float:
        """The share."""
        return self.share

    def of(self, rows: Ints) -> float:
        """Return its upper limit."""
        return float(upper_mean(self.share, rows, -math.log(self.alpha), counted=self.counted)[0])


# ---------------------------------------------------------------------- how a repair is guaranteed


@dataclass(frozen=True)
class Promise:
    """What is to be promised of a repair."""

    repairer: Repairer
    confidence: float
    table: Table
    """All rows that are used."""
    criterion: str
    whole: bool = field(init=False)
    """Whether rows over everybody count, so that rows are parted without looking at groups."""

    def __post_init__(self) -> None:
        of = Comparison.parse(self.criterion)
        object.__setattr__(self, "whole", of.scope in ("to_overall", "under_flips") and of.metric != "ks")

    @property
    def alpha(self) -> float:
        """Chance at which the promise may be false."""
        return 1.0 - self.confidence

    @property
    def slack(self) -> float:
        """The slack that was asked."""
        return self.repairer.slack

    @property
    def strata(self) -> Ints:
        """Which rows are parted alike, shape (n,)."""
        cell = np.asarray(self.table.rows.cell)
        return np.zeros_like(cell) if self.whole else cell

    def fitted(
        self,
        fit: Callable[[Repairer], RepairedPredictor],
        fitted: Table,
        held: Ints,
    ) -> tuple[Repairer, RepairedPredictor]:
        """Return the rule whose bound is, as far as the rows of the fit tell, within the slack, with how it was made.

        ``held``: numbers of the held-out rows, of which nothing but the cells is looked at.
        """
        made = replace(self.repairer)
        rule = fit(made)
        if self._constant(rule) or self.repairer.slack_of_all is None:
            return made, rule
        if rule.variation is None:
            away = self._width(rule, fitted, self.table.take(held))
            made = replace(made, slack=max(self.slack - away, 0.0))
            return made, fit(made)
        evidence = self._of_rules(rule, fitted)
        excess = evidence.bound - evidence.measured
        for _ in range(TRIES):
            made = replace(made, slack=max(made.slack - excess - ROUNDING, 0.0))
            rule = fit(made)
            excess = MORE * (self._of_rules(rule, fitted).bound - self.slack)
            if excess <= 0 or made.slack == 0:
                break
        return made, rule

    def _width(self, rule: RepairedPredictor, fitted: Table, held: Table) -> float:
        """Return how far the bound on held-out rows will be above the gap, with an allowance for chance."""
        shown = self._of_held(rule, fitted)
        rows = self._of_held(rule, held).rows
        part = ALLOWANCE.get(Comparison.parse(self.criterion).metric, USUAL)
        if isinstance(shown, OfEverybody):
            shown = replace(shown, share=self.slack / 2, counted=False)
        if rows.shape != shown.rows.shape or not rows.min() > 0:
            return self.slack
        return (1 + part) * (shown.of(rows) - shown.measured)

    def judged(self, made: Repairer, rule: RepairedPredictor, fitted: Table, held: Table) -> Guarantee:
        """Return the guarantee of a finished rule, which ``made`` made of ``fitted``."""
        way: Way
        evidence: Evidence | None
        if self._constant(rule):
            way, evidence, kept = "construction", None, 0
        elif rule.variation is not None:
            way, evidence, kept = "uniform", self._of_rules(rule, fitted), len(fitted)
        else:
            way, evidence, kept = "held-out", self._of_held(rule, held), len(held)
        inner = None if self.repairer.slack_of_all is None or way == "construction" else made.slack
        used = np.array([len(self.table)]) if evidence is None else evidence.rows
        names = ("everybody",) if evidence is None else evidence.names
        return Guarantee(
            self.confidence,
            self.criterion,
            attribute_name(self.table.reading.columns.protected),
            way,
            "" if evidence is None else evidence.tail,
            0.0 if evidence is None else evidence.bound,
            0.0 if evidence is None else evidence.measured,
            self.slack,
            inner,
            tuple(zip(names, map(int, used), strict=True)),
            None if evidence is None else self._needed(evidence, kept / len(self.table)),
            sum(self.table.rows.excluded.values()),
            not rule.needs_score,
        )

    def _needed(self, evidence: Evidence, kept: float) -> tuple[tuple[str, ...], int] | None:
        """Return the groups that have too few rows, with how many of each the data would need."""
        if evidence.bound <= self.slack:
            return None

        def enough(many: int) -> bool:
            return evidence.of(np.maximum(evidence.rows, many)) <= self.slack

        if not enough(MOST_ROWS):
            return None
        low, high = 1, MOST_ROWS
        while high > low + 1:
            middle = math.isqrt(low * high)
            middle = min(max(middle, low + 1), high - 1)
            low, high = (low, middle) if enough(middle) else (middle, high)
        few = tuple(name for name, many in zip(evidence.names, evidence.rows, strict=True) if many < high)
        rows = high / kept
        grain = 10 ** max(len(str(int(rows))) - DIGITS, 0)
        return few, int(math.ceil(rows / grain) * grain)

    # ------------------------------------------------------------------ what rows show

    def _constant(self, rule: RepairedPredictor) -> bool:
        """Tell whether nothing that is changed is looked at."""
        of = Comparison.parse(self.criterion)
        looked = {*rule.inputs, *rule.features}
        return of.scope == "under_flips" and looked.isdisjoint(self.table.reading.columns.protected)

    def _events(self, table: Table) -> list[tuple[str, Any]]:
        """Return the rows over which rates are means: a name and a mask for each."""
        label = table.rows.label
        events = events_of(Comparison.parse(self.criterion).metric)
        return [
            (
                "" if one is None else f", label {one}",
                np.full(len(table), True) if one is None else label == one,
            )
            for one in events
        ]

    def _of_rules(self, rule: RepairedPredictor, fitted: Table) -> Evidence:
        """Return what the rows of the fit show of a rule of the score."""
        variation = rule.variation
        assert variation is not None
        if Comparison.parse(self.criterion).metric == "ks":
            assert isinstance(rule, GroupTube)
            return self._distances(rule, fitted)
        columns, levels = rule.columns, rule.levels  # type: ignore[attr-defined]  # rules of groups have them
        code, chance = fitted.codes(columns, levels), results_on(fitted, rule)[1].chance
        assert chance is not None
        strata = len(columns) - len(fitted.reading.columns.protected)
        blocks = {
            level[:strata]: number for number, level in enumerate(dict.fromkeys(x[:strata] for x in levels))
        }
        block = np.array([list(blocks).index(level[:strata]) for level in levels])
        rates, rows, names, event_of, of_level = [], [], [], [], []
        for number, (name, inside) in enumerate(self._events(fitted)):
            many = np.bincount(code[inside], minlength=len(levels))
            total = np.bincount(code[inside], chance[inside], len(levels))
            rates += list(np.divide(total, many, out=np.zeros(len(levels)), where=many > 0))
            rows += list(many)
            names += [f"{group_name(level)}{name}" for level in levels]
            event_of += list(block + number * len(blocks))
            of_level += list(range(len(levels)))
        return PairsOfRules(
            names=tuple(names),
            rows=np.array(rows),
            alpha=self.alpha,
            rates=np.array(rates),
            blocks=np.array(event_of),
            variation=variation[of_level],
        )

    def _of_held(self, rule: RepairedPredictor, held: Table) -> Evidence:
        """Return what rows that had no part in a rule show of it."""
        of = Comparison.parse(self.criterion)
        if of.metric == "ks":
            return self._distances(rule, held)
        if of.scope == "under_flips":
            changed = decisions_that_change(held, rule, self.table)
            counted = not rule.randomized
            return OfEverybody(
                names=("everybody",),
                rows=np.array([len(held)]),
                alpha=self.alpha,
                tail=_tail(counted=counted),
                share=float(changed.mean()),
                counted=counted,
            )
        chance = results_on(held, rule)[1].chance
        assert chance is not None
        counted = not rule.randomized
        rates, rows, names, blocks = [], [], [], []
        if of.scope == "to_overall":
            for column in held.reading.columns.protected:
                levels = self.table.groups([column]).levels
                code = held.codes([column], levels)
                for name, inside in self._events(held) if len(levels) > 1 else ():
                    for k, level in enumerate(levels):
                        for mine, title in (
                            (code == k, group_name(level)),
                            (code != k, f"not {group_name(level)}"),
                        ):
                            own = chance[inside & mine]
                            rates.append(float(own.mean()) if own.size else 0.0)
                            rows.append(own.size)
                            names.append(f"{title}{name}")
            return ToOthers(
                names=tuple(names),
                rows=np.array(rows),
                alpha=self.alpha,
                tail=_tail(counted=counted),
                rates=np.array(rates).reshape(-1, 2),
                counted=counted,
            )
        groups = self.table.groups()
        code = held.codes(groups.columns, groups.levels)
        for number, (name, inside) in enumerate(self._events(held)):
            many = np.bincount(code[inside], minlength=len(groups.levels))
            total = np.bincount(code[inside], chance[inside], len(groups.levels))
            rates += list(np.divide(total, many, out=np.zeros(many.size), where=many > 0))
            rows += list(many)
            names += [f"{one}{name}" for one in groups.names]
            blocks += [number] * many.size
        return PairsHeldOut(
            names=tuple(names),
            rows=np.array(rows),
            alpha=self.alpha,
            tail=_tail(counted=counted),
            rates=np.array(rates),
            blocks=np.array(blocks),
            counted=counted,
        )

    def _distances(self, rule: RepairedPredictor, table: Table) -> Distances:
        """Return distances of values: of a tube as expected over its draws, of others as their values are drawn."""
        groups = self.table.groups()
        code = table.codes(groups.columns, groups.levels)
        shares = np.bincount(groups.codes, minlength=len(groups.levels)) / len(self.table)
        value, mass, of = rule.predict(table), np.ones(len(table)), code
        if isinstance(rule, GroupTube) and rule.tube.outputs is not None:
            own, at = rule.moved(table), table.codes(rule.columns, rule.levels)
            parts = []
            for k in range(len(rule.levels)):
                inside = np.flatnonzero(at == k)
                number, values, chance = rule.tube.outcomes(k, own[inside])
                parts.append((code[inside][number], values, chance))
            of, value, mass = (np.concatenate(one) for one in zip(*parts, strict=True))
        many = np.bincount(code, minlength=len(groups.levels))
        order = np.argsort(value, kind="stable")
        last = np.append(value[order][1:] != value[order][:-1], True)
        below = np.stack(
            [
                np.cumsum(np.where(of[order] == k, mass[order], 0.0))[last] / max(many[k], 1)
                for k in range(many.size)
            ]
        )
        return Distances(
            names=groups.names,
            rows=many,
            alpha=self.alpha,
            tail="the inequality of Dvoretzky, Kiefer and Wolfowitz",
            far=np.abs(below - shares @ below).max(axis=1),
            apart=float(np.ptp(below, axis=0).max()),
            shares=shares,
            total=len(self.table),
        )


def _tail(*, counted: bool) -> str:
    return "the binomial tails of Clopper and Pearson" if counted else "the tails of Chernoff and Hoeffding"


# ---------------------------------------------------------------------- what is not promised


def promise_of(
    repairer: Repairer, confidence: float, table: Table, criterion: str, features: tuple[str, ...] | None
) -> Promise:
    """Return what is to be promised; a UsageError where nothing can be, with what could.

    ``features`` are those that the repair learns from; None for a score.
    """
    require_plain(table)
    why = repairer.without_guarantee(table.reading)
    flips = Comparison.parse(criterion).scope == "under_flips"
    if flips and features is None and not repairer.solver_in_force.averages:
        why = (
            "nobody knows what a change of the protected columns does to a score; name columns to learn from with "
            "`features`"
        )
    if why:
        raise UsageError(f"`guarantee`: {why}")
    promise = Promise(repairer, confidence, table, criterion)
    if not math.isfinite(promise.slack) or (promise.slack <= 0 and not flips):
        raise UsageError(
            f"`guarantee`: a gap of at most {promise.slack:g} among people who are not in the data "
            + ("is no promise" if promise.slack > 0 else "cannot be shown by any number of rows")
            + "; name the largest gap that is allowed with `slack`, such as `slack=0.05`"
        )
    return promise


def require_plain(table: Table) -> None:
    """Raise where rows are no independent draws of the people that a promise is about."""
    columns = table.reading.columns
    if table.weighted:
        raise UsageError(
            f"`guarantee`: rows have weights ({columns.weight!r}), so they are not alike draws of people, and no bound "
            "here is about such; leave out `weight`, and the promise is about people as they are drawn"
        )
    if columns.id is not None and columns.id in table.features.column_names:
        ids = texts_of(table.features.column(columns.id).combine_chunks()).to_pandas()
        again = int(ids.duplicated().sum())
        if again:
            raise UsageError(
                f"`guarantee`: {again:,} rows repeat an id of {columns.id!r}: rows of one person are not independent; "
                "keep one row of each"
            )


def check_bands(bands: Iterable[object]) -> None:
    """Raise where groups are cut at quantiles of the very rows; entries are ``COLUMN=EDGES``."""
    for one in map(str, bands):
        name, _, edges = one.partition("=")
        if edges and edges.strip()[-1:].isalpha() and edges.strip() != "values":
            raise UsageError(
                f"`guarantee`: `bands={one}` cuts groups of {name!r} where these rows have their {edges.strip()}, so "
                "that groups are not those of other people; name the numbers to cut at"
            )


def check_guarantee(confidence: float) -> None:
    """Raise where the confidence is none."""
    if not 0.5 <= confidence < 1:
        raise UsageError(
            f"`guarantee={confidence:g}`: the confidence is at least 0.5 and below 1; 0.95 is usual"
        )
