"""The result of ``fairfix report`` with several audits: their numbers over time."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from fairfix.schema import schema_id
from fairfix.schema.audit import OwnMetric
from fairfix.schema.common import (
    Change,
    Count,
    Estimate,
    NotComparable,
    Part,
    Positive,
    SavedResult,
    Verdict,
    require_once,
)


class Moment(Part, frozen=True, kw_only=True):
    """An audit of a trend, and what of it cannot be compared with the last one."""

    file: str
    source: str
    rows: Count
    date: str = ""
    where: str = ""
    verdict: Verdict | None = None
    """The worst verdict of its checks."""
    not_comparable: tuple[NotComparable, ...] = ()


class MomentValue(Estimate, frozen=True, kw_only=True):
    """A number in an audit of a trend."""

    groups: tuple[str, ...] = ()
    verdict: Verdict | None = None
    """The verdict of the same check; null where the audit does not have it."""


class Line(Part, frozen=True, kw_only=True):
    """A number over time: a value for each audit."""

    id: str
    comparison: str
    attribute: str
    group: str = ""
    check: str = ""
    limit: float | None = None
    series: tuple[MomentValue, ...]
    changed: Positive | None = None
    """Number of the first audit, from 1, whose verdict is not that of the one before it."""
    change: Change | None = None
    """The last value minus the first one that can be compared with it."""


class Trend(SavedResult, frozen=True, kw_only=True, tag_field="schema", tag=schema_id("trend")):
    """Result of fairfix report with several audits; ``data`` and ``settings`` are those of the last one."""

    order: Literal["date", "given"]
    """Order of the audits: by the dates of their data, or as their files were given."""
    moments: Annotated[tuple[Moment, ...], Meta(min_length=2)]
    lines: tuple[Line, ...]
    own_metrics: tuple[OwnMetric, ...] = ()

    def __post_init__(self) -> None:
        """Require a value for each audit, and every line once."""
        require_once(((one.id, one.check) for one in self.lines), "line")
        many = len(self.moments)
        if any(len(one.series) != many or (one.changed or 2) not in range(2, many + 1) for one in self.lines):
            raise ValueError(
                "a line does not have a value for each audit, or changes at one that there is not"
            )
