"""Comparisons of rates that are known within bounds, with the sampling error of the bounds.

A difference lies between ``max_ab (lo_a - hi_b)_+`` and ``max_ab (hi_a - lo_b)``, a ratio between ``min_ab lo_a /
hi_b`` and ``min_ab hi_a / lo_b``. Bounds of draws give outer intervals, from a low quantile of the lower bound to a
high quantile of the upper one. The end of a comparison that says that groups differ is taken at a level that holds for
all pairs at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from fairfix.auditing.criteria import rates_of
from fairfix.auditing.metrics import NOISE_METRICS
from fairfix.noise.bounds import Pair
from fairfix.noise.rates import Floats, Ratio
from fairfix.schema.audit import Bound
from fairfix.schema.common import number


def comparisons_of(metrics: Mapping[str, Ratio]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield (kind, name, rates) of every comparison that there is."""
    for kind, name in product(("difference", "ratio", "min", "max"), NOISE_METRICS):
        rates = rates_of(name)
        if set(rates) <= set(metrics) and (len(rates) == 1 or kind in ("difference", "ratio")):
            yield kind, name, rates


def pairs(groups: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the two groups of every ordered pair."""
    a, b = np.nonzero(~np.eye(groups, dtype=bool))
    return a, b


def ends_of(kind: str, bounds: Sequence[Pair] | Floats) -> Pair:
    """Return low and high of each pair of groups, or of each group, shape (..., P), over the rates given."""
    lows, highs = [], []
    for lo, hi in bounds:
        a, b = pairs(lo.shape[-1])
        if kind in ("min", "max"):
            lows.append(lo)
            highs.append(hi)
        elif kind == "difference":
            lows.append(lo[..., a] - hi[..., b])
            highs.append(hi[..., a] - lo[..., b])
        else:
            with np.errstate(divide="ignore", invalid="ignore"):
                lows.append(np.minimum(lo[..., a] / hi[..., b], 1.0))
                highs.append(np.minimum(hi[..., a] / lo[..., b], 1.0))
    return np.concatenate(lows, -1), np.concatenate(highs, -1)


def worst(kind: str, ends: Floats) -> Floats:
    """Return the end that counts of (..., P), NaN where none is defined."""
    if kind in ("difference", "max"):
        most = np.fmax.reduce(ends, -1)
        return np.asarray(np.maximum(most, 0.0) if kind == "difference" else most)
    least = np.fmin.reduce(ends, -1)
    return np.asarray(np.minimum(least, 1.0) if kind == "ratio" else least)


def compared(kind: str, bounds: Sequence[Pair] | Floats) -> tuple[float, float]:
    """Return where a comparison lies, given bounds of its rates, shape (rates, 2, J) as an array."""
    low, high = ends_of(kind, bounds)
    return float(worst(kind, low)), float(worst(kind, high))


def quantile(draws: Floats, level: float) -> Floats:
    """Return a quantile over the first axis, of what is defined: one more draw is below it with that probability."""
    bad = np.isnan(draws)
    if not bad.any():
        return np.asarray(np.quantile(draws, level, axis=0, method="weibull"))
    out = np.full(draws.shape[1:], np.nan)
    defined = ~bad.all(0)
    out[defined] = np.nanquantile(draws[:, defined], level, axis=0, method="weibull")
    return out


@dataclass(frozen=True, eq=False)
class RateBounds:
    """Bounds of every rate under one assumption: metric -> (low, high), shape (J,), and drawn anew, shape (R, J)."""

    rates: Mapping[str, Pair]
    draws: Mapping[str, Pair]
    alpha: float

    def of_groups(self, metric: str) -> Iterator[Bound]:
        """Yield where each group's rate lies."""
        low, high = self.rates[metric]
        drawn = self.draws.get(metric, (low[None], high[None]))
        outer_low = np.fmin(low, quantile(drawn[0], self.alpha / 2))
        outer_high = -np.fmin(-high, quantile(-drawn[1], self.alpha / 2))
        yield from map(bound_of, low, high, outer_low, outer_high)

    def of_comparison(self, kind: str, metrics: Sequence[str]) -> Bound:
        """Return where a comparison lies; of several rates the worst."""
        lows, highs = ends_of(kind, [self.rates[name] for name in metrics])
        low, high = worst(kind, lows), worst(kind, highs)
        if not all(name in self.draws for name in metrics):
            return bound_of(low, high, low, high)
        drawn = ends_of(kind, [self.draws[name] for name in metrics])
        share = self.alpha / 2 / lows.shape[-1]
        if kind in ("difference", "max"):
            outer_low = worst(kind, quantile(drawn[0], share))
            outer_high = quantile(worst(kind, drawn[1]), 1 - self.alpha / 2)
        else:
            outer_low = quantile(worst(kind, drawn[0]), self.alpha / 2)
            outer_high = worst(kind, quantile(drawn[1], 1 - share))
        return bound_of(low, high, np.fmin(low, outer_low), np.fmax(high, outer_high))


def bound_of(*ends: Floats) -> Bound:
    """Return low, high and outer ends as a bound, or that it is undefined."""
    low, high, outer_low, outer_high = (float(end) for end in ends)
    if math.isnan(low) or math.isnan(high):
        why = "undefined: no rows to compute the rate"
        return Bound(low=None, high=None, outer_low=None, outer_high=None, reason=why)
    outer = number(outer_low), number(outer_high)
    return Bound(low=number(low), high=number(high), outer_low=outer[0], outer_high=outer[1])
