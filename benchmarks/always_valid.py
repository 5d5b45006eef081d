"""Measures what looking often at growing data does to intervals, and what intervals for all looks cost.

Draws streams of decisions, looks at each after every batch, and prints Markdown::

    python benchmarks/always_valid.py --streams 1000

An *alarm* is an interval of the largest difference between groups that excludes 0. Where all groups have one rate,
each is false. *One look* is the interval of an audit, *always* that of ``--always-valid``, and *Bonferroni* that of one
look at the level divided by the number of looks, which has to be planned.

The last table is of ``--of``: how often a guarantee is said to hold, or not to hold any longer, for gaps at its limit,
and how many looks after a change of the gap it takes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import permutations

import numpy as np
from fairfix.auditing.history import level_since, starts_of
from fairfix.stats.estimates import Floats, Means, Proportions
from fairfix.stats.gaps import bonferroni, difference_between_groups
from fairfix.stats.ks import ALWAYS, FIXED
from fairfix.stats.sequences import ConfidenceSequences
from numpy.typing import NDArray

ALPHA = 0.05
BATCH = 100
"""Rows of a look, in equal parts of all groups."""
LOOKS = (1, 5, 20, 52, 200)
LIMIT = 0.1
"""Guaranteed gap."""
CHANGED = 0.25
"""Part of the looks after which a gap changes."""
SIZES = tuple(10**k for k in range(2, 7))


def alarms(
    successes: Floats, rows: Floats, alpha: float, *, always: bool = False, limit: float = 0.0
) -> NDArray[np.bool_]:
    """Return in which streams the largest difference is above a limit, shape (streams,); both are (streams, groups)."""
    groups = successes.shape[1]
    each = [Proportions(*parts) for parts in zip(successes.T, rows.T, strict=True)]
    made = [ConfidenceSequences.of(one) for one in each] if always else each
    level = bonferroni(alpha, groups * (groups - 1))
    out = np.zeros(len(successes), dtype=bool)
    for i, j in permutations(range(groups), 2):
        out |= made[i].minus(made[j], level)[0] > limit
    return out


def first_alarms(
    streams: int, rates: tuple[float, ...], looks: int, seed: int
) -> dict[str, NDArray[np.int64]]:
    """Return the look of each stream's first alarm, ``looks`` + 1 where there is none, by kind of interval."""
    rng = np.random.default_rng([2026, seed])
    successes, rows = np.zeros((streams, len(rates))), np.zeros((streams, len(rates)))
    out = {kind: np.full(streams, looks + 1) for kind in ("one look", "always", "Bonferroni")}
    for look in range(1, looks + 1):
        rows += BATCH // len(rates)
        successes += rng.binomial(BATCH // len(rates), rates, successes.shape)
        # the other two are wider: what does not alarm at one look does not in these
        near = alarms(successes, rows, ALPHA)
        out["one look"][near] = np.minimum(out["one look"][near], look)
        for kind, always, level in (("always", True, ALPHA), ("Bonferroni", False, ALPHA / looks)):
            still = np.flatnonzero(near & (out[kind] > looks))
            out[kind][still[alarms(successes[still], rows[still], level, always=always)]] = look
    return out


def false_alarms(streams: int) -> Iterator[str]:
    """Yield the table of streams with a false alarm."""
    most = LOOKS[-1]
    yield f"**Streams with a false alarm**, {streams:,} streams of equal groups, looks at {BATCH} more rows each\n"
    yield (
        "| groups | rate | intervals | "
        + " | ".join(f"{looks} look{'s' * (looks > 1)}" for looks in LOOKS)
        + " |"
    )
    yield "|---|---|---|" + "---:|" * len(LOOKS)
    for seed, (groups, rate) in enumerate(((2, 0.3), (2, 0.05), (5, 0.3))):
        for kind, first in first_alarms(streams, (rate,) * groups, most, seed).items():
            cells = " | ".join(f"{np.mean(first <= looks):.1%}" for looks in LOOKS)
            yield f"| {groups} | {rate} | {kind} | {cells} |"
    yield ""


def power(streams: int) -> Iterator[str]:
    """Yield the table of looks until a gap is found."""
    yield f"**Looks until the alarm**, {streams:,} streams of two groups, {LOOKS[-1]} looks planned\n"
    yield "| rates | intervals | half of the streams | nine in ten | found at all |\n|---|---|---:|---:|---:|"
    for seed, rates in enumerate(((0.30, 0.35), (0.30, 0.40))):
        for kind, first in first_alarms(streams, rates, LOOKS[-1], 10 + seed).items():
            half, most = (
                f"{look:.0f}" if look <= LOOKS[-1] else "–"
                for look in np.quantile(first, (0.5, 0.9), method="higher")
            )
            wrong = " (and false alarms)" if kind == "one look" else ""
            share = np.mean(first <= LOOKS[-1])
            yield f"| {rates[0]:.0%} and {rates[1]:.0%} | {kind}{wrong} | {half} | {most} | {share:.1%} |"
    yield ""


def verdicts(
    streams: int, gap: float, changed: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return each stream's first look at which the guarantee holds, and at which it no longer does.

    The gap is ``changed`` after a part of the looks; a look that never comes is one more than the last.
    """
    rng, looks = np.random.default_rng([2026, seed]), LOOKS[-1]
    each = np.full((streams, 2), BATCH / 2)
    sums = np.zeros((looks + 1, streams, 2))
    holds, ends = np.full(streams, looks + 1), np.full(streams, looks + 1)
    for look in range(1, looks + 1):
        rates = 0.3, 0.3 + (gap if look <= CHANGED * looks else changed)
        sums[look] = sums[look - 1] + rng.binomial(BATCH // 2, rates, (streams, 2))
        rate = sums[look] / (look * each)
        # half of an interval is wider than 2 / sqrt(n), so nearer ones are not decided
        near = LIMIT - np.abs(rate[:, 1] - rate[:, 0]) > 2 / np.sqrt(look * each[:, 0])
        if (still := np.flatnonzero(near & (holds > looks))).size:
            made = [
                ConfidenceSequences.of(Proportions(sums[look, still, g], look * each[still, g]))
                for g in (0, 1)
            ]
            low, high = made[1].minus(made[0], ALPHA)
            holds[still[np.maximum(high, -low) <= LIMIT]] = look
        for since in (1, *sorted(starts_of(look))):
            level = ALPHA if since == 1 else level_since(since, ALPHA)
            own, rows = sums[look] - sums[since - 1], (look - since + 1) * each
            far = np.abs(np.diff(own / rows, axis=1))[:, 0] > LIMIT + 2 / np.sqrt(rows[:, 0])
            if not (still := np.flatnonzero(far & (ends > looks))).size:
                continue
            found = alarms(own[still], rows[still], level, always=True, limit=LIMIT)
            ends[still[found]] = look
    return holds, ends


def renewals(streams: int) -> Iterator[str]:
    """Yield the table of guarantees that are renewed."""
    looks, change = LOOKS[-1], int(CHANGED * LOOKS[-1])
    yield (
        f"**Guarantees that are renewed**, {streams:,} streams of two groups, a guaranteed gap of {LIMIT:.0%}, {looks} "
        "looks: streams that get a verdict at some look\n"
    )
    yield f"| gap | after look {change} | holds | no longer holds | after looks, half of these | nine in ten |"
    yield "|---|---|---:|---:|---:|---:|"
    for seed, (gap, changed) in enumerate(
        ((LIMIT, LIMIT), (0.05, 0.05), (0.05, 0.15), (0.05, 0.2), (0.05, 0.3), (0.15, 0.15))
    ):
        holds, ends = verdicts(streams, gap, changed, 20 + seed)
        ended = ends[ends <= looks] - (change if changed != gap else 0)
        after = (
            [f"{one:.0f}" for one in np.quantile(ended, (0.5, 0.9), method="higher")]
            if ended.size
            else ["–", "–"]
        )
        shares = f"{np.mean(holds <= looks):.1%} | {np.mean(ends <= looks):.1%}"
        yield f"| {gap:.0%} | {changed:.0%} | {shares} | {' | '.join(after)} |"
    yield ""


def widths() -> Iterator[str]:
    """Yield the table of widths as multiples of those of one look."""
    yield "**Width as a multiple of that of one look**, at rows of each group\n"
    yield "| number | " + " | ".join(f"{size:,}" for size in SIZES) + " |\n|---|" + "---:|" * len(SIZES)
    for rate in (0.5, 0.2, 0.02):
        rows: dict[str, list[str]] = {f"rate {rate}": [], f"difference of two rates {rate}": []}
        for size in SIZES:
            once = Proportions(np.full(2, rate * size), np.full(2, float(size)))
            both = ConfidenceSequences.of(once), once
            each = [float(np.subtract(*one.limits(ALPHA)[::-1])[0]) for one in both]
            gaps = [difference_between_groups(one, ALPHA).high for one in both]
            for cells, (always, fixed) in zip(rows.values(), (each, gaps), strict=True):
                cells.append(f"{always / fixed:.2f}")
        for name, cells in rows.items():
            yield f"| {name} | {' | '.join(cells)} |"
    mean, variance = 0.15, 0.15 * 0.85 / 21
    losses = [
        Means(np.array([mean]), np.array([variance]), np.array([float(size)]), (0.0, 1.0)) for size in SIZES
    ]
    both_losses = [
        [float(np.subtract(*one.limits(ALPHA)[::-1])[0]) for one in (ConfidenceSequences.of(once), once)]
        for once in losses
    ]
    yield f"| mean loss 0.15 ± 0.08 | {' | '.join(f'{a / b:.2f}' for a, b in both_losses)} |"
    margins = [float(ALWAYS.low(n, n, ALPHA) / FIXED.low(n, n, ALPHA)) for n in SIZES]
    yield f"| KS distance, lower end | {' | '.join(f'{one:.2f}' for one in margins)} |\n"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=1000)
    streams = parser.parse_args().streams
    print("## Looking often: false alarms, width and power\n")
    for table in (false_alarms(streams), power(streams), renewals(max(streams // 5, 1)), widths()):
        print("\n".join(table))


if __name__ == "__main__":
    main()
