"""Statistical parity at every threshold by three algorithms: the closed form, the plug-in and the reduction.

The mathematics is in :mod:`fairfix.solvers.quantile_matching`, :mod:`~fairfix.solvers.plugin` and
:mod:`~fairfix.solvers.reduction`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fairfix.data.counts import Floats, Ints
from fairfix.data.names import attribute_name
from fairfix.data.once import once_per_object
from fairfix.data.table import Groups, Table
from fairfix.errors import UsageError
from fairfix.methods.base import Solver, anything, only
from fairfix.methods.fair_regression.search import SEEN, UNSEEN, game_quantities
from fairfix.methods.learned import (
    OutOfFoldScores,
    design_of,
    fitting,
    groups_of,
    label_of,
    learned_of,
    mean_of,
    model_of,
)
from fairfix.methods.problem import RepairProblem
from fairfix.models.estimators import Learner
from fairfix.models.learners import out_of_fold
from fairfix.models.members import ConstantMember, LinearMember, Link, Member
from fairfix.models.mixtures import ModelMixture, PluginScore
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.score_models import GroupTube, Scorer, Unrepaired
from fairfix.models.trace import Caution, Certificate, FitTrace, Note, Quantity
from fairfix.solvers.exponentiated_gradient import Game
from fairfix.solvers.linear_losses import GRAIN
from fairfix.solvers.losses import EDGE, OF_MEAN, in_units, name_of, row_loss
from fairfix.solvers.plugin import PluginFit, PluginProblem
from fairfix.solvers.plugin_rule import PluginRule, expected_loss
from fairfix.solvers.quantile_matching import (
    Scores,
    TubeFit,
    fit_tube,
    fit_within,
    side_by_side,
    with_outputs,
)
from fairfix.solvers.reduction import (
    CostSensitive,
    Direct,
    LinearModel,
    Oracle,
    WeightedModels,
    mixture_distances,
    reduce,
)

if TYPE_CHECKING:
    from fairfix.methods.fair_regression import FairRegression

MODELS_GROUPS = "without the group it must learn the group from individual rows; use `group=used`"
"""Why counts do not do for rows."""

# ---------------------------------------------------------------------- closed form


class ClosedForm(Solver):
    """The optimum among all functions of score and group."""

    method: FairRegression
    option = "`solver=closed-form`"
    needs_rows = ""
    reads: ClassVar = {
        "loss": only("auto", *OF_MEAN),
        "decisions": anything,
        "bin_rows": anything,
        "learner": anything,
        "group": only("auto", "used"),
    }

    def fit(self, problem: RepairProblem, rng: np.random.Generator) -> RepairedPredictor:
        """Fit the tube."""
        method, groups = self.method, problem.groups
        recipe, slack = method.recipe(problem, rng), method.slacks(groups)
        if problem.strata is not None:
            return self._within_strata(problem, problem.strata, mean_of(problem, *recipe), recipe[1])
        base, loss = mean_of(problem, *recipe), recipe[1]
        scores = _scores_of(problem, *recipe, self._rows_of_bins(problem)[0])
        drawn = fit = fit_tube(scores, slack)
        value = _loss_of(fit, scores, loss)
        notes: Iterable[Note] = ()
        if method.decisions == "deterministic":
            cost, fit = value, fit_tube(scores, slack, drawn=False)
            value = _loss_of(fit, scores, loss)
            notes = _notes_without_draws(fit, drawn, value - cost, groups, slack)
        elif fit.tube.outputs is not None:
            notes = (_drawn_values(scores.spread_of(fit.tube), ". `decisions=deterministic` avoids this"),)
        predictor = GroupTube(groups.columns, groups.levels, base.scorer, fit.tube)
        trace = FitTrace(True, fit.tried, value, notes=tuple(notes))  # a closed form: nothing is iterated
        return beside_base(predictor, base, trace, problem.table)

    def _rows_of_bins(self, problem: RepairProblem) -> tuple[int, Ints | None]:
        """Return how many rows are taken together, and how many each row is for if not 1; counts have own bins."""
        entries = problem.table.rows.entries
        if entries is not None and not entries.exact:
            return 1, None
        return self.method.bin_rows, None if entries is None else entries.rows

    def _within_strata(
        self, problem: RepairProblem, strata: Groups, base: OutOfFoldScores, loss: str
    ) -> RepairedPredictor:
        """Fit a tube to each stratum: groups of different strata have nothing to do with one another."""
        table = problem.table
        cells = table.groups((*strata.columns, *problem.groups.columns))
        rows = np.flatnonzero(table.weight > 0)
        levels, tubes, value, spread = [], [], 0.0, 0.0
        least, times = self._rows_of_bins(problem)
        for stratum in np.unique(strata.codes[rows]):
            inside = rows[strata.codes[rows] == stratum]
            own, codes = np.unique(cells.codes[inside], return_inverse=True)
            scores = Scores(
                base.scores[inside],
                codes,
                table.weight[inside],
                own.size,
                least,
                None if times is None else times[inside],
            )
            fit = fit_within(scores, self.method.slack)
            share = table.weight[inside].sum() / table.weight.sum()
            value += float(share) * _loss_of(fit, scores, loss)
            spread += float(share) * scores.spread_of(fit.tube)
            levels += [cells.levels[k] for k in own]
            tubes.append(with_outputs(fit.tube, scores))
        predictor = GroupTube(cells.columns, tuple(levels), base.scorer, side_by_side(tubes))
        notes = (_drawn_values(spread),) if predictor.randomized else ()
        return beside_base(predictor, base, FitTrace(True, len(tubes), value, notes=notes), table)


@once_per_object
def _scores_of(
    problem: RepairProblem, learner: Learner, loss: str, l2: float, seed: int, least: int
) -> Scores:
    groups = problem.groups
    score = mean_of(problem, learner, loss, l2, seed).scores
    entries = problem.table.rows.entries
    times = None if entries is None else entries.rows
    return Scores(score, groups.codes, problem.weight, len(groups.levels), least, times)


def beside_base(
    predictor: GroupTube | PluginScore, base: OutOfFoldScores, trace: FitTrace, table: Table, *more: Floats
) -> RepairedPredictor:
    """Return the predictor with its trace; where models were learned, with values by models that have not seen the row.

    Values of the training rows come from the scores of the base, and from ``more`` numbers of the rows. A plug-in
    learns the group even where the score is taken as it is.
    """
    parts = (base.scores, *more)
    trace = replace(trace, fitted=predictor.of_scores(table, *parts))
    if predictor.randomized:
        trace = replace(trace, redrawn=predictor.redrawn_of_scores(table, *parts))
    if base.scorer.member is not None:
        trace = replace(trace, base=Unrepaired(base.scorer), base_fitted=base.scores)
    return replace(predictor, trace=trace)


def _loss_of(fit: TubeFit, scores: Scores, loss: str) -> float:
    """Return the loss of a tube on the training rows, expected over labels and draws."""
    parts = (scores.coupling(fit.tube, k) for k in range(scores.groups))
    return sum(
        float(share * (mass * expected_loss(loss, old, new)).sum())
        for share, (old, new, mass) in zip(scores.shares, parts, strict=True)
    )


def _drawn_values(spread: float, without: str = "") -> Note:
    """Return that values are drawn, with their mean standard deviation, and how to do without."""
    return Note(
        "each row's value is randomized by its ID among the values for its score, with a mean standard deviation of "
        f"{spread:.3g}. The slack holds in expectation over the draws{without}",
        "drawn",
    )


def _notes_without_draws(
    fit: TubeFit, drawn: TubeFit, cost: float, groups: Groups, slack: Floats
) -> Iterator[Note]:
    """Yield the cost of one value for all rows of one score."""
    if fit.tube.outputs is None:
        return
    worst = int(np.argmax(fit.ks - slack))
    yield Note(
        f"without randomization, on the training rows: ks.to_overall {fit.ks.max():.4f} instead of "
        f"{drawn.ks.max():.4f}, "
        f"and the expected loss is {'higher' if cost > 0 else 'lower'} by {abs(cost):.3g}",
        "rounded",
    )
    if not fit.holds:
        yield Caution(
            f"rows with one score get one value, so the rule exceeds the slack: group {groups.names[worst]!r} is "
            f"{fit.ks[worst]:.4f} from all rows, and the slack is {slack[worst]:g}; `decisions=randomized` meets it",
            "slack",
        )


# ---------------------------------------------------------------------- plug-in

DEAR = 0.25
"""Part of what the score tells that a repair may give away before it is warned of."""

RARE = 0.25
"""Part of the decisions of a kind that may be left before it is warned of."""

OFF = 0.05
"""Part of the loss of scores that may go away by shifting them before it is warned of; shifts of 200 rows or more that
are chance alone take away some 0.01."""


def _off(problem: RepairProblem, rows: PluginProblem, off: float) -> str:
    """Return that the scores are not what the loss is least at."""
    remedy = (
        "calibrate it first, or learn a model with `features`"
        if problem.features is None
        else "use more rows"
    )
    return (
        f"the method assumes that the score minimizes the {row_loss(rows.loss).title}, and this one does not. If one "
        "number were added to it for rows with similar scores, its loss on the labels would be "
        f"{off:.0%} smaller; {remedy}"
    )


class PlugIn(Solver):
    """The optimum among all functions of the features, for estimated expectations."""

    method: FairRegression
    option = "`solver=plug-in`"
    needs_rows = MODELS_GROUPS
    reads: ClassVar = dict.fromkeys(("group", "loss", "quantile_level", "learner"), anything)

    def fit(self, problem: RepairProblem, rng: np.random.Generator) -> RepairedPredictor:
        """Solve the linear program of the rule."""
        recipe, slack = self.method.recipe(problem, rng), self.method.slacks(problem.groups)
        learner, loss, l2, seed = recipe
        base, group = mean_of(problem, *recipe), groups_of(problem, learner, l2, seed)
        rows = plug_in_problem(problem, *recipe)
        fit = rows.fit(slack)
        predictor = PluginScore(base.scorer, group.scorer if fit.rule.groups else base.scorer, fit.rule)
        notes = tuple(_notes_on_rule(problem, rows, fit))
        trace = FitTrace(fit.solved, fit.iterations, fit.loss, notes=notes)
        if fit.solved:
            proven = Certificate(
                f"{row_loss(loss).title} expected of the scores, over the draws",
                fit.loss,
                fit.bound,
                "rules, randomized or not, of expected label and group, that meet the slack with the same group "
                "probabilities",
            )
            trace = replace(trace, gap=fit.gap, certificates=(proven,))
        return beside_base(predictor, base, trace, problem.table, group.scores)


@once_per_object
def plug_in_problem(
    problem: RepairProblem, learner: Learner, loss: str, l2: float, seed: int
) -> PluginProblem:
    """Return the plug-in's problem; where the score is all there is to look at, the rule is of it alone."""
    alone = problem.features is None and not problem.protected_as_feature
    score = mean_of(problem, learner, loss, l2, seed).scores
    group = groups_of(problem, learner, l2, seed).scores
    label = None if name_of(loss) in OF_MEAN else label_of(problem)
    return PluginProblem(score, group, problem.groups.codes, problem.weight, loss, alone, label)


def _notes_on_rule(problem: RepairProblem, rows: PluginProblem, fit: PluginFit) -> Iterator[Note]:
    """Yield what the user should know of a plug-in: first what not looking at the group costs."""
    if rows.around is not None and rows.around.off > OFF:
        yield Caution(_off(problem, rows, rows.around.off), "uncalibrated")
    if not fit.rule.moves:
        return
    if not fit.solved:
        yield Caution("the linear program was not solved, so all rows get the mean score", "not_converged")
        return
    names = attribute_name(problem.groups.columns)
    free, constant = rows.losses(PluginRule.free()), rows.losses(rows.constant)
    span = constant - free
    given = (fit.loss - free) / span if span > 0 else 0.0
    if not problem.protected_as_feature:
        what = "the score" if problem.features is None else "the features"
        part = f"{given:.0%}" if given >= DEAR else f"{given:.1%}"
        gives = (
            f"loses {part} of the information in {what} about the label (100% means one score for all rows)"
        )
        if given < DEAR:
            yield Note(f"the repair {gives}", "cost")
        else:
            yield Caution(
                f"this repair does not use {names!r} and {gives}. A rule that uses it may lose less: add "
                "`group=used`, or allow more `slack`",
                "cost",
            )
    yield from _notes_on_selection(problem.table, rows, fit)
    if fit.drawn > 0:
        yield Note(
            f"{fit.drawn:.1%} of the rows get one of a few scores, randomized by the row ID. On the training rows, "
            "the slack holds in expectation over the draws",
            "drawn",
        )


def _notes_on_selection(table: Table, rows: PluginProblem, fit: PluginFit) -> Iterator[Note]:
    """Yield a caution where the threshold hardly divides the repaired scores any more."""
    if table.data_spec.task == "regression" or not table.data_spec.thresholds:
        return
    cut = table.data_spec.cut
    atoms, chance = fit.rule.distributions()
    selected = chance[:, atoms >= cut].sum(axis=1)
    after = float(rows.share @ selected[fit.rule.cells(rows.eta, rows.pi)])
    before = float(rows.share @ (rows.eta >= cut))
    for was, now, word in ((before, after, "at or above"), (1 - before, 1 - after, "below")):
        if was > 1e-9 and now < RARE * was:  # less is rounding of the shares of all rows
            left = "no row is" if now < 1e-12 else f"{now:.2%} of the rows are"
            yield Caution(
                f"{left} {word} the threshold {cut:g} after the repair, {was:.1%} before; move it",
                "selection",
            )


# ---------------------------------------------------------------------- reduction


LEAST_SLACK = 0.005
"""Slacks below it bound no prices: those of exponentiated gradient are bounded as if they were as large."""


class Reduction(Solver):
    """A mixture of models of one learner."""

    method: FairRegression
    option = "`solver=reduction`"
    needs_rows = "it learns models from individual rows; use `solver=closed-form`"
    reads: ClassVar = dict.fromkeys(
        ("group", "loss", "quantile_level", "oracle", "mixture", "learner", "search", "nu", "rounds"),
        anything,
    )
    uses_labels = True

    def fit(self, problem: RepairProblem, rng: np.random.Generator) -> RepairedPredictor:
        """Call the oracle until the mixture is good enough, in scores from 0 to 1."""
        method, groups, y = self.method, problem.groups, label_of(problem)
        recipe = method.recipe(problem, rng)
        learner, loss, l2, seed = recipe
        design, weight, logistic = design_of(problem, learner), problem.weight, loss == "logistic"
        low, high = (0.0, 1.0) if logistic else (float(y.min()), float(y.max()))
        if loss == "poisson":
            low = 0.0
        span = high - low or 1.0  # labels that are all the same have no units
        bounds = None if logistic else (low + span * EDGE * (loss == "poisson"), high)
        links: dict[str, Any] = {"logistic": "sigmoid", "poisson": "exp"}
        link: Link = links.get(loss, "identity")
        scaled = np.round((y - low) / span / GRAIN) * GRAIN

        def fit_to(target: Floats) -> Callable[[Ints], Member]:
            of = "logistic" if logistic else "square"
            return fitting(design.matrix, target, weight, learner=learner, loss=of, l2=l2, seed=seed)

        def fitted(target: Floats) -> tuple[Any, Floats]:
            model = fit_to(target)(np.arange(y.size)), target
            return model, scores_of(model, crossed)

        def scores_of(model: Any, unseen: bool) -> Floats:
            """Return scores of a model; ``unseen``: of models like it that were not fitted to the row."""
            if isinstance(model, float):
                return np.full(y.size, model)
            member, target = model
            if not unseen:
                return np.asarray(member.predict(design.matrix))
            return out_of_fold(fit_to(target), design.matrix, design.folds, member)

        def member_of(model: Any) -> Member:
            if isinstance(model, float):
                model = ConstantMember(np.array([model]))
            elif isinstance(model, tuple):
                model = model[0]
            elif isinstance(model, LinearModel):
                model = LinearMember(model.coef[:, None], np.array([model.intercept]), link)
            assert isinstance(model, Member)
            return model.rescaled(low, span)

        crossed = method.cross_fitted
        oracle = self._oracle(loss, link, design.matrix, fitted)
        slacks = method.slacks(groups)

        def game(saved: float, nu: float) -> Game:
            # the prices at the optimum, times their slacks, are worth no more than what the constant gives away
            return Game(2.0 * saved / max(float(slacks.min()), LEAST_SLACK), nu, method.rounds)

        mixture = reduce(
            scaled,
            groups.codes,
            weight,
            slacks,
            in_units(loss, span),
            oracle,
            nu=method.nu,
            game=game if method.search == "exponentiated-gradient" else None,
        )
        scorers = tuple(Scorer(design.features, member_of(model), bounds) for model in mixture.models)
        rule = ModelMixture(scorers, mixture.weights, averaged=method.mixture == "averaged")
        learned = learned_of(problem, *recipe) if crossed else None
        other: tuple[Quantity, ...] = ()
        if not isinstance(oracle, Direct | CostSensitive):
            scores = np.clip([scores_of(model, not crossed) for model in mixture.models], 0.0, 1.0)
            far = mixture_distances(scores, mixture.weights, groups.codes, problem.weight, len(groups.names))
            way, of_rows = ("in sample", SEEN) if crossed else ("out of fold", UNSEEN)
            other = tuple(_distances(far, groups, of_rows, f"distance {way}"))
        unit = span ** row_loss(loss).power
        trace = FitTrace(
            mixture.converged,
            mixture.calls,
            mixture.loss * unit,
            notes=tuple(_notes_on_mixture(mixture, span, rule.averaged)),
            base=Unrepaired(learned.scorer if learned else model_of(problem, *recipe)),
            fitted=rule.of_scores(problem.table, *(low + span * mixture.scores)) if learned else None,
            base_fitted=learned.scores if learned else None,
            quantities=(*_quantities(mixture, unit, groups, UNSEEN if crossed else SEEN), *other),
        )
        return replace(rule, trace=trace)

    def _oracle(self, loss: str, link: Any, X: Floats, fit: Callable[[Floats], tuple[Any, Floats]]) -> Oracle:
        """Return the effective oracle."""
        oracle, of_loss = self.method.oracle, "risk" if loss == "logistic" else "least-squares"
        if oracle == "auto":
            oracle = "direct" if self.method.model == "linear" else of_loss
        if oracle == "direct":
            return Direct(X, link=link, l2=self.method.l2)
        if oracle == "cost-sensitive" and loss != "logistic":
            return CostSensitive(X)
        if oracle != of_loss:
            others = f"direct or {of_loss}" if self.method.model == "linear" else of_loss
            raise UsageError(
                f"fair-regression: `oracle={oracle}` cannot be combined with the {row_loss(loss).title}; use {others}"
            )
        return lambda problem: fit(problem.targets())


def _distances(distances: Floats, groups: Groups, rows: str, name: str = "distance") -> Iterator[Quantity]:
    """Yield the distance of each group on some rows."""
    for group, distance in zip(groups.names, distances, strict=True):
        yield Quantity(name, distance, f"of the group to all rows, over the draws, on {rows}", group)


def _quantities(mixture: WeightedModels, unit: float, groups: Groups, rows: str) -> Iterator[Quantity]:
    """Yield what is known of a mixture, which is no certificate."""
    yield Quantity(
        "oracle gap",
        mixture.gap_seen * unit,
        "loss that the oracle's best models would still save; they need not be the best possible, so this is not "
        "a bound",
    )
    yield Quantity("nu", mixture.nu * unit, "oracle gap at which the search converges")
    if mixture.saddle is not None:
        yield from game_quantities(mixture.saddle, unit, "distance beyond the slack, at 40 thresholds")
    yield from _distances(mixture.ks, groups, rows)
    for i, weight in enumerate(mixture.weights):
        yield Quantity("weight", weight, f"of model {i + 1} in the mixture")


def _notes_on_mixture(mixture: WeightedModels, span: float, averaged: bool) -> Iterator[Note]:
    """Yield a note where there are several models."""
    many = len(mixture.models)
    if many == 1:
        return
    if averaged:
        yield Caution(
            f"the result is the average of {many} models; parity holds for the mixture and need not hold for the "
            "average",
            "averaged",
        )
        return
    yield Note(
        f"each row uses one of {many} models, drawn by its ID; a row's score varies by {span * mixture.spread:.3g} on "
        "average (standard deviation), and parity holds for the mixture, in expectation over the draws",
        "drawn",
    )
