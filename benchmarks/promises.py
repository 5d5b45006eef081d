"""Counts how often what fairfix says is false, on worlds whose truth is known; prints Markdown.

Each promise of ``tests/promises`` is tried on many worlds, through the commands that a user types::

    python benchmarks/promises.py [--share 0.1] [--only NAME] [--first SEED]

Worlds are numbered by seeds, so two runs whose seeds do not meet can be added.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import joblib

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.promises.harness import NOT_SAID, Promise, Tried, judged, promises, upper_limit

FIRST = 1_000
"""First seed: none of the worlds of the test suite is tried again."""
AT_ONCE = 10
"""Worlds that a process tries before it reports."""


def tried(name: str, seeds: range) -> Tried:
    """Try a promise on worlds, in a process of its own."""
    one = next(promise for promise in promises() if promise.name == name)
    total = NOT_SAID
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            try:
                total += one.in_worlds([seed], Path(folder))
            except AssertionError as crash:  # a command that ended as it may not
                total += judged(False, f"world {seed}: {crash}")
    return total


def line(promise: Promise, worlds: int, found: Tried) -> str:
    """Return the line of the table."""
    share = f"{len(found.false) / found.said:.3f}" if found.said else "-"
    return (
        f"| {promise.sentence} | {promise.level:g} | {worlds:,} | {found.said:,} | {len(found.false):,} | {share} "
        f"| {upper_limit(found):.3f} | {promise.verdict(found)} |"
    )


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--share", type=float, default=1.0, help="share of the worlds")
    options.add_argument("--only", default="", help="promises whose name contains this")
    options.add_argument("--first", type=int, default=FIRST, help="seed of the first world")
    options.add_argument("--jobs", type=int, default=2)
    given = options.parse_args()
    print("## Promises\n")
    print(
        'The table shows how often a sentence that fairfix prints is false, in simulated populations ("worlds") '
        "with known values. The sentences come from the commands. *Allowed* is the largest permitted fraction of "
        "false sentences, which is 0 for a certificate. *Said* is the number of sentences printed, and *share* "
        "the fraction that is false. *Upper* is its 95% upper limit. *Kept*: the upper limit is at most the "
        "allowed fraction. *Not shown*: there are too few worlds to show this. *None false*: no sentence was "
        "false, which is all that worlds can show about a certificate.\n"
    )
    print("| promise | allowed | worlds | said | false | share | upper | verdict |")
    print("|---|---|---|---|---|---|---|---|")
    for promise in promises():
        if given.only not in promise.name:
            continue
        worlds = max(1, round(promise.full * given.share))
        end = given.first + worlds
        parts = [range(at, min(at + AT_ONCE, end)) for at in range(given.first, end, AT_ONCE)]
        found = sum(
            joblib.Parallel(n_jobs=given.jobs)(joblib.delayed(tried)(promise.name, part) for part in parts),
            NOT_SAID,
        )
        print(line(promise, worlds, found), flush=True)
        for where in found.false:
            print(where, file=sys.stderr, flush=True)
        for where in found.false[:3]:
            print(f"{promise.name}: {where}", file=sys.stderr)


if __name__ == "__main__":
    main()
