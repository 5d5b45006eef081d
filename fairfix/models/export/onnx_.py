"""A program as an ONNX model of doubles: one input per column, one output with a number per row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fairfix.data.canonical import spellings
from fairfix.errors import UsageError
from fairfix.models.program import Step, names_of

OPSETS = {"": 18, "ai.onnx.ml": 3}
"""Versions of the operators: the first in which all that is used here takes doubles, read by runtimes since 2023."""

FORMAT = 8
"""Version of the file format that belongs to these operators."""


def model(steps: Sequence[Step], result: int, name: str, inputs: Mapping[str, str], *, drawn: bool) -> bytes:
    """Return the bytes of a model.

    Inputs of kind ``text`` are strings, with ``(missing)`` for a missing one, in one of the usual spellings of
    :func:`fairfix.data.canonical.spellings`; all others are doubles: NaN for missing, 0 and 1 for truth values. With
    ``drawn`` there is an input ``fairfix_draw``. Shape of each: (n,).
    """
    try:
        import onnx
        from onnx import TensorProto, helper
    except ImportError:
        raise UsageError(
            "`to=onnx` needs the package onnx, which is not installed: pip install 'fairfix[onnx]'"
        ) from None
    if not inputs:
        raise UsageError(
            "`to=onnx`: this rule reads no column, so an ONNX model of it has no rows; use python or json"
        )
    types = {"text": TensorProto.STRING}
    kinds = {**inputs, **({"fairfix_draw": "number"} if drawn else {})}
    entries = [
        helper.make_tensor_value_info(column, types.get(kind, TensorProto.DOUBLE), ["rows"])
        for column, kind in kinds.items()
    ]
    writer = _OnnxWriter(next(iter(inputs)))
    for step in steps:
        writer.add_step(step)
    writer.spread(writer.names[result], name)
    output = helper.make_tensor_value_info(name, TensorProto.DOUBLE, ["rows"])
    graph = helper.make_graph(writer.nodes, "fairfix", entries, [output], writer.constants)
    opsets = [helper.make_opsetid(domain, version) for domain, version in OPSETS.items()]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=FORMAT, producer_name="fairfix")
    onnx.checker.check_model(made)
    return bytes(made.SerializeToString())


class _OnnxWriter:
    """Nodes and constants of a graph under construction."""

    def __init__(self, column: str) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.names: list[str] = []
        self.column = column

    def constant(self, array: npt.ArrayLike) -> str:
        """Return the name of an array."""
        from onnx import numpy_helper

        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(array), name))
        return name

    def node(self, kind: str, *of: str, output: str | None = None, **settings: Any) -> str:
        """Return the name of what a new node gives."""
        from onnx import helper

        name = output or f"node_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, of, [name], **settings))
        return name

    def cast(self, of: str, kind: str = "DOUBLE") -> str:
        """Return the name of an array in another type."""
        from onnx import TensorProto

        return self.node("Cast", of, to=getattr(TensorProto, kind))

    def spread(self, of: str, name: str) -> None:
        """Name a result, with an entry per row also where it is the same for all."""
        self.node("Expand", of, self.node("Shape", self.column), output=name)

    def matrix(self, of: Sequence[str]) -> str:
        """Return the name of the matrix of some columns, shape (n, d)."""
        rows = self.node("Shape", self.column)
        side = self.constant(np.array([1], dtype=np.int64))
        columns = [self.node("Unsqueeze", self.node("Expand", one, rows), side) for one in of]
        return self.node("Concat", *columns, axis=1)

    def add_step(self, step: Step) -> None:
        """Add the nodes of a step."""
        of = [self.names[one] for one in step.of]
        self.names.append(self._made(step, of))

    def _made(self, step: Step, of: list[str]) -> str:
        own = step.settings
        if step.operation in _NODES:
            return self.node(_NODES[step.operation], *of)
        match step.operation:
            case "number":
                return self.node("Identity", own["column"])
            case "level":
                named = enumerate(names_of(own))
                ways = [(text, i) for i, names in named for one in names for text in spellings(one)]
                places = self.node(
                    "LabelEncoder",
                    own["column"],
                    domain="ai.onnx.ml",
                    keys_strings=[text for text, _ in ways],
                    values_int64s=[i for _, i in ways],
                    default_int64=-1,
                )
                return self.cast(places)
            case "draw":
                return self.node("Identity", "fairfix_draw")
            case "constant":
                return self.constant(np.float64(own["value"]))
            case "dot":
                weights = self.constant(np.array(own["weights"], dtype=np.float64))
                return self.node("MatMul", self.matrix(of), weights)
            case "minimum" | "maximum":
                beyond = self.node("Greater" if step.operation == "minimum" else "Less", *of)
                gone = self.node("IsNaN", of[1])
                return self.node("Where", self.node("Or", beyond, gone), of[1], of[0])
            case "search":
                grid = self.constant(np.array(own["grid"], dtype=np.float64))
                below = self.node("LessOrEqual" if own["right"] else "Less", grid, self.matrix(of))
                side = self.constant(np.array([1], dtype=np.int64))
                return self.node("ReduceSum", self.cast(below), side, keepdims=0)
            case "take":
                numbers = self.constant(np.array(own["numbers"], dtype=np.float64))
                return self.node("Gather", numbers, self.cast(of[0], "INT64"))
            case "trees":
                return self._trees(own, of)
            case _:
                raise AssertionError(step.operation)

    def _trees(self, own: Mapping[str, Any], of: Sequence[str]) -> str:
        """Add the walk down all trees at once, a level at a time."""
        X = self.matrix(of)
        whole = {name: np.array(own[name], dtype=np.int64) for name in ("feature", "left", "right")}
        feature, left, right = (self.constant(array) for array in whole.values())
        threshold, leaf = (
            self.constant(np.array(own[name], dtype=np.float64)) for name in ("threshold", "value")
        )
        gaps_left = self.constant(np.array(own["missing_left"], dtype=bool))
        rows = self.node("Shape", self.column)
        side = self.constant(np.array([1], dtype=np.int64))
        roots = np.array([own["roots"]], dtype=np.int64)
        shape = self.node("Concat", rows, self.constant(np.array([roots.size], dtype=np.int64)), axis=0)
        at = self.node("Expand", self.constant(roots), shape)
        for _ in range(_depth(whole["left"], whole["right"], roots[0])):
            entry = self.node("GatherElements", X, self.node("Gather", feature, at), axis=1)
            below = self.node("LessOrEqual", entry, self.node("Gather", threshold, at))
            gone = self.node("And", self.node("IsNaN", entry), self.node("Gather", gaps_left, at))
            children = self.node("Gather", left, at), self.node("Gather", right, at)
            at = self.node("Where", self.node("Or", below, gone), *children)
        total = self.node("ReduceSum", self.node("Gather", leaf, at), side, keepdims=0)
        return self.node("Add", total, self.constant(np.float64(own["start"])))


_NODES = {
    "add": "Add",
    "subtract": "Sub",
    "multiply": "Mul",
    "divide": "Div",
    "exp": "Exp",
    "log": "Log",
    "below": "Less",
    "at_most": "LessOrEqual",
    "equal": "Equal",
    "is_missing": "IsNaN",
    "choose": "Where",
}


def _depth(left: npt.NDArray[np.int64], right: npt.NDArray[np.int64], roots: npt.NDArray[np.int64]) -> int:
    """Return the most steps from a root to a leaf."""
    depth, at = 0, np.unique(roots)
    while (left[at] != at).any():
        at = np.unique(np.concatenate([left[at], right[at]]))
        depth += 1
    return depth
