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

``auto`` takes the closed form where the protected columns are features, else the plug-in. The mathematics is in
:mod:`fairfix.optim.quantiles`, :mod:`~fairfix.optim.plugin`, :mod:`~fairfix.optim.reduction` and
:mod:`~fairfix.optim.group_loss`.

**Slack.** It is the paper's: group against everybody. Two groups that differ by ``e`` from each other differ by ``e
(1 - p_a)`` from everybody. The closed form holds it on the rows of the fit, at every threshold, in expectation over the
draws by which rows of one score are spread (``decisions``). On new rows a distance of chance is added, which the report
names.

**Scores.** With features, rows are scored by models that have not seen them (:mod:`fairfix.methods.learned`), and the
slack holds for those scores; only the models of the reduction's oracles ``direct`` and ``cost-sensitive`` are judged on
the rows they were fitted to. A score alone is taken as ``E[Y|X]``: it should be calibrated.

=======================  =======================  ==========================================================
paper                    here                     meaning
=======================  =======================  ==========================================================
``f(X)``                 ``prediction``           score
``gamma_{a,z}``          distance at ``z``        ``P(f >= z | a) - P(f >= z)``
``epsilon_a``            ``slack``                allowed distance, ``group_slack`` for single groups
``zeta_a``               ``bound``                allowed loss of a group
``lambda``               multipliers              prices of the constraints
``Q``                    mixture                  distribution over models
``CS``, ``LS``, ``RM``   ``oracle``               cost-sensitive, least-squares, risk (weighted risk minimisation)
=======================  =======================  ==========================================================

References
----------
A. Agarwal, M. Dudik and Z. S. Wu, *Fair regression: quantitative definitions and reduction-based algorithms* (2019);
E. Chzhen, C. Denis, M. Hebiri, L. Oneto and M. Pontil, *Fair regression with Wasserstein barycenters* (2020).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fairfix.data.counts import Floats, Ints
from fairfix.data.names import attribute_name
from fairfix.data.reading import Reading, Task
from fairfix.data.table import Groups, Table
from fairfix.errors import DataError, UsageError
from fairfix.methods.base import Repairer, RepairProblem, param
from fairfix.methods.learned import (
    Scored,
    bounds_of,
    design_of,
    groups_of,
    l2_param,
    label_of,
    learned_of,
    learner_param,
    mean_of,
    model_of,
)
from fairfix.models.learners import fit_mean, out_of_fold
from fairfix.models.members import ConstantMember, LinearMember, Link, Member, rescaled
from fairfix.models.mixtures import ModelMixture, PluginScore
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.scorers import GroupTube, Scorer, Unrepaired
from fairfix.models.trace import Caution, Certificate, FitTrace, Quantity
from fairfix.optim.group_loss import SURE, Infeasible, solve_linear, standard_of
from fairfix.optim.group_loss_members import solve_members
from fairfix.optim.plugin import PluginFit, PluginProblem
from fairfix.optim.plugin_rule import PluginRule, expected_loss
from fairfix.optim.quantiles import Scores, TubeFit, fit_tube
from fairfix.optim.reduction import (
    LOSSES,
    CostSensitive,
    Direct,
    Heuristic,
    LinearModel,
    Mixture,
    Oracle,
    reduce,
)

DEAR = 0.25
"""Part of what the score tells that a repair may give away before it is warned of."""

RARE = 0.25
"""Part of the decisions of a kind that may be left before it is warned of."""


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
        "how statistical parity is reached; auto: closed-form if the protected columns are features, else plug-in",
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
        about_loss = self.constraint == "bounded_group_loss"
        if about_loss != bool(self.bound):
            wanted = (
                "needs a bound; give --bound NUMBER" if about_loss else "takes no bound; leave out --bound"
            )
            raise UsageError(f"fair-regression: {self.constraint} {wanted}")
        if about_loss and (self.solver != "auto" or self.group_slack):
            raise UsageError("fair-regression: bounded_group_loss takes no --solver and no --group-slack")
        if self.decisions != "randomized" and (about_loss or self.solver in ("plug-in", "reduction")):
            raise UsageError("fair-regression: --decisions goes with --solver closed-form")
        if self.oracle != "auto" and self.solver != "reduction":
            raise UsageError("fair-regression: --oracle goes with --solver reduction")
        if self.loss == "absolute" and (about_loss or self.solver != "reduction"):
            raise UsageError("fair-regression: the absolute loss goes with --solver reduction only")
        if self.learner == "trees" and self.oracle in ("direct", "cost-sensitive"):
            raise UsageError(
                f"fair-regression: the oracle {self.oracle} fits linear models; leave out --learner trees"
            )

    @property
    def uses_labels(self) -> bool:
        """Whether the fit uses labels, whatever it learns from."""
        return self.constraint == "bounded_group_loss" or self.solver == "reduction"

    @property
    def slack_of_all(self) -> float | None:
        """The slack, unless groups have their own."""
        return None if self.group_slack else super().slack_of_all

    @property
    def sees_groups(self) -> bool:
        """Whether the protected columns have to be features: the closed form treats groups apart."""
        return self.solver == "closed-form"

    @classmethod
    def contenders(cls, reading: Reading) -> Iterator[tuple[str, Repairer]]:
        """Yield the method that is blind to the group, and the closed form, which sees it."""
        yield cls.name, cls()
        yield f"{cls.name}, group seen", cls(solver="closed-form")

    @property
    def bounds(self) -> str:
        """Identifier of the audit comparison that ``slack`` or ``bound`` holds."""
        if self.constraint == "statistical_parity":
            return self.criterion
        return "log_loss.max" if self.loss == "logistic" else "square_loss.max"

    def bounds_of(self, reading: Reading) -> str:
        """Return the same where the kind of label is known."""
        return replace(self, loss=self._loss(reading)).bounds

    def quality(self, table: Table, predicted: Floats, threshold: float) -> float:
        """Return what selection among parameter values makes large: minus the mean loss on the labels."""
        label = table.rows.label
        if label is None:
            raise UsageError("selecting among parameter values needs labels; name the column with --label")
        loss = LOSSES[self._loss(table.reading)].value(label.astype(np.float64), predicted)
        return -float(np.average(loss, weights=table.rows.weight))

    def _loss(self, reading: Reading) -> str:
        """Return the loss in force."""
        if self.loss != "auto":
            return self.loss
        return "square" if reading.task == "regression" else "logistic"

    def _fit(self, problem: RepairProblem, rng: np.random.Generator) -> RepairedPredictor:
        seed = int(rng.integers(2**31))
        if self.loss == "logistic" and problem.table.reading.task == "regression":
            _check_chances(problem)
        if self.constraint == "bounded_group_loss":
            return self._bounded(problem, seed)
        if self.solver == "reduction":
            return self._by_reduction(problem, seed)
        solver = self.solver
        if solver == "auto":
            solver = "closed-form" if problem.protected_as_feature else "plug-in"
        if solver == "closed-form":
            if not problem.protected_as_feature:
                raise UsageError(
                    "fair-regression: the closed form treats groups apart, so it needs the protected attribute at "
                    "predict time: say --protected-as-feature, or take --solver plug-in"
                )
            return self._by_tube(problem, seed)
        if self.decisions != "randomized":
            raise UsageError(
                "fair-regression: --decisions goes with the closed form, which needs --protected-as-feature"
            )
        return self._by_plugin(problem, seed)

    # ------------------------------------------------------------------ closed form

    def _by_tube(self, problem: RepairProblem, seed: int) -> RepairedPredictor:
        """Return the closed form: scores moved group by group into one tube of distributions."""
        groups, table = problem.cells, problem.table
        loss = self._loss(table.reading)
        base = mean_of(problem, self.learner, loss, self.l2, seed)
        scores = problem.once(
            ("scores", id(base)),
            lambda: Scores(base.values, groups.codes, table.rows.weight, len(groups.levels)),
        )
        slack = self._slacks(groups)
        found = fit_tube(scores, slack)
        value = _loss_of(found, scores, loss)
        notes = tuple(_notes_on(found, scores))
        if self.decisions == "deterministic":
            drawn, cost = found, value
            found = fit_tube(scores, slack, drawn=False)
            value = _loss_of(found, scores, loss)
            notes = tuple(_notes_without_draws(found, drawn, value - cost, groups, slack))
        predictor = GroupTube(groups.columns, groups.levels, base.scorer, found.tube)
        fitted = predictor.of_scores(table, base.values)
        trace = FitTrace(True, found.tried, value, math.nan, notes)  # a closed form: nothing is iterated
        if predictor.randomized:
            trace = replace(trace, redrawn=lambda some, own: predictor.of_scores(some, base.values[own]))
        return _traced(predictor, base, fitted, trace)

    # ------------------------------------------------------------------ without the group

    def _by_plugin(self, problem: RepairProblem, seed: int) -> RepairedPredictor:
        """Return the plug-in: a score drawn by the expected label and the probabilities of groups."""
        groups, table = problem.cells, problem.table
        loss = self._loss(table.reading)
        base = mean_of(problem, self.learner, loss, self.l2, seed)
        group = groups_of(problem, self.learner, self.l2, seed)
        # where the score is all that is known, the rule is of it alone
        alone = problem.features is None and not problem.protected_as_feature
        rows = problem.once(
            ("plug-in", id(base), id(group), loss),
            lambda: PluginProblem(base.values, group.values, groups.codes, table.rows.weight, loss, alone),
        )
        slack = self._slacks(groups)
        found = rows.fit(slack)
        predictor = PluginScore(base.scorer, group.scorer if found.rule.groups else base.scorer, found.rule)
        fitted = predictor.of_scores(table, base.values, group.values)
        notes = tuple(_notes_on_plugin(problem, rows, found, slack))
        trace = FitTrace(found.solved, found.iterations, found.loss, math.nan, notes)
        if found.solved:
            proven = Certificate(
                f"{loss} loss expected of the scores, over the draws",
                found.loss,
                found.bound,
                "rules, drawn or not, of expected label and cell, within the slack by the same shares of groups",
            )
            trace = replace(trace, gap=found.gap, certificates=(proven,))
        if predictor.randomized:
            trace = replace(
                trace,
                redrawn=lambda some, own: predictor.of_scores(some, base.values[own], group.values[own]),
            )
        return _traced(predictor, base, fitted, trace)

    # ------------------------------------------------------------------ a model class

    def _by_reduction(self, problem: RepairProblem, seed: int) -> RepairedPredictor:
        """Return a mixture of models, found in scores from 0 to 1.

        A learner's models are judged by scores of models that have not seen the row; those of the oracles ``direct``
        and ``cost-sensitive``, which are linear, on the rows they were fitted to.
        """
        groups, table = problem.cells, problem.table
        loss, y = self._loss(table.reading), label_of(problem)
        design, weight = design_of(problem, self.learner), table.rows.weight
        low, high = (0.0, 1.0) if loss == "logistic" else (float(y.min()), float(y.max()))
        span = high - low or 1.0  # labels that are all the same have no units
        bounds = (low, high) if loss != "logistic" else None
        link: Link = "sigmoid" if loss == "logistic" else "identity"
        scaled = np.round((y - low) / span / GRAIN) * GRAIN

        def fitted(target: Floats) -> tuple[Member, Floats]:
            def member_of(rows: Ints) -> Member:
                return fit_mean(
                    design.matrix[rows],
                    target[rows],
                    None if weight is None else weight[rows],
                    learner=self.learner,
                    loss=loss if loss == "logistic" else "square",
                    l2=self.l2,
                    seed=seed,
                )

            member = member_of(np.arange(y.size))
            return member, out_of_fold(member_of, design.matrix, design.folds, member)

        oracle = self._oracle(loss, design.matrix, fitted)
        found = reduce(scaled, groups.codes, weight, self._slacks(groups), loss, oracle)
        members: list[Member] = []
        for model in found.models:
            member = model
            if isinstance(model, float):
                member = ConstantMember(np.array([model]))
            elif isinstance(model, LinearModel):
                member = LinearMember(model.coef[:, None], np.array([model.intercept]), link)
            members.append(rescaled(member, low, span))
        scorers = tuple(Scorer(design.features, member, bounds) for member in members)
        rule = ModelMixture(scorers, found.weights, averaged=self.mixture == "averaged")
        base = learned_of(problem, self.learner, loss, self.l2, seed)
        learned = isinstance(oracle, Heuristic)
        unit = span**2 if loss == "square" else span if loss == "absolute" else 1.0
        trace = FitTrace(
            found.converged,
            found.calls,
            found.loss * unit,
            math.nan,
            tuple(_notes_on_mixture(found, span, rule.averaged)),
            base=Unrepaired(base.scorer),
            fitted=rule.of_scores(table, low + span * found.values) if learned else None,
            base_fitted=base.values if learned else None,
            quantities=tuple(_of_mixture(found, unit, groups)),
        )
        return rule.traced(trace)

    def _oracle(self, loss: str, X: Floats, fit: Callable[[Floats], tuple[Any, Floats]]) -> Oracle:
        """Return the oracle in force."""
        oracle = self.oracle
        if oracle == "auto":
            oracle = (
                "direct" if self.learner == "linear" else "risk" if loss == "logistic" else "least-squares"
            )
        if oracle == "direct":
            return Direct(X, sigmoid=loss == "logistic", l2=self.l2)
        if oracle == "cost-sensitive":
            if loss == "logistic":
                raise UsageError(
                    "fair-regression: the cost-sensitive oracle has no log loss; take direct or risk"
                )
            return CostSensitive(X)
        if (oracle == "risk") != (loss == "logistic"):
            raise UsageError(
                "fair-regression: the oracle risk goes with the logistic loss, least-squares with others"
            )
        return Heuristic(fit)

    # ------------------------------------------------------------------ bounded group loss

    def _bounded(self, problem: RepairProblem, seed: int) -> RepairedPredictor:
        """Return one model, or an average of trees, whose loss is bounded in every group."""
        if self.learner == "linear":
            return self._bounded_linear(problem, seed)
        return self._bounded_trees(problem, seed)

    def _bounded_linear(self, problem: RepairProblem, seed: int) -> RepairedPredictor:
        """Return the linear model of least loss within the bounds."""
        groups, loss = problem.cells, self._loss(problem.table.reading)
        limits, design = self._limits(groups), design_of(problem, self.learner)
        y, weight = label_of(problem), problem.table.rows.weight
        bounds = bounds_of(problem, loss)
        one = solve_linear(design.matrix, y, groups.codes, weight, limits, loss=loss, l2=self.l2, into=bounds)
        if isinstance(one, Infeasible):
            raise _refused(one, limits, groups, f"linear model ({loss} loss)", moved=bounds is not None)
        link: Link = "sigmoid" if loss == "logistic" else "identity"
        member = LinearMember(one.coef[:, None], np.array([one.intercept]), link)
        base = Unrepaired(model_of(problem, self.learner, loss, self.l2, seed))
        notes = list(_priced(one.multipliers, groups))
        proven: tuple[Certificate, ...] = ()
        if math.isnan(one.bound):
            notes.append(
                "no linear model holds the bounds as it is; this one does with its values moved into [0, 1], and may "
                "not be the best such"
            )
        else:
            before = " (before values are moved into [0, 1])" if bounds is not None else ""
            proven = (
                Certificate(
                    f"mean {loss} loss plus l2 times the squared coefficients",
                    one.objective,
                    one.bound,
                    f"linear models{before} that hold --bound",
                ),
            )
        trace = FitTrace(
            one.converged,
            one.iterations,
            one.objective,
            one.objective - one.bound,
            tuple(notes),
            base=base,
            certificates=proven,
            quantities=tuple(_found(one.losses, limits, one.multipliers, groups)),
        )
        single = ModelMixture((Scorer(design.features, member, bounds),), np.ones(1), averaged=True)
        return single.traced(trace)

    def _bounded_trees(self, problem: RepairProblem, seed: int) -> RepairedPredictor:
        """Return an average of boosted trees within the bounds."""
        groups, loss = problem.cells, self._loss(problem.table.reading)
        limits, design = self._limits(groups), design_of(problem, self.learner)
        weight, bounds = problem.table.rows.weight, bounds_of(problem, loss)
        y, level, unit = _standardised(label_of(problem), weight, loss)

        def fit(row_weight: Floats) -> tuple[Member, Floats]:
            def member_of(rows: Ints) -> Member:
                return fit_mean(
                    design.matrix[rows],
                    y[rows],
                    row_weight[rows],
                    learner=self.learner,
                    loss=loss,
                    l2=self.l2,
                    seed=seed,
                )

            def usable(rows: Ints) -> bool:
                return bool((row_weight[rows] > 0).any())

            member = member_of(np.arange(y.size))
            values = out_of_fold(member_of, design.matrix, design.folds, member, usable)
            if bounds is not None:
                values = np.clip(values, (bounds[0] - level) / unit, (bounds[1] - level) / unit)
            return member, values

        def losses(u: Floats) -> tuple[Floats, Floats]:
            return LOSSES[loss].value(y, u), LOSSES[loss].slope(y, u)

        zeta = np.array(
            [float(f"{limit / unit**2:.12g}") for limit in limits]
        )  # as labels: the same in any unit
        many = solve_members(fit, losses, groups.codes, weight, zeta)
        if isinstance(many, Infeasible):
            many = replace(many, losses=many.losses * unit**2)
            raise _refused(many, limits, groups, f"average of boosted trees ({loss} loss)")
        scorers = tuple(
            Scorer(design.features, rescaled(member, level, unit), bounds) for member in many.models
        )
        learned = learned_of(problem, self.learner, loss, self.l2, seed)
        value, bound = many.objective * unit**2, many.bound * unit**2
        left = Quantity(
            "gain left",
            many.left * unit**2,
            "loss that the last fit would have saved a mixture at the prices it was made for; trees need not be the "
            "best for their prices, so this is no bound",
        )
        trace = FitTrace(
            many.converged,
            many.rounds,
            value,
            value - bound,
            base=Unrepaired(learned.scorer),
            base_fitted=learned.values,
            fitted=level + unit * many.values,
            certificates=(
                Certificate(
                    f"mean {loss} loss",
                    value,
                    bound,
                    f"averages within --bound of the {many.rounds} models that were fitted",
                    "the rows of the fit, each predicted by trees that have not seen it",
                ),
            ),
            quantities=(left, *_found(many.losses * unit**2, limits, many.multipliers, groups)),
        )
        return ModelMixture(scorers, many.weights, averaged=True).traced(trace)

    def _limits(self, groups: Groups) -> Floats:
        """Return the bound of each group, shape (K,); infinite where none is asked."""
        try:
            level = float(self.bound)
        except ValueError:
            own = pairs_of(self.bound, groups.names, "--bound")
            return np.array([own.get(name, math.inf) for name in groups.names], dtype=np.float64)
        if not level >= 0:
            raise UsageError(f"--bound {self.bound}: a loss is at least 0")
        return np.full(len(groups.names), level)

    def _slacks(self, groups: Groups) -> Floats:
        """Return the slack of each group, shape (K,)."""
        own = pairs_of(self.group_slack, groups.names, "--group-slack")
        return np.array([own.get(name, self.slack) for name in groups.names], dtype=np.float64)


def _traced(predictor: RepairedPredictor, base: Scored, fitted: Floats, trace: FitTrace) -> RepairedPredictor:
    """Return the predictor with its trace; where models were learned, with values by models that have not seen the row.

    ``fitted`` are the values of the rows of the fit that come from the scores ``base.values``. A plug-in learns the
    group even where the score is taken as it is.
    """
    if base.scorer.member is None:
        return predictor.traced(replace(trace, fitted=fitted))
    learned = replace(trace, base=Unrepaired(base.scorer), base_fitted=base.values, fitted=fitted)
    return predictor.traced(learned)


def _check_chances(problem: RepairProblem) -> None:
    """Raise where real labels are no probabilities."""
    y = label_of(problem)
    if y.min() < 0 or y.max() > 1:
        name = problem.table.reading.columns.label
        raise DataError(
            f"label column {name!r} goes from {y.min():g} to {y.max():g}; the logistic loss needs labels in [0, 1]: "
            "take --loss square, or rescale it"
        )


GRAIN = 2.0**-32
"""What labels are rounded to, in standard deviations: far below what any label means, far above what a change of unit
does to them, so that learners see the same labels in any unit."""


def _standardised(y: Floats, weight: Floats | None, loss: str) -> tuple[Floats, float, float]:
    """Return labels of mean 0 and variance 1 with what they were, ``level + unit * label``; for the log loss as is."""
    if loss == "logistic":
        return y, 0.0, 1.0
    level, unit = standard_of(y, weight)
    return np.round((y - level) / unit / GRAIN) * GRAIN, level, unit


def _refused(
    found: Infeasible, limits: Floats, groups: Groups, what: str, *, moved: bool = False
) -> DataError:
    """Return the refusal of bounds that were not held: what is proven of which models, and what was found."""
    least = ""
    if found.excess:
        least = (
            f"the least bound that can be held in every group is {_above(found.level)}"
            if math.isfinite(found.level)
            else f"every one is at least {found.excess:.3g} above some bound"
        )
        weights = ", ".join(
            f"{name} {weight:.3g}"
            for name, weight in zip(groups.names, found.weights, strict=True)
            if weight > 1e-6
        )
        least += f" (proof: group weights {weights})"
        if not moved:
            return DataError(f"no {what} holds --bound on the rows of the fit: {least}; raise it")
    far = np.where(np.isfinite(limits), found.losses - limits, -math.inf)
    worst = int(np.argmax(far))
    reached = (
        f"the best one found has a loss of {_above(found.losses[worst])} in group {groups.names[worst]!r}"
    )
    before = f"; before values are moved into [0, 1] there is none: {least}" if least else ""
    return DataError(
        f"no {what} that holds --bound on the rows of the fit was found, which does not prove that there is none: "
        f"{reached}{before}; raise it"
    )


def _above(number: float) -> str:
    """Return a number to six digits, not rounded down, so that what is named is enough."""
    if not number > 0:
        return f"{number:.6g}"
    grain = 10.0 ** (math.floor(math.log10(number)) - 5)
    return f"{math.ceil(number * (1 + SURE) / grain) * grain:.6g}"


def _found(losses: Floats, limits: Floats, multipliers: Floats, groups: Groups) -> Iterator[Quantity]:
    """Yield loss, bound and multiplier of each group."""
    for name, loss, limit, price in zip(groups.names, losses, limits, multipliers, strict=True):
        yield Quantity("loss", loss, "mean loss on the rows of the fit", name)
        if math.isfinite(limit):
            yield Quantity("bound", limit, "largest mean loss that was asked for", name)
            yield Quantity(
                "multiplier", price, "what a unit more of the bound would save in the objective", name
            )


def _priced(multipliers: Floats, groups: Groups) -> tuple[str, ...]:
    """Return a note on the groups whose bound costs something."""
    paid = [f"{name} {m:.3g}" for name, m in zip(groups.names, multipliers, strict=True) if m > 0]
    return (f"bounds that bind, with what a unit more would save: {', '.join(paid)}",) if paid else ()


def _of_mixture(found: Mixture, unit: float, groups: Groups) -> Iterator[Quantity]:
    """Yield what is known of a mixture, which is no certificate."""
    yield Quantity(
        "gap seen",
        found.gap_seen * unit,
        "loss that the oracle's cheapest models would still save; as they need not be the cheapest, this is no bound",
    )
    yield Quantity("nu", found.nu * unit, "gap seen with which the search has converged")
    for name, distance in zip(groups.names, found.ks, strict=True):
        yield Quantity(
            "distance", distance, "of the group to everybody, over the draws, on the rows of the fit", name
        )
    for i, weight in enumerate(found.weights):
        yield Quantity("weight", weight, f"of model {i + 1} in the mixture")


def _notes_on_mixture(found: Mixture, span: float, averaged: bool) -> Iterator[str]:
    """Yield what a mixture of models is."""
    many = len(found.models)
    if many == 1:
        return
    if averaged:
        yield Caution(
            f"the average of {many} models is taken; parity was found for the mixture and need not hold for it"
        )
        return
    yield (
        f"each row draws one of {many} models by its identity; a row's score varies by {span * found.spread:.3g} on "
        "average (standard deviation), and parity holds for the mixture, in expectation over the draws"
    )


def pairs_of(text: str, names: tuple[str, ...], option: str) -> dict[str, float]:
    """Return the numbers of ``GROUP=NUMBER,...``.

    Raises
    ------
    UsageError
        A group is unknown, or a number is none or negative.
    """
    out: dict[str, float] = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, sign, number = part.rpartition("=")
        if not sign or name.strip() not in names:
            raise UsageError(f"{option} {part!r}: write GROUP=NUMBER with a group of {', '.join(names)}")
        try:
            out[name.strip()] = float(number)
        except ValueError:
            raise UsageError(f"{option} {part!r}: {number!r} is not a number") from None
        if not out[name.strip()] >= 0:
            raise UsageError(f"{option} {part!r}: the number must be at least 0")
    return out


def _loss_of(found: TubeFit, scores: Scores, loss: str) -> float:
    """Return the loss of a tube on the rows of the fit, expected over labels and draws."""
    parts = (scores.coupling(found.tube, k) for k in range(scores.groups))
    return sum(
        float(share * (mass * expected_loss(loss, old, new)).sum())
        for share, (old, new, mass) in zip(scores.shares, parts, strict=True)
    )


def _notes_on(found: TubeFit, scores: Scores) -> Iterator[str]:
    """Yield what the user should know of a tube."""
    if found.tube.values is None:
        return
    yield (
        "each row's value is drawn by its identity from those that its own score stands for; it varies by "
        f"{scores.spread_of(found.tube):.3g} on average (standard deviation), and the slack holds in expectation over "
        "the draws; --decisions deterministic does without"
    )


def _notes_without_draws(
    found: TubeFit, drawn: TubeFit, cost: float, groups: Groups, slack: Floats
) -> Iterator[str]:
    """Yield what it costs that rows of one score have one value."""
    if found.tube.values is None:
        return
    worst = int(np.argmax(found.ks - slack))
    yield (
        f"without draws, on the rows of the fit: ks.to_overall {found.ks.max():.4f} instead of {drawn.ks.max():.4f}, "
        f"and the expected loss is {'higher' if cost > 0 else 'lower'} by {abs(cost):.3g}"
    )
    if not found.holds:
        yield Caution(
            f"rows of one score have one value, so the slack does not hold: group {groups.names[worst]!r} is "
            f"{found.ks[worst]:.4f} from everybody, where {slack[worst]:g} was asked; --decisions randomized holds it"
        )


def _notes_on_plugin(
    problem: RepairProblem, rows: PluginProblem, found: PluginFit, slack: Floats
) -> Iterator[str]:
    """Yield what the user should know of a plug-in: first what not looking at the group costs."""
    if not found.rule.moves:
        return
    if not found.solved:
        yield Caution("the linear program was not solved, so everybody gets the mean score")
        return
    names = attribute_name(problem.cells.columns)
    free, constant = rows.losses(PluginRule.free()), rows.losses(rows.constant)
    span = constant - free
    given = (found.loss - free) / span if span > 0 else 0.0
    if not problem.protected_as_feature:
        what = "the score" if problem.features is None else "what is known of a row"
        part = f"{given:.0%}" if given >= DEAR else f"{given:.1%}"
        gives = f"gives away {part} of what {what} tells of the label (100% is one score for everybody)"
        if given < DEAR:
            yield f"the repair {gives}"
        else:
            aware = max((rows.seeing_the_group().fit(slack).loss - free) / span, 0.0)
            remedy = (
                f"a rule that may look at {names!r} when predicting gives away {aware:.0%}: add "
                "--protected-as-feature, or allow more --slack"
                if aware <= given / 2
                else f"one that looks at {names!r} would give away {aware:.0%}; allow more --slack"
            )
            yield Caution(f"this repair, which does not look at {names!r}, {gives}; {remedy}")
    yield from _notes_on_selection(problem.table, rows, found)
    if found.drawn > 0:
        yield (
            f"{found.drawn:.1%} of the rows have one of a few scores, drawn by the row's identity; the slack holds on "
            "the rows of the fit in expectation over the draws"
        )


def _notes_on_selection(table: Table, rows: PluginProblem, found: PluginFit) -> Iterator[str]:
    """Yield a caution where the threshold hardly divides the repaired scores any more."""
    if table.reading.task == "regression" or not table.reading.thresholds:
        return
    cut = table.reading.cut
    values, chance = found.rule.chances()
    selected = chance[:, values >= cut].sum(axis=1)
    after = float(rows.share @ selected[found.rule.cells(rows.eta, rows.pi)])
    before = float(rows.share @ (rows.eta >= cut))
    for was, now, word in ((before, after, "at or above"), (1 - before, 1 - after, "below")):
        if was > 1e-9 and now < RARE * was:  # what is less is rounding of the shares of all rows
            told = "nobody is" if now < 1e-12 else f"{now:.2%} of the rows are"
            yield Caution(
                f"{told} {word} the threshold {cut:g} after the repair, {was:.1%} before; move it",
                "selection",
            )
