"""What held-out rows say of a repair beside its proof: doubts of it, and what its way costs against another.

The words are those of :mod:`fairfix.tasks.warnings`; here are the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

import numpy as np

from fairfix.auditing.audit import audit
from fairfix.auditing.comparisons import TRUE_GROUPS, Comparison
from fairfix.auditing.results import Settings
from fairfix.data.arrow_normalize import texts_of
from fairfix.data.counts import Bools
from fairfix.data.names import attribute_name
from fairfix.data.reading import Reading
from fairfix.data.row_hash import is_random
from fairfix.data.table import Table
from fairfix.methods.base import Repairer, expected_accuracy
from fairfix.models.identity import RowDraws
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.trace import Caution, Note
from fairfix.tasks.before_after import BeforeAfter, MetricChange, loss_of, mean_change, results_on
from fairfix.tasks.messages import of_shared_ids
from fairfix.tasks.warnings import (
    Blindness,
    ConstraintTarget,
    of_blindness,
    of_constant,
    of_gaps,
    of_levelling,
    of_rounding,
    of_selection,
    of_slack,
    of_small_groups,
    one_row,
)


def criterion_of(repairer: Repairer, reading: Reading) -> str:
    """Return what the slack bounds: within strata, where there are strata."""
    if not reading.columns.strata:
        return repairer.bounded_comparison(reading)
    return Comparison.parse(repairer.bounded_comparison(reading)).to("within_strata").id


def cost_of_rounding(
    repairer: Repairer, predictor: RepairedPredictor, held: Table, settings: Settings
) -> Iterator[Note]:
    """Yield what a deterministic rule costs against the randomised one that it was rounded from."""
    before = predictor.trace.randomized
    if before is None:
        return
    name, asked = criterion_of(repairer, held.reading), targets_of(repairer, held.reading).values()
    (gap, right), (rounded_gap, rounded_right) = (
        _gap_and_accuracy(rule, held, name, settings, asked) for rule in (before, predictor)
    )
    accuracy = "" if math.isnan(right) else f", accuracy {rounded_right:.4f} instead of {right:.4f}"
    yield Note(
        f"without randomization, on held-out rows: {name} {rounded_gap:.4f} instead of {gap:.4f}{accuracy}",
        "rounded",
    )


def cost_of_blindness(
    repairer: Repairer, predictor: RepairedPredictor, held: Table, settings: Settings
) -> Iterator[Note]:
    """Yield what a rule that does not look at the group costs against the same repair with one that does."""
    aware, base = predictor.trace.aware, predictor.trace.base
    if aware is None or base is None or held.rows.label is None:
        return
    answered = held.take(np.flatnonzero(~np.isnan(aware.predict(held))))
    rules: list[RepairedPredictor] = [predictor, aware, base]
    label, weight = answered.rows.label, answered.weight
    assert label is not None
    mean = float(np.average(label, weights=weight))
    shown = [answered.with_score(rule.predict(answered)) for rule in rules]
    losses = [loss_of("log_loss", one) for one in (*shown, answered.with_score(np.full(len(answered), mean)))]
    if not (np.isfinite(losses).all() and len(answered)):
        return
    own, seeing, free, constant = (float(np.average(loss, weights=weight)) for loss in losses)
    more = mean_change(losses[0] - losses[1], answered, settings, (-math.inf, math.inf))
    name, asked = criterion_of(repairer, answered.reading), targets_of(repairer, answered.reading).values()
    # whose rates are those of the probability
    drawn = [rule.trace.randomized or rule for rule in (predictor, aware)]
    gap, aware_gap = (_gap_and_accuracy(rule, answered, name, settings, asked)[0] for rule in drawn)
    attribute = attribute_name(answered.reading.columns.protected)
    yield from of_blindness(Blindness(attribute, name, own, seeing, more, free, constant, gap, aware_gap))


def _gap_and_accuracy(
    rule: RepairedPredictor, held: Table, name: str, settings: Settings, asked: Collection[ConstraintTarget]
) -> tuple[float, float]:
    """Return the worst value of a comparison on held-out rows, and the expected accuracy, NaN without labels.

    It is that of the attributes that are ``asked`` for by name, or of all.
    """
    repaired = results_on(held, rule)[1]
    report = audit(repaired, repaired.reading, replace(settings, checks=(), only=(name,)))
    worst = min if Comparison.parse(name).worse == "smaller" else max
    blocks = [b for b in report.blocks if any(one.attribute in ("", b.attribute) for one in asked)]
    gap = worst(b.comparisons[name].value.value for b in blocks if name in b.comparisons)
    chance = repaired.chance
    assert chance is not None
    return gap, expected_accuracy(held, chance) if held.reading.binary else math.nan


def targets_of(repairer: Repairer, reading: Reading) -> dict[tuple[str, ...], ConstraintTarget]:
    """Return what is bounded between the groups of each attribute, by its columns; with its name where not alone."""
    every = repairer.constrained_attributes(reading.columns.protected)
    bound = ConstraintTarget(criterion_of(repairer, reading), repairer.shared_slack, repairer.least_ratio)
    named = {columns: replace(bound, attribute=attribute_name(columns)) for columns in every}
    return named if len(every) > 1 else dict.fromkeys(every, bound)


def comparisons_of(repairer: Repairer, reading: Reading) -> tuple[str, ...]:
    """Return the comparisons that tell of what is bounded: of true groups too, where these are held."""
    name = criterion_of(repairer, reading)
    return (name, Comparison.parse(name).to(TRUE_GROUPS).id) if "noise" in repairer.uses else (name,)


def change_of(proof: BeforeAfter, asked: ConstraintTarget, columns: tuple[str, ...]) -> MetricChange | None:
    """Return the row of a proof about what is bounded between the groups of some columns; None where there is none."""
    wanted = asked.comparison, attribute_name(columns)
    return next((row for row in proof.table if (row.id, row.attribute) == wanted), None)


def repair_warnings(
    repairer: Repairer,
    predictor: RepairedPredictor,
    fitted: Table,
    shown: tuple[BeforeAfter, BeforeAfter],
    learn: Callable[[Bools], RepairedPredictor] | None,
    held: Table,
) -> Iterator[Caution]:
    """Yield what has to be said first of a repair, by its proofs on the rows of the fit and on held-out rows."""
    asked = targets_of(repairer, held.reading)
    if "noise" in repairer.uses:  # of true groups, as far as anything is known of them
        asked = {
            columns: replace(one, comparison=Comparison.parse(one.comparison).to(TRUE_GROUPS).id)
            for columns, one in asked.items()
        }
    metric = Comparison.parse(criterion_of(repairer, held.reading)).metric
    proof_rows = {
        columns: [change_of(proof, one, columns) for proof in shown] for columns, one in asked.items()
    }
    drawn = predictor.trace.randomized
    for columns, one in asked.items():
        fit, holdout = proof_rows[columns]
        if holdout is None or fit is None or drawn is None:
            continue
        groups, attribute = fitted.groups(columns), attribute_name(columns)
        step, plain = one_row(fitted, groups, metric), replace(shown[1].after.settings, checks=())
        if one.is_ratio:  # of rates up to the greatest, which a row moves as it does the least
            rates = [group.metrics[metric].value for group in shown[0].after.block(attribute).groups]
            step *= 2 / max(rates) if max(rates) > 0 else math.inf
        left, _ = _gap_and_accuracy(drawn, held, criterion_of(repairer, held.reading), plain, [one])
        yield from of_rounding(one, fit.after, holdout.before, holdout.after, step, left)
    parts = [results_on(rows, predictor)[:2] for rows in (fitted, held)]
    own = [note for note in predictor.trace.notes if isinstance(note, Caution) and note.code == "selection"]
    same = list(of_constant(*parts, decides=False)) if predictor.gives == "value" else []
    if not (same or own) and parts[1][1].chance is not None:
        same = list(of_constant(*parts, decides=True))
    yield from same or own  # who knows why says it
    for columns, one in asked.items():
        if (holdout := proof_rows[columns][1]) is not None:
            yield from of_gaps(one, holdout.before, holdout.after)
    yield from of_levelling(*parts[1], shown[1].after.settings.confidence)
    by_row = fitted.rows.entries is None
    expected = predictor.gives == "decision" or not (by_row and shown[0].randomized)  # not one draw of values
    for columns, one in asked.items():
        fit = proof_rows[columns][0]
        if fit is not None and expected and drawn is None and "noise" not in repairer.uses:
            yield from of_slack(one, fit.after.value)
    if not same and not own:
        taken = next((r for r in shown[1].table if r.name == "selection_rate"), None)
        if taken is not None:
            assert taken.change is not None
            yield from of_selection(taken.before, taken.after, taken.change)
    if learn is not None:
        unit = "the decisions" if _decided(predictor, held) else "the square loss"
        yield from of_small_groups(metric, fitted, held, predictor, learn, _cost, unit)


def _decided(predictor: RepairedPredictor, held: Table) -> bool:
    """Whether a repair is judged by right decisions; else by its values."""
    return held.reading.binary and (predictor.gives == "decision" or predictor.is_probability)


def _cost(table: Table, predictor: RepairedPredictor) -> float:
    """Return what a repair costs rows: accuracy, or the rise of the square loss as a share of it."""
    base, repaired, _ = results_on(table, predictor)
    if _decided(predictor, table):
        then, now = base.chance, repaired.chance
        assert then is not None
        assert now is not None
        return expected_accuracy(base, then) - expected_accuracy(base, now)
    if table.rows.label is None or base.reading.score_scale == "raw":
        return math.nan
    losses = (loss_of("square_loss", one) for one in (base, repaired))
    loss, left = (float(np.average(one, weights=table.rows.weight)) for one in losses)
    return (left - loss) / loss if loss > 0 else math.nan


MANY_EQUAL = 0.05
"""Fraction of the rows whose result is randomized that equal another, from which on it is a warning."""


def ties(table: Table, predictor: RepairedPredictor) -> Iterator[Note]:
    """Yield what is to be said where nothing, or an id that repeats, tells rows apart whose result is drawn."""
    name = table.reading.columns.id
    if table.draw is None or not predictor.randomized:
        return
    drawn = predictor.drawn(table) if predictor.gives == "value" else is_random(predictor.predict(table))
    many = int(drawn.sum())
    alike = table.draw.repeated(np.flatnonzero(drawn)) if isinstance(table.draw, RowDraws) else 0
    if name is None and alike:
        remedy = "name an ID column with `id`"
        if table.reading.columns.count:
            remedy = f"leave out `count`, give one row per person, and {remedy}"
        kind = Caution if alike >= MANY_EQUAL * many else Note
        yield kind(
            f"rows have no ID: {alike:,} of the {many:,} rows with a randomized result equal another row in every "
            "column that the rule reads. Within one file, row order determines their results, as in this evaluation. "
            f"Predicted one at a time, they all get the same result. To randomize for each person, {remedy}",
            "equal_rows",
        )
    if name is not None and name in table.features.column_names:
        again = (
            texts_of(table.features.column(name).combine_chunks())
            .to_pandas()
            .duplicated(keep=False)
            .to_numpy()
        )
        yield from of_shared_ids(name, int(np.count_nonzero(drawn & again)), many)
