"""The JSON forms of a repair, ``fairfix.repair/1``, and of a comparison of methods, ``fairfix.compare/1``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fairfix import __version__
from fairfix.auditing.as_json import check_dict, columns_dict, form, number, reading_dict
from fairfix.data.reading import Reading
from fairfix.individual.flips import described
from fairfix.models.repaired import Repaired
from fairfix.models.trace import Note
from fairfix.tasks.fitting import Outcome, RowCounts
from fairfix.tasks.proof import Proof, ProofRow

if TYPE_CHECKING:
    from fairfix.tasks.compare import ComparisonOutcome, Point

REPAIR_SCHEMA = "fairfix.repair/1"
COMPARE_SCHEMA = "fairfix.compare/1"


def _row(row: ProofRow) -> dict[str, Any]:
    out: dict[str, Any] = {"name": row.name, "id": row.id, "attribute": row.attribute or None}
    out |= {"before": form(row.before), "after": form(row.after)}
    if row.change is not None:
        out["change"] = form(row.change)
    if row.delivered is not None:
        out["delivered"] = row.delivered
    if row.expected is not None:
        out["expected"] = row.expected
    return out


def _proof(proof: Proof) -> dict[str, Any]:
    noise = [
        {"attribute": attribute, "mean": mean, "upper": upper}
        for attribute, (mean, upper) in proof.noise.items()
    ]
    table = [_row(row) for row in proof.table]
    out = {"rows": proof.rows, "randomized": proof.randomized, "table": table, "noise": noise}
    if proof.other:
        out["reading"] = "drawn" if proof.drawn else "rounded"
        out["other"] = [_row(row) for row in proof.other]
    return out


def message_dict(note: Note) -> dict[str, str]:
    """Return what is said, with its code where it has one."""
    code = {"code": note.code} if note.code else {}
    return {"severity": note.severity, **code, "text": str(note)}


def rows_dict(rows: RowCounts) -> dict[str, Any]:
    """Return how many rows came in, how many are used, and why the others are not."""
    excluded = [{"reason": why, "rows": many} for why, many in rows.excluded.items()]
    return {"read": rows.read, "used": rows.used, "excluded": excluded}


def repair_dict(
    outcome: Outcome,
    repaired: Repaired,
    source: str,
    rows: RowCounts,
    inferred: Mapping[str, str],
    fingerprint: str,
) -> dict[str, Any]:
    """Return the JSON form of a repair."""
    verdict, settings = outcome.holdout.after.verdict, outcome.holdout.after.settings
    same = described(outcome.reading.columns.protected, outcome.repairer.comparables)
    individual = outcome.repairer.criterion.startswith("decision_flips")
    return {
        "schema": REPAIR_SCHEMA,
        "fairfix": __version__,
        "verdict": verdict,
        "method": repaired.method,
        "parameters": dict(repaired.parameters),
        "criterion": outcome.criterion,
        **({"does_not_count": same} if individual else {}),
        "seed": repaired.seed,
        "data": {
            "source": source,
            "rows": rows_dict(rows),
            "columns": columns_dict(outcome.reading),
            "inferred": dict(inferred),
            "fingerprint": fingerprint,
        },
        "settings": {
            **reading_dict(outcome.reading),
            "confidence": settings.confidence,
            "gate_on": settings.gate_on,
        },
        "requires": repaired.requires(),
        "split": dict(outcome.sizes),
        "selection": [
            {
                "parameters": ", ".join(f"{name} {value}" for name, value in candidate.parameters.items()),
                "score": candidate.score,
                "chosen": candidate.chosen,
            }
            for candidate in outcome.selection
        ],
        "solution": outcome.predictor.trace.state(),
        "proof": {"fit": _proof(outcome.fit), "holdout": _proof(outcome.holdout)},
        "checks": [check_dict(result, settings.gate_on) for result in outcome.checks],
        "messages": [message_dict(note) for note in outcome.messages],
        "warnings": list(outcome.warnings),
        "notes": list(outcome.notes),
    }


def _point(point: Point) -> dict[str, Any]:
    out: dict[str, Any] = {"title": point.title, "slack": _slack(point.slack)}
    if point.failure:
        return {**out, "failure": point.failure}
    return {
        **out,
        "gaps": {name: form(value) for name, value in point.gaps.items()},
        "qualities": {name: form(value) for name, value in point.qualities.items()},
        "randomized": point.randomized,
        "protected_at_predict": point.needs_protected,
        "front": list(point.front),
        "messages": [message_dict(note) for note in point.notes],
        "notes": [str(note) for note in point.notes],
    }


def _slack(slack: float | None) -> float | str | None:
    return "inf" if slack == math.inf else None if slack is None else number(slack)


def compare_dict(
    outcome: ComparisonOutcome,
    source: str,
    rows: RowCounts,
    inferred: Mapping[str, str],
    settings: Mapping[str, Any],
    reading: Reading,
) -> dict[str, Any]:
    """Return the JSON form of a comparison."""
    return {
        "schema": COMPARE_SCHEMA,
        "fairfix": __version__,
        "data": {
            "source": source,
            "rows": rows_dict(rows),
            "columns": columns_dict(reading),
            "inferred": dict(inferred),
        },
        "settings": {**reading_dict(reading), **settings},
        "split": {"fit": outcome.fitted, "holdout": outcome.held},
        "contenders": [
            {"title": title, "parameters": {k: v for k, v in parameters.items() if k != "slack"}}
            for title, parameters in outcome.parameters.items()
        ],
        "points": [_point(point) for point in outcome.points],
    }
