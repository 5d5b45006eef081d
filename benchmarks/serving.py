"""Serving: microseconds of one row, and rows a second of a file, beside what reading and writing alone takes.

``python benchmarks/serving.py [--rows N]`` prints Markdown. A row's time is the least of several calls, in seconds of
the thread, so that what the machine does besides is left out; the 99th percentile is over rows.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fairfix
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from fairfix.cli import run

CALLS, ALONE, ROUNDS = 5, 1000, 5

FEATURES = ["x1", "x2", "job"]
REPAIRS: dict[str, tuple[dict[str, Any], int]] = {
    "ramp": ({"method": "ramp"}, 50),
    "thresholds, equalized odds": ({"method": "ramp", "constraint": "equalized_odds"}, 50),
    "thresholds, no draws": ({"method": "ramp", "gamma": 0}, 50),
    "robust thresholds": (
        {"method": "robust", "solver": "ideal", "noise": {"radius": {"a": 0.05, "b": 0.05, "c": 0.05}}},
        50,
    ),
    "tube of scores": ({"method": "fair-regression", "group": "used"}, 50),
    "log loss, linear": ({"method": "logloss", "features": FEATURES}, 200),
    "fair regression, linear": ({"method": "fair-regression", "features": FEATURES}, 200),
    "merge, 100 trees": ({"method": "sensei", "learner": "trees", "features": FEATURES}, 200),
    "network": (
        {"method": "sensei", "solver": "regularizer", "learner": "network", "features": FEATURES},
        200,
    ),
}
"""Name -> the repair, and microseconds that a row may take."""


def people(rows: int) -> pd.DataFrame:
    """Return rows of an id, a group, a score with its label, and three features."""
    rng = np.random.default_rng(5)
    race = rng.choice(["a", "b", "c"], rows)
    score = rng.beta(2, 2, rows) * np.where(race == "a", 1.0, 0.8)
    columns = {
        "id": [f"p{i}" for i in range(rows)],
        "race": race,
        "score": score,
        "label": (rng.random(rows) < score).astype(int),
        "x1": rng.normal(size=rows),
        "x2": rng.normal(size=rows) + score,
        "job": rng.choice(["j1", "j2", "j3"], rows),
    }
    return pd.DataFrame(columns)


def of_rows(repaired: Any, rows: list[dict[str, Any]]) -> np.ndarray[Any, Any]:
    """Return the least microseconds of the thread that each row took."""
    for row in rows[:50]:
        repaired.predict(row)
    taken = np.full(len(rows), np.inf)
    for _ in range(CALLS):
        for i, row in enumerate(rows):
            began = time.thread_time_ns()
            repaired.predict(row)
            taken[i] = min(taken[i], (time.thread_time_ns() - began) / 1000)
    return taken


def cpu(job: Callable[[], object]) -> float:
    """Return CPU seconds of a call."""
    began = time.process_time()
    job()
    return time.process_time() - began


def in_turn(jobs: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Return CPU seconds of jobs that take turns; the first round is not counted."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for i in range(ROUNDS + 1):
        for name, job in jobs.items():
            seconds = cpu(job)
            if i:
                times[name].append(seconds)
    return times


def table(head: tuple[str, ...], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ("---",) + ("---:",) * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def rewritten(source: Path, target: Path, predicted: pa.Table) -> None:
    """Read and write a file, with the columns of a prediction of it, which are in memory."""
    file = pq.ParquetFile(source)
    columns = file.schema_arrow.names
    added = predicted.drop_columns(columns).to_batches(BATCH)
    with pq.ParquetWriter(target, predicted.schema) as writer:
        for batch, more in zip(file.iter_batches(BATCH, use_threads=False), added, strict=True):
            whole = [*batch.columns, *more.columns]
            writer.write_batch(pa.RecordBatch.from_arrays(whole, schema=predicted.schema))


BATCH = 1 << 16
"""Rows that are read at once, as prediction does."""


def report(many: int, folder: Path) -> Iterator[str]:
    """Yield the paragraphs."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    data, repairs = people(3000), {}
    rows = data.drop(columns="label").to_dict("records")[:ALONE]
    shown = []
    for name, (given, most) in REPAIRS.items():
        made = fairfix.repair(data, protected="race", id="id", output=str(folder / "one.fairfix"), **given)
        repaired = repairs[name] = fairfix.load(str(folder / "one.fairfix"))
        assert isinstance(repaired, type(made.repaired))
        middle, high = np.percentile(of_rows(repaired, rows), [50, 99])
        verdict = "met" if high <= most else "**missed**"
        shown.append([name, f"{middle:.0f}", f"{high:.0f}", f"≤ {most}: {verdict}"])
    one = rows[0]
    floor = statistics.median(of_rows(type("Copy", (), {"predict": staticmethod(lambda row: {**row})}), rows))
    yield "## Serving"
    yield (
        f"`repaired.predict` of one dict of {len(one)} values, microseconds of the thread, each of {ALONE:,} rows the "
        f"least of {CALLS} calls. The limit is a call that copies the dict: {floor:.1f}."
    )
    yield table(("rule", "median", "99th percentile", "goal"), shown)

    source, target, artifact = folder / "rows.parquet", folder / "out.parquet", folder / "one.fairfix"
    large = people(many)[["id", "race", "score"]]
    whole = pa.Table.from_pandas(large, preserve_index=False)
    pq.write_table(whole, source)
    scores = np.array(large["score"])
    files, batches = [], []
    for name in ("thresholds, no draws", "ramp", "tube of scores"):
        repaired = repairs[name]
        repaired.save(artifact)
        line = ["predict", str(artifact), str(source), "-o", str(target), "--config", "none", "--quiet"]
        assert run(line) == 0
        predicted = pq.read_table(target).combine_chunks()
        jobs: dict[str, Callable[[], object]] = {
            "predict": lambda line=line: run(line),
            "plain": lambda predicted=predicted: rewritten(source, folder / "plain.parquet", predicted),
            "memory": lambda repaired=repaired: repaired.predict(whole, duplicates="share"),
            # what the rule has to move: a score of 8 bytes in, 8 + 1 + 1/8 bytes out
            "copy": lambda: (scores.copy(), scores.astype(np.int8), scores > 0),
        }
        times = in_turn(jobs)
        for job, base, place in (("predict", "plain", files), ("memory", "copy", batches)):
            own, plain = (statistics.median(times[one]) for one in (job, base))
            ratio = statistics.median(a / b for a, b in zip(times[job], times[base], strict=True))
            place.append([name, f"{many / own / 1e6:.1f}", f"{many / plain / 1e6:.1f}", f"{ratio:.1f}"])
    yield (
        f"`fairfix predict` of {many:,} rows of id, group and score from Parquet to Parquet, one core, goal 5 million "
        "rows a second, beside reading and writing the same columns with pyarrow, which is the limit:"
    )
    yield table(("rule", "million rows a second", "read and write alone", "CPU ratio"), files)
    yield (
        "`repaired.predict` of an Arrow table of the same rows, beside a numpy copy of as many bytes as the rule reads "
        "and writes, which is the limit of memory:"
    )
    yield table(("rule", "million rows a second", "copy alone", "CPU ratio"), batches)


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        for paragraph in report(given.rows, Path(name)):
            print(paragraph, end="\n\n", flush=True)


if __name__ == "__main__":
    main()
