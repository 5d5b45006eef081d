"""Robust thresholds of a score: the best of all (a linear program), or of a small class of rules (a search).

The rule may use the recorded group (``group="used"``) or be one for all groups (``"unused"``), which leaves little
to choose and so costs more. The search looks at all rules with a cut per recorded group, and mixes them so that the
error is least, or takes the best single one (``decisions="deterministic"``); see :mod:`fairfix.noise.enumerated_rules`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fairfix.data.counts import Floats
from fairfix.errors import DataError, UsageError
from fairfix.methods.base import Solver, anything
from fairfix.methods.learned import mean_of
from fairfix.methods.problem import RepairProblem
from fairfix.methods.robust.assumption import assuming, assumption_of, surveyed
from fairfix.methods.robust.histogram import Binned, Kinds, RowNoise
from fairfix.methods.robust.notes import cut_note, extremes, reliance
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.score_models import ScoreCurves, Unrepaired
from fairfix.models.trace import Caution, FitTrace, Note
from fairfix.noise.enumerated_rules import MOST, rules_of, solve_ideal, usual_bins
from fairfix.noise.score_bin_bounds import (
    Assumption,
    BoundedDependence,
    ClassConditional,
    KnownMembership,
    TotalVariation,
)
from fairfix.noise.thresholds import NoisyRepair, solve_noisy
from fairfix.noise.uncertainty_set import Refuted
from fairfix.solvers.piecewise import Piecewise

if TYPE_CHECKING:
    from fairfix.methods.robust import Robust

CERTAIN = 1e-9
"""A chance this near to 0 or 1 is one."""


class Postprocessed(Solver):
    """Chances by recorded group and bin of a score."""

    method: Robust
    uses_labels = True
    needs_rows = ""

    @abstractmethod
    def bins(self, assumed: Assumption, groups: int) -> int:
        """Return how many bins there are."""

    @abstractmethod
    def solve(
        self, problem: RepairProblem, rows: Binned, noise: RowNoise, assumed: Assumption
    ) -> NoisyRepair:
        """Return the chances."""

    def fit(self, problem: RepairProblem, rng: np.random.Generator) -> RepairedPredictor:
        """Solve the program and say what it relies on."""
        method, groups = self.method, problem.groups
        assumed = assumption_of(method, problem)
        scored = mean_of(problem, method.model, "logistic", method.l2, int(rng.integers(2**31)))
        blind = method.group == "unused"
        kinds = Kinds.recorded(problem, blind=blind)
        fine = kinds.by_vector(problem)
        rows = Binned.of(problem, scored, method.parity, self.bins(assumed, len(groups.levels)), fine)
        noise = RowNoise.of(problem, rows)
        noise = surveyed(method, problem, noise, rows.n.sum(1))
        if isinstance(assumed, ClassConditional):
            assumed = ClassConditional(method.z, rows.rows)
        if isinstance(
            assumed, KnownMembership
        ):  # rows of one rule and bin are weighed as they are, whatever their vector
            own = Binned.counted(problem, rows.at, rows.edges, kinds)
            best = self.solve(problem, own, RowNoise.of(problem, own), assumed)
            best = replace(best, F=best.F[fine.rules])
        else:
            best = self.solve(problem, rows, noise, assumed)
        chance = np.where(best.F < CERTAIN, 0.0, np.where(best.F > 1 - CERTAIN, 1.0, best.F))
        notes = (
            *extremes(problem, scored.scores, chance[fine.codes, rows.at]),
            *self._notes(problem, best, chance, scored.scores),
            *reliance(method, problem, rows, noise, chance, assumed),
        )
        learned = scored.scorer.member is not None
        trace = FitTrace(
            best.converged,
            best.programs,
            best.error,
            max(best.error - best.bound, 0.0),
            notes,
            base=Unrepaired(scored.scorer) if learned else None,
            base_fitted=scored.scores if learned else None,
        )
        of_rule = [
            int(np.flatnonzero(fine.rules == number)[0])
            for number in range(1 if blind else len(groups.levels))
        ]
        return ScoreCurves(
            () if blind else groups.columns,
            ((),) if blind else groups.levels,
            scored.scorer,
            tuple(Piecewise.steps(rows.edges, row) for row in chance[of_rule]),
            trace=trace,
        )

    def _notes(
        self, problem: RepairProblem, best: NoisyRepair, chance: Floats, score: Floats
    ) -> Iterator[Note]:
        """Yield what is unusual about a solution."""
        method, least, most = self.method, chance.min(), chance.max()
        if not best.feasible:
            yield Caution(
                f"no thresholds satisfy the constraint: these have the smallest violation, {best.violation:.4f} "
                "of a rate",
                "infeasible",
            )
        if method.goal == "minimax":
            yield Note(
                "on the training rows and under the assumption, the largest error rate of a true group is "
                f"{best.largest_error:z.4f}; no thresholds between the same bins have a smaller one than "
                f"{best.least_largest_error:z.4f}",
                "worst_case",
            )
        if method.parsed_constraint.worse:
            yield Note(
                "only one side is constrained (`worse_than_overall`): groups may be better off than average by any "
                "amount",
                "one_side",
            )
        if least == most:
            what = "the same probability" if 0 < least < 1 else "yes" if least == 1 else "no"
            anyway = best.feasible and least == (score >= 0.5).mean()
            why = (
                "no score lies on the other side of 0.5"
                if anyway
                else "no other rule is guaranteed to satisfy the constraint"
            )
            yield Caution(f"the repaired rule decides the same for all rows ({what}): {why}", "selection")
        if isinstance(self, Ideal):
            which = "the best" if method.decisions == "deterministic" else "a mixture"
            yield Note(
                f"{which} of {best.programs:,} rules, each checked against its own worst noise", "search"
            )
        if method.group != "unused":
            recorded = " x ".join(problem.groups.columns)
            yield Note(
                f"decisions use the recorded group {recorded!r}; `group=unused` does not", "uses_group"
            )
        yield from cut_note(problem)


class RobustThresholds(Postprocessed):
    """The best thresholds, mixed where that is better, by linear programs."""

    option = "`solver=thresholds`"
    reads: ClassVar = dict.fromkeys(
        ("constraint", "assume", "z", "group", "bins", "learner", "survey_confidence"), anything
    )

    def bins(self, assumed: Assumption, groups: int) -> int:
        """Return how many bins there are: few where the assumption is about each of them."""
        usual = 20 if isinstance(assumed, BoundedDependence) else 100
        return usual if isinstance(self.method.bins, str) else self.method.bins

    def solve(
        self, problem: RepairProblem, rows: Binned, noise: RowNoise, assumed: Assumption
    ) -> NoisyRepair:
        """Return the optimum; DataError where data refute the assumption, or do not identify the true groups."""
        method = self.method
        if isinstance(assumed, TotalVariation) and noise.balls is not None:
            assumed = TotalVariation(tuple(noise.balls.home.tolist()))
        if isinstance(assumed, BoundedDependence) and noise.recording is None:
            raise DataError(
                f"{method.name}: the noise table does not give the sizes of the true groups, which `assume=eps` "
                "needs; write `noise=FILE(keep=true-given-noisy)` if that holds, or use `assume=none`"
            )
        table, *others = noise.of_assumption(assumed)
        slack = min(method.shared_slack or 0.0, 1.0)  # rates differ by no more than 1
        try:
            return solve_noisy(
                rows.n, table, method.parity, slack, assumed, rules=rows.kinds.rules.tolist(), others=others
            )
        except Refuted as error:
            raise DataError(
                f"{method.name}: {error}; use a larger `assume=eps=NUMBER`, fewer `bins`, or `assume=none`"
            ) from error
        except ValueError as error:
            raise DataError(f"{method.name}: {error}") from error


class Ideal(Postprocessed):
    """The best mixture of the rules of a small class, or the best of them."""

    option = "`solver=ideal`"
    reads: ClassVar = {
        **dict.fromkeys(
            ("constraint", "group", "bins", "decisions", "learner", "survey_confidence"), anything
        ),
        "assume": assuming("none", "radii"),
    }

    def bins(self, assumed: Assumption, groups: int) -> int:
        """Return how many bins there are; UsageError where they make too many rules to look at all."""
        given, free = self.method.bins, 1 if self.method.group == "unused" else groups
        bins = max(usual_bins(free, 100), 2) if isinstance(given, str) else int(given)
        if rules_of(bins, free) > MOST:
            raise UsageError(
                f"{self.method.name}: `solver=ideal` searches all rules, and {bins} bins in {groups} recorded groups "
                f"make {rules_of(bins, free):,}; it searches {MOST:,} at most. Use fewer `bins`, "
                "`group=unused`, or `solver=thresholds`"
            )
        return bins

    def solve(
        self, problem: RepairProblem, rows: Binned, noise: RowNoise, assumed: Assumption
    ) -> NoisyRepair:
        """Search all rules."""
        try:
            adversary = noise.adversary(assumed)
        except ValueError as error:
            raise DataError(f"{self.method.name}: {error}") from error
        blind, single = self.method.group == "unused", self.method.decisions == "deterministic"
        slack = min(self.method.slack, 1.0)
        return solve_ideal(rows.n, adversary, self.method.parity, slack, blind=blind, single=single)
