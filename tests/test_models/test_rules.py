"""A rule is its program: prediction, one row, a script, queries and models give one number for drawn rules and rows."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from fairfix.data.scan import read_table
from fairfix.errors import ArtifactError
from fairfix.models import standalone
from fairfix.models.array_interpreter import CHUNK, TableInputs, run
from fairfix.models.export import document, export
from fairfix.models.export.lowering import Exported, exported
from fairfix.models.export.vectors import check_vectors
from fairfix.models.features import LONGEST, Feature, Features
from fairfix.models.identity import RowDraws
from fairfix.models.members import MOST_SUMS, NetworkMember
from fairfix.models.predictors import MOST_GROUPS, GroupwiseRamp, RepairedPredictor
from fairfix.models.program import Program
from fairfix.models.repaired import Repaired

from tests.programs import run_program
from tests.strategies import examples
from tests.test_models.drawn_rules import DRAWN, drawn_rule, hard_rows

SEEDS = range(examples(9))
RULES = [(kind, seed) for kind in DRAWN for seed in SEEDS]


@cache
def drawn(kind: str, seed: int) -> tuple[Repaired, pd.DataFrame, pd.DataFrame]:
    """Return a rule, hard rows, and their predictions."""
    made = drawn_rule(kind, seed)
    rows = hard_rows(made, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # most rows may be of unknown groups
        return made, rows, made.predict(rows)


def columns(program: Exported, rows: pd.DataFrame) -> dict[str, np.ndarray[Any, Any]]:
    """Return the inputs of an exported program."""
    return {
        name: rows[name].to_numpy(object if kind == "text" else float)
        for name, kind in program.inputs.items()
    }


def draws(made: Repaired, rows: pd.DataFrame) -> np.ndarray[Any, Any]:
    """Return the draws of the rows."""
    return RowDraws(pa.Table.from_pandas(rows), {"id": "text"}, made.key, by_id=True)(np.arange(len(rows)))


def close(got: Any, expected: pd.DataFrame) -> None:
    """Equal but for the last bits of exponentials and logarithms, of which each system has its own."""
    np.testing.assert_allclose(
        np.asarray(got, dtype=float), expected.to_numpy()[:, 0].astype(float), rtol=1e-9, atol=1e-12
    )


def outcome(made: Repaired, expected: pd.DataFrame) -> pd.DataFrame:
    """Return what prediction adds."""
    return expected[[name for name in made.output.names if name in expected]]


def test_every_kind_is_drawn() -> None:
    of_classes = "class_chances"  # which gives several numbers
    assert set(DRAWN) == set(RepairedPredictor.kinds) - {of_classes}


@pytest.mark.parametrize(("kind", "seed"), RULES)
def test_a_row_alone_gets_what_it_gets_among_others(kind: str, seed: int) -> None:
    """To the bit, with its draw; a row without a prediction is left to the rules of all data."""
    made, rows, expected = drawn(kind, seed)
    alone = made._row_rule
    assert alone is not None
    whole = outcome(made, expected).astype(object).where(outcome(made, expected).notna(), None)
    for row, wanted in zip(rows.to_dict("records"), whole.to_dict("records"), strict=True):
        got = alone(row)
        if got is None:
            assert wanted[made.output.names[0]] is None
        else:
            assert {name: got[name] for name in wanted} == wanted


@pytest.mark.parametrize(("kind", "seed"), RULES)
def test_a_saved_rule_predicts_as_before(kind: str, seed: int, tmp_path: Any) -> None:
    """To the bit: the artifact holds all of the rule."""
    made, rows, expected = drawn(kind, seed)
    made.save(tmp_path / "r.fairfix")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pd.testing.assert_frame_equal(Repaired.load(tmp_path / "r.fairfix").predict(rows), expected)


@pytest.mark.filterwarnings("ignore:this repair hardly applies here")  # most rows may be of unknown groups
@pytest.mark.parametrize("kind", DRAWN)
@pytest.mark.filterwarnings("ignore:these predictions may be poor")  # the rows are drawn, not those of a fit
def test_vectors_are_what_a_saved_rule_predicts(kind: str, tmp_path: Any) -> None:
    """To the bit in fairfix, and nearly by the script; a rule with other draws, results or rows is refused."""
    for seed in range(6):
        made = drawn_rule(kind, seed)
        whole = document(made, exported(made))
        held = whole["vectors"]
        assert standalone.failures(json.loads(json.dumps(whole, allow_nan=False))) == []
        replace(made, facts={"vectors": held}).save(tmp_path / "r.fairfix")
        loaded = Repaired.load(tmp_path / "r.fairfix")
        check_vectors(loaded, "r")
        again = loaded.predict(pa.table(held["rows"]), missing="abstain")
        assert {name: again[name].to_pylist() for name in held["results"]} == held["results"]
        first = next(iter(held["results"]))
        for part, changed in (
            ("draws", [1 - draw for draw in held["draws"]]),
            ("results", {**held["results"], first: [0.123] * len(held["draws"])}),
            ("rows", {**held["rows"], "more": 1}),
            ("rows", 3),
        ):
            with pytest.raises(ArtifactError, match="vectors"):
                check_vectors(replace(loaded, facts={"vectors": {**held, part: changed}}), "r")


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seed"), RULES)
def test_exports_give_what_predict_gives(kind: str, seed: int) -> None:
    """The program on columns, the script, a query and a model."""
    made, rows, expected = drawn(kind, seed)
    program, added = exported(made), outcome(made, expected)
    inputs, own = columns(program, rows), draws(made, rows)
    close(run_program(program, inputs, own), added)

    whole = json.loads(json.dumps(document_of(made, program), allow_nan=False))
    plain = rows.astype(object).where(rows.notna(), None).to_dict("records")
    got = pd.DataFrame(standalone.predict(plain, whole))
    close(got.iloc[:, 0], added)
    if "decision" in added:
        np.testing.assert_array_equal(got["decision"].to_numpy(float), added["decision"].to_numpy(float))

    duckdb = pytest.importorskip("duckdb", reason="runs the queries")
    with duckdb.connect() as base:
        base.register("data", rows.assign(fairfix_draw=own))
        close(base.execute(str(export(made, "sql"))).df()[made.output.names[0]], added)

    if not inputs:
        return  # a constant, of which a model has no rows
    runtime = pytest.importorskip("onnxruntime", reason="runs the models")
    session = runtime.InferenceSession(export(made, "onnx"), providers=["CPUExecutionProvider"])
    texts = {
        name: np.where(pd.isna(one), "(missing)", one) if one.dtype == object else one
        for name, one in inputs.items()
    }
    feed = texts | ({"fairfix_draw": own} if program.drawn else {})
    close(session.run([made.output.names[0]], feed)[0], added)


def document_of(made: Repaired, program: Exported) -> dict[str, Any]:
    """Return the JSON form, without vectors, which are of rows that are made up."""
    from unittest.mock import patch

    with patch("fairfix.models.export.vectors", lambda *_: {}):
        return document(made, program)


@pytest.mark.parametrize("kind", DRAWN)
def test_rows_in_several_blocks_get_what_they_get_alone(kind: str) -> None:
    """Neither the rows beside a row nor the place of a block's end change a bit; and scores may be given."""
    made, rows, _ = drawn(kind, 0)
    few = read_table(rows, made.data_spec, columns=[*made.predictor.features])
    own = np.random.default_rng(0).integers(0, len(few), 2 * CHUNK + 3)
    many = few.take(own)
    many = type(many)(many.data_spec, many.rows, many.features, few.draws[own].__getitem__)
    rule = made.predictor.compiled_rule
    np.testing.assert_array_equal(made.predictor.predict(many), made.predictor.predict(few)[own])
    np.testing.assert_array_equal(
        run(rule, TableInputs(few), len(few)), made.predictor.redrawn(few)(few, np.arange(len(few)))
    )


def test_a_branch_is_computed_for_its_own_rows_alone() -> None:
    """A selection gives each row its branch, whatever the others would do, and shares what is before it."""
    program = Program()
    x = program.number("x")
    inner = program.select(
        program.add("multiply", x, x), [program.constant(7.0), program.affine(x, 2.0, 1.0)]
    )
    out = program.select(x, [program.add("draw"), inner, program.constant(np.nan)])
    rule, entries, asked = program.rule(out), np.array([0.0, 1.0, 2.0, 1.0, 0.0]), []

    def inputs(step: Any, block: Any) -> Any:
        if step.operation == "number":
            return entries[block]
        asked.append(np.asarray(block).tolist())
        return np.full(len(block), 0.25)

    np.testing.assert_array_equal(run(rule, inputs, 5), [0.25, 3.0, np.nan, 3.0, 0.25])
    assert asked == [[0, 4]]


def test_a_rule_of_more_groups_than_memory_holds_is_refused() -> None:
    """A small file can name a million groups, each of which has steps of its own."""
    arrays = {name: np.zeros(MOST_GROUPS + 1) for name in ("offsets", "remainders")}
    settings = {"columns": ["g"], "levels": [[str(i)] for i in range(MOST_GROUPS + 1)], "gamma": 0.1}
    with pytest.raises(ArtifactError, match="levels"):
        GroupwiseRamp.from_state(settings, arrays)
    settings["levels"].pop()
    made = GroupwiseRamp.from_state(settings, {name: one[1:] for name, one in arrays.items()})
    assert len(made.compiled_rule.steps) < 20


def test_a_model_of_more_units_than_memory_holds_is_refused() -> None:
    """Hidden units and columns have steps of their own, and a small file can name millions."""
    many = MOST_SUMS + 1
    arrays = {"hidden": np.zeros((1, many)), "hidden_bias": np.zeros(many), "out": np.zeros((many, 1))}
    with pytest.raises(ArtifactError):
        NetworkMember.from_state({"link": "sigmoid"}, {**arrays, "out_bias": np.zeros(1)})
    fewer = {name: one[..., 1:] if name != "out" else one[1:] for name, one in arrays.items()}
    made = NetworkMember.from_state({"link": "sigmoid"}, {**fewer, "out_bias": np.zeros(1)})
    assert made.predict(np.zeros((1, 1))) == 0.5

    wide = Features(tuple(Feature(f"v{i}", "vector", means=(0.0,) * LONGEST) for i in range(5)))
    with pytest.raises(ArtifactError):
        Features.from_state(wide.state())
    Features.from_state(Features(wide.columns[:4]).state())
