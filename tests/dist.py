"""Check what a release uploads: the wheel has every file of the package, and works where nothing else is installed.

Run as ``python tests/dist.py FOLDER`` with the wheel and the source archive in the folder. A new environment gets the
wheel with what it requires, and audits the sample data in a folder without the checkout.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
PROTECTED = ("--protected", "race")


def files_of_package() -> set[str]:
    """Return the files that the package is made of, relative to the checkout, as the repository has them."""
    listed = subprocess.run(
        ["git", "ls-files", "fairfix"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(listed.stdout.split())


def lacking(wheel: Path, archive: Path) -> dict[str, list[str]]:
    """Return the files of the package that each of the two has not."""
    with zipfile.ZipFile(wheel) as zipped, tarfile.open(archive) as tarred:
        in_wheel = set(zipped.namelist())
        in_archive = {name.partition("/")[2] for name in tarred.getnames()}
    there = {wheel.name: in_wheel, archive.name: in_archive}
    return {name: missing for name, held in there.items() if (missing := sorted(files_of_package() - held))}


def run_alone(wheel: Path) -> None:
    """Install the wheel in a new environment; audit, repair, predict and render with it, away from the checkout."""
    with TemporaryDirectory() as name:
        room = Path(name)
        venv.create(room / "env", with_pip=True)
        python = room / "env" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel.resolve()]
        subprocess.run(install, check=True, cwd=room)
        shutil.copy(ROOT / "sample_data" / "loans.parquet", room)
        shutil.copy(ROOT / "sample_data" / "new_applicants.csv", room)
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "FAIRFIX"))}

        def fairfix(*arguments: str, status: int = 0) -> str:
            command = [python.with_name("fairfix" + python.suffix), *arguments]
            done = subprocess.run(command, cwd=room, env=clean, capture_output=True, text=True, check=False)
            if done.returncode != status:
                sys.exit(f"fairfix {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr}")
            return done.stdout

        formats = ("--out", "json=audit.json", "--out", "html=audit.html", "--check", "dp.difference<=0.1")
        fairfix("audit", "loans.parquet", *PROTECTED, *formats, status=1)
        version = fairfix("--version").split()[-1]
        content = json.loads((room / "audit.json").read_text())
        assert content["fairfix"] == version == wheel.name.split("-")[1], (content["fairfix"], version)
        fairfix("repair", "loans.parquet", *PROTECTED, "--method", "ramp", "-o", "r.fairfix")
        fairfix("predict", "r.fairfix", "new_applicants.csv", "-o", "decided.csv")
        assert len((room / "decided.csv").read_text().splitlines()) > 1
        for kind in ("sql", "python", "json"):
            fairfix("export", "r.fairfix", "--to", kind, "-o", f"rule.{kind}")


def main(folder: Path) -> None:
    """Check the wheel and the source archive of a folder."""
    (wheel,), (archive,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    if missing := lacking(wheel, archive):
        sys.exit(f"files of the package are missing: {missing}")
    run_alone(wheel)
    print(
        f"{wheel.name} and {archive.name} have every file; the wheel audits, repairs, predicts and exports alone"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
