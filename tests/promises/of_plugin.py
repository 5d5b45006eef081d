"""Promises of fair regression by a rule that does not see the group.

The truth is computed here from what a user has: the file that was repaired and the values that the artifact gives to
many people with each row's score or features. Optima are of a linear program of its own, over the kinds of rows.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import scipy.sparse as sp
from fairfix.data.data_spec import ColumnRoles, DataSpec
from scipy.optimize import linprog

from tests.promises.harness import NOT_SAID, Ran, Shell, Tried, distance_to_overall, judged, promise, split_of
from tests.results import texts_of

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

ROWS = DataSpec(ColumnRoles(("group",), label="label", id="id"))
COPIES = 60
"""People for each row of the fit, who differ by their id alone."""


def repaired(shell: Shell, frame: pd.DataFrame, *more: object, artifact: str = "a.fairfix") -> Ran:
    """Run the repair of a file with ids."""
    given = ["--protected", "group", "--label", "label", "--id", "id", "-o", artifact]
    return shell.run("repair", shell.write(frame), "--method", "fair-regression", *given, *more)


def copied(shell: Shell, frame: pd.DataFrame, times: int) -> Floats:
    """Return the values of many people like each row, shape (times, n)."""
    many = pd.concat([frame] * times, ignore_index=True).drop(columns=["label", "group"])
    many["id"] = [f"p{i}" for i in range(len(many))]
    told = shell.predict(str(shell.folder / "a.fairfix"), shell.write(many, "many.parquet"))
    return np.asarray(told["prediction"].to_numpy(dtype=np.float64)).reshape(times, len(frame))


def scored(rng: np.random.Generator) -> tuple[pd.DataFrame, Floats]:
    """Return a scored file of 2 to 6 groups, from a few scores to as many as rows, and the scores."""
    rows, groups = int(np.exp(rng.uniform(np.log(150), np.log(4000)))), int(rng.integers(2, 7))
    codes = np.concatenate(
        [np.arange(groups).repeat(8), rng.choice(groups, rows, p=rng.dirichlet(np.full(groups, 2.0)))]
    )
    shift = rng.normal(0, rng.choice([0.2, 1.0]), groups)
    score = 1 / (1 + np.exp(-rng.normal(size=codes.size) - shift[codes]))
    many = int(rng.choice([2, 11, 101, 10**6]))
    score = (np.clip((score * many).astype(int), 0, many - 1) + 0.5) / many
    frame = pd.DataFrame(
        {
            "group": [f"g{k}" for k in codes],
            "score": score,
            "label": (rng.random(codes.size) < score).astype(int),
            "id": [f"r{i}" for i in range(codes.size)],
        }
    )
    return frame, score


@promise(level=0, quick=2, full=200)
def slack_of_a_score_alone(rng: np.random.Generator, shell: Shell) -> Tried:
    """A score alone: the slack holds on the rows of the fit, in expectation over the draws."""
    frame, _ = scored(rng)
    slack = float(rng.choice([0.0, 0.02, 0.05, 0.1]))
    done = repaired(shell, frame, "--slack", slack)
    if done.status != 0:
        return NOT_SAID
    fit = frame.iloc[split_of(frame, ROWS).fit]
    codes = np.unique(fit["group"], return_inverse=True)[1]
    values = copied(shell, fit, COPIES)
    far = distance_to_overall(values.ravel(), np.tile(codes, COPIES))
    # each group's shares are of COPIES draws of every row: Hoeffding, a chance of 1e-6 for all groups together
    noise = np.sqrt(np.log(2e6 * len(np.unique(codes))) / (2 * COPIES * np.bincount(codes).min()))
    return judged(
        far <= slack + 2 * noise, f"KS {far:.4f} at slack {slack}, noise {noise:.4f}, {len(fit)} rows"
    )


def kinds(rng: np.random.Generator, units: float) -> tuple[pd.DataFrame, list[str]]:
    """Return rows with two categories as features, whose groups no additive model tells."""
    rows, groups = int(rng.integers(3000, 8000)), int(rng.integers(2, 4))
    a, b = rng.integers(0, 3, rows), rng.integers(0, 3, rows)
    share = rng.dirichlet(np.full(groups, 1.5), (3, 3))
    codes = (rng.random((rows, 1)) > np.cumsum(share[a, b], axis=1)[:, :-1]).sum(axis=1)
    mean = rng.normal(size=(3, 3)) + 2 * share[..., 0]
    frame = pd.DataFrame(
        {
            "group": [f"g{k}" for k in codes],
            "a": np.array(list("xyz"))[a],
            "b": np.array(list("uvw"))[b],
            "label": units * (mean[a, b] + rng.normal(size=rows)),
            "id": [f"r{i}" for i in range(rows)],
        }
    )
    return frame, ["a", "b"]


def cheapest(kind: Ints, eta: Floats, codes: Ints, slack: float) -> float:
    """Return the least square loss to ``eta`` of any drawn rule of kinds of rows, by a linear program in unit 1."""
    many, wide, n = int(kind.max()) + 1, 200, kind.size
    scale = eta.std()
    weight = np.bincount(kind) / n
    center = np.bincount(kind, eta) / np.bincount(kind)
    grid = np.unique(np.concatenate([np.linspace(center.min(), center.max(), wide), center]))
    cost = np.stack([np.bincount(kind, (eta - u) ** 2, many) / n for u in grid], axis=1) / scale**2
    steps = sp.csr_matrix(np.tri(grid.size)[:-1])  # whether a value is at most the threshold
    sides = []
    for k in np.unique(codes):
        own = np.bincount(kind[codes == k], minlength=many) / (codes == k).sum()
        sides.append(sp.kron(sp.csr_matrix((own - weight)[None]), steps))
    away = sp.vstack(sides)
    found = linprog(
        cost.ravel(),
        A_ub=sp.vstack([away, -away]),
        b_ub=np.full(2 * away.shape[0], slack),
        A_eq=sp.kron(sp.eye(many), np.ones((1, grid.size))),
        b_eq=np.ones(many),
        method="highs-ipm",
    )
    assert found.status == 0
    return float(found.fun) * scale**2


@promise(level=0, quick=1, full=100)
def cost_of_kinds_of_rows(rng: np.random.Generator, shell: Shell) -> Tried:
    """Categorical features: no randomized rule that meets the slack costs less by more than 1%."""
    units = float(rng.choice([1e-6, 0.25, 1.0, 1e6]))
    frame, names = kinds(rng, units)
    slack = float(rng.choice([0.0, 0.02, 0.05]))
    asked = ("--task", "regression", "--features", ",".join(names))
    if repaired(shell, frame, *asked, "--slack", slack).status != 0:
        return NOT_SAID
    fit = frame.iloc[split_of(frame, replace(ROWS, task="regression")).fit]
    codes, kind = (
        np.unique(part, return_inverse=True)[1].astype(np.int64)
        for part in (fit["group"], fit["a"] + fit["b"])
    )
    # with an infinite slack the repair gives the expected label that it works with
    repaired(shell, frame, *asked, "--slack", "inf", artifact="f.fairfix")
    eta = free_values(shell, fit)
    values = copied(shell, fit, COPIES)
    loss, far = (
        float(((values - eta) ** 2).mean()),
        distance_to_overall(values.ravel(), np.tile(codes, COPIES)),
    )
    least = cheapest(kind, eta, codes, slack)
    span = float(eta.var())
    noise = np.sqrt(np.log(1e7) / (2 * COPIES * np.bincount(codes).min()))
    # scores of the fit are by models that have not seen the row: the last digits of loss and distance differ
    fine = loss <= 1.01 * least + 0.01 * span and far <= slack + 2 * noise + 0.01
    return judged(
        fine, f"loss {loss / span:.4f}, least {least / span:.4f}, KS {far:.4f}, slack {slack}, unit {units:g}"
    )


def free_values(shell: Shell, rows: pd.DataFrame) -> Floats:
    """Return the values of the artifact without a slack."""
    people = rows.drop(columns=["label", "group"])
    told = shell.predict(str(Path(shell.folder) / "f.fairfix"), shell.write(people, "few.parquet"))
    return np.asarray(told["prediction"].to_numpy(dtype=np.float64))


@promise(level=0, quick=2, full=100)
def warning_of_what_it_costs(rng: np.random.Generator, shell: Shell) -> Tried:
    """A warning appears if a repair of a score alone loses much of its information."""
    frame, score = scored(rng)
    done = repaired(shell, frame, "--loss", "square", "--slack", 0.02)
    if done.status != 0:
        return NOT_SAID
    fit = split_of(frame, ROWS).fit
    values = copied(shell, frame.iloc[fit], 20)
    given = float(((values - score[fit]) ** 2).mean() / score[fit].var())
    said = [one for one in texts_of(done.result, "warning") if "about the label" in one]
    hidden = any("loses" in one and "`slack`" in one for one in said)
    selected = float((values >= 0.5).mean()), float((score[fit] >= 0.5).mean())
    nobody = any("the threshold" in one for one in texts_of(done.result, "warning"))
    fine = (given < 0.3 or hidden) and (selected[0] > 0 or selected[1] == 0 or nobody)
    return judged(
        fine,
        f"{given:.0%} given away, selected {selected[1]:.1%} -> {selected[0]:.1%}, {texts_of(done.result, 'warning')}",
    )
