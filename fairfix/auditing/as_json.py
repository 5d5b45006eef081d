"""The JSON form of an audit, ``fairfix.audit/1``; every report is rendered from it.

Undefined numbers are ``null`` with a ``reason``. The schemas are in ``fairfix/report/*.schema.json``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from functools import cache
from itertools import pairwise
from typing import Any

from fairfix import __version__
from fairfix.auditing.checks import OPERATORS, SEVERITIES, worst
from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.metrics import METRICS
from fairfix.auditing.results import (
    AuditReport,
    Block,
    CheckResult,
    ComparisonReport,
    Figure,
    GroupReport,
    NoiseReport,
    Value,
)
from fairfix.data import codec
from fairfix.data.choices import GateOn
from fairfix.data.codec import LARGEST, Json, holding, list_of, map_of, need, or_none, text, whole
from fairfix.data.reading import Reading

AUDIT_SCHEMA = "fairfix.audit/1"
CLASSES_SCHEMA = "fairfix.classes/1"

ROUNDED = 1e-9
"""By how much sums in floating point may be off, such as a share that is a little above 1."""


def _value(low: float, high: float) -> Json:
    """Return what takes the JSON form of a value between its limits, all of them in a range or null."""
    form = holding(**dict.fromkeys(("low", "value", "high"), or_none(codec.number(low, high))))

    def take(entry: Any) -> Any:
        ends = [form(entry)[name] for name in ("low", "value", "high") if entry[name] is not None]
        need(
            all(one <= two + ROUNDED * max(abs(one), 1.0) for one, two in pairwise(ends)),
            f"{ends} are not a value between its limits",
        )
        return entry

    return take


def _figure_of(name: str) -> Json:
    """Return what takes the value of a metric of a group, or of a comparison of it, by its text form."""
    shares = (entry := METRICS.get(name.partition(".")[0])) is not None and entry.scale == "share"
    if not shares or ".ratio" in name:
        return _value(-LARGEST, LARGEST)
    return _value(-1.0 - ROUNDED, 1.0 + ROUNDED) if "." in name else _value(-ROUNDED, 1.0 + ROUNDED)


SETTLED = {"beyond_limit": "fail", "within_limit": "pass", "unchanged": "pass"}
"""Code of a check -> its verdict; those of other codes are undecided."""


def judged_check(entry: Any) -> Any:
    """Take the JSON form of a judged check whose verdict is that of its interval."""
    check = map_of(codec.as_is)(entry)
    verdict, code = check.get("verdict"), check.get("code")
    if verdict == "waived" or code is None:
        return check
    need(verdict == SETTLED.get(code, "undecided"), f"a check is {verdict!r} where its code is {code!r}")
    if code in ("beyond_limit", "within_limit", "limit_inside") and "operator" in check:
        ends = [check.get(name) for name in ("low", "high")]
        if check.get("gate_on") == "point":
            off = check.get("bound", 0.0)
            ends = [check["value"] - off, check["value"] + off]
        low, high = (
            end if one is None else one for one, end in zip(ends, (-math.inf, math.inf), strict=True)
        )
        beyond = [not OPERATORS[check["operator"]](end, check["limit"]) for end in (low, high)]
        right = "beyond_limit" if all(beyond) else "limit_inside" if any(beyond) else "within_limit"
        need(code == right, f"a check is {verdict!r} at {low} to {high}, where its limit is {check['limit']}")
    return check


def require_once(entries: list[Any], name: str) -> None:
    """Raise a ValueError where two of the entries have one name."""
    names = [entry[name] for entry in entries]
    need(len({*names}) == len(names), f"a {name} occurs twice")


def _block_once(entry: Any) -> Any:
    """Take the JSON form of a block, with every group and comparison once."""
    block = _BLOCK(entry)
    require_once(block["groups"], "group")
    require_once(block["comparisons"], "id")
    return block


def _sound_audit(entry: Any) -> Any:
    """Take a saved audit whose parts fit: rows, groups, checks."""
    result = _AUDIT(entry)
    rows, checks = result["data"]["rows"], result["checks"]
    left_out = sum(one.get("rows", 0) for one in rows.get("excluded", ()))
    need(rows["used"] + left_out <= rows["read"], "more rows were used and left out than were read")
    require_once(result["attributes"], "attribute")
    for block in result["attributes"]:
        many = sum(group["rows"] for group in block["groups"])
        need(
            many <= rows["used"], f"the groups of {block['attribute']} have {many:,} rows of {rows['used']:,}"
        )
    if result.get("schema") == AUDIT_SCHEMA and all("verdict" in check for check in checks):
        right = worst(check["verdict"] for check in checks)
        need(
            result.get("verdict") == right,
            f"the verdict is {result.get('verdict')!r}, but that of the checks is {right!r}",
        )
    return result


_BLOCK = holding(
    attribute=text,
    columns=list_of(text),
    groups=list_of(
        holding(
            group=text,
            rows=whole(),
            metrics=lambda entry: holding(**{name: _figure_of(name) for name in map_of(codec.as_is)(entry)})(
                entry
            ),
        )
    ),
    comparisons=list_of(lambda entry: _figure_of(holding(id=text)(entry)["id"])(entry)),
)

_AUDIT = holding(
    fairfix=text,
    data=holding(
        source=text,
        rows=holding(read=whole(), used=whole()),
        weight=codec.number(0.0),
        columns=map_of(codec.as_is),
    ),
    settings=holding(
        task=text,
        score_scale=text,
        confidence=codec.number(0.0, 1.0),
        threshold=or_none(codec.number()),
        reference=map_of(text),
    ),
    checks=list_of(judged_check),
    attributes=list_of(_block_once),
    strata=list_of(_block_once),
    definitions=map_of(text),
)
SAVED_AUDIT = _sound_audit
"""Takes a saved audit, before it is compared with a new one or shown again: its numbers are ones that can be."""

NAMES: Mapping[type, Mapping[str, str]] = {
    GroupReport: {"name": "group"},
    ComparisonReport: {"at": "at_score"},
    Block: {"true_groups": ""},
    Figure: {"group": "", "other": "other_transport"},
}
"""Class -> field -> its name in JSON where it has another; empty for a field that is not written."""


def number(value: float) -> float | None:
    """Return a number JSON has; NaN and infinities become null."""
    return float(value) if math.isfinite(value) else None


@cache
def _entries(kind: type) -> tuple[tuple[str, str, Any], ...]:
    """Return (field, name in JSON, default) of the fields of a dataclass that are written."""
    names = ((one, NAMES.get(kind, {}).get(one.name, one.name)) for one in fields(kind))
    return tuple(
        (one.name, name, one.default if one.default_factory is MISSING else one.default_factory())
        for one, name in names
        if name
    )


def form(thing: Any) -> Any:
    """Return the JSON form of a thing: of a dataclass its fields, without those at their default.

    A value of a dataclass stands with its limits among the other fields, comparisons in a list.
    """
    if isinstance(thing, float):
        return number(thing)
    if thing is None or isinstance(thing, (str, int)):
        return thing
    if isinstance(thing, Mapping):
        return {name: form(entry) for name, entry in thing.items()}
    if isinstance(thing, (list, tuple)):
        return [form(entry) for entry in thing]
    if type(thing) is Value:  # most of a report, so not field by field
        out = {"value": number(thing.value), "low": number(thing.low), "high": number(thing.high)}
        more: dict[str, Any] = {"reason": thing.reason, "bound": number(thing.bound) if thing.bound else 0.0}
        if thing.given_scores is not None:
            more["given_scores"] = list(thing.given_scores)
        return out | {name: entry for name, entry in more.items() if entry or entry is None}
    out = {}
    for field, name, default in _entries(thing.__class__):
        entry = getattr(thing, field)
        if entry == default:
            continue
        if isinstance(entry, Value):
            out |= form(entry)
        else:
            out[name] = form(list(entry.values()) if name == "comparisons" else entry)
    return out


def value_of(entry: Mapping[str, Any]) -> Value:
    """Return the value in a JSON form; what is null there is NaN, or without limit."""
    value, low, high = (entry[name] for name in ("value", "low", "high"))
    return Value(
        math.nan if value is None else value,
        -math.inf if low is None else low,
        math.inf if high is None else high,
        entry.get("reason", ""),
        entry.get("bound", 0.0),
    )


def check_dict(result: CheckResult, gate_on: GateOn) -> dict[str, Any]:
    """Return a judged check."""
    of, ruling, value = result.check.comparison, result.ruling, form(replace(result.value, reason=""))
    return {
        "check": result.check.text,
        "id": result.id,
        "of": result.of,
        "comparison": of.id,
        "attribute": result.attribute,
        "columns": list(result.columns),
        **({"group": of.group} if of.group else {}),
        "verdict": ruling.verdict,
        "severity": SEVERITIES[ruling.verdict],
        "code": ruling.code,
        "reason": ruling.reason,
        "gate_on": gate_on,
        "complete": result.complete,
        "operator": result.check.operator,
        "limit": result.check.limit,
        **value,
        "groups": list(result.groups),
    }


def noise_dict(noise: NoiseReport) -> dict[str, Any]:
    """Return what is reported of true groups."""
    groups = [
        {"group": name, "figures": [_figure(f) for f in noise.figures if f.group == name]}
        for name in noise.true
    ]
    return {
        "attribute": noise.attribute,
        "source": noise.source,
        "rests_on": noise.rests_on,
        "assumptions": dict(noise.stated),
        "unavailable": dict(noise.unavailable),
        "table": {
            "values": noise.form,
            "rows": noise.rows,
            "by_label": noise.by_label,
            "kept": noise.keep,
            "shift": noise.shift,
            "transport_difference": noise.transport_difference,
            "true": list(noise.true),
            "noisy": list(noise.noisy),
            "joint": [list(row) for row in noise.table],
        },
        "radii": [
            {
                "group": name,
                "near": noise.near[name],
                "radius": radius,
                "if_shares_were_equal": noise.conditional_radii.get(name),
            }
            for name, radius in noise.radii.items()
        ],
        "smallest_eps": noise.smallest_eps,
        "vacuous": [{"metric": metric, "group": group} for metric, group in noise.vacuous],
        "groups": groups,
        "comparisons": [_figure(f) for f in noise.figures if not f.group],
        "breakdown": form(noise.breakdowns),
        "resampling": {"replicates": noise.replicates, "seed": noise.seed},
        "notes": list(noise.notes),
        **({"membership": form(noise.membership)} if noise.membership else {}),
    }


def _figure(figure: Figure) -> dict[str, Any]:
    out: dict[str, Any] = form(figure)
    if figure.curve:
        out["curve"] = [dict(zip(("eps", "low", "high"), point, strict=True)) for point in out["curve"]]
    return out


def audit_dict(report: AuditReport) -> dict[str, Any]:
    """Return the JSON form of an audit."""
    used = {c.id for block in report.blocks for c in block.comparisons.values()}
    settings, reading = report.settings, report.reading
    below = settings.suppress_below
    suppressed = {"below": below, "left_out": list(report.left_out)}
    return {
        "schema": AUDIT_SCHEMA,
        "fairfix": __version__,
        "verdict": report.verdict,
        "data": {
            "source": report.source,
            "rows": {
                "read": report.rows_read,
                "used": report.rows_used,
                "excluded": [{"reason": why, "rows": rows} for why, rows in report.excluded.items()],
            },
            "weight": report.weight,
            "columns": columns_dict(reading),
            "inferred": dict(report.inferred),
            "model": dict(report.model),
        },
        "settings": {
            **reading_dict(reading),
            "confidence": settings.confidence,
            "gate_on": settings.gate_on,
            "exact": settings.exact,
            "reference": dict(settings.reference),
            **({"suppress_below": below} if below else {}),
        },
        **({"suppressed": suppressed} if below else {}),
        "checks": [check_dict(result, settings.gate_on) for result in report.checks],
        "overall": form(report.overall),
        "pooled_median": report.pooled_median,
        "attributes": [form(block) for block in report.blocks if not block.stratum],
        "strata": [form(block) for block in report.blocks if block.stratum],
        **({"noise": noise_dict(report.noise)} if report.noise else {}),
        "not_computed": [
            {"metric": name, "reason": why} for name, why in sorted(report.not_computed.items())
        ],
        "definitions": {name: Comparison.parse(name).definition for name in sorted(used)},
    }


def columns_dict(reading: Reading) -> dict[str, Any]:
    """Return which column is what."""
    parts = ("protected", "label", "score", "prediction", "probability", "weight", "count", "strata")
    return {part: form(name) for part in parts if (name := getattr(reading.columns, part))}


def reading_dict(reading: Reading) -> dict[str, Any]:
    """Return how labels and scores are read; a positive value is there where it is not the 1 of 0/1."""
    cut = {name: list(edges) for name, edges in reading.bands.items() if edges}
    positive = {name: getattr(reading, name) for name in ("positive_label", "positive_prediction")}
    return {
        "task": reading.task,
        "score_scale": reading.score_scale,
        "threshold": reading.threshold,
        **{name: list(levels) for name, levels in positive.items() if levels},
        **({"label_threshold": reading.label_threshold} if reading.label_threshold else {}),
        **({"where": reading.where} if reading.where else {}),
        **({"bands": cut} if cut else {}),
        **({"merge": {name: dict(names) for name, names in reading.merge.items()}} if reading.merge else {}),
    }
