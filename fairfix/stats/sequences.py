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

from fairfix.stats.estimates import Estimates, Floats, Limits, Means, Proportions, Scaled, frozen

IDLE = 0.05
"""Fraction of the wealth that is never bet, which bounds the effect of one number of a pair on the other."""

TAIL = 0.1
"""Fraction that is bet for more rows than the even bets suit; each bet is half of the one before."""

STEP = 0.125
"""Width of the cells of evidence, in log wealth; this one widens limits by at most 2%."""

NEAR = 1e-6
"""Distance in log wealth from which the next step of Newton's, which squares it, ends at rounding."""

ROUNDING = 1e-15
"""Rounding of the log wealth per row."""

MOST_STEPS = 60
"""Steps of a limit at most: as many halvings reach rounding where no step of Newton's helps."""

APART = 8
"""Cells from one limit found from scratch to the next; those between start at the cubic through these two."""

PARTS = 1 / (1 + 1.2 ** np.arange(38.0, -26.0, -1.0))
"""Fractions of a mean at which bets on squares are tried: steps of 1% near it, and down to a thousandth."""

SAMPLES, CHUNK = 1024, 8192
"""Number of samples and of limits per step, which keep tables below 10 MB and in the cache of a processor."""


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
class ConfidenceSequences(Estimates):
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
        self._settle(self._scaled(mean), rows=rows, total=total)
        if self.squares is not None:
            squares = np.clip(np.nan_to_num(self.squares), total * mean, total)
            object.__setattr__(self, "squares", frozen(squares))

    @classmethod
    def of(cls, estimates: Estimates) -> ConfidenceSequences:
        """Return the sequence of unweighted rates or means; a TypeError if there are no such limits."""
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
        raise TypeError(f"no confidence sequence of {estimates}")

    def _scaled(self, unit: Floats) -> Floats:
        low, high = self.support
        return low + (high - low) * unit

    # -------------------------------------------------------------- one number

    def _limits_at(self, alpha: float) -> Limits:
        """Limits of every number alone."""
        low, high = (ends[:, 0] for ends in self._refuted(np.array([math.log(2.0 / alpha)])))
        return self._open_undefined(low, high)

    def _refuted(self, evidence: Floats) -> Limits:
        """Return the largest means that rising evidence refutes from below, and the smallest from above: (k, b) each.

        Equal samples, of either side, are inverted once.
        """
        n, s = self.rows, self.total
        sums = [np.concatenate([n, n]), np.concatenate([s, n - s])]
        if self.squares is not None:
            sums.append(np.concatenate([self.squares, np.maximum(n - 2 * s + self.squares, 0.0)]))
        different, which = np.unique(np.stack(sums, axis=1), axis=0, return_inverse=True)
        parts = np.array_split(different.T, math.ceil(len(different) / SAMPLES) or 1, axis=1)
        both = np.concatenate([_inverted(part, evidence) for part in parts])[which]
        low, high = both.reshape(2, len(self), evidence.size)
        return self._scaled(low), self._scaled(1.0 - high)

    # -------------------------------------------------------------- two numbers

    def _cells(self, alpha: float) -> int:
        """Return in how many cells of evidence a pair shares what refutes it, rounded up."""
        return math.ceil((math.log(2.0 / alpha) - 2 * math.log(IDLE)) / STEP)

    def _ends(self, cells: int) -> tuple[Floats, Floats]:
        """Return lower and upper limits at evidence ``log(IDLE) + STEP c`` for ``c = 1 .. cells``, (k, cells) each."""
        held: tuple[Floats, Floats] | None = self.__dict__.get("_table")
        if held is None or held[0].shape[1] < cells:
            evidence = math.log(IDLE) + STEP * np.arange(1.0, cells + 17.0)
            held = self.__dict__["_table"] = self._refuted(evidence)
        return held[0][:, :cells], held[1][:, :cells]

    def minus(
        self, other: Estimates, alpha: float, at: int | slice = slice(None), *, logs: bool = False
    ) -> Limits:
        """Limits of the differences to another sample, by the product of the wealths."""
        assert isinstance(other, ConfidenceSequences)
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
        project = np.max if sign > 0 else np.min

        def largest(apart: Floats) -> Floats:
            ends = project(apart, axis=1)
            return np.where(np.isnan(ends), sign * math.inf, ends)

        best = -math.inf
        with np.errstate(invalid="ignore"):  # -inf - -inf if both ends are open
            # no pair is further apart than a group and the smallest end of any at every cell
            most = largest(first - second.min(axis=0))
            for i in np.argsort(-most, kind="stable"):
                if not most[i] > best:
                    break
                apart = largest(first[i] - second)
                apart[i] = -math.inf
                best = max(best, float(apart.max()))
        return best


def _logarithms(ends: Limits, *, logs: bool) -> Limits:
    """Return the ends, or their logarithms."""
    if not logs:
        return ends
    with np.errstate(divide="ignore"):
        return np.log(ends[0]), np.log(ends[1])


def _inverted(sums: Floats, evidence: Floats) -> Floats:
    """Return the largest means that rising evidence refutes, (k, b).

    ``sums`` are rows, sums and, if known, squares of the samples: (2, k) or (3, k).
    """
    out = np.zeros((sums.shape[1], evidence.size))
    filled = np.flatnonzero(sums[0] > 0)
    if not filled.size:
        return out
    sums = sums[:, filled]
    of_sums = len(sums) == 2
    every = np.zeros((filled.size, evidence.size))
    least, most = (every, every + 1.0) if of_sums else _tried(sums, evidence)
    nodes = np.unique(np.append(np.arange(0, evidence.size, APART), evidence.size - 1))
    start = (_start_of_sums if of_sums else _start_of_squares)(sums, evidence[nodes])
    start = np.clip(start, least[:, nodes], 1.0)
    top = np.where(start < most[:, nodes], most[:, nodes], 1.0)
    mean, slope = _solved(sums, evidence[nodes], start, start, top)
    # what more evidence refutes, less does
    mean = np.maximum.accumulate(mean[:, ::-1], axis=1)[:, ::-1]
    out[np.ix_(filled, nodes)] = mean
    between = np.setdiff1d(np.arange(evidence.size), nodes)
    if between.size:
        after = np.searchsorted(nodes, between)
        low, high = mean[:, after], mean[:, after - 1]
        width = evidence[nodes[after]] - evidence[nodes[after - 1]]
        part = (evidence[between] - evidence[nodes[after - 1]]) / width
        bend = (1 - part) * slope[:, after - 1] - part * slope[:, after]
        cubic = high + part**2 * (3 - 2 * part) * (low - high) + part * (1 - part) * width * bend
        low = np.maximum(low, least[:, between])
        high = np.where(low < most[:, between], np.minimum(high, most[:, between]), high)
        start = np.where((cubic > low) & (cubic < high), cubic, (low + high) / 2)
        out[np.ix_(filled, between)] = _solved(sums, evidence[between], start, low, high)[0]
    return out


def _every(sums: Floats, evidence: Floats) -> tuple[Floats, Floats]:
    """Return sums (m, k b) and evidence (k b,) of every sample with every evidence."""
    return np.repeat(sums, evidence.size, axis=1), np.tile(evidence, sums.shape[1])


def _solved(sums: Floats, evidence: Floats, mean: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Return the means from ``low`` to ``high`` at which the log wealth is the evidence, and their slopes, (k, b) each.

    Newton's steps start at ``mean``. One that leaves what is between is a halving instead. Of sums alone, the log
    wealth is convex, so that steps end below the root.
    """
    shape = mean.shape
    (sums, evidence), (mean, low, high) = _every(sums, evidence), (one.ravel() for one in (mean, low, high))
    out, slope = mean.copy(), np.zeros(mean.size)
    for begin in range(0, mean.size, CHUNK):
        still = np.arange(begin, min(begin + CHUNK, mean.size))
        of, wanted, p, least, most = sums[:, still], evidence[still], mean[still], low[still], high[still]
        seen = np.zeros(still.size, dtype=bool)
        for _ in range(MOST_STEPS):
            above, falls = _wealth(of, p, wanted)
            won = above >= 0
            least, most, seen = np.where(won, p, least), np.where(won, most, p), seen | ~won
            with np.errstate(divide="ignore", invalid="ignore"):
                step = p + above / falls
                slope[still] = np.where(falls > 0, -1.0 / falls, 0.0)
            near = (np.abs(above) <= NEAR + ROUNDING * of[0]) & ~(np.abs(step - p) > NEAR)
            outside = np.where((step > most) & ~seen, most, (least + most) / 2)
            step = np.where(near, np.clip(step, least, most), step)
            step = np.where((step >= least) & (step <= most), step, outside)
            out[still] = step
            again = ~near & (step != p)
            still, of, p = still[again], of[:, again], step[again]
            wanted, least, most, seen = wanted[again], least[again], most[again], seen[again]
            if not still.size:
                break
        out[still] = least  # wealth that jumps over the evidence
    return out.reshape(shape), slope.reshape(shape)


def _start_of_sums(sums: Floats, evidence: Floats) -> Floats:
    """Return the largest mean that a single bet refutes, (k, b)."""
    n, s = sums[..., None, None]
    shift, weight = SHIFTS
    each = (weight + shift * s - evidence[:, None]) / n
    return np.asarray((np.expm1(np.minimum(each, shift)) / np.expm1(shift)).max(axis=-1))


def _start_of_squares(sums: Floats, evidence: Floats) -> Floats:
    """Return the largest mean that a single bet refutes, (k, b): a root of a square, of the reciprocal."""
    n, s, q = sums[..., None, None]
    stake, weight, cost = _costs()
    a, b, c = cost * q, (stake + 2 * cost) * s, (stake + cost) * n + evidence[:, None] - weight
    root = b**2 - 4 * a * c
    there = (root >= 0) & (c > 0)
    return np.asarray(
        np.where(there, (b + np.sqrt(np.maximum(root, 0.0))) / (2 * np.where(there, c, 1.0)), 0.0).max(-1)
    )


def _tried(sums: Floats, evidence: Floats) -> Limits:
    """Return the largest of a few means that is refuted, and the next, which is not, (k, b) each.

    Far from the mean, bets on squares win together what none wins alone, and their wealth has more than one peak.
    """
    mean = (sums[1] / sums[0])[:, None]
    stake, _, cost = _costs()
    peaks = sums[2, :, None] / np.maximum(sums[1], 1e-300)[:, None] * (2 * cost / (stake + 2 * cost))
    means = np.concatenate(
        [0.0 * mean, mean * PARTS, np.minimum(peaks, mean), mean + (1 - mean) * np.arange(9) / 8], axis=1
    )
    means.sort(axis=1)
    each, none = _every(sums, np.zeros(means.shape[1]))
    with np.errstate(over="ignore", invalid="ignore"):  # too large a wealth refutes
        won = _wealth(each, means.ravel(), none)[0].reshape(means.shape)
    won[:, 0] = np.inf  # no limit at all
    won = np.maximum.accumulate(won[:, ::-1], axis=1)[:, ::-1]
    last = np.stack([np.count_nonzero(won >= one, axis=1) - 1 for one in evidence], axis=1)
    following = np.minimum(last + 1, means.shape[1] - 1)
    return np.take_along_axis(means, last, axis=1), np.take_along_axis(means, following, axis=1)


def _costs() -> tuple[Floats, Floats, Floats]:
    """Return the stakes, the logarithm of their weights, and what a squared deviation costs each."""
    stake, weight = STAKES
    return stake, weight, -np.log1p(-stake) - stake


def _wealth(sums: Floats, p: Floats, evidence: Floats) -> tuple[Floats, Floats]:
    """Return by how much the log wealth against means ``p`` is above the evidence, and how fast it falls, (k,) each."""
    if len(sums) == 2:
        n, s = sums
        shift, weight = (one[:, None] for one in SHIFTS)
        odds = np.expm1(shift)
        inside = 1.0 + p * odds
        parts = np.exp(weight + shift * s - n * np.log(inside) - evidence)
        falls = n * (odds[:, 0] @ (parts / inside))
    else:
        n, s, q = sums
        stake, weight, cost = (one[:, None] for one in _costs())
        v = 1.0 / np.maximum(p, 1e-12)
        parts = np.exp(weight + stake * (s * v - n) - cost * (q * v**2 - 2 * s * v + n) - evidence)
        falls = v**2 * (s * ((stake + 2 * cost)[:, 0] @ parts) - 2 * q * v * (cost[:, 0] @ parts))
    total = parts.sum(axis=0) + IDLE * np.exp(-evidence)
    return np.log(total), falls / total
