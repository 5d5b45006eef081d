"""Settings of an audit, and parts of results that more than one task makes, as structs of :mod:`fairfix.schema`.

An undefined number is None there, with a reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeVar

from msgspec.structs import replace as fields_replaced

from fairfix.auditing.checks import SEVERITIES, Check, Ruling, worst
from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.metrics import EQUALIZED_ODDS
from fairfix.data.choices import GateOn
from fairfix.data.counts import Floats
from fairfix.data.data_spec import DataSpec
from fairfix.data.row_filter import LEFT_OUT
from fairfix.schema import common
from fairfix.schema.audit import Audit


@dataclass(frozen=True)
class Settings:
    """Settings of an audit, except those for reading columns."""

    confidence: float = 0.95
    """Confidence level of every interval, simultaneous over the groups it compares."""
    intersect: bool = False
    """Also audit the cells of all protected columns together, where there are several."""
    reference: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Reference group per attribute name."""
    exact: bool = True
    """Compute KS, AUC and the pooled median from rows; else from bins in one pass, with certified bounds."""
    checks: tuple[Check, ...] = ()
    gate_on: GateOn = "interval"
    """Limits, and whether the interval or the point has to hold them."""
    suppress_below: int = 0
    """Hide groups with fewer rows, and others so that these cannot be computed; 0 hides none."""
    always_valid: bool = False
    """Whether intervals hold for all looks at growing data at once, instead of for one look."""
    only: Collection[str] | None = None
    """Comparisons to make, by their names, and nothing to draw; None makes all. Most of an audit's time is theirs."""
    metrics: Collection[str] | None = None
    """Metrics to compute with ``only``, besides those of its comparisons; None computes all."""

    @cached_property
    def needed(self) -> Set[str] | None:
        """The metrics to compute; None for all."""
        if self.only is None or self.metrics is None:
            return None
        own = {*self.metrics, *(Comparison.parse(one).metric for one in self.only)}
        return own | {*EQUALIZED_ODDS} if "equalized_odds" in own else own


def in_percent(confidence: float) -> str:
    """Return a confidence for reading, with all its digits: ``99.9%`` is not 100%."""
    return f"{100 * confidence:.10g}%"


def judged(
    check: Check,
    block: tuple[str, tuple[str, ...]],
    number: common.Number,
    groups: tuple[str, ...],
    ruling: Ruling,
    *,
    complete: bool,
    gate_on: GateOn,
    of: Literal["value", "change"] = "value",
) -> common.SavedCheck:
    """Return a judged check of a number, or of its change since a baseline.

    Parameters
    ----------
    block
        The attribute and its columns.
    groups
        The groups that reach the number.
    complete
        Whether no group's value is undefined.
    """
    attribute, columns = block
    own = replace(check.comparison, attribute=attribute)
    return common.SavedCheck(
        check=check.text,
        id=own.text("change") if of == "change" else str(own),
        of=of,
        comparison=own.id,
        attribute=attribute,
        columns=columns,
        group=own.group or "",
        verdict=ruling.verdict,
        severity=SEVERITIES[ruling.verdict],
        code=ruling.code,
        gate_on=gate_on,
        complete=complete,
        operator=check.operator,
        limit=check.limit,
        **{**number.numbers, "reason": ruling.reason},
        groups=groups,
    )


def definitions(names: Iterable[str]) -> dict[str, str]:
    """Return the definitions of comparisons, by their names."""
    return {name: Comparison.parse(name).definition for name in sorted(set(names))}


def first_of(value: Floats, limits: tuple[Floats, Floats], reason: str = "") -> common.Estimate:
    """Return the first of several numbers with its limits; ``value`` and both ``limits`` have the shape (n,)."""
    low, high = limits
    return common.estimate(float(value[0]), float(low[0]), float(high[0]), reason)


SomeChecked = TypeVar("SomeChecked", bound=common.CheckedResult)
Entry = TypeVar("Entry", common.SavedCheck, common.Change, common.NotComparable)


def with_data(result: Audit, **fields: Any) -> Audit:
    """Return an audit with other entries on its data."""
    return fields_replaced(result, data=fields_replaced(result.data, **fields))


def with_checks(result: SomeChecked, checks: Iterable[common.SavedCheck]) -> SomeChecked:
    """Return a result with other checks, and their worst verdict."""
    listed = tuple(checks)
    return fields_replaced(result, checks=listed, verdict=worst(one.verdict for one in listed))


def in_class(entry: Entry, name: str) -> Entry:
    """Return an entry on one class of many, with the class in its identifier; on all of them without a name."""
    return entry if not name else fields_replaced(entry, of_class=name, id=f"{entry.id}, class {name}")


def rows_struct(read: int, used: int, excluded: Mapping[str, int], filtered: int = 0) -> common.RowNumbers:
    """Return how many rows came in, how many are used, and why the others are not; ``filtered`` have not come in."""
    every = {LEFT_OUT: filtered, **excluded} if filtered else excluded
    left_out = tuple(common.Excluded(reason=why, rows=many) for why, many in every.items())
    return common.RowNumbers(read=read + filtered, used=used, excluded=left_out)


def columns_struct(data_spec: DataSpec, id_: str | None = None) -> common.Columns:
    """Return which column is what."""
    columns = data_spec.columns
    single = ("label", "score", "prediction", "probability", "weight", "count")
    named = {role: getattr(columns, role) or "" for role in single}
    return common.Columns(protected=columns.protected, strata=columns.strata, id=id_ or "", **named)


def cut_words(settings: common.SavedSettings) -> str:
    """Return the decision threshold, or that of each group; empty where decisions do not follow from a score."""
    if settings.threshold is not None:
        return f"{settings.threshold:g}"
    own = (cuts.items() for cuts in settings.group_thresholds.values())
    return ", ".join(f"{cut:g} for {group}" for cuts in own for group, cut in cuts)


def spec_fields(data_spec: DataSpec) -> dict[str, Any]:
    """Return how labels and scores are read, as the settings of a result have it."""
    own = data_spec.group_thresholds
    return {
        "task": data_spec.task,
        "score_scale": data_spec.score_scale,
        "threshold": data_spec.threshold,
        "group_thresholds": {} if own is None else {own.attribute: dict(own.cuts)},
        "positive_label": data_spec.positive_label,
        "positive_prediction": data_spec.positive_prediction,
        "label_threshold": data_spec.label_threshold or None,
        "where": data_spec.where,
        "bands": {name: edges for name, edges in data_spec.bands.items() if edges},
        "merge": {name: dict(names) for name, names in data_spec.merge.items()},
    }
