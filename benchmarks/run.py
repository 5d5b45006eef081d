"""Run the benchmarks and write their tables into the docs: ``make bench``, and of the papers alone ``make papers``.

``python benchmarks/run.py ramp.py figure1.py`` runs some of them, ``python -m benchmarks.papers ramp --data DIR`` those
of a paper on data in a folder; the others' tables stay. A script whose data are not there is skipped by name and keeps
its table; so does one that fails, and the status is then 1. What stands above the first table of a page is not of the
benchmarks, and stays as it is.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pictures import PICTURES, draw
from tabular import FOLDER, folder

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs"

PAGES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "benchmarks": {
        "engine.py": ("--large",),
        "startup.py": ("8030bc5",),  # before scipy's quantiles and the HTML template
        "ramp.py": (),
        "ramp_speed.py": (),
        "coverage.py": ("--simulations", "2000"),
        "gates.py": ("--sets", "1000"),
        "scale.py": (),
        "serving.py": (),
        "promises.py": (),
    },
    "papers/ramp": {"ramp_accuracy.py": (), "ramp_few_rows.py": (), "figure1.py": ()},
    "papers/fair-regression": {"fair_regression.py": (), "fair_regression_fronts.py": ()},
    "papers/logloss": {"logloss.py": (), "logloss_rivals.py": (), "logloss_estimated.py": ()},
    "papers/sensei": {"sensei.py": (), "sensei_rivals.py": (), "sensei_classes.py": ()},
    "papers/robust": {"noisy_groups.py": (), "noisy_repair.py": (), "noisy_ideal.py": ()},
}
"""Page below docs/ -> its scripts with their arguments, in the order of the page."""

DATA = {
    "ramp_accuracy.py": ("adult", "credit_default"),
    "ramp_few_rows.py": ("adult", "credit_default"),
    "figure1.py": ("adult",),
    "fair_regression.py": ("adult", "communities", "lawschool"),
    "fair_regression_fronts.py": ("adult", "communities", "lawschool"),
    "logloss.py": ("adult", "compas", "lawschool_bar"),
    "logloss_rivals.py": ("adult", "compas", "lawschool_bar"),
    "logloss_estimated.py": ("adult", "compas", "lawschool_bar"),
    "sensei.py": ("adult", "compas"),
    "sensei_rivals.py": ("adult",),
    "sensei_classes.py": ("adult",),
    "noisy_groups.py": ("adult",),
    "noisy_repair.py": ("adult", "credit_default"),
    "noisy_ideal.py": ("adult", "credit_default"),
}
"""Script -> the data sets that it reads, files of Parquet in the data folder."""


PACKAGES = (
    "numpy",
    "pyarrow",
    "scikit-learn",
    "fairlearn",
    "error-parity",
    "holisticai",
    "inFairness",
    "xgboost",
)
"""What the figures depend on; of XGBoost there is a package without graphics cards, too."""


def versions() -> str:
    """Return the versions that the figures belong to."""
    out = [f"Python {platform.python_version()}"]
    for name in PACKAGES:
        found = _version(name) or _version(f"{name}-cpu")
        out.append(f"{name} {found or 'not installed'}")
    return ", ".join(out)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def parts_of(page: str) -> tuple[str, dict[str, str]]:
    """Return what stands above the tables of a page, and script -> its tables."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    above, *parts = re.split(r"^<!-- (\S+) -->\n", text, flags=re.MULTILINE)
    return above.strip(), {name: text.strip() for name, text in zip(parts[::2], parts[1::2], strict=True)}


def absent(script: str, folder: Path | None) -> list[str]:
    """Return the files of data that a script reads and that are not there."""
    names = [f"{name}.parquet" for name in DATA.get(script, ())]
    return [name for name in names if folder is None or not (folder / name).exists()]


def run(page: str, asked: Sequence[str], place: Path | None) -> Iterator[str]:
    """Run the scripts of a page that are asked for, write it, draw its picture, and yield what failed."""
    above, tables = parts_of(page)
    before = dict(tables)
    for script in (one for one in PAGES[page] if one in asked):
        if missing := absent(script, place):
            print(f"{script} is skipped: no {', '.join(missing)} in the data folder", file=sys.stderr)
            continue
        print(f"running {script}", file=sys.stderr)
        command = [sys.executable, str(HERE / script), *PAGES[page][script]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = done.stderr.strip().rpartition("\n")[2]
            yield f"{script} failed with status {done.returncode}: {last}"
            continue
        tables[script] = f"{done.stdout.strip()}\n\n{versions()}."
        parts = [f"<!-- {one} -->\n{tables[one]}" for one in PAGES[page] if one in tables]
        (DOCS / f"{page}.md").write_text("\n\n".join([above, *parts]) + "\n", encoding="utf-8")
    if page in PICTURES and tables != before:
        draw(page, DOCS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for and write the pages."""
    papers = [name.removeprefix("papers/") for name in PAGES if name.startswith("papers/")]
    scripts = [script for page in PAGES.values() for script in page]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scripts", nargs="*", metavar="SCRIPT", help=f"of {', '.join(scripts)}")
    parser.add_argument(
        "--papers", nargs="*", choices=papers, help="those of these papers; of all without a name"
    )
    parser.add_argument("--data", metavar="DIR", help=f"folder of the data sets, instead of {FOLDER}")
    given = parser.parse_args(arguments)
    if given.data is not None:
        if not Path(given.data).is_dir():
            parser.error(f"no such folder: {given.data}")
        os.environ[FOLDER] = given.data
    if unknown := set(given.scripts) - set(scripts):
        parser.error(f"no such script: {', '.join(sorted(unknown))}")
    chosen = list(PAGES)
    if given.papers is not None:
        chosen = [f"papers/{name}" for name in given.papers or papers]
    failed: list[str] = []
    for name in chosen:
        failed += run(name, given.scripts or scripts, folder())
    for line in failed:
        print(line, file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
