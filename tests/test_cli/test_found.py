"""A configuration that was found, not named, may be a stranger's: what it cannot say, and what it still can.

Every test is a run by the shell's words in a clone whose ``fairfix.toml`` somebody else has written.
"""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest
from fairfix.cli import run
from fairfix.models.user_file import file_hash

from tests.conftest import Call, Frames

PLAIN = 'protected = "race"\n'


class Trap:
    """Writes a file when it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (Path("ran").absolute(),))


def names(folder: Path) -> list[str]:
    """What is in a folder."""
    return [one.name for one in folder.iterdir()]


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frames: Frames) -> Path:
    """A clone with data, a pickle and a folder to work in, which is the current one."""
    folder = tmp_path / "clone"
    (folder / "work").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    frames(200).to_parquet(folder / "d.parquet")
    (tmp_path / "outside" / "d.parquet").write_bytes((folder / "d.parquet").read_bytes())
    (folder / "link.parquet").symlink_to(tmp_path / "outside" / "d.parquet")
    monkeypatch.chdir(folder / "work")
    (folder / "m.pkl").write_bytes(pickle.dumps(Trap()))
    return folder


REACH = {
    "a model": 'data = "d.parquet"\nmodel = "m.onnx"\n',
    "trust": 'data = "d.parquet"\ntrust-model = "sha256:' + "0" * 64 + '"\n',
    "a cluster": 'data = "d.parquet"\ncluster = "tcp://evil.example:8786"\n',
    "a query": "sql = \"SELECT read_text('/etc/passwd')\"\n",
    "a table": 'table = "/etc/passwd"\n',
    "a URL": 'data = "https://evil.example/d.parquet"\n',
    "a database": 'data = "postgresql://evil.example/db"\n',
    "data above": 'data = "../outside/d.parquet"\n',
    "data by a link": 'data = "link.parquet"\n',
    "an absolute path": 'data = "d.parquet"\nbaseline = "/etc/passwd"\n',
    "an earlier model's data": 'data = "d.parquet"\nbaseline-data = "s3://evil/d.parquet"\nid = "x"\n',
    "a report outside": 'data = "d.parquet"\nout = ["json=../outside/new.json"]\n',
    "a report by a URL": 'data = "d.parquet"\nout = ["json=s3://evil/new.json"]\n',
    "counts outside": 'data = "d.parquet"\n[audit]\ncounts-out = "../outside/new.counts"\n',
}


@pytest.mark.parametrize("project", [False, True], ids=["fairfix.toml", "pyproject.toml"])
@pytest.mark.parametrize("name", REACH)
def test_what_was_found_reaches_nothing_beyond_its_folder(
    name: str, project: bool, clone: Path, call: Call
) -> None:
    """Refused with the key and the remedy, wherever below it the work is done; nothing is written, not even why."""
    text = PLAIN + REACH[name]
    if project:
        text = "[tool.fairfix]\n" + text.replace("[audit]", "[tool.fairfix.audit]")
        (clone / "pyproject.toml").write_text(text)
    else:
        (clone / "fairfix.toml").write_text(text)
    status, out, err = call("audit")

    assert (status, out) == (2, "")
    assert "was found, not named, so it cannot say " in err
    assert "--config ../" in err
    assert names(clone.parent / "outside") == ["d.parquet"]
    assert names(Path()) == []


@pytest.mark.parametrize("key", ["output", "picture"])
def test_files_of_other_commands_stay_beneath_it_too(key: str, clone: Path, call: Call) -> None:
    (clone / "fairfix.toml").write_text(f'{PLAIN}data = "d.parquet"\n{key} = "../outside/new"\n')
    command = ("repair", "--method", "ramp") if key == "output" else ("compare",)

    assert call(*command)[0] == 2
    assert names(clone.parent / "outside") == ["d.parquet"]


def test_a_pickle_that_it_trusts_runs_only_when_it_is_named(clone: Path, call: Call) -> None:
    """Found, it does not even trust a model that the line names; named, it is heeded."""
    text = f'{PLAIN}data = "d.parquet"\nmodel = "m.pkl"\ntrust-model = "{file_hash(clone / "m.pkl")}"\n'
    (clone / "fairfix.toml").write_text(text)
    assert call("audit")[0] == 2
    assert call("audit", "--model", "../m.pkl")[0] == 2
    assert not Path("ran").exists()

    status, _, err = call("audit", "--config", "../fairfix.toml")
    assert status == 2  # what the pickle holds is no model
    assert "was found" not in err
    assert Path("ran").exists()


def test_the_environment_names_it(clone: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    (clone / "fairfix.toml").write_text(PLAIN + 'data = "../outside/d.parquet"\n')
    assert call("audit")[0] == 2
    monkeypatch.setenv("FAIRFIX_CONFIG", "../fairfix.toml")
    assert call("audit")[0] == 0


def test_what_the_line_says_is_not_asked_of_it(clone: Path, call: Call) -> None:
    """A key that is overridden reaches nothing; files beneath the folder may be named, and written."""
    (clone / "fairfix.toml").write_text(
        PLAIN + 'data = "https://evil.example/d"\n[audit]\nout = ["json=work/r.json"]\n'
    )
    assert call("audit", "../d.parquet", "--quiet")[0] == 0
    assert json.loads(Path("r.json").read_text())["data"]["rows"]["read"] == 200
    assert call("audit", "--no-config", "../link.parquet", "--protected", "race", "--quiet")[0] == 0


def test_of_a_run_that_fails_nothing_is_written_outside(clone: Path, call: Call) -> None:
    """A report that says why a run did not happen is a report too."""
    (clone / "fairfix.toml").write_text(
        'nonsense = 1\nout = ["json=../outside/new.json", "html=here.html"]\n'
    )
    assert call("audit", "../d.parquet", "--protected", "race")[0] == 2
    assert names(clone.parent / "outside") == ["d.parquet"]


def test_init_says_how_to_run_what_it_wrote(clone: Path, call: Call) -> None:
    """Of data beneath the folder `fairfix audit` alone, of data elsewhere with the file named; both run."""
    for data, line in (
        ("d.parquet", "fairfix audit"),
        ("../outside/d.parquet", "fairfix audit --config fairfix.toml"),
    ):
        os.chdir(clone)
        status, _, err = call("init", data, "--protected", "race", "--force")
        assert status == 0
        assert f"'{line}'" in err
        assert f"'{line}'" in Path("fairfix.toml").read_text()
        assert run([*line.split()[1:], "--quiet"]) == 0
