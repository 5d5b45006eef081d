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
``linear``        the objective for a linear model, in closed form: no adversary      as ``rho`` says
``network``       the objective for a hidden layer of ReLU, flips by enumeration      as ``rho`` says
``average``       the mean of a model file's scores over all flips, by their shares   exactly
``equal-rates``   a decision without the protected columns, true positive and true    exactly
                  negative rates within ``slack``, most balanced accuracy
================  ==================================================================  ==================

``linear`` and ``network`` are about models that look at the protected columns (``--protected-as-feature``) or at
comparable values. ``rho auto`` sets a fifth of the rows aside and takes the smallest of a grid (by factors of 3) for
which these rows show that at most a share ``slack`` of decisions, at the threshold in force, changes under flips: by
the upper 95 % limit of Clopper and Pearson, which holds for all of the grid together. The model that they judged
ships as it is. If none is shown to hold the slack, an exact solution ships where there is one, fitted to all rows.

A network is trained until a fifth of the rows that it may learn from, which it does not, say that it gets no better;
at a radius the regularizer on these rows is told between the value of a plan that was found and a bound for all
plans.

``equal-rates`` holds the slack on the rows of the fit, if it can, as the shipped rule decides them; that may take a
mixture of rules, so that some decisions are drawn. It is not SenSeI: it makes groups alike, which individual fairness
does not. It can make *individual* unfairness worse, by rewarding values that tell the group; a note raises the alarm
where decisions come to hang more on such values, whether they were declared comparable or not.

Comparable pairs of people (``--pairs``, for ``linear``) make their mean difference, oriented from the first to the
second, a direction along which the score is constant.

Learned directions (``directions``) are the paper's other fair metric: differences along directions that tell the group
do not count. They can cost much accuracy, since a direction that tells the group may be what tells the label; the note
says what they cost. Features are standardised before; directions depend on that.

The mathematics, with corrections to the paper and the reference code, is in docs/methods/sensei.md.

=================  ====================  ==========================================================
paper              here                  meaning
=================  ====================  ==========================================================
``rho``            ``rho``               weight of the regularizer
``epsilon``        ``radius``            mean squared distance that features may move
``d_x``            flips, ``comparable``  what does not count is at distance 0
``lambda``         solved exactly        multiplier of the radius
=================  ====================  ==========================================================

References
----------
M. Yurochkin and Y. Sun, *SenSeI: sensitive set invariance for enforcing individual fairness*, ICLR 2021;
M. Yurochkin, A. Bower and Y. Sun, *Training individually fair ML models with sensitive subspace robustness*, ICLR 2020.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fairfix.data.counts import Bools, Floats, Ints
from fairfix.data.draws import occurrences
from fairfix.data.reading import Reading, Task
from fairfix.errors import DataError, UsageError
from fairfix.individual.flips import (
    Comparable,
    Flip,
    check_comparable,
    flipped,
    parse_comparable,
    protected_flips,
    proxies,
)
from fairfix.methods.base import Repairer, RepairProblem, param
from fairfix.methods.learned import FOLDS, bounds_of, label_of, learner_param, model_of
from fairfix.models.features import Features
from fairfix.models.learners import fit_classes, fit_mean, folds_of, hashed, is_fitted, out_of_fold
from fairfix.models.members import LinearMember, Member, NetworkMember
from fairfix.models.mixtures import BlindRule, ModelMixture, probabilities_of
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.scorers import Scorer, Unrepaired
from fairfix.models.trace import Caution, Certificate, FitTrace, Quantity
from fairfix.optim.arrays import distinct_rows
from fairfix.optim.blind_rates import EqualRates, HeldRates, Rows, View, equal_rates, held_rates
from fairfix.optim.invariant_linear import fit_linear
from fairfix.optim.network_fit import fit_network
from fairfix.optim.network_plan import network_regularizer
from fairfix.optim.plugin_rule import expected_loss
from fairfix.stats.estimates import Proportions

GRID = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Weights of the regularizer that are tried, from the smallest on."""

SURE = 0.05
"""Chance at which what is said of a chosen weight may be false."""

MEASURED = 500
"""Rows that judge a network on which its regularizer is bounded, at most: a second, by 100 ReLUs."""

REACHED = 0.5
"""Share of the best plan's value that the steps of a network's training have to reach: with less than half it has not
trained against what it says it does."""

ROUNDING = 1e-6
"""How far above the slack a gap may be by the tolerance of the linear program."""

DEAR = 0.01
"""Balanced accuracy that it may cost to hold equal rates in two views of the rows instead of one: a point."""

ALARM = 0.02
"""More decisions than this share that come to hang on what tells the group raise the alarm."""


@dataclass(frozen=True)
class Sensei(Repairer):
    """Individual fairness; see the module's docstring."""

    name: ClassVar[str] = "sensei"
    summary: ClassVar[str] = (
        "individual fairness: the same score for people who differ only in what does not count"
    )
    criterion: ClassVar[str] = "decision_flips.under_flips"
    learns: ClassVar[bool] = True
    tasks: ClassVar[tuple[Task, ...]] = ("classification", "regression")
    exceptions: ClassVar[dict[str, str]] = {
        "slack": "it bounds a share of decisions that change under flips, which no audit of rows as they are can see"
    }

    slack: float = param(0.01, "largest gap that is left, in the method's criterion", at_least=0.0)
    solver: str = param(
        "merge",
        "merge: see no protected column and take comparable values for one; linear, network: SenSeI's regularizer; "
        "average: the mean of a model file's scores over flips; equal-rates: alike true positive and true negative "
        "rates without seeing the group",
        choices=("merge", "linear", "network", "average", "equal-rates"),
    )
    comparable: str = param(
        "",
        "values whose difference does not count, as COLUMN=VALUE,VALUE; more columns after semicolons",
        text=True,
    )
    rho: float | str = param(
        "auto",
        "weight of the regularizer; auto: the smallest of a grid that is shown to hold the slack, at the threshold in "
        "force, by rows not fitted to; inf: exactly constant (linear)",
        words=("auto",),
        at_least=0.0,
        selectable=True,
    )
    radius: float = param(
        0.0,
        "mean squared distance that features may move besides: numbers in standard deviations, another category is 1; "
        "0: flips only",
        at_least=0.0,
        selectable=True,
    )
    directions: str = param(
        "none",
        "learned directions that do not count either (linear): of a logistic regression for the group, between the "
        "group means of each label (means), or of both labels pooled, which is fewer; can cost much accuracy",
        choices=("none", "logistic", "means", "pooled"),
    )
    learner: str = learner_param()
    l2: float = param(
        1e-3,
        "weight of the squared coefficients of a linear model, or of a network's squared weights on average over its "
        "ReLUs, beside the mean loss",
        at_least=0.0,
        selectable=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_comparable(self.comparable)
        if self.rho == math.inf and self.solver == "network":
            raise UsageError("sensei: a network is not exactly constant for any rho; take merge or average")
        if self.rho == math.inf and self.radius > 0:
            raise UsageError("sensei: with rho inf and a radius only a constant is left; set radius 0")
        if self.directions != "none" and self.solver != "linear":
            raise UsageError("sensei: learned directions go with --solver linear")
        if self.radius > 0 and self.solver not in ("linear", "network"):
            raise UsageError("sensei: a radius goes with --solver linear or network")
        if self.learner == "trees" and self.solver not in ("merge", "equal-rates"):
            raise UsageError("sensei: trees go with --solver merge or equal-rates")

    @property
    def comparables(self) -> Comparable:
        """Columns with values whose difference does not count."""
        return parse_comparable(self.comparable)

    @property
    def bounds(self) -> str:
        """Identifier of the audit comparison that ``slack`` bounds."""
        return "equalized_odds.difference.to_overall" if self.solver == "equal-rates" else self.criterion

    def bounds_of(self, reading: Reading) -> str:
        """Return the same of real values, which decide nothing: how far they change."""
        plain = reading.task == "regression" and self.bounds == self.criterion
        return "score_change.under_flips" if plain else self.bounds

    @property
    def has_slack(self) -> bool:
        """Whether the slack changes the fit."""
        return self.solver == "equal-rates" or (self.solver in ("linear", "network") and self.rho == "auto")

    @property
    def knows_pairs(self) -> bool:
        """Whether the fit heeds pairs of people whose difference does not count."""
        return self.solver == "linear"

    @property
    def uses_labels(self) -> bool:
        """Whether the fit uses labels: to average a model it does not."""
        return self.solver != "average"

    @property
    def averages(self) -> bool:
        """Whether it takes the mean of a model file's scores over flips, which is done where they are made."""
        return self.solver == "average"

    @classmethod
    def contenders(cls, reading: Reading) -> Iterator[tuple[str, Repairer]]:
        """Yield the exact solver, the closed form over its slack, and equal rates."""
        yield cls.name, cls()
        if reading.task == "classification":
            yield f"{cls.name}, linear", cls(solver="linear")
            yield f"{cls.name}, equal rates", cls(solver="equal-rates")

    def _fit(self, problem: RepairProblem, rng: np.random.Generator) -> RepairedPredictor:
        """Fit with the solver in force."""
        seed = int(rng.integers(2**31))
        table = problem.table
        if self.solver == "average":
            said = "scores are the mean over flips, so they are constant under them; a model audit shows what they were"
            trace = FitTrace(True, 1, math.nan, notes=(said,))  # a mean: there is nothing to search
            return ModelMixture((Scorer(),), np.ones(1), averaged=True).traced(trace)
        if self.comparable:
            check_comparable(table, self.comparables)
            self._check_features(problem)
        if self.solver != "merge" and table.reading.task == "regression":
            raise UsageError(f"sensei: --solver {self.solver} is about 0/1 labels; take merge")
        if self.solver in ("linear", "network"):
            return self._regularized(problem, seed)
        if problem.protected_as_feature:
            raise UsageError(
                f"sensei: --solver {self.solver} sees no protected column; leave out --protected-as-feature, or take "
                "--solver linear"
            )
        return self._merged(problem, seed) if self.solver == "merge" else self._equal_rates(problem, seed)

    def _check_features(self, problem: RepairProblem) -> None:
        """Raise where comparable values are of a column that is not learned from."""
        for name, _ in self.comparables:
            if problem.features is None or name not in problem.features:
                raise UsageError(
                    f"--comparable {name}: the column is not learned from; name it with --features"
                )

    # ------------------------------------------------------------------ exact

    def _seen(self, problem: RepairProblem) -> tuple[Features, Floats]:
        """Return features in which comparable values are one, and their matrix."""

        def make() -> tuple[Features, Floats]:
            features = Features.learn(problem.table, problem.features, (), dict(self.comparables))
            return features, features.matrix(problem.table, gaps=self.learner == "trees")

        return problem.once(("merged", self.comparable, self.learner), make)

    def _loss(self, reading: Reading) -> str:
        return "square" if reading.task == "regression" else "logistic"

    def _merged(self, problem: RepairProblem, seed: int) -> RepairedPredictor:
        """Return a model of what counts."""
        loss, table = self._loss(problem.table.reading), problem.table
        features, matrix = self._seen(problem)
        member = fit_mean(
            matrix,
            label_of(problem),
            table.rows.weight,
            learner=self.learner,
            loss=loss,
            l2=self.l2,
            seed=seed,
        )
        scorer = Scorer(features, member, bounds_of(problem, loss))
        value = float(
            np.average(
                expected_loss(loss, label_of(problem), scorer.bounded(member.predict(matrix))),
                weights=table.rows.weight,
            )
        )
        done = is_fitted(member, matrix, label_of(problem), table.rows.weight, self.l2)
        trace = FitTrace(done, 1, value, notes=tuple(_proposed(problem, self)))
        return self._traced(problem, scorer, seed, trace)

    def _traced(
        self, problem: RepairProblem, scorer: Scorer, seed: int, trace: FitTrace
    ) -> RepairedPredictor:
        """Return the predictor of a scorer, beside the plain model."""
        loss = self._loss(problem.table.reading)
        base = Unrepaired(model_of(problem, self.learner, loss, self.l2, seed))
        return ModelMixture((scorer,), np.ones(1), averaged=True).traced(replace(trace, base=base))

    # ------------------------------------------------------------------ regularized

    def _regularized(self, problem: RepairProblem, seed: int) -> RepairedPredictor:
        """Return SenSeI's linear model or network."""
        table = problem.table
        groups = problem.cells.columns if problem.protected_as_feature else ()
        features = Features.learn(table, problem.features, groups)
        X, y = features.matrix(table), label_of(problem)
        weight = problem.weight
        flips = protected_flips(table, groups, self.comparables) if groups or self.comparable else []
        changed = _Changed.of(X, (features.matrix(flipped(table, flip, self.comparables)) for flip in flips))
        span = self._span(problem, features, X, y, weight)
        notes = (
            []
            if flips
            else ["nothing that does not count is looked at: the model is constant under flips anyway"]
        )
        if problem.pairs:
            notes.append(
                f"{len(_known(problem)):,} of {len(problem.pairs):,} comparable pairs have both people among the rows "
                "of the fit"
            )
        notes += _proposed(problem, self)
        asked = 0.0 if not flips and not self.radius else self.rho
        data = _Data(X, y, weight, changed, span, features.reach)
        if asked == "auto":
            rho, member, trace, said = self._chosen(data, table.reading.cut, seed)
            notes += said
        else:
            rho = float(asked)
            member, trace = self._member(data, rho, seed)
        if len(span):
            notes.append(self._cost(data, rho, table.reading.cut, seed))
        if rho == math.inf:
            assert isinstance(member, LinearMember)
            member = _constant(member, features, dict(self.comparables))
        scorer = Scorer(features, member)
        return self._traced(problem, scorer, seed, replace(trace, notes=(*notes, *trace.notes)))

    def _member(self, data: _Data, rho: float, seed: int) -> tuple[Member, FitTrace]:
        """Return the model for one weight of the regularizer."""
        if self.solver == "linear":
            one = fit_linear(
                data.X,
                data.y,
                data.weight,
                data.changed,
                data.span,
                rho=rho,
                eps=self.radius,
                l2=self.l2,
                metric_inverse=np.diag(data.reach),
            )
            linear = LinearMember(one.coef[:, None], np.array([one.intercept]), "sigmoid")
            proven = Certificate(
                "mean log loss plus rho times the regularizer plus the penalty",
                one.objective,
                one.objective - one.gap,
                "linear models without a part along directions that do not count",
            )
            weighed = Quantity("rho", rho, "weight of the regularizer")
            trace = FitTrace(
                one.converged,
                one.steps,
                one.objective,
                one.gap,
                certificates=(proven,),
                quantities=(weighed,),
            )
            return linear, trace
        judged = np.flatnonzero(_held(data, seed + 1))
        bounds = np.stack([data.X.min(axis=0), data.X.max(axis=0)])
        free: dict[str, Any] = {"eps": self.radius, "bounds": bounds, "metric_inverse": np.diag(data.reach)}
        fit = fit_network(
            data.X, data.y, data.weight, data.changed, judged, rho=rho, l2=self.l2, seed=seed, **free
        )
        net, converged, notes = fit.network, fit.converged, []
        found_out = [Quantity("rho", rho, "weight of the regularizer")]
        if self.radius > 0:
            some = data.take(
                judged[:: -(-judged.size // MEASURED)] if judged.size else np.arange(len(data.y))
            )
            found = network_regularizer(net, some.X, some.changed, weight=some.weight, **free)
            converged = converged and found.trained >= REACHED * found.plan.value
            notes.append(
                f"the regularizer at radius {self.radius:g}, on {len(some.y):,} rows that the weights were not fitted "
                f"to: at least {found.plan.value:.4g}, by a plan that was found, and at most {found.upper:.4g}, by a "
                f"bound for all plans; the steps of the training reach {found.trained:.4g}"
            )
            where = f"the regularizer at radius {self.radius:g} on rows that the weights were not fitted to"
            found_out += [
                Quantity("regularizer at least", found.plan.value, f"{where}, by a plan that was found"),
                Quantity("regularizer at most", found.upper, f"{where}, by a bound for all plans"),
                Quantity("regularizer in training", found.trained, f"{where}, by the steps of the training"),
            ]
        member = NetworkMember(net.W1, net.b1, net.w2, np.array([net.b2], dtype=np.float64))
        trace = FitTrace(converged, fit.steps, fit.objective, notes=tuple(notes), quantities=tuple(found_out))
        return member, trace

    def _chosen(self, data: _Data, cut: float, seed: int) -> tuple[float, Member, FitTrace, list[str]]:
        """Return the smallest weight of the regularizer that is shown to hold the slack, with its model.

        A model is fitted to four fifths of the rows and shipped as it is, so that what is said of it is measured on
        rows that it has not seen: at most a share of decisions changes under flips, by the upper limit of Clopper and
        Pearson. The limits of all weights hold together (Bonferroni), so the one that is chosen by them is as good as
        any. A model that is constant by its form needs no measuring and is fitted to all rows.
        """
        exact = self.solver == "linear" and not self.radius
        if not data.changed.many:
            member, trace = self._member(data, GRID[0], seed)
            said = "no decision changes with flips: rho is the least of the grid; choose another with --rho"
            return GRID[0], member, trace, [said]
        held = _held(data, seed)
        fit, away = data.take(np.flatnonzero(~held)), np.flatnonzero(held)
        usable = away.size > 0 and len(np.unique(fit.y[fit.weight > 0])) == 2
        found = None
        for rho in GRID if usable else ():
            member, trace = self._member(fit, rho, seed)
            share, most = _flipping(member, data, away, cut, SURE / len(GRID))
            rows = f"of decisions at {cut:g} change with flips"
            flips = (
                Quantity("flips at most", most, f"share {rows}, with {1 - SURE:.0%} confidence"),
                Quantity("flips measured", share, f"share {rows}, on {away.size:,} rows not fitted to"),
            )
            found = rho, member, replace(trace, quantities=(*trace.quantities, *flips))
            said = (
                f"at most {most:.4f} of decisions at {cut:g} change with flips, with {1 - SURE:.0%} confidence "
                f"({share:.4f} of the {away.size:,} rows that rho was chosen by, which the model was not fitted to)"
            )
            if most <= self.slack:
                return *found, [
                    f"rho {rho:g} is the smallest of the grid that is shown to hold the slack: {said}"
                ]
        if exact:
            member, trace = self._member(data, math.inf, seed)
            why = (
                f"rho inf: no smaller one is shown to hold the slack of {self.slack:g} by the {away.size:,} rows set "
                "aside to choose it; no decision changes with flips, by the form of the model"
            )
            return math.inf, member, trace, [why]
        if found is None:
            member, trace = self._member(data, GRID[-1], seed)
            why = "too few rows to choose rho by; the largest of the grid is taken, and the slack is not shown to hold"
            return GRID[-1], member, trace, [Caution(why)]
        why = (
            f"no rho of the grid is shown to hold the slack of {self.slack:g}: with {found[0]:g}, {said}; take "
            "--solver merge or average, which are exact, more rows or more slack"
        )
        return *found, [Caution(why)]

    def _span(
        self, problem: RepairProblem, features: Features, X: Floats, y: Floats, weight: Floats
    ) -> Floats:
        """Return the directions that do not count, shape (r, d): of comparable pairs, and learned ones."""
        out: list[Floats] = [_between(problem, X)] if problem.pairs else []
        if self.directions == "none":
            return np.array(out).reshape(-1, X.shape[1])
        own = np.array([one.kind == "group" for one in features.columns for _ in one.titles])
        for name in problem.cells.columns:
            groups = problem.table.groups([name])
            many = len(groups.levels)
            if many < 2:
                continue
            if self.directions == "logistic":
                other = np.where(own, 0.0, X)
                member = fit_classes(other, groups.codes, many, weight, learner="linear", l2=self.l2, seed=0)
                assert isinstance(member, LinearMember)
                out += list(np.where(own, 0.0, member.coef.T))
            elif self.directions == "means":
                out += [
                    part
                    for label in (0.0, 1.0)
                    for part in _apart(X, groups.codes, many, np.where(y == label, weight, 0.0), y)
                ]
            else:
                out += list(_apart(X, groups.codes, many, weight, y))
        return np.array(out)

    def _cost(self, data: _Data, rho: float, cut: float, seed: int) -> str:
        """Return what learned directions cost, on a fold that is not fitted to."""
        held = _held(data, seed)
        fit, away = data.take(np.flatnonzero(~held)), np.flatnonzero(held)
        none = np.zeros((0, data.X.shape[1]))
        found = []
        for directions in (none, data.span):
            member, _ = self._member(replace(fit, span=directions), rho, seed)
            right = (member.predict(data.X[away]) >= cut) == (data.y[away] == 1)
            found.append(float(np.average(right, weights=data.weight[away])))
        return f"learned directions cost accuracy: {found[1]:.4f} instead of {found[0]:.4f} on rows not fitted to"

    # ------------------------------------------------------------------ equal rates

    def _equal_rates(self, problem: RepairProblem, seed: int) -> RepairedPredictor:
        """Return the decision of equal rates that sees no protected column."""
        table, y, weight = problem.table, label_of(problem), problem.table.rows.weight
        features, matrix = self._seen(problem)
        folds = folds_of(matrix, FOLDS)
        rows = np.arange(len(table))

        def of_label(some: Ints) -> Member:
            w = None if weight is None else weight[some]
            return fit_mean(
                matrix[some], y[some], w, learner=self.learner, loss="logistic", l2=self.l2, seed=seed
            )

        whole = of_label(rows)
        chance = out_of_fold(of_label, matrix, folds, whole)
        scorers: list[tuple[Scorer, Scorer]] = []
        chances: list[tuple[Floats, Floats]] = []
        for name in problem.cells.columns:
            groups = table.groups([name])
            members, values = zip(
                *(
                    self._groups_given(
                        matrix, groups.codes, len(groups.levels), y == label, weight, folds, seed, name
                    )
                    for label in (1.0, 0.0)
                ),
                strict=True,
            )
            scorers.append((Scorer(features, members[0]), Scorer(features, members[1])))
            chances.append((values[0], values[1]))
        start = equal_rates(chance, tuple(chances), tolerance=min(self.slack, 1.0), weight=weight)
        codes = tuple(table.groups([name]).codes for name in problem.cells.columns)
        known = Rows(y, codes, problem.weight / problem.weight.sum())
        unseen = chance, tuple(chances)
        held = self._held_rates(
            start, probabilities_of(table, Scorer(features, whole), tuple(scorers)), unseen, known
        )
        predictor = BlindRule(Scorer(features, whole), tuple(scorers), held.mixture)
        own, other = predictor.predict(table), held.mixture.chance(*unseen)
        gap, apart = (float(np.abs(known.gaps(one)).max()) for one in (own, other))
        unbound = start.priced(np.zeros(held.mixture.prices.shape[1])).score(*unseen)
        right, free = known.balanced(other), known.balanced((unbound > 0).astype(np.float64))
        holds = gap <= self.slack + ROUNDING
        said = (
            f"true positive and true negative rates of groups are within {gap:.4f} of everybody's on the rows of the "
            f"fit, as the rule decides them, and within {apart:.4f} by members that have not seen the row; the slack "
            f"is {self.slack:g}"
        )
        cost = f"balanced accuracy is {right:.4f}, and {free:.4f} without the slack, by the same members"
        dear = free > 0.5 and right - 0.5 < 0.5 * (free - 0.5)
        notes = (
            said if holds else Caution(f"the slack does not hold: {said}"),
            Caution(f"the slack costs most of what features tell: {cost}") if dear else cost,
            *_proposed(problem, self),
            *_alarm(problem, self, predictor, Scorer(features, whole)),
        )
        base = Unrepaired(model_of(problem, self.learner, "logistic", self.l2, seed))
        rates = "largest distance of a group's true positive or true negative rate to everybody's"
        found = (
            Quantity("gap", gap, f"{rates}, as the rule decides the rows of the fit"),
            Quantity("gap unseen", apart, f"{rates}, by members that have not seen the row"),
            Quantity("balanced accuracy", right, "by members that have not seen the row"),
            Quantity(
                "balanced accuracy without slack", free, "of the best rule without it, by the same members"
            ),
        )
        return predictor.traced(
            FitTrace(holds, held.rounds, -right, notes=notes, base=base, quantities=found)
        )

    def _held_rates(self, start: EqualRates, shipped: View, unseen: View, known: Rows) -> HeldRates:
        """Return the mixture that holds the slack on the rows, as the members that ship see them and as others do.

        Where both together cost too much, linear members count as they ship, for what they have learned of single rows
        is little, and trees as members that have not seen the rows.
        """
        slack = min(self.slack, 1.0)
        both = held_rates(start, (shipped, unseen), known, slack)
        one = held_rates(start, (shipped if self.learner == "linear" else unseen,), known, slack)
        right = [known.balanced(each.mixture.chance(*unseen)) for each in (both, one)]
        return both if right[0] >= right[1] - DEAR else one

    def _groups_given(
        self,
        X: Floats,
        codes: Ints,
        many: int,
        inside: np.ndarray[Any, np.dtype[np.bool_]],
        weight: Floats | None,
        folds: Ints,
        seed: int,
        name: str,
    ) -> tuple[Member, Floats]:
        """Return the model of P(group | features, label) and its values, for rows of the label out of fold."""
        rows = np.flatnonzero(inside)
        if not np.bincount(codes[rows], minlength=many).all():
            raise DataError(
                f"a group of {name!r} has no rows of one label, so that it has no rate to be made equal; leave the "
                "group out or fold it into another"
            )

        def fit(some: Ints) -> Member:
            w = None if weight is None else weight[rows[some]]
            return fit_classes(
                X[rows[some]], codes[rows[some]], many, w, learner=self.learner, l2=self.l2, seed=seed
            )

        def usable(some: Ints) -> bool:
            return bool(np.bincount(codes[rows[some]], minlength=many).all())

        member = fit(np.arange(rows.size))
        values = member.predict(X)
        values[rows] = out_of_fold(fit, X[rows], folds[rows], member, usable)
        return member, values


@dataclass(frozen=True, eq=False)
class _Data:
    """What a regularized model is fitted to.

    Rows, labels and weights, the rows under flips, free directions, and how far columns move at the cost of 1.
    """

    X: Floats
    y: Floats
    weight: Floats
    changed: _Changed
    span: Floats
    reach: Floats

    def take(self, rows: Ints) -> _Data:
        """Return some rows."""
        some = self.X[rows], self.y[rows], self.weight[rows], self.changed.take(rows)
        return _Data(*some, self.span, self.reach)


def _constant(member: LinearMember, features: Features, same: Mapping[str, tuple[str, ...]]) -> LinearMember:
    """Return a member that is constant under flips up to rounding as one that is to the bit.

    Coefficients of all levels of a group are equal, so that the intercept can take them; those of comparable values
    are equal, or 0 where one of the values has no column.
    """
    coef, intercept, at = member.coef.copy(), member.intercept.copy(), 0
    for one in features.columns:
        own = np.arange(at, at + len(one.titles))
        at += len(one.titles)
        if one.kind == "group":
            intercept += coef[own].mean()
            coef[own] = 0.0
        elif one.name in same:
            alike = own[[level in same[one.name] for level in one.levels]]
            coef[alike] = coef[alike].mean() if alike.size == len(same[one.name]) else 0.0
    return replace(member, coef=coef, intercept=intercept)


def _held(data: _Data, seed: int) -> Bools:
    """Return which rows are set aside, one in ``FOLDS``, shape (n,).

    Drawn for each row by itself and not for each set of values, as folds elsewhere: what is measured on these rows is
    said of all, so that of many equal rows some have to be among them. Which of equal rows does not matter, so the
    draw hangs on their values and their number among them: on the order of rows it does not hang.
    """
    keys = hashed(np.column_stack([data.X, data.y, data.weight]))
    parts = [keys >> np.uint64(32), keys & np.uint64(2**32 - 1), occurrences(keys)]
    values = np.column_stack([*parts, np.full(keys.size, seed)]).astype(np.float64)
    return np.asarray(folds_of(values, FOLDS) == 0)


def _flipping(member: Member, data: _Data, rows: Ints, cut: float, alpha: float) -> tuple[float, float]:
    """Return the share of rows whose decision is not the same under all flips, and its upper limit."""
    decided = np.stack(
        [member.predict(data.changed.variant(k, rows)) >= cut for k in range(data.changed.many)]
    )
    differs, w = decided.any(axis=0) & ~decided.all(axis=0), data.weight[rows]
    sums = ([(w**power)[some].sum()] for power in (1, 2) for some in (differs, ~differs))
    share = Proportions.weighted(*sums)
    return float(share.value[0]), float(share.limits(2.0 * alpha)[1][0])


@dataclass(frozen=True, eq=False)
class _Changed:
    """Rows under flips, as moves and as variants for the solvers: the few columns and values that a flip leaves.

    Attributes
    ----------
    X
        The rows, shape (n, d).
    columns, values, kinds
        For each flip the columns that it changes, shape (C,), their values afterwards, each once, shape (G, C), and
        which of them each row gets, shape (n,).
    """

    X: Floats
    columns: tuple[Ints, ...]
    values: tuple[Floats, ...]
    kinds: tuple[Ints, ...]

    @classmethod
    def of(cls, X: Floats, flips: Iterable[Floats]) -> _Changed:
        """Return it for the matrices of all rows under each flip."""
        columns: list[Ints] = []
        values: list[Floats] = []
        kinds: list[Ints] = []
        for whole in flips:
            own = np.flatnonzero((whole != X).any(axis=0))
            first, kind = distinct_rows(whole[:, own])
            columns.append(own)
            values.append(whole[np.ix_(first, own)])
            kinds.append(kind)
        return cls(X, tuple(columns), tuple(values), tuple(kinds))

    @property
    def many(self) -> int:
        return len(self.columns)

    def delta(self, k: int) -> Floats:
        out = np.zeros_like(self.X)
        own = self.columns[k]
        out[:, own] = self.values[k][self.kinds[k]] - self.X[:, own]
        return out

    def variant(self, k: int, rows: Ints) -> Floats:
        out = self.X[rows]
        out[:, self.columns[k]] = self.values[k][self.kinds[k][rows]]
        return np.asarray(out)

    def take(self, rows: Ints) -> _Changed:
        return _Changed(self.X[rows], self.columns, self.values, tuple(kind[rows] for kind in self.kinds))


def _apart(X: Floats, codes: Ints, many: int, weight: Floats, y: Floats) -> Floats:
    """Return how the means of groups lie apart within labels, shape (K, d).

    The coefficients of the groups in a regression of the features on group and label, those of least norm: they sum to
    0, and every difference of two groups is in their span. With the rows of one label, the differences of means.
    """
    inside = weight > 0
    X, y, root = X[inside], y[inside], np.sqrt(weight[inside])[:, None]
    member = (codes[inside, None] == np.arange(many)).astype(np.float64)
    both = np.concatenate([member, X], axis=1)
    for label in np.unique(y):
        rows = y == label
        both[rows] -= np.average(both[rows], axis=0, weights=root[rows, 0] ** 2)
    both *= root
    return np.asarray(np.linalg.lstsq(both[:, :many], both[:, many:], rcond=1e-10)[0])


def _between(problem: RepairProblem, X: Floats) -> Floats:
    """Return the mean difference of the second of each pair from the first, shape (d,); units are those of ``X``.

    The mean and not the principal directions: differences within pairs that go either way are no direction.

    Raises
    ------
    DataError
        There are no identities, or no pair is among the rows of the fit.
    """
    known = _known(problem)
    if not known:
        raise DataError(
            f"none of the {len(problem.pairs):,} comparable pairs has both people among the {len(X):,} rows of the fit"
        )
    first, second = np.array(known).T
    return np.asarray((X[second] - X[first]).mean(axis=0))


def _known(problem: RepairProblem) -> list[tuple[int, int]]:
    """Return the rows of the pairs whose people are both there.

    Raises
    ------
    DataError
        There are no identities.
    """
    name = problem.table.reading.columns.id
    if name is None or name not in problem.table.features.column_names:
        raise DataError("comparable pairs name people; say with --id which column has their names")
    place = {str(one): i for i, one in enumerate(problem.table.features.column(name).to_pylist())}
    return [(place[a], place[b]) for a, b in problem.pairs if a in place and b in place]


def _undeclared(problem: RepairProblem, method: Sensei) -> Iterator[str]:
    """Yield the comparable values that a scan proposes and nobody has declared."""
    declared = {name for name, _ in method.comparables}
    if problem.features is None:
        return
    learned = replace(problem.table, features=problem.table.features.select(list(problem.features)))
    for proposal in proxies(learned, problem.cells.columns):
        if proposal.partition("=")[0] not in declared:
            yield proposal


def _proposed(problem: RepairProblem, method: Sensei) -> Iterator[str]:
    """Yield a note on each proposal."""
    for proposal in _undeclared(problem, method):
        yield f"comparable values to think about, not used: {proposal}; say so with --comparable"


def _alarm(problem: RepairProblem, method: Sensei, rule: BlindRule, plain: Scorer) -> Iterator[str]:
    """Yield an alarm where decisions hang more on values that tell the group than before."""
    table = problem.table
    told = [p.partition(" (")[0] for p in _undeclared(problem, method)]
    step = max(1, len(table) // 5000)
    some = table.take(np.arange(0, len(table), step))
    for text in dict.fromkeys((*told, *filter(None, method.comparable.split(";")))):
        comparable = parse_comparable(text)
        (name, values), *_ = comparable
        flips = [Flip({}, {name: value}, everybody=True) for value in values]
        rows = [flipped(some, flip, comparable) for flip in flips]
        decided = [np.stack([plain(one) >= table.reading.cut for one in rows]).astype(np.float64)]
        decided.append(np.stack([rule.predict(one) for one in rows]))
        share = [float(np.average(np.ptp(chance, axis=0), weights=some.weight)) for chance in decided]
        if share[1] > share[0] + ALARM:
            yield Caution(
                f"ALARM: equal rates are bought with {name}: if everybody were {' or '.join(values)}, {share[1]:.1%} "
                f"of decisions would change, instead of {share[0]:.1%} of the plain model's; declare them comparable"
            )
