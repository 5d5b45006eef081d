"""The sections of an audit: data, checks, what has changed, profiles, and the tables of each attribute."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from msgspec.structs import replace

from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.metrics import ADDED, METRICS
from fairfix.auditing.results import in_percent
from fairfix.report import gap_parts
from fairfix.report.answer import Stated, answer, between_whom, statement
from fairfix.report.layout import (
    GROUP_METRICS,
    HEADLINES,
    Columns,
    Section,
    TextTable,
    Verdict,
    class_of,
    data_lines,
    first_groups,
    interval,
    judgements,
    message_lines,
    show,
    signed,
    size_of,
    titled,
)
from fairfix.report.true_groups import true_groups
from fairfix.report.words import named
from fairfix.schema.audit import Audit, Template, TemplateColumn
from fairfix.schema.common import NOTHING, Baseline, Block, Change, Estimate, Group, SavedCheck

CLASSIFICATION_ONLY_LOSSES = ("mean_score", "square_loss")
"""Left to the JSON form when probabilities are audited: log loss and calibration gap say the same."""

NAMED = 4
"""Number of groups that a line about an undefined metric names."""

LEAST_P = 1e-12
"""Below, a probability of chance is told as smaller: it is none that is 0."""

RATES = ("selection_rate", "true_positive_rate", "false_positive_rate")
MEANS = ("mean_score", "mean_error")
"""Metrics of decisions and of a regression in the table of groups next to the reference group."""

CELLS: dict[str, Callable[[Any], str]] = {
    "value": interval,
    "count": "{:,.0f}".format,
    "rate": "{:.1%}".format,
    "ratio": lambda number: show(number, 3),
    "p": lambda number: f"<{LEAST_P:g}" if number < LEAST_P else show(number),
}
"""Formats of the columns of a profile's tables, by their content."""


def sections(result: Audit, *, detail: bool) -> Iterator[Section]:
    """Yield the sections of an audit's JSON form."""
    from fairfix.report import classes  # which has parts of this module

    many = bool(result.classes)
    if many:
        yield classes.heading(result)
    else:
        lines = (*message_lines(result.messages), *answer(result))
        yield Section(f"fairfix audit of {result.data.source}", lines, kind="answer")
    if len({check.attribute for check in result.checks}) > 1 and not many:
        yield Section("Verdicts by attribute", (), (_matrix(result.checks),), "matrix")
    yield from judgements(result)
    if result.baseline is not None:
        yield changes_section(result.baseline)
    if result.profile is not None:
        yield from _profile(result.profile)
    if result.slices is not None:
        from fairfix.report.slices import section  # which has parts of this module

        yield section(result, result.slices)
    yield from gap_parts.sections(result)
    if result.state is not None:
        from fairfix.report.history import section as history_section

        yield history_section(result, result.state, detail=detail)
    if many:
        yield from classes.tables(result, detail=detail)
    for block in () if many else result.attributes:
        if block.groups:  # else the attribute is known by probabilities alone
            yield attribute_section(block, result, detail=detail)
        yield from individual_sections(block, result)
        if result.noise is not None and result.noise.attribute == block.attribute:
            yield true_groups(result.noise, detail=detail)
    for block in () if many else result.strata:
        yield attribute_section(block, result)
    if result.not_computed:
        lines = tuple(f"{item.metric}: {item.reason}" for item in result.not_computed)
        yield Section("Not computed", lines, kind="not computed")
    yield Section("Data and settings", tuple(_facts(result)), kind="facts")


def _matrix(checks: Sequence[SavedCheck]) -> TextTable:
    """Return a verdict for each attribute and check; empty where a check is of other attributes."""
    asked = dict.fromkeys(check.check for check in checks)
    verdicts = {(check.attribute, check.check): Verdict(check.verdict) for check in checks}
    attributes = dict.fromkeys(check.attribute for check in checks)
    rows = tuple((name, *(verdicts.get((name, one), "") for one in asked)) for name in attributes)
    return TextTable(("attribute", *asked), rows, 1 + len(asked), "Verdicts by attribute")


def suppression_lines(result: Audit) -> Iterator[str]:
    """Yield which rows are left out, where those of small groups are."""
    if (hidden := result.suppressed) is not None:
        yield (
            f"rows of groups with fewer than {hidden.below:,} rows, if any, are left out of all numbers, "
            "and so are rows with missing entries"
        )
        yield from (f"{name} is left out: too few of its groups can be shown" for name in hidden.left_out)


def _facts(result: Audit) -> Iterator[str]:
    data, settings = result.data, result.settings
    yield from data_lines(result)
    if data.model:
        yield f"scores from the model {data.model['file']} ({data.model['sha256']})"
    if settings.threshold is None and data.columns.probability:
        yield "decisions are randomized; every rate is its expectation over the randomization"
    among, further = (
        ("classes and over the groups", ". Intervals of accuracy are simultaneous over the groups")
        if result.classes
        else ("groups", "")
    )
    yield (
        f"{in_percent(settings.confidence)} intervals, simultaneous over the {among} compared; an undefined value is "
        f"never counted as 0{further}"
    )
    if settings.always_valid:
        yield (
            "always-valid intervals hold for any number of looks at growing data, if each look contains all rows of "
            "the earlier ones"
        )
    losses = (one for block in (*result.attributes, *result.strata) for one in _losses(block))
    if any(one.given_scores is not None for one in losses):
        yield (
            "an interval given scores is for the mean log loss of people with the scores of these rows; over the whole "
            "population, too few rows determine the mean"
        )
    yield from suppression_lines(result)


def _losses(block: Block) -> Iterator[Estimate]:
    """Yield the log losses of groups, and their comparisons."""
    yield from (group.metrics["log_loss"] for group in block.groups if "log_loss" in group.metrics)
    yield from block.comparisons


CHANGES: Columns = {
    "comparison": lambda one: titled(one.comparison),
    "attribute": lambda one: f"{one.attribute}={one.group}" if one.group else one.attribute,
    "baseline": lambda one: interval(one.old),
    "now": lambda one: interval(one.new),
    "change [interval]": lambda one: "undefined" if one.value is None else signed(one),
    "is": lambda one: "" if None in (one.value, one.worse) else one.direction or "not significant",
}


def changes_section(baseline: Baseline) -> Section:
    """Return what has changed since a baseline; of many classes only what is certain."""
    missing: Iterable[str] = (f"not comparable: {one.id}: {one.reason}" for one in baseline.not_comparable)
    changes: Sequence[Change] = () if baseline.unchanged else baseline.changes
    columns = CHANGES
    if any(one.of_class for one in changes):
        columns = {"class": class_of, **CHANGES}
        every, changes = len(changes), [one for one in changes if one.worse and one.direction]
        missing = chain(
            missing, (f"{len(changes)} of {every} numbers changed significantly; the JSON form has all",)
        )
    grids = (TextTable.of(columns, changes, len(columns), "Changes since the baseline"),) if changes else ()
    return Section("Change since the baseline", (*_compared(baseline), *missing), grids, "baseline")


def _compared(baseline: Baseline) -> Iterator[str]:
    """Yield which rows are compared, and what is not paired."""
    about = f"{baseline.source}, {baseline.rows:,} rows"
    if baseline.unchanged:
        yield f"unchanged: every number equals that of the baseline, {about}"
        return
    if baseline.same_file:
        yield f"{about} of the same file, paired by position; old decisions come from the baseline's columns"
    elif baseline.paired is None:
        yield f"{about}; the two audits are treated as independent samples"
        return
    if match := baseline.paired:
        yield f"{about} that are in both, matched by {match.id}; both columns and the change use these rows"
        yield (
            f"left out: {match.only_in_baseline:,} rows only in the baseline, {match.only_now:,} only now, "
            f"{match.other_group:,} with another group in each"
        )
    apart: dict[str, list[str]] = {}
    for one in baseline.changes:
        if one.not_paired:
            apart.setdefault(one.not_paired, []).append(one.id)
    for reason, names in apart.items():
        yield f"not paired, so the interval is that of independent samples: {', '.join(names)} ({reason})"


def _profile(profile: Template) -> Iterator[Section]:
    yield Section(profile.title, tuple(profile.lines))
    for table in profile.tables:
        columns: Sequence[TemplateColumn] = table.columns
        if columns[-1].name == "note":  # numbers last, words at the ends
            columns = [columns[0], columns[-1], *columns[1:-1]]
        rows = tuple(tuple(_cell(row[c.name], c.kind) for c in columns) for row in table.rows)
        texts = sum(c.kind == "text" for c in columns)
        grid = TextTable(tuple(c.title for c in columns), rows, texts, table.title)
        yield Section(f"{profile.name}: {table.title}", (), (grid,))


def _cell(value: Any, kind: str) -> str:
    if kind == "text":
        return str(value or "")
    return "–" if value is None else CELLS.get(kind, show)(value)


def attribute_section(block: Block, result: Audit, *, detail: bool = False) -> Section:
    """Return the tables of an attribute, overall or in a stratum: its groups and their comparisons."""
    groups, lines = shown_groups(block, result)
    lines = (*lines, *_undefined(groups))
    stratum = f" within {block.stratum}" if block.stratum else ""
    where = f"{block.attribute}{stratum}"
    grids = (
        _groups(groups, block, result, where, detail=detail),
        *(to_reference(block, result) if detail else ()),
        _comparisons(block, result, where, detail=detail),
    )
    return Section(where, lines, grids, "stratum" if stratum else "attribute", block)


def _undefined(groups: Sequence[Group]) -> Iterator[str]:
    """Yield which metrics are undefined for which groups, a line for each metric and reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for group in groups:
        for name, value in group.metrics.items():
            if value.value is None and value.reason:
                reasons.setdefault((name, value.reason), []).append(group.group)
    for (name, reason), names in reasons.items():
        more = len(names) - NAMED
        whom = ", ".join(names) if more <= 1 else f"{', '.join(names[:NAMED])} and {more:,} other groups"
        yield f"{METRICS[name].title} is undefined for {whom}: {reason}"


def to_reference(block: Block, result: Audit) -> Iterator[TextTable]:
    """Yield the table of each group next to the reference group, where the audit has one.

    It has a row for each rate of :data:`RATES` and group, of a regression for each mean: the value, divided by that of
    the reference group (for selection rates the impact ratio), and minus it, each with its interval.
    """
    each = {one.id: one.per_group for one in block.comparisons}
    metrics = (*(MEANS if result.settings.task == "regression" else RATES), *ADDED.get())
    kinds = [
        kind
        for kind in ("ratio", "difference")
        if any(Comparison(metric, kind, "to_reference").id in each for metric in metrics)
    ]
    reference = named(result.settings.reference.get(block.attribute, ""))

    def compared(row: tuple[str, Group], kind: str) -> Estimate | None:
        return each.get(Comparison(row[0], kind, "to_reference").id, {}).get(row[1].group)

    def note(row: tuple[str, Group]) -> str:
        numbers = (row[1].metrics[row[0]], *(compared(row, kind) for kind in kinds))
        first = "reference" if row[1].group == reference else ""
        return "; ".join(dict.fromkeys(filter(None, (first, *(one.reason for one in numbers if one)))))

    def cell(kind: str) -> Callable[[tuple[str, Group]], str]:
        return lambda row: "" if (one := compared(row, kind)) is None else interval(one)

    rows = [
        (metric, group)
        for metric in metrics
        for group in shown_groups(block, result)[0]
        if metric in group.metrics and any(compared((metric, group), kind) for kind in kinds)
    ]
    columns: Columns = {
        "metric": lambda row: METRICS[row[0]].title,
        "group": lambda row: str(row[1].group),
        "note": note,
        "rows": lambda row: GROUP["rows"](row[1]),
        "value [interval]": lambda row: interval(row[1].metrics[row[0]]),
        **{f"{kind} to reference": cell(kind) for kind in kinds},
    }
    if rows:
        yield TextTable.of(columns, rows, 3, f"Groups of {block.attribute} next to the reference group")


def group_metrics(result: Audit, *, detail: bool = False) -> list[tuple[str, str]]:
    """Return the metrics of the group table, with their headings; with ``detail``, all that a group has."""
    regression = result.settings.task == "regression"
    present = result.overall.metrics
    left_out = () if detail or regression or "log_loss" not in present else CLASSIFICATION_ONLY_LOSSES
    names = METRICS if detail else (*GROUP_METRICS, *ADDED.get())
    return [(name, METRICS[name].title) for name in names if name in present and name not in left_out]


GROUP: dict[str, Callable[[Group], str]] = {
    "group": lambda group: str(group.group),
    "rows": lambda group: f"{group.rows:,}",
    "fraction": lambda group: f"{group.share:.1%}",
}
"""The first columns of tables of groups."""


def worst_first(block: Block, result: Audit) -> tuple[list[Group], str]:
    """Return the groups in the order in which few of them stand for all, and this order in words.

    First are those that reach a comparison, then those whose first rate is surely farthest from that of all rows.
    """
    metrics = [name for name, _ in group_metrics(result)]
    metric = next((name for name in ("selection_rate", *metrics) if name in metrics), None)
    by_id = block.by_id
    reached = (name for one in HEADLINES if one in by_id for name in by_id[one].groups)
    place = {name: i for i, name in enumerate(dict.fromkeys(reached))}

    def rank(group: Group) -> tuple[float, float, float]:
        own, whole = (of.metrics[metric] if metric else NOTHING for of in (group, result.overall))
        if own.value is None or whole.value is None:
            return place.get(group.group, math.inf), 0.0, 0.0
        low, high = (own.value if end is None else end for end in (own.low, own.high))
        surely = max(low - whole.value, whole.value - high, 0.0)
        return place.get(group.group, math.inf), -surely, -abs(own.value - whole.value)

    by = (
        f", then those whose {METRICS[metric].title} is surely farthest from that of all rows"
        if metric
        else ""
    )
    return sorted(block.groups, key=rank), f"those that appear in a comparison{by}"


def shown_groups(block: Block, result: Audit) -> tuple[Sequence[Group], tuple[str, ...]]:
    """Return the groups that a table shows, and a line about the others; of very many it has the worst."""
    ordered, which = worst_first(block, result)
    place = {group.group: i for i, group in enumerate(ordered)}
    return first_groups(block.groups, lambda group: place[group.group], which)


def _groups(groups: Sequence[Group], block: Block, result: Audit, where: str, *, detail: bool) -> TextTable:
    means = [
        result.overall.metrics[name]
        for name in ("mean_label", "mean_score")
        if name in result.overall.metrics
    ]
    unit = size_of(*means) if result.settings.task == "regression" else 1.0

    def value_of(metric: str) -> Callable[[Group], str]:
        size = unit * unit if metric == "square_loss" else unit
        return lambda group: show(group.metrics[metric].value, size=size)

    columns: Columns = {
        **GROUP,
        **{title: value_of(metric) for metric, title in group_metrics(result, detail=detail)},
    }
    everybody = [] if block.stratum else [replace(result.overall, group="overall")]
    return TextTable.of(columns, [*groups, *everybody], 1, f"Groups of {where}")


def individual_sections(block: Block, result: Audit) -> Iterator[Section]:
    """Yield what the group alone does to a person's result, with what has to be assumed for that, in words.

    What counterfactual copies get is told apart: more than the group may be different in them.
    """
    parsed = [(one, Comparison.parse(one.id)) for one in block.comparisons]
    individual = [(one, of) for one, of in parsed if "individual" in of.entry.needs]
    of_copies = [one for one, of in individual if of.scope == "under_counterfactuals"]
    own = [one for one, of in individual if of.scope != "under_counterfactuals"]
    by_model = any("model" in of.entry.needs for one, of in individual if one in own)
    for title, opening, listed in (
        ("People and their counterfactual copies", BY_COPIES, of_copies),
        (f"The same person in another group: {block.attribute}", BY_MODEL if by_model else BY_SCORES, own),
    ):
        sentences = (
            statement(Stated.from_comparison(one, block.attribute), result)
            for one in listed
            if one.id in HEADLINES
        )
        if listed:
            yield Section(title, (opening, *sentences), kind="individual", about=block)


BY_MODEL = (
    "Individual fairness: the model scores each row again with another value and all other columns unchanged. Effects "
    "through other columns, such as a proxy of the group, are not included in these numbers"
)
BY_COPIES = (
    "Individual fairness by the given copies: a copy differs from the person in the columns of its file, and in "
    "nothing else. The data cannot show whether the person would have these values"
)
BY_SCORES = (
    "Individual fairness from scores alone: this assumes that only the other columns of the data may count. A "
    "missing column can create a difference or hide one. Columns derived from the score hide one"
)


def _comparisons(block: Block, result: Audit, where: str, *, detail: bool) -> TextTable:
    by_id = block.by_id
    shown = block.comparisons if detail else [by_id[name] for name in HEADLINES if name in by_id]
    columns: Columns = {
        "comparison": "id" if detail else lambda one: HEADLINES[one.id],
        "value [interval]": interval,
        "between": lambda one: between_whom(
            Stated.from_comparison(one, block.attribute, block.stratum), result
        ),
    }
    return TextTable.of(columns, shown, 3, f"Comparisons of {where}")
