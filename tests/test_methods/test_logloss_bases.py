"""Fair robust log loss on splines and trees: what they see, and what holds for the rule that is shipped."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pyarrow as pa
import pytest
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.scan import read_table
from fairfix.data.table import Table
from fairfix.errors import UsageError
from fairfix.methods.logloss import EVENTS, LogLoss
from fairfix.methods.problem import RepairProblem
from fairfix.methods.spline_basis import BASES
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.score_models import TruncatedLogit

NAMES = ("age", "gain", "job")
CURVED = ("splines", "trees")


@pytest.fixture(autouse=True)
def few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees are as many as show what is to be shown."""
    monkeypatch.setattr("fairfix.models.learners.ROUNDS", 20)


def frame(seed: int = 0, many: int = 1500, groups: int = 2, *, noise: bool = False) -> pa.Table:
    """Return people whose label is likeliest in the middle of an age that differs by group; or hangs on nothing."""
    rng = np.random.default_rng(seed)
    group = np.arange(many) % groups
    age = rng.normal(40 + 4 * group, 10, many)
    gain = np.where(rng.random(many) < 0.8, 0.0, rng.exponential(1000, many))
    job = np.array(["cook", "nurse", "smith"])[rng.integers(0, 3, many)]
    z = 2.0 - 0.02 * (age - 46) ** 2 + 0.8 * (job == "smith") + (gain > 500) - 0.3 * (group == 0)
    chance = np.full(many, 0.4) if noise else 1 / (1 + np.exp(-z))
    return pa.table(
        {
            "person": [f"p{i}" for i in range(many)],
            "race": [f"g{g}" for g in group],
            "age": age,
            "gain": gain,
            "job": job,
            "label": (rng.random(many) < chance).astype(int),
            "chance": chance,
            "weight": rng.integers(1, 4, many),
        }
    )


def table_of(data: pa.Table, *, weight: str | None = None) -> Table:
    """Return the validated table with its features."""
    return read_table(
        data, DataSpec(ColumnRoles(("race",), label="label", id="person", weight=weight)), NAMES
    )


def fit(table: Table, **settings: Any) -> RepairedPredictor:
    """Fit on features."""
    keys = ",".join(f"{name}={settings.pop(name)}" for name in ("l2", "basis") if name in settings)
    return LogLoss(learner=f"linear({keys})", **settings).fit(
        RepairProblem(table, features=NAMES), rng=np.random.default_rng(0)
    )


def gap(data: Any, chance: np.ndarray, constraint: str, weight: np.ndarray | None = None) -> float:
    """Return the largest gap of a constraint, by its definition."""
    race, own, w = (
        np.array(data["race"]),
        np.array(data["label"]),
        np.ones(len(chance)) if weight is None else weight,
    )
    out = []
    for label in EVENTS[constraint]:
        counts = np.ones(len(own), bool) if label is None else own == label
        rates = [
            np.average(chance[rows], weights=w[rows])
            for g in np.unique(race)
            for rows in [counts & (race == g)]
        ]
        out.append(np.ptp(rates))
    return float(max(out))


def loss(data: Any, chance: np.ndarray) -> float:
    """Return the expected log loss, by the true chances."""
    p = np.clip(chance, 1e-12, 1 - 1e-12)
    return float(
        -np.mean(np.array(data["chance"]) * np.log(p) + (1 - np.array(data["chance"])) * np.log(1 - p))
    )


@pytest.mark.parametrize("basis", CURVED)
def test_a_curve_is_seen(basis: str) -> None:
    """Where the label hangs on a square, other rows' log loss falls by most of what a linear score leaves."""
    data, other = frame(many=1200), frame(1, 4000)
    found = {
        own: loss(other, fit(table_of(data), basis=own, slack=1.0).predict(table_of(other)))
        for own in ("plain", basis)
    }
    best = loss(other, np.array(other["chance"]))

    assert found[basis] - best < 0.2 * (found["plain"] - best)


def test_trees_are_not_believed_where_they_have_learned_noise() -> None:
    """Of labels that hang on nothing, probabilities stay near the share of ones, on rows of the fit as on others."""
    data = frame(many=800, noise=True)
    chance = fit(table_of(data), basis="trees", slack=1.0).predict(table_of(data))

    assert np.abs(chance - 0.4).mean() < 0.06
    assert loss(data, chance) - loss(data, np.full(800, 0.4)) < 0.015


def test_the_certificate_of_trees_is_the_optimum_of_its_scores() -> None:
    """Given the scores of the finished rule, no probabilities that meet the slack have less loss in the worst case."""
    data = frame(many=200)
    table = table_of(data)
    rule = fit(table, basis="trees", slack=0.02)
    assert isinstance(rule, TruncatedLogit)
    score, y, one = rule.scorer(table), np.array(data["label"]), np.array(data["race"]) == "g0"
    z, P = np.log(score / (1 - score)), cp.Variable(200)
    worst = cp.sum(cp.maximum(z - cp.log(P), -cp.log(1 - P))) / 200 - float(z @ y) / 200
    held = [cp.abs((one / one.sum() - ~one / (~one).sum()) @ P) <= 0.02]
    best = float(cp.Problem(cp.Minimize(worst), held).solve(solver=cp.CLARABEL))
    (told,) = rule.trace.certificates

    assert told.value == pytest.approx(best, abs=1e-6)
    assert told.value - told.bound < 1e-8
    assert "probabilities with these scores that meet the slack" in told.among
    assert fit(table, basis="trees", slack=1.0).trace.certificates == ()


def test_units_and_origins_do_not_matter() -> None:
    """In another currency, from another year on, everybody gets the same. Folds of trees hang on the last digits."""
    data = frame()
    moved = data.set_column(2, "age", pa.array(1900 + 12 * np.array(data["age"])))
    moved = moved.set_column(3, "gain", pa.array(0.01 * np.array(data["gain"])))
    one, other = (fit(table_of(own), basis="splines").predict(table_of(own)) for own in (data, moved))

    np.testing.assert_allclose(one, other, rtol=0, atol=1e-7)


def test_far_out_nothing_explodes() -> None:
    """Beyond the rows of the fit a number counts as the nearest of theirs."""
    data = frame()
    rule = fit(table_of(data), basis="splines")
    far, end = np.array(data["age"]).copy(), np.array(data["age"]).copy()
    far[:2], end[:2] = (1e9, -1e9), (far[2:].max(), far[2:].min())
    both = [data.set_column(2, "age", pa.array(own)) for own in (far, end)]
    kept = fit(table_of(both[1]), basis="splines")

    np.testing.assert_array_equal(*(kept.predict(table_of(own)) for own in both))
    assert np.isfinite(rule.predict(table_of(both[0]))).all()


@pytest.mark.parametrize("basis", BASES)
def test_missing_entries_and_booleans_are_taken(basis: str) -> None:
    """Numbers may be missing, in the fit and later; true and false have no curve."""
    data = frame(many=600)
    age = [None if i % 7 == 0 else x for i, x in enumerate(data["age"].to_pylist())]
    data = data.set_column(2, "age", pa.array(age, pa.float64()))
    data = data.set_column(3, "gain", pa.array(np.array(data["gain"]) > 0))
    rule = fit(table_of(data), basis=basis)

    assert gap(data, rule.predict(table_of(data)), "demographic_parity") < 1e-8


def test_what_has_no_feature_columns_is_refused() -> None:
    data = frame().append_column("score", pa.array(np.full(1500, 0.5)))
    table = read_table(
        data, DataSpec(ColumnRoles(("race",), label="label", score="score"), thresholds=(0.5,)), ()
    )
    for basis in CURVED:
        with pytest.raises(
            UsageError,
            match=rf"`learner=linear\(basis={basis}\)` is built from feature columns.*with `features`",
        ):
            LogLoss(learner=f"linear(basis={basis})").fit(RepairProblem(table), rng=np.random.default_rng(0))
        assert "leave out `learner`" in LogLoss(learner=f"linear(basis={basis})").needs_rows
    with pytest.raises(UsageError, match="basis must be one of plain, splines, trees"):
        LogLoss(learner="linear(basis=cubic)")
