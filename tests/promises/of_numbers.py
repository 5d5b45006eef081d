"""Promises of repairs by a protected number, such as age.

A world draws people whose score hangs on a number with light or heavy tails, in odd units, along a straight line or
not. The truth of a rule is its covariance with the number among very many fresh people, who are decided by the file
that was written; it is written down here by itself, from the ends and the deviation that the report names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import cvxpy
import numpy as np
import pandas as pd
from fairfix.data.data_spec import ColumnRoles, DataSpec

from tests.promises.harness import NOT_SAID, Shell, Tried, judged, parts_of, promise

Floats = np.ndarray[Any, np.dtype[np.float64]]

NUMBERS: Mapping[str, Callable[[np.random.Generator, int], Floats]] = {
    "age": lambda rng, rows: rng.integers(18, 90, rows).astype(np.float64),
    "days": lambda rng, rows: 365.25 * rng.integers(18, 90, rows),
    "income": lambda rng, rows: rng.lognormal(10, 1.5, rows) + 1e6,
    "cauchy": lambda rng, rows: rng.standard_cauchy(rows),
    "gains": lambda rng, rows: np.where(rng.random(rows) < 0.9, 0.0, rng.lognormal(8, 1, rows)),
    "rare": lambda rng, rows: (rng.random(rows) < 0.03) * 1.0,
    "even": lambda rng, rows: rng.normal(size=rows) / 1e9,
}
"""Ways in which numbers are spread, by what may be spread so."""


def people(rng: np.random.Generator, kind: str, tied: float, bent: float, rows: int) -> pd.DataFrame:
    """Return scored people; scores rise with the rank of the number where ``tied``, and with its square if ``bent``."""
    x = NUMBERS[kind](rng, rows)
    rank = np.argsort(np.argsort(x + 0.0)) / rows - 0.5
    if kind in ("rare", "gains"):
        rank = (x > 0) - 0.5
    score = 1 / (1 + np.exp(-(rng.normal(size=rows) + tied * rank + bent * (rank**2 - 1 / 12))))
    frame = pd.DataFrame({"x": x, "score": score, "label": (rng.random(rows) < score).astype(int)})
    return frame.assign(id=np.arange(rows))


COUNTED = re.compile(r"x is measured in standard deviations of (\S+), from (\S+) to ([^\s;]+);")
"""How the report says that the number counts."""


def rates_of_fifths(people: list[dict[str, Any]], x: Floats, chance: Floats) -> Floats:
    """Return the rates of the groups that a report names, such as ``25 to under 40``."""
    rates = []
    for group in people[0]["groups"]:
        words = group["group"].split()
        inside = np.ones(len(x), dtype=bool)
        if "under" in words:
            inside &= x < float(words[-1])
        if words[0] != "under":
            inside &= x >= float(words[0])
        rates.append(chance[inside].mean())
    return np.array(rates)


@promise(
    "ramp by a protected number: the intervals of the covariance before and after, the statements "
    "about its change and the slack, and the gap between fifths",
    level=0.05,
    quick=3,
    full=500,
)
def covariance_with_a_number(rng: np.random.Generator, shell: Shell) -> Tried:
    kind = str(rng.choice(list(NUMBERS)))
    tied, bent = float(rng.choice([0.0, rng.normal(0, 3)])), float(rng.choice([0.0, rng.normal(0, 6)]))
    rows = int(np.exp(rng.uniform(np.log(150), np.log(20_000))))
    slack, gamma = float(rng.choice([0.0, 0.03, 0.1])), float(rng.choice([0.01, 0.05, 0.5]))
    weighted = bool(rng.random() < 0.3)
    frame, more = people(rng, kind, tied, bent, rows), list[object]()
    if weighted:  # which go with nothing, so that the truth is that of everybody
        frame, more = frame.assign(weight=np.exp(rng.normal(0, 0.5, rows))), ["--weight", "weight"]
    where = shell.folder / "r.fairfix"
    done = shell.did(
        *("repair", shell.write(frame), "--method", "ramp", "--constraint", f"covariance[x]<={slack}"),
        *("--gamma", gamma, "--id", "id", *more, "-o", where, "--format", "text"),
    )
    text = " ".join((done.out + done.err).split())
    deviation, low, high = map(float, COUNTED.search(text).groups())  # type: ignore[union-attr]  # it is always said
    many = people(rng, kind, tied, bent, 100_000)
    chance = shell.predict(str(where), shell.write(many, "many.parquet"))["p_positive"].to_numpy()
    z = np.clip(many["x"].to_numpy(), low, high) / deviation
    truth = [
        abs(float(np.cov(q, z, bias=True)[0, 1])) for q in ((many["score"] >= 0.5).to_numpy(float), chance)
    ]
    near = 3 * float(np.ptp(z)) / 2 / math.sqrt(len(z)) / 2  # what a sample leaves open of the truth
    table = [one for one in done.result["proof"]["holdout"]["table"] if one["attribute"] == "x"]
    row = next(one for one in table if one["id"] == "decision_covariance.with_number")
    told = f"{kind}, truth {truth}, {row}, slack {slack}, {rows} rows, tied {tied:.2f}, bent {bent:.2f}"
    out = NOT_SAID
    for one, value in zip(("before", "after"), truth, strict=True):
        out += judged(row[one]["low"] - near <= value <= row[one]["high"] + near, f"{one}: {told}")
    gap = float(
        np.ptp(rates_of_fifths(done.result["proof"]["holdout"]["people"], many["x"].to_numpy(), chance))
    )
    fifths = next(one for one in table if one["id"] == "selection_rate.difference.between_groups")["after"]
    # of the rarest of the groups, which are about fifths unless numbers tie
    open_ = 3 / math.sqrt(0.01 * len(many))
    out += judged(fifths["low"] - open_ <= gap <= fifths["high"] + open_, f"fifths {gap}, {fifths}: {told}")
    if "It shrinks (change" in text:
        out += judged(truth[1] < truth[0] + near, told)
    if "the whole interval meets the allowed gap" in text:
        out += judged(truth[1] - near <= slack, told)
    if "the whole interval exceeds the allowed gap" in text:
        out += judged(truth[1] + near > slack, told)
    return out


@promise(
    "the objective of the ramp by protected numbers is at most GAP above the smallest of all "
    "acceptance probabilities that meet the slack",
    level=0.0,
    quick=3,
    full=120,
)
def certificate_of_the_ramp_by_numbers(rng: np.random.Generator, shell: Shell) -> Tried:
    kinds = rng.choice([one for one in NUMBERS if one != "rare"], 2, replace=False)
    rows, gamma, slack = (
        int(rng.integers(60, 300)),
        *map(float, (rng.choice([0.01, 0.5]), rng.choice([0.0, 0.05]))),
    )
    frame = people(rng, str(kinds[0]), 3.0, 0.0, rows).assign(other=NUMBERS[str(kinds[1])](rng, rows))
    if frame["other"].nunique() < 2:
        return NOT_SAID
    path, where = shell.write(frame), shell.folder / "r.fairfix"
    asked = f"covariance[x]<={slack}, covariance[other]<={slack}"
    done = shell.did(f"repair {path} --method ramp --gamma {gamma} --id id -o {where} --constraint", asked)
    fit, _ = parts_of(frame, path, DataSpec(ColumnRoles((), label="label", score="score")))
    chance = shell.predict(str(where), shell.write(fit, "fit.parquet"))["p_positive"].to_numpy()
    f, q = 2 * fit["score"].to_numpy() - 1, cvxpy.Variable(len(fit))
    value = float(np.mean(gamma / 2 * chance**2 - f * chance))
    held, worst = [q >= 0, q <= 1], 0.0
    for name in ("x", "other"):
        ordered = np.sort(fit[name].to_numpy())
        beyond = math.ceil(len(fit) / 100) - 1
        z = np.clip(fit[name].to_numpy(), ordered[beyond], ordered[-1 - beyond])
        z = (
            (z - z.mean()) / z.std()
            if np.ptp(z)
            else (fit[name] - fit[name].mean()).to_numpy() / fit[name].std(ddof=0)
        )
        held.append(cvxpy.abs(z @ q) / len(fit) <= slack)
        worst = max(worst, abs(float(z @ chance)) / len(fit))
    cost = (gamma / 2 * cvxpy.sum_squares(q) - f @ q) / len(fit)
    best = float(cvxpy.Problem(cvxpy.Minimize(cost), held).solve(solver="CLARABEL"))
    gap = done.result["solution"]["certificates"][0]["gap"]
    told = f"{kinds}, value {value}, best {best}, gap {gap}, reached {worst}, slack {slack}, gamma {gamma}"
    return judged(value - best <= gap + 1e-6 and worst <= slack + 1e-8, told)
