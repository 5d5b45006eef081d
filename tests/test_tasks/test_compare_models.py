"""Two models on the same people: changes are of the same rows, whichever way their scores come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fairfix.errors import DataError
from fairfix.schema import checked
from fairfix.schema.compare import Models
from fairfix.tasks.compare import compare

from tests.results import rendered

GAP = "selection_rate.difference.between_groups"


def people(many: int = 3000) -> pd.DataFrame:
    """Return people with a fair score and one that is lower for a group by chance and by shift."""
    rng = np.random.default_rng(1)
    race = rng.choice(["a", "b", "c"], many, p=[0.5, 0.3, 0.2])
    z = rng.normal(size=many)
    label = rng.random(many) < 1 / (1 + np.exp(-2 * z))
    biased = z - 0.8 * (race == "b") + 0.1 * rng.normal(size=many)
    return pd.DataFrame(
        {
            "person": np.arange(many),
            "race": race,
            "y": label.astype(int),
            "fair": 1 / (1 + np.exp(-z)),
            "old": 1 / (1 + np.exp(-biased)),
            "w": rng.integers(1, 4, many),
        }
    )


def compared(frame: pd.DataFrame, **more: Any) -> dict[str, Any]:
    """Return the JSON form of the comparison of the fair score with the old one."""
    return compare(
        frame, **{"protected": "race", "label": "y", "score": "fair", "baseline": "old", **more}
    ).to_dict()


def numbers(result: dict[str, Any]) -> dict[str, tuple[float | None, ...]]:
    """Return value and limits of every change."""
    rows = (*result["changes"], *result["qualities"])
    return {one["id"]: (one["value"], one["low"], one["high"]) for one in rows}


@pytest.mark.parametrize("weight", [None, "w"])
def test_changes_are_those_of_the_rows(weight: str | None) -> None:
    """The gap and the accuracy are those of the frame; an interval is around its change."""
    frame = people()
    result = compared(frame, weight=weight)
    w = np.ones(len(frame)) if weight is None else frame["w"].to_numpy()
    by = {one.get("comparison", one["id"]): one for one in (*result["changes"], *result["qualities"])}

    for name, key in (("old", "old"), ("fair", "new")):
        yes = (frame[name] >= 0.5).to_numpy()
        rates = [np.average(yes[frame["race"] == g], weights=w[frame["race"] == g]) for g in "abc"]
        assert by[GAP][key]["value"] == pytest.approx(np.ptp(rates))
        assert [one[key]["value"] for one in result["groups"]] == pytest.approx(rates)
        ends = [(rates[i], "abc"[i]) for i in np.argsort(rates)[[0, -1]]]
        said = " to ".join(f"{100 * rate:.1f}% for {group}" for rate, group in ends)
        assert f"{said} with {name}" in " ".join(rendered("text", result).split())
        assert by["accuracy"][key]["value"] == pytest.approx(np.average(yes == frame["y"], weights=w))
    for one in by.values():
        assert one["value"] == pytest.approx(one["new"]["value"] - one["old"]["value"])
        assert one["low"] <= one["value"] <= one["high"]
    then, now = by["auc"]["old"], by["auc"]["new"]  # no mean of rows: between the ends of both, each surer
    assert by["auc"]["low"] < now["low"] - then["high"]
    assert by["auc"]["high"] > now["high"] - then["low"]
    assert by[GAP]["high"] < 0
    text = rendered("text", result)
    assert "It gets better" in " ".join(text.split("Quality, all rows")[0].split())


def test_who_gets_least_and_most_is_said_in_the_unit_of_the_scores() -> None:
    """Where nobody decides: the mean score of a group, and no percentage of it."""
    frame = people()
    frame = frame.assign(y=30 * frame["fair"], fair=30 * frame["fair"], old=30 * frame["old"])
    result = compared(frame, task="regression")
    gap = "mean_score.difference.between_groups"
    result["changes"] = [one for one in result["changes"] if one["comparison"] == gap]
    text = " ".join(rendered("text", result).split())
    groups = {one["group"]: (one["old"]["value"], one["new"]["value"]) for one in result["groups"]}

    means = frame.groupby("race")[["old", "fair"]].mean()
    assert groups == {name: pytest.approx(tuple(row)) for name, row in means.T.items()}
    for name in ("old", "fair"):
        low, high = (f"{means[name][at]:.4f} for {at}" for at in (means[name].idxmin(), means[name].idxmax()))
        assert f"{low} to {high} with {name}" in text
    assert "%" not in text[text.index("By race, ") : text.index(" with fair")]


def test_a_model_does_not_differ_from_itself() -> None:
    """Every change is 0, and none is sure, not even of what is not paired."""
    frame = people().assign(old=lambda one: one["fair"])

    for value, low, high in numbers(compared(frame)).values():
        assert value == 0
        assert low <= 0 <= high


def test_the_other_way_round_changes_are_their_negatives() -> None:
    """So are their limits, and better is worse."""
    both = compared(people()), compared(people(), score="old", baseline="fair")
    here, there = map(numbers, both)
    first, second = (checked(one) for one in both)
    assert isinstance(first, Models)
    assert isinstance(second, Models)
    turned = {"better": "worse", "worse": "better", "larger": "smaller", "smaller": "larger", "": ""}
    assert [turned[one.direction] for one in first.changes] == [one.direction for one in second.changes]
    assert {one.direction for one in (*first.changes, *first.qualities)} >= {"better", ""}
    assert here.keys() == there.keys()
    for name, (value, low, high) in here.items():
        assert there[name] == pytest.approx((-value, -high, -low), abs=1e-9), name


def test_a_single_group_is_refused() -> None:
    with pytest.raises(DataError, match="'race' has only the group 'a'"):
        compared(people().assign(race="a"))


def test_two_files_are_as_two_columns(tmp_path: Path) -> None:
    """Rows are matched by their ids, whatever their order; people with one model are counted and left aside."""
    frame = people()
    other = frame.drop(columns="fair").rename(columns={"old": "fair"}).sample(frac=1, random_state=0)
    other.to_parquet(tmp_path / "old.parquet")
    result = compared(frame, baseline=tmp_path / "old.parquet", id="person")
    fewer = compared(frame, baseline=other.iloc[:2000], id="person")

    here, there = numbers(result), numbers(compared(frame))
    assert here.keys() == there.keys()
    assert all(here[name] == pytest.approx(there[name]) for name in here)
    assert fewer["data"]["rows"]["used"] == 2000
    assert fewer["paired"]["only_now"] == 1000
    assert sum(one["rows"] for one in fewer["data"]["rows"]["excluded"]) == 1000
