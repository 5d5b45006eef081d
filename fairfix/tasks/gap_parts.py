"""Parts of gaps in an audit: how much of the difference between two groups each column accounts for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from msgspec.structs import replace as fields_replaced

from fairfix.data.counts import Bools, Floats, Ints
from fairfix.data.cutoffs import GroupThresholds
from fairfix.data.encoder import arrow_array, group_codes
from fairfix.data.names import attribute_name, each_and_crossed
from fairfix.data.scan import read_table
from fairfix.data.table import Table
from fairfix.errors import ColumnError, FairfixError, UsageError
from fairfix.individual.by_model import Judge, judge_of_model, readable_table
from fairfix.models.features import Features, column_of
from fairfix.models.screening import screen, screen_types
from fairfix.models.threads import limited
from fairfix.schema.audit import Audit, ExplainedGap, ExplainedGaps, GapPart, Outcome
from fairfix.schema.common import Block, LeftOut, NotComputed, estimate
from fairfix.stats.gap_parts import Piece, Regression, of_model, of_regression, solved
from fairfix.tasks.dataset import Dataset, explaining
from fairfix.tasks.request import AuditRequest

LEAST = 50
"""Least rows of a group whose gap is explained."""

LEAST_OF_LEVEL, MOST_LEVELS = 20, 20
"""Least rows of a value that has a coefficient of its own, and most such values of a column."""

ROWS_PER_COLUMN = 5
"""Least rows for each coefficient of a regression."""

ROUNDING = 1e-9
"""Part of a gap that rounding may be."""


@dataclass(frozen=True)
class Pair:
    """Two groups of an attribute, the one with the larger value first, and their rows with all outcomes."""

    attribute: str
    groups: tuple[str, str]
    rows: tuple[Ints, Ints]
    outcomes: dict[Outcome, Floats]
    """Metric -> values of all rows of the table, (n,)."""


Explained: TypeAlias = tuple[Sequence[Floats], Sequence[tuple[str, ...]], dict[str, Any]]
"""Parts of the gaps of a pair with limits, the columns of each part, and further fields of the result."""


class UnexplainedError(Exception):
    """A gap that has no parts; the text is the reason."""


def with_gap_parts(result: Audit, request: AuditRequest, data: Dataset, *, intersect: bool) -> Audit:
    """Return an audit with the parts of the largest gap of each attribute."""
    left_out, judge = tuple[LeftOut, ...](), None
    named = tuple(request.features) not in ((), ("all",))
    with explaining(data):
        if data.model is not None:
            if isinstance(request.threshold, GroupThresholds):
                raise UsageError(
                    "`explain_gap`: the threshold differs by group, so no column of the model decides alone; give one "
                    "`threshold`, or leave out `model` and name the decisions with `prediction`"
                )
            names: Sequence[str] = data.model.feature_names
            table = readable_table(data.source, data.data_spec, names)
            judge = judge_of_model(table.data_spec, data.model)
        else:
            free, left_out = _columns(request, data, named=named)
            table = read_table(data.source, data.data_spec, free)
            left_out += () if named else tuple(screen(table, free))
            names = [name for name in free if name not in {one.column for one in left_out}]
            if request.suppress_below:  # texts may quote a value, or a number of few rows
                left_out = tuple(
                    fields_replaced(one, text=f"is of the kind {one.reason!r}") for one in left_out
                )
    if not names:
        why = f"no column without a role can explain a gap ({_reasons(left_out)}); name some with `features`"
        raise ColumnError(f"`explain_gap`: {why}", "")
    attributes = each_and_crossed(table.data_spec.columns.protected, crossed=intersect)
    blocks = {block.attribute: block for block in result.attributes}
    gaps, missing = list[ExplainedGap](), list[NotComputed]()
    for place, columns in enumerate(attributes):
        attribute = attribute_name(columns)
        if attribute not in blocks:  # too few of its groups can be shown
            continue
        try:
            pair = _pair(table, columns, blocks[attribute], result.settings.reference.get(attribute))
            alpha = 1.0 - request.confidence
            rng = np.random.default_rng([request.seed, place])
            with limited():
                explained = (
                    _by_regression(table, names, pair, alpha, named=named)
                    if judge is None
                    else _by_model(table, names, judge, pair, alpha, rng)
                )
            gaps += _structs(table, pair, *explained)
        except UnexplainedError as reason:
            missing.append(NotComputed(metric=f"parts of the gap by {attribute}", reason=str(reason)))
    part = ExplainedGaps(by="regression" if judge is None else "model", gaps=tuple(gaps), left_out=left_out)
    return fields_replaced(result, explained_gaps=part, not_computed=(*result.not_computed, *missing))


def _columns(request: AuditRequest, data: Dataset, *, named: bool) -> tuple[list[str], tuple[LeftOut, ...]]:
    """Return the columns of a regression as names and types decide, and those that are left out."""
    source = data.source
    taken = {
        *data.data_spec.columns.roles,
        request.id,
        request.baseline if isinstance(request.baseline, str) else None,
    }
    if not named:
        names = [name for name in dict.fromkeys(source.columns) if name not in taken]
        left_out = tuple(screen_types(source.schema, names))
        return [name for name in names if name not in {one.column for one in left_out}], left_out
    source.require(request.features)
    if of_role := [name for name in request.features if name in taken]:
        raise UsageError(f"`features={of_role[0]}`: the column has a role already; leave it out")
    return list(dict.fromkeys(request.features)), ()


def _pair(table: Table, columns: tuple[str, ...], block: Block, reference: str | None) -> Pair:
    """Return the groups with the largest gap, or the reference group and the one that is farthest from it."""
    score, plain = (
        table.rows.score,
        table.data_spec.task == "regression" or table.data_spec.score_scale == "raw",
    )
    both: dict[Outcome, Floats | None] = {
        "selection_rate": table.chance,
        "mean_score": score if score is None or plain else table.probability,
    }
    outcomes = {name: one for name, one in both.items() if one is not None}
    every = ((one.metrics[next(iter(outcomes))].value, one) for one in block.groups if one.rows >= LEAST)
    ordered = sorted(((value, one) for value, one in every if value is not None), key=itemgetter(0))
    if len(ordered) < 2:
        raise UnexplainedError(f"fewer than two groups have {LEAST} rows")
    (least, low), (most, high) = ordered[0], ordered[-1]
    if reference is not None:
        if not (same := [(value, one) for value, one in ordered if one.group == reference]):
            raise UnexplainedError(f"the reference group {reference} has fewer than {LEAST} rows")
        value, own = same[0]
        low, high = (own, high) if most - value >= value - least else (low, own)
    groups = table.groups(columns)
    first, second = (groups.rows[groups.levels.index(one.levels)] for one in (high, low))
    rows = np.concatenate([first, second])
    varying = {name: one for name, one in outcomes.items() if np.ptp(one[rows]) > 0}
    if least == most or not varying:  # of equal outcomes, weighted means may differ by rounding
        raise UnexplainedError("all groups have the same value, so there is no gap")
    return Pair(block.attribute, (high.group, low.group), (first, second), varying)


def _reasons(left_out: Sequence[LeftOut]) -> str:
    """Return why columns are left out, of the first of them."""
    return "; ".join(f"{one.column!r} {one.text}" for one in left_out[:6]) or "there is none"


def _by_regression(table: Table, names: Sequence[str], pair: Pair, alpha: float, *, named: bool) -> Explained:
    """Return the parts of each column by a regression on the columns and the group."""
    rows = np.concatenate(pair.rows)
    own = table.take(rows)
    learned, left_out, notes = _encoded(own, names, named=named)
    if learned is None:
        raise UnexplainedError(_reasons(left_out))
    feature = np.repeat(np.arange(len(learned.columns)), [len(one.titles) for one in learned.columns])
    if feature.size * ROWS_PER_COLUMN > len(own):
        raise UnexplainedError(
            f"{len(own):,} rows are too few for {feature.size:,} coefficients; name fewer columns with `features`"
        )
    y = np.stack([outcome[rows] for outcome in pair.outcomes.values()], axis=1)
    first, w = np.arange(len(own)) < len(pair.rows[0]), own.weight

    def pieces() -> Iterator[Piece]:
        start = 0
        for piece in own.pieces():
            part = slice(start, start := start + len(piece))
            yield learned.matrix(piece), y[part], first[part], w[part]

    sums = Regression.of(pieces())
    solution = solved(sums, feature)
    titles = [one.name for one in learned.columns]
    for together in solution.aside:
        same = ", ".join(repr(titles[j]) for j in together)
        alone = "differs between the two groups and not within them"
        text = alone if len(together) == 1 else f"is one of {same}, which together tell the two groups apart"
        left_out += tuple(LeftOut(column=titles[j], reason="group", text=text) for j in together)
    if not solution.sets:
        raise UnexplainedError(_reasons(left_out))
    parts = of_regression(pieces, sums, solution, feature, alpha)
    columns = [tuple(titles[j] for j in one) for one in solution.sets]
    return parts, columns, {"left_out": left_out, "notes": notes}


def _encoded(
    own: Table, names: Sequence[str], *, named: bool
) -> tuple[Features | None, tuple[LeftOut, ...], tuple[str, ...]]:
    """Return the encoding of columns without rare values, columns that have none (never ``named`` ones), and notes."""
    columns, left_out, notes = [], [], []
    for name in names:
        try:
            (feature,) = Features.learn(own, [name]).columns
        except FairfixError:
            if named:
                raise
            text = "holds texts or numbers that nothing can be learned from"
            left_out.append(LeftOut(column=name, reason="text", text=text))
            continue
        if feature.missing:
            notes.append(f"missing entries of {name!r} have a coefficient of their own")
        if feature.kind == "category":
            codes, levels, _ = group_codes(column_of(own, name), name)
            many = dict(zip(levels, np.bincount(codes, minlength=len(levels)).tolist(), strict=True))
            often = sorted(feature.levels, key=many.__getitem__, reverse=True)[:MOST_LEVELS]
            kept = tuple(sorted(level for level in often if many[level] >= LEAST_OF_LEVEL))
            if not kept:
                text = f"has no value with {LEAST_OF_LEVEL} rows in the two groups"
                left_out.append(LeftOut(column=name, reason="text", text=text))
                continue
            if pooled := sum(rows > 0 for rows in many.values()) - len(kept):
                notes.append(f"{pooled:,} rare values of {name!r} share one coefficient")
            feature = fields_replaced(feature, levels=kept)
        columns.append(feature)
    return Features(tuple(columns)) if columns else None, tuple(left_out), tuple(notes)


def _by_model(
    table: Table, names: Sequence[str], judge: Judge, pair: Pair, alpha: float, rng: np.random.Generator
) -> Explained:
    """Return the Shapley values of each column of a model, averaged over pairs of rows of the two groups."""
    features = table.features.select(list(names))
    metrics = list(pair.outcomes)

    def mixed(first: Ints, second: Ints, inside: Bools) -> Floats:
        both = features.take(arrow_array(np.concatenate([pair.rows[0][first], pair.rows[1][second]])))
        own = np.arange(len(first))
        columns = [
            column.take(arrow_array(np.where(inside[:, j], own, own + len(own))))
            for j, column in enumerate(both.columns)
        ]
        score = judge.score(replace(table, features=pa.table(columns, names=list(names))))
        if judge.cut is None:
            return score[:, None]
        by: dict[Outcome, Floats] = {
            "selection_rate": (score >= judge.cut).astype(np.float64),
            "mean_score": score,
        }
        return np.stack([by[metric] for metric in metrics], axis=1)

    y = np.stack(list(pair.outcomes.values()), axis=1)
    probable: dict[Outcome, bool] = {"selection_rate": True, "mean_score": judge.is_probability}
    spans = [1.0 if probable[metric] else math.inf for metric in metrics]
    first, second = pair.rows
    parts, pairs, orders = of_model(
        mixed,
        (y[first], y[second]),
        (table.weight[first], table.weight[second]),
        len(names),
        alpha,
        spans,
        rng,
    )
    return parts, [(name,) for name in names], {"pairs": pairs, "orders": orders}


def _structs(
    table: Table,
    pair: Pair,
    every: Sequence[Floats],
    columns: Sequence[tuple[str, ...]],
    more: dict[str, Any],
) -> Iterator[ExplainedGap]:
    """Yield what a result has of the parts of each outcome, the largest first."""
    for (metric, outcome), numbers in zip(pair.outcomes.items(), every, strict=True):
        first, second = (float(np.average(outcome[own], weights=table.weight[own])) for own in pair.rows)
        few = np.where(np.isinf(numbers[1]), "too few rows for limits", "").tolist()
        each = [
            estimate(value, low, high, reason)
            for (value, low, high), reason in zip(numbers.T.tolist(), few, strict=True)
        ]
        if abs(first - second - numbers[0].sum()) > ROUNDING * max(1.0, abs(first)):
            raise UnexplainedError(
                "all drawn rows of a group have the same outcome, so other rows are not represented"
            )
        parts = [GapPart(columns=names, **part.numbers) for names, part in zip(columns, each, strict=False)]
        yield ExplainedGap(
            attribute=pair.attribute,
            metric=metric,
            groups=pair.groups,
            rows=(len(pair.rows[0]), len(pair.rows[1])),
            means=(first, second),
            value=first - second,
            parts=tuple(sorted(parts, key=lambda part: -abs(part.point))),
            rest=each[-1] if len(each) > len(columns) else None,
            **more,
        )
