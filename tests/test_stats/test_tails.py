"""Bounds without a normal approximation, against exact chances and against the samples that they are about."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from fairfix.stats.tails import (
    budget,
    largest_difference,
    reach_of,
    share_distance,
    stake_of,
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
    assert largest_difference(np.array([0.1, 0.1]), np.array([500.0, 0.0]), 0.05, counted=False) >= 0.9


def test_exponentials_add_up_to_more_than_the_budget_as_often_as_said() -> None:
    assert stats.gamma.sf(budget(0.03, 2), 2) == pytest.approx(0.03)


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("truth", [(0.02, 0.3), (0.5, 0.5), (0.1, 0.15, 0.9)])
def test_a_difference_of_fixed_rules_is_missed_no_more_often_than_said(
    truth: tuple[float, ...], *, counted: bool
) -> None:
    """Bernoulli rows are the worst of all in [0, 1]."""
    rng, p, alpha, worlds = np.random.default_rng(0), np.array(truth), 0.3, 50
    rows = np.array([40.0, 90.0, 60.0])[: p.size]
    seen = rng.binomial(rows.astype(int), p, (worlds, p.size)) / rows

    missed = sum(largest_difference(one, rows, alpha, counted=counted) < np.ptp(p) for one in seen)

    assert missed <= stats.binom.ppf(0.999, worlds, alpha)


def test_the_difference_is_sharper_than_the_plain_sum_of_two_limits() -> None:
    p, rows = np.array([0.3, 0.5]), np.array([500.0, 500.0])
    cost = math.log(4 / 0.05)
    plain = upper_mean(0.5, 500, cost, counted=True) - (1 - upper_mean(0.7, 500, cost, counted=True))

    joint = largest_difference(p, rows, 0.05, counted=True)

    assert 0.2 < joint < plain


@pytest.mark.parametrize("sizes", [(30, 30), (30, 3000), (50, 80, 200)])
def test_all_rules_of_a_score_are_missed_no_more_often_than_said(sizes: tuple[int, ...]) -> None:
    """The supremum over rules that rise is reached by two thresholds: the two largest distances of distributions."""
    rng, alpha, worlds = np.random.default_rng(1), 0.2, 1000
    rows = np.array(sizes)
    pairs = np.array([(a, b) for a in range(rows.size) for b in range(a)])
    reach = reach_of(np.ones(pairs.shape), rows[pairs], alpha, groups=rows.size, balls=len(pairs))
    far = np.stack([_distances(rng.random((worlds, many))) for many in sizes], axis=1)

    missed = (far[:, pairs].sum(axis=2) > reach(np.ones(pairs.shape), rows[pairs])).any(axis=1).sum()

    assert missed <= stats.binom.ppf(0.999, worlds, alpha)
    assert missed >= worlds * alpha / 20  # and it is no bound that says nothing


def _distances(uniform: np.ndarray) -> np.ndarray:
    """Return Kolmogorov's distance of each row of uniform numbers."""
    ordered, many = np.sort(uniform, axis=1), uniform.shape[1]
    place = np.arange(many)
    return np.maximum((place + 1) / many - ordered, ordered - place / many).max(axis=1)


@pytest.mark.parametrize("box", [False, True])
def test_the_least_ratio_is_that_of_the_worst_truths(box: bool) -> None:
    """By all truths of a grid on the edge of the quarter circle, or at the corner of the box."""
    rng, angle = np.random.default_rng(3), np.linspace(0, np.pi / 2, 20_001)
    shape = replace(reach_of(np.ones((1, 2)), [9, 9], 0.05, groups=2, balls=1), box=box)
    for _ in range(50):
        (x, y), rows, weight = rng.uniform(0, 1, 2), rng.integers(5, 2000, 2), rng.uniform(0.5, 2, 2)
        a, b = weight * np.sqrt(shape.cost / 2 / rows)
        worst = (x - a) / (y + b) if box else ((x - a * np.cos(angle)) / (y + b * np.sin(angle))).min()
        got = shape.least_ratio(np.array([[x, y]]), weight[None], rows[None])
        np.testing.assert_allclose(got, max(worst, 0.0), atol=1e-6)


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


@pytest.mark.parametrize("stake", [0.05, 0.3, 1.0])
def test_bets_miss_a_rate_of_members_no_more_often_than_said_whatever_the_stake(stake: float) -> None:
    """Members by a tenth and by nine tenths, of whom those are accepted more often that are members less."""
    rng, rows, cost = np.random.default_rng(4), 150, math.log(1 / 0.1)
    truth = (0.1 * 0.9 * 0.6 + 0.9 * 0.1 * 0.2) / (0.1 * 0.9 + 0.9 * 0.1)
    missed = 0
    for _ in range(2000):
        much = rng.random(rows) < 0.1
        taken = (rng.random(rows) < np.where(much, 0.6, 0.2)).astype(float)
        missed += upper_by_bets(taken, stake, cost, weight=np.where(much, 0.9, 0.1)) < truth

    assert stats.binom.sf(missed - 1, 2000, 0.1) > 1e-6


@pytest.mark.parametrize("guessed", [0.02, 0.1, 0.5])
def test_bets_miss_a_mean_no_more_often_than_said_whatever_the_stake(guessed: float) -> None:
    """Of losses that are rare and large; near to the normal limit where the spread is guessed right."""
    rng, rows, cost = np.random.default_rng(1), 200, math.log(1 / 0.1)
    stake = float(stake_of(guessed, rows, cost))
    limits = [upper_by_bets((rng.random(rows) < 0.01).astype(float), stake, cost) for _ in range(3000)]

    missed = sum(limit < 0.01 for limit in limits)
    assert stats.binom.sf(missed - 1, len(limits), 0.1) > 1e-6
    if guessed == 0.1:
        assert np.mean(limits) < 0.01 + 2.5 * math.sqrt(2 * cost * 0.0099 / rows)


def test_shares_of_groups_are_missed_no_more_often_than_said() -> None:
    rng, shares, worlds = np.random.default_rng(2), np.array([0.6, 0.3, 0.1]), 2000
    seen = rng.multinomial(80, shares, worlds) / 80

    missed = (np.abs(seen - shares).sum(axis=1) / 2 > share_distance(80, 3, 0.2)).sum()

    assert missed <= stats.binom.ppf(0.999, worlds, 0.2)
