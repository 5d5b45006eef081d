"""Bounds without a normal approximation, against exact chances and against the samples that they are about."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import pytest
from fairfix.stats.ks import ks_noise
from fairfix.stats.tails import (
    Reach,
    budget,
    largest_difference,
    largest_difference_by_bets,
    largest_distance,
    least_ratio,
    reach_of,
    share_distance,
    stake_of,
    sum_quantile,
    upper_by_bets,
    upper_mean,
)
from scipy import stats


@pytest.mark.parametrize(("successes", "rows"), [(0, 30), (7, 30), (30, 30), (400, 1000)])
def test_the_upper_limit_of_a_count_leaves_the_tail(successes: int, rows: int) -> None:
    most = float(upper_mean(successes / rows, rows, 3.0, counted=True))

    assert stats.binom.cdf(successes, rows, most) == pytest.approx(
        math.exp(-3.0) if successes < rows else 1.0
    )


@pytest.mark.parametrize("mean", [0.0, 0.2, 0.9, 1.0])
def test_the_upper_limit_of_a_mean_is_where_chernoff_says_and_never_below_the_counted_one(
    mean: float,
) -> None:
    most = float(upper_mean(mean, 50, 2.0, counted=False))
    at_most = stats.entropy([mean, 1 - mean], [most, 1 - most]) if most < 1 else 0.0

    assert 50 * at_most == pytest.approx(2.0 if mean < 1 else 0.0, abs=1e-9)
    assert most >= float(upper_mean(mean, 50, 2.0, counted=True)) - 1e-12


def test_no_rows_tell_nothing() -> None:
    assert float(upper_mean(0.3, 0, 2.0, counted=True)) == 1.0
    assert largest_difference(np.array([0.1, 0.1]), np.array([500.0, 0.0]), 0.05) >= 0.9
    assert (
        largest_difference_by_bets([np.ones(9), np.zeros(0)], [0.1, 0.1], np.array([9.0, 0.0]), 0.05) == 1.0
    )


def test_exponentials_add_up_to_more_than_the_budget_as_often_as_said() -> None:
    assert stats.gamma.sf(budget(0.03, 2), 2) == pytest.approx(0.03)


@pytest.mark.parametrize("truth", [(0.02, 0.3), (0.5, 0.5), (0.1, 0.15, 0.9), (0.5,) * 12])
def test_a_difference_of_fixed_rules_is_missed_no_more_often_than_said(truth: tuple[float, ...]) -> None:
    rng, p, alpha, worlds = np.random.default_rng(0), np.array(truth), 0.3, 50
    rows = np.resize([40.0, 90.0, 60.0], p.size)
    seen = rng.binomial(rows.astype(int), p, (worlds, p.size)) / rows

    missed = sum(largest_difference(one, rows, alpha) < np.ptp(p) for one in seen)

    assert missed <= stats.binom.ppf(0.999, worlds, alpha)


@pytest.mark.parametrize("truth", [(0.02, 0.03), (0.5, 0.4), (0.1, 0.15, 0.12), (0.005,) * 5])
def test_a_ratio_of_fixed_rules_is_missed_no_more_often_than_said(truth: tuple[float, ...]) -> None:
    rng, p, alpha, worlds = np.random.default_rng(11), np.array(truth), 0.3, 60
    rows = np.resize([900.0, 600.0, 400.0], p.size)
    seen = rng.binomial(rows.astype(int), p, (worlds, p.size)) / rows
    least = np.array([least_ratio(one, rows, alpha) for one in seen])

    assert (least > p.min() / p.max()).sum() <= stats.binom.ppf(0.999, worlds, alpha)
    if p.min() > 0.01:
        assert least.mean() > 0.15


def test_more_groups_that_are_alike_add_nothing_to_the_largest_difference() -> None:
    """One pair is the farthest apart in the population, and only its bound must hold; a group is not its own pair."""
    rates = {many: largest_difference(np.full(many, 0.5), np.full(many, 600.0), 0.05) for many in (2, 5, 60)}

    assert rates[2] == rates[5] == rates[60]
    tiny = largest_difference(np.array([0.5, 0.5, 0.5]), np.array([600.0, 600.0, 5.0]), 0.05)
    alone = largest_difference(np.array([0.5, 0.5]), np.array([600.0, 5.0]), 0.05)
    assert tiny == alone
    assert largest_difference(np.array([0.3]), np.array([9.0]), 0.05) == 0.0


def test_bets_on_a_difference_are_worth_what_was_said_at_the_bound() -> None:
    """By a grid of both means: no pair of them that is farther apart is left by both the bets and the limits of one."""
    rng, alpha, rows = np.random.default_rng(6), 0.05, np.array([70.0, 200.0])
    numbers, spread = [rng.beta(2, 5, 70), rng.beta(3, 4, 200)], np.array([0.15, 0.2])
    cost, rest = -math.log(0.9 * alpha), math.log(2 / (0.1 * alpha))
    slope = min(math.sqrt(2 * cost / float((spread**2 / rows).sum())), *rows)
    grid, far = np.linspace(0, 1, 2001), 0.0
    for a, b in ((0, 1), (1, 0)):
        own = float(stake_of(spread[a], rows[a], rest))
        high = upper_by_bets(numbers[a], own, rest)
        low = 1 - upper_by_bets(1 - numbers[a], own, rest)
        up = np.log1p(slope / rows[a] * (grid[:, None] - numbers[a])).sum(axis=1)
        with np.errstate(invalid="ignore"):
            down = np.log1p(slope / rows[b] * (numbers[b] - grid[:, None])).sum(axis=1)
        left = (up[:, None] + down <= cost) & ((grid >= low) & (grid <= high))[:, None]
        far = max(far, float((grid[:, None] - grid)[left].max()))

    assert largest_difference_by_bets(numbers, spread, rows, alpha) == pytest.approx(far, abs=1.5e-3)
    wide = largest_difference(np.array([one.mean() for one in numbers]), rows, alpha)
    assert far < wide  # numbers that are near to one another tell more than coins do


def test_many_rows_are_put_on_a_grid_to_the_safe_side() -> None:
    rng = np.random.default_rng(7)
    numbers = [rng.beta(8, 12, 30_000), rng.beta(9, 12, 20_000)]
    rows = np.array([30_000.0, 20_000.0])
    few = [one[:2000] for one in numbers]
    exact = largest_difference_by_bets(few, [0.1, 0.1], rows, 0.05)
    moved = largest_difference_by_bets([np.resize(one, 8000) for one in few], [0.1, 0.1], rows, 0.05)

    assert exact <= moved < exact + 3 / 4096


def test_a_distance_is_bounded_as_if_each_threshold_were_looked_at() -> None:
    rng, rows = np.random.default_rng(9), np.array([700.0, 400.0])
    seen = [np.sort(rng.integers(0, many + 1, 900)) / many for many in (700, 400)]
    first, second = (np.concatenate([[0.0], one, [1.0]]) for one in seen)
    each = []
    for x, y in zip(first, second, strict=True):
        cost = np.linspace(0, budget(0.05, 2), 400)
        high = upper_mean(x, 700, cost, counted=True)
        each.append(float((high + upper_mean(1 - y, 400, cost[::-1], counted=True)).max() - 1))

    got = largest_distance(first, second, rows, 0.05)
    assert max(each) - 1e-6 <= got <= 1.02 * (max(each) + 2e-3)


@pytest.mark.parametrize("rows", [(50, 50), (40, 4000), (7, 300)])
def test_a_sum_of_two_distances_exceeds_its_quantile_as_often_as_said(rows: tuple[int, int]) -> None:
    rng, alpha = np.random.default_rng(10), 0.05
    edge = float(sum_quantile(*rows, alpha))
    both = sum(np.sqrt(rng.exponential(size=200_000) / 2 / many) for many in rows)

    assert (both > edge).mean() == pytest.approx(alpha, abs=0.002)
    assert math.isinf(float(sum_quantile(0, 5, alpha)))


@pytest.mark.parametrize("rows", [1, 2, 5, 30, 1000])
def test_one_sided_distances_are_at_most_as_large_as_rayleighs_at_every_level(rows: int) -> None:
    """The triangle needs the inequality for small distances too, where Massart's proof does not give it."""
    d = np.linspace(0, 1, 3001)

    assert (stats.ksone.sf(d, rows) <= np.exp(-2 * rows * d**2) + 1e-12).all()


def test_the_difference_is_sharper_than_the_plain_sum_of_two_limits() -> None:
    p, rows = np.array([0.3, 0.5]), np.array([500.0, 500.0])
    cost = math.log(4 / 0.05)
    plain = upper_mean(0.5, 500, cost, counted=True) - (1 - upper_mean(0.7, 500, cost, counted=True))

    joint = largest_difference(p, rows, 0.05)

    assert 0.2 < joint < plain


@pytest.mark.parametrize("rising", [True, False])
@pytest.mark.parametrize("sizes", [(30, 30), (30, 3000), (50, 80, 200)])
def test_all_rules_of_a_score_are_missed_no_more_often_than_said(
    sizes: tuple[int, ...], *, rising: bool
) -> None:
    """The supremum over rules that rise is reached by two thresholds: the two largest distances of distributions.

    Of one of them the rows show too much and of the other too little; where rules may fall it is any two.
    """
    rng, alpha, worlds = np.random.default_rng(1), 0.2, 1000
    rows = np.array(sizes)
    pairs = np.array([(a, b) for a in range(rows.size) for b in range(a)])
    reach = reach_of(
        np.ones(pairs.shape), rows[pairs], alpha, groups=rows.size, balls=len(pairs), rising=rising
    )
    above, below = np.stack([_distances(rng.random((worlds, many))) for many in sizes], axis=2)
    (a, b), most = pairs.T, reach(np.ones(pairs.shape), rows[pairs])
    far = np.maximum(above[:, a] + below[:, b], below[:, a] + above[:, b])
    if not rising:
        far = np.maximum(above, below)[:, pairs].sum(axis=2)

    missed = (far > most).any(axis=1).sum()

    assert missed <= stats.binom.ppf(0.999, worlds, alpha)
    assert missed >= worlds * alpha / 20  # and it is no bound that says nothing


def _distances(uniform: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return Kolmogorov's distances of each row of uniform numbers, above the diagonal and below."""
    ordered, many = np.sort(uniform, axis=1), uniform.shape[1]
    place = np.arange(many)
    return ((place + 1) / many - ordered).max(axis=1), (ordered - place / many).max(axis=1)


@pytest.mark.parametrize("shape", ["box", "ball", "triangle"])
def test_the_least_ratio_is_that_of_the_worst_truths(shape: Literal["box", "ball", "triangle"]) -> None:
    """By all truths of a grid on the edge of the quarter circle or the triangle, or at the corner of the box."""
    rng, angle, part = np.random.default_rng(3), np.linspace(0, np.pi / 2, 20_001), np.linspace(0, 1, 20_001)
    reach = Reach(shape, 5.0, 0.8)
    for _ in range(50):
        (x, y), rows, weight = rng.uniform(0, 1, 2), rng.integers(5, 2000, 2), rng.uniform(0.5, 2, 2)
        a, b = weight * np.sqrt(5.0 / 2 / rows)
        worst = (
            (x - a) / (y + b) if shape == "box" else ((x - a * np.cos(angle)) / (y + b * np.sin(angle))).min()
        )
        if shape == "triangle":
            edge = float(sum_quantile(rows[0], rows[1] / 0.64, math.exp(-5)))
            a, b = weight * edge / [1, 0.8]
            worst = ((x - a * part) / (y + b * (1 - part))).min()
        got = reach.least_ratio(np.array([[x, y]]), weight[None], rows[None])
        np.testing.assert_allclose(got, max(worst, 0.0), atol=1e-6)


def test_the_triangle_is_as_sharp_for_the_ratio_that_is_asked_as_for_a_difference() -> None:
    """Where a ratio is as large as was asked, both corners of the triangle give it."""
    reach, rows = Reach("triangle", 5.0, 0.8), np.array([[300, 500]])
    edge = float(sum_quantile(300, 500 / 0.64, math.exp(-5)))
    mean = np.array([[0.8 * 0.5 + edge, 0.5]])

    assert reach.least_ratio(mean, np.ones((1, 2)), rows) == pytest.approx(0.8)


def test_bets_against_a_mean_are_worth_what_was_said_at_the_limit() -> None:
    numbers = np.random.default_rng(0).beta(0.3, 2.0, 300)
    for stake in (0.05, 0.4, 1.0):
        most = upper_by_bets(numbers, stake, 3.0)
        assert np.log1p(stake * (most - numbers)).sum() == pytest.approx(3.0, abs=1e-5)
        assert most > numbers.mean()
    assert upper_by_bets(np.zeros(50), 1.0, 3.0) == pytest.approx(math.expm1(3.0 / 50))
    assert upper_by_bets(np.ones(50), 1.0, 3.0) == 1.0
    assert upper_by_bets(numbers, 0.4, 3.0, 3000) < upper_by_bets(numbers, 0.4, 3.0)


def test_bets_against_a_rate_of_members_are_those_against_a_mean_where_all_are_whole_members() -> None:
    rng = np.random.default_rng(0)
    numbers, part = rng.random(300), (rng.random(300) < 0.4) * 1.0
    inside = part > 0

    assert upper_by_bets(numbers, 0.3, 3.0, weight=np.ones(300)) == upper_by_bets(numbers, 0.3, 3.0)
    whole = upper_by_bets(numbers, 0.3, 3.0, weight=part)
    assert whole == pytest.approx(upper_by_bets(numbers[inside], 0.3, 3.0), abs=1e-8)
    half = upper_by_bets(numbers, 0.3, 3.0, weight=part / 2)
    assert numbers[inside].mean() < whole < half
    assert np.log1p(0.15 * part * (half - numbers)).sum() == pytest.approx(3.0, abs=1e-5)
    assert upper_by_bets(numbers, 0.3, 3.0, weight=np.zeros(300)) == 1.0


def test_shares_of_groups_are_missed_no_more_often_than_said() -> None:
    rng, shares, worlds = np.random.default_rng(2), np.array([0.6, 0.3, 0.1]), 2000
    seen = rng.multinomial(80, shares, worlds) / 80

    missed = (np.abs(seen - shares).sum(axis=1) / 2 > share_distance(80, 3, 0.2)).sum()

    assert missed <= stats.binom.ppf(0.999, worlds, 0.2)


def test_the_distance_by_chance_is_that_of_groups_that_are_alike() -> None:
    """Mean and 95% quantile of the largest distance of a group to all rows, against draws."""
    rng, sizes = np.random.default_rng(0), np.array([300, 500, 1200])
    group = np.repeat(np.arange(3), sizes)
    found = []
    for _ in range(1000):
        here = group[rng.permutation(group.size)]  # of the rows in the order of their scores
        share = np.cumsum(here == np.arange(3)[:, None], axis=1) / sizes[:, None]
        found.append(np.abs(share - np.arange(1, group.size + 1) / group.size).max())

    assert ks_noise(sizes) == pytest.approx((np.mean(found), np.quantile(found, 0.95)), rel=0.06)
