"""Outputs: no stream loses what is behind it, and a run that did not happen says so in its files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir
from importlib import import_module
from pathlib import Path

import pytest
from fairfix.cli import COMMANDS, run
from fairfix.cli.outputs import WRITTEN

from tests.conftest import make_frame

COMMON = ("--protected", "race", "--no-config", "-q")
RUNS = {
    "audit": ("audit", "d.parquet", *COMMON),
    "repair": ("repair", "d.parquet", "--method", "ramp", *COMMON),
    "compare": ("compare", "d.parquet", "--methods", "ramp", "--slacks", "0.1", *COMMON),
    "predict": ("predict", "r.fairfix", "d.parquet", "--no-config"),
    "report": ("report", "r.json"),
    "init": ("init", "d.parquet", "--force"),
    "merge": ("merge", "a.counts"),
}
"""Commands that write files, on a line that works."""

OUTPUTS = [
    (name, option)
    for name in COMMANDS
    for option in sorted(
        {*WRITTEN, "out"} & {p.name for p in import_module(f"fairfix.cli.{name}").command.params}
    )
]
"""Every command with every option that names a file to write."""

PRINTING = {"audit", "repair", "compare", "report"}
"""Commands whose stdout is a report."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with rows, a repair of them, their counts and their audit."""
    place = tmp_path_factory.mktemp("outputs")
    make_frame(400).to_parquet(place / "d.parquet")
    with chdir(place), pytest.MonkeyPatch.context() as patch:
        patch.delenv("FAIRFIX_DATA", raising=False)
        assert run([*RUNS["audit"], "--out", "json=r.json", "--counts-out", "a.counts"]) == 0
        assert run([*RUNS["repair"], "-o", "r.fairfix"]) in (0, 1, 3)
    return place


def said_of(option: str, path: str) -> tuple[str, str]:
    """Return the option with a file to write."""
    return "--" + option.replace("_", "-"), f"json={path}" if option == "out" else path


def test_every_command_that_writes_is_tried() -> None:
    assert {name for name, _ in OUTPUTS} == set(RUNS)


@pytest.mark.parametrize(
    ("name", "option", "way"),
    [
        *((*output, "/dev/stdout") for output in OUTPUTS),
        *(
            (name, option, way)
            for name, option in (("report", "out"), ("merge", "output"))
            for way in ("link", "log.csv")
        ),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="no names of descriptors")
def test_what_is_behind_stdout_is_kept(name: str, option: str, way: str, folder: Path) -> None:
    """Whatever comes of it, the file that stdout is appended to begins with what was in it."""
    log, link = folder / "log.csv", folder / "link"
    log.write_text("kept\n")
    if not link.is_symlink():
        link.symlink_to("/dev/stdout")
    with log.open("ab") as stream:
        command = [sys.executable, "-m", "fairfix", *RUNS[name], *said_of(option, way)]
        done = subprocess.run(
            command, cwd=folder, stdout=stream, stderr=subprocess.PIPE, text=True, check=False
        )

    assert log.read_bytes().startswith(b"kept\n")
    if name in PRINTING or way == "log.csv":
        assert (done.returncode, log.read_text()) == (2, "kept\n")
        assert f"{said_of(option, way)[1]}: stdout " in done.stderr
    elif name != "predict":  # it knows kinds of file by their endings only
        assert done.returncode == 0
        assert log.stat().st_size > 100


@pytest.mark.skipif(sys.platform == "win32", reason="no names of descriptors")
def test_other_descriptors_are_written_to_where_they_stand(folder: Path) -> None:
    """A file that a shell opened as descriptor 5 for appending is appended to."""
    line = '"$0" -m fairfix report r.json --out github=/dev/fd/5 5>> five.txt'
    (folder / "five.txt").write_text("kept\n")
    subprocess.run(["sh", "-c", line, sys.executable], cwd=folder, stdout=subprocess.DEVNULL, check=True)

    kept, *added = (folder / "five.txt").read_text().splitlines()
    assert kept == "kept"
    assert added[-1].startswith("::notice title=fairfix audit")
