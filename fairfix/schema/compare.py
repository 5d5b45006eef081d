"""The results of ``fairfix compare``: of repairs, and of two models."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from fairfix.data.choices import GroupUse
from fairfix.schema import schema_id
from fairfix.schema.audit import OwnMetric
from fairfix.schema.common import (
    BeforeAfter,
    Change,
    Count,
    Estimate,
    FeatureNames,
    Fraction,
    GroupChanges,
    Identifier,
    Message,
    NotComparable,
    NotNegative,
    Paired,
    Part,
    Positive,
    SavedResult,
    SavedSettings,
    require_changes,
    require_once,
)


class CompareNoise(Part, frozen=True, kw_only=True):
    """The noise table, and the assumption that worst cases of true groups rest on."""

    table: str
    assumption: Literal["N1", "N2"]


class CompareSettings(SavedSettings, frozen=True, kw_only=True):
    """Settings of a comparison."""

    seed: Count
    features: tuple[str, ...] | Literal["score"]
    group: GroupUse | None = None
    """Whether only rules that use the protected group, or do not, are compared."""
    noise: CompareNoise | None = None
    quality: str | None = None
    """Quality by which points are recommended, such as ``cost(fp=1,fn=9)``; None for the default."""


class CompareSplit(Part, frozen=True, kw_only=True):
    """Rows of each part."""

    fit: Positive
    holdout: Positive


class SavedContender(Part, frozen=True, kw_only=True):
    """A variant of a method with its parameters."""

    title: str
    parameters: dict[str, Any]


class GapName(Part, frozen=True, kw_only=True):
    """A comparison of the groups of an attribute."""

    comparison: Identifier
    attribute: str


class SavedGap(Estimate, frozen=True, kw_only=True):
    """A gap and its value."""

    gap: GapName


class Axes(Part, frozen=True, kw_only=True):
    """The axes of a frontier."""

    gap: GapName
    quality: str


class Point(Part, frozen=True, kw_only=True):
    """A repair with an allowed gap, evaluated on held-out rows; or why it failed."""

    title: str
    slack: NotNegative | Literal["inf"] | None
    failure: str = ""
    gaps: tuple[SavedGap, ...] = ()
    qualities: dict[str, Estimate] = field(default_factory=dict)
    randomized: Fraction | None = None
    protected_at_predict: bool | None = None
    front: tuple[Axes, ...]
    """Gaps and qualities in which no other point is better in one and as good in the other."""
    messages: tuple[Message, ...]
    surer: tuple[SavedGap, ...] = ()
    """Gaps with intervals that hold for all points at once."""
    costs: dict[str, Estimate] = field(default_factory=dict)
    """Changes of a quality against the base, with intervals that hold for all points at once."""
    people: tuple[GroupChanges, ...]
    selection_rate: BeforeAfter | None = None
    command: str = ""
    """Parameters with which ``fairfix repair`` makes it of the same data."""

    def __post_init__(self) -> None:
        """Require a failure, or all that a repair has; and every gap once."""
        made = (self.randomized is not None, self.protected_at_predict is not None, bool(self.qualities))
        if any(one == bool(self.failure) for one in made):
            raise ValueError("a point has 'failure', or all numbers of a repair")
        for gaps in (self.gaps, self.surer):
            require_once((one.gap for one in gaps), "gap")

    @property
    def by_gap(self) -> dict[GapName, SavedGap]:
        """The gaps by their names."""
        return {one.gap: one for one in self.gaps}

    def has(self, advice: Advice) -> bool:
        """Whether it has what an advice compares, with the interval that holds for all points."""
        sure = {one.gap for one in self.surer} & set(self.by_gap)
        return advice.gap in sure and advice.quality in self.qualities


class Advice(Part, frozen=True, kw_only=True):
    """The point of the best quality with a gap of at most so much on held-out rows, by its index; null without any."""

    gap: GapName
    at_most: Annotated[float, Meta(gt=0)]
    quality: str
    point: Count | None
    refused: Count | None = None
    """Index of a better point, or of the best without another, whose warnings forbid to recommend it."""


class Compare(SavedResult, frozen=True, kw_only=True, tag_field="schema", tag=schema_id("compare")):
    """Result of fairfix compare."""

    settings: CompareSettings
    split: CompareSplit
    contenders: tuple[SavedContender, ...]
    points: tuple[Point, ...]
    features: FeatureNames | None = None
    own_metrics: tuple[OwnMetric, ...] = ()
    advice: tuple[Advice, ...] = ()

    def __post_init__(self) -> None:
        """Require every point once, groups with no more rows than were used, and advice of gaps that points have."""
        require_once(((one.title, one.slack) for one in self.points), "point")
        for point in self.points:
            require_changes(point.people, self.data.rows.used)
        for one in self.advice:
            for place in (one.point, one.refused):
                if place is not None and not any(point.has(one) for point in self.points[place : place + 1]):
                    raise ValueError(f"'advice' names point {place}, which has no such gap and quality")


# ---------------------------------------------------------------------- two models


class Model(Part, frozen=True, kw_only=True):
    """A model by its scores."""

    score: str
    source: str


class GroupOfModels(Part, frozen=True, kw_only=True):
    """A rate of a group under both models."""

    attribute: str
    group: str
    rows: Count
    metric: Literal["selection_rate", "mean_score"]
    old: Estimate
    new: Estimate


class Models(SavedResult, frozen=True, kw_only=True, tag_field="schema", tag=schema_id("models")):
    """Result of fairfix compare with two models."""

    models: tuple[Model, Model]
    """The other model, then the one that is compared with it."""
    qualities: tuple[Change, ...]
    changes: tuple[Change, ...]
    not_comparable: tuple[NotComparable, ...]
    paired: Paired | None = None
    groups: tuple[GroupOfModels, ...] = ()

    def __post_init__(self) -> None:
        """Require every number once."""
        for changes in (self.qualities, self.changes):
            require_once(((one.id, one.attribute) for one in changes), "change")
        require_once(((one.attribute, one.group, one.metric) for one in self.groups), "group")
