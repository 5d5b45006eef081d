"""Run the benchmarks and write their tables into the docs: ``make bench``, and of the papers alone ``make papers``.

``python benchmarks/run.py ramp.py figure1.py`` runs some of them, ``python benchmarks/run.py --papers ramp`` those of a
paper; the others' tables stay. A script whose data are not there is skipped by name and keeps its table; so does one
that fails, and the status is then 1.
"""

from __future__ import annotations

import argparse
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs"

HOW = (
    "Made by `make {made_by}` on two shared cores. Ratios are paired, in one process, medians of rounds; absolute "
    "times belong to that machine."
)


@dataclass(frozen=True)
class Page:
    """A page of tables: scripts with their arguments, in its order, and what stands above them."""

    title: str
    scripts: Mapping[str, tuple[str, ...]]
    above: str = ""
    made_by: str = "bench"

    @property
    def intro(self) -> str:
        """What stands above the tables."""
        return "\n\n".join(filter(None, (f"# {self.title}", self.above, HOW.format(made_by=self.made_by))))


PAGES = {
    "benchmarks": Page(
        "Benchmarks",
        {
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
        "What the methods do on the data of their papers is on a page for each: [ramp](papers/ramp.md), "
        "[fair regression](papers/fair-regression.md), [fair robust log loss](papers/logloss.md), "
        "[individual fairness](papers/sensei.md), [noisy groups](papers/robust.md).",
    ),
    "papers/ramp": Page(
        "Ramp: the paper's experiments",
        {"ramp_accuracy.py": (), "ramp_few_rows.py": (), "figure1.py": ()},
        'I. Alabdulmohsin and M. Lucic, "A near-optimal algorithm for debiasing trained machine learning models" '
        "(2021). What its comparison shows and what it does not is in "
        "[ramp](../ramp.md#what-the-papers-comparison-shows).",
        "papers",
    ),
    "papers/fair-regression": Page(
        "Fair regression: the paper's experiments",
        {"fair_regression.py": ()},
        'A. Agarwal, M. Dudik and Z. S. Wu, "Fair regression: quantitative definitions and reduction-based '
        'algorithms" '
        "(2019). Where the paper and its code are left: "
        "[fair regression](../fair-regression.md#where-the-paper-and-its-code-are-left).",
        "papers",
    ),
    "papers/logloss": Page(
        "Fair robust log loss: the paper's experiments",
        {"logloss.py": (), "logloss_estimated.py": ()},
        'A. Rezaei, R. Fathony, O. Memarrast and B. Ziebart, "Fairness for robust log loss classification" '
        "(2020). Where the paper and its code are left: [log "
        "loss](../logloss.md#where-the-paper-and-its-code-are-left).",
        "papers",
    ),
    "papers/sensei": Page(
        "Individual fairness: the paper's experiments",
        {"sensei.py": ()},
        'M. Yurochkin and Y. Sun, "SenSeI: sensitive set invariance for enforcing individual fairness" (2021). '
        "Where the papers and their code are left: [sensei](../sensei.md#where-the-papers-and-their-code-are-left).",
        "papers",
    ),
    "papers/robust": Page(
        "Noisy groups: the paper's experiments",
        {"noisy_groups.py": (), "noisy_repair.py": ()},
        'S. Wang, W. Guo, H. Narasimhan, A. Cotter, M. Gupta and M. I. Jordan, "Robust optimization for fairness '
        'with noisy protected groups" (2020). Where the paper is left: '
        "[robust](../robust.md#where-the-paper-is-left).",
        "papers",
    ),
}
"""Page below docs/ -> what it is made of."""

DATA = {
    "ramp_accuracy.py": ("adult", "credit_default"),
    "ramp_few_rows.py": ("adult", "credit_default"),
    "figure1.py": ("adult",),
    "fair_regression.py": ("adult", "communities", "lawschool"),
    "logloss.py": ("adult", "compas", "lawschool_bar"),
    "logloss_estimated.py": ("adult", "compas", "lawschool_bar"),
    "sensei.py": ("adult", "compas"),
    "noisy_groups.py": ("adult",),
    "noisy_repair.py": ("adult", "credit_default"),
}
"""Script -> the data sets that it reads, files of Parquet in the data folder."""


def versions() -> str:
    """Return the versions that the figures belong to."""
    out = [f"Python {platform.python_version()}"]
    for name in ("numpy", "pyarrow", "scikit-learn", "fairlearn", "error-parity", "holisticai", "inFairness"):
        try:
            out.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            out.append(f"{name} not installed")
    return ", ".join(out)


def tables_of(path: Path) -> dict[str, str]:
    """Return script -> its tables, from a page as it is."""
    if not path.exists():
        return {}
    parts = re.split(r"^<!-- (\S+) -->\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def absent(script: str, folder: Path | None) -> list[str]:
    """Return the files of data that a script reads and that are not there."""
    names = [f"{name}.parquet" for name in DATA.get(script, ())]
    return [name for name in names if folder is None or not (folder / name).exists()]


def run(page: Page, path: Path, asked: Sequence[str], folder: Path | None) -> Iterator[str]:
    """Run the scripts of a page that are asked for, write it, and yield what failed."""
    tables = tables_of(path)
    for script in (one for one in page.scripts if one in asked):
        if missing := absent(script, folder):
            print(f"{script} is skipped: no {', '.join(missing)} in the data folder", file=sys.stderr)
            continue
        print(f"running {script}", file=sys.stderr)
        command = [sys.executable, str(HERE / script), *page.scripts[script]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = done.stderr.strip().rpartition("\n")[2]
            yield f"{script} failed with status {done.returncode}: {last}"
            continue
        tables[script] = f"{done.stdout.strip()}\n\n{versions()}."
        write(page, path, tables)


def write(page: Page, path: Path, tables: Mapping[str, str]) -> None:
    """Write a page of the tables that there are."""
    parts = [f"<!-- {script} -->\n{tables[script]}" for script in page.scripts if script in tables]
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n\n".join([page.intro, *parts]) + "\n", encoding="utf-8")


def main() -> int:
    """Run what is asked for and write the pages."""
    from tabular import folder

    papers = [name.removeprefix("papers/") for name in PAGES if name.startswith("papers/")]
    scripts = [script for page in PAGES.values() for script in page.scripts]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scripts", nargs="*", metavar="SCRIPT", help=f"of {', '.join(scripts)}")
    parser.add_argument(
        "--papers", nargs="*", choices=papers, help="those of these papers; of all without a name"
    )
    given = parser.parse_args()
    if unknown := set(given.scripts) - set(scripts):
        parser.error(f"no such script: {', '.join(sorted(unknown))}")
    chosen = PAGES
    if given.papers is not None:
        chosen = {f"papers/{name}": PAGES[f"papers/{name}"] for name in given.papers or papers}
    failed: list[str] = []
    for name, page in chosen.items():
        failed += run(page, DOCS / f"{name}.md", given.scripts or scripts, folder())
    for line in failed:
        print(line, file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
