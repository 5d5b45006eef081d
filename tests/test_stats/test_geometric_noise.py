"""Two-sided geometric noise has its distribution, and rates of noisy counts keep their coverage."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from fairfix.stats.estimates import Proportions
from fairfix.stats.geometric_noise import NoisyProportions, budget_of, reach, two_sided_geometric

from tests.data import below


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", ["0.05", "0.7", "1", "3.25"])
def test_noise_has_the_distribution_that_is_stated(epsilon: str) -> None:
    """Counts of each value are within 5 standard deviations of the geometric law, in both tails."""
    many, draw = 20_000, below(3)
    drawn = np.array([two_sided_geometric(Fraction(epsilon), draw) for _ in range(many)])
    a = math.exp(-float(epsilon))
    chance = (1 - a) / (1 + a)
    for value in range(-4, 5):
        p = chance * a ** abs(value)
        assert abs(np.sum(drawn == value) - many * p) < 5 * math.sqrt(many * p)
    assert abs(drawn.mean()) < 5 * math.sqrt(2 * a / many) / (1 - a)
    far = math.ceil(2 / float(epsilon))
    beyond = 2 * a ** (far + 1) / (1 + a)
    assert abs(np.sum(np.abs(drawn) > far) - many * beyond) < 5 * math.sqrt(many * beyond)


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 8.0])
@pytest.mark.parametrize("tail", [0.2, 0.005, 1e-5, 1e-13])
def test_reach_is_the_quantile_of_the_sum(epsilon: float, tail: float) -> None:
    """Of one noise in closed form, of more by convolution; 1e-9 is for rounding, and a smaller tail has a bound."""
    a = math.exp(-epsilon)
    ends = int(40 / epsilon) + 5
    pmf = (1 - a) / (1 + a) * a ** np.abs(np.arange(-ends, ends + 1))
    total = np.array([1.0])
    for many in range(1, 5):
        total = np.convolve(total, pmf) if ends < 2000 else None
        q = reach(epsilon, many, tail)
        if many == 1:
            beyond = [2 * a ** (k + 1) / (1 + a) for k in (q - 1, q)]
        elif total is None:
            break
        else:
            size = np.abs(np.arange(total.size) - total.size // 2)
            beyond = [total[size > k].sum() for k in (q - 1, q)]
        assert beyond[1] <= tail
        assert tail < 1e-9 or q == 0 or beyond[0] > tail - 2e-9


def test_limits_are_the_outermost_of_what_the_noise_leaves_possible() -> None:
    """By trying every pair of true counts; without a positive count there is no rate, and anything is possible."""
    alpha, epsilon = 0.05, 1.0
    noisy, many = (
        np.array([[7.0, -3.0], [12.0, 0.0], [0.0, 40.0]]),
        np.array([[2.0, 4.0], [1.0, 1.0], [3.0, 1.0]]),
    )
    made = NoisyProportions.of(*(np.stack([noisy[:, k], many[:, k]], axis=1) for k in (0, 1)), epsilon)
    low, high = made.limits(alpha)
    for i, (own, cells) in enumerate(zip(noisy, many, strict=True)):
        far = [reach(epsilon, int(m), 0.1 * alpha) for m in cells]
        ranges = [range(max(int(n) - f, 0), max(int(n) + f, 0) + 1) for n, f in zip(own, far, strict=True)]
        pairs = np.array([(s, s + t) for s in ranges[0] for t in ranges[1]], dtype=float)
        ends = Proportions(*pairs.T).limits(0.8 * alpha)
        assert low[i] == pytest.approx(ends[0].min(), abs=1e-12)
        assert high[i] == pytest.approx(ends[1].max(), abs=1e-12)
    nothing = NoisyProportions.of(np.array([[-1.0, 1.0]]), np.array([[0.0, 1.0]]), epsilon)
    assert np.isnan(nothing.value[0])
    assert [float(end[0]) for end in nothing.limits(alpha)] == [0.0, 1.0]


@pytest.mark.parametrize("text", ["0.0009", "10.5", "-1", "nan", "one", "1/0", "1e999999999", "", "١"])
def test_a_budget_is_from_a_thousandth_to_ten(text: str) -> None:
    with pytest.raises(ValueError, match="epsilon"):
        budget_of(text)
    assert budget_of("0.1") == Fraction(1, 10)
