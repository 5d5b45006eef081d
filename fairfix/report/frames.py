"""Results as data frames: one row per number, for plots and tables of one's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairfix.auditing.checks import named
from fairfix.errors import UsageError
from fairfix.report.layout import kind_of
from fairfix.schema.audit import Audit
from fairfix.schema.common import NOTHING, Change, CheckedResult, NotComparable, Number, SavedResult
from fairfix.schema.compare import Compare, Models
from fairfix.schema.repair import EvaluationRow, Repair
from fairfix.schema.slices import Slices
from fairfix.schema.trend import Trend

if TYPE_CHECKING:
    import pandas as pd

Row = tuple[Any, ...]
Table = tuple[tuple[str, ...], Callable[[Any], Iterator[Row]]]
"""Columns of a table, and a function of the result that yields its rows."""

NUMBERS = ("value", "low", "high")
FLOATS = (*NUMBERS, "bound", "limit", "slack", "weight")


def frame(result: SavedResult, of: str | None = None) -> pd.DataFrame:
    """Return a table of a result.

    Parameters
    ----------
    result
        An audit, a repair or a comparison of methods.
    of
        Name of the table, one of :data:`TABLES` for this kind of result; the first by default.

    Returns
    -------
    A row per number. ``value``, ``low`` and ``high`` are floats: NaN where a value is undefined, for the ``reason``
    in its row, or where an interval has no limit on that side. ``bound`` is the certified numerical error of
    a value from counts, 0 where it is exact.

    Raises
    ------
    UsageError
        This kind of result has no such table.
    """
    import pandas as pd

    tables = tables_of(result)
    of = next(iter(tables)) if of is None else of
    if of not in tables:
        raise UsageError(
            f"`of`: unknown table {of!r}; the tables of {NAMES[kind_of(result)]} are {', '.join(tables)}"
        )
    columns, rows = tables[of]
    out = pd.DataFrame.from_records(list(rows(result)), columns=list(columns))
    return out.astype({name: float for name in columns if name.rpartition("_")[2] in FLOATS})


def tables_of(result: SavedResult) -> Mapping[str, Table]:
    """Return the tables of a result by name; the column ``class`` is left out where there are no classes."""
    tables = TABLES[kind_of(result)]
    return (
        tables if getattr(result, "classes", ()) else {k: _without_class(*one) for k, one in tables.items()}
    )


def _without_class(columns: tuple[str, ...], rows: Callable[[Any], Iterator[Row]]) -> Table:
    if "class" not in columns:
        return columns, rows
    at = columns.index("class")
    return columns[:at] + columns[at + 1 :], lambda result: (row[:at] + row[at + 1 :] for row in rows(result))


@dataclass(frozen=True)
class GapRow:
    """A comparison of groups: its value with its interval; NaN where it is undefined, for the reason given."""

    comparison: str
    attribute: str
    value: float
    low: float
    high: float
    groups: tuple[str, ...] = ()
    """The groups that the number is of, where the report names them."""
    reason: str = ""

    def __float__(self) -> float:
        return self.value


def gap(result: SavedResult, name: str, attribute: str | None = None, when: str = "after") -> GapRow:
    """Return a comparison of groups, such as ``dp``, ``dp.ratio``, or ``ks[race]``.

    A metric alone is its difference. A repair has its gaps on held-out rows, ``before`` and ``after`` it, and their
    ``change``. Raises a UsageError where the result has no such comparison, or several attributes have it.
    """
    try:
        of = named(name)
    except UsageError:
        of = named(f"{name}.difference")
    rows: list[tuple[str, str, Number | None, tuple[str, ...]]]
    if isinstance(result, Repair):
        lines = [line for line in _held_out(result) if line.attribute]
        whens = {"before": lambda line: line.before, "change": lambda line: line.change}
        number: Callable[[EvaluationRow], Number | None] = whens.get(when, lambda line: line.after)
        rows = [(line.id, line.attribute or "", number(line), ()) for line in lines]
    else:
        blocks = _audited(result).attributes
        rows = [(one.id, block.attribute, one, one.groups) for block in blocks for one in block.comparisons]
    attributes = list(dict.fromkeys(name for _, name, *_ in rows))
    wanted = attribute or of.attribute
    if wanted and wanted not in attributes:
        raise UsageError(f"`attribute={wanted}`: not in this result; it has {', '.join(attributes)}")
    fitting = [row for row in rows if row[0] == of.id and wanted in (None, row[1])]
    if not fitting:
        raise UsageError(
            f"this result has no {of.id}; it has {', '.join(dict.fromkeys(row[0] for row in rows))}"
        )
    if len(fitting) > 1:
        raise UsageError(f"`attribute`: name one of {', '.join(attributes)}")
    ((_, found_by, one, groups),) = fitting
    value, low, high, _, reason = _numbers(one)
    return GapRow(of.id, found_by, value, low, high, groups, reason)


def _audited(result: SavedResult) -> Audit:
    """Return a result that has groups and is no repair; UsageError where it has none."""
    if isinstance(result, Audit):
        return result
    raise UsageError(f"{NAMES.get(kind_of(result), 'this result')} has several candidates; use to_frame()")


def _held_out(result: Repair) -> tuple[EvaluationRow, ...]:
    return () if result.proof.holdout is None else result.proof.holdout.table


def by_group(result: SavedResult) -> pd.DataFrame:
    """Return the metrics of each group: a row per attribute and group, a column per metric.

    A repair has them on held-out rows, in columns ``before`` and ``after``; a multiclass audit for each class.
    """
    import pandas as pd

    if isinstance(result, Repair):
        blocks = () if result.proof.holdout is None else result.proof.holdout.people
        cells = {
            (block.attribute, group.group): {
                (when, metric): _float(getattr(both, when).value)
                for when in ("before", "after")
                for metric, both in group.metrics.items()
            }
            for block in blocks
            for group in block.groups
        }
        return pd.DataFrame.from_dict(cells, orient="index").rename_axis(["attribute", "group"])
    rows = frame(_audited(result), "groups")
    index = [*(("class",) if "class" in rows else ()), "attribute", "group"]
    wide = rows[rows["stratum"] == ""].pivot(index=index, columns="metric", values="value")
    return wide[list(dict.fromkeys(rows["metric"]))].rename_axis(columns=None)


def overall(result: SavedResult) -> pd.DataFrame:
    """Return the metrics of all rows together: a row per metric.

    The columns are ``value``, ``low``, ``high`` and ``reason``; of a repair ``before``, ``after`` and ``change``.
    """
    import pandas as pd

    if isinstance(result, Repair):
        lines = {
            line.id: {when: _numbers(getattr(line, when))[0] for when in ("before", "after", "change")}
            for line in _held_out(result)
            if not line.attribute
        }
    else:
        lines = {
            name: dict(zip(_ENDS, _numbers(one), strict=True))
            for name, one in _audited(result).overall.metrics.items()
        }
        for line in lines.values():
            del line["bound"]
    return pd.DataFrame.from_dict(lines, orient="index").rename_axis("metric")


def _float(number: Any) -> Any:
    return math.nan if number is None else number


def _numbers(value: Number | None) -> Row:
    """Return a number, its limits, the certified error of one from bins, and why it is undefined; see ``_ENDS``."""
    one = value or NOTHING
    return _float(one.value), _float(one.low), _float(one.high), one.bound or 0.0, one.reason


def _groups(result: Audit) -> Iterator[Row]:
    for name, block in result.blocks:
        for group in block.groups:
            for metric, value in group.metrics.items():
                where = (name, block.attribute, block.stratum, group.group, metric)
                yield (*where, *_numbers(value), group.rows, group.weight)


def _comparisons(result: Audit) -> Iterator[Row]:
    for name, block in result.blocks:
        for one in block.comparisons:
            yield name, block.attribute, block.stratum, one.id, *_numbers(one), ", ".join(one.groups)


def _per_group(result: Audit) -> Iterator[Row]:
    for name, block in result.blocks:
        for one in block.comparisons:
            for group, value in one.per_group.items():
                yield name, block.attribute, block.stratum, one.id, group, *_numbers(value)


def _checks(result: CheckedResult) -> Iterator[Row]:
    for one in result.checks:
        *numbers, reason = _numbers(one)
        asked = (one.operator, one.limit, ", ".join(one.groups))
        yield one.check, one.attribute, one.group, one.of_class, one.verdict, *numbers, *asked, reason


def _true_groups(result: Audit) -> Iterator[Row]:
    if (noise := result.noise) is None:
        return
    groups = [(group.group, figure) for group in noise.groups for figure in group.figures]
    for group, figure in (*groups, *(("", figure) for figure in noise.comparisons)):
        for assumption, bound in figure.bounds.items():
            ends = (bound.outer_low, bound.outer_high, bound.reason)
            yield noise.attribute, group, figure.name, assumption, *ends


def _proof(result: Repair) -> Iterator[Row]:
    for rows, table in (("holdout", _held_out(result)), ("fit", result.proof.fit.table)):
        for line in table:
            numbers = (*_numbers(line.before), *_numbers(line.after), *_numbers(line.change))
            yield rows, line.id, line.attribute or "", *numbers


def _points(result: Compare) -> Iterator[Row]:
    for place, point in enumerate(result.points):
        rates = point.selection_rate
        both = (
            (math.nan, math.nan) if rates is None else (_float(rates.before.value), _float(rates.after.value))
        )
        warnings = dict.fromkeys(one.code for one in point.messages if one.severity == "warning")
        rest = (*both, _float(point.randomized), ", ".join(warnings), point.failure)
        gaps = (("gap", one.gap.comparison, one.gap.attribute, one) for one in point.gaps)
        qualities = (("quality", name, "", value) for name, value in point.qualities.items())
        for *of, value in (*gaps, *qualities):
            yield place, point.title, _float(point.slack), *of, *_numbers(value), *rest
        if point.failure:
            yield place, point.title, _float(point.slack), "", "", "", *_numbers(None), *rest


def _slices(result: Audit | Slices) -> Iterator[Row]:
    for one in () if result.slices is None else result.slices.slices:
        proposed = (math.nan, math.nan) if one.proposed is None else (one.proposed.rows, one.proposed.value)
        rest = (_float(one.error), one.shown, *proposed, one.command)
        yield one.where, one.rows, *_numbers(one)[:3], *rest


def _gap_parts(result: Audit) -> Iterator[Row]:
    for gap in () if result.explained_gaps is None else result.explained_gaps.gaps:
        parts = [(", ".join(part.columns), part) for part in gap.parts]
        for columns, part in (*parts, *([("", gap.rest)] if gap.rest is not None else [])):
            yield gap.attribute, gap.metric, ", ".join(gap.groups), columns, *_numbers(part)


def _changes(result: Models | CheckedResult) -> Iterator[Row]:
    changes: tuple[Change | NotComparable, ...] = ()
    if isinstance(result, Models):
        changes = (*result.qualities, *result.changes, *result.not_comparable)
    elif (baseline := getattr(result, "baseline", None)) is not None:
        changes = (*baseline.changes, *baseline.not_comparable)
    for one in changes:
        if isinstance(one, NotComparable):
            numbers: Row = (*([math.nan] * (len(_CHANGED) - 1)), one.reason)
        else:
            numbers = (*_numbers(one.old), *_numbers(one.new), *_numbers(one))
        yield one.comparison or one.id, one.attribute or "", one.group, *numbers


def _waivers(result: CheckedResult) -> Iterator[Row]:
    for one in () if result.waivers is None else result.waivers.waivers:
        yield one.check, one.state, one.reason, one.expires, _float(one.limit)


def _messages(result: SavedResult) -> Iterator[Row]:
    return ((one.severity, one.code, one.text) for one in result.messages)


def _groups_of_models(result: Models) -> Iterator[Row]:
    for one in result.groups:
        yield one.attribute, one.group, one.metric, *_numbers(one.old), *_numbers(one.new), one.rows


def _trend(result: Trend) -> Iterator[Row]:
    for one in result.lines:
        for moment, value in zip(result.moments, one.series, strict=True):
            where = (one.comparison, one.attribute, one.group, one.check, moment.file, moment.date)
            yield *where, *_numbers(value), ", ".join(value.groups), value.verdict or "", moment.rows


def _unjoined(result: Trend) -> Iterator[Row]:
    return ((one.file, that.id, that.reason) for one in result.moments for that in one.not_comparable)


def _people(result: Compare) -> Iterator[Row]:
    for place, point in enumerate(result.points):
        for block in point.people:
            for group in block.groups:
                who = (block.attribute, group.group, group.rows, _float(group.up), _float(group.down))
                for metric, both in group.metrics.items():
                    numbers = (*_numbers(both.before), *_numbers(both.after))
                    yield place, point.title, _float(point.slack), *who, metric, *numbers


_BLOCK = ("class", "attribute", "stratum")
_ENDS = (*NUMBERS, "bound", "reason")


def _of_each(*whens: str) -> tuple[str, ...]:
    """Return the columns of several numbers."""
    return tuple(f"{when}_{part}" for when in whens for part in _ENDS)


_CHANGED = _of_each("baseline", "now", "change")
_PROPOSED = ("error", "shown", "proposed_rows", "proposed_value", "command")
_JUDGED = ("class", "verdict", *NUMBERS, "bound", "operator", "limit", "groups", "reason")
_OF_POINT = ("selection_rate_before", "selection_rate_after", "randomized", "warnings", "failure")
_OF_LINE = ("comparison", "attribute", "group", "check", "file", "date", *_ENDS, "groups", "verdict", "rows")
_OF_PERSON = ("attribute", "group", "rows", "up", "down", "metric", *_of_each("before", "after"))

_SLICES: Table = (("where", "rows", *NUMBERS, *_PROPOSED), _slices)
_CHANGES: Table = (("number", "attribute", "group", *_CHANGED), _changes)
_MESSAGES: Table = (("severity", "code", "text"), _messages)

TABLES: Mapping[str, Mapping[str, Table]] = {
    "audit": {
        "groups": ((*_BLOCK, "group", "metric", *_ENDS, "rows", "weight"), _groups),
        "comparisons": ((*_BLOCK, "comparison", *_ENDS, "groups"), _comparisons),
        "per_group": ((*_BLOCK, "comparison", "group", *_ENDS), _per_group),
        "checks": (("check", "attribute", "group", *_JUDGED), _checks),
        "true_groups": (
            ("attribute", "group", "number", "assumption", "low", "high", "reason"),
            _true_groups,
        ),
        "slices": _SLICES,
        "gap_parts": (("attribute", "metric", "groups", "columns", *_ENDS), _gap_parts),
        "changes": _CHANGES,
        "waivers": (("check", "state", "reason", "expires", "limit"), _waivers),
        "messages": _MESSAGES,
    },
    "slices": {"slices": _SLICES, "messages": _MESSAGES},
    "trend": {"trend": (_OF_LINE, _trend), "not_comparable": (("file", "number", "reason"), _unjoined)},
    "models": {
        "changes": _CHANGES,
        "groups": (("attribute", "group", "metric", *_of_each("baseline", "now"), "rows"), _groups_of_models),
        "messages": _MESSAGES,
    },
    "repair": {
        "proof": (("rows", "number", "attribute", *_of_each("before", "after", "change")), _proof),
        "messages": _MESSAGES,
    },
    "compare": {
        "points": (
            ("point", "method", "slack", "kind", "number", "attribute", *_ENDS, *_OF_POINT),
            _points,
        ),
        "people": (("point", "method", "slack", *_OF_PERSON), _people),
        "messages": _MESSAGES,
    },
}
"""Kind of result -> table -> its columns and its rows."""

NAMES = {
    "audit": "an audit",
    "slices": "a search for slices",
    "repair": "a repair",
    "compare": "a comparison of methods",
    "models": "a comparison of two models",
    "trend": "a trend",
}
