"""Gaps: how far the numbers of groups lie apart, with limits of every comparison and of the largest one.

With ``d = p_i - p_j`` and limits ``l, u`` of each group (MOVER, Newcombe's hybrid, :meth:`Estimates.minus`)::

    low_ij  = d - sqrt((p_i - l_i)² + (u_j - p_j)²)          high_ij = d + sqrt((u_i - p_i)² + (p_j - l_j)²)

Ratios have these limits on the log scale; where a rate is 0 they fall back on the rectangle ``u_i / l_j``. For the
largest of ``m`` directed comparisons, ``Δ = max δ_c`` (``m = K(K-1)`` for all ordered pairs)::

    low = max_c low_c       each at α / (2(m-1)): wrong only if some low_c > δ_c
    high = max_c high_c     at α / 2: wrong only if the high_c of the comparison that truly attains Δ is

If one group is undefined, the maximum keeps its lower limit, and its upper limit becomes the worst possible.
``docs/methods/intervals.md`` has the reasons.

References
----------
Newcombe (1998), Statistics in Medicine 17. Zou and Donner (2008), Statistics in Medicine 27 (MOVER).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairfix.stats.estimates import Estimates, Floats, Limits, frozen, sidak
from fairfix.stats.mover import logarithm


def bonferroni(alpha: float, directed: int) -> float:
    """Return the two-sided level behind ``low``: ``directed - 1`` one-sided chances of ``alpha/2`` in all."""
    return alpha / max(directed - 1, 1)


@dataclass(frozen=True)
class Gap:
    """One number that compares groups, with the interval that holds it with probability ``1 - alpha``."""

    value: float
    """The estimate over the defined groups; NaN when fewer than two are defined (one, for :func:`worst`), or when a
    ratio has nothing but zero rates."""
    low: float
    high: float
    """The interval. With an undefined group the unfavourable end is the worst possible, so that a limit can be shown to
    be broken but never to be kept."""
    groups: tuple[int, ...]
    """Indices of the groups that attain the value; empty where the value is NaN.

    Of two groups, the one with the larger number comes first. A comparison with a reference has the group and the
    reference; one with all rows has the group alone. Among ties, the lowest indices.
    """
    undefined: tuple[int, ...]
    """Indices of the groups without a value."""
    bound: float = 0.0
    """Certified numerical error of the value: 0 where the groups' numbers are exact."""


@dataclass(frozen=True, eq=False)
class Contrasts:
    """Every group against one counterpart."""

    value: Floats
    low: Floats
    high: Floats
    """(k,) arrays: signed differences (or ratios) with limits that hold for all groups at once."""
    gap: Gap
    """The largest absolute difference (or the ratio furthest from 1, as a number of at most 1). Its upper end may be
    tighter than the largest of ``high``: the largest of several needs no multiplicity there."""
    bound: ArrayLike = 0.0
    """(k,) certified numerical error of ``value``."""


def _error(value: float, least: float, most: float) -> float:
    """Return how far ``value`` may be from a number that is known to lie between ``least`` and ``most``."""
    return float(max(value - least, most - value, 0.0))


def indices(mask: NDArray[np.bool_]) -> tuple[int, ...]:
    """Return where a mask is true."""
    return tuple(int(i) for i in np.flatnonzero(mask))


def _width(estimates: Estimates) -> float:
    return estimates.support[1] - estimates.support[0]


def _defined(estimates: Estimates) -> tuple[NDArray[np.intp], tuple[int, ...]]:
    """Return which groups have a value, and which have none."""
    missing = np.isnan(estimates.value)
    return np.flatnonzero(~missing), indices(missing)


# ---------------------------------------------------------------------- all pairs of groups


def attained(value: Floats, defined: NDArray[np.intp]) -> tuple[int, ...]:
    """Return the groups with the largest and the smallest value; the first two where all are equal."""
    top, bottom = int(np.argmax(value)), int(np.argmin(value))
    if top == bottom:
        top, bottom = 0, 1
    return int(defined[top]), int(defined[bottom])


def difference_between_groups(estimates: Estimates, alpha: float) -> Gap:
    """Return the largest difference between two groups, ``max p - min p``, at miscoverage ``alpha``.

    ``estimates`` are of independent samples. ``0 <= low <= value <= high <= width of the support``; ``groups`` are the
    largest and the smallest.
    """
    defined, undefined = _defined(estimates)
    width = _width(estimates)
    if len(defined) < 2:
        return Gap(math.nan, 0.0, width, (), undefined)
    p, slack = estimates.value[defined], estimates.slack[defined]
    low = estimates.furthest(defined, bonferroni(alpha, len(p) * (len(p) - 1)), -1)
    high = estimates.furthest(defined, alpha, 1)
    value = float(p.max() - p.min())
    high = width if undefined else min(high, width)
    bound = _error(value, (p - slack).max() - (p + slack).min(), (p + slack).max() - (p - slack).min())
    return Gap(value, max(low, 0.0), high, attained(p, defined), undefined, bound)


def _take(limits: Limits, where: NDArray[np.intp]) -> Limits:
    return limits[0][where], limits[1][where]


def ratio_between_groups(estimates: Estimates, alpha: float) -> Gap:
    """Return the smallest ratio of two groups, ``min p / max p``; no number may be negative.

    On the log scale this is a largest difference, and is treated as one. A rate of 0 gives the ratio 0 with ``high``
    the rectangle ``u_i / l_j``; all rates 0 leave it undefined. ``0 <= low <= value <= high <= 1``; ``groups`` are the
    largest and the smallest.
    """
    assert estimates.support[0] >= 0
    defined, undefined = _defined(estimates)
    p = estimates.value[defined]
    if len(p) < 2 or not p.max() > 0:
        return Gap(math.nan, 0.0, 1.0, (), undefined)
    low = 0.0 if undefined else math.exp(-estimates.furthest(defined, alpha, 1, logs=True))
    high = math.exp(
        -max(estimates.furthest(defined, bonferroni(alpha, len(p) * (len(p) - 1)), -1, logs=True), 0.0)
    )
    value, slack = float(p.min() / p.max()), estimates.slack[defined]
    bound = 0.0
    if slack.any():
        least, most = np.maximum(p - slack, 0.0), p + slack
        far = 1.0 if not least.max() > 0 else min(float(most.min() / least.max()), 1.0)
        bound = _error(value, float(least.min() / most.max()), far)
    return Gap(value, low, min(high, 1.0), attained(p, defined), undefined, bound)


# ---------------------------------------------------------------------- a reference group, or everybody


def differences(
    value: Floats,
    limits: Callable[[float], Limits],
    alpha: float,
    width: float,
    reference: int | None = None,
    least: float | None = None,
) -> Contrasts:
    """Return the differences ``value`` with their limits at any level, and the largest absolute one.

    An undefined one lies between ``least`` (if None, minus the width) and ``width``.
    """
    missing = np.isnan(value)
    where = np.flatnonzero(~missing & (np.arange(len(value)) != (-1 if reference is None else reference)))
    low, high = limits(alpha / max(where.size, 1))
    low = np.where(missing, -width if least is None else least, low)
    contrasts = frozen(value), frozen(low), frozen(np.where(missing, width, high))
    if not where.size or where.size + (reference is not None) < 2:
        return Contrasts(*contrasts, Gap(math.nan, 0.0, width, (), indices(missing)))
    low, high = _take(limits(bonferroni(alpha, 2 * len(where))), where)
    nearest = max(float(low.max()), float(-high.min()), 0.0)
    low, high = _take(limits(alpha), where)
    furthest = width if missing.any() else min(max(float(high.max()), float(-low.min())), width)
    group = int(where[np.argmax(np.abs(value[where]))])
    groups = (group,) if reference is None else (group, reference)
    gap = Gap(float(abs(value[group])), nearest, furthest, groups, indices(missing))
    return Contrasts(*contrasts, gap)


def difference_to_reference(estimates: Estimates, reference: int, alpha: float) -> Contrasts:
    """Return every group minus the group of index ``reference``, and the largest absolute difference.

    ``alpha`` is the miscoverage of all per-group limits together, and of the gap; the reference's own entry is 0.
    """
    p, slack, width = estimates.value, estimates.slack, _width(estimates)
    error = slack + slack[reference]

    def limits(level: float) -> Limits:
        low, high = estimates.minus(estimates, level, reference)
        low, high = np.maximum(low - error, -width), np.minimum(high + error, width)
        low[reference] = high[reference] = 0.0
        return low, high

    contrasts = differences(p - p[reference], limits, alpha, width, reference)
    error[reference] = 0.0
    away = np.abs(contrasts.value)
    ends = (np.nanmax(away + sign * error, initial=0.0) for sign in (-1, 1))
    return _with_bound(contrasts, error, *ends)


def _with_bound(contrasts: Contrasts, error: Floats, least: float, most: float) -> Contrasts:
    """Return a comparison of groups whose values are within ``error``, and whose gap is between two numbers."""
    gap = contrasts.gap
    bound = 0.0 if math.isnan(gap.value) or not error.any() else _error(gap.value, least, most)
    return replace(contrasts, gap=replace(gap, bound=bound), bound=frozen(error))


def difference_to_overall(estimates: Estimates, rest: Estimates, share: ArrayLike, alpha: float) -> Contrasts:
    """Return every group minus the overall number, and the largest absolute difference.

    ``share`` (k,) is the group's part of the denominator, taken as fixed, and ``rest`` the number of all other rows.
    Then ``p_g - p_all = (1 - share)(p_g - p_rest)``, a difference of two independent samples. Only for rates and
    means: the overall area under a curve is not a mixture of the groups' areas.
    """
    return _to_rest(estimates, rest, 1 - np.asarray(share, dtype=np.float64), alpha)


def covariance_to_overall(estimates: Estimates, rest: Estimates, share: ArrayLike, alpha: float) -> Contrasts:
    """Return the covariance with membership of every group, and the largest absolute one.

    ``cov(x, 1_g) = share (p_g - p_all) = share (1 - share)(p_g - p_rest)`` for a number ``p`` that is a mean of ``x``.
    """
    part = np.asarray(share, dtype=np.float64)
    return _to_rest(estimates, rest, part * (1 - part), alpha)


def _to_rest(estimates: Estimates, rest: Estimates, away: Floats, alpha: float) -> Contrasts:
    """Return ``away`` times the difference of every group to all other rows."""
    p, q = estimates.value, rest.value
    error, width = estimates.slack + rest.slack, _width(estimates)
    alone = (away <= 0) & ~np.isnan(p)  # the group is everybody

    def limits(level: float) -> Limits:
        low, high = estimates.minus(rest, level)
        with np.errstate(invalid="ignore"):  # 0 times an open end, where all rows are of one group
            low, high = np.maximum(away * (low - error), -width), np.minimum(away * (high + error), width)
        return np.where(alone, 0.0, low), np.where(alone, 0.0, high)

    return differences(np.where(alone, 0.0, away * (p - q)), limits, alpha, width)


def _exponential(logs: Contrasts) -> Contrasts:
    """Ratios from their logarithms; the largest absolute logarithm is the ratio furthest from 1."""
    gap = logs.gap
    furthest = Gap(math.exp(-gap.value), math.exp(-gap.high), math.exp(-gap.low), gap.groups, gap.undefined)
    with np.errstate(over="ignore"):
        value, low, high = (frozen(np.exp(v)) for v in (logs.value, logs.low, logs.high))
    return Contrasts(value, low, high, furthest)


def _log_ratio(p: Floats, q: Floats) -> Floats:
    with np.errstate(invalid="ignore"):  # 0/0 is undefined
        return np.asarray(logarithm(p) - logarithm(q))


def ratio_to_reference(estimates: Estimates, reference: int, alpha: float) -> Contrasts:
    """Return every group divided by the reference group, and the ratio furthest from 1; no number may be negative.

    A positive rate over a reference of 0 is infinite; ``0/0`` is undefined. The gap is ``min over groups of min(r,
    1/r)``.
    """
    assert estimates.support[0] >= 0
    p = estimates.value

    def limits(level: float) -> Limits:
        low, high = estimates.minus(estimates, level, reference, logs=True)
        low[reference] = high[reference] = 0.0
        return low, high

    value = _log_ratio(p, p[reference])
    if not np.isnan(p[reference]):
        value[reference] = 0.0
    ratios, slack = _exponential(differences(value, limits, alpha, math.inf, reference)), estimates.slack
    if not slack.any():
        return ratios
    counted = np.arange(len(p)) != reference
    least = np.maximum(p - slack, 0.0) / (p[reference] + slack[reference])
    below = max(float(p[reference] - slack[reference]), 0.0)
    most = (p + slack) / below if below > 0 else np.where(np.isnan(p), np.nan, np.inf)
    error = np.where(counted, np.maximum(ratios.value - least, most - ratios.value), 0.0)
    near = np.where((least <= 1) & (most >= 1), 1.0, np.maximum(_below_one(least), _below_one(most)))
    far = np.minimum(_below_one(least), _below_one(most))
    return _with_bound(ratios, error, *(float(np.nanmin(v[counted], initial=1.0)) for v in (far, near)))


def _below_one(ratio: Floats) -> Floats:
    """``min(r, 1/r)``."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.minimum(ratio, 1 / ratio))


def ratio_to_overall(estimates: Estimates, rest: Estimates, share: ArrayLike, alpha: float) -> Contrasts:
    """Return every group divided by the overall number, and the ratio furthest from 1; no number may be negative.

    ``p_g / p_all = 1 / (share + (1 - share) p_rest / p_g)`` rises with ``p_g / p_rest``, a ratio of two independent
    samples whose limits it therefore inherits.
    """
    assert estimates.support[0] >= 0
    p, q, share = estimates.value, rest.value, np.asarray(share, dtype=np.float64)
    log_share, log_away = logarithm(share), logarithm(np.maximum(1 - share, 0.0))
    alone = (share >= 1) & (p > 0)

    def of_everybody(log_ratio: Floats) -> Floats:
        with np.errstate(invalid="ignore"):
            return np.where(alone, 0.0, -np.logaddexp(log_share, log_away - log_ratio))

    def limits(level: float) -> Limits:
        low, high = estimates.minus(rest, level, logs=True)
        return of_everybody(low), of_everybody(high)

    return _exponential(differences(of_everybody(_log_ratio(p, q)), limits, alpha, math.inf))


# ---------------------------------------------------------------------- the worst group, and the worst of several gaps


def worst(estimates: Estimates, alpha: float, *, smallest: bool) -> Gap:
    """Return the smallest (or largest) number over groups.

    For the smallest, ``low`` is the least lower limit, for which no multiplicity is needed; ``high`` is the least upper
    limit, which must hold for all groups (Šidák).
    """
    defined, undefined = _defined(estimates)
    if not len(defined):
        return Gap(math.nan, *estimates.support, (), undefined)
    p, slack = estimates.value[defined], estimates.slack[defined]
    loose = _take(estimates.limits(alpha), defined)
    strict = _take(estimates.limits(2 * sidak(alpha / 2, len(p))), defined)
    pick, at = (np.min, np.argmin(p)) if smallest else (np.max, np.argmax(p))
    low, high = (loose[0], strict[1]) if smallest else (strict[0], loose[1])
    ends = [float(pick(low)), float(pick(high))]
    if undefined:
        ends[0 if smallest else 1] = estimates.support[0 if smallest else 1]
    bound = _error(pick(p), pick(p - slack), pick(p + slack))
    return Gap(float(p[at]), ends[0], ends[1], (int(defined[at]),), undefined, bound)


def combine(*gaps: Gap, smallest: bool = False) -> Gap:
    """Return the largest (or smallest) of several gaps; each of ``n`` at ``alpha / n`` gives miscoverage ``alpha``."""
    undefined = tuple(sorted({group for gap in gaps for group in gap.undefined}))
    pick = min if smallest else max
    low, high = pick(gap.low for gap in gaps), pick(gap.high for gap in gaps)
    nothing = Gap(math.nan, low, high, (), undefined)
    defined = [gap for gap in gaps if not math.isnan(gap.value)]
    top = pick(defined, key=lambda gap: gap.value, default=nothing)
    return replace(nothing, value=top.value, groups=top.groups)
