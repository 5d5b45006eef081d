"""From the numbers of an audit to its result, the struct that is saved and that every report is rendered from.

An undefined number is None there, with a reason; :mod:`fairfix.schema` has the structs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
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
from fairfix.data.row_filter import LEFT_OUT
from fairfix.schema import audit as of_audit
from fairfix.schema import common
from fairfix.schema.common import number


def number_fields(value: Value) -> dict[str, Any]:
    """Return the fields that a value has in every part of a result that is a number."""
    return {
        "value": number(value.value),
        "low": number(value.low),
        "high": number(value.high),
        "reason": value.reason,
        "bound": number(value.bound) if value.bound else None,
        "given_scores": value.given_scores,
    }


def estimate(value: Value) -> common.Estimate:
    """Return a value as results have it."""
    return common.Estimate(**number_fields(value))


def estimates(numbers: Mapping[str, Value]) -> dict[str, common.Estimate]:
    """Return values by their names as results have them."""
    return {name: estimate(value) for name, value in numbers.items()}


def value_of(entry: common.Number) -> Value:
    """Return the value in a result; None is NaN there, or without limit."""
    return Value(
        math.nan if entry.value is None else entry.value,
        -math.inf if entry.low is None else entry.low,
        math.inf if entry.high is None else entry.high,
        entry.reason,
        entry.bound or 0.0,
    )


def group_struct(group: GroupReport) -> common.Group:
    """Return a group with its metrics."""
    return common.Group(
        group=group.name,
        levels=group.levels,
        rows=group.rows,
        weight=group.weight,
        share=group.share,
        metrics=estimates(group.metrics),
        calibration=group.calibration,
        score_deviation=None if group.score_deviation is None else number(group.score_deviation),
    )


def _comparison(one: ComparisonReport) -> common.Comparison:
    return common.Comparison(
        id=one.id,
        **number_fields(one.value),
        groups=one.groups,
        undefined=one.undefined,
        stratum=one.stratum,
        at_score=None if one.at is None else number(one.at),
        per_group=estimates(one.per_group),
        pairs=one.pairs,
        of_class=one.of_class,
    )


def block_structs(
    blocks: Iterable[Block],
) -> tuple[tuple[common.Block, ...], tuple[common.Block, ...]]:
    """Return the blocks of attributes over all rows, and those within strata."""
    made = [
        common.Block(
            attribute=block.attribute,
            columns=block.columns,
            stratum=block.stratum,
            groups=tuple(map(group_struct, block.groups)),
            comparisons=tuple(map(_comparison, block.comparisons.values())),
            distribution=block.distribution,
        )
        for block in blocks
    ]
    return tuple(one for one in made if not one.stratum), tuple(one for one in made if one.stratum)


def check_struct(result: CheckResult, gate_on: GateOn, of_class: str = "") -> common.Check:
    """Return a judged check, of a class where it is about one."""
    of, ruling = result.check.comparison, result.ruling
    return common.Check(
        check=result.check.text,
        id=f"{result.id}, class {of_class}" if of_class else result.id,
        of=result.of,
        comparison=of.id,
        attribute=result.attribute,
        columns=result.columns,
        group=of.group or "",
        of_class=of_class,
        verdict=ruling.verdict,
        severity=SEVERITIES[ruling.verdict],
        code=ruling.code,
        gate_on=gate_on,
        complete=result.complete,
        operator=result.check.operator,
        limit=result.check.limit,
        **number_fields(replace(result.value, reason=ruling.reason)),
        groups=result.groups,
    )


def _noise(noise: NoiseReport) -> of_audit.Noise:
    """Return what is reported of true groups."""
    return of_audit.Noise(
        attribute=noise.attribute,
        source=noise.source,
        rests_on=noise.rests_on,
        assumptions=dict(noise.stated),
        unavailable=dict(noise.unavailable),
        table=of_audit.NoiseTable(
            form=noise.form,
            rows=noise.rows,
            by_label=noise.by_label,
            kept=noise.keep,
            shift=noise.shift,
            transport_difference=noise.transport_difference,
            true=noise.true,
            noisy=noise.noisy,
            joint=noise.table,
        ),
        radii=tuple(
            of_audit.Radius(
                group=name,
                near=noise.near[name],
                radius=radius,
                if_shares_were_equal=noise.conditional_radii.get(name),
            )
            for name, radius in noise.radii.items()
        ),
        smallest_eps=noise.smallest_eps,
        vacuous=tuple(of_audit.MetricOfGroup(metric=metric, group=group) for metric, group in noise.vacuous),
        groups=tuple(
            of_audit.NoiseGroup(
                group=name, figures=tuple(_figure(f) for f in noise.figures if f.group == name)
            )
            for name in noise.true
        ),
        comparisons=tuple(_figure(f) for f in noise.figures if not f.group),
        breakdown=noise.breakdowns,
        resampling=of_audit.Resampling(replicates=noise.replicates, seed=noise.seed),
        notes=noise.notes,
        membership=noise.membership,
    )


def _figure(figure: Figure) -> of_audit.NoiseFigure:
    def ends(pair: tuple[float, float] | None) -> tuple[float | None, float | None] | None:
        return None if pair is None else (number(pair[0]), number(pair[1]))

    def finite(value: float | None) -> float | None:
        return None if value is None else number(value)

    return of_audit.NoiseFigure(
        name=figure.name,
        recorded=number(figure.recorded),
        weighted=number(figure.weighted),
        bounds={
            level: of_audit.Bound(
                low=number(bound.low),
                high=number(bound.high),
                outer_low=number(bound.outer_low),
                outer_high=number(bound.outer_high),
                reason=bound.reason,
            )
            for level, bound in figure.bounds.items()
        },
        naive=ends(figure.naive),
        identified=finite(figure.identified),
        standard_error=finite(figure.standard_error),
        other_transport=ends(figure.other),
        curve=tuple(
            of_audit.CurvePoint(eps=eps, low=number(low), high=number(high))
            for eps, low, high in figure.curve
        ),
        certain_up_to=finite(figure.certain_up_to),
    )


def definitions(names: Iterable[str]) -> dict[str, str]:
    """Return the definitions of comparisons, by their names."""
    return {name: Comparison.parse(name).definition for name in sorted(set(names))}


def comparison_ids(report: AuditReport) -> Iterable[str]:
    """Return the names of the comparisons of a report."""
    return (one.id for block in report.blocks for one in block.comparisons.values())


def audit_struct(report: AuditReport) -> of_audit.Audit:
    """Return the result of an audit."""
    return of_audit.Audit(
        **audit_fields(report),
        verdict=report.verdict,
        checks=tuple(check_struct(result, report.settings.gate_on) for result in report.checks),
        definitions=definitions(comparison_ids(report)),
        pooled_median=report.pooled_median,
        noise=_noise(report.noise) if report.noise else None,
    )


def audit_fields(report: AuditReport) -> dict[str, Any]:
    """Return the fields of a result that audits with two and with many classes have in common, but for checks."""
    settings, reading = report.settings, report.reading
    attributes, strata = block_structs(report.blocks)
    below = settings.suppress_below
    return {
        "fairfix": __version__,
        "data": of_audit.AuditData(
            source=report.source,
            rows=rows_struct(report.rows_read, report.rows_used, report.excluded),
            columns=columns_struct(reading),
            inferred=dict(report.inferred),
            weight=report.weight,
            model=dict(report.model),
        ),
        "settings": of_audit.AuditSettings(
            **reading_fields(reading),
            confidence=settings.confidence,
            gate_on=settings.gate_on,
            exact=settings.exact,
            reference=dict(settings.reference),
            suppress_below=below or None,
            always_valid=settings.always_valid,
        ),
        "overall": group_struct(report.overall),
        "attributes": attributes,
        "strata": strata,
        "not_computed": tuple(
            common.NotComputed(metric=name, reason=why) for name, why in sorted(report.not_computed.items())
        ),
        "suppressed": common.Suppressed(below=below, left_out=report.left_out) if below else None,
    }


def rows_struct(read: int, used: int, excluded: Mapping[str, int], filtered: int = 0) -> common.Rows:
    """Return how many rows came in, how many are used, and why the others are not; ``filtered`` have not come in."""
    every = {LEFT_OUT: filtered, **excluded} if filtered else excluded
    left_out = tuple(common.Excluded(reason=why, rows=many) for why, many in every.items())
    return common.Rows(read=read + filtered, used=used, excluded=left_out)


def columns_struct(reading: Reading, id_: str | None = None) -> common.Columns:
    """Return which column is what."""
    columns = reading.columns
    return common.Columns(
        protected=columns.protected,
        label=columns.label or "",
        score=columns.score or "",
        prediction=columns.prediction or "",
        probability=columns.probability or "",
        weight=columns.weight or "",
        count=columns.count or "",
        strata=columns.strata,
        id=id_ or "",
    )


def reading_fields(reading: Reading) -> dict[str, Any]:
    """Return how labels and scores are read, as the settings of a result have it."""
    return {
        "task": reading.task,
        "score_scale": reading.score_scale,
        "threshold": reading.threshold,
        "positive_label": reading.positive_label,
        "positive_prediction": reading.positive_prediction,
        "label_threshold": reading.label_threshold or None,
        "where": reading.where,
        "bands": {name: edges for name, edges in reading.bands.items() if edges},
        "merge": {name: dict(names) for name, names in reading.merge.items()},
    }
