"""Promises about bounded group loss and the reduction: bounds held, refusals right, and no unit of the label.

The truth is a conic program over the same class of models, on the rows of the fit.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import cvxpy
import numpy as np
import numpy.typing as npt
import pandas as pd
from fairfix.data.choices import Task
from fairfix.data.data_spec import ColumnRoles, DataSpec

from tests.promises.harness import NOT_SAID, Ran, Shell, Tried, judged, promise, split_of

Floats = npt.NDArray[np.float64]
HOLDOUT = 0.2


@dataclass(frozen=True)
class World:
    """Rows with a label in some unit; groups follow different lines, so that no model is right for all."""

    frame: pd.DataFrame
    features: tuple[str, ...]
    unit: float
    weighted: bool

    @classmethod
    def drawn(cls, rng: np.random.Generator, *, unit: float | None = None, most: float = 600) -> World:
        groups, width = int(rng.integers(2, 7)), int(rng.integers(1, 7))
        rows = np.round(np.exp(rng.uniform(np.log(15), np.log(most), groups))).astype(int)
        code = rng.permutation(np.repeat(np.arange(groups), rows))
        X = rng.normal(size=(code.size, width)) * 10 ** rng.uniform(-3, 3, width)
        own = rng.normal(size=(groups, width)) * rng.choice([0.2, 1.0])
        y = ((X / X.std(axis=0)) * (rng.normal(size=width) + own[code])).sum(axis=1) + rng.normal(
            size=groups
        )[code]
        y += rng.choice([0.01, 0.3, 1.0]) * (0.3 + rng.random(groups))[code] * rng.normal(size=code.size)
        unit = 10 ** rng.uniform(-6, 6) if unit is None else unit
        frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(width)])
        if rng.random() < 0.3:
            frame["kind"] = rng.choice(["p", "q", "r"], code.size)
        features = tuple(frame.columns)
        frame["group"] = [f"g{k}" for k in code]
        frame["y"] = unit * (y + rng.choice([0.0, 30.0]))
        weighted = bool(rng.random() < 0.3)
        frame["w"] = rng.uniform(0.5, 3.0, code.size) if weighted else 1.0
        if rng.random() < 0.3:
            frame = pd.concat([frame, frame.iloc[: code.size // 2]], ignore_index=True)
        return cls(frame, features, unit, weighted)

    def repaired(self, shell: Shell, *more: object, task: str = "regression") -> Ran:
        """Run the repair as a user does."""
        weight = ("--weight", "w") if self.weighted else ()
        data = shell.write(self.frame)
        asked = f"--protected group --label y --task {task} --features {','.join(self.features)}".split()
        method = ("--method", "fair-regression", "--holdout", HOLDOUT, "-o", shell.folder / "r.fairfix")
        return shell.run("repair", data, *asked, *method, *weight, *more)

    def predicted(self, shell: Shell, *more: object) -> Floats:
        """Return the values of the shipped rule, shape (n,)."""
        told = shell.predict(str(shell.folder / "r.fairfix"), shell.write(self.frame), *more)
        return told["prediction"].to_numpy(dtype=float)

    def fitted(self, task: Task = "regression") -> npt.NDArray[np.int64]:
        """Return the numbers of the rows of the fit."""
        data_spec = DataSpec(ColumnRoles(("group",), label="y"), task=task)
        return split_of(self.frame[["group", "y"]], data_spec, HOLDOUT).fit


class Truth:
    """Losses of linear models on the rows of the fit, for labels of variance 1."""

    def __init__(self, world: World, l2: float) -> None:
        some = world.frame.iloc[world.fitted()]
        w = some["w"].to_numpy()
        parts = []
        for name in world.features:
            if name == "kind":
                parts += [(some[name] == level).to_numpy(float) for level in sorted(set(some[name]))]
                continue
            x = some[name].to_numpy()
            mean = np.average(x, weights=w)
            parts.append((x - mean) / math.sqrt(np.average((x - mean) ** 2, weights=w)))
        y = some["y"].to_numpy()
        self.level = float(np.average(y, weights=w))
        self.unit = math.sqrt(float(np.average((y - self.level) ** 2, weights=w)))
        self.names = sorted(set(some["group"]))
        self.code, self.y, self.w, self.l2 = np.searchsorted(self.names, some["group"]), y, w, l2
        self.shares = np.bincount(self.code, w) / w.sum()
        whole = np.column_stack([*parts, np.ones(len(some)), (y - self.level) / self.unit])
        self.roots = []
        for k in range(len(self.names)):
            own = self.code == k
            mass = np.sqrt(w[own] / w[own].sum())
            self.roots.append(np.linalg.qr(whole[own] * mass[:, None], mode="r"))
        self.v = cvxpy.Variable(len(parts) + 1)
        ends = cvxpy.hstack([self.v, np.array([-1.0])])
        self.terms = [cvxpy.sum_squares(R @ ends) for R in self.roots]

    def least(self, shape: Floats) -> float:
        """Return the least ``t`` such that a model has losses of at most ``t shape``."""
        t = cvxpy.Variable()
        held = [term <= t * one for term, one in zip(self.terms, shape, strict=True)]
        return float(cvxpy.Problem(cvxpy.Minimize(t), held).solve(solver="CLARABEL")) * self.unit**2

    def optimum(self, bounds: Floats) -> float:
        """Return the least mean loss plus penalty within the bounds."""
        held = [
            term <= one / self.unit**2
            for term, one in zip(self.terms, bounds, strict=True)
            if math.isfinite(one)
        ]
        cost = sum(share * term for share, term in zip(self.shares, self.terms, strict=True))
        cost = cost + self.l2 * cvxpy.sum_squares(self.v[:-1])
        return float(cvxpy.Problem(cvxpy.Minimize(cost), held).solve(solver="CLARABEL")) * self.unit**2

    def losses(self, values: Floats) -> Floats:
        """Return the losses of values, in squared units of the label."""
        each = self.w * (values - self.y) ** 2
        return np.bincount(self.code, each) / np.bincount(self.code, self.w)


def bounded(bounds: Floats, names: list[str]) -> tuple[str, ...]:
    """Return the options for bounds of groups."""
    told = f"square_loss.max<={float(bounds[0])!r}"
    if np.ptp(bounds):
        each = zip(names, bounds.tolist(), strict=True)
        told = ", ".join(f"square_loss[group={name}]<={bound!r}" for name, bound in each)
    return ("--constraint", told)


@promise(level=0.0, quick=12, full=500)
def bounds_are_held_or_refused(rng: np.random.Generator, shell: Shell) -> Tried:
    """The bound holds in every group of the training rows, and only impossible bounds are errors."""
    world, l2 = World.drawn(rng), float(rng.choice([0.0, 1e-3]))
    truth = Truth(world, l2)
    shape = np.ones(len(truth.names)) if rng.random() < 0.5 else rng.uniform(0.6, 1.5, len(truth.names))
    factor = float(rng.choice([0.3, 0.999, 1.001, 1.03]))
    bounds = factor * truth.least(shape) * shape
    done = world.repaired(shell, *bounded(bounds, truth.names), "--learner", f"linear(l2={l2})")
    where = f"unit {world.unit:.1e}, {factor} times the least bound, {len(truth.names)} groups"
    if done.status == 2:
        found = "no linear model (square loss) meets --constraint" in done.err and factor < 1
        named = re.search(r"every group can meet is ([-+\d.e]+)", done.err)
        if named and found:
            least = truth.least(shape)
            found = least * (1 - 1e-6) <= float(named[1]) <= least * (1 + 1e-4)
        return judged(found, f"{where}: refused: {done.err}")
    values = world.predicted(shell)[world.fitted()]
    over = truth.losses(values) / bounds - 1.0
    best = truth.optimum(bounds) if factor > 1 else math.nan
    cost = float(truth.shares @ truth.losses(values))
    good = factor > 1 and over.max() <= 1e-6 and cost <= best + 1e-5 * truth.unit**2
    return judged(
        good, f"{where}: losses {over.max():.2%} over their bounds, mean {cost:.6g} of at least {best:.6g}"
    )


@promise(level=0.0, quick=6, full=300)
def moved_values_are_not_refused(rng: np.random.Generator, shell: Shell) -> Tried:
    """A bound that holds with values clipped to [0, 1] is not an error.

    One feature with far values: a grid over slope and intercept finds what a moved line can hold.
    """
    groups = int(rng.integers(2, 4))
    rows = rng.integers(8, 60, groups)
    code = np.repeat(np.arange(groups), rows)
    x = rng.normal(size=code.size) + rng.normal(size=groups)[code]
    far = rng.random(code.size) < 0.15
    x = np.where(far, x * rng.choice([5.0, 30.0]), x)
    y = (x + rng.choice([0.1, 0.6]) * rng.normal(size=code.size) > 0).astype(int)
    frame = pd.DataFrame({"x": x, "group": [f"g{k}" for k in code], "y": y, "w": 1.0})
    world = World(frame, ("x",), 1.0, False)
    try:
        rows_of = world.fitted("classification")
    except ValueError:
        return NOT_SAID
    some = frame.iloc[rows_of]
    names = sorted(set(some["group"]))
    own = np.searchsorted(names, some["group"])
    if len(set(some["y"])) < 2 or len(names) < groups:
        return NOT_SAID
    slope, middle = (one.ravel() for one in np.meshgrid(np.geomspace(0.03, 30, 60), np.linspace(-2, 2, 81)))
    lines = np.clip(0.5 + slope[:, None] * (some["x"].to_numpy() - middle[:, None]), 0, 1)
    each = (lines - some["y"].to_numpy()) ** 2
    least = float(np.stack([each[:, own == k].mean(axis=1) for k in range(groups)]).max(axis=0).min())
    bound = least * float(rng.choice([1.001, 1.1, 1.5])) + 1e-9
    done = world.repaired(
        shell,
        *(*bounded(np.full(groups, bound), names), "--loss", "square", "--learner", "linear(l2=0)"),
        task="classification",
    )
    if done.status == 2:
        claim = "no linear model (square loss) holds" in done.err
        return judged(
            not claim, f"a line moved into [0, 1] has {least:.4g}, {bound:.4g} is refused: {done.err}"
        )
    values = world.predicted(shell)[rows_of]
    worst = float((np.bincount(own, (values - some["y"]) ** 2) / np.bincount(own)).max())
    return judged(worst <= bound * (1 + 1e-6), f"worst loss {worst:.6g} over {bound:.6g}")
