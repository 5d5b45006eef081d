"""Parts that several results have: numbers with intervals, groups, checks, columns, settings, messages."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, field

from fairfix.data.choices import Asked, Code, GateOn, LeftOutReason, Operator, ScoreScale, Severity

ABOVE_ONE = 1e-7
"""By how much a fraction, as a sum in floating point, may be above 1."""

ROUNDED = 1e-9
"""Relative error of a sum or a difference of numbers."""

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
NotNegative = Annotated[float, Meta(ge=0)]
Fraction = Annotated[float, Meta(ge=0, le=1 + ABOVE_ONE)]
Text = Annotated[str, Meta(min_length=1)]
Day = Annotated[str, Meta(pattern=r"^\d{4}-\d{2}-\d{2}$", extra_json_schema={"format": "date"})]
Digest = Annotated[str, Meta(pattern="^sha256:[0-9a-f]{64}$")]
Interval = Annotated[tuple[float, float], Meta(description="The lower and the upper limit.")]
Names = Annotated[tuple[str, ...], Meta(min_length=1)]
Pair = tuple[str, str]

Verdict = Literal["pass", "fail", "undecided", "waived"]
Worse = Literal["larger", "smaller"] | None


def number(value: float) -> float | None:
    """Return a number that JSON has; NaN and infinities become None."""
    return float(value) if math.isfinite(value) else None


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An object of a result: exactly its fields; those with a default may be absent."""


class Number(Part, frozen=True, kw_only=True):
    """A number with its confidence interval; null is undefined, or an end that there is none of.

    ``bound`` is the certified numerical error of a number from binned scores. ``given_scores`` is the interval for
    people with the scores of these rows, where there are too few rows for one of all people.
    """

    value: float | None
    low: float | None
    high: float | None
    reason: str = ""
    """Why it is undefined."""
    bound: NotNegative | None = None
    given_scores: Interval | None = None

    def __post_init__(self) -> None:
        """Require the number in its interval."""
        value, low, high = self.value, self.low, self.high
        if value is None:
            right = low is None or high is None or _at_most(low, high, self.bound)
        else:
            right = (low is None or _at_most(low, value, self.bound)) and (
                high is None or _at_most(value, high, self.bound)
            )
        if not right:
            raise ValueError(f"{value} is not in its interval from {low} to {high}")

    @property
    def point(self) -> float:
        """The value to compute with: NaN where it is undefined."""
        return math.nan if self.value is None else self.value

    @property
    def lower(self) -> float:
        """The lower limit to compute with: infinite where there is none."""
        return -math.inf if self.low is None else self.low

    @property
    def upper(self) -> float:
        """The upper limit to compute with: infinite where there is none."""
        return math.inf if self.high is None else self.high

    @property
    def way(self) -> Worse:
        """Whether a change is significantly larger or smaller than 0; None where its interval has 0 in it."""
        return "larger" if self.lower > 0 else "smaller" if self.upper < 0 else None

    @property
    def numbers(self) -> dict[str, Any]:
        """The fields of a number, for another struct that has them too."""
        return {name: getattr(self, name) for name in Number.__struct_fields__}


def _at_most(one: float, two: float, bound: float | None) -> bool:
    """Return whether a number is at most another, but for rounding and the numerical error of either."""
    return one <= two or one <= two + (bound or 0.0) + ROUNDED * max(abs(one), 1.0)


NOTHING = Number(value=None, low=None, high=None)
"""No number, and no reason."""


class Estimate(Number, frozen=True, kw_only=True):
    """A number with its confidence interval, or the reason why it is undefined."""

    def __post_init__(self) -> None:
        """Require a reason where there is no number, and a number in its interval."""
        super().__post_init__()
        if self.value is None and not self.reason:
            raise ValueError("a value is null, and there is no reason")

    @property
    def alone(self) -> Estimate:
        """The number alone, where it is a part of more."""
        return Estimate(**self.numbers)


def numbers(value: float, low: float, high: float, reason: str = "", bound: float = 0.0) -> dict[str, Any]:
    """Return the fields of a number: what is not finite is None there, and an undefined number has a reason."""
    return {
        "value": number(value),
        "low": number(low),
        "high": number(high),
        "reason": reason or ("" if math.isfinite(value) else "undefined"),
        "bound": number(bound) if bound else None,
    }


def no_number(reason: str) -> Estimate:
    """Return a number that is undefined for a reason, without limits."""
    return Estimate(value=None, low=None, high=None, reason=reason)


def estimate(value: float, low: float, high: float, reason: str = "", bound: float = 0.0) -> Estimate:
    """Return a number with its limits, as results have it."""
    return Estimate(**numbers(value, low, high, reason, bound))


class BeforeAfter(Part, frozen=True, kw_only=True):
    """A number before and after a repair."""

    before: Estimate
    after: Estimate


# ---------------------------------------------------------------------- data and settings


class Excluded(Part, frozen=True, kw_only=True):
    """Rows that are not used."""

    reason: str
    rows: Count


class RowNumbers(Part, frozen=True, kw_only=True):
    """Numbers of rows that were read and used, and reasons for the others."""

    read: Positive
    used: Positive
    excluded: tuple[Excluded, ...]

    def __post_init__(self) -> None:
        """Require that no more rows are used and excluded than were read."""
        if self.used + sum(one.rows for one in self.excluded) > self.read:
            raise ValueError("more rows were used and left out than were read")


class Columns(Part, frozen=True, kw_only=True):
    """The columns by their role; none is protected where rows have only probabilities of group membership."""

    protected: Names = ()
    label: str = ""
    score: str = ""
    prediction: str = ""
    probability: str = ""
    weight: str = ""
    count: str = ""
    strata: tuple[str, ...] = ()
    id: str = ""


class Data(Part, frozen=True, kw_only=True):
    """The data that was read."""

    source: str
    rows: RowNumbers
    columns: Columns
    inferred: dict[str, str]
    """Roles that were not stated, with the column found by its name."""


class SavedSettings(Part, frozen=True, kw_only=True):
    """Reading of the columns, and the confidence level of all intervals."""

    task: Asked
    score_scale: ScoreScale
    threshold: float | None
    group_thresholds: dict[str, dict[str, float]] = field(default_factory=dict)
    """Column -> group -> its decision threshold, where the thresholds of the original decisions differ by group."""
    confidence: float
    bands: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """Column of numbers -> the edges of its groups."""
    merge: dict[str, dict[str, str]] = field(default_factory=dict)
    """Column -> name in the data -> the group that it is merged into."""
    where: str = ""
    """Condition that the rows meet."""
    label_threshold: Annotated[str, Meta(pattern=r"^(>=|<=|>|<)[-+.0-9eE]+$")] | None = None
    """The comparison that the numbers of positive labels meet, such as ``>=50000``."""
    positive_label: Names = ()
    """The positive values of the labels; without any, 1."""
    positive_prediction: Names = ()
    """The positive values of the decisions; without any, those of the labels, or 1."""


class Message(Part, frozen=True, kw_only=True):
    """A warning or a note; ``fairfix explain CODE`` says what it means."""

    severity: Literal["warning", "note"]
    code: str
    text: str


class Record(Part, frozen=True, kw_only=True):
    """Record kept with the result, with versions of fairfix and libraries."""

    versions: dict[str, str]
    model: str = ""
    owner: str = ""
    purpose: str = ""
    date: str = ""
    command: str = ""
    data_sha256: str = ""


class NextStep(Part, frozen=True, kw_only=True):
    """Step that follows a result, in words; with a command for the same data, where there is one."""

    text: str
    command: str = ""


class SavedResult(Part, frozen=True, kw_only=True):
    """Fields of all results."""

    fairfix: str
    """Version."""
    messages: tuple[Message, ...] = ()
    data: Data
    settings: SavedSettings
    record: Record | None = None
    next_step: NextStep | None = None


class LeftOut(Part, frozen=True, kw_only=True):
    """A column that methods do not learn from."""

    column: str
    reason: LeftOutReason
    text: str


class FeatureNames(Part, frozen=True, kw_only=True):
    """Columns that methods learn from, and columns without a role that they do not learn from."""

    used: tuple[str, ...]
    left_out: tuple[LeftOut, ...]


# ---------------------------------------------------------------------- groups and comparisons


class CalibrationBin(Part, frozen=True, kw_only=True):
    """Mean score and observed rate of the rows of a bin of scores."""

    start: float = field(name="from")
    end: float = field(name="to")
    weight: float
    mean_score: float | None
    rate: float | None
    rows: Count | None = None


class Group(Part, frozen=True, kw_only=True):
    """A group and its metrics."""

    group: str
    levels: tuple[str, ...]
    """Its value in each of the attribute's columns."""
    rows: Count
    weight: float
    share: Fraction
    metrics: dict[str, Estimate]
    calibration: tuple[CalibrationBin, ...] = ()
    score_deviation: NotNegative | None = None
    """Weighted standard deviation of the score."""

    def value(self, metric: str) -> float | None:
        """Return the value of a metric; None where it is undefined or not there."""
        return self.metrics[metric].value if metric in self.metrics else None


class PairGap(Part, frozen=True, kw_only=True):
    """The comparison of two groups."""

    groups: Pair
    value: float | None
    bound: float | None = None


SCOPES = (
    "between_groups|to_overall|to_reference|within_strata|under_flips|under_comparable|under_everybody|"
    r"under_counterfactuals|within_radius|true_groups(\.worst_case)?|under_n[0-4]|rms_of_classes|mean_of_classes"
)
Identifier = Annotated[
    str,
    Meta(
        pattern=rf"^[A-Za-z_][A-Za-z0-9_]*(\.(difference|ratio|covariance|min|max))?(\.({SCOPES}))?$",
    ),
]


class SavedComparison(Estimate, frozen=True, kw_only=True):
    """A comparison of groups: its value, and the groups that reach it."""

    id: Identifier
    groups: tuple[str, ...]
    undefined: Names = ()
    stratum: str = ""
    at_score: float | None = None
    per_group: dict[str, Estimate] = field(default_factory=dict)
    pairs: tuple[PairGap, ...] = ()
    of_class: str = ""
    """The class with the largest gap, for a mean over classes."""


def comparison(name: str, value: Number, groups: tuple[str, ...] = (), **more: Any) -> SavedComparison:
    """Return a comparison with this value."""
    return SavedComparison(id=name, **value.numbers, groups=groups, **more)


Fractions = Annotated[tuple[Fraction, ...], Meta(min_length=1, max_length=101)]


class GroupCdf(Part, frozen=True, kw_only=True):
    """Fractions of a group's rows with a score below each of the scores."""

    group: str
    below: Fractions


class LargestGap(Part, frozen=True, kw_only=True):
    """Where the score distributions of two groups are furthest apart."""

    groups: Pair
    score: float
    shares: tuple[Fraction, Fraction]


class Distribution(Part, frozen=True, kw_only=True):
    """Distribution functions of the score: fractions of rows with a score below each of the scores."""

    scores: Annotated[tuple[float, ...], Meta(min_length=1, max_length=101)]
    everybody: Fractions
    groups: tuple[GroupCdf, ...]
    gap: LargestGap | None = None

    def __post_init__(self) -> None:
        """Require a fraction for each score."""
        if any(len(one) != len(self.scores) for one in (self.everybody, *(g.below for g in self.groups))):
            raise ValueError(f"a distribution of {len(self.scores)} scores has other numbers of fractions")


class Block(Part, frozen=True, kw_only=True):
    """The groups of an attribute and their comparisons, over all rows or in one stratum."""

    attribute: str
    columns: Names
    groups: tuple[Group, ...]
    comparisons: tuple[SavedComparison, ...]
    stratum: str = ""
    stratum_levels: tuple[str, ...] = ()
    """Its value in each of the columns of strata."""
    distribution: Distribution | None = None

    def __post_init__(self) -> None:
        """Require every group and comparison once."""
        require_once((one.group for one in self.groups), "group")
        require_once((one.id for one in self.comparisons), "comparison")

    @property
    def by_id(self) -> dict[str, SavedComparison]:
        """The comparisons by their names."""
        return {one.id: one for one in self.comparisons}


class NotComputed(Part, frozen=True, kw_only=True):
    """A metric that cannot be computed, and why."""

    metric: str
    reason: str


class Suppressed(Part, frozen=True, kw_only=True):
    """Rows of groups with fewer rows than ``below`` are left out of all numbers."""

    below: Positive
    left_out: tuple[str, ...]


def require_once(names: Iterable[object], what: str) -> None:
    """Raise a ValueError where a name occurs twice."""
    listed = list(names)
    if len(set(listed)) < len(listed):
        raise ValueError(f"a {what} occurs twice")


# ---------------------------------------------------------------------- checks


class Written(Part, frozen=True, kw_only=True):
    """Where a check is written, if in a configuration file; relative to the working folder."""

    file: str
    line: Positive


class Waived(Part, frozen=True, kw_only=True):
    """The waiver that covers a check, and the verdict without it."""

    verdict: Literal["fail", "undecided"]
    code: Code
    severity: Literal["error", "warning"]
    reason: Text
    expires: Day
    limit: float | None = None


class SavedCheck(Estimate, frozen=True, kw_only=True):
    """A check with its verdict: a number with its interval, and the limit."""

    check: str
    id: str
    of: Literal["value", "change"]
    comparison: str
    attribute: str
    columns: Names
    verdict: Verdict
    severity: Severity
    code: Code
    reason: str
    gate_on: GateOn
    complete: bool
    """Whether every compared group has a value; else the check cannot pass."""
    operator: Operator
    limit: float
    groups: tuple[str, ...]
    group: str = ""
    since: Positive | None = None
    """Number of a batch of a state, if the number is that of the rows since then, and not of all rows."""
    of_class: str = field(default="", name="class")
    written: Written | None = None
    waived: Waived | None = None


class SavedWaiver(Part, frozen=True, kw_only=True):
    """A waiver of the configuration."""

    check: str
    reason: Text
    expires: Day
    state: Literal["used", "not needed", "expired", "exceeded", "matches nothing"]
    covers: tuple[str, ...]
    limit: float | None = None
    days_left: Count | None = None
    """Days until a used waiver ends, where it ends soon."""


class Waivers(Part, frozen=True, kw_only=True):
    """Every waiver of the configuration, and what it does on that day."""

    today: Day
    waivers: tuple[SavedWaiver, ...]


class CheckedResult(SavedResult, frozen=True, kw_only=True):
    """A result with checks."""

    verdict: Verdict | None
    """The worst verdict of the checks; null without checks."""
    checks: tuple[SavedCheck, ...]
    waivers: Waivers | None = None


# ---------------------------------------------------------------------- changes


class Change(Number, frozen=True, kw_only=True):
    """A number of two audits, and the new one minus the old one; ``worse`` is the direction of a deterioration."""

    id: str
    old: Estimate
    new: Estimate
    worse: Worse
    comparison: str = ""
    attribute: str | None = None
    group: str = ""
    of_class: str = field(default="", name="class")
    not_paired: str = ""

    def __post_init__(self) -> None:
        """Require that the change is the difference of the two numbers."""
        super().__post_init__()
        old, new, change = self.old.value, self.new.value, self.value
        if old is None or new is None or change is None:
            return
        if abs(new - old - change) > ROUNDED * max(abs(old), abs(new), 1.0):
            raise ValueError(f"a change from {old} to {new} is {change}")

    @property
    def direction(self) -> str:
        """Whether it is significantly better or worse, or larger or smaller where neither is worse; else empty."""
        if self.way is None or self.worse is None:
            return self.way or ""
        return "worse" if self.way == self.worse else "better"


class NotComparable(Part, frozen=True, kw_only=True):
    """A number of only one of two audits, or of two that cannot be compared."""

    id: str
    reason: str
    comparison: str = ""
    attribute: str | None = None
    group: str = ""
    of_class: str = field(default="", name="class")


class Paired(Part, frozen=True, kw_only=True):
    """Pairing of the rows of two audits by the column of row IDs."""

    id: str
    rows: Count
    only_in_baseline: Count
    only_now: Count
    other_group: Count


class Baseline(Part, frozen=True, kw_only=True):
    """Changes since a saved audit: new minus old, with an interval of both."""

    source: str
    fairfix: str
    rows: Positive
    allowed: tuple[str, ...]
    changes: tuple[Change, ...]
    not_comparable: tuple[NotComparable, ...]
    unchanged: bool = False
    """Every number is that of the baseline, and hardly by chance."""
    same_file: bool = False
    paired: Paired | None = None

    def __post_init__(self) -> None:
        """Require every change once."""
        require_once(((one.id, one.attribute) for one in self.changes), "change")


class GroupChange(Part, frozen=True, kw_only=True):
    """Effects of a repair on the members of a group."""

    group: str
    rows: Count
    metrics: dict[str, BeforeAfter]
    up: Fraction | None = None
    """Weighted fraction of the group whose decision goes from 0 to 1, expected over random decisions."""
    down: Fraction | None = None
    """Weighted fraction whose decision goes from 1 to 0."""


class GroupChanges(Part, frozen=True, kw_only=True):
    """Effects of a repair on the groups of an attribute."""

    attribute: str
    groups: tuple[GroupChange, ...]

    def __post_init__(self) -> None:
        """Require every group once."""
        require_once((one.group for one in self.groups), "group")


def require_changes(blocks: tuple[GroupChanges, ...], rows: int) -> None:
    """Raise a ValueError where an attribute occurs twice, or has groups of more rows than there are."""
    require_once((one.attribute for one in blocks), "attribute")
    for block in blocks:
        if (counted := sum(group.rows for group in block.groups)) > rows:
            raise ValueError(f"the groups of {block.attribute} have {counted:,} rows of {rows:,}")
