"""Data from elsewhere is the data of this machine: same results, nothing of two versions, no secret, nothing half."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from fairfix import load
from fairfix.data import files as io
from fairfix.data import storage
from fairfix.data import web as web_
from fairfix.data.files import atomic_output, open_source
from fairfix.data.opening import paths_of
from fairfix.data.urls import name_of, shown_argument
from fairfix.errors import DataError

from tests import stores
from tests.conftest import Call, Frames, make_frame
from tests.data import columns_read
from tests.stores import Server

pytestmark = pytest.mark.slow

KEY, SECRET = "AKIAFAIRFIXKEY", "wJalrSECRETfairfix"
AUDIT = ("--protected", "race", "--config", "none")


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    """The URL of a store."""
    with stores.moto() as url:
        yield url


@pytest.fixture
def store(moto: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """What stands before the store, with an empty bucket ``loans`` in it, which pyarrow is led to."""
    for name in [name for name in os.environ if name.startswith("AWS_") or name.endswith("_proxy")]:
        monkeypatch.delenv(name)
    server = Server(stores.before(moto))
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    monkeypatch.setenv("STORE", moto.removeprefix("http://"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(storage, "SILENCE", 1.0)
    monkeypatch.setattr(web_, "PAUSE", 0.01)
    bucket().create_dir("loans")
    bucket().delete_dir_contents("loans")
    server.log.clear()
    yield server
    server.close()


def bucket() -> Any:
    """Return the store itself, past what stands before it."""
    endpoint = f"endpoint_override={os.environ['STORE']}&scheme=http&allow_bucket_creation=true"
    filesystem, _ = pa.fs.S3FileSystem.from_uri(f"s3://loans?{endpoint}")
    return filesystem


def put(name: str, content: bytes) -> None:
    """Put an object into the bucket."""
    with bucket().open_output_stream(f"loans/{name}", compression=None) as stream:
        stream.write(content)


def stored() -> dict[str, bytes]:
    """Return the objects of the bucket."""
    infos = bucket().get_file_info(pa.fs.FileSelector("loans", recursive=True))
    return {info.path: bucket().open_input_file(info.path).read() for info in infos if info.is_file}


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Server]]:
    """What starts a server of files."""
    monkeypatch.setattr(storage, "SILENCE", 0.5)
    monkeypatch.setattr(web_, "PAUSE", 0.01)
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    servers = []

    def start(contents: dict[str, bytes], **how: bool) -> Server:
        servers.append(Server(stores.files(contents, **how)))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def content_of(frame: pd.DataFrame, name: str, **how: Any) -> bytes:
    """Return rows as a file of the kind that a name says."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    if name.endswith(".parquet"):
        pq.write_table(table, out := pa.BufferOutputStream(), **how)
        return bytes(out.getvalue())
    if name.endswith(".arrow"):
        feather.write_feather(table, out := pa.BufferOutputStream(), chunksize=100)
        return bytes(out.getvalue())
    text = frame.to_csv(index=False).encode()
    return gzip.compress(text, mtime=0) if name.endswith(".gz") else text


# ---------------------------------------------------------------------- the same as here


@pytest.mark.parametrize("ending", ["parquet", "csv", "csv.gz", "arrow"])
def test_a_store_gives_the_report_of_this_machine(
    ending: str, store: Server, call: Call, frames: Frames, away: None
) -> None:
    """To the byte, by a pattern and by a folder; hidden files of a folder do not count, nor does what is no data."""
    Path("data").mkdir()
    for i in range(2):
        content = content_of(frames(300, i), f"{i}.{ending}")
        Path(f"data/{i}.{ending}").write_bytes(content)
        put(f"2024/data/{i}.{ending}", content)
    put(f"2024/data/_old.{ending}", b"")
    put(f"2024/data/.tmp/1.{ending}", b"")
    put("2024/data/readme.txt", b"")
    for here, there in (
        (f"data/[01].{ending}", f"s3://loans/2024/*/[01].{ending}"),
        ("data", "s3://loans/2024/data"),
    ):
        expected = call("audit", here, *AUDIT, "--format", "json")
        status, out, said = call("audit", there, *AUDIT, "--format", "json", "--verbose")
        assert (status, without_step(out)) == (expected[0], without_step(expected[1]))
        assert f"bytes from s3://loans/2024/data/0.{ending}" in said


def without_step(out: str) -> str:
    """Return a result without its next step, which names the data as the command did."""
    content = json.loads(out)
    assert content.pop("next_step")["command"]
    return json.dumps(content)


def test_a_folder_of_predictions_has_no_query_in_its_names(
    web: Callable[..., Server], tmp_path: Path, frames: Frames, call: Call
) -> None:
    """A signed URL has its signature there, which must not become the name of a file."""
    rows, rule = str(tmp_path / "new.csv"), str(tmp_path / "r.fairfix")
    frames(300).to_csv(rows, index=False)
    call("repair", rows, "--method", "ramp", "--protected", "race", "-o", rule, "--config", "none")
    url = f"{web({'/a/new.csv': Path(rows).read_bytes()}).url}/a/new.csv?sig=s3cret&name=x.csv"
    call.ran("predict", rule, url, "-o", f"{tmp_path}/out/")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["new.csv"]


def test_a_folder_of_a_store_keeps_its_query_at_the_end(
    store: Server, away: None, call: Call, frames: Frames
) -> None:
    """Settings of a store stand behind the path, and are no part of the names of the files."""
    frames(300).to_parquet("loans.parquet")
    call("repair", "loans.parquet", *AUDIT, "--method", "ramp", "-o", "r.fairfix")
    call.ran("predict", "r.fairfix", "loans.parquet", "-o", "s3://loans/out/?region=us-east-1")
    assert "loans/out/loans.parquet" in stored()


def test_a_process_predicts_from_store_to_store(
    store: Server, away: None, call: Call, frames: Frames
) -> None:
    """With a repair from the store; what is written is that of this machine, packed once, and the process ends."""
    Path("loans.parquet").write_bytes(content_of(frames(600), "loans.parquet"))
    put("loans.parquet", Path("loans.parquet").read_bytes())
    repair = (*AUDIT, "--method", "ramp", "--format", "json", "-o")
    there = call("repair", "s3://loans/loans.parquet", *repair, "s3://loans/r.fairfix")
    here = call("repair", "loans.parquet", *repair, "r.fairfix")
    assert (there[0], without_step(there[1])) == (here[0], without_step(here[1]))
    assert stored()["loans/r.fairfix"] == Path("r.fairfix").read_bytes()
    call("predict", "r.fairfix", "loans.parquet", "-o", "p.csv.gz", "--config", "none")

    line = ["predict", "s3://loans/r.fairfix", "s3://loans/loans.parquet", "-o", "s3://loans/out/p.csv.gz"]
    done = subprocess.run(
        [sys.executable, "-m", "fairfix", *line, "--config", "none", "--verbose"],
        env={**os.environ, "PYTHONPATH": str(Path(io.__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "bytes from s3://loans/loans.parquet" in done.stderr
    assert "wrote 600 rows to s3://loans/out/p.csv.gz" in done.stderr
    assert stored()["loans/out/p.csv.gz"] == Path("p.csv.gz").read_bytes()


def test_counts_and_results_are_read_from_a_store(
    store: Server, away: None, call: Call, frames: Frames
) -> None:
    """Counts are written and read; a baseline is a result anywhere."""
    put("d.csv", content_of(frames(), "d.csv"))
    status, _, _ = call("count", "s3://loans/d.csv", *AUDIT, "-o", "s3://loans/d.counts")
    call("count", "s3://loans/d.csv", *AUDIT, "-o", "d.counts")
    plain = call("audit", "d.counts", "--config", "none", "--format", "json")
    counted = call("audit", "s3://loans/d.counts", "--config", "none", "--format", "json")
    put("old.json", plain[1].encode())
    worse = call(
        "audit",
        "s3://loans/d.csv",
        *AUDIT,
        "--baseline",
        "s3://loans/old.json",
        "--check",
        "dp.difference.change<=0.5",
    )

    assert status == 0
    assert counted[:2] == plain[:2]
    assert worse[0] == 0, worse


WIDE = 40


def wide(rows: int = 20_000) -> bytes:
    """Return a Parquet file of many columns that do not pack, in several row groups."""
    rng = np.random.default_rng(0)
    columns = {f"x{i}": rng.random(rows) for i in range(WIDE)}
    table = {
        "race": rng.choice(["a", "b"], rows),
        "label": rng.integers(0, 2, rows),
        "score": rng.random(rows),
    }
    return content_of(
        pd.DataFrame(columns | table), "d.parquet", row_group_size=5000, use_dictionary=["race"]
    )


def test_only_the_columns_of_an_audit_travel(store: Server, web: Callable[..., Server], call: Call) -> None:
    """A score, a label and a group of a wide file are a small part of its bytes, in few requests."""
    content = wide()
    put("wide.parquet", content)
    server = web({"/wide.parquet": content})
    for url, log in (("s3://loans/wide.parquet", store.log), (f"{server.url}/wide.parquet", server.log)):
        log.clear()
        before = storage.traffic()
        status, _, _ = call("audit", url, *AUDIT)
        came = storage.traffic() - before
        assert status == 0
        assert sum(came.values()) < len(content) / 4
        assert len([asked for asked in log if asked.method == "GET"]) < 30


def test_patterns_mean_what_they_mean_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a store made of a folder, patterns name the files that they name on this machine, in the same order."""
    names = [
        "a.csv",
        "b.csv",
        "B.csv",
        "a[1].csv",
        ".h.csv",
        "_u.csv",
        "y=1/a.csv",
        "y=1/.h/a.csv",
        "y=1/z/b.csv",
    ]
    names += ["y=2/a.csv", "y=10/a.csv", "_y/a.csv", ".y/a.csv", "y=1/a.txt", "y/a.csv", "y=1/z-.csv"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("g\na\n")
    monkeypatch.setitem(storage.ARROW, "s3", lambda *_: (pa.fs.LocalFileSystem(), str(tmp_path)))
    patterns = (
        "*.csv [ab].csv ?.csv **/*.csv y=*/*.csv y=?/a.csv ** .h* y=1/.h/* a[[]1].csv y*/**/*.csv **/z/*.csv"
    )
    for pattern in [*patterns.split(), "[!a].csv", "y=1/**", "a[1].csv", "a.csv", "y=1", ""]:
        here = [str(path.relative_to(tmp_path)) for path in paths_of(str(tmp_path / pattern))]
        there = [
            place.shown.removeprefix("s3://loans/")
            for place in storage.find(f"s3://loans/{pattern}", lambda n: n[-4:] == ".csv")
        ]
        assert there == here, pattern
    with pytest.raises(DataError, match=r"s3://loans/z\*\.csv matches no file"):
        storage.find("s3://loans/z*.csv", bool)


# ---------------------------------------------------------------------- faults


@pytest.mark.parametrize("ending", ["parquet", "csv.gz", "arrow"])
@pytest.mark.parametrize("fault", ["503", "cut", "slow"])
def test_a_fault_that_passes_changes_nothing(ending: str, fault: str, store: Server, frames: Frames) -> None:
    """A server that is busy, a cut connection, a slow answer: the rows are whole."""
    content = content_of(frames(), f"d.{ending}")
    put(f"d.{ending}", content)
    expected = columns_read(open_source(f"s3://loans/d.{ending}"))
    store.fits = lambda asked: asked.method == "GET" and "list-type" not in asked.path
    store.faults = [fault] * 2

    assert columns_read(open_source(f"s3://loans/d.{ending}")) == expected
    assert not store.faults


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("503", r"reading s3://loans/d\.parquet failed: .*503"),
        ("cut", r"reading s3://loans/d\.parquet failed: .*NETWORK_CONNECTION"),
        ("403", r"no permission for reading s3://loans/d\.parquet"),
    ],
)
def test_a_fault_that_stays_names_the_place(
    fault: str, words: str, store: Server, frames: Frames, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With exit status 2, and neither key nor secret."""
    monkeypatch.setattr(storage, "TRIES", 2)
    put("d.parquet", content_of(frames(), "d.parquet"))
    store.faults = [fault] * 50
    monkeypatch.setenv("FAIRFIX_DEBUG", "1")
    status, out, said = call("audit", "s3://loans/d.parquet", *AUDIT)

    assert status == 2, said
    assert re.search(words, said)
    assert SECRET not in out + said
    assert KEY not in out + said


def test_a_silent_store_is_given_up(store: Server, frames: Frames, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a time that is stated, and not never."""
    monkeypatch.setattr(storage, "TRIES", 1)
    put("d.parquet", content_of(frames(), "d.parquet"))
    store.faults = ["silent"] * 50

    with pytest.raises(DataError, match=r"reading s3://loans/d\.parquet failed: .*[Tt]imeout"):
        open_source("s3://loans/d.parquet")


@pytest.mark.parametrize("ending", ["parquet", "csv", "arrow"])
def test_a_file_that_changes_is_refused(ending: str, store: Server, tmp_path: Path, frames: Frames) -> None:
    """Before the first pass, within a pass and between two, in a store and here, even where the size is the same."""
    name = f"d.{ending}"
    old, new = (content_of(frames().assign(score=score), name) for score in (0.25, 0.75))
    (tmp_path / name).write_bytes(old)
    put(name, old)

    def write_here() -> None:
        (tmp_path / name).write_bytes(new)
        os.utime(tmp_path / name, (1, 1))

    for data, write in ((f"s3://loans/{name}", lambda: put(name, new)), (str(tmp_path / name), write_here)):
        source = open_source(data)
        assert columns_read(source, ["score"])["score"][0] == 0.25
        write()
        with pytest.raises(DataError, match=f"{name} changed while it was read"):
            columns_read(source)
        source = open_source(data)
        assert columns_read(source, ["score"])["score"][0] == 0.75
        batches = source.parts(["score"])[0].batches()
        next(batches)
        if data.startswith("s3"):
            put(name, old)
        else:
            os.utime(tmp_path / name, (2, 2))
        with pytest.raises(DataError, match=f"{name} changed while it was read"):
            list(batches)


def test_a_change_between_the_passes_of_an_audit_ends_it(store: Server, frames: Frames, call: Call) -> None:
    """The object is another one from the third reading on."""
    old, new = (content_of(frames(seed=seed), "d.csv") for seed in (0, 1))
    put("d.csv", old)
    readings = []

    def change(asked: stores.Asked) -> None:
        if asked.method == "GET" and asked.path.partition("?")[0].endswith("d.csv"):
            readings.append(asked)
            if len(readings) == 3:
                store.answer(stores.Asked("PUT", "/loans/d.csv", {}, new))

    store.before = change
    said = call.refused("audit", "s3://loans/d.csv", *AUDIT)
    assert "s3://loans/d.csv changed while it was read; run again when no process writes to it" in said


# ---------------------------------------------------------------------- writing


BIG = os.urandom(1 << 20) * 24
"""More than the parts in which a store takes a file."""


def write(url: str, content: bytes) -> None:
    """Write a file."""
    with atomic_output(url) as file:
        file.write(content)


@pytest.mark.parametrize("content", [b"", b"new", BIG], ids=["empty", "small", "big"])
def test_what_is_written_is_whole(content: bytes, store: Server) -> None:
    write("s3://loans/a/o.bin", content)

    assert stored() == {"loans/a/o.bin": content}


@pytest.mark.parametrize("fault", ["503", "drop", "403"])
@pytest.mark.parametrize(
    ("asked_for", "content"),
    [("PUT", b"new"), ("PUT", BIG), ("POST", b"new"), ("POST", BIG), ("partNumber=2", BIG)],
    ids=["small PUT", "big PUT", "small POST", "big POST", "second part"],
)
def test_a_write_that_fails_leaves_the_old_object(
    asked_for: str, fault: str, content: bytes, store: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the beginning, in a part, at the end: whole or not at all, and the error says where."""
    monkeypatch.setattr(storage, "TRIES", 1)
    put("o.bin", b"old")
    store.fits = lambda asked: "o.bin" in asked.path and asked_for in f"{asked.method} {asked.path}"
    store.faults = [fault] * 50
    with pytest.raises(DataError, match=r"writing s3://loans/o\.bin"):
        write("s3://loans/o.bin", content)
    store.faults = []

    assert stored() == {"loans/o.bin": b"old"}


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_run_that_breaks_off_writes_nothing(error: type[BaseException], store: Server) -> None:
    """Nothing goes to the store before all is there."""
    put("o.bin", b"old")
    store.log.clear()

    def fail() -> None:
        with atomic_output("s3://loans/o.bin") as file:
            file.write(BIG)
            raise error

    with pytest.raises(error):
        fail()
    assert not [asked for asked in store.log if asked.method in ("PUT", "POST", "DELETE")]


@pytest.mark.parametrize("moment", ["uploads", "partNumber=1"])
def test_an_interrupt_during_the_upload_waits_for_its_end(moment: str, store: Server) -> None:
    """The object is whole: no signal comes between its opening, what is written and the end of the upload."""
    put("o.bin", b"old")
    kept = signal.signal(signal.SIGINT, signal.default_int_handler)  # which jobs in the background ignore

    def interrupt(asked: stores.Asked) -> None:
        if moment in asked.path:
            store.before = lambda _: None
            os.kill(os.getpid(), signal.SIGINT)

    store.before = interrupt
    try:
        with pytest.raises(KeyboardInterrupt):
            write("s3://loans/o.bin", BIG)
    finally:
        signal.signal(signal.SIGINT, kept)
    assert stored() == {"loans/o.bin": BIG}


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (
            "https://host/o.csv",
            "cannot write https://host/o.csv: files are written to this machine and to s3://",
        ),
        ("hdfs://host/o.csv", "cannot write hdfs://host/o.csv"),
        ("ftp://u:secret@host/o.csv", "cannot write ftp://host/o.csv"),
        ("s3://nowhere/o.csv", "cannot write s3://nowhere/o.csv: there is no such bucket"),
        ("s3://loans", "cannot write s3://loans: name one file"),
        ("s3://loans/*.csv", r"cannot write s3://loans/\*.csv: name one file"),
    ],
)
def test_what_cannot_be_written_is_said_before_the_work(
    url: str, words: str, store: Server, call: Call
) -> None:
    said = call.refused("predict", "no.fairfix", "no.csv", "-o", url, "--config", "none")
    assert re.search(words, said), said


# ---------------------------------------------------------------------- HTTP


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("ending", ["parquet", "csv", "csv.gz", "arrow"])
def test_a_web_server_gives_the_same_rows(
    ending: str, ranges: bool, web: Callable[..., Server], tmp_path: Path, frames: Frames
) -> None:
    """With ranges or without, from a name with a blank, with a query, through a server that stumbles."""
    content = content_of(frames(), f"d.{ending}")
    (tmp_path / f"d.{ending}").write_bytes(content)
    server = web({f"/a%20b/d.{ending}": content}, ranges=ranges)
    server.faults = ["503", "cut", "slow", "429"]
    source = open_source(f"{server.url}/a b/d.{ending}?X-Amz-Signature={SECRET}")

    assert source.name == f"d.{ending}"
    assert columns_read(source) == columns_read(open_source(tmp_path / f"d.{ending}"))
    assert not server.faults
    assert all(SECRET in asked.path for asked in server.log)
    if not ranges:
        assert (
            len([asked for asked in server.log if "range" not in asked.headers]) <= 4
        )  # one copy, faults aside


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("503", "failed after 4 tries: the server returns 503"),
        ("cut", "failed after 4 tries: "),
        ("silent", "failed after 4 tries: "),
        ("403", "no permission for reading"),
        ("401", "no permission for reading"),
        ("404", "does not exist"),
        ("400", "failed: the server returns 400"),
    ],
)
def test_a_web_server_that_fails_is_named(
    fault: str, words: str, web: Callable[..., Server], frames: Frames, call: Call
) -> None:
    """With exit status 2, without what is secret in the URL."""
    server = web({"/d.parquet": content_of(frames(), "d.parquet")})
    server.faults = [fault] * 99
    url = (
        server.url.replace("//", f"//user:{SECRET}@")
        + f"/d.parquet?X-Amz-Signature={SECRET}&access_key={KEY}"
    )
    status, out, said = call("audit", url, *AUDIT)

    assert status == 2, said
    assert words in said
    assert f"{server.url}/d.parquet" in said
    assert SECRET not in out + said
    assert KEY not in out + said


def test_redirects_stay_with_the_server_that_was_named(
    web: Callable[..., Server], frames: Frames, call: Call
) -> None:
    """Another port, host or scheme gets no request, and so no credentials."""
    content = content_of(frames(), "d.parquet")
    other = web({"/d.parquet": content})
    server = web({"/d.parquet": content})
    answer, where = server.answer, {"to": "/d.parquet"}

    def redirecting(asked: stores.Asked) -> stores.Answer:
        elsewhere = asked.path.startswith("/old") or where["to"].startswith("/old")
        return (302, {"Location": where["to"]}, b"") if elsewhere else answer(asked)

    server.answer = redirecting
    call.ran("audit", f"{server.url}/old.parquet", *AUDIT)
    port = other.url.rpartition(":")[2]
    for target in (f"{other.url}/d.parquet", f"//localhost:{port}/d.parquet", f"https://127.0.0.1:{port}/d.parquet",
                   f"{other.url.replace('//', f'//user:{SECRET}@')}/d?sig={SECRET}", "file:///etc/hosts",
                   "/old.parquet"):  # fmt: skip
        where["to"] = target
        err = call.refused("audit", f"{server.url}/old.parquet", *AUDIT)
        assert "redirects" in err
        assert SECRET not in err
    assert not other.log


@pytest.mark.parametrize("says", [True, False])
def test_a_copy_leaves_room_on_the_disk(
    *, says: bool, web: Callable[..., Server], frames: Frames, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = web({"/d.csv": content_of(frames(), "d.csv")}, ranges=False)
    if not says:
        monkeypatch.setattr("aiohttp.ClientResponse.content_length", None)
    monkeypatch.setattr("fairfix.data.spool.LEFT_FREE", 1 << 60)
    with pytest.raises(DataError, match="TMPDIR"):
        columns_read(open_source(f"{server.url}/d.csv"))


def test_a_file_on_a_web_server_that_changes_is_refused(web: Callable[..., Server], frames: Frames) -> None:
    """By its tag, within a pass and between two, with ranges or without."""
    old, new = (content_of(frames().assign(score=score), "d.csv") for score in (0.25, 0.75))
    for ranges in (True, False):
        contents = {"/d.csv": old}
        source = open_source(f"{web(contents, ranges=ranges).url}/d.csv")
        batches = source.parts(["score"])[0].batches()
        assert next(batches).num_rows
        contents["/d.csv"] = new
        with pytest.raises(DataError, match=r"d\.csv changed while it was read"):
            list(batches)
        with pytest.raises(DataError, match=r"d\.csv changed while it was read"):
            columns_read(source)


def test_a_file_that_gets_shorter_is_refused(store: Server, web: Callable[..., Server]) -> None:
    """While it is read: the range that is asked for is not there any more."""
    content = wide(8000)
    contents = {"/d.parquet": content}
    server = web(contents)
    for url in (f"{server.url}/d.parquet", "s3://loans/d.parquet"):
        put("d.parquet", content)
        (place,) = storage.find(url, bool)

        def shortened(place: storage.FileLocation = place) -> None:
            with place.opened() as file:
                file.read(100_000)
                contents["/d.parquet"] = content[:200]
                put("d.parquet", content[:200])
                file.read(100_000)

        with pytest.raises(DataError, match=r"d\.parquet changed while it was read"):
            shortened()


def test_what_is_not_there_is_said(store: Server, web: Callable[..., Server], frames: Frames) -> None:
    """Missing buckets, objects, files; folders and patterns without data; kinds that are not known."""
    put("notes/a.txt", b"x")
    put("both/a.csv", content_of(frames(), "a.csv"))
    put("both/b.parquet", content_of(frames(), "b.parquet"))
    put("empty.csv", b"")
    server = web({"/d.xyz": b"\0\1"})
    for url, words in {
        "s3://nowhere/d.csv": "s3://nowhere/d.csv does not exist; there is no such bucket",
        "s3://nowhere/*.csv": "there is no such bucket",
        "s3://loans/d.csv": "s3://loans/d.csv does not exist$",
        "s3://loans/d*.csv": r"s3://loans/d\*\.csv matches no file",
        "s3://loans/notes": "s3://loans/notes holds no file of rows",
        "s3://loans/both": r"s3://loans/both contains CSV and Parquet files; .*\.csv or \.parquet",
        "s3://loans/empty.csv": "empty.csv is empty",
        "s3:///d.csv": "names no bucket; write s3://BUCKET/PATH",
        f"s3://{KEY}:{SECRET[:5]}/x@loans/d.csv": "write a slash in a user or a password of a URL as %2F",
        f"s3://loans/d.csv?access_key={SECRET}": "Unexpected query parameter in S3 URI: 'access_key'",
        "ftp://u:pw@host/d.csv": r"^ftp://host/d\.csv has an unknown scheme; fairfix reads s3://, gs://",
        f"{server.url}/d.csv": "/d.csv does not exist",
        f"{server.url}/*.csv": "a web server cannot list files",
        f"{server.url}/d.xyz": r"d\.xyz is of an unknown kind",
    }.items():
        with pytest.raises(DataError, match=words) as error:
            open_source(url)
        assert SECRET[:5] not in str(error.value)
        assert "pw" not in str(error.value)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)

    with pytest.raises(DataError, match=r"pip install 'fairfix\[remote\]'"):
        open_source("https://host/d.csv")


# ---------------------------------------------------------------------- secrets


def test_no_secret_is_written_anywhere(
    store: Server, web: Callable[..., Server], away: None, call: Call, frames: Frames
) -> None:
    """Every command, format and file, with credentials in URLs, in the environment and in the record of the run."""
    content = content_of(frames(600), "d.csv")
    put("d.csv", content)
    server = web({"/d.csv": content})
    signed = (
        server.url.replace("//", f"//user:{SECRET}@")
        + f"/d.csv?X-Amz-Signature={SECRET}&sv=2024&sig={SECRET}"
    )
    keyed = f"s3://{KEY}:{SECRET}@loans/d.csv"
    Path("fairfix.toml").write_text('[report]\nowner = "risk"\n')
    texts = []
    for i, url in enumerate((signed, keyed)):
        outs = [
            part
            for kind in ("json", "html", "markdown", "junit", "sarif")
            for part in ("--out", f"{kind}={i}.{kind}")
        ]
        lines = [
            ("audit", url, "--protected", "race", *outs, "--verbose"),
            ("count", url, "--protected", "race", "-o", f"{i}.counts"),
            ("audit", url),
            ("audit", url, "--protected", "rase"),
            ("audit", url, "--protected", "race", "--dry-run"),
            ("audit", url + ".missing", "--protected", "race", "--out", f"json=no{i}.json"),
            ("audit", "d.csv", "--protected", "race", "--out", f"json={url}"),
            ("predict", "0.fairfix", url, "-o", f"{i}.parquet"),
            ("predict", "0.fairfix", url, "-o", url),
            ("inspect", "0.fairfix"),
            ("init", url, "-o", f"{i}.toml"),
        ]
        if not i:
            ramp = ("--protected", "race", "--method", "ramp")
            lines.insert(0, ("repair", url, *ramp, "-o", "0.fairfix", "--out", "html=r.html"))
        for line in lines:
            status, out, said = call(*line)
            texts += [out, said]
            assert status in (0, 1, 2, 3), said
        assert Path(f"{i}.json").exists()
        assert "command" in json.loads(Path(f"{i}.json").read_text())["record"]
    written = {path.name: path.read_bytes() for path in Path().iterdir()}
    for path in [path for path in Path().iterdir() if zipfile.is_zipfile(path)]:
        with zipfile.ZipFile(path) as archive:
            written |= {f"{path}:{name}": archive.read(name) for name in archive.namelist()}
    assert {"0.html", "0.fairfix", "0.fairfix:manifest.json", "0.counts", "0.toml", "no0.json"} <= {*written}
    for secret in (SECRET, KEY):
        assert not [name for name, data in written.items() if secret.encode() in data]
        assert not [text for text in texts if secret in text]


def test_an_argument_is_a_url_to_its_end() -> None:
    """Blanks and quotes in it do not end it."""
    assert shown_argument("--data=https://u:p'w d@h/a b.csv?sig=x y") == "--data=https://h/a b.csv"
    assert name_of("https://h/a/b.csv?sig=x/y") == "b.csv"
    assert name_of("s3://k:s@bucket") == "bucket"


def test_a_place_can_be_printed_and_sent(store: Server, frames: Frames) -> None:
    """To another process; neither its text nor what Python shows of it has a secret."""
    put("d.csv", content_of(frames(), "d.csv"))
    (place,) = storage.find(f"s3://{KEY}:{SECRET}@loans/d.csv", bool)
    copy = pickle.loads(pickle.dumps(place))

    assert str(copy) == "s3://loans/d.csv"
    assert SECRET not in f"{place}{place!r}{copy!r}"
    with copy.opened() as file:
        assert file.read() == content_of(frames(), "d.csv")


def test_threads_share_a_place(web: Callable[..., Server]) -> None:
    """Parts are read at the same time, each by an opening of its own."""
    content = wide(8000)
    source = open_source(f"{web({'/d.parquet': content}).url}/d.parquet")
    out: list[int] = []
    threads = [
        threading.Thread(target=lambda: out.append(len(columns_read(source, ["score"])["score"])))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert out == [8000] * 4


GOOGLE = """
import sys
from gcp_storage_emulator.server import create_server
server = create_server("127.0.0.1", int(sys.argv[1]), in_memory=True, default_bucket="bank")
server.start()
print("up", flush=True)
sys.stdin.read()
server.stop()
"""


def test_google_cloud_storage_is_read_and_written(tmp_path: Path, call: Call) -> None:
    """A stand-in on loopback has rows, gets a repair and decisions, and gives the same report as a file here."""
    reason = "gcp-storage-emulator is not installed"
    pytest.importorskip("gcp_storage_emulator.server", reason=reason)
    from pyarrow.fs import GcsFileSystem

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    more = f"?endpoint_override=127.0.0.1:{port}&scheme=http&retry_limit_seconds=5"
    rows, here = make_frame(600), tmp_path / "d.parquet"
    rows.to_parquet(here)
    with subprocess.Popen(
        [sys.executable, "-c", GOOGLE, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline()
        store = GcsFileSystem(anonymous=True, endpoint_override=f"127.0.0.1:{port}", scheme="http")
        with store.open_output_stream("bank/in/d.parquet") as file:
            file.write(here.read_bytes())
        asked = ("--protected", "race", "--score", "score", "--config", "none", "--quiet")
        for there in ("in/d.parquet", "in", "in/*.parquet"):
            reports = [
                json.loads(call("audit", data, *asked, "--format", "json")[1])
                for data in (str(here), f"gs://anonymous@bank/{there}{more}")
            ]
            for report in reports:
                report["data"]["source"] = ""
            assert reports[0] == reports[1]
        repaired = f"gs://anonymous@bank/out/r.fairfix{more}"
        data, decided = (f"gs://anonymous@bank/{one}{more}" for one in ("in/d.parquet", "out/d.parquet"))
        assert call("repair", data, *asked, "--method", "ramp", "-o", repaired)[0] == 0
        assert call("predict", repaired, data, "-o", decided, "--config", "none")[0] == 0
        assert len(load(repaired).predict(rows)) == 600
        assert open_source(decided).rows == 600
        status, _, err = call("audit", f"gs://anonymous@bank/in/x.parquet{more}", *asked)
        assert (status, "does not exist" in err) == (2, True)
        server.kill()


@pytest.mark.parametrize("fault", ["", "503", "cut", "403"])
def test_reports_are_written_to_a_store_whole_or_not_at_all(
    fault: str, store: Server, tmp_path: Path, call: Call
) -> None:
    """The bytes of a file here; an object that cannot be written is not there; no message has a secret."""
    make_frame(300).to_parquet(tmp_path / "d.parquet")
    line = ("audit", str(tmp_path / "d.parquet"), *AUDIT, "--score", "score", "--quiet")
    formats = ("html", "json", "csv", "xlsx", "markdown") if not fault else ("html",)
    store.fits = lambda asked: asked.method in ("PUT", "POST") and "a.html" in asked.path
    store.faults += [fault] * 30 if fault else []
    outs = [one for name in formats for one in ("--out", f"{name}=s3://loans/r/a.{name}")]
    local = [one for name in formats for one in ("--out", f"{name}={tmp_path / f'a.{name}'}")]
    status, out, err = call(*line, *outs, *local)
    assert SECRET not in out + err
    if not fault:
        assert status == 0
        assert {Path(name).name: content for name, content in stored().items()} == {
            f"a.{name}": (tmp_path / f"a.{name}").read_bytes() for name in formats
        }
        return
    assert status == 2
    assert "s3://loans/r/a.html" in err
    assert stored() == {}
    assert "did not run" in (tmp_path / "a.html").read_text(encoding="utf-8")


def test_a_report_in_a_store_does_not_outlive_a_failed_run(store: Server, tmp_path: Path, call: Call) -> None:
    """One of fairfix says that the run failed; what is not of fairfix stays."""
    make_frame(300).to_parquet(tmp_path / "d.parquet")
    outs = [one for name in ("html", "json") for one in ("--out", f"{name}=s3://loans/a.{name}")]
    line = ("audit", str(tmp_path / "d.parquet"), *AUDIT, "--score", "score", "--quiet")
    assert call(*line, *outs)[0] == 0
    put("b.html", b"<!DOCTYPE html>mine")
    assert call("audit", "absent.parquet", *line[2:], *outs, "--out", "html=s3://loans/b.html")[0] == 2

    left = {Path(name).name: content for name, content in stored().items()}
    assert b"did not run" in left["a.html"]
    assert b"fairfix.unrun" in left["a.json"]
    assert left["b.html"] == b"<!DOCTYPE html>mine"
