"""JSON: the source of every report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def render(result: Mapping[str, Any]) -> str:
    """Return the result as indented JSON."""
    return json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
