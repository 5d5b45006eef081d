"""The result of ``fairfix compare`` with two models."""

from __future__ import annotations

from typing import Literal

from fairfix.schema import schema_id
from fairfix.schema.common import (
    Change,
    Count,
    Estimate,
    NotComparable,
    Paired,
    Part,
    SavedResult,
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
