"""The result of ``fairfix audit`` with many classes."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from fairfix.data.choices import GateOn
from fairfix.schema.audit import Audited, require_blocks
from fairfix.schema.common import Block, ColumnSettings, Estimate, Group, Part, Positive, require_once


class ClassesSettings(ColumnSettings, frozen=True, kw_only=True):
    """Settings of an audit with many classes."""

    task: Literal["multiclass"]
    confidence: float
    confidence_of_class: float
    """Of the intervals of one class, so that those of all classes hold at once with ``confidence``."""
    gate_on: GateOn
    reference: dict[str, str]
    suppress_below: Positive | None = None


class OneClass(Part, frozen=True, kw_only=True):
    """One class against the others."""

    of_class: str = field(name="class")
    overall: Group
    attributes: Annotated[tuple[Block, ...], Meta(min_length=1)]
    strata: tuple[Block, ...]


class Classes(Audited, frozen=True, kw_only=True):
    """Result of fairfix audit with many classes."""

    schema: Literal["fairfix.classes/1"]
    settings: ClassesSettings
    classes: Annotated[tuple[OneClass, ...], Meta(min_length=2)]
    balanced_accuracy: Estimate | None = None
    """Mean over the classes of the overall true positive rate; absent without labels."""

    def __post_init__(self) -> None:
        """Require every class and attribute once, with no more rows than were used."""
        super().__post_init__()
        require_once((one.of_class for one in self.classes), "class")
        for one in self.classes:
            require_blocks(one.attributes, self.data.rows.used)
