r"""The exact ramp: points get shares in [0, 1] while the mean shares of their cells stay close together.

A *cell* is a group of points under one common mean constraint. Point ``i`` of cell ``k`` has a score
``f_i``, a weight ``w_i > 0`` and gets a share ``q_i``. With ``m_k`` the weighted mean of ``q`` over cell
``k``, ``W_k`` its total weight and ``d = slack / 2``, the problem is

.. math::
    \min_{q, \rho} \sum_i w_i \left(\tfrac{\gamma}{2} q_i^2 - f_i q_i\right)
    \quad\text{s.t.}\quad 0 \le q_i \le 1,\quad |m_k - \rho| \le d \text{ for each cell } k.

``rho`` is given, or free; free, the constraint says ``max_k m_k - min_k m_k <= slack``. The optimum is

.. math:: q_i = \mathrm{clip}\left((f_i - t_k) / \gamma,\, 0,\, 1\right), \qquad
    \phi_k(t_k) = \mathrm{clip}(\phi_k(0),\, \rho - d,\, \rho + d),

``phi_k(t)`` the mean share at the multiplier ``t``: never increasing, linear between the breakpoints ``f_i - gamma``
and ``f_i``. A free ``rho`` is the root of ``h(rho) = sum_k W_k t_k(rho)``, which never increases; where ``h`` jumps
through zero, the ``t_k`` are taken inside the jump. The gap to the dual value is

.. math::
    P - D = \sum_k W_k (d\,|t_k| - t_k m_k) +
    \begin{cases} \rho \sum_k W_k t_k & \rho \text{ given} \\ \max(0, \sum_k W_k t_k) & \rho \text{ free.} \end{cases}

:meth:`Cell.of` sorts once. If ``x`` is the score above which the share ``r`` of the weight lies, then ``x - gamma <=
t <= x``: one look-up brackets the root. Inside, Newton's method on the linear pieces of ``phi`` (two binary searches
and a few block sums each), guarded by bisection, ends when a step stays on its piece. The last digits come from sums
over the points, with ``t`` as a sum of two floats, ``offset + remainder``: rounding it moves a share by half its last
place times ``1 / gamma``. Of 21 tied scores at ``gamma = 1e-6`` means meet to 2e-14 so, and to 4e-13 without; to
5e-11 if all tie, which is not the 1e-12 that is promised.

=====================  ===================================  =========================
paper                  here                                 meaning
=====================  ===================================  =========================
``f(x_i)``             ``Cell.scores``                      score
``q_i``, ``h(x_i)``    ``ramp(...)``                        share
``gamma``              ``gamma``                            width of the ramp
``epsilon``            ``slack``                            ``2 d``
``rho``                ``rho``                              centre of the band
``lambda_k - mu_k``    ``offsets[k] + remainders[k]``       multiplier ``t_k``
``E[h(x) | k]``        ``rates[k]``                         mean share ``m_k``
=====================  ===================================  =========================

References
----------
I. Alabdulmohsin and M. Lucic, *A near-optimal algorithm for debiasing trained machine learning models*
(2021): the problem and the form of ``q``. Roots, free ``rho`` and certificate are derived in docs/methods/ramp.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fairfix.optim.arrays import Floats, check_band, locked, positive_weights

# Rates nearer than this are one rate: about a hundred roundings, and a hundredth of what is promised.
# It is also the width at which the search for a free rho stops.
SAME_RATE = 1e-14
PROMISED_RATE = 1e-12
PROMISED_GAP = 1e-9
BLOCK = 2048  # points per block sum; adding up fewer takes no longer than calling numpy
STEPS = 240  # of a search; floats run out after some 60 bisections, and Newton steps between two must shrink


def ramp(
    scores: npt.ArrayLike,
    offset: float | Floats,
    gamma: float,
    remainder: float | Floats = 0.0,
) -> Floats:
    """Return the shares ``clip((scores - offset - remainder) / gamma, 0, 1)``.

    ``scores``: any shape. ``offset``, ``remainder``: one number, or one per score. Left out, the remainder costs a
    share at most half a unit in the last place of the offset, divided by ``gamma``. ``gamma``: width of the ramp, in
    units of the score.
    """
    share = (np.asarray(scores, dtype=np.float64) - offset - remainder) / gamma
    return np.asarray(np.minimum(np.maximum(share, 0.0), 1.0))  # half the time of numpy.clip on short arrays


class MeanCurve(ABC):
    """The mean share of a cell as a function of its offset: what :func:`solve` needs to know of a cell."""

    total: float
    """Weight of the cell, which its multiplier is counted by."""

    @property
    @abstractmethod
    def largest(self) -> float:
        """Largest absolute score."""

    @abstractmethod
    def locate(self, rate: float, gamma: float, guess: float | None) -> tuple[float, float]:
        """Return the root of ``mean = rate`` up to rounding, and the weight on its ramp."""

    @abstractmethod
    def reached(self, t: float, remainder: float, gamma: float) -> tuple[float, float]:
        """Return the mean share and the share of weight on the ramp, summed over the points."""

    @abstractmethod
    def objective(self, t: float, remainder: float, gamma: float) -> float:
        """Return the weighted sum of ``gamma/2 q^2 - f q``."""

    def rounding(self, t: float, gamma: float) -> float:
        """Return the change of the mean by one rounding of ``t`` where a remainder cannot make up for it."""
        return 0.0


@dataclass(frozen=True, eq=False)
class Cell(MeanCurve):
    """Sorted points under one mean constraint; made by :meth:`Cell.of`."""

    scores: Floats
    """Increasing, shape (n,), read-only."""
    weights: Floats | None
    """In the order of the scores; None when every point weighs 1."""
    total: float
    """Sum of the weights."""
    below: Floats | None
    """Weight of the first ``i`` points at place ``i``, shape (n + 1,); None when unweighted."""
    blocks: Floats
    """Sum of ``w f`` over the first ``b`` blocks of ``BLOCK`` points at place ``b``."""
    above: float = 0.0
    above_sum: float = 0.0
    """``above`` and ``above_sum``: weight and sum of ``w f`` of further points, above all of these, that have share 1
    wherever the ramp is put.
    """

    @classmethod
    def of(cls, scores: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> Cell:
        """Sort the points of a cell.

        ``scores``: finite numbers, shape (n,), n >= 1. ``weights``: positive numbers, shape (n,); None for a weight
        of 1 each, which sorts several times faster.
        """
        f = np.asarray(scores, dtype=np.float64)
        if f.ndim != 1 or not f.size:
            raise ValueError(f"scores of a cell must be a row of at least one number, got shape {f.shape}")
        if weights is None:
            f, w, below, total = np.sort(f), None, None, float(f.size)
        else:
            w = positive_weights(weights, f.shape)
            order = np.argsort(f)
            f, w = f[order], w[order]
            below, total = _weight_below(w)
        if not math.isfinite(f[0]) or not math.isfinite(f[-1]):  # sorted: a NaN stands last
            raise ValueError("scores must be finite: drop or fill missing and infinite scores first")
        blocks = _block_sums(f if w is None else w * f)
        return cls(locked(f), None if w is None else locked(w), total, below, blocks)

    @property
    def largest(self) -> float:
        """Largest absolute score."""
        return float(max(-self.scores[0], self.scores[-1]))

    def lifted(self, by: float) -> Cell:
        """Return the cell with a number added to all scores: nothing has to be sorted again."""
        scores = self.scores + by
        blocks = _block_sums(scores if self.weights is None else self.weights * scores)
        return replace(self, scores=locked(scores), blocks=blocks)

    def mean(self, t: float, gamma: float) -> float:
        """Return the mean share at offset ``t``, in O(log n), within about ``1e-15 (1 + |t| / gamma)``."""
        _check_gamma(gamma)
        return self._piece(t, gamma)[2] / self.total

    def root(self, rate: float, gamma: float) -> float:
        """Return the offset at which the mean share is ``rate``.

        Where a whole interval of offsets has that mean (no score inside the ramp), its middle is returned;
        for the unbounded intervals of rate 0 and 1 their finite ends, ``max f`` and ``min f - gamma``.
        """
        _check_gamma(gamma)
        if not 0 <= rate <= 1:
            raise ValueError(f"rate must be in [0, 1], got {rate!r}")
        return _settle(self, self.locate(rate, gamma, None)[0], rate, gamma).offset

    def _weight(self, i: int, j: int) -> float:
        """Return the weight of points ``i..j-1``."""
        return float(j - i) if self.below is None else float(self.below[j] - self.below[i])

    def _excess(self, i: int, j: int, t: float) -> float:
        """Return the sum of ``w (f - t)`` over points ``i..j-1``: whole blocks as their sums, the rest by points."""
        if j - i <= 2 * BLOCK:
            over = self.scores[i:j] - t
            if self.weights is not None:
                over *= self.weights[i:j]
            return float(np.add.reduce(over))
        first, last = -(-i // BLOCK), j // BLOCK
        whole = float(self.blocks[last] - self.blocks[first]) - t * self._weight(first * BLOCK, last * BLOCK)
        return whole + self._excess(i, first * BLOCK, t) + self._excess(last * BLOCK, j, t)

    def _piece(self, t: float, gamma: float) -> tuple[int, int, float, float]:
        """Return the points ``i..j-1`` on the ramp at ``t``, the sum of shares and the ramp's weight."""
        i, j = int(self.scores.searchsorted(t)), int(self.scores.searchsorted(t + gamma))
        shares = self.above + self._weight(j, self.scores.size) + self._excess(i, j, t) / gamma
        return i, j, shares, self._weight(i, j)

    def _on_piece(self, i: int, j: int, t: float, gamma: float) -> bool:
        """Return whether ``t`` belongs to the linear piece that has the points ``i..j-1`` on the ramp."""
        f, n = self.scores, self.scores.size
        return bool(
            (i == 0 or f[i - 1] <= t)
            and (i == n or t <= f[i])
            and (j == 0 or f[j - 1] <= t + gamma)
            and (j == n or t + gamma <= f[j])
        )

    def _bracket(self, rate: float, gamma: float) -> tuple[float, float]:
        """Return ``low, high`` around the root; if ``low >= high``, [high, low] is a flat piece at it."""
        f, n = self.scores, self.scores.size
        left_out = self.total - self.above - self._weight(0, n)
        out = self.total * (1 - rate) - left_out  # weight, of these points, that a step would give nothing
        near = SAME_RATE * self.total
        if self.below is None:
            i = min(int(out), n - 1)
        else:
            i = min(max(int(self.below.searchsorted(out, side="right")) - 1, 0), n - 1)
        if self._weight(0, i + 1) - out <= near:
            i += 1
        elif out - self._weight(0, i) > near:
            return float(f[i]) - gamma, float(f[i])
        # exactly the points i.. are above the step, which may stand anywhere between points i - 1 and i
        return float(f[i]) - gamma if i < n else math.inf, float(f[i - 1]) if i else -math.inf

    def locate(self, rate: float, gamma: float, guess: float | None) -> tuple[float, float]:
        """Return the root of ``mean = rate`` up to rounding of block sums, and the weight on its ramp."""
        low, high = self._bracket(rate, gamma)
        if low < high:
            return self._search(self.total * rate, gamma, low, high, guess)
        if math.isinf(low) or math.isinf(high):
            return (high if math.isinf(low) else low), 0.0
        return high + (low - high) / 2, 0.0

    def _search(
        self, shares: float, gamma: float, low: float, high: float, guess: float | None
    ) -> tuple[float, float]:
        """Return where in [low, high] the sum of shares is ``shares``, and the weight on the ramp there.

        Newton's method; a step that leaves the bracket, or is longer than half the step before, is replaced
        by bisection. It ends when a step stays on the piece it was computed from: then it is exact.
        """
        t = guess if guess is not None and low < guess < high else low + (high - low) / 2
        before, on_ramp = high - low, 0.0
        for _ in range(STEPS):
            i, j, reached, on_ramp = self._piece(t, gamma)
            step = (reached - shares) * gamma / on_ramp if on_ramp > 0 else math.inf
            if on_ramp > 0 and self._on_piece(i, j, t + step, gamma):
                return t + step, on_ramp
            low, high = (t, high) if reached > shares else (low, t)
            if not (low < t + step < high and abs(step) <= before / 2):
                step = low + (high - low) / 2 - t
            if t + step in (low, high):  # no float in between
                break
            t, before = t + step, abs(step)
        return t, on_ramp

    def _shares(self, t: float, remainder: float, gamma: float) -> tuple[slice, Floats]:
        """Return the points on the ramp, and a few beside it, with their shares; those above have share 1."""
        room = 4 * np.finfo(np.float64).eps * (abs(t) + gamma)  # rounding of t + gamma and of the quotient
        i = int(self.scores.searchsorted(t - room))
        j = int(self.scores.searchsorted(t + gamma + room, side="right"))
        return slice(i, j), ramp(self.scores[i:j], t, gamma, remainder)

    def _sum(self, values: Floats, points: slice) -> float:
        """Return the weighted sum of values that belong to a run of points."""
        weights = self.weights
        return float(np.add.reduce(values if weights is None else values * weights[points]))

    def reached(self, t: float, remainder: float, gamma: float) -> tuple[float, float]:
        """Return the mean share and the share of weight on the ramp, summed over the points."""
        on, q = self._shares(t, remainder, gamma)
        above = slice(on.stop, None)
        rest = self.scores.size - on.stop if self.weights is None else np.add.reduce(self.weights[above])
        inside = self._sum(((q > 0) & (q < 1)).astype(np.float64), on)
        return (self._sum(q, on) + float(rest) + self.above) / self.total, inside / self.total

    def objective(self, t: float, remainder: float, gamma: float) -> float:
        """Return the weighted sum of ``gamma/2 q^2 - f q``."""
        on, q = self._shares(t, remainder, gamma)
        above = slice(on.stop, None)
        ramped = self._sum((gamma / 2 * q - self.scores[on]) * q, on)
        certain = self._sum(gamma / 2 - self.scores[above], above)
        return ramped + certain + gamma / 2 * self.above - self.above_sum


@dataclass(frozen=True, eq=False)
class RampSolution:
    """The optimum, with its proof."""

    offsets: Floats
    remainders: Floats
    """``offsets`` and ``remainders``: multipliers ``t = offset + remainder`` per cell, shape (K,): the shares are
    ``ramp(scores, offset, gamma, remainder)``. A remainder is below the last place of its offset.
    """
    rho: float
    """Centre of the band: as given, or the best one. If ``rho`` is free and no offset is needed, the middle between
    the least and the greatest rate.
    """
    rates: Floats
    """Mean share per cell at these offsets, summed over the points, shape (K,)."""
    objective: float
    """Least value of the objective, divided by the total weight."""
    gap: float
    """Objective minus dual value, divided by the total weight: no feasible shares are better by more."""
    converged: bool
    """Whether the band holds within 1e-12 and the gap is below 1e-9 (times the largest score, above 1)."""
    iterations: int
    """Values of ``rho`` that were tried: 1 if it was given, 0 if no offset was needed."""


def solve(cells: Sequence[MeanCurve], gamma: float, slack: float, rho: float | None = None) -> RampSolution:
    """Return the optimal offsets of all cells; see the module's docstring for the problem.

    ``cells``: at least one. ``gamma``: width of the ramp, in units of the scores; above 0. ``slack``: largest allowed
    difference between the means of two cells, ``2 d``; 0 to infinity. ``rho``: centre of the band, in [0, 1]; None to
    choose the best.
    """
    _check_gamma(gamma)
    check_band(cells, slack, rho)
    problem = Problem(tuple(cells), gamma, slack / 2, tuple(c.reached(0.0, 0.0, gamma)[0] for c in cells))
    least, most = min(problem.free), max(problem.free)
    if rho is not None:
        return certified(problem, problem.at(rho, None), given=True, iterations=1)
    if most - least <= slack + SAME_RATE:
        idle = Trial(least + (most - least) / 2, (0.0,) * len(cells), (0.0,) * len(cells), 0.0)
        return certified(problem, idle, given=False, iterations=0)
    best, iterations = balance(problem, least + slack / 2, most - slack / 2)
    return certified(problem, best, given=False, iterations=iterations)


@dataclass(frozen=True)
class Trial:
    """Offsets at one ``rho``, how fast each falls with its rate (0 if idle), and ``h = sum_k W_k t_k``."""

    rho: float
    offsets: tuple[float, ...]
    falls: tuple[float, ...]
    pull: float

    def guess(self, k: int, rise: float) -> float:
        """Return where the offset of cell ``k`` would be after a rise of its rate, were ``phi_k`` a line."""
        return self.offsets[k] - self.falls[k] * rise if rise else self.offsets[k]

    def middle(self, other: Trial) -> Trial:
        """Return the mixture with a trial of opposite pull that has no pull."""
        share = self.pull / (self.pull - other.pull)
        offsets = tuple(t + share * (u - t) for t, u in zip(self.offsets, other.offsets, strict=True))
        return Trial(self.rho + share * (other.rho - self.rho), offsets, self.falls, 0.0)


@dataclass(frozen=True)
class Problem:
    """Cells, width, half the slack, and the mean of each cell at offset 0."""

    cells: tuple[MeanCurve, ...]
    gamma: float
    band: float
    free: tuple[float, ...]

    def target(self, k: int, rho: float) -> float:
        """Return the mean of cell ``k`` at the optimum for ``rho``."""
        return min(max(self.free[k], rho - self.band), rho + self.band)

    def at(self, rho: float, near: Trial | None) -> Trial:
        """Return the trial at ``rho``; a trial near by gives Newton's method its start."""
        offsets, falls = [], []
        for k, cell in enumerate(self.cells):
            rate = self.target(k, rho)
            t, on_ramp = 0.0, math.inf
            if abs(rate - self.free[k]) > SAME_RATE:
                guess = None if near is None else near.guess(k, rate - self.target(k, near.rho))
                t, on_ramp = cell.locate(rate, self.gamma, guess)
                # a flat piece may hold 0: the multiplier's sign says which part of it counts
                t = max(t, 0.0) if rate < self.free[k] else min(t, 0.0)
            offsets.append(t)
            falls.append(self.gamma * cell.total / on_ramp if on_ramp > 0 else math.inf)
        pull = math.fsum(cell.total * t for cell, t in zip(self.cells, offsets, strict=True))
        return Trial(rho, tuple(offsets), tuple(falls), pull)


def balance(problem: Problem, low: float, high: float) -> tuple[Trial, int]:
    """Return the trial in ``low <= rho <= high`` without pull, and how many were made.

    Newton's method on ``h``, guarded like the search for a single root. Each step goes a hair too far, so
    that the bracket closes from both sides; its two ends then differ by a jump of ``h`` or by rounding, and
    in their mixture the pulls cancel.
    """
    left = problem.at(low, None)
    right = problem.at(high, left)
    if left.pull <= 0 or right.pull >= 0:
        return (left if left.pull <= 0 else right), 2
    rho, before = left.middle(right).rho, high - low
    here, tried = left, 2
    while right.rho - left.rho > SAME_RATE and tried < STEPS:
        here = problem.at(rho, here)
        tried += 1
        left, right = (here, right) if here.pull > 0 else (left, here)
        fall = sum(cell.total * f for cell, f in zip(problem.cells, here.falls, strict=True))
        step = here.pull / fall + math.copysign(SAME_RATE / 4, here.pull) if fall > 0 else math.inf
        if not (left.rho < here.rho + step < right.rho and abs(step) <= before / 2):
            step = left.rho + (right.rho - left.rho) / 2 - here.rho
        rho, before = here.rho + step, abs(step)
    return left.middle(right), tried


@dataclass(frozen=True)
class _Place:
    """An offset in two parts and the mean share there."""

    offset: float
    remainder: float
    rate: float


def _settle(cell: MeanCurve, t: float, rate: float, gamma: float) -> _Place:
    """Return the root of ``mean = rate`` to the last digit, from a root up to rounding.

    Newton's method on sums over the points, with ``t`` as the sum of two floats; the nearest place seen wins.
    """
    place = _Place(t, 0.0, math.inf)
    offset, remainder = t, 0.0
    for _ in range(10):  # one or two in practice
        reached, on_ramp = cell.reached(offset, remainder, gamma)
        if abs(reached - rate) < abs(place.rate - rate):
            place = _Place(offset, remainder, reached)
        if abs(reached - rate) <= 2 * SAME_RATE or not on_ramp:
            break
        offset, remainder = _two_sum(offset, remainder + (reached - rate) * gamma / on_ramp)
    return place


def certified(problem: Problem, trial: Trial, *, given: bool, iterations: int) -> RampSolution:
    """Return the trial with its last digits, its value and the proof of its optimality."""
    cells, gamma, rho = problem.cells, problem.gamma, trial.rho
    places = [
        _settle(cell, t, problem.target(k, rho), gamma) if t else _Place(0.0, 0.0, problem.free[k])
        for k, (cell, t) in enumerate(zip(cells, trial.offsets, strict=True))
    ]
    total = math.fsum(cell.total for cell in cells)
    objective = math.fsum(
        cell.objective(p.offset, p.remainder, gamma) for cell, p in zip(cells, places, strict=True)
    )
    gap = _gap(problem, places, rho, given=given) / total
    scale = max(1.0, *(cell.largest for cell in cells))
    outside = max(
        abs(p.rate - rho) - problem.band - cell.rounding(p.offset, gamma)
        for cell, p in zip(cells, places, strict=True)
    )
    return RampSolution(
        offsets=locked(np.array([p.offset for p in places])),
        remainders=locked(np.array([p.remainder for p in places])),
        rho=rho,
        rates=locked(np.array([p.rate for p in places])),
        objective=objective / total,
        gap=gap,
        converged=bool(outside <= PROMISED_RATE and abs(gap) <= PROMISED_GAP * scale),
        iterations=iterations,
    )


def _gap(problem: Problem, places: Sequence[_Place], rho: float, *, given: bool) -> float:
    """Return objective minus dual value; adding ``rho`` times the pull to both parts saves digits."""
    gap, pull = [], []
    for cell, place in zip(problem.cells, places, strict=True):
        if t := place.offset + place.remainder:  # an infinite band times an offset of 0 costs nothing
            gap.append(cell.total * (problem.band * abs(t) - t * (place.rate - rho)))
            pull.append(cell.total * t)
    unbalanced = math.fsum(pull)
    return math.fsum(gap) + (0.0 if given else max(0.0, unbalanced) - rho * unbalanced)


def _two_sum(a: float, b: float) -> tuple[float, float]:
    """Return the float nearest to ``a + b`` and the exact rest (Knuth)."""
    near = a + b
    part = near - a
    return near, (a - (near - part)) + (b - part)


def _check_gamma(gamma: float) -> None:
    """Refuse a ramp without width."""
    if not 0 < gamma < math.inf:
        raise ValueError(f"gamma must be positive and finite, got {gamma!r}")


def _weight_below(weights: Floats) -> tuple[Floats, float]:
    """Return the running sum of weights, from 0, and the total that it ends with.

    Running sums of blocks on top of pairwise sums of what is below: one long running sum would gather a
    rounding per point, all in one direction if a heavy point comes first.
    """
    n, total = weights.size, float(np.add.reduce(weights))
    blocks = np.zeros((-(-n // BLOCK), BLOCK))
    blocks.reshape(-1)[:n] = weights
    ends = np.cumsum(np.add.reduce(blocks, axis=1))
    np.cumsum(blocks, axis=1, out=blocks)
    blocks[1:] += ends[:-1, None]
    below = np.concatenate([[0.0], blocks.reshape(-1)[:n]])
    below[-1] = total
    return locked(np.minimum(np.maximum.accumulate(below), total)), total


def _block_sums(values: Floats) -> Floats:
    """Return the running sum over whole blocks, from 0."""
    whole = values.size // BLOCK
    sums = np.add.reduce(values[: whole * BLOCK].reshape(whole, BLOCK), axis=1)
    return locked(np.concatenate([[0.0], np.cumsum(sums)]))
