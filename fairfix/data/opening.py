"""Opening of data by its name: which files or database a text names, and the source of them."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from fairfix.data.files import FileSource, Source, file_kinds, head_of
from fairfix.data.packing import ZIP
from fairfix.data.partitions import partitioned
from fairfix.data.recognition import (
    TEXT_ENDINGS,
    Recognised,
    kind_of_name,
    kinds_by_name,
    recognised,
    table_endings,
)
from fairfix.data.storage import MAGIC, SCHEMES, FileLocation, find, local, named_apart
from fairfix.data.streams import is_stream, stream_place
from fairfix.data.urls import BACKENDS, EXAMPLE, is_database, name_of, scheme_of, shown_url
from fairfix.errors import DataError, UnreadableError, UsageError

DATABASES = ((0, b"SQLite format 3\0", "sqlite"), (8, b"DUCK", "duckdb"))
"""Offset and bytes of files that are databases, and the scheme of their URLs."""


def open_named(text: str | FileLocation, stated: Mapping[str, Any]) -> Source:
    """Return the source that a text names: files, a folder, a pattern, a URL, a database, standard input; or of a file.

    Parameters
    ----------
    stated
        How text files are written (``delimiter``, ``decimal``, ``encoding``, ``header``), and a query (``sql``).

    Raises
    ------
    DataError, UsageError
        There is no such file, none that can be read, or what is stated does not fit it.
    """
    if isinstance(text, FileLocation):
        return _source([text], text.shown, stated)
    if scheme_of(text):
        return open_url(text, stated)
    if is_stream(text):
        return _source([stream_place(text)], text, stated)
    text, table = with_table(text)
    if url := database_url(text, table):
        from fairfix.data.database import open_database

        return open_database(url, stated)
    return _source([local(path) for path in paths_of(text)], text, stated, table)


def with_table(text: str) -> tuple[str, str]:
    """Return the file that a text names, and the table in it that it names after ``#``."""
    path, sign, table = text.rpartition("#")
    return (path, unquote(table)) if sign and not Path(text).exists() and Path(path).is_file() else (text, "")


def database_url(text: str, table: str = "") -> str:
    """Return the URL of a file that is a database, known by its content; empty for anything else."""
    path = Path(text)
    if scheme_of(text) or kind_of_name(text) or not path.is_file():
        return ""
    head = head_of(local(text), 16)
    scheme = next((scheme for at, sign, scheme in DATABASES if head[at : at + len(sign)] == sign), "")
    if not scheme:
        return ""
    whole = path.is_absolute() or Path("/", text).is_file()  # which a relative name may mean in a URL
    place = path.absolute() if whole else path
    return f"{scheme}:///{quote(str(place))}" + (f"#{quote(table, safe='')}" if table else "")


def names_database(data: object) -> bool:
    """Tell whether data is a database: a URL, a table of Ibis, or the path of a file that is one."""
    return is_database(data) or (isinstance(data, str) and bool(database_url(*with_table(data))))


def open_url(text: str, stated: Mapping[str, Any]) -> Source:
    """Return the source that the URL of files names; messages show no secret of it."""
    if scheme_of(text) not in SCHEMES:
        able = ", ".join(f"{one}://" for one in (*SCHEMES, *BACKENDS))
        raise DataError(f"{shown_url(text)} has an unknown scheme; fairfix reads {able} and local files")
    url, sign, table = text.rpartition("#")
    several = (ZIP.ending, *(ending for ending, kind in file_kinds().items() if kind.has_tables))
    if not sign or not name_of(url).lower().endswith(several):  # names in stores may have the sign
        url, table = text, ""
    places = find(url, lambda name: name.lower().endswith(table_endings()))
    return _source(places, shown_url(url), stated, unquote(table))


def _source(places: list[FileLocation], text: str, stated: Mapping[str, Any], table: str = "") -> Source:
    """Return the source of files of one kind, which a text names; by their content where their names mislead."""
    places = named_apart(places)
    files: list[Recognised] = []
    try:
        files = [recognised(place, table) for place in places]
        return _source_of(files, text, stated)
    except DataError as error:
        if not isinstance(error, UnreadableError) and any(place.is_remote for place in places):
            raise  # whatever a store says is not about the kind
        others = [recognised(place, table, doubted=True) for place in places]
        if [one.layers for one in others] == [one.layers for one in files]:
            raise
    return _source_of(others, text, stated)


def _source_of(files: Sequence[Recognised], text: str, stated: Mapping[str, Any]) -> Source:
    kinds: dict[str, type[FileSource]] = {one.kind.kind: one.kind for one in files}
    if len(kinds) > 1:
        endings = [ending for ending in table_endings() if any(_has(one.place, ending) for one in files)]
        names = f"; use a pattern that matches files of one kind, ending in {' or '.join(endings)}"
        names = names if len(endings) > 1 else ""
        raise DataError(f"{text} contains {' and '.join(sorted(kinds))} files{names}")
    places, (kind,) = [one.place for one in files], kinds.values()
    name = places[0].name if len(places) == 1 else f"{name_of(text) or text} ({len(places)} files)"
    given = dict(stated)
    for option in given:
        if option == "sql":
            raise UsageError(
                f"`sql` is for databases; leave it out, or give the URL of one, such as {EXAMPLE}"
            )
        if not kind.text:
            raise UsageError(f"`{option}` is for CSV files, and {name} is {kind.kind}; leave it out")
    if table := files[0].table:
        if not kind.has_tables:
            raise DataError(f"{name} is {kind.kind}, which holds one table; leave out #{table}")
        given["table"] = table
    source = kind(places, name, **given)
    remarks = [*dict.fromkeys(one.remark for one in files if one.remark), source.remark]
    source.remark = "; ".join(filter(None, remarks))
    # a folder or a pattern was named, be it with one file in it
    several = len(places) > 1 or name_of(text) != name_of(places[0].shown)
    return partitioned(source) if several else source


def paths_of(text: str) -> list[Path]:
    """Return the files of this machine that a path, a folder or a pattern names; a DataError where there is none."""
    whole = os.path.abspath(text)  # noqa: PTH100  leaves links; another process may stand in another folder
    path = Path(whole)
    if path.is_file():
        return [path]
    if path.is_dir():
        files = [file for file in path.rglob("*") if _has(file, *table_endings()) and file.is_file()]
        hidden = [any(part.startswith((".", "_")) for part in file.relative_to(path).parts) for file in files]
        if all(hidden):
            names = sorted(kinds_by_name())
            other = next((one for one in TEXT_ENDINGS if any(path.rglob(f"*{one}"))), "")
            hint = f"; read its files by a pattern: '{text.rstrip('/')}/*{other}'" if other else ""
            raise DataError(
                f"the folder {text} contains no {', '.join(names[:-1])} or {names[-1]} file{hint}"
            )
        return sorted(file for file, hide in zip(files, hidden, strict=True) if not hide)
    matches = sorted(Path(p) for p in glob.glob(whole, recursive=True) if Path(p).is_file())  # noqa: PTH207  absolute patterns too
    if not matches:
        what = "matches no file" if MAGIC & set(text) else "does not exist"
        raise DataError(f"{text} {what}")
    return matches


def _has(path: Path | FileLocation, *endings: str) -> bool:
    return path.name.lower().endswith(endings)
