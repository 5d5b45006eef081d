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
    "rows used": lambda result: result["data"]["rows"].update(used=10**6),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("gate_on", ["interval", "point"])
def test_what_contradicts_itself_is_refused(change: str, gate_on: Any, away: None, call: Call) -> None:
    """With status 2; the result as it was made is shown, and taken as a baseline."""
    n = 200
    frame = pd.DataFrame({"g": ["a", "b"] * n, "label": [0, 1, 1, 0] * (n // 2), "score": [0.9, 0.1] * n})
    frame.to_csv("d.csv", index=False)
    limits = ["dp.difference<=0.5", "ks<=1", "accuracy.min>=0.5"]
    content = fairfix.audit("d.csv", protected="g", check=limits, gate_on=gate_on).to_dict()
    assert {check["verdict"] for check in content["checks"]} >= {"fail", "pass"}
    baseline = ("audit", "d.csv", "--protected", "g", "--no-config", "--baseline")
    Path("sound.json").write_text(json.dumps(content))
    assert call("report", "sound.json", "--format", "markdown")[0] == 0
    assert call(*baseline, "sound.json")[0] == 0
    CHANGES[change](content)
    Path("changed.json").write_text(json.dumps(content))
    for line in (("report", "changed.json", "--format", "html"), (*baseline, "changed.json")):
        assert call(*line)[0] == 2, line
