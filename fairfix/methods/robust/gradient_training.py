"""The paper's own two methods: a linear rule over features, trained against the worst noise.

``dro`` assumes N0, a ball around each recorded group; ``soft`` N1, soft assignments, or N2 with labels. Worst cases
are exact in place of steps of an adversary; see :mod:`fairfix.noise.training`. N0 to N2 hold for any decision, so the
recorded group may be among the features (``--group used``): the rule is then a score without it and a
threshold per recorded group. Statements under N3 and N4 are about ``P(noisy | true)`` among rows that the rules of all
groups treat alike, so each row is decided by the rule of every group for it. No optimum is claimed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.special import expit

from fairfix.data.counts import Floats
from fairfix.errors import DataError, UsageError
from fairfix.methods.base import Solver, anything
from fairfix.methods.learned import Design, design_of, label_of, mean_of, named
from fairfix.methods.problem import RepairProblem
from fairfix.methods.robust.assumption import assuming, assumption_of, surveyed
from fairfix.methods.robust.histogram import Binned, Merged, RowNoise, shares_of
from fairfix.methods.robust.notes import FEW, cut_note, reliance
from fairfix.models.features import Features
from fairfix.models.members import LinearMember
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.score_models import ScoreCurves, Scorer, Unrepaired
from fairfix.models.trace import Caution, FitTrace, Note
from fairfix.noise.rates import DEMANDS, LABELS, RATIOS
from fairfix.noise.training import Trained, train
from fairfix.solvers.piecewise import Piecewise

if TYPE_CHECKING:
    from fairfix.methods.robust import Robust


def require_trainable(problem: RepairProblem, who: str) -> None:
    """Raise where there is nothing to train on, or the recorded group is named among the features."""
    if not problem.features:
        raise UsageError(
            f"{who} trains a model, which needs more than a score; name columns with `features`, or use "
            "`solver=thresholds`"
        )
    used = [column for column in problem.groups.columns if column in problem.features]
    if used:
        raise UsageError(
            f"{who} may use the recorded group {' x '.join(used)} only with `group=used`; leave it out "
            "of the features"
        )


class TrainedRule(Solver):
    """A linear rule, the best that was met in the steps of its training."""

    method: Robust
    uses_labels = True
    needs_rows = "it trains a rule over the features of rows; use `solver=thresholds`"

    def fit(self, problem: RepairProblem, rng: np.random.Generator) -> RepairedPredictor:
        """Train the rule and say what it relies on."""
        method, codes, weight = self.method, problem.groups.codes, problem.weight
        assumed = assumption_of(method, problem)
        require_trainable(problem, f"{method.name}: {self.option}")
        scored = mean_of(problem, method.model, "logistic", method.l2, int(rng.integers(2**31)))
        design, label, many = design_of(problem, method.model), label_of(problem), len(problem.groups.names)
        own = shares_of(problem)
        noise = surveyed(method, problem, RowNoise.of_groups(problem, own), own)
        member = scored.scorer.member
        start = np.append(member.coef[:, 0], member.intercept) if isinstance(member, LinearMember) else None
        given = design.matrix, label, codes, weight, many
        try:
            adversary = noise.adversary(assumed)
            best = train(*given, adversary, method.parity, min(method.slack, 1.0), l2=method.l2, start=start)
        except ValueError as error:
            raise DataError(f"{method.name}: {error}") from error
        rule, each = _rule(problem, design, best)
        rows, chance = Binned.decided(problem, each)
        notes = (
            *self._notes(problem, best, each[np.arange(codes.size), codes]),
            *reliance(method, problem, rows, noise, chance, assumed),
            *self.last_notes(problem, rows.merged(chance), noise),
        )
        base = Unrepaired(scored.scorer)
        trace = FitTrace(
            best.feasible, best.steps, best.error, notes=notes, base=base, base_fitted=scored.scores
        )
        return replace(rule, trace=trace)

    def last_notes(self, problem: RepairProblem, rows: Merged, noise: RowNoise) -> Iterator[Note]:
        """Yield what else is to be said of the adversary."""
        yield from ()

    def _notes(self, problem: RepairProblem, best: Trained, decided: Floats) -> Iterator[Note]:
        """Yield what is unusual about a trained rule."""
        if not best.feasible:
            yield Caution(
                f"no rule that was found in {best.steps} steps satisfies the constraint: this one has the smallest "
                f"violation, {float(np.nanmax(best.excess)):.4f} of a rate",
                "infeasible",
            )
        taken = problem.weight @ decided / problem.weight.sum()
        if best.constant:
            what = "yes" if best.intercept >= 0 else "no"
            yield Caution(
                f"the repaired rule decides the same for all rows ({what}): no other rule was found that is guaranteed",
                "selection",
            )
        elif not FEW <= taken <= 1 - FEW:
            yield Caution(
                f"the repaired rule accepts {taken:.2%} of all rows: little more than a constant is guaranteed",
                "selection",
            )
        yield Note(
            f"a linear rule trained in {best.steps} steps: the best that was found, not necessarily the best possible",
            "search",
        )
        if problem.protected_as_feature:
            yield Note(
                f"decisions use the recorded group {' x '.join(problem.groups.columns)!r}; `group=unused` "
                "avoids this",
                "uses_group",
            )
        yield from cut_note(problem)


class Dro(TrainedRule):
    """Trained against the worst distribution within a radius of each recorded group."""

    option = "`solver=dro`"
    reads: ClassVar = {
        **dict.fromkeys(("constraint", "survey_confidence"), anything),
        "assume": assuming("radii"),
        "learner": named("linear"),
        "group": anything,
    }

    def last_notes(self, problem: RepairProblem, rows: Merged, noise: RowNoise) -> Iterator[Note]:
        """Yield whose radius is no less than the share of its rows that a rate is about."""
        balls = noise.known_balls
        cells = rows.cells[balls.home]
        for rate, sign in DEMANDS[self.method.parity]:
            share = np.add(*RATIOS[rate].masses(cells)) / cells.sum(1)
            each = zip(balls.true, balls.radii, share, strict=True)
            who = [name for name, radius, part in each if radius >= part]
            if who:
                label = f"with label {LABELS[rate][0]} " if len(LABELS[rate]) == 1 else ""
                end = "missed" if sign > 0 else "accepted"
                yield Caution(
                    f"the radii guarantee {', '.join(map(repr, who))} nothing: all of their rows {label}may be {end} "
                    f"ones as soon as any row {label}is {end}",
                    "no_guarantee",
                )


class SoftGroups(TrainedRule):
    """Trained against the worst soft assignment to true groups."""

    option = "`solver=soft`"
    reads: ClassVar = {
        **dict.fromkeys(("constraint", "survey_confidence"), anything),
        "assume": assuming("none"),
        "learner": named("linear"),
        "group": anything,
    }


def _rule(problem: RepairProblem, design: Design, best: Trained) -> tuple[ScoreCurves, Floats]:
    """Return a trained rule, and its decisions for the training rows in each recorded group, shape (n, K).

    Where the recorded group is a feature, the rule is a score of the others and a threshold per group, so that a group
    that was not in the training rows gets no decision. Forms are divided by the largest distance of a threshold to
    their middle, since a sigmoid tells numbers apart near 0 alone.
    """
    groups, features = problem.groups, design.features
    seen = problem.protected_as_feature
    columns = tuple(one for one in features.columns if one.kind != "group")
    plain = sum(len(one.titles) for one in columns)  # columns of groups come last
    matrix, coef = design.matrix[:, :plain], best.coef[:plain]
    first = [int(np.flatnonzero(groups.codes == k)[0]) for k in range(len(groups.levels) if seen else 1)]
    lifts = best.intercept + design.matrix[first, plain:] @ best.coef[plain:]
    middle = float(lifts.min() + lifts.max()) / 2
    scale = max(float(np.ptp(lifts)) / 2, 1.0)
    made = LinearMember(coef[:, None] / scale, np.array([middle / scale]), "sigmoid")
    edges = 2.0 * expit((middle - lifts) / scale) - 1.0
    rule = ScoreCurves(
        groups.columns if seen else (),
        groups.levels if seen else ((),),
        Scorer(Features(columns), made),
        tuple(Piecewise.steps([-1.0, float(edge)], [0.0, 1.0]) for edge in edges),
    )
    score = 2.0 * made.predict(matrix) - 1.0
    each = np.stack([curve(score) for curve in rule.curves], -1)
    return rule, each if seen else np.repeat(each, len(groups.levels), 1)
