"""The result of ``fairfix compare``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from fairfix.schema.common import (
    BeforeAfter,
    BinarySettings,
    Count,
    Data,
    Estimate,
    Features,
    Fraction,
    GroupChanges,
    Message,
    NotNegative,
    Part,
    Positive,
    Record,
    Text,
    require_changes,
    require_once,
)


class CompareNoise(Part, frozen=True, kw_only=True):
    """The noise table, and the assumption that worst cases of true groups rest on."""

    table: str
    assumption: Literal["N1", "N2"]


class CompareSettings(BinarySettings, frozen=True, kw_only=True):
    """Settings of a comparison."""

    confidence: float
    seed: Count
    features: list[str] | Literal["score"]
    group: Literal["used", "unused"] | UnsetType = UNSET
    """Whether only rules that use the protected group, or do not, are compared."""
    noise: CompareNoise | UnsetType = UNSET


class CompareSplit(Part, frozen=True, kw_only=True):
    """Rows of each part."""

    fit: Positive
    holdout: Positive


class Contender(Part, frozen=True, kw_only=True):
    """A variant of a method with its parameters."""

    title: str
    parameters: dict[str, Any]


class Point(Part, frozen=True, kw_only=True):
    """A repair with an allowed gap, evaluated on held-out rows; or why it failed."""

    title: str
    slack: NotNegative | Literal["inf"] | None
    failure: Text | UnsetType = UNSET
    gaps: dict[str, Estimate] | UnsetType = UNSET
    qualities: dict[str, Estimate] | UnsetType = UNSET
    randomized: Fraction | UnsetType = UNSET
    protected_at_predict: bool | UnsetType = UNSET
    front: list[str] | UnsetType = UNSET
    """Pairs ``gap|quality`` in which no other point is better in one and as good in the other."""
    notes: list[str] | UnsetType = UNSET
    messages: list[Message] | UnsetType = UNSET
    surer: dict[str, Estimate] | UnsetType = UNSET
    """Gaps with intervals that hold for all points at once."""
    costs: dict[str, Estimate] | UnsetType = UNSET
    """Changes of a quality against the base, with intervals that hold for all points at once."""
    people: list[GroupChanges] | UnsetType = UNSET
    selection_rate: BeforeAfter | UnsetType = UNSET
    command: str | UnsetType = UNSET
    """How ``fairfix repair`` makes it of the same data."""
    warnings: list[str] | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Require a failure, or all that a repair has."""
        whole = (
            self.gaps,
            self.qualities,
            self.randomized,
            self.protected_at_predict,
            self.front,
            self.messages,
        )
        if any((one is UNSET) == (self.failure is UNSET) for one in whole):
            raise ValueError("a point has 'failure', or all numbers of a repair")


class Advice(Part, frozen=True, kw_only=True):
    """The point of the best quality with a gap of at most so much, by its index; null where there is none."""

    gap: str
    at_most: Annotated[float, Meta(gt=0)]
    quality: str
    point: Count | None
    refused: Count | UnsetType = UNSET
    """Index of a better point whose warnings forbid to recommend it."""


class Compare(Part, frozen=True, kw_only=True):
    """Result of fairfix compare."""

    schema: Literal["fairfix.compare/1"]
    fairfix: str
    data: Data
    settings: CompareSettings
    split: CompareSplit
    contenders: list[Contender]
    points: list[Point]
    features: Features | UnsetType = UNSET
    messages: list[Message] | UnsetType = UNSET
    advice: list[Advice] | UnsetType = UNSET
    record: Record | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Require every point once, and groups with no more rows than were used."""
        require_once(((one.title, one.slack) for one in self.points), "point")
        for point in self.points:
            require_changes(point.people, self.data.rows.used)
