"""Two models on the same people: the change of every gap and quality from one score to the other, with its interval.

Nothing is fitted. The rows are those that both have a score for, so that what happens to both in common cancels
(:mod:`fairfix.auditing.paired_differences`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from fairfix import __version__
from fairfix.auditing.audit import audit
from fairfix.auditing.baseline import compare as changes_between
from fairfix.auditing.comparisons import WORSE
from fairfix.auditing.metrics import METRICS
from fairfix.auditing.results import Settings, rows_struct, spec_fields
from fairfix.auditing.row_differences import ANY, DECIDED, SHARE, between_limits, change_of
from fairfix.data.table import Table
from fairfix.data.urls import is_dry
from fairfix.errors import UsageError
from fairfix.report.layout import HEADLINES
from fairfix.schema import common
from fairfix.schema.audit import Audit
from fairfix.schema.compare import GroupOfModels, Model, Models
from fairfix.tasks.before_after import LOSSES
from fairfix.tasks.changes import EarlierModel, audited_pair, both_models
from fairfix.tasks.dataset import open_data, said_of_unused, unsent
from fairfix.tasks.messages import of_direction, of_names, with_messages
from fairfix.tasks.request import CompareRequest
from fairfix.tasks.result import Result, data_fields
from fairfix.tasks.run_metadata import with_record

Given = Literal["selection_rate", "mean_score"]

QUALITIES = ("accuracy", "auc", "log_loss", "square_loss", "absolute_loss", "selection_rate")
"""Overall metrics that are compared, where both models have them."""

GIVEN: tuple[Given, ...] = ("selection_rate", "mean_score")
"""Outcome of a group under a model: the first that there is."""


@dataclass(frozen=True, repr=False)
class ModelsResult(Result):
    """A comparison of two models."""

    content: Models


def compare_models(request: CompareRequest, base: EarlierModel) -> ModelsResult:
    """Compare the score of the request with that of its baseline, on the same rows."""
    if request.noise:
        raise UsageError(
            "`baseline`: leave out the description of noise; two models are compared by the recorded groups"
        )
    said_of_unused(request)
    data = open_data(request)
    base = base.among(data.source.columns)
    columns = data.data_spec.columns
    if not columns.score or columns.prediction:
        raise UsageError(
            "two models are compared by their scores; name the first with `score`, the other with `baseline`"
        )
    both = both_models(request, data, base)
    if is_dry():
        unsent(*both.steps)
    matched, new = both.matched()
    data_spec, sources = both.data_specs[1], both.sources
    excluded = {**new.rows.excluded}
    if apart := len(new) - len(matched.new):
        excluded["not with both models"] = apart
    rows = rows_struct(new.rows.read, len(matched.new), excluded, data.source.left_out)
    old, new = matched.old, matched.new
    settings = Settings(confidence=request.confidence, intersect=True)
    (then, now), limits = audited_pair(matched, settings)
    section, _ = changes_between(then, now, [], list(HEADLINES), "interval", limits)
    wrong = [
        note
        for one, table, name in zip((then, now), (old, new), both.columns, strict=True)
        for note in of_direction(one.overall.metrics.get("auc"), table.data_spec, name)
    ]
    result = Models(
        fairfix=__version__,
        data=common.Data(**data_fields(data.source.name, rows, data.data_spec, data.inferred)),
        settings=common.SavedSettings(**spec_fields(data_spec), confidence=request.confidence),
        models=(
            Model(score=both.columns[0], source=sources[0].name),
            Model(score=both.columns[1], source=sources[1].name),
        ),
        paired=matched.paired(both.id) if both.id else None,
        groups=tuple(_groups(then, now)),
        qualities=tuple(_qualities(old, new, (then, now), settings)),
        changes=section.changes,
        not_comparable=section.not_comparable,
    )
    result = with_messages(result, (*of_names(new.level_rows, data_spec), *wrong))
    return ModelsResult(with_record(result, request, data.source))


def _groups(then: Audit, now: Audit) -> Iterator[GroupOfModels]:
    """Yield what every group gets from both models: the share selected, or the mean score where nobody decides."""
    for was, here in zip(then.attributes, now.attributes, strict=True):
        before = {group.group: group.metrics for group in was.groups}
        for group in here.groups:
            for metric in GIVEN:
                if metric in group.metrics:
                    yield GroupOfModels(
                        attribute=here.attribute,
                        group=group.group,
                        rows=group.rows,
                        metric=metric,
                        old=before[group.group][metric],
                        new=group.metrics[metric],
                    )
                    break


def _qualities(
    old: Table, new: Table, audits: tuple[Audit, Audit], settings: Settings
) -> Iterator[common.Change]:
    """Yield every quality of both models and its change."""
    was, now = (one.overall.metrics for one in audits)
    surer = replace(settings, confidence=(1 + settings.confidence) / 2, only=())
    sure = [audit(table, table.data_spec, surer).overall.metrics for table in (old, new)]
    for name in QUALITIES:
        if name not in was or name not in now:
            continue
        within = name in DECIDED or (name == "square_loss" and old.data_spec.binary)
        mean = name in (*DECIDED, *LOSSES)
        change = change_of(name, old, new, settings.confidence, SHARE if within else ANY) if mean else None
        change = change or between_limits(*(one[name] for one in sure))
        yield common.Change(
            id=name, old=was[name], new=now[name], **change.numbers, worse=WORSE[METRICS[name].better] or None
        )
