r"""Fair regression: real-valued scores with statistical parity at every threshold, or with bounded loss in every group.

Statistical parity. With a loss ``l``, groups ``a`` and slacks ``epsilon_a``:

.. math::
    \min_u\; E[l(Y, u)] \quad\text{s.t.}\quad
    \sup_z \left|P(u \le z \mid a) - P(u \le z)\right| \le \epsilon_a \text{ for each group } a .

Bounded group loss, with a bound ``zeta_a`` on the loss of each group:

.. math::
    \min_f\; E[l(Y, f(X))] \quad\text{s.t.}\quad E[l(Y, f(X)) \mid a] \le \zeta_a \text{ for each group } a .

The loss is the square ``(Y - u)^2`` or the log loss of a probability; the reduction knows the absolute loss too.

================  ================================  ===================  =====================================
solver            solutions it searches             group at predict     optimum
================  ================================  ===================  =====================================
``closed-form``   all functions of score and group  yes                  exact
``plug-in``       all functions of what is looked   only if a feature    certified gap for the estimated
                  at, through ``E[Y|X]``, ``P(a|X)``                     ``E[Y|X]`` and ``P(a|X)``
``reduction``     mixtures of linear models or      only if a feature    none is certified: the gap that the oracle
                  trees                                                  sees is a lower estimate of the true one
================  ================================  ===================  =====================================

``auto`` takes the closed form where the protected columns are features, else the plug-in. The slack is the paper's:
group against everybody, at every threshold, on the rows of the fit. A score alone is taken as ``E[Y|X]``; with features
rows are scored by models that have not seen them (:mod:`fairfix.methods.learned`). More, and the paper's symbols, are
in docs/fair-regression.md, the mathematics in :mod:`fairfix.optim.quantiles`, :mod:`~fairfix.optim.plugin`,
:mod:`~fairfix.optim.reduction` and :mod:`~fairfix.optim.group_loss`.

References
----------
A. Agarwal, M. Dudik and Z. S. Wu, *Fair regression: quantitative definitions and reduction-based algorithms* (2019);
E. Chzhen, C. Denis, M. Hebiri, L. Oneto and M. Pontil, *Fair regression with Wasserstein barycenters* (2020).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairfix.data.choices import Task
from fairfix.data.counts import Floats
from fairfix.data.reading import Reading
from fairfix.data.table import Groups, Table
from fairfix.errors import DataError, UsageError
from fairfix.methods.base import Repairer, RepairProblem, Solver, param
from fairfix.methods.fair_regression.group_loss import GroupLoss
from fairfix.methods.fair_regression.parity import ClosedForm, PlugIn, Reduction
from fairfix.methods.learned import l2_param, label_of, learner_param
from fairfix.models.predictors import RepairedPredictor
from fairfix.optim.reduction import LOSSES

LEARNERS_OF = {"direct": ("linear",), "cost-sensitive": ("linear",)}
"""Oracle -> learners that it fits; others fit all."""


class Auto(Solver):
    """The closed form where the protected columns are features, else the plug-in."""

    method: FairRegression
    option = "`solver=auto`"
    needs_rows = ""
    counts_as_groups = True
    reads: ClassVar = {**PlugIn.reads, **ClosedForm.reads}

    def fit(self, problem: RepairProblem, rng: np.random.Generator) -> RepairedPredictor:
        """Choose and fit."""
        solver = ClosedForm if problem.protected_as_feature else PlugIn
        self.method.check_reads(solver)
        return solver(self.method).fit(problem, rng)


@dataclass(frozen=True)
class FairRegression(Repairer):
    """Scores with statistical parity at every threshold, or bounded loss in every group; see the module's docstring."""

    name: ClassVar[str] = "fair-regression"
    summary: ClassVar[str] = (
        "real-valued scores: statistical parity at every threshold (KS), or bounded loss in every group"
    )
    criterion: ClassVar[str] = "ks.to_overall"
    learns: ClassVar[bool] = True
    draws: ClassVar[bool] = True
    tasks: ClassVar[tuple[Task, ...]] = ("classification", "regression")
    solvers: ClassVar = {
        "auto": Auto,
        "closed-form": ClosedForm,
        "plug-in": PlugIn,
        "reduction": Reduction,
        "bounded_group_loss": GroupLoss,
    }
    rivals: ClassVar = {"": {}, "group seen": {"solver": "closed-form"}}

    constraint: str = param(
        "statistical_parity",
        "what is held: the distance of each group's scores to everybody's, or the loss of each group",
        choices=("statistical_parity", "bounded_group_loss"),
    )
    slack: float = param(0.05, "largest gap that is left, in the method's criterion", at_least=0.0)
    group_slack: str = param("", "slacks of single groups instead, as GROUP=NUMBER,...", text=True)
    loss: str = param(
        "auto",
        "what is minimised; auto: logistic for 0/1 labels, square for real ones",
        choices=("auto", "square", "logistic", "absolute"),
    )
    solver: str = param(
        "auto",
        "how statistical parity is reached; auto: closed-form if the protected columns are features, and from "
        "counts, else plug-in",
        choices=("auto", "closed-form", "plug-in", "reduction"),
    )
    oracle: str = param(
        "auto",
        "how the reduction finds models; auto: direct for linear ones, least-squares or risk for trees",
        choices=("auto", "direct", "least-squares", "risk", "cost-sensitive"),
    )
    mixture: str = param(
        "drawn",
        "the reduction's models: one drawn for each row, which has parity, or their average, which need not",
        choices=("drawn", "averaged"),
    )
    decisions: str = param(
        "randomized",
        "the closed form's values: drawn among those of a row's score, so that the slack holds, or one value for one "
        "score, whose distance and cost are reported",
        choices=("randomized", "deterministic"),
    )
    bound: str = param(
        "",
        "largest loss of a group, for bounded_group_loss: one number, or GROUP=NUMBER,... for some groups",
        text=True,
    )
    learner: str = learner_param()
    l2: float = l2_param()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.constraint == "bounded_group_loss" and not self.bound:
            raise UsageError("fair-regression: bounded_group_loss needs a bound; give `bound=NUMBER`")
        if self.learner not in LEARNERS_OF.get(self.oracle, (self.learner,)):
            raise UsageError(
                f"fair-regression: the oracle {self.oracle} fits linear models; leave out `learner=trees`"
            )

    @property
    def solver_in_force(self) -> Solver:
        """The algorithm of the constraint and the solver."""
        return self.solvers[self.solver if self.constraint == "statistical_parity" else self.constraint](self)

    @property
    def slack_of_all(self) -> float | None:
        """The slack, unless groups have their own."""
        return None if self.group_slack else self.slack

    def bounds_of(self, reading: Reading) -> str:
        """Return the identifier of the audit comparison that ``slack`` or ``bound`` holds."""
        if self.constraint == "statistical_parity":
            return self.criterion
        return "log_loss.max" if self.loss_of(reading) == "logistic" else "square_loss.max"

    def without_guarantee(self, reading: Reading) -> str:
        """Return why nothing is promised of other people: losses without an end, or a slack for each group."""
        if self.constraint == "bounded_group_loss":
            return (
                "a loss of people who are not in the data is bounded only where losses are, and "
                "`constraint=bounded_group_loss` has no slack to keep back; take `constraint=statistical_parity`"
            )
        return "slacks of single groups are not promised; give one `slack`" if self.group_slack else ""

    def loss_of(self, reading: Reading) -> str:
        """Return the loss in force."""
        if self.loss != "auto":
            return self.loss
        return "square" if reading.task == "regression" else "logistic"

    def recipe(self, problem: RepairProblem, rng: np.random.Generator) -> tuple[str, str, float, int]:
        """Return learner, loss, penalty and seed: how :mod:`fairfix.methods.learned` is to fit members."""
        return self.learner, self.loss_of(problem.table.reading), self.l2, int(rng.integers(2**31))

    def quality(self, table: Table, predicted: Floats, threshold: float) -> float:
        """Return what selection among parameter values makes large: minus the mean loss on the labels."""
        label = table.rows.label
        if label is None:
            raise UsageError("selecting among parameter values needs labels; name the column with `label`")
        loss = LOSSES[self.loss_of(table.reading)].value(label.astype(np.float64), predicted)
        return -float(np.average(loss, weights=table.rows.weight))

    def slacks(self, groups: Groups) -> Floats:
        """Return the slack of each group, shape (K,)."""
        return numbers_of(self.group_slack, groups.names, "group_slack", self.slack)

    def limits(self, groups: Groups) -> Floats:
        """Return the bound on the loss of each group, shape (K,); infinite where none is asked."""
        try:
            level = float(self.bound)
        except ValueError:
            return numbers_of(self.bound, groups.names, "bound", math.inf)
        if not level >= 0:
            raise UsageError(f"`bound={self.bound}`: a loss is at least 0")
        return np.full(len(groups.names), level)

    def _fit(self, problem: RepairProblem, rng: np.random.Generator) -> RepairedPredictor:
        """Fit with the solver in force, once labels are known to be such that the loss has a meaning."""
        if self.loss == "logistic" and problem.table.reading.task == "regression":
            if problem.table.rows.entries is not None:
                raise UsageError(
                    "fair-regression: `loss=logistic` needs labels in [0, 1], and counts do not tell where real ones "
                    "lie; take `loss=square`"
                )
            y = label_of(problem)
            if y.min() < 0 or y.max() > 1:
                raise DataError(
                    f"label column {problem.table.reading.columns.label!r} goes from {y.min():g} to {y.max():g}; the "
                    "logistic loss needs labels in [0, 1]: take `loss=square`, or rescale it"
                )
        return super()._fit(problem, rng)


def numbers_of(text: str, names: tuple[str, ...], parameter: str, default: float) -> Floats:
    """Return the numbers of ``GROUP=NUMBER,...`` by group, shape (K,); UsageError where a group or a number is none."""
    out = dict.fromkeys(names, default)
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, sign, number = part.rpartition("=")
        if not sign or name.strip() not in out:
            raise UsageError(f"`{parameter}` {part!r}: write GROUP=NUMBER with a group of {', '.join(names)}")
        try:
            out[name.strip()] = float(number)
        except ValueError:
            raise UsageError(f"`{parameter}` {part!r}: {number!r} is not a number") from None
        if not out[name.strip()] >= 0:
            raise UsageError(f"`{parameter}` {part!r}: the number must be at least 0")
    return np.array([*out.values()], dtype=np.float64)
