"""Audits with intervals that hold at all looks: which numbers have one, what reads it, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fairfix
import numpy as np
import pandas as pd
import pytest
from fairfix.cli import run
from fairfix.errors import UsageError
from fairfix.stats.estimates import Proportions
from fairfix.stats.gaps import difference_between_groups
from fairfix.stats.sequences import ConfidenceSequences

from tests.test_auditing.test_state import ABOUT, batch


def people(rows: int = 1500, gap: float = 0.1) -> pd.DataFrame:
    """Return rows of two groups with scores, labels and decisions."""
    return batch(0, rows, gap).drop(columns="id")


def audited(frame: pd.DataFrame, **more: Any) -> dict[str, Any]:
    """Return the JSON result of an audit with such intervals."""
    made = fairfix.audit(frame, **ABOUT, always_valid=True, **more)
    return dict(json.loads(made.to_json()))


def comparisons(result: dict[str, Any]) -> dict[str, Any]:
    """Return the comparisons of the first attribute."""
    return {one["id"]: one for one in result["attributes"][0]["comparisons"]}


def test_numbers_have_the_limits_of_sequences() -> None:
    """Rates of groups and their difference have them, the report says so, and each is wider than of one look."""
    frame = people()
    result, once = (
        audited(frame),
        json.loads(fairfix.audit(frame, **ABOUT).to_json()),
    )
    assert result["settings"]["always_valid"]
    assert "always_valid" not in once["settings"]
    totals = frame.groupby("group")["decision"].agg(["sum", "count"])
    rates = ConfidenceSequences.of(Proportions(totals["sum"], totals["count"]))
    gap, made = difference_between_groups(rates, 0.05), comparisons(result)
    own = made["selection_rate.difference.between_groups"]
    assert (own["low"], own["high"]) == pytest.approx((gap.low, gap.high))
    for name, one in made.items():
        other = comparisons(once)[name]
        assert one["value"] == pytest.approx(other["value"])
        assert one["low"] <= other["low"] + 1e-9, name
        assert one["high"] >= other["high"] - 1e-9, name
    assert {"square_loss.max", "ks.between_groups", "equalized_odds.ratio.between_groups"} <= set(made)


def test_what_has_no_such_interval_is_left_out_with_the_reason() -> None:
    """A check of it cannot pass, and real-valued predictions have their rates and means left out."""
    result = audited(people(), check="auc.min>=0.1")
    reasons = {one["metric"] for one in result["not_computed"]}
    assert {"auc", "calibration_error", "scoring_rate", "log_loss", "mcc", "balanced_accuracy"} <= reasons
    assert [(one["verdict"], one["code"]) for one in result["checks"]] == [("undecided", "not_computed")]
    frame = people().assign(label=lambda one: one["score"] * 100)
    real = fairfix.audit(
        frame, protected="group", task="regression", label="label", score="score", always_valid=True
    )
    assert {"mean_score", "mean_error", "absolute_loss", "square_loss"} <= {
        one.metric for one in real.content.not_computed
    }
    assert "ks.between_groups" in real.content.block("group").by_id


def test_a_rate_that_one_group_alone_has_is_no_warning() -> None:
    """Here nobody of group b is selected, so that the others of group a have no precision."""
    group, selected = np.array(["a", "b"] * 20), np.array([1, 0] * 20)
    frame = pd.DataFrame({"group": group, "prediction": selected, "label": np.arange(40) % 4 < 2})
    made = fairfix.audit(frame, protected="group", always_valid=True).to_dict()["attributes"][0][
        "comparisons"
    ]
    (one,) = (c for c in made if c["id"] == "positive_predictive_value.difference.to_overall")
    assert one["undefined"] == ["b"]


def test_own_metrics_of_unequal_rows_are_left_out() -> None:
    """A cost per row has an interval; one whose rows count differently has none."""
    own: Any = {
        "cost": lambda c: (5 * c.false_negatives + c.false_positives) / c.rows,
        "uneven": lambda c: c.true_positives / (c.positives + c.rows),
    }
    asked: Any = {"protected": "group", "prediction": "decision", "always_valid": True}
    made = fairfix.audit(people(), **asked, metrics=own)
    values = made.content.block("group").groups[0].metrics
    assert 0 <= values["cost"].low < values["cost"].value < values["cost"].high <= 5
    assert "uneven" in {one.metric for one in made.content.not_computed}


def test_verdicts_read_the_intervals(tmp_path: Path) -> None:
    """A check that one look fails is undecided where all looks are to count, and fails with ten times the rows."""
    few, many = tmp_path / "few.parquet", tmp_path / "many.parquet"
    people(700, gap=0.1).to_parquet(few)
    people(7000, gap=0.1).to_parquet(many)
    words = ["--protected", "group", "--prediction", "decision", "--check", "dp.difference<=0.005", "-q"]
    statuses = [
        run(["audit", str(path), *words, *more])
        for path, more in ((few, []), (few, ["--always-valid"]), (many, ["--always-valid"]))
    ]
    assert statuses == [1, 3, 1]


def test_a_state_that_is_read_as_one_look_is_warned_of(tmp_path: Path) -> None:
    """By command and library, unless the intervals hold for all looks."""
    people(700).to_parquet(tmp_path / "d.parquet")
    state = str(tmp_path / "state.counts")
    words = ("--protected", "group", "--prediction", "decision", "--state", state, "-q")
    assert run(["audit", str(tmp_path / "d.parquet"), *words]) == 0
    for always, codes in ((True, set()), (False, {"one_look"})):
        messages = fairfix.audit(state, always_valid=always).content.messages
        assert {one.code for one in messages if one.severity == "warning"} == codes


def test_equal_weights_are_none_and_unequal_ones_are_refused() -> None:
    """Three times every row's weight changes nothing; weights that differ have no such limits."""
    frame = people()
    plain, weighted = audited(frame), audited(frame.assign(w=3.0), weight="w")
    for name, one in comparisons(plain).items():
        other = comparisons(weighted)[name]
        assert (one["low"], one["high"]) == pytest.approx((other["low"], other["high"]), abs=1e-9)
    with pytest.raises(UsageError, match="weight"):
        audited(frame.assign(w=frame["score"]), weight="w")


def test_counts_with_noise_are_refused() -> None:
    """The noise of private counts is no part of these limits."""
    counts = fairfix.count(people(), protected="group", label="label", prediction="decision", private=1.0)
    with pytest.raises(UsageError, match="private"):
        fairfix.audit(counts, always_valid=True)


def test_a_baseline_of_the_other_kind_is_refused(tmp_path: Path) -> None:
    """A saved result with always-valid intervals is no baseline of an audit of one look."""
    saved = tmp_path / "old.json"
    saved.write_text(json.dumps(audited(people())))
    with pytest.raises(fairfix.errors.DataError, match="always_valid"):
        fairfix.audit(people(), **ABOUT, baseline=str(saved))
