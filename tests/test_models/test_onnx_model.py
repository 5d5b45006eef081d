"""ONNX files as models: the scores of the model they were made of, by its names and classes, without a pin."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
from fairfix.cli import run
from fairfix.errors import ModelError
from fairfix.models.user_file import load_model
from onnx import TensorProto, helper
from skl2onnx import to_onnx
from sklearn.base import BaseEstimator
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

NUMBERS = ["age", "income"]


def people(n: int = 300, seed: int = 0) -> pd.DataFrame:
    """Two numbers and a text, in the types of the graph."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n, 2)), columns=NUMBERS).astype(np.float32)
    frame["job"] = rng.choice(["clerk", "nurse"], n)
    return frame


def outcome(frame: pd.DataFrame, classes: tuple[Any, Any]) -> np.ndarray:
    """A label of two classes that hangs on the columns."""
    rng = np.random.default_rng(1)
    high = frame["age"] + (frame["job"] == "nurse") + rng.normal(size=len(frame)) > 0.5
    return np.where(high, classes[1], classes[0])


def pipeline(last: BaseEstimator) -> Any:
    """A model of numbers and a text."""
    columns = make_column_transformer(
        (StandardScaler(), NUMBERS), (OneHotEncoder(handle_unknown="ignore"), ["job"])
    )
    return make_pipeline(columns, last)


def written(model: Any, example: Any, folder: Path, **options: Any) -> Path:
    """The file of a converted model."""
    path = folder / "model.onnx"
    path.write_bytes(to_onnx(model, example, options=options or None).SerializeToString())
    return path


@pytest.mark.parametrize("zipmap", [True, False])
@pytest.mark.parametrize("classes", [("bad", "good"), (0, 1), (1, 2)])
@pytest.mark.parametrize("last", [LogisticRegression(), RandomForestClassifier(20, random_state=0)])
def test_scores_are_those_of_the_model_it_was_made_of(
    last: BaseEstimator, classes: tuple[Any, Any], zipmap: bool, tmp_path: Path
) -> None:
    """Columns go by name in any order, the positive class is found, and probabilities agree in single precision."""
    frame = people()
    model = pipeline(last).fit(frame, outcome(frame, classes))
    path = written(model, frame[:1], tmp_path, zipmap=zipmap)

    scorer = load_model(path, positive_label=str(classes[1]))
    new = people(200, 7)
    found = scorer.score(new[["job", "income", "age"]].assign(other=1))
    assert scorer.score_scale == "probability"
    np.testing.assert_allclose(found, model.predict_proba(new)[:, 1], rtol=0, atol=2e-6)
    np.testing.assert_allclose(
        load_model(path, positive_label=str(classes[0])).score(new), 1 - found, atol=2e-6
    )


def test_a_matrix_is_named_by_features(tmp_path: Path) -> None:
    """A graph over one matrix does not know its columns, and rows score the same alone as among others."""
    frame = people()
    forest = RandomForestClassifier(20, random_state=0)
    model = forest.fit(frame[NUMBERS].to_numpy(), outcome(frame, (0, 1)))
    path = written(model, frame[NUMBERS].to_numpy()[:1], tmp_path)

    with pytest.raises(ModelError, match="`features`"):
        load_model(path)
    with pytest.raises(ModelError, match="was fitted on 2"):
        load_model(path, features=["age"])
    scorer = load_model(path, features=NUMBERS)
    found = scorer.score(frame)
    np.testing.assert_allclose(found, model.predict_proba(frame[NUMBERS].to_numpy())[:, 1], atol=2e-6)
    np.testing.assert_array_equal(found, np.concatenate([scorer.score(frame[:77]), scorer.score(frame[77:])]))

    line = LinearRegression().fit(
        frame[NUMBERS].to_numpy(), 3 * frame["age"]
    )  # one number per row has no class
    scorer = load_model(written(line, frame[NUMBERS].to_numpy()[:1], tmp_path), features=NUMBERS)
    assert scorer.score_scale == "raw"
    np.testing.assert_allclose(scorer.score(frame), 3 * frame["age"], atol=1e-5)


def test_gaps_go_where_the_graph_knows_them(tmp_path: Path) -> None:
    """A gap in numbers is a number for the graph; a gap in texts is refused with the input's name."""
    frame = people()
    model = pipeline(LogisticRegression()).fit(frame, outcome(frame, (0, 1)))
    scorer = load_model(written(model, frame[:1], tmp_path))

    with pytest.raises(ModelError, match=r"'job'.*gaps"):
        scorer.score(frame.assign(job=[None, *frame["job"][1:]]))


def test_missing_packages_name_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without onnxruntime the message is the command that installs it."""
    path = tmp_path / "model.onnx"
    path.write_bytes(b"graph")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ModelError, match=r"pip install 'fairfix\[onnx\]'"):
        load_model(path)


def model_of(nodes: list[Any], shape: list[Any], weights: Any = (), domain: str = "") -> bytes:
    """A graph of one's own, from an input x to an output y."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy")
    sets = [helper.make_opsetid("", 17), *([helper.make_opsetid(domain, 1)] if domain else [])]
    made = helper.make_graph(nodes, "g", [x], [y], weights)
    return bytes(helper.make_model(made, opset_imports=sets, ir_version=8).SerializeToString())


EXTRA = {"domain": "ai.onnx.contrib", "module": "os", "func": "system"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (model_of([helper.make_node("Identity", ["x"], ["y"])], [1, 3, 8, 8]), "its input 'x'"),  # an image
        (b"this is no graph", "cannot be loaded"),
        # an operator of somebody's own
        (
            model_of([helper.make_node("PyOp", ["x"], ["y"], **EXTRA)], [None, 1], (), EXTRA["domain"]),
            "cannot be loaded",
        ),
    ],
)
def test_graphs_that_take_no_rows_are_refused(content: bytes, message: str, tmp_path: Path) -> None:
    """An image has four axes, noise has no graph at all, and nothing is loaded that could run foreign operators."""
    (tmp_path / "model.onnx").write_bytes(content)
    with pytest.raises(ModelError, match=message):
        load_model(tmp_path / "model.onnx")


@pytest.mark.parametrize("place", ["graph", "attribute", "graph within"])
@pytest.mark.parametrize("location", ["weights.bin", "../weights.bin", "/etc/passwd"])
def test_weights_outside_of_the_file_are_not_read(
    location: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was hashed is all that is loaded: a graph that points to another file is refused, also one that is there."""
    (tmp_path / "work").mkdir()
    for folder in (tmp_path, tmp_path / "work"):
        (folder / "weights.bin").write_bytes(np.ones(1, np.float32).tobytes())
    monkeypatch.chdir(tmp_path / "work")
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", "0"), ("length", "4")):
        weight.external_data.add(key=key, value=value)
    nodes = [helper.make_node("Constant", [], ["w"], value=weight)] if place == "attribute" else []
    nodes += [helper.make_node("Add", ["x", "w"], ["y"])]
    if place == "graph within":
        out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 1])
        within = helper.make_graph(nodes, "within", [], [out], [weight])
        always = helper.make_tensor("c", TensorProto.BOOL, [1], [True])
        nodes = [
            helper.make_node("Constant", [], ["c"], value=always),
            helper.make_node("If", ["c"], ["y"], then_branch=within, else_branch=within),
        ]
    Path("model.onnx").write_bytes(model_of(nodes, [None, 1], [weight] if place == "graph" else []))

    with pytest.raises(ModelError, match="weights 'w' in another file"):
        load_model("model.onnx")


def test_only_what_was_looked_through_is_loaded(tmp_path: Path) -> None:
    """A model of the runtime's own format, in which a reader of ONNX finds nothing."""
    (tmp_path / "a.onnx").write_bytes(model_of([helper.make_node("Identity", ["x"], ["y"])], [None, 1]))
    settings = onnxruntime.SessionOptions()
    settings.optimized_model_filepath = str(tmp_path / "a.ort")
    settings.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(tmp_path / "a.onnx", settings)
    data = (tmp_path / "a.ort").read_bytes()
    assert data[4:8] == b"ORTM"
    # places in it are relative, so what is put after its mark moves all of it; the bytes before are fields of ONNX
    root, gap = int.from_bytes(data[:4], "little"), 0x90000
    size = gap - 8 + len(data) - 8
    skipped = bytes([0x12, *(size >> 7 * i & 0x7F | 0x80 for i in range(3)), size >> 21])
    both = (root + gap).to_bytes(4, "little") + data[4:8] + bytes(3) + skipped + bytes(gap - 8) + data[8:]
    assert not onnx.load_model_from_string(both).graph.node
    onnxruntime.InferenceSession(both)
    (tmp_path / "both.onnx").write_bytes(both)

    with pytest.raises(ModelError):
        load_model(tmp_path / "both.onnx")


def test_the_command_line_takes_it_without_a_pin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`audit --model model.onnx` scores the rows."""
    frame = people()
    path = written(pipeline(LogisticRegression()).fit(frame, outcome(frame, (0, 1))), frame[:1], tmp_path)
    frame["label"] = outcome(frame, (0, 1))
    frame["sex"] = np.where(np.arange(len(frame)) % 2, "f", "m")
    frame.to_parquet(tmp_path / "people.parquet")

    command = ["audit", str(tmp_path / "people.parquet"), "--protected", "sex", "--model", str(path)]
    assert run([*command, "--config", "none"]) == 0
    out = capsys.readouterr().out
    assert "scores from the model model.onnx" in out
    assert "demographic parity ratio" in out
