"""The rules of the cells of one stratum: ramps of positive width, or thresholds with tie probabilities.

The derivations are in :mod:`fairfix.optim.ramp` (means, weighted means, covariance), :mod:`~fairfix.optim.pairs` (two
means, or groups that overlap), :mod:`~fairfix.optim.step`, :mod:`~fairfix.optim.overlaps` and
:mod:`~fairfix.optim.roc` (no width).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from fairfix.data.counts import Floats, Ints
from fairfix.errors import DataError
from fairfix.methods.cells import Points, ScoredCell, calibrated, cells_of, points_of
from fairfix.methods.problem import RepairProblem, once_per_problem
from fairfix.optim.overlaps import OverlapSolution, solve_overlaps, solve_step_covariances
from fairfix.optim.pairs import solve_pairs
from fairfix.optim.piecewise import Piecewise
from fairfix.optim.ramp import Cell, RampSolution, solve, solve_covariance
from fairfix.optim.roc import Roc, solve_roc
from fairfix.optim.step import Staircase, StepSolution, solve_steps
from fairfix.optim.windows import solve_points

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
        """Return the shares of the least and the greatest score of a cell."""
        low, high = points.raw_ends if self.on_points else points.ends
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

    @classmethod
    def of(cls, rules: Sequence[CellRule], best: RampSolution, mass: float) -> StratumFit:
        """Return the rules of a solution of ramps."""
        return cls(tuple(rules), mass, best.converged, best.iterations, best.objective, best.gap, best.rho)


def solve_stratum(method: Ramp, problem: RepairProblem, stratum: int) -> StratumFit:
    """Return the rules of the cells of one stratum."""
    inside, lift = cells_of(problem).strata()[stratum], method.lift(problem.table.reading)
    cells = [cells_of(problem).cells[k] for k in inside]
    points = [points_of(problem, method.calibration)[k] for k in inside]
    each = method.wanted.each and len(problem.cells.columns) > 1
    groups = groups_of_each(problem, inside) if each else None
    if method.about_labels:
        overlapping = groups if method.gamma else None  # thresholds have prices for each cell
        _require_labels(method, cells, points, overlapping, [cells_of(problem).levels[k] for k in inside])
    if method.goal == "equalized_odds":
        solver = _odds_ramps if method.gamma else _odds_steps
        return solver(method, points, lift)
    if groups is not None:
        if method.gamma == 0:
            return _steps(method, cells, points, lift, groups)
        return _overlapping_ramps(method, points, groups, lift, [cells_of(problem).levels[k] for k in inside])
    if method.gamma == 0:
        return _steps(method, cells, points, lift)
    if method.about_labels:
        return _rate_ramps(method, cells, points, lift)
    ratio = _ratio(method)
    if method.goal == "demographic_parity" and not problem.many_fits:
        scores = [p.score + lift if lift else p.score for p in points]
        rate = _rate(method, cells, lift)
        best = solve_points(scores, [p.weight for p in points], method.gamma, method.slack, rate, ratio)
    else:
        ordered = _sorted_cells(problem, method.calibration, stratum)
        lifted = [cell.lifted(lift) for cell in ordered] if lift else ordered
        if method.goal == "covariance":
            best = solve_covariance(lifted, method.gamma, method.slack)
        else:
            best = solve(lifted, method.gamma, method.slack, _rate(method, cells, lift), ratio)
    down = [_shifted(t, r, -lift) for t, r in zip(best.offsets, best.remainders, strict=True)]
    rules = [CellRule(offset=t, remainder=r, gamma=method.gamma) for t, r in down]
    return StratumFit.of(rules, best, sum(cell.mass for cell in cells))


@once_per_problem
def _sorted_cells(problem: RepairProblem, calibration: str, stratum: int) -> list[Cell]:
    points = points_of(problem, calibration)
    return [Cell.of(points[k].score, points[k].weight) for k in cells_of(problem).strata()[stratum]]


def _rate_ramps(
    method: Ramp, cells: Sequence[ScoredCell], points: Sequence[Points], lift: float
) -> StratumFit:
    """Return the ramps of one rate among the rows of a label: ``f - u eta/pi`` is a line in ``f = 2 eta - 1``."""
    (label,) = method.events
    bases = [p.base_rate if label else 1.0 - p.base_rate for p in points]
    lines = [
        Cell.of(p.score + lift, p.weight, _share(p, label) / base)
        for p, base in zip(points, bases, strict=True)
    ]
    best = solve(lines, method.gamma, method.slack, _rate(method, cells, lift), _ratio(method))
    multipliers = np.add(best.offsets, best.remainders)
    rules = [_line(method, label, lift, float(u) / base) for u, base in zip(multipliers, bases, strict=True)]
    return StratumFit.of(rules, best, sum(p.mass for p in points))


def _share(p: Points, label: int | None) -> Floats:
    """Return the probability of a label of each point."""
    return p.eta if label else 1.0 - p.eta


def _line(method: Ramp, label: int | None, lift: float, price: float, other: float = 0.0) -> CellRule:
    """Return the rule where rows pay ``price`` for the label and ``other`` for the other: a line in ``2 eta - 1``."""
    up, down = (price / 2, other / 2) if label else (other / 2, price / 2)
    return CellRule(curve=Piecewise.line((1 - up + down) / method.gamma, (lift - up - down) / method.gamma))


def _odds_ramps(method: Ramp, points: Sequence[Points], lift: float) -> StratumFit:
    """Return the ramps of equalized odds, each with a slope of its own."""
    score, eta, weight = (
        np.concatenate([getattr(p, name) for p in points]) for name in ("score", "eta", "weights")
    )
    cell = np.repeat(np.arange(len(points)), [p.score.size for p in points])
    base = np.array([p.base_rate for p in points])
    slopes = np.stack([eta / base[cell], (1 - eta) / (1 - base)[cell]], axis=1)
    best = solve_pairs(score + lift, slopes, cell, method.gamma, method.slack, weight)
    prices = best.multipliers / np.stack([base, 1 - base], axis=1)
    rules = [_line(method, 1, lift, *own) for own in prices.tolist()]
    mass = float(weight.sum())
    return StratumFit(tuple(rules), mass, best.converged, best.iterations, best.objective, best.gap)


def groups_of_each(problem: RepairProblem, inside: Sequence[int]) -> Ints:
    """Return the group of some cells by each protected column, numbered from 0 among them, shape (C, J)."""
    columns = len(problem.cells.columns)
    levels = [cells_of(problem).levels[k] for k in inside]
    each = [np.unique(own, return_inverse=True)[1] for own in _columns(levels, columns)]
    return np.stack(each, axis=1).astype(np.int64)


def _columns(levels: Sequence[tuple[str, ...]], columns: int) -> list[tuple[str, ...]]:
    """Return the level of each cell by each of the last columns."""
    return list(zip(*(level[-columns:] for level in levels), strict=True))


MOST_CROSSED = 10_000
"""Cells of one stratum that have rules, at most, where rules are kept of cells without rows too: some megabytes."""


def _overlapping_ramps(
    method: Ramp,
    points: Sequence[Points],
    groups: Ints,
    lift: float,
    levels: Sequence[tuple[str, ...]],
) -> StratumFit:
    """Return the ramps under the rates of groups that overlap, ``(C, J)``: a cell pays the prices of all its groups.

    ``levels``: those of the cells, C; cells without rows whose every group has some pay the prices of theirs.
    """
    (label,) = method.events
    score, weight = (np.concatenate([getattr(p, name) for p in points]) for name in ("score", "weights"))
    shares = [np.ones(p.score.size) if label is None else _share(p, label) for p in points]
    share, group = np.concatenate(shares), np.repeat(groups, [one.size for one in shares], axis=0)
    base = [np.bincount(own, weight * share) / np.bincount(own, weight) for own in group.T]
    slopes = np.stack([share / b[own] for b, own in zip(base, group.T, strict=True)], axis=1)
    best = solve_pairs(score + lift, slopes, group, method.gamma, method.slack, weight)

    def rules(cells: Ints) -> Iterator[CellRule]:
        kinds = enumerate(zip(base, cells.T, strict=True))
        price = np.sum([best.multipliers[own, j] / b[own] for j, (b, own) in kinds], axis=0)
        for u in price.tolist():
            if label is None:
                t, remainder = _shifted(u, 0.0, -lift)
                yield CellRule(offset=t, remainder=remainder, gamma=method.gamma)
            else:
                yield _line(method, label, lift, u)

    mass = float(weight.sum())
    fit = StratumFit(tuple(rules(groups)), mass, best.converged, best.iterations, best.objective, best.gap)
    if math.prod(own.size for own in base) > MOST_CROSSED:
        return fit
    seen = set(map(tuple, groups.tolist()))
    crossed = [one for one in product(*(range(own.size) for own in base)) if one not in seen]
    names = [np.unique(own) for own in _columns(levels, len(base))]
    stratum = levels[0][: len(levels[0]) - len(base)]
    titles = [(*stratum, *(str(own[k]) for own, k in zip(names, one, strict=True))) for one in crossed]
    made = rules(np.array(crossed, dtype=np.int64).reshape(-1, len(base)))
    return replace(fit, crossed=dict(zip(titles, made, strict=True)))


def _steps(
    method: Ramp,
    cells: Sequence[ScoredCell],
    points: Sequence[Points],
    lift: float,
    groups: Ints | None = None,
) -> StratumFit:
    """Return the thresholds with tie probabilities, under the rates of cells or of ``groups`` of these, ``(C, J)``.

    The objective is minus the value.
    """
    slack, mass, rate = method.slack, [p.weights for p in points], _rate(method, cells, lift)
    if method.about_labels:
        (label,) = method.events
        shares = [_share(p, label) for p in points]
        worth = [
            np.divide(p.score + lift, share, where=share > 0, out=np.zeros_like(share))
            for p, share in zip(points, shares, strict=True)
        ]
        mass = [w * share for w, share in zip(mass, shares, strict=True)]
    else:
        worth = [p.score + lift for p in points]
    stairs = [Staircase.of(v[m > 0], m[m > 0]) for v, m in zip(worth, mass, strict=True)]
    if groups is not None:
        best: StepSolution | OverlapSolution = solve_overlaps(stairs, groups, slack)
    elif method.goal == "covariance" and slack and len(stairs) > 2:
        best = solve_step_covariances(stairs, slack)
    else:
        if method.goal == "covariance":
            slack = _rates_slack(slack, [stair.total for stair in stairs])
        best = solve_steps(stairs, slack, rate, _ratio(method))
    # points without mass, of which all or none have the label that counts, are decided by their score alone
    free = [np.where(m > 0, 0.0, p.score + lift > 0) for p, m in zip(points, mass, strict=True)]
    rules = [
        CellRule(curve=p.curve(np.where(m > 0, step.shares(v), own)), on_points=True)
        for p, v, m, step, own in zip(points, worth, mass, best.steps, free, strict=True)
    ]
    total = sum(p.mass for p in points)
    scale = sum(float(m.sum()) for m in mass) / total
    besides = (
        sum(float(p.weights @ ((p.score + lift) * own)) for p, own in zip(points, free, strict=True)) / total
    )
    objective = -best.value * scale - besides
    if isinstance(best, OverlapSolution):
        return StratumFit(tuple(rules), total, best.converged, best.rounds, objective, best.gap * scale)
    # one of finitely many breakpoints, all of which were compared: exact, with nothing to iterate
    return StratumFit(tuple(rules), total, True, 1, objective, 0.0, best.rho)


def _rates_slack(slack: float, mass: Sequence[float]) -> float:
    """Return the slack of two groups' rates, by that of the covariance: over the product of both shares."""
    return slack * sum(mass) ** 2 / (mass[0] * mass[1]) if slack and len(mass) == 2 else slack


def _odds_steps(method: Ramp, points: Sequence[Points], lift: float) -> StratumFit:
    """Return thresholds with tie probabilities, mixed with constants."""
    curves = [Roc.of(p.eta, p.weights) for p in points]
    best = solve_roc(curves, method.slack, lift)
    rules = []
    for p, curve, x, y in zip(points, curves, best.x, best.y, strict=True):
        rule = curve.rule(float(x), float(y))
        step = rule.step.shares(p.eta)
        rules.append(CellRule(curve=p.curve(step).mixed(rule.mix, rule.constant), on_points=True))
    total = sum(p.mass for p in points)
    gap = best.bound - best.value
    return StratumFit(tuple(rules), total, best.converged, best.rounds, -best.value, gap)


def _ratio(method: Ramp) -> float:
    """Return the share of the centre from which the lower half of the band is counted; 1 for a difference."""
    return method.wanted.least or 1.0


def _rate(method: Ramp, cells: Sequence[ScoredCell], lift: float) -> float | None:
    """Return the common rate that is asked for; None for the best by the scores."""
    if method.rho == "joint":
        return None
    if method.rho == "mean":
        return (1 + sum(cell.sum_of_scores for cell in cells) / sum(cell.mass for cell in cells)) / 2
    if method.rho == "labels":
        hulls = [calibrated(cell, "isotonic") for cell in cells]
        threshold = lift - (method.gamma / 2 if method.shape == "centred" else 0.0)
        return solve_steps([Staircase.of(p.score + threshold, p.weights) for p in hulls], method.slack).rho
    return float(method.rho)


def _require_labels(
    method: Ramp,
    cells: Sequence[ScoredCell],
    points: Sequence[Points],
    groups: Ints | None,
    levels: Sequence[tuple[str, ...]],
) -> None:
    """Raise where a rate that is made alike is undefined: of a cell, or of one of the ``groups`` of these, (C, J)."""
    mass, base = (np.array([float(getattr(p, name)) for p in points]) for name in ("mass", "base_rate"))
    kinds = [np.arange(len(points))] if groups is None else list(groups.T)
    for j, own in enumerate(kinds):
        for label in method.events:
            ones = mass * (base if label else 1.0 - base)
            lacking = np.bincount(own, ones)[own] <= 0
            if lacking.any():
                k = int(np.argmax(lacking))
                name = cells[k].name if groups is None else levels[k][j - len(kinds)]
                raise DataError(
                    f"group {name!r} has no rows with label {label} to fit on, so a rate among them is undefined; "
                    "leave the group out or merge it into another"
                )


def _shifted(t: float, remainder: float, shift: float) -> tuple[float, float]:
    """Return an offset in two parts after a shift, with the digits of both."""
    moved = float(t) + shift
    return moved, float(remainder) + math.fsum((float(t), shift, -moved))
