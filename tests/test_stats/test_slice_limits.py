"""Limits of slices: exact tails, and coverage where rows differ, have weights, or are no 0 and 1."""

from __future__ import annotations

import numpy as np
import pytest
from fairfix.stats.slice_limits import mean_limits, share_limits
from scipy import stats


@pytest.mark.parametrize("tail", [0.05, 1e-4, 1e-9])
def test_counted_limits_are_the_binomial_tails(tail: float) -> None:
    part, total = np.array([0.0, 3.0, 40.0, 60.0]), np.array([60.0] * 4)
    low, high = share_limits(part, total, tail, counted=True)

    np.testing.assert_allclose(stats.binom.sf(part[1:] - 1, 60, low[1:]), tail, rtol=1e-4)
    np.testing.assert_allclose(stats.binom.cdf(part[:-1], 60, high[:-1]), tail, rtol=1e-4)
    assert (low[0], high[-1]) == (0.0, 1.0)


def test_without_rows_nothing_is_limited() -> None:
    low, high = share_limits(np.zeros(1), np.zeros(1), 0.05, counted=True)
    assert (low[0], high[0]) == (0.0, 1.0)
    low, high = share_limits(np.zeros(1), np.zeros(1), 0.05, counted=False)
    assert (low[0], high[0]) == (0.0, 1.0)


def test_limits_of_bounded_means_hold_and_use_a_small_variance() -> None:
    rng = np.random.default_rng(0)
    entries = rng.beta(2, 8, (4000, 300))
    sums, squares, rows = entries.sum(1), (entries**2).sum(1), np.full(4000, 300.0)
    low, high = mean_limits(sums, squares, rows, 0.05)

    assert np.mean(low > 0.2) <= 0.05
    assert np.mean(high < 0.2) <= 0.05
    many = 100_000.0
    narrow = mean_limits(np.array([0.2 * many]), np.array([0.0401 * many]), np.array([many]), 1e-6)
    plain = share_limits(np.array([0.2 * many]), np.array([many]), 1e-6, counted=False)
    assert narrow[1] - narrow[0] < 0.3 * (plain[1] - plain[0])
    cost = np.log(4 / 1e-6)
    reach = np.sqrt(2 * (0.0401 - 0.04) * cost / (many - 1)) + 7 * cost / (3 * (many - 1))
    np.testing.assert_allclose(narrow, [[0.2 - reach], [0.2 + reach]], rtol=1e-9)
    assert mean_limits(np.zeros(1), np.zeros(1), np.zeros(1), 0.05)[1][0] == 1.0
