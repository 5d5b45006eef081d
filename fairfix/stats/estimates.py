"""Estimates: one number per group, with limits that hold its true value with a stated probability.

Everything is closed form in counts; no row is looked at and nothing is resampled. Each kind of :class:`Estimates` turns
a miscoverage ``alpha`` into two limits:

======================== ==================================================================================
:class:`Proportions`     Clopper-Pearson, ``[B(α/2; s, n-s+1), B(1-α/2; s+1, n-s)]`` with real ``s`` and ``n``
:class:`Scaled`          those of :class:`Proportions`, on the scale of a number with two values
:class:`Means`           Student t, with one imagined row at the end of the scale, or far out where it has none
:class:`Areas`           Newcombe's method 5: ``|θ - A| = z sqrt(V(θ))`` solved for ``θ``, never below DeLong
:class:`CalibrationErrors` Clopper-Pearson in every bin, put together
:class:`BalancedAccuracies` means of the limits of both rates, which hold together
:class:`Correlations`    extremes of the coefficient within limits of three rates, which hold together
======================== ==================================================================================

An undefined number is ``NaN``; a group without rows has the whole support as its limits. Rows are independent draws
within their group; group sizes and the scores of a calibration bin are taken as they are. ``docs/methods/intervals.md``
has the reasons, ``benchmarks/coverage.py`` measures the coverage.

References
----------
Clopper and Pearson (1934), Biometrika 26. Korn and Graubard (1998), Survey Methodology 24. Newcombe (2006),
Statistics in Medicine 25. Samuelson (1968), JASA 63.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairfix.stats.mover import largest_pair, log_mover, logarithm, mover
from fairfix.stats.quantiles import beta_quantile, normal_quantile, student_quantile

Floats: TypeAlias = NDArray[np.float64]
Limits: TypeAlias = tuple[Floats, Floats]

CARRIED = 8.0
"""A mean has a limit towards an infinite end once unseen rows are likely less than an eighth of those that carry it."""


ROUNDING = 1e-12
"""Part of a sum that rounding may be: a difference of sums below it is none."""


def powers(weight: Floats, value: Floats, square: Floats | None = None) -> Floats:
    """Return of each row what :meth:`Means.from_sums` wants the sums of, shape (6, n): w, wx, wx², w², w²x, w²x².

    ``square`` is the sum of the squared weights where a row stands for several of the same value.
    """
    return np.stack(
        [part * value**k for part in (weight, weight**2 if square is None else square) for k in range(3)]
    )


def frozen(numbers: ArrayLike) -> Floats:
    """Return a read-only copy."""
    array = np.array(numbers, dtype=np.float64)
    array.setflags(write=False)
    return array


def sidak(alpha: float, count: int) -> float:
    """Return the level each of ``count`` independent statements needs for all to hold with ``1 - alpha``."""
    return -math.expm1(math.log1p(-alpha) / max(count, 1))


def _divide(numerator: ArrayLike, denominator: ArrayLike) -> Floats:
    """The quotient, NaN where the denominator is 0."""
    above, below = np.asarray(numerator, float), np.asarray(denominator, float)
    quotient = np.full(np.broadcast(above, below).shape, np.nan)
    np.divide(above, below, out=quotient, where=below > 0)
    return quotient


class Estimates(ABC):
    """One estimated number per group."""

    value: Floats
    """(k,) estimates; NaN is undefined."""
    support: tuple[float, float]
    """The smallest and the largest value that could be true; either may be infinite."""
    slack: Floats
    """(k,) certified *numerical* errors of ``value``: they move the limits outwards in full, and in comparisons add up
    instead of averaging out as sampling error does."""

    @abstractmethod
    def _limits_at(self, alpha: float) -> Limits:
        """Limits at a miscoverage, ``value`` taken as exact: (k,), (k,)."""

    def sampling_limits(self, alpha: float) -> Limits:
        """Two-sided limits of every group at miscoverage ``alpha``, ``value`` taken as exact: (k,), (k,)."""
        cache: dict[float, Limits] = self.__dict__.setdefault("_limits", {})  # every comparison asks anew
        if alpha not in cache:
            cache[alpha] = self._limits_at(alpha)
        return cache[alpha]

    def limits(self, alpha: float) -> Limits:
        """Two-sided limits of every group at miscoverage ``alpha``: two arrays (k,).

        Each group alone is covered with probability ``1 - alpha``; see :func:`simultaneous_limits`.
        """
        low, high = self.sampling_limits(alpha)
        smallest, largest = self.support
        return np.maximum(low - self.slack, smallest), np.minimum(high + self.slack, largest)

    def minus(
        self, other: Estimates, alpha: float, at: int | slice = slice(None), *, logs: bool = False
    ) -> Limits:
        """Limits of the differences to another, independent sample, or of the logarithms of the ratios: (k,), (k,).

        They hold for each alone, by MOVER. ``at`` takes one group of the other sample for all, and
        ``other`` may be the same sample then. Differences are of values taken as exact; ratios have the numerical
        error in their ends.
        """
        p, q = self.value, other.value[at]
        ends, (low, high) = ((one.limits if logs else one.sampling_limits)(alpha) for one in (self, other))
        return (log_mover if logs else mover)(p, ends, q, (low[at], high[at]))

    def furthest(self, defined: NDArray[np.intp], alpha: float, sign: int, *, logs: bool = False) -> float:
        """Return the largest lower (or, with a ``sign`` of 1, upper) limit of a difference of two ``defined`` groups.

        With ``logs`` it is that of the logarithm of a ratio. Numerical errors are in it.
        """
        p, (least, most) = self.value[defined], (self.limits if logs else self.sampling_limits)(alpha)
        least, most = least[defined], most[defined]
        if not logs:
            slack = sign * self.slack[defined]
            up, down = (most - p, p - least) if sign > 0 else (p - least, most - p)
            return largest_pair((p + slack, up), (slack - p, down), sign)
        positive = p > 0
        least, most, log_p = logarithm(least), logarithm(most), logarithm(p)
        if sign > 0 and not positive.all():
            return math.inf
        if sign > 0:
            return largest_pair((log_p, most - log_p), (-log_p, log_p - least), 1)
        log_p, least_of, most_of = log_p[positive], least[positive], most[positive]
        far = largest_pair((log_p, log_p - least_of), (-log_p, most_of - log_p), -1)
        if not positive.all() and least.max() > -math.inf:  # 0 over what may be 0 as well says nothing
            far = max(far, float(least.max() - most[~positive].min()))
        return far

    def __len__(self) -> int:
        return len(self.value)

    def _settle(self, value: Floats, slack: ArrayLike = 0.0, **arrays: ArrayLike) -> None:
        """Store the arrays of a frozen dataclass, read-only."""
        arrays |= {"value": value, "slack": np.broadcast_to(slack, value.shape)}
        for name, array in arrays.items():
            object.__setattr__(self, name, frozen(array))

    def _open_undefined(self, low: Floats, high: Floats) -> Limits:
        undefined = np.isnan(self.value)
        return np.where(undefined, self.support[0], low), np.where(undefined, self.support[1], high)


@dataclass(frozen=True, eq=False)
class Proportions(Estimates):
    """Rates ``successes / totals`` with Clopper-Pearson limits; both may be real numbers.

    The limits cover with at least ``1 - alpha`` whatever the rate and however few the rows. A fractional
    success is the expected decision of a randomised rule: a row then contributes ``p`` in [0, 1] instead
    of 0 or 1. Of all variables on [0, 1] with a given mean the 0-1 variable is the most spread out (in
    convex order, variance ``p(1-p)`` at most), so the binomial limits are conservative for the mean of ``p``.
    """

    successes: Floats
    totals: Floats
    """(k,) counts, ``0 <= successes <= totals``; a total of 0 is an undefined rate."""
    rate: Floats | None = None
    """(k,) rates, where they are known to more digits than the quotient of effective counts."""
    support: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        totals = np.asarray(self.totals, dtype=np.float64)
        successes = np.clip(np.asarray(self.successes, dtype=np.float64), 0.0, totals)
        rate = _divide(successes, totals) if self.rate is None else self.rate
        self._settle(rate, successes=successes, totals=totals)

    @classmethod
    def weighted(
        cls, w_success: ArrayLike, w_failure: ArrayLike, w2_success: ArrayLike, w2_failure: ArrayLike
    ) -> Proportions:
        """Weighted rates as binomial counts of the effective size (Korn and Graubard).

        ``n_eff = p(1-p) / var`` with ``var = ((1-p)² Σ_success w² + p² Σ_failure w²) / W²``, but never above Kish's
        ``W² / Σ w²``: with a few light successes the estimated variance is far too small by luck. Where the rate is 0
        or 1, what the rows that are not there would weigh is taken from the other rates. The scale of the weights does
        not matter. The sums (k,) are of weights and of squared weights, of the rows with and without the outcome.
        """
        s, f, s2, f2 = (np.asarray(v, float) for v in (w_success, w_failure, w2_success, w2_failure))
        weight = s + f
        kish = _divide(weight**2, s2 + f2)
        of_success = _weight_of_a_row(s, s2, _divide(f2, f))
        of_failure = _weight_of_a_row(f, f2, _divide(s2, s))
        linear = _divide(weight**2, f * of_success + s * of_failure)
        size = np.nan_to_num(np.where(linear < (1.0 - ROUNDING) * kish, linear, kish))
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

    def _limits_at(self, alpha: float) -> Limits:
        """Clopper-Pearson limits; 0 and 1 where there is no success, no failure."""
        failures = self.totals - self.successes
        low, below = (
            np.where(of > 0, beta_quantile(alpha / 2, np.where(of > 0, of, 1.0), rest + 1), 0.0)
            for of, rest in ((self.successes, failures), (failures, self.successes))
        )
        return self._open_undefined(low, 1 - below)


@dataclass(frozen=True, eq=False)
class Scaled(Estimates):
    """Means of a number with two values, ``least`` and ``most``: rates of the larger one on another scale.

    Rows with the larger value count ``odds`` times as often as others, which makes ``p`` of them
    ``odds p / (odds p + 1 - p)``: it rises with ``p``, so that limits of ``p`` are limits on this scale.
    """

    rates: Proportions
    least: float
    most: float
    odds: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "support", (self.least, self.most))
        self._settle(self._of(self.rates.value), self.rates.slack)

    def _of(self, rates: Floats) -> Floats:
        often = self.odds * rates
        return np.clip(
            self.least + (self.most - self.least) * often / (often + 1.0 - rates), self.least, self.most
        )

    def _limits_at(self, alpha: float) -> Limits:
        """Limits of the rates on this scale."""
        low, high = self.rates.sampling_limits(alpha)
        return self._of(low), self._of(high)


@dataclass(frozen=True, eq=False)
class Means(Estimates):
    """Means with Student t limits, each with one more, imagined row at the end of the scale that it looks towards.

    On a scale without that end the row is imagined ``sqrt(n)`` standard deviations from the mean, as far as a row of a
    sample can lie (Samuelson 1968); and with ``m = (Σwx)² / Σwx²`` rows in effect there is no limit at a tail of ``p``
    while ``m < CARRIED ln(1/p)``. Rows too rare to be seen and so large that they make up the mean remain outside the
    promise: no interval holds for every distribution on such a scale (Bahadur and Savage 1956).
    """

    mean: Floats
    """(k,) means."""
    variance: Floats
    """(k,) variances of one row about that mean (divided by ``n``, not ``n - 1``)."""
    sizes: Floats
    """(k,) effective numbers of rows; 0 is an undefined mean."""
    support: tuple[float, float] = (-math.inf, math.inf)
    """Smallest and largest possible value of a row; infinite where there is none."""
    carried: ArrayLike = math.inf
    """(k,) effective numbers of rows that carry the means, where neither end is finite; infinite where unknown. With a
    finite end they follow from the distance to it."""

    def __post_init__(self) -> None:
        sizes = np.asarray(self.sizes, dtype=np.float64)
        mean = np.where(sizes > 0, self.mean, np.nan)
        carried = np.broadcast_to(np.asarray(self.carried, float), sizes.shape)
        self._settle(mean, mean=mean, variance=self.variance, sizes=sizes, carried=carried)

    @classmethod
    def from_sums(
        cls,
        sums: ArrayLike,
        support: tuple[float, float] = (-math.inf, math.inf),
        total_of_sizes: ArrayLike | None = None,
    ) -> Means:
        """Make means of the sums of :func:`powers`, (6, k), or of unweighted rows, (3, k): ``n``, ``Σx``, ``Σx²``.

        Weighted rows have the effective number ``v W² / Σ w²(x - m)²`` for the weighted variance ``v`` about the mean
        ``m``: values that go with the weights vary more than ``v`` tells. It is never above Kish's ``W² / Σ w²``, and
        is Kish's where no row differs from the mean. ``total_of_sizes`` is ``Σw|x|``, if at hand.
        """
        weight, total, squares, *of_squared_weights = np.asarray(sums, float)
        mean, square = _divide(total, weight), _divide(squares, weight)
        variance = np.maximum(square - mean**2, 0.0)  # rounding below 0
        sizes = np.nan_to_num(weight)
        if of_squared_weights:
            weight2, total2, squares2 = of_squared_weights
            sizes = np.nan_to_num(_divide(weight**2, weight2))
            spread = squares2 - 2.0 * mean * total2 + mean**2 * weight2
            seen = spread > ROUNDING * (squares2 + mean**2 * weight2)
            linear = _divide(variance * weight**2, np.where(seen, spread, 0.0))
            sizes = np.where(linear < (1.0 - ROUNDING) * sizes, np.maximum(linear, 1.0), sizes)
        carried: ArrayLike = math.inf
        if total_of_sizes is not None:
            rows = carrying_rows(_divide(total_of_sizes, weight), square, sizes)
            carried = np.where(np.asarray(total_of_sizes) > 0, rows, math.inf)  # no row differs from 0
        return cls(mean, variance, sizes, support, carried)

    def _limits_at(self, alpha: float) -> Limits:
        """Student t limits, clipped to the support."""
        smallest, largest = self.support
        low = np.maximum(self._limit(smallest, alpha / 2, -1), smallest)
        high = np.minimum(self._limit(largest, alpha / 2, 1), largest)
        return self._open_undefined(low, high)

    def _limit(self, end: float, tail: float, sign: int) -> Floats:
        mean, variance, n = self.mean, self.variance, self.sizes
        bounded = math.isfinite(end)
        away, more = (end - mean if bounded else sign * np.sqrt(n * variance)), n + 1
        mean, variance = mean + away / more, (n * variance + away**2 * n / more) / more
        limit = np.full(len(n), sign * math.inf)
        enough = (n > 0) if bounded else (n >= 2)
        reach = student_quantile(tail, n[enough]) * np.sqrt(variance[enough] / n[enough])
        limit[enough] = mean[enough] + sign * reach
        return limit if bounded else np.where(self._is_carried(tail), limit, sign * math.inf)

    def _is_carried(self, tail: float) -> NDArray[np.bool_]:
        """Whether enough rows carry the means for limits towards an end that is infinite: (k,)."""
        carried = np.asarray(self.carried)
        start = next((end for end in self.support if math.isfinite(end)), None)
        if start is not None:
            distance = np.abs(self.mean - start)
            carried = carrying_rows(distance, distance**2 + self.variance, self.sizes)
        return np.asarray(carried >= CARRIED * math.log(1 / tail))


def _weight_of_a_row(weight: Floats, square: Floats, other: Floats) -> Floats:
    """Return ``Σw² / Σw`` of the rows with one outcome, (k,); ``other`` is that of those with the other outcome.

    A rate without such a row takes it from the rates with both: as many times ``other`` as there, or once.
    """
    mass, mass2 = (np.nan_to_num(_divide(part, unit)) for part, unit in ((weight, other), (square, other**2)))
    times = float(_divide(mass2.sum(), mass.sum()))
    return np.where(weight > 0, _divide(square, weight), other * (1.0 if math.isnan(times) else times))


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

    so they stay inside [0, 1] and have positive width at ``A = 1``. Where the variance seen in the scores is larger
    than that model's, all of ``V`` is scaled up by the ratio ``r >= 1``.
    """

    area: Floats
    """(k,) areas."""
    positives: Floats
    negatives: Floats
    """(k,) effective numbers ``m`` and ``n`` of rows of each class; 0 of either: undefined."""
    numerical_error: ArrayLike = 0.0
    """Certified numerical error of the areas, such as one taken from a histogram has."""
    variance: ArrayLike = 0.0
    """(k,) variance of the area as seen in the scores (DeLong); without it ``r = 1``."""
    support: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        positives, negatives = (np.asarray(v, dtype=np.float64) for v in (self.positives, self.negatives))
        value = np.where((positives > 0) & (negatives > 0), np.clip(self.area, 0.0, 1.0), np.nan)
        self._settle(value, self.numerical_error, area=self.area, positives=positives, negatives=negatives)

    @classmethod
    def from_histograms(
        cls,
        positives: ArrayLike,
        negatives: ArrayLike,
        squares: tuple[ArrayLike, ArrayLike] | None = None,
        *,
        exact: bool = False,
    ) -> Areas:
        """From counts per score bin, ties and bins counting one half.

        Parameters
        ----------
        positives, negatives
            (k, bins) weights of rows of each class in each bin, in order of the score.
        squares
            The same of squared weights; None where rows count once. The variance is linearised, so it sees weights that
            go with the score, and is never below that of equal weights with Kish's number of rows.
        exact
            Rows of one bin are truly tied, so that the area has no numerical error.
        """
        masses = [np.asarray(v, dtype=np.float64) for v in (positives, negatives)]
        squared = masses if squares is None else [np.asarray(v, dtype=np.float64) for v in squares]
        p, q = (_divide(v, v.sum(axis=1, keepdims=True)) for v in masses)
        m, n = (
            np.nan_to_num(_divide(w.sum(axis=1) ** 2, w2.sum(axis=1)))
            for w, w2 in zip(masses, squared, strict=True)
        )
        wins, losses = q.cumsum(axis=1) - q / 2, 1 - (p.cumsum(axis=1) - p / 2)
        area = (p * wins).sum(axis=1)
        of_wins, of_losses = (
            np.max([(by * (v - area[:, None]) ** 2).sum(axis=1) for by in (share, shared)], axis=0)
            for share, w2, v in ((p, squared[0], wins), (q, squared[1], losses))
            for shared in (_divide(w2, w2.sum(axis=1, keepdims=True)),)
        )
        variance = _divide(of_wins, m - 1) + _divide(of_losses, n - 1)  # NaN for a single row of a class
        error = 0.0 if exact else np.nan_to_num((p * q).sum(axis=1) / 2)
        return cls(np.nan_to_num(area), m, n, error, variance)

    def _limits_at(self, alpha: float) -> Limits:
        """Newcombe's limits."""
        typical, of_a_pair = (
            (self.positives + self.negatives) / 2 - 1,
            _divide(1.0, self.positives * self.negatives),
        )

        def variance(theta: Floats) -> Floats:
            other = 1 - theta
            clustering = other / (1 + other) + theta / (1 + theta)
            return theta * other * (1 + typical * clustering) * of_a_pair

        model = np.nan_to_num(variance(self.value))
        scale = np.fmax(_divide(np.asarray(self.variance, dtype=np.float64), model), 1.0)
        z = normal_quantile(alpha / 2) * np.sqrt(scale)
        inner, outer = self.value, np.array([[0.0], [1.0]])
        for _ in range(60):
            middle = (inner + outer) / 2
            beyond = np.abs(middle - self.value) > z * np.sqrt(variance(middle))
            inner, outer = np.where(beyond, inner, middle), np.where(beyond, middle, outer)
        return self._open_undefined(*outer)


@dataclass(frozen=True, eq=False)
class CalibrationErrors(Estimates):
    """Binned calibration errors ``Σ_b share_b |rate_b - score_b|`` of every group.

    *Low*: Clopper-Pearson limits that hold in all bins of a group at once (Šidák, at ``α/2``); each bin
    contributes the distance from its mean score to its interval. *High*: the estimate is never below
    ``Σ share_b ±(rate_b - score_b)`` with the true signs, a linear statistic, so plain limits per bin combine
    as root of a sum of squares (MOVER). The estimate itself is biased upwards; ``low`` is not.
    """

    rates: Proportions
    """Outcome rates of the ``k * bins`` cells, group by group."""
    scores: Floats
    """(k, bins) mean score in each bin; ignored where the bin is empty."""
    mass: Floats
    """(k, bins) weight of each bin; shares are taken of its sum over the bins of a group."""
    numerical_error: float = 0.0
    """Certified numerical error of the mean scores."""
    support: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        mass = np.asarray(self.mass, dtype=np.float64)
        share = _divide(mass, mass.sum(axis=1, keepdims=True))
        rate = self.rates.value.reshape(mass.shape)
        used = np.where(np.isnan(rate), 0.0, share)
        value = np.sum(used * np.abs(np.nan_to_num(rate - self.scores)), axis=1)
        value = np.where(np.isnan(share).any(axis=1), np.nan, value)
        self._settle(value, self.numerical_error, scores=self.scores, mass=mass)

    def _limits_at(self, alpha: float) -> Limits:
        """Limits of the errors."""
        mass, scores = self.mass, np.nan_to_num(self.scores)
        share = np.nan_to_num(_divide(mass, mass.sum(axis=1, keepdims=True)))
        bins = np.maximum(np.count_nonzero(mass > 0, axis=1), 1)
        low = np.zeros(len(self.value))
        for count in np.unique(bins):  # the level depends on the number of bins that a group uses
            group = bins == count
            least, most = self._cells(sidak(alpha / 2, int(count)))
            outside = np.maximum(np.maximum(least - scores, scores - most), 0.0)
            low[group] = np.sum(share * outside, axis=1)[group]
        rate = np.nan_to_num(self.rates.value.reshape(mass.shape))
        least, most = self._cells(alpha)
        spread = share * np.where(mass > 0, np.maximum(most - rate, rate - least), 0.0)
        high = np.minimum(self.value + np.sqrt(np.sum(spread**2, axis=1)), 1.0)
        return self._open_undefined(low, high)

    def _cells(self, alpha: float) -> Limits:
        low, high = self.rates.limits(alpha)
        return low.reshape(self.mass.shape), high.reshape(self.mass.shape)


def together(alpha: float, *rates: Proportions) -> list[Limits]:
    """Limits of rates of different rows that hold together, on each side with probability ``1 - alpha/2`` (Šidák)."""
    level = 2.0 * sidak(alpha / 2.0, len(rates))
    return [one.limits(level) for one in rates]


@dataclass(frozen=True, eq=False)
class BalancedAccuracies(Estimates):
    """Means of true positive and true negative rates, between the means of limits that hold together.

    A root of a sum of squares (MOVER) would be narrower, but at the small ``alpha`` that many groups need it misses
    many times as often as it claims where errors are rare.
    """

    sensitivity: Proportions
    specificity: Proportions
    support: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        self._settle((self.sensitivity.value + self.specificity.value) / 2.0)

    def _limits_at(self, alpha: float) -> Limits:
        """Means of both limits."""
        (low, high), (other_low, other_high) = together(alpha, self.sensitivity, self.specificity)
        return self._open_undefined((low + other_low) / 2.0, (high + other_high) / 2.0)


@dataclass(frozen=True, eq=False)
class Correlations(Estimates):
    """Correlations of decision and label (Matthews 1975), between their extremes where three rates can be.

    With the base rate ``P``, sensitivity ``t``, false positive rate ``u`` and selection rate ``q = P t + (1-P) u``, the
    coefficient is ``(t - u) sqrt(P (1-P) / (q (1-q)))``. It rises with ``t``, falls with ``u``, and as a function of
    ``P`` its size is largest at the odds ``sqrt(u (1-u) / (t (1-t)))`` and falls on both sides.
    """

    base: Proportions
    sensitivity: Proportions
    specificity: Proportions
    decided: NDArray[np.bool_]
    """(k,) whether there are decisions of both kinds; undefined without."""
    support: tuple[float, float] = (-1.0, 1.0)

    def __post_init__(self) -> None:
        rates = (one.value for one in (self.base, self.sensitivity, self.specificity))
        self._settle(np.where(self.decided, self._of(*rates), np.nan))

    @staticmethod
    def _of(base: Floats, right: Floats, rejected: Floats) -> Floats:
        wrong = 1.0 - rejected
        selected = base * right + (1.0 - base) * wrong
        left = base * (1.0 - right) + (1.0 - base) * rejected
        size = np.sqrt(_divide(base * (1.0 - base), selected * left))
        return np.clip((right - wrong) * size, -1.0, 1.0)

    def _limits_at(self, alpha: float) -> Limits:
        """Smallest and largest coefficient within limits of the three rates that hold together."""
        (least, most), *rates = together(alpha, self.base, self.sensitivity, self.specificity)
        ends = []
        for right, rejected in zip(*rates, strict=True):  # both low, then both high
            odds = np.sqrt(_divide(rejected * (1.0 - rejected), right * (1.0 - right)))
            top = np.clip(np.where(np.isnan(odds), 1.0, odds / (1.0 + odds)), least, most)
            ends.append([self._of(base, right, rejected) for base in (least, most, top)])
        return self._open_undefined(np.min(ends[0], axis=0), np.max(ends[1], axis=0))


def simultaneous_limits(estimates: Estimates, alpha: float) -> Limits:
    """Limits that hold for all defined groups at once with probability ``1 - alpha`` (Šidák): (k,), (k,)."""
    return estimates.limits(sidak(alpha, int(np.count_nonzero(~np.isnan(estimates.value)))))
