r"""Scores of several groups brought near to everybody's distribution at every threshold, at the least square cost.

Group ``a`` has share ``p_a``, scores with the distribution function ``F_a``, quantile function ``q_a`` and slack
``e_a``. Wanted are new scores ``u_a(s)``, nondecreasing in the level ``s`` of the old one:

.. math::
    \min_u\; \sum_a p_a \int_0^1 (u_a(s) - q_a(s))^2 \,ds
    \quad\text{s.t.}\quad \sup_z \Big|G_a(z) - \sum_b p_b G_b(z)\Big| \le e_a ,

where ``G_a`` is the distribution function of ``u_a``. Only means of pooled scores enter, so the same map is optimal for
every Bregman loss: for the log loss as well, in probabilities.

**One threshold at a time.** If the level ``g_a(z) = G_a(z)`` of a threshold is moved, scores change sides at ``z``
only; summed over thresholds the cost is, up to a constant,

.. math::
    2 \int \sum_a p_a \int_0^{g_a(z)} (q_a(s) - z) \,ds\, dz ,

and the constraint is about each ``z`` alone: ``|g_a - t| <= e_a`` with ``t = \sum_b p_b g_b``. For each ``z`` this is a
convex problem in K numbers. With the multiplier ``mu`` of the equation for ``t`` and ``nu = z + mu``,

.. math::
    g_a = \mathrm{clip}(F_a(\nu),\; t - e_a,\; t + e_a), \qquad \sum_a p_a g_a = t, \qquad
    z = \nu + \sum_{a \text{ clipped}} p_a (q_a(g_a) - \nu) ,

the last from the derivative in ``t``. So for each ``t`` the second equation gives ``nu``, by bisection in a function
that increases, and the third gives the threshold at which these levels are optimal, without any search. The new score
of level ``s`` is the ``z`` with ``g_a(z) = s``. Slack 0 clips everybody: ``z = \sum_a p_a q_a(t)``, the Wasserstein
barycentre. For two groups ``|G_0 - G_1| <= e`` is ``e_a = e (1 - p_a)``.

The levels increase with ``z`` in all we have seen; nothing here proves it for more than two groups, so the curves are
made monotone and the tests compare with a linear program.

**Rows.** On the rows of the fit the distance is measured as it is, ties and draws included, and the slack inside is
lowered until the measured one holds. Where the draws that spread tied scores are too uneven for that, ties get one
level each, and if that is too coarse, the distance is measured as expected over the draws. Rows of a small group are
steps of ``1 / n``: a slack below what slack 0 leaves is reached by giving everybody's mean to a share of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fairfix.optim.parity import ks_to_overall

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

HEAVY = 0.01
"""A score with no more than this share of its group is never spread over its levels by a draw; it has one level."""

KNOTS = 1024
"""Most scores that a group's distribution function is kept at; between them it is a line."""

GRID = 2048
"""Steps of the levels at which the new scores of a group are kept."""


@dataclass(frozen=True, eq=False)
class Levels:
    """Distribution function of one group's scores: the levels that a score stands for.

    Attributes
    ----------
    knots
        Increasing scores, shape (m,).
    low, high
        Level below and above the mass at a knot, shape (m,) each; equal where the mass is light.
    """

    knots: Floats
    low: Floats
    high: Floats

    @classmethod
    def of(cls, knots: Floats, mass: Floats, most: float) -> Levels:
        """Return the distribution function of distinct scores with masses, shape (m,) each.

        What holds more than ``most`` of the mass is spread over its levels. At most ``KNOTS`` scores are kept.
        """
        high = np.cumsum(mass) / mass.sum()
        low = np.concatenate([[0.0], high[:-1]])
        high[-1] = 1.0
        heavy = high - low > most
        middle = (low + high) / 2
        low, high = np.where(heavy, low, middle), np.where(heavy, high, middle)
        if knots.size > KNOTS:
            some = np.searchsorted(middle, np.linspace(0, 1, KNOTS - int(heavy.sum())), side="left")
            keep = np.unique(np.concatenate([[0], np.minimum(some, knots.size - 1), np.flatnonzero(heavy)]))
            knots, low, high = knots[keep], low[keep], high[keep]
        return cls(knots, low, high)

    @property
    def drawn(self) -> bool:
        """Whether some score is spread by a draw."""
        return bool((self.high > self.low).any())

    def level(self, score: Floats, draw: Floats) -> Floats:
        """Return the level in [0, 1] of scores, with a draw in [0, 1) per row for heavy ones; shape (n,) each."""
        after = np.searchsorted(self.knots, score, side="left")
        at = np.minimum(after, self.knots.size - 1)
        before = np.maximum(after - 1, 0)
        span = self.knots[at] - self.knots[before]
        with np.errstate(invalid="ignore", divide="ignore"):
            part = np.where(span > 0, (score - self.knots[before]) / span, 0.0)
        between = self.high[before] + np.clip(part, 0.0, 1.0) * (self.low[at] - self.high[before])
        between = np.where(
            after == 0, self.low[0], np.where(after == self.knots.size, self.high[-1], between)
        )
        there = self.knots[at] == score
        return np.where(there, self.low[at] + draw * (self.high[at] - self.low[at]), between)

    def heavy(self, score: Floats) -> npt.NDArray[np.bool_]:
        """Return which scores are spread by a draw, shape (n,)."""
        at = np.minimum(np.searchsorted(self.knots, score), self.knots.size - 1)
        return np.asarray((self.knots[at] == score) & (self.high[at] > self.low[at]))

    def quantile(self, level: Floats) -> Floats:
        """Return the score at levels in [0, 1], same shape."""
        levels = np.stack([self.low, self.high], axis=1).ravel()
        return np.asarray(np.interp(level, levels, np.repeat(self.knots, 2)))


@dataclass(frozen=True, eq=False)
class Tube:
    """A map of scores and groups: near to one distribution, and to one constant for a share of the rows.

    Attributes
    ----------
    levels
        Distribution function of each group's scores.
    curves
        New scores at ``GRID + 1`` even levels from 0 to 1, nondecreasing, shape (K, GRID + 1); None where scores are
        left as they are.
    constant, share
        With chance ``share`` a row gets the constant.
    """

    levels: tuple[Levels, ...]
    curves: Floats | None
    constant: float = 0.0
    share: float = 0.0

    @property
    def drawn(self) -> bool:
        """Whether some rows get a value that is drawn."""
        if self.share >= 1:
            return False
        return self.share > 0 or (self.curves is not None and any(one.drawn for one in self.levels))

    def of_group(self, group: int, score: Floats, draw: Floats) -> Floats:
        """Return the new scores of rows of one group; ``draw`` in [0, 1) per row."""
        out = score
        if self.curves is not None:
            out = self.at(group, score, self.levels[group].level(score, draw))
        return np.where(second(draw) < self.share, self.constant, out) if self.share > 0 else out

    def at(self, group: int, score: Floats, level: Floats) -> Floats:
        """Return the new scores of rows of one group whose levels are known.

        A score that is within a step of its new value is left as it is: the curve is only kept at steps.
        """
        assert self.curves is not None
        curve = self.curves[group]
        grid = np.linspace(0.0, 1.0, curve.size)
        step = grid[1]
        return np.clip(score, np.interp(level - step, grid, curve), np.interp(level + step, grid, curve))


def second(draw: Floats) -> Floats:
    """Return another draw in [0, 1) made of the first, as good as independent of it (SplitMix64's mixing)."""
    with np.errstate(over="ignore"):
        z = np.ascontiguousarray(draw, dtype=np.float64).view(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return np.asarray((z >> np.uint64(11)).astype(np.float64) * 2.0**-53)


@dataclass(frozen=True, eq=False)
class Merged:
    """Distribution functions of all groups at the same scores: each distinct knot twice, below and above its mass.

    Attributes
    ----------
    scores
        Shape (m,), nondecreasing.
    levels
        Shape (K, m), nondecreasing in m, from 0 to 1.
    """

    scores: Floats
    levels: Floats

    @classmethod
    def of(cls, levels: Sequence[Levels]) -> Merged:
        """Return the distribution functions at all knots."""
        knots = np.unique(np.concatenate([one.knots for one in levels]))
        out = np.empty((len(levels), 2 * knots.size))
        for row, one in zip(out, levels, strict=True):
            out_of = np.zeros(knots.size)  # a draw of 0 is below the mass of a knot, a draw of 1 above it
            row[0::2] = np.where(knots < one.knots[0], 0.0, one.level(knots, out_of))
            row[1::2] = np.where(knots >= one.knots[-1], 1.0, one.level(knots, out_of + 1.0))
            row[1::2] = np.where(knots < one.knots[0], 0.0, row[1::2])
            row[0::2] = np.where(knots > one.knots[-1], 1.0, row[0::2])
        out[:, 0] = 0.0
        return cls(np.repeat(knots, 2), np.maximum.accumulate(out, axis=1))


def near_everybody(
    levels: Sequence[Levels], shares: Floats, slack: Floats, merged: Merged | None = None
) -> Floats:
    """Return the new scores of each group at even levels, shape (K, GRID + 1).

    Parameters
    ----------
    levels
        Distribution functions of the groups.
    shares
        Shares of the groups, shape (K,), summing to 1.
    slack
        Largest distance of each group to everybody, shape (K,); infinite where none is asked.
    merged
        The distribution functions at all knots, where they are made already.
    """
    merged = merged or Merged.of(levels)
    grid = np.linspace(0.0, 1.0, GRID + 1)
    level = np.clip(grid, 1e-12, 1.0 - 1e-12)  # at 0 and 1 any score would do
    nu, at_nu = _balanced(merged, shares, slack, level)
    low, high = level - slack[:, None], level + slack[:, None]
    g = np.clip(at_nu, low, high)
    clipped = (at_nu < low) | (at_nu > high)
    own = np.stack([one.quantile(row) for one, row in zip(levels, np.clip(g, 0.0, 1.0), strict=True)])
    z = nu + (shares[:, None] * np.where(clipped, own - nu, 0.0)).sum(axis=0)
    z = np.maximum.accumulate(z)
    return np.stack([np.interp(grid, np.maximum.accumulate(row), z) for row in g])


def _balanced(merged: Merged, shares: Floats, slack: Floats, grid: Floats) -> tuple[Floats, Floats]:
    """Return ``nu`` with ``sum_a p_a clip(F_a(nu) - t, -e_a, e_a) = 0`` for each level ``t``, and the ``F_a(nu)``."""
    first, last = np.zeros(grid.size, dtype=np.int64), np.full(grid.size, merged.scores.size - 1)

    def excess(at: Ints) -> Floats:
        away = np.clip(merged.levels[:, at] - grid, -slack[:, None], slack[:, None])
        return np.asarray(shares @ away)

    for _ in range(int(merged.scores.size).bit_length()):
        middle = (first + last) // 2
        above = excess(middle) >= 0
        last = np.where(above, middle, last)
        first = np.where(above, first, np.minimum(middle + 1, last))
    before = np.maximum(last - 1, 0)
    one, other = excess(before), excess(last)
    span = other - one
    part = np.clip(np.divide(-one, span, out=np.ones_like(span), where=span > 0), 0.0, 1.0)
    nu = merged.scores[before] + part * (merged.scores[last] - merged.scores[before])
    start = merged.levels[:, before]
    return nu, start + part * (merged.levels[:, last] - start)


# ---------------------------------------------------------------------- the rows of a fit

EVALUATIONS = 40
"""Most measurements in one search."""


@dataclass(frozen=True, eq=False)
class Spread:
    """Distribution functions of the groups, and the level of each row in its own, shape (n,)."""

    levels: tuple[Levels, ...]
    level: Floats

    @cached_property
    def merged(self) -> Merged:
        """The distribution functions at all knots."""
        return Merged.of(self.levels)


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of rows in groups, with what fits of several slacks share.

    Attributes
    ----------
    score, codes
        Score and group per row, shape (n,) each.
    draws
        Returns a number in [0, 1) per row, shape (n,); asked only where scores are spread.
    weight
        Shape (n,); None for 1 each.
    groups
        Number of groups, all of which have rows.
    """

    score: Floats
    codes: Ints
    draws: Callable[[], Floats]
    weight: Floats | None
    groups: int

    @cached_property
    def rows(self) -> list[Ints]:
        """Row numbers of each group."""
        return [np.flatnonzero(self.codes == k) for k in range(self.groups)]

    @cached_property
    def _atoms(self) -> list[tuple[Floats, Floats]]:
        """Distinct scores of each group and their masses."""
        out = []
        for i in self.rows:
            knots, place = np.unique(self.score[i], return_inverse=True)
            weight = None if self.weight is None else self.weight[i]
            out.append((knots, np.bincount(place, weight, knots.size).astype(np.float64)))
        return out

    @cached_property
    def _spread(self) -> dict[tuple[float, bool], Spread]:
        return {}

    def spread(self, most: float, *, evenly: bool) -> Spread:
        """Return the rows by level, where scores with more than ``most`` of their group are spread by their draws.

        ``evenly``: as if the draws of one score filled [0, 1] evenly, which they do on average.
        """
        if all(mass.max() <= most * mass.sum() for _, mass in self._atoms):
            most, evenly = math.inf, False
        if (most, evenly) not in self._spread:
            levels = tuple(Levels.of(knots, mass, most) for knots, mass in self._atoms)
            level = np.empty_like(self.score)
            for one, i in zip(levels, self.rows, strict=True):
                weight = None if self.weight is None else self.weight[i]
                draw = self.draws()[i] if one.drawn else np.zeros(i.size)
                draw = _even(self.score[i], draw, weight) if evenly else draw
                level[i] = one.level(self.score[i], draw)
            self._spread[most, evenly] = Spread(levels, level)
        return self._spread[most, evenly]

    @cached_property
    def shares(self) -> Floats:
        """Share of each group, shape (K,)."""
        mass = np.bincount(self.codes, self.weight, self.groups)
        return np.asarray(mass / mass.sum())

    @cached_property
    def mean(self) -> float:
        """Mean score of everybody."""
        return float(np.average(self.score, weights=self.weight))

    def distances(self, values: Floats) -> Floats:
        """Return the largest distance of each group's distribution to everybody's, shape (K,)."""
        return ks_to_overall(values, self.codes, self.weight, self.groups)


@dataclass(frozen=True, eq=False)
class TubeFit:
    """A tube fitted to rows.

    Attributes
    ----------
    tube
        The map.
    values
        New score of each row before the share of constants, shape (n,).
    ks
        Distance of each group to everybody on these rows, shape (K,).
    expected
        Whether values and distances are those expected over the draws, because the draws at hand are too uneven.
    evaluations
        Measurements of the search.
    """

    tube: Tube
    values: Floats
    ks: Floats
    expected: bool
    evaluations: int


def fit_tube(scores: Scores, slack: Floats) -> TubeFit:
    """Return the map that keeps every group within its slack of everybody on the rows at hand.

    Parameters
    ----------
    scores
        The rows.
    slack
        Largest distance of each group to everybody, shape (K,), at least 0; infinite where none is asked.
    """
    slack = np.asarray(slack, dtype=np.float64)
    most = max(HEAVY, float(slack[np.isfinite(slack)].min(initial=math.inf)) / 2)
    search = _Search(scores, slack, most)
    if search.holds(free := search.free()):
        return search.result(free)
    for tried in (search, _Search(scores, slack, math.inf), _Search(scores, slack, most, evenly=True)):
        search, tightest = tried, tried.at(0.0)
        if search.holds(tightest):
            return search.result(search.widest(tightest))
    return search.result(search.mixed(tightest))


class _Search:
    """The search for the share of the slack that the curves may take, counting its measurements."""

    def __init__(self, scores: Scores, slack: Floats, most: float, *, evenly: bool = False) -> None:
        self.scores, self.slack, self.evenly, self.evaluations = scores, slack, evenly, 0
        self.asked = np.isfinite(slack)
        self.spread = scores.spread(most, evenly=evenly)
        self._last: tuple[Tube, Floats, Floats] | None = None

    def free(self) -> Tube:
        """Return the map that leaves scores as they are."""
        return Tube(self.spread.levels, None, self.scores.mean)

    def at(self, factor: float) -> Tube:
        """Return the map for slacks that are a factor of those asked for."""
        inside = np.full(self.slack.size, math.inf)
        inside[self.asked] = factor * self.slack[self.asked]
        curves = near_everybody(self.spread.levels, self.scores.shares, inside, self.spread.merged)
        return Tube(self.spread.levels, curves, self.scores.mean)

    def measured(self, tube: Tube) -> tuple[Floats, Floats]:
        """Return the values and the distances of a map before its share of constants, once."""
        if self._last is None or self._last[0] is not tube:
            self.evaluations += 1
            values = self.scores.score
            if tube.curves is not None:
                values = np.empty_like(values)
                for k, i in enumerate(self.scores.rows):
                    values[i] = tube.at(k, self.scores.score[i], self.spread.level[i])
            self._last = tube, values, self.scores.distances(values)
        return self._last[1:]

    def excess(self, tube: Tube) -> float:
        """Return by how much a distance lies beyond its slack, at most; not positive where all hold."""
        return float((self.measured(tube)[1] - self.slack)[self.asked].max(initial=-math.inf))

    def holds(self, tube: Tube) -> bool:
        """Whether every distance is within its slack."""
        return self.excess(tube) <= 0

    def widest(self, tightest: Tube) -> Tube:
        """Return the map of the largest factor that holds: by the Illinois rule, between 0 and 1."""
        best, side = tightest, 0
        low, high = (0.0, self.excess(tightest)), (1.0, self.excess(whole := self.at(1.0)))
        if high[1] <= 0:
            return whole
        smallest = min(rows.size for rows in self.scores.rows)
        fine = max(1e-3 * float(self.slack[self.asked].min()), 0.5 / smallest)
        while high[0] - low[0] > 1e-4 and low[1] < -fine and self.evaluations < EVALUATIONS:
            part = np.clip(low[1] / (low[1] - high[1]), 0.02, 0.98)
            factor = float(low[0] + part * (high[0] - low[0]))
            tube = self.at(factor)
            found = self.excess(tube)
            if found <= 0:
                best, low = tube, (factor, found)
                high = (high[0], high[1] / 2) if side == 1 else high
            else:
                high = (factor, found)
                low = (low[0], low[1] / 2) if side == -1 else low
            side = 1 if found <= 0 else -1
        return best

    def mixed(self, tube: Tube) -> Tube:
        """Return the map with the least share of constants that holds: distances shrink with the share."""
        far = self.measured(tube)[1][self.asked]
        left = np.divide(self.slack[self.asked], far, out=np.ones(far.size), where=far > 0)
        return replace(tube, share=1.0 - float(left.min()))

    def result(self, tube: Tube) -> TubeFit:
        """Return the fit of a map."""
        values, ks = self.measured(replace(tube, share=0.0) if tube.share else tube)
        expected = tube.share > 0 or (self.evenly and tube.drawn)
        return TubeFit(tube, values, (1.0 - tube.share) * ks, expected, self.evaluations)


def _even(score: Floats, draw: Floats, weight: Floats | None) -> Floats:
    """Return draws that fill [0, 1] evenly among the rows of one score, in the order of the given ones.

    Rows that share a score and a draw share a place, as one row of their weight would have.
    """
    order = np.lexsort((draw, score))
    s, d = score[order], draw[order]
    w = np.ones(s.size) if weight is None else weight[order]
    new = np.concatenate([[True], (s[1:] != s[:-1]) | (d[1:] != d[:-1])])
    unit = np.cumsum(new) - 1
    mass = np.bincount(unit, w)
    first = np.concatenate([[True], (s[1:] != s[:-1])])[new]
    atom = np.cumsum(first) - 1
    end = np.cumsum(mass)
    start = (end - mass)[first][atom]
    whole = np.bincount(atom, mass)[atom]
    out = np.empty_like(draw)
    out[order] = ((end - mass / 2 - start) / whole)[unit]
    return out
