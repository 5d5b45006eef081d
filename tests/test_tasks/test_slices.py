"""Slices through the library and the command line: what is searched, said and checked, and what is refused."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import fairfix
import numpy as np
import pandas as pd
import pytest
from fairfix.cli import run
from fairfix.errors import ColumnError, DataError, UsageError
from fairfix.schema import checked

from tests.data import people


def loans(rows: int = 4000, seed: int = 0) -> pd.DataFrame:
    """Return rows whose labels are turned for young people with cars, and columns that can make no slice."""
    frame = people(rows, seed).drop(columns=["raw", "real", "p"])
    rng = np.random.default_rng(seed)
    frame["age"] = rng.integers(18, 80, rows)
    frame["one"] = "x"
    frame["town"] = frame["town"].where(rng.random(rows) < 0.8)
    young = (frame["age"] < 30) & (frame["product"] == "car")
    frame["label"] = np.where(young, 1 - frame["score"].round(), frame["score"].round()).astype(int)
    return frame


KEYS = {"label": "label", "score": "score"}
BAD = "product == 'car' and age < 30"


def test_the_worst_slice_is_reported_with_what_it_holds() -> None:
    frame = loans()
    result = fairfix.slices(frame, **KEYS, bands={"age": [30, 60]})
    content = result.to_dict()
    search = content["slices"]
    (one,) = search["slices"]

    assert one["where"] == BAD
    assert one["rows"] == len(frame.query(BAD))
    assert (one["value"], one["error"], one["shown"]) == (0.0, pytest.approx(1.0), True)
    assert {one["column"] for one in search["left_out"]} == {"id", "one"}
    assert checked(json.loads(result.to_json())) is not None
    shown = result.to_frame()
    assert shown.loc[0, "where"] == BAD
    assert shown.loc[0, "low"] <= 0 <= shown.loc[0, "high"]
    for name in ("text", "markdown", "html", "github", "junit", "sarif", "comment", "card"):
        assert "product" in result.render(name) or name in ("github", "junit", "sarif")


def test_the_row_filter_of_a_slice_selects_its_rows(away: None) -> None:
    """The printed command runs, and audits as many rows as the slice has, with the accuracy of the slice."""
    frame = loans()
    frame.to_csv("loans.csv", index=False)
    result = fairfix.audit("loans.csv", protected="sex", **KEYS, slices="all", bands={"age": [30, 60]})
    for one in result.to_dict()["slices"]["slices"]:
        assert run([*shlex.split(one["command"])[1:], "--out", "json=slice.json"]) == 0
        audit = json.loads(Path("slice.json").read_text())
        assert audit["data"]["rows"]["used"] == one["rows"]
        assert audit["overall"]["metrics"]["accuracy"]["value"] == pytest.approx(one["value"])


def test_the_command_line_and_the_library_agree(tmp_path: Path) -> None:
    frame = loans()
    path, saved = tmp_path / "loans.parquet", tmp_path / "slices.json"
    frame.to_parquet(path)
    line = ["audit", str(path), "--label", "label", "--score", "score", "--slices", "--out", f"json={saved}"]
    for more, given in (
        ([], {}),
        (["--validation", "0.5", "--seed", "3"], {"validation": 0.5, "seed": 3}),
        (["--slice-metric", "fnr", "--min-rows", "300"], {"slice_metric": "fnr", "min_rows": 300}),
    ):
        assert run([*line, *more]) == 0
        ours = fairfix.slices(str(path), **KEYS, **given).to_dict()
        theirs = json.loads(saved.read_text())
        for result in (ours, theirs):
            for one in result["slices"]["slices"]:
                one.pop("command", None)
        assert ours["slices"] == theirs["slices"]


def test_people_who_are_counted_are_as_many_rows() -> None:
    frame = loans()[["product", "race", "sex", "score", "label"]].round({"score": 1})
    counted = frame.groupby(list(frame.columns)).size().rename("n").reset_index()
    one, other = fairfix.slices(frame, **KEYS), fairfix.slices(counted, **KEYS, count="n")
    assert one.to_dict()["slices"]["slices"]
    pd.testing.assert_frame_equal(
        one.to_frame().drop(columns="command"), other.to_frame().drop(columns="command")
    )


def test_a_gap_between_groups_is_largest_where_it_was_made() -> None:
    rng = np.random.default_rng(2)
    frame = loans(8000, 1)
    wide = (frame["race"] == "b").to_numpy()
    up = np.where(wide & (frame["sex"] == "f"), 0.2, 0.6)
    frame["decision"] = (rng.random(len(frame)) < up).astype(int)
    given = {"prediction": "decision", "label": "label", "protected": "sex", "slice_metric": "dp.difference"}
    data = frame.drop(columns="score")
    result = fairfix.audit(data, **given, slices="all", check="slices.dp.difference.max<=0.1")
    content = result.to_dict()

    assert [one["where"] for one in content["slices"]["slices"]] == ["race == 'b'"]
    assert content["verdict"] == "fail"
    assert content["checks"][0]["value"] >= content["slices"]["slices"][0]["value"]
    assert checked(json.loads(result.to_json())) is not None


@pytest.mark.parametrize(
    ("limit", "validation", "status"),
    [(0.5, None, 1), (0.5, 0.5, 1), (0.01, None, 3), (0.0, None, 0), (0.0, 0.5, 3)],
)
def test_a_check_limits_the_worst_slice(limit: float, validation: float | None, status: int) -> None:
    """It passes if no slice can be beyond the limit; tested slices alone cannot show that."""
    frame = loans()
    frame.loc[frame.query(BAD).index[:3], "label"] ^= 1
    given = {**KEYS, "bands": {"age": [30, 60]}, "validation": validation}
    result = fairfix.slices(frame, **given, check=f"slices.accuracy.min>={limit}")
    assert result.exit_status() == status


def test_a_split_by_ids_does_not_depend_on_the_order() -> None:
    frame = loans()
    twice = pd.concat([frame, frame[::-1]])
    both = [
        fairfix.slices(one, **KEYS, validation=0.4, id="id").to_dict()["slices"]["rows"]
        for one in (frame, frame[::-1])
    ]
    assert both[0] == both[1]
    doubled = fairfix.slices(twice, **KEYS, validation=0.4, id="id").to_dict()["slices"]["rows"]
    assert doubled % 2 == 0


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"slices": "moon"}, ColumnError, "moon"),
        ({"slices": "label"}, UsageError, "label"),
        ({"slices": ["id", "one"]}, DataError, "min_rows"),
        ({"slice_metric": "auc"}, UsageError, "auc"),
        ({"slice_metric": "log_loss"}, UsageError, "probability 0"),
        ({"slice_metric": "dp.difference"}, UsageError, "protected"),
        ({"slice_metric": "dp.ratio", "protected": "sex"}, UsageError, "dp.ratio"),
        ({"check": "slices.accuracy.max<=1"}, UsageError, "accuracy"),
        ({"check": "slices.accuracy.min>=0.5", "slice_metric": "fnr"}, UsageError, "slice_metric"),
        (
            {"check": "slices.accuracy.min>=0.5", "slices": "race", "slice_metric": "calibration_gap"},
            UsageError,
            "calibration",
        ),
        ({"bands": {"race": [1]}}, ColumnError, "race"),
        ({"noise": "radius:f=0.1,m=0.1"}, UsageError, "noise"),
        ({"task": "multiclass"}, UsageError, "multiclass"),
        ({"min_rows": 0}, UsageError, "min_rows"),
        ({"validation": 1.0}, UsageError, "validation"),
    ],
)
def test_what_cannot_be_searched_is_refused(
    given: dict[str, object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        fairfix.slices(loans(300), **({"label": "label", "score": "score"} | given))


def test_slices_need_their_columns_and_rows(tmp_path: Path) -> None:
    frame = loans(300)
    with pytest.raises(UsageError, match=r"fairfix\.slices"):
        fairfix.audit(frame, **KEYS, slices="all")
    with pytest.raises(ColumnError, match="role"):
        fairfix.slices(frame[["label", "score"]], **KEYS)
    frame.to_parquet(tmp_path / "data.parquet")
    assert (
        run(
            [
                "audit",
                str(tmp_path / "data.parquet"),
                "--label",
                "label",
                "--score",
                "score",
                "--min-rows",
                "9",
            ]
        )
        == 2
    )
    fairfix.count(frame, protected="sex", **KEYS).save(tmp_path / "data.counts")
    assert run(["audit", str(tmp_path / "data.counts"), "--slices"]) == 2


def test_an_unbounded_loss_is_tested_on_held_out_rows() -> None:
    rng = np.random.default_rng(0)
    frame = loans(6000)
    frame["real"] = frame["age"] + rng.normal(size=len(frame)) * np.where(frame["product"] == "car", 9.0, 2.0)
    given = {"task": "regression", "label": "real", "score": "age", "slices": ["product", "race", "sex"]}
    with pytest.raises(UsageError, match="validation"):
        fairfix.slices(frame, **given)
    score = {"score": "age", "score_scale": "raw", "label": "label", "slices": ["product"]}
    with pytest.raises(UsageError, match="validation") as refused:
        fairfix.slices(frame, **score, slice_metric="mean_score")
    others = re.search(r"one of ([\w, ]+)", str(refused.value))
    assert others is not None
    for name in others[1].split(", "):
        fairfix.slices(frame, **score, slice_metric=name)
    shown = fairfix.slices(frame, **given, validation=0.5).to_frame()
    assert shown.loc[shown["shown"], "where"].tolist() == ["product == 'car'"]


@pytest.mark.parametrize(
    ("check", "waiver", "waived"),
    [
        ("slices.accuracy.min>=0.99", "slices.accuracy.min", True),
        ("slices.accuracy.min>=0.99", "slices.accuracy.min>=0.99", True),
        ("slices.accuracy.min>=0.99", "slices.accuracy.min>=0.98", False),
        ("slices.accuracy.min>=0.99", "accuracy.min", False),
        ("slices.dp.difference.max<=0.0001", "slices.dp.difference.max", True),
        ("accuracy.min>=0.99", "slices.accuracy.min", False),
    ],
)
def test_a_waiver_of_slices_covers_checks_of_slices_alone(check: str, waiver: str, waived: bool) -> None:
    """By the name alone or with the limit; beside groups and in a search alone."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"g": rng.choice(["a", "b"], 900), "x": rng.choice(["u", "v"], 900)})
    frame["label"], frame["prediction"] = rng.integers(0, 2, 900), rng.integers(0, 2, 900)
    about = {"check": check, "slices": ["x"], "gate_on": "point"}
    about["waivers"] = [{"check": waiver, "reason": "known", "expires": "2999-01-01"}]
    results = [fairfix.audit(frame, protected="g", **about)]
    if "difference" not in check and check.startswith("slices"):
        results.append(fairfix.slices(frame[["x", "label", "prediction"]], **about))
    for result in results:
        verdicts = {one.verdict for one in result.content.checks}
        assert verdicts == ({"waived"} if waived else {"fail"})
