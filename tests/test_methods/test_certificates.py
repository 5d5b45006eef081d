"""What a solver found, and what is proven of it, on the way from the fit to everybody who may read it."""

from __future__ import annotations

import contextlib
import html
import io
import json
import math
import re
from pathlib import Path

import jsonschema
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fairfix.cli import run
from fairfix.models.repaired import Repaired
from fairfix.models.trace import Certificate, FitTrace, Quantity
from fairfix.report.repairs import solution_facts
from fairfix.schema import json_schema, to_json


def test_a_trace_is_saved_with_its_numbers() -> None:
    """All that is known is saved; what is not finite is null."""
    proven = Certificate("mean square loss", 0.5, 0.4, "linear models within the bounds")
    price = Quantity("multiplier", math.inf, "saving in the objective per unit", "a")
    saved = json.loads(
        to_json(FitTrace(False, 12, 0.5, 0.1, certificates=(proven,), quantities=(price,)).solution)
    )

    assert {**vars(proven), "gap": proven.gap, "says": proven.sentence} == saved["certificates"][0]
    assert {**vars(price), "value": None} == saved["quantities"][0]
    assert (saved["converged"], saved["iterations"], saved["objective"], saved["gap"]) == (
        False,
        12,
        0.5,
        0.1,
    )
    assert FitTrace(True, 0, math.nan).solution.objective is None


@pytest.mark.parametrize(
    ("value", "says"),
    [(0.5, "at most 0.1 above the smallest possible for"), (0.3, "not above the smallest possible for")],
)
def test_a_certificate_says_what_it_bounds(value: float, says: str) -> None:
    """The sentence names objective, class and rows; a rule outside the class may be better than all inside."""
    proven = Certificate("mean square loss", value, 0.4, "linear models")

    assert proven.gap == pytest.approx(max(value - 0.4, 0.0))
    assert proven.sentence.startswith(
        f"the mean square loss, {value}, is {says} linear models, on the training"
    )
    solution = FitTrace(True, 1, 0.5, certificates=(proven,)).solution
    assert proven.sentence in list(solution_facts(solution))[1]


def test_everybody_who_reads_a_repair_reads_what_is_proven(tmp_path: Path) -> None:
    """JSON, text, HTML, artifact and inspect have the certificate and the multipliers of a bounded group loss."""
    rng = np.random.default_rng(0)
    code = np.repeat([0, 1], [80, 40])
    x = rng.normal(size=120)
    table = pa.table(
        {"x": x, "g": [f"g{k}" for k in code], "y": x * (1 - 1.5 * code) + 0.1 * rng.normal(size=120)}
    )
    pq.write_table(table, tmp_path / "d.parquet")
    method = "--method fair-regression --constraint bounded_group_loss<=0.75 --holdout 0.2 --quiet"
    words = f"repair {tmp_path}/d.parquet --protected g --label y --task regression --features x {method}"
    files = f"-o {tmp_path}/r.fairfix --out json={tmp_path}/r.json --out html={tmp_path}/r.html"
    shown = {}
    for name, command in {
        "short": f"{words} {files}",
        "long": f"report {tmp_path}/r.json --verbose",
        "inspect": f"inspect {tmp_path}/r.fairfix --detail",
    }.items():
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            assert run(command.split()) == 0
        shown[name] = re.sub(r"\s+", " ", out.getvalue())
    result = json.loads((tmp_path / "r.json").read_text())
    schema = json_schema("repair")
    jsonschema.Draft202012Validator(schema).validate(result)
    one = result["solution"]["certificates"][0]
    price = max(q["value"] for q in result["solution"]["quantities"] if q["name"] == "multiplier")

    assert one["among"] == "linear models that meet the bounds"
    assert 0 <= one["gap"] <= 1e-6
    assert price > 0
    assert "certified:" not in shown["short"]
    for text in (shown["long"], shown["inspect"]):
        assert f"certified: {one['says']}" in text
        assert f"{price:.6g}" in text
    page = (tmp_path / "r.html").read_text()
    assert one["says"] in html.unescape(page)
    assert f"{price:.6g}" in page
    assert Repaired.load(tmp_path / "r.fairfix").facts["solution"] == result["solution"]
