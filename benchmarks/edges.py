"""Seconds and memory at the edges: many groups, columns, protected columns, row groups, rows; and how both grow.

``python benchmarks/edges.py [CASE ...] [--large] [--folder FOLDER] [--out FILE.md]`` writes Markdown. Each size of a
case is the command that a user types, in a process of its own, on data that another process has made, since a process
is told the peak of whoever started it. The exponent is the slope of the logarithm of CPU seconds, less those of a run
without data, over that of the size, between the last two sizes: 1 is linear, 2 is quadratic. ``--large`` adds the cases
that need 4 GB of disk and some minutes.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PLAIN = ("--config", "none", "--quiet", "--format", "json")


@dataclass(frozen=True)
class Case:
    """A command on data of growing size."""

    about: str
    sizes: Sequence[int]
    make: Callable[[Path, int], None]
    """Writes the data of a size to a path."""
    line: Sequence[str]
    """What follows ``fairfix``; ``DATA`` is the path, ``SIZE`` the size, ``NEW`` a file to write."""
    large: bool = False
    ends: Sequence[int] = (0, 1, 3)


# ---------------------------------------------------------------------- data


def rows(n: int, seed: int = 0) -> dict[str, Any]:
    """Return labels and scores."""
    import numpy as np

    rng = np.random.default_rng(seed)
    score = np.round(rng.random(n), 4)
    return {"label": (rng.random(n) < score).astype(np.int64), "score": score}


def save(path: Path, columns: dict[str, Any], **settings: Any) -> None:
    """Write columns as Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns), path, **settings)


def groups(path: Path, size: int) -> None:
    """Write 20 rows of each of so many groups; of every other one, 19."""
    import numpy as np

    code = np.arange(size * 20) % (2 * size)
    code = np.where(code < size, code, code - size)[size // 2 :]
    save(path, {"g": [f"g{i}" for i in code], **rows(len(code))})


def columns(path: Path, size: int) -> None:
    """Write two groups, label, score and so many columns more, each of which could be protected."""
    names = ("a", "b", "c")
    more = {f"c{j}": [names[(i * (j + 1)) % 3] for i in range(200)] for j in range(size - 3)}
    save(path, {"g": ["x", "y"] * 100, **rows(200), **more})


def protected(path: Path, size: int) -> None:
    """Write so many columns of three groups."""
    import numpy as np

    rng, n = np.random.default_rng(1), 2000
    save(path, {**{f"p{j}": rng.choice(["a", "b", "c"], n) for j in range(size)}, **rows(n)})


def row_groups(path: Path, size: int) -> None:
    """Write row groups of one row."""
    save(path, {"g": ["x", "y"] * (size // 2), **rows(size)}, row_group_size=1)


def crossed(path: Path, size: int) -> None:
    """Write two rows of each of so many cells of two columns."""
    side, n = math.isqrt(size), size * 2
    save(
        path,
        {"p": [f"p{i % side}" for i in range(n)], "q": [f"q{i // side % side}" for i in range(n)], **rows(n)},
    )


def strata(path: Path, size: int) -> None:
    """Write 20 rows of each of so many strata, in two groups."""
    n = size * 20
    save(
        path,
        {
            "s": [f"s{i % size}" for i in range(n)],
            "g": ["x" if i // size % 2 else "y" for i in range(n)],
            **rows(n),
        },
    )


def many_rows(path: Path, size: int) -> None:
    """Write three columns of so many rows, a million at a time."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        {"g": pa.dictionary(pa.int32(), pa.string()), "label": pa.int8(), "score": pa.float32()}
    )
    with pq.ParquetWriter(path, schema) as writer:
        for i in range(size // 1_000_000):
            rng = np.random.default_rng(i)
            score = rng.random(1_000_000, dtype=np.float32)
            label = (rng.random(1_000_000) < score).astype(np.int8)
            code = rng.integers(0, 5, 1_000_000, dtype=np.int32)
            group = pa.DictionaryArray.from_arrays(code, list("abcde"))
            writer.write_table(pa.table([group, label, score], schema=schema))


def tied(path: Path, size: int) -> None:
    """Write so many rows of two groups and one score, a few bytes each million."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    block = pa.table(
        {
            "g": pa.array(["x", "x", "y", "y"] * 250_000).dictionary_encode(),
            "label": pa.array([0, 1] * 500_000, pa.int8()),
            "score": [0.5] * 1_000_000,
        }
    )
    with pq.ParquetWriter(path, block.schema) as writer:
        for _ in range(size // 1_000_000):
            writer.write_table(block)


def megabytes(path: Path, size: int) -> None:
    """Write CSV of so many MB: ten columns, of which three are asked for."""
    block, lines = rows(10_000), []
    for i, (label, score) in enumerate(zip(block["label"], block["score"], strict=True)):
        lines.append(
            f"{'abcde'[i % 5]},{label},{score:.4f},some text,{i},{i / 7:.6f},2024-01-0{i % 9 + 1},,x,y\n"
        )
    content = "".join(lines).encode()
    with path.open("wb") as file:
        file.write(b"g,label,score,c1,c2,c3,c4,c5,c6,c7\n")
        while file.tell() < size * 1_000_000:
            file.write(content)


AUDIT = ("audit", "DATA", "--protected", "g", *PLAIN)
COUNT = ("count", "DATA", "--protected", "g", "-o", "NEW", "--config", "none", "--quiet")
MANY = ("--bands", "g=values")
LIMITS = ("--check", "dp.difference<=0.1", "--check", "ks<=0.2")
REPAIR = ("repair", "DATA", "--protected", "g", "-o", "NEW", *PLAIN, *MANY)
ALL = ("audit", "DATA", "--protected", "ALL", *PLAIN)
CROSSED = (
    "audit",
    "DATA",
    "--protected",
    "p,q",
    "--intersect",
    *PLAIN,
    "--bands",
    "p=values",
    "--bands",
    "q=values",
)
GROUPS, COLUMNS, PROTECTED = (2500, 5000, 10_000), (1250, 2500, 5000), (50, 100, 200)
ROW_GROUPS, ROWS, MB = (30_000, 60_000), (50_000_000, 100_000_000), (500, 1000)

CASES = {
    "groups": Case("groups of 20 rows", GROUPS, groups, (*AUDIT, *MANY)),
    "groups-counts": Case("groups, counts", GROUPS, groups, (*COUNT, *MANY)),
    "groups-html": Case("groups, as HTML", GROUPS, groups, (*AUDIT[:-1], "html", *MANY)),
    "groups-gated": Case(
        "groups, checks, a reference", GROUPS, groups, (*AUDIT, *MANY, *LIMITS, "--reference", "g=g0")
    ),
    "groups-hidden": Case(
        "groups, half of them hidden", GROUPS, groups, (*AUDIT, *MANY, "--suppress-below", "20")
    ),
    "groups-repair": Case("groups, repair by ramp", GROUPS, groups, (*REPAIR, "--method", "ramp")),
    "cells": Case("crossed cells of two rows", GROUPS, crossed, CROSSED),
    "strata": Case(
        "strata of two groups, 20 rows each",
        (250, 500, 1000),
        strata,
        (*AUDIT, "--strata", "s", "--bands", "s=values"),
    ),
    "columns": Case("columns in the file, 3 of them asked for", COLUMNS, columns, AUDIT),
    "columns-init": Case(
        "columns that could be protected, init", COLUMNS, columns, ("init", "DATA", "-o", "NEW", "-q")
    ),
    "protected": Case("protected columns", PROTECTED, protected, ALL),
    "protected-html": Case("protected columns, as HTML", PROTECTED, protected, (*ALL[:-1], "html")),
    "row-groups": Case("row groups of one row", ROW_GROUPS, row_groups, AUDIT),
    "tied": Case("rows of one score", (10_000_000, 40_000_000), tied, AUDIT, large=True),
    "rows": Case("rows of Parquet", ROWS, many_rows, AUDIT, large=True),
    "rows-counts": Case("rows of Parquet, counts", ROWS, many_rows, COUNT, large=True),
    "rows-repair": Case(
        "rows of Parquet, repair by ramp",
        (5_000_000, 10_000_000),
        many_rows,
        (*REPAIR[: -len(MANY)], "--method", "ramp"),
        large=True,
    ),
    "csv": Case("MB of CSV", MB, megabytes, AUDIT, large=True),
    "csv-counts": Case("MB of CSV, counts", MB, megabytes, COUNT, large=True),
}


# ---------------------------------------------------------------------- measuring


@dataclass(frozen=True)
class Cost:
    """Seconds of the processor, of the clock, and MB at the most."""

    cpu: float
    wall: float
    memory: float


def measured(command: Sequence[str], ends: Sequence[int], seconds: int) -> Cost | None:
    """Run a command to its end; None where it takes longer than so many seconds of the processor."""
    limit = ["prlimit", f"--cpu={seconds}"]
    began = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as talk:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        process = subprocess.Popen([*limit, *command], stdout=out, stderr=talk, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = end = os.waitstatus_to_exitcode(status)
        if end < 0:
            return None
        if end not in ends:
            talk.seek(0)
            raise SystemExit(f"{' '.join(command)} ended with {end}: {talk.read()[-500:].decode()}")
    return Cost(usage.ru_utime + usage.ru_stime, time.monotonic() - began, usage.ru_maxrss / 1024)


START = 0.6
"""CPU seconds that any run takes to begin with."""


def exponent(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """Return the slope between the last two sizes."""
    (n, m), (a, b) = sizes[-2:], (max(one - START, 0.05) for one in seconds[-2:])
    return math.log(b / a) / math.log(m / n)


def run(name: str, folder: Path, seconds: int) -> str:
    """Return the row of the table of a case."""
    case, costs = CASES[name], list[Cost]()
    for size in case.sizes:
        data = folder / f"{case.make.__name__}-{size}.{'csv' if case.make is megabytes else 'parquet'}"
        if not data.exists():
            subprocess.run(
                [sys.executable, __file__, "--make", case.make.__name__, data, str(size)], check=True
            )
        words = {
            "DATA": str(data),
            "NEW": str(folder / "new"),
            "ALL": ",".join(f"p{j}" for j in range(min(size, 1000))),
        }
        (folder / "new").unlink(missing_ok=True)
        line = [words.get(one, one) for one in case.line]
        cost = measured([sys.executable, "-m", "fairfix", *line], case.ends, seconds)
        sys.stderr.write(f"{name} {size} {cost}\n")
        if cost is None:
            return f"| {case.about} | {size:,} | more than {seconds} | | | | |"
        costs.append(cost)
    last, slope = costs[-1], exponent(case.sizes, [one.cpu for one in costs])
    each = 1e6 * (last.cpu - costs[-2].cpu) / (size - case.sizes[-2])
    cells = f"{last.cpu:.1f} | {last.wall:.1f} | {last.memory:,.0f} | {each:,.0f} | {slope:.1f}"
    return f"| {case.about} | {size:,} | {cells} |"


def main() -> None:
    """Run the cases and print their table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; all without one")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--folder", type=Path, help="where data is kept; else a folder that is removed")
    parser.add_argument("--seconds", type=int, default=600, help="CPU seconds that a run may take")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--make", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.make:
        makes = {case.make.__name__: case.make for case in CASES.values()}
        makes[given.make[0]](Path(given.make[1]), int(given.make[2]))
        return
    os.environ["PYTHONPATH"] = str(ROOT)
    chosen = given.cases or [name for name, case in CASES.items() if given.large or not case.large]
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        lines = [run(name, folder, given.seconds) for name in chosen]
    head = [
        "## At the edges",
        "",
        "Whole commands with their reports, JSON unless another format is named; `each` is the cost of one more, in",
        "CPU microseconds. Goal for groups and cells: 50 each, 10,000 in 2 s, memory in proportion; 1 is linear.",
        "",
        "| what there is many of | size | CPU s | wall s | memory, MB | each, us | exponent |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    text = "\n".join([*head, *lines]) + "\n"
    print(text)
    if given.out:
        given.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
