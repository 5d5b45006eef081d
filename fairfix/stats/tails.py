r"""Tails: bounds on numbers of a population that hold at any number of rows, without a normal approximation.

Let ``p(t)`` be a bound on the chance that the mean of ``n`` independent rows of a group is as far below its expectation
``t`` as it is, so that ``P(p(t) <= a) <= a``, whatever the distribution is:

* a fixed rule of decisions 0/1: the binomial tail itself (Clopper and Pearson);
* a fixed rule of numbers in [0, 1]: Chernoff's ``exp(-n kl(mean, t))`` with Hoeffding's convexity;
* *all* rules of a score at once: with ``D = sup |F_n - F|``, Massart's ``2 exp(-2 n D^2)``. A rule ``f`` of total
  variation ``V`` has ``|P_n f - P f| = |∫ (F_n - F) df| <= V D``.

``-log p`` of one group is at most a standard exponential (plus ``log 2`` for the last), those of ``m`` independent
groups add up to at most a Gamma(m), as in Fisher's combination of tests. So with probability ``1 - alpha`` two groups
lie in

.. math:: -\log p_a - \log p_b \le c, \qquad (1 + c)\, e^{-c} = \alpha ,

and the largest difference inside that region bounds the difference of the population. It is near to the root of the sum
of squares of two intervals, where their plain sum is what Bonferroni's inequality gives.

References
----------
A. Dvoretzky, J. Kiefer and J. Wolfowitz (1956), Annals of Mathematical Statistics 27. P. Massart (1990), Annals of
Probability 18. W. Hoeffding (1963), JASA 58. R. A. Fisher (1932), Statistical Methods for Research Workers, 21.1.
E. C. Fieller (1954), Journal of the Royal Statistical Society B 16. I. Waudby-Smith and A. Ramdas (2024), *Estimating
means of bounded random variables by betting*, Journal of the Royal Statistical Society B 86.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fairfix.stats.estimates import Floats
from fairfix.stats.quantiles import beta_quantile

PARTS = 200
"""Ways to share the budget of two groups: what lies between two ways is counted as the worse of both."""

MANY = 40
"""Groups above which each has its own budget, so that the work grows with their number and not with its square."""

HALVINGS = 60
"""Of [0, 1], so that the end that is taken is off by less than floats can tell."""


def budget(alpha: float, groups: int) -> float:
    """Return ``c`` such that ``groups`` independent standard exponentials add up to more with probability ``alpha``."""
    from scipy.special import gammainccinv

    return float(gammainccinv(groups, alpha))


def upper_mean(mean: ArrayLike, rows: ArrayLike, cost: ArrayLike, *, counted: bool) -> Floats:
    """Return the largest expectation whose tail probability is at least ``exp(-cost)``, broadcast.

    ``counted``: rows are 0 or 1, and the tail is the binomial one; else they are anywhere in [0, 1]. 1 without rows.
    """
    mean, rows, cost = np.broadcast_arrays(*(np.asarray(one, dtype=np.float64) for one in (mean, rows, cost)))
    there = np.where(rows > 0, rows, 1.0)
    if counted:
        successes = np.where(rows > 0, np.round(mean * rows), 1.0)
        left = there - successes
        inside = np.maximum(left, 0.5)  # an argument that is allowed, where the answer is 1 anyway
        most = beta_quantile(-np.expm1(-np.maximum(cost, 1e-300)), successes + 1.0, inside)
        return np.where(left > 0, np.asarray(most), 1.0)
    mean = np.clip(np.where(rows > 0, mean, 1.0), 0.0, 1.0)
    low, high = mean.copy(), np.ones(mean.shape)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        inside = there * _divergence(mean, middle) <= cost
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return high


def _divergence(p: Floats, q: Floats) -> Floats:
    """Return the Kullback-Leibler divergence of two coins, ``kl(p, q)``."""
    with np.errstate(divide="ignore", invalid="ignore"):
        one = np.where(p > 0, p * np.log(p / q), 0.0)
        zero = np.where(p < 1, (1 - p) * np.log((1 - p) / (1 - q)), 0.0)
    return np.asarray(one + zero)


def largest_difference(mean: Floats, rows: Floats, alpha: float, *, counted: bool) -> float:
    """Return what no difference of two of the groups' expectations exceeds, with probability ``1 - alpha``; at most 1.

    ``mean``, ``rows``: shape (K,) of a fixed rule on independent rows that it was not made of.
    """
    groups = mean.size
    if groups > MANY:
        own = math.log(2 * groups / alpha)
        high = upper_mean(mean, rows, own, counted=counted)
        low = 1.0 - upper_mean(1.0 - mean, rows, own, counted=counted)
        return float(min(high.max() - low.min(), 1.0))
    c = budget(alpha / (groups * (groups - 1)), 2)
    cost = np.linspace(0.0, c, PARTS + 1)
    high = upper_mean(mean[:, None], rows[:, None], cost[1:], counted=counted)
    low = 1.0 - upper_mean(1.0 - mean[:, None], rows[:, None], cost[:0:-1], counted=counted)
    far = (high[:, None] - low[None]).max(axis=2)
    np.fill_diagonal(far, 0.0)
    return float(min(far.max(), 1.0))


ONE_MORE = 1e-9
"""What is added to a limit that Newton's steps come to from below; they end where they are shorter."""


@dataclass(frozen=True)
class Reach:
    """How far means of all rules of a score lie from their expectations, group by group, at once.

    In one of two shapes: a box, ``2 n_k D_k^2 <= c`` for each group (Bonferroni), or a ball, where the sum over the
    groups that are looked at together is at most ``c``. :func:`reach_of` chooses by numbers of rows.
    """

    cost: float
    box: bool

    def __call__(self, weight: Floats, rows: ArrayLike) -> Floats:
        """Return the largest ``sum_k weight_k D_k``, over the last axis; infinite where a group has no rows."""
        with np.errstate(divide="ignore", invalid="ignore"):
            each = np.where(weight > 0, weight / np.sqrt(2.0 * np.asarray(rows)), 0.0)
        total = each.sum(axis=-1) if self.box else np.sqrt((each**2).sum(axis=-1))
        return np.asarray(math.sqrt(self.cost) * total)

    def least_ratio(self, mean: Floats, weight: Floats, rows: ArrayLike) -> Floats:
        """Return the least ratio of two expectations of which both means may be, shape (m,); 0 where the first may be.

        ``mean``, ``weight``, ``rows``: shape (m, 2). In the ball the ratio is at least ``r`` where no point of the
        quarter circle has ``(x - a cos) - r (y + b sin)`` below 0, so where ``x - r y >= sqrt(a^2 + r^2 b^2)``: the
        lower end of Fieller's interval.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            off = np.where(weight > 0, weight * np.sqrt(self.cost / (2.0 * np.asarray(rows))), 0.0)
        (x, y), (a, b) = mean.T, off.T
        there = x > a
        if self.box:
            return np.asarray(np.where(there, (x - a) / np.where(there, y + b, 1.0), 0.0))
        root = np.sqrt(np.where(there, (x * b) ** 2 + (y**2 - b**2) * a**2, 0.0))
        return np.asarray(np.where(there, (x - a) * (x + a) / np.where(there, x * y + root, 1.0), 0.0))


def reach_of(weights: Floats, rows: ArrayLike, alpha: float, *, groups: int, balls: int) -> Reach:
    """Return the shape in which the largest sum is smaller, which numbers of rows alone decide.

    Parameters
    ----------
    weights, rows
        Sums that are looked at, shape (m, members), with weights that do not hang on what the rows are like.
    groups
        All groups, each of which has a side of the box.
    balls
        How many sets of groups share ``alpha``, each with a ball of its own.
    """
    members = weights.shape[-1]
    box = Reach(math.log(2 * groups / alpha), box=True)
    ball = Reach(budget(alpha / balls, members) + members * math.log(2), box=False)
    return min(ball, box, key=lambda one: float(one(weights, rows).max()))


def stake_of(spread: ArrayLike, rows: ArrayLike, cost: float) -> Floats:
    """Return what to bet on each row that a mean of numbers in [0, 1] is smaller, broadcast: at most 1.

    ``spread``: their standard deviation as far as other rows tell. It makes :func:`upper_by_bets` least where they are
    near to normal; any other stake is allowed too.
    """
    with np.errstate(divide="ignore"):
        return np.asarray(np.minimum(np.sqrt(2.0 * cost / np.asarray(rows)) / np.asarray(spread), 1.0))


def upper_by_bets(
    numbers: Floats, stake: float, cost: float, rows: float | None = None, weight: Floats | float = 1.0
) -> float:
    """Return the largest expectation ``m`` of numbers in [0, 1] that bets against it do not refute, at ``exp(-cost)``.

    Whoever bets ``stake``, fixed before the numbers are seen, has ``prod (1 + stake (m - x_i))`` in the end, which is
    never negative and expected to be 1 where ``m`` is the expectation, so it is above ``exp(cost)`` with a chance of at
    most ``exp(-cost)`` (Markov; I. Waudby-Smith and A. Ramdas 2024, section 4). ``rows``: as if so many had been seen.
    With a ``weight`` in [0, 1] of each number ``m`` is ``E[w x] / E[w]``, where that of ``w (m - x)`` is 0; 1 without
    any.
    """
    target, weight = cost / (numbers.size if rows is None else rows), np.broadcast_to(weight, numbers.shape)
    if not weight.any():
        return 1.0
    m = float(np.average(numbers, weights=weight))
    for _ in range(HALVINGS):  # Newton's steps: the logarithm is concave in m, so that none goes too far
        inside = 1.0 + stake * weight * (m - numbers)  # above 0: where one of them is 1, m is not 0
        step = (target - float(np.log(inside).mean())) / float((stake * weight / inside).mean())
        m += step
        if m >= 1.0 or step < ONE_MORE:
            break
    return min(m + ONE_MORE, 1.0)


def share_distance(rows: int, groups: int, alpha: float) -> float:
    """Return how far the shares of groups among independent rows lie from those of the population, in total variation.

    With probability ``1 - alpha``: Hoeffding's bound for each way to part the groups in two (T. Weissman and others,
    2003).
    """
    parts = math.log(2.0**groups - 2.0) if groups < 1000 else groups * math.log(2)
    return min(math.sqrt((parts - math.log(alpha)) / (2 * rows)), 1.0)
