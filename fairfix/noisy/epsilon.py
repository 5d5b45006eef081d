"""Rates of true groups as a function of eps, the largest dependence of noise on outcomes (N3), and breakdown points.

Bounds become wider with eps, so those at a smaller and at a larger eps enclose those between. The search for the
largest eps at which a limit is kept solves only the ends on which the answer hangs; each is a linear program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np

from fairfix.noisy.bounds import Pair
from fairfix.noisy.comparisons import compared, ends_of, pairs
from fairfix.noisy.inversion import invert
from fairfix.noisy.rates import Floats
from fairfix.noisy.recorded import Recorded
from fairfix.noisy.sensitivity import End, least_eps, sensitivity_bounds, sensitivity_ends

CURVE = (0.01, 0.02, 0.05, 0.1)
"""Values of eps at which the sensitivity curve is told; 0 would be N4, which has to be asked for."""

MANY = 36
"""True times noisy groups beyond which the curve is left out, because its linear programs are large."""

PRECISION = 1e-4
"""Of breakdown points of limits."""

ROOM = 1e-5
"""Distance to the least eps that the data allow, within which bounds are those at this distance."""

Holds = Callable[[float, float], bool]
"""Whether something holds of both ends of a comparison; as bounds become wider it becomes false, never true."""

Place = tuple[int, int, int]
"""An end of a range: number of the rate, side (0 for the lowest), group."""


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
    """Bounds of rates under N3 as a function of eps.

    Parameters
    ----------
    data
        The recorded groups.
    table
        Joint masses with the ``P(noisy | true)`` that N3 is about, shape (J, K), or by label (2, J, K).
    """

    def __init__(self, data: Recorded, table: Floats) -> None:
        self.data, self.table = data, table
        self.least = least_eps(data.cells, table)
        self._bounds: dict[tuple[str, float], Pair] = {}

    @property
    def grid(self) -> tuple[float, ...]:
        """The eps that a report shows."""
        return CURVE if self.table.shape[-2] * self.table.shape[-1] <= MANY else ()

    def at(self, metric: str, eps: float) -> Pair:
        """Return the bounds of a rate; NaN where the data refute that eps."""
        if (metric, eps) not in self._bounds:
            self._bounds[metric, eps] = self._solved(metric, eps)
        return self._bounds[metric, eps]

    def _solved(self, metric: str, eps: float) -> Pair:
        ratio = self.data.metrics[metric]
        if eps < self.least:
            nothing = np.full(self.table.shape[-2], np.nan)
            return nothing, nothing
        if eps == 0:
            with suppress(ValueError):  # it can be inverted, and nothing is left open
                rates = ratio.of(invert(self.data.cells, self.table, by_label=self.table.ndim == 3).masses)
                return rates, rates
        room = self.least + ROOM if self.least > 0 else 0.0  # to the solver less is all but empty, or empty
        return sensitivity_bounds(self.data.cells, self.table, ratio, max(eps, room))

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
            if trial.decide(partial(self._some_ends, middle, metrics)):
                inside, between.near = middle, trial.near
            else:
                outside, between.far = middle, trial.far
        return inside

    def _some_ends(self, eps: float, metrics: Sequence[str], places: Sequence[Place]) -> Floats:
        """Return the ends at the places given."""
        ends = [
            End(self.data.metrics[metrics[rate]], group, 1.0 - 2.0 * side) for rate, side, group in places
        ]
        return sensitivity_ends(self.data.cells, self.table, eps, ends)
