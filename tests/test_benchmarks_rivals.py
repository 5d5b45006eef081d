"""The rivals that the benchmarks hold against fairfix solve the problems that their papers state."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from fairfix.solvers.reduction import CostSensitive
from scipy.optimize import minimize

from tests.scripts import script


@pytest.fixture(scope="module")
def logloss() -> ModuleType:
    """The rivals of log loss."""
    return script("benchmarks/logloss_rivals.py")


@pytest.fixture(scope="module")
def regression() -> ModuleType:
    """The peers of fair regression."""
    return script("benchmarks/fair_regression_peers.py")


@pytest.fixture(scope="module")
def fronts() -> ModuleType:
    """Its fronts."""
    return script("benchmarks/fair_regression_fronts.py")


@pytest.fixture(scope="module")
def repair() -> ModuleType:
    """Repairs under noise."""
    return script("benchmarks/noisy_repair.py")


@pytest.fixture(scope="module")
def ideal() -> ModuleType:
    """The game of the ideal algorithm."""
    return script("benchmarks/noisy_ideal.py")


@pytest.fixture(scope="module")
def algorithms() -> ModuleType:
    """Algorithms 2 and 4 of the paper on noisy groups."""
    return script("benchmarks/noisy_algorithms.py")


def rows(logloss: ModuleType, seed: int) -> Any:
    """Return rows whose group, label and features hang together."""
    rng = np.random.default_rng(seed)
    group = (rng.random(400) < 0.4).astype(np.int64)
    X = rng.normal(size=(400, 3)) + 0.8 * group[:, None] * np.array([1.0, 0.0, -0.5])
    label = (rng.random(400) < 1 / (1 + np.exp(-X @ np.array([1.0, -1.0, 0.5])))).astype(float)
    return logloss.Rows(np.column_stack([X, group]), label, group)


def test_reweighing_makes_group_and_label_independent(logloss: ModuleType) -> None:
    """In the weighted rows every group has the same share of labels; shares of groups and labels stay."""
    data = rows(logloss, 0)
    weight = logloss.reweighed(data)
    everybody = data.y.mean()
    for k in range(2):
        own = data.g == k
        assert np.average(data.y[own], weights=weight[own]) == pytest.approx(everybody)
        assert weight[own].sum() == pytest.approx(own.sum())
    assert weight[data.y == 1].sum() == pytest.approx(data.y.sum())


def test_least_log_loss_without_covariance_is_that_of_another_solver(logloss: ModuleType) -> None:
    """SLSQP, from zero, finds nothing better on the constraint; and the constraint holds."""
    data = rows(logloss, 1)
    full = np.column_stack([data.X, np.ones(data.y.size)])
    A = logloss.covariances(data, "DP", None)
    pull = np.append(np.full(4, logloss.L2), 0.0)

    def loss(theta: np.ndarray) -> float:
        z = full @ theta
        return float(np.mean(np.logaddexp(0, z) - data.y * z) + 0.5 * pull @ theta**2)

    found = logloss.covariance(data, "DP")
    z = full @ found
    assert np.cov(z, data.g)[0, 1] == pytest.approx(0, abs=1e-12)
    known = minimize(
        loss,
        np.zeros(5),
        method="SLSQP",
        constraints={"type": "eq", "fun": lambda v: A @ v},
        options={"ftol": 1e-14},
    )
    assert loss(found) == pytest.approx(known.fun, abs=1e-7)


@pytest.mark.parametrize(("constraint", "labels"), [("EOpp", [1]), ("EOdd", [1, 0])])
def test_the_other_covariance_vanishes_within_labels(
    logloss: ModuleType, constraint: str, labels: list[int]
) -> None:
    """Of the distance of those on the wrong side, by definition; the unconstrained fit has it."""
    data = rows(logloss, 2)
    free, found = logloss.plain(data), logloss.covariance(data, constraint)
    before = np.append(free.coef_[0], free.intercept_)
    for label in labels:
        own = data.y == label
        sizes = []
        for theta in (before, found):
            z = data.X[own] @ theta[:-1] + theta[-1]
            wrong = np.minimum((2 * label - 1) * z, 0)
            sizes.append(abs(float(np.mean((data.g[own] - data.g[own].mean()) * wrong))))
        assert sizes[1] < 1e-3  # few rows change sides at once: the last of it may alternate
        assert sizes[0] > 20 * sizes[1]


class Grid:
    """What the hinge oracle of fairfix looks at."""

    def __init__(self, on_grid: np.ndarray) -> None:
        self.on_grid = on_grid
        self.share = np.full(len(on_grid), 1 / len(on_grid))
        self.thresholds = np.arange(1, on_grid.shape[1]) / (on_grid.shape[1] - 1)


def test_the_table_of_the_hinge_is_the_sum_over_thresholds(regression: ModuleType) -> None:
    """Up to a constant of each kind of row, at any score, where it is hardly rounded."""
    rng = np.random.default_rng(0)
    gain = rng.normal(size=(3, regression.GRID))
    nodes, values, slopes = regression.hinge_of(gain, 1e-9)
    scores = rng.uniform(-0.5, 1.5, 200)
    z = np.arange(1, regression.GRID + 1) / regression.GRID
    side, half = -np.sign(gain), 0.5 / regression.GRID
    for kind in range(3):
        short = np.maximum(half - side[kind] * (scores[:, None] - z), 0.0)
        known = short @ np.abs(gain[kind])
        found = np.interp(scores, nodes, values[kind])
        assert found - known == pytest.approx(np.full(200, (found - known).mean()), abs=1e-6)
    assert (np.diff(slopes, axis=1) >= -1e-12).all()  # convex


def test_the_hinge_oracle_is_as_good_as_that_of_fairfix(regression: ModuleType) -> None:
    """Which sums over rows and thresholds; the coefficients are within their bound."""
    rng = np.random.default_rng(1)
    X, cells = rng.normal(size=(200, 4)), rng.integers(0, 6, 200)
    cost = np.cumsum(rng.normal(0.02 * np.arange(6)[:, None] - 0.05, 0.1, (6, regression.GRID + 1)), axis=1)
    problem = Grid(cost[cells])
    other = CostSensitive(X)
    model, _ = other(problem)  # type: ignore[arg-type]  # it looks at nothing else
    found = regression.least_hinge(other.A, cells, np.diff(cost, axis=1), None)
    gain = np.diff(problem.on_grid, axis=1)
    exact = (problem.thresholds, -np.sign(gain), np.abs(gain) / 200, 1e-9)
    theirs, ours = (other.value(v, *exact)[0] for v in (np.append(model.coef, model.intercept), found))
    assert np.abs(found[:-1]).max() <= 1.0
    assert ours == pytest.approx(theirs, rel=1e-3)


@pytest.mark.parametrize(
    ("loss", "oracle"), [("square", "LS"), ("square", "CS"), ("logistic", "LR"), ("logistic", "CS")]
)
def test_algorithm_1_keeps_its_slack(regression: ModuleType, loss: str, oracle: str) -> None:
    """On its thresholds, where the constant is far enough from the slack; and it pays for less."""
    rng = np.random.default_rng(3)
    group = (rng.random(400) < 0.4).astype(np.int64)
    X = np.column_stack([rng.normal(size=(400, 2)) + 0.7 * group[:, None], group - group.mean()])
    score = 1 / (1 + np.exp(-X @ np.array([0.6, 0.4, 0.0])))
    y = (rng.random(400) < score).astype(float) if loss == "logistic" else np.round(score, 2)
    data = regression.Matrix(X, y, group)
    losses = []
    for eps in (0.1, 0.3):
        model = regression.Official(eps, oracle, loss).fit(data)
        values, chances = model.scores(X)
        point = regression.judged(loss, data, values, chances)
        assert point.ks <= eps + 0.06
        losses.append(point.loss)
    assert losses[1] <= losses[0] + 1e-6


def test_the_fair_ends_of_fair_regression(fronts: ModuleType) -> None:
    """Without group means no prediction is correlated with the group; averaged over groups it does not see it."""
    rng = np.random.default_rng(4)
    group = (rng.random(300) < 0.3).astype(np.int64)
    X = np.column_stack([rng.normal(size=(300, 2)) + group[:, None], group - group.mean()])
    y = X @ np.array([0.3, 0.1, 0.5]) + 0.1 * rng.normal(size=300)
    data = fronts.Data("made", None, "y", "group", "square")
    train = fronts.Matrix(X, y, group)
    said = fronts.without_means(data, train)(train)
    assert said[group == 0].mean() == pytest.approx(said[group == 1].mean(), abs=1e-9)
    other = fronts.Matrix(np.column_stack([X[:, :2], -X[:, 2]]), y, 1 - group)
    averaged = fronts.averaged(data, train)
    np.testing.assert_allclose(averaged(train), averaged(other), atol=1e-12)
    assert np.ptp(fronts.linear(data, train)(train) - averaged(train)) > 0.1


def test_an_oracle_keeps_the_constraint_and_errs_less_than_what_is_certified(repair: ModuleType) -> None:
    """On the rows of the fit: it knows the groups that the certified rule has to fear anything about."""
    rng = np.random.default_rng(5)
    group = (rng.random(2000) < 0.35).astype(np.int64)
    score = 1 / (1 + np.exp(-rng.normal(0.8 * group - 0.5, 1.2)))
    label = (rng.random(2000) < score).astype(np.int64)
    data = repair.Data("made", score[:, None], label, group, ("a", "b"), "one_sided_equal_opportunity", 0.02)
    every = np.arange(2000)
    found = {}
    for name, recorded in (("oracle", group), ("certified", repair.noisy(data, 0.05, rng, None))):
        labelled, _, none = repair.tables(data, recorded)
        told = (repair.KnownTable(), none) if name == "oracle" else (repair.KnownTableByLabel(), labelled)
        F, at = repair.accepted_by(data, score, recorded, every, *told)
        found[name] = repair.judged(data, every, F[recorded, at])
    for _, violations in found.values():
        assert violations.max() <= 1e-6
    assert found["oracle"][0] < found["certified"][0]


def test_the_game_keeps_what_its_theorems_allow(ideal: ModuleType) -> None:
    """At any number of rounds, against the optimum of the program; and it nears that."""
    rng = np.random.default_rng(6)
    mass = rng.dirichlet(np.ones(2 * 6 * 2)).reshape(2, 6, 2)
    mass[..., 1] *= np.arange(1, 7)
    mass[..., 0] *= np.arange(6, 0, -1)
    mass /= mass.sum()
    totals = mass.sum(1).T[:, None, :]  # by label and recorded group
    adversary = ideal.TableInterval(np.array([0.95, 0.05])[None, :, None] * totals)
    errors, worst = ideal.class_of(mass, adversary, "one_sided_equal_opportunity", 0.05)
    known = ideal.solve_ideal(mass, adversary, "one_sided_equal_opportunity", 0.05)
    assert known.error > errors.min() + 1e-3  # the constraint binds
    size = float(np.linalg.norm(worst, axis=1).max())
    for rounds in (30, 3000):
        error, violation = ideal.played(errors, worst, rounds, ideal.BALL)
        regret = ideal.BALL * size / np.sqrt(rounds)
        assert error <= known.error + regret
        assert violation <= (known.error - errors.min() + regret) / ideal.BALL
    assert error == pytest.approx(known.error, abs=0.02)
    assert violation <= 0.02


def nearest(v: np.ndarray, start: np.ndarray, constraints: list[dict[str, Any]]) -> np.ndarray:
    """Return the point of least distance that is nonnegative and keeps constraints, by another solver."""
    found = minimize(
        lambda p: np.sum((p - v) ** 2),
        start,
        jac=lambda p: 2 * (p - v),
        method="SLSQP",
        bounds=[(0, None)] * v.size,
        constraints=constraints,
        options={"ftol": 1e-14, "maxiter": 500},
    )
    return found.x


@pytest.mark.parametrize("radius", [0.05, 0.3, 0.95])
def test_the_ball_s_projection_is_that_of_another_solver(algorithms: ModuleType, radius: float) -> None:
    """Total variation is half a sum of distances, written with mass added and taken: no kink for the solver."""
    rng = np.random.default_rng(7)
    for _ in range(5):
        centre = rng.random(9) * (rng.random(9) < 0.6)
        centre /= centre.sum()
        v = centre + rng.normal(size=9) * 0.3
        found = algorithms.near(v, centre, radius)
        assert found.sum() == pytest.approx(1)
        assert found.min() >= -1e-12
        assert np.maximum(found - centre, 0).sum() <= radius + 1e-9

        def distance(x: np.ndarray, centre: np.ndarray = centre, v: np.ndarray = v) -> float:
            return float(np.sum((centre + x[:9] - x[9:] - v) ** 2))

        known = minimize(
            distance,
            np.zeros(18),
            method="SLSQP",
            bounds=[*[(0, None)] * 9, *((0, top) for top in centre)],
            constraints=[
                {"type": "eq", "fun": lambda x: x[:9].sum() - x[9:].sum()},
                {"type": "ineq", "fun": lambda x: radius - x[:9].sum()},
            ],
            options={"ftol": 1e-15, "maxiter": 1000},
        )
        assert np.sum((found - v) ** 2) == pytest.approx(known.fun, abs=1e-6)


def test_shares_keep_the_table_and_are_the_nearest(algorithms: ModuleType) -> None:
    """The alternating projection ends where another solver does."""
    rng = np.random.default_rng(8)
    mass = rng.dirichlet(np.ones(8)).reshape(2, 4)
    truth = rng.dirichlet(np.ones(2), (2, 4)).transpose(2, 0, 1)
    joint = (truth * mass).sum(-1)
    v = truth + rng.normal(size=truth.shape) * 0.4
    found = algorithms.shares_near(v, mass, joint, sweeps=3000)
    np.testing.assert_allclose(found.sum(0), 1, atol=1e-6)
    np.testing.assert_allclose((found * mass).sum(-1), joint, atol=1e-6)
    assert found.min() >= -1e-9
    known = nearest(
        v.ravel(),
        truth.ravel(),
        [
            {"type": "eq", "fun": lambda p: p.reshape(v.shape).sum(0).ravel() - 1},
            {"type": "eq", "fun": lambda p: ((p.reshape(v.shape) * mass).sum(-1) - joint)[0]},
        ],
    )
    np.testing.assert_allclose(found.ravel(), known, atol=1e-4)


@pytest.mark.parametrize("name", ["soft assignments", "DRO"])
def test_players_see_less_than_the_exact_worst_case(
    algorithms: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Their distributions are among those allowed, so no violation of theirs is above the exact one."""
    monkeypatch.setattr(algorithms, "STEPS", 200)
    rng = np.random.default_rng(9)
    many, k = 2, (rng.random(600) < 0.4).astype(np.int64)
    X = np.column_stack([rng.normal(size=(600, 2)) + k[:, None], np.eye(2)[k], np.ones(600)])
    y = (rng.random(600) < 1 / (1 + np.exp(-X[:, 0]))).astype(np.int64)
    game = algorithms.Game(X, y, k, many, (1,), 0.05)
    recorded = np.bincount(k) / k.size
    joint = np.array([[0.9, 0.1], [0.1, 0.9]]) * recorded
    radius = algorithms.valid_radius(joint)
    if name == "DRO":
        adversary, exact = (
            algorithms.Ball(game, radius),
            algorithms.TotalVariationBalls(radius, np.arange(many)),
        )
    else:
        adversary, exact = algorithms.Cells(game, joint), algorithms.TableInterval(joint)
    for theta, seen in algorithms.trained(game, adversary, 0.5):
        worst = algorithms.excess_of(game.masses(X @ theta), exact, "one_sided_equal_opportunity", 0.05)
        assert seen <= np.nanmax(worst) + 2e-3
