r"""The exact ramp: points get shares in [0, 1] while the mean shares of their cells stay close together.

A *cell* is a group of points under one common mean constraint. Point ``i`` of cell ``k`` has a score ``f_i``, a
weight ``w_i > 0`` and gets a share ``q_i``. With ``m_k`` the mean share of cell ``k``, ``W_k`` its weight and ``d``
half of the slack, the problem is

.. math::
    \min_{q, \rho} \sum_i w_i \left(\tfrac{\gamma}{2} q_i^2 - f_i q_i\right)
    \quad\text{s.t.}\quad 0 \le q_i \le 1,\quad |m_k - \rho| \le d \text{ for each cell } k .

This is one case of :mod:`fairfix.solvers.bands`, with a closed form that takes a tenth of the time. ``rho`` is given,
or free; free, the constraint says ``max_k m_k - min_k m_k <= slack``. The optimum is

.. math:: q_i = \mathrm{clip}\left((f_i - t_k) / \gamma,\, 0,\, 1\right), \qquad
    \phi_k(t_k) = \mathrm{clip}(\phi_k(0),\, \rho - d,\, \rho + d),

``phi_k(t)`` the mean at the multiplier ``t``: never increasing, linear between the breakpoints ``f_i - gamma`` and
``f_i``. A free ``rho`` is the root of ``h(rho) = sum_k W_k t_k(rho)``, which never increases; where ``h`` jumps through
zero, the ``t_k`` are taken inside the jump.

**Ratios.** With ``ratio`` ``R < 1`` the lower edge of every band is ``R rho - d`` in place of ``rho - d``. Without
slack ``rho`` is a bound of the greatest mean, and ``min_k m_k >= R max_k m_k``. For a given ``rho`` the optimum is as
above, between other edges. The least value ``V(rho)`` over shares is convex, because the constraints are linear in
shares and ``rho`` together and the objective is convex; by its Lagrangian, ``V'(rho) = -h(rho)`` with ``h = sum_k W_k
c_k t_k``, ``c_k = 1`` at an upper edge (``t_k > 0``) and ``R`` at a lower one (``t_k < 0``), for that is how fast the
edge moves. So ``h`` never increases, and the best ``rho`` is its root: not above the greatest mean without offsets,
where no upper edge holds, and not below the least of them over ``R``, where no lower edge does.

Offsets are sums of two floats, ``offset + remainder``: rounding ``t`` moves a share by half its last place times ``1 /
gamma``. If all scores of a cell tie at ``gamma = 1e-6``, means meet to 5e-11 without the remainder, which is not the
1e-12 that is promised. Roots, free ``rho`` and certificate are derived in docs/methods/ramp.md.

=====================  ===================================  =========================
paper                  here                                 meaning
=====================  ===================================  =========================
``f(x_i)``             ``Cell.scores``                      score
``q_i``, ``h(x_i)``    ``ramp(...)``                        share
``gamma``              ``gamma``                            width of the ramp
``epsilon``            ``slack``                            ``2 d``
``rho``                ``rho``                              centre of the band
``lambda_k - mu_k``    ``offsets[k] + remainders[k]``       multiplier ``t_k``
``E[h(x) | k]``        ``rates[k]``                         mean ``m_k``
=====================  ===================================  =========================

References
----------
I. Alabdulmohsin and M. Lucic, *A near-optimal algorithm for debiasing trained machine learning models* (2021): the
problem and the form of ``q``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fairfix.solvers.arrays import Bools, Floats, locked, positive_weights
from fairfix.solvers.newton import EPS, falling_root

SAME_RATE = 1e-14
"""Distance below which rates are one: about a hundred roundings, and a hundredth of what is promised."""

PROMISED_RATE, PROMISED_GAP = 1e-12, 1e-9
"""Distance of means from their bands, and gap, with which the solution has converged."""

STEPS = 240
"""Steps of a search at most."""


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


@dataclass(frozen=True, eq=False)
class Cell:
    """Points under one mean constraint; made by :meth:`Cell.of`."""

    scores: Floats
    """Shape (n,), read-only, increasing."""
    weights: Floats
    """In the order of the scores."""
    total: float
    """Sum of the weights, which the multiplier is counted by."""

    @classmethod
    def of(cls, scores: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> Cell:
        """Check and sort the points of a cell.

        ``scores``: finite numbers, shape (n,), n >= 1. ``weights``: positive numbers, shape (n,); None for 1 each.
        """
        f = np.asarray(scores, dtype=np.float64)
        if f.ndim != 1 or not f.size:
            raise ValueError(f"scores of a cell must be a row of at least one number, got shape {f.shape}")
        w = positive_weights(weights, f.shape)
        total = float(np.add.reduce(w))
        if (w == w[0]).all():  # half the time, or less, of an order for the weights
            f = np.sort(f)
        else:
            order = np.argsort(f, kind="stable")
            f, w = f[order], w[order]
        if not (math.isfinite(f[0]) and math.isfinite(f[-1])):  # of sorted scores, a NaN stands last
            raise ValueError("scores must be finite: drop or fill missing and infinite ones first")
        return cls(locked(f), locked(w), total)

    @property
    def largest(self) -> float:
        """Largest absolute score."""
        return float(max(-self.scores.min(), self.scores.max()))

    def lifted(self, by: float) -> Cell:
        """Return the cell with a number added to all scores: nothing has to be sorted again."""
        return replace(self, scores=locked(self.scores + by))

    @cached_property
    def _upto(self) -> Floats:
        """Weight of sorted points up to each, shape (n,)."""
        return np.cumsum(self.weights)

    def _weight_of_first(self, many: int) -> float:
        return float(self._upto[many - 1]) if many else 0.0

    def _place_of(self, weight: float) -> int:
        """Return the first point up to which the points have a weight; the last one if there is none."""
        return min(int(self._upto.searchsorted(weight)), self.scores.size - 1)

    def _sum(self, each: Floats | Bools, points: slice = slice(None)) -> float:
        """Return the weighted sum of numbers that belong to a run of points."""
        return float(np.add.reduce(each * self.weights[points]))

    def _ramped(self, t: float, remainder: float, gamma: float) -> tuple[slice, Floats, float]:
        """Return the points on the ramp, and a few next to it, their shares, and the weight of those above."""
        room = 4 * EPS * (abs(t) + gamma)  # rounding of t + gamma and of the quotient
        i, j = int(self.scores.searchsorted(t - room)), int(self.scores.searchsorted(t + gamma + room))
        return (
            slice(i, j),
            ramp(self.scores[i:j], t, gamma, remainder),
            float(np.add.reduce(self.weights[j:])),
        )

    def reached(self, t: float, remainder: float, gamma: float) -> tuple[float, float]:
        """Return the mean and the share of the weight on the ramp, summed over the points."""
        on, q, above = self._ramped(t, remainder, gamma)
        inside = (q > 0) & (q < 1)
        return (self._sum(q, on) + above) / self.total, self._sum(inside, on) / self.total

    def objective(self, t: float, remainder: float, gamma: float) -> float:
        """Return the weighted sum of ``gamma/2 q^2 - f q``."""
        on, q, weight = self._ramped(t, remainder, gamma)
        above = slice(on.stop, None)
        ramped = self._sum((gamma / 2 * q - self.scores[on]) * q, on)
        return ramped + gamma / 2 * weight - self._sum(self.scores[above], above)

    def _bracket(self, rate: float, gamma: float) -> tuple[float, float]:
        """Return ``low, high`` around the root; if ``low >= high``, [high, low] is a flat piece at it, or its end."""
        f, near = self.scores, SAME_RATE
        out = self._weight_of_first(f.size) - self.total * rate  # that a step at the rate would give nothing
        i = self._place_of(out)
        if self._weight_of_first(i + 1) - out <= self.total * near:
            i += 1
        elif out - self._weight_of_first(i) > self.total * near:
            return float(f[i]) - gamma, float(f[i])
        # exactly the points i.. are above the step, which may stand anywhere between points i - 1 and i
        low = float(f[i]) - gamma if i < f.size else float(f[i - 1])
        return low, float(f[i - 1]) if i else low

    def _quick(self, t: float, gamma: float) -> tuple[float, float]:
        """Return what :meth:`reached` does, from running sums of weights: a third of the time for few points."""
        i, j = int(self.scores.searchsorted(t)), int(self.scores.searchsorted(t + gamma))
        over = self.scores[i:j] - t
        upto = self._weight_of_first(j)
        weight = upto - self._weight_of_first(i) if j > i else 0.0
        above = self._weight_of_first(self.scores.size) - upto
        return (above + self._sum(over, slice(i, j)) / gamma) / self.total, weight / self.total

    def locate(self, rate: float, gamma: float, guess: float | None) -> tuple[float, float]:
        """Return the root of ``mean = rate`` up to rounding, and how fast it falls as the rate grows.

        A rate out of reach gives the nearest end, a flat piece its middle.
        """
        low, high = self._bracket(rate, gamma)
        if low >= high:
            return high + (low - high) / 2, math.inf
        fall = 0.0

        def over(t: float) -> tuple[float, float]:
            nonlocal fall
            mean, on_ramp = self._quick(t, gamma)
            fall = on_ramp / gamma
            return mean - rate, fall

        t = falling_root(over, low, high, guess, near=SAME_RATE, most=STEPS)
        return t, 1 / fall if fall else math.inf


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
    """Mean per cell at these offsets, summed over the points, shape (K,)."""
    objective: float
    """Least value of the objective, divided by the total weight."""
    gap: float
    """Objective minus dual value, divided by the total weight: no feasible shares are better by more."""
    converged: bool
    """Whether the band holds within 1e-12 and the gap is below 1e-9 (times the largest score, above 1).
    """
    iterations: int
    """Values of ``rho`` that were tried: 1 if it was given, 0 if no offset was needed."""


def solve(
    cells: Sequence[Cell], gamma: float, slack: float, rho: float | None = None, ratio: float = 1.0
) -> RampSolution:
    """Return the optimal offsets of all cells; see the module's docstring for the problem.

    ``cells``: at least one. ``gamma``: width of the ramp, in units of the scores; above 0. ``slack``: largest allowed
    difference between the means of two cells, ``2 d``; 0 to infinity. ``rho``: centre of the band, in [0, 1]; None to
    choose the best. ``ratio``: the lower edge of the band is this share of ``rho``, minus ``d``; in [0, 1].
    """
    if not cells:
        raise ValueError("there must be at least one cell")
    if not 0 < gamma < math.inf:
        raise ValueError(f"gamma must be positive and finite, got {gamma!r}")
    if not slack >= 0:
        raise ValueError(f"slack must be 0 or more, got {slack!r}")
    if rho is not None and not 0 <= rho <= 1:
        raise ValueError(f"rho must be in [0, 1], got {rho!r}; leave it out to have it chosen")
    if not 0 <= ratio <= 1:
        raise ValueError(f"ratio must be in [0, 1], got {ratio!r}")
    mass = np.array([cell.total for cell in cells])
    free = np.array([cell.reached(0.0, 0.0, gamma)[0] for cell in cells])
    problem = _CellProblem(tuple(cells), gamma, slack / 2, mass, free, ratio)
    if rho is not None:
        return problem.certified(problem.at(rho), given=True, iterations=1)
    # the centres between which some upper and some lower edge hold; in the other order, none has to
    low, high = problem.ends()
    if high - low <= SAME_RATE:
        least, most = float(problem.free.min()), float(problem.free.max())
        idle = least + (most - least) / 2 if ratio == 1 else max(high, 0.0)
        return problem.certified(problem.idle(idle), iterations=0)
    best, tried = problem.balanced(low, high)
    return problem.certified(best, iterations=tried)


@dataclass(frozen=True, eq=False)
class _Trial:
    """Offsets and means at one ``rho``, how fast offsets fall with the means, and ``h = sum_k W_k t_k``."""

    rho: float
    offsets: Floats
    rates: Floats
    falls: Floats
    """``offsets``, ``rates`` and ``falls``: shape (K,) each; an offset that is idle does not fall."""
    pull: float

    def middle(self, other: _Trial) -> _Trial:
        """Return the mixture with a trial of opposite pull that has no pull."""
        share = self.pull / (self.pull - other.pull)

        def mixed(name: str) -> Any:
            return getattr(self, name) + share * (getattr(other, name) - getattr(self, name))

        return _Trial(mixed("rho"), mixed("offsets"), mixed("rates"), self.falls, 0.0)


@dataclass(frozen=True, eq=False)
class _CellProblem:
    """Cells, width, half of the band, and what of each cell does not change."""

    cells: tuple[Cell, ...]
    gamma: float
    half: float
    mass: Floats
    """``W``, shape (K,)."""
    free: Floats
    """Means at offset 0, shape (K,)."""
    ratio: float
    """Share of the centre from which the lower half of a band is counted."""

    def ends(self) -> tuple[float, float]:
        """Return the greatest centre at which no lower edge holds without offsets, and the least without upper ones."""
        low = float((self.free + self.half).min())
        return low / self.ratio if self.ratio else math.inf, float((self.free - self.half).max())

    def within(self, means: Floats, rho: float) -> Floats:
        """Return the nearest numbers to means inside the bands around a centre, shape (K,)."""
        return np.clip(means, self.ratio * rho - self.half, rho + self.half)

    def moves(self, offsets: Floats) -> Floats:
        """Return how fast the edge moves with the centre that holds each offset, shape (K,)."""
        return np.where(offsets < 0, self.ratio, 1.0)

    def idle(self, rho: float) -> _Trial:
        """Return the trial without offsets."""
        none = np.zeros(self.mass.size)
        return _Trial(rho, none, self.free, none, 0.0)

    def at(self, rho: float, near: _Trial | None = None) -> _Trial:
        """Return the trial at ``rho``; a trial near by gives Newton's method its start."""
        means = self.free
        rates = self.within(means, rho)
        offsets, falls = np.zeros(rates.size), np.zeros(rates.size)
        for k in np.flatnonzero(np.abs(rates - means) > SAME_RATE).tolist():
            guess = None
            if near is not None:
                rise = float(rates[k] - near.rates[k])
                guess = float(near.offsets[k] - near.falls[k] * rise) if rise else float(near.offsets[k])
            t, falls[k] = self.cells[k].locate(float(rates[k]), self.gamma, guess)
            # a flat piece may hold 0: the sign of what is added says which part of it counts
            offsets[k] = max(t, 0.0) if rates[k] < means[k] else min(t, 0.0)
        return _Trial(rho, offsets, rates, falls, math.fsum(self.mass * self.moves(offsets) * offsets))

    def balanced(self, low: float, high: float) -> tuple[_Trial, int]:
        """Return the trial in ``low <= rho <= high`` without pull, and how many were made."""
        trials = [self.at(low)]
        if trials[0].pull > 0:
            trials.append(self.at(high, trials[0]))
        if trials[-1].pull >= 0 or len(trials) == 1:
            return trials[-1], len(trials)

        def pull(rho: float) -> tuple[float, float]:
            trials.append(self.at(rho, trials[-1]))
            falls = self.moves(trials[-1].offsets) ** 2 * trials[-1].falls
            return trials[-1].pull, float(self.mass @ falls)

        start = trials[0].middle(trials[1]).rho
        falling_root(pull, low, high, start, width=SAME_RATE / 4, most=STEPS)
        best = trials[-1]
        if abs(best.pull) > SAME_RATE * float(self.mass @ np.abs(best.offsets)):
            # the ends of the bracket differ by a jump of the pull or by rounding; in their mixture pulls cancel
            left = next(trial for trial in reversed(trials) if trial.pull > 0)
            best = left.middle(next(trial for trial in reversed(trials) if trial.pull <= 0))
        return best, len(trials)

    def certified(self, trial: _Trial, *, given: bool = False, iterations: int) -> RampSolution:
        """Return the trial with its last digits, its value and the proof of its optimality.

        The gap is ``sum_k W_k (d_k |t_k| - t_k (m_k - c_k rho))``, plus what an unbalanced pull may gain over [0, 1].
        """
        cells, gamma, rho = self.cells, self.gamma, trial.rho
        places = [
            _settle(cell, t, rate, gamma) if t else _Place(t, 0.0, rate)
            for cell, t, rate in zip(cells, trial.offsets.tolist(), trial.rates.tolist(), strict=True)
        ]
        offsets, remainders, rates = (np.array(part) for part in zip(*places, strict=True))
        objective = math.fsum(
            cell.objective(p.offset, p.remainder, gamma) for cell, p in zip(cells, places, strict=True)
        )
        t = offsets + remainders
        paid = np.abs(t) * np.where(t != 0, self.half, 0.0)  # an infinite band may be idle
        moves = self.moves(t)
        pull = math.fsum(self.mass * moves * t)
        gap = math.fsum(self.mass * (paid - t * (rates - moves * rho))) + (
            0.0 if given else max(0.0, pull) - rho * pull
        )
        outside = float(np.abs(rates - self.within(rates, rho)).max())
        total = math.fsum(self.mass)
        scale = max(1.0, *(cell.largest for cell in cells))
        return RampSolution(
            offsets=locked(offsets),
            remainders=locked(remainders),
            rho=rho,
            rates=locked(rates),
            objective=objective / total,
            gap=gap / total,
            converged=bool(outside <= PROMISED_RATE and abs(gap) <= PROMISED_GAP * scale * total),
            iterations=iterations,
        )


class _Place(NamedTuple):
    """An offset in two parts and the mean there."""

    offset: float
    remainder: float
    rate: float


def _settle(cell: Cell, t: float, rate: float, gamma: float) -> _Place:
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
        offset, remainder = two_sum(offset, remainder + (reached - rate) * gamma / on_ramp)
    return place


def two_sum(a: float, b: float) -> tuple[float, float]:
    """Return the float nearest to ``a + b`` and the exact rest (Knuth)."""
    near = a + b
    part = near - a
    return near, (a - (near - part)) + (b - part)
