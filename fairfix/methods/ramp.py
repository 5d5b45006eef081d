r"""Ramp: groups made alike from trained scores, by a randomised threshold per group.

With the score ``f = 2 p - 1`` of a trained model, weights ``w`` and groups ``k``, the rule ``q`` solves

.. math::
    \min_{q, \rho}\; \sum_i w_i \left(\tfrac{\gamma}{2} q_i^2 - f_i q_i\right)
    \quad\text{s.t.}\quad 0 \le q_i \le 1,\quad
    \left|m_{kj}(q) - \rho_j\right| \le \epsilon / 2 \text{ for each group } k \text{ and mean } j .

Without the quadratic term the objective is the expected accuracy of the decisions when the scores are
calibrated (``E[(2y - 1) q] = sum f q``); the term makes the optimum unique and turns each threshold into a ramp
of width ``gamma``. What is held alike is the ``constraint``, with ``eta = (1 + f)/2`` the probability of label
1:

======================  =============================================  ==========================================
constraint              means of a group                               rule
======================  =============================================  ==========================================
demographic_parity      ``E[q | k]``                                   ``clip((f - t_k)/gamma, 0, 1)``
covariance              ``p_k |E[q | k] - E[q]| <= epsilon``           ``clip((f - t_k)/gamma, 0, 1)``
equal_opportunity       ``E[eta q | k] / E[eta | k]``                  ``clip((f - u_k eta/pi_k)/gamma, 0, 1)``
equalized_odds          that, and the same with ``1 - eta``            ``clip((f - u_k eta/pi_k
                                                                       - v_k (1 - eta)/(1 - pi_k))/gamma, 0, 1)``
======================  =============================================  ==========================================

The common means ``rho`` are optimised together with the multipliers, unless one is given: the paper's default,
the mean score, costs accuracy. With ``gamma = 0`` the rules become thresholds with a tie probability (and, for
equalized odds, their mixtures with a constant). All optima are exact; the derivations are in
:mod:`fairfix.optim.ramp` (means), :mod:`~fairfix.optim.overall` (covariance), :mod:`~fairfix.optim.linear`
(weighted means), :mod:`~fairfix.optim.pairs` (two means), :mod:`~fairfix.optim.step` and
:mod:`~fairfix.optim.roc` (no width).

**Threshold.** If the base decisions cut the probability at ``c`` and not at 1/2, ``f + 1 - 2c = 2 (p - c)`` takes the
place of ``f``: errors cost what makes ``c`` the best threshold. The formulas here have ``c = 1/2``.

**Labels.** Demographic parity needs none. If ``eta`` is the isotonic regression of the labels on the scores of
each group (``calibrate="isotonic"``), rates counted with ``eta`` are those counted with the labels, so equal
opportunity and equalized odds hold on the rows of the fit, and with ``gamma = 0`` the rule is the most accurate
of all that are monotone in the score. It is the default where the constraint is about labels.

**Streams.** ``solver="sgd"`` is the paper's projected stochastic gradient, :mod:`fairfix.optim.ramp_sgd`, for rows that
do not fit into memory.

**Strata.** Within strata, each stratum is a problem of its own, with its own ``rho``.

=================  =================  ==============================================
paper              here               meaning
=================  =================  ==============================================
``f(x)``           ``2 p - 1``        score in [-1, 1]
``h(x)``           ``p_positive``     probability of a positive decision
``gamma``          ``gamma``          width of the ramp
``epsilon``        ``slack``          allowed difference
``rho``            ``rho``            common selection rate
``lambda - mu``    ``offsets``        threshold of the group
=================  =================  ==============================================

The objective trusts the scores: with badly calibrated scores and a positive slack the optimum drifts towards
the biased scores. A note says so where labels show it; ``calibrate`` or ``rho="labels"`` mend it. The paper's
ramp lies above its threshold (``shape="one-sided"``); ``"centred"`` penalises ``(q - 1/2)^2`` instead, which is
``f + gamma/2`` for ``f``.

References
----------
I. Alabdulmohsin and M. Lucic, *A near-optimal algorithm for debiasing trained machine learning models* (2021);
M. Hardt, E. Price and N. Srebro, *Equality of opportunity in supervised learning* (2016).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from fairfix.data.counts import Bools, Floats
from fairfix.data.names import attribute_name
from fairfix.data.reading import Reading
from fairfix.data.table import Table
from fairfix.errors import DataError, UsageError
from fairfix.methods.base import Repairer, RepairProblem, param
from fairfix.methods.cells import Cells, Points, ScoredCell, calibrated, cells_of, miscalibration, points_of
from fairfix.models.predictors import GroupwiseCurve, GroupwiseRamp, RepairedPredictor
from fairfix.models.trace import Caution, Certificate, FitTrace, Quantity
from fairfix.optim.linear import LinearCell
from fairfix.optim.overall import solve_covariance
from fairfix.optim.pairs import solve_pairs
from fairfix.optim.piecewise import Piecewise
from fairfix.optim.ramp import Cell, RampSolution, ramp, solve
from fairfix.optim.ramp_sgd import Batch, StreamSolution, learn
from fairfix.optim.roc import Roc, solve_roc
from fairfix.optim.step import Staircase, solve_steps
from fairfix.optim.windows import solve_points

NARROWEST = 1e-6
"""Narrowest ramp: below, offsets have no digits left for it. 0 is a branch of its own."""

MISCALIBRATED = 0.02
"""Mean miscalibration inside groups, beyond what chance gives, from which on a note is due."""

ABOUT_LABELS = ("equal_opportunity", "equalized_odds")


@dataclass(frozen=True)
class Ramp(Repairer):
    """Groups made alike from trained scores by a randomised threshold per group; see the module's docstring."""

    name: ClassVar[str] = "ramp"
    summary: ClassVar[str] = (
        "randomised threshold per group on trained scores: demographic parity, covariance, equal opportunity, "
        "equalized odds"
    )
    criterion: ClassVar[str] = "selection_rate.difference.between_groups"
    knows_strata: ClassVar[bool] = True
    knows_unlabelled: ClassVar[bool] = True

    constraint: str = param(
        "demographic_parity",
        "what is made alike",
        choices=("demographic_parity", "equalized_odds", "equal_opportunity", "covariance"),
    )
    gamma: float = param(
        0.05,
        "width of the randomised ramp, in units of the score 2p-1; 0: a threshold with a tie probability; several "
        "values: the validation part chooses",
        at_least=0.0,
        at_most=10.0,
        selectable=True,
    )
    rho: float | str = param(
        "joint",
        "common rate: the best one by the scores (joint), by the labels (labels), the mean score (mean), or a number; "
        "several values: the validation part chooses",
        words=("joint", "labels", "mean"),
        at_least=0.0,
        at_most=1.0,
        selectable=True,
    )
    shape: str = param(
        "one-sided",
        "where the ramp lies: above its threshold, as in the paper, or around it",
        choices=("one-sided", "centred"),
        selectable=True,
    )
    calibrate: str = param(
        "auto",
        "recalibrate the scores in each group by its labels; auto: isotonic if the constraint is about labels",
        choices=("auto", "none", "isotonic", "sigmoid"),
        selectable=True,
    )
    decisions: str = param(
        "randomized",
        "randomized, or the nearest deterministic thresholds, whose cost is reported",
        choices=("randomized", "deterministic"),
    )

    solver: str = param(
        "exact",
        "exact, or sgd: the paper's stochastic gradient, in passes over rows that need not fit into memory",
        choices=("exact", "sgd"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.solver == "sgd":
            self._check_stream()
        if 0 < self.gamma < NARROWEST:
            raise UsageError(f"ramp: gamma must be 0 or at least {NARROWEST:g}, got {self.gamma:g}")
        if self.rho != "joint" and self.constraint in ("equalized_odds", "covariance"):
            raise UsageError(
                f"ramp: rho {self.rho!r} does not go with {self.constraint}, which finds its own rates"
            )
        if self.rho in ("mean", "labels") and self.constraint != "demographic_parity":
            raise UsageError(
                f"ramp: rho {self.rho!r} is a selection rate, which {self.constraint} is not about"
            )

    def _check_stream(self) -> None:
        """Refuse parameters that need all rows at once."""
        needs = {
            "constraint": self.constraint == "demographic_parity",
            "gamma": self.gamma > 0,
            "calibrate": self.calibration == "none",
            "rho": self.rho != "labels",
            "decisions": self.decisions == "randomized",
        }
        for name, good in needs.items():
            if not good:
                raise UsageError(
                    f"ramp: solver sgd does not go with {name} {getattr(self, name)}; take --solver exact"
                )

    @property
    def streams(self) -> bool:
        """Whether the rows may come as a stream."""
        return self.solver == "sgd"

    @property
    def calibration(self) -> str:
        """The recalibration in force."""
        if self.calibrate != "auto":
            return self.calibrate
        return "isotonic" if self.constraint in ABOUT_LABELS else "none"

    @property
    def bounds(self) -> str:
        """Identifier of the audit comparison that ``slack`` bounds, strata aside."""
        return {
            "demographic_parity": "selection_rate.difference.between_groups",
            "covariance": "selection_rate.covariance.to_overall",
            "equal_opportunity": "true_positive_rate.difference.between_groups",
            "equalized_odds": "equalized_odds.difference.between_groups",
        }[self.constraint]

    @property
    def uses_labels(self) -> bool:
        """Whether the fit uses labels."""
        return self.calibration != "none" or self.rho == "labels"

    @classmethod
    def contenders(cls, reading: Reading) -> Iterator[tuple[str, Repairer]]:
        """Yield a constraint for each gap of decisions."""
        yield cls.name, cls()
        yield f"{cls.name}, equal opportunity", cls(constraint="equal_opportunity")
        yield f"{cls.name}, equalized odds", cls(constraint="equalized_odds")

    def _fit(self, problem: RepairProblem, rng: np.random.Generator) -> RepairedPredictor:
        if problem.table.reading.score_scale == "raw":
            self._check_raw(problem)
            if self.calibrate == "auto":
                return self._of_raw(problem, rng)
        cells = problem.once("cells", lambda: cells_of(problem))
        if self.solver == "sgd":
            return self._learned_from(cells, problem.table.reading, rng)
        points = problem.once(("points", self.calibration), lambda: points_of(cells, self.calibration))
        parts = [
            self._solved(problem, [cells.cells[k] for k in inside], [points[k] for k in inside], stratum)
            for stratum, inside in cells.strata()
        ]
        rules = tuple(rule for part in parts for rule in part.rules)
        trace = self._traced(cells, parts, rules, (*_notes(rules, points), *self._warnings(cells)))
        predictor = self._predictor(cells, points, rules, trace)
        return self._rounded(cells, points, predictor) if self.decisions == "deterministic" else predictor

    def _of_raw(self, problem: RepairProblem, rng: np.random.Generator) -> RepairedPredictor:
        """Return the fit on a score that is no probability: in each group its isotonic regression is one."""
        predictor = replace(self, calibrate="isotonic")._fit(problem, rng)
        note = "the raw score was made a probability in each group, by isotonic regression on the labels"
        trace = replace(predictor.trace, notes=(note, *predictor.trace.notes))
        return predictor.traced(trace)

    def _check_raw(self, problem: RepairProblem) -> None:
        """Raise where something needs scores that are probabilities, or labels that make them such."""
        for name, bad in (
            ("solver", self.solver == "sgd"),
            ("calibrate", self.calibrate in ("none", "sigmoid")),
            ("rho", self.rho == "mean"),
        ):
            if bad:
                raise UsageError(
                    f"ramp: {name} {getattr(self, name)} needs scores that are probabilities, and these are raw; "
                    f"leave --{name} out, or say --score-scale probability, margin or logit"
                )
        if problem.table.rows.label is None:
            raise DataError(
                "a raw score is made a probability by labels; name their column with --label, or say --score-scale "
                "probability, margin or logit"
            )

    # ------------------------------------------------------------------ streams

    def _learned_from(self, cells: Cells, reading: Reading, rng: np.random.Generator) -> RepairedPredictor:
        """Return what the stream solver makes of rows in memory, in random order."""
        if len(set(cells.stratum)) > 1:
            raise UsageError("ramp: solver sgd does not go with strata; take --solver exact")
        code = np.repeat(np.arange(len(cells.cells)), [cell.score.size for cell in cells.cells])
        order = rng.permutation(code.size)
        score, weight = (
            np.concatenate(part) for part in zip(*((c.score, c.weights) for c in cells.cells), strict=True)
        )
        batch = Batch(score[order], code[order], weight[order])
        found = self._learned(lambda: [batch], reading, rng)
        return self._streamed(cells.columns, cells.levels, found)

    def _learn(self, tables: Callable[[], Iterator[Table]], rng: np.random.Generator) -> RepairedPredictor:
        """Return the ramps learned from a stream; cells are numbered as they appear."""
        numbers: dict[tuple[str, ...], int] = {}
        columns: list[tuple[str, ...]] = []

        def batches() -> Iterator[Batch]:
            for table in tables():
                groups = table.groups()
                columns[:] = [groups.columns]
                into = np.array([numbers.setdefault(level, len(numbers)) for level in groups.levels])
                score = 2.0 * table.probability - 1.0
                yield Batch(score, into[groups.codes], table.rows.weight)

        found = self._learned(batches, next(tables()).reading, rng)
        levels = sorted(numbers)
        if len(levels) < 2:
            where = attribute_name(columns[0])
            raise DataError(
                f"column {where!r} has the single group {' & '.join(levels[0])!r}; a repair needs at least two groups"
            )
        order = [numbers[level] for level in levels]
        found = replace(found, offsets=found.offsets[order], rates=found.rates[order])
        return self._streamed(columns[0], tuple(levels), found)

    def _learned(
        self, batches: Callable[[], Iterable[Batch]], reading: Reading, rng: np.random.Generator
    ) -> StreamSolution:
        """Return the solution of a stream of scores as they are."""
        lift = self._lift(reading)
        rho = float(self.rho) if not isinstance(self.rho, str) else None
        found = learn(batches, self.gamma, self.slack, rho, rng=rng, mean_share=self.rho == "mean", lift=lift)
        return replace(found, offsets=found.offsets - lift)

    def _streamed(
        self, columns: tuple[str, ...], levels: tuple[tuple[str, ...], ...], found: StreamSolution
    ) -> RepairedPredictor:
        note = Caution(
            f"after {found.passes} passes over {found.points:,} rows the selection rates are off the allowed band by "
            f"{found.off:.1e}; scores of few values under a narrow ramp do that: widen it with --gamma"
        )
        notes = () if found.converged else (note,)
        offsets = tuple(
            Quantity(
                "offset", offset, "on the scale 2 p - 1: chances rise from 0 there to 1 a gamma above", name
            )
            for offset, name in zip(found.offsets, (" x ".join(level) for level in levels), strict=True)
        )
        trace = FitTrace(found.converged, found.passes, found.objective, math.nan, notes, quantities=offsets)
        return GroupwiseRamp(columns, levels, found.offsets, np.zeros(len(levels)), self.gamma, trace=trace)

    # ------------------------------------------------------------------ one stratum

    def _solved(
        self, problem: RepairProblem, cells: Sequence[ScoredCell], points: Sequence[Points], key: int
    ) -> _Solved:
        """Return the rules of the cells of one stratum."""
        lift = self._lift(problem.table.reading)
        if self.constraint in ABOUT_LABELS:
            _require_both_labels(cells, points)
        if self.gamma == 0:
            return self._steps(cells, points, lift)
        if self.constraint == "equalized_odds":
            return self._odds_ramps(points, lift)
        if self.constraint == "equal_opportunity":
            return self._opportunity_ramps(points, lift)

        if self.constraint == "demographic_parity" and not problem.many_fits:
            scores = [p.score + lift if lift else p.score for p in points]
            best = solve_points(
                scores, [p.weight for p in points], self.gamma, self.slack, self._rate(cells, lift)
            )
            return self._ramps(best, lift, cells)

        def sort() -> list[Cell]:
            return [Cell.of(p.score, p.weight) for p in points]

        sorted_cells = problem.once(("sorted", self.calibration, key), sort)
        lifted = [cell.lifted(lift) for cell in sorted_cells] if lift else sorted_cells
        if self.constraint == "covariance":
            best = solve_covariance(lifted, self.gamma, self.slack)
        else:
            best = solve(lifted, self.gamma, self.slack, self._rate(cells, lift))
        return self._ramps(best, lift, cells)

    def _ramps(self, best: RampSolution, lift: float, cells: Sequence[ScoredCell]) -> _Solved:
        """Return the ramps of a solution for lifted scores."""
        down = [_two_sum(t, r, -lift) for t, r in zip(best.offsets, best.remainders, strict=True)]
        rules = tuple(_Rule(offset=t, remainder=r, gamma=self.gamma) for t, r in down)
        return _Solved.of(rules, best, cells)

    def _opportunity_ramps(self, points: Sequence[Points], lift: float) -> _Solved:
        """Return the ramps of equal opportunity: ``f - u eta/pi`` is a line in ``f = 2 eta - 1``."""
        found = [LinearCell.of(p.score + lift, p.eta / p.base_rate, p.weight) for p in points]
        best = solve(found, self.gamma, self.slack, None if self.rho == "joint" else float(self.rho))
        rules = []
        for p, t, r in zip(points, best.offsets, best.remainders, strict=True):
            half = float(t + r) / (2 * p.base_rate)
            line = Piecewise.line((1 - half) / self.gamma, (lift - half) / self.gamma)
            rules.append(_Rule(curve=line))
        return _Solved.of(tuple(rules), best, points)

    def _odds_ramps(self, points: Sequence[Points], lift: float) -> _Solved:
        """Return the ramps of equalized odds, each with a slope of its own."""
        score, eta = (np.concatenate([getattr(p, name) for p in points]) for name in ("score", "eta"))
        cell = np.repeat(np.arange(len(points)), [p.score.size for p in points])
        base = np.array([p.base_rate for p in points])
        slopes = np.stack([eta / base[cell], (1 - eta) / (1 - base)[cell]], axis=1)
        weight = np.concatenate([p.weights for p in points])
        best = solve_pairs(score + lift, slopes, cell, self.gamma, self.slack, weight)
        rules = []
        for p, (u, v) in zip(points, best.multipliers, strict=True):
            up, down = u / (2 * p.base_rate), v / (2 * (1 - p.base_rate))
            line = Piecewise.line((1 - up + down) / self.gamma, (lift - up - down) / self.gamma)
            rules.append(_Rule(curve=line))
        mass = float(weight.sum())
        return _Solved(tuple(rules), mass, best.converged, best.iterations, best.objective, best.gap)

    def _steps(self, cells: Sequence[ScoredCell], points: Sequence[Points], lift: float) -> _Solved:
        """Return the thresholds with tie probabilities; the objective is minus the value."""
        if self.constraint == "equalized_odds":
            return self._odds_steps(points, lift)
        slack, mass = self.slack, [p.weights for p in points]
        if self.constraint == "equal_opportunity":
            worth = [
                np.divide(p.score + lift, p.eta, where=p.eta > 0, out=np.zeros_like(p.eta)) for p in points
            ]
            mass = [w * p.eta for w, p in zip(mass, points, strict=True)]
            rate = None if self.rho == "joint" else float(self.rho)
        else:
            worth, rate = [p.score + lift for p in points], self._rate(cells, lift)
            slack = self._covariance_slack([float(m.sum()) for m in mass])
        stairs = [Staircase.of(v[m > 0], m[m > 0]) for v, m in zip(worth, mass, strict=True)]
        best = solve_steps(stairs, slack, rate)
        rules = []
        for p, v, m, step in zip(points, worth, mass, best.steps, strict=True):
            rules.append(_Rule(curve=p.curve(np.where(m > 0, step.shares(v), 0.0)), on_points=True))
        total = sum(p.mass for p in points)
        scale = sum(float(m.sum()) for m in mass) / total
        # one of finitely many breakpoints, all of which were compared: exact, with nothing to iterate
        return _Solved(tuple(rules), total, True, 1, -best.value * scale, 0.0, best.rho)

    def _covariance_slack(self, mass: Sequence[float]) -> float:
        """Return the slack of the rates: that of the covariance over the product of two shares."""
        if self.constraint != "covariance" or self.slack == 0 or len(mass) == 1:
            return self.slack
        if len(mass) > 2:
            raise UsageError(
                "ramp: a covariance of more than two groups needs a ramp where slack is allowed; give a --gamma above 0"
            )
        return self.slack * sum(mass) ** 2 / (mass[0] * mass[1])

    def _odds_steps(self, points: Sequence[Points], lift: float) -> _Solved:
        """Return thresholds with tie probabilities, mixed with constants."""
        curves = [Roc.of(p.eta, p.weights) for p in points]
        best = solve_roc(curves, self.slack, lift)
        rules = []
        for p, curve, x, y in zip(points, curves, best.x, best.y, strict=True):
            rule = curve.rule(float(x), float(y))
            step = rule.step.shares(p.eta)
            rules.append(_Rule(curve=p.curve(step).mixed(rule.mix, rule.constant), on_points=True))
        total = sum(p.mass for p in points)
        return _Solved(tuple(rules), total, best.converged, best.rounds, -best.value, best.bound - best.value)

    def _lift(self, reading: Reading) -> float:
        """Return what is added to ``2 p - 1``, so that the objective is largest at the threshold that is in force.

        A threshold ``c`` on the probability is best where the two errors cost ``c`` and ``1 - c``; then
        ``2 (p - c)`` is what a positive decision is worth. The centred ramp adds half its width.
        """
        return (1.0 - 2.0 * reading.cut) + (self.gamma / 2 if self.shape == "centred" else 0.0)

    def _rate(self, cells: Sequence[ScoredCell], lift: float) -> float | None:
        """Return the common rate that is asked for; None for the best by the scores."""
        if self.rho == "joint":
            return None
        if self.rho == "mean":
            return (1 + sum(cell.sum_of_scores for cell in cells) / sum(cell.mass for cell in cells)) / 2
        if self.rho == "labels":
            hulls = [calibrated(cell, "isotonic") for cell in cells]
            threshold = lift - (self.gamma / 2 if self.shape == "centred" else 0.0)
            return solve_steps([Staircase.of(p.score + threshold, p.weights) for p in hulls], self.slack).rho
        return float(self.rho)

    # ------------------------------------------------------------------ all strata

    def _predictor(
        self, cells: Cells, points: Sequence[Points], rules: Sequence[_Rule], trace: FitTrace
    ) -> RepairedPredictor:
        """Return the predictor of the rules: ramps as such, where they are ramps of the score itself."""
        if self.gamma > 0 and self.calibration == "none" and all(rule.curve is None for rule in rules):
            offsets, remainders = (
                np.array([getattr(r, part) for r in rules]) for part in ("offset", "remainder")
            )
            return GroupwiseRamp(cells.columns, cells.levels, offsets, remainders, self.gamma, trace=trace)
        curves, maps = [], []
        for p, rule in zip(points, rules, strict=True):
            in_score = rule.piecewise
            stepped = p.blocks is not None and not rule.on_points
            curves.append(p.curve(in_score(p.score)) if stepped else in_score)
            maps.append((p.map.slope, p.map.intercept) if p.map else (1.0, 0.0))
        through = self.calibration == "sigmoid" and not any(rule.on_points for rule in rules)
        return GroupwiseCurve(
            cells.columns, cells.levels, tuple(curves), np.array(maps) if through else None, trace=trace
        )

    def _traced(
        self, cells: Cells, parts: Sequence[_Solved], rules: Sequence[_Rule], notes: tuple[str, ...]
    ) -> FitTrace:
        """Return how the fits of all strata went together, and what they prove."""
        total = math.fsum(part.mass for part in parts)
        value = math.fsum(part.objective * part.mass for part in parts) / total
        gap = math.fsum(part.gap * part.mass for part in parts) / total
        width = f"{self.gamma:g} q^2 / 2 - " if self.gamma else "-"
        proven = Certificate(
            f"mean of {width}f q (q the chance of a positive decision, f what one is worth by the score)",
            value,
            value - gap,
            f"all chances of a positive decision for these rows that hold the slack in {self.bounds}"
            + ("" if self.rho == "joint" else " around rho"),
        )
        return FitTrace(
            all(part.converged for part in parts),
            sum(part.iterations for part in parts),
            value,
            gap,
            notes,
            certificates=(proven,),
            quantities=tuple(self._found(cells, parts, rules)),
        )

    def _found(self, cells: Cells, parts: Sequence[_Solved], rules: Sequence[_Rule]) -> Iterator[Quantity]:
        """Yield the centres of the bands, and the multipliers, which are the thresholds of the ramps."""
        for number, part in enumerate(parts, 1):
            if math.isfinite(part.rho):
                where = f", stratum {number} of {len(parts)}" if len(parts) > 1 else ""
                yield Quantity("rho", part.rho, f"centre of the band of rates{where}")
        for level, rule in zip(cells.levels, rules, strict=True):
            if rule.curve is None:
                yield Quantity(
                    "offset",
                    rule.offset + rule.remainder,
                    "multiplier of the band, on the scale 2 p - 1: chances rise from 0 there to 1 a gamma above",
                    " x ".join(level),
                )

    def _rounded(
        self, cells: Cells, points: Sequence[Points], predictor: RepairedPredictor
    ) -> RepairedPredictor:
        """Return the deterministic thresholds nearest to a predictor's rates, with what they cost."""
        curves, shift, gaps = [], 0.0, []
        for k, cell in enumerate(cells.cells):
            score, eta, weight = self._counted(cell, points[k])
            chance = _apply(predictor, k, score)
            masses = _masses(self.constraint, eta, weight)
            cut = _nearest_cut(score, masses, [float(m @ chance) / float(m.sum()) for m in masses])
            curves.append(Piecewise.separating(score, cut.astype(np.float64)))
            shift += float((weight * (2 * points[k].of_rows(score) - 1)) @ (cut - chance))
            gaps.append([float(m @ cut) / float(m.sum()) for m in masses])
        worst = max(
            float(np.ptp(np.array([gaps[k] for k in inside]), axis=0).max()) for _, inside in cells.strata()
        )
        cost = shift / sum(float(cell.weights.sum()) for cell in cells.cells)
        note = (
            f"deterministic thresholds: on the rows of the fit the largest gap of what is made alike is {worst:.2g}, "
            f"and the accuracy that the scores promise changes by {cost:+.2g}"
        )
        plain = predictor.trace  # what it proves is of the chances, not of what they are rounded to
        notes = (*plain.notes, note)
        trace = replace(plain, gap=math.nan, certificates=(), notes=notes, randomized=predictor)
        return GroupwiseCurve(cells.columns, cells.levels, tuple(curves), None, trace=trace)

    def _counted(self, cell: ScoredCell, points: Points) -> tuple[Floats, Floats, Floats]:
        """Return scores, probabilities of label 1 and weights by which rates are counted: labels, where they matter."""
        if self.constraint in ABOUT_LABELS and self.calibration != "none":
            score, label, weight = cell.labelled
            ones = (label == 1).astype(np.float64)
            return score, ones, np.ones(score.size) if weight is None else weight
        return cell.score, points.of_rows(cell.score), cell.weights

    def _warnings(self, cells: Cells) -> tuple[str, ...]:
        """Say it where the scores are badly calibrated and the result hangs on them."""
        hangs = (self.slack > 0 and self.rho == "joint") or self.constraint in ABOUT_LABELS
        if not hangs or self.calibration != "none":
            return ()
        off, chance = miscalibration(cells.cells)
        if not off - chance > MISCALIBRATED:
            return ()
        does = "the rates that are made alike are not those of the labels"
        if self.constraint not in ABOUT_LABELS:
            does = "with slack the rule drifts towards them"
        said = f"the scores are off by {off:.3f} on average inside groups (chance gives {chance:.3f}): {does}"
        return (Caution(f"{said}; recalibrate with --calibrate isotonic or sigmoid"),)


# ---------------------------------------------------------------------- rules


def _require_both_labels(cells: Sequence[ScoredCell], points: Sequence[Points]) -> None:
    """Raise where a rate among the rows of one label is undefined."""
    for cell, p in zip(cells, points, strict=True):
        if not 0 < p.base_rate < 1:
            raise DataError(
                f"group {cell.name!r} has no rows with label {0 if p.base_rate else 1} to fit on, so a rate among them "
                "is undefined; leave the group out or fold it into another"
            )


@dataclass(frozen=True)
class _Rule:
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
class _Solved:
    """The rules of one stratum, with how the solver went; ``objective`` and ``gap`` per unit of ``mass``.

    ``rho`` is the centre of the band of rates, where there is one band.
    """

    rules: tuple[_Rule, ...]
    mass: float
    converged: bool
    iterations: int
    objective: float
    gap: float
    rho: float = math.nan

    @classmethod
    def of(
        cls, rules: tuple[_Rule, ...], best: RampSolution, cells: Sequence[ScoredCell | Points]
    ) -> _Solved:
        mass = sum(cell.mass for cell in cells)
        return cls(rules, mass, best.converged, best.iterations, best.objective, best.gap, best.rho)


def _notes(rules: Sequence[_Rule], points: Sequence[Points]) -> tuple[str, ...]:
    """Say it when the repair decides the same for everybody."""
    shares = [q for rule, p in zip(rules, points, strict=True) for q in rule.shares(p)]
    least, most = min(shares), max(shares)
    if most <= 0.0 or least >= 1.0:
        return (
            Caution(
                f"the repaired rule decides {'negative' if most <= 0 else 'positive'} for everybody",
                "selection",
            ),
        )
    return ()


def _apply(predictor: RepairedPredictor, k: int, score: Floats) -> Floats:
    """Return a predictor's probabilities for rows of one cell."""
    if isinstance(predictor, GroupwiseRamp):
        return ramp(score, float(predictor.offsets[k]), predictor.gamma, float(predictor.remainders[k]))
    assert isinstance(predictor, GroupwiseCurve)
    return predictor.of_group(k, score)


def _masses(constraint: str, eta: Floats, weight: Floats) -> list[Floats]:
    """Return the row weights by which the rates of a constraint are means."""
    if constraint == "equal_opportunity":
        return [weight * eta]
    if constraint == "equalized_odds":
        return [weight * eta, weight * (1 - eta)]
    return [weight]


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


def _two_sum(t: float, remainder: float, shift: float) -> tuple[float, float]:
    """Return an offset in two parts after a shift, with the digits of both."""
    moved = float(t) + shift
    back = moved - float(t)
    lost = (float(t) - (moved - back)) + (shift - back)
    return moved, float(remainder) + lost
