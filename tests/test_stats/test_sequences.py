"""Laws of confidence sequences: fair wealth, coverage over whole streams, exact inversion and projection."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from fairfix.stats.estimates import Areas, Means, Proportions, Scaled
from fairfix.stats.gaps import (
    difference_between_groups,
    difference_to_overall,
    difference_to_reference,
)
from fairfix.stats.ks import ALWAYS, FIXED
from fairfix.stats.sequences import IDLE, SHIFTS, STAKES, ConfidenceSequences
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multinomial

ALPHA = 0.05
EVIDENCE = math.log(2 / ALPHA)


def sequence(successes: object, totals: object) -> ConfidenceSequences:
    """Return the sequence of rates."""
    return ConfidenceSequences.of(Proportions(np.asarray(successes, float), np.asarray(totals, float)))


def wealth_of_rows(rows: np.ndarray, p: float) -> float:
    """Return the logarithm of the wealth against a mean of ``p`` of rows in [0, 1], bet by bet and row by row."""
    shift, weight = SHIFTS
    factors = shift * rows[:, None] - np.log(1 - p + p * np.exp(shift))
    return float(np.logaddexp.reduce([*(weight + factors.sum(axis=0)), math.log(IDLE)]))


def stakes_of_rows(rows: np.ndarray, p: float) -> float:
    """Return the logarithm of the wealth of stakes on ``x / p - 1``, which are fair if the mean is ``p``."""
    stake, weight = STAKES
    factors = np.log1p(stake * (rows[:, None] / p - 1))
    return float(np.logaddexp.reduce([*(weight + factors.sum(axis=0)), math.log(IDLE)]))


def test_the_bets_use_all_of_the_wealth() -> None:
    """Weights and what is never bet add up to 1, but for the end of the series of ever smaller bets."""
    for _, weight in (SHIFTS, STAKES):
        assert 1 - 1e-3 < np.exp(weight).sum() + IDLE <= 1


@pytest.mark.parametrize("p", [0.02, 0.3, 0.5])
def test_streams_of_rates_are_covered_at_all_times(p: float) -> None:
    """The exact probability that the limits of up to 150 rows are ever wrong is at most the level."""
    many = 150
    n, s = np.tril_indices(many + 1)
    low, high = sequence(s, n).limits(ALPHA)
    wrong = np.zeros((many + 1, many + 1), dtype=bool)
    wrong[n, s] = (low > p) | (high < p)
    alive, lost = np.zeros(many + 1), 0.0
    alive[0] = 1.0
    for rows in range(1, many + 1):
        alive = alive * (1 - p) + np.concatenate([[0.0], alive[:-1] * p])
        lost += float(alive[wrong[rows]].sum())
        alive[wrong[rows]] = 0.0
    assert 0.001 < lost <= ALPHA  # nor are they so wide that they say nothing


@given(st.integers(1, 3000), st.floats(0, 1), st.sampled_from([0.01, 0.05, 0.2]))
def test_limits_are_symmetric_and_hold_the_rate(n: int, part: float, alpha: float) -> None:
    """They lie in [0, 1] around the rate, swap with success and failure, and are wider at a higher confidence."""
    s = round(n * part)
    low, high = sequence([s, n - s, 0], [n, n, 0]).limits(alpha)
    assert 0 <= low[0] <= s / n <= high[0] <= 1
    assert low[0] == pytest.approx(1 - high[1], abs=1e-12)
    assert (low[2], high[2]) == (0, 1)
    wider = sequence([s], [n]).limits(alpha / 2)
    assert wider[0][0] <= low[0]
    assert wider[1][0] >= high[0]


def test_widths_as_multiples_of_one_look() -> None:
    """From 100 to a million rows intervals are at most 1.85 times as wide as of one look, of differences 2.15 times."""
    for n, p in product(10.0 ** np.arange(2, 7), (0.02, 0.2, 0.5)):
        once, always = (
            Proportions(np.full(2, n * p), np.full(2, n)),
            sequence(np.full(2, n * p), np.full(2, n)),
        )
        for ratio, most in (
            [np.subtract(*one.limits(ALPHA)[::-1])[0] for one in (always, once)], 1.85
        ), ([difference_between_groups(one, ALPHA).high for one in (always, once)], 2.15):  # fmt: skip
            assert 1.3 < ratio[0] / ratio[1] < most


# ---------------------------------------------------------------------- means


@given(st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.9, 1.0]), min_size=1, max_size=60), st.floats(0.01, 0.99))
def test_limits_of_means_refute_nothing_that_fair_bets_do_not(rows: list[float], p: float) -> None:
    """A mean outside of the limits, which know sums and squares alone, is refuted by bets that see the rows."""
    x = np.array(rows)
    means = Means.from_sums(np.array([[len(x)], [x.sum()], [(x**2).sum()]]), (0.0, 1.0))
    made = ConfidenceSequences.of(means)
    low, high = (float(end[0]) for end in made.limits(ALPHA))
    assert 0 <= low <= x.mean() + 1e-12
    assert x.mean() - 1e-12 <= high <= 1
    assert p >= low or stakes_of_rows(x, p) >= EVIDENCE - 1e-9
    assert p <= high or stakes_of_rows(1 - x, 1 - p) >= EVIDENCE - 1e-9


def test_fair_bets_are_fair() -> None:
    """The exact expectation of both kinds of wealth is 1 or less at the expectation of the rows."""
    values, chances = np.array([0.0, 0.3, 1.0]), np.array([0.5, 0.3, 0.2])
    p, n = float(values @ chances), 6
    for wealth in (wealth_of_rows, stakes_of_rows):
        mean = sum(
            multinomial.pmf(counts, n, chances) * math.exp(wealth(np.repeat(values, counts), p))
            for counts in product(range(n + 1), repeat=3)
            if sum(counts) == n
        )
        assert mean <= 1 + 1e-12


def test_small_spread_makes_narrow_limits() -> None:
    """Of 2,000 losses near 0.15 the interval is far narrower than of as many 0/1 rows with that mean."""
    x = np.random.default_rng(0).beta(3, 17, 2000)
    means = Means.from_sums(np.array([[x.size], [x.sum()], [(x**2).sum()]]), (0.0, 1.0))
    of_means, of_rates = ConfidenceSequences.of(means), sequence([x.sum()], [x.size])
    widths = [float(np.subtract(*one.limits(ALPHA)[::-1])[0]) for one in (of_means, of_rates)]
    assert widths[0] < widths[1] / 2


def test_scales_move_limits_along() -> None:
    """A number of two values has the limits of its rate, a mean on [-1, 1] those of the same rows on [0, 1]."""
    rates = Proportions(np.array([30.0]), np.array([100.0]))
    two = ConfidenceSequences.of(Scaled(rates, -2.0, 3.0))
    assert np.allclose(two.limits(ALPHA), -2 + 5 * np.array(sequence([30], [100]).limits(ALPHA)))
    x = np.linspace(0, 0.5, 80)
    made = [
        ConfidenceSequences.of(Means.from_sums(np.array([[x.size], [y.sum()], [(y**2).sum()]]), ends))
        for y, ends in ((x, (0.0, 1.0)), (2 * x - 1, (-1.0, 1.0)))
    ]
    assert np.allclose(made[1].limits(ALPHA), 2 * np.array(made[0].limits(ALPHA)) - 1)


def test_what_has_no_sequence() -> None:
    """Means without a range and areas have none."""
    endless = Means(np.ones(1), np.ones(1), np.ones(1), (0.0, math.inf))
    for estimates in (endless, Areas(np.ones(1) / 2, np.ones(1), np.ones(1))):
        with pytest.raises(TypeError, match="no confidence sequence"):
            ConfidenceSequences.of(estimates)


# ---------------------------------------------------------------------- many limits at once


def log_wealth(of: ConfidenceSequences, i: int, side: int, p: float) -> float:
    """Return the logarithm of the wealth against a mean from below, or of ``1 - x``, from the sums of a sample."""
    n, s = of.rows[i], of.total[i]
    q = s if of.squares is None else of.squares[i]
    if side:
        s, q = n - s, n - 2 * s + q
    if of.squares is None:
        bets = SHIFTS[1] + SHIFTS[0] * s - n * np.log(1 - p + p * np.exp(SHIFTS[0]))
    else:
        far, square = s / p - n, q / p**2 - 2 * s / p + n
        bets = STAKES[1] + STAKES[0] * far + (np.log1p(-STAKES[0]) + STAKES[0]) * square
    return float(np.logaddexp.reduce([*bets, math.log(IDLE)]))


@pytest.mark.parametrize("squares", [False, True])
def test_ends_of_all_cells_are_those_of_every_one(squares: bool) -> None:
    """Every end is the root of the wealth to 1e-10: refuted, and a mean that far inside is not.

    Samples are of 1 to 1e9 rows, with rates of 0 and 1 and equal rows among them.
    """
    rng = np.random.default_rng(3)
    n = np.array([1, 1, 2, 5, 10, 23, 52, 52, 100, 1e4, 1e6, 1e9])
    s = np.round(n * rng.choice([0.0, 0.02, 0.3, 0.9, 1.0], n.size))
    s[:2], s[6] = (0, 1), 52
    q = s**2 / n + rng.random(n.size) ** 2 * (s - s**2 / n)
    of = ConfidenceSequences(n, s, q if squares else None)
    cells = of._cells(1e-6)
    low, high = of._ends(cells)
    for (i, c), side in product(np.ndindex(n.size, cells), range(2)):
        p, evidence = float(1 - high[i, c] if side else low[i, c]), math.log(IDLE) + (c + 1) / 8
        near = 1e-14 * n[i]
        if p > 1e-10:
            assert log_wealth(of, i, side, p) >= evidence - near - 1e-9
        if p < 1 - 1e-10:
            assert log_wealth(of, i, side, p + 1e-10) < evidence + near + 1e-11


def test_a_limit_does_not_depend_on_the_others() -> None:
    """Ends found for many cells at once are those of each level alone, where few rows leave several roots too."""
    n, s = np.array([[3.0, 1], [9, 0], [40, 0], [40, 36], [52, 52], [64, 0], [900, 200], [1e5, 5e4]]).T
    for q in (None, 0.9 * s):
        of = ConfidenceSequences(n, s, q)
        ends = of._ends(190)
        for c in range(24, 190, 2):
            alone = of.limits(2 * math.exp(-math.log(IDLE) - (c + 1) / 8))
            for one, other in zip(alone, ends, strict=True):
                assert np.abs(one - other[:, c]).max() < 1e-10


# ---------------------------------------------------------------------- two numbers and more


@pytest.mark.parametrize("counts", [((30, 60), (12, 80)), ((0, 25), (4, 500)), ((9, 9), (3, 4))])
def test_pairs_project_the_product_of_wealths(counts: tuple[tuple[int, int], tuple[int, int]]) -> None:
    """Differences and ratios of pairs of rates that the product does not refute lie in the limits, and reach them."""
    grid = np.linspace(1e-4, 1 - 1e-4, 500)
    (s, n), (t, m) = counts
    up, down = (
        np.array([wealth_of_rows(np.repeat([1.0, 0.0], [a, b]), p) for p in grid])
        for a, b in ((s, n - s), (m - t, t))
    )
    left = up[:, None] + down[::-1][None] < math.log(
        2 / ALPHA
    )  # what may be: first large, second small, refuted no
    p, q = np.broadcast_arrays(grid[:, None], grid[None])
    pair = sequence([s, t], [n, m])
    made = difference_to_reference(pair, 1, ALPHA)
    exact = float((p - q)[left].min())
    assert float(made.low[0]) <= exact + 1e-9
    assert float(made.low[0]) >= exact - 0.04 * (s / n - t / m - exact) - 0.01
    log_low = float(pair.minus(pair, ALPHA, 1, logs=True)[0][0])
    assert math.exp(log_low) <= float((p / q)[left].min()) + 1e-9


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 400)), min_size=2, max_size=9))
def test_the_largest_difference_is_that_of_all_pairs(counts: list[tuple[int, int]]) -> None:
    """Among several groups, limits are the largest of those of all pairs, and ratios those of all ratios."""
    s, more = np.array(counts).T
    of, many = sequence(s, s + more + 1), len(counts)
    for sign, logs in product((-1, 1), (False, True)):
        each = [np.delete(of.minus(of, ALPHA, j, logs=logs)[int(sign > 0)], j).max() for j in range(many)]
        assert of.furthest(np.arange(many), ALPHA, sign, logs=logs) == pytest.approx(max(each), abs=1e-12)


def test_a_group_against_all_rows_has_the_limits_of_the_rest() -> None:
    """The difference to all rows is that to the rest, shrunk by the rest's share."""
    of, rest = sequence([30, 50], [100, 100]), sequence([50, 30], [100, 100])
    low, high = of.minus(rest, ALPHA / 2)
    made = difference_to_overall(of, rest, np.array([0.5, 0.5]), ALPHA)
    assert np.allclose(made.low, low / 2)
    assert np.allclose(made.high, high / 2)


def test_margins_of_distances_hold_at_all_sizes() -> None:
    """The margin of all looks is the sum of Howard and Ramdas' two, and wider than that of one look."""
    one = 0.85 * math.sqrt((math.log(math.log(math.e * 1000)) + 0.8 * math.log(1612 / 0.0125)) / 1000)
    assert float(ALWAYS.low(1000, 1000, 0.05)) == pytest.approx(2 * one)
    assert float(FIXED.low(1000, 1000, 0.05)) < one
