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
from fairfix.data.targets import is_own
from fairfix.models.user_file import file_hash
from fairfix.report import endings

from tests.conftest import Call, Frames
from tests.results import FILES

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
    "processes here": 'data = "d.parquet"\ncluster = "local:2"\n',
    "a log": 'data = "d.parquet"\nlog = "mlflow"\n',
    "a query": "sql = \"SELECT read_text('/etc/passwd')\"\n",
    "a URL": 'data = "https://evil.example/d.parquet"\n',
    "a database": 'data = "postgresql://evil.example/db"\n',
    "data above": 'data = "../outside/d.parquet"\n',
    "data by a link": 'data = "link.parquet"\n',
    "a table of data by a link": 'data = "link.parquet#x"\n',
    "an absolute path": 'data = "d.parquet"\nbaseline = "/etc/passwd"\n',
    "an earlier model's data": 'data = "d.parquet"\nbaseline = "s3://evil/d.parquet"\nid = "x"\n',
    "a report outside": 'data = "d.parquet"\nout = ["json=../outside/new.json"]\n',
    "a report by a URL": 'data = "d.parquet"\nout = ["json=s3://evil/new.json"]\n',
    "a state outside": 'data = "d.parquet"\nstate = "../outside/new.counts"\n',
    "a state that hides": 'data = "d.parquet"\nstate = ".git/new.counts"\n',
    "a state of any name": 'data = "d.parquet"\nstate = "d.pth"\n',
    "counts outside": 'data = "d.parquet"\n[count]\noutput = "../outside/new.counts"\n',
}


@pytest.mark.parametrize("project", [False, True], ids=["fairfix.toml", "pyproject.toml"])
@pytest.mark.parametrize("name", REACH)
def test_what_was_found_reaches_nothing_beyond_its_folder(
    name: str, project: bool, clone: Path, call: Call
) -> None:
    """Refused with the key and the remedy, wherever below it the work is done; nothing is written, not even why."""
    text = PLAIN + REACH[name]
    if project:
        text = "[tool.fairfix]\n" + text.replace("[count]", "[tool.fairfix.count]")
        (clone / "pyproject.toml").write_text(text)
    else:
        (clone / "fairfix.toml").write_text(text)
    err = call.refused("count" if name == "counts outside" else "audit")
    assert "was found, not named, so it cannot set " in err
    assert "--config ../" in err
    assert names(clone.parent / "outside") == ["d.parquet"]
    assert names(Path()) == []


PATTERNS = {
    "a link that a pattern matches": "lin*.parquet",
    "a linked folder in a pattern": "l*/d.parquet",
    "one sign of a linked folder": "?inked/d.parquet",
    "a set of signs": "[l]inked/d.parquet",
    "every folder": "**/*.parquet",
    "a folder with a link": "mixed",
    "the way up behind a pattern": "*/../../outside/d.parquet",
    "the way up behind a folder called *": "*/../../../outside/d.parquet",
}
"""Names of data of which only some file lies elsewhere."""


@pytest.mark.slow
@pytest.mark.parametrize("key", ["data", "baseline"])
@pytest.mark.parametrize("name", PATTERNS)
def test_no_pattern_and_no_link_in_a_folder_leads_out(name: str, key: str, clone: Path, call: Call) -> None:
    """The same data is read where all of it lies beneath the folder, and where the command line names it."""
    (clone / "linked").symlink_to(clone.parent / "outside")
    (clone / "mixed").mkdir()
    (clone / "mixed" / "e.parquet").symlink_to(clone.parent / "outside" / "d.parquet")
    (clone / "a" / "b").mkdir(parents=True)
    (clone / "*").symlink_to(clone / "a" / "b")
    more = 'data = "d.parquet"\nid = "x"\n' if key != "data" else ""
    config = clone / "fairfix.toml"

    config.write_text(f'{PLAIN}{more}{key} = "{PATTERNS[name]}"\n')
    err = call.refused("audit")
    assert "was found, not named, so it cannot set " in err
    config.write_text(f'{PLAIN}data = "[d]*.parquet"\n')
    assert call("audit", "-q")[0] == 0
    assert call("audit", "../mixed", "-q")[0] == 0


def test_a_pickle_that_it_trusts_runs_only_when_it_is_named(clone: Path, call: Call) -> None:
    """Found, it does not even trust a model that the line names; named, it is heeded."""
    text = f'{PLAIN}data = "d.parquet"\nmodel = "m.pkl"\ntrust-model = "{file_hash(clone / "m.pkl")}"\n'
    (clone / "fairfix.toml").write_text(text)
    assert call("audit")[0] == 2
    assert call("audit", "--model", "../m.pkl")[0] == 2
    assert not Path("ran").exists()

    err = call.refused("audit", "--config", "../fairfix.toml")  # what the pickle holds is no model
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
    assert call("audit", "--config", "none", "../link.parquet", "--protected", "race", "--quiet")[0] == 0


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


# ---------------------------------------------------------------------- what it may write, and where


PROGRAM = "#!/bin/sh\ntouch ran\n"
OWN_NAME = "import os;os.system('touch ran')"

FORBIDDEN = {
    "code of an environment": ".venv/lib/python3.11/site-packages/evil.pth",
    "an environment without a dot": "env/lib/r.txt",
    "packages": "lib/site-packages/r.txt",
    "packages of node": "node_modules/r.txt",
    "packages of a system": "Lib/Site-Packages/r.txt",
    "a hook": ".git/hooks/pre-commit",
    "a hidden folder": ".vscode/r.txt",
    "a hidden file": ".r.txt",
    "a makefile": "Makefile",
    "the configuration": "fairfix.toml",
    "another ending": "r.html",
    "no ending": "r",
    "a folder": "folder.txt",
    "what somebody wrote": "notes.txt",
    "a link": "link.txt",
    "a link to nothing": "dangling.txt",
    "a link to a folder": "linked/r.txt",
    "a link to a folder here": "inner/r.txt",
    "by a link and back": "linked/../r.txt",
}
"""Where a text report must not go by the will of a configuration that was found."""


@pytest.fixture
def trapped(clone: Path, monkeypatch: pytest.MonkeyPatch, frames: Frames) -> Path:
    """A clone with all that an attack needs, in which one works."""
    frames(200).rename(columns={"race": OWN_NAME}).to_parquet(clone / "d.parquet")
    outside = clone.parent / "outside"
    for folder in (".venv/lib/python3.11/site-packages", "env/lib", "lib/site-packages", "node_modules",
                   "Lib/Site-Packages", ".git/hooks", ".vscode", "folder.txt"):  # fmt: skip
        (clone / folder).mkdir(parents=True, exist_ok=True)
    for file in (".git/hooks/pre-commit", "Makefile", "notes.txt"):
        (clone / file).write_text(PROGRAM)
        (clone / file).chmod(0o755)
    (clone / "env" / "pyvenv.cfg").touch()
    (outside / "bashrc").write_text(PROGRAM)
    (clone / "link.txt").symlink_to(outside / "bashrc")
    (clone / "dangling.txt").symlink_to(outside / "new")
    (clone / "linked").symlink_to(outside)
    (clone / "inner").symlink_to(clone / "work")
    monkeypatch.chdir(clone)
    return clone


def content_of(folder: Path) -> dict[str, bytes]:
    """Return what is in every file below a folder, by name; links are not followed."""
    files = (one for one in folder.rglob("*") if one.is_file() and not one.is_symlink())
    return {str(one.relative_to(folder)): one.read_bytes() for one in files}


@pytest.mark.slow
@pytest.mark.parametrize("whole", [False, True], ids=["relative", "absolute"])
@pytest.mark.parametrize("method", [False, True], ids=["by a key", "by the table of a method"])
@pytest.mark.parametrize("name", FORBIDDEN)
def test_what_was_found_writes_no_code(
    name: str, method: bool, whole: bool, trapped: Path, call: Call
) -> None:
    """Nothing is changed or new, inside the folder or outside, by a run that works or by word of one that does not."""
    file = str(trapped / FORBIDDEN[name]) if whole else FORBIDDEN[name]
    table = "[repair.ramp]\n" if method else ""
    text = f'data = "d.parquet"\nprotected = "{OWN_NAME}"\n{table}out = ["text={file}"]\n'
    (trapped / "fairfix.toml").write_text(text)
    before = content_of(trapped.parent)
    line = ("repair", "--method", "ramp", "-o", "../outside/r.fairfix") if method else ("audit",)

    err = call.refused(*line)
    assert "was found, not named, so it cannot set --out" in err
    (trapped / "fairfix.toml").write_text(text + "nonsense = 1\n")
    assert call(*line)[0] == 2
    (trapped / "fairfix.toml").write_text(text)
    assert content_of(trapped.parent) == before
    assert not (trapped.parent / "outside" / "new").exists()


def test_no_key_of_a_method_is_a_way_around(trapped: Path, call: Call) -> None:
    """A model that is trusted, a query or a cluster in the table of a method reaches as little as elsewhere."""
    digest = file_hash(trapped / "m.pkl")
    for key in (
        'model = "m.pkl"',
        f'trust-model = "{digest}"',
        'sql = "SELECT 1"',
        'data = "../outside/d.parquet"',
    ):
        (trapped / "fairfix.toml").write_text(f"[repair.ramp]\n{key}\n")
        line = ("repair", "d.parquet") if not key.startswith("data") else ("repair",)
        assert call(*line, "--protected", "town", "--method", "ramp")[0] == 2
        assert not (trapped / "repaired.fairfix").exists()
    assert not Path("ran").exists()


WRITES: dict[str, tuple[str, str]] = {
    **{f"audit {name}": ("out", f"{name}=new{endings(name)[0]}") for name in FILES},
    "count": ("output", "new.counts"),
    "repair": ("output", "new.fairfix"),
    "compare html": ("out", "html=new.html"),
    "compare text": ("out", "text=new.txt"),
    "repair json": ("out", "json=new.json"),
    "repair card": ("out", "card=new.md"),
    "predict parquet": ("output", "new.parquet"),
    "predict csv": ("output", "new.csv.gz"),
    "predict arrow": ("output", "new.arrow"),
}
"""Command -> what a configuration that was found may write."""


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITES)
def test_it_may_write_what_fairfix_writes_again_and_nothing_else(
    name: str, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new file, and over its own of an earlier run, also of one that did not happen; never over another's."""
    monkeypatch.chdir(clone)
    command, (key, to) = name.split()[0], WRITES[name]
    file = Path(to.partition("=")[2] or to)
    (clone / "fairfix.toml").write_text(f"[{command}]\n{key} = {json.dumps([to] if key == 'out' else to)}\n")
    lines = {
        "audit": ["audit", "d.parquet", "--protected", "race", "--check", "dp.difference<=0.9"],
        "repair": ["repair", "d.parquet", "--protected", "race", "--method", "ramp"],
        "compare": ["compare", "d.parquet", "--protected", "race", "--methods", "ramp", "--slacks", "0.1"],
        "predict": ["predict", "r.fairfix", "d.parquet"],
        "count": ["count", "d.parquet", "--protected", "race"],
    }
    if command == "predict":
        made = [*lines["repair"], "-o", "r.fairfix", "-q", "--config", "none"]
        assert run(made) in (0, 1, 3)
    line = lines[command]
    assert run([*line, "-q"]) in (0, 1, 3)
    assert is_own(file)
    assert run([*line, "-q"]) in (0, 1, 3)
    if key == "out":
        assert run([*line, "-q", "--label", "nowhere"]) == 2
        assert is_own(file)
        assert run([*line, "-q"]) in (0, 1, 3)

    file.write_bytes(b"# fairfix is what we use\nall:\n\ttouch ran\n")
    assert run([*line, "-q"]) == 2
    assert file.read_bytes().startswith(b"# fairfix is what we use")
    assert run([*line, "-q", "--" + key, to]) in (0, 1, 3)  # the user's own word


@pytest.mark.slow
def test_no_text_of_this_repository_is_taken_for_a_report() -> None:
    """Of people, though many of them tell of fairfix; its saved results are its own."""
    root = Path(__file__).parents[2]
    texts = [
        one
        for one in root.rglob("*")
        if one.suffix in (".md", ".toml", ".py", ".yml", ".cff", ".json", ".csv")
    ]
    others = [one for one in texts if not {".venv", ".git", "shots", "demo"} & {*one.relative_to(root).parts}]
    assert len(others) > 300
    assert [one for one in others if is_own(one) and "docs/papers" not in one.as_posix()] == []
