"""The rules of the cells of one stratum: ramps of positive width, or thresholds with tie probabilities.

Plain parity has a closed form (:mod:`fairfix.solvers.ramp`). Other constraints are rows of
:mod:`fairfix.solvers.bands`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from fairfix.data.counts import Floats, Ints
from fairfix.data.once import once_per_object
from fairfix.errors import DataError
from fairfix.methods.cells import CellScores, Points, calibrated, cells_of, points_of
from fairfix.methods.problem import RepairProblem
from fairfix.solvers.band_ramps import solve_ramps
from fairfix.solvers.band_thresholds import solve_thresholds
from fairfix.solvers.bands import Bands
from fairfix.solvers.piecewise import Piecewise
from fairfix.solvers.ramp import Cell, solve

if TYPE_CHECKING:
    from fairfix.methods.ramp import Ramp


@dataclass(frozen=True)
class CellRule:
    """The rule of a cell on its calibrated score: a ramp, or a curve; ``on_points``: on the raw score already."""

    curve: Piecewise | None = None
    offset: float = 0.0
    remainder: float = 0.0
    gamma: float = 0.0
    on_points: bool = False

    def shares(self, points: Points) -> tuple[float, float]:
        """Return the shares of the least and the greatest score of a cell; every rule is extreme there."""
        score = points.raw if self.on_points else points.score
        low, high = float(score.min()), float(score.max())
        if self.curve is None:
            return (low - self.offset) / self.gamma, (high - self.offset) / self.gamma
        return tuple(self.curve((low, high)).tolist())

    @cached_property
    def piecewise(self) -> Piecewise:
        """The rule as a curve."""
        if self.curve is not None:
            return self.curve
        return Piecewise.line(1.0 / self.gamma, -(self.offset + self.remainder) / self.gamma)


@dataclass(frozen=True)
class StratumFit:
    """The rules of one stratum, with how the solver went; ``objective`` and ``gap`` per unit of ``mass``.

    ``rho`` is the centre of the band of rates, where there is one band.
    """

    rules: tuple[CellRule, ...]
    mass: float
    converged: bool
    iterations: int
    objective: float
    gap: float
    rho: float = math.nan
    crossed: Mapping[tuple[str, ...], CellRule] = field(default_factory=dict)
    """Rules of cells without rows, by levels: what groups pay is known of each column alone."""


def solve_stratum(method: Ramp, problem: RepairProblem, stratum: int) -> StratumFit:
    """Return the rules of the cells of one stratum."""
    inside, lift = cells_of(problem).strata()[stratum], method.lift(problem.table.data_spec)
    cells = [cells_of(problem).cells[k] for k in inside]
    points = [points_of(problem, method.calibration)[k] for k in inside]
    levels = [cells_of(problem).levels[k] for k in inside]
    each = method.parsed_constraint.each and len(problem.groups.columns) > 1
    groups = groups_of_each(problem, inside) if each else np.arange(len(inside))[:, None]
    if method.about_labels:
        _require_labels(method, cells, points, groups, levels)
    elif method.gamma and not each and method.goal != "covariance":
        return _parity_ramps(method, problem, stratum, cells, lift)
    rates = _Rates.of(method, cells, points, groups, lift)
    if method.gamma == 0:
        return rates.thresholds()
    fit, rules = rates.ramps()
    if not each or math.prod(groups.max(axis=0) + 1) > MOST_CROSSED:
        return fit
    seen = set(map(tuple, groups.tolist()))
    crossed = [one for one in product(*map(range, groups.max(axis=0) + 1)) if one not in seen]
    names = [np.unique(own) for own in _columns(levels, groups.shape[1])]
    above = levels[0][: len(levels[0]) - groups.shape[1]]
    titles = [(*above, *(str(own[k]) for own, k in zip(names, one, strict=True))) for one in crossed]
    made = rules(np.array(crossed, dtype=np.int64).reshape(-1, groups.shape[1]))
    return replace(fit, crossed=dict(zip(titles, made, strict=True)))


def _parity_ramps(
    method: Ramp,
    problem: RepairProblem,
    stratum: int,
    cells: Sequence[CellScores],
    lift: float,
) -> StratumFit:
    """Return the ramps of equal selection rates, from their closed form."""
    rate, ratio = _rate(method, cells, lift), _ratio(method)
    ordered = _sorted_cells(problem, method.calibration, stratum)
    lifted = [cell.lifted(lift) for cell in ordered] if lift else ordered
    best = solve(lifted, method.gamma, method.slack, rate, ratio)
    down = [_shifted(t, r, -lift) for t, r in zip(best.offsets, best.remainders, strict=True)]
    rules = tuple(CellRule(offset=t, remainder=r, gamma=method.gamma) for t, r in down)
    mass = sum(float(cell.weight.sum()) for cell in cells)
    return StratumFit(rules, mass, best.converged, best.iterations, best.objective, best.gap, best.rho)


@once_per_object
def _sorted_cells(problem: RepairProblem, calibration: str, stratum: int) -> list[Cell]:
    points = points_of(problem, calibration)
    return [Cell.of(points[k].score, points[k].weight) for k in cells_of(problem).strata()[stratum]]


@dataclass(frozen=True)
class _Rates:
    """The points of some cells, and the rates of their groups, which lie within bands."""

    method: Ramp
    points: Sequence[Points]
    groups: Ints
    """Group of each cell by attribute, shape (C, J)."""
    lift: float
    bands: Bands
    bases: list[list[Floats]]
    """Rate of each label that counts, by event and attribute, in each group; ones where all rows count."""

    @classmethod
    def of(
        cls,
        method: Ramp,
        cells: Sequence[CellScores],
        points: Sequence[Points],
        groups: Ints,
        lift: float,
    ) -> _Rates:
        """Return the rates of groups among the rows of every event."""
        sizes = [p.score.size for p in points]
        eta, weight = (np.concatenate([getattr(p, name) for p in points]) for name in ("eta", "weight"))
        code, codes, slopes, bases = np.repeat(groups, sizes, axis=0), [], [], []
        for event in method.events:
            counted = {None: np.ones(eta.size), 1: eta}.get(event, 1.0 - eta)
            bases.append([np.bincount(own, weight * counted) / np.bincount(own, weight) for own in code.T])
            codes += list(code.T)
            slopes += [counted / base[own] for base, own in zip(bases[-1], code.T, strict=True)]
        if method.goal == "covariance" and method.slack:
            bands = Bands.of_covariances(code[:, 0], method.slack, weight)
        else:
            rate, ratio = _rate(method, cells, lift), _ratio(method)
            by_row = np.stack(codes, axis=1), method.slack, weight, np.stack(slopes, axis=1)
            bands = Bands.of_groups(*by_row, centre=rate, ratio=ratio)
        return cls(method, points, groups, lift, bands, bases)

    @cached_property
    def scores(self) -> Floats:
        """Scores of all points, lifted."""
        return np.concatenate([p.score for p in self.points]) + self.lift

    @property
    def mass(self) -> float:
        """Sum of the weights of all points."""
        return sum(float(p.weight.sum()) for p in self.points)

    def rho(self, centres: Floats) -> float:
        """Return the centre of the band of rates, where there is one band."""
        if self.bands.centres == 1:
            return float(centres[0])
        return math.nan if self.bands.centres else float(self.bands.target[0])

    def ramps(self) -> tuple[StratumFit, Callable[[Ints], Iterator[CellRule]]]:
        """Return the ramps, and the rules of any cells by their groups, (C, J), whose prices add up."""
        method, lift = self.method, self.lift
        best = solve_ramps(self.scores, self.bands, method.gamma)
        sizes = [base.size for bases in self.bases for base in bases]
        multipliers, common = np.split(
            best.multipliers, [sum(sizes)]
        )  # of covariances, the last is that of all
        parts = iter(np.split(multipliers, np.cumsum(sizes)[:-1]))
        prices = [[next(parts) / base for base in bases] for bases in self.bases]

        def rules(cells: Ints) -> Iterator[CellRule]:
            paid = [sum(own[code] for own, code in zip(one, cells.T, strict=True)) for one in prices]
            for each in np.transpose(paid).tolist():
                if method.about_labels:
                    own = dict(zip(method.events, each, strict=True))
                    yield _line(method, lift, own.get(1, 0.0), own.get(0, 0.0))
                else:
                    t, remainder = _shifted(each[0] + float(common.sum()), 0.0, -lift)
                    yield CellRule(offset=t, remainder=remainder, gamma=method.gamma)

        made, rho = tuple(rules(self.groups)), self.rho(best.centres)
        fit = StratumFit(made, self.mass, best.converged, best.iterations, best.objective, best.gap, rho)
        return fit, rules

    def thresholds(self) -> StratumFit:
        """Return thresholds with probabilities at their ties, or mixtures of a few."""
        sizes = [p.score.size for p in self.points]
        best = solve_thresholds(self.scores, self.bands, np.repeat(np.arange(len(sizes)), sizes))
        shares = np.split(best.shares, np.cumsum(sizes)[:-1])
        rules = tuple(
            CellRule(curve=p.curve(own), on_points=True) for p, own in zip(self.points, shares, strict=True)
        )
        rho = self.rho(best.centres)
        return StratumFit(rules, self.mass, best.converged, best.rounds, -best.value, best.gap, rho)


def _line(method: Ramp, lift: float, one: float, zero: float) -> CellRule:
    """Return the rule where rows pay ``one`` for label 1 and ``zero`` for label 0: a line in ``2 eta - 1``."""
    up, down = one / 2, zero / 2
    return CellRule(curve=Piecewise.line((1 - up + down) / method.gamma, (lift - up - down) / method.gamma))


def groups_of_each(problem: RepairProblem, inside: Sequence[int]) -> Ints:
    """Return the group of some cells by each protected column, numbered from 0 among them, shape (C, J)."""
    columns = len(problem.groups.columns)
    levels = [cells_of(problem).levels[k] for k in inside]
    each = [np.unique(own, return_inverse=True)[1] for own in _columns(levels, columns)]
    return np.stack(each, axis=1).astype(np.int64)


def _columns(levels: Sequence[tuple[str, ...]], columns: int) -> list[tuple[str, ...]]:
    """Return the level of each cell by each of the last columns."""
    return list(zip(*(level[-columns:] for level in levels), strict=True))


MOST_CROSSED = 10_000
"""Cells of one stratum that have rules, at most, where rules are kept of cells without rows too: some megabytes."""


def _ratio(method: Ramp) -> float:
    """Return the share of the centre from which the lower half of the band is counted; 1 for a difference."""
    return method.parsed_constraint.least or 1.0


def _rate(method: Ramp, cells: Sequence[CellScores], lift: float) -> float | None:
    """Return the common rate that is asked for; None for the best by the scores."""
    if method.rho == "joint":
        return None
    if method.rho == "mean":
        total = sum(float((cell.score * cell.weight).sum()) for cell in cells)
        return (1 + total / sum(float(cell.weight.sum()) for cell in cells)) / 2
    if method.rho == "labels":
        hulls = [calibrated(cell, "isotonic") for cell in cells]
        threshold = lift - (method.gamma / 2 if method.shape == "centred" else 0.0)
        weight = np.concatenate([p.weight for p in hulls])
        cell = np.repeat(np.arange(len(hulls)), [p.score.size for p in hulls])
        scores = np.concatenate([p.score for p in hulls]) + threshold
        best = solve_thresholds(scores, Bands.of_groups(cell, method.slack, weight), cell)
        return float(np.clip(best.centres[0], 0.0, 1.0))
    return float(method.rho)


def _require_labels(
    method: Ramp,
    cells: Sequence[CellScores],
    points: Sequence[Points],
    groups: Ints,
    levels: Sequence[tuple[str, ...]],
) -> None:
    """Raise where a rate that is made alike is undefined, of one of the ``groups`` of the cells, (C, J)."""
    mass = np.array([p.weight.sum() for p in points])
    base = np.array([p.eta @ p.weight for p in points]) / mass
    for j, own in enumerate(groups.T):
        for label in method.events:
            ones = mass * (base if label else 1.0 - base)
            lacking = np.bincount(own, ones)[own] <= 0
            if lacking.any():
                k = int(np.argmax(lacking))
                name = cells[k].name if groups.shape[1] == 1 else levels[k][j - groups.shape[1]]
                raise DataError(
                    f"group {name!r} has no rows with label {label} to fit on, so a rate among them is undefined; "
                    "leave the group out or merge it into another"
                )


def _shifted(t: float, remainder: float, shift: float) -> tuple[float, float]:
    """Return an offset in two parts after a shift, with the digits of both."""
    moved = float(t) + shift
    return moved, float(remainder) + math.fsum((float(t), shift, -moved))
