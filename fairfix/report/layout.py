"""Layout of a report: sections of lines and tables in their order, made from a result.

Text, Markdown and HTML draw one layout, so they cannot say different things. Here are the parts that all results share;
:mod:`fairfix.report.audits` has the sections of an audit, :mod:`fairfix.report.true_groups` those of noisy groups,
:mod:`fairfix.report.repairs` those of a repair, :mod:`fairfix.report.comparisons` those of a comparison of methods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from operator import attrgetter
from typing import Any, TypeVar

from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.metrics import Catalogue
from fairfix.auditing.results import cut_words
from fairfix.schema.audit import ExplainedGap, NoiseResults, StateBatches
from fairfix.schema.common import (
    Block,
    Change,
    CheckedResult,
    FeatureNames,
    GroupChanges,
    Message,
    Number,
    Record,
    SavedCheck,
    SavedResult,
    SavedWaiver,
)
from fairfix.schema.common import Columns as Roles
from fairfix.schema.compare import GapName
from fairfix.schema.repair import Evaluation, GroupRule
from fairfix.schema.slices import SliceSearch
from fairfix.schema.trend import Line

Columns = Mapping[str, str | Callable[[Any], str]]
"""Heading -> the field of an item's cell, or a function of the item."""


def class_of(one: SavedCheck | Change) -> str:
    """Return the class that a check or a change is about, in an audit of many."""
    return one.of_class or "all together"


GROUP_METRICS = (
    *("base_rate", "selection_rate", "true_positive_rate", "false_positive_rate"),
    *("positive_predictive_value", "accuracy", "auc", "log_loss", "calibration_gap", "scoring_rate"),
    *("mean_label", "mean_score", "mean_error", "square_loss", "absolute_loss"),
)
"""Columns of the group table."""

_USUAL = """
selection_rate.difference.between_groups selection_rate.ratio.between_groups
selection_rate.difference.to_overall
selection_rate.difference.to_reference selection_rate.ratio.to_reference
selection_rate.difference.within_strata
true_positive_rate.difference.between_groups true_positive_rate.ratio.between_groups
equalized_odds.difference.between_groups equalized_odds.ratio.between_groups
true_positive_rate.difference.within_strata equalized_odds.difference.within_strata
selection_rate.difference.true_groups selection_rate.ratio.true_groups
true_positive_rate.difference.true_groups equalized_odds.difference.true_groups
selection_rate.difference.true_groups.worst_case true_positive_rate.difference.true_groups.worst_case
equalized_odds.difference.true_groups.worst_case
decision_flips.under_flips score_change.under_flips score_effect.under_flips
decision_flips.under_comparable decision_flips.under_everybody
decision_flips.under_counterfactuals counterfactual_gap.under_counterfactuals
score_std.under_counterfactuals class_distance.under_counterfactuals
matched_effect.difference.between_groups residual_effect.difference.between_groups
accuracy.difference.between_groups auc.difference.between_groups
mean_score.difference.between_groups mean_error.difference.between_groups
log_loss.max square_loss.max scoring_rate.ratio.between_groups
ks.between_groups ks.to_overall ks.within_strata
"""


def _titled(comparison: Comparison) -> tuple[str, str]:
    return comparison.id, comparison.title


HEADLINES: Mapping[str, str] = Catalogue(
    dict(map(_titled, map(Comparison.parse, _USUAL.split()))),
    lambda metric: _titled(Comparison(metric.name, "difference", "between_groups")),
)
"""Comparisons of the short report, with their titles; of metrics of one's own, how far groups are apart. ``--detail``
shows all."""

MARKS = {"pass": "PASS", "fail": "FAIL", "undecided": "UNDECIDED", "waived": "WAIVED"}
"""Verdicts as all formats write them."""

STATES = {
    "used": "waives a check",
    "not needed": "is not needed: the check passes without it",
    "expired": "has expired and waives nothing",
    "exceeded": "waives nothing: a check exceeds its limit",
    "matches nothing": "matches no check",
}
"""Effect of a waiver, in words."""


def waiver_state(waiver: SavedWaiver) -> str:
    """Return what a waiver does, and that it ends soon."""
    left = waiver.days_left
    days = f", and ends {'today' if left == 0 else 'tomorrow' if left == 1 else f'in {left} days'}"
    return STATES[waiver.state] + ("" if left is None else days)


class Verdict(str):
    """A cell that holds a verdict; ``code`` is the verdict in the JSON form."""

    __slots__ = ("code",)
    code: str

    def __new__(cls, code: str) -> Verdict:
        """Return the verdict as it is written."""
        cell = super().__new__(cls, MARKS[code])
        cell.code = code
        return cell


class Interval(str):
    """A cell that holds a number with its interval, which stay in one line."""

    __slots__ = ()


@dataclass(frozen=True)
class TextTable:
    """A table: headings, rows of text, and how many leading columns are text (the others are numbers).

    ``caption``, ``named_by``, the column that names a row, and ``folded`` are for formats that can tell.
    """

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    text_columns: int = 1
    caption: str = ""
    named_by: int = 0
    folded: bool = False

    @classmethod
    def of(
        cls, columns: Columns, items: Iterable[Any], text_columns: int, caption: str, named_by: int = 0
    ) -> TextTable:
        """Return the table with a row per item."""
        cells = [attrgetter(cell) if isinstance(cell, str) else cell for cell in columns.values()]
        rows = tuple(tuple(cell(item) for cell in cells) for item in items)
        return cls(tuple(columns), rows, text_columns, caption, named_by)


About = (
    Block
    | NoiseResults
    | SliceSearch
    | ExplainedGap
    | StateBatches
    | Line
    | Evaluation
    | GroupChanges
    | tuple[SavedCheck, ...]
    | tuple[GroupRule, ...]
    | None
)
"""A part of a result that a section is about."""


@dataclass(frozen=True)
class Section:
    """A part of a report: a title, lines of prose, tables; ``about`` is the part of the result it shows, of a kind."""

    title: str
    lines: tuple[str, ...] = ()
    grids: tuple[TextTable, ...] = ()
    kind: str = ""
    about: About = None


def left_out_columns(features: FeatureNames | None) -> Iterator[Section]:
    """Yield the columns that a method could have learned from and did not, with the reason for each."""
    if features is not None and (left_out := features.left_out):
        columns: Columns = {"column": "column", "reason": "reason", "why": "text"}
        grid = TextTable.of(columns, left_out, 3, "Columns left out of the features")
        yield Section("Columns left out of the features", (), (grid,), "left out")


MOST_GROUPS = 200
"""Groups in a table for people; more are some screens of numbers that nobody reads."""


CHANGES_MOST = "those whose rate changes most"
"""Which groups a table has of very many."""


Ranked = TypeVar("Ranked")


def first_groups(
    groups: Sequence[Ranked], rank: Callable[[Ranked], Any], which: str
) -> tuple[Sequence[Ranked], tuple[str, ...]]:
    """Return the groups that a table has, of very many those of the lowest rank, and which these are in words."""
    if len(groups) <= MOST_GROUPS:
        return groups, ()
    text = (
        f"The table has {MOST_GROUPS:,} of {len(groups):,} groups: {which}. The other "
        f"{len(groups) - MOST_GROUPS:,} are in the JSON form, the source of all numbers here"
    )
    return sorted(groups, key=rank)[:MOST_GROUPS], (text,)


# ---------------------------------------------------------------------- numbers and names


LARGE = 1e6
"""Numbers from here on are written with an exponent: their digits behind the point tell nothing."""


ROUNDING = 1e-12
"""A smaller part of the numbers next to it is rounding and no value."""


def size_of(*numbers: Number) -> float:
    """Return the largest of numbers and the ends of their intervals, in size; 1 where all are 0."""
    ends = (end for number in numbers for end in (number.value, number.low, number.high))
    return max((abs(end) for end in ends if end is not None), default=0.0) or 1.0


def show(number: float | None, digits: int = 4, size: float = 1.0) -> str:
    """Return a number for reading, with the decimals of numbers as large as ``size``; an undefined one as a dash."""
    if number is None:
        return "–"
    if abs(number) < ROUNDING * min(size, 1.0):
        number = 0.0
    if number and (abs(number) < 10.0**-digits or abs(number) >= LARGE):
        return f"{number:.{digits - 1}g}"
    return f"{number:.{digits}f}"


def interval(value: Number) -> str:
    """Return ``value [low, high]``; open ends show as a dash, undefined values as ``undefined``."""
    if value.value is None:
        return "undefined"
    about = "±" + f"{value.bound:.1g} " if value.bound else ""
    size = size_of(value)
    low, high = (show(end, 3, size) for end in (value.low, value.high))
    given = ""
    if value.given_scores is not None:
        given = ", given scores [{}, {}]".format(*(show(end, 3, size) for end in value.given_scores))
    return Interval(f"{show(value.value, size=size)} {about}[{low}, {high}]{given}")


def shortly(share: Number, unit: str = "") -> str:
    """Return a share in per cent with its interval."""
    if share.value is None:
        return "–"
    low, high = ("–" if end is None else f"{100 * end:.0f}" for end in (share.low, share.high))
    return Interval(f"{100 * share.value:.1f}{unit} [{low}, {high}]")


def between(low: float | None, high: float | None, without: str = "undefined") -> str:
    """Return a range for reading."""
    return without if low is None else f"[{show(low, 3)}, {show(high, 3)}]"


def show_signed(number: float | None, digits: int = 4, size: float = 1.0, *, sign: bool = False) -> str:
    """Return a number for reading, with the decimals of numbers as large as ``size``, and its sign if asked."""
    if number is None:
        return "–"
    if abs(number) < ROUNDING * min(size, 1.0):
        number = 0.0
    usual = not number or (size >= 10.0 ** (1 - digits) and abs(number) < LARGE)
    return f"{number + 0.0:{'+' if sign else ''}{f'.{digits}f' if usual else '.3g'}}"


def signed(change: Number, digits: int = 3, size: float = 1.0) -> str:
    """Return a change of numbers as large as ``size`` with its interval, in ``digits`` digits, each with its sign."""
    low, high = (show_signed(end, digits, size, sign=True) for end in (change.low, change.high))
    return Interval(f"{show_signed(change.value, size=size, sign=True)} [{low}, {high}]")


CERTAIN = 1e-6
"""A chance that is nearer to 0 or 1 is certain."""


def percent(share: float | None) -> str:
    """Return a share for reading, in per cent."""
    return "–" if share is None else f"{100 * share:.1f}%"


def points(difference: float | None, *, sign: bool = False) -> str:
    """Return a difference of shares for reading, in percentage points; a small one keeps the sign that is asked."""
    if difference is None:
        return "–"
    rounded = round(100 * difference, 1)
    if sign and not rounded and abs(difference) > ROUNDING:
        return f"{100 * difference:+.1g} points"
    return f"{rounded + 0.0:{'+' if sign else ''}.1f} points"


def ends_of(low: float, high: float, write: Callable[..., str]) -> str:
    """Return the ends of a change for reading, with their signs, without the unit."""
    first, last = (write(end, sign=True).removesuffix(" points") for end in (low, high))
    return f"{first} to {last}"


def with_ends(value: Number, write: Callable[..., str]) -> str:
    """Return a value with its interval for reading, and the unit once."""
    if value.value is None:
        return "undefined"
    low, high = (write(end).removesuffix(" points") for end in (value.low, value.high))
    return f"{write(value.value)} ({low} to {high})"


def exact(number: float | None) -> str:
    """Return a number of a solver for reading, to six digits whatever its size; an unknown one as a dash."""
    return "–" if number is None else f"{number:.6g}"


def titled(name: str, attribute: str | None = None) -> str:
    """Return the words for a metric or a comparison, with the attribute if one is given."""
    title = Comparison.parse(name).title
    return f"{title} [{attribute}]" if attribute else title


def titled_gap(gap: GapName) -> str:
    """Return the words for a gap, with its attribute."""
    return titled(gap.comparison, gap.attribute)


# ---------------------------------------------------------------------- sections


def kind_of(result: SavedResult) -> str:
    """Return ``audit``, ``slices``, ``repair``, ``compare`` (methods), ``models`` or ``trend``."""
    return str(result.__struct_config__.tag).rpartition("/")[0].removeprefix("fairfix.")


SECTIONS = {
    "audit": "fairfix.report.audits",
    "repair": "fairfix.report.repairs",
    "compare": "fairfix.report.comparisons",
    "models": "fairfix.report.models",
    "slices": "fairfix.report.slices",
    "trend": "fairfix.report.trends",
}
"""Kind of result -> the module of its sections, which is made of the parts of this one."""


class Command(str):
    """A line to copy into a shell; no format breaks it or escapes what is in it, as far as the format allows."""

    __slots__ = ()


def layout(result: SavedResult, *, detail: bool = False) -> Iterator[Section]:
    """Yield the sections of a result."""
    yield from import_module(SECTIONS[kind_of(result)]).sections(result, detail=detail)
    if result.record is not None:
        yield Section("For the record", tuple(_record(result.record)), kind="record")
    if result.next_step is not None:
        step = result.next_step
        command = (Command(step.command),) if step.command else ()
        yield Section("Next step", (step.text, *command), kind="next")


def message_lines(messages: Iterable[Message], severity: str = "") -> Iterator[str]:
    """Yield every warning and note of a result, or those of one severity, with its code, as on stderr."""
    for one in messages:
        if severity in ("", one.severity):
            yield f"{one.severity}: {one.text} [{one.code}]"


WORDS = {"model": "model", "owner": "owner", "purpose": "purpose", "date": "date of the data"}
"""Entries of a record in words."""


def _record(record: Record) -> Iterator[str]:
    for name, word in {**WORDS, "command": "command", "data_sha256": "SHA-256 of the file"}.items():
        if entry := getattr(record, name):
            yield f"{word}: {entry}"
    yield "versions: " + ", ".join(f"{name} {number}" for name, number in record.versions.items())


CHECKS: Columns = {
    "verdict": lambda check: Verdict(check.verdict),
    "check": "check",
    "attribute": "attribute",
    "value": interval,
    "groups": lambda check: ", ".join(check.groups),
    "why": "reason",
}

WAIVERS: Columns = {
    "waiver of": lambda waiver: (
        waiver.check + (f" up to {waiver.limit:g}" if waiver.limit is not None else "")
    ),
    "until": "expires",
    "what it does": waiver_state,
    "reason": "reason",
}


def judgements(result: CheckedResult) -> Iterator[Section]:
    """Yield the sections of checks, with many classes by the worst class of each, and of waivers."""
    checks = result.checks
    if any(one.of_class for one in checks):
        from fairfix.report.classes import checks_by_class  # which has parts of this module

        yield checks_by_class(result)
    elif checks:
        title = f"Checks: {MARKS[result.verdict or 'pass']}"
        yield Section(title, (), (TextTable.of(CHECKS, checks, 6, "Checks", 1),), "checks", checks)
    if result.waivers is not None:
        grid = TextTable.of(WAIVERS, result.waivers.waivers, 4, "Waivers")
        yield Section("Waivers", (f"checked on {result.waivers.today}",), (grid,), "waivers")


def read_and_used(result: SavedResult) -> str:
    """Return the numbers of rows that were read and used."""
    rows, count = result.data.rows, result.data.columns.count
    read = f"{rows.read:,} rows read" if not count else f"{rows.read:,} people read (counts: {count})"
    return f"{read}, {rows.used:,} used"


def named_columns(columns: Roles) -> dict[str, str]:
    """Return the columns of each role that there is, in words."""
    roles = {name: getattr(columns, name) for name in columns.__struct_fields__}
    return {name: one if isinstance(one, str) else ", ".join(one) for name, one in roles.items() if one}


def merged_names(merge: Mapping[str, Mapping[str, str]]) -> str:
    """Return in words which names are taken for which: ``race: 'native' is 'Native'``."""
    parts = {
        column: [f"{name!r} is {into!r}" for name, into in names.items() if name != into]
        for column, names in merge.items()
    }
    return "; ".join(f"{column}: {', '.join(own)}" for column, own in parts.items() if own)


def data_lines(result: SavedResult, split: str = "") -> Iterator[str]:
    """Yield how the data was read: rows and their split, columns, positive values, merged names and the threshold."""
    data, settings = result.data, result.settings
    left_out = (f"; {e.rows:,} left out: {e.reason}" for e in data.rows.excluded if e.rows)
    yield read_and_used(result) + split + "".join(left_out)
    roles = named_columns(data.columns)
    if roles:
        inferred = dict.fromkeys(data.inferred, " (inferred)")
        yield "columns: " + "; ".join(
            f"{part} {name}{inferred.get(part, '')}" for part, name in roles.items()
        )
    positive = {"label": settings.positive_label, "prediction": settings.positive_prediction}
    for part, names in positive.items():
        if part in roles and names:
            yield f"{part} {' or '.join(map(repr, names))} is positive, all others are negative"
    if settings.label_threshold is not None and "label" in roles:
        condition = f"{roles['label']}{settings.label_threshold}"
        yield f"label {condition!r} is positive, all others are negative"
    if where := settings.where:
        yield f"rows where {where}"
    if text := merged_names(settings.merge):
        yield f"merged names of {text}"
    if cut := cut_words(settings):
        yield f"a decision is positive at score >= {cut} (scale: {settings.score_scale})"


def pairs(parameters: Mapping[str, Any]) -> str:
    """Return parameters with their values in one line."""
    return ", ".join(f"{name} {value}" for name, value in parameters.items() if value != "")
