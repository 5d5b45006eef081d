"""Constraints from the command line: every form that methods take, with the number that it holds."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import fairfix
import numpy as np
import pandas as pd
import pytest
from fairfix.errors import UsageError
from fairfix.methods import available

from tests.conftest import Call

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


def repaired(folder: Path, call: Call, words: str, constraint: str) -> dict[str, Any]:
    """Return the result of a repair from the command line."""
    roles = f"--id id --label label -o {folder}/a.fairfix --config none --format json --constraint"
    status, out, err = call(f"repair {folder}/rows.parquet {words} {roles}", constraint)
    assert status == 0, err
    return dict(json.loads(out))


def predicted(folder: Path, call: Call) -> pd.DataFrame:
    """Return the rows with what the repair of before gives them."""
    assert call(f"predict {folder}/a.fairfix {folder}/rows.parquet -o {folder}/p.csv")[0] == 0
    return pd.read_csv(folder / "p.csv")


RAMP, LOSS = "--method ramp", "--method logloss --features x"
SCORES = "--method fair-regression --group used --features score"
LEARNED = "--method fair-regression --features x,age"
DP, TPR, FPR, ODDS = (
    f"{rate}.difference.between_groups"
    for rate in ("selection_rate", "true_positive_rate", "false_positive_rate", "equalized_odds")
)
WITH = "decision_covariance.with_number"

HELD: dict[str, tuple[str, str, str, str, float]] = {
    "dp.difference<=0.02": (RAMP, "race", DP, "race", 0.02),
    "dp.difference <= 2%": (RAMP, "race", DP, "race", 0.02),
    "dp[race]<=0.02": (RAMP, "race", DP, "race", 0.02),
    "dp[race*sex]<=0.02": (RAMP, "race,sex", DP, "race x sex", 0.02),
    "dp[each]<=0.02": (RAMP, "race,sex", DP, "race,sex", 0.02),
    "tpr.difference[each]<=0.03": (RAMP, "race,sex", TPR, "race,sex", 0.03),
    "tpr.difference<=0.02": (RAMP, "race", TPR, "race", 0.02),
    "fpr.difference<=0.02": (RAMP, "race", FPR, "race", 0.02),
    "dp.ratio[each]>=0.9": (RAMP, "race,sex", "selection_rate.ratio.between_groups", "race,sex", 0.9),
    "eo.difference[each]<=0.03": (RAMP, "race,sex", ODDS, "race,sex", 0.03),
    "dp.ratio>=0.8": (RAMP, "race", "selection_rate.ratio.between_groups", "race", 0.8),
    "tpr.ratio>=90%": (RAMP, "race", "true_positive_rate.ratio.between_groups", "race", 0.9),
    "dp.covariance<=0.01": (RAMP, "race", "selection_rate.covariance.to_overall", "race", 0.01),
    "covariance[age]<=0.02": (RAMP, "", WITH, "age", 0.02),
    "decision_covariance[age]<=0.02, covariance[x]<=0.02": (RAMP, "", WITH, "age,x", 0.02),
    "demographic_parity.difference<=0.05": (LOSS, "race", DP, "race", 0.05),
    "ks.to_overall<=0.05": (SCORES, "race", "ks.to_overall", "race", 0.05),
    "square_loss.max<=0.24": (LEARNED, "race", "square_loss.max", "race", 0.24),
    "log_loss.max<=0.68": (LEARNED, "race", "log_loss.max", "race", 0.68),
}


@pytest.mark.slow
@pytest.mark.parametrize("constraint", HELD)
def test_what_is_asked_is_held_on_the_training_rows(constraint: str, folder: Path, call: Call) -> None:
    """The comparison of the condition, of its attributes, is within its limit."""
    words, protected, criterion, attributes, limit = HELD[constraint]
    result = repaired(folder, call, words + f" --protected {protected}" * bool(protected), constraint)
    rows = {
        row["attribute"]: row["after"]["value"]
        for row in result["proof"]["fit"]["table"]
        if row["id"] == result["criterion"]
    }

    assert result["criterion"] == criterion
    for name in attributes.split(","):
        if ".ratio" in criterion:
            assert limit - ROUNDING <= rows[name] < 1
        elif criterion.endswith(".max"):  # of models that have not seen the row; those that have err less
            assert rows[name] <= limit
        else:  # groups and levels are as many as rows allow
            assert rows[name] <= limit + (0.01 if criterion == "ks.to_overall" else ROUNDING)


def test_a_group_has_a_limit_of_its_own(folder: Path, call: Call) -> None:
    """The distance, or the loss, of that group is within it, and that of the others within the general one or none."""
    words = f"{SCORES} --protected sex --holdout 0.01"
    data = pd.read_parquet(folder / "rows.parquet")

    def distances() -> dict[str, float]:
        value, sex = predicted(folder, call)["prediction"].to_numpy(), data["sex"].to_numpy()
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
        result = repaired(folder, call, words, constraint)
        free[constraint] = distances()
        limits = re.findall(r"<=([\d.]+)", constraint)
        assert free[constraint]["f"] <= float(limits[-1]) + 0.02
        assert result["parameters"]["constraint"].startswith(("statistical_parity", "ks.to_overall[sex=f]"))
    assert free["ks.to_overall<=1"]["f"] > 0.1


def test_losses_of_single_groups_are_bounded(folder: Path, call: Call) -> None:
    """What the model reaches for that group is at most its bound; the others pay for it."""
    words = f"{LEARNED} --protected race"
    plain = repaired(folder, call, words, "square_loss.max<=1")
    losses = {one["group"]: one["value"] for one in plain["solution"]["quantities"] if one["name"] == "loss"}
    worst = max(losses, key=losses.__getitem__)
    asked = 0.995 * losses[worst]
    tight = repaired(folder, call, words, f"square_loss[race={worst}]<={asked}")
    now = {one["group"]: one["value"] for one in tight["solution"]["quantities"] if one["name"] == "loss"}

    assert now[worst] <= asked * (1 + ROUNDING)
    assert tight["solution"]["objective"] > plain["solution"]["objective"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("constraint", "sides"),
    [("tpr.difference.to_overall<=0.02", 2), ("tpr.difference.worse_than_overall<=0.02", 1), ("tpr<=2%", 2)],
)
def test_robust_limits_both_sides_or_the_worse_one(
    constraint: str, sides: int, folder: Path, call: Call
) -> None:
    """True positive rates of all training rows, which are nearly all rows, by groups that have no noise."""
    words = f"--method robust --protected race --noise {folder}/noise.csv --holdout 0.01"
    result = repaired(folder, call, words, constraint)
    row = next(
        one
        for one in result["proof"]["fit"]["table"]
        if one["id"] == "true_positive_rate.difference.to_overall" and one["attribute"] == "race"
    )
    assert result["parameters"]["slack"] == 0.02
    assert (row["after"]["value"] <= 0.02 + 1e-4) == (sides == 2)
    data = pd.read_parquet(folder / "rows.parquet").assign(p=predicted(folder, call)["p_positive"])
    data = data[data["label"] == 1]
    below = data["p"].mean() - data.groupby("race")["p"].mean()
    assert below.max() <= 0.02 + 0.01


def test_a_limit_and_a_slack_are_one_too_many(
    folder: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    """Also where the slack is the default; a limit on the command line has precedence over a configured slack."""
    monkeypatch.chdir(folder)
    line = f"repair rows.parquet {RAMP} --protected race --id id -o b.fairfix --format json --constraint"
    for slack, constraint in (("0.0", "dp.difference<=0.02"), ("0.1", "dp.ratio>=0.8"), ("0", "tpr<=0.1")):
        status, _, err = call(line, constraint, "--slack", slack)
        assert status == 2
        assert "has a limit, so leave out --slack" in err
        with pytest.raises(UsageError, match="leave out `slack="):
            fairfix.repair(
                "rows.parquet", method="ramp", protected="race", constraint=constraint, slack=float(slack)
            )
    Path("fairfix.toml").write_text("[repair]\nslack = 0.3\n")
    try:
        for constraint, asked in (("dp.difference<=0.02", 0.02), ("tpr", 0.3)):
            assert json.loads(call(line, constraint)[1])["parameters"]["slack"] == asked
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
        ("ramp", "four-fifths", "dp.ratio>=0.8"),
        ("ramp", "dp.difference≤0,1", "dp.difference<=0.1"),
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
    assert available()[method](constraint=right).parsed_constraint.name  # type: ignore[call-arg]  # a field of all methods here


def test_another_attribute_than_that_of_the_groups_is_refused(folder: Path, call: Call) -> None:
    """A column alone is not the intersection, and a number is no protected column."""
    line = f"repair {folder}/rows.parquet {RAMP} --id id -o {folder}/c.fairfix --config none"
    for protected, constraint, said in (
        ("race,sex", "dp[sex]<=0.1", "write race x sex in place of sex"),
        ("race", "covariance[age]<=0.1", "write dp.covariance"),
    ):
        status, _, err = call(line, "--protected", protected, "--constraint", constraint)
        assert status == 2
        assert said in " ".join(err.split())
