"""Guarantees of people who are not in the data: what is promised, by which rows, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fairfix.cli import run
from fairfix.errors import UsageError
from fairfix.stats.population import PairsOfRules
from fairfix.tasks.repair import RepairResult, repair

from tests.data import people

RAMP = {"method": "ramp", "protected": "race", "id": "id", "guarantee": 0.95}


PAIR = PairsOfRules(
    names=("a", "b"),
    rows=np.array([400, 400]),
    alpha=0.05,
    rates=np.array([0.2, 0.25]),
    blocks=np.zeros(2, dtype=int),
    variation=np.ones(2),
)


def rows(many: int = 1500) -> pd.DataFrame:
    """Return people of three groups, one of a fifth of the rows."""
    return people(many, shares=(0.5, 0.3, 0.2))


def made(data: pd.DataFrame | None = None, **asked: Any) -> RepairResult:
    """Return a repair with a guarantee."""
    return repair(rows() if data is None else data, **{**RAMP, "slack": 0.2, **asked})


def pair_reach(first: int, second: int, alpha: float) -> float:
    """Return how far a pair of rates may be off, by the formula of the docs, solved on a grid."""
    u = np.linspace(0, 40, 400_001)
    c = u[np.argmax((1 + u) * np.exp(-u) <= alpha)] + 2 * np.log(2)
    return float(np.sqrt(c / 2 * (1 / first + 1 / second)))


def test_the_bound_is_the_gap_on_the_rows_of_the_fit_and_how_far_any_rule_may_be_off() -> None:
    result = made(rows()[lambda one: one["race"] != "c"], slack=0.2)
    one = result.content["guarantee"]
    fit, group = result.outcome.fit, {r["group"]: r["rows"] for r in one["rows"]}
    gap = next(r.after.value for r in fit.table if r.id == one["criterion"])

    assert one["measured"] == pytest.approx(gap, abs=1e-12)
    assert one["bound"] == pytest.approx(gap + pair_reach(group["a"], group["b"], 0.05), abs=1e-4)
    assert sum(group.values()) == result.content["split"]["fit"]
    assert 0 < one["inner_slack"] < one["bound"] <= one["slack"] == 0.2


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
    assert twice.bound == pytest.approx(PAIR.measured + 2 * (PAIR.bound - PAIR.measured))


def test_strata_are_compared_within() -> None:
    """Two strata whose groups agree inside and differ across have no gap to promise, but what rows may be off."""
    four = replace(
        PAIR, names=("a", "b", "c", "d"), rows=np.full(4, 400), rates=np.array([0.2, 0.2, 0.7, 0.7])
    )
    four = replace(four, blocks=np.array([0, 0, 1, 1]), variation=np.ones(4))
    across = replace(four, blocks=np.zeros(4, dtype=int))

    assert four.measured == 0.0
    assert PAIR.bound - PAIR.measured < four.bound < across.bound
    assert across.measured == pytest.approx(0.5)
    result = made(slack=0.25, strata="town")
    (shown,) = (
        row for row in result.outcome.fit.table if row.id == "selection_rate.difference.within_strata"
    )
    assert result.content["guarantee"]["measured"] == pytest.approx(shown.after.value, abs=1e-12)
    assert {one["group"] for one in result.content["guarantee"]["rows"]} == {
        f"{town} & {race}" for town in ("north", "south") for race in "abc"
    }


def test_values_are_promised_as_they_are_expected_over_their_draws() -> None:
    asked = {"method": "fair-regression", "protected_as_feature": True, "features": "score", "slack": 0.1}
    result = made(rows().assign(score=lambda frame: frame["score"].round(1).clip(0.1, 0.9)), **asked)
    one = result.content["guarantee"]
    (shown,) = (row for row in result.outcome.fit.table if row.id == "ks.to_overall")

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

    assert result.content["guarantee"]["way"] == again.content["guarantee"]["way"] == "held-out"
    assert result.content["guarantee"]["inner_slack"] == again.content["guarantee"]["inner_slack"]
    assert result.content["guarantee"]["bound"] != again.content["guarantee"]["bound"]
    assert sum(r["rows"] for r in again.content["guarantee"]["rows"]) == held.size
    np.testing.assert_array_equal(result.outcome.split.fit, again.outcome.split.fit)


def test_held_out_rows_have_no_part_in_a_promise_about_all_rules() -> None:
    data = rows()
    result = made(data)
    other = data.copy()
    other.loc[result.outcome.split.holdout, ["score", "label"]] = [0.99, 1]

    assert made(other).content["guarantee"] == result.content["guarantee"]


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
        assert made(more, slack=0.05).content["guarantee"]["holds"] is holds


def test_the_sentence_reads_alone_wherever_it_stands() -> None:
    result = made()
    text = result.content["guarantee"]["says"]

    assert text.startswith(
        "With 95% confidence over the draw of these rows, by race, the demographic parity difference"
    )
    assert "at most 0.2 among people like them" in text
    for shown in (" ".join(str(result).split()), result.to_markdown(), result.to_html()):
        assert "is at most 0.2 among people like them" in shown


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"slack": 0}, "cannot be shown by any number of rows; name the largest gap"),
        ({"slack": "inf"}, "is no promise"),
        ({"guarantee": 1.0}, "`guarantee=1`: the confidence is at least 0.5 and below 1"),
        ({"guarantee": 0.05}, "0.95 is usual"),
        ({"weight": "weight"}, r"rows have weights \('weight'\)"),
        ({"constraint": "covariance"}, "take `constraint=demographic_parity`"),
        ({"solver": "sgd"}, "take `solver=exact`"),
        ({"protected": "score", "score": "p", "bands": "score=quartiles"}, "name the numbers to cut at"),
        ({"method": "fair-regression", "group_slack": "a=0.1"}, "give one `slack`"),
        (
            {"method": "fair-regression", "constraint": "bounded_group_loss", "bound": "0.3"},
            "take `constraint=statistical_parity`",
        ),
        (
            {"method": "sensei", "features": "p", "solver": "linear", "task": "regression", "label": "real"},
            "no end",
        ),
        ({"method": "sensei", "features": "score"}, "name columns to learn from"),
    ],
)
def test_what_cannot_be_promised_is_refused_with_what_could_be(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        made(rows(150), **asked)


def test_ids_that_repeat_are_refused() -> None:
    data = rows(150)
    data.loc[5, "id"] = data.loc[9, "id"]

    with pytest.raises(UsageError, match=r"1 rows repeat an id of 'id'.*keep one row of each"):
        made(data, duplicate_ids="share")


def test_people_of_rows_that_are_left_out_are_promised_nothing() -> None:
    data = rows()
    data.loc[:39, "race"] = None

    text = made(data, missing_group="drop").content["guarantee"]["says"]

    assert "nothing is promised of people like the 40 rows that were left out" in text


def test_what_the_rule_does_not_see_cannot_change_it() -> None:
    one = made(method="sensei", features="p", slack=0.0).content["guarantee"]

    assert (one["way"], one["bound"], one["inner_slack"], one["holds"]) == ("construction", 0, None, True)
