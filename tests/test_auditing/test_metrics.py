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
from fairfix.auditing.sufficient_statistics import confusion, entry_sums, proportions, table_of
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

scores = st.sampled_from([0.0, 0.25, 0.5, 1.0])
row = st.tuples(st.sampled_from("abc"), st.integers(0, 1), scores, st.integers(1, 4))
rows = st.lists(row, min_size=1, max_size=30)


def counted(data: pd.DataFrame, **columns: str) -> Counts:
    """Count a frame; the score is cut at one half."""
    data_spec = DataSpec(ColumnRoles(("g",), **columns), thresholds=(0.5,))
    return scan(open_source(data), data_spec).counts


def frame_of(found: list[tuple[str, int, float, int]]) -> pd.DataFrame:
    """Return rows of (group, label, score, weight)."""
    return pd.DataFrame(found, columns=["g", "y", "s", "w"])


@LAW
@given(rows, st.booleans(), st.sampled_from(["score", "probability", "prediction"]))
def test_rates_equal_their_definition(
    found: list[tuple[str, int, float, int]], weighted: bool, by: str
) -> None:
    """So do their sums of w and w^2. A cut has ties above it, a probability counts, and a decision goes first."""
    data = frame_of(found).assign(d=lambda f: (f.s < 0.5).astype(int))
    roles = {"score": "s"} if by != "probability" else {"probability": "s"}
    roles |= ({"prediction": "d"} if by == "prediction" else {}) | ({"weight": "w"} if weighted else {})
    table = confusion(counted(data, label="y", **roles), 0.5 if by != "probability" else None)
    chance = {"score": (data.s >= 0.5).astype(float), "probability": data.s, "prediction": data.d}[by]
    weight = data.w if weighted else pd.Series(np.ones(len(data)))

    assert table is not None
    for name, rate in RATES.items():
        above, below = DEFINITIONS[name]
        sums = entry_sums(rate, table)
        values = proportions(sums, weighted).value
        for g, (_, part) in enumerate(data.groupby("g")):
            y, q, w = (v[part.index].to_numpy(float) for v in (part.y, chance, weight))
            hits, totals = ([(w**power * of(y, q)).sum() for power in (1, 2)] for of in (above, below))
            np.testing.assert_allclose([sums[g, :2], sums[g, :2] + sums[g, 2:]], [hits, totals], atol=1e-12)
            expected = hits[0] / totals[0] if totals[0] else math.nan
            assert values[g] == pytest.approx(expected, abs=1e-12, nan_ok=True)


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


def test_what_needs_no_label_or_no_decision_stays_without_it() -> None:
    data = frame_of([("a", 1, 0.6, 1), ("a", 0, 0.1, 1), ("b", 1, 0.5, 3)])
    labels, scores = counted(data, label="y"), counted(data, score="s")

    assert confusion(labels, 0.5) is confusion(scores, None) is None
    for name, counts in (("base_rate", labels), ("selection_rate", scores)):
        assert proportions(entry_sums(RATES[name], table_of(counts, 0.5)), False).value.tolist() == [0.5, 1.0]


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
    every = [f"{m.name}.{part}" for m in METRICS.values() for part in m.comparisons]
    assert len({Comparison.parse(name).title for name in every}) == len(every)
