"""Copies in temporary files: of what can be read once only, and of what is packed but must be read at any offset.

The files have no name on Linux, so they are gone with the process, whatever ends it.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from fairfix.errors import DataError

LEFT_FREE = 1 << 28
"""Bytes that a copy of a file leaves free on the disk, for the other programs of the machine."""

CHUNK = 1 << 20
"""Bytes copied at a time."""

UNPACKED_FREELY = 1 << 28
"""Bytes that a packed file may have unpacked, ..."""

MAX_RATIO = 200
"""... and, beyond them, bytes for each packed one: Parquet, Excel and the like are compressed already."""


@contextmanager
def temporary_file(opening: str) -> Iterator[Any]:
    """Yield a binary file for writing that has no name, so that it is gone with the process, whatever ends it.

    A DataError, which begins with ``opening``, where there is no folder for it or no room.
    """
    try:
        with tempfile.TemporaryFile() as file:
            yield file
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOENT) or error.filename:
            raise
        raise DataError(
            f"{opening}: no room for a temporary file: {error.strerror}; set another folder with TMPDIR"
        ) from error


def mapped(file: Any) -> pa.Buffer:
    """Return what a temporary file holds, mapped into memory."""
    file.flush()
    size = os.fstat(file.fileno()).st_size
    return pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b"")


def free_for_copies() -> int:
    """Return how many bytes a copy may take."""
    return shutil.disk_usage(tempfile.gettempdir()).free - LEFT_FREE


def no_room(shown: str, remedy: str = "") -> DataError:
    """Return the error that a copy would fill the disk."""
    return DataError(
        f"{shown} needs more room than {tempfile.gettempdir()} has for temporary files; set another folder with TMPDIR"
        + remedy
    )


def spooled(read: Callable[[int], bytes], shown: str, packed_size: int | None = None) -> pa.Buffer:
    """Return all that ``read(size)`` gives, copied to a temporary file and mapped into memory.

    A DataError where the copy would fill the disk, or where a packed file of ``packed_size`` bytes grows beyond
    :data:`UNPACKED_FREELY` and :data:`MAX_RATIO`.
    """
    room = free_for_copies()
    most = None if packed_size is None else max(UNPACKED_FREELY, MAX_RATIO * packed_size)
    size = 0
    with temporary_file(f"reading {shown} failed") as file:
        while chunk := read(CHUNK):
            size += len(chunk)
            if most is not None and size > most:
                raise DataError(
                    f"{shown} unpacks to more than {most:,} bytes, {MAX_RATIO} times its size; unpack it yourself if "
                    "you trust it, and name the file"
                )
            if size > room:
                raise no_room(shown)
            file.write(chunk)
        return mapped(file)
