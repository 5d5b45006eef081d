"""Repairs of true groups behind noisy ones: Adult and credit default, each row under a named assumption.

``python benchmarks/noisy_repair.py [SPLITS]`` prints Markdown. The setting is that of the paper (tables 2 and 3): Adult
with equal opportunity by race, credit default with equalized odds by education, a share ``gamma`` of all rows moved to
another group, the true groups of the test rows for judging. A logistic regression without the group is fitted to 60%
of the rows, thresholds to 80%, and 20% judge. The paper trains a linear model with the constraint instead; so do the
rows "dro" and "soft", with exact worst cases, without and with the recorded group as a feature (the paper has it), on
the same 80%; all but the paper's own two at some shares of noise, as that takes time. The oracle is given the true
groups, for thresholds of the same kind; what the others err more is the cost of not knowing them.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.scan import read_table
from fairfix.data.table import Table
from fairfix.methods.learned import mean_of
from fairfix.methods.problem import RepairProblem
from fairfix.methods.robust import Robust
from fairfix.methods.robust.histogram import Binned, Kinds, bin_edges, bins_of
from fairfix.models.learners import fit_mean
from fairfix.noise.bounds import valid_radius
from fairfix.noise.description import Noise, NoiseTable
from fairfix.noise.model_mixtures import mix_models
from fairfix.noise.rates import Parity
from fairfix.noise.score_bin_bounds import (
    Assumption,
    BoundedDependence,
    ClassConditional,
    KnownTable,
    KnownTableByLabel,
)
from fairfix.noise.thresholds import solve_noisy
from fairfix.noise.training import Adversary, NoisyRows, TableInterval, TotalVariationBalls, train
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from published import Figure, row_of
from tabular import folder, present

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FILES = {"Adult": "adult", "Credit": "credit_default"}
SPLITS = 10
GAMMAS = (0.1, 0.2, 0.3, 0.4, 0.5)
SMALL = (0.02, 0.05)
TRAINED_GAMMAS = (0.1, 0.3, 0.5)
BUCKETS = 10
EPSILON = 0.05

OF_FIT = ", training rows"
"""Mark of results on the rows that the thresholds were found on."""

ORACLE = "oracle: true groups known"

RULES = {
    "unconstrained": "none",
    ORACLE: "nothing is noisy",
    "naive": "recorded groups are true",
    "robust identified, z 0": "N4",
    "robust identified, z 0.5": "N4",
    "robust identified, z 1": "N4",
    "robust epsilon .05": "N3",
    "robust certified": "N2",
    "robust, solver oracle, certified": "N2",
    "robust, solver soft, certified": "N2",
    "robust, solver soft, certified, sees the recorded group": "N2",
    "robust, solver soft": "N1",
    "robust, solver soft, sees the recorded group": "N1",
    "robust, solver dro": "N0",
    "robust, solver dro, sees the recorded group": "N0",
}
"""Rule -> what it assumes of the noise."""

OWN = {
    "robust, solver soft, sees the recorded group": "paper, soft assignments",
    "robust, solver dro, sees the recorded group": "paper, DRO",
}
"""Rules trained as the paper has them, at all its shares of uniform noise -> its row."""

COSTS = ("naive", "robust identified, z 1", "robust epsilon .05", "robust certified", *OWN)
"""Rules whose error is set against that of the oracle."""

PAPER = {"Adult": "Table 2", "Credit": "Table 3"}
"""Data set -> the table of the paper with error and violation under uniform noise."""


@dataclass(frozen=True)
class Data:
    """Features without the group, labels, true groups; what is held alike, and how nearly."""

    name: str
    X: Floats
    y: Ints
    group: Ints
    names: tuple[str, ...]
    constraint: str
    slack: float


def load(name: str, buckets: int = BUCKETS) -> Data:
    """Return a data set: numbers cut into buckets, these and categories as indicators."""
    place = folder()
    if place is None:
        raise SystemExit("No data: name a folder by FAIRFIX_DATA_DIR.")
    if name == "Adult":
        frame = pd.read_parquet(place / "adult.parquet").drop(columns="fnlwgt")
        label, race = frame.pop("income"), frame.pop("race").astype(str)
        group = race.where(race.isin(["White", "Black"]), "other")
        constraint, slack = "one_sided_equal_opportunity", 0.05
    else:
        frame = pd.read_parquet(place / "credit_default.parquet")
        label, education = frame.pop("default"), frame.pop("EDUCATION")
        group = education.map({1: "graduate", 2: "university"}).fillna("other")
        frame = frame.astype(dict.fromkeys(["SEX", "MARRIAGE"], str))
        constraint, slack = "one_sided_equalized_odds", 0.03
    pieces = [_pieces(frame[name], buckets) for name in frame.columns]
    X = pd.get_dummies(pd.concat(pieces, axis=1), dtype=float).to_numpy(np.float64)
    names, codes = np.unique(group.to_numpy().astype(str), return_inverse=True)
    y = label.to_numpy().astype(np.int64)
    return Data(name, X, y, codes.astype(np.int64), tuple(map(str, names)), constraint, slack)


def _pieces(column: pd.Series, buckets: int) -> pd.Series:
    """Return a column as text; numbers of many values cut at quantiles of the distinct ones."""
    if not pd.api.types.is_numeric_dtype(column) or column.nunique() <= 2 * BUCKETS:
        return column.astype(str)
    cuts = np.quantile(np.unique(column.dropna()), np.arange(1, buckets) / buckets)
    return pd.Series(np.searchsorted(cuts, column).astype(str), column.index, name=column.name)


def noisy(data: Data, gamma: float, rng: np.random.Generator, first: Floats | None) -> Ints:
    """Return recorded groups: a share of the rows moved to another group, those with the largest ``first`` in each."""
    out, many = data.group.copy(), len(data.names)
    order = rng.permutation(data.y.size)
    if first is None:
        moved = order[: int(gamma * data.y.size)]
    else:
        order = order[np.argsort(-first[order], kind="stable")]
        inside = [order[data.group[order] == j] for j in range(many)]
        moved = np.concatenate([rows[: int(gamma * rows.size)] for rows in inside])
    out[moved] = (out[moved] + rng.integers(1, many, moved.size)) % many
    return out


def tables(data: Data, recorded: Ints) -> tuple[NoiseTable, NoiseTable, NoiseTable]:
    """Return the table by label, the one without, and that of no noise."""
    many = len(data.names)
    by_label = np.zeros((2, many, many))
    np.add.at(by_label, (data.y, data.group, recorded), 1.0)
    made = (by_label, by_label.sum(0), np.eye(many))
    return tuple(NoiseTable("table", data.names, data.names, masses, "count") for masses in made)


def carried(told: NoiseTable, names: tuple[str, ...], masses: Floats) -> Floats:
    """Return the table of the same people, whose shares differ by sampling alone, for masses of recorded groups."""
    table, padded = replace(told, keep="true-given-noisy").for_data(names, masses)
    return table.tables(padded)[0][..., : len(names)]


def rules(data: Data, recorded: Ints, *, few: bool) -> Iterator[tuple[str, Assumption, NoiseTable]]:
    """Yield each rule with what it is told; few of them where there is little noise."""
    labelled, plain, none = tables(data, recorded)
    yield "naive", KnownTable(), none
    yield "robust certified", KnownTableByLabel(), labelled
    if few:
        return
    for z in (0.0, 0.5, 1.0):
        yield f"robust identified, z {z:g}", ClassConditional(z), plain
    yield "robust epsilon .05", BoundedDependence(EPSILON), labelled


def table_of(data: Data, score: Floats, recorded: Ints, rows: Ints) -> Table:
    """Return rows as fairfix reads them."""
    frame = pa.table(
        {
            "recorded": np.array(data.names)[recorded[rows]],
            "label": data.y[rows],
            "score": score[rows],
        }
    )
    return read_table(
        frame, DataSpec(ColumnRoles(("recorded",), label="label", score="score"), thresholds=(0.5,))
    )


def violation(data: Data, rows: Ints, chance: Floats) -> Floats:
    """Return what each true group misses its limit by, in its worst rate, expected over draws."""
    y, group = data.y[rows], data.group[rows]
    out = []
    for label, sign in (
        ((1, 1.0),) if data.constraint == "one_sided_equal_opportunity" else ((1, 1.0), (0, -1.0))
    ):
        own = y == label
        rates = np.bincount(group[own], chance[own]) / np.bincount(group[own])
        out.append(sign * (chance[own].mean() - rates) - data.slack)
    return np.max(out, axis=0)


def judged(data: Data, rows: Ints, chance: Floats) -> tuple[float, Floats]:
    """Return expected error and violations."""
    return float(np.where(data.y[rows] == 1, 1 - chance, chance).mean()), violation(data, rows, chance)


Found = dict[tuple[str, str, float], list[tuple[float, Floats]]]


def thresholds(data: Data, table: Table, assumed: Assumption, told: NoiseTable) -> tuple[Floats, Floats]:
    """Return where bins begin, and the chances of each recorded group, as ``--method robust`` finds them.

    Raises
    ------
    ValueError
        The data refute the assumption.
    """
    problem = RepairProblem(table, noise=Noise(told))
    bins = 20 if isinstance(assumed, BoundedDependence) else 100
    scored = mean_of(problem, "linear", "logistic", 0.0, 0)
    seen = Binned.of(problem, scored, data.constraint, bins, Kinds.recorded(problem, blind=False))
    joint = carried(told, problem.groups.names, seen.n.sum(1).T if told.by_label else seen.n.sum((1, 2)))
    if isinstance(assumed, ClassConditional):
        assumed = ClassConditional(assumed.z, seen.rows)
    return seen.edges, solve_noisy(seen.n, joint, data.constraint, data.slack, assumed).F


def one_split(data: Data, seed: int, found: Found, refused: dict[tuple[str, str, float], int]) -> None:
    """Add the results of a split."""
    rng = np.random.default_rng([seed, data.y.size])
    order = rng.permutation(data.y.size)
    cuts = [int(0.6 * order.size), int(0.8 * order.size)]
    train, test = order[: cuts[0]], np.sort(order[cuts[1] :])
    post = np.sort(order[: cuts[1]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LogisticRegression(C=1.0, max_iter=200).fit(data.X[train], data.y[train])
    score = model.predict_proba(data.X)[:, 1]
    start = np.append(model.coef_[0], model.intercept_)
    plain = judged(data, test, (score[test] >= 0.5).astype(float))
    F, at = accepted_by(data, score, data.group, post, KnownTable(), tables(data, data.group)[2])
    oracle = judged(data, test, F[data.group, at][test])
    accepted = (score >= 0.5) * (1.0 + data.y)  # true positives first, then false ones
    for gamma in (*SMALL, *GAMMAS):
        for noise, first in (("uniform", None), ("adversarial", accepted)):
            recorded = noisy(data, gamma, rng, first)
            found.setdefault(("unconstrained", noise, gamma), []).append(plain)
            found.setdefault((ORACLE, noise, gamma), []).append(oracle)
            for name, assumed, told in rules(data, recorded, few=gamma in SMALL):
                key = (name, noise, gamma)
                try:
                    F, at = accepted_by(data, score, recorded, post, assumed, told)
                except ValueError:
                    refused[key] = refused.get(key, 0) + 1
                    continue
                chance = F[recorded, at]
                found.setdefault(key, []).append(judged(data, test, chance[test]))
                found.setdefault((f"{name}{OF_FIT}", noise, 0.0), []).append(judged(data, post, chance[post]))
            every = gamma in TRAINED_GAMMAS
            if every or (noise == "uniform" and gamma in GAMMAS):
                for name, decided in trained(data, recorded, post, start, every=every):
                    found.setdefault((name, noise, gamma), []).append(judged(data, test, decided[test]))


def accepted_by(
    data: Data, score: Floats, recorded: Ints, rows: Ints, assumed: Assumption, told: NoiseTable
) -> tuple[Floats, Ints]:
    """Return the chances of each recorded group and bin, found on some rows, and the bin of every row."""
    edges, F = thresholds(data, table_of(data, score, recorded, rows), assumed, told)
    return F, np.maximum(np.searchsorted(edges, 2.0 * score - 1.0, side="right") - 1, 0)


def trained(
    data: Data, recorded: Ints, rows: Ints, start: Floats, *, every: bool
) -> Iterator[tuple[str, Floats]]:
    """Yield the decisions of the rules that are trained, on all rows; of ``every`` rule or of the paper's own."""
    labelled, plain, _ = tables(data, recorded)
    own = recorded[rows]
    masses = np.zeros((2, len(data.names)))
    np.add.at(masses, (data.y[rows], own), 1.0 / rows.size)
    by_label = carried(labelled, data.names, masses)
    joint = carried(plain, data.names, masses.sum(0))
    parity: Parity = data.constraint
    many = len(data.names)
    with_group = np.column_stack([data.X, np.eye(many)[recorded]])
    start_with_group = np.concatenate([start[:-1], np.zeros(many), start[-1:]])
    adversaries: tuple[tuple[str, Adversary], ...] = (
        ("robust, solver soft, certified", TableInterval(by_label)),
        ("robust, solver soft", TableInterval(joint)),
        ("robust, solver dro", TotalVariationBalls(valid_radius(joint), np.arange(len(joint)))),
    )
    for (name, adversary), sees in product(adversaries, (False, True)):
        title = f"{name}, sees the recorded group" if sees else name
        if not every and title not in OWN:
            continue
        X, begin = (with_group, start_with_group) if sees else (data.X, start)
        found = train(
            X[rows],
            data.y[rows],
            own,
            None,
            len(data.names),
            adversary,
            parity,
            data.slack,
            l2=Robust().l2,
            start=begin,
        )
        yield title, (X @ found.coef + found.intercept >= 0).astype(float)
    if every:
        yield "robust, solver oracle, certified", mixed(data, own, rows, TableInterval(by_label))


def mixed(data: Data, own: Ints, rows: Ints, adversary: Adversary) -> Floats:
    """Return the chances of all rows by a mixture of linear models, found on some rows of recorded groups ``own``."""
    X, y, made = data.X[rows], data.y[rows], []

    def oracle(cost: Floats) -> Ints:
        size = np.maximum(np.abs(cost), np.abs(cost).max() * 1e-12)
        wanted, l2 = (cost < 0).astype(float), Robust().l2
        member = fit_mean(X, wanted, size / size.mean(), learner="linear", loss="logistic", l2=l2, seed=0)
        score = member.predict(X)
        edges = bin_edges(score, np.ones(y.size), y == 1, 100, -np.inf)
        made.append((member, edges))
        return bins_of(edges, score)

    everybody = NoisyRows(None, y, own, np.full(rows.size, 1.0 / rows.size), len(data.names))
    best = mix_models(everybody, adversary, data.constraint, data.slack, oracle)
    chance = np.zeros(data.y.size)
    for (number, cut), share in zip(best.rules, best.shares, strict=True):
        member, edges = made[number]
        chance += share * (bins_of(edges, member.predict(data.X)) >= cut)
    return chance


def cell(results: list[tuple[float, Floats]], missing: int) -> str:
    """Return error, mean of the largest violation, largest of the mean violations, and the worst split."""
    if not results:
        return "refused" if missing else ""
    errors = [error for error, _ in results]
    each = np.array([violations for _, violations in results])
    note = f" ({missing} refused)" if missing else ""
    mean, of_mean, worst = each.max(1).mean(), each.mean(0).max(), each.max()
    return f"{np.mean(errors):.4f} / {mean:+.3f} / {of_mean:+.3f} / {worst:+.3f}{note}"


def timing(data: Data) -> str:
    """Return the time of each program on 40,000 rows (or all) in 200 bins."""
    rng = np.random.default_rng(0)
    rows = np.sort(rng.permutation(data.y.size)[:40_000])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        score = LogisticRegression(max_iter=200).fit(data.X, data.y).predict_proba(data.X)[:, 1]
    recorded = noisy(data, 0.2, rng, None)
    labelled, plain, _ = tables(data, recorded)
    table = table_of(data, score, recorded, rows)
    parts = []
    for name, told, assumption, bins in (
        ("N4 z 1", plain, ClassConditional(1.0, rows.size), 200),
        ("N2", labelled, KnownTableByLabel(), 200),
        ("N3 .1", labelled, BoundedDependence(0.1), 20),
    ):
        begin = time.process_time()
        problem = RepairProblem(table, noise=Noise(told))
        scored = mean_of(problem, "linear", "logistic", 0.0, 0)
        seen = Binned.of(problem, scored, data.constraint, bins, Kinds.recorded(problem, blind=False))
        own = seen.n.sum(1).T if told.by_label else seen.n.sum((1, 2))
        try:
            solve_noisy(
                seen.n, carried(told, problem.groups.names, own), data.constraint, data.slack, assumption
            )
        except ValueError:
            parts.append(f"{name} refused")
            continue
        parts.append(f"{name} {time.process_time() - begin:.2f} s ({bins} bins)")
    return f"{data.name}, {rows.size:,} rows after scoring: {', '.join(parts)}."


def show(data: Data, many: int) -> None:
    """Print the tables of a data set."""
    found: Found = {}
    refused: dict[tuple[str, str, float], int] = {}
    for seed in range(many):
        one_split(data, seed, found, refused)
    shown = (*SMALL, *GAMMAS)
    head = " | ".join(f"gamma {gamma:g}" for gamma in shown)
    for noise in ("uniform", "adversarial"):
        what = data.constraint.replace("_", " ").replace("one sided", "one-sided")
        title = f"{data.name}, {what}, slack {data.slack:g}, {noise} noise"
        print(f"### {title}\n\n| rule | assumes | {head} |\n|---|---|{'---|' * len(shown)}")
        for rule, assumes in RULES.items():
            keys = [(rule, noise, gamma) for gamma in shown]
            cells = [cell(found.get(key, []), refused.get(key, 0)) for key in keys]
            print(f"| {rule} | {assumes} | {' | '.join(cells)} |")
        if noise == "uniform":
            for rule in OWN.values():
                says = "N1, as stated" if "soft" in rule else "N0, as stated"
                figures = (
                    " / ".join(one.value for one in printed(data.name, rule, gamma)) for gamma in GAMMAS
                )
                print(f"| {rule} | {says} | {' | ' * len(SMALL)}{' | '.join(figures)} |")
        worst = [
            f"{rule} {max(each.max() for _, each in results):+.4f}"
            for rule in RULES
            for results in [found.get((f"{rule}{OF_FIT}", noise, 0.0), [])]
            if results
        ]
        print(
            "\nLargest violation of a true group on the training rows, over all splits and gammas: "
            f"{'; '.join(worst)}.\n"
        )
        print("\n".join(costs(data.name, found, refused, noise)), "\n")
    print(timing(data), "\n")


def printed(name: str, row: str, gamma: float) -> tuple[Figure, Figure]:
    """Return the error and the violation that the paper prints in a row at a share of uniform noise."""
    own = row_of("robust", PAPER[name], row.removeprefix("paper, "))
    return own[f"error, gamma {gamma:g}"], own[f"violation, gamma {gamma:g}"]


def costs(
    name: str, found: Found, refused: Mapping[tuple[str, str, float], int], noise: str
) -> Iterator[str]:
    """Yield the table of what rules err more than the oracle and than the paper's rows."""
    paper = "; below, error / violation above the paper's" if noise == "uniform" else ""
    yield (
        f"**What not knowing the groups costs**, {noise} noise: error above the oracle's, mean ± standard "
        f"error{paper}.\n"
    )
    yield f"| rule | {' | '.join(f'gamma {gamma:g}' for gamma in GAMMAS)} |\n|---|{'---|' * len(GAMMAS)}"
    for rule in COSTS:
        cells = []
        for gamma in GAMMAS:
            errors = np.array([error for error, _ in found.get((rule, noise, gamma), [])])
            if errors.size > 1 and not refused.get((rule, noise, gamma)):
                more = errors - [error for error, _ in found[ORACLE, noise, gamma][: errors.size]]
                cells.append(f"{more.mean():+.4f} ± {more.std(ddof=1) / np.sqrt(more.size):.4f}")
            else:
                cells.append("")
        if any(cells):
            yield f"| {rule} | {' | '.join(cells)} |"
    if noise == "uniform":
        for rule, row in OWN.items():
            cells = []
            for gamma in GAMMAS:
                results = found[rule, noise, gamma]
                error = np.mean([error for error, _ in results])
                violation = round(np.mean([each.max() for _, each in results]), 3)
                figures = printed(name, row, gamma)
                gaps = [
                    mean - float(figure) for mean, figure in zip((error, violation), figures, strict=True)
                ]
                cells.append(" / ".join(f"{gap:+.3f}" for gap in gaps))
            yield f"| {rule}, above what the paper prints | {' | '.join(cells)} |"


def main() -> None:
    """Print all tables."""
    many = int(sys.argv[1]) if len(sys.argv) > 1 else SPLITS
    names, missing = present(FILES)
    print("\n\n".join(["## Repairs under noisy groups", *missing, ""]), end="")
    print(
        f"{many} random splits; expected error on test rows / mean of the largest violation over true groups / "
        "largest of the groups' mean violations / worst split. At most 0 is good; a test part of Adult has about 110 "
        "black positives, so a single split is off by .05 by chance. Uniform noise moves a share gamma of all rows to "
        "another group; adversarial noise moves as many of each group, true positives of the base first, then false "
        "ones. N4 assumes what uniform noise satisfies and the paper does not state: its like is N2. The paper's "
        "figures (error / violation) are from its Tables 2 and 3; on Adult any rule that satisfies its N1 at these "
        "gammas has error .2273 at least, since the table without labels guarantees nothing. Its features are cut more "
        "coarsely (an unconstrained model has error .1435 on Adult with them), so compare each row with the "
        "unconstrained one. *Refused*: the data contradict the assumption. The rows with a solver are trained.\n"
    )
    with threadpool_limits(1):
        for name in names:
            show(load(name), many)


if __name__ == "__main__":
    main()
