"""The audit engine beside a plain read of the same columns and beside Fairlearn: CPU time, memory, start-up.

``python benchmarks/engine.py [--large]`` prints Markdown. Every comparison runs in one process in alternating rounds;
figures are medians of the rounds' ratios of process time. Times of whole commands are those of child processes.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from fairfix.auditor import Settings, audit
from fairfix.engine import scan
from fairfix.io import open_source
from fairfix.table import Columns, Reading

GROUPS = ("race", "sex", "age")
USED = (*GROUPS, "label", "score")


def reading(*protected: str) -> Reading:
    """Return how the synthetic columns are read."""
    return Reading(Columns(protected, label="label", score="score"), thresholds=(0.5,))


def chunks(rows: int) -> Iterator[pa.Table]:
    """Yield the data a million rows at a time: 5 x 2 x 6 groups, full-precision scores, ten unused columns."""
    rng = np.random.default_rng(0)
    for start in range(0, rows, 1_000_000):
        n = min(1_000_000, rows - start)
        race = rng.choice(5, n, p=[0.5, 0.2, 0.15, 0.1, 0.05])
        score = 1 / (1 + np.exp(-(rng.normal(size=n) - 0.15 * race)))
        table = {
            "race": pa.DictionaryArray.from_arrays(race.astype(np.int8), list("abcde")).cast(pa.string()),
            "sex": pa.DictionaryArray.from_arrays(rng.integers(0, 2, n, np.int8), list("fm")).cast(
                pa.string()
            ),
            "age": pa.DictionaryArray.from_arrays(rng.integers(0, 6, n, np.int8), list("uvwxyz")).cast(
                pa.string()
            ),
            "label": pa.array((rng.random(n) < score).astype(np.int64)),
            "score": pa.array(score),
        }
        table |= {f"x{i}": pa.array(rng.integers(0, 9999, n) / 1e4) for i in range(10)}
        yield pa.table(table)


def make(folder: Path, rows: int, kind: str) -> Path:
    """Write the data; return the file."""
    path = folder / f"{rows}.{kind}"
    parts = chunks(rows)
    first = next(parts)
    if kind == "csv":
        pyarrow.csv.write_csv(first, path)
        return path
    with pq.ParquetWriter(path, first.schema) as writer:
        for part in (first, *parts) if rows <= 1_000_000 else _chain(first, parts):
            writer.write_table(part, row_group_size=1_000_000)
    return path


def _chain(first: pa.Table, rest: Iterator[pa.Table]) -> Iterator[pa.Table]:
    yield first
    yield from rest


def read_parquet(path: Path, columns: tuple[str, ...]) -> None:
    """Read columns as the engine does, and do nothing with them."""
    coded = [name for name in columns if name in GROUPS]
    with pq.ParquetFile(path, read_dictionary=coded, pre_buffer=False, buffer_size=1 << 20) as file:
        for _ in file.iter_batches(65_536, columns=list(columns), use_threads=False):
            pass


def read_csv(path: Path) -> None:
    """Stream the columns of a CSV file, and do nothing with them."""
    coded = pa.dictionary(pa.int32(), pa.string())
    reader = pyarrow.csv.open_csv(
        path,
        read_options=pyarrow.csv.ReadOptions(use_threads=False),
        convert_options=pyarrow.csv.ConvertOptions(
            include_columns=list(USED), column_types=dict.fromkeys(GROUPS, coded)
        ),
    )
    for _ in reader:
        pass


def paired(base: Callable[[], object], jobs: Mapping[str, Callable[[], object]], rounds: int) -> list[str]:
    """Return a table row per job: median seconds, median and quartiles of the ratios to the base."""
    for job in (base, *jobs.values()):
        job()
    times: dict[str, list[float]] = {name: [] for name in ("base", *jobs)}
    for _ in range(rounds):
        for name, job in (("base", base), *jobs.items()):
            begin = time.process_time()
            job()
            times[name].append(time.process_time() - begin)
    lines = []
    for name in jobs:
        ratios = sorted(t / b for t, b in zip(times[name], times["base"], strict=True))
        low, middle, high = (ratios[int(q * (len(ratios) - 1))] for q in (0.25, 0.5, 0.75))
        lines.append(
            f"| {name} | {statistics.median(times['base']):.3f} | {statistics.median(times[name]):.3f} "
            f"| {middle:.2f} ({low:.2f}-{high:.2f}) |"
        )
    return lines


def child(code: str) -> tuple[float, float]:
    """Run code in a new process; return (CPU seconds, peak memory in MB by VmHWM)."""
    script = f"{code}\nimport sys\nprint([l for l in open('/proc/self/status') if 'VmHWM' in l][0], file=sys.stderr)"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, int(done.stderr.split()[-2]) / 1024


def engine_table(folder: Path, rows: int, rounds: int) -> None:
    """Print the engine against the read of the same columns."""
    path = make(folder, rows, "parquet")
    source = open_source(path)
    print(f"\n### {rows:,} rows of Parquet, CPU seconds\n")
    print("| job | read | job | ratio (quartiles) |\n|---|---|---|---|")
    cells, race = reading(*GROUPS), reading("race")
    jobs: dict[str, Callable[[], object]] = {
        "counts, 60 cells, one pass": lambda: scan(source, cells, threads=1, exact=False, losses=False),
        "counts and losses, 60 cells, one pass": lambda: scan(source, cells, threads=1, exact=False),
        "whole audit by race, sex, age, one pass": lambda: audit(
            path, cells, Settings(exact=False, threads=1)
        ),
        "whole audit by race, sex, age, exact": lambda: audit(path, cells, Settings(threads=1)),
    }
    print("\n".join(paired(lambda: read_parquet(path, USED), jobs, rounds)))
    few: dict[str, Callable[[], object]] = {
        "counts by race, one pass": lambda: scan(source, race, threads=1, exact=False, losses=False),
        "exact KS, 5 groups, all pairs": lambda: exact_ks(path),
        "whole audit by race, exact": lambda: audit(path, race, Settings(threads=1)),
    }
    print("\n".join(paired(lambda: read_parquet(path, ("race", "label", "score")), few, rounds)))
    arguments = ["audit", str(path), "--protected", "race", "--format", "json", "--no-config"]
    _, base = child("import numpy, pyarrow.parquet")
    for name, extra in (("exact", []), ("one pass", ["--one-pass"])):
        _, peak = child(f"from fairfix.cli import run; run({[*arguments, *extra]!r})")
        print(f"\nPeak memory of `fairfix audit`, {name}: {peak:.0f} MB (imports alone: {base:.0f} MB).")
    walls = [wall_of(path, n) for _ in range(3) for n in (1, 2)]
    ratio = statistics.median(walls[::2]) / statistics.median(walls[1::2])
    print(f"\nWall time of the counts, 1 thread / 2 threads: {ratio:.2f}")
    path.unlink()


def exact_ks(path: Path) -> None:
    """Count and compute every KS distance exactly, without intervals or other metrics."""
    from fairfix.distributions import View, candidate_bins, distances
    from fairfix.engine import collect

    source, race = open_source(path), reading("race")
    found = scan(source, race, threads=1, losses=False)
    view = View(np.arange(len(found.counts.cells)), len(found.counts.cells))
    bins = candidate_bins(found.counts, view)
    assert found.counts.grid is not None
    if found.kept is None:
        rows = collect(source, race, found.counts, bins, threads=1)
    else:
        rows = found.kept.take(bins[found.counts.grid.index(found.kept.score)])
    distances(found.counts, view, rows.by_score())


def wall_of(path: Path, threads: int) -> float:
    """Return the wall time of the counts."""
    begin = time.perf_counter()
    scan(open_source(path), reading(*GROUPS), threads=threads, exact=False, losses=False)
    return time.perf_counter() - begin


def csv_table(folder: Path, rows: int, rounds: int) -> None:
    """Print the engine against the stream of a CSV file."""
    path = make(folder, rows, "csv")
    source = open_source(path)
    print(f"\n### {rows:,} rows of CSV, CPU seconds\n")
    print("| job | read | job | ratio (quartiles) |\n|---|---|---|---|")
    job = {
        "counts, 60 cells, one pass": lambda: scan(
            source, reading(*GROUPS), threads=1, exact=False, losses=False
        )
    }
    print("\n".join(paired(lambda: read_csv(path), job, rounds)))
    path.unlink()


def peer_table(folder: Path, rows: int, rounds: int) -> None:
    """Print whole audits against Fairlearn's MetricFrame, which computes four metrics and no interval."""
    try:
        from fairlearn.metrics import MetricFrame, false_positive_rate, selection_rate, true_positive_rate
        from sklearn.metrics import accuracy_score
    except ImportError:
        print("\nFairlearn is not installed: no comparison.")
        return
    path = make(folder, rows, "parquet")
    frame = pq.read_table(path, columns=list(USED)).to_pandas()
    decision = (frame["score"] >= 0.5).astype(int)
    metrics = {
        "selection_rate": selection_rate,
        "tpr": true_positive_rate,
        "fpr": false_positive_rate,
        "accuracy": accuracy_score,
    }

    def theirs() -> None:
        found = MetricFrame(
            metrics=metrics, y_true=frame["label"], y_pred=decision, sensitive_features=frame[["race", "sex"]]
        )
        found.difference()

    columns = Columns(("race", "sex"), label="label", score="score")
    rules = Reading(columns, thresholds=(0.5,))
    print(
        f"\n### {rows:,} rows, race x sex: Fairlearn's MetricFrame (4 metrics, no interval, reading not counted)\n"
    )
    print("| job | job | Fairlearn | Fairlearn / job (quartiles) |\n|---|---|---|---|")
    jobs: dict[str, Callable[[], object]] = {
        "whole audit of the file, one pass": lambda: audit(
            path, rules, Settings(exact=False, intersect=True, threads=1)
        ),
        "whole audit of the file, exact": lambda: audit(path, rules, Settings(intersect=True, threads=1)),
        "counts of the file": lambda: scan(open_source(path), rules, exact=False, losses=False, threads=1),
    }
    for name, job in jobs.items():
        print(paired(job, {name: theirs}, rounds)[0])
    path.unlink()


def start_up(folder: Path, rounds: int) -> None:
    """Print whole commands as processes, in alternating rounds."""
    path = make(folder, 10_000, "parquet")
    cli = "from fairfix.cli import run; run({})"
    audit_race = ["audit", str(path), "--protected", "race", "--no-config"]
    cells = ["audit", str(path), "--protected", "race,sex,age", "--intersect", "--no-config"]
    jobs = {
        "fairfix --help": cli.format(["--help"]),
        "fairfix audit, 10,000 rows, race": cli.format(audit_race),
        "fairfix audit, 10,000 rows, 60 cells": cli.format(cells),
    }
    peer = "import fairlearn.metrics"
    try:
        child(peer)
    except subprocess.CalledProcessError:
        peer = "import sklearn.metrics"
    times: dict[str, list[float]] = {name: [] for name in (*jobs, peer)}
    for _ in range(rounds):
        for name, code in (*jobs.items(), (peer, peer)):
            times[name].append(child(code)[0])
    print(
        f"\n### Whole commands, CPU seconds, beside `{peer}`\n\n| command | seconds | ratio |\n|---|---|---|"
    )
    base = statistics.median(times[peer])
    for name, found in times.items():
        print(f"| `{name}` | {statistics.median(found):.2f} | {statistics.median(found) / base:.2f} |")


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="also 10 million rows")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    print("## Audit engine")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for rows in (100_000, 1_000_000, *([10_000_000] if given.large else [])):
            engine_table(folder, rows, 3 if rows > 1_000_000 else given.rounds)
        csv_table(folder, 1_000_000, 3)
        for rows in (100_000, 1_000_000):
            peer_table(folder, rows, 2)
        start_up(folder, 5)


if __name__ == "__main__":
    main()
