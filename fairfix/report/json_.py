"""JSON: the source of every report."""

from __future__ import annotations

import json

from fairfix.report.layout import Json
from fairfix.report.words import in_json


def render(result: Json) -> str:
    """Return the result as indented JSON."""
    return in_json(json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False)) + "\n"


def unrun(problem: Json) -> str:
    """Return the problem itself; no reader takes it for a result, since its schema is another."""
    return render(problem)
