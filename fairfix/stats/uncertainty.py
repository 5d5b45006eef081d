r"""How far a number computed from a sample may be from the truth.

A fairness gap is a *largest* difference between groups, so at perfect fairness the estimate is positive
and a percentile interval around it never contains 0. Everything here is built the other way round:
limits for each group first, then for every comparison of two groups, then for the largest of them.
All of it is closed form in counts; no row is looked at and nothing is resampled.

**One group.** Each kind of :class:`Estimates` turns a miscoverage ``alpha`` into two limits:

======================== ==================================================================================
:class:`Proportions`     Clopper-Pearson, ``[B(α/2; s, n-s+1), B(1-α/2; s+1, n-s)]`` with real ``s`` and ``n``
:class:`Means`           Student t, with one imagined row at the end of the scale, or far out where it has none
:class:`Areas`           Newcombe's method 5: ``|θ - A| = z sqrt(V(θ))`` solved for ``θ``, never below DeLong
:class:`CalibrationErrors` Clopper-Pearson in every bin, put together
======================== ==================================================================================

The Wilson interval is not used: many groups need limits at small ``α``, and rare events are skewed. For 30
rows, rate 0.02 and ``α = 0.05/190``, what the pairs of 20 groups need, the lower Wilson limit is wrong 22
times as often as it claims (100 rows: 7 times).

**Two groups.** With ``d = p_i - p_j`` and limits ``l, u`` of each (MOVER, Newcombe's hybrid)::

    low_ij  = d - sqrt((p_i - l_i)² + (u_j - p_j)²)          high_ij = d + sqrt((u_i - p_i)² + (p_j - l_j)²)

Ratios are the same on the log scale; where a rate is 0 they fall back on the rectangle ``u_i / l_j``.

**The largest of m directed comparisons**, ``Δ = max δ_c`` (``m = K(K-1)`` for all ordered pairs)::

    low = max_c low_c       wrong only if some low_c > δ_c:             m - 1 chances, each at α / (2(m-1))
    high = max_c high_c     wrong only if the high_c of the one comparison
                            that truly attains Δ lies below it:         one chance, at α / 2

The upper end of a maximum needs no correction for multiplicity, whichever comparison attains it: that is
what lets 20 fair groups *pass* a check. The lower end needs the whole correction: that is what keeps 20
fair groups from *failing* one. (The reverse of the attaining comparison is wrong only together with
``high``, hence ``m - 1``; two groups get the plain two-sided interval of one difference.) At equality, a
false alarm ``low > 0`` has probability at most about ``α/2`` (``α`` for two groups).

**Not defined** is a value, ``NaN``: a group without rows has the whole support as its limits, and a maximum
over groups of which one is undefined keeps its lower end but opens the upper one to the worst possible.

**What is random.** Rows are independent draws within their group; group sizes, group shares and the scores
of a calibration bin are taken as they are.

How well all this covers is measured by ``benchmarks/coverage.py``.

References
----------
Clopper and Pearson (1934), Biometrika 26. Korn and Graubard (1998), Survey Methodology 24. Newcombe (1998,
2006), Statistics in Medicine 17 and 25. Zou and Donner (2008), Statistics in Medicine 27 (MOVER).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairfix.stats.quantiles import beta_quantile, kolmogorov_quantile, normal_quantile, student_quantile

__all__ = [
    "Areas",
    "CalibrationErrors",
    "Comparison",
    "Estimates",
    "Gap",
    "Means",
    "Proportions",
    "carrying_rows",
    "combine",
    "covariance_to_overall",
    "difference_between_groups",
    "difference_to_overall",
    "difference_to_reference",
    "ks_between_cdfs",
    "ks_between_groups",
    "ks_margin",
    "ks_noise",
    "ks_shortfall",
    "ks_to_overall",
    "ratio_between_groups",
    "ratio_to_overall",
    "ratio_to_reference",
    "simultaneous_limits",
    "worst",
]

Floats: TypeAlias = NDArray[np.float64]
Limits: TypeAlias = tuple[Floats, Floats]

CARRIED = 8.0
"""A mean has a limit towards an infinite end once unseen rows are likely less than an eighth of those that carry it."""


# ---------------------------------------------------------------------------------------------------------
# Estimates: one number per group, with limits
# ---------------------------------------------------------------------------------------------------------


def _frozen(values: ArrayLike) -> Floats:
    array = np.array(values, dtype=np.float64)
    array.setflags(write=False)
    return array


def _divide(numerator: ArrayLike, denominator: ArrayLike) -> Floats:
    """The quotient, NaN where the denominator is 0."""
    above, below = np.broadcast_arrays(np.asarray(numerator, float), np.asarray(denominator, float))
    quotient = np.full(above.shape, np.nan)
    np.divide(above, below, out=quotient, where=below > 0)
    return quotient


class Estimates(ABC):
    """One estimated number per group.

    Attributes
    ----------
    value : (k,) array
        The estimates; NaN is undefined.
    support : (float, float)
        The smallest and the largest value that could be true; either may be infinite.
    slack : (k,) array
        Certified *numerical* error of ``value``: it moves the limits outwards in full, and in comparisons
        adds up instead of averaging out as sampling error does.
    """

    value: Floats
    support: tuple[float, float]
    slack: Floats

    @abstractmethod
    def _limits_at(self, levels: Floats) -> Limits:
        """Limits for a column of miscoverages (m, 1), ``value`` taken as exact: (m, k), (m, k)."""

    def prepare(self, levels: Sequence[float]) -> None:
        """Compute the limits at several miscoverages at once, which costs hardly more than at one."""
        known = self._known
        missing = [level for level in dict.fromkeys(levels) if level not in known]
        if missing:
            low, high = self._limits_at(np.array(missing)[:, None])
            known.update(zip(missing, zip(low, high, strict=True), strict=True))

    @property
    def _known(self) -> dict[float, Limits]:
        """Limits computed so far, by miscoverage."""
        if "_limits" not in self.__dict__:
            object.__setattr__(self, "_limits", {})
        known: dict[float, Limits] = self.__dict__["_limits"]
        return known

    def sampling_limits(self, alpha: float) -> Limits:
        """Two-sided limits of every group at miscoverage ``alpha``, ``value`` taken as exact: (k,), (k,)."""
        self.prepare([alpha])
        return self._known[alpha]

    def limits(self, alpha: float) -> Limits:
        """Two-sided limits of every group at miscoverage ``alpha``: two arrays (k,).

        Each group alone is covered with probability ``1 - alpha``; see :func:`simultaneous_limits`.
        """
        low, high = self.sampling_limits(alpha)
        smallest, largest = self.support
        return np.maximum(low - self.slack, smallest), np.minimum(high + self.slack, largest)

    def __len__(self) -> int:
        return len(self.value)

    def _settle(self, **arrays: ArrayLike) -> None:
        """Store the arrays of a frozen dataclass, read-only."""
        for name, array in arrays.items():
            object.__setattr__(self, name, _frozen(array))

    def _open_undefined(self, low: Floats, high: Floats) -> Limits:
        undefined = np.isnan(self.value)
        return np.where(undefined, self.support[0], low), np.where(undefined, self.support[1], high)


def _clopper_pearson(successes: Floats, totals: Floats, levels: Floats) -> Limits:
    """``B(α/2; s, n-s+1)`` and ``B(1-α/2; s+1, n-s)``; 0 and 1 where there is no success, no failure.

    One call finds both ends for all levels: the upper end is 1 minus the lower end of the failures.
    """
    failures = totals - successes
    counts = np.concatenate([successes, failures])
    some = counts > 0
    low = np.zeros((len(levels), len(counts)))
    low[:, some] = beta_quantile(levels / 2, counts[some], np.concatenate([failures, successes])[some] + 1)
    k = len(successes)
    return low[:, :k], 1 - low[:, k:]


@dataclass(frozen=True, eq=False)
class Proportions(Estimates):
    """Rates ``successes / totals`` with Clopper-Pearson limits; both may be real numbers.

    The limits cover with at least ``1 - alpha`` whatever the rate and however few the rows. A fractional
    success is the expected decision of a randomised rule: a row then contributes ``p`` in [0, 1] instead
    of 0 or 1. Of all variables on [0, 1] with a given mean the 0-1 variable is the most spread out (in
    convex order, variance ``p(1-p)`` at most), so the binomial limits are conservative for the mean of ``p``.

    Parameters
    ----------
    successes, totals
        (k,) counts, ``0 <= successes <= totals``; a total of 0 is an undefined rate.
    rate
        (k,) rates, where they are known to more digits than the quotient of effective counts.
    """

    successes: Floats
    totals: Floats
    rate: Floats | None = None
    support: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        totals = np.asarray(self.totals, dtype=np.float64)
        successes = np.clip(np.asarray(self.successes, dtype=np.float64), 0.0, totals)
        rate = _divide(successes, totals) if self.rate is None else self.rate
        self._settle(successes=successes, totals=totals, value=rate, slack=np.zeros(totals.shape))

    @classmethod
    def weighted(
        cls, w_success: ArrayLike, w_failure: ArrayLike, w2_success: ArrayLike, w2_failure: ArrayLike
    ) -> Proportions:
        """Weighted rates as binomial counts of the effective size (Korn and Graubard).

        ``n_eff = p(1-p) / var`` with ``var = ((1-p)² Σ_success w² + p² Σ_failure w²) / W²``, but never above
        Kish's ``W² / Σ w²``: with a few light successes the estimated variance is far too small by luck (30 rows,
        rate 0.1, weights from 0.2 to 5: 10 % missed at ``α = 0.05`` and 3.6 % at ``α = 0.0005``; with the cap 1 %
        and 0.02 %). Where the rate is 0 or 1 it is Kish's number. Equal weights give the unweighted
        interval; the scale of the weights does not matter.

        Parameters
        ----------
        w_success, w_failure
            (k,) sums of weights of the rows with and without the outcome.
        w2_success, w2_failure
            (k,) sums of squared weights of the same rows.
        """
        s, f, s2, f2 = (np.asarray(v, float) for v in (w_success, w_failure, w2_success, w2_failure))
        weight = s + f
        kish = _divide(weight**2, s2 + f2)
        korn_graubard = _divide(s * f * weight**2, f**2 * s2 + s**2 * f2)
        size = np.nan_to_num(np.fmin(kish, korn_graubard))
        rate = _divide(s, weight)
        return cls(np.nan_to_num(rate) * size, size, rate)

    @staticmethod
    def joined(members: Sequence[Proportions]) -> Proportions:
        """Return the estimates of all members, one after the other."""
        return Proportions(
            np.concatenate([one.successes for one in members]),
            np.concatenate([one.totals for one in members]),
            np.concatenate([one.value for one in members]),
        )

    def _limits_at(self, levels: Floats) -> Limits:
        """Clopper-Pearson limits."""
        return self._open_undefined(*_clopper_pearson(self.successes, self.totals, levels))


@dataclass(frozen=True, eq=False)
class Means(Estimates):
    """Means with Student t limits, each with one more, imagined row at the end of the scale that it looks towards.

    That costs ``1/n`` of the range and repairs what t limits do worst: a sample that shows no spread, or
    none of the rare rows far away, gets about the rule of three (``3/n``) instead of width 0.

    On a scale *without* that end (a log loss, a square loss of real numbers) the row is imagined ``sqrt(n)`` standard
    deviations from the mean. No row of a sample lies further (Samuelson 1968), so it stands for one more row as far
    away as the most extreme one could be; it makes that side ``(1 + sqrt(2) z) / z`` times as wide, 1.9 times at 95 %.
    And there is no limit at all while too few rows carry the mean: with ``m = (Σwx)² / Σwx²`` rows in effect (all
    rows, if they are alike; the rare large ones, if they make up the sum) and a tail of ``p``, fewer than
    ``CARRIED ln(1/p)``. What has not been seen in ``m`` rows is, with chance ``1 - p``, at most ``ln(1/p) / m`` of
    them; the limit is given once that is a small part.

    No interval from a sample can hold for *every* distribution on such a scale (Bahadur and Savage 1956): rows too
    rare to be seen and so large that they make up the mean remain outside what is promised. Limits towards a finite
    end, such as the lower one of a loss, need none of this.

    Parameters
    ----------
    mean
        (k,) means.
    variance
        (k,) variances of one row about that mean (divided by ``n``, not ``n - 1``).
    sizes
        (k,) effective numbers of rows, ``(Σw)² / Σw²``; 0 is an undefined mean.
    support
        Smallest and largest possible value of a row; infinite where there is none.
    numerical_error
        Certified numerical error of the means.
    carried
        (k,) effective numbers of rows that carry the means, where neither end is finite; infinite where unknown. With a
        finite end they follow from the distance to it.

    References
    ----------
    Samuelson (1968), JASA 63. Bahadur and Savage (1956), Annals of Mathematical Statistics 27.
    """

    mean: Floats
    variance: Floats
    sizes: Floats
    support: tuple[float, float] = (-math.inf, math.inf)
    numerical_error: ArrayLike = 0.0
    carried: ArrayLike = math.inf

    def __post_init__(self) -> None:
        sizes = np.asarray(self.sizes, dtype=np.float64)
        mean = np.where(sizes > 0, self.mean, np.nan)
        slack = np.broadcast_to(np.asarray(self.numerical_error, float), sizes.shape)
        carried = np.broadcast_to(np.asarray(self.carried, float), sizes.shape)
        self._settle(mean=mean, variance=self.variance, sizes=sizes, value=mean, slack=slack, carried=carried)

    @classmethod
    def from_sums(
        cls,
        weight: ArrayLike,
        weight2: ArrayLike,
        total: ArrayLike,
        total_of_squares: ArrayLike,
        support: tuple[float, float] = (-math.inf, math.inf),
        total_of_sizes: ArrayLike | None = None,
    ) -> Means:
        """From additive sums, each (k,): ``Σw``, ``Σw²``, ``Σwx``, ``Σwx²`` and, if at hand, ``Σw|x|``."""
        mean = _divide(total, weight)
        square = _divide(total_of_squares, weight)
        variance = np.maximum(square - mean**2, 0.0)  # rounding below 0
        sizes = np.nan_to_num(_divide(np.square(np.asarray(weight, float)), weight2))
        carried: ArrayLike = math.inf
        if total_of_sizes is not None:
            found = carrying_rows(_divide(total_of_sizes, weight), square, sizes)
            carried = np.where(np.asarray(total_of_sizes) > 0, found, math.inf)  # no row differs from 0
        return cls(mean, variance, sizes, support, 0.0, carried)

    @staticmethod
    def joined(members: Sequence[Means]) -> Means:
        """Return the estimates of all members, which have one support, one after the other."""
        return Means(
            np.concatenate([one.mean for one in members]),
            np.concatenate([one.variance for one in members]),
            np.concatenate([one.sizes for one in members]),
            members[0].support,
            0.0,
            np.concatenate([np.asarray(one.carried) for one in members]),
        )

    def _limits_at(self, levels: Floats) -> Limits:
        """Student t limits, clipped to the support."""
        smallest, largest = self.support
        low = np.maximum(self._limit(smallest, levels / 2, -1), smallest)
        high = np.minimum(self._limit(largest, levels / 2, 1), largest)
        return self._open_undefined(low, high)

    def _limit(self, end: float, tail: Floats, sign: int) -> Floats:
        mean, variance, n = self.mean, self.variance, self.sizes
        bounded = math.isfinite(end)
        away, more = (end - mean if bounded else sign * np.sqrt(n * variance)), n + 1
        mean, variance = mean + away / more, (n * variance + away**2 * n / more) / more
        limit = np.full((len(tail), len(n)), sign * math.inf)
        enough = (n > 0) if bounded else (n >= 2)
        reach = student_quantile(tail, n[enough]) * np.sqrt(variance[enough] / n[enough])
        limit[:, enough] = mean[enough] + sign * reach
        return limit if bounded else np.where(self._is_carried(tail), limit, sign * math.inf)

    def _is_carried(self, tail: Floats) -> NDArray[np.bool_]:
        """Whether enough rows carry the means for limits at tails (m, 1) towards an end that is infinite: (m, k)."""
        carried = np.asarray(self.carried)
        start = next((end for end in self.support if math.isfinite(end)), None)
        if start is not None:
            distance = np.abs(self.mean - start)
            carried = carrying_rows(distance, distance**2 + self.variance, self.sizes)
        return np.asarray(carried >= CARRIED * np.log(1 / tail))


def carrying_rows(mean: ArrayLike, square: ArrayLike, sizes: ArrayLike) -> Floats:
    """Return how many rows of equal size would make a mean of sizes as sure, ``n E[|x|]² / E[x²]``, each (k,).

    All rows where they are alike; 0 where every row is 0 and nothing tells how large one could be.
    """
    share = _divide(np.square(np.asarray(mean, float)), square)
    return np.asarray(np.nan_to_num(np.asarray(sizes, float) * share))


@dataclass(frozen=True, eq=False)
class Areas(Estimates):
    """Areas under the ROC curve with score-type limits (after Newcombe 2006, method 5).

    The limits are the ``θ`` with ``|θ - A| = z sqrt(r V(θ))`` for the Hanley-McNeil variance *at the limit*::

        V(θ) = θ(1-θ) (1 + N* ((1-θ)/(2-θ) + θ/(1+θ))) / (m n),     N* = (m + n)/2 - 1

    so they stay inside [0, 1] and have positive width at ``A = 1``. That variance is a model's, right for
    bell-shaped scores and too small where the rarer class is spread more widely than the other (coverage
    falls to 0.82 with two-humped positives); so where the variance seen in the scores is larger, all of
    ``V`` is scaled up by the ratio ``r >= 1``.

    Parameters
    ----------
    area
        (k,) areas.
    positives, negatives
        (k,) effective numbers ``m`` and ``n`` of rows of each class; 0 of either: undefined.
    numerical_error
        Certified numerical error of the areas, such as one taken from a histogram has.
    variance
        (k,) variance of the area as seen in the scores (DeLong); without it ``r = 1``.
    """

    area: Floats
    positives: Floats
    negatives: Floats
    numerical_error: ArrayLike = 0.0
    variance: ArrayLike = 0.0
    support: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        positives, negatives = (np.asarray(v, dtype=np.float64) for v in (self.positives, self.negatives))
        value = np.where((positives > 0) & (negatives > 0), np.clip(self.area, 0.0, 1.0), np.nan)
        slack = np.broadcast_to(np.asarray(self.numerical_error, float), value.shape)
        self._settle(area=self.area, positives=positives, negatives=negatives, value=value, slack=slack)

    @classmethod
    def from_histograms(cls, positives: ArrayLike, negatives: ArrayLike, *, exact: bool = False) -> Areas:
        """From counts per score bin, ties and bins counting one half.

        Parameters
        ----------
        positives, negatives
            (k, bins) numbers of rows of each class in each bin, in order of the score.
        exact
            Rows of one bin are truly tied, so that the area has no numerical error.
        """
        positives, negatives = (np.asarray(v, dtype=np.float64) for v in (positives, negatives))
        m, n = positives.sum(axis=1), negatives.sum(axis=1)
        p, q = _divide(positives, m[:, None]), _divide(negatives, n[:, None])
        wins, losses = q.cumsum(axis=1) - q / 2, 1 - (p.cumsum(axis=1) - p / 2)
        area = (p * wins).sum(axis=1)
        of_wins, of_losses = ((w * (v - area[:, None]) ** 2).sum(axis=1) for w, v in ((p, wins), (q, losses)))
        variance = _divide(of_wins, m - 1) + _divide(of_losses, n - 1)  # NaN for a single row of a class
        error = 0.0 if exact else np.nan_to_num((p * q).sum(axis=1) / 2)
        return cls(np.nan_to_num(area), m, n, error, variance)

    def _limits_at(self, levels: Floats) -> Limits:
        """Newcombe's limits."""
        model = self._variance(self.value)
        scale = np.fmax(_divide(np.asarray(self.variance, dtype=np.float64), np.nan_to_num(model)), 1.0)
        z = np.array([normal_quantile(level / 2) for level in levels[:, 0]])[:, None] * np.sqrt(scale)
        low, high = self._bisect(z, np.zeros(z.shape)), self._bisect(z, np.ones(z.shape))
        return self._open_undefined(low, high)

    def _variance(self, theta: Floats) -> Floats:
        typical = (self.positives + self.negatives) / 2 - 1
        clustering = (1 - theta) / (2 - theta) + theta / (1 + theta)
        return theta * (1 - theta) * _divide(1 + typical * clustering, self.positives * self.negatives)

    def _bisect(self, z: Floats, outer: Floats) -> Floats:
        """The limit between the area and ``outer``, an end of [0, 1]."""
        inner = self.value
        for _ in range(60):
            middle = (inner + outer) / 2
            beyond = np.abs(middle - self.value) > z * np.sqrt(self._variance(middle))
            inner, outer = np.where(beyond, inner, middle), np.where(beyond, middle, outer)
        return outer


@dataclass(frozen=True, eq=False)
class CalibrationErrors(Estimates):
    """Binned calibration errors ``Σ_b share_b |rate_b - score_b|`` of every group.

    *Low*: Clopper-Pearson limits that hold in all bins of a group at once (Šidák, at ``α/2``); each bin
    contributes the distance from its mean score to its interval. *High*: the estimate is never below
    ``Σ share_b ±(rate_b - score_b)`` with the true signs, a linear statistic, so plain limits per bin combine
    as root of a sum of squares (MOVER). The estimate itself is biased upwards; ``low`` is not.

    Parameters
    ----------
    rates
        Outcome rates of the ``k * bins`` cells, group by group.
    scores
        (k, bins) mean score in each bin; ignored where the bin is empty.
    mass
        (k, bins) weight of each bin; shares are taken of its sum over the bins of a group.
    numerical_error
        Certified numerical error of the mean scores.
    """

    rates: Proportions
    scores: Floats
    mass: Floats
    numerical_error: float = 0.0
    support: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        mass = np.asarray(self.mass, dtype=np.float64)
        share = _divide(mass, mass.sum(axis=1, keepdims=True))
        rate = self.rates.value.reshape(mass.shape)
        used = np.where(np.isnan(rate), 0.0, share)
        value = np.sum(used * np.abs(np.nan_to_num(rate - self.scores)), axis=1)
        value = np.where(np.isnan(share).any(axis=1), np.nan, value)
        self._settle(
            scores=self.scores, mass=mass, value=value, slack=np.full(len(value), self.numerical_error)
        )

    def _limits_at(self, levels: Floats) -> Limits:
        """Limits of the errors."""
        bins = np.maximum(np.count_nonzero(self.mass > 0, axis=1), 1)
        alphas = [float(level) for level in levels[:, 0]]
        strict = {(a, int(c)): _sidak(a / 2, int(c)) for a in alphas for c in np.unique(bins)}
        self.rates.prepare([*alphas, *strict.values()])
        ends = [self._error_limits(a, bins, strict) for a in alphas]
        return self._open_undefined(np.array([low for low, _ in ends]), np.array([high for _, high in ends]))

    def _error_limits(
        self, alpha: float, bins: NDArray[np.intp], strict: Mapping[tuple[float, int], float]
    ) -> Limits:
        mass, scores = self.mass, np.nan_to_num(self.scores)
        share = np.nan_to_num(_divide(mass, mass.sum(axis=1, keepdims=True)))
        low = np.zeros(len(self.value))
        for count in np.unique(bins):  # the level depends on the number of bins that a group uses
            group = bins == count
            least, most = self._cells(strict[alpha, int(count)])
            outside = np.maximum(np.maximum(least - scores, scores - most), 0.0)
            low[group] = np.sum(share * outside, axis=1)[group]
        rate = np.nan_to_num(self.rates.value.reshape(mass.shape))
        least, most = self._cells(alpha)
        spread = share * np.where(mass > 0, np.maximum(most - rate, rate - least), 0.0)
        return low, np.minimum(self.value + np.sqrt(np.sum(spread**2, axis=1)), 1.0)

    def _cells(self, alpha: float) -> Limits:
        low, high = self.rates.limits(alpha)
        return low.reshape(self.mass.shape), high.reshape(self.mass.shape)


# ---------------------------------------------------------------------------------------------------------
# Levels
# ---------------------------------------------------------------------------------------------------------


def _sidak(alpha: float, count: int) -> float:
    """The level each of ``count`` independent statements needs for all to hold with ``1 - alpha``."""
    return -math.expm1(math.log1p(-alpha) / max(count, 1))


def _strict(alpha: float, directed: int) -> float:
    """The two-sided level behind ``low``: ``directed - 1`` one-sided chances of ``alpha/2`` in all."""
    return alpha / max(directed - 1, 1)


def levels(alpha: float, groups: int) -> list[float]:
    """The miscoverages at which comparisons of so many groups ask for limits; see :meth:`Estimates.prepare`."""
    k = groups
    whole = [alpha, alpha / max(k, 1), _sidak(alpha, k), 2 * _sidak(alpha / 2, k)]
    return [*whole, _strict(alpha, k * (k - 1)), _strict(alpha, 2 * k)]


def prepare_together(estimates: Sequence[Estimates], at: Sequence[float]) -> None:
    """Compute the limits of several estimates at several levels: all rates, and all means of a scale, at once."""
    families: dict[tuple[type, tuple[float, float]], list[Any]] = {}
    for one in estimates:
        if isinstance(one, (Proportions, Means)):
            families.setdefault((type(one), one.support), []).append(one)
        else:
            one.prepare(at)
    column = np.array(list(dict.fromkeys(at)))
    for members in families.values():
        ends = members[0].joined(members)._limits_at(column[:, None])
        cuts = np.cumsum([len(one) for one in members])[:-1]
        for one, low, high in zip(members, *(np.split(end, cuts, axis=1) for end in ends), strict=True):
            one._known.update(zip(column.tolist(), zip(low, high, strict=True), strict=True))


def simultaneous_limits(estimates: Estimates, alpha: float) -> Limits:
    """Limits that hold for all defined groups at once with probability ``1 - alpha`` (Šidák): (k,), (k,)."""
    return estimates.limits(_sidak(alpha, int(np.count_nonzero(~np.isnan(estimates.value)))))


# ---------------------------------------------------------------------------------------------------------
# Results
# ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gap:
    """One number that compares groups, with the interval that holds it with probability ``1 - alpha``.

    Attributes
    ----------
    value
        The estimate over the defined groups; NaN when fewer than two are defined (one, for :func:`worst`),
        or when a ratio has nothing but zero rates.
    low, high
        The interval. With an undefined group the unfavourable end is the worst possible, so that
        a limit can be shown to be broken but never to be kept.
    groups
        Indices of the groups that attain the value: of two, the one with the larger number first; of
        comparisons with a reference, the group and the reference; with everybody, the group alone. The lowest
        indices where several attain it; empty where the value is NaN.
    undefined
        Indices of the groups without a value.
    bound
        Certified numerical error of the value: 0 where the groups' numbers are exact.
    """

    value: float
    low: float
    high: float
    groups: tuple[int, ...]
    undefined: tuple[int, ...]
    bound: float = 0.0


@dataclass(frozen=True, eq=False)
class Comparison:
    """Every group against the same counterpart.

    Attributes
    ----------
    value, low, high : (k,) arrays
        Signed differences (or ratios) with limits that hold for all groups at once.
    gap
        The largest absolute difference (or the ratio furthest from 1, as a number of at most 1). Its upper
        end may be tighter than the largest of ``high``: the largest of several needs no multiplicity there.
    bound
        (k,) certified numerical error of ``value``.
    """

    value: Floats
    low: Floats
    high: Floats
    gap: Gap
    bound: ArrayLike = 0.0


def _error(value: float, least: float, most: float) -> float:
    """How far ``value`` may be from a number that is known to lie between ``least`` and ``most``."""
    return float(max(value - least, most - value, 0.0))


def _indices(mask: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.flatnonzero(mask))


def _width(estimates: Estimates) -> float:
    return estimates.support[1] - estimates.support[0]


# ---------------------------------------------------------------------------------------------------------
# All pairs of groups
# ---------------------------------------------------------------------------------------------------------

_CELLS = 1 << 17  # pairs held at once: 1 MB an array, so memory does not grow with the square of the groups


def _blocks(rows: int) -> Iterator[slice]:
    step = max(1, _CELLS // max(rows, 1))
    return (slice(i, i + step) for i in range(0, rows, step))


def _largest_pair(plus: Limits, minus: Limits, sign: int) -> float:
    """``max over i != j of  x_i + y_j + sign sqrt(a_i² + b_j²)`` for ``plus = x, a`` and ``minus = y, b``."""
    (x, a), (y, b) = plus, minus
    others, best = np.arange(len(x)), -math.inf
    for block in _blocks(len(x)):
        total = x[block, None] + y + sign * np.hypot(a[block, None], b)
        total[others[block] - block.start, others[block]] = -math.inf
        best = max(best, float(total.max()))
    return best


def _attained(value: Floats, defined: NDArray[np.intp]) -> tuple[int, ...]:
    """The groups with the largest and the smallest value; the first two where all are equal."""
    top, bottom = int(np.argmax(value)), int(np.argmin(value))
    if top == bottom:
        top, bottom = 0, 1
    return int(defined[top]), int(defined[bottom])


def difference_between_groups(estimates: Estimates, alpha: float) -> Gap:
    """The largest difference between two groups, ``max p - min p``.

    Parameters
    ----------
    estimates
        One number for each of ``K`` groups; independent samples.
    alpha
        Miscoverage of the interval.

    Returns
    -------
    Gap, ``0 <= low <= value <= high <= width of the support``; ``groups`` are the largest and the smallest.
    """
    missing = np.isnan(estimates.value)
    defined, undefined = np.flatnonzero(~missing), _indices(missing)
    width = _width(estimates)
    if len(defined) < 2:
        return Gap(math.nan, 0.0, width, (), undefined)
    p, slack = estimates.value[defined], estimates.slack[defined]
    least, most = _take(estimates.sampling_limits(_strict(alpha, len(p) * (len(p) - 1))), defined)
    low = _largest_pair((p - slack, p - least), (-p - slack, most - p), -1)
    least, most = _take(estimates.sampling_limits(alpha), defined)
    high = _largest_pair((p + slack, most - p), (slack - p, p - least), 1)
    value = float(p.max() - p.min())
    high = width if undefined else min(high, width)
    bound = _error(value, (p - slack).max() - (p + slack).min(), (p + slack).max() - (p - slack).min())
    return Gap(value, max(low, 0.0), high, _attained(p, defined), undefined, bound)


def _take(limits: Limits, where: NDArray[np.intp]) -> Limits:
    return limits[0][where], limits[1][where]


def ratio_between_groups(estimates: Estimates, alpha: float) -> Gap:
    """The smallest ratio of two groups, ``min p / max p``.

    On the log scale this is a largest difference, and is treated as one. A rate of 0 gives the ratio 0 with
    ``high`` the rectangle ``u_i / l_j``; all rates 0 leave it undefined.

    Parameters
    ----------
    estimates
        One number for each of ``K`` groups, none of which can be negative; independent samples.
    alpha
        Miscoverage of the interval.

    Returns
    -------
    Gap with ``0 <= low <= value <= high <= 1``; ``groups`` are the largest and the smallest.
    """
    assert estimates.support[0] >= 0
    missing = np.isnan(estimates.value)
    defined, undefined = np.flatnonzero(~missing), _indices(missing)
    p = estimates.value[defined]
    if len(p) < 2 or not p.max() > 0:
        return Gap(math.nan, 0.0, 1.0, (), undefined)
    strict = _take(estimates.limits(_strict(alpha, len(p) * (len(p) - 1))), defined)
    loose = _take(estimates.limits(alpha), defined)
    high = _smallest_ratio_high(p, strict)
    low = 0.0 if undefined or p.min() == 0 else _smallest_ratio_low(p, loose)
    value, slack = float(p.min() / p.max()), estimates.slack[defined]
    bound = 0.0
    if slack.any():
        least, most = np.maximum(p - slack, 0.0), p + slack
        far = 1.0 if not least.max() > 0 else min(float(most.min() / least.max()), 1.0)
        bound = _error(value, float(least.min() / most.max()), far)
    return Gap(value, low, min(high, 1.0), _attained(p, defined), undefined, bound)


def _logarithm(values: ArrayLike) -> Floats:
    with np.errstate(divide="ignore"):
        return np.log(np.asarray(values, dtype=np.float64))


def _smallest_ratio_low(p: Floats, limits: Limits) -> float:
    least, most = (_logarithm(v) for v in limits)
    log_p = np.log(p)
    return math.exp(-_largest_pair((log_p, most - log_p), (-log_p, log_p - least), 1))


def _smallest_ratio_high(p: Floats, limits: Limits) -> float:
    least, most = (_logarithm(v) for v in limits)
    positive = p > 0
    log_p = np.log(p[positive])
    far = _largest_pair((log_p, log_p - least[positive]), (-log_p, most[positive] - log_p), -1)
    if not positive.all() and least.max() > -math.inf:  # 0 over what may be 0 as well says nothing
        far = max(far, float(least.max() - most[~positive].min()))
    return math.exp(-max(far, 0.0))


# ---------------------------------------------------------------------------------------------------------
# Every group against one counterpart: a reference group, or everybody
# ---------------------------------------------------------------------------------------------------------


def _differences(
    value: Floats,
    limits: Callable[[float], Limits],
    alpha: float,
    width: float,
    reference: int | None = None,
) -> Comparison:
    """The signed differences ``value`` with their limits at any level, and the largest absolute one."""
    counted = np.ones(len(value), dtype=bool)
    if reference is not None:
        counted[reference] = False
    defined, missing = counted & ~np.isnan(value), np.isnan(value)
    count = int(np.count_nonzero(defined))
    low, high = limits(alpha / max(count, 1))
    low, high = (np.where(missing, end, limit) for end, limit in ((-width, low), (width, high)))
    gap = Gap(math.nan, 0.0, width, (), _indices(missing))
    if count and count + (reference is not None) >= 2:
        gap = _largest_difference(value, limits, alpha, width, defined, reference)
    return Comparison(_frozen(value), _frozen(low), _frozen(high), gap)


def _largest_difference(
    value: Floats,
    limits: Callable[[float], Limits],
    alpha: float,
    width: float,
    defined: NDArray[np.bool_],
    reference: int | None,
) -> Gap:
    missing = np.isnan(value)
    where = np.flatnonzero(defined)
    low, high = _take(limits(_strict(alpha, 2 * len(where))), where)
    nearest = max(float(low.max()), float(-high.min()), 0.0)
    low, high = _take(limits(alpha), where)
    furthest = width if missing.any() else min(max(float(high.max()), float(-low.min())), width)
    group = int(where[np.argmax(np.abs(value[where]))])
    groups = (group,) if reference is None else (group, reference)
    return Gap(float(abs(value[group])), nearest, furthest, groups, _indices(missing))


def _mover(p: Floats, ends: Limits, q: Floats, other_ends: Limits) -> Limits:
    """Limits of ``p - q`` from limits of each."""
    (low, high), (other_low, other_high) = ends, other_ends
    return p - q - np.hypot(p - low, other_high - q), p - q + np.hypot(high - p, q - other_low)


def _log_mover(p: Floats, ends: Limits, q: Floats, other_ends: Limits) -> Limits:
    """Limits of ``log(p/q)``: MOVER where both are positive, else the rectangle."""
    low, high = (_logarithm(v) for v in ends)
    other_low, other_high = (_logarithm(v) for v in other_ends)
    positive = (p > 0) & (q > 0)
    x, y = np.log(np.where(positive, p, 1.0)), np.log(np.where(positive, q, 1.0))
    mover = _mover(x, (low, high), y, (other_low, other_high))
    with np.errstate(invalid="ignore"):  # -inf - -inf where neither end says anything
        low, high = low - other_high, high - other_low
    return np.where(positive, mover[0], low), np.where(positive, mover[1], high)


def difference_to_reference(estimates: Estimates, reference: int, alpha: float) -> Comparison:
    """Every group minus the reference group, and the largest absolute difference.

    Parameters
    ----------
    estimates
        One number for each of ``K`` groups; independent samples.
    reference
        Index of the reference group; its own entry is 0 with limits 0.
    alpha
        Miscoverage: of all per-group limits together, and of the gap.
    """
    p, slack, width = estimates.value, estimates.slack, _width(estimates)
    error = slack + slack[reference]

    def limits(level: float) -> Limits:
        ends = estimates.sampling_limits(level)
        low, high = _mover(p, ends, p[reference], (ends[0][reference], ends[1][reference]))
        low, high = np.maximum(low - error, -width), np.minimum(high + error, width)
        low[reference] = high[reference] = 0.0
        return low, high

    found = _differences(p - p[reference], limits, alpha, width, reference)
    error[reference] = 0.0
    away = np.abs(found.value)
    return _with_bound(
        found, error, np.nanmax(away - error, initial=0.0), np.nanmax(away + error, initial=0.0)
    )


def _with_bound(found: Comparison, error: Floats, least: float, most: float) -> Comparison:
    """Return a comparison of groups whose values are within ``error``, and whose gap is between two numbers."""
    bound = 0.0 if math.isnan(found.gap.value) or not error.any() else _error(found.gap.value, least, most)
    return replace(found, gap=replace(found.gap, bound=bound), bound=_frozen(error))


def difference_to_overall(
    estimates: Estimates, rest: Estimates, share: ArrayLike, alpha: float
) -> Comparison:
    """Every group minus everybody, and the largest absolute difference.

    With ``share`` the group's part of the denominator, ``p_g - p_all = (1 - share)(p_g - p_rest)``, a
    difference of two independent samples. Only for rates and means: an area of everybody is not a mixture of
    the groups' areas.

    Parameters
    ----------
    estimates
        One number for each of ``K`` groups.
    rest
        The same number for everybody outside that group.
    share
        (k,) the group's share of the denominator (of the rows, the positives, ...); taken as fixed.
    alpha
        Miscoverage: of all per-group limits together, and of the gap.
    """
    return _to_rest(estimates, rest, 1 - np.asarray(share, dtype=np.float64), alpha)


def covariance_to_overall(
    estimates: Estimates, rest: Estimates, share: ArrayLike, alpha: float
) -> Comparison:
    """Covariance with membership of every group, and the largest absolute one.

    ``cov(x, 1_g) = share (p_g - p_all) = share (1 - share)(p_g - p_rest)`` for a number ``p`` that is a mean of ``x``.
    Parameters are those of :func:`difference_to_overall`.
    """
    part = np.asarray(share, dtype=np.float64)
    return _to_rest(estimates, rest, part * (1 - part), alpha)


def _to_rest(estimates: Estimates, rest: Estimates, away: Floats, alpha: float) -> Comparison:
    """Return ``away`` times the difference of every group to everybody outside it."""
    p, q = estimates.value, rest.value
    error, width = estimates.slack + rest.slack, _width(estimates)
    alone = (away <= 0) & ~np.isnan(p)  # the group is everybody

    def limits(level: float) -> Limits:
        low, high = _mover(p, estimates.sampling_limits(level), q, rest.sampling_limits(level))
        low, high = np.maximum(away * (low - error), -width), np.minimum(away * (high + error), width)
        return np.where(alone, 0.0, low), np.where(alone, 0.0, high)

    return _differences(np.where(alone, 0.0, away * (p - q)), limits, alpha, width)


def _exponential(logs: Comparison) -> Comparison:
    """Ratios from their logarithms; the largest absolute logarithm is the ratio furthest from 1."""
    gap = logs.gap
    furthest = Gap(math.exp(-gap.value), math.exp(-gap.high), math.exp(-gap.low), gap.groups, gap.undefined)
    with np.errstate(over="ignore"):
        value, low, high = (_frozen(np.exp(v)) for v in (logs.value, logs.low, logs.high))
    return Comparison(value, low, high, furthest)


def _log_ratio(p: Floats, q: Floats) -> Floats:
    with np.errstate(invalid="ignore"):  # 0/0 is undefined
        return np.asarray(_logarithm(p) - _logarithm(q))


def ratio_to_reference(estimates: Estimates, reference: int, alpha: float) -> Comparison:
    """Every group divided by the reference group, and the ratio furthest from 1.

    Parameters are those of :func:`difference_to_reference`; no number may be negative. A positive rate over a
    reference of 0 is infinite; ``0/0`` is undefined. The gap is ``min over groups of min(r, 1/r)``.
    """
    assert estimates.support[0] >= 0
    p = estimates.value

    def limits(level: float) -> Limits:
        ends = estimates.limits(level)
        low, high = _log_mover(p, ends, p[reference], (ends[0][reference], ends[1][reference]))
        low[reference] = high[reference] = 0.0
        return low, high

    value = _log_ratio(p, p[reference])
    if not np.isnan(p[reference]):
        value[reference] = 0.0
    found, slack = _exponential(_differences(value, limits, alpha, math.inf, reference)), estimates.slack
    if not slack.any():
        return found
    counted = np.arange(len(p)) != reference
    least = np.maximum(p - slack, 0.0) / (p[reference] + slack[reference])
    most = _divide_up(p + slack, max(float(p[reference] - slack[reference]), 0.0))
    error = np.where(counted, np.maximum(found.value - least, most - found.value), 0.0)
    near = np.where((least <= 1) & (most >= 1), 1.0, np.maximum(_below_one(least), _below_one(most)))
    far = np.minimum(_below_one(least), _below_one(most))
    return _with_bound(found, error, *(float(np.nanmin(v[counted], initial=1.0)) for v in (far, near)))


def _divide_up(above: Floats, below: float) -> Floats:
    """The quotients, infinite over 0."""
    return above / below if below > 0 else np.where(np.isnan(above), np.nan, np.inf)


def _below_one(ratio: Floats) -> Floats:
    """``min(r, 1/r)``."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.minimum(ratio, 1 / ratio))


def ratio_to_overall(estimates: Estimates, rest: Estimates, share: ArrayLike, alpha: float) -> Comparison:
    """Every group divided by everybody, and the ratio furthest from 1.

    ``p_g / p_all = 1 / (share + (1 - share) p_rest / p_g)`` rises with ``p_g / p_rest``, a ratio of two
    independent samples whose limits it therefore inherits. Parameters are those of
    :func:`difference_to_overall`; no number may be negative.
    """
    assert estimates.support[0] >= 0
    p, q, share = estimates.value, rest.value, np.asarray(share, dtype=np.float64)
    log_share, log_away = _logarithm(share), _logarithm(np.maximum(1 - share, 0.0))
    alone = (share >= 1) & (p > 0)

    def of_everybody(log_ratio: Floats) -> Floats:
        with np.errstate(invalid="ignore"):
            return np.where(alone, 0.0, -np.logaddexp(log_share, log_away - log_ratio))

    def limits(level: float) -> Limits:
        low, high = _log_mover(p, estimates.limits(level), q, rest.limits(level))
        return of_everybody(low), of_everybody(high)

    return _exponential(_differences(of_everybody(_log_ratio(p, q)), limits, alpha, math.inf))


# ---------------------------------------------------------------------------------------------------------
# The worst group, and the worst of several gaps
# ---------------------------------------------------------------------------------------------------------


def worst(estimates: Estimates, alpha: float, *, smallest: bool) -> Gap:
    """The smallest (or largest) number over groups.

    For the smallest: ``low`` is the least lower limit, for which no multiplicity is needed, ``high`` the
    least upper limit, which must hold for all groups (Šidák).
    """
    missing = np.isnan(estimates.value)
    defined, undefined = np.flatnonzero(~missing), _indices(missing)
    if not len(defined):
        return Gap(math.nan, *estimates.support, (), undefined)
    p, slack = estimates.value[defined], estimates.slack[defined]
    loose = _take(estimates.limits(alpha), defined)
    strict = _take(estimates.limits(2 * _sidak(alpha / 2, len(p))), defined)
    if smallest:
        group, low, high = np.argmin(p), loose[0].min(), strict[1].min()
        bound = _error(p.min(), (p - slack).min(), (p + slack).min())
        low = estimates.support[0] if undefined else low
    else:
        group, low, high = np.argmax(p), strict[0].max(), loose[1].max()
        bound = _error(p.max(), (p - slack).max(), (p + slack).max())
        high = estimates.support[1] if undefined else high
    return Gap(float(p[group]), float(low), float(high), (int(defined[group]),), undefined, bound)


def combine(*gaps: Gap, smallest: bool = False) -> Gap:
    """The largest (or smallest) of several gaps, such as the two of equalized odds.

    For miscoverage ``alpha`` compute each of the ``n`` gaps at ``alpha / n``.
    """
    sign = -1 if smallest else 1
    defined = [gap for gap in gaps if not math.isnan(gap.value)]
    undefined = tuple(sorted({group for gap in gaps for group in gap.undefined}))
    pick = min if smallest else max
    low, high = pick(gap.low for gap in gaps), pick(gap.high for gap in gaps)
    if not defined:
        return Gap(math.nan, low, high, (), undefined)
    top = max(defined, key=lambda gap: sign * gap.value)
    return Gap(top.value, low, high, top.groups, undefined)


# ---------------------------------------------------------------------------------------------------------
# Kolmogorov-Smirnov distances
#
# low must fear the largest fluctuation anywhere, so its margin is Kolmogorov's. high must fear only the
# fluctuation at the one point where the true distance is attained, a plain difference of two proportions
# with variance at most (1/n1 + 1/n2)/4, so its margin is a normal one.
# ---------------------------------------------------------------------------------------------------------


def ks_margin(n1: ArrayLike, n2: ArrayLike, alpha: float) -> Floats:
    """``c_α sqrt(1/n1 + 1/n2)``: how far two empirical distribution functions stray from the true ones.

    Parameters
    ----------
    n1, n2
        (Effective) sizes; 0 gives an infinite margin.
    alpha
        Probability that the distance, taken over all thresholds, is off by more. Ties make it less.
    """
    return np.asarray(kolmogorov_quantile(alpha) * np.sqrt(_inverse_sizes(n1, n2)))


def _inverse_sizes(n1: ArrayLike, n2: ArrayLike) -> Floats:
    with np.errstate(divide="ignore"):
        return np.asarray(1 / np.asarray(n1, dtype=np.float64) + 1 / np.asarray(n2, dtype=np.float64))


def ks_noise(sizes: ArrayLike, chance: float = 0.95) -> tuple[float, float]:
    """Return what chance alone makes of the largest distance of a group to everybody: its mean and a quantile.

    Parameters
    ----------
    sizes
        Rows of each group (effective ones, where rows are weighted), shape (K,).
    chance
        Probability of the quantile.

    Notes
    -----
    If groups are alike, ``sqrt(n_a n / (n - n_a)) sup |F_a - F|`` follows Kolmogorov's law for continuous scores and
    large groups; groups are taken as independent. Ties make it smaller.
    """
    n = np.asarray(sizes, dtype=np.float64)
    scale = np.sqrt(np.maximum(1.0 / n - 1.0 / n.sum(), 0.0))
    if not scale.any():
        return 0.0, 0.0
    x = np.linspace(0.0, 4.0 * scale.max(), 2001)[1:]
    k = np.arange(1, 101)[:, None]
    below = np.ones_like(x)
    for s in scale[scale > 0]:
        z = x / s
        series = 1.0 - 2.0 * np.sum((-1.0) ** (k - 1) * np.exp(-2.0 * k**2 * z**2), axis=0)
        below *= np.where(z < 0.2, 0.0, np.clip(series, 0.0, 1.0))
    mean = float((1.0 - below).sum() * (x[1] - x[0]))
    return min(mean, 1.0), min(float(np.interp(chance, below, x)), 1.0)


def ks_shortfall(n1: ArrayLike, n2: ArrayLike, alpha: float) -> Floats:
    """How far an estimated distance may fall short of the true one, with probability ``alpha/2``.

    The normal margin with a correction for continuity; never more than Hoeffding's bound, which happens to be
    :func:`ks_margin`.
    """
    inverse = _inverse_sizes(n1, n2)
    normal = normal_quantile(alpha / 2) / 2 * np.sqrt(inverse) + inverse / 2
    return np.minimum(normal, ks_margin(n1, n2, alpha))


def ks_between_groups(distances: ArrayLike, sizes: ArrayLike, alpha: float, slack: ArrayLike = 0.0) -> Gap:
    """The largest KS distance between two groups, from the distances of all pairs.

    Parameters
    ----------
    distances
        (K, K) symmetric distances; the diagonal is ignored.
    sizes
        (K,) effective sizes; a group of size 0 is undefined.
    alpha
        Miscoverage of the interval.
    slack
        By how much a distance may be too small (certified bin mass), scalar or (K, K).
    """
    sizes = np.asarray(sizes, dtype=np.float64)
    empty = ~(sizes > 0)
    first, second = np.triu_indices(len(sizes), 1)
    keep = ~(empty[first] | empty[second])
    first, second = first[keep], second[keep]
    if not len(first):
        return Gap(math.nan, 0.0, 1.0, (), _indices(empty))
    d = np.asarray(distances, dtype=np.float64)[first, second]
    error = np.broadcast_to(np.asarray(slack, float), (len(sizes), len(sizes)))[first, second]
    n1, n2 = sizes[first], sizes[second]
    low = float(np.max(d - ks_margin(n1, n2, _strict(alpha, 2 * len(d)))))
    high = float(np.max(d + error + ks_shortfall(n1, n2, alpha)))
    at = int(np.argmax(d))
    high = 1.0 if empty.any() else min(high, 1.0)
    return Gap(float(d[at]), max(low, 0.0), high, (int(first[at]), int(second[at])), _indices(empty))


def ks_between_cdfs(cdfs: ArrayLike, sizes: ArrayLike, alpha: float, value: float | None = None) -> Gap:
    """The largest KS distance between two groups, from binned distribution functions: for many groups.

    The pairs are never formed. At one edge, the largest distance among groups of two size classes is the
    largest of one class minus the smallest of the other, and the margin is that of the smallest sizes in the
    two. Classes are a quarter octave wide, so margins are at most 9 % too wide and the work is ``K`` times
    the bins. Within a bin a group's function may be anywhere between the two edges.

    Parameters
    ----------
    cdfs
        (K, bins) shares of each group at or below the upper edge of each bin; rows of size 0 are ignored.
    sizes
        (K,) effective sizes; a group of size 0 is undefined.
    alpha
        Miscoverage of the interval.
    value
        The exact largest distance, where a second look at the rows has given it; else the one at the edges.
    """
    sizes = np.asarray(sizes, dtype=np.float64)
    defined, empty = np.flatnonzero(sizes > 0), ~(sizes > 0)
    if len(defined) < 2:
        return Gap(math.nan, 0.0, 1.0, (), _indices(empty))
    upper = np.asarray(cdfs, dtype=np.float64)[defined]
    edge = int(np.argmax(upper.max(axis=0) - upper.min(axis=0)))
    exact = float(np.ptp(upper[:, edge])) if value is None else value
    low, high = _class_bounds(upper, sizes[defined], alpha)
    high = 1.0 if empty.any() else min(max(high, exact), 1.0)
    return Gap(exact, min(max(low, 0.0), exact), high, _attained(upper[:, edge], defined), _indices(empty))


def _class_bounds(upper: Floats, sizes: Floats, alpha: float) -> tuple[float, float]:
    """Largest distance minus, and plus, its margin over all pairs of size classes."""
    lower = np.concatenate([np.zeros((len(upper), 1)), upper[:, :-1]], axis=1)
    label = np.unique(np.floor(4 * np.log2(sizes)), return_inverse=True)[1]
    members = [np.flatnonzero(label == c) for c in range(int(label.max()) + 1)]
    top, bottom, floor = (
        np.array([pick(of[m], axis=0) for m in members])
        for pick, of in ((np.max, upper), (np.min, upper), (np.min, lower))
    )
    n = np.array([sizes[m].min() for m in members])
    strict = _strict(alpha, len(sizes) * (len(sizes) - 1))
    low, high = -math.inf, -math.inf
    for c, group in enumerate(members):
        pairs = np.arange(len(members)) != c if len(group) == 1 else np.ones(len(members), dtype=bool)
        near, far = (top[c] - bottom).max(axis=1), (top[c] - floor).max(axis=1)
        low = max(low, float((near - ks_margin(n[c], n, strict))[pairs].max(initial=-math.inf)))
        high = max(high, float((far + ks_shortfall(n[c], n, alpha))[pairs].max(initial=-math.inf)))
    return low, high


def ks_to_overall(
    distances: ArrayLike,
    sizes: ArrayLike,
    rests: ArrayLike,
    shares: ArrayLike,
    alpha: float,
    slack: ArrayLike = 0.0,
) -> Comparison:
    """The KS distance of every group from everybody, and the largest.

    ``F_g - F_all = (1 - share)(F_g - F_rest)``, so the distance is that of the group from the rest, shrunk.

    Parameters
    ----------
    distances
        (K,) distances from everybody (already shrunk).
    sizes, rests
        (K,) effective sizes of the group and of everybody outside it; 0 of the first is undefined.
    shares
        (K,) the group's share of all rows; taken as fixed.
    alpha
        Miscoverage: of all per-group limits together, and of the gap.
    slack
        By how much a distance may be too small (certified bin mass), scalar or (K,).
    """
    sizes, rests = np.asarray(sizes, dtype=np.float64), np.asarray(rests, dtype=np.float64)
    away = np.maximum(1 - np.asarray(shares, dtype=np.float64), 0.0)
    value = np.where(sizes > 0, np.asarray(distances, dtype=np.float64), np.nan)
    alone, error = (away <= 0) | ~(rests > 0), np.asarray(slack, dtype=np.float64)

    def limits(level: float) -> Limits:
        with np.errstate(invalid="ignore"):
            low = value - away * ks_margin(sizes, rests, level)
            high = value + error + away * ks_shortfall(sizes, rests, level)
        low, high = np.maximum(low, 0.0), np.minimum(high, 1.0)
        return np.where(alone, value, low), np.where(alone, value, high)

    return _unsigned(_differences(value, limits, alpha, 1.0))


def _unsigned(comparison: Comparison) -> Comparison:
    """Distances have no sign: an undefined one is between 0 and 1."""
    low = _frozen(np.maximum(comparison.low, 0.0))
    return Comparison(comparison.value, low, comparison.high, comparison.gap)
