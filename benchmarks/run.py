"""Run all benchmarks and write their tables to docs/benchmarks.md: ``make bench``."""

from __future__ import annotations

import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCRIPTS = (("engine.py", "--large"), ("ramp.py",), ("coverage.py", "--simulations", "2000"))

HOW = (
    "Made by `make bench` on two shared cores. Ratios are paired, in one process, medians of rounds; absolute times "
    "belong to that machine."
)


def versions() -> str:
    """Return the versions that the figures belong to."""
    out = [f"Python {platform.python_version()}"]
    for name in ("numpy", "pyarrow", "fairlearn"):
        try:
            out.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            out.append(f"{name} not installed")
    return ", ".join(out)


def main() -> None:
    """Write the page."""
    parts = ["# Benchmarks", f"{HOW} {versions()}."]
    for script, *arguments in SCRIPTS:
        print(f"running {script}", file=sys.stderr)
        done = subprocess.run(
            [sys.executable, str(HERE / script), *arguments], capture_output=True, text=True, check=True
        )
        parts.append(done.stdout.strip())
    page = HERE.parent / "docs" / "benchmarks.md"
    page.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
