"""Constraints from the command line: every form that methods take, with the number that it holds."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import fairfix
import numpy as np
import pandas as pd
import pytest
from fairfix.cli import run
from fairfix.errors import UsageError
from fairfix.methods import available

ROUNDING = 1e-6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with rows of two protected columns, a number, a score and labels, and a table of no noise."""
    rng, out = np.random.default_rng(0), tmp_path_factory.mktemp("constraint")
    race, sex = rng.choice(["a", "b", "c"], 900), rng.choice(["f", "m"], 900)
    age = rng.normal(40, 10, 900).round(1)
    z = rng.normal(size=900) + (race == "a") * 0.8 - (sex == "f") * 0.6 + (age - 40) / 15
    score = (1 / (1 + np.exp(-z))).round(4)
    label = (rng.random(900) < score).astype(int)
    frame = pd.DataFrame(
        {"id": range(900), "race": race, "sex": sex, "age": age, "score": score, "label": label}
    )
    frame.assign(x=z.round(3)).to_parquet(out / "rows.parquet")
    counts = pd.crosstab([race, label], race).stack().reset_index()
    counts.columns = pd.Index(["true", "label", "noisy", "count"])
    counts.to_csv(out / "noise.csv", index=False)
    return out


def repaired(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """Return the result of a repair from the command line."""
    line = [
        "repair",
        str(folder / "rows.parquet"),
        *words,
        *shlex.split("--id id --config none --format json"),
    ]
    capsys.readouterr()
    assert run([*line, "--label", "label", "-o", str(folder / "a.fairfix")]) == 0
    return dict(json.loads(capsys.readouterr().out))


RACE, BOTH = ("--protected", "race"), ("--protected", "race,sex")
RAMP, LOSS = ("--method", "ramp"), ("--method", "logloss", "--features", "x")
SCORES = ("--method", "fair-regression", "--group", "used", "--features", "score")
LEARNED = ("--method", "fair-regression", "--features", "x,age")
DP = "selection_rate.difference.between_groups"

HELD: dict[str, tuple[tuple[str, ...], str, tuple[str, ...], float]] = {
    "dp.difference<=0.02": ((*RAMP, *RACE), DP, ("race",), 0.02),
    "dp.difference <= 2%": ((*RAMP, *RACE), DP, ("race",), 0.02),
    "dp[race]<=0.02": ((*RAMP, *RACE), DP, ("race",), 0.02),
    "dp[race*sex]<=0.02": ((*RAMP, *BOTH), DP, ("race x sex",), 0.02),
    "dp[each]<=0.02": ((*RAMP, *BOTH), DP, ("race", "sex"), 0.02),
    "tpr.difference[each]<=0.03": (
        (*RAMP, *BOTH),
        "true_positive_rate.difference.between_groups",
        ("race", "sex"),
        0.03,
    ),
    "tpr.difference<=0.02": ((*RAMP, *RACE), "true_positive_rate.difference.between_groups", ("race",), 0.02),
    "fpr.difference<=0.02": (
        (*RAMP, *RACE),
        "false_positive_rate.difference.between_groups",
        ("race",),
        0.02,
    ),
    "dp.ratio[each]>=0.9": ((*RAMP, *BOTH), "selection_rate.ratio.between_groups", ("race", "sex"), 0.9),
    "eo.difference[each]<=0.03": (
        (*RAMP, *BOTH),
        "equalized_odds.difference.between_groups",
        ("race", "sex"),
        0.03,
    ),
    "dp.ratio>=0.8": ((*RAMP, *RACE), "selection_rate.ratio.between_groups", ("race",), 0.8),
    "tpr.ratio>=90%": ((*RAMP, *RACE), "true_positive_rate.ratio.between_groups", ("race",), 0.9),
    "dp.covariance<=0.01": ((*RAMP, *RACE), "selection_rate.covariance.to_overall", ("race",), 0.01),
    "covariance[age]<=0.02": (RAMP, "decision_covariance.with_number", ("age",), 0.02),
    "decision_covariance[age]<=0.02, covariance[x]<=0.02": (
        RAMP,
        "decision_covariance.with_number",
        ("age", "x"),
        0.02,
    ),
    "demographic_parity.difference<=0.05": ((*LOSS, *RACE), DP, ("race",), 0.05),
    "ks.to_overall<=0.05": ((*SCORES, *RACE), "ks.to_overall", ("race",), 0.05),
    "square_loss.max<=0.24": ((*LEARNED, *RACE), "square_loss.max", ("race",), 0.24),
    "log_loss.max<=0.68": ((*LEARNED, *RACE), "log_loss.max", ("race",), 0.68),
}


@pytest.mark.slow
@pytest.mark.parametrize("constraint", HELD)
def test_what_is_asked_is_held_on_the_training_rows(
    constraint: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The comparison of the condition, of its attributes, is within its limit."""
    words, criterion, attributes, limit = HELD[constraint]
    result = repaired(folder, capsys, *words, "--constraint", constraint)
    rows = {
        row["attribute"]: row["after"]["value"]
        for row in result["proof"]["fit"]["table"]
        if row["id"] == result["criterion"]
    }

    assert result["criterion"] == criterion
    for name in attributes:
        if ".ratio" in criterion:
            assert limit - ROUNDING <= rows[name] < 1
        elif criterion.endswith(".max"):  # of models that have not seen the row; those that have err less
            assert rows[name] <= limit
        else:  # groups and levels are as many as rows allow
            assert rows[name] <= limit + (0.01 if criterion == "ks.to_overall" else ROUNDING)


def test_a_group_has_a_limit_of_its_own(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The distance, or the loss, of that group is within it, and that of the others within the general one or none."""
    words = (*SCORES, "--protected", "sex", "--holdout", "0.01")
    data = pd.read_parquet(folder / "rows.parquet")

    def distances() -> dict[str, float]:
        assert (
            run(
                [
                    "predict",
                    str(folder / "a.fairfix"),
                    str(folder / "rows.parquet"),
                    "-o",
                    str(folder / "p.csv"),
                ]
            )
            == 0
        )
        value, sex = pd.read_csv(folder / "p.csv")["prediction"].to_numpy(), data["sex"].to_numpy()
        every = np.sort(value)
        return {
            name: max(abs(np.mean(value[sex == name] <= z) - np.mean(value <= z)) for z in every)
            for name in ("f", "m")
        }

    free = {}
    for constraint in (
        "ks.to_overall<=1",
        "ks.to_overall[sex=f]<=0.02",
        "ks.to_overall<=0.1, ks.to_overall[sex=f]<=0.02",
    ):
        result = repaired(folder, capsys, *words, "--constraint", constraint)
        free[constraint] = distances()
        limits = re.findall(r"<=([\d.]+)", constraint)
        assert free[constraint]["f"] <= float(limits[-1]) + 0.02
        assert result["parameters"]["constraint"].startswith(("statistical_parity", "ks.to_overall[sex=f]"))
    assert free["ks.to_overall<=1"]["f"] > 0.1


def test_losses_of_single_groups_are_bounded(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the model reaches for that group is at most its bound; the others pay for it."""
    plain = repaired(folder, capsys, *LEARNED, *RACE, "--constraint", "square_loss.max<=1")
    losses = {one["group"]: one["value"] for one in plain["solution"]["quantities"] if one["name"] == "loss"}
    worst = max(losses, key=losses.__getitem__)
    asked = 0.995 * losses[worst]
    tight = repaired(folder, capsys, *LEARNED, *RACE, "--constraint", f"square_loss[race={worst}]<={asked}")
    now = {one["group"]: one["value"] for one in tight["solution"]["quantities"] if one["name"] == "loss"}

    assert now[worst] <= asked * (1 + ROUNDING)
    assert tight["solution"]["objective"] > plain["solution"]["objective"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("constraint", "sides"),
    [("tpr.difference.to_overall<=0.02", 2), ("tpr.difference.worse_than_overall<=0.02", 1), ("tpr<=2%", 2)],
)
def test_robust_limits_both_sides_or_the_worse_one(
    constraint: str, sides: int, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """True positive rates of all training rows, which are nearly all rows, by groups that have no noise."""
    words = ("--method", "robust", *RACE, "--noise", str(folder / "noise.csv"), "--holdout", "0.01")
    result = repaired(folder, capsys, *words, "--constraint", constraint)
    row = next(
        one
        for one in result["proof"]["fit"]["table"]
        if one["id"] == "true_positive_rate.difference.to_overall" and one["attribute"] == "race"
    )
    assert result["parameters"]["slack"] == 0.02
    assert (row["after"]["value"] <= 0.02 + 1e-4) == (sides == 2)
    assert (
        run(["predict", str(folder / "a.fairfix"), str(folder / "rows.parquet"), "-o", str(folder / "p.csv")])
        == 0
    )
    data = pd.read_parquet(folder / "rows.parquet").assign(p=pd.read_csv(folder / "p.csv")["p_positive"])
    data = data[data["label"] == 1]
    below = data["p"].mean() - data.groupby("race")["p"].mean()
    assert below.max() <= 0.02 + 0.01


def test_a_limit_and_a_slack_are_one_too_many(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the slack is the default; a limit on the command line has precedence over a configured slack."""
    monkeypatch.chdir(folder)
    line = ["repair", "rows.parquet", *RAMP, *RACE, "--id", "id", "-o", "b.fairfix", "--format", "json"]
    for slack, constraint in (("0.0", "dp.difference<=0.02"), ("0.1", "dp.ratio>=0.8"), ("0", "tpr<=0.1")):
        assert run([*line, "--constraint", constraint, "--slack", slack]) == 2
        assert "has a limit, so leave out --slack" in capsys.readouterr().err
        with pytest.raises(UsageError, match="leave out `slack="):
            fairfix.repair(
                "rows.parquet", method="ramp", protected="race", constraint=constraint, slack=float(slack)
            )
    Path("fairfix.toml").write_text("[repair]\nslack = 0.3\n")
    try:
        for more, slack in ((["--constraint", "dp.difference<=0.02"], 0.02), (["--constraint", "tpr"], 0.3)):
            assert run([*line, *more]) == 0
            assert json.loads(capsys.readouterr().out)["parameters"]["slack"] == slack
    finally:
        Path("fairfix.toml").unlink()


@pytest.mark.parametrize(
    ("method", "guess", "right"),
    [
        ("ramp", "DemographicParity", "demographic_parity"),
        ("ramp", "equal-opportunity", "equal_opportunity"),
        ("ramp", "EqualizedOdds<=0.1", "equalized_odds<=0.1"),
        ("ramp", "disparate_impact>=0.8", "dp.ratio>=0.8"),
        ("ramp", "demographic_parity>=0.8", "dp.ratio>=0.8"),
        ("ramp", "dp.ratio", "dp.ratio>=0.8"),
        ("ramp", "dp.difference<0.1", "dp.difference<=0.1"),
        ("ramp", "eo", "equalized_odds"),
        ("fair-regression", "ks<=0.1", "ks.to_overall<=0.1"),
        ("fair-regression", "ks[race=a]<=0.1", "ks.to_overall[race=a]<=0.1"),
        ("fair-regression", "bounded_group_loss", "bounded_group_loss<=0.2"),
        ("robust", "tpr.difference<=0.1", "tpr.difference.to_overall<=0.1"),
        ("robust", "minimax<=0.2", "minimax"),
    ],
)
def test_first_guesses_are_answered_with_a_constraint_of_the_method(
    method: str, guess: str, right: str
) -> None:
    """What is proposed can be asked."""
    with pytest.raises(UsageError) as refused:
        available()[method](constraint=guess)  # type: ignore[call-arg]  # of those that have one

    assert (guess, right) in refused.value.instead
    assert available()[method](constraint=right).parsed_constraint.name  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("method", "constraint"),
    [
        *(
            ("ramp", one)
            for one in ("accuracy.difference<=0.1", "dp.difference[race=a]<=0.1", "dp<=0.1, tpr<=0.1")
        ),
        *(("ramp", one) for one in ("dp.ratio>=0", "dp.difference<=-0.1", "dp.difference[each", "dp<=x")),
        *(("logloss", one) for one in ("dp.ratio>=0.8", "dp[each]<=0.1", "covariance[age]<=0.1")),
        *(
            ("fair-regression", one)
            for one in ("ks.to_overall[race=a]", "ks.to_overall<=0.1, ks.to_overall<=0.2")
        ),
        ("robust", "dp.difference.to_overall[a=b]<=0.1"),
    ],
)
def test_what_a_method_cannot_hold_is_refused(method: str, constraint: str) -> None:
    """With what it can, or with what is wrong."""
    with pytest.raises(UsageError, match=r"constraint|limit"):
        available()[method](constraint=constraint)  # type: ignore[call-arg]


def test_another_attribute_than_that_of_the_groups_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A column alone is not the intersection, and a number is no protected column."""
    line = ["repair", str(folder / "rows.parquet"), *RAMP, "--id", "id", "-o", str(folder / "c.fairfix")]
    for protected, constraint, said in (
        ("race,sex", "dp[sex]<=0.1", "write race x sex in place of sex"),
        ("race", "covariance[age]<=0.1", "write dp.covariance"),
    ):
        assert run([*line, "--protected", protected, "--constraint", constraint, "--config", "none"]) == 2
        assert said in " ".join(capsys.readouterr().err.split())
