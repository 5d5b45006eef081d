"""Promises about true groups that are known by probabilities of membership alone.

A world is a finite population of vectors of probabilities with, for each vector and true group, the chances of the
cells TP, FN, FP, TN. Probabilities are right: of people with a vector, the share of a true group is what it says. So
the rates of the true groups are known, and so is all that the probabilities leave open: within a vector, the mass of a
true group may lie in any cells (the bounds are written down here by themselves, from the population).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd

from tests.promises.harness import NOT_SAID, Ran, Shell, Tried, judged, promise

Floats = np.ndarray[Any, np.dtype[np.float64]]

RATES = {  # cells of the numerator, and of the rest of the denominator, of TP, FN, FP, TN
    "selection_rate": ([0, 2], [1, 3]),
    "true_positive_rate": ([0], [1]),
    "false_positive_rate": ([2], [3]),
    "accuracy": ([0, 3], [1, 2]),
    "positive_predictive_value": ([0], [2]),
}
SHARP = ("decision is the group", "all is the group", "decision by vector", "as bad as can be", "any")


@dataclass(frozen=True)
class Population:
    """Vectors (V, J) with their shares (V,), and the chances of cells given vector and group (V, J, 4)."""

    z: Floats
    share: Floats
    cells: Floats

    @property
    def masses(self) -> Floats:
        """Mass by vector, true group and cell."""
        return self.share[:, None, None] * self.z[:, :, None] * self.cells

    def true(self, rate: str) -> Floats:
        """Rate of each true group."""
        a, b = RATES[rate]
        by_cell = self.masses.sum(0)
        with np.errstate(invalid="ignore"):
            return by_cell[:, a].sum(1) / by_cell[:, a + b].sum(1)

    def ends(self, rate: str) -> tuple[Floats, Floats]:
        """Lowest and highest rate of each true group that vectors and cells allow; NaN where it may have none."""
        a, b = RATES[rate]
        known = self.masses.sum(1)
        own = (self.share[:, None] * self.z).T  # J, V
        in_a, in_b, every = known[:, a].sum(1), known[:, b].sum(1), known.sum(1)
        most_a, most_b = np.minimum(own, in_a).sum(1), np.minimum(own, in_b).sum(1)
        least_a = np.maximum(own - (every - in_a), 0).sum(1)
        least_b = np.maximum(own - (every - in_b), 0).sum(1)
        with np.errstate(invalid="ignore"):
            return least_a / (least_a + most_b), most_a / (most_a + least_b)

    def gaps(self, rate: str, kind: str) -> tuple[float, float, float]:
        """Least, true and largest difference (or ratio) between two true groups."""
        low, high = self.ends(rate)
        true = self.true(rate)
        pairs = list(permutations(range(true.size), 2))
        if kind == "difference":
            return (
                max(0.0, *(low[i] - high[j] for i, j in pairs)),
                float(true.max() - true.min()),
                max(high[i] - low[j] for i, j in pairs),
            )
        with np.errstate(invalid="ignore"):
            return (
                min(low[i] / high[j] for i, j in pairs),
                float(true.min() / true.max()),
                min(1.0, *(high[i] / low[j] if low[j] > 0 else 1.0 for i, j in pairs)),
            )

    def sample(self, rng: np.random.Generator, rows: int, *, weighted: bool) -> pd.DataFrame:
        """Rows as a user has them. Weights undo that vectors were drawn with other shares, and vary besides."""
        tilt = np.exp(rng.normal(0, 0.5, len(self.share))) if weighted else np.ones(len(self.share))
        drawn = self.share * tilt / (self.share * tilt).sum()
        at = rng.choice(len(self.share), rows, p=drawn)
        by_vector = np.einsum("vj,vjc->vc", self.z, self.cells)
        cell = (rng.random(rows)[:, None] > np.cumsum(by_vector[at], 1)[:, :3]).sum(1)
        frame = pd.DataFrame({f"p{j}": self.z[at, j] for j in range(self.z.shape[1])})
        frame["label"], frame["yes"] = np.isin(cell, [0, 1]) * 1, np.isin(cell, [0, 2]) * 1
        if weighted:
            frame["weight"] = np.exp(rng.normal(0, 0.5, rows)) / tilt[at]
        return frame


def population(
    rng: np.random.Generator, *, independent: bool = False, kinds: tuple[str, ...] = SHARP, vectors: int = 0
) -> Population:
    """Draw a world: 2 to 6 groups, a few vectors or thousands, and noise that is kind or as bad as can be."""
    groups, kind = int(rng.integers(2, 7)), str(rng.choice(kinds))
    vectors = vectors or int(rng.choice([rng.integers(2, 9), 5000]))
    likely = rng.dirichlet(np.full(groups, rng.choice([1.0, 5.0])))
    z = rng.dirichlet(likely * groups * rng.choice([0.3, 1.0, 4.0]) + 0.03, vectors)
    z = np.maximum(z, 1e-9)
    z /= z.sum(1, keepdims=True)
    share = rng.dirichlet(np.full(vectors, 2.0))
    labels = rng.uniform(0.1, 0.9) + 0.3 * rng.uniform(-1, 1) * (z[:, 0] - 0.5)
    y = np.tile(np.clip(labels, 0.02, 0.98)[:, None], groups)
    d = np.clip(rng.uniform(0.05, 0.95) + rng.uniform(-1, 1) * (z[:, [0]] - 0.5), 0.0, 1.0) * np.ones(groups)
    own = np.arange(groups) == 0
    if not independent:
        if kind in ("decision is the group", "all is the group"):
            d = np.tile(own * 1.0, (vectors, 1))
        if kind == "all is the group":
            y = d
        if kind == "decision by vector":
            d = np.tile((z[:, [0]] > np.median(z[:, 0])) * 1.0, groups)
        if kind == "as bad as can be":  # positive decisions go to the first group as long as there are some
            all_yes = d[:, 0]
            mine = np.minimum(1.0, all_yes / z[:, 0])
            rest = np.clip((all_yes - z[:, 0] * mine) / (1 - z[:, 0]), 0.0, 1.0)
            d = np.where(own, mine[:, None], rest[:, None])
        if kind == "any":
            y = np.clip(y + rng.uniform(-0.3, 0.3, groups), 0.02, 0.98)
            d = np.clip(d + rng.uniform(-0.3, 0.3, groups), 0.0, 1.0)
    return Population(z, share, np.stack([y * d, y * (1 - d), (1 - y) * d, (1 - y) * (1 - d)], -1))


def audited(
    rng: np.random.Generator, shell: Shell, world: Population, *more: str, largest: float = 100_000
) -> tuple[Ran, int]:
    """Audit a sample of a world, of 100 rows or more."""
    rows, weighted = int(np.exp(rng.uniform(np.log(100), np.log(largest)))), bool(rng.random() < 0.3)
    frame = world.sample(rng, rows, weighted=weighted)
    columns = ",".join(f"p{j}" for j in range(world.z.shape[1]))
    words = ["--noise", f"membership:{columns}", "--label", "label", "--prediction", "yes", *more]
    return shell.run("audit", shell.write(frame), *words, *(["--weight", "weight"] if weighted else [])), rows


@promise(level=0.05, quick=3, full=2000)
def worst_case_of_a_group_by_probabilities(rng: np.random.Generator, shell: Shell) -> Tried:
    """95% limits of the worst case of a true group that is known by probabilities."""
    world = population(rng)
    done, rows = audited(rng, shell, world)
    rate, group = str(rng.choice(list(RATES))), int(rng.choice([0, rng.integers(world.z.shape[1])]))
    figures = done.result["noise"]["groups"][group]["figures"]
    bound = next(one for one in figures if one["name"] == rate)["bounds"]["N1"]
    low, high = (float(end[group]) for end in world.ends(rate))
    if bound["low"] is None or math.isnan(low + high):
        return NOT_SAID
    return judged(
        bound["outer_low"] <= low + 1e-9 and high - 1e-9 <= bound["outer_high"],
        f"{rate} of group {group}: [{low:.4f}, {high:.4f}] not in {bound}, {rows} rows, {world.z.shape}",
    )


@promise(level=0.05, quick=8, full=500)
def gate_where_decisions_are_the_group(rng: np.random.Generator, shell: Shell) -> Tried:
    """PASS at .995 if decisions are the group that is known by probabilities."""
    world = population(rng, kinds=SHARP[:1], vectors=int(rng.choice([4, 5000], p=[0.2, 0.8])))
    done, rows = audited(rng, shell, world, "--check", "dp.difference.true_groups<=0.995")
    (check,) = done.result["checks"]
    return judged(check["verdict"] != "pass", f"passes at {check['high']}, {rows} rows, {world.z.shape}")


@promise(level=0.05, quick=3, full=2000)
def verdict_by_probabilities(rng: np.random.Generator, shell: Shell) -> Tried:
    """Verdict on true groups that are known by probabilities, and their worst case."""
    world = population(rng)
    kind = str(rng.choice(["difference", "ratio"], p=[0.75, 0.25]))
    rate = str(rng.choice(["selection_rate", "accuracy", "true_positive_rate"], p=[0.6, 0.2, 0.2]))
    low, true, high = world.gaps(rate, kind)
    if math.isnan(low + true + high):
        return NOT_SAID
    sign, near = ("<=", 1) if kind == "difference" else (">=", -1)
    limit = float(rng.choice([high - 0.02 * near, true - 0.01 * near, low + 0.01 * near]))
    limit = min(limit, 1.0)  # no ratio is larger, and a check that no value can meet is refused
    done, rows = audited(rng, shell, world, "--check", f"{rate}.{kind}.true_groups{sign}{limit!r}")
    assert done.result, done.err
    verdict = done.result["checks"][0]["verdict"]
    bound = next(one for one in done.result["noise"]["comparisons"] if one["name"] == f"{rate}.{kind}")[
        "bounds"
    ]["N1"]
    told = f"{rate}.{kind} {low:.4f} {true:.4f} {high:.4f}, {bound}, {rows} rows, {world.z.shape}"
    out = NOT_SAID
    if bound["low"] is not None:
        out += judged(
            bound["outer_low"] <= low + 1e-9 and high - 1e-9 <= bound["outer_high"], f"worst case of {told}"
        )
    if verdict in ("pass", "fail"):
        beyond = true > limit if kind == "difference" else true < limit
        out += judged((verdict == "fail") == beyond, f"{verdict} at {limit:.4f}: {told}")
    return out


@promise(level=0.05, quick=3, full=2000)
def weighted_rates_under_independence(rng: np.random.Generator, shell: Shell) -> Tried:
    """95% interval of a weighted rate or gap, given that groups are independent of outcomes."""
    world = population(rng, independent=True)
    done, rows = audited(rng, shell, world, "--assume", "independent")
    rate, group = str(rng.choice(list(RATES))), int(rng.integers(world.z.shape[1]))
    noise = done.result["noise"]
    gap = bool(rng.random() < 0.5)
    name = f"{rate}.difference" if gap else rate
    figures = noise["comparisons"] if gap else noise["groups"][group]["figures"]
    bound = next(one for one in figures if one["name"] == name)["bounds"]["N4"]
    truth = world.gaps(rate, "difference")[1] if gap else float(world.true(rate)[group])
    if bound["low"] is None or math.isnan(truth):
        return NOT_SAID
    return judged(
        bound["outer_low"] - 1e-9 <= truth <= bound["outer_high"] + 1e-9,
        f"{name} of group {group}: {truth:.4f} not in {bound}, {rows} rows, {world.z.shape}",
    )


EVENTS = {"demographic_parity": [None], "equal_opportunity": [1], "predictive_equality": [0]}
EVENTS |= {"equalized_odds": [1, 0]}
"""Constraint -> labels of the rows over which its rates are means."""

SAID = re.compile(
    r"rates of the true groups differ by [\d.]+ if\b.*? \(N4; "
    r".*?with sampling error, by at most ([\d.]+) and ([\d.]+)"
)
"""What a repair by probabilities says of held-out rows: its limits under N4, and whatever ties group and decision."""


def people(rng: np.random.Generator, vectors: Floats, tied: float, rows: int) -> tuple[pd.DataFrame, Any]:
    """Return scored rows with probabilities, and their true groups; scores hang on the true group where ``tied``."""
    z = vectors[rng.integers(0, len(vectors), rows)]
    true = (rng.random(rows)[:, None] > np.cumsum(z, 1)[:, :-1]).sum(1)
    logit = rng.normal(size=rows) + 1.5 * z[:, 0] - 0.7 * z[:, -1] + tied * (true == 0)
    score = 1 / (1 + np.exp(-logit))
    frame = pd.DataFrame({f"p{j}": z[:, j] for j in range(z.shape[1])})
    return frame.assign(score=score, label=(rng.random(rows) < score).astype(int), id=np.arange(rows)), true


@promise(
    "ramp by probabilities of membership: statements about the gap of the true groups, in selection "
    "rates or rates by label, under N4 if it holds, under N1 in any case, and about the slack",
    level=0.05,
    quick=3,
    full=500,
)
def ramp_by_probabilities(rng: np.random.Generator, shell: Shell) -> Tried:
    groups, tied = int(rng.integers(2, 5)), float(rng.choice([0.0, rng.normal(0, 2)]))
    vectors = rng.dirichlet(np.full(groups, rng.choice([0.3, 1.0, 4.0])), int(rng.choice([5, 2000])))
    rows = int(np.exp(rng.uniform(np.log(400), np.log(20_000))))
    columns = ",".join(f"p{j}" for j in range(groups))
    slack, gamma = float(rng.choice([0.0, 0.05, 0.15])), float(rng.choice([0.01, 0.05, 0.5]))
    constraint = str(rng.choice(list(EVENTS), p=[0.4, 0.2, 0.2, 0.2]))
    asked = ["--method", "ramp", "--noise", f"membership:{columns}", "--slack", slack, "--gamma", gamma]
    asked += ["--constraint", constraint]
    where, file = shell.folder / "r.fairfix", shell.write(people(rng, vectors, tied, rows)[0])
    done = shell.did("repair", file, *asked, "--id", "id", "-o", where, "--format", "text")
    many, true = people(rng, vectors, tied, 100_000)
    chance = shell.predict(str(where), shell.write(many, "many.parquet"))["p_positive"].to_numpy()
    gap, near = 0.0, 0.0
    for event in EVENTS[constraint]:
        inside = many["label"].to_numpy() == event if event is not None else np.ones(len(many), dtype=bool)
        size = np.maximum(np.bincount(true[inside], minlength=groups), 1)
        gap = max(gap, float(np.ptp(np.bincount(true[inside], chance[inside], groups) / size)))
        near = max(near, 3 / math.sqrt(size.min()))  # what a sample leaves open of the truth
    text = " ".join((done.out + done.err).split())
    likely, worst = (float(one) for one in SAID.search(text).groups())  # type: ignore[union-attr]  # it is always said
    told = f"{constraint} gap {gap:.4f}, N4 {likely}, N1 {worst}, slack {slack}, {rows} rows, {vectors.shape}"
    told += f", tied {tied:.2f}"
    out = judged(gap - near <= worst, told)
    if not tied:
        out += judged(gap - near <= likely, told)
        if "the whole interval meets the allowed gap" in text:
            out += judged(gap - near <= slack, told)
        if "the whole interval exceeds the allowed gap" in text:
            out += judged(gap + near > slack, told)
    return out
