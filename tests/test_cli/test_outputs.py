"""Outputs: no stream loses what is behind it, and a run that did not happen says so in its files."""

from __future__ import annotations

import html
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator
from contextlib import chdir
from importlib import import_module
from pathlib import Path

import jsonschema
import pytest
from fairfix.cli import COMMANDS, main, run
from fairfix.cli.outputs import WRITTEN
from fairfix.errors import ExitStatus
from fairfix.report import FORMATS, PRINTED
from fairfix.schema import json_schema

from tests.conftest import Call, make_frame
from tests.results import FILES, text_of

COMMON = ("--protected", "race", "--config", "none", "-q")
RUNS = {
    "audit": ("audit", "d.parquet", *COMMON),
    "repair": ("repair", "d.parquet", "--method", "ramp", *COMMON),
    "compare": ("compare", "d.parquet", "--methods", "ramp", "--slacks", "0.1", *COMMON),
    "predict": ("predict", "r.fairfix", "d.parquet", "--config", "none"),
    "report": ("report", "r.json"),
    "init": ("init", "d.parquet", "--force"),
    "explore": ("explore", "d.parquet", *COMMON),
    "count": ("count", "d.parquet", *COMMON),
    "export": ("export", "r.fairfix", "--to", "python"),
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
        assert run([*RUNS["audit"], "--out", "json=r.json"]) == 0
        assert run([*RUNS["count"], "-o", "a.counts"]) == 0
        assert run([*RUNS["repair"], "-o", "r.fairfix"]) in (0, 1, 3)
    return place


def said_of(option: str, path: str) -> tuple[str, str]:
    """Return the option with a file to write."""
    return "--" + option.replace("_", "-"), f"json={path}" if option == "out" else path


def test_every_command_that_writes_is_tried() -> None:
    assert {name for name, _ in OUTPUTS} == set(RUNS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "option", "way"),
    [
        *((*output, "/dev/stdout") for output in OUTPUTS),
        *((name, option, "log.csv") for name, option in (("report", "out"), ("count", "output"))),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="no names of descriptors")
def test_what_is_behind_stdout_is_kept(name: str, option: str, way: str, folder: Path) -> None:
    """Whatever comes of it, the file that stdout is appended to begins with what was in it."""
    log = folder / "log.csv"
    log.write_text("kept\n")
    with log.open("ab") as stream:
        command = [sys.executable, "-m", "fairfix", *RUNS[name], *said_of(option, way)]
        done = subprocess.run(
            command, cwd=folder, stdout=stream, stderr=subprocess.PIPE, text=True, check=False
        )

    assert log.read_bytes().startswith(b"kept\n")
    if name in PRINTING or way == "log.csv":
        assert (done.returncode, log.read_text()) == (2, "kept\n")
        assert f"{said_of(option, way)[1]}: " in done.stderr
        assert "stdout" in done.stderr
        assert ("by --format" in done.stderr) == (option == "out" and way == "/dev/stdout")
    elif name != "predict":  # it knows kinds of file by their endings only
        assert done.returncode == 0
        assert log.stat().st_size > 100


NAMES = {"output": "o.parquet"}

LINKS = {
    "to a file": ("{name}", "{outside}/bashrc", "{name}"),
    "to nothing": ("{name}", "{outside}/new", "{name}"),
    "to itself": ("{name}", "{name}", "{name}"),
    "to stdout": ("{name}", "/dev/stdout", "{name}"),
    "to a device": ("{name}", "/dev/null", "{name}"),
    "to a file here": ("{name}", "{place}/kept", "{name}"),
    "by a folder": ("f", "{outside}", "f/{name}"),
    "by a folder, in full": ("f", "{outside}", "{place}/f/{name}"),
    "by a folder and back": ("f", "{outside}", "f/../{name}"),
    "to a file, in full": ("{name}", "{outside}/bashrc", "{place}/{name}"),
}
"""What a stranger's branch may have where a recipe writes: a link, where it leads to, and how the recipe names it."""


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights")
@pytest.mark.parametrize("way", LINKS)
@pytest.mark.parametrize(("name", "option"), OUTPUTS)
def test_no_output_goes_through_a_link(
    name: str,
    option: str,
    way: str,
    folder: Path,
    tmp_path: Path,
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is refused by its name, by the command that works else; nothing is changed or new, and the link stays."""
    place, outside = tmp_path / "clone", tmp_path / "outside"
    shutil.copytree(folder, place, ignore=lambda *_: ["link", "log.csv"])
    outside.mkdir()
    for one in (outside / "bashrc", place / "kept"):
        one.write_text("kept\n")
    monkeypatch.chdir(place)
    names = {"place": place, "outside": outside, "name": NAMES.get(option, "o.json")}
    link, to, target = (one.format(**names) for one in LINKS[way])
    Path(link).symlink_to(to)
    before = sorted(one.name for one in tmp_path.rglob("*"))

    status, _, err = call(*RUNS[name], *said_of(option, target))
    assert (status, sorted(one.name for one in tmp_path.rglob("*"))) == (2, before)
    assert "is a symbolic link" in err
    assert (outside / "bashrc").read_text() == (place / "kept").read_text() == "kept\n"


@pytest.mark.parametrize(("name", "option"), OUTPUTS)
def test_a_file_of_two_names_is_replaced_under_one(
    name: str, option: str, folder: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nobody may run what takes the place of a program, though all may read it who might before."""
    place, file = tmp_path / "clone", Path(NAMES.get(option, "o.json"))
    shutil.copytree(folder, place, ignore=lambda *_: ["link", "log.csv"])
    monkeypatch.chdir(place)
    file.write_text("kept\n")
    file.chmod(0o4755)
    Path("second").hardlink_to(file)

    assert call(*RUNS[name], *said_of(option, str(file)))[0] in (0, 1, 3)
    assert Path("second").read_text() == "kept\n"
    assert file.read_bytes() != b"kept\n"
    assert file.stat().st_mode & 0o7777 == 0o644


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights")
def test_files_of_a_folder_and_the_summary_of_a_workflow_go_through_no_link(
    folder: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of predictions, folders that would be made for it, and what is appended to."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "clone").mkdir()
    monkeypatch.chdir(tmp_path / "clone")
    Path("out").symlink_to(outside)
    Path("summary").symlink_to(outside / "new")
    for to in ("out/", "out/deeper/"):
        assert (
            call(
                "predict", str(folder / "r.fairfix"), str(folder / "d.parquet"), "--config", "none", "-o", to
            )[0]
            == 2
        )
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "clone" / "summary"))
    call("report", str(folder / "r.json"), "--format", "github")
    assert list(outside.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="no names of descriptors")
def test_other_descriptors_are_written_to_where_they_stand(folder: Path) -> None:
    """A file that a shell opened as descriptor 5 for appending is appended to."""
    line = '"$0" -m fairfix report r.json --out github=/dev/fd/5 5>> five.txt'
    (folder / "five.txt").write_text("kept\n")
    subprocess.run(["sh", "-c", line, sys.executable], cwd=folder, stdout=subprocess.DEVNULL, check=True)

    kept, *added = (folder / "five.txt").read_text().splitlines()
    assert kept == "kept"
    assert added[-1].startswith("::notice title=fairfix audit")


# ---------------------------------------------------------------------- runs that did not happen

OUTS = tuple(part for name in FILES for part in ("--out", f"{name}=a.{name}"))
UNRUN = json_schema("unrun")
AUDIT = ("audit", "d.parquet", "--protected", "race", "-q")


def assert_told(message: str, code: str, names: Iterable[str] = FILES) -> None:
    """Hold every report against what happened."""
    texts = {name: text_of(Path(f"a.{name}").read_bytes()) for name in names}
    for name, text in texts.items():
        assert message in html.unescape(text).replace("\\", "").replace(") Tj T* (", " "), name
    if "json" in texts:
        content = json.loads(texts["json"])
        jsonschema.validate(content, UNRUN, jsonschema.Draft202012Validator)
        assert content["code"] == code
    if "junit" in texts:
        assert ET.fromstring(texts["junit"]).attrib["errors"] == "1"  # noqa: S314  our own XML
    if "sarif" in texts:
        (one,) = json.loads(texts["sarif"])["runs"]
        assert not one["invocations"][0]["executionSuccessful"]
        assert "results" not in one


@pytest.fixture
def reported(folder: Path, away: None, call: Call) -> None:
    """Rows in the current folder, with an earlier report in every format."""
    shutil.copy(folder / "d.parquet", "d.parquet")
    assert call(*AUDIT, *OUTS)[0] == 0


@pytest.mark.parametrize(
    ("line", "message", "code"),
    [
        ((*AUDIT[:3], "rase", "-q"), "no column 'rase'", "column"),
        ((*AUDIT, "--no-such"), "No such option '--no-such'", "usage"),
        ((*AUDIT, "--confidence", "high"), "must be a finite number, got 'high'", "usage"),
        ((*AUDIT, "--check", "nothing<=1"), "unknown metric 'nothing'", "usage"),
        (("audit", "e.parquet", "--protected", "race"), "e.parquet does not exist", "data"),
        (("report", "d.parquet"), "is not a JSON result", "data"),
    ],
)
def test_old_reports_are_replaced(
    line: tuple[str, ...], message: str, code: str, reported: None, call: Call
) -> None:
    """Whatever stops the run, and however the files are named on the line."""
    for outs in (OUTS, tuple(f"--out={one}" for one in OUTS[1::2])):
        err = call.refused(*line, *outs)
        assert f"[{code}]" in err
        assert_told(message, code)


def test_a_line_that_cannot_be_read_harms_nothing_else(reported: None, call: Call) -> None:
    """Neither data, nor a baseline, nor what is no report of fairfix."""
    Path("notes.md").write_text("mine")
    kept = {name: Path(name).read_bytes() for name in ("d.parquet", "a.json", "notes.md")}
    outs = [f"--out={one}" for one in ("json=d.parquet", "json=a.json", "markdown=notes.md", "junit=a.junit")]
    assert call(*AUDIT, *outs, "--baseline", "a.json", "--no-such")[0] == 2
    assert call(*AUDIT, "--baseline", "a.json", "--out", "json=a.json")[0] == 2
    Path("fairfix.toml").write_text('[audit]\nbaseline = "a.json"\nno-such = 1\n')
    assert call(*AUDIT, "--out", "json=a.json")[0] == 2

    assert {name: Path(name).read_bytes() for name in kept} == kept
    assert_told("No such option", "usage", ["junit"])


def test_files_of_the_configuration_are_told_too(reported: None, call: Call) -> None:
    Path("fairfix.toml").write_text('protected = "race"\nout = ["junit=a.junit", "json=a.json"]\n')
    assert call("audit", "d.parquet", "--no-such")[0] == 2
    assert_told("No such option", "usage", ["junit", "json"])


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (ZeroDivisionError("x"), 70, "bug"),
        (None, 143, "interrupted"),
    ],
)
def test_runs_that_are_broken_off_say_so(
    error: BaseException | None, status: int, code: str, reported: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that is asked to stop, as by a CI system whose time is over."""

    def broken(_: object) -> None:
        if error is None:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        raise error

    monkeypatch.setattr("fairfix.tasks.audit.run_audit", broken)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        main([*AUDIT, *OUTS])
    signal.signal(signal.SIGTERM, before)

    assert ended.value.code == status
    assert_told("fairfix audit was", code, ["html", "junit", "github", "markdown", "text"])


def test_a_run_under_way_has_no_earlier_report(
    reported: None, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever kills it now leaves whole reports that say so. No other file is made or changed before the end."""
    Path("notes.md").write_text("mine")
    run_audit = import_module("fairfix.tasks.audit").run_audit

    def watched(request: object) -> object:
        assert_told("the run did not finish", "interrupted")
        assert json.loads(Path("a.json").read_text())["status"] == 137
        assert Path("notes.md").read_text() == "mine"
        assert not Path("new.json").exists()
        return run_audit(request)

    monkeypatch.setattr("fairfix.tasks.audit.run_audit", watched)
    assert call(*AUDIT, *OUTS, "--out", "json=new.json", "--out", "markdown=notes.md")[0] == 0
    assert Path("new.json").read_text() == Path("a.json").read_text()
    assert "did not finish" not in Path("a.html").read_text()
    assert Path("notes.md").read_text() != "mine"


def test_every_status_of_a_failure_is_in_the_schema() -> None:
    """Those of verdicts are not, and that of a killed process is."""
    verdicts = {ExitStatus.OK, ExitStatus.FAILED, ExitStatus.UNDECIDED}
    assert set(UNRUN["properties"]["status"]["enum"]) == {*map(int, set(ExitStatus) - verdicts), 137}


def test_what_is_printed_says_so_but_for_text(reported: None, call: Call) -> None:
    for name in PRINTED:
        status, out, _ = call(*AUDIT, "--format", name, "--baseline", "no.json")
        assert status == 2
        assert ("no.json does not exist" in out.replace("\\", "")) == (name != "text")


def test_what_stands_for_a_result_is_none(reported: None, call: Call) -> None:
    """Neither rendered nor taken for a baseline; the message is that of its run."""
    assert call(*AUDIT, "--check", "nothing<=1", "--out", "json=a.json")[0] == 2
    for line in (("report", "a.json"), (*AUDIT, "--baseline", "a.json")):
        err = call.refused(*line)
        assert "its run failed: check 'nothing" in err


@pytest.mark.parametrize("name", sorted({*FORMATS} - {*PRINTED}))
def test_a_format_of_bytes_is_for_files_alone(name: str, call: Call, tmp_path: Path) -> None:
    """Nothing is printed where one is asked to be, not even that there is no result."""
    err = call.refused("audit", "x.csv", "--protected", "race", "--format", name)
    assert name in err
