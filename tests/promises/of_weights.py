"""Promises of an audit whose rows have weights that go with what is measured."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tests.promises.harness import Shell, Tried, judged, promise

RATES = ("base_rate", "selection_rate", "true_positive_rate", "positive_predictive_value")
LIGHT = 0.02
"""Scores of the rows of small weight lie this far from the middle of their group at most."""


def _truth(metric: str, heavy: np.ndarray, middle: np.ndarray) -> np.ndarray:
    """Return a metric of groups in which scores of heavy rows, a share of the weight, are uniform on [0, 1]."""
    light = 1.0 - heavy
    mean, selected = heavy / 2 + light * middle, heavy / 2
    square = heavy / 6 + light * (middle * (1 - middle) - LIGHT**2 / 3)
    found = heavy * 3 / 8  # E[p; p >= 1/2]
    return {
        "mean_score": mean,
        "square_loss": square,
        "calibration_gap": 0.0 * mean,
        "base_rate": mean,
        "selection_rate": selected,
        "true_positive_rate": found / mean,
        "positive_predictive_value": found / selected,
    }[metric]


def _audit(rng: np.random.Generator, shell: Shell, groups: int, metric: str, gap: bool) -> Tried:
    """Hold the intervals of a metric of all groups, or of its largest difference, against the truth."""
    rows = np.round(np.exp(rng.uniform(np.log(400), np.log(4000), groups))).astype(int)
    code = np.repeat(np.arange(groups), rows)
    share, times = rng.uniform(0.02, 0.04, groups), rng.uniform(8.0, 12.0, groups)
    middle = rng.uniform(LIGHT, 0.1, groups)
    heavy = rng.random(code.size) < share[code]
    score = np.where(heavy, rng.random(code.size), middle[code] + rng.uniform(-LIGHT, LIGHT, code.size))
    frame = pd.DataFrame(
        {
            "race": [f"g{k:02}" for k in code],
            "score": score,
            "label": (rng.random(code.size) < score).astype(int),
            "weight": np.where(heavy, times[code], 1.0) * rng.uniform(0.5, 1.5, code.size),
        }
    )
    words = ["--protected", "race", "--threshold", "0.5", "--weight", "weight"]
    done = shell.run("audit", shell.write(frame), *words)
    truth = _truth(metric, share * times / (share * times + 1 - share), middle)
    (found,) = done.result["attributes"]
    values = [one["metrics"][metric] for one in found["groups"]]
    if gap:
        of = f"{metric}.difference.between_groups"
        values, truth = [one for one in found["comparisons"] if one["id"] == of], np.array([np.ptp(truth)])
    holds = all(one["low"] <= true <= one["high"] for one, true in zip(values, truth, strict=True))
    return judged(holds, f"{metric} {truth} not in {[(one['low'], one['high']) for one in values]}, {rows}")


@promise(level=0.05, quick=8, full=1000)
def interval_of_a_weighted_mean(rng: np.random.Generator, shell: Shell) -> Tried:
    """95% intervals of a weighted mean, if few rows with large weights differ from the others."""
    return _audit(
        rng, shell, int(rng.integers(6, 13)), str(rng.choice(["mean_score", "calibration_gap"])), False
    )


@promise(level=0.05, quick=8, full=1000)
def interval_of_a_weighted_rate_or_gap(rng: np.random.Generator, shell: Shell) -> Tried:
    """95% interval of a weighted rate, a loss or the gap of either, with such weights."""
    gap = bool(rng.random() < 0.5)
    metric = str(
        rng.choice(["mean_score", "calibration_gap", "square_loss"] if gap else ["square_loss", *RATES])
    )
    return _audit(rng, shell, int(rng.integers(2, 7)), metric, gap)
