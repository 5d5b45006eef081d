r"""Tails: bounds on numbers of a population that hold at any number of rows, without a normal approximation.

Let ``p(t)`` be a bound on the chance that the mean of ``n`` independent rows of a group is as far below its expectation
``t`` as it is, so that ``P(p(t) <= a) <= a``, whatever the distribution is:

* a fixed rule of decisions 0/1: the binomial tail itself (Clopper and Pearson);
* a fixed rule of numbers in [0, 1]: Chernoff's ``exp(-n kl(mean, t))`` with Hoeffding's convexity;
* a fixed rule of numbers in [0, 1] by bets: whoever bets against a mean multiplies a stake whose expectation is 1, and
  stakes of independent groups may be multiplied with each other;
* *all* rules of a score at once: with ``D = sup (F_n - F)``, or the other way round, Massart's ``exp(-2 n D^2)``,
  which holds for every ``D`` (Reeve). A rule ``f`` of total variation ``V`` has ``P f - P_n f = ∫ (F_n - F) df``: at
  most ``D`` where it rises from 0 to 1, and at most ``V`` times the larger of both in general.

``-log p`` of one group is at most a standard exponential, those of ``m`` independent groups add up to at most a
Gamma(m), as in Fisher's combination of tests. So with probability ``1 - alpha`` two groups lie in

.. math:: -\log p_a - \log p_b \le c, \qquad (1 + c)\, e^{-c} = \alpha ,

and the largest difference inside that region bounds the difference of the population. It is near to the root of the sum
of squares of two intervals, where their plain sum is what Bonferroni's inequality gives.

The largest of many differences of a *fixed* rule is bounded by the largest of their bounds, each at the whole of
``alpha``: one of the differences is the largest in the population, and where its own bound holds, so does the largest.

References
----------
A. Dvoretzky, J. Kiefer and J. Wolfowitz (1956), Annals of Mathematical Statistics 27. P. Massart (1990), Annals of
Probability 18. W. Hoeffding (1963), JASA 58. R. A. Fisher (1932), Statistical Methods for Research Workers, 21.1.
E. C. Fieller (1954), Journal of the Royal Statistical Society B 16. I. Waudby-Smith and A. Ramdas (2024), *Estimating
means of bounded random variables by betting*, Journal of the Royal Statistical Society B 86. H. W. J. Reeve (2024), *A
short proof of the Dvoretzky-Kiefer-Wolfowitz-Massart inequality*.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from fairfix.stats.estimates import Floats
from fairfix.stats.quantiles import beta_quantile

PARTS = 200
"""Ways to share the budget of two groups: what lies between two ways is counted as the worse of both."""

ENDS = 0.1
"""Part of the miscoverage of a difference by bets that goes to the limits of one of both means, which are wide."""

GRID = 4096
"""Size of the grid that numbers of larger groups are moved to, on the side that is against the bound."""

HALVINGS = 60
"""Halvings of [0, 1], after which the end that is taken is exact to floating point."""


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


def largest_difference(mean: Floats, rows: Floats, alpha: float) -> float:
    """Return what no difference of two groups' rates exceeds, with probability ``1 - alpha``; at most 1.

    ``mean``, ``rows``: shape (K,) of a fixed rule of decisions 0/1 on independent rows that it was not made of.
    """
    if mean.size < 2:
        return 0.0
    high, low = _farthest(mean, rows, alpha)
    return float(min(max((high - low).max(), 0.0), 1.0))


def least_ratio(mean: Floats, rows: Floats, alpha: float) -> float:
    """Return what no ratio of two groups' rates is below, with probability ``1 - alpha``; as the difference above."""
    if mean.size < 2:
        return 1.0
    high, low = _farthest(mean, rows, alpha)
    return float(min(max((low / high).min(), 0.0), 1.0))


def _farthest(mean: Floats, rows: Floats, alpha: float) -> tuple[Floats, Floats]:
    """Return the upper and the lower limit of two groups, by how they share their budget and which of both is left."""
    high, low = _ends(mean, rows, np.linspace(0.0, budget(alpha, 2), PARTS + 1))
    two_high, two_low = (np.sort(one, axis=0) for one in (high, low))
    same = high.argmax(axis=0) == low.argmin(axis=0)  # a group is not compared with itself
    ends = [two_high[-1], np.where(same, two_high[-2], two_high[-1])]
    return np.concatenate(ends), np.concatenate([np.where(same, two_low[1], two_low[0]), two_low[0]])


def _ends(mean: Floats, rows: Floats, cost: Floats) -> tuple[Floats, Floats]:
    """Return upper and lower limits at costs that add up to the last, shape (K, len(cost) - 1)."""
    high = upper_mean(mean[:, None], rows[:, None], cost[1:], counted=True)
    low = 1.0 - upper_mean(1.0 - mean[:, None], rows[:, None], cost[:0:-1], counted=True)
    return high, low


NEAR = 1.02
"""Thresholds between which a bound could rise to no more than this many times are not looked at one by one."""

FEW = 30
"""Ways to share the budget of two groups at each of many thresholds."""


def largest_distance(first: Floats, second: Floats, rows: Floats, alpha: float) -> float:
    """Return what ``F_a - F_b`` exceeds at no threshold, with probability ``1 - alpha``; at most 1.

    At the threshold where the difference of the population is largest it is one of two rates, so each threshold has
    the whole of ``alpha``. Between two thresholds the bound is at most that of the larger of the first and the smaller
    of the second, by which most of them are left out.

    Parameters
    ----------
    first, second
        Shares of the rows of both groups with values of at most each threshold, shape (c,), from 0 up to 1; the values
        are those of a fixed rule on independent rows that it was not made of.
    rows
        Of both, shape (2,).
    """
    cost = np.linspace(0.0, budget(alpha, 2), FEW + 1)

    def bound(x: Floats, y: Floats) -> Floats:
        high = upper_mean(x[:, None], rows[0], cost[1:], counted=True)
        return np.asarray(
            (high + upper_mean(1.0 - y[:, None], rows[1], cost[:0:-1], counted=True)).max(axis=1) - 1.0
        )

    start = np.unique(
        np.linspace(0, first.size, min(GRID // 64, first.size), endpoint=False).astype(np.int64)
    )
    end = np.append(start[1:], first.size) - 1
    best = rest = 0.0
    while start.size:
        best = max(best, float(bound(first[start], second[start]).max()))
        most = bound(first[end], second[start])
        rest = max(rest, float(most[most <= best * NEAR].max(initial=0.0)))
        open_ = (most > best * NEAR) & (end > start)
        start, end = start[open_], end[open_]
        middle = (start + end + 1) // 2
        start, end = np.concatenate([start, middle]), np.concatenate([middle - 1, end])
    return min(max(best, rest), 1.0)


@dataclass(frozen=True)
class _Bets:
    """Numbers in [0, 1] with the fraction of each, as if ``rows`` rows had shown them."""

    numbers: Floats
    share: Floats
    rows: float

    @classmethod
    def of(cls, numbers: Floats, rows: float) -> _Bets:
        """Return the numbers, those of many rows on a grid, none of them smaller."""
        if numbers.size <= GRID:
            return cls(numbers, np.full(numbers.size, 1.0 / numbers.size), rows)
        many = np.bincount(np.ceil(numbers * GRID - 1e-9).astype(np.int64), minlength=GRID + 1)
        there = np.flatnonzero(many)
        return cls(there / GRID, many[there] / numbers.size, rows)

    def won(self, mean: float, stake: float) -> float:
        """Return the logarithm of what bets that the expectation is below ``mean`` have won."""
        with np.errstate(divide="ignore"):  # a bet of everything that is lost has won minus infinity
            return self.rows * float(self.share @ np.log1p(stake * (mean - self.numbers)))

    def upper(self, stake: float, cost: float) -> float:
        """Return the largest mean against which no more than ``cost`` is won, at most 1; ``cost`` may be below 0."""
        if cost == math.inf:
            return 1.0
        target = cost / self.rows
        # at most this much is won on average, as log(1 + x) <= x: it starts too low, and rises, as won is concave
        m = max(float(self.share @ self.numbers) + target / stake, 0.0)
        for _ in range(HALVINGS):
            inside = 1.0 + stake * (m - self.numbers)
            if inside.min() <= 0.0:  # all was lost there, so it is far too low
                m = float(self.numbers.max()) - (1.0 - 1e-6) / stake
                inside = 1.0 + stake * (m - self.numbers)
            step = (target - float(self.share @ np.log(inside))) / float(self.share @ (stake / inside))
            m += step
            if m >= 1.0 or abs(step) < ONE_MORE:
                break
        return min(max(m + ONE_MORE, 0.0), 1.0)


def largest_difference_by_bets(
    numbers: Sequence[Floats], spread: ArrayLike, rows: Floats, alpha: float
) -> float:
    """Return what no difference of two groups' expectations exceeds, with probability ``1 - alpha``; at most 1.

    Bets that one expectation is smaller and bets that the other is larger are multiplied, so that their product is
    above ``1 / alpha'`` with a chance of ``alpha'``. Along a line of one difference its logarithm is concave, so it is
    least at the ends of what one of the means may be, which take the rest of ``alpha``.

    Parameters
    ----------
    numbers
        In [0, 1], those of each of K groups, of a fixed rule on independent rows that it was not made of.
    spread
        Their standard deviations as far as other rows tell, shape (K,): stakes are set by it.
    rows
        Number of rows that each group is taken to have, shape (K,).
    """
    if len(numbers) < 2:
        return 0.0
    if any(own.size == 0 for own in numbers):
        return 1.0
    cost, rest = -math.log(alpha * (1.0 - ENDS)), math.log(2.0 / (alpha * ENDS))
    own = [_Bets.of(one, many) for one, many in zip(numbers, rows, strict=True)]
    other = [_Bets.of(1.0 - one, many) for one, many in zip(numbers, rows, strict=True)]
    stakes = stake_of(spread, rows, rest).tolist()
    ends = [
        (1.0 - less.upper(stake, rest), more.upper(stake, rest))
        for more, less, stake in zip(own, other, stakes, strict=True)
    ]
    variance = np.asarray(spread) ** 2 / rows
    far = 0.0
    for a, b in permutations(range(len(numbers)), 2):
        slope = float(min(math.sqrt(2.0 * cost / max(variance[a] + variance[b], 1e-300)), rows[a], rows[b]))
        for end in ends[a]:
            left = cost - own[a].won(end, slope / rows[a])
            far = max(far, end - 1.0 + other[b].upper(slope / rows[b], left))
    return min(far, 1.0)


ONE_MORE = 1e-9
"""Added to a limit that Newton's steps approach from below; they end where they are shorter."""


@dataclass(frozen=True)
class Reach:
    """Bounds on the distance of means from their expectations, for all rules of a score and all groups at once.

    In one of three shapes: a box, ``2 n_k D_k^2 <= c`` for each group (Bonferroni); a ball, where the sum over the
    groups that are looked at together is at most ``c``; or, for two groups, a triangle, ``D_a + r D_b <= d``, with the
    quantile ``d`` for their numbers of rows. :func:`reach_of` chooses by numbers of rows.
    """

    shape: Literal["box", "ball", "triangle"]
    cost: float
    """``c``, or of the triangle the logarithm of 1 over its chance to be left."""
    ratio: float = 1.0
    """``r``."""

    def __call__(self, weight: Floats, rows: ArrayLike) -> Floats:
        """Return the largest ``sum_k weight_k D_k``, over the last axis; infinite where a group has no rows."""
        rows = np.asarray(rows, dtype=np.float64)
        if self.shape == "triangle":
            return np.asarray(self._edge(rows) * np.maximum(weight[..., 0], weight[..., 1] / self.ratio))
        with np.errstate(divide="ignore", invalid="ignore"):
            each = np.where(weight > 0, weight / np.sqrt(2.0 * rows), 0.0)
        total = each.sum(axis=-1) if self.shape == "box" else np.sqrt((each**2).sum(axis=-1))
        return np.asarray(math.sqrt(self.cost) * total)

    def _edge(self, rows: Floats) -> Floats:
        """Return ``d`` of the triangle for numbers of rows, shape (..., 2)."""
        return sum_quantile(rows[..., 0], rows[..., 1] / self.ratio**2, math.exp(-self.cost))

    def least_ratio(self, mean: Floats, weight: Floats, rows: ArrayLike) -> Floats:
        """Return the least ratio of two expectations, shape (m,); 0 where the first can be 0.

        ``mean``, ``weight``, ``rows``: shape (m, 2). In the ball the ratio is at least ``r`` where no point of the
        quarter circle has ``(x - a cos) - r (y + b sin)`` below 0, so where ``x - r y >= sqrt(a^2 + r^2 b^2)``: the
        lower end of Fieller's interval. In the triangle it is least in a corner, as it is in both at the ``r`` at which
        the edge is that of one ratio.
        """
        rows = np.asarray(rows, dtype=np.float64)
        x, y = mean.T
        if self.shape == "triangle":
            edge = self._edge(rows)
            a, b = weight[:, 0] * edge, weight[:, 1] * edge / self.ratio
            least = np.minimum((x - a) / np.where(y > 0, y, 1.0), x / (y + b))
            return np.asarray(np.where((x > a) & (y > 0), least, 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            a, b = np.where(weight > 0, weight * np.sqrt(self.cost / (2.0 * rows)), 0.0).T
        there = x > a
        if self.shape == "box":
            return np.asarray(np.where(there, (x - a) / np.where(there, y + b, 1.0), 0.0))
        root = np.sqrt(np.where(there, (x * b) ** 2 + (y**2 - b**2) * a**2, 0.0))
        return np.asarray(np.where(there, (x - a) * (x + a) / np.where(there, x * y + root, 1.0), 0.0))


def sum_quantile(first: ArrayLike, second: ArrayLike, alpha: float) -> Floats:
    """Return what ``D_a + D_b``, each with ``P(D > d) <= exp(-2 n d^2)``, exceeds with a chance of at most ``alpha``.

    Both are independent and at most as large as numbers with Rayleigh's distribution, whose sum has a tail in closed
    form. ``first``, ``second``: the ``n`` of each, broadcast; infinite where one of them is 0.
    """
    from scipy.special import ndtr

    first, second = np.broadcast_arrays(*(np.asarray(one, dtype=np.float64) for one in (first, second)))
    there = (first > 0) & (second > 0)
    p, q = (0.25 / np.where(there, one, 1.0) for one in (first, second))  # squared scales
    both = p + q
    width = np.sqrt(p * q / both)
    low = np.sqrt(-2.0 * math.log(alpha) * np.maximum(p, q))  # of the larger alone
    high = np.sqrt(-2.0 * math.log(alpha / 2.0)) * (np.sqrt(p) + np.sqrt(q))
    for _ in range(HALVINGS):
        x = (low + high) / 2
        centre = x * p / both
        mass = ndtr((x - centre) / width) - ndtr(-centre / width)
        ends = np.exp(-((centre / width) ** 2) / 2) - np.exp(-(((x - centre) / width) ** 2) / 2)
        inside = (width**2 * ends + centre * width * math.sqrt(2 * math.pi) * mass) / p
        tail = np.exp(-(x**2) / (2 * p)) + np.exp(-(x**2) / (2 * both)) * inside
        low, high = np.where(tail > alpha, x, low), np.where(tail > alpha, high, x)
    return np.where(there, high, np.inf)


def reach_of(
    weights: Floats,
    rows: ArrayLike,
    alpha: float,
    *,
    groups: int,
    balls: int,
    rising: bool = False,
    ratio: float = 1.0,
) -> Reach:
    """Return the shape in which the largest sum is smaller, which numbers of rows alone decide.

    Parameters
    ----------
    weights, rows
        Sums that are looked at, shape (m, members), with weights that do not depend on the rows.
    groups
        All groups; each has a side of the box.
    balls
        How many sets of groups share ``alpha``, each with a ball of its own.
    rising
        Whether all rules rise from 0 to 1, so that one of two is too large where the other is too small: two triangles
        for two groups, and not four.
    ratio
        What the second of two weighs in the triangle, either way round.
    """
    members = weights.shape[-1]
    shapes = [
        Reach("ball", budget(alpha / balls, members) + members * math.log(2)),
        Reach("box", math.log(2 * groups / alpha)),
    ]
    if members == 2:
        shapes.insert(0, Reach("triangle", math.log((2 if rising else 4) * balls / alpha), ratio))
    return min(shapes, key=lambda one: float(one(weights, rows).max()))


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
    most ``exp(-cost)`` (Markov; I. Waudby-Smith and A. Ramdas 2024, section 4). ``rows`` is the number of rows that it
    is taken for. With a ``weight`` in [0, 1] of each number ``m`` is ``E[w x] / E[w]``, where that of ``w (m - x)`` is
    0; 1 without any.
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
