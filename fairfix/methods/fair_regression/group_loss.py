"""Bounded group loss: the model, or the average of trees, of least loss whose loss is bounded in every group.

The mathematics is in :mod:`fairfix.solvers.group_loss`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fairfix.data.counts import Floats, Ints
from fairfix.data.table import Groups, Table
from fairfix.errors import DataError
from fairfix.methods.base import Solver, anything
from fairfix.methods.fair_regression.search import SEEN, UNSEEN, game_quantities
from fairfix.methods.guarantee import RowLosses
from fairfix.methods.learned import design_of, fitting, label_of, learned_of, model_of, score_range
from fairfix.methods.problem import RepairProblem, group_masses
from fairfix.models.estimators import Learner, makes
from fairfix.models.learners import out_of_fold
from fairfix.models.members import LinearMember, Link, Member
from fairfix.models.mixtures import ModelMixture
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.score_models import Scorer, Unrepaired
from fairfix.models.trace import Certificate, FitTrace, Note, Quantity
from fairfix.solvers.exponentiated_gradient import Game
from fairfix.solvers.group_loss import SURE, Infeasible, solve_linear
from fairfix.solvers.group_loss_members import solve_members
from fairfix.solvers.linear_losses import standardised
from fairfix.solvers.losses import RowLoss, in_units, name_of, row_loss

if TYPE_CHECKING:
    from fairfix.methods.fair_regression import FairRegression


SPREAD = ", over the label's standard deviation"
PER = {"quantile": SPREAD, "absolute": SPREAD, "poisson": ", times the mean label"}
"""Loss -> what its penalty is multiplied with, so that it goes with the unit of the label as the loss does."""


PRICES = 2.0
"""Largest sum of prices of exponentiated gradient by default: a group counts at most twice as much besides."""


class GroupLoss(Solver):
    """The linear model, or the average of models of another learner, of least loss within the bounds."""

    method: FairRegression
    option = "`constraint=bounded_group_loss`"
    needs_rows = (
        "bounded_group_loss fits a new model of the label, and counts have labels by score bin at most and no "
        "features; use `constraint=statistical_parity`, or repair from rows"
    )
    reads: ClassVar = dict.fromkeys(
        ("group", "loss", "quantile_level", "label_range", "learner", "search", "nu", "rounds"), anything
    )
    uses_labels = True

    def fit(self, problem: RepairProblem, rng: np.random.Generator) -> RepairedPredictor:
        """Solve for the models that the learner fits."""
        limits, recipe = self.method.limits(problem.groups), self.method.recipe(problem, rng)
        direct = self.method.model == "linear" and self.method.search == "auto"
        fit = self._linear if direct else self._members
        return fit(problem, limits, *recipe)

    def _linear(
        self, problem: RepairProblem, limits: Floats, learner: Learner, loss: str, l2: float, seed: int
    ) -> RepairedPredictor:
        groups, design = problem.groups, design_of(problem, learner)
        y, weight, bounds = label_of(problem), problem.weight, score_range(problem, loss)
        one = solve_linear(design.matrix, y, groups.codes, weight, limits, loss=loss, l2=l2, into=bounds)
        if isinstance(one, Infeasible):
            raise _refused(
                one, limits, groups, f"linear model ({row_loss(loss).title})", moved=bounds is not None
            )
        links: dict[str, Link] = {"logistic": "sigmoid", "poisson": "exp"}
        link = links.get(loss, "identity")
        member = LinearMember(one.coef[:, None], np.array([one.intercept]), link)
        paid = [f"{name} {m:.3g}" for name, m in zip(groups.names, one.multipliers, strict=True) if m > 0]
        binding = f"binding bounds, with the saving per extra unit: {', '.join(paid)}"
        notes = [Note(binding, "binding")] if paid else []
        proven: tuple[Certificate, ...] = ()
        if math.isnan(one.bound):
            moved = (
                "no linear model meets the bounds by itself; this one does with its values moved into [0, 1], and may "
                "not be the best of these"
            )
            notes.append(Note(moved, "moved_values"))
        else:
            before = " (before values are moved into [0, 1])" if bounds is not None else ""
            per = PER.get(name_of(loss), "")
            what = f"mean {row_loss(loss).title} plus l2 times the squared coefficients{per}"
            among = f"linear models{before} that meet the bounds"
            proven = (Certificate(what, one.objective, one.bound, among),)
        trace = FitTrace(
            one.converged,
            one.iterations,
            one.objective,
            one.objective - one.bound,
            tuple(notes),
            base=Unrepaired(model_of(problem, learner, loss, l2, seed)),
            certificates=proven,
            quantities=tuple(_quantities(one.losses, limits, one.multipliers, groups)),
        )
        scorer = Scorer(design.features, member, bounds)
        return ModelMixture((scorer,), np.ones(1), averaged=True, trace=trace)

    def _members(
        self, problem: RepairProblem, limits: Floats, learner: Learner, loss: str, l2: float, seed: int
    ) -> RepairedPredictor:
        groups, design = problem.groups, design_of(problem, learner)
        weight, bounds = problem.weight, score_range(problem, loss)
        y, level, unit = standardised(label_of(problem), weight, loss)
        low, high = ((end - level) / unit for end in bounds or (-math.inf, math.inf))
        crossed = self.method.cross_fitted

        def fit(row_weight: Floats) -> tuple[tuple[Member, Floats], Floats]:
            member = fitted(row_weight)(np.arange(y.size))
            one = member, row_weight
            return one, predicted(one)

        def fitted(row_weight: Floats) -> Callable[[Ints], Member]:
            return fitting(design.matrix, y, row_weight, learner=learner, loss=own_loss, l2=l2, seed=seed)

        def seen(one: tuple[Member, Floats]) -> Floats:
            return np.clip(one[0].predict(design.matrix), low, high)

        def unseen(one: tuple[Member, Floats]) -> Floats:
            """Return what models like this one predict for rows that they are not fitted to."""
            member, row_weight = one

            def usable(rows: Ints) -> bool:
                return bool((row_weight[rows] > 0).any())

            return np.clip(
                out_of_fold(fitted(row_weight), design.matrix, design.folds, member, usable), low, high
            )

        def losses(u: Floats) -> tuple[Floats, Floats]:
            return own.value(y, u), own.slope(y, u)

        ways = ((SEEN, "in sample", seen), (UNSEEN, "out of fold", unseen))
        (rows, _, predicted), (other_rows, way, otherwise) = ways[::-1] if crossed else ways
        own_loss = in_units(loss, unit)
        own, scale = row_loss(own_loss), unit ** row_loss(loss).power
        # to 12 digits as labels are rounded: equal in any unit
        zeta = np.array([float(f"{limit / scale:.12g}") for limit in limits])
        played = self.method.search == "exponentiated-gradient"
        game = Game(PRICES, self.method.nu, self.method.rounds) if played else None
        many = solve_members(fit, losses, groups.codes, weight, zeta, game=game)
        if isinstance(many, Infeasible):
            many = replace(many, losses=many.losses * scale)
            what = f"average of {makes(learner)} ({row_loss(loss).title})"
            raise _refused(many, limits, groups, what, rows=rows)
        each = problem.weight * losses(many.weights @ [otherwise(one) for one in many.models])[0]
        other = np.bincount(groups.codes, each) / group_masses(problem) * scale
        members = (member.rescaled(level, unit) for member, _ in many.models)
        scorers = tuple(Scorer(design.features, member, bounds) for member in members)
        learned = learned_of(problem, learner, loss, l2, seed) if crossed else None
        value, bound = many.objective * scale, many.bound * scale
        if many.saddle is None:
            left = Quantity(
                "gain left",
                many.left * scale,
                "loss that the last fit would have saved a mixture at its dual values; models need not be "
                "the best for their dual values, so this is not a bound",
            )
            of_search: tuple[Quantity, ...] = (left,)
        else:
            over = "largest excess over a bound, as a fraction of the unconstrained model's loss"
            of_search = tuple(game_quantities(many.saddle, many.unit * scale, over))
        proven = Certificate(
            f"mean {row_loss(loss).title}",
            value,
            bound,
            f"averages within the bounds of the {many.rounds} models that were fitted",
            rows,
        )
        trace = FitTrace(
            many.converged,
            many.rounds,
            value,
            value - bound,
            base=Unrepaired(learned.scorer if learned else model_of(problem, learner, loss, l2, seed)),
            base_fitted=learned.scores if learned else None,
            fitted=level + unit * many.scores if learned else None,
            certificates=(proven,),
            quantities=(
                *of_search,
                *_quantities(many.losses * scale, limits, many.multipliers, groups, rows),
                *(
                    Quantity(f"loss {way}", loss, f"mean loss on {other_rows}", name)
                    for name, loss in zip(groups.names, other, strict=True)
                ),
            ),
        )
        return ModelMixture(scorers, many.weights, averaged=True, trace=trace)


def kept_within(rule: RepairedPredictor, fitted: Table) -> RepairedPredictor:
    """Return a rule whose models' values are kept between the least and the largest on the training rows.

    On these rows nothing changes. For other rows losses get an end that is near, and not where a line leads.
    """
    assert isinstance(rule, ModelMixture)
    given = [model(fitted) for model in rule.models]
    ends = [(float(own.min()), float(own.max())) for own in given]
    models = tuple(replace(model, bounds=own) for model, own in zip(rule.models, ends, strict=True))
    return replace(rule, models=models)


def losses_within(
    loss: RowLoss, rule: RepairedPredictor, fitted: Table, table: Table, labels: tuple[float, float]
) -> RowLosses:
    """Return the losses of a table's rows under a rule that :func:`kept_within` bounds.

    Training rows have the predictions of models that have not seen them, where there are such. ``labels``: smallest and
    largest possible label. Losses are convex in both arguments, so the largest is at the ends.
    """
    assert isinstance(rule, ModelMixture)
    unseen = rule.trace.fitted if table is fitted else None
    low, high = (
        float(rule.weights @ [model.bounds[end] for model in rule.models if model.bounds]) for end in (0, 1)
    )
    value = np.clip(rule.predict(table) if unseen is None else unseen, low, high)
    corners = [loss.value(np.array(y), np.array(u)) for y in labels for u in (low, high)]
    each = loss.value(table.labels.astype(np.float64), value)
    return RowLosses(loss.title, each, float(max(corners)))


def _refused(
    best: Infeasible, limits: Floats, groups: Groups, what: str, *, moved: bool = False, rows: str = SEEN
) -> DataError:
    """Return the refusal of bounds that were not met: the proof, its class of models, and the best losses."""
    least = ""
    if best.excess:
        least = (
            f"the smallest bound that every group can meet is {_above(best.level)}"
            if math.isfinite(best.level)
            else f"every one exceeds some bound by at least {best.excess:.3g}"
        )
        weights = ", ".join(
            f"{name} {weight:.3g}"
            for name, weight in zip(groups.names, best.weights, strict=True)
            if weight > 1e-6
        )
        least += f" (proof: group weights {weights})"
        if not moved:
            return DataError(f"no {what} meets `constraint` on the training rows: {least}; raise it")
    far = np.where(np.isfinite(limits), best.losses - limits, -math.inf)
    worst = int(np.argmax(far))
    reached = (
        f"the best one found has a loss of {_above(best.losses[worst])} in group {groups.names[worst]!r}"
    )
    before = f"; without moving values into [0, 1] there is none: {least}" if least else ""
    return DataError(
        f"no {what} was found that meets `constraint` on {rows}, which does not prove that there is none: "
        f"{reached}{before}; raise it"
    )


def _above(number: float) -> str:
    """Return a number to six digits, not rounded down, so that what is named is enough."""
    if not number > 0:
        return f"{number:.6g}"
    grain = 10.0 ** (math.floor(math.log10(number)) - 5)
    return f"{math.ceil(number * (1 + SURE) / grain) * grain:.6g}"


def _quantities(
    losses: Floats, limits: Floats, multipliers: Floats, groups: Groups, rows: str = SEEN
) -> Iterator[Quantity]:
    """Yield loss, bound and multiplier of each group."""
    for name, loss, limit, price in zip(groups.names, losses, limits, multipliers, strict=True):
        yield Quantity("loss", loss, f"mean loss on {rows}", name)
        if math.isfinite(limit):
            yield Quantity("bound", limit, "largest allowed mean loss", name)
            yield Quantity("multiplier", price, "saving in the objective per unit of the bound", name)
