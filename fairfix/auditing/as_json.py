"""The JSON form of an audit, ``fairfix.audit/1``; every report is rendered from it.

Undefined numbers are ``null`` with a ``reason``. The schemas are in ``fairfix/report/*.schema.json``.
"""

from __future__ import annotations

import math
from typing import Any

from fairfix import __version__
from fairfix.auditing.checks import record
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
from fairfix.data.choices import GateOn
from fairfix.data.reading import Reading

AUDIT_SCHEMA = "fairfix.audit/1"


def number(value: float) -> float | None:
    """Return a number JSON has; NaN and infinities become null."""
    return float(value) if math.isfinite(value) else None


def present(**entries: Any) -> dict[str, Any]:
    """Return the entries that are neither None nor empty; numbers stay, 0 too."""
    return {
        name: entry
        for name, entry in entries.items()
        if entry or not (entry is None or isinstance(entry, (str, list, dict)))
    }


def value_dict(value: Value) -> dict[str, Any]:
    """Return ``value``, ``low``, ``high`` and, where there is something to say, ``reason`` and ``bound``."""
    ends = {name: number(getattr(value, name)) for name in ("value", "low", "high")}
    return {**ends, **present(reason=value.reason, bound=value.bound or None)}


def _group(group: GroupReport) -> dict[str, Any]:
    return {
        "group": group.name,
        "levels": list(group.levels),
        "rows": group.rows,
        "weight": group.weight,
        "share": group.share,
        "metrics": {name: value_dict(value) for name, value in group.metrics.items()},
        **present(
            calibration=[dict(point) for point in group.calibration], score_deviation=group.score_deviation
        ),
    }


def _comparison(report: ComparisonReport) -> dict[str, Any]:
    return {
        "id": report.id,
        **value_dict(report.value),
        "groups": list(report.groups),
        **present(
            undefined=list(report.undefined),
            stratum=report.stratum,
            at_score=report.at,
            per_group={name: value_dict(value) for name, value in report.per_group.items()},
            pairs=[
                {"groups": list(names), "value": number(value.value), **present(bound=value.bound or None)}
                for names, value in report.pairs.items()
            ],
        ),
    }


def _block(block: Block) -> dict[str, Any]:
    return {
        "attribute": block.attribute,
        "columns": list(block.columns),
        **present(stratum=block.stratum, hidden=block.hidden or None),
        "groups": [_group(group) for group in block.groups],
        "comparisons": [_comparison(report) for report in block.comparisons.values()],
        **present(distribution=block.distribution and _distribution(block.distribution)),
    }


def _distribution(shares: ScoreShares) -> dict[str, Any]:
    gap = {"groups": list(shares.gap_groups), "score": shares.gap_score, "shares": list(shares.gap_shares)}
    return {
        "scores": list(shares.scores),
        "everybody": list(shares.everybody),
        "groups": [{"group": name, "below": list(below)} for name, below in shares.below.items()],
        **present(gap=None if shares.gap_score is None else gap),
    }


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
        **present(membership=noise.membership and _membership(noise.membership)),
    }


def _membership(report: MembershipReport) -> dict[str, Any]:
    numbers = ("vectors", "bins", "smallest_bin", "searched", "held")
    groups = [
        {"group": group, "column": column, "share": report.shares[group]}
        for group, column in report.columns.items()
    ]
    return {"groups": groups, **{name: getattr(report, name) for name in numbers}}


def _figure(figure: Figure) -> dict[str, Any]:
    out: dict[str, Any] = {
        "name": figure.name,
        "recorded": number(figure.recorded),
        "weighted": number(figure.weighted),
        "bounds": {level: _bound(bound) for level, bound in figure.bounds.items()},
        **present(
            naive=figure.naive and [number(end) for end in figure.naive],
            identified=figure.identified,
            standard_error=figure.standard_error,
            other_transport=figure.other and [number(end) for end in figure.other],
            curve=[{"eps": eps, "low": number(low), "high": number(high)} for eps, low, high in figure.curve],
            certain_up_to=figure.certain_up_to,
        ),
    }
    return {name: number(entry) if isinstance(entry, float) else entry for name, entry in out.items()}


def _bound(bound: Bound) -> dict[str, Any]:
    ends = {name: number(getattr(bound, name)) for name in ("low", "high", "outer_low", "outer_high")}
    return {**ends, **present(reason=bound.reason)}


def _breakdown(report: BreakdownReport) -> dict[str, Any]:
    ends = {name: number(getattr(report, name)) for name in ("holds_up_to", "fails_up_to")}
    return {"check": report.check, **ends}


def audit_dict(report: AuditReport) -> dict[str, Any]:
    """Return the JSON form of an audit."""
    used = {c.id for block in report.blocks for c in block.comparisons.values()}
    return {
        "schema": AUDIT_SCHEMA,
        "fairfix": __version__,
        "verdict": report.verdict,
        "data": _data(report),
        "settings": _settings(report),
        **present(suppressed=_suppressed(report)),
        "checks": [check_dict(result, report.settings.gate_on) for result in report.checks],
        "overall": _group(report.overall),
        "pooled_median": report.pooled_median,
        "attributes": [_block(block) for block in report.blocks if not block.stratum],
        "strata": [_block(block) for block in report.blocks if block.stratum],
        **present(noise=report.noise and noise_dict(report.noise)),
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
    parts = ("protected", "label", "score", "prediction", "probability", "weight", "strata")
    names = {part: getattr(columns, part) for part in parts}
    return {part: list(name) if isinstance(name, tuple) else name for part, name in names.items() if name}


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
        **present(suppress_below=settings.suppress_below or None),
    }


def _suppressed(report: AuditReport) -> dict[str, Any]:
    """Return how many groups are hidden, which attributes are left out, and why."""
    below = report.settings.suppress_below
    return {"below": below, "groups": report.hidden, "left_out": list(report.left_out)} if below else {}
