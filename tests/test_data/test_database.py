"""Databases: DuckDB answers as the same rows in a file do, whatever they hold, and is only read."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import fairfix
import fairfix.cli
import ibis
import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fairfix.auditing import audit as auditing
from fairfix.auditing import ks_candidates as narrowing
from fairfix.data import count_queries, database, engines, new_table, scan
from fairfix.data.count_queries import bin_of, in_bins
from fairfix.data.counts import Grid
from fairfix.data.database import only_query, secrets_of
from fairfix.data.files import open_source
from fairfix.data.urls import hidden, shown_argument, shown_url
from fairfix.errors import DataError, FairfixError, UsageError

from tests.conftest import Call, make_frame
from tests.databases import differences, without_source


@pytest.fixture
def two_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a few thousand rows many, so that exact distances take a second pass."""
    for module in (scan, count_queries, engines, auditing):
        monkeypatch.setattr(module, "SORT_ROWS", 500)
    monkeypatch.setattr(narrowing, "SORT_ROWS", 100)
    monkeypatch.setattr(scan, "KEEP_ROWS", 1000)


def both(tmp_path: Path, frame: pd.DataFrame, name: str = "loans") -> tuple[str, str]:
    """Write a frame as a Parquet file and as a table of DuckDB; return path and URL."""
    path, base = tmp_path / f"{name}.parquet", tmp_path / f"{name}.duckdb"
    plain = pa.Table.from_pandas(frame, preserve_index=False)
    kinds = [pa.string() if pa.types.is_large_string(one.type) else one.type for one in plain.schema]
    pq.write_table(plain.cast(pa.schema(zip(plain.column_names, kinds, strict=True))), path)
    with duckdb.connect(str(base)) as connection:
        connection.execute(f"CREATE TABLE loans AS FROM read_parquet('{path}')")
    return str(path), f"duckdb:///{base}#loans"


def rows(n: int = 4000) -> pd.DataFrame:
    """Return rows with scores of every scale, decisions, and entries that are missing."""
    frame, rng = make_frame(n), np.random.default_rng(5)
    frame["percent"], frame["margin"] = frame.score * 100, frame.score * 2 - 1
    frame["logit"] = rng.normal(size=n) * 30
    frame["said"] = np.where(rng.random(n) < frame.score, "grant", "deny")
    frame["word"] = np.where(frame.label == 1, "repaid", "lost")
    frame["draw"] = np.round(rng.random(n), 2)
    frame["single"] = frame.score.astype(np.float32)
    frame["widened"] = np.where(rng.random(n) < 0.5, float(np.float32(0.7)), np.round(rng.random(n), 2))
    frame["sure"] = np.where(
        rng.random(n) < 0.3, frame.label, frame.score
    )  # infinite log loss on none of them
    frame["wrong"] = np.where(rng.random(n) < 0.1, 1 - frame.label, frame.score)
    gaps = frame[["race", "label", "score", "weight", "draw"]].astype(object)
    for i, column in enumerate(gaps):
        gaps.loc[rng.random(n) < 0.02 * (i + 1), column] = None
    frame["old"], frame["amount"] = gaps.race, gaps.weight.astype(float)
    frame["y_gap"], frame["s_gap"] = gaps.label.astype(float), gaps.score.astype(float)
    frame["p_gap"] = gaps.draw.astype(float)
    frame["some_zero"] = np.where(rng.random(n) < 0.1, 0.0, frame.weight)
    return frame


QUESTIONS: dict[str, dict[str, Any]] = {
    "plain": {"protected": ("race", "member")},
    "weights and strata": {"protected": ("race", "member"), "weight": "weight", "strata": "town", "intersect": True},
    "percent": {"protected": "race", "score": "percent", "score_scale": "percent", "threshold": 40},
    "margin": {"protected": "race", "score": "margin", "score_scale": "margin"},
    "logit": {"protected": "race", "score": "logit", "score_scale": "logit", "weight": "weight"},
    "raw": {"protected": "race", "score": "logit", "score_scale": "raw", "threshold": 0.3},
    "float32": {"protected": "race", "score": "single", "threshold": 0.7},
    "words": {"protected": "race", "label": "word=repaid"},
    "decisions": {"protected": "race", "label": "word=repaid", "prediction": "said=grant"},
    "probabilities": {"protected": "race", "probability": "draw", "weight": "weight"},
    "regression": {"protected": "race", "label": "x", "score": "logit", "task": "regression"},
    "bands": {"protected": ("race", "weight"), "bands": "weight=1,1.5"},
    "bands of numbers once in 32 bits": {"protected": ("race", "widened"), "bands": "widened=0.1,0.7"},
    "quartiles": {"protected": "amount", "bands": "amount=quartiles", "missing": "amount=group"},
    "infinite loss": {"protected": "race", "score": "wrong"},
    "gaps": {"protected": "old", "label": "y_gap", "score": "s_gap", "weight": "amount", "probability": "p_gap",
             "missing": "drop"},
    "gap group": {"protected": "old", "weight": "some_zero", "missing": "old=group"},
    "no label": {"protected": "race", "label": "member", "prediction": "label", "score": "score", "strata": "town"},
}  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return both(tmp_path_factory.mktemp("data"), rows())


@pytest.mark.slow
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("weight", [None, "weight"])
def test_alike_groups_send_few_rows(
    ties: bool, weight: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nearly every bin can hold the distance of groups that are alike; finer ones leave few rows, or rows that tie.

    So it is where an answer has room for bins that are half as wide, and no more.
    """
    for module, few in ((auditing, 500), (engines, 500), (narrowing, 400), (scan, 1)):
        monkeypatch.setattr(module, "SORT_ROWS", few)
    monkeypatch.setattr(narrowing, "A_QUESTION", 0.0)
    monkeypatch.setattr(narrowing, "ENTRIES", 2000)
    for name, bins in (("FINE_BINS", 256), ("KEEP_ROWS", 0)):
        monkeypatch.setattr(scan, name, bins)
    n, rng = 40_000, np.random.default_rng(3)
    score = rng.random(n) if not ties else rng.integers(0, 400, n) / 400
    frame = pd.DataFrame(
        {"sex": rng.choice(["f", "m"], n), "age": rng.choice(list("uvw"), n), "score": score}
    )
    frame["town"], frame["label"] = rng.choice(["n", "s"], n), (rng.random(n) < frame.score).astype(int)
    frame["weight"] = rng.integers(1, 5, n) / 2
    answers: list[tuple[bool, int]] = []
    collected = database.DatabaseSource.collected

    def watched(self: Any, *given: Any) -> Any:
        rows = collected(self, *given)
        answers.append((len(given) > 3, rows.score.size))
        return rows

    monkeypatch.setattr(database.DatabaseSource, "collected", watched)
    asked: Any = {"protected": ("sex", "age"), "intersect": True, "strata": "town", "weight": weight}
    of_file, of_table = (fairfix.audit(source, **asked).to_dict() for source in both(tmp_path, frame))

    assert not differences(without_source(of_file), without_source(of_table))
    assert [finer for finer, _ in answers[-2:]] == [True, False]
    assert answers[-1][1] <= (400 * 12 if ties else n / 15)
    assert len(answers) < (12 if ties else 20)  # ties are not asked for again and again


GRIDS = [
    Grid.over(0.0, 1.0, bins=1024, thresholds=(0.5,)),
    Grid.over(0.0, 1.0, bins=1 << 14, thresholds=(0.1, 0.30000000000000004, 1.0)),
    Grid.over(-1.0, 1.0, bins=1 << 16, thresholds=(0.0,)),
    Grid.over(-3.7, 1e6, bins=512, thresholds=(1e-300, 7.3)),
    Grid.over(-1e300, 1.7e308, bins=512, thresholds=(-5e-324, 2.0)),
]


def edges_of(grid: Grid) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return bin edges, thresholds, zeros and small numbers inside a grid, with their neighbours."""
    ends = np.array([0.0, -0.0, 5e-324, -5e-324, 1e-310, -1e-310, 1.0, *grid.thresholds])
    drawn = np.random.default_rng(0).uniform(max(grid.edges[0], -1e307), min(grid.edges[-1], 1e307), 500)
    at = np.concatenate([grid.edges[:: max(1, grid.size // 500)], ends, drawn])
    at = np.concatenate([at, np.nextafter(at, -np.inf), np.nextafter(at, np.inf)])
    return at[(at >= grid.edges[0]) & (at < grid.edges[-1])]


@pytest.mark.parametrize("grid", GRIDS)
def test_bins_in_sql_are_those_of_the_grid(grid: Grid) -> None:
    score = edges_of(grid)
    connection = ibis.duckdb.connect()
    connection.con.register("frame", pd.DataFrame({"at": np.arange(score.size), "score": score}))
    table = ibis.table({"at": "int64", "score": "float64"}, name="frame")
    asked = nw.from_native(table).select("at", bin=bin_of(nw.col("score"), grid)).to_native()
    answer = dict(connection.con.execute(connection.compile(asked)).fetchall())

    np.testing.assert_array_equal([answer[i] for i in range(score.size)], grid.index(score))


@pytest.mark.parametrize("chosen", [[3], range(5000), [*range(0, 12000, 2), 15000], [0, *range(6000, 11000)]])
def test_chosen_bins_are_asked_for(chosen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bins, at = np.array(list(chosen)), np.arange(16384)
    connection = ibis.duckdb.connect()
    connection.con.register("frame", pd.DataFrame({"bin": at}))
    table = nw.from_native(ibis.table({"bin": "int64"}, name="frame"))
    marked = in_bins(table, "bin", bins).filter(nw.col("in_bin")).select("bin")
    sql = connection.compile(marked.to_native())
    inside = {one for (one,) in connection.con.execute(sql).fetchall()}

    assert inside >= set(bins.tolist())
    assert len(bins) > 4096 or inside == set(bins.tolist())
    if list(chosen)[:2] == [0, 6000]:
        assert inside == set(bins.tolist())


# ---------------------------------------------------------------------- entries


WRONG: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "out of range": ("score", 1.5, {}),
    "infinite": ("score", math.inf, {}),
    "missing score": ("score", math.nan, {}),
    "negative weight": ("weight", -1.0, {"weight": "weight"}),
    "missing group": ("race", None, {}),
    "label": ("label", 2, {}),
    "probability": ("x", 1.25, {"probability": "x"}),
    "word": ("town", "grant", {"prediction": "town"}),
    "band": ("x", -math.inf, {"protected": "x", "bands": "x=0,1"}),
    "type": ("score", 0.5, {"score": "town"}),
    "no such level": ("score", 0.5, {"label": "label=yes"}),
    "amounts": ("score", 0.5, {"protected": "x"}),
}


TYPES = {
    "bigint": "9007199254740993 + i % 3",
    "ubigint": "(18446744073709551615 - (i % 3))::UBIGINT",
    "decimal": "(i % 3 + 0.5)::DECIMAL(10, 2)",
    "boolean": "i % 3 = 1",
    "text": "CASE i % 3 WHEN 0 THEN '' WHEN 1 THEN ' a' ELSE 'é\"'';--' END",
    "date": "DATE '1969-12-30' + (i % 3)::INTEGER",
    "timestamp": "TIMESTAMP '2020-02-29 23:59:59.123456' + INTERVAL 1 DAY * (i % 3)",
    "time zone": "TIMESTAMPTZ '2020-06-01 12:00:00+02' + INTERVAL 1 HOUR * (i % 3)",
    "seconds": "('2020-01-0' || (1 + i % 3))::TIMESTAMP_S",
    "nanoseconds": "('2020-01-0' || (1 + i % 3) || ' 00:00:00.123456789')::TIMESTAMP_NS",
    "time": "TIME '10:00:00' + INTERVAL 1 MINUTE * (i % 3)",
    "float": "(i % 3)::FLOAT + 0.1::FLOAT",
    "double": "CASE i % 3 WHEN 0 THEN 'nan'::DOUBLE WHEN 1 THEN 1e300 ELSE -0.5 END",
    "zeros": "CASE i % 3 WHEN 0 THEN -0.0::DOUBLE WHEN 1 THEN 0.0::DOUBLE ELSE 1.5 END",
    "blob": "('\\x0' || (i % 3))::BLOB",
    "enum": "('g' || (i % 3))::ENUM ('g0', 'g1', 'g2')",
    "null": "CASE WHEN i % 3 = 0 THEN NULL ELSE 'g' || (i % 3) END",
    "tiny": "(i % 3)::UTINYINT",
}


@pytest.mark.parametrize("kind", ["[i % 3]", "{'a': i % 3}", "MAP {'a': i % 3}", "INTERVAL 1 DAY * (i % 3)",
                                  "(i % 3)::UHUGEINT", "'101'::BIT"])  # fmt: skip
def test_types_that_name_no_groups_are_refused_by_name(kind: str, tmp_path: Path) -> None:
    base = tmp_path / "nested.duckdb"
    with duckdb.connect(str(base)) as connection:
        connection.execute(
            f"CREATE TABLE t AS SELECT {kind} AS g, i % 2 AS label, 0.5 AS score FROM range(9) AS t(i)"
        )

    with pytest.raises(DataError, match=r"column 'g'.* type "):
        fairfix.audit(f"duckdb:///{base}#t", protected="g")


def test_whole_numbers_of_any_size_are_groups(tmp_path: Path) -> None:
    base, first = tmp_path / "huge.duckdb", 12345678901234567890123456789012345678
    with duckdb.connect(str(base)) as connection:
        made = f"SELECT {first}::HUGEINT + i % 3 AS g, i % 2 AS label, 0.5 AS score FROM range(90) AS t(i)"
        connection.execute(f"CREATE TABLE t AS {made}")
    groups = fairfix.audit(f"duckdb:///{base}#t", protected="g").to_dict()["attributes"][0]["groups"]

    assert [group["group"] for group in groups] == [str(first + i) for i in range(3)]


HOSTILE = ['"; DROP TABLE loans; --', "it's", "a\nb", "ünï 表 \U0001f600", "`x`", "%s {0} $1", "a,b"]


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.usefixtures("two_passes")
def test_hostile_names_and_values_are_names_and_values(name: str, tmp_path: Path) -> None:
    frame = make_frame(1200)
    frame[name] = np.array([*HOSTILE[:3], "'; DELETE FROM loans; --"])[np.arange(1200) % 4]
    frame["y'"], frame['s"s'] = frame.pop("label"), frame.pop("score")
    asked: Any = {"protected": name, "label": "y'", "score": 's"s'}
    if "," in name:
        asked["protected"] = (name,)
    of_file, of_table = (fairfix.audit(source, **asked).to_dict() for source in both(tmp_path, frame))

    assert not differences(without_source(of_file), without_source(of_table))
    with duckdb.connect(str(tmp_path / "loans.duckdb"), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM loans").fetchone() == (1200,)


# ---------------------------------------------------------------------- queries, names, secrets


@pytest.mark.parametrize("text", [
    "", ";", "DROP TABLE loans", "SELECT 1; SELECT 2", "SELECT 1; DROP TABLE loans", "INSERT INTO loans VALUES (1)",
    "WITH d AS (DELETE FROM loans RETURNING *) SELECT * FROM d", "COPY loans TO 'x.csv'", "PRAGMA database_list",
    "SELECT * INTO other FROM loans", "SELECT * FROM loans FOR UPDATE", "ATTACH 'x'", "CALL f()", "EXPLAIN SELECT 1",
    "SET memory_limit='1GB'", "CREATE TABLE x AS SELECT 1", "SELEC 1", "loans", "UPDATE loans SET label = 1",
    "BEGIN", "VACUUM", "SELECT (", "EXPORT DATABASE 'x'", "INSTALL httpfs", "LOAD httpfs", "GRANT ALL ON loans TO x",
])  # fmt: skip
@pytest.mark.parametrize("dialect", ["duckdb", "postgres"])
def test_only_one_query_that_reads_is_taken(
    text: str, dialect: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match="`sql`"):
        only_query(text, dialect)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("text", [
    "SELECT ';' AS a", "WITH a AS (SELECT 1 AS x) SELECT * FROM a", "SELECT 1 UNION ALL SELECT 2;",
    "SELECT 'drop table x' -- ; delete", "(SELECT 1)",
])  # fmt: skip
def test_queries_are_taken(text: str) -> None:
    assert only_query(text, "duckdb")


SECRET = "h3mlig"  # noqa: S105  a word to look for


@pytest.mark.parametrize(("url", "shown"), [
    (f"postgresql://u:{SECRET}@host:5432/db", "postgresql://host:5432/db"),
    (f"postgresql://u:{SECRET}/@/x@host/db", "postgresql://host/db"),
    (f"postgresql://u:a@b#{SECRET}@host/db", "postgresql://..."),
    (f"postgresql://u:a?b{SECRET}@host/db", "postgresql://..."),
    (f"postgresql://host/db?password={SECRET}&sslmode=require", "postgresql://host/db"),
    (f"postgresql://host/db?user=a@b&password={SECRET}", "postgresql://..."),
    (f"postgresql://host/db?password=a@{SECRET}", "postgresql://..."),
    (f"postgresql://host/db#a@{SECRET}", "postgresql://..."),
    (f"snowflake://u:{SECRET}@acct/db/schema?token={SECRET}", "snowflake://acct/db/schema"),
    ("postgresql:///db", "postgresql:///db"), ("loans.csv", "loans.csv"), ("a b/c:d.parquet", "a b/c:d.parquet"),
    ("https://u:p@h:80/a/b.csv?sig=x#t", "https://h:80/a/b.csv"), ("https://token@h/b.csv", "https://h/b.csv"),
    ("https://u:p?w@h/b.csv", "https://..."), ("https://u:7?w@h/b.csv", "https://..."),
    ("https://u:p/w@h:80/b.csv", "https://..."), ("https://[::1]:80/b.csv?sig=x", "https://[::1]:80/b.csv"),
    ("s3://b/a?.csv", "s3://b/a?.csv"), ("s3://b/a?.csv?region=eu&access_key=x", "s3://b/a?.csv"),
    ("s3://K:a/b+c@b/d.csv", "s3://b/d.csv"),
    ("abfs://box@acc.dfs.core.windows.net/d.csv", "abfs://box@acc.dfs.core.windows.net/d.csv"),
    ("abfs://box:key@acc.dfs.core.windows.net/d.csv", "abfs://box@acc.dfs.core.windows.net/d.csv"),
])  # fmt: skip
def test_urls_are_shown_without_secrets(url: str, shown: str) -> None:
    assert shown_url(url) == shown
    assert hidden(f"see '{url}' or so") == f"see '{shown}' or so"
    assert SECRET not in shown_argument(f"--baseline={url}")
    assert hidden("No: ?X-Amz-Signature=abc&x=1, a/b?c=d e@f") == "No: ?X-Amz-Signature=...&x=1, a/b?c=d e@f"


def test_what_is_secret_is_known_in_both_spellings() -> None:
    assert {"a/b", "a%2Fb", "tok"} <= set(secrets_of("postgresql://u:a%2Fb@host/db?token=tok"))


@pytest.mark.parametrize(("arguments", "words"), [
    (("#loanz",), "did you mean 'loans'?"),
    (("#loans", "--sql", "SELECT 1"), "--sql"), (("--sql", "SELECT * FROM nope"), "nope"),
    (("#loans", "--delimiter", ";"), "--delimiter is for CSV files"),
    (("--sql", "SELECT race, race, label, score FROM loans"), "'race' more than once"),
    (("#loans", "--protected", "rase"), "did you mean 'race'?"),
])  # fmt: skip
def test_errors_say_what_to_do(
    arguments: tuple[str, ...], words: str, data: tuple[str, str], call: Call
) -> None:
    table = arguments[0] if arguments[0].startswith("#") else ""
    url = data[1].removesuffix("#loans") + table
    err = call.refused("audit", url, "--protected", "race", *arguments[bool(table) :], "--config", "none")
    assert words in err


@pytest.mark.parametrize(("url", "words"), [
    ("duckdb:///nowhere.duckdb#t", "does not exist"), ("duckdb:///{parquet}#t", "cannot connect"),
    ("snowflake://u:h3mlig@acct/db#t", "pip install 'ibis-framework[snowflake]'"),
    ("postgresql://u:h3mlig@127.0.0.1:1/db#t", "Connection refused"),
    ("postgresql://u:h3/mlig@127.0.0.1:1/db#t", "write / as %2F"), ("mysql://u:h3[mlig@127.0.0.1/db#t", "[ as %5B"),
    ("duckdb:///{base}#loan", "did you mean 'loans'?"),
    ("mongodb://u:h3mlig@host/db", "has an unknown scheme"),
])  # fmt: skip
def test_what_cannot_be_opened_is_named_without_secrets(
    url: str, words: str, data: tuple[str, str], call: Call
) -> None:
    named = url.format(parquet=data[0], base=data[1].split("///")[1].removesuffix("#loans"))
    err = call.refused("audit", named, "--protected", "race", "--config", "none")
    assert words in err
    assert not any(part in err for part in (SECRET, "h3", "mlig"))


def test_without_ibis_the_extra_is_named(data: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "import_module", lambda name: (_ for _ in ()).throw(ImportError(name)))
    with pytest.raises(UsageError, match=r"pip install 'fairfix\[sql\]'"):
        open_source(data[1])


# ---------------------------------------------------------------------- commands


def test_a_dry_run_prints_the_sql_and_sends_none(
    data: tuple[str, str], call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    batches = database.DatabaseSource._batches
    monkeypatch.setattr(
        database.DatabaseSource,
        "_batches",
        lambda self, question: asked.append("") or batches(self, question),
    )
    out = call.ran("audit", data[1], "--protected", "race,member", "--dry-run", "--config", "none")
    assert not asked
    statements = [text for text in out.split(";\n") if text.strip()]
    assert len(statements) == 5
    with duckdb.connect(data[1].split("///")[1].removesuffix("#loans"), read_only=True) as connection:
        for text in statements:
            connection.execute(text)
    for command in (("compare",), ("repair", "--method", "ramp")):
        out = call.ran(*command, data[1], "--protected", "race", "--dry-run", "--config", "none")
        assert out.count(";\n") == 1
    assert not asked
    assert call("audit", data[1], "--protected", "race", "--config", "none", "--quiet")[0] == 0
    assert asked


@pytest.mark.parametrize("first", ["file", "database"])
@pytest.mark.parametrize(
    ("command", "option"),
    [
        (("audit", "--id", "no", "--check", "change<=0.02"), "--baseline"),
        (("compare", "--id", "no"), "--baseline"),
        (("repair", "--method", "ramp", "-o", "x.fairfix"), "--unlabelled"),
    ],
)
def test_a_dry_run_prints_what_every_database_would_be_asked(
    command: tuple[str, ...], option: str, first: str, tmp_path: Path, call: Call
) -> None:
    path, url = both(tmp_path, make_frame(600).assign(no=np.arange(600)), "ids")
    other = both(tmp_path, make_frame(400).assign(no=np.arange(400)), "more")[1]
    given = ("--score", "score", "--protected", "race", "--dry-run", "--config", "none", option, other)
    out = call.ran(command[0], path if first == "file" else url, *command[1:], *given)
    assert ("ids.duckdb" in out) == (first == "database")
    assert "more.duckdb" in out
    texts = [text for text in out.split(";\n") if text.strip()]
    assert not Path("x.fairfix").exists()
    for base in ("ids", "more"):
        with duckdb.connect(str(tmp_path / f"{base}.duckdb"), read_only=True) as connection:
            for text in texts:
                if f'FROM "{base}"' in text:
                    connection.execute(text)
    assert '-- score = "score"  # command line\n' in out
    out = call.ran(command[0], path, *command[1:], *given[:-2], option, path)  # no database at all
    assert 'score = "score"  # command line\n' in out
    assert not re.search(r"^--|;$", out, re.MULTILINE)


def test_repair_and_predict_are_those_of_a_file(data: tuple[str, str], tmp_path: Path, call: Call) -> None:
    frames = []
    for i, source in enumerate(data):
        artifact, out = tmp_path / f"{i}.fairfix", tmp_path / f"{i}.parquet"
        asked = ("--protected", "race", "--score", "score", "--method", "ramp", "--config", "none", "--quiet")
        assert call("repair", source, *asked, "-o", str(artifact))[0] == 0
        assert call("predict", str(artifact), source, "-o", str(out), "--config", "none")[0] == 0
        frames.append(pd.read_parquet(out))

    pd.testing.assert_frame_equal(*frames)


# ---------------------------------------------------------------------- new tables


@pytest.fixture(scope="module")
def artifact(data: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the file of a repair."""
    path = str(tmp_path_factory.mktemp("repair") / "r.fairfix")
    fairfix.repair(data[0], method="ramp", protected="race", score="score").repaired.save(path)
    return path


def loans_of(tmp_path: Path) -> tuple[Path, str]:
    """Make a database with a table of rows and a view; return its file and its URL."""
    base = tmp_path / "out.duckdb"
    frame = rows(900)
    with duckdb.connect(str(base)) as connection:
        connection.register("frame", frame)
        connection.execute(
            "CREATE TABLE loans AS FROM frame; CREATE VIEW Seen AS FROM loans; CREATE SCHEMA risk; "
            'CREATE SCHEMA deep; CREATE SCHEMA "deep.er"'
        )
    return base, f"duckdb:///{base}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["decided", "risk.decided", 'main.it\'s "x"', 'risk.a.b"; DROP TABLE loans; --']
)
def test_predictions_of_a_table_become_a_table_beside_it(
    name: str, artifact: str, tmp_path: Path, call: Call
) -> None:
    """The table is named after its schema, has dots and quotes as they stand, and is read by the same name."""
    base, url = loans_of(tmp_path)
    out = tmp_path / "out.parquet"

    assert call("predict", artifact, f"{url}#loans", "-o", str(out), "--config", "none")[0] == 0
    assert call("predict", artifact, f"{url}#loans", "-o", f"{url}#{name}", "--config", "none")[0] == 0
    assert open_source(f"{url}#{name}").rows == 900
    schema, _, own = f"main.{name}".removeprefix("main." if "." in name else "").partition(".")
    place = f'"{schema}"."{own.replace(chr(34), chr(34) * 2)}"'
    with duckdb.connect(str(base), read_only=True) as connection:
        pd.testing.assert_frame_equal(connection.sql(f"FROM {place}").df(), pd.read_parquet(out))
        assert connection.execute("SELECT count(*) FROM loans").fetchone() == (900,)
    assert not list(tmp_path.glob("*.wal"))


@pytest.mark.parametrize(("name", "words"), [
    ("#loans", "already has 'loans'"), ("#LOANS", "already"), ("#seen", "already"), ("", "end the URL in #"),
    ("#nowhere.x", "no schema 'nowhere'"), ("#decided.", "no schema 'decided'"),
    ("#deep.er.x", "can be the table 'er.x' in the schema 'deep' or 'x' in the schema 'deep.er'"),
    ("#temp.x", "no schema 'temp'"), ("#a.b", "needs its schema before it: main.a.b"),
])  # fmt: skip
def test_only_a_new_table_is_written(
    name: str, words: str, artifact: str, tmp_path: Path, call: Call
) -> None:
    base, url = loans_of(tmp_path)
    before = base.read_bytes()
    err = call.refused("predict", artifact, f"{url}#loans", "-o", url + name, "--config", "none")
    assert words in err
    assert base.read_bytes() == before


def test_a_name_with_a_dot_is_read_where_it_stands_for_one_table(tmp_path: Path, call: Call) -> None:
    base, url = loans_of(tmp_path)
    with duckdb.connect(str(base)) as connection:
        connection.execute('CREATE TABLE "risk.new" AS FROM loans LIMIT 600')
    asked = ("--protected", "race", "--score", "score", "--config", "none", "--quiet")
    assert call("audit", f"{url}#risk.new", *asked)[0] == 0
    with duckdb.connect(str(base)) as connection:
        connection.execute("CREATE TABLE risk.new AS FROM loans")
    err = call.refused("audit", f"{url}#risk.new", *asked)
    assert (
        "'risk.new' is a table of that name, and the table 'new' of the schema 'risk'; choose by --sql" in err
    )
    assert (open_source(f"{url}#main.risk.new").rows, open_source(f"{url}#out.risk.new").rows) == (600, 900)


@pytest.mark.parametrize("there", [True, False])
def test_a_table_that_is_not_whole_is_not_there(
    there: bool,
    artifact: str,
    data: tuple[str, str],
    tmp_path: Path,
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    base, url = loans_of(tmp_path) if there else (tmp_path / "new.duckdb", f"duckdb:///{tmp_path}/new.duckdb")
    wrong = tmp_path / "wrong.csv"
    pd.read_parquet(data[0]).assign(score=lambda rows: rows.score + 3 * (rows.index == 3500)).to_csv(
        wrong, index=False
    )

    def tables() -> list[Any]:
        with duckdb.connect(str(base), read_only=True) as connection:
            return connection.sql("SELECT table_name FROM duckdb_tables()").fetchall()

    assert call("predict", artifact, str(wrong), "-o", f"{url}#decided", "--config", "none")[0] == 2
    assert base.exists() == there

    def broken(rows: Any, size: int) -> Iterator[pa.RecordBatch]:
        yield next(pq.ParquetFile.iter_batches(rows, size // 64))
        raise pa.ArrowInvalid("the rows broke off")

    whole = type("Broken", (pq.ParquetFile,), {"iter_batches": broken})
    monkeypatch.setattr(new_table, "pq", SimpleNamespace(ParquetWriter=pq.ParquetWriter, ParquetFile=whole))
    call.refused("predict", artifact, data[0], "-o", f"{url}#decided", "--config", "none")
    assert base.exists() == there
    assert not there or tables() == [("loans",)]


STOPPED = """
import os, sys
from fairfix.cli import main
from fairfix.data import new_table

number, statement = int(sys.argv[1]), sys.argv[2]
opened = new_table.open_duckdb

class Stopped:
    def __init__(self, connection):
        self.connection = connection

    def __getattr__(self, name):
        return getattr(self.connection, name)

    def execute(self, sql, *given):
        answer = self.connection.execute(sql, *given)
        if sql.startswith(statement):
            os.kill(os.getpid(), number)
        return answer

@new_table.contextmanager
def duckdb(path, *, read_only):
    with opened(path, read_only=read_only) as connection:
        yield Stopped(connection)

new_table.open_duckdb = duckdb
if statement == "rows":
    append = new_table.pq.ParquetWriter.write_table
    new_table.pq.ParquetWriter.write_table = lambda *given: append(*given) or os.kill(os.getpid(), number)
sys.argv[1:] = sys.argv[3:]
main()
"""
"""A command that is stopped by a signal as soon as rows, or a statement, have gone to the database."""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="a system without SIGKILL")
@pytest.mark.parametrize(
    ("number", "statement", "there"),
    [("SIGKILL", "rows", True), ("SIGKILL", "CREATE", True), ("SIGTERM", "CREATE", False)],
)
def test_a_writer_that_is_stopped_leaves_no_half_table(
    number: str, statement: str, there: bool, artifact: str, tmp_path: Path
) -> None:
    """A database that was there has its tables, and the new one whole or not at all; nothing else stays."""
    base, url = loans_of(tmp_path)
    target = f"duckdb:///{tmp_path}/{'out' if there else 'new'}.duckdb#decided"
    (tmp_path / "temporary").mkdir()
    code = int(getattr(signal, number))
    line = [
        sys.executable,
        "-c",
        STOPPED,
        str(code),
        statement,
        "predict",
        artifact,
        f"{url}#loans",
        "-o",
        target,
    ]
    ended = subprocess.run(
        [*line, "--config", "none"],
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary")},
        capture_output=True,
        text=True,
    )

    assert ended.returncode == (143 if number == "SIGTERM" else -code), ended.stderr
    assert not list((tmp_path / "temporary").iterdir())
    assert {one.name for one in tmp_path.iterdir()} - {"temporary", "out.duckdb.wal"} == {"out.duckdb"}
    with duckdb.connect(str(base), read_only=True) as connection:
        assert connection.sql("SELECT table_name FROM duckdb_tables()").fetchall() == [("loans",)]
        assert connection.execute("SELECT count(*) FROM loans").fetchone() == (900,)
    assert fairfix.cli.run(["predict", artifact, f"{url}#loans", "-o", target, "--config", "none"]) == 0
    assert open_source(target).rows == 900
    assert not list(tmp_path.glob("*.wal"))


def test_compare_is_that_of_a_file(data: tuple[str, str]) -> None:
    one, other = (
        fairfix.compare(source, protected="race", methods="ramp", slacks=(0.05,)).to_dict() for source in data
    )

    for point in (*one["points"], *other["points"]):
        point.pop("command", None)  # which names the source
    assert not differences(without_source(one), without_source(other))


def test_a_query_a_table_and_the_configuration_say_the_same(
    data: tuple[str, str], tmp_path: Path, call: Call, away: None
) -> None:
    url = data[1].removesuffix("#loans")
    (tmp_path / "fairfix.toml").write_text(f'data = "{url}#loans"\nprotected = "race"\n')
    lines = [
        ("audit", f"{url}#main.loans", "--protected", "race", "--config", "none"),
        (
            "audit",
            url,
            "--sql",
            "SELECT race, label, score FROM loans",
            "--protected",
            "race",
            "--config",
            "none",
        ),
        ("audit", "--config", "fairfix.toml"),
    ]
    contents = [without_source(json.loads(call(*line, "--format", "json")[1])) for line in lines]

    assert not differences(contents[0], contents[1])
    assert not differences(contents[0], contents[2])


def test_earlier_data_may_be_a_table_too(data: tuple[str, str], tmp_path: Path) -> None:
    frame = make_frame(600).assign(no=np.arange(600))
    path, url = both(tmp_path, frame, "ids")
    asked: Any = {"protected": "race", "id": "no", "check": "change<=0.02"}
    one, other = (fairfix.audit(source, baseline=source, **asked).to_dict() for source in (path, url))

    for content in (one, other):
        content["baseline"]["source"] = ""
    assert not differences(without_source(one), without_source(other))


def test_a_database_is_only_read(data: tuple[str, str], tmp_path: Path, call: Call) -> None:
    base = Path(data[1].split("///")[1].removesuffix("#loans"))
    before, beside = base.read_bytes(), sorted(base.parent.iterdir())
    fairfix.audit(data[1], protected="race")
    source: Any = open_source(data[1])
    with pytest.raises(duckdb.Error, match="read-only"):
        source._database.con.execute("CREATE TABLE x AS SELECT 1")
    err = call.refused("count", data[1], "--protected", "race", "-o", data[1], "--config", "none")
    assert "files are written to this machine and to s3://" in err
    assert base.read_bytes() == before
    assert sorted(base.parent.iterdir()) == beside


# ---------------------------------------------------------------------- tables of Ibis


OF_IBIS = pytest.mark.filterwarnings("ignore:fetch_arrow_table")
"""Ibis looks for tables of DuckDB 2 in a way that is deprecated there."""


@OF_IBIS
@pytest.mark.usefixtures("two_passes")
def test_the_library_takes_tables_of_ibis() -> None:
    frame = make_frame(1500)
    connection = ibis.duckdb.connect()
    connection.con.register("frame", frame)
    connection.con.execute("CREATE TABLE loans AS FROM frame")
    table = connection.table("loans")
    expected = fairfix.audit(frame[frame.town == "north"], protected="race").to_dict()

    for one in (
        table.filter(table.town == "north"),
        ibis.memtable(pa.Table.from_pandas(frame)).filter(lambda t: t.town == "north"),
    ):
        assert not differences(
            without_source(expected), without_source(fairfix.audit(one, protected="race").to_dict())
        )
    with pytest.raises(UsageError, match="`sql` needs the URL"):
        fairfix.audit(table, sql="SELECT 1", protected="race")
    with pytest.raises(DataError, match="give a table"):
        fairfix.audit(table.score, protected="race")


@OF_IBIS
@pytest.mark.usefixtures("two_passes")
@pytest.mark.parametrize(
    "change", ["INSERT INTO loans FROM loans LIMIT 1", "UPDATE loans SET score = 1 - score / 2"]
)
@pytest.mark.parametrize("after", [1, 2])
def test_a_table_that_changes_between_the_questions_is_refused(
    change: str, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = ibis.duckdb.connect()
    connection.con.register("frame", make_frame(3000))
    connection.con.execute("CREATE TABLE loans AS FROM frame")
    batches, asked = database.DatabaseSource._batches, [0]

    def changing(self: Any, question: Any) -> Any:
        if asked[0] == after:
            connection.con.execute(change)
        asked[0] += 1
        return batches(self, question)

    monkeypatch.setattr(database.DatabaseSource, "_batches", changing)
    if after == 1 and change.startswith("UPDATE"):  # of the first answer only the numbers of rows are held
        change = "UPDATE loans SET label = 1 - label"

    with pytest.raises(DataError, match="changed while it was read"):
        fairfix.audit(connection.table("loans"), protected="race")


def test_connections_end_with_their_task(tmp_path: Path) -> None:
    """An error that is kept holds no database open, nor does a result."""
    base = tmp_path / "loans.duckdb"
    with duckdb.connect(str(base)) as connection:
        connection.register("rows", make_frame(300))
        connection.execute("CREATE TABLE loans AS SELECT * FROM rows")
    with pytest.raises(FairfixError) as refused:
        fairfix.audit(f"duckdb:///{base}#loans", protected="nobody")
    result = fairfix.audit(f"duckdb:///{base}#loans", protected="race")

    with duckdb.connect(str(base)) as connection:  # to write, as no other connection of the process lets it
        connection.execute("DROP TABLE loans")
    assert refused.value.code == "column"
    assert result.content.data.rows.used == 300
