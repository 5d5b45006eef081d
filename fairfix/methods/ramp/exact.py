"""Ramps and thresholds by exact optima: each stratum is solved by itself, and the rules make one predictor."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fairfix.auditing.comparisons import Comparison
from fairfix.data.counts import Bools, Floats
from fairfix.data.names import attribute_name
from fairfix.methods.base import Solver, anything
from fairfix.methods.cells import CellScores, GroupScores, Points, cells_of, points_of
from fairfix.methods.problem import RepairProblem
from fairfix.methods.ramp.continuous_attribute import fit_numbers
from fairfix.methods.ramp.soft import fit_soft
from fairfix.methods.ramp.strata import CellRule, StratumFit, groups_of_each, solve_stratum
from fairfix.methods.ramp.trace import NOT_OF_LABELS, alike_for_all, offsets, proven_trace, uncalibrated
from fairfix.models.predictors import GroupwiseCurve, GroupwiseRamp, RepairedPredictor
from fairfix.models.trace import FitTrace, Note, Quantity
from fairfix.solvers.piecewise import Piecewise

if TYPE_CHECKING:
    from fairfix.methods.ramp import Ramp


class Exact(Solver):
    """Exact optima."""

    method: Ramp
    option = "`solver=exact`"
    needs_rows = ""
    reads: ClassVar = dict.fromkeys(
        ("constraint", "noise", "gamma", "rho", "shape", "calibrate", "decisions"), anything
    )

    def fit(self, problem: RepairProblem, rng: np.random.Generator) -> RepairedPredictor:
        """Solve every stratum, or the soft groups, or the protected numbers."""
        if self.method.membership:
            return fit_soft(self.method, problem)
        if self.method.parsed_constraint.numbers:
            return fit_numbers(self.method, problem)
        cells, points = cells_of(problem), points_of(problem, self.method.calibration)
        parts = [solve_stratum(self.method, problem, number) for number in cells.strata()]
        rules = tuple(rule for part in parts for rule in part.rules)
        reached = np.array([rule.shares(p) for rule, p in zip(rules, points, strict=True)])
        notes = (*alike_for_all(reached), *self._warnings(cells))
        trace = self._trace(problem, cells, parts, rules, notes)
        predictor = self._predictor(cells, points, rules, trace)
        if self.method.decisions == "deterministic":
            return self._rounded(problem, cells, points, predictor)
        crossed = {level: rule for part in parts for level, rule in part.crossed.items()}
        return with_rules(predictor, crossed) if self.method.calibration == "none" else predictor

    def _predictor(
        self, cells: GroupScores, points: Sequence[Points], rules: Sequence[CellRule], trace: FitTrace
    ) -> RepairedPredictor:
        """Return the predictor of the rules: ramps as such, where they are ramps of the score itself."""
        gamma, calibration = self.method.gamma, self.method.calibration
        if gamma > 0 and calibration == "none" and all(rule.curve is None for rule in rules):
            offsets, remainders = np.array([(rule.offset, rule.remainder) for rule in rules]).T
            return GroupwiseRamp(
                cells.columns, cells.levels, offsets.copy(), remainders.copy(), gamma, trace=trace
            )
        curves = []
        for p, rule in zip(points, rules, strict=True):
            in_score = rule.piecewise
            stepped = p.blocks is not None and not rule.on_points
            curves.append(p.curve(in_score(p.score)) if stepped else in_score)
        maps = None
        if calibration == "sigmoid" and not any(rule.on_points for rule in rules):
            maps = np.array([(p.map.slope, p.map.intercept) for p in points if p.map])
        return GroupwiseCurve(cells.columns, cells.levels, tuple(curves), maps, trace=trace)

    def _trace(
        self,
        problem: RepairProblem,
        cells: GroupScores,
        parts: Sequence[StratumFit],
        rules: Sequence[CellRule],
        notes: tuple[Note, ...],
    ) -> FitTrace:
        """Return how the fits of all strata went together, and what they prove."""
        total = math.fsum(part.mass for part in parts)
        whole = StratumFit(
            tuple(rules),
            total,
            all(part.converged for part in parts),
            sum(part.iterations for part in parts),
            math.fsum(part.objective * part.mass for part in parts) / total,
            math.fsum(part.gap * part.mass for part in parts) / total,
        )
        title = Comparison.parse(self.method.bounded_comparison(problem.table.data_spec)).title
        ratio = self.method.parsed_constraint.least
        held = f"keep the {title} at {ratio:g} or more" if ratio else f"meet the slack in the {title}"
        attributes = self.method.constrained_attributes(problem.groups.columns)
        if len(attributes) > 1:
            held += " of " + " and of ".join(map(attribute_name, attributes))
        if self.method.rho != "joint":
            held += " around rho"
        return proven_trace(self.method.gamma, whole, held, notes, _quantities(cells, parts, rules, ratio))

    def _rounded(
        self,
        problem: RepairProblem,
        cells: GroupScores,
        points: Sequence[Points],
        predictor: RepairedPredictor,
    ) -> RepairedPredictor:
        """Return the deterministic thresholds nearest to a predictor's rates, with what they cost."""
        assert isinstance(predictor, GroupwiseRamp | GroupwiseCurve)
        curves, shift, gaps = [], 0.0, []
        for k, cell in enumerate(cells.cells):
            score, eta, weight = self._counted(cell, points[k])
            chance = predictor.of_group(k, score)
            masses = _masses(self.method.events, eta, weight)
            # a group without rows of a label has no rate among them, and one without any such rate its share selected
            rated = [m for m in masses if m.any()] or [weight]
            cut = _nearest_cut(score, rated, [float(m @ chance) / float(m.sum()) for m in rated])
            curves.append(Piecewise.separating(score, cut.astype(np.float64)))
            shift += float((weight * (2 * points[k].of_rows(score) - 1)) @ (cut - chance))
            gaps.append([(float(m @ cut), float(m.sum())) for m in masses])
        alike = [one for inside in cells.strata().values() for one in self._rates(problem, inside, gaps)]
        worst = f"the largest gap in the constrained rates is {max((np.ptp(one) for one in alike), default=0.0):.2g}"
        if self.method.parsed_constraint.least:
            ratios = [one.min() / one.max() for one in alike if one.max() > 0]
            worst = f"the smallest ratio of the constrained rates is {min(ratios, default=math.nan):.2g}"
        cost = shift / sum(float(cell.weight.sum()) for cell in cells.cells)
        note = (
            f"deterministic thresholds: on the training rows, {worst}, and the "
            f"accuracy expected from the scores changes by {cost:+.2g}"
        )
        notes = (*predictor.trace.notes, Note(note, "rounded"))
        # what is proven is of the chances, not of the decisions they are rounded to
        trace = replace(predictor.trace, gap=math.nan, certificates=(), notes=notes, randomized=predictor)
        return GroupwiseCurve(cells.columns, cells.levels, tuple(curves), None, trace=trace)

    def _rates(
        self, problem: RepairProblem, inside: Sequence[int], sums: Sequence[Sequence[tuple[float, float]]]
    ) -> Iterator[Floats]:
        """Yield the rates that are held alike among some cells, by attribute and event; of groups with such rows.

        ``sums``: of every cell and event, the mass that is decided positively, and all of it.
        """
        own = np.array([sums[k] for k in inside])
        groups = np.arange(len(inside))[:, None]
        if self.method.parsed_constraint.each:
            groups = groups_of_each(problem, inside)
        for code in groups.T:
            total = np.zeros((code.max() + 1, *own.shape[1:]))
            np.add.at(total, code, own)
            for event in total.transpose(1, 0, 2):
                rated = event[event[:, 1] > 0]
                if len(rated):
                    yield rated[:, 0] / rated[:, 1]

    def _counted(self, cell: CellScores, points: Points) -> tuple[Floats, Floats, Floats]:
        """Return scores, probabilities of label 1 and weights by which rates are counted: labels, where they matter."""
        if self.method.about_labels and self.method.calibration != "none":
            score, label, weight = cell.labelled
            return score, (label == 1).astype(np.float64), weight
        return cell.score, points.of_rows(cell.score), cell.weight

    def _warnings(self, cells: GroupScores) -> Iterator[Note]:
        """Yield a caution where the scores are badly calibrated and the result depends on that."""
        method = self.method
        leaves = method.slack > 0 or (method.parsed_constraint.least or 1.0) < 1
        hangs = (leaves and method.rho == "joint") or method.about_labels
        if not hangs or method.calibration != "none":
            return
        does = (
            NOT_OF_LABELS
            if method.about_labels
            else "with an allowed gap, a rule with better decisions may exist"
        )
        yield from uncalibrated(cells, does, " within groups", "`calibrate=isotonic` or sigmoid")


def hidden_by_bins(
    method: Ramp, problem: RepairProblem, chance: Floats, reach: Floats | None
) -> float | None:
    """Return how much a rule of exact scores may be better than the fit to score bins, beyond its certified gap.

    ``chance`` is what the rule gives each row, (n,), ``reach`` how far its exact ``2 p - 1`` may be from that at the
    middle of its bin, (n,), None where there is none. None where nothing is proven: where the constraint is not about
    the rates of groups, or scores are not taken as they are. Else the mean of an exact optimum ``q`` over a bin keeps
    all rates, and its square is not above the mean of squares; so all that exact scores can add is
    ``mean |f - f_bin| |q - chance|``.
    """
    by_rates = method.goal in ("demographic_parity", "covariance")
    if reach is None or not by_rates or method.calibration != "none" or method.rho in ("mean", "labels"):
        return None
    return float(np.average(reach * np.maximum(chance, 1.0 - chance), weights=problem.weight))


def with_rules(predictor: RepairedPredictor, more: Mapping[tuple[str, ...], CellRule]) -> RepairedPredictor:
    """Return a predictor with rules of more groups, by levels, on the score as it is."""
    assert isinstance(predictor, GroupwiseRamp | GroupwiseCurve)
    levels = (*predictor.levels, *more)
    order = sorted(range(len(levels)), key=levels.__getitem__)
    named = tuple(levels[k] for k in order)
    if isinstance(predictor, GroupwiseRamp):
        own = np.array([(rule.offset, rule.remainder) for rule in more.values()]).reshape(-1, 2).T
        parts = zip((predictor.offsets, predictor.remainders), own, strict=True)
        offsets, remainders = (np.concatenate(part)[order] for part in parts)
        return replace(predictor, levels=named, offsets=offsets, remainders=remainders)
    curves = (*predictor.curves, *(rule.piecewise for rule in more.values()))
    return replace(predictor, levels=named, curves=tuple(curves[k] for k in order))


def _quantities(
    cells: GroupScores, parts: Sequence[StratumFit], rules: Sequence[CellRule], ratio: float | None
) -> Iterator[Quantity]:
    """Yield the centres of the bands, and the multipliers, which are the thresholds of the ramps."""
    for number, part in enumerate(parts, 1):
        if math.isfinite(part.rho):
            where = f", stratum {number} of {len(parts)}" if len(parts) > 1 else ""
            what = "target rate of the groups"
            if ratio:
                what = f"largest allowed rate of a group; the smallest is {ratio:g} times it"
            yield Quantity("rho", part.rho, f"{what}{where}")
    ramps = {
        level: rule.offset + rule.remainder
        for level, rule in zip(cells.levels, rules, strict=True)
        if rule.curve is None
    }
    yield from offsets(ramps, ramps.values())


def _masses(events: Sequence[int | None], eta: Floats, weight: Floats) -> list[Floats]:
    """Return the row weights by which the rates among rows of some labels are means."""
    share = {1: eta, 0: 1 - eta, None: np.ones_like(eta)}
    return [weight * share[label] for label in events]


def _nearest_cut(score: Floats, masses: Sequence[Floats], targets: Sequence[float]) -> Bools:
    """Return the rows above the threshold whose rates are nearest to the targets, in the worst of them."""
    order = np.argsort(-score, kind="stable")
    ends = np.concatenate([[True], score[order][1:] != score[order][:-1], [True]])  # whole ties only
    worst = np.zeros(score.size + 1)
    for mass, target in zip(masses, targets, strict=True):
        reached = np.concatenate([[0.0], np.cumsum(mass[order])]) / mass.sum()
        worst = np.maximum(worst, np.abs(reached - target))
    taken = int(np.argmin(np.where(ends, worst, np.inf)))
    cut = np.zeros(score.size, dtype=bool)
    cut[order[:taken]] = True
    return cut
