"""What fair regression is compared with: the authors' algorithm, Fairlearn's reductions, and the barycentre.

The authors' Algorithm 1 is written anew from the paper and from how their code is known to behave: exponentiated
gradient on the multipliers with ``B = 1 / eps``, a grid of 41 thresholds, least-squares or logistic best responses to
the target of least cost, a linear program over the models found, a step size that shrinks, at most 50 rounds. It is
vectorised; ``tie`` and ``intercept`` switch the two faults of the original on that cost it most.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from fairfix.solvers.parity import ks_to_overall
from scipy.optimize import linprog, minimize
from sklearn.linear_model import LogisticRegression

from tabular import folder

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

GRID = 40


@dataclass(frozen=True)
class Data:
    """A data set: a frame with the label in [0, 1], the name of label and group columns, and the loss."""

    name: str
    frame: pd.DataFrame
    label: str
    group: str
    loss: str


def adult(rows: int | None = None, group: str = "sex") -> Data:
    """Return Adult without rows that miss values and without the census weight."""
    frame = _read("adult").dropna().drop(columns=["fnlwgt"]).reset_index(drop=True)
    return Data(
        "adult" if rows is None else f"adult {rows:,}", _some(frame, rows), "income", group, "logistic"
    )


def lawschool(rows: int | None = None) -> Data:
    """Return law school: grade point average over 4, white or not, from the scores and circumstances of students."""
    frame = _read("lawschool")
    frame["ugpa"] = frame["ugpa"] / 4.0
    keep = ["white", "gender", "lsat", "zfygpa", "zgpa", "cluster", "fulltime", "fam_inc", "age_code", "ugpa"]
    frame = frame[[name for name in keep if name not in ("zfygpa", "zgpa")]].dropna()
    return Data("law" if rows is None else f"law {rows:,}", _some(frame, rows), "ugpa", "white", "square")


def communities() -> Data:
    """Return communities and crime: the rate of violent crimes, majority white or not; numeric columns without gaps."""
    frame = _read("communities")
    numeric = frame.select_dtypes("number")
    kept = numeric.loc[:, numeric.notna().all()].astype(float)
    kept["majority_white"] = frame["majority_white"].astype(int)
    drop = [name for name in ("state", "fold", "county", "community") if name in kept]
    return Data("communities", kept.drop(columns=drop), "ViolentCrimesPerPop", "majority_white", "square")


def _read(name: str) -> pd.DataFrame:
    place = folder()
    if place is None:
        raise FileNotFoundError("no data: name a folder by FAIRFIX_DATA_DIR")
    return pd.read_parquet(place / f"{name}.parquet")


def _some(frame: pd.DataFrame, rows: int | None) -> pd.DataFrame:
    frame = frame if rows is None else frame.sample(min(rows, len(frame)), random_state=0)
    return frame.reset_index(drop=True)


def halves(data: Data, seed: int) -> tuple[Ints, Ints]:
    """Return row numbers of two halves, drawn inside each group."""
    rng = np.random.default_rng(seed)
    first = []
    for rows in data.frame.groupby(data.group).indices.values():
        mixed = rng.permutation(rows)
        first.append(mixed[: rows.size // 2])
    train = np.sort(np.concatenate(first))
    return train, np.setdiff1d(np.arange(len(data.frame)), train)


@dataclass(frozen=True)
class Matrix:
    """Features as a standardised matrix, label and group codes."""

    X: Floats
    y: Floats
    codes: Ints


def matrices(data: Data, seed: int, *, aware: bool) -> tuple[Matrix, Matrix]:
    """Return train and test halves; ``aware`` puts the group among the features."""
    train, test = halves(data, seed)
    drop = [data.label] if aware else [data.label, data.group]
    features = pd.get_dummies(data.frame.drop(columns=drop), dtype=float)
    mean, scale = features.iloc[train].mean(), features.iloc[train].std().replace(0, 1)
    X = ((features - mean) / scale).to_numpy()
    y = data.frame[data.label].to_numpy(np.float64)
    codes = pd.factorize(data.frame[data.group], sort=True)[0].astype(np.int64)
    return Matrix(X[train], y[train], codes[train]), Matrix(X[test], y[test], codes[test])


# ---------------------------------------------------------------------- measures


def mean_loss(loss: str, y: Floats, u: Floats, weight: Floats | None = None) -> float:
    """Return the mean square loss, or the log loss of probabilities."""
    if loss == "square":
        return float(np.average((u - y) ** 2, weights=weight))
    v = np.clip(u, 1e-9, 1 - 1e-9)
    return float(np.average(-y * np.log(v) - (1 - y) * np.log1p(-v), weights=weight))


@dataclass(frozen=True)
class Point:
    """Loss and distance to everybody, expected over a mixture."""

    loss: float
    ks: float


def judged(loss: str, rows: Matrix, values: Floats, chances: Floats | None = None) -> Point:
    """Return the point of scores (n,), or of a mixture with scores (M, n) and chances (M,)."""
    values = np.atleast_2d(values)
    chances = np.ones(1) if chances is None else chances
    weight = np.repeat(chances, rows.y.size)
    many, groups = len(values), int(rows.codes.max()) + 1
    ks = ks_to_overall(values.ravel(), np.tile(rows.codes, many), weight, groups).max()
    return Point(mean_loss(loss, np.tile(rows.y, many), values.ravel(), weight), float(ks))


def chosen(found: list[tuple[Point, Point]], ks: float) -> Point:
    """Return the test point of what a user would take: of (train, test) points, the least training loss within ``ks``.

    Nothing is chosen on the test rows, whose distance may be larger. A thousandth more is let pass, since distances of
    drawn values are counted.
    """
    near = [pair for pair in found if pair[0].ks <= ks + 1e-3]
    return min(near, key=lambda pair: pair[0].loss)[1]


# ---------------------------------------------------------------------- the authors' algorithm


@dataclass
class Official:
    """The authors' Algorithm 1; holds what it found.

    ``loss``: ``square`` or ``logistic``, the latter of the probability ``sigma(5 (2u - 1))`` of a score u. ``oracle``:
    LS or LR fit a linear model to the score of least cost of each row, XGB boosted trees with the settings of their
    code; CS minimises the hinge of all costs. ``intercept`` and ``tie="middle"`` mend what the original leaves out.
    """

    eps: float
    oracle: str
    loss: str
    intercept: bool = True
    tie: str = "middle"
    calls: int = 0
    gap: float = float("nan")
    models: list[Callable[[Floats], Floats]] = field(default_factory=list)
    chances: Floats = field(default_factory=lambda: np.ones(1))

    def fit(self, rows: Matrix) -> Official:
        """Run exponentiated gradient with the linear program until the gap is below nu."""
        n, groups = rows.y.size, int(rows.codes.max()) + 1
        shares = np.bincount(rows.codes) / n
        z = np.arange(GRID + 1) / GRID
        bound, nu = 1.0 / self.eps, 0.5 * float(np.std(rows.y)) / np.sqrt(n * GRID)
        theta, eta = np.zeros((2, groups, z.size)), 2.0 / bound
        self._rows, self._shares, self._z = rows, shares, z
        self._kinds, cells = np.unique(np.column_stack([rows.codes, rows.y]), axis=0, return_inverse=True)
        self._cells: Ints = cells.ravel()
        self._last: Floats | None = None
        self._losses: list[float] = []
        self._gammas: list[Floats] = []
        used: list[int] = []
        self._known: dict[bytes, int] = {}
        gaps: list[float] = []
        best = (np.inf, np.ones(1))
        total = np.zeros_like(theta)
        for round_ in range(50):
            powers = np.exp(theta)
            lam = bound * powers / (1.0 + powers.sum())
            total += lam
            used.append(self._respond(lam))
            uniform = np.bincount(used, minlength=len(self.models)) / len(used)
            gap_eg = self._gap(uniform, total / (round_ + 1), bound)
            q, dual = self._program(bound)
            gap_lp = self._gap(q, dual, bound)
            for gap, mixture in ((gap_eg, uniform), (gap_lp, q)):
                if gap < best[0]:
                    best = (gap, mixture)
            gaps.append(min(gap_eg, gap_lp))
            if best[0] < nu and round_ >= 5:
                break
            if round_ > 2 and gaps[-1] >= gaps[-3]:
                eta *= 0.8
            gamma = self._gammas[used[-1]]
            theta = theta + eta * (np.stack([gamma, -gamma]) - self.eps)
        self.gap = best[0]
        chances = np.zeros(len(self.models))
        chances[: best[1].size] = best[1]
        self.chances = chances
        return self

    def _respond(self, lam: Floats) -> int:
        """Return the number of the model that answers multipliers of shape (2, K, Z).

        What a score costs is the same for all rows of one group and label.
        """
        rows, z = self._rows, self._z
        signed = lam[0] - lam[1]
        step = signed / self._shares[:, None] - signed.sum(axis=0)  # paid where the score is at least z
        paid = np.cumsum(step, axis=1)[self._kinds[:, 0].astype(np.int64)]
        points, y = z + 0.5 / GRID, self._kinds[:, 1:]
        if self.loss == "logistic":
            chance = _scaled(points)
            loss = -y * np.log(chance) - (1 - y) * np.log1p(-chance)
        else:
            loss = (points - (np.floor(y * GRID + 1e-9) + 0.5) / GRID) ** 2
        cost = loss + paid
        low = cost <= cost.min(axis=1, keepdims=True) + 1e-12
        first, last = low.argmax(axis=1), z.size - 1 - low[:, ::-1].argmax(axis=1)
        target = points[first] if self.tie == "first" else (points[first] + points[last]) / 2
        key = (cost if self.oracle == "CS" else target).tobytes()
        if key not in self._known:
            self.calls += 1
            self._known[key] = len(self.models)
            model = (
                self._hinge(cost) if self.oracle == "CS" else self._fitted(np.clip(target, 0, 1)[self._cells])
            )
            self.models.append(model)
            values = model(rows.X)
            self._losses.append(float(np.mean(self._loss_of(values))))
            above = np.clip(values, 0, None)[:, None] >= z
            everybody = above.mean(axis=0)
            groups = range(self._shares.size)
            self._gammas.append(np.stack([above[rows.codes == k].mean(axis=0) - everybody for k in groups]))
        return self._known[key]

    def _loss_of(self, values: Floats) -> Floats:
        y = self._rows.y
        if self.loss == "logistic":
            chance = np.clip(_scaled(values), 1e-9, 1 - 1e-9)
            return -y * np.log(chance) - (1 - y) * np.log1p(-chance)
        return (values - y) ** 2

    def _fitted(self, target: Floats) -> Callable[[Floats], Floats]:
        """Return the model of the scores of least cost, shape (n,)."""
        A = self._design(self._rows.X)
        trees = self.oracle == "XGB"
        if self.loss == "square" or self.oracle == "LS":
            if trees:
                boosted = boosted_trees("square").fit(self._rows.X, target)
                return lambda X: np.asarray(boosted.predict(X), dtype=np.float64)
            v = np.linalg.lstsq(A, target, rcond=None)[0]
            return lambda X: self._design(X) @ v
        weight = np.concatenate([_scaled(target), 1 - _scaled(target)])
        labels = np.repeat([1, 0], len(A))
        if trees:
            twice = np.concatenate([self._rows.X, self._rows.X])
            boosted = boosted_trees("logistic").fit(twice, labels, sample_weight=weight)
            return lambda X: 0.5 + np.asarray(boosted.predict(X, output_margin=True), dtype=np.float64) / 10.0
        model = LogisticRegression(fit_intercept=False, solver="newton-cholesky", max_iter=300, C=1.0)
        model.fit(np.concatenate([A, A]), labels, sample_weight=weight)
        return lambda X: 0.5 + self._design(X) @ model.coef_[0] / 10.0

    def _hinge(self, cost: Floats) -> Callable[[Floats], Floats]:
        """Return the linear model of least hinge, its coefficients but for the intercept at most 1."""
        A = self._design(self._rows.X)
        v = self._last = least_hinge(A, self._cells, np.diff(cost, axis=1), self._last)
        return lambda X: self._design(X) @ v

    def _design(self, X: Floats) -> Floats:
        return np.column_stack([X, np.ones(len(X))]) if self.intercept else X

    def _lagrangian(self, q: Floats, lam: Floats) -> float:
        gamma = np.tensordot(q, np.array(self._gammas)[: q.size], axes=1)
        return float(q @ np.array(self._losses)[: q.size]) + float(
            (lam * (np.stack([gamma, -gamma]) - self.eps)).sum()
        )

    def _gap(self, q: Floats, lam: Floats, bound: float) -> float:
        gamma = np.tensordot(q, np.array(self._gammas)[: q.size], axes=1)
        value = float(q @ np.array(self._losses)[: q.size])
        high = value + bound * max(0.0, float(np.abs(gamma).max()) - self.eps)
        middle = self._lagrangian(q, lam)
        answer = np.zeros(len(self.models) + 1)
        answer[self._respond(lam)] = 1.0
        low = self._lagrangian(answer[: len(self.models)], lam)
        return max(middle - low, high - middle)

    def _program(self, bound: float) -> tuple[Floats, Floats]:
        """Return the mixture of the models found with the least penalised loss, and its multipliers."""
        gammas = np.array(self._gammas)
        many = len(gammas)
        rows = gammas.reshape(many, -1).T
        both = np.concatenate([rows, -rows])
        found: Any = linprog(
            np.append(self._losses, bound),
            A_ub=np.column_stack([both, -np.ones(len(both))]),
            b_ub=np.full(len(both), self.eps),
            A_eq=[np.append(np.ones(many), 0.0)],
            b_eq=[1.0],
        )
        return found.x[:-1], np.maximum(-found.ineqlin.marginals, 0).reshape(2, *gammas.shape[1:])

    def scores(self, X: Floats) -> tuple[Floats, Floats]:
        """Return scores (M, n) of the models in use and their chances (M,)."""
        kept = np.flatnonzero(self.chances > 1e-9)
        values = np.stack([np.clip(self.models[i](X), 0, 1) for i in kept])
        chances = self.chances[kept] / self.chances[kept].sum()
        return (_scaled(values) if self.loss == "logistic" else values), chances


def _scaled(u: Floats) -> Floats:
    """Return the paper's probability of a score: sigma(5 (2u - 1))."""
    return 1.0 / (1.0 + np.exp(-5.0 * (2.0 * np.clip(u, -1, 2) - 1.0)))


XGBOOST = find_spec("xgboost") is not None
"""Whether XGBoost is installed; without it its rows are left out."""


def boosted_trees(loss: str) -> Any:
    """Return XGBoost as the authors' code sets it, on one thread."""
    import xgboost

    if loss == "logistic":
        return xgboost.XGBClassifier(max_depth=3, n_estimators=150, gamma=2, n_jobs=1)
    return xgboost.XGBRegressor(max_depth=4, n_estimators=200, reg_lambda=1, gamma=1, n_jobs=1)


def hinge_of(gain: Floats, round_by: float) -> tuple[Floats, Floats, Floats]:
    """Return the hinge of each kind of row as a function of the score: nodes (N,), values and slopes (C, N) there.

    ``gain``, shape (C, GRID): what crossing the thresholds 1/GRID, 2/GRID, ..., 1 upwards adds to the cost. A
    threshold that is better crossed weighs ``-gain`` and pulls a score that is not half a step above it up; one that
    is better not crossed weighs ``gain`` and pulls down what is not half a step below. So slopes change at the middles
    between thresholds alone; they go over within ``round_by`` of these, linearly.
    """
    up, down = np.maximum(-gain, 0.0), np.maximum(gain, 0.0)
    kinds = len(gain)
    zero = np.zeros((kinds, 1))
    still_up = np.hstack([np.cumsum(up[:, ::-1], axis=1)[:, ::-1], zero])
    inside = np.hstack([zero, np.cumsum(down, axis=1)])
    # below all middles; around the threshold k, for each; above all
    slope = np.hstack([-still_up[:, :1], -still_up[:, :-1] + inside[:, 1:], inside[:, -1:]])
    middles = (np.arange(GRID + 1) + 0.5) / GRID
    nodes = np.concatenate(
        [[-FAR], np.ravel(np.column_stack([middles - round_by, middles + round_by])), [FAR]]
    )
    slopes = np.repeat(slope, 2, axis=1)
    values = np.hstack([zero, np.cumsum((slopes[:, 1:] + slopes[:, :-1]) / 2 * np.diff(nodes), axis=1)])
    at_half = values[:, [GRID + 1]]  # any constant will do: one that keeps the numbers small
    return nodes, values - at_half, slopes


FAR = 1e3
"""Where the hinge of a score need not be known any further."""


def least_hinge(A: Floats, cells: Ints, gain: Floats, start: Floats | None) -> Floats:
    """Return coefficients (d,) of least mean hinge; the last is the intercept, the others are at most 1 in size.

    ``cells``: kind of each row, shape (n,). The hinge is a table by kind, so an evaluation takes two products with A.
    """
    now = np.zeros(A.shape[1]) if start is None else start
    bounds = [(-1.0, 1.0)] * (A.shape[1] - 1) + [(None, None)]
    unit = float(np.abs(gain).sum(axis=1).mean()) or 1.0  # tolerances of L-BFGS-B are absolute below 1
    for round_by in (1e-2, 2e-3, 4e-4):
        nodes, values, slopes = hinge_of(gain / unit, round_by)

        def hinge(
            v: Floats, nodes: Floats = nodes, values: Floats = values, slopes: Floats = slopes
        ) -> tuple[float, Floats]:
            score = A @ v
            at = np.clip(np.searchsorted(nodes, score) - 1, 0, nodes.size - 2)
            past, low, high = score - nodes[at], slopes[cells, at], slopes[cells, at + 1]
            bend = (high - low) / (nodes[at + 1] - nodes[at])
            value = values[cells, at] + low * past + bend * past * past / 2
            return float(value.mean()), A.T @ (low + bend * past) / cells.size

        found: Any = minimize(
            hinge, now, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 300}
        )
        now = found.x
    return np.asarray(now)


def literal_expansion(rows: Matrix) -> pd.DataFrame:
    """Return the rows repeated for each threshold with their costs, by loops over rows and ``apply``.

    It is how the original prepares each call of its oracle, and where its time goes; written here to time it.
    """
    pieces = []
    for i in range(rows.y.size):
        for k in range(GRID + 1):
            z = k / GRID
            pieces.append({"row": i, "z": z, "y": rows.y[i], "group": int(rows.codes[i])})
    frame = pd.DataFrame(pieces)
    frame["cost"] = frame.apply(lambda r: (r["z"] + 0.5 / GRID - r["y"]) ** 2, axis=1)
    frame["weight"] = frame.apply(lambda r: abs(r["cost"]), axis=1)
    frame["side"] = frame.apply(lambda r: 1 * (r["cost"] < 0), axis=1)
    return frame


# ---------------------------------------------------------------------- other baselines


def barycentre(train: tuple[Floats, Ints], test: tuple[Floats, Ints], part: float) -> Floats:
    """Return test scores moved by ``part`` of the way to the Wasserstein barycentre (Chzhen and others, 2020)."""
    score, codes = train
    new, new_codes = test
    groups = int(codes.max()) + 1
    shares = np.bincount(codes) / codes.size
    quantiles = [np.sort(score[codes == k]) for k in range(groups)]
    out = np.empty_like(new)
    for k in range(groups):
        inside = new_codes == k
        level = np.searchsorted(quantiles[k], new[inside]) / quantiles[k].size
        moved = sum(p * np.quantile(q, np.clip(level, 0, 1)) for p, q in zip(shares, quantiles, strict=True))
        out[inside] = (1 - part) * new[inside] + part * moved
    return out


def fairlearn_parity(train: Matrix, eps: float) -> Callable[[Floats], tuple[Floats, Floats]]:
    """Return Fairlearn's ExponentiatedGradient for demographic parity with a logistic regression, as mixed scores."""
    from fairlearn.reductions import DemographicParity, ExponentiatedGradient

    model = ExponentiatedGradient(
        LogisticRegression(max_iter=300), DemographicParity(difference_bound=eps), max_iter=30
    )
    model.fit(train.X, train.y.astype(int), sensitive_features=train.codes)
    kept = [(p, w) for p, w in zip(model.predictors_, model.weights_, strict=True) if w > 1e-9]

    def scores(X: Floats) -> tuple[Floats, Floats]:
        values = np.stack([_chance(p, X) for p, _ in kept])
        return values, np.array([w for _, w in kept])

    return scores


def _chance(model: Any, X: Floats) -> Floats:
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(X)[:, 1])
    return np.asarray(model.predict(X), dtype=np.float64)


def fairlearn_bounded(train: Matrix, bound: float) -> tuple[Floats, float, float]:
    """Return the group losses, the loss and the gap of Fairlearn's BoundedGroupLoss with linear models, on its rows."""
    from fairlearn.reductions import BoundedGroupLoss, ExponentiatedGradient, SquareLoss
    from sklearn.linear_model import LinearRegression

    model = ExponentiatedGradient(LinearRegression(), BoundedGroupLoss(SquareLoss(0, 1), upper_bound=bound))
    model.fit(train.X, train.y, sensitive_features=train.codes)
    values = np.stack([np.clip(p.predict(train.X), 0, 1) for p in model.predictors_])
    weights = np.asarray(model.weights_, dtype=np.float64)[: len(values)]
    loss = weights @ (values - train.y) ** 2
    groups = np.array([loss[train.codes == k].mean() for k in range(int(train.codes.max()) + 1)])
    return groups, float(loss.mean()), float(model.best_gap_)


def constant(loss: str, train: Matrix, test: Matrix) -> Point:
    """Return the point of the mean label."""
    return Point(mean_loss(loss, test.y, np.full(test.y.size, train.y.mean())), 0.0)
