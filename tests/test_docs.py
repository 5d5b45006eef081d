"""The docs are executed: what they show runs, and what is generated is in step."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fairfix.cli import COMMANDS
from fairfix.repaired import Repaired, identity_of

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "sample_data" / "README.md"]
SHELL = re.compile(r"(?:<!-- exit: (\d+) -->\n)?```sh\n(.*?)```", re.DOTALL)
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the sample data in it."""
    shutil.copytree(ROOT / "sample_data", tmp_path / "sample_data")
    return tmp_path


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run one fairfix command line as a shell would."""
    line = re.sub(r"^fairfix ", f"{sys.executable} -m fairfix ", command)
    return subprocess.run(line, shell=True, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S602  the docs are ours


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
def test_commands_in_the_docs_run(page: str, checkout: Path) -> None:
    """Every sh block that starts with fairfix ends with the status it says (0 if it says nothing)."""
    blocks = SHELL.findall((ROOT / page).read_text())
    assert blocks
    for status, block in blocks:
        for line in block.splitlines():
            done = shell(line, checkout)
            assert done.returncode == int(status or 0), (line, done.stderr)


def test_the_numbers_in_the_readme_are_those_of_the_sample(checkout: Path) -> None:
    """The output that the README shows is what the command prints."""
    text = (ROOT / "README.md").read_text()
    shown = re.findall(r"\d\.\d{4} \[\d\.\d{3}, \d\.\d{3}\]", text)
    printed = shell("fairfix audit sample_data/loans.parquet --protected race", checkout).stdout

    assert len(shown) == 3
    assert all(number in printed for number in shown)


def test_the_library_example_runs(checkout: Path) -> None:
    """The Python of the README runs as it stands."""
    (example,) = PYTHON.findall((ROOT / "README.md").read_text())
    done = subprocess.run(
        [sys.executable, "-c", example], cwd=checkout, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert "('Asian', 'Black') 0.24" in done.stdout


def test_the_documented_reader_reads_artifacts(checkout: Path) -> None:
    """The reader of docs/artifact.md, which uses nothing of fairfix, gives the same probabilities and decisions."""
    import pyarrow.csv

    for command in (
        "fairfix repair sample_data/loans.parquet --method ramp --protected race --id applicant_id --gamma 0.5",
        "fairfix predict repaired.fairfix sample_data/new_applicants.csv -o decided.csv",
    ):
        assert shell(command, checkout).returncode == 0
    (reader,) = PYTHON.findall((ROOT / "docs" / "artifact.md").read_text())
    scope: dict[str, object] = {}
    exec(reader, scope)  # noqa: S102  the docs are ours
    manifest, arrays = scope["load"](checkout / "repaired.fairfix")  # type: ignore[operator]
    rows = pyarrow.csv.read_csv(checkout / "decided.csv").to_pylist()
    for row in rows:
        chance = scope["p_positive"](manifest, arrays, [row["race"]], row["score"])  # type: ignore[operator]
        assert chance == pytest.approx(row["p_positive"], abs=1e-15)
        assert scope["decision"](manifest, row["applicant_id"], chance) == row["decision"]  # type: ignore[operator]
    assert sum(row["randomized"] for row in rows) > 100
    assert Repaired.load(checkout / "repaired.fairfix").key.hex() == manifest["randomization"]["key"]


def test_identities_are_written_as_documented() -> None:
    """Missing, whole, fractional, true, text: as docs/artifact.md says."""
    assert identity_of([None, float("nan")]) == b"\x00\x1f\x00"
    assert (
        identity_of([3, 3.0, 0.1, True, "é", 2.0**60])
        == "3\x1f3\x1f0.1\x1fTrue\x1fé\x1f1.152921504606847e+18".encode()
    )


def test_generated_parts_are_in_step() -> None:
    """`make docs` has been run."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout


def test_every_command_is_documented() -> None:
    """Each command has its section."""
    text = (ROOT / "docs" / "cli.md").read_text()

    for name in COMMANDS:
        assert f"## fairfix {name}\n" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_resolve_and_paths_are_ours(page: Path) -> None:
    """Links between pages lead somewhere; no path of a machine is in them."""
    text = page.read_text()
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", prose):
        assert (page.parent / target).exists(), target

    assert not re.search(r"(^|\s)/(work|home|root|tmp)/", text)
