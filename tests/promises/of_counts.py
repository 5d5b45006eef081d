"""Repairs from counts: what is certain without a row, against the rows that were counted."""

from __future__ import annotations

from unittest.mock import patch

import cvxpy
import numpy as np
import pandas as pd
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.files import open_source
from fairfix.models.shares import SharedSource

from tests.data import below
from tests.promises.harness import NOT_SAID, Shell, Tried, judged, promise

LABELS = {"selection_rate": None, "true_positive_rate": 1, "false_positive_rate": 0}
ID = ("--id", "id")


def drawn(rng: np.random.Generator, *, most: int) -> pd.DataFrame:
    """Return people of groups of any size; scores are smooth, tied, on edges of bins or next to these."""
    many, groups = int(rng.integers(most // 3, most)), int(rng.integers(2, 5))
    code = np.concatenate(
        [np.arange(groups).repeat(4), rng.choice(groups, many, p=rng.dirichlet(np.ones(groups)))]
    )
    score = np.clip(rng.beta(2, 2, code.size) + 0.1 * rng.normal(size=groups)[code], 0, 1)
    edge = np.clip(np.round(score * 1024) / 1024, 0, 1)
    kind = rng.integers(0, 5)
    if kind == 1:
        score = score.round(1)
    elif kind == 2:
        score = np.clip(np.nextafter(edge, rng.choice([0.0, 1.0], code.size)), 0, 1)
    elif kind == 3:
        score = 0.4 + score / 1024
    label = (rng.random(code.size) < score).astype(int)
    label[: 4 * groups] = np.tile([0, 1, 0, 1], groups)
    rows = {"id": np.arange(code.size), "group": [f"g{k}" for k in code], "label": label, "score": score}
    return pd.DataFrame(rows)


@promise(level=0.0, quick=2, full=200)
def certified_rates_of_counts(rng: np.random.Generator, shell: Shell) -> Tried:
    """Wherever the scores lie in their bins, rates on held-out rows are between the ends in the table."""
    frame, asked = drawn(rng, most=900), ["--protected", "group", *ID, "--threshold", "0.5"]
    if rng.random() < 0.5:
        asked += ["--suppress-below", 12]
    path = shell.write(frame)
    for name, part in (("fit", "0:0.6"), ("test", "0.6:1")):
        if shell.run("count", path, *asked, "--part", part, "-o", shell.folder / name).status:
            return NOT_SAID
    constraint = str(rng.choice(["demographic_parity", "equalized_odds", "equal_opportunity"]))
    made = ("--method", "ramp", "--constraint", constraint, "--gamma", float(rng.choice([0.0, 0.05, 1.0])))
    counts = (shell.folder / "fit", "--holdout", shell.folder / "test")
    artifact = shell.folder / "r.fairfix"
    done = shell.run("repair", *counts, *made, "-o", artifact)
    if done.status:
        return NOT_SAID
    chance = shell.predict(str(artifact), path, "--unseen", "original")
    held = frame["id"].isin(held_out(path))
    total = NOT_SAID
    for one in done.result["counts"]["certified"]:
        for rate, ends in one["rates"].items():
            inside = held & (frame["group"] == one["group"])
            if LABELS[rate] is not None:
                inside &= frame["label"] == LABELS[rate]
            if "low" in ends:
                value = float(chance["p_positive"][inside].mean())
                where = f"{constraint}, {rate} of {one['group']}: {value} in {ends}"
                total += judged(ends["low"] <= value <= ends["high"], where)
    return total


@promise(
    "wherever the scores lie in their bins, distances to all rows and losses on held-out rows are "
    "within the certain limits",
    level=0.0,
    quick=2,
    full=120,
)
def certified_values_of_counts(rng: np.random.Generator, shell: Shell) -> Tried:
    frame, real = drawn(rng, most=900), rng.random() < 0.5
    asked = ["--protected", "group", *ID, *(["--task", "regression"] if real else [])]
    if real:
        unit = float(rng.choice([1.0, 1000.0]))
        frame["score"] *= unit
        frame["label"] = frame["score"] + unit * rng.normal(size=len(frame))
    path, artifact = shell.write(frame), shell.folder / "r.fairfix"
    for name, part in (("fit", "0:0.6"), ("test", "0.6:1")):
        if shell.run("count", path, *asked, "--part", part, "-o", shell.folder / name).status:
            return NOT_SAID
    made = ("--method", "fair-regression", "--slack", float(rng.choice([0.0, 0.05, 1.0])))
    counts = (shell.folder / "fit", "--holdout", shell.folder / "test")
    done = shell.run("repair", *counts, *made, "--decisions", "deterministic", "-o", artifact)
    if done.status:
        return NOT_SAID
    moved = shell.predict(str(artifact), path, "--unseen", "abstain")["prediction"].to_numpy()
    held = frame["id"].isin(held_out(path)).to_numpy() & ~np.isnan(moved)
    value, group = moved[held], frame["group"].to_numpy()[held]
    every = np.unique(value)
    total = NOT_SAID
    for one in done.result["counts"]["certified"]:
        own, all_of_them = np.sort(value[group == one["group"]]), np.sort(value)
        shares = [np.searchsorted(sample, every, side="right") / sample.size for sample in (own, all_of_them)]
        far, ends = float(np.abs(shares[0] - shares[1]).max()), one["distance"]
        total += judged(ends["low"] <= far <= ends["high"], f"distance of {one['group']}: {far} in {ends}")
    ends = done.result["counts"]["losses"]["square_loss"]
    loss = float(np.mean((value - frame["label"].to_numpy()[held]) ** 2))
    total += judged(ends["low"] * (1 - 1e-9) <= loss <= ends["high"] * (1 + 1e-9), f"loss {loss} in {ends}")
    return total


def held_out(path: str) -> set[int]:
    """Return the ids of the second share."""
    data_spec = DataSpec(ColumnRoles(("group",), score="score", id="id"))
    parts = SharedSource(open_source(path), data_spec, "0.6:1", 0).parts(["id"])
    return {one for part in parts for batch in part.batches() for one in batch.column(0).to_pylist()}


@promise(level=0.0, quick=3, full=120)
def optimum_of_counts(rng: np.random.Generator, shell: Shell) -> Tried:
    """On the training rows, a rule of exact scores is better by at most BOUND."""
    frame = drawn(rng, most=250).drop(columns="label")
    path, artifact = shell.write(frame), shell.folder / "r.fairfix"
    counted = ("--protected", "group", "--score", "score", "-o", shell.folder / "fit")
    gamma, slack = float(rng.choice([0.01, 0.3, 2.0])), float(rng.choice([0.0, 0.02, 0.2]))
    shell.run("count", path, *counted)
    made = ("--method", "ramp", "--gamma", gamma, "--slack", slack, *ID, "-o", artifact)
    done = shell.run("repair", shell.folder / "fit", *made)
    if done.status or "bound" not in done.result["counts"]["optimum"]:
        return NOT_SAID
    f, own = 2 * frame["score"].to_numpy() - 1, frame["group"].to_numpy()
    q, center = cvxpy.Variable(f.size), cvxpy.Variable()
    rates = [q[own == group].sum() / (own == group).sum() for group in np.unique(own)]
    held = [q >= 0, q <= 1, *(cvxpy.abs(rate - center) <= slack / 2 for rate in rates)]
    cost = (gamma / 2 * cvxpy.sum_squares(q) - f @ q) / f.size
    best = float(cvxpy.Problem(cvxpy.Minimize(cost), held).solve(solver="CLARABEL"))
    chance = shell.predict(str(artifact), path)["p_positive"].to_numpy()
    value = float(np.mean(gamma / 2 * chance**2 - f * chance))
    bound = done.result["counts"]["optimum"]["bound"]
    return judged(
        value - best <= bound + 1e-7, f"gamma {gamma}, slack {slack}: {value - best} above, told {bound}"
    )


@promise(level=0.05, quick=6, full=600)
def intervals_of_private_counts(rng: np.random.Generator, shell: Shell) -> Tried:
    """95% intervals of the parity difference and of each group's rates hold with the noise of private counts."""
    sizes = np.round(np.exp(rng.uniform(np.log(20), np.log(5000), int(rng.integers(2, 6))))).astype(int)
    rate = np.clip(
        rng.uniform(0.05, 0.95) + rng.choice([0.0, 0.1]) * rng.uniform(-1, 1, sizes.size), 0.01, 0.99
    )
    code, epsilon = np.repeat(np.arange(sizes.size), sizes), str(rng.choice(["0.1", "0.5", "1", "10"]))
    label, chosen = rng.random(code.size) < 0.4, rng.random(code.size) < rate[code]
    frame = pd.DataFrame({"group": [f"g{k}" for k in code], "label": label, "chosen": chosen}).astype(
        {"label": int, "chosen": int}
    )
    asked, saved = ("--protected", "group", "--prediction", "chosen"), shell.folder / "p.counts"
    with patch("secrets.randbelow", below(int(rng.integers(1 << 30)))):  # worlds can be tried again
        shell.run("count", shell.write(frame), *asked, "--private", epsilon, "-o", saved)
    done = shell.run("audit", saved)
    (attribute,) = done.result["attributes"]
    gaps = {one["id"]: one for one in attribute["comparisons"]}
    gap, truth = gaps["selection_rate.difference.between_groups"], float(rate.max() - rate.min())
    where = f"epsilon {epsilon}, {sizes}, {rate}"
    total = judged(
        gap["low"] <= truth <= gap["high"], f"{truth} not in {gap['low']} to {gap['high']}: {where}"
    )
    for name in ("selection_rate", "true_positive_rate"):
        ends = [one["metrics"][name] for one in attribute["groups"]]
        inside = all(e["low"] <= p <= e["high"] for e, p in zip(ends, rate, strict=True))
        total += judged(inside, f"{name} outside {ends}: {where}")
    return total
