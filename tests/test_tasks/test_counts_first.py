"""Rows that are too few are an error with the numbers and the remedy, before anything is fitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fairfix.cli import run
from fairfix.methods import logloss
from fairfix.methods.base import Repairer
from fairfix.methods.sensei import equal_rates

from tests.conftest import Call

pytestmark = pytest.mark.usefixtures("away")


def people(**few: Any) -> pd.DataFrame:
    """Return 200 rows; ``few`` are a few more, of one group."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    frame = pd.DataFrame({"race": np.tile(["a", "b"], 100), "x": x, "score": 1 / (1 + np.exp(-x))})
    frame["label"] = (rng.random(200) < frame["score"]).astype(int)
    more = pd.DataFrame({"race": "c", "x": 0.1, "score": 0.5, **few}, index=range(len(few.get("label", ()))))
    return pd.concat([frame, more], ignore_index=True)


@pytest.fixture
def _no_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every fit an error of the test."""

    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("something was fitted")

    monkeypatch.setattr(Repairer, "_fit", fail)


CASES = {
    "a group whose rows are all held out": (
        people(label=[1]),
        ("--method", "ramp", "--holdout", "0.6"),
        "the only row of group 'c' of 'race' is not left to fit on; lower --holdout or --validation",
    ),
    "a group whose rows all select or are held out": (
        people(label=[1, 1, 1]),
        ("--method", "ramp", "--gamma", "0.1,0.2", "--holdout", "0.5", "--validation", "0.4"),
        "none of the 3 rows of group 'c' of 'race' are left to fit on; lower --holdout or --validation",
    ),
    "nothing to choose by": (
        people(),
        ("--method", "ramp", "--gamma", "0.1,0.2", "--validation", "0.001"),
        "--validation 0.001 of 200 rows leaves no row in any group to choose among values of --gamma",
    ),
    "no labels to choose by": (
        people().drop(columns="label"),
        ("--method", "ramp", "--gamma", "0.1,0.2"),
        "choosing among values of --gamma needs labels; name the column with --label",
    ),
    "nothing to hold out": (
        people().groupby(["race", "label"]).head(1),
        ("--method", "ramp"),
        "4 rows are too few to hold some out for the evaluation; raise --holdout",
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.usefixtures("_no_fit")
def test_too_few_rows_are_told_before_a_fit(case: str, call: Call) -> None:
    frame, options, told = CASES[case]
    frame.to_parquet("d.parquet")

    assert told in " ".join(
        call.refused("repair", "d.parquet", "--protected", "race", *options, "-o", "r.fairfix").split()
    )
    assert not Path("r.fairfix").exists()


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize(
    ("method", "where", "name"),
    [
        (("logloss", "--constraint", "equalized_odds"), logloss, "solve"),
        (("sensei", "--solver", "equal-rates"), equal_rates, "fitting"),
    ],
)
def test_a_rate_without_rows_is_told_before_anything_is_learned(
    method: tuple[str, ...],
    where: Any,
    name: str,
    label: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("something was learned")

    monkeypatch.setattr(where, name, fail)
    people(label=[label] * 9).to_parquet("d.parquet")

    options = ("--protected", "race", "--features", "x", "--method", *method)
    assert run(["repair", "d.parquet", *options]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "group 'c' of 'race' has no rows" in told
    assert f"label {1 - label} to fit on" in told
    assert "merge it into another" in told


@pytest.mark.usefixtures("_no_fit")
def test_a_comparison_counts_first_too(call: Call) -> None:
    people(label=[1]).to_parquet("d.parquet")

    assert "the only row of group 'c' of 'race' is not left to fit on" in " ".join(
        call.refused("compare", "d.parquet", "--protected", "race", "--holdout", "0.6").split()
    )


def test_the_same_rows_suffice_for_other_shares() -> None:
    people(label=[1]).to_parquet("d.parquet")

    options = ("--protected", "race", "--method", "ramp", "--holdout", "0.4")
    assert run(["repair", "d.parquet", *options]) == 0
