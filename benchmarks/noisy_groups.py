"""The audit of true groups behind noisy ones: how wide its bounds are, whether they hold, and what they cost.

``python benchmarks/noisy_groups.py`` prints Markdown. Groups of Adult (race: white, black, other; income above 50K,
logistic regression without race) are recorded with three kinds of noise: *uniform*, to any other group; *majority*,
every member of a minority as white; *adversarial*, as often as uniform, but true and false positives first. First all
rows are the population, so that there is no sampling error; then rows and a survey are drawn from it.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from fairfix.auditing.audit import judge
from fairfix.auditing.results import Settings
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.files import open_source
from fairfix.data.scan import scan
from fairfix.errors import DataError
from fairfix.noise.bounds import conditional_radius, tv_bounds
from fairfix.noise.description import Noise, NoiseTable
from fairfix.noise.observed_groups import Recorded, recorded_groups
from fairfix.noise.rates import RATIOS
from fairfix.noise.true_groups import TrueGroups
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from fair_regression_peers import _read

Ints = npt.NDArray[np.int64]

NAMES = ("white", "black", "other")
GAMMAS = (0.1, 0.2, 0.3, 0.4, 0.5)
KINDS = ("uniform", "majority", "adversarial")
METRICS = ("selection_rate", "true_positive_rate", "false_positive_rate")
TRIALS = 40
MILLION = 1_000_000


def adult() -> tuple[Ints, Ints]:
    """Return race and cell (TP, FN, FP, TN) of every row."""
    frame = _read("adult")
    race = frame.pop("race").map({"White": 0, "Black": 1}).fillna(2).to_numpy(dtype=np.int64)
    label = frame.pop("income").to_numpy(dtype=np.int64)
    X = pd.get_dummies(frame.drop(columns=["fnlwgt", "education"])).to_numpy(dtype=np.float64)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)).fit(X, label)
    yhat = model.predict(X)
    return race, np.where(label == 1, 1 - yhat, 3 - yhat)


def recorded(race: Ints, cell: Ints, kind: str, gamma: float, rng: np.random.Generator) -> Ints:
    """Return recorded groups."""
    groups = race.max() + 1
    noisy = race.copy()
    for j in range(groups):
        rows = rng.permutation(np.flatnonzero(race == j))
        many = int(gamma * rows.size)
        if kind == "adversarial":
            rows = rows[np.argsort(np.array([0, 2, 1, 3])[cell[rows]], kind="stable")]
        if kind != "majority":
            noisy[rows[:many]] = (j + rng.integers(1, groups, many)) % groups
        elif j:
            noisy[rows[:many]] = 0
    return noisy


def table_of(race: Ints, noisy: Ints, label: Ints | None) -> NoiseTable:
    """Return counts of true and recorded groups, by label where there is one."""
    counts = np.zeros((2, 3, 3))
    np.add.at(counts, (0 * race if label is None else label, race, noisy), 1.0)
    return NoiseTable("survey", NAMES, NAMES, counts[0] if label is None else counts, "count")


def seen_of(noisy: Ints, cell: Ints) -> Recorded:
    """Return what the audit sees of rows."""
    cells = np.zeros((3, 4))
    np.add.at(cells, (noisy, cell), 1.0)
    return Recorded(
        "race", NAMES, cells / cells.sum(), float(noisy.size), {name: RATIOS[name] for name in METRICS}
    )


def population(race: Ints, cell: Ints) -> Iterator[str]:
    """Yield the table of bounds without sampling error."""
    label = (cell < 2).astype(np.int64)
    truth = {name: ratio.of(seen_of(race, cell).cells) for name, ratio in RATIOS.items()}
    kinds = ("naive", "ball, conditional radius", "ball, valid radius (N0)", "table (N1)", "by label (N2)")
    yield "### Share of true rates inside, and mean width\n"
    yield "3 groups, gamma 0.1 to 0.5, 3 draws of the noise; a bound must have 1.00.\n"
    yield "| metric | noise | " + " | ".join(kinds) + " |"
    yield "|---|---|" + "---|" * len(kinds)
    for metric in METRICS:
        for kind in KINDS:
            inside: dict[str, list[bool]] = {name: [] for name in kinds}
            width: dict[str, list[float]] = {name: [] for name in kinds}
            for seed in range(3):
                for gamma in GAMMAS:
                    noisy = recorded(race, cell, kind, gamma, np.random.default_rng(seed))
                    data = seen_of(noisy, cell)
                    told = TrueGroups(data, Noise(table_of(race, noisy, label)), replicates=0)
                    joint = told.evidence.plain_joints[0]
                    gammas, rate = conditional_radius(joint), told.data.rates[metric]
                    bounds = [(np.clip(rate - gammas, 0, 1), np.clip(rate + gammas, 0, 1))]
                    bounds.append(tv_bounds(data.cells, gammas, RATIOS[metric]))
                    bounds += [told.bounds[level].rates[metric] for level in ("N0", "N1", "N2")]
                    for name, (lo, hi) in zip(kinds, bounds, strict=True):
                        inside[name] += list((lo - 1e-9 <= truth[metric]) & (truth[metric] <= hi + 1e-9))
                        width[name] += list(hi - lo)
            cells = [f"{np.mean(inside[name]):.2f} / {np.mean(width[name]):.2f}" for name in kinds]
            yield f"| {metric} | {kind} | " + " | ".join(cells) + " |"
    yield ""


def samples(race: Ints, cell: Ints) -> Iterator[str]:
    """Yield coverage with sampling error of rows and survey."""
    truth = {name: ratio.of(seen_of(race, cell).cells) for name, ratio in RATIOS.items()}
    label = (cell < 2).astype(np.int64)
    yield "### Coverage of 95% intervals of rows and survey together\n"
    yield f"{TRIALS} draws, 3 metrics, 3 groups; N4 assumes what adversarial noise breaks."
    yield "*Refused*: draws that refute N4, or whose survey does not tell groups apart; they are left out.\n"
    yield "| noise | gamma | rows | survey | N1 | N2 | N4 | refused |"
    yield "|---|---|---|---|---|---|---|---|"
    for kind in ("uniform", "adversarial"):
        for gamma in (0.1, 0.2):
            for rows, survey in ((5000, 500), (20_000, 1000), (20_000, 5000)):
                hits: dict[str, list[bool]] = {"N1": [], "N2": [], "N4": []}
                refused = 0
                rng = np.random.default_rng(1)
                for _ in range(TRIALS):
                    a, b = rng.integers(0, race.size, rows), rng.integers(0, race.size, survey)
                    data = seen_of(recorded(race[a], cell[a], kind, gamma, rng), cell[a])
                    asked = recorded(race[b], cell[b], kind, gamma, rng)
                    plain = table_of(race[b], asked, None)
                    by_label = table_of(race[b], asked, label[b])
                    try:
                        told = TrueGroups(data, Noise(plain, assume="class-conditional"), replicates=400)
                        both = TrueGroups(data, Noise(by_label), replicates=400)
                    except DataError:
                        refused += 1
                        continue
                    for level, one in (("N1", told), ("N2", both), ("N4", told)):
                        if level not in one.bounds:  # noise that depends on outcomes shows in the sample
                            refused += 1
                            continue
                        for metric in METRICS:
                            found = one.bounds[level].of_groups(metric)
                            hits[level] += [
                                f.outer_low <= rate <= f.outer_high
                                for f, rate in zip(found, truth[metric], strict=True)
                                if f.outer_low is not None and f.outer_high is not None  # else undefined
                            ]
                shown = " | ".join(f"{np.mean(h):.3f}" if h else "-" for h in hits.values())
                yield f"| {kind} | {gamma} | {rows:,} | {survey:,} | {shown} | {refused} |"
    yield ""


def timed(work: Callable[[], object], rounds: int = 5) -> float:
    """Return the median seconds of some rounds."""
    found = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def speed() -> Iterator[str]:
    """Yield what it costs."""
    yield "### Cost\n"
    yield f"{MILLION:,} rows, 5 metrics; seconds, medians of 5 rounds. The scan is that of any audit.\n"
    heads = (
        "scan",
        "rest of the audit",
        "N0, N1, N4",
        "with 1,000 draws",
        "all, with curves over eps",
    )
    yield "| groups | " + " | ".join(heads) + " |"
    yield "|---|---|---|---|---|---|"
    for groups in (3, 5):
        rng = np.random.default_rng(0)
        n = MILLION
        true = rng.choice(groups, n, p=np.arange(groups, 0, -1) / sum(range(groups + 1)))
        noisy = np.where(rng.random(n) < 0.85, true, rng.integers(0, groups, n))
        score = rng.random(n)
        label = (rng.random(n) < 0.3 + 0.4 * score).astype(np.int64)
        names = np.array([f"g{i}" for i in range(groups)])
        source = open_source(pa.table({"race": names[noisy], "label": label, "score": score}))
        data_spec = DataSpec(ColumnRoles(("race",), label="label", score="score"))
        settings = Settings(exact=False)
        counts = np.zeros((groups, groups))
        np.add.at(counts, (true[:5000], noisy[:5000]), 1.0)
        noise = Noise(
            NoiseTable("survey", tuple(names), tuple(names), counts, "count"), assume="class-conditional"
        )
        found = scan(source, data_spec, exact=False)
        data_spec = found.data_spec

        def told(
            replicates: int, data_spec: DataSpec = data_spec, noise: Noise = noise, found: Any = found
        ) -> TrueGroups:
            return TrueGroups(
                recorded_groups(found.counts, data_spec, ("race",)), noise, replicates=replicates
            )

        def bounds(replicates: int, told: Callable[[int], TrueGroups] = told) -> object:
            one = told(replicates)
            return [list(b.of_groups(m)) for b in one.bounds.values() for m in one.data.metrics]

        times = [
            timed(lambda source=source, data_spec=data_spec: scan(source, data_spec, exact=False), 3),
            timed(
                lambda found=found, settings=settings: judge(found, settings, "", None),
                3,
            ),
            timed(lambda bounds=bounds: bounds(0)),
            timed(lambda bounds=bounds: bounds(1000)),
            timed(lambda told=told: told(1000).report()),
        ]
        yield f"| {groups} | " + " | ".join(f"{t:.3f}" for t in times) + " |"
    yield ""


def draws(race: Ints, cell: Ints) -> Iterator[str]:
    """Yield the cost of draws alone."""
    noisy = recorded(race, cell, "uniform", 0.2, np.random.default_rng(0))
    data, table = seen_of(noisy, cell), table_of(race, noisy, None)

    def drawn() -> None:
        bounds = TrueGroups(data, Noise(table)).bounds["N1"]
        for name in METRICS:
            list(bounds.of_groups(name))

    yield f"1,000 draws of data and table, bounds of 3 metrics by the table: {timed(drawn):.3f} s.\n"


def epsilons() -> Iterator[str]:
    """Yield what bounds under N3 cost with their limits, by the influence of rows and table."""
    yield (
        "Bounds and limits of 5 metrics under `--assume eps=0.05`, 1,000 draws; 100,000 rows, a survey of 5,000, "
        "15% recorded at random. CPU seconds.\n"
    )
    yield "| groups | table | bounds and limits |"
    yield "|---|---|---:|"
    for groups, by_label in ((5, False), (12, False), (12, True)):
        rng = np.random.default_rng(0)
        race = rng.choice(groups, 100_000, p=np.arange(groups, 0, -1) / sum(range(groups + 1)))
        noisy = np.where(rng.random(race.size) < 0.85, race, rng.integers(0, groups, race.size))
        cell = rng.choice(4, race.size, p=[0.35, 0.15, 0.2, 0.3])
        names = tuple(f"g{i:02d}" for i in range(groups))
        counts = np.zeros((2, groups, groups))
        np.add.at(counts, ((cell < 2).astype(int)[:5000], race[:5000], noisy[:5000]), 1.0)
        table = NoiseTable("survey", names, names, counts if by_label else counts.sum(0), "count")
        masses = np.zeros((groups, 4))
        np.add.at(masses, (noisy, cell), 1.0 / race.size)
        data = Recorded("race", names, masses, float(race.size), dict(RATIOS))
        at = time.process_time()
        _ = TrueGroups(data, Noise(table, assume="eps=0.05")).bounds["N3"]
        yield f"| {groups} | {'by label' if by_label else 'plain'} | {time.process_time() - at:.1f} |"
    yield ""


def main() -> None:
    """Print everything."""
    print("## Noisy groups\n")
    print((__doc__ or "").partition("Markdown. ")[2])
    race, cell = adult()
    with threadpool_limits(1):
        for part in (population(race, cell), samples(race, cell), speed(), draws(race, cell), epsilons()):
            for line in part:
                print(line)
                sys.stdout.flush()


if __name__ == "__main__":
    main()
