"""Columns that predict writes: an audit of them is one of the repaired decisions, whatever else is in the file."""

from __future__ import annotations

import json
from typing import Any

import fairfix
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import Call
from tests.data import scored

LIBRARY: Any = fairfix
pytestmark = pytest.mark.usefixtures("away")
NAMES = ("race", "label", "score")


def rows(task: str = "classification") -> pa.Table:
    """Return rows with an id, and with a real label for regression."""
    table = scored(rows=800).append_column("id", pa.array([f"n{i}" for i in range(800)]))
    if task == "regression":
        at = table.column_names.index("label")
        table = table.set_column(at, "label", table.column("score"))
    return table


def audited(call: Call, *line: str) -> Any:
    """Return an audit, and that the line about each inferred column was printed."""
    status, out, err = call("audit", *line, "--format", "json")
    assert status == 0, err
    content = json.loads(out)
    for part, name in content["data"]["inferred"].items():
        assert f"{part} is column {name!r}" in err
    return content


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet", "arrow", "duckdb", "frame"])
def test_an_audit_takes_the_repaired_decisions(ending: str, call: Call) -> None:
    """Of ramp, which draws some: as if the column of decisions had been named, in every format."""
    pq.write_table(rows(), "d.parquet")
    LIBRARY.repair("d.parquet", protected="race", method="ramp", id="id").repaired.save("r.fairfix")
    target = "duckdb:///p.duckdb#t" if ending == "duckdb" else f"p.{ending}"
    if ending == "frame":
        frame = LIBRARY.predict("r.fairfix", "d.parquet").to_pandas()
        content = LIBRARY.audit(frame, protected="race").to_dict()
        named = LIBRARY.audit(frame, protected="race", prediction="decision").to_dict()
    else:
        assert call("predict", "r.fairfix", "d.parquet", "-o", target)[0] == 0
        content = audited(call, target, "--protected", "race")
        named = audited(call, target, "--protected", "race", "--prediction", "decision")
    assert content["data"]["inferred"] == {"label": "label", "prediction": "decision"}
    for part in ("overall", "attributes"):
        assert content[part] == named[part]


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_values_and_their_decisions_are_taken(task: str, call: Call) -> None:
    """The score is the repaired value, and decisions are those of the rule where it makes any."""
    pq.write_table(rows(task), "d.parquet")
    given = {"protected": "race", "method": "fair-regression", "id": "id", "features": ["x"], "task": task}
    repaired = LIBRARY.repair("d.parquet", **given).repaired
    table = LIBRARY.predict(repaired, "d.parquet")
    pq.write_table(table, "p.parquet")
    content = audited(call, "p.parquet", "--protected", "race", "--task", task)
    parts = {"prediction": "decision"} if task == "classification" else {}
    assert content["data"]["inferred"] == {"label": "label", "score": "prediction", **parts}


def test_what_is_named_comes_first_and_columns_of_others_are_not_ours(call: Call) -> None:
    """A score that is named is audited; a column called randomized alone, or elsewhere, means nothing."""
    pq.write_table(rows(), "d.parquet")
    repaired = LIBRARY.repair("d.parquet", protected="race", method="ramp", id="id").repaired
    table = LIBRARY.predict(repaired, "d.parquet")
    pq.write_table(table, "p.parquet")
    content = audited(call, "p.parquet", "--protected", "race", "--score", "score")
    assert content["data"]["inferred"] == {"label": "label"}
    for other in (
        table.drop_columns(["decision"]),
        table.drop_columns(["p_positive", "decision"]),
        table.select([*NAMES, "randomized", "p_positive", "decision"]),
        table.drop_columns(["randomized"]).append_column("randomized", pa.array([1] * len(table))),
    ):
        pq.write_table(other, "o.parquet")
        assert audited(call, "o.parquet", "--protected", "race")["data"]["inferred"]["score"] == "score"


def test_a_learned_rule_has_no_repaired_column_as_a_feature(call: Call) -> None:
    """They are decisions about the row, not what is known of it."""
    pq.write_table(rows(), "d.parquet")
    repaired = LIBRARY.repair("d.parquet", protected="race", method="ramp", id="id").repaired
    table = LIBRARY.predict(repaired, "d.parquet").drop_columns(["score"])
    learned = LIBRARY.repair(table, protected="race", method="logloss", id="id", label="label").repaired
    assert set(learned.predictor.features) == {"weight", "x", "job"}


def test_classes_are_those_of_the_repair(call: Call) -> None:
    """Beside an old prediction, which the names alone leave open."""
    table = rows().append_column("y_pred", pa.array(["x", "y", "z", "x"] * 200))
    at = table.column_names.index("label")
    table = table.set_column(at, "label", pa.array(["x", "y", "z", "y"] * 200))
    added = {"prediction": pa.array(["x", "y", "y", "y"] * 200), "p_x": pa.array([0.5] * 800)}
    for name, entries in {**added, "randomized": pa.array([False] * 800)}.items():
        table = table.append_column(name, entries)
    pq.write_table(table, "p.parquet")
    out = call.ran("audit", "p.parquet", "--protected", "race", "--task", "multiclass", "--format", "json")
    assert json.loads(out)["data"]["inferred"]["prediction"] == "prediction"
