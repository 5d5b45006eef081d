"""Measures whether the intervals of fairfix.stats hold what they promise.

Draws counts from known truths, computes every interval with the library's own functions, and counts how
often the truth lies inside. Nominal 95%; less than 93% anywhere is a fault. Prints Markdown::

    python benchmarks/coverage.py --simulations 2000

One line per quantity, truth and number of groups; one column per number of rows in a group. A cell reads
``coverage / median width``, and at equality also ``!false alarms``: the share of simulations whose lower
end lies above 0 (whose upper end lies below 1, for ratios), which is how often a gate ``gap > 0`` fails a
fair model. ``mixed`` sizes run geometrically from 30 to 10,000 rows.

The last table but one compares the selection-rate difference with an *oracle*, the simultaneous max-|t| interval
that knows the true standard errors and the exact joint quantile, and with the percentile bootstrap of rows.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from fairfix.stats.estimates import Areas, CalibrationErrors, Estimates, Limits, Means, Proportions
from fairfix.stats.gaps import (
    Contrasts,
    Gap,
    combine,
    difference_between_groups,
    difference_to_overall,
    difference_to_reference,
    ratio_between_groups,
    ratio_to_overall,
    ratio_to_reference,
    worst,
)
from fairfix.stats.geometric_noise import NoisyProportions
from fairfix.stats.ks import ks_between_cdfs, ks_between_groups, ks_to_overall
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]

ALPHA = 0.05
DEMANDED = 0.93
GROUPS = (2, 5, 20)
SIZES = ("30", "100", "1000", "10000", "mixed")
LEVELS = 256  # a score is one of so many: nearly continuous for the sizes here


# --- what is simulated ---------------------------------------------------------------------------------


def rows(size: str, groups: int) -> Floats:
    """Rows of every group."""
    if size == "mixed":
        return np.geomspace(30, 10_000, groups).round()
    return np.full(groups, float(size))


def rates(truth: str, groups: int) -> Floats:
    """True rate of every group; where one stands apart it is the first, in mixed sizes the smallest."""
    if truth.startswith("equal "):
        return np.full(groups, float(truth.removeprefix("equal ")))
    if truth == "one apart":
        return np.where(np.arange(groups) == 0, 0.56, 0.40)
    if truth == "rare, one apart":
        return np.where(np.arange(groups) == 0, 0.06, 0.02)
    return np.linspace(0.3, 0.6, groups)


RATE_TRUTHS = ("equal 0.5", "equal 0.1", "equal 0.02", "one apart", "rare, one apart", "spread")


def beta_levels(a: float, b: float, levels: int = LEVELS) -> Floats:
    """Probabilities of the score levels, from Beta(a, b)."""
    return np.diff(special.betainc(a, b, np.linspace(0, 1, levels + 1)))


def score_shapes(truth: str, groups: int) -> Floats:
    """Distribution of the scores of every group: (groups, levels)."""
    kind, _, relation = truth.partition(", ")
    levels = 5 if kind == "tied" else LEVELS
    a, b = (0.3, 6.0) if kind == "skewed" else (2.0, 3.0)
    shapes = np.tile(beta_levels(a, b, levels), (groups, 1))
    if relation == "one apart":
        shapes[0] = beta_levels(a + 0.5, b, levels)
    return shapes


SCORE_TRUTHS = tuple(
    f"{kind}, {how}" for kind in ("smooth", "tied", "skewed") for how in ("equal", "one apart")
)


@dataclass(frozen=True, eq=False)
class OneSimulation(Estimates):
    """The estimates of one simulation, with limits looked up in those of all."""

    batch: Batch
    index: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", self.batch.value[self.index])
        object.__setattr__(self, "slack", np.zeros(len(self.value)))
        object.__setattr__(self, "support", self.batch.all.support)

    def _limits_at(self, alpha: float) -> Limits:
        """Limits of this simulation's groups."""
        low, high = self.batch.limits(alpha)
        return low[self.index], high[self.index]


class Batch:
    """Estimates of many simulations; limits of one level are computed for all of them at once."""

    def __init__(self, estimates: Estimates, groups: int) -> None:
        self.all = estimates
        self.shape = (-1, groups)
        self.value = estimates.value.reshape(self.shape)
        self.known: dict[float, Limits] = {}

    def limits(self, alpha: float) -> Limits:
        """Limits of all simulations: two arrays (simulations, groups)."""
        if alpha not in self.known:
            low, high = self.all.sampling_limits(alpha)
            self.known[alpha] = low.reshape(self.shape), high.reshape(self.shape)
        return self.known[alpha]

    def __iter__(self) -> Iterator[OneSimulation]:
        return (OneSimulation(self, i) for i in range(len(self.value)))


def proportions(successes: Floats, totals: Floats) -> Batch:
    totals = np.broadcast_to(totals, successes.shape)
    return Batch(Proportions(successes.ravel(), totals.ravel()), successes.shape[1])


def together(groups: int) -> float:
    """The level at which so many independent groups are all covered with 95%."""
    return 1 - (1 - ALPHA) ** (1 / groups)


# --- what is counted -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tally:
    """Coverage, median width and false alarms of one cell of the table."""

    coverage: float
    width: float
    alarms: float | None

    def __str__(self) -> str:
        alarms = "" if self.alarms is None else f" !{self.alarms:.3f}"
        flag = "**" if self.coverage < DEMANDED else ""
        return f"{flag}{self.coverage:.3f}{flag} / {self.width:.3g}{alarms}"


def tally(low: Floats, high: Floats, truth: float, fair: float | None = None) -> Tally:
    """``fair`` is the value that perfect fairness has, where the truth is that."""
    inside = (low <= truth + 1e-12) & (truth - 1e-12 <= high)
    alarms = None
    if fair is not None and math.isclose(truth, fair, abs_tol=1e-12):
        alarms = float(np.mean((low > fair) | (high < fair)))
    return Tally(float(inside.mean()), float(np.median(high - low)), alarms)


def tally_gaps(gaps: list[Gap], truth: float, fair: float | None = 0.0) -> Tally:
    return tally(np.array([g.low for g in gaps]), np.array([g.high for g in gaps]), truth, fair)


def tally_all(low: Floats, high: Floats, truth: Floats) -> Tally:
    """Coverage of all groups at once; (simulations, groups)."""
    inside = ((low <= truth + 1e-12) & (truth - 1e-12 <= high)).all(axis=1)
    return Tally(float(inside.mean()), float(np.median(high - low)), None)


def tally_comparisons(results: list[Contrasts], truth: Floats) -> Tally:
    return tally_all(np.array([r.low for r in results]), np.array([r.high for r in results]), truth)


Cells = dict[str, Tally]


def rate_cells(truth: str, size: str, groups: int, simulations: int, rng: np.random.Generator) -> Cells:
    """Everything that is a function of one rate per group."""
    n, p = rows(size, groups), rates(truth, groups)
    s = rng.binomial(n.astype(int), p, (simulations, groups)).astype(float)
    batch = proportions(s, n)
    low, high = batch.limits(together(groups))
    reference = [difference_to_reference(e, groups - 1, ALPHA) for e in batch]
    ratios = [ratio_to_reference(e, groups - 1, ALPHA) for e in batch]
    rest = proportions(s.sum(axis=1, keepdims=True) - s, n.sum() - n)
    share = n / n.sum()
    overall = [difference_to_overall(e, r, share, ALPHA) for e, r in zip(batch, rest, strict=True)]
    ratios_overall = [ratio_to_overall(e, r, share, ALPHA) for e, r in zip(batch, rest, strict=True)]
    everybody = float(share @ p)
    to_one = np.minimum(p / p[-1], p[-1] / p).min(), np.minimum(p / everybody, everybody / p).min()
    return {
        "rate, all groups": tally_all(low, high, p),
        "smallest rate": tally_gaps([worst(e, ALPHA, smallest=True) for e in batch], float(p.min()), None),
        "difference": tally_gaps([difference_between_groups(e, ALPHA) for e in batch], float(np.ptp(p))),
        "ratio": tally_gaps([ratio_between_groups(e, ALPHA) for e in batch], float(p.min() / p.max()), 1.0),
        "difference to reference": tally_gaps([r.gap for r in reference], float(np.abs(p - p[-1]).max())),
        "difference to reference, all groups": tally_comparisons(reference, p - p[-1]),
        "ratio to reference": tally_gaps([r.gap for r in ratios], float(to_one[0]), 1.0),
        "difference to overall": tally_gaps([r.gap for r in overall], float(np.abs(p - everybody).max())),
        "difference to overall, all groups": tally_comparisons(overall, p - everybody),
        "ratio to overall": tally_gaps([r.gap for r in ratios_overall], float(to_one[1]), 1.0),
    }


def odds_cells(truth: str, size: str, groups: int, simulations: int, rng: np.random.Generator) -> Cells:
    """Equalized odds: 30% positives, the true positive rates as given, false positive rates half of them."""
    n, p = rows(size, groups), rates(truth, groups)
    gaps = []
    for count, rate in ((np.round(0.3 * n), p), (n - np.round(0.3 * n), p / 2)):
        batch = proportions(rng.binomial(count.astype(int), rate, (simulations, groups)).astype(float), count)
        gaps.append([difference_between_groups(e, ALPHA / 2) for e in batch])
    combined = [combine(*pair) for pair in zip(*gaps, strict=True)]
    return {"equalized odds": tally_gaps(combined, float(np.ptp(p)))}


WEIGHTS = np.array([0.2, 0.5, 1.0, 2.0, 5.0])
WEIGHT_SHARES = np.array([0.2, 0.25, 0.3, 0.2, 0.05])


def private_cells(truth: str, size: str, groups: int, simulations: int, rng: np.random.Generator) -> Cells:
    """Counts with two-sided geometric noise of a budget, which ``truth`` names; all rates are 0.1."""
    rng = rng.spawn(1)[0]  # so the tables after it do not depend on its draws
    epsilon, n, p = float(truth.removeprefix("epsilon ")), rows(size, groups), rates("equal 0.1", groups)
    s = rng.binomial(n.astype(int), p, (simulations, groups))
    exact = np.stack([s, n - s]).astype(float)
    noise = np.subtract(*rng.geometric(-math.expm1(-epsilon), (2, *exact.shape))).astype(float)
    success, failure = (np.stack([own.ravel(), np.ones(own.size)], axis=1) for own in exact + noise)
    batch = Batch(NoisyProportions.of(success, failure, epsilon), groups)
    low, high = batch.limits(together(groups))
    return {
        "private rate, all groups": tally_all(low, high, p),
        "private difference": tally_gaps([difference_between_groups(e, ALPHA) for e in batch], 0.0),
    }


def weighted_cells(truth: str, size: str, groups: int, simulations: int, rng: np.random.Generator) -> Cells:
    """Weights from 0.2 to 5; heavy rows have the outcome less often, light ones more."""
    n, target = rows(size, groups), rates(truth, groups)
    tilt = np.array([1.3, 1.15, 1.0, 0.9, 0.8])
    tilt = tilt * (WEIGHT_SHARES @ WEIGHTS) / (WEIGHT_SHARES @ (WEIGHTS * tilt))
    members = rng.multinomial(n.astype(int), WEIGHT_SHARES, (simulations, groups))
    events = rng.binomial(members, target[:, None] * tilt)
    sums = [
        events @ WEIGHTS,
        (members - events) @ WEIGHTS,
        events @ WEIGHTS**2,
        (members - events) @ WEIGHTS**2,
    ]
    batch = Batch(Proportions.weighted(*(v.ravel() for v in sums)), groups)
    low, high = batch.limits(together(groups))
    gaps = [difference_between_groups(e, ALPHA) for e in batch]
    return {
        "weighted rate, all groups": tally_all(low, high, target),
        "weighted difference": tally_gaps(gaps, float(np.ptp(target))),
    }


def pairwise_distances(cdfs: Floats) -> Floats:
    """(simulations, groups, bins) -> (simulations, groups, groups)."""
    groups = cdfs.shape[1]
    result = np.zeros((len(cdfs), groups, groups))
    for i in range(groups):
        for j in range(i):
            result[:, i, j] = result[:, j, i] = np.abs(cdfs[:, i] - cdfs[:, j]).max(axis=1)
    return result


def score_cells(truth: str, size: str, groups: int, simulations: int, rng: np.random.Generator) -> Cells:
    """Distances of score distributions and differences of mean scores."""
    n, shapes = rows(size, groups), score_shapes(truth, groups)
    counts = np.stack(
        [rng.multinomial(int(m), s, simulations) for m, s in zip(n, shapes, strict=True)], axis=1
    )
    cdfs, true = counts.cumsum(axis=2) / n[:, None], shapes.cumsum(axis=1)
    share = n / n.sum()
    between = [ks_between_groups(d, n, ALPHA) for d in pairwise_distances(cdfs)]
    binned = [ks_between_cdfs(c, n, ALPHA) for c in cdfs]
    from_all = np.abs(cdfs - np.einsum("g,sgb->sb", share, cdfs)[:, None]).max(axis=2)
    overall = [ks_to_overall(d, n, n.sum() - n, share, ALPHA) for d in from_all]
    distance = float(pairwise_distances(true[None]).max())
    true_from_all = np.abs(true - share @ true).max(axis=1)
    grid = (np.arange(shapes.shape[1]) + 0.5) / shapes.shape[1]
    size_of = np.broadcast_to(n, (simulations, groups)).ravel()
    sums = [size_of, (counts @ grid).ravel(), (counts @ grid**2).ravel()]
    means = Batch(Means.from_sums(sums, support=(0.0, 1.0)), groups)
    gaps = [difference_between_groups(e, ALPHA) for e in means]
    return {
        "KS between groups": tally_gaps(between, distance),
        "KS between groups, binned": tally_gaps(binned, distance),
        "KS to overall": tally_gaps([r.gap for r in overall], float(true_from_all.max())),
        "KS to overall, all groups": tally_comparisons(overall, true_from_all),
        "mean": tally_all(*means.limits(together(groups)), shapes @ grid),
        "mean difference": tally_gaps(gaps, float(np.ptp(shapes @ grid))),
    }


def area_cells(truth: str, size: str, groups: int, simulations: int, rng: np.random.Generator) -> Cells:
    """Areas under ROC curves; 30% positives, few are 10%."""
    n = rows(size, groups)
    m = np.round((0.1 if truth.startswith("few") else 0.3) * n)
    below = beta_levels(2, 3)
    humps = (beta_levels(8, 2) + beta_levels(2, 8)) / 2
    good, better = (humps if "two-humped" in truth else beta_levels(2, 2)), beta_levels(4, 1.2)
    shapes = [better if truth.endswith("one apart") and g == 0 else good for g in range(groups)]
    true = np.array([(s * (below.cumsum() - below / 2)).sum() for s in shapes])
    positives = np.stack(
        [rng.multinomial(int(k), s, simulations) for k, s in zip(m, shapes, strict=True)], axis=1
    )
    negatives = np.stack([rng.multinomial(int(k), below, simulations) for k in n - m], axis=1)
    areas = Areas.from_histograms(positives.reshape(-1, LEVELS), negatives.reshape(-1, LEVELS), exact=True)
    batch = Batch(areas, groups)
    gaps = [difference_between_groups(e, ALPHA) for e in batch]
    return {
        "AUC, all groups": tally_all(*batch.limits(together(groups)), true),
        "AUC difference": tally_gaps(gaps, float(np.ptp(true))),
    }


def calibration_cells(
    truth: str, size: str, groups: int, simulations: int, rng: np.random.Generator
) -> Cells:
    """Ten bins; true rates equal to the scores, or for one group 0.7 of them."""
    n, scores = rows(size, groups), np.tile((np.arange(10) + 0.5) / 10, (groups, 1))
    rate = scores * np.where(np.arange(groups) == 0, 0.7 if truth == "one apart" else 1.0, 1.0)[:, None]
    counts = rng.multinomial(n.astype(int), beta_levels(2, 3, 10), (simulations, groups))
    events = rng.binomial(counts, rate)
    cells = Proportions(events.reshape(-1).astype(float), counts.reshape(-1).astype(float))
    everything = CalibrationErrors(
        cells, np.tile(scores, (simulations, 1)), counts.reshape(-1, 10).astype(float)
    )
    batch = Batch(everything, groups)
    share = counts / n[:, None]
    true = (share * np.abs(rate - scores)).sum(axis=2)
    low, high = batch.limits(together(groups))
    return {"calibration error, all groups": tally_all(low, high, true)}


AREA_TRUTHS = ("equal", "one apart", "few positives, equal", "few positives, one apart", "two-humped, equal")

Scenario = Callable[[str, str, int, int, np.random.Generator], Cells]
SCENARIOS: dict[str, tuple[Scenario, tuple[str, ...]]] = {
    "rates": (rate_cells, RATE_TRUTHS),
    "odds": (odds_cells, RATE_TRUTHS),
    "weighted": (weighted_cells, RATE_TRUTHS),
    "private": (private_cells, ("epsilon 0.1", "epsilon 1", "epsilon 10")),
    "scores": (score_cells, SCORE_TRUTHS),
    "areas": (area_cells, AREA_TRUTHS),
    "calibration": (calibration_cells, ("equal", "one apart")),
}


# --- the two rivals of the difference --------------------------------------------------------------------


def oracle_widths(s: Floats, n: Floats, p: Floats, rng: np.random.Generator) -> Floats:
    """Widths of the simultaneous max-|t| interval that knows the standard errors and the joint quantile."""
    error = np.sqrt(p * (1 - p) / n)
    pair = np.hypot(error[:, None], error)
    first, second = np.triu_indices(len(n), 1)
    noise = rng.standard_normal((20_000, len(n))) * error
    largest = (np.abs(noise[:, first] - noise[:, second]) / pair[first, second]).max(axis=1)
    margin = np.quantile(largest, 1 - ALPHA) * pair[first, second]
    d = np.abs((s / n)[:, first] - (s / n)[:, second])
    return np.minimum((d + margin).max(axis=1), 1) - np.maximum((d - margin).max(axis=1), 0)


def bootstrap_interval(s: Floats, n: Floats, rng: np.random.Generator) -> tuple[float, float]:
    """The percentile interval of max - min over 500 resamples of the rows of every group."""
    draws = rng.binomial(n.astype(int), s / n, (500, len(n))) / n
    low, high = np.quantile(np.ptp(draws, axis=1), [ALPHA / 2, 1 - ALPHA / 2])
    return float(low), float(high)


def rivals(
    truth: str, size: str, groups: int, simulations: int, rng: np.random.Generator
) -> tuple[float, Tally]:
    """Our median width over the oracle's, and the bootstrap's tally."""
    n, p = rows(size, groups), rates(truth, groups)
    s = rng.binomial(n.astype(int), p, (simulations, groups)).astype(float)
    ours = [difference_between_groups(e, ALPHA) for e in proportions(s, n)]
    width = np.median([g.high - g.low for g in ours]) / np.median(oracle_widths(s, n, p, rng))
    ends = np.array([bootstrap_interval(row, n, rng) for row in s[: max(simulations // 10, 20)]])
    return float(width), tally(ends[:, 0], ends[:, 1], float(np.ptp(p)), 0.0)


# --- tables ----------------------------------------------------------------------------------------------


def header(*names: str) -> None:
    print(f"\n| {' | '.join(names)} |\n|{'---|' * len(names)}")


def scenario_table(name: str, simulations: int, rng: np.random.Generator) -> dict[str, list[Tally]]:
    """Print one scenario; the tallies by quantity."""
    scenario, truths = SCENARIOS[name]
    seen: dict[str, list[Tally]] = {}
    header(name, "truth", "groups", *SIZES)
    for truth in truths:
        for groups in GROUPS:
            cells = [scenario(truth, size, groups, simulations, rng) for size in SIZES]
            for quantity in cells[0]:
                found = [cell[quantity] for cell in cells]
                seen.setdefault(quantity, []).extend(found)
                print("|", " | ".join([quantity, truth, str(groups), *map(str, found)]), "|", flush=True)
    return seen


def rival_tables(simulations: int, rng: np.random.Generator) -> None:
    """Print the selection-rate difference against the oracle and the bootstrap."""
    header("difference: width / oracle's; bootstrap", "groups", *SIZES)
    for truth in RATE_TRUTHS:
        for groups in GROUPS:
            found = [rivals(truth, size, groups, simulations, rng) for size in SIZES]
            print(
                "|", " | ".join([truth, str(groups), *(f"{w:.2f}; {t}" for w, t in found)]), "|", flush=True
            )


def main() -> None:
    """Print the tables, then the worst of every quantity."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--simulations", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=[*SCENARIOS, "rivals"], default=[*SCENARIOS, "rivals"])
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    print("## Coverage of the intervals")
    seen: dict[str, list[Tally]] = {}
    for name in SCENARIOS:
        if name in options.only:
            seen |= scenario_table(name, options.simulations, rng)
    if "rivals" in options.only:
        rival_tables(options.simulations, rng)
    if not seen:
        return
    header("quantity", "cells", "worst coverage", "median coverage", "most false alarms")
    for quantity, tallies in seen.items():
        coverage = [t.coverage for t in tallies]
        alarms = [t.alarms for t in tallies if t.alarms is not None]
        most = f"{max(alarms):.3f}" if alarms else "-"
        worst, median = f"{min(coverage):.3f}", f"{np.median(coverage):.3f}"
        print(f"| {quantity} | {len(tallies)} | {worst} | {median} | {most} |")


if __name__ == "__main__":
    main()
