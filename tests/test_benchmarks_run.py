"""Every script of the benchmarks runs to its end: few rows, one or two splits, short lists of what is varied.

Those of the papers print what a page is made of, and its picture is drawn from that.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest

from tests.scripts import ROOT, script
from tests.strategies import PROFILE

FOLDER = ROOT / "benchmarks"
ROWS = 1500


@dataclass(frozen=True)
class Small:
    """Arguments of a small run, constants of the script that are made smaller, and packages that it needs.

    A constant that is a function makes the value from the module.

    ``picture``: the page whose picture is drawn from what it prints. ``lines``: what yields the text, where ``main()``
    does not print it.
    """

    arguments: tuple[str, ...] = ()
    constants: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    picture: str = ""
    lines: Callable[[ModuleType, Path], Iterable[str]] | None = None


PAPERS = {
    "ramp_accuracy.py": Small(
        ("--splits", "2"),
        {"CLASSIFIERS": ("LR", "kNN")},
        ("fairlearn", "error_parity"),
        "papers/ramp",
    ),
    "ramp_few_rows.py": Small(
        ("--splits", "2", "--subsamples", "1"), {"SIZES": (200,), "USED": ("LR",)}, ("fairlearn",)
    ),
    "ramp_algorithm1.py": Small(("2",), {"ROWS": (100, 1000)}),
    "figure1.py": Small(needs=("matplotlib",)),
    "fair_regression.py": Small(needs=("fairlearn",)),
    "fair_regression_fronts.py": Small(
        ("adult", "communities"),
        {"SPLITS": 2, "SLACKS": (0.2,), "FEW": 0},
        ("fairlearn",),
        "papers/fair-regression",
    ),
    "logloss.py": Small(("1",), {"LOOPED": 1}),
    "logloss_rivals.py": Small(("2",), {"CONSTRAINTS": ("DP", "EOpp")}, ("fairlearn",), "papers/logloss"),
    "logloss_printed.py": Small(
        ("1",), {"PENALTIES": (0.005, 0.1), "BOUNDS": (0.1,), "CONSTRAINTS": ("EOdd",)}, ("fairlearn",)
    ),
    "logloss_estimated.py": Small(
        ("1",),
        {"GAMES": 3, "BASES": ("plain",), "CONSTRAINTS": ("demographic_parity", "equal_opportunity")},
    ),
    "sensei.py": Small(
        ("1",), {"SETS": 1, "ROUNDS": 1, "OURS": 5, "THEIRS": 1, "EQUAL": (0.05,)}, picture="papers/sensei"
    ),
    "sensei_weights.py": Small(("1",), {"RHO": (10.0,)}),
    "sensei_rivals.py": Small(
        ("1",), {"STEPS": {"network": 20, "SenSR": 2, "SenSeI": 2}}, ("inFairness", "torch")
    ),
    "sensei_classes.py": Small(("1",)),
    "noisy_groups.py": Small((), {"TRIALS": 1, "GAMMAS": (0.1,), "MILLION": 10_000}),
    "noisy_repair.py": Small(
        ("2",), {"GAMMAS": (0.1,), "SMALL": (0.02,), "TRAINED_GAMMAS": (0.1,)}, picture="papers/robust"
    ),
    "noisy_algorithms.py": Small(("2",), {"GAMMAS": (0.1,), "STEPS": 50}),
    "noisy_ideal.py": Small((), {"ROUNDS": (10, 100), "BINS": 6}),
}
"""Scripts of the pages of docs/papers/, which read data sets -> how they run small."""

OTHERS = {
    "always_valid.py": Small(("--streams", "3"), {"LOOKS": (1, 3)}),
    "coverage.py": Small(("--simulations", "2")),
    "edges.py": Small(
        ("groups",), {"CASES": lambda module: {"groups": replace(module.CASES["groups"], sizes=(20, 40))}}
    ),
    "engine.py": Small(("--rows", "2000", "--rounds", "1"), needs=("fairlearn", "duckdb")),
    "frames.py": Small(
        needs=("duckdb", "polars"),
        lines=lambda module, place: module.main(3000, {"spark", "postgresql", "dask"}),
    ),
    "gates.py": Small(("--sets", "3")),
    "guarantee.py": Small(("--worlds", "1", "--only", "parity")),
    "promises.py": Small(("--share", "0.001", "--only", "interval", "--jobs", "1")),
    "ramp.py": Small((), {"ROWS": (1000,)}),
    "ramp_speed.py": Small(
        ("--rows", "1000"),
        {
            "GROUPS": (2,),
            "KINDS": ("smooth", "kNN"),
            "ODDS_ROWS": 1000,
            "grid": lambda module: lambda label: [(0.1, 0.3), (0.05, 0.3)],
        },
        ("fairlearn", "error_parity", "holisticai"),
    ),
    "scale.py": Small(
        needs=("duckdb",),
        lines=lambda module, place: module.main(20_000, {"s3", "postgresql", "dask"}),
    ),
    "serving.py": Small(("--rows", "2000"), {"ALONE": 5, "ROUNDS": 1}),
    "slices.py": Small(
        ("--rows", "2000", "--peer-rows", "1000", "--peer-columns", "3", "--worlds", "2"),
        needs=("sliceline",),
    ),
    "startup.py": Small((), {"ROUNDS": 1}, lines=lambda module, place: module.report(place)),
}
"""All other scripts that measure -> how they run small."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with some rows of each data set, where the whole ones are there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        whole = script("benchmarks/tabular.py").folder()
    if whole is None:
        pytest.skip("no data sets: FAIRFIX_DATA_DIR names no folder")
    place = tmp_path_factory.mktemp("data")
    for path in sorted(whole.glob("*.parquet")):
        frame = pd.read_parquet(path)
        few = frame.sample(min(ROWS, len(frame)), random_state=0).sort_index()
        few.to_parquet(place / path.name, index=False)
    return place


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    """A function that runs a script small and returns what it prints."""

    def run(name: str, small: Small) -> str:
        for package in small.needs:
            pytest.importorskip(package)
        monkeypatch.syspath_prepend(str(FOLDER))
        monkeypatch.setattr(sys, "argv", [str(FOLDER / name), *small.arguments])
        module = script(f"benchmarks/{name}")
        for constant, value in small.constants.items():
            monkeypatch.setattr(module, constant, value(module) if callable(value) else value)
        if hasattr(module, "DOCS"):
            monkeypatch.setattr(module, "DOCS", tmp_path)
        if small.lines:
            return "\n".join(small.lines(module, tmp_path))
        module.main()
        return capsys.readouterr().out

    yield run
    logging.disable(logging.NOTSET)


def tables_of(text: str) -> list[Any]:
    """Return the tables of what is printed, whose rows are as long as their heads."""
    found = list(script("benchmarks/pictures.py").tables(text))
    assert found
    for table in found:
        assert table.rows, table.heading
        assert {len(row) for row in table.rows} == {len(table.columns)}, table.heading
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of peers, as in a run by hand
@pytest.mark.parametrize("name", PAPERS)
def test_a_script_of_a_paper_ends_with_its_tables(
    name: str, data: Path, printed: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of all data sets; the picture is drawn from it."""
    monkeypatch.setenv("FAIRFIX_DATA_DIR", str(data))
    text, small = printed(name, PAPERS[name]), PAPERS[name]
    assert "skipped" not in text
    assert "**not every**" not in text
    tables_of(text)
    if small.picture:
        pytest.importorskip("matplotlib")
        page = tmp_path / f"{small.picture}.md"
        page.parent.mkdir()
        page.write_text(text)
        script("benchmarks/pictures.py").draw(small.picture, tmp_path)
        assert page.with_suffix(".svg").stat().st_size > 1000


LONG = ("engine.py", "scale.py", "frames.py")
"""Scripts of many processes, which a pull request leaves to the full profile."""


@pytest.mark.slow(every=True)
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", [one for one in OTHERS if PROFILE != "project" or one not in LONG])
def test_a_script_ends_with_its_tables(name: str, printed: Any) -> None:
    tables_of(printed(name, OTHERS[name]))


def test_every_script_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that measure anything: a page of docs/, or a ``main`` of their own."""
    monkeypatch.syspath_prepend(str(FOLDER))
    helpers = {"run.py", "papers.py", "pictures.py"}
    ends = {path.name for path in FOLDER.glob("*.py") if 'if __name__ == "__main__":' in path.read_text()}
    assert ends - helpers == {*PAPERS, *OTHERS}
    pages = script("benchmarks/run.py").PAGES
    of_papers = {one for page, scripts in pages.items() if page.startswith("papers/") for one in scripts}
    assert of_papers == set(PAPERS)
