r"""The scikit-learn adapter: estimators whose predictions are repaired, for those who live in pipelines.

:class:`RepairedClassifier` and :class:`RepairedRegressor` wrap an estimator. The fit takes four steps:

1. the group of every row, from columns of ``X``, from a function of ``X``, or from an argument of ``fit``;
2. out-of-fold scores of the training rows (probabilities, or predictions of a regressor), since a model looks too
   sure of rows it has learned;
3. a method of :func:`fairfix.methods`, fitted on these scores, groups and labels;
4. the wrapped estimator, fitted on all rows; its scores are what the repaired rule is applied to.

For a new row with probability ``s`` and group ``k`` the repaired rule of a classifier gives

.. math:: p = P(\text{decision} = \text{positive} \mid s, k),

which ``predict_proba`` returns, while ``predict`` draws the decision by a keyed hash of the row's own values. Equal
rows are told apart by their order (:mod:`fairfix.data.row_hash`). A method that repairs values gives the repaired
probability of the *label* instead: ``predict_proba`` returns it, and ``predict`` is positive from one half on. Of a
regressor ``predict`` returns the repaired value.

``import fairfix`` does not load this package, which needs scikit-learn 1.7.2 or newer.
"""

from fairfix.sklearn.classifier import RepairedClassifier
from fairfix.sklearn.regressor import RepairedRegressor
from fairfix.sklearn.rows import InputError, SettingError

__all__ = ["InputError", "RepairedClassifier", "RepairedRegressor", "SettingError"]
