r"""Confidence sequences: limits of rates and means that hold at every number of rows at once.

A fixed-sample interval at 95% is wrong in one look of twenty. Here the probability that the limits are *ever* wrong is
at most the stated one, for any number of looks. The limits follow from a wealth :math:`W_n(p)`. It starts at 1 and is
never negative. If ``p`` is the expectation of a row, the wealth does not grow on average. So it exceeds
:math:`2/α` at some ``n`` with probability at most :math:`α/2` (Ville 1939), and the lower limit is the largest ``p`` at
which it does. The upper limit is that of ``1 - x``. The wealth is a mixture, :math:`\sum_k w_k W_n^{(k)}(p)`, over bets
that suit 10 rows to a billion:

* rows in [0, 1], if only their sum ``s`` is known: :math:`\exp(θ s) / (1 - p + p e^θ)^n`. For 0/1 rows this is the
  likelihood ratio of the binomial with log-odds raised by :math:`θ`; for others it is at most fair, since
  :math:`e^{θx}` is convex. If the expectation changes from row to row, the limits cover its mean so far.
* rows in [0, 1] with sums ``s`` and squares ``q``: :math:`\exp(λ \sum ξ_i - ψ(λ) \sum ξ_i^2)`, with
  :math:`ξ = x/p - 1 \ge -1` and :math:`ψ(λ) = -\log(1 - λ) - λ`. It is at most :math:`\prod (1 + λ ξ_i)`, a fair bet
  (Fan, Grama and Liu 2015), which decreases with ``p``. So if it refutes a ``p``, it refutes all smaller ones.

Both need only sums, so counts of batches can be added.

Two independent samples have the product of their wealths. The limits of differences and ratios are its projection: with
``b`` of the evidence against one number, ``log(2/α) - b`` is left for the other. ``b`` runs over cells of width
:data:`STEP`, and each cell takes the outer end of both.

References
----------
J. Ville (1939), *Étude critique de la notion de collectif*. H. Robbins (1970), Annals of Mathematical Statistics 41.
X. Fan, I. Grama and Q. Liu (2015), Electronic Journal of Probability 20. S. Howard, A. Ramdas, J. McAuliffe and
J. Sekhon (2021), Annals of Statistics 49. I. Waudby-Smith and A. Ramdas (2024), JRSS B 86.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairfix.stats.estimates import Estimates, Floats, Limits, Means, Proportions, Scaled

IDLE = 0.05
"""Fraction of the wealth that is never bet, which bounds the effect of one number of a pair on the other."""

TAIL = 0.1
"""Fraction that is bet for more rows than the even bets suit; each bet is half of the one before."""

STEP = 0.125
"""Width of the cells of evidence, in log wealth; this one widens limits by at most 2%."""

HALVINGS, NEWTONS = 14, 6
"""Bisections and Newton's steps of a limit: they leave less than 1e-4 of its distance to the mean, on the safe side."""

CHUNK = 256
"""Number of groups per step, which keeps tables below 10 MB."""


def _bets(largest: float, smallest: float, factor: float) -> tuple[Floats, Floats]:
    """Return bets and the logarithm of their weights: even ones a factor apart, then smaller ones in larger steps."""
    even = largest * factor ** -np.arange(math.ceil(math.log(largest / smallest, factor)) + 1.0)
    falling = np.arange(1.0, 9.0)
    weights = np.concatenate([np.full(even.size, (1 - IDLE - TAIL) / even.size), TAIL * 0.5**falling])
    return np.concatenate([even, even[-1] * factor ** (-3 * falling)]), np.log(weights)


SHIFTS = _bets(4.0, 0.004, 1.6)
"""Shifts of the log-odds: 4 suits a handful of successes, 0.004 a million rows, and the smallest 1e11."""

STAKES = _bets(0.9, 1e-3, 1.8)
"""Stakes on deviations from a mean, in units of it."""


@dataclass(frozen=True, eq=False)
class Sequence(Estimates):
    """Means of rows on a bounded scale, with limits that hold at every number of rows."""

    rows: Floats
    """(k,) numbers of rows; 0 is an undefined mean."""
    total: Floats
    """(k,) sums of the rows, each moved to [0, 1]."""
    squares: Floats | None = None
    """(k,) sums of their squares; None where they are not needed, as of 0/1 rows."""
    support: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        rows = np.asarray(self.rows, dtype=np.float64)
        total = np.clip(np.nan_to_num(self.total), 0.0, rows)
        mean = np.divide(total, rows, out=np.full(rows.shape, np.nan), where=rows > 0)
        squares = (
            {}
            if self.squares is None
            else {"squares": np.clip(np.nan_to_num(self.squares), total * mean, total)}
        )
        self._settle(rows=rows, total=total, value=self._scaled(mean), slack=np.zeros(rows.shape), **squares)

    @classmethod
    def of(cls, estimates: Estimates) -> Sequence | None:
        """Return the sequence of unweighted rates or means; None if there are no such limits."""
        if isinstance(estimates, Scaled):
            rates = estimates.rates
            return cls(rates.totals, rates.successes, support=estimates.support)
        if isinstance(estimates, Proportions):
            return cls(estimates.totals, estimates.successes)
        if isinstance(estimates, Means) and all(map(math.isfinite, estimates.support)):
            low, high = estimates.support
            mean = (estimates.mean - low) / (high - low)
            square = estimates.variance / (high - low) ** 2 + mean**2
            return cls(estimates.sizes, estimates.sizes * mean, estimates.sizes * square, estimates.support)
        return None

    def _scaled(self, unit: Floats) -> Floats:
        low, high = self.support
        return low + (high - low) * unit

    # -------------------------------------------------------------- one number

    def _limits_at(self, alpha: float) -> Limits:
        """Limits of every number alone."""
        evidence = np.array([math.log(2.0 / alpha)])
        low, high = self._lower(evidence, 0)[:, 0], 1.0 - self._lower(evidence, 1)[:, 0]
        return self._open_undefined(self._scaled(low), self._scaled(high))

    def _lower(self, evidence: Floats, side: int) -> Floats:
        """Return the largest means that given evidence refutes, shape (k, b); of ``1 - x`` if ``side`` is 1."""
        parts = [np.arange(start, min(start + CHUNK, len(self))) for start in range(0, len(self), CHUNK)]
        return np.concatenate(
            [np.zeros((0, evidence.size)), *(self._of_part(one, evidence, side) for one in parts)]
        )

    def _of_part(self, part: NDArray[np.intp], evidence: Floats, side: int) -> Floats:
        n, s = self.rows[part, None], self.total[part, None]
        q = None if self.squares is None else self.squares[part, None]
        if side:
            s, q = n - s, None if q is None else np.maximum(n - 2 * s + q, 0.0)
        start = _start_of_sums(n, s, evidence) if q is None else _start_of_squares(n, s, q, evidence)
        low = np.where(n > 0, np.clip(np.nan_to_num(start), 0.0, 1.0), 0.0)
        if q is None:
            return _raised(n, s, evidence, low)
        low = _sorted(low)
        # at the mean itself no bet has won
        high = np.where(evidence > 0, s / np.where(n > 0, n, 1.0), 1.0)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            refuted = _of_squares(n, s, q, middle) >= evidence
            low, high = np.where(refuted, middle, low), np.where(refuted, high, middle)
        return low

    # -------------------------------------------------------------- two numbers

    def _cells(self, alpha: float) -> int:
        """Return in how many cells of evidence a pair shares what refutes it, rounded up."""
        return math.ceil((math.log(2.0 / alpha) - 2 * math.log(IDLE)) / STEP)

    def _ends(self, cells: int) -> tuple[Floats, Floats]:
        """Return lower and upper limits at evidence ``log(IDLE) + STEP c`` for ``c = 1 .. cells``, (k, cells) each."""
        held: tuple[Floats, Floats] | None = self.__dict__.get("_table")
        if held is None or held[0].shape[1] < cells:
            evidence = math.log(IDLE) + STEP * np.arange(1.0, cells + 17.0)
            held = self._scaled(self._lower(evidence, 0)), self._scaled(1.0 - self._lower(evidence, 1))
            self.__dict__["_table"] = held
        return held[0][:, :cells], held[1][:, :cells]

    def minus(
        self, other: Estimates, alpha: float, at: int | slice = slice(None), *, logs: bool = False
    ) -> Limits:
        """Limits of the differences to another sample, by the product of the wealths."""
        assert isinstance(other, Sequence)
        (low, high), (other_low, other_high) = (
            _logarithms(one._ends(self._cells(alpha)), logs=logs) for one in (self, other)
        )
        with np.errstate(invalid="ignore"):  # -inf - -inf if both ends are open
            least = (low - other_high[at][..., ::-1]).min(axis=-1)
            most = (high - other_low[at][..., ::-1]).max(axis=-1)
        unknown = np.isnan(self.value) | np.isnan(other.value[at])
        return np.where(unknown | np.isnan(least), -np.inf, least), np.where(
            unknown | np.isnan(most), np.inf, most
        )

    def furthest(self, defined: NDArray[np.intp], alpha: float, sign: int, *, logs: bool = False) -> float:
        """Return the largest lower (or, with a ``sign`` of 1, upper) limit of a difference of two groups."""
        low, high = _logarithms(self._ends(self._cells(alpha)), logs=logs)
        first, second = (high, low) if sign > 0 else (low, high)
        first, second = first[defined], second[defined, ::-1]
        best = -math.inf
        for i in range(len(defined)):
            with np.errstate(invalid="ignore"):
                apart = first[i] - np.delete(second, i, axis=0)
            ends = apart.max(axis=1) if sign > 0 else apart.min(axis=1)
            best = max(
                best, float(np.nan_to_num(ends, nan=sign * math.inf, posinf=math.inf, neginf=-math.inf).max())
            )
        return best


def _logarithms(ends: Limits, *, logs: bool) -> Limits:
    """Return the ends, or their logarithms."""
    if not logs:
        return ends
    with np.errstate(divide="ignore"):
        return np.log(ends[0]), np.log(ends[1])


def _raised(n: Floats, s: Floats, evidence: Floats, low: Floats) -> Floats:
    """Return the largest means that given evidence refutes, from smaller ones, (k, b).

    The logarithm of the wealth falls with the mean and is convex, so that no step of Newton's goes too far.
    """
    shift, weight = SHIFTS
    won, odds = weight + shift * s[..., None], np.expm1(shift)
    for _ in range(NEWTONS):
        low = _sorted(low)
        inside = 1.0 + low[..., None] * odds
        of_bets = won - n[..., None] * np.log(inside)
        most = np.maximum(of_bets.max(axis=-1), math.log(IDLE))
        parts = np.exp(of_bets - most[..., None])
        total = parts.sum(axis=-1) + np.exp(math.log(IDLE) - most)
        falls = n * ((parts / inside) @ odds) / total
        step = (most + np.log(total) - evidence) / np.where(falls > 0, falls, np.inf)
        low = np.minimum(low + np.maximum(step, 0.0), 1.0)
    return low


def _sorted(low: Floats) -> Floats:
    """Return means that evidence refutes, (k, b): what more of it refutes, less does."""
    return np.maximum.accumulate(low[:, ::-1], axis=1)[:, ::-1]


def _start_of_sums(n: Floats, s: Floats, evidence: Floats) -> Floats:
    """Return the largest mean that a single bet refutes, (k, b)."""
    shift, weight = SHIFTS
    each = (weight + shift * s[..., None] - evidence[:, None]) / np.where(n > 0, n, 1.0)[..., None]
    return np.asarray((np.expm1(np.minimum(each, shift)) / np.expm1(shift)).max(axis=-1))


def _of_squares(n: Floats, s: Floats, q: Floats, p: Floats) -> Floats:
    """Return the logarithm of the wealth against means (k, b)."""
    stake, weight = STAKES
    cost = -np.log1p(-stake) - stake
    n, s, q = n[..., None], s[..., None], q[..., None]
    v = 1.0 / np.maximum(p, 1e-12)[..., None]
    of_bets = weight + stake * (s * v - n) - cost * (q * v**2 - 2 * s * v + n)
    most = np.maximum(of_bets.max(axis=-1), math.log(IDLE))
    total = np.exp(of_bets - most[..., None]).sum(axis=-1) + np.exp(math.log(IDLE) - most)
    return np.asarray(most + np.log(total))


def _start_of_squares(n: Floats, s: Floats, q: Floats, evidence: Floats) -> Floats:
    """Return the largest mean that a single bet refutes, (k, b): a root of a square, of the reciprocal."""
    stake, weight = STAKES
    cost = -np.log1p(-stake) - stake
    n, s, q = n[..., None], s[..., None], q[..., None]
    a, b, c = cost * q, (stake + 2 * cost) * s, (stake + cost) * n + evidence[:, None] - weight
    root = b**2 - 4 * a * c
    there = (root >= 0) & (c > 0)
    return np.asarray(
        np.where(there, (b + np.sqrt(np.maximum(root, 0.0))) / (2 * np.where(there, c, 1.0)), 0.0).max(-1)
    )
