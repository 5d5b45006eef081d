"""Standard input, pipes and other streams are data; standard output is a file to write."""

from __future__ import annotations

import os
import pickle
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from fairfix.cli.config import PATHS
from fairfix.data.files import open_source
from fairfix.data.streams import is_stream, stream_place
from fairfix.errors import DataError, UsageError

from tests.conftest import Call, make_frame
from tests.data import columns_read
from tests.test_data.test_packing import TABLE, WRITTEN, empty_tmp, piped, written  # noqa: F401  a fixture

COMMAND = [sys.executable, "-m", "fairfix"]


def run(*line: str, data: bytes = b"", tmp: Path | None = None) -> tuple[int, bytes, str]:
    """Run a command with data on its standard input; return (status, stdout, stderr)."""
    place = {"TMPDIR": str(tmp)} if tmp else {}
    done = subprocess.run(
        [*COMMAND, *line], check=False, input=data, capture_output=True, env=os.environ | place
    )
    return done.returncode, done.stdout, done.stderr.decode()


@pytest.mark.parametrize("kind", [*WRITTEN, ".csv.xz", ".parquet.gz", ".csv.zip"])
def test_a_stream_is_read_like_the_file(kind: str, tmp_path: Path, empty_tmp: Path) -> None:  # noqa: F811  the fixture
    """Recognised by its content, and read again and again."""
    path = written(tmp_path / f"d{kind}")
    before = columns_read(path)
    with piped(path.read_bytes()) as pipe:
        source = open_source(pipe)
        for _ in range(2):
            assert sum(b.num_rows for part in source.parts(["x"]) for b in part.batches()) == TABLE.num_rows
        assert columns_read(source) == before


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_named_pipe_is_read(tmp_path: Path) -> None:
    """Its name may say its kind; where it does not, the content does."""
    content = written(tmp_path / "d.parquet").read_bytes()
    for name in ("pipe", "pipe.parquet", "pipe.csv"):
        os.mkfifo(tmp_path / name)
        thread = threading.Thread(target=(tmp_path / name).write_bytes, args=(content,))
        thread.start()
        assert columns_read(tmp_path / name) == columns_read(tmp_path / "d.parquet")
        thread.join()


def test_what_is_a_stream(tmp_path: Path) -> None:
    """A dash and what is open or no file; neither files, nor folders, nor what is not there."""
    (tmp_path / "-").write_text("x")

    assert is_stream("-")
    assert is_stream("/dev/stdin")
    assert is_stream("/dev/fd/0")
    assert not any(
        map(is_stream, (str(tmp_path), f"{tmp_path}/-", "./-", f"{tmp_path}/none", "/dev", "d.csv"))
    )


COMMANDS = {
    "audit": ["--protected", "race"],
    "repair": ["--protected", "race", "--method", "ramp", "-o", "r.fairfix"],
    "compare": ["--protected", "race", "--methods", "ramp"],
    "init": ["--protected", "race", "-o", "/dev/stdout"],
    "predict": ["-o", "/dev/stdout", "-q"],
}
"""Command -> the rest of a line of it."""


def comparable(out: bytes, name: str) -> str:
    """Return what a command wrote, without the name of its data, the hash of a file with it, and line breaks."""
    text = out.decode().partition("\nNext step\n")[0]  # standard input is read once, so it has none
    for spelling in ("standard input", f'"{name}"', f" {name} "):
        text = text.replace(spelling, spelling.replace(spelling.strip(' "'), "NAME"))
    return " ".join(re.sub("[0-9a-f]{64}", "HASH", text).split())


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.slow
def test_every_command_reads_standard_input(command: str, call: Call, tmp_path: Path, away: None) -> None:
    """The output is that of the file, but for its name; nothing remains in the folder of temporary files."""
    make_frame(400).to_csv("d.csv", index=False)
    before = []
    if command == "predict":
        assert call("repair", "d.csv", *COMMANDS["repair"])[0] == 0
        before = ["r.fairfix"]
    (tmp := tmp_path / "tmp").mkdir()
    content = Path("d.csv").read_bytes()
    status, here, err = run(command, *before, "d.csv", *COMMANDS[command], tmp=tmp)
    assert status == 0, err
    for name in ("-", "/dev/stdin"):
        status, there, err = run(command, *before, name, *COMMANDS[command], data=content, tmp=tmp)
        assert status == 0, err
        assert comparable(there, name) == comparable(here, "d.csv").replace("d.csv", "NAME")
    assert list(tmp.iterdir()) == []


def test_nothing_and_a_terminal_are_said() -> None:
    status, _, err = run("audit", "-", "--config", "none")
    assert (status, "standard input is empty" in err, "cat data.csv |" in err) == (2, True, True)
    host, terminal = pty.openpty()
    try:
        done = subprocess.run(
            [*COMMAND, "audit", "/dev/stdin", "--config", "none"],
            check=False,
            stdin=terminal,
            capture_output=True,
            timeout=60,
        )
    finally:
        os.close(host)
        os.close(terminal)
    assert done.returncode == 2
    assert b"is a terminal; pipe a table into it" in done.stderr


def test_a_guess_from_standard_input_can_be_copied() -> None:
    _, _, err = run("audit", "-", "--config", "none", data=make_frame(50).to_csv(index=False).encode())
    assert "to copy: fairfix audit - --protected race" in err


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_nothing_remains_after_a_signal(number: int, tmp_path: Path) -> None:
    """The copy has no name, so it is gone with the process."""
    process = subprocess.Popen(
        [*COMMAND, "audit", "-", "--protected", "race", "--config", "none"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    assert process.stdin is not None
    process.stdin.write(b"g,s\n" * 1_000_000)  # more than a pipe holds, so reading has begun
    process.stdin.flush()
    time.sleep(0.2)
    process.send_signal(number)
    process.wait(30)
    process.stdin.close()
    assert process.returncode != 0
    assert list(tmp_path.iterdir()) == []


def test_a_stream_is_of_this_process_alone() -> None:
    """Workers of a cluster cannot read it: a UsageError that says what can be done."""
    with piped(b"g,s\na,1\n") as pipe:
        place = stream_place(pipe)
    with pytest.raises(UsageError, match="name a file, or leave out `cluster`"):
        pickle.dumps(place)


def test_a_stream_that_fills_the_disk_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairfix.data.spool.LEFT_FREE", 1 << 60)
    with piped(b"g,s\na,1\n") as pipe, pytest.raises(DataError, match="TMPDIR"):
        open_source(pipe)


@pytest.mark.slow
def test_standard_output_is_a_file_to_write(call: Call, tmp_path: Path, away: None) -> None:
    """By a dash, its device and a redirection: the same bytes as in a file."""
    make_frame(400).to_csv("d.csv", index=False)
    assert call("repair", "d.csv", "--protected", "race", "--method", "ramp", "-o", "r.fairfix")[0] == 0
    assert call("predict", "r.fairfix", "d.csv", "-o", "p.csv")[0] == 0
    expected = Path("p.csv").read_bytes()
    for name in ("-", "/dev/stdout", "/dev/fd/1"):
        assert run("predict", "r.fairfix", "d.csv", "-o", name, "-q")[1] == expected
        with Path("q.csv").open("wb") as file:
            line = [*COMMAND, "predict", "r.fairfix", "d.csv", "-o", name]
            assert subprocess.run(line, check=False, stdout=file, stderr=subprocess.DEVNULL).returncode == 0
        assert Path("q.csv").read_bytes() == expected
    chained = run("predict", "r.fairfix", "-", "-o", "-", "-q", data=Path("d.csv").read_bytes())
    assert chained[1] == expected


def test_a_configuration_may_name_standard_input(call: Call, tmp_path: Path, away: None) -> None:
    assert "data" in PATHS
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "fairfix.toml").write_text('[audit]\ndata = "-"\nprotected = "race"\n')
    text = make_frame(50).to_csv(index=False).encode()
    status, out, err = run("audit", "--config", "conf/fairfix.toml", data=text)
    assert status == 0, err
    assert b"standard input" in out


@pytest.mark.slow
def test_predict_into_a_folder_needs_files(call: Call, tmp_path: Path, away: None) -> None:
    """A stream has no name, packed or not; a ZIP is written like the one that was read."""
    frame = make_frame(400)
    frame.to_csv("d.csv", index=False)
    frame.to_csv("d.zip", index=False, compression={"method": "zip", "archive_name": "d.csv"})
    assert call("repair", "d.csv", *COMMANDS["repair"])[0] == 0
    for data in (Path("d.csv"), Path("d.zip")):
        status, _, err = run("predict", "r.fairfix", "-", "-o", "out/", data=data.read_bytes())
        assert status == 2
        assert "does not consist of files" in err
    assert call("predict", "r.fairfix", "d.zip", "-o", "out/")[0] == 0
    assert call("predict", "r.fairfix", "d.csv", "-o", "p.csv")[0] == 0
    assert columns_read("out/d.zip") == columns_read("p.csv")
