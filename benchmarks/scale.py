"""One question wherever the rows lie: Parquet here, by workers, in a store, in DuckDB, in PostgreSQL, as counts.

``python benchmarks/scale.py [--rows 10000000] [--without postgresql ...] [--out FILE.md]`` writes Markdown: processor
time and memory of fairfix's own processes, processor time of the server that has the rows, bytes over the network
(loopback), and whether the report is that of Parquet. Every way is the command a user types, in a process of its own;
data are made in another one, since a process is told the peak of whoever started it. The last table carries what was
measured on to 10^12 rows.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

ASKED = ("--protected", "race,sex,age", "--config", "none", "--quiet")
SHOWN = ("--intersect", "--config", "none", "--quiet", "--format", "json")
"""Of 5 x 2 x 6 groups, which are 60 cells."""

FILES = 10
"""Parquet files that the rows are in."""

PLAIN = (
    "SELECT race, sex, age, label, floor(score * 16384)::BIGINT AS bin, count(*) AS n FROM loans GROUP BY ALL"
)
"""The rows per cell, label and bin that an audit counts, as anybody would write it."""

TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cost:
    """What a run took."""

    cpu: float
    """Seconds of the processor, of the process and those it started."""
    wall: float
    memory: float
    """MB at the most, of the process itself."""
    server: float
    """Seconds of the processor, of the server that has the rows."""
    moved: float
    """MB over the network."""
    report: str
    """Whether it is that of Parquet."""


def make(folder: Path, rows: int) -> None:
    """Write the rows as Parquet files, as a table of DuckDB and as a CSV file for PostgreSQL."""
    import duckdb
    import pyarrow.parquet as pq

    from engine import chunks

    (folder / "parts").mkdir()
    for i, table in enumerate(chunks(rows)):
        pq.write_table(table, folder / "parts" / f"{i:04}.parquet")
    with duckdb.connect(str(folder / "loans.duckdb"), config={"memory_limit": "2GB"}) as connection:
        connection.execute(f"CREATE TABLE loans AS FROM '{folder}/parts/*.parquet'")
        kept = "SELECT race, sex, age, label, score FROM loans"
        connection.execute(f"COPY ({kept}) TO '{folder}/loans.csv' (HEADER false)")


def fill(folder: Path, url: str) -> None:
    """Load the rows into PostgreSQL."""
    import psycopg

    columns = "race text, sex text, age text, label bigint, score double precision"
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE loans ({columns})")
        with (
            cursor.copy("COPY loans FROM STDIN (FORMAT csv)") as copy,
            (folder / "loans.csv").open("rb") as file,
        ):
            while block := file.read(1 << 20):
                copy.write(block)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE loans")


def upload(folder: Path, bucket: str) -> None:
    """Write the Parquet files to a store."""
    from pyarrow import fs

    store = fs.S3FileSystem(endpoint_override=os.environ["AWS_ENDPOINT_URL"], allow_bucket_creation=True)
    path = bucket.partition("://")[2]
    store.create_dir(path)
    fs.copy_files(str(folder / "parts"), path, destination_filesystem=store)


def group(base: str) -> None:
    """Let DuckDB count, as anybody would."""
    import duckdb

    with duckdb.connect(base, read_only=True, config={"memory_limit": "200MB", "threads": 2}) as connection:
        for _ in connection.sql(PLAIN).to_arrow_reader(65_536):
            pass


def times_of(process: int) -> float:
    """Return the seconds of the processor of a process and of those it has seen end."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / TICK


def below(process: int) -> list[int]:
    """Return a process and all that it started."""
    tasks = Path(f"/proc/{process}/task").glob("*/children")  # each thread has those that it started
    children = [child for task in tasks for child in task.read_text().split()]
    return [process, *(one for child in children for one in below(int(child)))]


def watched(process: int, memory: list[float], over: Event) -> None:
    """Keep the peak of a process in MB; what the system counts of a child that has ended begins with its parent's."""
    while not over.wait(0.02):
        try:
            lines = Path(f"/proc/{process}/status").read_text().splitlines()
        except OSError:
            return
        memory += [int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")]
        memory[:] = [max(memory)]


def moved() -> int:
    """Return how many bytes have come by loopback."""
    line = next(line for line in Path("/proc/net/dev").read_text().splitlines() if "lo:" in line)
    return int(line.split(":")[1].split()[0])


def measured(
    command: list[str],
    server: int | None,
    settings: Mapping[str, str],
    first: dict[str, object],
    counts: Path | None = None,
) -> Cost:
    """Run a command; ``first`` holds the report that others are held against, by how it was asked.

    ``counts`` is the file of counts that the command writes, of which the report is made afterwards.
    """
    before, began = moved(), time.monotonic()
    served = sum(map(times_of, below(server))) if server else 0.0
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1", **settings}
    ) as process:
        assert process.stdout is not None
        memory, over = [0.0], Event()
        watch = Thread(target=watched, args=(process.pid, memory, over))
        watch.start()
        text = process.stdout.read()
        over.set()
        watch.join()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    time.sleep(0.5)  # until a server's process has seen its child end
    now = sum(map(times_of, below(server))) if server else 0.0
    return Cost(
        usage.ru_utime + usage.ru_stime,
        time.monotonic() - began - 0.5,
        memory[0],
        now - served,
        (moved() - before) / 1e6,
        judged(reported(counts) if counts else text, "counts" if counts else "exact", first),
    )


def reported(counts: Path) -> str:
    """Return the report of a file of counts."""
    command = [sys.executable, "-m", "fairfix", "audit", str(counts), *SHOWN]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def judged(text: str, key: str, first: dict[str, object]) -> str:
    """Return how a report compares with the first one to the same question."""
    from tests.databases import differences, without_source

    if not text:
        return ""
    report = without_source(json.loads(text))
    report["data"].pop("columns", None)
    reference = first.setdefault(key, report)
    if reference is report or json.dumps(reference) == json.dumps(report):
        return "same bytes"
    return (
        ""
        if (wrong := differences(reference, report)) and print(wrong[:5])
        else ("integers equal, others to 1e-9" if not wrong else f"**{len(wrong)} numbers differ**")
    )


@contextmanager
def servers(folder: Path, without: set[str]) -> Iterator[dict[str, tuple[str, int, dict[str, str]]]]:
    """Yield name -> (URL, process, environment) of the servers that are there."""
    from tests.databases import postgresql
    from tests.stores import moto

    out: dict[str, tuple[str, int, dict[str, str]]] = {}
    with ExitStack() as stack:
        if "s3" not in without:
            url = stack.enter_context(moto())
            keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_ENDPOINT_URL": url}
            settings = {**keys, "AWS_REGION": "us-east-1"}
            child("upload", str(folder), "s3://bank/parts", settings)
            out["s3"] = ("s3://bank/parts", newest(), settings)
        if "dask" not in without:
            out["dask"] = stack.enter_context(cluster())
        if "postgresql" not in without:
            url = stack.enter_context(postgresql())
            child("fill", str(folder), url)
            out["postgresql"] = (f"{url}#loans", postmaster(url), {})
        yield out


@contextmanager
def cluster() -> Iterator[tuple[str, int, dict[str, str]]]:
    """Run a scheduler and two workers that have fairfix imported already, as those of a cluster in use have."""
    code = """
import sys
from distributed import Client, LocalCluster
if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        client.run(__import__, "fairfix.tasks.audit")
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
"""
    # workers are started anew, and read the code of a file
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cluster.py"
        file.write_text(code, encoding="utf-8")
        with subprocess.Popen(
            [sys.executable, str(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        ) as process:
            assert process.stdout is not None
            yield process.stdout.readline().strip(), process.pid, {}
            process.communicate()


def newest() -> int:
    """Return the process that this one started last."""
    return below(os.getpid())[-1]


def postmaster(url: str) -> int:
    """Return the process of a PostgreSQL server, which is the parent of the one that serves a connection."""
    import psycopg

    with psycopg.connect(url) as connection:
        status = Path(f"/proc/{connection.info.backend_pid}/status").read_text()
    return int(status.partition("PPid:")[2].split()[0])


def child(what: str, *given: str | dict[str, str]) -> None:
    """Do something in a process of its own."""
    words = [one for one in given if isinstance(one, str)]
    settings = {key: value for one in given if isinstance(one, dict) for key, value in one.items()}
    subprocess.run([sys.executable, __file__, "do", what, *words], check=True, env={**os.environ, **settings})


def main(rows: int, without: set[str]) -> Iterator[str]:
    """Yield the lines of the page."""
    first: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        child("make", name, str(rows))
        fairfix, counts = [sys.executable, "-m", "fairfix"], folder / "all.counts"
        base = f"duckdb:///{folder}/loans.duckdb?memory_limit=200MB&threads=2#loans"
        parts = f"{folder}/parts"
        with servers(folder, without) as there:
            ways: list[tuple[str, list[str], str]] = [
                ("Parquet, one thread", [parts, "--threads", "1"], ""),
                ("Parquet, two threads", [parts, "--threads", "2"], ""),
                ("Parquet, Dask with two workers", [parts, "--cluster", "local:2"], ""),
                ("Parquet, Dask with two workers that run already", [parts, "--cluster", ""], "dask"),
                ("Parquet in S3, two threads", ["", "--threads", "2"], "s3"),
                ("DuckDB", [base], ""),
                ("PostgreSQL", [""], "postgresql"),
            ]
            yield "## The same rows in many places"
            yield ""
            yield f"{rows:,} rows, 60 cells, {FILES} columns more that are not asked for."
            yield ""
            yield "| rows lie in | asked | CPU s of fairfix | of the server | wall s | memory, MB | MB moved | report |"
            yield "|---|---|---:|---:|---:|---:|---:|---|"
            for asked in ("exact", "counts"):
                for title, given, of in ways:
                    if of and of not in there:
                        continue
                    url, process, settings = there.get(of, ("", None, {}))
                    words = [one or url for one in given]
                    if asked == "exact":
                        command = [*fairfix, "audit", *words, *ASKED, *SHOWN[:1], *SHOWN[3:]]
                        cost = measured(command, process, settings, first)
                    else:
                        command = [*fairfix, "count", *words, *ASKED, "-o", str(counts)]
                        cost = measured(command, process, settings, first, counts)
                    yield (
                        f"| {title} | {asked} | {cost.cpu:.1f} | {cost.server:.1f} | {cost.wall:.1f} | "
                        f"{cost.memory:.0f} | {cost.moved:.1f} | {cost.report} |"
                    )
            plain = measured(
                [sys.executable, __file__, "do", "group", f"{folder}/loans.duckdb"], None, {}, first
            )
            figures = f"{plain.cpu:.1f} | | {plain.wall:.1f} | {plain.memory:.0f}"
            yield f"| DuckDB's own GROUP BY of these columns | | {figures} | | |"


if __name__ == "__main__":
    if sys.argv[1:2] == ["do"]:
        what, *given = sys.argv[2:]
        {
            "make": lambda folder, rows: make(Path(folder), int(rows)),
            "fill": lambda folder, url: fill(Path(folder), url),
            "upload": lambda folder, bucket: upload(Path(folder), bucket),
            "group": group,
        }[what](*given)
    else:
        parser = argparse.ArgumentParser(description=__doc__)
        parser.add_argument("--rows", type=int, default=10_000_000)
        parser.add_argument("--without", nargs="*", default=[])
        parser.add_argument("--out", type=Path)
        asked = parser.parse_args()
        lines = []
        for line in main(asked.rows, set(asked.without)):
            print(line, flush=True)
            lines.append(line)
        if asked.out:
            asked.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
