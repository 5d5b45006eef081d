"""Robust thresholds of a score: the best of all (a linear program), or of a small class of rules (a search).

The rule may use the recorded group (``thresholds="group"``) or be one for everybody (``"blind"``), which leaves little
to choose and so costs more. The search looks at all rules with a cut per recorded group, and mixes them so that the
error is least, or takes the best single one (``decisions="deterministic"``); see :mod:`fairfix.noisy.ideal`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fairfix.data.counts import Floats
from fairfix.errors import DataError, UsageError
from fairfix.methods.base import Solver, anything, only
from fairfix.methods.learned import mean_of
from fairfix.methods.problem import RepairProblem
from fairfix.methods.robust.notes import cut_note, extremes, reliance
from fairfix.methods.robust.rows import Binned, Kinds, RowNoise
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.scorers import ScoreCurves, Unrepaired
from fairfix.models.trace import Caution, FitTrace, Note
from fairfix.noisy.binned import Assumption, Certified, Identified, Independent, Radii, Sensitive, Soft
from fairfix.noisy.description import Noise
from fairfix.noisy.ideal import MOST, rules_of, solve_ideal, usual_bins
from fairfix.noisy.polytope import Refuted
from fairfix.noisy.thresholds import NoisyRepair, solve_noisy
from fairfix.optim.piecewise import Piecewise

if TYPE_CHECKING:
    from fairfix.methods.robust import Robust

CERTAIN = 1e-9
"""A chance this near to 0 or 1 is one."""


class Postprocessed(Solver):
    """Chances by recorded group and bin of a score."""

    method: Robust
    uses_labels = True
    sees_groups = False
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
        method, groups = self.method, problem.cells
        assert problem.noise is not None
        assumed = self._assumed(problem, problem.noise)
        scored = mean_of(problem, method.learner, "logistic", method.l2, int(rng.integers(2**31)))
        blind = method.thresholds == "blind"
        kinds = Kinds.recorded(problem, blind=blind)
        fine = kinds if kinds.vectors is None else kinds.by_vector(problem)
        rows = Binned.of(problem, scored, method.parity, self.bins(assumed, len(groups.levels)), fine)
        noise = RowNoise.of(problem, rows)
        if not isinstance(method.survey_confidence, str):
            self._require_survey(problem.noise, assumed)
            noise = noise.surveyed(problem, rows.n.sum(1), method.survey_confidence)
        if isinstance(assumed, Identified):
            assumed = Identified(method.z, rows.rows)
        if isinstance(
            assumed, Independent
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

    def _assumed(self, problem: RepairProblem, noise: Noise) -> Assumption:
        """Return the assumption in force; UsageError where it does not go with the table, constraint or score."""
        method, name = self.method, self.method.assumption_of(noise)
        if noise.membership is not None:
            return self._by_membership(noise, name)
        if noise.table is None and name != "radii":
            raise UsageError(
                f"{method.name}: `noise_radius` alone does not tell what `assumption={name}` needs; give a noise table "
                "with `noise`, or take `assumption=radii`"
            )
        if method.assumption == "auto" and name == "soft" and method.constraint != "demographic_parity":
            raise UsageError(
                f"{method.name}: the noise table has no labels, and without them {method.constraint} can hardly be "
                "guaranteed by any rule. Add a column label to the table, or choose `assumption=identified` or epsilon "
                "(which assume more), or soft (which may accept nobody)"
            )
        method.require_labels_of_certified(noise)
        used = [column for column in problem.cells.columns if column in problem.seen_by_model]
        if used and name in ("identified", "epsilon"):
            raise UsageError(
                f"{method.name}: the model looks at {', '.join(used)}; assumption {name} needs a score that does not "
                "use the noisy group. Take `assumption=certified` or soft, or a model without it"
            )
        if name == "epsilon":
            return Sensitive(method.epsilon_of(noise))
        if name == "identified":
            return Identified(method.z)
        return Certified() if name == "certified" else Soft() if name == "soft" else Radii()

    def _require_survey(self, noise: Noise, assumed: Assumption) -> None:
        """Raise a UsageError where there is no survey, or its sampling error has no part in the program."""
        who = f"{self.method.name}: `survey_confidence={self.method.survey_confidence:g}`"
        if noise.table is None or noise.table.form != "count":
            raise UsageError(
                f"{who} is about a noise table of counts (`noise=FILE`); without one leave it out"
            )
        if isinstance(assumed, Identified):
            raise UsageError(
                f"{who} does not go with `assumption=identified`, an estimate by one table; take `assumption=epsilon`, "
                "certified or soft, or leave it out"
            )
        if isinstance(assumed, Radii) and noise.radii is not None:
            raise UsageError(f"{who}: `noise_radius` is no survey; leave one of them out")

    def _by_membership(self, noise: Noise, name: str) -> Assumption:
        """Return the assumption in force of probabilities of membership; UsageError where they say nothing of it."""
        method = self.method
        if isinstance(self, Ideal):
            raise UsageError(
                f"{method.name}: `solver=ideal` knows no probabilities of membership; take `solver=thresholds`"
            )
        if name not in ("soft", "identified"):
            raise UsageError(
                f"{method.name}: `assumption={name}` is about recorded groups, and `noise_membership` gives "
                "probabilities; take `assumption=soft` or identified"
            )
        if method.assumption == "auto" and name == "soft" and method.constraint != "demographic_parity":
            raise UsageError(
                f"{method.name}: `noise_membership` says nothing of labels, and without that {method.constraint} can "
                "hardly be guaranteed by any rule. Choose `assumption=identified` (which assumes more), or soft (which "
                "may accept nobody)"
            )
        return Soft() if name == "soft" else Independent(method.z)

    def _notes(
        self, problem: RepairProblem, best: NoisyRepair, chance: Floats, score: Floats
    ) -> Iterator[Note]:
        """Yield what is unusual about a solution."""
        method, least, most = self.method, chance.min(), chance.max()
        if not best.feasible:
            yield Caution(
                f"no thresholds satisfy the constraint: these miss it by the least, {best.violation:.4f} of a rate",
                "infeasible",
            )
        if method.constraint == "minimax":
            yield Note(
                "the largest error rate of a true group, on the rows of the fit and under the assumption, is "
                f"{best.largest_error:z.4f}; no thresholds between the same bins have a smaller one than "
                f"{best.least_largest_error:z.4f}",
                "worst_case",
            )
        if method.sides == "one":
            yield Note(
                "only one side is held (`sides=one`): groups may be as much better off than everybody as they like",
                "one_side",
            )
        if least == most:
            what = "the same chance" if 0 < least < 1 else "yes" if least == 1 else "no"
            anyway = best.feasible and least == (score >= 0.5).mean()
            why = "no score lies on the other side of 0.5" if anyway else "nothing less is guaranteed"
            yield Caution(f"the repaired rule decides the same for everybody ({what}): {why}", "selection")
        if isinstance(self, Ideal):
            which = "the best" if method.decisions == "deterministic" else "a mixture"
            yield Note(f"{which} of {best.programs:,} rules, each held to its own worst noise", "search")
        if method.thresholds == "group":
            recorded = " x ".join(problem.cells.columns)
            yield Note(
                f"decisions use the recorded group {recorded!r}; `thresholds=blind` does not", "uses_group"
            )
        yield from cut_note(problem)


class Thresholds(Postprocessed):
    """The best thresholds, mixed where that is better, by linear programs."""

    option = "`solver=thresholds`"
    reads: ClassVar = {
        **dict.fromkeys(
            (
                *("constraint", "sides", "epsilon", "z", "thresholds", "bins", "learner", "l2"),
                "survey_confidence",
            ),
            anything,
        ),
        "assumption": only("auto", "certified", "soft", "epsilon", "identified", "radii"),
    }

    def bins(self, assumed: Assumption, groups: int) -> int:
        """Return how many bins there are: few where the assumption is about each of them."""
        usual = 20 if isinstance(assumed, Sensitive) else 100
        return usual if isinstance(self.method.bins, str) else int(self.method.bins)

    def solve(
        self, problem: RepairProblem, rows: Binned, noise: RowNoise, assumed: Assumption
    ) -> NoisyRepair:
        """Return the optimum; DataError where data refute the assumption, or do not identify the true groups."""
        method = self.method
        if isinstance(assumed, Radii) and noise.balls is not None:
            assumed = Radii(tuple(noise.balls.home.tolist()))
        if isinstance(assumed, Sensitive) and noise.recording is None:
            raise DataError(
                f"{method.name}: the noise table does not tell how large the true groups are, which assumption epsilon "
                "needs; say `noise_keep=true-given-noisy` if that holds, or take `assumption=certified` or soft"
            )
        table, *others = noise.of_assumption(assumed)
        slack = min(method.slack_of_all or 0.0, 1.0)  # rates differ by no more than 1
        try:
            return solve_noisy(
                rows.n, table, method.parity, slack, assumed, rules=rows.kinds.rules.tolist(), others=others
            )
        except Refuted as error:
            raise DataError(
                f"{method.name}: {error}; take a larger `epsilon`, fewer `bins`, or `assumption=certified` or soft"
            ) from error
        except ValueError as error:
            raise DataError(f"{method.name}: {error}") from error


class Ideal(Postprocessed):
    """The best mixture of the rules of a small class, or the best of them."""

    option = "`solver=ideal`"
    reads: ClassVar = {
        **dict.fromkeys(
            ("constraint", "sides", "thresholds", "bins", "decisions", "learner", "l2"), anything
        ),
        "assumption": only("auto", "certified", "soft", "radii"),
    }

    def bins(self, assumed: Assumption, groups: int) -> int:
        """Return how many bins there are; UsageError where they make too many rules to look at all."""
        given, free = self.method.bins, 1 if self.method.thresholds == "blind" else groups
        bins = max(usual_bins(free, 100), 2) if isinstance(given, str) else int(given)
        if rules_of(bins, free) > MOST:
            raise UsageError(
                f"{self.method.name}: `solver=ideal` looks at all rules, and {bins} bins in {groups} recorded groups "
                f"make {rules_of(bins, free):,}; it takes {MOST:,} at most. Take fewer `bins`, `thresholds=blind`, or "
                "`solver=thresholds`"
            )
        return bins

    def solve(
        self, problem: RepairProblem, rows: Binned, noise: RowNoise, assumed: Assumption
    ) -> NoisyRepair:
        """Search all rules."""
        adversary = noise.adversary(assumed)
        blind, single = self.method.thresholds == "blind", self.method.decisions == "deterministic"
        slack = min(self.method.slack, 1.0)
        return solve_ideal(rows.n, adversary, self.method.parity, slack, blind=blind, single=single)
