"""Placeholder for the result of a run that failed."""

from __future__ import annotations

from typing import Literal

from fairfix.schema import schema_id
from fairfix.schema.common import Part


class Unrun(Part, frozen=True, kw_only=True, tag_field="schema", tag=schema_id("unrun")):
    """Placeholder for the result of a run that failed."""

    fairfix: str
    command: Literal["audit", "repair", "compare", "report"]
    status: Literal[2, 70, 129, 130, 137, 143]
    """The exit status; 137 until a run that replaces an earlier report has ended, and after it is killed."""
    code: str
    """The kind of problem; ``fairfix explain CODE`` says what it means."""
    message: str
