"""The audit of a label of many classes: every class against the rest, and the gaps over all of them.

One scan counts every class (:mod:`fairfix.data.classes`); of each the audit of two classes is made, with intervals that
hold for all classes at once: the miscoverage is divided by their number. Class gaps are means of numbers that these
intervals hold together, and they grow with each of them, so the means of the lower and of the upper ends are limits
with the same confidence, however the classes depend on one another.

References
----------
Yurochkin and Sun (2021), SenSeI, ICLR: the root mean square and the mean of the gaps in true positive rates, over the
classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from msgspec.structs import replace as replace_fields

from fairfix.auditing.audit import More, check_results, judge
from fairfix.auditing.checks import Check, worst
from fairfix.auditing.comparisons import CLASS_SCOPES, Comparison
from fairfix.auditing.metrics import CLASS_METRICS, METRICS
from fairfix.auditing.result_structs import (
    audit_fields,
    block_structs,
    check_struct,
    comparison_ids,
    definitions,
    estimate,
    group_struct,
)
from fairfix.auditing.results import AuditReport, Block, CheckResult, ComparisonReport, Settings, Value
from fairfix.auditing.suppression import shown_rows, tables_of
from fairfix.data.classes import Classes, of_classes
from fairfix.data.files import Source
from fairfix.data.reading import Reading
from fairfix.data.scan import scan
from fairfix.errors import UsageError
from fairfix.schema import classes as schema
from fairfix.schema import common

OF_CLASSES = frozenset(("label", "decision"))
"""Most that metrics of classes need from the data."""

FLIPS = "decision_flips.under_counterfactuals"
"""Metric of all classes where people have copies: another class than some copy."""

CHANGES = (
    FLIPS,
    "decision_flips.under_flips",
    "decision_flips.under_comparable",
    "decision_flips.under_everybody",
    "class_distance.under_counterfactuals",
)
"""Metrics of people who were changed in what must not count: another class than before, and last how far the
probabilities of classes move."""

ACCURACY = "accuracy"
"""Metric of all classes together: a prediction is right, or it is not."""


@dataclass(frozen=True)
class ClassesReport:
    """An audit of many classes."""

    everybody: AuditReport
    """Accuracy and gaps of all classes together, with their checks."""
    classes: Mapping[str, AuditReport]
    """Class -> its audit against the rest, at the confidence that holds for all at once."""
    balanced_accuracy: Value | None
    """Mean over the classes of the overall true positive rate; None without labels."""
    never_true: tuple[str, ...] = ()
    """Classes that are predicted, and no row's label."""

    @property
    def checks(self) -> tuple[tuple[str, CheckResult], ...]:
        """Every judged check with its class; that of all classes is empty."""
        together = [("", one) for one in self.everybody.checks]
        return (*together, *((name, one) for name, of in self.classes.items() for one in of.checks))

    @property
    def verdict(self) -> common.Verdict | None:
        """The worst verdict of the checks; None when nothing was gated."""
        return worst(result.verdict for _, result in self.checks)


def require_measured(checks: Iterable[Check], measured: Iterable[str]) -> None:
    """Raise a UsageError for a check of a metric that classes lack; ``measured``: those that they have beyond rates."""
    of_changes = [name for name in dict.fromkeys(measured) if name != FLIPS]
    for check in checks:
        own = check.comparison
        if not {*own.entry.needs} <= OF_CLASSES and own.id not in (FLIPS, *of_changes):
            there = [name for name, one in METRICS.items() if {*one.needs} <= OF_CLASSES]
            there += [*of_changes, f"{FLIPS} with `similar=FILE`"]
            raise UsageError(
                f"check {check.text!r}: classes have predictions alone, and {own.id} needs more; use "
                f"{', '.join(there[:-1])} or {there[-1]}"
            )


def audit_classes(
    source: Source, reading: Reading, settings: Settings, more: More | None = None
) -> ClassesReport:
    """Audit predictions of many classes.

    Parameters
    ----------
    source
        The rows.
    reading
        Its ``prediction`` column names the predicted class, its ``label`` column, if there is one, the true one.
    settings
        Checks of accuracy are of all classes, those of :data:`~fairfix.auditing.comparisons.CLASS_SCOPES` of their
        gaps; any other is judged for each class.
    more
        Comparisons of all classes together that were made elsewhere, by attribute.

    Raises
    ------
    DataError, UsageError
        The data or the question does not fit; the message names column, value and remedy.
    """
    require_measured(settings.checks, (one.id for each in (more or {}).values() for one in each))
    if settings.suppress_below:
        tables = tables_of(reading.columns, intersect=settings.intersect)
        source = shown_rows(source, of_classes(reading), tables, settings.suppress_below)
    counted = scan(source, of_classes(reading))
    table = Classes.of(counted.counts, reading)
    together = tuple(check for check in settings.checks if of_all(check))
    single = replace(
        settings,
        confidence=1.0 - (1.0 - settings.confidence) / len(table.names),
        checks=tuple(check for check in settings.checks if check not in together),
    )
    classes = {name: judge(table.against_rest(name), single, source.name, None) for name in table.names}
    everybody = judge(table.right(), replace(settings, checks=()), source.name, None, more)
    blocks = tuple(
        _with_gaps(_accuracy_alone(block), () if block.stratum else tuple(_gaps(block.attribute, classes)))
        for block in everybody.blocks
    )
    one, protected = next(iter(classes.values())), reading.columns.protected
    missing = {name: why for name, why in one.not_computed.items() if {*METRICS[name].needs} <= OF_CLASSES}
    checks = check_results(
        replace(settings, checks=together),
        [block for block in blocks if not block.stratum],
        missing,
        {name: (name,) if name in protected else protected for name in one.left_out},
    )
    overall = everybody.overall
    return ClassesReport(
        replace(
            everybody,
            overall=replace(overall, metrics=_of_accuracy(overall.metrics)),
            blocks=blocks,
            not_computed=missing,
            checks=tuple(checks),
        ),
        classes,
        None if table.truth is None else _balanced_accuracy(table, classes),
        table.never_true,
    )


def of_all(check: Check) -> bool:
    """Tell whether a check is about all classes together."""
    return check.comparison.metric == ACCURACY or check.comparison.of_classes or _of_changes(check)


def _of_changes(check: Check) -> bool:
    return check.comparison.id in CHANGES


def _of_accuracy(metrics: Mapping[str, Value]) -> dict[str, Value]:
    return {name: value for name, value in metrics.items() if name == ACCURACY}


def _accuracy_alone(block: Block) -> Block:
    """Return a block without the rates that mean nothing where all labels are said to be positive."""
    ours = {name for name in block.comparisons if Comparison.parse(name).metric == ACCURACY} | {*CHANGES}
    kept = {name: one for name, one in block.comparisons.items() if name in ours}
    groups = tuple(replace(group, metrics=_of_accuracy(group.metrics)) for group in block.groups)
    return replace(block, groups=groups, comparisons=kept)


def _with_gaps(block: Block, gaps: Sequence[ComparisonReport]) -> Block:
    return replace(block, comparisons={**{one.id: one for one in gaps}, **block.comparisons})


def _gaps(attribute: str, classes: Mapping[str, AuditReport]) -> Iterator[ComparisonReport]:
    """Yield the class gaps of an attribute."""
    for metric in CLASS_METRICS:
        name = Comparison(metric, "difference", "between_groups").id
        gaps = {k: of.block(attribute).comparisons.get(name) for k, of in classes.items()}
        each = {k: gap for k, gap in gaps.items() if gap is not None}
        for scope in CLASS_SCOPES if each else ():
            yield _gap(Comparison(metric, "difference", scope), each)


def _gap(of: Comparison, each: Mapping[str, ComparisonReport]) -> ComparisonReport:
    """Return a mean of the gaps of classes; ``each`` are differences of shares, of at most 1."""
    power = 2 if of.scope == CLASS_SCOPES[0] else 1

    def mean(numbers: Sequence[float]) -> float:
        return float(np.mean(np.power(numbers, power)) ** (1 / power)) if numbers else math.nan

    gaps = [one.value for one in each.values()]
    # what nothing is known of can be as small and as large as shares can differ
    low = mean([0.0 if math.isnan(gap.value) else gap.low for gap in gaps])
    high = mean([1.0 if math.isnan(gap.value) else gap.high for gap in gaps])
    defined = {k: one for k, one in each.items() if not math.isnan(one.value.value)}
    partial = tuple(k for k, one in each.items() if one.undefined or k not in defined)
    top = max(defined, key=lambda k: defined[k].value.value, default="")
    rest = "over the rest; " if defined else ""
    reason = f"{rest}undefined for some group in {_listed(partial)}" if partial else ""
    value = Value(mean([one.value.value for one in defined.values()]), low, high, reason)
    return ComparisonReport(of.id, value, (), partial, of_class=top)


LISTED = 5
"""Classes that a reason names, at most."""


def _listed(names: Sequence[str]) -> str:
    """Return some names, and how many more there are."""
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


def _balanced_accuracy(table: Classes, classes: Mapping[str, AuditReport]) -> Value:
    """Return the mean of the overall true positive rates, over the classes that are some row's label.

    Its limits are the means of theirs, which hold together.
    """
    rates = [
        of.overall.metrics["true_positive_rate"] for k, of in classes.items() if k not in table.never_true
    ]
    ends = np.array([(rate.value, rate.low, rate.high) for rate in rates])
    return Value(*ends.mean(axis=0).tolist())


def classes_struct(report: ClassesReport) -> schema.Classes:
    """Return the result of an audit of many classes."""
    reports = [report.everybody, *report.classes.values()]
    fields = audit_fields(report.everybody)
    settings = replace_fields(
        fields["settings"], task="multiclass", confidence_of_class=reports[-1].settings.confidence
    )
    used = {name for one in reports for name in comparison_ids(one)}
    used |= {result.check.comparison.id for _, result in report.checks}
    balanced = report.balanced_accuracy
    return schema.Classes(
        **{**fields, "settings": settings},
        verdict=report.verdict,
        checks=class_checks(report),
        definitions=definitions(used),
        balanced_accuracy=None if balanced is None else estimate(balanced),
        classes=tuple(_one_class(name, of) for name, of in report.classes.items()),
    )


def _one_class(name: str, report: AuditReport) -> schema.OneClass:
    attributes, strata = block_structs(report.blocks)
    return schema.OneClass(
        of_class=name, overall=group_struct(report.overall), attributes=attributes, strata=strata
    )


def class_checks(report: ClassesReport) -> tuple[common.Check, ...]:
    """Return every judged check, with its class."""
    gate_on = report.everybody.settings.gate_on
    return tuple(check_struct(result, gate_on, name) for name, result in report.checks)
