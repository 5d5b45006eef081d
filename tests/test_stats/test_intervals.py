"""Limits cover, comparisons cover at equality, and nothing undefined is ever taken for a number."""

from __future__ import annotations

import itertools
import math
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from fairfix.stats import quantiles as own
from fairfix.stats.estimates import (
    CARRIED,
    Areas,
    BalancedAccuracies,
    CalibrationErrors,
    Correlations,
    Estimates,
    Means,
    Proportions,
    Scaled,
    powers,
    simultaneous_limits,
)
from fairfix.stats.gaps import (
    Gap,
    combine,
    difference_between_groups,
    difference_to_overall,
    difference_to_reference,
    ratio_between_groups,
    ratio_to_overall,
    ratio_to_reference,
    worst,
)
from fairfix.stats.ks import ks_between_cdfs, ks_between_groups, ks_margin, ks_shortfall, ks_to_overall
from fairfix.stats.mover import largest_pair
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import special, stats

from tests.strategies import examples

Floats = NDArray[np.float64]

LAW = settings(max_examples=examples(60))
SHAPES = st.floats(-3, 9).map(lambda e: 10.0**e)
TAILS = st.one_of(st.floats(-12, -0.01).map(lambda e: 10.0**e), st.floats(0.3, 0.999))


def assert_same_gap(expected: Gap, actual: Gap) -> None:
    assert (expected.value, expected.low, expected.high) == pytest.approx(
        (actual.value, actual.low, actual.high), rel=1e-9, abs=1e-12, nan_ok=True
    )
    assert (expected.groups, expected.undefined) == (actual.groups, actual.undefined)


class TestQuantiles:
    @LAW
    @given(TAILS, SHAPES, SHAPES)
    @example(0.025, 1e9, 1e9)
    @example(0.45, 1e-3, 1e9)
    @example(0.45, 1e9, 1e-3)
    def test_a_beta_quantile_leaves_its_tail(self, tail: float, a: float, b: float) -> None:
        """Also where the tail is small."""
        lower = own.beta_quantile(tail, a, b)

        if 1e-290 < lower < 1 - 1e-6:
            assert special.betainc(a, b, lower) == pytest.approx(tail, rel=1e-5)

    @LAW
    @given(st.floats(-12, -0.31).map(lambda e: 10.0**e), st.floats(-1, 10).map(lambda e: 10.0**e))
    def test_a_student_quantile_leaves_its_tail(self, tail: float, df: float) -> None:
        """From heavy tails to the normal."""
        at = float(own.student_quantile(tail, df))

        assert special.betainc(df / 2, 0.5, df / (df + at * at)) / 2 == pytest.approx(tail, rel=1e-5)
        assert own.student_quantile([0.5, 0.9], df).tolist() == [0.0, 0.0]

    @pytest.mark.parametrize("alpha", [0.2, 0.05, 0.001])
    def test_kolmogorov_quantile(self, alpha: float) -> None:
        """The closed form is the exact quantile, and never below it."""
        exact = stats.kstwobign.isf(alpha)

        assert exact - 1e-12 <= own.kolmogorov_quantile(alpha) <= exact * 1.0005


def proportions(order: list[int]) -> Estimates:
    return Proportions(np.array([0, 3.5, 20, 0, 50])[order], np.array([0, 40, 400, 30, 50])[order])


def weighted(order: list[int]) -> Estimates:
    sums = np.array([[0, 0, 0, 0], [2, 8, 3, 10], [30, 10, 40, 11], [0, 5, 0, 2], [7, 0, 9, 0]], float)[order]
    return Proportions.weighted(*sums.T)


def means(order: list[int]) -> Estimates:
    sizes = np.array([0, 5, 100, 30, 2])[order]
    return Means(
        np.array([0, 0.2, 0.7, 0.0, 0.5])[order], np.array([0, 0.02, 0.1, 0, 0.2])[order], sizes, (0, 1)
    )


def areas(order: list[int]) -> Estimates:
    positives = np.array([0, 5, 100, 30, 9])[order]
    return Areas(
        np.array([0, 0.7, 0.6, 1.0, 0.0])[order], positives, np.array([4, 8, 50, 9, 30])[order], 0.001
    )


def calibration(order: list[int]) -> Estimates:
    totals = np.array([[0, 0, 0], [4, 9, 7], [100, 0, 90], [1, 1, 1], [30, 20, 9]], float)[order]
    events = np.array([[0, 0, 0], [1, 3, 7], [9, 0, 60], [0, 0, 1], [6, 10, 9]], float)[order]
    return CalibrationErrors(
        Proportions(events.ravel(), totals.ravel()), np.tile([0.1, 0.5, 0.8], (len(order), 1)), totals
    )


TABLES = np.array([[0, 0, 0, 0], [3, 2, 1, 4], [1, 0, 1, 50], [20, 0, 0, 9], [2, 3, 0.5, 6.5]])
"""(5, 4) true and false positives, false and true negatives."""


def balanced(order: list[int], *, tables: Floats = TABLES) -> BalancedAccuracies:
    tp, fp, fn, tn = tables[order].T
    return BalancedAccuracies(Proportions(tp, tp + fn), Proportions(tn, tn + fp))


def correlations(order: list[int], *, tables: Floats = TABLES) -> Correlations:
    both = balanced(order, tables=tables)
    tp, fp, fn, tn = tables[order].T
    base = Proportions(tp + fn, tp + fp + fn + tn)
    return Correlations(base, both.sensitivity, both.specificity, (tp + fp > 0) & (fn + tn > 0))


def f_scores(order: list[int], *, tables: Floats = TABLES) -> Scaled:
    tp, fp, fn, _ = tables[order].T
    return Scaled(Proportions(tp, tp + fp + fn), 0.0, 1.0, 2.0)


KINDS: dict[str, Callable[[list[int]], Estimates]] = {
    "proportions": proportions,
    "weighted": weighted,
    "means": means,
    "areas": areas,
    "calibration": calibration,
    "balanced": balanced,
    "correlations": correlations,
    "f_scores": f_scores,
}
IN_ORDER = [0, 1, 2, 3, 4]  # the first group of every kind is undefined


@pytest.mark.parametrize("kind", KINDS)
class TestEveryKind:
    def test_limits_hold_the_value_and_nest(self, kind: str) -> None:
        """Within the support, which is all that is known of a group without rows; nothing changes later."""
        estimates = KINDS[kind](IN_ORDER)
        low, high = estimates.limits(0.05)
        levels = [KINDS[kind](IN_ORDER).limits(alpha) for alpha in (0.9, 0.3, 0.05, 1e-3, 1e-8)]

        assert np.isnan(estimates.value).tolist() == [True, False, False, False, False]
        assert estimates.support == (low[0], high[0]) == (low.min(), high.max())
        assert ((low[1:] <= estimates.value[1:]) & (estimates.value[1:] <= high[1:])).all()
        assert (low < high).all()
        for (inner_low, inner_high), (outer_low, outer_high) in itertools.pairwise(levels):
            assert ((outer_low <= inner_low) & (inner_high <= outer_high)).all()
        with pytest.raises(ValueError, match="read-only"):
            estimates.value[1] = 0.0

    def test_groups_are_treated_alone(self, kind: str) -> None:
        """Permuting the groups permutes the limits."""
        order = [3, 0, 4, 2, 1]
        low, high = KINDS[kind](IN_ORDER).limits(0.01)
        moved_low, moved_high = KINDS[kind](order).limits(0.01)

        np.testing.assert_allclose(moved_low, low[order], rtol=1e-12)
        np.testing.assert_allclose(moved_high, high[order], rtol=1e-12)

    def test_comparisons_are_ordered(self, kind: str) -> None:
        """Low, value, high: for every comparison of every kind."""
        estimates = KINDS[kind]([1, 2, 3, 4])
        least, most = estimates.support
        gaps = [
            (0, difference_between_groups(estimates, 0.05), most - least),
            (0, difference_to_reference(estimates, 1, 0.05).gap, most - least),
            (least, worst(estimates, 0.05, smallest=True), most),
            (least, worst(estimates, 0.05, smallest=False), most),
        ]
        if least >= 0:
            gaps += [
                (0, ratio_between_groups(estimates, 0.05), 1),
                (0, ratio_to_reference(estimates, 1, 0.05).gap, 1),
            ]

        for start, gap, end in gaps:
            assert start <= gap.low <= gap.value <= gap.high <= end


class TestProportions:
    @pytest.mark.parametrize(
        ("successes", "total", "low", "high"),
        [(81, 263, 0.2527, 0.3676), (15, 148, 0.0578, 0.1617), (0, 20, 0.0, 0.1684), (1, 29, 0.0009, 0.1776)],
    )
    def test_published_clopper_pearson(self, successes: int, total: int, low: float, high: float) -> None:
        """Table I of Newcombe (1998), Statistics in Medicine 17:857, method 5."""
        limits = Proportions([successes], [total]).limits(0.05)

        assert (low, high) == pytest.approx((float(limits[0][0]), float(limits[1][0])), abs=6e-5)

    @pytest.mark.parametrize("total", [1, 7, 30])
    @pytest.mark.parametrize("alpha", [0.1, 0.05 / 190])
    def test_each_limit_errs_at_most_half_alpha_for_any_rate(self, total: int, alpha: float) -> None:
        """Summed over all outcomes, exactly, for rates from 0.001 to 0.999."""
        outcomes = np.arange(total + 1)
        low, high = Proportions(outcomes, np.full(total + 1, total)).limits(alpha)
        for rate in np.linspace(0.001, 0.999, 500):
            chance = stats.binom.pmf(outcomes, total, rate)

            assert chance[low > rate].sum() <= alpha / 2 * (1 + 1e-9)
            assert chance[high < rate].sum() <= alpha / 2 * (1 + 1e-9)

    @LAW
    @given(st.integers(0, 10_000), st.sampled_from([0.0, 1.0]), st.floats(1e-3, 1e3))
    def test_weighted_rows_count_as_their_variance_says(self, seed: int, spread: float, scale: float) -> None:
        """Linearised, but never as more than Kish's number; equal weights are none, whatever their scale."""
        rng = np.random.default_rng(seed)
        hit, weight = np.arange(30) < rng.integers(1, 30), scale * rng.lognormal(0, spread, 30)
        rows = Proportions.weighted(*([(weight**k)[of].sum()] for k in (1, 2) for of in (hit, ~hit)))
        rate = weight[hit].sum() / weight.sum()
        linear = rate * (1 - rate) * weight.sum() ** 2 / ((weight * (hit - rate)) ** 2).sum()

        assert rows.value[0] == pytest.approx(rate)
        assert rows.totals[0] == pytest.approx(min(linear, weight.sum() ** 2 / (weight**2).sum()))

    def test_missing_rows_weigh_what_they_weigh_elsewhere(self) -> None:
        """A group without successes has a wider interval where those of another group are heavy; never a narrower."""
        alone, heavy, light = (
            Proportions.weighted([0.0, 10.0 * w], [50.0, 90.0], [0.0, 10.0 * w**2], [50.0, 90.0])
            for w in (1.0, 5.0, 0.2)
        )

        assert alone.totals[0] == light.totals[0] == 50.0
        assert heavy.totals[0] == pytest.approx(10.0)
        assert heavy.limits(0.05)[1][0] > alone.limits(0.05)[1][0]

    def test_expected_decisions_are_between_counts(self) -> None:
        """A fractional success count gives limits between those of its neighbours."""
        low, high = Proportions([3, 3.5, 4], [30, 30, 30]).limits(0.05)

        assert low[0] < low[1] < low[2]
        assert high[0] < high[1] < high[2]

    def test_rounding_above_the_total_is_not_a_success_more(self) -> None:
        """A sum of probabilities may exceed its count by an ulp."""
        rates = Proportions([30 + 1e-12], [30])

        assert (rates.value[0], rates.limits(0.05)[1][0]) == (1.0, 1.0)


class TestMeans:
    def test_student_limits_on_an_open_scale(self) -> None:
        """On an unbounded scale they are those of one more row, sqrt(n) standard deviations out."""
        rows = np.array([3.1, -0.4, 2.2, 8.0, 5.5])
        low, high = Means.from_sums([[len(rows)], [rows.sum()], [(rows**2).sum()]]).limits(0.05)
        ends = []
        for sign in (-1, 1):
            more = np.append(rows, rows.mean() + sign * math.sqrt(5) * rows.std())
            ends.append(stats.t.interval(0.95, 5, more.mean(), stats.sem(more))[(sign + 1) // 2])

        assert ends == pytest.approx([float(low[0]), float(high[0])])

    def test_a_loss_has_no_upper_limit_while_few_rows_carry_it(self) -> None:
        """``n`` equal rows carry their mean; of rows that are mostly 0, the others do. Stricter limits need more."""
        n = math.ceil(CARRIED * math.log(1 / 0.025))
        few, enough, zeros = (
            Means([share], [share * (1 - share)], [rows], (0.0, math.inf))
            for share, rows in ((1.0, n - 1), (1.0, n), (0.01, 50.0 * n))
        )

        assert few.limits(0.05)[1][0] == zeros.limits(0.05)[1][0] == math.inf
        assert enough.limits(0.05)[1][0] == 1.0
        assert enough.limits(0.04)[1][0] == math.inf
        assert 0 <= zeros.limits(0.05)[0][0] < 0.01

    def test_a_change_that_few_rows_make_up_has_no_limits(self) -> None:
        """Where no end is finite, sums of absolute values tell how many rows carry the mean."""
        open_scale = (-math.inf, math.inf)
        few = Means.from_sums([[1000.0], [5.0], [5.0]], open_scale, [5.0])
        none = Means.from_sums([[1000.0], [0.0], [0.0]], open_scale, [0.0])

        assert [float(end[0]) for end in few.limits(0.05)] == [-math.inf, math.inf]
        assert [float(end[0]) for end in none.limits(0.05)] == [0.0, 0.0]

    def test_the_variance_is_that_of_the_quotient_of_two_sums(self) -> None:
        """Weights that grow with the values leave fewer rows in effect than Kish's number; never more than that.

        It counts where no row differs, or all weigh the same.
        """
        value, same = np.random.default_rng(0).gamma(2.0, size=200), np.full(200, 0.7)
        far = 1e3 / (0.1 + (value - 2.0) ** 2)
        for x, weight, by_kish in ((value, value, 0), (value, far, 1), (same, value, 1), (value, same, 1)):
            means = Means.from_sums(powers(weight, x).sum(axis=1, keepdims=True))
            linear = ((weight * (x - np.average(x, weights=weight))) ** 2).sum() / weight.sum() ** 2
            kish = weight.sum() ** 2 / (weight**2).sum()

            spread = float(means.variance[0] / means.sizes[0])
            assert spread == pytest.approx(max(linear, means.variance[0] / kish), rel=1e-9, abs=1e-18)
            assert (means.sizes[0] == pytest.approx(kish)) == bool(by_kish)

    def test_no_spread_is_not_certainty(self) -> None:
        """A constant sample of n on [0, 1] leaves room of about 3/n beyond it; one row on an open scale, all."""
        high = Means([0.0], [0.0], [1000.0], (0, 1)).limits(0.05)[1]

        assert 0.0029 < high[0] < 0.0031
        assert [float(end[0]) for end in Means([1.0], [0.0], [1.0]).limits(0.05)] == [-math.inf, math.inf]


class TestAreas:
    @LAW
    @given(st.floats(0.01, 0.99), st.integers(1, 200), st.integers(1, 200))
    def test_limits_solve_the_score_equation(self, area: float, m: int, n: int) -> None:
        """At a limit, distance and z standard errors there agree (Hanley and McNeil, with N*)."""
        for limit in Areas([area], [m], [n]).limits(0.05):
            theta, extra = float(limit[0]), (m + n) / 2 - 1
            q1, q2 = theta / (2 - theta), 2 * theta**2 / (1 + theta)
            spread = theta * (1 - theta) + extra * (q1 - theta**2) + extra * (q2 - theta**2)

            assert abs(theta - area) == pytest.approx(
                stats.norm.isf(0.025) * math.sqrt(spread / m / n), abs=1e-9
            )

    @pytest.mark.parametrize("heavy", [1.0, 6.0])
    def test_histograms_by_counting_pairs(self, heavy: float) -> None:
        """Area, DeLong's variance and the error of bins agree with loops over all pairs of rows.

        The variance is linearised in the weights of rows, where that is more than Kish's number of rows says.
        """
        high, low = np.repeat([0, 1, 2, 3], [1, 3, 3, 3]), np.repeat([0, 1, 2, 3], [5, 2, 2, 1])
        weight, negatives = np.where(high == 0, heavy, 1.0), np.bincount(low).astype(float)
        masses, squares = (np.bincount(high, weight**k, 4) for k in (1, 2))
        areas = Areas.from_histograms([masses], [negatives], ([squares], [negatives]))
        won, tied = high[:, None] > low, high[:, None] == low
        share, by_square = weight / weight.sum(), weight**2 / (weight**2).sum()
        wins, losses = (won + 0.5 * tied).mean(axis=1), share @ (won + 0.5 * tied)
        m, of_wins = weight.sum() ** 2 / (weight**2).sum(), by_square @ (wins - share @ wins) ** 2
        assert of_wins > share @ (wins - share @ wins) ** 2 - 1e-12

        assert areas.value[0] == pytest.approx(share @ wins)
        assert areas.positives[0] == pytest.approx(m)
        assert np.asarray(areas.variance)[0] == pytest.approx(of_wins / (m - 1) + losses.var() / 9)
        assert areas.slack[0] == pytest.approx(0.5 * share @ tied.mean(axis=1))
        assert Areas.from_histograms([masses], [negatives], exact=True).slack[0] == 0.0

    def test_what_the_model_does_not_know_widens(self) -> None:
        """A variance above the model's scales the interval, one below changes nothing; an area of 1 is not certain."""
        model, small, large = (Areas([0.7], [40], [60], variance=v).limits(0.05) for v in (0.0, 1e-6, 0.01))
        low, high = Areas([1.0], [10], [10]).limits(0.05)

        np.testing.assert_array_equal(model, small)
        assert large[0] < model[0] < model[1] < large[1]
        assert 0.6 < low[0] < 0.95 < high[0] == pytest.approx(1.0)

    def test_numerical_error_adds_up_in_differences(self) -> None:
        """Certified errors of two groups move the difference by their sum."""
        exact, rough = (
            Areas([0.8, 0.6], [500, 400], [500, 400], numerical_error=error) for error in (0.0, 0.01)
        )
        gap, wider = difference_between_groups(exact, 0.05), difference_between_groups(rough, 0.05)

        assert (gap.low - wider.low, wider.high - gap.high) == pytest.approx((0.02, 0.02))


class TestConfusionTables:
    """Numbers of a whole confusion table: F1, balanced accuracy and MCC."""

    @pytest.mark.parametrize(
        "shares", [(0.3, 0.1, 0.1, 0.5), (0.1, 0.01, 0.02, 0.87), (0.02, 0.3, 0.28, 0.4)]
    )
    @pytest.mark.parametrize("alpha", [0.05, 0.001])
    def test_limits_miss_as_seldom_as_they_say_on_each_side(
        self, shares: tuple[float, ...], alpha: float
    ) -> None:
        """By all tables of 9 rows, each with its probability; at the levels that many groups need too."""
        tables = np.array([t for t in itertools.product(range(10), repeat=4) if sum(t) == 9], dtype=float)
        chance = stats.multinomial(9, shares).pmf(tables)
        tp, fp, fn, tn = shares
        margins = (tp + fn) * (tp + fp) * (fp + tn) * (fn + tn)
        truths = {
            balanced: (tp / (tp + fn) + tn / (tn + fp)) / 2,
            correlations: (tp * tn - fp * fn) / math.sqrt(margins),
            f_scores: 2 * tp / (2 * tp + fp + fn),
        }
        for kind, truth in truths.items():
            low, high = kind(list(range(len(tables))), tables=tables).limits(alpha)
            for wrong in (low > truth + 1e-12, high < truth - 1e-12):
                assert chance[wrong].sum() <= alpha / 2

    def test_a_correlation_is_held_between_its_extremes(self) -> None:
        """No rates within the limits that hold together give a coefficient outside."""
        order = [1, 2, 3, 4]
        estimates = correlations(order)
        low, high = estimates.limits(0.05)
        level = 2 * (1 - 0.975 ** (1 / 3))
        rates = (one.limits(level) for one in (estimates.base, estimates.sensitivity, estimates.specificity))
        base, right, rejected = (np.linspace(*ends, 41) for ends in rates)
        p, t, u = base[:, None, None], right[:, None], 1 - rejected
        q = p * t + (1 - p) * u
        found = (t - u) * np.sqrt(p * (1 - p) / (q * (1 - q)))

        assert (low - 1e-12 <= found.min(axis=(0, 1, 2))).all()
        assert (found.max(axis=(0, 1, 2)) <= high + 1e-12).all()
        np.testing.assert_allclose(found.min(axis=(0, 1, 2)), low, atol=0.01)
        np.testing.assert_allclose(found.max(axis=(0, 1, 2)), high, atol=0.01)


class TestCalibrationErrors:
    def test_limits_by_hand(self) -> None:
        """Low from intervals that hold in both bins, high from the root of the sum of squares; 0 where none is off."""
        rates = Proportions([80, 10], [100, 100])
        estimates = CalibrationErrors(rates, [[0.3, 0.5]], [[10, 30]])
        low, high = estimates.limits(0.05)
        (least, most), (start, end) = rates.limits(1 - math.sqrt(0.975)), rates.limits(0.05)
        spread = math.hypot(0.25 * (0.8 - start[0]), 0.75 * (end[1] - 0.1))

        assert estimates.value[0] == pytest.approx(0.25 * 0.5 + 0.75 * 0.4)
        assert low[0] == pytest.approx(0.25 * (least[0] - 0.3) + 0.75 * (0.5 - most[1]))
        assert high[0] == pytest.approx(0.25 * 0.5 + 0.75 * 0.4 + spread)
        right = CalibrationErrors(rates, [[0.8, 0.1]], [[10, 30]])
        assert (right.value[0], right.limits(0.05)[0][0]) == pytest.approx((0.0, 0.0))


COUNTS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda c: (c[0], c[0] + c[1])),
    min_size=2,
    max_size=7,
)


def rates_of(counts: list[tuple[int, int]]) -> Proportions:
    return Proportions(*np.array(counts, dtype=float).T)


def every_gap(estimates: Proportions, alpha: float) -> list[Gap]:
    share = estimates.totals / max(estimates.totals.sum(), 1)
    return [
        difference_between_groups(estimates, alpha),
        ratio_between_groups(estimates, alpha),
        difference_to_overall(estimates, rest_of(estimates), share, alpha).gap,
        ratio_to_overall(estimates, rest_of(estimates), share, alpha).gap,
        worst(estimates, alpha, smallest=True),
        worst(estimates, alpha, smallest=False),
    ]


def rest_of(estimates: Proportions) -> Proportions:
    s, n = estimates.successes, estimates.totals
    return Proportions(s.sum() - s, n.sum() - n)


class TestComparisons:
    @LAW
    @given(COUNTS)
    def test_difference_by_brute_force(self, counts: list[tuple[int, int]]) -> None:
        """The interval is the largest of the pairwise ones, each written out."""
        counts = [(s, n) for s, n in counts if n] or [(1, 2), (1, 3)]
        p = np.array([s / n for s, n in counts])
        pairs = list(itertools.permutations(range(len(p)), 2))
        if not pairs:
            return
        strict = rates_of(counts).limits(0.05 / (len(pairs) - 1))
        loose = rates_of(counts).limits(0.05)
        lows = [p[i] - p[j] - math.dist((p[i], p[j]), (strict[0][i], strict[1][j])) for i, j in pairs]
        highs = [p[i] - p[j] + math.dist((p[i], p[j]), (loose[1][i], loose[0][j])) for i, j in pairs]
        gap = difference_between_groups(rates_of(counts), 0.05)

        assert (max(0, *lows), min(1, max(highs))) == pytest.approx((gap.low, gap.high))
        assert gap.value == pytest.approx(max(p) - min(p))

    def test_ratio_by_hand(self) -> None:
        """MOVER on the log scale, written out for two groups."""
        p, (low, high) = np.array([0.5, 0.2]), Proportions([50, 40], [100, 200]).limits(0.05)
        gap = ratio_between_groups(Proportions([50, 40], [100, 200]), 0.05)
        down = math.dist((math.log(low[1]), math.log(high[0])), (math.log(p[1]), math.log(p[0])))
        up = math.dist((math.log(high[1]), math.log(low[0])), (math.log(p[1]), math.log(p[0])))

        assert (0.4, 0.4 * math.exp(-down), 0.4 * math.exp(up)) == pytest.approx(
            (gap.value, gap.low, gap.high)
        )
        assert gap.groups == (0, 1)

    def test_ratios_of_zero_rates(self) -> None:
        """0/x is 0, up to the rectangle of both limits; 0/0 is no ratio, and nothing is known about it."""
        rates = Proportions([40, 0], [100, 200])
        low, high = rates.limits(0.05)
        gap, nothing = (ratio_between_groups(one, 0.05) for one in (rates, Proportions([0, 0], [100, 200])))

        assert (gap.value, gap.low, gap.high) == pytest.approx((0.0, 0.0, high[1] / low[0]))
        assert_same_gap(Gap(math.nan, 0.0, 1.0, (), ()), nothing)

    @LAW
    @given(COUNTS, st.randoms(use_true_random=False))
    def test_permutation_of_groups(self, counts: list[tuple[int, int]], random: object) -> None:
        """Values and intervals do not depend on the order of the groups; indices follow them."""
        order = list(range(len(counts)))
        random.shuffle(order)
        before, after = rates_of(counts), rates_of([counts[i] for i in order])

        for gap, moved in zip(every_gap(before, 0.05), every_gap(after, 0.05), strict=True):
            assert (gap.value, gap.low, gap.high) == pytest.approx(
                (moved.value, moved.low, moved.high), rel=1e-9, abs=1e-9, nan_ok=True
            )
            assert set(gap.undefined) == {order[i] for i in moved.undefined}

    @LAW
    @given(COUNTS)
    @example([(0, 0), (1, 2)])
    @example([(0, 5), (0, 7), (3, 3)])
    @example([(0, 0), (0, 0), (0, 4)])
    def test_order_and_nesting(self, counts: list[tuple[int, int]]) -> None:
        """Always low <= value <= high inside [0, 1], and more confidence never narrows."""
        for gap, wider in zip(
            every_gap(rates_of(counts), 0.1), every_gap(rates_of(counts), 0.01), strict=True
        ):
            assert 0 <= wider.low <= gap.low <= gap.high <= wider.high <= 1
            assert math.isnan(gap.value) or gap.low - 1e-12 <= gap.value <= gap.high + 1e-12

    def test_ties_go_to_the_lowest_indices(self) -> None:
        """Equal groups are named in order, and two groups are always named."""
        assert difference_between_groups(Proportions([5, 5, 5], [9, 9, 9]), 0.05).groups == (0, 1)
        assert difference_between_groups(Proportions([2, 7, 7, 2], [9] * 4), 0.05).groups == (1, 0)

    def test_reference_by_hand(self) -> None:
        """Each group minus the reference, at alpha over the number of others; the reference itself is 0."""
        rates = Proportions([30, 45, 70], [100, 100, 100])
        result = difference_to_reference(rates, 0, 0.05)
        low, high = rates.limits(0.025)

        assert result.value == pytest.approx([0.0, 0.15, 0.4])
        assert result.high[1] == pytest.approx(0.15 + math.dist((high[1], low[0]), (0.45, 0.3)))
        assert (result.low[0], result.high[0]) == (0.0, 0.0)
        assert (result.gap.value, result.gap.groups) == (pytest.approx(0.4), (2, 0))

    def test_ratio_to_reference_is_symmetric(self) -> None:
        """Twice the reference is as far from it as half of it."""
        double = ratio_to_reference(Proportions([20, 40], [100, 100]), 0, 0.05)
        half = ratio_to_reference(Proportions([20, 40], [100, 100]), 1, 0.05)

        assert (double.value[1], half.value[0], double.gap.value) == pytest.approx((2.0, 0.5, 0.5))
        assert (double.gap.low, double.gap.high) == pytest.approx((half.gap.low, half.gap.high))
        assert double.low[1] == pytest.approx(1 / half.high[0])

    def test_ratio_to_a_reference_of_zero(self) -> None:
        """x/0 is infinite, 0/0 undefined."""
        result = ratio_to_reference(Proportions([0, 7, 0], [50, 50, 50]), 0, 0.05)

        assert result.value[1] == math.inf
        assert math.isnan(result.value[2])
        assert (result.gap.value, result.gap.low, result.gap.undefined) == (0.0, 0.0, (2,))

    def test_overall_is_the_mixture(self) -> None:
        """Group minus everybody, and group over everybody, computed from the pooled counts."""
        rates = Proportions([10, 60, 30], [100, 200, 50])
        share = np.array([100, 200, 50]) / 350
        difference = difference_to_overall(rates, rest_of(rates), share, 0.05)
        ratio = ratio_to_overall(rates, rest_of(rates), share, 0.05)

        assert difference.value == pytest.approx([0.1 - 100 / 350, 0.3 - 100 / 350, 0.6 - 100 / 350])
        assert ratio.value == pytest.approx([0.1 * 3.5, 0.3 * 3.5, 0.6 * 3.5])
        assert ((difference.low < difference.value) & (difference.value < difference.high)).all()
        assert ((ratio.low < ratio.value) & (ratio.value < ratio.high)).all()

    def test_group_that_is_everybody(self) -> None:
        """It differs from everybody by exactly nothing, though the others have no rows."""
        rates = Proportions([10, 0], [100, 0])
        difference = difference_to_overall(rates, rest_of(rates), [1.0, 0.0], 0.05)
        ratio = ratio_to_overall(rates, rest_of(rates), [1.0, 0.0], 0.05)

        assert (difference.value[0], difference.low[0], difference.high[0]) == (0.0, 0.0, 0.0)
        assert (ratio.value[0], ratio.low[0], ratio.high[0]) == (1.0, 1.0, 1.0)
        assert math.isnan(difference.gap.value)

    def test_worst_group(self) -> None:
        """The outer end needs no multiplicity, the inner one does."""
        rates = Proportions([30, 45, 70], [100, 100, 100])
        gap, plain = worst(rates, 0.05, smallest=True), rates.limits(0.05)

        assert (gap.value, gap.low, gap.groups) == (0.3, pytest.approx(plain[0][0]), (0,))
        assert gap.high > plain[1][0]

    def test_simultaneous_limits(self) -> None:
        """Each of m defined groups is held at 1 - (1 - alpha)^(1/m)."""
        rates = Proportions([30, 0, 70], [100, 0, 100])

        np.testing.assert_allclose(simultaneous_limits(rates, 0.05), rates.limits(1 - math.sqrt(0.95)))

    def test_combine_takes_the_worse(self) -> None:
        """The larger of two gaps, and the larger of their ends; an undefined one keeps the end open."""
        first, second = Gap(0.2, 0.0, 0.5, (0, 1), ()), Gap(0.1, 0.05, 0.3, (1, 2), ())
        nothing = Gap(math.nan, 0.0, 1.0, (), (2,))

        assert_same_gap(Gap(0.2, 0.05, 0.5, (0, 1), ()), combine(first, second))
        assert_same_gap(Gap(0.1, 0.0, 0.3, (1, 2), ()), combine(first, second, smallest=True))
        assert_same_gap(Gap(0.2, 0.05, 1.0, (0, 1), (2,)), combine(first, second, nothing))
        assert_same_gap(nothing, combine(nothing, nothing))

    def test_a_thousand_groups(self) -> None:
        """Half a million pairs: same as one row of pairs at a time, in little memory."""
        rng = np.random.default_rng(5)
        n = rng.integers(30, 10_000, 1000).astype(float)
        rates = Proportions(rng.binomial(n.astype(int), 0.1), n)
        tracemalloc.start()
        gap, ratio = difference_between_groups(rates, 0.05), ratio_between_groups(rates, 0.05)
        memory = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        p, (low, high) = rates.value, rates.limits(0.05)
        best = max(float((p[i] - p + np.hypot(high[i] - p[i], p - low)).max()) for i in range(1000))

        assert best == pytest.approx(gap.high)
        assert ratio.value == pytest.approx(p.min() / p.max())
        assert memory < 20e6


class TestUndefined:
    @LAW
    @given(COUNTS)
    def test_an_undefined_group_never_helps(self, counts: list[tuple[int, int]]) -> None:
        """Its presence leaves value and the damning end alone and opens the other to the worst possible."""
        counts = [(s, n) for s, n in counts if n]
        if len(counts) < 2:
            return
        alone = rates_of(counts)
        beside = rates_of([*counts, (0, 0)])
        kept, opened = every_gap(alone, 0.05), every_gap(beside, 0.05)
        worst_end = {
            0: ("high", 1.0),
            1: ("low", 0.0),
            2: ("high", 1.0),
            3: ("low", 0.0),
            4: ("low", 0.0),
            5: ("high", 1.0),
        }

        for i, (gap, wide) in enumerate(zip(kept, opened, strict=True)):
            end, limit = worst_end[i]
            other = "low" if end == "high" else "high"
            assert gap.value == pytest.approx(wide.value, nan_ok=True)
            assert getattr(wide, end) == limit
            assert getattr(wide, other) == pytest.approx(getattr(gap, other))
            assert len(counts) in wide.undefined

    def test_one_defined_group_is_no_comparison(self) -> None:
        """A value needs two groups; the interval is everything possible."""
        rates = Proportions([3, 0, 0], [10, 0, 0])

        assert_same_gap(Gap(math.nan, 0, 1, (), (1, 2)), difference_between_groups(rates, 0.05))
        assert_same_gap(Gap(math.nan, 0, 1, (), (1, 2)), ratio_between_groups(rates, 0.05))
        assert_same_gap(Gap(math.nan, 0, 1, (), (1, 2)), difference_to_reference(rates, 0, 0.05).gap)
        assert_same_gap(Gap(math.nan, 0, 1, (), (0, 1, 2)), difference_to_reference(rates, 1, 0.05).gap)
        assert_same_gap(
            Gap(math.nan, 0, 1, (), (0, 1, 2)),
            worst(Proportions([0] * 3, [0] * 3), 0.05, smallest=True),
        )

    def test_an_unbounded_mean_stays_unbounded(self) -> None:
        """A mean of one row on an open scale makes the difference undecidable."""
        gap = difference_between_groups(Means([1.0, 2.0], [0.0, 0.1], [1, 50]), 0.05)

        assert (gap.value, gap.low, gap.high) == (1.0, 0.0, math.inf)


def distances_of(cdfs: Floats) -> Floats:
    return np.abs(cdfs[:, None] - cdfs).max(axis=2)


class TestKolmogorovSmirnov:
    def test_margin_is_the_two_sample_quantile(self) -> None:
        """The margin has the tail probability of SciPy's asymptotic two-sample test."""
        margin = float(ks_margin(300, 500, 0.05))

        assert stats.kstwobign.sf(margin / math.sqrt(1 / 300 + 1 / 500)) == pytest.approx(0.05, rel=2e-3)

    def test_shortfall_holds_for_every_sample_size(self) -> None:
        """Exact binomial tails, where the variance is largest, never exceed alpha/2."""
        for n in range(1, 400):
            margin = float(ks_shortfall(n, math.inf, 0.05))
            # n/2 - n margin is the first count that is not missed
            missed = stats.binom.cdf(math.ceil(n / 2 - n * margin) - 1, n, 0.5)

            assert missed <= 0.025

    def test_pairs(self) -> None:
        """Low and high come from the pairs' own margins, value and names from the largest distance."""
        d = np.array([[0, 0.1, 0.4], [0.1, 0, 0.35], [0.4, 0.35, 0]])
        gap = ks_between_groups(d, [100, 400, 900], 0.05, slack=0.01)

        assert (gap.value, gap.groups) == (0.4, (0, 2))
        assert gap.low == pytest.approx(
            max(0.4 - ks_margin(100, 900, 0.01), 0.35 - ks_margin(400, 900, 0.01))
        )
        assert 0.41 + 0.98 * math.sqrt(1 / 100 + 1 / 900) < gap.high < 0.41 + float(ks_margin(100, 900, 0.05))

    def test_undefined_group(self) -> None:
        """A group without rows opens the upper end and leaves the lower one."""
        d = np.array([[0, 0.1, 0.9], [0.1, 0, 0.9], [0.9, 0.9, 0]])
        both = ks_between_groups(d[:2, :2], [5000, 5000], 0.05)
        gap = ks_between_groups(d, [5000, 5000, 0], 0.05)

        assert_same_gap(Gap(0.1, both.low, 1.0, (0, 1), (2,)), gap)
        assert_same_gap(Gap(math.nan, 0, 1, (), (1,)), ks_between_groups(d[:2, :2], [9, 0], 0.05))

    @LAW
    @given(st.integers(0, 10_000), st.integers(2, 30))
    def test_binned_bound_holds_the_pairwise_one(self, seed: int, groups: int) -> None:
        """Without forming pairs the interval contains that of all pairs, and is not much wider."""
        rng = np.random.default_rng(seed)
        sizes = rng.integers(5, 5000, groups)
        shapes = rng.dirichlet(np.full(64, 3.0), groups)
        cdfs = (
            np.stack([rng.multinomial(n, s) for n, s in zip(sizes, shapes, strict=True)]).cumsum(1)
            / sizes[:, None]
        )
        pairs, binned = (
            ks_between_groups(distances_of(cdfs), sizes, 0.05),
            ks_between_cdfs(cdfs, sizes, 0.05),
        )
        bin_mass = np.diff(cdfs, axis=1, prepend=0.0).max()

        assert binned.value == pytest.approx(pairs.value)
        assert binned.low <= pairs.low + 1e-12
        assert pairs.high - 1e-12 <= binned.high
        assert binned.high - pairs.high <= bin_mass + 0.1 * pairs.high

    def test_binned_groups_of_one_size_give_the_pairwise_low(self) -> None:
        """Where all sizes are equal nothing is lost."""
        cdfs = np.random.default_rng(1).dirichlet(np.ones(20), 15).cumsum(axis=1)
        sizes = np.full(15, 4096)

        pairs, binned = (
            ks_between_groups(distances_of(cdfs), sizes, 0.05),
            ks_between_cdfs(cdfs, sizes, 0.05),
        )
        assert binned.low == pytest.approx(pairs.low)
        assert binned.groups == (*pairs.groups,) or binned.groups == pairs.groups[::-1]

    def test_binned_margins_are_those_of_the_sizes_that_differ(self) -> None:
        """A small group elsewhere widens the interval of two large ones by no more than a few percent."""
        t = np.linspace(0.001, 1, 1000)
        early, late = (t + np.minimum(2 * t, 1)) / 2, (t + np.maximum(2 * t - 1, 0)) / 2
        gap = ks_between_cdfs([early, late, (early + late) / 2], [400, 4000, 300], 0.05)
        margin = float(ks_shortfall(400, 4000, 0.05))

        assert 0.5 + margin <= gap.high <= 0.5 + 1.1 * margin + 0.002

    def test_binned_undefined_group_and_known_value(self) -> None:
        """An exact distance from elsewhere is reported; an empty group opens the upper end."""
        cdfs = np.array([[0.2, 1.0], [0.6, 1.0], [np.nan, np.nan]])
        gap = ks_between_cdfs(cdfs, [900, 900, 0], 0.05, value=0.45)

        assert (gap.value, gap.high, gap.undefined) == (0.45, 1.0, (2,))
        assert_same_gap(Gap(math.nan, 0, 1, (), (1, 2)), ks_between_cdfs(cdfs, [9, 0, 0], 0.05))

    def test_to_overall_shrinks_with_the_share(self) -> None:
        """The margin of a group that is half of everybody is half of that to the rest."""
        result = ks_to_overall([0.1, 0.2, 0.0], [500, 500, 0], [500, 500, 1000], [0.5, 0.5, 0.0], 0.05)

        assert result.low[1] == pytest.approx(0.2 - 0.5 * ks_margin(500, 500, 0.025))
        assert (result.low[2], result.high[2]) == (0.0, 1.0)
        gap = result.gap
        assert (gap.value, gap.groups, gap.high, gap.undefined) == (0.2, (1,), 1.0, (2,))


@LAW
@given(
    points=st.lists(st.tuples(*[st.integers(0, 4)] * 4), min_size=2, max_size=9),
    sign=st.sampled_from([-1, 1]),
)
@example(points=[(4, 4, 4, 4), (3, 0, 0, 0), (2, 4, 0, 0)], sign=1)
def test_the_largest_pair_is_that_of_all_pairs(points: list[tuple[int, ...]], sign: int) -> None:
    """Also where groups tie, and where the best partner of the best group is itself."""
    x, a, y, b = np.array(points, dtype=np.float64).T
    pairs = ((i, j) for i in range(len(x)) for j in range(len(x)) if i != j)
    brute = max(x[i] + y[j] + sign * math.hypot(a[i], b[j]) for i, j in pairs)

    assert largest_pair((x, a), (y, b), sign) == pytest.approx(brute, abs=1e-12)


def test_equal_quantiles_are_searched_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many groups with few different counts each count costs a search; what each gets is the same to the bit."""
    a, b = (np.random.default_rng(seed).integers(1, 6, 2000).astype(float) for seed in (1, 2))
    one_by_one = [own.beta_quantile(0.025, *shapes) for shapes in zip(a, b, strict=True)]
    search, sizes = special.betaincinv, list[int]()
    monkeypatch.setattr(special, "betaincinv", lambda *of: sizes.append(np.size(of[0])) or search(*of))

    assert own.beta_quantile(0.025, a, b).tolist() == [float(one) for one in one_by_one]
    assert sizes == [25]
    halves = own.beta_quantile(0.025, a / 2, b)
    assert halves[7] == search(a[7] / 2, b[7], 0.025)
