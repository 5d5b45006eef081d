r"""Ramp: demographic parity from trained scores by a randomised threshold per group.

With the score ``f = 2 p - 1`` of a trained model, weights ``w`` and groups ``k``, the rule ``q`` solves

.. math::
    \min_{q, \rho}\; \sum_i w_i \left(\tfrac{\gamma}{2} q_i^2 - f_i q_i\right)
    \quad\text{s.t.}\quad 0 \le q_i \le 1,\quad
    \left|\tfrac{1}{W_k} \sum_{i \in k} w_i q_i - \rho\right| \le \epsilon / 2,

so the selection rates of any two groups differ by at most ``epsilon`` (``slack``): the audit's
``selection_rate.difference.between_groups``. Without the quadratic term the objective is the expected
accuracy of the decisions when the scores are calibrated (``E[(2y - 1) q] = sum f q``); the term turns the
threshold of each group into a ramp of width ``gamma``,

.. math:: q = \mathrm{clip}((f - t_k) / \gamma, 0, 1).

The common rate ``rho`` is optimised together with the offsets ``t_k``: the paper's default, the mean score,
costs accuracy. The optimum is exact: one root per group inside one root over ``rho``, with a certified
duality gap; the derivation is in :mod:`fairfix.optim.ramp`.

=================  =================  ==============================================
paper              here               meaning
=================  =================  ==============================================
``f(x)``           ``2 p - 1``        score in [-1, 1]
``h(x)``           ``p_positive``     probability of a positive decision
``gamma``          ``gamma``          width of the ramp
``epsilon``        ``slack``          allowed difference of selection rates
``lambda - mu``    ``offsets``        threshold of the group
=================  =================  ==============================================

Labels are not used. The objective trusts the scores: with badly calibrated scores and a positive slack the
optimum drifts towards the biased scores.

References
----------
I. Alabdulmohsin and M. Lucic, *A near-optimal algorithm for debiasing trained machine learning models* (2021).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairfix.optim.ramp import Cell, solve
from fairfix.predictors import FitTrace, GroupwiseRamp, RepairedPredictor
from fairfix.repair.base import Repairer, RepairProblem, param


@dataclass(frozen=True)
class Ramp(Repairer):
    """Demographic parity of trained scores by a randomised threshold per group; see the module's docstring."""

    name: ClassVar[str] = "ramp"
    summary: ClassVar[str] = "randomised threshold per group on trained scores: demographic parity"
    criterion: ClassVar[str] = "selection_rate.difference.between_groups"

    gamma: float = param(
        0.05,
        "width of the randomised ramp, in units of the score 2p-1; several values: the validation part chooses",
        at_least=1e-6,
        at_most=10.0,
        selectable=True,
    )

    def _fit(self, problem: RepairProblem, rng: np.random.Generator) -> RepairedPredictor:
        table, groups = problem.table, problem.cells
        score = 2.0 * table.probability - 1.0
        weight = table.rows.weight
        cells = []
        for k in range(len(groups.levels)):
            inside = groups.codes == k
            cells.append(Cell.of(score[inside], None if weight is None else weight[inside]))
        best = solve(cells, self.gamma, self.slack)
        trace = FitTrace(best.converged, best.iterations, best.objective, best.gap, _notes(best.rates))
        return GroupwiseRamp(groups.columns, groups.levels, best.offsets, best.remainders, self.gamma, trace)


def _notes(rates: np.typing.NDArray[np.float64]) -> tuple[str, ...]:
    """Say it when the repair decides the same for everybody."""
    if rates.max() <= 0.0 or rates.min() >= 1.0:
        return (f"the repaired rule decides {'negative' if rates.max() <= 0 else 'positive'} for everybody",)
    return ()
