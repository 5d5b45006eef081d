"""Two models on the same people: the change of every gap and quality from one score to the other, with its interval.

Nothing is fitted. The rows are those that both have a score for, so that what happens to both in common cancels
(:mod:`fairfix.auditing.paired_differences`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fairfix import __version__
from fairfix.auditing.as_json import audit_dict, form, reading_dict
from fairfix.auditing.audit import audit
from fairfix.auditing.baseline import compare as changes_between
from fairfix.auditing.metrics import METRICS
from fairfix.auditing.paired_differences import Changes
from fairfix.auditing.results import AuditReport, Settings
from fairfix.auditing.row_differences import ANY, DECIDED, SHARE, between_limits, change_of
from fairfix.data.table import Table
from fairfix.data.urls import is_dry
from fairfix.errors import UsageError
from fairfix.report.layout import HEADLINES
from fairfix.tasks.as_json import data_dict, rows_dict
from fairfix.tasks.before_after import LOSSES
from fairfix.tasks.changes import baseline_of, both_models
from fairfix.tasks.dataset import open_data, said_of_unused, unsent
from fairfix.tasks.messages import add_messages, of_direction, of_names
from fairfix.tasks.request import CompareRequest
from fairfix.tasks.result import Result
from fairfix.tasks.run_metadata import add_record

MODELS_SCHEMA = "fairfix.models/1"

QUALITIES = ("accuracy", "auc", "log_loss", "square_loss", "absolute_loss", "selection_rate")
"""What is compared over everybody, where both models have it."""

GIVEN = ("selection_rate", "mean_score")
"""What a group gets from a model: the first that there is."""


@dataclass(frozen=True, repr=False)
class ModelsResult(Result):
    """A comparison of two models."""


def compare_models(request: CompareRequest) -> ModelsResult:
    """Compare the score of the request with that of its baseline, on the same rows."""
    if request.noise:
        raise UsageError(
            "`baseline`: leave out the description of noise; two models are compared by the recorded groups"
        )
    said_of_unused(request)
    data, base = open_data(request), baseline_of(request.baseline)
    assert base is not None
    base = base.among(data.source.columns)
    columns = data.reading.columns
    if not columns.score or columns.prediction:
        raise UsageError(
            "two models are compared by their scores; name the first with `score`, the other with `baseline`"
        )
    both = both_models(request, data, base)
    if is_dry():
        unsent(*both.steps)
    matched, new = both.matched()
    reading, sources = both.readings[1], both.sources
    used = rows_dict(new.rows.read, len(matched.new), _left_out(new, len(matched.new)), data.source.left_out)
    old, new = matched.old, matched.new
    settings = Settings(confidence=request.confidence, intersect=len(columns.protected) > 1)
    reports = [audit(table, table.reading, settings) for table in (old, new)]
    limits = Changes(matched, settings.confidence, {}).limits
    then, now = (audit_dict(replace(one, source=s.name)) for one, s in zip(reports, sources, strict=True))
    section, _ = changes_between(then, now, [], list(HEADLINES), "interval", limits)
    wrong = [
        note
        for report, name in zip(reports, both.columns, strict=True)
        for note in of_direction(report.overall.metrics.get("auc"), report.reading, name)
    ]
    content = {
        "schema": MODELS_SCHEMA,
        "fairfix": __version__,
        "data": data_dict(data.source.name, used, data.reading, data.inferred),
        "settings": {**reading_dict(reading), "confidence": request.confidence},
        "models": [
            {"score": one, "source": source.name} for one, source in zip(both.columns, sources, strict=True)
        ],
        **({"paired": matched.to_dict(both.id)} if both.id else {}),
        "groups": list(_groups(then, now)),
        "qualities": list(_qualities(old, new, reports, settings)),
        "changes": section["changes"],
        "not_comparable": section["not_comparable"],
    }
    add_messages(content, (*of_names(new.level_rows, reading), *wrong))
    return ModelsResult(add_record(content, request, data.source))


def _left_out(table: Table, compared: int) -> dict[str, int]:
    """Return why rows of the data are not compared."""
    apart = len(table) - compared
    return {**table.rows.excluded, **({"not with both models": apart} if apart else {})}


def _groups(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what every group gets from both models: the share selected, or the mean score where nobody decides."""
    for was, here in zip(then["attributes"], now["attributes"], strict=True):
        before = {group["group"]: group["metrics"] for group in was["groups"]}
        for group in here["groups"]:
            metric = next((one for one in GIVEN if one in group["metrics"]), None)
            if metric is not None:
                yield {
                    "attribute": here["attribute"],
                    "group": group["group"],
                    "rows": group["rows"],
                    "metric": metric,
                    "old": before[group["group"]][metric],
                    "new": group["metrics"][metric],
                }


def _qualities(
    old: Table, new: Table, reports: list[AuditReport], settings: Settings
) -> Iterator[dict[str, Any]]:
    """Yield every quality of both models and its change."""
    was, now = (report.overall.metrics for report in reports)
    surer = replace(settings, confidence=(1 + settings.confidence) / 2, only=())
    sure = [audit(table, table.reading, surer).overall.metrics for table in (old, new)]
    for name in QUALITIES:
        if name not in was or name not in now:
            continue
        within = name in DECIDED or (name == "square_loss" and old.reading.binary)
        mean = name in (*DECIDED, *LOSSES)
        change = change_of(name, old, new, settings.confidence, SHARE if within else ANY) if mean else None
        change = change or between_limits(*(one[name] for one in sure))
        worse = {"larger": "smaller", "smaller": "larger"}.get(METRICS[name].better or "")
        yield {"id": name, "old": form(was[name]), "new": form(now[name]), **form(change), "worse": worse}
