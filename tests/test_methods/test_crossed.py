"""Groups of several columns held each alone: intersections without rows pay what each of their groups pays."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import fairfix
import numpy as np
import pandas as pd
import pytest
from fairfix.data.counts import Floats
from fairfix.errors import DataError
from fairfix.models.predictors import BinnedRule, GroupwiseCurve, GroupwiseRamp, RepairedPredictor
from fairfix.sklearn import RepairedClassifier
from sklearn.linear_model import LogisticRegression

WAYS: list[dict[str, Any]] = [
    {},
    {"slack": 0.05, "gamma": 0.2, "shape": "centred"},
    {"constraint": "equal_opportunity[each]", "calibrate": "none"},
    {"constraint": "predictive_equality[each]", "calibrate": "none", "slack": 0.02},
    {"constraint": "equalized_odds[each]", "calibrate": "none", "slack": 0.02},
    {"constraint": "dp.ratio[each]>=0.8"},
]
EACH: dict[str, Any] = {"protected": ["race", "sex"], "method": "ramp", "constraint": "dp[each]"}
CORNER = ("c", "m")


def people(seed: int, many: int = 2000) -> pd.DataFrame:
    """Return scored people by race and sex, of whom none is of race c and sex m."""
    rng = np.random.default_rng(seed)
    race, sex = rng.choice(["a", "b", "c"], many), rng.choice(["f", "m"], many)
    x = rng.normal(size=many) + 0.7 * (race == "a") + 0.3 * (sex == "m")
    score = 1 / (1 + np.exp(-x))
    label = (rng.random(many) < score).astype(int)
    town = rng.choice(["n", "s"], many)
    data = pd.DataFrame({"race": race, "sex": sex, "town": town, "score": score, "label": label})
    return data[(data.race != "c") | (data.sex == "f")].reset_index(drop=True)


def line(rule: RepairedPredictor, levels: tuple[str, ...]) -> Floats:
    """Return slope and intercept, over the score ``2 p - 1``, of the rule of a cell."""
    assert isinstance(rule, GroupwiseRamp | GroupwiseCurve)
    k = rule.levels.index(levels)
    if isinstance(rule, GroupwiseRamp):
        return np.array([1.0, -rule.offsets[k] - rule.remainders[k]]) / rule.gamma
    low, high = rule.curves[k].knots
    return np.array([1.0, -low]) / (high - low)


def corner(score: Floats) -> pd.DataFrame:
    """Return people of the intersection that the fit lacks."""
    return pd.DataFrame({"race": CORNER[0], "sex": CORNER[1], "town": "n", "score": score})


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("strata", [(), ("town",)])
def test_an_intersection_without_rows_pays_the_sum_of_its_groups(
    way: dict[str, Any], strata: tuple[str, ...]
) -> None:
    """Its line is that of the three other corners of each square, added up; and that is what is predicted."""
    made = fairfix.repair(people(0), **EACH | way, strata=strata).repaired
    score = np.linspace(0.001, 0.999, 999)
    inside = ("n",) if strata else ()

    own = line(made.predictor, (*inside, *CORNER))
    for other in "ab":
        sides = [line(made.predictor, (*inside, *key)) for key in (("c", "f"), (other, "m"), (other, "f"))]
        assert own == pytest.approx(sides[0] + sides[1] - sides[2], abs=1e-7)
    given = made.predict(corner(score))["p_positive"].to_numpy()
    assert given == pytest.approx(np.clip(own[0] * (2 * score - 1) + own[1], 0, 1), abs=1e-9)


@pytest.mark.parametrize("way", [WAYS[0], WAYS[2]])
def test_what_is_saved_and_exported_has_the_intersection(way: dict[str, Any], tmp_path: Path) -> None:
    """The artifact, the query and the program give people of the intersection what the rule gives them."""
    made = fairfix.repair(people(1), **EACH | way).repaired
    rows = corner(np.linspace(0.01, 0.99, 50))
    expected = made.predict(rows)["p_positive"].to_numpy()
    assert 0 < expected.mean() < 1

    path = tmp_path / "rule.fairfix"
    made.save(path)
    assert np.array_equal(fairfix.predict(path, rows)["p_positive"].to_numpy(), expected)
    query = fairfix.export(path, to="sql", dialect="sqlite", table="people")
    with sqlite3.connect(":memory:") as database:
        rows.assign(label=0).to_sql("people", database)
        answer = pd.read_sql_query(str(query), database)
    assert answer["p_positive"].to_numpy() == pytest.approx(expected, abs=1e-9)
    program = fairfix.export(path, to="python")
    (tmp_path / "rule.py").write_text(str(program))
    rows.to_csv(tmp_path / "rows.csv", index=False)
    out = subprocess.run(
        [sys.executable, "rule.py", "rows.csv"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert out.returncode == 0, out.stderr


def test_counts_and_estimators_have_it_too(tmp_path: Path) -> None:
    """A repair from counts has the rule at the middle of each bin, and the estimator of scikit-learn as it is."""
    data = people(2)
    fairfix.count(data, protected=["race", "sex"]).save(tmp_path / "people.counts")
    counted = fairfix.repair(tmp_path / "people.counts", **EACH).repaired
    assert isinstance(counted.predictor, BinnedRule)
    assert CORNER in counted.predictor.levels
    given = counted.predict(corner(np.linspace(0.01, 0.99, 50)))["p_positive"].to_numpy()
    assert not np.isnan(given).any()
    assert (np.diff(given) >= 0).all()
    X = data[["race", "sex", "score"]]
    model = RepairedClassifier(
        LogisticRegression(), ["race", "sex"], constraint="dp[each]", drop_protected=True
    ).fit(X, data.label)
    chance = model.predict_proba(corner(np.linspace(0.01, 0.99, 50))[["race", "sex", "score"]])[:, 1]
    own = line(model.predictor_, CORNER)
    score = model.estimator_.predict_proba(corner(np.linspace(0.01, 0.99, 50))[["score"]])[:, 1]
    assert chance == pytest.approx(np.clip(own[0] * (2 * score - 1) + own[1], 0, 1), abs=1e-9)


@pytest.mark.parametrize(
    "way",
    [
        {"constraint": "dp"},
        {"decisions": "deterministic"},
        {"constraint": "equal_opportunity[each]"},
        {"gamma": 0},
    ],
)
def test_what_is_no_sum_is_refused_by_name(way: dict[str, Any]) -> None:
    """Where a cell has a rule of its own, or a group has no rows at all, there is none for the intersection."""
    made = fairfix.repair(people(3), **{**EACH, **way}).repaired
    with pytest.raises(DataError, match="was not in the training rows"):
        made.predict(corner(np.array([0.5])))
    other = fairfix.repair(people(3), **EACH).repaired
    with pytest.raises(DataError, match="was not in the training rows"):
        other.predict(corner(np.array([0.5])).assign(race="d"))
