"""Count the moves of the protected column: ``python docs/walk.py [CHECKOUT]``.

An audit of a file whose protected column has a name of its own runs in this process. A move is a call from one room to
another with an argument that holds this name, in itself or in what it is made of, four levels deep; a door is a pair of
rooms with a move.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from house import floor_of, room_of, rooms_below

NAME = "protected_of_the_walk"


def holds(value: Any, depth: int = 4) -> bool:
    """Return whether a value holds the name of the column."""
    if isinstance(value, str):
        return NAME in value
    if isinstance(value, pa.Schema | pa.Table | pa.RecordBatch):
        return NAME in (value if isinstance(value, pa.Schema) else value.schema).names
    if isinstance(value, Mapping):
        parts = [*value, *value.values()]
    elif isinstance(value, tuple | list | set | frozenset):
        parts = list(value)
    else:
        own = type(value).__module__.startswith("fairfix.")
        parts = list(vars(value).values()) if own and hasattr(value, "__dict__") else []
    return depth > 0 and any(holds(part, depth - 1) for part in parts)


def moves_of(package: Path) -> Counter[tuple[str, str]]:
    """Return how often an audit by the package in force hands the column from room to room."""
    moves: Counter[tuple[str, str]] = Counter()

    def room(code: CodeType) -> str | None:
        inside = code.co_filename.startswith(f"{package}{os.sep}")
        return room_of(Path(code.co_filename), package) if inside else None

    def watch(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or (there := room(code)) is None:
            return
        caller = frame.f_back
        while caller is not None and room(caller.f_code) is None:
            caller = caller.f_back
        here = None if caller is None else room(caller.f_code)
        if here not in (None, there):
            flags = bool(code.co_flags & 4) + bool(code.co_flags & 8)
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + flags]
            sys.setprofile(None)
            if any(holds(frame.f_locals.get(name)) for name in names):
                moves[str(here), there] += 1
            sys.setprofile(watch)

    from fairfix.cli import run

    with tempfile.TemporaryDirectory() as folder, Path(os.devnull).open("w") as nowhere:
        rows = pq.read_table(package.parent / "sample_data" / "loans.parquet").slice(0, 3000)
        path = Path(folder, "rows.parquet")
        pq.write_table(
            rows.rename_columns([NAME if name == "race" else name for name in rows.column_names]), path
        )
        arguments = ["audit", str(path), "--protected", NAME, "--threads", "1", "--no-config"]
        with redirect_stdout(nowhere), redirect_stderr(nowhere):
            sys.setprofile(watch)
            run([*arguments, "--format", "json"])
            sys.setprofile(None)
    return moves


if __name__ == "__main__":
    checkout = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    sys.path.insert(0, str(checkout))
    moves, below = moves_of(checkout / "fairfix"), rooms_below(checkout / "fairfix")
    for (here, there), times in sorted(moves.items()):
        print(f"{here} -> {there} {times}")
    up = sum(times for (a, b), times in moves.items() if floor_of(b, below) > floor_of(a, below))
    rooms = {room for door in moves for room in door}
    print(
        f"{sum(moves.values())} moves through {len(moves)} doors of {len(rooms)} rooms, {up} to a floor above"
    )
