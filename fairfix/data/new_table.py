"""A new table of a database for rows that are written: made and filled in one transaction, or not there at all.

What is read of a database is read by another connection, which only reads. Of DuckDB, whose file one connection that
writes does not share, rows wait in a file for temporary data until whoever reads has closed; PostgreSQL takes them as
they come, and shows nobody the table before the end.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from fairfix.data.atomic_write import created
from fairfix.data.database import asking, conninfo, path_of, secrets_of
from fairfix.data.embedded import open_duckdb
from fairfix.data.files import BATCH_ROWS, Write
from fairfix.data.names import in_quotes
from fairfix.data.signals import uninterrupted
from fairfix.data.targets import check_links
from fairfix.data.urls import BACKENDS, scheme_of, shown_url
from fairfix.errors import ColumnError, DataError, UsageError

PLAIN = {pa.timestamp("ns"): pa.timestamp("us"), pa.time64("ns"): pa.time64("us")}
"""Types whose values Python has no object for."""


@contextmanager
def new_table(url: str, schema: pa.Schema, close: Callable[[], object]) -> Iterator[Write]:
    """Yield what appends batches to a new table, which is there when the block ends well, and else is not.

    ``url`` names the table after ``#``, perhaps with its schema before a dot. ``close`` ends their reading and
    is called before a file of DuckDB is written. :func:`check_new_table` says early what would be said here.
    """
    place, name, shown = _named(url)
    columns = [field.name for field in schema]
    # databases do not tell names in small letters from those in capitals, at least DuckDB
    if twice := [one for one in columns if [other.lower() for other in columns].count(one.lower()) > 1]:
        raise ColumnError(f"{shown} cannot have the columns {' and '.join(map(repr, twice))}; rename one")
    write = _into_duckdb if BACKENDS[str(scheme_of(url))] == "duckdb" else _into_postgres
    with write(place, name, shown, schema, close) as append:
        yield append


def check_new_table(url: str) -> None:
    """Raise a UsageError or DataError where no new table can be made by that name."""
    place, name, shown = _named(url)
    if BACKENDS[str(scheme_of(url))] == "duckdb":
        path = _path(place)
        if path.parent.is_dir() and not path.exists():
            return
        if not path.parent.is_dir():
            raise UsageError(f"cannot write {shown}: the folder {path.parent} does not exist")
        with asking(shown), open_duckdb(path, read_only=True) as connection:
            _new_in_duckdb(connection, name, shown)
        return
    import psycopg

    with (
        asking(shown, secrets_of(url), "cannot connect to {}"),
        psycopg.connect(**conninfo(place)[0]) as connection,
    ):
        _new_in_postgres(connection, name, shown)


def _named(url: str) -> tuple[str, str, str]:
    """Return the URL of the database, the name of the table and the URL for reading."""
    shown = shown_url(url)
    place, mark, name = url.rpartition("#")
    if BACKENDS[str(scheme_of(url))] not in ("duckdb", "postgres") or scheme_of(url) == "motherduck":
        raise UsageError(
            f"cannot write {shown}: new tables are made in DuckDB and PostgreSQL; write a file, and load it"
        )
    if not mark or not name or "@" in name:
        raise UsageError(f"cannot write {shown}: end the URL in # and the name of the new table")
    return place, unquote(name), shown


def _place_of(
    connection: Any, name: str, default: str, queries: tuple[str, str], shown: str
) -> tuple[str, str]:
    """Return schema and name of a table that is not there, in a schema that is; else a UsageError.

    The schema stands before a dot. A table with a dot in its own name is named with its schema, and a name that can be
    two tables is refused. ``queries`` look for a schema and for a table, by their names.
    """
    schemas, tables = queries
    splits = [(name[:at], name[at + 1 :]) for at, sign in enumerate(name) if sign == "."]
    there = [
        (schema, own) for schema, own in splits if own and connection.execute(schemas, [schema]).fetchone()
    ]
    places = there if splits else [(default, name)]
    if not places:
        raise UsageError(
            f"{shown} has no schema {splits[-1][0]!r} for the table {name!r}; name one that is there, or leave it out; "
            f"a dot in the table's own name needs its schema before it: {default}.{name}"
        )
    if len(places) > 1:
        both = " or ".join(f"{own!r} in the schema {schema!r}" for schema, own in places)
        raise UsageError(
            f"{shown}: {name!r} can be the table {both}; use a name that matches only one of them"
        )
    if connection.execute(tables, [*places[0]]).fetchone():
        raise UsageError(
            f"{shown} already has {name!r}, and fairfix only writes new tables; name another one, or drop it first"
        )
    return places[0]


# ---------------------------------------------------------------------- DuckDB


def _path(url: str) -> Path:
    """Return the file of a database that is written, to which no link leads, nor to the log that DuckDB keeps by it."""
    path = path_of(url)
    for one in (path, path.with_name(f"{path.name}.wal")):
        check_links(one)
    return path


def _new_in_duckdb(connection: Any, name: str, shown: str) -> tuple[str, str]:
    """Return schema and name of a table that is not there; a UsageError where there is one, or no such schema."""
    schemas = (
        "SELECT 1 FROM information_schema.schemata "
        "WHERE catalog_name = current_database() AND lower(schema_name) = lower(?)"
    )
    there = (
        "SELECT 1 FROM information_schema.tables WHERE table_catalog = current_database() "
        "AND lower(table_schema) = lower(?) AND lower(table_name) = lower(?)"
    )
    return _place_of(connection, name, "main", (schemas, there), shown)


@contextmanager
def _into_duckdb(
    url: str, name: str, shown: str, schema: pa.Schema, close: Callable[[], object]
) -> Iterator[Write]:
    path = _path(url)
    # a file without a name, which not even a process that is killed leaves behind
    with tempfile.TemporaryFile() as waiting:
        # types are those that the format has, so that no text becomes an enumeration
        own = pa.schema([field.with_type(_kind_in_duckdb(field.type)) for field in schema])
        with pq.ParquetWriter(waiting, own, store_schema=False) as writer:
            yield lambda batch: writer.write_table(pa.Table.from_batches([batch]).cast(own))
        close()
        rows = pq.ParquetFile(waiting)

        def fill(file: Path) -> None:
            batches = pa.RecordBatchReader.from_batches(rows.schema_arrow, rows.iter_batches(BATCH_ROWS))
            with asking(shown), open_duckdb(file, read_only=False) as connection:
                connection.execute("BEGIN")
                place = ".".join(map(in_quotes, _new_in_duckdb(connection, name, shown)))
                connection.register("predictions", batches)
                connection.execute(f"CREATE TABLE {place} AS FROM predictions")
                with uninterrupted():
                    connection.execute("COMMIT")

        if not path.exists():  # made where nobody else looks, so that nobody else can have a part in it
            with tempfile.TemporaryDirectory() as folder:
                fill(whole := Path(folder, "new.duckdb"))
                with whole.open("rb") as content:
                    if created(path, content):
                        return
        fill(path)


def _kind_in_duckdb(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column that is written: times in microseconds, decimals of too many digits as doubles."""
    if pa.types.is_decimal256(kind):
        return pa.float64()
    coarse = pa.types.is_timestamp(kind) and kind.unit in ("s", "ms")
    return pa.timestamp("us", kind.tz) if coarse else kind


# ---------------------------------------------------------------------- PostgreSQL


def _new_in_postgres(connection: Any, name: str, shown: str) -> Any:
    """Return the name of a table that is not there, for SQL; a UsageError where there is one, or no such schema."""
    from psycopg import sql

    (current,) = connection.execute("SELECT current_schema()").fetchone()
    schemas = "SELECT 1 FROM pg_namespace WHERE nspname = %s"
    there = "SELECT 1 FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = %s AND relname = %s"
    return sql.Identifier(*_place_of(connection, name, current or "public", (schemas, there), shown))


@contextmanager
def _into_postgres(
    url: str, name: str, shown: str, schema: pa.Schema, close: Callable[[], object]
) -> Iterator[Write]:
    import psycopg
    from psycopg import sql

    kinds = [_kind_in_postgres(field, shown) for field in schema]
    asked = asking(shown, secrets_of(url))
    with (
        asked,
        psycopg.connect(**conninfo(url)[0]) as connection,
        connection.cursor() as cursor,
    ):  # whose end commits, if all went well
        place = _new_in_postgres(connection, name, shown)
        columns = [
            sql.SQL("{} {}").format(sql.Identifier(field.name), sql.SQL(kind))
            for field, kind in zip(schema, kinds, strict=True)
        ]
        cursor.execute(sql.SQL("CREATE TABLE {} ({})").format(place, sql.SQL(", ").join(columns)))
        with cursor.copy(sql.SQL("COPY {} FROM STDIN").format(place)) as copy:

            def append(batch: pa.RecordBatch) -> None:
                plain = [column.cast(PLAIN.get(column.type, column.type)) for column in batch.columns]
                for row in zip(*(column.to_pylist() for column in plain), strict=True):
                    copy.write_row(row)

            yield append


def _kind_in_postgres(field: pa.Field, shown: str) -> str:
    """Return the type of a column in PostgreSQL; a ColumnError where it has none."""
    from ibis.backends.sql.datatypes import PostgresType
    from ibis.formats.pyarrow import PyArrowType

    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    wider = {pa.int8(): "smallint", pa.uint8(): "smallint", pa.uint16(): "integer", pa.uint32(): "bigint",
             pa.uint64(): "numeric(20)", pa.null(): "text", pa.float16(): "real"}  # fmt: skip
    if kind in wider:
        return wider[kind]
    if pa.types.is_nested(kind):
        raise ColumnError(
            f"column {field.name!r} is of type {kind}, which {shown} does not support; leave it out"
        )
    try:
        return str(PostgresType.to_string(PyArrowType.to_ibis(kind)))
    except Exception as error:  # of many kinds: a type that PostgreSQL does not have
        raise DataError(f"column {field.name!r} is of type {kind}, which {shown} does not support") from error
