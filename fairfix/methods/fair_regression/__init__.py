r"""Fair regression: real-valued scores with statistical parity at every threshold, or with bounded loss in every group.

Statistical parity. With a loss ``l``, groups ``a`` and slacks ``epsilon_a``:

.. math::
    \min_u\; E[l(Y, u)] \quad\text{s.t.}\quad
    \sup_z \left|P(u \le z \mid a) - P(u \le z)\right| \le \epsilon_a \text{ for each group } a .

Bounded group loss, with a bound ``zeta_a`` on the loss of each group:

.. math::
    \min_f\; E[l(Y, f(X))] \quad\text{s.t.}\quad E[l(Y, f(X)) \mid a] \le \zeta_a \text{ for each group } a .

The loss is the square ``(Y - u)^2``, the log loss of a probability, the Poisson deviance of a mean of counts, or the
pinball, absolute or Huber loss (:mod:`fairfix.solvers.losses`), which the closed form does not know: it is for losses
whose expectation depends on the mean of the label alone.

================  ================================  ===================  =====================================
solver            solutions it searches             group at predict     optimum
================  ================================  ===================  =====================================
``closed-form``   all functions of score and group  yes                  exact
``plug-in``       all functions of what is looked   only if a feature    certified gap for the estimated
                  at, through ``E[Y|X]``, ``P(a|X)``                     ``E[Y|X]`` and ``P(a|X)``
``reduction``     mixtures of linear models or      only if a feature    none is certified: the gap that the oracle
                  trees                                                  sees is a lower estimate of the true one
================  ================================  ===================  =====================================

``auto`` takes the closed form where the protected columns are features and it knows the loss, else the plug-in. The
slack is the paper's:
group against all rows, at every threshold, on the training rows. A score alone is taken as ``E[Y|X]``; with features
rows are scored by models that have not seen them (:mod:`fairfix.methods.learned`). More, and the paper's symbols, are
in docs/fair-regression.md, the mathematics in :mod:`fairfix.solvers.quantile_matching`, :mod:`~fairfix.solvers.plugin`,
:mod:`~fairfix.solvers.reduction` and :mod:`~fairfix.solvers.group_loss`.

References
----------
A. Agarwal, M. Dudik and Z. S. Wu, *Fair regression: quantitative definitions and reduction-based algorithms* (2019);
E. Chzhen, C. Denis, M. Hebiri, L. Oneto and M. Pontil, *Fair regression with Wasserstein barycenters* (2020).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from fairfix.data.choices import Asked
from fairfix.data.counts import Floats
from fairfix.data.data_spec import DataSpec
from fairfix.data.domain import parameter
from fairfix.data.names import attribute_name, did_you_mean
from fairfix.data.table import Groups, Table
from fairfix.errors import DataError, UsageError
from fairfix.methods.base import Solver, Use, group_param, refuse
from fairfix.methods.constraint import Grammar
from fairfix.methods.fair_regression.group_loss import GroupLoss
from fairfix.methods.fair_regression.guarantee import RegressionGuarantee, check_labels, label_range
from fairfix.methods.fair_regression.parity import MODELS_GROUPS, ClosedForm, PlugIn, Reduction
from fairfix.methods.learned import Learning, label_of, learner_param
from fairfix.methods.problem import RepairProblem
from fairfix.models.estimators import Learner, makes, minimises
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.trace import Note, Quantity
from fairfix.solvers.losses import OF_MEAN, RowLoss, row_loss

LOSSES = {"square_loss": "square", "log_loss": "logistic", "absolute_loss": "absolute"}
"""Metric of an audit -> the loss that it is the mean of."""

OF_LINEAR = ("direct", "cost-sensitive")
"""Oracles that fit linear models; others fit any learner."""


class Auto(Solver):
    """The closed form where the protected columns are features and the loss is one of the mean, else the plug-in."""

    method: FairRegression
    option = "`solver=auto`"
    needs_rows = ""
    reads: ClassVar = {**ClosedForm.reads, **PlugIn.reads}

    def fit(self, problem: RepairProblem, rng: np.random.Generator) -> RepairedPredictor:
        """Choose and fit."""
        of_mean = self.method.loss_of(problem.table.data_spec) in OF_MEAN
        solver = (ClosedForm if problem.protected_as_feature and of_mean else PlugIn)(self.method)
        solver.check_parameters()
        return solver.fit(problem, rng)


@dataclass(frozen=True)
class FairRegression(Learning):
    """Scores with statistical parity at every threshold, or bounded loss in every group; see the module's docstring."""

    name: ClassVar[str] = "fair-regression"
    summary: ClassVar[str] = (
        "equal distributions of scores in all groups (KS, parity at every threshold), or bounded loss in every group"
    )
    criterion: ClassVar[str] = "ks.to_overall"
    uses: ClassVar[tuple[Use, ...]] = ("features", "strata", "row_id")
    guarantee_adapter: ClassVar = RegressionGuarantee
    tasks: ClassVar[tuple[Asked, ...]] = ("classification", "regression")
    solvers: ClassVar = {
        "auto": Auto,
        "closed-form": ClosedForm,
        "plug-in": PlugIn,
        "reduction": Reduction,
        "bounded_group_loss": GroupLoss,
    }
    _rivals: ClassVar = {"": {}, "group used": {"group": "used"}}

    grammar: ClassVar = Grammar(
        {
            "ks.to_overall": "statistical_parity",
            **{f"{metric}.max": "bounded_group_loss" for metric in LOSSES},
        },
        without_gap=("bounded_group_loss",),
        groups=("statistical_parity", "bounded_group_loss"),
    )

    constraint: str = parameter(
        "statistical_parity",
        "quantity to limit. statistical_parity, or ks.to_overall<=0.02: the distance of each group's scores from those "
        "of all rows; bounded_group_loss<=0.2: the loss of each group in `loss`, also written with its name, as "
        "square_loss.max<=0.2. A limit may be for one group, such as ks.to_overall[race=Black]<=0.01. Separate several "
        "limits with commas",
    )
    slack: float = parameter(
        0.05, "largest allowed gap, measured by the method's criterion", at_least=0.0, finite=False
    )
    group: str = group_param("auto", "used", "unused")
    loss: str = parameter(
        "auto",
        "loss to minimize; auto: logistic for 0/1 labels, square for real ones",
        choices=("auto", "square", "logistic", "absolute", "quantile", "huber", "poisson"),
    )
    quantile_level: float = parameter(
        0.5, "quantile that loss=quantile predicts, between 0 and 1", above=0.0, at_most=1.0
    )
    solver: str = parameter(
        "auto",
        "solver for statistical parity; auto: closed-form with group=used and for counts, otherwise plug-in",
        choices=("auto", "closed-form", "plug-in", "reduction"),
    )
    oracle: str = parameter(
        "auto",
        "oracle that finds models in the reduction; auto: direct for linear ones, least-squares or risk for others",
        choices=("auto", "direct", "least-squares", "risk", "cost-sensitive"),
    )
    mixture: str = parameter(
        "drawn",
        "use of the reduction's models. drawn: one model for each row, chosen at random, which has parity; averaged: "
        "the average of all, which may not have parity",
        choices=("drawn", "averaged"),
    )
    search: str = parameter(
        "auto",
        "search for dual values in the reduction and bounded_group_loss; auto: a linear program over the "
        "models so far, or for linear models within bounds the optimum; exponentiated-gradient: Algorithms 1 and 2",
        choices=("auto", "exponentiated-gradient"),
    )
    nu: float = parameter(
        0.01,
        "stopping tolerance of search exponentiated-gradient: gap of the averages, as a fraction of the loss that "
        "the unconstrained model saves over the best constant (bounded_group_loss: of that model's loss)",
        above=0.0,
        at_most=1.0,
    )
    rounds: int = parameter(
        200, "largest number of rounds of exponentiated-gradient, one model each", at_least=1, at_most=100_000
    )
    decisions: str = parameter(
        "randomized",
        "values of the closed-form solver. randomized: drawn among the values for a score, so the slack holds; "
        "deterministic: one value per score, and the report shows its distance and cost",
        choices=("randomized", "deterministic"),
    )
    bin_rows: int = parameter(
        10,
        "smallest number of training rows of a group that share a score in the artifact: the closed form pools the "
        "scores of fewer rows. 1 keeps each score",
        at_least=1,
        at_most=1e6,
    )
    label_range: str = parameter(
        "",
        "range of real-valued labels in the population, as LOW,HIGH: a label outside is an error; with "
        "`guarantee`, bounded_group_loss needs it",
    )
    learner: Learner = learner_param()
    margin: tuple[float, ...] = ()
    """Part of the bound or slack of each group that is reserved for a guarantee; no parameter."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("nu", "rounds") if self.search == "auto" else ():
            if (given := getattr(self, name)) != getattr(type(self), name):
                raise UsageError(
                    f"fair-regression: `{name}={given}` needs `search=exponentiated-gradient`; add it, or "
                    f"leave out `{name}`"
                )
        wanted = self.parsed_constraint
        if self.bounds_losses and not (wanted.limits or wanted.most < math.inf):
            error = UsageError(
                f"fair-regression: `constraint={self.constraint}` needs a limit, such as {self.constraint}<=0.2"
            )
            raise error.proposing((self.constraint, f"{self.constraint}<=0.2"))
        if self.bounds_losses and wanted.metric:
            if self.loss not in ("auto", LOSSES[wanted.metric]):
                raise UsageError(
                    f"fair-regression: `constraint={self.constraint}` bounds the {LOSSES[wanted.metric]} loss, so "
                    f"leave out `loss={self.loss}`"
                )
            object.__setattr__(self, "loss", LOSSES[wanted.metric])
        label_range(self.label_range)
        if self.quantile_level == 1.0:
            raise UsageError("fair-regression: quantile_level must be below 1, got 1")
        if self.loss != "quantile" and self.quantile_level != type(self).quantile_level:
            raise UsageError(
                f"fair-regression: `quantile_level={self.quantile_level}` cannot be combined with "
                f"`loss={self.loss}`; it needs `loss=quantile`"
            )
        if not minimises(self.model, self.loss):
            loss = "Huber" if self.loss == "huber" else self.loss
            raise UsageError(
                f"fair-regression: {makes(self.model)} do not support the {loss} loss; leave out "
                f"`learner={self.learner}`, or use `loss=square`"
            )
        if self.model != "linear" and self.oracle in OF_LINEAR:
            raise UsageError(
                f"fair-regression: the oracle {self.oracle} fits linear models; leave out `learner={self.learner}`"
            )

    @property
    def effective_solver(self) -> Solver:
        """The algorithm of the constraint and the solver."""
        return self.solvers[self.goal if self.bounds_losses else self.solver](self)

    @property
    def bounds_losses(self) -> bool:
        """Whether losses of groups are bounded, and not distances of scores."""
        return self.goal == "bounded_group_loss"

    @property
    def cross_fitted(self) -> bool:
        """Whether a model counts on a training row by the prediction of a model that was not fitted to it.

        Linear models, and all models of the paper's algorithms, count as they are fitted. Others may repeat the labels
        of their training rows, so that a constraint on these says little.
        """
        return self.search == "auto" and self.model != "linear"

    @property
    def protected_as_feature(self) -> bool:
        """Whether the protected columns are features too."""
        return super().protected_as_feature or self.solver == "closed-form"

    @property
    def uses_labels(self) -> bool:
        """Whether the fit uses labels, as for losses whose expectation depends on more than the mean."""
        return super().uses_labels or self.loss not in ("auto", *OF_MEAN)

    @property
    def needs_rows(self) -> str:
        """Why counts do not do for rows; empty where they do."""
        if self.group == "unused":
            return MODELS_GROUPS
        if not super().needs_rows and self.loss not in ("auto", *OF_MEAN):
            return f"the expectation of `loss={self.loss}` depends on the labels of individual rows; use `loss=square`"
        return super().needs_rows

    def bounded_comparison(self, data_spec: DataSpec) -> str:
        """Return the identifier of the audit comparison that the constraint bounds.

        An audit has no pinball or Huber loss and no deviance, so the absolute loss is shown with a bound on them.
        """
        if not self.bounds_losses:
            return self.criterion
        audited = {"logistic": "log_loss.max", "square": "square_loss.max"}
        return audited.get(self.loss_of(data_spec), "absolute_loss.max")

    def loss_of(self, data_spec: DataSpec) -> str:
        """Return the name of the loss that is used."""
        usual = "square" if data_spec.task == "regression" else "logistic"
        return usual if self.loss == "auto" else self.loss

    def loss_on(self, table: Table) -> str:
        """Return the loss that is used with its number, a name of :mod:`fairfix.solvers.losses`."""
        name = self.loss_of(table.data_spec)
        if name == "quantile":
            return f"quantile:{self.quantile_level!r}"
        return f"huber:{self.delta_on(table)!r}" if name == "huber" else name

    def delta_on(self, table: Table) -> float:
        """Return the error above which Huber's loss grows evenly: the range of half of the labels."""
        label, weight = table.labels, table.weight
        order = np.argsort(label, kind="stable")
        upto = np.cumsum(weight[order])
        low, high = label[order[np.searchsorted(upto, upto[-1] * np.array([0.25, 0.75]) - 1e-9 * upto[-1])]]
        if not high > low:
            raise DataError(
                f"half of the rows have the label {low:g} in column {table.data_spec.columns.label!r}, so "
                "`loss=huber` has no scale; use `loss=absolute`"
            )
        return float(high - low)

    def recipe(self, problem: RepairProblem, rng: np.random.Generator) -> tuple[Learner, str, float, int]:
        """Return learner, loss, penalty and seed: how :mod:`fairfix.methods.learned` is to fit members."""
        return self.model, self.loss_on(problem.table), self.l2, int(rng.integers(2**31))

    def validation_score(self, table: Table, predicted: Floats) -> float:
        """Return what selection among parameter values makes large: minus the mean loss on the labels."""
        label = table.rows.label
        if label is None:
            raise UsageError("choosing among parameter values needs labels; name the column with `label`")
        loss = row_loss(self.loss_on(table)).value(label.astype(np.float64), predicted)
        return -float(np.average(loss, weights=table.weight))

    def slacks(self, groups: Groups) -> Floats:
        """Return the slack of each group, shape (K,)."""
        return self._kept(groups, self.slack if self.parsed_constraint.general else math.inf)

    def limits(self, groups: Groups) -> Floats:
        """Return the bound on the loss of each group, shape (K,); infinite where none is asked."""
        return self._kept(groups, self.parsed_constraint.most)

    def _kept(self, groups: Groups, usual: float) -> Floats:
        """Return the limits of groups, ``usual`` where they have none of their own, without what is kept back."""
        own = self.parsed_constraint.limits
        for name in own:
            if name not in groups.names:
                hint = did_you_mean(name, groups.names) or f"; the groups are {', '.join(groups.names)}"
                raise UsageError(
                    f"`constraint={self.constraint}`: no group {name!r} of {attribute_name(groups.columns)!r}{hint}"
                )
        numbers = np.array([own.get(name, usual) for name in groups.names], dtype=np.float64)
        return np.maximum(numbers - self.margin, 0.0) if self.margin else numbers

    def _fit(self, problem: RepairProblem, rng: np.random.Generator) -> RepairedPredictor:
        """Fit with the effective solver, once the labels are known to suit the loss."""
        if problem.table.rows.entries is not None:  # of counts, a rule of score and group
            problem = replace(problem, protected_as_feature=True)
        data_spec, regression = problem.table.data_spec, problem.table.data_spec.task == "regression"
        if self.loss == "logistic" and regression:
            if problem.table.rows.entries is not None:
                raise UsageError(
                    "fair-regression: `loss=logistic` needs labels in [0, 1], and counts do not show the range "
                    "of real ones; use `loss=square`"
                )
            y = label_of(problem)
            if y.min() < 0 or y.max() > 1:
                raise DataError(
                    f"label column {data_spec.columns.label!r} goes from {y.min():g} to {y.max():g}; the "
                    "logistic loss needs labels in [0, 1]: use `loss=square`, or rescale it"
                )
        check_labels(self.label_range, problem.table)
        of_numbers = self.loss in ("quantile", "huber", "poisson", "absolute")
        if of_numbers and not regression and (self.loss, self.solver) != ("absolute", "reduction"):
            raise UsageError(
                f"fair-regression: `loss={self.loss}` is for real-valued labels, and these are 0 and 1; leave out "
                "`loss`, or set `task=regression`"
            )
        if self.loss == "poisson":
            require_counts(problem)
        if problem.strata is not None:
            require_strata(self, problem)
        predictor = super()._fit(problem, rng)
        trace = predictor.trace
        if self.loss in ("quantile", "huber", "poisson"):  # which an audit does not have
            loss = row_loss(self.loss_on(problem.table))
            level = self.quantile_level if self.loss == "quantile" else None
            trace = replace(trace, of_held_out=partial(loss_notes, loss, level))
        if self.loss == "huber":
            meaning = "error above which the loss grows linearly, in units of the label"
            delta = Quantity("delta", self.delta_on(problem.table), meaning)
            trace = replace(trace, quantities=(delta, *trace.quantities))
        return replace(predictor, trace=trace)


def loss_notes(loss: RowLoss, level: float | None, before: Table, after: Table) -> Iterator[Note]:
    """Yield the mean loss on held-out rows before and after the repair, and how many are below a quantile.

    ``level``: that of the quantile; None with another loss.
    """
    y, was, now, weight = before.rows.label, before.rows.score, after.rows.score, after.weight
    if y is None or was is None or now is None:
        return
    then, left = (float(np.average(loss.value(y, u), weights=weight)) for u in (was, now))
    text = f"on {len(after):,} held-out rows, the mean {loss.title} is {left:.6g}, and {then:.6g} before the repair"
    if level is not None:
        groups = after.groups()
        mass, below = (
            np.bincount(groups.codes, part, len(groups.names)) for part in (weight, weight * (y <= now))
        )
        rates = below / np.maximum(mass, 1e-300)
        each = [
            f"{name} {rate:.1%}"
            for name, rate, rows in zip(groups.names, rates, mass, strict=True)
            if rows > 0
        ]
        text += (
            f"; labels at or below their value: {below.sum() / mass.sum():.1%} ({', '.join(each)}), where "
            f"{level:.1%} is the level"
        )
    yield Note(text, "loss")


def require_counts(problem: RepairProblem) -> None:
    """Raise a DataError where labels, or scores that are taken as they are, are negative and so no counts."""
    columns, rows = problem.table.data_spec.columns, problem.table.rows
    of_score = problem.features is None and rows.score is not None
    for role, name, column in (
        ("label", columns.label, rows.label),
        ("score", columns.score, rows.score if of_score else None),
    ):
        if column is not None and column.size and (least := float(column.min())) < 0:
            raise DataError(
                f"{role} column {name!r} goes down to {least:g}; the Poisson deviance needs numbers that are not "
                "negative: use `loss=square`, or leave these rows out"
            )


def require_strata(method: FairRegression, problem: RepairProblem) -> None:
    """Raise a UsageError where what is asked cannot be held within strata."""
    closed = method.solver in ("auto", "closed-form") and method.loss_of(problem.table.data_spec) in OF_MEAN
    refused = {
        "`strata` need `constraint=statistical_parity` and the closed form; leave out `strata`": (
            method.bounds_losses or not closed
        ),
        "within strata, the rule must use the group; add `group=used`, or leave out `strata`": (
            not problem.protected_as_feature
        ),
        "limits of single groups cover all rows and cannot be combined with `strata`; give one `slack`": bool(
            method.parsed_constraint.limits
        ),
        "`decisions=deterministic` cannot be used with `strata`; leave it out": method.decisions
        != "randomized",
        "counts cannot be used with `strata` here; repair from rows": problem.table.rows.entries is not None,
    }
    refuse(refused, "fair-regression: ")
