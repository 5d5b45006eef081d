"""Promises of individual fairness: of flips, of equal rates and of the regularizer, against the rule that ships."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.files import open_source
from fairfix.data.scan import read_table
from fairfix.individual.flips import flipped, protected_flips
from fairfix.methods.sensei.regularized import MEASURED, FlippedRows, Training, set_aside
from fairfix.models.repaired import Repaired
from scipy.optimize import linprog

from tests.promises.harness import NOT_SAID, Ran, Shell, Tried, judged, promise, split_of
from tests.results import texts_of

PEOPLE = 20_000
"""Rows that stand for the population."""


@dataclass(frozen=True)
class World:
    """People whose features have units of their own, hang on the group, and may all be categories."""

    groups: int
    units: np.ndarray[Any, Any]
    lean: np.ndarray[Any, Any]
    coef: np.ndarray[Any, Any]
    bonus: np.ndarray[Any, Any]
    texts: int
    middle: float

    @classmethod
    def drawn(cls, rng: np.random.Generator, columns: int) -> World:
        groups = int(rng.integers(2, 5))
        numbers = 0 if rng.random() < 0.3 else columns
        return cls(
            groups,
            10.0 ** rng.uniform(-6, 6, numbers),
            rng.normal(size=(numbers, groups)) * rng.choice([0.0, 1.0]),
            rng.normal(size=numbers) / np.sqrt(max(numbers, 1)),
            rng.normal(size=groups) * rng.choice([0.2, 1.0]),
            1 if numbers and rng.random() < 0.5 else 2,
            rng.uniform(-1.5, 1.5),
        )

    def people(self, rng: np.random.Generator, many: int) -> pd.DataFrame:
        group = np.arange(many) % self.groups
        Z = rng.normal(size=(many, self.units.size)) + self.lean.T[group]
        texts = [(rng.integers(0, 4, many) + (rng.random(many) < 0.4) * group) % 4 for _ in range(self.texts)]
        z = self.middle + Z @ self.coef + self.bonus[group] + sum(0.5 * (text - 1.5) for text in texts)
        return pd.DataFrame(
            {f"x{j}": column * unit for j, (column, unit) in enumerate(zip(Z.T, self.units, strict=True))}
            | {f"c{j}": np.array(list("abcd"))[text] for j, text in enumerate(texts)}
            | {
                "sex": [f"g{k}" for k in group],
                "label": (rng.random(many) < 1 / (1 + np.exp(-z))).astype(int),
            }
        )


def repaired(shell: Shell, frame: pd.DataFrame, *more: object) -> tuple[Ran, str]:
    """Return what the repair of a file said, and where its artifact is."""
    names = ",".join(name for name in frame if name not in ("sex", "label"))
    made = str(shell.folder / "made.fairfix")
    given = ("--method", "sensei", "--protected", "sex", "--label", "label", "--features", names, "-o", made)
    done = shell.run("repair", shell.write(frame), *given, *more)
    assert done.status == 0, done.err
    return done, made


def said(done: Ran) -> str:
    """Return all notes and warnings."""
    return " | ".join(texts_of(done.result))


def flips_of(shell: Shell, made: str, people: pd.DataFrame, cut: float) -> float:
    """Return the share of people whose decision changes if they were of another group."""
    decided = [
        shell.predict(made, shell.write(people.assign(sex=level), "people.parquet"))["prediction"] >= cut
        for level in sorted(people["sex"].unique())
    ]
    found = np.stack(decided)
    return float((found.any(axis=0) & ~found.all(axis=0)).mean())


def few_or_many(rng: np.random.Generator, most: int) -> int:
    return round(np.exp(rng.uniform(np.log(56), np.log(most))))


def chosen(rng: np.random.Generator, shell: Shell) -> tuple[Ran, str, World, float, float]:
    """Return a linear repair with a chosen weight, its world, threshold and slack."""
    world = World.drawn(rng, int(rng.integers(2, 12)))
    cut, slack = round(rng.uniform(0.05, 0.95), 3), float(rng.choice([0.0, 0.01, 0.05, 0.2]))
    frame = world.people(rng, few_or_many(rng, 6000))
    more = ("--solver", "regularizer", "--group", "used", "--threshold", cut, "--slack", slack)
    done, made = repaired(shell, frame, *more)
    return done, made, world, cut, slack


@promise(level=0.05, quick=3, full=300)
def what_rho_auto_says(rng: np.random.Generator, shell: Shell) -> Tried:
    """At most this fraction of decisions changes with flips (rho auto)."""
    done, made, world, cut, slack = chosen(rng, shell)
    found = re.search(r"at most ([0-9.]+) of decisions at", said(done))
    old = re.search(r"with flips: ([0-9.]+) on rows not fitted to", said(done))
    most = float((found or old)[1]) if found or old else 0.0 if "rho inf" in said(done) else None
    if most is None:
        return NOT_SAID
    truth = flips_of(shell, made, world.people(rng, PEOPLE), cut)
    # what is measured on so many people is off by at most three standard errors
    near = 3.0 * np.sqrt(max(most * (1.0 - most), 0.0) / PEOPLE)
    return judged(truth <= most + near, f"{truth:.4f} > {most} at {cut}, slack {slack}")


@promise(level=0.05, quick=3, full=300)
def interval_of_flips(rng: np.random.Generator, shell: Shell) -> Tried:
    """95% interval of the fraction of decisions that change."""
    done, made, world, cut, _ = chosen(rng, shell)
    rows = {row["name"]: row["after"] for row in done.result["proof"]["holdout"]["table"]}
    row = rows["decision_flips.under_flips [sex]"]
    truth = flips_of(shell, made, world.people(rng, PEOPLE), cut)
    near = 3.0 * np.sqrt(truth * (1.0 - truth) / PEOPLE)
    holds = row["low"] - near <= truth <= row["high"] + near
    return judged(holds, f"{truth:.4f} not in [{row['low']}, {row['high']}] at {cut}")


@dataclass(frozen=True)
class Copied:
    """A world whose people have copies: of another group, with numbers moved towards it and sometimes another text."""

    world: World
    move: np.ndarray[Any, Any]
    noise: float
    most: int

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> Copied:
        world = World.drawn(rng, int(rng.integers(2, 8)))
        move = rng.normal(size=world.units.size) * (rng.random(world.units.size) < 0.6)
        return cls(world, move, rng.choice([0.0, 0.2]), int(rng.integers(1, 5)))

    def people(self, rng: np.random.Generator, many: int) -> pd.DataFrame:
        return self.world.people(rng, many).assign(person=[f"p{i}" for i in range(many)])

    def copies(self, rng: np.random.Generator, people: pd.DataFrame) -> pd.DataFrame:
        """Return from none to the most copies of each person, in any order."""
        copies = people.loc[np.repeat(people.index, rng.integers(0, self.most + 1, len(people)))].copy()
        there = rng.normal(size=(len(copies), self.move.size)) * self.noise + self.move
        for j, unit in enumerate(self.world.units):
            copies[f"x{j}"] += there[:, j] * unit
        for j in range(self.world.texts):
            copies[f"c{j}"] = np.where(rng.random(len(copies)) < 0.5, copies[f"c{j}"], "a")
        copies["sex"] = f"g{rng.integers(0, self.world.groups)}"
        return copies.drop(columns="label").sample(frac=1.0, random_state=int(rng.integers(2**31)))


def with_copies(rng: np.random.Generator, shell: Shell) -> tuple[Ran, str, Copied, float]:
    """Return a linear repair with copies of some people, its world and threshold."""
    world = Copied.drawn(rng)
    cut, slack = round(rng.uniform(0.2, 0.8), 3), float(rng.choice([0.01, 0.05, 0.2]))
    frame = world.people(rng, few_or_many(rng, 5000) + 200)
    copies = world.copies(
        rng, frame.sample(frac=rng.uniform(0.3, 1.0), random_state=int(rng.integers(2**31)))
    )
    more = ["--solver", "regularizer", "--threshold", cut, "--slack", slack, "--id", "person"]
    more += ["--group", "used"] if rng.random() < 0.5 else []
    more += ["--similar", shell.write(copies, "copies.parquet")]
    features = ",".join(name for name in frame if name not in ("sex", "label", "person"))
    made = str(shell.folder / "made.fairfix")
    usual = tuple(
        shlex.split(f"--method sensei --protected sex --label label --features {features} -o {made}")
    )
    done = shell.run("repair", shell.write(frame), *usual, *more)
    assert done.status == 0, done.err
    return done, made, world, cut


def changes_with_copies(
    rng: np.random.Generator, shell: Shell, made: str, world: Copied, cut: float
) -> tuple[np.ndarray[Any, Any], ...]:
    """Return of new people with copies who is decided otherwise in one, the mean change and the std of each score."""
    people = world.people(rng, PEOPLE)
    copies = world.copies(rng, people)
    own, others = (
        shell.predict(made, shell.write(one, "people.parquet"), "--duplicates", "share")[
            "prediction"
        ].to_numpy()
        for one in (people, copies)
    )
    at = copies["person"].str[1:].astype(int).to_numpy()
    each = pd.DataFrame(
        {"at": at, "gap": np.abs(others - own[at]), "flip": (others >= cut) != (own[at] >= cut)}
    ).groupby("at")
    every = pd.DataFrame({"at": np.append(at, np.unique(at)), "score": np.append(others, own[np.unique(at)])})
    spread = every.groupby("at")["score"].std(ddof=0)
    return each["flip"].any().to_numpy(), each["gap"].mean().to_numpy(), spread.to_numpy()


@promise(level=0.05, quick=3, full=200)
def what_rho_auto_says_of_copies(rng: np.random.Generator, shell: Shell) -> Tried:
    """At most this fraction of people gets another decision in a copy (rho auto)."""
    done, made, world, cut = with_copies(rng, shell)
    told = re.search(r"at most ([0-9.]+) of people with copies", said(done))
    if not told:
        return NOT_SAID
    most, truth = float(told[1]), float(changes_with_copies(rng, shell, made, world, cut)[0].mean())
    near = 3.0 * np.sqrt(most * (1.0 - most) / PEOPLE)
    return judged(truth <= most + near, f"{truth:.4f} > {most} at {cut}")


@promise(level=0.05, quick=3, full=200)
def intervals_of_copies(rng: np.random.Generator, shell: Shell) -> Tried:
    """95% intervals of the results of copies."""
    done, made, world, cut = with_copies(rng, shell)
    rows = {row["name"]: row["after"] for row in done.result["proof"]["holdout"]["table"]}
    tried = Tried(0)
    for name, each in zip(
        ("decision_flips", "counterfactual_gap", "score_std"),
        changes_with_copies(rng, shell, made, world, cut),
        strict=True,
    ):
        row = rows[f"{name}.under_counterfactuals [sex]"]
        truth, near = float(each.mean()), 3.0 * float(each.std()) / np.sqrt(each.size)
        holds = row["low"] - near <= truth <= row["high"] + near
        tried += judged(holds, f"{name} {truth:.5f} not in [{row['low']}, {row['high']}] at {cut}")
    return tried


def rows_of_the_fit(frame: pd.DataFrame, path: str) -> tuple[Any, np.ndarray[Any, Any], np.random.Generator]:
    """Return the table, the numbers of the rows that a repair with seed 0 fits to, and its source of chance."""
    names = [name for name in frame if name not in ("sex", "label")]
    data_spec = DataSpec(ColumnRoles(("sex",), label="label"), thresholds=(0.5,))
    table = read_table(open_source(path), data_spec, names)
    return table, split_of(table, data_spec).fit, np.random.default_rng(0).spawn(2)[1]


@promise(level=0.0, quick=3, full=150)
def gap_of_equal_rates(rng: np.random.Generator, shell: Shell) -> Tried:
    """Equal rates are within this of the overall rates on the training rows."""
    world = World.drawn(rng, int(rng.integers(2, 12)))
    frame = world.people(rng, few_or_many(rng, 4000) + 200)
    slack = float(rng.choice([0.0, 0.01, 0.05, 0.2]))
    try:
        done, made = repaired(shell, frame, "--solver", "equal-rates", "--slack", slack)
    except AssertionError as error:
        if "so it has no rate to equalize" in str(error):
            return NOT_SAID
        raise
    path = shell.write(frame)
    _, fit, _ = rows_of_the_fit(frame, path)
    out = shell.predict(made, path).iloc[fit]
    y, sex, chance = (
        frame["label"].to_numpy()[fit],
        frame["sex"].to_numpy()[fit],
        out["p_positive"].to_numpy(),
    )
    gap = max(
        abs(chance[(y == label) & (sex == one)].mean() - chance[y == label].mean())
        for label in (0, 1)
        for one in np.unique(sex)
    )
    told = re.search(r"within ([0-9.]+) of the overall rates, as the rule", said(done))
    printed = float(told[1]) if told else slack
    holds = abs(printed - gap) <= 1e-4 if told else gap <= slack + 1e-6
    fits = gap <= slack + 1e-5 or "exceeds the slack" in said(done)
    return judged(holds and fits, f"gap {gap:.4f}, said {printed}, slack {slack}, {len(fit)} rows")


@promise(level=0.0, quick=1, full=40)
def bounds_of_the_regularizer(rng: np.random.Generator, shell: Shell) -> Tried:
    """The regularizer at a radius is between its bounds (network)."""
    world = World.drawn(rng, int(rng.integers(2, 5)))
    frame = world.people(rng, few_or_many(rng, 400))
    radius = round(float(np.exp(rng.uniform(np.log(0.01), np.log(2.0)))), 4)
    words = f"--solver regularizer --learner network --group used --set rho={rng.choice([0.0, 1.0])}"
    more = (*words.split(), "--similar", f"near(radius={radius})")
    done, made = repaired(shell, frame, *more)
    told = re.search(
        r"at least ([0-9.e+-]+) by a transport plan .* at most ([0-9.e+-]+) by a bound", said(done)
    )
    if not told:
        return NOT_SAID
    low, high = float(told[1]), float(told[2])
    table, fit, fit_rng = rows_of_the_fit(frame, shell.write(frame))
    seed, table = int(fit_rng.integers(2**31)), table.take(fit)
    (scorer,) = Repaired.load(made).predictor.scorers
    X, y = scorer.features.matrix(table), np.asarray(table.rows.label, dtype=float)
    flips = [scorer.features.matrix(flipped(table, flip)) for flip in protected_flips(table, ("sex",))]
    held = np.flatnonzero(
        set_aside(
            Training(X, y, np.ones(y.size), FlippedRows.of(X, flips), X[:0], scorer.features.reach), seed + 1
        )
    )
    held = held[:: -(-held.size // MEASURED)] if held.size else np.arange(y.size)
    found = attack(rng, scorer.member, X, [one[held] for one in flips], held, scorer.features.reach, radius)
    return judged(low <= high and found <= high * (1 + 1e-3), f"{found:.4g} not below {high:.4g}; {low:.4g}")


@promise(level=0.05, quick=3, full=200)
def decisions_within_the_radius(rng: np.random.Generator, shell: Shell) -> Tried:
    """At most this fraction of decisions changes within the radius."""
    world, cut = World.drawn(rng, int(rng.integers(2, 8))), round(rng.uniform(0.2, 0.8), 3)
    learner = str(rng.choice(["linear", "linear", "network"]))
    frame = world.people(rng, few_or_many(rng, 3000 if learner == "linear" else 800))
    radius = round(float(np.exp(rng.uniform(np.log(1e-4), np.log(0.5)))), 6)
    words = f"--solver regularizer --learner {learner} --set rho={rng.choice([0.0, 1.0])}"
    more = [*words.split(), "--threshold", cut]
    near = f"near(radius={radius})"
    more += ["--group", "used"] if rng.random() < 0.6 else []
    if rng.random() < 0.4:
        near = f"learned(by=pooled),near(radius={radius},cost={rng.choice([0.0, 0.01, 1.0])})"
    more += ["--similar", near]
    done, made = repaired(shell, frame, *more)
    found = re.search(
        r"changes at most ([0-9.]+) of the decisions .* at most ([0-9.]+) in the population", said(done)
    )
    if not found:
        return NOT_SAID
    many = PEOPLE if learner == "linear" else PEOPLE // 10
    people = world.people(rng, many)
    (scorer,) = Repaired.load(made).predictor.scorers
    table = read_table(
        people, DataSpec(ColumnRoles(("sex",), label="label"), thresholds=(cut,)), [*people][:-2]
    )
    flips = protected_flips(table, ("sex",)) if "used" in more else []
    starts = [scorer.features.matrix(one) for one in (table, *(flipped(table, flip) for flip in flips))]
    costs = cheapest_crossings(rng, scorer.member, starts, scorer.features.reach, cut)
    spent = np.cumsum(np.sort(costs)) / many
    truth, most = float((spent <= radius).mean()), float(found[2])
    near = 3.0 * np.sqrt(truth * (1.0 - truth) / many)
    return judged(truth <= most + near, f"{truth:.4f} > {most}, {learner}, radius {radius}, at {cut}")


def cheapest_crossings(
    rng: np.random.Generator,
    member: Any,
    starts: list[np.ndarray[Any, Any]],
    reach: np.ndarray[Any, Any],
    cut: float,
) -> np.ndarray[Any, Any]:
    """Return the cost of the cheapest step that was found to change each decision; infinite where none was."""
    own = member.predict(starts[0]) >= cut
    best = np.full(own.size, np.inf)
    for start in starts:
        best[(member.predict(start) >= cut) != own] = 0.0
        for turn in range(2):
            slope = np.zeros(start.shape)
            for j in np.flatnonzero(reach > 0):  # by differences: nothing of the solver is used
                step = np.zeros(start.shape[1])
                step[j] = 1e-5
                slope[:, j] = (member.predict(start + step) - member.predict(start - step)) * reach[j]
            slope += turn * rng.normal(size=slope.shape) * np.sqrt(reach) * np.abs(slope).max()
            size = np.sqrt((slope**2 / np.where(reach > 0, reach, 1.0)).sum(axis=1, keepdims=True))
            way = np.where(own, -1.0, 1.0)[:, None] * slope / np.where(size > 0, size, 1.0)
            for length in 10.0 ** np.linspace(-3, 1.5, 60):
                over = (member.predict(start + length * way) >= cut) != own
                best[over] = np.minimum(best[over], length**2)
    return best


def attack(
    rng: np.random.Generator,
    net: Any,
    X: np.ndarray[Any, Any],
    flips: list[np.ndarray[Any, Any]],
    rows: np.ndarray[Any, Any],
    reach: np.ndarray[Any, Any],
    radius: float,
) -> float:
    """Return the value of the best plan over random steps and climbs from these, by a linear program."""
    low, high, out = X.min(axis=0), X.max(axis=0), net.out[:, 0]

    def logit(Z: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.clip(np.maximum(Z @ net.hidden + net.hidden_bias, 0.0) @ out + net.out_bias[0], -8, 8)

    own, cost = logit(X[rows]), np.where(reach > 0, 1.0 / np.where(reach > 0, reach, 1.0), 0.0)
    gains, costs = [np.zeros(rows.size)], [np.zeros(rows.size)]
    for start in flips:
        gains, costs = [*gains, (logit(start) - own) ** 2], [*costs, np.zeros(rows.size)]
        for _ in range(6):
            away = rng.normal(size=start.shape) * np.sqrt(reach)
            length = np.sqrt(radius) * 2.0 ** rng.uniform(-1, 4)
            for _ in range(4):
                size = np.sqrt((away**2 * cost).sum(axis=1, keepdims=True))
                there = np.where(
                    reach > 0, np.clip(start + length * away / np.maximum(size, 1e-300), low, high), start
                )
                gains.append((logit(there) - own) ** 2)
                costs.append(((there - start) ** 2 * cost).sum(axis=1))
                slope = ((there @ net.hidden + net.hidden_bias > 0) * out) @ net.hidden.T
                away = np.sign(logit(there) - own)[:, None] * slope * reach + 1e-9 * away
    G, C = np.stack(gains, axis=1), np.stack(costs, axis=1)
    n, many = G.shape
    each = np.kron(np.eye(n), np.ones((1, many)))
    found = linprog(
        -G.ravel() / n, C.ravel()[None] / n, [radius], each, np.ones(n), bounds=(0, 1), method="highs"
    )
    return -float(found.fun)
