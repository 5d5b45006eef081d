"""Push-down: an audit of a DuckDB table against DuckDB's own GROUP BY of the same columns, and against Parquet.

    python benchmarks/databases.py [ROWS] [POSTGRESQL_URL]

Makes ROWS rows (10 million if none are given) of 60 cells in a temporary folder, as a Parquet file and as a table of
DuckDB; where a URL is given, as a table of PostgreSQL too. Every way runs in a process of its own; printed are its CPU
seconds and the most memory it held, in MB, those of DuckDB inside it included.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROWS = 10_000_000

MAKE = """
SELECT ['a', 'b', 'c', 'd', 'e', 'f'][1 + (hash(i) % 6)::INT] AS race, hash(i + 1) % 2 = 0 AS member,
    ['u', 'v', 'w', 'x', 'y'][1 + (hash(i + 2) % 5)::INT] AS town,
    (hash(i + 4) / 18446744073709551615.0 < hash(i + 3) / 18446744073709551615.0)::TINYINT AS label,
    hash(i + 3) / 18446744073709551615.0::DOUBLE AS score
FROM range({rows}) AS t(i)
"""

PLAIN = """
SELECT race, member, town, label, floor(score * 16384)::BIGINT AS bin, count(*) AS n FROM loans GROUP BY ALL
"""
"""The rows per cell, label and bin that the audit counts, as anybody would write it."""


def run(way: str, where: str) -> None:
    """Do one thing, and print its CPU seconds, its memory and what it found."""
    before, content = usage(), {}
    if way == "GROUP BY":
        import duckdb

        with duckdb.connect(where, read_only=True, config={"memory_limit": "200MB"}) as connection:
            for _ in connection.sql(PLAIN).to_arrow_reader(65_536):
                pass
    elif way != "imports":
        import fairfix

        content = fairfix.audit(where, protected=("race", "member"), strata="town", intersect=True).to_dict()
        content["data"]["source"] = ""
    else:
        import fairfix
        import ibis
        from fairfix.data import database

        assert fairfix
        assert database
        ibis.duckdb.connect()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps({"cpu": usage() - before, "memory": peak, "content": content}))


def usage() -> float:
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime


def main(rows: int, postgresql: str) -> None:
    import duckdb

    with tempfile.TemporaryDirectory() as folder:
        path, base = Path(folder, "loans.parquet"), Path(folder, "loans.duckdb")
        with duckdb.connect(str(base), config={"memory_limit": "2GB"}) as connection:
            connection.execute(f"CREATE TABLE loans AS {MAKE.format(rows=rows)}")
            connection.execute(f"COPY loans TO '{path}' (FORMAT parquet)")
        url = f"duckdb:///{base}?memory_limit=200MB#loans"
        ways = {"imports": "", "GROUP BY": str(base), "DuckDB": url, "Parquet": str(path)}
        if postgresql:
            ways["PostgreSQL"] = f"{postgresql}#loans"
        for way, where in ways.items():
            done = subprocess.run(
                [sys.executable, __file__, way, where], capture_output=True, check=True, text=True
            )
            out = json.loads(done.stdout)
            print(f"{way:12} {out['cpu']:8.1f} s CPU {out['memory']:6} MB", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 2 and not sys.argv[1].isdecimal():
        run(*sys.argv[1:])
    else:
        main(int(sys.argv[1]) if sys.argv[1:] else ROWS, sys.argv[2] if sys.argv[2:] else "")
