"""Data that can be read once only: standard input, pipes and what else a process has open.

It is copied to a temporary file first, which is gone with the process, since data is read more than once.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa

from fairfix.data.files import descriptor, is_special
from fairfix.data.spool import spooled
from fairfix.data.storage import FileLocation, FileVersion, Store
from fairfix.data.urls import STANDARD
from fairfix.errors import DataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

PROPOSAL = "pipe a table into it, such as: cat data.csv | fairfix ...; or name a file"


def is_stream(text: str) -> bool:
    """Tell whether a text names what can be read once: ``-``, an open descriptor, a pipe."""
    if text == STANDARD:
        return True
    path = Path(text)
    return descriptor(path) is not None or (is_special(path) and path.exists() and not path.is_dir())


class Spooled(Store):
    """The one store of a copy."""

    is_lasting = False

    def __init__(self, content: pa.Buffer, shown: str) -> None:
        self._content, self._shown = content, shown

    def __reduce__(self) -> NoReturn:
        """Raise a UsageError: no other process has what was read once."""
        raise UsageError(
            f"{self._shown} can be read by this process alone; name a file, or leave out `cluster`"
        )

    def look(self, path: str, shown: str) -> FileVersion:
        """Return its size, which stays."""
        return {"size": self._content.size}

    @contextmanager
    def opened(self, place: FileLocation) -> Iterator[pa.NativeFile]:
        """Yield the copy."""
        with pa.BufferReader(self._content) as file:
            yield file


def stream_place(text: str) -> FileLocation:
    """Return the place of a copy of what can be read once.

    A DataError where that is a terminal, closed, or empty; also where the copy would fill the disk.
    """
    number = 0 if text == STANDARD else descriptor(text)
    shown = "standard input" if number == 0 else text
    try:
        if number is not None:
            content = _copied(number, shown)
        else:
            with Path(text).open("rb", buffering=0) as file:
                content = _copied(file.fileno(), shown)
    except OSError as error:
        raise DataError(f"{shown} cannot be read: {error.strerror}; {PROPOSAL}") from error
    if not content.size:
        raise DataError(f"{shown} is empty; it can be read once, so {PROPOSAL}")
    store = Spooled(content, shown)
    name = shown if number is not None else Path(text).name
    return FileLocation(name, shown, text, store, store.look(text, shown))


def _copied(number: int, shown: str) -> pa.Buffer:
    if os.isatty(number):
        raise DataError(f"{shown} is a terminal; {PROPOSAL}")
    return spooled(lambda size: os.read(number, size), shown)
