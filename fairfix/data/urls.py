"""URLs as text: what they name, and how they are shown, which is without what is secret in them.

Secret are a user and a password before the ``@``, and all that a query holds: signed URLs carry their signature there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

BACKENDS = {
    "athena": "athena",
    "bigquery": "bigquery",
    "clickhouse": "clickhouse",
    "databricks": "databricks",
    "duckdb": "duckdb",
    "motherduck": "duckdb",
    "mssql": "mssql",
    "mysql": "mysql",
    "oracle": "oracle",
    "postgres": "postgres",
    "postgresql": "postgres",
    "pyspark": "pyspark",
    "redshift": "postgres",
    "snowflake": "snowflake",
    "sqlite": "sqlite",
    "trino": "trino",
}
"""Scheme of a database's URL -> the part of Ibis that speaks with it."""

EXAMPLE = "duckdb:///loans.duckdb"
"""Pattern of the URL of a database."""

STANDARD = "-"
"""Name of standard input as data, and of standard output as a file to write."""

URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
WITHIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>`]+")
"""A URL in a text, up to a blank or a quote."""

QUERY = re.compile(r"\?(?=[\w.%-]+=)")
"""Where a query begins: of a store, whose names may hold a question mark, only before ``name=``."""

TOKEN = re.compile(
    r"((?:^|[?&\s;,])[\w.%-]*(?:signature|sig|token|secret|password|credential|access_?key|account_?key|api_?key)"
    r"[\w.%-]*=)[^&\s'\"<>`]+",
    re.IGNORECASE,
)
"""A secret by its name, in what a library quotes of a query alone."""


PLAIN = re.compile(r"[\w.:/~%\[\]() -]*")
"""Signs of a URL that are shown after its scheme."""


def scheme_of(text: object) -> str:
    """Return the scheme of a URL in small letters; empty for a path and for what is no text."""
    match = URL.fullmatch(text) if isinstance(text, str) else None
    return match[1].lower() if match else ""


def is_database(data: Any) -> bool:
    """Return whether data is the URL of a database, or a table of Ibis."""
    return scheme_of(data) in BACKENDS or type(data).__module__.startswith("ibis.")


def split(url: str) -> tuple[str, str, str, str]:
    """Return scheme, authority (a bucket or a host, perhaps with user and password), path and query of a URL."""
    scheme, _, rest = url.partition("://")
    scheme, query = scheme.lower(), ""
    if scheme in ("http", "https"):
        rest, _, query = rest.partition("#")[0].partition("?")
    elif begin := QUERY.search(rest):
        rest, query = rest[: begin.start()], rest[begin.end() :]
    authority, _, path = rest.partition("/")
    return scheme, authority, path, query


def is_folder(text: str) -> bool:
    """Tell whether a path, or the path of a URL, ends in a slash, by which a folder is named."""
    return (split(text)[2] if scheme_of(text) else text).endswith("/")


def inside(folder: str, name: str) -> str:
    """Return the path or the URL of a file in a folder; the query of a URL stays at its end."""
    query = split(folder)[3] if scheme_of(folder) else ""
    end = len(folder) - len(query) - bool(query)
    return f"{folder[:end].rstrip('/')}/{name}{folder[end:]}"


def name_of(text: str) -> str:
    """Return the last part of a path or of the path of a URL."""
    if scheme_of(text):
        _, authority, path, _ = split(text)
        text = path.rstrip("/") or hidden(f"x://{authority}")[len("x://") :]
    return text.rstrip("/").rpartition("/")[2]


def shown_url(url: str) -> str:
    """Return a URL without user, password, query and fragment; what is no URL as it is.

    The table behind ``#`` is shown where nobody logs in and nothing is asked, so that it is no part of a secret.

    Where signs that end these parts stand where they could be part of a password, nothing is shown after the scheme.
    """
    if not (scheme := scheme_of(url)):
        return url
    if scheme in BACKENDS:
        begin, _, whole = url.partition("://")
        user, at, rest = whole.rpartition("@")
        place = re.split("[?#]", rest, maxsplit=1)[0]
        sound = PLAIN.fullmatch(place) and not (at and re.search("[?#]", user))
        table = rest[len(place) :]
        named = not at and table.startswith("#") and PLAIN.fullmatch(table[1:])
        return f"{begin}://{place if sound else '...'}{table if sound and named else ''}"
    scheme, authority, path, _ = split(url)
    port = authority.rpartition("@")[2].rpartition("]")[2].partition(":")[2]
    if "@" not in authority + path and "@" in url and ":" in authority:  # a password with a sign that ends it
        return f"{url.partition('://')[0]}://..."
    if scheme in ("http", "https") and not port.isdigit() and port:
        return f"{url.partition('://')[0]}://..."
    rest = f"{authority}/{path}" if path or "/" in url.partition("://")[2] else authority
    user, at, host = authority.rpartition("@")
    if not at and ":" in authority and "@" in path:  # a secret key with a slash that is not written as %2F
        user, at, rest = authority, "@", path.rpartition("@")[2]
    elif at:
        container = user.partition(":")[0] if scheme in ("abfs", "abfss") else ""
        rest = (f"{container}@" if container else "") + host + rest[len(authority) :]
    return f"{url.partition('://')[0]}://{rest}"


def hidden(text: str) -> str:
    """Return a text without the secrets of the URLs in it."""
    return TOKEN.sub(r"\1...", WITHIN.sub(lambda match: shown_url(match[0]), text))


def shown_argument(text: str) -> str:
    """Return an argument of a command, which may end in a URL with blanks and quotes, without secrets."""
    before, url, _ = text.partition("://")
    begin = re.search(r"[A-Za-z][A-Za-z0-9+.-]*$", before)
    if not url or begin is None:
        return hidden(text)
    return text[: begin.start()] + shown_url(text[begin.start() :])


_DRY = ContextVar("_DRY", default=False)


def is_dry() -> bool:
    """Return whether databases are asked for nothing but their columns."""
    return _DRY.get()


@contextmanager
def dry_run() -> Iterator[None]:
    """Ask databases for nothing but their columns while the block runs; what comes next raises ``UnsentError``."""
    token = _DRY.set(True)
    try:
        yield
    finally:
        _DRY.reset(token)


_CONNECTIONS: ContextVar[ExitStack | None] = ContextVar("_CONNECTIONS", default=None)


@contextmanager
def closing_connections() -> Iterator[None]:
    """Close the databases that fairfix has connected to in the block at its end, whatever ends it.

    Those that users have connected to are theirs.
    """
    with ExitStack() as stack:
        token = _CONNECTIONS.set(stack)
        try:
            yield
        finally:
            _CONNECTIONS.reset(token)


def close_later(close: Callable[[], object]) -> None:
    """Close a connection at the end of the block of :func:`closing_connections`, if there is one."""
    if (stack := _CONNECTIONS.get()) is not None:
        stack.callback(close)


def close_connections() -> None:
    """Close at once what the block of :func:`closing_connections` would close at its end."""
    if (stack := _CONNECTIONS.get()) is not None:
        stack.close()
