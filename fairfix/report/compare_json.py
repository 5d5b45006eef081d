"""The JSON form of a comparison, ``fairfix.compare/1``; every other format of it is rendered from this."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fairfix import __version__
from fairfix.compare import ComparisonOutcome, Point
from fairfix.proof import RowCounts
from fairfix.report.json_ import columns_dict, number, reading_dict, value_dict
from fairfix.report.repair_json import message_dict, rows_dict
from fairfix.table import Reading

COMPARE_SCHEMA = "fairfix.compare/1"


def _point(point: Point) -> dict[str, Any]:
    out: dict[str, Any] = {"title": point.title, "slack": _slack(point.slack)}
    if point.failure:
        return {**out, "failure": point.failure}
    return {
        **out,
        "gaps": {name: value_dict(value) for name, value in point.gaps.items()},
        "qualities": {name: value_dict(value) for name, value in point.qualities.items()},
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
