"""Learners beyond the two of :mod:`fairfix.models.learners`: by name, by import path, or as an estimator.

A learner is fitted with weights and then kept as a member, without the library that fitted it: the arrays of its trees
or coefficients, else the graph that skl2onnx makes of it. What is kept is held against the estimator on the training
rows, and a learner that cannot be kept to :data:`ALIKE` is refused.

==========================================  ========================================================
estimator                                   is kept as
==========================================  ========================================================
trees, forests, boosting of scikit-learn    arrays of trees, the same numbers up to rounding
LightGBM                                    the same
XGBoost                                     the same, but its sums are of 32 bits there, of 64 here
``coef_`` and ``intercept_``                a linear form, its exponential, sigmoid or softmax
others that skl2onnx converts               a graph of ONNX, which onnxruntime runs
==========================================  ========================================================
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from fairfix.data.codec import shortened
from fairfix.data.counts import Floats, Ints
from fairfix.errors import DataError, UsageError
from fairfix.models.members import ConstantMember, LinearMember, Link, Member, TreesMember
from fairfix.models.onnx_model import onnx_members
from fairfix.models.tree_arrays import of_cart, of_histograms, of_lightgbm, of_xgboost, side_by_side
from fairfix.solvers.linear_losses import standardised
from fairfix.solvers.losses import in_units, name_of, number_of


@runtime_checkable
class Estimator(Protocol):
    """An estimator of scikit-learn: parameters, and a fit that takes weights."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters."""

    def fit(self, X: Any, y: Any) -> Any:
        """Learn."""


Learner = str | Estimator
"""A name, an import path ``package.module:Name``, or an estimator, which is cloned and never fitted itself."""

ALIKE = 1e-5
"""Largest difference of what is kept from the estimator, as a share of the largest prediction or label: sums of 32 bits
differ by less, and a tree that is read wrongly by far more."""

PACKAGES = {"lightgbm": "lightgbm", "xgboost": "xgboost"}
"""Name of a learner -> package that grows it, also the extra that installs it."""

TITLES = {
    "linear": "linear models",
    "trees": "boosted trees",
    "forest": "forests",
    "lightgbm": "LightGBM's trees",
    "xgboost": "XGBoost's trees",
}
"""Learner that is named -> what it makes."""

UNKNOWN_LOSSES = {
    "trees": ("huber",),
    "forest": ("huber", "absolute", "quantile"),
    "xgboost": ("huber",),
}
"""Learner that is named -> losses that it does not minimise.

XGBoost has a smooth relative of Huber's alone, and a forest takes time for the absolute loss that grows with the
square of the rows.
"""

LEAST_LEAF, SHARE_OF_LEAF = 10, 1000
"""Least rows in a leaf of a forest, so that its shares are no zeros and ones; and what part of all they are at least,
so that what is kept of a forest stays below 10 megabytes."""


COMPARED = 4096
"""Number of training rows on which the member is compared with the estimator; one wrong leaf shows in fewer."""

MARGINS = 64
"""Rows from which it is seen where XGBoost's sums begin: their mean is as exact as its numbers of 32 bits are."""


# ---------------------------------------------------------------------- what is a learner


def checked(learner: Any) -> None:
    """Raise a UsageError where a learner is none, or what it needs is not installed."""
    if isinstance(learner, str) and ":" not in learner:
        package = PACKAGES.get(learner)
        if package and find_spec(package) is None:
            raise UsageError(
                f"`learner={learner}` needs the package {package}: pip install 'fairfix[{package}]'"
            )
        return
    made, title = estimator_of(learner), title_of(learner)
    if not weight_name(made):
        raise UsageError(
            f"`learner`: {title} has no sample_weight in its fit, and a repair weights rows; use a learner that has it"
        )
    from sklearn.base import clone

    try:
        hash(learner)
        clone(made)
    except (TypeError, RuntimeError) as error:
        raise UsageError(
            f"`learner`: scikit-learn cannot clone {title}, or it has no hash: {shortened(str(error), 200)}"
        ) from error


def estimator_of(learner: Any) -> Estimator:
    """Return the estimator that is given, or that an import path leads to; UsageError where there is none."""
    made = imported(learner) if isinstance(learner, str) else learner
    if isinstance(made, type):
        raise UsageError(f"`learner`: {made.__name__} is a class; give an estimator of it, {made.__name__}()")
    if not (isinstance(made, Estimator) and hasattr(made, "predict")):
        raise UsageError(
            f"`learner`: {shortened(repr(made))} is not an estimator; it needs the methods get_params, fit and "
            "predict of scikit-learn"
        )
    return made


@cache
def imported(path: str) -> Any:
    """Return the estimator of ``package.module:Name``: an estimator, or what makes one without arguments."""
    module, _, name = path.partition(":")
    try:
        made: Any = import_module(module)
        for part in name.split("."):
            made = getattr(made, part)
        return made() if isinstance(made, type) or not hasattr(made, "fit") else made
    except Exception as error:
        fault = f"{type(error).__name__}: {error}"
        raise UsageError(f"`learner={path}` does not name an estimator: {shortened(fault)}") from error


def weight_name(estimator: Any) -> str:
    """Return what the fit calls weights of rows; of a pipeline, those of its last step. Empty where it takes none."""
    from sklearn.pipeline import Pipeline
    from sklearn.utils.validation import has_fit_parameter

    if isinstance(estimator, Pipeline):
        last, step = estimator.steps[-1]
        inner = weight_name(step)
        return inner and f"{last}__{inner}"
    return "sample_weight" if has_fit_parameter(estimator, "sample_weight") else ""


def title_of(setting: Any) -> Any:
    """Return a parameter as JSON has it: an estimator by its class and the parameters that are not their defaults."""
    if not isinstance(setting, Estimator):
        return setting
    kind = type(setting)
    asked = signature(kind).parameters
    given = {
        name: _plain(own)
        for name, own in sorted(setting.get_params(deep=False).items())
        if not (name in asked and repr(own) == repr(asked[name].default))
        and (name in asked or own is not None)
    }
    listed = ", ".join(f"{name}={own}" for name, own in given.items())
    return f"{kind.__module__.partition('.')[0]}:{kind.__name__}({shortened(listed, 400)})"


def _plain(setting: Any) -> str:
    """Return a parameter without the place in memory that some name."""
    if isinstance(setting, Estimator):
        return str(title_of(setting))
    if isinstance(setting, (list, tuple)):
        return f"[{', '.join(map(_plain, setting))}]"
    plain = setting is None or isinstance(setting, (str, bool, int, float))
    return repr(setting) if plain else type(setting).__name__


def makes(learner: Learner) -> str:
    """Return what a learner makes, as a noun in the plural."""
    return (
        TITLES.get(learner, "")
        if isinstance(learner, str) and learner in TITLES
        else f"fits of {title_of(learner)}"
    )


def sees_gaps(learner: Learner) -> bool:
    """Return whether missing numbers of the matrix are NaN to what is kept of a learner: whether it is of trees."""
    if isinstance(learner, str) and ":" not in learner:
        return learner != "linear"
    return _library(estimator_of(learner)) != ""


def minimises(learner: Learner, loss: str) -> bool:
    """Return whether a learner minimises a loss; what one of the user's own minimises is for the user to say."""
    return not isinstance(learner, str) or name_of(loss) not in UNKNOWN_LOSSES.get(learner, ())


# ---------------------------------------------------------------------- fits


def fit_number(X: Floats, y: Floats, weight: Floats, *, learner: Learner, loss: str, seed: int) -> Member:
    """Return the member for a number ``y``, shape (n,), by a learner of this module.

    The learner sees labels of mean 0 and standard deviation 1 (counts: of mean 1), in any unit the same: XGBoost splits
    for no gain below 1e-6, and a penalty means nothing without a unit.

    Parameters
    ----------
    X, y, weight
        Rows of positive weight: shapes (n, d), with NaN where :func:`sees_gaps`, (n,) and (n,).
    loss
        A name of :mod:`fairfix.solvers.losses`, which a learner that is named minimises; another one minimises its own.
    seed
        Of its chance.

    Raises
    ------
    UsageError
        A learner that gives no number, or that cannot be kept.
    DataError
        A fit that fails, or predictions that the loss does not know.
    """
    y, level, unit = standardised(y, weight, loss)
    loss = in_units(loss, unit)
    estimator = _named(learner, "Regressor", loss, len(y)) if _is_name(learner) else estimator_of(learner)
    if not _is_regressor(estimator):
        raise UsageError(
            f"`learner`: {title_of(learner)} is a classifier, and the repair predicts numbers; give a regressor"
        )
    if y.min() == y.max():  # which not every learner takes, and no loss has a better answer to
        return ConstantMember(level + unit * y[:1])
    links: tuple[Link, ...] = ("identity",)
    if name_of(loss) == "poisson" and learner != "forest":
        links = ("exp",) if _is_name(learner) else ("identity", "exp")
    member = _fitted(estimator, X, y, weight, seed, learner, links)
    if name_of(loss) == "poisson" and not member.predict(X).min() > 0.0:
        raise DataError(
            f"`learner`: {title_of(learner)} predicts means of counts that are not above 0 on the training rows; "
            "use one that keeps them above 0, such as PoissonRegressor"
        )
    return member.rescaled(level, unit)


def fit_chances(
    X: Floats, codes: Ints, weight: Floats, *, learner: Learner, link: Link, many: int, seed: int
) -> Member:
    """Return the member for P(class | row), where all ``many`` classes have rows.

    ``link`` is ``sigmoid`` for the chance of the second of two classes, ``pair`` for both, ``softmax`` for more. A
    regressor learns the share of each class by least squares.
    """
    estimator = (
        _named(learner, "Classifier", "logistic", len(codes)) if _is_name(learner) else estimator_of(learner)
    )
    if classifies(estimator):
        return _fitted(estimator, X, codes, weight, seed, learner, (link, "shares"))
    if link == "sigmoid" or not _is_regressor(estimator):
        raise UsageError(
            f"`learner`: {title_of(learner)} gives no probabilities (predict_proba); give a classifier that does, or, "
            "for fair-regression, a regressor and `loss=square`"
        )
    members = (codes[:, None] == np.arange(many)).T.astype(np.float64)
    each = [_fitted(estimator, X, one, weight, seed, learner, ("identity",)) for one in members]
    return _beside(each, learner)


def classifies(estimator: Any) -> bool:
    """Return whether an estimator gives probabilities of classes."""
    return hasattr(estimator, "predict_proba") and not _is_regressor(estimator)


def _is_regressor(estimator: Any) -> bool:
    """Return whether it says so; one that does not say what it is gives numbers unless it gives probabilities."""
    from sklearn.base import is_classifier, is_regressor

    return is_regressor(estimator) or not (is_classifier(estimator) or hasattr(estimator, "predict_proba"))


def _is_name(learner: Learner) -> bool:
    return isinstance(learner, str) and ":" not in learner


def _named(learner: Any, kind: str, loss: str, rows: int) -> Any:
    """Return the estimator of a learner that is named, for a loss; ``kind`` is Regressor or Classifier."""
    name, settings = name_of(loss), dict[str, Any]()
    number = kind == "Regressor"
    if learner == "forest":
        from sklearn import ensemble

        settings |= {"criterion": "poisson"} if name == "poisson" else {}
        leaf = max(LEAST_LEAF, -(-rows // SHARE_OF_LEAF))
        make = getattr(ensemble, f"RandomForest{kind}")
        return make(min_samples_leaf=leaf, **settings)
    if learner == "lightgbm":
        objectives = {"square": "regression", "absolute": "regression_l1"}
        settings |= {"objective": objectives.get(name, name)} if number else {}
        settings |= {"alpha": number_of(loss)} if name in ("quantile", "huber") else {}
        return getattr(import_module("lightgbm"), f"LGBM{kind}")(**settings)
    objectives = {
        "square": "reg:squarederror",
        "absolute": "reg:absoluteerror",
        "quantile": "reg:quantileerror",
        "poisson": "count:poisson",
    }
    settings |= {"objective": objectives[name]} if number else {}
    settings |= {"quantile_alpha": number_of(loss)} if name == "quantile" else {}
    return getattr(import_module("xgboost"), f"XGB{kind}")(**settings)


def _library(estimator: Any) -> str:
    """Return which trees an estimator is of; empty where it is of none that are known."""
    names = [f"{kind.__module__}.{kind.__name__}" for kind in type(estimator).__mro__]
    for library, beginning in (
        ("histograms", "sklearn.ensemble._hist_gradient_boosting."),
        ("boosting", "sklearn.ensemble._gb.BaseGradientBoosting"),
        ("forest", "sklearn.ensemble._forest.BaseForest"),
        ("tree", "sklearn.tree._classes.BaseDecisionTree"),
        ("lightgbm", "lightgbm.sklearn.LGBMModel"),
        ("xgboost", "xgboost.sklearn.XGBModel"),
    ):
        if any(name.startswith(beginning) for name in names):
            return library
    return ""


def _seeded(estimator: Any, seed: int) -> Any:
    """Return a clone without chance of its own, and with one thread, where its parameters leave that open."""
    from sklearn.base import clone

    made = clone(estimator)
    params = made.get_params()
    library, unset = _library(made), [name for name, setting in params.items() if setting is None]
    closed: dict[str, Any] = {name: seed for name in unset if name.rpartition("__")[2] == "random_state"}
    if library in ("lightgbm", "xgboost"):  # None is all of them there, and one in scikit-learn
        closed |= {name: 1 for name in unset if name == "n_jobs"}
    if library == "lightgbm":  # which else chooses by the clock in which order it adds
        free = not any(params.get(one) for one in ("force_row_wise", "force_col_wise"))
        closed |= {"force_row_wise": True} if free else {}
        closed |= {"verbose": -1} if "verbose" not in params and "verbosity" not in params else {}
    return made.set_params(**closed) if closed else made


def _fitted(
    estimator: Estimator,
    X: Floats,
    y: npt.NDArray[Any],
    weight: Floats,
    seed: int,
    learner: Learner,
    links: tuple[Link, ...],
) -> Member:
    """Return what is kept of a fit; the first of some links that gives what the estimator gives."""
    library, name = _library(estimator), weight_name(estimator)
    X = X if not library or _takes_gaps(estimator, library) else np.nan_to_num(X, nan=0.0)
    empty = np.isnan(X).all(axis=0)
    X = np.where(empty, 0.0, X) if empty.any() else X
    model, compared = _seeded(estimator, seed), X[:COMPARED]
    try:
        # of mean 1, so that leaves of a least weight are the same in any unit of it
        model = model.fit(X, y, **{name: weight / weight.mean()}) or model
        wanted = _given(model, compared, links)
    except Exception as error:  # libraries have errors of their own
        raise DataError(
            f"`learner`: the fit of {title_of(learner)} failed: {shortened(str(error), 200)}"
        ) from error
    if not np.isfinite(wanted).all():
        raise DataError(
            f"`learner`: {title_of(learner)} predicts a value that is not a number on the training rows"
        )
    scale = max(
        float(np.abs(wanted).max()), float(np.abs(y).max()) if links[0] in ("identity", "exp") else 0.0
    )
    for member in _candidates(model, library, X, y, links):
        kept = member.predict(compared)
        if kept.shape == wanted.shape and np.abs(kept - wanted).max() <= ALIKE * scale:
            return member
    raise UsageError(
        f"`learner`: {title_of(learner)} cannot be stored as data: {_why_not(library)}; use another learner, or repair "
        "its scores, with `model` or `score`"
    )


def _why_not(library: str) -> str:
    if library:
        return (
            "its trees have unsupported parts, such as splits by category, linear leaves, another "
            "code for missing values or another output"
        )
    if missing := [one for one in ("skl2onnx", "onnxruntime") if find_spec(one) is None]:
        return f"it needs {' and '.join(missing)} for conversion to ONNX: pip install 'fairfix[learners]'"
    return "skl2onnx cannot convert it to a graph that predicts the same"


def _takes_gaps(estimator: Any, library: str) -> bool:
    from sklearn.utils import get_tags

    return library in ("lightgbm", "xgboost") or bool(get_tags(estimator).input_tags.allow_nan)


def _given(model: Any, X: Floats, links: tuple[Link, ...]) -> Floats:
    """Return what a fitted estimator gives rows, shape (n,) or (n, K)."""
    with warnings.catch_warnings():
        # LightGBM before 4.7 gives columns names of its own, which scikit-learn then misses
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        given = model.predict_proba(X) if classifies(model) else model.predict(X)
    if not classifies(model):
        return np.asarray(given, dtype=np.float64).reshape(len(X))
    shares = np.asarray(given, dtype=np.float64)
    return shares[:, 1] if links[0] == "sigmoid" else shares


def _candidates(model: Any, library: str, X: Floats, y: Ints, links: tuple[Link, ...]) -> Iterator[Member]:
    """Yield candidates for the member of a fitted model, the most probable first."""
    first = X[:MARGINS]
    match library:
        case "histograms":
            if getattr(model, "is_categorical_", None) is None:
                yield from (of_histograms(model, link) for link in links)
        case "boosting" | "forest" | "tree":
            yield from _of_scikit_learn(model, library, X, links)
        case "lightgbm":
            yield from of_lightgbm(model.booster_.model_to_string(), links)
        case "xgboost":
            margin = np.asarray(model.predict(first, output_margin=True))
            yield from of_xgboost(model.get_booster(), first, margin, links)
        case _:
            yield from _linear_forms(model, X.shape[1], links)
            chance = links[0] == "sigmoid"
            yield from onnx_members(model, X, classes=classifies(model), chance=chance)


def _of_scikit_learn(model: Any, library: str, X: Floats, links: tuple[Link, ...]) -> Iterator[Member]:
    """Yield the arrays of single trees, forests and gradient boosting, with each of some links."""
    gaps, grown = np.asarray(np.isnan(X).any(axis=0)), list[tuple[Any, int | None]]()
    if library == "boosting":
        grown = [(one.tree_, k) for stage in model.estimators_ for k, one in enumerate(stage)]
        raw = model.decision_function(X) if classifies(model) else model.predict(X)
        weights, start = np.full(len(grown), model.learning_rate), np.zeros(model.estimators_.shape[1])
        plain = of_cart(grown, weights, start, gaps, "identity")
        start = (np.asarray(raw).reshape(len(X), -1) - plain.sums(X)).mean(axis=0)
    else:
        each = [model] if library == "tree" else model.estimators_
        grown = [(one.tree_, None) for one in each]
        weights = np.full(len(grown), 1.0 / len(grown))
        start = np.zeros(len(model.classes_) if classifies(model) and links[0] != "sigmoid" else 1)
        links = ("shares",) if classifies(model) else links
    yield from (of_cart(grown, weights, start, gaps, link) for link in links)


def _linear_forms(model: Any, width: int, links: tuple[Link, ...]) -> Iterator[Member]:
    """Yield the forms of coefficients, with each of some links."""
    coef, intercept = getattr(model, "coef_", None), getattr(model, "intercept_", 0.0)
    if not (isinstance(coef, np.ndarray) and coef.ndim in (1, 2) and coef.shape[-1] == width):
        return
    forms = np.ascontiguousarray(np.atleast_2d(coef).T, dtype=np.float64)
    if np.size(intercept) in (1, forms.shape[1]):
        starts = np.broadcast_to(np.ravel(intercept), forms.shape[1:]).astype(np.float64)
        yield from (
            LinearMember(forms, starts, link) for link in links if forms.shape[1] == 1 or link == "softmax"
        )


def _beside(each: list[Member], learner: Learner) -> Member:
    """Return the member of shares that were learned one by one."""
    trees = [one for one in each if isinstance(one, TreesMember)]
    forms = [one for one in each if isinstance(one, LinearMember)]
    if len(forms) == len(each):
        coef, intercept = [one.coef for one in forms], [one.intercept for one in forms]
        return LinearMember(np.concatenate(coef, axis=1), np.concatenate(intercept), "shares")
    if len(trees) == len(each):
        return side_by_side(trees)
    raise UsageError(
        f"`learner`: {title_of(learner)} is a regressor that is stored as a graph, and the plug-in needs probabilities "
        "of groups too; use `solver=reduction`, or a regressor of trees or with coefficients"
    )
