"""The sections of an audit of many classes: checks by their worst class, class gaps, and a table of all classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from msgspec.structs import replace as replace_fields

from fairfix.auditing.comparisons import CLASS_GAPS, CLASS_SCOPES, Comparison
from fairfix.auditing.metrics import CLASS_METRICS, METRICS
from fairfix.auditing.results import in_percent
from fairfix.data.names import few
from fairfix.report.answer import (
    NOT_CHECKED,
    ORDER,
    OTHERS,
    Stated,
    between_whom,
    beyond,
    judgement,
    statement,
)
from fairfix.report.audits import (
    GROUP,
    attribute_section,
    individual_sections,
)
from fairfix.report.layout import (
    MARKS,
    Columns,
    Section,
    TextTable,
    Verdict,
    class_of,
    interval,
    message_lines,
    show,
    titled,
)
from fairfix.report.verdicts import WORDS, in_numbers
from fairfix.schema.audit import Audit, OneClass
from fairfix.schema.common import Block, CheckedResult, SavedCheck
from fairfix.schema.common import SavedComparison as SavedComparison
from fairfix.schema.repair import Evaluation

FIRST = ("true_positive_rate", "selection_rate")
"""Comparisons whose gaps order the classes: the first that there is."""

MOST_ROWS = 30
"""Classes in a table without ``detail``."""

ACCURACIES = ("accuracy.difference.between_groups", "accuracy.ratio.between_groups", "accuracy.min")
"""Metrics of groups shown for all classes together."""

OF_A_CLASS = "Each class is compared with the rest: a positive decision is its prediction"


def gap_metrics(result: Audit) -> list[str]:
    """Return the metrics whose gaps classes have."""
    ids = {one.id for block in result.attributes for one in block.comparisons}
    return [name for name in CLASS_METRICS if Comparison(name, "difference", CLASS_SCOPES[0]).id in ids]


def gap_id(metric: str) -> str:
    """Return the name of the gap of one class."""
    return Comparison(metric, "difference", "between_groups").id


def gap_of(one: OneClass, attribute: str, metric: str) -> SavedComparison:
    """Return the gap of a class by an attribute."""
    block = next(block for block in one.attributes if block.attribute == attribute)
    return block.by_id[gap_id(metric)]


def by_gap(result: Audit, attribute: str, metric: str) -> Sequence[OneClass]:
    """Return the classes, that with the largest gap first and those without one last."""

    def rank(one: OneClass) -> float:
        value = gap_of(one, attribute, metric).value
        return 1.0 if value is None else -value

    return sorted(result.classes, key=rank)


def heading(result: Audit) -> Section:
    """Return the answer of an audit of many classes."""
    title = f"fairfix audit of {result.data.source}: {len(result.classes)} classes"
    read_as = f"{OF_A_CLASS}, and label 1 is the class" if result.data.columns.label else OF_A_CLASS
    return Section(title, (*message_lines(result.messages), *_answer(result), read_as + "."), kind="answer")


def tables(result: Audit, *, detail: bool) -> Iterator[Section]:
    """Yield the tables of an audit of many classes."""
    for block in result.attributes:
        yield _classes(block, result, detail=detail)
        yield from individual_sections(block, result)
    if "accuracy" in result.overall.metrics:
        yield from (_accuracy(block, result) for block in result.attributes)
    for one in result.classes if detail else ():
        for block in (*one.attributes, *one.strata):
            section = attribute_section(block, result.part(one.of_class))
            yield replace(section, title=f"Class {one.of_class}: {section.title}", kind="class")


# ---------------------------------------------------------------------- the answer and the checks


def _asked(result: CheckedResult) -> list[list[SavedCheck]]:
    """Return the checks as they were asked, each with its classes, the worst first."""
    asked: dict[tuple[str, str], list[SavedCheck]] = {}
    for check in result.checks:
        asked.setdefault((check.check, check.attribute), []).append(check)
    return [
        sorted(these, key=lambda one: (ORDER.index(one.verdict), -beyond(one))) for these in asked.values()
    ]


def _answer(result: Audit) -> Iterator[str]:
    if not result.checks:
        yield from _unjudged(result)
        yield NOT_CHECKED
        return
    asked = sorted(_asked(result), key=lambda own: ORDER.index(own[0].verdict))
    for these in asked[: OTHERS + 1]:
        first = these[0]
        where = f"Class {first.of_class}, the worst of {len(these)}: " if first.of_class else ""
        context = result.part(first.of_class) if first.of_class else result
        text = statement(Stated.from_check(first), context, check=first)
        yield f"{where}{text} {judgement(first, result.data.rows.used)}" + _counted(these)

    if len(asked) > OTHERS + 1:
        yield f"{len(asked) - OTHERS - 1:,} more checks are below."


def _counted(these: Sequence[SavedCheck]) -> str:
    """Return a sentence of how many classes have each verdict, where there are some."""
    return f" Of the classes, {in_numbers(these)}." if these[0].of_class else ""


def _unjudged(result: Audit) -> Iterator[str]:
    metric = next((name for name in FIRST if name in gap_metrics(result)), None)
    for block in result.attributes if metric else ():
        name, attribute = str(metric), block.attribute
        one = by_gap(result, attribute, name)[0]
        gap = gap_of(one, attribute, name)
        gaps = [gap_of(own, attribute, name) for own in result.classes]
        many = len(gaps)
        yield _largest(one.of_class, gap.value, gaps) + statement(
            Stated.from_comparison(gap, attribute), result.part(one.of_class)
        )
        apart = sum((own.low or 0.0) > 0 for own in gaps)
        sure = in_percent(result.settings.confidence)
        if apart:
            yield (
                f"By {attribute}, this rate differs between groups in at least {apart} of {many} classes "
                f"({sure} confidence)."
            )
        mean = block.by_id[Comparison(name, "difference", CLASS_SCOPES[0]).id]
        yield statement(Stated.from_comparison(mean, attribute), result)


def _largest(name: str, value: float | None, gaps: Sequence[SavedComparison]) -> str:
    """Return what begins the sentence of the class with the largest gap; nothing where none is defined."""
    if value is None:
        return ""
    if value > 0:
        return f"Class {name} has the largest gap of {len(gaps)}: "
    defined = sum(own.value is not None for own in gaps)
    rest = "" if defined == len(gaps) else f" where it is defined, of {len(gaps)},"
    return f"No gap is significant in any of the {defined} classes{rest}; for example, class {name}: "


CHECKS: Columns = {
    "verdict": lambda these: Verdict(these[0].verdict),
    "check": lambda these: these[0].check,
    "attribute": lambda these: these[0].attribute,
    "worst class": lambda these: class_of(these[0]),
    "value": lambda these: interval(these[0]),
    "groups": lambda these: ", ".join(these[0].groups),
    "of the classes": lambda these: in_numbers(check for check in these if check.of_class),
    "why": lambda these: these[0].reason,
}


def checks_by_class(result: CheckedResult) -> Section:
    """Return the checks, each by its worst class, and the classes that fail or are undecided besides."""
    asked = _asked(result)
    grid = TextTable.of(CHECKS, asked, 8, "Checks", 1)
    about = tuple(these[0] for these in asked)
    return Section(
        f"Checks: {MARKS[result.verdict or 'pass']}", tuple(_others(asked)), (grid,), "checks", about
    )


GAPS: Columns = {
    "class": "of_class",
    "attribute": "attribute",
    "before": lambda one: interval(one.before),
    "after": lambda one: interval(one.after),
}


def class_gaps(proof: Evaluation, title: str) -> Iterator[Section]:
    """Yield balanced accuracy and the gap of each class, before and after a repair, the largest first."""
    if (balanced := proof.balanced_accuracy) is None:
        return
    line = (
        "balanced accuracy (mean of the classes' TPR), overall:  "
        f"{interval(balanced.before)} before and {interval(balanced.after)} after"
    )
    gaps = sorted(proof.classes, key=lambda one: -(one.after.value or 0.0))
    grid = TextTable.of(GAPS, gaps, 2, "Equal opportunity difference of each class")
    yield Section(f"{title}: class by class", (line,), (grid,), "class")


def _others(asked: Sequence[Sequence[SavedCheck]]) -> Iterator[str]:
    for these in asked:
        for verdict in ("fail", "undecided", "waived"):
            names = [check.of_class for check in these[1:] if check.verdict == verdict]
            if names:
                listed = few(names, MOST_ROWS, str)
                yield f"{these[0].check} by {these[0].attribute}, also {WORDS[verdict]}: {listed}"


# ---------------------------------------------------------------------- tables


def _classes(block: Block, result: Audit, *, detail: bool) -> Section:
    """Return the class gaps of an attribute and the table of its classes."""
    attribute, metrics = block.attribute, gap_metrics(result)
    means = [block.by_id[name] for name in CLASS_GAPS if name in block.by_id]
    gaps: Columns = {
        "over the classes": lambda one: titled(one.id),
        "value [interval]": interval,
        "largest in": lambda one: one.of_class,
        "note": lambda one: one.reason,
    }
    grids = [TextTable.of(gaps, means, 4, f"Class gaps by {attribute}")] if means else []
    lines: list[str] = []
    if metrics:
        ordered = by_gap(result, attribute, next(name for name in FIRST if name in metrics))
        shown = ordered if detail else ordered[:MOST_ROWS]
        if len(shown) < len(ordered):
            lines.append(
                f"The table has the {len(shown)} classes with the largest gaps of {len(ordered)}; --detail shows all"
            )
        grids.append(TextTable.of(_columns(attribute, metrics, result), shown, 3, f"Classes by {attribute}"))
    return Section(attribute, tuple(lines), tuple(grids), "classes", block)


def _columns(attribute: str, metrics: Sequence[str], result: Audit) -> Columns:
    first = next(name for name in FIRST if name in metrics)

    def gap(metric: str) -> Callable[[Any], str]:
        return lambda one: interval(gap_of(one, attribute, metric))

    def rate(metric: str) -> Callable[[Any], str]:
        return lambda one: show(one.overall.metrics[metric].value)

    def whom(one: OneClass) -> str:
        gap = Stated.from_comparison(gap_of(one, attribute, first), attribute)
        return between_whom(gap, result.part(one.of_class))

    rates = ("base_rate", "selection_rate", "true_positive_rate", "false_positive_rate")
    there = [name for name in rates if name in result.classes[0].overall.metrics]
    return {
        "class": "of_class",
        f"{titled(gap_id(first))} [interval]": gap(first),
        "between": whom,
        **{METRICS[name].title: rate(name) for name in there},
        **{f"{titled(gap_id(name))} [interval]": gap(name) for name in metrics if name != first},
    }


def _accuracy(block: Block, result: Audit) -> Section:
    """Return the accuracy of each group in all classes together."""
    attribute = block.attribute
    columns: Columns = {**GROUP, "accuracy [interval]": lambda group: interval(group.metrics["accuracy"])}
    shown = [one for one in block.comparisons if one.id in ACCURACIES]
    compared: Columns = {
        "comparison": lambda one: titled(one.id),
        "value [interval]": interval,
        "between": lambda one: between_whom(Stated.from_comparison(one, attribute), result),
    }
    grids = (
        TextTable.of(
            columns,
            [*block.groups, replace_fields(result.overall, group="overall")],
            1,
            f"Groups of {attribute}",
        ),
        TextTable.of(compared, shown, 3, f"Accuracy by {attribute}"),
    )
    balanced = result.balanced_accuracy
    lines = (
        (f"balanced accuracy (mean of the classes' TPR), overall:  {interval(balanced)}",) if balanced else ()
    )
    return Section(f"Accuracy in all classes, by {attribute}", lines, grids, "gap", block)
