r"""The scikit-learn adapter: a classifier whose decisions are repaired, for those who live in pipelines.

:class:`RepairedClassifier` wraps a classifier. Its fit takes four steps:

1. the group of every row, from columns of ``X``, from a function of ``X``, or beside ``X``;
2. out-of-fold probabilities of the training rows, since a model looks too sure of rows it has learned;
3. a method of :func:`fairfix.methods`, fitted on these probabilities, groups and labels;
4. the wrapped classifier, fitted on all rows; its probabilities are what the repaired rule is applied to.

For a new row with probability ``s`` and group ``k`` the repaired rule gives

.. math:: p = P(\text{decision} = \text{positive} \mid s, k),

which ``predict_proba`` returns, while ``predict`` draws the decision by a keyed hash of the row's own values. Equal
rows are told apart by their order (:mod:`fairfix.data.draws`). A method that repairs values gives the repaired
probability of the *label* instead: ``predict_proba`` returns it, and ``predict`` is positive from one half on.

``import fairfix`` does not load this module, which needs scikit-learn 1.6 or newer.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.metrics import accuracy_score
from sklearn.model_selection import StratifiedKFold, check_cv
from sklearn.utils import Bunch, _safe_indexing, check_random_state, get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import (
    _check_method_params,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    has_fit_parameter,
    validate_data,
)

from fairfix.data.counts import Floats, Ints
from fairfix.data.draws import decide, draws_of, identity_of, is_random
from fairfix.data.files import open_source
from fairfix.data.reading import Columns, Reading
from fairfix.data.scan import bands_of_groups
from fairfix.data.table import Table, assemble
from fairfix.errors import DataError, FairfixWarning, UsageError
from fairfix.methods import available
from fairfix.methods.base import Repairer, RepairProblem
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.repaired import hash_key
from fairfix.models.trace import FitTrace
from fairfix.noisy.description import Noise, NoiseTable, read_noise

__all__ = ["InputError", "RepairedClassifier", "SettingError"]

Protected = str | int | Sequence[str] | Sequence[int] | Callable[[Any], Any] | None

LABEL, SCORE, WEIGHT = "y", "predict_proba", "sample_weight"
"""Columns of the table, named as scikit-learn names what they hold, since messages name them."""

THRESHOLD = 0.5
"""Where the base decision turns positive, for groups that the fit has not seen."""

NESTED = "parameters__"
"""What the name of a method's parameter begins with in ``set_params`` and in grids."""


class InputError(DataError, ValueError):
    """A :class:`~fairfix.errors.DataError` that is also what scikit-learn expects of bad input."""


class SettingError(UsageError, ValueError):
    """A :class:`~fairfix.errors.UsageError` that is also what scikit-learn expects of a bad parameter."""


@dataclass(frozen=True)
class GroupLabels:
    """Group labels of rows by column, as text, None where missing; ``named``: under names that the data have."""

    names: tuple[str, ...]
    columns: tuple[npt.NDArray[np.object_], ...]
    named: bool

    def __len__(self) -> int:
        return self.columns[0].size if self.columns else 0

    @property
    def texts(self) -> dict[str, pa.Array]:
        """The labels by column."""
        return {name: pa.array(one, pa.string()) for name, one in zip(self.names, self.columns, strict=True)}


class RepairedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]  # untyped bases
    """A binary classifier with repaired decisions.

    Parameters
    ----------
    estimator
        Classifier with ``predict_proba``. Its probabilities should be calibrated; wrap one that has only a
        ``decision_function`` in :class:`sklearn.calibration.CalibratedClassifierCV`.
    protected
        Which groups are to be treated alike: column names, or positions of columns, of ``X``; or a function
        of ``X`` that returns group labels of shape (n,) or (n, m). None: ``fit`` and the prediction methods
        are given ``protected=`` beside ``X``. Groups are the cells of all columns.
    method
        Name of a method in :func:`fairfix.methods`.
    parameters
        The method's parameters by name. Each is also reached as ``parameters__NAME`` in ``set_params``.
    cv
        Folds of the out-of-fold probabilities: a number of stratified, shuffled folds, a splitter or an
        iterable of splits. ``"prefit"``: ``estimator`` is fitted already and is used as it is, and the repair
        uses its probabilities of all rows given to ``fit``, which it should not have learned from.
    drop_protected
        Whether the estimator gets ``X`` without the protected columns. Only columns that ``protected`` names
        can be left out.
    pos_label
        The class that a positive decision means; None for ``classes_[1]``.
    unseen_group
        For rows of a group that ``fit`` has not seen: ``"error"``, or ``"base"``, the base decision at
        probability one half.
    random_state
        Of the folds, the fit of the repair and the key by which decisions are drawn. The estimator has its own.
    n_jobs
        Folds fitted at a time, as in :class:`joblib.Parallel`.
    noise
        How the protected groups of ``X`` differ from the true ones, for a method that knows noise: a data frame
        with the columns ``true``, ``noisy``, ``label`` (optional) and ``count`` or ``probability``, the path of
        such a file, a :class:`~fairfix.noisy.description.NoiseTable`, or a :class:`~fairfix.noisy.description.Noise`,
        which also says what of the table holds for ``X``, and what is assumed of the noise.
    bands
        Where groups of a protected column of numbers begin, as for :func:`fairfix.audit`: ``{"age": [25, 40, 60]}``.

    Attributes
    ----------
    classes_
        The two labels, sorted, shape (2,).
    estimator_
        The classifier, fitted on all rows; with ``cv="prefit"`` the one that was given.
    predictor_
        The repaired rule, a :class:`~fairfix.models.predictors.RepairedPredictor`.
    trace_
        How its fit went.
    protected_names_, bands_
        Names of the protected columns, and by name the numbers at which its groups begin, if any.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn, protected columns included.
    """

    def __init__(
        self,
        estimator: Any,
        protected: Protected = None,
        *,
        method: str = "ramp",
        parameters: Mapping[str, Any] | None = None,
        cv: Any = 5,
        drop_protected: bool = True,
        pos_label: Any = None,
        unseen_group: str = "error",
        random_state: Any = 0,
        n_jobs: int | None = None,
        noise: Any = None,
        bands: Any = None,
    ) -> None:
        self.estimator = estimator
        self.protected = protected
        self.method = method
        self.parameters = parameters
        self.cv = cv
        self.drop_protected = drop_protected
        self.pos_label = pos_label
        self.unseen_group = unseen_group
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.noise = noise
        self.bands = bands

    # ------------------------------------------------------------------ parameters

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; ``deep`` adds ``estimator__NAME`` and the given ``parameters__NAME``."""
        params: dict[str, Any] = super().get_params(deep)
        if deep and isinstance(self.parameters, Mapping):
            params |= {f"{NESTED}{name}": value for name, value in self.parameters.items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters, ``parameters__NAME`` of the method included; ``fit`` checks the latter."""
        nested = {
            name.removeprefix(NESTED): params.pop(name) for name in [*params] if name.startswith(NESTED)
        }
        super().set_params(**params)
        if nested:
            self.parameters = {**(self.parameters or {}), **nested}
        return self

    def _repairer(self) -> Repairer:
        """Return the method with its parameters, checked; check the other settings too."""
        if isinstance(self.cv, str) and not self._prefit:
            raise SettingError(f"cv must be a number, a splitter or 'prefit', got {self.cv!r}")
        if self.unseen_group not in ("error", "base"):
            raise SettingError(f"unseen_group must be 'error' or 'base', got {self.unseen_group!r}")
        methods = available()
        if self.method not in methods:
            raise SettingError(f"method must be one of {', '.join(methods)}, got {self.method!r}")
        if not isinstance(self.parameters, Mapping | None):
            raise SettingError(f"parameters must be a dictionary or None, got {self.parameters!r}")
        names = [name for name, _ in methods[self.method].rules()]
        for name in self.parameters or {}:
            if name not in names:
                raise SettingError(f"{self.method} has no parameter {name!r}; it has {', '.join(names)}")
        return methods[self.method](**(self.parameters or {}))

    def get_metadata_routing(self) -> MetadataRouter:
        """Return who may ask for what is given to ``fit``: this object, the estimator, the splitter."""
        router = MetadataRouter(owner=self).add_self_request(self)
        fit = MethodMapping().add(caller="fit", callee="fit")
        router.add(estimator=self.estimator, method_mapping=fit)
        if hasattr(self.cv, "get_metadata_routing"):
            router.add(splitter=self.cv, method_mapping=MethodMapping().add(caller="fit", callee="split"))
        return router

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "predictor_")

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = inner.input_tags.sparse
        tags.input_tags.allow_nan = inner.input_tags.allow_nan
        return tags

    # ------------------------------------------------------------------ fit

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, protected: Any = None, **fit_params: Any
    ) -> Self:
        """Fit the estimator and the repair of its decisions to rows ``X`` with labels ``y`` of two classes, shape (n,).

        ``sample_weight``, shape (n,), is for the repair, and for the estimator if it takes weights. ``protected`` are
        group labels beside ``X``, shape (n,) or (n, m), where the parameter ``protected`` is None. ``fit_params`` are
        for the estimator's ``fit``; those with n rows are divided among the folds. Raises InputError for groups, labels
        or weights that cannot carry the repair, and SettingError for parameters; both are ValueErrors.
        """
        self.__dict__.pop("predictor_", None)  # a fit that fails leaves nothing fitted
        X, y = indexable(X, y)
        label = self._fit_classes(y)
        validate_data(self, X, skip_check_array=True)
        with _value_errors():
            repairer = self._repairer()
            self._check_source(protected)
            weight = _weights(sample_weight, label.size)
            routed = self._routed(weight, protected, fit_params)
            seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
            features, labels = self._features(X), column_or_1d(y)
            self.estimator_ = self._fit_estimator(features, labels, routed.estimator.fit)
            groups = self._fit_groups(X, protected)
            check_consistent_length(X, groups)
            score = self._fit_scores(features, labels, routed, seed)
            self.bands_ = bands_of_groups(pa.table(groups.texts), self.bands)
            table = _table(groups, score, self.bands_, label=label, weight=weight)
            problem = RepairProblem(table, noise=self._noise(), seen_by_model=self._seen(groups))
            predictor = repairer.fit(problem, rng=np.random.default_rng(seed))
        self.predictor_: RepairedPredictor = predictor
        self._key = hash_key(seed, "scikit-learn")
        return self

    def _fit_classes(self, y: Any) -> Ints:
        """Set ``classes_``; return 1 where the label is the positive class, shape (n,)."""
        kind = type_of_target(y, input_name="y", raise_unknown=True)
        if kind != "binary":
            raise InputError(f"Only binary classification is supported. The type of the target is {kind}.")
        labels = column_or_1d(y, warn=True)
        self.classes_, code = np.unique(labels, return_inverse=True)
        if self.classes_.size < 2:
            raise InputError(f"y has only one class or none: {self.classes_.tolist()}; a repair needs two")
        positive = np.flatnonzero(
            self.classes_ == (self.classes_[1] if self.pos_label is None else self.pos_label)
        )
        if not positive.size:
            raise SettingError(
                f"pos_label={self.pos_label!r} is no class of y, which has {self.classes_.tolist()}"
            )
        self._positive = int(positive[0])
        return np.asarray(code == self._positive, dtype=np.int64)

    def _fit_groups(self, X: Any, protected: Any) -> GroupLabels:
        """Set ``protected_names_``; return the group labels, none of them missing."""
        groups = self._groups(X, protected)
        for name, column in zip(groups.names, groups.columns, strict=True):
            missing = int(np.count_nonzero(pd.isna(column)))
            if missing:
                raise InputError(
                    f"missing group ({name}) in {missing:,} of {len(groups):,} rows; fill them, with a group "
                    "of their own if need be, or leave these rows out"
                )
        self.protected_names_, self._named = groups.names, groups.named
        return groups

    def _noise(self) -> Noise | None:
        """Return the description of the noise, read and checked."""
        if self.noise is None or isinstance(self.noise, Noise):
            return self.noise
        return Noise(
            self.noise if isinstance(self.noise, NoiseTable) else read_noise(open_source(self.noise))
        )

    def _seen(self, groups: GroupLabels) -> tuple[str, ...]:
        """Return the protected columns that the estimator sees among its features."""
        named = self.protected is not None and not callable(self.protected)
        return groups.names if named and not self.drop_protected else ()

    def _routed(self, sample_weight: Any, protected: Any, fit_params: dict[str, Any]) -> Any:
        """Return the parameters of the estimator's ``fit`` and of the splitter's ``split``."""
        if self._prefit:
            if fit_params:
                raise SettingError(f"cv='prefit' fits no estimator, so {', '.join(fit_params)} has no use")
        elif get_config()["enable_metadata_routing"]:
            given = {"sample_weight": sample_weight, "protected": protected, **fit_params}
            return process_routing(self, "fit", **{k: v for k, v in given.items() if v is not None})
        elif sample_weight is not None:
            if has_fit_parameter(self.estimator, "sample_weight"):
                fit_params = {**fit_params, "sample_weight": sample_weight}
            elif not fit_params:  # else a pipeline's weights may be among them, under the name of a step
                unweighted = FairfixWarning(
                    f"{type(self.estimator).__name__}.fit takes no sample_weight, so only the repair is weighted; "
                    "give a pipeline's weights as STEP__sample_weight too, or enable metadata routing",
                    "unweighted",
                )
                warnings.warn(unweighted, stacklevel=3)
        return Bunch(estimator=Bunch(fit=fit_params))

    @property
    def _prefit(self) -> bool:
        return isinstance(self.cv, str) and self.cv == "prefit"

    def _fit_estimator(self, X: Any, y: npt.NDArray[Any], params: Mapping[str, Any]) -> Any:
        """Return the classifier fitted on all rows, which checks ``X`` too."""
        if not hasattr(self.estimator, "predict_proba"):
            raise SettingError(
                f"{type(self.estimator).__name__} has no predict_proba, and a repair needs probabilities; wrap it "
                "in sklearn.calibration.CalibratedClassifierCV"
            )
        if not self._prefit:
            return clone(self.estimator).fit(X, y, **params)
        check_is_fitted(self.estimator)
        return self.estimator

    def _fit_scores(self, X: Any, y: npt.NDArray[Any], routed: Any, seed: int) -> Floats:
        """Return P(positive class), but for ``"prefit"`` by models that have not learned from the row."""
        if self._prefit:
            return self._score(self.estimator_, X)
        split_params = routed.get("splitter", {}).get("split", {})
        splitter = check_cv(self.cv, y, classifier=True)
        if isinstance(self.cv, Integral):
            splitter = StratifiedKFold(int(self.cv), shuffle=True, random_state=seed)
        splits = list(splitter.split(X, y, **split_params))
        tested = np.concatenate([test for _, test in splits])
        if not np.array_equal(np.sort(tested), np.arange(y.size)):
            raise InputError("cv must put every row into exactly one test part, as KFold does")
        models = Parallel(n_jobs=self.n_jobs)(
            delayed(_fitted)(self.estimator, X, y, train, routed.estimator.fit) for train, _ in splits
        )
        score = np.empty(y.size)
        for model, (_, test) in zip(models, splits, strict=True):
            score[test] = self._score(model, _safe_indexing(X, test))
        return score

    def _score(self, model: Any, X: Any) -> Floats:
        """Return a fitted classifier's P(positive class), shape (n,)."""
        if not np.array_equal(model.classes_, self.classes_):
            raise InputError(
                f"the estimator knows the classes {list(model.classes_)}, but y has {self.classes_.tolist()}"
            )
        return np.asarray(model.predict_proba(X)[:, self._positive], dtype=np.float64)

    # ------------------------------------------------------------------ prediction

    @property
    def trace_(self) -> FitTrace:
        """How the fit of the repair went."""
        return self.predictor_.trace

    def predict_proba(self, X: Any, protected: Any = None) -> Floats:
        """Return the probability of each *decision*, shape (n, 2), in the order of ``classes_``.

        It is that of the repaired rule, exactly: 0 or 1 wherever nothing is drawn. For the probability of the
        *label* ask ``estimator_``. A method that repairs values gives the repaired probability of the label. Raises
        InputError where a group was not there in the fit and ``unseen_group`` is ``"error"``.
        """
        chance, _, _ = self._chance(X, protected)
        return np.column_stack([chance, 1.0 - chance] if self._positive == 0 else [1.0 - chance, chance])

    def predict(self, X: Any, protected: Any = None) -> npt.NDArray[Any]:
        """Return the decision of each row, a class, shape (n,), whatever rows are beside it.

        Equal rows are told apart by their order, so that a share of them is decided as the probability says.
        """
        chance, features, groups = self._chance(X, protected)
        if self.predictor_.gives == "value":
            chance = (chance >= THRESHOLD).astype(np.float64)
        drawn = np.flatnonzero(is_random(chance))
        decision = decide(chance, _identities(features, groups, drawn), self._key, {})
        decided: npt.NDArray[Any] = self.classes_[np.where(decision == 1, self._positive, 1 - self._positive)]
        return decided

    def score(self, X: Any, y: Any, sample_weight: Any = None, protected: Any = None) -> float:
        """Return the accuracy of the drawn decisions."""
        return float(accuracy_score(y, self.predict(X, protected), sample_weight=sample_weight))

    def _chance(self, X: Any, protected: Any) -> tuple[Floats, Any, GroupLabels]:
        """Return P(decision = positive), what the estimator sees of ``X``, and the groups."""
        check_is_fitted(self)
        self._check_source(protected)
        (X,) = indexable(X)
        if hasattr(self, "n_features_in_") and np.ndim(X) == 1:
            raise InputError(
                "Expected 2D array, got 1D array instead. Reshape your data: X.reshape(1, -1) if it is one row"
            )
        validate_data(self, X, skip_check_array=True, reset=False)
        with _value_errors():
            features = self._features(X)
            score = self._score(self.estimator_, features)
            groups = self._named_as_in_fit(self._groups(X, protected))
            check_consistent_length(score, groups)
            key = self._key
            table = replace(
                _table(groups, score, self.bands_),
                draw=lambda rows: draws_of(_identities(features, groups, rows), key, {}),
            )
            return self._with_unseen(self.predictor_.predict(table), table), features, groups

    def _named_as_in_fit(self, groups: GroupLabels) -> GroupLabels:
        """Return the groups under the names of the fit; where both have names of their own, they must be the same."""
        names = self.protected_names_
        if len(groups.names) != len(names) or (groups.named and self._named and groups.names != names):
            raise InputError(
                f"the groups are {', '.join(groups.names)}, but the fit had {', '.join(names)}, in that order"
            )
        return replace(groups, names=names)

    def _with_unseen(self, chance: Floats, table: Table) -> Floats:
        """Return the probabilities with those of unseen groups replaced as ``unseen_group`` says."""
        unseen = np.isnan(chance)
        if not unseen.any():
            return chance
        if self.unseen_group == "base":
            return np.where(unseen, table.probability >= THRESHOLD, chance)
        groups = table.groups()
        name = groups.names[int(groups.codes[int(np.argmax(unseen))])]
        raise InputError(
            f"group {name!r} of {' x '.join(groups.columns)!r} was not there in the fit ({int(unseen.sum()):,} "
            f"of {len(table):,} rows); fit with such rows, or set unseen_group='base' for the base decision"
        )

    # ------------------------------------------------------------------ groups and features

    def _check_source(self, beside: Any) -> None:
        if (self.protected is None) == (beside is None):
            raise InputError(
                "groups are needed once: name columns or a function in the parameter protected, or give "
                "protected= beside X" + ("" if beside is None else ", not both")
            )

    def _groups(self, X: Any, beside: Any) -> GroupLabels:
        """Return the group labels, from where this object has them."""
        if self.protected is None:
            return _group_labels(beside)
        if callable(self.protected):
            return _group_labels(self.protected(X))
        at = _positions(X, self.protected)
        labels = _group_labels(_columns(X, at))
        return labels if labels.named else replace(labels, names=tuple(f"x{i}" for i in at))

    def _features(self, X: Any) -> Any:
        """Return what the estimator sees of ``X``."""
        if self.protected is None or callable(self.protected) or not self.drop_protected:
            return X
        hidden = _positions(X, self.protected)
        return _columns(X, [i for i in range(self.n_features_in_) if i not in hidden])


@contextmanager
def _value_errors() -> Iterator[None]:
    """Turn what fairfix says no with into errors that are ValueErrors too."""
    try:
        yield
    except (DataError, UsageError) as error:
        if isinstance(error, ValueError):
            raise
        kind = InputError if isinstance(error, DataError) else SettingError
        raise kind(str(error)) from error


def _fitted(estimator: Any, X: Any, y: npt.NDArray[Any], rows: Ints, params: Mapping[str, Any]) -> Any:
    """Return a clone fitted to the given rows; parameters with a value per row are cut alike."""
    return clone(estimator).fit(_safe_indexing(X, rows), y[rows], **_check_method_params(X, params, rows))


def _weights(sample_weight: Any, rows: int) -> Floats | None:
    if sample_weight is None:
        return None
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (rows,):
        raise InputError(f"sample_weight has the shape {weight.shape}, but X has {rows:,} rows")
    return weight


def _positions(X: Any, protected: Any) -> list[int]:
    """Return the positions of the protected columns in ``X``."""
    wanted = [protected] if isinstance(protected, str | Integral) else list(protected)
    if not wanted:
        raise SettingError("protected names no column; name one, or a function of X")
    names = list(getattr(X, "columns", []))
    width = len(names) or np.shape(X)[1]
    positions = []
    for one in wanted:
        if isinstance(one, str) and one in names:
            positions.append(names.index(one))
        elif isinstance(one, Integral) and -width <= int(one) < width:
            positions.append(int(one) % width)
        else:
            has = f"columns {', '.join(map(str, names))}" if names else f"{width} columns without names"
            raise InputError(f"protected names the column {one!r}, but X has {has}")
    return positions


def _columns(X: Any, at: list[int]) -> Any:
    """Return some columns of ``X``, by position."""
    return _safe_indexing(np.asarray(X) if isinstance(X, list | tuple) else X, at, axis=1)


def _group_labels(groups: Any) -> GroupLabels:
    """Return group labels of shape (n,) or (n, m) as text.

    Whole numbers have one text in every type (1, 1.0), so an integer column that became a float one, since
    values are missing in a batch, still names the same groups.
    """
    named = isinstance(groups, pd.DataFrame) or (isinstance(groups, pd.Series) and groups.name is not None)
    frame = pd.DataFrame(groups) if named else pd.DataFrame(np.asarray(_dense(groups), dtype=object))
    columns = []
    for i in range(frame.shape[1]):
        code, levels = pd.factorize(frame.iloc[:, i])
        texts = [identity_of((_plain(level),)).decode("utf-8", "replace") for level in levels]
        columns.append(np.array([*texts, None], dtype=object)[code])  # a missing value has the code -1
    names = tuple(map(str, frame.columns))
    if not named:
        names = ("protected",) if len(columns) == 1 else tuple(f"protected_{i}" for i in range(len(columns)))
    return GroupLabels(names, tuple(columns), named)


def _dense(matrix: Any) -> Any:
    """Return a sparse matrix as an array; anything else as it is."""
    return matrix.toarray() if hasattr(matrix, "toarray") else matrix


def _plain(value: Any) -> Any:
    """Return a numpy scalar as the Python value it holds; any other value as it is."""
    return value.item() if isinstance(value, np.generic) else value


def _table(
    groups: GroupLabels, score: Floats, bands: Any, *, label: Ints | None = None, weight: Floats | None = None
) -> Table:
    """Return the validated table of groups and probabilities, with labels and weights at the fit."""
    beside = {SCORE: score, LABEL: label, WEIGHT: weight}
    columns = groups.texts | {name: pa.array(column) for name, column in beside.items() if column is not None}
    roles = Columns(
        groups.names,
        label=None if label is None else LABEL,
        score=SCORE,
        weight=None if weight is None else WEIGHT,
    )
    reading = Reading(roles, thresholds=(THRESHOLD,), missing_group="group", bands=bands)
    reading.check()
    return assemble([pa.RecordBatch.from_pydict(columns)], reading)


def _identities(features: Any, groups: GroupLabels, rows: Ints) -> Iterator[bytes]:
    """Yield the identity of each of the given rows: its values as the estimator sees them, then its groups."""
    if not rows.size:
        return
    cells = np.asarray(_dense(_safe_indexing(features, rows)), dtype=np.object_).reshape(rows.size, -1)
    levels = zip(*(texts[rows] for texts in groups.columns), strict=True)
    for row, gaps, group in zip(cells.tolist(), pd.isna(cells).tolist(), levels, strict=True):
        yield identity_of(
            [*(None if gap else _plain(cell) for cell, gap in zip(row, gaps, strict=True)), *group]
        )
