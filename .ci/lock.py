"""Write the locks of the image: every package with its version and the hashes of its files for both processors.

``python .ci/lock.py`` asks pip what it would install, and installs nothing. ``image.txt`` is what the image holds,
``build.txt`` what makes its wheel, ``audit.txt`` what looks for known holes in the others.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYTHON = "3.12"
PROCESSORS = ("x86_64", "aarch64")
GLIBC = ("2_28", "2_27", "2_17", "2_5")
EXTRAS = ("skops", "onnx")


def resolved(requirements: list[str], processor: str) -> list[tuple[str, str, str]]:
    """Return (name, version, sha256) of all that pip would install on a processor."""
    platforms = [f"--platform=manylinux_{one}_{processor}" for one in GLIBC]
    platforms += [f"--platform=manylinux2014_{processor}"]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        command += [f"--target={folder}", f"--python-version={PYTHON}", "--only-binary=:all:", *platforms]
        subprocess.run([*command, f"--report={report}", *requirements], check=True)  # noqa: S603  ours
        installed = json.loads(report.read_text())["install"]
    return [
        (
            one["metadata"]["name"].lower().replace("_", "-"),
            one["metadata"]["version"],
            one["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for one in installed
    ]


def lock(name: str, requirements: list[str]) -> None:
    """Write a lock."""
    hashes = defaultdict[str, set[str]](set)
    for processor in PROCESSORS:
        for package, version, digest in resolved(requirements, processor):
            hashes[f"{package}=={version}"].add(digest)
    lines = ["# made by `make lock`; installed with --require-hashes"]
    for package, digests in sorted(hashes.items()):
        lines.append(" \\\n".join([package, *(f"    --hash=sha256:{one}" for one in sorted(digests))]))
    (HERE / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """Write all locks."""
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    extras = [one for extra in EXTRAS for one in project["project"]["optional-dependencies"][extra]]
    lock("image.txt", project["project"]["dependencies"] + extras)
    lock("build.txt", project["build-system"]["requires"])
    lock("audit.txt", ["pip-audit"])


if __name__ == "__main__":
    main()
