"""The benchmark's stand-in for the authors' schedule solves the problem that it is timed on."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from fairfix.solvers.ramp import Cell, ramp, solve

from tests.scripts import script

Draw = tuple[np.ndarray, np.ndarray]


@pytest.fixture(scope="module")
def authors() -> ModuleType:
    """The module, loaded from the folder of the benchmarks."""
    return script("benchmarks/authors.py")


@pytest.fixture(scope="module")
def smooth() -> Draw:
    """Scores without clumps, in two groups of different means."""
    rng = np.random.default_rng(0)
    groups = (rng.random(3000) < 0.3).astype(np.int64)
    return np.tanh(rng.normal(-0.3 + 0.5 * groups, 0.7)), groups


def cells(draw: Draw) -> list[Cell]:
    scores, groups = draw
    return [Cell.of(scores[groups == k]) for k in range(2)]


@pytest.mark.parametrize("slack", [0.0, 0.1])
@pytest.mark.parametrize("rho", [None, 0.2])
def test_converges_to_the_exact_solution(
    authors: ModuleType, smooth: Draw, slack: float, rho: float | None
) -> None:
    """On smooth scores and a wide ramp the published defaults end at the exact multipliers, band or not."""
    scores, groups = smooth
    rule = authors.Schedule(0.1, slack, rho).fit(scores, groups, rng=np.random.default_rng(1))
    exact = solve(cells(smooth), 0.1, slack, (scores.mean() + 1) / 2 if rho is None else rho)
    np.testing.assert_allclose(rule.offsets, exact.offsets, atol=1e-9)


def test_narrow_band_is_missed_as_published(authors: ModuleType, smooth: Draw) -> None:
    """Below a slack of 0.002 one multiplier is dropped but not its share of the band: every rate is rho + d."""
    scores, groups = smooth
    rule = authors.Schedule(0.1, 0.002, 0.4).fit(scores, groups, rng=np.random.default_rng(1))
    chance = rule.predict(scores, groups)
    assert [chance[groups == k].mean() for k in range(2)] == pytest.approx([0.401, 0.401], abs=1e-9)


def test_both_ways_of_predicting_agree(authors: ModuleType, smooth: Draw) -> None:
    """Row by row and on whole arrays, the rule is the ramp; on both of its ends too."""
    scores, groups = smooth
    rule = authors.AuthorsRule(np.array([scores[groups == 0][0], 0.1]), np.array([0.0, 0.3]), 0.1)
    whole = rule.predict(scores, groups)
    np.testing.assert_allclose(rule.predict_by_row(scores, groups), whole, atol=1e-14)
    np.testing.assert_array_equal(whole, ramp(scores, rule.offsets[groups], 0.1))


@pytest.fixture(scope="module")
def algorithm(authors: ModuleType) -> ModuleType:
    """Algorithm 1 of the paper."""
    return script("benchmarks/ramp_algorithm1.py")


@pytest.mark.parametrize("slack", [0.0, 0.1])
def test_algorithm_1_keeps_its_bound(algorithm: ModuleType, smooth: Draw, slack: float) -> None:
    """The objective is least at the exact multipliers, and the mean excess is within the bound and falls."""
    scores, groups = smooth
    parts, gamma, rho = [scores[groups == k] for k in range(2)], 0.1, 0.4
    exact = solve(cells(smooth), gamma, slack, rho).offsets
    best = [
        algorithm.dual(f, gamma, slack, rho, max(t, 0.0), max(-t, 0.0))
        for f, t in zip(parts, exact, strict=True)
    ]
    for f, t, least in zip(parts, exact, best, strict=True):
        for upper, lower in ((max(t, 0.0) + 0.01, max(-t, 0.0)), (max(t, 0.0), max(-t, 0.0) + 0.01)):
            assert algorithm.dual(f, gamma, slack, rho, upper, lower) > least
    excesses = []
    for rows in (100, 1_000, 10_000):
        found = algorithm.algorithm1(parts, gamma, slack, rho, rows, 20, np.random.default_rng(rows))
        each = np.array(
            [
                [algorithm.dual(f, gamma, slack, rho, *pair) - least for pair in pairs]
                for f, least, pairs in zip(parts, best, np.stack(found, axis=2).swapaxes(0, 1), strict=True)
            ]
        )
        assert each.min() >= -1e-12
        assert (each.mean(axis=1) <= [algorithm.bound(t, slack, rho, rows, 2) for t in exact]).all()
        excesses.append(each.mean())
    assert excesses[2] < excesses[0] / 2
