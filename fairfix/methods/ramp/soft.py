r"""Ramps for soft groups: no group is recorded, and each row has probabilities of membership.

With ``z_k`` the probability of a row to be of group ``k`` (of sum 1 over the groups) the rates that are made alike are
weighted by it,

.. math:: m_k(q) = \frac{\sum_i w_i z_{ik} q_i}{\sum_i w_i z_{ik}}, \qquad |m_k(q) - \rho| \le \epsilon / 2 ,

which is linear in ``q``, so that the optimum is ``clip((f - sum_k t_k z_k)/gamma, 0, 1)``: a row pays the mean of its
groups' multipliers (:func:`fairfix.optim.pairs.solve_soft`). Weighted rates are those of the true groups where the
probabilities are right and, among rows of equal probabilities, decisions do not hang on the true group; decisions are a
function of score, probabilities and chance, so it does that the score does not.

References
----------
Theorem 3 of the paper for constraints that are linear in ``q``; J. Chen, N. Kallus, X. Mao, G. Svacha and M. Udell,
*Fairness under unawareness: assessing disparity when protected class is unobserved* (2019), for weighted rates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from fairfix.data.counts import Floats
from fairfix.data.memberships import memberships
from fairfix.errors import DataError
from fairfix.methods.base import RepairProblem
from fairfix.models.predictors import RepairedPredictor, SoftRamp
from fairfix.models.trace import Caution, Certificate, FitTrace, Note, Quantity
from fairfix.optim.pairs import PairsSolution, solve_soft

if TYPE_CHECKING:
    from fairfix.methods.ramp import Ramp

NEEDED = 1e-6
"""Part of the rows' weight that a group has at least: less is not told from the rounding of probabilities."""


def fit_soft(method: Ramp, problem: RepairProblem) -> RepairedPredictor:
    """Return the ramp of soft groups with its trace; a DataError where a group has next to no probability."""
    groups, table = method.membership, problem.table
    z, weight = memberships(table, tuple(groups.values())), table.weight
    kept = weight > 0  # a row without weight has no part in anything
    z, weight, score = z[kept], weight[kept], table.ranking[kept]
    share = weight @ z / weight.sum()
    for (group, column), part in zip(groups.items(), share.tolist(), strict=True):
        if part < NEEDED:
            raise DataError(
                f"group {group!r} has {part:.2g} of the rows to fit on, by the probabilities in {column!r}; leave it "
                "out and add its probability to another group's"
            )
    lift = method.lift(table.reading)
    best = solve_soft(score + lift, z, method.gamma, method.slack, weight)
    # every row has groups of sum 1, so what is taken from all multipliers lowers the score of every row
    offsets = best.multipliers[:, 0] - lift
    made = SoftRamp(tuple(groups), tuple(groups.values()), offsets, method.gamma)
    chance = made.predict(table)[kept]
    notes = (*alike_for_all(chance), ASSUMED)
    return replace(made, trace=_trace(method, groups, best, offsets, notes))


ASSUMED = Note(
    "rates of groups are weighted by the probabilities of membership; they are those of the true groups if the "
    "probabilities are right for the people in these data and if, among people of equal probabilities, the score, and "
    "for rates by label the label too, tells nothing of the true group; the data cannot show either",
    "assumption",
)
"""What weighted rates rest on."""


def alike_for_all(chance: Floats) -> Iterator[Note]:
    """Yield a caution where the repair decides alike for everybody."""
    for decision, end in (("negative", 0.0), ("positive", 1.0)):
        if (chance == end).all():
            yield Caution(f"the repaired rule decides {decision} for everybody", "selection")


def _trace(
    method: Ramp, groups: Mapping[str, str], best: PairsSolution, offsets: Floats, notes: tuple[Note, ...]
) -> FitTrace:
    """Return how the fit went, and what it proves."""
    proven = Certificate(
        f"mean of {method.gamma:g} q^2 / 2 - f q (q the chance of a positive decision, f what one is worth by the "
        "score)",
        best.objective,
        best.objective - best.gap,
        "all chances of a positive decision for these rows that hold the slack in the difference of the selection "
        "rates weighted by the probabilities of membership",
    )
    meaning = "what the group adds to a row's threshold, times the row's probability to be of it, on the scale 2 p - 1"
    return FitTrace(
        best.converged,
        best.iterations,
        best.objective,
        best.gap,
        notes,
        certificates=(proven,),
        quantities=(
            Quantity("rho", float(best.centres[0]), "centre of the band of rates"),
            *(Quantity("offset", t, meaning, k) for k, t in zip(groups, offsets.tolist(), strict=True)),
        ),
    )
