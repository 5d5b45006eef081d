"""URLs: which data they name, and how they are shown without what is secret in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
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
"""What the URL of a database looks like."""

SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")

PLAIN = re.compile(r"[\w.:/~%\[\]() -]*")
"""What is shown of a URL beyond its scheme has only such signs."""


def scheme_of(data: Any) -> str:
    """Return the scheme of a URL in small letters; empty for what is none."""
    match = SCHEME.match(data) if isinstance(data, str) else None
    return match[1].lower() if match else ""


def is_database(data: Any) -> bool:
    """Return whether data is the URL of a database, or a table of Ibis."""
    return scheme_of(data) in BACKENDS or type(data).__module__.startswith("ibis.")


def shown_url(text: str) -> str:
    """Return a URL without user, password, query and fragment; what is no URL as it is.

    Where signs that end these parts stand where they could be part of a password, nothing is shown after the scheme.
    """
    match = SCHEME.match(text)
    if match is None:
        return text
    user, at, rest = text[match.end() :].rpartition("@")
    place = re.split("[?#]", rest, maxsplit=1)[0]
    sound = PLAIN.fullmatch(place) and not (at and re.search("[?#]", user))
    return match[0] + (place if sound else "...")


def shown_argument(text: str) -> str:
    """Return an argument of the command line, the URL that it is or ends in as :func:`shown_url` shows it."""
    match = SCHEME.search(text)
    return text if match is None else text[: match.start()] + shown_url(text[match.start() :])


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
