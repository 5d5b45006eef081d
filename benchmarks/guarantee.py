"""What a guarantee costs: loss and gap on rows aside, of repairs with ``--guarantee 0.95`` and without; Markdown.

``python benchmarks/guarantee.py --worlds 8 [--only NAME]`` draws people of two, four and eight groups and counts how
often a guarantee is proven and how often it is false. ``python benchmarks/guarantee.py [--seeds 3]`` takes Adult,
credit default and COMPAS from the folder of :mod:`benchmarks.tabular`.

A logistic regression is trained on 30% of the rows, 50% are repaired (of which 30% are
held out), 20% are aside. The gap aside is that of chances, or of the distributions of values, and hangs on few rows
itself. For `robust` one group in ten is recorded wrongly, and one row in five was surveyed; its gap is that of the
true groups.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import warnings
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import ks_2samp
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

sys.path.insert(0, str(Path(__file__).resolve().parent))

import fairfix

from tabular import folder

Floats = npt.NDArray[np.float64]

SHARES = (0.3, 0.8)
"""Ends of the rows that train and of those that are repaired."""

SOURCES = {
    "adult": ("income", ("sex", "race")),
    "credit_default": ("default", ("SEX", "MARRIAGE")),
    "compas": ("two_year_recid", ("race", "sex")),
}
"""File -> label and protected columns; the first alone where a method is not asked for both."""

WRONG, SURVEYED = 0.1, 0.2
"""Share of groups that are recorded wrongly, and of rows whose true group a survey has."""

ASIDE = ("fnlwgt", "c_charge_desc", "compas_screening_date", "score_text", "decile_score")
"""Columns that are no features: a census weight, texts and dates of many values, the score of another model."""


@dataclass(frozen=True)
class Case:
    """A repair whose guarantee has a price."""

    asked: dict[str, Any]
    limits: tuple[float, ...] = (0.05, 0.1)
    limit: str = "slack"
    gap: str = "rates"
    """What is judged aside.

    ``rates``, ``positives`` (rates of label 1), ``ratio``, ``each`` column, ``soft`` (rates by probabilities of
    membership), ``balanced`` (rates by label to everybody's), ``values`` (distance of distributions to everybody's),
    ``true`` groups to everybody; ``membership`` and ``age``: covariances, that with age per standard deviation.
    """


METHODS = {
    "ramp": Case({"method": "ramp", "calibrate": "isotonic"}),
    "ramp, equal opportunity": Case({"method": "ramp", "constraint": "equal_opportunity"}, gap="positives"),
    "ramp, ratio": Case({"method": "ramp"}, (0.8,), "least_ratio", "ratio"),
    "ramp, covariance": Case({"method": "ramp", "constraint": "covariance"}, (0.01, 0.02), gap="membership"),
    "ramp, age": Case({"method": "ramp", "constraint": "covariance[age]"}, (0.02, 0.05), gap="age"),
    "ramp, soft groups": Case({"method": "ramp", "noise": "membership:own=p_own,other=p_other"}, gap="soft"),
    "ramp, each of two columns": Case({"method": "ramp", "constraint": "dp[each]"}, gap="each"),
    "logloss": Case({"method": "logloss", "features": ["score"]}),
    "fair-regression": Case({"method": "fair-regression"}, gap="values"),
    "sensei, equal rates": Case(
        {"method": "sensei", "solver": "equal-rates", "features": ["score"]}, gap="balanced"
    ),
    "robust, class-conditional": Case(
        {"method": "robust", "assume": "class-conditional", "noise_keep": "noisy-given-true"}, gap="true"
    ),
}


def scored(path: Path, label: str, groups: tuple[str, str], seed: int) -> pd.DataFrame:
    """Return rows with the score of a model that others trained."""
    frame = pd.read_parquet(path).drop(columns=[*ASIDE], errors="ignore")
    if path.stem == "compas":
        frame = frame[frame["race"].isin(["African-American", "Caucasian"])]
    frame = frame.sample(frac=1.0, random_state=seed).reset_index(drop=True)
    y = frame[label].to_numpy().astype(int)
    train = round(SHARES[0] * y.size)
    probability = learned(frame.drop(columns=[label]), y, train)
    first, second = (frame[name].astype(str) for name in groups)
    out = pd.DataFrame({"id": np.arange(y.size), "group": first, "second": second, "label": y})
    out["age"] = frame[next(name for name in frame if str(name).lower() == "age")].astype(float)
    rng = np.random.default_rng(seed)
    other = rng.permutation(out["group"].to_numpy())
    out["recorded"] = np.where(rng.random(y.size) < WRONG, other, out["group"])
    out["score"] = probability.clip(1e-6, 1 - 1e-6)
    out["p_own"] = learned(frame.drop(columns=[label, *groups]), (first == first.min()).to_numpy(), train)
    out["p_other"] = 1.0 - out["p_own"]
    return out[train:].reset_index(drop=True)


def learned(features: pd.DataFrame, y: npt.NDArray[Any], train: int) -> Floats:
    """Return the probabilities of a logistic regression that the first rows train."""
    X = pd.get_dummies(features, dtype=float).fillna(0.0).to_numpy()
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X[:train], y[:train])
    return np.asarray(model.predict_proba(X)[:, 1])


def lost(frame: pd.DataFrame, chance: Floats, gap: str) -> float:
    """Return the share of wrong decisions, the mean over labels if balanced, or the square loss of values."""
    y = frame["label"].to_numpy()
    if gap == "values":
        return float(np.mean((y - chance) ** 2))
    wrong = np.where(y == 1, 1 - chance, chance)
    return float(rates(wrong, y).mean() if gap == "balanced" else wrong.mean())


def gap_of(frame: pd.DataFrame, chance: Floats, gap: str) -> float:
    """Return the gap of the groups, or the ratio of their rates."""
    group = frame["group"].to_numpy()
    if gap == "each":
        return max(float(np.ptp(rates(chance, frame[one].to_numpy()))) for one in ("group", "second"))
    if gap == "membership":
        return max(abs(covariance(chance, group == one)) for one in np.unique(group))
    if gap == "soft":
        first, second = (np.average(chance, weights=frame[name]) for name in ("p_own", "p_other"))
        return abs(float(first - second))
    if gap == "age":
        age = frame["age"].clip(*frame["age"].quantile([0.01, 0.99]))
        return abs(covariance(chance, age / age.std()))
    if gap == "values":
        return max(float(ks_2samp(chance[group == one], chance).statistic) for one in np.unique(group))
    y = frame["label"].to_numpy()
    if gap in {"balanced", "true"}:
        parts = [y == 0, y == 1] if gap == "balanced" else [y > -1]
        return max(float(np.abs(rates(chance[one], group[one]) - chance[one].mean()).max()) for one in parts)
    inside = y == 1 if gap == "positives" else y > -1
    found = rates(chance[inside], group[inside])
    return float(found.min() / found.max() if gap == "ratio" else np.ptp(found))


def covariance(chance: Floats, number: npt.NDArray[Any]) -> float:
    """Return the covariance of chances and numbers."""
    return float(np.cov(chance, number)[0, 1])


def rates(chance: Floats, group: npt.NDArray[Any]) -> Floats:
    """Return the mean of each group."""
    return np.asarray(pd.Series(chance).groupby(group).mean(), dtype=float)


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--only", default="", help="methods whose name contains this")
    options.add_argument(
        "--worlds", type=int, default=0, help="count what is proven in so many worlds of each kind"
    )
    given = options.parse_args()
    logging.disable(logging.WARNING)
    if given.worlds:
        shares(given.worlds, given.only)
        return
    place = folder()
    if place is None:
        print("No data: name a folder by FAIRFIX_DATA_DIR.")
        return
    heads = (
        "data, rows",
        "method",
        "limit",
        "lost without",
        "with",
        "gap aside without",
        "with",
        "bound",
        "inner limit",
    )
    print("|", " | ".join(heads), "| proven |")
    print("|---" * (len(heads) + 1), end="|\n")
    for name, (label, groups) in SOURCES.items():
        if not (place / f"{name}.parquet").exists():
            print(f"{name} is not in the data folder: skipped.")
            continue
        parts = [scored(place / f"{name}.parquet", label, groups, seed) for seed in range(given.seeds)]
        for title, case in METHODS.items():
            for limit in case.limits if given.only in title else ():
                print(row(name, title, case, limit, parts), flush=True)


def row(name: str, title: str, case: Case, limit: float, parts: list[pd.DataFrame]) -> str:
    """Return the line of a method, as means over splits."""
    lines = []
    for frame in parts:
        end = round((SHARES[1] - SHARES[0]) / (1 - SHARES[0]) * len(frame))
        mine, aside = frame[:end], frame[end:]
        found: list[float] = []
        for guarantee in (None, 0.95):
            result = repaired(mine, case, limit, guarantee)
            column = "prediction" if case.gap == "values" else "p_positive"
            chance = np.asarray(result.repaired.predict(aside)[column], dtype=float)
            found += [lost(aside, chance, case.gap), gap_of(aside, chance, case.gap)]
        promise = result.to_dict()["guarantee"]
        lines.append([*found, promise["bound"], promise[f"inner_{case.limit}"], promise["holds"]])
    one = np.mean(np.array(lines, dtype=float), axis=0)
    digits = "{:.4f}" if case.gap == "values" else "{:.1%}"
    return (
        f"| {name}, {end:,} | {title} | {limit:g} | {digits.format(one[0])} | {digits.format(one[2])} "
        f"| {one[1]:.3f} | {one[3]:.3f} | {one[4]:.3f} | {one[5]:.3f} | {round(one[6] * len(lines))} of {len(lines)} |"
    )


def repaired(mine: pd.DataFrame, case: Case, limit: float, guarantee: float | None) -> Any:
    """Return the result of a repair; that of `robust` sees the recorded group and a survey."""
    wanted = {"slack": limit} if case.limit == "slack" else {"constraint": f"dp.ratio>={limit}"}
    asked: dict[str, Any] = {**case.asked, **wanted, "guarantee": guarantee, "id": "id"}
    if case.gap != "true":
        asked["protected"] = {"each": ["group", "second"], "age": None, "soft": None}.get(case.gap, "group")
        return fairfix.repair(mine.drop(columns="recorded"), label="label", score="score", **asked)
    told = mine.sample(frac=SURVEYED, random_state=0)
    table = told.groupby(["group", "recorded"]).size().rename("count").reset_index()
    with tempfile.TemporaryDirectory() as place:
        noise = Path(place) / "noise.csv"
        table.rename(columns={"group": "true", "recorded": "noisy"}).to_csv(noise, index=False)
        seen = mine.drop(columns=["group", "second"])
        return fairfix.repair(seen, protected="recorded", noise=noise, label="label", score="score", **asked)


KINDS: dict[str, dict[str, Any]] = {
    "parity 0.1": {"method": "ramp", "slack": 0.1},
    "equalized odds 0.15": {"method": "ramp", "constraint": "equalized_odds", "slack": 0.15},
    "ratio 0.8": {"method": "ramp", "constraint": "dp.ratio>=0.8"},
    "log loss 0.1": {"method": "logloss", "features": ["x"], "slack": 0.1},
    "distributions 0.1": {"method": "fair-regression", "group": "used", "slack": 0.1},
    "distributions 0.15, learned": {
        "method": "fair-regression",
        "group": "used",
        "features": ["x", "x2"],
        "slack": 0.15,
    },
}
"""What is asked of the people of :func:`drawn`."""

FRESH, TOLD = 100_000, 0.004
"""Fresh people whose gap is taken for that of the population, and how far it may be off."""


def drawn(rng: np.random.Generator, rows: int, groups: int) -> pd.DataFrame:
    """Return people of groups whose scores differ, the first group twice as large as each of the others."""
    share = np.where(np.arange(groups) == 0, 2.0, 1.0)
    group = rng.choice(groups, rows, p=share / share.sum())
    z = rng.normal(size=rows) + np.linspace(0.2, -0.8, groups)[group]
    score = 1 / (1 + np.exp(-z))
    return pd.DataFrame(
        {
            "id": np.arange(rows),
            "group": [f"g{k}" for k in group],
            "label": (rng.random(rows) < score).astype(int),
            "score": score.round(4).clip(1e-4, 1 - 1e-4),
            "x": z + rng.normal(size=rows) / 2,
            "x2": rng.normal(size=rows),
        }
    )


def shares(worlds: int, only: str) -> None:
    """Print how often guarantees of worlds are proven, how often false, and the mean bound."""
    print("| asked | groups | rows | proven | false | mean bound |")
    print("|---|---|---|---|---|---|")
    for title, asked in KINDS.items():
        for groups, rows in product((2, 4, 8), (1000, 4000, 20_000)) if only in title else ():
            told = np.array([world(asked, groups, rows, seed) for seed in range(worlds)])
            proven, false = told[:, :2].sum(axis=0).astype(int)
            print(
                f"| {title} | {groups} | {rows:,} | {proven} of {worlds} | {false} | {told[:, 2].mean():.3f} |",
                flush=True,
            )


def world(asked: dict[str, Any], groups: int, rows: int, seed: int) -> tuple[bool, bool, float]:
    """Return whether the guarantee of one world is proven, whether it is false, and its bound."""
    rng = np.random.default_rng(1000 + seed)
    mine, fresh = drawn(rng, rows, groups), drawn(rng, FRESH, groups)
    columns = {"protected": "group", "label": "label", "score": "score", "id": "id"}
    result = fairfix.repair(mine, guarantee=0.95, **columns, **asked)
    given, told = result.repaired.predict(fresh), result.to_dict()["guarantee"]
    chance = np.asarray(given["p_positive" if "p_positive" in given else "prediction"], dtype=float)
    ratio = "ratio" in asked.get("constraint", "")
    if asked.get("constraint") and not ratio:
        own = [(fresh["label"] == label).to_numpy() for label in (0, 1)]
        gap = max(float(np.ptp(rates(chance[one], fresh["group"].to_numpy()[one]))) for one in own)
    else:
        what = "ratio" if ratio else "values" if asked["method"] == "fair-regression" else "rates"
        gap = gap_of(fresh, chance, what)
    false = gap < told["bound"] - TOLD if ratio else gap > told["bound"] + TOLD
    return told["holds"], false, told["bound"]


if __name__ == "__main__":
    main()
