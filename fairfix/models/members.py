"""Members: fitted models kept as arrays, so an artifact holds data and no code.

A member takes a matrix of features, shape (n, d), and gives a number or class probabilities per row. It writes what it
computes once, as a program (:mod:`fairfix.models.program`). The fitting is in :mod:`fairfix.models.learners`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from fairfix.data.codec import Array, Arrays, Inner, Saved, Setting, shortened
from fairfix.data.counts import Floats, Ints
from fairfix.errors import ModelError
from fairfix.models.array_interpreter import run
from fairfix.models.program import Program

Link = Literal["identity", "exp", "sigmoid", "pair", "softmax", "shares"]
"""Links of the sums: none, a mean of counts, a probability, that of both classes, those of several classes. For sums
that are probabilities already, or nearly: one, or those of several classes."""

HIGHEST = 700.0
"""Largest exponent that is taken: a bit more is beyond all floats."""

DEEPEST_TREE = 1000
"""Largest depth of a tree, since all rows wait for each step; fitted trees have some 30 leaves."""

MOST_SUMS = 1 << 14
"""Classes or hidden units that a fitted model may have: each has steps of its own, some 2 KB of memory."""

ROWS_OF_RUN = 256
"""Rows of one run of a graph: a whole number of the blocks that kernels take, and few, as one row costs as many."""

INPUT_OF_GRAPH = "features"
"""Name of the input of a graph."""

FloatOfGraph = Literal["double", "float"]
FLOATS_OF_GRAPH: Mapping[FloatOfGraph, Any] = {"double": np.float64, "float": np.float32}
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
    def write(self, program: Program, X: Sequence[int]) -> int:
        """Write what a row with these columns gets: a number, or the stack of the probabilities of classes."""

    def predict(self, X: Floats) -> Floats:
        """Return the predictions for rows of shape (n, d): shape (n,), or (n, K) for probabilities of K classes."""
        return on_matrix(self.write, X)

    def rescaled(self, level: float, unit: float) -> Member:
        """Return the member for labels ``level + unit y`` of one fitted to ``y``; probabilities stay as they are."""
        assert (level, unit) == (0.0, 1.0), "only a mean has a unit"
        return self


def on_matrix(write: Callable[[Program, Sequence[int]], int], X: Floats) -> Floats:
    """Return what the program that is written for the columns of a matrix gives its rows, shape (n,) or (n, m)."""
    program = Program()
    rule = program.rule(write(program, [program.add("column", place=i) for i in range(X.shape[1])]))
    return run(rule, lambda step, block: X[block, step.settings["place"]], len(X))


@dataclass(frozen=True, eq=False)
class ConstantMember(Member):
    """The same value for every row."""

    kind: ClassVar[str] = "constant"
    value: Annotated[Floats, Array("<f8", (None,))]
    """Shape (1,), or (K,) for probabilities of classes."""

    @property
    def sound(self) -> bool:
        """Whether there is a value."""
        return 0 < self.value.size <= MOST_SUMS

    @property
    def classes_given(self) -> int | None:
        """Number of classes; None where there is one value."""
        return None if self.value.size == 1 else self.value.size

    def write(self, program: Program, X: Sequence[int]) -> int:
        """Write the value."""
        constants = [program.constant(one) for one in self.value.tolist()]
        return constants[0] if self.classes_given is None else program.stack(constants)

    def rescaled(self, level: float, unit: float) -> Member:
        """Return the member for labels ``level + unit y``."""
        return ConstantMember(level + unit * self.value)


def _forms(program: Program, X: Sequence[int], coef: Floats, shift: Floats) -> list[int]:
    """Write ``X coef + shift``, added column by column: what a row gets is independent of the other rows."""
    return [
        program.add("add", program.dot(X, weights), program.constant(one))
        for weights, one in zip(coef.T, shift.tolist(), strict=True)
    ]


@dataclass(frozen=True, eq=False)
class LinearMember(Member):
    """``link(X coef + intercept)``."""

    kind: ClassVar[str] = "linear"
    coef: Annotated[Floats, Array("<f8", (None, "sums"))]
    intercept: Annotated[Floats, Array("<f8", ("sums",))]
    """Shapes (d, m) and (m,)."""
    link: Annotated[Link, Setting()]

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

    def write(self, program: Program, X: Sequence[int]) -> int:
        """Write the linked linear form."""
        return _linked(program, _forms(program, X, self.coef, self.intercept), self.link)

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
    nodes: Annotated[Arrays, Inner(dict, NODES)]
    """Name of ``NODES`` -> array with an entry per node, trees end to end; children are numbers of nodes."""
    roots: Annotated[Ints, Array("<i8", ("trees",), 0)]
    """Number of the first node of each tree, shape (T,)."""
    classes: Annotated[Ints, Array("<i8", ("trees",), 0)]
    """Which sum a tree adds to, shape (T,)."""
    baseline: Annotated[Floats, Array("<f8", (None,))]
    """Start of the sums, shape (m,)."""
    features: Annotated[int, Meta(ge=0), Setting()]
    link: Annotated[Link, Setting()]

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

    def write(self, program: Program, X: Sequence[int]) -> int:
        """Write the linked sums of the trees."""
        return _linked(program, self._sums(program, X), self.link)

    def _sums(self, program: Program, X: Sequence[int]) -> list[int]:
        """Write the sums, trees added in the order they were fitted in."""
        each = enumerate(self.baseline.tolist())
        roots = [(self.roots[self.classes == k].tolist(), start) for k, start in each]
        return [program.add("trees", *X, start=start, roots=own, **self.nodes) for own, start in roots]

    def sums(self, X: Floats) -> Floats:
        """Return the sums of the trees, shape (n, m), before the link."""
        return on_matrix(lambda program, X: program.stack(self._sums(program, X)), X)

    def rescaled(self, level: float, unit: float) -> Member:
        """Return the member for labels ``level + unit y``; an exponential has no level."""
        if self.link == "identity":
            nodes = {**self.nodes, "value": unit * self.nodes["value"]}
            return replace(self, nodes=nodes, baseline=level + unit * self.baseline)
        if self.link == "exp" and level == 0.0:
            return replace(self, baseline=self.baseline + math.log(unit))
        return super().rescaled(level, unit)


@dataclass(frozen=True, eq=False)
class NetworkMember(Member):
    """A network with one hidden layer: ``link(max(X hidden + hidden_bias, 0) out + out_bias)``."""

    kind: ClassVar[str] = "network"

    hidden: Annotated[Floats, Array("<f8", (None, "hidden"))]
    hidden_bias: Annotated[Floats, Array("<f8", ("hidden",))]
    """Shapes (d, h) and (h,)."""
    out: Annotated[Floats, Array("<f8", ("hidden", "sums"))]
    out_bias: Annotated[Floats, Array("<f8", ("sums",))]
    """Shapes (h, m) and (m,)."""
    link: Annotated[Link, Setting()]

    @property
    def sound(self) -> bool:
        """Whether the link has as many sums as it needs, and there are not too many hidden units."""
        return _are_sums(self.out_bias, self.link) and self.hidden_bias.size <= MOST_SUMS

    @property
    def width(self) -> int | None:
        """Number of columns of the matrix."""
        return len(self.hidden)

    @property
    def classes_given(self) -> int | None:
        """Number of classes of the link; None for one number."""
        return _classes_of(self.out_bias, self.link)

    def write(self, program: Program, X: Sequence[int]) -> int:
        """Write the linked sums of the hidden units."""
        zero, sums = program.constant(0.0), _forms(program, X, self.hidden, self.hidden_bias)
        inner = [program.add("maximum", one, zero) for one in sums]
        return _linked(program, _forms(program, inner, self.out, self.out_bias), self.link)


@dataclass(frozen=True, eq=False)
class OnnxMember(Member):
    """``level + unit`` times what a graph of ONNX gives of each row; or chances, as they are.

    Operators that are known, and no code: onnxruntime runs them. What a row gets is independent of the other rows:
    rows are taken :data:`ROWS_OF_RUN` at a time, the last ones filled up with zeros, since products of matrices round
    in another way where there are fewer rows.
    """

    kind: ClassVar[str] = "onnx"
    graph: Annotated[npt.NDArray[np.uint8], Array("|u1", (None,))]
    """The bytes of the file, shape (b,)."""
    features: Annotated[int, Meta(ge=1), Setting()]
    type: Annotated[FloatOfGraph, Setting()]
    """Type of the input: a name of :data:`FLOATS_OF_GRAPH`."""
    classes: Annotated[int, Meta(ge=0), Setting()]
    """Number of classes whose probabilities the graph gives; 0 where it gives a number."""
    chance: Annotated[bool, Setting()]
    """Whether the chance of the last class alone is asked for."""
    level: Annotated[float, Setting()] = 0.0
    unit: Annotated[float, Setting()] = 1.0

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

    def write(self, program: Program, X: Sequence[int]) -> int:
        """Write the graph as one step, which no other system has."""
        return program.add("graph", *X, member=self)

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
    return start.size == 1 or (link in ("softmax", "shares") and 0 < start.size <= MOST_SUMS)


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


def _linked(program: Program, sums: Sequence[int], link: Link) -> int:
    """Write what the link makes of sums: a number, or the stack of the probabilities of classes."""
    first, zero, one = sums[0], program.constant(0.0), program.constant(1.0)
    match link:
        case "identity":
            return first
        case "exp":
            return program.add("exp", program.add("minimum", first, program.constant(HIGHEST)))
        case "sigmoid":
            return program.add("expit", first)
        case "pair":
            chance = program.add("expit", first)
            return program.stack([program.add("subtract", one, chance), chance])
        case "shares" if len(sums) == 1:
            return program.clip(first, 0.0, 1.0)
        case "shares":
            parts = [program.add("maximum", each, zero) for each in sums]
            total = program.total(parts)
            empty = program.add("at_most", total, zero)
            divisor = program.add("choose", empty, one, total)  # of all branches, some systems compute each
            alike = program.constant(1.0 / len(parts))
            divided = (program.add("divide", each, divisor) for each in parts)
            return program.stack([program.add("choose", empty, alike, each) for each in divided])
        case "softmax":
            most = first
            for each in sums[1:]:
                most = program.add("maximum", most, each)
            powers = [program.add("exp", program.add("subtract", each, most)) for each in sums]
            total = program.total(powers)
            return program.stack([program.add("divide", each, total) for each in powers])
