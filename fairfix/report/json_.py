"""JSON: the source of every report."""

from __future__ import annotations

from fairfix.report.words import as_json
from fairfix.schema.audit import Audit
from fairfix.schema.common import SavedResult
from fairfix.schema.unrun import Unrun

MOST_INDENTED = 1000
"""Groups of a table that is indented; of more, the blanks are half of megabytes that no one reads line by line."""


def render(result: SavedResult) -> str:
    """Return the result as JSON, indented but for an audit of very many groups."""
    blocks = (*result.attributes, *result.strata) if isinstance(result, Audit) else ()
    many = max((len(block.groups) for block in blocks), default=0)
    return as_json(result, 2 if many <= MOST_INDENTED else None) + "\n"


def unrun(problem: Unrun) -> str:
    """Return the problem itself; no reader takes it for a result, since its schema is another."""
    return as_json(problem) + "\n"
