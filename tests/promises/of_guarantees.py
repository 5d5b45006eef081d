"""Promises of people who are not in the data: the gap of the population under a repair with ``--guarantee``.

The gap is that of many fresh people, or exact where scores are few: every atom of every group with its chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tests.promises.harness import Shell, Tried, distance_to_overall, judged, promise
from tests.promises.of_noise import CONSTRAINTS, Population, chances, people, survey, true_rates
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
    return max(float(np.ptp(_ends(frame, chance, mass, kind))) for kind in rows)


def _ends(frame: pd.DataFrame, chance: Any, mass: Any, kind: str) -> tuple[float, float]:
    """Return the least and the largest rate of a group, among rows with masses."""
    y = frame["label"].to_numpy()
    inside = {"all": mass > 0, "positives": (y == 1) & (mass > 0), "negatives": (y == 0) & (mass > 0)}[kind]
    parts = (
        pd.DataFrame({"m": mass[inside], "q": (mass * chance)[inside]})
        .groupby(frame["race"].to_numpy()[inside])
        .sum()
    )
    rates = parts["q"] / parts["m"]
    return float(rates.min()), float(rates.max())


def _asked(rng: np.random.Generator, shell: Shell, frame: pd.DataFrame, *method: object) -> dict[str, Any]:
    """Return the guarantee of a repair."""
    words = ("--protected", "race", "--id", "id", "--guarantee", 0.95, "--seed", int(rng.integers(99)))
    done = shell.did("repair", shell.write(frame), *words, "--method", *method, "-o", "r.fairfix")
    told: dict[str, Any] = done.result["guarantee"]
    least = told.get("least_ratio")
    assert told["holds"] == (told["bound"] <= told["slack"] if least is None else told["bound"] >= least)
    assert done.status == (0 if told["holds"] else 3), (done.status, told)
    return told


def _few_or_many(rng: np.random.Generator, least: int, most: int) -> int:
    return int(np.exp(rng.uniform(np.log(least), np.log(most))))


def _of_ramp(rng: np.random.Generator, shell: Shell, constraint: str, *, ratio: bool = False) -> Tried:
    world = World.drawn(rng)
    frame = world.people(rng, _few_or_many(rng, 150, 12_000))
    more = ["--gamma", rng.choice([0, 0.05, 0.5]), "--set", f"shape={rng.choice(['one-sided', 'centred'])}"]
    if rng.random() < 0.25:
        more = ["--decisions", "deterministic"]
    elif rng.random() < 0.25:
        more = ["--gamma", "0,0.05,0.3"]
    if ratio:
        more += ["--constraint", f"{constraint}.ratio>={rng.choice([0.5, 0.8, 0.9])}"]
    else:
        more += ["--constraint", constraint, "--slack", round(float(rng.choice([0.02, 0.05, 0.1, 0.2])), 3)]
    told = _asked(rng, shell, frame, "ramp", *more)
    of, exact = RATES[told["criterion"].replace(".ratio.", ".difference.")], world.atoms is not None
    if exact:
        everybody, mass = world.population()
    else:
        everybody, mass = world.of_groups(rng, np.arange(FRESH) % len(world.shares)), np.ones(FRESH)
    there = everybody["race"].isin(frame["race"].unique())
    everybody, mass = everybody[there], mass[there]
    after = shell.predict("r.fairfix", shell.write(everybody, "everybody.parquet"))["p_positive"].to_numpy()
    if ratio:
        return judged(*_least_ratio(told, everybody, after, mass, of, 0.0 if exact else TOLD / 2, str(more)))
    gap = _exact_gap(everybody, after, mass, of) if exact else largest_gap(everybody, after, of) - TOLD
    where = f"{more}: {gap:.4f} is above {told['bound']:.4f} ({told['way']})"
    return judged(gap <= told["bound"], where)


def _least_ratio(
    told: dict[str, Any],
    frame: pd.DataFrame,
    chance: Any,
    mass: Any,
    rows: tuple[str, ...],
    off: float,
    how: str,
) -> tuple[bool, str]:
    """Return whether the ratio of rates, each known to ``off``, is at least the bound, and where not; none is 0."""
    low, high = _ends(frame, chance, mass, rows[0])
    ratio = min((low + off) / max(high - off, 1e-12), 1.0) if high > 0 else 0.0
    return ratio >= told["bound"] - 1e-12, f"{how}: {ratio:.4f} is below {told['bound']:.4f} ({told['way']})"


@promise(level=0.05, quick=3, full=1000)
def guarantee_of_parity(rng: np.random.Generator, shell: Shell) -> Tried:
    """With 95% confidence, the demographic parity of the population is within the bound (ramp)."""
    return _of_ramp(rng, shell, "demographic_parity")


@promise(level=0.05, quick=2, full=1000)
def guarantee_of_odds(rng: np.random.Generator, shell: Shell) -> Tried:
    """With 95% confidence, rates given the label are alike in the population within the bound (ramp)."""
    return _of_ramp(rng, shell, str(rng.choice(["equal_opportunity", "equalized_odds"])))


@promise(level=0.05, quick=3, full=1000)
def guarantee_of_ratios(rng: np.random.Generator, shell: Shell) -> Tried:
    """With 95% confidence, the ratio of rates in the population is at least the bound (ramp)."""
    constraint = rng.choice(
        ["demographic_parity", "equal_opportunity", "predictive_equality"], p=[0.6, 0.2, 0.2]
    )
    return _of_ramp(rng, shell, str(constraint), ratio=True)


@promise(level=0.05, quick=2, full=1000)
def guarantee_of_each_column(rng: np.random.Generator, shell: Shell) -> Tried:
    """With 95% confidence, rates are alike by each of two columns in the population within the bound (ramp).

    Groups overlap, and how they do is as in the population: the second column hangs on the first and the score.
    """
    world = World.drawn(rng, smooth=True)
    lean, town = rng.normal(size=len(world.shares)), float(rng.normal())

    def with_sex(frame: pd.DataFrame) -> pd.DataFrame:
        code = frame["race"].str[1:].astype(int).to_numpy()
        z = lean[code] + town * (frame["score"].to_numpy() - 0.5)
        return frame.assign(sex=np.where(rng.random(len(frame)) < 1 / (1 + np.exp(-z)), "f", "m"))

    frame = with_sex(world.people(rng, _few_or_many(rng, 400, 12_000)))
    slack, constraint = (
        float(rng.choice([0.05, 0.1, 0.2])),
        rng.choice(["demographic_parity", "equal_opportunity"]),
    )
    more = ("--protected", "sex", "--constraint", f"{constraint}[each]<={slack}")
    told = _asked(rng, shell, frame, "ramp", *more, "--gamma", rng.choice([0.05, 0.5]))
    everybody = with_sex(world.people(rng, FRESH))
    cells = frame["race"] + frame["sex"]
    everybody = everybody[(everybody["race"] + everybody["sex"]).isin(cells.unique())]
    after = shell.predict("r.fairfix", shell.write(everybody, "everybody.parquet"))["p_positive"].to_numpy()
    of = RATES[told["criterion"]]
    gap = (
        max(largest_gap(everybody.assign(race=everybody[name]), after, of) for name in ("race", "sex")) - TOLD
    )
    return judged(gap <= told["bound"], f"{more}: {gap:.4f} is above {told['bound']:.4f} ({told['way']})")


@promise(level=0.05, quick=3, full=1000)
def guarantee_of_losses(rng: np.random.Generator, shell: Shell) -> Tried:
    """With 95% confidence, the mean loss of each group in the population is within its bound (bounded group loss).

    Of 0/1 labels, and of real ones with a few that are far from the others; bounds that bind and that do not.
    """
    world = World.drawn(rng, smooth=True)
    real, far = bool(rng.random() < 0.5), float(rng.choice([1.0, 10.0]))

    def with_label(frame: pd.DataFrame) -> pd.DataFrame:
        rare = 1 + (far - 1) * (rng.random(len(frame)) < 0.01)
        return frame.assign(amount=(frame["x"] + rng.normal(size=len(frame)) * rare).clip(-8 * far, 8 * far))

    frame = with_label(world.people(rng, _few_or_many(rng, 200, 6_000)))
    loss = str(rng.choice(["square", "absolute", "quantile"] if real else ["logistic", "square"]))
    about = {"square": 1.2 + far**2 / 80, "absolute": 1.0, "quantile": 0.5, "logistic": 0.68}[loss]
    bound = round((about if real or loss == "logistic" else 0.24) * float(rng.choice([1.0, 1.1, 1.3])), 4)
    more: tuple[object, ...] = ("--constraint", f"bounded_group_loss<={bound}", "--loss", loss)
    if real:
        more += ("--task", "regression", "--label", "amount", "--set", f"label_range={-8 * far},{8 * far}")
    told = _asked(rng, shell, frame, "fair-regression", *more, "--features", "x,x2")
    everybody = with_label(world.people(rng, FRESH))
    everybody = everybody[everybody["race"].isin(frame["race"].unique())].reset_index(drop=True)
    value = shell.predict("r.fairfix", shell.write(everybody, "everybody.parquet"))["prediction"].to_numpy()
    y = everybody["amount" if real else "label"].to_numpy(float)
    v = value.clip(1e-6, 1 - 1e-6)
    lost = {
        "square": (y - value) ** 2,
        "absolute": abs(y - value),
        "quantile": abs(y - value) / 2,
        "logistic": -np.log(np.where(y == 1, v, 1 - v)),
    }[loss]
    means = pd.Series(lost).groupby(everybody["race"])
    sure = 4 * means.std() / np.sqrt(means.size())  # what fresh people leave open
    wrong = [
        f"{own['group']}: {means.mean()[own['group']]:.4f} is above {own['bound']:.4f}"
        for own in told["limits"]
        if means.mean()[own["group"]] - sure[own["group"]] > own["bound"]
    ]
    return judged(not wrong, f"{more}: {', '.join(wrong)}")


def _fresh(world: World, rng: np.random.Generator, shell: Shell, frame: pd.DataFrame) -> pd.DataFrame:
    """Return fresh people with what the repair gives them."""
    everybody = world.people(rng, FRESH)
    everybody = everybody[everybody["race"].isin(frame["race"].unique())]
    return shell.predict("r.fairfix", shell.write(everybody, "everybody.parquet"))


@promise(level=0.05, quick=2, full=1000)
def guarantee_of_distributions(rng: np.random.Generator, shell: Shell) -> Tried:
    """With 95% confidence, values are distributed alike in the population within the bound (fair regression)."""
    world = World.drawn(rng)
    frame = world.people(rng, _few_or_many(rng, 300, 6_000))
    slack = float(rng.choice([0.05, 0.1, 0.2]))
    aware = ("--group", "used", "--features", rng.choice(["score", "x,x2"]))
    more: tuple[object, ...] = aware if rng.random() < 0.7 else ("--features", "score")
    if more == aware and rng.random() < 0.3:
        more = (*aware, "--decisions", "deterministic")
    told = _asked(rng, shell, frame, "fair-regression", "--slack", slack, *more)
    fresh = _fresh(world, rng, shell, frame)
    gap = distance_to_overall(fresh["prediction"].to_numpy(), fresh["race"].to_numpy()) - TOLD
    return judged(
        gap <= told["bound"], f"{more} slack {slack}: {gap:.4f} is above {told['bound']:.4f} ({told['way']})"
    )


@promise(level=0.05, quick=2, full=1000)
def guarantee_of_learned_rates(rng: np.random.Generator, shell: Shell) -> Tried:
    """With 95% confidence, rates are alike in the population within the bound (robust log loss)."""
    world = World.drawn(rng, smooth=True)
    frame = world.people(rng, _few_or_many(rng, 300, 6_000))
    slack, constraint = (
        float(rng.choice([0.05, 0.1, 0.2])),
        str(rng.choice(["demographic_parity", "equalized_odds"])),
    )
    more = ("--constraint", constraint, "--decisions", rng.choice(["randomized", "deterministic"]))
    told = _asked(rng, shell, frame, "logloss", "--features", "x,x2", "--slack", slack, *more)
    everybody = _fresh(world, rng, shell, frame)
    taken = everybody["p_positive"] if "p_positive" in everybody else everybody["decision"]
    gap = largest_gap(everybody, taken, RATES[told["criterion"]]) - 2 * TOLD
    return judged(gap <= told["bound"], f"{more} slack {slack}: {gap:.4f} is above {told['bound']:.4f}")


@promise(
    "with 95% confidence, the fraction of decisions in the population that depend on the group is "
    "within the bound (SenSeI)",
    level=0.05,
    quick=2,
    full=1000,
)
def guarantee_of_flips(rng: np.random.Generator, shell: Shell) -> Tried:
    world = World.drawn(rng, smooth=True)
    frame = world.people(rng, _few_or_many(rng, 300, 4_000))
    slack = float(rng.choice([0.01, 0.05, 0.2]))
    solver = rng.choice(["merge", "regularizer", "equal-rates"], p=[0.1, 0.5, 0.4])
    more = ("--group", "used") if solver == "regularizer" else ()
    if many := solver != "equal-rates" and rng.random() < 0.3:
        last = frame["race"] == frame["race"].max()
        frame["label"] = np.where(
            frame["label"] == 0, "none", np.where(last | (frame["x"] > 0), "some", "all")
        )
        frame = frame.drop(columns="score")
        more = (*more, "--task", "multiclass")
    told = _asked(
        rng, shell, frame, "sensei", "--solver", solver, "--features", "x,x2", "--slack", slack, *more
    )
    everybody = _fresh(world, rng, shell, frame)
    if solver == "equal-rates":
        gap = _to_everybody(everybody)
    else:
        wide = [
            shell.predict("r.fairfix", shell.write(everybody[list(frame)].assign(race=name), "one.parquet"))[
                "prediction" if many else "decision"
            ].to_numpy()
            for name in sorted(frame["race"].unique())
        ]
        gap = float((np.array(wide) != wide[0]).any(axis=0).mean())
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


def _farthest(population: Population, joint: Any, chance: Any, labels: tuple[int, ...]) -> float:
    """Return how far from everybody a true group may be, by any people who make up these joint masses.

    It takes the likeliest to be accepted of each recorded group, and label where the masses are by label, or the least.
    """
    recorded = population.recorded
    parts = [(recorded[..., y], joint[y]) for y in labels] if joint.ndim == 3 else [(recorded.sum(-1), joint)]
    about = recorded[..., list(labels)].sum(-1)
    overall, out = float((about * chance).sum() / about.sum()), 0.0
    for j in range(joint.shape[-2]):
        total = sum(table[j].sum() for _, table in parts)
        for way in (1, -1):
            rate = 0.0
            for mass, table in parts:
                for k, own in enumerate(mass):
                    at = np.argsort(chance[k])[::way]
                    ends = np.cumsum(own[at])
                    rate += np.clip(table[j, k] - ends + own[at], 0, own[at]) @ chance[k][at]
            out = max(out, abs(rate / total - overall)) if total > 0 else out
    return out


@promise(level=0.05, quick=2, full=1000)
def guarantee_of_true_groups(rng: np.random.Generator, shell: Shell) -> Tried:
    """With 95% confidence, unrecorded true groups are within the bound of the overall rate (robust).

    By tables that are known and by surveys, under each assumption; people are the worst that it allows.
    """
    true = int(rng.choice([2, 3, 4]))
    noisy = max(true + int(rng.choice([-1, 0, 0, 0, 1])), 2)
    assumption = str(rng.choice(["certified", "soft", "identified", "epsilon"], p=[0.35, 0.25, 0.25, 0.15]))
    identified = assumption in ("identified", "epsilon")
    by_label = assumption == "certified" or (identified and bool(rng.random() < 0.4))
    population = people(rng, true, noisy, gap=2.0, by_label=by_label)
    constraint = "demographic_parity" if assumption == "soft" else str(rng.choice(list(CONSTRAINTS)))
    _, _, labels = CONSTRAINTS[constraint]
    kept = "noisy-given-true" if identified else str(rng.choice(["noisy-given-true", "true-given-noisy"]))
    form, rows = str(rng.choice(["count", "joint"])), int(rng.choice([300, 2000, 20_000]))
    table = survey(rng, population.joint(by_label), kept, form, rows)
    assumed = {"identified": "class-conditional", "epsilon": "eps=0.05"}.get(assumption, "none")
    more: tuple[object, ...] = ("--assume", assumed, "--constraint", constraint)
    said = f"(keep={kept})" if identified or rng.random() < 0.7 else ""
    more = (*more, "--slack", rng.choice([0.05, 0.2, 0.5]), "--group", rng.choice(["used", "unused"]))
    frame = population.frame(rng, _few_or_many(rng, 1000, 20_000))
    told = _asked(rng, shell, frame, "robust", "--noise", shell.write(table, "noise.csv") + said, *more)
    chance = chances(shell, "r.fairfix", population, noisy)
    if identified:
        about = population.recorded[..., list(labels)].sum(-1)
        overall = float((about * chance).sum() / about.sum())
        gap = float(np.abs(true_rates(population, chance, labels) - overall).max())
    else:
        gap = _farthest(population, population.joint(by_label), chance, labels)
    where = f"{true} of {noisy}, {form} {rows}, kept {kept}, {more}: {gap:.4f} is above {told['bound']:.4f}"
    return judged(gap <= told["bound"] + 1e-9, where)
