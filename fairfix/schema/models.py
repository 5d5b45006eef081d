"""The result of ``fairfix compare`` with two models."""

from __future__ import annotations

from typing import Any, Literal

from fairfix.schema.common import (
    Change,
    Count,
    Data,
    Estimate,
    Message,
    NotComparable,
    Paired,
    Part,
    Record,
    require_once,
)


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


class Models(Part, frozen=True, kw_only=True):
    """Result of fairfix compare with two models."""

    schema: Literal["fairfix.models/1"]
    fairfix: str
    data: Data
    settings: dict[str, Any]
    models: tuple[Model, Model]
    """The other model, then the one that is compared with it."""
    qualities: tuple[Change, ...]
    changes: tuple[Change, ...]
    not_comparable: tuple[NotComparable, ...]
    messages: tuple[Message, ...] = ()
    paired: Paired | None = None
    groups: tuple[GroupOfModels, ...] = ()
    record: Record | None = None

    def __post_init__(self) -> None:
        """Require every number once."""
        for changes in (self.qualities, self.changes):
            require_once(((one.id, one.attribute) for one in changes), "change")
        require_once(((one.attribute, one.group, one.metric) for one in self.groups), "group")
