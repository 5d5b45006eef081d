"""Promises of people who are not in the data where groups are not compared as wholes, or where none are recorded.

Within strata, each group with a slack of its own, covariances with membership and with protected numbers, groups of
which rows have probabilities, and true groups that are near recorded ones of other names.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import fairfix
import numpy as np
import pandas as pd
from scipy.stats import ks_2samp

from tests.promises.harness import NOT_SAID, Refused, Shell, Tried, judged, promise
from tests.promises.of_described_repairs import (
    LABELS,
    cells_of,
    masses_of,
    sampled,
    with_members,
    worst_member,
    worst_near,
)
from tests.promises.of_guarantees import ATOMS, FRESH, TOLD, World, _asked, _few_or_many
from tests.promises.of_repairs import RATES


def _chance(shell: Shell, frame: pd.DataFrame) -> Any:
    """Return what the repair gives rows: chances, or values."""
    given = shell.predict("r.fairfix", shell.write(frame, "everybody.parquet"))
    return given["p_positive" if "p_positive" in given else "prediction"].to_numpy()


def _towns(rng: np.random.Generator, *, smooth: bool = False) -> tuple[World, int]:
    """Return a world whose groups are races in towns, and the number of races."""
    races, towns = int(rng.choice([2, 3])), int(rng.choice([1, 2, 4], p=[0.2, 0.5, 0.3]))
    shares = rng.dirichlet(np.full(races * towns, float(rng.choice([0.7, 3.0]))))
    atoms = None if smooth or rng.random() < 0.4 else rng.dirichlet(np.full(ATOMS.size, 0.7), races * towns)
    shift = rng.choice([0.0, 0.3, 1.2]) * rng.normal(size=races * towns)
    return World(shares, shift, atoms, float(rng.choice([0.3, 1.0]))), races


def _in_towns(frame: pd.DataFrame, races: int) -> pd.DataFrame:
    code = frame["race"].str[1:].astype(int)
    return frame.assign(race=[f"g{k}" for k in code % races], town=[f"t{k}" for k in code // races])


def _everybody(world: World, rng: np.random.Generator) -> tuple[pd.DataFrame, Any]:
    """Return rows with masses: all of the population, or fresh people of it."""
    return (
        (world.people(rng, FRESH), np.full(FRESH, 1 / FRESH)) if world.atoms is None else world.population()
    )


def _seen(everybody: pd.DataFrame, mass: Any, frame: pd.DataFrame) -> tuple[pd.DataFrame, Any]:
    """Return the rows of groups that the data have."""
    there = everybody["race"].isin(frame["race"].unique()).to_numpy() & (mass > 0)
    return everybody[there].reset_index(drop=True), mass[there]


def _covariance(race: Any, chance: Any, mass: Any) -> float:
    """Return the largest covariance with membership, of rows with masses."""
    mass = mass / mass.sum()
    away = chance - mass @ chance
    return max(abs(float(mass @ (away * (race == name)))) for name in np.unique(race))


@promise(level=0.05, quick=2, full=1000)
def guarantee_of_covariances(rng: np.random.Generator, shell: Shell) -> Tried:
    """With 95% confidence, the covariance of decisions with membership is within the bound (ramp)."""
    world, races = _towns(rng)
    within = rng.random() < 0.5
    whole = world.people(rng, _few_or_many(rng, 150, 12_000))
    more = ["--constraint", "covariance", "--slack", rng.choice([0.01, 0.03, 0.06])]
    more += ["--gamma", rng.choice([0, 0.05, 0.5]), *(["--strata", "town"] if within else [])]
    if rng.random() < 0.25:
        more += ["--decisions", "deterministic"]
    told = _asked(rng, shell, _in_towns(whole, races), "ramp", *more)
    everybody, mass = _seen(*_everybody(world, rng), whole)
    everybody = _in_towns(everybody, races)
    chance = _chance(shell, everybody)
    town = everybody["town"].to_numpy() if within else np.zeros(len(everybody))
    parts = [town == name for name in np.unique(town)]
    gap = max(_covariance(everybody["race"].to_numpy()[one], chance[one], mass[one]) for one in parts)
    gap -= TOLD / 2 if world.atoms is None else 0.0
    return judged(gap <= told["bound"] + 1e-12, f"{more}: {gap:.4f} is above {told['bound']:.4f}")


@promise(level=0.05, quick=2, full=1000)
def guarantee_within_strata(rng: np.random.Generator, shell: Shell) -> Tried:
    """With 95% confidence, groups are alike within each stratum of the population within the bound.

    Rates of the ramp, and distributions of fair regression, of the score and learned.
    """
    kind = str(rng.choice(["ramp", "fair-regression"]))
    world, races = _towns(rng, smooth=kind != "ramp")
    whole = world.people(rng, _few_or_many(rng, 300, 12_000))
    more = ["--strata", "town", "--slack", rng.choice([0.05, 0.1, 0.2])]
    if kind == "fair-regression":
        more += ["--group", "used", "--features", rng.choice(["score", "x,x2"])]
    else:
        more += ["--constraint", rng.choice(["demographic_parity", "equal_opportunity", "equalized_odds"])]
        more += ["--gamma", rng.choice([0, 0.05, 0.5])]
    told = _asked(rng, shell, _in_towns(whole, races), kind, *more)
    everybody, mass = _seen(*_everybody(world, rng), whole)
    everybody = _in_towns(everybody, races)
    chance, y = _chance(shell, everybody), everybody["label"].to_numpy()
    town, race = everybody["town"].to_numpy(), everybody["race"].to_numpy()
    gap = 0.0
    for inside in (town == name for name in np.unique(town)):
        cells = [inside & (race == name) for name in np.unique(race[inside])]
        for one, two in combinations(cells, 2):
            if kind == "fair-regression":
                apart = [ks_2samp(chance[one], chance[two]).statistic - _noise(one, two) / 2]
            else:
                rates = RATES[told["criterion"].replace("within_strata", "between_groups")]
                of = [{"all": y > -1, "positives": y == 1, "negatives": y == 0}[rate] for rate in rates]
                apart = [
                    abs(np.subtract(*(np.average(chance[c & w], weights=mass[c & w]) for c in (one, two))))
                    - (0.0 if world.atoms is not None else _noise(one & w, two & w))
                    for w in of
                ]
            gap = max(gap, *apart)
    return judged(
        gap <= told["bound"], f"{kind} {more}: {gap:.4f} is above {told['bound']:.4f} ({told['way']})"
    )


def _noise(one: Any, two: Any) -> float:
    """Return four standard errors of a difference of two shares, of fresh people."""
    return float(2 * np.sqrt(1 / one.sum() + 1 / two.sum()))


@promise(
    "with 95% confidence, each group is within its own bound of the overall distribution in the "
    "population (fair regression)",
    level=0.05,
    quick=2,
    full=1000,
)
def guarantee_of_each_slack(rng: np.random.Generator, shell: Shell) -> Tried:
    world = World.drawn(rng)
    frame = world.people(rng, _few_or_many(rng, 300, 6_000))
    names = sorted(frame["race"].unique())
    slacks = ", ".join(f"ks.to_overall[race={name}]<={rng.choice([0.03, 0.1, 0.3])}" for name in names)
    more = ["--group", "used", "--features", rng.choice(["score", "x,x2"])]
    if rng.random() < 0.3:
        more = ["--features", "score"]
    told = _asked(rng, shell, frame, "fair-regression", "--constraint", slacks, *more)
    everybody, _ = _seen(world.people(rng, FRESH), np.ones(FRESH), frame)
    value, race = _chance(shell, everybody), everybody["race"].to_numpy()
    assert len(told["limits"]) == len(names)
    wrong = []
    for own in told["limits"]:
        mine = race == own["group"]
        gap = ks_2samp(value[mine], value).statistic - TOLD
        assert told["holds"] <= (own["bound"] <= own["slack"])
        if gap > own["bound"]:
            wrong.append(f"{own['group']}: {gap:.4f} is above {own['bound']:.4f}")
    return judged(not wrong, f"{more} {slacks}: {', '.join(wrong)}")


@promise(
    "with 95% confidence, the covariance of decisions with protected numbers in the population is "
    "within the bound (ramp)",
    level=0.05,
    quick=2,
    full=1000,
)
def guarantee_of_numbers(rng: np.random.Generator, shell: Shell) -> Tried:
    """Columns of few values and of heavy tails, in any unit; numbers count as the rule counts them."""
    kinds = [str(rng.choice(["smooth", "tails", "few", "rare"])) for _ in range(int(rng.choice([1, 2])))]
    lean, unit = rng.normal(size=2) * rng.choice([0.0, 1.0, 3.0]), 10.0 ** rng.integers(-3, 4)

    def people(rows: int) -> pd.DataFrame:
        z = rng.normal(size=rows)
        frame = pd.DataFrame({"id": np.arange(rows), "score": 1 / (1 + np.exp(-z))})
        frame["label"] = (rng.random(rows) < frame["score"]).astype(int)
        for at, kind in enumerate(kinds):
            x = lean[at] * z + rng.normal(size=rows)
            made = {
                "smooth": x,
                "tails": np.sign(x) * np.exp(np.abs(x)),
                "few": np.round(x),
                "rare": (x > 2.2) * 1.0,
            }
            frame[f"x{at}"] = made[kind] * unit - 40 * unit
        return frame

    frame = people(_few_or_many(rng, 200, 12_000))
    names = [f"x{at}" for at in range(len(kinds))]
    more = ["--slack", rng.choice([0.01, 0.03, 0.1]), "--gamma", rng.choice([0.05, 0.5])]
    asked = ", ".join(f"covariance[{name}]" for name in names)
    words = ("--constraint", asked, "--id", "id", "--guarantee", 0.95, *more)
    done = shell.did("repair", shell.write(frame), "--method", "ramp", *words, "-o", "r.fairfix")
    told = done.result["guarantee"]
    assert told["holds"] == (told["bound"] <= told["slack"])
    everybody = people(FRESH)
    chance, gap = _chance(shell, everybody), 0.0
    for scale in fairfix.load(shell.folder / "r.fairfix").predictor.scales:
        x = (everybody[scale.column].clip(scale.low, scale.high) - scale.mean) / scale.deviation
        gap = max(
            gap, abs(np.cov(x, chance)[0, 1]) - 4 * float((x * (chance - chance.mean())).std()) / FRESH**0.5
        )
    return judged(gap <= told["bound"], f"{kinds} {more}: {gap:.4f} is above {told['bound']:.4f}")


@promise(level=0.05, quick=2, full=1000)
def guarantee_of_soft_groups(rng: np.random.Generator, shell: Shell) -> Tried:
    """With 95% confidence, groups known by probabilities are alike within the bound (ramp).

    Rates of the true groups, of which each row is by its probabilities, whatever else is known of it.
    """
    groups, kinds, levels = int(rng.choice([2, 3])), int(rng.integers(2, 6)), int(rng.integers(3, 12))
    z = np.round(rng.dirichlet(np.full(groups, 0.6), kinds), 3)
    z[:, -1] = np.maximum(1 - z[:, :-1].sum(1), 0.0)
    masses = masses_of(rng, kinds, levels, rng.uniform(-0.2, 0.2, kinds))
    columns = [f"p{j}" for j in range(groups)]

    frame = with_members(sampled(rng, masses, _few_or_many(rng, 300, 12_000)), z).drop(columns="kind")
    constraint = str(rng.choice(["demographic_parity", "equal_opportunity", "equalized_odds"]))
    more = ["--constraint", constraint, "--slack", rng.choice([0.05, 0.1, 0.2])]
    words = ("--noise", "membership:" + ",".join(columns), "--id", "id", "--guarantee", 0.95, *more)
    done = shell.did("repair", shell.write(frame), "--method", "ramp", *words, "-o", "r.fairfix")
    told = done.result["guarantee"]
    cells = with_members(cells_of(masses), z)
    chance, label = _chance(shell, cells.drop(columns="kind")), cells["label"]
    gap = 0.0
    for labels in {"demographic_parity": [(0, 1)], "equal_opportunity": [(1,)]}.get(constraint, [(0,), (1,)]):
        own = z[cells["kind"]].T * masses.ravel() * np.isin(label, labels)
        there = own.sum(1) > 0
        gap = max(gap, float(np.ptp(own[there] @ chance / own[there].sum(1))))
    return judged(
        gap <= told["bound"] + 1e-12, f"{more}: {gap:.4f} is above {told['bound']:.4f}, {len(frame)} rows"
    )


@promise(
    "with 95% confidence, true groups near recorded groups of other names are within the bound of "
    "the overall rate (robust)",
    level=0.05,
    quick=2,
    full=1000,
)
def guarantee_of_near_groups(rng: np.random.Generator, shell: Shell) -> Tried:
    kinds, levels = int(rng.integers(2, 5)), int(rng.integers(3, 12))
    masses = masses_of(rng, kinds, levels, rng.uniform(-0.2, 0.2, kinds))
    frame = sampled(rng, masses, _few_or_many(rng, 600, 12_000))
    frame = frame.assign(race=[f"g{k}" for k in frame["kind"]]).drop(columns="kind")
    home = np.arange(kinds) if rng.random() < 0.3 else rng.integers(0, kinds, int(rng.integers(2, kinds + 2)))
    radii = np.round(rng.choice([0.0, 0.02, 0.1, 0.3], home.size), 3)
    balls = ",".join(f"t{j} near g{k}={r}" for j, (k, r) in enumerate(zip(home, radii, strict=True)))
    constraint = str(rng.choice([*list(LABELS)[:3]]))
    more = ["--constraint", constraint, "--slack", rng.choice([0.1, 0.2, 0.4])]
    more += ["--group", rng.choice(["used", "unused"]), "--noise", f"radius:{balls}"]
    told = _asked(rng, shell, frame, "robust", *more)
    cells = cells_of(masses)
    chance = _chance(shell, cells.assign(race=[f"g{k}" for k in cells["kind"]]).drop(columns="kind"))
    worst = worst_near(constraint, chance, masses, home, radii)
    return judged(
        worst <= told["bound"] + 1e-6, f"{more}: {worst:.4f} is above {told['bound']:.4f}, {len(frame)} rows"
    )


@promise(
    "with 95% confidence, true groups by probabilities of membership are within the bound of the "
    "overall rate (robust)",
    level=0.05,
    quick=2,
    full=1000,
)
def guarantee_of_members(rng: np.random.Generator, shell: Shell) -> Tried:
    """People of each vector of probabilities are the worst that it allows, or independent where that is said."""
    groups, kinds, levels = int(rng.integers(2, 4)), int(rng.integers(2, 30)), int(rng.integers(3, 12))
    z = np.maximum(np.round(rng.dirichlet(np.full(groups, rng.choice([0.1, 0.3])), kinds), 3), 0.0)
    z[:, -1] = 1.0 - z[:, :-1].sum(1)
    masses = masses_of(rng, kinds, levels, rng.uniform(0.0, 0.4) * (z[:, 0] - 0.5))
    likely = np.where(z[:, 0] >= np.median(z[:, 0]), "g0", "g1")
    if np.unique(likely).size < 2:
        return NOT_SAID
    columns = [f"p{j}" for j in range(groups)]

    def dressed(frame: pd.DataFrame) -> pd.DataFrame:
        return with_members(frame, z).assign(race=likely[frame["kind"]]).drop(columns="kind")

    frame = dressed(sampled(rng, masses, _few_or_many(rng, 600, 12_000)))
    independent, constraint = rng.random() < 0.4, str(rng.choice([*list(LABELS)[:3]]))
    more = ["--constraint", constraint, "--slack", rng.choice([0.1, 0.2, 0.4]), "--group", "unused"]
    more += ["--noise", "membership:" + ",".join(columns)]
    more += ["--assume", "independent" if independent else "none"]
    told = _asked(rng, shell, frame, "robust", *more)
    cells, whole = cells_of(masses), masses.ravel()
    chance, about = _chance(shell, dressed(cells)), np.isin(cells["label"], LABELS[constraint])
    if independent:
        overall = np.average(chance[about], weights=whole[about])
        own = (z[cells["kind"]].T * whole)[:, about]
        worst = float(np.abs(own @ chance[about] / own.sum(1) - overall).max())
    else:
        worst = worst_member(constraint, chance, masses, z)
    return judged(
        worst <= told["bound"] + 1e-6, f"{more}: {worst:.4f} is above {told['bound']:.4f}, {len(frame)} rows"
    )


def _as_many(
    world: World, rng: np.random.Generator, names: list[str], rows: int, least: int
) -> pd.DataFrame | None:
    """Return new people as they come, until there are so many of each that is named; None where these would be many."""
    pool = world.people(rng, MOST)
    counts = []
    for name in names:
        group, _, label = name.partition(", label ")
        mine = pool["race"] == group.removeprefix("not ")
        inside = mine != group.startswith("not ") if group != "everybody" else pool["label"] > -1
        if label:
            inside = inside & (pool["label"] == int(label))
        counts.append(inside.cumsum().to_numpy())
    enough = np.flatnonzero(np.min(counts, axis=0) >= rows)
    return pool[: max(int(enough[0]) + 1, least)] if enough.size else None


MOST = 60_000
"""People who are drawn anew at most, so that a world takes seconds."""

ASKED: dict[str, tuple[tuple[object, ...], tuple[float, ...]]] = {
    "parity": (("ramp",), (0.1, 0.2)),
    "odds": (("ramp", "--constraint", "equalized_odds"), (0.15, 0.3)),
    "ratio": (("ramp",), (0.6, 0.8)),
    "deterministic": (("ramp", "--decisions", "deterministic"), (0.1, 0.2)),
    "log loss": (("logloss", "--features", "x"), (0.05, 0.1)),
    "distributions": (("fair-regression", "--group", "used", "--features", "score"), (0.1, 0.2)),
    "learned": (("fair-regression", "--group", "used", "--features", "x,x2"), (0.15, 0.3)),
    "flips": (("sensei", "--solver", "equal-rates", "--features", "x"), (0.1, 0.2)),
}
"""What is asked, and how much of it: least ratios of ``ratio``, and else slacks."""


@promise(level=0.2, quick=8, full=400, must_say=0.2)
def rows_that_prove(rng: np.random.Generator, shell: Shell) -> Tried:
    """About N rows: as many new people as a repair asks for are enough to prove it, in eight of ten worlds."""
    world = World.drawn(rng)
    frame = world.people(rng, _few_or_many(rng, 150, 3_000))
    kind = str(rng.choice(list(ASKED)))
    method, limits = ASKED[kind]
    limit = rng.choice(limits)
    more = (*method, *(("--constraint", f"dp.ratio>={limit}") if kind == "ratio" else ("--slack", limit)))
    told = _asked(rng, shell, frame, *more)
    if told["holds"] or "needed" not in told:
        return NOT_SAID
    names, rows = told["needed"]["groups"], told["needed"]["rows"]
    again = _as_many(world, rng, names, rows, len(frame))
    if again is None or again["race"].nunique() != frame["race"].nunique():
        return NOT_SAID
    try:
        now = _asked(rng, shell, again, *more)
    except Refused as refused:  # what more rows of the same people may not be
        raise AssertionError(more) from refused
    where = f"{more}, {len(frame)} rows, then {len(again)} for {rows} of {names}: {now['says'][:60]} {now['bound']}"
    return judged(now["holds"], where)
