"""The result of ``fairfix audit`` with many classes."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from fairfix.schema import schema_id
from fairfix.schema.audit import Audited, require_blocks
from fairfix.schema.common import Block, Estimate, Group, Part, require_once


class OneClass(Part, frozen=True, kw_only=True):
    """One class against the others."""

    of_class: str = field(name="class")
    overall: Group
    attributes: Annotated[tuple[Block, ...], Meta(min_length=1)]
    strata: tuple[Block, ...]


class Classes(Audited, frozen=True, kw_only=True, tag_field="schema", tag=schema_id("classes")):
    """Result of fairfix audit with many classes."""

    classes: Annotated[tuple[OneClass, ...], Meta(min_length=2)]
    balanced_accuracy: Estimate | None = None
    """Mean over the classes of the overall true positive rate; absent without labels."""

    def __post_init__(self) -> None:
        """Require every class and attribute once, with no more rows than were used."""
        super().__post_init__()
        require_once((one.of_class for one in self.classes), "class")
        for one in self.classes:
            require_blocks(one.attributes, self.data.rows.used)
