"""One question to every engine: files, data frames in memory, lazy frames, databases and clusters.

``python benchmarks/frames.py [--rows 1000000] [--without spark ...]`` writes Markdown: processor time and memory of an
audit with exact distances, beside those of the engine's own plain group-by of the same columns, and whether the report
is that of the Parquet file; then those of predictions that are written to a Parquet file. Every run is a process of its
own. Figures begin when the data is open, and include all processes that the run started, such as Spark's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from scale import below, fill, make, postmaster, times_of  # noqa: E402  found by the line above

KEYS = ("race", "sex", "age", "label")
BINS = 16_384
ENGINES = {
    "parquet": "Parquet file",
    "pandas": "pandas",
    "polars": "Polars, lazy",
    "duckdb": "DuckDB relation",
    "postgresql": "PostgreSQL",
    "dask": "Dask",
    "spark": "Spark",
}
"""Short name -> title of a row."""


def opened(engine: str, folder: Path, url: str) -> Any:
    """Return the rows in an engine."""
    parts = f"{folder}/parts/*.parquet"
    if engine == "pandas":
        import pandas as pd

        return pd.read_parquet(folder / "parts")
    if engine == "polars":
        import polars as pl

        return pl.scan_parquet(parts)
    if engine == "duckdb":
        import duckdb

        return duckdb.read_parquet(parts)
    if engine == "dask":
        import dask.dataframe as dd

        return dd.read_parquet(parts)
    if engine == "spark":
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        session = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        return session.read.parquet(f"{folder}/parts")
    return url if engine == "postgresql" else f"{folder}/parts"


def grouped(engine: str, data: Any) -> int:
    """Count the rows per cell, label and bin, as a user of the engine would write it; return how many there are."""
    if engine in ("pandas", "dask"):
        from operator import methodcaller

        binned = data[[*KEYS, "score"]].assign(bin=(data.score * BINS).astype("int64"))
        sizes = binned.groupby([*KEYS, "bin"], observed=True).size()
        return len(methodcaller("compute")(sizes) if engine == "dask" else sizes)
    if engine == "polars":
        import polars as pl

        binned = data.select(*KEYS, bin=(pl.col("score") * BINS).floor().cast(pl.Int64))
        return int(binned.group_by(*KEYS, "bin").agg(pl.len()).collect(engine="streaming").height)
    if engine == "spark":
        from pyspark.sql import functions as f

        binned = data.select(*KEYS, f.floor(data.score * BINS).alias("bin"))
        return int(binned.groupBy(*KEYS, "bin").count().toArrow().num_rows)
    keys = ", ".join(KEYS)
    chosen = f"SELECT {keys}, CAST(floor(score * {BINS}) AS BIGINT) AS bin, count(*) AS n"
    if engine == "postgresql":
        import psycopg

        with psycopg.connect(data.removesuffix("#loans")) as connection:
            return len(connection.execute(f"{chosen} FROM loans GROUP BY {keys}, bin").fetchall())
    import duckdb

    loans = data if engine == "duckdb" else duckdb.read_parquet(f"{data}/*.parquet")
    return len(loans.query("loans", f"{chosen} FROM loans GROUP BY ALL").fetchall())


def decide(engine: str, data: Any, folder: Path) -> None:
    """Write the rows with drawn decisions to a Parquet file, as a user of the engine would."""
    import fairfix
    import pyarrow.parquet as pq

    target = str(folder / f"{engine}-decided.parquet")
    out = fairfix.load(str(folder / "repaired.fairfix")).predict(data, duplicates="share")
    if engine == "polars":
        getattr(out, "sink_parquet" if hasattr(out, "sink_parquet") else "write_parquet")(target)
    elif engine == "spark":
        out.write.parquet(target)
    elif engine == "parquet":
        pq.write_table(out, target)
    else:
        getattr(out, "write_parquet" if engine == "duckdb" else "to_parquet")(target)


def work(engine: str, what: str, folder: str, url: str) -> None:
    """Audit or group the rows, and print the report, the processor time and the peak of the memory."""
    import fairfix
    import fairfix.tasks.audit

    data = opened(engine, Path(folder), url)
    before = spent()
    report: Any = None
    if what == "audit":
        report = fairfix.audit(data, protected=("race", "sex", "age"), intersect=True).to_dict()
    elif what == "group":
        grouped(engine, data)
    else:
        decide(engine, data.collect() if what == "collected" else data, Path(folder))
    status = [Path(f"/proc/{one}/status").read_text() for one in below(os.getpid())]
    peaks = [int(text.partition("VmHWM:")[2].split()[0]) / 1024 for text in status if "VmHWM" in text]
    print(json.dumps({"cpu": spent() - before, "memory": sum(peaks), "report": report}), flush=True)


def spent() -> float:
    """Return the seconds of the processor of this process and of those that it started."""
    return sum(map(times_of, below(os.getpid())))


def measured(engine: str, what: str, folder: str, url: str, server: int | None) -> dict[str, Any]:
    """Return what a run in a process of its own prints; a server's time is part of it."""
    served = sum(map(times_of, below(server))) if server else 0.0
    command = [sys.executable, __file__, "do", engine, what, folder, url]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    out: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    out["server"] = (sum(map(times_of, below(server))) if server else 0.0) - served
    return out


def main(rows: int, without: set[str]) -> Iterator[str]:
    """Yield the lines of the page."""
    from tests.databases import differences, postgresql, without_source

    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), rows)
        has_server = "postgresql" not in without
        with postgresql() if has_server else nullcontext("") as url:
            if has_server:
                fill(Path(folder), url)
            yield "## Engines"
            yield ""
            yield f"{rows:,} rows, 60 intersections, exact distances. Figures begin when the data is open."
            yield ""
            yield "| rows in | audit, CPU s | MB | own group-by, CPU s | MB | report |"
            yield "|---|---:|---:|---:|---:|---|"
            first: dict[str, Any] = {}
            for engine, title in ENGINES.items():
                if engine in without:
                    continue
                server = postmaster(url) if engine == "postgresql" else None
                audit, group = (
                    measured(engine, what, folder, f"{url}#loans", server) for what in ("audit", "group")
                )
                report = without_source(audit["report"])
                first = first or report
                wrong = differences(first, report)
                said = f"**{len(wrong)} numbers differ**" if wrong else "equal"
                cells = [
                    f"{one['cpu']:.1f}{' + ' + format(one['server'], '.1f') + ' server' if server else ''} | "
                    f"{one['memory']:.0f}"
                    for one in (audit, group)
                ]
                yield f"| {title} | {' | '.join(cells)} | {said} |"
            yield ""
            yield from predictions(folder, without)


def predictions(folder: str, without: set[str]) -> Iterator[str]:
    """Yield the lines of the table of predictions."""
    import fairfix
    import pyarrow.dataset as ds

    some = ds.dataset(f"{folder}/parts").head(20_000)
    asked: Any = {"protected": "race", "method": "ramp", "gamma": 0.2, "id": "x0", "duplicates": "share"}
    fairfix.repair(some, **asked, output=f"{folder}/repaired.fairfix")
    yield "| rows in | predict and write Parquet, CPU s | MB |"
    yield "|---|---:|---:|"
    runs = [(engine, title, "predict") for engine, title in ENGINES.items() if engine != "postgresql"]
    for engine, title, what in [*runs, ("polars", "Polars, collected first", "collected")]:
        if engine not in without:
            one = measured(engine, what, folder, "", None)
            yield f"| {title} | {one['cpu']:.1f} | {one['memory']:.0f} |"


if __name__ == "__main__":
    if sys.argv[1:2] == ["do"]:
        work(*sys.argv[2:])
    else:
        parser = argparse.ArgumentParser(description=__doc__)
        parser.add_argument("--rows", type=int, default=1_000_000)
        parser.add_argument("--without", nargs="*", default=[])
        asked = parser.parse_args()
        for line in main(asked.rows, set(asked.without)):
            print(line, flush=True)
