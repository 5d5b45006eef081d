"""The closed form of statistical parity against linear programs, its bounds and its invariances."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
from fairfix.optim.parity import ks_to_overall
from fairfix.optim.quantiles import GRID, Levels, Scores, TubeFit, fit_tube, near_everybody, second
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

Floats = npt.NDArray[np.float64]

SETTINGS = settings(max_examples=60)


def sample(seed: int, groups: int, rows: int = 400, digits: int | None = None) -> Scores:
    """Return scores of groups that differ in place and width."""
    rng = np.random.default_rng(seed)
    codes = np.concatenate([np.arange(groups), rng.integers(0, groups, rows - groups)])
    score = rng.beta(2 + codes, 3, rows) + 0.1 * rng.normal(size=rows)
    if digits is not None:
        score = score.round(digits)
    draw = rng.random(rows)
    return Scores(score, codes, lambda: draw, rng.integers(1, 4, rows).astype(float), groups)


def cost(found: TubeFit, scores: Scores) -> float:
    """Return the mean square of what was moved, before any share of constants."""
    return float(np.average((found.values - scores.score) ** 2, weights=scores.weight))


def transport(scores: Scores, slack: float, bins: int) -> float:
    """Return the least square cost over all maps of (level, group), by a linear program over levels and values."""
    levels = [
        Levels.of(*np.unique(scores.score[i], return_counts=True), np.inf) for i in scores.rows
    ]  # equal weights are asked for by the caller
    at = (np.arange(bins) + 0.5) / bins
    quantiles = np.stack([one.quantile(at) for one in levels])
    values = np.unique(quantiles)
    many, wide = len(levels), values.size
    cells = [scores.shares[a] / bins * (quantiles[a][:, None] - values) ** 2 for a in range(many)]
    step = sp.csr_matrix(np.tril(np.ones((wide, wide)))[:-1] / bins)
    below = [
        sp.hstack(
            [
                sp.hstack([step] * bins) if b == a else sp.csr_matrix((wide - 1, bins * wide))
                for b in range(many)
            ]
        )
        for a in range(many)
    ]
    overall = sum(share * part for share, part in zip(scores.shares, below, strict=True))
    away = sp.vstack([sign * (part - overall) for part in below for sign in (1, -1)])
    whole = sp.kron(sp.eye(many * bins), np.ones((1, wide)))
    found = linprog(
        np.concatenate([c.ravel() for c in cells]),
        A_ub=away,
        b_ub=np.full(away.shape[0], slack),
        A_eq=whole,
        b_eq=np.ones(many * bins),
        method="highs",
    )
    assert found.status == 0
    return float(found.fun)


def plain(seed: int, groups: int, rows: int) -> Scores:
    """Return scores of equal weight without ties, in groups of equal size."""
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(groups), rows // groups)
    score = rng.normal(0.6 * codes, 1 + 0.3 * codes)
    return Scores(score, codes, lambda: np.full(score.size, 0.5), None, groups)


@pytest.mark.parametrize("slack", [0.02, 0.05])
def test_two_groups_are_as_good_as_the_transport_program(slack: float) -> None:
    """The closed form costs what the linear program does at the distance it reached, but for the program's levels."""
    scores = plain(1, 2, 4000)
    found = fit_tube(scores, np.full(2, slack))

    assert cost(found, scores) == pytest.approx(transport(scores, float(found.ks.max()), 60), rel=0.03)
    assert slack - 0.002 <= found.ks.max() <= slack


def test_five_groups_are_as_good_as_the_transport_program() -> None:
    """So it does with five groups, of which some are bound from above, some from below and some not at all."""
    scores = plain(2, 5, 2500)
    found = fit_tube(scores, np.full(5, 0.1))

    assert cost(found, scores) == pytest.approx(transport(scores, float(found.ks.max()), 20), rel=0.05)
    assert found.ks.min() < 0.05 < 0.095 < found.ks.max() <= 0.1


def test_slack_zero_is_the_barycentre() -> None:
    """Without slack every group gets the mean of the quantile functions, weighted by the groups' shares."""
    scores = plain(3, 3, 900)
    levels = scores.spread(np.inf, evenly=False).levels
    grid = np.linspace(0, 1, GRID + 1)
    expected = sum(p * one.quantile(grid) for p, one in zip(scores.shares, levels, strict=True))
    for curve in near_everybody(levels, scores.shares, np.zeros(3)):
        np.testing.assert_allclose(curve, expected, atol=1e-12)


@SETTINGS
@given(
    seed=st.integers(0, 10**6),
    groups=st.integers(2, 5),
    slack=st.sampled_from([0.0, 0.005, 0.02, 0.1, 0.3, 1.0, np.inf]),
    digits=st.sampled_from([None, 2, 1]),
)
def test_the_distance_is_within_the_slack(seed: int, groups: int, slack: float, digits: int | None) -> None:
    """Whatever the ties, no group is further from everybody than its slack; if need be, expected over the draws."""
    scores = sample(seed, groups, digits=digits)
    found = fit_tube(scores, np.full(groups, slack))

    assert (found.ks <= slack + 1e-12).all()
    np.testing.assert_allclose(
        (1 - found.tube.share) * ks_to_overall(found.values, scores.codes, scores.weight, groups), found.ks
    )


@SETTINGS
@given(seed=st.integers(0, 10**6), groups=st.integers(2, 4))
def test_more_slack_costs_less(seed: int, groups: int) -> None:
    """The cost falls as the slack grows, down to nothing."""
    scores = sample(seed, groups)
    found = [fit_tube(scores, np.full(groups, slack)) for slack in (0.03, 0.06, 0.12, 0.5, np.inf)]
    costs = [cost(one, scores) for one in found if one.tube.share == 0]

    assert costs == sorted(costs, reverse=True)
    assert costs[-1] == 0


def test_an_infinite_slack_leaves_scores_as_they_are() -> None:
    """Without a bound the map is the identity, on scores never seen too."""
    found = fit_tube(sample(5, 3), np.full(3, np.inf))
    anew = np.array([-3.0, 0.123, 7.0])

    np.testing.assert_array_equal(found.tube.of_group(1, anew, np.zeros(3)), anew)


def test_a_slack_per_group_binds_that_group() -> None:
    """A group with a tighter slack than the others ends nearer to everybody."""
    scores = sample(6, 3, rows=3000)
    even = fit_tube(scores, np.full(3, 0.1))
    tight = fit_tube(scores, np.array([0.1, 0.1, 0.01]))

    assert (tight.ks <= [0.1, 0.1, 0.01]).all()
    assert tight.ks[2] < even.ks[2]


def test_new_rows_are_mapped_as_the_rows_of_the_fit() -> None:
    """The tube gives the rows of the fit the values that were measured, where nothing is drawn."""
    scores = sample(7, 2)
    found = fit_tube(scores, np.full(2, 0.1))
    for k, i in enumerate(scores.rows):
        np.testing.assert_allclose(
            found.tube.of_group(k, scores.score[i], np.zeros(i.size)), found.values[i], atol=1e-12
        )


def test_values_keep_the_order_inside_a_group() -> None:
    """A higher score never gets a lower value in the same group."""
    scores = sample(8, 3, digits=1)
    found = fit_tube(scores, np.full(3, 0.3))
    for k in range(3):
        grid = np.linspace(-1, 2, 500)
        assert (np.diff(found.tube.of_group(k, grid, np.full(500, 0.5))) >= 0).all()


def test_weights_are_repeated_rows() -> None:
    """Whole weights and repeated rows give the same tube."""
    weighted = sample(9, 3, digits=1)
    assert weighted.weight is not None
    times = np.repeat(np.arange(weighted.score.size), weighted.weight.astype(int))
    draw = weighted.draws()[times]
    repeated = Scores(weighted.score[times], weighted.codes[times], lambda: draw, None, 3)
    slack = np.full(3, 0.05)
    one, other = fit_tube(weighted, slack), fit_tube(repeated, slack)

    assert one.tube.curves is not None
    assert other.tube.curves is not None
    np.testing.assert_allclose(other.tube.curves, one.tube.curves, atol=1e-9)


def test_relabelling_groups_permutes_the_tube() -> None:
    """The numbers of the groups mean nothing."""
    scores = sample(10, 3)
    turned = Scores(scores.score, (scores.codes + 1) % 3, scores.draws, scores.weight, 3)
    one, other = fit_tube(scores, np.full(3, 0.05)), fit_tube(turned, np.full(3, 0.05))

    np.testing.assert_allclose(other.values, one.values, atol=1e-9)
    np.testing.assert_allclose(np.roll(one.ks, 1), other.ks, atol=1e-9)


def test_scaled_scores_give_scaled_values() -> None:
    """Units of the score do not matter."""
    scores = sample(11, 2)
    scaled = Scores(100 + 7 * scores.score, scores.codes, scores.draws, scores.weight, 2)
    one, other = fit_tube(scores, np.full(2, 0.05)), fit_tube(scaled, np.full(2, 0.05))

    np.testing.assert_allclose(other.values, 100 + 7 * one.values, rtol=1e-9)


def test_many_scores_are_kept_at_few_knots() -> None:
    """Large groups are kept at about a thousand scores, and levels are off by less than one in five hundred."""
    rng = np.random.default_rng(12)
    score = rng.normal(size=50_000)
    knots, mass = np.unique(score, return_counts=True)
    kept = Levels.of(knots, mass.astype(float), np.inf)
    exact = (np.argsort(np.argsort(score)) + 0.5) / score.size

    assert kept.knots.size <= 1025
    assert np.abs(kept.level(score, np.zeros(score.size)) - exact).max() < 0.002


def test_the_second_draw_is_uniform_and_unlike_the_first() -> None:
    """The draw made of a draw is uniform and uncorrelated with it."""
    first = np.random.default_rng(13).random(20_000)
    other = second(first)

    assert np.abs(np.sort(other) - (np.arange(20_000) + 0.5) / 20_000).max() < 0.015
    assert abs(np.corrcoef(first, other)[0, 1]) < 0.03


@SETTINGS
@given(seed=st.integers(0, 10**6), groups=st.integers(1, 4))
def test_the_distance_is_that_of_every_threshold(seed: int, groups: int) -> None:
    """KS to everybody equals the largest difference of shares over all thresholds, ties included."""
    rng = np.random.default_rng(seed)
    codes = np.concatenate([np.arange(groups), rng.integers(0, groups, 30)])
    score, weight = rng.integers(0, 8, codes.size) / 8, rng.random(codes.size) + 0.1
    expected = [
        max(
            abs(
                np.average(score[codes == k] <= z, weights=weight[codes == k])
                - np.average(score <= z, weights=weight)
            )
            for z in score
        )
        for k in range(groups)
    ]

    np.testing.assert_allclose(ks_to_overall(score, codes, weight, groups), expected, atol=1e-12)
