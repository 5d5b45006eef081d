"""Fair robust log loss beside the rivals of the paper's figures: reductions, covariance, reweighing, thresholds.

``python benchmarks/logloss_rivals.py [SPLITS]`` prints Markdown. Figure 4 of the paper is about parity and odds,
Figure 2 about post-processing on COMPAS. Every rule sees the same rows with the same features, the
group among them, and comes from a logistic regression with the same penalty. Written anew from their papers:

*reweighing*: rows weigh ``P(g) P(y) / P(g, y)`` (F. Kamiran and T. Calders, 2012).

*covariance*: least log loss where the signed distance ``z`` to the boundary has no covariance with the group, for
demographic parity, or where ``min(0, (2y - 1) z)`` has none within a label, for the others (M. B. Zafar, I. Valera,
M. Gomez Rodriguez and K. P. Gummadi, 2017, two papers). The second is not convex: its rows on the wrong side of the
boundary are those of the last fit, half way, until they stay.

Fairlearn's are the reductions (A. Agarwal and others, 2018) and the thresholds (M. Hardt and others, 2016).
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.scan import read_table
from fairfix.errors import FairfixWarning
from fairfix.methods.logloss import LogLoss
from fairfix.methods.problem import RepairProblem
from fairfix.solvers.robust_log_loss import solve
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

import peers
from fair_regression_peers import barycentre
from logloss import CONSTRAINTS, FILES, L2, Readings, Rows, authors, cells_of, chances, load, read, splits
from tabular import present

Floats = npt.NDArray[np.float64]

SPLITS = 20
BOUND = 0.01
"""Violation that the reductions may leave on their rows, Fairlearn's default."""

ROUNDS = 30
"""Most fits of the second covariance; where its rows alternate it ends with the least covariance found."""

NAMES = {"DP": "demographic_parity", "EOpp": "equal_opportunity", "EOdd": "equalized_odds"}
"""As fairfix and, but for the second, Fairlearn's thresholds name them."""

Rule = tuple[Floats | None, Floats]
"""Probabilities of the test rows, None where a rule gives no more than decisions, and chances of its decisions."""


def plain(rows: Rows, weight: Floats | None = None, *, l2: float = L2) -> LogisticRegression:
    """Return the logistic regression that all rules come from."""
    model = LogisticRegression(C=1 / (l2 * rows.y.size), solver="newton-cholesky", max_iter=200)
    return model.fit(rows.X, rows.y, sample_weight=weight)


def reweighed(rows: Rows) -> Floats:
    """Return the weights with which group and label are independent, of mean 1."""
    cell = 2 * rows.g + rows.y.astype(np.int64)
    joint = np.bincount(cell, minlength=4).reshape(2, 2) / cell.size
    return (np.outer(joint.sum(1), joint.sum(0)) / joint).ravel()[cell]


# ---------------------------------------------------------------------- covariance


def held_to_zero(rows: Rows, A: Floats, start: Floats, l2: float) -> Floats:
    """Return coefficients, the intercept last and free of penalty, of least log loss with ``A theta = 0``, (m, d + 1).

    Newton's steps with the constraints in the equations, halved until the loss falls.
    """
    full = np.column_stack([rows.X, np.ones(rows.y.size)])
    pull = np.append(np.full(rows.X.shape[1], l2), 0.0)

    def loss(theta: Floats) -> float:
        z = full @ theta
        return float(np.mean(np.logaddexp(0.0, z) - rows.y * z) + 0.5 * pull @ theta**2)

    # the start is moved onto the constraints, which Newton's steps then keep
    theta = start - np.linalg.pinv(A) @ (A @ start)
    for _ in range(50):
        s = expit(full @ theta)
        slope = full.T @ (s - rows.y) / rows.y.size + pull * theta
        H = (full * (s * (1 - s))[:, None]).T @ full / rows.y.size + np.diag(pull)
        H[np.diag_indices_from(H)] += 1e-10  # columns of indicators of one category sum to the intercept
        both = np.block([[H, A.T], [A, np.zeros((len(A), len(A)))]])
        step = np.linalg.lstsq(both, np.append(-slope, np.zeros(len(A))), rcond=None)[0][: theta.size]
        now, size = loss(theta), 1.0
        while size > 1e-6 and loss(theta + size * step) > now:
            size /= 2
        theta = theta + size * step
        if -slope @ step < 1e-10:  # twice what the loss can still fall by
            break
    return theta


def covariances(rows: Rows, constraint: str, theta: Floats | None) -> Floats:
    """Return the vectors (m, d + 1) whose products with coefficients are the covariances, for the signs of ``theta``.

    For demographic parity one, which knows no signs; else one for each label that the constraint is about.
    """
    full = np.column_stack([rows.X, np.ones(rows.y.size)])
    if constraint == "DP" or theta is None:
        return ((rows.g - rows.g.mean()) @ full / rows.y.size)[None, :]
    out = []
    for label in (1,) if constraint == "EOpp" else (1, 0):
        own = rows.y == label
        wrong = (2 * label - 1) * (full[own] @ theta) < 0
        far = (rows.g[own] - rows.g[own].mean()) * wrong
        out.append(far @ full[own] / own.sum())
    return np.array(out)


def covariance(rows: Rows, constraint: str, *, l2: float = L2) -> Floats:
    """Return coefficients with intercept of the regression without covariance."""
    model = plain(rows, l2=l2)
    theta = np.append(model.coef_[0], model.intercept_)
    if constraint == "DP":
        return held_to_zero(rows, covariances(rows, constraint, None), theta, l2)
    A = covariances(rows, constraint, theta)
    best, least = theta, np.inf
    for _ in range(ROUNDS):
        theta = held_to_zero(rows, A, theta, l2)
        real = covariances(rows, constraint, theta)
        left = float(np.abs(real @ theta).max())
        if left < least:
            best, least = theta, left
        if left < 1e-6:
            break
        A = (A + real) / 2
    return best


# ---------------------------------------------------------------------- Fairlearn's


def reduction(train: Rows, test: Rows, constraint: str, *, bound: float = BOUND, l2: float = L2) -> Floats:
    """Return the chances of the decisions of Fairlearn's mixture of logistic regressions."""
    from fairlearn import reductions

    moments = {
        "DP": reductions.DemographicParity,
        "EOpp": reductions.TruePositiveRateParity,
        "EOdd": reductions.EqualizedOdds,
    }
    model = reductions.ExponentiatedGradient(
        LogisticRegression(C=1 / (l2 * train.y.size), solver="newton-cholesky", max_iter=200),
        moments[constraint](difference_bound=bound),
        eps=bound,
    )
    model.fit(train.X, train.y.astype(int), sensitive_features=train.g)
    return np.asarray(model._pmf_predict(test.X)[:, 1], dtype=np.float64)


def thresholds(
    train: Rows, test: Rows, scores: tuple[Floats, Floats], constraint: str, method: str
) -> Floats:
    """Return the chances of the decisions of Fairlearn's thresholds by group on scores of train and test rows."""
    fitted = peers.Rows(scores[0], train.y.astype(np.int64), train.g)
    name = "true_positive_rate_parity" if constraint == "EOpp" else NAMES[constraint]
    return peers.fairlearn(fitted, name, method=method)(scores[1], test.g)


# ---------------------------------------------------------------------- ours


def as_used(train: Rows, test: Rows, constraint: str) -> Floats:
    """Return the probabilities of fairfix's rule with its defaults, whose rates hold averaged over the label."""
    names = tuple(f"x{j}" for j in range(train.X.shape[1] - 1))

    def table(rows: Rows) -> pa.Table:
        columns = {name: rows.X[:, j] for j, name in enumerate(names)}  # the last column is the group
        return pa.table(
            {**columns, "group": np.array(["behind", "ahead"])[rows.g], "label": rows.y.astype(np.int64)}
        )

    data_spec = DataSpec(ColumnRoles(("group",), label="label"))
    problem = RepairProblem(
        read_table(table(train), data_spec, names), features=names, protected_as_feature=True
    )
    rule = LogLoss(constraint=NAMES[constraint], learner=f"linear(l2={L2},intercept=penalised)")
    predictor = rule.fit(problem, rng=np.random.default_rng(0))
    return predictor.predict(read_table(table(test), data_spec, names))


def rules(train: Rows, test: Rows, constraint: str) -> Iterator[tuple[str, Rule]]:
    """Yield each rule by its name."""
    model = plain(train)
    scores = (model.predict_proba(train.X)[:, 1], model.predict_proba(test.X)[:, 1])

    def rounded(chance: Floats) -> Rule:
        return chance, (chance >= 0.5).astype(float)

    yield "plain logistic", rounded(scores[1])
    cells = cells_of(train, constraint)
    own = solve(train.X, train.y, cells, l2=L2, penalize_intercept=True)
    theta, prices, _ = authors(train, constraint)
    yield "the authors'", rounded(chances(test, constraint, theta, prices, own.shares))
    found = np.append(own.coef, own.intercept)
    yield "logloss", rounded(chances(test, constraint, found, own.prices, own.shares))
    if constraint == "DP":
        yield "plain + barycentre", rounded(barycentre((scores[0], train.g), (scores[1], test.g), 1.0))
    else:
        yield "logloss, as used", rounded(as_used(train, test, constraint))
    yield "reductions", (None, reduction(train, test, constraint))
    theta = covariance(train, constraint)
    yield "covariance", rounded(expit(test.X @ theta[:-1] + theta[-1]))
    yield "reweighing", rounded(plain(train, reweighed(train)).predict_proba(test.X)[:, 1])
    yield "thresholds", (None, thresholds(train, test, scores, constraint, "predict_proba"))
    yield "thresholds, hard predictions", (None, thresholds(train, test, scores, constraint, "predict"))


def cell(readings: list[Readings], names: tuple[str, str]) -> str:
    """Return means of an error and its violation, with the standard error of the violation."""
    error, gap = (np.array([getattr(one, name) for one in readings]) for name in names)
    return f"{error.mean():.4f} / {gap.mean():.4f} ± {gap.std(ddof=1) / np.sqrt(gap.size):.4f}"


def table(found: Mapping[tuple[str, str, str], list[tuple[bool, Readings]]]) -> Iterator[str]:
    """Yield the rows of the table."""
    for (name, constraint, rule), results in found.items():
        readings = [one for _, one in results]
        cells = [cell(readings, ("error", "violation")), "", ""]
        if results[0][0]:
            cells[1] = cell(readings, ("expected_error", "expected_violation"))
            cells[2] = f"{np.mean([one.log_loss for one in readings]):.4f}"
        yield f"| {name} {constraint} | {rule} | {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    many = int(sys.argv[1]) if len(sys.argv) > 1 else SPLITS
    logging.disable(logging.WARNING)
    found: dict[tuple[str, str, str], list[tuple[bool, Readings]]] = {}
    with threadpool_limits(1), warnings.catch_warnings(action="ignore", category=FairfixWarning):
        names, missing = present(FILES)
        for name in names:
            rows = load(name)
            for constraint in CONSTRAINTS:
                for train, test in splits(rows, many):
                    for rule, (chance, decided) in rules(train, test, constraint):
                        shown = decided if chance is None else chance
                        data_spec = read(test, constraint, shown, decided)
                        found.setdefault((name, constraint, rule), []).append((chance is not None, data_spec))
                print(f"{name} {constraint}", file=sys.stderr)
    print("\n\n".join(["## Rivals of the figures (Figures 2 and 4)", *missing, ""]), end="")
    print(
        f"Test rows of {many} random 70/30 splits; mean error / mean violation ± its standard error. *Decisions*: of a "
        "probability rounded at 0.5, or expected over the draws of a rule that draws decisions (reductions, "
        "thresholds). *Drawn*: of decisions drawn by the probabilities. The paper pairs the error of the former with "
        "the violation of the latter; here each stands beside its own. Reductions may leave "
        f"{BOUND:g}, the others nothing, on the training rows. *As used* is what `--method logloss` makes by "
        "default; it scales all columns.\n"
    )
    print("| data | rule | decisions | drawn | log loss |\n|---|---|---|---|---|")
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
