"""Run the benchmarks and write their tables into the docs: ``make bench``.

``python benchmarks/run.py ramp.py figure1.py`` runs some of them; the others' tables stay. A script whose data are not
in the folder is skipped by name and keeps its table, one that takes its data sets apart only if none is there; so does
one that fails, and the status is then 1. What stands above the first table of a page is not of the benchmarks, and
stays as it is.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from loaders import fetch
from pictures import PICTURES, draw
from tabular import FOLDER, folder

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs"

PAGES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "benchmarks/audit": {
        "engine.py": ("--large",),
        "startup.py": (),
        "scale.py": (),
        "frames.py": (),
    },
    "benchmarks/repair": {"ramp.py": (), "ramp_speed.py": (), "serving.py": ()},
    "benchmarks/intervals": {
        "coverage.py": ("--simulations", "2000"),
        "gates.py": ("--sets", "1000"),
        "always_valid.py": (),
    },
    "benchmarks/promises": {"promises.py": ()},
    "papers/ramp": {
        "ramp_accuracy.py": (),
        "ramp_few_rows.py": (),
        "ramp_algorithm1.py": (),
        "figure1.py": (),
    },
    "papers/fair-regression": {"fair_regression.py": (), "fair_regression_fronts.py": ()},
    "papers/logloss": {
        "logloss.py": (),
        "logloss_rivals.py": (),
        "logloss_printed.py": (),
        "logloss_estimated.py": (),
    },
    "papers/sensei": {
        "sensei.py": (),
        "sensei_weights.py": (),
        "sensei_rivals.py": (),
        "sensei_classes.py": (),
    },
    "papers/robust": {
        "noisy_groups.py": (),
        "noisy_repair.py": (),
        "noisy_algorithms.py": (),
        "noisy_ideal.py": (),
    },
}
"""Page below docs/ -> its scripts with their arguments, in the order of the page."""

DATA = {
    "ramp_accuracy.py": ("adult", "credit_default"),
    "ramp_few_rows.py": ("adult", "credit_default"),
    "ramp_algorithm1.py": ("adult", "credit_default"),
    "figure1.py": ("adult",),
    "fair_regression.py": ("adult", "communities", "lawschool"),
    "fair_regression_fronts.py": ("adult", "communities", "lawschool"),
    "logloss.py": ("adult", "compas", "lawschool_bar"),
    "logloss_rivals.py": ("adult", "compas", "lawschool_bar"),
    "logloss_printed.py": ("adult", "compas", "lawschool"),
    "logloss_estimated.py": ("adult", "compas", "lawschool_bar"),
    "sensei.py": ("adult", "compas"),
    "sensei_weights.py": ("adult",),
    "sensei_rivals.py": ("adult",),
    "sensei_classes.py": ("adult",),
    "noisy_groups.py": ("adult",),
    "noisy_repair.py": ("adult", "credit_default"),
    "noisy_algorithms.py": ("adult", "credit_default"),
    "noisy_ideal.py": ("adult", "credit_default"),
}
"""Script -> the data sets that it reads, files of Parquet in the data folder."""

APART = (
    *("ramp_accuracy.py", "ramp_few_rows.py", "ramp_algorithm1.py", "fair_regression_fronts.py"),
    *("logloss.py", "logloss_rivals.py", "logloss_printed.py", "logloss_estimated.py"),
    *("noisy_repair.py", "noisy_ideal.py", "noisy_algorithms.py"),
)
"""Scripts that take their data sets one by one, and name those that they miss."""

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

KEPT = "Tables kept from an earlier run:"
"""Head of the list of scripts whose tables other versions made."""


def versions() -> str:
    """Return the versions that the figures belong to, of the packages that are installed."""
    installed = {name: _version(name) or _version(f"{name}-cpu") for name in PACKAGES}
    named = [f"{name} {found}" for name, found in installed.items() if found]
    return f"{', '.join([f'Python {platform.python_version()}', *named])}."


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


@dataclass
class Page:
    """What stands above the tables of a page, script -> its tables, and script -> the versions they were made with."""

    above: str
    tables: dict[str, str]
    made_with: dict[str, str]

    @classmethod
    def read(cls, page: str) -> Page:
        """Return a page below docs/."""
        text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
        above, *parts = re.split(r"^<!-- (\S+) -->\n", text, flags=re.MULTILINE)
        tables = {name: text.strip() for name, text in zip(parts[::2], parts[1::2], strict=True)}
        newest, _, kept = tables.pop("versions", "").partition(KEPT)
        made_with = dict.fromkeys(tables, newest.strip())
        return cls(
            above.strip(), tables, made_with | dict(re.findall(r"^- `(\S+)`: (.*)$", kept, re.MULTILINE))
        )

    def write(self, page: str, scripts: Iterable[str]) -> None:
        """Write it with one footer: the versions of this run, and those of tables that are kept from others."""
        newest = versions()
        shown = [one for one in scripts if one in self.tables]
        kept = [f"- `{one}`: {self.made_with[one]}" for one in shown if self.made_with[one] != newest]
        parts = [f"<!-- {one} -->\n{self.tables[one]}" for one in shown]
        footer = [f"<!-- versions -->\n{newest}", *([KEPT, "\n".join(kept)] if kept else [])]
        (DOCS / f"{page}.md").write_text("\n\n".join([self.above, *parts, *footer]) + "\n", encoding="utf-8")


def absent(script: str, folder: Path | None) -> list[str]:
    """Return the files of data without which a script has nothing to do, if they are not there."""
    names = [f"{name}.parquet" for name in DATA.get(script, ())]
    missing = [name for name in names if folder is None or not (folder / name).exists()]
    return missing if script not in APART or len(missing) == len(names) else []


def run(
    page: str, own: Mapping[str, tuple[str, ...]], asked: Container[str], place: Path | None
) -> Iterator[str]:
    """Run those of the page's ``own`` scripts that are asked for, write it, draw its picture, and yield what failed."""
    written = Page.read(page)
    before = dict(written.tables)
    for script in (one for one in own if one in asked):
        if missing := absent(script, place):
            where = place or "any folder: name one by --data DIR"
            print(f"{script} is skipped: no {', '.join(missing)} in {where}", file=sys.stderr)
            continue
        print(f"running {script}", file=sys.stderr)
        command, begin = [sys.executable, str(HERE / script), *own[script]], time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = done.stderr.strip().rpartition("\n")[2]
            yield f"{script} failed with status {done.returncode}: {last}"
            continue
        print(f"{script} took {time.monotonic() - begin:.0f} s", file=sys.stderr)
        written.tables[script], written.made_with[script] = done.stdout.strip(), versions()
        written.write(page, own)
    if page in PICTURES and written.tables != before:
        try:
            draw(page, DOCS)
        except Exception as error:  # whatever it is, the tables are written and the other pages go on
            yield f"the picture of {page} is not drawn: {error}"


def main(
    arguments: Sequence[str] | None = None,
    *,
    pages: Mapping[str, Mapping[str, tuple[str, ...]]] = PAGES,
    about: str | None = __doc__,
) -> int:
    """Run what is asked for of some pages, and write them."""
    asked = {page.rpartition("/")[2]: tuple(scripts) for page, scripts in pages.items()}
    asked |= {script: (script,) for scripts in pages.values() for script in scripts}
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"page or script, of {', '.join(asked)}")
    parser.add_argument("--data", metavar="DIR", help=f"folder of the data sets, instead of {FOLDER}")
    parser.add_argument(
        "--fetch",
        action="store_true",
        help="first fetch what DIR lacks into it, by the loaders of Fairlearn, scikit-learn (OpenML) and AIF360",
    )
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - set(asked):
        parser.error(f"no such page or script: {', '.join(sorted(unknown))}; there are {', '.join(asked)}")
    scripts = {script for name in given.names or asked for script in asked[name]}
    if given.fetch:
        if given.data is None or Path(given.data).resolve().is_relative_to(HERE.parent):
            parser.error("--fetch needs a folder outside of the project, named by --data DIR")
        Path(given.data).mkdir(parents=True, exist_ok=True)
    if given.data is not None:
        if not Path(given.data).is_dir():
            parser.error(f"no such folder: {given.data}")
        os.environ[FOLDER] = given.data
    if given.fetch:
        for line in fetch(
            sorted({name for script in scripts for name in DATA.get(script, ())}), Path(given.data)
        ):
            print(line, file=sys.stderr)
    failed: list[str] = []
    for page, own in pages.items():
        failed += run(page, own, scripts, folder())
    for line in failed:
        print(line, file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
