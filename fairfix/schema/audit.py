"""The result of ``fairfix audit``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta, field
from msgspec.structs import replace

from fairfix.data.choices import Form, GateOn, Keep, Level
from fairfix.schema import schema_id
from fairfix.schema.common import (
    Baseline,
    Block,
    CheckedResult,
    Count,
    Data,
    Estimate,
    Fraction,
    Group,
    LeftOut,
    NotComputed,
    Number,
    Part,
    Positive,
    SavedSettings,
    Suppressed,
    require_once,
)
from fairfix.schema.slices import SliceSearch

Ends = tuple[float | None, float | None]


class AuditData(Data, frozen=True, kw_only=True):
    """The audited data; ``model`` describes the model file, if there was one."""

    weight: float
    model: dict[str, str]


class AuditSettings(SavedSettings, frozen=True, kw_only=True):
    """Settings of an audit."""

    confidence_of_class: float | None = None
    """With many classes: level of the intervals of one class, so that those of all hold at once with ``confidence``."""
    gate_on: GateOn
    exact: bool
    reference: dict[str, str]
    """Attribute -> its reference group."""
    suppress_below: Positive | None = None
    always_valid: bool = False
    """Whether intervals hold for all looks at growing data at once, instead of for one look."""


class OwnMetric(Part, frozen=True, kw_only=True):
    """A metric that the caller defined, as a ratio of counts: weights of TP, FN, FP, TN above and below.

    A ratio of polynomials has a weight for each product of two or three of them; a metric of fairfix by another name
    has none.
    """

    metric: str
    above: tuple[float, ...] = ()
    below: tuple[float, ...] = ()
    same_as: str = ""


# ---------------------------------------------------------------------- noise in the groups


class Bound(Part, frozen=True, kw_only=True):
    """The range of a number under an assumption on these rows, and with sampling error (outer)."""

    low: float | None
    high: float | None
    outer_low: float | None
    outer_high: float | None
    reason: str = ""


class CurvePoint(Part, frozen=True, kw_only=True):
    """The range of a number if noise depends on outcomes by at most ``eps``."""

    eps: Fraction
    low: float | None
    high: float | None


class NoiseFigure(Part, frozen=True, kw_only=True):
    """A number of a true group, or a comparison of true groups."""

    name: str
    recorded: float | None
    weighted: float | None
    bounds: dict[Level, Bound]
    naive: Ends | None = None
    identified: float | None = None
    standard_error: float | None = None
    other_transport: Ends | None = None
    curve: tuple[CurvePoint, ...] = ()
    certain_up_to: float | None = None


class NoiseGroup(Part, frozen=True, kw_only=True):
    """The numbers of a true group."""

    group: str
    figures: tuple[NoiseFigure, ...]


class SavedNoiseTable(Part, frozen=True, kw_only=True):
    """The noise table, carried over to the groups of the data."""

    form: Literal["", Form, "membership"] = field(name="values")
    rows: int | None
    by_label: bool
    kept: Literal["", Keep, "either"]
    shift: float | None
    transport_difference: float | None
    true: tuple[str, ...]
    noisy: tuple[str, ...]
    joint: tuple[tuple[Fraction, ...], ...]


class Radius(Part, frozen=True, kw_only=True):
    """The largest total variation between a true group and the recorded group that it is near."""

    group: str
    near: str
    radius: Fraction
    if_shares_were_equal: float | None


class MetricOfGroup(Part, frozen=True, kw_only=True):
    """A metric of a group."""

    metric: str
    group: str


class SavedBreakdown(Part, frozen=True, kw_only=True):
    """Up to which dependence of noise on outcomes a check certainly holds, and certainly fails."""

    check: str
    holds_up_to: float | None
    fails_up_to: float | None


class Resampling(Part, frozen=True, kw_only=True):
    """Number of resampled data sets, and their seed."""

    replicates: Count
    seed: Count


class MemberGroup(Part, frozen=True, kw_only=True):
    """A true group that rows have a probability to be in."""

    group: str
    column: str
    share: Fraction


class Membership(Part, frozen=True, kw_only=True):
    """True groups that rows have probabilities to be in."""

    groups: Annotated[tuple[MemberGroup, ...], Meta(min_length=2)]
    vectors: Positive
    """Distinct vectors of probabilities."""
    bins: Positive
    """Bins of similar vectors."""
    smallest_bin: Count
    """Rows of the smallest bin."""
    searched: Count
    """Rows on which the worst case was searched; its limits are those of ``held`` others."""
    held: Positive


class NoiseResults(Part, frozen=True, kw_only=True):
    """Results for true groups where the recorded groups are noisy."""

    attribute: str
    source: str
    rests_on: Level
    """The strongest assumption that was stated."""
    assumptions: dict[Level, str]
    unavailable: dict[Level, str]
    table: SavedNoiseTable
    radii: tuple[Radius, ...]
    smallest_eps: float | None
    vacuous: tuple[MetricOfGroup, ...]
    groups: tuple[NoiseGroup, ...]
    comparisons: tuple[NoiseFigure, ...]
    breakdown: tuple[SavedBreakdown, ...]
    resampling: Resampling
    notes: tuple[str, ...]
    membership: Membership | None = None


# ---------------------------------------------------------------------- report templates


class TemplateColumn(Part, frozen=True, kw_only=True):
    """A column of a table of a report template."""

    name: str
    title: str
    kind: Literal["text", "count", "rate", "value", "ratio", "number", "p"]


class TemplateTable(Part, frozen=True, kw_only=True):
    """A table of a report template."""

    title: str
    attribute: str
    columns: tuple[TemplateColumn, ...]
    rows: tuple[dict[str, Estimate | float | str | None], ...]


TemplateName = Literal["ll144", "ugesp", "lending", "eu"]


class Template(Part, frozen=True, kw_only=True):
    """A report template of a law or a guideline, filled in."""

    name: TemplateName
    title: str
    lines: Annotated[tuple[str, ...], Meta(min_length=2)]
    tables: tuple[TemplateTable, ...]


# ---------------------------------------------------------------------- states


class StateBatch(Part, frozen=True, kw_only=True):
    """Rows that were added to a state at once."""

    source: str
    added: str
    """Time in UTC."""
    rows: Count


class Trace(Part, frozen=True, kw_only=True):
    """The gap between the two groups that are furthest apart in the total: first minus second."""

    attribute: str
    metric: str
    groups: tuple[str, str]
    batches: tuple[float | None, ...]
    """In each batch alone."""
    totals: tuple[Number, ...]
    """In all batches up to each, with intervals that hold for all batches and all pairs of groups at once."""


class Drift(Part, frozen=True, kw_only=True):
    """A change of the gap between two groups: first minus second, before a batch and since then."""

    attribute: str
    metric: str
    groups: tuple[str, str]
    since: Positive
    """Number of the batch, from 1."""
    before: Number
    after: Number


class StateBatches(Part, frozen=True, kw_only=True):
    """Batches of a state, and the gaps in them."""

    batches: Annotated[tuple[StateBatch, ...], Meta(min_length=1)]
    traces: tuple[Trace, ...]
    drifts: tuple[Drift, ...]

    def __post_init__(self) -> None:
        """Require a number for each batch, and changes at one of them."""
        many = len(self.batches)
        if any(len(one.batches) != many or len(one.totals) != many for one in self.traces):
            raise ValueError("a gap does not have a number for each batch")
        if any(not 2 <= one.since <= many for one in self.drifts):
            raise ValueError("a gap changed at a batch that there is not")


# ---------------------------------------------------------------------- parts of gaps


Outcome = Literal["selection_rate", "mean_score"]


class GapPart(Estimate, frozen=True, kw_only=True):
    """The part of a gap that a column accounts for, or several whose parts cannot be told apart."""

    columns: Annotated[tuple[str, ...], Meta(min_length=1)]


class ExplainedGap(Part, frozen=True, kw_only=True):
    """The gap between the means of two groups, first minus second, in parts: these and the rest add up to it."""

    attribute: str
    metric: Outcome
    groups: tuple[str, str]
    rows: tuple[Positive, Positive]
    means: tuple[float, float]
    value: float
    parts: Annotated[tuple[GapPart, ...], Meta(min_length=1)]
    """From the largest; their intervals and that of the rest hold at once."""
    rest: Estimate | None = None
    """Difference that the columns do not account for; absent with a model, whose columns account for all of it."""
    pairs: Count = 0
    """Pairs of rows that the model was asked about."""
    orders: Count = 0
    """Random orders of the columns for each pair, each with its reverse; 0 with a model: all orders."""
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Require each column once, and numbers that add up."""
        require_once((name for one in self.parts for name in one.columns), "column")
        total = sum(one.point for one in self.parts) + (0.0 if self.rest is None else self.rest.point)
        if not abs(total - self.value) <= 1e-6 * max(1.0, *(abs(one.point) for one in self.parts)):
            raise ValueError(f"the parts of the gap by {self.attribute} do not add up to it")


class ExplainedGaps(Part, frozen=True, kw_only=True):
    """The largest gap of each attribute in parts, by a regression of the rows or by the model itself."""

    by: Literal["regression", "model"]
    gaps: tuple[ExplainedGap, ...]
    left_out: tuple[LeftOut, ...] = ()


class OneClass(Part, frozen=True, kw_only=True):
    """One class against the others."""

    of_class: str = field(name="class")
    overall: Group
    attributes: Annotated[tuple[Block, ...], Meta(min_length=1)]
    strata: tuple[Block, ...]


class Audit(CheckedResult, frozen=True, kw_only=True, tag_field="schema", tag=schema_id("audit")):
    """Result of fairfix audit."""

    data: AuditData
    settings: AuditSettings
    overall: Group
    attributes: Annotated[tuple[Block, ...], Meta(min_length=1)]
    strata: tuple[Block, ...]
    not_computed: tuple[NotComputed, ...]
    definitions: dict[str, str]
    """Comparison -> its definition."""
    baseline: Baseline | None = None
    suppressed: Suppressed | None = None
    pooled_median: float | None
    own_metrics: tuple[OwnMetric, ...] = ()
    noise: NoiseResults | None = None
    profile: Template | None = None
    slices: SliceSearch | None = None
    explained_gaps: ExplainedGaps | None = None
    state: StateBatches | None = None
    classes: Annotated[tuple[OneClass, ...], Meta(min_length=2)] = ()
    """Each class against the others, in a multiclass audit; the other fields are of all classes together."""
    balanced_accuracy: Estimate | None = None
    """Mean over the classes of the overall true positive rate; absent without labels."""

    def __post_init__(self) -> None:
        """Require every class and attribute once, with no more rows than were used."""
        if bool(self.classes) != (self.settings.task == "multiclass"):
            raise ValueError(f"an audit of the task {self.settings.task} has {len(self.classes)} classes")
        require_once((one.of_class for one in self.classes), "class")
        require_once(((name, one.attribute, one.stratum) for name, one in self.blocks), "attribute")
        everywhere = [one.attribute for one in self.attributes]
        if any([one.attribute for one in own.attributes] != everywhere for own in self.classes):
            raise ValueError("a class has other attributes than all classes together")
        strange = {one.of_class for one in self.checks} - {"", *(one.of_class for one in self.classes)}
        if self.classes and strange:  # the part of one class has its checks, and no class
            raise ValueError(f"a check is of class {min(strange)!r}, which is not there")
        used = self.data.rows.used
        for _, block in self.blocks:
            if (rows := sum(group.rows for group in block.groups)) > used:
                raise ValueError(f"the groups of {block.attribute} have {rows:,} rows of {used:,}")

    @property
    def blocks(self) -> Iterator[tuple[str, Block]]:
        """Every block with its class, which is empty where a block is of all classes together."""
        yield from (("", block) for block in (*self.attributes, *self.strata))
        for one in self.classes:
            yield from ((one.of_class, block) for block in (*one.attributes, *one.strata))

    def block(self, attribute: str, stratum: str = "") -> Block:
        """Return the block of an attribute, over all rows or in a stratum; ``KeyError`` when there is none."""
        every = self.strata if stratum else self.attributes
        return {(one.attribute, one.stratum): one for one in every}[attribute, stratum]

    def part(self, of_class: str) -> Audit:
        """Return the audit of a class, or of all classes together where the name is empty, as one of two classes."""
        mine = next(one for one in self.classes if one.of_class == of_class) if of_class else self
        return replace(
            self,
            settings=replace(self.settings, task="classification"),
            checks=tuple(check for check in self.checks if check.of_class == of_class),
            overall=mine.overall,
            attributes=mine.attributes,
            strata=mine.strata,
            classes=(),
        )
