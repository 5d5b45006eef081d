"""Promises of an audit of many classes: the gaps of all classes, their means, and how many classes differ at least."""

from __future__ import annotations

import re
import shlex

import numpy as np
import pandas as pd

from tests.promises.harness import Shell, Tried, judged, promise
from tests.results import texts_of

TPR = "true_positive_rate.difference"


@promise(
    "95% intervals of the gap of every class and of the class gaps, all at once; the least number of "
    "classes that differ",
    level=0.05,
    quick=22,
    full=2000,
    must_say=1.0,
)
def gaps_of_classes(rng: np.random.Generator, shell: Shell) -> Tried:
    """Few and many classes, common and rare, in groups of any size; of some classes the groups are alike."""
    classes, groups = int(rng.integers(3, 9)), int(rng.integers(2, 4))
    rows = int(np.exp(rng.uniform(np.log(1000), np.log(8000))))
    shares = rng.dirichlet(np.full(classes, 3.0))
    rate = rng.uniform(0.3, 0.95, (classes, 1)) * np.ones((1, groups))
    apart = rng.random(classes) < rng.choice([0.0, 0.5])
    rate[apart] = np.clip(rate[apart] + rng.uniform(-0.2, 0.2, (apart.sum(), groups)), 0.05, 0.99)
    truth, group = (
        rng.choice(classes, rows, p=shares),
        rng.choice(groups, rows, p=rng.dirichlet(np.full(groups, 5.0))),
    )
    right = rng.random(rows) < rate[truth, group]
    wrong = (truth + rng.integers(1, classes, rows)) % classes
    frame = pd.DataFrame(
        {"label": truth, "prediction": np.where(right, truth, wrong), "race": [f"g{i}" for i in group]}
    )
    asked = ("--protected", "race", "--task", "multiclass", "--config", "none", "--format", "text")
    ran = shell.run("audit", shell.write(frame), *asked)
    assert ran.status == 0, ran.err
    true = np.ptp(rate, axis=1)
    (block,) = ran.result["attributes"]
    by_id = {one["id"]: one for one in block["comparisons"]}
    numbers = {
        f"{TPR}.rms_of_classes": (by_id[f"{TPR}.rms_of_classes"], float(np.sqrt(np.mean(true**2)))),
        f"{TPR}.mean_of_classes": (by_id[f"{TPR}.mean_of_classes"], float(np.mean(true))),
    }
    for one in ran.result["classes"]:
        gap = next(c for c in one["attributes"][0]["comparisons"] if c["id"] == f"{TPR}.between_groups")
        numbers[f"class {one['class']}"] = gap, float(true[int(one["class"])])
    missed = [
        name
        for name, (one, number) in numbers.items()
        if not (one["low"] or 0.0) - 1e-12 <= number <= (1.0 if one["high"] is None else one["high"]) + 1e-12
    ]
    least = re.search(r"in at least (\d+) of", " ".join(ran.out.split()))
    apart = any((one["low"] or 0.0) > 0 for name, (one, _) in numbers.items() if name.startswith("class "))
    assert bool(least) == apart  # where no class is sure to differ, there is nothing to say
    missed += [least[0]] * (int(least[1]) > int((true > 0).sum())) if least else []
    return judged(not missed, f"{missed}, {classes} classes, {groups} groups, {rows} rows")


@promise(level=0.05, quick=8, full=2000, must_say=1.0)
def changes_of_classes(rng: np.random.Generator, shell: Shell) -> Tried:
    """95% intervals of the changes of all classes since a saved audit, all at once; no alarm if nothing changed."""
    classes, change = int(rng.integers(2, 7)), float(rng.choice([0.0, 0.2]))
    old = rng.uniform(0.4, 0.9, (classes, 2))
    new = np.clip(old + change * rng.uniform(-1, 1, old.shape), 0.05, 0.99)
    shares, paths = rng.dirichlet(np.full(classes, 5.0)), []
    for name, rate in (("old", old), ("new", new)):
        rows = int(np.exp(rng.uniform(np.log(1000), np.log(6000))))
        truth, group = rng.choice(classes, rows, p=shares), rng.choice(2, rows)
        wrong = (truth + rng.integers(1, classes, rows)) % classes
        told = np.where(rng.random(rows) < rate[truth, group], truth, wrong)
        frame = pd.DataFrame({"label": truth, "prediction": told, "race": [f"g{i}" for i in group]})
        paths.append(shell.write(frame, f"{name}.parquet"))
    asked = ("--protected", "race", "--task", "multiclass", "--config", "none")
    kept = shell.folder / "kept.json"
    shell.run("audit", paths[0], *asked, "--out", f"json={kept}")
    ran = shell.run("audit", paths[1], *asked, "--baseline", kept, "--check", "tpr.difference.change<=0")
    gaps = [np.abs(np.diff(rate, axis=1)).ravel() for rate in (old, new)]
    missed = []
    for one in ran.result["baseline"]["changes"]:
        if not one["comparison"].startswith(TPR) or "to_" in one["comparison"]:
            continue
        how = (
            np.sqrt(np.mean(np.square(gaps), axis=1)) if "rms" in one["comparison"] else np.mean(gaps, axis=1)
        )
        was, now = how if "class" not in one else (gap[int(one["class"])] for gap in gaps)
        missed += [] if one["low"] - 1e-12 <= now - was <= one["high"] + 1e-12 else [one["id"]]
    alarm = change == 0 and ran.status == 1
    return judged(not missed and not alarm, f"{missed}, {classes} classes, change {change}, alarm {alarm}")


@promise(
    "rho auto: at most this fraction of predicted classes changes; 95% intervals of flips and "
    "accuracy, before and after",
    level=0.15,
    quick=2,
    full=200,
)
def what_a_repair_of_classes_says(rng: np.random.Generator, shell: Shell) -> Tried:
    """The note, the interval of the share that changes and that of the accuracy: three sentences at 0.05 each."""
    classes, groups, columns = int(rng.integers(3, 6)), int(rng.integers(2, 4)), int(rng.integers(1, 5))
    units, coef = 10.0 ** rng.uniform(-4, 4, columns), rng.normal(size=(columns, classes))
    bonus, shift = rng.normal(size=(groups, classes)) * rng.choice([0.2, 1.0]), rng.normal(size=columns)

    def people(many: int) -> pd.DataFrame:
        group, Z = np.arange(many) % groups, rng.normal(size=(many, columns))
        job = (Z @ coef + bonus[group] + rng.gumbel(size=(many, classes))).argmax(axis=1)
        numbers = {f"x{j}": (Z[:, j] + shift[j]) * units[j] for j in range(columns)}
        return pd.DataFrame({**numbers, "sex": [f"g{k}" for k in group], "job": job})

    made, slack = str(shell.folder / "made.fairfix"), float(rng.choice([0.02, 0.05, 0.2]))
    frame, whole = people(int(np.exp(rng.uniform(np.log(300), np.log(4000))))), people(20_000)
    asked = tuple(
        shlex.split(f"--method sensei --solver regularizer --task multiclass --label job -o {made}")
    )
    names = ",".join(name for name in frame if name not in ("sex", "job"))
    more = ("--protected", "sex", "--group", "used", "--features", names, "--slack", slack)
    done = shell.run("repair", shell.write(frame), *asked, *more)
    assert done.status == 0, done.err
    predicted = [
        shell.predict(made, shell.write(whole.assign(sex=level), "whole.parquet"))["prediction"].to_numpy()
        for level in sorted(whole["sex"].unique())
    ]
    flips = float((np.stack(predicted) != predicted[0]).any(axis=0).mean())
    right = float(
        (shell.predict(made, shell.write(whole, "whole.parquet"))["prediction"] == whole["job"]).mean()
    )
    rows = {one["name"]: one["after"] for one in done.result["proof"]["holdout"]["table"]}
    ends = rows["decision_flips.under_flips [sex]"], rows["accuracy"]
    # the population is a sample itself: four of its standard errors
    room = [4 * np.sqrt(max(p * (1 - p), 1e-9) / len(whole)) for p in (flips, right)]
    missed = [
        name
        for name, end, p, wide in zip(("flips", "accuracy"), ends, (flips, right), room, strict=True)
        if not end["low"] - wide <= p <= end["high"] + wide
    ]
    note = re.search(r"at most ([0-9.]+) of predicted classes", " ".join(texts_of(done.result, "note")))
    missed += ["note"] if note and flips > float(note[1]) + room[0] + 5e-5 else []
    exact = "no decision changes with flips, by the form" in " ".join(texts_of(done.result, "note"))
    missed += ["exact"] if exact and flips > 0 else []
    return judged(
        not missed, f"{missed}, {classes} classes, {groups} groups, {len(frame)} rows, slack {slack}"
    )
