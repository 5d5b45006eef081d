"""No report loses a sentence: what a result says is in every format that a person reads."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any

import fairfix
import pandas as pd
import pytest
from fairfix.cli import run
from fairfix.schema import to_dict

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
    "audit": (
        *(*DATA, *CHECKS, "settings.confidence"),
        *(
            f"explained_gaps.gaps.*.{name}"
            for name in ("groups.*", "parts.*.columns.*", "parts.*.value", "value")
        ),
        *(f"explained_gaps.{name}" for name in ("gaps.*.rest.value", "left_out.*.column", "left_out.*.text")),
    ),
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
    "compare": (
        *DATA,
        "contenders.*.title",
        "points.*.title",
        "points.*.messages.*.text",
        "advice.*.gap.attribute",
    ),
    "slices": (
        *(path for path in DATA if "protected" not in path),
        *("slices.columns.*.column", *(f"slices.slices.*.{name}" for name in ("where", "rows", "value"))),
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
        made = fairfix.audit(
            rows, **told, check=["dp.difference<=0.01"], merge={"race": {"c": "b"}}, explain_gap=True
        )
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


def value_at(content: Any, path: tuple[Any, ...]) -> Any:
    """Return the value in one place of a result."""
    for key in path:
        content = content[key]
    return content


def others(value: Any) -> list[Any]:
    """Return values that differ so much that it shows; a result may allow only one of them."""
    if isinstance(value, str):
        return [value + MARK]
    if isinstance(value, int):
        return [value + 1, value - 1]
    return [0.9 * value + 0.004, 1.1 * value]


def balanced(content: dict[str, Any], path: tuple[Any, ...]) -> dict[str, Any]:
    """Return a result in which the parts of a gap add up to it again, by another part than the one of the path."""
    if path[0] != "explained_gaps" or path[-1] != "value":
        return content
    gap = content["explained_gaps"]["gaps"][path[2]]
    other = path[:3] + (("parts", 1) if "parts" not in path else ("rest",)) + ("value",)
    left = gap["value"] - gap["rest"]["value"] - sum(one["value"] for one in gap["parts"])
    return put(content, other, value_at(content, other) + left)


def read(content: dict[str, Any]) -> dict[str, str]:
    """The reports that a person reads."""
    return {name: rendered(name, content, **settings) for name, settings in READ.items()}


@pytest.mark.slow
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
                after = read(balanced(put(content, path, other), path))
                assert [name for name in READ if after[name] == before[name]] == [], path
                break
        else:
            pytest.fail(f"no other value is allowed at {path}")


SHOWN_BY_GROUP = {
    "selection rate": "selection_rate",
    "TPR": "true_positive_rate",
    "FPR": "false_positive_rate",
}


@pytest.mark.parametrize("reference", ["a", "c"])
def test_reports_have_each_group_next_to_the_reference_group(
    reference: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rates divided by that of the reference group, and minus it, are those made by hand; undefined ones say why.

    Nobody of group c is selected or has label 1, so its TPR is undefined and a ratio to its rates is infinite or 0/0.
    """
    monkeypatch.chdir(tmp_path)
    rows = people(600, shares=(0.5, 0.3, 0.2))[["race", "label", "score"]]
    rows.loc[rows["race"] == "c", ["label", "score"]] = 0
    rows.to_parquet("d.parquet")
    given = ["audit", "d.parquet", "--protected", "race", "--reference", f"race={reference}", "--quiet"]
    outs = ["csv", "json", "html", "markdown"]
    assert run([*given, "--detail", *(one for name in outs for one in ("--out", f"{name}=d.{name}"))]) == 0
    assert run([*given, "--out", "html=short.html", "--out", "markdown=short.markdown"]) == 0

    selected, of = rows["score"] >= 0.5, rows["race"]
    rates = {
        "selection_rate": selected.groupby(of).mean(),
        "true_positive_rate": selected[rows["label"] == 1].groupby(of).mean().reindex([*"abc"]),
        "false_positive_rate": selected[rows["label"] == 0].groupby(of).mean(),
    }
    table = pd.read_csv("d.csv").query("`fairfix table` == 'per_group'")
    found = table.set_index(["comparison", "group"])
    pages = {name: Path(name).read_text("utf-8") for name in ("d.markdown", "short.markdown")}
    cells = [
        line.strip("| ").split(" | ") for line in pages["d.markdown"].splitlines() if line.startswith("| ")
    ]
    shown = {(row[0], row[1]): row[2:] for row in cells if row[0] in SHOWN_BY_GROUP and row[1] in "abc"}
    assert len(shown) == 9
    for (title, group), (note, many, value, ratio, difference) in shown.items():
        metric = SHOWN_BY_GROUP[title]
        own, base = rates[metric][group], rates[metric][reference]
        defined = not math.isnan(own) and not math.isnan(base)
        wanted = {
            "difference": own - base if defined else math.nan,
            "ratio": own / base if defined and base else 1.0 if defined and group == reference else math.nan,
        }
        assert int(many.replace(",", "")) == (of == group).sum()
        assert (
            value == "undefined"
            if math.isnan(own)
            else float(value.split()[0]) == pytest.approx(own, abs=5e-5)
        )
        assert ("reference" in note.split("; ")) == (group == reference)
        for kind, cell in (("ratio", ratio), ("difference", difference)):
            row = found.loc[f"{metric}.{kind}.to_reference", group]
            assert row.value == pytest.approx(wanted[kind], nan_ok=True)
            if math.isnan(wanted[kind]):
                assert cell == "undefined"
                assert row.reason in note.split("; ")
            else:
                assert [float(end) for end in re.findall(r"-?[\d.]+(?:e-\d+)?", cell)] == pytest.approx(
                    [row.value, row.low, row.high], abs=6e-4
                )
    for name in ("d.html", "short.html"):
        page = unescape(Path(name).read_text("utf-8"))
        assert page.count("difference to reference") == 1
        assert all(cell in page for row in shown.values() for cell in row)
    assert "difference to reference" not in pages["short.markdown"]
