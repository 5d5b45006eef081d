"""Saved results of repairs and comparisons: what contradicts itself is refused before it is shown."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from fairfix.auditing.as_json import judged_check
from fairfix.auditing.checks import worst
from fairfix.data.codec import need

NEAR = 1e-9
"""Relative error of a sum or a difference of numbers that were written out."""

NAMED_BY: Mapping[str, Sequence[str]] = {
    "groups": ("attribute", "group", "metric"),
    "people": ("attribute",),
    "rule": ("group",),
    "table": ("id", "attribute"),
    "changes": ("id", "attribute"),
    "qualities": ("id",),
    "points": ("title", "slack", "parameters"),
}
"""List of a result -> what tells its entries apart."""


def check_saved(result: Mapping[str, Any]) -> None:
    """Raise a ValueError where the parts of a saved result contradict each other.

    These are verdicts and intervals, values outside their intervals, entries that are there twice, changes that are not
    the difference of two models, and rows that do not add up.
    """
    rows = result["data"]["rows"]
    left_out = sum(one.get("rows", 0) for one in rows.get("excluded", ()))
    need(rows["used"] + left_out <= rows["read"], "more rows were used and left out than were read")
    checks = [judged_check(one) for one in result.get("checks", ())]
    if checks and "verdict" in result:
        right = worst(check["verdict"] for check in checks)
        need(
            result["verdict"] == right,
            f"the verdict is {result['verdict']!r}, but that of the checks is {right!r}",
        )
    for entry in _entries(result):
        _check_order(entry)
        _check_change(entry)
        for name, keys in NAMED_BY.items():
            if isinstance(of := entry.get(name), list) and all(isinstance(one, dict) for one in of):
                names = [tuple(str(one.get(key)) for key in keys) for one in of]
                need(len({*names}) == len(names), f"an entry of {name} occurs twice")
        if isinstance(entry.get("people"), list):
            _check_people(entry["people"], entry.get("rows", rows["used"]))


def _entries(node: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every object in a JSON value."""
    if isinstance(node, dict):
        yield node
        node = list(node.values())
    if isinstance(node, list):
        for one in node:
            yield from _entries(one)


def _number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _check_order(entry: Mapping[str, Any]) -> None:
    value, low, high = (entry.get(name) for name in ("value", "low", "high"))
    if _number(low) and _number(high):
        need(low <= high, f"an interval is from {low} to {high}")
        if _number(value):
            off = entry.get("bound", 0.0) + NEAR * max(abs(low), abs(high), 1.0)
            need(low - off <= value <= high + off, f"{value} is not in its interval from {low} to {high}")


def _check_change(entry: Mapping[str, Any]) -> None:
    parts = [one.get("value") for one in (entry.get("old"), entry.get("new"), entry) if isinstance(one, dict)]
    old, new, change = [*parts, None, None][:3]
    if _number(old) and _number(new) and _number(change):
        most = NEAR * max(abs(old), abs(new), 1.0)
        need(math.isclose(new - old, change, abs_tol=most), f"a change from {old} to {new} is {change}")


def _check_people(blocks: Sequence[Mapping[str, Any]], most: int) -> None:
    for block in blocks:
        many = sum(group["rows"] for group in block["groups"])
        need(many <= most, f"the groups of {block['attribute']} have {many:,} rows of {most:,}")
