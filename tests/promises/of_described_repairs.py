"""Promises of repairs whose noise is described by probabilities of membership, or by radii of total variation.

What a repair says of the worst true group on held-out rows is an upper limit for the population of the rows, whoever of
it is of which group, as far as the description allows. A population is a table of masses by kind of row
(vector of probabilities, or recorded group), level of the score and label; its worst case is found by linear programs.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
from scipy.optimize import linprog

from tests.promises.harness import NOT_SAID, Shell, Tried, judged, promise
from tests.results import texts_of

LABELS = {
    "demographic_parity": (0, 1),
    "equal_opportunity": (1,),
    "predictive_equality": (0,),
    "minimax": (0, 1),
}


def masses_of(rng: np.random.Generator, kinds: int, levels: int, shift: np.ndarray) -> np.ndarray:
    """Draw masses by kind, level of the score and label, shape (kinds, levels, 2); kinds of a shift score apart."""
    at = np.linspace(0.05, 0.95, levels)
    level = np.exp(-((at - 0.5 - shift[:, None]) ** 2) / rng.uniform(0.05, 0.3))
    share = rng.dirichlet(np.full(kinds, 3.0))[:, None] * level / level.sum(1, keepdims=True)
    return np.stack([share * (1 - at), share * at], -1)


def cells_of(masses: np.ndarray) -> pd.DataFrame:
    """Return a row for each mass: its kind, score and label."""
    kind, level, label = (at.ravel() for at in np.indices(masses.shape))
    score = np.round(np.linspace(0.05, 0.95, masses.shape[1])[level], 4)
    return pd.DataFrame({"id": np.arange(kind.size), "kind": kind, "score": score, "label": label})


def sampled(rng: np.random.Generator, masses: np.ndarray, rows: int) -> pd.DataFrame:
    """Draw rows: their kind, score and label."""
    drawn = cells_of(masses).iloc[rng.choice(masses.size, rows, p=masses.ravel())]
    return drawn.assign(id=np.arange(rows)).reset_index(drop=True)


def with_members(frame: pd.DataFrame, z: np.ndarray) -> pd.DataFrame:
    """Return rows with the probabilities of their kind, (kinds, groups), as columns p0, p1, ..."""
    return frame.assign(**{f"p{j}": z[frame["kind"], j] for j in range(z.shape[1])})


def decided(shell: Shell, cells: pd.DataFrame) -> np.ndarray:
    """Return the chances that the rule gives to rows."""
    made = shell.predict("rule.fairfix", shell.write(cells, "cells.parquet"))
    return made["p_positive"].to_numpy()


def limit_of(done_notes: list[str], level: str) -> float | None:
    """Return the upper limit that the claim on held-out rows gives under an assumption."""
    said = "on held-out rows, the (worst true group (?:differs|is on)|largest error rate of a true group)"
    claim = next((note for note in done_notes if re.search(said, note)), "")
    match = re.search(rf"under {level} \(up to (-?[\d.]+);", claim)
    return float(match[1]) if match else None


def farthest(
    constraint: str, chance: np.ndarray, label: np.ndarray, fits: dict[str, np.ndarray], whole: np.ndarray
) -> float:
    """Return the largest distance of a group's rate to that over everybody, over the masses that fit.

    Of minimax it is the largest error rate. ``whole`` has the masses of everybody; rows of ``fits`` are about a group's
    masses, and the denominator is scaled to 1, so the last column has the constants.
    """
    about = np.isin(label, LABELS[constraint]) * 1.0
    value, out = chance, 0.0
    overall, signs = (whole * about) @ value / (whole @ about), (1.0, -1.0)
    if constraint == "minimax":
        value, overall, signs = np.where(label == 1, 1.0 - chance, chance), 0.0, (-1.0,)
    for sign in signs:
        answer = linprog(
            np.append(sign * about * value, np.zeros(fits["A_eq"].shape[1] - value.size)),
            A_ub=fits["A_ub"],
            b_ub=np.zeros(len(fits["A_ub"])),
            A_eq=np.vstack([fits["A_eq"], np.append(about, np.zeros(fits["A_eq"].shape[1] - about.size))]),
            b_eq=np.append(np.zeros(len(fits["A_eq"])), 1.0),
            method="highs",
        )
        if answer.status == 0:
            out = max(out, sign * overall - answer.fun)
    return float(out)


def worst_member(constraint: str, chance: np.ndarray, masses: np.ndarray, z: np.ndarray) -> float:
    """Return the largest distance of a group of which each kind of rows holds a share of ``z``, (kinds, groups)."""
    cells, whole = cells_of(masses), masses.ravel()
    of_kind = np.eye(len(z))[cells["kind"]].T
    return max(
        farthest(
            constraint,
            chance,
            cells["label"].to_numpy(),
            {"A_ub": np.c_[np.eye(whole.size), -whole], "A_eq": np.c_[of_kind, -share * (of_kind @ whole)]},
            whole,
        )
        for share in z.T
        if share @ masses.sum((1, 2)) > 0
    )


def worst_near(
    constraint: str, chance: np.ndarray, masses: np.ndarray, home: np.ndarray, radii: np.ndarray
) -> float:
    """Return the largest distance of a group that is within a radius of the rows of its home kind."""
    cells, whole = cells_of(masses), masses.ravel()
    eye, none, worst = np.eye(whole.size), np.zeros(whole.size), 0.0
    for k, radius in zip(home, radii, strict=True):
        centre = np.where(cells["kind"] == k, whole, 0.0) / whole[cells["kind"] == k].sum()
        fits = {
            "A_ub": np.vstack([np.c_[eye, -eye, -centre], np.r_[none, np.ones(whole.size), -radius]]),
            "A_eq": np.r_[np.ones(whole.size), none, -1.0][None],
        }
        worst = max(worst, farthest(constraint, chance, cells["label"].to_numpy(), fits, whole))
    return worst


@promise(
    "robust, by probabilities of membership: upper limit of the worst true group's distance to the "
    "overall rate, or of its error",
    level=0.05,
    quick=3,
    full=500,
)
def repairs_by_membership(rng: np.random.Generator, shell: Shell) -> Tried:
    groups, kinds, levels = int(rng.integers(2, 4)), int(rng.integers(2, 7)), int(rng.integers(3, 12))
    z = rng.dirichlet(np.full(groups, rng.choice([0.1, 0.3])), kinds)
    z = np.maximum(np.round(z, 3), 0.0)
    z[:, -1] = 1.0 - z[:, :-1].sum(1)
    masses = masses_of(rng, kinds, levels, rng.uniform(0.0, 0.4) * (z[:, 0] - 0.5))
    likely = np.array([f"g{j}" for j in z.argmax(1)])
    if np.unique(likely).size < 2:
        likely = np.where(z[:, 0] >= np.median(z[:, 0]), "g0", "g1")
    if np.unique(likely).size < 2:
        return NOT_SAID

    def dressed(frame: pd.DataFrame) -> pd.DataFrame:
        return with_members(frame, z).assign(likely=likely[frame["kind"]]).drop(columns="kind")

    frame = dressed(sampled(rng, masses, int(rng.choice([600, 3000, 15000]))))
    constraint = str(rng.choice(list(LABELS)))
    group = str(rng.choice(["used", "unused"]))
    slack = [] if constraint == "minimax" else ["--slack", float(rng.choice([0.05, 0.15]))]
    mixed = frame.groupby([f"p{j}" for j in range(groups)])["likely"].nunique().max() > 1
    # fmt: off
    done = shell.run(
        "repair", shell.write(frame), "--method", "robust", "--protected", "likely", "--score", "score", "--label",
        "label", "--id", "id", "--noise", "membership:" + ",".join(f"p{j}" for j in range(groups)), "--constraint",
        constraint, "--assume", "none", *slack, "--group", "unused" if mixed else group, "-o",
        "rule.fairfix",
    )
    # fmt: on
    limit = limit_of(texts_of(done.result), "N1") if done.result else None
    if limit is None:
        return NOT_SAID
    worst = worst_member(constraint, decided(shell, dressed(cells_of(masses))), masses, z)
    return judged(
        worst <= limit + 1e-6,
        f"{constraint}: {worst:.4f}, up to {limit:.4f}, {len(frame)} rows, {kinds} kinds",
    )


@promise(level=0.05, quick=3, full=500)
def repairs_within_radii(rng: np.random.Generator, shell: Shell) -> Tried:
    """Robust, within radii: upper limit of the worst true group's distance to the overall rate, or of its error."""
    kinds, levels = int(rng.integers(2, 5)), int(rng.integers(3, 12))
    masses = masses_of(rng, kinds, levels, rng.uniform(-0.2, 0.2, kinds))
    names = np.array([f"g{k}" for k in range(kinds)])
    frame = sampled(rng, masses, int(rng.choice([600, 3000, 15000])))
    frame = frame.assign(race=names[frame["kind"]]).drop(columns="kind")
    home = np.arange(kinds)
    if rng.random() < 0.3:  # true groups of other names, more or fewer than the recorded ones
        home = rng.integers(0, kinds, int(rng.integers(2, kinds + 2)))
    radii = np.round(rng.choice([0.0, 0.02, 0.1, 0.3], home.size), 3)
    own = np.array_equal(home, np.arange(kinds))
    balls = ",".join(
        f"g{k}={r}" if own else f"t{j} near g{k}={r}"
        for j, (k, r) in enumerate(zip(home, radii, strict=True))
    )
    constraint = str(rng.choice(list(LABELS)))
    slack = [] if constraint == "minimax" else ["--slack", float(rng.choice([0.05, 0.15]))]
    solver, name = ["--score", "score", "--group", str(rng.choice(["used", "unused"]))], "score"
    if constraint != "minimax" and rng.random() < 0.3:
        solver, name = ["--solver", "oracle", "--features", "mark"], "mark"
    frame = frame.rename(columns={"score": name})
    # fmt: off
    done = shell.run(
        "repair", shell.write(frame), "--method", "robust", "--protected", "race", "--label", "label", "--id", "id",
        "--noise", f"radius:{balls}", "--constraint", constraint, *slack, *solver, "-o", "rule.fairfix",
    )
    # fmt: on
    limit = limit_of(texts_of(done.result), "N0") if done.result else None
    if limit is None:
        return NOT_SAID
    cells = cells_of(masses).rename(columns={"score": name})
    chance = decided(shell, cells.assign(race=names[cells["kind"]]).drop(columns="kind"))
    worst = worst_near(constraint, chance, masses, home, radii)
    return judged(
        worst <= limit + 1e-6,
        f"{constraint}: {worst:.4f}, up to {limit:.4f}, {len(frame)} rows, radii {balls}",
    )
