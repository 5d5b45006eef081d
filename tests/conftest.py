"""What several test files share: a small data set with every kind of column, and the command line as a call."""

from __future__ import annotations

import gc
import math
import os
import shlex
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fairfix.cli import run

from tests.strategies import PROFILE, drawn, load_profile

load_profile()

START = time.monotonic()

Frames = Callable[..., pd.DataFrame]


def make_frame(n: int = 400, seed: int = 0, groups: int = 3) -> pd.DataFrame:
    """Return rows with a text and a boolean group, a stratum, labels, scores that tie, weights and a feature."""
    rng = np.random.default_rng(seed)
    code = rng.integers(0, groups, n)
    score = np.round(np.clip(rng.beta(2, 2, n) + 0.1 * (code == 0), 0, 1), 3)
    return pd.DataFrame(
        {
            "race": np.array([f"r{i}" for i in range(groups)])[code],
            "member": rng.random(n) < 0.5,
            "town": rng.choice(["north", "south"], n),
            "label": (rng.random(n) < score).astype(int),
            "score": score,
            "weight": rng.integers(1, 9, n) / 4,
            "x": rng.normal(size=n),
        }
    )


def pytest_configure() -> None:
    """Let no setting of the shell reach a test: each option can be set by a variable, none of which is meant for it."""
    for name in list(os.environ):
        if name.startswith("FAIRFIX_") and name != "FAIRFIX_DATA_DIR":
            del os.environ[name]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Draw parameters of slow tests; put files with slow tests first, so that none of them is alone at the end.

    The order is kept where time is limited, since the first tests are those that matter most.
    """
    named = any("::" in argument for argument in config.args)
    if PROFILE == "project" and not named:
        left = left_out(items)
        config.hook.pytest_deselected(items=[item for item in items if item in left])
        items[:] = [item for item in items if item not in left]
    if config.getoption("seconds") is not None:
        return
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def left_out(items: list[pytest.Item]) -> set[pytest.Item]:
    """Return the slow tests that this profile does not draw: the same ones each time, others for another law.

    A test marked ``slow(every=True)`` runs with all its parameters, since each of them is a law; one marked
    ``slow(nightly=True)``, which takes more than ten seconds, only where everything is drawn or the test is named.
    """
    laws: dict[str, list[pytest.Item]] = {}
    left: set[pytest.Item] = set()
    for item in items:
        how = getattr(item.get_closest_marker("slow"), "kwargs", {"every": True})
        if how.get("nightly"):
            left.add(item)
        elif not how.get("every"):
            laws.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for law, cases in laws.items():
        rng = np.random.default_rng(list(law.encode()))
        left.update(cases[at] for at in rng.permutation(len(cases))[drawn(len(cases)) :])
    return left


def pytest_collection_finish() -> None:
    """Never look again through what imports and collection have left: it stays, and is most of what there is.

    What tests make is looked through seldom: parsing the package would take seven times as long.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let ``make quick`` end: tests that have not run after so many seconds are skipped, and counted."""
    parser.addoption(
        "--seconds", type=float, default=None, help="skip what has not run after so many seconds"
    )


def over(*_: object) -> None:
    """Leave a test out."""
    pytest.skip("the seconds are over; `make test` runs all")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin no test, and none of its fixtures, when the seconds of the option are over."""
    if START + (item.config.getoption("seconds") or math.inf) < time.monotonic():
        over()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Break a test off when they are over."""
    seconds = item.config.getoption("seconds")
    if seconds is None:
        return (yield)
    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, max(START + seconds - time.monotonic(), 1e-3))
    try:
        return (yield)
    except pytest.PytestUnraisableExceptionWarning:
        # the alarm came in a callback, whose exceptions python reports and drops
        if time.monotonic() < START + seconds:
            raise
        over()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def safe_path_as_it_was() -> Iterator[None]:
    """Leave the environment as it was: the command line, run in this process, keeps its children from the folder."""
    before = os.environ.get("PYTHONSAFEPATH")
    yield
    if before is None:
        os.environ.pop("PYTHONSAFEPATH", None)
    else:
        os.environ["PYTHONSAFEPATH"] = before


@pytest.fixture(scope="session")
def frames() -> Frames:
    """A factory: the same arguments give the same frame."""
    return make_frame


@pytest.fixture
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder, where no configuration lies."""
    monkeypatch.chdir(tmp_path)


class Call:
    """The command line as a call, of which the first part may be a whole line."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, line: str, *more: str) -> tuple[int, str, str]:
        """Run a command; return (status, stdout, stderr)."""
        status = run([*shlex.split(line), *more])
        said = self.capsys.readouterr()
        return status, said.out, said.err

    def ran(self, line: str, *more: str) -> str:
        """Return what a command prints that ends with 0."""
        status, out, err = self(line, *more)
        assert status == 0, err
        return out

    def refused(self, line: str, *more: str) -> str:
        """Return what a command says that ends with 2 and prints nothing."""
        status, out, err = self(line, *more)
        assert (status, out) == (2, ""), err
        return err


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """The command line as a call."""
    return Call(capsys)
