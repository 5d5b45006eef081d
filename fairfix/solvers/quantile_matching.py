r"""Scores of several groups brought near to the overall distribution at every threshold, at the least square cost.

Group ``a`` has share ``p_a``, scores with the quantile function ``q_a`` and slack ``e_a``. Wanted are new scores
``u_a(s)``, nondecreasing in the level ``s`` of the old one:

.. math::
    \min_u\; \sum_a p_a \int_0^1 (u_a(s) - q_a(s))^2 \,ds
    \quad\text{s.t.}\quad \sup_z \Big|G_a(z) - \sum_b p_b G_b(z)\Big| \le e_a ,

where ``G_a`` is the distribution function of ``u_a``. The mean level ``t`` of a threshold gives the levels of all
groups and the threshold ``z`` at which they are optimal in closed form (docs/methods/fair-regression.md).

**Rows.** Scores of rows are atoms: ``F_a`` is a step function, and ``z`` is one between the levels at which some
``q_a(t - e_a)``, ``q_a(t + e_a)`` or ``nu`` steps. These are listed, so nothing is approximated. A row stands for the
interval of levels ``[F_a(s-), F_a(s)]`` of its score ``s``, and a number in [0, 1) that its identity draws says where
in it. So the levels of a group fill [0, 1] evenly in expectation, and the distances hold in expectation for every
slack, 0 included, however few rows there are and however many share a score.

**Without draws** every score has the middle of its interval for a level. Then the distances are multiples of the masses
at single scores, and need not hold; the slack inside is searched for what holds, or comes nearest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fairfix.solvers.arrays import Floats, Ints, run_starts
from fairfix.solvers.parity import ks_between, ks_to_overall

BINS = 4096
"""Scores of a group that are told apart; where there are more, neighbours are one atom at their mean."""

PIECES = 16384
"""Values that a tube takes at most; where there are more, neighbours of all groups are one at their mean."""

CHUNK = 1 << 16
"""Equations that are solved at once, which bounds the memory."""


@dataclass(frozen=True, eq=False)
class ScoreLevels:
    """Distribution function of one group's scores: the interval of levels that a score stands for."""

    first: Floats
    last: Floats
    """``first`` and ``last``: least and greatest score of each atom, shape (m,) each: equal, but where many scores
    are one atom.
    """
    low: Floats
    high: Floats
    """``low`` and ``high``: level below and above the mass of an atom, shape (m,) each; both the middle where nothing
    is drawn.
    """

    @property
    def middle(self) -> ScoreLevels:
        """Every atom at the middle of its levels."""
        middle = (self.low + self.high) / 2
        return ScoreLevels(self.first, self.last, middle, middle)

    def place(self, score: Floats) -> tuple[Ints, Floats]:
        """Return the atom of each score, and how far between its end (0) and the next atom (1) the score lies.

        Scores inside an atom, below the first or above the last lie at 0; shape (n,) each.
        """
        at = np.maximum(np.searchsorted(self.first, score, side="right") - 1, 0)
        after = np.minimum(at + 1, self.first.size - 1)
        span = self.first[after] - self.last[at]
        part = np.divide(score - self.last[at], span, out=np.zeros(score.shape), where=span > 0)
        return at, np.clip(part, 0.0, 1.0)


@dataclass(frozen=True, eq=False)
class AtomValues:
    """Values of the atoms of one group, shape (m,) each."""

    least: Floats
    most: Floats
    """``least`` and ``most``: of the least and the greatest draw; all draws between have these where they are equal."""
    last: Floats
    """At the end of the atom, from where a score on the way to the next one starts."""


@dataclass(frozen=True, eq=False)
class Tube:
    """A map of scores and groups to values whose distributions are near to each other."""

    levels: tuple[ScoreLevels, ...]
    """Distribution function of each group's scores."""
    outputs: Floats | None
    """New scores, increasing, shape (P,); None where scores are left as they are."""
    steps: Floats
    """Share of each group with a value of ``outputs[i]`` or less, shape (K, P), nondecreasing, the last 1."""

    @property
    def new_scores(self) -> Floats:
        """The outputs, shape (P,); a ValueError where scores are left as they are."""
        if self.outputs is None:
            raise ValueError("the tube leaves scores as they are")
        return self.outputs

    @cached_property
    def drawn(self) -> bool:
        """Whether some rows get a value that is drawn."""
        return self.outputs is not None and any((one.high > one.low).any() for one in self.levels)

    def of_group(self, group: int, score: Floats, draw: Floats) -> Floats:
        """Return the new scores of rows of one group; ``draw`` in [0, 1) per row.

        A score between two atoms lies as far between the values at their ends.
        """
        if self.outputs is None:
            return score
        one, ends = self.levels[group], self.ends[group]
        at, part = one.place(score)
        out = ends.least[at]
        if (open_rows := np.flatnonzero((ends.least < ends.most)[at] & (part == 0))).size:
            atom = at[open_rows]
            wide = one.high[atom] - one.low[atom]
            out[open_rows] = self._value(
                group, one.low[atom] + np.clip(draw[open_rows], EDGE, 1.0 - EDGE) * wide
            )
        if (between := np.flatnonzero(part > 0)).size:
            before, after = at[between], np.minimum(at[between] + 1, one.first.size - 1)
            left, right = ends.last[before], ends.least[after]
            out[between] = left + part[between] * (right - left)
        return out

    @cached_property
    def ends(self) -> tuple[AtomValues, ...]:
        """The values at the ends of the atoms of each group; most are those of everything between."""
        made = []
        for group, one in enumerate(self.levels):
            wide = one.high - one.low
            levels = one.low + EDGE * wide, one.low + (1.0 - EDGE) * wide, one.high - EDGE * wide
            made.append(AtomValues(*(self._value(group, level) for level in levels)))
        return tuple(made)

    def outcomes(self, group: int, score: Floats) -> tuple[Ints, Floats, Floats]:
        """Return all values that scores of one group can get, over the draws.

        A number of the score, a value and its chance for each, shape (m,); by score, values increasing.
        """
        one = self.levels[group]
        at, part = one.place(score)
        low, wide = one.low[at], (one.high - one.low)[at]
        first, last = (self._piece(group, low + edge * wide) for edge in (EDGE, 1.0 - EDGE))
        many = last - first + 1
        number = np.repeat(np.arange(score.size), many)
        piece = np.arange(number.size) - np.repeat(np.cumsum(many) - many - first, many)
        span = np.where(wide > 0, wide, 1.0)[number]
        upto = np.where(piece < last[number], (self.steps[group][piece] - low[number]) / span, 1.0)
        chance = upto - np.where(piece > first[number], np.append(0.0, upto[:-1]), 0.0)
        value = self.new_scores[piece]
        if (between := np.flatnonzero(part > 0)).size:  # one value each, in place of those of the atom before
            first_of = np.cumsum(many) - many
            chance = np.where(part[number] > 0, 0.0, chance)
            value[first_of[between]] = self.of_group(group, score[between], np.zeros(between.size))
            chance[first_of[between]] = 1.0
        there = chance > 0
        return number[there], value[there], chance[there]

    def _value(self, group: int, level: Floats) -> Floats:
        return self.new_scores[self._piece(group, level)]

    def _piece(self, group: int, level: Floats) -> Ints:
        piece = np.searchsorted(self.steps[group], level, side="right")
        return np.minimum(piece, self.new_scores.size - 1)


EDGE = 1e-6
"""Part of an atom's levels that its end is looked up inside of: which of two pieces begins at a level is rounding."""


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of rows in groups, with what fits of several slacks share."""

    score: Floats
    codes: Ints
    """``score`` and ``codes``: score and group per row, shape (n,) each."""
    weight: Floats | None
    """Shape (n,); None for 1 each."""
    groups: int
    """Number of groups; each has rows."""
    least: int = 1
    """Rows of an atom at least; a group of fewer rows is one atom."""
    times: Ints | None = None
    """Number of rows that each stands for, shape (n,); None for 1 each."""

    @cached_property
    def shares(self) -> Floats:
        """Share of each group, shape (K,)."""
        mass = np.bincount(self.codes, self.weight, self.groups)
        return np.asarray(mass / mass.sum())

    @cached_property
    def _atoms(self) -> list[tuple[ScoreLevels, Floats]]:
        """The levels of each group, and the mean score of each atom."""
        out = []
        for k in range(self.groups):
            inside = self.codes == k
            knots, place = np.unique(self.score[inside], return_inverse=True)
            weight = None if self.weight is None else self.weight[inside]
            mass = np.bincount(place, weight, knots.size).astype(np.float64)
            times = None if self.times is None else self.times[inside]
            rows = np.bincount(place, times, knots.size)
            first = of_least(cuts(knots, mass, BINS), rows, self.least)
            many = np.add.reduceat(mass, first)
            last = np.append(first[1:], knots.size) - 1
            mean = np.clip(np.add.reduceat(mass * knots, first) / many, knots[first], knots[last])
            high = np.cumsum(many) / many.sum()
            high[-1] = 1.0
            low = np.concatenate([[0.0], high[:-1]])
            start, end = knots[first], knots[last]
            if self.least > 1:
                start, end = ends_between(knots, first, last, mean)
            out.append((ScoreLevels(start, end, low, high), mean))
        return out

    @property
    def levels(self) -> tuple[ScoreLevels, ...]:
        """The levels of each group."""
        return tuple(levels for levels, _ in self._atoms)

    @property
    def knots(self) -> tuple[Floats, ...]:
        """The mean score of each atom of each group."""
        return tuple(knots for _, knots in self._atoms)

    @cached_property
    def steps(self) -> tuple[Floats, Floats]:
        """Distinct scores of all groups, shape (M,), and the levels of each group up to each, shape (K, M)."""
        scores = np.unique(np.concatenate(self.knots))
        rows = [
            np.append(0.0, one.high)[np.searchsorted(knots, scores, side="right")]
            for one, knots in self._atoms
        ]
        return scores, np.stack(rows)

    @cached_property
    def free(self) -> Floats:
        """Distance of each group's scores to all scores as they are, shape (K,)."""
        return self.distances(self.score)

    def distances(self, outputs: Floats) -> Floats:
        """Return the largest distance of each group's distribution to the overall one, shape (K,)."""
        return ks_to_overall(outputs, self.codes, self.weight, self.groups)

    def coupling(self, tube: Tube, group: int) -> tuple[Floats, Floats, Floats]:
        """Return (old score, new score, share of the group) of all that the tube does to a group's atoms."""
        one, knots = tube.levels[group], self.knots[group]
        if tube.outputs is None or not (one.high > one.low).any():
            own = self.levels[group]
            return knots, tube.of_group(group, knots, np.zeros(knots.size)), own.high - own.low
        ends = np.unique(np.concatenate([[0.0], one.high, tube.steps[group]]))
        middle = (ends[1:] + ends[:-1]) / 2
        at = np.minimum(np.searchsorted(one.high, middle), knots.size - 1)
        piece = np.minimum(np.searchsorted(tube.steps[group], middle), tube.outputs.size - 1)
        return knots[at], tube.outputs[piece], np.diff(ends)

    def spread_of(self, tube: Tube) -> float:
        """Return by how much the value of a row varies with its draw: its standard deviation, over all rows."""
        total = 0.0
        for k, (share, knots) in enumerate(zip(self.shares, self.knots, strict=True)):
            old, new, mass = self.coupling(tube, k)
            at = np.searchsorted(knots, old)
            whole = np.bincount(at, mass, knots.size)
            mean = np.bincount(at, mass * new, knots.size) / whole
            total += float(share * (mass * (new - mean[at]) ** 2).sum())
        return math.sqrt(total)


def near_everybody(scores: Scores, slack: Floats) -> Tube:
    """Return the map of least square cost that keeps every group within its slack of all rows.

    ``scores``: the rows. ``slack``: largest distance of each group to all rows, shape (K,), at least 0; infinite
    where none is asked.
    """
    e = np.minimum(slack, 2.0)[:, None]  # levels differ by 1 at most
    p, (old, upto) = scores.shares[:, None], scores.steps
    turn = np.maximum.accumulate(_roots(-upto, np.ones_like(upto), p, e))  # t at the end of each score
    own = [np.append(0.0, one.high) for one in scores.levels]
    ends = np.concatenate(
        [
            turn,
            *(np.add.outer([-limit, limit], high).ravel() for limit, high in zip(e[:, 0], own, strict=True)),
        ]
    )
    t = _apart(ends, 1.0)
    middle = (t[1:] + t[:-1]) / 2
    before = np.concatenate([np.zeros((scores.groups, 1)), upto[:, :-1]], axis=1)

    at = np.minimum(np.searchsorted(turn, middle), old.size - 1)
    z = nu = old[at]
    for k, (levels, knots) in enumerate(zip(scores.levels, scores.knots, strict=True)):
        low, high = middle - e[k], middle + e[k]
        level = np.where(high < before[k, at], high, low)
        clipped = (high < before[k, at]) | (low > upto[k, at])
        own_score = knots[np.minimum(np.searchsorted(levels.high, level), knots.size - 1)]
        z = z + np.where(clipped, p[k] * (own_score - nu), 0.0)

    inner = t[1:-1]
    at = np.minimum(np.searchsorted(turn, inner), old.size - 1)
    part = _roots(before[:, at] - inner, (upto - before)[:, at], p, e)
    g = inner + np.clip(before[:, at] + part * (upto - before)[:, at] - inner, -e, e)
    g = np.maximum.accumulate(np.clip(g, 0.0, 1.0), axis=1)
    steps = np.concatenate([g, np.ones((scores.groups, 1))], axis=1)
    z = np.clip(
        np.maximum.accumulate(z), old[0], old[-1]
    )  # a mean of scores, which rounding may move out of them
    outputs, steps = _pooled(z, steps, np.diff(t))
    return Tube(scores.levels, outputs, steps)


NARROW = 1e-13
"""Levels that differ by less are one: they were made by sums of shares, which round."""


def _pooled(z: Floats, steps: Floats, mass: Floats) -> tuple[Floats, Floats]:
    """Return the values and the levels up to them, equal neighbours as one and at most about ``PIECES`` of them."""
    first = run_starts(z)
    last = np.append(first[1:], z.size) - 1
    z, steps, mass = z[first], steps[:, last], np.add.reduceat(mass, first)
    first = cuts(z, mass, PIECES)
    last = np.append(first[1:], z.size) - 1
    mean = np.add.reduceat(mass * z, first) / np.add.reduceat(mass, first)
    return np.clip(mean, z[first], z[last]), np.ascontiguousarray(steps[:, last])


def near_each_other(scores: Scores, slack: float) -> Tube:
    """Return the map of least square cost that keeps every two groups within ``slack`` of each other.

    ``slack``: largest distance of two groups' distributions at any threshold, from 0 to below 1.
    """
    p, own = scores.shares, [np.append(0.0, one.high) for one in scores.levels]

    def old(k: int, level: Floats) -> Floats:
        return scores.knots[k][np.minimum(np.searchsorted(own[k][1:], level), scores.knots[k].size - 1)]

    ends = np.concatenate([np.add.outer([0.0, -slack], one).ravel() for one in own])
    t = _apart(ends, 1.0 - slack)  # the least of the groups' levels
    middle = (t[1:] + t[:-1]) / 2
    low, high = (np.stack([old(k, middle + by) for k in range(scores.groups)]) for by in (0.0, slack))
    z = np.concatenate([[-np.inf], np.maximum.accumulate(_balanced(low, high, p)), [np.inf]])

    moved = []
    for k in range(scores.groups):
        level = _apart(np.concatenate([own[k], t, t + slack]), 1.0)
        inside = (level[1:] + level[:-1]) / 2
        least, most = (z[np.searchsorted(t, inside - by)] for by in (slack, 0.0))
        moved.append((np.append(0.0, level[1:]), np.clip(old(k, inside), least, most)))
    outputs = np.unique(np.concatenate([new for _, new in moved]))
    steps = np.stack([upto[np.searchsorted(new, outputs, side="right")] for upto, new in moved])
    return Tube(scores.levels, *_pooled(outputs, steps, p @ np.diff(steps, axis=1, prepend=0.0)))


def _apart(ends: Floats, last: float) -> Floats:
    """Return levels from 0 to ``last``, increasing, those that differ by rounding alone as one."""
    t = np.unique(np.concatenate([[0.0, last], ends[(ends > 0) & (ends < last)]]))
    t = t[np.concatenate([np.diff(t) > NARROW, [True]])]
    t[0] = 0.0
    return np.asarray(t)


def _balanced(low: Floats, high: Floats, p: Floats) -> Floats:
    """Return the least ``z`` with ``sum_k p_k ((low_k - z)_+ - (z - high_k)_+) = 0``, shape (C,).

    ``low`` and ``high``, nowhere below it, are of shape (K, C), ``p`` of shape (K,). The sum does not rise with ``z``,
    and is linear between the 2K numbers of a column.
    """
    out, many = np.empty(low.shape[1]), p.size
    for start in range(0, low.shape[1], CHUNK):
        z = np.concatenate([low[:, start : start + CHUNK], high[:, start : start + CHUNK]])
        order = np.argsort(z, axis=0, kind="stable")
        z = np.take_along_axis(z, order, axis=0)
        share, below = np.append(p, p)[order], order >= many  # those that pull z down once it is above them
        pull = np.where(below, 0.0, share)
        steep = pull.sum(axis=0) - np.cumsum(pull, axis=0) + np.cumsum(share - pull, axis=0)
        fall = np.append(
            np.zeros((1, z.shape[1])), np.cumsum(steep[:-1] * np.diff(z, axis=0), axis=0), axis=0
        )
        h = (pull * (z - z[0])).sum(axis=0) - fall
        at = np.clip((h > 0).sum(axis=0), 1, 2 * many - 1)
        out[start : start + CHUNK] = _crossed(z, -h, at)
    return out


def _crossed(x: Floats, h: Floats, at: Ints) -> Floats:
    """Return where lines through (x, h), that do not fall, are 0 between two rows ``at - 1`` and ``at``, shape (C,)."""
    cols = np.arange(x.shape[1])
    x0, x1, h0, h1 = x[at - 1, cols], x[at, cols], h[at - 1, cols], h[at, cols]
    part = np.divide(-h0, h1 - h0, out=np.zeros_like(h0), where=h1 > h0)
    return np.asarray(x0 + np.clip(part, 0.0, 1.0) * (x1 - x0))


def _roots(a: Floats, b: Floats, p: Floats, e: Floats) -> Floats:
    """Return an ``x`` in [0, 1] with ``sum_k p_k clip(a_k + b_k x, -e_k, e_k) = 0``, or the end that is nearest.

    ``a`` and ``b >= 0`` are of shape (K, C), ``p`` and ``e`` of shape (K, 1); returns shape (C,). The sum is
    nondecreasing and linear between 2K kinks.
    """
    out = np.empty(a.shape[1])
    for start in range(0, a.shape[1], CHUNK):
        chunk = slice(start, start + CHUNK)
        own, rise = a[:, chunk], b[:, chunk]
        kinks = [np.divide(side * e - own, rise, out=np.zeros_like(own), where=rise > 0) for side in (-1, 1)]
        x = np.clip(
            np.concatenate([np.zeros((1, own.shape[1])), *kinks, np.ones((1, own.shape[1]))]), 0.0, 1.0
        )
        x.sort(axis=0)
        h = np.stack([(p * np.clip(own + rise * row, -e, e)).sum(axis=0) for row in x])
        at = np.clip((h < 0).sum(axis=0), 1, x.shape[0] - 1)
        out[chunk] = np.where(h[0] >= 0, 0.0, _crossed(x, h, at))
    return out


# ---------------------------------------------------------------------- the rows of a fit

TRIES, WIDEST = 25, 1.2
"""Slacks inside that are tried where nothing is drawn, as parts of the slack: even ones, from 0 to a bit beyond it."""


@dataclass(frozen=True, eq=False)
class TubeFit:
    """A tube fitted to rows."""

    tube: Tube
    """The map."""
    ks: Floats
    """Distance of each group to all rows on these rows, shape (K,), expected over the draws."""
    holds: bool
    """Whether every distance is within its slack, which it is wherever values are drawn."""
    tried: int
    """Maps that were made."""


def fit_tube(scores: Scores, slack: Floats, *, drawn: bool = True) -> TubeFit:
    """Return the map of least square cost that keeps every group within its slack of all rows.

    ``scores``: the rows. ``slack``: largest distance of each group to all rows, shape (K,), at least 0; infinite
    where none is asked. ``drawn``: whether rows of one score are spread by their draws. Else all of them get one
    value, the cheapest of those that hold among the maps that are tried, or the one whose largest distance beyond its
    slack is least.
    """
    slack = np.asarray(slack, dtype=np.float64)
    if (scores.free <= slack).all():
        return _unmoved(scores)
    if drawn:
        return _by_draws(scores, near_everybody(scores, slack))
    inside = np.unique(
        np.where(np.isfinite(slack), np.linspace(0.0, WIDEST, TRIES)[:, None] * slack, math.inf), axis=0
    )
    tried = [_without_draws(scores, one) for one in inside]
    beyond = [float((ks - slack).max()) for _, ks, _ in tried]
    held = [i for i, excess in enumerate(beyond) if excess <= 0]
    best = min(held, key=lambda i: tried[i][2]) if held else int(np.argmin(beyond))
    tube, ks, _ = tried[best]
    return TubeFit(tube, ks, bool(held), len(tried))


def fit_within(scores: Scores, slack: float) -> TubeFit:
    """Return the map of least square cost that keeps every two groups within ``slack`` of each other, by draws."""
    free, codes = scores.score, scores.codes
    if slack >= 1.0 or ks_between(free, codes, scores.weight, scores.groups) <= slack:
        return _unmoved(scores)
    return _by_draws(scores, near_each_other(scores, slack))


def _unmoved(scores: Scores) -> TubeFit:
    return TubeFit(Tube(scores.levels, None, np.ones((scores.groups, 0))), scores.free, True, 1)


def _by_draws(scores: Scores, tube: Tube) -> TubeFit:
    return TubeFit(tube, np.abs(tube.steps - scores.shares @ tube.steps).max(axis=1), True, 1)


def _without_draws(scores: Scores, slack: Floats) -> tuple[Tube, Floats, float]:
    """Return the map of the middles of the levels, its distances and its cost."""
    spread = near_everybody(scores, slack)
    tube = Tube(tuple(one.middle for one in spread.levels), spread.outputs, spread.steps)
    outputs = np.empty_like(scores.score)
    for k in range(scores.groups):
        inside = scores.codes == k
        outputs[inside] = tube.of_group(k, scores.score[inside], np.zeros(int(inside.sum())))
    cost = float(np.average((outputs - scores.score) ** 2, weights=scores.weight))
    return tube, scores.distances(outputs), cost


# ---------------------------------------------------------------------- several problems in one map


def with_outputs(tube: Tube, scores: Scores) -> Tube:
    """Return a tube that has outputs, also where it leaves scores as they are.

    Then it is a line between atoms without mass, far enough apart for the scores of the rows: it holds none of them.
    The atoms are 0 and powers of two, so that a positive score is not even rounded.
    """
    if tube.outputs is not None:
        return tube
    end = 2.0 ** math.ceil(math.log2(max(float(np.abs(scores.score).max()), 1.0)))
    at, level = np.array([-end, 0.0, end]), np.array([0.125, 0.5, 0.875])
    same = ScoreLevels(at, at, level, level)
    return Tube((same,) * scores.groups, at, np.tile([0.25, 0.75, 1.0], (scores.groups, 1)))


def side_by_side(tubes: Sequence[Tube]) -> Tube:
    """Return the tube of the groups of all tubes, one after the other; each takes only its own values."""
    outputs = np.unique(np.concatenate([tube.new_scores for tube in tubes]))
    steps = []
    for tube in tubes:
        upto = np.searchsorted(tube.new_scores, outputs, side="right")
        steps.append(np.pad(tube.steps, ((0, 0), (1, 0)))[:, upto])
    return Tube(tuple(one for tube in tubes for one in tube.levels), outputs, np.concatenate(steps))


# ---------------------------------------------------------------------- atoms


def cuts(knots: Floats, mass: Floats, most: int) -> Ints:
    """Return where atoms begin, so that there are about ``most``: as even in mass as in what pooling them costs.

    Pooling costs least where bins are even in ``(density)^{1/3}`` (Panter and Dite, 1951); heavy scores stand alone.
    """
    if knots.size <= most:
        return np.arange(knots.size)
    gap = np.gradient(knots)
    cost = np.cumsum(np.cbrt(mass * gap**2))
    even = np.cumsum(mass)
    heavy = mass > even[-1] / most
    bin_ = np.floor(0.5 * most * ((even - mass / 2) / even[-1] + cost / cost[-1]))
    new = np.diff(bin_) > 0
    return np.flatnonzero(np.concatenate([[True], new | heavy[1:] | heavy[:-1]]))


def of_least(first: Ints, rows: Floats | Ints, least: int) -> Ints:
    """Return where atoms of at least ``least`` rows begin, made of neighbouring ones; ``rows`` are those of each score.

    What is left at the end belongs to the last atom.
    """
    if least <= 1:
        return first
    upto = np.append(0, np.cumsum(np.add.reduceat(rows, first)))
    starts = [0]
    while upto[-1] - upto[starts[-1]] >= 2 * least:
        after = int(np.searchsorted(upto, upto[starts[-1]] + least))
        if upto[-1] - upto[after] < least:
            break
        starts.append(after)
    return first[starts]


def ends_between(knots: Floats, first: Ints, last: Ints, mean: Floats) -> tuple[Floats, Floats]:
    """Return the ends of atoms, which are no scores of single rows: in the middle between two atoms.

    Only an atom that is one score, of many rows, ends at it. The outermost ends are means, since scores beyond them
    belong to the same atom.
    """
    between = (knots[last[:-1]] + knots[first[1:]]) / 2
    alone = first == last
    low = np.where(alone, knots[first], np.append(mean[0], between))
    high = np.where(alone, knots[last], np.append(between, mean[-1]))
    return low, np.maximum(low, high)
