"""Guarantees of people who are not in the data: what is promised, by which rows, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import fairfix
import numpy as np
import pandas as pd
import pytest
from fairfix.cli import run
from fairfix.errors import DataError, UsageError
from fairfix.noise.dual_certificates import (
    ClassConditionalProof,
    PossibleTrueGroups,
    RecordedGivenTrue,
    RuledRows,
)
from fairfix.stats.population import BoundedStatistic, RatesOfRules
from fairfix.tasks.guarantee_under_noise import TrueGroupDistances
from fairfix.tasks.repair import RepairResult, repair

from tests.conftest import Call
from tests.data import people

RAMP = {"method": "ramp", "protected": "race", "id": "id", "guarantee": 0.95}


PAIR = RatesOfRules(
    names=("a", "b"),
    rows=np.array([400, 400]),
    alpha=0.05,
    rates=np.array([0.2, 0.25]),
    blocks=np.zeros(2, dtype=int),
    variation=np.ones(2),
)


LOSS = {"method": "fair-regression", "features": ["yes", "p"]}


def gap(one: BoundedStatistic) -> float:
    """Return the largest gap on the rows."""
    return float(one.observed.max())


def bound(one: BoundedStatistic) -> float:
    """Return the bound on the largest gap of the population."""
    return float(one.bounds.max())


def rows(many: int = 1500) -> pd.DataFrame:
    """Return people of three groups, one of a fifth of the rows."""
    return people(many, shares=(0.5, 0.3, 0.2))


def made(data: pd.DataFrame | None = None, **asked: Any) -> RepairResult:
    """Return a repair with a guarantee."""
    return repair(rows() if data is None else data, **{**RAMP, "slack": 0.2, **asked})


def pair_reach(first: float, second: float, alpha: float) -> float:
    """Return how far a pair of rates may be off, by the formula of the docs: the quantile of a sum, on a grid.

    Of the 5% that a guarantee of 0.95 may be false, 4% are of this way to it.
    """
    d = np.linspace(0, 3 / np.sqrt(min(first, second)), 2001)
    chance = -np.diff(np.exp(-2 * first * d**2))
    other = (d[:, None] - d[None, 1:]).clip(0)
    over = np.exp(-2 * first * d**2) + np.exp(-2 * second * other**2) * (d[:, None] > d[None, 1:]) @ chance
    return float(d[np.argmax(over <= alpha / 2)])


@pytest.mark.slow
def test_the_bound_is_the_gap_on_the_rows_of_the_fit_and_how_far_any_rule_may_be_off() -> None:
    result = made(rows()[lambda one: one["race"] != "c"], slack=0.2)
    one = result.to_dict()["guarantee"]
    fit, group = result.outcome.fit, {r["group"]: r["rows"] for r in one["rows"]}
    gap = next(r.after.value for r in fit.shown.table if r.id == one["criterion"])

    assert one["measured"] == pytest.approx(gap, abs=1e-12)
    assert one["bound"] == pytest.approx(gap + pair_reach(group["a"], group["b"], 0.04), abs=1e-3)
    assert sum(group.values()) == result.to_dict()["split"]["fit"]
    assert 0 < one["inner_slack"] < one["bound"] <= one["slack"] == 0.2


def test_the_price_of_rows_is_the_bound_with_them() -> None:
    """By the formula of the docs, with the rows of the fit that the new ones add; more rows never cost."""
    result = made(rows()[lambda one: one["race"] != "c"], slack=0.2)
    one = result.to_dict()["guarantee"]
    fit, group = result.to_dict()["split"]["fit"], {r["group"]: r["rows"] for r in one["rows"]}
    price, data = one["price"], result.to_dict()["data"]["rows"]["used"]
    assert price["group"] == min(group, key=lambda name: group[name])
    assert price["rows"] == pytest.approx(group[price["group"]] * data / fit / 2, rel=0.34)
    group[price["group"]] += round(price["rows"] * fit / data)
    assert price["bound"] == pytest.approx(
        one["measured"] + pair_reach(group["a"], group["b"], 0.04), abs=1e-3
    )
    assert price["bound"] < one["bound"] - 2e-3
    assert f"{one['bound'] - price['bound']:.2g}" in one["says"]
    bounds = [float(PAIR.bound_at(np.array([400, many])).max()) for many in (400, 450, 600, 1000, 10**4)]
    assert bounds == sorted(bounds, reverse=True)


@pytest.mark.parametrize(
    ("asked", "checks"),
    [
        ({"slack": 0.3}, ["dp.difference[race]<=0.3"]),
        ({"slack": None, "constraint": "dp.ratio>=0.4"}, ["dp.ratio[race]>=0.4"]),
        (
            {"protected": ["race", "sex"], "slack": 0.3, "constraint": "dp[each]"},
            ["dp.difference[race]<=0.3", "dp.difference[sex]<=0.3"],
        ),
        ({"protected": ["race", "sex"], "slack": 0.6}, ["dp.difference[race x sex]<=0.6"]),
        ({"protected": "sex", "strata": "race", "slack": 0.6}, ["dp.difference.within_strata[sex]<=0.6"]),
        ({"constraint": "covariance", "slack": 0.1}, ["dp.covariance.to_overall[race]<=0.1"]),
    ],
)
def test_a_guarantee_states_the_checks_that_renew_it(
    asked: dict[str, Any], checks: list[str], tmp_path: Path
) -> None:
    result = made(**asked)
    assert result.to_dict()["guarantee"]["checks"] == checks
    path = tmp_path / "r.fairfix"
    result.repaired.save(path)
    if result.to_dict()["guarantee"]["holds"]:
        decided = fairfix.predict(path, rows(500))
        audited = fairfix.audit(decided, of=path)
        assert [one["check"] for one in audited.to_dict()["checks"]] == checks


def test_a_rule_that_rises_and_falls_counts_with_its_variation() -> None:
    """By the sums of steps on a fine grid of scores; the bound has it, and so is larger than that of a ramp."""
    data = rows()
    scores = np.linspace(0.0, 1.0, 4001)
    for constraint in ("demographic_parity", "equalized_odds"):
        rule = made(data, slack=0.3, constraint=constraint, gamma=0).repaired
        assert rule.predictor.variation is not None
        for k, (race,) in enumerate(rule.predictor.levels):
            grid = pd.DataFrame({"id": np.arange(scores.size), "race": race, "score": scores})
            steps = float(np.abs(np.diff(rule.predict(grid)["p_positive"])).sum())
            assert steps <= rule.predictor.variation[k] + 1e-9
            assert rule.predictor.variation[k] <= max(1.0, 1.05 * steps) + 1e-9
    twice = replace(PAIR, variation=np.full(2, 2.0))
    assert bound(twice) == pytest.approx(gap(PAIR) + 2 * (bound(PAIR) - gap(PAIR)))


@pytest.mark.parametrize(
    "asked",
    [
        {"constraint": "equal_opportunity"},
        {"constraint": "predictive_equality", "gamma": 0},
        {"constraint": "equal_opportunity", "score": "real"},
        {"decisions": "deterministic"},
        {"calibrate": "isotonic"},
        {"slack": None, "constraint": "dp.ratio>=0.7", "calibrate": "isotonic"},
    ],
)
def test_rules_of_which_one_side_is_bounded_rise(asked: dict[str, Any]) -> None:
    """Also where the score says the opposite of the label, as an isotonic map can only be flat there."""
    data = rows(600).assign(score=lambda one: 1 - one["score"])
    data["real"] = np.round(data["score"], 1)
    rule = made(data, **{"slack": 0.3, **asked}).repaired
    grid = pd.concat(
        pd.DataFrame({"race": race, "score": np.linspace(0, 1, 501)})
        for race in sorted(data["race"].unique())
    )
    grid = grid.assign(real=grid["score"], id=np.arange(len(grid)))
    column = "p_positive" if rule.predictor.randomized else "decision"
    each = rule.predict(grid)[column].to_numpy(float).reshape(-1, 501)

    assert (np.diff(each, axis=1) >= -1e-12).all()


def test_strata_are_compared_within() -> None:
    """Two strata whose groups agree inside and differ across have no gap to promise, but what rows may be off."""
    four = replace(
        PAIR, names=("a", "b", "c", "d"), rows=np.full(4, 400), rates=np.array([0.2, 0.2, 0.7, 0.7])
    )
    four = replace(four, blocks=np.array([0, 0, 1, 1]), variation=np.ones(4))
    across = replace(four, blocks=np.zeros(4, dtype=int))

    assert gap(four) == 0.0
    assert bound(PAIR) - gap(PAIR) < bound(four) < bound(across)
    assert gap(across) == pytest.approx(0.5)
    result = made(slack=0.25, strata="town")
    (shown,) = (
        row for row in result.outcome.fit.shown.table if row.id == "selection_rate.difference.within_strata"
    )
    assert result.to_dict()["guarantee"]["measured"] == pytest.approx(shown.after.value, abs=1e-12)
    assert {one["group"] for one in result.to_dict()["guarantee"]["rows"]} == {
        f"{town} & {race}" for town in ("north", "south") for race in "abc"
    }


OLD = {"protected": None, "constraint": "covariance[age]"}
SOFT = {"protected": None, "noise": "membership:a=p_a,b=p_b"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "way", "of"),
    [
        ({"constraint": "covariance"}, "uniform", "selection_rate.covariance.to_overall"),
        (
            {"constraint": "covariance", "strata": "town"},
            "uniform",
            "selection_rate.covariance.within_strata",
        ),
        (
            {"method": "fair-regression", "strata": "town", "group": "used", "slack": 0.5},
            "uniform",
            "ks.within_strata",
        ),
        (
            {**LOSS, "constraint": "statistical_parity", "strata": "town", "group": "used"},
            "held-out",
            "ks.within_strata",
        ),
        (OLD, "held-out", "decision_covariance.with_number"),
        (SOFT, "held-out", "selection_rate.difference.true_groups"),
        (
            {**SOFT, "constraint": "equal_opportunity"},
            "held-out",
            "true_positive_rate.difference.true_groups",
        ),
    ],
)
def test_what_is_promised_is_what_the_proof_shows_with_how_far_rows_may_be_off(
    asked: dict[str, Any], way: str, of: str
) -> None:
    """Where the way is uniform on the rows of the fit, else on held-out rows; more rows show more."""
    bounds = []
    for many in (1500, 6000):
        data = rows(many).drop(columns="weight")
        data = data.assign(age=np.round(40 + 9 * data["score"], 1), p_a=data["p"], p_b=1 - data["p"])
        result = made(data, **{"slack": 0.4, **asked})
        one, proof = result.to_dict()["guarantee"], result.outcome
        shown = proof.fit if way == "uniform" else proof.judged
        (row,) = (row for row in shown.shown.table if row.id == of)
        bounds.append(one["bound"] - one["measured"])

        assert (one["way"], one["criterion"]) == (way, of)
        number = row.after.value if row.expected is None else row.expected
        assert one["measured"] == pytest.approx(number, abs=2e-3)
    assert 0 < bounds[1] < bounds[0]


@pytest.mark.slow
def test_a_ratio_is_promised_by_the_least_of_both_rates_together() -> None:
    """By a grid of the edge of the triangle of what both rates may be off; ratios either way round."""
    data = rows()[lambda one: one["race"] != "c"].reset_index(drop=True)
    result = made(data, slack=None, constraint="dp.ratio>=0.75")
    one = result.to_dict()["guarantee"]
    group, fitted = {r["group"]: r["rows"] for r in one["rows"]}, data.loc[result.outcome.split.fit]
    chance = result.repaired.predict(fitted)["p_positive"].to_numpy()
    a, b = (chance[(fitted["race"] == name).to_numpy()].mean() for name in "ab")
    part = np.linspace(0, 1, 1001)
    least = 1.0
    for x, y, n, m in ((a, b, group["a"], group["b"]), (b, a, group["b"], group["a"])):
        edge = pair_reach(n, m / 0.75**2, 0.04)
        least = min(least, ((x - edge * part) / (y + edge * (1 - part) / 0.75)).min())

    assert one["measured"] == pytest.approx(min(a, b) / max(a, b), abs=1e-9)
    assert one["bound"] == pytest.approx(least, abs=2e-4)
    assert one["holds"]
    assert 0.75 == one["least_ratio"] <= one["bound"] < one["measured"]
    assert one["inner_least_ratio"] > 0.75
    assert "ratio of this rule is at least 0.75 in the population that they were sampled from" in one["says"]


@pytest.mark.parametrize(
    "asked",
    [
        *(
            {"slack": None, "constraint": f"dp.ratio>={least}"}
            for least in (0.5, 0.6, 0.7, 0.81, 0.82, 0.84, 0.9)
        ),
        {"slack": 0.085},
        {"slack": 0.2, "constraint": "equalized_odds"},
        {"slack": None, "constraint": "equal_opportunity.ratio>=0.6"},
        {"slack": 0.03, "constraint": "covariance"},
    ],
)
def test_the_search_ends_within_what_was_asked_or_with_nothing_left(asked: dict[str, Any]) -> None:
    """It comes up to what was asked and does not stop below it by a hair."""
    rng = np.random.default_rng(0)
    race = rng.choice(2, 4000, p=[0.6, 0.4])
    z = rng.normal(size=4000) + 0.8 * race - 0.5
    score = 1 / (1 + np.exp(-z))
    data = pd.DataFrame(
        {
            "id": np.arange(4000),
            "race": race.astype(str),
            "label": rng.random(4000) < score,
            "score": score.round(4),
        }
    ).astype({"label": int})
    one = made(data, **asked).to_dict()["guarantee"]
    limit, inner = ("least_ratio" if "least_ratio" in one else "slack"), one.get("inner_least_ratio")

    if one["holds"]:  # with as much as was asked, or at the limit
        assert one[f"inner_{limit}"] == one[limit] or one["bound"] == pytest.approx(one[limit], abs=1e-4)
    else:
        assert (one["inner_slack"] == 0.0) if inner is None else (inner == 1.0)
        assert one["bound"] != pytest.approx(one[limit], abs=1e-4)
    assert one["holds"] is (one.get("least_ratio", 0) < 0.86)


def rare(many: int, shift: float = 0.0) -> pd.DataFrame:
    """Return people of two groups of whom one in some hundred is selected."""
    rng = np.random.default_rng(0)
    race = rng.choice(2, many)
    score = 1 / (1 + np.exp(-2 * (rng.normal(size=many) + 0.2 * race - 2.4)))
    label = (rng.random(many) < score).astype(int)
    return pd.DataFrame(
        {"id": np.arange(many), "race": race.astype(str), "label": label, "score": score + shift}
    )


def test_rare_rates_are_proven_on_held_out_rows_where_all_rules_are_too_many() -> None:
    """The rows of the fit choose the way, so that what held-out rows show changes neither it nor the rule."""
    data = rare(8000)
    result = made(data, slack=0.03)
    one, held = result.to_dict()["guarantee"], result.outcome.split.holdout
    other = data.copy()
    other.loc[held, ["label", "score"]] = [1, 0.99]
    again = made(other, slack=0.03).to_dict()["guarantee"]
    plenty = made(rare(30_000), slack=0.03).to_dict()["guarantee"]

    assert (one["way"], one["holds"]) == ("held-out", True)
    assert (again["way"], again["inner_slack"]) == ("held-out", one["inner_slack"])
    assert (plenty["way"], plenty["holds"]) == ("uniform", True)


def test_a_ratio_of_rare_rates_asks_for_the_rows_of_the_cheaper_way() -> None:
    """All rules at once are off by as much at any rate, so that a tenth of a rate takes a hundred times the rows."""
    one = made(rare(20_000), slack=None, constraint="dp.ratio>=0.8").to_dict()["guarantee"]
    rate = np.mean(rare(20_000)["score"] > 0.5)
    of_all_rules = (2.25 / (0.2 * rate)) ** 2 / 0.7  # of each group, where both have the same rate

    assert not one["holds"]
    assert 1000 / rate < one["needed"]["rows"] < of_all_rules / 4


def test_groups_of_each_column_are_held_alike_on_rows_that_were_parted_without_looking_at_them() -> None:
    """Groups overlap, so their rows are draws from them only where the parts do not hang on the other column."""
    asked = {"protected": ["race", "town"], "constraint": "dp[each]", "slack": 0.3}
    data = rows(900)
    result = made(data, **asked)
    one = result.to_dict()["guarantee"]
    kept = result.outcome.split.holdout
    other = data.assign(town=np.random.default_rng(0).permutation(data["town"]))

    assert one["way"] == "held-out"
    assert one["attribute"] == "race and town, each alone"
    assert {r["group"]: r["rows"] for r in one["rows"]} == {
        **{f"race={name}": int((data.loc[kept, "race"] == name).sum()) for name in "abc"},
        **{
            f"town={name}": int((data.loc[kept, "town"] == name).sum())
            for name in sorted(data["town"].unique())
        },
    }
    chance = result.repaired.predict(data.loc[kept])["p_positive"]
    gaps = [np.ptp(chance.groupby(data.loc[kept, column]).mean()) for column in ("race", "town")]
    assert one["measured"] == pytest.approx(max(gaps))
    np.testing.assert_array_equal(made(other, **asked).outcome.split.holdout, kept)
    inside = made(data.assign(sort=np.arange(len(data)) % 2), **asked, strata="sort").to_dict()["guarantee"]
    assert {r["group"] for r in inside["rows"]} > {"0 & race=a", "1 & race=a"}
    assert inside["bound"] > one["bound"]


def test_equal_rates_are_promised_of_the_groups_of_each_column_and_not_of_their_cells() -> None:
    """Cells may differ as they will: here race and town say nothing alone, and all together."""
    data = rows(3000)
    crossed = (data["race"] == "a") == (data["town"] == "north")
    data["p"] = (data["p"] + crossed) / 2
    data["label"] = (np.random.default_rng(0).random(len(data)) < data["p"]).astype(int)
    asked = {"method": "sensei", "solver": "equal-rates", "features": "p", "protected": ["race", "town"]}
    result = made(data, slack=0.4, **asked)
    one, proof = result.to_dict()["guarantee"], result.outcome.judged
    far = {row.attribute: row.after.value for row in proof.shown.table if row.id == one["criterion"]}

    assert one["attribute"] == "race and town, each alone"
    assert one["measured"] == pytest.approx(max(far["race"], far["town"]), abs=1e-9)
    assert far["race x town"] > 0.25
    # each row is in many groups, and is counted once
    assert f"on held-out rows, {result.to_dict()['split']['holdout']:,}, it is" in one["says"]


def test_a_mean_loss_is_promised_of_each_group_that_has_a_bound() -> None:
    data = rows()
    result = made(data, **LOSS, slack=None, constraint="log_loss[race=a]<=0.9, log_loss[race=c]<=0.95")
    one, held = result.to_dict()["guarantee"], data.loc[result.outcome.split.holdout]
    value = result.repaired.predict(held)["prediction"].to_numpy().clip(1e-6, 1 - 1e-6)
    loss = -np.log(np.where(held["label"] == 1, value, 1 - value))

    assert (one["way"], one["criterion"], one["holds"]) == ("held-out", "log_loss.max", True)
    assert [own["group"] for own in one["limits"]] == ["a", "c"]
    for own in one["limits"]:
        assert own["measured"] == pytest.approx(loss[held["race"] == own["group"]].mean())
        assert own["measured"] < own["bound"] <= own["slack"]
    nearest = max(one["limits"], key=lambda own: own["bound"] - own["slack"])
    assert (one["bound"], one["slack"]) == (nearest["bound"], nearest["slack"])
    assert "mean logistic loss of this rule is at most 0.9 for 'a' and at most 0.95 for 'c'" in one["says"]
    far = made(data, **LOSS, slack=None, constraint="log_loss[race=a]<=0.68").to_dict()["guarantee"]
    assert not far["holds"]
    assert far["limits"][0]["inner_slack"] <= 0.68


def test_losses_of_real_labels_have_the_end_that_was_said() -> None:
    """A wider range of labels is a larger loss that there may be, and so a larger bound of the same rows."""
    data = rows(600)
    asked = {
        **LOSS,
        "task": "regression",
        "label": "real",
        "slack": None,
        "constraint": "square_loss.max<=1e6",
        "features": ["p"],
    }
    low, high = data["real"].min() - 1, data["real"].max() + 1
    near, far = (
        made(data, **asked, label_range=f"{low},{high * times}").to_dict()["guarantee"] for times in (1, 100)
    )

    assert near["measured"] == far["measured"] < near["bound"] < far["bound"]
    assert f"every label is between {low:g} and {high:g}" in near["says"]
    with pytest.raises(
        DataError, match=r"which is not within `label_range=0,0\.5`; give the range of all possible labels"
    ):
        made(data, **asked, label_range="0,0.5")
    for wrong in ("3", "3,3", "a,b", "0,inf", "nan,1"):
        with pytest.raises(UsageError, match="write two numbers, LOW,HIGH"):
            made(data, **asked, label_range=wrong)
    with pytest.raises(UsageError, match="these are 0 and 1; leave it out"):
        made(data, **LOSS, slack=None, constraint="log_loss.max<=0.9", label_range="0,1")


def test_values_beyond_those_of_the_fit_are_moved_to_them() -> None:
    """Else a loss would have no end, as a line has none."""
    data = rows(600)
    repaired = made(data, **LOSS, slack=None, constraint="log_loss.max<=2").repaired
    seen = repaired.predict(data)["prediction"]
    far = repaired.predict(data.assign(p=[*[1e9, -1e9] * (len(data) // 2)]))["prediction"]

    assert far.min() >= seen.min() - 1e-12
    assert far.max() <= seen.max() + 1e-12


def test_each_group_is_promised_its_own_slack() -> None:
    asked = {"method": "fair-regression", "group": "used", "features": "score", "slack": 0.5}
    one = made(rows(4000), **asked, constraint="ks.to_overall, ks.to_overall[race=a]<=0.12").to_dict()[
        "guarantee"
    ]

    assert {own["group"]: own["slack"] for own in one["limits"]} == {"a": 0.12, "b": 0.5, "c": 0.5}
    assert one["holds"]
    assert all(own["bound"] <= own["slack"] for own in one["limits"])
    assert one["limits"][0]["inner_slack"] < 0.12
    assert one["limits"][1]["inner_slack"] == 0.5


def test_a_group_of_which_nothing_is_asked_is_promised_nothing() -> None:
    asked = {"method": "fair-regression", "group": "used", "slack": None}
    one = made(**asked, constraint=["ks.to_overall[race=a]<=0.2", "ks.to_overall[race=c]<=0.5"]).to_dict()[
        "guarantee"
    ]

    assert [(own["group"], own["slack"]) for own in one["limits"]] == [("a", 0.2), ("c", 0.5)]
    assert one["holds"]


def test_values_are_promised_as_they_are_expected_over_their_draws() -> None:
    asked = {"method": "fair-regression", "group": "used", "features": "score", "slack": 0.1}
    result = made(rows().assign(score=lambda frame: frame["score"].round(1).clip(0.1, 0.9)), **asked)
    one = result.to_dict()["guarantee"]
    (shown,) = (row for row in result.outcome.fit.shown.table if row.id == "ks.to_overall")

    assert one["way"] == "uniform"
    assert shown.expected is not None
    assert one["measured"] == pytest.approx(shown.expected, abs=2e-3)
    assert one["measured"] < one["bound"]


def test_a_finished_rule_is_tested_on_held_out_rows_alone() -> None:
    """Numbers that only the held-out rows have change the bound and nothing of the rule."""
    data, asked = rows(), {"method": "logloss", "features": ["score"], "slack": 0.3}
    result = made(data, **asked)
    held = result.outcome.split.holdout
    other = data.copy()
    other.loc[held, "score"] = np.where(other.loc[held, "race"] == "a", 0.9, 0.1)
    again = made(other, **asked)

    assert result.to_dict()["guarantee"]["way"] == again.to_dict()["guarantee"]["way"] == "held-out"
    assert result.to_dict()["guarantee"]["inner_slack"] == again.to_dict()["guarantee"]["inner_slack"]
    assert result.to_dict()["guarantee"]["bound"] != again.to_dict()["guarantee"]["bound"]
    assert sum(r["rows"] for r in again.to_dict()["guarantee"]["rows"]) == held.size
    np.testing.assert_array_equal(result.outcome.split.fit, again.outcome.split.fit)


def test_held_out_rows_have_no_part_in_a_promise_about_all_rules() -> None:
    data = rows()
    result = made(data)
    other = data.copy()
    other.loc[result.outcome.split.holdout, ["score", "label"]] = [0.99, 1]

    assert made(other).to_dict()["guarantee"] == result.to_dict()["guarantee"]


def test_labels_do_not_say_which_rows_are_held_out() -> None:
    """Else the rows of a group in a part would not be independent draws from it."""
    data = rows(300)
    split = made(data).outcome.split

    np.testing.assert_array_equal(
        made(data.assign(label=np.arange(len(data)) % 2)).outcome.split.fit, split.fit
    )


def test_a_slack_that_few_rows_cannot_show_ends_with_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out, saved = tmp_path / "d.parquet", tmp_path / "r.json", tmp_path / "r.fairfix"
    rows(600).to_parquet(data)
    words = ["repair", str(data), "--method", "ramp", "--protected", "race", "--id", "id", "--slack", "0.05"]
    words += ["--guarantee", "0.95", "-o", str(saved), "--out", f"json={out}"]

    assert run(words) == 3
    assert run([*words, "--undecided", "pass"]) == 0
    result = json.loads(out.read_text())
    one = result["guarantee"]

    assert not one["holds"]
    assert one["inner_slack"] == 0
    assert one["bound"] > 0.05
    assert result["messages"][0]["code"] == "guarantee"
    assert result["messages"][0]["text"] == one["says"]
    capsys.readouterr()
    assert run(["inspect", str(saved)]) == 0
    assert "guarantee         not proven within the slack 0.05" in capsys.readouterr().out
    # as many rows as it says are enough, and half of them are not
    many = one["needed"]["rows"]
    small = rows(600).groupby("race").size()
    for times, holds in ((1.0, True), (0.5, False)):
        copies = [
            part.sample(int(many * times * len(part) / small.min()), replace=True, random_state=0)
            for _, part in rows(600).groupby("race")
        ]
        more = pd.concat(copies).assign(id=lambda frame: np.arange(len(frame)))
        assert made(more, slack=0.05).to_dict()["guarantee"]["holds"] is holds


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"slack": 0}, "cannot be shown by any number of rows; set the largest allowed gap"),
        ({"slack": "inf"}, "limits nothing"),
        ({"guarantee": 1.0}, "`guarantee` must be below 1, got 1"),
        ({"guarantee": 0.05}, "`guarantee` must be at least 0.5, got 0.05"),
        ({"weight": "weight"}, r"rows have weights \('weight'\)"),
        (
            {"slack": None, "constraint": "dp.ratio>=1.0"},
            r"a ratio of 1 in the whole population .* set another limit in `constraint`",
        ),
        ({"solver": "stream"}, "use `solver=exact`"),
        ({"protected": "score", "score": "p", "bands": "score=quartiles"}, "give the edges as numbers"),
        (
            {"method": "fair-regression", "slack": None, "constraint": "ks.to_overall[race=a]<=0"},
            "set another limit",
        ),
        (
            {**LOSS, "slack": None, "constraint": "log_loss.max<=0"},
            r"a loss of at most 0 .* set another limit",
        ),
        (
            {
                **LOSS,
                "slack": None,
                "constraint": "square_loss.max<=9",
                "task": "regression",
                "label": "real",
            },
            "such as `label_range=0,100`",
        ),
        (
            {
                "method": "sensei",
                "features": "p",
                "solver": "regularizer",
                "task": "regression",
                "label": "real",
            },
            "unbounded",
        ),
        ({"method": "sensei", "features": "score"}, "name columns to learn from"),
    ],
)
def test_what_cannot_be_promised_is_refused_with_what_could_be(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        made(rows(150), **asked)


ROBUST = {"method": "robust", "protected": "race"}


def recorded(many: int = 3000) -> pd.DataFrame:
    """Return people of two recorded groups, of whom one in ten is of the other."""
    return people(many, shares=(0.55, 0.45, 0.0))


def noise_table(path: Path, form: str = "probability", times: float = 1.0) -> str:
    """Write a table of P(true | recorded), or of counts, and return its path."""
    given = pd.DataFrame(
        {"true": [*"abab"], "noisy": [*"aabb"], form: np.array([0.9, 0.1, 0.2, 0.8]) * times}
    )
    given.to_csv(path, index=False)
    return str(path)


def test_true_groups_are_promised_by_what_the_assumption_allows(tmp_path: Path) -> None:
    """A survey is counted: the larger it is, the nearer is the bound to that of a table which is known."""
    asked, keep = {**ROBUST, "slack": 0.45, "assume": "none"}, "(keep=true-given-noisy)"
    one = made(recorded(), **asked, noise=noise_table(tmp_path / "n.csv") + keep).to_dict()["guarantee"]
    counts = noise_table(tmp_path / "c.csv", "count", 1e7)
    many = made(recorded(), **asked, noise=counts + keep).to_dict()["guarantee"]

    assert (one["way"], one["attribute"]) == ("held-out", "the true groups behind race")
    assert one["measured"] < one["bound"] <= one["slack"]
    assert one["rows"] == [{"group": "everybody", "rows": 900}]
    assert (
        "P(true | noisy) of the noise table also holds in the population, and that the table is exact"
        in one["says"]
    )
    assert "the table is from a survey of that population, whose error is included" in many["says"]
    assert many["measured"] < many["bound"]


def test_true_groups_may_be_the_farther_the_less_is_known() -> None:
    """Of one rule and the same rows: by what is assumed, by the size of a survey, and by rows."""
    rng, table = np.random.default_rng(0), np.array([[0.9, 0.1], [0.2, 0.8]])
    true = rng.integers(0, 2, 6000)
    group = np.where(rng.random(6000) < table[true, 1], 1, 0)
    each = np.stack([rng.random(6000) < 0.5 + 0.1 * true] * 2, axis=1) * 1.0
    rows = RuledRows.of(group, rng.integers(0, 2, 6000), each)

    def judged(many: int, kind: Any, wide: float) -> TrueGroupDistances:
        boxes = [kind(np.maximum(table - one, 0), np.minimum(table + one, 1), table) for one in (0.0, wide)]
        demands = (("selection_rate", 1.0), ("selection_rate", -1.0))
        what = PossibleTrueGroups(("a", "b"), ("a", "b"), demands, (boxes[0],), (boxes[1],), True, "")
        seen: dict[str, Any] = {"fit": rows, "held": rows, "names": ("everybody",), "rows": np.array([many])}
        return TrueGroupDistances(**seen, alpha=0.05, true_groups=what)

    far = {kind: bound(judged(2000, kind, 0.0)) for kind in (ClassConditionalProof, RecordedGivenTrue)}
    assert far[ClassConditionalProof] < far[RecordedGivenTrue]
    for kind, few in far.items():
        near = judged(10**6, kind, 0.0)
        assert gap(near) < bound(near) < gap(near) + 0.02
        assert bound(near) < few < bound(judged(2000, kind, 0.02)) < bound(judged(2000, kind, 0.1))


def test_radii_are_promised_as_they_are_given(tmp_path: Path) -> None:
    asked = {**ROBUST, "slack": 0.6, "solver": "ideal", "assume": "radii", "bins": 6}
    bounds = [
        made(recorded(), **asked, noise=f"radius:a={radius},b={radius}").to_dict()["guarantee"]["bound"]
        for radius in (0.0, 0.1)
    ]

    assert 0 < bounds[0] < bounds[1] <= 0.6


@pytest.mark.parametrize(
    ("asked", "columns", "words"),
    [
        ({"solver": "ideal", "assume": "radii"}, {}, "give them by `noise=radius:"),
        (
            {"assume": "class-conditional", "noise": "(keep=true-given-noisy)"},
            {},
            r"write `noise=FILE\(keep=noisy-given-true\)`",
        ),
        (
            {"assume": "class-conditional"},
            {"noisy": [*"aacb"]},
            "names 'c' as recorded.*leave these entries out",
        ),
    ],
)
def test_true_groups_of_whom_too_little_is_known_are_refused(
    asked: dict[str, Any], columns: dict[str, Any], words: str, tmp_path: Path
) -> None:
    noise_table(tmp_path / "n.csv", "count", 100)
    table = pd.read_csv(tmp_path / "n.csv")
    if "noisy" in columns:
        table = pd.concat([table, table.tail(1).assign(noisy="c")])
        columns = {}
    table.assign(**columns).to_csv(tmp_path / "n.csv", index=False)

    noise = str(tmp_path / "n.csv") + asked.get("noise", "")
    with pytest.raises(UsageError, match=words):
        made(recorded(300), **{**ROBUST, "slack": 0.3, **asked, "noise": noise})


def test_ids_that_repeat_are_refused() -> None:
    data = rows(150)
    data.loc[5, "id"] = data.loc[9, "id"]

    with pytest.raises(UsageError, match=r"1 rows repeat an ID in 'id'.*keep one row per ID"):
        made(data, duplicates="share")


def test_what_the_rule_does_not_see_cannot_change_it() -> None:
    one = made(method="sensei", features="p", slack=0.0).to_dict()["guarantee"]

    assert (one["way"], one["bound"], one.get("inner_slack"), one["holds"]) == ("construction", 0, None, True)


def test_what_is_there_and_what_it_takes_are_both_of_the_data(call: Call, tmp_path: Path) -> None:
    """The rows of a group that the message counts are those of the file, not those of the part that is fitted to."""
    rng = np.random.default_rng(0)
    group = np.repeat(["a", "b"], [2000, 300])
    data = pd.DataFrame(
        {
            "g": group,
            "score": rng.random(2300),
            "label": rng.integers(0, 2, 2300),
            "id": np.arange(2300).astype(str),
        }
    )
    data.to_parquet(tmp_path / "d.parquet")
    line = [
        str(tmp_path / "d.parquet"),
        "--method",
        "ramp",
        "--protected",
        "g",
        "--id",
        "id",
        "--config",
        "none",
    ]
    line += ["--slack", "0.1", "--guarantee", "0.95", "-o", str(tmp_path / "a.fairfix")]
    status, _, err = call("repair", *line)

    assert status == 3
    assert "'b' (about 300 here)" in err
