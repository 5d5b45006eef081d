"""Promises of an audit about the population that its rows were drawn from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tests.promises.harness import Shell, Tried, judged, promise


@promise(level=0.05, quick=12, full=1000)
def interval_of_the_parity_difference(rng: np.random.Generator, shell: Shell) -> Tried:
    """95% interval of the demographic parity difference."""
    groups = int(rng.integers(2, 9))
    rows = np.round(np.exp(rng.uniform(np.log(20), np.log(5000), groups))).astype(int)
    rate = rng.choice([rng.uniform(0.02, 0.98), 0.5]) + rng.choice([0.0, 0.1]) * rng.uniform(-1, 1, groups)
    rate = np.clip(rate, 0.01, 0.99)
    code = np.repeat(np.arange(groups), rows)
    frame = pd.DataFrame(
        {"race": [f"g{k}" for k in code], "prediction": (rng.random(code.size) < rate[code]).astype(int)}
    )
    done = shell.run("audit", shell.write(frame), "--protected", "race", "--prediction", "prediction")
    gap = next(
        one
        for one in done.result["attributes"][0]["comparisons"]
        if one["id"] == "selection_rate.difference.between_groups"
    )
    truth = float(rate.max() - rate.min())
    return judged(
        gap["low"] <= truth <= gap["high"], f"{truth:.3f} not in [{gap['low']}, {gap['high']}], {rows}"
    )


@promise(level=0.05, quick=12, full=1000)
def direction_of_the_score(rng: np.random.Generator, shell: Shell) -> Tried:
    """A score that ranks labels correctly gets no warning about its direction."""
    rows = int(np.exp(rng.uniform(np.log(30), np.log(3000))))
    label = rng.random(rows) < rng.uniform(0.05, 0.95)
    label[:2] = True, False
    right = float(rng.choice([0.0, 0.0, 0.1]))  # at 0 the area is one half
    score = rng.normal(size=rows) * rng.choice([1.0, 1e4]) + right * label
    if rng.random() < 0.5:
        score = np.round(score, 0)  # ties
    frame = pd.DataFrame({"race": rng.choice(["a", "b"], rows), "label": label, "score": score})
    frame.loc[:1, "race"] = ["a", "b"]
    words = ["--protected", "race", "--score-scale", "raw"]
    if rng.random() < 0.5:
        frame["weight"] = rng.gamma(rng.choice([0.5, 2.0]), size=rows) + 1e-3
        words += ["--weight", "weight"]
    path: Any = shell.write(frame)
    if rng.random() < 0.5:
        shell.run("count", path, *words, "-o", counts := shell.folder / "x.counts")
        path, words = counts, []
    done = shell.run("audit", path, *words)
    wrong = any(one["code"] == "score_direction" for one in done.result.get("messages", ()))
    return judged(not wrong, f"{rows} rows, {words}, {done.result['overall']['metrics']['auc']}")


@promise(level=0.05, quick=12, full=1000)
def direction_of_decisions(rng: np.random.Generator, shell: Shell) -> Tried:
    """Decisions that are no rarer for label 1 are not said to point the wrong way."""
    rows = int(np.exp(rng.uniform(np.log(30), np.log(3000))))
    label = rng.random(rows) < rng.uniform(0.05, 0.95)
    label[:2] = True, False
    fpr = float(rng.choice([0.02, 0.5, 0.97, rng.uniform(0.05, 0.9)]))
    tpr = fpr + float(rng.choice([0.0, 0.0, 0.03]))
    decided = (rng.random(rows) < np.where(label, tpr, fpr)).astype(float)
    words = ["--protected", "race", "--prediction", "decided"]
    if rng.random() < 0.3:  # expected decisions of a randomized rule
        decided = 0.1 + 0.7 * decided
        words[2:] = ["--probability", "decided"]
    frame = pd.DataFrame({"race": rng.choice(["a", "b"], rows), "label": label, "decided": decided})
    frame.loc[:1, "race"] = ["a", "b"]
    if rng.random() < 0.5:
        frame["weight"] = rng.gamma(rng.choice([0.5, 2.0]), size=rows) + 1e-3
        words += ["--weight", "weight"]
    done = shell.run("audit", shell.write(frame), *words)
    wrong = any(one["code"] == "decision_direction" for one in done.result.get("messages", ()))
    return judged(
        not wrong, f"{rows} rows, {words}, {done.result['overall']['metrics']['true_positive_rate']}"
    )
