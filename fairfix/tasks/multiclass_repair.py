"""Repair of labels of many classes: fit, and prove on held-out rows what became of the classes.

The proof is the audit of classes, before and after. Before are the predictions that came with the rows, or else those
of a plain model of the same features.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from fairfix.auditing.audit import More
from fairfix.auditing.comparisons import CLASS_GAPS, Comparison
from fairfix.auditing.multiclass import CHANGES, audit_classes, require_measured
from fairfix.auditing.results import Settings
from fairfix.auditing.row_differences import SHARE, between_limits, mean_change
from fairfix.data.classes import classes_of_rows
from fairfix.data.counts import Floats, Ints
from fairfix.data.data_spec import ColumnRoles
from fairfix.data.files import open_source
from fairfix.data.names import few
from fairfix.data.table import Table
from fairfix.errors import UsageError
from fairfix.individual.counterfactual_consistency import of_predicted_classes
from fairfix.individual.counterfactuals import Counterfactuals
from fairfix.individual.similar import Comparable
from fairfix.methods import available
from fairfix.methods.base import Repairer
from fairfix.methods.problem import RepairProblem
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.trace import Caution, Note, messages
from fairfix.schema import common
from fairfix.schema.audit import Audit
from fairfix.schema.common import estimate
from fairfix.schema.repair import ClassGap, Evaluation
from fairfix.tasks.before_after import Assessment, RepairEffects, changed, comparison_rows
from fairfix.tasks.repaired_rows import RepairedRows
from fairfix.tasks.warnings import ConstraintTarget, of_gaps, of_slack

GAPS = tuple(name for name in CLASS_GAPS if not name.startswith("false_positive_rate"))
"""Gaps over all classes that the table shows: of rates of a class among all, and among those who are of it."""

SHOWN = (*GAPS, "accuracy.min", *CHANGES)
"""Comparisons that the table shows for every attribute."""

NOT_ASKED = estimate(
    math.nan, 0.0, 1.0, "predictions in the data do not show what their model predicts for changed rows"
)


def check_knows_classes(repairer: Repairer) -> None:
    """Raise a UsageError where a method, or its solver, repairs no labels of many classes."""
    solver = repairer.effective_solver
    if "multiclass" in (solver.tasks or repairer.tasks):
        return
    ways = [
        f"`method={name}` with {' or '.join(_solvers(method))}"
        for name, method in available().items()
        if "multiclass" in method.tasks
    ]
    this = f"`method={repairer.name}`" + (f" with {solver.option}" if solver.option else "")
    raise UsageError(
        f"`task=multiclass`: {this} repairs two classes; use {' or '.join(ways)}, or name one class with "
        "`label=COLUMN=VALUE` instead of the task, and all others will be negative"
    )


def _solvers(method: type[Repairer]) -> list[str]:
    return [one.option for one in method.solvers.values() if "multiclass" in (one.tasks or method.tasks)]


def check_measured(repairer: Repairer, settings: Settings, copies: Counterfactuals | None) -> None:
    """Raise a UsageError for a check of a metric that repairs of classes lack."""
    of_copies = CHANGES[-1:] if copies is not None else ()
    require_measured(settings.checks, (*CHANGES[1 : -1 if repairer.comparable_values else 2], *of_copies))


def strata_of_classes(table: Table) -> Ints:
    """Return the stratum of each row in a split, shape (n,): its groups and its label."""
    columns = table.data_spec.columns
    return table.groups((*columns.protected, columns.classes[0])).codes


def accuracy_of_classes(table: Table, predictor: RepairedPredictor) -> float:
    """Return the weighted fraction of rows that are predicted their class."""
    right = _same(_named(predictor, predictor.predict(table)), _labels(table))
    return float(np.average(right, weights=table.weight))


def assess_classes(
    held: Table,
    problem: RepairProblem,
    repairer: Repairer,
    predictor: RepairedPredictor,
    caught: Sequence[Note],
    settings: Settings,
) -> Assessment:
    """Evaluate a repair of classes, and collect its messages."""
    kept, fitted = RepairedRows(held, predictor), RepairedRows(problem.table, predictor)
    of_what: Any = {"comparable": repairer.comparable_values, "copies": problem.copies}
    proof = evaluate_classes(kept, settings, **of_what)
    of_fit = evaluate_classes(fitted, replace(settings, checks=()), of_fit=True, **of_what)
    asked = ConstraintTarget(
        Comparison.parse(repairer.bounded_comparison(held.data_spec)), repairer.shared_slack
    )
    notes = [*_doubts(asked, kept, of_fit, proof), *caught, *predictor.trace.notes]
    return Assessment(of_fit, proof, messages(notes), kept)


def _named(predictor: RepairedPredictor, predicted: Floats) -> list[str]:
    """Return the predicted class of each row, by name."""
    return [predictor.classes[int(place)] for place in predicted]


def _labels(table: Table) -> list[str]:
    names, codes = classes_of_rows(table, table.data_spec.columns.classes[0], "label")
    return [names[code] for code in codes]


def _same(ones: Sequence[str], others: Sequence[str]) -> Floats:
    return np.array([one == other for one, other in zip(ones, others, strict=True)], dtype=np.float64)


def evaluate_classes(
    rows: RepairedRows,
    settings: Settings,
    *,
    comparable: Comparable,
    copies: Counterfactuals | None,
    of_fit: bool = False,
) -> RepairEffects:
    """Audit the classes before and after the repair on the same rows.

    ``settings``: intervals and checks; the checks are about the repaired classes. ``comparable``, ``copies``:
    differences that must not count, other than those of protected columns. ``of_fit``: whether these are the training
    rows.
    """
    table, predictor = rows.table, rows.rule
    own = table.data_spec.columns.classes
    plain = predictor.trace.known_base
    labels, after = _labels(table), _named(predictor, rows.predicted)
    came = len(own) > 1
    column = own[1] if came else "prediction"
    if came:
        names, codes = classes_of_rows(table, own[1], "prediction")
        before = [names[code] for code in codes]
    else:
        before = _named(plain, rows.plain)

    def changes(rule: RepairedPredictor, confidence: float) -> More:
        return of_predicted_classes(table, rule, comparable, confidence, copies)

    def pair(settings: Settings) -> tuple[Audit, Audit]:
        unchecked, confidence = replace(settings, checks=()), settings.confidence
        was = _audited(table, before, unchecked, None if came else changes(plain, confidence), column)
        return was, _audited(table, after, settings, changes(predictor, confidence))

    def change_by(name: str, block: common.Block, *_: common.Estimate) -> common.Estimate:
        """Return a change between the limits before and after, each at half the miscoverage."""
        return between_limits(*(one.block(block.attribute).by_id[name] for one in surer))

    surer = (
        pair(replace(settings, checks=(), confidence=(1.0 + settings.confidence) / 2.0)) if not of_fit else ()
    )
    was, now = pair(settings)
    gaps = comparison_rows(was, now, SHOWN, None if of_fit else change_by, NOT_ASKED)
    then_right, right = (_same(one, labels) for one in (before, after))
    change = mean_change(then_right, right, table, settings.confidence, SHARE)
    then, later = (one.overall.metrics["accuracy"] for one in (was, now))
    balanced = [one.balanced_accuracy for one in (was, now) if one.balanced_accuracy is not None]
    shown = Evaluation(
        rows=table.used,
        randomized=0.0,
        table=(changed("accuracy", then, later, change), *gaps),
        noise=(),
        people=(),
        classes=tuple(_gaps(was, now)),
        balanced_accuracy=common.BeforeAfter(before=balanced[0], after=balanced[1])
        if len(balanced) == 2
        else None,
    )
    return RepairEffects(shown, was, now, now.checks)


def _gaps(was: Audit, now: Audit) -> Iterator[ClassGap]:
    """Yield the gap in true positive rates of each class, by attribute."""
    name = "true_positive_rate.difference.between_groups"
    then = {(one.of_class, block.attribute): block.by_id for one in was.classes for block in one.attributes}
    for one in now.classes:
        for block in one.attributes:
            before = then.get((one.of_class, block.attribute), {})
            if name in block.by_id and name in before:
                yield ClassGap(
                    of_class=one.of_class,
                    attribute=block.attribute,
                    before=before[name].alone,
                    after=block.by_id[name].alone,
                )


def _audited(
    table: Table, predicted: Sequence[str], settings: Settings, more: More | None, column: str = "prediction"
) -> Audit:
    """Return the audit of classes that rows are predicted; ``column``: the name of their column, for messages."""
    data_spec = table.data_spec
    own = data_spec.columns
    label, groups = own.classes[0], (*own.strata, *own.protected)
    name = column
    while name in (label, *groups):
        name += "_"
    columns: dict[str, Any] = {label: _labels(table), name: list(predicted), f"{name} weight": table.weight}
    for key in groups:
        one = table.groups([key])
        columns[key] = [one.levels[code][0] for code in one.codes]
    source = open_source(pa.table(columns))
    weight = f"{name} weight" if table.weighted else None
    read = replace(
        data_spec,
        columns=ColumnRoles(own.protected, label=label, prediction=name, weight=weight, strata=own.strata),
        bands=dict.fromkeys(groups, ()),
        missing_group="group",
        missing_of={},
    )
    return audit_classes(source, read, settings, more)


def _doubts(
    asked: ConstraintTarget, held: RepairedRows, fit: RepairEffects, proof: RepairEffects
) -> Iterator[Note]:
    """Yield what comes first to say of a repair of classes."""
    predictor = held.rule
    constant = {*_named(predictor, held.predicted)}
    if len(constant) == 1:
        yield Caution(f"the repaired rule predicts {constant.pop()!r} for all held-out rows", "constant")
    attribute = proof.after.attributes[-1].attribute
    if (judged := proof.pair_of(asked.comparison.id, attribute)) is not None:
        yield from of_gaps(asked, *judged)
    if (fitted := fit.pair_of(asked.comparison.id, attribute)) is not None:
        yield from of_slack(asked, fitted[1].point)
    labels = {*_labels(held.table)}
    if new := sorted(labels - {*predictor.classes}):
        yield Caution(
            "some labels of held-out rows are missing in the training rows, so they are never predicted: "
            f"{few(new)}; their rows count as wrong",
            "unknown_classes",
        )
