"""Promises of what a repair says of itself: its gaps before and after, what rounding does, what small groups cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from fairfix.data.data_spec import ColumnRoles, DataSpec

from tests.promises.harness import NOT_SAID, Shell, Tried, distance_to_overall, judged, parts_of, promise

RATES = {
    "selection_rate.difference.between_groups": ("all",),
    "true_positive_rate.difference.between_groups": ("positives",),
    "false_positive_rate.difference.between_groups": ("negatives",),
    "equalized_odds.difference.between_groups": ("positives", "negatives"),
}
"""Gaps of decisions, and the rows whose rates they compare."""


def draw_people(rng: np.random.Generator, sizes: Any, shift: Any, skill: Any) -> pd.DataFrame:
    """Return scored rows of groups whose mean scores differ by shifts on the log-odds; ``skill`` may be by group."""
    code = np.repeat(np.arange(len(sizes)), sizes)
    z = rng.normal(size=code.size) + np.asarray(shift)[code]
    label = rng.random(code.size) < 1 / (1 + np.exp(-np.broadcast_to(skill, len(sizes))[code] * z))
    score = 1 / (1 + np.exp(-z))
    return pd.DataFrame(
        {"race": [f"g{k}" for k in code], "label": label.astype(int), "score": score.clip(1e-6, 1 - 1e-6)}
    )


def largest_gap(frame: pd.DataFrame, chance: Any, rows: tuple[str, ...]) -> float:
    """Return the largest difference of rates, over the kinds of rows."""
    return max(float(rates.max() - rates.min()) for rates in _rates(frame, chance, rows))


def smallest_ratio(frame: pd.DataFrame, chance: Any, rows: tuple[str, ...]) -> float:
    """Return the smallest ratio of rates, over the kinds of rows."""
    return min(float(rates.min() / rates.max()) for rates in _rates(frame, chance, rows))


def _rates(frame: pd.DataFrame, chance: Any, rows: tuple[str, ...]) -> Iterator[Any]:
    """Yield the rates of the groups, for each kind of rows."""
    y, codes = frame["label"].to_numpy(), frame["race"].to_numpy()
    kept = {"all": np.ones(len(y), bool), "positives": y == 1, "negatives": y == 0}
    for name in rows:
        inside = kept[name]
        yield pd.Series(np.asarray(chance, float)[inside]).groupby(codes[inside]).mean()


def _sizes(rng: np.random.Generator, least: int, most: int) -> Any:
    groups = int(rng.integers(2, 7))
    return np.round(np.exp(rng.uniform(np.log(least), np.log(most), groups))).astype(int)


def _rows(result: dict[str, Any]) -> dict[str, Any]:
    return {row["id"]: row for row in result["proof"]["holdout"]["table"]}


@promise(level=0.05, quick=3, full=1000)
def interval_of_the_change(rng: np.random.Generator, shell: Shell) -> Tried:
    """95% interval of the change of a gap, held-out rows."""
    sizes = _sizes(rng, 60, 2500)
    shift = rng.choice([0.0, 0.3, 1.0]) * rng.normal(size=sizes.size)
    skill = float(rng.choice([0.3, 1.0, 3.0]))
    frame = draw_people(rng, sizes, shift, skill)
    many = np.maximum(sizes * 40_000 // sizes.sum(), 2000)
    world = draw_people(rng, many, shift, skill)
    method = [
        ("ramp", "--slack", rng.choice([0, 0.05])),
        ("ramp", "--constraint", "equal_opportunity"),
        ("ramp", "--constraint", "equalized_odds", "--slack", 0.02),
        ("ramp", "--decisions", "deterministic"),
        ("fair-regression", "--group", "used", "--slack", rng.choice([0.02, 0.1])),
    ][rng.integers(5)]
    seed = int(rng.integers(1000))
    done = shell.did(
        f"repair {shell.write(frame)} --protected race --seed {seed} -o r.fairfix --method", *method
    )
    after = shell.predict("r.fairfix", shell.write(world, "world.parquet"))
    rows, out = _rows(done.result), Tried(0)
    if method[0] == "ramp":
        base = world["score"] >= 0.5
        truth = {
            name: largest_gap(world, after["p_positive"], of) - largest_gap(world, base, of)
            for name, of in RATES.items()
            if name in rows or not name.startswith("false")  # which is shown where it is what is held
        }
    else:
        race = world["race"].to_numpy()
        now, was = (
            distance_to_overall(one.to_numpy(), race) for one in (after["prediction"], world["score"])
        )
        truth = {"ks.to_overall": now - was}
    for name, change in truth.items():
        said = rows[name].get("change", {})
        if said.get("low") is None or said.get("high") is None:
            continue
        told = f"{method}: {name} changes by {change:.4f}, not in [{said['low']:.4f}, {said['high']:.4f}], {sizes}"
        out += judged(said["low"] <= change <= said["high"], told)
    return out


@promise(level=0.05, quick=3, full=500)
def there_was_something_to_repair(rng: np.random.Generator, shell: Shell) -> Tried:
    """A repair without a warning about it had a gap above its slack before."""
    sizes = _sizes(rng, 40, 1500)
    shift = rng.choice([0.0, 0.1, 1.5], p=[0.2, 0.2, 0.6]) * rng.normal(size=sizes.size)
    frame = draw_people(rng, sizes, shift, 1.0)
    world = draw_people(rng, [40_000] * sizes.size, shift, 1.0)
    slack = float(rng.choice([0.0, 0.05, 0.2]))
    done = shell.run(
        f"repair {shell.write(frame)} --protected race --method ramp --slack {slack} -o r.fairfix"
    )
    codes = [one.get("code") for one in done.result.get("messages", ())]
    if {"gap_before", "no_help"} & set(codes):
        return NOT_SAID
    true = largest_gap(world, world["score"] >= 0.5, ("all",))
    return judged(true > max(slack, 0.01), f"the true gap was {true:.3f}, slack {slack}, and nothing is said")


@promise(
    "a warning comes first if a deterministic rule exceeds its slack, or leaves a gap that the "
    "randomized rule closes",
    level=0.0,
    quick=20,
    full=300,
)
def rounding_that_undoes_the_repair(rng: np.random.Generator, shell: Shell) -> Tried:
    sizes = _sizes(rng, 200, 1500)
    frame = draw_people(rng, sizes, rng.choice([0.5, 1.5]) * rng.normal(size=sizes.size), 1.0)
    if rng.random() < 0.5:
        frame["score"] = frame["score"].round(int(rng.integers(1, 3))).clip(0.01, 0.99)
    method = [("logloss",), ("ramp",), ("ramp", "--constraint", "equalized_odds")][rng.integers(3)]
    slack = float(rng.choice([0.0, 0.05]))
    common = ("repair", shell.write(frame), "--protected", "race", "--slack", slack, "-o", "r.fairfix")
    done = shell.did(*common, "--method", *method, "--decisions", "deterministic")
    name = done.result["criterion"]
    fit, held = (
        next(row for row in done.result["proof"][part]["table"] if row["name"].startswith(name))
        for part in ("fit", "holdout")
    )
    drawn = _rows(shell.run(*common, "--method", *method).result)[name]["after"]["value"]
    positives = frame.groupby("race")["label"].agg(lambda y: min(y.sum(), (1 - y).sum()))
    one = 2.0 / float(min(sizes) if method[-1] != "equalized_odds" else positives.min())
    undone = fit["after"]["value"] > slack + 2 * one
    undone |= held["after"]["value"] > max(held["before"]["value"], drawn + 1e-9)
    if not undone:
        return NOT_SAID
    told = (
        f"{method} slack {slack}: {fit['after']['value']:.3f} on the fit, {held['before']['value']:.3f} to "
    )
    first = done.result.get("messages") or [{}]
    return judged(
        str(first[0].get("code")).startswith("rounding"), f"{told}{held['after']['value']:.3f} held out"
    )


@promise(level=0.05, quick=3, full=200, must_say=0.3)
def small_groups_that_cost(rng: np.random.Generator, shell: Shell) -> Tried:
    """A group with few rows that causes most of the cost is named, with the cost without it."""
    sizes = np.append(rng.integers(1500, 4000, int(rng.integers(2, 4))), int(rng.integers(25, 150)))
    shift = np.append(rng.normal(0, 0.15, sizes.size - 1), rng.choice([-1.0, 0.0, 1.0]))
    skill = np.append(np.full(sizes.size - 1, 3.0), rng.choice([0.0, 3.0], p=[0.7, 0.3]))
    frame = draw_people(rng, sizes, shift, skill)
    constraint = str(
        rng.choice(["demographic_parity", "equal_opportunity", "equalized_odds"], p=[0.1, 0.2, 0.7])
    )
    common = ("--protected", "race", "--method", "ramp", "--constraint", constraint, "-o", "r.fairfix")
    small = f"g{sizes.size - 1}"
    done = shell.did("repair", shell.write(frame), *common)
    without = shell.run("repair", shell.write(frame[frame["race"] != small]), *common)
    costs = []
    for ran in (done, without):
        row = _rows(ran.result)["accuracy"]
        costs.append(row["before"]["value"] - row["after"]["value"])
    told = [one["text"] for one in done.result.get("messages", ()) if one.get("code") == "small_group"]
    where = f"{constraint} costs {costs[0]:.3f}, {costs[1]:.3f} without {small} of {sizes[-1]} rows: {told}"
    if told:
        return judged(f"'{small}'" in told[0] and costs[0] - costs[1] > 0, where)
    # silence promises that no small group makes most of a cost that another split of the rows would show too
    return judged(costs[0] - costs[1] < max(0.03, costs[0] / 2), where)


@promise(level=0.0, quick=3, full=100)
def compared_with_its_own_method(rng: np.random.Generator, shell: Shell) -> Tried:
    """For each gap that it shows, a comparison includes a repair of this gap, also one that uses the group."""
    sizes = rng.integers(150, 500, int(rng.integers(2, 4)))
    frame = draw_people(rng, sizes, rng.normal(size=sizes.size), 1.0)
    slack, seed = float(rng.choice([0.0, 0.05])), int(rng.integers(99))
    common = ("--protected", "race", "--seed", seed)
    data = shell.write(frame)
    gap, method = [
        ("selection_rate.difference.between_groups", ("ramp",)),
        ("true_positive_rate.difference.between_groups", ("ramp", "--constraint", "equal_opportunity")),
        ("equalized_odds.difference.between_groups", ("ramp", "--constraint", "equalized_odds")),
        ("ks.to_overall", ("fair-regression", "--group", "used")),
    ][rng.integers(4)]
    compared = shell.run("compare", data, *common, "--slacks", slack, "--methods", method[0])
    points = [point for point in compared.result["points"] if "failure" not in point]
    done = shell.did("repair", data, *common, "--method", *method, "--slack", slack, "-o", "r.fairfix")
    rows = _rows(done.result)
    quality = "accuracy" if "accuracy" in rows else "square_loss"
    place = [rows[name]["after"]["value"] for name in (gap, quality)]
    there = [
        (one["value"], p["qualities"][quality]["value"])
        for p in points
        for one in p["gaps"]
        if one["gap"] == {"comparison": gap, "attribute": "race"} and quality in p["qualities"]
    ]
    near = any(np.allclose(place, one, atol=1e-9) for one in there)
    return judged(near, f"{method} slack {slack}: {gap}, {quality} {place} is not among {there}")


def _worlds_of_doubt(rng: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame, tuple[Any, ...]]:
    """Return rows, many rows of their population, and a method: groups alike, apart, or of scores that tell less."""
    groups, kind = int(rng.integers(2, 4)), int(rng.integers(3))
    sizes = rng.integers(80, 900, groups)
    shift = np.array([0.0, 1.0, 0.0])[kind] * rng.normal(size=groups)
    skill = np.where(np.arange(groups) == 0, 3.0, 0.2) if kind == 2 else np.full(groups, 1.0)
    method = [
        ("ramp",),
        ("ramp", "--constraint", "equalized_odds"),
        ("ramp", "--set", f"rho={rng.choice([0.02, 0.5])}"),
        ("ramp", "--decisions", "deterministic", "--slack", 0.05),
        ("logloss", "--decisions", "deterministic"),
        ("fair-regression", "--slack", rng.choice([0.0, 0.05])),
    ][rng.integers(6)]
    return draw_people(rng, sizes, shift, skill), draw_people(rng, [20_000] * groups, shift, skill), method


def chance_of(frame: pd.DataFrame) -> Any:
    """Return the chance of a positive decision of predicted rows, by threshold where values are predicted."""
    return frame["p_positive"] if "p_positive" in frame else (frame["prediction"] >= 0.5).astype(float)


HOW = DataSpec(ColumnRoles(("race",), label="label", score="score"))


@promise(level=0.0, quick=5, full=300)
def nothing_shows_that_it_helped(rng: np.random.Generator, shell: Shell) -> Tried:
    """A warning appears exactly if held-out rows do not show that the repair helps."""
    frame, _, method = _worlds_of_doubt(rng)
    method = method if method[0] == "ramp" else ("ramp",)
    done = shell.did(
        "repair", data := shell.write(frame), "--protected", "race", "--method", *method, "-o", "r.fairfix"
    )
    _, held = parts_of(frame, data, HOW)
    after = shell.predict("r.fairfix", shell.write(held, "held.parquet"))
    name = done.result["criterion"]
    before, now = (
        largest_gap(held, chance, RATES[name]) for chance in (held["score"] >= 0.5, after["p_positive"])
    )
    slack = done.result["parameters"]["slack"]
    uncertain = not _rows(done.result)[name]["before"]["low"] > slack
    codes = [one.get("code") for one in done.result["messages"]]
    where = f"{method}: {before:.4f} to {now:.4f}, uncertain {uncertain}: {codes}"
    if abs(now - before) < 1e-9:
        return NOT_SAID  # rounding decides
    return judged(("no_help" in codes) == (uncertain and now > before), where)


@promise(level=0.0, quick=5, full=300)
def the_same_for_everybody(rng: np.random.Generator, shell: Shell) -> Tried:
    """A warning appears exactly if the rule gives all rows the same result."""
    frame, _, method = _worlds_of_doubt(rng)
    if rng.random() < 0.5:  # scores that tell nothing, or nearly so
        frame["score"] = rng.choice([0.4, 0.6]) + rng.choice([0.0, 0.01]) * rng.normal(size=len(frame))
    done = shell.did(
        "repair", data := shell.write(frame), "--protected", "race", "--method", *method, "-o", "r.fairfix"
    )
    parts = [shell.predict("r.fairfix", shell.write(one)) for one in parts_of(frame, data, HOW)]
    same = any(chance_of(one).nunique() == 1 for one in parts)
    told = [one["text"] for one in done.result["messages"] if one.get("code") in ("selection", "constant")]
    alike = [text for text in told if "all rows" in text or "no row" in text]
    return judged(bool(alike) == same, f"{method}: all the same {same}, and said was {told}")


@promise(level=0.05, quick=3, full=500, must_say=0.1)
def lowers_everybody(rng: np.random.Generator, shell: Shell) -> Tried:
    """If a repair is said to help no group, the rate of no group rises, and that of the named group falls."""
    frame, world, method = _worlds_of_doubt(rng)
    done = shell.run(
        "repair", data := shell.write(frame), "--protected", "race", "--method", *method, "-o", "r.fairfix"
    )
    told = [one["text"] for one in done.result.get("messages", ()) if one.get("code") == "levelled_down"]
    if done.status == 2 or method[0] == "fair-regression":  # whose drawn values are others in another file
        return NOT_SAID
    _, held = parts_of(frame, data, HOW)
    changes = []
    for part in (held, world):
        base = (part["score"] >= 0.5).astype(float)
        after = chance_of(shell.predict("r.fairfix", shell.write(part, "part.parquet")))
        changes.append((after - base).groupby(part["race"]).mean())
    if not told:
        # silence is kept where somebody gains on held-out rows, or nobody loses for certain
        return judged(
            not (changes[0] <= 0).all() or changes[0].min() > -0.25, f"{method}: {changes} in silence"
        )
    name = told[0].partition("that of '")[2].partition("'")[0]
    return judged(
        bool((changes[0] <= 1e-9).all() and changes[1][name] < 0), f"{method}: {told[0]}, {changes}"
    )
