"""JSON: the source of every report."""

from __future__ import annotations

from fairfix.report.layout import Json
from fairfix.report.words import as_json


def render(result: Json) -> str:
    """Return the result as indented JSON."""
    return as_json(result) + "\n"


def unrun(problem: Json) -> str:
    """Return the problem itself; no reader takes it for a result, since its schema is another."""
    return render(problem)
