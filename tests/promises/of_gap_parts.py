"""Promises about the parts of gaps: the intervals of all parts of a gap contain the parts in the population."""

from __future__ import annotations

from itertools import product
from math import comb, erf, sqrt
from typing import Any

import fairfix
import numpy as np
import pandas as pd

from tests.promises.harness import NOT_SAID, Shell, Tried, judged, promise


def missed(gap: dict[str, Any], truth: dict[str, float]) -> list[str]:
    """Return the parts whose interval does not contain the truth; the rest has no name."""
    named = [(", ".join(one["columns"]), one) for one in gap["parts"]]
    named += [("", gap["rest"])] if gap.get("rest") else []
    return [
        f"{name or 'rest'}: {truth[name]:.5f} not in {one['low']:.5f} to {one['high']:.5f}"
        for name, one in named
        if one["low"] is not None and not one["low"] <= truth[name] <= one["high"]
    ]


@promise(level=0.05, quick=8, full=1000)
def parts_by_regression(rng: np.random.Generator, shell: Shell) -> Tried:
    """Audit --explain-gap: the parts by regression of the population lie in their intervals, all at once.

    Decisions whose probability is linear in columns that differ between groups: skewed, rare, correlated.
    """
    rows = int(rng.choice([150, 600, 3000, 10_000]))
    first = rng.random(rows) < rng.choice([0.15, 0.5, 0.8])
    shift, rare = rng.choice([0.0, 0.4]), rng.choice([0.05, 0.3])
    x = 3 * rng.random(rows) ** 3 + shift * first
    z = 0.7 * x + rng.normal(size=rows)
    level = np.where(
        rng.random(rows) < np.where(first, 2.0, 1.0) * rare, "new", rng.choice(["old", "mid"], rows)
    )
    base, scale = float(rng.choice([0.02, 0.1, 0.4])), float(rng.choice([0.3, 1.0]))
    slopes = scale * base * np.array([0.15, -0.05, 0.5, rng.choice([0.0, 0.3])])
    noise = 0.1 * scale * base
    chance = base + slopes @ np.stack([x, np.clip(z, -3, 6), level == "new", first])
    frame = pd.DataFrame({"group": np.where(first, "a", "b"), "x": x, "z": np.clip(z, -3, 6), "level": level})
    frame["decision"] = (rng.random(rows) < chance + noise).astype(int)
    more = []
    if rng.random() < 0.4:
        frame["w"] = np.where(first, 2.0, 1.0) * rng.choice([1.0, 3.0], rows)
        more = ["--weight", "w"]
    done = shell.run(
        f"audit {shell.write(frame)} --protected group --prediction decision --explain-gap", *more
    )
    if done.status == 2 or not done.result["explained_gaps"]["gaps"]:
        return NOT_SAID
    (gap,) = done.result["explained_gaps"]["gaps"]
    sign = 1.0 if gap["groups"][0] == "a" else -1.0
    of_z = _mean_of_clipped(shift) - _mean_of_clipped(0.0)
    truth = {"x": slopes[0] * shift, "z": slopes[1] * of_z, "level": slopes[2] * rare, "": slopes[3]}
    out = missed(gap, {name: sign * part for name, part in truth.items()})
    return judged(not out, f"{rows} rows, base {base}, shift {shift}, rare {rare}: {out[:2]}")


def _mean_of_clipped(shift: float) -> float:
    """Return the mean of z in :func:`parts_by_regression`, kept in -3 to 6."""
    e = 3 * ((np.arange(2000) + 0.5) / 2000) ** 3
    grid, step = np.linspace(-8, 8, 1601, retstep=True)
    weight = np.exp(-(grid**2) / 2) * step / sqrt(2 * np.pi)
    return float((np.clip(0.7 * (e + shift)[:, None] + grid, -3, 6) @ weight).mean())


@promise(level=0.05, quick=8, full=600)
def parts_by_model(rng: np.random.Generator, shell: Shell) -> Tried:
    """Audit --explain-gap --model: the Shapley values of the population lie in their intervals, all at once.

    Decisions by a sum of normal columns: each mixed rate is a normal probability.
    """
    many = int(rng.choice([1, 3, 6]))
    rows, part = int(rng.choice([200, 1000, 8000])), float(rng.choice([0.2, 0.5]))
    first = rng.random(rows) < part
    means = rng.normal(0, 0.6, (2, many))
    X = rng.normal(size=(rows, many)) + np.where(first[:, None], means[0], means[1])
    slopes = rng.choice([1.0, -0.5, 0.0], many)
    cut, spread = float(rng.choice([0.0, 1.5])), max(sqrt(float(slopes @ slopes)), 1e-9)
    unused = int(rng.choice([0, 9]))
    frame = pd.DataFrame(np.column_stack([X, rng.normal(size=(rows, unused))])).add_prefix("x")
    names = list(frame)

    def model(one: pd.DataFrame) -> np.ndarray:
        return np.asarray(1 / (1 + np.exp(cut - one.to_numpy()[:, :many] @ slopes)))

    weights = {"weight": "w"} if rng.random() < 0.4 else {}
    frame = frame.assign(group=np.where(first, "a", "b"), w=rng.choice([1.0, 2.0, 4.0], rows))
    try:
        result = fairfix.audit(
            frame, model=model, features=names, protected="group", explain_gap=True, **weights
        )
    except fairfix.errors.FairfixError:
        return NOT_SAID
    gaps = {one["metric"]: one for one in result.to_dict()["explained_gaps"]["gaps"]}
    if "selection_rate" not in gaps:
        return NOT_SAID
    gap = gaps["selection_rate"]
    a, b = (means[0], means[1]) if gap["groups"][0] == "a" else (means[1], means[0])
    truth = dict.fromkeys(names, 0.0)
    for inside in product([0, 1], repeat=many):
        chosen = np.array(inside, dtype=bool)
        rate = 0.5 * (1 + erf((slopes @ np.where(chosen, a, b) - cut) / spread / sqrt(2)))
        size = int(chosen.sum())
        for j in range(many):
            others = size - chosen[j]
            weight = 1.0 / (many * comb(many - 1, int(others)))
            truth[names[j]] += weight * rate if chosen[j] else -weight * rate
    out = missed(gap, truth)
    return judged(
        not out, f"{rows} rows, {many} columns and {unused} unused, cut {cut}, slopes {slopes}: {out[:2]}"
    )
