"""What a promise is, how a world is tried on it, and how often it may be false.

A *world* is drawn from a seed and knows its truth: the true groups, the true effect, the rates of the population, the
optimum by an independent solver. A *promise* is a sentence that fairfix prints. Trying a promise on a world runs the
commands that a user types and compares what is printed, or what the written file does, with the truth.

Each file of this folder declares promises with :func:`promise`. Pytest tries each on a few worlds
(``test_promises.py``); ``benchmarks/promises.py`` tries it on many and writes ``docs/benchmarks/promises.md``.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from fairfix.cli import run
from fairfix.data.data_spec import DataSpec
from fairfix.data.scan import read_table
from fairfix.data.table import Table
from fairfix.tasks.row_split import Split, split_rows
from scipy import stats

from tests.strategies import PROFILE, examples

SURE = 1e-4
"""Chance at which the table of promises may blame one that is kept at its level: worlds and promises are many."""
SURE_OF_FEW = 0.01
"""That chance in the tests, whose few worlds are the same each time: 2 false of 3 are blamed at a level of 0.05."""


@dataclass(frozen=True)
class Ran:
    """What a command did: its exit status, its JSON result where it wrote one, and what it printed."""

    status: int
    result: dict[str, Any]
    out: str
    err: str


class Refused(Exception):  # noqa: N818  # nothing is wrong
    """A command was refused, so that its sentence is not said."""


@dataclass(frozen=True)
class Shell:
    """A folder in which commands are run, as a user types them."""

    folder: Path

    def write(self, frame: pd.DataFrame, name: str = "data.parquet") -> str:
        """Write rows as Parquet, or as CSV where the name ends so, and return the path."""
        path = self.folder / name
        frame.to_csv(path, index=False) if name.endswith(".csv") else frame.to_parquet(path)
        return str(path)

    def run(self, *arguments: object) -> Ran:
        """Run ``fairfix ARGUMENTS``, of which the first may be several words in one text.

        ``audit``, ``repair`` and ``compare`` also give their JSON result. They print that result, and the text that a
        user sees where it is asked for by ``--format text``. A crash (status 70) is an error of the test, whatever the
        promise.
        """
        words = [*shlex.split(str(arguments[0])), *map(str, arguments[1:])]
        saved = self.folder / "result.json"
        saved.unlink(missing_ok=True)
        in_text = "--format" in words
        if words[0] in ("audit", "repair", "compare"):
            words += ["--out", f"json={saved}"] if in_text else ["--format", "json"]
        out, err = io.StringIO(), io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = run(words)
        assert status != 70, f"fairfix {' '.join(words)}\n{err.getvalue()}"
        # a report of a run that did not happen says only that
        written = "" if status == 2 else saved.read_text() if saved.exists() else out.getvalue()
        result = json.loads(written) if written and words[0] in ("audit", "repair", "compare") else {}
        return Ran(status, result, out.getvalue(), err.getvalue())

    def did(self, *arguments: object) -> Ran:
        """Run the same; where it is refused, with status 2, nothing is promised."""
        done = self.run(*arguments)
        if done.status == 2:
            raise Refused(done.err)
        return done

    def predict(self, artifact: str, data: str, *more: object) -> pd.DataFrame:
        """Return what ``fairfix predict`` writes for the rows of a file."""
        written = self.folder / "predicted.parquet"
        done = self.run("predict", artifact, data, "-o", written, *more)
        assert done.status == 0, done.err
        return pd.read_parquet(written)


@dataclass(frozen=True)
class Tried:
    """What became of a promise in one world: how often its sentence was printed, and where it was false."""

    said: int
    false: tuple[str, ...] = ()

    def __add__(self, other: Tried) -> Tried:
        return Tried(self.said + other.said, self.false + other.false)


NOT_SAID = Tried(0)
"""The world in which fairfix did not print the sentence: refused, undecided, or said something weaker."""


def judged(holds: bool, where: str) -> Tried:
    """Return a sentence that was printed once, and false unless it ``holds``; ``where`` describes the world."""
    return Tried(1, () if holds else (where,))


def split_of(data: Any, data_spec: DataSpec, holdout: float = 0.3) -> Split:
    """Return the numbers of the rows that a repair with seed 0 and nothing to choose is fitted to, and those held out.

    ``data`` is a table that was read, or what is read as one.
    """
    table = data if isinstance(data, Table) else read_table(data, data_spec)
    return split_rows(table, np.random.default_rng(0).spawn(2)[0], validation=0.0, holdout=holdout)


def distance_to_overall(values: Any, groups: Any) -> float:
    """Return the largest distance between the distribution of a group's values and everybody's."""
    at, codes = np.unique(values, return_inverse=True)
    below = [np.cumsum(np.bincount(codes[groups == name], minlength=at.size)) for name in np.unique(groups)]
    overall = np.cumsum(np.bincount(codes)) / codes.size
    return float(max(np.abs(own / own[-1] - overall).max() for own in below))


def parts_of(frame: pd.DataFrame, path: str, data_spec: DataSpec) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows of a file that a repair with seed 0 and nothing to choose is fitted to, and those held out."""
    split = split_of(path, data_spec)
    fit, held = (frame.iloc[rows].reset_index(drop=True) for rows in (split.fit, split.holdout))
    return fit, held


Try = Callable[[np.random.Generator, Shell], Tried]


@dataclass(frozen=True)
class Promise:
    """A sentence that fairfix prints.

    Attributes
    ----------
    sentence
        As a reader of the report understands it.
    level
        Share of the times it is printed that it may be false: 0 for a certificate, 0.05 for a 95% interval.
    quick, full
        Number of worlds in the tests, and in the table of the benchmarks. Of a certificate, which a single false
        sentence breaks, a pull request tries a fifth of the quick ones. Of an interval 3 see as much as 5, and 8 more
        than 6: 2 of 3, 3 of 5, 6 or 8 have to miss, which one that misses every other time does with a chance of
        0.50, 0.50, 0.66 and 0.86, and one that is right with 0.7, 0.1, 0.2 and 0.6 %.
    must_say
        Least share of worlds in which it has to be printed; a tool that says nothing promises nothing.
    tries
        Draws a world and holds the sentence against it.
    """

    sentence: str
    level: float
    quick: int
    full: int
    must_say: float
    tries: Try
    name: str

    @property
    def worlds(self) -> int:
        """Worlds that the tests try it on: of a pull request, half of those of an interval."""
        half = PROFILE == "project" and self.level
        return (self.quick + 1) // 2 if half else self.quick if self.level else examples(self.quick)

    def in_worlds(self, seeds: Iterable[int], folder: Path) -> Tried:
        """Try the promise on one world per seed; a false one names its seed."""
        total = NOT_SAID
        for seed in seeds:
            home = folder / f"{self.name}-{seed}"
            home.mkdir()
            one = NOT_SAID
            with quiet_settings(), contextlib.suppress(Refused):
                one = self.tries(np.random.default_rng(seed), Shell(home))
            total += Tried(one.said, tuple(f"world {seed}: {where}" for where in one.false))
        return total

    def broken(self, found: Tried, sure: float = SURE) -> bool:
        """Whether the sentence was false more often than its level explains, but for a chance of ``sure``."""
        if self.level == 0:
            return bool(found.false)
        return bool(stats.binom.sf(len(found.false) - 1, max(found.said, 1), self.level) < sure)

    def verdict(self, found: Tried) -> str:
        """Return what worlds show, in a word or two: kept only if its upper limit is within what is allowed.

        No number of worlds shows that a certificate is never false.
        """
        if self.broken(found):
            return "**broken**"
        if not found.said:
            return "never said"
        if self.level == 0:
            return "none false"
        return "kept" if upper_limit(found) <= self.level else "not shown"


def upper_limit(found: Tried) -> float:
    """Return the upper limit of 95 % of Clopper and Pearson of the share of false sentences."""
    return float(stats.beta.ppf(0.95, len(found.false) + 1, max(found.said - len(found.false), 1)))


@contextlib.contextmanager
def quiet_settings() -> Iterator[None]:
    """Hide settings of the environment from the commands."""
    kept = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("FAIRFIX_")}
    try:
        yield
    finally:
        os.environ.update(kept)


PROMISES: list[Promise] = []
"""All promises, in the order of their files; :func:`promises` fills it."""


def promises() -> list[Promise]:
    """Return all promises."""
    for path in sorted(Path(__file__).parent.glob("of_*.py")):
        importlib.import_module(f"tests.promises.{path.stem}")
    return PROMISES


def promise(
    sentence: str = "", *, level: float, quick: int, full: int, must_say: float = 0.5
) -> Callable[[Try], Try]:
    """Declare a promise; the function that is decorated draws a world and tries it.

    Without a ``sentence`` it is the first line of the function's docstring.
    """

    def keep(tries: Try) -> Try:
        first = (tries.__doc__ or "").partition("\n")[0].removesuffix(".")
        said = sentence or (first if first[1:2].isupper() else first[:1].lower() + first[1:])
        PROMISES.append(Promise(said, level, quick, full, must_say, tries, tries.__name__))
        return tries

    return keep
