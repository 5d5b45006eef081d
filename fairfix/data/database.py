"""Tables of databases: opened for reading alone, counted where they are, streamed where rows are needed.

Ibis compiles every question for the dialect of the database. A file of DuckDB or SQLite is opened read-only, and its
queries reach nothing else (:mod:`fairfix.data.embedded`). A session of PostgreSQL is one read-only transaction, so all
questions see the same rows. Of other databases, answers that are about other rows than the first are refused. No
message has what is secret in a URL.
"""

from __future__ import annotations

import logging
import re
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import parse_qsl, unquote
from uuid import uuid4

import pyarrow as pa

from fairfix.data import files
from fairfix.data.count_queries import Frame, framed, planned
from fairfix.data.counts import Counts
from fairfix.data.data_spec import DataSpec
from fairfix.data.embedded import (
    duckdb_tables,
    only_table,
    open_duckdb,
    open_sqlite,
    sqlite_tables,
)
from fairfix.data.engines import EngineSource, reader_of
from fairfix.data.names import did_you_mean, listed
from fairfix.data.urls import BACKENDS, QUERY, close_later, is_dry, scheme_of, shown_url
from fairfix.errors import ColumnError, DataError, FairfixError, UnsentError, UsageError

SHOWN_SIGNS = 300
"""Signs of what a database says that a message shows."""

SESSION = {
    "default_transaction_read_only": "on",
    # rows come in the order of the table, so that two readings have the same rows in the same places
    "synchronize_seqscans": "off",
    # answers are taken whole, and their groups have room without a sort
    "cursor_tuple_fraction": "1.0",
    "work_mem": "64MB",
    "jit": "off",
}
"""Settings of PostgreSQL in a session of fairfix."""

PATIENCE = "600s"
"""Time limit of a statement of PostgreSQL, unless the URL sets one: longer than a scan of 10^9 rows."""

CONSENT = re.compile(r"([?&])privileged=allow(&|(?=#)|$)")
"""Part of a URL of PostgreSQL that allows a privileged role."""

PRIVILEGED = ("pg_execute_server_program", "pg_read_server_files", "pg_write_server_files")
"""Roles of PostgreSQL that reach beyond its tables, ..."""

ROLES_SINCE = 110000
"""... which it has since this version; Redshift has none of them."""

DRIVERS = frozenset(
    ("ibis", "duckdb", "_duckdb", "psycopg", "sqlglot", "pyarrow", "py4j", "pyspark", "sqlite3", "google")
)
"""Packages whose errors are what a database says."""

REMEDIES = {
    "disabled by configuration": "; a view or a query reads data outside the file. If you trust it, end the URL in "
    "?enable_external_access=true, before the #",
    "statement timeout": "; for more time, end the URL in ?options=-c%20statement_timeout%3D3600s, before the #",
}
"""Words of a database -> what to type."""


class DatabaseSource(EngineSource):
    """A table of Ibis; in a dry run, its database is asked for the columns alone."""

    def __init__(self, table: Any, name: str, secrets: Sequence[str] = ()) -> None:
        self._secrets, self._connected = tuple(secrets), table
        with asking(name, secrets):
            self._database = table._find_backend(use_default=True)
            kinds = table.schema()
            self.unreadable = {
                column: f"it has the type {_type_name(kind)}; cast it in `sql`, or leave it out there"
                for column, kind in kinds.items()
                if not _is_known(kind)
            }
            printed = [column for column, kind in kinds.items() if is_printed(kind)]
            plain = table.mutate(**{column: table[column].cast("string") for column in printed})
            own = {column: kind for column, kind in kinds.items() if column not in self.unreadable}
            schema = pa.schema({column: _streamed_type(kind) for column, kind in own.items()})
        super().__init__(framed(plain if printed else table), schema, name)
        self.backend = self._database.name
        self.texts = frozenset(column for column, kind in kinds.items() if _is_unscaled(kind))

    @property
    def rows(self) -> int | None:  # type: ignore[override]  # asked for when it is needed
        """Number of rows; None where nothing is asked."""
        return self._rows if is_dry() else super().rows

    def counted(self, data_spec: DataSpec, *, exact: bool, losses: bool) -> Counts | None:
        """Return the counts of all rows; None where they are so few that exact distances take all of them."""
        if is_dry():
            queries = self.queries(data_spec, losses=losses)
            raise self._unsent(planned(queries, self.selected(data_spec.columns.counted), exact=exact))
        return super().counted(data_spec, exact=exact, losses=losses)

    def _unsent(self, statements: Mapping[str, Frame]) -> UnsentError:
        """Return the end of a dry run: statements as SQL, each with its purpose."""
        about = " ".join(self.name.split())
        texts = [f"-- {about}: queries that would be sent; only the columns were looked up"]
        with self._asking():
            for title, statement in statements.items():
                sql = self._database.compile(statement.to_native(), pretty=True)
                texts += [f"\n-- {title}", f"{sql};"]
        return UnsentError("\n".join(texts))

    def ask(self, statement: Frame) -> Iterator[pa.RecordBatch]:
        """Yield the answer to a statement, with the types that Ibis says."""
        if is_dry():
            raise self._unsent({"the rows; further queries depend on them": statement})
        question: Any = statement.to_native()
        with self._asking():
            schema = question.schema().to_pyarrow()
            for batch in self._batches(question):
                if batch.num_rows:
                    columns = [
                        column if column.type == kind else column.cast(kind)
                        for column, kind in zip(batch.columns, schema.types, strict=True)
                    ]
                    yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _batches(self, question: Any) -> Iterator[pa.RecordBatch]:
        if self._database.name == "postgres":
            return _of_cursor(self._database, question)
        if self._database.name != "duckdb":
            return iter(self._database.to_pyarrow_batches(question, chunk_size=files.BATCH_ROWS))
        # Ibis calls what reads answers by names that DuckDB 2 no longer has
        self._database._run_pre_execute_hooks(question)
        answer = self._database.con.sql(self._database.compile(question))
        return iter(reader_of(answer))

    def _asking(self) -> AbstractContextManager[None]:
        return asking(self.name, self._secrets)


def _of_cursor(backend: Any, question: Any) -> Iterator[pa.RecordBatch]:
    """Yield the answer of PostgreSQL; what Ibis does leaves a broken transaction where not all of it is taken."""
    backend._run_pre_execute_hooks(question)
    sql, kind = backend.compile(question), question.schema().as_struct().to_pyarrow()
    # the cursor is closed before the transaction, or the part of it, that it lives in
    with backend.con.transaction(), backend.con.cursor(name=f"fairfix_{uuid4().hex}") as cursor:
        cursor.execute(sql)
        while rows := cursor.fetchmany(files.BATCH_ROWS):
            yield pa.RecordBatch.from_struct_array(pa.array(rows, type=kind))


# ---------------------------------------------------------------------- types


def _is_known(kind: Any) -> bool:
    if kind.is_unknown() or kind.is_interval():
        return False
    try:
        kind.to_pyarrow()
    except Exception:  # of many kinds: a type that Arrow does not have
        return False
    return True


def is_printed(kind: Any) -> bool:
    """Tell whether values of a type of Ibis come as objects of their own, which files have as text."""
    return bool(kind.is_uuid() or kind.is_json() or kind.is_inet() or kind.is_macaddr())


def _is_unscaled(kind: Any) -> bool:
    """Tell whether a type of Ibis is a decimal with any number of digits."""
    return bool(kind.is_decimal() and kind.scale is None)


def _streamed_type(kind: Any) -> pa.DataType:
    """Return the type that values come in: decimals of no fixed scale as doubles."""
    if is_printed(kind):
        return pa.string()
    return pa.float64() if _is_unscaled(kind) else kind.to_pyarrow()


def _type_name(kind: Any) -> str:
    raw = getattr(kind, "raw_type", None)
    return " ".join(str(kind if raw is None else raw.sql()).split())


# ---------------------------------------------------------------------- opening


def open_database(data: Any, given: Mapping[str, Any]) -> DatabaseSource:
    """Return a source for the URL of a database, or for a table of Ibis.

    ``given`` may have ``sql``; a table is named after ``#``.
    """
    for name in ("delimiter", "decimal", "encoding", "header"):
        if name in given:
            raise UsageError(f"`{name}` is for CSV files; leave it out, since no file is read")
    if not isinstance(data, str):
        if "sql" in given:
            raise UsageError("`sql` needs the URL of a database; leave it out with an Ibis table")
        if not (hasattr(data, "schema") and hasattr(data, "aggregate")):
            raise DataError(f"cannot read data from a {type(data).__name__} of Ibis; give a table")
        return DatabaseSource(data, _name_of(data))
    head, mark, fragment = data.rpartition("#")
    url, table = (head, unquote(fragment)) if mark and "@" not in fragment else (data, None)
    query, shown = given.get("sql"), shown_url(url)
    embedded = BACKENDS[scheme_of(url)] in ("duckdb", "sqlite") and not url.startswith("motherduck")
    if (table is None) == (query is None) and (query is not None or not embedded):
        raise UsageError(
            f"`sql`: {shown} names the table {table!r} after #; leave one of them out"
            if table
            else f"name the table to read, as in {shown}#TABLE, or give a query with `sql`"
        )
    _check_user(url, shown)
    secrets = secrets_of(url)
    with asking(shown, secrets, "cannot connect to {}"):
        backend = _connected(url, shown)
    connection = ExitStack()  # which closes once, whoever asks for it
    connection.callback(backend.disconnect)
    close_later(connection.close)
    with asking(shown, secrets):
        if table is None and query is None:
            table = only_table(backend, path_of(url))
        expression = _table(backend, str(table), shown) if query is None else _query(backend, str(query))
    name = f"{table} of {shown}" if query is None else f"the query of {shown}"
    weakref.finalize(expression, connection.close)  # which copies of the source share
    return DatabaseSource(expression, name, secrets)


def _name_of(table: Any) -> str:
    """Return what messages call a table of Ibis."""
    try:
        return str(table.get_name())
    except Exception:  # of an expression that is no table by itself
        return "the Ibis table"


def _connected(url: str, shown: str) -> Any:
    """Return a connection that reads."""
    try:
        ibis = import_module("ibis")
    except ImportError:
        raise UsageError(
            "a database needs Ibis, which is not installed: pip install 'fairfix[sql]'"
        ) from None
    backend = BACKENDS[scheme_of(url)]
    try:
        if backend == "duckdb":
            own = {"settings": dict(parse_qsl(url.partition("?")[2])), "wrapped": ibis.duckdb.from_connection}
            return open_duckdb(_file_of(url), read_only=True, **own)
        if backend == "sqlite":
            return open_sqlite(_file_of(url), ibis.sqlite.from_connection)
        if backend == "postgres":
            return _postgres(ibis, url, shown)
        return ibis.connect(url)
    except ImportError as error:
        extra = "'fairfix[sql]'" if backend in ("duckdb", "postgres") else f"'ibis-framework[{backend}]'"
        driver = error.name or "a driver"  # where it is there without what it is built on, it has no name
        raise UsageError(f"{shown} needs {driver}, which is not installed: pip install {extra}") from None


def path_of(url: str) -> Path:
    """Return the file that a URL names: after three slashes from this folder, after four from the root.

    After three it may be a file from the root too, where there is none here.
    """
    rest = unquote(url.partition("://")[2].partition("#")[0].partition("?")[0])
    path, root = Path(rest.removeprefix("/")), Path(rest)
    if path.is_file() and root.is_file() and not path.samefile(root):
        raise UsageError(f"{shown_url(url)} is {path} here, and {root}; write the latter with four slashes")
    return root if root.is_file() and not path.is_file() else path


def _file_of(url: str) -> Path:
    """Return the file that a URL names, which is there."""
    if not (path := path_of(url)).is_file():
        raise DataError(f"{path} does not exist, which {shown_url(url)} names")
    return path


def _postgres(ibis: ModuleType, url: str, shown: str) -> Any:
    """Return a connection to PostgreSQL whose session is one read-only transaction."""
    import psycopg

    about, consent = conninfo(url)
    ours = " ".join(f"-c {name}={value}" for name, value in SESSION.items())
    about["options"] = f"-c statement_timeout={PATIENCE} {about.get('options') or ''} {ours}"
    about.setdefault("application_name", "fairfix")
    connection = psycopg.connect(**about)
    connection.read_only = True
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    try:
        connection.execute("SELECT 1")  # begins the transaction, which lasts as long as the connection
        if not consent:
            _require_plain_role(connection, shown)
    except BaseException:
        connection.close()
        raise
    return ibis.postgres.from_connection(connection)


def conninfo(url: str) -> tuple[dict[str, Any], bool]:
    """Return what libpq takes of the URL of PostgreSQL, and whether the URL allows a privileged role."""
    from psycopg.conninfo import conninfo_to_dict

    plain = CONSENT.sub(lambda match: match[1] if match[2] else "", url)
    return dict(conninfo_to_dict(plain)), plain != url


def _require_plain_role(connection: Any, shown: str) -> None:
    """Raise a UsageError for a role that reaches the server's files and programs: views run with its rights."""
    if connection.info.server_version < ROLES_SINCE:
        return
    rows = connection.execute(
        "SELECT r.rolname FROM pg_roles r, pg_roles me WHERE me.rolname = current_user AND "
        "(me.rolsuper AND r.rolname = current_user OR NOT me.rolsuper AND r.rolname = ANY(%s) "
        "AND pg_has_role(r.oid, 'MEMBER'))",
        [list(PRIVILEGED)],
    ).fetchall()
    if rows:
        (name,) = rows[0]
        what = f"is a member of {name}" if name in PRIVILEGED else f"{name!r} is a superuser"
        raise UsageError(
            f"{shown}: the role {what}, and functions in views run with its rights on the server's files and programs; "
            "use a role that may only SELECT, or allow this one by a URL that ends in ?privileged=allow, before the #"
        )


def secrets_of(url: str) -> list[str]:
    """Return the parts of a URL that no message may have."""
    user, at, _ = url.partition("://")[2].rpartition("@")
    name, _, password = user.partition(":") if at else ("", "", "")
    query = [
        value
        for name, value in parse_qsl(url.partition("?")[2].partition("#")[0])
        if name not in ("sslmode", "dbname", "host")
    ]
    secrets = [secret for part in (password, *query) for secret in {part, unquote(part)} if secret]
    return secrets + [f'"{unquote(name)}"'] * bool(name)  # so it is quoted; bare it may be any word


def _check_user(url: str, shown: str) -> None:
    """Raise a UsageError where a user or a password ends before the ``@``: a driver would quote what comes after."""
    user = url.partition("://")[2].rpartition("@")[0]
    wrong = r"[/@\[\]]|%(?![0-9A-Fa-f]{2})" if BACKENDS[scheme_of(url)] == "postgres" else r"[\[\]]"
    if not QUERY.search(user) and re.search(wrong, user):
        raise UsageError(
            f"{shown}: the user or the password has a character with a special meaning in a URL; write / as %2F, @ as "
            "%40, [ as %5B, ] as %5D and % as %25"
        )


@contextmanager
def asking(shown: str, secrets: Sequence[str] = (), opening: str = "{}") -> Iterator[None]:
    """Turn what a database says into one line without secrets."""
    try:
        yield
    except FairfixError:
        raise
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in DRIVERS:
            raise
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        text = (lines or [type(error).__name__])[0]
        for secret in sorted(secrets, key=len, reverse=True):
            text = text.replace(secret, "***")
        remedy = next((more for words, more in REMEDIES.items() if words in text), "")
        raise DataError(f"{opening.format(shown)}: {text[:SHOWN_SIGNS]}{remedy}") from None


def _table(backend: Any, name: str, shown: str) -> Any:
    """Return a table by its name, perhaps with its schema before a dot; a DataError has names that are near.

    A UsageError where a name with a dot can be both, a table of that name and one of a schema.
    """
    if backend.name == "duckdb":
        import sqlglot

        places = duckdb_tables(backend)
        ways = [next((one for one in places if name == ".".join(one[most:])), None) for most in (2, 1, 0)]
        if place := _only(name, [(one[2], one[1]) for one in ways if one], shown):
            catalog, schema, own = next(one for one in ways if one and (one[2], one[1]) == place)
            whole = sqlglot.expressions.table_(own, db=schema, catalog=catalog, quoted=True)
            return _query(backend, sqlglot.select("*").from_(whole).sql("duckdb"))
        tables = [place[2] for place in places]
    else:
        from ibis.common.exceptions import TableNotFound

        splits = [(name[:at], name[at + 1 :]) for at, sign in enumerate(name) if sign == "."]
        read = {}
        for schema, own in [("", name), *splits]:
            at = tuple(schema.split(".")) if "." in schema else schema or None
            with suppress(TableNotFound):
                read[own, schema] = backend.table(own, database=at)
        if place := _only(name, list(read), shown):
            return read[place]
        tables = sqlite_tables(backend) if backend.name == "sqlite" else list(backend.list_tables())
    hint = did_you_mean(name, sorted(tables)) or f"; it has: {listed(sorted(tables)) or 'none'}"
    raise DataError(f"{shown} has no table {name!r} that can be read{hint}")


def _only(name: str, places: Sequence[tuple[str, str]], shown: str) -> tuple[str, str] | None:
    """Return the place, a table and its schema, that a name stands for; None if there is none."""
    if len(set(places)) > 1:
        own, schema = places[-1]
        raise UsageError(
            f"{shown}: {name!r} is a table of that name, and the table {own!r} of the schema {schema!r}; choose by "  # noqa: S608  a message
            f'`sql`, such as \'SELECT * FROM "{schema}"."{own}"\''
        )
    return places[0] if places else None


def _query(backend: Any, text: str) -> Any:
    """Return the table that a query makes."""
    sql = only_query(text, backend.dialect)
    if backend.name == "duckdb":
        mapper = backend.compiler.type_mapper
        columns = backend.con.execute(f"DESCRIBE {sql}").fetchall()
        described = [(name, mapper.from_string(kind)) for name, kind, *_ in columns]
    elif backend.name == "postgres":
        _require_pure(backend, sql)
        described = _described(backend, sql)
    else:
        return backend.sql(sql)
    names = [name for name, _ in described]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ColumnError(f"the query has the column {twice[0]!r} more than once; rename one with AS")
    return backend.sql(sql, schema=dict(described))


def _described(backend: Any, sql: str) -> list[tuple[str, Any]]:
    """Return names and types of the columns of a query in PostgreSQL, where nothing may be made to find out."""
    with backend.con.cursor() as cursor:
        cursor.execute(f"SELECT * FROM ({sql}) AS q LIMIT 0")  # noqa: S608  the query that is asked for, parsed
        columns, out = cursor.description or (), []
        for column in columns:
            kind = column.type_display.replace("bpchar", "char")
            if kind.isdecimal():  # the number of a type that is no usual one
                asked = "SELECT typname, typtype FROM pg_type WHERE oid = %s"
                kind, sort = cursor.execute(asked, (column.type_code,)).fetchone()
                kind = "text" if sort == "e" else kind
            out.append((column.name, backend.compiler.type_mapper.from_string(kind)))
    return out


def _require_pure(backend: Any, sql: str) -> None:
    """Raise a UsageError where a query calls what PostgreSQL does not know to be free of side effects."""
    import sqlglot

    calls = sqlglot.parse_one(sql, read=backend.dialect).find_all(sqlglot.expressions.Anonymous)
    if not (names := sorted({call.name.lower() for call in calls})):
        return
    pure = backend.con.execute(
        "SELECT proname FROM pg_proc WHERE proname = ANY(%s) GROUP BY proname "
        "HAVING bool_and(provolatile <> 'v' AND pronamespace = 'pg_catalog'::regnamespace)",
        [names],
    ).fetchall()
    if unknown := [name for name in names if (name,) not in pure]:
        raise UsageError(
            f"`sql` calls {unknown[0]!r}, and only functions of PostgreSQL itself without side effects are called "
            "there; leave it out, or read a view that calls it, as a table"
        )


def only_query(text: str, dialect: Any) -> str:
    """Return a query as its dialect has it; a UsageError unless the text is one query that only reads."""
    import sqlglot
    from sqlglot import expressions

    log = logging.getLogger("sqlglot")
    disabled, log.disabled = log.disabled, True
    try:
        trees = [tree for tree in sqlglot.parse(text, read=dialect) if tree is not None]
    except sqlglot.errors.SqlglotError as error:
        reason = str(error).splitlines()[0].replace("\x1b[4m", "").replace("\x1b[0m", "")
        raise UsageError(f"`sql` cannot be read as a query: {reason}") from None
    finally:
        log.disabled = disabled
    if len(trees) != 1:
        raise UsageError(f"`sql` has {len(trees)} statements; give one query, SELECT or WITH")
    (tree,) = trees
    # what a query must not hold, be it in a common table expression
    writes = (
        *("DML", "DDL", "Into", "Lock", "Command", "Drop"),
        *("Alter", "Copy", "Pragma", "Set", "Attach", "Detach"),
    )
    kinds = tuple(getattr(expressions, name) for name in writes if hasattr(expressions, name))
    if not isinstance(tree, expressions.Query) or next(tree.find_all(*kinds), None):
        raise UsageError("`sql` is not a read-only query; give a SELECT, or a WITH that ends in one")
    return str(tree.sql(dialect=dialect))
