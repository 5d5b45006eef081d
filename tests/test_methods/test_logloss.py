"""Fair robust log loss from the table to the artifact: what holds, in which reading, and what is refused."""

from __future__ import annotations

import json
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fairfix.auditing.comparisons import Comparison
from fairfix.cli import run
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.scan import read_table
from fairfix.data.table import Table
from fairfix.errors import ArtifactError, ConvergenceWarning, DataError, UsageError
from fairfix.methods import logloss
from fairfix.methods.learned import design_of
from fairfix.methods.logloss import EVENTS, LogLoss, of_own_group
from fairfix.methods.problem import RepairProblem
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.repaired import Repaired
from fairfix.models.score_models import TruncatedLogit
from fairfix.models.trace import Caution
from fairfix.schema.common import estimate
from fairfix.schema.repair import Evaluation
from fairfix.solvers.robust_log_loss import truncated
from fairfix.tasks.fit_and_evaluate import Outcome, repair_table
from fairfix.tasks.warnings import Blindness, of_blindness
from sklearn.linear_model import Ridge

from tests.conftest import Call

NAMES = ("age", "job")
PARITY = "selection_rate.difference.between_groups"


def frame(seed: int = 0, many: int = 1500, groups: int = 2) -> pa.Table:
    """Return people with features, a label and groups that differ."""
    rng = np.random.default_rng(seed)
    group = np.arange(many) % groups
    age = rng.normal(40 + 6 * group, 10, many)
    job = np.array(["cook", "nurse", "smith"])[rng.integers(0, 3, many)]
    z = 0.07 * (age - 45) + (job == "smith") - 0.4
    return pa.table(
        {
            "person": pa.array([f"p{i}" for i in range(many)]),
            "race": pa.array([f"g{g}" for g in group]),
            "age": pa.array(age),
            "job": pa.array(job),
            "score": pa.array(1 / (1 + np.exp(-z))),
            "label": pa.array((rng.random(many) < 1 / (1 + np.exp(-z))).astype(int)),
        }
    )


def table_of(data: pa.Table, *, score: bool = False) -> Table:
    """Return the validated table with its features."""
    columns = ColumnRoles(("race",), label="label", score="score" if score else None, id="person")
    return read_table(data, DataSpec(columns, thresholds=(0.5,) if score else ()), NAMES)


def fit(repairer: LogLoss, table: Table, **more: Any) -> RepairedPredictor:
    """Fit on features."""
    return repairer.fit(RepairProblem(table, features=NAMES, **more), rng=np.random.default_rng(0))


def rates(chance: np.ndarray, table: Table, label: int | None) -> np.ndarray:
    """Return the mean probability of each group, among rows of a label."""
    codes = table.groups().codes
    inside = np.ones(len(table), dtype=bool) if label is None else table.rows.label == label
    return np.bincount(codes[inside], chance[inside]) / np.bincount(codes[inside])


def changes(proof: Evaluation) -> dict[str, float]:
    """Return name -> value after the repair."""
    return {row.name: row.after.value for row in proof.table}


@pytest.mark.parametrize("constraint", ["equal_opportunity", "predictive_equality", "equalized_odds"])
def test_both_gaps_of_a_constraint_on_labels_are_told(constraint: str) -> None:
    """The gap given the label is none; that of the rule, which does not know it, is what the note says."""
    table = table_of(frame(groups=3))
    predictor = fit(LogLoss(constraint=constraint, holds="given-label"), table)
    assert isinstance(predictor, TruncatedLogit)
    chance = predictor.predict(table)
    after = max(np.ptp(rates(chance, table, label)) for label in EVENTS[constraint])
    (note,) = predictor.trace.notes
    score, codes = predictor.scorer(table), table.groups().codes

    for label in EVENTS[constraint]:
        assert np.ptp(rates(truncated(score, predictor.prices[label, codes]), table, label)) < 1e-8
    assert f"is {0:.4f} given the true labels, and {after:.4f} for the rule" in note
    assert after > 1e-4


@pytest.mark.parametrize("constraint", list(EVENTS))
@pytest.mark.parametrize("slack", [0.0, 0.03])
@pytest.mark.parametrize("group", ["used", "unused"])
def test_the_rule_as_it_is_used_holds_the_slack(constraint: str, slack: float, group: str) -> None:
    """The recorded rates of what new rows get are the slack apart, and no note has another gap to tell."""
    table = table_of(frame(groups=3))
    predictor = fit(LogLoss(constraint=constraint, slack=slack, group=group), table)
    chance = predictor.predict(table)
    gap = max(np.ptp(rates(chance, table, label)) for label in EVENTS[constraint])

    assert gap == pytest.approx(slack, abs=1e-8)
    assert predictor.trace.converged
    assert predictor.trace.gap < 1e-8
    assert predictor.trace.notes == ()


def test_fits_for_several_slacks_share_models_and_each_tells_of_their_warnings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table, calls = table_of(frame(3)), []
    fit_classes = logloss.fit_classes

    def warning(*given: Any, **more: Any) -> Any:
        calls.append(given)
        warnings.warn(ConvergenceWarning("stopped early"), stacklevel=1)
        return fit_classes(*given, **more)

    monkeypatch.setattr(logloss, "fit_classes", warning)
    problem, found = RepairProblem(table, features=NAMES, many_fits=True), {}
    for slack in (0.1, 0.02):
        with pytest.warns(ConvergenceWarning, match="stopped early"):
            found[slack] = LogLoss(group="unused", slack=slack).fit(problem, rng=np.random.default_rng(0))
    assert len(calls) == 1

    with pytest.warns(ConvergenceWarning):
        alone = fit(LogLoss(group="unused", slack=0.02), table)
    np.testing.assert_array_equal(found[0.02].predict(table), alone.predict(table))
    assert not np.array_equal(found[0.1].predict(table), alone.predict(table))


def test_a_rule_without_the_group_does_not_look_at_it() -> None:
    """Whatever the group of a row is said to be, it gets the same; the rule with the group differs by it."""
    table, other = table_of(frame()), table_of(frame().set_column(1, "race", pa.array(["new"] * 1500)))
    blind = fit(LogLoss(group="unused"), table)
    aware = fit(LogLoss(group="used"), table, protected_as_feature=True)

    assert blind.inputs == ()
    assert aware.inputs == ("race",)
    assert blind.predict(other).tobytes() == blind.predict(table).tobytes()
    assert np.isnan(aware.predict(other)).all()
    assert isinstance(blind.trace.aware, TruncatedLogit)
    np.testing.assert_allclose(blind.trace.aware.predict(table), aware.predict(table), atol=1e-9)


def test_a_group_that_features_tell_costs_nothing_to_leave_out() -> None:
    """With the group spelt out by a feature, the rule without it is nearly the one with it, the group as a feature."""
    data = frame(many=3000)
    table = table_of(data.set_column(3, "job", data["race"]))
    blind, aware = (fit(LogLoss(group=how), table) for how in ("unused", "used"))
    assert np.abs(blind.predict(table) - aware.predict(table)).max() < 0.03


@pytest.mark.parametrize(
    "settings", [{"group": "unused"}, {"constraint": "equalized_odds"}, {"group": "used"}], ids=str
)
def test_cross_validation_judges_the_rule_that_is_shipped(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of a fold get what a rule of that kind gives them which has been fitted to the others alone."""
    judged: list[np.ndarray] = []
    monkeypatch.setattr(logloss, "_log_loss", lambda chance, *_: judged.append(chance) or 0.5)
    monkeypatch.setattr(logloss, "GRID", (1e-3,))
    table = table_of(frame())
    fit(LogLoss(learner="linear(l2=cv)", **settings), table)
    out = design_of(RepairProblem(table, features=NAMES), "linear").folds == 0
    alone = fit(LogLoss(**settings), table.take(np.flatnonzero(~out)))

    # features are standardised by all rows in one, and by the others in the other
    np.testing.assert_allclose(judged[0], alone.predict(table.take(np.flatnonzero(out))), atol=2e-3)


def test_chances_are_those_given_the_own_group() -> None:
    """They sum to 1 in it and are 0 elsewhere, keep their ratios, and are even where floats have lost them."""
    by_class = np.array([[0.1, 0.3, 0.6], [0.1, 0.3, 0.6], [0.0, 0.0, 1.0], [0.2, 0.2, 0.6]])
    own = of_own_group(by_class, np.array([0, 0, 1]), np.array([0, 1, 0, -1]))

    np.testing.assert_allclose(own, [[0.25, 0.75, 0], [0, 0, 1], [0.5, 0.5, 0], [0, 0, 0]], atol=1e-15)


def test_the_certificate_of_a_fit_that_ended_early_has_all_of_the_gap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its bound lies the whole certified distance below its value, and below the optimum."""
    table = table_of(frame())
    best = fit(LogLoss(), table).trace.objective
    monkeypatch.setattr("fairfix.solvers.robust_log_loss.POINTS", 5)
    monkeypatch.setattr("fairfix.solvers.robust_log_loss.ROUNDS", 0)
    with pytest.warns(ConvergenceWarning):
        trace = fit(LogLoss(), table).trace
    (one,) = trace.certificates

    assert not trace.converged
    assert trace.gap > 1e-6
    assert one.value - one.bound == pytest.approx(trace.gap)
    assert one.bound <= best


def outcome(repairer: LogLoss, **more: Any) -> Outcome:
    """Repair with proof."""
    return repair_table(table_of(frame(many=3000)), repairer, features=NAMES, **more)


def test_each_reading_has_a_table_of_its_own() -> None:
    """Expected and rounded numbers stand apart, whichever is in force, and say the same of the same reading."""
    drawn, rounded = (
        outcome(LogLoss(decisions=how)).holdout.shown for how in ("randomized", "deterministic")
    )

    assert (drawn.reading, rounded.reading) == ("drawn", "rounded")
    for proof, other in ((drawn, rounded), (rounded, drawn)):
        assert {row.name: row.after.value for row in proof.other if PARITY in row.name} == {
            name: value for name, value in changes(other).items() if PARITY in name
        }
        assert {row.name: row.after.value for row in proof.other}["accuracy"] == changes(other)["accuracy"]
    assert drawn.randomized == 1.0
    assert rounded.randomized == 0.0
    about_scores = {"log_loss", "square_loss", "ks", "score_change"}
    assert not about_scores & {name.split(".")[0] for name in changes(rounded)}
    assert {row.name: row.after.value for row in rounded.other}["log_loss"] == pytest.approx(
        changes(drawn)["log_loss"]
    )


def test_the_rounded_reading_is_about_decisions_at_the_threshold() -> None:
    """Its accuracy and its gap are those of P >= 0.5, computed by hand."""
    found = outcome(LogLoss(decisions="deterministic"))
    assert found.split is not None
    held = table_of(frame(many=3000)).take(found.split.holdout)
    decided = (found.predictor.predict(held) >= 0.5).astype(float)
    assert "before they are rounded" in str(found.predictor.trace.certificates[0])
    shown = changes(found.holdout.shown)

    assert shown["accuracy"] == pytest.approx(np.mean(decided == held.rows.label))
    assert shown[f"{PARITY} [race]"] == pytest.approx(np.ptp(rates(decided, held, None)))


def test_a_threshold_that_drawn_decisions_do_not_heed_is_told() -> None:
    """Chances are the same at any threshold, which is said where it is not the usual one and nothing is rounded."""
    plain = table_of(frame(), score=True)
    strict = replace(plain, data_spec=replace(plain.data_spec, thresholds=(0.7,)))
    usual, drawn = fit(LogLoss(), plain), fit(LogLoss(), strict)
    rounded = fit(LogLoss(decisions="deterministic"), strict)

    np.testing.assert_array_equal(usual.predict(plain), drawn.predict(strict))
    assert usual.trace.notes == ()
    assert not any("ignore the threshold" in note for note in rounded.trace.notes)
    (note,) = drawn.trace.notes
    assert isinstance(note, Caution)
    assert "ignore the threshold of 0.7" in note


def test_rounding_that_leaves_a_group_no_choice_is_told() -> None:
    """Where a group's probabilities are all on one side, as the plain model's are not, rounding is warned of."""
    rng = np.random.default_rng(0)
    data = frame(many=2400, groups=3)
    ahead = np.asarray(data["race"]) != "g0"
    age = 2.5 * ahead + rng.normal(size=2400)
    label = rng.random(2400) < 1 / (1 + np.exp(-1.5 * age))
    data = data.set_column(2, "age", pa.array(age)).set_column(5, "label", pa.array(label.astype(int)))
    table = table_of(data)
    rounded, drawn = (fit(LogLoss(decisions=how), table) for how in ("deterministic", "randomized"))
    lifted = rounded.predict(table)[table.groups().codes == 0]
    (note,) = rounded.trace.notes

    assert (lifted >= 0.5).all()
    assert "rounded at 0.5" in note
    assert "decision 1" in note
    assert drawn.trace.notes == ()
    logits = replace(table, data_spec=replace(table.data_spec, score_scale="logit", thresholds=(0.0,)))
    assert fit(LogLoss(decisions="deterministic"), logits).trace.notes == (note,)
    assert fit(LogLoss(decisions="deterministic", slack=1.0), table).trace.notes == ()


def test_cross_validation_takes_the_least_log_loss() -> None:
    """Of features that tell nothing, the largest penalty is best; the note names what was chosen."""
    rng = np.random.default_rng(1)
    data = frame(many=400)
    data = data.set_column(2, "age", pa.array(rng.normal(size=400)))
    data = data.set_column(5, "label", pa.array(np.resize([0, 1, 1, 0], 400)))
    nothing = fit(LogLoss(learner="linear(l2=cv)"), table_of(data))
    much = fit(LogLoss(learner="linear(l2=cv)", slack=1.0), table_of(frame(many=6000)))

    assert nothing.trace.notes[0].startswith("l2 0.1 has the least log loss")
    assert float(much.trace.notes[0].split()[1]) < 0.05


def test_cross_validation_without_a_usable_fold_says_so() -> None:
    """Where every fold holds the only rows of some group, the usual penalty is taken, and no claim is made."""
    data = frame(many=600)
    group = np.array(data["race"].to_pylist(), dtype=object)
    group[:40] = [f"one{i}" for i in range(40)]
    alone = fit(
        LogLoss(learner="linear(l2=cv)"), table_of(data.set_column(1, "race", pa.array(group.tolist())))
    )
    usual = fit(LogLoss(), table_of(data.set_column(1, "race", pa.array(group.tolist()))))

    assert alone.trace.notes[0].startswith(
        "cross validation could not choose l2, so it is 0.001: without one of the 5 folds, some group"
    )
    assert alone.state()[1]["prices"].tobytes() == usual.state()[1]["prices"].tobytes()


def test_selection_goes_by_the_log_loss() -> None:
    """Of several penalties the validation part takes the one of least log loss."""
    found = outcome(LogLoss(), choices={"learner": ("linear(l2=10)", "linear(l2=0.001)")})

    assert [c.chosen for c in found.selection] == [False, True]
    assert all(c.score < 0 for c in found.selection)


def test_a_group_without_a_label_is_named() -> None:
    """Odds need both labels in every group: the error names group, label and a way out."""
    data = frame()
    label = np.where(np.asarray(data["race"]) == "g1", 1, np.asarray(data["label"]))
    table = table_of(data.set_column(5, "label", pa.array(label)))

    with pytest.raises(
        DataError, match=r"group 'g1' of 'race' has no rows with label 0 .* demographic_parity"
    ):
        fit(LogLoss(constraint="equalized_odds"), table)
    assert fit(LogLoss(), table).trace.converged


def test_an_estimator_is_no_learner() -> None:
    """Its scores are not those of the game."""
    with pytest.raises(UsageError, match="learner must be one of linear"):
        LogLoss(learner=Ridge())


def test_a_damaged_state_of_chances_is_refused() -> None:
    """Classes have a price each, belong to groups that there are, and every group has one."""
    predictor = fit(LogLoss(constraint="equalized_odds"), table_of(frame()))
    settings, arrays = predictor.state()
    owners, prices = arrays["owners"], arrays["prices"]

    assert type(predictor).from_state(settings, arrays).state()[1]["owners"].tobytes() == owners.tobytes()
    for change in (
        {"owners": owners + 1},
        {"owners": np.zeros_like(owners)},
        {"owners": owners[:-1]},
        {"owners": owners[:-1], "prices": prices[:-1]},
    ):
        with pytest.raises(ArtifactError):
            type(predictor).from_state(settings, {**arrays, **change})


@pytest.mark.parametrize(
    ("loss", "aware", "warning"),
    [
        (0.49, 0.46, None),
        (0.51, 0.47, "loses 30% of the information in the features .* loses 10%: use `group=used`"),
        (0.60, 0.58, "loses 75% .* loses 65%: allow more `slack`"),
    ],
)
def test_a_dear_rule_without_the_group_is_warned_of(loss: float, aware: float, warning: str | None) -> None:
    """From a quarter of what features tell on, with the way out that is the cheaper one."""
    more = estimate(loss - aware, 0.0, 0.1)
    note, *cautions = of_blindness(
        Blindness("race", Comparison.parse(PARITY), loss, aware, more, 0.45, 0.65, 0.01, 0.02)
    )

    assert {f"{loss:.4f}", f"{aware:.4f}"} <= set(note.split())
    assert not isinstance(note, Caution)
    assert [bool(re.search(warning or "", text)) for text in cautions] == ([True] if warning else [])


def test_in_a_shell(tmp_path: Path, call: Call) -> None:
    """Repair, inspect, predict on rows without labels: probabilities out, drawn by identity or rounded."""
    out, new = f"{tmp_path}/a.fairfix", tmp_path / "new.csv"
    pq.write_table(frame(many=3000), tmp_path / "data.parquet")
    others = frame(seed=1, many=300).drop_columns(["label", "score"]).to_pandas()
    others.to_csv(new, index=False)
    method = "--method logloss --protected race --id person --features age,job --config none --format json"

    def predictions() -> Any:
        assert call(f"predict {out} {new} -o {tmp_path}/out.parquet --config none")[0] == 0
        return pq.read_table(tmp_path / "out.parquet").to_pandas()

    def rows(more: str) -> Any:
        status, said, _ = call(f"repair {tmp_path}/data.parquet {method} {more} -o {out}")
        assert status == 0
        return json.loads(said), predictions()

    told, drawn = rows("--constraint equalized_odds")
    assert Repaired.load(out).required == ("race", "age", "job", "person")
    assert told["proof"]["holdout"]["reading"] == "drawn"
    assert told["criterion"] == "equalized_odds.difference.between_groups"
    assert drawn["randomized"].all()
    assert abs(drawn["decision"].mean() - drawn["p_positive"].mean()) < 0.1
    assert ((drawn["p_positive"] >= 0.5) != drawn["decision"]).any()

    told, plain = rows("--decisions deterministic")
    assert Repaired.load(out).required == ("race", "age", "job")
    assert told["proof"]["holdout"]["reading"] == "rounded"
    assert not plain["randomized"].any()
    assert ((plain["prediction"] >= 0.5) == plain["decision"]).all()
    others.drop(columns="person").to_csv(new, index=False)
    assert predictions()["prediction"].to_numpy().tobytes() == plain["prediction"].to_numpy().tobytes()


@pytest.mark.parametrize("policy", ["error", "abstain", "original"])
def test_unseen_groups(policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A group that the fit has not seen is an error, left out, or decided by the plain model."""
    data, new = tmp_path / "data.parquet", tmp_path / "new.parquet"
    pq.write_table(frame(many=2000), data)
    pq.write_table(frame(seed=1, many=300, groups=3), new)
    out = str(tmp_path / "a.fairfix")
    basic = ["--method", "logloss", "--protected", "race", "--id", "person", "--features", "age,job"]
    assert run(["repair", str(data), *basic, "--unseen", policy, "-o", out, "-q", "--config", "none"]) == 0
    status = run(["predict", out, str(new), "-o", str(tmp_path / "out.parquet"), "--config", "none"])

    if policy == "error":
        assert status == 2
        assert "group 'g2' of 'race' was not in the training rows" in capsys.readouterr().err
        return
    found = pq.read_table(tmp_path / "out.parquet").to_pandas()
    other = found[found["race"] == "g2"]
    assert other["p_positive"].isna().all() if policy == "abstain" else other["p_positive"].isin([0, 1]).all()
    assert found[found["race"] != "g2"]["p_positive"].between(0, 1, inclusive="neither").all()
