"""No report loses a sentence: what a result says is in every format that a person reads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Any

import fairfix
import pytest
from fairfix.schema.written import to_dict

from tests.data import people
from tests.results import rendered

READ: dict[str, dict[str, Any]] = {"text": {"detail": True}, "markdown": {"detail": True}, "html": {}}
"""Format -> the settings with which it shows all."""

MARK = "Zq"
"""Letters that no result has."""

DATA = (
    "data.source",
    "data.rows.read",
    "data.rows.excluded.*.reason",
    "data.rows.excluded.*.rows",
    "data.columns.protected.*",
    "data.columns.label",
    "data.columns.score",
    "settings.threshold",
    "settings.where",
    "settings.positive_label.*",
)
CHECKS = tuple(
    f"checks.*.{name}"
    for name in ("check", "attribute", "reason", "limit", "value", "low", "high", "groups.*")
)
SHOWN = {
    "audit": (*DATA, *CHECKS, "settings.confidence"),
    "noise": (
        *("noise.attribute", "noise.assumptions.N0", "noise.unavailable.N1", "noise.unavailable.N3"),
        *("noise.radii.*.group", "noise.radii.*.radius", "noise.groups.*.group"),
    ),
    "repair": (
        *DATA,
        *CHECKS,
        *("messages.*.text", "method", "parameters.rho", "requires.columns.*", "split.holdout", "split.fit"),
        *("solution.certificates.*.says", "solution.quantities.*.meaning", "proof.holdout.table.*.unlike"),
        *("proof.holdout.table.*.after.reason", "proof.holdout.rows"),
    ),
    "promise": ("guarantee.says",),
    "compare": (*DATA, "contenders.*.title", "points.*.title", "points.*.messages.*.text", "advice.*.gap"),
    "slices": (
        *(path for path in DATA if "protected" not in path),
        *(
            "slices.columns.*.column",
            "slices.slices.*.where",
            "slices.slices.*.rows",
            "slices.slices.*.value",
        ),
    ),
}
"""Result -> paths that every report of it shows; a star is each entry of a list."""


@cache
def result(kind: str) -> dict[str, Any]:
    """A result of its kind with as much to say as there is."""
    rows = people(500)[["race", "sex", "town", "label", "score"]].assign(year=2024)
    rows["label"] = rows["label"].map({0: "bad", 1: "good"})
    rows.loc[:4, "score"] = math.nan
    told: dict[str, Any] = {
        "protected": ["race"],
        "label": "label=good",
        "where": "year==2024",
        "missing": "drop",
    }
    made: Any
    if kind == "audit":
        made = fairfix.audit(rows, **told, check=["dp.difference<=0.01"], merge={"race": {"c": "b"}})
    elif kind == "noise":
        made = fairfix.audit(rows, **told, noise=[f"radius:{race}=0.05" for race in "abc"])
    elif kind == "repair":
        made = fairfix.repair(
            rows, **told, method="ramp", slack=0.3, guarantee=0.9, check=["dp.difference<=0.01"]
        )
    elif kind == "promise":
        made = fairfix.repair(
            people(4000, shares=(0.5, 0.3, 0.2)), protected=["race"], method="ramp", slack=0.3, guarantee=0.9
        )
    elif kind == "compare":
        made = fairfix.compare(rows, **told, methods=["ramp"], slacks=[0, 0.1])
    else:
        del told["protected"]
        rows.loc[rows["town"] == "south", "score"] = 0.9 * (rows["label"] == "bad")
        made = fairfix.slices(rows, **told, features=["town"], min_rows=50)
    return to_dict(made.content)


def leaves(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield every value of a result with its path."""
    entries = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    if not isinstance(node, dict | list):
        yield path, node
    for key, value in entries:
        yield from leaves(value, (*path, key))


def put(node: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a result with another value in one place."""
    if not path:
        return value
    if isinstance(node, dict):
        return node | {path[0]: put(node[path[0]], path[1:], value)}
    return [put(one, path[1:], value) if i == path[0] else one for i, one in enumerate(node)]


def others(value: Any) -> list[Any]:
    """Return values that differ so much that it shows; a result may allow only one of them."""
    if isinstance(value, str):
        return [value + MARK]
    if isinstance(value, int):
        return [value + 1, value - 1]
    return [0.9 * value + 0.004, 1.1 * value]


def read(content: dict[str, Any]) -> dict[str, str]:
    """The reports that a person reads."""
    return {name: rendered(name, content, **settings) for name, settings in READ.items()}


@pytest.mark.parametrize("kind", SHOWN)
def test_no_report_loses_what_a_result_says(kind: str) -> None:
    """Another text or number in the result is another report, in each format."""
    content = result(kind)
    before = read(content)
    places: dict[str, list[tuple[Any, ...]]] = {}
    for path, value in leaves(content):
        if value is not None and not isinstance(value, bool):
            places.setdefault(".".join("*" if isinstance(key, int) else key for key in path), []).append(path)
    lost = set(SHOWN[kind]) - places.keys()
    assert not lost, sorted(places)
    for path in (path for pattern in SHOWN[kind] for path in places[pattern][:1]):
        value = content
        for key in path:
            value = value[key]
        for other in others(value):
            with suppress(ValueError):
                after = read(put(content, path, other))
                assert [name for name in READ if after[name] == before[name]] == [], path
                break
        else:
            pytest.fail(f"no other value is allowed at {path}")
