"""PostgreSQL: a real server on loopback answers as files do, in one read-only transaction, and keeps its password."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import fairfix
import ibis
import narwhals as nw
import numpy as np
import pandas as pd
import psycopg
import pytest
from fairfix.data import database
from fairfix.data.count_queries import bin_of
from fairfix.data.files import open_source
from fairfix.errors import DataError, UsageError

from tests.conftest import Call, make_frame
from tests.databases import PASSWORD, differences, load, postgresql, without_source
from tests.test_data.test_database import GRIDS, HOSTILE, edges_of, rows, two_passes

__all__ = ["two_passes"]

COLUMNS = {"int64": "bigint", "float64": "double precision", "float32": "real", "bool": "boolean"}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgresql() as url:
        yield url


def table(url: str, name: str, frame: pd.DataFrame) -> str:
    """Make a table of a frame; return the URL that names it."""
    quoted = [
        '"{}" {}'.format(column.replace('"', '""'), COLUMNS.get(str(kind), "text"))
        for column, kind in frame.dtypes.items()
    ]
    load(url, name, ", ".join(quoted), frame)
    return f"{url}#{name}"


@pytest.fixture(scope="module")
def data(server: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    frame, path = rows(1500), tmp_path_factory.mktemp("data") / "loans.parquet"
    frame.to_parquet(path, index=False)
    return str(path), table(server, "loans", frame)


def test_bins_in_sql_are_those_of_the_grid(server: str) -> None:
    with psycopg.connect(server) as connection:
        connection.execute("CREATE TABLE scores (at bigint, score double precision)")
        for grid in GRIDS:
            score = edges_of(grid)
            connection.execute("TRUNCATE scores")
            with connection.cursor() as cursor, cursor.copy("COPY scores FROM STDIN") as copy:
                for row in enumerate(score.tolist()):
                    copy.write_row(row)
            unbound = nw.from_native(ibis.table({"at": "int64", "score": "float64"}, name="scores"))
            asked = unbound.select("at", bin=bin_of(nw.col("score"), grid)).to_native()
            sql = ibis.to_sql(asked, dialect="postgres")
            answer = dict(connection.execute(str(sql)).fetchall())
            np.testing.assert_array_equal([answer[i] for i in range(score.size)], grid.index(score))


TYPES = {
    "text": ("text", "CASE i % 2 WHEN 0 THEN ' a' ELSE E'é''\\n\";--' END", [" a", "é'\n\";--"]),
    "bigint": ("bigint", "9007199254740993 + i % 2", ["9007199254740993", "9007199254740994"]),
    "numeric": ("numeric", "12345678901234567890123.5 + i % 2", ["12345678901234567890123.5",
                                                                "12345678901234567890124.5"]),
    "decimal": ("numeric(10,2)", "i % 2 + 0.5", ["0.5", "1.5"]),
    "boolean": ("boolean", "i % 2 = 0", ["False", "True"]),
    "date": ("date", "DATE '1969-12-31' + (i % 2)", ["1969-12-31", "1970-01-01"]),
    "time zone": ("timestamptz", "TIMESTAMPTZ '2020-06-01 12:00:00+02' + (i % 2) * INTERVAL '1 hour'",
                  ["2020-06-01 10:00:00+00:00", "2020-06-01 11:00:00+00:00"]),
    "timestamp": ("timestamp", "TIMESTAMP '2020-06-01 12:00:00.5' + (i % 2) * INTERVAL '1 hour'",
                  ["2020-06-01 12:00:00.5", "2020-06-01 13:00:00.5"]),
    "uuid": ("uuid", "('00000000-0000-0000-0000-00000000000' || (i % 2))::uuid",
             [f"00000000-0000-0000-0000-00000000000{i}" for i in (0, 1)]),
    "enum": ("mood", "CASE i % 2 WHEN 0 THEN 'ok' ELSE 'sad' END::mood", ["ok", "sad"]),
    "jsonb": ("jsonb", "CASE i % 2 WHEN 0 THEN '{\"a\": 1}' ELSE '[2]' END::jsonb", ["[2]", '{"a": 1}']),
    "inet": ("inet", "('10.0.0.' || (i % 2))::inet", ["10.0.0.0/32", "10.0.0.1/32"]),
    "nan": ("double precision", "CASE i % 2 WHEN 0 THEN 'NaN'::float8 ELSE 1.5 END", ["(missing)", "1.5"]),
    "domain": ("short", "CASE i % 2 WHEN 0 THEN 'a' ELSE 'b' END", ["a", "b"]),
    "char": ("char(3)", "CASE i % 2 WHEN 0 THEN 'a' ELSE 'b' END", ["a  ", "b  "]),
}  # fmt: skip


@pytest.fixture(scope="module")
def types(server: str) -> str:
    """Make a table with a column of every type."""
    with psycopg.connect(server) as connection:
        connection.execute("CREATE TYPE mood AS ENUM ('ok', 'sad'); CREATE DOMAIN short AS text")
        columns = ", ".join(f'"{name}" {kind}' for name, (kind, _, _) in TYPES.items())
        connection.execute(f"CREATE TABLE types ({columns}, label int, score numeric, bad int[])")
        made = ", ".join(text for _, text, _ in TYPES.values())
        entries = f"{made}, (i / 3) % 2, (i % 97) / 97.0, ARRAY[i]"
        connection.execute(f"INSERT INTO types SELECT {entries} FROM generate_series(1, 900) AS s(i)")
    return server


@pytest.mark.slow
@pytest.mark.parametrize("many", [False, True])
def test_values_mean_what_they_say(many: bool, types: str, request: pytest.FixtureRequest) -> None:
    if many:
        request.getfixturevalue("two_passes")
    for name, (_, _, groups) in TYPES.items():
        if not many and name not in ("numeric", "uuid", "enum", "time zone", "nan"):
            continue  # the others go the same way, but for a domain, which is known of a query alone
        where, read = (types, {"sql": "SELECT * FROM types"}) if many else (f"{types}#types", {})
        asked: Any = {"protected": name, "missing": {name: "group"}, "bands": {name: "values"}, **read}
        content = fairfix.audit(where, **asked).to_dict()["attributes"][0]["groups"]
        assert sorted(group["group"] for group in content) == groups, name
    with pytest.raises(DataError, match="'bad' is of type list"):
        fairfix.audit(f"{types}#types", protected="bad")


@pytest.mark.slow
def test_hostile_names_and_values_are_names_and_values(server: str, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue("two_passes")
    frame = make_frame(900)
    for name in HOSTILE:
        frame[name] = np.array([*HOSTILE[:3], "'; DELETE FROM hostile; --"])[np.arange(900) % 4]
    expected, url = fairfix.audit(frame, protected=(HOSTILE[0],)).to_dict(), table(server, "hostile", frame)

    for name in HOSTILE:
        of_table = fairfix.audit(url, protected=(name,)).to_dict()["attributes"][0]
        assert not differences(of_table["groups"], expected["attributes"][0]["groups"])
    with psycopg.connect(server) as connection:
        assert connection.execute("SELECT count(*) FROM hostile").fetchone() == (900,)


def test_a_session_only_reads(data: tuple[str, str]) -> None:
    source: Any = open_source(data[1])
    connection = source._database.con

    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        connection.execute("CREATE TABLE x (i int)")
    connection.rollback()
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        connection.execute("DELETE FROM loans")


@pytest.mark.usefixtures("two_passes")
def test_all_questions_see_the_same_rows(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = make_frame(1500)
    url = table(server, "moving", frame)
    batches = database.DatabaseSource._batches

    def changing(self: Any, question: Any) -> Any:
        yield from batches(self, question)
        with psycopg.connect(server) as connection:
            connection.execute("INSERT INTO moving SELECT * FROM moving LIMIT 7")

    expected = fairfix.audit(frame, protected="race").to_dict()
    monkeypatch.setattr(database.DatabaseSource, "_batches", changing)

    assert not differences(
        without_source(expected), without_source(fairfix.audit(url, protected="race").to_dict())
    )


@pytest.mark.slow
def test_errors_say_what_to_do(data: tuple[str, str], server: str, call: Call) -> None:
    with psycopg.connect(server) as connection:
        connection.execute("CREATE SCHEMA risk; CREATE VIEW risk.good AS SELECT * FROM loans")
        connection.execute("CREATE ROLE nosy LOGIN PASSWORD 'nosy'")
    nosy = server.replace("owner:" + quote(PASSWORD, safe=""), "nosy:nosy")
    for arguments, words in [
        ((f"{server}#loanz",), "did you mean 'loans'?"),
        ((f"{nosy}#loans",), "permission denied"),
        ((nosy.replace("nosy:nosy", "nosy:h3mlig") + "#loans",), "authentication failed"),
        ((server + "x#loans",), "does not exist"),
        ((server, "--sql", "SELECT * FROM loans; DROP TABLE loans"), "2 statements"),
        (
            (server, "--sql", "WITH d AS (DELETE FROM loans RETURNING *) SELECT * FROM d"),
            "not a read-only query",
        ),
        ((server, "--sql", "SELECT race, nope FROM loans"), "nope"),
        ((f"{server}#loans", "--score", "town"), "numbers are needed"),
    ]:
        err = call.refused("audit", *arguments, "--protected", "race", "--config", "none")
        assert words in err
        assert err.count("\n") < 12
        assert not any(secret in err for secret in (PASSWORD, quote(PASSWORD, safe=""), "h3mlig", "nosy"))
    assert call("audit", f"{server}#risk.good", "--protected", "race", "--config", "none")[0] == 0


@pytest.mark.slow
def test_predictions_of_a_table_become_a_table_beside_it(
    data: tuple[str, str], server: str, tmp_path: Path, call: Call
) -> None:
    artifact, out = str(tmp_path / "r.fairfix"), tmp_path / "out.parquet"
    fairfix.repair(data[0], method="ramp", protected="race", score="score").repaired.save(artifact)

    def run(target: str, rows: str = data[1]) -> tuple[int, str]:
        status, _, err = call("predict", artifact, rows, "-o", target, "--config", "none")
        assert not any(secret in err for secret in (PASSWORD, quote(PASSWORD, safe="")))
        return status, err

    assert run(str(out))[0] == 0
    assert run(f'{server}#public.it\'s "x"')[0] == 0
    assert run(f'{server}#public.a.b"; DROP TABLE loans; --')[0] == 0
    assert open_source(f'{server}#public.a.b"; DROP TABLE loans; --').rows == 1500
    assert open_source(f'{server}#a.b"; DROP TABLE loans; --').rows == 1500
    with psycopg.connect(server) as connection:
        connection.execute('CREATE SCHEMA a; CREATE TABLE a."b""; DROP TABLE loans; --" AS TABLE loans')
    with pytest.raises(UsageError, match="is a table of that name, and the table 'b"):
        open_source(f'{server}#a.b"; DROP TABLE loans; --')
    assert "needs its schema before it: public.d.b" in run(f"{server}#d.b")[1]
    assert "already" in run(f"{server}#loans")[1]
    assert "no schema 'nowhere'" in run(f"{server}#nowhere.x")[1]
    expected, wrong = pd.read_parquet(out), tmp_path / "wrong.csv"
    pd.read_parquet(data[0]).assign(score=lambda rows: rows.score + 3 * (rows.index == 1400)).to_csv(
        wrong, index=False
    )
    assert run(f"{server}#broken", str(wrong))[0] == 2
    with psycopg.connect(server) as connection:
        cursor = connection.execute('SELECT * FROM "it\'s ""x"""')
        made = pd.DataFrame(cursor.fetchall(), columns=[column.name for column in cursor.description or ()])
        assert connection.execute("SELECT to_regclass('broken')").fetchone() == (None,)
        assert connection.execute("SELECT count(*) FROM loans").fetchone() == (1500,)
    assert list(made) == list(expected)
    pd.testing.assert_frame_equal(
        made[["race", "score", "p_positive", "decision", "randomized"]],
        expected[["race", "score", "p_positive", "decision", "randomized"]],
        check_dtype=False,
    )


KILLED = """
import os, psycopg, signal, sys
from fairfix.cli import run
append = psycopg.Copy.write_row
rows = iter(range(99))
psycopg.Copy.write_row = lambda *given: append(*given) if next(rows, None) is not None else os.kill(os.getpid(), 9)
run(sys.argv[1:])
"""


@pytest.mark.slow
def test_a_writer_that_is_killed_leaves_no_table(
    data: tuple[str, str], server: str, tmp_path: Path, call: Call
) -> None:
    artifact = str(tmp_path / "r.fairfix")
    fairfix.repair(data[0], method="ramp", protected="race", score="score").repaired.save(artifact)
    line = ["predict", artifact, data[1], "-o", f"{server}#stopped", "--config", "none"]
    assert subprocess.run([sys.executable, "-c", KILLED, *line], check=False).returncode == -9
    with psycopg.connect(server) as connection:
        assert connection.execute("SELECT to_regclass('stopped')").fetchone() == (None,)
    assert call(*line)[0] == 0
    assert open_source(f"{server}#stopped").rows == 1500


def test_the_password_is_in_nothing_that_is_written(
    data: tuple[str, str], tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = [PASSWORD, quote(PASSWORD, safe="")]
    url = data[1].removesuffix("#loans")
    bare = url.replace(quote(PASSWORD, safe=""), "").replace("owner:@", "owner@")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fairfix.toml").write_text('[report]\nmodel = "m"\n')
    written = []

    def run(*arguments: str) -> None:
        status, out, err = call(*arguments)
        assert status in (0, 2), err
        written.append(out + err)

    asked = ("--protected", "race", "--score", "score")
    outs = [f"--out={kind}=out.{i}" for i, kind in enumerate(("json", "html", "markdown", "junit"))]
    run("audit", f"{url}#loans", *asked, "--config", "fairfix.toml", *outs, "--format", "json")
    run("count", url, *asked, "--config", "fairfix.toml", "-o", "all.counts")
    assert (
        json.loads((tmp_path / "out.0").read_text())["record"]["command"].count("postgresql://127.0.0.1") == 1
    )
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    monkeypatch.setenv("FAIRFIX_DEBUG", "1")
    run("audit", f"{bare}#loans", *asked, "--config", "fairfix.toml")
    run("audit", f"{bare}?password={quote(PASSWORD, safe='')}#loans", *asked, "--dry-run")
    run("audit", f"{url}#loans", *asked, "--dry-run")
    run("audit", f"{url}#loans", "--protected", "no", "--out", "json=bad.json")
    run("audit", f"{url}#loans")
    run("audit", f"{url}x#loans", *asked)
    run("repair", f"{url}#loans", *asked, "--method", "ramp", "-o", "r.fairfix", "--config", "fairfix.toml")
    run("predict", "r.fairfix", f"{url}#loans", "-o", "p.parquet")
    run("inspect", "r.fairfix")
    written += [path.read_bytes().decode("utf-8", "replace") for path in tmp_path.iterdir()]

    assert (tmp_path / "p.parquet").exists()
    assert not [text for text in written if any(secret in text for secret in secrets)]
