"""Databases by their paths are what they are by their URLs; files that are no results say what they are."""

from __future__ import annotations

import shlex
import sqlite3
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import duckdb
import fairfix
import pandas as pd
import pytest
from fairfix.data import database
from fairfix.data.files import open_source
from fairfix.data.opening import database_url, names_database, with_table
from fairfix.data.urls import BACKENDS
from fairfix.errors import DataError, UsageError

from tests.conftest import Call, make_frame


def duckdb_file(path: Path, **tables: pd.DataFrame) -> Path:
    """Write tables to a file of DuckDB."""
    with duckdb.connect(path) as connection:
        for name, frame in tables.items():
            connection.register("frame", frame)
            connection.execute(f'CREATE TABLE "{name}" AS SELECT * FROM frame')
    return path


def sqlite_file(path: Path, **tables: pd.DataFrame) -> Path:
    """Write tables to a file of SQLite."""
    connection = sqlite3.connect(path)
    for name, frame in tables.items():
        frame.to_sql(name, connection, index=False)
    connection.close()
    return path


pytestmark = pytest.mark.filterwarnings("ignore:The 'future.infer_string' option")  # set by Ibis, of SQLite

MAKERS = {"duckdb": duckdb_file, "sqlite": sqlite_file}


def audited(data: str, **how: Any) -> dict[str, Any]:
    """Return an audit without the name of the data, and without the next step, which has it too."""
    out = fairfix.audit(data, protected="race", **how).to_dict()
    del out["data"]["source"], out["next_step"]
    return out


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["risk.duckdb", "risk.db", "risk.sqlite", "risk.sqlite3", "risk", "a b#c%20?.db"]
)
@pytest.mark.parametrize("maker", MAKERS)
def test_a_path_is_the_url(maker: str, name: str, tmp_path: Path, away: None) -> None:
    """By content, whatever the ending; with the only table, or one that is named; relative or not."""
    path = MAKERS[maker](tmp_path / name, **{"my loans": make_frame(60)})
    path.rename(tmp_path / "plain.db")
    expected = audited(f"{maker}:///plain.db#my%20loans")
    (tmp_path / "plain.db").rename(path)

    assert audited(name) == expected
    assert audited(str(path)) == expected
    assert audited(f"{name}#my loans") == expected
    assert audited(name, sql='SELECT * FROM "my loans"') == expected
    with pytest.raises(UsageError, match="`sql`"):
        audited(f"{name}#my loans", sql="SELECT 1")


@pytest.mark.parametrize("maker", MAKERS)
def test_of_several_tables_one_is_to_be_named(maker: str, tmp_path: Path, call: Call, away: None) -> None:
    """The message lists them; what it proposes runs. The same for the URL."""
    MAKERS[maker](Path("my risk.db"), loans=make_frame(60), other=make_frame(9))
    for data in ("my risk.db", f"{maker}:///my%20risk.db"):
        err = call.refused("audit", data, "--protected", "race", "--config", "none")
        assert "loans, other" in err
        proposal = shlex.split(err.partition("name one: ")[2].partition("; it has")[0])[0]
        assert call("audit", proposal, "--protected", "race", "--config", "none")[0] == 0
    assert call("audit", "my risk.db#loan", "--protected", "race", "--config", "none")[0] == 2
    assert call("audit", "my risk.db#loans", "--protected", "race", "--config", "none", "--dry-run")[0] == 0


@pytest.mark.parametrize("maker", MAKERS)
def test_a_database_without_tables_is_said(maker: str, tmp_path: Path) -> None:
    """And so is one that came packed or through a pipe."""
    path = MAKERS[maker](tmp_path / "risk.db", x=make_frame(3))
    connect = duckdb.connect if maker == "duckdb" else sqlite3.connect
    connection = connect(path)
    connection.execute("DROP TABLE x")
    connection.close()

    with pytest.raises(DataError, match="holds no table"):
        open_source(path)


def test_a_view_of_a_path_reaches_nothing_outside(tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("race,label,score\na,1,0.5\nb,0,0.5\n")
    with duckdb.connect(tmp_path / "risk.duckdb") as connection:
        connection.execute(f"CREATE VIEW loans AS SELECT * FROM '{tmp_path}/secret.csv'")

    with pytest.raises(DataError, match="disabled by configuration"):
        audited(str(tmp_path / "risk.duckdb"))


def test_what_names_a_database(tmp_path: Path) -> None:
    """Its content alone, of a file that no kind of files claims by its ending."""
    path = duckdb_file(tmp_path / "risk.duckdb", x=make_frame(3))
    (tmp_path / "no.duckdb").write_text("race,label,score\n")
    (tmp_path / "a#b.csv").write_text("x\n1\n")

    assert names_database(str(path))
    assert names_database(f"{path}#x")
    assert names_database("duckdb:///x")
    for other in (
        f"{tmp_path}/no.duckdb",
        f"{tmp_path}/none.duckdb",
        str(tmp_path),
        "s3://b/risk.duckdb",
        None,
    ):
        assert not names_database(other)
    assert with_table(f"{tmp_path}/a#b.csv") == (f"{tmp_path}/a#b.csv", "")
    assert database_url(str(path)) == f"duckdb:///{path}"


@pytest.mark.slow
def test_predict_writes_a_new_table_by_path(tmp_path: Path, call: Call, away: None) -> None:
    """As it does by URL; a table that is there is not touched."""
    duckdb_file(Path("risk.duckdb"), loans=make_frame(400))
    options = ("--protected", "race", "--method", "ramp", "--config", "none", "-o", "r.fairfix")
    assert call("repair", "risk.duckdb#loans", *options)[0] == 0

    assert call("predict", "r.fairfix", "risk.duckdb#loans", "-o", "risk.duckdb#decided")[0] == 0
    assert call("predict", "r.fairfix", "risk.duckdb#loans", "-o", "risk.duckdb#decided")[0] == 2
    with duckdb.connect("risk.duckdb") as connection:
        assert connection.execute("SELECT count(*) FROM decided").fetchone() == (400,)


@pytest.mark.parametrize("scheme", BACKENDS)
def test_each_database_says_which_extra_it_needs(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that Ibis has, and no None; whatever driver is missing, even one without a name."""

    def missing(*_: Any, **__: Any) -> None:
        raise ImportError

    ibis = pytest.importorskip("ibis")
    monkeypatch.setattr(ibis, "connect", missing)
    for opener in ("open_duckdb", "open_sqlite", "_postgres"):
        monkeypatch.setattr(database, opener, missing)
    monkeypatch.setattr(database, "_file_of", lambda _: "x")
    with pytest.raises(UsageError, match="pip install") as error:
        open_source(f"{scheme}://host/d#t")
    extra = str(error.value).partition("pip install '")[2].rstrip("'")
    package, _, name = extra.rstrip("]").partition("[")

    assert "None" not in str(error.value)
    assert package in ("ibis-framework", "fairfix")
    assert name in metadata(package).get_all("Provides-Extra")
    if package == "fairfix":
        needs = [one for one in metadata("fairfix").get_all("Requires-Dist") if "ibis" in one]
        assert any(BACKENDS[scheme] in one for one in needs)


# ---------------------------------------------------------------------- not a result


@pytest.mark.slow
def test_what_is_no_result_says_what_it_is(tmp_path: Path, call: Call, away: None) -> None:
    """A table, a repair, counts, another format, other JSON: each with what to type, which runs."""
    frame = make_frame(400)
    frame.to_csv("d.csv", index=False)
    frame.to_parquet("d.parquet")
    frame.to_csv("d.csv.gz", index=False)
    options = ("--protected", "race", "--config", "none")
    assert call("repair", "d.csv", *options, "--method", "ramp", "-o", "r.fairfix")[0] == 0
    for kind in ("html", "markdown"):
        assert call("audit", "d.csv", *options, "--out", f"{kind}=a.{kind}")[0] == 0
    Path("a.json").write_text('{"a": 1}')
    Path("a.pdf").write_bytes(b"%PDF-1.4")
    Path("a.txt").write_text("hello")
    words = {
        "d.csv": "fairfix audit d.csv --protected COLUMN",
        "d.parquet": "fairfix audit d.parquet --protected COLUMN",
        "d.csv.gz": "fairfix audit d.csv.gz --protected COLUMN",
        "r.fairfix": "fairfix inspect r.fairfix",
        "a.html": "a report of fairfix in another format",
        "a.markdown": "a report of fairfix in another format",
        "a.json": "fairfix audit DATA --protected COLUMN --format json",
        "a.pdf": "a PDF document",
        "a.txt": "is not a JSON result",
    }
    for name, what in words.items():
        err = call.refused("report", name)
        assert what in err, err
        if "--protected COLUMN" in what and "DATA" not in what:
            line = shlex.split(what.replace("COLUMN", "race"))[1:]
            assert call(*line, "--format", "json")[0] == 0
        if "inspect" in what:
            assert call(*shlex.split(what)[1:])[0] == 0
