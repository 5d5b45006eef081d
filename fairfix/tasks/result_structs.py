"""From a repair, and from a comparison of methods, to its result: the struct that is saved and shown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from fairfix import __version__
from fairfix.auditing.multiclass import class_checks
from fairfix.auditing.result_structs import (
    check_struct,
    columns_struct,
    estimate,
    estimates,
    reading_fields,
)
from fairfix.auditing.results import Value
from fairfix.data.reading import Reading
from fairfix.individual.flips import described
from fairfix.models.repaired import Repaired
from fairfix.models.trace import FitTrace
from fairfix.schema import common
from fairfix.schema import compare as of_compare
from fairfix.schema import repair as of_repair
from fairfix.schema.audit import OwnMetric
from fairfix.schema.common import number
from fairfix.schema.written import to_dict
from fairfix.tasks.before_after import BeforeAfter, MetricChange
from fairfix.tasks.fit_and_evaluate import Outcome
from fairfix.tasks.group_changes import GroupChange
from fairfix.tasks.guarantee_result import GuaranteeResult
from fairfix.tasks.messages import message
from fairfix.tasks.multiclass_repair import ClassesBeforeAfter

if TYPE_CHECKING:
    from fairfix.tasks.compare import ComparisonOutcome, Point


def both(before: Value, after: Value) -> common.BeforeAfter:
    """Return a number before and after a repair."""
    return common.BeforeAfter(before=estimate(before), after=estimate(after))


def _row(row: MetricChange) -> of_repair.EvaluationRow:
    return of_repair.EvaluationRow(
        name=row.name,
        id=row.id,
        attribute=row.attribute or None,
        before=estimate(row.before),
        after=estimate(row.after),
        change=None if row.change is None else estimate(row.change),
        delivered=row.delivered,
        expected=row.expected,
        unlike=row.unlike,
    )


def _evaluation(proof: BeforeAfter) -> of_repair.Evaluation:
    gaps, balanced = tuple[of_repair.ClassGap, ...](), None
    if isinstance(proof, ClassesBeforeAfter):
        gaps = tuple(
            of_repair.ClassGap(
                of_class=one.of_class,
                attribute=one.attribute,
                before=estimate(one.before),
                after=estimate(one.after),
            )
            for one in proof.gaps
        )
        was, now = (report.balanced_accuracy for report in proof.audits)
        balanced = None if was is None or now is None else both(was, now)
    reading: Literal["drawn", "rounded"] = "drawn" if proof.drawn else "rounded"
    return of_repair.Evaluation(
        rows=proof.rows,
        randomized=proof.randomized,
        table=tuple(map(_row, proof.table)),
        noise=tuple(
            of_repair.ChanceOfKs(attribute=attribute, mean=mean, upper=upper)
            for attribute, (mean, upper) in proof.noise.items()
        ),
        other=tuple(map(_row, proof.other)),
        reading=reading if proof.other else None,
        people=_people(proof.people),
        classes=gaps,
        balanced_accuracy=balanced,
    )


def _people(people: Mapping[str, Sequence[GroupChange]]) -> tuple[common.GroupChanges, ...]:
    """Return what a repair changes for the groups of each attribute."""
    return tuple(
        common.GroupChanges(
            attribute=attribute,
            groups=tuple(
                common.GroupChange(
                    group=one.group,
                    rows=one.rows,
                    metrics={name: both(*pair) for name, pair in one.metrics.items()},
                    up=one.up,
                    down=one.down,
                )
                for one in groups
            ),
        )
        for attribute, groups in people.items()
    )


def _solution(trace: FitTrace) -> of_repair.Solution:
    return of_repair.Solution(
        converged=bool(trace.converged),
        iterations=int(trace.iterations),
        objective=number(trace.objective),
        gap=number(max(trace.gap, 0.0)),  # below 0 by rounding only
        certificates=tuple(
            of_repair.Certificate(
                objective=one.objective,
                value=number(one.value),
                bound=number(one.bound),
                gap=number(one.gap),
                among=one.among,
                rows=one.rows,
                says=one.sentence,
            )
            for one in trace.certificates
        ),
        quantities=tuple(
            of_repair.Quantity(name=one.name, value=number(one.value), meaning=one.meaning, group=one.group)
            for one in trace.quantities
        ),
    )


def _guarantee(result: GuaranteeResult) -> of_repair.Guarantee:
    one, ratio = result.nearest, result.is_ratio
    return of_repair.Guarantee(
        confidence=result.confidence,
        criterion=result.criterion,
        title=result.title,
        attribute=result.attribute,
        holds=result.holds,
        way=result.way,
        by=result.by,
        says=result.says,
        bound=one.bound,
        measured=one.measured,
        slack=None if ratio else one.asked,
        inner_slack=None if ratio else one.inner,
        least_ratio=one.asked if ratio else None,
        inner_least_ratio=one.inner if ratio else None,
        rows=tuple(of_repair.RowsOfGroup(group=name, rows=many) for name, many in result.rows),
        limits=tuple(
            of_repair.GroupGuarantee(
                group=own.group,
                bound=own.bound,
                measured=own.measured,
                slack=own.asked,
                inner_slack=own.inner,
            )
            for own in (result.limits if one.group else ())
        ),
        needed=None
        if result.needed is None
        else of_repair.Needed(groups=result.needed[0], rows=result.needed[1]),
    )


def data_struct(source: str, rows: common.Rows, reading: Reading, inferred: Mapping[str, str]) -> common.Data:
    """Return what was read."""
    columns = columns_struct(reading, reading.columns.id)
    return common.Data(source=source, rows=rows, columns=columns, inferred=dict(inferred))


def repair_struct(
    outcome: Outcome,
    repaired: Repaired,
    source: str,
    rows: common.Rows,
    inferred: Mapping[str, str],
    fingerprint: str,
) -> of_repair.Repair:
    """Return the result of a repair."""
    verdict, settings = outcome.judged.after.verdict, outcome.judged.after.settings
    checks = tuple(check_struct(result, settings.gate_on) for result in outcome.checks)
    if isinstance(outcome.judged, ClassesBeforeAfter):
        of_classes = outcome.judged.audits[1]
        verdict, checks = of_classes.verdict, class_checks(of_classes)
    same = described(outcome.reading.columns.protected, outcome.repairer.comparable_values)
    same += f"; the columns that the copies in {outcome.copies} change" if outcome.copies else ""
    individual = outcome.repairer.criterion.startswith("decision_flips")
    return of_repair.Repair(
        fairfix=__version__,
        verdict=verdict,
        method=repaired.method,
        parameters=dict(repaired.parameters),
        criterion=outcome.criterion,
        does_not_count=same if individual else "",
        seed=repaired.seed,
        data=of_repair.RepairData(
            source=source,
            rows=rows,
            columns=columns_struct(outcome.reading, outcome.reading.columns.id),
            inferred=dict(inferred),
            fingerprint=fingerprint,
        ),
        settings=of_repair.RepairSettings(
            **reading_fields(outcome.reading), confidence=settings.confidence, gate_on=settings.gate_on
        ),
        requires=of_repair.Requirements(**repaired.requires()),
        split=of_repair.Split(**outcome.sizes),
        selection=tuple(
            of_repair.Candidate(
                parameters=", ".join(f"{name} {value}" for name, value in candidate.parameters.items()),
                score=candidate.score,
                chosen=candidate.chosen,
            )
            for candidate in outcome.selection
        ),
        solution=_solution(outcome.predictor.trace),
        proof=of_repair.Evaluations(
            fit=_evaluation(outcome.fit),
            holdout=None if outcome.holdout is None else _evaluation(outcome.holdout),
        ),
        guarantee=None if outcome.guarantee is None else _guarantee(outcome.guarantee),
        rule=tuple(
            of_repair.GroupRule(group=one.group, scores=one.scores, probabilities=one.probabilities)
            for one in outcome.rule
        ),
        checks=checks,
        messages=tuple(map(message, outcome.messages)),
    )


FACTS = (
    *("data", "settings", "split", "selection", "solution", "proof", "guarantee"),
    *("checks", "verdict", "messages", "features", "counts"),
)
"""Parts of the result that the artifact keeps, in addition to vectors to test a reader with."""


def facts_of(result: of_repair.Repair) -> dict[str, Any]:
    """Return what the artifact of a repair says of it."""
    return {name: entry for name, entry in to_dict(result).items() if name in FACTS}


def _point(point: Point) -> of_compare.Point:
    slack: float | Literal["inf"] | None = "inf" if point.slack == math.inf else point.slack
    if point.failure:
        return of_compare.Point(
            title=point.title, slack=slack, failure=point.failure, front=(), people=(), messages=()
        )
    return of_compare.Point(
        title=point.title,
        slack=slack,
        gaps=estimates(point.gaps),
        qualities=estimates(point.qualities),
        surer=estimates(point.surer),
        costs=estimates(point.costs),
        randomized=point.randomized,
        protected_at_predict=point.needs_protected,
        front=point.front,
        selection_rate=None if point.selected is None else both(*point.selected),
        people=_people(point.people),
        command=point.command,
        messages=tuple(map(message, point.notes)),
    )


def compare_struct(
    outcome: ComparisonOutcome,
    data: common.Data,
    settings: of_compare.CompareSettings,
    features: common.Features | None,
    own_metrics: tuple[OwnMetric, ...] = (),
) -> of_compare.Compare:
    """Return the result of a comparison of methods."""
    return of_compare.Compare(
        fairfix=__version__,
        data=data,
        settings=settings,
        split=of_compare.CompareSplit(fit=outcome.fitted, holdout=outcome.held),
        contenders=tuple(
            of_compare.Contender(
                title=title, parameters={k: v for k, v in parameters.items() if k != "slack"}
            )
            for title, parameters in outcome.parameters.items()
        ),
        points=tuple(map(_point, outcome.points)),
        advice=tuple(outcome.advice),
        own_metrics=own_metrics,
        features=features,
    )
