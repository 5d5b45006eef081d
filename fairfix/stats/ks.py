"""Kolmogorov-Smirnov distances between the scores of groups: limits of each and of the largest one.

``low`` must fear the largest fluctuation anywhere, so its margin is Kolmogorov's. ``high`` must fear only that
at the one point where the true distance is attained, a plain difference of two proportions with variance at most
``(1/n1 + 1/n2)/4``, so its margin is a normal one. At all numbers of rows at once (:data:`ALWAYS`) both have the margin
of S. Howard and A. Ramdas (2022), *Sequential estimation of quantiles*, Bernoulli 28.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from fairfix.stats.estimates import Floats, Limits
from fairfix.stats.gaps import Contrasts, Gap, attained, bonferroni, differences, indices
from fairfix.stats.quantiles import kolmogorov_quantile, normal_quantile


def ks_margin(n1: ArrayLike, n2: ArrayLike, alpha: float) -> Floats:
    """Return how far two empirical distribution functions stray from the true ones: ``c_α sqrt(1/n1 + 1/n2)``.

    ``alpha`` is the chance that the distance, over all thresholds, is off by more; ties make it less. A size of 0 gives
    an infinite margin.
    """
    return np.asarray(kolmogorov_quantile(alpha) * np.sqrt(_inverse_sizes(n1, n2)))


def _inverse_sizes(n1: ArrayLike, n2: ArrayLike) -> Floats:
    with np.errstate(divide="ignore"):
        return np.asarray(1 / np.asarray(n1, dtype=np.float64) + 1 / np.asarray(n2, dtype=np.float64))


def ks_noise(sizes: ArrayLike) -> tuple[float, float]:
    """Return the mean and the 95% quantile of the largest distance of a group to all rows, by chance alone.

    ``sizes`` (K,) are (effective) numbers of rows. If groups are alike, ``sqrt(n_a n / (n - n_a)) sup |F_a - F|``
    follows Kolmogorov's law for continuous scores and large groups; groups are taken as independent. Ties make it
    smaller.
    """
    n = np.asarray(sizes, dtype=np.float64)
    scale = np.sqrt(np.maximum(1.0 / n - 1.0 / n.sum(), 0.0))
    if not scale.any():
        return 0.0, 0.0
    x = np.linspace(0.0, 4.0 * scale.max(), 2001)[1:]
    k = np.arange(1, 101)[:, None]
    below = np.ones_like(x)
    for s, alike in zip(*np.unique(scale[scale > 0], return_counts=True), strict=True):
        z = x / s
        series = 1.0 - 2.0 * np.sum((-1.0) ** (k - 1) * np.exp(-2.0 * k**2 * z**2), axis=0)
        below *= np.where(z < 0.2, 0.0, np.clip(series, 0.0, 1.0)) ** alike
    mean = float((1.0 - below).sum() * (x[1] - x[0]))
    return min(mean, 1.0), min(float(np.interp(0.95, below, x)), 1.0)


def ks_shortfall(n1: ArrayLike, n2: ArrayLike, alpha: float) -> Floats:
    """Return how far an estimated distance may fall short of the true one, with probability ``alpha/2``.

    The normal margin has a correction for continuity, and is never more than Hoeffding's bound, :func:`ks_margin`.
    """
    inverse = _inverse_sizes(n1, n2)
    normal = normal_quantile(alpha / 2) / 2 * np.sqrt(inverse) + inverse / 2
    return np.minimum(normal, ks_margin(n1, n2, alpha))


def _always(n1: ArrayLike, n2: ArrayLike, alpha: float) -> Floats:
    """Return by how much two empirical distribution functions ever differ by more than the true ones.

    ``alpha / 2`` is the chance that they do at some numbers of rows; each sample has half of it (Howard and Ramdas,
    corollary 2).
    """

    def margin(rows: ArrayLike) -> Floats:
        n = np.maximum(np.asarray(rows, dtype=np.float64), 1e-300)
        often = np.log(np.log(math.e * np.maximum(n, 1.0)))
        return 0.85 * np.sqrt((often + 0.8 * math.log(1612 / (alpha / 4))) / n)

    return np.asarray(margin(n1) + margin(n2))


@dataclass(frozen=True)
class Margins:
    """Distances of a limit to the estimate, each from the numbers of rows of both samples and a level."""

    low: Callable[[ArrayLike, ArrayLike, float], Floats]
    high: Callable[[ArrayLike, ArrayLike, float], Floats]


FIXED, ALWAYS = Margins(ks_margin, ks_shortfall), Margins(_always, _always)
"""Margins of one look, and of all looks at growing data at once."""


def ks_between_groups(
    distances: ArrayLike, sizes: ArrayLike, alpha: float, slack: ArrayLike = 0.0, margins: Margins = FIXED
) -> Gap:
    """Return the largest KS distance between two groups, from the distances (K, K) of all pairs, above the diagonal.

    ``sizes`` (K,) are effective; a group of size 0 is undefined. A distance may be too small by ``slack`` (certified
    bin mass), scalar or (K, K).
    """
    sizes = np.asarray(sizes, dtype=np.float64)
    empty = ~(sizes > 0)
    first, second = np.triu_indices(len(sizes), 1)
    keep = ~(empty[first] | empty[second])
    first, second = first[keep], second[keep]
    if not len(first):
        return Gap(math.nan, 0.0, 1.0, (), indices(empty))
    d = np.asarray(distances, dtype=np.float64)[first, second]
    error = np.broadcast_to(np.asarray(slack, float), (len(sizes), len(sizes)))[first, second]
    n1, n2 = sizes[first], sizes[second]
    low = float(np.max(d - margins.low(n1, n2, bonferroni(alpha, 2 * len(d)))))
    high = float(np.max(d + error + margins.high(n1, n2, alpha)))
    at = int(np.argmax(d))
    high = 1.0 if empty.any() else min(high, 1.0)
    return Gap(float(d[at]), max(low, 0.0), high, (int(first[at]), int(second[at])), indices(empty))


def ks_between_cdfs(
    cdfs: ArrayLike, sizes: ArrayLike, alpha: float, value: float | None = None, margins: Margins = FIXED
) -> Gap:
    """Return the largest KS distance between two of many groups, from binned distribution functions (K, bins).

    The pairs are never formed. At one edge, the largest distance among groups of two size classes is the largest of one
    class minus the smallest of the other, and the margin is that of the smallest sizes in the two. Classes are a
    quarter octave wide, so margins are at most 9% too wide and the work is ``K`` times the bins. Within a bin a
    group's function may be anywhere between the two edges. ``value`` is the exact largest distance, where rows have
    given it.
    """
    sizes = np.asarray(sizes, dtype=np.float64)
    defined, empty = np.flatnonzero(sizes > 0), ~(sizes > 0)
    if len(defined) < 2:
        return Gap(math.nan, 0.0, 1.0, (), indices(empty))
    upper = np.asarray(cdfs, dtype=np.float64)[defined]
    edge = int(np.argmax(upper.max(axis=0) - upper.min(axis=0)))
    exact = float(np.ptp(upper[:, edge])) if value is None else value
    low, high = _class_bounds(upper, sizes[defined], alpha, margins)
    high = 1.0 if empty.any() else min(max(high, exact), 1.0)
    return Gap(exact, min(max(low, 0.0), exact), high, attained(upper[:, edge], defined), indices(empty))


def _class_bounds(upper: Floats, sizes: Floats, alpha: float, margins: Margins) -> tuple[float, float]:
    """Largest distance minus, and plus, its margin over all pairs of size classes."""
    lower = np.concatenate([np.zeros((len(upper), 1)), upper[:, :-1]], axis=1)
    label = np.unique(np.floor(4 * np.log2(sizes)), return_inverse=True)[1]
    members = [np.flatnonzero(label == c) for c in range(int(label.max()) + 1)]
    top, bottom, floor = (
        np.array([pick(of[m], axis=0) for m in members])
        for pick, of in ((np.max, upper), (np.min, upper), (np.min, lower))
    )
    n = np.array([sizes[m].min() for m in members])
    strict = bonferroni(alpha, len(sizes) * (len(sizes) - 1))
    low, high = -math.inf, -math.inf
    for c, group in enumerate(members):
        pairs = np.arange(len(members)) != c if len(group) == 1 else np.ones(len(members), dtype=bool)
        near, far = (top[c] - bottom).max(axis=1), (top[c] - floor).max(axis=1)
        low = max(low, float((near - margins.low(n[c], n, strict))[pairs].max(initial=-math.inf)))
        high = max(high, float((far + margins.high(n[c], n, alpha))[pairs].max(initial=-math.inf)))
    return low, high


def ks_to_overall(
    distances: ArrayLike,
    sizes: ArrayLike,
    rests: ArrayLike,
    shares: ArrayLike,
    alpha: float,
    slack: ArrayLike = 0.0,
    margins: Margins = FIXED,
) -> Contrasts:
    """Return the KS distance of every group from all rows, and the largest.

    ``F_g - F_all = (1 - share)(F_g - F_rest)``, so the distance is that of the group from the rest, shrunk.
    ``distances`` are shrunk already; ``sizes`` and ``rests`` are effective numbers of rows of the group and outside it;
    ``shares`` are taken as fixed; a distance may be too small by ``slack``. All are (K,).
    """
    sizes, rests = np.asarray(sizes, dtype=np.float64), np.asarray(rests, dtype=np.float64)
    away = np.maximum(1 - np.asarray(shares, dtype=np.float64), 0.0)
    value = np.where(sizes > 0, np.asarray(distances, dtype=np.float64), np.nan)
    alone, error = (away <= 0) | ~(rests > 0), np.asarray(slack, dtype=np.float64)

    def limits(level: float) -> Limits:
        with np.errstate(invalid="ignore"):
            low = value - away * margins.low(sizes, rests, level)
            high = value + error + away * margins.high(sizes, rests, level)
        low, high = np.maximum(low, 0.0), np.minimum(high, 1.0)
        return np.where(alone, value, low), np.where(alone, value, high)

    bound = np.broadcast_to(error, value.shape)
    return replace(differences(value, limits, alpha, 1.0, least=0.0), bound=bound)
