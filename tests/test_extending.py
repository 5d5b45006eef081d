"""A metric, a kind of file, a format and a method are each one place: dropped in, and followed to the report.

Every test changes one file of a copy of the package, as CONTRIBUTING.md says, and runs the commands of that copy in
processes of their own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import fairfix
import jsonschema
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from fairfix.schema import json_schema

from tests.data import scored

pytestmark = pytest.mark.slow
Fairfix = Callable[..., str]


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """Return the folder of a copy of the package, with data beside it."""
    shutil.copytree(Path(fairfix.__file__).parent, tmp_path / "fairfix")
    pq.write_table(scored(), tmp_path / "data.parquet")
    return tmp_path / "fairfix"


@pytest.fixture
def run(house: Path) -> Fairfix:
    """Return a function that runs a command of the copy, checks its status and returns its output."""

    def run(*arguments: str, status: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "fairfix", *arguments],
            cwd=house.parent,
            env={"PYTHONIOENCODING": "utf-8", "PATH": os.environ["PATH"], "COLUMNS": "200"},
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        assert done.returncode == status, done.stderr
        return done.stdout

    return run


AUDIT = ("audit", "data.parquet", "--protected", "race", "--config", "none")


def test_a_metric_is_one_entry(house: Path, run: Fairfix) -> None:
    """The false discovery rate is gated, explained, and in every report; it is 1 - PPV."""
    catalogue = house / "auditing" / "metrics.py"
    entry = '    _rate("false_discovery_rate", "FDR", "P(y = 0 | decision = 1)", (FP,), (TP,), "fdr"),\n'
    before, sign, after = catalogue.read_text().partition('    _rate("accuracy"')
    catalogue.write_text(before + entry + sign + after)
    outs = [part for name in ("html", "markdown", "junit") for part in ("--out", f"{name}=r.{name}")]
    check = ("--check", "fdr.difference<=0.001", "--gate-on", "point")
    text = run(*AUDIT, *check, "--detail", *outs, status=1)
    result = json.loads(run(*AUDIT, "--format", "json"))

    jsonschema.validate(result, json_schema("audit"))
    for group in result["attributes"][0]["groups"]:
        one, other = (
            group["metrics"][name]["value"] for name in ("false_discovery_rate", "positive_predictive_value")
        )
        assert one + other == pytest.approx(1)
    assert "P(y = 0 | decision = 1)" in run("explain", "fdr")
    reports = {name: (house.parent / f"r.{name}").read_text() for name in ("html", "markdown", "junit")}
    assert "false_discovery_rate.difference.between_groups" in text
    assert "false\\_discovery\\_rate.difference.between\\_groups" in reports["markdown"]
    assert "P(y = 0 | decision = 1)" in reports["html"]
    assert "fdr.difference" in reports["junit"]


JSON_LINES = '''"""JSON lines: an object per row."""

import pyarrow as pa

from fairfix.data.files import FileSource, SourcePart, readable


class LinesSource(FileSource):
    """Files with an object per row."""

    kind = "rows"
    endings = (".rows",)

    def __init__(self, places, name):
        from pyarrow import json

        super().__init__(places, name)
        self.tables = {}
        for place in places:
            with readable(place, self.kind), place.opened() as file:
                self.tables[place] = json.read_json(file)
        self.schema = self.tables[places[0]].schema

    def parts(self, columns, types=None):
        return [
            SourcePart(place.name, table.select(columns).to_batches) for place, table in self.tables.items()
        ]
'''


def test_a_kind_of_file_is_one_module(house: Path, run: Fairfix) -> None:
    """Rows under an ending of their own are audited to the same JSON as Parquet; messages know them."""
    (house / "data" / "sources" / "rows.py").write_text(JSON_LINES)
    rows = (json.dumps(row) for row in scored().to_pylist())
    (house.parent / "data.rows").write_text("\n".join(rows))
    lines = ("audit", "data.rows", *AUDIT[2:])
    found, expected = (json.loads(run(*command, "--format", "json")) for command in (lines, AUDIT))
    repair = ("repair", "data.rows", *AUDIT[2:], "--method", "ramp", "-o", "r.fairfix")

    assert found["attributes"] == expected["attributes"]
    assert "data.rows" in run(*lines)
    assert "written to r.fairfix" in run(*repair)
    run("predict", "r.fairfix", "data.rows", "-o", "decided.csv", "--config", "none")
    assert pyarrow.csv.read_csv(house.parent / "decided.csv").num_rows == scored().num_rows
    run("predict", "r.fairfix", "data.rows", "-o", "decided.rows", "--config", "none", status=2)


FORMAT = '''"""One line: the verdict, for a chat."""


def render(result, *, ascii_only=False):
    """Return the verdict of a result in a line."""
    return f"{result.data.source}: {result.verdict}{'' if ascii_only else ' ✔'}\\n"
'''


def test_a_format_is_one_module(house: Path, run: Fairfix) -> None:
    """It is offered, printed, written to a file, and made of a saved result."""
    (house / "report" / "line_.py").write_text(FORMAT)
    check = ("--check", "dp.difference<=0.9")
    printed = run(*AUDIT, *check, "--format", "line", "--out", "json=r.json", "--out", "line=r.txt")

    assert printed == "data.parquet: pass ✔\n"
    assert (house.parent / "r.txt").read_text(encoding="utf-8") == printed
    assert run("report", "r.json", "--format", "line") == printed
    assert "|line|" in run("audit", "--help").replace("\n", "").replace(" ", "")


METHOD = '''"""Quota: the same fraction of every group is selected, those with the highest scores."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from fairfix.data.codec import Array
from fairfix.data.domain import parameter
from fairfix.methods.base import Repairer
from fairfix.models.predictors import OfGroups
from fairfix.schema import json_schema


@dataclass(frozen=True, eq=False)
class GroupThresholds(OfGroups):
    """A threshold on the score per group, shape (K,)."""

    kind: ClassVar[str] = "group_thresholds"
    thresholds: Annotated[np.ndarray, Array("<f8", ("groups",))]

    def write(self, program):
        one, zero = program.constant(1.0), program.constant(0.0)

        def decided(k):
            accepted = program.add("at_most", program.constant(self.thresholds[k]), program.score)
            return program.add("choose", accepted, one, zero)

        return self.by_group(program, decided)


@dataclass(frozen=True)
class Quota(Repairer):
    name: ClassVar[str] = "quota"
    summary: ClassVar[str] = "the same fraction of every group, by a threshold per group"
    criterion: ClassVar[str] = "selection_rate.difference.between_groups"
    fraction: float = parameter(0.5, "fraction of each group that is selected", at_least=0.0, at_most=1.0)

    def _fit(self, problem, rng):
        groups, score = problem.groups, problem.table.rows.score
        each = [score[groups.codes == k] for k in range(len(groups.levels))]
        thresholds = np.array([np.quantile(one, 1 - self.fraction) for one in each])
        return GroupThresholds(groups.columns, groups.levels, thresholds)
'''


def test_a_method_is_one_module(house: Path, run: Fairfix) -> None:
    """With a kind of predictor of its own: fitted, reported, loaded in another process, and decided with."""
    (house / "methods" / "quota.py").write_text(METHOD)
    outs = ("--out", "html=r.html", "--format", "json", "-o", "r.fairfix")
    result = json.loads(run("repair", *AUDIT[1:], "--method", "quota", "--fraction", "0.25", *outs))
    run("predict", "r.fairfix", "data.parquet", "-o", "decided.csv", "--config", "none")
    decided = pyarrow.csv.read_csv(house.parent / "decided.csv").to_pandas()

    jsonschema.validate(result, json_schema("repair"))
    assert "quota" in (house.parent / "r.html").read_text(encoding="utf-8")
    helped = run("repair", "--help", "--method", "quota")
    assert "--fraction NUMBER Fraction of each group that is selected. [default: 0.5]" in " ".join(
        helped.split()
    )
    assert "group_thresholds" in run("inspect", "r.fairfix", "--detail")
    assert "CASE" in run("export", "r.fairfix", "--to", "sql")
    assert decided.groupby("race")["decision"].mean().to_numpy() == pytest.approx(0.25, abs=0.05)
