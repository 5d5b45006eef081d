"""Start-up: processor time of whole processes; ``python benchmarks/startup.py`` prints Markdown."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[1]
ROUNDS, ROWS = 15, 10_000
AUDIT = ("-m", "fairfix", "audit", "data.parquet", "--protected", "race", "--config", "none", "--format")
JOBS = {
    "`python -c 'import fairfix'`": ("-c", "import fairfix"),
    "`fairfix --version`": ("-m", "fairfix", "--version"),
    **{f"`fairfix audit --format {name}`": (*AUDIT, name) for name in ("json", "text", "html")},
}


def cpu_ms(arguments: tuple[str, ...], folder: Path) -> float:
    """Return milliseconds of user and system time of a process in a folder."""
    before = getrusage(RUSAGE_CHILDREN)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "",  # else every run would compile the package anew
    }
    subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, check=True)
    after = getrusage(RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def report(folder: Path) -> Iterator[str]:
    """Yield the table."""
    pq.write_table(
        pq.read_table(ROOT / "sample_data" / "loans.parquet").slice(0, ROWS), folder / "data.parquet"
    )
    times: dict[str, list[float]] = {job: [] for job in JOBS}
    for i in range(ROUNDS + 1):
        for job, arguments in JOBS.items():
            value = cpu_ms(arguments, folder)
            if i:  # the first writes the byte code
                times[job].append(value)
    yield "## Start-up"
    yield (
        f"Milliseconds of processor time of whole processes, median of {ROUNDS}, audits of {ROWS:,} rows. "
        "An audit loads `scipy.special` for its quantiles, HTML `jinja2`."
    )
    lines = [f"| {job} | {statistics.median(of):.0f} |" for job, of in times.items()]
    yield "\n".join(["| process | ms |", "| --- | ---: |", *lines])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        print("\n\n".join(report(Path(name))))
