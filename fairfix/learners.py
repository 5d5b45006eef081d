r"""Base learners: fitted by scikit-learn, kept as arrays and evaluated here, so an artifact holds data and no code.

Linear members minimise, over coefficients ``beta`` and a free intercept,

.. math::
    \frac{1}{W} \sum_i w_i\, l(y_i,\, x_i^T \beta + \beta_0) + \lambda \lVert \beta \rVert^2, \qquad W = \sum_i w_i ,

with the square loss, or the log loss of the sigmoid (of the softmax for several classes). ``l2`` is ``lambda``; its
strength does not change when all rows are repeated. Labels between 0 and 1 are a row with label 1 and a row with label
0, weighted. Trees are scikit-learn's histogram gradient boosting with its defaults; no rows are set aside to stop.

scikit-learn is imported when something is fitted, never to predict.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from fairfix.counts import Floats, Ints
from fairfix.errors import ArtifactError

Link = Literal["identity", "sigmoid", "pair", "softmax"]
"""What becomes of the sums: nothing, a probability, that of both classes, those of several classes."""

LINKS = ("identity", "sigmoid", "pair", "softmax")

CHUNK = 1 << 13
"""Rows that trees are evaluated for at once."""

Arrays = Mapping[str, npt.NDArray[Any]]


class Member(ABC):
    """A fitted model: a matrix of features in, a number or class probabilities per row out.

    A kind is a subclass with a ``kind`` of its own; it is found by it when an artifact is loaded.
    """

    kind: ClassVar[str]
    kinds: ClassVar[dict[str, type[Member]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "kind" in cls.__dict__:
            Member.kinds[cls.kind] = cls

    @abstractmethod
    def predict(self, X: Floats) -> Floats:
        """Return the predictions for rows of shape (n, d): shape (n,), or (n, K) for probabilities of K classes."""

    @abstractmethod
    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return (JSON settings, named arrays) from which :meth:`from_state` makes the same member."""

    @classmethod
    @abstractmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        """Return the member of a saved state.

        Raises
        ------
        ArtifactError
            The state does not fit together.
        """


@dataclass(frozen=True, eq=False)
class ConstantMember(Member):
    """The same value for every row.

    Attributes
    ----------
    value
        Shape (1,), or (K,) for probabilities of classes.
    """

    kind: ClassVar[str] = "constant"
    value: Floats

    def predict(self, X: Floats) -> Floats:
        """Return the value for each row."""
        whole = np.broadcast_to(self.value, (len(X), self.value.size))
        return whole[:, 0].copy() if self.value.size == 1 else whole.copy()

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return the value."""
        return {}, {"value": self.value}

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        """Return the member of a saved state, checked."""
        if (
            settings
            or set(arrays) != {"value"}
            or not _finite(arrays["value"], 1)
            or not arrays["value"].size
        ):
            raise ArtifactError("the parts of this constant member do not fit together")
        return cls(arrays["value"])


@dataclass(frozen=True, eq=False)
class LinearMember(Member):
    """``link(X coef + intercept)``.

    Attributes
    ----------
    coef, intercept
        Shapes (d, m) and (m,).
    link
        What becomes of the sums.
    """

    kind: ClassVar[str] = "linear"
    coef: Floats
    intercept: Floats
    link: Link

    def predict(self, X: Floats) -> Floats:
        """Return the linked linear form of each row."""
        return _linked(X @ self.coef + self.intercept, self.link)

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return the link as a setting, the coefficients as arrays."""
        return {"link": self.link}, {"coef": self.coef, "intercept": self.intercept}

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        """Return the member of a saved state, checked."""
        sound = (
            set(settings) == {"link"}
            and settings["link"] in LINKS
            and set(arrays) == {"coef", "intercept"}
            and _finite(arrays["coef"], 2)
            and _finite(arrays["intercept"], 1)
            and arrays["coef"].shape[1] == arrays["intercept"].size > 0
            and (settings["link"] == "softmax" or arrays["intercept"].size == 1)
        )
        if not sound:
            raise ArtifactError("the parts of this linear member do not fit together")
        return cls(arrays["coef"], arrays["intercept"], settings["link"])


NODE_PARTS: Mapping[str, str] = {
    "feature": "<i4",
    "threshold": "<f8",
    "left": "<i4",
    "right": "<i4",
    "value": "<f8",
    "missing_left": "|b1",
}
"""Arrays with an entry per node, and their types. A leaf is its own left and right child."""


@dataclass(frozen=True, eq=False)
class TreesMember(Member):
    """Sums of regression trees.

    Attributes
    ----------
    nodes
        Name of ``NODE_PARTS`` -> array with an entry per node, trees end to end; children are numbers of nodes.
    roots
        Number of the first node of each tree, shape (T,).
    classes
        Which sum a tree adds to, shape (T,).
    depth
        Most steps from a root to a leaf.
    baseline
        What the sums begin with, shape (m,).
    features
        Number of columns of the matrix.
    link
        What becomes of the sums.
    """

    kind: ClassVar[str] = "trees"
    nodes: Arrays
    roots: Ints
    classes: Ints
    depth: int
    baseline: Floats
    features: int
    link: Link

    def predict(self, X: Floats) -> Floats:
        """Return the linked sums of the trees; NaN in X is a missing value."""
        parts = [self._sums(X[i : i + CHUNK]) for i in range(0, len(X), CHUNK)]
        return _linked(np.concatenate(parts) if parts else np.zeros((0, self.baseline.size)), self.link)

    def _sums(self, X: Floats) -> Floats:
        """Return the sums of rows, shape (n, m), trees added in order."""
        out = np.tile(self.baseline, (len(X), 1))
        missing = np.isnan(X)
        gaps, rows = bool(missing.any()), np.arange(len(X))
        feature, threshold, left, right, value, missing_left = (self.nodes[name] for name in NODE_PARTS)
        for root, sums in zip(self.roots, self.classes, strict=True):
            at = np.full(len(X), root)
            for _ in range(self.depth):
                column = feature[at]
                goes_left = X[rows, column] <= threshold[at]
                if gaps:
                    goes_left = np.where(missing[rows, column], missing_left[at], goes_left)
                child = np.where(goes_left, left[at], right[at])
                if np.array_equal(child, at):
                    break
                at = child
            out[:, sums] += value[at]
        return out

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return the link, the number of features and the depth as settings, the nodes as arrays."""
        settings = {"link": self.link, "features": self.features, "depth": self.depth}
        return settings, {
            **self.nodes,
            "roots": self.roots,
            "classes": self.classes,
            "baseline": self.baseline,
        }

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        """Return the member of a saved state, checked: children lie behind their parents, so every walk ends."""
        if set(settings) != {"link", "features", "depth"} or set(arrays) != {
            *NODE_PARTS,
            "roots",
            "classes",
            "baseline",
        }:
            raise ArtifactError("a member of trees has other settings or arrays than this artifact holds")
        nodes = {name: arrays[name] for name in NODE_PARTS}
        baseline, roots, classes = arrays["baseline"], arrays["roots"], arrays["classes"]
        many = nodes["value"].size
        sound = (
            settings["link"] in LINKS
            and all(type(settings[name]) is int and settings[name] >= 0 for name in ("features", "depth"))
            and all(
                nodes[name].dtype.str == kind and nodes[name].shape == (many,)
                for name, kind in NODE_PARTS.items()
            )
            and _finite(baseline, 1)
            and baseline.size > 0
            and (settings["link"] == "softmax" or baseline.size == 1)
            and bool(np.isfinite(nodes["value"]).all())
            and not np.isnan(nodes["threshold"]).any()
            and _inside(roots, many)
            and _inside(classes, baseline.size)
            and roots.shape == classes.shape
            and _inside(nodes["feature"], max(settings["features"], 1))
            and _are_trees(nodes, many)
        )
        if not sound:
            raise ArtifactError("the parts of this member of trees do not fit together")
        return cls(nodes, roots, classes, settings["depth"], baseline, settings["features"], settings["link"])


def _are_trees(nodes: Arrays, many: int) -> bool:
    """Tell whether each node's children both lie behind it, or are both itself."""
    left, right, own = nodes["left"], nodes["right"], np.arange(many)
    leaf = (left == own) & (right == own)
    return (
        _inside(left, many) and _inside(right, many) and bool((leaf | ((left > own) & (right > own))).all())
    )


def _finite(array: npt.NDArray[Any], dimensions: int) -> bool:
    return array.ndim == dimensions and array.dtype == np.float64 and bool(np.isfinite(array).all())


def _inside(array: npt.NDArray[Any], end: int) -> bool:
    whole = array.ndim == 1 and array.dtype.kind == "i"
    return whole and (not array.size or (int(array.min()) >= 0 and int(array.max()) < end))


def _linked(sums: Floats, link: Link) -> Floats:
    """Return what the link makes of sums of shape (n, m)."""
    if link == "identity":
        return np.ascontiguousarray(sums[:, 0])
    from scipy.special import expit, softmax

    if link == "softmax":
        return np.asarray(softmax(sums, axis=1))
    chance = expit(sums[:, 0])
    return np.asarray(chance if link == "sigmoid" else np.stack([1.0 - chance, chance], axis=1))


# ---------------------------------------------------------------------- fitting


def fit_mean(
    X: Floats,
    y: Floats,
    weight: Floats | None,
    *,
    learner: str,
    loss: str,
    l2: float,
    seed: int,
) -> Member:
    """Return a model of the label.

    Parameters
    ----------
    X
        Shape (n, d); NaN only for trees.
    y
        Shape (n,); in [0, 1] for the logistic loss.
    weight
        Shape (n,), not negative; None for 1 each. Rows of weight 0 have no part.
    learner, loss
        ``loss="logistic"`` gives probabilities, any other the mean.
    l2
        Of linear models; see the module's docstring.
    seed
        Of trees.
    """
    X, y, w = _ordered(X, y, weight)
    if loss == "logistic":
        if y.min() == y.max() and y[0] in (0.0, 1.0):
            return ConstantMember(y[:1].copy())
        X, codes, w = _as_classes(X, y, w)
        return _classifier(X, codes, w, learner, l2, seed, "sigmoid")
    if learner == "linear":
        from sklearn.linear_model import Ridge

        ridge = Ridge(alpha=l2 * w.sum(), solver="auto" if l2 else "svd").fit(X, y, sample_weight=w)
        return LinearMember(
            np.array(ridge.coef_).reshape(-1, 1), np.array([float(ridge.intercept_)]), "identity"
        )
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(early_stopping=False, random_state=seed).fit(X, y, sample_weight=w)
    return trees_of(model, "identity")


def fit_classes(
    X: Floats, codes: Ints, many: int, weight: Floats | None, *, learner: str, l2: float, seed: int
) -> Member:
    """Return a model of P(class | row), shape (n, many), fitted to the classes ``codes`` of rows; as :func:`fit_mean`.

    Classes without rows get probability 0.
    """
    X, codes, w = _ordered(X, codes, weight)
    seen = np.unique(codes)
    if seen.size < many:
        if seen.size == 1:
            return ConstantMember((np.arange(many) == seen[0]).astype(np.float64))
        raise ValueError("some classes have no rows; the caller fits to all rows then")
    return _classifier(X, codes, w, learner, l2, seed, "pair" if many == 2 else "softmax")


def _ordered(
    X: Floats, y: npt.NDArray[Any], weight: Floats | None
) -> tuple[Floats, npt.NDArray[Any], Floats]:
    """Return the rows that have weight, in an order that hangs on their values alone: sums are the same to the bit."""
    w = np.ones(len(y)) if weight is None else weight
    order = np.lexsort((w, y, hashed(X)))
    order = order[w[order] > 0]
    return X[order], y[order], w[order]


def _as_classes(X: Floats, y: Floats, weight: Floats) -> tuple[Floats, Ints, Floats]:
    """Return rows with labels 0 and 1: a label between is both, weighted."""
    if np.isin(y, (0.0, 1.0)).all():
        return X, y.astype(np.int64), weight
    w = np.concatenate([weight * (1.0 - y), weight * y])
    some = w > 0
    return np.concatenate([X, X])[some], np.repeat([0, 1], y.size)[some], w[some]


def _classifier(
    X: Floats, codes: Ints, weight: Floats, learner: str, l2: float, seed: int, link: Link
) -> Member:
    if learner == "trees":
        from sklearn.ensemble import HistGradientBoostingClassifier

        model = HistGradientBoostingClassifier(early_stopping=False, random_state=seed)
        return trees_of(model.fit(X, codes, sample_weight=weight), link)
    from sklearn.linear_model import LogisticRegression

    strength = 1.0 / (2.0 * weight.sum() * l2) if l2 else np.inf
    wide = X.shape[1] * (1 if link != "softmax" else int(codes.max()) + 1) > MOST_NEWTON
    solver, tol = ("lbfgs", 1e-8) if wide else ("newton-cholesky", 1e-8)
    model = LogisticRegression(C=strength, solver=solver, tol=tol, max_iter=1000)
    model.fit(X, codes, sample_weight=weight)
    return LinearMember(np.ascontiguousarray(model.coef_.T), np.array(model.intercept_), link)


MOST_NEWTON = 2000
"""Coefficients up to which Newton's method is used; it converges best and solves a system of that size."""


def trees_of(model: Any, link: Link) -> TreesMember:
    """Return the arrays of a fitted ``HistGradientBoosting`` model that was fitted without categorical columns."""
    trees = [(k, tree.nodes) for stage in model._predictors for k, tree in enumerate(stage)]
    sizes = np.array([nodes.size for _, nodes in trees])
    roots = np.cumsum(sizes) - sizes
    parts: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in NODE_PARTS}
    for (_, nodes), root in zip(trees, roots, strict=True):
        leaf, own = nodes["is_leaf"].astype(bool), root + np.arange(nodes.size)
        parts["feature"].append(np.where(leaf, 0, nodes["feature_idx"]))
        parts["threshold"].append(np.where(leaf, 0.0, nodes["num_threshold"]))
        parts["left"].append(np.where(leaf, own, root + nodes["left"].astype(np.int64)))
        parts["right"].append(np.where(leaf, own, root + nodes["right"].astype(np.int64)))
        parts["value"].append(nodes["value"])
        parts["missing_left"].append(nodes["missing_go_to_left"].astype(bool))
    joined = {name: np.concatenate(parts[name]).astype(kind) for name, kind in NODE_PARTS.items()}
    return TreesMember(
        joined,
        roots.astype(np.int64),
        np.array([k for k, _ in trees], dtype=np.int64),
        max(int(nodes["depth"].max()) for _, nodes in trees) + 1,
        np.ravel(model._baseline_prediction).astype(np.float64),
        int(model.n_features_in_),
        link,
    )


# ---------------------------------------------------------------------- out of fold


def folds_of(X: Floats, folds: int) -> Ints:
    """Return a fold for each row from a hash of its own values, shape (n,): row order means nothing, equal rows stay.

    Parameters
    ----------
    X
        Shape (n, d); NaN is a value like any other, and -0 is 0.
    folds
        Number of folds.
    """
    return np.asarray((hashed(X) % np.uint64(folds)).astype(np.int64))


def hashed(X: Floats) -> npt.NDArray[np.uint64]:
    """Return a number per row made of its values, shape (n,) (SplitMix64's mixing)."""
    state = np.zeros(len(X), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for column in X.T:
            bits = np.where(np.isnan(column), np.nan, column + 0.0).view(np.uint64)
            z = (state ^ bits) + np.uint64(0x9E3779B97F4A7C15)
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            state = z ^ (z >> np.uint64(31))
    return state


def out_of_fold(
    fit: Callable[[Ints], Member],
    X: Floats,
    folds: Ints,
    whole: Member,
    usable: Callable[[Ints], bool] | None = None,
) -> Floats:
    """Return predictions for rows by members that were fitted without them.

    Parameters
    ----------
    fit
        Returns the member fitted to the rows of these numbers.
    X
        Shape (n, d).
    folds
        Fold of each row, shape (n,).
    whole
        The member fitted to all rows, for folds without which too little is left to fit to.
    usable
        Whether rows suffice to fit to; the default is any row at all.
    """
    out = whole.predict(X)
    for fold in np.unique(folds):
        inside = folds == fold
        rest = np.flatnonzero(~inside)
        if rest.size and (usable is None or usable(rest)):
            out[inside] = fit(rest).predict(X[inside])
    return out
