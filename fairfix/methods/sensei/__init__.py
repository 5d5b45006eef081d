r"""SenSeI: individual fairness. People who differ only in what does not count get about the same score.

.. math::
    \min_h\; E[\ell(Y, h(X))] + \rho\, R_\epsilon(h), \qquad
    R_\epsilon(h) = \sup_{\Pi:\ E_\Pi[d_X(X, X')] \le \epsilon} E_\Pi\big[(h(X) - h(X'))^2\big]
    = \inf_{\lambda \ge 0}\; \lambda \epsilon + E \sup_{x'} \big[(h(X) - h(x'))^2 - \lambda\, d_X(X, x')\big] ,

with log-odds ``h`` and a *fair metric* ``d_X`` that is 0 for differences that do not count: flips of the protected
columns (all levels, jointly) and of comparable values inside a column. ``epsilon``, the radius, lets other features
move too.

================  ==================================================================  ==================
``solver``        what it does                                                        constant under flips
================  ==================================================================  ==================
``merge``         a model without the protected columns, in which comparable values   exactly
                  are one
``regularizer``   the objective for a linear model, in closed form: no adversary; or  as ``rho`` says
                  for a hidden layer of ReLU (``learner=network``), flips by
                  enumeration
``average``       the mean of a model file's scores over all flips, by their shares   exactly
``equal-rates``   a decision without the protected columns, true positive and true    exactly
                  negative rates within ``slack``, most balanced accuracy
================  ==================================================================  ==================

``regularizer`` (:mod:`fairfix.methods.sensei.regularized`) is about models that look at the protected
columns (``--group used``) or at comparable values. ``equal-rates``
(:mod:`~fairfix.methods.sensei.equal_rates`) is not SenSeI: it makes groups alike, which individual fairness does not.
More, and the paper's symbols, are in docs/sensei.md; the mathematics, with corrections to the paper and the reference
code, is in docs/methods/sensei.md.

References
----------
M. Yurochkin and Y. Sun, *SenSeI: sensitive set invariance for enforcing individual fairness*, ICLR 2021;
M. Yurochkin, A. Bower and Y. Sun, *Training individually fair ML models with sensitive subspace robustness*, ICLR 2020.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from fairfix.data.choices import Asked
from fairfix.data.data_spec import DataSpec
from fairfix.data.domain import domain, parameter
from fairfix.data.spec import Form
from fairfix.errors import FairfixWarning, UsageError
from fairfix.individual.flips import check_comparable
from fairfix.individual.similar import Comparable, Similar
from fairfix.methods.base import Repairer, Solver, Use, group_param
from fairfix.methods.guarantee import GuaranteeAdapter
from fairfix.methods.learned import L2, LEARNERS, MOST_L2, Learning, learner_param
from fairfix.methods.problem import RepairProblem
from fairfix.methods.sensei.equal_rates import EqualRates
from fairfix.methods.sensei.exact import Average, Merge
from fairfix.methods.sensei.regularized import Linear, NetworkLearner
from fairfix.models.estimators import Learner
from fairfix.models.predictors import RepairedPredictor
from fairfix.noise.description import Noise

LEARNED: Mapping[str, Form] = {
    **LEARNERS,
    "network": Form(
        "a hidden layer of ReLU",
        {
            "hidden": domain(
                "auto",
                "ReLUs of the hidden layer; auto: one per ten training rows, 4 to 100",
                words=("auto",),
                at_least=1,
                at_most=4000,
                kind=int,
            ),
            "batch": domain(
                1000, "largest number of rows per training step", at_least=1, at_most=1_000_000, kind=int
            ),
            "l2": domain(
                L2,
                "weight of the squared weights on average over the ReLUs, relative to the mean loss",
                at_least=0.0,
                at_most=MOST_L2,
            ),
        },
    ),
}
"""Learner by its name -> what it is, and its keys."""


class SenseiGuarantee(GuaranteeAdapter):
    """The fraction of decisions that depend on the group; changes of real values have no upper bound."""

    method: Sensei

    def refusal(self, data_spec: DataSpec, features: tuple[str, ...] | None) -> str:
        """Return why nothing can be guaranteed."""
        if features is None and self.method.solver not in ("average", "equal-rates"):
            return (
                "the effect of a change of the protected columns on a score is unknown; name columns to learn from "
                "with `features`"
            )
        if data_spec.task == "regression" and self.method.solver != "merge":
            return "changes of real values are unbounded; use `solver=merge`, which allows none"
        return ""


@dataclass(frozen=True)
class Sensei(Learning):
    """Individual fairness; see the module's docstring."""

    name: ClassVar[str] = "sensei"
    summary: ClassVar[str] = (
        "individual fairness: the same score for people who differ only in attributes that must not matter"
    )
    criterion: ClassVar[str] = "decision_flips.under_flips"
    uses: ClassVar[tuple[Use, ...]] = ("features",)
    guarantee_adapter: ClassVar = SenseiGuarantee
    tasks: ClassVar[tuple[Asked, ...]] = ("classification", "regression", "multiclass")
    solvers: ClassVar = {
        "merge": Merge,
        "regularizer": Linear,
        "network": NetworkLearner,
        "average": Average,
        "equal-rates": EqualRates,
    }

    slack: float = parameter(
        0.01, "largest allowed gap, measured by the method's criterion", at_least=0.0, finite=False
    )
    solver: str = parameter(
        "merge",
        "merge: use no protected column and treat comparable values as one; regularizer: the penalty of SenSeI, for "
        "the learners linear and network; "
        "average: the mean of a model file's scores over flips; equal-rates: equal true positive and true negative "
        "rates without using the group",
        choices=("merge", "regularizer", "average", "equal-rates"),
    )
    group: str = group_param("unused", "used")
    similar: str = parameter(
        "",
        "people whose difference must not count, besides flips of the protected columns: COLUMN=VALUE,VALUE; "
        "near(radius=NUMBER), which may have a cost; learned(by=logistic), means or pooled; a file of copies, pairs or "
        "directions (all but values: regularizer)",
        selectable=True,
    )
    rho: float | str = parameter(
        "auto",
        "weight of the regularizer; auto: the smallest of a grid that is shown to meet the slack, at the decision "
        "threshold, on rows not fitted to; inf: exactly constant (learner linear)",
        words=("auto",),
        at_least=0.0,
        finite=False,
        selectable=True,
    )
    balance: str = parameter(
        "none",
        "labels: both labels have equal weight in the fit (regularizer), as in balanced batches; the score "
        "is then not a probability in the population",
        choices=("none", "labels"),
    )
    learner: Learner = learner_param(LEARNED)

    copied: bool = field(default=False, kw_only=True)
    """Whether there are counterfactual copies of people, whose decisions the slack bounds then."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.people.alternatives) > 1:
            raise UsageError(
                "sensei: `similar` takes one near and one learned here; a repair tries several, and a fit takes one"
            )
        if self.rho == math.inf and self.radius > 0:
            raise UsageError(
                "sensei: with `rho=inf` and near(radius=...) in `similar`, only a constant model is left; leave one out"
            )

    @cached_property
    def people(self) -> Similar:
        """Similar people; flips are similar in any case."""
        return Similar.parse([self.similar])

    @property
    def effective_solver(self) -> Solver:
        """The algorithm that solver and learner choose."""
        network = self.solver == "regularizer" and self.model == "network"
        return self.solvers["network" if network else self.solver](self)

    @property
    def comparable_values(self) -> Comparable:
        """Columns with values whose difference does not count."""
        return self.people.comparable

    @property
    def radius(self) -> float:
        """The mean squared distance by which features may also move; 0 for flips alone."""
        return self.people.radius or 0.0

    def bounded_comparison(self, data_spec: DataSpec) -> str:
        """Return the identifier of the audit comparison that ``slack`` bounds; real values decide nothing."""
        if self.solver == "equal-rates":
            return "equalized_odds.difference.to_overall"
        if self.copied:
            return "decision_flips.under_counterfactuals"
        return "score_change.under_flips" if data_spec.task == "regression" else self.criterion

    def constrained_attributes(self, protected: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """Return the attributes whose groups the slack holds alike: equal rates are those of each column alone."""
        return (
            tuple((name,) for name in protected)
            if self.solver == "equal-rates"
            else super().constrained_attributes(protected)
        )

    @property
    def shared_slack(self) -> float | None:
        """The slack, where it changes the fit."""
        chosen = self.solver == "regularizer" and self.rho == "auto"
        return self.slack if chosen or self.solver == "equal-rates" else None

    @classmethod
    def contenders(cls, data_spec: DataSpec, noise: Noise | None = None) -> Iterator[tuple[str, Repairer]]:
        """Yield the exact solver, the closed form over its slack, and equal rates."""
        yield cls.name, cls()
        if data_spec.task == "classification":
            yield f"{cls.name}, linear", cls(solver="regularizer")
            yield f"{cls.name}, equal rates", cls(solver="equal-rates")

    def _fit(self, problem: RepairProblem, rng: np.random.Generator) -> RepairedPredictor:
        """Fit with the effective solver, once comparable values are known to be among the features."""
        if problem.features is None and self.solver in ("merge", "regularizer"):
            unseen = (
                "no evidence that the repair helped: sensei learned from the score alone, and the score that a "
                "changed person would have is unknown; name features to learn from, or average the scores of "
                "a model file (`solver=average`)"
            )
            warnings.warn(FairfixWarning(unseen, "no_help"), stacklevel=2)
        if self.comparable_values and self.solver != "average":
            check_comparable(problem.table, self.comparable_values)
            for name, _ in self.comparable_values:
                if name not in (problem.features or ()):
                    raise UsageError(
                        f"`similar`: column {name!r} is not learned from; name it with `features`"
                    )
        return super()._fit(problem, rng)


def with_counterfactuals(repairer: Repairer) -> Repairer:
    """Return the repairer whose slack is of decisions that change with copies, as well as with flips.

    Other methods are as they are.
    """
    return replace(repairer, copied=True) if isinstance(repairer, Sensei) else repairer
