"""Start-up: processor time of whole processes, of this checkout beside an earlier commit.

``python benchmarks/startup.py [COMMIT ...]`` prints Markdown. The package of a commit is taken out of git into a
temporary folder. Runs alternate between the versions, so that the load of the machine falls on all of them.
"""

from __future__ import annotations

import io
import os
import statistics
import subprocess
import sys
import tarfile
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
    """Return milliseconds of user and system time of a process that runs the package in a folder."""
    before = getrusage(RUSAGE_CHILDREN)
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "",  # else every run would compile the package anew
    }
    subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, check=True)
    after = getrusage(RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def report(commits: list[str], folder: Path) -> Iterator[str]:
    """Yield the table."""
    rows = pq.read_table(ROOT / "sample_data" / "loans.parquet").slice(0, ROWS)
    for commit in (*commits, "HEAD"):
        command = ["git", "archive", commit, "fairfix"]
        packed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as file:
            file.extractall(folder / commit, filter="data")
        pq.write_table(rows, folder / commit / "data.parquet")
    times: dict[tuple[str, str], list[float]] = {}
    for i in range(ROUNDS + 1):
        for job, arguments in JOBS.items():
            for commit in (*commits, "HEAD"):
                value = cpu_ms(arguments, folder / commit)
                if i:  # the first writes the byte code
                    times.setdefault((job, commit), []).append(value)
    yield "## Start-up"
    yield (
        f"Milliseconds of processor time of whole processes, median of {ROUNDS}, audits of {ROWS:,} rows. "
        "An audit loads `scipy.special` for its quantiles, HTML `jinja2`."
    )
    cells = [
        [job, *(f"{statistics.median(times[job, commit]):.0f}" for commit in (*commits, "HEAD"))]
        for job in JOBS
    ]
    heading = ["process", *(f"at {commit}" for commit in commits), "now"]
    lines = [heading, ["---", *("---:" for _ in heading[1:])], *cells]
    yield "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        print("\n\n".join(report(sys.argv[1:], Path(name))))
