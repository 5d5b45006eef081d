"""The audit engine beside a plain read of the same columns, next to Fairlearn and beside DuckDB.

``python benchmarks/engine.py [--rows 1000000 ...] [--large] [--out FILE.md]`` writes Markdown.

Jobs of one table run in one process, in an order drawn anew for every round; a figure is the median over the rounds
of ``job / base`` of the same round, with its quartiles. CPU seconds count every thread of the process. Memory is
VmHWM of a process of its own: ``ru_maxrss`` would inherit the peak of this one. Files are in the page cache.

Page faults are shown because one and the same scan has two speeds: where the allocator gives the temporaries of a
batch back to the system, every batch faults them in anew, and that costs as much as all the counting. Which of the
two happens depends on what else the process holds.

Goals are judged by the median alone, so on a busy machine look at the quartiles too.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from subprocess import run

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from fairfix.auditing.audit import audit
from fairfix.auditing.distances import Partition, candidate_bins, distances
from fairfix.auditing.ks_candidates import slice_of
from fairfix.auditing.results import Settings
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.files import BATCH_ROWS, Source, open_source
from fairfix.data.scan import scan
from fairfix.data.second_pass import collect
from fairfix.data.text_stream import BLOCK
from fairfix.data.workers import Threads

Job = Callable[[], object]

GROUPS = ("race", "sex", "age")
USED = (*GROUPS, "label", "score")
CHUNK = 1_000_000
"""Rows generated and written at a time: one row group."""

LARGE = 10_000_000
"""From here on the goals of memory and of threads hold."""


# --- data ----------------------------------------------------------------------------------------------


def chunks(rows: int) -> Iterator[pa.Table]:
    """Yield the data by row groups: 5 x 2 x 6 groups, full-precision scores, ten unused columns."""
    rng = np.random.default_rng(0)
    for start in range(0, rows, CHUNK):
        n = min(CHUNK, rows - start)
        race = rng.choice(5, n, p=[0.5, 0.2, 0.15, 0.1, 0.05])
        score = 1 / (1 + np.exp(-(rng.normal(size=n) - 0.15 * race)))
        table = {
            "race": text(race, "abcde"),
            "sex": text(rng.integers(0, 2, n), "fm"),
            "age": text(rng.integers(0, 6, n), "uvwxyz"),
            "label": pa.array((rng.random(n) < score).astype(np.int64)),
            "score": pa.array(score),
        }
        table |= {f"x{i}": pa.array(rng.integers(0, 9999, n) / 1e4) for i in range(10)}
        yield pa.table(table)


def text(codes: np.ndarray, names: str) -> pa.Array:
    """Return a column of one-letter groups."""
    return pa.DictionaryArray.from_arrays(codes.astype(np.int8), list(names)).cast(pa.string())


def make(folder: Path, rows: int, kind: str) -> Path:
    """Write the data; return the file."""
    path = folder / f"{rows}.{kind}"
    parts = chunks(rows)
    first = next(parts)
    opened = pq.ParquetWriter if kind == "parquet" else pyarrow.csv.CSVWriter
    with opened(path, first.schema) as writer:
        for part in chain((first,), parts):
            writer.write_table(part, CHUNK)
    return path


def opened(path: Path, threads: int = 1) -> Source:
    """Return a file that so many threads read."""
    return open_source(path).read_by(Threads(threads))


def data_spec(*protected: str) -> DataSpec:
    """Return how the synthetic columns are read."""
    return DataSpec(ColumnRoles(protected, label="label", score="score"), thresholds=(0.5,))


def read_parquet(path: Path, columns: Sequence[str] = USED) -> None:
    """Read columns as the engine does, and do nothing with them."""
    coded = [name for name in columns if name in GROUPS]
    with pq.ParquetFile(path, read_dictionary=coded, pre_buffer=False, buffer_size=1 << 20) as file:
        for _ in file.iter_batches(BATCH_ROWS, columns=list(columns), use_threads=False):
            pass


def read_csv(path: Path) -> None:
    """Stream the columns of a CSV file, and do nothing with them."""
    coded = pa.dictionary(pa.int32(), pa.string())
    reader = pyarrow.csv.open_csv(
        path,
        read_options=pyarrow.csv.ReadOptions(use_threads=False, block_size=BLOCK),
        convert_options=pyarrow.csv.ConvertOptions(
            include_columns=list(USED), column_types=dict.fromkeys(GROUPS, coded)
        ),
    )
    for _ in reader:
        pass


# --- measuring -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Goal:
    """A limit; ``least`` turns it round."""

    limit: float
    least: bool = False
    unit: str = ""

    def judge(self, value: float) -> str:
        """Return the limit and whether the value keeps it."""
        kept = value >= self.limit if self.least else value <= self.limit
        return f"{'≥' if self.least else '≤'} {self.limit:g}{self.unit}: {'met' if kept else '**missed**'}"


@dataclass(frozen=True)
class Times:
    """CPU seconds, wall seconds and page faults (without disk) of one job, a value per round."""

    cpu: list[float]
    wall: list[float]
    faults: list[int]


def rounds_of(jobs: Mapping[str, Job], rounds: int, *, warm: bool = True) -> dict[str, Times]:
    """Run every job once per round, in an order drawn anew; one round before them is not counted."""
    rng = np.random.default_rng(0)
    times = {name: Times([], [], []) for name in jobs}
    for i in range(-1 if warm else 0, rounds):
        for name in rng.permutation(list(jobs)):
            faults = getrusage(RUSAGE_SELF).ru_minflt
            cpu, wall = time.process_time(), time.perf_counter()
            jobs[name]()
            if i >= 0:
                times[name].cpu.append(time.process_time() - cpu)
                times[name].wall.append(time.perf_counter() - wall)
                times[name].faults.append(getrusage(RUSAGE_SELF).ru_minflt - faults)
    return times


def ratios(over: Sequence[float], under: Sequence[float]) -> tuple[float, str]:
    """Return the median of the rounds' ratios, and its text with the quartiles."""
    found = [a / b for a, b in zip(over, under, strict=True)]
    low, middle, high = statistics.quantiles(found, n=4, method="inclusive") if len(found) > 1 else found * 3
    return middle, f"{middle:.3g} ({low:.3g}-{high:.3g})"


def seconds(values: Sequence[float]) -> str:
    """Return the median in three digits."""
    return f"{statistics.median(values):.3g}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def over_base(base: Job, jobs: Mapping[str, tuple[Job, Goal | None]], rounds: int) -> str:
    """Return the table of jobs against what merely reads the same columns."""
    times = rounds_of({"read": base} | {name: job for name, (job, _) in jobs.items()}, rounds)
    read, rows = times["read"], []
    for name, (_, goal) in jobs.items():
        value, shown = ratios(times[name].cpu, read.cpu)
        _, wall = ratios(times[name].wall, read.wall)
        faults = f"{statistics.median(times[name].faults):,.0f}"
        judged = goal.judge(value) if goal else ""
        rows.append([name, seconds(read.cpu), seconds(times[name].cpu), shown, wall, faults, judged])
    head = ("job", "read, CPU s", "job, CPU s", "CPU ratio (quartiles)", "wall ratio", "page faults", "goal")
    return table(head, rows)


AT_EXIT = """
import atexit, sys
from pathlib import Path
def peak():
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
    print(line, file=sys.stderr)
atexit.register(peak)
"""


def child(code: str, *arguments: str) -> tuple[float, float]:
    """Run code in a new process with a plain pipe; return (CPU seconds, peak memory in MB)."""
    before = getrusage(RUSAGE_CHILDREN)
    command = [sys.executable, "-c", AT_EXIT + code, *arguments]
    written = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # else every run would compile the package anew
    done = run(command, capture_output=True, text=True, check=True, env=written)
    after = getrusage(RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, int(done.stderr.split()[-2]) / 1024


FAIRFIX = "from fairfix.cli import main; main()"
"""What the installed command ``fairfix`` runs."""

LIBRARIES = "import click, numpy, pyarrow.parquet, scipy.special"
"""What an audit needs of others."""


# --- the tables ----------------------------------------------------------------------------------------


def parquet_section(path: Path, rows: int, rounds: int) -> Iterator[str]:
    """Yield the engine against the read of the same columns."""
    source, cells, race = opened(path), data_spec(*GROUPS), data_spec("race")

    def counts(how: DataSpec, *, losses: bool = False) -> Job:
        return lambda: scan(source, how, exact=False, losses=losses)

    def whole(how: DataSpec, *, exact: bool) -> Job:
        return lambda: audit(source, how, Settings(exact=exact))

    two, four = (Goal(2.0), Goal(4.0)) if rows >= CHUNK else (None, None)
    yield f"### {rows:,} rows of Parquet, one thread"
    jobs = {
        "counts, 60 cells, one pass": (counts(cells), two),
        "counts and losses, 60 cells, one pass": (counts(cells, losses=True), None),
        "whole audit by race, sex, age, one pass": (whole(cells, exact=False), None),
        "whole audit by race, sex, age, exact": (whole(cells, exact=True), None),
    }
    yield over_base(lambda: read_parquet(path), jobs, rounds)
    few = {
        "counts by race, one pass": (counts(race), two),
        "counts and losses by race, one pass": (counts(race, losses=True), None),
        "exact KS, 5 groups, all pairs": (lambda: exact_ks(path, race), four),
        "whole audit by race, exact": (whole(race, exact=True), four),
    }
    yield over_base(lambda: read_parquet(path, ("race", "label", "score")), few, rounds)


def exact_ks(path: Path, how: DataSpec) -> None:
    """Count and compute every KS distance exactly, without intervals or other metrics."""
    source = opened(path)
    found = scan(source, how, losses=False)
    counts, grid = found.counts, found.counts.grid
    assert grid is not None
    view = Partition(np.arange(len(counts.cells)), len(counts.cells))
    bins = candidate_bins(counts, view)
    if found.kept is None:
        rows = collect(source, how, counts, [slice_of(counts, bins)])
    else:
        rows = found.kept.take(bins[grid.index(found.kept.score)])
    distances(counts, view, rows.by_score())


def memory_section(path: Path, rows: int) -> Iterator[str]:
    """Yield the peaks of whole commands, and what exactness adds to counts."""
    _, imports = child("import fairfix.auditing.audit, fairfix.cli.audit, pyarrow.parquet")
    total, more = (Goal(150, unit=" MB"), Goal(60, unit=" MB")) if rows >= LARGE else (None, None)
    shown = []
    for groups in (("race",), GROUPS):
        arguments = (str(path), "--protected", ",".join(groups), "--config", "none", "--quiet")
        for threads in ("1", "2"):
            _, once = child(FAIRFIX, "count", *arguments, "--threads", threads, "-o", os.devnull)
            _, exact = child(FAIRFIX, "audit", *arguments, "--threads", threads, "--format", "json")
            shown.append(
                [
                    ", ".join(groups),
                    threads,
                    f"{once:.0f}",
                    f"{exact:.0f}",
                    total.judge(exact) if total else "",
                    f"{exact - once:.0f}",
                    more.judge(exact - once) if more else "",
                ]
            )
    yield f"Peak memory of `fairfix count` and `fairfix audit` in MB; the imports alone take {imports:.0f}."
    yield table(("by", "threads", "counts", "exact", "goal", "exact - counts", "goal"), shown)


def threads_section(path: Path, rows: int, rounds: int) -> Iterator[str]:
    """Yield the wall time of one thread over that of two."""
    cells = data_spec(*GROUPS)
    parts = len(opened(path).parts(cells.columns.counted))
    if parts < 2:
        yield "Threads: one run of row groups is the work of one thread, so there is nothing to share out."
        return
    jobs: dict[str, Callable[[int], Job]] = {
        "counts, 60 cells, one pass": lambda n: (
            lambda: scan(opened(path, n), cells, exact=False, losses=False)
        ),
        "whole audit by race, sex, age, exact": lambda n: lambda: audit(opened(path, n), cells),
    }
    shown = []
    for name, job in jobs.items():
        times = rounds_of({"1": job(1), "2": job(2)}, rounds)
        value, ratio = ratios(times["1"].wall, times["2"].wall)
        _, cost = ratios(times["2"].cpu, times["1"].cpu)
        goal = Goal(1.6, least=True).judge(value) if rows >= LARGE and "counts" in name else ""
        shown.append([name, seconds(times["1"].wall), seconds(times["2"].wall), ratio, cost, goal])
    yield f"Two threads, {parts} parts:"
    yield table(("job", "1 thread, wall s", "2, wall s", "wall 1 / 2", "CPU 2 / 1", "goal (stretch)"), shown)


def duckdb_section(path: Path, rounds: int) -> Iterator[str]:
    """Yield the same counting as one SQL statement."""
    try:
        import duckdb
    except ImportError:
        yield "DuckDB is not installed: no comparison with a database."
        return
    base = duckdb.connect()
    base.execute("SET threads = 1")
    statement = (
        "CREATE OR REPLACE TEMP TABLE counts AS SELECT race, sex, age, label, floor(score * 1024)::INT AS bin, "
        "count(*) AS rows FROM read_parquet(?) GROUP BY ALL"
    )
    source, cells = opened(path), data_spec(*GROUPS)
    jobs: dict[str, Job] = {
        "fairfix": lambda: scan(source, cells, exact=False, losses=False),
        "duckdb": lambda: base.execute(statement, [str(path)]),
    }
    times = rounds_of(jobs, rounds)
    _, ratio = ratios(times["duckdb"].cpu, times["fairfix"].cpu)
    base.close()
    yield f"DuckDB {duckdb.__version__}, one thread, `GROUP BY` cell, label and score bin, threshold not cut:"
    row = ["counts, 60 cells", seconds(times["fairfix"].cpu), seconds(times["duckdb"].cpu), ratio]
    yield table(("job", "fairfix, CPU s", "DuckDB, CPU s", "DuckDB / fairfix (quartiles)"), [row])


def csv_section(folder: Path, rows: int, rounds: int) -> Iterator[str]:
    """Yield the engine against the stream of a CSV file."""
    path = make(folder, rows, "csv")
    source, cells = opened(path), data_spec(*GROUPS)
    yield f"### {rows:,} rows of CSV, one thread"
    jobs: dict[str, tuple[Job, Goal | None]] = {
        "counts, 60 cells, one pass": (
            lambda: scan(source, cells, exact=False, losses=False),
            Goal(1.25) if rows >= CHUNK else None,
        ),
        "counts and losses, 60 cells, one pass": (
            lambda: scan(source, cells, exact=False),
            None,
        ),
    }
    yield over_base(lambda: read_csv(path), jobs, rounds)
    path.unlink()


def peer_section(path: Path, rows: int, rounds: int) -> Iterator[str]:
    """Yield whole audits against Fairlearn's MetricFrame."""
    try:
        theirs = metric_frame(path)
    except ImportError:
        yield f"### {rows:,} rows next to Fairlearn\n\nFairlearn is not installed: no comparison."
        return
    how = data_spec("race", "sex")

    def whole(*, exact: bool) -> Job:
        return lambda: audit(opened(path), how, Settings(exact=exact, intersect=True))

    ours = {"whole audit, one pass": whole(exact=False), "whole audit, exact": whole(exact=True)}
    for job in ours.values():
        job()
    # the peer needs many seconds: no round of it is thrown away
    times = rounds_of({"Fairlearn": theirs} | ours, rounds, warm=False)
    goal = Goal(200, least=True) if rows == CHUNK else None
    shown = []
    for name in ours:
        value, ratio = ratios(times["Fairlearn"].cpu, times[name].cpu)
        judged = goal.judge(value) if goal and name == "whole audit, exact" else ""
        shown.append([name, seconds(times[name].cpu), seconds(times["Fairlearn"].cpu), ratio, judged])
    yield f"### {rows:,} rows, race x sex, next to Fairlearn"
    yield (
        "Not the same job: ours reads the file and computes all metrics with intervals and KS by race, by sex and by "
        "both; Fairlearn's MetricFrame gets columns in memory and computes four metrics by both, no interval, no KS."
    )
    yield table(("job", "job, CPU s", "Fairlearn, CPU s", "Fairlearn / job (quartiles)", "goal"), shown)


def metric_frame(path: Path) -> Job:
    """Return Fairlearn's audit of the file, read beforehand; ``ImportError`` without Fairlearn."""
    from fairlearn.metrics import MetricFrame, false_positive_rate, selection_rate, true_positive_rate
    from sklearn.metrics import accuracy_score

    frame = pq.read_table(path, columns=list(USED)).to_pandas()
    decision = (frame["score"] >= 0.5).astype(int)
    metrics = {
        "selection_rate": selection_rate,
        "tpr": true_positive_rate,
        "fpr": false_positive_rate,
        "accuracy": accuracy_score,
    }
    return lambda: MetricFrame(
        metrics=metrics, y_true=frame["label"], y_pred=decision, sensitive_features=frame[["race", "sex"]]
    ).difference()


def start_section(folder: Path, rounds: int) -> Iterator[str]:
    """Yield whole commands as processes, in an order drawn anew for every round."""
    path = str(make(folder, 10_000, "parquet"))
    cells = ("--protected", "race,sex,age", "--intersect", "--config", "none")
    jobs: dict[str, tuple[tuple[str, ...], tuple[Goal, ...]]] = {
        "fairfix --help": ((FAIRFIX, "--help"), (Goal(0.06),)),
        "fairfix audit, 10,000 rows, race": (
            (FAIRFIX, "audit", path, "--protected", "race", "--config", "none"),
            (Goal(0.2),),
        ),
        "fairfix audit, 10,000 rows, 60 cells": (
            (FAIRFIX, "audit", path, *cells),
            (Goal(0.3),),
        ),
        f"python -c '{LIBRARIES}'": ((LIBRARIES,), ()),
    }
    peer = "import fairlearn.metrics" if importable("fairlearn") else "import sklearn.metrics"
    commands = {name: command for name, (command, _) in jobs.items()} | {peer: (peer,)}
    for command in commands.values():
        child(*command)
    rng = np.random.default_rng(0)
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name in rng.permutation(list(commands)):
            times[name].append(child(*commands[name])[0])
    shown = []
    for name, (_, goals) in jobs.items():
        value, ratio = ratios(times[name], times[peer])
        judged = [g.judge(statistics.median(times[name]) if g.unit else value) for g in goals]
        shown.append([f"`{name}`", seconds(times[name]), ratio, "; ".join(judged)])
    yield f"### Whole commands, CPU seconds, next to `python -c '{peer}'` ({seconds(times[peer])} s)"
    if "sklearn" in peer:
        yield "Fairlearn is not installed; scikit-learn, which it imports, stands in."
    yield table(("command", "CPU s", "ratio (quartiles)", "goal"), shown)


def importable(name: str) -> bool:
    """Return whether a package is installed, without importing it."""
    from importlib.util import find_spec

    return find_spec(name) is not None


# --- the report ----------------------------------------------------------------------------------------


def report(sizes: Sequence[int], rounds: int) -> Iterator[str]:
    """Yield the paragraphs of the report."""
    yield "## Audit engine"
    yield (
        "Synthetic data: 5 x 2 x 6 groups as text, 0/1 label, full-precision score, ten unused columns. "
        "60 cells, 1,024 score bins unless exact. Ratios are medians over rounds of random order, with quartiles."
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for rows in sizes:
            few = rounds if rows < LARGE else max(rounds // 2, 3)
            path = make(folder, rows, "parquet")
            yield from parquet_section(path, rows, few)
            yield from memory_section(path, rows)
            yield from threads_section(path, rows, few)
            yield from duckdb_section(path, few)
            if rows <= CHUNK:  # the peer needs minutes beyond
                yield from peer_section(path, rows, 3 if rows < CHUNK else 2)
            path.unlink()
        yield from csv_section(folder, min(max(sizes), CHUNK), max(rounds // 2, 3))
        yield from start_section(folder, rounds)


def main() -> None:
    """Print the report, or write it to a file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, CHUNK], help="sizes to measure")
    parser.add_argument("--large", action="store_true", help="also 10 million rows")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, help="write the report here instead of printing it")
    given = parser.parse_args()
    sizes = sorted({*given.rows, *([LARGE] if given.large else [])})
    paragraphs = []
    for paragraph in report(sizes, given.rounds):
        paragraphs.append(paragraph)
        if given.out is None:
            print(paragraph, end="\n\n", flush=True)
    if given.out is not None:
        given.out.write_text("\n\n".join(paragraphs) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
