"""Promises of people who are not in the data: the gap of the population under a repair with ``--guarantee``.

The gap is that of many fresh people, or exact where scores are few: every atom of every group with its chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tests.promises.harness import NOT_SAID, Shell, Tried, judged, promise
from tests.promises.of_repairs import RATES, largest_gap

FRESH = 200_000
"""Fresh people of a world without atoms; gaps are known to about 0.004 then, ..."""

TOLD = 0.004
"""... which a bound may be missed by before it is called false; the worlds whose gap is exact have no such margin."""

ATOMS = np.array([0.05, 0.2, 0.35, 0.5, 0.6, 0.8, 0.95])
"""Scores of worlds with ties."""


@dataclass(frozen=True)
class World:
    """Groups with the distribution of their scores: smooth ones, or chances of :data:`ATOMS`, (K, 7)."""

    shares: Any
    shift: Any
    atoms: Any = None
    skill: float = 1.0

    @classmethod
    def drawn(cls, rng: np.random.Generator, *, smooth: bool = False) -> World:
        """Return two or five groups, of equal or of unequal sizes."""
        many = int(rng.choice([2, 5], p=[0.7, 0.3]))
        shares = rng.dirichlet(np.full(many, 3.0)) * 0.9 + 0.1 / many
        atoms = None if smooth or rng.random() < 0.4 else rng.dirichlet(np.full(ATOMS.size, 0.7), many)
        shift = rng.choice([0.0, 0.3, 1.2]) * rng.normal(size=many)
        return cls(shares, shift, atoms, float(rng.choice([0.3, 1.0])))

    def of_groups(self, rng: np.random.Generator, code: Any) -> pd.DataFrame:
        """Return people of given groups."""
        if self.atoms is None:
            z = rng.normal(size=code.size) + self.shift[code]
            score = 1 / (1 + np.exp(-z))
        else:
            ends = np.cumsum(self.atoms, axis=1)
            score = ATOMS[(rng.random(code.size)[:, None] > ends[code, :-1]).sum(axis=1)]
            z = np.log(score / (1 - score))
        label = rng.random(code.size) < 1 / (1 + np.exp(-self.skill * z))
        return pd.DataFrame(
            {
                "id": rng.permutation(10 * code.size)[: code.size],
                "race": [f"g{k}" for k in code],
                "label": label.astype(int),
                "score": score.clip(1e-6, 1 - 1e-6),
                "x": z + rng.normal(size=code.size) / 2,
                "x2": rng.normal(size=code.size),
            }
        )

    def people(self, rng: np.random.Generator, rows: int) -> pd.DataFrame:
        """Return people as they come."""
        return self.of_groups(rng, rng.choice(len(self.shares), rows, p=self.shares))

    def population(self) -> tuple[pd.DataFrame, Any]:
        """Return one row for each group, atom and label, with its mass."""
        code, atom, label = (
            one.ravel()
            for one in np.meshgrid(range(len(self.shares)), range(ATOMS.size), (0, 1), indexing="ij")
        )
        score = ATOMS[atom]
        chance = 1 / (1 + np.exp(-self.skill * np.log(score / (1 - score))))
        mass = self.shares[code] * self.atoms[code, atom] * np.where(label == 1, chance, 1 - chance)
        frame = pd.DataFrame(
            {"id": np.arange(code.size), "race": [f"g{k}" for k in code], "label": label, "score": score}
        )
        return frame, mass


def _exact_gap(frame: pd.DataFrame, chance: Any, mass: Any, rows: tuple[str, ...]) -> float:
    """Return the largest difference of rates of rows with masses."""
    y, out = frame["label"].to_numpy(), 0.0
    for kind in rows:
        inside = {"all": mass > 0, "positives": (y == 1) & (mass > 0), "negatives": (y == 0) & (mass > 0)}[
            kind
        ]
        parts = (
            pd.DataFrame({"m": mass[inside], "q": (mass * chance)[inside]})
            .groupby(frame["race"].to_numpy()[inside])
            .sum()
        )
        out = max(out, float(np.ptp(parts["q"] / parts["m"])))
    return out


def _asked(
    rng: np.random.Generator, shell: Shell, frame: pd.DataFrame, *method: object
) -> tuple[dict[str, Any] | None, float]:
    """Return the guarantee of a repair, and its confidence; None where it is refused."""
    confidence = 0.95
    words = ("--protected", "race", "--id", "id", "--guarantee", confidence, "--seed", int(rng.integers(99)))
    done = shell.run("repair", shell.write(frame), *words, "--method", *method, "-o", "r.fairfix")
    if done.status == 2:
        return None, confidence
    told = done.result["guarantee"]
    assert told["holds"] == (told["bound"] <= told["slack"])
    assert done.status == (0 if told["holds"] else 3), (done.status, told)
    return told, confidence


def _few_or_many(rng: np.random.Generator, least: int, most: int) -> int:
    return int(np.exp(rng.uniform(np.log(least), np.log(most))))


def _of_ramp(rng: np.random.Generator, shell: Shell, constraint: str) -> Tried:
    world = World.drawn(rng)
    frame = world.people(rng, _few_or_many(rng, 150, 12_000))
    more = ["--gamma", rng.choice([0, 0.05, 0.5]), "--shape", rng.choice(["one-sided", "centred"])]
    if rng.random() < 0.25:
        more = ["--decisions", "deterministic"]
    elif rng.random() < 0.25:
        more = ["--gamma", "0,0.05,0.3"]
    slack = round(float(rng.choice([0.02, 0.05, 0.1, 0.2])), 3)
    told, _ = _asked(rng, shell, frame, "ramp", "--constraint", constraint, "--slack", slack, *more)
    if told is None:
        return NOT_SAID
    of, exact = RATES[told["criterion"]], world.atoms is not None
    if exact:
        everybody, mass = world.population()
    else:
        everybody, mass = world.of_groups(rng, np.arange(FRESH) % len(world.shares)), np.ones(FRESH)
    there = everybody["race"].isin(frame["race"].unique())
    everybody, mass = everybody[there], mass[there]
    after = shell.predict("r.fairfix", shell.write(everybody, "everybody.parquet"))["p_positive"].to_numpy()
    gap = _exact_gap(everybody, after, mass, of) if exact else largest_gap(everybody, after, of) - TOLD
    where = f"{constraint} {more} slack {slack}: {gap:.4f} is above {told['bound']:.4f} ({told['way']})"
    return judged(gap <= told["bound"], where)


@promise(
    "with 95 % confidence, the demographic parity of the population is within the bound (ramp)",
    level=0.05,
    quick=3,
    full=1000,
)
def guarantee_of_parity(rng: np.random.Generator, shell: Shell) -> Tried:
    return _of_ramp(rng, shell, "demographic_parity")


@promise(
    "with 95 % confidence, rates given the label are alike in the population within the bound (ramp)",
    level=0.05,
    quick=2,
    full=1000,
)
def guarantee_of_odds(rng: np.random.Generator, shell: Shell) -> Tried:
    return _of_ramp(rng, shell, str(rng.choice(["equal_opportunity", "equalized_odds"])))


def _fresh(world: World, rng: np.random.Generator, shell: Shell, frame: pd.DataFrame) -> pd.DataFrame:
    """Return fresh people with what the repair gives them."""
    everybody = world.people(rng, FRESH)
    everybody = everybody[everybody["race"].isin(frame["race"].unique())]
    return shell.predict("r.fairfix", shell.write(everybody, "everybody.parquet"))


def _distance(frame: pd.DataFrame) -> float:
    """Return the largest distance of a group's values to everybody's."""
    value, codes = frame["prediction"].to_numpy(), frame["race"].to_numpy()
    order = np.argsort(value, kind="stable")
    last = np.append(np.diff(value[order]) != 0, True)
    every = (np.arange(value.size) + 1.0)[last] / value.size
    return max(
        float(np.abs(np.cumsum(codes[order] == name)[last] / (codes == name).sum() - every).max())
        for name in np.unique(codes)
    )


@promise(
    "with 95 % confidence, values are distributed alike in the population within the bound (fair regression)",
    level=0.05,
    quick=2,
    full=1000,
)
def guarantee_of_distributions(rng: np.random.Generator, shell: Shell) -> Tried:
    world = World.drawn(rng)
    frame = world.people(rng, _few_or_many(rng, 300, 6_000))
    slack = float(rng.choice([0.05, 0.1, 0.2]))
    aware = ("--protected-as-feature", "--features", rng.choice(["score", "x,x2"]))
    more: tuple[object, ...] = aware if rng.random() < 0.7 else ("--features", "score")
    if more == aware and rng.random() < 0.3:
        more = (*aware, "--decisions", "deterministic")
    told, _ = _asked(rng, shell, frame, "fair-regression", "--slack", slack, *more)
    if told is None:
        return NOT_SAID
    gap = _distance(_fresh(world, rng, shell, frame)) - TOLD
    return judged(
        gap <= told["bound"], f"{more} slack {slack}: {gap:.4f} is above {told['bound']:.4f} ({told['way']})"
    )


@promise(
    "with 95 % confidence, rates are alike in the population within the bound (robust log loss)",
    level=0.05,
    quick=2,
    full=1000,
)
def guarantee_of_learned_rates(rng: np.random.Generator, shell: Shell) -> Tried:
    world = World.drawn(rng, smooth=True)
    frame = world.people(rng, _few_or_many(rng, 300, 6_000))
    slack, constraint = (
        float(rng.choice([0.05, 0.1, 0.2])),
        str(rng.choice(["demographic_parity", "equalized_odds"])),
    )
    more = ("--constraint", constraint, "--decisions", rng.choice(["randomized", "deterministic"]))
    told, _ = _asked(rng, shell, frame, "logloss", "--features", "x,x2", "--slack", slack, *more)
    if told is None:
        return NOT_SAID
    everybody = _fresh(world, rng, shell, frame)
    taken = everybody["p_positive"] if "p_positive" in everybody else everybody["decision"]
    gap = largest_gap(everybody, taken, RATES[told["criterion"]]) - 2 * TOLD
    return judged(gap <= told["bound"], f"{more} slack {slack}: {gap:.4f} is above {told['bound']:.4f}")


@promise(
    "with 95 % confidence, decisions of the population hang on the group as little as the bound says (SenSeI)",
    level=0.05,
    quick=2,
    full=1000,
)
def guarantee_of_flips(rng: np.random.Generator, shell: Shell) -> Tried:
    world = World.drawn(rng, smooth=True)
    frame = world.people(rng, _few_or_many(rng, 300, 4_000))
    slack = float(rng.choice([0.01, 0.05, 0.2]))
    solver = rng.choice(["merge", "linear", "equal-rates"], p=[0.1, 0.5, 0.4])
    more = ("--protected-as-feature",) if solver == "linear" else ()
    told, _ = _asked(
        rng, shell, frame, "sensei", "--solver", solver, "--features", "x,x2", "--slack", slack, *more
    )
    if told is None:
        return NOT_SAID
    everybody = _fresh(world, rng, shell, frame)
    if solver == "equal-rates":
        gap = _to_everybody(everybody)
    else:
        wide = [
            shell.predict("r.fairfix", shell.write(everybody[list(frame)].assign(race=name), "one.parquet"))[
                "decision"
            ]
            for name in sorted(frame["race"].unique())
        ]
        gap = float((np.ptp(np.array(wide), axis=0)).mean())
    where = f"{solver} slack {slack}: {gap - TOLD:.4f} is above {told['bound']:.4f} ({told['way']})"
    return judged(gap - TOLD <= told["bound"], where)


def _to_everybody(frame: pd.DataFrame) -> float:
    """Return the largest distance of a group's true or false positive rate to everybody's."""
    out = 0.0
    for label in (0, 1):
        own = frame[frame["label"] == label]
        rates = own["p_positive"].groupby(own["race"]).mean()
        out = max(out, float((rates - own["p_positive"].mean()).abs().max()))
    return out
