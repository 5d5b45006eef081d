"""Population: what rows show of a rule, and the bound on its gap among those that they were drawn from.

Each kind of :class:`Evidence` keeps what was seen, and tells the bound that follows from it for the rows there are, or
would follow if the same had been seen on more. The tails are those of :mod:`fairfix.stats.tails`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, permutations
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fairfix.stats.estimates import Floats
from fairfix.stats.tails import (
    Reach,
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
"""Part of the miscoverage that goes to the shares of groups, which matter little: they weigh gaps that are small."""


CHANCE = 1.8
"""Standard deviations of held-out rows, which are 1.5 of these and of the rows of the fit together; of one pair 1.3
would do, but several may be about as far apart, ..."""

BETTED, DISTANCE = 0.7, 1.5
"""... as parts of the widths of bounds: by bets 2.5 of them; at a threshold that is one of many 1.9, and the largest
distance of all thresholds is shown too large."""

NONE = np.zeros(1)
"""Losses of a group without rows, where it is asked how many it takes."""


@dataclass(frozen=True, kw_only=True)
class Evidence(ABC):
    """What rows show of a rule, and the bound that follows for any numbers of rows."""

    names: tuple[str, ...]
    """Of the groups, (K,), or of the groups in each event."""
    rows: Ints
    """Of each of ``names``, in all axes of the numbers."""
    alpha: float
    tail: str = ""

    most: float = 1.0
    """No gap is larger."""

    def by_chance(self, rows: Ints, wide: Floats) -> Floats:
        """Return how far above its expectation so many rows may show a gap: in nine in ten samples they do not.

        That is :data:`CHANCE` standard deviations: a part of how far a bound by bets is above what is seen, ``wide``.
        """
        return BETTED * wide

    @property
    @abstractmethod
    def seen(self) -> Floats:
        """The gaps on these rows, shape (m,): the largest alone, or that of each group."""

    @abstractmethod
    def of(self, rows: Ints) -> Floats:
        """Return the bounds if the same had been seen on so many rows, shape (m,)."""

    @cached_property
    def bounds(self) -> Floats:
        """The bounds on the gaps of the population, shape (m,)."""
        if not self.rows.min() > 0:
            return np.full(self.seen.shape, self.most)
        return np.clip(self.of(self.rows), 0.0, self.most)

    @property
    def measured(self) -> float:
        """The largest gap on these rows."""
        return float(self.seen.max())

    @property
    def bound(self) -> float:
        """The bound on the largest gap of the population."""
        return float(self.bounds.max())


@dataclass(frozen=True, kw_only=True)
class OfPairs(Evidence):
    """Rates of groups that are compared in pairs: of one event, of both labels, or inside strata."""

    rates: Floats
    """Shape (m,), one for each group in each event and stratum; or (m, c), chances of values of at most each of c."""
    blocks: Ints
    """Which of them are compared with one another, shape (m,)."""

    @property
    def seen(self) -> Floats:
        """The largest difference."""
        each = [float(np.ptp(inside, axis=0).max()) for inside in self._by_block(self.rates)]
        return np.array([max(each, default=0.0)])

    def rarer(self, deviations: float) -> Self:
        """Return the same of rates that were seen so many standard deviations too large, all of them alike."""
        mean = float(np.average(self.rates, weights=self.rows))
        off = deviations * math.sqrt((1.0 - mean) / (max(mean, 1e-300) * self.rows.sum()))
        return replace(self, rates=self.rates / (1.0 + off))

    def _by_block(self, numbers: Any) -> list[Any]:
        return [numbers[self.blocks == block] for block in np.unique(self.blocks)]


@dataclass(frozen=True, kw_only=True)
class PairsOfRules(OfPairs):
    """Rates on the rows of the fit, of a rule of a score: the bound is uniform over such rules."""

    variation: Floats
    """Of the rule, shape (m,)."""
    rising: bool = False
    """Whether every rule that the rows may lead to rises."""

    @cached_property
    def pairs(self) -> Ints:
        """The groups that are compared, shape (P, 2)."""
        number = np.arange(self.rows.size)
        pairs = [pair for inside in self._by_block(number) for pair in combinations(inside, 2)]
        return np.array(pairs, dtype=np.int64).reshape(-1, 2)

    def _reach(self, rows: Ints) -> Reach:
        """Return what all rates may be off at once."""
        ways = np.concatenate([self.pairs, self.pairs[:, ::-1]])
        return reach_of(
            np.tile([1.0, self._ratio], (len(ways), 1)),
            rows[ways],
            self.alpha,
            groups=rows.size,
            balls=len(self.pairs),
            rising=self.rising,
            ratio=self._ratio,
        )

    @property
    def _ratio(self) -> float:
        """What the second of two rates counts, as far as that is known before the rows are seen."""
        return 1.0

    def of(self, rows: Ints) -> Floats:
        """Return the largest difference with what both rates may be off; pairs of blocks are all compared at once."""
        pairs = self.pairs
        if not pairs.size:
            return np.zeros(1)
        far = np.array([np.abs(self.rates[a] - self.rates[b]).max() for a, b in pairs])
        return np.array([(far + self._reach(rows)(self.variation[pairs], rows[pairs])).max()])


@dataclass(frozen=True, kw_only=True)
class RatiosOfRules(PairsOfRules):
    """The same rates, of which the ratio of the smallest to the largest is looked at; a gap is what it lacks to 1."""

    asked: float
    """The least ratio that is asked, for which the bound is made best."""

    @property
    def _ratio(self) -> float:
        return self.asked

    @property
    def seen(self) -> Floats:
        """What the smallest ratio lacks."""
        return _lacking(self._by_block(self.rates))

    def of(self, rows: Ints) -> Floats:
        """Return what the smallest ratio may lack, each pair either way round."""
        if not self.pairs.size:
            return np.zeros(1)
        ways = np.concatenate([self.pairs, self.pairs[:, ::-1]])
        least = self._reach(rows).least_ratio(self.rates[ways], self.variation[ways], rows[ways])
        return np.array([1.0 - min(float(least.min()), 1.0)])


@dataclass(frozen=True, kw_only=True)
class PairsHeldOut(OfPairs):
    """Rates of a finished rule on held-out rows; the largest difference is one of them, so each has all of alpha."""

    numbers: tuple[Floats, ...] = ()
    """What the rule gives each row of each group, in [0, 1]; empty where all are 0 or 1."""
    spread: tuple[float, ...] = ()
    """Standard deviation of those of other rows, m of them: stakes are set by it."""

    def by_chance(self, rows: Ints, wide: Floats) -> Floats:
        """Return that of the pair of groups which tell least, or of distances."""
        if self.rates.ndim == 2:
            return DISTANCE * wide
        variance = _variance(self.rates, self.spread) / rows
        two = [np.sort(inside)[-2:].sum() for inside in self._by_block(variance) if inside.size > 1]
        return np.array([CHANCE * math.sqrt(max(two, default=0.0))])

    def of(self, rows: Ints) -> Floats:
        """Return the largest difference by the tails, or by bets, of both groups together."""
        each = [0.0]
        for block in np.unique(self.blocks):
            inside = np.flatnonzero(self.blocks == block)
            rates, many = self.rates[inside], rows[inside].astype(np.float64)
            if rates.ndim == 2:
                ways = permutations(range(inside.size), 2)
                each += [largest_distance(rates[a], rates[b], many[[a, b]], self.alpha) for a, b in ways]
            else:
                own = [self.numbers[k] for k in inside if self.numbers]
                spread = [self.spread[k] for k in inside if self.spread]
                each.append(_largest(rates, own, spread, many, self.alpha))
        return np.array([max(each)])


@dataclass(frozen=True, kw_only=True)
class RatiosHeldOut(OfPairs):
    """The same rates, counted, of which a gap is what the ratio of the smallest to the largest lacks to 1."""

    @property
    def seen(self) -> Floats:
        """What the smallest ratio lacks."""
        return _lacking(self._by_block(self.rates))

    def by_chance(self, rows: Ints, wide: Floats) -> Floats:
        """Return a part of the width, which of counts is 1.9 standard deviations."""
        return CHANCE / 1.9 * wide

    def of(self, rows: Ints) -> Floats:
        """Return what it may lack; the smallest ratio is one of them, so each has all of alpha."""
        parts = zip(self._by_block(self.rates), self._by_block(rows.astype(np.float64)), strict=True)
        return np.array([1.0 - min(least_ratio(rates, many, self.alpha) for rates, many in parts)])


def _lacking(blocks: list[Floats]) -> Floats:
    """Return what the smallest ratio lacks; of rates that are all 0 there is none, and it lacks everything."""
    each = [
        1.0 - float(inside.min() / inside.max()) if inside.max() > 0 else 1.0
        for inside in blocks
        if inside.size > 1
    ]
    return np.array([max(each, default=0.0)])


def _largest(
    rates: Floats, numbers: Sequence[Floats], spread: Sequence[float], rows: Floats, alpha: float
) -> float:
    """Return the largest difference of rates of a finished rule: by bets where there are numbers, else of counts."""
    if numbers:
        return largest_difference_by_bets(numbers, spread, rows, alpha)
    return largest_difference(rates, rows, alpha)


@dataclass(frozen=True, kw_only=True)
class Distances(Evidence):
    """Distances of distributions of values, each group against everybody, at every threshold."""

    far: Floats
    """Distance of each group to the mixture of all by ``shares``, shape (K,)."""
    apart: float
    """Largest distance of two groups."""
    shares: Floats
    """Of the groups, among all rows of the data."""
    total: int
    rising: bool = True
    """Whether each value's chance rises, or falls, with the score in all groups alike."""

    @property
    def seen(self) -> Floats:
        """The distance of each group to everybody."""
        return self.far

    def would_be(self, rows: Ints) -> int:
        """Return how many rows the data would have, if so many were looked at."""
        return round(self.total * float(rows.sum() / self.rows.sum()))

    def of(self, rows: Ints) -> Floats:
        """Return the distance of each group with what the distributions and the shares may be off."""
        many = len(self.names)
        alpha = self.alpha * (1 - SHARES)
        weights: Floats = np.tile(self.shares, (many, 1))
        np.fill_diagonal(weights, 1.0 - self.shares)
        reach = reach_of(weights, np.tile(rows, (many, 1)), alpha, groups=many, balls=1, rising=self.rising)
        pairs = np.array(list(combinations(range(many), 2)))
        apart = self.apart + float(reach(np.ones(pairs.shape), rows[pairs]).max())
        off = share_distance(self.would_be(rows), many, self.alpha * SHARES)
        return self.far + reach(weights, rows) + off * min(apart, 1.0)


@dataclass(frozen=True, kw_only=True)
class CovariancesOfRules(Evidence):
    """Covariances of decisions with membership, ``share_k (r_k - r)``, of a rule that rises with a score."""

    strata: tuple[Distances, ...]
    """How far the rates of groups are from those of everybody, in each stratum: distributions of the values 0 and 1."""

    most: float = 0.25

    @property
    def seen(self) -> Floats:
        """The largest."""
        return np.array([max(float((one.shares * one.far).max()) for one in self.strata)])

    def of(self, rows: Ints) -> Floats:
        """Return the largest, by the largest that shares may be; shares and strata have their parts of alpha."""
        out, more = [], float(rows[0] / self.rows[0])
        cost = math.log(sum(one.rows.size for one in self.strata) / (self.alpha * SHARES))
        for one in self.strata:
            rest = replace(one, alpha=self.alpha * (1 - SHARES) / len(self.strata))
            own = np.rint(one.rows * more).astype(np.int64)
            shares = upper_mean(one.shares, one.would_be(own), cost, counted=True)
            out.append(float((shares * rest.of(own)).max()))
        return np.array([max(out)])


@dataclass(frozen=True, kw_only=True)
class ToOthers(Evidence):
    """Rates of groups against everybody's, of a finished rule: by those of all others, and the share of these.

    A rate over everybody is ``s`` times that of a group plus ``1 - s`` times that of all others, so the group is
    ``1 - s`` times as far from everybody as from the others.
    """

    rates: Floats
    """Of each group in each event and of all others there, shape (m, 2)."""
    numbers: tuple[Floats, ...] = ()
    """What the rule gives each row of each of these, in [0, 1]; empty where all are 0 or 1."""
    spread: tuple[float, ...] = ()
    """Standard deviation of those of other rows, 2m of them: stakes are set by it."""

    def by_chance(self, rows: Ints, wide: Floats) -> Floats:
        """Return that of the group which tells least, beside all others."""
        variance = _variance(self.rates.ravel(), self.spread) / rows
        return np.array([CHANCE * (np.sqrt(variance.reshape(-1, 2).sum(axis=1)) * _others(rows)).max()])

    @property
    def seen(self) -> Floats:
        """The largest distance to everybody."""
        return np.array([(np.abs(np.diff(self.rates, axis=1)[:, 0]) * _others(self.rows)).max()])

    def of(self, rows: Ints) -> Floats:
        """Return the largest distance, which is one of them, so that each has all of alpha."""
        most = _most_others(rows, self.alpha * SHARES)
        far = []
        for k, (rate, many) in enumerate(zip(self.rates, rows.reshape(-1, 2), strict=True)):
            two = slice(2 * k, 2 * k + 2)
            own = self.numbers[two], self.spread[two]
            far.append(_largest(rate, *own, many.astype(np.float64), self.alpha * (1 - SHARES)))
        return np.array([(np.array(far) * most).max()])


def _variance(rates: Floats, spread: Sequence[float]) -> Floats:
    """Return the variance of what is given to a row: by what was seen elsewhere, or of decisions 0/1."""
    return np.asarray(spread) ** 2 if spread else rates * (1.0 - rates)


def _others(rows: Ints) -> Floats:
    """Return the share of all others, of rows of groups and of all others."""
    each = rows.reshape(-1, 2)
    return np.asarray(each[:, 1] / each.sum(axis=1))


def _most_others(rows: Ints, alpha: float) -> Floats:
    """Return the upper limit of each such share, each at the whole of alpha."""
    return upper_mean(_others(rows), rows.reshape(-1, 2).sum(axis=1), -math.log(alpha), counted=True)


@dataclass(frozen=True, kw_only=True)
class DistancesToOthers(Evidence):
    """Distances of distributions of values to everybody's, of a finished rule: by those of all others."""

    below: tuple[Floats, ...]
    """Of each group and of all others, the shares of values of at most each threshold, from 0 to 1, shape (2, c)."""
    together: bool
    """Whether the largest alone has a limit, so that each distance may have all of alpha."""

    def by_chance(self, rows: Ints, wide: Floats) -> Floats:
        """Return a part of the width."""
        return DISTANCE * wide

    @property
    def seen(self) -> Floats:
        """The distance of each group to everybody."""
        return np.array([float(np.abs(own[0] - own[1]).max()) for own in self.below]) * _others(self.rows)

    def of(self, rows: Ints) -> Floats:
        """Return that of each group, by the share of all others and the distance to them, in each direction."""
        alpha = self.alpha / (1 if self.together else len(self.below))
        far = []
        for (own, others), many in zip(self.below, rows.reshape(-1, 2).astype(np.float64), strict=True):
            ways = ((own, others, many), (others, own, many[::-1]))
            far.append(max(largest_distance(*way, alpha * (1 - SHARES)) for way in ways))
        return np.array(far) * _most_others(rows, alpha * SHARES)


@dataclass(frozen=True, kw_only=True)
class OfEverybody(Evidence):
    """A share of everybody, such as of those whose decision changes under flips."""

    share: float
    counted: bool

    @property
    def seen(self) -> Floats:
        """The share."""
        return np.array([self.share])

    def of(self, rows: Ints) -> Floats:
        """Return its upper limit."""
        return upper_mean(self.share, rows, -math.log(self.alpha), counted=self.counted)


@dataclass(frozen=True, kw_only=True)
class Losses(Evidence):
    """Mean losses of groups, of a finished rule whose losses have an end, ``most``."""

    losses: tuple[Floats, ...]
    """Of the rows of each group."""
    spread: Floats
    """Standard deviation of the losses of each group on other rows, shape (K,): stakes are set by it."""

    @property
    def seen(self) -> Floats:
        """The mean of each group."""
        return np.array([float(own.mean()) if own.size else 0.0 for own in self.losses])

    def of(self, rows: Ints) -> Floats:
        """Return the upper limit of each group; all of them share alpha."""
        cost = math.log(len(self.losses) / self.alpha)
        stakes = stake_of(self.spread / self.most, rows, cost)
        each = zip(self.losses, stakes.tolist(), rows.tolist(), strict=True)
        return self.most * np.array(
            [
                upper_by_bets(own / self.most if own.size else NONE, stake, cost, many)
                for own, stake, many in each
            ]
        )


@dataclass(frozen=True, kw_only=True)
class WeightedRates(Evidence):
    """Rates of groups that rows are members of by parts, ``E[w q] / E[w]``, of a finished rule."""

    chance: Floats
    """What the rule gives each row, shape (n,)."""
    weights: Floats
    """In [0, 1], shape (m, n): one for each group in each event."""
    blocks: Ints
    """Which groups are compared with one another, shape (m,)."""
    spread: Floats
    """Standard deviation of ``w (q - rate)`` on other rows, shape (m,): stakes are set by it."""

    @property
    def seen(self) -> Floats:
        """The largest difference."""
        total = self.weights.sum(axis=1)
        rates = np.divide(self.weights @ self.chance, total, out=np.zeros(total.size), where=total > 0)
        return np.array([max(float(np.ptp(rates[self.blocks == block])) for block in set(self.blocks))])

    def of(self, rows: Ints) -> Floats:
        """Return the largest difference of an upper and a lower limit, of which each has half of alpha."""
        cost = math.log(2 / self.alpha)
        stakes = stake_of(self.spread, rows, cost).tolist()
        each = list(zip(stakes, self.weights, strict=True))
        yes, no = (
            np.array([upper_by_bets(own, stake, cost, float(rows[0]), weight) for stake, weight in each])
            for own in (self.chance, 1.0 - self.chance)
        )
        compared = (self.blocks[:, None] == self.blocks) & ~np.eye(yes.size, dtype=bool)
        return np.array([(yes[:, None] + no - 1.0)[compared].max()])


@dataclass(frozen=True, kw_only=True)
class Trends(Evidence):
    """Covariances of decisions with numbers that have ends, of a finished rule."""

    chance: Floats
    """What the rule gives each row, shape (n,)."""
    numbers: Floats
    """In standard deviations from the mean of other rows, shape (J, n)."""
    ends: Floats
    """How far from 0 each is at most, shape (J,)."""
    centre: float
    spread_of_chance: float
    """Mean chance on other rows, ``c``, and its standard deviation there."""
    spread: Floats
    """Standard deviation of ``x (q - c)`` on other rows, shape (J,): stakes are set by it."""

    @property
    def seen(self) -> Floats:
        """The largest."""
        away = self.numbers - self.numbers.mean(axis=1, keepdims=True)
        return np.array([float(np.abs((away * (self.chance - self.chance.mean())).mean(axis=1)).max())])

    def of(self, rows: Ints) -> Floats:
        """Return the largest: ``E[x (q - c)] - E[x] E[q - c]``, of which the last is a product of two small numbers.

        One number has the largest of the population, above 0 or below, and one limit of each of its three means counts
        for that, but that both of the product have two sides.
        """
        many = float(rows[0])
        own = -math.log(self.alpha * (1 - SHARES))
        rest = math.log(4 / (self.alpha * SHARES))
        away, most = self.chance - self.centre, max(self.centre, 1.0 - self.centre)
        rate = _farthest(away, most, self.spread_of_chance, many, rest)
        out = []
        for x, end, spread in zip(self.numbers, self.ends.tolist(), self.spread.tolist(), strict=True):
            means = rate * _farthest(x, end, 1.0, many, rest)
            out.append(_farthest(x * away, end * most, spread, many, own) + means)
        return np.array([max(out)])


def _farthest(numbers: Floats, most: float, spread: float, rows: float, cost: float) -> float:
    """Return how far from 0 the expectation of numbers within ``most`` of 0 may be, by bets on either side."""
    stake = float(stake_of(spread / (2 * most), rows, cost))
    shares = (0.5 + side * numbers / (2 * most) for side in (1, -1))
    return most * (2 * max(upper_by_bets(one, stake, cost, rows) for one in shares) - 1)
