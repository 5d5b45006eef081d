"""The JSON form of an audit, ``fairfix.audit/1``; every report is rendered from it.

Undefined numbers are ``null`` with a ``reason``. The schemas are in ``fairfix/report/*.schema.json``.
"""

from __future__ import annotations

import math
from typing import Any

from fairfix import __version__
from fairfix.auditing.checks import GateOn, record
from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.results import (
    AuditReport,
    Block,
    Bound,
    BreakdownReport,
    CheckResult,
    ComparisonReport,
    Figure,
    GroupReport,
    MembershipReport,
    NoiseReport,
    ScoreShares,
    Value,
)
from fairfix.data.reading import Reading

AUDIT_SCHEMA = "fairfix.audit/1"


def number(value: float) -> float | None:
    """Return a number JSON has; NaN and infinities become null."""
    return float(value) if math.isfinite(value) else None


def value_dict(value: Value) -> dict[str, Any]:
    """Return ``value``, ``low``, ``high`` and, where there is something to say, ``reason`` and ``bound``."""
    out: dict[str, Any] = {"value": number(value.value), "low": number(value.low), "high": number(value.high)}
    if value.reason:
        out["reason"] = value.reason
    if value.bound:
        out["bound"] = value.bound
    return out


def _group(group: GroupReport) -> dict[str, Any]:
    out: dict[str, Any] = {
        "group": group.name,
        "levels": list(group.levels),
        "rows": group.rows,
        "weight": group.weight,
        "share": group.share,
        "metrics": {name: value_dict(value) for name, value in group.metrics.items()},
    }
    if group.calibration:
        out["calibration"] = [dict(point) for point in group.calibration]
    if group.score_deviation is not None:
        out["score_deviation"] = group.score_deviation
    return out


def _comparison(found: ComparisonReport) -> dict[str, Any]:
    out = {"id": found.id, **value_dict(found.value), "groups": list(found.groups)}
    if found.undefined:
        out["undefined"] = list(found.undefined)
    if found.stratum:
        out["stratum"] = found.stratum
    if found.at is not None:
        out["at_score"] = found.at
    if found.per_group:
        out["per_group"] = {name: value_dict(value) for name, value in found.per_group.items()}
    if found.pairs:
        out["pairs"] = [
            {
                "groups": list(names),
                "value": number(value.value),
                **({"bound": value.bound} if value.bound else {}),
            }
            for names, value in found.pairs.items()
        ]
    return out


def _block(block: Block) -> dict[str, Any]:
    return {
        "attribute": block.attribute,
        "columns": list(block.columns),
        **({"stratum": block.stratum} if block.stratum else {}),
        **({"hidden": block.hidden} if block.hidden else {}),
        "groups": [_group(group) for group in block.groups],
        "comparisons": [_comparison(found) for found in block.comparisons.values()],
        **({"distribution": _distribution(block.distribution)} if block.distribution else {}),
    }


def _distribution(shares: ScoreShares) -> dict[str, Any]:
    out: dict[str, Any] = {
        "scores": list(shares.scores),
        "everybody": list(shares.everybody),
        "groups": [{"group": name, "below": list(below)} for name, below in shares.below.items()],
    }
    if shares.gap_score is not None:
        out["gap"] = {
            "groups": list(shares.gap_groups),
            "score": shares.gap_score,
            "shares": list(shares.gap_shares),
        }
    return out


def check_dict(result: CheckResult, gate_on: GateOn) -> dict[str, Any]:
    """Return a judged check."""
    return record(
        result.check,
        result.ruling,
        of="value",
        attribute=result.attribute,
        columns=result.columns,
        complete=result.complete,
        gate_on=gate_on,
        found=value_dict(result.value),
        groups=result.groups,
    )


def noise_dict(noise: NoiseReport) -> dict[str, Any]:
    """Return what is told of true groups."""
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
            {"group": name, "radius": radius, "if_shares_were_equal": noise.conditional_radii.get(name)}
            for name, radius in noise.radii.items()
        ],
        "smallest_eps": noise.smallest_eps,
        "vacuous": [{"metric": metric, "group": group} for metric, group in noise.vacuous],
        "groups": groups,
        "comparisons": [_figure(f) for f in noise.figures if not f.group],
        "breakdown": [_breakdown(b) for b in noise.breakdowns],
        "resampling": {"replicates": noise.replicates, "seed": noise.seed},
        "notes": list(noise.notes),
        **({} if noise.membership is None else {"membership": _membership(noise.membership)}),
    }


def _membership(found: MembershipReport) -> dict[str, Any]:
    groups = [
        {"group": group, "column": column, "share": found.shares[group]}
        for group, column in found.columns.items()
    ]
    return {
        "groups": groups,
        "vectors": found.vectors,
        "bins": found.bins,
        "smallest_bin": found.smallest_bin,
        "searched": found.searched,
        "held": found.held,
    }


def _figure(figure: Figure) -> dict[str, Any]:
    out: dict[str, Any] = {
        "name": figure.name,
        "recorded": number(figure.recorded),
        "weighted": number(figure.weighted),
        "bounds": {level: _bound(bound) for level, bound in figure.bounds.items()},
    }
    if figure.naive is not None:
        out["naive"] = [number(end) for end in figure.naive]
    if figure.identified is not None:
        out["identified"] = number(figure.identified)
    if figure.standard_error is not None:
        out["standard_error"] = number(figure.standard_error)
    if figure.other is not None:
        out["other_transport"] = [number(end) for end in figure.other]
    if figure.curve:
        out["curve"] = [
            {"eps": eps, "low": number(low), "high": number(high)} for eps, low, high in figure.curve
        ]
    if figure.certain_up_to is not None:
        out["certain_up_to"] = number(figure.certain_up_to)
    return out


def _bound(bound: Bound) -> dict[str, Any]:
    ends = {name: number(getattr(bound, name)) for name in ("low", "high", "outer_low", "outer_high")}
    return {**ends, **({"reason": bound.reason} if bound.reason else {})}


def _breakdown(found: BreakdownReport) -> dict[str, Any]:
    return {
        "check": found.check,
        "holds_up_to": number(found.holds_up_to),
        "fails_up_to": number(found.fails_up_to),
    }


def audit_dict(report: AuditReport) -> dict[str, Any]:
    """Return the JSON form of an audit."""
    noise = {} if report.noise is None else {"noise": noise_dict(report.noise)}
    used = {c.id for block in report.blocks for c in block.comparisons.values()}
    return {
        "schema": AUDIT_SCHEMA,
        "fairfix": __version__,
        "verdict": report.verdict,
        "data": _data(report),
        "settings": _settings(report),
        **_suppressed(report),
        "checks": [check_dict(result, report.settings.gate_on) for result in report.checks],
        "overall": _group(report.overall),
        "pooled_median": report.pooled_median,
        "attributes": [_block(block) for block in report.blocks if not block.stratum],
        "strata": [_block(block) for block in report.blocks if block.stratum],
        **noise,
        "not_computed": [
            {"metric": name, "reason": why} for name, why in sorted(report.not_computed.items())
        ],
        "definitions": {name: Comparison.parse(name).definition for name in sorted(used)},
    }


def _data(report: AuditReport) -> dict[str, Any]:
    """Return what was read, and what its columns are."""
    return {
        "source": report.source,
        "rows": {
            "read": report.rows_read,
            "used": report.rows_used,
            "excluded": [{"reason": why, "rows": rows} for why, rows in report.excluded.items()],
        },
        "weight": report.weight,
        "columns": columns_dict(report.reading),
        "inferred": dict(report.inferred),
        "model": dict(report.model),
    }


def columns_dict(reading: Reading) -> dict[str, Any]:
    """Return which column is what."""
    columns = reading.columns
    named = {
        "protected": list(columns.protected),
        "label": columns.label,
        "score": columns.score,
        "prediction": columns.prediction,
        "probability": columns.probability,
        "weight": columns.weight,
        "strata": list(columns.strata),
    }
    return {part: name for part, name in named.items() if name}


def reading_dict(reading: Reading) -> dict[str, Any]:
    """Return how labels and scores are read."""
    return {"task": reading.task, "score_scale": reading.score_scale, "threshold": reading.threshold}


def _settings(report: AuditReport) -> dict[str, Any]:
    """Return what was asked for."""
    settings = report.settings
    return {
        **reading_dict(report.reading),
        "confidence": settings.confidence,
        "gate_on": settings.gate_on,
        "exact": settings.exact,
        "reference": dict(settings.reference),
        **({"suppress_below": settings.suppress_below} if settings.suppress_below else {}),
    }


def _suppressed(report: AuditReport) -> dict[str, Any]:
    """Return how many groups are hidden, which attributes are left out, and why."""
    if not report.settings.suppress_below:
        return {}
    told = {"below": report.settings.suppress_below, "groups": report.hidden}
    return {"suppressed": {**told, "left_out": list(report.left_out)}}
