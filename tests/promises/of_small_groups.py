"""Promises about true groups where a recorded group is small and all of its people, or nearly all, are decided alike.

A sample of such a group often has nobody who is decided otherwise. What is said of it then may not be certain.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from tests.promises.harness import NOT_SAID, Shell, Tried, judged, promise
from tests.promises.of_noise import (
    Population,
    chances,
    covers,
    gap_of,
    sharp_gap,
    survey,
    true_rates,
)
from tests.results import texts_of

RATES = {  # metric -> its name in checks, and the labels of its rows
    "selection_rate": ("dp", (0, 1)),
    "true_positive_rate": ("tpr", (1,)),
    "false_positive_rate": ("fpr", (0,)),
}
NEAR = (0.0, 1.0, 0.98, 0.99, 0.995, 0.02, 0.01, 0.5)
ASSUMPTIONS = ("radius", "table", "by label", "epsilon", "class-conditional", "membership")


def alike(rng: np.random.Generator) -> tuple[Population, int]:
    """Two scores, of which the higher one is accepted; return the number of rows too."""
    groups = int(rng.integers(2, 4))
    sizes = np.exp(rng.uniform(np.log(5), np.log(300), groups))
    if rng.random() < 0.7:
        sizes[0] = 1000
    by_label = rng.choice(NEAR, (groups, 2))  # P(accepted | true group, label)
    if rng.random() < 0.5:
        by_label = np.repeat(by_label[:, :1], 2, 1)
    if rng.random() < 0.3:
        by_label[0] = 1.0
    positive = rng.uniform(0.2, 0.8, groups)
    wrong = rng.choice([0.0, 0.005, 0.01, 0.05])
    noise = np.full((groups, groups), wrong / (groups - 1))
    np.fill_diagonal(noise, 1 - wrong)
    own = np.stack([1 - by_label, by_label], 1) * np.stack([1 - positive, positive], -1)[:, None]
    masses = np.einsum("j,jly,jk->jkly", sizes / sizes.sum(), own, noise)
    return Population(masses / masses.sum(), np.array([0.2, 0.8])), round(sizes.sum())


def near_recorded(population: Population, radii: np.ndarray, labels: tuple[int, ...]) -> float:
    """The largest gap of two groups of which each is within total variation of a recorded one."""
    recorded = population.recorded / population.recorded.sum((1, 2), keepdims=True)
    rows = recorded[..., list(labels)].sum((1, 2))
    a, b = (recorded[:, level, list(labels)].sum(1) for level in (1, 0))
    low, high = np.maximum(a - radii, 0) / rows, 1 - np.maximum(b - radii, 0) / rows
    some = population.recorded[..., list(labels)].sum((0, 2)) > 0
    low, high = (low if some[0] else low * 0 + 1), (high if some[1] else high * 0)
    return max(high[i] - low[j] for i in range(len(low)) for j in range(len(low)) if i != j)


@promise(level=0.05, quick=3, full=600)
def small_groups_alike(rng: np.random.Generator, shell: Shell) -> Tried:
    """Audit: a gap of true groups, PASS or FAIL of a limit on it, where small groups are nearly all decided alike."""
    population, rows = alike(rng)
    groups = len(population.masses)
    assumption, metric = str(rng.choice(ASSUMPTIONS)), str(rng.choice(list(RATES)))
    short, labels = RATES[metric]
    chance = np.repeat([[0.0, 1.0]], groups, 0)
    joint = population.joint(assumption == "by label")
    if assumption == "membership":  # the decision depends on the vector alone
        shares = population.joint(False)
        masses = population.recorded * (shares / shares.sum(0))[:, :, None, None]
        population = Population(masses, population.scores)
    truth = gap_of(true_rates(population, chance, labels))
    frame = population.frame(rng, rows)
    protected, stated = ["--protected", "race"], []
    if assumption == "radius":
        radii = rng.choice([0.0, 0.01, 0.05], groups)
        stated = ["--noise", "radius:" + ",".join(f"g{j}={r}" for j, r in enumerate(radii))]
        truth = near_recorded(population, radii, labels)
    elif assumption == "membership":
        z = (population.joint(False) / population.joint(False).sum(0)).T[frame["race"].str[1:].astype(int)]
        frame = frame.assign(**{f"p{j}": z[:, j] for j in range(groups)})
        members = ",".join(f"g{j}=p{j}" for j in range(groups))
        protected, stated = [], ["--noise", f"membership:{members}", "--assume", "independent"]
    else:
        surveyed = survey(rng, joint, "noisy-given-true", "count", int(rng.choice([500, 1500, 10_000])))
        stated = ["--noise", shell.write(surveyed, "noise.csv")]
        stated += {
            "epsilon": ["--assume", "eps=0.02"],
            "class-conditional": ["--assume", "class-conditional"],
        }.get(assumption, [])
        if assumption == "by label":
            truth = sharp_gap(population, joint, chance, labels)
    limit = max(round(truth * float(rng.choice([0.7, 0.9, 0.99])), 4), 0.0005)
    # fmt: off
    done = shell.did(
        "audit", shell.write(frame.drop(columns="true")), *protected, "--score", "score", "--threshold", 0.5,
        "--label", "label", *stated, "--check", f"{short}.difference.true_groups<={limit}",
    )
    # fmt: on
    world = f"{assumption}, {rows} rows, groups {population.recorded.sum((1, 2)).round(3)}"
    return covers(done, f"{metric}.difference.true_groups", truth, world)


@promise(level=0, quick=2, full=200)
def one_more_person(rng: np.random.Generator, shell: Shell) -> Tried:
    """Audit: one more person does not take a rate of a true group out of its interval."""
    population, rows = alike(rng)
    by_label = bool(rng.random() < 0.5)
    frame = population.frame(rng, rows)
    who = frame.groupby("race").sample(1, random_state=int(rng.integers(1 << 31))).sample(1, random_state=0)
    one = who.assign(id=rows, label=int(rng.integers(2)), score=float(rng.choice(population.scores)))
    surveyed = survey(rng, population.joint(by_label), "noisy-given-true", "count", 1500)
    stated = [[], ["--assume", "class-conditional"], ["--assume", "eps=0.05"]][rng.choice(3)]
    audits = [
        shell.run(
            "audit", shell.write(people), "--protected", "race", "--score", "score", "--threshold", 0.5,
            "--label", "label", "--noise", shell.write(surveyed, "noise.csv"), *stated,
        ).result
        for people in (frame, pd.concat([frame, one]))
    ]  # fmt: skip
    if not all(audits):
        return NOT_SAID
    out = NOT_SAID
    for was, now in zip(*(audit["noise"]["groups"] for audit in audits), strict=True):
        for old, new in zip(was["figures"], now["figures"], strict=True):
            for level in old["bounds"].keys() & new["bounds"].keys():
                told, found = old["bounds"][level], new["bounds"][level]
                if None in (told["low"], found["low"]):
                    continue
                inside = (
                    told["outer_low"] <= found["low"] + 1e-6 and told["outer_high"] >= found["high"] - 1e-6
                )
                where = f"{old['name']} of {was['group']} under {level}: {told}, then {found}; {one.to_dict('list')}"
                out += judged(inside, where)
    return out


@promise(level=0.05, quick=3, full=300, must_say=0.3)
def robust_nearly_all_alike(rng: np.random.Generator, shell: Shell) -> Tried:
    """Robust: how far a true group may be from everybody on other rows, where nearly all are decided alike."""
    population, rows = alike(rng)
    groups = len(population.masses)
    joint = population.joint(True)
    constraint, metric = [
        ("demographic_parity", "selection_rate"),
        ("equal_opportunity", "true_positive_rate"),
    ][rng.choice(2)]
    labels = RATES[metric][1]
    frame = population.frame(rng, max(rows, 400))
    # fmt: off
    done = shell.did(
        "repair", shell.write(frame.drop(columns="true")), "--method", "robust", "--protected", "race",
        "--score", "score", "--label", "label", "--id", "id", "--constraint", constraint,
        "--noise", shell.write(survey(rng, joint, "noisy-given-true", "count", 1500), "noise.csv"),
        "--slack", float(rng.choice([0.0, 0.02, 0.1])), "-o", "rule.fairfix",
    )
    # fmt: on
    told = next(
        (n for n in texts_of(done.result) if "on held-out rows, " in n and " under N2 (up to " in n),
        "",
    )
    found = re.search(r"under N2 \(up to (\d\.\d+)", told)
    if found is None:
        return NOT_SAID
    chance = chances(shell, "rule.fairfix", population, groups)
    truth = sharp_shortfall(population, joint, chance, labels)
    return judged(
        float(found[1]) >= truth - 1e-4,
        f"up to {found[1]} where it is {truth:.4f}: {constraint}, {rows} rows",
    )


def sharp_shortfall(
    population: Population, joint: np.ndarray, chance: np.ndarray, labels: tuple[int, ...]
) -> float:
    """The furthest that a true group may be from the rate over everybody, with these joint masses by label."""
    everybody = population.recorded[..., list(labels)]
    overall = (everybody.sum(-1) * chance).sum() / everybody.sum()
    worst = 0.0
    for j in range(joint.shape[1]):
        total = sum(joint[y, j].sum() for y in labels)
        for order in (np.argsort(chance, 1), np.argsort(-chance, 1)):
            rate = 0.0
            for y in labels:
                for k, at in enumerate(order):
                    mass = population.recorded[k, at, y]
                    before = np.cumsum(mass) - mass
                    rate += np.clip(joint[y, j, k] - before, 0, mass) @ chance[k, at]
            worst = max(worst, abs(rate / total - overall))
    return worst
