"""Reading makes nothing: whatever is named as data, and whether it is there, the files are the same afterwards."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import fairfix
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import Call
from tests.data import scored

LIBRARY: Any = fairfix
MAKING = {
    "os.mkdir",
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.chmod",
}
"""What Python announces of changes beside opened files."""

WATCHED: list[list[str]] = []
"""Where the hook writes, which can never be taken away."""


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not WATCHED:
        return
    if event == "open":
        path, _, flags = arguments
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) if isinstance(flags, int) else 0
        named = isinstance(path, str | bytes) and not (flags or 0) & getattr(os, "O_TMPFILE", 0)
        if (
            writes
            and named
            and "__pycache__" not in os.fsdecode(path)
            and not os.fsdecode(path).startswith("/dev/")
        ):
            WATCHED[-1].append(f"open {os.fsdecode(path)}")
    else:
        first = str(arguments[0]) if arguments else ""
        opens = event == "sqlite3.connect" and "mode=ro" not in first
        if opens or (event in MAKING and "__pycache__" not in first):
            WATCHED[-1].append(f"{event} {first}")


sys.addaudithook(_hook)


@contextmanager
def watched() -> Iterator[list[str]]:
    """Yield what this process does to files while the block runs."""
    changes: list[str] = []
    WATCHED.append(changes)
    try:
        yield changes
    finally:
        WATCHED.pop()


def tree(*folders: Path) -> dict[str, Any]:
    """Return all files and folders with what they hold; of the root of the disk the names alone."""
    out: dict[str, Any] = {"/": sorted(Path("/").iterdir())}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            out[str(path)] = path.read_bytes() if path.is_file() else None
    return out


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the same rows in every kind of file, with counts, results and a repair."""
    folder = tmp_path_factory.mktemp("house")
    rows = scored(rows=300)
    rows = rows.append_column("id", pa.array([f"n{i}" for i in range(300)]))
    pq.write_table(rows, folder / "d.parquet")
    rows.to_pandas().to_csv(folder / "d.csv", index=False)
    (folder / "many").mkdir()
    pq.write_table(rows, folder / "many" / "1.parquet")
    (folder / "none").mkdir()
    with duckdb.connect(str(folder / "d.duckdb")) as base:
        base.execute(f"CREATE TABLE t AS FROM read_parquet('{folder / 'd.parquet'}')")
    for name, mode in (("house_rows.sqlite", "delete"), ("house_log.sqlite", "wal")):
        with sqlite3.connect(folder / name) as made:
            made.execute(f"PRAGMA journal_mode={mode}")
            made.execute(
                "CREATE TABLE t(race TEXT, label INTEGER, score REAL, weight REAL, x REAL, job TEXT, id TEXT)"
            )
            made.executemany(
                "INSERT INTO t VALUES(?,?,?,?,?,?,?)", [tuple(row.values()) for row in rows.to_pylist()]
            )
        made.close()
    (folder / "house_wrong.sqlite").write_bytes(b"no database" * 100)
    (folder / "house_empty.sqlite").write_bytes(b"")
    (folder / "wrong.duckdb").write_bytes(b"no database" * 100)
    asked: dict[str, Any] = {"protected": "race", "label": "label", "score": "score"}
    LIBRARY.count(str(folder / "d.parquet"), **asked).save(folder / "d.counts")
    result = LIBRARY.audit(str(folder / "d.parquet"), **asked)
    (folder / "d.json").write_text(result.to_json())
    LIBRARY.repair(str(folder / "d.parquet"), method="ramp", **asked).repaired.save(folder / "d.fairfix")
    return folder


SOUND = (
    "d.parquet",
    "d.csv",
    "many",
    "duckdb:///d.duckdb#t",
    "sqlite:///house_rows.sqlite#t",
    "sqlite:///house_log.sqlite#t",
)
ABSENT = (
    "absent.parquet", "absent.csv", "absent/", "none", "none/*.csv", "absent.fairfix", "file:///absent.csv",
    "sqlite:///house_absent.sqlite#t", "sqlite:////house_absent.sqlite#t", "sqlite://house_absent.sqlite#t", "sqlite:///none/a.sqlite#t",
    "sqlite:///none#t", "sqlite:///absent/a.sqlite#t", "sqlite:///:memory:#t", "sqlite://#t", "sqlite:///#t",
    "sqlite:///house_absent.sqlite?mode=rwc#t", "sqlite:///house_rows.sqlite#absent", "sqlite:///house_empty.sqlite#t",
    "sqlite:///house_wrong.sqlite#t", "duckdb:///absent.duckdb#t", "duckdb:////absent.duckdb#t", "duckdb://absent.duckdb#t",
    "duckdb:///:memory:#t", "duckdb://#t", "duckdb:///absent/a.duckdb#t", "duckdb:///none#t",
    "duckdb:///wrong.duckdb#t", "duckdb:///d.duckdb#absent", "duckdb:///absent.duckdb?access_mode=READ_WRITE#t",
    "duckdb:///d.duckdb?access_mode=READ_WRITE#t",
)  # fmt: skip
COLUMNS = ("--protected", "race", "--label", "label", "--score", "score")


def commands(data: str) -> Iterator[Sequence[str]]:
    """Yield commands that read what is named, in every place for rows and results."""
    audit = ("audit", "d.parquet", *COLUMNS)
    yield ("audit", data, *COLUMNS)
    yield ("audit", data)
    yield ("repair", data, "--method", "ramp", "--holdout", data, "-o", "absent/r.fairfix")
    yield ("audit", data, *COLUMNS, "--dry-run")
    yield ("compare", data, *COLUMNS, "--methods", "ramp")
    yield ("predict", "d.fairfix", data)
    yield ("predict", data, "d.parquet")
    yield ("inspect", data)
    yield ("report", data)
    yield ("audit", data)
    yield (*audit, "--baseline", data)
    yield (*audit, "--baseline", data, "--id", "id")
    yield (*audit, "--noise", data)
    yield ("compare", "d.parquet", *COLUMNS, "--baseline", data, "--id", "id")
    for option in ("--unlabelled", "--similar"):
        yield ("compare", "d.parquet", *COLUMNS, "--methods", "ramp", option, data)


@pytest.mark.slow(every=True)
@pytest.mark.parametrize("data", [*SOUND, *ABSENT, "d.counts", "d.json", "d.fairfix"])
def test_no_command_that_reads_makes_anything(
    data: str, house: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what it reads nor what stands beside it changes; what is not there is an error that names it."""
    monkeypatch.chdir(house)
    before = tree(house)
    for line in commands(data):
        with watched() as changes:
            status, _, err = call(*line)
        assert tree(house) == before, line
        assert changes == [], line
        assert status in (0, 1, 2, 3), (line, err)
        if data in ABSENT and line[1] == data and "access_mode" not in data:
            shown = "--dry-run" in line and not data.startswith(
                ("sqlite", "duckdb")
            )  # settings, and no file is read
            assert status == (0 if shown else 2), line
    if data in SOUND:
        assert call("audit", data, *COLUMNS)[0] == 0


def test_a_file_of_sqlite_is_found_as_one_of_duckdb_is(
    house: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After three slashes from here, after four from the root; one that is not there is named."""
    monkeypatch.chdir(house)
    numbers = []
    for url in ("sqlite:///house_rows.sqlite#t", f"sqlite:///{house}/house_rows.sqlite#t", "d.parquet"):
        out = call.ran("audit", url, *COLUMNS, "--format", "json")
        numbers.append(out[out.index('"overall"') : out.index('"definitions"')])
    assert numbers[0] == numbers[1]
    err = call.refused("audit", "sqlite:///house_absent.sqlite#t", *COLUMNS)
    assert "house_absent.sqlite" in err


def test_a_log_that_nobody_writes_is_not_taken_in(house: Path, tmp_path: Path, call: Call) -> None:
    """Reading it would make files; so it is refused with what to type."""
    path = tmp_path / "a.sqlite"
    with sqlite3.connect(path) as base:
        base.execute("PRAGMA journal_mode=wal")
        base.execute("CREATE TABLE t(a)")
        base.commit()
        for end in ("", "-wal"):
            (tmp_path / f"b.sqlite{end}").write_bytes((tmp_path / f"a.sqlite{end}").read_bytes())
    base.close()
    before = tree(tmp_path)
    err = call.refused("audit", f"sqlite:///{tmp_path}/b.sqlite#t", "--protected", "a")
    assert "wal_checkpoint" in err
    assert tree(tmp_path) == before
