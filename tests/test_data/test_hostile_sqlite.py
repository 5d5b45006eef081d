"""A SQLite database of a stranger reaches nothing beyond itself, by any function, virtual table or statement."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from fairfix.data.embedded import open_sqlite
from fairfix.errors import DataError

from tests.conftest import Call

SECRET = "k3y-of-the-machine"  # noqa: S105  what a thief is after

STATEMENTS = (
    "ATTACH '{other}' AS o",
    "ATTACH 'file:{new}?mode=rwc' AS o",
    "ATTACH ':memory:' AS o",
    "DETACH main",
    "VACUUM",
    "VACUUM INTO '{new}'",
    "CREATE TABLE new(a)",
    "CREATE TEMP TABLE new(a)",
    "CREATE TEMP TRIGGER new AFTER INSERT ON t BEGIN SELECT 1; END",
    "CREATE VIRTUAL TABLE temp.new USING fts5(a)",
    "CREATE VIRTUAL TABLE temp.new USING csv(filename='{file}')",
    "CREATE VIRTUAL TABLE temp.new USING dbstat",
    "INSERT INTO t VALUES (1, 1, 1)",
    "UPDATE t SET race = 'x'",
    "DELETE FROM t",
    "DROP TABLE t",
    "ALTER TABLE t RENAME TO u",
    "CREATE INDEX i ON t(race)",
    "UPDATE sqlite_schema SET sql = 'x'",
    "ANALYZE",
    "BEGIN IMMEDIATE",
    "SELECT load_extension('{file}')",
    "SELECT load_extension('{file}', 'x')",
    "SELECT fts3_tokenizer('simple')",
    "SELECT fts3_tokenizer('simple', x'00')",
    "SELECT readfile('{file}')",
    "SELECT writefile('{new}', 'x')",
    "SELECT * FROM fsdir('{folder}')",
    "SELECT * FROM sqlite_dbpage",
    "SELECT zeroblob(900000000)",
)
"""What asks for another file, for code, for a change or for more memory than a value may have."""

READS = ("table_info", "table_xinfo")
"""Statements about columns, which Ibis asks."""


def made(path: Path, *more: str) -> Path:
    """Make a database of people."""
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (race, label, score)")
    connection.executemany(
        "INSERT INTO t VALUES (?, ?, ?)", [("ab"[i % 2], i // 2 % 2, 0.5) for i in range(60)]
    )
    for statement in more:
        connection.execute(statement)
    connection.commit()
    connection.close()
    return path


def same(connection: Any) -> Any:
    """Return the connection itself."""
    return connection


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    """Make the files that a thief would read."""
    (tmp_path / "key.txt").write_text(SECRET)
    made(tmp_path / "other.db", f"INSERT INTO t VALUES ('{SECRET}', 1, 0.5)")
    return {
        "file": str(tmp_path / "key.txt"),
        "other": str(tmp_path / "other.db"),
        "new": str(tmp_path / "new.db"),
        "folder": str(tmp_path),
    }


def contents(folder: Path) -> dict[str, bytes]:
    """Return what is in every file of a folder."""
    return {one.name: one.read_bytes() for one in folder.iterdir() if one.is_file()}


def test_no_statement_reaches_a_file_a_library_or_the_schema(places: dict[str, str], tmp_path: Path) -> None:
    path = made(tmp_path / "risk.db")
    before = contents(tmp_path)
    connection = open_sqlite(path, same)
    for statement in STATEMENTS:
        with pytest.raises(sqlite3.Error):
            connection.execute(statement.format(**places)).fetchall()
    connection.close()
    assert contents(tmp_path) == before


def pragmas() -> list[str]:
    """Return every statement about SQLite itself that this version has."""
    connection = sqlite3.connect(":memory:")
    names = [str(name) for (name,) in connection.execute("SELECT name FROM pragma_pragma_list")]
    connection.close()
    return names


def test_no_setting_is_read_or_changed(tmp_path: Path) -> None:
    """A limit of memory, a temporary folder, a writable schema: some of them are of the whole process."""
    connection = open_sqlite(made(tmp_path / "risk.db"), same)
    names = pragmas()
    assert len(names) > 50
    for name in names:
        for end in ("", "=1", "(t)"):
            if name in READS:
                continue
            with pytest.raises(sqlite3.Error):
                connection.execute(f"PRAGMA {name}{end}").fetchall()
    assert connection.execute("SELECT count(*) FROM t").fetchone() == (60,)
    connection.close()


def calls() -> Iterator[str]:
    """Yield a call of every function that this version of SQLite has, but of aggregates."""
    connection = sqlite3.connect(":memory:")
    rows = "SELECT DISTINCT name, narg FROM pragma_function_list WHERE type = 's' AND name GLOB '[a-z]*'"
    for name, many in connection.execute(rows).fetchall():
        yield f"{name}({', '.join(['{}'] * (1 if many < 0 else many))})"
    connection.close()


@pytest.mark.slow
@pytest.mark.parametrize("reader", ["view", "query"])
def test_no_function_gives_what_is_in_another_file(
    reader: str, places: dict[str, str], tmp_path: Path
) -> None:
    """Every function, given the path of a file and of a folder, tells nothing of it, be it in a view."""
    path, before, tried = tmp_path / "risk.db", None, 0
    for call in calls():
        for place in ("file", "folder"):
            text = call.format(*[f"'{places[place]}'"] * call.count("{}"))
            select = f"SELECT {text} AS race FROM t LIMIT 1"
            path.unlink(missing_ok=True)
            made(path)
            with suppress(sqlite3.Error), sqlite3.connect(path) as writer:
                writer.execute(f"CREATE VIEW v AS {select}")
            before = before or {name: data for name, data in contents(tmp_path).items() if name != "risk.db"}
            connection = open_sqlite(path, same)
            answer: list[Any] = []
            with suppress(sqlite3.Error):
                answer = connection.execute("SELECT * FROM v" if reader == "view" else select).fetchall()
            connection.close()
            tried += 1
            assert SECRET not in repr(answer)
            assert {name: data for name, data in contents(tmp_path).items() if name != "risk.db"} == before
    assert tried > 100


TABLES = ("pragma_database_list", "pragma_compile_options", "pragma_hard_heap_limit", "sqlite_stmt", "dbstat",
          "pragma_journal_mode('wal')", "pragma_temp_store_directory('/')", "fsdir('/')", "csv")  # fmt: skip


@pytest.mark.usefixtures("away")
@pytest.mark.parametrize("table", TABLES)
def test_no_view_tells_of_the_process(table: str, tmp_path: Path, call: Call) -> None:
    """A view of a table about SQLite itself ends the run; so does a library that a view would load."""
    path = made(
        tmp_path / "risk.db", f"CREATE VIEW v AS SELECT 'a' AS race, 1 AS label, 0.5 AS score FROM {table}"
    )
    before = contents(tmp_path)
    for line in (
        ["audit", f"sqlite:///{path}#v"],
        ["repair", f"sqlite:///{path}#v", "--method", "ramp", "-o", "made.fairfix"],
    ):
        status, out, err = call(*line, "--protected", "race", "--config", "none")
        assert status == 2
        assert str(path.parent) not in (out + err).replace(f"sqlite:///{path}", "")
    assert contents(tmp_path) == before


def test_links_beside_a_database_are_not_written_through(tmp_path: Path) -> None:
    """A log or an index that is a link to a file of the user's leaves that file as it was."""
    path = made(tmp_path / "risk.db", "PRAGMA journal_mode = WAL")
    for ends in (("wal",), ("shm",), ("wal", "shm"), ("journal",)):
        for end in ends:
            (tmp_path / f"own-{end}").write_bytes(b"mine" * 99)
            (tmp_path / f"risk.db-{end}").symlink_to(tmp_path / f"own-{end}")
        with suppress(sqlite3.Error, DataError):  # whatever it says, nothing may be changed
            open_sqlite(path, same).execute("SELECT count(*) FROM t").fetchall()
        for end in ends:
            assert (tmp_path / f"own-{end}").read_bytes() == b"mine" * 99
            (tmp_path / f"risk.db-{end}").unlink()
