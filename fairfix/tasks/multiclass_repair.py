"""Repair of labels of many classes: fit, and prove on held-out rows what became of the classes.

The proof is the audit of classes, before and after. Before are the predictions that came with the rows, or else those
of a plain model of the same features.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from fairfix.auditing.audit import More
from fairfix.auditing.comparisons import CLASS_SCOPES, Comparison
from fairfix.auditing.metrics import CLASS_METRICS
from fairfix.auditing.multiclass import CHANGES, ClassesReport, audit_classes, require_measured
from fairfix.auditing.results import AuditReport, Settings, Value
from fairfix.auditing.row_differences import SHARE, PairedDifference, between_limits
from fairfix.data.classes import classes_of_rows
from fairfix.data.counts import Ints
from fairfix.data.files import open_source
from fairfix.data.reading import Columns
from fairfix.data.table import Table
from fairfix.errors import DataError, UsageError
from fairfix.individual.counterfactual_consistency import of_predicted_classes
from fairfix.individual.counterfactuals import Counterfactuals
from fairfix.individual.similar import Comparable
from fairfix.methods import available
from fairfix.methods.base import Repairer
from fairfix.methods.problem import RepairProblem
from fairfix.methods.sensei import with_counterfactuals
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.trace import Caution, Note, messages
from fairfix.tasks.before_after import BeforeAfter, MetricChange
from fairfix.tasks.fit_and_evaluate import Outcome, fit_again, recorded, select, variants_of, warned
from fairfix.tasks.guarantee import guarantee_problem
from fairfix.tasks.messages import of_names
from fairfix.tasks.row_split import check_split, split_rows
from fairfix.tasks.warnings import ConstraintTarget, of_gaps, of_slack

GAPS = tuple(
    Comparison(metric, "difference", scope).id
    for metric in CLASS_METRICS
    if metric != "false_positive_rate"
    for scope in CLASS_SCOPES
)
"""Gaps over all classes that the table shows: of rates of a class among all, and among those who are of it."""

SHOWN = (*GAPS, "accuracy.min", *CHANGES)
"""Comparisons that the table shows for every attribute."""

NOT_ASKED = "predictions in the data do not show what their model predicts for changed rows"

OF_FIT = "no interval for this change: the rule was fitted to these rows"


@dataclass(frozen=True)
class ClassMetricChange:
    """The gap in true positive rates of a class, before and after the repair, between the groups of an attribute."""

    of_class: str
    attribute: str
    before: Value
    after: Value


@dataclass(frozen=True)
class ClassesBeforeAfter(BeforeAfter):
    """Effects of a repair on some rows with labels of many classes."""

    audits: tuple[ClassesReport, ...] = ()
    """Before and after."""

    @property
    def gaps(self) -> tuple[ClassMetricChange, ...]:
        """The gap of each class, by attribute."""
        before, after = self.audits
        name = "true_positive_rate.difference.between_groups"
        return tuple(
            ClassMetricChange(
                own,
                block.attribute,
                was.block(block.attribute).comparisons[name].value,
                block.comparisons[name].value,
            )
            for own, was in before.classes.items()
            if own in after.classes
            for block in after.classes[own].blocks
            if name in block.comparisons and name in was.block(block.attribute).comparisons
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


def repair_classes(
    table: Table,
    repairer: Repairer,
    *,
    choices: Mapping[str, tuple[Any, ...]],
    settings: Settings,
    seed: int,
    validation: float,
    holdout: float,
    copies: Counterfactuals | None,
    guarantee: float | None = None,
    **learned: Any,
) -> Outcome:
    """Split, select, fit and prove; ``learned`` are further fields of a problem, as its class has them.

    The first column of classes of the table's reading is the label, the second, if there is one, what was predicted.
    ``guarantee``: with which confidence the slack is to hold for people who are not among the rows, or None.
    """
    settings = replace(settings, intersect=len(table.reading.columns.protected) > 1)
    of_copies = CHANGES[-1:] if copies is not None else ()
    require_measured(settings.checks, (*CHANGES[1 : -1 if repairer.comparable_values else 2], *of_copies))
    repairer = repairer if copies is None else with_counterfactuals(repairer)
    learned["protected_as_feature"] = repairer.protected_as_feature
    split_rng, fit_rng = np.random.default_rng(seed).spawn(2)
    columns, promise = table.reading.columns, None
    parted = table.groups((*columns.protected, columns.classes[0])).codes
    if guarantee is not None:
        bounded = repairer.bounded_comparison(table.reading)
        promise = guarantee_problem(repairer, guarantee, table, bounded, learned.get("features"))
        parted = promise.strata
    shares = {"validation": validation if choices else 0.0, "holdout": holdout}
    split = split_rows(table, split_rng, **shares, alike=parted)
    check_split(table, split)
    if choices and not split.validation.size:
        raise DataError(
            f"`validation={validation:g}` of {len(table):,} rows leaves no rows to choose among values of "
            f"`{next(iter(choices))}`; raise `validation`, or give one value"
        )
    fitted = table.take(np.sort(np.concatenate([split.fit, split.validation])))
    with recorded() as caught:
        problem = RepairProblem(table.take(split.fit), copies=copies, many_fits=bool(choices), **learned)
        validated = table.take(split.validation)
        best, selection = select(
            variants_of(repairer, choices),
            choices,
            lambda one: float(
                np.average(_right(validated, one.fit(problem, rng=fit_rng)), weights=validated.weight)
            ),
        )
        if choices:
            problem = RepairProblem(fitted, copies=copies, **learned)
        if promise is None:
            made, predictor = best, best.fit(problem, rng=fit_rng)
        else:
            promise = replace(promise, repairer=best)
            fit = partial(fit_again, problem, fit_rng.spawn(1)[0])
            made, predictor = promise.fitted(fit, fitted, split.holdout)
    kept = table.take(split.holdout)
    of_what: Any = {"comparable": best.comparable_values, "copies": copies}
    proof = evaluate_classes(kept, predictor, settings, **of_what)
    of_fit = evaluate_classes(fitted, predictor, replace(settings, checks=()), of_fit=True, **of_what)
    asked = ConstraintTarget(best.bounded_comparison(table.reading), best.shared_slack)
    doubts = _doubts(asked, predictor, kept, of_fit, proof)
    names = of_names(table.level_rows, table.reading)
    notes = [*names, *doubts, *warned(caught), *predictor.trace.notes]
    promised = None if promise is None else promise.judged(made, predictor, fitted, kept)
    if promised is not None:
        notes = [*promised.messages, *notes]
    facts = messages(notes), table.reading, (), promised, "" if copies is None else copies.source
    return Outcome(best, predictor, split, split.sizes, selection, of_fit, proof, *facts)


def _named(table: Table, predictor: RepairedPredictor) -> list[str]:
    """Return the predicted class of each row, by name."""
    return [predictor.classes[int(place)] for place in predictor.predict(table)]


def _labels(table: Table) -> list[str]:
    names, codes = classes_of_rows(table, table.reading.columns.classes[0], "label")
    return [names[code] for code in codes]


def _right(table: Table, predictor: RepairedPredictor) -> Ints:
    """Return which rows are predicted their class, shape (n,)."""
    return _same(_named(table, predictor), _labels(table))


def _same(ones: Sequence[str], others: Sequence[str]) -> Ints:
    return np.array([one == other for one, other in zip(ones, others, strict=True)], dtype=np.int64)


def evaluate_classes(
    table: Table,
    predictor: RepairedPredictor,
    settings: Settings,
    *,
    comparable: Comparable,
    copies: Counterfactuals | None,
    of_fit: bool = False,
) -> ClassesBeforeAfter:
    """Audit the classes before and after the repair on the same rows.

    ``settings``: intervals and checks; the checks are about the repaired classes. ``comparable``, ``copies``:
    differences that must not count, other than those of protected columns. ``of_fit``: whether these are the training
    rows.
    """
    own = table.reading.columns.classes
    plain = predictor.trace.base
    assert plain is not None
    labels, after = _labels(table), _named(table, predictor)
    came = len(own) > 1
    column = own[1] if came else "prediction"
    if came:
        names, codes = classes_of_rows(table, own[1], "prediction")
        before = [names[code] for code in codes]
    else:
        before = _named(table, plain)

    def changes(rule: RepairedPredictor, confidence: float) -> More:
        return of_predicted_classes(table, rule, comparable, confidence, copies)

    def pair(confidence: float) -> tuple[ClassesReport, ClassesReport]:
        alone = replace(settings, checks=(), confidence=confidence)
        was = None if came else changes(plain, confidence)
        return _audited(table, before, alone, was, column), _audited(
            table, after, alone, changes(predictor, confidence)
        )

    surer = None if of_fit else pair((1.0 + settings.confidence) / 2.0)
    more = None if came else changes(plain, settings.confidence)
    was = _audited(table, before, replace(settings, checks=()), more, column)
    now = _audited(table, after, settings, changes(predictor, settings.confidence))
    then_right, right = (_same(one, labels).astype(np.float64) for one in (before, after))
    change = PairedDifference(then_right, right, table).mean(settings.confidence, SHARE)
    then, later = (report.everybody.overall.metrics["accuracy"] for report in (was, now))
    rows = [MetricChange("accuracy", then, later, change), *_rows(was.everybody, now.everybody, surer)]
    return ClassesBeforeAfter(table.used, 0.0, tuple(rows), now.everybody, drawn=False, audits=(was, now))


def _audited(
    table: Table, predicted: Sequence[str], settings: Settings, more: More | None, column: str = "prediction"
) -> ClassesReport:
    """Return the audit of classes that rows are predicted; ``column``: the name of their column, for messages."""
    reading = table.reading
    own = reading.columns
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
        reading,
        columns=Columns(own.protected, label=label, prediction=name, weight=weight, strata=own.strata),
        bands=dict.fromkeys(groups, ()),
        missing_group="group",
        missing_of={},
    )
    return audit_classes(source, read, settings, more)


def _rows(
    was: AuditReport, now: AuditReport, surer: tuple[ClassesReport, ClassesReport] | None
) -> Iterator[MetricChange]:
    """Yield comparisons before and after.

    A change is between the limits of the one before and of the one after, each at half the miscoverage (``surer``):
    wide, and valid however the two depend on each other. Without, rows are training rows, and changes have no limits.
    """
    for block in now.blocks:
        other = was.block(block.attribute)
        for name in SHOWN if not block.stratum else ():
            if name not in block.comparisons:
                continue
            after = block.comparisons[name].value
            if name not in other.comparisons:
                yield MetricChange(name, Value(math.nan, 0.0, 1.0, NOT_ASKED), after, None, block.attribute)
                continue
            before = other.comparisons[name].value
            value, change = after.value - before.value, None
            if not math.isnan(value) and surer is None:
                change = Value(value, math.nan, math.nan, OF_FIT)
            elif not math.isnan(value):
                assert surer is not None
                sure = (report.everybody.block(block.attribute).comparisons[name].value for report in surer)
                change = replace(between_limits(*sure), value=value)
            yield MetricChange(name, before, after, change, block.attribute)


def _doubts(
    asked: ConstraintTarget,
    predictor: RepairedPredictor,
    held: Table,
    fit: ClassesBeforeAfter,
    proof: ClassesBeforeAfter,
) -> Iterator[Note]:
    """Yield what comes first to say of a repair of classes."""
    constant = {*_named(held, predictor)}
    if len(constant) == 1:
        yield Caution(f"the repaired rule predicts {constant.pop()!r} for all held-out rows", "constant")
    attribute = [block.attribute for block in proof.after.blocks if not block.stratum][-1]

    def row(of: ClassesBeforeAfter) -> MetricChange | None:
        wanted = asked.comparison, attribute
        return next((one for one in of.table if (one.id, one.attribute) == wanted), None)

    fitted, judged = row(fit), row(proof)
    if judged is not None and not math.isnan(judged.before.value):
        yield from of_gaps(asked, judged.before, judged.after)
    if fitted is not None:
        yield from of_slack(asked, fitted.after.value)
    labels = {*_labels(held)}
    if new := sorted(labels - {*predictor.classes}):
        shown = ", ".join(map(repr, new[:3])) + (f" and {len(new) - 3} more" if len(new) > 3 else "")
        yield Caution(
            "some labels of held-out rows are missing in the training rows, so they are never predicted: "
            f"{shown}; their rows "
            "count as wrong",
            "unknown_classes",
        )
