"""The audit's numbers equal their definitions, and its words are honest."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fairfix.auditing.audit import audit
from fairfix.auditing.checks import Check
from fairfix.auditing.results import Settings
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.merging import MISSING
from fairfix.errors import UsageError
from fairfix.schema.audit import Audit
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from tests.data import people

READING = DataSpec(ColumnRoles(("race", "sex"), label="label", score="score", strata=("product",)))
SHARES = (0.7, 0.2, 0.1)
"""Of the races."""


def by_hand(part: pd.DataFrame) -> dict[str, float]:
    """Return the metrics of a group by scikit-learn and plain means."""
    y, d, p = part.label, (part.score >= 0.5).astype(int), part.score
    tn, fp, fn, tp = sk.confusion_matrix(y, d, labels=[0, 1]).ravel()
    return {
        "base_rate": y.mean(),
        "selection_rate": d.mean(),
        "true_positive_rate": sk.recall_score(y, d),
        "false_positive_rate": fp / (fp + tn),
        "true_negative_rate": tn / (fp + tn),
        "false_negative_rate": fn / (fn + tp),
        "positive_predictive_value": sk.precision_score(y, d),
        "negative_predictive_value": tn / (tn + fn),
        "accuracy": sk.accuracy_score(y, d),
        "mean_score": p.mean(),
        "calibration_gap": (p - y).mean(),
        "square_loss": sk.brier_score_loss(y, p),
        "log_loss": sk.log_loss(y, p),
        "auc": sk.roc_auc_score(y, p),
    }


def test_every_comparison_equals_its_definition() -> None:
    """Differences and ratios between groups, to overall, to a reference; the worst group; within strata."""
    data = people(4000, 0, SHARES)
    report = audit(data, READING, Settings(reference={"race": "a"}))
    hand = {name: by_hand(part) for name, part in data.groupby("race")}
    everybody = by_hand(data)
    found = {name: c.value for name, c in report.block("race").by_id.items()}
    for metric in ("selection_rate", "true_positive_rate", "accuracy", "log_loss", "mean_score"):
        v = {name: h[metric] for name, h in hand.items()}
        ratio = [x / everybody[metric] for x in v.values()]
        expected = {
            "difference.between_groups": max(v.values()) - min(v.values()),
            "ratio.between_groups": min(v.values()) / max(v.values()),
            "difference.to_overall": max(abs(x - everybody[metric]) for x in v.values()),
            "ratio.to_overall": min(min(r, 1 / r) for r in ratio),
            "difference.to_reference": max(abs(x - v["a"]) for x in v.values()),
            "ratio.to_reference": min(min(x / v["a"], v["a"] / x) for x in v.values()),
            "min": min(v.values()),
            "max": max(v.values()),
        }
        for name, truth in expected.items():
            assert found[f"{metric}.{name}"] == pytest.approx(truth, abs=1e-12), (metric, name)
    gaps = [found[f"{m}.difference.between_groups"] for m in ("true_positive_rate", "false_positive_rate")]
    assert found["equalized_odds.difference.between_groups"] == max(gaps)
    strata = [
        part.groupby("race").apply(lambda p: (p.score >= 0.5).mean()) for _, part in data.groupby("product")
    ]
    truth = max(s.max() - s.min() for s in strata)
    assert found["selection_rate.difference.within_strata"] == pytest.approx(truth, abs=1e-12)


def test_comparisons_asked_for_are_those_of_an_audit_of_all() -> None:
    """Each alone is what it is among all others, also the worst of the two of equalized odds and of all strata."""
    data_spec = replace(READING, columns=replace(READING.columns, protected=("race",), strata=("sex",)))
    every = Settings(reference={"race": "a"})
    data = people(300, 0, SHARES)
    whole = audit(data, data_spec, every).block("race").by_id
    for name in [*list(whole)[::7], "equalized_odds.ratio.within_strata", "ks.between_groups"]:
        part = audit(data, data_spec, replace(every, only=[name])).block("race").by_id
        assert part[name] == whole[name]
        assert len(part) <= 4  # with that of the worst stratum; the two of KS distances come together


def test_values_equal_fairlearn() -> None:
    """Where Fairlearn has the number, it is the same to 1e-12; what it calls 0 without a row to count is undefined."""
    fm = pytest.importorskip("fairlearn.metrics", reason="the extra 'dev' is not installed")
    data = people(2000, 3, SHARES)
    data.loc[data.race == "c", "label"] = 0
    decision = (data.score >= 0.5).astype(int)
    found = audit(data, replace(READING, columns=replace(READING.columns, strata=()))).block("race")
    for name, function in (
        ("selection_rate.difference", fm.demographic_parity_difference),
        ("selection_rate.ratio", fm.demographic_parity_ratio),
        ("false_positive_rate.difference", fm.false_positive_rate_difference),
    ):
        value = function(data.label, decision, sensitive_features=data.race)
        assert found.by_id[f"{name}.between_groups"].value == pytest.approx(value, abs=1e-12)
    rates = {"selection_rate": fm.selection_rate, "true_positive_rate": fm.true_positive_rate}
    frame = fm.MetricFrame(metrics=rates, y_true=data.label, y_pred=decision, sensitive_features=data.race)
    for group, metric in product(found.groups, rates):
        undefined = group.group == "c" and metric == "true_positive_rate"
        value = None if undefined else pytest.approx(frame.by_group.loc[group.group, metric], abs=1e-12)
        assert group.metrics[metric].value == value


def values_of(report: Audit) -> dict[Any, float]:
    """Return every number of the attributes."""
    out: dict[Any, float] = {}
    for block in (*report.attributes, *report.strata):
        for c in block.by_id.values():
            out[block.attribute, block.stratum, c.id] = c.point
        for g in block.groups:
            out |= {(block.attribute, block.stratum, g.group, name): v.point for name, v in g.metrics.items()}
    return out


def assert_equal_values(one: Audit, two: Audit, tolerance: float = 1e-12) -> None:
    """The two reports hold the same numbers."""
    a, b = values_of(one), values_of(two)
    assert a.keys() == b.keys()
    np.testing.assert_allclose(list(a.values()), list(b.values()), atol=tolerance, rtol=tolerance)


def test_row_order_is_irrelevant() -> None:
    """Shuffled rows give the same report."""
    data = people(4000, 0, SHARES)

    assert_equal_values(audit(data, READING), audit(data.sample(frac=1, random_state=1), READING))


def test_names_are_only_names() -> None:
    """Renaming groups permutes the rows of the report and changes no gap."""
    data = people(4000, 0, SHARES)
    renamed = data.replace({"race": {"a": "z"}})
    one, two = (audit(d, READING).block("race") for d in (data, renamed))

    for identifier, found in one.by_id.items():
        assert two.by_id[identifier].point == pytest.approx(found.point, abs=1e-12, nan_ok=True)
    assert two.groups[-1].metrics == one.groups[0].metrics


def test_equal_weights_change_nothing() -> None:
    """A constant weight gives the unweighted report, intervals included."""
    data = people(4000, 0, SHARES).assign(w=3.0)
    weighted = audit(data, replace(READING, columns=replace(READING.columns, weight="w")))
    plain = audit(data, READING)
    assert_equal_values(weighted, plain)
    for one, two in zip(
        weighted.block("race").by_id.values(), plain.block("race").by_id.values(), strict=True
    ):
        assert one.lower == pytest.approx(two.lower, abs=1e-9)
        assert one.upper == pytest.approx(two.upper, abs=1e-9)


@pytest.mark.parametrize("scale", ["margin", "logit"])
def test_other_scales_say_the_same(scale: str) -> None:
    """2p - 1 and log-odds give the rates, losses, AUC and KS of the probability."""
    data = people(4000, 0, SHARES)
    data["score"] = data.score.clip(1e-6, 1 - 1e-6)
    other = data.assign(
        score=2 * data.score - 1 if scale == "margin" else np.log(data.score / (1 - data.score))
    )
    one, two = values_of(audit(data, READING)), values_of(audit(other, replace(READING, score_scale=scale)))

    for key in two:
        if "calibration_error" not in str(key):
            assert two[key] == pytest.approx(one[key], abs=1e-9), key


def test_continuous_scores_are_never_decisions_in_silence() -> None:
    """A raw score without a threshold has no selection rate, and a gate on it is undecided."""
    checks = (Check.parse("dp.difference<=0.9"),)
    report = audit(people(4000, 0, SHARES), replace(READING, score_scale="raw"), Settings(checks=checks))

    assert "threshold" in {one.metric: one.reason for one in report.not_computed}["selection_rate"]
    assert "selection_rate" not in report.overall.metrics
    assert {c.verdict for c in report.checks} == {"undecided"}
    assert report.block("race").by_id["ks.between_groups"].value is not None


def test_intervals_of_strata_hold_for_all_strata_at_once() -> None:
    """Inside one of two strata the intervals are those of the stratum alone at half the miscoverage."""
    data = people(4000, 0, SHARES)
    both = audit(data, READING)
    for name, part in data.groupby("product"):
        alone = audit(
            part, replace(READING, columns=replace(READING.columns, strata=())), Settings(confidence=0.975)
        )
        inside = both.block("race", f"product={name}")
        for identifier, found in alone.block("race").by_id.items():
            if not identifier.startswith("scoring_rate"):  # the median is everybody's
                assert inside.by_id[identifier].lower == pytest.approx(found.lower, abs=1e-9)
                assert inside.by_id[identifier].upper == pytest.approx(found.upper, abs=1e-9)


def test_a_stratum_with_a_single_group_is_said() -> None:
    """Where there is nothing to compare the comparison says so, and takes the other strata."""
    data = people(4000, 0, SHARES)
    data.loc[data["product"] == "home", "race"] = "a"
    found = audit(data, READING).block("race").by_id["selection_rate.difference.within_strata"]

    assert found.stratum == "product=car"
    assert "nothing to compare in product=home" in found.reason


def test_a_reference_that_is_not_there_is_refused() -> None:
    """Attribute and group of a reference are checked by name."""
    for reference, words in (({"race": "q"}, "no group 'q'"), ({"age": "a"}, "not audited")):
        with pytest.raises(UsageError, match=words):
            audit(people(4000, 0, SHARES), READING, Settings(reference=reference))


def test_a_randomised_rule_is_audited_by_its_expectation() -> None:
    """Rates of p_positive are means of q, not shares of q >= 0.5."""
    data = people(4000, 0, SHARES).assign(q=lambda d: d.score**2)
    data_spec = DataSpec(ColumnRoles(("race",), label="label", probability="q"))
    for group in audit(data, data_spec).block("race").groups:
        part = data[data.race == group.group]
        assert group.metrics["selection_rate"].value == pytest.approx(part.q.mean(), abs=1e-12)
        tpr = (part.q * part.label).sum() / part.label.sum()
        assert group.metrics["true_positive_rate"].value == pytest.approx(tpr, abs=1e-12)
        right = np.where(part.label == 1, part.q, 1 - part.q).mean()
        assert group.metrics["accuracy"].value == pytest.approx(right, abs=1e-12)


def test_missing_groups_are_a_row_of_the_report() -> None:
    """With missing_group="group" they are compared like any other; with "drop" they are counted as left out."""
    data = people(4000, 0, SHARES)
    data.loc[data.race == "c", "race"] = None
    as_group = audit(data, replace(READING, missing_group="group"))
    found = {g.group: g for g in as_group.block("race").groups}
    truth = (data.score[data.race.isna()] >= 0.5).mean()
    dropped = audit(data, replace(READING, missing_group="drop"))

    assert list(found) == [MISSING, "a", "b"]
    assert found[MISSING].rows == data.race.isna().sum()
    assert found[MISSING].metrics["selection_rate"].value == pytest.approx(truth, abs=1e-12)
    assert sum(g.share for g in found.values()) == pytest.approx(1.0)
    rows, missing = dropped.data.rows, data.race.isna().sum()
    assert rows.read == len(data) == rows.used + missing
    assert [(one.reason, one.rows) for one in rows.excluded] == [("missing group (race)", missing)]


def test_a_group_may_have_any_name() -> None:
    """Levels of crossed groups are those of the columns, even where a name looks like a crossing."""
    data = people(4000, 0, SHARES).replace({"race": {"a": "x & y"}})
    block = audit(data, READING, Settings(intersect=True)).block("race x sex")

    assert {g.levels for g in block.groups} == set(zip(data.race, data.sex, strict=True))
    assert all(g.group == " & ".join(g.levels) for g in block.groups)


@pytest.mark.parametrize("gate_on", ["interval", "point"])
def test_a_ratio_of_zeros_is_undefined_everywhere(gate_on: Any) -> None:
    """0/0 passes no check: not alone, not as part of equalized odds, not in one of the strata."""
    data = people(4000, 0, SHARES)
    perfect = data.assign(score=np.where(data.label == 1, 0.9, 0.1))  # no false positives at all
    checks = tuple(map(Check.parse, ("fpr.ratio>=0.1", "eo.ratio>=0.1", "fpr.ratio.to_overall>=0.1")))
    report = audit(perfect, READING, Settings(checks=checks, gate_on=gate_on))
    assert {r.verdict for r in report.checks} == {"undecided"}
    assert all("0" in r.reason for r in report.checks)

    nobody = data.assign(score=np.where(data["product"] == "car", 0.1, data.score))
    within = (Check.parse("dp.ratio.within_strata>=0.01"),)
    report = audit(nobody, READING, Settings(checks=within, gate_on=gate_on))
    assert {r.verdict for r in report.checks} == {"undecided"}
    assert "product=car" in report.checks[0].reason


def test_an_infinite_loss_spoils_no_other_group() -> None:
    """A label of probability 0 has no loss, not a large one; the other groups keep theirs, and nothing warns."""
    data = people(4000, 0, SHARES)
    data.loc[0, ["score", "label", "race"]] = [0.0, 1, "a"]
    block = audit(data, READING).block("race")
    for group in block.groups:
        part = data[data.race == group.group]
        found = group.metrics["log_loss"]
        truth = None if group.group == "a" else pytest.approx(sk.log_loss(part.label, part.score), abs=1e-12)
        assert found.value == truth
        assert ("infinite" in found.reason) == (truth is None)
    assert block.by_id["log_loss.difference.between_groups"].undefined == ("a",)


def test_sums_that_overflow_are_undefined_with_their_own_reason() -> None:
    """Scores of 1e300 have a mean but no variance in floating point; that is no infinite loss."""
    data = people(4000, 0, SHARES).assign(score=lambda d: d.score * 1e300)
    group = audit(data, replace(READING, score_scale="raw", thresholds=(5e299,))).block("race").groups[0]

    assert group.metrics["mean_score"].value is None
    assert "too large" in group.metrics["mean_score"].reason
    truth = (data.score[data.race == group.group] >= 5e299).mean()
    assert group.metrics["selection_rate"].value == pytest.approx(truth, abs=1e-12)


def test_a_mean_probability_is_bounded_without_labels_too() -> None:
    """The interval of a mean score stays within [0, 1]."""
    data = people(12, 0, SHARES)
    for columns in (
        ColumnRoles(("race",), score="score"),
        ColumnRoles(("race",), label="label", score="score"),
    ):
        for group in audit(data, DataSpec(columns)).block("race").groups:
            found = group.metrics["mean_score"]
            assert 0 <= found.low <= found.value <= found.high <= 1


def test_regression_metrics_equal_their_definitions() -> None:
    """Means and losses of a real-valued target, with scikit-learn as the judge."""
    rng = np.random.default_rng(0)
    data = people(600, 0, SHARES).assign(label=rng.normal(size=600), score=rng.normal(3, 2, 600))
    report = audit(data, replace(READING, task="regression"))
    for group in report.block("race").groups:
        part = data[data.race == group.group]
        truth = {
            "mean_score": part.score.mean(),
            "mean_label": part.label.mean(),
            "mean_error": (part.score - part.label).mean(),
            "square_loss": sk.mean_squared_error(part.label, part.score),
            "absolute_loss": sk.mean_absolute_error(part.label, part.score),
        }
        for name, value in truth.items():
            assert group.metrics[name].value == pytest.approx(value, abs=1e-12)
            assert group.metrics[name].lower <= value <= group.metrics[name].upper
        assert set(group.metrics) == {*truth, "scoring_rate"}
    assert report.block("race").by_id["ks.between_groups"].value is not None


@pytest.mark.slow
@settings(max_examples=6)
@given(st.integers(0, 1000), st.integers(8, 60))
def test_a_weight_of_two_is_the_row_twice(seed: int, n: int) -> None:
    """Whole weights give the values of repeated rows, undefined ones included."""
    data = people(n, seed, SHARES).assign(w=np.random.default_rng(seed).integers(1, 4, n))
    weighted = replace(READING, columns=replace(READING.columns, weight="w"))
    repeated = data.loc[data.index.repeat(data.w)]

    assert_equal_values(audit(data, weighted), audit(repeated, READING))


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("dp.difference[age]<=0", "'age' is not audited; this audit has race, sex"),
        ("dp.difference[b]<=0", "selection_rate\\[race=b\\]"),
        ("tpr[race=q]>=0.5", "race has no group 'q'; it has a, b, c"),
        ("dp.difference.to_reference<=0", "name the reference group with `reference=race=GROUP`"),
        ("dp.difference.within_strata<=0", "name the strata with `strata"),
        ("calibration_gap.ratio>=0.8", "does not support it"),
    ],
)
def test_checks_over_what_is_not_there_are_refused(expression: str, words: str) -> None:
    """Attributes, groups, references, strata and ratios that do not exist."""
    plain = replace(READING, columns=replace(READING.columns, strata=()))

    with pytest.raises(UsageError, match=words):
        audit(people(300, 0, SHARES), plain, Settings(checks=(Check.parse(expression),)))


def test_calibration_by_group_is_within_its_bound() -> None:
    """The binned calibration error equals brute force up to the certified error of the mean scores."""
    data = people(4000, 0, SHARES)
    data["bin"] = np.minimum((data.score * 16).astype(int), 15)
    for group in audit(data, READING).block("race").groups:
        part = data[data.race == group.group]
        bins = part.groupby("bin").agg(n=("label", "size"), rate=("label", "mean"), score=("score", "mean"))
        truth = (bins.n / len(part) * (bins.rate - bins.score).abs()).sum()
        found = group.metrics["calibration_error"]
        assert abs(found.value - truth) <= found.bound
        assert len(group.calibration) == len(bins)
