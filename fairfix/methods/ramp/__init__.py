r"""Ramp: groups made alike from trained scores, by a randomised threshold per group.

With the score ``f = 2 p - 1`` of a trained model, weights ``w`` and groups ``k``, the rule ``q`` solves

.. math::
    \min_{q, \rho}\; \sum_i w_i \left(\tfrac{\gamma}{2} q_i^2 - f_i q_i\right)
    \quad\text{s.t.}\quad 0 \le q_i \le 1,\quad
    \left|m_{kj}(q) - \rho_j\right| \le \epsilon / 2 \text{ for each group } k \text{ and mean } j .

Without the quadratic term the objective is the expected accuracy of the decisions when the scores are
calibrated (``E[(2y - 1) q] = sum f q``); the term makes the optimum unique and turns each threshold into a ramp
of width ``gamma``. The ``constraint`` says which means are alike, with ``eta = (1 + f)/2`` the probability of label 1:

======================  =============================================  ==========================================
constraint              means of a group                               rule
======================  =============================================  ==========================================
demographic_parity      ``E[q | k]``                                   ``clip((f - t_k)/gamma, 0, 1)``
covariance              ``p_k |E[q | k] - E[q]| <= epsilon``           ``clip((f - t_k)/gamma, 0, 1)``
equal_opportunity       ``E[eta q | k] / E[eta | k]``                  ``clip((f - u_k eta/pi_k)/gamma, 0, 1)``
predictive_equality     ``E[(1 - eta) q | k] / E[1 - eta | k]``        ``clip((f - v_k (1 - eta)/(1 - pi_k))
                                                                       /gamma, 0, 1)``
equalized_odds          both of the last                               ``clip((f - u_k eta/pi_k
                                                                       - v_k (1 - eta)/(1 - pi_k))/gamma, 0, 1)``
======================  =============================================  ==========================================

With a ratio, ``dp.ratio>=R``, the means of one rate are in ``[R rho, rho]`` instead of a band of width ``epsilon``.
Since ``rho`` is free that is ``min_k m_k >= R max_k m_k``: the four-fifths rule, for ``R = 0.8``.

With ``[each]`` the groups are those of each protected column alone, which overlap: a cell of the crossed
columns has the sum of its groups' multipliers, ``clip((f - sum_j t_jk)/gamma, 0, 1)``.

With ``noise`` no group is recorded: rows have probabilities of membership, by which rates are weighted
(:mod:`fairfix.methods.ramp.soft`). With ``covariance[age]`` what is protected is a column of numbers, whose covariance
with decisions is bounded (:mod:`fairfix.methods.ramp.continuous_attribute`).

The common means ``rho`` are optimised together with the multipliers, unless one is given: the mean score, the default
of the authors' code, costs accuracy. With ``gamma = 0`` the rules become thresholds with a tie probability (and, for
equalized odds, their mixtures with a constant). All optima are exact (:mod:`fairfix.methods.ramp.strata`), or
those of scores in fine bins (:mod:`fairfix.methods.ramp.stream`). Strata are problems of their own.

If the base decisions cut the probability at ``c`` and not at 1/2, ``f + 1 - 2c = 2 (p - c)`` takes the place of ``f``:
errors cost what makes ``c`` the best threshold. Where the constraint is about labels, ``eta`` is by default the
isotonic regression of the labels on the scores of each group, so that rates counted with ``eta`` are those counted
with the labels. The objective trusts the scores; a note says so where labels show them to be off. More, and the paper's
symbols, are in docs/ramp.md.

References
----------
I. Alabdulmohsin and M. Lucic, *A near-optimal algorithm for debiasing trained machine learning models* (2021);
M. Hardt, E. Price and N. Srebro, *Equality of opportunity in supervised learning* (2016).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from fairfix.auditing.comparisons import TRUE_GROUPS, WITH_NUMBER, Comparison
from fairfix.auditing.criteria import CRITERIA, between_groups, events_of, rates_of
from fairfix.data.data_spec import DataSpec
from fairfix.data.domain import parameter
from fairfix.data.noise_spec import NoiseSpec, membership_text
from fairfix.errors import DataError, UsageError
from fairfix.methods.base import Repairer, Use
from fairfix.methods.constraint import Grammar
from fairfix.methods.problem import RepairProblem
from fairfix.methods.ramp.exact import Exact
from fairfix.methods.ramp.guarantee import RampGuarantee
from fairfix.methods.ramp.stream import Stream
from fairfix.methods.ramp.validation import check_parameters, check_rows
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.trace import Note
from fairfix.noise.description import Noise
from fairfix.noise.repair_evaluation import RobustnessClaim


@dataclass(frozen=True)
class Ramp(Repairer):
    """Groups made alike from trained scores by a randomised threshold per group; see the module's docstring."""

    name: ClassVar[str] = "ramp"
    summary: ClassVar[str] = (
        "randomized thresholds per group for a trained model's scores: demographic parity, covariance, equal "
        "opportunity, predictive equality (FPR), equalized odds; a difference or a ratio, as in the four-fifths rule"
    )
    criterion: ClassVar[str] = "selection_rate.difference.between_groups"
    uses: ClassVar[tuple[Use, ...]] = ("strata", "unlabelled")
    guarantee_adapter: ClassVar = RampGuarantee
    solvers: ClassVar = {"exact": Exact, "stream": Stream}
    _rivals: ClassVar = {
        "": {},
        "equal opportunity": {"constraint": "equal_opportunity"},
        "equalized odds": {"constraint": "equalized_odds"},
        "four-fifths": {"constraint": "selection_rate.ratio>=0.8"},
    }
    grammar: ClassVar = Grammar(
        {
            **{between_groups(name): name for name in CRITERIA},
            "selection_rate.covariance.to_overall": "covariance",
        },
        ratios=CRITERIA[:3],
        each=True,
        numbers=True,
    )

    constraint: str = parameter(
        "demographic_parity",
        "constraint to meet: demographic_parity, equal_opportunity, predictive_equality, equalized_odds or covariance, "
        "or a condition such as tpr.difference<=0.02 or dp.ratio>=0.8. dp[each]<=0.02 limits each protected column by "
        "itself. covariance[age]<=0.02 is for a column of numbers and replaces `protected`",
    )
    noise: str = parameter(
        "",
        "membership:GROUP=COLUMN,..., columns with each row's probability of being in each true group, for groups that "
        "are not recorded. The constrained rates are weighted by them. This assumes that, given the probabilities, "
        "decisions are independent of the true group (and labels too, for rates by label). Replaces `protected`",
    )
    gamma: float = parameter(
        0.05,
        "width of the randomized ramp, on the scale 2p-1 of the score. With 0, only ties at the threshold are "
        "randomized. If you give several values, validation rows choose one",
        at_least=0.0,
        at_most=10.0,
        selectable=True,
    )
    rho: float | str = parameter(
        "joint",
        "common rate of the groups: the best one by the scores (joint) or by the labels (labels), the mean "
        "score (mean), or a number. If you give several values, validation rows choose one",
        words=("joint", "labels", "mean"),
        at_least=0.0,
        at_most=1.0,
        selectable=True,
    )
    shape: str = parameter(
        "one-sided",
        "position of the ramp: above its threshold, as in the paper (one-sided), or around it (centred)",
        choices=("one-sided", "centred"),
        selectable=True,
    )
    calibrate: str = parameter(
        "auto",
        "recalibrate the scores in each group with its labels; auto: isotonic if the constraint is about labels",
        choices=("auto", "none", "isotonic", "sigmoid"),
        selectable=True,
    )
    decisions: str = parameter(
        "randomized",
        "randomized decisions, or the nearest deterministic thresholds; the report shows their cost",
        choices=("randomized", "deterministic"),
    )

    solver: str = parameter(
        "exact",
        "exact: the exact solution; stream: the solution for scores in fine bins, which reads the rows twice and needs "
        "little memory",
        choices=("exact", "stream"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_parameters(self)

    @property
    def instead(self) -> str:
        """The parameter that takes the place of recorded groups; empty where there are such."""
        return (
            "noise"
            if self.membership
            else f"constraint={self.constraint}"
            if self.parsed_constraint.numbers
            else ""
        )

    @cached_property
    def membership(self) -> Mapping[str, str]:
        """True group -> the column of each row's probability to be of it; empty where groups are recorded."""
        return NoiseSpec.parse([self.noise]).membership or {} if self.noise else {}

    @classmethod
    def contenders(cls, data_spec: DataSpec, noise: Noise | None = None) -> Iterator[tuple[str, Repairer]]:
        """Yield the variants that `compare` shows, also that of each of several columns, and those of soft groups."""
        yield from super().contenders(data_spec, noise)
        if len(data_spec.columns.protected) > 1:
            yield f"{cls.name}, each column", cls(constraint="demographic_parity[each]")
        members = {} if noise is None else noise.membership or {}
        if members and not data_spec.columns.strata and data_spec.score_scale != "raw":
            for title in ("", "equal opportunity"):
                own = ", ".join(filter(None, (cls.name, "soft groups", title)))
                yield own, cls(noise=membership_text(members), **cls._rivals[title])

    @property
    def about_labels(self) -> bool:
        """Whether the constraint is about rates among the rows of one label."""
        return None not in self.events

    @property
    def events(self) -> tuple[int | None, ...]:
        """The labels among whose rows rates are made alike; None for rows of both."""
        return (None,) if self.goal == "covariance" else events_of(self.goal)

    @property
    def calibration(self) -> str:
        """The effective recalibration."""
        if self.calibrate != "auto":
            return self.calibrate
        return "isotonic" if self.about_labels else "none"

    @property
    def uses_labels(self) -> bool:
        """Whether the fit uses labels."""
        return self.calibration != "none" or self.rho == "labels"

    def bounded_comparison(self, data_spec: DataSpec) -> str:
        """Return the identifier of the audit comparison that the constraint bounds, strata aside."""
        if self.parsed_constraint.numbers:
            return WITH_NUMBER
        bounded = super().bounded_comparison(data_spec)
        return Comparison.parse(bounded).to(TRUE_GROUPS).id if self.membership else bounded

    def claim(self, noise: Noise | None) -> RobustnessClaim | None:
        """Return that rates weighted by membership are within the slack; None where groups are recorded."""
        if not self.membership:
            return None
        noise = Noise(membership=self.membership, assume="independent")
        return RobustnessClaim(noise, (), self.slack, rates_of(self.goal))

    def lift(self, data_spec: DataSpec) -> float:
        """Return what is added to ``2 p - 1``, so that the objective is largest at the decision threshold.

        A threshold ``c`` on the probability is best where the two errors cost ``c`` and ``1 - c``; then
        ``2 (p - c)`` is what a positive decision is worth. The centred ramp, which penalises ``(q - 1/2)^2``, adds half
        its width.
        """
        return (1.0 - 2.0 * data_spec.cut) + (self.gamma / 2 if self.shape == "centred" else 0.0)

    @property
    def needs_rows(self) -> str:
        """Why counts do not do for rows; empty where they do."""
        if self.parsed_constraint.numbers:
            return (
                f"counts have no values of {' and '.join(self.parsed_constraint.numbers)}; repair from `data`"
            )
        return super().needs_rows

    def _fit(self, problem: RepairProblem, rng: np.random.Generator) -> RepairedPredictor:
        """Fit; a score that is no probability is made one by its isotonic regression in each group."""
        check_rows(self, problem)
        if problem.table.data_spec.score_scale != "raw":
            return super()._fit(problem, rng)
        for name, refused in (
            ("solver", self.solver == "stream"),
            ("calibrate", self.calibrate in ("none", "sigmoid")),
            ("rho", self.rho == "mean"),
        ):
            if refused:
                raise UsageError(
                    f"ramp: {name} {getattr(self, name)} needs scores that are probabilities, and these are raw; "
                    f"leave `{name}` out, or set `score_scale=probability`, percent, margin or logit"
                )
        if problem.table.rows.label is None:
            raise DataError(
                "a raw score is calibrated with labels; name their column with `label`, or set "
                "`score_scale=probability`, percent, margin or logit"
            )
        predictor = replace(self, calibrate="isotonic").effective_solver.fit(problem, rng)
        if self.calibrate == "isotonic":
            return predictor
        note = "the raw score was calibrated to a probability in each group, by isotonic regression on the labels"
        trace = replace(predictor.trace, notes=(Note(note, "uncalibrated"), *predictor.trace.notes))
        return replace(predictor, trace=trace)
