"""Repairs of many classes: what does not count changes no class, as the commands themselves tell it."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import fairfix
import numpy as np
import pandas as pd
import pytest
from fairfix.data.container import Archive, read, write
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.scan import read_table
from fairfix.errors import ArtifactError, ColumnError, DataError, UsageError
from fairfix.methods.problem import RepairProblem
from fairfix.methods.sensei import Sensei
from fairfix.models.class_chances import ClassChances
from fairfix.models.members import ConstantMember
from fairfix.models.repaired import Repaired
from fairfix.models.score_models import Scorer
from scipy.stats import beta

from tests.conftest import Call
from tests.results import texts_of

WAYS: dict[str, dict[str, Any]] = {
    "merge": {},
    "trees": {"learner": "trees"},
    "linear": {"solver": "regularizer", "group": "used", "rho": "inf"},
    "auto": {"solver": "regularizer", "group": "used"},
    "network": {
        "solver": "regularizer",
        "learner": "network(hidden=4,batch=100)",
        "group": "used",
        "rho": 30,
    },
}


@cache
def people(many: int = 800, seed: int = 0) -> pd.DataFrame:
    """Return people whose job hangs on their sex, a number and a role that tells the sex."""
    rng = np.random.default_rng(seed)
    woman, skill = rng.random(many) < 0.5, rng.normal(size=many)
    s = np.stack([skill + woman, np.full(many, 0.3), 1.5 * ~woman - skill], axis=1)
    job = (s + rng.gumbel(size=s.shape)).argmax(axis=1)
    return pd.DataFrame(
        {
            "id": [f"p{i}" for i in range(many)],
            "sex": np.where(woman, "f", "m"),
            "role": np.where(rng.random(many) < 0.5, "single", np.where(woman, "wife", "husband")),
            "skill": skill.round(3) * 10 + 40,
            "job": np.array(["nurse", "poet", "clerk"])[job],
        }
    )


def repaired(data: pd.DataFrame | None = None, **more: Any) -> Any:
    """Return the repair of people, or of other rows."""
    asked = {"method": "sensei", "task": "multiclass", "label": "job", "protected": "sex", "id": "id"}
    return fairfix.repair(people() if data is None else data, **{**asked, "features": ["skill"], **more})


def row(result: Any, name: str, part: str = "holdout") -> dict[str, Any]:
    """Return the last row of a name in the proof: that of all protected columns together."""
    return [one for one in result.to_dict()["proof"][part]["table"] if one["id"] == name][-1]


def flipped_share(made: Repaired, data: pd.DataFrame) -> float:
    """Return which share of people are predicted another class if they were of another sex."""
    f, m = (made.predict(data.assign(sex=level))["prediction"] for level in "fm")
    return float((f != m).mean())


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_the_proof_says_what_the_saved_rule_does(way: str, tmp_path: Path) -> None:
    """Of the held-out rows: shares that change, accuracy, and the audit of what ``predict`` writes."""
    result = repaired(**WAYS[way])
    result.repaired.save(tmp_path / "made.fairfix")
    made = fairfix.load(tmp_path / "made.fairfix")
    held = people().iloc[result.outcome.split.holdout].reset_index(drop=True)
    out = made.predict(held)
    flips = row(result, "decision_flips.under_flips")
    assert flips["after"]["value"] == pytest.approx(flipped_share(made, held), abs=1e-12)
    assert row(result, "accuracy")["after"]["value"] == pytest.approx(
        (out["prediction"] == held["job"]).mean()
    )
    assert (out.filter(like="p_").sum(axis=1) - 1).abs().max() < 1e-9
    assert out["prediction"].tolist() == out.filter(like="p_").idxmax(axis=1).str[2:].tolist()
    audited = fairfix.audit(
        out, label="job", prediction="prediction", task="multiclass", protected="sex"
    ).to_dict()
    (block,) = audited["attributes"]
    for one in block["comparisons"]:
        if one["id"].startswith("true_positive_rate"):
            assert row(result, one["id"])["after"]["value"] == pytest.approx(one["value"])
    assert flips["after"]["value"] <= (0.0 if way in ("merge", "trees", "linear") else 0.1)


@pytest.mark.slow
def test_before_is_the_model_that_came_with_the_rows_or_a_plain_one() -> None:
    told = people().assign(told=np.where(np.arange(800) % 4 == 0, "poet", people()["job"]))
    result = repaired(told, prediction="told")
    held = told.iloc[result.outcome.split.holdout]
    assert row(result, "accuracy")["before"]["value"] == pytest.approx((held["told"] == held["job"]).mean())
    assert row(result, "decision_flips.under_flips")["before"]["value"] is None
    plain = repaired(group="used", solver="regularizer", rho=10)
    assert row(plain, "decision_flips.under_flips")["before"]["value"] > 0.1


@pytest.mark.slow
def test_comparable_values_change_no_class() -> None:
    asked = {"features": ["skill", "role"], "similar": "role=wife,husband"}
    for more in ({}, {"solver": "regularizer", "rho": "inf"}):
        result = repaired(**asked, **more)
        assert row(result, "decision_flips.under_comparable")["before"]["value"] > 0.05
        assert row(result, "decision_flips.under_comparable")["after"]["value"] == 0
        rows = people()[people()["role"] != "single"]
        ways = [result.repaired.predict(rows.assign(role=one))["prediction"] for one in ("wife", "husband")]
        assert (ways[0] == ways[1]).all()


def test_copies_are_heeded_and_told_of() -> None:
    copies = people()[["id", "sex"]].iloc[:600].assign(sex=lambda rows: rows["sex"].map({"f": "m", "m": "f"}))
    result = repaired(group="used", solver="regularizer", slack=0.1, similar=copies)
    name = "decision_flips.under_counterfactuals"
    held = people().iloc[result.outcome.split.holdout].merge(copies, on="id", suffixes=("", "_other"))
    now, then = (
        result.repaired.predict(held[["id", "skill"]].assign(sex=held[one]))["prediction"]
        for one in ("sex", "sex_other")
    )
    assert row(result, name)["after"]["value"] == pytest.approx((now != then).mean(), abs=1e-12)
    assert row(result, name)["before"]["value"] > 0.1
    here, there = (
        result.repaired.predict(held[["id", "skill"]].assign(sex=held[one])).filter(regex="^p_").to_numpy()
        for one in ("sex", "sex_other")
    )
    assert here.shape[1] > 2
    far = row(result, "class_distance.under_counterfactuals")
    assert far["after"]["value"] == pytest.approx(((here - there) ** 2).sum(axis=1).mean(), abs=1e-12)
    assert far["before"]["value"] > far["after"]["value"]
    assert result.to_dict()["criterion"] == name
    assert any(
        "another predicted class for one of them" in note for note in texts_of(result.to_dict(), "note")
    )


def fitted(data: pd.DataFrame, **more: Any) -> np.ndarray[Any, Any]:
    """Return the chances that a rule which is fitted to all of the data gives people."""
    columns = ColumnRoles(("sex",), weight="w", classes=("job",))
    problem = RepairProblem(
        read_table(data, DataSpec(columns), ("skill",)),
        features=("skill",),
        protected_as_feature="solver" in more,
    )
    made = Sensei(**more).fit(problem, rng=np.random.default_rng(0))
    return made.class_probabilities(read_table(people().assign(w=1.0), DataSpec(columns), ("skill",)))


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"solver": "regularizer", "rho": 1.0},
        {"solver": "regularizer", "rho": np.inf, "balance": "labels"},
    ],
)
def test_a_weight_of_two_is_a_row_twice_in_any_order(more: dict[str, Any]) -> None:
    heavy = people().assign(w=np.where(np.arange(800) % 3, 1.0, 2.0))
    twice = pd.concat([heavy, heavy[heavy["w"] == 2]]).assign(w=1.0).sample(frac=1, random_state=1)
    assert fitted(twice, **more) == pytest.approx(fitted(heavy, **more), abs=2e-3)


@pytest.mark.slow
def test_whole_numbers_stay_numbers_and_equal_chances_give_the_first_class() -> None:
    data = people().assign(job=people()["job"].map({"nurse": 10.0, "poet": 9.0, "clerk": -1.0}))
    made = repaired(data).repaired
    assert made.predictor.classes == ("-1", "9", "10")
    out = made.predict(data)
    assert out["prediction"].dtype == np.int64
    assert (out["prediction"] == data["job"]).mean() > 0.4
    assert list(made.output.names) == ["prediction", "p_-1", "p_9", "p_10", "randomized"]
    even = pd.DataFrame({"id": range(300), "sex": list("fm") * 150, "x": 0.0, "job": list("cab") * 100})
    alone = repaired(even, features=["x"]).repaired.predict({"id": "1", "sex": "f", "x": 0.0})
    assert alone["prediction"] in "abc"
    member = repaired(even, features=["x"]).outcome.predictor
    tied = ClassChances(Scorer(member.scorer.features, ConstantMember(np.full(3, 1 / 3))), member.names)
    made = replace(repaired(even, features=["x"]).repaired, predictor=tied)
    assert made.predict(even)["prediction"].unique().tolist() == ["a"]


@pytest.mark.slow
def test_one_row_is_predicted_as_among_others() -> None:
    made = repaired(group="used", solver="regularizer", learner="network(hidden=3,batch=50)", rho=1).repaired
    rows = people().head(5)[["id", "sex", "skill"]]
    whole = made.predict(rows).to_dict("records")
    assert [made.predict(one) for one in rows.to_dict("records")] == whole
    with pytest.raises(DataError, match="already has a column 'prediction'"):
        made.predict(rows.assign(prediction="x"))


def test_a_feature_of_the_name_of_a_chance_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """The rule could decide no rows: they need the column, and may not have it."""
    data = people().assign(p_cook=1.0, job=lambda rows: rows["job"].replace(rows["job"].iloc[0], "cook"))
    with pytest.raises(DataError, match=r"needs column 'p_cook', and predicting adds a column of this name"):
        repaired(data, features=["skill", "p_cook"], output=tmp_path / "made.fairfix")
    assert not list(tmp_path.iterdir())


def test_a_class_that_only_held_out_rows_have_counts_as_wrong() -> None:
    data = people().copy()
    data.loc[7, "job"] = "rare"
    result = repaired(data, holdout=0.6)
    assert "rare" not in result.outcome.predictor.classes
    assert any("'rare'" in text for text in texts_of(result.to_dict(), "warning"))


@pytest.mark.parametrize(
    ("more", "error", "words"),
    [
        ({"method": "ramp"}, UsageError, "`method=ramp` with `solver=exact` repairs two classes; use"),
        ({"method": "logloss"}, UsageError, "`method=sensei` with `solver=merge`"),
        ({"solver": "average"}, UsageError, "`solver=average` repairs two classes"),
        ({"solver": "equal-rates"}, UsageError, "`solver=equal-rates` repairs two classes"),
        (
            {"solver": "regularizer", "group": "used", "similar": "near(radius=0.1)", "rho": 1},
            UsageError,
            "near",
        ),
        ({"threshold": 0.3}, UsageError, "leave out `threshold`"),
        ({"label": "skill", "features": ["role"]}, ColumnError, "more than 100 distinct values"),
        ({"prediction": "role"}, DataError, "no prediction is a class of the labels"),
        ({"check": "auc.difference<=0.1"}, UsageError, "needs more"),
    ],
)
def test_what_there_is_not_is_refused(
    more: dict[str, Any], error: type[Exception], words: str, tmp_path: Path
) -> None:
    with pytest.raises(error) as caught:
        repaired(**more, output=tmp_path / "made.fairfix")
    assert words in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_methods_are_not_compared_and_rules_are_not_exported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs two classes"):
        fairfix.compare(people(), task="multiclass", label="job", protected="sex")
    made = repaired().repaired
    with pytest.raises(UsageError, match="a multiclass rule"):
        fairfix.export(made, to="sql")


def test_a_rule_whose_classes_do_not_fit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "made.fairfix"
    repaired().repaired.save(path)
    held = read(path)
    for names in (["a", "b"], ["a", "a", "b"], ["a", "b", 3]):
        settings = {**held.manifest["predictor"]["settings"], "names": names}
        manifest = {**held.manifest, "predictor": {**held.manifest["predictor"], "settings": settings}}
        write(path, Archive(manifest, held.arrays))
        with pytest.raises(ArtifactError):
            fairfix.load(path)


def test_commands_say_the_same(call: Call, tmp_path: Path) -> None:
    """From a file and a configuration to predictions, and to an audit of these with copies."""
    people().to_csv(tmp_path / "people.csv", index=False)
    made, scored = str(tmp_path / "made.fairfix"), str(tmp_path / "scored.csv")
    asked = shlex.split("--method sensei --task multiclass --label job --protected sex --id id")
    more = shlex.split(f"--solver regularizer --group used --features skill --set rho=1 -o {made}")
    call.ran("repair", str(tmp_path / "people.csv"), *asked, *more, "--format", "json")
    assert call("predict", made, str(tmp_path / "people.csv"), "-o", scored)[0] == 0
    assert "clerk, nurse, poet" in call("inspect", made)[1]
    swapped = people().assign(sex=people()["sex"].map({"f": "m", "m": "f"}))
    copies = fairfix.load(made).predict(swapped)[["id", "prediction"]]
    copies.to_csv(tmp_path / "copies.csv", index=False)
    audit = ["--task", "multiclass", "--label", "job", "--prediction", "prediction", "--protected", "sex"]
    audit += ["--id", "id", "--similar", str(tmp_path / "copies.csv"), "--format", "json"]
    told = json.loads(call("audit", scored, *audit)[1])
    (one,) = (
        c for c in told["attributes"][0]["comparisons"] if c["id"] == "decision_flips.under_counterfactuals"
    )
    assert one["value"] == pytest.approx(flipped_share(fairfix.load(made), people()), abs=1e-9)


def test_a_guarantee_is_of_the_classes_that_change_with_the_group() -> None:
    """By construction where the rule sees no group; else by Clopper and Pearson on rows that the fit has not seen."""
    blind = repaired(guarantee=0.95, slack=0.05).to_dict()["guarantee"]
    assert (blind["way"], blind["bound"], blind["holds"]) == ("construction", 0.0, True)
    given = {"group": "used", "solver": "regularizer", "rho": 0.0, "slack": 0.9, "guarantee": 0.95}
    result = repaired(**given)
    told, held = result.to_dict()["guarantee"], result.outcome.split.holdout
    rows = people().iloc[held]
    flipped = [result.repaired.predict(rows.assign(sex=sex))["prediction"].to_numpy() for sex in "fm"]
    changed = int((flipped[0] != flipped[1]).sum())
    assert changed > 0
    assert told["way"] == "held-out"
    assert told["measured"] == pytest.approx(changed / held.size)
    assert told["bound"] == pytest.approx(beta.ppf(0.95, changed + 1, held.size - changed))
    tight = repaired(**{**given, "slack": 0.001}).to_dict()["guarantee"]
    assert not tight["holds"]


@pytest.mark.slow
@pytest.mark.parametrize("rho", [0.0, "auto"])
def test_people_without_a_group_count_among_those_whose_class_changes(rho: float | str) -> None:
    """Where the rule looks at the group, and most of those without one have a class of their own."""
    rng = np.random.default_rng(5)
    gone = rng.random(800) < 0.3
    data = people().assign(sex=people()["sex"].where(~gone))
    data.loc[gone & (rng.random(800) < 0.8), "job"] = "poet"
    given = {"solver": "regularizer", "group": "used", "missing": "sex=group", "slack": 0.6}
    result = repaired(data, rho=rho, **given)
    held = data.iloc[result.outcome.split.holdout]
    ways = [held, *(held.assign(sex=level) for level in "fm")]
    classes = np.stack([result.repaired.predict(one)["prediction"].to_numpy() for one in ways])
    truth = (classes != classes[0]).any(axis=0)
    assert row(result, "decision_flips.under_flips")["after"]["value"] == pytest.approx(truth.mean())
    if not rho:
        assert truth[held["sex"].isna()].mean() > 0.5
        told = repaired(data, rho=rho, **{**given, "slack": 0.9}, guarantee=0.95).to_dict()["guarantee"]
        assert told["measured"] > 0.2
        return
    (note,) = (one for one in texts_of(result.to_dict(), "note") if "smallest of the grid" in one)
    assert float(note.split("at most ")[1].split()[0]) >= truth.mean() - 0.05


def test_a_check_of_what_classes_lack_is_refused_before_the_fit() -> None:
    """And what there is of a repair is named, with the changes that its model is asked for."""
    with pytest.raises(UsageError, match=r"use base_rate.*decision_flips\.under_flips or decision_flips"):
        repaired(check=["ks<=0.1"], solver="regularizer", learner="network(hidden=1000)")
    with pytest.raises(UsageError, match=r"under_everybody or"):
        repaired(check=["ks<=0.1"], features=["skill", "role"], similar="role=wife,husband")


def test_people_of_a_group_that_the_fit_has_not_seen_get_what_was_said_of_them() -> None:
    """An error that names group and ways out, nothing, or what a row of no group gets; a blind rule asks nobody."""
    made = repaired(solver="regularizer", group="used", rho=1).repaired
    rows = people().assign(sex=np.where(np.arange(800) < 3, "x", people()["sex"]))
    with pytest.raises(
        DataError, match=r"group 'x' of 'sex' was not in the training rows \(3 of the 800 rows"
    ):
        made.predict(rows)
    with pytest.raises(DataError, match="'x'"):
        made.predict(rows.iloc[0].to_dict())
    out, plain = made.predict(rows, unseen="abstain"), made.predict(people())
    assert out["prediction"].isna().tolist() == [True] * 3 + [False] * 797
    assert out.filter(like="p_").isna().all(axis=1).sum() == 3
    pd.testing.assert_frame_equal(out.iloc[3:], plain.iloc[3:])
    base = made.predict(rows, unseen="original")
    assert base["prediction"].notna().all()
    assert np.abs(base.filter(like="p_").iloc[:3] - plain.filter(like="p_").iloc[:3]).max().max() > 0.01
    assert repaired().repaired.predict(rows)["prediction"].notna().all()
