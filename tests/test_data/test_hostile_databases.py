"""A database of a stranger reaches nothing beyond itself: no file, no server, no variable, no extension."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import duckdb
import pandas as pd
import psycopg
import pytest
from fairfix.data.embedded import open_duckdb

from tests.conftest import Call, make_frame
from tests.databases import PASSWORD, load, of_superuser, postgresql

SECRET = "k3y-of-the-machine"  # noqa: S105  what a thief is after

READERS = {
    "text": "SELECT content AS c FROM read_text('{file}')",
    "bytes": "SELECT content::VARCHAR AS c FROM read_blob('{file}')",
    "lines": "SELECT a AS c FROM read_csv('{file}', header = false, columns = {{'a': 'VARCHAR'}}, delim = '\\t')",
    "table by its path": "SELECT * FROM '{file}'",
    "sniffer": "SELECT Prompt AS c FROM sniff_csv('{file}')",
    "parquet": "SELECT race AS c FROM read_parquet('{parquet}')",
    "footer": "SELECT key::VARCHAR AS c FROM parquet_kv_metadata('{parquet}')",
    "json": "SELECT json::VARCHAR AS c FROM read_json_objects('{json}')",
    "names of files": "SELECT file AS c FROM glob('{folder}/*')",
    "query in a text": "SELECT content AS c FROM query('SELECT content FROM read_text(''{file}'')')",
    "environment": "SELECT content AS c FROM read_text('/proc/self/environ')",
    "temporary files": "SELECT file AS c FROM glob('{temporary}/*')",
}


class Listener(BaseHTTPRequestHandler):
    seen: list[str] = []  # noqa: RUF012  one list is meant

    def do_GET(self) -> None:
        self.seen.append(self.path)
        self.send_error(404)

    do_HEAD = do_GET  # noqa: N815  the name that the server calls

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def listener() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Listener)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    """Make the files that a thief would read."""
    folder = tmp_path / "private"
    folder.mkdir()
    (folder / "key.csv").write_text(f"c\n{SECRET}\n")
    (folder / "names").mkdir()
    (folder / "names" / SECRET).touch()
    (folder / "key.json").write_text(f'{{"c": "{SECRET}"}}')
    make_frame(20).assign(race=SECRET).to_parquet(folder / "x.parquet")
    return {
        "file": str(folder / "key.csv"),
        "json": str(folder / "key.json"),
        "parquet": str(folder / "x.parquet"),
        "folder": str(folder / "names"),
        "temporary": str(tmp_path),
    }


def hostile(path: Path, select: str) -> str:
    """Make a database whose view gives what a query reads as a group; return its URL."""
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            f"CREATE VIEW loans AS SELECT c AS race, 1 AS label, 0.5 AS score FROM ({select}) "
            "UNION ALL SELECT 'b', i % 2, 0.7 FROM range(50) AS r(i)"
        )
    return f"duckdb:///{path}#loans"


@pytest.mark.slow
@pytest.mark.usefixtures("away")
@pytest.mark.parametrize("reader", READERS)
def test_a_view_reads_nothing_of_the_machine(
    reader: str, places: dict[str, str], tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", SECRET)
    url = hostile(tmp_path / "risk.duckdb", READERS[reader].format(**places))
    query = ["--sql", READERS[reader].format(**places)]
    before = sorted(tmp_path.rglob("*"))
    for line in (
        ["audit", url, "--format", "json"],
        ["repair", url, "--method", "ramp", "-o", "made.fairfix"],
        ["compare", url],
        ["audit", url.removesuffix("#loans"), *query],
    ):
        status, out, err = call(*line, "--protected", "race", "--missing", "race=group", "--config", "none")
        assert status == 2
        assert SECRET not in out + err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.usefixtures("away")
def test_whoever_writes_the_url_can_let_it_read(places: dict[str, str], tmp_path: Path, call: Call) -> None:
    url = hostile(tmp_path / "risk.duckdb", READERS["parquet"].format(**places))
    asked = url.replace("#", "?enable_external_access=true#")
    out = call.ran("audit", asked, "--protected", "race", "--format", "json", "--config", "none")
    assert SECRET in out


def test_no_query_reaches_a_server_an_extension_or_a_variable(tmp_path: Path, listener: str) -> None:
    loans = pd.DataFrame({"c": [SECRET]})
    assert len(loans) == 1  # DuckDB would read the variable by its name
    path = tmp_path / "risk.duckdb"
    duckdb.connect(str(path)).close()
    with open_duckdb(path, read_only=True) as connection:
        for text in (
            f"SELECT * FROM read_csv('{listener}/x.csv', header = false, columns = {{'a': 'VARCHAR'}})",
            f"SELECT * FROM '{listener}/x.parquet'",
            f"ATTACH '{listener}/x.duckdb' AS other",
            "SELECT * FROM loans",
            "INSTALL httpfs",
            "LOAD httpfs",
            "INSTALL sqlite FROM community",
            f"ATTACH '{tmp_path}/other.duckdb' AS other",
            f"COPY (SELECT 1) TO '{tmp_path}/out.csv'",
            f"EXPORT DATABASE '{tmp_path}/out'",
            "SET enable_external_access = true",
            "SET temp_directory = '/'",
            "RESET lock_configuration",
            "CREATE TABLE risk.main.x AS SELECT 1",
        ):
            with pytest.raises(duckdb.Error):
                connection.execute(text).fetchall()
    assert Listener.seen == []
    assert sorted(tmp_path.iterdir()) == [path]


def test_more_than_memory_holds_is_still_sorted(tmp_path: Path) -> None:
    """What waits in a folder of its own is gone in the end."""
    path = tmp_path / "large.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT hash(i)::VARCHAR || repeat('x', 60) AS v FROM range(400000) r(i)"
        )
    few = {"memory_limit": "40MB", "threads": "1"}
    with open_duckdb(path, read_only=True, settings=few) as connection:
        (folder,) = connection.execute("SELECT current_setting('temp_directory')").fetchone()
        ordered = "SELECT count(*) FROM (SELECT v, row_number() OVER (ORDER BY v) AS n FROM t) WHERE n > 0"
        assert connection.execute(ordered).fetchone() == (400000,)
    assert not Path(folder).exists()


# ---------------------------------------------------------------------- PostgreSQL


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgresql() as url:
        load(url, "loans", "race text, label bigint, score double precision",
             make_frame(60)[["race", "label", "score"]])  # fmt: skip
        yield url


@pytest.mark.slow
@pytest.mark.parametrize("role", ["superuser", *("pg_execute_server_program", "pg_write_server_files")])
def test_a_privileged_role_needs_consent(role: str, server: str, call: Call) -> None:
    url = of_superuser(server)
    with psycopg.connect(url) as connection:
        connection.execute("GRANT SELECT ON loans TO PUBLIC")
        if role != "superuser":
            connection.execute(f"CREATE ROLE with_{role} LOGIN PASSWORD 'x' IN ROLE {role}")
            secret = quote(PASSWORD, safe="")
            url = server.replace(f"owner:{secret}", f"with_{role}:x")

    err = call.refused("audit", f"{url}#loans", "--protected", "race", "--config", "none")
    assert "privileged=allow" in err
    for more in (
        "?privileged=allow",
        "?connect_timeout=9&privileged=allow",
        "?privileged=allow&connect_timeout=9",
    ):
        call.ran("audit", f"{url}{more}#loans", "--protected", "race", "--config", "none")


def test_a_query_calls_only_what_has_no_side_effects(server: str, call: Call) -> None:
    with psycopg.connect(server) as connection:
        connection.execute(
            "CREATE FUNCTION calm(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN $1; END $$"
        )
    asked = "SELECT {} AS race, label, score FROM loans"
    statuses: dict[str, Any] = {}
    for expression in ("pg_sleep(9)::text", "calm(race)", "public.calm(race)", "dblink_exec('x', 'y')",
                       "pg_read_file('/etc/hostname')", "set_config('work_mem', '1GB', false)",
                       "(SELECT pg_reload_conf()::text)", "lo_import('/etc/hostname')::text"):  # fmt: skip
        status, _, err = call(
            "audit", server, "--sql", asked.format(expression), "--protected", "race", "--config", "none"
        )
        statuses[expression] = (status, "side effects" in err)
    assert set(statuses.values()) == {(2, True)}
    for expression in (
        "upper(race)",
        "btrim(race, ' ')",
        "md5(race)",
        "quote_literal(race)",
        "left(race, 2)",
    ):
        status, _, err = call(
            "audit", server, "--sql", asked.format(expression), "--protected", "race", "--config", "none"
        )
        assert (expression, status) == (expression, 0), err


def test_a_question_ends_with_its_time(server: str, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairfix.data.database.PATIENCE", "300ms")
    with psycopg.connect(server) as connection:
        connection.execute(
            "CREATE VIEW slow AS SELECT race, label, score + 0 * length(pg_sleep(9)::text) AS score FROM loans"
        )
    err = call.refused("audit", f"{server}#slow", "--protected", "race", "--config", "none")
    assert "statement_timeout" in err
