"""Exact individual fairness: a model that sees no difference that does not count, or the mean of a model over flips."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fairfix.data.counts import Floats
from fairfix.data.once import once_per_object
from fairfix.individual.flips import Proxy, proxies
from fairfix.individual.similar import Comparable, Similar
from fairfix.methods.base import Solver
from fairfix.methods.learned import classes_of, label_of, model_of, other_than, score_range
from fairfix.methods.problem import RepairProblem
from fairfix.models.class_chances import ClassChances
from fairfix.models.estimators import Learner, sees_gaps
from fairfix.models.features import Features
from fairfix.models.learners import fit_classes, fit_mean, is_fitted
from fairfix.models.mixtures import ModelMixture
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.score_models import Scorer, Unrepaired
from fairfix.models.trace import FitTrace, Note
from fairfix.solvers.plugin_rule import expected_loss

if TYPE_CHECKING:
    from fairfix.methods.sensei import Sensei


def values_alone(similar: str) -> bool:
    """Whether only values of columns are said to be similar, which is what a model can treat as one."""
    return not Similar.parse([similar]).of_features


class Merge(Solver):
    """A model without the protected columns, in which comparable values are one."""

    method: Sensei
    option = "`solver=merge`"
    reads: ClassVar = {"similar": values_alone, "learner": other_than("network")}
    uses_labels = True

    def fit(self, problem: RepairProblem, rng: np.random.Generator) -> RepairedPredictor:
        """Fit the model."""
        method, table = self.method, problem.table
        seed = int(rng.integers(2**31))
        if problem.has_classes:
            return self._of_classes(problem, seed)
        y = label_of(problem)
        loss = "square" if table.data_spec.task == "regression" else "logistic"
        features, matrix = merged_features(problem, method.comparable_values, method.model)
        member = fit_mean(matrix, y, table.weight, learner=method.model, loss=loss, l2=method.l2, seed=seed)
        scorer = Scorer(features, member, score_range(problem, loss))
        each = expected_loss(loss, y, scorer.bounded(member.predict(matrix)))
        value = float(np.average(each, weights=table.weight))
        done = is_fitted(member, matrix, y, table.weight, method.l2)
        trace = FitTrace(done, 1, value, notes=tuple(proposed(problem, method)))
        return beside_plain(method, problem, scorer, seed, trace)

    def _of_classes(self, problem: RepairProblem, seed: int) -> RepairedPredictor:
        """Fit the model of many classes."""
        method, weight, (names, codes) = self.method, problem.weight, problem.classes
        features, matrix = merged_features(problem, method.comparable_values, method.model)
        member = fit_classes(matrix, codes, len(names), weight, learner=method.model, l2=method.l2, seed=seed)
        chance = member.predict(matrix)[np.arange(codes.size), codes]
        with np.errstate(divide="ignore"):  # an infinite loss of rows that a forest is certain about
            value = float(np.average(-np.log(chance), weights=weight))
        trace = FitTrace(True, 1, value, notes=tuple(proposed(problem, method)))
        return beside_plain(method, problem, Scorer(features, member), seed, trace)


class Average(Solver):
    """The mean of a model file's scores over flips, which is taken where the scores are made."""

    option = "`solver=average`"
    tasks = ("classification", "regression")
    reads: ClassVar = {"similar": values_alone}

    def fit(self, problem: RepairProblem, rng: np.random.Generator) -> RepairedPredictor:
        """Return the score as it is; a mean has nothing to search."""
        note = (
            "scores are the mean over flips, so they are constant under flips; an audit of the model shows "
            "the original scores"
        )
        trace = FitTrace(True, 1, math.nan, notes=(Note(note, "averaged"),))
        return ModelMixture((Scorer(),), np.ones(1), averaged=True, trace=trace)


@once_per_object
def merged_features(
    problem: RepairProblem, comparable: Comparable, learner: Learner
) -> tuple[Features, Floats]:
    """Return features in which comparable values are one, and their matrix."""
    features = Features.learn(problem.table, problem.features, (), dict(comparable))
    return features, features.matrix(problem.table, gaps=sees_gaps(learner))


def beside_plain(
    method: Sensei, problem: RepairProblem, scorer: Scorer, seed: int, trace: FitTrace
) -> RepairedPredictor:
    """Return the predictor of a scorer, with the plain model to compare it with; for a network it is linear."""
    learner = "linear" if method.model == "network" else method.model
    if problem.has_classes:
        names, plain = problem.classes[0], classes_of(problem, learner, method.l2, seed)
        return ClassChances(scorer, names, trace=replace(trace, base=ClassChances(plain, names)))
    loss = "square" if problem.table.data_spec.task == "regression" else "logistic"
    base = Unrepaired(model_of(problem, learner, loss, method.l2, seed))
    return ModelMixture((scorer,), np.ones(1), averaged=True, trace=replace(trace, base=base))


def undeclared(problem: RepairProblem, method: Sensei) -> Iterator[Proxy]:
    """Yield the comparable values that a scan proposes and nobody has declared."""
    if problem.features is None:
        return
    declared = {name for name, _ in method.comparable_values}
    learned = replace(problem.table, features=problem.table.features.select(list(problem.features)))
    for proposal in proxies(learned, problem.groups.columns):
        if proposal.column not in declared:
            yield proposal


def proposed(problem: RepairProblem, method: Sensei) -> Iterator[Note]:
    """Yield a note on each proposal of comparable values."""
    for proposal in undeclared(problem, method):
        yield Note(f"possible comparable values, not used: {proposal}; name them with `similar`", "proposed")
