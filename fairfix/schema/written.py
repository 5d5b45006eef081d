"""Results as JSON."""

from __future__ import annotations

import json
from typing import Any

import msgspec


def to_json(content: Any, indent: int | None = 2) -> str:
    """Return a result, or any value that JSON has, as JSON."""
    try:
        text = msgspec.json.encode(content)
    except UnicodeEncodeError:  # half of a surrogate pair, as names of files can have, is no UTF-8
        return json.dumps(msgspec.to_builtins(content), indent=indent)
    return (msgspec.json.format(text, indent=indent) if indent else text).decode()


def to_dict(content: Any) -> dict[str, Any]:
    """Return a result as dictionaries and lists, as JSON has it."""
    out: dict[str, Any] = json.loads(to_json(content, None))
    return out
