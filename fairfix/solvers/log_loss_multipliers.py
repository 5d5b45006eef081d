r"""Prices of the fair logistic game at given scores: the inner maximum, exactly.

Scores ``s`` of a cell of mass ``p`` are capped at ``p / l`` by a price ``l > 0``, or lifted by a negative one, which
caps ``1 - s``. Less ``|l - l_0|^2 / (2 tau)``, the best price for the rate ``r`` of the event solves ``mean(min(s,
p / l)) - l / tau = r - l_0 / tau + slack / 2``: with the scores sorted, a search for the place of the cap and a
quadratic equation. The rate is the root of the sum of the prices of an event.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.optimize import brentq

from fairfix.solvers.arrays import Floats, Ints


class _Capped:
    """Sorted scores of a cell, whose cap is sought: ``mean(min(s, p / l)) - l / tau`` is a given number."""

    def __init__(self, s: Floats, w: Floats, tau: float) -> None:
        self.p, self.tau = float(w.sum()), tau
        self.below = np.concatenate([[0.0], np.cumsum(w * s)]) / self.p
        self.above = np.concatenate([np.cumsum(w[::-1])[::-1], [0.0]]) / self.p
        self.mean = float(self.below[-1])
        with np.errstate(divide="ignore"):
            self.at = self.below[:-1] + s * self.above[:-1] - self.p / s / tau
        np.maximum.accumulate(self.at, out=self.at)

    def price(self, wanted: float) -> float:
        """Return ``l > 0``; the number is below ``mean``."""
        j = int(np.searchsorted(self.at, wanted))
        a, b = self.below[j] - wanted, self.above[j] * self.p
        root = math.sqrt(a * a + 4.0 * b / self.tau)
        if a >= 0:
            return float(0.5 * self.tau * (a + root))
        return float(2.0 * b / (root - a)) if b > 0 else 0.0


def proximal_prices(
    cells: Sequence[tuple[Floats, Floats]], events: Ints, slack: float, before: Floats, tau: float
) -> tuple[Floats, Floats]:
    """Return the best prices, shape (K,), and rates of events, shape (E,), near to prices.

    ``cells``: scores and weights of each cell, shape (n_k,) each. ``events``: event of each cell, counted from 0,
    shape (K,). ``slack``: largest difference between two rates of an event. ``before``, ``tau``: prices ``l_0`` to
    stay near to, shape (K,), and how far from them is cheap.
    """
    half, parts = 0.5 * slack, []
    for s, w in cells:
        order = np.argsort(s)
        score, mass = s[order], w[order]
        parts.append((_Capped(score, mass, tau), _Capped(1.0 - score[::-1], mass[::-1], tau)))

    def of(k: int, r: float) -> float:
        low, high = parts[k]
        wanted = r - before[k] / tau
        if low.mean - half > wanted:
            return low.price(wanted + half)
        if low.mean + half < wanted:
            return -high.price(1.0 - wanted + half)
        return 0.0

    prices, rate = np.zeros_like(before), np.zeros(int(events.max(initial=-1)) + 1)
    for e in range(rate.size):
        own = np.flatnonzero(events == e)
        ends = [parts[k][0].mean + before[k] / tau for k in own]
        low, high = min(ends) - half, max(ends) + half

        def total(r: float, own: Ints = own) -> float:
            return sum(of(int(k), r) for k in own)

        rate[e] = low if low == high else brentq(total, low, high, xtol=1e-16, rtol=1e-15)
        prices[own] = [of(int(k), rate[e]) for k in own]
        moved = np.flatnonzero(prices[own])
        if moved.size:  # the sum, up to rounding 0
            prices[own[moved]] -= prices[own].sum() / moved.size
    return prices, rate
