"""Promises of rules that go by chances of what a row does not tell: its group, its label, or both."""

from __future__ import annotations

import re
import shlex
from typing import Any

import numpy as np
import pandas as pd
from fairfix.data.data_spec import ColumnRoles, DataSpec

from tests.promises.harness import NOT_SAID, Shell, Tried, judged, parts_of, promise
from tests.promises.of_repairs import RATES, largest_gap

HOW = DataSpec(ColumnRoles(("race",), label="label", id="id"))


def features(rng: np.random.Generator, many: int, groups: int, tells: str) -> pd.DataFrame:
    """Return people whose feature ``x1`` tells nothing of their group, some of it, or all; the label hangs on both."""
    code = np.arange(many) % groups
    means = np.linspace(0.0, {"nothing": 0.0, "half": 1.0, "all": 40.0}[tells], groups)
    x1 = means[code] + rng.normal(size=many)
    x2 = rng.normal(size=many)
    ahead = np.linspace(-1.5, 1.5, groups)[code] if tells != "nothing" else 0.0
    label = rng.random(many) < 1 / (1 + np.exp(-(x2 + 0.5 * (x1 - means[code]) + ahead)))
    return pd.DataFrame(
        {
            "id": [f"p{i}" for i in range(many)],
            "race": [f"g{k}" for k in code],
            "x1": x1,
            "x2": x2,
            "label": label.astype(int),
        }
    )


def log_loss(frame: pd.DataFrame) -> Any:
    """Return the log loss of each decided row."""
    right = np.where(frame["label"] == 1, frame["p_positive"], 1 - frame["p_positive"])
    return -np.log(right)


@promise(
    "a rule without the group needs no protected column, meets its slack on the training rows, and "
    "costs the stated log loss compared with a rule that uses the group",
    level=0.05,
    quick=3,
    full=300,
)
def cost_without_the_group(rng: np.random.Generator, shell: Shell) -> Tried:
    tells = ("nothing", "half", "all")[int(rng.integers(3))]
    groups, seed = int(rng.integers(2, 4)), int(rng.integers(1 << 30))
    frame = features(rng, int(rng.integers(1200, 3000)), groups, tells)
    world = features(np.random.default_rng(seed), 40_000, groups, tells)
    slack = float(rng.choice([0.02, 0.05]))
    asked = tuple(shlex.split(f"--protected race --id id --features x1,x2 --method logloss --slack {slack}"))
    line = ("repair", data := shell.write(frame), *asked)
    done = shell.run(*line, "--group", "unused", "-o", "blind.fairfix")
    aware = shell.run(*line, "-o", "aware.fairfix")
    assert done.status == aware.status == 0, done.err
    if "not_converged" in [one["code"] for one in done.result["messages"]]:
        return NOT_SAID
    fit, _ = parts_of(frame, data, HOW)
    bare = shell.predict("blind.fairfix", shell.write(fit.drop(columns=["race", "label"]), "bare.parquet"))
    gap = largest_gap(fit, bare["p_positive"], ("all",))
    told = [one["text"] for one in done.result["messages"] if one["text"].startswith("without 'race'")]
    low, high = (float(end) for end in re.findall(r"difference \S+ \[(\S+), (\S+)\]", told[0])[0])
    away = shell.write(world, "world.parquet")
    loss, seeing = (log_loss(shell.predict(name, away)) for name in ("blind.fairfix", "aware.fairfix"))
    true, half = float(np.mean(loss - seeing)), 5e-4  # which three decimals round away
    where = f"{tells}, {groups} groups, slack {slack}: true cost {true:.4f}, said {told}, gap {gap:.4f}"
    return judged(gap <= slack + 1e-6 and low - half <= true <= high + half, where)


@promise(level=0.0, quick=3, full=300)
def odds_of_the_rule_that_is_used(rng: np.random.Generator, shell: Shell) -> Tried:
    """A rule that does not know the label meets the slack in rates by label, on the training rows."""
    constraint = ("equal_opportunity", "predictive_equality", "equalized_odds")[int(rng.integers(3))]
    groups, tells = int(rng.integers(2, 4)), ("half", "all")[int(rng.integers(2))]
    frame = features(rng, int(rng.integers(600, 2000)), groups, tells)
    slack, how = float(rng.choice([0.0, 0.05])), ("used", "unused")[int(rng.integers(2))]
    asked = ("--protected", "race", "--id", "id", "--features", "x1,x2", "--method", "logloss")
    told = ("--constraint", constraint, "--slack", slack, "--group", how, "-o", "r.fairfix")
    done = shell.run("repair", data := shell.write(frame), *asked, *told)
    assert done.status == 0, done.err
    if "not_converged" in [one["code"] for one in done.result["messages"]]:
        return NOT_SAID
    fit, _ = parts_of(frame, data, HOW)
    chance = shell.predict("r.fairfix", shell.write(fit.drop(columns="label"), "fit.parquet"))["p_positive"]
    gap = largest_gap(fit, chance, RATES[done.result["criterion"]])
    return judged(gap <= slack + 1e-6, f"{constraint}, {how}, {groups} groups, slack {slack}: gap {gap:.5f}")


@promise(level=0.0, quick=4, full=300)
def gaps_within_strata(rng: np.random.Generator, shell: Shell) -> Tried:
    """A rule of any basis meets the slack between groups, or within each stratum, on the training rows."""
    constraint = ("demographic_parity", "equal_opportunity", "predictive_equality", "equalized_odds")[
        int(rng.integers(4))
    ]
    groups, towns = int(rng.integers(2, 4)), int(rng.integers(1, 5))
    basis = ("plain", "splines", "trees")[int(rng.integers(3))]
    frame = features(rng, int(rng.integers(900, 2500)), groups, ("half", "all")[int(rng.integers(2))])
    frame["town"] = np.array([f"t{k}" for k in range(towns)])[rng.integers(0, towns, len(frame))]
    if rng.random() < 0.3:  # a town of one group, where nothing is compared
        frame.loc[frame["town"] == "t1", "race"] = "g0"
    slack, how = float(rng.choice([0.0, 0.05])), ("used", "unused")[int(rng.integers(2))]
    strata = ("town",) if towns > 1 else ()
    asked = tuple(shlex.split(f"--protected race --id id --features x1,x2 --learner linear(basis={basis})"))
    asked += ("--strata", "town") if strata else ()
    told = tuple(
        shlex.split(f"--method logloss --constraint {constraint} --slack {slack} --group {how} -o r.fairfix")
    )
    done = shell.run("repair", data := shell.write(frame), *asked, *told)
    assert done.status == 0, done.err
    if "not_converged" in [one["code"] for one in done.result["messages"]]:
        return NOT_SAID
    data_spec = DataSpec(ColumnRoles(("race",), label="label", id="id", strata=strata))
    fit, _ = parts_of(frame, data, data_spec)
    fit["p"] = shell.predict("r.fairfix", shell.write(fit.drop(columns="label"), "fit.parquet"))["p_positive"]
    rows = RATES[done.result["criterion"].replace("within_strata", "between_groups")]
    gap = max(largest_gap(own, own["p"], rows) for _, own in fit.groupby("town"))
    return judged(
        gap <= slack + 1e-6, f"{constraint}, {how}, {basis}, {groups} groups, {towns} towns: gap {gap:.5f}"
    )
