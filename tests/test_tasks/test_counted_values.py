"""Fair regression from counts: values of score bins, with distances and losses that hold for the rows behind them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fairfix
import jsonschema
import numpy as np
import pandas as pd
import pytest
from fairfix.auditing.countfile import count
from fairfix.auditing.disclosure import suppressed
from fairfix.cli import run
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.scan import read_table
from fairfix.data.table import Table
from fairfix.errors import UsageError
from fairfix.methods.fair_regression import FairRegression
from fairfix.methods.problem import RepairProblem
from fairfix.models.score_models import BinnedTube
from fairfix.tasks.repair_from_counts import fit_to_bins

from tests.data import scored
from tests.test_tasks.test_repair_counts import (
    PLAIN,
    SCHEMA,
    WEIGHTED,
    WORLDS,
    Floats,
    _ids,
    binned_scores,
    people,  # noqa: F401  a fixture
    rates_of,
    table_of,
    world,
)

KS = "ks.to_overall"


def repair(fit: Any, proof: Any, **asked: Any) -> Any:
    """Return a fair regression from counts."""
    task: Any = fairfix.repair
    return task(fit, holdout=proof, id="id", method="fair-regression", **asked)


def distances(value: Floats, weight: Floats, group: Any) -> dict[str, float]:
    """Return the distance of each group's values to everybody's, by its definition."""
    every = np.unique(value)

    def upto(inside: Any) -> Floats:
        order = np.argsort(value[inside])
        mass = np.append(0.0, np.cumsum(weight[inside][order]))
        return np.asarray(mass[np.searchsorted(value[inside][order], every, side="right")] / mass[-1])

    everybody = upto(np.ones(value.size, dtype=bool))
    return {str(one): float(np.abs(upto(group == one) - everybody).max()) for one in np.unique(group)}


def shipped(result: Any, frame: pd.DataFrame, weight: Floats) -> tuple[Table, Any, Floats, Floats]:
    """Return rows of a frame, the row of every value that one can get, the value, and its weight."""
    table = read_table(frame, result.repaired.data_spec, columns=())
    row, value, chance = result.repaired.predictor.outcomes(table)
    return table, row, value, weight[row] * chance


NAMES = [one for one in WORLDS if one != "raw"]
BOTH = [(name, ("randomized", "deterministic")[i % 2]) for i, name in enumerate(NAMES)]
BOTH += [("smooth", "deterministic"), ("heavy ties", "randomized")]


@pytest.mark.parametrize(("name", "decisions"), sorted(set(BOTH)))
def test_what_is_certain_of_values_is_so_on_the_rows(name: str, decisions: str) -> None:
    """Distances, rates and losses of the shipped rule on the exact held-out rows are the certified points."""
    frame, data_spec = world(name, 1200, 3)
    weighted = decisions == "deterministic"
    data_spec = WEIGHTED if weighted and data_spec == PLAIN else data_spec
    fit, held = frame.iloc[:700], frame.iloc[700:].reset_index(drop=True)
    held = pd.concat([held, frame.iloc[:3]], ignore_index=True)
    weight = held["weight"].to_numpy() if data_spec is WEIGHTED else np.ones(len(held))
    result = repair(count(fit, data_spec), count(held, data_spec), slack=0.05, decisions=decisions)
    _, row, value, mass = shipped(result, held, weight)
    counts, group, label = (
        result.to_dict()["counts"],
        held["race"].to_numpy()[row],
        held["label"].to_numpy()[row],
    )
    exact = distances(value, mass, group)
    drawn = pd.DataFrame({"race": group, "label": label})
    rates = rates_of(drawn, (value >= data_spec.cut).astype(float), mass)
    chance = np.where(label == 1, value, 1 - value)

    for one in counts["certified"]:
        for number, ends in [
            (exact[one["group"]], one["distance"]),
            *((rates[one["group"], rate], ends) for rate, ends in one["rates"].items() if "low" in ends),
        ]:
            assert ends["low"] - 1e-9 <= number <= ends["high"] + 1e-9, one
            assert ends["high"] - ends["low"] < 1e-8
    with np.errstate(divide="ignore"):
        square, log = ((mass @ each) / mass.sum() for each in ((1 - chance) ** 2, -np.log(chance)))
    assert counts["losses"]["square_loss"]["low"] == pytest.approx(square, abs=1e-9)
    if np.isfinite(log):
        assert counts["losses"]["log_loss"]["low"] == pytest.approx(log, abs=1e-9)
    else:
        assert "infinite" in counts["losses"]["log_loss"]["reason"]
    (shown,) = (one for one in result.to_dict()["proof"]["holdout"]["table"] if one["id"] == KS)
    assert shown["after"]["value"] == pytest.approx(max(exact.values()), abs=1e-9)
    assert shown["after"].get("bound", 0.0) == 0.0
    (of_fit,) = (one for one in result.to_dict()["proof"]["fit"]["table"] if one["id"] == KS)
    assert decisions == "deterministic" or of_fit["after"]["value"] <= 0.05 + 1e-9


def test_shares_are_those_of_the_draws() -> None:
    """Each value is given to the share of even draws that is its chance, to one draw at either end."""
    frame, data_spec = world("heavy ties", 200, 1)
    result = repair(count(frame, data_spec), None, slack=0.03)
    table, row, value, chance = shipped(result, frame, np.ones(len(frame)))
    many = 500
    given = [
        result.repaired.predictor.predict(
            Table(
                table.data_spec, table.rows, table.features, np.full(len(table), (i + 0.5) / many).__getitem__
            )
        )
        for i in range(many)
    ]
    drawn = np.stack(given)

    assert np.unique(row).size < row.size
    for one, wanted, share in zip(row, value, chance, strict=True):
        assert np.mean(drawn[:, one] == wanted) == pytest.approx(share, abs=1.01 / many)


@pytest.mark.parametrize("decisions", ["randomized", "deterministic"])
@pytest.mark.parametrize("slack", [0.0, 0.03, 1.0])
def test_scores_at_middles_give_the_tube_of_the_rows(slack: float, decisions: str) -> None:
    """Counts lose nothing of scores that lie at the middles of bins: loss and chances are those of the rows."""
    data = binned_scores()
    content = count(data, PLAIN)
    table = read_table(data, content.data_spec, columns=())
    # a bin of counts has all rows of its scores, so the rows have to be taken by single scores too
    method, rng = FairRegression(slack=slack, decisions=decisions, bin_rows=1), np.random.default_rng(0)
    rows, rule = method.fit(RepairProblem(table, protected_as_feature=True), rng=rng), None
    rule, _ = fit_to_bins(method, RepairProblem(table_of(content), protected_as_feature=True), rng)
    assert isinstance(rule, BinnedTube)
    asked = Table(table.data_spec, table.rows, table.features, lambda numbers: (numbers * 0.618034) % 1.0)

    np.testing.assert_allclose(rule.predict(asked), rows.predict(asked), atol=1e-9)
    assert rule.trace.objective == pytest.approx(rows.trace.objective, rel=1e-9)


@pytest.mark.parametrize("unit", [1.0, 1000.0])
def test_the_loss_on_real_labels_lies_between_the_certified_ends(unit: float) -> None:
    """Counts have no label by score bin: the ends hold, are not far, and grow with the square of the unit."""
    rng, rows = np.random.default_rng(5), 3000
    race = rng.choice(["a", "b", "c"], rows, p=[0.6, 0.3, 0.1])
    score = rng.gamma(3.0, size=rows) + (race == "a")
    frame = pd.DataFrame({"race": race, "score": unit * score.round(1)})
    frame["label"] = frame["score"] * 0.8 + unit * rng.normal(size=rows)
    data_spec = DataSpec(ColumnRoles(("race",), label="label", score="score"), task="regression")
    fit, held = frame.iloc[:1800], frame.iloc[1800:].reset_index(drop=True)
    result = repair(count(fit, data_spec), count(held, data_spec), slack=0.05)
    _, row, value, mass = shipped(result, held, np.ones(len(held)))
    loss = float(mass @ (value - held["label"].to_numpy()[row]) ** 2) / mass.sum()
    ends = result.to_dict()["counts"]["losses"]["square_loss"]
    exact = distances(value, mass, held["race"].to_numpy()[row])

    assert ends["low"] <= loss <= ends["high"] < 2 * loss
    for one in result.to_dict()["counts"]["certified"]:
        assert one["rates"] == {}
        assert one["distance"]["low"] - 1e-9 <= exact[one["group"]] <= one["distance"]["high"] + 1e-9


def test_rows_that_are_hidden_widen_what_is_certain() -> None:
    """Distances on all rows of a proof lie between the ends, wherever the hidden ones belong."""
    frame = scored(3, 3000).to_pandas().assign(town=lambda one: np.arange(len(one)) % 3)
    frame.loc[:6, ["race", "town"]] = ["g0", 5]
    data_spec = DataSpec(ColumnRoles(("race", "town"), label="label", score="score"), bands={"town": ()})
    fit, held = frame.iloc[7:1500], pd.concat([frame.iloc[:7], frame.iloc[1500:]], ignore_index=True)
    content = suppressed(count(held, data_spec), [data_spec.columns.protected], 20)
    result = repair(count(fit, data_spec), content, slack=0.02, protected="race")
    held = held.assign(town=held["town"].astype(str))
    _, row, value, mass = shipped(result, held, np.ones(len(held)))
    exact = distances(value, mass, held["race"].to_numpy()[row])

    for one in result.to_dict()["counts"]["certified"]:
        assert one["distance"]["low"] <= exact[one["group"]] <= one["distance"]["high"]
        assert one["distance"]["high"] - one["distance"]["low"] > 1e-3
    assert set(result.to_dict()["counts"]["losses"]) == {"log_loss", "square_loss"}


def test_two_hospitals_move_scores_without_a_row(people: Path, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811  the fixture that is imported
    """From the command line: proof, artifact, prediction; the drawn values are near what is expected."""
    fit, test, out = (str(people / name) for name in ("fit.counts", "test.counts", "values.fairfix"))
    formats = [f"--out={name}={people / f'values.{name}'}" for name in ("json", "html", "markdown")]
    asked = ["--method", "fair-regression", "--slack", "0.02", "--check", f"{KS}<=0.2", "--config", "none"]
    assert run(["repair", fit, "--holdout", test, *asked, "-o", out, *formats]) == 0
    result, text = json.loads((people / "values.json").read_text()), " ".join(capsys.readouterr().out.split())
    jsonschema.validate(result, SCHEMA)
    assert "distances to all rows on held-out rows, expected over the draws, are those in the table" in text
    assert "certain: the log loss of the values over all rows, on held-out rows" in text

    rows = pd.concat([pd.read_parquet(people / f"{name}.parquet") for name in ("north", "south")])
    rows.to_parquet(people / "every.parquet")
    assert run(["predict", out, str(people / "every.parquet"), "-o", str(people / "valued.parquet")]) == 0
    done = pd.read_parquet(people / "valued.parquet")
    held = done[done["id"].isin(_ids(people, "0.7:1"))]
    assert len(held) == result["split"]["holdout"]
    exact = distances(held["prediction"].to_numpy(), np.ones(len(held)), held["race"].to_numpy())
    # a row's values are of one bin or next to it: draws hardly matter
    for one in result["counts"]["certified"]:
        assert one["distance"]["low"] == pytest.approx(exact[one["group"]], abs=0.01)
    assert run(["inspect", out, "--detail"]) == 0
    assert "binned_tube" in capsys.readouterr().out


def test_real_labels_have_no_log_loss_in_counts() -> None:
    """Counts do not tell whether real labels lie in [0, 1]."""
    frame = scored(0, 500).to_pandas()
    data_spec = DataSpec(ColumnRoles(("race",), label="label", score="score"), task="regression")
    with pytest.raises(UsageError, match="use `loss=square`"):
        repair(count(frame, data_spec), None, loss="logistic")
