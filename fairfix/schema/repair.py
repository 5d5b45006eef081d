"""The result of ``fairfix repair``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from fairfix.data.choices import GateOn
from fairfix.schema import schema_id
from fairfix.schema.common import (
    BeforeAfter,
    CheckedResult,
    Count,
    Data,
    Digest,
    Estimate,
    FeatureNames,
    Fraction,
    GroupChanges,
    Message,
    NotNegative,
    Part,
    Positive,
    SavedSettings,
    Text,
    require_changes,
    require_once,
)

UpToOne = Annotated[float, Meta(ge=0, le=1)]


class RepairData(Data, frozen=True, kw_only=True):
    """The data that was read, with a fingerprint of the rows."""

    fingerprint: Digest


class RepairSettings(SavedSettings, frozen=True, kw_only=True):
    """Settings of a repair."""

    gate_on: GateOn


class Requirements(Part, frozen=True, kw_only=True):
    """Requirements of the repaired predictor when it predicts."""

    columns: tuple[str, ...]
    protected_at_predict: bool
    model_file: bool


class SplitSizes(Part, frozen=True, kw_only=True):
    """Rows of each part."""

    fit: Count
    validation: Count
    holdout: Count


class Candidate(Part, frozen=True, kw_only=True):
    """Parameter values that were compared on the validation rows."""

    parameters: str
    score: float
    chosen: bool


class SavedCertificate(Part, frozen=True, kw_only=True):
    """The objective of the shipped rule is at most ``gap`` above the least of a class of rules."""

    objective: str
    value: float | None
    bound: float | None
    gap: NotNegative | None
    among: str
    rows: str
    says: str


class SavedQuantity(Part, frozen=True, kw_only=True):
    """A number that the solver chose, such as a multiplier, a threshold or a weight."""

    name: str
    value: float | None
    meaning: str
    group: str = ""


class Solution(Part, frozen=True, kw_only=True):
    """Record of the fit; an unknown number is null."""

    converged: bool
    """Whether the solver reached its tolerance."""
    iterations: Count
    objective: float | None
    gap: NotNegative | None
    """Certified distance of the objective from the optimum."""
    certificates: tuple[SavedCertificate, ...]
    quantities: tuple[SavedQuantity, ...]


# ---------------------------------------------------------------------- before and after


class EvaluationRow(Part, frozen=True, kw_only=True):
    """A metric or a comparison before and after; ``attribute`` is null for overall metrics."""

    name: str
    id: str
    attribute: str | None
    before: Estimate
    after: Estimate
    change: Estimate | None = None
    """After minus before, on the same rows."""
    delivered: float | None = None
    """The number with the random decisions that were drawn for these rows."""
    expected: float | None = None
    """The number expected over random values, where ``after`` is as drawn."""
    unlike: str = ""
    """Why the two numbers have no change."""


class ChanceOfKs(Part, frozen=True, kw_only=True):
    """The distance between distributions of this number of rows that chance alone makes."""

    attribute: str
    mean: NotNegative
    upper: NotNegative


class ClassGap(BeforeAfter, frozen=True, kw_only=True):
    """The gap in true positive rates of a class."""

    of_class: str = field(name="class")
    attribute: str


class Evaluation(Part, frozen=True, kw_only=True):
    """Effect of the repair on training rows or on held-out rows."""

    rows: Positive
    randomized: Fraction
    """Fraction of the rows whose decision is random."""
    table: tuple[EvaluationRow, ...]
    noise: tuple[ChanceOfKs, ...]
    other: tuple[EvaluationRow, ...] = ()
    """The same with probabilities rounded instead of drawn, or drawn instead of rounded."""
    reading: Literal["drawn", "rounded"] | None = None
    people: tuple[GroupChanges, ...]
    classes: tuple[ClassGap, ...] = ()
    balanced_accuracy: BeforeAfter | None = None

    def __post_init__(self) -> None:
        """Require every number once, and groups with no more rows than there are."""
        require_once(((one.id, one.attribute) for one in self.table), "number")
        if bool(self.other) != bool(self.reading):
            raise ValueError("'other' and 'reading' belong together")
        if self.classes and self.balanced_accuracy is None:
            raise ValueError("'classes' need 'balanced_accuracy'")
        require_changes(self.people, self.rows)


class Evaluations(Part, frozen=True, kw_only=True):
    """Evaluations on training rows and on held-out rows."""

    fit: Evaluation
    holdout: Evaluation | None = None


# ---------------------------------------------------------------------- guarantee


class GroupGuarantee(Part, frozen=True, kw_only=True):
    """The bound of a group that has a limit of its own."""

    group: str
    bound: NotNegative
    measured: NotNegative
    slack: NotNegative
    inner_slack: NotNegative | None


class RowsOfGroup(Part, frozen=True, kw_only=True):
    """Rows of a group."""

    group: str
    rows: Count


class Needed(Part, frozen=True, kw_only=True):
    """Groups with too few rows for the guarantee, and about how many of each the data would need."""

    groups: Annotated[tuple[str, ...], Meta(min_length=1)]
    rows: Positive


class Price(Part, frozen=True, kw_only=True):
    """The bound with more rows of a group, if the rates on the rows stay the same."""

    group: str
    rows: Positive
    """Number of rows to add to the data."""
    bound: NotNegative


class Guarantee(Part, frozen=True, kw_only=True):
    """A bound on the gap in the population, which holds with ``confidence``."""

    confidence: Annotated[float, Meta(ge=0.5, lt=1)]
    criterion: str
    title: Text
    attribute: str
    holds: bool
    """Whether every bound is within what was asked."""
    bound: NotNegative
    measured: NotNegative
    """The gap on the rows that the bound is computed from."""
    way: Literal["uniform", "held-out", "construction"]
    by: Text
    rows: Annotated[tuple[RowsOfGroup, ...], Meta(min_length=1)]
    says: Text
    slack: NotNegative | None = None
    inner_slack: NotNegative | None = None
    """The slack that the fit was given; null where the fit does not depend on it."""
    least_ratio: UpToOne | None = None
    inner_least_ratio: UpToOne | None = None
    limits: Annotated[tuple[GroupGuarantee, ...], Meta(min_length=1)] = ()
    needed: Needed | None = None
    price: Price | None = None
    """Effect of more rows of the smallest group; null if they change nothing, or if groups have limits of their own."""
    checks: tuple[str, ...] = ()
    """Checks of an audit that state the same of new decisions; empty if there are none."""

    def __post_init__(self) -> None:
        """Require a slack or a least ratio."""
        if (self.slack is None) == (self.least_ratio is None):
            raise ValueError("there must be 'slack' or 'least_ratio'")


# ---------------------------------------------------------------------- counts


class CountedRows(Part, frozen=True, kw_only=True):
    """Counts that took the place of rows."""

    source: str
    rows: Positive
    share: str = ""
    """Which part of the rows was counted."""
    left_out: Positive | None = None
    """Rows of small groups, which are hidden."""


class Ends(Part, frozen=True, kw_only=True):
    """A range, or why there is none."""

    low: NotNegative | None = None
    high: NotNegative | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        """Require both ends, or a reason."""
        if (self.low is None) != (self.high is None) or (self.low is None) != bool(self.reason):
            raise ValueError("there must be 'low' and 'high', or 'reason'")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"a range is from {self.low} to {self.high}")


class RateEnds(Ends, frozen=True, kw_only=True):
    """A range of a rate or a distance, or why there is none."""

    low: UpToOne | None = None
    high: UpToOne | None = None


class GroupEnds(Part, frozen=True, kw_only=True):
    """Ranges of the rates of a group, wherever scores lie in their bins."""

    attribute: str
    group: str
    rows: Positive
    rates: dict[str, RateEnds]
    distance: RateEnds | None = None


class Optimum(Part, frozen=True, kw_only=True):
    """Largest advantage of a rule of exact scores over the shipped rule, or why it is unknown."""

    bound: NotNegative | None = None
    of: str = ""
    among: str = ""
    reason: str = ""

    def __post_init__(self) -> None:
        """Require a bound, or a reason."""
        if (self.bound is None) != bool(self.reason):
            raise ValueError("there must be 'bound' or 'reason'")


class FromCounts(Part, frozen=True, kw_only=True):
    """Certain bounds of a repair from counts."""

    bins: Positive
    width: float
    """Largest width of a score bin."""
    fit: CountedRows
    certified: tuple[GroupEnds, ...]
    optimum: Optimum
    proof: CountedRows | None = None
    no_proof: str = ""
    losses: dict[str, Ends] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Require counts of held-out rows, or why there are none."""
        if (self.proof is None) != bool(self.no_proof):
            raise ValueError("there must be 'proof' or 'no_proof'")


class Artifact(Part, frozen=True, kw_only=True):
    """The file of the repaired predictor."""

    file: str
    sha256: Digest


class GroupRule(Part, frozen=True, kw_only=True):
    """Probability of a positive decision at increasing scores, linear between two of them."""

    group: str
    scores: tuple[float, ...]
    probabilities: tuple[UpToOne, ...]

    def __post_init__(self) -> None:
        """Require a probability for each score."""
        if len(self.scores) != len(self.probabilities):
            raise ValueError(f"the rule of {self.group} has {len(self.scores)} scores")


class Repair(CheckedResult, frozen=True, kw_only=True, tag_field="schema", tag=schema_id("repair")):
    """Result of fairfix repair."""

    method: str
    parameters: dict[str, Any]
    criterion: str
    seed: Count
    data: RepairData
    settings: RepairSettings
    requires: Requirements
    split: SplitSizes
    selection: tuple[Candidate, ...]
    solution: Solution
    proof: Evaluations
    does_not_count: str = ""
    """Differences between two people that must not count, of methods of individual fairness."""
    features: FeatureNames | None = None
    guarantee: Guarantee | None = None
    counts: FromCounts | None = None
    messages: tuple[Message, ...]
    artifact: Artifact | None = None
    rule: tuple[GroupRule, ...]

    def __post_init__(self) -> None:
        """Require the rule of every group once."""
        require_once((one.group for one in self.rule), "rule")
