"""Direct effects equal hand computations, contain known truths, and say when they should not be judged."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.scan import read_table
from fairfix.data.table import Table
from fairfix.errors import ColumnError, DataError
from fairfix.individual import contrasts, nuisances, residual
from fairfix.individual.contrasts import cells_of
from fairfix.individual.matched import LEAST_MATCHED, keys_of, matched_effect
from fairfix.individual.residual import LEAST_ROWS, ResidualContrast, residual_effect
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from tests.strategies import examples

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Keep fits of a few hundred rows from waiting for threads, which takes seconds on a busy machine."""
    with threadpool_limits(1):
        yield


@pytest.fixture
def few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grow a tenth of the trees: enough for laws that hold whatever has been learned."""
    for module, name in ((nuisances, "ROUNDS"), (residual, "ROUNDS"), (residual, "FIRST_ROUNDS")):
        monkeypatch.setattr(module, name, 10)


def sigmoid(values: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-values)))


def world(seed: int, many: int, kind: str = "probability") -> tuple[Floats, Ints, Floats]:
    """Return scores, groups that five columns tell of, and those columns."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(many, 5))
    X[:, 1], X[:, 2] = X[:, 1].round(), X[:, 2] > 0
    group = (rng.random(many) > sigmoid(1.2 * X[:, 0] + 0.8 * X[:, 1] - 0.6 * X[:, 2])).astype(np.int64)
    got = 0.8 * X[:, 0] + 0.5 * X[:, 1] * X[:, 2] + 0.4 * np.abs(X[:, 3]) - 0.3 + 0.4 * (group == 0)
    if kind == "real":
        return got + rng.normal(size=many), group, X
    score = sigmoid(got)
    return (score if kind == "probability" else (rng.random(many) < score).astype(np.float64)), group, X


def coarse(seed: int, many: int = 4000, groups: int = 2) -> tuple[Floats, Ints, Ints]:
    """Return scores, groups and keys of 8 x 9 different rows."""
    rng = np.random.default_rng(seed)
    keys = np.column_stack([rng.integers(0, 8, many), rng.integers(0, 9, many)])
    group = np.minimum(rng.poisson(0.2 + keys[:, 0] / 8), groups - 1).astype(np.int64)
    score = keys[:, 0] / 7 - keys[:, 1] / 16 + 0.1 * group + rng.normal(size=many)
    return score, group, keys


# ---------------------------------------------------------------------- equal rows


HAND = {
    "keys": np.array([[1, 1], [1, 1], [1, 1], [2, 0], [2, 0], [2, 0], [2, 0], [3, 3], [4, 4], [4, 4]]),
    "group": np.array([0, 0, 1, 0, 1, 1, 2, 0, 2, 2]),
    "score": np.array([0.5, 0.7, 0.2, 0.4, 0.1, 0.3, 0.9, 1.0, 0.0, 1.0]),
}


def test_matched_effects_equal_a_hand_computation() -> None:
    """Differences of means within cells, weighted by n_a n_b / (n_a + n_b)."""
    found = matched_effect(**HAND)
    first, second, third = found.pairs

    # cell (1, 1): .6 - .2 of weight 2/3; cell (2, 0): .4 - .2 of weight 2/3
    assert (first.first, first.second) == (0, 1)
    assert first.value == pytest.approx((0.4 + 0.2) / 2)
    assert first.cells == 2
    assert first.coverage == pytest.approx(6 / 7)
    assert (second.first, second.second, second.cells) == (0, 2, 1)
    assert second.value == pytest.approx(0.4 - 0.9)
    assert third.value == pytest.approx(0.2 - 0.9)
    assert found.coverage == pytest.approx(7 / 10)


def test_the_standard_error_of_many_cells_is_clustered() -> None:
    """It is that of a regression with an intercept for each cell, clustered by cell."""
    score, group, keys = coarse(1)
    contrast = matched_effect(score, group, keys).pairs[0]
    cells = cells_of(keys)

    residual = (group == 0) - (np.bincount(cells, group == 0) / np.bincount(cells))[cells]
    centred = score - (np.bincount(cells, score) / np.bincount(cells))[cells]
    value = residual @ centred / (residual @ residual)
    inside = np.bincount(cells, residual**2)
    told = np.bincount(cells, residual * (centred - value * residual))
    used = int((inside > 0).sum())

    assert contrast.clustered
    assert contrast.cells == used
    assert contrast.value == pytest.approx(value)
    error = math.sqrt(used / (used - 1) * float(told @ told)) / float(inside.sum())
    assert contrast.standard_error == pytest.approx(error)
    assert contrast.low < value < contrast.high


def test_few_cells_are_strata() -> None:
    """With one cell the standard error is Welch's; with few, that of the weighted sum of differences."""
    rng = np.random.default_rng(2)
    score, group = rng.normal(size=200), rng.integers(0, 2, 200)

    def welch(rows: npt.NDArray[np.bool_]) -> float:
        sides = [score[rows & (group == k)] for k in (0, 1)]
        return sum(float(np.var(side, ddof=1)) / side.size for side in sides)

    one = matched_effect(score, group, np.zeros(200, dtype=np.int64)).pairs[0]
    assert not one.clustered
    assert one.standard_error == pytest.approx(math.sqrt(welch(np.ones(200, dtype=bool))))

    keys = np.arange(200) % 3
    three = matched_effect(score, group, keys).pairs[0]
    h = np.array([1 / sum(1 / np.sum((keys == c) & (group == k)) for k in (0, 1)) for c in range(3)])
    error = math.sqrt(sum(h[c] ** 2 * welch(keys == c) for c in range(3))) / h.sum()
    assert three.standard_error == pytest.approx(error)


def test_a_blind_score_has_no_matched_effect_to_the_bit() -> None:
    """Scores that are a function of the keys differ by 0, however steep they are."""
    _, group, keys = coarse(3, groups=4)
    score = 1e3 * np.sin(keys[:, 0] + 0.1) * np.exp(keys[:, 1])
    found = matched_effect(score, group, keys)

    assert len(found.pairs) == 6
    for contrast in found.pairs:
        assert contrast.value == contrast.standard_error == 0.0
        assert contrast.low == contrast.high == 0.0


@settings(max_examples=examples(30))
@given(st.integers(0, 10**6))
def test_matched_weights_are_repeated_rows(seed: int) -> None:
    """A row of weight 3 is three rows; a row of weight 0 is none; weights have no unit."""
    rng = np.random.default_rng(seed)
    keys, group = rng.integers(0, 60, 300), rng.integers(0, 3, 300)
    score, weight = rng.random(300), rng.integers(0, 4, 300)
    again = np.repeat(np.arange(300), weight)
    repeated = matched_effect(score[again], group[again], keys[again])
    for factor in (1.0, 0.3):
        weighted = matched_effect(score, group, keys, weight * factor)
        assert weighted.coverage == pytest.approx(repeated.coverage)
        for one, other in zip(weighted.pairs, repeated.pairs, strict=True):
            assert one.clustered == other.clustered
            for part in ("value", "coverage", "cells"):
                assert getattr(one, part) == pytest.approx(getattr(other, part))
            if one.clustered:
                assert one.standard_error == pytest.approx(other.standard_error)


def test_matched_effects_say_when_they_are_undecided() -> None:
    """Too few matched rows, too small a share of rows, no match at all."""
    score, group = np.arange(3000.0), np.arange(3000) % 2
    keys = np.arange(3000)
    nothing = matched_effect(score, group, keys)
    assert math.isnan(nothing.pairs[0].value)
    assert "no row of one side equals" in str(nothing.pairs[0].undecided)
    assert nothing.coverage == 0

    keys[:10] = -1
    few = matched_effect(score, group, keys).pairs[0]
    assert f"only 5 matched rows of one side; {LEAST_MATCHED} are needed" in str(few.undecided)
    assert "0.33% of rows have a match; 1% are needed" in str(few.undecided)

    keys[:200] = -1
    assert matched_effect(score, group, keys).pairs[0].undecided is None
    # nothing tells of the spread of two rows without their like; it is not taken for none
    pair = matched_effect(score[:2], group[:2], np.zeros((2, 1))).pairs[0]
    assert (pair.value, pair.standard_error, pair.low, pair.high) == (-1, math.inf, -math.inf, math.inf)


def test_cells_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN equals NaN and -0 is 0; rows of one hash are told apart all the same."""
    keys = np.array([[0.0, np.nan], [-0.0, np.nan], [0.0, 0.0], [np.nan, 0.0], [0.0, np.inf], [1e-300, 0.0]])
    expected = [0, 0, 1, 2, 3, 4]

    def partition(codes: Ints) -> list[int]:
        return [int(np.flatnonzero(codes == code)[0]) for code in codes]

    assert partition(cells_of(keys)) == partition(np.array(expected))
    monkeypatch.setattr(contrasts, "hashed", lambda X: np.zeros(len(X), dtype=np.uint64))
    assert partition(cells_of(keys)) == partition(np.array(expected))
    assert partition(cells_of(np.array([5, 2**60, 2**60 + 1, 5]))) == [0, 1, 2, 0]


def people(data: dict[str, Any]) -> Table:
    many = len(next(iter(data.values())))
    base = {"race": (["a", "b"] * many)[:many], "label": ([0, 1] * many)[:many]}
    return read_table(pa.table({**base, **data}), DataSpec(ColumnRoles(("race",), label="label")))


def test_keys_are_equal_where_values_are() -> None:
    """Numbers, texts, booleans and missing values; each row has the keys of its own values and no other."""
    table = people(
        {
            "age": [20, 30, 20, None],
            "job": ["cook", None, "cook", "nurse"],
            "own": [True, False, True, True],
            "kind": pa.array(["x", "y", "x", None]).dictionary_encode(),
        }
    )
    keys = keys_of(table, ["age", "job", "own", "kind"])

    np.testing.assert_array_equal(keys[0], keys[2])
    assert (keys[0, :3] != keys[1, :3]).all()
    assert keys[3, 0] not in keys[:3, 0]
    assert len(set(keys[:, 3].tolist())) == 3
    with pytest.raises(ColumnError, match="no feature column 'shoe'"):
        keys_of(table, ["shoe"])


# ---------------------------------------------------------------------- residuals


def test_an_estimate_that_fails_a_blind_score_is_undecided() -> None:
    """What the blind score shows is in the standard error, and beyond its own interval decides nothing."""
    rng = np.random.default_rng(1)
    member, noise = rng.random(6000) < 0.5, rng.normal(size=6000)
    rest, away = member - 0.5, 0.2 * (member - 0.5) + 0.1 * noise

    def judged(blind: Floats) -> ResidualContrast:
        chance, known, w = np.full(6000, 0.5), np.zeros(6000), np.ones(6000)
        told = ((known, away), (known, blind))
        return residual._residual(member, chance, told, w, 6000.0, 0.0, (0, 1), 0.05)

    good, bad = judged(0.1 * rng.permutation(noise)), judged(0.1 * rest + 0.1 * noise)

    assert good.undecided is None
    assert "of these columns would be called unfair" in str(bad.undecided)
    assert bad.standard_error == pytest.approx(abs(bad.blind), rel=0.01)
    assert bad.standard_error > good.standard_error


def test_predictions_that_are_too_steep_and_too_flat_are_no_effect() -> None:
    """A chance and a mean that are right but for their scale leave nothing of a blind score, and keep an effect."""
    rng = np.random.default_rng(0)
    lean, many = rng.normal(size=6000), np.ones(6000)
    member = rng.random(6000) < sigmoid(lean)
    chance, known = sigmoid(1.3 * lean), 0.8 * sigmoid(lean)
    away = sigmoid(lean) - known + 0.02 * rng.normal(size=6000)

    def judged(effect: float) -> ResidualContrast:
        told = (known + effect * chance, away + effect * (member - chance))
        return residual._residual(member, chance, (told, told), many, 6000.0, 0.0, (0, 1), 0.05)

    plain = away @ (member - chance) / np.sum((member - chance) ** 2)
    assert abs(plain) > 5 * judged(0.0).blind_error  # what the scales alone would show
    assert abs(judged(0.0).blind) < 2 * judged(0.0).blind_error
    assert judged(0.1).value == pytest.approx(0.1 + judged(0.0).value, abs=1e-3)


def test_units_of_columns_do_not_matter() -> None:
    """A column far smaller than another is not taken for rounding of it; one that does not vary is left out."""
    X = np.random.default_rng(0).normal(2.0, 1.0, size=(50, 2))
    X[:5, 1] = np.nan
    plain = nuisances.standardised(X, np.ones(50))
    other = np.column_stack([X * [1e-9, 1e9], np.full(50, 0.1)])
    np.testing.assert_allclose(nuisances.standardised(other, np.ones(50)), plain, atol=1e-9)


def three(seed: int, many: int = 5000) -> tuple[Floats, Ints, Floats, Floats]:
    """Return scores, three groups, columns, and the effect of each group against everybody else."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(many, 4))
    chances = np.exp(np.column_stack([X[:, 0], 0.5 * X[:, 1], -0.3 * X[:, 0]]))
    chances /= chances.sum(axis=1, keepdims=True)
    group = (rng.random(many)[:, None] > chances.cumsum(axis=1)).sum(axis=1)
    bonus = np.array([0.6, 0.0, -0.3])
    score = X[:, 0] + np.abs(X[:, 1]) + bonus[group] + rng.normal(size=many)
    truth = []
    for k in range(3):
        others = [j for j in range(3) if j != k]
        rest = chances[:, others] @ bonus[others] / chances[:, others].sum(axis=1)
        weight = chances[:, k] * (1 - chances[:, k])
        truth.append(weight @ (bonus[k] - rest) / weight.sum())
    return score, group, X, np.array(truth)


@pytest.mark.slow
@pytest.mark.usefixtures("few_trees")
def test_three_groups_are_held_against_everybody_else() -> None:
    """All contrasts but one contain the effect, of 3 to a table; codes may leave numbers out."""
    inside, tables = 0, examples(9) // 3
    for seed in range(tables):
        score, group, X, truth = three(seed)
        found = residual_effect(score, group + 2 * (group == 2), X)
        assert [(one.first, one.second) for one in found] == [(0, None), (1, None), (4, None)]
        inside += sum(one.low <= effect <= one.high for one, effect in zip(found, truth, strict=True))
    assert inside >= 3 * tables - 1


def test_equal_rows_that_are_many_are_dealt_out() -> None:
    """With one column of four values the effect is that of equal rows; were cells held out whole, it would not be."""
    rng = np.random.default_rng(5)
    x = rng.integers(0, 4, 8000)
    group = (rng.random(8000) < np.array([0.2, 0.8, 0.3, 0.6])[x]).astype(np.int64)
    score = np.array([0.0, 3.0, 1.0, -2.0])[x] + 0.2 * group + 0.5 * rng.normal(size=8000)
    (residual,) = residual_effect(score, group, x[:, None].astype(float))
    (matched,) = matched_effect(score, group, x).pairs

    assert residual.value == pytest.approx(matched.value, abs=0.1 * matched.standard_error)
    assert residual.standard_error == pytest.approx(matched.standard_error, rel=0.05)
    assert residual.low <= -0.2 <= residual.high


@given(st.integers(0, 10**6))
@settings(max_examples=examples(25))
def test_bundled_columns_tell_the_same_rows_apart(seed: int) -> None:
    """Indicators of one category are one column; what overlaps stays apart; rows differ where they differed."""
    rng = np.random.default_rng(seed)
    many, sizes = int(rng.integers(5, 60)), rng.integers(2, 7, size=int(rng.integers(1, 4)))
    parts = [np.eye(k)[rng.integers(k, size=many)][:, rng.integers(2) :] for k in sizes]
    parts += [rng.normal(size=(many, 2)), rng.integers(2, size=(many, 2)), np.ones((many, 1))]
    parts[-3][::4, 0] = np.nan
    X = np.column_stack(parts)
    binned = nuisances.binned(X, np.ones(many))
    bundled, named = nuisances._bundled(binned[:, rng.permutation(X.shape[1])])
    assert bundled.shape[1] <= X.shape[1]
    assert (~named).sum() == 2
    apart, before = cells_of(bundled[:, named]), cells_of(np.delete(binned, [-5, -4], axis=1))
    assert (np.equal.outer(apart, apart) == np.equal.outer(before, before)).all()
    ordered, _ = nuisances._bundled(np.eye(7)[rng.integers(7, size=200)])
    assert ordered.shape == (200, 1)
    if seed % 5 == 0:  # no bundle has more categories than trees take
        many_columns, named = nuisances._bundled(np.eye(600))
        assert named.all()
        assert many_columns.shape == (600, 3)
        assert many_columns.max() < nuisances.BINS
        assert np.unique(many_columns, axis=0).shape[0] == 600


@pytest.mark.slow
@pytest.mark.usefixtures("few_trees")
def test_residual_weights_have_no_unit_and_stand_for_rows() -> None:
    """Equal weights are none, weight 0 is no row, and integer weights are near to repeated rows."""
    score, group, X = world(1, 2000, "decision")
    plain = residual_effect(score, group, X)
    same = residual_effect(score, group, X, np.full(2000, 3.0))
    assert asdict(same[0]) == pytest.approx(asdict(plain[0]))

    weight = np.random.default_rng(0).integers(0, 3, 2000)
    weighted = residual_effect(score, group, X, weight)
    some = weight > 0
    assert weighted == residual_effect(score[some], group[some], X[some], weight[some])
    again = np.repeat(np.arange(2000), weight)
    repeated = residual_effect(score[again], group[again], X[again])
    one, other = weighted[0], repeated[0]
    assert one.value == pytest.approx(other.value, abs=0.5 * one.standard_error)
    assert one.overlap == pytest.approx(other.overlap, abs=0.03)
    # repeating rows does not make them evidence: weights know, repeated rows do not
    assert one.standard_error > other.standard_error


@pytest.mark.usefixtures("few_trees")
def test_too_few_rows_are_undecided() -> None:
    """Below the least number of effective rows nothing is judged; weights count."""
    score, group, X = world(3, 1000)
    found = residual_effect(score, group, X)
    assert f"1,000 effective rows; {LEAST_ROWS:,} are needed" in str(found[0].undecided)

    weight = np.where(np.arange(1000) < 100, 50.0, 1.0)
    assert re.match(r"1\d\d effective rows", str(residual_effect(score, group, X, weight)[0].undecided))


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize(
    ("steep", "why"), [(np.inf, "predict the group nearly perfectly"), (30.0, "groups overlap in")]
)
def test_a_group_that_can_be_told_is_undecided(steep: float, why: str) -> None:
    """Columns that tell the group leave nothing to compare: perfectly, or in most rows."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(2000, 3))
    member = X[:, 0] > 0 if steep == np.inf else rng.random(2000) < sigmoid(steep * X[:, 0])
    (found,) = residual_effect(rng.random(2000), member.astype(np.int64), X)

    assert why in str(found.undecided)
    assert (found.left if steep == np.inf else found.balanced_overlap) < 0.1


@pytest.mark.usefixtures("few_trees")
def test_a_small_group_is_not_taken_for_one_that_can_be_told() -> None:
    """At a share of 3 % no chance is above .05, but both sides are alike; at .1 % there are too few rows."""
    rng = np.random.default_rng(7)
    X, score = rng.normal(size=(5000, 3)), rng.random(5000)
    small = residual_effect(score, (rng.random(5000) > 0.03).astype(np.int64), X)[0]
    assert small.overlap < 0.3
    assert small.balanced_overlap > 0.8
    assert small.undecided is None

    tiny = residual_effect(score, (np.arange(5000) > 5).astype(np.int64), X)[0]
    assert "the unexplained part of the group is worth" in str(tiny.undecided)


def pairs_of(effect: Any, *given: Any, **more: Any) -> tuple[Any, ...]:
    """Return the contrasts of either effect."""
    return getattr(found := effect(*given, **more), "pairs", found)


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("effect", [matched_effect, residual_effect])
def test_laws_of_both_effects(effect: Any) -> None:
    """No order of rows, to the bit; groups exchanged, the sign; more confidence, wider; a constant score, nothing."""
    if effect is matched_effect:
        score, group, X = coarse(4, many=1200)
        X = X.astype(np.float64)
    else:
        score, group, X = world(2, 1200, "real")
        X[600:700] = X[0]
    X[::7, 1] = np.nan
    weight = np.random.default_rng(0).integers(1, 3, 1200) / 2
    order = np.random.default_rng(1).permutation(1200)
    (one,) = pairs_of(effect, score, group, X, weight)
    assert pairs_of(effect, score[order], group[order], X[order], weight[order]) == (one,)
    (other,) = pairs_of(effect, score, 1 - group, X, weight, confidence=0.99)

    assert (one.first, one.second) == (other.first, other.second) == (0, 1)
    assert other.value == pytest.approx(-one.value, abs=0.2 * one.standard_error)
    assert one.low < one.value < one.high
    assert (other.high - other.low) / other.standard_error > 1.2 * (one.high - one.low) / one.standard_error
    (none,) = pairs_of(effect, np.full(1200, 0.3), group, X)
    assert (none.value, none.standard_error) == (pytest.approx(0, abs=1e-12), pytest.approx(0, abs=1e-12))


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize("effect", [matched_effect, residual_effect])
def test_bad_rows_are_refused(effect: Any) -> None:
    """Scores that are no numbers, other lengths, bad weights, one group."""
    score, group, X = np.array([0.1, 0.2, 0.3]), np.array([0, 1, 0]), np.zeros((3, 1))
    with pytest.raises(DataError, match="the score of row 2 is nan"):
        effect(np.array([0.1, np.nan, 0.3]), group, X)
    with pytest.raises(DataError, match="different rows"):
        effect(score, group[:2], X)
    with pytest.raises(DataError, match="weights must be numbers"):
        effect(score, group, X, np.array([1.0, -1.0, 1.0]))
    with pytest.raises(DataError, match="two groups"):
        effect(score, group, X, np.array([1.0, 0.0, 1.0]))


@pytest.mark.parametrize("kind", ["mean", "shares"])
def test_trees_that_cannot_split_are_not_grown(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of fewer than 40 rows no leaf of 20 can be parted: one tree says what a hundred would."""
    rng = np.random.default_rng(0)
    X, y, w = rng.normal(size=(48, 3)), rng.random(48), rng.uniform(1, 3, 48)
    made = nuisances.Nuisances(X, rng.integers(0, 2, 48), w, np.arange(48) % 4, 0)
    few = made.mean(y, y, 50) if kind == "mean" else made.shares()
    monkeypatch.setattr(nuisances, "LEAST", 0)
    assert np.allclose(few, made.mean(y, y, 50) if kind == "mean" else made.shares(), rtol=1e-12)
