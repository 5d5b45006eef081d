"""Training inputs of a method: the score as it is, or members over features, with out-of-fold scores.

A repair that is fitted on top of a model has to see the model's scores as new rows will get them. Scores of rows that
the model was fitted to are too confident, those of trees badly so. So every row is scored by a member that was fitted
without it, in ``FOLDS`` folds; new rows are scored by the member fitted to all.

Equal rows are of one fold. So where there are only a few different rows, many times each, a member without a fold would
not know whole kinds of rows; then all are scored by the member fitted to all, which one row hardly changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from fairfix.data.counts import Floats, Ints
from fairfix.data.domain import Domain, domain
from fairfix.data.once import once_per_object
from fairfix.data.spec import Form, Spec, parse_spec, split_specs
from fairfix.errors import DataError, UsageError
from fairfix.methods.base import Accepts, Repairer
from fairfix.methods.problem import RepairProblem
from fairfix.models.estimators import TITLES, Learner, checked, sees_gaps
from fairfix.models.features import Features
from fairfix.models.learners import fit_classes, fit_mean, folds_of, hashed, out_of_fold
from fairfix.models.members import Member
from fairfix.models.score_models import Scorer

FOLDS = 5
"""Parts of the rows, each scored by a member fitted to the others."""

REPEATED = 25
"""Least rows of each kind, on average, for which the member fitted to all rows scores them all."""


class Fitting(Protocol):
    """Fits a member to some rows, from a start."""

    def __call__(self, rows: Ints, start: Member | None = None) -> Member:
        """Return the member that is fitted to rows by their numbers."""


MOST_L2 = 1e6
"""Largest penalty: coefficients of standardised features are nothing to six digits from there on."""

L2 = 1e-3
"""Penalty where none is given."""

LINEAR = Form(
    "ridge or logistic regression",
    {
        "l2": domain(
            L2,
            "weight of the squared coefficients, relative to the mean loss",
            at_least=0.0,
            at_most=MOST_L2,
        )
    },
)
LEARNERS: Mapping[str, Form] = {
    "linear": LINEAR,
    **{name: Form(title, {}) for name, title in TITLES.items() if name != "linear"},
}
"""Learner by its name -> what it is, and its keys."""


@dataclass(frozen=True)
class LearnerDomain(Domain):
    """The learners of a method: names with keys, and in programs estimators or import paths as well."""

    forms: Mapping[str, Form] = field(default_factory=lambda: LEARNERS)

    def split(self, text: str) -> list[str]:
        """Return the learners of a list."""
        return split_specs(text)

    def one_of(self, name: str, value: Any) -> Any:
        """Return the learner as it is; a UsageError where it is none, or needs what is not installed."""
        spec = spec_of(value, self.forms)
        if spec is None and len(self.forms) == 1:
            raise UsageError(f"{name} must be one of {', '.join(self.forms)}")
        checked(value if spec is None else spec.name)
        return value


def spec_of(learner: Any, forms: Mapping[str, Form]) -> Spec | None:
    """Return the spec of a learner; None of an estimator or an import path."""
    named = not isinstance(learner, (str, int, float)) or ":" in str(learner).partition("(")[0]
    return None if named else parse_spec("learner", str(learner), forms)


def learner_param(forms: Mapping[str, Form] = LEARNERS, default: str = "linear") -> Any:
    """Return the hyper-parameter that says what is learned from features."""
    listed = ", ".join(
        str(Spec(name, tuple((one, of.default) for one, of in form.keys.items()), frozenset(form.keys)))
        for name, form in forms.items()
    )
    python = ". In Python also an estimator or its import path" if len(forms) > 1 else ""
    made = LearnerDomain(
        f"model to learn, with its settings and their defaults: {listed}{python}",
        choices=tuple(forms),
        selectable=True,
        forms=forms,
        default=default,
    )
    return field(default=default, metadata={"domain": made}, kw_only=True)


def named(*names: str) -> Accepts:
    """Accept learners of some names, whatever their keys."""
    return lambda value: isinstance(value, str) and value.partition("(")[0].strip() in names


def other_than(*names: str) -> Accepts:
    """Accept learners of other names, and estimators."""
    return lambda value: not named(*names)(value)


class Learning(Repairer):
    """A method that learns by a learner."""

    learner: Learner

    @cached_property
    def spec(self) -> Spec | None:
        """The learner by its name and keys; None of an estimator."""
        return spec_of(self.learner, self.domains()["learner"].forms)  # type: ignore[attr-defined]  # of its own kind

    @property
    def model(self) -> Learner:
        """The learner by its name, or the estimator."""
        return self.learner if self.spec is None else self.spec.name

    def setting(self, key: str, default: Any = None) -> Any:
        """Return the value of a key of the learner; the default where it has no such key."""
        return default if self.spec is None else dict(self.spec.settings).get(key, default)

    @property
    def l2(self) -> float:
        """The penalty of a linear model."""
        return float(self.setting("l2", L2))


@dataclass(frozen=True, eq=False)
class OutOfFoldScores:
    """A scorer for new rows, and the scores of the training rows, shape (n,) or (n, K).

    Each row's scores are by a member that has not seen it.
    """

    scorer: Scorer
    scores: Floats


@dataclass(frozen=True, eq=False)
class Design:
    """Features of a problem as a matrix, with the folds of its rows."""

    features: Features
    matrix: Floats
    folds: Ints


@once_per_object
def design_of(problem: RepairProblem, learner: Learner) -> Design:
    """Return the matrix that members are fitted to."""
    groups = problem.groups.columns if problem.protected_as_feature else ()
    features = Features.learn(problem.table, problem.features, groups)
    matrix = features.matrix(problem.table, gaps=sees_gaps(learner))
    return Design(features, matrix, folds_of(matrix, FOLDS, problem.weight))


@once_per_object
def mean_of(problem: RepairProblem, learner: Learner, loss: str, l2: float, seed: int) -> OutOfFoldScores:
    """Return the model of the label: the score as it is, or a member over features; DataError where both lack."""
    if problem.features is not None:
        return learned_of(problem, learner, loss, l2, seed)
    if problem.table.rows.score is None:
        raise DataError("there is no score and no feature to learn from; name one with `score` or `features`")
    return OutOfFoldScores(Scorer(), Scorer()(problem.table))


def fitting(X: Floats, y: Floats, weight: Floats, **settings: Any) -> Fitting:
    """Return the fit of a member for ``y`` to some rows, from a start; ``settings`` are those of ``fit_mean``."""

    def fit(rows: Ints, start: Member | None = None) -> Member:
        return fit_mean(X[rows], y[rows], weight[rows], start=start, **settings)

    return fit


def fitting_classes(
    X: Floats, codes: Ints, many: int, weight: Floats, **settings: Any
) -> tuple[Fitting, Callable[[Ints], bool]]:
    """Return the fit of P(class | row) to some rows, from a start, and whether rows have all classes.

    ``settings`` are those of ``fit_classes``.
    """

    def fit(rows: Ints, start: Member | None = None) -> Member:
        return fit_classes(X[rows], codes[rows], many, weight[rows], start=start, **settings)

    def usable(rows: Ints) -> bool:
        return bool(np.bincount(codes[rows], minlength=many).all())

    return fit, usable


@once_per_object
def learned_of(problem: RepairProblem, learner: Learner, loss: str, l2: float, seed: int) -> OutOfFoldScores:
    """Return a member for the label over features (or over the score, as a feature), with scores out of fold."""
    X, y = design_of(problem, learner).matrix, label_of(problem)
    fit = fitting(X, y, problem.weight, learner=learner, loss=loss, l2=l2, seed=seed)
    return _scored(problem, learner, fit, score_range(problem, loss))


@once_per_object
def model_of(problem: RepairProblem, learner: Learner, loss: str, l2: float, seed: int) -> Scorer:
    """Return the model of the label over features (or over the score, as a feature), fitted to all rows at once."""
    design, weight = design_of(problem, learner), problem.weight
    member = fit_mean(design.matrix, label_of(problem), weight, learner=learner, loss=loss, l2=l2, seed=seed)
    return Scorer(design.features, member, score_range(problem, loss))


@once_per_object
def classes_of(problem: RepairProblem, learner: Learner, l2: float, seed: int) -> Scorer:
    """Return the model of the chances of the label's classes over features, fitted to all rows at once."""
    design, weight, (names, codes) = design_of(problem, learner), problem.weight, problem.classes
    member = fit_classes(design.matrix, codes, len(names), weight, learner=learner, l2=l2, seed=seed)
    return Scorer(design.features, member)


def score_range(problem: RepairProblem, loss: str) -> tuple[float, float] | None:
    """Return the range that values are moved into: [0, 1] where they are chances but no loss keeps them there."""
    return (0.0, 1.0) if problem.table.data_spec.task == "classification" and loss != "logistic" else None


@once_per_object
def groups_of(problem: RepairProblem, learner: Learner, l2: float, seed: int) -> OutOfFoldScores:
    """Return the model of the group: P(group | features), shape (n, K) on the training rows."""
    groups, weight, X = problem.groups, problem.weight, design_of(problem, learner).matrix
    settings = {"learner": learner, "l2": l2, "seed": seed}
    fit, usable = fitting_classes(X, groups.codes, len(groups.levels), weight, **settings)
    return _scored(problem, learner, fit, None, usable)


def _scored(
    problem: RepairProblem,
    learner: Learner,
    fit: Fitting,
    bounds: tuple[float, float] | None,
    usable: Callable[[Ints], bool] | None = None,
) -> OutOfFoldScores:
    """Return the member fitted to all rows, and scores by members that have not seen the row."""
    design = design_of(problem, learner)
    member = fit(np.arange(len(problem.table)), None)
    if np.unique(hashed(design.matrix)).size * REPEATED <= len(design.matrix):
        scores = member.predict(design.matrix)
    else:
        scores = out_of_fold(lambda rows: fit(rows, member), design.matrix, design.folds, member, usable)
    scorer = Scorer(design.features, member, bounds)
    return OutOfFoldScores(scorer, scorer.bounded(scores))


def label_of(problem: RepairProblem) -> Floats:
    """Return the labels as numbers, shape (n,); DataError where there are none."""
    if problem.table.rows.label is None:
        raise DataError("learning from features needs labels; name the column with `label`")
    return problem.table.rows.label.astype(np.float64)
