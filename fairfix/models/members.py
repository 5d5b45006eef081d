"""Members: fitted models kept as arrays and evaluated here, so an artifact holds data and no code.

A member takes a matrix of features, shape (n, d), and gives a number or class probabilities per row. The fitting is in
:mod:`fairfix.models.learners`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from fairfix.data.codec import Array, Arrays, Part, Saved, Setting, one_of, whole
from fairfix.data.counts import Floats, Ints

Link = Literal["identity", "sigmoid", "pair", "softmax"]
"""What becomes of the sums: nothing, a probability, that of both classes, those of several classes."""

LINK = Setting(one_of("identity", "sigmoid", "pair", "softmax"))

CHUNK = 1 << 20
"""Entries of the matrix that trees are evaluated for at once."""


class Member(Saved):
    """A fitted model: a matrix of features in, a number or class probabilities per row out.

    A kind is a subclass with a ``kind`` of its own; it is found by it when an artifact is loaded.
    """

    kinds: ClassVar[dict[str, type[Member]]] = {}
    sees_gaps: ClassVar[bool] = False
    """Whether missing numbers are NaN to it."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "kind" in cls.__dict__:
            Member.kinds[cls.kind] = cls

    @property
    def width(self) -> int | None:
        """Number of columns of the matrix; None where any will do."""
        return None

    @abstractmethod
    def predict(self, X: Floats) -> Floats:
        """Return the predictions for rows of shape (n, d): shape (n,), or (n, K) for probabilities of K classes."""


@dataclass(frozen=True, eq=False)
class ConstantMember(Member):
    """The same value for every row.

    Attributes
    ----------
    value
        Shape (1,), or (K,) for probabilities of classes.
    """

    kind: ClassVar[str] = "constant"
    parts: ClassVar[Mapping[str, Part]] = {"value": Array("<f8", (None,))}
    value: Floats

    @property
    def sound(self) -> bool:
        """Whether there is a value."""
        return self.value.size > 0

    def predict(self, X: Floats) -> Floats:
        """Return the value for each row."""
        whole = np.broadcast_to(self.value, (len(X), self.value.size))
        return whole[:, 0].copy() if self.value.size == 1 else whole.copy()


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
    parts: ClassVar[Mapping[str, Part]] = {
        "link": LINK,
        "coef": Array("<f8", (None, "sums")),
        "intercept": Array("<f8", ("sums",)),
    }
    coef: Floats
    intercept: Floats
    link: Link

    @property
    def sound(self) -> bool:
        """Whether the link has as many sums as it needs."""
        return _are_sums(self.intercept, self.link)

    @property
    def width(self) -> int | None:
        """Number of columns of the matrix."""
        return len(self.coef)

    def predict(self, X: Floats) -> Floats:
        """Return the linked linear form of each row."""
        return _linked(_form(X, self.coef) + self.intercept, self.link)


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
    """Sums of regression trees.

    Attributes
    ----------
    nodes
        Name of ``NODES`` -> array with an entry per node, trees end to end; children are numbers of nodes.
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
    sees_gaps: ClassVar[bool] = True
    parts: ClassVar[Mapping[str, Part]] = {
        "link": LINK,
        "features": Setting(whole()),
        **NODES,
        "roots": Array("<i8", ("trees",), 0),
        "classes": Array("<i8", ("trees",), 0),
        "baseline": Array("<f8", (None,)),
    }
    nodes: Arrays
    roots: Ints
    classes: Ints
    baseline: Floats
    features: int
    link: Link

    def held(self) -> Mapping[str, Any]:
        """Return the value of every part."""
        return {name: getattr(self, name) for name in self.parts if name not in NODES} | dict(self.nodes)

    @classmethod
    def made_of(cls, held: Mapping[str, Any]) -> TreesMember:
        """Return what has these values of its parts."""
        own = {name: value for name, value in held.items() if name not in NODES}
        return cls(nodes={name: held[name] for name in NODES}, **own)

    @property
    def sound(self) -> bool:
        """Whether its nodes are trees, so every walk ends in a leaf, and look at columns that there are."""
        return (
            _are_sums(self.baseline, self.link)
            and bool(
                (self.nodes["feature"] < self.features).all() and (self.classes < self.baseline.size).all()
            )
            and _are_trees(self.nodes["left"], self.nodes["right"], self.roots)
        )

    @property
    def width(self) -> int | None:
        """Number of columns of the matrix."""
        return self.features

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
    parts: ClassVar[Mapping[str, Part]] = {
        "hidden": Array("<f8", (None, "hidden")),
        "hidden_bias": Array("<f8", ("hidden",)),
        "out": Array("<f8", ("hidden",)),
        "out_bias": Array("<f8", (1,)),
    }

    hidden: Floats
    hidden_bias: Floats
    out: Floats
    out_bias: Floats

    @property
    def width(self) -> int | None:
        """Number of columns of the matrix."""
        return len(self.hidden)

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


def _are_sums(start: Floats, link: Link) -> bool:
    """Tell whether there are as many sums as a link needs: one, but for the softmax."""
    return start.size == 1 or (link == "softmax" and start.size > 0)


def _are_trees(left: Ints, right: Ints, roots: Ints) -> bool:
    """Tell whether roots have no parent and all other nodes one: a walk from a root then never comes back."""
    many = left.size
    if any((nodes >= many).any() for nodes in (left, right, roots)):
        return False
    inner = (left != np.arange(many)) | (right != np.arange(many))
    above = np.concatenate([left[inner], right[inner], roots])
    return bool((np.bincount(above, minlength=many) == 1).all())


def _linked(sums: Floats, link: Link) -> Floats:
    """Return what the link makes of sums of shape (n, m)."""
    if link == "identity":
        return np.ascontiguousarray(sums[:, 0])
    from scipy.special import expit, softmax

    if link == "softmax":
        return np.asarray(softmax(sums, axis=1))
    chance = expit(sums[:, 0])
    return np.asarray(chance if link == "sigmoid" else np.stack([1.0 - chance, chance], axis=1))


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
