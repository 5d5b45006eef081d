"""Slices: in which conjunctions of conditions a model is worst, and which of these are shown to be worse."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from msgspec.structs import replace as fields_replaced

from fairfix import __version__
from fairfix.auditing.checks import SLICES, Check, named, of_slice, worst
from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.group_estimates import unavailable
from fairfix.auditing.metrics import ALIASES, METRICS, Mean, Rate, metrics_for
from fairfix.auditing.results import columns_struct, judged, rows_struct, spec_fields, with_checks
from fairfix.data.names import did_you_mean
from fairfix.data.numeric_groups import Edges, parse_bands
from fairfix.data.row_filter import parse_condition
from fairfix.data.scan import count_table, read_table
from fairfix.data.slice_levels import HALF, conjunction, levels_of
from fairfix.errors import ColumnError, DataError, UsageError
from fairfix.models.scored_source import MODEL_SCORE
from fairfix.schema import common
from fairfix.schema import slices as of_slices
from fairfix.schema.audit import Audit
from fairfix.tasks.count import counts_of
from fairfix.tasks.dataset import Dataset, explaining, open_data, said_of_unused, waivers_of, with_waivers
from fairfix.tasks.messages import of_source, with_messages
from fairfix.tasks.request import AuditRequest, function_of, of_counts
from fairfix.tasks.result import Result
from fairfix.tasks.run_metadata import with_record

if TYPE_CHECKING:
    from fairfix.auditing.slicing.quantity import SliceMetric
    from fairfix.auditing.slicing.selection import Searched, SliceEstimate
    from fairfix.data.data_spec import DataSpec
    from fairfix.data.table import Table

LEAST, SHARE = 50, 0.01
"""Default least rows of a slice: this number, and this fraction of the rows."""

UNREAD = (
    *("noise", "similar", "baseline", "profile", "reference"),
    *("strata", "intersect", "metrics", "explain_gap"),
)
"""Parameters of an audit that a search without protected columns has no use for."""


@dataclass(frozen=True, repr=False)
class SlicesResult(Result):
    """A search for the slices in which a model is worst; ``to_frame()`` has a row for each slice."""

    content: of_slices.Slices


@dataclass(frozen=True)
class SliceRequest:
    """The search for slices in an audit: the request without it, checks, and bands of columns that are cut."""

    request: AuditRequest
    rest: AuditRequest
    checks: tuple[Check, ...]
    bands: Mapping[str, Edges | str]


def run_slices(request: AuditRequest) -> SlicesResult:
    """Search all conjunctions of up to three conditions for those in which a model is worst.

    ``slices(frame)`` searches every column without a role. Reported slices are shown to be worse than all other rows,
    however many were searched: by intervals that hold for all of them at once, or by ``validation`` rows. The result is
    that of ``fairfix audit --slices``; ``result.to_frame()`` has a row for each slice.

    Raises
    ------
    UsageError, DataError
        Parameters do not go together, or no column can make a slice; the message names column and remedy.
    """
    request = request if request.slices else replace(request, slices=("all",))
    for name in UNREAD:
        if request.has(name) and name not in request.configured:
            raise UsageError(f"`{name}`: leave it out; a search of slices alone does not read it")
    if counts_of(request.data) is not None:
        of_counts(request)  # which says that slices need rows
    asked = without_slices(request)
    notes = said_of_unused(request)
    data = open_data(asked.rest, protected_needed=False)
    part, checks, data_spec, table = searched_in(asked, data)
    excluded = {why: many for why, many in table.rows.excluded.items() if many}
    content = of_slices.Slices(
        fairfix=__version__,
        verdict=worst(check.verdict for check in checks),
        data=common.Data(
            source=data.source.name,
            rows=rows_struct(table.rows.read, len(table), excluded, data.source.left_out),
            columns=columns_struct(data_spec),
            inferred=dict(data.inferred),
        ),
        settings=of_slices.SlicesSettings(
            **spec_fields(data_spec), confidence=request.confidence, gate_on=request.gate_on
        ),
        checks=checks,
        slices=part,
    )
    content = with_messages(content, (*notes, *of_source(data.source)))
    content = with_waivers(content, waivers_of(request), request)
    return SlicesResult(with_record(content, request, data.source))


def with_slices(result: Audit, asked: SliceRequest, data: Dataset) -> Audit:
    """Return an audit with a search for slices, and with what its checks say."""
    part, checks, _, _ = searched_in(asked, data)
    return with_checks(fields_replaced(result, slices=part), (*result.checks, *checks))


def without_slices(request: AuditRequest) -> SliceRequest:
    """Return what a request asks of slices, apart from the rest of it."""
    own = {text: right for text in map(str, request.check) if (right := of_slice(text)) is not None}
    checks = tuple(_check(text, right) for text, right in own.items())
    rules = parse_bands(request.bands)
    grouped = {*request.protected, *request.strata}
    rest = replace(
        request,
        check=tuple(text for text in map(str, request.check) if text not in own),
        bands=tuple(text for text in request.bands if grouped.issuperset(parse_bands([text]))),
        id=request.id if request.validation or request.similar or request.baseline is not None else None,
    )
    return SliceRequest(request, rest, checks, rules)


def _check(text: str, right: str) -> Check:
    """Return the check of slices that a text is, ``right`` being that of one slice."""
    check = Check.parse(right)
    of = check.comparison
    if of.attribute or of.group or of.part not in ("min", "max", "difference.between_groups"):
        raise UsageError(
            f"check {text!r}: write slices.METRIC.min, slices.METRIC.max or slices.METRIC.difference.max with a limit"
        )
    return replace(check, text=text.strip())


def _metric(asked: SliceRequest, data: Dataset) -> Comparison:
    """Return which metric slices are ranked by, alone or as a gap; UsageError where it is none."""
    text, data_spec = asked.request.slice_metric, data.data_spec
    if text is None and asked.checks:
        of = asked.checks[0].comparison
        return of if of.kind == "difference" else Comparison(of.metric)
    if text is None:
        labels = "absolute_loss" if data_spec.task == "regression" else "accuracy"
        return Comparison(labels if data_spec.columns.label else "selection_rate")
    name = ALIASES.get(text, text)
    if name in METRICS:
        return Comparison(name)
    of = named(text)
    if of.part != "difference.between_groups" or of.group:
        hint = did_you_mean(text, (*METRICS, *ALIASES))
        raise UsageError(f"`slice_metric={text}`: write METRIC or METRIC.difference{hint}")
    return of


def searched_in(
    asked: SliceRequest, data: Dataset
) -> tuple[of_slices.SliceSearch, tuple[common.SavedCheck, ...], DataSpec, Table]:
    """Return a search, its judged checks, the reading, and the rows that were searched."""
    from fairfix.auditing.slicing.quantity import quantity_of
    from fairfix.auditing.slicing.search import Cells
    from fairfix.auditing.slicing.selection import confirmed, searched

    request = asked.request
    data_spec = data.data_spec
    of, names = _metric(asked, data), _columns(request, data)
    metric = metrics_for(data_spec.task)[of.metric]
    table = _rows(request, data, names)
    if why := unavailable(metric, count_table(table).counts, data_spec):
        raise UsageError(f"`slice_metric={metric.name}`: {why}")
    attribute = _attribute(of, data_spec.columns.protected)
    quantity = quantity_of(table, metric, table.groups((attribute,)) if attribute else None)
    if quantity.kind == "free" and not request.validation:
        raise UsageError(
            f"`slice_metric={metric.name}`: its values have no known range, so no interval holds for all slices at "
            f"once; add `validation=0.5`{_bounded(table)}"
        ).proposing(("", "validation=0.5"))
    least = request.min_rows or max(LEAST, math.ceil(SHARE * len(table)))
    cut = {name: rule for name, rule in asked.bands.items() if name in names}
    schema = data.source.schema
    half = {
        name: HALF for name in names if name in schema.names and pa.types.is_float16(schema.field(name).type)
    }
    levels, left_out = levels_of(table.features, [name for name in names if name not in half], cut, least)
    left_out |= half
    if attribute:
        levels = [one for one in levels if one.column != attribute]
    if not levels:
        reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items()) or "there are no columns"
        raise DataError(f"no column can make a slice of {least:,} rows ({reasons}); lower `min_rows`")
    cells, alpha = Cells(tuple(levels), quantity), 1.0 - request.confidence
    for check in asked.checks:
        _require_same(check, of, quantity)
    if request.validation:
        held = np.asarray(table.draws >= 1.0 - request.validation)
        if held.all() or not held.any():
            raise UsageError(f"`validation={request.validation:g}` leaves one part without rows")
        found_in = confirmed(cells, held, least, alpha)
    else:
        found_in = searched(cells, least, alpha, extreme=bool(asked.checks))
    part = of_slices.SliceSearch(
        metric=quantity.name,
        attribute=attribute,
        worse=WORSE[quantity.worse],
        searched=found_in.searched,
        min_rows=least,
        validation=request.validation or None,
        columns=tuple(
            of_slices.SearchedColumn(column=one.column, levels=len(one.conditions), pooled=one.pooled)
            for one in levels
        ),
        left_out=tuple(of_slices.UnusedColumn(column=name, reason=why) for name, why in left_out.items()),
        rows=found_in.rows,
        overall=common.estimate(*found_in.overall),
        slices=tuple(_slice(one, asked, data) for one in found_in.slices),
        more=bool(found_in.more),
    )
    judged = tuple(_judged(check, of, found_in, part, request) for check in asked.checks)
    return part, judged, data_spec, table


WORSE: Mapping[int, Literal["larger", "smaller", "either"]] = {1: "larger", -1: "smaller", 0: "either"}
"""Sign of what is worse -> the same in words."""


def _columns(request: AuditRequest, data: Dataset) -> tuple[str, ...]:
    """Return the columns that are searched; a UsageError where one has a role that says nothing of people."""
    columns, source = data.data_spec.columns, data.source
    if tuple(request.slices) == ("all",) and "all" not in source.columns:
        roles = {*columns.roles, MODEL_SCORE}
        names = tuple(name for name in source.usable if name not in roles)
        if not names:
            raise ColumnError("there is no column without a role to search; name some with `slices`", "")
        return names
    names = tuple(dict.fromkeys(request.slices))
    source.require(names)
    taken = {*columns.roles} - {*columns.protected, *columns.strata}
    if of_role := [name for name in names if name in taken]:
        raise UsageError(f"`slices={of_role[0]}`: the column has another role; leave it out")
    return names


def _rows(request: AuditRequest, data: Dataset, names: Sequence[str]) -> Table:
    """Return the rows in memory with the columns to search, and with draws where they are split."""
    raw = {
        name: data.source.schema.field(name).type for name in names if name in data.data_spec.columns.roles
    }
    with explaining(data):
        if not request.validation:
            return read_table(data.source, data.data_spec, names, raw)
        from fairfix.tasks.fit_and_evaluate import read_rows

        return read_rows(data, names, request.seed, scored=tuple(raw), draws=True)[0]


def _attribute(of: Comparison, protected: Sequence[str]) -> str:
    """Return the protected column whose groups are compared inside slices; empty where none are."""
    if not of.kind:
        return ""
    if of.attribute and of.attribute not in protected:
        raise UsageError(
            f"`slice_metric`: {of.attribute!r} is not a protected column; add `protected={of.attribute}`"
        )
    if not of.attribute and len(protected) != 1:
        raise UsageError(
            "`slice_metric`: a gap is between the groups of one protected column; "
            + ("write it as METRIC.difference[COLUMN]" if protected else "name it with `protected=COLUMN`")
        )
    return of.attribute or protected[0]


def _bounded(table: Table) -> str:
    """Return in words which metrics of rows have a range, so that they need no held-out rows."""
    from fairfix.auditing.slicing.quantity import quantity_of

    counts, names = count_table(table).counts, []
    for name, metric in metrics_for(table.data_spec.task).items():
        if isinstance(metric, (Rate, Mean)) and not unavailable(metric, counts, table.data_spec):
            with suppress(UsageError):
                names += [name] * (quantity_of(table, metric, None).kind != "free")
    return f", or set `slice_metric` to one of {', '.join(names)}" if names else ""


def _require_same(check: Check, of: Comparison, quantity: SliceMetric) -> None:
    """Raise a UsageError where a check is not of the worst value of the search."""
    end = "difference" if quantity.is_gap else {1: "max", -1: "min", 0: ""}[quantity.worse]
    if check.comparison.metric == of.metric and check.comparison.kind == end:
        return
    if not end:
        raise UsageError(
            f"check {check.text!r}: a slice can be worst by {of.metric} in either direction, and no check limits both; "
            "set another `slice_metric`"
        )
    right = f"slices.{quantity.name}.{'max' if quantity.is_gap else end}"
    raise UsageError(
        f"check {check.text!r}: slices are searched by {quantity.name}; check {right}, or set `slice_metric`"
    )


def _slice(one: SliceEstimate, asked: SliceRequest, data: Dataset) -> of_slices.Slice:
    """Return a slice as results have it."""
    where = one.condition
    if asked.request.where is not None:
        where = conjunction((parse_condition(asked.request.where), one.condition))
    return of_slices.Slice(
        where=str(one.condition),
        rows=one.rows,
        **common.numbers(one.value, one.low, one.high),
        shown=one.worse,
        error=None if one.error is None else min(one.error, 1.0),
        proposed=None
        if one.proposed is None
        else of_slices.Proposed(rows=one.proposed[0], value=one.proposed[1]),
        command=_command(asked, data, str(where)),
    )


def _command(asked: SliceRequest, data: Dataset, where: str) -> str:
    """Return the command, or the call, that audits a slice; empty where it cannot be copied."""
    from fairfix.tasks.column_suggestions import alternatives

    request = asked.request
    dropped = ("slices", "slice_metric", "min_rows", "validation") if request.protected else ()
    more: dict[str, Any] = {"bands": asked.rest.bands} if request.protected else {}
    plain = request.without(
        (*dropped, "check", "other_words"), **more, explicit=request.explicit | {"slices"}
    )
    lines = alternatives(plain, data.source, [{"where": where}])
    line = lines[0] if lines else ""
    called = not request.protected and not isinstance(request.data, str)
    return line.replace("fairfix.audit(", "fairfix.slices(", 1) if called else line


def _judged(
    check: Check, of: Comparison, found_in: Searched, part: of_slices.SliceSearch, request: AuditRequest
) -> common.SavedCheck:
    """Return a judged check of the worst slice."""
    reason = "" if found_in.extreme else "no slice has enough rows"
    value = common.estimate(*(found_in.extreme or (math.nan,) * 3), reason)
    columns = tuple(one.column for one in part.columns)
    groups = () if found_in.extreme_slice is None else (str(found_in.extreme_slice),)
    complete = request.validation is None
    ruling = check.judge(value, complete=complete, gate_on=request.gate_on)
    if ruling.code == "group_undefined":
        open_ = "slices that were not tested may be worse; without `validation` the check can pass"
        ruling = replace(ruling, reason=open_)
    result = judged(
        check, (SLICES, columns), value, groups, ruling, complete=complete, gate_on=request.gate_on
    )
    return fields_replaced(result, id=re.split("[<>]", check.text)[0].strip())


slices = function_of("slices", AuditRequest, run_slices)
