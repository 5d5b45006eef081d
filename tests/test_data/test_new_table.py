"""Several writers of one new table of DuckDB: one has it, whole, and nobody removes what another has made."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

import duckdb
import fairfix.data.new_table as writer
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fairfix.cli import run
from fairfix.data.atomic_write import created
from fairfix.errors import DataError, FairfixError

from tests.data import scored

ROWS = pa.record_batch({"a": list(range(1000))})


def write(path: Path, table: str = "t") -> None:
    """Write rows into a new table."""
    with writer.new_table(f"duckdb:///{path}#{table}", ROWS.schema, lambda: None) as append:
        append(ROWS)


def rows_of(path: Path, table: str = "t") -> int:
    """Count the rows of a table."""
    with duckdb.connect(str(path), read_only=True) as base:
        return int(base.execute(f"SELECT count(DISTINCT a) FROM {table}").fetchall()[0][0])


def other(path: Path, table: str) -> None:
    """Do what another process does: make the database, with a table of its own."""
    with duckdb.connect(str(path)) as base:
        base.execute(f"CREATE TABLE {table} AS SELECT unnest(range(7)) AS a")


@pytest.mark.parametrize("late", [False, True], ids=["before it is written", "before it has its name"])
@pytest.mark.parametrize("same", [False, True], ids=["another table", "the same table"])
def test_what_another_has_made_stays(
    late: bool, same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever it comes: their table is whole; ours is beside it, or refused where it has the same name."""
    path, theirs = tmp_path / "b.duckdb", "t" if same else "u"

    def at_last(target: Path, content: IO[bytes]) -> bool:
        other(path, theirs)
        return created(target, content)

    if late:
        monkeypatch.setattr(writer, "created", at_last)
    close: Callable[[], object] = (lambda: None) if late else (lambda: other(path, theirs))

    def ours() -> None:
        with writer.new_table(f"duckdb:///{path}#t", ROWS.schema, close) as append:
            append(ROWS)

    if same:
        with pytest.raises(FairfixError):
            ours()
    else:
        ours()
        assert rows_of(path, "t") == 1000
    assert rows_of(path, theirs) == 7
    assert [one.name for one in tmp_path.iterdir()] == ["b.duckdb"]


def test_of_a_table_that_fails_nothing_stays(tmp_path: Path) -> None:
    with pytest.raises(FairfixError):
        write(tmp_path / "b.duckdb", "nowhere.t")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights")
@pytest.mark.parametrize("name", ["b.duckdb", "b.duckdb.wal"])
def test_no_link_leads_to_a_database(name: str, tmp_path: Path) -> None:
    """Nor to the log that DuckDB keeps beside it."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).symlink_to(tmp_path / "outside")
    with pytest.raises(DataError, match="symbolic link"):
        write(tmp_path / "in" / "b.duckdb")
    assert not (tmp_path / "outside").exists()


@pytest.mark.slow
def test_one_of_three_commands_writes_it(away: None) -> None:
    """At once, by the command; one ends with 0, and its table has every row."""
    pq.write_table(scored(rows=300, groups=2), "d.parquet")
    line = ("--protected", "race", "--config", "none", "-q", "--method", "ramp", "-o", "r.fairfix")
    assert run(["repair", "d.parquet", *line]) in (0, 1, 3)
    for i in range(2):
        command = shlex.split(f"{sys.executable} -P -m fairfix predict r.fairfix d.parquet --config none")
        command += ["-o", f"duckdb:///two{i}.duckdb#t"]
        runs = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(3)]
        said = [one.communicate()[1] for one in runs]
        assert sorted(one.returncode for one in runs) == [0, 2, 2], said
        with duckdb.connect(f"two{i}.duckdb", read_only=True) as base:
            assert base.execute("SELECT count(*) FROM t").fetchall() == [(300,)]
