"""Promises about growing data that are looked at again and again."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tests.promises.harness import NOT_SAID, Shell, Tried, judged, promise

LOOKS = 7


@promise(
    "audit --always-valid: the intervals of a gap, a ratio, the smallest rate and the largest loss, at every look at "
    "growing data at once",
    level=0.05,
    quick=3,
    full=300,
)
def all_looks(rng: np.random.Generator, shell: Shell) -> Tried:
    """Each number is said once for all looks, and false if its interval misses the population value at any look."""
    groups = int(rng.integers(2, 4))
    rates, shares = rng.choice([0.1, 0.3, 0.5], groups), rng.dirichlet(np.full(groups, 3.0))
    spread = rng.choice([2.0, 10.0])
    rows = 4000
    group = rng.choice(groups, rows, p=shares)
    group[: 2 * groups] = np.repeat(np.arange(groups), 2)
    score = rng.beta(spread * rates[group], spread * (1 - rates[group]))
    frame = pd.DataFrame(
        {
            "group": group.astype(str),
            "score": score,
            "label": (rng.random(rows) < score).astype(int),
            "prediction": (rng.random(rows) < rates[group]).astype(int),
        }
    )
    losses = rates * (1 - rates) * spread / (spread + 1)  # E[s (1 - s)] of a beta distribution
    truth = {
        "selection_rate.difference.between_groups": rates.max() - rates.min(),
        "selection_rate.ratio.between_groups": rates.min() / rates.max(),
        "true_positive_rate.min": rates.min(),  # decisions do not look at labels
        "square_loss.max": losses.max(),
    }
    missed = dict.fromkeys(truth, False)
    for many in np.unique(np.geomspace(60, rows, LOOKS).astype(int)):
        words = ["--protected", "group", "--label", "label", "--score", "score", "--prediction", "prediction"]
        done = shell.run("audit", shell.write(frame.iloc[:many]), *words, "--always-valid")
        assert done.status == 0, done.err
        made = {one["id"]: one for one in done.result["attributes"][0]["comparisons"]}
        for name, value in truth.items():
            low, high = made[name]["low"], made[name]["high"]
            missed[name] |= not low - 1e-12 <= value <= high + 1e-12
    return sum((judged(not wrong, f"{name} {rates}") for name, wrong in missed.items()), Tried(0))


@promise(level=0.05, quick=2, full=300, must_say=0.1)
def changes_of_gaps(rng: np.random.Generator, shell: Shell) -> Tried:
    """Audit --state: a gap between two groups has changed since a batch, said at any of the looks.

    Rates of both groups move together, and in half of the worlds one of them moves on at some batch.
    """
    looks, rows, groups = 8, 1500, int(rng.integers(2, 4))
    since = int(rng.integers(3, looks)) if rng.random() < 0.5 else looks + 1
    for look in range(1, looks + 1):
        group = rng.integers(0, groups, rows)
        level = 0.3 + 0.1 * np.sin(look)  # of all groups alike
        rate = level + 0.05 * group + (0.3 * (group == 0) if look >= since else 0.0)
        frame = pd.DataFrame(
            {
                "id": np.arange(rows) + rows * look,
                "group": group.astype(str),
                "prediction": (rng.random(rows) < rate).astype(int),
            }
        )
        data = shell.write(frame, f"{look}.parquet")
        words = ("--protected", "group", "--prediction", "prediction", "--id", "id", "--state", "gate.counts")
        done = shell.run("audit", data, *words)
        assert done.status == 0, done.err
        if drifts := done.result["state"]["drifts"]:
            # the batch may be off by some, but not before the change can be seen
            return judged(
                look >= since and "0" in drifts[0]["groups"], f"{since} at look {look}: {drifts[0]}"
            )
    return NOT_SAID


GRID = np.round(np.linspace(0.025, 0.975, 20), 3)
"""Scores of people whose repair is looked at again."""


@promise(level=0.05, quick=2, full=300, must_say=0.3)
def renewed_guarantees(rng: np.random.Generator, shell: Shell) -> Tried:
    """Audit --of: a guarantee holds, or no longer holds since a batch, said at any of the looks.

    The gap of the decisions is just within the limit or just above it, so one of the two is false in each world.

    Group b has all scores alike, and group a has a mixture of low and high ones, of the weight that makes that gap. In
    some worlds the gap is clear, so that something is said.
    """
    limit, looks, rows = float(rng.choice([0.1, 0.2])), 6, int(rng.choice([200, 600]))
    clear = rng.random() < 0.5
    weights = {"b": np.full(GRID.size, 1 / GRID.size)}
    gap = limit + float(rng.choice([-1e-9, 1e-9]) if not clear else rng.choice([-limit, 0.25]))

    def people(many: int, first: int) -> pd.DataFrame:
        group = rng.choice(["a", "b"], many)
        score = np.array([rng.choice(GRID, p=weights[one]) for one in group])
        label = (rng.random(many) < score).astype(int)
        ids = np.arange(many) + first
        return pd.DataFrame({"id": ids, "group": group, "score": score, "label": label})

    weights["a"] = weights["b"]
    data = shell.write(people(4000, 0), "fit.parquet")
    words = ("--method", "ramp", "--protected", "group", "--id", "id", "--slack", limit, "--guarantee", 0.95)
    done = shell.run("repair", data, *words, "-o", "r.fairfix")
    assert done.status in (0, 3), done.err
    if not done.result["guarantee"]["holds"]:
        return NOT_SAID
    grid = pd.DataFrame(
        {"id": np.arange(2 * GRID.size), "group": np.repeat(["a", "b"], GRID.size), "score": np.tile(GRID, 2)}
    )
    chance = shell.predict("r.fairfix", shell.write(grid, "grid.parquet"))["p_positive"].to_numpy()
    chance_a, chance_b = chance[: GRID.size], chance[GRID.size :]
    # of the highest scores, the part that takes the rate of group a from that of the lowest to what is wanted
    wanted = float(weights["b"] @ chance_b) + gap
    mixture = (wanted - chance_a[0]) / (chance_a[-1] - chance_a[0])
    weights["a"] = np.zeros(GRID.size)
    weights["a"][[0, -1]] = 1 - mixture, mixture
    out = NOT_SAID
    for look in range(1, looks + 1):
        decided = shell.predict("r.fairfix", shell.write(people(rows, 10_000 * look)))
        found = shell.run(
            "audit", shell.write(decided, f"{look}.parquet"), "--of", "r.fairfix", "--state", "g.counts"
        )
        assert found.status in (0, 1, 3), found.err
        (check,) = found.result["checks"]
        said = {"pass": gap <= limit, "fail": gap > limit}.get(check["verdict"])
        if said is not None:
            out = judged(said, f"{gap} of {limit} at look {look}: {check['verdict']} {check.get('since')}")
        if said is False:
            break
    return out
