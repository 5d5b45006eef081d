"""A saved result of the very file that is audited is paired by places of rows; for one of another a way is proposed."""

from __future__ import annotations

import json
import shlex
from typing import Any

import fairfix
import numpy as np
import pandas as pd
import pytest
from fairfix.errors import DataError

from tests.conftest import Call
from tests.test_auditing.test_paired_differences import two_models

pytestmark = pytest.mark.usefixtures("away")
GATE = "dp.difference.change<=0.05"


def two_decisions(
    seed: int, rows: int, old: tuple[float, float], new: tuple[float, float], rho: float = 0.97
) -> pd.DataFrame:
    """Return ids, groups and labels of some people, with decisions of two models of these rates by group."""
    groups = {"a": rows // 2, "b": rows - rows // 2}
    was, now = two_models(np.random.default_rng(seed), groups, [*old], [*new], rho)
    frame = was.to_pandas().rename(columns={"id": "person_id", "race": "g", "prediction": "v1"})
    return frame.assign(v2=now["prediction"].to_numpy()).sample(frac=1, random_state=seed)


def change(path: str, baseline: Any, **more: Any) -> Any:
    """Return the result of the new decisions against a baseline."""
    asked: dict[str, Any] = {
        "protected": "g",
        "prediction": "v2",
        "baseline": baseline,
        "check": GATE,
        **more,
    }
    return fairfix.audit(path, **asked).to_dict()


def test_rows_of_the_same_file_are_paired() -> None:
    """As by ids, to the last digit; the result says that the file is the same."""
    frame = two_decisions(0, 500, (0.4, 0.5), (0.42, 0.5))
    frame.to_csv("d.csv", index=False)
    old = fairfix.audit("d.csv", protected="g", prediction="v1", record={"owner": "me"})  # type: ignore[call-arg]  # a keyword of the request
    found = change("d.csv", old)
    assert found["baseline"]["same_file"] is True
    frame.assign(v2=frame.v1).to_csv("old.csv", index=False)
    wanted = change("d.csv", "old.csv", id="person_id")
    ours, theirs = (
        {one["id"]: one for one in result["baseline"]["changes"] if "not_paired" not in one}
        for result in (found, wanted)
    )
    assert ours == theirs
    assert len(ours) > 3


@pytest.mark.parametrize("what", ["no hash", "another file", "other numbers", "gone column", "other groups"])
def test_rows_of_another_file_are_not_paired(what: str) -> None:
    """Nor where the result does not have the numbers of its columns, or its columns are not there."""
    frame = two_decisions(0, 500, (0.4, 0.5), (0.42, 0.5))
    frame.to_csv("d.csv", index=False)
    record = {} if what == "no hash" else {"record": {"owner": "me"}}
    old = fairfix.audit("d.csv", protected="g", prediction="v1", **record).to_dict()  # type: ignore[arg-type]  # a keyword of the request
    old = json.loads(json.dumps(old))
    if what == "another file":
        frame[::-1].to_csv("d.csv", index=False)
    if what == "other numbers":
        old["attributes"][0]["groups"][0]["metrics"]["accuracy"]["value"] -= 0.01
    if what == "gone column":
        old["data"]["columns"]["prediction"] = "v0"
    if what == "other groups":
        old["data"]["columns"]["protected"] = ["h"]
    assert "same_file" not in change("d.csv", old)["baseline"]


def test_an_undecided_change_says_why_and_how_to_pair(call: Call) -> None:
    """The line to copy runs, once the old rows are there, and pairs them."""
    frame = two_decisions(1, 400, (0.4, 0.5), (0.41, 0.5), rho=0.999)
    frame.drop(columns="v2").rename(columns={"v1": "prediction"}).to_csv("old.csv", index=False)
    frame.drop(columns="v1").rename(columns={"v2": "prediction"}).to_csv("new.csv", index=False)
    status, _, err = call("audit", "old.csv", "--protected", "g", "--out", "json=old.json", "-q")
    assert status == 0, err
    gate = ("--baseline", "old.json", "--check", GATE)
    status, out, err = call("audit", "new.csv", "--protected", "g", "--format", "json", *gate)
    assert status == 3, err
    content = json.loads(out)
    assert "unpaired" in [one["code"] for one in content["messages"]]
    assert "independent samples" in content["checks"][0]["reason"]
    command = shlex.split(err[err.index("fairfix audit") : err.index(" [unpaired]")])
    assert {"--baseline", "old.csv", "--id", "person_id"} <= {*command}
    status, out, err = call(*command[1:], "--format", "json")
    paired = json.loads(out)
    assert paired["baseline"]["paired"]["rows"] == 400
    assert "unpaired" not in [one["code"] for one in paired.get("messages", [])]
    wide, narrow = (one["baseline"]["changes"][0] for one in (content, paired))
    assert narrow["high"] - narrow["low"] < 0.6 * (wide["high"] - wide["low"])


def test_nothing_is_proposed_where_all_is_decided_or_rows_cannot_be_paired() -> None:
    """Of wide allowances, and of groups that are hidden."""
    frame = two_decisions(1, 400, (0.4, 0.5), (0.41, 0.5))
    frame.to_csv("d.csv", index=False)
    old = fairfix.audit("d.csv", protected="g", prediction="v1")
    codes = [
        one["code"] for one in change("d.csv", old, check="dp.difference.change<=0.9").get("messages", [])
    ]
    assert "unpaired" not in codes
    with pytest.raises(DataError, match="may name smaller groups"):
        change("d.csv", old, suppress_below=5)
