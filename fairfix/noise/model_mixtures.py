r"""Mixtures of models whose true groups are alike whatever the noise, over a class that a learner searches.

A rule is a model of a learner with a cut between bins of its score. For rule ``r`` let ``e_r`` be its error, ``g_rj``
what the worst noise for *this* rule makes of the constraint of true group ``j``. As in
:mod:`fairfix.noise.enumerated_rules`,

.. math:: \min_p \sum_r p_r e_r \quad\text{s.t.}\quad \sum_r p_r g_{rj} \le 0 \text{ for all } j, \qquad p \ge 0,
    \; \sum_r p_r = 1 ,

but the rules are more than can be looked at. So the program is solved over those that were found so far, and its prices
``lambda`` ask for another: of least ``e_r + sum_j lambda_j g_rj``. Given the worst noise of some rule that is the sum
of what it costs to accept rows, and a learner finds a model for it: labels say which rows to accept, weights what that
saves. All cuts of the model are judged against the worst noise of their own and join the program. The mixture is done
when no rule is found that the prices call for.

It is the ideal algorithm of the paper with a program in the place of its steps. Where groups are as they are recorded
and the learner finds the least cost, it ends at the optimum. Else a rule may be better under its own worst noise than
under that which the learner was shown, and not be found: no optimum is claimed.

References
----------
S. Wang, W. Guo, H. Narasimhan, A. Cotter, M. Gupta and M. I. Jordan, *Robust optimization for fairness with noisy
protected groups* (2020), for the ideal algorithm, a game with an oracle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fairfix.noise.enumerated_rules import RuleMixture, best_mixture, judged_cuts
from fairfix.noise.rates import DEMANDS, Floats, Parity, require_labels
from fairfix.noise.training import Adversary, NoisyRows, costs_of

Ints = npt.NDArray[np.int64]

MODELS = 60
"""Most models that the oracle is asked for: each takes a fit; ten or twenty do, as a rule."""

TURNS = 3
"""Models that are asked for in turn from the worst noise of one rule, then of the last model's best cut."""

GAIN = 1e-4
"""Part of the error by which a rule must promise a better mixture: tables show no less."""

MISSED = 1e-7
"""Tolerance of a least largest error, which is that of the programs."""

FEW = 1e-5
"""Share of a mixture that buys nothing but what :data:`MISSED` allows."""

COIN = (-1, 0)
"""The rule that accepts all rows with probability 1/2; its error is 1/2 in every group, whatever the noise."""

Oracle = Callable[[Floats], Ints]
"""Takes what accepting each row costs, shape (n,), and returns the bin of each row, (n,), by the score of a model."""


@dataclass(frozen=True, eq=False)
class MixedModels:
    """A mixture of rules."""

    rules: tuple[tuple[int, int], ...]
    """Number of the model, in the order of the oracle, and how many of its lowest bins are refused; or :data:`COIN`."""
    shares: Floats
    """Shape (rules,), of sum 1."""
    error: float
    largest: float
    """Mean, over the rules as they are mixed, of what the worst true group misses its limit by; of minimax, errs by."""
    models: int
    """Models that the oracle was asked for."""
    at_end: bool
    """Whether none was found that makes the mixture better."""


def mix_models(
    rows: NoisyRows, adversary: Adversary, parity: Parity, slack: float, oracle: Oracle
) -> MixedModels:
    """Return the mixture of least error, of cuts of an oracle's models, whose constraint holds for the worst noise.

    ``slack`` is 0 or more, so that refusing all rows satisfies the constraint. Of minimax it is 0: the least largest
    error of a true group is looked for, which is what no error at all is missed by, and then a mixture of least error
    among those that reach it.
    """
    require_labels(np.asarray(np.bincount(rows.y, rows.weight, 2), np.float64), parity)
    search = _MixtureSearch(rows, adversary, parity, slack, oracle)
    search.ask(rows.weight * (1.0 - 2.0 * rows.y))
    if parity == "minimax":
        search.toss()
    best = search.best()
    if parity == "minimax":
        search.limit = float((best.share @ search.excess).max()) + MISSED
        best = search.best()
    kept = np.flatnonzero(best.share > (FEW if parity == "minimax" else 0.0))
    rules, share = tuple(search.rules[r] for r in kept), best.share[kept] / best.share[kept].sum()
    error, largest = float(share @ search.errors[kept]), float((share @ search.excess[kept]).max())
    return MixedModels(rules, share, error, largest, len(search.models), len(search.models) < MODELS)


class _MixtureSearch:
    """The models that were found so far, with all their cuts."""

    def __init__(
        self, rows: NoisyRows, adversary: Adversary, parity: Parity, slack: float, oracle: Oracle
    ) -> None:
        self.rows, self.adversary, self.oracle = rows, adversary, oracle
        self.parity, self.slack = parity, slack
        self.models: list[Ints] = []
        self.rules: list[tuple[int, int]] = []
        self.errors, self.excess = np.zeros(0), np.zeros((0, 0))
        self.limit = 0.0
        """Largest excess that is allowed."""

    def best(self) -> RuleMixture:
        """Return the best mixture, after asking for models until none makes it better."""
        while self.asked_for_better(best_mixture(self.errors, self.excess - self.limit)):
            pass
        return best_mixture(self.errors, self.excess - self.limit)

    def ask(self, cost: Floats) -> int:
        """Ask the oracle for a model; return the number of its first rule."""
        rows, at, first = self.rows, self.oracle(cost), len(self.rules)
        bins = int(at.max()) + 1
        shape = (rows.groups, bins, 2)
        index = np.ravel_multi_index((rows.codes, at, rows.y), shape)
        mass = np.bincount(index, rows.weight, rows.groups * bins * 2).reshape(shape)
        cuts = np.broadcast_to(np.arange(bins + 1), (rows.groups, bins + 1))
        errors, excess = judged_cuts(
            np.asarray(mass, np.float64), cuts, self.adversary, self.parity, self.slack
        )
        excess = np.nan_to_num(excess.reshape(bins + 1, -1), nan=0.0)
        self.rules += [(len(self.models), cut) for cut in range(bins + 1)]
        self.models.append(at)
        self.errors = np.append(self.errors, errors)
        self.excess = np.vstack([self.excess.reshape(-1, excess.shape[1]), excess])
        return first

    def toss(self) -> None:
        """Add the coin: each rule is held to its own worst noise, and that of all yes and all no are two."""
        self.rules.append(COIN)
        self.errors = np.append(self.errors, 0.5)
        self.excess = np.vstack([self.excess, np.full((1, self.excess.shape[1]), 0.5)])

    def accepted(self, rule: int) -> npt.NDArray[np.bool_]:
        """Return whom a rule accepts for certain, shape (n,)."""
        model, cut = self.rules[rule]
        if (model, cut) == COIN:
            return np.zeros(self.rows.y.size, dtype=bool)
        return np.asarray(self.models[model] >= cut)

    def cost(self, rule: int, best: RuleMixture) -> Floats:
        """Return what accepting each row costs, by the worst noise of a rule and prices of a mixture, shape (n,)."""
        rows, accept = self.rows, self.accepted(rule)
        of_rates = best.prices.reshape(len(DEMANDS[self.parity]), -1)
        extra = costs_of(rows.cells(accept), self.adversary, self.parity, of_rates)
        own = best.feasible * (1.0 - 2.0 * rows.y)  # nothing but the excess counts where the limit is missed
        return np.asarray(rows.weight * (own + extra.ravel()[rows.places(accept)]))

    def asked_for_better(self, best: RuleMixture) -> bool:
        """Ask for models that would make a mixture better, from each of its rules; return whether one would."""
        for start in np.argsort(-best.share, kind="stable")[: np.count_nonzero(best.share)]:
            rule = int(start)
            for _ in range(TURNS):
                if len(self.models) == MODELS:
                    return False
                first = self.ask(self.cost(rule, best))
                over = (self.excess[first:] - self.limit) @ best.prices
                worth = best.feasible * self.errors[first:] + over
                rule = first + int(worth.argmin())
                if worth.min() < best.level - GAIN:
                    return True
        return False
