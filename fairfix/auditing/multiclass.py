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
from dataclasses import replace

import numpy as np
from msgspec.structs import replace as fields_replaced

from fairfix.auditing.audit import More, check_results, judge
from fairfix.auditing.baseline import COINCIDENCE, Allowance, coincidence, compare, is_alike, unlike
from fairfix.auditing.checks import Check, worst
from fairfix.auditing.comparisons import CLASS_GAPS, CLASS_SCOPES, Comparison
from fairfix.auditing.metrics import CLASS_METRICS, METRICS
from fairfix.auditing.results import Settings, definitions, in_class
from fairfix.auditing.suppression import shown_rows, tables_of
from fairfix.data.choices import GateOn
from fairfix.data.classes import ClassCounts, of_classes
from fairfix.data.data_spec import DataSpec
from fairfix.data.files import Source
from fairfix.data.names import few
from fairfix.data.scan import scan
from fairfix.errors import UsageError
from fairfix.schema import common
from fairfix.schema.audit import Audit, OneClass
from fairfix.schema.common import Block, Estimate, Group, estimate, numbers
from fairfix.schema.common import SavedComparison as Compared

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


def audit_classes(source: Source, data_spec: DataSpec, settings: Settings, more: More | None = None) -> Audit:
    """Audit predictions of many classes.

    Parameters
    ----------
    source
        The rows.
    data_spec
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
        tables = tables_of(data_spec.columns, intersect=settings.intersect)
        source = shown_rows(source, of_classes(data_spec), tables, settings.suppress_below)
    counted = scan(source, of_classes(data_spec))
    table = ClassCounts.of(counted.counts, data_spec)
    together = tuple(check for check in settings.checks if of_all(check))
    single = replace(
        settings,
        confidence=1.0 - (1.0 - settings.confidence) / len(table.names),
        checks=tuple(check for check in settings.checks if check not in together),
    )
    classes = {name: judge(table.against_rest(name), single, source.name) for name in table.names}
    everybody = judge(table.right(), replace(settings, checks=()), source.name, source, more)
    attributes = tuple(
        _accuracy_alone(block, _gaps(block.attribute, classes)) for block in everybody.attributes
    )
    strata = tuple(map(_accuracy_alone, everybody.strata))
    one, protected = classes[table.names[0]], data_spec.columns.protected
    missing = tuple(item for item in one.not_computed if {*METRICS[item.metric].needs} <= OF_CLASSES)
    hidden = one.suppressed.left_out if one.suppressed else ()
    checks = (
        *check_results(
            replace(settings, checks=together),
            attributes,
            {item.metric: item.reason for item in missing},
            {name: (name,) if name in protected else protected for name in hidden},
            {},
        ),
        *(in_class(check, name) for name, own in classes.items() for check in own.checks),
    )
    out = fields_replaced(
        everybody,
        verdict=worst(check.verdict for check in checks),
        settings=fields_replaced(
            everybody.settings, task="multiclass", confidence_of_class=single.confidence
        ),
        checks=checks,
        overall=_of_accuracy(everybody.overall),
        attributes=attributes,
        strata=strata,
        not_computed=missing,
        classes=tuple(
            OneClass(of_class=name, overall=own.overall, attributes=own.attributes, strata=own.strata)
            for name, own in classes.items()
        ),
        balanced_accuracy=None if table.truth is None else _balanced_accuracy(table, classes),
    )
    every = (one.id for _, block in out.blocks for one in block.comparisons)
    return fields_replaced(out, definitions=definitions([*every, *(one.comparison for one in checks)]))


def of_all(check: Check) -> bool:
    """Tell whether a check is about all classes together."""
    of = check.comparison
    return of.metric == ACCURACY or of.of_classes or of.id in CHANGES


def _of_accuracy(group: Group) -> Group:
    return fields_replaced(group, metrics={k: one for k, one in group.metrics.items() if k == ACCURACY})


def _accuracy_alone(block: Block, gaps: Iterable[Compared] = ()) -> Block:
    """Return a block with class gaps, and without rates that mean nothing where all labels are said to be positive."""
    kept = tuple(
        one for one in block.comparisons if one.id in CHANGES or Comparison.parse(one.id).metric == ACCURACY
    )
    return fields_replaced(block, groups=tuple(map(_of_accuracy, block.groups)), comparisons=(*gaps, *kept))


def _gaps(attribute: str, classes: Mapping[str, Audit]) -> Iterator[Compared]:
    """Yield the class gaps of an attribute."""
    every = {k: own.block(attribute).by_id for k, own in classes.items()}
    for metric in CLASS_METRICS:
        name = Comparison(metric, "difference", "between_groups").id
        each = {k: own[name] for k, own in every.items() if name in own}
        for scope in CLASS_SCOPES if each else ():
            yield _gap(Comparison(metric, "difference", scope), each)


def _gap(of: Comparison, each: Mapping[str, Compared]) -> Compared:
    """Return a mean of the gaps of classes; ``each`` are differences of shares, of at most 1."""
    power = 2 if of.scope == CLASS_SCOPES[0] else 1

    def mean(numbers: Sequence[float]) -> float:
        return float(np.mean(np.power(numbers, power)) ** (1 / power)) if numbers else math.nan

    # what nothing is known of can be as small and as large as shares can differ
    low = mean([0.0 if gap.value is None else gap.lower for gap in each.values()])
    high = mean([1.0 if gap.value is None else gap.upper for gap in each.values()])
    defined = {k: one.value for k, one in each.items() if one.value is not None}
    partial = tuple(k for k, one in each.items() if one.undefined or k not in defined)
    rest = "over the rest; " if defined else ""
    reason = f"{rest}undefined for some group in {few(partial, LISTED, str)}" if partial else ""
    return Compared(
        id=of.id,
        **numbers(mean(list(defined.values())), low, high, reason),
        groups=(),
        undefined=partial,
        of_class=max(defined, key=defined.__getitem__, default=""),
    )


LISTED = 5
"""Classes that a reason names, at most."""


def _balanced_accuracy(table: ClassCounts, classes: Mapping[str, Audit]) -> Estimate:
    """Return the mean of the overall true positive rates, over the classes that are some row's label.

    Its limits are the means of theirs, which hold together.
    """
    rates = [
        of.overall.metrics["true_positive_rate"] for k, of in classes.items() if k not in table.never_true
    ]
    ends = np.array([(rate.point, rate.lower, rate.upper) for rate in rates])
    return estimate(*ends.mean(axis=0).tolist())


# ---------------------------------------------------------------------- changes


def compare_classes(
    old: Audit,
    new: Audit,
    allowances: Sequence[Allowance],
    usual: Sequence[str],
    gate_on: GateOn,
) -> tuple[common.Baseline, tuple[common.SavedCheck, ...]]:
    """Return the changes since a baseline, and the judged checks of changes, each with its class.

    Each class is compared as two audits of two classes are, by limits that hold for all classes at once in both; so do
    the limits of their changes. Arguments are those of :func:`fairfix.auditing.baseline.compare`. Where the classes are
    not the same, nothing can be compared: limits hold for all classes at once, and gaps are means over them.
    """
    then, names = ([one.of_class for one in result.classes] for result in (old, new))
    apart = unlike("classes", {*then}, {*names})
    pieces = [(one, new.part(one)) for one in ("", *names)]
    before = {
        one: fields_replaced(old.part(""), attributes=()) if apart else old.part(one) for one, _ in pieces
    }
    alike = not apart and all(is_alike(before[one], piece) for one, piece in pieces)
    # a sample that gives the same counts of all classes gives those of the class where that is least likely
    unchanged = alike and min(coincidence(piece) for one, piece in pieces if one) <= COINCIDENCE
    changes, incomparable, checks = (
        list[common.Change](),
        list[common.NotComparable](),
        list[common.SavedCheck](),
    )
    for name, piece in pieces:
        mine = [a for a in allowances if a.check is None or bool(name) != of_all(a.check)]
        asked = [one for one in usual if (Comparison.parse(one).metric == ACCURACY) != bool(name)]
        asked = asked if name else [*CLASS_GAPS, *asked]
        section, judged = compare(before[name], piece, mine, asked, gate_on, same=unchanged)
        changes += [in_class(one, name) for one in section.changes]
        incomparable += [
            in_class(fields_replaced(one, reason=apart or one.reason), name) for one in section.not_comparable
        ]
        checks += [
            in_class(fields_replaced(one, reason=f"not comparable: {apart}" if apart else one.reason), name)
            for one in judged
        ]
    section = fields_replaced(
        section,
        changes=tuple(changes),
        not_comparable=tuple(incomparable),
        allowed=tuple(one.text for one in allowances),
    )
    return section, tuple(checks)
