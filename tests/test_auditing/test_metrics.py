"""Metrics equal their definitions on rows, whichever way the decisions came."""

from __future__ import annotations

import math
from collections.abc import Callable

import fairfix
import numpy as np
import pandas as pd
import pytest
from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.metrics import ALIASES, EQUALIZED_ODDS, MEANS, METRICS, NEEDS, RATES, metrics_for
from fairfix.auditing.sufficient_statistics import confusion, label_table, rate_sums, share
from fairfix.data.counts import Counts, Floats
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.files import open_source
from fairfix.data.scan import scan
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score, f1_score, matthews_corrcoef

from tests.strategies import examples

LAW = settings(max_examples=examples(60))

DEFINITIONS: dict[str, tuple[Callable[[Floats, Floats], Floats], Callable[[Floats, Floats], Floats]]] = {
    "base_rate": (lambda y, q: y, lambda y, q: np.ones_like(y)),
    "selection_rate": (lambda y, q: q, lambda y, q: np.ones_like(y)),
    "true_positive_rate": (lambda y, q: y * q, lambda y, q: y),
    "false_positive_rate": (lambda y, q: (1 - y) * q, lambda y, q: 1 - y),
    "true_negative_rate": (lambda y, q: (1 - y) * (1 - q), lambda y, q: 1 - y),
    "false_negative_rate": (lambda y, q: y * (1 - q), lambda y, q: y),
    "positive_predictive_value": (lambda y, q: y * q, lambda y, q: q),
    "negative_predictive_value": (lambda y, q: (1 - y) * (1 - q), lambda y, q: 1 - q),
    "accuracy": (lambda y, q: y * q + (1 - y) * (1 - q), lambda y, q: np.ones_like(y)),
}
"""Rate -> what a row adds to its numerator and denominator, from label and probability of the decision."""

rows = st.lists(
    st.tuples(
        st.sampled_from("abc"), st.integers(0, 1), st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.integers(1, 4)
    ),
    min_size=1,
    max_size=30,
)


def counted(data: pd.DataFrame, **columns: str) -> Counts:
    """Count a frame; the score is cut at one half."""
    data_spec = DataSpec(ColumnRoles(("g",), **columns), thresholds=(0.5,))
    return scan(open_source(data), data_spec).counts


def frame_of(found: list[tuple[str, int, float, int]]) -> pd.DataFrame:
    """Return rows of (group, label, score, weight)."""
    return pd.DataFrame(found, columns=["g", "y", "s", "w"])


def assert_defined(table: Floats, data: pd.DataFrame, chance: pd.Series, weight: pd.Series) -> None:
    """Every rate, and its sums of w and w^2, equal the definition in every group."""
    for name, rate in RATES.items():
        above, below = DEFINITIONS[name]
        success, failure = rate_sums(rate, table)
        values = share(success, failure)
        for g, (_, part) in enumerate(data.groupby("g")):
            y, q, w = (v[part.index].to_numpy(float) for v in (data.y, chance, weight))
            for power in (1, 2):
                total, hits = (w**power * below(y, q)).sum(), (w**power * above(y, q)).sum()
                found = success[g, power - 1], success[g, power - 1] + failure[g, power - 1]
                assert found == pytest.approx((hits, total), abs=1e-12)
            total = (w * below(y, q)).sum()
            if total:
                assert values[g] == pytest.approx((w * above(y, q)).sum() / total, abs=1e-12)
            else:
                assert math.isnan(values[g])


@LAW
@given(rows, st.booleans())
def test_rates_of_a_cut_score(found: list[tuple[str, int, float, int]], weighted: bool) -> None:
    """Decisions are score >= threshold, ties included."""
    data = frame_of(found)
    counts = counted(data, label="y", score="s", **({"weight": "w"} if weighted else {}))
    table = confusion(counts, 0.5)

    assert table is not None
    weight = data.w if weighted else pd.Series(np.ones(len(data)))
    assert_defined(table, data, (data.s >= 0.5).astype(float), weight)


@LAW
@given(rows, st.booleans())
def test_rates_of_a_randomised_decision(found: list[tuple[str, int, float, int]], weighted: bool) -> None:
    """A probability counts as itself; nobody cuts it at one half."""
    data = frame_of(found)
    counts = counted(data, label="y", probability="s", **({"weight": "w"} if weighted else {}))
    table = confusion(counts, None)

    assert table is not None
    assert_defined(table, data, data.s, data.w if weighted else pd.Series(np.ones(len(data))))


@LAW
@given(rows, st.booleans())
def test_numbers_of_whole_tables_are_those_of_scikit_learn(
    found: list[tuple[str, int, float, int]], weighted: bool
) -> None:
    """Where there is something to divide by; undefined, never 0, everywhere else."""
    data = frame_of([*found, ("z", 1, 0.5, 1)])
    given = data if weighted else data.drop(columns="w")
    more = {"weight": "w"} if weighted else {}
    result = fairfix.audit(given, protected="g", label="y", score="s", threshold=0.5, **more)
    numbers = result.to_frame().set_index(["group", "metric"]).value
    for group, part in data.groupby("g"):
        y, d, w = part.y, (part.s >= 0.5).astype(int), part.w if weighted else None
        both_labels, both_decisions = y.nunique() == 2, d.nunique() == 2
        for name, function, there in (
            ("f1", f1_score, bool(y.any() or d.any())),
            ("balanced_accuracy", balanced_accuracy_score, both_labels),
            ("mcc", matthews_corrcoef, both_labels and both_decisions),
        ):
            expected = function(y, d, sample_weight=w) if there else math.nan
            assert numbers[group, name] == pytest.approx(expected, abs=1e-12, nan_ok=True)


@LAW
@given(rows)
def test_decisions_read_equal_decisions_made(found: list[tuple[str, int, float, int]]) -> None:
    """A column of score >= t gives the table of the threshold t, and wins over it."""
    data = frame_of(found).assign(d=lambda f: (f.s >= 0.5).astype(int))
    cut = confusion(counted(data, label="y", score="s", weight="w"), 0.5)
    read = confusion(counted(data, label="y", prediction="d", weight="w"), None)
    both = confusion(counted(data, label="y", score="s", prediction="d", weight="w"), 0.5)

    assert cut is not None
    assert read is not None
    np.testing.assert_allclose(read, cut, atol=1e-12)
    np.testing.assert_array_equal(both, read)


@LAW
@given(rows)
def test_rates_that_complement_each_other_add_to_one(found: list[tuple[str, int, float, int]]) -> None:
    """TPR + FNR = FPR + TNR = 1 wherever they are defined."""
    table = confusion(counted(frame_of(found), label="y", score="s"), 0.5)
    assert table is not None
    value = {name: share(*rate_sums(rate, table)) for name, rate in RATES.items()}
    for one, two in (
        ("true_positive_rate", "false_negative_rate"),
        ("false_positive_rate", "true_negative_rate"),
    ):
        total = value[one] + value[two]
        np.testing.assert_allclose(total[~np.isnan(total)], 1.0, rtol=1e-15)
        np.testing.assert_array_equal(np.isnan(value[one]), np.isnan(value[two]))


def test_without_labels_the_selection_rate_stays() -> None:
    """One label row is enough for what needs no label."""
    data = frame_of([("a", 0, 0.6, 1), ("a", 0, 0.1, 1), ("b", 0, 0.5, 1)])
    table = confusion(counted(data, score="s"), 0.5)
    assert table is not None

    assert share(*rate_sums(RATES["selection_rate"], table)).tolist() == [0.5, 1.0]


def test_without_decisions_the_base_rate_stays() -> None:
    """No threshold, no score: no table of decisions, but labels can be counted."""
    data = frame_of([("a", 1, 0.6, 1), ("a", 0, 0.1, 1), ("b", 1, 0.5, 3)])
    counts = counted(data, label="y")

    assert confusion(counts, 0.5) is None
    assert confusion(counted(data, label="y", score="s"), None) is None
    assert share(*rate_sums(RATES["base_rate"], label_table(counts))).tolist() == [0.5, 1.0]


def test_the_catalogue_speaks_of_metrics_that_exist() -> None:
    """Names are keys, aliases and equalized odds lead to metrics, every rate is tested by its definition."""
    assert DEFINITIONS.keys() == RATES.keys()
    for task in ("classification", "regression"):
        assert list(metrics_for(task)) == list(METRICS)
        for name, metric in metrics_for(task).items():
            assert name == metric.name
            assert set(metric.needs) <= set(NEEDS)
            assert metric.formula
            assert metric.title
            assert metric.undefined or "individual" in metric.needs
            assert metric.bounds == (0.0, 1.0) or metric.scale != "share"
            assert metric.bounds[0] >= 0 or "ratio" not in metric.kinds or name == "mean_score"
    assert {*RATES, *MEANS, *EQUALIZED_ODDS} <= set(METRICS)
    assert not set(ALIASES) & set(METRICS)
    assert len(ALIASES) == sum(len(metric.aliases) for metric in METRICS.values())


def test_titles_of_comparisons() -> None:
    """A title is made of metric, kind and scope; the value of one group has the metric's own."""
    titles = {name: Comparison.parse(name).title for name in TITLES}

    assert titles == TITLES
    every = [f"{m.name}.{part}" for m in METRICS.values() for part in m.comparisons]
    assert len({Comparison.parse(name).title for name in every}) == len(every)


TITLES = {
    "selection_rate": "selection rate",
    "selection_rate.difference.between_groups": "demographic parity difference",
    "selection_rate.ratio.to_reference": "demographic parity ratio, to reference",
    "selection_rate.difference.true_groups.worst_case": "demographic parity difference, true groups, worst case",
    "true_positive_rate.difference.within_strata": "equal opportunity difference, within strata",
    "log_loss.max": "largest group log loss",
    "ks.to_overall": "KS distance, to overall",
}
