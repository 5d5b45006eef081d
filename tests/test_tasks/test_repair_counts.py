"""Repair from counts: the rule of the rows up to their bins, with rates that hold wherever scores lie in these."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fairfix
import jsonschema
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from fairfix.auditing.countfile import SUPPRESSED, CountFile, count, merged, suppressed
from fairfix.auditing.results import Settings
from fairfix.cli import run
from fairfix.data.binned import entries_of
from fairfix.data.reading import Columns, Reading
from fairfix.data.scan import count_table, read_table
from fairfix.data.table import Table
from fairfix.errors import DataError, FairfixWarning, UsageError
from fairfix.methods import available
from fairfix.models.predictors import BinnedRule
from fairfix.tasks.counted import certified
from fairfix.tasks.proof import prove

from tests.data import scored

BINS = 1024
PLAIN = Reading(Columns(("race",), label="label", score="score"), thresholds=(0.5,))
WEIGHTED = replace(PLAIN, columns=replace(PLAIN.columns, weight="weight"))

METHODS: dict[str, dict[str, Any]] = {
    "ramp": {"method": "ramp"},
    "ramp with slack": {"method": "ramp", "slack": 0.1},
    "ramp, thresholds": {"method": "ramp", "gamma": 0.0},
    "ramp, deterministic": {"method": "ramp", "gamma": 0.0, "decisions": "deterministic"},
    "ramp, covariance": {"method": "ramp", "constraint": "covariance", "slack": 0.01},
    "ramp, equal opportunity": {"method": "ramp", "constraint": "equal_opportunity"},
    "ramp, equalized odds": {"method": "ramp", "constraint": "equalized_odds", "gamma": 0.0},
    "ramp, calibrated": {"method": "ramp", "calibrate": "sigmoid"},
    "logloss": {"method": "logloss"},
    "logloss, equalized odds": {"method": "logloss", "constraint": "equalized_odds"},
    "logloss, rounded": {"method": "logloss", "decisions": "deterministic"},
}
"""What can be fitted to counts, beside robust thresholds, which need a table of noise."""


def binned_scores(rows: int = 3000, seed: int = 0) -> pa.Table:
    """Return rows whose scores are middles of bins."""
    data = scored(seed, rows)
    score = (np.floor(data["score"].to_numpy() * (BINS - 1)) + 0.5) / BINS
    return data.set_column(data.column_names.index("score"), "score", pa.array(score))


def of_counts(counts: Any, **asked: Any) -> Any:
    """Return a repair from counts, with the id that no message asks for."""
    return fairfix.repair(from_counts=counts, id="id", **asked)


@pytest.mark.parametrize("weight", [None, "weight"])
@pytest.mark.parametrize("name", METHODS)
def test_scores_at_middles_give_the_rule_of_the_rows(name: str, weight: str | None) -> None:
    """Counts lose nothing of scores that lie at the middles of bins: every row has the chance that rows give."""
    data, asked = binned_scores(), METHODS[name]
    reading = PLAIN if weight is None else WEIGHTED
    table = read_table(data, reading, columns=())
    method = available()[asked["method"]](**{key: asked[key] for key in asked if key != "method"})
    from fairfix.methods.base import RepairProblem

    by_rows = method.fit(RepairProblem(table), rng=np.random.default_rng(0)).predict(table)
    if asked.get("decisions") == "deterministic":
        by_rows = (by_rows >= 0.5).astype(float)
    by_counts = of_counts(count(data, reading), **asked).repaired.predictor

    assert isinstance(by_counts, BinnedRule)
    np.testing.assert_allclose(by_counts.predict(table), by_rows, atol=1e-6)


def test_the_order_of_merging_changes_nothing() -> None:
    """Counts of three hospitals make one rule, whichever comes first."""
    files = [(str(i), count(scored(i, 700), PLAIN)) for i in range(3)]
    one, other = (of_counts(merged(order), method="ramp") for order in (files, files[::-1]))

    assert one.repaired.predictor.state()[0] == other.repaired.predictor.state()[0]
    for name, array in one.repaired.predictor.state()[1].items():
        assert array.tobytes() == other.repaired.predictor.state()[1][name].tobytes()


# ---------------------------------------------------------------------- what is certain


def ties(rng: np.random.Generator, rows: int) -> np.ndarray[Any, Any]:
    return rng.choice([0.25, 0.5, 0.50001, 0.75], rows)


def edges(rng: np.random.Generator, rows: int) -> np.ndarray[Any, Any]:
    """Scores on the edges of bins, and next to them on either side."""
    on = rng.integers(1, BINS, rows) / BINS
    return np.choose(rng.integers(0, 3, rows), [on, np.nextafter(on, 0), np.nextafter(on, 1)])


WORLDS: dict[str, tuple[Callable[[np.random.Generator, int], Any], dict[str, Any]]] = {
    "smooth": (lambda rng, rows: rng.beta(2, 3, rows), {}),
    "heavy ties": (ties, {}),
    "on edges": (edges, {}),
    "one value": (lambda rng, rows: np.full(rows, 0.3), {}),
    "both ends": (lambda rng, rows: rng.choice([0.0, 1.0, 0.6], rows), {}),
    "within one bin": (lambda rng, rows: 0.5 + rng.random(rows) / BINS, {}),
    "another threshold": (lambda rng, rows: rng.random(rows), {"thresholds": (0.3333,)}),
    "percent": (lambda rng, rows: 100 * edges(rng, rows), {"score_scale": "percent"}),
    "margin": (lambda rng, rows: 2 * edges(rng, rows) - 1, {"score_scale": "margin"}),
    "logit": (lambda rng, rows: rng.normal(0, 3, rows), {"score_scale": "logit"}),
    "raw": (lambda rng, rows: rng.normal(100, 30, rows).round(1), {"score_scale": "raw", "thresholds": (100.0,)}),
}


def world(name: str, rows: int, seed: int) -> tuple[pd.DataFrame, Reading]:
    """Return rows of groups of all sizes, the least of three rows."""
    rng = np.random.default_rng(seed)
    make, how = WORLDS[name]
    group = np.where(np.arange(rows) < 3, "tiny", rng.choice(["a", "b", "c"], rows, p=[0.6, 0.3, 0.1]))
    score = make(rng, rows)
    rank = np.argsort(np.argsort(score)) / rows
    label = (rng.random(rows) < 0.2 + 0.6 * rank).astype(int)
    label[:6] = [0, 1, 0, 1, 0, 1]
    frame = {"race": group, "label": label, "score": score, "weight": rng.gamma(2.0, size=rows)}
    return pd.DataFrame(frame), replace(PLAIN, **{"thresholds": (), **how}).with_threshold()


def rates_of(frame: pd.DataFrame, chance: Any, weight: Any) -> dict[tuple[str, str], float]:
    """Return the rates of groups of single rows."""
    out = {}
    for group in frame["race"].unique():
        for rate, label in (("selection_rate", None), ("true_positive_rate", 1), ("false_positive_rate", 0)):
            inside = (frame["race"] == group) & ((frame["label"] == label) if label is not None else True)
            if inside.any():
                out[group, rate] = float(np.average(chance[inside], weights=weight[inside]))
    return out


@pytest.mark.parametrize("constraint", ["demographic_parity", "equalized_odds"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", WORLDS)
def test_rates_of_rows_are_those_that_are_certain(name: str, weighted: bool, constraint: str) -> None:
    """The shipped rule on the exact rows has the certified rates, which are points: no bin is decided in two ways."""
    frame, reading = world(name, 900, 1)
    reading = replace(reading, columns=replace(reading.columns, weight="weight" if weighted else None))
    result = of_counts(count(frame, reading), method="ramp", constraint=constraint, slack=0.05)
    shipped = result.repaired.predict(frame.assign(id=np.arange(len(frame))))["p_positive"]
    exact = rates_of(frame, shipped, frame["weight"] if weighted else np.ones(len(frame)))

    held = {(one["group"], rate): ends for one in result.content["counts"]["certified"] for rate, ends in one["rates"].items()}
    for key, ends in held.items():
        if "reason" not in ends:
            assert ends["low"] <= exact[key] <= ends["high"], key
            assert ends["high"] - ends["low"] < 1e-8
    table = {row["name"]: row["after"]["value"] for row in result.content["proof"]["fit"]["table"]}
    every = [exact[group, "selection_rate"] for group in frame["race"].unique()]
    assert table["selection_rate.difference.between_groups [race]"] == pytest.approx(np.ptp(every), abs=1e-9)


def test_a_rule_that_cuts_a_bin_is_seen() -> None:
    """With an edge inside a bin the certified rates are a range, and scores at its ends reach it."""
    frame, reading = world("smooth", 600, 0)
    counts = count(frame, reading).counts()
    levels = tuple((name,) for name in sorted(frame["race"].unique()))
    cut = 0.4 + 0.25 / BINS
    rule = BinnedRule(("race",), levels, np.array([cut]), np.tile([0.0, 1.0], (len(levels), 1)))
    floor = np.floor(frame["score"] * BINS) / BINS
    ends = {}
    for name, score in (("low", floor), ("high", np.nextafter(floor + 1 / BINS, 0))):
        moved = frame.assign(score=score)
        table = read_table(moved, reading, columns=())
        ends[name] = rates_of(moved, rule.predict(table), np.ones(len(moved)))
    wide = 0
    for one in certified(counts, rule, reading, 0):
        for rate, both in one["rates"].items():
            for end in ("low", "high"):
                assert both[end] == pytest.approx(ends[end][one["group"], rate], abs=2e-9)
            wide += both["high"] - both["low"] > 1e-3
    assert wide


@pytest.mark.parametrize("name", ["smooth", "heavy ties", "within one bin", "logit"])
@pytest.mark.parametrize("slack", [0.0, 0.05])
def test_exact_scores_are_better_by_no_more_than_is_said(name: str, slack: float) -> None:
    """The optimum of the rows is below the value of the shipped rule on these rows by the certified bound at most."""
    from fairfix.methods.base import RepairProblem
    from fairfix.methods.ramp import Ramp

    frame, reading = world(name, 900, 2)
    table = read_table(frame, reading, columns=())
    rows = Ramp(slack=slack).fit(RepairProblem(table), rng=np.random.default_rng(0))
    counts = of_counts(count(frame, reading), method="ramp", slack=slack)

    def objective(rule: Any) -> float:
        q = rule.predict(table)
        return float(np.mean(0.05 / 2 * q * q - table.ranking * q))

    lost = objective(counts.repaired.predictor) - objective(rows)
    assert lost <= counts.content["counts"]["optimum"]["bound"] + 1e-9
    if name == "within one bin":
        assert lost > 1e-5  # bins do hide something here


@pytest.mark.parametrize("weighted", [False, True])
def test_the_proof_on_counts_is_that_on_rows(weighted: bool) -> None:
    """Numbers, intervals and paired changes of one rule: those of the rows, for however few entries stand for them."""
    data = binned_scores(4000)
    reading = WEIGHTED if weighted else PLAIN
    content = count(data, reading)
    counts, table = content.counts(), read_table(data, reading, columns=())
    entries = Table(content.reading, entries_of(counts, content.reading), pa.table({}))
    rule = of_counts(content, method="ramp").repaired.predictor
    mine, theirs = (prove(one, rule, Settings(), ("equalized_odds.difference.between_groups",)) for one in (entries, table))

    assert len(entries) < len(table) == mine.rows == theirs.rows
    for one, other in zip(mine.table, theirs.table, strict=True):
        for part in ("before", "after", "change"):
            left, right = getattr(one, part), getattr(other, part)
            assert (left is None) == (right is None)
            if left is not None and one.id != "log_loss":
                numbers = [(getattr(left, end), getattr(right, end)) for end in ("value", "low", "high")]
                np.testing.assert_allclose(*zip(*numbers, strict=True), atol=1e-9, err_msg=one.name)
    assert mine.people.keys() == theirs.people.keys()
    for one, other in zip(mine.people["race"], theirs.people["race"], strict=True):
        assert (one.group, one.rows) == (other.group, other.rows)
        assert (one.up, one.down) == pytest.approx((other.up, other.down))


def test_entries_are_their_counts() -> None:
    """A table of counts is counted as what it was made of, to the bit."""
    content = count(scored(0, 2000), replace(WEIGHTED, columns=replace(WEIGHTED.columns, strata=("job",))))
    counts = content.counts()
    again = count_table(Table(content.reading, entries_of(counts, content.reading), pa.table({}))).counts

    for name in ("rows", "mass", "square_mass"):
        assert np.array_equal(getattr(counts, name), getattr(again, name))
    assert {name: one.tobytes() for name, one in counts.sums.items()} == {
        name: one.tobytes() for name, one in again.sums.items()
    }
