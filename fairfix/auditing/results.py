"""Settings and results of an audit: frozen, plain, computed elsewhere.

What is saved and shown of them is a struct of :mod:`fairfix.schema` (:mod:`fairfix.auditing.result_structs`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from fairfix.auditing.checks import Check, Ruling, worst
from fairfix.data.choices import Form, GateOn, Keep, Level
from fairfix.data.reading import Reading
from fairfix.errors import UsageError
from fairfix.schema import common
from fairfix.schema.audit import Breakdown, Membership
from fairfix.schema.common import CalibrationBin, Distribution, PairGap, Verdict


@dataclass(frozen=True)
class Settings:
    """Settings of an audit, except those for reading columns."""

    confidence: float = 0.95
    """Confidence level of every interval, simultaneous over the groups it compares."""
    intersect: bool = False
    """Also audit the cells of all protected columns together."""
    reference: Mapping[str, str] = field(default_factory=dict)
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

    def __post_init__(self) -> None:
        if not 0.5 <= self.confidence < 1:
            raise UsageError(f"the confidence {self.confidence} is not in [0.5, 1); 0.95 is usual")


def in_percent(confidence: float) -> str:
    """Return a confidence for reading, with all its digits: ``99.9%`` is not 100%."""
    return f"{100 * confidence:.10g}%"


@dataclass(frozen=True)
class Value:
    """A number with its interval; ``value`` is NaN where it is undefined, then ``reason`` says why.

    ``bound`` is the certified numerical error of a value taken from bins, 0 where it is exact. ``given_scores`` is the
    interval of people with the scores of these rows, where rows are too few for one of all people.
    """

    value: float
    low: float
    high: float
    reason: str = ""
    bound: float = 0.0
    given_scores: tuple[float, float] | None = None


@dataclass(frozen=True)
class GroupReport:
    """One row of the group table; ``weight`` is the sum of weights, ``share`` its part of the whole.

    ``score_deviation`` is the standard deviation of the score over the rows, each by its weight.
    """

    name: str
    levels: tuple[str, ...]
    rows: int
    weight: float
    share: float
    metrics: Mapping[str, Value]
    calibration: tuple[CalibrationBin, ...] = ()
    score_deviation: float | None = None


@dataclass(frozen=True)
class ComparisonReport:
    """One comparison: which groups reach it, which are undefined, and each group's own where it has one.

    ``at`` is the score at which a KS distance is reached; ``stratum`` where a ``within_strata`` one is; ``of_class``
    the class with the largest of the gaps that are averaged.
    """

    id: str
    value: Value
    groups: tuple[str, ...]
    undefined: tuple[str, ...] = ()
    stratum: str = ""
    at: float | None = None
    per_group: Mapping[str, Value] = field(default_factory=dict)
    pairs: tuple[PairGap, ...] = ()
    of_class: str = ""


@dataclass(frozen=True, kw_only=True)
class Block:
    """One attribute, overall or inside one stratum; score distributions overall only.

    ``true_groups`` holds values of true groups for checks, by metric and scope (``selection_rate.true_groups``). The
    block of an attribute that is known by probabilities alone has no groups but those.
    """

    attribute: str
    columns: tuple[str, ...]
    stratum: str = ""
    groups: tuple[GroupReport, ...]
    comparisons: Mapping[str, ComparisonReport]
    distribution: Distribution | None = None
    true_groups: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)


@dataclass(frozen=True)
class CheckResult:
    """A check, judged for one attribute: of a value, or of its ``change`` since a baseline.

    ``columns`` make the attribute; ``complete`` is False where a group's value is undefined.
    """

    check: Check
    attribute: str
    columns: tuple[str, ...]
    value: Value
    groups: tuple[str, ...]
    ruling: Ruling
    complete: bool
    of: Literal["value", "change"] = "value"

    @property
    def id(self) -> str:
        """Name of the check in results."""
        of = replace(self.check.comparison, attribute=self.attribute)
        return of.text("change") if self.of == "change" else str(of)

    @property
    def verdict(self) -> Verdict:
        """Verdict of the ruling."""
        return self.ruling.verdict

    @property
    def reason(self) -> str:
        """Reason of the ruling, in words."""
        return self.ruling.reason


@dataclass(frozen=True)
class Bound:
    """Where a number of true groups can lie under one assumption on the noise."""

    low: float
    high: float
    """The exact worst case on these rows; NaN where there is none, then ``reason`` says why."""
    outer_low: float
    outer_high: float
    """The worst case with sampling error of the rows and, where it was counted, of the noise table."""
    reason: str = ""


@dataclass(frozen=True)
class Figure:
    """A number of a true group, or of a comparison of true groups, under every assumption."""

    name: str
    """Metric, or comparison without its scope."""
    group: str
    """True group; empty for a comparison."""
    recorded: float
    """The number of the recorded groups; NaN where there is none."""
    weighted: float
    """Every row counted in each true group by its chance to be there; NaN where it is not known."""
    bounds: Mapping[Level, Bound]
    """Assumption (N0 to N4) -> where the number lies."""
    naive: tuple[float, float] | None = None
    """``recorded`` give or take the share of the group that is recorded as another; no bound at all, or None."""
    identified: float | None = None
    standard_error: float | None = None
    """Under N4, where it was stated; the standard error takes the table as known."""
    other: tuple[float, float] | None = None
    """Bounds by N1 or N2 with the table carried over in the other way; None where that is the same."""
    curve: tuple[tuple[float, float, float], ...] = ()
    """(eps, low, high) under N3; NaN where the data refute it."""
    certain_up_to: float | None = None
    """Largest eps at which a difference is certainly not 0; NaN if it never is."""


@dataclass(frozen=True)
class NoiseReport:
    """Results of an audit for true groups."""

    attribute: str
    source: str
    """The recorded groups' column, and where the noise is described."""
    true: tuple[str, ...]
    noisy: tuple[str, ...]
    """Names of the groups."""
    form: Literal["", Form, "membership"]
    rows: int | None
    by_label: bool
    keep: Literal["", Keep, "either"]
    """The table: kind of its values, rows counted, whether it is by label, and which part is carried over."""
    table: tuple[tuple[float, ...], ...]
    """Joint masses of true and recorded groups in the data, shape (J, K); empty without a table."""
    rests_on: Level
    """The strongest assumption that was stated; what is gated rests on it."""
    stated: Mapping[Level, str]
    """Assumption -> what was stated, in words."""
    unavailable: Mapping[Level, str]
    """Assumption -> why there is no bound under it."""
    radii: Mapping[str, float]
    conditional_radii: Mapping[str, float]
    """Group -> radius used, and the one that holds for equal marginals only."""
    near: Mapping[str, str]
    """Group -> recorded group around which the radius is."""
    shift: float | None
    """Total variation between the recorded groups of table and data."""
    transport_difference: float | None
    """Largest difference of the table to that carried over in the other way."""
    smallest_eps: float | None
    """The least eps that the data allow."""
    vacuous: tuple[tuple[str, str], ...]
    """(metric, group) that a table without labels leaves open, whatever the decisions are."""
    figures: tuple[Figure, ...]
    """Numbers of groups, then of comparisons."""
    breakdowns: tuple[Breakdown, ...]
    """Breakdown points of checks."""
    replicates: int
    seed: int
    """Seed of the resampling."""
    notes: tuple[str, ...] = ()
    """Further remarks for the reader."""
    membership: Membership | None = None
    """Where rows carry probabilities of membership; then there are no recorded groups and no table."""


@dataclass(frozen=True)
class AuditReport:
    """Everything that an audit returns.

    ``left_out`` are attributes with too few groups that may be shown.
    """

    source: str
    reading: Reading
    settings: Settings
    rows_read: int
    rows_used: int
    excluded: Mapping[str, int]
    weight: float
    overall: GroupReport
    blocks: tuple[Block, ...]
    not_computed: Mapping[str, str]
    checks: tuple[CheckResult, ...]
    pooled_median: float | None = None
    model: Mapping[str, str] = field(default_factory=dict)
    inferred: Mapping[str, str] = field(default_factory=dict)
    noise: NoiseReport | None = None
    left_out: tuple[str, ...] = ()
    levels: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Column of a cell -> level -> its rows."""

    @property
    def verdict(self) -> common.Verdict | None:
        """The worst verdict of the checks; None when nothing was gated."""
        return worst(result.verdict for result in self.checks)

    def block(self, attribute: str, stratum: str = "") -> Block:
        """Return the block of an attribute; ``KeyError`` when there is none."""
        for block in self.blocks:
            if (block.attribute, block.stratum) == (attribute, stratum):
                return block
        raise KeyError((attribute, stratum))
