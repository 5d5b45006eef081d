r"""The ramp without width: points get shares in [0, 1], and the objective is linear.

Point ``i`` of cell ``k`` has a worth ``v_i`` per unit of mass ``m_i > 0`` and gets a share ``q_i``. With ``r_k`` the
mean share of cell ``k`` by mass and ``d = slack / 2``, the problem is

.. math::
    \max_{q, \rho} \sum_i m_i v_i q_i
    \quad\text{s.t.}\quad 0 \le q_i \le 1,\quad |r_k - \rho| \le d \text{ for each cell } k,

the limit ``gamma -> 0`` of :mod:`fairfix.optim.ramp` with ``f = v`` and ``w = m``. With a ``ratio`` ``R``, as there,
the lower edge of the band is ``R rho - d``. Points of equal worth are one atom, so shares are a step: 1 above a
level, 0 below, and one number in between at the level. The value is concave in ``rho`` and linear between the places
where an edge meets a breakpoint of a cell, ``r - d`` and ``(r + d) / R``, so one of these is an optimal ``rho``
(docs/methods/ramp.md); it is bisected by the sign of the slope of the objective. No tolerance is involved beyond the
rounding of sums.

With ``v = 2 p - 1`` and ``m = w`` the objective is the expected accuracy at equal selection rates. With ``eta`` the
isotonic regression of labels on scores inside each cell, the optimum is the best of all rules that are monotone in the
score, mixtures included (Barlow et al., 1972, for the hull; Hardt, Price and Srebro, 2016, for the rule).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fairfix.optim.arrays import Floats, check_band, falling, locked

SAME_RATE = 1e-14
"""Rates nearer than this are one rate: about a hundred roundings."""


@dataclass(frozen=True)
class Step:
    """Shares by worth: 1 above ``level``, 0 below, ``tie`` at it."""

    level: float
    tie: float

    @classmethod
    def after(cls, worth: Floats, at: int) -> Step:
        """Return the step that takes exactly the first points of decreasing worths.

        Between two worths the level stands midway, and nothing is left to chance.
        """
        if at == 0:
            return cls(float(worth[0]), 0.0)
        if at == worth.size:
            return cls(float(worth[-1]), 1.0)
        middle = worth[at] + (worth[at - 1] - worth[at]) / 2
        return cls(float(middle if middle > worth[at] else worth[at - 1]), 1.0)

    def shares(self, worth: npt.ArrayLike) -> Floats:
        """Return the shares of points."""
        v = np.asarray(worth, dtype=np.float64)
        return np.where(v == self.level, self.tie, (v > self.level).astype(np.float64))


@dataclass(frozen=True, eq=False)
class Staircase:
    """A cell as its concave curve; made by :meth:`Staircase.of`."""

    worth: Floats
    """Distinct worths, decreasing, shape (n,)."""
    rates: Floats
    gains: Floats
    """``rates`` and ``gains``: share of the mass with a worth above the ``j``-th breakpoint, from 0 to 1, and ``V``
    there, shape (n + 1,).
    """
    total: float
    """Mass of the cell."""

    @classmethod
    def of(cls, worth: npt.ArrayLike, mass: npt.ArrayLike | None = None) -> Staircase:
        """Sort the points of a cell, equal worths together.

        ``worth``: finite numbers, shape (n,), n >= 1. ``mass``: positive numbers, shape (n,); None for 1 each.
        """
        v = np.asarray(worth, dtype=np.float64)
        if v.ndim != 1 or not v.size:
            raise ValueError(f"worths of a cell must be a row of at least one number, got shape {v.shape}")
        if not np.isfinite(v).all():
            raise ValueError("worths must be finite: drop or fill missing and infinite ones first")
        v, m = falling(v, mass)
        total = float(m.sum())
        rates = np.concatenate([[0.0], np.minimum(np.cumsum(m) / total, 1.0)])
        rates[-1] = 1.0
        gains = np.concatenate([[0.0], np.cumsum(np.diff(rates) * v)])
        return cls(locked(v), locked(rates), locked(gains), total)

    @property
    def best(self) -> tuple[float, float]:
        """The least and the greatest rate of the highest gain: the worth is positive before, negative after."""
        ends = (int(np.searchsorted(-self.worth, 0.0, side=side)) for side in ("left", "right"))
        least, most = (float(self.rates[end]) for end in ends)
        return least, most

    def gain(self, rate: npt.ArrayLike) -> Floats:
        """Return ``V`` at the rates."""
        return np.interp(np.asarray(rate, dtype=np.float64), self.rates, self.gains)

    def slope(self, rate: float) -> float:
        """Return the worth of the next point beyond a rate; minus infinity at the end."""
        at = int(np.searchsorted(self.rates, rate + SAME_RATE, side="right")) - 1
        return float(self.worth[at]) if at < self.worth.size else -math.inf

    def step(self, rate: float) -> Step:
        """Return the shares by worth that reach a rate."""
        at = int(np.searchsorted(self.rates, rate - SAME_RATE, side="left"))  # first breakpoint not below
        if abs(self.rates[at] - rate) <= SAME_RATE:
            return Step.after(self.worth, at)
        below, above = self.rates[at - 1], self.rates[at]
        return Step(float(self.worth[at - 1]), float((rate - below) / (above - below)))

    def within(self, rho: float, d: float, ratio: float = 1.0) -> float:
        """Return the best rate inside the band around a centre."""
        return float(np.clip(self.best[0], max(ratio * rho - d, 0.0), min(rho + d, 1.0)))


@dataclass(frozen=True, eq=False)
class StepSolution:
    """The optimum."""

    steps: tuple[Step, ...]
    """Shares of each cell by worth."""
    rates: Floats
    """Mean share of each cell, shape (K,)."""
    rho: float
    """Centre of the band: as given, or the best one; of several best ones the middle breakpoint."""
    value: float
    """Largest value of the objective, divided by the total mass."""


def solve_steps(
    cells: Sequence[Staircase], slack: float, rho: float | None = None, ratio: float = 1.0
) -> StepSolution:
    """Return the optimal shares of all cells.

    ``cells``: at least one. ``slack``: largest allowed difference between the means of two cells; 0 to infinity.
    ``rho``: centre of the band, in [0, 1]; None to choose the best. ``ratio``: the lower edge of the band is this share
    of ``rho``, minus ``d``; in [0, 1].
    """
    check_band(cells, slack, rho, ratio)
    d = slack / 2
    if rho is None:
        rho = _best_rho(cells, d, ratio)
    rates = np.array([cell.within(rho, d, ratio) for cell in cells])
    mass = np.array([cell.total for cell in cells])
    gains = [float(cell.gain(rate)) for cell, rate in zip(cells, rates, strict=True)]
    steps = tuple(cell.step(float(rate)) for cell, rate in zip(cells, rates, strict=True))
    return StepSolution(steps, rates, rho, math.fsum(mass * gains) / math.fsum(mass))


def _slope(cells: Sequence[Staircase], rho: float, d: float, ratio: float) -> float:
    """Return the slope of the objective to the right of ``rho``."""
    total = 0.0
    for cell in cells:
        least, most = cell.best
        if rho + d < least:  # the upper edge holds the cell back
            total += cell.total * cell.slope(rho + d)
        elif ratio * rho - d >= most - SAME_RATE:  # the lower edge pushes it on, and moves by the ratio
            total += ratio * cell.total * cell.slope(ratio * rho - d)
    return total


def _best_rho(cells: Sequence[Staircase], d: float, ratio: float) -> float:
    """Return the centre of the band that allows the largest value."""
    least, most = zip(*(cell.best for cell in cells), strict=True)
    if ratio * (max(least) - d) - min(most) <= d + SAME_RATE:  # all cells may do what is best for them
        idle = max(least) - d if ratio < 1 else (max(least) + min(most)) / 2
        return float(np.clip(idle, 0.0, 1.0))
    edges = [(cell.rates - d, (cell.rates + d) / ratio) for cell in cells]
    places = np.unique(np.concatenate([place for pair in edges for place in pair]))
    places = places[(places >= 0) & (places <= 1)]
    near = SAME_RATE * sum(cell.total * max(1.0, float(np.abs(cell.worth).max())) for cell in cells)
    # the first breakpoint after which the value does not grow, and the first after which it falls
    first = bisect_left(places, -near, key=lambda rho: -_slope(cells, rho, d, ratio))
    last = bisect_right(places, near, key=lambda rho: -_slope(cells, rho, d, ratio))
    first, last = (min(at, places.size - 1) for at in (first, last))
    return float(places[(first + last + 1) // 2])
