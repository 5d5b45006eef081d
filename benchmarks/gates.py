"""Measures how often a gate fails a model that does nothing wrong, and whether it fails one that does.

Draws data sets from known truths, runs the library's own checks on each, and counts verdicts. Prints Markdown::

    python benchmarks/gates.py --sets 1000

Groups have 30 to 1,000 rows, their sizes drawn on a log scale, two to six groups to a set, one rate of selection
for a set, drawn from 0.05 to 0.95. *At parity* all groups have that rate, so every failure is a false alarm. Where
a gap is *true*, one group lies lower by it. The baseline gate compares two independent samples: of one truth, at
parity and with a gap, where every failure is a false alarm, and of a truth that has become worse.

``interval`` is fairfix's gate at 95%, ``point`` compares the estimate with the same limit.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from fairfix.auditing.audit import audit
from fairfix.auditing.baseline import Allowance, compare
from fairfix.auditing.checks import Check, GateOn
from fairfix.auditing.results import Settings
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.report.layout import HEADLINES
from fairfix.schema.audit import Audit
from numpy.typing import NDArray

READING = DataSpec(ColumnRoles(("group",), label="label", prediction="decision"))
USUAL = tuple(HEADLINES)
GATES: tuple[GateOn, ...] = ("interval", "point")
VERDICTS = ("fail", "undecided", "pass")

Table = Mapping[str, pa.Array]


@dataclass(frozen=True)
class Truth:
    """Sizes and rates of the groups of a set, and the seed of its rows."""

    sizes: NDArray[np.int64]
    rates: NDArray[np.float64]
    seed: int

    def draw(self, sample: int = 0, gap: float | None = None, times: int = 1) -> Table:
        """Return rows: group, label and decision; with ``gap``, the first group lies lower by it."""
        sizes = times * self.sizes
        rng = np.random.default_rng([self.seed, sample])
        rates = self.rates.copy()
        if gap is not None:
            rates[0] = rates[1] - gap
        rate = np.repeat(rates, sizes)
        group = np.repeat([f"g{i}" for i in range(sizes.size)], sizes)
        return {
            "group": pa.array(group.tolist()),
            "label": pa.array(rng.integers(0, 2, rate.size)),
            "decision": pa.array((rng.random(rate.size) < rate).astype(np.int64)),
        }


def truths(sets: int, least: int = 30, most: int = 1000, low: float = 0.05) -> Iterator[Truth]:
    """Yield seeded truths with parity."""
    for seed in range(sets):
        rng = np.random.default_rng([2026, seed])
        groups = int(rng.integers(2, 7))
        sizes = np.exp(rng.uniform(np.log(least), np.log(most), groups)).round().astype(np.int64)
        yield Truth(sizes, np.full(groups, rng.uniform(low, 0.95)), seed)


def judged(table: Table, checks: tuple[str, ...] = ()) -> dict[GateOn, Audit]:
    """Return an audit under both gates."""
    parsed = tuple(Check.parse(text) for text in checks)
    return {gate: audit(table, READING, Settings(checks=parsed, gate_on=gate)) for gate in GATES}


def alone(sets: int, checks: tuple[str, ...], gap: float | None = None, **sizes: float) -> Any:
    """Return the verdicts of single checks: (check, gate) -> verdict -> how many."""
    counts: dict[tuple[str, GateOn], Counter[str]] = {(c, g): Counter() for c in checks for g in GATES}
    for truth in truths(sets, **sizes):
        for gate, result in judged(truth.draw(gap=gap), checks).items():
            for found in result.checks:
                counts[found.check, gate][found.verdict] += 1
    return counts


def against(
    sets: int,
    allowed: tuple[str, ...],
    gap: float | None = None,
    before: float | None = None,
    times: int = 1,
    **sizes: float,
) -> Any:
    """Return the verdicts against a baseline with its own gap and size: (allowance, gate) -> worst verdict."""
    counts: dict[tuple[str, GateOn], Counter[str]] = {(a, g): Counter() for a in allowed for g in GATES}
    for truth in truths(sets, **sizes):
        drawn = truth.draw(0, before, times), truth.draw(1, gap)
        old, new = (audit(table, READING) for table in drawn)
        for text in allowed:
            for gate in GATES:
                _, checks = compare(old, new, (Allowance.parse(text),), USUAL, gate)
                verdicts = {check.verdict for check in checks}
                counts[text, gate][next(v for v in VERDICTS if v in verdicts)] += 1
    return counts


def lines(title: str, found: Any, sets: int) -> Iterator[str]:
    """Yield a table of shares."""
    yield f"**{title}**, {sets:,} sets\n"
    yield "| gate | " + " | ".join(f"{gate}: {verdict}" for gate in GATES for verdict in VERDICTS) + " |"
    yield "|---|" + "---:|" * (len(GATES) * len(VERDICTS))
    for name in dict.fromkeys(name for name, _ in found):
        cells = [f"{found[name, gate][verdict] / sets:.1%}" for gate in GATES for verdict in VERDICTS]
        yield f"| `{name}` | " + " | ".join(cells) + " |"
    yield ""


CHECKS = (
    "dp.difference<=0",
    "dp.difference<=0.05",
    "dp.difference<=0.1",
    "dp.ratio>=0.8",
    "eo.difference<=0.1",
)
ALLOWED = (
    *("dp.difference.change<=0", "dp.difference.change<=0.02", "dp.ratio.change>=-0.05"),
    *("change<=0", "change<=0.02"),
)
LARGE = {"least": 4000, "most": 8000, "low": 0.4}


def tenth(sets: int) -> int:
    """Return how many data sets of many rows are drawn."""
    return max(1, sets // 10)


TABLES: Mapping[str, Callable[[int], tuple[Any, int]]] = {
    "Exact parity, groups of 30 to 1,000 rows: every failure is a false alarm": lambda n: (
        alone(n, CHECKS),
        n,
    ),
    "A true gap of 0.3, groups of 4,000 to 8,000 rows: a limit below it has to fail": lambda n: (
        alone(tenth(n), CHECKS[1:], 0.3, **LARGE),
        tenth(n),
    ),
    "Not worse than the baseline, both at parity, groups of 30 to 1,000 rows: every failure is a false alarm": (
        lambda n: (against(n, ALLOWED), n)
    ),
    "Not worse than the baseline, both with a gap of 0.2, the baseline with ten times the rows: false alarms": (
        lambda n: (against(n, ALLOWED, 0.2, 0.2, 10, low=0.3), n)
    ),
    "Worse than the baseline by 0.3, groups of 4,000 to 8,000 rows": lambda n: (
        against(tenth(n), ALLOWED, 0.3, **LARGE),
        tenth(n),
    ),
}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=1000)
    sets = parser.parse_args().sets
    print("## Gates: false alarms and true ones\n")
    print(
        "Shares of verdicts on seeded data whose truth is known; `interval` is the gate at 95%, `point` compares the "
        "estimate alone. `change<=0` checks some ten comparisons at once; its worst verdict counts.\n"
    )
    for title, run in TABLES.items():
        found, count = run(sets)
        print("\n".join(lines(title, found, count)))


if __name__ == "__main__":
    main()
