"""KS, AUC and the pooled median are exact by every way to them, and bins certify their bounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fairfix.auditing import audit as auditor
from fairfix.auditing import distances as distributions
from fairfix.auditing.audit import audit
from fairfix.auditing.results import Settings
from fairfix.data import scan as engine
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.schema.common import Block
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp
from sklearn.metrics import roc_auc_score

from tests.strategies import examples

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:scipy")  # its p-values, which nobody looks at

KINDS = ("smooth", "ties", "clumps", "constant", "apart")


def frame(kind: str, groups: int, n: int, seed: int) -> pd.DataFrame:
    """Return scores of some shape; the last group has three rows."""
    rng = np.random.default_rng(seed)
    group = np.concatenate([rng.integers(0, groups, n - 3), np.full(3, groups - 1)])
    score = {
        "smooth": rng.beta(2, 3 + group / groups),
        "ties": np.round(rng.beta(2, 3 + group / groups), 1),
        "clumps": np.where(rng.random(n) < 0.4, rng.integers(0, 2, n), rng.random(n)),
        "constant": np.full(n, 0.3),
        "apart": (group + rng.random(n)) / groups,
    }[kind]
    return pd.DataFrame(
        {"g": np.char.add("g", group.astype(str)), "label": rng.integers(0, 2, n), "score": score}
    )


def block_of(data: pd.DataFrame, *, exact: bool = True) -> Block:
    """Audit by group."""
    data_spec = DataSpec(ColumnRoles(("g",), label="label", score="score"))
    return audit(data, data_spec, Settings(exact=exact)).block("g")


def pairwise(data: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Return the KS statistic of every pair by scipy."""
    parts = {str(name): part.to_numpy() for name, part in data.groupby("g").score}
    names = sorted(parts)
    return {
        (a, b): ks_2samp(parts[a], parts[b], method="asymp").statistic
        for i, a in enumerate(names)
        for b in names[i + 1 :]
    }


def to_overall(data: pd.DataFrame) -> dict[str, float]:
    """Return the KS statistic of every group against everybody by scipy."""
    return {
        str(name): ks_2samp(part, data.score, method="asymp").statistic
        for name, part in data.groupby("g").score
    }


@pytest.fixture(params=["sorted", "in blocks", "kept", "second pass"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each way to exactness: all rows sorted, a few scores at a time, rows of the candidate bins, a second pass."""
    if request.param == "in blocks":
        monkeypatch.setattr(distributions, "BLOCK", 64)
    elif request.param != "sorted":
        monkeypatch.setattr(auditor, "SORT_ROWS", 10)
    if request.param == "second pass":
        monkeypatch.setattr(engine, "KEEP_ROWS", 10)
        monkeypatch.setattr(engine, "FINE_BINS", 64)
    return str(request.param)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("groups", [2, 5, 15])
def test_ks_equals_scipy(kind: str, groups: int, way: str) -> None:
    """Every distance equals scipy's to 1e-12, and the score named is where it is reached."""
    data = frame(kind, groups, 400, seed=groups)
    block = block_of(data)
    between, overall = block.by_id["ks.between_groups"], block.by_id["ks.to_overall"]
    pairs, alone = pairwise(data), to_overall(data)

    assert between.value == pytest.approx(max(pairs.values()), abs=1e-12)
    assert overall.value == pytest.approx(max(alone.values()), abs=1e-12)
    for name, value in overall.per_group.items():
        assert value.value == pytest.approx(alone[name], abs=1e-12)
    for pair in between.pairs:
        assert pair.value == pytest.approx(pairs[pair.groups], abs=1e-12)
    assert (groups > 12) == (not between.pairs)
    if between.at_score is not None:
        shares = [(data.score[data.g == name] <= between.at_score).mean() for name in between.groups]
        assert abs(shares[0] - shares[1]) == pytest.approx(between.value, abs=1e-12)
    assert {between.bound, overall.bound} <= {None, 0.0}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("groups", [4, 15])
def test_bins_certify_the_distance(kind: str, groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one pass the exact distance lies in [value, value + bound], and the interval holds it."""
    monkeypatch.setattr(engine, "BINS", 32)
    data = frame(kind, groups, 400, seed=1)
    rough, exact = block_of(data, exact=False), block_of(data)
    for name in ("ks.between_groups", "ks.to_overall"):
        found, truth = rough.by_id[name], exact.by_id[name].value
        assert found.value - 1e-12 <= truth <= found.value + (found.bound or 0.0) + 1e-12
        assert found.low - 1e-12 <= truth <= found.high + 1e-12
        assert kind != "smooth" or 0 < (found.bound or 0.0) < 0.5


def test_ties_that_are_merged_keep_every_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weighted rows merged in the second pass give the values and intervals of the rows themselves."""
    data = frame("ties", 3, 400, seed=6).assign(w=np.random.default_rng(2).random(400) + 0.1)
    data_spec = DataSpec(ColumnRoles(("g",), label="label", score="score", weight="w"))
    plain = audit(data, data_spec).block("g")
    monkeypatch.setattr(auditor, "SORT_ROWS", 10)
    monkeypatch.setattr(engine, "KEEP_ROWS", 10)
    monkeypatch.setattr("fairfix.data.files.BATCH_ROWS", 50)
    merged = audit(data, data_spec).block("g")
    for name in ("ks.between_groups", "ks.to_overall", "scoring_rate.difference.between_groups"):
        one, two = (block.by_id[name] for block in (plain, merged))
        assert (one.value, one.low, one.high) == pytest.approx((two.value, two.low, two.high), abs=1e-9)


@settings(max_examples=examples(40))
@given(st.integers(0, 10_000), st.sampled_from(KINDS), st.integers(2, 6), st.integers(10, 80))
def test_ks_of_random_data(seed: int, kind: str, groups: int, n: int) -> None:
    """Small data of every shape."""
    data = frame(kind, groups, n, seed)
    if data.g.nunique() < 2:
        return
    block = block_of(data)

    assert block.by_id["ks.between_groups"].value == pytest.approx(max(pairwise(data).values()), abs=1e-12)


@pytest.mark.parametrize(("kind", "seed"), [("smooth", 4), ("clumps", 1), ("clumps", 12)])
def test_the_largest_of_many_pairs_is_exact(kind: str, seed: int, way: str) -> None:
    """With too many groups to list every pair, the largest may lie where no group is furthest from everybody."""
    data = frame(kind, 14, 2000, seed)
    at = np.unique(data.score)
    shares = [
        np.searchsorted(np.sort(part), at, side="right") / len(part) for _, part in data.groupby("g").score
    ]

    found = block_of(data).by_id["ks.between_groups"]
    assert found.value == pytest.approx(np.ptp(shares, axis=0).max(), abs=1e-12)


@pytest.mark.parametrize("sort", [10, 1 << 17])
def test_parts_may_meet_groups_in_any_order(
    sort: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows kept from parts that hold other groups, in another order, stay with their group."""
    monkeypatch.setattr("fairfix.data.files.PART_ROWS", 50)
    monkeypatch.setattr(auditor, "SORT_ROWS", sort)
    data = frame("smooth", 6, 600, seed=7).sort_values("g", ascending=False)
    data.to_parquet(tmp_path / "d.parquet", row_group_size=50)
    block = audit(tmp_path / "d.parquet", DataSpec(ColumnRoles(("g",), label="label", score="score"))).block(
        "g"
    )

    for pair in block.by_id["ks.between_groups"].pairs:
        assert pair.value == pytest.approx(pairwise(data)[pair.groups], abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weighted", [False, True])
def test_auc_equals_scikit_learn(kind: str, weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact with all rows; from bins within the certified bound."""
    data = frame(kind, 3, 500, seed=2).assign(w=np.random.default_rng(0).random(500) + 0.1)
    data_spec = DataSpec(ColumnRoles(("g",), label="label", score="score", weight="w" if weighted else None))
    exact = audit(data, data_spec).block("g")
    rough = audit(data, data_spec, Settings(exact=False)).block("g")
    for group, binned in zip(exact.groups, rough.groups, strict=True):
        part = data[data.g == group.group]
        truth = roc_auc_score(part.label, part.score, sample_weight=part.w if weighted else None)
        found = binned.metrics["auc"]
        assert group.metrics["auc"].value == pytest.approx(truth, abs=1e-12)
        assert abs(found.value - truth) <= (found.bound or 0.0) + 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [400, 401])
def test_the_scoring_rate_is_the_share_above_the_pooled_median(kind: str, n: int, way: str) -> None:
    """The median is numpy's; shares count scores strictly above it."""
    data = frame(kind, 3, n, seed=3)
    report = audit(data, DataSpec(ColumnRoles(("g",), label="label", score="score")))
    median = float(np.median(data.score))

    assert report.pooled_median == pytest.approx(median, abs=1e-15)
    for group in report.block("g").groups:
        share = (data.score[data.g == group.group] > median).mean()
        assert group.metrics["scoring_rate"].value == pytest.approx(share, abs=1e-12)


def test_weights_are_repeated_rows(way: str) -> None:
    """Integer weights give the distances and the median of repeated rows."""
    data = frame("smooth", 3, 300, seed=4).assign(w=np.random.default_rng(1).integers(1, 4, 300))
    repeated = data.loc[data.index.repeat(data.w)].reset_index(drop=True)
    weighted = audit(data, DataSpec(ColumnRoles(("g",), label="label", score="score", weight="w")))
    plain = audit(repeated, DataSpec(ColumnRoles(("g",), label="label", score="score")))

    assert weighted.pooled_median == plain.pooled_median
    for name in ("ks.between_groups", "ks.to_overall"):
        one, two = (report.block("g").by_id[name].value for report in (weighted, plain))
        assert one == pytest.approx(two, abs=1e-12)
