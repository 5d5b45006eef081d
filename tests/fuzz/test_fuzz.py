"""The fuzzer itself: it draws every option there is, its oracle can say no, and a few of its runs find nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.parquet
import pytest
from fairfix.cli import run
from fairfix.cli.audit import command as audit_command

from tests.data import scored
from tests.fuzz import frames
from tests.fuzz.commands import case, smaller, unknown_options
from tests.fuzz.oracle import Ran, problems
from tests.strategies import examples

ROOT = Path(__file__).parents[2]

RUNS = examples(60)
"""Runs of each seed: a third in a pull request, some 12 seconds of one core."""


def test_every_option_has_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """All options of all commands are fuzzed; one that is new and of no usual kind is named."""
    assert unknown_options() == []
    new = click.Option(["--moon-phase"], metavar="PHASE")
    monkeypatch.setattr(audit_command, "params", [*audit_command.params, new])
    assert unknown_options() == ["audit --moon-phase"]


def test_every_kind_of_column_is_drawn() -> None:
    """A hundred frames have a column of every kind, and names and sizes at the edges; a number is always one frame."""
    drawn = [case(number).frame.table for number in range(150)]
    kinds = {str(column.type).partition("[")[0] for table in drawn for column in table.columns}
    wanted = {
        str(make(frames.random.Random(0), 3, 0.0).type).partition("[")[0] for make in frames.COLUMNS.values()
    }
    assert len(wanted - kinds) <= 3, (
        wanted - kinds
    )  # of extension types and dictionaries there are several each
    assert {0, 1, 2} <= {table.num_rows for table in drawn}
    assert any(len(name) == 10_000 for table in drawn for name in table.column_names)
    assert case(7).steps == case(7).steps
    assert case(7).frame.table.equals(case(7).frame.table)


def test_what_fails_is_made_smaller() -> None:
    """Every step of shrinking drops rows, a column, an option or a command, and nothing else."""
    whole = case(1_000_000)
    size = whole.frame.table.nbytes, sum(map(len, whole.steps))
    parts = smaller(whole)
    assert all((one.frame.table.nbytes, sum(map(len, one.steps))) <= size for one in parts)
    assert {one.frame.table.num_columns for one in parts} >= {whole.frame.table.num_columns - 1}


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Ran, pa.Table, dict[str, Any]]:
    """An audit that the oracle has nothing to say of, its table, and its result."""
    monkeypatch.chdir(tmp_path)
    table = scored(rows=300)
    pa.parquet.write_table(table, "d.parquet")
    words = ["audit", "d.parquet", "--protected", "race", "--label", "label", "--score", "score"]
    words += ["--check", "dp.difference<=0.9", "--out", "json=a.json", "--quiet"]
    assert run(words) == 0
    made = Ran("audit", words, 0, "", "", 0.1, 0.0, 300, 9000, {}, {"a.json": b"1"}, tmp_path)
    assert list(problems(made, table)) == []
    return made, table, json.loads(Path("a.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        (
            {"status": 70, "err": "fairfix: this is a bug in fairfix: a.py:f KeyError: 1"},
            "status 70: a.py:f KeyError",
        ),
        ({"status": 1}, "status 1 with checks of 0"),
        ({"status": 2}, "status 2 without a message"),
        (
            {"status": 2, "err": "fairfix: x", "after": {"d.counts": b"1"}},
            "status 2 and a file is written: .counts",
        ),
        ({"out": "a\x1b[31mb"}, "the character '\\x1b' on stdout as text"),
        ({"err": "a\u202eb"}, "the character '\\u202e' on stderr as text"),
        ({"err": "Traceback (most recent call last):"}, "a traceback on stderr"),
        ({"seconds": 99.0}, "too many seconds"),
        ({"memory": 5e9}, "too much memory"),
        ({"command": "init", "status": 3}, "status 3 of a command that gates nothing"),
    ],
)
def test_the_oracle_sees_a_wrong_run(ran: Any, changes: dict[str, Any], fault: str) -> None:
    wrong = replace(ran[0], **changes)
    for name in wrong.after:
        Path(name).touch()
    assert fault in list(problems(wrong))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda a: a["overall"].update(rows="many"), "against the schema of audit at overall/rows: type"),
        (
            lambda a: a["attributes"][0]["groups"][0]["metrics"]["selection_rate"].update(value=0.987654),
            "selection_rate",
        ),
        (
            lambda a: a["attributes"][0]["groups"][0]["metrics"]["accuracy"].update(value=None),
            "a null without a reason",
        ),
        (lambda a: a["data"]["rows"].update(used=299), "rows that are used and excluded are not those read"),
        (lambda a: a["checks"][0].update(verdict="fail"), "a verdict fail where the numbers say pass"),
        (
            lambda a: a["attributes"][0]["groups"][0].update(rows=1),
            "a group has another number of rows than the table",
        ),
    ],
)
def test_the_oracle_sees_a_wrong_number(ran: Any, change: Any, fault: str) -> None:
    """A number that is not the table's, or does not go with another, is told."""
    made, table, result = ran
    change(result)
    Path("a.json").write_text(json.dumps(result))
    assert any(fault in one for one in problems(made, table))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_drawn_runs_find_nothing(seed: int) -> None:
    """A failure prints the line that makes it again; processes are forked from one without threads."""
    line = [sys.executable, "-m", "tests.fuzz.run", str(RUNS), "--seed", str(seed), "--shrinks", "0"]
    done = subprocess.run(
        line,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(line[1:])}\n{done.stdout[-4000:]}{done.stderr[-2000:]}"
