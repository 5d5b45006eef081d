"""Population: what rows show of a rule, and the bound on its gap among those that they were drawn from.

Each kind of :class:`Evidence` keeps what was seen, and tells the bound that follows from it for the rows there are, or
would follow if the same had been seen on more. The tails are those of :mod:`fairfix.stats.tails`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fairfix.stats.estimates import Floats
from fairfix.stats.tails import largest_difference, reach_of, share_distance, upper_mean

Ints: TypeAlias = NDArray[np.int64]

SHARES = 0.1
"""Part of the miscoverage that goes to the shares of groups, which matter little: they weigh gaps that are small."""


@dataclass(frozen=True, kw_only=True)
class Evidence(ABC):
    """What rows show of a rule, and the bound that follows for any numbers of rows."""

    names: tuple[str, ...]
    """Of the groups, (K,), or of the groups in each event."""
    rows: Ints
    """Of each of ``names``, in all axes of the numbers."""
    alpha: float
    tail: str = ""

    @property
    @abstractmethod
    def measured(self) -> float:
        """The gap on these rows."""

    @abstractmethod
    def of(self, rows: Ints) -> float:
        """Return the bound if the same had been seen on so many rows."""

    @cached_property
    def bound(self) -> float:
        """The bound on the gap of the population."""
        return min(max(self.of(self.rows), 0.0), 1.0) if self.rows.min() > 0 else 1.0


@dataclass(frozen=True, kw_only=True)
class OfPairs(Evidence):
    """Rates of groups that are compared in pairs: of one event, of both labels, or inside strata."""

    rates: Floats
    """Shape (m,), one for each group in each event and stratum."""
    blocks: Ints
    """Which of them are compared with one another, shape (m,)."""

    @property
    def measured(self) -> float:
        """The largest difference."""
        return max(
            (float(np.ptp(inside)) for inside in self._by_block(self.rates) if inside.size > 1), default=0.0
        )

    def _by_block(self, numbers: Any) -> list[Any]:
        return [numbers[self.blocks == block] for block in np.unique(self.blocks)]


@dataclass(frozen=True, kw_only=True)
class PairsOfRules(OfPairs):
    """Rates on the rows of the fit, of a rule of a score: the bound is uniform over such rules."""

    variation: Floats
    """Of the rule, shape (m,)."""

    def of(self, rows: Ints) -> float:
        """Return the largest difference with what both rates may be off; pairs of blocks are all compared at once."""
        number = np.arange(rows.size)
        pairs = np.array([pair for inside in self._by_block(number) for pair in combinations(inside, 2)])
        if not pairs.size:
            return 0.0
        ones = np.ones(pairs.shape)
        reach = reach_of(ones, rows[pairs], self.alpha, groups=rows.size, balls=len(pairs))
        far = np.abs(self.rates[pairs[:, 0]] - self.rates[pairs[:, 1]])
        return float((far + reach(self.variation[pairs], rows[pairs])).max())


@dataclass(frozen=True, kw_only=True)
class PairsHeldOut(OfPairs):
    """Rates of a finished rule on held-out rows."""

    counted: bool

    def of(self, rows: Ints) -> float:
        """Return the largest difference by the tails of both groups together, each block at its part of alpha."""
        parts = list(zip(self._by_block(self.rates), self._by_block(rows), strict=True))
        parts = [(rates, many) for rates, many in parts if many.size > 1]
        alpha = self.alpha / max(len(parts), 1)
        return max(
            (largest_difference(rates, many, alpha, counted=self.counted) for rates, many in parts),
            default=0.0,
        )


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

    @property
    def measured(self) -> float:
        """The largest distance to everybody."""
        return float(self.far.max())

    def of(self, rows: Ints) -> float:
        """Return the largest distance with what the distributions and the shares may be off."""
        many = len(self.names)
        alpha = self.alpha * (1 - SHARES)
        weights: Floats = np.tile(self.shares, (many, 1))
        np.fill_diagonal(weights, 1.0 - self.shares)
        reach = reach_of(weights, np.tile(rows, (many, 1)), alpha, groups=many, balls=1)
        pairs = np.array(list(combinations(range(many), 2)))
        apart = self.apart + float(reach(np.ones(pairs.shape), rows[pairs]).max())
        off = share_distance(round(self.total * rows.sum() / self.rows.sum()), many, self.alpha * SHARES)
        return float(np.max(self.far + reach(weights, rows))) + off * min(apart, 1.0)


@dataclass(frozen=True, kw_only=True)
class ToOthers(Evidence):
    """Rates of groups against everybody's, of a finished rule: by those of all others, and the share of these.

    A rate over everybody is ``s`` times that of a group plus ``1 - s`` times that of all others, so the group is
    ``1 - s`` times as far from everybody as from the others.
    """

    rates: Floats
    """Of each group in each event and of all others there, shape (m, 2)."""
    counted: bool

    @property
    def measured(self) -> float:
        """The largest distance to everybody."""
        return float((np.abs(np.diff(self.rates, axis=1)[:, 0]) * self._others(self.rows)).max())

    def _others(self, rows: Ints) -> Floats:
        each = rows.reshape(-1, 2)
        return np.asarray(each[:, 1] / each.sum(axis=1))

    def of(self, rows: Ints) -> float:
        """Return the largest distance; all of them share alpha."""
        each, alpha = rows.reshape(-1, 2), self.alpha / len(self.rates)
        total = each.sum(axis=1)
        most = upper_mean(self._others(rows), total, -math.log(alpha * SHARES), counted=True)
        far = [
            largest_difference(rate, many, alpha * (1 - SHARES), counted=self.counted)
            for rate, many in zip(self.rates, each.astype(np.float64), strict=True)
        ]
        return float((np.array(far) * most).max())


@dataclass(frozen=True, kw_only=True)
class OfEverybody(Evidence):
    """A share of everybody, such as of those whose decision changes under flips."""

    share: float
    counted: bool

    @property
    def measured(self) -> float:
        """The share."""
        return self.share

    def of(self, rows: Ints) -> float:
        """Return its upper limit."""
        return float(upper_mean(self.share, rows, -math.log(self.alpha), counted=self.counted)[0])
