"""Engines: the counting query gives the report of the NumPy tally, on every engine and whatever the columns hold.

The tally of a Parquet file is the oracle: integers and texts of both reports are equal, other numbers to 1e-9.
An engine is one entry of ``ENGINES``; one that is not on this machine is skipped with the reason.
"""

from __future__ import annotations

import re
import shutil
from ast import literal_eval
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import fairfix
import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fairfix.data import engines
from fairfix.data.files import open_source
from fairfix.data.row_filter import filtered, parse_condition
from fairfix.errors import DataError, FairfixError, UsageError

from tests.conftest import make_frame
from tests.data import columns_read
from tests.databases import differences, postgresql, without_source
from tests.strategies import PROFILE
from tests.test_data.test_database import QUESTIONS, TYPES, WRONG, both, rows, two_passes
from tests.test_data.test_postgresql import table

__all__ = ["two_passes"]

Open = Callable[[Path], Any]
"""Opens the rows of a Parquet file in an engine."""


@contextmanager
def _polars() -> Iterator[Open]:
    yield pl.scan_parquet


@contextmanager
def _duckdb() -> Iterator[Open]:
    with duckdb.connect() as connection:
        yield lambda path: connection.read_parquet(str(path))


@contextmanager
def _duckdb_file() -> Iterator[Open]:
    def load(path: Path) -> str:
        base = path.with_suffix(".base")
        if not base.exists():
            with duckdb.connect(str(base)) as connection:
                connection.execute(f"CREATE TABLE t AS FROM read_parquet('{path}')")
        return f"duckdb:///{base}#t"

    yield load


@contextmanager
def _postgresql() -> Iterator[Open]:
    names = iter(range(1000))
    with postgresql() as url:
        yield lambda path: table(url, f"t{next(names)}", pd.read_parquet(path))


@contextmanager
def _dask() -> Iterator[Open]:
    frames = pytest.importorskip("dask.dataframe", reason="the data frames of Dask are not installed")
    yield lambda path: frames.from_pandas(pd.read_parquet(path), npartitions=3, sort=False)


@contextmanager
def _spark() -> Iterator[Open]:
    sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed")
    if not shutil.which("java"):
        pytest.skip("there is no Java, which pyspark runs in")
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
    }
    builder = sql.SparkSession.builder.master("local[2]")
    for name, setting in settings.items():
        builder = builder.config(name, setting)
    session = builder.getOrCreate()
    try:
        yield lambda path: session.read.parquet(str(path))
    finally:
        session.stop()


ENGINES = {
    "polars": _polars,
    "duckdb": _duckdb,
    "duckdb file": _duckdb_file,
    "postgresql": _postgresql,
    "dask": _dask,
    "spark": _spark,
}
SLOW = ("spark",)

each_engine = pytest.mark.parametrize(
    "engine",
    [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in ENGINES],
    indirect=True,
)
pytestmark = pytest.mark.filterwarnings("default:PySpark", "default:The copy keyword", "default:The 'future")


@pytest.fixture(scope="module")
def opened() -> Iterator[Callable[[str], Open]]:
    """Return what opens files in an engine, which starts once."""
    with ExitStack() as stack:
        started: dict[str, Open] = {}

        def start(name: str) -> Open:
            if name not in started:
                started[name] = stack.enter_context(ENGINES[name]())
            return started[name]

        yield start


@pytest.fixture
def engine(request: pytest.FixtureRequest, opened: Callable[[str], Open]) -> Open:
    return opened(request.param)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(both(tmp_path_factory.mktemp("data"), rows(2000))[0])


@cache
def report_of(path: Path, asked: str, many: int) -> dict[str, Any]:
    """Return the report of a file, made once for all engines, and for each number of rows that counts as many."""
    return fairfix.audit(str(path), **literal_eval(asked)).to_dict()


def assert_same_report(path: Path, data: Any, **asked: Any) -> None:
    """Assert that the report of an engine is that of a file."""
    of_file, of_engine = (
        deepcopy(report_of(path, repr(asked), engines.SORT_ROWS)),
        fairfix.audit(data, **asked).to_dict(),
    )
    for report in (of_file, of_engine):  # one part has them in the order of the columns, several by name
        report["data"]["rows"]["excluded"].sort(key=lambda one: str(one["reason"]))
    assert not differences(without_source(of_file), without_source(of_engine))


@pytest.mark.slow
@pytest.mark.usefixtures("two_passes")
@pytest.mark.parametrize(
    ("question", "engine"),
    [
        (question, engine)
        for i, question in enumerate(QUESTIONS)
        for j, engine in enumerate(ENGINES)
        if PROFILE != "project" or (i + j) % 3 == 0
    ],
    indirect=["engine"],
)
def test_the_report_is_that_of_a_file(question: str, engine: Open, path: Path) -> None:
    assert_same_report(path, engine(path), **QUESTIONS[question])


@pytest.mark.slow
@pytest.mark.usefixtures("two_passes")
@pytest.mark.parametrize("engine", ["spark"], indirect=True)
def test_spark_answers_ibis_as_it_answers_narwhals(engine: Open, path: Path) -> None:
    table = ibis.pyspark.connect(engine(path).sparkSession).read_parquet(str(path))

    assert_same_report(path, table, **QUESTIONS["gaps"])


@each_engine
def test_the_report_of_few_rows_is_that_of_a_file(engine: Open, path: Path) -> None:
    assert_same_report(path, engine(path), **QUESTIONS["weights and strata"])


CONDITIONS = [
    "score>=0.25", "member==1 or member==0", "race in ('a','b')", "race!='a' and town in ('n','s')", "weight<=1.5",
    "single>=0.7", "single==0.256", "old is missing", "not (old is missing)", "amount>1", "draw==0.5",
    "word in ('repaid')", "logit in ('inf', 0.5) or draw!='-inf'",
]  # fmt: skip


@each_engine
def test_rows_that_meet_a_condition_are_those_of_a_file(engine: Open, path: Path) -> None:
    data = open_source(engine(path))
    for condition in map(parse_condition, CONDITIONS):
        found = []
        for source in (open_source(path), data):
            try:
                chosen = filtered(source, condition)
                logits = columns_read(chosen, ["logit"])["logit"]
                found.append((chosen.rows, chosen.left_out, chosen.notes, sorted(logits)))
            except FairfixError as error:
                found.append((str(error).partition(" of ")[0],))
        assert found[0] == found[1], condition


@pytest.mark.slow
@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("engine", ["polars", "duckdb", "duckdb file"], indirect=True)
def test_values_of_every_type_mean_what_they_mean_in_a_file(
    kind: str, many: bool, engine: Open, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if many:
        request.getfixturevalue("two_passes")
    path = tmp_path / "types.parquet"
    made = f"SELECT {TYPES[kind]} AS g, i % 2 AS label, (i * i % 97) / 97.0::DOUBLE AS score FROM range(900) AS t(i)"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'America/New_York'")
        connection.execute(f"COPY ({made}) TO '{path}' (FORMAT parquet)")

    assert_same_report(path, engine(path), protected="g", missing="g=group", bands={"g": "values"})


@each_engine
@pytest.mark.usefixtures("two_passes")
def test_one_value_is_one_group_in_every_type(engine: Open, tmp_path: Path) -> None:
    """Whether a column has 1, 1.0, "1" or "1.0", and 0 or -0.0."""
    n = 1200
    frame = make_frame(n)[["label", "score"]]
    code = np.arange(n) % 2
    frame["whole"], frame["real"] = code, np.where(code, 1.0, np.where(np.arange(n) % 4, 0.0, -0.0))
    frame["text"] = np.where(code, "1", "0")
    frame["dotted"] = np.where(code, "1.0", "-0.0")
    frame["truth"], frame["word"] = code == 1, np.where(code, "True", "False")
    path = Path(both(tmp_path, frame)[0])
    names = ("whole", "real", "text", "dotted", "truth", "word")
    of_file, of_engine = (
        [one["groups"] for one in fairfix.audit(data, protected=names).to_dict()["attributes"]]
        for data in (str(path), engine(path))
    )
    assert not differences(of_file, of_engine)
    assert not differences(of_engine[0], of_engine[1])
    assert not differences(of_engine[4], of_engine[5])


@each_engine
@pytest.mark.usefixtures("two_passes")
@pytest.mark.parametrize("case", WRONG)
def test_what_is_refused_is_named(
    case: str, engine: Open, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """By its part and its column, as in a file; of a database file in the same words."""
    column, entry, more = WRONG[case]
    frame = make_frame(900)
    frame["x"] = 0.5 if case == "probability" else frame.x
    frame[column] = frame[column].astype(object) if entry is None else frame[column]
    frame.loc[frame.index[700], column] = entry
    path = Path(both(tmp_path, frame)[0])
    errors = []
    for data in (str(path), engine(path)):
        with pytest.raises(FairfixError) as refused:
            fairfix.audit(data, **{"protected": "race", **more})
        message = str(refused.value).partition("\n")[0]  # the lines to copy name the source
        errors.append(re.sub(r"(some row|row \d+) of [^ ,;]+( of [^ ,;]+)?", "ROW", message))

    if request.node.callspec.params["engine"] != "duckdb file":
        errors = [re.findall(r"column '(\w+)'", one)[:1] for one in errors]
    assert errors[0] == errors[1]


@pytest.mark.usefixtures("two_passes")
@pytest.mark.parametrize("engine", ["polars", "duckdb"], indirect=True)
def test_many_rows_stay_where_they_are(engine: Open, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines.LazySource, "parts", lambda *_: pytest.fail("rows were asked for"))

    assert fairfix.audit(engine(path), protected="race", where="score>=0.1").content is not None


@pytest.mark.usefixtures("two_passes")
def test_a_frame_that_changes_is_refused(path: Path) -> None:
    """Results about different rows are not put together."""
    calls = iter(range(100))

    def changing(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.head(frame.height - next(calls))

    with pytest.raises(DataError, match="changed"):
        fairfix.audit(pl.scan_parquet(path).map_batches(changing), protected="race")


def test_a_lazy_frame_gives_its_rows_in_order(path: Path) -> None:
    source = open_source(pl.scan_parquet(path))
    (part,) = source.parts(["score", "race"])
    read = pa.Table.from_batches(part.batches())

    assert read.equals(pq.read_table(path, columns=["score", "race"]).cast(read.schema))


@pytest.mark.slow
@pytest.mark.usefixtures("two_passes")
def test_partitions_are_counted_by_the_workers_of_a_client(path: Path) -> None:
    """Where the partitions are; so are the rows of them that meet a condition."""
    frames = pytest.importorskip("dask.dataframe", reason="the data frames of Dask are not installed")
    distributed = pytest.importorskip("distributed", reason="Dask's clusters are not installed")
    asked: Any = {"protected": "race", "weight": "weight"}
    with (
        distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as local,
        distributed.Client(local, set_as_default=False) as client,
    ):
        data = frames.read_parquet(str(path))
        kept = client.persist(frames.from_pandas(pd.read_parquet(path), npartitions=5, sort=False))
        for frame, more in ((data, {}), (kept, {}), (kept, {"where": "race in ('r0','r1')"})):
            of_file = fairfix.audit(str(path), **asked, **more).to_dict()
            if more:  # a condition is looked at before the client is known
                with client.as_current():
                    of_client = fairfix.audit(frame, **asked, **more, cluster=client).to_dict()
            else:
                of_client = fairfix.audit(frame, **asked, cluster=client).to_dict()
            assert not differences(without_source(of_file), without_source(of_client))


def test_an_error_of_dask_is_one_of_the_data(path: Path) -> None:
    frames = pytest.importorskip("dask.dataframe", reason="the data frames of Dask are not installed")

    def fails(frame: pd.DataFrame) -> pd.DataFrame:
        raise RuntimeError("no such disk")

    frame = frames.from_pandas(pd.read_parquet(path), npartitions=2, sort=False)
    with pytest.raises(DataError, match="Dask frame cannot be read: no such disk"):
        fairfix.audit(frame.map_partitions(fails, meta=frame), protected="race")


def test_an_engine_needs_no_cluster(path: Path) -> None:
    pytest.importorskip("distributed", reason="Dask is not installed")

    with pytest.raises(UsageError, match="`cluster`"):
        fairfix.audit(pl.scan_parquet(path), protected="race", cluster="local:1")


@pytest.mark.parametrize("wide", [pl.Int128, pl.UInt128])
def test_a_type_that_no_table_has_stops_nothing(wide: type[pl.DataType]) -> None:
    """Columns of unions and of integers of 128 bits need not be used; such integers are read where they are."""
    rows = pl.DataFrame(
        {"race": ["a", "b"] * 40, "score": np.linspace(0.0, 1.0, 80), "label": [0, 0, 1, 1] * 20}
    )
    expected = without_source(fairfix.audit(rows, protected="race").to_dict())
    relation = duckdb.sql("SELECT *, union_value(x := 1) AS other FROM rows")
    others = rows.with_columns(pl.lit(1).cast(wide).alias("other"))
    labels = rows.with_columns(pl.col("label").cast(wide))
    for data in (relation, others, others.lazy(), labels, labels.lazy()):
        assert not differences(expected, without_source(fairfix.audit(data, protected="race").to_dict()))
