"""The record of a run: whose model it is and what for, of when the data is, and by what the result was made.

A result has it where it is asked for, since it tells of the machine: the versions and the command are not in the data.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

from fairfix import __version__
from fairfix.data.files import Source, file_hash
from fairfix.errors import UsageError
from fairfix.tasks.request import RECORD, ReportRequest

MADE_BY = ("numpy", "scipy", "scikit-learn", "pyarrow", "pandas")
"""Packages that numbers may depend on."""


def add_record(
    content: dict[str, Any], request: ReportRequest, source: Source | None = None
) -> dict[str, Any]:
    """Add to a result what is to be kept with it; without any, nothing. Return the result.

    Raises
    ------
    UsageError
        An entry of ``record`` is unknown.
    DataError
        The file of ``source`` has changed since it was read: its hash would be of other rows.
    """
    if not request.record:
        return content
    from importlib.metadata import version

    allowed = (*RECORD, "command")
    if unknown := sorted(set(request.record) - set(allowed)):
        raise UsageError(f"`record`: unknown entry {unknown[0]!r}; it has {', '.join(RECORD)}")
    kept: dict[str, Any] = {name: str(request.record[name]) for name in allowed if name in request.record}
    hidden = getattr(request, "suppress_below", 0)  # a hash of the file would confirm a guess of hidden rows
    if not hidden and isinstance(request.data, str) and Path(request.data).is_file():
        kept["data_sha256"] = file_hash(request.data)
        if source is not None:
            source.require_unchanged()
    packages = {name: version(name) for name in MADE_BY}
    kept["versions"] = {"fairfix": __version__, "python": platform.python_version(), **packages}
    content["record"] = kept
    return content
