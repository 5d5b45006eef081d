"""Promises of the closed form of fair regression, held against linear programs over randomised maps."""

from __future__ import annotations

import numpy as np
import pandas as pd
import scipy.sparse as sp
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.solvers.parity import ks_between, ks_to_overall
from scipy.optimize import linprog

from tests.promises.harness import Shell, Tried, judged, parts_of, promise
from tests.results import texts_of

TIMES = 16
"""Copies of a row that tell what it gets on average: without ids equal rows get draws that lie evenly."""


def world(rng: np.random.Generator, *, most: int = 60) -> pd.DataFrame:
    """Return rows of a regression with few distinct scores, or few rows: a program over them is small."""
    groups = int(rng.integers(2, 6))
    tied = rng.random() < 0.6
    rows = int(np.exp(rng.uniform(np.log(60), np.log(30_000)))) if tied else int(rng.integers(60, 2 * most))
    code = np.concatenate(
        [np.arange(groups).repeat(3), rng.choice(groups, rows, p=rng.dirichlet(np.full(groups, 3.0)))]
    )
    score = rng.normal(rng.uniform(-0.8, 0.8, groups)[code], rng.uniform(0.5, 1.5, groups)[code])
    if tied:  # 2 to about 25 values
        score = np.round(score * rng.choice([0.3, 1.0, 2.0, 4.0]))
    units = 10.0 ** rng.integers(-6, 7)
    frame = pd.DataFrame({"group": [f"g{k}" for k in code], "score": score * units})
    frame["y"] = frame["score"] + units * rng.normal(size=len(frame))
    if rng.random() < 0.4:
        frame["weight"] = rng.integers(1, 4, len(frame)).astype(float)
    return frame


COLUMNS = ("--protected", "group", "--label", "y", "--score", "score", "--task", "regression")
CLOSED = ("--method", "fair-regression", "--group", "used", "--set", "bin_rows=1")
"""Each score by itself: bins of more rows cost more."""


def repaired(shell: Shell, frame: pd.DataFrame, slack: float, *more: object) -> pd.DataFrame:
    """Return the rows of a fit ``TIMES`` over, with the values that the shipped rule gives them."""
    path = shell.write(frame)
    weight = ("--weight", "weight") if "weight" in frame else ()
    strata = ("stratum",) if "stratum" in frame else ()
    done = shell.run(
        *("repair", path, *CLOSED, *COLUMNS, *weight, *(("--strata", *strata) if strata else ())),
        *("--slack", slack, "-o", "r.fairfix", "-q", *more),
    )
    assert done.status == 0, done.err
    columns = ColumnRoles(("group",), label="y", score="score", strata=strata)
    rows, _ = parts_of(frame, path, DataSpec(columns, task="regression"))
    many = rows.loc[rows.index.repeat(TIMES)].reset_index(drop=True)
    out = shell.predict("r.fairfix", shell.write(many, "many.parquet"))
    many["value"] = out["prediction"].to_numpy()
    return many


def cost_of(rows: pd.DataFrame) -> float:
    """Return the mean square of what is moved, in units of the variance of the scores."""
    weight = rows.get("weight")
    moved = np.average((rows["value"] - rows["score"]) ** 2, weights=weight)
    return float(moved / rows["score"].var())


def uneven_cost(rows: pd.DataFrame, *strata: str) -> float:
    """Return by how much the cost may be off since a row is drawn ``TIMES`` times and not for ever.

    Of m rows of one score that are equal, 2 (log2(m) / 3 + 1) lie on the wrong side of a step of their values, and the
    steps add up to their range; rows that differ by weight have ``TIMES`` copies in a row, of which one does.
    """
    moved = (rows["value"] - rows["score"]) ** 2 / rows["score"].var()
    weight = rows.get("weight", pd.Series(1.0, rows.index))
    atom = [rows[name] for name in (*strata, "group", "score")]
    parts, mass = moved.groupby(atom), weight.groupby(atom).sum() / weight.sum()
    many = parts.size()
    off = np.minimum(1.0 / TIMES if "weight" in rows else 1.0, 2 * (np.log2(many) / 3 + 1) / many)
    return float((mass * (parts.max() - parts.min()) * off).sum())


def distance_of(rows: pd.DataFrame) -> float:
    """Return the largest distance of a group to everybody."""
    codes, _ = pd.factorize(rows["group"])
    weight = rows["weight"].to_numpy() if "weight" in rows else None
    return float(ks_to_overall(rows["value"].to_numpy(), codes, weight, codes.max() + 1).max())


def least_cost(rows: pd.DataFrame, slack: float) -> float:
    """Return the least cost of all randomised maps of (score, group) to the scores and the values that were shipped.

    Variables are the masses that go from an atom to a value; in every group they make its distribution, and at every
    value no group's share below it is further from everybody's than the slack.
    """
    plain, units = rows.iloc[::TIMES], rows["score"].std()
    weight = plain["weight"] if "weight" in plain else pd.Series(1.0, plain.index)
    atoms = weight.groupby([plain["group"], plain["score"]]).sum().reset_index(name="mass")
    atoms["mass"] /= atoms["mass"].sum()
    grid = np.unique(np.concatenate([rows["value"], rows["score"]])) / units
    if grid.size > 200:
        grid = np.unique(np.concatenate([np.quantile(grid, np.linspace(0, 1, 200))]))
    score, mass, codes = (
        atoms["score"].to_numpy() / units,
        atoms["mass"].to_numpy(),
        pd.factorize(atoms["group"])[0],
    )
    price = (score[:, None] - grid) ** 2
    share = np.bincount(codes, mass)
    below = sp.csr_matrix(np.tril(np.ones((grid.size, grid.size)))[:-1])
    away = []
    for k in range(share.size):
        per_atom = np.where(codes == k, 1.0 / share[k], 0.0) - 1.0
        away.append(sp.kron(per_atom[None], below))
    limits = sp.vstack([*away, *(-part for part in away)])
    found = linprog(
        price.ravel(),
        A_ub=limits,
        b_ub=np.full(limits.shape[0], slack),
        A_eq=sp.kron(sp.eye(mass.size), np.ones((1, grid.size))),
        b_eq=mass,
        method="highs",
    )
    assert found.status == 0, found.message
    return float(found.fun)


def least_cost_within(rows: pd.DataFrame, slack: float) -> float:
    """Return the same where no two groups of a stratum may be further apart than the slack."""
    plain, units, total = rows.iloc[::TIMES], rows["score"].std(), 0.0
    plain = plain if "weight" in plain else plain.assign(weight=1.0)
    for stratum, own in plain.groupby("stratum"):
        grid = np.unique(np.append(own["score"], rows.loc[rows["stratum"] == stratum, "value"])) / units
        below = sp.csr_matrix(np.tril(np.ones((grid.size, grid.size)))[:-1])
        atoms = own.groupby(["group", "score"])["weight"].sum().reset_index(name="mass")
        within = (atoms["mass"] / atoms.groupby("group")["mass"].transform("sum")).to_numpy()
        level = [(atoms["group"] == name).to_numpy(float) for name in atoms["group"].unique()]
        limits = [sp.kron((a - b)[None], below) for a in level for b in level if a is not b]
        price = (
            atoms["mass"].to_numpy()[:, None]
            / within[:, None]
            * (atoms[["score"]].to_numpy() / units - grid) ** 2
        )
        found = linprog(
            price.ravel(),
            A_ub=sp.vstack(limits) if limits else None,
            b_ub=np.full(sum(part.shape[0] for part in limits), slack) if limits else None,
            A_eq=sp.kron(sp.eye(within.size), np.ones((1, grid.size))),
            b_eq=within,
            method="highs",
        )
        assert found.status == 0, found.message
        total += float(found.fun)
    return total / float(plain["weight"].sum())


def size_of_atoms(rows: pd.DataFrame) -> float:
    """Return the largest share of its group that one score has."""
    weight = rows["weight"] if "weight" in rows else pd.Series(1.0, rows.index)
    mass = weight.groupby([rows["group"], rows["score"]]).sum()
    return float((mass / weight.groupby(rows["group"]).sum()).max())


@promise(level=0, quick=3, full=200)
def the_closed_form_is_optimal(rng: np.random.Generator, shell: Shell) -> Tried:
    """Closed form: no function of score and group that meets the slack costs less."""
    frame, slack = world(rng, most=35), float(rng.choice([0.0, 0.005, 0.02, 0.05, 0.1, 0.2]))
    rows = repaired(shell, frame, slack)
    least, cost = least_cost(rows, slack), cost_of(rows)
    where = f"cost {cost:.5f}, least {least:.5f}, slack {slack}, {len(frame)} rows"
    return judged(cost <= 1.01 * least + uneven_cost(rows) + 1e-9, where)


@promise(level=0, quick=3, full=200)
def the_closed_form_is_optimal_within_strata(rng: np.random.Generator, shell: Shell) -> Tried:
    """Closed form within strata: no map of score, group and stratum that holds the slack costs less."""
    frame, slack = world(rng, most=35), float(rng.choice([0.0, 0.02, 0.05, 0.1, 0.2]))
    frame["stratum"] = rng.choice(["s", "t", "u"], len(frame), p=rng.dirichlet([2.0, 2.0, 1.0]))
    rows = repaired(shell, frame, slack)
    least, cost = least_cost_within(rows, slack), cost_of(rows)
    where = f"cost {cost:.5f}, least {least:.5f}, slack {slack}, {len(frame)} rows"
    beyond = 0.0
    for _, own in rows.groupby("stratum"):
        code, weight = pd.factorize(own["group"])[0], own["weight"].to_numpy() if "weight" in own else None
        far = ks_between(own["value"].to_numpy(), code, weight, code.max() + 1)
        beyond = max(beyond, far - slack - 2.0 * size_of_atoms(own) / TIMES)
    return judged(
        cost <= 1.01 * least + uneven_cost(rows, "stratum") + 1e-9 and beyond <= 1e-9,
        f"{where}, beyond the slack {beyond:.5f}",
    )


@promise(level=0, quick=3, full=200)
def the_slack_holds(rng: np.random.Generator, shell: Shell) -> Tried:
    """Closed form: the distance on the rows of the fit is within the slack, in expectation."""
    frame, slack = world(rng, most=300), float(rng.choice([0.0, 0.01, 0.03, 0.1, 0.3]))
    rows = repaired(shell, frame, slack)
    found = distance_of(rows)
    # of one score, at most one copy of TIMES lies on the wrong side of a threshold, in a group and in everybody
    where = f"distance {found:.5f}, slack {slack}, {len(frame)} rows"
    return judged(found <= slack + 2.0 * size_of_atoms(rows) / TIMES + 1e-9, where)


@promise(level=0, quick=2, full=100)
def one_score_has_one_value(rng: np.random.Generator, shell: Shell) -> Tried:
    """Closed form without randomization: one value per score, at the reported distance."""
    frame, slack = world(rng, most=200), float(rng.choice([0.0, 0.02, 0.1]))
    path, weight = shell.write(frame), ("--weight", "weight") if "weight" in frame else ()
    more = ("--slack", slack, "--decisions", "deterministic", "-o", "r.fairfix", "-q")
    done = shell.run("repair", path, *CLOSED, *COLUMNS, *weight, *more)
    assert done.status == 0, done.err
    rows, _ = parts_of(
        frame, path, DataSpec(ColumnRoles(("group",), label="y", score="score"), task="regression")
    )
    rows["value"] = shell.predict("r.fairfix", shell.write(rows, "rows.parquet"))["prediction"].to_numpy()
    split = int((rows.groupby(["group", "score"])["value"].nunique() > 1).sum())
    told = next(r for r in done.result["proof"]["fit"]["table"] if r["name"] == "ks.to_overall [group]")
    far, warned = (
        distance_of(rows),
        any("exceeds the slack" in one for one in texts_of(done.result, "warning")),
    )
    right = abs(told["after"]["value"] - far) < 1e-9 and warned == (far > slack + 1e-12)
    return judged(
        not split and right, f"{split} scores with two values, {far:.4f} from everybody, slack {slack}"
    )
