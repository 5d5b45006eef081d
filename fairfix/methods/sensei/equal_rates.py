"""A decision without the protected columns whose true positive and true negative rates are alike among groups.

The slack holds on the training rows, if possible, as the shipped rule decides them; that may take a mixture of
rules, so that some decisions are drawn. It can make *individual* unfairness worse, by rewarding values that tell the
group; an alarm is raised where decisions come to hang more on such values, declared comparable or not. The mathematics
is in :mod:`fairfix.solvers.group_blind_rates`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fairfix.data.counts import Bools, Floats, Ints
from fairfix.data.once import once_per_object
from fairfix.data.table import Table
from fairfix.errors import DataError
from fairfix.individual.flips import Flip, flipped
from fairfix.individual.similar import Comparable
from fairfix.methods.base import Solver
from fairfix.methods.learned import FOLDS, fitting, fitting_classes, label_of, model_of, other_than
from fairfix.methods.problem import RepairProblem
from fairfix.methods.sensei.exact import merged_features, proposed, undeclared, values_alone
from fairfix.models.estimators import Learner
from fairfix.models.learners import folds_of, out_of_fold
from fairfix.models.members import Member
from fairfix.models.mixtures import BlindRule, probabilities_of
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.score_models import Scorer, Unrepaired
from fairfix.models.trace import Caution, FitTrace, Note, Quantity
from fairfix.solvers.group_blind_rates import BlindMixture, View, WeightedSample, held_rates
from fairfix.solvers.group_blind_rates import GroupBlindRule as PricedRule

if TYPE_CHECKING:
    from fairfix.methods.sensei import Sensei

ROUNDING = 1e-6
"""Tolerance of the linear program, by which a gap may exceed the slack."""

DEAR = 0.01
"""Balanced accuracy that it may cost to hold equal rates in two views of the rows instead of one: a point."""

ALARM = 0.02
"""More decisions than this share that come to depend on what tells the group raise the alarm."""


class EqualRates(Solver):
    """True positive and true negative rates within the slack of the overall ones, with the most balanced accuracy."""

    method: Sensei
    option = "`solver=equal-rates`"
    reads: ClassVar = {"similar": values_alone, "learner": other_than("network")}
    tasks = ("classification",)
    uses_labels = True

    def fit(self, problem: RepairProblem, rng: np.random.Generator) -> RepairedPredictor:
        """Hold the rates as the members that ship see the rows, and as members do that have not seen the row."""
        method, table, y = self.method, problem.table, label_of(problem)
        seed = int(rng.integers(2**31))
        _require_both_labels(problem, y)
        models = _models_of(problem, method.comparable_values, method.model, method.l2, seed)
        plain, scorers, unseen = models.label, models.groups, models.unseen
        slack = min(method.slack, 1.0)
        free = PricedRule.of(*unseen, table.weight)
        codes = tuple(table.groups([name]).codes for name in models.columns)
        rows = WeightedSample(y, codes, problem.weight / problem.weight.sum())
        mixture, rounds = self._held_rates(free, probabilities_of(table, plain, scorers), unseen, rows, slack)
        predictor = BlindRule.of((plain, *chain(*scorers)), mixture)
        own, other = predictor.predict(table), mixture.chance(*unseen)
        gap, apart = (float(np.abs(rows.gaps(one)).max()) for one in (own, other))
        right, most = rows.balanced(other), rows.balanced((free.score(*unseen) > 0).astype(np.float64))
        holds = gap <= method.slack + ROUNDING
        reached = (
            f"true positive and true negative rates of groups are within {gap:.4f} of the overall rates, as the rule "
            f"decides the training rows; by models not fitted to the row they are within {apart:.4f}; the slack is "
            f"{method.slack:g}"
        )
        cost = f"balanced accuracy is {right:.4f}, and {most:.4f} without the slack, by the same models"
        dear = most > 0.5 and right - 0.5 < 0.5 * (most - 0.5)
        notes = (
            Note(reached, "reached") if holds else Caution(f"the rule exceeds the slack: {reached}", "slack"),
            Caution(f"the slack costs most of the information in the features: {cost}", "cost")
            if dear
            else Note(cost, "cost"),
            *proposed(problem, method),
            *_alarm(problem, method, predictor, plain),
        )
        rates = "largest distance of a group's true positive or true negative rate to the overall rate"
        members = "by models not fitted to the row"
        best = "of the best rule without the slack, by the same models"
        trace = FitTrace(
            holds,
            rounds,
            -right,
            notes=notes,
            base=Unrepaired(model_of(problem, method.model, "logistic", method.l2, seed)),
            quantities=(
                Quantity("gap", gap, f"{rates}, as the rule decides the training rows"),
                Quantity("gap unseen", apart, f"{rates}, {members}"),
                Quantity("balanced accuracy", right, members),
                Quantity("balanced accuracy without slack", most, best),
            ),
        )
        return replace(predictor, trace=trace)

    def _held_rates(
        self, free: PricedRule, shipped: View, unseen: View, rows: WeightedSample, slack: float
    ) -> tuple[BlindMixture, int]:
        """Return what :func:`held_rates` does, for the rows as the members that ship see them and as others do.

        Where both together cost too much, linear members count as they ship, for what they have learned of single rows
        is little, and trees as members that have not seen the rows.
        """
        both = held_rates(free, (shipped, unseen), rows, slack)
        one = held_rates(free, (shipped if self.method.model == "linear" else unseen,), rows, slack)
        right = [rows.balanced(mixture.chance(*unseen)) for mixture, _ in (both, one)]
        return both if right[0] >= right[1] - DEAR else one


def _require_both_labels(problem: RepairProblem, y: Floats) -> None:
    """Raise where a group has no rows of one label, before anything is fitted."""
    for name in problem.groups.columns:
        groups = problem.table.groups([name])
        for label in (1, 0):
            many = np.bincount(groups.codes, problem.weight * (y == label), len(groups.levels))
            if not many.all():
                raise DataError(
                    f"group {groups.names[int(np.argmin(many))]!r} of {name!r} has no rows of label {label} to fit on, "
                    "so it has no rate to equalize; leave the group out or merge it into another"
                )


@dataclass(frozen=True, eq=False)
class RateModels:
    """Parts of the rule that are independent of the slack."""

    label: Scorer
    """P(label | features)."""
    groups: tuple[tuple[Scorer, Scorer], ...]
    """P(group | features, label 1) and with label 0, for each of the columns."""
    columns: tuple[str, ...]
    """Those columns; one of a single group has the overall rates, and no model."""
    unseen: View
    """The training rows as members see them that have not seen the row."""


@once_per_object
def _models_of(
    problem: RepairProblem, comparable: Comparable, learner: Learner, l2: float, seed: int
) -> RateModels:
    """Return the models of label and groups over the features."""
    table, y = problem.table, label_of(problem)
    features, matrix = merged_features(problem, comparable, learner)
    folds = folds_of(matrix, FOLDS, table.weight)
    settings: dict[str, Any] = {"learner": learner, "l2": l2, "seed": seed}
    of_label = fitting(matrix, y, table.weight, loss="logistic", **settings)
    whole = of_label(np.arange(len(table)))
    chance = out_of_fold(of_label, matrix, folds, whole)
    scorers, given = [], []
    columns = tuple(name for name in problem.groups.columns if len(table.groups([name]).levels) > 1)
    for name in columns:
        sides = [_groups_given(table, name, matrix, y == label, folds, settings) for label in (1.0, 0.0)]
        scorers.append((Scorer(features, sides[0][0]), Scorer(features, sides[1][0])))
        given.append((sides[0][1], sides[1][1]))
    return RateModels(Scorer(features, whole), tuple(scorers), columns, (chance, tuple(given)))


def _groups_given(
    table: Table, name: str, X: Floats, inside: Bools, folds: Ints, settings: dict[str, Any]
) -> tuple[Member, Floats]:
    """Return the model of P(group | features, label) and its predictions, for rows of the label out of fold."""
    groups, rows = table.groups([name]), np.flatnonzero(inside)
    weight, own = table.weight[rows], X[rows]
    fit, usable = fitting_classes(own, groups.codes[rows], len(groups.levels), weight, **settings)
    member = fit(np.arange(rows.size))
    predicted = member.predict(X)
    predicted[rows] = out_of_fold(fit, own, folds[rows], member, usable)
    return member, predicted


def _alarm(problem: RepairProblem, method: Sensei, rule: BlindRule, plain: Scorer) -> Iterator[Caution]:
    """Yield an alarm where decisions hang more on values that tell the group than before."""
    table = problem.table
    proposals = ((one.column, one.alike) for one in undeclared(problem, method))
    sample = table.take(np.arange(0, len(table), max(1, len(table) // 5000)))
    for name, alike in dict.fromkeys((*proposals, *method.comparable_values)):
        flips = (Flip({}, {name: value}, everybody=True) for value in alike)
        rows = [flipped(sample, flip, ((name, alike),)) for flip in flips]
        before = np.stack([plain(one) >= table.data_spec.cut for one in rows]).astype(np.float64)
        after = np.stack([rule.predict(one) for one in rows])
        was, now = (
            float(np.average(np.ptp(chance, axis=0), weights=sample.weight)) for chance in (before, after)
        )
        if now > was + ALARM:
            yield Caution(
                f"ALARM: equal rates are reached through {name}: if all rows had {' or '.join(alike)}, {now:.1%} "
                f"of decisions would change, compared with {was:.1%} for the plain model; name these values with "
                "`similar`",
                "alarm",
            )
