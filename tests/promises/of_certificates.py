"""Certificates: what is proven of a shipped rule, against the optimum by a conic solver.

The values that a certificate names are those of the rule that was written, on the rows of the fit.
"""

from __future__ import annotations

import json
import math
import shlex
from typing import Any

import cvxpy
import numpy as np
import numpy.typing as npt
import pandas as pd
from fairfix.data.data_spec import ColumnRoles, DataSpec
from scipy.interpolate import CubicSpline

from tests.promises.harness import NOT_SAID, Ran, Shell, Tried, judged, promise, split_of
from tests.promises.of_group_loss import HOLDOUT, Truth, World, bounded

Floats = npt.NDArray[np.float64]


def proven(done: Ran, shell: Shell) -> dict[str, Any]:
    """Return the certificate of a repair, which its artifact and ``inspect`` have as well."""
    solution = done.result["solution"]
    told = shell.run("inspect", shell.folder / "r.fairfix", "--format", "json").out
    assert json.loads(told)["facts"]["solution"] == solution
    return solution["certificates"][0] | {"converged": solution["converged"]}


def bracket(one: dict[str, Any], value: float, best: float, near: float, where: str) -> Tried:
    """Return whether value and bound of a certificate stand on both sides of the optimum, and the value is true."""
    good = abs(one["value"] - value) <= near and one["bound"] <= best + near and best <= one["value"] + near
    good = good and (not one["converged"] or one["gap"] <= 100 * near)
    return judged(good, f"{where}: {one['bound']:.9g} <= {best:.9g} <= {value:.9g}, told {one['value']:.9g}")


@promise(level=0.0, quick=5, full=300)
def certificate_of_bounded_group_loss(rng: np.random.Generator, shell: Shell) -> Tried:
    """The mean loss is at most GAP above the smallest of linear models that meet the bounds."""
    world, l2 = World.drawn(rng, most=200), float(rng.choice([0.0, 1e-3, 0.1]))
    truth = Truth(world, l2)
    shape = rng.uniform(0.6, 1.5, len(truth.names))
    bounds = float(rng.choice([1.001, 1.03, 1.3])) * truth.least(shape) * shape
    done = world.repaired(shell, *bounded(bounds, truth.names), "--learner", f"linear(l2={l2})")
    if done.status:
        return NOT_SAID
    values = world.predicted(shell)[world.fitted()]
    rows = world.frame.iloc[world.fitted()]
    slope = _slopes(rows, world, values)
    value = float(truth.shares @ truth.losses(values)) + l2 * float(slope @ slope)
    near = 1e-6 * truth.unit**2
    return bracket(proven(done, shell), value, truth.optimum(bounds), near, f"unit {world.unit:.1e}, l2 {l2}")


def _slopes(rows: pd.DataFrame, world: World, values: Floats) -> Floats:
    """Return the least standardised coefficients that give the values."""
    w = rows["w"].to_numpy()
    parts = []
    for name in world.features:
        if name == "kind":
            parts += [(rows[name] == level).to_numpy(float) for level in sorted(set(rows[name]))]
            continue
        x = rows[name].to_numpy()
        mean = np.average(x, weights=w)
        parts.append((x - mean) / math.sqrt(np.average((x - mean) ** 2, weights=w)))
    X = np.stack(parts, axis=1)
    return np.linalg.lstsq(X - X.mean(axis=0), values - values.mean(), rcond=None)[0]


@promise(
    "the objective of the ramp is at most GAP above the smallest of all acceptance probabilities "
    "that meet the slack, the covariance or the ratio, for recorded groups, groups of each column, "
    "or probabilities of groups",
    level=0.0,
    quick=4,
    full=200,
)
def certificate_of_the_ramp(rng: np.random.Generator, shell: Shell) -> Tried:
    groups, many = int(rng.integers(2, 5)), int(rng.integers(60, 250))
    code = np.concatenate([np.arange(groups).repeat(3), rng.integers(0, groups, many)])
    score = np.clip(rng.beta(2, 2, code.size) + 0.1 * rng.normal(size=groups)[code], 0, 1)
    if rng.random() < 0.4:
        score = score.round(1)
    frame = pd.DataFrame({"id": np.arange(code.size), "group": [f"g{k}" for k in code], "score": score})
    gamma, slack = float(rng.choice([0.01, 0.3, 2.0])), float(rng.choice([0.0, 0.02, 0.2]))
    ratio = float(rng.choice([0.0, 0.5, 0.8]))
    bound: tuple[Any, ...] = ("--constraint", f"dp.ratio>={ratio}") if ratio else ("--slack", slack)
    protected, parts = {"group": code}, np.eye(groups)[code]
    way = "ratio" if ratio else str(rng.choice(["crossed", "each", "covariance", "membership"]))
    if way == "each":  # two columns, each alone, that hang together
        protected["side"] = (rng.random(code.size) < 0.3 + 0.3 * (code == 0)).astype(int)
        frame["side"] = [f"s{k}" for k in protected["side"]]
        bound = ("--constraint", f"dp[each]<={slack}")
    if way == "covariance":
        gamma = float(rng.choice([0.0, gamma]))
        bound += ("--constraint", "covariance")
    asked = ("--protected", ",".join(protected))
    if way == "membership":
        protected, parts = {}, rng.dirichlet(np.ones(groups), code.size)
        frame = frame.assign(**{f"p{k}": parts[:, k] for k in range(groups)})
        asked = ("--noise", "membership:" + ",".join(f"p{k}" for k in range(groups)))
    asked = (*asked, "--score", "score", "--id", "id", "--method", "ramp")
    told = ("--gamma", gamma, *bound, "--holdout", HOLDOUT, "-o", shell.folder / "r.fairfix")
    done = shell.run("repair", shell.write(frame), *asked, *told)
    data_spec = DataSpec(ColumnRoles(tuple(protected), score="score"))
    fit = split_of(frame[[*protected, "score"]], data_spec, HOLDOUT).fit
    f, q, held = 2 * score[fit] - 1, cvxpy.Variable(fit.size), []
    each = [np.eye(column.max() + 1)[column] for column in protected.values()] or [parts]
    for own in (z[fit][:, z[fit].sum(axis=0) > 0] for z in each):
        rates = [z @ q / z.sum() for z in own.T]
        center = cvxpy.sum(q) / fit.size if way == "covariance" else cvxpy.Variable()
        half = slack / own.mean(axis=0) if way == "covariance" else np.full(len(rates), slack / 2)
        held += [cvxpy.abs(rate - center) <= d for rate, d in zip(rates, half, strict=True) if not ratio]
        held += [one >= ratio * other for one in rates for other in rates if ratio]
    held += [q >= 0, q <= 1]
    cost = (gamma / 2 * cvxpy.sum_squares(q) - f @ q) / fit.size
    best = float(cvxpy.Problem(cvxpy.Minimize(cost), held).solve(solver="CLARABEL"))
    chance = shell.predict(str(shell.folder / "r.fairfix"), shell.write(frame))["p_positive"].to_numpy()[fit]
    value = float(np.mean(gamma / 2 * chance**2 - f * chance))
    return bracket(proven(done, shell), value, best, 1e-7, f"gamma {gamma}, {bound}")


@promise(
    "the log loss against the fair adversary is at most GAP above the smallest of scores that meet "
    "the slack, between groups or within each stratum",
    level=0.0,
    quick=3,
    full=120,
)
def certificate_of_the_log_loss(rng: np.random.Generator, shell: Shell) -> Tried:
    groups, width, many = int(rng.integers(2, 4)), int(rng.integers(1, 4)), int(rng.integers(60, 160))
    code = np.concatenate([np.arange(groups).repeat(5), rng.integers(0, groups, many)])
    X = rng.normal(size=(code.size, width)) + 0.6 * rng.normal(size=(groups, width))[code]
    y = (X.sum(axis=1) + rng.normal(size=code.size) > 0).astype(int)
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(width)])
    towns = int(rng.integers(1, 4))
    town = rng.integers(0, towns, code.size)
    frame = frame.assign(group=[f"g{k}" for k in code], town=[f"t{k}" for k in town], label=y)
    l2, slack = float(rng.choice([1e-3, 0.1])), float(rng.choice([0.0, 0.05, 0.3]))
    basis = ("plain", "splines")[int(rng.integers(2))]
    asked = tuple(shlex.split(f"--protected group --label label --method logloss --slack {slack}"))
    asked += ("--learner", f"linear(l2={l2},basis={basis})")
    strata = ("town",) if towns > 1 else ()
    asked += ("--strata", "town") if strata else ()
    names = ",".join(frame.columns[:width])
    told = ("--features", names, "--holdout", HOLDOUT, "-o", shell.folder / "r.fairfix")
    done = shell.run("repair", shell.write(frame), *asked, *told)
    if done.status:
        return NOT_SAID
    data_spec = DataSpec(ColumnRoles(("group",), label="label", strata=strata))
    fit = split_of(frame[["group", "town", "label"]], data_spec, HOLDOUT).fit
    Z, label = (X[fit] - X[fit].mean(axis=0)) / X[fit].std(axis=0), y[fit]
    Z = np.hstack([Z, *map(_natural, Z.T)]) if basis == "splines" else Z
    Z = np.hstack([Z, np.eye(groups)[code[fit]]])  # a rule that uses the group learns from it too
    v, b, P, center = (
        cvxpy.Variable(Z.shape[1]),
        cvxpy.Variable(),
        cvxpy.Variable(fit.size),
        cvxpy.Variable(towns),
    )
    z = Z @ v + b
    cells = [(t, (code[fit] == k) & (town[fit] == t)) for t in range(towns) for k in range(groups)]
    held = [cvxpy.abs(P[own].sum() / own.sum() - center[t]) <= slack / 2 for t, own in cells if own.any()]
    each = cvxpy.maximum(z - cvxpy.log(P), -cvxpy.log(1 - P)) - cvxpy.multiply(label, z)
    cost = cvxpy.sum(each) / fit.size + l2 / 2 * cvxpy.sum_squares(v)
    best = float(cvxpy.Problem(cvxpy.Minimize(cost), held).solve(solver="CLARABEL"))
    one = proven(done, shell)
    return bracket(one, one["value"], best, 1e-6, f"{basis}, l2 {l2}, slack {slack}, {towns} strata")


def _natural(x: Floats) -> Floats:
    """Return natural cubic splines of different values by scipy, uncorrelated with these and of variance 1, (n, 5)."""
    row, knots = -1, []
    for left in range(7, 0, -1):  # even between .025 and .975, as far as rows go
        level = 0.025 if row < 0 else (row + 1) / x.size + (0.975 - (row + 1) / x.size) / left
        row = math.ceil(level * x.size - 1e-6) - 1
        knots.append(np.sort(x)[row])
    each = CubicSpline(knots, np.eye(7), bc_type="natural")
    inside = np.clip(x, knots[0], knots[-1])
    curves = each(inside) + (x - inside)[:, None] * each(inside, 1)
    basis = np.linalg.qr(np.column_stack([np.ones(x.size), x, curves[:, 1:-1]]))[0]
    return basis[:, 2:] * math.sqrt(x.size)
