"""What held-out rows say of the true groups behind noisy ones, with the sampling error of rows and table."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from fairfix.auditing.checks import Check
from fairfix.auditing.results import Settings
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.scan import read_table
from fairfix.data.table import Table
from fairfix.methods.robust import Robust
from fairfix.noise.description import Noise, NoiseTable
from fairfix.noise.rates import DEMANDS
from fairfix.noise.repair_evaluation import RobustnessClaim, shortfall, true_groups_of
from fairfix.tasks.fit_and_evaluate import Outcome, repair_table

NAMES = ("a", "b", "c")
T = np.array([[0.8, 0.15, 0.05], [0.15, 0.8, 0.05], [0.1, 0.2, 0.7]])
SIDES = DEMANDS["equal_opportunity"]


def people(seed: int, many: int) -> dict[str, np.ndarray]:
    """Return true groups, recorded ones by noise that depends on nothing else, scores, and labels."""
    rng = np.random.default_rng(seed)
    true = rng.choice(3, many, p=[0.5, 0.3, 0.2])
    recorded = (T[true].cumsum(1) < rng.random(many)[:, None]).sum(1)
    score = np.round(1 / (1 + np.exp(-rng.normal(0.6 - 0.6 * true, 1.0))), 2)
    label = (rng.random(many) < score).astype(np.int64)
    return {"true": true, "noisy": recorded, "score": score, "label": label}


def table_of(data: dict[str, np.ndarray]) -> Table:
    """Return rows as fairfix reads them."""
    columns = {
        "group": np.array(NAMES)[data["noisy"]],
        "label": data["label"],
        "score": data["score"],
        "sex": np.where(np.arange(data["label"].size) % 2, "f", "m"),
    }
    return read_table(
        pa.table(columns), DataSpec(ColumnRoles(("group",), label="label", score="score"), thresholds=(0.5,))
    )


def survey(data: dict[str, np.ndarray], rows: int, *, label: bool) -> NoiseTable:
    """Return counts of the first rows."""
    counts = np.zeros((2, 3, 3))
    own = slice(0, rows)
    np.add.at(counts, (data["label"][own], data["true"][own], data["noisy"][own]), 1.0)
    return NoiseTable("survey", NAMES, NAMES, counts if label else counts.sum(0), "count")


def repaired(repairer: Robust, data: dict[str, np.ndarray], noise: NoiseTable, *checks: str) -> Outcome:
    """Return a repair with its proof."""
    settings = Settings(checks=tuple(Check.parse(check) for check in checks))
    return repair_table(table_of(data), repairer, noise=Noise(noise), settings=settings)


def told_of(outcome: Outcome) -> tuple[str, ...]:
    """Return warnings and notes."""
    return tuple(map(str, outcome.messages))


@pytest.mark.slow
@pytest.mark.parametrize("shares", [[[0.2], [1.0], [5.0]], [[0.2, 1.0, 5.0]], [[5.0, 1.0, 0.2]]])
def test_where_either_transport_may_hold_the_worse_of_both_is_the_slack(shares: list[list[float]]) -> None:
    """By a survey of other shares of true or of recorded groups, fit and audit hold the same tables."""
    data = people(0, 4000)
    data["noisy"][1000:] = data["true"][1000:]  # so little noise that rules are far from constant
    values = survey(data, 4000, label=True).entries * np.array(shares)
    told = NoiseTable("survey", NAMES, NAMES, values / values.sum(), "joint")
    repairer = Robust(constraint="equal_opportunity", slack=0.1)
    table = table_of(data)
    outcome = repair_table(table, repairer, noise=Noise(told), holdout=0.01)
    own = table.take(outcome.split.fit)
    base = own.with_decision((own.rows.score >= 0.5).astype(float))
    for rows, rule in ((base, None), (own.with_decision(outcome.predictor.predict(own)), outcome.predictor)):
        points = []
        for keep in (None, *told.ways):
            claim = RobustnessClaim(Noise(replace(told, keep=keep)), repairer.demands, 0.1)
            found = true_groups_of(rows, claim, 0.05, rule)
            assert found is not None
            points.append(shortfall(found, "N2", repairer.demands)[0])
        assert points[0] == pytest.approx(max(points[1:]), abs=1e-9)
        assert rule is not None or min(points) < points[0] - 0.01
    assert points[0] == pytest.approx(0.1, abs=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("mirrored", [False, True])
def test_of_groups_that_are_recorded_right_the_distance_is_told_on_either_side(mirrored: bool) -> None:
    """The worst group is below everybody, or in the mirror above; fit and proof tell how far, under each assumption."""
    data = people(4, 3000)
    data["noisy"] = data["true"]
    if mirrored:
        data |= {"score": 1 - data["score"], "label": 1 - data["label"]}
    repairer = Robust(constraint="equal_opportunity", slack=1.0)
    outcome = repaired(repairer, data, survey(data, 3000, label=True))
    notes = {note[:21].strip(): note for note in told_of(outcome)}
    for rows, note in (
        (outcome.split.fit, notes["the worst true group"]),
        (outcome.split.holdout, notes["on held-out rows, the"]),
    ):
        chance = outcome.predictor.predict(table_of(data).take(rows))
        own = {name: values[rows] for name, values in data.items()}
        rates = [chance[(own["label"] == 1) & (own["true"] == j)].mean() for j in range(3)]
        apart = np.abs(np.array(rates) - chance[own["label"] == 1].mean())
        assert apart.argmax() == 2
        found = re.findall(r"(\d\.\d+) (?:if|under|within)", note)
        assert len(found) >= 3
        assert [float(one) for one in found] == pytest.approx([apart.max()] * len(found), abs=1e-4), note


@pytest.mark.slow
def test_rates_of_rules_that_use_the_recorded_group_are_inverted_rule_by_rule() -> None:
    """With noise that depends on the true group alone, the estimate is right; that of the cells alone is not."""
    data = people(1, 200_000)
    noise = survey(data, 200_000, label=False)
    outcome = repaired(
        Robust(assume="class-conditional", constraint="equal_opportunity", slack=0.03, z=0.0), data, noise
    )
    held = outcome.split.holdout
    table = table_of(data).take(held)
    chance = outcome.predictor.predict(table)
    told = RobustnessClaim(Noise(noise, assume="class-conditional"), SIDES, 0.03)
    by_rule = true_groups_of(table.with_decision(chance), told, 0.05, outcome.predictor)
    by_cell = true_groups_of(table.with_decision(chance), told, 0.05)
    assert by_rule is not None
    assert by_cell is not None
    own = {name: values[held] for name, values in data.items()}
    inside = own["label"] == 1
    truth = np.array([chance[inside & (own["true"] == j)].mean() for j in range(3)])
    right, wrong = (found.bounds["N4"].rates["true_positive_rate"][0] for found in (by_rule, by_cell))
    assert np.abs(right - truth).max() < 0.01
    assert np.abs(wrong - truth).max() > 0.03
    low, high = by_rule.bounds["N4"].draws["true_positive_rate"]
    assert (np.quantile(low, 0.001, axis=0) < truth).all()
    assert (truth < np.quantile(high, 0.999, axis=0)).all()


@pytest.mark.slow
def test_the_proof_shows_and_gates_true_groups() -> None:
    """Rows of the table, a check with three verdicts, and a note in words; probabilities have no error of their own."""
    data = people(2, 4000)
    noise = survey(data, 1000, label=True)
    outcome = repaired(
        Robust(constraint="equal_opportunity"),
        data,
        noise,
        "tpr.difference.true_groups<=0.9",
        "tpr.difference.true_groups<=0.01",
        "tpr.difference.under_n1<=0.3",
        "tpr.difference.under_n4<=0.9",
    )
    verdicts = [check.verdict for check in outcome.checks]
    assert verdicts == ["pass", "undecided", "undecided", "undecided"]
    assert "assumes N2" in outcome.checks[0].reason
    assert "not stated" in outcome.checks[3].reason
    row = next(
        r
        for r in outcome.holdout.shown.table
        if r.name.startswith("true_positive_rate.difference.true_groups")
    )
    assert row.before.high > row.after.high
    (said,) = (note for note in told_of(outcome) if note.startswith("on held-out rows, the worst"))
    assert "under N2 (up to" in said
    assert "N4" not in said
    assert "rows and table. The slack is 0.05" in said
    shares = replace(noise, entries=noise.entries / noise.entries.sum(), form="joint")
    (said,) = (
        note
        for note in told_of(repaired(Robust(constraint="equal_opportunity"), data, shares))
        if note.startswith("on held-out rows, the worst")
    )
    assert "error of rows. The slack" in said
    assumed = repaired(Robust(assume="class-conditional"), data, noise, "dp.difference.true_groups<=0.9")
    (said,) = (note for note in told_of(assumed) if note.startswith("on held-out rows, the worst"))
    assert "under N4 (up to" in said  # what the fit was held to
    assert "assumes N4" in assumed.checks[0].reason


def test_a_recorded_group_that_was_not_held_out_and_several_columns() -> None:
    """A group of one row is padded; the cells of two columns have no audit by a table of one, and nothing fails."""
    data = people(3, 1500)
    data["noisy"] = np.where(data["noisy"] == 2, 0, data["noisy"])
    data["noisy"][0] = 2
    noise = survey(people(4, 1500), 1500, label=True)
    outcome = repaired(Robust(constraint="equal_opportunity"), data, noise)
    assert any("on held-out rows, the worst" in note for note in told_of(outcome))
    data_spec = DataSpec(ColumnRoles(("group", "sex"), label="label", score="score"), thresholds=(0.5,))
    columns = {
        "group": np.array(NAMES)[data["noisy"]],
        "sex": np.tile(["f", "m"], 750),
        "label": data["label"],
        "score": data["score"],
    }
    table = read_table(pa.table(columns), data_spec, ())
    told = RobustnessClaim(Noise(noise), SIDES, 0.05)
    assert true_groups_of(table.with_decision(np.ones(len(table))), told, 0.05) is None
