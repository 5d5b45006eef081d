"""A baseline is a saved result, data, or a column of the data: content tells them apart, and all say the same."""

from __future__ import annotations

import json
import os
from pathlib import Path
from threading import Thread
from typing import Any

import fairfix
import numpy as np
import pandas as pd
import pytest
from fairfix.errors import DataError, FairfixError, UsageError

from tests.conftest import Call

pytestmark = pytest.mark.usefixtures("away")
ASKED: dict[str, Any] = {"protected": "race", "label": "y", "score": "new", "check": "change<=0.05"}


def people(many: int = 800, seed: int = 0) -> pd.DataFrame:
    """Return people with the scores of two models, and decisions of one."""
    rng = np.random.default_rng(seed)
    race, z = rng.choice(["a", "b"], many), rng.normal(size=many)
    return pd.DataFrame(
        {
            "id": np.arange(many),
            "race": race,
            "y": (rng.random(many) < 1 / (1 + np.exp(-2 * z))).astype(int),
            "new": 1 / (1 + np.exp(-z)),
            "said": (z > 0).astype(int),
            "old": 1 / (1 + np.exp(-z + 0.5 * (race == "b"))),
        }
    )


def earlier(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the data of the earlier model, whose scores have the name of the new ones."""
    return frame.assign(new=frame["old"]).drop(columns="old")


def changes(data: Any, **asked: Any) -> Any:
    """Return the changes of an audit since its baseline."""
    return fairfix.audit(data, **{**ASKED, **asked}).to_dict()["baseline"]


def test_a_column_is_as_a_second_file_of_the_same_people() -> None:
    """The same changes, limits and verdicts, row by row; no id is needed."""
    frame = people()
    beside = changes(frame, baseline="old")
    matched = changes(frame, baseline=earlier(frame), id="id")
    assert beside["changes"] == matched["changes"]
    assert beside["same_file"] is True
    assert matched["paired"]["rows"] == len(frame)
    assert any(one["value"] > 0.05 for one in beside["changes"])


def test_decisions_have_a_column_too() -> None:
    """It takes the place of the prediction, with its words for a positive decision."""
    frame = people()
    frame = frame.assign(**{name: np.where(frame[name] > 0.5, "yes", "no") for name in ("new", "old")})
    asked: dict[str, Any] = {"score": None, "prediction": "new=yes", "check": "dp.difference.change<=0.05"}
    beside = changes(frame, baseline="old", **asked)
    assert beside["changes"] == changes(frame, baseline=earlier(frame), id="id", **asked)["changes"]


@pytest.mark.parametrize("more", [{}, {"suppress_below": 5}, {"intersect": False}], ids=str)
def test_data_without_ids_is_audited_as_the_new_one(more: dict[str, Any]) -> None:
    """As by a saved result of it: other people, independent samples."""
    frame, old = people(), earlier(people(600, seed=1))
    saved = fairfix.audit(old, **{**ASKED, "check": (), **more})
    by_data, by_result = (changes(frame, baseline=one, **more) for one in (old, saved))
    assert by_data["changes"] == by_result["changes"]
    assert "paired" not in by_data


def test_data_of_many_classes_is_audited_as_the_new_one() -> None:
    frame = people().assign(job=lambda one: one["id"] % 3, said=lambda one: one["id"] // 2 % 3)
    old = frame.assign(said=lambda one: (one["id"] // 3) % 3)
    asked: dict[str, Any] = {
        "protected": "race",
        "label": "job",
        "prediction": "said",
        "task": "multiclass",
        "score": None,
        "check": "tpr.difference.change<=0.9",
    }
    saved = fairfix.audit(old, **{**asked, "check": ()})
    by_data, by_result = (changes(frame, baseline=one, **asked) for one in (old, saved))
    assert by_data["changes"] == by_result["changes"]


def save(kind: str) -> str:
    """Write the baseline of a kind under a name that says nothing, or something else; return the name."""
    old = earlier(people())
    result = fairfix.audit(old, **{**ASKED, "check": ()}).to_json()
    if kind == "result":
        Path("old.csv").write_text(result)
    elif kind == "result in one line":
        Path("old.data").write_text(json.dumps(json.loads(result)))
    elif kind == "rows of JSON":
        old.to_json("old.json", orient="records", lines=True)
    elif kind == "rows of JSON with a schema":
        old.assign(schema="public").to_json("old.json", orient="records", lines=True)
    elif kind == "table":
        old.to_parquet("old.parquet")
    elif kind == "folder":
        Path("old.d").mkdir()
        old[:400].to_parquet("old.d/a.parquet")
        old[400:].to_parquet("old.d/b.parquet")
    else:
        old[:400].to_csv("old_1.csv", index=False)
        old[400:].to_csv("old_2.csv", index=False)
        return "old_*.csv"
    return next(one.name for one in Path().iterdir() if one.name.startswith("old"))


@pytest.mark.parametrize(
    "kind",
    [
        "result",
        "result in one line",
        "rows of JSON",
        "rows of JSON with a schema",
        "table",
        "folder",
        "pattern",
    ],
)
def test_what_a_file_is_its_content_says(kind: str) -> None:
    """Whatever its name, it is the audit of the same rows, so the changes are the same."""
    found, wanted = (changes(people(), baseline=one) for one in (save(kind), earlier(people())))
    shown = [{name: one[name] for name in ("id", "value", "low", "high")} for one in found["changes"]]
    for one, other in zip(shown, wanted["changes"], strict=True):
        assert one["id"] == other["id"]
        assert one["value"] == pytest.approx(other["value"])


@pytest.mark.parametrize("kind", ["result", "table"])
def test_a_pipe_is_read_once(kind: str, call: Call) -> None:
    name = save(kind)
    people().to_csv("new.csv", index=False)
    given = ("--protected", "race", "--score", "new", "--label", "y", "--format", "json")
    plain = call("audit", "new.csv", *given, "--baseline", name)[1]
    os.mkfifo("pipe")
    writer = Thread(target=Path("pipe").write_bytes, args=(Path(name).read_bytes(),))
    writer.start()
    status, out, err = call("audit", "new.csv", *given, "--baseline", "pipe")
    writer.join()
    assert status == 0, err
    assert json.loads(out)["baseline"]["changes"] == json.loads(plain)["baseline"]["changes"]


def test_a_name_of_both_a_column_and_a_file_is_asked_about() -> None:
    """The remedy, ./NAME, means the file."""
    frame, save_here = people(), earlier(people())
    save_here.to_parquet("old")
    with pytest.raises(UsageError, match=r"\./old"):
        changes(frame, baseline="old")
    assert changes(frame, baseline="./old")["rows"] == len(frame)


def test_a_configuration_may_name_a_column_or_a_file(call: Call) -> None:
    """A column is no path; a file is beneath the configuration; compare has no use for a saved result."""
    frame = people()
    frame.to_csv("d.csv", index=False)
    Path("result.json").write_text(fairfix.audit(earlier(frame), **{**ASKED, "check": ()}).to_json())
    Path("below").mkdir()
    line = ("d.csv", "--protected", "race", "--score", "new", "--label", "y", "--format", "json")
    for baseline, paired in (("old", True), ("result.json", False)):
        Path("fairfix.toml").write_text(f'baseline = "{baseline}"\n')
        os.chdir("below")
        status, out, err = call("audit", "../d.csv", *line[1:])
        os.chdir("..")
        assert status == 0, err
        assert ("same_file" in json.loads(out)["baseline"]) is paired
    status, out, err = call("compare", *line, "--methods", "ramp", "--slacks", "0.05")
    assert json.loads(out)["schema"] == "fairfix.compare/1", err
    assert call("compare", *line, "--baseline", "result.json")[0] == 2


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"baseline": "odl"}, "'old'"),
        ({"baseline": "new"}, "is the score itself"),
        ({"baseline": "old", "prediction": "said"}, "is one column"),
        ({"baseline": "old", "suppress_below": 5}, "`suppress_below`"),
        ({"baseline": people(), "id": "id", "suppress_below": 5}, "`suppress_below`"),
        ({"baseline": people(), "id": "nobody"}, "baseline=baseline"),
        ({"baseline": {"schema": "fairfix.compare/1"}}, "not a JSON result of 'fairfix audit'"),
    ],
    ids=str,
)
def test_what_is_no_baseline_is_refused(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(FairfixError, match=words):
        changes(people(), **asked)


def test_scores_that_only_one_model_has_are_refused() -> None:
    """Left out, the change would be of other people than the report."""
    frame = people()
    frame.loc[3, "old"] = np.nan
    with pytest.raises(DataError, match="none from the other"):
        changes(frame, baseline="old", missing="drop")
