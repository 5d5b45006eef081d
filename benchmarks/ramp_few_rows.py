"""The ramp on few rows: a rule without labels beside rules that learn from them.

``python benchmarks/ramp_few_rows.py [--splits 5] [--subsamples 4]`` prints Markdown.

The data, the training and the test rows are those of :mod:`ramp_accuracy`; the rows for the repair are drawn from its
40% for repair and validation. A draw in which a group lacks a label is drawn again: Fairlearn cannot be fitted on it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from fairfix.methods.base import Repairer
from fairfix.methods.ramp import Ramp

from engine import table
from peers import Floats, Rows, fairlearn, installed, joined, repaired
from tabular import Scored, Source, scored, sources

Method = Callable[[Rows, Rows], Floats]
"""Rows of the fit and test rows to probabilities of a positive decision on the latter."""

SIZES = (200, 500, 1000, 2000, 5000)
USED = ("RF", "LR")
GAMMA = 0.02
GOAL, GOAL_ROWS = 0.3, 200

FREE, FAIRLEARN = "ramp, joint rho, no labels", "fairlearn, probabilities"


def ours(repairer: Repairer) -> Method:
    """Return fairfix as a method."""
    return lambda fit, test: repaired(repairer, fit.table(), test.table())


METHODS: Mapping[str, Method] = {
    FREE: ours(Ramp(gamma=GAMMA, calibrate="none")),
    "ramp, sigmoid by group": ours(Ramp(gamma=GAMMA, calibrate="sigmoid")),
    "exact from labels (gamma 0, isotonic)": ours(Ramp(gamma=0.0, calibrate="isotonic")),
    FAIRLEARN: lambda fit, test: fairlearn(fit)(test.score, test.group),
}


@dataclass(frozen=True)
class Outcome:
    """One method fitted on one draw."""

    size: int
    source: str
    classifier: str
    seed: int
    draw: int
    method: str
    accuracy: float
    gap: float


def drawn(rows: Rows, size: int, rng: np.random.Generator) -> Rows:
    """Return a draw without replacement in which each group has both labels."""
    groups = int(rows.group.max()) + 1
    while True:
        some = rows.take(rng.choice(rows.score.size, size, replace=False))
        if np.bincount(2 * some.group + some.label, minlength=2 * groups).all():
            return some


def on_draws(
    data: Scored, methods: Mapping[str, Method], subsamples: int, rng: np.random.Generator
) -> Iterator[tuple[int, int, str, float, float]]:
    """Yield (size, draw, method, accuracy, gap) for all draws from one split."""
    pool = joined([data.post, data.validation])
    for size in SIZES:
        for draw in range(subsamples):
            fit = drawn(pool, size, rng)
            for name, method in methods.items():
                chance = method(fit, data.test)
                yield size, draw, name, data.test.accuracy(chance), data.test.gap(chance)


def outcomes(
    data: Sequence[Source], methods: Mapping[str, Method], splits: int, subsamples: int
) -> Iterator[Outcome]:
    """Yield every method on every draw."""
    for source in data:
        for seed in range(splits):
            for classifier in USED:
                print(f"{source.name} {classifier} split {seed}", file=sys.stderr)
                rows = scored(source, classifier, seed)
                rng = np.random.default_rng([seed, 7])
                for size, draw, method, accuracy, gap in on_draws(rows, methods, subsamples, rng):
                    yield Outcome(size, source.name, classifier, seed, draw, method, accuracy, gap)


def mean_of(found: Sequence[Outcome]) -> str:
    """Return the mean accuracy and gap in percent."""
    accuracy, gap = np.mean([(one.accuracy, one.gap) for one in found], axis=0)
    return f"{100 * accuracy:.2f} / {100 * gap:.1f}"


def accuracy_table(found: Sequence[Outcome], methods: Sequence[str]) -> str:
    """Return accuracy and gap by size, method, data set and classifier."""
    pairs = list(dict.fromkeys((one.source, one.classifier) for one in found))
    shown = []
    for size in SIZES:
        for method in methods:
            mine = [one for one in found if (one.size, one.method) == (size, method)]
            each = [mean_of([one for one in mine if (one.source, one.classifier) == pair]) for pair in pairs]
            shown.append([f"{size:,}", method, *each, mean_of(mine)])
    return table(("rows", "method", *(" ".join(pair) for pair in pairs), "mean"), shown)


def lead(found: Sequence[Outcome], size: int, method: str, part: str = "accuracy") -> tuple[float, float]:
    """Return what the label-free rule has more than a method, in percentage points, and its standard error.

    Draws and classifiers of one split share rows, so the error is taken over splits of data sets.
    """
    signs = {FREE: 100.0, method: -100.0}
    terms: dict[tuple[str, int], list[float]] = {}
    for one in found:
        if one.size == size and one.method in signs:
            terms.setdefault((one.source, one.seed), []).append(signs[one.method] * getattr(one, part))
    means = np.array([2.0 * np.mean(some) for some in terms.values()])  # each pair gave two terms
    error = float(means.std(ddof=1) / np.sqrt(means.size)) if means.size > 1 else float("nan")
    return float(means.mean()), error


def lead_table(found: Sequence[Outcome], methods: Sequence[str]) -> str:
    """Return the differences of accuracy and of the gap by size."""
    shown = []
    for size in SIZES:
        for name in methods:
            if name != FREE:
                parts = [lead(found, size, name, part) for part in ("accuracy", "gap")]
                shown.append([f"{size:,}", name, *(f"{mean:+.2f} +- {error:.2f}" for mean, error in parts)])
    return table(("rows", "other method", "accuracy, pp", "gap, pp"), shown)


def goal_line(found: Sequence[Outcome], methods: Sequence[str]) -> str:
    """Return the figure of the goal, computed from the outcomes."""
    least = min(lead(found, GOAL_ROWS, name)[0] for name in methods if name != FREE)
    judged = "met" if least >= GOAL else "**missed**"
    return (
        f"At {GOAL_ROWS} rows the rule without labels minus the best of those with labels: {least:+.2f} pp "
        f"(goal: at least {GOAL:g}: {judged})."
    )


def report(splits: int, subsamples: int) -> Iterator[str]:
    """Yield the paragraphs of the report."""
    yield "## Ramp on few rows"
    data, missing = sources()
    yield from missing
    if not data:
        return
    peers, said = installed(["fairlearn"])
    methods = {name: method for name, method in METHODS.items() if name != FAIRLEARN or peers}
    yield (
        f"Fitted on n rows, judged on the whole test part; {splits} splits x {subsamples} draws. gamma {GAMMA:g} where "
        f"nothing else is said. Cells: accuracy / gap between selection rates in percent, expected over the "
        f"randomisation. {said}"
    )
    found = list(outcomes(data, methods, splits, subsamples))
    names = list(methods)
    yield accuracy_table(found, names)
    yield (
        f"`{FREE}` minus the others, mean over all, with the standard error over splits of data sets. A larger gap on "
        "test rows is no advantage: accuracy and gap have to be read together."
    )
    yield lead_table(found, names)
    yield goal_line(found, names)


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--subsamples", type=int, default=4)
    given = parser.parse_args()
    for paragraph in report(given.splits, given.subsamples):
        print(paragraph, end="\n\n", flush=True)


if __name__ == "__main__":
    main()
