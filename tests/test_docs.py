"""The docs are executed: what they show runs, what they say it prints is printed, what is generated is in step.

Conventions of README.md and of every page of docs/: a block marked ``sh`` runs, in order,
in one folder with a copy of the sample data, and ends with status 0 or with that of ``<!-- exit: N -->`` above it. A
block marked ``text`` right behind it is a part of what it prints, on stdout and then on stderr; ``...`` stands for
what is left out, and runs of blanks are one. Under ``<!-- printed: N -->`` it is the first N lines in a terminal of 80
columns, exactly. A block under ``<!-- file: NAME -->`` is written to that file first. Blocks of other languages are
not run here.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import StringIO, TextIOWrapper
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow.csv
import pytest
import yaml
from fairfix.cli import run
from fairfix.data.row_hash import decide, identity_of
from fairfix.methods import available
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.repaired import Repaired

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "sample_data" / "README.md"]
BLOCK = re.compile(
    r"^(?:<!-- (exit|file|printed): (\S+) -->\n)?```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE
)
REPAIR = "fairfix repair sample_data/loans.parquet --method ramp --protected race --gamma 0.5"
PREDICT = "fairfix predict repaired.fairfix sample_data/new_applicants.csv -o decided.csv"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the sample data in it."""
    shutil.copytree(ROOT / "sample_data", tmp_path / "sample_data")
    return tmp_path


HAND_OVER = """#!/bin/sh
case " $* " in *' - '*) cat > "${0%/*}/in" ;; *) : > "${0%/*}/in" ;; esac
printf '%s\\0' "$PWD" "${FAIRFIX_TODAY-}" "$@" > "${0%/*}/call"
read -r status < "${0%/*}/status"
cat "${0%/*}/out"
cat "${0%/*}/err" >&2
exit "$status"
"""
"""The program ``fairfix`` of the shells below: it hands its call to this process, which has everything imported."""


def execute(script: str, folder: Path, columns: int = 160) -> subprocess.CompletedProcess[str]:
    """Run commands as a shell in CI would: the first that fails ends them."""
    with TemporaryDirectory() as name:
        room = Path(name)
        program, call, answer = room / "fairfix", room / "call", room / "status"
        program.write_text(HAND_OVER)
        program.chmod(0o755)
        os.mkfifo(call)
        os.mkfifo(answer)
        clean = {name: value for name, value in os.environ.items() if not name.startswith("FAIRFIX_")}
        path = os.pathsep.join([str(room), str(Path(sys.executable).parent), os.environ["PATH"]])
        process = subprocess.Popen(
            ["sh", "-euc", script],
            cwd=folder,
            env={**clean, "PATH": path},
            stdin=-3,
            stdout=-1,
            stderr=-1,
            text=True,
        )

        def finish() -> tuple[str, str]:
            texts = process.communicate()
            call.write_bytes(b"")  # no call any more
            return texts

        with ThreadPoolExecutor() as pool:
            texts = pool.submit(finish)
            while request := call.read_bytes():
                where, today, *arguments = request.decode().split("\0")[:-1]
                status = answered(arguments, Path(where), today, room, columns)
                answer.write_text(f"{status}\n")
            return subprocess.CompletedProcess(script, process.returncode, *texts.result())


@contextlib.contextmanager
def piped(path: Path) -> Iterator[None]:
    """Make a file the standard input of this process for a while."""
    before = os.dup(0)
    with path.open("rb") as file:
        os.dup2(file.fileno(), 0)
    try:
        yield
    finally:
        os.dup2(before, 0)
        os.close(before)


def answered(arguments: list[str], folder: Path, today: str, room: Path, columns: int) -> int:
    """Run a command in a folder, on a day if one is set, and write what it prints; return its status.

    At 160 columns one table is printed where a narrow terminal has two.
    """
    out, err = (TextIOWrapper((room / name).open("wb"), "utf-8") for name in ("out", "err"))
    with (
        out, err, pytest.MonkeyPatch.context() as patch, contextlib.chdir(folder), piped(room / "in"),
        contextlib.redirect_stdout(out), contextlib.redirect_stderr(err),
    ):  # fmt: skip
        patch.setenv("COLUMNS", str(columns))
        if today:
            patch.setenv("FAIRFIX_TODAY", today)
        return run(arguments)


def blocks(page: str, language: str) -> list[str]:
    """Return the blocks of one language."""
    return [found[3] for found in BLOCK.findall((ROOT / page).read_text()) if found[2] == language]


def missing_from(printed: str, shown: str) -> list[str]:
    """Return the lines of ``shown`` that no line of ``printed`` holds, in the order of both."""
    lines = iter(" ".join(line.split()) for line in printed.splitlines())
    missing = []
    for line in shown.splitlines():
        wanted = " ".join(line.split())
        pattern = re.compile(".*?".join(re.escape(part.strip()) for part in wanted.split("...")))
        if wanted != "..." and not any(pattern.search(found) for found in lines):
            missing.append(line)
    return missing


@pytest.mark.slow(every=True)
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if "\n```sh\n" in page.read_text()],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_commands_in_the_docs_run_and_print_what_is_shown(
    page: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every sh block ends with the status it says, and prints the text block behind it."""
    run_page(page, checkout, monkeypatch)


@pytest.mark.slow
def test_recipes_for_ci_do_not_depend_on_the_width(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runners have terminals of any width, or none."""
    run_page(ROOT / "docs" / "ci.md", checkout, monkeypatch, 60)


def run_page(page: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch, columns: int = 160) -> None:
    """Run the sh blocks of a page one after the other, and compare what they print; Python is run elsewhere."""
    for name in [name for name in os.environ if name.startswith("FAIRFIX_")]:
        monkeypatch.delenv(name)
    printed, ran = None, 0
    text = page.read_text()
    every = BLOCK.findall(text)
    for (mark, value, language, block), (then, *_) in zip(every, [*every[1:], ("",)], strict=True):
        if mark == "file":
            (checkout / value).write_text(block)
        elif language == "sh":
            done = execute(block, checkout, 80 if then == "printed" else columns)
            assert done.returncode == int(value or 0), (block, done.stderr)
            printed, ran = f"{done.stdout}\n{done.stderr}", ran + 1
        elif language == "python":
            printed = None
        elif mark == "printed":
            assert first_lines(done.stdout, int(value)) == block
        elif language == "text" and printed is not None:
            assert not missing_from(printed, block)

    assert ran == text.count("\n```sh\n")


def first_lines(printed: str, many: int) -> str:
    """Return the first lines of what is printed, without the digits of hashes; dots stand for the others."""
    lines = [re.sub("(sha256:)[0-9a-f]{64}", r"\1...", line).rstrip() for line in printed.splitlines()]
    return "\n".join([*lines[:many], *["..."] * (len(lines) > many)]) + "\n"


def scripts_of(node: Any) -> Iterator[str]:
    """Yield the shell commands of a parsed CI file: run, script and entry, as the runners would put them together."""
    if isinstance(node, list):
        for one in node:
            yield from scripts_of(one)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key in ("run", "entry", "script"):
                yield value if isinstance(value, str) else "\n".join(value)
            else:
                yield from scripts_of(value)


STUBS = ("pip() { :; }", "gh() { case $2 in list) ;; *) false ;; esac; }")
"""What is not there, or not to be called; there is no run on the main branch."""

SECOND = """cp fairness.json earlier.json
gh() { case $2 in list) echo 7 ;; download) mkdir baseline && cp earlier.json baseline/fairness.json ;; esac; }"""
"""As if the first run had been on the main branch."""


@pytest.mark.slow
def test_the_recipes_for_ci_run(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every YAML block of docs/ci.md is sound, and its commands end with the status it says, in order."""
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(checkout / "summary.md"))
    seen = []
    for mark, value, language, block in BLOCK.findall((ROOT / "docs" / "ci.md").read_text()):
        if mark == "file":
            (checkout / value).write_text(block)
        if language != "yaml":
            continue
        scripts = list(scripts_of(yaml.safe_load(block)))
        done = execute("\n".join([*STUBS, *scripts]), checkout)
        assert done.returncode == int(value or 0), (scripts, done.stderr)
        seen += scripts
        if "--format github" in block:
            assert "no baseline yet" in done.stdout
            assert "::error title=dp.difference[race]<=0.1,file=fairfix.toml,line=7::FAIL" in done.stdout
            assert (checkout / "comment.md").read_text().startswith("<!-- fairfix audit -->")
            again = execute("\n".join([*STUBS, SECOND, *scripts]), checkout)
            assert "no baseline yet" not in again.stdout
            assert json.loads((checkout / "fairness.json").read_text())["baseline"]["unchanged"]

    assert len(seen) == 6
    assert "dp.difference" in (checkout / "summary.md").read_text()
    assert "<testsuites" in (checkout / "fairness.xml").read_text()
    assert "<html" in (checkout / "fairness.html").read_text()


@pytest.mark.parametrize(
    ("check", "given", "status", "annotations"),
    [
        ("dp.difference<=0.4", {}, 0, (0, 0)),
        ("dp.difference<=0.1 ks<=0.9", {}, 1, (1, 0)),
        ("\ndp.difference <= 0.1\n\n  eo.difference[race] <= 0.02\n", {}, 1, (2, 0)),
        ("dp.difference<=0.22", {}, 3, (0, 1)),
        ("dp.difference<=0.22", {"undecided": "pass"}, 0, (0, 1)),
        ("dp.difference<=0.22", {"data": "none.parquet"}, 2, (1, 0)),
    ],
    ids=["pass", "fail", "lines", "undecided", "undecided passes", "did not run"],
)
def test_the_action_gives_the_status(
    check: str, given: dict[str, str], status: int, annotations: tuple[int, int], runner: Callable[..., Any]
) -> None:
    """With the variables of GitHub: the status, annotations, the summary of the job, and a file of each format."""
    done, folder = runner(check=check, **given)

    assert (done.returncode, (folder / "output").read_text()) == (status, f"status={status}\n"), done.stderr
    assert (done.stdout.count("::error"), done.stdout.count("::warning")) == annotations
    assert (folder / "summary.md").stat().st_size
    assert all((folder / f"fairness.{ending}").stat().st_size for ending in ("json", "html", "xml", "sarif"))
    assert (folder / "comment.md").stat().st_size


def test_the_action_compares_with_a_baseline_of_the_same_name(runner: Callable[..., Any]) -> None:
    """The file that the audit replaces is read first; on a first run, checks of changes are not checked."""
    done, folder = runner(check="change<=0.5", baseline="fairness.json")
    assert "not checked: change<=0.5" in done.stderr
    done, folder = runner(check="change<=0.5", baseline="fairness.json")
    assert done.returncode == 0, done.stderr
    checks = json.loads((folder / "fairness.json").read_text())["checks"]
    assert any(".change<=0.5" in one["check"] for one in checks)


def test_the_action_publishes_nothing_that_the_branch_put_there(
    runner: Callable[..., Any], checkout: Path
) -> None:
    """Be it a comment of its own or a link to a secret, whether or not the audit runs."""
    (checkout / "secret").write_text("SECRET")
    names = ("comment.md", "fairness.json", "fairness.html", "fairness.sarif", "fairness.xml")
    for check, status in (("dp.difference<=0.9", 0), ("nothing", 2)):
        for name in names:
            (checkout / name).unlink(missing_ok=True)
            (checkout / name).symlink_to(checkout / "secret")
        (checkout / "fairness.html").unlink()
        (checkout / "fairness.html").write_text("SECRET")
        done, folder = runner(check=check)
        assert done.returncode == status
        assert all("SECRET" not in (folder / name).read_text() for name in names)
    assert (checkout / "secret").read_text() == "SECRET"


@pytest.mark.parametrize("allowed", [True, False])
def test_the_action_comments_where_it_may(
    *, allowed: bool, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (comment,) = (step for step in ACTION["runs"]["steps"] if "gh pr comment" in step.get("run", ""))
    monkeypatch.setenv("PULL_REQUEST", "7")
    stub = 'gh() { echo "$@"; }' if allowed else "gh() { false; }"
    done = execute(f"{stub}\n{comment['run']}", checkout)
    assert done.returncode == 0
    assert done.stdout.startswith("pr comment 7 --body-file comment.md" if allowed else "::warning::")


def test_no_input_of_the_action_reaches_a_script() -> None:
    """But as a variable: a template in a script would run what it is given."""
    assert not any("${{" in step.get("run", "") for step in ACTION["runs"]["steps"])
    used = re.findall(r"inputs\.([\w-]+)", (ROOT / "action.yml").read_text())
    assert {*used} == {*ACTION["inputs"]}


ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())


@pytest.fixture
def runner(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return a function of inputs that runs the step of the audit; it returns the process and its folder."""
    (audit,) = (step for step in ACTION["runs"]["steps"] if step.get("id") == "audit")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(checkout / "summary.md"))
    (checkout / "temporary").mkdir()
    monkeypatch.setenv("RUNNER_TEMP", str(checkout / "temporary"))

    def run(**inputs: str) -> tuple[Any, Path]:
        given = {"data": "sample_data/loans.parquet", "protected": "race"} | inputs
        for name, value in audit["env"].items():
            used = value.removeprefix("${{ inputs.").removesuffix(" }}")
            monkeypatch.setenv(name, given.get(used, ""))
        monkeypatch.setenv("GITHUB_OUTPUT", str(checkout / "output"))
        (checkout / "output").unlink(missing_ok=True)
        return execute(audit["run"], checkout), checkout

    return run


def test_the_site_takes_along_what_pages_link_to() -> None:
    """Files outside docs/ are listed in docs/site.py, which fails else."""
    listed = re.search(
        r"^BESIDE = \((.*?)^\)", (ROOT / "docs" / "site.py").read_text(), re.MULTILINE | re.DOTALL
    )
    assert listed
    beside = set(re.findall(r'"([^"]+)"', listed[1]))
    linked = set()
    for page in (ROOT / "docs").rglob("*.md"):
        for link in re.findall(r"\]\((\.\.?/[^)#\s]+)", page.read_text(encoding="utf-8")):
            target = (page.parent / link).resolve()
            if not target.is_relative_to(ROOT / "docs"):
                linked.add(target.relative_to(ROOT).as_posix())
    assert linked
    assert linked <= beside


def test_the_hook_is_the_one_of_the_docs() -> None:
    """.pre-commit-hooks.yaml is sound and runs what docs/ci.md shows, on the same files."""
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    (page,) = (block for block in blocks("docs/ci.md", "yaml") if "hooks:" in block)
    shown = yaml.safe_load(page)["repos"][0]["hooks"][0]

    assert all(hook[key] == shown[key] for key in ("id", "name", "files", "pass_filenames"))
    assert " ".join([hook["entry"], *hook["args"]]) == shown["entry"]


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("fairfix au", ["audit"]),
        ("fairfix count --sup", ["--suppress-below"]),
        ("fairfix audit --format j", ["json", "junit"]),
        ("fairfix explain to_", ["to_overall", "to_reference"]),
    ],
)
def test_bash_completes(words: str, completed: list[str], checkout: Path) -> None:
    """The line of docs/cli.md makes bash complete commands, options, choices and names."""
    if not shutil.which("bash"):
        pytest.skip("there is no bash")
    (line,) = blocks("docs/cli.md", "bash")
    program = checkout / "bin" / "fairfix"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fairfix "$@"\n')
    program.chmod(0o755)
    typed = words.split()
    script = (
        f"{line}\nCOMP_WORDS=({words}); COMP_CWORD={len(typed) - 1}; "
        'complete -p fairfix >&2; _fairfix_completion fairfix; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=checkout,
        env={**os.environ, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert "_fairfix_completion fairfix" in done.stderr
    assert done.stdout.split() == completed


def test_what_is_shown_is_compared() -> None:
    """A number that is not printed, or not in that order, is found; dots and blanks are not."""
    printed = "a  0.25  0.5\nb  0.75\n"

    assert not missing_from(printed, "a 0.25 ...\n...\nb 0.75")
    assert missing_from(printed, "a 0.26 ...") == ["a 0.26 ..."]
    assert missing_from(printed, "b 0.75\na 0.25") == ["a 0.25"]


def printed_by(example: str, folder: Path) -> str:
    """Return what a Python example prints that runs as it stands, in a folder."""
    out = StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out):
        exec(example, {"__name__": "__main__"})  # noqa: S102  the docs are ours
    return out.getvalue()


@pytest.mark.parametrize(("page", "texts"), [("README.md", 1), ("docs/first-python.md", 4)])
def test_python_prints_what_is_shown(page: str, texts: int, checkout: Path) -> None:
    """The blocks of a page run one after the other, and each prints the text behind it."""
    scope: dict[str, object] = {"__name__": "__main__"}
    shown, last = 0, ""
    for _, _, language, block in BLOCK.findall((ROOT / page).read_text()):
        if language == "python":
            out = StringIO()
            with contextlib.chdir(checkout), contextlib.redirect_stdout(out):
                exec(block, scope)  # noqa: S102  the docs are ours
        elif language == "text" and last == "python":
            assert not missing_from(out.getvalue(), block)
            shown += 1
        last = language
    assert shown == texts


def test_the_page_of_python_runs(checkout: Path) -> None:
    """Its blocks are one script; what they assert holds."""
    assert "Hispanic" in printed_by("\n".join(blocks("docs/python.md", "python")), checkout)


def test_the_documented_reader_reads_artifacts(checkout: Path) -> None:
    """The reader of docs/artifact.md, which uses nothing of fairfix, gives the same probabilities and decisions."""
    assert execute(f"{REPAIR} --id applicant_id\n{PREDICT}", checkout).returncode == 0
    (reader,) = blocks("docs/artifact.md", "python")
    assert "fairfix" not in reader
    assert 15 <= sum(bool(line.strip()) for line in reader.splitlines()) <= 22
    scope: dict[str, object] = {}
    exec(reader, scope)  # noqa: S102  the docs are ours
    manifest, arrays = scope["load"](checkout / "repaired.fairfix")
    rows = pyarrow.csv.read_csv(checkout / "decided.csv").to_pylist()
    for row in rows:
        chance = scope["p_positive"](manifest, arrays, [row["race"]], row["score"])
        assert chance == pytest.approx(row["p_positive"], abs=1e-15)
        assert scope["decision"](manifest, row["applicant_id"], chance) == row["decision"]

    assert sum(row["randomized"] for row in rows) > 100


def test_the_manifest_has_the_documented_keys(checkout: Path) -> None:
    """docs/artifact.md lists the keys of the manifest, all of them and no others."""
    assert execute(REPAIR, checkout).returncode == 0
    tables = re.findall(
        r"^\| key.*?\n\n", (ROOT / "docs" / "artifact.md").read_text(), re.DOTALL | re.MULTILINE
    )
    first = [row.split("|")[1] for table in tables for row in table.splitlines()[2:] if row]
    listed = {name for cell in first for name in re.findall(r"`(\w+)`", cell)}
    manifest = zipfile.ZipFile(checkout / "repaired.fairfix").read("manifest.json")

    assert listed == set(json.loads(manifest))


def test_every_kind_of_predictor_is_documented() -> None:
    """docs/artifact.md tells how each kind predicts, but for the base of a proof, which is not saved."""
    available()  # their predictors come along
    text = (ROOT / "docs" / "artifact.md").read_text()
    described = re.findall(r"^\*\*Kind `(\w+)`\.\*\*", text, re.MULTILINE)

    assert sorted(described) == sorted(set(RepairedPredictor.kinds) - {"unrepaired"})


def test_rows_without_an_id_are_identified_as_documented(checkout: Path) -> None:
    """Without --id, the texts of the columns that the rule reads, in the order of their names; missing: a zero byte."""
    features = "income,debt_ratio,employment_years,education,has_guarantor"
    learn = (
        f"fairfix repair sample_data/loans.parquet --method logloss --protected race --features {features}"
    )
    assert execute(f"{learn} -o repaired.fairfix\n{PREDICT}", checkout).returncode == 0
    repaired = Repaired.load(checkout / "repaired.fairfix")
    text = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(repaired.identity, pyarrow.string()))
    decided = pyarrow.csv.read_csv(checkout / "decided.csv", convert_options=text).to_pylist()
    seen = 0
    for row in decided:
        if not row["randomized"]:
            continue
        values = [_as_written(row[name], repaired.identity[name]) for name in sorted(repaired.identity)]
        digest = hashlib.blake2b(b"\x1f".join(values), digest_size=8, key=repaired.key).digest()
        assert ((int.from_bytes(digest, "big") >> 11) / 2**53 < row["p_positive"]) == row["decision"]
        seen += b"\x00" in values

    assert {*repaired.identity} == {"race", *features.split(",")} == {*repaired.required}
    assert seen > 5


def _as_written(value: str | None, kind: str) -> bytes:
    """Return the identity's part of a CSV text: the sample's numbers have few digits, so they stand as written."""
    if not value:
        return b"\x00"
    return (value.capitalize() if kind == "boolean" else value.removesuffix(".0")).encode()


def test_identities_are_written_as_documented() -> None:
    """Missing, whole, fractional, true, text: as docs/artifact.md says."""
    assert identity_of([None, float("nan")]) == b"\x00\x1f\x00"
    assert (
        identity_of([3, 3.0, 0.1, True, "é", 2.0**60, 2**60])
        == "3\x1f3\x1f0.1\x1fTrue\x1fé\x1f1.152921504606847e+18\x1f1152921504606846976".encode()
    )


def test_a_decision_is_drawn_by_hand(checkout: Path) -> None:
    """The lines of docs/ramp.md draw the decision that predict drew, with the commands of the README."""
    by_hand = next(block for block in blocks("docs/ramp.md", "python") if "decision" in block)
    first = [
        block
        for block in blocks("README.md", "sh")
        if block.startswith(("fairfix repair", "fairfix predict"))
    ]
    assert execute("\n".join(first), checkout).returncode == 0
    rows = {row["applicant_id"]: row for row in pyarrow.csv.read_csv(checkout / "decided.csv").to_pylist()}
    name, chance = re.search(r'b"(\w+)"', by_hand)[1], re.search(r"uniform < (0\.\d+)", by_hand)[1]
    drawn, uniform = printed_by(f"{by_hand}\nprint(int(decision), uniform)", checkout).split()

    assert rows[name]["p_positive"] == pytest.approx(float(chance), abs=1e-4)
    assert abs(float(uniform) - float(chance)) > 1e-3
    just = np.array([float(uniform), np.nextafter(float(uniform), 1)])
    key = Repaired.load(checkout / "repaired.fairfix").key
    assert decide(just, [name.encode()] * 2, key).tolist() == [0, 1]
    assert int(drawn) == rows[name]["decision"]
    assert rows[name]["randomized"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="has no terminals of this kind")
def test_what_is_printed_in_a_terminal_is_in_step() -> None:
    """Audit and repair of the README are as printed, and fit into 80 columns, whatever the terminal has.

    Processes of their own, which no other test has changed, write to a real terminal. What the commands of all pages
    print is compared where they run.
    """
    shown = [
        block for mark, _, _, block in BLOCK.findall((ROOT / "README.md").read_text()) if mark == "printed"
    ]
    assert len(shown) == 2
    assert all(block.count("\n") > 10 for block in shown)
    assert max(len(line) for block in shown for line in block.splitlines()) <= 80

    script = [
        sys.executable,
        str(ROOT / "docs" / "generate.py"),
        "--check",
        "--printed",
        "README.md",
        "docs/report.svg",
    ]
    narrow = {**os.environ, "COLUMNS": "40"}
    done = subprocess.run(script, env=narrow, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (0, "")


def generate(*arguments: str, root: Path = ROOT) -> tuple[int, str]:
    """Run docs/generate.py of a checkout as a script, in this process; return status and output."""
    path = root / "docs" / "generate.py"
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(StringIO()) as out:
        patch.syspath_prepend(ROOT / "docs")
        patch.setattr(sys, "argv", [str(path), *arguments])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(path), run_name="__main__")
    return ended.value.code, out.getvalue()


def test_only_generated_parts_are_rewritten(tmp_path: Path) -> None:
    """--check names a stale file and writes nothing; without it the file is as before, and no other is touched."""
    (tmp_path / "docs").mkdir()
    for name in ("README.md", "docs/generate.py", "docs/metrics.md", "docs/messages.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "docs" / "schemas", tmp_path / "docs" / "schemas")
    page, before = tmp_path / "docs" / "metrics.md", (ROOT / "docs" / "metrics.md").read_text()
    stale = before.replace("| `selection_rate` |", "| `selected` |")
    assert stale != before
    page.write_text(stale)
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.md")}

    status, out = generate("--check", root=tmp_path)
    assert (status, out.split()[0]) == (1, str(Path("docs", "metrics.md")))
    assert page.read_text() == stale

    assert generate(root=tmp_path)[0] == 0
    assert page.read_text() == before
    assert {path for path in times if path.stat().st_mtime_ns != times[path]} <= {page}

    page.write_text(before.replace("<!-- end -->", "", 1))
    status, out = generate(root=tmp_path)
    assert (status, "without an end" in out) == (1, True)


def test_every_room_is_documented() -> None:
    """docs/architecture.md has one line for each module or folder of the package."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    table = text.partition("## The rooms")[2].partition("\n## ")[0]
    rooms = {path.stem for path in (ROOT / "fairfix").iterdir() if path.suffix == ".py" or path.is_dir()}

    listed = re.findall(r"^\| `(\w+)/?` \|", table, re.MULTILINE)
    assert sorted(listed) == sorted(room for room in rooms if not room.startswith("_"))


def test_headline_ratios_are_those_of_the_tables() -> None:
    """Every number of a ratio in docs/benchmarks.md stands in the section of the tables that its row links to."""
    text = (ROOT / "docs" / "benchmarks.md").read_text()
    rows = re.findall(r"^\| .* \| ([^|]*\d[^|]*) \| \[[^]]*\]\(([^)#]*)#([^)]*)\) \|$", text, re.MULTILINE)
    for ratio, page, anchor in rows:
        sections = re.split(r"^#+ ", (ROOT / "docs" / page).read_text(), flags=re.MULTILINE)[1:]
        (section,) = (one for one in sections if anchor_of(one.partition("\n")[0]) == anchor)
        for number in re.findall(r"\d[\d.,]*", ratio):
            assert re.search(rf"(?<![\d.,]){re.escape(number)}(?![\d.,])", section), (number, page)

    assert len(rows) == 10


def anchor_of(heading: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    return {anchor_of(heading) for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_resolve_and_paths_are_ours(page: Path) -> None:
    """Links between pages lead somewhere; no path of a machine is in them."""
    text = page.read_text()
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    for target, anchor in re.findall(r"\]\(\s*(?!https?:)([^)#\s]*)#?([^)\s]*)\)", prose):
        there = page.parent / target if target else page
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), (target, anchor)

    assert not re.search(r"(^|[\s`'\"(=])/(work|home|root|tmp|Users|mnt)/", text)
