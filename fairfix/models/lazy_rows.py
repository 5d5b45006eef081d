"""Rows that an engine has: predicted when the engine is asked for them, in a frame of the same engine.

=====================  ====================================================  ==========================================
frame                  predictions are made by                               a row may depend on other rows
=====================  ====================================================  ==========================================
Polars lazy frame      an expression; a batch at a time where rows do not    yes, by one call with all rows
                       depend on each other
DuckDB relation        a stream of batches that another connection reads     yes, in the order of the relation
Dask data frame        a function of each partition                          no
Spark frame            a function of batches, on the executors               no
Ibis table of DuckDB   a function in the database's process                  no
=====================  ====================================================  ==========================================

A row depends on others where its decision is drawn and either no id tells it from equal rows, or repeated ids are to be
found. Other processes get the bytes of the artifact.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import chain
from typing import Any
from uuid import uuid4

import pyarrow as pa

from fairfix.data.choices import MissingScore
from fairfix.data.codec import converted
from fairfix.data.container import packed, unpacked
from fairfix.data.database import is_printed
from fairfix.data.engines import reader_of
from fairfix.data.files import BATCH_ROWS, NO_TYPES, PlainSource, Source, SourcePart, Types, require
from fairfix.data.frame_columns import arrow_table
from fairfix.data.frames import engine_of
from fairfix.errors import UsageError
from fairfix.models.manifest import Manifest
from fairfix.models.repaired import Repaired, made_of
from fairfix.models.rows import scored


@dataclass(frozen=True)
class BatchRule:
    """Gives the columns that prediction adds to a batch of rows, wherever an engine has it."""

    repaired: Repaired
    """The repair; the model that it needs is its ``scorer``."""
    missing: MissingScore
    share_ids: bool
    kind: str
    """The kind of frame, for messages."""

    @property
    def output(self) -> pa.Schema:
        """The columns that are added."""
        return self.repaired.output

    @property
    def whole(self) -> bool:
        """Whether the prediction of a row may depend on other rows."""
        named = self.repaired.data_spec.columns.id is not None
        return self.repaired.predictor.randomized and not (named and self.share_ids)

    def needed(self, columns: Sequence[str]) -> list[str]:
        """Return the columns that prediction reads, any one where it reads none."""
        return [name for name in columns if name in self.repaired.required] or list(columns[:1])

    def of_batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches of one schema with their predictions; they are the rows of one call."""
        waiting: deque[pa.RecordBatch] = deque()
        if (first := next(batches, None)) is None:
            return
        names = self.needed(first.schema.names)

        def needed() -> Iterator[pa.RecordBatch]:
            for batch in chain([first], batches):
                waiting.append(batch)
                yield batch.select(names)

        where = "data" if self.whole else f"a part of the {self.kind}"
        source = scored(PlainSource(_BatchStream(where, first.select(names).schema, needed)), self.repaired)
        shared = self.share_ids or not self.whole
        for made in self.repaired.predict_source(source, missing_score=self.missing, duplicates=shared):
            batch, added = waiting.popleft(), made.select(self.output.names)
            schema = pa.schema([*batch.schema, *added.schema])
            yield pa.RecordBatch.from_arrays([*batch.columns, *added.columns], schema=schema)

    def __call__(self, rows: pa.Table) -> pa.Table:
        """Return the added columns of a table."""
        batches = rows.combine_chunks().to_batches(max_chunksize=BATCH_ROWS)
        made = [batch.select(self.output.names) for batch in self.of_batches(iter(batches))]
        return pa.Table.from_batches(made, self.output).combine_chunks()

    def of_partition(self, rows: Any) -> Any:
        """Return a data frame of pandas with its predictions; types do not depend on the rows."""
        names = self.needed([*map(str, rows.columns)])
        table, _ = arrow_table(rows[[name for name in rows.columns if str(name) in names]])
        may_lack = "abstain" in (self.missing, self.repaired.unseen)
        types = {
            field.name: "float64" for field in self.output if may_lack and pa.types.is_integer(field.type)
        }
        return rows.assign(**self(table).to_pandas().astype(types).set_axis(rows.index))

    def of_structs(self, rows: pa.Array) -> pa.Array:
        """Return the added columns of rows that are the entries of one column, as one column."""
        added = self(pa.Table.from_struct_array(rows)).to_struct_array()
        return added.combine_chunks()

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as the bytes of the artifact, with the name of the module that defines its kind of predictor."""
        repair = packed(self.repaired.artifact()), type(self.repaired.predictor).__module__
        return _arrived, (*repair, self.repaired.scorer, self.missing, self.share_ids, self.kind)


@dataclass(frozen=True)
class _BatchStream(Source):
    """Batches that are read once."""

    name: str
    schema: pa.Schema
    stream: Callable[[], Iterator[pa.RecordBatch]]

    def parts(self, columns: Sequence[str], types: Types = NO_TYPES) -> list[SourcePart]:
        """Return all columns as one part."""
        return [SourcePart(self.name, self.stream)]


def _arrived(content: bytes, module: str, scorer: Any, *ways: Any) -> BatchRule:
    """Return a rule in another process."""
    import_module(module)  # its kind of predictor registers itself
    artifact = unpacked(content, "the repair")
    repaired = made_of(converted(artifact.manifest, Manifest), artifact)
    return BatchRule(replace(repaired, scorer=scorer), *ways)


def _of_polars(frame: Any, rule: BatchRule) -> Any:
    """Return a lazy frame whose new columns are an expression of those that prediction reads."""
    import polars as pl

    empty: Any = pl.from_arrow(rule.output.empty_table())
    made = pl.struct(rule.needed(frame.collect_schema().names())).map_batches(
        lambda rows: pl.from_arrow(rule.of_structs(rows.to_arrow())),
        pl.Struct(empty.schema),
        is_elementwise=not rule.whole,
    )
    return frame.with_columns(made.struct.field(*rule.output.names))


@dataclass(frozen=True)
class _Predicted:
    """A stream of a relation's rows with their predictions, made anew whenever it is read."""

    relation: Any
    rule: BatchRule

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the stream; the relation is read when the first batch is."""
        schema = pa.schema([*reader_of(self.relation.limit(0)).schema, *self.rule.output])

        def batches() -> Iterator[pa.RecordBatch]:
            yield from self.rule.of_batches(iter(reader_of(self.relation)))

        return pa.RecordBatchReader.from_batches(schema, batches()).__arrow_c_stream__(requested_schema)


def _of_duckdb(relation: Any, rule: BatchRule) -> Any:
    """Return a relation of another connection, since that of the rows is busy while they are read."""
    import duckdb

    return duckdb.connect().from_arrow(_Predicted(relation, rule))


def _of_dask(frame: Any, rule: BatchRule) -> Any:
    """Return a frame whose partitions are predicted by whoever computes them."""
    return frame.map_partitions(rule.of_partition, meta=rule.of_partition(frame._meta))


def _of_spark(frame: Any, rule: BatchRule) -> Any:
    """Return a frame that the executors make."""
    added = import_module("pyspark.sql.pandas.types").from_arrow_schema(rule.output)
    return frame.mapInArrow(rule.of_batches, type(frame.schema)([*frame.schema, *added]))


def _of_ibis(table: Any, rule: BatchRule) -> Any:
    """Return a table with a function of its rows."""
    ibis = import_module("ibis")
    columns = {name: table[name] for name in rule.needed(table.columns)}
    printed = {name: one.cast("string") for name, one in columns.items() if is_printed(one.type())}
    row = ibis.struct({**columns, **printed})
    signature = (row.type(),), ibis.Schema.from_pyarrow(rule.output).as_struct()
    name = f"fairfix_{uuid4().hex}"
    made = ibis.udf.scalar.pyarrow(rule.of_structs, name=name, signature=signature)(row)
    return table.mutate(**{name: made[name] for name in rule.output.names})


ENGINES: dict[str, tuple[Callable[[Any, BatchRule], Any], bool]] = {
    "Polars frame": (_of_polars, True),
    "DuckDB relation": (_of_duckdb, True),
    "Dask frame": (_of_dask, False),
    "Spark frame": (_of_spark, False),
    "Ibis table": (_of_ibis, False),
}
"""Kind of frame -> what predicts it, and whether it does where rows depend on each other."""


def predict_lazily(data: Any, repaired: Repaired, missing: MissingScore, *, share_ids: bool) -> Any:
    """Return a frame with predictions that its engine makes; None for rows that no such engine has.

    Raises
    ------
    ColumnError, DataError, UsageError
        A column is not there or is there already, or decisions depend on other rows, which the engine does not show.
    """
    kind = engine_of(data)
    if kind not in ENGINES or (kind == "Ibis table" and data.get_backend().name != "duckdb"):
        return None
    engine, shows_all = ENGINES[kind]
    rule = BatchRule(repaired, missing, share_ids, kind)
    names = [*map(str, data.collect_schema() if hasattr(data, "collect_schema") else data.columns)]
    require(repaired.required, names, "data")
    repaired.check_free(names, "data")
    if rule.whole and not shows_all:
        if repaired.data_spec.columns.id is None:
            raise UsageError(
                "this repair draws decisions and has no `id`, so those of equal rows depend on the order of rows, "
                f"and a {kind} has none; repair with an `id`, or give the rows as a table in memory"
            )
        raise UsageError(
            f"a {kind} is predicted a part at a time, which does not show whether IDs repeat; set "
            "`duplicates=share`, with which rows of one ID share one draw"
        )
    return engine(data, rule)
