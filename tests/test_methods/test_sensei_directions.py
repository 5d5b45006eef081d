"""Directions that do not count, for the network as for the linear model, and how a fit is weighed and sized."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from fairfix.cli import run
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.scan import read_table
from fairfix.errors import ConvergenceWarning, DataError, UsageError
from fairfix.methods.problem import RepairProblem
from fairfix.methods.sensei import Sensei
from fairfix.methods.sensei.sensitive_subspace import span_of
from fairfix.models.features import Features
from fairfix.models.repaired import Repaired

from tests.data import couples

NAMES = ("age", "role")


def problem_of(many: int = 1000, pairs: int = 0) -> RepairProblem:
    """Return couples, with pairs of neighbours."""
    data = couples(many=many).assign(person=lambda d: [f"p{i}" for i in range(len(d))])
    columns = ColumnRoles(("sex",), label="label", id="person")
    table = read_table(data, DataSpec(columns), NAMES, {"person": pa.string()})
    two = tuple((f"p{2 * i}", f"p{2 * i + 1}") for i in range(pairs))
    return RepairProblem(table, features=NAMES, pairs=two)


def fitted(problem: RepairProblem, **parameters: Any) -> Any:
    """Return the fit of a method, and its member and matrix."""
    predictor = Sensei(**parameters).fit(problem, rng=np.random.default_rng(0))
    (scorer,) = predictor.scorers
    return predictor, scorer.member, scorer.features.matrix(problem.table)


NETWORK: dict[str, Any] = {"solver": "regularizer", "learner": "network"}


def small(learner: str) -> dict[str, Any]:
    """Return what keeps a network small enough for a test."""
    return {"solver": "regularizer", "learner": learner}


@pytest.mark.parametrize("learner", ["linear", "network(hidden=6)"])
def test_the_shipped_score_does_not_change_along_given_directions(learner: str, tmp_path: Path) -> None:
    """Rows moved along them, as a user has them: a number in units of its own, a list, and a missing entry beside."""
    rng = np.random.default_rng(1)
    data = couples(many=300).assign(pay=lambda d: 1e4 * d["age"] + rng.normal(0, 1e5, len(d)))
    data["text"] = list(np.column_stack([data["age"] / 40, rng.normal(size=(300, 2))]))
    data.loc[::7, "pay"] = np.nan
    moves = pd.DataFrame({"pay": [2e5, 0.0], "text": [[0.0, 1.0, 0.0], [1.0, 0.0, -1.0]]})
    moved = data.assign(
        pay=data["pay"] - 3 * 2e5, text=list(np.stack(data["text"]) - 3 * np.array([0.0, 1, 0]) + [2, 0, -2])
    )
    for name, frame in {"data": data, "moves": moves, "moved": moved}.items():
        frame.to_parquet(tmp_path / f"{name}.parquet")
    line = ["repair", str(tmp_path / "data.parquet"), "--method", "sensei", "--protected", "sex", "-q"]
    line += ["--features", "age,pay,text", "--solver", "regularizer", "--set", "rho=0", "--config", "none"]
    line += ["-o", str(tmp_path / "a.fairfix"), "--learner", learner]
    assert run([*line, "--similar", str(tmp_path / "moves.parquet")]) == 0
    free = Repaired.load(tmp_path / "a.fairfix")
    assert run(line) == 0
    plain = Repaired.load(tmp_path / "a.fairfix")
    there = data["pay"].notna().to_numpy()

    def change(repaired: Repaired) -> Any:
        before, after = (np.asarray(repaired.predict(frame)["prediction"]) for frame in (data, moved))
        return np.abs(after - before)[there].max()

    assert change(plain) > 0.05
    assert change(free) < 1e-9


def test_directions_that_say_nothing_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A column that cannot move, a missing entry, a row of zeros and no row are named; nothing is written."""
    couples(many=200).to_parquet(tmp_path / "data.parquet")
    line = [
        "repair",
        str(tmp_path / "data.parquet"),
        *shlex.split("--method sensei --protected sex --config none"),
    ]
    line += ["--features", "age,role", "--solver", "regularizer", "-o", str(tmp_path / "a.fairfix"), "-q"]
    for text, message in (
        ("role\nwife\n", "column 'role' is not a feature of numbers"),
        ("pay\n1\n", "column 'pay', which the data lack"),
        ("age\nx\n", "'age'"),
        ("age,age2\n1,\n", "'age2'"),
        ("age\n1\n0\n", "direction 2 is 0 in every column"),
        ("age\n", "has no directions"),
    ):
        (tmp_path / "moves.csv").write_text(text)
        assert run([*line, "--similar", str(tmp_path / "moves.csv")]) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "a.fairfix").exists()


def test_directions_of_pairs_are_those_along_which_they_differ_most() -> None:
    """Of differences that go either way the mean is about 0, and the leading direction is theirs."""
    problem = problem_of(many=200, pairs=100)
    features = Features.learn(problem.table, NAMES)
    X = np.zeros((200, len(features.titles)))
    X[1::2, 0] = np.where(np.arange(100) % 2, 3.0, -3.0)
    X[1::2, 1] = 0.1
    one = span_of(problem, features, X, np.zeros(200), Sensei(**NETWORK, similar="p.csv(directions=1)"))
    mean = span_of(problem, features, X, np.zeros(200), Sensei(**NETWORK))

    assert abs(one[0, 0]) > 0.999
    np.testing.assert_allclose(mean[0, :2], [0.0, 0.1], atol=1e-12)
    with pytest.raises(DataError, match="span 2; ask for no more"):
        span_of(problem, features, X, np.zeros(200), Sensei(**NETWORK, similar="p.csv(directions=3)"))


def test_what_directions_need_is_said() -> None:
    """Steps and directions for a cost of steps along them."""
    with pytest.raises(UsageError, match="and the radius is 0"):
        Sensei(solver="regularizer", rho=1.0, similar="near(radius=0,cost=0.1)")
    with pytest.raises(UsageError, match="directions, and there are none"):
        fitted(problem_of(many=120), solver="regularizer", rho=1.0, similar="near(radius=0.1,cost=0.1)")


def test_the_cost_of_directions_goes_from_not_counting_to_counting_as_ever() -> None:
    """Along one direction the logit changes the more the more a step costs; and the objective is that of the metric."""
    problem = problem_of(many=300, pairs=60)
    given: dict[str, Any] = {"solver": "regularizer", "rho": 1.0, "learner": "linear(l2=0)"}
    _, free, X = fitted(replace(problem, pairs=()), **given, similar="near(radius=0.05)")
    span = span_of(
        problem, Features.learn(problem.table, NAMES), X, problem.table.rows.label, Sensei(**given)
    )
    unit = span[0] / np.linalg.norm(span[0])
    slopes = []
    for cost in (0.0, 1e-6, 0.01, 0.1, 1e6):
        predictor, member, _ = fitted(problem, **given, similar=f"near(radius=0.05,cost={cost})")
        slopes.append(abs(float(unit @ member.coef[:, 0])))
    reach = Features.learn(problem.table, NAMES).reach
    _, member, _ = fitted(problem, **given, similar="near(radius=0.05,cost=0.1)")
    w, y = member.coef[:, 0], problem.table.rows.label
    z = X @ w + member.intercept[0]
    regularizer = 0.05 * (w @ (reach * w) + (unit @ w) ** 2 / 0.1)
    predictor, _, _ = fitted(problem, **given, similar="near(radius=0.05,cost=0.1)")

    assert slopes[0] < 1e-9
    assert slopes == sorted(slopes)
    assert slopes[1] < 0.01 * slopes[-1]
    assert slopes[-1] == pytest.approx(abs(float(unit @ free.coef[:, 0])), rel=1e-3)
    assert predictor.trace.objective == pytest.approx(
        float(np.mean(np.logaddexp(0, z) - y * z)) + regularizer, rel=1e-6
    )


@pytest.mark.parametrize("learner", ["linear", "network(hidden=6)"])
def test_balanced_labels_weigh_alike(learner: str) -> None:
    """The mean score is about a half however rare the label is; without the balance it is the label's share."""
    data = couples(many=800)
    data = data[(data["label"] == 0) | (np.arange(len(data)) % 5 == 0)]
    table = read_table(data, DataSpec(ColumnRoles(("sex",), label="label")), NAMES)
    problem, y = RepairProblem(table, features=NAMES), np.asarray(table.rows.label)
    rules = [fitted(problem, **small(learner), rho=0.0, balance=one)[0] for one in ("none", "labels")]
    plain, even = (rule.predict(table) for rule in rules)
    weight = np.where(y == 1, 0.5 / y.mean(), 0.5 / (1 - y.mean()))

    assert y.mean() < 0.3
    assert plain.mean() == pytest.approx(y.mean(), abs=0.03)
    assert np.average(even, weights=weight) == pytest.approx(0.5, abs=0.03)
    assert "have equal weight" in " ".join(map(str, rules[1].trace.notes))


def test_a_network_has_the_size_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many ReLUs, and a fit that hangs on the rows drawn for a step."""
    monkeypatch.setattr("fairfix.solvers.network_fit.MOST_STEPS", 20)
    problem, given = problem_of(many=200), {"solver": "regularizer", "rho": 0.0}
    with pytest.warns(ConvergenceWarning):
        _, seven, X = fitted(problem, **given, learner="network(hidden=7)")
    with pytest.warns(ConvergenceWarning):
        _, other, _ = fitted(problem, **given, learner="network(hidden=7,batch=20)")

    assert seven.hidden.shape == (X.shape[1], 7)
    assert np.abs(seven.predict(X) - other.predict(X)).max() > 1e-6


@pytest.mark.parametrize("learner", ["linear", "network"])
def test_a_conflict_names_what_is_needed_beside_the_learner(learner: str) -> None:
    """A network alone moves no rows either: the solver is what is missing, whatever the learner."""
    with pytest.raises(UsageError) as told:
        Sensei(learner=learner, similar="near(radius=0.1)")
    remedy = str(told.value).rpartition(";")[2]
    assert "`solver=regularizer`" in remedy
    assert "`learner=network`" not in remedy
