"""An ONNX model as an estimator: what :mod:`fairfix.models.user_file` asks a loaded object for; and the way back.

An ONNX file is a graph of known operators and runs no code of its own. It is read from the bytes that were hashed, and
refused where it keeps weights in other files, which nobody has hashed. It runs in one thread on the processor.

What the graph says and what it means here::

    one input of d columns         a matrix; the columns are named by ``features``
    several inputs, or one of one  a column each, by the names of the inputs
    map or matrix with a label     P(y = c | x), c from the labels that the operators of the graph carry
    a label alone                  the decision
    one number                     the value
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairfix.data.counts import Floats
from fairfix.errors import ModelError
from fairfix.models.members import FLOATS_OF_GRAPH, INPUT_OF_GRAPH, OnnxMember

TYPES: Mapping[str, Any] = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
    "tensor(string)": np.object_,
}
"""Types of inputs that are known."""

LABELS = ("classlabels_strings", "classlabels_int64s", "classlabels_ints")
"""Attributes of operators that name the classes."""


@dataclass(frozen=True)
class Input:
    """An input of the graph: its name, how many columns it takes, and their type."""

    name: str
    width: int | None
    type: Any


class OnnxModel:
    """The model of a file, with ``feature_names_in_`` or ``n_features_in_``, and ``classes_`` of a classifier."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        graph, self._session = opened(path, data)
        self._inputs = [_input(path, one) for one in self._session.get_inputs()]
        outputs = self._session.get_outputs()
        if not outputs:
            raise ModelError(f"model file {path} has no output")
        if len(self._inputs) > 1 or self._inputs[0].width == 1:
            self.feature_names_in_ = tuple(one.name for one in self._inputs)
        elif self._inputs[0].width is not None:
            self.n_features_in_ = self._inputs[0].width
        matrix = ("tensor(float)", "tensor(double)")
        may_be = [
            o for o in outputs if o.type.startswith("seq(map(") or (o.type in matrix and len(o.shape) == 2)
        ]
        probabilities = may_be[0] if may_be else None
        labels = next((one for one in outputs if one.type in ("tensor(int64)", "tensor(string)")), None)
        if labels is not None and (probabilities is not None or len(outputs) == 1):
            self.classes_ = _classes(path, graph, labels)
        self._output = (probabilities or labels or outputs[0]).name
        is_map = probabilities is not None and probabilities.type.startswith("seq(")
        self._read: Callable[[Any], NDArray[Any]] = self._of_maps if is_map else np.asarray
        if labels is not None and probabilities is not None:
            self.predict_proba = self._answer
        else:
            self.predict = self._answer

    def _answer(self, block: Any) -> NDArray[Any]:
        """Return the output for some rows: a frame with the input's names, or an array."""
        alone = len(self._inputs) == 1
        fed = {one.name: _tensor(block if alone else block[[one.name]], one) for one in self._inputs}
        return self._read(self._session.run([self._output], fed)[0])

    def _of_maps(self, maps: list[Mapping[Any, float]]) -> NDArray[np.float64]:
        """Return the probabilities of maps class -> probability, in the order of the classes."""
        return np.array([[row[label] for label in self.classes_] for row in maps], dtype=np.float64)


def opened(path: str, data: bytes) -> tuple[Any, Any]:
    """Return the graph, and the session that runs it."""
    try:
        import onnx
        import onnxruntime
    except ImportError:
        raise ModelError(
            f"model file {path} needs onnxruntime and onnx: pip install 'fairfix[onnx]'"
        ) from None
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    settings.log_severity_level = 4  # a failure is told once, by the exception
    model = onnx.load_model_from_string(data)
    elsewhere = next((one.name for one in _tensors(model) if one.data_location == one.EXTERNAL), None)
    if elsewhere is not None:
        raise ModelError(
            f"model file {path} keeps the weights {elsewhere!r} in another file, which `trust_model` does not cover; "
            "save it as one file, with save_as_external_data=False"
        )
    # what was checked, since the runtime reads other formats too
    checked = model.SerializeToString()
    session = onnxruntime.InferenceSession(checked, settings, providers=["CPUExecutionProvider"])
    return model.graph, session


def _tensors(message: Any) -> Iterator[Any]:
    """Yield the tensors of a model, wherever in it: of its graph, of attributes, of graphs within."""
    if type(message).__name__ == "TensorProto":
        yield message
        return
    for kind, entry in message.ListFields():
        if kind.message_type is not None:
            for one in [entry] if hasattr(entry, "ListFields") else entry:
                yield from _tensors(one)


def _input(path: str, one: Any) -> Input:
    """Return what an input takes."""
    shape = list(one.shape)
    if one.type not in TYPES or len(shape) not in (1, 2):
        raise ModelError(
            f"model file {path}: its input {one.name!r} is a {one.type} of shape {shape}; rows of columns are needed, "
            f"of {', '.join(TYPES)}"
        )
    width = shape[1] if len(shape) == 2 else 1
    return Input(one.name, width if isinstance(width, int) else None, TYPES[one.type])


def _classes(path: str, graph: Any, labels: Any) -> NDArray[Any]:
    """Return the classes that the last operator with labels names; 0 and 1 where none does and labels are numbers."""
    for node in reversed(graph.node):
        for attribute in node.attribute:
            labelled = list(attribute.strings) or list(attribute.ints)
            if attribute.name in LABELS and labelled:
                texts = [one.decode() if isinstance(one, bytes) else one for one in labelled]
                return np.array(texts)
    if labels.type == "tensor(string)":
        raise ModelError(
            f"model file {path} does not name the classes of its probabilities; convert it with a ZipMap at its "
            "end, or write its scores into a column and name it with `score`"
        )
    return np.array([0, 1])


def _tensor(part: Any, one: Input) -> NDArray[Any]:
    """Return columns in the type of an input, shape (n, width)."""
    import pandas as pd

    entries = np.asarray(part, dtype=object) if one.type is np.object_ else np.asarray(part)
    if one.type in (np.float16, np.float32, np.float64):
        return np.asarray(pd.DataFrame(entries).astype(np.float64), dtype=one.type)
    if pd.isna(entries).any():
        kind = "text" if one.type is np.object_ else np.dtype(one.type).name
        raise ValueError(f"the input {one.name!r} of type {kind} cannot hold gaps; fill them before")
    if one.type is np.object_:
        texts = [[str(entry) for entry in row] for row in entries]
        return np.array(texts, dtype=object).reshape(entries.shape)
    return np.asarray(entries, dtype=one.type)


def onnx_members(model: Any, X: Floats, *, classes: bool, chance: bool) -> Iterator[OnnxMember]:
    """Yield graphs of a fitted estimator, of numbers of 64 bits and of 32; none where nothing converts or runs it.

    ``classes``: whether it gives probabilities of classes. ``chance``: whether that of the last alone is asked for.
    """
    try:
        import onnxruntime  # noqa: F401  runs them
        import skl2onnx
    except ImportError:
        return
    many = len(model.classes_) if classes else 0
    options = {id(model): {"zipmap": False}} if classes else None
    for name, type_ in FLOATS_OF_GRAPH.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                kind = getattr(skl2onnx.common.data_types, f"{name.capitalize()}TensorType")
                inputs = [(INPUT_OF_GRAPH, kind([None, X.shape[1]]))]
                made = skl2onnx.to_onnx(model, initial_types=inputs, options=options, name="learner")
                graph = np.frombuffer(made.SerializeToString(), dtype=np.uint8).copy()
                member = OnnxMember(graph, X.shape[1], name, many, chance)
                member.predict(X[:1].astype(type_))
        except Exception:  # noqa: S112  converters and kernels fail in all ways; the next type may do
            continue
        yield member
