"""What methods refuse, with the messages: a line of ``refusals.jsonl`` each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ALL = [
    json.loads(line) for line in (Path(__file__).parent / "refusals.jsonl").read_text("utf-8").splitlines()
]


def refusals(of: str) -> list[tuple[dict[str, Any], str]]:
    """Return settings of a method, or of a world of rows, with the message of each."""
    return [(given, told) for about, given, told in ALL if about == of]
