"""The JSON form of an audit, ``fairfix.audit/1``; every report is rendered from it.

Undefined numbers are ``null`` with a ``reason``. :mod:`fairfix.schema` describes it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from functools import cache
from typing import Any

from fairfix import __version__
from fairfix.auditing.checks import SEVERITIES
from fairfix.auditing.comparisons import Comparison
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
from fairfix.data.choices import GateOn
from fairfix.data.reading import Reading

AUDIT_SCHEMA = "fairfix.audit/1"
CLASSES_SCHEMA = "fairfix.classes/1"

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
