"""Promises about means of losses, which have no largest value: log loss, square and absolute loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from tests.promises.harness import NOT_SAID, Shell, Tried, judged, promise

Floats = npt.NDArray[np.float64]
Errors = tuple[Callable[[np.random.Generator, int], Floats], float, float]
"""Draws absolute errors, with the population's means of them and of their squares (infinite: not promised)."""


def lognormal(sigma: float) -> Errors:
    """Errors whose logarithm is normal."""
    return (lambda rng, n: np.exp(sigma * rng.normal(size=n))), math.exp(sigma**2 / 2), math.exp(2 * sigma**2)


def pareto(shape: float) -> Errors:
    """Errors with a tail of ``x^-shape``; squares have half the shape."""
    square = shape / (shape - 2) if shape > 4 else math.inf  # squares need a variance too
    return (lambda rng, n: (1 - rng.random(n)) ** (-1 / shape)), shape / (shape - 1), square


def few_values(rng: np.random.Generator) -> Errors:
    """Errors of five values, the largest of which is rare."""
    values, chance = np.array([0.01, 0.05, 0.2, 1.0, 5.0]), np.array([0.5, 0.3, 0.14, 0.05, 0.01])
    return (
        (lambda rng, n: rng.choice(values, p=chance, size=n)),
        float(values @ chance),
        float(values**2 @ chance),
    )


def errors(rng: np.random.Generator) -> tuple[str, Errors]:
    """Draw a distribution of errors."""
    half_normal = (lambda rng, n: np.abs(rng.normal(size=n))), math.sqrt(2 / math.pi), 1.0
    exponential = (lambda rng, n: rng.exponential(size=n)), 1.0, 2.0
    worlds: dict[str, Errors] = {
        "half normal": half_normal,
        "exponential": exponential,
        "lognormal .5": lognormal(0.5),
        "lognormal .75": lognormal(0.75),
        "lognormal 1": lognormal(1.0),
        "Pareto 2.1": pareto(2.1),
        "Pareto 4.2": pareto(4.2),
        "Pareto 6": pareto(6.0),
        "few values": few_values(rng),
    }
    name = str(rng.choice(sorted(worlds)))
    return name, worlds[name]


def sizes_of_groups(rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Draw 2 to 8 groups of 3 to 20,000 rows; at times many tiny ones beside a large one."""
    if rng.random() < 0.3:
        return np.array([*[int(rng.integers(3, 12))] * 8, 450])
    groups = int(rng.integers(2, 9))
    return np.round(np.exp(rng.uniform(np.log(3), np.log(rng.choice([300, 20_000])), groups))).astype(int)


def scores_and_labels(rng: np.random.Generator, rows: int) -> tuple[Floats, npt.NDArray[np.int64], float]:
    """Draw probabilities of a logistic model, calibrated or too sure of itself, and the population's log loss."""
    centre, spread, sure = rng.uniform(-2.5, 0), rng.uniform(0.5, 2), rng.choice([0.5, 1.0, 2.0, 3.0])
    index = rng.normal(centre, spread, rows)
    label = (rng.random(rows) < 1 / (1 + np.exp(-index))).astype(int)
    grid = centre + spread * np.linspace(-9, 9, 20_001)
    mass = np.exp(-(((grid - centre) / spread) ** 2) / 2)
    chance = 1 / (1 + np.exp(-grid))
    loss = chance * np.logaddexp(0, -sure * grid) + (1 - chance) * np.logaddexp(0, sure * grid)
    return sure * index, label, float(loss @ mass / mass.sum())


def world(rng: np.random.Generator) -> tuple[str, pd.DataFrame, list[str], dict[str, float]]:
    """Draw rows in groups of one population, the options that read them, and the means of its losses."""
    rows = sizes_of_groups(rng)
    code = np.repeat(np.arange(rows.size), rows)
    frame = pd.DataFrame({"race": [f"g{k}" for k in code]})
    if rng.random() < 0.5:
        score, label, loss = scores_and_labels(rng, code.size)
        frame["score"], frame["label"] = 1 / (1 + np.exp(-score)), label
        name, options, truth = "log loss", [], {"log_loss": loss}
    else:
        name, (draw, absolute, square) = errors(rng)
        unit = 10.0 ** rng.uniform(-6, 6)
        frame["label"] = unit * rng.normal(size=code.size)
        frame["score"] = frame["label"] + unit * draw(rng, code.size) * rng.choice([-1, 1], code.size)
        options, truth = ["--task", "regression"], {"absolute_loss": unit * absolute}
        if math.isfinite(square):
            truth["square_loss"] = unit**2 * square
    if rng.random() < 0.3:
        frame["weight"] = np.exp(rng.normal(0, 0.5, code.size))
        options += ["--weight", "weight"]
    return f"{name}, {rows}, {options}", frame, options, truth


def audited(shell: Shell, frame: pd.DataFrame, *options: str) -> Any:
    """Audit rows as a user does."""
    columns = ("--protected", "race", "--score", "score", "--label", "label")
    return shell.run("audit", shell.write(frame), *columns, *options)


def inside(value: Mapping[str, Any], truth: float) -> bool:
    """Whether an interval holds a number; an end that is not given holds any."""
    low, high = value["low"], value["high"]
    return (low is None or low <= truth) and (high is None or truth <= high)


@promise(level=0.05, quick=12, full=1000)
def intervals_of_losses(rng: np.random.Generator, shell: Shell) -> Tried:
    """95% intervals of all groups' losses at once."""
    where, frame, options, truth = world(rng)
    block = audited(shell, frame, *options).result["attributes"][0]
    metric = str(rng.choice(sorted(truth)))
    values = [group["metrics"][metric] for group in block["groups"]]
    if all(one["high"] is None for one in values):
        return NOT_SAID
    wrong = [one for one in values if not inside(one, truth[metric])]
    return judged(not wrong, f"{truth[metric]:.4g} not in {wrong}: {metric}, {where}")


@promise(level=0.05, quick=12, full=1000)
def gates_of_equal_losses(rng: np.random.Generator, shell: Shell) -> Tried:
    """No comparison of losses is said to differ if groups are alike."""
    where, frame, options, truth = world(rng)
    metric = str(rng.choice(sorted(truth)))
    kind = str(
        rng.choice(["difference.between_groups<=0", "difference.to_overall<=0", "ratio.to_overall>=1"])
    )
    done = audited(shell, frame, *options, "--check", f"{metric}.{kind}")
    return judged(done.status != 1, f"{metric}.{kind} fails: {where}")


@promise(level=0.05, quick=8, full=500, must_say=0.3)
def interval_of_a_change(rng: np.random.Generator, shell: Shell) -> Tried:
    """95% interval of the change of a loss on the same rows."""
    groups, name_and = int(rng.integers(2, 5)), errors(rng)
    rows = np.round(np.exp(rng.uniform(np.log(20), np.log(5_000), groups))).astype(int)
    code = np.repeat(np.arange(groups), rows)
    name, (draw, absolute, _) = name_and
    better = rng.choice([1.0, 0.8])
    first, other = draw(rng, code.size), draw(rng, code.size)
    kept = rng.random(code.size) < 0.5  # half of the rows keep their error but for a factor
    label = rng.normal(size=code.size)
    frame = pd.DataFrame({"id": np.arange(code.size), "race": [f"g{k}" for k in code], "label": label})
    old = shell.write(frame.assign(score=label + first), "old.parquet")
    new = frame.assign(score=label + better * np.where(kept, first, other))
    gate = ("--baseline", old, "--id", "id", "--check", "absolute_loss.change[race=g0]<=1000")
    done = audited(shell, new, "--task", "regression", *gate)
    change = next(one for one in done.result["baseline"]["changes"] if one["id"] == "absolute_loss[race=g0]")
    if change["low"] is None or change["high"] is None:
        return NOT_SAID
    truth = (better - 1) * absolute
    return judged(inside(change, truth), f"{truth:.4g} not in {change}: {name}, {rows}")


@promise(level=0, quick=3, full=60)
def bounds_of_comparisons(rng: np.random.Generator, shell: Shell) -> Tried:
    """Numbers of AUC and calibration from bins are within their bound of the exact ones."""
    groups, rows = int(rng.integers(2, 5)), 132_000
    code = rng.integers(0, groups, rows)
    index = rng.normal(rng.normal(0, 0.3, groups)[code], rng.uniform(0.002, 1))
    label = (rng.random(rows) < 1 / (1 + np.exp(-index * rng.uniform(0.5, 4)))).astype(int)
    frame = pd.DataFrame({"race": [f"g{k}" for k in code], "score": 1 / (1 + np.exp(-index)), "label": label})
    reference = ("--reference", "race=g0")
    value = {}
    for k in range(groups):
        positive, negative = (frame.score[(code == k) & (label == y)].to_numpy() for y in (1, 0))
        value[f"g{k}"] = float(
            stats.mannwhitneyu(positive, negative).statistic / positive.size / negative.size
        )
    area, other = np.array([value[f"g{k}"] for k in range(groups)]), value["g0"]
    ratio = np.minimum(area / other, other / area)
    truth = {
        "auc.difference.between_groups": area.max() - area.min(),
        "auc.ratio.between_groups": area.min() / area.max(),
        "auc.difference.to_reference": np.abs(area - other).max(),
        "auc.ratio.to_reference": ratio.min(),
        "auc.min": area.min(),
        "auc.max": area.max(),
    }
    name = str(rng.choice(sorted(truth)))
    limit = float(truth[name])
    beyond = f"<={limit + 1e-9}" if "difference" in name else f">={limit - 1e-9}"
    above = audited(shell, frame, *reference, "--gate-on", "point", "--check", name + beyond)
    found = {one["id"]: one for one in above.result["attributes"][0]["comparisons"]}
    wrong = [
        f"{key}: {exact} is not {one['value']} ± {one.get('bound', 0)}"
        for key, exact in truth.items()
        if abs((one := found[key])["value"] - exact) > one.get("bound", 0) + 1e-9
    ]
    wrong += [
        f"{check['check']} fails, the value is {limit}"
        for check in above.result["checks"]
        if check["verdict"] == "fail"
    ]
    return judged(not wrong, f"{wrong}, {groups} groups")
