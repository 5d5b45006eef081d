"""The JSON forms of a repair, ``fairfix.repair/1``, and of a comparison of methods, ``fairfix.compare/1``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fairfix import __version__
from fairfix.auditing.as_json import check_dict, columns_dict, form, reading_dict
from fairfix.auditing.multiclass import class_checks
from fairfix.data.reading import Reading
from fairfix.data.row_filter import LEFT_OUT
from fairfix.individual.flips import described
from fairfix.models.repaired import Repaired
from fairfix.tasks.before_after import BeforeAfter, MetricChange
from fairfix.tasks.fit_and_evaluate import Outcome
from fairfix.tasks.group_changes import GroupChange
from fairfix.tasks.messages import message_dict
from fairfix.tasks.multiclass_repair import ClassesBeforeAfter

if TYPE_CHECKING:
    from fairfix.tasks.compare import ComparisonOutcome, Point

REPAIR_SCHEMA = "fairfix.repair/1"
COMPARE_SCHEMA = "fairfix.compare/1"


def _present(**parts: Any) -> dict[str, Any]:
    """Return the parts that there are."""
    return {name: part for name, part in parts.items() if part not in (None, "")}


def _row(row: MetricChange) -> dict[str, Any]:
    return {
        "name": row.name,
        "id": row.id,
        "attribute": row.attribute or None,
        "before": form(row.before),
        "after": form(row.after),
        **_present(change=row.change and form(row.change), delivered=row.delivered, expected=row.expected),
        **_present(unlike=row.unlike),
    }


def _proof(proof: BeforeAfter) -> dict[str, Any]:
    noise = [
        {"attribute": attribute, "mean": mean, "upper": upper}
        for attribute, (mean, upper) in proof.noise.items()
    ]
    out = {"rows": proof.rows, "randomized": proof.randomized, "table": list(map(_row, proof.table))}
    out["noise"] = noise
    out["people"] = [
        {"attribute": attribute, "groups": list(map(_group, groups))}
        for attribute, groups in proof.people.items()
    ]
    if isinstance(proof, ClassesBeforeAfter):
        out["classes"] = [
            {
                "class": one.of_class,
                "attribute": one.attribute,
                "before": form(one.before),
                "after": form(one.after),
            }
            for one in proof.gaps
        ]
        was, now = (report.balanced_accuracy for report in proof.audits)
        out["balanced_accuracy"] = {"before": form(was), "after": form(now)}
    if proof.other:
        out |= {"reading": "drawn" if proof.drawn else "rounded", "other": list(map(_row, proof.other))}
    return out


def _group(one: GroupChange) -> dict[str, Any]:
    metrics = {name: {"before": form(was), "after": form(now)} for name, (was, now) in one.metrics.items()}
    return {"group": one.group, "rows": one.rows, **_present(up=one.up, down=one.down), "metrics": metrics}


def rows_dict(read: int, used: int, excluded: Mapping[str, int], filtered: int = 0) -> dict[str, Any]:
    """Return how many rows came in, how many are used, and why the others are not; ``filtered`` have not come in."""
    every = {LEFT_OUT: filtered, **excluded} if filtered else excluded
    left_out = [{"reason": why, "rows": many} for why, many in every.items()]
    return {"read": read + filtered, "used": used, "excluded": left_out}


def data_dict(
    source: str, rows: Mapping[str, Any], reading: Reading, inferred: Mapping[str, str]
) -> dict[str, Any]:
    """Return the JSON form of what was read; ``rows`` is that of :func:`rows_dict`."""
    return {
        "source": source,
        "rows": rows,
        "columns": columns_dict(reading) | _present(id=reading.columns.id),
        "inferred": dict(inferred),
    }


def repair_dict(
    outcome: Outcome,
    repaired: Repaired,
    source: str,
    rows: Mapping[str, Any],
    inferred: Mapping[str, str],
    fingerprint: str,
) -> dict[str, Any]:
    """Return the JSON form of a repair; ``rows`` is that of :func:`rows_dict`."""
    verdict, settings = outcome.judged.after.verdict, outcome.judged.after.settings
    checks = [check_dict(result, settings.gate_on) for result in outcome.checks]
    if isinstance(outcome.judged, ClassesBeforeAfter):
        of_classes = outcome.judged.audits[1]
        verdict, checks = of_classes.verdict, class_checks(of_classes)
    same = described(outcome.reading.columns.protected, outcome.repairer.comparable_values)
    same += f"; the columns that the copies in {outcome.copies} change" if outcome.copies else ""
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
        "data": {**data_dict(source, rows, outcome.reading, inferred), "fingerprint": fingerprint},
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
        "proof": {
            "fit": _proof(outcome.fit),
            **({} if outcome.holdout is None else {"holdout": _proof(outcome.holdout)}),
        },
        **({} if outcome.guarantee is None else {"guarantee": outcome.guarantee.state()}),
        "rule": [
            {"group": r.group, "scores": list(r.scores), "probabilities": list(r.probabilities)}
            for r in outcome.rule
        ],
        "checks": checks,
        "messages": list(map(message_dict, outcome.messages)),
        "warnings": list(outcome.warnings),
        "notes": list(outcome.notes),
    }


def _point(point: Point) -> dict[str, Any]:
    slack = "inf" if point.slack == math.inf else point.slack
    out: dict[str, Any] = {"title": point.title, "slack": slack}
    if point.failure:
        return {**out, "failure": point.failure}
    return {
        **out,
        "gaps": {name: form(value) for name, value in point.gaps.items()},
        "qualities": {name: form(value) for name, value in point.qualities.items()},
        "surer": {name: form(value) for name, value in point.surer.items()},
        "costs": {name: form(value) for name, value in point.costs.items()},
        "randomized": point.randomized,
        "protected_at_predict": point.needs_protected,
        "front": list(point.front),
        **_selected(point),
        **_present(command=point.command),
        "messages": list(map(message_dict, point.notes)),
        "warnings": [str(note) for note in point.warnings],
        "notes": list(map(str, point.notes)),
    }


def _selected(point: Point) -> dict[str, Any]:
    """Return how many a point selects, before and after, and what it changes for groups."""
    people = [
        {"attribute": attribute, "groups": list(map(_group, groups))}
        for attribute, groups in point.people.items()
    ]
    if point.selected is None:
        return {"people": people}
    was, now = map(form, point.selected)
    return {"selection_rate": {"before": was, "after": now}, "people": people}


def compare_dict(
    outcome: ComparisonOutcome,
    source: str,
    rows: Mapping[str, Any],
    inferred: Mapping[str, str],
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the JSON form of a comparison; ``rows`` is that of :func:`rows_dict`."""
    return {
        "schema": COMPARE_SCHEMA,
        "fairfix": __version__,
        "data": data_dict(source, rows, outcome.reading, inferred),
        "settings": {**reading_dict(outcome.reading), **settings},
        "split": {"fit": outcome.fitted, "holdout": outcome.held},
        "contenders": [
            {"title": title, "parameters": {k: v for k, v in parameters.items() if k != "slack"}}
            for title, parameters in outcome.parameters.items()
        ],
        "points": [_point(point) for point in outcome.points],
        "advice": [
            {"gap": one.gap, "at_most": one.at_most, "quality": one.quality, "point": one.point}
            | _present(refused=one.refused)
            for one in outcome.advice
        ],
    }
