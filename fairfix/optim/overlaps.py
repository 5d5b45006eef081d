r"""Steps under the means of groups that overlap: cells with thresholds of their own, constraints on sums of cells.

Cell ``c`` has the mass ``M_c`` and the concave curve ``V_c`` of :mod:`fairfix.optim.step`: what its best points give,
up to the share ``r_c`` of its mass. It is in one group of each of several kinds, ``g(c, j)``; a group's mean is that
of its cells. With ``d = slack / 2`` the problem is

.. math::
    \max_{r, \rho} \sum_c M_c V_c(r_c)
    \quad\text{s.t.}\quad 0 \le r_c \le 1,\quad |m_{gj} - \rho_j| \le d,\quad
    m_{gj} = \frac{\sum_{c: g(c, j) = g} M_c r_c}{\sum_{c: g(c, j) = g} M_c} .

``V_c`` is linear between its breakpoints, so this is a linear program in the shares of the segments, which HiGHS
solves. Of many breakpoints a few are taken first; then, as long as the certificate below leaves a gap, those that the
prices ask for and those near the rates are added (column generation, which ends because breakpoints do). Multipliers
``y_gj`` with ``sum_g W_gj y_gj = 0``, ``W`` the mass of a group, give a cell the price ``t_c = sum_j y_g(c, j) j``
per unit of mass, and by weak duality no rates within the bands are better than

.. math:: \sum_c M_c \max_r (V_c(r) - t_c r) + d \sum_{gj} W_{gj} |y_{gj}| ,

which is computed here from the prices alone: the certificate does not trust the solver.

Rates of a vertex lie at breakpoints, but for as many as there are constraints: only these leave ties to chance.

**Covariances** (:func:`solve_step_covariances`). With the mean of all in place of free centres, ``p_c |r_c - sum_b p_b
r_b| <= epsilon`` and ``p_c`` the cell's part of the mass, the program is the same with other rows: ``epsilon / p_c`` is
the half of a band, and prices need not sum to 0, since no centre is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_matrix, hstack, vstack

from fairfix.optim.arrays import Floats, Ints, check_band
from fairfix.optim.step import Staircase, Step

TOLERANCE = 1e-10
"""Feasibility that is asked of the linear program, the finest that it takes."""

PLACES = 64
"""Breakpoints of a cell that are taken first, and added between two neighbours: a program of a few thousand segments
takes some milliseconds."""

ROUNDS = 100
"""Programs at most; three or four in practice."""

PROVEN = 1e-13
"""Gap at which no more breakpoints are added: rounding of sums."""

PROMISED = 1e-9
"""Distance of means from the band, and gap, with which the solution has converged."""


@dataclass(frozen=True, eq=False)
class OverlapSolution:
    """The optimum."""

    steps: tuple[Step, ...]
    """Shares of each cell by worth."""
    rates: Floats
    """Mean share of each cell, shape (C,)."""
    value: float
    """Largest value of the objective, divided by the total mass."""
    gap: float
    """No rates within the bands have a value that is larger by more, divided by the total mass."""
    converged: bool
    """Whether the means lie within the bands and the gap is small, both to 1e-9."""
    rounds: int
    """Linear programs that were solved."""


def solve_overlaps(cells: Sequence[Staircase], groups: Ints, slack: float) -> OverlapSolution:
    """Return the optimal shares of all cells.

    ``cells``: C of them, at least one. ``groups``: the group of each cell, by kinds, 0..K_j-1, each with a cell; shape
    (C, J). ``slack``: largest allowed difference between the means of two groups of one kind, 0 to infinity.
    """
    check_band(cells, slack)
    mass = _parts(cells)
    member, kind = _members(groups)
    weight = member @ mass
    centres = (kind[:, None] == np.arange(kind.max() + 1)).astype(np.float64)
    d = np.full(kind.size, min(slack, 2.0) / 2)
    return _solved(cells, _Bands(mass, member * mass / weight[:, None], centres, d, weight))


def solve_step_covariances(cells: Sequence[Staircase], slack: float) -> OverlapSolution:
    """Return the optimal shares of cells whose indicators have a covariance of at most ``slack`` with the shares.

    ``cells``: C of them, at least one. ``slack``: largest allowed absolute covariance, ``epsilon``; 0 to infinity.
    """
    check_band(cells, slack)
    mass = _parts(cells)
    rows = np.eye(mass.size) - mass
    return _solved(cells, _Bands(mass, rows, np.zeros((mass.size, 0)), min(slack, 1.0) / mass, mass))


@dataclass(frozen=True, eq=False)
class _Bands:
    """Rows of means that lie within bands: ``|rows @ r - centres @ rho| <= d``, shape (G,), ``rho`` free."""

    mass: Floats
    """Of each cell, of sum 1, shape (C,)."""
    rows: Floats
    """Shape (G, C)."""
    centres: Floats
    """Which centre belongs to which row, shape (G, J); no columns where there are none."""
    d: Floats
    """Half of each band, shape (G,)."""
    weight: Floats
    """Mass that a price is counted by, shape (G,)."""

    def balanced(self, prices: Floats) -> Floats:
        """Return the nearest prices, (G,), that leave free centres no pull."""
        if not self.centres.size:
            return prices
        return prices - self.centres @ (
            self.centres.T @ (self.weight * prices)
        )  # rows of a centre have the mass 1

    def outside(self, rates: Floats) -> float:
        """Return how far rates, (C,), are beyond the bands around the best centres."""
        means = self.rows @ rates
        if not self.centres.size:
            return float((self.weight * (np.abs(means) - self.d)).max())
        spread = [np.ptp(means[own > 0]) - 2 * self.d[own > 0][0] for own in self.centres.T]
        return float(max(spread))


def _parts(cells: Sequence[Staircase]) -> Floats:
    """Return the mass of each cell as a part of all, shape (C,)."""
    mass = np.array([cell.total for cell in cells])
    return np.asarray(mass / mass.sum())


def _solved(cells: Sequence[Staircase], bands: _Bands) -> OverlapSolution:
    """Return the optimum by column generation."""
    mass = bands.mass
    kept = [_spread(0, cell.worth.size) for cell in cells]
    rounds = 0
    while rounds < ROUNDS:
        rounds += 1
        coarse = [_at(cell, places) for cell, places in zip(cells, kept, strict=True)]
        rates, prices = _program(coarse, bands)
        prices = bands.balanced(prices)
        at = bands.rows.T @ (bands.weight * prices) / mass
        best = [int((cell.gains - t * cell.rates).argmax()) for cell, t in zip(cells, at, strict=True)]
        bound = float(mass @ [c.gains[b] - t * c.rates[b] for c, t, b in zip(cells, at, best, strict=True)])
        bound += float((bands.d * bands.weight) @ np.abs(prices))
        value = float(mass @ [cell.gain(rate) for cell, rate in zip(cells, rates, strict=True)])
        more = [_more(*one) for one in zip(cells, kept, rates, best, strict=True)]
        if bound - value <= PROVEN or sum(map(len, more)) == sum(map(len, kept)):
            break
        kept = more
    converged = bool(bands.outside(rates) <= PROMISED and abs(bound - value) <= PROMISED)
    steps = tuple(cell.step(float(rate)) for cell, rate in zip(cells, rates, strict=True))
    return OverlapSolution(steps, rates, value, bound - value, converged, rounds)


def _members(groups: Ints) -> tuple[Floats, Ints]:
    """Return which cells are in which group of all kinds together, shape (G, C), and the kind of each group, (G,)."""
    each = [np.arange(own.max() + 1)[:, None] == own for own in groups.T]
    kind = np.repeat(np.arange(len(each)), [len(one) for one in each])
    return np.concatenate(each).astype(np.float64), kind


def _spread(low: int, high: int) -> Ints:
    """Return at most so many whole numbers from one to another, both among them."""
    return np.unique(np.linspace(low, high, PLACES + 1).round().astype(np.int64))


def _at(cell: Staircase, places: Ints) -> Staircase:
    """Return the curve through a few of the breakpoints of a cell, nowhere above its own."""
    rates, gains = cell.rates[places], cell.gains[places]
    # a point of next to no mass may leave the rate as it is
    rises = np.concatenate([[True], np.diff(rates) > 0])
    rates, gains = rates[rises], gains[rises]
    return Staircase(np.diff(gains) / np.diff(rates), rates, gains, cell.total)


def _more(cell: Staircase, places: Ints, rate: float, best: int) -> Ints:
    """Return breakpoints with those that a price asks for, and with more on both sides of a rate."""
    at = int(np.searchsorted(cell.rates[places], rate))
    low, high = places[max(at - 1, 0)], places[min(at + 1, places.size - 1)]
    near = np.clip(np.arange(best - 1, best + 2), 0, cell.worth.size)
    return np.unique(np.concatenate([places, near, _spread(low, high)]))


def _program(cells: Sequence[Staircase], bands: _Bands) -> tuple[Floats, Floats]:
    """Return rates (C,) and multipliers (G,) of the linear program.

    The variables are what is taken of each segment, as a share of its cell, and the centres.
    """
    sizes = [cell.worth.size for cell in cells]
    owner = np.repeat(np.arange(len(cells)), sizes)
    above = hstack([csr_matrix(bands.rows[:, owner]), csr_matrix(-bands.centres)])
    worth = np.concatenate([cell.worth for cell in cells])
    width = np.concatenate([np.diff(cell.rates) for cell in cells])
    free = np.full(bands.centres.shape[1], np.inf)  # a centre need not be told to stay in [0, 1]
    most, least = np.concatenate([width, free]), np.concatenate([np.zeros(width.size), -free])
    program: Any = linprog
    answer = program(
        np.concatenate([-worth * bands.mass[owner], np.zeros(free.size)]),
        A_ub=vstack([above, -above]),
        b_ub=np.tile(bands.d, 2),
        bounds=np.stack([least, most], axis=1),
        method="highs",
        options={"primal_feasibility_tolerance": TOLERANCE, "dual_feasibility_tolerance": TOLERANCE},
    )
    taken, paid = answer.x, -answer.ineqlin.marginals
    rates = np.bincount(owner, taken[: owner.size], len(cells)).astype(np.float64)
    size = bands.d.size
    return rates, (paid[:size] - paid[size:]) / bands.weight
