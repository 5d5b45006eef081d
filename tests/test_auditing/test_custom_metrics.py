"""Metrics of one's own: a quotient of sums has what a metric of the catalogue has, and anything else is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import fairfix
import jsonschema
import numpy as np
import pandas as pd
import pytest
from fairfix.auditing.custom_metrics import own_metrics
from fairfix.auditing.metrics import METRICS, TableRatio
from fairfix.cli import run
from fairfix.errors import UsageError
from fairfix.report import renderer
from fairfix.schema import checked, json_schema
from fairfix.stats.table_ratios import DEGREES, enclosed, monomials
from fairfix.tasks.audit import AuditResult
from fairfix.tasks.result import Result
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    balanced_accuracy_score,
    brier_score_loss,
    cohen_kappa_score,
    f1_score,
    fbeta_score,
    jaccard_score,
    log_loss,
    matthews_corrcoef,
    mean_squared_error,
    precision_score,
    recall_score,
    roc_auc_score,
    zero_one_loss,
)

Functions = Mapping[str, Callable[[Any], Any]]

TWINS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "selection_rate": ("a", lambda c: c.selected / c.rows),
    "base_rate": ("b", lambda c: 1 - c.negatives / c.rows),
    "true_positive_rate": ("c", lambda c: c.true_positives / c.positives),
    "false_positive_rate": ("d", lambda c: 1 + -c.true_negatives / (c.false_positives + c.true_negatives)),
    "negative_predictive_value": ("e", lambda c: 2 * c.true_negatives / (c.rejected + c.rejected)),
    "f1": (
        "g",
        lambda c: c.true_positives / (c.true_positives + (c.false_positives + c.false_negatives) / 2),
    ),
    "accuracy": ("f", lambda c: (c.rows - c.false_positives - c.false_negatives) / c.rows),
}
"""Metric of fairfix -> the same by another name."""

OWN: Functions = {
    "cost": lambda c: (5 * c.false_negatives + c.false_positives) / c.rows,
    "f3": lambda c: (
        10 * c.true_positives / (10 * c.true_positives + c.false_positives + 9 * c.false_negatives)
    ),
    "gain": lambda c: (c.true_positives - 3 * c.false_positives) / c.selected,
    "missed": lambda c: 3 * c.false_negatives / c.positives - 1,
}


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    """Three groups, one of them without selected rows, with weights and strata."""
    rng = np.random.default_rng(8)
    race = rng.choice(["a", "b", "c"], 900, p=[0.5, 0.45, 0.05])
    score = rng.random(900) * np.where(race == "a", 1.0, 0.8) * np.where(race == "c", 0.5, 1.0)
    label = (rng.random(900) < score).astype(int)
    town, weight = rng.choice(["n", "s"], 900), rng.lognormal(0, 0.5, 900)
    return pd.DataFrame({"race": race, "town": town, "weight": weight, "label": label, "score": score})


def audited(rows: pd.DataFrame, metrics: Functions, **more: Any) -> AuditResult:
    """Return the audit by race."""
    given = rows if "weight" in more else rows.drop(columns="weight")
    return fairfix.audit(given, protected="race", metrics=metrics, **more)


@pytest.mark.parametrize("more", [{}, {"weight": "weight"}, {"strata": "town", "reference": "a"}], ids=str)
def test_a_rate_by_another_name_has_the_same_numbers(rows: pd.DataFrame, more: dict[str, Any]) -> None:
    """Of every group, every comparison and every stratum, with limits."""
    result = audited(rows, dict(TWINS.values()), **more)
    groups = result.to_frame().set_index(["stratum", "group"])
    gaps = result.to_frame("comparisons").set_index(["stratum", "comparison"])
    numbers = ["value", "low", "high"]
    for name, (twin, _) in TWINS.items():
        one, other = (groups[groups.metric == metric][numbers] for metric in (name, twin))
        pd.testing.assert_frame_equal(one, other)
        mine = gaps[gaps.index.get_level_values(1).str.startswith(f"{name}.")]
        mine = mine[~mine.index.get_level_values(1).str.contains("covariance")]
        assert len(mine) > 5
        for (stratum, comparison), line in mine.iterrows():
            same = gaps.loc[(stratum, comparison.replace(name, twin))]
            assert line.groups == same.groups
            np.testing.assert_allclose(line[numbers].astype(float), same[numbers].astype(float), rtol=1e-12)


def test_values_are_those_of_other_programs(rows: pd.DataFrame) -> None:
    """F3 of scikit-learn, with and without weights, and a cost by hand."""
    for more in ({}, {"weight": "weight"}):
        frame = audited(rows, OWN, **more).to_frame().set_index(["group", "metric"]).value
        for group, part in rows.groupby("race"):
            decision, weight = (part.score >= 0.5).astype(int), part.weight if more else None
            f3 = fbeta_score(part.label, decision, beta=3, sample_weight=weight, zero_division=np.nan)
            loss = np.where(part.label > decision, 5, np.where(part.label < decision, 1, 0))
            np.testing.assert_allclose(frame[group, "f3"], f3)
            np.testing.assert_allclose(frame[group, "cost"], np.average(loss, weights=weight))


def test_undefined_is_not_zero(rows: pd.DataFrame) -> None:
    """A group without selected rows has no gain from them, and no check on all groups passes."""
    result = audited(rows, OWN, check=["gain.difference<=9", "cost.max<=9"])
    gain = result.to_frame().set_index(["group", "metric"]).loc[("c", "gain")]
    assert np.isnan(gain.value)
    assert gain.reason == "no rows that its denominator counts"
    assert [check["verdict"] for check in result.to_dict()["checks"]] == ["undecided", "pass"]


def test_checks_reports_and_saved_results_know_it(rows: pd.DataFrame, tmp_path: Path) -> None:
    """By name, in every format, and after the audit nothing of it is left."""
    result = audited(rows, OWN, check=["cost.difference<=0.05", "f3[race=a]>=0.99"], strata="town")
    assert [check["verdict"] for check in result.to_dict()["checks"]][1] == "fail"
    assert not set(OWN) & set(METRICS)
    jsonschema.validate(json.loads(result.to_json()), json_schema("audit"))
    (tmp_path / "r.json").write_text(result.to_json())
    again = fairfix.load(str(tmp_path / "r.json"))
    assert isinstance(again, Result)
    for kind in ("text", "markdown", "html", "junit", "sarif", "github"):
        assert again.render(kind) == result.render(kind)
    page = result.to_html()
    for words in ("cost difference", "(5 false_negatives + false_positives) / rows"):
        assert words in page
    assert run(["report", str(tmp_path / "r.json"), "--out", f"html={tmp_path / 'r.html'}"]) == 0
    assert (tmp_path / "r.html").read_text() == page


def test_an_earlier_result_may_have_it_or_not(rows: pd.DataFrame) -> None:
    """Where both have it, its change is judged."""
    old = audited(rows[:600], OWN)
    both = audited(rows, OWN, baseline=old, check="change<=0.5").to_dict()
    assert any(check["id"].startswith("cost") and check["of"] == "change" for check in both["checks"])
    for one, other in ((old, {}), (audited(rows[:600], {}), OWN)):
        checks = audited(rows, other, baseline=one, check="change<=0.5").to_dict()["checks"]
        assert checks
        assert not [check for check in checks if "cost" in check["id"]]


@pytest.mark.parametrize("more", [{}, {"weight": "weight"}], ids=str)
def test_changes_of_the_same_rows_are_paired(rows: pd.DataFrame, more: dict[str, Any]) -> None:
    """With the limits of the twins; on another scale they are so many times as wide."""
    rows = rows[rows["race"] != "c"].assign(person=range(int((rows["race"] != "c").sum())))
    moved = np.random.default_rng(3).normal(0, 0.1, len(rows))
    before = rows.assign(score=(rows["score"] + moved).clip(0, 1))
    own = dict(TWINS.values()) | {"thrice": lambda c: 3 * c.selected / c.rows - 1} | OWN
    limits = [f"{one}.difference.change<=0.5" for one in (*own, *TWINS)]
    result = audited(rows, own, baseline=before, id="person", check=limits, **more).to_dict()
    found = {check["id"].split(".")[0]: check for check in result["checks"]}

    ends = {name: np.array([found[name][end] for end in ("value", "low", "high")]) for name in found}
    for name, (twin, _) in TWINS.items():
        np.testing.assert_allclose(ends[twin], ends[name], atol=1e-9)
    np.testing.assert_allclose(ends["thrice"], 3 * ends["selection_rate"], atol=1e-9)
    assert set(ends) == {*own, *TWINS}
    changed = [one for one in result["baseline"]["changes"] if one["id"].split(".")[0] in own]
    assert len(changed) == len(own)
    assert not any("not_paired" in one for one in changed)


REFUSED: Mapping[str, tuple[Any, str]] = {
    "a product": (lambda c: c.selected * c.positives / c.rows, "multiplies counts"),
    "a root": (lambda c: np.sqrt(c.selected) / c.rows, "sqrt"),
    "a power": (lambda c: c.selected**2 / c.rows, "compares the size of a count"),
    "a larger one": (lambda c: max(c.selected, c.rejected) / c.rows, "compares the size of a count"),
    "a condition": (lambda c: c.selected / c.rows if c.rows else 0, "compares the size of a count"),
    "odds": (lambda c: c.false_positives / c.false_negatives, "numerator counts rows"),
    "two denominators": (lambda c: c.selected / c.rows + c.true_positives / c.positives, "different denominators"),
    "a sum": (lambda c: c.selected, "returns no quotient"),
    "a number": (lambda c: 0.5, "returns no quotient"),
    "a constant": (lambda c: 2 * c.rows / c.rows, "is 2 whatever the counts"),
    "a negative denominator": (lambda c: c.selected / (c.rows - 2 * c.rejected), "none of them negatively"),
    "nothing": (lambda c: c.selected / (c.rows - c.rows), "must count some rows"),
    "infinity": (lambda c: float("inf") * c.selected / c.rows, "must count some rows"),
    "division by zero": (lambda c: c.selected / 0, "division by zero"),
    "another word": (lambda c: c.fp / c.rows, "no attribute 'fp'"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_interval_to_trust_is_refused(case: str, rows: pd.DataFrame) -> None:
    """With the reason, what may be counted, and an example."""
    function, reason = REFUSED[case]
    with pytest.raises(UsageError, match=reason) as raised:
        audited(rows, {"mine": function})
    for word in ("`metrics`: 'mine'", "false_negatives", "lambda c"):
        assert word in str(raised.value)


@pytest.mark.parametrize(
    ("metrics", "reason"),
    [
        ({"accuracy": OWN["cost"]}, "is already a metric of fairfix"),
        ({"dp": OWN["cost"]}, "is already a metric of fairfix"),
        ({"my cost": OWN["cost"]}, "is not a name"),
        ({"cost": 3}, "must be a function"),
    ],
)
def test_names_and_functions_are_looked_at(rows: pd.DataFrame, metrics: Any, reason: str) -> None:
    """Before any data is read."""
    with pytest.raises(UsageError, match=reason):
        fairfix.audit("no_such_file.csv", protected="race", metrics=metrics)


@pytest.mark.parametrize(
    "function",
    [
        f1_score,
        jaccard_score,
        zero_one_loss,
        partial(fbeta_score, beta=0.1),
        partial(recall_score, pos_label=0),
        partial(precision_score, pos_label=0),
        partial(f1_score, average="micro"),
    ],
    ids=range(7),
)
def test_a_function_of_labels_and_decisions_has_its_values(rows: pd.DataFrame, function: Any) -> None:
    """Of every group, as scikit-learn computes them from the rows."""
    result = audited(rows, {"own": function}, threshold=0.3)
    table = result.to_frame()
    own = table[(table.metric == "own") & table.group.isin(["a", "b", "c"])].set_index("group")
    for race, part in rows.groupby("race"):
        decided = (part.score >= 0.3).astype(int)
        assert decided.nunique() == 2
        assert own.loc[race, "value"] == pytest.approx(function(part.label, decided), abs=1e-12)
        assert own.loc[race, "low"] < own.loc[race, "value"] < own.loc[race, "high"]


def test_functions_of_the_catalogue_by_their_names_are_there(rows: pd.DataFrame) -> None:
    """The same bytes as without them."""
    known: Functions = {"f1": f1_score, "accuracy_score": accuracy_score, "mcc": matthews_corrcoef}
    assert audited(rows, known).to_json() == audited(rows, {}).to_json()


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("root", lambda label, decision: recall_score(label, decision) ** 0.5),
        ("odds", lambda label, decision: recall_score(label, decision) / (1 - recall_score(label, decision))),
        ("precision_at", average_precision_score),
        ("square", mean_squared_error),
        ("first", lambda label, decision: decision[:3].mean() + 1 / {0: 1, 1: 1}[decision[0]]),
        ("luck", lambda label, decision: np.random.default_rng().random() + 1 / {0: 1, 1: 1}[decision[0]]),
        ("nan", lambda label, decision: float("nan") + 1 / {0: 1, 1: 1}[decision[0]]),
        ("raises", lambda label, decision: {}["no"]),
        ("count", partial(accuracy_score, normalize=False)),
        ("same", lambda label, decision: float(np.mean(label == decision))),
        ("f1", accuracy_score),
        ("recall", precision_score),
    ],
)
def test_functions_of_rows_that_are_no_quotient_are_refused(name: str, function: Any) -> None:
    """So are those of scores, whose values for decisions would be others, and another function by a metric's name."""
    with pytest.raises(UsageError, match=name):
        own_metrics({name: function})


RATIOS: Mapping[str, Any] = {
    "kappa": cohen_kappa_score,
    "macro_f1": partial(f1_score, average="macro", zero_division=np.nan),
    "weighted_precision": partial(precision_score, average="weighted", zero_division=np.nan),
    "informedness": partial(balanced_accuracy_score, adjusted=True),
}
"""Functions that are quotients of products of counts."""


@pytest.mark.parametrize("more", [{}, {"weight": "weight"}], ids=str)
def test_quotients_of_products_have_the_values_of_scikit_learn(rows: pd.DataFrame, more: Any) -> None:
    """Of every group, and undefined where a denominator is 0; a saved result has them too."""
    result = audited(rows, dict(RATIOS), threshold=0.3, check="kappa.difference<=2", **more)
    table = result.to_frame().set_index(["metric", "group"])
    for name, function in RATIOS.items():
        for race, part in rows.groupby("race"):
            decided = (part.score >= 0.3).astype(int)
            value = function(part.label, decided, sample_weight=part.weight if more else None)
            one = table.loc[name, race]
            assert one.value == pytest.approx(value, abs=1e-9)
            assert one.low < one.value < one.high
    assert [one.verdict for one in result.content.checks] == ["pass"]
    again = checked(json.loads(result.to_json()))
    assert again == result.content
    assert renderer("html")(again) == result.to_html()
    none = audited(rows.assign(label=0), {"informedness": RATIOS["informedness"]}, threshold=0.3).to_frame()
    undefined = none[none.metric == "informedness"]
    assert undefined.value.isna().all()
    assert undefined.reason.all()


def test_a_metric_of_the_catalogue_by_another_name_has_its_numbers(rows: pd.DataFrame) -> None:
    """Of scores and of decisions: value, limits and gaps."""
    own: Functions = {
        "roc": roc_auc_score,
        "phi": matthews_corrcoef,
        "bce": log_loss,
        "brier_2": brier_score_loss,
    }
    own["balanced"] = balanced_accuracy_score
    twins = ("auc", "mcc", "log_loss", "square_loss", "balanced_accuracy")
    result = audited(rows, own, check="roc.difference<=0.9")
    for table, key, numbers in (("groups", "metric", "group"), ("comparisons", "comparison", "groups")):
        frame = result.to_frame(table)
        for name, twin in zip(own, twins, strict=True):
            parts = [frame[frame[key].str.split(".").str[0] == one] for one in (name, twin)]
            one, other = (
                part[[numbers, "value", "low", "high", "reason"]].reset_index(drop=True) for part in parts
            )
            assert len(one)
            pd.testing.assert_frame_equal(one, other)
    assert checked(json.loads(result.to_json())) == result.content


@pytest.mark.parametrize("name", RATIOS)
def test_extremes_on_a_box_of_rates_are_enclosed(name: str) -> None:
    """No rates in a box have a ratio outside its limits, and in a small box these are near its extremes."""
    (metric,) = own_metrics({name: RATIOS[name]})
    assert isinstance(metric, TableRatio)
    rng = np.random.default_rng(1)
    boxes = np.sort(rng.beta(0.5, 0.5, (3, 2, 200)), axis=1)
    boxes[:, 1, ::2] = boxes[:, 0, ::2] + 0.1 * (boxes[:, 1, ::2] - boxes[:, 0, ::2])
    low, high = enclosed(metric.above, metric.below, boxes)
    mix = np.concatenate(
        [np.stack(np.meshgrid(*[np.linspace(0, 1, 9)] * 3), -1).reshape(-1, 3), rng.random((500, 3))]
    )
    p, t, v = (boxes[i, 0] + mix[:, i, None] * (boxes[i, 1] - boxes[i, 0]) for i in range(3))
    shares = np.stack([p * t, p * (1 - t), (1 - p) * (1 - v), (1 - p) * v], axis=-1)
    degree = DEGREES[len(metric.above)]
    over, under = (monomials(shares, degree) @ np.array(part) for part in (metric.above, metric.below))
    value = over / under
    assert (value >= low - 1e-9).all()
    assert (value <= high + 1e-9).all()
    assert (value.min(axis=0)[::2] - low[::2]).max() < 0.02
    assert (high[::2] - value.max(axis=0)[::2]).max() < 0.02
