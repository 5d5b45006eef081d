"""Limits of the rates of true groups in which each row has a membership probability, from a sample of rows.

A row has probabilities ``z_j = P(true = j | z)`` and lies in a cell. A group's rate ``A / (A + B)`` is at most ``H / (H
+ G)`` with ``H = E min(z_j, P(A | z))`` and ``G = E (z_j - 1 + P(B | z))_+``, and the lowest follows with A and B
exchanged.

1. For *any* functions l, k of z in [0, 1], ``h = l 1_A + (1 - l) z_j`` has ``E h >= H``, and ``g = k (z_j - 1 + 1_B)``
   has ``E g <= G``. They are chosen on one part of the rows, and the means are taken over the other part: a bad choice
   makes limits wide, never false.
2. The limit is the largest t at which the upper Student limit of the mean of ``(1 - t) h - t g`` is 0 or more. The mean
   is taken with one more, imagined row at the worst end; the variance is the larger one of ``sum w^2 (x - mean)^2`` and
   of what equal weights of the effective number of rows had.
3. If the true group is independent of the cell given z, ``h = z_j 1_A`` and ``g = z_j 1_B`` have the rate itself.

Why plain means of few rows would be too narrow, and that the steps hold, is in ``docs/methods/noise.md``.

References
----------
W. Ji, L. Lei and A. Spector, *Model-agnostic covariate-assisted inference on partially identified causal effects*
(2023). E. C. Fieller (1954), Journal of the Royal Statistical Society B 16.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from fairfix.noise.rates import Floats, Ratio, quotient

HALVINGS = 40
"""Halvings of the interval in which a limit lies; its outer end is taken, so only 2^-40 is lost."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows by vector of probabilities and cell: sums of weights and of squared weights, shape (V, 4)."""

    vectors: Floats
    """Distinct vectors, shape (V, J), each of sum 1."""
    weight: Floats
    square: Floats


@dataclass(frozen=True, eq=False)
class MomentMeans:
    """Means of (h, g) for each true group, for ``E h / (E h + E g)``."""

    plain: Floats
    """Over the rows, shape (J, 2)."""
    mean: Floats
    """With the imagined row, shape (J, 2)."""
    spread: Floats
    """Covariances of ``mean``, by both ways, shape (2, J, 2, 2)."""
    freedom: float
    """Degrees of freedom."""

    @property
    def rate(self) -> Floats:
        """The rate of the means, shape (J,); NaN where there is nothing in the rows that it is a rate of."""
        top, rest = self.plain[:, 0], np.maximum(self.plain[:, 1], 0.0)
        return quotient(top, top + rest)

    def upper(self, level: float) -> Floats:
        """Return what the rates are above with a chance of at most ``level``, shape (J,), never below :attr:`rate`."""
        t = -stdtrit(self.freedom, level)
        a, b, c = self.spread[..., 0, 0], self.spread[..., 0, 1], self.spread[..., 1, 1]
        top, whole = self.mean[:, 0], self.mean.sum(-1)
        slope, bend = -2.0 * (a + b), a + 2.0 * b + c  # of (1 - t)^2 a - 2 (1 - t) t b + t^2 c

        def limit(rate: Floats) -> Floats:
            variance = (a + rate * (slope + rate * bend)).max(0)
            return np.asarray(top - rate * whole + t * np.sqrt(np.maximum(variance, 0.0)))

        low, high = self.rate, np.ones(len(self.plain))
        open_ = limit(high) >= 0.0
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            above = limit(middle) >= 0.0
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        return np.where(np.isnan(self.rate), np.nan, np.where(open_, 1.0, high))


def means(sample: Sample, h: Floats, g: Floats, ends: Floats) -> MomentMeans:
    """Return the means of h and g, each (J, V, 4), with an imagined row at (h, g) of ``ends``, shape (J, 2)."""
    weight, square = sample.weight.ravel(), sample.square.ravel()
    total, one = weight.sum(), square.sum() / weight.sum()  # one: the weight of a typical row
    whole, squares = total + one, square.sum() + one * one
    both = np.stack([h, g], 1).reshape(len(h), 2, -1)
    sums = both @ weight
    centre = (sums + one * ends) / whole
    apart, far = both - centre[..., None], ends - centre
    turned, outer = np.swapaxes(apart, 1, 2), far[:, :, None] * far[:, None]
    by_square = (apart * square) @ turned + one * one * outer
    by_weight = (apart * weight) @ turned + one * outer
    spread = np.stack([by_square / whole**2, by_weight / whole * squares / whole**2])
    return MomentMeans(sums / total, centre, spread, max(whole * whole / squares - 1.0, 1.0))


def worst_means(sample: Sample, shares: Floats, ratio: Ratio) -> MomentMeans:
    """Return the means whose rate is at least the highest that each group can have.

    ``shares`` guess the probabilities of the cells given each vector, shape (V, 4), from rows outside the sample.
    """
    in_a, in_b = np.array((ratio.a, ratio.b), dtype=np.float64)
    own, z = sample.weight.sum(1) > 0, sample.vectors.T[:, :, None]
    seen, forced = shares @ in_a < z[..., 0], shares @ in_b > 1.0 - z[..., 0]
    h = np.where(seen[..., None], in_a, z)
    g = np.where(forced[..., None], z - 1.0 + in_b, 0.0)
    highest = np.where(seen[:, own].any(1), 1.0, z[:, own, 0].max(1))
    lowest = np.where(forced, z[..., 0] - 1.0, 0.0)[:, own].min(1)
    return means(sample, h, g, np.stack([highest, lowest], -1))


def weighted_means(sample: Sample, ratio: Ratio) -> MomentMeans:
    """Return the means whose rate is that of each group, if it is independent of the cell given the vector."""
    in_a, in_b = np.array((ratio.a, ratio.b), dtype=np.float64)
    z = sample.vectors.T[:, :, None]
    highest = z[:, sample.weight.sum(1) > 0, 0].max(1)
    return means(sample, z * in_a, z * in_b, np.stack([highest, np.zeros(len(z))], -1))


def correlations(sample: Sample, ratio: Ratio) -> Floats:
    """Return the correlations of the groups' weighted rates, shape (J, J); 0 where a rate has no spread."""
    in_a, in_b = np.array((ratio.a, ratio.b), dtype=np.float64)
    z, w, square = sample.vectors, sample.weight, sample.square
    top, bottom = z.T @ (w @ in_a), z.T @ (w @ (in_a + in_b))
    rate = quotient(top, bottom, 0.0)
    moved = z.T[:, :, None] * (in_a - rate[:, None, None] * (in_a + in_b))  # J, V, 4: by a row
    flat = moved.reshape(len(rate), -1)
    together = (flat * square.ravel()) @ flat.T
    scale = np.sqrt(np.diagonal(together))
    return np.clip(quotient(together, np.outer(scale, scale), 0.0), -1.0, 1.0)
