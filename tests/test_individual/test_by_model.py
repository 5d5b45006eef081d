"""Flips and what they show: changed copies of rows, the numbers by hand, the audit with a model and from scores."""

from __future__ import annotations

import json
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from fairfix.cli import run
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.scan import read_table
from fairfix.data.table import Table
from fairfix.errors import ArtifactError, ColumnError, DataError, UsageError
from fairfix.individual.by_model import (
    Judge,
    compared,
    of_predictor,
    of_scores,
    under_comparable,
    within_radius,
)
from fairfix.individual.flips import (
    Flip,
    changes_of,
    check_comparable,
    flipped,
    protected_flips,
    proxies,
)
from fairfix.methods.logloss import LogLoss
from fairfix.methods.problem import RepairProblem
from fairfix.models.scored_source import Averaged, RowChange, read_changes
from fairfix.models.user_file import file_hash
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from tests.data import couples

PAIR = (("role", ("husband", "wife")),)


def under_flips(table: Table, columns: tuple[str, ...], judge: Judge, confidence: float) -> Any:
    """Return what joint flips of protected columns do."""
    return compared(judge, confidence, table, protected_flips(table, columns), "under_flips")


def table_of(data: pd.DataFrame, **more: Any) -> Table:
    """Return the validated table, protected columns among the features too."""
    columns = ColumnRoles(("sex", "race"), label="label", **more)
    return read_table(data, DataSpec(columns), None, {"sex": pa.string(), "race": pa.string()})


# ---------------------------------------------------------------------- flips


def test_a_flip_changes_what_it_names_and_nothing_else() -> None:
    """Groups and feature columns get the level, all other columns keep their bytes, the table itself is untouched."""
    table = table_of(couples(many=900))
    other = flipped(table, Flip({"sex": "m"}))

    assert other.groups(["sex"]).names == ("m",)
    assert set(other.features["sex"].to_pylist()) == {"m"}
    np.testing.assert_array_equal(other.groups(["race"]).codes, table.groups(["race"]).codes)
    for name in ("race", "role", "age"):
        assert other.features[name].equals(table.features[name])
    assert table.groups(["sex"]).names == ("f", "m")


def test_comparable_values_change_only_where_they_are() -> None:
    """Singles stay single, unless everybody is changed."""
    table = table_of(couples(many=900))
    some = flipped(table, Flip({}, {"role": "wife"}), PAIR)
    everybody = flipped(table, Flip({}, {"role": "wife"}, everybody=True), PAIR)
    before, after = (np.array(t.features["role"].to_pylist()) for t in (table, some))

    spouse = np.isin(before, ["husband", "wife"])
    assert (after[spouse] == "wife").all()
    np.testing.assert_array_equal(after[~spouse], before[~spouse])
    assert set(everybody.features["role"].to_pylist()) == {"wife"}


def test_flips_are_all_levels_jointly() -> None:
    """Two columns and a pair of values make their product; a missing level is no target."""
    data = couples(many=900)
    data.loc[:9, "race"] = None
    columns = ColumnRoles(("sex", "race"), label="label")
    table = read_table(data, DataSpec(columns, missing_group="group"), None)

    assert {str(flip) for flip in protected_flips(table, ("sex", "race"))} == {
        f"sex={s}, race={r}" for s, r in product("fm", "abc")
    }
    assert len(protected_flips(table, ("sex",), PAIR)) == 4
    data["race"] = [f"r{i % 200}" for i in range(len(data))]
    with pytest.raises(UsageError, match="sex x race has 400 combinations"):
        protected_flips(table_of(data), ("sex", "race"))


def test_people_without_a_group_count_where_they_would_get_something_else_with_one() -> None:
    """A score that favours whoever has no race: all of these are decided otherwise, and nobody else is."""
    data = couples(many=900)
    data.loc[::9, "race"] = None
    columns = ColumnRoles(("race",), label="label")
    table = read_table(data, DataSpec(columns, missing_group="group"), ["age"], {"race": pa.string()})

    def score(rows: Table) -> Any:
        cells = np.array([cell[0] for cell in rows.rows.cells])[rows.rows.cell]
        return np.where(cells == "(missing)", 0.9, 0.2)

    found = {one.id: one.value for one in under_flips(table, ("race",), Judge(score, 0.5), 0.95)}
    assert found["decision_flips.under_flips"] == pytest.approx(1 / 9)
    assert found["score_change.under_flips"] == pytest.approx(0.7 / 9)
    assert found["score_effect.under_flips"] == 0.0


@pytest.mark.parametrize(
    ("comparable", "error", "message"),
    [
        ((("sex", ("f", "m")),), UsageError, "protected column 'sex' are comparable already"),
        ((("job", ("a", "b")),), ColumnError, "no feature column 'job'"),
        ((("role", ("wife", "boss")),), UsageError, "no row has the value 'boss' in column 'role'; it has"),
    ],
)
def test_values_that_are_not_there_are_named(comparable: Any, error: type[Exception], message: str) -> None:
    """Column, value and what there is."""
    with pytest.raises(error, match=message):
        check_comparable(table_of(couples(many=900)), comparable)


def test_the_scan_proposes_values_that_tell_the_group() -> None:
    """Husband and wife in one column; nothing of columns that tell little."""
    assert [*map(str, proxies(table_of(couples(many=900)), ("sex", "race")))] == [
        "role=husband,wife (they predict sex)"
    ]
    mixed = couples(many=900)
    mixed["role"] = np.roll(mixed["role"], 1)
    sexes = np.random.default_rng(0).permutation(mixed["sex"])
    assert not list(proxies(table_of(mixed.assign(sex=sexes)), ("sex",)))


# ---------------------------------------------------------------------- what flips do


def score_of(data: pd.DataFrame) -> np.ndarray:
    """Return a score that hangs on sex, race and role."""
    z = (
        0.05 * (data["age"] - 40)
        + 0.6 * (data["sex"] == "m")
        + 0.3 * (data["race"] == "a")
        + 0.4 * (data["role"] == "husband")
        - 0.3
    )
    return np.asarray(1 / (1 + np.exp(-z)))


JUDGE = Judge(lambda table: score_of(table.features.to_pandas()), 0.5)


def test_the_numbers_are_those_by_hand() -> None:
    """Every comparison of joint flips, by brute force over the six settings; comparable values too."""
    data = couples(many=900)
    found = {c.id: c for c in under_flips(table_of(data), ("sex", "race"), JUDGE, 0.95)}
    p = np.stack([score_of(data.assign(sex=s, race=r)) for s, r in product("fm", "abc")])
    logit = np.log(p / (1 - p))
    own = np.log(score_of(data) / (1 - score_of(data)))

    assert found["decision_flips.under_flips"].value == pytest.approx(
        np.mean((p >= 0.5).any(0) & (p < 0.5).any(0))
    )
    assert found["score_change.under_flips"].value == pytest.approx(np.mean(p.max(0) - p.min(0)))
    assert found["score_effect.under_flips"].value == pytest.approx(np.ptp(p.mean(1)))
    assert found["transport_cost.under_flips"].value == pytest.approx(np.mean(((logit - own) ** 2).max(0)))
    assert all(value.low <= value.value <= value.high for value in found.values())
    drawn = Judge(JUDGE.score, 0.5, chance=True)  # with one draw per person
    found = {c.id: c for c in under_flips(table_of(data), ("sex", "race"), drawn, 0.95)}
    assert found["decision_flips.under_flips"].value == pytest.approx(np.mean(p.max(0) - p.min(0)))
    p = np.stack([score_of(data.assign(role=r)) for r in ("husband", "wife")])
    change = (p >= 0.5).any(0) & (p < 0.5).any(0)
    spouse = data["role"].isin(["husband", "wife"])
    found = {c.id: c for c in under_comparable(table_of(data), PAIR, partial(compared, JUDGE, 0.95))}
    assert found["decision_flips.under_comparable"].value == pytest.approx(change[spouse].mean())
    assert found["decision_flips.under_everybody"].value == pytest.approx(change.mean())


def test_comparable_values_that_no_row_has_together_are_undefined() -> None:
    data = couples(many=300)
    data["job"] = np.where(data["role"] == "child", np.where(data.index % 2, "clerk", "cook"), "none")
    both = (*PAIR, ("job", ("clerk", "cook")))
    first, *others = under_comparable(table_of(data), both, partial(compared, JUDGE, 0.95))
    assert (first.id, first.value) == ("decision_flips.under_comparable", None)
    assert {one.id.partition(".")[2] for one in others} == {"under_everybody"}


def test_weights_are_shares() -> None:
    """A row of weight two is the row twice."""
    data = couples(many=300)
    data["weight"] = 1.0 + np.arange(300) % 2
    twice = data.loc[np.repeat(np.arange(300), data["weight"].astype(int))].reset_index(drop=True)
    one, two = (
        {c.id: c.value for c in under_flips(table, ("sex",), JUDGE, 0.95)}
        for table in (table_of(data, weight="weight"), table_of(twice.drop(columns="weight")))
    )

    assert one == pytest.approx(two)


def test_the_radius_adds_moves_to_near_rows() -> None:
    """At radius 0 it is the cost of flips, of the rows asked; more radius costs more; the plan of an LP is as dear."""
    from scipy.optimize import linprog

    data = couples(many=60)
    table = table_of(data)
    found = [within_radius(table, ("sex",), JUDGE, r, 0.95) for r in (0.0, 0.05, 0.5)]
    flips = {c.id: c.value for c in under_flips(table, ("sex",), JUDGE, 0.95)}
    p = np.stack([score_of(data), *(score_of(data.assign(sex=s)) for s in "fm")])
    logit = np.log(p / (1 - p))
    scaled = (data["age"] - data["age"].mean()) / data["age"].std(ddof=0)
    role = pd.get_dummies(data[["role", "race"]]).to_numpy(float) / np.sqrt(2)
    X = np.column_stack([scaled, role])
    away = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    gain = np.max((logit[:, None, :] - logit[0][None, :, None]) ** 2, axis=0)
    near = away <= np.sort(away, axis=1)[:, [19]] + 1e-12
    n = len(data)
    plan = linprog(
        -np.where(near, gain, 0.0).ravel() / n,
        A_ub=away.ravel()[None] / n,
        b_ub=[0.05],
        A_eq=np.kron(np.eye(n), np.ones(n)),
        b_eq=np.ones(n),
        bounds=[(0, None if ok else 0) for ok in near.ravel()],
    )

    assert found[0].value == pytest.approx(flips["transport_cost.under_flips"], rel=1e-6)
    assert found[1].value == pytest.approx(-plan.fun, rel=1e-6)
    assert found[0].value < found[1].value < found[2].value
    assert all(value.low <= value.value <= value.high for value in found)


def test_what_does_not_look_is_exactly_constant() -> None:
    """A judge that looks at other columns alone has changes of 0 with no interval, and is not even asked."""
    calls: list[int] = []

    def score(table: Table) -> np.ndarray:
        calls.append(1)
        return np.full(len(table), 0.3)

    blind = Judge(score, 0.5, looks_at=frozenset({"age"}), blind="it does not look")
    found = list(under_flips(table_of(couples(many=900)), ("sex",), blind, 0.95))

    assert len(calls) == 1
    assert all((c.value, c.high, c.reason) == (0, 0, "it does not look") for c in found)


def test_predictors_that_make_their_own_scores_are_asked() -> None:
    """Of fair probabilities by groups the flips show the groups; of somebody else's score nothing is said."""
    data = couples(many=2000)
    table = table_of(data)
    predictor = LogLoss().fit(RepairProblem(table, features=("age", "role")), rng=np.random.default_rng(0))
    found = of_predictor(table, predictor, (), 0.95)
    p = np.stack(
        [predictor.predict(flipped(table, flip)) for flip in protected_flips(table, ("sex", "race"))]
    )
    joint = {c.id: c.value for c in found["sex x race"]}

    assert set(found) == {"sex", "race", "sex x race"}
    assert joint["decision_flips.under_flips"] == pytest.approx(np.mean(np.ptp(p, axis=0)))
    scored = read_table(
        data.assign(score=score_of(data)), DataSpec(ColumnRoles(("sex",), label="label", score="score")), None
    )
    own = LogLoss().fit(RepairProblem(scored), rng=np.random.default_rng(0))
    assert of_predictor(scored, own, (), 0.95) == {}


# ---------------------------------------------------------------------- averages


class _Model:
    """A model of the score above."""

    feature_names = ("sex", "race", "role", "age")

    def score(self, data: pd.DataFrame) -> np.ndarray:
        """Return the score."""
        return score_of(data)


def test_the_mean_over_flips_is_constant_under_them() -> None:
    """By shares of the groups and of the comparable values, by hand; the same for every flip of a row."""
    data = couples(many=900)
    changes = changes_of(table_of(data), ("sex", "race"), PAIR)
    averaged = Averaged(_Model(), changes)
    shares = data.groupby(["sex", "race"]).size() / len(data)
    husbands = (data["role"] == "husband").sum() / data["role"].isin(["husband", "wife"]).sum()
    spouse = data["role"].isin(["husband", "wife"])
    expected = np.zeros(len(data))
    for (s, r), share in shares.items():
        for role, part in (("husband", husbands), ("wife", 1 - husbands)):
            changed = data.assign(sex=s, race=r, role=data["role"].where(~spouse, role))
            expected += share * part * score_of(changed)

    np.testing.assert_allclose(averaged.score(data), expected, atol=1e-12)
    swapped = data.assign(sex=data["sex"].map({"f": "m", "m": "f"}), race="b")
    assert averaged.score(swapped).tobytes() == averaged.score(data).tobytes()
    again = Averaged(averaged.model, read_changes(json.loads(json.dumps(averaged.state()))))
    assert again.score(data).tobytes() == averaged.score(data).tobytes()


@pytest.mark.parametrize(
    "odd",
    [
        {"share": 0.5},
        {"share": "1"},
        {"everybody": {"sex": ["f"]}},
        {"among": {"role": ["x", [{}]]}},
        {"among": None},
    ],
)
def test_a_damaged_list_of_changes_is_refused(odd: dict[str, Any]) -> None:
    """Shares sum to one, and values are entries of a row."""
    whole = Averaged(_Model(), (RowChange(1.0, {"sex": "f"}, {}),)).state()
    with pytest.raises(ArtifactError, match=r"sum to 1|averaged over"):
        read_changes([{**whole[0], **odd}])


# ---------------------------------------------------------------------- in a shell


@pytest.fixture(scope="module")
def modelled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Return a data file and the options of a model that sees the groups."""
    data, folder = couples(many=600), tmp_path_factory.mktemp("modelled")
    names = ["sex", "race", "role", "age"]
    encoder = make_column_transformer((OneHotEncoder(), names[:3]), remainder="passthrough")
    model = make_pipeline(encoder, LogisticRegression(max_iter=2000)).fit(data[names], data["label"])
    joblib.dump(model, folder / "model.joblib")
    data.to_parquet(folder / "data.parquet")
    return folder / "data.parquet", [
        *["--model", str(folder / "model.joblib"), "--trust-model", file_hash(folder / "model.joblib")],
        *["--protected", "sex,race", "--config", "none"],
    ]


def test_an_audit_with_a_model_gates_on_flips(
    modelled: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """The joint flips, the comparable values and the exit status; the proposal is said and not used."""
    path, options = modelled
    pair = ["--similar", "role=husband,wife", "--similar", "near(radius=0.01)"]
    checks = ["--check", "decision_flips<=0.01", "--check", "decision_flips.under_comparable<=0.9"]
    status = run(["audit", str(path), *options, *pair, *checks, "--format", "json"])
    result = json.loads(capsys.readouterr().out)
    verdicts = {check["id"]: check["verdict"] for check in result["checks"]}

    assert status == 1
    fails = {f"decision_flips.under_flips[{one}]": "fail" for one in ("sex", "race", "sex x race")}
    assert verdicts == {**fails, "decision_flips.under_comparable[sex x race]": "pass"}
    assert run(["audit", str(path), *options, "--similar", "flips"]) == 0
    assert "not used: role=husband,wife (they predict sex)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--similar", "role=husband,boss"], "no row has the value 'boss' in column 'role'"),
        (["--similar", "near(radius=0.1), near(radius=0.2)"], "an audit takes one radius"),
        (["--similar", "learned"], "learned directions"),
        (["--check", "decision_flips<=0.1"], "add --similar flips"),
        (["--similar", "flips", "--check", "decision_flips.under_comparable<=0.1"], "name comparable values"),
        (["--similar", "flips", "--check", "matched_effect<=0.1"], "add --similar flips"),
    ],
)
def test_what_cannot_be_asked_is_said(
    modelled: tuple[Path, list[str]], more: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2 with the remedy."""
    path, options = modelled

    assert run(["audit", str(path), *options, *more]) == 2
    assert message in capsys.readouterr().err


def test_effects_need_a_score() -> None:
    """Without a score and a decision there is nothing to look at."""
    with pytest.raises(DataError, match="no score and no decision"):
        of_scores(table_of(couples(many=900)), 0.95)
