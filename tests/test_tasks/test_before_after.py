"""Splitting, proving and drawing: shares are honest, and the table says what the audit says."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fairfix.auditing.audit import audit
from fairfix.auditing.checks import Check
from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.results import Settings
from fairfix.cli import run
from fairfix.data.counts import Floats, Ints
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.row_hash import is_random
from fairfix.data.scan import read_table
from fairfix.data.table import Table
from fairfix.errors import UsageError
from fairfix.methods import available
from fairfix.methods.fair_regression import FairRegression
from fairfix.methods.ramp import Ramp
from fairfix.models.score_models import Scorer
from fairfix.schema.common import estimate
from fairfix.tasks.fit_and_evaluate import repair_table
from fairfix.tasks.row_split import split_rows
from fairfix.tasks.warnings import ConstraintTarget, of_gaps, of_rounding, of_slack

from tests.data import people


def read(data: pd.DataFrame) -> Table:
    """Return rows of race, label and score as they are read."""
    return read_table(data, DataSpec(ColumnRoles(("race",), label="label", score="score")))


def table(n: int = 2000, seed: int = 0, *, label: bool = True) -> Table:
    """Return scored rows; the group c is small."""
    data = people(n, seed)[["race", "score", "label"]]
    return read_table(data, DataSpec(ColumnRoles(("race",), label="label" if label else None, score="score")))


@pytest.mark.parametrize(
    ("validation", "holdout"), [(0.0, 0.0), (0.5, 0.5), (-0.1, 0.3), (0.0, 1.0), (0.2, float("nan"))]
)
def test_shares_that_leave_nothing_are_refused(validation: float, holdout: float) -> None:
    """A proof needs held-out rows, and a fit needs the others."""
    with pytest.raises(UsageError, match="fractions"):
        split_rows(table(), np.random.default_rng(0), validation=validation, holdout=holdout)


def test_the_proof_says_what_an_audit_says() -> None:
    """Before is the audit of the base decisions on the held-out rows, after that of the repaired ones."""
    rows = table()
    outcome = repair_table(rows, Ramp(), seed=3)
    held = rows.take(outcome.split.holdout)
    chance = outcome.predictor.predict(held)
    proof = {row.name: row for row in outcome.holdout.shown.table}
    gap = "selection_rate.difference.between_groups"
    assert held.rows.score is not None
    assert held.rows.label is not None
    base = held.rows.score >= 0.5
    right = np.where(held.rows.label == 1, chance, 1 - chance)

    assert proof["accuracy"].before.value == pytest.approx((base == held.rows.label).mean(), abs=1e-12)
    assert proof["accuracy"].after.value == pytest.approx(right.mean(), abs=1e-12)
    change = proof["accuracy"].change
    assert change is not None
    assert change.value == pytest.approx((right - (base == held.rows.label)).mean(), abs=1e-12)
    assert proof[f"{gap} [race]"].before.value == audit(held, held.data_spec).block("race").by_id[gap].value
    rates = [chance[held.groups().codes == k].mean() for k in range(3)]
    assert proof[f"{gap} [race]"].after.value == pytest.approx(max(rates) - min(rates), abs=1e-12)
    assert outcome.holdout.shown.randomized == pytest.approx(is_random(chance).mean())


def test_selection_takes_the_best_on_the_validation_part() -> None:
    """The chosen value has the highest expected accuracy on rows that neither fitted nor prove."""
    outcome = repair_table(table(), Ramp(), choices={"gamma": (5.0, 0.05, 1.0)})
    scores = {c.parameters: c.score for c in outcome.selection}

    assert f"gamma {outcome.repairer.parameters['gamma']}" == max(scores, key=scores.__getitem__)
    assert outcome.split.validation.size == pytest.approx(400, abs=3)
    assert repair_table(table(), Ramp()).split.validation.size == 0


def test_nothing_is_accurate_without_labels() -> None:
    outcome = repair_table(table(label=False), Ramp())
    assert [row.name for row in outcome.holdout.shown.table if "accuracy" in row.name] == []


def test_checks_are_judged_on_the_held_out_rows() -> None:
    """A gap of zero on the rows of the fit proves nothing: the gate looks at the others."""
    outcome = repair_table(
        table(), Ramp(), settings=Settings(checks=(Check.parse("dp.difference<=0.000001"),))
    )
    fit = {row.name: row for row in outcome.fit.shown.table}

    assert fit["selection_rate.difference.between_groups [race]"].after.value < 1e-12
    assert outcome.checks[0].verdict != "pass"


@pytest.mark.parametrize(
    ("solver", "seed", "words"),
    [
        ("exact", 0, "group 'C' of 'race' has no held-out rows"),
        ("stream", 0, "group 'C' of 'race' has no held-out rows"),
        ("stream", 3, "1 held-out rows belong to groups that the training rows lack"),
    ],
)
def test_no_check_passes_for_a_group_that_nothing_is_known_of(
    solver: str, seed: int, words: str, tmp_path: Path
) -> None:
    """The only row of a group is in one part of the split: its attributes are undecided, and it is named once."""
    rng = np.random.default_rng(0)
    score = rng.random(600).round(3)
    groups = {"race": ["C", *rng.choice(["A", "B"], 599)], "sex": ["x", *rng.choice(["f", "m"], 599)]}
    frame = pd.DataFrame({**groups, "score": score, "label": (rng.random(600) < score).astype(int)})
    frame.to_csv(tmp_path / "people.csv", index=False)
    verdicts = {
        "dp.difference[race]<=0.9": "undecided",
        "dp.difference[race x sex]<=0.99": "undecided",
        "selection_rate[race=A]>=0.01": "pass",
    }
    base = [
        "repair",
        str(tmp_path / "people.csv"),
        "--method",
        "ramp",
        "--solver",
        solver,
        "--seed",
        str(seed),
    ]
    base += ["--config", "none", "-q", "-o", str(tmp_path / "x.fairfix"), "--protected", "race,sex"]
    out, asked = tmp_path / "out.json", [part for check in verdicts for part in ("--check", check)]

    assert run([*base, *asked, "--out", f"json={out}"]) == 3
    result = json.loads(out.read_text())
    assert {one["check"]: one["verdict"] for one in result["checks"]} == verdicts
    for one in result["checks"]:
        assert (one["code"] == "not_proven") == (words in one["reason"]) == (one["verdict"] == "undecided")
    assert next(one["text"] for one in result["messages"] if one["code"] == "unproven").startswith(words)
    assert len(result["messages"]) == len({one["text"] for one in result["messages"]})


def scored(shift: float, many: int = 4000) -> Table:
    """Return scored rows of two groups whose scores lie a shift apart."""
    rng = np.random.default_rng(0)
    race = np.array(["a", "b"])[np.arange(many) % 2]
    score = np.clip(rng.uniform(0.2, 0.8, many) + shift * (race == "a"), 0, 1)
    data = pd.DataFrame({"race": race, "score": score, "label": (rng.random(many) < score).astype(int)})
    return read(data)


@pytest.mark.parametrize(
    ("fitted", "after", "drawn", "told"),
    [
        (0.01, 0.25, 0.06, "leaves the gap"),
        (0.01, 0.25, 0.25, None),
        (0.08, 0.1, 0.06, "exceeds the slack 0.05"),
        (0.055, 0.1, 0.06, None),
    ],
)
@pytest.mark.parametrize("ratio", [False, True])
def test_rounding_that_undoes_the_repair_is_told(
    fitted: float, after: float, drawn: float, told: str | None, ratio: bool
) -> None:
    """Beyond the slack by more than a row, or on held-out rows no smaller gap, which drawn decisions do not leave.

    The same of ratios, which lack as much of 1.
    """
    before, asked = 0.2, ConstraintTarget(Comparison("selection_rate", "difference", "between_groups"), 0.05)
    if ratio:
        fitted, before, after, drawn = 1 - fitted, 1 - before, 1 - after, 1 - drawn
        told = told and told.replace("slack 0.05", "smallest allowed ratio 0.95")
        asked = ConstraintTarget(Comparison("selection_rate", "ratio", "between_groups"), None, 0.95)
    values = (estimate(one, one, one) for one in (fitted, before, after))
    found = list(of_rounding(asked, *values, step=0.01, drawn=drawn))

    assert [n.code for n in found] == ([] if told is None else ["rounding"])
    gaps = f"is {fitted:.4f} on the training rows and {after:.4f} on held-out rows ({before:.4f} before the repair)"
    assert all(f"rounding {told}:" in n and gaps in n for n in found)


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        ((0.7, 0.6, 0.79), 0.75, []),
        ((0.7, 0.6, 0.79), 0.7, ["gap_after"]),
        ((0.7, 0.6, 0.81), 0.75, ["gap_before"]),
        ((0.7, 0.6, 0.81), 0.65, ["no_help"]),
        ((0.9, 0.85, 0.95), 0.92, ["gap_before"]),
        ((0.9, 0.85, 0.95), 0.85, ["no_help"]),
    ],
)
def test_a_ratio_is_worse_where_it_is_less(
    before: tuple[float, float, float], after: float, code: list[str]
) -> None:
    """What is said of a gap is said of a ratio by what it lacks of 1."""
    asked = ConstraintTarget(Comparison("selection_rate", "ratio", "between_groups"), None, 0.8)
    told = list(of_gaps(asked, estimate(*before), estimate(after, after, after)))

    assert [n.code for n in told] == code
    assert all("ratio 0.8" in n for n in told if n.code != "gap_after")
    assert all(("uncertain" in n) == (before[1] < 0.8 <= before[2]) for n in told)
    assert [n.code for n in of_slack(asked, 0.79)] == ["slack"]
    assert not [*of_slack(asked, 0.81), *of_slack(asked, 0.8)]


@pytest.mark.parametrize(("rho", "moves"), [(0.9, True), (0.1, True), (0.55, False)])
def test_a_share_selected_that_moves_much_is_told(rho: float, moves: bool) -> None:
    """Alike groups may be had by selecting many more or many fewer people, which no gap shows."""
    outcome = repair_table(scored(0.0), Ramp(rho=rho))
    row = next(row for row in outcome.holdout.shown.table if row.name == "selection_rate")
    found = [n for n in outcome.messages if n.code == "selection_moved"]

    assert row.before.value == pytest.approx(0.5, abs=0.05)
    assert row.after.value == pytest.approx(rho, abs=0.05)
    assert [n.severity for n in found] == ["warning"] * moves
    assert all(f"changes from {row.before.value:.1%} to {row.after.value:.1%}" in n for n in found)


def test_the_rate_that_the_warning_names_selects_as_many_as_before() -> None:
    """Where few are selected and the scores would select many, the advice ends the warning."""
    rows = scored(0.0)
    few = replace(rows, data_spec=replace(rows.data_spec, score_scale="raw", thresholds=(0.74,)))
    (told,) = (n for n in repair_table(few, Ramp()).messages if n.code == "selection_moved")
    rate = float(re.findall(r"`rho=([\d.]+)`", told)[0])
    outcome = repair_table(few, Ramp(rho=rate))

    assert not [n for n in outcome.messages if n.code == "selection_moved"]
    assert 0.05 < rate < 0.2


def test_a_slack_that_is_missed_on_the_rows_of_the_fit_is_named() -> None:
    """Scores that are wrong of a group hold equal opportunity by themselves, not by the labels."""
    rng = np.random.default_rng(0)
    race, truth = rng.choice(["a", "b"], 2000), rng.beta(2, 2, 2000)
    data = pd.DataFrame({"race": race, "label": (rng.random(2000) < truth).astype(int)})
    data = data.assign(score=np.where(race == "a", truth, truth**2))
    rows = read(data)
    loose, kept = (
        repair_table(rows, Ramp(constraint="equal_opportunity", slack=0.05, calibrate=how))
        for how in ("none", "isotonic")
    )
    gap = {row.id: row for row in loose.fit.shown.table}[
        "true_positive_rate.difference.between_groups"
    ].after.value
    (told,) = (note for note in loose.messages if note.code == "slack")

    assert gap > 0.06
    assert f"is {gap:.4f}" in told
    assert not [note for note in kept.messages if note.code == "slack"]


def test_what_is_expected_of_drawn_values_is_within_the_slack_of_few_rows() -> None:
    """On the rows of the fit the slack holds in expectation over the draws, and the figure says so to four digits."""
    rng = np.random.default_rng(1)
    race, score = (
        rng.choice(["a", "b", "c", "d"], 160, p=[0.6, 0.25, 0.1, 0.05]),
        rng.integers(0, 11, 160) / 10,
    )
    data = pd.DataFrame({"race": race, "score": score, "label": (rng.random(160) < score).astype(int)})
    rows = read(data)
    outcome = repair_table(rows, FairRegression(slack=0.02))
    row = next(row for row in outcome.fit.shown.table if row.name == "ks.to_overall [race]")

    assert row.expected == pytest.approx(0.02, abs=5e-4)


def test_long_texts_are_repeated_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is expected over thousands of draws of each row is the same whatever its features take up."""
    data, sizes = people(40)[["race", "score", "label", "p"]].assign(note="x" * 1_000), []
    data_spec = DataSpec(ColumnRoles(("race",), label="label", score="score"))
    rows, take = read_table(data, data_spec, ("p", "note")), Table.take

    def measured(self: Table, chosen: Ints) -> Table:
        taken = take(self, chosen)
        sizes.append(taken.features.nbytes)
        return taken

    monkeypatch.setattr(Table, "take", measured)
    monkeypatch.setattr("fairfix.tasks.before_after.REDRAWN", 1 << 14)  # 16 MB of texts
    monkeypatch.setattr("fairfix.tasks.before_after.COPIED", 1 << 20)
    method = FairRegression(slack=0.1)
    unread, read_too = (repair_table(rows, method, features=each) for each in (("p",), ("p", "note")))

    assert max(sizes) < 1.1 * (1 << 20)
    expected = [[row.expected for row in one.fit.shown.table if row.expected] for one in (unread, read_too)]
    assert expected[0]
    assert expected[0] == pytest.approx(expected[1], abs=5e-4)


@pytest.mark.parametrize(
    "parameters", [{}, {"solver": "reduction"}, {"solver": "closed-form"}], ids=["plug-in", "mixture", "tube"]
)
def test_what_is_expected_over_draws_asks_models_once(
    monkeypatch: pytest.MonkeyPatch, parameters: dict[str, str]
) -> None:
    """Thousands of draws of a row look at its features as often as one does."""
    data_spec = DataSpec(ColumnRoles(("race",), label="label", score="score"))
    rows, score, scored = read_table(people(200), data_spec, ("p",)), Scorer.__call__, [0]

    def counted(self: Scorer, table: Table) -> Floats:
        scored[0] += len(table)
        return score(self, table)

    monkeypatch.setattr(Scorer, "__call__", counted)
    method = FairRegression(slack=0.05, **parameters)  # type: ignore[arg-type]  # parameters of several types
    outcome = repair_table(rows, method, features=("p",))

    assert outcome.predictor.randomized
    assert any(
        row.expected is not None for part in (outcome.fit, outcome.holdout) for row in part.shown.table
    )
    assert scored[0] < 100 * len(rows)


@pytest.mark.parametrize(
    ("method", "features"),
    [("logloss", ()), ("logloss", ("x",)), ("sensei", ("x",)), ("fair-regression", ("x",))],
)
def test_a_raw_score_has_no_losses_and_breaks_no_proof(method: str, features: tuple[str, ...]) -> None:
    """Beside a base score that is no probability, a learned repair is proved with rates, and its losses stand alone."""
    rng = np.random.default_rng(0)
    race = rng.choice(["a", "b"], 900)
    x = rng.normal(size=900) + (race == "a")
    data = pd.DataFrame(
        {"race": race, "x": x, "score": np.round(50 + 10 * x), "label": (x > rng.normal(size=900)) * 1}
    )
    columns = ColumnRoles(("race",), label="label", score="score")
    rows = read_table(data, DataSpec(columns, score_scale="raw", thresholds=(55.0,)))

    outcome = repair_table(rows, available()[method](), features=features or None)
    told = {row.name: row for row in outcome.holdout.shown.table}
    assert outcome.split is not None
    held = rows.take(outcome.split.holdout).rows
    assert held.score is not None
    right = (held.score >= 55) == held.label
    assert told["accuracy"].before.value == pytest.approx(right.mean(), abs=1e-12)
    assert (
        told["log_loss"].before.reason == "a raw score is not a probability"
        if method == "logloss"
        else "log_loss" not in told
    )
