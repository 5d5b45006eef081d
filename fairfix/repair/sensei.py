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
comparable values. ``rho auto`` takes the smallest of a grid (by factors of 3) for which at most a share ``slack`` of
decisions changes under flips, measured on a fold of the rows of the fit that the model has not seen; if none does, an
exact solution where there is one.

``equal-rates`` is not SenSeI: it makes groups alike, which individual fairness does not. It can make *individual*
unfairness worse, by rewarding values that tell the group; a note raises the alarm where decisions come to hang more on
such values, whether they were declared comparable or not.

Comparable pairs of people (``--pairs``, for ``linear``) make their mean difference, oriented from the first to the
second, a direction along which the score is constant.

Learned directions (``directions``) are the paper's other fair metric: differences along directions that tell the group
do not count. They can cost much accuracy, since a direction that tells the group may be what tells the label; the note
says what they cost. Features are standardised before; directions depend on that.

The mathematics, with corrections to the paper and the reference code, is in :mod:`fairfix.optim.sensei`.

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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fairfix.counts import Floats, Ints
from fairfix.errors import DataError, UsageError
from fairfix.features import Features
from fairfix.flips import (
    Comparable,
    Flip,
    check_comparable,
    flipped,
    parse_comparable,
    protected_flips,
    proxies,
)
from fairfix.learners import (
    LinearMember,
    Member,
    NetworkMember,
    fit_classes,
    fit_mean,
    folds_of,
    is_fitted,
    out_of_fold,
)
from fairfix.optim.plugin import expected_loss
from fairfix.optim.sensei import distinct_rows, equal_rates, fit_linear, fit_network
from fairfix.predictors import Caution, Certificate, FitTrace, Quantity, RepairedPredictor
from fairfix.repair.base import Repairer, RepairProblem, param
from fairfix.repair.learned import FOLDS, bounds_of, l2_param, label_of, learner_param, model_of
from fairfix.table import Reading, Table, Task
from fairfix.values import BlindRule, ModelMixture, Scorer, Unrepaired

GRID = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Weights of the regularizer that are tried, from the smallest on."""

TRIED_STEPS, STEPS = 800, 3000
"""Steps of a network: while a weight is sought, and for good."""

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
        "weight of the regularizer; auto: the smallest of a grid that holds the slack on rows not fitted to; inf: "
        "exactly constant (linear)",
        words=("auto",),
        at_least=0.0,
        selectable=True,
    )
    radius: float = param(
        0.0,
        "mean squared distance that features may move besides, in standard deviations; 0: flips only",
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
    l2: float = l2_param()

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
        rho: float = 0.0 if not flips and not self.radius else math.nan
        if math.isnan(rho):
            rho, said = self._weight(X, y, weight, changed, span, seed)
            notes += said
        member, trace = self._member(X, y, weight, changed, span, rho, seed, STEPS)
        if len(span):
            notes.append(self._cost(X, y, weight, changed, span, rho, seed))
        scorer = Scorer(features, member)
        return self._traced(problem, scorer, seed, replace(trace, notes=tuple(notes)))

    def _member(
        self,
        X: Floats,
        y: Floats,
        weight: Floats,
        changed: _Changed,
        span: Floats,
        rho: float,
        seed: int,
        steps: int,
    ) -> tuple[Member, FitTrace]:
        """Return the model for one weight of the regularizer."""
        if self.solver == "linear":
            one = fit_linear(X, y, weight, changed, span, rho=rho, eps=self.radius, l2=self.l2)
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
        bounds = np.stack([X.min(axis=0), X.max(axis=0)])
        net = fit_network(
            X,
            y,
            weight,
            changed,
            rho=rho,
            eps=self.radius,
            steps=steps,
            seed=seed,
            balanced=False,
            bounds=bounds,
        )
        member = NetworkMember(net.W1, net.b1, net.w2, np.array([net.b2], dtype=np.float64))
        return member, FitTrace(True, steps, math.nan)

    def _weight(
        self, X: Floats, y: Floats, weight: Floats, changed: _Changed, span: Floats, seed: int
    ) -> tuple[float, list[str]]:
        """Return the weight of the regularizer, and how it was found."""
        if self.rho != "auto":
            return float(self.rho), []
        if not changed.many:
            return GRID[0], [
                "no decision changes with flips: rho is the least of the grid; choose another with --rho"
            ]
        folds = folds_of(X, FOLDS)
        fit, held = np.flatnonzero(folds != 0), np.flatnonzero(folds == 0)
        if not held.size or len(np.unique(y[fit])) < 2:
            return GRID[-1], ["too few rows to choose rho by; the largest of the grid is taken"]
        grid = (*GRID, math.inf) if self.solver == "linear" and not self.radius else GRID
        share = math.nan
        for rho in grid:
            member, _ = self._member(
                X[fit], y[fit], weight[fit], changed.take(fit), span, rho, seed, TRIED_STEPS
            )
            decided = np.stack([member.predict(changed.variant(k, held)) >= 0.5 for k in range(changed.many)])
            differs = decided.any(axis=0) & ~decided.all(axis=0)
            share = float(np.average(differs, weights=weight[held]))
            if share <= self.slack:
                said = (
                    f"rho {rho:g} is the smallest of the grid under which at most {self.slack:g} of decisions change "
                    f"with flips: {share:.4f} on rows not fitted to"
                )
                return rho, [said]
        said = (
            f"no rho of the grid holds the slack of {self.slack:g}: with {grid[-1]:g}, {share:.4f} of decisions change "
            "with flips; take --solver merge or average, which are exact"
        )
        return grid[-1], [said]

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

    def _cost(
        self,
        X: Floats,
        y: Floats,
        weight: Floats,
        changed: _Changed,
        span: Floats,
        rho: float,
        seed: int,
    ) -> str:
        """Return what learned directions cost, on a fold that is not fitted to."""
        folds = folds_of(X, FOLDS)
        fit, held = np.flatnonzero(folds != 0), np.flatnonzero(folds == 0)
        none = np.zeros((0, X.shape[1]))
        found = []
        for directions in (none, span):
            member, _ = self._member(
                X[fit], y[fit], weight[fit], changed.take(fit), directions, rho, seed, TRIED_STEPS
            )
            right = (member.predict(X[held]) >= 0.5) == (y[held] == 1)
            found.append(float(np.average(right, weights=weight[held])))
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
        rule = equal_rates(chance, tuple(chances), tolerance=min(self.slack, 1.0), weight=weight)
        predictor = BlindRule(Scorer(features, whole), tuple(scorers), rule)
        tied = Caution(
            f"{rule.tied:.1%} of the rows lie on the border of the decision; the slack may be missed by as much"
        )
        notes = (
            *([tied] if rule.tied > 1e-3 else []),
            *_proposed(problem, self),
            *_alarm(problem, self, predictor, Scorer(features, whole)),
        )
        base = Unrepaired(model_of(problem, self.learner, "logistic", self.l2, seed))
        gap = max(rule.bound - rule.value, 0.0)
        proven = Certificate(
            "negative balanced accuracy, by the chances of label and group, with rows on the border drawn",
            -rule.value,
            -rule.bound,
            "decisions that keep the slack, by these chances",
        )
        return predictor.traced(
            FitTrace(rule.converged, 1, -rule.value, gap, notes, base=base, certificates=(proven,))
        )

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
class _Changed:
    """Rows under flips, as :mod:`fairfix.optim.sensei` asks for them: the few columns and values that a flip leaves.

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
        rules: tuple[Callable[[Table], Floats], ...] = (plain, rule.predict)
        share = []
        for one in rules:
            decided = np.stack([one(flipped(some, flip, comparable)) >= 0.5 for flip in flips])
            share.append(float(np.mean(decided.any(axis=0) & ~decided.all(axis=0))))
        if share[1] > share[0] + ALARM:
            yield Caution(
                f"ALARM: equal rates are bought with {name}: if everybody were {' or '.join(values)}, {share[1]:.1%} "
                f"of decisions would change, instead of {share[0]:.1%} of the plain model's; declare them comparable"
            )
