"""Fronts of fair regression (Figure 1 of the paper): loss against KS, beside the paper's oracles and rivals.

``python benchmarks/fair_regression_fronts.py [DATA ...]`` prints Markdown. Every method gets the same ten slacks, or
ten parts of the way where it knows no slack, and the same halves of the same rows. For a distance (KS of a group to
everybody, over all thresholds) that is asked for, the point with the least training loss is taken of those that keep it
on the training rows, the constant among them; its loss and distance on the test rows are shown. Mixtures are judged in
expectation.

Rivals that know no slack go from a linear model that sees the group to a fair end: the barycentre (E. Chzhen and
others, 2020); *SEO*, the regression on features whose group means are taken out, so that no feature is correlated with
the group; *full substitution*, which says of a row what the model says on average over all groups (K. D. Johnson, D. P.
Foster and R. A. Stine, 2016). The published code has as SEO a regression without the group's term: with centred columns
that is full substitution.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.scan import read_table
from fairfix.data.table import Table
from fairfix.methods.fair_regression import FairRegression
from fairfix.methods.problem import RepairProblem
from fairfix.models.learners import fit_mean
from threadpoolctl import threadpool_limits

from fair_regression import FEW, SLACKS
from fair_regression_peers import (
    XGBOOST,
    Data,
    Floats,
    Matrix,
    Official,
    Point,
    adult,
    barycentre,
    boosted_trees,
    chosen,
    communities,
    constant,
    fairlearn_parity,
    halves,
    judged,
    lawschool,
    matrices,
)
from tabular import present

DRAWS = 50
"""Draws of each training row, by which drawn values are judged."""

SPLITS, DECISION_SPLITS = 10, 1

Pair = tuple[Point, Point]
"""Loss and distance on the training rows and on the test rows."""


def table_of(data: Data) -> Table:
    """Return a data set as fairfix reads it."""
    task = "regression" if data.loss == "square" else "classification"
    return read_table(data.frame, DataSpec(ColumnRoles((data.group,), label=data.label), task=task))


def ours(data: Data, seed: int, *, aware: bool, learner: str) -> list[Pair]:
    """Return the points of the closed form or the plug-in over the slacks, features learned as users do.

    Training rows have the values of models that have not seen them.
    """
    table = table_of(data)
    train, test = halves(data, seed)
    names = tuple(table.features.column_names)
    problem = RepairProblem(table.take(train), None, names, aware)
    new = table.take(test)
    before, after = matrices(data, seed, aware=aware)
    out = []
    for slack in SLACKS:
        predictor = FairRegression(slack=slack, learner=learner).fit(problem, rng=np.random.default_rng(0))
        trace = predictor.trace
        assert trace.fitted is not None
        if trace.redrawn is None:
            own = judged(data.loss, before, trace.fitted)
        else:  # in expectation over the draws, as mixtures are
            draws = [(i + 0.5) / DRAWS for i in range(DRAWS)]
            every = np.arange(train.size)
            each = [
                trace.redrawn(replace(problem.table, draw=lambda some, d=d: np.full(some.size, d)), every)
                for d in draws
            ]
            own = judged(data.loss, before, np.stack(each), np.full(DRAWS, 1 / DRAWS))
        out.append((own, judged(data.loss, after, predictor.predict(new))))
    return out


def official(data: Data, seed: int, oracle: str, *, aware: bool) -> list[Pair]:
    """Return the points of the authors' algorithm, with intercept, scaled features and the tie mended."""
    train, test = matrices(data, seed, aware=aware)
    out = []
    for eps in SLACKS:
        model = Official(eps, oracle, data.loss).fit(train)
        own, new = (judged(data.loss, rows, *model.scores(rows.X)) for rows in (train, test))
        out.append((own, new))
    return out


Said = Callable[[Matrix], Floats]
"""What a model says of rows."""


def linear(data: Data, train: Matrix) -> Said:
    """Return the unconstrained linear model."""
    model = fit_mean(train.X, train.y, None, learner="linear", loss=data.loss, l2=1e-3, seed=0)
    return lambda rows: model.predict(rows.X)


def trees(data: Data, train: Matrix) -> Said:
    """Return XGBoost unconstrained, as the authors' code sets it."""
    model = boosted_trees(data.loss).fit(train.X, train.y)
    if data.loss == "logistic":
        return lambda rows: np.asarray(model.predict_proba(rows.X)[:, 1], dtype=np.float64)
    return lambda rows: np.asarray(model.predict(rows.X), dtype=np.float64)


def without_means(data: Data, train: Matrix) -> Said:
    """Return the linear model of features without their group means: SEO."""
    means = np.stack([train.X[train.codes == k].mean(axis=0) for k in range(int(train.codes.max()) + 1)])
    said = linear(data, replace(train, X=train.X - means[train.codes]))
    return lambda rows: said(replace(rows, X=rows.X - means[rows.codes]))


def averaged(data: Data, train: Matrix) -> Said:
    """Return the linear model averaged over the groups a row might be of: full substitution."""
    said, shares = linear(data, train), np.bincount(train.codes) / train.codes.size
    parts = [train.X[train.codes == k] for k in range(shares.size)]
    own = np.flatnonzero([all(np.ptp(part[:, j]) == 0 for part in parts) for j in range(train.X.shape[1])])

    def over_groups(rows: Matrix) -> Floats:
        total = np.zeros(rows.y.size)
        for share, part in zip(shares, parts, strict=True):
            X = rows.X.copy()
            X[:, own] = part[0, own]
            total += share * said(replace(rows, X=X))
        return total

    return over_groups


def moved(data: Data, train: Matrix) -> Said:
    """Return the linear model moved to the barycentre of its groups."""
    said = linear(data, train)
    of = said(train), train.codes

    def all_the_way(rows: Matrix) -> Floats:
        values = barycentre(of, (said(rows), rows.codes), 1.0)
        return values if data.loss == "square" else np.clip(values, 0, 1)

    return all_the_way


def parts_of_the_way(data: Data, seed: int, end: Callable[[Data, Matrix], Said]) -> list[Pair]:
    """Return the points between a linear model that sees the group and a fair end, in as many parts as slacks."""
    train, test = matrices(data, seed, aware=True)
    free, fair = linear(data, train), end(data, train)
    out = []
    for part in np.linspace(0, 1, len(SLACKS)):
        values = ((1 - part) * free(rows) + part * fair(rows) for rows in (train, test))
        own, new = (judged(data.loss, rows, said) for rows, said in zip((train, test), values, strict=True))
        out.append((own, new))
    return out


def fairlearn(data: Data, seed: int) -> list[Pair]:
    """Return the points of Fairlearn's reduction for demographic parity, with mixed scores."""
    train, test = matrices(data, seed, aware=True)
    out = []
    for eps in SLACKS:
        scores = fairlearn_parity(train, eps)
        out.append((judged(data.loss, train, *scores(train.X)), judged(data.loss, test, *scores(test.X))))
    return out


@dataclass(frozen=True)
class Method:
    """How points are made, and of what data."""

    points: Callable[[Data, int], list[Pair]]
    of: Callable[[Data], bool] = lambda data: True


def _few(data: Data) -> bool:
    return len(data.frame) <= FEW


def _chances(data: Data) -> bool:
    return data.loss == "logistic"


AWARE: Mapping[str, Method] = {
    "authors LS": Method(lambda d, s: official(d, s, "LS", aware=True)),
    "authors LR": Method(lambda d, s: official(d, s, "LR", aware=True), _chances),
    "authors CS": Method(lambda d, s: official(d, s, "CS", aware=True), _few),
    "authors XGBoost": Method(
        lambda d, s: official(d, s, "XGB", aware=True),
        lambda d: XGBOOST and (_few(d) or not _chances(d)),
    ),
    "SEO": Method(lambda d, s: parts_of_the_way(d, s, without_means)),
    "full substitution": Method(lambda d, s: parts_of_the_way(d, s, averaged)),
    "barycentre, linear": Method(lambda d, s: parts_of_the_way(d, s, moved)),
    "Fairlearn DP": Method(fairlearn, lambda d: _few(d) and _chances(d)),
    "closed form, linear": Method(lambda d, s: ours(d, s, aware=True, learner="linear")),
    "closed form, trees": Method(lambda d, s: ours(d, s, aware=True, learner="trees")),
}
BLIND: Mapping[str, Method] = {
    "authors LS": Method(lambda d, s: official(d, s, "LS", aware=False)),
    "authors LR": Method(lambda d, s: official(d, s, "LR", aware=False), _chances),
    "plug-in, linear": Method(lambda d, s: ours(d, s, aware=False, learner="linear")),
    "plug-in, trees": Method(lambda d, s: ours(d, s, aware=False, learner="trees"), lambda d: not _few(d)),
}
FREE: Mapping[str, Callable[[Data, Matrix], Said]] = {
    "linear, unconstrained": linear,
    **({"XGBoost, unconstrained": trees} if XGBOOST else {}),
}


def _spread(values: Floats) -> Floats:
    return np.asarray(values.std(axis=0, ddof=1) / np.sqrt(len(values)))


def front(data: Data, levels: Sequence[float], *, aware: bool) -> None:
    """Print the rows of a data set."""
    found: dict[str, list[list[Point]]] = {}
    free: dict[str, list[Point]] = {}
    for seed in range(SPLITS):
        train, test = matrices(data, seed, aware=aware)
        flat = constant(data.loss, train, train), constant(data.loss, train, test)
        for name, model in FREE.items():
            free.setdefault(name, []).append(judged(data.loss, test, model(data, train)(test)))
        for name, method in (AWARE if aware else BLIND).items():
            if method.of(data):
                points = method.points(data, seed)
                found.setdefault(name, []).append([chosen([*points, flat], level) for level in levels])
        print(f"{data.name} {aware} {seed}", file=sys.stderr)
    knows = "yes" if aware else "no"
    base = np.array([one.loss for one in free["linear, unconstrained"]])
    losses = {name: np.array([[p.loss for p in row] for row in rows]) for name, rows in found.items()}
    for name, rows in losses.items():
        far = np.mean([[p.ks for p in row] for row in found[name]], axis=0)
        told = [""] * len(levels)
        if len(data.frame) != FEW:
            oracles = [losses[one].mean(axis=0) for one in ("authors LS", "authors LR") if one in losses]
            excess = np.min(oracles, axis=0) - base.mean()
            told = [f" ({r:.2f})" for r in (rows.mean(axis=0) - base.mean()) / excess]
        cells = [
            f"{m:.5f} ± {s:.5f}{r}, KS {k:.3f}"
            for m, s, r, k in zip(rows.mean(axis=0), _spread(rows), told, far, strict=True)
        ]
        print(f"| {data.name} | {knows} | {name} | {' | '.join(cells)} |")
    for name, each in free.items():
        loss = np.array([one.loss for one in each])
        cell = f"{loss.mean():.5f} ± {_spread(loss):.5f}, KS {np.mean([one.ks for one in each]):.3f}"
        print(f"| {data.name} | {knows} | {name} | {cell} {'|  ' * (len(levels) - 1)}|", flush=True)


def reduction_for_decisions(levels: Sequence[float]) -> None:
    """Print Fairlearn's reduction, which balances decisions, on all of Adult, of few splits: each takes minutes."""
    print("### The reduction for decisions, on all of Adult (FC in Figure 1)\n")
    print(f"As above, with the group, mean of {DECISION_SPLITS} of the splits.\n")
    data, every = adult(), AWARE | {"Fairlearn DP": Method(fairlearn)}
    print(f"| method | {' | '.join(f'KS {level:g}' for level in levels)} |\n|---|{'---|' * len(levels)}")
    for name in ("authors LS", "authors LR", "Fairlearn DP", "closed form, linear"):
        found: list[list[Point]] = []
        for seed in range(DECISION_SPLITS):
            train, test = matrices(data, seed, aware=True)
            flat = constant(data.loss, train, train), constant(data.loss, train, test)
            points = every[name].points(data, seed)
            found.append([chosen([*points, flat], level) for level in levels])
        means = np.mean([[(p.loss, p.ks) for p in row] for row in found], axis=0)
        print(f"| {name} | {' | '.join(f'{loss:.5f}, KS {ks:.3f}' for loss, ks in means)} |", flush=True)
    print()


def main() -> None:
    """Print the fronts of all data sets, or of those named."""
    print("## Test loss and KS at equal training KS (Figure 1)\n")
    print(
        "Every method has the same ten slacks or parts, of which the training rows choose. Mean over "
        f"{SPLITS} splits ± standard error; in brackets the excess over the unconstrained linear model, divided by "
        "that of the better of the authors' LS and LR; not for 2,000 rows, where that model overfits. KS is of a "
        "group to overall, over all thresholds. Base scores of ours are out of fold. The authors' oracles fit, to "
        "the score of least cost of each row, least squares (LS), logistic regression (LR), XGBoost, and (CS) a hinge "
        "of all costs.\n"
    )
    if not XGBOOST:
        print("XGBoost is not installed: its rows are left out.\n")
    small, wide = (0.05, 0.1, 0.2), (0.1, 0.15, 0.2)
    cases: list[tuple[str, Callable[[], Data], tuple[float, ...]]] = [
        ("adult", adult, small),
        ("lawschool", lawschool, small),
        ("adult", lambda: adult(FEW), small),
        ("lawschool", lambda: lawschool(FEW), small),
        ("communities", communities, wide),
    ]
    found, missing = present({file: file for file, *_ in cases})
    for line in missing:
        print(f"{line}\n")
    with threadpool_limits(1):
        for levels in dict.fromkeys(own for file, _, own in cases if file in found):
            heads = " | ".join(f"KS {level:g}" for level in levels)
            print(f"| data | sees group | method | {heads} |\n|---|---|---|{'---|' * len(levels)}")
            for file, source, own in cases:
                if own != levels or file not in found:
                    continue
                data = source()
                if data.name in (sys.argv[1:] or [data.name]):
                    front(data, levels, aware=True)
                    front(data, levels, aware=False)
            print()
        if "adult" in found and "adult" in (sys.argv[1:] or ["adult"]):
            reduction_for_decisions(small)


if __name__ == "__main__":
    main()
