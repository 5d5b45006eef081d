"""What stands in the place of a result whose run failed."""

from __future__ import annotations

from typing import Literal

from fairfix.schema.common import Part


class Unrun(Part, frozen=True, kw_only=True):
    """What stands in the place of a result whose run failed."""

    schema: Literal["fairfix.unrun/1"]
    fairfix: str
    command: Literal["audit", "repair", "compare", "report"]
    status: Literal[2, 70, 130, 143]
    """The exit status."""
    code: str
    """The kind of problem; ``fairfix explain CODE`` says what it means."""
    message: str
