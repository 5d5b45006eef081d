"""Base of the repaired scikit-learn estimators: parameters, groups, out-of-fold scores, the fit of the rule."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from sklearn import get_config
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.model_selection import check_cv
from sklearn.utils import Bunch, _safe_indexing, check_random_state, get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    has_fit_parameter,
    validate_data,
)

from fairfix.data.counts import Floats
from fairfix.data.data_spec import DataSpec
from fairfix.data.names import did_you_mean
from fairfix.data.row_hash import draws_of
from fairfix.data.scan import bands_of_groups
from fairfix.data.table import Table
from fairfix.data.workers import started_safely
from fairfix.errors import FairfixWarning
from fairfix.methods import available
from fairfix.methods.base import Repairer
from fairfix.methods.problem import RepairProblem
from fairfix.models.predictors import RepairedPredictor, unseen_group
from fairfix.models.repaired import hash_key
from fairfix.models.trace import FitTrace
from fairfix.noise.description import Noise
from fairfix.sklearn.rows import (
    GroupLabels,
    InputError,
    SettingError,
    columns_at,
    fitted,
    group_labels,
    identities,
    positions_of,
    table_of,
    value_errors,
    weights_of,
)

Protected = str | int | Sequence[str] | Sequence[int] | Callable[[Any], Any] | None


class RepairedEstimator(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]  # untyped bases
    """An estimator whose scores are repaired; a subclass says what its scores are."""

    data_spec: ClassVar[DataSpec]
    """Specification of labels and scores; the score's column has the name of what makes it."""
    folds: ClassVar[Any]
    """The splitter that a number of folds stands for."""

    estimator: Any
    protected: Protected
    method: str
    cv: Any
    drop_protected: bool
    unseen: str
    random_state: Any
    n_jobs: int | None
    bands: Any

    # ------------------------------------------------------------------ what a subclass says

    @abstractmethod
    def _fit_labels(self, y: Any) -> npt.NDArray[Any]:
        """Check labels; return them as the repair takes them, shape (n,)."""

    @abstractmethod
    def _check_estimator(self) -> None:
        """Raise a SettingError where the estimator makes no scores."""

    @abstractmethod
    def _score(self, model: Any, X: Any) -> Floats:
        """Return the scores of a fitted model, shape (n,)."""

    @abstractmethod
    def _unrepaired(self, table: Table) -> Floats:
        """Return the predictions for rows of groups that were not in the training rows, where these are accepted."""

    _usual: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Method -> parameters with another default here than on the command line."""

    def _noise(self) -> Noise | None:
        """Return the description of the noise of groups, if any."""
        return None

    # ------------------------------------------------------------------ parameters

    _own: Mapping[str, Any] = MappingProxyType({})
    """Parameters of the method; ``fit`` checks that the method has them."""

    def __getattr__(self, name: str) -> Any:
        """Return a parameter of the method."""
        own = self.__dict__.get("_own", {})
        if name not in own:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return own[name]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, with those of the method that are given; ``deep`` adds those of estimators."""
        params: dict[str, Any] = super().get_params(deep)
        for name, value in self._own.items():
            params[name] = value
            if deep and hasattr(value, "get_params") and not isinstance(value, type):
                params |= {f"{name}__{key}": one for key, one in value.get_params().items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters, also those of the method; there, None is the method's default."""
        fixed = super().get_params(deep=False)
        self._own = {
            **self._own,
            **{name: params.pop(name) for name in [*params] if name not in fixed and "__" not in name},
        }
        super().set_params(**params)
        return self

    def _repairer(self) -> Repairer:
        """Return the method with its parameters, checked; check the other settings too."""
        if isinstance(self.cv, str) and not self._prefit:
            raise SettingError(f"cv must be a number, a splitter or 'prefit', got {self.cv!r}")
        if self.unseen not in ("error", "original"):
            raise SettingError(f"unseen must be 'error' or 'original', got {self.unseen!r}")
        methods = available()
        if self.method not in methods:
            raise SettingError(f"method must be one of {', '.join(methods)}, got {self.method!r}")
        names = list(methods[self.method].domains())
        given = {name: value for name, value in self._own.items() if value is not None}
        for name in given:
            if name not in names:
                hint = did_you_mean(name, names) or f"; it has {', '.join(names)}"
                raise SettingError(f"{self.method} has no parameter {name!r}{hint}")
        return methods[self.method](**{**self._usual.get(self.method, {}), **given})

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
        tags.input_tags.sparse = inner.input_tags.sparse
        tags.input_tags.allow_nan = inner.input_tags.allow_nan
        return tags

    # ------------------------------------------------------------------ fit

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, protected: Any = None, **fit_params: Any
    ) -> Self:
        """Fit the estimator and the repair of what it predicts to rows ``X`` with labels ``y``, shape (n,).

        ``sample_weight``, shape (n,), is for the repair, and for the estimator if it takes weights. ``protected`` are
        the groups of the rows, shape (n,) or (n, m), where the parameter ``protected`` is None. ``fit_params`` are for
        the estimator's ``fit``; those with n rows are divided among the folds. Raises InputError for groups, labels or
        weights that cannot carry the repair, and SettingError for parameters; both are ValueErrors.
        """
        self.__dict__.pop("predictor_", None)  # a fit that fails leaves nothing fitted
        X, y = indexable(X, y)
        label = self._fit_labels(y)
        validate_data(self, X, skip_check_array=True)
        with value_errors():
            repairer = self._repairer()
            self._check_source(protected)
            weight = weights_of(sample_weight, label.size)
            routed = self._routed(weight, protected, fit_params)
            seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
            self._check_estimator()
            features, labels = self._features(X), column_or_1d(y)
            self.estimator_ = self._fit_estimator(features, labels, routed.estimator.fit)
            groups = self._fit_groups(X, protected)
            check_consistent_length(X, groups)
            score = self._fit_scores(features, labels, routed, seed)
            self.bands_ = bands_of_groups(pa.table(groups.texts), self.bands)
            table = self._table(groups, score, label=label, weight=weight)
            problem = RepairProblem(
                table,
                noise=self._noise(),
                seen_by_model=self._seen(groups),
                protected_as_feature=repairer.protected_as_feature,
            )
            predictor = repairer.fit(problem, rng=np.random.default_rng(seed))
        self.predictor_: RepairedPredictor = replace(predictor, trace=predictor.trace.without_rows())
        self._key = hash_key(seed, "scikit-learn")
        return self

    def _table(self, groups: GroupLabels, score: Floats, **beside: Any) -> Table:
        return table_of(groups, score, data_spec=replace(self.data_spec, bands=self.bands_), **beside)

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

    def _seen(self, groups: GroupLabels) -> tuple[str, ...]:
        """Return the protected columns that the estimator sees among its features."""
        named = self.protected is not None and not callable(self.protected)
        return groups.names if named and not self.drop_protected else ()

    def _routed(self, sample_weight: Any, protected: Any, fit_params: dict[str, Any]) -> Any:
        """Return the parameters of the estimator's ``fit`` and of the splitter's ``split``."""
        if self._prefit:
            if fit_params:
                raise SettingError(f"cv='prefit' fits no estimator, so {', '.join(fit_params)} has no effect")
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
        """Return the estimator fitted on all rows, which checks ``X`` too."""
        if not self._prefit:
            return clone(self.estimator).fit(X, y, **params)
        check_is_fitted(self.estimator)
        return self.estimator

    def _fit_scores(self, X: Any, y: npt.NDArray[Any], routed: Any, seed: int) -> Floats:
        """Return the scores, but for ``"prefit"`` by models that have not learned from the row."""
        if self._prefit:
            return self._score(self.estimator_, X)
        split_params = routed.get("splitter", {}).get("split", {})
        splitter = check_cv(self.cv, y, classifier=get_tags(self).estimator_type == "classifier")
        if isinstance(self.cv, Integral):
            splitter = self.folds(int(self.cv), shuffle=True, random_state=seed)
        splits = list(splitter.split(X, y, **split_params))
        tested = np.concatenate([test for _, test in splits])
        if not np.array_equal(np.sort(tested), np.arange(y.size)):
            raise InputError("cv must put every row into exactly one test part, as KFold does")
        with started_safely():
            models = Parallel(n_jobs=self.n_jobs)(
                delayed(fitted)(self.estimator, X, y, train, routed.estimator.fit) for train, _ in splits
            )
        score = np.empty(y.size)
        for model, (_, test) in zip(models, splits, strict=True):
            score[test] = self._score(model, _safe_indexing(X, test))
        return score

    # ------------------------------------------------------------------ prediction

    @property
    def trace_(self) -> FitTrace:
        """Record of the fit of the repair."""
        return self.predictor_.trace

    def _repaired(self, X: Any, protected: Any) -> tuple[Floats, Any, GroupLabels]:
        """Return what the repaired rule gives, what the estimator sees of ``X``, and the groups."""
        check_is_fitted(self)
        self._check_source(protected)
        (X,) = indexable(X)
        if hasattr(self, "n_features_in_") and np.ndim(X) == 1:
            raise InputError(
                "Expected 2D array, got 1D array instead. Reshape your data: X.reshape(1, -1) if it is one row"
            )
        validate_data(self, X, skip_check_array=True, reset=False)
        with value_errors():
            features = self._features(X)
            score = self._score(self.estimator_, features)
            groups = self._named_as_in_fit(self._groups(X, protected))
            check_consistent_length(score, groups)
            key = self._key
            table = replace(
                self._table(groups, score),
                draw=lambda rows: draws_of(identities(features, groups, rows), key, {}),
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

    def _with_unseen(self, given: Floats, table: Table) -> Floats:
        """Return what the rule gives with those of unseen groups replaced as ``unseen`` says."""
        unseen = np.isnan(given)
        if not unseen.any():
            return given
        if self.unseen == "original":
            return np.where(unseen, self._unrepaired(table), given)
        raise InputError(
            f"{unseen_group(table.groups(), unseen, f'{len(table):,} rows')}; fit with such rows, or set "
            "unseen='original' to use the estimator's prediction"
        )

    # ------------------------------------------------------------------ groups and features

    def _check_source(self, beside: Any) -> None:
        if (self.protected is None) == (beside is None):
            raise InputError(
                "give the groups once: name columns or a function in the parameter protected, or pass "
                "protected= with X" + ("" if beside is None else ", not both")
            )

    def _groups(self, X: Any, beside: Any) -> GroupLabels:
        """Return the group labels, from where this object has them."""
        if self.protected is None:
            return group_labels(beside)
        if callable(self.protected):
            return group_labels(self.protected(X))
        at = positions_of(X, self.protected)
        labels = group_labels(columns_at(X, at))
        return labels if labels.named else replace(labels, names=tuple(f"x{i}" for i in at))

    def _features(self, X: Any) -> Any:
        """Return what the estimator sees of ``X``."""
        if self.protected is None or callable(self.protected) or not self.drop_protected:
            return X
        hidden = positions_of(X, self.protected)
        return columns_at(X, [i for i in range(self.n_features_in_) if i not in hidden])
