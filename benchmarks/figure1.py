"""Figure 1 of the ramp paper on Adult: parity by sex, and what becomes of it inside each race group.

The picture goes to docs/ when matplotlib is installed; the table is printed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.scan import read_table
from fairfix.methods.problem import RepairProblem
from fairfix.methods.ramp import Ramp
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

DOCS = Path(__file__).resolve().parents[1] / "docs"

RULES = {"before": None, "sex": ("sex",), "crossed": ("race", "sex")}
"""Name -> protected columns that the repair is given."""

TITLES = {"before": "score >= 0.5", "sex": "parity by sex", "crossed": "parity by race x sex"}


def scored(path: Path) -> pa.Table:
    """Return the second half of Adult, scored by a logistic regression that was trained on the first."""
    frame = pd.read_parquet(path)
    features = pd.get_dummies(frame.drop(columns=["income", "fnlwgt"]), dummy_na=True, dtype=float).to_numpy()
    first = np.random.default_rng(0).random(len(frame)) < 0.5
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
    model.fit(features[first], frame["income"][first])
    held = frame.loc[~first, ["race", "sex", "income"]].rename(columns={"income": "label"})
    held["score"] = model.predict_proba(features[~first])[:, 1]
    return pa.Table.from_pandas(held, preserve_index=False)


def gaps_by_race(path: Path) -> dict[str, dict[str, float]]:
    """Return rule -> race (and ``everybody``) -> difference of the selection rates of the sexes."""
    data = scored(path)
    race, sex = (np.array(data[name].to_pylist()) for name in ("race", "sex"))
    out = {}
    for rule, protected in RULES.items():
        chance = (data["score"].to_numpy() >= 0.5).astype(float)
        if protected is not None:
            table = read_table(
                data, DataSpec(ColumnRoles(protected, label="label", score="score"), thresholds=(0.5,))
            )
            predictor = Ramp().fit(RepairProblem(table), rng=np.random.default_rng(0))
            chance = predictor.predict(table)

        def gap(inside: np.ndarray, chance: np.ndarray = chance) -> float:
            return abs(
                float(chance[inside & (sex == "Male")].mean() - chance[inside & (sex == "Female")].mean())
            )

        out[rule] = {name: gap(race == name) for name in sorted(set(race))}
        out[rule]["everybody"] = gap(np.ones(race.size, dtype=bool))
    return out


def picture(found: dict[str, dict[str, float]], path: Path) -> None:
    """Draw the gaps as bars, told apart by hatching as well as by colour."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams |= {"svg.hashsalt": "fairfix", "svg.fonttype": "none"}
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
    places = np.arange(len(found["before"]))
    for i, (rule, hatch, colour) in enumerate(
        zip(found, ("", "//", ".."), ("#bbbbbb", "#4477aa", "#ee6677"), strict=True)
    ):
        values = np.array(list(found[rule].values()))
        bars = axes.bar(
            places + 0.27 * (i - 1),
            values,
            0.25,
            label=TITLES[rule],
            hatch=hatch,
            color=colour,
            edgecolor="black",
        )
        axes.bar_label(bars, fmt="%.2f", fontsize=6, padding=1)
    axes.set_xticks(places, [name.replace("-", "\n") for name in found["before"]])
    axes.set_ylabel("gap of selection rates\nbetween the sexes")
    axes.set_title("Adult: parity by sex alone, and inside race groups")
    axes.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Print the table and draw the picture."""
    from tabular import folder

    print("## Parity by sex inside race groups (Figure 1 of the paper)\n")
    place = folder()
    if place is None or not (place / "adult.parquet").exists():
        print("adult.parquet is not in the data folder: skipped.")
        return
    found = gaps_by_race(place / "adult.parquet")
    print("Adult, logistic regression, training rows: difference of the selection rates of the sexes.\n")
    print("| group | " + " | ".join(TITLES.values()) + " |")
    print("|---|" + "---|" * len(TITLES))
    for name in found["before"]:
        print(f"| {name} | " + " | ".join(f"{found[rule][name]:.4f}" for rule in RULES) + " |")
    worse = [n for n, g in found["sex"].items() if g > found["before"][n]]
    print(f"\nParity by sex alone makes it worse in: {', '.join(worse) or 'no group'}.")
    try:
        picture(found, DOCS / "figure1.svg")
    except ImportError:
        print("matplotlib is not installed: no picture", file=sys.stderr)


if __name__ == "__main__":
    main()
