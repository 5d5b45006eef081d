"""Individual fairness on Adult: ``benchmarks/sensei.py [SPLITS]``; the rivals are in ``sensei_rivals.py``.

Every row is a mean over random 80/20 splits of the 45,222 complete rows. *BA*: balanced accuracy; *S*: share of rows
whose decision is the same as Husband and as Wife, everybody set to either; *GR*: the same for all four settings of
gender and race (white or not); *RMS* and *max*: of the gaps in true positive and true negative rate. Decisions of
probabilities are made at the base rate of the training part, which is best for balanced accuracy. Nothing is tuned on
test rows: ``rho auto`` looks at a part of the training rows, all else is as given.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.scan import read_table
from fairfix.data.table import Table
from fairfix.individual.flips import Flip, changes_of, flipped, protected_flips
from fairfix.individual.matched import keys_of, matched_effect
from fairfix.individual.residual import residual_effect
from fairfix.methods.problem import RepairProblem
from fairfix.methods.sensei import Sensei
from fairfix.methods.sensei.regularized import FlippedRows
from fairfix.models.features import Features
from fairfix.models.predictors import RepairedPredictor
from fairfix.models.scored_source import Averaged
from fairfix.solvers.network import RowVariants
from fairfix.solvers.network_fit import Adam, Trainer
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from threadpoolctl import threadpool_limits

from fair_regression_peers import _read

Floats = npt.NDArray[np.float64]

SPLITS = 4
EQUAL = (0.05, 0.02, 0.01)
"""Slacks of equal rates."""
LEARNED = 25_000 / 45_222
"""Share of the rows that the models are trained on whose scores are looked at alone."""

NUMBERS = ["age", "education_num", "capital_gain", "capital_loss", "hours_per_week"]
TEXTS = ["workclass", "marital_status", "occupation", "relationship"]
NAMES = (*NUMBERS, *TEXTS)
PAIR = "relationship=Husband,Wife"
SPOUSES = (("relationship", ("Husband", "Wife")),)


@dataclass(frozen=True)
class Row:
    """The columns of the table."""

    ba: float
    spouse: float
    joint: float
    rms_gender: float
    max_gender: float
    rms_race: float
    max_race: float
    seconds: float


def adult() -> pd.DataFrame:
    """Return complete rows with race as white or not."""
    frame = _read("adult").dropna().reset_index(drop=True)
    race = np.where(frame["race"] == "White", "White", "other")
    return frame[[*NAMES, "sex", "income"]].assign(race=race)


def table_of(frame: pd.DataFrame) -> Table:
    """Return the validated table."""
    import pyarrow as pa

    data_spec = DataSpec(ColumnRoles(("sex", "race"), label="income"))
    return read_table(frame, data_spec, NAMES, {"sex": pa.string(), "race": pa.string()})


def judged(table: Table, decide: Callable[[Table], Floats], cut: float, seconds: float) -> Row:
    """Return the figures of a rule on test rows; ``cut`` is the score from which on it accepts."""
    y = np.asarray(table.rows.label)

    def decided(rows: Table) -> Floats:
        return (decide(rows) >= cut).astype(float)

    def same(flips: list[Flip], comparable: Any = ()) -> float:
        found = np.stack([decided(flipped(table, flip, comparable)) for flip in flips])
        return float(np.mean(found.max(axis=0) == found.min(axis=0)))

    own = decided(table)
    gaps = {}
    for name in ("sex", "race"):
        codes = table.groups([name]).codes
        gaps[name] = [
            abs(own[(codes == 1) & (y == label)].mean() - own[(codes == 0) & (y == label)].mean())
            for label in (0, 1)
        ]
    return Row(
        100 * (own[y == 1].mean() + 1 - own[y == 0].mean()) / 2,
        same([Flip({}, {"relationship": v}, everybody=True) for v in ("Husband", "Wife")], SPOUSES),
        same(protected_flips(table, ("sex", "race"))),
        *(float(np.sqrt(np.mean(np.square(gaps["sex"])))), max(gaps["sex"])),
        *(float(np.sqrt(np.mean(np.square(gaps["race"])))), max(gaps["race"])),
        seconds,
    )


def repaired(table: Table, method: Sensei, *, aware: bool = False) -> tuple[RepairedPredictor, float]:
    """Return the repair and the CPU seconds of the fit."""
    problem = RepairProblem(table, features=NAMES, protected_as_feature=aware)
    start = time.process_time()
    with threadpool_limits(1):
        found = method.fit(problem, rng=np.random.default_rng(0))
    return found, time.process_time() - start


@dataclass(frozen=True)
class Model:
    """A scored model of a frame: what a model file is to a repair."""

    estimator: Any

    feature_names = (*NAMES, "sex", "race")

    def score(self, frame: pd.DataFrame) -> Floats:
        """Return the probability of each row."""
        return np.asarray(self.estimator.predict_proba(frame[list(self.feature_names)])[:, 1])


def trees(frame: pd.DataFrame) -> Model:
    """Return boosted trees of all columns, groups included."""
    texts = [*TEXTS, "sex", "race"]
    encoder = make_column_transformer(
        (OneHotEncoder(sparse_output=False, handle_unknown="ignore"), texts), remainder="passthrough"
    )
    model = make_pipeline(encoder, HistGradientBoostingClassifier(random_state=0))
    return Model(model.fit(frame[list(Model.feature_names)], frame["income"]))


def split(frame: pd.DataFrame, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return four fifths of the rows at random, and the others."""
    order = np.random.default_rng(seed).permutation(len(frame))
    cut = int(0.8 * len(frame))
    train, test = (frame.iloc[np.sort(part)].reset_index(drop=True) for part in (order[:cut], order[cut:]))
    return train, test


def rows(frame: pd.DataFrame, seed: int) -> Iterator[tuple[str, Row]]:
    """Yield the rows of one split."""
    train, test = split(frame, seed)
    fit, held = table_of(train), table_of(test)
    base = float(train["income"].mean())
    settings: list[tuple[str, Sensei, bool]] = [
        ("logistic regression that sees the groups", Sensei(solver="regularizer", rho=0.0), True),
        ("merge, linear", Sensei(), False),
        ("merge, linear, spouses declared", Sensei(similar=PAIR), False),
        ("merge, trees, spouses declared", Sensei(similar=PAIR, learner="trees"), False),
        ("linear, rho auto, spouses declared", Sensei(solver="regularizer", similar=PAIR), True),
        (
            "linear, rho inf, spouses declared, means learned",
            Sensei(solver="regularizer", rho=np.inf, similar=f"{PAIR}; learned(by=means)"),
            True,
        ),
        (
            "linear, rho inf, spouses declared, pooled means learned",
            Sensei(solver="regularizer", rho=np.inf, similar=f"{PAIR}; learned(by=pooled)"),
            True,
        ),
        ("network, rho 0", Sensei(solver="regularizer", learner="network", rho=0.0), True),
        ("network, rho 10", Sensei(solver="regularizer", learner="network", rho=10.0), True),
        (
            "network, rho 10, spouses declared",
            Sensei(solver="regularizer", learner="network", rho=10.0, similar=PAIR),
            True,
        ),
    ]
    for title, method, aware in settings:
        found, seconds = repaired(fit, method, aware=aware)
        yield title, judged(held, found.predict, base, seconds)
    for slack in EQUAL:
        method = Sensei(solver="equal-rates", slack=slack, similar=PAIR, learner="trees")
        found, seconds = repaired(fit, method)
        yield f"equal-rates {slack:g}, trees, spouses declared", judged(held, found.predict, 0.5, seconds)
    found, seconds = repaired(fit, Sensei(solver="equal-rates", slack=0.02, learner="trees"))
    yield "equal-rates 0.02, trees, nothing declared (alarm)", judged(held, found.predict, 0.5, seconds)
    model = trees(train)
    names = list(Model.feature_names)
    yield (
        "trees as they are",
        judged(held, lambda t: model.score(t.features.select(names).to_pandas()), base, 0.0),
    )
    for comparable in ((), SPOUSES):
        mean = Averaged(model, changes_of(fit, ("sex", "race"), comparable))
        said = "average of trees" + (", spouses declared" if comparable else "")
        yield said, judged(held, lambda t, m=mean: m.score(t.features.select(names).to_pandas()), base, 0.0)


def table(many: int) -> None:
    """Print the table of Adult."""
    frame = adult()
    means(row for seed in range(many) for row in rows(frame, seed))
    print()


FIGURES = ("BA", "S", "GR", "RMS gender", "max gender", "RMS race", "max race")


def means(every: Iterable[tuple[str, Row]]) -> None:
    """Print the mean of each rule over the splits."""
    found: dict[str, list[Row]] = {}
    for title, row in every:
        found.setdefault(title, []).append(row)
    print(f"| rule | {' | '.join(FIGURES)} | CPU s |\n|---|{'---|' * len(FIGURES)}---|")
    for title, several in found.items():
        ba, *rest, seconds = np.mean([list(vars(row).values()) for row in several], axis=0)
        print(f"| {title} | {ba:.1f} | {' | '.join(f'{value:.3f}' for value in rest)} | {seconds:.1f} |")


def scores_only(many: int) -> None:
    """Print what scores alone tell beside real flips of models, and of a score without a model."""
    frame = adult()
    print("### From scores alone\n")
    print(
        "The effect of sex on the probability: the residual effect with its 95% half-width beside the true "
        "overlap-weighted effect of flipping the model, on held-out rows.\n"
    )
    print("| model | rows | residual effect | truth | within | CPU s |\n|---|---|---|---|---|---|")
    order = np.random.default_rng(0).permutation(len(frame))
    cut = round(LEARNED * len(frame))
    train, test = frame.iloc[order[:cut]], frame.iloc[order[cut:]].reset_index(drop=True)
    held = table_of(test)
    sex, (codes, others) = held.groups(["sex"]), (held.groups(["sex"]).codes, [*NAMES, "race"])
    X = pd.get_dummies(test[others], dtype=float).to_numpy()
    for title, model in models(train):
        score = model.score(test)
        start = time.process_time()
        with threadpool_limits(1):
            (one, *_) = residual_effect(score, codes, X)
        seconds = time.process_time() - start
        change = model.score(test.assign(sex=sex.names[1])) - model.score(test.assign(sex=sex.names[0]))
        chance = overlap(X, codes)
        truth = float(np.average(change, weights=chance * (1 - chance))) * (1 if one.first == 1 else -1)
        half = (one.high - one.low) / 2
        inside = "yes" if one.low <= truth <= one.high else "no"
        print(
            f"| {title} | {len(test):,} | {one.value:.4f} +- {half:.4f} | {truth:.4f} | {inside} | {seconds:.1f} |"
        )
    compas = _read("compas")
    compas = compas[compas["race"].isin(["African-American", "Caucasian"])].reset_index(drop=True)
    given = [
        "age",
        "priors_count",
        "juv_fel_count",
        "juv_misd_count",
        "juv_other_count",
        "c_charge_degree",
        "sex",
    ]
    held = read_table(
        compas, DataSpec(ColumnRoles(("race",), score="decile_score"), score_scale="raw"), given
    )
    groups, score = held.groups(), compas["decile_score"].to_numpy(float)
    (pair,) = matched_effect(score, groups.codes, keys_of(held, given)).pairs
    X = pd.get_dummies(compas[given], dtype=float).to_numpy()
    (left,) = residual_effect(score, groups.codes, X)
    print(
        f"\nCOMPAS deciles without a model, race given {', '.join(given)}: residual effect {abs(left.value):.3f} +- "
        f"{(left.high - left.low) / 2:.3f}, equal rows {abs(pair.value):.3f} +- {(pair.high - pair.low) / 2:.3f} "
        f"(covers {pair.coverage:.0%}).\n"
    )


SETS = 30
"""Made-up data sets whose effect is known."""


@dataclass(frozen=True)
class Made:
    """A made-up data set: the score, the group, the other columns, weights, the chances and scores of all groups."""

    score: Floats
    group: npt.NDArray[np.int64]
    X: Floats
    weight: Floats
    chances: Floats
    scores: Floats
    kind: str
    blind: bool

    def truth(self, k: int) -> float:
        """Return the overlap-weighted effect of a group against everybody else."""
        own = self.chances[:, k]
        others = (self.chances * self.scores).sum(axis=1) - own * self.scores[:, k]
        change = self.scores[:, k] - others / (1.0 - own)
        return float(np.average(change, weights=self.weight * own * (1.0 - own)))


def made_up(seed: int) -> Made:
    """Return one of unlike data sets: skewed or rounded numbers, categories, gaps, weights, two to five groups."""
    rng = np.random.default_rng(seed)
    n, numbers = int(rng.choice([5000, 6000, 8000, 12000])), int(rng.integers(2, 8))
    Z = rng.normal(size=(n, numbers))
    Z = {1: np.exp(0.7 * Z), 2: np.round(Z)}.get(seed % 5, Z)
    parts, of_group, of_score = [Z], np.zeros(n), np.zeros(n)
    for many in rng.integers(2, 15, size=int(rng.integers(4))):
        value = rng.choice(many, size=n, p=rng.dirichlet(np.full(many, 0.8)))
        parts.append(np.eye(many)[value])
        of_group += 0.6 * rng.normal(size=many)[value]
        of_score += 0.7 * rng.normal(size=many)[value]
    unit = Z / Z.std(axis=0) / np.sqrt(numbers)
    lean = unit @ rng.normal(size=numbers) * float(rng.choice([0.0, 0.4, 1.0]))
    lean += of_group * float(rng.choice([0.0, 0.5, 1.0])) + (np.sin(2 * Z[:, 0]) if seed % 5 == 4 else 0.0)
    groups = int(rng.integers(3, 6)) if seed % 5 == 3 else 2
    odds = lean[:, None] * rng.normal(size=groups) + float(rng.choice([0.0, 1.0])) * rng.normal(size=groups)
    chances = np.exp(odds) / np.exp(odds).sum(axis=1, keepdims=True)
    group = (rng.random((n, 1)) > np.cumsum(chances, axis=1)).sum(axis=1).clip(max=groups - 1)
    plain = unit @ rng.normal(size=numbers) * float(rng.choice([0.3, 1.0, 2.0])) + of_score
    plain += Z[:, 0] * Z[:, 1] if seed % 5 == 0 else 0.0
    blind = bool(rng.random() < 0.4)
    bonus = 0.0 if blind else rng.normal(size=groups) * float(rng.choice([0.2, 1.0]))
    scores = plain[:, None] + bonus * (1.0 + float(rng.choice([0.0, 0.5])) * Z[:, :1]) + np.zeros(groups)
    kind = ("probability", "raw", "decision", "noisy")[seed % 4]
    if kind == "probability":
        scores = 1.0 / (1.0 + np.exp(-scores))
    if kind == "decision":
        scores = (scores > np.quantile(plain, 0.6)).astype(float)
    score = scores[np.arange(n), group] + (0.5 * rng.normal(size=n) if kind == "noisy" else 0.0)
    gaps = np.where(rng.random((n, 1)) < 0.3, np.nan, rng.normal(size=(n, 1)))
    weight = rng.uniform(0.5, 1.5, size=n) if seed % 7 == 3 else np.ones(n)
    return Made(score, group, np.column_stack([*parts, gaps]), weight, chances, scores, kind, blind)


def coverage() -> None:
    """Print how often the interval of the residual effect holds the effect that made the data."""
    print(f"### Coverage on {SETS} made-up data sets\n")
    print("Intervals of 95%; an alarm is an interval without 0 where the score is blind to the group.\n")
    print("| score | decided | interval holds the effect | alarms | mean error in standard errors |")
    print("|---|---|---|---|---|")
    found: dict[str, list[tuple[bool, bool, float]]] = {}
    for seed in range(SETS):
        made = made_up(seed)
        with threadpool_limits(1):
            effect = residual_effect(made.score, made.group, made.X, made.weight)
        for one in effect:
            truth = made.truth(one.first)
            off = (one.value - truth) / one.standard_error
            row = (made.blind, one.low <= truth <= one.high, off)
            for kind in (made.kind, "all"):
                found.setdefault(kind, []).extend([row] if one.undecided is None else [])
    for kind in (one for one in ("probability", "raw", "decision", "noisy", "all") if found.get(one)):
        held = [inside for _, inside, _ in found[kind]]
        alarms = [not inside for blind, inside, _ in found[kind] if blind]
        off = np.mean([one for *_, one in found[kind]])
        print(f"| {kind} | {len(held)} | {np.mean(held):.3f} | {sum(alarms)} of {len(alarms)} | {off:+.2f} |")
    print()


def overlap(X: Floats, codes: npt.NDArray[np.int64]) -> Floats:
    """Return P(group | x) by trees, in two halves."""
    out, half = np.zeros(codes.size), np.arange(codes.size) % 2 == 0
    for part in (half, ~half):
        model = HistGradientBoostingClassifier(random_state=0).fit(X[~part], codes[~part])
        out[part] = model.predict_proba(X[part])[:, 1]
    return out


def models(train: pd.DataFrame) -> Iterator[tuple[str, Any]]:
    """Yield models: linear and trees, that see the groups or not."""
    texts = [*TEXTS, "sex", "race"]
    encoder = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), texts), (StandardScaler(), NUMBERS)
    )
    linear = make_pipeline(encoder, LogisticRegression(max_iter=1000))
    yield "logistic regression", Model(linear.fit(train[list(Model.feature_names)], train["income"]))
    yield "trees", trees(train)
    blind = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), TEXTS), (StandardScaler(), NUMBERS)
    )
    without = make_pipeline(blind, LogisticRegression(max_iter=1000))
    yield "logistic regression, blind", Model(without.fit(train[list(Model.feature_names)], train["income"]))


BATCH, HIDDEN, RHO = 1000, 100, 10.0
AUDITOR_STEPS = 100
ROUNDS, OURS, THEIRS = 5, 200, 3
"""Rounds, and the iterations of either in each."""


def matrices() -> tuple[Floats, Floats, FlippedRows]:
    """Return the matrix of Adult with both groups, its labels, and the rows under the four flips."""
    held = table_of(adult())
    features = Features.learn(held, NAMES, ("sex", "race"))
    X = features.matrix(held)
    flips = protected_flips(held, ("sex", "race"))
    changed = FlippedRows.of(X, (features.matrix(flipped(held, flip)) for flip in flips))
    return X, np.asarray(held.rows.label, dtype=np.float64), changed


def our_seconds(X: Floats, y: Floats, changed: FlippedRows) -> float:
    """Return the CPU seconds of an iteration; what is done once before the first is not in it."""

    def run(steps: int) -> float:
        start = time.process_time()
        share = np.full(len(y), 1.0 / len(y))
        with threadpool_limits(1):
            trainer = Trainer(
                X,
                y.astype(np.int64),
                share,
                RowVariants.of(X, changed),
                None,
                rho=RHO,
                l2=0.0,
                batch=BATCH,
                hidden=HIDDEN,
                seed=0,
            )
            trainer.run(steps, Adam(1e-3, trainer.parameters.size))
        return time.process_time() - start

    return (run(OURS + 1) - run(1)) / OURS


def their_step(X: Floats, y: Floats, changed: FlippedRows) -> Callable[[], None]:
    """Return what does an iteration of inFairness: the same network, rows and optimizer."""
    import torch
    from inFairness.distances import SensitiveSubspaceDistance, SquaredEuclideanDistance
    from inFairness.fairalgo import SenSeI

    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows, labels = torch.tensor(X, dtype=torch.float32), torch.tensor(y[:, None], dtype=torch.float32)
    few = np.arange(min(len(X), 2000))
    moves = np.unique(np.concatenate([changed.variant(k, few) - X[few] for k in range(changed.many)]), axis=0)
    basis = np.linalg.svd(moves, full_matrices=False)[2][: np.linalg.matrix_rank(moves)].T
    apart, between = SensitiveSubspaceDistance(), SquaredEuclideanDistance()
    apart.fit(torch.tensor(basis, dtype=torch.float32))
    between.fit(num_dims=1)
    network = torch.nn.Sequential(
        torch.nn.Linear(X.shape[1], HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, 1)
    )
    loss = torch.nn.functional.binary_cross_entropy_with_logits
    fair = SenSeI(network, apart, between, loss, RHO, 1e-3, AUDITOR_STEPS, 1e-3)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)

    def step() -> None:
        some = torch.randint(len(rows), (BATCH,))
        fair.train()
        optimizer.zero_grad()
        fair(rows[some], labels[some]).loss.backward()
        optimizer.step()

    return step


def beside_infairness() -> None:
    """Print the time of an iteration beside that of inFairness, in turns in one process."""
    print("### Time of an iteration next to inFairness\n")
    try:
        X, y, changed = matrices()
        step = their_step(X, y, changed)
    except ImportError as error:
        print(f"Not measured: {error}. `pip install torch inFairness`, or the extra `bench`, brings it.\n")
        return
    step()
    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(our_seconds(X, y, changed))
        start = time.process_time()
        for _ in range(THEIRS):
            step()
        theirs.append((time.process_time() - start) / THEIRS)
    ratio = np.quantile(np.array(theirs) / np.array(ours), [0.25, 0.5, 0.75])
    print(
        f"Adult, {X.shape[1]} columns, batches of {BATCH:,}, {HIDDEN} hidden, one thread, {ROUNDS} rounds in turns. "
        f"Ours, four flips tried: {1e3 * np.median(ours):.2f} CPU ms. inFairness, {AUDITOR_STEPS} auditor steps: "
        f"{1e3 * np.median(theirs):.0f} CPU ms, **{ratio[1]:.0f} times** (quartiles {ratio[0]:.0f}-{ratio[2]:.0f}).\n"
    )


def main() -> None:
    """Print all tables."""
    many = int(sys.argv[1]) if len(sys.argv) > 1 else SPLITS
    print("## Individual fairness\n")
    print(
        f"Adult, {many} random 80/20 splits, test rows. Rows with declared spouses know more than the others, and "
        "trees do better than any network.\n"
    )
    table(many)
    beside_infairness()
    scores_only(many)
    coverage()


if __name__ == "__main__":
    main()
