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
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from fairfix.auditing.comparisons import Comparison
from fairfix.data.arrow_normalize import texts_of
from fairfix.data.counts import Floats, Ints
from fairfix.data.names import attribute_name
from fairfix.data.table import Table
from fairfix.errors import DataError, UsageError
from fairfix.methods.base import Repairer
from fairfix.methods.guarantee import GuaranteeAdapter, adapter_of
from fairfix.methods.sensei.exact import Average
from fairfix.models.predictors import RepairedPredictor
from fairfix.noise.description import Noise
from fairfix.noise.dual_certificates import Behind
from fairfix.stats.population import Evidence, OfEverybody, RatiosHeldOut, RatiosOfRules
from fairfix.tasks.guarantee_result import Guarantee, Limit, Way
from fairfix.tasks.guarantee_statistics import Witness
from fairfix.tasks.guarantee_under_noise import SURVEY

TRIES = 30
"""Fits with less and less slack, of which each halves what is left to search at least every third time, ..."""

NEAR = 1e-4
"""... until the bound is within the slack and above it less this part, which costs nothing that is seen."""

OTHER_WAY = 0.2
"""Part of the miscoverage that goes to held-out rows where the bound over all rules may be too wide for rare rates."""

MORE_TRIES = 2
"""Fits with still less slack where the rule with less slack is not expected to be proven on held-out rows either."""

MOST_ROWS = 10**9
"""No more rows are ever said to be needed."""

GRAIN = 0.03
"""Numbers of rows that are needed are found to this part of them, ..."""

DIGITS = 2
"""... and rounded up to so many digits."""

UNLUCKY = 1.3
"""Standard deviations by which the rows of a group that come into a part may be fewer than its share of the data's: in
nine in ten repairs they are not."""

AGAIN = 1.1
"""As many times the rows there are as are said to be needed where chance alone was against them."""

NAME_IT = {
    "slack": "set the largest allowed gap with `slack`, such as `slack=0.05`",
    "constraint": "set another limit in `constraint`, such as dp.ratio>=0.8 or square_loss.max<=0.2",
}
"""By the parameter that asks, what to ask instead."""

PARTS = (1.0, 0.5, 0.25)
"""Of what is kept back of a bound on losses, from the whole of it: a bound that no rule holds is none."""

# ---------------------------------------------------------------------- how a repair is guaranteed


@dataclass(frozen=True)
class Promise:
    """What is to be promised of a repair."""

    repairer: Repairer
    confidence: float
    table: Table
    """All rows that are used."""
    criterion: str
    noise: Noise | None = None
    """What is known of the recorded groups, where true ones are held alike."""

    @property
    def adapter(self) -> GuaranteeAdapter:
        """The limits of the repairer."""
        return adapter_of(self.repairer)

    @cached_property
    def of(self) -> Comparison:
        """The criterion, read."""
        return Comparison.parse(self.criterion)

    @cached_property
    def attributes(self) -> tuple[tuple[str, ...], ...]:
        """The columns whose groups are held alike, each for itself."""
        return self.repairer.alike(self.table.reading.columns.protected)

    @property
    def whole(self) -> bool:
        """Whether rates over everybody count, or groups that overlap: rows are parted without looking at groups."""
        against_all = self.of.scope in ("to_overall", "under_flips")
        overlap = len(self.attributes) > 1 or self.behind is not None
        return overlap or (against_all and self.of.kind != "covariance")

    @cached_property
    def behind(self) -> Behind | None:
        """The true groups behind recorded ones; None where groups are as they are recorded."""
        if self.noise is None:
            return None
        names, column = self.table.groups().names, attribute_name(self.table.reading.columns.protected)
        return self.adapter.true_groups(self.noise, names, column, self.alpha * SURVEY)

    @property
    def alpha(self) -> float:
        """Chance at which the promise may be false."""
        return 1.0 - self.confidence

    @cached_property
    def _asked(self) -> Floats:
        """The largest gaps that are asked, of all groups alike, (1,), or of each, (K,)."""
        asked = self.adapter.gaps(self.table.groups())
        return np.array([self.repairer.slack]) if asked is None else asked

    @cached_property
    def _bounded(self) -> Ints:
        """Numbers of those that are bounded: a loss need not be in every group."""
        return np.flatnonzero(np.isfinite(self._asked) | (self.of.kind != "max"))

    @property
    def gaps(self) -> Floats:
        """The largest gaps that are asked, where they are bounded, shape (m,)."""
        return self._asked[self._bounded]

    def _tighter(self, by: Floats) -> Repairer:
        """Return the repairer that leaves gaps which are smaller by so much, (m,)."""
        every = np.zeros(self._asked.size)
        every[self._bounded] = np.minimum(by, self.gaps)
        return self.adapter.tightened(every)

    def _witness(self, alpha: float) -> Witness:
        return Witness(self.of, alpha, self.table, self.repairer, self.attributes, self._bounded, self.behind)

    def _of_rules(self, rule: RepairedPredictor, fitted: Table) -> Evidence:
        """Return what the rows of the fit show of all rules."""
        alpha = self.alpha * (1 - OTHER_WAY) if self._either(rule) else self.alpha
        return self._witness(alpha).of_rules(rule, fitted)

    def _of_held(self, rule: RepairedPredictor, fitted: Table, held: Table) -> Evidence:
        """Return what held-out rows show of a finished rule."""
        alpha = self.alpha * OTHER_WAY if self._either(rule) else self.alpha
        return self._witness(alpha).of_held(rule, fitted, held)

    def _uniform(self, rule: RepairedPredictor) -> bool:
        """Tell whether the bound is of all rules: groups that overlap, or are not seen, have none of a score alone."""
        return rule.variation is not None and len(self.attributes) == 1 and self.behind is None

    def _either(self, rule: RepairedPredictor) -> bool:
        """Tell whether rates of groups are promised in either way; the rows of the fit choose, and both share alpha."""
        of_rates = self.of.metric != "ks" and self.of.kind in ("difference", "ratio")
        return self._uniform(rule) and of_rates

    def _way(self, rule: RepairedPredictor, fitted: Table, held: Table) -> Way:
        """Return how something is promised of a rule: held-out rows have no part in the choice but by their numbers."""
        if self._constant(rule):
            return "construction"
        if not self._uniform(rule):
            return "held-out"
        if not self._either(rule) or self._within(self._of_rules(rule, fitted).bounds):
            return "uniform"
        away, shown = self._planned(rule, fitted)(self._of_held(rule, fitted, held).rows)
        return "held-out" if self._within(shown + away) else "uniform"

    def _within(self, bounds: Floats) -> bool:
        """Tell whether all that was asked is shown by bounds of the groups."""
        return bool((self._shaped(bounds) <= self.gaps).all())

    def _shaped(self, numbers: Floats) -> Floats:
        """Return numbers of groups in the shape of the gaps that are asked: the largest where one is for all."""
        return numbers if numbers.size == self.gaps.size else np.array([numbers.max()])

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

        def made_by(repairer: Repairer) -> RepairedPredictor:
            return adapter_of(repairer).restricted(fit(repairer), fitted)

        made = replace(self.repairer)
        rule = made_by(made)
        if self._constant(rule) or adapter_of(made).gaps(self.table.groups()) is None:
            return made, rule
        if not self._uniform(rule):
            return self._tested(made_by, fitted, held, made, rule)
        of_all = self._searched(made_by, fitted, made, rule)
        if not self._either(rule) or self._within(self._of_rules(of_all[1], fitted).bounds):
            return of_all
        once = self._tested(made_by, fitted, held, made, rule)
        return once if self._way(once[1], fitted, self.table.take(held)) == "held-out" else of_all

    def _tested(
        self,
        made_by: Callable[[Repairer], RepairedPredictor],
        fitted: Table,
        held: Ints,
        made: Repairer,
        rule: RepairedPredictor,
    ) -> tuple[Repairer, RepairedPredictor]:
        """Return the rule of most slack that held-out rows are expected to prove."""
        rows = self._of_held(rule, fitted, self.table.take(held)).rows
        away, shown = self._planned(rule, fitted)(rows)
        if (shown + away <= self.gaps).all():
            return made, rule
        made, rule = self._least_of(made_by, away, made, rule)
        by = away
        for _ in range(MORE_TRIES):  # of another rule the bound may be wider
            again, shown = self._planned(rule, fitted)(rows)
            beyond = shown + again - self.gaps
            if self.of.kind == "max" or (beyond <= 0).all() or (by >= self.gaps).all():
                break
            by = by + np.maximum(beyond, 0.0)
            made = self._tighter(by)
            rule = made_by(made)
        return made, rule

    def _searched(
        self,
        made_by: Callable[[Repairer], RepairedPredictor],
        fitted: Table,
        made: Repairer,
        rule: RepairedPredictor,
    ) -> tuple[Repairer, RepairedPredictor]:
        """Return the rule of most slack that is seen to be within what was asked; that of no slack if none is."""
        evidence = self._of_rules(rule, fitted)
        bounds = self._shaped(evidence.bounds)
        if self._within(bounds):
            return made, rule

        def with_less(by: Floats) -> tuple[Floats, tuple[Repairer, RepairedPredictor]]:
            repairer = self._tighter(by)
            tighter = made_by(repairer)
            return self._shaped(self._of_rules(tighter, fitted).bounds) - self.gaps, (repairer, tighter)

        return most_slack(with_less, self.gaps, bounds - self.gaps, bounds - self._shaped(evidence.seen))

    def _least_of(
        self,
        made_by: Callable[[Repairer], RepairedPredictor],
        away: Floats,
        made: Repairer,
        rule: RepairedPredictor,
    ) -> tuple[Repairer, RepairedPredictor]:
        """Return the rule of so much less slack, or, where no rule leaves so little loss, of as little as is found."""
        for part in PARTS:
            tighter = self._tighter(part * away)
            try:
                return tighter, made_by(tighter)
            except DataError:
                if self.of.kind != "max":
                    raise
        return made, rule

    def _planned(
        self, rule: RepairedPredictor, fitted: Table, unlucky: float = 0.0
    ) -> Callable[[Ints], tuple[Floats, Floats]]:
        """Return how far above the gaps on the rows of the fit bounds on so many held-out rows will be, and the gaps.

        With what chance may add to the gaps on held-out rows, so that nine in ten repairs are proven. ``unlucky``: by
        how many standard deviations rates are taken for too large, where ratios hang on them.
        """
        shown = _luckless(self._of_held(rule, fitted, fitted), unlucky)
        measured = self._shaped(shown.seen)
        if isinstance(shown, OfEverybody):  # a share is known the better the smaller it is, none as well as 0
            shown = replace(shown, share=max(float(measured[0]), self.repairer.slack / 2), counted=False)

        def planned(rows: Ints) -> tuple[Floats, Floats]:
            if rows.shape != shown.rows.shape or not rows.min() > 0:
                return self.gaps, measured
            bounds = shown.of(rows)
            most = bounds + shown.by_chance(rows, bounds - shown.seen)
            return self._shaped(most) - self._shaped(shown.seen), measured

        return planned

    def judged(self, made: Repairer, rule: RepairedPredictor, fitted: Table, held: Table) -> Guarantee:
        """Return the guarantee of a finished rule, which ``made`` made of ``fitted``."""
        way = self._way(rule, fitted, held)
        evidence, kept = None, len(self.table)
        if way == "uniform":
            evidence, kept = self._of_rules(rule, fitted), len(fitted)
        elif way == "held-out":
            evidence, kept = self._of_held(rule, fitted, held), len(held)
        used = np.array([len(self.table)]) if evidence is None else evidence.rows
        share = kept / len(self.table)
        names = ("everybody",) if evidence is None else evidence.names
        losses = self.adapter.losses(rule, fitted, held)
        groups = " and ".join(map(attribute_name, self.attributes))
        if self.behind is not None:
            groups = f"the true groups behind {groups}"
        return Guarantee(
            self.confidence,
            self.criterion,
            groups if len(self.attributes) == 1 else f"{groups}, each alone",
            self.of.title if losses is None else f"mean {losses.name}",
            way,
            "" if evidence is None else evidence.tail,
            _limits(self, made, evidence, way),
            self.adapter.parameter,
            tuple(zip(names, map(int, used), strict=True)),
            kept,
            share,
            None if evidence is None else self._needed(made, rule, fitted, held, way),
            sum(self.table.rows.excluded.values()),
            not rule.needs_score,
            self.adapter.assumptions if self.behind is None else self.behind.words,
        )

    def _needed(
        self, made: Repairer, rule: RepairedPredictor, fitted: Table, held: Table, way: Way
    ) -> tuple[tuple[str, ...], int] | None:
        """Return the groups that have too few rows, with how many of each the data would need, in the cheaper way."""
        ways: list[tuple[tuple[str, ...], int] | None] = []
        whole = len(self.table)
        if self._uniform(rule):
            evidence = self._of_rules(rule, fitted)
            if way == "uniform" and self._within(evidence.bounds):
                return None
            worst = _luckless(evidence, UNLUCKY)
            ways.append(
                rows_for(evidence, self.gaps, len(fitted) / whole, lambda rows: self._within(worst.of(rows)))
            )
        if not self._uniform(rule) or self._either(rule):
            evidence = self._of_held(rule, fitted, held)
            if way == "held-out" and self._within(evidence.bounds):
                return None
            planned, inner = self._planned(rule, fitted, UNLUCKY), adapter_of(made).gaps(self.table.groups())
            # less slack leaves less of a gap, but no bound on losses leaves less of a loss
            slack = 0.0 if inner is None or self.of.kind == "max" else inner[self._bounded]

            def expected(rows: Ints) -> Floats:
                away, shown = planned(rows)
                return np.asarray(np.maximum(shown - slack, 0.0) + away)

            ways.append(
                rows_for(evidence, self.gaps, len(held) / whole, lambda rows: self._within(expected(rows)))
            )
        return min((one for one in ways if one is not None), key=lambda one: one[1], default=None)

    def _constant(self, rule: RepairedPredictor) -> bool:
        """Tell whether nothing that is changed is looked at."""
        looked = {*rule.inputs, *rule.features}
        return self.of.scope == "under_flips" and looked.isdisjoint(self.table.reading.columns.protected)


def _limits(promise: Promise, made: Repairer, evidence: Evidence | None, way: Way) -> tuple[Limit, ...]:
    """Return what was asked with what is known of it."""
    given = adapter_of(made).gaps(promise.table.groups())
    names = promise.table.groups().names if promise._asked.size > 1 else ("",)
    zero = np.zeros(promise.gaps.size)
    bounds, seen = (
        (zero, zero)
        if evidence is None
        else (promise._shaped(evidence.bounds), promise._shaped(evidence.seen))
    )
    out = []
    for at, bound, shown in zip(promise._bounded, bounds.tolist(), seen.tolist(), strict=True):
        if not math.isfinite(promise._asked[at]):  # nothing is asked of that group
            continue
        inner = None if given is None or way == "construction" else float(given[at])
        own = Limit(names[at], float(promise._asked[at]), bound, shown, inner)
        if promise.of.kind == "ratio":  # gaps are what ratios lack to 1
            assert inner is not None
            asked, least = promise.repairer.least_ratio, made.least_ratio
            assert asked is not None
            own = Limit(own.group, asked, 1.0 - bound, 1.0 - shown, least)
        out.append(own)
    return tuple(out)


# ---------------------------------------------------------------------- how much slack, and how many rows

Made = TypeVar("Made")


def most_slack(
    with_less: Callable[[Floats], tuple[Floats, Made]], gaps: Floats, missing: Floats, width: Floats
) -> Made:
    """Return what is made with most slack of all that are within what was asked; what is made with none if none is.

    The bound falls with the slack that the fit is given, so there is one point that is looked for, between a slack that
    is too large and one that is small enough: by the straight line through both, or, where that leaves much, by half.
    What is returned was itself seen to be within, or is what is left when nothing can be taken away.

    Parameters
    ----------
    with_less
        How far beyond ``gaps`` the bounds are with so much less slack, shape (m,), and what was made.
    missing, width
        How far beyond ``gaps`` the bounds are, and how far above what is seen, with all of the slack.
    """
    over = missing > 0  # whose slack is too large; those of other groups stay as they are
    low, high, least, most = np.zeros(gaps.size), np.where(over, gaps, 0.0), float(missing.max()), 0.0
    best: Made | None = None
    before = math.inf
    # most rules use all of their slack and keep it to the digit, so that this much less is within
    trial = np.where(over, np.minimum(width * (1 + NEAR / 2), high), 0.0)
    for _ in range(TRIES):
        missing, made = with_less(trial)
        if (more := (missing > 0) & ~over).any():  # a slack that was small enough is no longer
            over, best = over | more, None
            high = np.where(over, gaps, 0.0)
        beyond = float(missing[over].max())
        if beyond > 0:
            if best is None and (trial >= high).all():
                return made
            low, least = trial, beyond
        else:
            high, most, best = trial, beyond, made
            if (missing[over] >= -NEAR * gaps[over]).any():
                break
        part = 1.0 if best is None else least / (least - most) * (1 + NEAR)
        useless = beyond > before / 2  # the line went from one that is too large to another
        if best is not None and (useless or part >= 1.0):
            part = 0.5
        before = beyond if beyond > 0 else math.inf
        trial = low + part * (high - low)
    return made if best is None else best


def rows_for(
    evidence: Evidence, gaps: Floats, kept: float, enough: Callable[[Ints], bool]
) -> tuple[tuple[str, ...], int] | None:
    """Return the groups that have too few rows, and of how many in the data a part ``kept`` is enough."""

    def many_enough(many: int) -> bool:
        return enough(np.maximum(evidence.rows, many))

    if not many_enough(MOST_ROWS):
        return None
    low, high = max(math.floor(int(evidence.rows.min()) * AGAIN), 1), MOST_ROWS
    if many_enough(low):  # as expected, and chance was against it
        high = low
    while high > low + 1 + low * GRAIN:
        middle = math.isqrt(low * high)
        middle = min(max(middle, low + 1), high - 1)
        low, high = (low, middle) if many_enough(middle) else (middle, high)
    over = evidence.bounds > gaps if evidence.bounds.size == evidence.rows.size else evidence.rows > -1
    few = tuple(
        name
        for name, many, beyond in zip(evidence.names, evidence.rows, over, strict=True)
        if many < high and beyond
    )
    rows = (high + UNLUCKY * math.sqrt(high * (1 - kept))) / kept
    grain = 10 ** max(len(str(int(rows))) - DIGITS, 0)
    return few or (evidence.names[int(evidence.rows.argmin())],), int(math.ceil(rows / grain) * grain)


def _luckless(evidence: Evidence, deviations: float) -> Evidence:
    """Return evidence with rates that may have been seen too large, where a ratio hangs on how large they are."""
    if isinstance(evidence, RatiosOfRules | RatiosHeldOut):
        return evidence.rarer(deviations)
    return evidence


# ---------------------------------------------------------------------- what is not promised


def promise_of(
    repairer: Repairer,
    confidence: float,
    table: Table,
    criterion: str,
    features: tuple[str, ...] | None,
    noise: Noise | None = None,
) -> Promise:
    """Return what is to be promised; a UsageError where nothing can be, with what could.

    ``features`` are those that the repair learns from; None for a score.
    """
    require_plain(table)
    why = adapter_of(repairer).refusal(table.reading)
    flips = Comparison.parse(criterion).scope == "under_flips"
    if flips and features is None and not isinstance(repairer.effective_solver, Average):
        why = (
            "the effect of a change of the protected columns on a score is unknown; name columns to learn from with "
            "`features`"
        )
    if why:
        raise UsageError(f"`guarantee`: {why}")
    promise = Promise(repairer, confidence, table, criterion, noise)
    _ = promise.behind
    if why := _impossible(promise):
        raise UsageError(f"`guarantee`: {why}")
    return promise


def _impossible(promise: Promise) -> str:
    """Why no number of rows shows what is asked, or why it is no promise; empty where neither is so."""
    name, of_ratio = promise.adapter.parameter, promise.of.kind == "ratio"
    finite = promise.gaps[np.isfinite(promise.gaps)]
    if not finite.size:
        return f"a gap of at most inf is no guarantee; {NAME_IT[name]}"
    if finite.min() > 0 or promise.of.scope == "under_flips":  # which may be none, whatever the rows
        return ""
    what = "a ratio of 1" if of_ratio else f"a {'loss' if promise.of.kind == 'max' else 'gap'} of at most 0"
    return f"{what} in the whole population cannot be shown by any number of rows; {NAME_IT[name]}"


def require_plain(table: Table) -> None:
    """Raise where rows are no independent draws of the people that a promise is about."""
    columns = table.reading.columns
    if table.weighted:
        raise UsageError(
            f"`guarantee`: rows have weights ({columns.weight!r}), so they are not identically distributed "
            "draws, and no bound "
            "here covers that; leave out `weight`, and the guarantee is about the population that the rows are "
            "sampled from"
        )
    if columns.id is not None and columns.id in table.features.column_names:
        ids = texts_of(table.features.column(columns.id).combine_chunks()).to_pandas()
        again = int(ids.duplicated().sum())
        if again:
            raise UsageError(
                f"`guarantee`: {again:,} rows repeat an ID in {columns.id!r}: rows of one person are not independent; "
                "keep one row per ID"
            )


def check_bands(bands: Iterable[object]) -> None:
    """Raise where groups are cut at quantiles of the very rows; entries are ``COLUMN=EDGES``."""
    for one in map(str, bands):
        name, _, edges = one.rpartition("=")
        if edges and edges.strip()[-1:].isalpha() and edges.strip() != "values":
            raise UsageError(
                f"`guarantee`: `bands={one}` sets the edges of {name!r} from the {edges.strip()} of these rows, so "
                "the groups depend on the data; give the edges as numbers"
            )


def check_guarantee(confidence: float) -> None:
    """Raise where the confidence is none."""
    if not 0.5 <= confidence < 1:
        raise UsageError(
            f"`guarantee={confidence:g}`: the confidence is at least 0.5 and below 1; 0.95 is usual"
        )
