"""A binary classifier with repaired decisions."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.model_selection import StratifiedKFold
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import column_or_1d

from fairfix.data.counts import Floats, Ints
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.files import open_source
from fairfix.data.noise_spec import NoiseSpec
from fairfix.data.row_hash import decide, is_random
from fairfix.data.table import Table
from fairfix.noise.description import Noise, NoiseTable, noise_of
from fairfix.sklearn.base import Protected, RepairedEstimator
from fairfix.sklearn.rows import InputError, SettingError, identities

THRESHOLD = 0.5
"""Threshold of the original decision, for groups that were not in the training rows."""


class RepairedClassifier(ClassifierMixin, RepairedEstimator):  # type: ignore[misc]  # untyped bases
    """A binary classifier with repaired decisions.

    Parameters
    ----------
    estimator
        Classifier with ``predict_proba``. Its probabilities should be calibrated; wrap one that has only a
        ``decision_function`` in :class:`sklearn.calibration.CalibratedClassifierCV`.
    protected
        Which groups are to be treated alike: column names, or positions of columns, of ``X``; or a function
        of ``X`` that returns group labels of shape (n,) or (n, m). None: ``fit`` and the prediction methods
        are given ``protected=`` with ``X``. Groups are the intersections of all columns.
    method
        Name of a method in :func:`fairfix.methods`.
    cv
        Folds of the out-of-fold probabilities: a number of stratified, shuffled folds, a splitter or an
        iterable of splits. ``"prefit"``: ``estimator`` is fitted already and is used as it is, and the repair
        uses its probabilities of all rows given to ``fit``, which it should not have learned from.
    drop_protected
        Whether the estimator gets ``X`` without the protected columns. Only columns that ``protected`` names
        can be left out.
    pos_label
        The class that a positive decision means; None for ``classes_[1]``.
    unseen
        For rows of a group that ``fit`` has not seen: ``"error"``, or ``"original"``, the original decision at
        probability one half.
    random_state
        Of the folds, the fit of the repair and the key by which decisions are drawn. The estimator has its own.
    n_jobs
        Folds fitted at a time, as in :class:`joblib.Parallel`.
    noise
        The noise of the protected groups of ``X``, for ``method="robust"``, as for :func:`fairfix.repair`: a data
        frame or file with the columns ``true``, ``noisy``, ``label`` (optional) and ``count`` or ``probability``, or
        ``radius:GROUP=NUMBER,...``. Its parameter ``assume`` states an assumption. A
        :class:`~fairfix.noise.description.Noise` states both.
    bands
        Where groups of a protected column of numbers begin, as for :func:`fairfix.audit`: ``{"age": [25, 40, 60]}``.
    **parameters
        The method's own parameters, such as ``slack=0.02`` and ``constraint="equal_opportunity"``; None is its default.

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

    data_spec: ClassVar = DataSpec(
        ColumnRoles((), score="predict_proba"), thresholds=(THRESHOLD,), missing_group="group"
    )
    folds: ClassVar = StratifiedKFold

    def __init__(
        self,
        estimator: Any,
        protected: Protected = None,
        *,
        method: str = "ramp",
        cv: Any = 5,
        drop_protected: bool = True,
        pos_label: Any = None,
        unseen: str = "error",
        random_state: Any = 0,
        n_jobs: int | None = None,
        noise: Any = None,
        bands: Any = None,
        **parameters: Any,
    ) -> None:
        self.estimator = estimator
        self.protected = protected
        self.method = method
        self.cv = cv
        self.drop_protected = drop_protected
        self.pos_label = pos_label
        self.unseen = unseen
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.noise = noise
        self.bands = bands
        self._own = parameters

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _fit_labels(self, y: Any) -> Ints:
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
                f"pos_label={self.pos_label!r} is not a class of y, which has {self.classes_.tolist()}"
            )
        self._positive = int(positive[0])
        return np.asarray(code == self._positive, dtype=np.int64)

    def _noise(self) -> Noise | None:
        """Return the description of the noise, read and checked."""
        if self.noise is None or isinstance(self.noise, Noise):
            return self.noise
        if isinstance(self.noise, NoiseTable):
            return Noise(self.noise)
        entries = self.noise if isinstance(self.noise, (list, tuple)) else [self.noise]
        return noise_of(NoiseSpec.parse(entries), open_source, self.protected_names_)

    def _check_estimator(self) -> None:
        if not hasattr(self.estimator, "predict_proba"):
            raise SettingError(
                f"{type(self.estimator).__name__} has no predict_proba, and a repair needs probabilities; wrap it "
                "in sklearn.calibration.CalibratedClassifierCV"
            )

    def _score(self, model: Any, X: Any) -> Floats:
        """Return a fitted classifier's P(positive class), shape (n,)."""
        if not np.array_equal(model.classes_, self.classes_):
            raise InputError(
                f"the estimator has the classes {list(model.classes_)}, but y has {self.classes_.tolist()}"
            )
        return np.asarray(model.predict_proba(X)[:, self._positive], dtype=np.float64)

    def _unrepaired(self, table: Table) -> Floats:
        """Return the base decision."""
        return np.asarray(table.probability >= THRESHOLD, dtype=np.float64)

    # ------------------------------------------------------------------ prediction

    def predict_proba(self, X: Any, protected: Any = None) -> Floats:
        """Return the probability of each *decision*, shape (n, 2), in the order of ``classes_``.

        It is that of the repaired rule, exactly: 0 or 1 wherever nothing is drawn. For the probability of the
        *label* ask ``estimator_``. A method that repairs values gives the repaired probability of the label. Raises
        InputError where a group was not there in the fit and ``unseen`` is ``"error"``.
        """
        chance, _, _ = self._repaired(X, protected)
        return np.column_stack([chance, 1.0 - chance] if self._positive == 0 else [1.0 - chance, chance])

    def predict(self, X: Any, protected: Any = None) -> npt.NDArray[Any]:
        """Return the decision of each row, a class, shape (n,), independent of the other rows.

        Equal rows are told apart by their order, so that a share of them is decided as the probability says.
        """
        chance, features, groups = self._repaired(X, protected)
        if self.predictor_.gives == "value":
            chance = (chance >= THRESHOLD).astype(np.float64)
        drawn = np.flatnonzero(is_random(chance))
        decision = decide(chance, identities(features, groups, drawn), self._key, {})
        decided: npt.NDArray[Any] = self.classes_[np.where(decision == 1, self._positive, 1 - self._positive)]
        return decided

    def score(self, X: Any, y: Any, sample_weight: Any = None, protected: Any = None) -> float:
        """Return the accuracy of the drawn decisions."""
        return float(accuracy_score(y, self.predict(X, protected), sample_weight=sample_weight))
