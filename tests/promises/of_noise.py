"""Promises about true groups of which only a noisy recording is seen: audits with ``--noise`` and the method robust.

A population is a table of masses by true group, recorded group, score and label. What is promised of it is judged
after the fact: where a promise is about *any* noise that fits a table, people are assigned to true groups so that the
gap of the shipped rule is as large as the table allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd
from fairfix.auditing.criteria import CRITERIA

from tests.promises.harness import NOT_SAID, Ran, Shell, Tried, judged, promise

CONSTRAINTS = {
    "demographic_parity": ("selection_rate", "dp", (0, 1)),
    "equal_opportunity": ("true_positive_rate", "tpr", (1,)),
}

AUDIT = "audit --protected race --score score --label label"
REPAIR = f"{AUDIT} --method robust --id id -o rule.fairfix".replace("audit", "repair")


@dataclass(frozen=True)
class Population:
    """Masses by true group, recorded group, level of the score and label, shape (J, K, L, 2), and the scores (L,)."""

    masses: np.ndarray
    scores: np.ndarray

    @property
    def recorded(self) -> np.ndarray:
        """Masses without the true group, shape (K, L, 2)."""
        return self.masses.sum(0)

    def joint(self, by_label: bool) -> np.ndarray:
        """Masses of true and recorded groups, shape (J, K) or by label (2, J, K)."""
        return np.moveaxis(self.masses.sum(2), 2, 0) if by_label else self.masses.sum((2, 3))

    def frame(self, rng: np.random.Generator, rows: int) -> pd.DataFrame:
        """Rows of a sample, with the true group, which no command is told of."""
        j, k, i, y = np.unravel_index(
            rng.choice(self.masses.size, rows, p=self.masses.ravel()), self.masses.shape
        )
        score = self.scores[i]
        return pd.DataFrame({"id": np.arange(rows), "race": names(k), "true": j, "score": score, "label": y})


def names(codes: np.ndarray) -> list[str]:
    return [f"g{code}" for code in codes]


def people(
    rng: np.random.Generator,
    true: int,
    noisy: int,
    *,
    gap: float = 1.0,
    by_label: bool = False,
    minority: bool = False,
) -> Population:
    """Score and label depend on the true group; the recording on it alone, or on it and the label."""
    share = np.maximum(rng.dirichlet(np.full(true, 1.0)), 0.06)
    if minority:
        share[1:] = rng.uniform(0.06, 0.12, true - 1)
        share[0] = 1 - share[1:].sum()
    levels = int(rng.choice([2, 4, 9]))
    scores = np.round((np.arange(levels) + 1) / (levels + 1), 3)
    tilt = rng.uniform(-gap, gap, true)[:, None] * np.linspace(-2, 2, levels)
    score = np.exp(tilt) / np.exp(tilt).sum(1, keepdims=True)
    label = np.stack([1 - scores, scores], -1)
    noise = np.stack([recording(rng, true, noisy) for _ in range(2)]) if by_label else None
    if noise is None:
        noise = np.repeat(recording(rng, true, noisy)[None], 2, 0)
    masses = np.einsum("j,jl,ly,yjk->jkly", share / share.sum(), score, label, noise)
    return Population(masses / masses.sum(), scores)


def recording(rng: np.random.Generator, true: int, noisy: int) -> np.ndarray:
    """P(recorded | true), shape (J, K): mostly as the true group, or with more groups as one of two."""
    wrong = rng.uniform(0.02, 0.35, true)[:, None]
    own = np.eye(noisy)[np.arange(true) % noisy]
    if noisy > true:
        own[:, true:] = rng.uniform(0.1, 0.4)
    out = (1 - wrong) * own / own.sum(1, keepdims=True) + wrong * rng.dirichlet(np.full(noisy, 2.0), true)
    return np.asarray(out / out.sum(1, keepdims=True))


def survey(rng: np.random.Generator, joint: np.ndarray, kept: str, form: str, rows: int) -> pd.DataFrame:
    """A noise table of other people: their shares differ, by true group or by recorded group.

    ``joint`` has shape (J, K), or by label (2, J, K); what is ``kept`` holds for the data too.
    """
    labels = joint if joint.ndim == 3 else joint[None]
    axis = 2 if kept == "noisy-given-true" else 1
    shares = labels.sum((0, axis), keepdims=True)
    shares = [np.ones_like(shares), 1 / shares, np.exp(rng.uniform(-2, 2, shares.shape))][
        rng.choice(3, p=[0.1, 0.6, 0.3])
    ]
    other = labels * shares
    other /= other.sum()
    if form == "count":
        other = rng.multinomial(rows, other.ravel()).reshape(other.shape)
    name = "count" if form == "count" else "probability"
    return pd.DataFrame(
        [
            {"true": f"g{j}", "noisy": f"g{k}", "label": y, name: other[y, j, k]}
            for y, j, k in np.ndindex(*other.shape)
        ]
    ).drop(columns=[] if joint.ndim == 3 else ["label"])


def chances(shell: Shell, artifact: str, population: Population, groups: int) -> np.ndarray:
    """What the shipped rule does to each recorded group and score, shape (K, L)."""
    scores = population.scores
    grid = pd.DataFrame(
        {
            "id": np.arange(groups * scores.size),
            "race": names(np.repeat(np.arange(groups), scores.size)),
            "score": np.tile(scores, groups),
        }
    )
    told = shell.predict(artifact, shell.write(grid, "grid.parquet"))
    return told["p_positive"].to_numpy().reshape(groups, scores.size)


def gap_of(rates: np.ndarray) -> float:
    return float(np.nanmax(rates) - np.nanmin(rates))


def true_rates(population: Population, chance: np.ndarray, labels: tuple[int, ...]) -> np.ndarray:
    """Rates of the true groups, (J,)."""
    own = population.masses[..., list(labels)].sum(-1)
    return np.asarray((own * chance).sum((1, 2)) / own.sum((1, 2)))


def sharp_gap(
    population: Population, joint: np.ndarray, chance: np.ndarray, labels: tuple[int, ...]
) -> float:
    """The largest gap of two true groups that some assignment with these joint masses has.

    One group takes the likeliest to be accepted of each recorded group (and label), another the least likely: both
    fit into one assignment. Joint masses (J, K) are for rates over everybody; by label (2, J, K) for any.
    """
    recorded = population.recorded
    parts = [(recorded[..., y], joint[y]) for y in labels] if joint.ndim == 3 else [(recorded.sum(-1), joint)]
    total = sum(table.sum(1) for _, table in parts)
    high, low = np.zeros(len(total)), np.zeros(len(total))
    for mass, table in parts:
        for k, own in enumerate(mass):
            order = np.argsort(chance[k])
            for at, sums in ((order, low), (order[::-1], high)):
                ends = np.cumsum(own[at])
                for j, need in enumerate(table[:, k]):
                    sums[j] += np.clip(need - ends + own[at], 0, own[at]) @ chance[k][at]
    pairs = permutations(range(len(total)), 2)
    return max(high[a] / total[a] - low[b] / total[b] for a, b in pairs if total[a] > 0 < total[b])


def compared(result: dict[str, Any], identifier: str) -> dict[str, Any]:
    """The held-out number of the shipped rule, or of an audit."""
    if "proof" in result:
        rows = result["proof"]["holdout"]["table"]
        return next((row["after"] for row in rows if row["name"] == f"{identifier} [race]"), {})
    rows = result["attributes"][0]["comparisons"]
    return next((row for row in rows if row["id"] == identifier), {})


def covers(done: Ran, identifier: str, truth: float, world: str) -> Tried:
    """Hold an interval and the verdict of the only check, a limit on a gap, against the truth."""
    told = compared(done.result, identifier)
    if told.get("low") is None:
        return NOT_SAID
    inside = told["low"] - 1e-6 <= truth <= told["high"] + 1e-6
    (check,) = done.result["checks"]
    limit = check["limit"]
    wrong = (check["verdict"] == "pass" and truth > limit) or (check["verdict"] == "fail" and truth < limit)
    return judged(
        inside and not wrong,
        f"{check['verdict'].upper()} of {check['check']}: {truth:.4f}, told [{told['low']:.4f}, {told['high']:.4f}]; "
        f"{world}",
    )


@promise(
    "a gap of true groups after robust, and PASS or FAIL of a limit on it, by a survey of other people under "
    "identified or epsilon",
    level=0.05,
    quick=3,
    full=400,
)
def survey_of_other_people(rng: np.random.Generator, shell: Shell) -> Tried:
    true = int(rng.integers(2, 5))
    noisy = true + int(rng.choice([0, 0, 1]))
    by_label = bool(rng.random() < 0.3)
    population = people(rng, true, noisy, gap=3.0, by_label=by_label, minority=rng.random() < 0.7)
    constraint = str(rng.choice(list(CONSTRAINTS)))
    metric, short, labels = CONSTRAINTS[constraint]
    form, rows = str(rng.choice(["count", "joint"])), int(rng.choice([1000, 5000, 50_000], p=[0.1, 0.5, 0.4]))
    slack = float(rng.choice([0.0, 0.02, 0.05, 0.2], p=[0.2, 0.5, 0.2, 0.1]))
    assumption = ["--assume", "class-conditional"]
    if rng.random() < 0.2:
        assumption = ["--assume", f"eps={rng.choice([0.01, 0.05])}"]
    table = survey(rng, population.joint(by_label), "noisy-given-true", form, rows)
    data = shell.write(population.frame(rng, int(rng.choice([3000, 20_000]))))
    limit = round(float(rng.uniform(0.02, 0.4)), 2)
    noise = shell.write(table, "noise.csv")
    asked = (*assumption, "--check", f"{short}.difference.true_groups<={limit}")
    done = shell.did(f"{REPAIR} --noise {noise} --constraint {constraint} --slack {slack}", data, *asked)
    chance = chances(shell, "rule.fairfix", population, noisy)
    truth = gap_of(true_rates(population, chance, labels))
    world = (
        f"{true} true groups, {noisy} recorded, {form} {rows}, {constraint}, slack {slack}, {assumption[1:]}"
    )
    return covers(done, f"{metric}.difference.true_groups", truth, world)


@promise(
    "a worst case of true groups after robust, and PASS or FAIL of a limit on it, if either way to "
    "transfer the table may hold and the noise is the worst that fits",
    level=0.05,
    quick=3,
    full=400,
)
def worst_noise_by_either_transport(rng: np.random.Generator, shell: Shell) -> Tried:
    true = int(rng.integers(2, 5))
    noisy = max(true + int(rng.choice([-1, 0, 0, 1])), 2)
    by_label = bool(rng.random() < 0.6)
    constraint = str(rng.choice(list(CONSTRAINTS))) if by_label else "demographic_parity"
    metric, short, labels = CONSTRAINTS[constraint]
    population = people(rng, true, noisy, by_label=by_label)
    joint = population.joint(by_label)
    kept = str(rng.choice(["noisy-given-true", "true-given-noisy"]))
    form, rows = str(rng.choice(["count", "joint"])), int(rng.choice([1000, 5000, 50_000]))
    slack = float(rng.choice([0.0, 0.05, 0.2, 0.5]))
    said = f"(keep={kept})" if rng.random() < 0.2 else ""
    data = shell.write(population.frame(rng, int(rng.choice([3000, 20_000]))))
    limit = round(float(rng.uniform(0.02, 0.6)), 2)
    noise = shell.write(survey(rng, joint, kept, form, rows), "noise.csv") + said
    asked = ("--group", rng.choice(["used", "unused"]), "--check", f"{short}.difference.true_groups<={limit}")
    done = shell.did(REPAIR, data, "--noise", noise, "--constraint", constraint, "--slack", slack, *asked)
    chance = chances(shell, "rule.fairfix", population, noisy)
    truth = sharp_gap(population, joint, chance, labels)
    world = (
        f"{true} true groups, {noisy} recorded, by label {by_label}, {form} {rows}, kept {kept}, {constraint}"
    )
    return covers(done, f"{metric}.difference.true_groups", truth, world)


@promise(
    "audit --noise: a gap of true groups, PASS or FAIL of a limit on it, under a table, an epsilon or noise that "
    "depends on the true group alone",
    level=0.05,
    quick=3,
    full=600,
)
def audits_of_true_groups(rng: np.random.Generator, shell: Shell) -> Tried:
    true = int(rng.integers(2, 5))
    noisy = max(true + int(rng.choice([-1, 0, 0, 1])), 2)
    by_label = bool(rng.random() < 0.5)
    population = people(rng, true, noisy, by_label=by_label)
    joint = population.joint(by_label)
    metric, short, labels = CONSTRAINTS[
        str(rng.choice(list(CONSTRAINTS))) if by_label else "demographic_parity"
    ]
    threshold = float(rng.choice(population.scores))
    chance = np.repeat((population.scores >= threshold)[None] * 1.0, noisy, 0)
    stated: list[str] = []
    kept = str(rng.choice(["noisy-given-true", "true-given-noisy"]))
    truth = sharp_gap(population, joint, chance, labels)
    if rng.random() < 0.4 and noisy >= true:
        kept = "noisy-given-true"
        stated = ["--assume", "class-conditional"] if rng.random() < 0.7 else ["--assume", "eps=0.01"]
        truth = gap_of(true_rates(population, chance, labels))
    form, rows = str(rng.choice(["count", "joint"])), int(rng.choice([1000, 5000, 50_000]))
    limit = round(float(rng.uniform(0.02, 0.6)), 2)
    data = shell.write(population.frame(rng, int(rng.choice([1000, 5000, 50_000]))))
    noise = shell.write(survey(rng, joint, kept, form, rows), "noise.csv")
    asked = (*stated, "--check", f"{short}.difference.true_groups<={limit}")
    done = shell.did(f"{AUDIT} --threshold {threshold} --noise {noise}", data, *asked)
    world = f"{true} true groups, {noisy} recorded, by label {by_label}, {form} {rows}, kept {kept}, {stated}"
    return covers(done, f"{metric}.difference.true_groups", truth, world)


@promise(level=0, quick=2, full=200)
def estimates_that_the_table_allows(rng: np.random.Generator, shell: Shell) -> Tried:
    """An estimate of a true group is one that the table allows."""
    true = int(rng.integers(2, 5))
    population = people(rng, true, true, gap=2.0, by_label=True)
    data = shell.write(population.frame(rng, int(rng.choice([200, 1000]))))
    cut = float(rng.choice(population.scores))
    noise = shell.write(survey(rng, population.joint(True), "noisy-given-true", "count", 400), "noise.csv")
    done = shell.run(f"{AUDIT} --threshold {cut} --noise {noise} --assume class-conditional", data)
    if not done.result or "N4" in done.result["noise"]["unavailable"]:
        return NOT_SAID
    out = Tried(0)
    for group in done.result["noise"]["groups"]:
        for figure in group["figures"]:
            value, bound = figure.get("identified"), figure["bounds"]["N2"]
            if value is not None and bound["low"] is not None:
                inside = bound["low"] - 1e-6 <= value <= bound["high"] + 1e-6
                out += judged(inside, f"{figure['name']} of {group['group']}: {value} under N4, N2 {bound}")
    return out


@promise(level=0, quick=2, full=200)
def both_sides(rng: np.random.Generator, shell: Shell) -> Tried:
    """Robust: without recording errors, rates on the training rows are within the slack, on both sides."""
    groups = int(rng.integers(2, 5))
    population = people(rng, groups, groups, gap=1.5)
    exact = population.masses.sum(1)
    masses = np.zeros((groups, *exact.shape))
    masses[np.arange(groups), np.arange(groups)] = exact
    population = Population(masses, population.scores)
    slack = float(rng.choice([0.0, 0.02, 0.1, 0.5]))
    constraint = str(rng.choice(CRITERIA))
    table = pd.DataFrame(
        [
            {"true": f"g{j}", "noisy": f"g{k}", "label": y, "probability": (j == k) / groups / 2}
            for y in (0, 1)
            for j in range(groups)
            for k in range(groups)
        ]
    )
    data, noise = (
        shell.write(population.frame(rng, int(rng.choice([500, 5000])))),
        shell.write(table, "noise.csv"),
    )
    asked = f"--constraint {constraint} --slack {slack} --assume {rng.choice(['none', 'class-conditional'])}"
    done = shell.did(f"{REPAIR} --noise {noise} {asked} --set z=0", data)
    criterion = done.result["criterion"]
    rows = done.result["proof"]["fit"]["table"]
    value = next(row["after"]["value"] for row in rows if row["name"] == f"{criterion} [race]")
    return judged(value <= slack + 1e-5, f"{criterion} {value} with slack {slack}, {groups} groups")


@promise(level=0, quick=2, full=100, must_say=0.3)
def nearly_everybody_alike(rng: np.random.Generator, shell: Shell) -> Tried:
    """Robust first warns if nearly all rows get the same decision, or if the gap of the true groups is not smaller."""
    groups = int(rng.integers(2, 4))
    population = people(rng, groups, groups, by_label=True)
    rare = population.masses * np.array([1.0, rng.uniform(0.01, 0.1)])  # few are positive
    population = Population(rare / rare.sum(), population.scores)
    data = shell.write(population.frame(rng, 8000))
    noise = shell.write(survey(rng, population.joint(True), "noisy-given-true", "count", 2000), "noise.csv")
    done = shell.did(f"{REPAIR} --noise {noise} --constraint equal_opportunity --slack 0.05", data)
    table = {row["name"]: row for row in done.result["proof"]["holdout"]["table"]}
    taken = table["selection_rate"]["after"]["value"]
    gap = table["true_positive_rate.difference.true_groups [race]"]
    before, after = gap["before"]["value"], gap["after"]["value"]
    if None in (before, after):
        return NOT_SAID
    alike, larger = min(taken, 1 - taken) < 0.01, after >= before
    if not (alike or larger):
        return NOT_SAID
    first = [one["code"] for one in done.result["messages"] if one["severity"] == "warning"][:3]
    return judged(
        (not alike or "selection" in first) and (not larger or bool({"no_help", "gap_after"} & {*first})),
        f"accepts {taken:.4f}, gap {before:.3f} and {after:.3f} after: {first}",
    )
