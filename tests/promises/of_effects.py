"""Promises about the effect of a group on a score, told from scores alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tests.promises.harness import NOT_SAID, Shell, Tried, judged, promise

Floats = npt.NDArray[np.float64]


def sigmoid(values: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-values)))


def columns(rng: np.random.Generator, rows: int) -> tuple[Floats, pd.DataFrame, str]:
    """Draw 2 to 60 columns, of numbers or of categories alone: as numbers, and as a user has them."""
    many = int(np.round(np.exp(rng.uniform(np.log(2), np.log(60)))))
    if rng.random() < 0.3:
        many = min(many, 12)
        codes = [rng.choice(k, rows, p=rng.dirichlet(np.full(k, 3.0))) for k in rng.integers(2, 6, many)]
        shape = np.stack([rng.normal(size=code.max() + 1)[code] for code in codes], axis=1)
        return (
            shape,
            pd.DataFrame({f"x{j}": [f"v{k}" for k in code] for j, code in enumerate(codes)}),
            "categories",
        )
    X = rng.normal(size=(rows, many)) @ np.linalg.cholesky(0.3 + 0.7 * np.eye(many)).T
    units = 10.0 ** rng.uniform(-6, 6, many)
    return X, pd.DataFrame({f"x{j}": units[j] * X[:, j] for j in range(many)}), "numbers"


def part(rng: np.random.Generator, X: Floats, kind: str, along: Floats) -> Floats:
    """Return a function of the columns: an index, steps of a tree, or an index with an interaction."""
    if kind == "steps":
        first, other = X[:, 0] > 0, X[:, -1] > 0.4
        return 1.2 * first + 1.0 * (other & ~first) - 0.5 * (X[:, X.shape[1] // 2] > 0.5)
    index = X @ along
    index = 1.2 * (index - index.mean()) / index.std()
    return index + (0.5 * X[:, 0] * X[:, -1] if kind == "interaction" else 0.0)


def world(rng: np.random.Generator, bonus: float) -> tuple[str, pd.DataFrame, float]:
    """Draw rows whose group the columns tell of, a score, and the overlap-weighted effect of the group on it."""
    rows = int(rng.choice([1_000, 5_200, 8_000], p=[0.1, 0.6, 0.3]))
    X, frame, kind = columns(rng, rows)
    along, other = rng.normal(size=(2, X.shape[1]))
    share = rng.choice([0.0, 0.5, 0.95])  # how alike the directions of score and group are
    of_group, of_score = (str(rng.choice(["index", "index", "steps", "interaction"])) for _ in range(2))
    leaning = part(rng, X, of_group, share * along + (1 - share) * other)
    chance = sigmoid(leaning - leaning.mean() + rng.uniform(-1, 1))
    group = rng.random(rows) < chance
    plain = part(rng, X, of_score, along) - 0.5
    form = str(rng.choice(["probability", "real", "decision"]))
    if form == "real":
        noise = rng.choice([0.0, 0.3])
        score, effect = plain + bonus * group + noise * rng.normal(size=rows), np.full(rows, bonus)
    else:
        score, effect = sigmoid(plain + bonus * group), sigmoid(plain + bonus) - sigmoid(plain)
    if form == "decision":
        score = (rng.random(rows) < score).astype(float)
    frame["race"], frame["score"] = np.where(group, "a", "b"), score
    overlap = chance * (1 - chance)
    where = f"{rows} rows, {X.shape[1]} {kind}, group {of_group}, score {of_score} {form}, alike {share}"
    return where, frame, float(overlap @ effect / overlap.sum())


def contrast(shell: Shell, frame: pd.DataFrame, *gates: str) -> tuple[int, dict[str, Any]]:
    """Audit scores alone as a user does; return the exit status and the residual effect."""
    scale = () if frame.score.between(0, 1).all() else ("--score-scale", "raw")
    done = shell.run(
        f"audit {shell.write(frame)} --protected race --score score --similar flips", *scale, *gates
    )
    name = "residual_effect.difference.between_groups"
    found = next(one for one in done.result["attributes"][0]["comparisons"] if one["id"] == name)
    return done.status, found


@promise(level=0.05, quick=3, full=200)
def blind_scores(rng: np.random.Generator, shell: Shell) -> Tried:
    """A score that does not depend on the group is not said to have a group effect."""
    where, frame, _ = world(rng, 0.0)
    status, found = contrast(shell, frame, "--check", "residual_effect<=0")
    if found["value"] is None:
        return NOT_SAID
    return judged(status != 1, f"[{found['low']:.4g}, {found['high']:.4g}] for a blind score: {where}")


def copy_of(rng: np.random.Generator, score: Floats) -> tuple[str, pd.Series]:
    """Return a column made from the score: itself in some form, its bands, a decision by it, or with a little noise."""
    ranks = pd.Series(score).rank(pct=True, method="first").to_numpy() - 0.5 / score.size
    kind = str(rng.choice(["linear", "monotone", "bands", "text", "numbered", "decision", "noise"]))
    bands = int(rng.choice([2, 4, 10, 40]))
    made: dict[str, Any] = {
        "linear": 10.0 ** rng.uniform(-6, 6) * (score + rng.normal()),
        "monotone": -np.exp(ranks**3),
        "bands": np.floor(bands * ranks),
        "text": [f"band {k}" for k in np.floor(bands * ranks).astype(int)],
        "numbered": rng.permutation(bands)[np.floor(bands * ranks).astype(int)],
        "decision": ranks > rng.uniform(0.2, 0.8),
        "noise": score + rng.choice([0.02, 0.1, 0.2]) * score.std() * rng.normal(size=score.size),
    }
    return f"{kind} {bands}", pd.Series(made[kind])


@promise(level=0.05, quick=2, full=200)
def copies_hide_no_effect(rng: np.random.Generator, shell: Shell) -> Tried:
    """An effect is not explained away by a column made from the score."""
    where, frame, truth = world(rng, float(rng.choice([0.3, 1.0])))
    kind, frame["copied"] = copy_of(rng, frame["score"].to_numpy())
    status, found = contrast(shell, frame, "--check", f"residual_effect<={abs(truth) / 2}")
    held = found["value"] is None or found["low"] <= abs(truth) <= found["high"]
    return judged(
        held and status != 0, f"{truth:.4g}, told {found['low']} to {found['high']}: {kind} of {where}"
    )


@promise(level=0.05, quick=1, full=200)
def intervals_of_effects(rng: np.random.Generator, shell: Shell) -> Tried:
    """95% interval of the overlap-weighted effect of a group."""
    where, frame, truth = world(rng, float(rng.choice([0.1, 0.3, 1.0])))
    _, found = contrast(shell, frame)
    if found["value"] is None:
        return NOT_SAID
    low, high = found["low"], found["high"]
    return judged(low <= abs(truth) <= high, f"{truth:.4g} not in [{low:.4g}, {high:.4g}]: {where}")
