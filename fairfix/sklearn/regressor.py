"""A regressor with repaired predictions."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold
from sklearn.utils.validation import check_array, column_or_1d

from fairfix.data.counts import Floats
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.table import Table
from fairfix.sklearn.base import Protected, RepairedEstimator
from fairfix.sklearn.rows import InputError, SettingError


class RepairedRegressor(RegressorMixin, RepairedEstimator):  # type: ignore[misc]  # untyped base
    """A regressor with repaired predictions.

    Parameters
    ----------
    estimator
        Regressor with ``predict``.
    protected, cv, drop_protected, random_state, n_jobs, bands
        As of :class:`~fairfix.sklearn.RepairedClassifier`; a number of folds means shuffled ones.
    method, **parameters
        Name of a method in :func:`fairfix.methods` that repairs regressions from predictions alone, such as
        ``"fair-regression"`` (predictions distributed alike in all groups, up to ``slack``), and its own parameters.
        Here its ``group`` is ``"used"`` by default. With ``"unused"``, ``fair-regression`` learns from the predictions
        alone what to change, which may cost much of their accuracy: ``trace_.notes`` say how much.
    unseen
        For rows of a group that ``fit`` has not seen: ``"error"``, or ``"original"``, the estimator's prediction.

    Attributes
    ----------
    estimator_, predictor_, trace_, protected_names_, bands_, n_features_in_, feature_names_in_
        As of :class:`~fairfix.sklearn.RepairedClassifier`.
    """

    data_spec: ClassVar = DataSpec(ColumnRoles((), score="predict"), task="regression", missing_group="group")
    folds: ClassVar = KFold
    _usual: ClassVar = {"fair-regression": {"group": "used"}}

    def __init__(
        self,
        estimator: Any,
        protected: Protected = None,
        *,
        method: str = "fair-regression",
        cv: Any = 5,
        drop_protected: bool = True,
        unseen: str = "error",
        random_state: Any = 0,
        n_jobs: int | None = None,
        bands: Any = None,
        **parameters: Any,
    ) -> None:
        self.estimator = estimator
        self.protected = protected
        self.method = method
        self.cv = cv
        self.drop_protected = drop_protected
        self.unseen = unseen
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.bands = bands
        self._own = parameters

    def _fit_labels(self, y: Any) -> Floats:
        if y is None:
            raise InputError("requires y to be passed, but the target y is None")
        labels = column_or_1d(y, warn=True)
        return np.asarray(check_array(labels, ensure_2d=False, dtype=np.float64, input_name="y"))

    def _check_estimator(self) -> None:
        if not hasattr(self.estimator, "predict"):
            raise SettingError(
                f"{type(self.estimator).__name__} has no predict, and a repair needs predictions"
            )

    def _score(self, model: Any, X: Any) -> Floats:
        """Return a fitted regressor's predictions, shape (n,)."""
        return np.asarray(column_or_1d(model.predict(X)), dtype=np.float64)

    def _unrepaired(self, table: Table) -> Floats:
        """Return the estimator's predictions."""
        return table.scores

    def predict(self, X: Any, protected: Any = None) -> Floats:
        """Return the repaired prediction of each row, shape (n,), independent of the other rows.

        Where a rule draws a prediction, it depends on the row's own values; equal rows are told apart by their order.
        Raises InputError where a group was not there in the fit and ``unseen`` is ``"error"``.
        """
        value, _, _ = self._repaired(X, protected)
        return value

    def score(self, X: Any, y: Any, sample_weight: Any = None, protected: Any = None) -> float:
        """Return the coefficient of determination of the repaired predictions."""
        return float(r2_score(y, self.predict(X, protected), sample_weight=sample_weight))
