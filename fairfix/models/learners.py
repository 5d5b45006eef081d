r"""Base learners: members fitted by scikit-learn.

Linear members minimise, over coefficients ``beta`` and a free intercept,

.. math::
    \frac{1}{W} \sum_i w_i\, l(y_i,\, x_i^T \beta + \beta_0) + \lambda \lVert \beta \rVert^2, \qquad W = \sum_i w_i ,

with the square loss, the log loss of the sigmoid (of the softmax for several classes), or another of
:mod:`fairfix.solvers.losses`, which :mod:`fairfix.solvers.linear_losses` minimises. ``l2`` is ``lambda``; its strength
does not change when all rows are repeated or all weights doubled. Without it (``l2 = 0``) the columns may depend on one
another, as indicators of categories do; the square loss then takes the least coefficients of all that are optimal.
Labels between 0 and 1 are a row with label 1 and a row with label 0, weighted. Trees are scikit-learn's histogram
gradient boosting with its defaults; of few rows (:data:`MANY_ROWS`) with as many rounds as predict rows best that have
no part in the fit. Other learners are those of :mod:`fairfix.models.estimators`.

scikit-learn is imported when something is fitted, never to predict.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fairfix.data.counts import Floats, Ints
from fairfix.data.row_hash import GOLDEN, mixed
from fairfix.errors import ConvergenceWarning
from fairfix.models.estimators import Learner, fit_chances, fit_number
from fairfix.models.members import ConstantMember, LinearMember, Link, Member, TreesMember
from fairfix.models.threads import limited
from fairfix.models.tree_arrays import of_histograms
from fairfix.solvers.linear_losses import fit_linear, standardised
from fairfix.solvers.losses import EDGE, name_of, number_of, row_loss

# ---------------------------------------------------------------------- fitting


def fit_mean(
    X: Floats,
    y: Floats,
    weight: Floats | None,
    *,
    learner: Learner,
    loss: str,
    l2: float,
    seed: int,
    start: Member | None = None,
) -> Member:
    """Return a model of the label; a ConvergenceWarning where logistic regression stops before its optimum.

    Parameters
    ----------
    X, y
        Shapes (n, d) and (n,); NaN in X only for learners that see gaps, y in [0, 1] for the logistic loss.
    weight
        Shape (n,), not negative; None for 1 each. Rows of weight 0 have no part.
    learner, loss
        ``loss``: a name of :mod:`fairfix.solvers.losses`, which says what the model gives: a probability, a mean, a
        quantile. Which learner knows which is in :data:`fairfix.models.estimators.UNKNOWN_LOSSES`.
    l2, seed
        Of linear models (see the module's docstring), and of trees.
    start
        A member fitted to almost the same rows, from which logistic regression starts; the result is the same, sooner.
    """
    X, y, w = _ordered(X, y, weight)
    if loss != "logistic":
        return _of_number(X, y, w, learner, loss, l2, seed)
    if y.min() == y.max() and y[0] in (0.0, 1.0):
        return ConstantMember(y[:1].copy())
    X, codes, w = _as_classes(X, y, w)
    if learner == "linear":
        return _logistic(X, codes, w, "sigmoid", l2, start)
    if learner != "trees":
        return fit_chances(X, codes, w, learner=learner, link="sigmoid", many=2, seed=seed)
    return _boosted("Classifier", X, codes, w, "sigmoid", seed)


def _of_number(X: Floats, y: Floats, w: Floats, learner: Learner, loss: str, l2: float, seed: int) -> Member:
    """Return the model of a real-valued label."""
    name = name_of(loss)
    link: Link = "exp" if name == "poisson" else "identity"
    if link == "exp" and not y.any():
        return ConstantMember(np.zeros(1))
    if learner == "linear":
        if name == "square":
            return _ridge(X, y, w, l2)
        coef, intercept = fit_linear(X, y, w, loss, l2)
        return LinearMember(coef[:, None], np.array([intercept]), link)
    if learner != "trees":
        return fit_number(X, y, w, learner=learner, loss=loss, seed=seed)
    losses = {"square": "squared_error", "absolute": "absolute_error"}
    settings: dict[str, Any] = {"loss": losses.get(name, name)}
    if name == "quantile":
        settings["quantile"] = number_of(loss)
    y, level, unit = standardised(y, w, loss)  # small counts would be less than a leaf must have
    return _boosted("Regressor", X, y, w, link, seed, **settings).rescaled(level, unit)


def fit_classes(
    X: Floats,
    codes: Ints,
    many: int,
    weight: Floats | None,
    *,
    learner: Learner,
    l2: float,
    seed: int,
    start: Member | None = None,
) -> Member:
    """Return a model of P(class | row), shape (n, many), fitted to the classes ``codes`` of rows; as :func:`fit_mean`.

    A ValueError where some classes have no rows of positive weight, but more than one has.
    """
    X, codes, w = _ordered(X, codes, weight)
    seen = np.unique(codes)
    if seen.size == 1 < many:
        return ConstantMember((np.arange(many) == seen[0]).astype(np.float64))
    if seen.size < many:
        raise ValueError("some classes have no rows; the caller fits to all rows then")
    link: Link = "pair" if many == 2 else "softmax"
    if learner == "linear":
        return _logistic(X, codes, w, link, l2, start)
    if learner != "trees":
        return fit_chances(X, codes, w, learner=learner, link=link, many=many, seed=seed)
    return _boosted("Classifier", X, codes, w, link, seed)


def _ordered(
    X: Floats, y: npt.NDArray[Any], weight: Floats | None
) -> tuple[Floats, npt.NDArray[Any], Floats]:
    """Return the rows that have weight, in an order given by their values alone: sums are the same to the bit."""
    w = np.ones(len(y)) if weight is None else weight
    order = np.lexsort((hashed(X), w, y, hashed(placed(X, w))))
    order = order[w[order] > 0]
    return X[order], y[order], w[order]


def binnable(X: Floats) -> Floats:
    """Return the matrix with 0 in columns without any value, which scikit-learn cannot bin; no tree splits on them."""
    empty = np.isnan(X).all(axis=0)
    return np.where(empty, 0.0, X) if empty.any() else X


def unequal(weight: Floats) -> Floats | None:
    """Return weights for trees, None where all are 1: scikit-learn bins weighted rows in a slow loop."""
    return None if (weight == 1.0).all() else weight


def _as_classes(X: Floats, y: Floats, weight: Floats) -> tuple[Floats, Ints, Floats]:
    """Return rows with labels 0 and 1: a label between is both, weighted."""
    if np.isin(y, (0.0, 1.0)).all():
        return X, y.astype(np.int64), weight
    w = np.concatenate([weight * (1.0 - y), weight * y])
    positive = w > 0
    return np.concatenate([X, X])[positive], np.repeat([0, 1], y.size)[positive], w[positive]


MANY_ROWS = 10_000
"""Rows with which 100 rounds of boosting hardly overfit: on Adult, credit and law school fewer rounds, chosen by other
rows, gain less than .01 of log loss with 9,000 rows, and .04 to .15 with 1,000. Of more than two classes each has trees
of its own: of 14 occupations in Adult 100 rounds are too many for 32,000 rows, so it is half as many for each class."""

ROUNDS = 100
"""Most rounds of boosting, scikit-learn's default."""

FOLDS = 5
"""Number of folds in which trees are fitted to choose the rounds."""

VOTERS = 1_000
"""Rows that have no part in a fit and choose the rounds; once there are as many, no more trees are fitted for it."""


def _boosted(
    kind: str, X: Floats, y: npt.NDArray[Any], weight: Floats, link: Link, seed: int, **loss: Any
) -> TreesMember:
    from sklearn import ensemble

    X = binnable(X)

    def fit(rows: Any, rounds: int) -> Any:
        model = getattr(ensemble, f"HistGradientBoosting{kind}")(
            early_stopping=False, random_state=seed, max_iter=rounds, **loss
        )
        return model.fit(X[rows], y[rows], sample_weight=unequal(weight[rows]))

    with limited():
        rounds = ROUNDS
        classes = int(y.max()) + 1 if kind == "Classifier" else 2
        if len(X) < MANY_ROWS // 2 * classes:
            staged = "staged_predict_proba" if kind == "Classifier" else "staged_predict"
            rounds = _rounds(lambda rows: getattr(fit(rows, ROUNDS), staged), X, y, weight, loss)
        return of_histograms(fit(slice(None), rounds), link)


Staged = Callable[[Floats], Iterable[Floats]]
"""Predictions of a fit after each round of boosting."""


def _rounds(
    fit: Callable[[npt.NDArray[Any]], Staged],
    X: Floats,
    y: npt.NDArray[Any],
    weight: Floats,
    loss: Mapping[str, Any],
) -> int:
    """Return the rounds of boosting with the least loss of rows that have no part in the fit; equal rows go together.

    ``loss`` are scikit-learn's settings of it; none for classes, which are 0, 1, ...
    """
    folds = (hashed(placed(X)) >> np.uint64(32)) % np.uint64(
        FOLDS
    )  # bits that folds of out_of_fold do not hang on
    total, voters, classes = np.zeros(ROUNDS), 0, np.unique(y)
    for fold in range(FOLDS):
        out = folds == fold
        if not out.any() or out.all() or not (loss or np.array_equal(np.unique(y[~out]), classes)):
            continue
        for at, u in enumerate(fit(~out)(X[out])):
            total[at] += weight[out] @ _boosting_loss(y[out], u, loss)
        voters += int(np.count_nonzero(out))
        if voters >= VOTERS:
            break
    return int(np.argmin(total)) + 1 if voters else ROUNDS


def _boosting_loss(y: npt.NDArray[Any], u: Floats, loss: Mapping[str, Any]) -> Floats:
    """Return the loss of each row, of chances of classes, shape (n, K), or of values, shape (n,)."""
    if not loss:
        return np.asarray(-np.log(np.maximum(u[np.arange(y.size), y], EDGE)))
    name = {"squared_error": "square", "absolute_error": "absolute"}.get(loss["loss"], loss["loss"])
    return row_loss(f"{name}:{loss['quantile']}" if name == "quantile" else name).value(y, u)


NO_PENALTY = 1e-12
"""Least ``l2`` that settles anything in floats; less is none."""


def _ridge(X: Floats, y: Floats, weight: Floats, l2: float) -> LinearMember:
    if l2 < NO_PENALTY:
        middle, level, root = weight @ X / weight.sum(), weight @ y / weight.sum(), np.sqrt(weight)
        # a direction this much weaker than the strongest is rounding: dividing by it gives coefficients of 1e14
        coef = np.linalg.lstsq(root[:, None] * (X - middle), root * (y - level), rcond=1e-10)[0]
        return LinearMember(coef[:, None], np.array([level - middle @ coef]), "identity")
    from sklearn.linear_model import Ridge

    ridge = Ridge(alpha=l2 * weight.sum()).fit(X, y, sample_weight=weight)
    return LinearMember(np.array(ridge.coef_).reshape(-1, 1), np.array([float(ridge.intercept_)]), "identity")


MOST_NEWTON = 300
"""Coefficients up to which Newton's method solves its systems directly; with 500, conjugate gradients take a third."""

STEEPEST = 1e-5
"""Largest slope of the mean loss at what passes for its optimum."""


def _logistic(
    X: Floats, codes: Ints, weight: Floats, link: Link, l2: float, start: Member | None
) -> LinearMember:
    from sklearn.linear_model import LogisticRegression

    shape = (X.shape[1], int(codes.max()) + 1 if link == "softmax" else 1)
    solver, tol = ("newton-cholesky", 1e-12) if shape[0] * shape[1] <= MOST_NEWTON else ("newton-cg", 1e-10)
    strength = 1.0 / (2.0 * weight.sum() * l2) if l2 else np.inf
    model = LogisticRegression(C=strength, solver=solver, tol=tol, max_iter=1000, warm_start=True)
    if isinstance(start, LinearMember) and start.coef.shape == shape:
        model.coef_, model.intercept_ = start.coef.T.copy(), start.intercept.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they tell of steps on the way; what was reached is measured below
        model.fit(X, codes, sample_weight=weight)
    member = LinearMember(np.ascontiguousarray(model.coef_.T), np.array(model.intercept_), link)
    slope = _slope(member, X, codes, weight, l2)
    if not slope <= STEEPEST:
        message = f"logistic regression stopped at a slope of {slope:.1e}, not at its optimum; use an l2 above {l2:g}"
        warnings.warn(ConvergenceWarning(message), stacklevel=2)
    return member


def is_fitted(member: Member, X: Floats, y: Floats, weight: Floats | None, l2: float) -> bool:
    """Return whether a member is at the optimum of what :func:`fit_mean` minimises, by the slope there.

    Only logistic regression is searched for: least squares are solved, and trees grow for a given number of rounds.
    """
    if not (isinstance(member, LinearMember) and member.link == "sigmoid"):
        return True
    w = np.ones(len(y)) if weight is None else weight
    return _slope(member, *_as_classes(X, y, w), l2) <= STEEPEST


def _slope(member: LinearMember, X: Floats, codes: Ints, weight: Floats, l2: float) -> float:
    """Return the largest entry of the gradient of what logistic regression minimises."""
    chance = member.predict(X)
    off = chance[:, -1:] if member.link == "pair" else chance.reshape(len(X), -1)
    off = off - (codes[:, None] == np.arange(off.shape[1]) if member.link == "softmax" else codes[:, None])
    off *= weight[:, None] / weight.sum()
    return float(max(np.abs(X.T @ off + 2.0 * l2 * member.coef).max(), np.abs(off.sum(axis=0)).max()))


def folds_of(X: Floats, folds: int, weight: Floats | None = None) -> Ints:
    """Return a fold for each row of X from a hash of the places of its entries, shape (n,): equal rows stay together.

    NaN is an entry like any other, and -0 is 0.
    """
    return dealt(hashed(placed(X, weight)), folds)


def dealt(keys: npt.NDArray[np.uint64], folds: int) -> Ints:
    """Return a fold for each row from its hash, shape (n,).

    Where that leaves a fold without rows, the different rows are dealt out in the order of their hashes; then there is
    a fold without rows only if there are fewer different rows than folds.
    """
    drawn = (keys % np.uint64(folds)).astype(np.int64)
    if np.unique(drawn).size < folds:
        drawn = np.unique(keys, return_inverse=True)[1] % folds
    return np.asarray(drawn)


PLACES = 4096
"""Places that are told apart: where there are more, two entries that become one in another unit move few others."""


def placed(X: Floats, weight: Floats | None = None) -> Floats:
    """Return the place of each entry among the different ones of its column in rows with weight, same shape as X.

    Places are the same in every unit of a column and at every origin, whereas the last bits of its entries are not.
    """
    out = np.empty(X.shape)
    for column, place in zip(X.T, out.T, strict=True):
        different = np.unique(column if weight is None else column[weight > 0])
        place[:] = np.searchsorted(different, column) * PLACES // max(different.size, PLACES)
    return out


def hashed(X: Floats) -> npt.NDArray[np.uint64]:
    """Return a number per row made of its values, shape (n,)."""
    state = np.zeros(len(X), dtype=np.uint64)
    for column in X.T:
        bits = np.where(np.isnan(column), np.nan, column + 0.0).view(np.uint64)
        state = mixed((state ^ bits) + GOLDEN)
    return state


def out_of_fold(
    fit: Callable[[Ints], Member],
    X: Floats,
    folds: Ints,
    whole: Member,
    usable: Callable[[Ints], bool] | None = None,
) -> Floats:
    """Return predictions for the rows of X by members that were fitted without them, by their folds, shape (n,).

    ``fit`` returns the member fitted to rows by their numbers, and ``usable`` whether they suffice for it (None: any
    row does). For folds without which too little is left, ``whole`` predicts, the member fitted to all rows.
    """
    out = whole.predict(X)
    for fold in np.unique(folds):
        inside = folds == fold
        rest = np.flatnonzero(~inside)
        if rest.size and (usable is None or usable(rest)):
            out[inside] = fit(rest).predict(X[inside])
    return out
