r"""Base learners: fitted by scikit-learn, kept as arrays and evaluated here, so an artifact holds data and no code.

Linear members minimise, over coefficients ``beta`` and a free intercept,

.. math::
    \frac{1}{W} \sum_i w_i\, l(y_i,\, x_i^T \beta + \beta_0) + \lambda \lVert \beta \rVert^2, \qquad W = \sum_i w_i ,

with the square loss, or the log loss of the sigmoid (of the softmax for several classes). ``l2`` is ``lambda``; its
strength does not change when all rows are repeated or all weights doubled. Without it (``l2 = 0``) the columns may
depend on one another, as indicators of categories do; the square loss then takes the least coefficients of all that
are optimal. Labels between 0 and 1 are a row with label 1 and a row with label 0, weighted. Trees are scikit-learn's
histogram gradient boosting with its defaults; no rows are set aside to stop.

scikit-learn is imported when something is fitted, never to predict.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from fairfix.data.counts import Floats, Ints
from fairfix.errors import ArtifactError, ConvergenceWarning

Link = Literal["identity", "sigmoid", "pair", "softmax"]
"""What becomes of the sums: nothing, a probability, that of both classes, those of several classes."""

LINKS = ("identity", "sigmoid", "pair", "softmax")

CHUNK = 1 << 20
"""Entries of the matrix that trees are evaluated for at once."""

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
        _require_parts(cls.kind, settings, set(), arrays, {"value"})
        if not _finite(arrays["value"], 1) or not arrays["value"].size:
            raise ArtifactError("the parts of this constant member do not fit together")
        return cls(arrays["value"])


def _form(X: Floats, coef: Floats) -> Floats:
    """Return ``X coef``, shape (n, m), added column by column: what a row gets does not hang on the rows beside it.

    A matrix product does, in the last bit: its kernels take rows in blocks, and those left over in another way.
    """
    out = np.zeros((len(X), coef.shape[1]))
    for column, weights in zip(X.T, coef, strict=True):
        out += column[:, None] * weights
    return out


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
        return _linked(_form(X, self.coef) + self.intercept, self.link)

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return the link as a setting, the coefficients as arrays."""
        return {"link": self.link}, {"coef": self.coef, "intercept": self.intercept}

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        """Return the member of a saved state, checked."""
        _require_parts(cls.kind, settings, {"link"}, arrays, {"coef", "intercept"})
        sound = (
            settings["link"] in LINKS
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
    baseline: Floats
    features: int
    link: Link

    def predict(self, X: Floats) -> Floats:
        """Return the linked sums of the trees; NaN in X is a missing value."""
        walk = _Walk.of(self.nodes, X)
        step = max(1, CHUNK // max(1, X.shape[1]))
        parts = [self._sums(walk, X[i : i + step]) for i in range(0, len(X), step)]
        return _linked(np.concatenate(parts) if parts else np.zeros((0, self.baseline.size)), self.link)

    def _sums(self, walk: _Walk, X: Floats) -> Floats:
        """Return the sums of rows, shape (n, m), trees added in the order they were fitted in."""
        out = np.tile(self.baseline, (len(X), 1))
        flat, starts = walk.laid_out(X)
        for root, column in zip(self.roots, self.classes, strict=True):
            out[:, column] += self.nodes["value"].take(walk.leaves(root, flat, starts))
        return out

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return the link and the number of features as settings, the nodes as arrays."""
        own = {"roots": self.roots, "classes": self.classes, "baseline": self.baseline}
        return {"link": self.link, "features": self.features}, {**self.nodes, **own}

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        """Return the member of a saved state, checked: its nodes are trees, so every walk ends in a leaf."""
        names = {*NODE_PARTS, "roots", "classes", "baseline"}
        _require_parts(cls.kind, settings, {"link", "features"}, arrays, names)
        nodes = {name: arrays[name] for name in NODE_PARTS}
        link, features = settings["link"], settings["features"]
        baseline, roots, classes = arrays["baseline"], arrays["roots"], arrays["classes"]
        sound = (
            link in LINKS
            and type(features) is int
            and _finite(baseline, 1)
            and baseline.size > 0
            and (link == "softmax" or baseline.size == 1)
            and _are_nodes(nodes, features)
            and _are_trees(nodes, roots)
            and _inside(classes, baseline.size)
            and roots.shape == classes.shape
        )
        if not sound:
            raise ArtifactError("the parts of this member of trees do not fit together")
        return cls(nodes, roots, classes, baseline, features, link)


@dataclass(frozen=True, eq=False)
class NetworkMember(Member):
    """A network with one hidden layer: ``sigmoid(max(X hidden + hidden_bias, 0) out + out_bias)``.

    Attributes
    ----------
    hidden, hidden_bias
        Shapes (d, h) and (h,).
    out, out_bias
        Shapes (h,) and (1,).
    """

    kind: ClassVar[str] = "network"

    hidden: Floats
    hidden_bias: Floats
    out: Floats
    out_bias: Floats

    def predict(self, X: Floats) -> Floats:
        """Return the probability of each row."""
        from scipy.special import expit

        step = max(1, CHUNK // (8 * self.out.size))
        inner = (
            np.maximum(_form(X[i : i + step], self.hidden) + self.hidden_bias, 0.0)
            for i in range(0, max(len(X), 1), step)
        )
        return np.asarray(
            expit(np.concatenate([_form(part, self.out[:, None])[:, 0] for part in inner]) + self.out_bias)
        )

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return the weights as arrays."""
        return {}, {name: getattr(self, name) for name in NETWORK_PARTS}

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        """Return the member of a saved state, checked."""
        _require_parts(cls.kind, settings, set(), arrays, set(NETWORK_PARTS))
        hidden, hidden_bias, out, out_bias = (arrays[name] for name in NETWORK_PARTS)
        sound = (
            all(a.dtype == np.float64 and bool(np.isfinite(a).all()) for a in arrays.values())
            and hidden.ndim == 2
            and hidden_bias.shape == out.shape == (hidden.shape[1],)
            and out_bias.shape == (1,)
        )
        if not sound:
            raise ArtifactError(f"the parts of this {cls.kind} do not fit together")
        return cls(hidden, hidden_bias, out, out_bias)


NETWORK_PARTS = ("hidden", "hidden_bias", "out", "out_bias")


@dataclass(frozen=True, eq=False)
class _Walk:
    """The nodes of trees, laid out to walk many rows down at once.

    A missing value is never below a threshold, so it goes right. Where the matrix has gaps, it is laid out twice, the
    second time with minus infinity for them, and nodes that send missing values left look there.

    Attributes
    ----------
    column
        Of the matrix as laid out, per node.
    threshold
        Per node.
    children
        Right and left child of node ``i`` at ``2 i`` and ``2 i + 1``; a leaf is its own.
    twice
        Whether the matrix is laid out twice.
    """

    column: npt.NDArray[np.intp]
    threshold: Floats
    children: npt.NDArray[np.intp]
    twice: bool

    @classmethod
    def of(cls, nodes: Arrays, X: Floats) -> _Walk:
        """Return the layout for the rows of a matrix."""
        twice = bool(np.isnan(X).any())
        column = nodes["feature"].astype(np.intp)
        if twice:
            column += X.shape[1] * nodes["missing_left"]
        children = np.column_stack([nodes["right"], nodes["left"]]).astype(np.intp).ravel()
        return cls(column, nodes["threshold"], children, twice)

    def laid_out(self, X: Floats) -> tuple[Floats, npt.NDArray[np.intp]]:
        """Return the entries of rows end to end, and where each row begins."""
        wide = np.hstack([X, np.where(np.isnan(X), -np.inf, X)]) if self.twice else X
        return wide.ravel(), np.arange(len(X)) * wide.shape[1]

    def leaves(self, root: int, flat: Floats, starts: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """Return the leaf of each row in the tree of a root; all rows take a step at a time."""
        at = np.full(starts.size, root, dtype=np.intp)
        while True:
            left = flat.take(self.column.take(at) + starts) <= self.threshold.take(at)
            child = self.children.take(2 * at + left)
            if np.array_equal(child, at):
                return at
            at = child


def _require_parts(
    kind: str, settings: Any, told: set[str], arrays: Mapping[str, Any], named: set[str]
) -> None:
    """Refuse a state that has other settings or arrays than a kind of member has."""
    known = isinstance(settings, Mapping) and set(settings) == told and set(arrays) == named
    if not known or not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise ArtifactError(f"a {kind} member has other settings or arrays than this artifact holds")


def _are_nodes(nodes: Arrays, features: int) -> bool:
    """Tell whether the arrays have an entry of the right type per node, looking at columns that there are."""
    shape = (nodes["value"].size,)
    return (
        all(nodes[name].dtype.str == kind and nodes[name].shape == shape for name, kind in NODE_PARTS.items())
        and bool(np.isfinite(nodes["value"]).all())
        and not np.isnan(nodes["threshold"]).any()
        and _inside(nodes["feature"], features)
    )


def _are_trees(nodes: Arrays, roots: npt.NDArray[Any]) -> bool:
    """Tell whether roots have no parent and all other nodes one: a walk from a root then never comes back."""
    left, right = nodes["left"], nodes["right"]
    many = left.size
    if not (_inside(left, many) and _inside(right, many) and _inside(roots, many)):
        return False
    inner = (left != np.arange(many)) | (right != np.arange(many))
    above = np.concatenate([left[inner], right[inner], roots])
    return bool((np.bincount(above, minlength=many) == 1).all())


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
    start: Member | None = None,
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
    start
        A member fitted to almost the same rows, from which logistic regression starts; the result is the same, sooner.

    Warns
    -----
    ConvergenceWarning
        Logistic regression stopped before its optimum.
    """
    X, y, w = _ordered(X, y, weight)
    if loss == "logistic":
        if y.min() == y.max() and y[0] in (0.0, 1.0):
            return ConstantMember(y[:1].copy())
        X, codes, w = _as_classes(X, y, w)
        return _classifier(X, codes, w, "sigmoid", learner=learner, l2=l2, seed=seed, start=start)
    if learner == "linear":
        return _ridge(X, y, w, l2)
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(early_stopping=False, random_state=seed).fit(
        binnable(X), y, sample_weight=_unequal(w)
    )
    return trees_of(model, "identity")


def fit_classes(
    X: Floats,
    codes: Ints,
    many: int,
    weight: Floats | None,
    *,
    learner: str,
    l2: float,
    seed: int,
    start: Member | None = None,
) -> Member:
    """Return a model of P(class | row), shape (n, many), fitted to the classes ``codes`` of rows; as :func:`fit_mean`.

    Raises
    ------
    ValueError
        Some classes have no rows of positive weight, but more than one has.
    """
    X, codes, w = _ordered(X, codes, weight)
    seen = np.unique(codes)
    if seen.size < many:
        if seen.size == 1:
            return ConstantMember((np.arange(many) == seen[0]).astype(np.float64))
        raise ValueError("some classes have no rows; the caller fits to all rows then")
    link: Link = "pair" if many == 2 else "softmax"
    return _classifier(X, codes, w, link, learner=learner, l2=l2, seed=seed, start=start)


def _ordered(
    X: Floats, y: npt.NDArray[Any], weight: Floats | None
) -> tuple[Floats, npt.NDArray[Any], Floats]:
    """Return the rows that have weight, in an order that hangs on their values alone: sums are the same to the bit."""
    w = np.ones(len(y)) if weight is None else weight
    order = np.lexsort((w, y, hashed(X)))
    order = order[w[order] > 0]
    return X[order], y[order], w[order]


def _unequal(weight: Floats) -> Floats | None:
    """Return weights, or None where all are 1: trees bin weighted rows in a slow loop."""
    return None if (weight == 1.0).all() else weight


def binnable(X: Floats) -> Floats:
    """Return the matrix with 0 in columns without any value, which scikit-learn cannot bin; no tree splits on them."""
    empty = np.isnan(X).all(axis=0)
    return np.where(empty, 0.0, X) if empty.any() else X


def _as_classes(X: Floats, y: Floats, weight: Floats) -> tuple[Floats, Ints, Floats]:
    """Return rows with labels 0 and 1: a label between is both, weighted."""
    if np.isin(y, (0.0, 1.0)).all():
        return X, y.astype(np.int64), weight
    w = np.concatenate([weight * (1.0 - y), weight * y])
    some = w > 0
    return np.concatenate([X, X])[some], np.repeat([0, 1], y.size)[some], w[some]


def _classifier(
    X: Floats,
    codes: Ints,
    weight: Floats,
    link: Link,
    *,
    learner: str,
    l2: float,
    seed: int,
    start: Member | None,
) -> Member:
    if learner == "linear":
        return _logistic(X, codes, weight, link, l2, start)
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(early_stopping=False, random_state=seed)
    return trees_of(model.fit(binnable(X), codes, sample_weight=_unequal(weight)), link)


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
        message = f"logistic regression stopped at a slope of {slope:.1e}, not at its optimum; take an l2 above {l2:g}"
        warnings.warn(message, ConvergenceWarning, stacklevel=2)
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
        np.ravel(model._baseline_prediction).astype(np.float64),
        int(model.n_features_in_),
        link,
    )


def rescaled(member: Member, level: float, unit: float) -> Member:
    """Return the member for labels ``level + unit y`` of one that was fitted to ``y``; chances stay what they are."""
    if isinstance(member, ConstantMember):
        return ConstantMember(level + unit * member.value)
    if isinstance(member, LinearMember) and member.link == "identity":
        return LinearMember(unit * member.coef, level + unit * member.intercept, member.link)
    if isinstance(member, TreesMember) and member.link == "identity":
        nodes = {**member.nodes, "value": unit * member.nodes["value"]}
        return replace(member, nodes=nodes, baseline=level + unit * member.baseline)
    assert (level, unit) == (0.0, 1.0), "only a mean has a unit"
    return member


# ---------------------------------------------------------------------- out of fold


def folds_of(X: Floats, folds: int) -> Ints:
    """Return a fold for each row from a hash of its own values, shape (n,): row order means nothing, equal rows stay.

    Where that leaves a fold without rows, the different rows are dealt out in the order of their hashes; then there is
    a fold without rows only if there are fewer different rows than folds.

    Parameters
    ----------
    X
        Shape (n, d); NaN is a value like any other, and -0 is 0.
    folds
        Number of folds.
    """
    keys = hashed(X)
    drawn = (keys % np.uint64(folds)).astype(np.int64)
    if np.unique(drawn).size < folds:
        return np.asarray(np.unique(keys, return_inverse=True)[1] % folds)
    return np.asarray(drawn)


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
