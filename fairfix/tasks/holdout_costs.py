"""Further findings on held-out rows: warnings about a repair, and its cost compared with another.

The words are those of :mod:`fairfix.tasks.warnings`; here are the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from fairfix.auditing.audit import audit
from fairfix.auditing.comparisons import TRUE_GROUPS, Comparison
from fairfix.auditing.results import Settings
from fairfix.auditing.row_differences import ANY, loss_of_rows, mean_of_rows
from fairfix.data.arrow_normalize import texts_of
from fairfix.data.counts import Bools
from fairfix.data.data_spec import DataSpec
from fairfix.data.names import attribute_name
from fairfix.data.table import Table
from fairfix.methods.base import Repairer, expected_accuracy
from fairfix.models.identity import RowDraws
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.trace import Caution, Note
from fairfix.schema.audit import Audit
from fairfix.tasks.before_after import RepairEffects
from fairfix.tasks.messages import of_shared_ids
from fairfix.tasks.repaired_rows import RepairedRows
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


def criterion_of(repairer: Repairer, data_spec: DataSpec) -> Comparison:
    """Return what the slack bounds: within strata, where there are strata."""
    of = Comparison.parse(repairer.bounded_comparison(data_spec))
    return of.to("within_strata") if data_spec.columns.strata else of


class DrawnRule(NamedTuple):
    """Held-out rows under a rule that draws decisions: their audit, and the expected accuracy, NaN without labels."""

    report: Audit
    accuracy: float


def rounded_from(repairer: Repairer, held: RepairedRows, settings: Settings) -> DrawnRule | None:
    """Return held-out rows under the randomized rule that a deterministic one was rounded from; None of other rules."""
    drawn = held.drawn_rule
    return None if drawn is None else _drawn(drawn, criterion_of(repairer, held.table.data_spec), settings)


def _drawn(rows: RepairedRows, of: Comparison, settings: Settings) -> DrawnRule:
    """Return an audit of a comparison, and the accuracy."""
    repaired = rows.shipped.repaired
    report = audit(repaired, repaired.data_spec, replace(settings, checks=(), only=(of.id,), metrics=()))
    return DrawnRule(report, _accuracy(rows.table, repaired))


def cost_of_rounding(
    repairer: Repairer, held: RepairedRows, proof: RepairEffects, drawn: DrawnRule | None
) -> Iterator[Note]:
    """Yield what a deterministic rule costs against the randomised one that it was rounded from."""
    if drawn is None:
        return
    data_spec = held.table.data_spec
    of, asked = criterion_of(repairer, data_spec), targets_of(repairer, data_spec).values()
    gap, rounded_gap = (_gap(report, of, asked) for report in (drawn.report, proof.after))
    rounded = _accuracy(held.table, held.shipped.repaired)
    right = drawn.accuracy
    accuracy = "" if math.isnan(right) else f", accuracy {rounded:.4f} instead of {right:.4f}"
    yield Note(
        f"without randomization, on held-out rows: {of.id} {rounded_gap:.4f} instead of {gap:.4f}{accuracy}",
        "rounded",
    )


def cost_of_blindness(
    repairer: Repairer, held: RepairedRows, report: Audit, settings: Settings
) -> Iterator[Note]:
    """Yield what a rule that does not look at the group costs against the same repair with one that does.

    ``report``: an audit of the held-out rows under the rule, with its decisions drawn.
    """
    trace = held.rule.trace
    if trace.aware is None or trace.base is None or held.table.rows.label is None:
        return
    aware = RepairedRows(held.table, trace.aware)
    of = criterion_of(repairer, held.table.data_spec)
    if (lost := np.isnan(aware.predicted)).any():
        held, aware = (one.take(np.flatnonzero(~lost)) for one in (held, aware))
        report = _drawn(held.drawn_rule or held, of, settings).report
    table = held.table
    label, weight = table.labels, table.weight
    mean = float(np.average(label, weights=weight))
    shown = [held.predicted, aware.predicted, held.plain, np.full(len(table), mean)]
    losses = [loss_of_rows("log_loss", table.with_score(one)) for one in shown]
    if not (np.isfinite(losses).all() and len(table)):
        return
    own, seeing, free, constant = (float(np.average(loss, weights=weight)) for loss in losses)
    more = mean_of_rows(losses[0] - losses[1], table, settings.confidence, ANY)
    asked = targets_of(repairer, table.data_spec).values()
    seeing_report = _drawn(aware.drawn_rule or aware, of, settings).report  # rates of the probability
    gap, aware_gap = (_gap(one, of, asked) for one in (report, seeing_report))
    attribute = attribute_name(table.data_spec.columns.protected)
    yield from of_blindness(Blindness(attribute, of, own, seeing, more, free, constant, gap, aware_gap))


def _gap(report: Audit, of: Comparison, asked: Collection[ConstraintTarget]) -> float:
    """Return the worst value of a comparison, of the attributes that are ``asked`` for by name, or of all."""
    worst = min if of.worse == "smaller" else max
    every = (b.by_id for b in report.attributes if any(one.attribute in ("", b.attribute) for one in asked))
    return worst(own[of.id].point for own in every if of.id in own)


def _accuracy(table: Table, repaired: Table) -> float:
    """Return the expected accuracy of decisions; NaN without labels."""
    return expected_accuracy(table, repaired.decisions) if table.data_spec.binary else math.nan


def targets_of(repairer: Repairer, data_spec: DataSpec) -> dict[tuple[str, ...], ConstraintTarget]:
    """Return what is bounded between the groups of each attribute, by its columns; with its name where not alone."""
    every = repairer.constrained_attributes(data_spec.columns.protected)
    bound = ConstraintTarget(
        criterion_of(repairer, data_spec), repairer.shared_slack, repairer.parsed_constraint.least
    )
    named = {columns: replace(bound, attribute=attribute_name(columns)) for columns in every}
    return named if len(every) > 1 else dict.fromkeys(every, bound)


def comparisons_of(repairer: Repairer, data_spec: DataSpec) -> tuple[str, ...]:
    """Return the comparisons that tell of what is bounded: of true groups too, where these are held."""
    of = criterion_of(repairer, data_spec)
    return (of.id, of.to(TRUE_GROUPS).id) if "noise" in repairer.uses else (of.id,)


def repair_warnings(
    repairer: Repairer,
    fitted: RepairedRows,
    held: RepairedRows,
    shown: tuple[RepairEffects, RepairEffects],
    drawn: DrawnRule | None,
    learn: Callable[[Bools], RepairedPredictor] | None,
) -> Iterator[Caution]:
    """Yield the warnings about a repair, by its evaluations on training rows and on held-out rows."""
    predictor, data_spec = held.rule, held.table.data_spec
    asked = targets_of(repairer, data_spec)
    if "noise" in repairer.uses:  # of true groups, as far as anything is known of them
        asked = {
            columns: replace(one, comparison=one.comparison.to(TRUE_GROUPS)) for columns, one in asked.items()
        }
    of = criterion_of(repairer, data_spec)
    on_fit, on_held = (
        {columns: proof.pair_of(one.comparison.id, attribute_name(columns)) for columns, one in asked.items()}
        for proof in shown
    )
    for columns, one in asked.items():
        fit, holdout = on_fit[columns], on_held[columns]
        if holdout is None or fit is None or drawn is None:
            continue
        step = one_row(fitted.table, fitted.table.groups(columns), of.metric)
        if one.is_ratio:  # of rates up to the greatest, which a row moves as it does the least
            block = shown[0].after.block(attribute_name(columns))
            rates = [group.metrics[of.metric].point for group in block.groups]
            step *= 2 / max(rates) if max(rates) > 0 else math.inf
        yield from of_rounding(one, fit[1], *holdout, step, _gap(drawn.report, of, [one]))
    parts = [rows.shipped[:2] for rows in (fitted, held)]
    own = [note for note in predictor.trace.notes if isinstance(note, Caution) and note.code == "selection"]
    same = list(of_constant(*parts, decides=False)) if predictor.gives == "value" else []
    if not (same or own) and parts[1][1].chance is not None:
        same = list(of_constant(*parts, decides=True))
    yield from same or own  # who knows why says it
    for columns, one in asked.items():
        if (holdout := on_held[columns]) is not None:
            yield from of_gaps(one, *holdout)
    yield from of_levelling(*parts[1], shown[1].after.settings.confidence)
    by_row = fitted.table.rows.entries is None
    one_draw = by_row and shown[0].shown.randomized and predictor.gives != "decision"
    for columns, one in asked.items():
        fit = on_fit[columns]
        if fit is not None and not one_draw and drawn is None and "noise" not in repairer.uses:
            yield from of_slack(one, fit[1].point)
    if not same and not own:
        for row in shown[1].shown.table:
            if row.id == "selection_rate":
                at_a_rate = repairer.parameters.get("rho") == "joint" and of.metric == "selection_rate"
                yield from of_selection(row, at_a_rate=at_a_rate)
    if learn is not None:
        unit = "the decisions" if _decided(predictor, held.table) else "the square loss"
        yield from of_small_groups(of.metric, fitted.table, held, learn, _cost, unit)


def _decided(predictor: RepairedPredictor, held: Table) -> bool:
    """Whether a repair is judged by right decisions; else by its values."""
    return held.data_spec.binary and (predictor.gives == "decision" or predictor.is_probability)


def _cost(rows: RepairedRows) -> float:
    """Return what a repair costs rows: accuracy, or the rise of the square loss as a share of it."""
    base, repaired, _ = rows.shipped
    if _decided(rows.rule, rows.table):
        return _accuracy(base, base) - _accuracy(base, repaired)
    if rows.table.rows.label is None or base.data_spec.score_scale == "raw":
        return math.nan
    losses = (loss_of_rows("square_loss", one) for one in (base, repaired))
    loss, left = (float(np.average(one, weights=rows.table.rows.weight)) for one in losses)
    return (left - loss) / loss if loss > 0 else math.nan


MANY_EQUAL = 0.05
"""Least fraction of the randomized rows that equal another row for a warning."""


def ties(parts: Sequence[RepairedRows]) -> Iterator[Note]:
    """Yield what is to be said where nothing, or an id that repeats, tells rows apart whose result is drawn.

    ``parts``: all rows, in several parts.
    """
    data_spec, draws = parts[0].table.data_spec, [one.table.draw for one in parts]
    name = data_spec.columns.id
    if any(one is None for one in draws) or not parts[0].rule.randomized:
        return
    many = sum(int(np.count_nonzero(one.drawn)) for one in parts)
    drawn = [
        own.take(np.flatnonzero(one.drawn))
        for one, own in zip(parts, draws, strict=True)
        if isinstance(own, RowDraws)
    ]
    alike = drawn[0].repeated(drawn[1:]) if len(drawn) == len(parts) else 0
    if name is None and alike:
        remedy = "name an ID column with `id`"
        if data_spec.columns.count:
            remedy = f"leave out `count`, give one row per person, and {remedy}"
        kind = Caution if alike >= MANY_EQUAL * many else Note
        yield kind(
            f"rows have no ID: {alike:,} of the {many:,} rows with a randomized result equal another row in every "
            "column that the rule reads. Within one file, row order determines their results, as in this evaluation. "
            f"Predicted one at a time, they all get the same result. To randomize for each person, {remedy}",
            "equal_rows",
        )
    if name is not None and name in parts[0].table.features.column_names:
        ids = [chunk for one in parts for chunk in one.table.features.column(name).chunks]
        again = texts_of(pa.chunked_array(ids).combine_chunks()).to_pandas().duplicated(keep=False).to_numpy()
        both = np.concatenate([one.drawn for one in parts]) & again
        yield from of_shared_ids(name, int(np.count_nonzero(both)), many)
