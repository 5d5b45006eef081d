"""Proof: what a repair did to rows, as numbers before and after it with the interval of each change.

Before and after are audited by the same code as any file: a randomised rule by its expected decisions, its base by its
decisions at the threshold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from msgspec.structs import replace as fields_replaced

from fairfix.auditing.audit import More, OfTrueGroups, audit, joined
from fairfix.auditing.baseline import change as change_between
from fairfix.auditing.checks import Ruling, ruled
from fairfix.auditing.comparisons import WITH_NUMBER, Comparison
from fairfix.auditing.continuous_attribute import AttributeCovariance, in_fifths, reports, trends
from fairfix.auditing.metrics import FLIP_SCOPES
from fairfix.auditing.paired_differences import Changes, Matched
from fairfix.auditing.results import Settings
from fairfix.auditing.row_differences import ANY, DECIDED, SHARE, RowSums, between_limits, change_of
from fairfix.data.choices import Code
from fairfix.data.counts import Floats, Ints
from fairfix.data.names import attribute_name, each_and_crossed
from fairfix.data.numeric_groups import Edges
from fairfix.data.once import once_per_object
from fairfix.data.row_hash import is_random
from fairfix.data.scales import Scale
from fairfix.data.table import Table
from fairfix.individual.by_model import of_predictor
from fairfix.individual.counterfactuals import Counterfactuals
from fairfix.individual.similar import Comparable
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.score_models import Scorer
from fairfix.models.trace import Note
from fairfix.noise.repair_evaluation import (
    RobustnessClaim,
    comparisons_of,
    said_of,
    true_groups_of,
    values_of,
)
from fairfix.schema.audit import Audit
from fairfix.schema.common import Block, Estimate, SavedCheck, estimate, no_number
from fairfix.schema.repair import ChanceOfKs, Evaluation, EvaluationRow
from fairfix.solvers.parity import ks_to_overall
from fairfix.stats.ks import ks_noise
from fairfix.tasks.group_changes import SHOWN, changes_of
from fairfix.tasks.quality import OF_DECISIONS
from fairfix.tasks.repaired_rows import RepairedRows

FLIPPED = (
    "decision_flips.under_flips",
    "score_change.under_flips",
    "decision_flips.under_comparable",
    "decision_flips.under_everybody",
    "decision_flips.under_counterfactuals",
    "score_change.under_counterfactuals",
    "counterfactual_gap.under_counterfactuals",
    "score_std.under_counterfactuals",
)
"""Comparisons of rows with their changed copies, which are shown where the predictor makes its own scores."""

COMPARED = (
    "selection_rate.difference.between_groups",
    "selection_rate.ratio.between_groups",
    "selection_rate.difference.within_strata",
    "true_positive_rate.difference.between_groups",
    "true_positive_rate.difference.within_strata",
    "equalized_odds.difference.between_groups",
    "equalized_odds.difference.within_strata",
    *(
        f"{name}.difference.true_groups"
        for name in ("selection_rate", "true_positive_rate", "equalized_odds")
    ),
    WITH_NUMBER,
    "accuracy.min",
    *FLIPPED,
)
"""Comparisons that the before/after table shows for every attribute."""

COMPARED_VALUES = (
    "ks.to_overall",
    "ks.between_groups",
    "log_loss.max",
    "square_loss.max",
    "selection_rate.difference.between_groups",
    "accuracy.min",
    *FLIPPED,
)
"""Comparisons that the table shows where values are repaired and not decisions."""

LOSSES = ("log_loss", "square_loss", "absolute_loss")
"""Overall losses that the table shows."""

READ = (*SHOWN, *OF_DECISIONS, *LOSSES)
"""Metrics that an evaluation and a comparison of repairs read, besides those of comparisons."""


UNLIKE = "before, they score the model's probability; after, the probability of a positive decision"
"""Why losses before and after a repair of decisions are not compared."""

NOT_MADE = no_number("undefined")

NO_CHANCE = no_number("a raw score is not a probability")


NO_CHANGE_OF_BINS = "no interval for this change: counts do not distinguish the scores within a bin"


@dataclass(frozen=True)
class RepairEffects:
    """Effects of a repair on some rows: as they are shown, and the audits that they are read from."""

    shown: Evaluation
    before: Audit
    after: Audit
    checks: tuple[SavedCheck, ...]
    """Checks of the repaired results."""
    claims: tuple[Note, ...] = ()
    """Findings on held-out rows about the true groups, in words; empty where nothing is known of them."""

    def pair_of(self, comparison: str, attribute: str) -> tuple[Estimate, Estimate] | None:
        """Return a comparison of an attribute before and after; None where it was not made after the repair."""
        was, now = (
            [
                block.by_id[comparison]
                for block in audited.attributes
                if block.attribute == attribute and comparison in block.by_id
            ]
            for audited in (self.before, self.after)
        )
        return (was[0] if was else NOT_MADE, now[0]) if now else None

    def without_passes(self, code: Code, why: Callable[[SavedCheck], str]) -> RepairEffects:
        """Return the same with no passed check for which there is a reason against it."""
        checks = (
            ruled(one, Ruling("undecided", code, reason))
            if one.verdict == "pass" and (reason := why(one))
            else one
            for one in self.checks
        )
        return replace(self, checks=tuple(checks))


@dataclass(frozen=True)
class Assessment:
    """A fitted repair on training rows and on held-out rows, with its messages."""

    of_fit: RepairEffects
    proof: RepairEffects
    messages: tuple[Note, ...]
    held: RepairedRows
    """The held-out rows that the repair has an answer for."""


def changed(
    comparison: str, before: Estimate, after: Estimate, change: Estimate | None = None, attribute: str = ""
) -> EvaluationRow:
    """Return a number before and after a repair; ``change`` is None where a value is undefined."""
    return EvaluationRow(
        name=f"{comparison} [{attribute}]" if attribute else comparison,
        id=comparison,
        attribute=attribute or None,
        before=before.alone,
        after=after.alone,
        change=change,
    )


def evaluate(
    rows: RepairedRows,
    settings: Settings,
    also: Sequence[str] = (),
    *,
    of_fit: bool = False,
    comparable: Comparable = (),
    copies: Counterfactuals | None = None,
    claim: RobustnessClaim | None = None,
    fifths: Mapping[str, Edges] = MappingProxyType({}),
    only: Sequence[str] | None = None,
) -> RepairEffects:
    """Audit the base and the repaired results on the same rows.

    Parameters
    ----------
    settings
        Intervals and checks; the checks are about the repaired results.
    also
        More comparisons to show.
    of_fit
        Whether these are the training rows; the fit may have kept out-of-fold values of them.
    comparable
        Values whose difference must not count, for changed copies of the rows.
    copies
        Copies of people; those of people among the rows are looked at.
    claim
        Knowledge about the noise of the groups, for statements about the true ones.
    fifths
        Cuts of protected numbers into groups, which are audited as well.
    only
        Comparisons to make in addition to ``also`` where no report shows this evaluation: without their changes, the
        numbers as drawn, and the other reading of probabilities, and on training rows without any other number. None
        for the usual ones with all of that.
    """
    rows = rows.regrouped(in_fifths(rows.table, fifths)) if fifths else rows
    table, predictor = rows.table, rows.rule
    base, repaired, random = rows.out_of_fold if of_fit else rows.shipped
    plain, confidence = predictor.trace.base, settings.confidence
    brief, usual = only is not None, COMPARED_VALUES if predictor.gives == "value" else COMPARED
    first = (*(() if brief else usual), *also)  # nobody reads the others of the original results
    shown = (*(usual if only is None else only), *also)
    was: More = {}
    if plain is not None and _has_flips(first):
        was = of_predictor(table, plain, comparable, confidence, copies, rows.predict_plain)
    elif table.rescore is not None and _has_flips(first):

        def rescored(changed: Table) -> Floats:
            return Scorer()(RepairedRows(changed, predictor).base())

        was = of_predictor(table, predictor, comparable, confidence, score=rescored)
    now: More = {}
    if _has_flips(shown):
        now = of_predictor(table, predictor, comparable, confidence, copies, rows.predict)
    each: OfTrueGroups = {}
    claims: tuple[Note, ...] = ()
    if claim is not None:
        alpha = 1.0 - confidence
        plainly = true_groups_of(base, claim, alpha)
        was = joined(was, comparisons_of(plainly, settings.checks))
        behind = true_groups_of(repaired, claim, alpha, predictor)
        now, each = joined(now, comparisons_of(behind, settings.checks)), values_of(behind)
        claims = () if of_fit else tuple(said_of(plainly, behind, claim))
    numbers = [list(trends(one, predictor.scales, confidence)) for one in (base, repaired)]
    was, now = (joined(more, reports(of_rows)) for more, of_rows in zip((was, now), numbers, strict=True))
    claims += () if of_fit else tuple(map(_of_number, *numbers))
    judged = [check.comparison.id for check in settings.checks]
    settings = replace(settings, only=(*shown, *judged), metrics=() if brief and of_fit else READ)
    uncertain = {} if claim is None else claim.uncertain
    probable = predictor.is_probability and not brief
    both = (*first, *COMPARED) if probable else first
    unchecked = replace(settings, checks=(), only=both)
    if was or uncertain:
        before = audit(base, base.data_spec, unchecked, was, uncertain=uncertain)
    else:
        before = audit_of_original(base, unchecked)
    after = audit(repaired, repaired.data_spec, settings, now, each, uncertain)
    share = float(np.average(random, weights=base.rows.weight))
    if brief and of_fit:
        shown_rates = Evaluation(rows=table.used, randomized=share, table=(), noise=(), people=())
        return RepairEffects(shown_rates, before, after, ())
    matched = Matched(base, repaired)
    changes = [*_overall_rows(matched, before, after, settings)]
    if not brief:
        pairs = None if of_fit else _Pairs(matched, settings, predictor.scales).change
        changes += comparison_rows(before, after, shown, pairs)
    redrawn = table.rows.entries is None and (random.any() or (of_fit and predictor.trace.redrawn))
    if not brief and predictor.gives == "value" and redrawn:
        expected = _expected(table, predictor, of_fit)
        changes = [fields_replaced(row, expected=expected.get(row.name)) for row in changes]
    elif (
        not brief and random.any() and table.draw
    ):  # else nobody knows with which draws the rule will be shipped
        delivered = _delivered(table.draw, repaired, replace(settings, checks=(), only=shown))
        changes = [fields_replaced(row, delivered=delivered.get(row.name)) for row in changes]
    if predictor.gives == "decision" and not predictor.is_probability:
        changes = [fields_replaced(row, unlike=UNLIKE) if row.id in LOSSES else row for row in changes]
    noise: tuple[ChanceOfKs, ...] = ()
    if predictor.gives == "value" and not predictor.is_probability and not brief:
        noise = tuple(_noise(repaired, block) for block in after.attributes)
    other = list(_other_reading(rows, (base, before), settings, also)) if probable else []
    if other and predictor.gives == "value":
        # what is about the probability stands with the draws, whose rates are its
        other += [row for row in changes if _of_score(row.id)]
        changes = [row for row in changes if not _of_score(row.id)]
    reading: Literal["drawn", "rounded"] = "drawn" if predictor.gives == "decision" else "rounded"
    shown_changes = Evaluation(
        rows=table.used,
        randomized=share,
        table=tuple(changes),
        noise=noise,
        other=tuple(other),
        reading=reading if other else None,
        people=changes_of(*matched.merged, before, after),
    )
    return RepairEffects(shown_changes, before, after, after.checks, claims)


def _has_flips(comparisons: Sequence[str]) -> bool:
    """Return whether some of the comparisons are of changed copies of rows."""
    return any(Comparison.parse(one).scope in FLIP_SCOPES for one in comparisons)


@once_per_object
def audit_of_original(base: Table, settings: Settings) -> Audit:
    """Return an audit of original results, which is the same for every rule."""
    return audit(base, base.data_spec, settings)


SHIFTS = 16
"""Fewest even draws of a row that tell what is expected of values, ..."""

REDRAWN = 1 << 21
"""... about the most values that they may make, in half a second, ..."""

CHUNK = 1 << 16
"""... and values that are made at once, ..."""

COPIED = 1 << 26
"""... fewer where the features of their rows, such as long texts, take more bytes than these."""

EXACT = 20_000
"""Even draws of one row give its probabilities to half of the distance between two: this number gives less than half of
the fourth decimal. Errors of ``m`` rows are like independent ones, so each needs only this over ``sqrt(m)``."""


def _delivered(draw: Callable[[Ints], Floats], repaired: Table, settings: Settings) -> dict[str, float]:
    """Return the numbers with the decisions as they are drawn, by the names of their rows; without undefined ones."""
    chance = repaired.decisions
    drawn = np.flatnonzero(is_random(chance))
    decided = chance.copy()
    decided[drawn] = draw(drawn) < chance[drawn]
    done = repaired.with_decision(decided)
    bare = replace(
        done.data_spec.of_one_threshold, columns=replace(done.data_spec.columns, score=None), thresholds=()
    )
    done = replace(done, data_spec=bare, rows=replace(done.rows, score=None))  # rates need no score
    report = audit(done, bare, settings)
    metrics = report.overall.metrics
    rates: tuple[str, ...] = "selection_rate", "accuracy"
    out = {name: metrics[name].value for name in rates if name in metrics}
    for block in report.attributes:
        out |= {f"{one.id} [{block.attribute}]": one.value for one in block.comparisons}
    return {name: value for name, value in out.items() if value is not None}


def _expected(table: Table, predictor: RepairedPredictor, of_fit: bool) -> dict[str, float]:
    """Return the expectations over the draws of the distances to all rows; empty where they are unknown."""
    of_fold = predictor.trace.redrawn if of_fit else None
    if of_fit and predictor.trace.fitted is not None and of_fold is None:
        return {}
    redrawn = of_fold or predictor.redrawn(table)
    cells = table.groups().codes
    size = np.bincount(cells)
    shifts = (min(EXACT, REDRAWN / np.sqrt(size).sum()) / np.sqrt(size)).astype(np.int64).clip(SHIFTS)
    rows = np.concatenate([np.tile(np.flatnonzero(cells == k), many) for k, many in enumerate(shifts)])
    draw = np.concatenate([(np.arange(many) + 0.5) / many for many in size * shifts])
    parts = []
    table = replace(table, features=table.features.select([*predictor.features]))
    step = max(1, min(CHUNK, COPIED * len(table) // max(1, table.features.nbytes)))
    for i in range(0, rows.size, step):
        own, now = rows[i : i + step], draw[i : i + step]
        again = replace(table.take(own), draw=now.__getitem__)
        parts.append(redrawn(again, own))
    every, weight = np.concatenate(parts), (table.weight / shifts[cells])[rows]
    out = {}
    for columns in each_and_crossed(table.data_spec.columns.protected):
        groups = table.groups(columns)
        far = ks_to_overall(every, groups.codes[rows], weight, len(groups.levels))
        out[f"ks.to_overall [{attribute_name(columns)}]"] = float(far.max())
    return out


def _of_score(identifier: str) -> bool:
    """Tell whether a row is about the score and not about decisions."""
    return Comparison.parse(identifier).metric in ("ks", "log_loss", "square_loss", "score_change")


def _other_reading(
    rows: RepairedRows, original: tuple[Table, Audit], settings: Settings, also: Sequence[str]
) -> Iterator[EvaluationRow]:
    """Yield what probabilities do that are rounded instead of drawn, or drawn instead of rounded.

    ``original``: the rows before the repair as they are audited already.
    """
    base, repaired, _ = rows.read_otherwise
    shown = (*COMPARED, *also)
    plain = replace(settings, checks=(), only=shown)
    before = original[1] if base is original[0] else audit(base, base.data_spec, plain)
    after = audit(repaired, repaired.data_spec, plain)
    matched = Matched(base, repaired)
    every = _overall_rows(matched, before, after, settings)
    yield from (row for row in every if row.id not in LOSSES)
    yield from comparison_rows(before, after, shown, _Pairs(matched, plain).change)


def _noise(table: Table, block: Block) -> ChanceOfKs:
    """Return the largest distance to all rows that chance alone makes: its mean and its quantile."""
    codes = table.groups(block.columns).codes
    rows = np.bincount(codes, table.weight) ** 2 / np.bincount(codes, table.square_weight)
    mean, upper = ks_noise(rows)
    return ChanceOfKs(attribute=block.attribute, mean=mean, upper=upper)


class _Pairs:
    """Intervals of changes of comparisons, of rows before and after a repair.

    Rates and means have those of the differences row by row, which hold for every pair of groups that may be furthest
    apart (:mod:`fairfix.auditing.paired_differences`), or those of independent samples where these are narrower and
    hold too. A change of a KS distance, or of a covariance with a number, is between the limits of the one before and
    of the one after, each at half the miscoverage: wide, and valid however the two depend on each other.
    """

    def __init__(self, matched: Matched, settings: Settings, scales: Sequence[Scale] = ()) -> None:
        self.changes = Changes(matched, settings.confidence, settings.reference)
        confidence = (1 + settings.confidence) / 2
        distances = [name for name in COMPARED_VALUES if name.startswith("ks.")]
        self.surer = replace(settings, checks=(), confidence=confidence, only=distances, metrics=())
        self.tables = matched.old, matched.new
        self.scales = scales

    @cached_property
    def sure(self) -> tuple[Audit, ...]:
        """Audits before and after, each with half the miscoverage."""
        return tuple(audit(table, table.data_spec, self.surer) for table in self.tables)

    def change(self, comparison: str, block: Block, before: Estimate, after: Estimate) -> Estimate:
        """Return a change with its interval, or with why there is none."""
        value = after.point - before.point
        of = Comparison.parse(comparison, block.attribute)
        if of.metric == "ks":
            return between_limits(*(one.block(block.attribute).by_id[comparison] for one in self.sure))
        if of.id == WITH_NUMBER:
            own = [scale for scale in self.scales if scale.column == block.attribute]
            sure = (one.size for rows in self.tables for one in trends(rows, own, self.surer.confidence))
            return between_limits(*sure)
        ends: Any = "true groups are not known row by row"
        if of.metric in (*LOSSES, "mean_score") and self.tables[0].rows.entries is not None:
            return estimate(value, math.nan, math.nan, NO_CHANGE_OF_BINS)
        if of.metric in LOSSES and not (of.metric == "square_loss" and self.tables[0].data_spec.binary):
            ends = "an unbounded loss can come from a few rows alone"
        elif not of.of_true_groups:
            ends = self.changes.limits(of, block.columns)
        if isinstance(ends, str):
            return estimate(value, math.nan, math.nan, f"no interval for this change: {ends}")
        change = change_between(before, after, ends)
        return estimate(change.point, change.lower, change.upper)


def _of_number(was: AttributeCovariance, now: AttributeCovariance) -> Note:
    """Return in words how decisions on held-out rows go with a number."""
    scale = was.scale
    before, after = (f"{100 * one.covariance.point:+z.1f}" for one in (was, now))
    correlated = [
        "undefined" if math.isnan(one.correlation) else f"{one.correlation:z.2f}" for one in (was, now)
    ]
    return Note(
        f"on held-out rows, the covariance of positive decisions with {scale.column}, per standard deviation "
        f"({scale.deviation:g}), is {before} points before the repair and {after} after it (correlation "
        f"{correlated[0]} and {correlated[1]})",
        "numbers",
    )


def comparison_rows(
    before: Audit,
    after: Audit,
    shown: Sequence[str],
    change_by: Callable[[str, Block, Estimate, Estimate], Estimate] | None,
    unknown: Estimate | None = None,
) -> Iterator[EvaluationRow]:
    """Yield comparisons of groups.

    Parameters
    ----------
    change_by
        Returns the change of a comparison of an attribute; None on training rows, where changes have no interval.
    unknown
        The number before the repair, where it was not measured; None leaves such a comparison out.
    """
    for block in after.attributes:
        then, later = before.block(block.attribute).by_id, block.by_id
        for identifier in dict.fromkeys(shown):
            was, now = then.get(identifier, unknown), later.get(identifier)
            if was is not None and now is not None:
                change, value = None, now.point - was.point
                if change_by is not None and not math.isnan(value):
                    change = change_by(identifier, block, was, now)
                elif not math.isnan(value):
                    why = "no interval for this change: the rule was fitted to these rows"
                    change = estimate(value, math.nan, math.nan, why)
                yield changed(identifier, was, now, change, block.attribute)


def _overall_rows(
    matched: Matched, before: Audit, after: Audit, settings: Settings
) -> Iterator[EvaluationRow]:
    """Yield overall selection rate, accuracy and losses."""
    base, repaired = matched.old, matched.new
    was, now = before.overall.metrics, after.overall.metrics
    for name in DECIDED:  # paired: sharper than two intervals apart
        if (change := change_of(name, *matched.merged, settings.confidence, SHARE)) is not None:
            yield changed(name, was[name], now[name], change)
    if base.rows.label is None:
        return
    if repaired.data_spec.columns.probability and base.data_spec.binary:
        yield from _losses_of_decisions(matched.merged[1], before, settings)
    elif not repaired.data_spec.columns.probability:
        yield from _losses_of_values(base, repaired, was, now, settings)


def _losses_of_decisions(table: Table, before: Audit, settings: Settings) -> Iterator[EvaluationRow]:
    """Yield log loss and square loss of the decision probabilities, after those of the base score."""
    logs, squares, wrong = RowSums(), RowSums(), 0
    for piece in table.pieces():
        chance = piece.decisions
        right = np.where(piece.rows.label == 1, chance, 1 - chance)
        wrong += int(piece.stands_for[right == 0].sum())
        if not wrong:
            logs.add(-np.log(right), piece)
        squares.add((1 - right) ** 2, piece)
    if wrong:
        why = f"infinite: {wrong:,} hard yes/no decisions are wrong, which is true of any threshold rule"
        loss = no_number(why)
    else:
        loss = logs.mean(settings.confidence, (0.0, math.inf))
    was = before.overall.metrics
    yield changed("log_loss", was.get("log_loss", NO_CHANCE), loss)
    square = squares.mean(settings.confidence, (0.0, 1.0))
    yield changed("square_loss", was.get("square_loss", NO_CHANCE), square)


def _losses_of_values(
    base: Table, repaired: Table, was: Mapping[str, Estimate], now: Mapping[str, Estimate], settings: Settings
) -> Iterator[EvaluationRow]:
    """Yield the losses of values, with the interval of their paired change."""
    for name in LOSSES:
        if name not in was or name not in now:
            continue
        change = None
        if base.rows.entries is None:
            change = change_of(name, base, repaired, settings.confidence, ANY)
        elif math.isfinite(moved := now[name].point - was[name].point):
            change = estimate(moved, math.nan, math.nan, NO_CHANGE_OF_BINS)
        yield changed(name, was[name], now[name], change)
