r"""Limits of means and rates that hold at any number of rows and any tail, for many slices of the same rows at once.

Rows are independent given their features, each with a probability or an expectation of its own, and the limits are of
the mean of these over a slice:

* 0/1 outcomes: Clopper-Pearson. A sum of unlike Bernoulli variables is less spread out than the binomial of the same
  mean (Hoeffding 1956, theorem 4), so the tail holds for it too, beyond one success from the mean.
* numbers in [0, 1], with weights :math:`c_i \le 1` of sum :math:`C`: Chernoff's :math:`\exp(-C\, kl(\hat p, p))`. The
  logarithm of a moment generating function is convex in :math:`c_i` and 0 at 0, so at most :math:`c_i` times that of
  weight 1, and concave in the expectation.
* the same without weights: the better of this and the empirical Bernstein bound
  :math:`\sqrt{2 V \ln(2/δ)/n} + 7 \ln(2/δ) / (3 (n-1))`, each at half of the tail.
* numbers without a range: Student's t, which holds for many rows.

References
----------
W. Hoeffding (1956), *On the distribution of the number of successes in independent trials*, Annals of Mathematical
Statistics 27. A. Maurer and M. Pontil (2009), *Empirical Bernstein bounds and sample variance penalization*, COLT.
"""

from __future__ import annotations

import math

import numpy as np

from fairfix.stats.estimates import Floats, Limits
from fairfix.stats.tails import upper_mean


def share_limits(part: Floats, total: Floats, tail: float, *, counted: bool) -> Limits:
    """Return the limits of ``part / total``, each exceeded with probability at most ``tail``; [0, 1] where total is 0.

    ``counted``: both are numbers of rows; else they are sums of weights of at most 1.
    """
    cost = -math.log(tail)
    mean = np.divide(part, total, out=np.zeros_like(total), where=total > 0)
    high = upper_mean(mean, total, cost, counted=counted)
    low = 1.0 - upper_mean(np.where(total > 0, 1.0 - mean, 1.0), total, cost, counted=counted)
    return low, high


def mean_limits(total: Floats, squares: Floats, rows: Floats, tail: float) -> Limits:
    """Return the limits of the mean of numbers in [0, 1] from their sums, each exceeded with probability ``tail``."""
    low, high = share_limits(total, rows, tail / 2, counted=False)
    cost = math.log(4.0 / tail)
    many = np.maximum(rows, 2.0)
    mean = total / many
    variance = np.maximum(squares / many - mean**2, 0.0) * many / (many - 1.0)
    reach = np.sqrt(2.0 * variance * cost / many) + 7.0 * cost / (3.0 * (many - 1.0))
    reach = np.where(rows >= 2, reach, np.inf)
    return np.maximum(low, mean - reach), np.minimum(high, mean + reach)
