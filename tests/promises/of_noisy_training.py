"""Promises of rules that are trained behind noisy groups and may look at the recorded one (``--solver dro|soft``).

A world is a population in which who is recorded as what hangs on the true group, the label and the features, as badly
as drawn. The table is a survey of it. The shipped rule is applied to many new rows, whose true groups are known.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from tests.promises.harness import NOT_SAID, Shell, Tried, judged, promise

RATES = {
    "demographic_parity": "selection_rate",
    "equal_opportunity": "true_positive_rate",
    "equalized_odds": "equalized_odds",
}
JUDGED = 40_000


def people(rng: np.random.Generator, rows: int, world: dict[str, np.ndarray]) -> pd.DataFrame:
    """Draw rows of a world."""
    groups, columns = world["means"].shape
    true = rng.choice(groups, rows, p=world["shares"])
    x = world["means"][true] + rng.normal(0, 1, (rows, columns))
    label = rng.random(rows) < 1 / (1 + np.exp(-(x @ world["label"] + world["lift"][true])))
    rank = world["by_label"][0] * label + world["by_x"][0] * (x[:, 0] > 0)
    moved = rng.random(rows) < world["noise"][true] * np.where(rank > 0, 1.6, 0.4)
    recorded = np.where(moved, (true + 1 + rng.integers(0, max(groups - 1, 1), rows)) % groups, true)
    frame = pd.DataFrame({f"x{i}": x[:, i] * world["units"][i] for i in range(columns)})
    frame["kind"] = np.array(["p", "q", "r"])[np.digitize(x[:, 0], [-1, 1])]
    frame["label"], frame["recorded"], frame["true"] = label * 1, [f"g{k}" for k in recorded], true
    return frame


def gap(frame: pd.DataFrame, chance: np.ndarray, rate: str) -> float:
    """Return the largest difference of a rate between two true groups."""
    parts = {
        "selection_rate": [frame["label"] >= 0],
        "true_positive_rate": [frame["label"] == 1],
        "equalized_odds": [frame["label"] == 1, frame["label"] == 0],
    }
    rates = [frame[own].assign(p=chance[own]).groupby("true")["p"].mean() for own in parts[rate]]
    return float(max(one.max() - one.min() for one in rates))


@promise(level=0.05, quick=2, full=300)
def trained_with_the_recorded_group(rng: np.random.Generator, shell: Shell) -> Tried:
    """Upper limit of the gap of true groups, of a rule trained with the recorded group as a feature."""
    groups, columns = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    world = {
        "shares": rng.dirichlet(np.full(groups, 3.0)) * 0.7 + 0.3 / groups,
        "means": rng.normal(0, 0.5, (groups, columns)),
        "label": rng.normal(0, 1, columns),
        "lift": rng.normal(0, 0.7, groups),
        "noise": rng.uniform(0, 0.3, groups),
        "by_label": rng.choice([-1.0, 0.0, 1.0], 1),
        "by_x": rng.choice([-1.0, 0.0, 1.0], 1),
        "units": 10.0 ** rng.integers(-6, 7, columns),
    }
    frame = people(rng, int(np.exp(rng.uniform(np.log(800), np.log(4000)))), world)
    survey = people(rng, 5000, world)
    by_label = bool(rng.random() < 0.7)
    keys = ["true", "recorded", *(["label"] if by_label else [])]
    table = survey.groupby(keys).size().reset_index(name="count").rename(columns={"recorded": "noisy"})
    table["true"] = [f"g{k}" for k in table["true"]]
    constraint = str(rng.choice(list(RATES)))
    solver = str(rng.choice(["soft", "dro"], p=[0.8, 0.2]))
    more = ["--assume", "none"] if by_label and solver == "soft" else []
    slack, limit = float(rng.choice([0.0, 0.05, 0.1, 0.3])), float(rng.uniform(0.05, 0.6))
    rate, names = RATES[constraint], ",".join([*(f"x{i}" for i in range(columns)), "kind"])
    check = f"{rate}.difference.true_groups<={limit!r}"
    done = shell.did(
        *["repair", shell.write(frame.drop(columns="true")), "--method", "robust", "--solver", solver, *more],
        *["--protected", "recorded", "--group", "used", "--features", names, "--label", "label"],
        *["--noise", shell.write(table, "noise.csv"), "--constraint", constraint, "--slack", slack],
        *["-o", "rule.fairfix", "--check", check],
    )
    new = people(rng, JUDGED, world)
    chance = shell.predict("rule.fairfix", shell.write(new.drop(columns="true"), "new.parquet"))["p_positive"]
    truth = gap(new, chance.to_numpy(), rate)
    room = 3 / np.sqrt(
        JUDGED * world["shares"].min() * new["label"].mean()
    )  # the sampling error of the truth
    told = f"{solver} {more} {constraint}: {truth:.3f}, {done.result['checks']}"
    rows = done.result["proof"]["holdout"]["table"]
    found = next(one["after"] for one in rows if one["name"].startswith(f"{rate}.difference.true_groups "))
    out = NOT_SAID if found["high"] is None else judged(truth <= found["high"] + room, f"{found}: {told}")
    if done.result["checks"][0]["verdict"] == "pass":
        out += judged(truth <= limit + room, f"pass at {limit:.3f}: {told}")
    return out
