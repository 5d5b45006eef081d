"""What is built and run is pinned: actions by commit, the base image by digest, packages by hash."""

from __future__ import annotations

import re
import subprocess
import sysconfig
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    path for path in sorted((ROOT / "docs").rglob("*.md")) if "uses: " in path.read_text(encoding="utf-8")
]
USING = [ROOT / "action.yml", *PAGES, *sorted((ROOT / ".github").rglob("*.yml"))]


@pytest.mark.parametrize("path", USING, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit(path: Path) -> None:
    """A tag can be moved to other code; an action of this very clone needs none."""
    used = re.findall(r"uses: *(\S+)", path.read_text())
    assert [
        one for one in used if not one.startswith("./") and not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", one)
    ] == []


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("vendor.github-workflows", sorted((ROOT / ".github" / "workflows").glob("*.yml"))),
        ("vendor.dependabot", [ROOT / ".github" / "dependabot.yml"]),
    ],
    ids=["workflows", "dependabot"],
)
def test_workflows_hold_to_the_schemas(schema: str, files: list[Path], tmp_path: Path) -> None:
    """The service's own; a word changed is found."""
    program = tool("check-jsonschema")
    assert files
    command = [program, "--builtin-schema", schema]
    done = subprocess.run([*command, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    broken = tmp_path / "broken.yml"
    broken.write_text(re.sub(r"\b(steps|schedule):", "stepping:", files[0].read_text()))
    assert subprocess.run([*command, broken], capture_output=True, check=False).returncode == 1


def test_workflows_let_nobody_in() -> None:
    """No template in a script, no token that is kept, no more rights than a job needs."""
    command = [tool("zizmor"), "--offline", "--no-progress", "--format", "plain"]
    done = subprocess.run([*command, ROOT / ".github"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_jobs_call_targets_that_exist() -> None:
    """What a workflow asks of make or runs from the checkout is there."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = "\n".join(path.read_text() for path in (ROOT / ".github" / "workflows").glob("*.yml"))
    asked = {*re.findall(r"run: make ([a-z-]+)", text), *matrix("nightly", "target")}
    assert {"dist", "site", "test", "test-full", "promises", "fuzz"} == asked
    assert asked <= targets
    for script in re.findall(r"(?:run: |python )((?:\.ci|tests)/\S+)", text):
        assert (ROOT / script).is_file(), script


def test_every_version_of_python_is_tested() -> None:
    """That the package says it runs on: on the change, or in the job that checks all."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    said = {one.rpartition(" ")[2] for one in project["classifiers"] if re.search(r":: 3\.\d+$", one)}
    jobs = (ROOT / ".github" / "workflows" / "tests.yml").read_text()
    assert said == {*re.findall(r'python-version: "([\d.]+)"', jobs), *re.findall(r'"(3\.\d+)"', jobs)}


def tool(name: str) -> Path:
    """Return a program of the extra ``dev``; skip where it is not installed."""
    program = Path(sysconfig.get_path("scripts")) / name
    if not program.exists():
        pytest.skip("the extra 'dev' is not installed")
    return program


def matrix(workflow: str, name: str) -> set[str]:
    """Return the first words of what a workflow is run for."""
    text = (ROOT / ".github" / "workflows" / f"{workflow}.yml").read_text()
    (listed,) = re.findall(rf"{name}: \[(.*)\]", text)
    return {one.strip(' "').split()[0] for one in listed.split(",")}


def test_the_image_is_pinned() -> None:
    """Its base by digest, and every package that it takes from an index by the hashes of a lock."""
    lines = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    bases = [line for line in lines if line.startswith("FROM ")]
    assert bases
    assert all(re.search(r"@sha256:[0-9a-f]{64}\b", line) for line in bases)
    installs = re.findall(r"pip (?:install|wheel) [^&]*", "\n".join(lines))
    assert installs
    assert all(
        {"--require-hashes", "--no-index", "--no-build-isolation"} & {*one.split()} for one in installs
    )


@pytest.mark.parametrize("name", ["image", "build", "audit"])
def test_locks_have_hashes_of_every_package(name: str) -> None:
    """And the lock of the image has all that pyproject.toml asks for, in versions that it allows."""
    text = (ROOT / ".ci" / f"{name}.txt").read_text().replace("\\\n", " ")
    packages = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert packages
    for line in packages:
        assert re.fullmatch(r"[a-z0-9.-]+==\S+(\s+--hash=sha256:[0-9a-f]{64})+", line), line
    if name != "image":
        return
    from packaging.requirements import Requirement

    held = dict(line.split()[0].split("==") for line in packages)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [one for extra in ("skops", "onnx") for one in project["optional-dependencies"][extra]]
    for asked in map(Requirement, project["dependencies"] + extras):
        assert asked.specifier.contains(held[asked.name]), asked
