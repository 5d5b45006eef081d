"""Members: fitted models kept as arrays and evaluated here, so an artifact holds data and no code.

A member takes a matrix of features, shape (n, d), and gives a number or class probabilities per row. The fitting is in
:mod:`fairfix.models.learners`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import numpy.typing as npt

from fairfix.data.codec import (
    Array,
    Arrays,
    Inner,
    Part,
    Saved,
    Setting,
    one_of,
    real,
    shortened,
    truth,
    whole,
)
from fairfix.data.counts import Floats, Ints
from fairfix.errors import ModelError

Link = Literal["identity", "exp", "sigmoid", "pair", "softmax", "shares"]
"""Links of the sums: none, a mean of counts, a probability, that of both classes, those of several classes. For sums
that are probabilities already, or nearly: one, or those of several classes."""

LINK = Setting(one_of(*get_args(Link)))

HIGHEST = 700.0
"""Largest exponent that is taken: a bit more is beyond all floats."""

DEEPEST_TREE = 1000
"""Largest depth of a tree, since all rows wait for each step; fitted trees have some 30 leaves."""

CHUNK = 1 << 20
"""Entries of the matrix that trees are evaluated for at once."""

ROWS_OF_RUN = 256
"""Rows of one run of a graph: a whole number of the blocks that kernels take, and few, as one row costs as many."""

INPUT_OF_GRAPH = "features"
"""Name of the input of a graph."""

FLOATS_OF_GRAPH: Mapping[str, Any] = {"double": np.float64, "float": np.float32}
"""Type of the input of a graph, by its name in ONNX."""


class Member(Saved):
    """A fitted model: a matrix of features in, a number or class probabilities per row out."""

    kinds: ClassVar[dict[str, Any]] = {}
    sees_gaps: ClassVar[bool] = False
    """Whether missing numbers are NaN to it."""

    @property
    def width(self) -> int | None:
        """Number of columns of the matrix; None where any will do."""
        return None

    @property
    @abstractmethod
    def classes_given(self) -> int | None:
        """Number of classes whose probabilities a row gets; None for one number."""

    @abstractmethod
    def predict(self, X: Floats) -> Floats:
        """Return the predictions for rows of shape (n, d): shape (n,), or (n, K) for probabilities of K classes."""

    def rescaled(self, level: float, unit: float) -> Member:
        """Return the member for labels ``level + unit y`` of one fitted to ``y``; probabilities stay as they are."""
        assert (level, unit) == (0.0, 1.0), "only a mean has a unit"
        return self


@dataclass(frozen=True, eq=False)
class ConstantMember(Member):
    """The same value for every row."""

    kind: ClassVar[str] = "constant"
    parts: ClassVar[Mapping[str, Part]] = {"value": Array("<f8", (None,))}
    value: Floats
    """Shape (1,), or (K,) for probabilities of classes."""

    @property
    def sound(self) -> bool:
        """Whether there is a value."""
        return self.value.size > 0

    @property
    def classes_given(self) -> int | None:
        """Number of classes; None where there is one value."""
        return None if self.value.size == 1 else self.value.size

    def predict(self, X: Floats) -> Floats:
        """Return the value for each row."""
        whole = np.broadcast_to(self.value, (len(X), self.value.size))
        return whole[:, 0].copy() if self.value.size == 1 else whole.copy()

    def rescaled(self, level: float, unit: float) -> Member:
        """Return the member for labels ``level + unit y``."""
        return ConstantMember(level + unit * self.value)


def _form(X: Floats, coef: Floats) -> Floats:
    """Return ``X coef``, shape (n, m), added column by column: what a row gets is independent of the other rows.

    In a matrix product it is not, in the last bit: its kernels take rows in blocks, and those left over in another way.
    """
    if len(X) == 1 and X.size:  # the same sums, in the same order
        return np.add.accumulate(X[0][:, None] * coef, axis=0)[-1:] + 0.0
    out = np.zeros((len(X), coef.shape[1]))
    for column, weights in zip(X.T, coef, strict=True):
        out += column[:, None] * weights
    return out


@dataclass(frozen=True, eq=False)
class LinearMember(Member):
    """``link(X coef + intercept)``."""

    kind: ClassVar[str] = "linear"
    parts: ClassVar[Mapping[str, Part]] = {
        "link": LINK,
        "coef": Array("<f8", (None, "sums")),
        "intercept": Array("<f8", ("sums",)),
    }
    coef: Floats
    intercept: Floats
    """Shapes (d, m) and (m,)."""
    link: Link

    @property
    def sound(self) -> bool:
        """Whether the link has as many sums as it needs."""
        return _are_sums(self.intercept, self.link)

    @property
    def width(self) -> int | None:
        """Number of columns of the matrix."""
        return len(self.coef)

    @property
    def classes_given(self) -> int | None:
        """Number of classes of the link; None for one number."""
        return _classes_of(self.intercept, self.link)

    def predict(self, X: Floats) -> Floats:
        """Return the linked linear form of each row."""
        return _linked(_form(X, self.coef) + self.intercept, self.link)

    def rescaled(self, level: float, unit: float) -> Member:
        """Return the member for labels ``level + unit y``; an exponential has no level."""
        if self.link == "identity":
            return LinearMember(unit * self.coef, level + unit * self.intercept, self.link)
        if self.link == "exp" and level == 0.0:
            return replace(self, intercept=self.intercept + math.log(unit))
        return super().rescaled(level, unit)


NODES: Mapping[str, Array] = {
    "feature": Array("<i4", ("nodes",), 0),
    "threshold": Array("<f8", ("nodes",), -np.inf, np.inf),
    "left": Array("<i4", ("nodes",), 0),
    "right": Array("<i4", ("nodes",), 0),
    "value": Array("<f8", ("nodes",)),
    "missing_left": Array("|b1", ("nodes",)),
}
"""Arrays with an entry per node. A leaf is its own left and right child."""


@dataclass(frozen=True, eq=False)
class TreesMember(Member):
    """Sums of regression trees."""

    kind: ClassVar[str] = "trees"
    sees_gaps: ClassVar[bool] = True
    parts: ClassVar[Mapping[str, Part]] = {
        "link": LINK,
        "features": Setting(whole()),
        "nodes": Inner(dict, NODES),
        "roots": Array("<i8", ("trees",), 0),
        "classes": Array("<i8", ("trees",), 0),
        "baseline": Array("<f8", (None,)),
    }
    nodes: Arrays
    """Name of ``NODES`` -> array with an entry per node, trees end to end; children are numbers of nodes."""
    roots: Ints
    """Number of the first node of each tree, shape (T,)."""
    classes: Ints
    """Which sum a tree adds to, shape (T,)."""
    baseline: Floats
    """Start of the sums, shape (m,)."""
    features: int
    link: Link

    @property
    def sound(self) -> bool:
        """Whether its nodes are trees, so every walk ends in a leaf, and look at columns that there are."""
        nodes = self.nodes
        inside = (nodes["feature"] < self.features).all() and (self.classes < self.baseline.size).all()
        return bool(inside and _are_sums(self.baseline, self.link)) and _are_trees(
            nodes["left"], nodes["right"], self.roots
        )

    @property
    def width(self) -> int | None:
        """Number of columns of the matrix."""
        return self.features

    @property
    def classes_given(self) -> int | None:
        """Number of classes of the link; None for one number."""
        return _classes_of(self.baseline, self.link)

    def predict(self, X: Floats) -> Floats:
        """Return the linked sums of the trees; NaN in X is a missing number."""
        return _linked(self._sums_of_row(X[0]) if len(X) == 1 else self.sums(X), self.link)

    def rescaled(self, level: float, unit: float) -> Member:
        """Return the member for labels ``level + unit y``; an exponential has no level."""
        if self.link == "identity":
            nodes = {**self.nodes, "value": unit * self.nodes["value"]}
            return replace(self, nodes=nodes, baseline=level + unit * self.baseline)
        if self.link == "exp" and level == 0.0:
            return replace(self, baseline=self.baseline + math.log(unit))
        return super().rescaled(level, unit)

    def sums(self, X: Floats) -> Floats:
        """Return the sums of the trees, shape (n, m), before the link."""
        step = max(1, CHUNK // max(1, X.shape[1]))
        return np.concatenate([self._sums(X[i : i + step]) for i in range(0, max(len(X), 1), step)])

    def _sums(self, X: Floats) -> Floats:
        """Return the sums of rows, shape (n, m), trees added in the order they were fitted in.

        All rows take a step down a tree at a time. A missing number is never below a threshold, so it goes right. Where
        the matrix has gaps, it is laid out twice, the second time with minus infinity for them, and nodes that send
        missing numbers left look there.
        """
        nodes, out, gaps = self.nodes, np.tile(self.baseline, (len(X), 1)), np.isnan(X)
        column = nodes["feature"].astype(np.intp)
        if gaps.any():
            column += X.shape[1] * nodes["missing_left"]
            X = np.hstack([X, np.where(gaps, -np.inf, X)])
        # right and left child of node i at 2 i and 2 i + 1
        children = np.column_stack([nodes["right"], nodes["left"]]).astype(np.intp).ravel()
        flat, starts = X.ravel(), np.arange(len(X)) * X.shape[1]
        for root, k in zip(self.roots, self.classes, strict=True):
            child = np.full(len(X), root, dtype=np.intp)
            at = child - 1
            while not np.array_equal(child, at):
                at = child
                left = flat.take(column.take(at) + starts) <= nodes["threshold"].take(at)
                child = children.take(2 * at + left)
            out[:, k] += nodes["value"].take(at)
        return out

    def _sums_of_row(self, x: Floats) -> Floats:
        """Return the sums of one row, shape (1, m): one tree after the other, in plain numbers."""
        entries = x.tolist()
        entries += [-math.inf if entry != entry else entry for entry in entries]
        out = self.baseline.tolist()
        for k, root in self._nested:
            node = root
            while type(node) is tuple:
                column, threshold, left, right = node
                node = left if entries[column] <= threshold else right
            out[k] += node
        return np.array([out])

    @cached_property
    def _nested(self) -> list[tuple[int, Any]]:
        """Each tree's sum and root: a leaf is its value, an inner node has column, threshold, left and right node.

        A node that sends missing numbers left looks at a second copy of the columns, as :meth:`_sums` does.
        """
        nodes = self.nodes
        column = (nodes["feature"] + self.features * nodes["missing_left"].astype(np.int64)).tolist()
        threshold, value = nodes["threshold"].tolist(), nodes["value"].tolist()
        left, right = nodes["left"].tolist(), nodes["right"].tolist()
        levels = [[at for at in self.roots.tolist() if left[at] != at]]
        while levels[-1]:
            below = (child for at in levels[-1] for child in (left[at], right[at]))
            levels.append([child for child in below if left[child] != child])
        made: list[Any] = value
        for level in reversed(levels):
            for at in level:
                made[at] = (column[at], threshold[at], made[left[at]], made[right[at]])
        return [(k, made[root]) for k, root in zip(self.classes.tolist(), self.roots.tolist(), strict=True)]


@dataclass(frozen=True, eq=False)
class NetworkMember(Member):
    """A network with one hidden layer: ``sigmoid(max(X hidden + hidden_bias, 0) out + out_bias)``."""

    kind: ClassVar[str] = "network"
    parts: ClassVar[Mapping[str, Part]] = {
        "hidden": Array("<f8", (None, "hidden")),
        "hidden_bias": Array("<f8", ("hidden",)),
        "out": Array("<f8", ("hidden",)),
        "out_bias": Array("<f8", (1,)),
    }

    hidden: Floats
    hidden_bias: Floats
    """Shapes (d, h) and (h,)."""
    out: Floats
    out_bias: Floats
    """Shapes (h,) and (1,)."""

    @property
    def width(self) -> int | None:
        """Number of columns of the matrix."""
        return len(self.hidden)

    @property
    def classes_given(self) -> int | None:
        """None: it gives one probability."""
        return None

    def predict(self, X: Floats) -> Floats:
        """Return the probability of each row."""
        return _linked(self._sums(X, self.out[:, None]), "sigmoid")

    def _sums(self, X: Floats, out: Floats) -> Floats:
        """Return the sums of the last layer, shape (n, m), of weights ``out``, (h, m)."""
        step = max(1, CHUNK // (8 * len(out)))
        sums = []
        for i in range(0, max(len(X), 1), step):
            inner = np.maximum(_form(X[i : i + step], self.hidden) + self.hidden_bias, 0.0)
            sums.append(_form(inner, out))
        return np.concatenate(sums) + self.out_bias


@dataclass(frozen=True, eq=False)
class ClassNetworkMember(NetworkMember):
    """A network with one hidden layer: ``softmax(max(X hidden + hidden_bias, 0) out + out_bias)``.

    ``out`` has the shape (h, K), and ``out_bias`` (K,).
    """

    kind: ClassVar[str] = "class_network"
    parts: ClassVar[Mapping[str, Part]] = {
        **NetworkMember.parts,
        "out": Array("<f8", ("hidden", "classes")),
        "out_bias": Array("<f8", ("classes",)),
    }

    @property
    def sound(self) -> bool:
        """Whether there are classes."""
        return self.out_bias.size > 0

    @property
    def classes_given(self) -> int | None:
        """Number of classes whose probabilities a row gets."""
        return self.out_bias.size

    def predict(self, X: Floats) -> Floats:
        """Return the probabilities of the classes, shape (n, K)."""
        return _linked(self._sums(X, self.out), "softmax")


@dataclass(frozen=True, eq=False)
class OnnxMember(Member):
    """``level + unit`` times what a graph of ONNX gives of each row; or chances, as they are.

    Operators that are known, and no code: onnxruntime runs them. What a row gets is independent of the other rows:
    rows are taken :data:`ROWS_OF_RUN` at a time, the last ones filled up with zeros, since products of matrices round
    in another way where there are fewer rows.
    """

    kind: ClassVar[str] = "onnx"
    parts: ClassVar[Mapping[str, Part]] = {
        "graph": Array("|u1", (None,)),
        "features": Setting(whole(1)),
        "type": Setting(one_of(*FLOATS_OF_GRAPH)),
        "classes": Setting(whole()),
        "chance": Setting(truth),
        "level": Setting(real()),
        "unit": Setting(real()),
    }
    graph: npt.NDArray[np.uint8]
    """The bytes of the file, shape (b,)."""
    features: int
    type: str
    """Type of the input: a name of :data:`FLOATS_OF_GRAPH`."""
    classes: int
    """Number of classes whose probabilities the graph gives; 0 where it gives a number."""
    chance: bool
    """Whether the chance of the last class alone is asked for."""
    level: float = 0.0
    unit: float = 1.0

    @property
    def sound(self) -> bool:
        """Whether it gives what it says; the graph itself is opened when rows are to be predicted."""
        return self.graph.size > 0 and self.classes != 1 and (self.classes > 1 or not self.chance)

    @property
    def width(self) -> int | None:
        """Number of columns of the matrix."""
        return self.features

    @property
    def classes_given(self) -> int | None:
        """Number of classes; None for one number."""
        return self.classes if self.classes and not self.chance else None

    @cached_property
    def _session(self) -> Any:
        from fairfix.models.onnx_model import opened

        try:
            return opened("of a fitted learner", self.graph.tobytes())[1]
        except ModelError:
            raise
        except Exception as error:  # of many kinds, of protobuf and of onnxruntime
            raise _unusable(error) from error

    def predict(self, X: Floats) -> Floats:
        """Return what the graph gives of each row; a ModelError where it cannot be run or gives something else."""
        output = self._session.get_outputs()[-1 if self.classes else 0].name
        wide = max(1, self.classes)
        out = np.empty((len(X), wide))
        block = np.zeros((ROWS_OF_RUN, self.features), dtype=FLOATS_OF_GRAPH[self.type])
        for i in range(0, len(X), ROWS_OF_RUN):
            rows = X[i : i + ROWS_OF_RUN]
            block[: len(rows)], block[len(rows) :] = rows, 0.0
            try:
                given = np.asarray(self._session.run([output], {INPUT_OF_GRAPH: block})[0], dtype=np.float64)
                out[i : i + ROWS_OF_RUN] = given.reshape(ROWS_OF_RUN, wide)[: len(rows)]
            except Exception as error:
                raise _unusable(error) from error
        if self.classes and not self.chance:
            return out
        return self.level + self.unit * out[:, -1]

    def rescaled(self, level: float, unit: float) -> Member:
        """Return the member for labels ``level + unit y``."""
        if self.classes:
            return super().rescaled(level, unit)
        return replace(self, level=level + unit * self.level, unit=unit * self.unit)


def _unusable(error: Exception) -> ModelError:
    """Return the error of a graph that cannot be run."""
    return ModelError(
        f"the graph of a fitted learner cannot be run: {shortened(str(error), 200)}; repair again"
    )


def _are_sums(start: Floats, link: Link) -> bool:
    """Tell whether there are as many sums as a link needs: one, but for those of several classes."""
    return start.size == 1 or (link in ("softmax", "shares") and start.size > 0)


def _classes_of(start: Floats, link: Link) -> int | None:
    """Return how many classes a link gives probabilities of; None where it gives one number."""
    several = start.size if link == "softmax" or start.size > 1 else None
    return {"pair": 2, "softmax": several, "shares": several}.get(link)


def _are_trees(left: Ints, right: Ints, roots: Ints) -> bool:
    """Tell whether roots have no parent and all other nodes one: a walk from a root then never comes back.

    No tree may be deeper than :data:`DEEPEST_TREE`.
    """
    many = left.size
    if any((nodes >= many).any() for nodes in (left, right, roots)):
        return False
    inner = (left != np.arange(many)) | (right != np.arange(many))
    above = np.concatenate([left[inner], right[inner], roots])
    if not (np.bincount(above, minlength=many) == 1).all():
        return False
    level = roots
    for _ in range(DEEPEST_TREE):
        level = level[inner[level]]
        level = np.concatenate([left[level], right[level]])
    return not level.size


def _linked(sums: Floats, link: Link) -> Floats:
    """Return what the link makes of sums of shape (n, m)."""
    if link == "identity":
        return np.ascontiguousarray(sums[:, 0])
    if link == "exp":
        return np.exp(np.minimum(sums[:, 0], HIGHEST))
    if link == "shares":
        return shares_of(sums)
    from scipy.special import expit, softmax

    if link == "softmax":
        return np.asarray(softmax(sums, axis=1))
    chance = expit(sums[:, 0])
    return np.asarray(chance if link == "sigmoid" else np.stack([1.0 - chance, chance], axis=1))


def shares_of(sums: Floats) -> Floats:
    """Return sums of shape (n, m) moved into [0, 1]: shape (n,) for m = 1, else scaled to add up to 1, (n, m)."""
    if sums.shape[1] == 1:
        return np.clip(sums[:, 0], 0.0, 1.0)
    shares = np.maximum(sums, 0.0)
    total, out = shares.sum(axis=1, keepdims=True), np.full_like(shares, 1.0 / shares.shape[1])
    np.divide(shares, total, out=out, where=total > 0.0)
    return out
