"""Schema: the form of every saved result, as frozen structs that JSON is checked against.

One class describes one object of JSON: its fields, their types and ranges, and which of them may be absent. What
fairfix reads back (:func:`checked`) is held to it, and the JSON Schema of each result (:func:`json_schema`) is
generated from it, so that a field is described once. msgspec is loaded when a result is read.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairfix.schema.common import Part

RESULTS = {
    "audit": "fairfix.schema.audit.Audit",
    "repair": "fairfix.schema.repair.Repair",
    "compare": "fairfix.schema.compare.Compare",
    "models": "fairfix.schema.compare.Models",
    "slices": "fairfix.schema.slices.Slices",
    "trend": "fairfix.schema.trend.Trend",
    "unrun": "fairfix.schema.unrun.Unrun",
}
"""Name of a result -> the class that describes it; its ``schema`` is ``fairfix.NAME/1``."""

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_id(name: str) -> str:
    """Return the text by which a result says what it is, such as ``fairfix.audit/1``."""
    return f"fairfix.{name}/1"


@cache
def struct_of(name: str) -> type[Part]:
    """Return the class that describes a result, by its name in :data:`RESULTS`."""
    module, _, kind = RESULTS[name].rpartition(".")
    struct: type[Part] = getattr(import_module(module), kind)
    return struct


def checked(content: Any) -> Part:
    """Return a result that was read from JSON as its struct.

    Raises
    ------
    ValueError
        It is of no known schema, or something in it is missing, unknown, of another type or out of range; the message
        says what and where.
    """
    from fairfix.data.codec import converted

    known_ids = {schema_id(name): name for name in RESULTS}
    if not isinstance(content, dict) or content.get("schema") not in known_ids:
        raise ValueError("it is not a result of fairfix")
    return converted(content, struct_of(known_ids[content["schema"]]))


@cache
def json_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a result by its name in :data:`RESULTS`."""
    import msgspec

    (top,), parts = msgspec.json.schema_components([struct_of(name)], ref_template="#/$defs/{name}")
    own = parts.pop(top["$ref"].rpartition("/")[2])
    null = {"properties": {"value": {"type": "null"}}, "required": ["value"]}
    for part in parts:
        if part in ("Estimate", "SavedComparison", "SavedGap"):  # a check always has a reason
            parts[part] |= {"if": null, "then": {"required": ["reason"]}}
    return {"$schema": DIALECT, "$id": schema_id(name), **own, "$defs": parts}


def to_json(content: Any, indent: int | None = 2) -> str:
    """Return a result, or any value that JSON has, as JSON."""
    import msgspec

    try:
        text = msgspec.json.encode(content)
    except UnicodeEncodeError:  # half of a surrogate pair, as names of files can have, is no UTF-8
        return json.dumps(msgspec.to_builtins(content), indent=indent)
    return (msgspec.json.format(text, indent=indent) if indent else text).decode()


def to_dict(content: Any) -> dict[str, Any]:
    """Return a result as dictionaries and lists, as JSON has it."""
    out: dict[str, Any] = json.loads(to_json(content, None))
    return out
