"""SenSeI from the table to the artifact: what is constant under flips, how exactly, and what is refused."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.scan import read_table
from fairfix.data.table import Table
from fairfix.errors import ColumnError, DataError, UsageError
from fairfix.individual.flips import Flip, flipped, protected_flips
from fairfix.methods.problem import RepairProblem
from fairfix.methods.sensei import Sensei, regularized
from fairfix.methods.sensei.regularized import Linear
from fairfix.methods.sensei.sensitive_subspace import distances_of_means
from fairfix.models.members import LinearMember
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.repaired import Repaired
from scipy import stats
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from tests.conftest import Call
from tests.data import couples

NAMES = ("age", "role")
PAIR = "role=husband,wife"


def table_of(data: pd.DataFrame, protected: tuple[str, ...] = ("sex", "race")) -> Table:
    """Return the validated table with its features."""
    return read_table(data, DataSpec(ColumnRoles(protected, label="label")), NAMES)


def fit(repairer: Sensei, table: Table, **more: Any) -> RepairedPredictor:
    """Fit on features."""
    return repairer.fit(RepairProblem(table, features=NAMES, **more), rng=np.random.default_rng(0))


def changes(predictor: RepairedPredictor, table: Table, comparable: Any = ()) -> np.ndarray:
    """Return predictions under all flips, shape (K, n)."""
    flips = protected_flips(table, table.data_spec.columns.protected, comparable)
    return np.stack([predictor.predict(flipped(table, flip, comparable)) for flip in flips])


def share(values: np.ndarray) -> float:
    """Return the share of rows whose decision changes."""
    decided = values >= 0.5
    return float(np.mean(decided.any(0) & ~decided.all(0)))


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["linear", "trees"])
def test_merging_is_exactly_constant(learner: str) -> None:
    """To the bit under flips of protected columns and of comparable values, without the protected columns at all."""
    table, repairer = table_of(couples()), Sensei(similar=PAIR, learner=learner)
    predictor = fit(repairer, table)
    values = changes(predictor, table, repairer.comparable_values)

    assert (values == values[0]).all()
    assert not predictor.needs_protected
    plain = fit(Sensei(learner=learner), table)
    assert np.abs(np.diff(changes(plain, table, repairer.comparable_values), axis=0)).max() > 1e-3


def test_an_infinite_weight_is_exact() -> None:
    """A linear model's score does not change under any flip, to the bit: it may lie at the threshold."""
    table, method = table_of(couples()), Sensei(solver="regularizer", rho=np.inf, similar=PAIR)
    values = changes(fit(method, table, protected_as_feature=True), table, method.comparable_values)

    assert (values == values[0]).all()
    assert values[0].std() > 0.1


def test_the_weight_is_chosen_at_the_threshold_in_force() -> None:
    """Scores near the threshold differ from those near 0.5, and so do the decisions that change."""
    data, found = couples(many=4000), {}
    for cut in (0.5, 0.97):
        data_spec = DataSpec(ColumnRoles(("sex", "race"), label="label"), thresholds=(cut,))
        table = read_table(data, data_spec, NAMES)
        predictor = fit(Sensei(solver="regularizer", slack=0.03), table, protected_as_feature=True)
        (note,) = (n for n in predictor.trace.notes if n.startswith("rho"))
        assert f"of decisions at {cut:g} change" in note
        found[cut] = float(note.split()[1])

    assert found[0.97] < found[0.5]


def test_few_rows_promise_nothing_that_they_cannot_show() -> None:
    """Of 60 rows none shows that at most 1 % changes: the model that is constant by its form ships."""
    table = table_of(couples(many=60))
    predictor = fit(Sensei(solver="regularizer"), table, protected_as_feature=True)
    values = changes(predictor, table)

    assert any(note.startswith("rho inf: no smaller one is shown") for note in predictor.trace.notes)
    assert (values == values[0]).all()


@pytest.mark.slow
def test_a_network_stops_before_it_knows_its_rows_by_heart() -> None:
    """Labels that nothing tells: the log loss of new rows is hardly above that of a constant; l2 takes effect."""
    label, new = np.random.default_rng(8).integers(0, 2, 3000), table_of(couples(seed=1, many=3000))
    excess = []
    for seed in range(4):  # what one fit ends at hangs on the 30 rows that are set aside
        drawn = np.random.default_rng(seed + 7).integers(0, 2, 150)
        data = table_of(couples(seed=3 * seed, many=150).assign(label=drawn))
        plain = fit(
            Sensei(solver="regularizer", learner="network(l2=1e-3)", rho=0.0), data, protected_as_feature=True
        )
        p = plain.predict(new)
        excess.append(-np.mean(np.where(label == 1, np.log(p), np.log1p(-p))) - np.log(2))
        assert plain.trace.converged
    strong = fit(
        Sensei(solver="regularizer", learner="network(l2=10.0)", rho=0.0), data, protected_as_feature=True
    )

    assert np.mean(excess) < 0.03
    assert np.ptp(strong.predict(new)) < 0.05


@pytest.mark.parametrize("slack", [0.2, 0.05, 0.0])
def test_the_weight_is_the_smallest_that_holds_the_slack(slack: float) -> None:
    """The note names it with what the shipped model changes at most, which new rows do not exceed."""
    table = table_of(couples(many=6000))
    predictor = fit(Sensei(solver="regularizer", slack=slack), table, protected_as_feature=True)
    (note,) = (n for n in predictor.trace.notes if n.startswith("rho"))
    new = table_of(couples(seed=1, many=4000))
    rho = float(note.split()[1].rstrip(":"))
    less = fit(Sensei(solver="regularizer", rho=rho / 3), table, protected_as_feature=True)

    most = 0.0 if rho == np.inf else float(note.split("at most ")[1].split()[0])
    assert share(changes(predictor, new)) <= most <= slack
    assert (rho == np.inf) == (slack == 0.0)  # no number of rows shows that none changes
    if rho > 0.1:
        assert share(changes(less, new)) > most - 0.02


def test_what_is_said_of_flips_is_the_limit_of_rows_that_the_shipped_model_has_not_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The measured share is that of the shipped model on the rows set aside, a fifth of all that are not in the fit.

    The limit is Clopper and Pearson's, one-sided, with the 5 % shared by the weights of the grid.
    """
    seen: list[tuple[int, Any]] = []
    fitted, judge = Linear.member, regularized.share_that_changes

    def fitting(self: Linear, data: Any, *more: Any) -> Any:
        seen.append((len(data.y), None))
        return fitted(self, data, *more)

    def judging(member: Any, data: Any, rows: Any, *more: Any) -> Any:
        seen.append((0, rows))
        return judge(member, data, rows, *more)

    monkeypatch.setattr(Linear, "member", fitting)
    monkeypatch.setattr(regularized, "share_that_changes", judging)
    table = table_of(couples(many=3000))
    predictor = fit(Sensei(solver="regularizer", slack=0.1), table, protected_as_feature=True)
    (many, _), (_, rows) = seen[-2:]
    told = {one.name: one.value for one in predictor.trace.quantities}
    k = round(told["flips measured"] * rows.size)

    assert rows.size == 3000 - many
    assert 0.1 < rows.size / 3000 < 0.3
    assert 0 < told["flips measured"] == pytest.approx(share(changes(predictor, table.take(rows))), abs=1e-12)
    limit = stats.beta.ppf(1 - 0.05 / len(regularized.GRID), k + 1, rows.size - k)
    assert told["flips at most"] == pytest.approx(limit, rel=1e-6)


def to_overall(one: RepairedPredictor, table: Table) -> float:
    """Return how far a rate of a group is from everybody's."""
    decided, y, codes = one.predict(table), np.asarray(table.rows.label), table.groups().codes
    return max(
        abs(decided[(codes == k) & (y == label)].mean() - decided[y == label].mean())
        for k in np.unique(codes)
        for label in (0, 1)
    )


@pytest.mark.parametrize("slack", [0.0, 0.02])
def test_equal_rates_hold_where_many_rows_are_equal(slack: float, tmp_path: Path) -> None:
    """Categories alone: the rows at the border are drawn, by the saved artifact as well, and the note has the gap."""
    table = table_of(couples(many=3000).assign(age=lambda d: d["age"].round(-1)), ("sex",))
    predictor = fit(Sensei(solver="equal-rates", slack=slack), table)
    settings, arrays = predictor.state()
    again = type(predictor).from_state(json.loads(json.dumps(settings)), arrays)
    gap = to_overall(predictor, table)

    assert gap <= slack + 1e-6
    assert predictor.trace.converged
    assert predictor.randomized
    assert f"are within {gap:.4f} of the overall rates, as the rule decides the training rows" in " ".join(
        predictor.trace.notes
    )
    np.testing.assert_array_equal(again.predict(table), predictor.predict(table))


def test_equal_rates_are_of_every_group_of_every_attribute_by_weight() -> None:
    """No rate of any group is farther from everybody's than the slack, and a slack that is allowed is made use of."""
    data = couples(many=2000).assign(w=lambda d: 1.0 + 2.0 * (d["age"] > 45))
    data["race"] = data["race"].map({"a": "c", "b": "b", "c": "a"})  # the last is farthest off
    data["age"] += 10.0 * (data["race"] == "c")
    data["country"] = "x"  # of one group, which is everybody
    data_spec = DataSpec(ColumnRoles(("sex", "race", "country"), label="label", weight="w"))
    table, right = read_table(data, data_spec, NAMES), []
    for slack in (0.0, 0.05):
        predictor = fit(Sensei(solver="equal-rates", slack=slack), table)
        told = {one.name: one.value for one in predictor.trace.quantities}
        data["p"] = predictor.predict(table)
        gap = 0.0
        for _, some in data.groupby("label"):
            everybody = np.average(some["p"], weights=some["w"])
            for name in ("sex", "race"):
                each = [np.average(part["p"], weights=part["w"]) for _, part in some.groupby(name)]
                gap = max(gap, float(np.abs(np.array(each) - everybody).max()))
        right.append(told["balanced accuracy"])

        assert gap == pytest.approx(told["gap"], abs=1e-9)
        assert gap <= slack + 1e-6

    assert right[1] > right[0] + 0.01


@pytest.mark.slow(nightly=True)
def test_equal_rates_that_reward_what_tells_the_group_raise_the_alarm() -> None:
    """Undeclared, the pair is what the rule hangs on; declared, there is nothing to hang on."""
    data = couples(many=3000)
    data["age"] += 12.0 * (data["sex"] == "m")
    chance = 1 / (1 + np.exp(-0.15 * (data["age"] - 48)))
    data["label"] = (np.random.default_rng(3).random(3000) < chance).astype(int)
    table = table_of(data, ("sex",))
    free = fit(Sensei(solver="equal-rates", learner="trees", slack=0.1), table)
    declared = fit(Sensei(solver="equal-rates", learner="trees", slack=0.1, similar=PAIR), table)

    assert any(note.startswith("ALARM: equal rates are reached through role") for note in free.trace.notes)
    assert not any("ALARM" in note for note in declared.trace.notes)
    values = changes(declared, table, (("role", ("husband", "wife")),))
    assert (values == values[0]).all()


def test_the_alarm_compares_with_the_plain_model_at_the_threshold_in_force() -> None:
    """What decisions of the plain model hang on is its share at that threshold, by weight; at 0.5 it is another."""
    data = couples(many=4000)
    data["age"] += 12.0 * (data["sex"] == "m")
    chance = 1 / (1 + np.exp(-0.15 * (data["age"] - 48)))
    data["label"] = (np.random.default_rng(3).random(4000) < chance).astype(int)
    data["w"] = 1.0 + 4.0 * (data["age"] > 60)
    table = read_table(
        data, DataSpec(ColumnRoles(("sex",), label="label", weight="w"), thresholds=(0.9,)), NAMES
    )
    predictor = fit(Sensei(solver="equal-rates", slack=0.05), table)
    (alarm,) = (note for note in predictor.trace.notes if note.startswith("ALARM"))
    pair = (("role", ("husband", "wife")),)
    rows = [flipped(table, Flip({}, {"role": role}, everybody=True), pair) for role in ("husband", "wife")]
    plain, rule = fit(Sensei(), table), predictor
    before, after = (
        float(np.average(np.abs(values[0] - values[1]), weights=table.weight))
        for values in (
            [1.0 * (plain.predict(one) >= 0.9) for one in rows],
            [rule.predict(one) for one in rows],
        )
    )

    assert f"{after:.1%} of decisions would change, compared with {before:.1%} for the plain model" in alarm


@pytest.mark.parametrize("directions", ["logistic", "means", "pooled"])
def test_learned_directions_are_projected_out_and_their_cost_is_told(directions: str) -> None:
    """Rows that differ along the directions alone have one score; the note names both accuracies."""
    table = table_of(couples(many=4000), ("sex",))
    predictor = fit(
        Sensei(solver="regularizer", rho=1.0, similar=f"learned(by={directions})"),
        table,
        protected_as_feature=True,
    )
    plain = fit(Sensei(solver="regularizer", rho=1.0), table, protected_as_feature=True)
    codes, y = table.groups().codes, np.asarray(table.rows.label)

    def between(one: RepairedPredictor) -> float:
        p = one.predict(table)
        logit = np.log(p / (1 - p))
        return max(
            abs(logit[(codes == 1) & (y == label)].mean() - logit[(codes == 0) & (y == label)].mean())
            for label in (0, 1)
        )

    assert any(note.startswith("directions that must not count cost ") for note in predictor.trace.notes)
    if directions == "means":
        assert between(predictor) < 1e-6
    if directions == "pooled":
        p = predictor.predict(table)
        about = np.column_stack([codes, y, np.ones(y.size)])
        assert abs(np.linalg.lstsq(about, np.log(p / (1 - p)))[0][0]) < 1e-9
        assert between(predictor) > 1e-3  # the labels by themselves are not made alike
    assert between(predictor) < between(plain)


def test_what_directions_cost_is_told_at_the_threshold_in_force() -> None:
    """Where the threshold is above all scores nobody is selected with the directions or without: they cost nothing."""
    found = []
    for cut in (0.5, 0.9999):
        table = read_table(
            couples(), DataSpec(ColumnRoles(("sex",), label="label"), thresholds=(cut,)), NAMES
        )
        method = Sensei(solver="regularizer", rho=1.0, similar="learned(by=means)")
        (note,) = (n for n in fit(method, table, protected_as_feature=True).trace.notes if "cost" in n)
        found.append([float(one) for one in note.split() if one[0] == "0"])

    assert found[0][0] < found[0][1]
    assert found[1][0] == found[1][1]


def test_the_share_of_decisions_that_change_is_by_weight() -> None:
    """Of four rows the two whose decision changes weigh as much as they weigh."""
    X = np.array([[-3.0, 0.0], [-0.5, 0.0], [-0.5, 1.0], [3.0, 1.0]])
    flips = [np.column_stack([X[:, 0], np.full(4, value)]) for value in (0.0, 1.0)]
    weight = np.array([1.0, 5.0, 1.0, 2.0])
    data = regularized.Training(
        X, np.zeros(4), weight, regularized.FlippedRows.of(X, flips), X[:0], np.ones(2)
    )
    member = LinearMember(np.array([[1.0], [1.0]]), np.zeros(1), "sigmoid")

    assert regularized.share_that_changes(member, data, np.arange(4), range(2), 0.5, 0.05)[
        0
    ] == pytest.approx(6 / 9)
    assert regularized.share_that_changes(member, data, np.arange(4), range(2), 0.99, 0.05)[0] == 0.0


def test_groups_lie_apart_by_a_regression_on_group_and_label() -> None:
    """Differences of rows are coefficients of dummies beside the label's; within one label, differences of means."""
    rng = np.random.default_rng(5)
    X, codes, weight = rng.normal(size=(200, 4)), rng.integers(3, size=200), rng.gamma(2.0, size=200)
    y = (rng.random(200) < 0.2 + 0.3 * codes).astype(float)
    about = np.column_stack([codes == 1, codes == 2, y == 0, y == 1]).astype(float)
    root = np.sqrt(weight)[:, None]
    want = np.linalg.lstsq(root * about, root * X)[0][:2]
    found = distances_of_means(X, codes, 3, weight, y)
    one = distances_of_means(X, codes, 3, np.where(y == 1, weight, 0.0), y)
    means = [
        np.average(X[(codes == k) & (y == 1)], axis=0, weights=weight[(codes == k) & (y == 1)])
        for k in range(3)
    ]

    assert found.shape == (3, 4)
    np.testing.assert_allclose(found.sum(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(found[1:] - found[0], want, atol=1e-12)
    np.testing.assert_allclose(one[1:] - one[0], np.array(means[1:]) - means[0], atol=1e-12)


def test_pairs_make_a_direction_that_does_not_count(tmp_path: Path, call: Call) -> None:
    """The score is constant along the mean difference of the pairs; what is no pair is refused."""
    data = couples(many=3000).assign(person=lambda d: [f"p{i}" for i in range(len(d))])
    data.to_parquet(tmp_path / "data.parquet")
    older = pd.DataFrame({"a": data["person"][:1000:2].to_numpy(), "b": data["person"][1:1000:2].to_numpy()})
    older.to_csv(tmp_path / "pairs.csv", index=False)
    columns = ColumnRoles(("sex",), label="label", id="person")
    table = read_table(data, DataSpec(columns), NAMES, {"person": pa.string()})
    pairs = tuple(older.itertuples(index=False, name=None))
    problem = RepairProblem(table, features=NAMES, pairs=pairs)
    predictor = Sensei(solver="regularizer").fit(problem, rng=np.random.default_rng(0))
    X = predictor.scorers[0].features.matrix(table)
    coef = predictor.state()[1]["model0.coef"][:, 0]

    assert abs(coef @ (X[1:1000:2] - X[:1000:2]).mean(axis=0)) < 1e-9
    assert np.abs(coef).max() > 0.1
    some = replace(problem, pairs=(*pairs[:3], ("p0", "nobody")))
    said = Sensei(solver="regularizer").fit(some, rng=np.random.default_rng(0)).trace.notes
    assert "3 of 4 comparable pairs have both people among the training rows" in said
    repair = (
        f"repair {tmp_path}/data.parquet --method sensei --protected sex --features age,role "
        f"-o {tmp_path}/a.fairfix --config none -q --similar {tmp_path}/pairs.csv"
    )
    asked = f"{repair} --id person --solver regularizer"
    assert call(asked)[0] == 0
    for words, said in (("--id person", "it needs --solver regularizer"), ("--solver regularizer", "--id")):
        status, _, err = call(f"{repair} {words}")
        assert status == 2
        assert said in err
    for pairs, said in (
        (older.assign(c=1), "of pairs (two columns of IDs)"),
        (older[:0], "has no pairs"),
        (older[:2].assign(b=older["a"]), "pair of 'p0' with itself"),
        (older[:2].assign(b=["p1", None]), "missing id"),
        (older[:2].assign(b="q"), "none of the 2 comparable pairs has both people"),
    ):
        pairs.to_csv(tmp_path / "pairs.csv", index=False)
        before = (tmp_path / "a.fairfix").read_bytes()
        status, _, err = call(asked)
        assert status == 2
        assert said in err
        assert (tmp_path / "a.fairfix").read_bytes() == before


def test_undeclared_pairs_are_proposed() -> None:
    """The note names them; declared ones are no proposal."""
    table = table_of(couples())

    assert any("not used: role=husband,wife" in note for note in fit(Sensei(), table).trace.notes)
    assert not fit(Sensei(similar=PAIR), table).trace.notes


def test_a_regression_can_be_merged() -> None:
    """Real labels too; the other solvers say that they are about 0/1 labels."""
    data = couples().assign(label=lambda d: d["age"] * 2.0)
    table = read_table(data, DataSpec(ColumnRoles(("sex",), label="label"), task="regression"), NAMES)
    predictor = fit(Sensei(similar=PAIR), table)

    assert np.corrcoef(predictor.predict(table), data["age"])[0, 1] > 0.99
    with pytest.raises(UsageError, match="`solver=regularizer` repairs classification"):
        fit(Sensei(solver="regularizer"), table)


def test_problems_that_do_not_fit_are_named() -> None:
    """Columns and values that are not there, and protected columns where none is used."""
    table = table_of(couples())
    with pytest.raises(UsageError, match="`group=used` conflicts with `solver=merge`"):
        Sensei(group="used")
    with pytest.raises(ColumnError, match="no feature column 'job'"):
        fit(Sensei(similar="job=a,b"), table)
    with pytest.raises(UsageError, match="is not learned from"):
        Sensei(similar=PAIR).fit(RepairProblem(table, features=("age",)), rng=np.random.default_rng(0))
    numbers = table_of(couples().assign(age=lambda d: d["age"].round().astype(int)))
    with pytest.raises(ColumnError, match="only texts can replace them"):
        fit(Sensei(similar="age=40,41"), numbers)
    one = couples()
    one.loc[one["race"] == "c", "label"] = 1
    with pytest.raises(DataError, match="has no rows of label 0 to fit on"):
        fit(Sensei(solver="equal-rates"), table_of(one))


# ---------------------------------------------------------------------- in a shell


def model_in(folder: Path, model: Any) -> str:
    """Return the options for a model that is saved in a folder."""
    joblib.dump(model, folder / "m.joblib")
    digest = hashlib.sha256((folder / "m.joblib").read_bytes()).hexdigest()
    return f"--model {folder}/m.joblib --trust-model sha256:{digest} --config none"


def test_in_a_shell(tmp_path: Path, call: Call) -> None:
    """Repair without the protected columns at predict time, predict rows that have none."""
    couples(many=3000).to_parquet(tmp_path / "data.parquet")
    couples(seed=1, many=50).drop(columns=["sex", "race", "label"]).to_csv(tmp_path / "new.csv", index=False)
    out, method = f"{tmp_path}/a.fairfix", f"--method sensei --protected sex,race --similar {PAIR}"
    status, said, _ = call(f"repair {tmp_path}/data.parquet {method} -o {out} --config none --format json")
    result = json.loads(said)
    flips = {row["name"]: row for row in result["proof"]["holdout"]["table"]}[
        "decision_flips.under_comparable [sex x race]"
    ]
    assert status == 0
    assert result["does_not_count"] == "any other sex and race; role husband or wife"
    assert call(f"predict {out} {tmp_path}/new.csv -o {tmp_path}/o.parquet --config none")[0] == 0

    assert Repaired.load(out).required == ("role", "age")
    assert flips["after"]["value"] == 0
    assert flips["before"]["value"] > 0.01
    assert pq.read_table(tmp_path / "o.parquet")["prediction"].null_count == 0


@pytest.mark.slow
def test_a_model_file_is_averaged(tmp_path: Path, call: Call) -> None:
    """Predictions of flipped rows are the same bits; before and after stand in the proof; no model, no averages."""
    data, names = couples(many=2500), ["sex", "race", "role", "age"]
    encoder = make_column_transformer((OneHotEncoder(), names[:3]), remainder="passthrough")
    pipeline = make_pipeline(encoder, LogisticRegression(max_iter=2000)).fit(data[names], data["label"])
    model = model_in(tmp_path, pipeline)
    for name, rows in {
        "data": data,
        "swap": data.assign(sex=data["sex"].map({"f": "m", "m": "f"}), race="c"),
        "bare": data.drop(columns=names[:2]),
        "less": data.drop(columns="role"),
    }.items():
        rows.to_parquet(tmp_path / f"{name}.parquet")
    out = f"{tmp_path}/a.fairfix"
    repair = f"repair {tmp_path}/data.parquet --method sensei --solver average --protected sex,race -o {out}"
    status, _, err = call(f"{repair} --config none")
    assert status == 2
    assert "give it with --model" in err
    status, said, _ = call(f"{repair} {model} --format json")
    assert status == 0
    table = {row["name"]: row for row in json.loads(said)["proof"]["holdout"]["table"]}
    predict = {
        name: call(f"predict {out} {tmp_path}/{name}.parquet -o {tmp_path}/{name}.out.parquet {model}")
        for name in ("data", "swap", "bare", "less")
    }
    assert [status for status, _, _ in predict.values()] == [0, 0, 0, 2]
    assert "no column 'role'" in predict["less"][2]
    assert not (tmp_path / "less.out.parquet").exists()
    found, swapped, bare = (
        pq.read_table(tmp_path / f"{name}.out.parquet")["prediction"].to_numpy().tobytes()
        for name in ("data", "swap", "bare")
    )

    levels = [data.assign(sex=a, race=b) for a in data["sex"].unique() for b in data["race"].unique()]
    decided = np.stack([pipeline.predict_proba(one[names])[:, 1] >= 0.5 for one in levels])
    flips = table["decision_flips.under_flips [sex x race]"]
    gap = table["selection_rate.difference.between_groups [sex]"]
    assert flips["before"]["value"] == pytest.approx(np.ptp(decided * 1.0, axis=0).mean(), abs=0.05)
    assert flips["after"]["value"] == 0
    assert found == swapped == bare
    assert Repaired.load(out).required == ("role", "age")
    assert table["log_loss"]["before"]["value"] < table["log_loss"]["after"]["value"]
    assert gap["after"]["value"] < gap["before"]["value"]


def test_a_model_of_real_values_is_averaged(tmp_path: Path, call: Call) -> None:
    """The mean over flips is that of the groups' own predictions, by their shares; no column of the group is needed."""
    data = couples(many=1500).assign(sex=lambda d: (d["sex"] == "f").astype(int))
    data["label"] = 2.0 * data["age"] + 3.0 * data["sex"]
    fitted = LinearRegression().fit(data[["sex", "age"]], data["label"])
    model, out, to = model_in(tmp_path, fitted), f"{tmp_path}/a.fairfix", f"{tmp_path}/o.parquet"
    data.to_parquet(tmp_path / "data.parquet")
    data[["age"]].to_parquet(tmp_path / "new.parquet")
    method = "--method sensei --solver average --protected sex --task regression --format json"
    status, said, _ = call(f"repair {tmp_path}/data.parquet {method} {model} -o {out}")
    assert status == 0
    assert call(f"predict {out} {tmp_path}/new.parquet -o {to} {model}")[0] == 0
    proof = {row["name"]: row for row in json.loads(said)["proof"]["fit"]["table"]}
    change, loss = proof["score_change.under_flips [sex]"], proof["square_loss.max [sex]"]

    shift = pq.read_table(to)["prediction"].to_numpy() - fitted.predict(data.assign(sex=0)[["sex", "age"]])
    assert np.ptp(shift) < 1e-9
    assert shift[0] == pytest.approx(3.0 * data["sex"].mean(), abs=0.2)  # by shares of the rows of the fit
    assert change["before"]["value"] == pytest.approx(3.0)
    assert change["after"]["value"] < 1e-9
    assert loss["before"]["value"] < 1e-9
    assert loss["after"]["value"] > 0.5


def test_a_model_that_sees_no_group_is_not_averaged(tmp_path: Path, call: Call) -> None:
    """It is constant as it is, and the message says so."""
    data = couples()
    model = model_in(tmp_path, LogisticRegression().fit(data[["age"]], data["label"]))
    data.to_parquet(tmp_path / "data.parquet")
    method = f"--method sensei --solver average --protected sex -o {tmp_path}/a.fairfix"
    status, _, err = call(f"repair {tmp_path}/data.parquet {method} {model}")

    assert status == 2
    assert "does not use sex" in err
    assert not (tmp_path / "a.fairfix").exists()
