"""Results as data frames: one row per number, for plots and tables of one's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairfix.auditing.checks import named
from fairfix.errors import UsageError
from fairfix.report.layout import kind_of, parted
from fairfix.schema.audit import Audit
from fairfix.schema.common import NOTHING, Block, Change, CheckedResult, NotComparable, Number, SavedResult
from fairfix.schema.compare import Compare, Models, Point
from fairfix.schema.repair import EvaluationRow, Repair
from fairfix.schema.slices import Slices
from fairfix.schema.trend import Trend

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]
Table = tuple[tuple[str, ...], Callable[[Any], Iterator[Row]]]

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
    """Return the tables of a result by name: the columns of each, and a function of the result that yields its rows."""
    tables = TABLES[kind_of(result)]
    if getattr(result, "classes", ()):
        return tables
    return {
        k: (tuple(name for name in names if name != "class"), rows) for k, (names, rows) in tables.items()
    }


@dataclass(frozen=True)
class Gap:
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


def gap(result: SavedResult, name: str, attribute: str | None = None, when: str = "after") -> Gap:
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
    numbers = _numbers(one)
    value, low, high = (numbers[part] for part in NUMBERS)
    return Gap(of.id, found_by, value, low, high, groups, numbers["reason"])


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
                **{
                    ("before", metric): _numbers(both.before)["value"]
                    for metric, both in group.metrics.items()
                },
                **{
                    ("after", metric): _numbers(both.after)["value"] for metric, both in group.metrics.items()
                },
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
            line.id: {
                "before": _numbers(line.before)["value"],
                "after": _numbers(line.after)["value"],
                "change": _numbers(line.change)["value"],
            }
            for line in _held_out(result)
            if not line.attribute
        }
    else:
        keep = (*NUMBERS, "reason")
        metrics = _audited(result).overall.metrics
        lines = {name: {part: _numbers(one)[part] for part in keep} for name, one in metrics.items()}
    return pd.DataFrame.from_dict(lines, orient="index").rename_axis("metric")


def _numbers(value: Number | None, prefix: str = "") -> Row:
    """Return a number, its limits, the certified error of one from bins, and why it is undefined."""
    one = value or NOTHING
    ends = zip(NUMBERS, (one.value, one.low, one.high), strict=True)
    row: Row = {prefix + part: math.nan if end is None else end for part, end in ends}
    return row | {prefix + "bound": one.bound or 0.0, prefix + "reason": one.reason}


def _blocks(result: Audit) -> Iterator[tuple[Block, Row]]:
    """Yield every block with the columns that name it."""
    for name, block in result.blocks:
        yield block, {"class": name, "attribute": block.attribute, "stratum": block.stratum}


def _groups(result: Audit) -> Iterator[Row]:
    for block, where in _blocks(result):
        for group in block.groups:
            counted = {"group": group.group, "rows": group.rows, "weight": group.weight}
            for metric, value in group.metrics.items():
                yield {**where, **counted, "metric": metric, **_numbers(value)}


def _comparisons(result: Audit) -> Iterator[Row]:
    for block, where in _blocks(result):
        for one in block.comparisons:
            between = ", ".join(one.groups)
            yield {**where, "comparison": one.id, "groups": between, **_numbers(one)}


def _per_group(result: Audit) -> Iterator[Row]:
    for block, where in _blocks(result):
        for one in block.comparisons:
            for group, value in one.per_group.items():
                yield {**where, "comparison": one.id, "group": group, **_numbers(value)}


def _checks(result: CheckedResult) -> Iterator[Row]:
    for one in result.checks:
        yield {
            **_numbers(one),
            "check": one.check,
            "attribute": one.attribute,
            "group": one.group,
            "class": one.of_class,
            "verdict": one.verdict,
            "operator": one.operator,
            "limit": one.limit,
            "reason": one.reason,
            "groups": ", ".join(one.groups),
        }


def _true_groups(result: Audit) -> Iterator[Row]:
    if (noise := result.noise) is None:
        return
    groups = [(group.group, figure) for group in noise.groups for figure in group.figures]
    for group, figure in (*groups, *(("", figure) for figure in noise.comparisons)):
        named = {"attribute": noise.attribute, "group": group, "number": figure.name}
        for assumption, bound in figure.bounds.items():
            ends = {"low": bound.outer_low, "high": bound.outer_high, "reason": bound.reason}
            yield {**named, "assumption": assumption, **ends}


def _proof(result: Repair) -> Iterator[Row]:
    for rows, table in (("holdout", _held_out(result)), ("fit", result.proof.fit.table)):
        for line in table:
            row = {"rows": rows, "number": line.id, "attribute": line.attribute or ""}
            row |= _numbers(line.before, "before_") | _numbers(line.after, "after_")
            yield row | _numbers(line.change, "change_")


def _points(result: Compare) -> Iterator[Row]:
    for place, point in enumerate(result.points):
        named: Row = {
            "point": place,
            "method": point.title,
            "slack": math.nan if point.slack is None else point.slack,
            "randomized": math.nan if point.randomized is None else point.randomized,
            "warnings": ", ".join(dict.fromkeys(_warnings(point))),
            "failure": point.failure,
        }
        if (rates := point.selection_rate) is not None:
            named["selection_rate_before"] = _numbers(rates.before)["value"]
            named["selection_rate_after"] = _numbers(rates.after)["value"]
        for kind, numbers in (("gap", point.gaps), ("quality", point.qualities)):
            for name, value in numbers.items():
                number, attribute = parted(name)
                where = {"number": number, "attribute": attribute.strip("[]")}
                yield {**named, "kind": kind, **where, **_numbers(value)}
        if point.failure:
            yield {**named, "kind": "", "number": "", "attribute": "", **_numbers(None)}


def _slices(result: Audit | Slices) -> Iterator[Row]:
    for one in () if result.slices is None else result.slices.slices:
        proposed = one.proposed
        yield {
            **_numbers(one),
            "where": one.where,
            "rows": one.rows,
            "shown": one.shown,
            "command": one.command,
            "error": math.nan if one.error is None else one.error,
            "proposed_rows": math.nan if proposed is None else proposed.rows,
            "proposed_value": math.nan if proposed is None else proposed.value,
        }


def _gap_parts(result: Audit) -> Iterator[Row]:
    for gap in () if result.explained_gaps is None else result.explained_gaps.gaps:
        named = {"attribute": gap.attribute, "metric": gap.metric, "groups": ", ".join(gap.groups)}
        for part in gap.parts:
            yield {**named, "columns": ", ".join(part.columns), **_numbers(part)}
        if gap.rest is not None:
            yield {**named, "columns": "", **_numbers(gap.rest)}


def _changes(result: Models | CheckedResult) -> Iterator[Row]:
    changes: tuple[Change | NotComparable, ...] = ()
    if isinstance(result, Models):
        changes = (*result.qualities, *result.changes, *result.not_comparable)
    elif (baseline := getattr(result, "baseline", None)) is not None:
        changes = (*baseline.changes, *baseline.not_comparable)
    for one in changes:
        row = {"number": one.comparison or one.id, "attribute": one.attribute or "", "group": one.group}
        if isinstance(one, NotComparable):
            yield row | {"change_reason": one.reason}
        else:
            yield row | _numbers(one.old, "baseline_") | _numbers(one.new, "now_") | _numbers(one, "change_")


def _waivers(result: CheckedResult) -> Iterator[Row]:
    for one in () if result.waivers is None else result.waivers.waivers:
        limit = math.nan if one.limit is None else one.limit
        yield {
            "check": one.check,
            "state": one.state,
            "reason": one.reason,
            "expires": one.expires,
            "limit": limit,
        }


def _messages(result: SavedResult) -> Iterator[Row]:
    for one in result.messages:
        yield {"severity": one.severity, "code": one.code, "text": one.text}


def _groups_of_models(result: Models) -> Iterator[Row]:
    for one in result.groups:
        row = {"attribute": one.attribute, "group": one.group, "metric": one.metric, "rows": one.rows}
        yield row | _numbers(one.old, "baseline_") | _numbers(one.new, "now_")


def _trend(result: Trend) -> Iterator[Row]:
    for one in result.lines:
        for moment, value in zip(result.moments, one.series, strict=True):
            yield {
                **_numbers(value),
                **{name: getattr(one, name) for name in ("comparison", "attribute", "group", "check")},
                **{name: getattr(moment, name) for name in ("file", "date", "rows")},
                "groups": ", ".join(value.groups),
                "verdict": value.verdict or "",
            }


def _unjoined(result: Trend) -> Iterator[Row]:
    for moment in result.moments:
        for one in moment.not_comparable:
            yield {"file": moment.file, "number": one.id, "reason": one.reason}


def _warnings(point: Point) -> Iterator[str]:
    return (one.code for one in point.messages if one.severity == "warning")


def _people(result: Compare) -> Iterator[Row]:
    for place, point in enumerate(result.points):
        slack = math.nan if point.slack is None else point.slack
        named: Row = {"point": place, "method": point.title, "slack": slack}
        for block in point.people:
            for group in block.groups:
                row = {**named, "attribute": block.attribute, "group": group.group, "rows": group.rows}
                row["up"] = math.nan if group.up is None else group.up
                row["down"] = math.nan if group.down is None else group.down
                for metric, both in group.metrics.items():
                    ends = _numbers(both.before, "before_") | _numbers(both.after, "after_")
                    yield {**row, "metric": metric, **ends}


_BLOCK = ("class", "attribute", "stratum")
_ENDS = (*NUMBERS, "bound", "reason")

_OF_SLICES = (
    (
        *("where", "rows", *NUMBERS, "error", "shown", "proposed_rows", "proposed_value"),
        "command",
    ),
    _slices,
)

_CHANGED = tuple(f"{when}{part}" for when in ("baseline_", "now_", "change_") for part in _ENDS)

_CHANGES: Table = (("number", "attribute", "group", *_CHANGED), _changes)
_WAIVERS: Table = (("check", "state", "reason", "expires", "limit"), _waivers)
_MESSAGES: Table = (("severity", "code", "text"), _messages)

TABLES: Mapping[str, Mapping[str, Table]] = {
    "audit": {
        "groups": ((*_BLOCK, "group", "metric", *_ENDS, "rows", "weight"), _groups),
        "comparisons": ((*_BLOCK, "comparison", *_ENDS, "groups"), _comparisons),
        "per_group": ((*_BLOCK, "comparison", "group", *_ENDS), _per_group),
        "checks": (
            (
                *("check", "attribute", "group", "class", "verdict"),
                *(*NUMBERS, "bound", "operator", "limit", "groups", "reason"),
            ),
            _checks,
        ),
        "true_groups": (
            ("attribute", "group", "number", "assumption", "low", "high", "reason"),
            _true_groups,
        ),
        "slices": _OF_SLICES,
        "gap_parts": (("attribute", "metric", "groups", "columns", *_ENDS), _gap_parts),
        "changes": _CHANGES,
        "waivers": _WAIVERS,
        "messages": _MESSAGES,
    },
    "slices": {"slices": _OF_SLICES, "messages": _MESSAGES},
    "trend": {
        "trend": (
            (
                *("comparison", "attribute", "group", "check", "file", "date", *_ENDS),
                *("groups", "verdict", "rows"),
            ),
            _trend,
        ),
        "not_comparable": (("file", "number", "reason"), _unjoined),
    },
    "models": {
        "changes": _CHANGES,
        "groups": (
            ("attribute", "group", "metric", *(name for name in _CHANGED if "change" not in name), "rows"),
            _groups_of_models,
        ),
        "messages": _MESSAGES,
    },
    "repair": {
        "proof": (
            (
                *("rows", "number", "attribute"),
                *(f"{when}_{part}" for when in ("before", "after", "change") for part in _ENDS),
            ),
            _proof,
        ),
        "messages": _MESSAGES,
    },
    "compare": {
        "points": (
            (
                *("point", "method", "slack", "kind", "number", "attribute", *_ENDS),
                *("selection_rate_before", "selection_rate_after", "randomized", "warnings", "failure"),
            ),
            _points,
        ),
        "people": (
            (
                *("point", "method", "slack", "attribute", "group", "rows", "up", "down", "metric"),
                *(f"{when}_{part}" for when in ("before", "after") for part in _ENDS),
            ),
            _people,
        ),
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
