"""The record of a run: whose model it is and what for, of when the data is, and by what the result was made.

A result has it where it is asked for, since it tells of the machine: the versions and the command are not in the data.
"""

from __future__ import annotations

import platform
from pathlib import Path

from msgspec.structs import replace

from fairfix import __version__
from fairfix.data.files import Source, file_hash
from fairfix.errors import UsageError
from fairfix.schema.common import Record
from fairfix.tasks.messages import SomeResult
from fairfix.tasks.request import RECORD, ReportRequest

MADE_BY = ("numpy", "scipy", "scikit-learn", "pyarrow", "pandas")
"""Packages that numbers may depend on."""


def with_record(result: SomeResult, request: ReportRequest, source: Source | None = None) -> SomeResult:
    """Return a result with what is to be kept with it; without any, as it is.

    Raises
    ------
    UsageError
        An entry of ``record`` is unknown.
    DataError
        The file of ``source`` has changed since it was read: its hash would be of other rows.
    """
    if not request.record:
        return result
    from importlib.metadata import version

    allowed = (*RECORD, "command")
    if unknown := sorted(set(request.record) - set(allowed)):
        raise UsageError(f"`record`: unknown entry {unknown[0]!r}; it has {', '.join(RECORD)}")
    digest = ""
    hidden = getattr(request, "suppress_below", 0)  # a hash of the file would confirm a guess of hidden rows
    if not hidden and isinstance(request.data, str) and Path(request.data).is_file():
        digest = file_hash(request.data)
        if source is not None:
            source.require_unchanged()
    packages = {name: version(name) for name in MADE_BY}
    record = Record(
        **{name: str(request.record[name]) for name in allowed if name in request.record},
        data_sha256=digest,
        versions={"fairfix": __version__, "python": platform.python_version(), **packages},
    )
    return replace(result, record=record)
