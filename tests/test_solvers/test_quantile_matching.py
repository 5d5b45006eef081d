"""The closed form of statistical parity against linear programs, its bounds and its invariances."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
from fairfix.solvers import quantile_matching
from fairfix.solvers.parity import ks_between, ks_to_overall
from fairfix.solvers.quantile_matching import Scores, Tube, fit_tube, fit_within, near_everybody
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from tests.strategies import examples

Floats = npt.NDArray[np.float64]

SETTINGS = settings(max_examples=examples(25))


def sample(seed: int, groups: int, rows: int = 400, digits: int | None = None) -> Scores:
    """Return scores of groups that differ in place and width."""
    rng = np.random.default_rng(seed)
    codes = np.concatenate([np.arange(groups), rng.integers(0, groups, rows - groups)])
    score = rng.beta(2 + codes, 3, rows) + 0.1 * rng.normal(size=rows)
    if digits is not None:
        score = score.round(digits)
    return Scores(score, codes, rng.integers(1, 4, rows).astype(float), groups)


def cost(tube: Tube, scores: Scores) -> float:
    """Return the mean square of what is moved, expected over the draws."""
    parts = (scores.coupling(tube, k) for k in range(scores.groups))
    return sum(
        float(p * (mass * (old - new) ** 2).sum())
        for p, (old, new, mass) in zip(scores.shares, parts, strict=True)
    )


def spread_rows(tube: Tube, scores: Scores, times: int) -> tuple[Floats, npt.NDArray[np.int64], Floats]:
    """Return the values, groups and weights of rows that are drawn ``times`` times, evenly."""
    draw = (np.arange(times) + 0.5) / times
    values, codes, weights = [], [], []
    for k in range(scores.groups):
        own = scores.codes == k
        many = int(own.sum())
        weight = np.ones(many) if scores.weight is None else scores.weight[own]
        values.append(tube.of_group(k, np.repeat(scores.score[own], times), np.tile(draw, many)))
        codes.append(np.full(many * times, k))
        weights.append(np.repeat(weight, times))
    return np.concatenate(values), np.concatenate(codes), np.concatenate(weights)


def transport(scores: Scores, slack: Floats, tube: Tube) -> float:
    """Return the least square cost of all randomised maps of (score, group) to old scores and the tube's values."""
    assert tube.outputs is not None
    grid = np.unique(np.concatenate([tube.outputs, *scores.knots]))
    score = np.concatenate(scores.knots)
    codes = np.repeat(np.arange(scores.groups), [k.size for k in scores.knots])
    mass = np.concatenate(
        [p * (one.high - one.low) for p, one in zip(scores.shares, scores.levels, strict=True)]
    )
    below = sp.csr_matrix(np.tril(np.ones((grid.size, grid.size)))[:-1])
    away = [
        sp.kron((np.where(codes == k, 1 / p, 0.0) - 1.0)[None], below) for k, p in enumerate(scores.shares)
    ]
    limits = sp.vstack([*away, *(-part for part in away)])
    found = linprog(
        ((score[:, None] - grid) ** 2).ravel(),
        A_ub=limits,
        b_ub=np.tile(np.repeat(np.minimum(slack, 2.0), grid.size - 1), 2),
        A_eq=sp.kron(sp.eye(score.size), np.ones((1, grid.size))),
        b_eq=mass,
        method="highs",
    )
    assert found.status == 0
    return float(found.fun)


@pytest.mark.parametrize("seed", range(examples(5)))
def test_no_randomised_map_costs_less(seed: int) -> None:
    """For any groups, ties, weights and slacks, some of them infinite, the cost is that of the transport program."""
    rng = np.random.default_rng(seed)
    groups = int(rng.integers(2, 6))
    digits = [None, 1][seed % 2]
    scores = sample(seed, groups, rows=int(rng.integers(20, 45)), digits=digits)
    slack = rng.choice([0.0, 0.01, 0.05, 0.1, 0.2], groups)
    slack[rng.random(groups) < 0.2] = np.inf
    tube = near_everybody(scores, slack)

    assert cost(tube, scores) == pytest.approx(transport(scores, slack, tube), rel=1e-6, abs=1e-12)
    away = np.abs(tube.steps - scores.shares @ tube.steps).max(axis=1)
    assert (away <= slack + 1e-12).all()


def transport_between(scores: Scores, slack: float, grid: Floats) -> float:
    """Return the least square cost of all randomised maps of (score, group) to a grid, no two groups far apart."""
    score, codes = (
        np.concatenate(scores.knots),
        np.repeat(np.arange(scores.groups), [k.size for k in scores.knots]),
    )
    within = np.concatenate([one.high - one.low for one in scores.levels])
    below = sp.csr_matrix(np.tril(np.ones((grid.size, grid.size)))[:-1])
    level = [np.where(codes == k, 1.0, 0.0) for k in range(scores.groups)]
    limits = sp.vstack([sp.kron((a - b)[None], below) for a, b in permutations(level, 2)])
    found = linprog(
        (scores.shares[codes, None] * (score[:, None] - grid) ** 2).ravel(),
        A_ub=limits,
        b_ub=np.full(limits.shape[0], slack),
        A_eq=sp.kron(sp.eye(score.size), np.ones((1, grid.size))),
        b_eq=within,
        method="highs",
    )
    assert found.status == 0
    return float(found.fun)


@pytest.mark.parametrize("seed", range(examples(12)))
def test_no_randomised_map_between_groups_costs_less(seed: int) -> None:
    """Two to six groups of uneven sizes: every two are within the slack, and no map of score and group costs less."""
    rng = np.random.default_rng(seed)
    groups = 2 + seed % 5
    rows = int(rng.integers(20, 40))
    codes = np.append(np.arange(groups), rng.choice(groups, rows, p=rng.dirichlet(np.full(groups, 1.5))))
    score = rng.normal(size=codes.size) + codes * rng.normal()
    weight = rng.integers(1, 4, codes.size).astype(float) if seed % 3 else None
    scores = Scores(score.round(1) if seed % 2 else score, codes, weight, groups)
    slack = float(rng.choice([0.0, 0.02, 0.1, 0.3, 0.6]))
    tube = fit_within(scores, slack).tube
    outputs = np.concatenate(scores.knots) if tube.outputs is None else tube.outputs

    least = transport_between(scores, slack, np.unique(np.append(outputs, np.concatenate(scores.knots))))
    assert cost(tube, scores) == pytest.approx(least, rel=1e-6, abs=1e-7)  # of the program
    if tube.outputs is not None:
        assert np.ptp(tube.steps, axis=0).max() <= slack + 1e-12
        values, drawn, weights = spread_rows(tube, scores, 500)
        assert ks_between(values, drawn, weights, groups) <= slack + 1 / 250


@SETTINGS
@given(
    seed=st.integers(0, 10**6),
    groups=st.integers(2, 5),
    slack=st.sampled_from([0.0, 0.005, 0.02, 0.1, 0.3]),
    digits=st.sampled_from([None, 2, 1]),
)
def test_the_distance_of_what_rows_get_is_the_slack(
    seed: int, groups: int, slack: float, digits: int | None
) -> None:
    """Whatever the ties, what the rows get on average is as far from everybody as the slack allows, and no further."""
    scores = sample(seed, groups, digits=digits)
    found = fit_tube(scores, np.full(groups, slack))
    values, codes, weight = spread_rows(found.tube, scores, 200)
    largest = max(
        float(np.bincount(np.unique(scores.score[own], return_inverse=True)[1], scores.weight[own]).max())
        / float(scores.weight[own].sum())
        for own in (scores.codes == k for k in range(groups))
        if scores.weight is not None
    )
    near = 2 * largest / 200 + 1e-9

    assert found.holds
    assert (found.ks <= slack + 1e-12).all()
    np.testing.assert_allclose(ks_to_overall(values, codes, weight, groups), found.ks, atol=near)
    free = scores.distances(scores.score).max()
    assert found.ks.max() == pytest.approx(min(slack, free), abs=1e-9)


def test_an_infinite_slack_leaves_scores_as_they_are() -> None:
    """Without a bound the map is the identity, on scores never seen too."""
    found = fit_tube(sample(5, 3), np.full(3, np.inf))
    anew = np.array([-3.0, 0.123, 7.0])

    np.testing.assert_array_equal(found.tube.of_group(1, anew, np.zeros(3)), anew)


def test_a_score_that_is_not_moved_is_kept_between_rows_too() -> None:
    """Where the constraint does not bind, scores of the fit and new ones between them stay as they are."""
    scores = sample(5, 2, rows=600)
    tube = fit_tube(scores, np.array([0.05, 0.05])).tube
    for k in (0, 1):
        own = np.sort(scores.score[scores.codes == k])
        between = (own[:-1] + own[1:]) / 2
        least, middle, most = (tube.of_group(k, own, np.full(own.size, draw)) for draw in (0.0, 0.5, 1.0))
        kept = (least == own) & (middle == own) & (most == own)
        both = kept[:-1] & kept[1:]
        assert both.sum() > 5
        np.testing.assert_allclose(tube.of_group(k, between, np.full(between.size, 0.5))[both], between[both])


def test_values_keep_the_order_inside_a_group() -> None:
    """A higher score never gets a lower value in the same group, whatever both draw."""
    scores = sample(8, 3, digits=1)
    found = fit_tube(scores, np.full(3, 0.1))
    for k in range(3):
        grid = np.unique(np.concatenate([np.linspace(-1, 2, 500), scores.score]))
        low, high = (found.tube.of_group(k, grid, np.full(grid.size, draw)) for draw in (0.0, 1 - 2**-53))
        assert (low <= high).all()
        assert (high[:-1] <= low[1:] + 1e-12).all()


def test_values_are_between_the_least_and_the_largest_score() -> None:
    for seed in range(40):
        scores = sample(seed, 3, digits=0)
        ends = np.concatenate(scores.knots).min(), np.concatenate(scores.knots).max()
        values = near_everybody(scores, np.zeros(3)).outputs
        assert (ends[0], ends[1]) == (min(ends[0], values[0]), max(ends[1], values[-1]))


def test_weights_are_repeated_rows() -> None:
    """Whole weights and repeated rows give the same tube."""
    weighted = sample(9, 3, digits=1)
    assert weighted.weight is not None
    times = np.repeat(np.arange(weighted.score.size), weighted.weight.astype(int))
    repeated = Scores(weighted.score[times], weighted.codes[times], None, 3)
    one, other = (fit_tube(rows, np.full(3, 0.05)).tube for rows in (weighted, repeated))

    np.testing.assert_allclose(other.outputs, one.outputs, atol=1e-9)
    np.testing.assert_allclose(other.steps, one.steps, atol=1e-9)


@pytest.mark.parametrize("units", [1e-6, 7.0, 1e6])
def test_scaled_scores_give_scaled_values(units: float) -> None:
    """Units of the score do not matter."""
    scores = sample(11, 2)
    scaled = Scores(units * (100 + scores.score), scores.codes, scores.weight, 2)
    one, other = (near_everybody(rows, np.full(2, 0.05)) for rows in (scores, scaled))

    np.testing.assert_allclose(other.outputs / units - 100, one.outputs, atol=1e-9)
    np.testing.assert_allclose(other.steps, one.steps, atol=1e-9)


def test_many_scores_are_pooled_and_the_distance_still_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pooled atoms and values cost little, and hold the distance as single ones do."""
    rng = np.random.default_rng(12)
    codes = rng.integers(0, 3, 9000)
    scores = Scores(np.exp(rng.normal(0.3 * codes, 1.0)), codes, None, 3)
    exact = near_everybody(scores, np.full(3, 0.03))
    whole = cost(exact, scores)
    monkeypatch.setattr(quantile_matching, "BINS", 500)
    monkeypatch.setattr(quantile_matching, "PIECES", 500)
    few = Scores(scores.score, codes, None, 3)
    pooled = near_everybody(few, np.full(3, 0.03))
    values, owner, weight = spread_rows(pooled, few, 20)

    assert exact.outputs is not None
    assert pooled.outputs is not None
    assert pooled.outputs.size < 800 < exact.outputs.size
    assert cost(pooled, few) == pytest.approx(whole, rel=0.01)
    assert ks_to_overall(values, owner, weight, 3).max() <= 0.03 + 2 / 500 / 20


def test_without_draws_one_score_has_one_value_and_the_distance_is_told() -> None:
    """The distance is measured on the rows, and the nearest is taken where none holds."""
    scores = sample(13, 3, digits=1)
    for slack in (0.0, 0.05, 0.15, 0.4):
        found = fit_tube(scores, np.full(3, slack), drawn=False)
        values = np.empty_like(scores.score)
        for k in range(3):
            own = scores.codes == k
            values[own] = found.tube.of_group(
                k, scores.score[own], np.random.default_rng(0).random(int(own.sum()))
            )
            assert np.unique(values[own]).size <= np.unique(scores.score[own]).size
        np.testing.assert_allclose(scores.distances(values), found.ks)
        assert found.holds == bool((found.ks <= slack).all())
        assert not found.tube.drawn


@pytest.mark.parametrize("seed", range(3))
def test_without_draws_the_cheapest_that_holds_is_taken(seed: int) -> None:
    """Of the maps for slacks inside that hold the slack, none costs less."""
    scores, slack, costs = sample(seed, 3, digits=2), 0.1, []

    def values_of(tube: Tube) -> Floats:
        values = np.empty_like(scores.score)
        for k in range(3):
            own = scores.codes == k
            values[own] = tube.of_group(k, scores.score[own], np.zeros(int(own.sum())))
        return values

    def cost_of(values: Floats) -> float:
        return float(np.average((values - scores.score) ** 2, weights=scores.weight))

    for inside in np.linspace(0, 1.2, 25) * slack:
        tube = near_everybody(scores, np.full(3, inside))
        values = values_of(replace(tube, levels=tuple(one.middle for one in tube.levels)))
        if (scores.distances(values) <= slack).all():
            costs.append(cost_of(values))
    found = fit_tube(scores, np.full(3, slack), drawn=False)

    assert found.holds
    assert cost_of(values_of(found.tube)) == pytest.approx(min(costs), rel=1e-9)
    assert min(costs) < max(costs)


@SETTINGS
@given(seed=st.integers(0, 10**6), groups=st.integers(1, 4))
def test_the_distance_is_that_of_every_threshold(seed: int, groups: int) -> None:
    """KS to everybody equals the largest difference of shares over all thresholds, ties included."""
    rng = np.random.default_rng(seed)
    codes = np.concatenate([np.arange(groups), rng.integers(0, groups, 30)])
    score, weight = rng.integers(0, 8, codes.size) / 8, rng.random(codes.size) + 0.1
    under = score[:, None] <= score  # of each row and threshold
    every = np.average(under, axis=0, weights=weight)
    own = [np.average(under[codes == k], axis=0, weights=weight[codes == k]) for k in range(groups)]
    expected = np.abs(own - every).max(axis=1)

    np.testing.assert_allclose(ks_to_overall(score, codes, weight, groups), expected, atol=1e-12)
