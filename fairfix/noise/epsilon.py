"""Rates of true groups if noise depends on outcomes by at most eps (N3), as a function of eps, and breakdown points.

Each end of a rate's range is a linear program over :mod:`fairfix.noise.uncertainty_set`; from eps = 1 on there is
a closed form. Bounds become wider with eps, so those at a smaller and at a larger eps enclose those between.
The search for the largest eps at which a limit is kept solves only the ends on which the answer hangs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np

from fairfix.noise.added_rows import LOWER, UPPER, with_row
from fairfix.noise.bounds import Pair, require_fit, table_bounds
from fairfix.noise.comparisons import compared, ends_of, pairs
from fairfix.noise.confusion_matrix_inversion import invert
from fairfix.noise.observed_groups import Recorded
from fairfix.noise.rates import CELLS_OF_LABEL, RATIOS, Floats, Ratio
from fairfix.noise.uncertainty_set import UncertaintySet, joint_masses, ratio_ends, smallest_eps

CURVE = (0.01, 0.02, 0.05, 0.1)
"""Values of eps at which the sensitivity curve is told; 0 would be N4, which has to be asked for."""

MANY = 36
"""True times noisy groups beyond which the curve is left out, because its linear programs are large."""

PRECISION = 1e-4
"""Tolerance of breakdown points."""

ROOM = 1e-5
"""Distance to the least eps that the data allow, within which bounds are those at this distance."""

Holds = Callable[[float, float], bool]
"""Whether something holds of both ends of a comparison; as bounds become wider it becomes false, never true."""

Place = tuple[int, int, int]
"""An end of a range: number of the rate, side (0 for the lowest), group."""


@dataclass(frozen=True)
class End:
    """An end of a range: the least (sign 1) or the largest (-1) rate of a true group."""

    ratio: Ratio
    group: int
    sign: float

    def placed(self, space: UncertaintySet, which: Sequence[list[int]]) -> tuple[Floats, Floats]:
        """Return numerator and denominator over a set whose parts have the cells ``which``."""
        top, bottom = (
            space.placed(self.group, [np.array(cells, dtype=np.float64)[own] for own in which])
            for cells in (self.ratio.a, self.ratio.rows)
        )
        return top, bottom


def cell_parts(
    m: Floats, C: Floats, imagined: Floats | None = None
) -> tuple[list[tuple[Floats, Floats]], list[list[int]]]:
    """Return pairs of masses and table, one by label, and the cells of each; see :func:`sensitivity_ends`."""
    by_label = C.ndim == 3
    whole = (
        m if imagined is None else with_row(m, imagined, RATIOS["selection_rate"], LOWER, by_label=by_label)
    )
    require_fit(whole, C, by_label=by_label)
    which = list(CELLS_OF_LABEL) if by_label else [[0, 1, 2, 3]]
    return [(m[:, own], table) for own, table in zip(which, C if by_label else [C], strict=True)], which


def least_eps(m: Floats, C: Floats) -> float:
    """Return the least eps that masses and table allow; arguments as in :func:`sensitivity_ends`."""
    return smallest_eps(cell_parts(m, C)[0])


def sensitivity_ends(
    m: Floats, C: Floats, eps: float, ends: Sequence[End], imagined: Floats | None = None
) -> Floats:
    """Return ends of the range of rates if noise depends on the cell by at most eps.

    Parameters
    ----------
    m, C
        Masses of TP, FN, FP, TN in noisy groups, shape (K, 4), and a table with their columns, shape (J, K), or
        (2, J, K) by label.
    eps
        Largest ``|P(noisy = k | true = j, cell) - T_jk|``; with a table by label noise may depend on the label freely,
        and on decisions by eps.
    imagined
        Masses of rows in unknown cells that the columns of the table hold besides, shape (K,), or (2, K) by label.

    Returns
    -------
    A number for each end; NaN where a group has no denominator, and everywhere if the data refute the assumption.
    Where the solver gives up, as it may near the least eps that the data allow, the end is that of any noise: it holds.
    """
    parts, which = cell_parts(m, C, imagined)
    out = np.full(len(ends), np.inf)
    if eps < 1:
        space = joint_masses(parts, eps, at_least=imagined is not None)
        out = ratio_ends(space, [(*end.placed(space, which), end.sign) for end in ends])
    lost = {i: ends[i] for i in np.flatnonzero(np.isinf(out)).tolist()}
    any_noise = {
        (ratio, side): table_bounds(
            m if imagined is None else with_row(m, imagined, ratio, side, by_label=C.ndim == 3), C, ratio
        )[side]
        for ratio in {end.ratio for end in lost.values()}
        for side in (LOWER, UPPER)
    }
    for i, end in lost.items():
        out[i] = any_noise[end.ratio, LOWER if end.sign > 0 else UPPER][end.group]
    return np.asarray(np.clip(out, 0.0, 1.0) + 0.0)  # the solver rounds, and nothing is to be divided by -0.0


def sensitivity_bounds(
    m: Floats, C: Floats, ratios: Mapping[str, Ratio], eps: float, imagined: Floats | None = None
) -> dict[str, Pair]:
    """Return the sharp bounds of every group's rates by name, shape (J,) each; see :func:`sensitivity_ends`."""
    groups = C.shape[-2]
    ends = [End(ratio, j, sign) for ratio in ratios.values() for sign in (1.0, -1.0) for j in range(groups)]
    bounds = sensitivity_ends(m, C, eps, ends, imagined).reshape(-1, 2, groups)
    return {name: (low, high) for name, (low, high) in zip(ratios, bounds, strict=True)}


@dataclass(eq=False)
class _Between:
    """Ends of rates, shape (rates, 2, J), at an eps between a smaller one (near) and a larger one (far)."""

    kind: str
    near: Floats
    far: Floats
    holds: Holds

    def good(self, low: float, high: float) -> bool:
        """Return whether it holds; of nothing it does not."""
        return not math.isnan(low) and self.holds(low, high)

    def decide(self, solve: Callable[[Sequence[Place]], Floats]) -> bool:
        """Return whether it holds; of the ends only those are solved on which that hangs, one pair after another."""
        while True:
            near, far = compared(self.kind, self.near), compared(self.kind, self.far)
            if self.good(*far):
                return True
            if not self.good(*near):
                return False
            places = self._open(1 if self.good(far[0], near[1]) else 0)
            for place, end in zip(places, solve(places), strict=True):
                self.near[place] = self.far[place] = end

    def _open(self, side: int) -> list[Place]:
        """Return the unsolved ends of the pair (or group) that may reach an end of the comparison."""
        most = self.kind in ("difference", "max")
        source = self.near if (side == 0) == most else self.far
        reach = ends_of(self.kind, source)[side]
        with np.errstate(invalid="ignore"):
            solved = (self.near == self.far) | (np.isnan(self.near) & np.isnan(self.far))
        unsolved = [[place for place in pair if not solved[place]] for pair in self._pairs(side)]
        score = np.where(np.isnan(reach), -np.inf, reach if most else -reach)
        return next(unsolved[at] for at in np.argsort(-score, kind="stable") if unsolved[at])

    def _pairs(self, side: int) -> Iterator[tuple[Place, ...]]:
        """Yield the ends that make up each number of :func:`ends_of`."""
        rates, _, groups = self.near.shape
        for rate in range(rates):
            if self.kind in ("min", "max"):
                yield from (((rate, side, j),) for j in range(groups))
            else:
                for i, j in zip(*pairs(groups), strict=True):
                    yield (rate, side, int(i)), (rate, 1 - side, int(j))


class EpsCurve:
    """Bounds of rates under N3 as a function of eps; the table has the ``P(noisy | true)`` that N3 is about."""

    def __init__(self, data: Recorded, table: Floats) -> None:
        self.data, self.table = data, table
        self.least = least_eps(data.cells, table)
        self._bounds: dict[float, dict[str, Pair]] = {}

    @property
    def grid(self) -> tuple[float, ...]:
        """The eps that a report shows."""
        return CURVE if self.table.shape[-2] * self.table.shape[-1] <= MANY else ()

    @property
    def room(self) -> float:
        """The least eps for which programs are solved: with less they are empty or nearly so to the solver."""
        return self.least + ROOM if self.least > 0 else 0.0

    def at(self, metric: str, eps: float) -> Pair:
        """Return the bounds of a rate; NaN where the data refute that eps."""
        if eps not in self._bounds:
            self._bounds[eps] = self._solved(eps)
        return self._bounds[eps][metric]

    def _solved(self, eps: float) -> dict[str, Pair]:
        ratios = self.data.metrics
        if eps < self.least:
            nothing = np.full(self.table.shape[-2], np.nan)
            return dict.fromkeys(ratios, (nothing, nothing))
        if eps == 0:
            with suppress(ValueError):  # it can be inverted, and nothing is left open
                masses = invert(self.data.cells, self.table, by_label=self.table.ndim == 3).masses
                return {name: (ratio.of(masses), ratio.of(masses)) for name, ratio in ratios.items()}
        return sensitivity_bounds(self.data.cells, self.table, ratios, max(eps, self.room))

    def _ends(self, metrics: Sequence[str], eps: float) -> Floats:
        """Return all ends, shape (rates, 2, J)."""
        return np.array([self.at(name, eps) for name in metrics])

    def compared(self, kind: str, metrics: Sequence[str], eps: float) -> tuple[float, float]:
        """Return where a comparison lies."""
        return compared(kind, self._ends(metrics, eps))

    def largest(self, holds: Holds, kind: str, metrics: Sequence[str], precision: float = PRECISION) -> float:
        """Return the largest eps at which something holds of both ends of a comparison; NaN if it never does."""
        inside, outside = self.least, 1.0
        between = _Between(kind, self._ends(metrics, inside), self._ends(metrics, outside), holds)
        if not between.good(*compared(kind, between.near)):
            return math.nan
        if between.good(*compared(kind, between.far)):
            return 1.0
        for eps in self.grid:
            if inside < eps < outside:
                if between.good(*self.compared(kind, metrics, eps)):
                    inside, between.near = eps, self._ends(metrics, eps)
                else:
                    outside, between.far = eps, self._ends(metrics, eps)
        while outside - inside > precision:
            middle = (inside + outside) / 2
            trial = _Between(kind, between.near.copy(), between.far.copy(), holds)
            if trial.decide(partial(self._ends_at, middle, metrics)):
                inside, between.near = middle, trial.near
            else:
                outside, between.far = middle, trial.far
        return inside

    def _ends_at(self, eps: float, metrics: Sequence[str], places: Sequence[Place]) -> Floats:
        """Return the ends at the places given."""
        ends = [
            End(self.data.metrics[metrics[rate]], group, 1.0 - 2.0 * side) for rate, side, group in places
        ]
        return sensitivity_ends(self.data.cells, self.table, eps, ends)
