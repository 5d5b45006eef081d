"""Results as data frames: one row per number, for plots and tables of one's own; made from the JSON form."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairfix.auditing.checks import named
from fairfix.errors import UsageError
from fairfix.report.layout import Json, kind_of, parted

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]

NUMBERS = ("value", "low", "high")
FLOATS = (*NUMBERS, "bound", "limit", "slack", "weight")


def frame(result: Json, of: str | None = None) -> pd.DataFrame:
    """Return a table of a result's JSON form.

    Parameters
    ----------
    result
        JSON form of an audit, a repair or a comparison of methods.
    of
        Which table, one of :data:`TABLES` for this kind of result; the first by default.

    Returns
    -------
    A row per number. ``value``, ``low`` and ``high`` are floats: NaN where a value is undefined, for the ``reason``
    that stands beside it, or where an interval has no limit on that side. ``bound`` is the certified numerical error of
    a value from counts, 0 where it is exact.

    Raises
    ------
    UsageError
        This kind of result has no such table.
    """
    import pandas as pd

    kind = kind_of(result)
    tables = TABLES[kind]
    of = next(iter(tables)) if of is None else of
    if of not in tables:
        raise UsageError(f"`of`: unknown table {of!r}; the tables of {NAMES[kind]} are {', '.join(tables)}")
    columns, rows = tables[of]
    out = pd.DataFrame.from_records(list(rows(result)), columns=list(columns))
    return out.astype({name: float for name in columns if name.rpartition("_")[2] in FLOATS})


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


def gap(result: Json, name: str, attribute: str | None = None, when: str = "after") -> Gap:
    """Return a comparison of groups, such as ``dp``, ``dp.ratio``, or ``ks[race]``.

    A metric alone is its difference. A repair has its gaps on held-out rows, ``before`` and ``after`` it, and their
    ``change``. Raises a UsageError where the result has no such comparison, or several attributes have it.
    """
    try:
        of = named(name)
    except UsageError:
        of = named(f"{name}.difference")
    rows: list[Json]
    if _with_groups(result) == "repair":
        table = result["proof"].get("holdout", {}).get("table", ())
        rows = [line | line.get(when, {}) for line in table if line["attribute"]]
    else:
        blocks = result["attributes"]
        rows = [one | {"attribute": block["attribute"]} for block in blocks for one in block["comparisons"]]
    attributes, wanted = list(dict.fromkeys(row["attribute"] for row in rows)), attribute or of.attribute
    if wanted and wanted not in attributes:
        raise UsageError(f"`attribute={wanted}`: not in this result; it has {', '.join(attributes)}")
    fitting = [row for row in rows if row["id"] == of.id and wanted in (None, row["attribute"])]
    if not fitting:
        raise UsageError(f"this result has no {of.id}; it has {', '.join({row['id']: '' for row in rows})}")
    if len(fitting) > 1:
        raise UsageError(f"`attribute`: name one of {', '.join(attributes)}")
    (row,) = fitting
    numbers = _numbers(row)
    value, low, high = (numbers[part] for part in NUMBERS)
    return Gap(of.id, row["attribute"], value, low, high, tuple(row.get("groups", ())), numbers["reason"])


def _with_groups(result: Json) -> str:
    """Return the kind of a result that has groups; UsageError where it has none."""
    kind = kind_of(result)
    if kind in ("audit", "classes", "repair"):
        return kind
    raise UsageError(f"{NAMES.get(kind, 'this result')} has several candidates; use to_frame()")


def by_group(result: Json) -> pd.DataFrame:
    """Return the metrics of each group: a row per attribute and group, a column per metric.

    A repair has them on held-out rows, in columns ``before`` and ``after``; a multiclass audit for each class.
    """
    import pandas as pd

    kind = _with_groups(result)
    if kind == "repair":
        blocks = result["proof"].get("holdout", {}).get("people", ())
        cells = {
            (block["attribute"], group["group"]): {
                (when, metric): _numbers(both[when])["value"]
                for when in ("before", "after")
                for metric, both in group["metrics"].items()
            }
            for block in blocks
            for group in block["groups"]
        }
        return pd.DataFrame.from_dict(cells, orient="index").rename_axis(["attribute", "group"])
    rows = frame(result, "groups")
    index = [*(("class",) if kind == "classes" else ()), "attribute", "group"]
    wide = rows[rows["stratum"] == ""].pivot(index=index, columns="metric", values="value")
    return wide[list(dict.fromkeys(rows["metric"]))].rename_axis(columns=None)


def overall(result: Json) -> pd.DataFrame:
    """Return the metrics of all rows together: a row per metric.

    The columns are ``value``, ``low``, ``high`` and ``reason``; of a repair ``before``, ``after`` and ``change``.
    """
    import pandas as pd

    if _with_groups(result) == "repair":
        table = result["proof"].get("holdout", {}).get("table", ())
        parts = ("before", "after", "change")
        lines = {
            line["id"]: {when: _numbers(line.get(when))["value"] for when in parts}
            for line in table
            if not line["attribute"]
        }
    else:
        keep = (*NUMBERS, "reason")
        metrics = result["overall"]["metrics"]
        lines = {name: {part: _numbers(one)[part] for part in keep} for name, one in metrics.items()}
    return pd.DataFrame.from_dict(lines, orient="index").rename_axis("metric")


def _numbers(value: Json | None, prefix: str = "") -> Row:
    """Return a number, its limits, the certified error of one from bins, and why it is undefined."""
    value = value or {}
    row = {prefix + part: math.nan if value.get(part) is None else value[part] for part in NUMBERS}
    return row | {prefix + "bound": value.get("bound", 0.0), prefix + "reason": value.get("reason", "")}


def _blocks(result: Json) -> Iterator[tuple[Json, Row]]:
    """Yield every attribute, over everybody and in each stratum, with the columns that name it."""
    for block in (*result["attributes"], *result["strata"]):
        yield block, {"attribute": block["attribute"], "stratum": block.get("stratum", "")}


def _groups(result: Json) -> Iterator[Row]:
    for block, where in _blocks(result):
        for group in block["groups"]:
            counted = {part: group[part] for part in ("group", "rows", "weight")}
            for metric, value in group["metrics"].items():
                yield {**where, **counted, "metric": metric, **_numbers(value)}


def _comparisons(result: Json) -> Iterator[Row]:
    for block, where in _blocks(result):
        for one in block["comparisons"]:
            between = ", ".join(one["groups"])
            yield {**where, "comparison": one["id"], "groups": between, **_numbers(one)}


def _of_classes(rows: Callable[[Json], Iterator[Row]]) -> Callable[[Json], Iterator[Row]]:
    """Return what yields rows of all classes together, whose class is empty, then of each class."""

    def each(result: Json) -> Iterator[Row]:
        for one in ({**result, "class": ""}, *result["classes"]):
            yield from ({"class": one["class"], **row} for row in rows(one))

    return each


def _checks(result: Json) -> Iterator[Row]:
    for check in result["checks"]:
        named = {part: check.get(part, "") for part in ("check", "attribute", "group", "class", "verdict")}
        judged = {part: check[part] for part in ("operator", "limit", "reason")}
        yield {**_numbers(check), **named, **judged, "groups": ", ".join(check["groups"])}


def _true_groups(result: Json) -> Iterator[Row]:
    noise = result.get("noise")
    if not noise:
        return
    attribute = noise["attribute"]
    groups = [(group["group"], figure) for group in noise["groups"] for figure in group["figures"]]
    for group, figure in (*groups, *(("", figure) for figure in noise["comparisons"])):
        for assumption, bound in figure["bounds"].items():
            ends = {
                "low": bound["outer_low"],
                "high": bound["outer_high"],
                "reason": bound.get("reason", ""),
            }
            named = {"attribute": attribute, "group": group, "number": figure["name"]}
            yield {**named, "assumption": assumption, **ends}


def _proof(result: Json) -> Iterator[Row]:
    for rows in ("holdout", "fit"):
        for line in result["proof"].get(rows, {}).get("table", ()):
            row = {"rows": rows, "number": line["id"], "attribute": line["attribute"] or ""}
            for when in ("before", "after", "change"):
                row |= _numbers(line.get(when), f"{when}_")
            yield row


def _points(result: Json) -> Iterator[Row]:
    for place, point in enumerate(result["points"]):
        named = {
            "point": place,
            "method": point["title"],
            "slack": math.nan if point["slack"] is None else point["slack"],
            "randomized": point.get("randomized", math.nan),
            "warnings": ", ".join(dict.fromkeys(_warnings(point))),
            "failure": point.get("failure", ""),
        }
        for when, value in point.get("selection_rate", {}).items():
            named[f"selection_rate_{when}"] = math.nan if value["value"] is None else value["value"]
        for kind, part in (("gap", "gaps"), ("quality", "qualities")):
            for name, value in point.get(part, {}).items():
                number, attribute = parted(name)
                where = {"number": number, "attribute": attribute.strip("[]")}
                yield {**named, "kind": kind, **where, **_numbers(value)}
        if "failure" in point:
            yield {**named, "kind": "", "number": "", "attribute": "", **_numbers(None)}


def _warnings(point: Json) -> Iterator[str]:
    return (one["code"] for one in point.get("messages", ()) if one["severity"] == "warning")


def _people(result: Json) -> Iterator[Row]:
    for place, point in enumerate(result["points"]):
        named = {"point": place, "method": point["title"]}
        named["slack"] = math.nan if point["slack"] is None else point["slack"]
        for block in point.get("people", ()):
            for group in block["groups"]:
                row = {
                    **named,
                    "attribute": block["attribute"],
                    "group": group["group"],
                    "rows": group["rows"],
                }
                row |= {way: group.get(way, math.nan) for way in ("up", "down")}
                for metric, both in group["metrics"].items():
                    ends = [_numbers(both[when], f"{when}_") for when in ("before", "after")]
                    yield {**row, "metric": metric, **ends[0], **ends[1]}


def _slices(result: Json) -> Iterator[Row]:
    for one in result.get("slices", {}).get("slices", ()):
        proposed = one.get("proposed", {})
        row = {part: one[part] for part in ("where", "rows", "shown")} | {"error": one.get("error", math.nan)}
        row |= {f"proposed_{part}": proposed.get(part, math.nan) for part in ("rows", "value")}
        yield {**_numbers(one), **row, "command": one.get("command", "")}


_BLOCK = ("attribute", "stratum")
_ENDS = (*NUMBERS, "bound", "reason")

_OF_SLICES = (
    (
        *("where", "rows", *NUMBERS, "error", "shown", "proposed_rows", "proposed_value"),
        "command",
    ),
    _slices,
)
TABLES: Mapping[str, Mapping[str, tuple[tuple[str, ...], Callable[[Json], Iterator[Row]]]]] = {
    "audit": {
        "groups": ((*_BLOCK, "group", "metric", *_ENDS, "rows", "weight"), _groups),
        "comparisons": ((*_BLOCK, "comparison", *_ENDS, "groups"), _comparisons),
        "checks": (
            (
                *("check", "attribute", "group", "verdict"),
                *(*NUMBERS, "bound", "operator", "limit", "groups", "reason"),
            ),
            _checks,
        ),
        "true_groups": (
            ("attribute", "group", "number", "assumption", "low", "high", "reason"),
            _true_groups,
        ),
        "slices": _OF_SLICES,
    },
    "slices": {"slices": _OF_SLICES},
    "repair": {
        "proof": (
            (
                *("rows", "number", "attribute"),
                *(f"{when}_{part}" for when in ("before", "after", "change") for part in _ENDS),
            ),
            _proof,
        ),
    },
    "classes": {
        "groups": (("class", *_BLOCK, "group", "metric", *_ENDS, "rows", "weight"), _of_classes(_groups)),
        "comparisons": (("class", *_BLOCK, "comparison", *_ENDS, "groups"), _of_classes(_comparisons)),
        "checks": (
            (
                *("check", "attribute", "group", "class", "verdict"),
                *(*NUMBERS, "bound", "operator", "limit", "groups", "reason"),
            ),
            _checks,
        ),
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
    },
}
"""Kind of result -> table -> its columns and its rows."""

NAMES = {
    "audit": "an audit",
    "classes": "a multiclass audit",
    "slices": "a search for slices",
    "repair": "a repair",
    "compare": "a comparison of methods",
}
