"""Databases that are files, opened so that what they hold reaches nothing beyond them.

Such a file is data of a stranger, and its views run as queries do: they may read files, ask servers, read variables of
Python or load extensions. None of that is open to them, and no query can open it again. Whoever writes the URL can, by
naming a setting of DuckDB there (``duckdb:///x.duckdb?enable_external_access=true``).
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from fairfix.data.files import head_of
from fairfix.data.names import in_quotes, listed
from fairfix.data.storage import local
from fairfix.errors import DataError

DUCKDB = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
}
"""Settings that DuckDB is opened with, ..."""

LOCKED = {"python_enable_replacements": "false", "enable_external_access": "false"}
"""... and those that it takes once it is open, before ``lock_configuration`` ends all setting."""


FUNCTIONS = ("load_extension", "fts3_tokenizer")
"""Functions of SQLite that load or run what is no SQL."""

ABOUT_COLUMNS = ("table_info", "table_xinfo")
"""Statements about tables that Ibis asks SQLite; others open files, change limits of the process or tell of it."""

LONGEST = 64 << 20
"""Bytes of a value, and of a row, that SQLite makes."""

RESERVED = ("memory", "system", "temp")
"""Names that a database cannot be attached by."""


def open_duckdb(
    path: Path,
    *,
    read_only: bool,
    settings: Mapping[str, str] | None = None,
    wrapped: Callable[[Any], Any] = lambda connection: connection,
) -> Any:
    """Return a connection to a file of DuckDB from which queries reach that file alone.

    Parameters
    ----------
    settings
        Settings of DuckDB that whoever wrote the URL named there; they win over ours.
    wrapped
        What is returned in place of the connection is made by this, while settings can still change.
    """
    import duckdb

    asked = {name.lower(): value for name, value in (settings or {}).items()}
    asked.pop("access_mode", None)  # of a file on its own; ours is attached, to be read only or not
    # what has no room in memory waits in a folder of its own: queries can read and write files there
    private = str(Path(tempfile.gettempdir()) / f"fairfix-{uuid4().hex}")
    folders = dict.fromkeys(("temp_directory", "secret_directory", "extension_directory"), private)
    early: dict[str, Any] = {**folders, **DUCKDB, **asked}
    # attached to an instance of its own: those of one path in one process share their settings, locked ones too
    connection = duckdb.connect(":memory:", config=early)
    try:
        name = "data" if path.stem.lower() in RESERVED else in_quotes(path.stem)
        mode = "READ_ONLY" if read_only else "READ_WRITE"
        place = in_quotes(str(path.absolute()), "'")
        connection.execute(f"ATTACH {place} AS {name} (TYPE duckdb, {mode})")
        connection.execute(f"USE {name}")
        out = wrapped(connection)
        for name, setting in LOCKED.items():
            if name not in asked:
                connection.execute(f"SET {name} = {setting}")
        connection.execute("SET lock_configuration = true")
    except BaseException:
        connection.close()
        raise
    return out


def open_sqlite(path: Path, wrapped: Callable[[Any], Any]) -> Any:
    """Return a connection to a file of SQLite that reads that file alone, and makes no file.

    A database with a write-ahead log gets more files in its folder even from readers. It is opened as one that does not
    change, unless a log is there; then who writes it has made these files.

    Parameters
    ----------
    wrapped
        What is returned in place of the connection is made by this.

    Raises
    ------
    DataError
        Changes wait in a log that no process writes any more.
    """
    import sqlite3

    path = path.absolute()
    has_log = head_of(local(path), 20)[18:] == b"\2\2"
    log, index = (path.with_name(f"{path.name}-{end}") for end in ("wal", "shm"))
    if has_log and log.exists() and not index.exists():
        raise DataError(
            f"{path} has an unmerged write-ahead log, {log.name}; merge it first: "
            f"sqlite3 {shlex.quote(str(path))} 'PRAGMA wal_checkpoint'"
        )
    still = "&immutable=1" if has_log and not log.exists() else ""
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro{still}", uri=True)
    try:
        out = wrapped(connection)
        connection.execute("PRAGMA trusted_schema = OFF")  # views call no functions that might have effects
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
        connection.set_authorizer(_stays_inside)
    except BaseException:
        connection.close()
        raise
    return out


def _stays_inside(action: int, name: str | None, function: str | None, *_: str | None) -> int:
    """Return whether SQLite may do something, by its code: it may read, and make views of its own while it runs.

    To make a view is to change a list of names, which nobody can do in a file that is opened read-only.
    """
    import sqlite3

    reads = action in (
        sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE, sqlite3.SQLITE_TRANSACTION
    )  # fmt: skip
    reads |= action == sqlite3.SQLITE_FUNCTION and str(function).lower() not in FUNCTIONS
    reads |= action == sqlite3.SQLITE_PRAGMA and str(name).lower() in ABOUT_COLUMNS
    views = action in (sqlite3.SQLITE_CREATE_TEMP_VIEW, sqlite3.SQLITE_DROP_TEMP_VIEW)
    views |= action in (sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE)
    return sqlite3.SQLITE_OK if reads or views else sqlite3.SQLITE_DENY


def duckdb_tables(backend: Any) -> list[tuple[str, str, str]]:
    """Return catalog, schema and name of each table; Ibis finds columns by a name that DuckDB 2 no longer has."""
    listed = "SELECT table_catalog, table_schema, table_name FROM information_schema.tables"
    return sorted(backend.con.execute(listed).fetchall(), key=lambda one: one[1] != "main")


def sqlite_tables(backend: Any) -> list[str]:
    """Return the name of each table; Ibis would ask for the databases that are attached, which is refused here."""
    listed = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite@_%' ESCAPE '@'"
    return [name for (name,) in backend.con.execute(listed).fetchall()]


def only_table(backend: Any, path: Path) -> str:
    """Return the name of the only table of a file; a DataError lists several, and shows how one is named."""
    if backend.name == "duckdb":
        names = [own if schema == "main" else f"{schema}.{own}" for _, schema, own in duckdb_tables(backend)]
    else:
        names = sqlite_tables(backend)
    if len(names) == 1:
        return names[0]
    if not names:
        raise DataError(f"{path} holds no table")
    proposal = shlex.quote(f"{path}#{min(names)}")
    raise DataError(
        f"{path} holds {len(names):,} tables; name one: {proposal}; it has: {listed(sorted(names))}"
    )
