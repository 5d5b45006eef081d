"""Counterfactual copies: whose they are, what they change, and what an audit and a repair say of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import fairfix
import joblib
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.scan import read_table
from fairfix.data.table import Table
from fairfix.errors import FairfixError, UsageError
from fairfix.individual.by_model import Judge, under_counterfactuals
from fairfix.individual.counterfactuals import MOST, read_counterfactuals
from fairfix.methods.problem import RepairProblem
from fairfix.methods.sensei import Sensei, regularized
from fairfix.methods.sensei.regularized import FlippedRows
from fairfix.models.features import Features
from fairfix.models.repaired import Repaired
from fairfix.models.user_file import file_hash
from fairfix.solvers.invariant_linear import fit_linear
from sklearn.linear_model import LogisticRegression

NAMES = ["skill", "hobby", "town"]


def people(many: int, seed: int = 0) -> pd.DataFrame:
    """Return people whose hobby hangs on their sex, and whose label on skill and hobby."""
    rng = np.random.default_rng(seed)
    sex = rng.integers(0, 2, many)
    skill, hobby = rng.normal(size=many), sex + rng.normal(size=many)
    return pd.DataFrame(
        {
            "person": [f"p{seed}_{i}" for i in range(many)],
            "sex": np.array(["f", "m"])[sex],
            "skill": skill,
            "hobby": hobby,
            "town": np.array(["north", "south"])[rng.integers(0, 2, many)],
            "label": (rng.random(many) < 1 / (1 + np.exp(-skill - hobby))).astype(int),
        }
    )


def copies_of(data: pd.DataFrame, each: int = 2, seed: int = 1) -> pd.DataFrame:
    """Return copies of the other sex, whose hobby is what it would be then, give or take something."""
    rng = np.random.default_rng(seed)
    copies = data.loc[np.repeat(data.index, each), ["person", "sex", "hobby"]]
    shift = np.where(copies["sex"] == "m", -1.0, 1.0)
    return copies.assign(
        sex=np.where(copies["sex"] == "m", "f", "m"),
        hobby=copies["hobby"] + shift + 0.3 * rng.normal(size=len(copies)),
    )


def table_of(data: pd.DataFrame, names: Sequence[str] = NAMES, **types: pa.DataType) -> Table:
    """Return the validated table of people."""
    columns = ColumnRoles(("sex",), label="label", id="person", weight="w" if "w" in data else None)
    return read_table(data, DataSpec(columns), list(names), {"person": pa.string(), **types})


USUAL: dict[str, Any] = {"protected": "sex", "label": "label", "id": "person"}
"""Columns of an audit."""

REPAIR: dict[str, Any] = {"protected": "sex", "id": "person", "method": "sensei", "solver": "regularizer"}
"""A repair that knows copies."""


def gap_and_flips(score: np.ndarray, of: np.ndarray, copied: np.ndarray) -> tuple[float, float]:
    """Return by plain means the counterfactual gap and the share of people whose decision changes."""
    changes = pd.DataFrame(
        {"of": of, "gap": np.abs(copied - score), "flip": (copied >= 0.5) != (score >= 0.5)}
    )
    by_person = changes.groupby("of")
    return float(by_person["gap"].mean().mean()), float(by_person["flip"].any().mean())


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A model file of skill and hobby, as an audit is given it."""
    data, path = people(400, seed=9), tmp_path_factory.mktemp("model") / "model.joblib"
    joblib.dump(LogisticRegression().fit(data[["skill", "hobby"]], data["label"]), path)
    return {"model": path, "trust_model": file_hash(path)}


def comparisons(result: Any) -> dict[str, Any]:
    """Return the numbers of an audit by their names."""
    block = result.content.block("sex")
    return {name: one for name, one in block.by_id.items() if "counterfactuals" in name}


def test_an_audit_says_what_copies_get(model: dict[str, Any], tmp_path: Path) -> None:
    """By the model and by scores of the copies alike, of any order and kind of file: what plain means say."""
    data = people(300)
    copies = copies_of(data[:120]).sample(frac=1.0, random_state=0)
    fitted = joblib.load(model["model"])

    def chance(rows: pd.DataFrame) -> np.ndarray:
        return fitted.predict_proba(rows[["skill", "hobby"]])[:, 1]

    whole = (
        data.set_index("person").loc[copies["person"]].reset_index().assign(hobby=copies["hobby"].to_numpy())
    )
    want = gap_and_flips(
        pd.Series(chance(data), data["person"])[copies["person"]].to_numpy(),
        copies["person"].to_numpy(),
        chance(whole),
    )
    every = pd.concat([data.set_index("person").loc[copies["person"].unique()].reset_index(), whole])
    stds = pd.Series(chance(every)).groupby(every["person"].to_numpy()).std(ddof=0)
    copies.to_csv(tmp_path / "copies.csv", index=False)
    seen = comparisons(fairfix.audit(data, similar=tmp_path / "copies.csv", **USUAL, **model))
    graded, scored = data.assign(score=chance(data)), whole.assign(score=chance(whole))
    by_score = comparisons(fairfix.audit(graded, similar=scored, score="score", **USUAL))

    for values in (seen, by_score):
        gap, flips = (
            values[f"{name}.under_counterfactuals"] for name in ("counterfactual_gap", "decision_flips")
        )
        assert (gap.value, flips.value) == pytest.approx(want, abs=1e-12)
        spread = values["score_std.under_counterfactuals"]
        assert spread.value == pytest.approx(np.mean(stds), abs=1e-12)
        assert spread.low <= spread.value <= spread.high
        assert gap.low <= gap.value <= gap.high
        assert flips.reason == "240 copies of 120 people"
    assert want[1] > 0.05


@pytest.mark.parametrize(
    ("by", "was", "now"),
    [
        ("prediction", [0, 1], [1, 1]),
        ("probability", [0.25, 0.25], [0.75, 0.75]),
        ("probability", [0, 1], [1, 1]),
    ],
)
@pytest.mark.parametrize("lacking", ["decided", "score"])
def test_decisions_that_are_given_are_compared(by: str, was: Any, now: Any, lacking: str) -> None:
    """Of hard decisions the share that changes, and chances of drawn ones change by their distance.

    What is decided of a copy cannot be told by its score, nor its score by what is decided: both have to be there.
    """
    data = people(40).assign(decided=was * 20, score=0.25)
    copies = data[["person", "score"]].assign(decided=now * 20)[:10]
    asked: dict[str, Any] = {**USUAL, "score": "score", by: "decided"}
    with pytest.raises(FairfixError, match=f"no column '{lacking}', which has the results of people"):
        fairfix.audit(data, similar=copies.drop(columns=lacking), **asked)
    seen = comparisons(fairfix.audit(data, similar=copies, **asked))
    flips = seen["decision_flips.under_counterfactuals"]

    assert flips.value == 0.5
    assert by == "probability" or flips.high - flips.low > 0.4, "ten people, however many copies, tell little"
    assert seen["score_change.under_counterfactuals"].value == 0.0
    del asked["score"]
    seen = comparisons(fairfix.audit(data.drop(columns="score"), similar=copies, **asked))
    assert seen["decision_flips.under_counterfactuals"].value == 0.5


def test_a_check_of_the_gap_fails(model: dict[str, Any]) -> None:
    """Under its name and its alias; copies in what the model does not look at change nothing."""
    data = people(400)
    more = USUAL | model
    failed = fairfix.audit(data, similar=copies_of(data), check="ctf<=0.05", **more)
    passed = fairfix.audit(data, similar=copies_of(data)[["person", "sex"]], check="ctf<=0.05", **more)

    assert failed.to_dict()["verdict"] == "fail"
    assert passed.to_dict()["verdict"] == "pass"
    assert "does not use" in comparisons(passed)["counterfactual_gap.under_counterfactuals"].reason


def test_people_weigh_alike_whatever_their_copies() -> None:
    """A person with many copies counts once, and by the weight of the row."""
    data = pd.DataFrame(
        {"person": ["a", "b"], "sex": ["f", "m"], "x": [0.0, 0.0], "label": [0, 1], "w": [1.0, 3.0]}
    )
    copies = pd.DataFrame({"person": ["b", *["a"] * 4], "x": [0.0, 1.0, 1.0, 0.5, 0.5]})
    table = table_of(data, ["x"])
    made = read_counterfactuals(copies, table, list(data))
    judge = Judge(lambda rows: rows.features.column("x").to_numpy(), 0.75)
    values = {one.id.partition(".")[0]: one for one in under_counterfactuals(table, made, judge, 0.95)}

    assert values["counterfactual_gap"].value == pytest.approx(0.25 * 0.75)
    assert values["score_std"].value == pytest.approx(0.25 * np.std([0.0, 1.0, 1.0, 0.5, 0.5]))
    assert values["decision_flips"].value == pytest.approx(0.25)
    assert values["score_change"].value == pytest.approx(0.25)


@pytest.mark.parametrize("kind", [int, float, str])
def test_protected_levels_of_copies_are_those_of_the_data(kind: type) -> None:
    """Numbers as groups are the same in a text file and in a frame, and the copy is in the other group."""
    data = people(20).assign(sex=lambda d: (d["sex"] == "m").astype(int))
    table, other = table_of(data, ["skill"], sex=pa.int64()), 1 - data["sex"]
    copied = read_counterfactuals(data[["person"]].assign(sex=other.astype(kind)), table, list(data))
    row, copies = copied.of(table)
    groups = copies.groups(["sex"])

    assert row.tolist() == list(range(20))
    assert [groups.names[code] for code in groups.codes] == [*map(str, other)]
    assert copies.features.column("sex").to_pylist() == other.tolist()


def test_lists_are_changed_too() -> None:
    """The embedding of a changed text takes the place of the person's; one of another length is refused."""
    data = people(30).assign(text=lambda d: [[a, b] for a, b in zip(d["skill"], d["hobby"], strict=True)])
    table, copies = table_of(data, ["text"]), data[["person"]].assign(text=[[0.0, 1.0]] * 30)
    _, changed = read_counterfactuals(copies, table, list(data), learned=True).of(table)

    assert changed.features.column("text").to_pylist() == [[0.0, 1.0]] * 30
    with pytest.raises(FairfixError, match="list of 3 numbers"):
        read_counterfactuals(copies.assign(text=[[0.0, 1.0, 2.0]] * 30), table, list(data), learned=True)


WRONG: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "counterfactual copies need the column of IDs": lambda c: c.drop(columns="person"),
    "no used column": lambda c: c[["person"]],
    "'label' has a role": lambda c: c.assign(label=1),
    "'hobbi', which the data lack; did you mean 'hobby'": lambda c: c.rename(columns={"hobby": "hobbi"}),
    "'age' is not learned from": lambda c: c.assign(age=1),
    "'hobby' holds 'much'": lambda c: c.assign(hobby="much"),
    "'hobby' has a missing value": lambda c: c.assign(hobby=np.nan),
    "holds inf": lambda c: c.assign(hobby=np.inf),
    "'sex' holds 'x', and no row": lambda c: c.assign(sex="x"),
    "'sex' is missing": lambda c: c.assign(sex=None),
    "'town' holds 'west'": lambda c: c.assign(town="west"),
    "copy 1 has no 'person'": lambda c: c.assign(person=None),
    "only copies of 'q'": lambda c: c.assign(person="q"),
    "has no copies": lambda c: c[:0],
    f"at most {MOST} are used": lambda c: pd.concat([c] * (MOST + 1)),
}


@pytest.mark.parametrize("said", WRONG)
def test_what_is_no_copy_is_refused(said: str, tmp_path: Path) -> None:
    """By name, and nothing is written."""
    data, made = people(60).assign(age=40), tmp_path / "a.fairfix"
    WRONG[said](copies_of(data)[:1]).to_csv(tmp_path / "copies.csv", index=False)
    with pytest.raises(FairfixError) as error:
        fairfix.repair(
            data, rho=1, features=NAMES, similar=tmp_path / "copies.csv", output=str(made), **REPAIR
        )

    assert said in str(error.value)
    assert not made.exists()


def test_ids_that_repeat_and_people_who_are_not_there() -> None:
    """A copy of one of two people with the same id is of nobody; unknown ids are named and left out."""
    data = people(30)
    copies = pd.concat([copies_of(data), copies_of(data)[:2].assign(person="ghost")])
    made = read_counterfactuals(copies, table_of(data), list(data))

    assert made.unknown == ("ghost",)
    assert len(made.people) == 60
    with pytest.raises(FairfixError, match="30 rows of the data have that 'person'"):
        read_counterfactuals(copies[:1], table_of(data.assign(person="p0_0")), list(data))


@pytest.mark.parametrize(("data", "copies"), [(float, str), (str, float), (int, float), (float, int)])
def test_an_id_that_is_a_number_is_written_in_any_way(data: type, copies: type, tmp_path: Path) -> None:
    """7 in one file is 7.0 in the other, be it text or number: pandas makes one of the other."""

    def written(kind: type, many: int) -> Any:
        number = pd.Series(np.arange(many))
        return number.astype(float).astype(str) if kind is str else number.astype(kind)

    frame = people(40).assign(person=written(data, 40))
    pd.DataFrame({"person": written(copies, 10), "hobby": 0.0}).to_parquet(tmp_path / "copies.parquet")
    table = table_of(frame)
    row, _ = read_counterfactuals(tmp_path / "copies.parquet", table, list(frame)).of(table)

    assert row.tolist() == list(range(10))


def test_solvers_that_know_no_copies_say_so() -> None:
    """The others are named; so is the score alone."""
    data = people(80).assign(score=0.5)
    more: dict[str, Any] = {"protected": "sex", "id": "person", "similar": copies_of(data)}
    with pytest.raises(UsageError, match="ramp repairs groups; leave it out, or use `method=sensei`"):
        fairfix.repair(data, method="ramp", **more)
    with pytest.raises(
        UsageError, match=r"`similar=.*conflicts with `solver=merge`; it needs .*`solver=regularizer`"
    ):
        fairfix.repair(data, method="sensei", features=NAMES, **more)
    with pytest.raises(FairfixError, match="is not learned from; name it with `features`"):
        fairfix.repair(data, method="sensei", solver="regularizer", **more)
    more["similar"] = more["similar"][["person", "sex"]]
    with pytest.raises(UsageError, match="differ in sex, which the model does not use"):
        fairfix.repair(data, method="sensei", solver="regularizer", rho=1, features=NAMES, **more)


@pytest.mark.parametrize(
    ("learner", "rho"), [("linear", "auto"), pytest.param("network", 10, marks=pytest.mark.slow)]
)
def test_a_repair_gives_new_people_the_score_of_their_copies(
    learner: str, rho: float | str, tmp_path: Path
) -> None:
    """Through the artifact, on people and copies that it has never seen: about what the held-out rows said."""
    data = people(2500)
    result = fairfix.repair(
        data,
        **{**REPAIR, "learner": learner, "rho": rho, "slack": 0.1, "features": NAMES},
        similar=copies_of(data[:1500]),
        output=str(tmp_path / "a.fairfix"),
    )
    table = {row["name"]: row for row in result.to_dict()["proof"]["holdout"]["table"]}
    row = table["decision_flips.under_counterfactuals [sex]"]
    made, new = Repaired.load(tmp_path / "a.fairfix"), people(4000, seed=5)
    copies = copies_of(new, seed=6)
    whole = (
        new.set_index("person").loc[copies["person"]].reset_index().assign(hobby=copies["hobby"].to_numpy())
    )

    def score(rows: pd.DataFrame) -> np.ndarray:
        return np.asarray(fairfix.predict(made, rows, duplicates="share")["prediction"])

    own = pd.Series(score(new), new["person"])[copies["person"]].to_numpy()
    gap, flips = gap_and_flips(own, copies["person"].to_numpy(), score(whole))

    assert result.to_dict()["criterion"] == "decision_flips.under_counterfactuals"
    assert "the columns that the copies in" in result.to_dict()["does_not_count"]
    assert row["before"]["value"] > 0.15 > 0.1 > flips
    assert row["after"]["low"] - 0.02 <= flips <= row["after"]["high"] + 0.02
    other = table["counterfactual_gap.under_counterfactuals [sex]"]["after"]
    assert other["low"] - 0.01 <= gap <= other["high"] + 0.01
    assert json.dumps(made.facts["proof"]).count("under_counterfactuals") > 2


def test_copies_of_the_fit_prove_nothing() -> None:
    """The proof on held-out rows is about copies of these alone."""
    data = people(600)
    result = fairfix.repair(data, rho=1, features=NAMES, similar=copies_of(data), **REPAIR)
    split, proof = result.outcome.split, result.outcome

    assert split is not None
    assert proof.holdout is not None
    for part, rows in ((proof.holdout, split.holdout), (proof.fit, split.fit)):
        row = next(row for row in part.shown.table if row.id == "decision_flips.under_counterfactuals")
        assert row.after.reason == f"{2 * rows.size:,} copies of {rows.size:,} people"


def test_the_linear_fit_is_that_to_rows_and_their_copies() -> None:
    """The regularizer is the mean over all rows of the greatest squared change, at the optimum that is certified."""
    data = people(300)
    table = table_of(data)
    made = read_counterfactuals(copies_of(data[:200]), table, list(data), learned=True)
    features = Features.learn(table, NAMES)
    X, y = features.matrix(table), data["label"].to_numpy(dtype=float)
    rows, copies = made.of(table)
    there = features.matrix(copies)
    variants = FlippedRows.of(X, ()).with_copies(rows, there)
    fit = fit_linear(X, y, None, variants, rho=2.0, l2=1e-3)
    worst = np.zeros(300)
    np.maximum.at(worst, rows, ((there - X[rows]) @ fit.coef[:, 0]) ** 2)
    s = (X @ fit.coef + fit.intercept)[:, 0]
    objective = (
        float(np.mean(np.logaddexp(0, s) - y * s)) + 2.0 * worst.mean() + 1e-3 * float((fit.coef**2).sum())
    )

    assert fit.converged
    assert fit.objective == pytest.approx(objective, abs=1e-9)
    assert np.flatnonzero(variants.has_copies).tolist() == list(range(200))
    np.testing.assert_array_equal(variants.variant(1, np.array([250, 3])), np.stack([X[250], there[7]]))
    problem = RepairProblem(table, features=tuple(NAMES), copies=made)
    method = replace(Sensei(solver="regularizer", rho=2.0), copied=True)
    predictor = method.fit(problem, rng=np.random.default_rng(0))
    np.testing.assert_allclose(predictor.state()[1]["model0.coef"][:, 0], fit.coef[:, 0], atol=1e-8)


def test_without_people_to_choose_by_rho_has_to_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where none of the rows set aside has a copy, nothing is chosen by them."""
    monkeypatch.setattr(regularized, "set_aside", lambda data, seed: ~data.changed.has_copies)
    data = people(200)
    with pytest.raises(FairfixError, match="has a copy; give copies of more people, or a number"):
        fairfix.repair(data, features=NAMES, similar=copies_of(data[:100]), **REPAIR)


def test_the_grid_of_rho_weighs_those_who_have_copies_as_if_all_had() -> None:
    """The regularizer is a mean over all rows: of copies of a quarter of the weight rho is four times as large."""
    X, weight = np.zeros((4, 1)), np.array([1.0, 1.0, 1.0, 1.0])
    none = FlippedRows.of(X, ())
    some = none.with_copies(np.array([2, 2]), np.ones((2, 1)))
    both = FlippedRows.of(X, [X + 1.0]).with_copies(np.array([2]), np.ones((1, 1)))

    def grid(changed: FlippedRows) -> tuple[float, ...]:
        return regularized.Training(X, np.zeros(4), weight, changed, X[:0], np.ones(1)).grid

    assert grid(some) == pytest.approx([4.0 * rho for rho in regularized.GRID])
    assert grid(none) == grid(both) == regularized.GRID
