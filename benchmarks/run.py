"""Run the benchmarks and write their tables to docs/benchmarks.md: ``make bench``.

``python benchmarks/run.py ramp.py figure1.py`` runs some of them and leaves the others' tables as they are.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "benchmarks.md"

SCRIPTS = {
    "engine.py": ("--large",),
    "startup.py": ("8030bc5",),  # before scipy's quantiles and the HTML template
    "ramp.py": (),
    "ramp_speed.py": (),
    "ramp_accuracy.py": (),
    "ramp_few_rows.py": (),
    "figure1.py": (),
    "fair_regression.py": (),
    "logloss.py": (),
    "sensei.py": (),
    "noisy_groups.py": (),
    "noisy_repair.py": (),
    "coverage.py": ("--simulations", "2000"),
    "gates.py": ("--sets", "1000"),
    "scale.py": (),
    "serving.py": (),
    "promises.py": (),
}
"""Script -> its arguments, in the order of the page."""

HOW = (
    "Made by `make bench` on two shared cores. Ratios are paired, in one process, medians of rounds; absolute times "
    "belong to that machine."
)


def versions() -> str:
    """Return the versions that the figures belong to."""
    out = [f"Python {platform.python_version()}"]
    for name in ("numpy", "pyarrow", "scikit-learn", "fairlearn", "error-parity", "holisticai", "inFairness"):
        try:
            out.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            out.append(f"{name} not installed")
    return ", ".join(out)


def sections() -> dict[str, str]:
    """Return script -> its tables, from the page as it is."""
    if not PAGE.exists():
        return {}
    parts = re.split(r"^<!-- (\S+) -->\n", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def main() -> None:
    """Run what is asked for and write the page."""
    asked = sys.argv[1:] or list(SCRIPTS)
    found = sections()
    for script in asked:
        print(f"running {script}", file=sys.stderr)
        done = subprocess.run(
            [sys.executable, str(HERE / script), *SCRIPTS[script]], capture_output=True, text=True, check=True
        )
        found[script] = f"{done.stdout.strip()}\n\n{versions()}."
    parts = [f"<!-- {script} -->\n{found[script]}" for script in SCRIPTS if script in found]
    PAGE.write_text("\n\n".join(["# Benchmarks", HOW, *parts]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
