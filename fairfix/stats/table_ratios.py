"""Ratios of two polynomials of a confusion table, such as Cohen's kappa and macro averages.

Both polynomials are homogeneous, of degree 2 or 3 in the shares of true positives, false negatives, false positives
and true negatives. With the base rate ``P``, sensitivity ``t`` and specificity ``v`` the shares are ``P t``,
``P (1-t)``, ``(1-P) (1-v)`` and ``(1-P) v``. The limits of a ratio are its extremes where limits of the three rates,
which hold together, let it be. On a box of rates, a polynomial is a mean of its Bernstein coefficients, so the ratio of
two is a mean of the ratios of their coefficients where those below are positive: it lies between the smallest and the
largest of them (Lorentz 1953). The box is cut into pieces, which brings these ends near to the extremes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement

import numpy as np

from fairfix.stats.estimates import Estimates, Floats, Limits, Proportions, together

PIECES = 4
"""Pieces of each rate's interval."""

AT_ONCE = 256
"""Groups whose boxes are held in memory together."""


@cache
def powers_of(degree: int) -> tuple[tuple[int, ...], ...]:
    """Return the exponents of every monomial of four shares, in the order of its coefficients."""
    return tuple(tuple(map(one.count, range(4))) for one in combinations_with_replacement(range(4), degree))


DEGREES = {len(powers_of(degree)): degree for degree in (1, 2, 3)}
"""Number of coefficients -> degree."""


def monomials(shares: Floats, degree: int) -> Floats:
    """Return every monomial of shares (n, 4): (n, m)."""
    return np.stack([np.prod(shares**exponents, axis=-1) for exponents in powers_of(degree)], axis=-1)


def enclosed(above: Sequence[float], below: Sequence[float], boxes: Floats, pieces: int = PIECES) -> Limits:
    """Return limits of a ratio on boxes of the three rates, (3, 2, k); infinite where it may be unbounded."""
    parts = [
        _on_boxes(above, below, boxes[..., i : i + AT_ONCE], pieces)
        for i in range(0, boxes.shape[-1], AT_ONCE)
    ]
    low, high = np.concatenate(parts, axis=-1) if parts else np.empty((2, 0))
    return low, high


def _on_boxes(above: Sequence[float], below: Sequence[float], boxes: Floats, pieces: int) -> Floats:
    degree = DEGREES[len(above)]
    edges = np.linspace(boxes[:, 0], boxes[:, 1], pieces + 1)  # (pieces + 1, 3, k)
    ends = np.stack([edges[:-1], edges[1:]])
    over, under = np.zeros((2, *[degree + 1] * 3, *[pieces] * 3, boxes.shape[-1]))
    for up, down, (tp, fn, fp, tn) in zip(above, below, powers_of(degree), strict=True):
        if up or down:
            axes = ((tp + fn, fp + tn), (tp, fn), (tn, fp))
            each = [_coefficients(*powers, degree, ends[:, :, i]) for i, powers in enumerate(axes)]
            term = np.einsum("apk,bqk,crk->abcpqrk", *each)
            over += up * term
            under += down * term
    with np.errstate(invalid="ignore", divide="ignore"):  # 0/0 has no part in the mean
        ratio = (over / under).reshape(-1, boxes.shape[-1])
    return np.stack([np.fmin.reduce(ratio), np.fmax.reduce(ratio)])


def _coefficients(of_rate: int, of_rest: int, degree: int, ends: Floats) -> Floats:
    """Return the Bernstein coefficients, times binomials, of ``x^i (1-x)^j`` from one end to the other (2, ...)."""
    factors = [ends] * of_rate + [1.0 - ends] * of_rest + [np.ones_like(ends)] * (degree - of_rate - of_rest)
    out = np.ones((1, *ends.shape[1:]))
    for low, high in factors:
        none = np.zeros((1, *low.shape))
        out = np.concatenate([out * low, none]) + np.concatenate([none, out * high])
    return out


def range_of(above: Sequence[float], below: Sequence[float]) -> tuple[float, float]:
    """Return limits of a ratio on all tables, to two decimals; infinite where none were found."""
    (low,), (high,) = enclosed(above, below, np.array([[[0.0], [1.0]]] * 3), 16)
    if not np.isfinite([low, high]).all():
        return -np.inf, np.inf
    return float(np.floor(100 * low + 0.5) / 100), float(np.ceil(100 * high - 0.5) / 100)


@dataclass(frozen=True, eq=False)
class TableRatios(Estimates):
    """Ratios of polynomials, between their extremes where three rates can be."""

    shares: Floats
    """(k, 4) weights of the entries."""
    rates: tuple[Proportions, Proportions, Proportions]
    """Base rate, sensitivity and specificity."""
    above: Sequence[float]
    below: Sequence[float]
    support: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        shares = np.nan_to_num(self.shares / np.maximum(self.shares.sum(axis=1, keepdims=True), 1e-300))
        over, under = (
            monomials(shares, DEGREES[len(part)]) @ np.array(part) for part in (self.above, self.below)
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            self._settle(np.where(under > 0, np.clip(over / under, *self.support), np.nan))

    def _limits_at(self, alpha: float) -> Limits:
        """Smallest and largest ratio within limits of the three rates that hold together."""
        low, high = enclosed(self.above, self.below, np.array(together(alpha, *self.rates)))
        here = np.nan_to_num(self.value)
        low, high = np.fmin(low, here), np.fmax(high, here)
        return self._open_undefined(*(np.clip(end, *self.support) for end in (low, high)))
