r"""Counts with two-sided geometric noise, which hide single rows, and rates of such counts.

Each count of a table gets noise of its own, an integer with

.. math:: P(Z = z) = \frac{1 - a}{1 + a} a^{|z|}, \qquad a = e^{-\epsilon} .

A row is in one count of the table. So a table with a row more or less has any given value with at most
:math:`e^{\epsilon}` times the probability: the noisy table is :math:`\epsilon`-differentially private (Ghosh,
Roughgarden and Sundararajan, 2009). The noise is drawn by whole numbers alone (Canonne, Kamath and Steinke, 2020,
Algorithm 2), since the gaps between floating-point numbers give values away (Mironov, 2012).

A rate is a quotient of two sums of counts. :class:`NoisyProportions` takes every pair of true counts that the noise
leaves possible, and of their Clopper-Pearson limits the outermost. The lower limit rises with successes and falls with
failures, so it is that of the least successes and the most failures. With the miscoverage :math:`\alpha_1` of noise and
:math:`\alpha_2` of sampling, both hold with probability :math:`1 - \alpha_1 - \alpha_2` at least.

References
----------
A. Ghosh, T. Roughgarden and M. Sundararajan, *Universally utility-maximizing privacy mechanisms* (2009); I. Mironov,
*On significance of the least significant bits for differential privacy* (2012); C. Canonne, G. Kamath and T. Steinke,
*The discrete Gaussian for differential privacy* (2020).
"""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np

from fairfix.stats.estimates import Floats, Limits, Proportions

LEAST, MOST = Fraction(1, 1000), Fraction(10)
"""Allowed epsilon: below it, the noise is in the thousands; above it, the noise hides nobody."""

Below = Callable[[int], int]
"""Draws a uniform integer from 0 to its argument, exclusive."""

OF_NOISE = 0.2
"""Fraction of the miscoverage of a rate for the noise; quantiles depend only on its logarithm."""

LARGEST_TAIL = 1e-9
"""Bound of the rounding error in the tails of summed noise; it is added to them."""


def budget_of(text: str) -> Fraction:
    """Return epsilon from a decimal or a fraction; raise a ValueError if it is not from 0.001 to 10."""
    if not re.fullmatch(
        r"[0-9]{1,20}(/[1-9][0-9]{0,19}|\.[0-9]{1,20})?", text
    ):  # no exponent that takes all memory
        raise ValueError(f"epsilon is {text[:30]!r}, not a decimal number or a fraction")
    epsilon = Fraction(text)
    if not LEAST <= epsilon <= MOST:
        raise ValueError(f"epsilon is {float(epsilon):g}, not from {float(LEAST):g} to {float(MOST):g}")
    return epsilon


def two_sided_geometric(epsilon: Fraction, below: Below | None = None) -> int:
    """Return an integer ``z`` with a probability proportional to ``exp(-epsilon |z|)``; ``epsilon`` above 0.

    ``below`` draws; None for the random numbers of the operating system, which nobody can repeat.
    """
    below = below or secrets.randbelow
    least, most = epsilon.numerator, epsilon.denominator
    while True:
        start = below(most)
        if not _happens(start, most, below):
            continue
        rounds = 0
        while _happens(1, 1, below):
            rounds += 1
        size = (start + most * rounds) // least
        if negative := below(2):
            if size:
                return -size
        elif not negative:
            return size


def _happens(above: int, under: int, below: Below) -> bool:
    """Return true with probability ``exp(-above / under)``, for a quotient from 0 to 1."""
    tried = 1
    while below(under * tried) < above:
        tried += 1
    return tried % 2 == 1


@cache
def reach(epsilon: float, many: int, tail: float) -> int:
    """Return the least ``q`` that the absolute sum of ``many`` noises exceeds with probability at most ``tail``.

    ``epsilon``: above 0. ``many``: at least 0. ``tail``: in (0, 1). The probabilities of the sum come from its
    characteristic function on a circle that is so long that what lies beyond it is less than :data:`LARGEST_TAIL`. For
    a smaller tail, ``q`` is a bound.
    """
    if not many:
        return 0
    share = math.exp(-epsilon)
    # P(|sum| > q) <= 2 E[exp(s sum)] exp(-s q) at s = epsilon / 2
    growth = (1 - share) ** 2 / ((1 - math.exp(-epsilon / 2)) * (1 - math.exp(-1.5 * epsilon)))
    farthest = (many * math.log(growth) - math.log(min(LARGEST_TAIL, tail) / 2)) / (epsilon / 2)
    size = 1 << max(int(2 * farthest + 2).bit_length(), 3)
    angle = 2 * np.pi * np.arange(size // 2 + 1) / size
    wave = ((1 - share) ** 2 / ((1 - share) ** 2 + 2 * share * (1 - np.cos(angle)))) ** many
    probabilities = np.maximum(np.fft.irfft(wave, size)[: size // 2], 0.0)
    beyond = 2 * (probabilities[::-1].cumsum()[::-1] - probabilities) + LARGEST_TAIL
    return int(np.argmax(beyond <= tail)) if beyond[-1] <= tail else int(farthest) + 1


@dataclass(frozen=True, eq=False, kw_only=True)
class NoisyProportions(Proportions):
    """Rates of counts with two-sided geometric noise; made by :meth:`of`.

    A rate without a positive noisy count is undefined. Limits hold for the rate of the population from which the true
    counts are drawn, with noise of its own in every count.
    """

    noisy: Floats
    """(2, k) noisy sums of successes and failures, which may be negative."""
    many: Floats
    """(2, k) numbers of noisy counts in each sum."""
    epsilon: float
    """Budget of each count."""

    @classmethod
    def of(cls, success: Floats, failure: Floats, epsilon: float) -> NoisyProportions:
        """Return the rates of pairs (noisy sum, number of its counts), shape (k, 2) each."""
        noisy, many = np.moveaxis(np.stack([success, failure]), -1, 0)
        seen = np.maximum(noisy, 0.0)
        return cls(seen[0], seen.sum(axis=0), noisy=noisy, many=many, epsilon=epsilon)

    def _limits_at(self, alpha: float) -> Limits:
        """Return the outermost Clopper-Pearson limits of the counts that are possible."""
        tail = alpha * OF_NOISE / 2
        far = np.array([[reach(self.epsilon, int(many), tail) for many in own] for own in self.many])
        least, most = np.maximum(self.noisy - far, 0.0), np.maximum(self.noisy + far, 0.0)
        low, high = (
            Proportions(successes, successes + failures).sampling_limits(alpha * (1 - OF_NOISE))
            for successes, failures in ((least[0], most[1]), (most[0], least[1]))
        )
        return self._open_undefined(low[0], high[1])
