"""What a guarantee costs: accuracy and gap on rows aside, of repairs with ``--guarantee 0.95`` and without; Markdown.

``python benchmarks/guarantee.py [--seeds 3]`` takes Adult, credit default and COMPAS from the folder of
:mod:`benchmarks.tabular`. A logistic regression is trained on 30 % of the rows, 50 % are repaired (of which 30 % are
held out), 20 % are aside. Slack 0.05 and 0.1; the gap aside is that of chances, and hangs on few rows itself.
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

sys.path.insert(0, str(Path(__file__).resolve().parent))

import fairfix

from tabular import folder

SHARES = (0.3, 0.8)
"""Ends of the rows that train and of those that are repaired."""

SOURCES = {
    "adult": ("income", "sex"),
    "credit_default": ("default", "SEX"),
    "compas": ("two_year_recid", "race"),
}
"""File -> label and protected column."""

ASIDE = ("fnlwgt", "c_charge_desc", "compas_screening_date", "score_text", "decile_score")
"""Columns that are no features: a census weight, texts and dates of many values, the score of another model."""

METHODS: dict[str, dict[str, Any]] = {
    "ramp": {"method": "ramp", "calibrate": "isotonic"},
    "ramp, equal opportunity": {"method": "ramp", "constraint": "equal_opportunity"},
    "logloss": {"method": "logloss", "features": ["score"]},
}


def scored(path: Path, label: str, group: str, seed: int) -> pd.DataFrame:
    """Return rows with the score of a model that others trained."""
    frame = pd.read_parquet(path).drop(columns=[*ASIDE], errors="ignore")
    if path.stem == "compas":
        frame = frame[frame[group].isin(["African-American", "Caucasian"])]
    frame = frame.sample(frac=1.0, random_state=seed).reset_index(drop=True)
    y = frame[label].to_numpy().astype(int)
    X = pd.get_dummies(frame.drop(columns=[label]), dtype=float).fillna(0.0).to_numpy()
    train = round(SHARES[0] * y.size)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X[:train], y[:train])
    out = pd.DataFrame({"id": np.arange(y.size), "group": frame[group].astype(str), "label": y})
    out["score"] = model.predict_proba(X)[:, 1].clip(1e-6, 1 - 1e-6)
    return out[train:].reset_index(drop=True)


def judged(frame: pd.DataFrame, chance: Any, *, positives: bool) -> tuple[float, float]:
    """Return expected accuracy and the gap of the rates of groups."""
    y, chance = frame["label"].to_numpy(), np.asarray(chance, dtype=float)
    right = float(np.where(y == 1, chance, 1 - chance).mean())
    inside = (y == 1) if positives else (y >= 0)
    rates = pd.Series(chance[inside]).groupby(frame["group"].to_numpy()[inside]).mean()
    return right, float(np.ptp(rates))


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, default=3)
    seeds = options.parse_args().seeds
    logging.disable(logging.WARNING)
    place = folder()
    if place is None:
        print("No data: name a folder by FAIRFIX_DATA_DIR.")
        return
    print(
        "| data, rows | method | slack | accuracy without | with | gap aside without | with | bound | inner slack "
        "| proven |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, (label, group) in SOURCES.items():
        if not (place / f"{name}.parquet").exists():
            print(f"{name} is not in the data folder: skipped.")
            continue
        parts = [scored(place / f"{name}.parquet", label, group, seed) for seed in range(seeds)]
        for title, asked in METHODS.items():
            for slack in (0.05, 0.1):
                print(row(name, title, asked, slack, parts), flush=True)


def row(name: str, title: str, asked: dict[str, Any], slack: float, parts: list[pd.DataFrame]) -> str:
    """Return the line of a method, as means over splits."""
    lines = []
    for frame in parts:
        end = round((SHARES[1] - SHARES[0]) / (1 - SHARES[0]) * len(frame))
        mine, aside = frame[:end], frame[end:]
        found: list[float] = []
        for guarantee in (None, 0.95):
            result = fairfix.repair(
                mine, protected="group", id="id", slack=slack, guarantee=guarantee, **asked
            )
            chance = result.repaired.predict(aside)["p_positive"]
            found += judged(aside, chance, positives="equal_opportunity" in asked.values())
        promise = result.content["guarantee"]
        lines.append([*found, promise["bound"], promise["inner_slack"], promise["holds"]])
    one = np.mean(np.array(lines, dtype=float), axis=0)
    return (
        f"| {name}, {end:,} | {title} | {slack:g} | {one[0]:.1%} | {one[2]:.1%} | {one[1]:.3f} | {one[3]:.3f} "
        f"| {one[4]:.3f} | {one[5]:.3f} | {round(one[6] * len(lines))} of {len(lines)} |"
    )


if __name__ == "__main__":
    main()
