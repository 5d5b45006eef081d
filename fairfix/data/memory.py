"""Memory: the free memory of this process, and an error for rows that do not fit into it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from fairfix.data.data_spec import DataSpec
from fairfix.errors import DataError

CELL = 2
"""Bytes of the cell of a row."""

MACHINE = "/proc/meminfo"
"""File in which Linux states the available memory."""

GROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
"""Files with the limit of a container and what it uses, of either version of control groups."""


def free_memory() -> int | None:
    """Return the bytes of memory that are available without swapping; None if it is unknown.

    It is the smallest of the limits of the machine and the container.
    """
    return min(_left(), default=None)


def _left() -> Iterator[int]:
    for line in _text(MACHINE).splitlines():
        name, _, entry = line.partition(":")
        if name == "MemAvailable":
            yield int(entry.split()[0]) << 10
    for limit, used in GROUPS:
        ends = _text(limit).strip(), _text(used).strip()
        if all(one.isdecimal() for one in ends):  # a container without a limit has the word "max"
            yield max(int(ends[0]) - int(ends[1]), 0)


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, ValueError):
        return ""


def bytes_of_row(data_spec: DataSpec, schema: pa.Schema, columns: Sequence[str]) -> int:
    """Return the least number of bytes per row, for the parts that a reading keeps and for further columns."""
    parts = data_spec.columns
    numbers = [parts.score, parts.weight, data_spec.decided or None]
    label = (8 if data_spec.task == "regression" else 1) if parts.label else 0
    return (
        CELL
        + label
        + 8 * sum(one is not None for one in numbers)
        + sum(_width(schema, name) for name in columns)
    )


def _width(schema: pa.Schema, name: str) -> int:
    """Return the bytes of an entry of a column; for texts, the bytes of an offset."""
    try:
        return max(int(schema.field(name).type.bit_width) // 8, 1)
    except (KeyError, ValueError):
        return 4


def require_room(rows: int | None, each: int, name: str) -> None:
    """Raise a DataError where ``rows`` rows of ``each`` bytes do not fit into free memory."""
    free = free_memory()
    if rows is None or free is None or rows * each <= free:
        return
    raise DataError(
        f"{name} has {rows:,} rows of at least {each} bytes in memory: {rows * each:,} bytes, but only {free:,} are "
        "free. Repair from counts (`fairfix count`), which need no rows; or read fewer rows with `where`, or fewer "
        "columns, or use a larger machine"
    )
