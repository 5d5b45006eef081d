"""Rows that do not fit into memory are refused before they are read, with numbers and a remedy."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fairfix.cli import run
from fairfix.data import memory
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.memory import bytes_of_row, free_memory

from tests.data import scored


@pytest.mark.parametrize("command", ["repair", "compare"])
@pytest.mark.parametrize("room", [4_000, 1 << 30])
def test_rows_that_do_not_fit_are_refused(
    command: str,
    room: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """400 rows of 11 bytes are 4.4 kB."""
    data, out = tmp_path / "rows.parquet", tmp_path / "out.fairfix"
    pq.write_table(scored(rows=400), data)
    monkeypatch.setattr(memory, "free_memory", lambda: room)
    asked = ["--protected", "race", "--score", "score", "--config", "none"]
    asked += ["--method", "ramp", "-o", str(out)] if command == "repair" else ["--methods", "ramp"]
    status = run([command, str(data), *asked])
    said = capsys.readouterr().err
    assert (status == 2) == (room == 4_000)
    if status == 2:
        assert "400 rows" in said
        assert "fairfix count" in said
        assert not out.exists()
        assert run(["audit", str(data), *asked[:6], "--quiet"]) != 2


def test_a_row_takes_its_columns() -> None:
    table = scored(rows=1)
    data_spec = DataSpec(ColumnRoles(("race",), label="label", score="score", weight="weight"))
    assert bytes_of_row(data_spec, table.schema, ()) == 2 + 1 + 8 + 8
    more = pa.schema([*table.schema, ("small", pa.int8()), ("yes", pa.bool_())])
    assert bytes_of_row(data_spec, more, ("x", "job", "small", "yes")) == 19 + 8 + 4 + 1 + 1


def test_the_least_of_machine_and_container_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, limit, used = (tmp_path / name for name in ("machine", "limit", "used"))
    machine.write_text("MemTotal: 9000 kB\nMemAvailable:    2000 kB\n")
    monkeypatch.setattr(memory, "MACHINE", str(machine))
    monkeypatch.setattr(memory, "GROUPS", ((str(limit), str(used)),))
    assert free_memory() == 2000 * 1024
    limit.write_text("1000000\n")
    used.write_text("400000\n")
    assert free_memory() == 600_000
    limit.write_text("max\n")
    assert free_memory() == 2000 * 1024
    machine.unlink()
    assert free_memory() is None


@pytest.mark.skipif(not Path(memory.MACHINE).exists(), reason="the system does not say what is free")
def test_this_machine_has_some_and_no_more_than_it_has() -> None:
    free = free_memory()
    assert free is not None
    assert 0 < free <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
