r"""Means of rows of two known values each, such as losses given the scores, whose probabilities are unknown.

Given its score, a row has the log loss of label 1 or that of label 0. The two are known, and only the probability
:math:`r_i` of the larger one is not; rows are independent. So the sum of what rows have above their smaller value is
:math:`T = \sum d_i Z_i` with independent :math:`Z_i \in \{0, 1\}` and known :math:`d_i`, and for every
:math:`\theta > 0`

.. math:: \log P(T \le t) \le \theta t + \sum \log(1 - r_i (1 - e^{-\theta d_i})).

The right side is concave in :math:`r`, so its largest value over all :math:`r` with the same mean
:math:`m = \sum d_i r_i` is found exactly: :math:`r_i = 1/c_i - 1/(\lambda d_i)`, kept within [0, 1], with
:math:`c_i = 1 - e^{-\theta d_i}` and one :math:`\lambda` for all rows. The limit is the largest :math:`m` for which no
:math:`\theta` of a list makes it smaller than the miscoverage. That of the other side is the same of :math:`1 - Z_i`.
Nothing is approximated but the values, which are rounded to the safe side: it holds for any number of rows and any
probabilities. It is about the rows' own scores: what people with other scores lose, it does not say.

References
----------
Chernoff (1952), Annals of Mathematical Statistics 23. Hoeffding (1963), JASA 58.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fairfix.stats.estimates import Estimates, Floats, Limits

STEPS = 32
"""Steps an octave that values are rounded to, 2.2%, so that no number of rows makes many of them."""

LEAST = 1e-3
"""Values below this part of the largest are rounded to it."""

THETAS = 10
"""Tilts that are tried, and tried again near the best one; any of them gives a limit that holds. With 10,000 rows the
last one is at most 13% from the best, which widens an interval by 1%."""

ROUNDED = 1e-9
"""Added to log(lambda), so that rounding errors of its root, 1e-13, leave a limit that holds."""


@dataclass(frozen=True, eq=False)
class TwoValued(Estimates):
    """Means of rows that each have one of two known values, with limits that hold given these values."""

    mean: Floats
    """(k,) means of the rows; NaN without rows."""
    weight: Floats
    """(k,) sums of weights."""
    least: Floats
    """(k,) sums of weight times the smaller value."""
    above: Floats
    """(V,) values that rows can have above the smaller one, times weight, rounded up; they rise."""
    below: Floats
    """(V,) the same, rounded down."""
    rows: Floats
    """(k, V) rows with each of these."""
    larger: Floats
    """(k, V) rows among them that have the larger value."""
    support: tuple[float, float] = (0.0, math.inf)

    def __post_init__(self) -> None:
        self._settle(self.mean)

    @classmethod
    def of_rows(
        cls,
        group: NDArray[np.int64],
        size: int,
        low: Floats,
        high: Floats,
        larger: Floats,
        weight: Floats | None = None,
    ) -> TwoValued:
        """From rows of groups.

        Parameters
        ----------
        group
            Number of the group, shape (n,); a negative one is of no group.
        size
            How many groups there are.
        low, high
            The smaller and the larger value of each row, finite, shape (n,).
        larger
            1 where a row has the larger one, else 0.
        weight
            None for 1 each.
        """
        kept = group >= 0
        group, low, high, larger = group[kept], low[kept], high[kept], larger[kept]
        w = np.ones(group.size) if weight is None else weight[kept]
        apart = w * (high - low)
        most = float(apart.max(initial=0.0)) or 1.0
        octave = np.ceil(STEPS * np.log2(np.maximum(apart / most, LEAST)) - 1e-9)
        steps, place = np.unique(octave, return_inverse=True)
        above = most * np.exp2(steps / STEPS)
        below = np.where(above > most * LEAST * 2 ** (1 / STEPS), above * 2 ** (-1 / STEPS), 0.0)
        code = group * steps.size + place
        rows, ones = (
            np.bincount(code, part, size * steps.size).reshape(size, -1).astype(np.float64)
            for part in (None, larger)
        )
        mass, least = (np.bincount(group, part, size).astype(np.float64) for part in (w, w * low))
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = (least + np.bincount(group, apart * larger, size)) / mass
        return cls(mean, mass, least, above * (1 + 1e-12), below * (1 - 1e-12), rows, ones)

    @cached_property
    def rest(self) -> TwoValued:
        """For each group, the rows of all others."""
        parts = (self.weight, self.least, self.rows, self.larger)
        weight, least, rows, larger = (part.sum(axis=0) - part for part in parts)
        total = np.nansum(self.mean * self.weight) - np.nan_to_num(self.mean) * self.weight
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(rows.sum(axis=1) > 0, total / weight, np.nan)
        return TwoValued(mean, weight, least, self.above, self.below, rows, larger, self.support)

    def _limits_at(self, alpha: float) -> Limits:
        """Limits of the mean over the labels of the rows, their two values taken as they are."""
        low, high = np.full(self.mean.shape, self.support[0]), np.full(self.mean.shape, self.support[1])
        for g in np.flatnonzero(self.rows.sum(axis=1) > 0):
            there = self.rows[g] > 0
            n, ones = self.rows[g, there], self.larger[g, there]
            most = upper_limit(self.above[there], n, float(self.above[there] @ ones), alpha / 2)
            below = self.below[there]
            spared = upper_limit(below, n, float(below @ (n - ones)), alpha / 2)
            # rounding may not part the limits from the mean that lies between them
            low[g] = min((self.least[g] + float(below @ n) - spared) / self.weight[g], self.mean[g])
            high[g] = max((self.least[g] + most) / self.weight[g], self.mean[g])
        return np.maximum(low, self.support[0]), high


def upper_limit(apart: Floats, rows: Floats, total: float, tail: float) -> float:
    r"""Return what the mean of :math:`\sum d_i Z_i` is not above but with probability ``tail``.

    Parameters
    ----------
    apart
        The :math:`d_i`, of at least 0, shape (V,).
    rows
        How many rows have each of them, shape (V,).
    total
        The sum that was seen.
    """
    order = np.argsort(apart)[np.count_nonzero(apart <= 0) :]
    apart, rows = apart[order], rows[order]
    if not apart.size:
        return 0.0
    largest = float(apart[-1])
    # from the tilt of many rows, a deviation in all of them, to one that tells 0 rows from 1
    theta = np.geomspace(0.3 / math.sqrt(float(rows.sum())), 60.0, THETAS) / largest
    means = _means(apart, rows, total, tail, theta)
    best = int(np.argmin(means))
    near = theta[max(best - 1, 0)], theta[min(best + 1, THETAS - 1)]
    again = _means(apart, rows, total, tail, np.geomspace(*near, THETAS))
    return float(min(means[best], again.min(), float(apart @ rows)))


def _means(apart: Floats, rows: Floats, total: float, tail: float, theta: Floats) -> Floats:
    r"""Return the largest mean that each tilt leaves, (t,), from values above 0 that rise.

    With :math:`r_i` as above, :math:`-\log(1 - r_i c_i)` is :math:`s = \log \lambda` less :math:`\log(c_i / d_i)`, kept
    within [0, :math:`\theta d_i`]. So the bound is linear between knots of ``s``, and its root needs no iterations.
    The knots where rows start rise as values fall, up to :math:`\log \theta`, and those where rows end rise with the
    values from there: no knots need to be sorted.
    """
    most = theta[:, None] * apart
    c = -np.expm1(-most)
    start = np.log(c / apart)
    knots = np.hstack([start[:, ::-1], start + most])
    begun = np.cumsum(rows[::-1])
    slope = np.append(begun, begun[-1] - np.cumsum(rows))
    reached = np.zeros(knots.shape)
    np.cumsum(slope[:-1] * np.diff(knots, axis=1), axis=1, out=reached[:, 1:])
    wanted = theta * total - math.log(tail)
    last = np.arange(theta.size), np.maximum((reached <= wanted[:, None]).sum(axis=1) - 1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):  # behind the last knot nothing is refuted
        root = np.where(
            wanted < reached[:, -1], knots[last] + (wanted - reached[last]) / slope[last[1]], np.inf
        )
    probabilities = np.clip(1.0 / c - np.exp(-root - ROUNDED)[:, None] / apart, 0.0, 1.0)
    return np.asarray(probabilities @ (rows * apart))
