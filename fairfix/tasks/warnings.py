"""Warnings about a repair, found by measuring it.

======================  ==============================================================================================
code                    said where
======================  ==============================================================================================
``rounding``            a rule was made deterministic, and misses its slack on training rows or leaves the gap
``constant``            all rows have the same value, on held-out rows or on training rows
``no_help``             both of the next two
``gap_before``          the gap before the repair may have been within the slack already
``gap_after``           the gap after it is not smaller, or the worst group no better off, on held-out rows
``levelled_down``       the rate of no group rises, and that of some group falls
``slack``               the rule misses its slack on the training rows
``selection``           nearly all rows, or all, get one decision; methods that know why say it themselves
``selection_moved``     many more are selected than by the base, or many fewer, which no slack bounds
``small_group``         groups of few rows make most of what the repair costs the others
``equal_rows``          no id tells rows apart whose result is drawn
``shared_ids``          rows whose result is drawn share their id with another
``cost``                a rule without the group gives away much of what the features tell, more than one with it
``score_direction``     scores are lower for rows of label 1, also in an audit and in a comparison of methods
``decision_direction``  positive decisions are rarer for rows of label 1, also in an audit and a comparison of methods
======================  ==============================================================================================

All of them are cautions, but for the plain cost without the group. None is found in words: each looks at typed numbers
of the proof, or fits again.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from fairfix.auditing.comparisons import ENDS, WITH_NUMBER, Comparison
from fairfix.auditing.criteria import CRITERIA, events_of, metric_of
from fairfix.auditing.metrics import EQUALIZED_ODDS
from fairfix.auditing.results import Settings
from fairfix.data.counts import Bools, Floats
from fairfix.data.table import Groups, Table
from fairfix.errors import FairfixError, FairfixWarning
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.trace import Caution, Note
from fairfix.schema.common import Estimate, estimate
from fairfix.schema.repair import EvaluationRow
from fairfix.stats.estimates import Means, powers
from fairfix.tasks.before_after import audit_of_original
from fairfix.tasks.messages import of_decisions, of_direction
from fairfix.tasks.repaired_rows import RepairedRows

FEW = 100
"""Rows from which a rate is known to about 0.1 only (95%): a gap that depends on fewer is mostly chance."""

MATERIAL = 0.01
"""Least cost that is told of small groups: a share of the decisions, or of the base's loss."""

MOVED = 0.1
"""Change of the share selected above which it is told: one person in ten is decided otherwise on balance."""

DEAR = 0.25
"""Part of what the features tell of the label that a rule without the group may give away before it is warned of."""

ROUNDED = 1e-12
"""Change of a rate that is rounding of sums of chances, and no rise."""

SHOWN = 1e-3
"""A slack is missed if it is by more than this, which is far above the tolerances of all solvers."""

EVENTS: Mapping[str, tuple[int | None, ...]] = {
    "ks": (None,),
    **{name: events_of(name) for name in map(metric_of, CRITERIA)},
}
"""Labels of the rows over which a metric is a mean; None for all rows."""

CHANGED = ("under_flips", "under_comparable", "under_counterfactuals")
"""Scopes of people and their changed copies, which are alike where nothing changes."""

ROWS = {None: "rows", 1: "positives", 0: "negatives"}


@dataclass(frozen=True)
class ConstraintTarget:
    """A comparison, and the largest gap or least ratio that is allowed on the training rows.

    ``slack`` and ``ratio`` are None where none is stated for all groups; ``attribute`` is empty where there is one.
    """

    comparison: Comparison
    slack: float | None
    ratio: float | None = None
    attribute: str = ""

    @property
    def name(self) -> str:
        """The comparison's title, with its attribute where there are several."""
        title = self.comparison.title
        return f"{title} [{self.attribute}]" if self.attribute else title

    @property
    def is_ratio(self) -> bool:
        """Whether it is 1 where groups are alike, and worse where it is less."""
        return self.comparison.kind == "ratio"

    @property
    def is_gap(self) -> bool:
        """Whether it tells how far groups, or people and their copies, are from alike."""
        of = self.comparison
        measured = of.metric == "ks" or of.kind in ("difference", "covariance", "ratio")
        return measured or of.scope in CHANGED or of.id == WITH_NUMBER

    @property
    def is_end(self) -> bool:
        """Whether it is the value of the group that is worst off."""
        return self.comparison.kind in ENDS

    @property
    def allowed(self) -> float | None:
        """The largest distance from alike that is allowed."""
        return self.slack if self.ratio is None else 1.0 - self.ratio

    @property
    def limit(self) -> str:
        """The allowed gap or ratio, in words."""
        return (
            f"the slack {self.slack:g}"
            if self.ratio is None
            else f"the smallest allowed ratio {self.ratio:g}"
        )

    def away(self, value: Estimate) -> Estimate:
        """Return how far groups are from alike, with its interval: a gap itself, or what a ratio lacks of 1."""
        low, high = (value.upper, value.lower) if self.is_ratio else (value.lower, value.upper)
        return estimate(self.distance(value.point), self.distance(low), self.distance(high))

    def distance(self, number: float) -> float:
        """Return how far from alike a number is."""
        return 1 - number if self.is_ratio else number


def show(value: Estimate) -> str:
    """Return a value with its interval."""
    return f"{value.point:.4f} [{value.lower:.3f}, {value.upper:.3f}]"


def of_gaps(asked: ConstraintTarget, before: Estimate, after: Estimate) -> Iterator[Caution]:
    """Yield what is to be said of a gap before and after the repair, on held-out rows."""
    if asked.is_end and before.value is not None:
        yield from _of_worst(asked, before, after)
    if not asked.is_gap or before.value is None or asked.slack == math.inf:
        return
    allowed = asked.allowed or 0.0
    least = asked.limit if allowed else f"{float(asked.is_ratio):g}"
    uncertain = not asked.away(before).lower > allowed
    gap_before = f"on held-out rows, {asked.name} was {show(before)}"
    within = asked.away(before).upper <= allowed
    larger = asked.away(after).point >= asked.away(before).point
    if uncertain and larger:
        doubt = "there was nothing to repair" if within else "the gap before was uncertain"
        yield Caution(
            f"no evidence that the repair helped: {gap_before}, which {'meets' if within else 'reaches'} {least}, so "
            f"{doubt}. After the repair, {asked.name} is {show(after)}, so the gap is not smaller. Keep the original "
            f"model{'' if within else ', or use more rows'}",
            "no_help",
        )
    elif within:
        yield Caution(
            f"the gap before the repair was small: {gap_before}, which meets {least}, so there was nothing to repair",
            "gap_before",
        )
    elif uncertain:
        yield Caution(
            f"the gap before the repair is uncertain: {gap_before}, which reaches {least}, so there may have been "
            "nothing to repair",
            "gap_before",
        )
    elif larger:
        yield Caution(
            f"the gap is not smaller: {asked.name} was {show(before)} on held-out rows and is {show(after)}",
            "gap_after",
        )


def _of_worst(asked: ConstraintTarget, before: Estimate, after: Estimate) -> Iterator[Caution]:
    """Yield that the group that is worst off is no better off, on held-out rows."""
    larger = asked.comparison.worse == "larger"
    if after.point >= before.point if larger else after.point <= before.point:
        yield Caution(
            f"the worst group is no better off: {asked.name} was {show(before)} on held-out rows and is {show(after)}",
            "gap_after",
        )


def of_slack(asked: ConstraintTarget, reached: float) -> Iterator[Caution]:
    """Yield a warning where a rule misses its slack on the training rows; ``reached`` is expected over its draws."""
    allowed, away = asked.allowed, asked.distance(reached)
    if asked.is_gap and allowed is not None and away > allowed + SHOWN:
        yield Caution(
            f"the rule exceeds {asked.limit}: {asked.name} is {reached:.4f} on the training rows", "slack"
        )


def of_selection(row: EvaluationRow, *, at_a_rate: bool = False) -> Iterator[Caution]:
    """Yield that many more or fewer are selected, where all of the interval of the change is beyond :data:`MOVED`.

    ``at_a_rate``: whether the method can be told the rate.
    """
    before, after, change = row.before.value, row.after.value, row.change
    if before is None or after is None or change is None or change.low is None or change.high is None:
        return
    if change.low > MOVED or change.high < -MOVED:
        yield Caution(
            f"the selection rate changes from {before:.1%} to {after:.1%} on held-out rows. A "
            "repair limits differences between groups or their losses, not the number of people selected"
            + (f". To select as many as before, use `rho={before:.3g}`" if at_a_rate else ""),
            "selection_moved",
        )


def of_constant(
    fitted: tuple[Table, Table], held: tuple[Table, Table], *, decides: bool
) -> Iterator[Caution]:
    """Yield a warning where all rows have one result; each part is its rows with original and with repaired results."""
    parts = {"the training rows": fitted, "held-out rows": held}
    alike = {name: one for name, one in parts.items() if _constant(one[1], decides) is not None}
    if not alike:
        return
    where, (base, repaired) = " and on ".join(alike), list(alike.values())[-1]
    level, before = _constant(repaired, decides), _constant(base, decides)
    if not decides:
        was = f"; the original model gives {before:.6g} to all of them" if before is not None else ""
        what = f"gives all rows the same value, {level:.6g},"
    else:
        was = f"; the original model selects {np.average(base.decisions, weights=base.weight):.1%} of them"
        what = {0.0: "decides 'no' for all rows", 1.0: "decides 'yes' for all rows"}.get(
            level or 0.0, f"decides 'yes' with the same probability, {level:.1%}, for all rows"
        )
    yield Caution(f"the repaired rule {what} on {where}{was}", "selection" if decides else "constant")


def _constant(table: Table, decides: bool) -> float | None:
    """Return the result that all rows have; None where they differ."""
    first: float | None = None
    for piece in table.pieces():
        results = piece.decisions if decides else piece.scores
        if not results.size:
            return None
        first = float(results[0]) if first is None else first
        if not (results == first).all():
            return None
    return first


def of_levelling(base: Table, repaired: Table, confidence: float) -> Iterator[Caution]:
    """Yield that on held-out rows no group gains and some lose: the gap was closed, or not, from above.

    A group loses where all of the interval of its change is below 0; the intervals hold for all groups at once.
    """
    losses = []
    attributes = {name: base.groups([name]) for name in base.data_spec.columns.protected}
    sums = {name: np.zeros((7, len(groups.levels))) for name, groups in attributes.items()}
    of_cell = {name: base.cell_codes([name], groups.levels) for name, groups in attributes.items()}
    for old, new in zip(base.pieces(), repaired.pieces(), strict=True):
        before, after = old.chance, new.chance
        if before is None or after is None:
            return
        by_row = [*powers(old.weight, after - before, old.square_weight), old.weight * before]
        for name, groups in attributes.items():
            code = of_cell[name][old.rows.cell]
            for place, part in enumerate(by_row):
                sums[name][place] += np.bincount(code, part, len(groups.levels))
    many = sum(len(groups.levels) for groups in attributes.values())
    for name, groups in attributes.items():
        n, total = sums[name][:2]
        if (total > ROUNDED * n).any():
            return
        high = Means.from_sums(sums[name][:6], (-1.0, 1.0)).limits((1.0 - confidence) / many)[1]
        was = sums[name][6]
        for k in np.flatnonzero(high < 0):
            rates = f"from {was[k] / n[k]:.1%} to {(was[k] + total[k]) / n[k]:.1%}"
            losses.append((total[k] / n[k], f"of {groups.names[k]!r} falls {rates}"))
    if losses:
        yield Caution(
            "the repair helps no group: on held-out rows, no group's selection rate rises, and that "
            f"{min(losses)[1]}",
            "levelled_down",
        )


def of_rounding(
    asked: ConstraintTarget, fitted: Estimate, before: Estimate, after: Estimate, step: float, drawn: float
) -> Iterator[Caution]:
    """Yield what is to be said of a rule that was made deterministic.

    ``fitted`` is the gap on the training rows, ``before`` and ``after`` are those on held-out rows; ``step`` is how
    far one decision moves it: no deterministic rule is surely nearer than that. ``drawn`` is the gap that drawn
    decisions leave on held-out rows: what they would leave too is not for rounding to answer.
    """
    if not asked.is_gap or fitted.value is None:
        return
    was, now = asked.away(before).point, asked.away(after).point
    missed = asked.allowed is not None and asked.away(fitted).point > asked.allowed + step
    kept = not now < was and not asked.distance(drawn) >= now
    if not (missed or kept):
        return
    what = "leaves the gap" if kept else f"exceeds {asked.limit}"
    yield Caution(
        f"rounding {what}: with deterministic decisions, {asked.name} is {fitted.point:.4f} on the training "
        f"rows and {after.point:.4f} on held-out rows ({before.point:.4f} before the repair). With randomized "
        f"decisions, it is {drawn:.4f} on held-out rows: use `decisions=randomized`",
        "rounding",
    )


def one_row(table: Table, groups: Groups, metric: str) -> float:
    """Return the largest share that one row has in a rate of a group, shape-free; 1 where a rate has no rows."""
    out, of_cell = 0.0, table.cell_codes(groups.columns, groups.levels)
    for label in EVENTS.get(metric, (None,)):
        mass, most = np.zeros((2, len(groups.levels)))
        for piece in table.pieces():
            inside, weight = _event(piece, label)
            code, own = of_cell[piece.rows.cell][inside], weight[inside]
            mass += np.bincount(code, own, mass.size)
            np.maximum.at(most, code, own)
        if not mass.all():
            return 1.0
        out = max(out, float((most / mass).max()))
    return out


# ---------------------------------------------------------------------- what not looking at the group costs


@dataclass(frozen=True)
class Blindness:
    """Losses and gaps on held-out rows of a rule that does not look at the group, and of the same repair that does.

    ``loss`` and ``aware_loss`` are mean log losses, ``more`` their difference; ``free`` is the loss of the model
    without a repair, ``constant`` that of one score for all rows. ``gap`` and ``aware_gap`` are of ``comparison`` and
    of decisions drawn with the probabilities that the losses are of.
    """

    attribute: str
    comparison: Comparison
    loss: float
    aware_loss: float
    more: Estimate
    free: float
    constant: float
    gap: float
    aware_gap: float


def of_blindness(blind: Blindness) -> Iterator[Note]:
    """Yield the cost of not using the group: a caution where it is high, with remedies."""
    group, title = repr(blind.attribute), blind.comparison.title
    yield Note(
        f"without {group}, the log loss on held-out rows is {blind.loss:.4f} instead of {blind.aware_loss:.4f} "
        f"(difference {show(blind.more)}), and the {title} of randomized decisions is {blind.gap:.4f} "
        f"instead of {blind.aware_gap:.4f}",
        "cost",
    )
    span = blind.constant - blind.free
    if not span > 0:
        return
    given, aware = ((loss - blind.free) / span for loss in (blind.loss, blind.aware_loss))
    if given >= DEAR:
        remedy = "use `group=used`, or allow more `slack`" if aware <= given / 2 else "allow more `slack`"
        yield Caution(
            f"this repair does not use {group}. On held-out rows, it loses {given:.0%} of the information in the "
            "features about the label (100% means one score for all rows). A repair that uses "
            f"{group} loses {aware:.0%}: {remedy}",
            "cost",
        )


# ---------------------------------------------------------------------- direction of scores and decisions


def of_directions(table: Table, confidence: float, *, scored: bool = True) -> Iterator[Caution]:
    """Yield a message where the scores of a table, if they are used, or its decisions point the wrong way overall."""
    data_spec = table.data_spec
    if not data_spec.binary:
        return
    asked = Settings(confidence, exact=False, only=(), metrics=("auc", *EQUALIZED_ODDS))
    overall = audit_of_original(table, asked).overall.metrics
    if scored:
        yield from of_direction(overall.get("auc"), data_spec)
    if table.rows.decision is not None:
        yield from of_decisions(overall, data_spec)


# ---------------------------------------------------------------------- small groups


def of_small_groups(
    metric: str,
    fit: Table,
    held: RepairedRows,
    again: Callable[[Bools], RepairedPredictor],
    cost: Callable[[RepairedRows], float],
    unit: str,
) -> Iterator[Caution]:
    """Yield what groups of few rows cost the others, if that is most of what the repair costs them.

    ``again`` fits the repair to the training rows in a mask; ``cost`` is what a repair costs rows, in units of
    :data:`MATERIAL`, and ``unit`` what that is a share of, in words.
    """
    columns = fit.data_spec.columns
    groups, names = fit.groups((*columns.strata, *columns.protected)), {}
    small, of_cell = np.zeros(len(groups.levels), dtype=bool), fit.cell_codes(groups.columns, groups.levels)
    for label in EVENTS.get(metric, ()):
        mass, squares, rows = np.zeros((3, small.size))
        for piece in fit.pieces():
            inside, weight = _event(piece, label)
            codes = of_cell[piece.rows.cell][inside]
            mass += np.bincount(codes, weight[inside], small.size)
            squares += np.bincount(codes, piece.square_weight[inside], small.size)
            rows += np.bincount(codes, piece.stands_for[inside], small.size)
        with np.errstate(invalid="ignore", divide="ignore"):
            few = np.nan_to_num(mass**2 / squares) < FEW
        for k in np.flatnonzero(few & ~small):
            names[k] = f"{groups.names[k]!r} ({int(rows[k]):,} {ROWS[label]})"
        small |= few
    if not small.any() or small.all():
        return
    gone = {groups.levels[k] for k in np.flatnonzero(small)}
    theirs = held.table.groups(groups.columns)
    others = held.take(np.flatnonzero([theirs.levels[c] not in gone for c in theirs.codes]))
    if not len(others.table):
        return
    paid = cost(others)
    if not paid >= MATERIAL:
        return
    kept = ~small[groups.codes]
    if len({groups.levels[c] for c in np.unique(groups.codes[kept])}) < 2:
        alone, why = 0.0, "then a single group is left, and there is nothing to repair"
    else:
        try:
            with warnings.catch_warnings(action="ignore", category=FairfixWarning):
                alone, why = cost(RepairedRows(others.table, again(kept))), "fitted again without"
        except FairfixError:
            return  # the method cannot be fitted to the others
    if paid - alone >= max(MATERIAL, paid / 2):
        named = ", ".join(names[k] for k in sorted(names))
        which, them = ("a group", "it") if len(names) == 1 else ("groups", "them")
        yield Caution(
            f"most of the cost comes from {which} with few rows, {named}: on held-out rows of the others, the "
            f"repair costs {paid:.1%} of {unit}, and {alone:.1%} without {them} ({why}). Rates of few rows are mostly "
            f"noise: merge {them} into another group, or allow more slack",
            "small_group",
        )


def _event(table: Table, label: int | None) -> tuple[Bools, Floats]:
    """Return which rows are those of a label, and the weight of every row."""
    weight = table.weight
    if label is None or table.rows.label is None:
        return np.ones(len(table), dtype=bool), weight
    return np.asarray(table.rows.label == label), weight
