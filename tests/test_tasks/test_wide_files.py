"""Wide files as people have them: each learned method repairs them in one run, and does not learn from leaks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fairfix
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from fairfix.errors import ColumnError, DataError, UsageError

from tests import wide
from tests.conftest import Call

FILES: dict[str, tuple[Callable[..., Any], str, str]] = {
    "recidivism": (wide.recidivism, "race", "two_year_recid"),
    "loans": (wide.loans, "home", "default"),
    "expenses": (wide.expenses, "RACE", "UTILIZATION"),
}
METHODS = ("logloss", "fair-regression", "sensei", "robust")


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", FILES)
def test_a_wide_file_is_repaired_in_one_run(name: str, method: str) -> None:
    make, protected, label = FILES[name]
    frame, leaks, features = make()
    more: dict[str, Any] = {}
    if method == "robust":
        more["noise"] = "radius:" + ",".join(f"{group}=0.02" for group in sorted({*frame[protected]}))
    made = fairfix.repair(frame, method=method, protected=protected, label=label, **more)
    result = made.to_dict()
    left_out = {one["column"]: one for one in result["features"]["left_out"]}

    assert {*result["features"]["used"]} == features
    assert {*left_out} == {*frame.columns} - features - {protected, label}
    assert {left_out[one]["reason"] for one in leaks} <= {"leak", "after"}
    assert all(one["text"] for one in left_out.values())
    assert not {*result["requires"]["columns"]} - features - {protected}
    codes = [one["code"] for one in result["messages"]]
    assert (codes.count("leak"), codes.count("left_out")) == (1, 1)
    assert [one["severity"] for one in result["messages"] if one["code"] == "leak"] == ["warning"]

    rows = frame[[*reversed(result["requires"]["columns"])]].head(50)
    assert len(fairfix.predict(made, rows)) == 50
    needed = result["requires"]["columns"][0]
    with pytest.raises(DataError, match=needed):
        fairfix.predict(made, rows.drop(columns=needed))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a wide file."""
    path = tmp_path / "people.csv"
    wide.recidivism(1200)[0].to_csv(path, index=False)
    return path


LINE = ("--protected", "race", "--label", "two_year_recid")


def test_the_report_and_the_messages_name_what_is_left_out(file: Path, call: Call) -> None:
    """One short message before the fit, one table in the report, in every format."""
    base = ("repair", str(file), "--method", "logloss", *LINE, "-o", str(file.with_name("r.fairfix")))
    status, out, err = call(*base, "--out", f"html={file.with_name('r.html')}")
    assert status == 0, err
    assert err.count("[left_out]") == err.count("[leak]") == 1
    assert err.index("[left_out]") < err.index("logloss learns from")
    page = file.with_name("r.html").read_text(encoding="utf-8")
    for one in ("is_recid", "c_jail_in", "decile_score", "violent_recid"):
        assert one in out
        assert one in page


def test_a_comparison_leaves_the_same_columns_out(file: Path, call: Call) -> None:
    line = ("--methods", "logloss", "--slacks", "0.1", "--exclude", "age*", "--format", "json")
    status, out, err = call("compare", str(file), *LINE, *line)
    assert status == 0, err
    result = json.loads(out)
    made = fairfix.repair(str(file), method="logloss", protected="race", label="two_year_recid").to_dict()
    used = [one for one in made["features"]["used"] if not one.startswith("age")]
    assert result["features"]["used"] == result["settings"]["features"] == used
    reasons = {one["column"]: one["reason"] for one in result["features"]["left_out"]}
    excluded = dict.fromkeys(("age", "age_cat"), "excluded")
    assert reasons == {one["column"]: one["reason"] for one in made["features"]["left_out"]} | excluded
    assert "--exclude 'age*'" in result["points"][-1]["command"]
    assert err.count("[leak]") == 1


def test_excluded_columns_are_not_learned_from(file: Path, call: Call) -> None:
    """By name, by pattern, and beside features that are named; a name that is none is told the nearest."""

    def used(**given: Any) -> set[str]:
        columns = {"protected": "race", "label": "two_year_recid"}
        made = fairfix.repair(str(file), method="logloss", **columns, **given)
        return {*made.to_dict()["features"]["used"]}

    whole = used()
    assert used(exclude=["sex", "juv_fel_count"]) == whole - {"sex", "juv_fel_count"}
    assert used(exclude="c_*") == {one for one in whole if not one.startswith("c_")}
    assert used(features=["sex", "age", "c_charge_degree"], exclude="c_*") == {"sex", "age"}
    with pytest.raises(ColumnError, match="'juv_fel_count'"):
        used(exclude="juv_fel_cuont")
    with pytest.raises(ColumnError, match="z_"):
        used(exclude="z_*")
    for wrong in (
        {"exclude": "race"},
        {"exclude": "*"},
        {"exclude": "sex", "features": "score", "score": "age"},
    ):
        with pytest.raises(UsageError):
            used(**wrong)
    with pytest.raises(UsageError):
        fairfix.repair(str(file), method="ramp", protected="race", score="age", exclude="sex")


def test_named_features_win_and_leaks_among_them_are_warned_of(file: Path) -> None:
    made = fairfix.repair(
        str(file),
        method="logloss",
        protected="race",
        label="two_year_recid",
        features=["age", "is_recid", "id"],
    ).to_dict()
    assert made["features"] == {"used": ["age", "is_recid", "id"], "left_out": []}
    assert [one["code"] for one in made["messages"]].count("leak") == 1


def test_nothing_left_is_an_error_with_the_reasons() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"g": rng.choice(["a", "b"], 200), "y": rng.integers(0, 2, 200), "n": np.arange(200)}
    )
    with pytest.raises(DataError, match=r"'n' .*features"):
        fairfix.repair(frame, method="logloss", protected="g", label="y")


def test_columns_of_other_types_and_repeated_names_stop_nothing() -> None:
    """Structs, texts in lists, times and a name that two columns have; lists of numbers and categories are used."""
    rng = np.random.default_rng(0)
    rows = 300
    columns = {
        "g": pa.array(rng.choice(["a", "b"], rows)),
        "y": pa.array(rng.integers(0, 2, rows)),
        "x": pa.array(rng.normal(size=rows)),
        "vector": pa.array(list(rng.normal(size=(rows, 2)))),
        "category": pa.array(rng.choice(["p", "q"], rows)).dictionary_encode(),
        "truth": pa.array(rng.random(rows) < 0.5),
        "struct": pa.array([{"a": 1}] * rows),
        "texts": pa.array([["a"]] * rows),
        "time": pa.array([0] * rows, pa.timestamp("us")),
        "bytes": pa.array([b"a"] * rows),
    }
    table = pa.table([*columns.values(), columns["x"], columns["g"]], names=[*columns, "again", "again"])
    made = fairfix.repair(table, method="logloss", protected="g", label="y").to_dict()
    assert made["features"]["used"] == ["x", "vector", "category", "truth"]
    reasons = {one["column"]: one["reason"] for one in made["features"]["left_out"]}
    assert reasons == {
        "struct": "type",
        "texts": "type",
        "time": "date",
        "bytes": "type",
        "again": "repeated",
    }


# ---------------------------------------------------------------------- draws without an ID


def _rounded(rows: int, steps: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], rows)
    score = np.round(np.clip(rng.random(rows) + 0.15 * (sex == "m"), 0, 1) * steps) / steps
    return pd.DataFrame({"sex": sex, "score": score, "label": (rng.random(rows) < score).astype(int)})


@pytest.mark.parametrize("steps", [10, 100, 10**6])
@pytest.mark.parametrize("seed", range(3))
def test_rates_are_those_of_the_rule_however_many_rows_are_equal(steps: int, seed: int) -> None:
    """Realized rates of groups lie within binomial error; equal rows lie evenly, so within less."""
    frame = _rounded(3000, steps, seed)
    made = fairfix.repair(frame, method="ramp", protected="sex", gamma=0.5, slack=0.02)
    assert made.repaired.required == ("sex", "score")
    new = _rounded(4000, steps, seed + 100).assign(other=1)
    decided = fairfix.predict(made, new)
    for _, own in decided.groupby("sex"):
        p = own["p_positive"]
        assert abs(own["decision"].sum() - p.sum()) < 4 * np.sqrt((p * (1 - p)).sum())
    severities = {one["severity"] for one in made.to_dict()["messages"] if one["code"] == "equal_rows"}
    assert severities <= {"note"} if steps == 10**6 else severities == {"warning"}


def test_equal_rows_that_are_asked_for_alone_get_one_result() -> None:
    """The consequence that the warning tells of; with an ID they are drawn each for itself."""
    frame = _rounded(3000, 10).assign(person=np.arange(3000))
    without = fairfix.repair(frame, method="ramp", protected="sex", gamma=0.5)
    by_id = fairfix.repair(frame, method="ramp", protected="sex", gamma=0.5, id="person")
    several = set()
    for _, row in frame[frame["score"] == 0.5].head(60).iterrows():
        whole = {name: getattr(value, "item", lambda value=value: value)() for name, value in row.items()}
        one, other = without.repaired.predict(whole), by_id.repaired.predict(whole)
        several.add((whole["sex"], "alone", one["decision"]))
        several.add((whole["sex"], "by id", other["decision"]))
    alone = {(sex, decision) for sex, how, decision in several if how == "alone"}
    assert len(alone) == 2
    assert len({one for one in several if one[1] == "by id"}) > 2
