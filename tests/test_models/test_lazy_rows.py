"""A frame of an engine gets its predictions from the engine: those of pandas, when somebody asks for them."""

from __future__ import annotations

import os
import pickle
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import duckdb
import fairfix
import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from fairfix.errors import ColumnError, DataError, UsageError
from fairfix.models.lazy_rows import BatchRule
from fairfix.models.repaired import Repaired
from sklearn.linear_model import LogisticRegression

from tests.test_data.test_engines import Open, _dask, _duckdb, _polars, _spark
from tests.test_models.drawn_rules import DRAWN, drawn_rule, hard_rows


@contextmanager
def _ibis() -> Iterator[Open]:
    with duckdb.connect() as connection:
        base, names = ibis.duckdb.from_connection(connection), iter(range(1000))

        def opened(path: Path) -> Any:
            name = f"t{next(names)}"
            connection.execute(f"CREATE VIEW {name} AS FROM read_parquet('{path}')")
            return base.table(name)

        yield opened


ENGINES = {"polars": _polars, "duckdb": _duckdb, "dask": _dask, "ibis": _ibis, "spark": _spark}
ORDERED = ("polars", "duckdb")
"""Engines in which a row may depend on those before it."""

OLD_NAMES = ("PySpark", "The copy keyword", "The 'future", "fetch_arrow_table")
pytestmark = pytest.mark.filterwarnings(*(f"default:{one}" for one in OLD_NAMES))


def collected(out: Any) -> pd.DataFrame:
    """Return the rows of a frame, asked of its engine, in the order of their numbers."""
    for name in ("toPandas", "collect", "compute", "df", "to_pyarrow", "to_pandas"):
        if hasattr(out, name) and not isinstance(out, pd.DataFrame):
            out = getattr(out, name)(**({"engine": "streaming"} if isinstance(out, pl.LazyFrame) else {}))
    return pd.DataFrame(out).sort_values("n", ignore_index=True)


def bits(frame: pd.DataFrame, names: list[str]) -> dict[str, list[Any]]:
    """Return columns as plain values, missing ones as None."""
    return {name: [None if pd.isna(one) else one for one in frame[name].tolist()] for name in names}


@pytest.fixture(scope="module")
def opened() -> Iterator[Callable[[str], Open]]:
    with ExitStack() as stack:
        started: dict[str, Open] = {}

        def start(name: str) -> Open:
            if name == "spark":
                os.environ["PYSPARK_PYTHON"] = sys.executable
                stack.callback(os.environ.pop, "PYSPARK_PYTHON", None)
            if name not in started:
                started[name] = stack.enter_context(ENGINES[name]())
            return started[name]

        yield start


OF_SPARK = (pytest.mark.slow, pytest.mark.filterwarnings("ignore:unclosed", "ignore:Exception ignored in"))
"""A session of Spark leaves sockets to the end of the process."""


@pytest.fixture(params=[pytest.param(name, marks=OF_SPARK if name == "spark" else ()) for name in ENGINES])
def engine(request: pytest.FixtureRequest, opened: Callable[[str], Open]) -> tuple[str, Open]:
    return request.param, opened(request.param)


def people(many: int = 400) -> pd.DataFrame:
    """People with every column that a repair may read, a number, and a column that none does."""
    rng = np.random.default_rng(3)
    race, score = rng.choice(["a", "b"], many), rng.integers(0, 20, many) / 20
    return pd.DataFrame(
        {
            "n": np.arange(many),
            "person": rng.permutation(10**6)[:many],
            "race": race,
            "score": score,
            "x": rng.normal(size=many),
            "label": (rng.random(many) < score).astype(int),
            "kind": rng.choice(["u", "v", "w"], many),
            "odd": [{"a": [i]} for i in range(many)],
        }
    )


@cache
def fitted(rule: str) -> tuple[Repaired, pd.DataFrame]:
    """Return a repair whose scores or results are not those of a rule of one number, and people."""
    rows = people()
    asked: dict[str, Any] = {"protected": "race", "label": "label"}
    if rule == "classes":
        asked |= {"label": "kind", "features": ["x", "score"], "task": "multiclass", "method": "sensei"}
    elif rule == "model":
        model = LogisticRegression().fit(rows[["x"]], rows["label"])
        asked |= {"model": model, "features": ["x"], "method": "ramp", "gamma": 0.5, "id": "person"}
    else:
        asked |= {"method": "ramp", "gamma": 0.5, "score": "score"} | (
            {"id": "person"} if rule == "id" else {}
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few rows
        return fairfix.repair(rows, **asked).repaired, rows


def assert_same(name: str, open_: Open, made: Repaired, rows: pd.DataFrame, path: Path, **asked: Any) -> None:
    """Assert that an engine gives what pandas gives, in a frame of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # most rows may be of unknown groups
        expected = made.predict(rows, **asked)
    rows.to_parquet(path)
    frame = open_(path)
    out = made.predict(frame, **asked)
    assert type(out) is type(frame)
    names = [column for column in expected if column != "odd"]
    assert bits(collected(out), names) == bits(expected, names)
    assert list(out.collect_schema() if name == "polars" else out.columns) == list(expected)


KINDS = [*DRAWN, "classes", "model"]


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_are_those_of_pandas(kind: str, engine: tuple[str, Open], tmp_path: Path) -> None:
    """To the bit: unknown groups, missing values, scores at the thresholds; and draws by id."""
    if kind in DRAWN:
        made = drawn_rule(kind, 1)
        rows = hard_rows(made, 1).assign(n=np.arange(120))
    else:
        made, rows = fitted(kind)
    if engine[0] == "spark" and kind not in ("groupwise_ramp", "classes", "model"):
        pytest.skip("Spark is slow, and it does with all kinds the same")
    assert_same(*engine, made, rows, tmp_path / "rows.parquet", duplicates="share", missing="abstain")


@pytest.mark.parametrize("rule", ["id", "no id"])
def test_what_depends_on_other_rows_is_that_of_pandas_or_refused(
    rule: str, engine: tuple[str, Open], tmp_path: Path
) -> None:
    """Equal rows without an id, and the search for repeated ids, whoever asks for which rows."""
    name, open_ = engine
    made, rows = fitted(rule)
    rows.to_parquet(path := tmp_path / "rows.parquet")
    if name not in ORDERED:
        with pytest.raises(UsageError, match=r"`duplicates=share`" if rule == "id" else r"`id`"):
            made.predict(open_(path))
        return
    assert_same(name, open_, made, rows, path)
    expected, out = made.predict(rows), made.predict(open_(path))
    some = out.filter(pl.col("race") == "b") if name == "polars" else out.filter("race = 'b'")
    assert bits(collected(some), ["decision"]) == bits(expected[expected.race == "b"], ["decision"])
    if rule == "id":
        pd.concat([rows, rows[:1]]).to_parquet(path)
        with pytest.raises((DataError, duckdb.Error), match="repeated"):
            collected(made.predict(open_(path)))


def test_nothing_is_read_before_the_engine_is_asked(tmp_path: Path) -> None:
    """A frame that was predicted before its file changed has the predictions of the rows that are there now."""
    made, rows = fitted("id")
    for i, opening in enumerate((_duckdb, _ibis)):
        path = tmp_path / f"{i}.parquet"
        rows[:300].to_parquet(path)
        with opening() as open_:
            out = made.predict(open_(path), duplicates="share")
            rows[300:].to_parquet(path)
            expected = made.predict(rows[300:])
            for _ in range(2):  # it can be asked again
                assert bits(collected(out), ["n", "decision"]) == bits(expected, ["n", "decision"])
    asked = []

    def part(number: int) -> pd.DataFrame:
        asked.append(number)
        return rows[["race", "score", "person", "n"]][200 * number : 200 * number + 200]

    out = made.predict(dd.from_map(part, [0, 1], meta=part(0)[:0]), duplicates="share")
    asked.clear()
    assert out.dtypes["decision"] == np.int8
    assert not asked
    assert bits(collected(out), ["decision"]) == bits(made.predict(rows), ["decision"])


def test_polars_reads_the_columns_that_are_used_a_batch_at_a_time() -> None:
    """Others are not computed; a batch is dropped before the next one comes, where rows do not depend on others."""
    made, rows = fitted("id")
    sizes: list[int] = []

    def seen(column: pl.Series) -> pl.Series:
        sizes.append(len(column))
        return column

    def fails(column: pl.Series) -> pl.Series:
        raise RuntimeError("this column is not used")

    frame = pl.from_pandas(rows.drop(columns="odd")).lazy()
    spoilt = frame.with_columns(pl.col("x").map_batches(fails, pl.Float64))
    out = made.predict(spoilt, duplicates="share")
    assert out.select("decision").collect()["decision"].to_list() == made.predict(rows)["decision"].tolist()
    parts = pl.concat([frame, frame]).with_columns(
        pl.col("score").map_batches(seen, pl.Float64, is_elementwise=True)
    )
    made.predict(parts, duplicates="share").select("p_positive").collect(engine="streaming")
    assert max(sizes) <= len(rows)
    assert made.predict(frame, duplicates="share").head(3).collect().height == 3


def test_an_odd_frame_is_predicted_or_refused_at_once() -> None:
    """No rows, columns that are missing or taken, partitions whose types depend on their rows."""
    made, rows = fitted("id")
    rows = rows.drop(columns="odd")
    with duckdb.connect() as base:
        for make in (
            lambda frame: pl.from_pandas(frame).lazy(),
            lambda frame: base.from_df(frame),
            lambda frame: dd.from_pandas(frame, npartitions=2, sort=False),
            lambda frame: ibis.memtable(pa.Table.from_pandas(frame, preserve_index=False)),
        ):
            share = {"duplicates": "share"}
            out = made.predict(make(rows[:0]), **share)
            assert list(collected(out)) == [*rows, "p_positive", "decision", "randomized"]
            with pytest.raises(ColumnError, match="race"):
                made.predict(make(rows.drop(columns="race")), **share)
            with pytest.raises(DataError, match="decision"):
                made.predict(make(rows.assign(decision=1)), **share)
            with pytest.raises(UsageError, match="leave out `model`"):
                made.predict(make(rows), model="m.skops", **share)
            few = rows.assign(score=rows["score"].where(rows.index > 250)).astype({"race": object})
            few.loc[:210, "race"] = None
            asked: Any = {"missing": "abstain", "unseen": "abstain", **share}
            assert bits(collected(made.predict(make(few), **asked)), ["p_positive", "decision"]) == bits(
                made.predict(few, **asked), ["p_positive", "decision"]
            )
            with pytest.raises((DataError, duckdb.Error), match="missing score"):
                collected(made.predict(make(few), unseen="abstain", **share))


@pytest.mark.parametrize("kind", KINDS)
def test_a_rule_travels_as_the_bytes_of_its_artifact(kind: str) -> None:
    """To the bit; no class of a predictor is in its pickle."""
    made, rows = fitted(kind) if kind not in DRAWN else (drawn_rule(kind, 2), None)
    rows = hard_rows(made, 2) if rows is None else rows.drop(columns="odd")
    rule = BatchRule(made, "abstain", True, "Dask frame")
    sent = pickle.dumps(rule)
    assert type(made.predictor).__name__.encode() not in sent
    table = pa.Table.from_pandas(rows, preserve_index=False)
    assert pickle.loads(sent)(table).equals(rule(table))


@pytest.mark.slow
def test_the_workers_of_a_cluster_predict() -> None:
    """In processes of their own, with a model in memory."""
    distributed = pytest.importorskip("distributed", reason="Dask's clusters are not installed")
    made, rows = fitted("model")
    rows = rows.drop(columns="odd")
    with (
        distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as local,
        distributed.Client(local, set_as_default=False) as client,
    ):
        out = made.predict(dd.from_pandas(rows, npartitions=3, sort=False), duplicates="share")
        assert bits(client.compute(out).result(), ["decision"]) == bits(made.predict(rows), ["decision"])
