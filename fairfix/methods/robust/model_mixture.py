"""The paper's ideal algorithm over the models that a learner can make: a mixture of their cuts that no noise breaks.

The learner is asked again and again for a model of least cost, where the costs of accepting rows are made of errors and
of prices of the worst noise; see :mod:`fairfix.noise.model_mixtures`. ``oracle`` assumes N0, N1 or N2,
which hold for any decision. No model sees the recorded group.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fairfix.data.counts import Floats, Ints
from fairfix.errors import DataError
from fairfix.methods.base import Solver, anything, only
from fairfix.methods.learned import design_of, label_of, mean_of
from fairfix.methods.problem import RepairProblem
from fairfix.methods.robust.assumption import assuming, assumption_of, surveyed
from fairfix.methods.robust.gradient_training import require_trainable
from fairfix.methods.robust.histogram import Binned, Kinds, RowNoise, bin_edges, bins_of, shares_of
from fairfix.methods.robust.notes import cut_note, extremes, reliance
from fairfix.models.learners import fit_mean
from fairfix.models.members import Member
from fairfix.models.mixtures import DecisionMixture
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.score_models import Scorer, Unrepaired
from fairfix.models.trace import Caution, FitTrace, Note
from fairfix.noise.model_mixtures import COIN, MixedModels, mix_models
from fairfix.noise.rates import DEMANDS, LABELS
from fairfix.noise.training import NoisyRows

if TYPE_CHECKING:
    from fairfix.methods.robust import Robust

CERTAIN = 1e-9
"""Share that is none."""

BINS = 100
"""Bins of a model's score between which it is cut: one of a few rows tells nothing of others."""


class OracleMixture(Solver):
    """A mixture of a learner's models, each cut at a threshold of its own."""

    method: Robust
    option = "`solver=oracle`"
    uses_labels = True
    needs_rows = "it fits models to the features of rows; use `solver=thresholds`"
    reads: ClassVar = {
        **dict.fromkeys(("constraint", "learner", "bins", "survey_confidence"), anything),
        "group": only("unused"),
        "assume": assuming("none", "radii"),
    }

    def fit(self, problem: RepairProblem, rng: np.random.Generator) -> RepairedPredictor:
        """Mix models, and say what the mixture relies on."""
        method, weight = self.method, problem.weight / problem.weight.sum()
        assumed = assumption_of(method, problem)
        require_trainable(problem, f"{method.name}: {self.option}")
        seed = int(rng.integers(2**31))
        scored = mean_of(problem, method.model, "logistic", method.l2, seed)
        kinds, own = Kinds.recorded(problem, blind=True).by_vector(problem), shares_of(problem)
        if kinds.vectors is None:
            noise = RowNoise.of_groups(problem, own)
        else:
            noise = RowNoise((kinds.joint(kinds.vectors, weight),), None, None, None)
        noise = surveyed(method, problem, noise, own)
        label, many = label_of(problem).astype(np.int64), kinds.rules.size
        learner = _Learner(problem, method, seed)
        rows = NoisyRows(None, label, kinds.codes, weight, many)
        try:
            slack = min(method.shared_slack or 0.0, 1.0)
            best = mix_models(rows, noise.adversary(assumed), method.parity, slack, learner)
        except ValueError as error:
            raise DataError(f"{method.name}: {error}") from error
        rule = learner.mixture(best)
        chance = rule.predict(problem.table)
        binned, of_bins = Binned.decided(problem, np.repeat(chance[:, None], many, 1), kinds)
        if kinds.vectors is not None:
            noise = RowNoise.of(problem, binned)
        notes = (
            *self._notes(best, rule),
            *extremes(problem, scored.scores, chance),
            *reliance(method, problem, binned, noise, of_bins, assumed),
            *cut_note(problem),
        )
        base = Unrepaired(scored.scorer)
        trace = FitTrace(
            best.at_end, best.models, best.error, notes=notes, base=base, base_fitted=scored.scores
        )
        return DecisionMixture(rule.models, rule.thresholds, rule.weights, rule.always, trace=trace)

    def _notes(self, best: MixedModels, rule: DecisionMixture) -> Iterator[Note]:
        """Yield how the mixture was found, and what is unusual about it."""
        if not len(rule.models):
            yield Caution(
                "the repaired rule makes the same decision for all rows: no model that the learner found helps "
                "within the constraint",
                "selection",
            )
        end = (
            "and found none that improves it"
            if best.at_end
            else "the largest number allowed, and more might improve it"
        )
        if self.method.goal == "minimax":
            yield Note(
                "on the training rows and under the assumption, the largest error rate of a true group is at most "
                f"{best.largest:z.4f}; it is not known whether a mixture of the learner's models has a smaller one",
                "worst_case",
            )
        never = 1.0 - float(rule.weights.sum()) - rule.always
        parts = [f"{share:.1%} a model at a threshold" for share in rule.weights]
        parts += [
            f"{share:.1%} {answer} for all rows"
            for share, answer in ((rule.always, "yes"), (never, "no"))
            if share > CERTAIN
        ]
        yield Note(
            f"the deciding rule is randomized: {', '.join(parts)}; the learner fitted {best.models} models, each "
            "of small "
            f"cost at the dual values of the worst noise, {end}; it is not known to find the least cost, so no "
            "bound on the least error is known",
            "search",
        )


class _Learner:
    """Fits models to costs, and keeps them."""

    def __init__(self, problem: RepairProblem, method: Robust, seed: int) -> None:
        self.method, self.design, self.seed = method, design_of(problem, method.model), seed
        self.bins = BINS if isinstance(method.bins, str) else method.bins
        of_label = any(len(LABELS[rate]) == 1 for rate, _ in DEMANDS[method.parity])
        self.weight = problem.weight
        self.asked = (self.weight > 0) & ((label_of(problem) == 1) | (not of_label))
        self.made: list[tuple[Member, Floats]] = []
        """Models with the least score of each bin."""

    def __call__(self, cost: Floats) -> Ints:
        """Fit a model and return the bin of each row: labels say which rows to accept, weights what that saves."""
        size = np.abs(cost)
        size = np.where(size > 0, size, size.max() * 1e-12)  # a row without cost weighs nothing
        member = fit_mean(
            self.design.matrix,
            (cost < 0).astype(np.float64),
            size / size.mean(),
            learner=self.method.model,
            loss="logistic",
            l2=self.method.l2,
            seed=self.seed,
        )
        score = member.predict(self.design.matrix)
        edges = bin_edges(score, self.weight, self.asked, self.bins, -np.inf)
        self.made.append((member, edges))
        return bins_of(edges, score)

    def mixture(self, best: MixedModels) -> DecisionMixture:
        """Return the models that have a share, each with the least score that it accepts."""
        models, thresholds, weights, always = [], [], [], 0.0
        for (number, cut), share in zip(best.rules, best.shares.tolist(), strict=True):
            if (number, cut) == COIN:
                always += share / 2
                continue
            member, edges = self.made[number]
            if cut == 0:
                always += share
            elif cut < edges.size:
                models.append(Scorer(self.design.features, member))
                thresholds.append(float(edges[cut]))
                weights.append(share)
        return DecisionMixture(tuple(models), np.array(thresholds), np.array(weights), min(always, 1.0))
