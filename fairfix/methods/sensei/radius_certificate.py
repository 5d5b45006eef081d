r"""Decisions that change when rows move within the radius: what held-out rows show of people who are not in the data.

SenSeI bounds the mean squared change of the log-odds over all plans that move rows by at most a mean distance. What
counts in the end is who is decided otherwise. With 0 or 1 for whether the decision changes in place of the squared
change, and ``c(x)`` for the cost of the cheapest move of ``x`` across the threshold (0 where a flip alone does it),

.. math::
    \sup_\Pi P_\Pi(\text{decided otherwise}) \le \lambda \epsilon + E \max(0, 1 - \lambda c(X))
    \quad \text{for every } \lambda \ge 0 .

The multiplier is chosen by training rows, so the mean is one of independent numbers in [0, 1] on rows that were held
out, and bets bound it (:func:`fairfix.stats.tails.upper_by_bets`). For a linear model ``c`` is exact but for the
values that columns can have; for a network it is a lower bound, which leaves the sentence true and makes it weaker.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import logit

from fairfix.data.counts import Floats
from fairfix.data.table import Table
from fairfix.methods.sensei.counterfactual_rows import FlippedRows
from fairfix.models.features import Features
from fairfix.models.members import LinearMember, NetworkMember
from fairfix.models.trace import Note
from fairfix.solvers.invariant_linear import linear_crossings
from fairfix.solvers.network import Network
from fairfix.solvers.relu_change_bounds import network_crossings
from fairfix.solvers.transport import left_across, share_across
from fairfix.stats.tails import stake_of, upper_by_bets

SURE = 0.05
"""Chance at which what is said of people who are not in the data, or of a chosen weight, may be false."""

MEASURED = 2000
"""Largest number of rows whose crossings are bounded for a network: four seconds, by 100 ReLUs."""


def network_of(member: NetworkMember) -> Network:
    """Return the network of a member."""
    return Network(member.hidden, member.hidden_bias, member.out, member.out_bias)


@dataclass(frozen=True, eq=False)
class Moves:
    """A model of two classes, with how far rows are moved: the mean squared distance and the inverse of its metric."""

    member: LinearMember | NetworkMember
    radius: float
    metric_inverse: Floats
    cut: float
    """The decision threshold."""

    def costs(self, changed: FlippedRows) -> Floats:
        """Return the least cost at which each row is decided otherwise, or a lower bound of it, shape (n,)."""
        level, one = float(logit(self.cut)), self.member
        if isinstance(one, NetworkMember):
            metric = self.metric_inverse
            return network_crossings(
                network_of(one), changed.X, changed, level=level, eps=self.radius, metric_inverse=metric
            )
        every, rows = one.coef[:, 0], np.arange(len(changed.X))
        listed = [changed.X, *(changed.variant(k, rows) for k in range(changed.many))]
        logits = np.stack([X @ every + one.intercept[0] for X in listed])
        return linear_crossings(logits, level, max(float(every @ self.metric_inverse @ every), 0.0))

    def said_of(
        self, fitted: FlippedRows, features: Features, held: Table, repaired: Table
    ) -> Iterator[Note]:
        """Yield what held-out rows say of decisions that change; ``fitted``: the training rows, under flips."""
        if not 0 < self.cut < 1 or not len(held):
            return
        most = MEASURED if isinstance(self.member, NetworkMember) else max(len(held), len(fitted.X))
        taken = np.arange(0, len(held), -(-len(held) // most))
        others, shared = fitted.of_others(features.matrix(held)[taken])
        costs = np.where(shared, self.costs(others), 0.0)
        weight = held.weight[taken]
        shown = share_across(costs, self.radius, weight)[0]
        moved = f"any move by a mean squared distance of at most {self.radius:g}"
        if others.many:
            moved += ", in addition to flips,"
        rows = f"of {len(taken):,} held-out rows, {moved} changes at most {shown:.4f} of the decisions at {self.cut:g}"
        if held.weighted:
            yield Note(rows, "moves")
            return
        before = self.costs(fitted.of_others(fitted.X[:: -(-len(fitted.X) // most)])[0])
        multiplier = share_across(before, self.radius)[1]
        spread = float(left_across(before, multiplier).std())
        cost = -math.log(SURE)
        mean = upper_by_bets(left_across(costs, multiplier), float(stake_of(spread, len(taken), cost)), cost)
        bound = min(multiplier * self.radius + mean, 1.0)
        yield Note(
            f"{rows}; and at most {bound:.4f} in the population, with {1 - SURE:.0%} confidence",
            "moves",
        )
