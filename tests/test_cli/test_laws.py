"""What must hold of any run of the command line: found by drawing data and options at random, kept as the least case.

A run ends with 0, 1, 2 or 3; one that ends with 2 leaves no file; every null of a result says why; every format can be
made of every result.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import joblib
import jsonschema
import numpy as np
import pandas as pd
import pytest
from fairfix.cli import COMMANDS, run
from fairfix.schema import json_schema
from sklearn.linear_model import LogisticRegression

from tests.conftest import Call, Frames
from tests.results import texts_of


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frames: Frames) -> pd.DataFrame:
    """Rows with every kind of column, written to ``d.parquet`` in an empty folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    frame = frames(300)
    frame.to_parquet("d.parquet")
    return frame


def status(line: str, *more: str) -> int:
    """Run a line of the shell, and return how it ended."""
    return run([*shlex.split(line), *more])


def saved(path: str, kind: str) -> dict[str, Any]:
    """Return a saved result that keeps to its schema; a number that JSON has not is an error."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    result: dict[str, Any] = json.loads(Path(path).read_text(), parse_constant=refuse)
    jsonschema.validate(result, json_schema(kind))
    return result


def nulls(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every number of a result that is not there."""
    if isinstance(value, dict):
        if value.get("value", 0) is None:
            yield value
        for part in value.values():
            yield from nulls(part)
    elif isinstance(value, list):
        for part in value:
            yield from nulls(part)


def test_a_ratio_to_a_rate_of_zero_says_that_it_is_infinite(rows: pd.DataFrame) -> None:
    """The rate of the reference is 0 and others are not: the ratio is worst, and each null says why."""
    rows.loc[rows.race == "r0", "label"] = 0
    rows.to_parquet("d.parquet")
    assert status("audit d.parquet --protected race --reference r0 --out json=a.json") == 0

    result = saved("a.json", "audit")
    found = {one["id"]: one for one in result["attributes"][0]["comparisons"]}["base_rate.ratio.to_reference"]
    assert found["value"] == 0.0
    assert "divided by 0" in found["per_group"]["r1"]["reason"]
    assert all(one["reason"] for one in nulls(result))


def test_what_flips_to_groups_not_seen_get_is_unknown_and_says_so(rows: pd.DataFrame) -> None:
    """One pair of groups has no rows: the fit has no answer for who is moved there, and none is made up."""
    some = rows[(rows.race != "r0") | rows.member]
    some.to_parquet("d.parquet")
    given = ["--method", "logloss", "--features", "x", "--protected", "race,member"]
    assert run(["repair", "d.parquet", *given, "-o", "r.fairfix", "--out", "json=r.json"]) == 0

    result = saved("r.json", "repair")
    table = {row["name"]: row["after"] for row in result["proof"]["holdout"]["table"]}
    for name in ("decision_flips", "score_change"):
        assert table[f"{name}.under_flips [race]"]["value"] is None
        assert "lack" in table[f"{name}.under_flips [race]"]["reason"]
    assert all(one["reason"] for one in nulls(result))


@pytest.mark.parametrize("form", ["text", "html"])
def test_a_change_without_limits_is_shown(form: str, rows: pd.DataFrame) -> None:
    """Fewer than two effective rows of unbounded loss have no limits; the report of the repair is made all the same."""
    some = rows.head(26).assign(
        label=lambda f: 1e6 * f.x, score=lambda f: f.x, race=["a", "b"] * 13, weight=range(1, 27)
    )
    some.to_parquet("d.parquet")
    line = "repair d.parquet --task regression --method fair-regression --protected race --holdout 0.05"
    assert status(f"{line} --weight weight --out json=r.json --format {form}") == 0

    changes = [row.get("change", {}) for row in saved("r.json", "repair")["proof"]["holdout"]["table"]]
    assert any(change.get("low", 0) is None and change["value"] is not None for change in changes)
    assert run(["report", "r.json", "--format", form]) == 0


def test_one_group_is_an_error_that_says_so(rows: pd.DataFrame, capsys: pytest.CaptureFixture[str]) -> None:
    """A single group, or a column that is not there, is named, with --similar and with a radius as without."""
    rows.assign(one="all").to_parquet("d.parquet")
    for words, told in (
        ("one --similar flips", "only the group 'all'"),
        ("gone --similar flips", "no column 'gone'"),
        ("one --noise radius:all=0.1", "only the group 'all'"),
    ):
        assert status(f"audit d.parquet --protected {words}") == 2
        assert told in capsys.readouterr().err


@pytest.mark.slow
def test_columns_without_values_tell_nothing_and_are_no_error(rows: pd.DataFrame) -> None:
    """Trees are fitted to folds: a column may have no value in one of them, or in none, and is no feature there."""
    rows.assign(empty=np.nan, few=np.where(np.arange(300) < 2, 1.0, np.nan)).to_csv("d.csv", index=False)
    pd.read_csv("d.csv").to_parquet("d.parquet")
    for name in ("d.csv", "d.parquet"):  # a column without values has no type in CSV
        assert run(["audit", name, "--protected", "race", "--similar", "flips", "--quiet"]) == 0


def test_labels_that_are_all_the_same_are_reduced(rows: pd.DataFrame) -> None:
    """A target without spread has the one model: its value, for everybody."""
    rows.assign(label=3.0).to_parquet("d.parquet")
    line = "repair d.parquet --task regression --method fair-regression --solver reduction --protected race"
    assert status(f"{line} --features x --quiet") == 0
    assert run(["predict", "repaired.fairfix", "d.parquet", "-o", "p.csv", "--quiet"]) == 0
    assert np.allclose(pd.read_csv("p.csv").prediction, 3.0)


def test_sensei_without_flips_has_a_radius(rows: pd.DataFrame) -> None:
    """Nothing is flipped, so every rho holds the slack, and the least of the grid is taken."""
    line = "repair d.parquet --method sensei --solver regularizer --features x --protected race"
    line += " --similar near(radius=0.1)"
    assert status(f"{line} --out json=r.json") == 0
    assert any(
        "no decision changes with flips" in note for note in texts_of(saved("r.json", "repair"), "note")
    )


def test_a_column_with_a_comma_is_named_in_quotes(rows: pd.DataFrame, call: Call) -> None:
    """Without quotes the message says how; with them the column is one, in options, the environment and a file."""
    renamed = rows.rename(columns={"race": "race, self", "member": 'say "m"'})
    renamed.to_parquet("d.parquet")
    assert """'"race, self"'""" in call.refused("audit", "d.parquet", "--protected", "race, self")

    both = ["--protected", '"race, self" , "say ""m"""', "--out", "json=a.json"]
    assert run(["audit", "d.parquet", *both]) == 0
    names = [block["attribute"] for block in saved("a.json", "audit")["attributes"]]
    assert names == ["race, self", 'say "m"']
    assert run(["init", "d.parquet", "--protected", '"race, self"']) == 0
    assert run(["audit", "--format", "json"]) == 0


def test_the_remedy_of_a_check_leads_to_one_that_is_there(rows: pd.DataFrame, call: Call) -> None:
    """An option is named only for what it brings; a covariance or a ratio that no option brings makes no sense."""
    for check in ("base_rate.covariance.to_reference<=0", "calibration_gap.ratio.to_reference>0"):
        assert "does not support" in call.refused(
            "audit", "d.parquet", "--protected", "race", "--check", check
        )
    for check in ("base_rate.ratio.to_reference>=0", "selection_rate.covariance.within_strata<=1"):
        assert "name the" in call.refused("audit", "d.parquet", "--protected", "race", "--check", check)
        more = ["--reference", "r0", "--strata", "town"]
        assert call("audit", "d.parquet", "--protected", "race", "--check", check, *more)[0] in (0, 3)


def trusted(frame: pd.DataFrame, labels: Any) -> list[str]:
    """Return the options of a model file of ``x`` and ``member``, fitted to these labels."""
    joblib.dump(LogisticRegression().fit(frame[["x", "member"]], labels), "m.joblib")
    digest = hashlib.sha256(Path("m.joblib").read_bytes()).hexdigest()
    return ["--model", "m.joblib", "--trust-model", f"sha256:{digest}"]


def test_what_was_repaired_can_be_predicted_whatever_the_classes_are_called(rows: pd.DataFrame) -> None:
    """The value that --label named for the model goes into the artifact; predict has no such option."""
    frame = rows.drop(columns="score").assign(label=np.where(rows.label == 1, "paid", "open"))
    frame.to_parquet("d.parquet")
    model = trusted(frame, frame.label)
    given = ["--label", "label=paid", "--protected", "race", "--method", "ramp", "--quiet"]
    assert run(["repair", "d.parquet", *given, *model]) == 0
    assert run(["predict", "repaired.fairfix", "d.parquet", "-o", "p.csv", *model]) == 0
    assert run(["repair", "d.parquet", "--label", "label=open", *given[2:], *model]) == 0
    assert run(["predict", "repaired.fairfix", "d.parquet", "-o", "q.csv", *model]) == 0
    paid, unpaid = (pd.read_csv(name).p_positive for name in ("p.csv", "q.csv"))
    assert np.corrcoef(paid, unpaid)[0, 1] < 0


@pytest.mark.parametrize("group", [[0.0, 1.5], [False, True], [1, 20]])
def test_draws_do_not_hang_on_the_format(group: list[Any], rows: pd.DataFrame) -> None:
    """Without an id a row is known by its values; a group of numbers is the same in Parquet and, as text, in CSV."""
    frame = rows.assign(race=np.array(group)[(rows.race == "r0").astype(int)])
    frame.to_parquet("d.parquet")
    frame.to_csv("d.csv", index=False)
    given = ["--method", "ramp", "--gamma", "1", "--protected", "race", "--quiet"]
    for fitted in ("d.parquet", "d.csv"):
        assert run(["repair", fitted, *given]) == 0
        for data in ("d.parquet", "d.csv"):
            assert run(["predict", "repaired.fairfix", data, "-o", f"{data}.out.csv", "--quiet"]) == 0
        one, other = (pd.read_csv(f"{data}.out.csv") for data in ("d.parquet", "d.csv"))
        assert one.randomized.sum() > 50
        assert one.decision.equals(other.decision)


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.usefixtures("away")
def test_an_option_with_one_value_stands_once(name: str, call: Call) -> None:
    """Given twice, be it by its short name, it ends the run with both values named; one with several takes both."""
    command: click.Command = import_module(f"fairfix.cli.{name}").command
    for option in command.get_params(click.Context(command)):
        if not isinstance(option, click.Option) or option.is_flag:
            continue
        words = [part for at, value in ((0, "one"), (-1, "two")) for part in (option.opts[at], value)]
        err = call.refused(name, *words)
        said = f"{max(option.opts, key=len)} is given 2 times, with one and two; give it once"
        assert (said in err) == (not option.multiple), err
    assert not list(Path().iterdir())
