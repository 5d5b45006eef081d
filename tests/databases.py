"""What tests of databases share: reports held against each other, and a PostgreSQL server of one's own on loopback."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

import pandas as pd
import psycopg
import pytest

PASSWORD = "s3cr:et/p@ss#w?rd%"  # noqa: S105  of a server that lives as long as a test
"""Has every sign that means something in a URL."""


def differences(one: Any, other: Any, place: str = "") -> list[str]:
    """Return where two JSON values differ: integers and texts at all, other numbers by more than 1e-9 of them.

    The next step of a result names its data, and is left out.

    A number that is next to nothing is the difference of two that are not, and has their error.
    """
    if isinstance(one, dict) and isinstance(other, dict):
        keys = sorted({*one, *other} - {"next_step"})
        return [line for key in keys for line in differences(one.get(key), other.get(key), f"{place}.{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [line for i, (a, b) in pairs for line in differences(a, b, f"{place}[{i}]")]
    if isinstance(one, float) and isinstance(other, float):
        near = one == other or abs(one - other) <= max(1e-9 * max(abs(one), abs(other)), 1e-12)
        return [] if near else [f"{place}: {one!r} {other!r}"]
    return [] if one == other else [f"{place}: {one!r} {other!r}"]


def without_source(content: dict[str, Any]) -> dict[str, Any]:
    """Return a report without the name of its data."""
    return {**content, "data": {**content["data"], "source": ""}}


def missing(name: str, why: str) -> NoReturn:
    """Skip for what is not there, or fail where ``TESTS_REQUIRE`` says that it must be."""
    if name in os.environ.get("TESTS_REQUIRE", "").split(","):
        pytest.fail(f"{why}, and TESTS_REQUIRE asks for {name}")
    pytest.skip(why)


def _programs() -> Path | None:
    """Return the folder of PostgreSQL's programs; the newest of Debian's, which are on no path."""
    if (at := shutil.which("initdb")) is not None and shutil.which("pg_ctl"):
        return Path(at).resolve().parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda one: int(one.parent.name))
    return folders[-1] if folders else None


@contextmanager
def postgresql() -> Iterator[str]:
    """Run a server on loopback while the block runs; yield the URL of the owner of a database, with the password.

    The owner may make roles and tables, and is no superuser; :func:`of_superuser` has the URL of one.
    """
    programs = _programs()
    if programs is None:
        missing("postgresql", "PostgreSQL is not installed")
    folder = Path(tempfile.mkdtemp(prefix="fairfix-pg-"))
    as_user: list[str] = []
    if os.geteuid() == 0:  # which a server of PostgreSQL refuses to run as
        as_user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
        shutil.chown(folder, "nobody")
    (folder / "password").write_text(PASSWORD)
    (folder / "password").chmod(0o644)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def run(program: str, *arguments: str) -> None:
        line = [*as_user, str(programs / program), "-D", str(folder / "data"), *arguments]
        subprocess.run(line, check=True, stdout=subprocess.DEVNULL, cwd=folder)

    settings = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
    try:
        run(
            "initdb", "-U", "superuser", "--no-sync", "-A", "scram-sha-256", f"--pwfile={folder / 'password'}"
        )
        run("pg_ctl", "-o", settings, "-l", str(folder / "log"), "-w", "start")
        try:
            url = f"postgresql://owner:{quote(PASSWORD, safe='')}@127.0.0.1:{port}/postgres"
            with psycopg.connect(of_superuser(url)) as connection:
                text = PASSWORD.replace("'", "''")
                connection.execute(f"CREATE ROLE owner LOGIN CREATEROLE CREATEDB PASSWORD '{text}'")
                connection.execute("ALTER DATABASE postgres OWNER TO owner")
            yield url
        finally:
            run("pg_ctl", "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def of_superuser(url: str) -> str:
    """Return the URL of the superuser of a server."""
    return url.replace("://owner:", "://superuser:")


def load(url: str, table: str, columns: str, frame: pd.DataFrame) -> None:
    """Make a table of PostgreSQL of the rows of a frame; what is missing becomes null."""
    with psycopg.connect(url) as connection:
        connection.execute(f"CREATE TABLE {table} ({columns})")
        with connection.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN") as copy:
            for row in frame.astype(object).where(frame.notna(), None).itertuples(index=False):
                copy.write_row(tuple(row))
