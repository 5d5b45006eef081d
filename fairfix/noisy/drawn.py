r"""Bounds of rates if noise depends on outcomes by at most eps (N3), of data and tables drawn anew.

Each end of a rate's range in each draw is a linear program, and a limit with sampling error is a low or a high
quantile over the draws: of an end few draws count, and of a comparison few groups. So programs are solved only where a
limit hangs on them. By weak duality the multipliers of one program, ``u_k(c)`` of the masses and those of the limits of
noise, bound the same end in every draw. With the masses ``m`` and the table ``C`` of a draw, and the multipliers of its
limits gathered in costs ``f_jk(c)``, the least of ``sign A - t (A + B)`` is at least

.. math:: \sum_{kc} u_k(c) m_k(c) + \sum_{jk} C_{jk} \min_c \{f_{jk}(c) - u_k(c)\},

plus ``e_k min_c u_k(c)`` for a row of mass ``e_k`` that may be in any cell of noisy group k
(:mod:`fairfix.noisy.imagined`). It falls with t, and the end is at least the t at which it is 0 (W. Dinkelbach, *On
nonlinear fractional programming*, 1967). A bad multiplier bounds badly, never wrongly. Every solution is also a point
that its draw allows, and bounds all ends of the draw from the other side.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fairfix.noisy.bounds import Bools, Pair
from fairfix.noisy.comparisons import RateBounds, ends_of, pairs, quantile, worst
from fairfix.noisy.epsilon import sensitivity_bounds, sides_of
from fairfix.noisy.polytope import Ints, Optimum, Polytope, inner_point, joint_masses, optimum
from fairfix.noisy.rates import CELLS_OF_LABEL, Floats, Ratio, quotient

SIGNS = np.array([1.0, -1.0])
"""Of the lowest and of the highest rate: ends are kept as the least of the rate times its sign."""

TIGHT = 1e-10
"""Distance of the bounds of an end from which on it is known; the solver itself rounds by some 1e-12."""

INSIDE = 1e-6
"""Share of a group that some point has in each denominator, for the ends of the draw to be programs that are solved."""

SMALL = 50
"""Joint masses of a program up to which it is quicker to solve all of them, several in a call."""

STEPS = 50
"""Of the search for the t of a bound, which makes as many as there are noisy groups at most."""

SWEEPS = 1
"""Over the multipliers of the masses, for other draws; the first saves half of all programs, more save few."""

MIXES = np.linspace(0.0, 1.0, 9)
"""Of two simple joint masses, one of which nearly always is allowed."""


class _Programs:
    """Ends of ratios over the joint masses of every draw, as the least of the ratio times its sign, (R, n, 2, J).

    ``low`` bounds an end from below, ``high`` is what some point reaches; of a solved end both are its value. NaN where
    a group has no rows.

    Parameters
    ----------
    masses, tables
        Masses by noisy group and cell, shape (R, K, c), and tables, shape (R, J, K).
    tops, rows
        The cells of A, and those of A and B, of each ratio, shape (n, c).
    imagined
        Masses of rows in unknown cells that the tables hold besides, shape (R, K).
    """

    def __init__(
        self, masses: Floats, tables: Floats, eps: float, tops: Floats, rows: Floats, imagined: Floats
    ) -> None:
        self.masses, self.tables, self.eps, self.tops, self.rows = masses, tables, eps, tops, rows
        self.imagined = imagined
        self.sizes = tables.sum(-1)
        self.noise = quotient(tables, self.sizes[..., None], 1.0 / tables.shape[-1])
        shape = (len(tables), len(tops), 2, tables.shape[1])
        blank = np.where(self.sizes > 0, 0.0, np.nan)[:, None, None]
        self.low = np.broadcast_to(np.minimum(SIGNS, 0.0)[:, None] + blank, shape).copy()
        self.high = np.broadcast_to(np.maximum(SIGNS, 0.0)[:, None] + blank, shape).copy()
        self.solved = 0
        """Programs so far."""
        self._spaces: dict[int, Polytope] = {}
        self._allowed = self._mixed()

    def _mixed(self) -> Floats:
        """Return cells of true groups that each draw allows, (R, J, c); NaN where no mix of two simple ways is allowed.

        These are that outcomes do not depend on the true group given the recorded one, and on the recorded one given
        the true (N4), which may leave negative masses.
        """
        masses, columns = self.masses, self.tables.sum(-2)[..., None]
        given_noisy = quotient(masses, masses.sum(-1, keepdims=True), 1.0 / masses.shape[-1])
        masses = given_noisy * columns  # imagined rows are as the others of their group
        true = np.linalg.pinv(np.swapaxes(self.noise, -1, -2)) @ masses
        ways = self.tables[..., None] * given_noisy[:, None], self.noise[..., None] * true[:, :, None]
        out = np.full((*self.sizes.shape, self.masses.shape[-1]), np.nan)
        for mix in MIXES:
            q = mix * ways[0] + (1.0 - mix) * ways[1]  # (R, J, K, c)
            off = np.abs(q.sum(1) - masses).max((1, 2)) + np.abs(q.sum(-1) - self.tables).max((1, 2))
            cells = q.sum(2)
            far = np.abs(q - self.noise[..., None] * cells[:, :, None]) - self.eps * cells[:, :, None]
            fits = (off <= TIGHT) & (np.maximum(far, -q).max((1, 2, 3)) <= TIGHT) & np.isnan(out[:, 0, 0])
            out[fits] = cells[fits]
        return out

    @property
    def size(self) -> int:
        """Joint masses of a program."""
        return int(np.prod(self.tables.shape[1:]) * self.masses.shape[-1])

    def space(self, draw: int) -> Polytope:
        """Return the joint masses of a draw."""
        if draw not in self._spaces:
            part = self.masses[draw], self.tables[draw]
            self._spaces[draw] = joint_masses([part], self.eps, at_least=True)
        return self._spaces[draw]

    def has_inside(self, draw: int) -> bool:
        """Return whether a point has something in each denominator, so that all ends of the draw are defined."""
        cells, groups = self._allowed[draw], np.flatnonzero(self.sizes[draw] > 0)
        if not (self.rows @ cells[groups].T > INSIDE * self.sizes[draw, groups]).all():
            space = self.space(draw)
            bottoms = [
                space.placed(j, [rows / self.sizes[draw, j]])
                for rows in np.unique(self.rows, axis=0)
                for j in groups.tolist()
            ]
            x, least = inner_point(space, np.array(bottoms))
            if not least > INSIDE:
                return False
            cells = x[space.masses[0]].sum(1)
        self._reach(draw, cells)
        return True

    def solve(self, places: Bools) -> list[int]:
        """Solve for the ends at the places that are not yet known; return the draws of which the solver finds none."""
        failed = []
        for draw in np.flatnonzero(places.any((1, 2, 3))).tolist():
            for place in zip(*np.nonzero(places[draw]), strict=True):
                number, side, group = map(int, place)
                at = draw, number, side, group
                if self.high[at] - self.low[at] <= TIGHT:  # known by what was solved before it
                    self.low[at] = self.high[at]
                    continue
                space = self.space(draw)
                top = space.placed(group, [SIGNS[side] * self.tops[number]])
                self.solved += 1
                solution = optimum(space, top, space.placed(group, [self.rows[number]]))
                if solution is None:
                    failed.append(draw)
                    break
                self._reach(draw, solution.x[space.masses[0]].sum(1))
                end = np.clip(solution.least, min(SIGNS[side], 0.0), max(SIGNS[side], 0.0))
                self.low[at] = self.high[at] = end
                self._bound(number, side, group, solution)
        return failed

    def _reach(self, draw: int, cells: Floats) -> None:
        """Learn from cells of true groups that a draw allows, (J, c), up to their scale."""
        bottom = self.rows @ cells.T
        defined = bottom > INSIDE * cells.sum(1)
        rates = quotient(self.tops @ cells.T, np.where(defined, bottom, 0.0))
        ends = rates[:, None] * SIGNS[:, None]
        self.high[draw] = np.maximum(np.fmin(self.high[draw], ends), self.low[draw])

    def _bound(self, number: int, side: int, group: int, solution: Optimum) -> None:
        """Bound an end in all draws by the multipliers of one."""
        low, high = self.low[:, number, side, group], self.high[:, number, side, group]
        (u,), ((above, below),) = solution.of_cells, solution.of_limits
        row = self.rows[number] > 0
        draws = np.flatnonzero(high - low > TIGHT)
        for sweep in range(SWEEPS + 1):
            if not draws.size:
                return
            noise = self.noise[draws]
            of_totals = np.einsum("jkc,rjk->rjc", below, noise - self.eps)
            of_totals -= np.einsum("jkc,rjk->rjc", above, noise + self.eps)
            costs = above - below + of_totals[:, :, None]  # (R, J, K, c)
            costs[:, group] += SIGNS[side] * self.tops[number]
            of_cells = np.broadcast_to(u, (len(draws), *u.shape))
            if sweep:
                at_bound = costs.copy()
                at_bound[:, group] -= low[draws, None, None] * row
                of_cells = _better(of_cells, at_bound, self.masses[draws], self.tables[draws])
            t = _largest(
                costs - of_cells[:, None],
                np.einsum("rkc,rkc->r", of_cells, self.masses[draws])
                + (of_cells.min(-1) * self.imagined[draws]).sum(-1),
                self.tables[draws],
                group,
                row,
                (low[draws], high[draws]),
            )
            low[draws] = np.maximum(low[draws], np.minimum(t - TIGHT, high[draws]))
            # a draw above another's end may wait, until it is asked for
            draws = draws[low[draws] < np.sort(high)[:2].max()]


def _largest(left: Floats, rest: Floats, tables: Floats, group: int, row: Bools, between: Pair) -> Floats:
    """Return the largest t at which the bound of ``A - t (A + B)`` is not negative, shape (R,); infinite where none is.

    Parameters
    ----------
    left
        Costs without what multipliers take up, at t = 0, shape (R, J, K, c).
    rest
        What multipliers add, shape (R,).
    tables
        Shape (R, J, K).
    group, row
        The group and the cells of the denominator.
    between
        Where t is looked for.
    """
    low, t = between[0], between[1].copy()
    least = tables * left.min(-1)
    rest = rest + least.sum((1, 2)) - least[:, group].sum(-1)
    inside, outside = left[:, group][..., row].min(-1), left[:, group][..., ~row].min(-1, initial=np.inf)
    table = tables[:, group]
    for _ in range(STEPS):  # Newton's, from above, on a concave function that falls
        over = rest + (table * np.minimum(inside - t[:, None], outside)).sum(-1)
        slope = np.where(inside - t[:, None] <= outside, table, 0.0).sum(-1)
        short = (over < -TIGHT * slope) | ((over < 0) & (slope == 0))
        short &= t > low
        if not short.any():
            return t
        t = np.where(short, np.maximum(t + quotient(over, slope, -np.inf), low), t)
    return np.where(short, -np.inf, t)


def _better(u: Floats, costs: Floats, masses: Floats, tables: Floats) -> Floats:
    """Return multipliers of the masses with a bound that is no worse, cell by cell, shape (R, K, c).

    As a function of one multiplier, the others fixed, the bound is concave and piecewise linear: in each noisy group a
    true group's rows move to the cell, the cheaper for it the earlier, until the cell has its mass.
    """
    u = u.copy()
    for cell in range(u.shape[-1]):
        left = costs - u[:, None]
        left[..., cell] = np.inf
        turns = costs[..., cell] - left.min(-1)  # (R, J, K)
        order = np.argsort(turns, 1)
        moved = np.take_along_axis(tables, order, 1).cumsum(1)
        at = (moved < masses[:, None, :, cell]).sum(1, keepdims=True)
        turns = np.take_along_axis(turns, order, 1)
        u[..., cell] = np.take_along_axis(turns, np.minimum(at, turns.shape[1] - 1), 1)[:, 0]
    return u


class DrawnEnds(Mapping[str, Pair]):
    """Ends of rates in every draw: metric -> (low, high), shape (R, J) each, all solved when a metric is asked for.

    :meth:`settled` solves those on which limits hang, and returns certified bounds in place of the others.
    Draws that the data refute, or in which an end may be undefined, are solved as those of the data are.

    Parameters
    ----------
    masses, tables
        Masses of TP, FN, FP, TN in noisy groups, shape (R, K, 4), and tables with their columns, shape (R, J, K), or
        (R, 2, J, K) by label.
    metrics, eps
        As of :func:`fairfix.noisy.epsilon.sensitivity_bounds`.
    imagined
        Masses of rows in unknown cells that the tables hold besides, shape (R, K), or (R, 2, K) by label.
    """

    def __init__(
        self,
        masses: Floats,
        tables: Floats,
        metrics: Mapping[str, Ratio],
        eps: float,
        imagined: Floats,
    ) -> None:
        self.masses, self.tables, self.metrics, self.eps = masses, tables, metrics, eps
        self.imagined = imagined
        self.by_label = tables.ndim == 4
        if self.by_label:
            share = np.array([[1.0, 0.0]])
            self._programs = [
                _Programs(
                    masses[..., own],
                    tables[:, label],
                    eps,
                    share,
                    np.ones_like(share),
                    self.imagined[:, label],
                )
                for label, own in enumerate(CELLS_OF_LABEL)
            ]
        else:
            every = metrics.values()
            tops, rows = (
                np.array(cells, dtype=float) for cells in ([r.a for r in every], [r.rows for r in every])
            )
            self._programs = [_Programs(masses, tables, eps, tops, rows, self.imagined)]
        self._whole = np.zeros(len(tables), dtype=bool)
        self.shape = len(tables), len(metrics), 2, tables.shape[-2]
        self._of_whole = np.full(self.shape, np.nan)
        simple = eps >= 1 or self._programs[0].size <= SMALL
        self._solve_whole([draw for draw in range(len(tables)) if simple or not self._is_regular(draw)])
        self._solve_undefined()

    def _is_regular(self, draw: int) -> bool:
        """Return whether something is allowed in a draw, and every rate is defined of groups with rows."""
        return all(one.has_inside(draw) for one in self._programs)

    def __len__(self) -> int:
        return len(self.metrics)

    def __iter__(self) -> Iterator[str]:
        return iter(self.metrics)

    def __contains__(self, metric: object) -> bool:
        return metric in self.metrics  # that of Mapping would solve all of its ends

    def __getitem__(self, metric: str) -> Pair:
        places = np.zeros(self.shape, dtype=bool)
        places[:, list(self.metrics).index(metric)] = True
        self._solve(places)
        (ends,) = self._pairs([metric], self._ends())
        return ends

    @property
    def programs(self) -> int:
        """Programs solved so far, of draws that are not solved as a whole."""
        return sum(one.solved for one in self._programs)

    @property
    def refuted(self) -> int:
        """Draws in which no joint masses satisfy the assumption."""
        return int(np.isnan(self._of_whole[self._whole]).all((1, 2, 3)).sum())

    # ------------------------------------------------------------------ ends

    def _ends(self, *, reached: bool = False) -> Floats:
        """Return bounds of all ends times their signs, (R, metrics, 2, J), or what some point of each draw reaches."""
        kept = [one.high if reached else one.low for one in self._programs]
        out = self._of_shares(kept) if self.by_label else kept[0].copy()
        out[self._whole] = self._of_whole[self._whole]
        return out

    def _of_shares(self, kept: Sequence[Floats]) -> Floats:
        """Return ends of rates, of those of the shares of each label that are decided for."""
        out = np.empty(self.shape)
        for number, side, ratio, ways in self._ways():
            cells = np.empty((*out[:, 0, 0].shape, 4))
            for label, at in enumerate(ways):
                share = np.round(np.nan_to_num(kept[label][:, 0, at] * SIGNS[at]), 9)  # as for the data
                sizes = self._programs[label].sizes
                cells[..., CELLS_OF_LABEL[label]] = np.stack([sizes * share, sizes * (1.0 - share)], -1)
            out[:, number, side] = SIGNS[side] * ratio.of(cells)
        return out

    def _ways(self) -> Iterator[tuple[int, int, Ratio, list[int]]]:
        """Yield number and side of each end of a rate, with the side of each label's share that it needs."""
        for number, ratio in enumerate(self.metrics.values()):
            for side, sign in enumerate(SIGNS.tolist()):
                yield number, side, ratio, [0 if way > 0 else 1 for way in sides_of(ratio, sign)]

    def _solve(self, places: Bools) -> None:
        """Solve for the ends at the places."""
        places = places & ~self._whole[:, None, None, None]
        if self.by_label:
            shares = [np.zeros((len(places), 1, *places.shape[2:]), dtype=bool) for _ in self._programs]
            for number, side, _, ways in self._ways():
                for label, at in enumerate(ways):
                    shares[label][:, 0, at] |= places[:, number, side]
        else:
            shares = [places]
        for one, own in zip(self._programs, shares, strict=True):
            self._solve_whole(one.solve(own))
        self._solve_undefined()

    def _solve_undefined(self) -> None:
        """Solve the draws as a whole in which a group has rows that a rate is about, and the rate no denominator."""
        if not self.by_label:
            return  # each has something in all denominators
        ends = self._ends()
        for number, ratio in enumerate(self.metrics.values()):
            about = [np.array(ratio.rows)[cells].any() for cells in CELLS_OF_LABEL]
            rows = sum(one.sizes for one, is_about in zip(self._programs, about, strict=True) if is_about)
            odd = np.isnan(ends[:, number]) & (rows > 0)[:, None] & ~self._whole[:, None, None]
            self._solve_whole(np.flatnonzero(odd.any((1, 2))).tolist())

    def _solve_whole(self, draws: Sequence[int]) -> None:
        """Solve draws as the data are."""
        for draw in draws:
            bounds = sensitivity_bounds(
                self.masses[draw], self.tables[draw], self.metrics, self.eps, self.imagined[draw]
            )
            self._of_whole[draw] = np.array(list(bounds.values())) * SIGNS[:, None]
            self._whole[draw] = True

    # ------------------------------------------------------------------ limits

    def settled_groups(self, metric: str, level: float) -> Pair:
        """Return the ends of a rate in all draws, solved where the quantile at a level of either side hangs on them."""
        number = list(self.metrics).index(metric)
        while True:
            ends = self._ends()
            places = np.zeros(ends.shape, dtype=bool)
            places[:, number] = _lowest(ends[:, number], level)
            places &= self._unknown(ends)
            # one at a time: its multipliers may show that the next does not matter
            lowest = np.argmin(np.where(places, ends, np.inf), 0)
            places &= np.arange(len(ends))[:, None, None, None] == lowest
            if not self._solved_some(places):
                return self._pairs([metric], ends)[0]

    def settled(self, kind: str, metrics: Sequence[str], level: float, apart: float) -> list[Pair]:
        """Return the ends of rates in all draws, solved where the limits of a comparison hang on them.

        These are those of :meth:`fairfix.noisy.comparisons.RateBounds.of_comparison`, at a level on each side.
        ``apart`` is the end of the comparison on the data that says how far groups are apart at least: the limit is no
        further.
        """
        most = kind in ("difference", "max")
        self._settle_reach(_Numbers(self, kind, metrics, 1 if most else 0), level)
        near = _Numbers(self, kind, metrics, 0 if most else 1)
        self._settle_apart(near, level, float(SIGNS[near.side]) * apart)
        return self._pairs(metrics, self._ends())

    def _pairs(self, metrics: Sequence[str], ends: Floats) -> list[Pair]:
        """Return (low, high) of some rates."""
        numbers = [list(self.metrics).index(name) for name in metrics]
        return [(ends[:, number, 0], 0.0 - ends[:, number, 1]) for number in numbers]  # 0.0, not -0.0

    def _solved_some(self, places: Bools) -> bool:
        """Solve for the ends at the places that are not known; return whether there were some."""
        unknown = places & self._unknown(self._ends())
        if unknown.any():
            self._solve(unknown)
        return bool(unknown.any())

    def _unknown(self, ends: Floats) -> Bools:
        """Return the places of ends that are not known; a point may reach no rate where there is one."""
        return ~(np.isnan(ends) | (self._ends(reached=True) - ends <= TIGHT))

    def _settle_reach(self, numbers: _Numbers, level: float) -> None:
        """Solve for the quantile over draws of what all pairs or groups reach."""
        while True:
            bounds = numbers.of(self._ends())
            first = np.argmin(np.where(np.isnan(bounds), np.inf, bounds), 1)
            draws = np.flatnonzero(_lowest(np.fmin.reduce(bounds, 1), level))
            places = numbers.places(draws, first[draws]) | numbers.undefined(bounds)
            if not self._solved_some(places):
                return

    def _settle_apart(self, numbers: _Numbers, level: float, enough: float) -> None:
        """Solve for the largest quantile over draws of all pairs or groups, at a level that holds for all at once."""
        share, settled = level / numbers.many, np.zeros(numbers.many, dtype=bool)
        while True:
            bounds, reached = numbers.of(self._ends()), numbers.of(self._ends(reached=True))
            if self._solved_some(numbers.undefined(bounds)):
                continue
            least = quantile(bounds, share)
            most = np.where(settled, least, quantile(reached, share))
            if np.isnan(most).all() or np.fmax.reduce(least) >= enough:
                return
            first = int(np.nanargmax(most))
            if most[first] <= np.fmax(np.fmax.reduce(least), numbers.cap) + TIGHT:
                return
            draws = np.flatnonzero(_lowest(bounds[:, first], share))
            settled[first] = not self._solved_some(numbers.places(draws, np.full(draws.size, first)))


@dataclass(frozen=True, eq=False)
class _Numbers:
    """Numbers of pairs or groups on a side of a comparison, times the sign of the side: the further out, the lower."""

    drawn: DrawnEnds
    kind: str
    metrics: Sequence[str]
    side: int

    @property
    def cap(self) -> float:
        """The number below which none counts."""
        return 0.0 if self.kind == "difference" else -math.inf

    @cached_property
    def _at(self) -> list[tuple[Ints, Ints, Ints]]:
        """Rate, side and group of the ends that make up each number."""
        numbers = [list(self.drawn.metrics).index(name) for name in self.metrics]
        groups = self.drawn.tables.shape[-2]
        sides = (self.side, 1 - self.side)
        own = [np.arange(groups)] if self.kind in ("min", "max") else pairs(groups)
        return [
            (np.repeat(numbers, who.size), np.full(who.size * len(numbers), side), np.tile(who, len(numbers)))
            for side, who in zip(sides, own, strict=False)  # of a group, one end
        ]

    @property
    def many(self) -> int:
        """How many numbers there are."""
        return self._at[0][0].size

    def of(self, ends: Floats) -> Floats:
        """Return the numbers in every draw, (R, numbers)."""
        both = ends_of(self.kind, self.drawn._pairs(self.metrics, ends))
        return np.asarray(SIGNS[self.side] * both[self.side])

    def places(self, draws: Ints, numbers: Ints) -> Bools:
        """Return the places of the ends that make up some numbers of some draws, (R, metrics, 2, J)."""
        out = np.zeros(self.drawn.shape, dtype=bool)
        for end in self._at:
            out[(draws, *(place[numbers] for place in end))] = True
        return out

    def undefined(self, bounds: Floats) -> Bools:
        """Return the places of numbers that are undefined, as a quotient of bounds may be where that of ends is not."""
        return self.places(*np.nonzero(np.isnan(bounds)))


def _lowest(numbers: Floats, level: float) -> Bools:
    """Return the draws, first axis, on which a low quantile hangs: those around it and below."""
    rank = np.argsort(np.argsort(numbers, axis=0, kind="stable"), axis=0)
    defined = (~np.isnan(numbers)).sum(0)
    needed = np.floor(level * (defined - 1)).astype(np.int64) + 2
    return np.asarray(rank < np.minimum(needed, defined))


@dataclass(frozen=True, eq=False)
class DrawnBounds(RateBounds):
    """Bounds of which draws are solved where limits hang on them."""

    draws: DrawnEnds

    def _drawn(self, kind: str, metrics: Sequence[str]) -> Sequence[Pair]:
        """Return the ends of rates in every draw."""
        if not kind:
            return [self.draws.settled_groups(name, self.alpha / 2) for name in metrics]
        ends = ends_of(kind, [self.rates[name] for name in metrics])
        apart = worst(kind, ends[0 if kind in ("difference", "max") else 1])
        return self.draws.settled(kind, metrics, self.alpha / 2, float(apart))
