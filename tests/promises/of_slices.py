"""Promises about slices: which are worse than all other rows, how they fare, and limits on the worst of them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
from fairfix.data.row_filter import mask_of, parse_condition

from tests.promises.harness import NOT_SAID, Shell, Tried, judged, promise

METRICS = (
    "accuracy",
    "false_negative_rate",
    "selection_rate",
    "square_loss",
    "calibration_gap",
    "tpr.difference",
)


def features(rng: np.random.Generator, rows: int) -> pd.DataFrame:
    """Return many columns: of few levels, skewed, tied, and equal to others."""
    many = int(rng.choice([3, 8, 15]))
    out = {}
    for j in range(many):
        levels = int(rng.integers(2, 7))
        skew = rng.dirichlet(np.full(levels, float(rng.choice([0.5, 5.0]))))
        out[f"x{j}"] = rng.choice(levels, rows, p=skew)
    out["amount"] = np.round(rng.lognormal(size=rows), int(rng.integers(0, 3)))
    out["twin"] = out["x0"]
    return pd.DataFrame(out)


def options(rng: np.random.Generator, metric: str) -> list[object]:
    """Return how slices are searched."""
    split = ["--validation", float(rng.choice([0.3, 0.5]))] if rng.random() < 0.4 else []
    gap = ["--protected", "sex"] if metric.endswith("difference") else []
    return ["--slices", "--slice-metric", metric, "--min-rows", int(rng.choice([20, 100])), *gap, *split]


def world(
    rng: np.random.Generator, extra: np.ndarray, frame: pd.DataFrame
) -> tuple[pd.DataFrame, np.ndarray]:
    """Return rows with decisions that are wrong with a chance of their own, and this chance; labels depend on x0."""
    rows, base = len(frame), float(rng.choice([0.02, 0.1, 0.3]))
    chance = np.clip(base + extra, 0.0, 1.0)
    label = (rng.random(rows) < np.where(frame["x0"] == 0, 0.2, 0.5)).astype(int)
    wrong = rng.random(rows) < chance
    frame = frame.assign(
        label=label, decision=np.where(wrong, 1 - label, label), sex=rng.choice(["f", "m"], rows)
    )
    if rng.random() < 0.3:
        frame["w"] = rng.choice([1.0, 2.0, 5.0], rows)
    return frame, chance


def weights(frame: pd.DataFrame) -> list[str]:
    """Return the option of weights, where there are some."""
    return ["--weight", "w"] if "w" in frame else []


@promise(level=0.05, quick=8, full=600)
def slices_of_like_rows(rng: np.random.Generator, shell: Shell) -> Tried:
    """Audit --slices: some slices are worse than all other rows, where all rows are alike."""
    rows, metric = int(rng.choice([300, 2000, 6000])), str(rng.choice(METRICS))
    frame, chance = world(rng, np.zeros(rows), features(rng, rows))
    by = ["--prediction", "decision"]
    if metric == "selection_rate":
        frame["decision"] = (rng.random(rows) < chance).astype(int)
    elif metric in ("square_loss", "calibration_gap"):
        frame["score"] = rng.random(rows).round(int(rng.integers(1, 4)))
        frame["label"] = (rng.random(rows) < frame["score"]).astype(int)
        frame, by = frame.drop(columns="decision"), ["--score", "score"]
    data = shell.write(frame)
    done = shell.did("audit", data, "--label", "label", *by, *weights(frame), *options(rng, metric))
    shown = [one for one in done.result["slices"]["slices"] if one["shown"]]
    return judged(not shown, f"{metric} of {rows} rows: {shown[:1]}")


def planted(rng: np.random.Generator) -> tuple[pd.DataFrame, np.ndarray]:
    """Return rows with a slice that is worse, and the chance of each to be wrong."""
    rows = int(rng.choice([3000, 8000]))
    frame = features(rng, rows)
    bad = (frame["x0"] == 0) & (frame["x1"] == 0)
    return world(rng, 0.3 * bad.to_numpy() + 0.05 * (frame["x2"] == 0).to_numpy(), frame)


@promise(level=0.05, quick=6, full=400)
def intervals_of_slices(rng: np.random.Generator, shell: Shell) -> Tried:
    """Audit --slices: the accuracy of every slice that is listed lies in its interval, all at once."""
    frame, chance = planted(rng)
    asked = options(rng, "accuracy")
    done = shell.run(
        "audit", shell.write(frame), "--label", "label", "--prediction", "decision", *weights(frame), *asked
    )
    if done.status == 2 or not done.result["slices"]["slices"]:
        return NOT_SAID
    (batch,) = pa.Table.from_pandas(frame).combine_chunks().to_batches()
    weight = frame["w"].to_numpy() if "w" in frame else np.ones(len(frame))
    missed = []
    for one in done.result["slices"]["slices"]:
        mask = mask_of(batch, parse_condition(one["where"]))
        truth = 1.0 - float(np.average(chance[mask], weights=weight[mask]))
        # a split leaves the rows of a part, whose mean chance differs a little from that of the slice
        off = 0.02 if "--validation" in asked else 1e-9
        if not one["low"] - off <= truth <= one["high"] + off:
            missed.append(f"{one['where']}: {truth:.4f} not in {one['low']:.4f} to {one['high']:.4f}")
    return judged(not missed, f"{len(frame)} rows, {asked}: {missed[:1]}")


@promise(level=0.05, quick=12, full=400, must_say=0.15)
def limits_on_slices(rng: np.random.Generator, shell: Shell) -> Tried:
    """Audit --slices: PASS or FAIL of a limit on the accuracy of the worst slice."""
    frame, chance = planted(rng)
    frame = frame[["x0", "x1", "x2", "label", "decision", *(["w"] if "w" in frame else [])]]
    weight = frame["w"].to_numpy() if "w" in frame else np.ones(len(frame))
    worst = 1.0
    for names in (["x0"], ["x1"], ["x2"], ["x0", "x1"], ["x0", "x2"], ["x1", "x2"], ["x0", "x1", "x2"]):
        by = (
            frame.assign(wrong=weight * chance, weight=weight, many=1)
            .groupby(names)[["wrong", "weight", "many"]]
            .sum()
        )
        by = by[by["many"] >= 100]
        worst = min(worst, float((1.0 - by["wrong"] / by["weight"]).min()))
    limit = round(worst + float(rng.choice([-0.4, -0.2, -0.05, 0.0, 0.1, 0.3])), 4)
    done = shell.run(
        "audit", shell.write(frame), "--label", "label", "--prediction", "decision", *weights(frame),
        "--slices", "--min-rows", 100, "--check", f"slices.accuracy.min>={limit}",
    )  # fmt: skip
    verdict = done.result["verdict"] if done.result else "undecided"
    if verdict == "undecided":
        return NOT_SAID
    return judged(
        (verdict == "pass") == (worst >= limit), f"{verdict} of {limit} where the worst is {worst:.4f}"
    )
