"""Every form of ``--similar`` in a shell: what it makes of the numbers, in a repair, an audit and a configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fairfix.models.repaired import Repaired

from tests.data import couples

REPAIR = (
    "repair data.parquet --method sensei --protected sex --id person --features age,pay,role --config none -q"
)
LINEAR = f"{REPAIR} --solver regularizer -o a.fairfix"


@pytest.fixture(autouse=True)
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    """Return people, in a folder with files about them."""
    monkeypatch.chdir(tmp_path)
    data = couples(many=600).assign(person=lambda d: [f"p{i}" for i in range(len(d))])
    data["pay"] = 2.0 * data["age"] + np.random.default_rng(1).normal(0, 20, len(data))
    data.to_parquet("data.parquet")
    names = data["person"].to_numpy()
    pd.DataFrame({"one": names[::2], "other": names[1::2]}).to_csv("pairs.csv", index=False)
    pd.DataFrame({"age": [1.0], "pay": [-2.0]}).to_csv("directions.csv", index=False)
    copies_of(data).to_csv("copies.csv", index=False)
    return data


def copies_of(data: pd.DataFrame) -> pd.DataFrame:
    """Return a copy of each person, with another pay."""
    return pd.DataFrame({"person": data["person"], "pay": data["pay"] + 15.0})


def log_odds(call: Any, line: str, *frames: pd.DataFrame) -> list[Any]:
    """Return the log-odds that a repair gives rows."""
    call.ran(line)
    made = Repaired.load("a.fairfix")
    chances = (np.asarray(made.predict(frame)["prediction"]) for frame in frames)
    return [np.log(chance / (1 - chance)) for chance in chances]


MOVED = {
    "role=husband,wife": {"role": lambda d: d["role"].replace({"husband": "wife"})},
    "directions.csv": {"age": lambda d: d["age"] + 5.0, "pay": lambda d: d["pay"] - 10.0},
}
"""What is said to be similar -> how rows are moved to people who are."""


@pytest.mark.parametrize("similar", MOVED)
def test_similar_people_get_the_same_score(similar: str, people: pd.DataFrame, call: Any) -> None:
    """Rows that are moved keep their score, and lose it without the statement."""
    moved = people.assign(**MOVED[similar])
    rho = "inf" if "=" in similar else "0"
    before, after = log_odds(call, f"{LINEAR} --set rho={rho} --similar {similar}", people, moved)
    free, changed = log_odds(call, f"{LINEAR} --set rho=0", people, moved)

    assert np.abs(after - before).max() < 1e-9
    assert np.abs(changed - free).max() > 0.1
    assert np.ptp(before) > 0.1


@pytest.mark.parametrize(
    ("similar", "lost"), [("pairs.csv", 1), ("pairs.csv(directions=2)", 2), ("learned", 1)]
)
def test_directions_are_taken_from_the_score(
    similar: str, lost: int, people: pd.DataFrame, call: Any
) -> None:
    """Of pairs, of as many as are asked for, and learned: the slopes of the score lose as many dimensions."""
    line = f"{LINEAR} --set rho=0 --features age,pay --holdout 0.2 --similar".replace(
        " --features age,pay,role", ""
    )
    steps = [people.assign(age=people["age"] + 5.0), people.assign(pay=people["pay"] + 10.0)]
    base, *moved = log_odds(call, f"{line} {similar}", people, *steps)
    slopes = [float((one - base).mean()) for one in moved]

    if lost == 2:  # of the two dimensions that there are
        assert np.abs(slopes).max() < 1e-9
    else:
        free, *others = log_odds(call, line.removesuffix(" --similar"), people, *steps)
        plain = [float((one - free).mean()) for one in others]
        assert abs(np.cross(slopes, plain)) > 1e-6  # another direction
        assert np.abs(slopes).max() > 1e-6


def test_a_radius_and_copies_make_the_score_flatter(people: pd.DataFrame, call: Any) -> None:
    """People near each other, and a person and the copy, get scores that are nearer; the more so the greater rho."""
    copies = people.assign(pay=people["pay"] + 15.0)

    def change(similar: str, rho: float) -> tuple[float, float]:
        before, after = log_odds(call, f"{LINEAR} --set rho={rho} --similar {similar}", people, copies)
        return float(np.ptp(before)), float(np.abs(after - before).mean())

    weak, strong = change("near(radius=0.1)", 0.01), change("near(radius=0.1)", 30.0)
    assert strong[0] < 0.5 * weak[0]
    weak, strong = change("copies.csv", 0.01), change("copies.csv", 300.0)
    assert strong[1] < 0.5 * weak[1]


def test_a_configuration_says_who_is_similar(people: pd.DataFrame, call: Any) -> None:
    """As a list, whose files are beside it; the words are those of the command line."""
    (Path("inner") / "deep").mkdir(parents=True)
    Path("directions.csv").rename("inner/moves.csv")
    Path("inner/fairfix.toml").write_text(
        '[repair]\nsimilar = ["role=husband,wife", "moves.csv", "near(radius=0.01)"]\n', encoding="utf-8"
    )
    line = LINEAR.replace("--config none", "--config inner/fairfix.toml") + " --set rho=1"
    moved = people.assign(**MOVED["directions.csv"])
    before, after = log_odds(call, line, people, moved)

    assert np.abs(after - before).max() < 1e-9
    assert (
        Repaired.load("a.fairfix").parameters["similar"].startswith("role=husband,wife; near(radius=0.01); ")
    )


def test_an_audit_counts_people_and_their_copies(people: pd.DataFrame, call: Any) -> None:
    """By the scores that the copies have: the rate of decisions that change, and the mean change of the score."""

    def scored(data: pd.DataFrame) -> pd.DataFrame:
        return data.assign(score=1 / (1 + np.exp(-(data["pay"] - 80) / 20)))

    scored(people).to_csv("scored.csv", index=False)
    scored(copies_of(people)).to_csv("copies.csv", index=False)
    line = "audit scored.csv --protected sex --id person --config none --format json --similar"
    out = call.ran(line, "copies.csv")
    of = {one["id"]: one["value"] for one in json.loads(out)["attributes"][0]["comparisons"]}
    was, now = (scored(one)["score"].to_numpy() for one in (people, copies_of(people)))

    assert of["decision_flips.under_counterfactuals"] == pytest.approx(np.mean((was >= 0.5) != (now >= 0.5)))
    assert of["counterfactual_gap.under_counterfactuals"] == pytest.approx(np.abs(now - was).mean())


@pytest.mark.parametrize(
    ("similar", "message"),
    [
        ("pairs.csv", "has pairs of people, which are for --method sensei"),
        ("directions.csv", "which are for --method sensei"),
        ("learned", "for --method sensei"),
        ("role=husband,wife", "needs --model"),
        ("near(radius=0.1)", "needs --model"),
    ],
)
def test_what_an_audit_cannot_measure_is_refused(
    similar: str, message: str, people: pd.DataFrame, call: Any
) -> None:
    people.assign(score=0.5 + 0.1 * (people["age"] > 40)).to_csv("scored.csv", index=False)
    err = call.refused("audit scored.csv --protected sex --id person --config none --similar", similar)
    assert message in " ".join(err.split())


def test_only_sensei_repairs_single_people(people: pd.DataFrame, call: Any) -> None:
    """Others refuse it, and a guarantee refuses files whose people are not independent."""
    people.assign(score=0.5 + 0.1 * (people["age"] > 40)).to_csv("scored.csv", index=False)
    line = "repair scored.csv --method ramp --protected sex --config none --similar flips"
    err = call.refused(line)
    assert "use --method sensei" in err
    err = call.refused(f"{LINEAR} --guarantee 0.95 --similar pairs.csv")
    assert "--guarantee" in err
