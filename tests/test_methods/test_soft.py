"""The ramp of soft groups: groups that are known by probabilities of membership alone."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import cvxpy
import fairfix
import numpy as np
import pandas as pd
import pytest
from fairfix.cli import run
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.scan import read_table
from fairfix.errors import ColumnError, DataError, UsageError
from fairfix.methods.problem import RepairProblem
from fairfix.methods.ramp import Ramp

from tests.results import texts_of
from tests.test_methods.refusals import refusals

NAMES = {"a": "p_a", "b": "p_b", "c": "p_c"}
SOFT = "membership:" + ",".join(f"{group}={column}" for group, column in NAMES.items())
GIVEN = {"method": "ramp", "noise": SOFT, "id": "id"}


def frame(seed: int = 0, rows: int = 1200, *, sharp: bool = False) -> pd.DataFrame:
    """Return scored rows with probabilities of three groups, all 0 or 1 where ``sharp``."""
    rng = np.random.default_rng(seed)
    z = rng.dirichlet([0.8, 0.5, 0.4], rows)
    if sharp:
        z = np.eye(3)[rng.integers(0, 3, rows)]
    score = np.clip(rng.beta(2, 3, rows) + 0.25 * z[:, 0] - 0.1 * z[:, 2], 0, 1)
    own = {column: z[:, j] for j, column in enumerate(NAMES.values())}
    return pd.DataFrame(
        {"id": np.arange(rows), "score": score, "label": (rng.random(rows) < score).astype(int), **own}
    )


def weighted_gap(data: pd.DataFrame, chance: Any, weight: Any = 1.0) -> float:
    """Return the largest difference of selection rates weighted by the probabilities, written down by itself."""
    z = data[list(NAMES.values())].to_numpy() * np.broadcast_to(weight, len(data))[:, None]
    return float(np.ptp(np.asarray(chance) @ z / z.sum(axis=0)))


def test_from_the_shell_to_the_decisions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The slack is held on the rows of the fit, the proof is that of an audit of held-out rows, and N4 is said."""
    data, artifact, decided = (str(tmp_path / name) for name in ("data.csv", "r.fairfix", "decided.csv"))
    frame().to_csv(data, index=False)
    words = f"--method ramp --noise {SOFT} --slack 0.03 --id id --config none".split()
    check = ["--check", "dp.difference.true_groups<=0.3", "--check", "dp.difference.under_n1<=0.001"]
    status = run(["repair", data, *words, *check, "-o", artifact, "--format", "json"])
    result = json.loads(capsys.readouterr().out)
    rows = {part: {row["id"]: row for row in result["proof"][part]["table"]} for part in ("fit", "holdout")}
    fit, held = (rows[part][result["criterion"]] for part in ("fit", "holdout"))

    assert result["criterion"] == "selection_rate.difference.true_groups"
    assert fit["after"]["value"] == pytest.approx(0.03, abs=1e-9)
    assert fit["before"]["value"] > 0.1
    assert [one["verdict"] for one in result["checks"]] == ["pass", "undecided"]
    assert status == 3
    assert result["checks"][0]["value"] == held["after"]["value"]
    assert any("which the data cannot show" in note for note in texts_of(result, "note"))

    assert run(["predict", artifact, data, "-o", decided, "--config", "none"]) == 0
    assert "use the protected attribute (p_a, p_b, p_c)" in capsys.readouterr().err
    out = pd.read_csv(decided)
    gaps = sorted((fit["after"]["value"], held["after"]["value"]))
    assert gaps[0] - 0.01 <= weighted_gap(frame(), out["p_positive"]) <= gaps[1] + 0.01
    assert run(["inspect", artifact]) == 0
    told = capsys.readouterr().out
    assert "needs             score, p_a, p_b, p_c" in told
    assert "group needed      yes" in told


def fit(repairer: Ramp, data: pd.DataFrame, *protected: str, weight: str | None = None) -> Any:
    """Return the rows as a table, and the predictor fitted to them."""
    columns = ColumnRoles(protected, label="label", score="score", weight=weight)
    table = read_table(data, DataSpec(columns, thresholds=(0.5,)), columns=NAMES.values())
    return table, repairer.fit(RepairProblem(table), rng=np.random.default_rng(0))


@pytest.mark.parametrize("gamma", [1e-3, 0.05, 0.5])
def test_weights_count_and_slack_is_held(gamma: float) -> None:
    """Rates are weighted by the weights of rows too, at every width."""
    data = frame()
    data["weight"] = np.random.default_rng(1).integers(0, 4, len(data)).astype(float)
    for slack in (0.0, 0.02, 2.0):
        table, predictor = fit(Ramp(noise=SOFT, slack=slack, gamma=gamma), data, weight="weight")
        assert predictor.trace.converged
        z = np.stack([table.features[column] for column in NAMES.values()]) * table.weight
        assert np.ptp(z @ predictor.predict(table) / z.sum(axis=1)) <= slack + 1e-9


def labelled_gap(data: pd.DataFrame, chance: Any, label: int) -> float:
    """Return the largest difference of rates among rows of a label, weighted by the probabilities."""
    inside = data["label"].to_numpy() == label
    return weighted_gap(data[inside], np.asarray(chance)[inside])


RATES = {"equal_opportunity": [1], "predictive_equality": [0], "equalized_odds": [1, 0]}


@pytest.mark.parametrize("slack", [0.0, 0.05])
@pytest.mark.parametrize("constraint", ["demographic_parity", *RATES])
@pytest.mark.parametrize("way", [{}, {"shape": "centred"}, {"calibrate": "none"}], ids=str)
def test_certain_groups_are_recorded_groups(constraint: str, slack: float, way: dict[str, str]) -> None:
    """Probabilities that are all 0 or 1 give the ramp of the groups that they name, recalibrated or not."""
    data = frame(sharp=True)
    data["group"] = np.array(list(NAMES))[data[list(NAMES.values())].to_numpy().argmax(axis=1)]
    same: dict[str, Any] = {"constraint": constraint, "slack": slack, **way}
    table, soft = fit(Ramp(noise=SOFT, **same), data)
    recorded, plain = fit(Ramp(**same), data, "group")

    np.testing.assert_allclose(soft.predict(table), plain.predict(recorded), atol=1e-7)
    assert constraint in RATES or soft.trace.objective == pytest.approx(plain.trace.objective, abs=1e-10)
    if "calibrate" not in way:
        gaps = [labelled_gap(data, soft.predict(table), label) for label in RATES.get(constraint, ())]
        assert max(gaps, default=0.0) <= slack + 1e-8


@pytest.mark.parametrize("gamma", [1e-3, 0.05, 0.5])
@pytest.mark.parametrize("constraint", ["equal_opportunity", "predictive_equality"])
def test_one_rate_holds_the_slack_by_the_labels(constraint: str, gamma: float) -> None:
    """On the rows of the fit, whatever the probabilities, the width and the weights of rows."""
    data = frame(rows=700)
    data["weight"] = np.random.default_rng(2).integers(1, 4, len(data)).astype(float)
    repeated = data.loc[np.repeat(data.index, data["weight"].astype(int))]
    (label,) = RATES[constraint]
    for slack in (0.0, 0.03, 2.0):
        asked = Ramp(noise=SOFT, constraint=constraint, slack=slack, gamma=gamma)
        table, made = fit(asked, data, weight="weight")
        _, again = fit(asked, repeated.assign(weight=1.0), weight="weight")

        assert made.trace.converged
        assert labelled_gap(repeated, made.predict(table)[repeated.index], label) <= slack + 1e-8
        np.testing.assert_allclose(again.predict(table), made.predict(table), atol=1e-6)


@pytest.mark.parametrize("constraint", RATES)
def test_the_certificate_of_rates_is_that_of_a_quadratic_program(constraint: str) -> None:
    """What is proven of the rule is true of its rows: the value, and that nothing within the slack is below."""
    data, events = frame(rows=160), RATES[constraint]
    table, made = fit(Ramp(noise=SOFT, constraint=constraint, slack=0.05, gamma=0.3), data)
    z, label, chance = data[list(NAMES.values())].to_numpy(), data["label"].to_numpy(), made.predict(table)
    score = 2 * data["score"].to_numpy() - 1
    eta = sum(part * curve(score) for part, curve in zip(z.T, made.curves, strict=True))
    by_label = {1: eta, 0: 1 - eta}
    weight = np.ones(len(data))
    if len(events) == 1:
        weight = np.where(label == events[0], 1 / np.maximum(by_label[events[0]], 1e-300), 0.0)
    share, q, held = weight / weight.sum(), cvxpy.Variable(len(data)), []
    for event in events:
        rates = [(share * by_label[event] * own) @ q / (share * by_label[event] * own).sum() for own in z.T]
        held += [one - other <= 0.05 for one in rates for other in rates]
    cost = cvxpy.sum(cvxpy.multiply(share, 0.15 * q**2 - cvxpy.multiply(2 * eta - 1, q)))
    best = cvxpy.Problem(cvxpy.Minimize(cost), [q >= 0, q <= 1, *held]).solve(solver="CLARABEL")
    (proven,) = made.trace.certificates

    assert proven.value == pytest.approx(float(share @ (0.15 * chance**2 - (2 * eta - 1) * chance)), abs=1e-9)
    assert proven.bound == pytest.approx(best, abs=1e-6)
    assert ("inverse of its probability" in proven.objective) == (len(events) == 1)


def test_both_rates_are_counted_by_the_recalibrated_scores() -> None:
    """With equalized odds the labels differ from that by chance alone, which shrinks as rows grow."""
    missed = []
    for rows in (500, 20_000):
        data = frame(rows=rows)
        table, made = fit(Ramp(noise=SOFT, constraint="equalized_odds", slack=0.02), data)
        missed.append(max(labelled_gap(data, made.predict(table), label) for label in (0, 1)) - 0.02)
    assert missed[1] < min(missed[0], 0.01)


def test_rounded_probabilities_are_taken_as_shares_of_their_sum() -> None:
    """Numbers with three digits need not sum to 1 to the last; the rule is that of the numbers by their sum."""
    data = frame()
    rounded = data.assign(**{column: data[column] * 1.0004 for column in NAMES.values()})
    table, plain = fit(Ramp(noise=SOFT), data)
    other, same = fit(Ramp(noise=SOFT), rounded)

    np.testing.assert_allclose(same.predict(other), plain.predict(table), atol=1e-7)


@pytest.mark.parametrize(("given", "told"), refusals("memberships"), ids=str)
def test_what_does_not_go_with_probabilities_is_refused(given: dict, told: str) -> None:
    """Each by its name, with what to do."""
    if "unlabelled" in given:
        given = {"unlabelled": frame()}
    with pytest.raises((UsageError, ColumnError, DataError), match=re.escape(told)):
        fairfix.repair(frame(rows=200).assign(none=1), **{**GIVEN, **given})


def test_a_row_without_probabilities_is_named_by_its_number_in_the_data() -> None:
    """Before anything is split, by repair, compare and predict; which says that no policy decides on it."""
    data = frame(rows=300).assign(likely="a")
    data.loc[::2, "likely"] = "b"
    made = fairfix.repair(data, **GIVEN)
    column = next(iter(NAMES.values()))
    data.loc[123, column] = np.nan
    given = {"protected": "likely", "noise": SOFT, "methods": "ramp", "slacks": 0.05}
    for task in (
        lambda: fairfix.repair(data, **GIVEN),
        lambda: fairfix.compare(data, **given),
        lambda: made.repaired.predict(data),
    ):
        with pytest.raises(DataError, match=f"column '{column}' is missing in row 124\\b(?! of those used)"):
            task()
    with pytest.raises(DataError, match="`unseen` does not apply"):
        fairfix.predict(made, data, unseen="original")


def test_counts_hold_no_probabilities(tmp_path: Path) -> None:
    """A repair from counts says what it lacks."""
    data = frame(rows=200).assign(group=lambda rows: (rows["p_a"] > 0.5).map({True: "x", False: "y"}))
    fairfix.count(data, protected="group").save(tmp_path / "a.counts")
    with pytest.raises(UsageError, match=r"`noise=membership:.*` needs rows, and the data is counts"):
        fairfix.repair(str(tmp_path / "a.counts"), method="ramp", noise=SOFT)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"p_b": np.nan}, r"column 'p_b' is missing in row 4 "),
        ({"p_b": -0.1}, r"column 'p_b' is -0\.1, which is not a probability, in row 4 "),
        ({"p_a": 1.0, "p_b": 1.0, "p_c": 0.5}, r"sum to 2\.5 in row 4 "),
    ],
)
def test_what_is_no_probability_is_named_in_the_fit_and_at_predict_time(change: dict, told: str) -> None:
    """The column, the row and the number; nothing is decided."""
    data = frame(rows=200)
    good = fairfix.repair(data, **GIVEN).repaired
    data.loc[3, list(change)] = list(change.values())
    with pytest.raises(DataError, match=told):
        good.predict(data)
    with pytest.raises(DataError, match=told.rsplit(" in row", 1)[0]):
        fairfix.repair(data, **GIVEN)
    with pytest.raises(DataError, match="in row 1 "):
        good.predict(data.iloc[3].to_dict())


def test_a_group_of_nobody_is_named() -> None:
    """A rate among no rows is undefined."""
    data = frame(rows=200)
    data["p_b"], data["p_c"] = data["p_b"] + data["p_c"], 0.0
    with pytest.raises(
        DataError, match="group 'c' has only 0 of the rows to fit on, by the probabilities in 'p_c'"
    ):
        fairfix.repair(data, **GIVEN)
