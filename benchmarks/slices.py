"""Time, memory and power of the search for slices, beside SliceLine's Python port; prints Markdown.

``python benchmarks/slices.py [--rows 1000000] [--peer-rows 5000] [--peer-columns 10] [--worlds 40]``

The first table searches all conjunctions of three conditions by SliceLine's own score and compares the slices. The port
holds a matrix of rows by slices, so it runs on few rows and columns. Each line is a process of its own. The second
table has worlds with one bad slice, and worlds without any: how often each names it, or one that is no worse.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from fairfix.auditing.metrics import METRICS
from fairfix.auditing.slicing.quantity import SliceMetric
from fairfix.auditing.slicing.search import Cells, cubes
from fairfix.auditing.slicing.selection import confirmed, searched
from fairfix.data.row_filter import Condition, comparisons
from fairfix.data.slice_levels import levels_of

ALPHA, TOP, LEVELS = 0.95, 10, 5
"""Weight of the error in SliceLine's score; slices compared; levels of a column."""

Named = frozenset[tuple[int, int]]
"""A slice: columns with their levels."""


def world(rows: int, columns: int, seed: int, extra: float) -> tuple[Any, Any, Any]:
    """Return features of five levels, errors, and their chances: by ``extra`` larger where x0=1 and x1=2."""
    rng = np.random.default_rng(seed)
    x = rng.integers(1, LEVELS + 1, (rows, columns))
    bad = (x[:, 0] == 1) & (x[:, 1] == 2)
    chance = 0.1 + extra * bad + 0.3 * extra * (x[:, 2] == 5)
    return x, (rng.random(rows) < chance).astype(np.int64), chance


def cells_of(x: Any, error: Any, least: int) -> Cells:
    """Return the cells of the accuracy."""
    table = pa.table({f"x{i}": column for i, column in enumerate(x.T)})
    levels, _ = levels_of(table, table.column_names, {}, least)
    quantity = SliceMetric(
        METRICS["accuracy"], "counted", -1, (), 2 * error + (1 - error), 3, np.zeros((0, len(x)))
    )
    return Cells(tuple(levels), quantity)


def of_condition(condition: Condition) -> Named:
    """Return a slice by its columns and their values."""
    return frozenset((int(part.column[1:]), int(part.operands[0])) for part in comparisons(condition))


def ours(x: Any, error: Any, least: int) -> list[tuple[float, Named]]:
    """Return the best slices by SliceLine's score."""
    cells, best, mean = cells_of(x, error, least), list[tuple[float, Named]](), error.mean()
    for cube in cubes(cells, least):
        size = cells.quantity.rows(cube.tables)
        wrong = cube.tables[:, 2, 0]
        score = ALPHA * (wrong / size / mean - 1) - (1 - ALPHA) * (len(x) / size - 1)
        for i in np.argsort(-score)[:TOP].tolist():
            if score[i] <= 0:  # which the port leaves out
                break
            place = tuple(zip(cube.columns, cube.levels[i].tolist(), strict=True))
            best.append((float(score[i]), of_condition(cells.condition(place))))
        best = sorted(best, key=lambda one: -one[0])[:TOP]
    return best


def peer(x: Any, error: Any, least: int, depth: int = 3) -> list[tuple[float, Named]]:
    """Return the same of the port."""
    from sliceline.slicefinder import Slicefinder

    finder = Slicefinder(alpha=ALPHA, k=TOP, max_l=depth, min_sup=least, verbose=False)
    finder.fit(x, error.astype(float))
    scores = [one["slice_score"] for one in finder.top_slices_statistics_]
    slices = [
        frozenset((i, int(one)) for i, one in enumerate(row) if one is not None) for row in finder.top_slices_
    ]
    return list(zip(scores, slices, strict=True))


def run_alone(who: str, rows: int, columns: int) -> dict[str, Any]:
    """Return processor time, memory and slices of a search in a process of its own."""
    line = [sys.executable, __file__, "--alone", who, "--rows", str(rows), "--peer-columns", str(columns)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1:] or ["failed"]
    return json.loads(done.stdout) if done.returncode == 0 else {"failed": last[0][:60]}


def alone(who: str, rows: int, columns: int) -> None:
    """Print what a search took."""
    x, error, _ = world(rows, columns, 0, 0.2)
    start = time.process_time()
    best = {"fairfix": ours, "sliceline": peer}[who](x, error, max(rows // 100, 50))
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    slices = [(round(float(score), 6), sorted(one)) for score, one in best]
    print(json.dumps({"cpu": time.process_time() - start, "memory": used, "slices": slices}))


def costs(rows: int, peer_rows: int, columns: int) -> Iterable[str]:
    """Yield the table of times."""
    yield "| rows | columns | search | CPU s | MB | same slices |"
    yield "|---|---|---|---|---|---|"
    both = {who: run_alone(who, peer_rows, columns) for who in ("fairfix", "sliceline")}
    lists = [one.get("slices", []) for one in both.values()]
    same = f"{sum(a == b for a, b in zip(*lists, strict=False))} of {max(map(len, lists))}"
    lines = [(who, peer_rows, columns, one, same) for who, one in both.items()]
    for who, many, wide, one, alike in (*lines, ("fairfix", rows, 20, run_alone("fairfix", rows, 20), "")):
        cost = (f"{one['cpu']:.1f}", f"{one['memory']:,.0f}") if "cpu" in one else (one["failed"], "")
        yield f"| {many:,} | {wide} | {who} | {cost[0]} | {cost[1]} | {alike} |"


def powers(worlds: int, rows: int, columns: int) -> Iterable[str]:
    """Yield the table of what is named: fairfix with and without a split, and the slices of the best scores."""
    yield "| more errors | search | bad slice named | slices named | of these no worse than all rows |"
    yield "|---|---|---|---|---|"
    bad: Named = frozenset(((0, 1), (1, 2)))
    for extra in (0.0, 0.1, 0.2, 0.4):
        seen: dict[str, list[tuple[bool, int, int]]] = {}
        for seed in range(worlds):
            x, error, chance = world(rows, columns, seed, extra)
            least = max(rows // 100, 50)
            cells, held = cells_of(x, error, least), np.random.default_rng(seed).random(rows) < 0.5
            results = {
                "all at once": searched(cells, least, 0.05),
                "held-out rows": confirmed(cells, held, least, 0.05),
            }
            slices = {
                who: [of_condition(one.condition) for one in result.slices if one.worse]
                for who, result in results.items()
            } | {"best scores": [one for _, one in ours(x, error, least)]}
            for who, these in slices.items():
                means = [chance[np.all([x[:, i] == v for i, v in one], axis=0)].mean() for one in these]
                false = sum(mean <= chance.mean() + 1e-12 for mean in means)
                seen.setdefault(who, []).append((bad in these, len(these), false))
        for who, outcomes in seen.items():
            power, many, false = (float(np.mean([one[i] for one in outcomes])) for i in range(3))
            yield f"| {extra:g} | {who} | {f'{power:.0%}' if extra else ''} | {many:.2f} | {false:.2f} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--peer-rows", type=int, default=5_000)
    parser.add_argument("--peer-columns", type=int, default=10)
    parser.add_argument("--worlds", type=int, default=40)
    parser.add_argument("--alone", default="", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.alone:
        alone(given.alone, given.rows, given.peer_columns)
        return
    print("\n".join(costs(given.rows, given.peer_rows, given.peer_columns)), end="\n\n")
    print("\n".join(powers(given.worlds, given.peer_rows, given.peer_columns)))


if __name__ == "__main__":
    main()
