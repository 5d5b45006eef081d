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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.criteria import events_of
from fairfix.auditing.results import in_percent
from fairfix.data.counts import Ints
from fairfix.data.names import attribute_name, group_name
from fairfix.data.plain import texts_of
from fairfix.data.table import Table
from fairfix.errors import UsageError
from fairfix.individual.by_model import decisions_that_change
from fairfix.methods.base import Repairer
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.scorers import GroupTube
from fairfix.models.trace import Caution, Note
from fairfix.stats.population import Distances, Evidence, OfEverybody, PairsHeldOut, PairsOfRules, ToOthers
from fairfix.tasks.proof import results_on

Way = Literal["uniform", "held-out", "construction"]

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
        """A caution where it does not hold, and of which slack the fit speaks."""
        out: list[Note] = [] if self.holds else [Caution(self.says, "guarantee")]
        if self.inner_slack is not None and self.inner_slack != self.slack:
            inner = (
                f"for the guarantee the fit was given a slack of {self.inner_slack:.4g} instead of {self.slack:g}, and "
                "what it says of its slack and its optimum is of that one"
            )
            out.append(Note(inner, "guarantee"))
        return tuple(out)

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


# ---------------------------------------------------------------------- how a repair is guaranteed


@dataclass(frozen=True)
class Promise:
    """What is to be promised of a repair."""

    repairer: Repairer
    confidence: float
    table: Table
    """All rows that are used."""
    criterion: str

    @cached_property
    def of(self) -> Comparison:
        """The criterion, read."""
        return Comparison.parse(self.criterion)

    @property
    def whole(self) -> bool:
        """Whether rates over everybody count, so that rows are parted without looking at groups."""
        return self.of.scope in ("to_overall", "under_flips") and self.of.metric != "ks"

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
            away, shown = self._width(rule, fitted, self.table.take(held))
            if shown + away <= self.slack:
                return made, rule
            made = replace(made, slack=max(self.slack - away, 0.0))
            return made, fit(made)
        evidence = self._of_rules(rule, fitted)
        missing = evidence.bound - self.slack
        if missing > 0:  # the first step goes all the way, as most rules use all of their slack
            missing = evidence.bound - evidence.measured
        for _ in range(TRIES):
            if missing <= 0 or made.slack == 0:
                break
            made = replace(made, slack=max(made.slack - missing - ROUNDING, 0.0))
            rule = fit(made)
            missing = MORE * (self._of_rules(rule, fitted).bound - self.slack)
        return made, rule

    def _width(self, rule: RepairedPredictor, fitted: Table, held: Table) -> tuple[float, float]:
        """Return how far above the gap the bound on held-out rows will be, chance allowed for, and the gap."""
        shown = self._of_held(rule, fitted)
        rows = self._of_held(rule, held).rows
        part = ALLOWANCE.get(self.of.metric, USUAL)
        measured = shown.measured
        if isinstance(shown, OfEverybody):  # a share is known the better the smaller it is, none as well as 0
            shown = replace(shown, share=max(measured, self.slack / 2), counted=False)
        if rows.shape != shown.rows.shape or not rows.min() > 0:
            return self.slack, measured
        return (1 + part) * (shown.of(rows) - shown.measured), measured

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
        looked = {*rule.inputs, *rule.features}
        return self.of.scope == "under_flips" and looked.isdisjoint(self.table.reading.columns.protected)

    def _events(self, table: Table) -> list[tuple[str, Any]]:
        """Return the rows over which rates are means: a name and a mask for each."""
        label = table.rows.label
        events = events_of(self.of.metric)
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
        if self.of.metric == "ks":
            assert isinstance(rule, GroupTube)
            return self._distances(rule, fitted)
        columns, levels = rule.columns, rule.levels  # type: ignore[attr-defined]  # rules of groups have them
        strata = len(columns) - len(fitted.reading.columns.protected)
        place = {
            name: number for number, name in enumerate(dict.fromkeys(level[:strata] for level in levels))
        }
        rates = self._rates(rule, fitted, columns, levels)
        block = np.array([place[level[:strata]] for level in levels])
        events = len(rates.pop("blocks")) // len(levels)
        return PairsOfRules(
            **rates,
            alpha=self.alpha,
            blocks=(block + len(place) * np.arange(events)[:, None]).ravel(),
            variation=np.tile(variation, events),
        )

    def _rates(
        self, rule: RepairedPredictor, table: Table, columns: Sequence[str], levels: Sequence[tuple[str, ...]]
    ) -> dict[str, Any]:
        """Return names, numbers of rows and rates of the groups in each event, and the number of the event."""
        code, chance = table.codes(columns, levels), results_on(table, rule)[1].chance
        assert chance is not None
        names, rows, rates = [], [], []
        for name, inside in self._events(table):
            many = np.bincount(code[inside], minlength=len(levels))
            total = np.bincount(code[inside], chance[inside], len(levels))
            names += [f"{group_name(level)}{name}" for level in levels]
            rows.append(many)
            rates.append(np.divide(total, many, out=np.zeros(len(levels)), where=many > 0))
        return {
            "names": tuple(names),
            "rows": np.concatenate(rows),
            "rates": np.concatenate(rates),
            "blocks": np.repeat(np.arange(len(rows)), len(levels)),
        }

    def _of_held(self, rule: RepairedPredictor, held: Table) -> Evidence:
        """Return what rows that had no part in a rule show of it."""
        of = self.of
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
        counted = not rule.randomized
        more: dict[str, Any] = {"alpha": self.alpha, "tail": _tail(counted=counted), "counted": counted}
        if of.scope == "to_overall":
            return ToOthers(**self._against_others(rule, held), **more)
        groups = self.table.groups()
        return PairsHeldOut(**self._rates(rule, held, groups.columns, groups.levels), **more)

    def _against_others(self, rule: RepairedPredictor, held: Table) -> dict[str, Any]:
        """Return names, numbers of rows and rates of each group and all others, by column and event."""
        chance = results_on(held, rule)[1].chance
        assert chance is not None
        names, rows, rates = [], [], []
        for column in held.reading.columns.protected:
            levels = self.table.groups([column]).levels
            code = held.codes([column], levels)
            for name, inside in self._events(held) if len(levels) > 1 else ():
                for k, level in enumerate(map(group_name, levels)):
                    for mine, title in ((code == k, level), (code != k, f"not {level}")):
                        own = chance[inside & mine]
                        rates.append(float(own.mean()) if own.size else 0.0)
                        rows.append(own.size)
                        names.append(f"{title}{name}")
        return {"names": tuple(names), "rows": np.array(rows), "rates": np.array(rates).reshape(-1, 2)}

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
                number, outcome, chance = rule.tube.outcomes(k, own[inside])
                parts.append((code[inside][number], outcome, chance))
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
