"""Bounds on the gap of a population, from statistics of rows drawn from it.

Each :class:`BoundedStatistic` holds what was observed and bounds its population value for the rows there are, or for
other numbers of rows if the same had been observed on them. Two families have bounds by the tails of
:mod:`fairfix.stats.tails`:

* ``...OfRules``: on training rows, uniform over all rules of a score;
* all others: on held-out rows, for a finished rule. The largest of many differences of a finished rule is one of them,
  so each has the whole of ``alpha``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, permutations
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fairfix.stats.estimates import Floats
from fairfix.stats.tails import (
    largest_difference,
    largest_difference_by_bets,
    largest_distance,
    least_ratio,
    reach_of,
    share_distance,
    stake_of,
    upper_by_bets,
    upper_mean,
)

Ints: TypeAlias = NDArray[np.int64]

SHARES = 0.1
"""Part of alpha for the shares of groups, which matter little: they weigh gaps that are small."""

CHANCE = 1.8
"""Standard deviations of held-out rows, which are 1.5 of these and of the training rows together; for one pair 1.3
would do, but several may be about as far apart, ..."""

BETTED, DISTANCE, COUNTED = 0.7, 1.5, CHANCE / 1.9
"""... as parts of the widths of bounds: by bets 2.5 of them; of counts 1.9, also at one of many thresholds, where the
largest distance is observed too large."""

NONE = np.zeros(1)
"""Losses of a group without rows, when counting the rows it needs."""


@dataclass(frozen=True, kw_only=True)
class BoundedStatistic(ABC):
    """A gap that rows show of a rule, and the bound on that of the population for any numbers of rows."""

    names: tuple[str, ...]
    """Names of the groups, (K,), or of the groups in each event."""
    rows: Ints
    """Rows of each of ``names``."""
    alpha: float
    """Probability that the bound is wrong."""
    tail: str = ""
    """Name of the inequality."""
    upper: float = 1.0
    """The largest possible gap."""

    @property
    @abstractmethod
    def observed(self) -> Floats:
        """The gaps on these rows, shape (m,): the largest alone, or that of each group."""

    @abstractmethod
    def bound_at(self, rows: Ints) -> Floats:
        """Return the bounds if the same had been observed on other numbers of rows, shape (m,)."""

    @cached_property
    def bounds(self) -> Floats:
        """The bounds on the gaps of the population, shape (m,)."""
        if not self.rows.min() > 0:
            return np.full(self.observed.shape, self.upper)
        return np.clip(self.bound_at(self.rows), 0.0, self.upper)

    def excess(self, rows: Ints, width: Floats) -> Floats:
        """Return how far above its expectation a gap on these numbers of rows is, at most, in nine of ten samples.

        That is :data:`CHANCE` standard deviations, as a part of the ``width`` of the bound.
        """
        return BETTED * width

    def pessimistic(self, deviations: float, rate: float) -> Self:
        """Return the statistic for planning: with rates ``deviations`` standard deviations, or up to ``rate``, off."""
        return self


@dataclass(frozen=True, kw_only=True)
class GroupRates(BoundedStatistic):
    """Rates of groups that are compared in pairs: of one event, of both labels, or inside strata."""

    rates: Floats
    """Shape (m,), one for each group in each event and stratum; or (m, c), of values up to each of c thresholds."""
    blocks: Ints
    """The rates of a block are compared with one another, shape (m,)."""
    least_ratio: float | None = None
    """The smallest allowed ratio of two rates, whose gap is one minus their ratio; None if differences are bounded."""

    @property
    def observed(self) -> Floats:
        """The largest gap."""
        return np.array([max((self._gap(inside) for inside in self._by_block(self.rates)), default=0.0)])

    def pessimistic(self, deviations: float, rate: float) -> Self:
        """Return smaller rates, all of them alike: ratios depend on how large they are."""
        if self.least_ratio is None:
            return self
        mean = float(np.average(self.rates, weights=self.rows))
        off = deviations * math.sqrt((1.0 - mean) / (max(mean, 1e-300) * self.rows.sum()))
        return replace(self, rates=self.rates / (1.0 + off))

    def _gap(self, rates: Floats) -> float:
        """Return the gap of a block; without a positive rate there is no ratio, and the gap is 1."""
        if self.least_ratio is None:
            return float(np.ptp(rates, axis=0).max())
        largest = float(rates.max())
        return 0.0 if rates.size < 2 else 1.0 - float(rates.min() / largest) if largest > 0 else 1.0

    def _by_block(self, numbers: Any) -> list[Any]:
        return [numbers[self.blocks == block] for block in np.unique(self.blocks)]


@dataclass(frozen=True, kw_only=True)
class RatesOfRules(GroupRates):
    """Rates on training rows: the uniform bound."""

    variation: Floats
    """Total variation of the rule, shape (m,)."""
    rising: bool = False
    """Whether every rule that the rows may lead to rises with the score."""

    def bound_at(self, rows: Ints) -> Floats:
        """Return the largest gap when all rates of all blocks are off at once."""
        number = np.arange(self.rows.size)
        pairs = np.array([pair for one in self._by_block(number) for pair in combinations(one, 2)], dtype=int)
        if not pairs.size:
            return np.zeros(1)
        ways, ratio = np.concatenate([pairs, pairs[:, ::-1]]), self.least_ratio or 1.0
        weights, balls = np.tile([1.0, ratio], (len(ways), 1)), len(pairs)
        reach = reach_of(
            weights, rows[ways], self.alpha, groups=rows.size, balls=balls, rising=self.rising, ratio=ratio
        )
        if self.least_ratio is not None:
            least = reach.least_ratio(self.rates[ways], self.variation[ways], rows[ways])
            return np.array([1.0 - min(float(least.min()), 1.0)])
        far = np.array([np.abs(self.rates[a] - self.rates[b]).max() for a, b in pairs])
        return np.array([(far + reach(self.variation[pairs], rows[pairs])).max()])


@dataclass(frozen=True, kw_only=True)
class RatesHeldOut(GroupRates):
    """Rates of a finished rule: the held-out bound, by counts, or by bets where rows have numbers."""

    numbers: tuple[Floats, ...] = ()
    """Output of the rule for each row of each group, in [0, 1]; empty where all are 0 or 1."""
    spread: tuple[float, ...] = ()
    """Standard deviation of those of other rows, m of them: stakes are set by it."""
    others: bool = False
    """Whether each block is a group and all others, and its gap the distance of the group to all rows.

    An overall rate is ``s`` times that of a group plus ``1 - s`` times that of all others. So the group is
    ``1 - s`` times as far from the overall rate as from the others.
    """

    def _result(self, gaps: Any) -> Floats:
        """Return the gaps of blocks in the shape of :attr:`observed`: of each group if they are distances."""
        each = np.asarray(gaps, dtype=np.float64)
        return each if self.others and self.rates.ndim == 2 else np.array([each.max(initial=0.0)])

    @property
    def observed(self) -> Floats:
        """The largest gap, or the distance of each group."""
        gaps = np.array([self._gap(inside) for inside in self._by_block(self.rates)])
        return self._result(gaps * self._share(self.rows))

    def _share(self, rows: Ints) -> Floats | float:
        """Return the share of all others in each block."""
        each = rows.reshape(-1, 2) if self.others else np.ones((1, 1))
        return np.asarray(each[:, -1] / each.sum(axis=1))

    def excess(self, rows: Ints, width: Floats) -> Floats:
        """Return that of the two groups with the largest variances, or a part of the width."""
        if self.rates.ndim == 2:
            return DISTANCE * width
        if self.least_ratio is not None:
            return COUNTED * width
        variance = (np.asarray(self.spread) ** 2 if self.spread else self.rates * (1.0 - self.rates)) / rows
        two = [np.sort(one)[-2:].sum() if one.size > 1 else 0.0 for one in self._by_block(variance)]
        return np.array([CHANCE * (np.sqrt(two) * self._share(rows)).max()])

    def bound_at(self, rows: Ints) -> Floats:
        """Return the largest gap by the tails, or by bets, of both groups together."""
        alpha = self.alpha * (1.0 - SHARES * self.others)
        far = np.array(
            [self._far(inside, rows[inside] * 1.0, alpha) for inside in self._by_block(np.arange(rows.size))]
        )
        if self.others:
            share, of = self._share(rows), rows.reshape(-1, 2).sum(axis=1)
            far = far * upper_mean(share, of, -math.log(self.alpha * SHARES), counted=True)
        return self._result(far)

    def _far(self, inside: Ints, rows: Floats, alpha: float) -> float:
        """Return the bound of a block."""
        rates = self.rates[inside]
        if rates.ndim == 2:
            ways = permutations(range(inside.size), 2)
            far = (largest_distance(rates[a], rates[b], rows[[a, b]], alpha) for a, b in ways)
            return max(far, default=0.0)
        if self.least_ratio is not None:
            return 1.0 - least_ratio(rates, rows, alpha)
        if not self.numbers:
            return largest_difference(rates, rows, alpha)
        numbers, spread = ([of[k] for k in inside] for of in (self.numbers, self.spread))
        return largest_difference_by_bets(numbers, spread, rows, alpha)


@dataclass(frozen=True, kw_only=True)
class DistancesOfRules(BoundedStatistic):
    """Distances between the distribution of each group and the overall one, at every threshold: the uniform bound."""

    distances: Floats
    """Distance of each group to the mixture of all by ``shares``, shape (K,)."""
    largest_pair: float
    """Largest distance of two groups."""
    shares: Floats
    """Fractions of the groups among all rows of the data."""
    total: int
    """All rows of the data."""
    rising: bool = True
    """Whether each value's probability rises, or falls, with the score in all groups alike."""

    @classmethod
    def from_rates(cls, below: Floats, whole: Ints, **fields: Any) -> Self:
        """Return the distances of rates (K, c), of values up to each of c thresholds; ``whole``: rows of the data."""
        shares = whole / whole.sum()
        return cls(
            distances=np.abs(below - shares @ below).max(axis=1),
            largest_pair=float(np.ptp(below, axis=0).max()),
            shares=shares,
            total=int(whole.sum()),
            **fields,
        )

    @property
    def observed(self) -> Floats:
        """The distance of each group to all rows."""
        return self.distances

    def total_at(self, rows: Ints) -> int:
        """Return how many rows the data would have with that number of training rows."""
        return round(self.total * float(rows.sum() / self.rows.sum()))

    def bound_at(self, rows: Ints) -> Floats:
        """Return the distance of each group when the distributions and the shares are off."""
        many, alpha = len(self.names), self.alpha * (1 - SHARES)
        weights: Floats = np.tile(self.shares, (many, 1))
        np.fill_diagonal(weights, 1.0 - self.shares)
        reach = reach_of(weights, np.tile(rows, (many, 1)), alpha, groups=many, balls=1, rising=self.rising)
        pairs = np.array(list(combinations(range(many), 2)))
        pair = self.largest_pair + float(reach(np.ones(pairs.shape), rows[pairs]).max())
        off = share_distance(self.total_at(rows), many, self.alpha * SHARES)
        return self.distances + reach(weights, rows) + off * min(pair, 1.0)


@dataclass(frozen=True, kw_only=True)
class CovariancesOfRules(BoundedStatistic):
    """Covariances of decisions with membership, ``share_k (r_k - r)``, of a rule that rises with a score."""

    strata: tuple[DistancesOfRules, ...]
    """Distances of the rates of groups from the overall rates, in each stratum: distributions of the values 0 and 1."""
    upper: float = 0.25

    @property
    def observed(self) -> Floats:
        """The largest."""
        return np.array([max(float((one.shares * one.distances).max()) for one in self.strata)])

    def bound_at(self, rows: Ints) -> Floats:
        """Return the largest by the upper limits of shares; shares and strata have their parts of alpha."""
        out, more = [], float(rows[0] / self.rows[0])
        cost = math.log(sum(one.rows.size for one in self.strata) / (self.alpha * SHARES))
        for one in self.strata:
            inside = replace(one, alpha=self.alpha * (1 - SHARES) / len(self.strata))
            own = np.rint(one.rows * more).astype(np.int64)
            shares = upper_mean(one.shares, one.total_at(own), cost, counted=True)
            out.append(float((shares * inside.bound_at(own)).max()))
        return np.array([max(out)])


@dataclass(frozen=True, kw_only=True)
class OverallRate(BoundedStatistic):
    """An overall rate, such as that of decisions that change under flips."""

    rate: float
    counted: bool
    """Whether it is of events, and not a mean of probabilities."""

    @property
    def observed(self) -> Floats:
        """The rate."""
        return np.array([self.rate])

    def pessimistic(self, deviations: float, rate: float) -> Self:
        """Return at least ``rate``: a rate is known the better the smaller it is, none as well as 0."""
        return replace(self, rate=max(self.rate, rate), counted=False)

    def bound_at(self, rows: Ints) -> Floats:
        """Return its upper limit."""
        return upper_mean(self.rate, rows, -math.log(self.alpha), counted=self.counted)


@dataclass(frozen=True, kw_only=True)
class GroupLosses(BoundedStatistic):
    """Mean losses of groups, of a finished rule whose losses are at most ``upper``."""

    losses: tuple[Floats, ...]
    """Losses of the rows of each group."""
    spread: Floats
    """Standard deviation of the losses of each group on other rows, shape (K,): stakes are set by it."""

    @property
    def observed(self) -> Floats:
        """The mean of each group."""
        return np.array([float(own.mean()) if own.size else 0.0 for own in self.losses])

    def bound_at(self, rows: Ints) -> Floats:
        """Return the upper limit of each group; all of them share alpha."""
        cost = math.log(len(self.losses) / self.alpha)
        stakes = stake_of(self.spread / self.upper, rows, cost).tolist()
        parts = (own / self.upper if own.size else NONE for own in self.losses)
        each = zip(parts, stakes, rows.tolist(), strict=True)
        return self.upper * np.array([upper_by_bets(own, stake, cost, many) for own, stake, many in each])


@dataclass(frozen=True, kw_only=True)
class WeightedRates(BoundedStatistic):
    """Rates of groups that rows are in with probabilities, ``E[w q] / E[w]``, of a finished rule."""

    chance: Floats
    """Output of the rule for each row, shape (n,)."""
    weights: Floats
    """In [0, 1], shape (m, n): one for each group in each event."""
    blocks: Ints
    """The rates of a block are compared with one another, shape (m,)."""
    spread: Floats
    """Standard deviation of ``w (q - rate)`` on other rows, shape (m,): stakes are set by it."""

    @property
    def observed(self) -> Floats:
        """The largest difference."""
        total = self.weights.sum(axis=1)
        rates = np.divide(self.weights @ self.chance, total, out=np.zeros(total.size), where=total > 0)
        return np.array([max(float(np.ptp(rates[self.blocks == block])) for block in set(self.blocks))])

    def bound_at(self, rows: Ints) -> Floats:
        """Return the largest difference of an upper and a lower limit, with half of alpha for each."""
        cost = math.log(2 / self.alpha)
        each = list(zip(stake_of(self.spread, rows, cost).tolist(), self.weights, strict=True))
        yes, no = (
            np.array([upper_by_bets(own, stake, cost, float(rows[0]), weight) for stake, weight in each])
            for own in (self.chance, 1.0 - self.chance)
        )
        compared = (self.blocks[:, None] == self.blocks) & ~np.eye(yes.size, dtype=bool)
        return np.array([(yes[:, None] + no - 1.0)[compared].max()])


@dataclass(frozen=True, kw_only=True)
class NumberCovariances(BoundedStatistic):
    """Covariances of decisions with numbers in known ranges, of a finished rule."""

    chance: Floats
    """Output of the rule for each row, shape (n,)."""
    numbers: Floats
    """In standard deviations from the mean of other rows, shape (J, n)."""
    ends: Floats
    """Largest distance of each from 0, shape (J,)."""
    centre: float
    chance_spread: float
    """Mean of ``chance`` on other rows, ``c``, and its standard deviation there."""
    spread: Floats
    """Standard deviation of ``x (q - c)`` on other rows, shape (J,): stakes are set by it."""

    @property
    def observed(self) -> Floats:
        """The largest."""
        away = self.numbers - self.numbers.mean(axis=1, keepdims=True)
        return np.array([float(np.abs((away * (self.chance - self.chance.mean())).mean(axis=1)).max())])

    def bound_at(self, rows: Ints) -> Floats:
        """Return the largest: ``E[x (q - c)] - E[x] E[q - c]``, where the last is a product of two small numbers.

        One number has the largest of the population, above 0 or below, and one limit of each of its three means counts
        for that, but that both of the product have two sides.
        """
        own, rest = -math.log(self.alpha * (1 - SHARES)), math.log(4 / (self.alpha * SHARES))
        away, most = self.chance - self.centre, max(self.centre, 1.0 - self.centre)
        rate, out = _farthest(away, most, self.chance_spread, rows[0], rest), []
        for x, end, spread in zip(self.numbers, self.ends.tolist(), self.spread.tolist(), strict=True):
            means = rate * _farthest(x, end, 1.0, rows[0], rest)
            out.append(_farthest(x * away, end * most, spread, rows[0], own) + means)
        return np.array([max(out)])


def _farthest(numbers: Floats, most: float, spread: float, rows: float, cost: float) -> float:
    """Return how far from 0 the expectation of numbers within ``most`` of 0 may be, by bets on either side."""
    stake = float(stake_of(spread / (2 * most), rows, cost))
    shares = (0.5 + side * numbers / (2 * most) for side in (1, -1))
    return most * (2 * max(upper_by_bets(one, stake, cost, float(rows)) for one in shares) - 1)
