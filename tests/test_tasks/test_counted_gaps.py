"""What a proof from counts leaves out: groups without a rule, without held-out rows, or hidden."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fairfix
import numpy as np
import pandas as pd
import pytest
from fairfix.cli import run

from tests.conftest import Call
from tests.results import rendered

ROWS = 700
EASY = "dp.difference[race]<=0.95"


def hospital(groups: str, seed: int, rare: str = "") -> pd.DataFrame:
    """Return people of some groups, and four of a rare one."""
    rng = np.random.default_rng(seed)
    score = rng.choice([0.0, 0.25, 0.5, 0.75, 1.0], ROWS)
    race = rng.choice(list(groups), ROWS)
    race[:4] = rare or race[:4]
    label = (rng.random(ROWS) < 0.2 + 0.6 * score).astype(int)
    return pd.DataFrame({"race": race, "sex": rng.choice(["f", "m"], ROWS), "score": score, "label": label})


def counted(frame: pd.DataFrame, path: Path, **asked: Any) -> str:
    """Count people, and return where."""
    task: Any = fairfix.count
    task(frame, protected=["race", "sex"], label="label", score="score", **asked).save(path)
    return str(path)


def both_sexes(frame: pd.DataFrame) -> pd.DataFrame:
    """Return people without the women of group B."""
    return frame[(frame["race"] != "B") | (frame["sex"] != "f")]


FIT, HELD = hospital("AB", 1), hospital("AB", 2)
WORLDS: dict[str, tuple[pd.DataFrame, pd.DataFrame, dict[str, Any], str, dict[str, str]]] = {
    "all there": (FIT, HELD, {}, "", {EASY: "pass", "dp.difference<=0.95": "pass"}),
    "no rule": (
        FIT,
        hospital("AB", 3, rare="D"),
        {},
        "groups 'D & f' and 'D & m' of 'race x sex' are in the held-out counts alone",
        {EASY: "undecided", "selection_rate[race=A]>=0.01": "pass", "accuracy.min[race]>=0.99": "fail"},
    ),
    "no held-out rows": (
        hospital("ABC", 4),
        HELD,
        {},
        "group 'C' of 'race' has no held-out rows",
        {EASY: "undecided", "dp.difference[sex]<=0.95": "pass", "selection_rate[race=A]>=0.01": "pass"},
    ),
    "crossed": (
        FIT,
        both_sexes(HELD),
        {},
        "group 'B & f' of 'race x sex' has no held-out rows",
        {EASY: "pass", "dp.difference[race x sex]<=0.95": "undecided", "dp.difference[sex]<=0.95": "pass"},
    ),
    "hidden": (
        hospital("AB", 5, rare="D"),
        hospital("AB", 6, rare="D"),
        {"suppress_below": 10},
        "held-out rows of small groups are hidden, and it is unknown which",
        {
            EASY: "undecided",
            "dp.difference[sex]<=0.95": "undecided",
            "selection_rate[race=A]>=0.01": "undecided",
        },
    ),
}


def repaired(files: list[str], folder: Path, *asked: str) -> tuple[int, dict[str, Any]]:
    """Repair from counts, proven on others; return the status and the report."""
    out = folder / "out.json"
    given = [files[0], "--holdout", files[1], "--method", "ramp", "--config", "none", "-q"]
    status = run(["repair", *given, *asked, "-o", str(folder / "x.fairfix"), "--out", f"json={out}"])
    return status, json.loads(out.read_text())


@pytest.mark.parametrize("name", WORLDS)
def test_no_check_passes_for_groups_that_nothing_is_proven_for(name: str, tmp_path: Path) -> None:
    """The status is 3, the reason names the groups, and so does the first sentence; what fails still fails."""
    fit, held, how, words, checks = WORLDS[name]
    files = [counted(one, tmp_path / f"{i}.counts", **how) for i, one in enumerate((fit, held))]
    status, result = repaired(files, tmp_path, *(f"--check={check}" for check in checks))
    verdicts = {one["check"]: one["verdict"] for one in result["checks"]}

    assert verdicts == checks
    assert status == {"all there": 0, "no rule": 1}.get(name, 3)
    for one in result["checks"]:
        assert (one["code"] == "not_proven") == (words in one["reason"]) == (
            one["verdict"] == "undecided"
        ) or not words
    if words:
        warnings = [one["text"] for one in result["messages"] if one["severity"] == "warning"]
        assert (words if name != "hidden" else "rows of small groups") in warnings[0]
        assert words in " ".join(rendered("text", result).split())


@pytest.mark.parametrize("column", ["race", "score", "label"])
def test_an_id_is_no_column_with_another_part(column: str, tmp_path: Path, call: Call) -> None:
    """Rows of one group, score or label would share a draw; nothing is written."""
    counts, out = counted(FIT, tmp_path / "fit.counts"), tmp_path / "x.fairfix"
    assert f"column '{column}' is given to" in (
        error := call.refused(
            "repair", counts, "--method", "ramp", "--id", column, "-o", str(out), "--config", "none"
        )
    )
    assert "--id" in error
    assert not out.exists()


def test_edges_of_bands_are_no_values_of_hidden_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Quantiles of all rows are refused where small groups are to be hidden; given edges are not."""
    age = np.random.default_rng(0).integers(18, 90, ROWS)
    FIT.assign(age=age).to_csv(tmp_path / "people.csv", index=False)
    base = [
        "count",
        str(tmp_path / "people.csv"),
        "--protected",
        "age",
        "--suppress-below",
        "10",
        "--config",
        "none",
    ]
    base += ["-o", str(tmp_path / "x.counts")]
    assert run([*base, "--bands", "age=quartiles"]) == 2
    assert "age=25,40,60" in capsys.readouterr().err
    assert not (tmp_path / "x.counts").exists()
    assert run([*base, "--bands", "age=25,40,60"]) == 0
    capsys.readouterr()


def test_a_change_of_rates_is_one_that_can_be(tmp_path: Path) -> None:
    """No end of an interval of a change of rates is beyond 100 points, however few rows there are."""
    few = pd.concat([hospital("AB", 7).iloc[:40], hospital("AB", 8).iloc[:30]], ignore_index=True)
    files = [counted(one, tmp_path / f"{i}.counts") for i, one in enumerate((FIT, few))]
    status, result = repaired(files, tmp_path)
    assert status == 0
    changes = [
        row["change"]
        for row in result["proof"]["holdout"]["table"]
        if "loss" not in row["id"] and row["change"]["low"] is not None
    ]

    assert len(changes) > 4
    assert all(-1.0 <= one["low"] <= one["high"] <= 1.0 for one in changes)


def test_files_of_one_name_are_told_apart(tmp_path: Path, call: Call) -> None:
    """A message on two files in folders of their own names as much of their paths as it takes."""
    for month, columns in (("01", ["race", "score"]), ("02", ["race", "score", "label"])):
        (tmp_path / month).mkdir()
        FIT[columns].to_csv(tmp_path / month / "people.csv", index=False)
    assert "02/people.csv has 'label', 01/people.csv does not" in call.refused(
        "audit", str(tmp_path / "*" / "people.csv"), "--protected", "race", "--config", "none"
    )
