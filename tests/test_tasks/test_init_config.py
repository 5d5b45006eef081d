"""A first configuration: it can be read, it runs, and it decides nothing that is not its to decide."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fairfix.cli import run

from tests.conftest import Call

pytestmark = pytest.mark.usefixtures("away")


def people(**columns: Any) -> pd.DataFrame:
    """Return 400 rows; a column that is None is left out."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "applicant_id": [f"p{i}" for i in range(400)],
            "sex": rng.choice(["f", "m"], 400),
            "region": rng.choice(["north", "south", "west"], 400),
            "age": rng.integers(18, 90, 400),
            "label": rng.integers(0, 2, 400),
            "score": rng.random(400),
        }
    )
    for name, values in columns.items():
        frame = frame.drop(columns=name) if values is None else frame.assign(**{name: values})
    return frame


def written(frame: pd.DataFrame, *more: str, kind: str = "parquet") -> tuple[dict[str, Any], str]:
    """Write data and its first configuration, and run an audit with it; return what it says, and its text."""
    if kind == "csv":
        frame.to_csv("data.csv", index=False)
    else:
        frame.to_parquet("data.parquet")
    assert run(["init", f"data.{kind}", *more]) == 0
    text = Path("fairfix.toml").read_text()
    assert run(["audit", "--format", "json"]) == 0
    return tomllib.loads(text), text


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_what_is_written_runs(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Label, score and the column with a usual name are set, other candidates are comments, no limit is set."""
    content, text = written(people(), kind=kind)

    columns = {"protected": ["sex"], "label": "label", "score": "score"}
    assert content == {"data": f"data.{kind}", **columns, "audit": {}, "repair": {}}
    assert "#   region: " in text
    assert "#   age" not in text
    assert '# id = "applicant_id"' in text
    assert "LIMIT" in text
    assert "check" not in content["audit"]
    assert "wrote fairfix.toml" in capsys.readouterr().err


def test_a_repair_runs_with_it() -> None:
    written(people())
    assert run(["repair", "--method", "ramp", "--quiet"]) == 0


def test_without_a_usual_name_it_says_so() -> None:
    """The first column of text with few values is taken, with a warning to check."""
    content, text = written(people(sex=None))

    assert content["protected"] == ["region"]
    assert "CHECK IT" in text


def test_what_is_said_is_written() -> None:
    frame = people(sex=None).rename(columns={"label": "repaid", "score": "risk"})
    frame["repaid"] = np.where(frame["repaid"] == 1, "yes", "no")
    content, text = written(frame, "--protected", "region", "--label", "repaid=yes", "--score", "risk")

    assert (content["label"], content["score"]) == ("repaid=yes", "risk")
    assert "CHECK IT" not in text


def test_real_labels_are_a_regression() -> None:
    """A label with many numbers makes the task, and checks of decisions are not proposed."""
    content, text = written(people(label=np.random.default_rng(1).normal(size=400), score=np.arange(400.0)))

    assert content["task"] == "regression"
    assert '# check = ["ks<=LIMIT"]' in text


def test_scores_that_are_no_probabilities() -> None:
    """They are raw until someone says what they are."""
    content, text = written(people(score=np.linspace(-3, 5, 400)))

    assert content["score-scale"] == "raw"
    assert "from -3 to 5" in text


def test_missing_values_have_a_policy() -> None:
    """The audit runs, and the file says how many are missing and what that means."""
    frame = people()
    frame.loc[:9, "score"] = np.nan
    frame.loc[5:24, "sex"] = None
    content, text = written(frame)

    assert content["missing"] == ["drop", "sex=group"]
    assert "20 missing" in text


def test_decisions_and_no_label() -> None:
    """Hard decisions are found by name; without a label the rest is measured."""
    content, text = written(people(score=None, label=None, y_pred=np.arange(400) % 2))

    assert content["prediction"] == "y_pred"
    assert "label" not in content
    assert '# label = "COLUMN"' in text


def test_names_and_values_cannot_leave_their_line() -> None:
    """Quotes, line breaks and odd characters are written so that they can be read again."""
    odd = 'la"bel\n[audit]\x7f\\é'
    frame = people(region=np.where(np.arange(400) % 2, "a\n[audit]\nconfidence = 0.5", 'b"\u2028'))
    content, _ = written(frame.rename(columns={"label": odd, "region": "re\ngion"}), "--label", odd)

    assert content["label"] == odd
    assert content["audit"] == {}


def test_the_data_is_named_from_where_the_file_is() -> None:
    Path("data").mkdir()
    Path("work").mkdir()
    for i in range(2):
        people().to_parquet(f"data/{i}.parquet")
    assert run(["init", "data", "-o", "work/fairfix.toml"]) == 0

    assert tomllib.loads(Path("work/fairfix.toml").read_text())["data"] == str(Path("..") / "data")
    assert run(["audit", "--config", "work/fairfix.toml"]) == 0


def test_a_file_is_not_overwritten(call: Call) -> None:
    people().to_parquet("data.parquet")
    Path("fairfix.toml").write_text("# mine\n")

    assert "exists already" in call.refused("init", "data.parquet")
    assert Path("fairfix.toml").read_text() == "# mine\n"
    assert run(["init", "data.parquet", "--force", "--quiet"]) == 0
    assert "protected" in Path("fairfix.toml").read_text()


def test_the_data_are_not_overwritten(call: Call) -> None:
    """Even if asked for: the file to write is the one that is read."""
    people().to_csv("data.csv", index=False)
    before = Path("data.csv").read_bytes()

    assert "--output data.csv: this file is also used by DATA" in call.refused(
        "init", "data.csv", "--output", "data.csv", "--force"
    )
    assert Path("data.csv").read_bytes() == before


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"sex": None, "region": None}, "name one with --protected COLUMN"),
        ({"score": None}, "no score column: name it with --score COLUMN"),
        ({"proba": 0.5}, "choose with --score COLUMN"),
        (
            {"label": np.where(np.arange(400) % 2, "good", "bad")},
            "name the positive value with --label label=VALUE",
        ),
        ({"score": np.array(["high", "low"])[np.arange(400) % 2]}, "score"),
    ],
)
def test_what_cannot_be_known_is_asked_for(columns: dict[str, Any], told: str, call: Call) -> None:
    people(**columns).to_parquet("data.parquet")

    assert told in call.refused("init", "data.parquet")
    assert not Path("fairfix.toml").exists()


def test_a_single_group_is_refused(call: Call) -> None:
    people(sex="f").to_parquet("data.parquet")
    assert "only the group" in call.refused("init", "data.parquet", "--protected", "sex")
    assert not Path("fairfix.toml").exists()
