"""Confined reading: a library of C or Rust reads a stranger's file in a process of its own, with limits.

Such a library takes memory for as many cells as a file declares, or fails in a way that ends its process. Here that
ends as an error that names the file. The process gets the file on its standard input and answers with an Arrow stream.
The limits hold where the system has them, which Windows has not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from fairfix.data.storage import FileLocation
from fairfix.errors import DataError, first_line

MEMORY = 3 << 30
"""Bytes of addresses that the process may take."""

SECONDS = 300
"""Processor time that it may take."""

BYTES = 1 << 30
"""Largest file, and largest table, that is read whole."""

CHUNK = 1 << 20
"""Bytes handed over at a time."""

TOO_LARGE = "is too large to be read whole; save it as Parquet or CSV, which are read in pieces"

START = "import sys; sys.path[:] = {path!r}; from fairfix.data.confined import answer; answer({reader!r}, {given!r})"


def read_confined(place: FileLocation, kind: str, reader: str, **given: Any) -> pa.Table:
    """Return the table of a file, read in another process.

    Parameters
    ----------
    reader
        ``module:function`` of fairfix, called there with the bytes of the file and ``given``, which JSON can hold. It
        returns a table. The ValueError of a library or a DataError comes back as a DataError.
    """
    if (place.size or 0) > BYTES:
        raise DataError(f"{place.name} {TOO_LARGE}")
    code = START.format(path=sys.path, reader=reader, given=json.dumps(given))
    command = [sys.executable, "-P", "-c", code]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    start: Any = partial(subprocess.Popen, command, **pipes)  # code of our own
    with place.opened() as file, start() as process:
        try:
            with suppress(BrokenPipeError), process.stdin:
                while chunk := file.read(CHUNK):
                    process.stdin.write(chunk)
            head = process.stdout.readline()
            reply = json.loads(head) if head else {}
            table = _table(process.stdout) if head and not reply else None
        except BaseException:
            process.kill()
            raise
    if reply:
        fault = "" if reply["own"] else f"cannot be read as {kind}: "
        raise DataError(f"{place.name} {fault}{reply['error']}")
    if table is None or process.returncode:
        raise DataError(
            f"{place.name} cannot be read as {kind}: it needs more memory or time than allowed, or is damaged; save it "
            "as Parquet or CSV"
        )
    return table


def program_of(names: Iterable[str]) -> str:
    """Return the full path of the first program that the search path of the system has; empty without one.

    Relative folders of the search path are left out: a stranger may have filled the working folder.
    """
    folders = [Path(one) for one in os.get_exec_path() if Path(one).is_absolute()]
    places = (folder / f"{name}{ending}" for name in names for folder in folders for ending in ("", ".exe"))
    return next((str(one) for one in places if one.is_file() and os.access(one, os.X_OK)), "")


def made_by_program(command: Sequence[str], content: bytes, names: tuple[str, str], seconds: float) -> bytes:
    """Return the file that a program of this machine makes of another, in a folder that is gone afterwards.

    Parameters
    ----------
    command
        Full path of the program, and its arguments; ``{folder}`` stands for the folder.
    names
        Names of the file with the content and of the one that is made, which is empty if the program fails.
    """
    with TemporaryDirectory(prefix="fairfix-", ignore_cleanup_errors=True) as folder:
        (Path(folder) / names[0]).write_bytes(content)
        line = [one.replace("{folder}", folder) for one in command]
        nothing: Any = subprocess.DEVNULL
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(  # noqa: S603  a program of the system, found by its full path
                line, stdin=nothing, stdout=nothing, stderr=nothing, cwd=folder, timeout=seconds, check=False
            )
        made = Path(folder) / names[1]
        return made.read_bytes() if made.is_file() else b""


def _table(stream: Any) -> pa.Table | None:
    """Return the table of an answer; None where it breaks off."""
    try:
        with pa.ipc.open_stream(stream) as batches:
            return batches.read_all()
    except (pa.ArrowException, OSError):
        return None


def answer(reader: str, given: str) -> None:
    """Read standard input by a reader and write its table: the work of the process."""
    _limit()
    module, _, name = reader.partition(":")
    out, reply, table = sys.stdout.buffer, {}, None
    try:
        content = BytesIO(sys.stdin.buffer.read(BYTES + 1))
        table = getattr(import_module(module), name)(content, **json.loads(given))
        if table.nbytes > BYTES:
            reply = {"error": TOO_LARGE, "own": True}
    except DataError as error:
        reply = {"error": str(error), "own": True}
    except MemoryError:
        reply = {"error": TOO_LARGE, "own": True}
    except BaseException as error:  # a panic of Rust is no Exception
        reply = {"error": first_line(error), "own": False}
    out.write(json.dumps(reply).encode() + b"\n")
    if not reply and table is not None:
        with pa.ipc.new_stream(out, table.schema) as stream:
            stream.write_table(table)
    out.flush()


def _limit() -> None:
    """Limit the memory and the time of this process, and leave no image of it behind."""
    with suppress(ImportError, OSError, ValueError):  # Windows has no limits; a lower one is in force already
        from resource import RLIM_INFINITY, RLIMIT_AS, RLIMIT_CORE, RLIMIT_CPU, getrlimit, setrlimit

        for which, most in ((RLIMIT_CORE, 0), (RLIMIT_CPU, SECONDS), (RLIMIT_AS, MEMORY)):
            hard = getrlimit(which)[1]
            setrlimit(which, (most if hard == RLIM_INFINITY else min(most, hard), hard))
