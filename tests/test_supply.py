"""What is built and run is pinned: actions by commit, the base image by digest, packages by hash."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
USING = [ROOT / "action.yml", ROOT / "docs" / "ci.md", *sorted((ROOT / ".github").rglob("*.yml"))]


@pytest.mark.parametrize("path", USING, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit(path: Path) -> None:
    """A tag can be moved to other code; an action of this very clone needs none."""
    used = re.findall(r"uses: *(\S+)", path.read_text())
    assert [
        one for one in used if not one.startswith("./") and not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", one)
    ] == []


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
