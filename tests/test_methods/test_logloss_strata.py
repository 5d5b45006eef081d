"""Fair robust log loss within strata: against a conic solver, against the fit without strata, and through the shell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fairfix.cli import run
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.scan import read_table
from fairfix.data.table import Table
from fairfix.errors import DataError
from fairfix.methods.logloss import EVENTS, LogLoss
from fairfix.methods.problem import RepairProblem
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.score_models import EstimatedLogit

NAMES = ("age", "club", "job")
CONSTRAINTS = list(EVENTS)
"""Constraint -> metric whose difference within strata it bounds."""


def frame(seed: int = 0, many: int = 1500, towns: int = 3) -> pa.Table:
    """Return people of two races in towns where now the one race and now the other is ahead, and both depend."""
    rng = np.random.default_rng(seed)
    race, town = rng.integers(0, 2, many), rng.integers(0, towns, many)
    ahead = np.where(town % 2 == 0, race, 1 - race)
    age, club = rng.normal(40 + 8 * ahead, 10, many), race + rng.normal(0, 0.6, many)
    job = np.array(["cook", "nurse"])[rng.integers(0, 2, many)]
    chance = 1 / (1 + np.exp(-(0.12 * (age - 44) + 0.5 * (job == "nurse") - 0.2)))
    return pa.table(
        {
            "person": [f"p{i}" for i in range(many)],
            "race": [f"g{k}" for k in race],
            "town": [f"t{k}" for k in town],
            "age": age,
            "club": club,
            "job": job,
            "label": (rng.random(many) < chance).astype(int),
            "weight": rng.integers(1, 4, many),
        }
    )


def table_of(data: pa.Table, strata: tuple[str, ...] = ("town",), *, weight: str | None = None) -> Table:
    """Return the validated table with its features."""
    columns = ColumnRoles(("race",), label="label", id="person", strata=strata, weight=weight)
    return read_table(data, DataSpec(columns), NAMES)


def fit(repairer: LogLoss, table: Table, **more: Any) -> RepairedPredictor:
    """Fit on features."""
    return repairer.fit(RepairProblem(table, features=NAMES, **more), rng=np.random.default_rng(0))


def cells(data: Any, label: int | None) -> Iterator[np.ndarray]:
    """Yield for each town which rows with the label are of which race, shape (2, n)."""
    race, town, own = (np.array(data[name]) for name in ("race", "town", "label"))
    counts = np.ones(len(own), bool) if label is None else own == label
    for name in np.unique(town):
        yield np.stack([counts & (town == name) & (race == one) for one in ("g0", "g1")])


def within(data: Any, chance: np.ndarray, constraint: str, weight: np.ndarray | None = None) -> float:
    """Return the largest gap inside a town, by its definition."""
    w = np.ones(len(chance)) if weight is None else weight
    return max(
        abs(float(np.subtract(*[np.average(chance[rows], weights=w[rows]) for rows in two])))
        for label in EVENTS[constraint]
        for two in cells(data, label)
    )


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("group", ["used", "unused"])
@pytest.mark.parametrize("slack", [0.0, 0.03])
def test_gaps_hold_inside_each_stratum(constraint: str, group: str, slack: float) -> None:
    """On the rows of the fit the largest gap inside a town is the slack; without strata it would be far from it."""
    data = frame()
    rule = fit(LogLoss(constraint=constraint, group=group, slack=slack), table_of(data))
    across = fit(LogLoss(constraint=constraint, group=group, slack=slack), table_of(data, ()))

    assert rule.trace.converged
    assert rule.trace.gap < 1e-8
    assert within(data, rule.predict(table_of(data)), constraint) == pytest.approx(slack, abs=1e-8)
    assert within(data, across.predict(table_of(data)), constraint) > slack + 0.02
    assert rule.inputs == (("town", "race") if group == "used" else ("town",))


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_given_the_label_gaps_hold_inside_each_stratum_before_it_is_averaged(constraint: str) -> None:
    """The note has both gaps inside strata: none given the label, and that of the rule as it is used."""
    if constraint == "demographic_parity":
        return
    data = frame()
    rule = fit(LogLoss(constraint=constraint, holds="given-label"), table_of(data))
    (note,) = rule.trace.notes
    after = within(data, rule.predict(table_of(data)), constraint)

    assert f", within strata is {0:.4f} given the true labels, and {after:.4f} for the rule" in note
    assert after > 1e-4


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("group", ["used", "unused"])
def test_one_stratum_is_none(constraint: str, group: str) -> None:
    """Where all are of one town, the rule is that without strata."""
    data = frame(towns=1)
    whole, plain = (
        fit(LogLoss(constraint=constraint, group=group), table_of(data, of)) for of in (("town",), ())
    )

    np.testing.assert_allclose(
        whole.predict(table_of(data)), plain.predict(table_of(data, ())), rtol=0, atol=1e-12
    )


def test_a_stratum_of_one_group_is_free() -> None:
    """Where a town has people of one race alone nothing is compared, and they keep the plain score."""
    data = frame()
    race = np.where(np.array(data["town"]) == "t2", "g0", np.array(data["race"]))
    data = data.set_column(1, "race", pa.array(race))
    table = table_of(data)
    rule = fit(LogLoss(), table)
    chance, alone = rule.predict(table), np.array(data["town"]) == "t2"

    np.testing.assert_array_equal(chance[alone], rule.scorer(table)[alone])  # type: ignore[attr-defined]  # its rule has a scorer
    assert np.isnan(
        fit(LogLoss(), table).predict(table_of(frame()))[alone & (np.array(frame()["race"]) == "g1")]
    ).all()


def test_a_cell_without_rows_of_a_label_is_named() -> None:
    """The error names town, race and label, and a way out."""
    data = frame()
    none = (np.array(data["town"]) == "t1") & (np.array(data["race"]) == "g1")
    data = data.set_column(6, "label", pa.array(np.where(none, 0, np.array(data["label"]))))

    with pytest.raises(
        DataError, match=r"'t1 & g1' of 'town x race' has no rows with label 1 .* demographic_parity"
    ):
        fit(LogLoss(constraint="equal_opportunity"), table_of(data))
    assert fit(LogLoss(), table_of(data)).trace.converged
    weights = pa.array(np.where(none, 0, 1))
    gone = fit(LogLoss(), table_of(data.set_column(7, "weight", weights), weight="weight"))
    kept = data.filter(
        pa.array(~none)
    )  # rows of no weight are not there, so nothing is compared in that town
    np.testing.assert_allclose(
        gone.predict(table_of(kept)), fit(LogLoss(), table_of(kept)).predict(table_of(kept)), atol=1e-12
    )


def test_without_the_group_the_stratum_is_all_that_is_told() -> None:
    """The chances of a row's group are those given its town, so prices of other towns are nothing to it."""
    table = table_of(frame())
    rule = fit(LogLoss(group="unused"), table)
    assert isinstance(rule, EstimatedLogit)
    other = replace(rule, prices=np.where(rule.owners == 0, rule.prices, 7.0))
    same = other.predict(table) == rule.predict(table)

    assert same[np.array(frame()["town"]) == "t0"].all()
    assert not same[np.array(frame()["town"]) == "t1"].all()


ROLES = (
    *("--protected", "race", "--strata", "town", "--id", "person"),
    *("--features", "age,club,job", "--config", "none"),
)


def test_counts_hold_gaps_inside_strata(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A rule of counts, of score bins, holds the slack in each town for the rows that were counted."""
    rows = frame(2, 2000)
    score = 1 / (1 + np.exp(-0.12 * (np.array(rows["age"]) - 44)))
    rows = rows.drop_columns(["weight"]).append_column("score", pa.array(score))
    data, counts, saved = (str(tmp_path / name) for name in ("data.parquet", "counts.json", "a.fairfix"))
    pq.write_table(rows, data)
    asked = ["--protected", "race", "--strata", "town", "-o", counts, "--config", "none", "-q"]
    run(["count", data, *asked])
    how = ["--method", "logloss", "--constraint", "equalized_odds", "--slack", "0.01", "-o", saved]
    assert run(["repair", counts, *how, "--config", "none", "-q"]) == 0
    out = str(tmp_path / "out.parquet")
    assert run(["predict", saved, data, "-o", out, "--config", "none"]) == 0
    capsys.readouterr()

    assert within(rows, pq.read_table(out)["p_positive"].to_numpy(), "equalized_odds") <= 0.01 + 1e-8


def test_a_new_stratum_is_an_unseen_group(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the group or without it, a town that the fit has not seen is refused by its name."""
    data, new = tmp_path / "data.parquet", tmp_path / "new.parquet"
    pq.write_table(frame(many=1200).drop_columns(["weight"]), data)
    pq.write_table(frame(1, 100, towns=4).drop_columns(["weight", "label"]), new)
    for group, named in (("used", "'t3 & g"), ("unused", "'t3' of 'town'")):
        saved = str(tmp_path / "a.fairfix")
        how = ["--method", "logloss", "--group", group, "-o", saved, "-q"]
        assert run(["repair", str(data), *ROLES, *how]) == 0
        assert run(["predict", saved, str(new), "-o", str(tmp_path / "out.parquet"), "--config", "none"]) == 2
        assert f"group {named}" in capsys.readouterr().err
