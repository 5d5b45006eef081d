"""The laws of the fair logistic game: formulas by brute force, optima by other solvers, invariances, certificates."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from fairfix.solvers import robust_log_loss as game
from fairfix.solvers.robust_log_loss import (
    ConstraintGroups,
    SaddlePoint,
    adversary,
    marginal,
    solve,
    truncated,
)
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from tests.strategies import examples

CONSTRAINTS = ("parity", "opportunity", "odds")


def data(
    seed: int, n: int, d: int, groups: int, constraint: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, ConstraintGroups]:
    """Return features, labels, groups and cells of random rows whose groups differ."""
    rng = np.random.default_rng(seed)
    X, g = rng.normal(size=(n, d)), np.arange(n) % groups
    X[:, 0] += rng.uniform(0, 1.5) * g
    chance = expit(X @ rng.normal(size=d) * rng.uniform(0.3, 1.5) + 0.4 * g - 1)
    y = (rng.random(n) < chance).astype(float)
    for k in range(groups):  # both labels in every group
        rows = np.flatnonzero(g == k)
        y[rows[0]], y[rows[1]] = 0.0, 1.0
    return X, y, g, cells_of(constraint, g, y, groups)


def cells_of(constraint: str, g: np.ndarray, y: np.ndarray, groups: int) -> ConstraintGroups:
    """Return the cells of a constraint."""
    if constraint == "parity":
        return ConstraintGroups(g, np.zeros(groups, dtype=int))
    if constraint == "opportunity":
        return ConstraintGroups(np.where(y == 1, g, -1), np.zeros(groups, dtype=int))
    return ConstraintGroups(g + groups * y.astype(int), np.repeat([0, 1], groups))


def guesses(X: np.ndarray, cells: ConstraintGroups, seed: int, trust: float) -> np.ndarray:
    """Return chances of cells that are partly the truth, partly a wrong function of the features."""
    rng = np.random.default_rng(seed)
    wrong = np.exp(X @ rng.normal(size=(X.shape[1], cells.events.size)))
    truth = (cells.codes[:, None] == np.arange(cells.events.size)).astype(float)
    return np.asarray(trust * truth + (1 - trust) * wrong / wrong.sum(axis=1, keepdims=True))


def rule(found: SaddlePoint, X: np.ndarray, chances: np.ndarray) -> np.ndarray:
    """Return P of the rows by the definition."""
    return truncated(expit(X @ found.coef + found.intercept), chances @ (found.prices / found.shares))


def spread(found: SaddlePoint, cells: ConstraintGroups) -> float:
    """Return the largest difference of two rates of an event."""
    return max(float(np.ptp(found.rates[cells.events == e])) for e in np.unique(cells.events))


@pytest.mark.parametrize("price", [-30.0, -4.0, -1.2, -0.5, 0.0, 0.7, 1.5, 6.0, 40.0])
def test_the_rule_is_the_inner_minimum(price: float) -> None:
    """P minimises max(z - log P, -log(1 - P)) + c P, and Q is the slope of that minimum in z."""
    z = np.linspace(-4, 4, 41)
    grid = np.linspace(1e-6, 1 - 1e-6, 200_001)
    with np.errstate(divide="ignore"):
        values = np.maximum(z[:, None] - np.log(grid), -np.log1p(-grid)) + price * grid
    P = truncated(expit(z), np.full(z.size, price))
    Q = adversary(expit(z), np.full(z.size, price))

    np.testing.assert_allclose(P, grid[values.argmin(axis=1)], atol=1e-4)

    def phi(at: np.ndarray) -> np.ndarray:
        inner = truncated(expit(at), np.full(at.size, price))
        with np.errstate(divide="ignore"):
            return np.asarray(np.maximum(at - np.log(inner), -np.log1p(-inner)) + price * inner)

    np.testing.assert_allclose(Q, (phi(z + 1e-5) - phi(z - 1e-5)) / 2e-5, atol=2e-5)
    assert ((Q >= 0) & (Q <= 1)).all()


def program(X: np.ndarray, y: np.ndarray, cells: ConstraintGroups, slack: float, l2: float) -> float:
    """Return the optimum of the equivalent convex program in (theta, P, t), by a conic solver."""
    n, d = X.shape
    full = np.column_stack([X, np.ones(n)])
    ridge = np.append(np.full(d, l2), game.FREE)
    theta, P, t = cp.Variable(d + 1), cp.Variable(n), cp.Variable(n)
    held = [t >= full @ theta - cp.log(P), t >= -cp.log(1 - P)]
    for e in np.unique(cells.events):
        inside = np.flatnonzero(cells.events == e)
        rate = {k: (cells.codes == k) / (cells.codes == k).sum() for k in inside}
        held += [(rate[a] - rate[b]) @ P <= slack for a in inside for b in inside if a != b]
    value = cp.sum(t - cp.multiply(full @ theta, y)) / n + 0.5 * cp.sum_squares(
        cp.multiply(np.sqrt(ridge), theta)
    )
    return float(cp.Problem(cp.Minimize(value), held).solve(solver=cp.CLARABEL))


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize(("groups", "slack"), [(2, 0.0), (2, 0.1), (3, 0.0), (3, 0.08)])
def test_the_optimum_is_that_of_the_convex_program(constraint: str, groups: int, slack: float) -> None:
    """A general solver of the equivalent program finds the same value, and the rates hold the slack."""
    X, y, _, cells = data(groups, 36, 2, groups, constraint)
    found = solve(X, y, cells, slack=slack, l2=0.05)

    assert found.objective == pytest.approx(program(X, y, cells, slack, 0.05), abs=1e-6)
    assert spread(found, cells) <= slack + 1e-9
    assert found.converged
    assert 0 <= found.gap < 1e-9


AWKWARD = ("plain", "constant", "twice", "rounded", "units", "rare", "separable", "weights")


def awkward(
    seed: int, kind: str, constraint: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, ConstraintGroups]:
    """Return a game with groups of unlike sizes and one more trouble; groups without a needed label are left out."""
    rng = np.random.default_rng(seed)
    n, d, groups = int(rng.integers(60, 900)), int(rng.integers(1, 6)), int(rng.integers(2, 13))
    X, g = rng.normal(size=(n, d)), rng.choice(groups, n, p=rng.dirichlet(np.full(groups, 0.5)))
    X[:, -1] += rng.uniform(0, 2) * g
    z = X @ rng.normal(size=d) + rng.normal(size=groups)[g] - 2
    y = (z > np.median(z) if kind == "separable" else rng.random(n) < expit(z)).astype(float)
    X = {
        "constant": np.column_stack([X, np.ones(n)]),
        "twice": np.column_stack([X, X]),
        "rounded": np.round(X),
        "units": X * 10 ** rng.uniform(-2, 2, d),
        "rare": np.column_stack([X, rng.random((n, 2)) < 3 / n]).astype(float),
    }.get(kind, X)
    weight = rng.exponential(size=n) * (rng.random(n) < 0.8) if kind == "weights" else None
    there = np.ones(n, dtype=bool) if weight is None else weight > 0
    kept = [
        k
        for k in range(groups)
        if {0, 1} <= set(y[there & (g == k)]) or (constraint == "parity" and k in g[there])
    ]
    rows = np.isin(g, kept)
    cells = cells_of(constraint, np.searchsorted(kept, g[rows]), y[rows], len(kept))
    return X[rows], y[rows], None if weight is None else weight[rows], cells


@settings(max_examples=examples(80))
@given(
    st.integers(0, 10**6),
    st.sampled_from(AWKWARD),
    st.sampled_from(CONSTRAINTS),
    st.floats(-6, -0.5),
    st.sampled_from([0.0, 0.05]),
)
@example(43, "units", "opportunity", -2.0, 0.0)  # groups of unlike units
@example(34, "separable", "parity", -4.0, 0.0)  # a group of scores near 0
@example(227581, "separable", "parity", -3.0, 0.0)  # one near 0 and one near 1
def test_awkward_games_are_solved_too(
    seed: int, kind: str, constraint: str, power: float, slack: float
) -> None:
    """Tiny groups; constant, equal or rare columns, any units, separable labels, weights: a certified optimum, soon."""
    X, y, weight, cells = awkward(seed, kind, constraint)
    assume(cells.events.size > 0 and 0 < y.mean() < 1)
    found = solve(X, y, cells, weight, slack=slack, l2=10.0**power)

    assert found.converged
    assert found.gap < 1e-5
    assert spread(found, cells) <= slack + 1e-8
    assert found.steps <= 200


@pytest.mark.parametrize("seed", range(examples(4)))
@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_the_multipliers_alone_reach_the_same_point(
    seed: int, constraint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a joint search the minima of the proximal inner maximum lead to the optimum."""
    X, y, _, cells = data(seed, 300, 4, 3, constraint)
    slack = 0.04 * (seed % 2)
    joint = solve(X, y, cells, slack=slack, l2=0.01)
    monkeypatch.setattr(game, "_powell", lambda _, at: at)
    alone = solve(X, y, cells, slack=slack, l2=0.01)

    assert alone.objective == pytest.approx(joint.objective, abs=1e-9)
    np.testing.assert_allclose(alone.coef, joint.coef, atol=1e-5)


@pytest.mark.parametrize("slack", [0.0, 0.05])
@pytest.mark.parametrize("points", [4, 6, 8])
@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_the_certificate_holds_before_the_end(
    points: int, constraint: str, slack: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped early, the value is within the certified distance of the optimum, and is not called converged."""
    X, y, _, cells = data(8, 400, 4, 3, constraint)
    best = solve(X, y, cells, slack=slack, l2=0.01)
    monkeypatch.setattr(game, "POINTS", points)
    monkeypatch.setattr(game, "ROUNDS", 0)
    early = solve(X, y, cells, slack=slack, l2=0.01)

    assert abs(early.objective - best.objective) <= early.gap + 1e-12
    if early.gap > 1e-6:
        assert not early.converged


@pytest.mark.parametrize("slack", [0.0, 0.05])
@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_the_certificate_knows_how_far_prices_may_go(
    constraint: str, slack: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The distance is certified too at the plain regression without prices, and at the optimum of a slack of 0."""
    X, y, _, cells = data(8, 400, 4, 3, constraint)
    best = solve(X, y, cells, slack=slack, l2=0.01)
    begin = solve(X, y, cells, slack=0.0 if slack else math.inf, l2=0.01)
    monkeypatch.setattr(game, "_powell", lambda _, at: at)
    monkeypatch.setattr(game, "ROUNDS", 0)
    begin = begin if slack else replace(begin, prices=np.zeros(cells.events.size))
    start = solve(X, y, cells, slack=slack, l2=0.01, start=begin)

    assert 1e-4 < abs(start.objective - best.objective) <= start.gap
    assert not start.converged


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_newton_needs_few_derivatives(constraint: str) -> None:
    """With the right second derivatives a smooth game of two groups takes a handful of steps."""
    X, y, _, cells = data(4, 2000, 5, 2, constraint)

    assert solve(X, y, cells, l2=0.01).steps <= 8


def test_without_a_bound_it_is_logistic_regression() -> None:
    """An infinite slack gives scikit-learn's coefficients, and so does a slack of 1; both give the same bits."""
    X, y, _, cells = data(1, 500, 3, 2, "parity")
    found, wide = (solve(X, y, cells, slack=slack, l2=0.02) for slack in (math.inf, 1.0))
    plain = LogisticRegression(C=1 / (0.02 * y.size), tol=1e-12, max_iter=10_000).fit(X, y)

    np.testing.assert_allclose(found.coef, plain.coef_[0], atol=1e-7)
    assert found.intercept == pytest.approx(plain.intercept_[0], abs=1e-7)
    assert found.coef.tobytes() == wide.coef.tobytes()


def test_the_intercept_can_be_penalised() -> None:
    """With the penalty the intercept is that of a regression on a column of ones."""
    X, y, _, cells = data(1, 500, 3, 2, "parity")
    found = solve(X, y, cells, slack=math.inf, l2=0.05, penalize_intercept=True)
    ones = np.column_stack([X, np.ones(y.size)])
    plain = LogisticRegression(C=1 / (0.05 * y.size), tol=1e-12, max_iter=10_000, fit_intercept=False)

    np.testing.assert_allclose(np.append(found.coef, found.intercept), plain.fit(ones, y).coef_[0], atol=1e-7)


@pytest.mark.parametrize("chances", [False, True])
@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_what_is_the_same_data_has_the_same_solution(constraint: str, chances: bool) -> None:
    """Rows in another order, a weight of two as the row twice, and units of features against those of the penalty."""
    X, y, _, cells = data(5, 300, 3, 2, constraint)
    guess = guesses(X, cells, 1, 0.7) if chances else None
    rng = np.random.default_rng(0)
    order, twice = rng.permutation(y.size), rng.random(y.size) < 0.5
    again = np.concatenate([np.arange(y.size), np.flatnonzero(twice)])

    def solved(rows: np.ndarray, weight: np.ndarray | None = None, unit: float = 1.0) -> SaddlePoint:
        own = None if guess is None else guess[rows]
        few = ConstraintGroups(cells.codes[rows], cells.events)
        l2 = 0.01 * unit**2
        begin = solve(unit * X[rows], y[rows], few, weight, slack=math.inf, l2=l2)
        return solve(unit * X[rows], y[rows], few, weight, cell_chances=own, slack=0.02, l2=l2, start=begin)

    one, every = solved(np.arange(y.size)), np.arange(y.size)
    assert one.converged
    for other, same in (
        (solved(order), one),
        (solved(every, unit=8.0), one),
        (solved(every, 1.0 + twice), solved(again)),
    ):
        assert other.objective == pytest.approx(same.objective, abs=1e-9)
        np.testing.assert_allclose(other.rates, same.rates, atol=1e-6)
        np.testing.assert_allclose(other.prices, same.prices, atol=1e-5)


def test_a_start_does_not_change_the_end() -> None:
    """The solution of another penalty is only a start."""
    X, y, _, cells = data(7, 400, 4, 2, "odds")
    cold = solve(X, y, cells, l2=0.001)
    warm = solve(X, y, cells, l2=0.001, start=solve(X, y, cells, l2=0.1))

    np.testing.assert_allclose(warm.coef, cold.coef, atol=1e-7)


def test_many_rows_begin_with_some_of_them() -> None:
    """The start from a part of the rows, which is taken from 24,000 rows on, leads to the same optimum."""
    X, y, _, cells = data(9, 25_000, 3, 3, "odds")
    found = solve(X, y, cells, l2=0.001)
    nothing = replace(found, coef=np.zeros(3), intercept=0.0, prices=np.zeros(4))
    cold = solve(X, y, cells, l2=0.001, start=nothing)

    assert found.converged
    np.testing.assert_allclose(found.coef, cold.coef, atol=1e-8)


@pytest.mark.parametrize("constraint", ["parity", "opportunity"])
def test_rare_categories_and_small_groups_are_in_the_part_that_it_begins_with(
    constraint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dozen ones in a column of unit spread and 25 of 25,000 rows in a group cost hardly a derivative of all rows."""
    X, y, g, _ = data(9, 25_000, 3, 2, constraint)
    rng = np.random.default_rng(0)
    rare = np.zeros((y.size, 3))
    for j in range(3):
        rare[rng.choice(y.size, 12, replace=False), j] = 1.0
    g[rng.choice(y.size, 25, replace=False)] = 2
    y[np.flatnonzero(g == 2)[:12]], y[np.flatnonzero(g == 2)[12:]] = 0.0, 1.0
    X, cells = np.column_stack([X, (rare - rare.mean(0)) / rare.std(0)]), cells_of(constraint, g, y, 3)
    sizes, derivative = [], game.LogLossSaddle.derivative

    def counted(self: game.LogLossSaddle, *given: Any) -> Any:
        sizes.append(self.y.size)
        return derivative(self, *given)

    monkeypatch.setattr(game.LogLossSaddle, "derivative", counted)
    found = solve(X, y, cells, l2=0.005)

    assert found.converged
    assert found.gap < 1e-9
    assert sizes.count(y.size) <= 2
    assert len(sizes) == found.steps
    assert min(sizes) < y.size / 4


def test_the_label_is_averaged_over_the_adversary() -> None:
    """Pi is a fixed point of pi Q_1 + (1 - pi) Q_0, and P lies between the two rules."""
    rng = np.random.default_rng(0)
    s, zero, one = rng.random(500), rng.normal(0, 3, 500), rng.normal(0, 3, 500)
    P, pi = marginal(s, zero, one)
    free = (1 - adversary(s, one)) + adversary(s, zero) > 1e-9

    np.testing.assert_allclose(
        (pi * adversary(s, one) + (1 - pi) * adversary(s, zero))[free], pi[free], atol=1e-12
    )
    low, high = np.sort([truncated(s, zero), truncated(s, one)], axis=0)
    assert ((low - 1e-12 <= P) & (high + 1e-12 >= P)).all()


def test_where_every_label_is_a_fixed_point_the_score_is_taken() -> None:
    """Q = 1 given label 1 and Q = 0 given label 0: pi is the plain score."""
    P, pi = marginal(np.array([0.7]), np.array([-20.0]), np.array([20.0]))

    assert pi[0] == 0.7
    assert P[0] == pytest.approx(0.7 / 20 + 0.3 * (1 - 1 / 20))


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("slack", [0.0, 0.05])
def test_certain_chances_lead_where_known_cells_lead(constraint: str, slack: float) -> None:
    """Chances of 0 and 1 are the game in which the cell is seen: the same optimum."""
    X, y, _, cells = data(1, 400, 3, 3, constraint)
    seen = solve(X, y, cells, slack=slack, l2=0.01)
    found = solve(X, y, cells, cell_chances=guesses(X, cells, 0, 1.0), slack=slack, l2=0.01)

    assert found.objective == pytest.approx(seen.objective, abs=1e-9)
    np.testing.assert_allclose(found.prices, seen.prices, atol=1e-6)
    np.testing.assert_allclose(found.coef, seen.coef, atol=1e-6)


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("slack", [0.0, 0.05])
def test_recorded_rates_hold_and_the_game_corrected_by_them_is_solved(constraint: str, slack: float) -> None:
    """A conic solver of the game whose rates are those by chances less what they differ finds the same value."""
    X, y, _, cells = data(9, 60, 2, 2, constraint)
    chances = guesses(X, cells, 1, 0.8)
    found = solve(X, y, cells, cell_chances=chances, slack=slack, l2=0.05)
    P, w = rule(found, X, chances), 1 / y.size
    recorded = np.array([P[cells.codes == k].mean() for k in range(cells.events.size)])
    by_chances = w * P @ chances / found.shares

    np.testing.assert_allclose(found.rates, recorded, atol=1e-12)
    assert spread(found, cells) <= slack + 1e-9
    assert found.converged
    assert np.abs(by_chances - recorded).max() > 0.01

    theta, p, t = cp.Variable(X.shape[1] + 1), cp.Variable(y.size), cp.Variable(y.size)
    z = np.column_stack([X, np.ones(y.size)]) @ theta
    rate = [
        w * chances[:, k] @ p / found.shares[k] - (by_chances - recorded)[k] for k in range(recorded.size)
    ]
    held = [t >= z - cp.log(p), t >= -cp.log(1 - p)]
    for e in np.unique(cells.events):
        inside = np.flatnonzero(cells.events == e)
        held += [rate[a] - rate[b] <= slack for a in inside for b in inside if a != b]
    ridge = np.append(np.full(X.shape[1], 0.05), game.FREE)
    cost = w * cp.sum(t - cp.multiply(z, y)) + 0.5 * cp.sum_squares(cp.multiply(np.sqrt(ridge), theta))
    best = float(cp.Problem(cp.Minimize(cost), held).solve(solver=cp.CLARABEL))

    assert found.objective == pytest.approx(best, abs=1e-6)
    assert 0 <= found.gap < 1e-9


@settings(max_examples=examples(40))
@given(
    st.integers(0, 10**6), st.sampled_from([2, 3]), st.sampled_from(CONSTRAINTS), st.sampled_from([0.0, 0.05])
)
def test_chances_that_tell_something_are_solved(
    seed: int, groups: int, constraint: str, slack: float
) -> None:
    """Two or three groups by chances that are half the truth: within the slack, with a certificate."""
    X, y, _, cells = data(seed, 300, 4, groups, constraint)
    found = solve(X, y, cells, cell_chances=guesses(X, cells, seed, 0.5), slack=slack, l2=0.01)

    assert found.converged
    assert found.gap < 1e-8
    assert spread(found, cells) <= slack + 1e-8


def test_where_the_search_fails_the_solution_is_followed_from_the_cells_that_are_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A first search that ends at once leads to the same solution."""
    X, y, _, cells = data(1, 300, 3, 3, "odds")
    chances, search, calls = guesses(X, cells, 0, 0.6), game._powell, []
    whole = solve(X, y, cells, cell_chances=chances, l2=0.01)

    def failing(own: game.LogLossSaddle, at: game.GamePoint) -> game.GamePoint:
        calls.append(own.seen)
        return search(own, at) if len(calls) > 1 else at

    start = solve(X, y, cells, slack=math.inf, l2=0.01)
    monkeypatch.setattr(game, "_powell", failing)
    monkeypatch.setattr(game, "_drifted", lambda own, at: at)
    found = solve(X, y, cells, cell_chances=chances, l2=0.01, start=start)

    assert len(calls) > 2
    assert found.converged
    assert found.objective == pytest.approx(whole.objective, abs=1e-9)


def test_where_chances_tell_nothing_nothing_is_claimed() -> None:
    """Chances that are the same for all rows make no price move one group alone: not converged, and no certificate."""
    X, y, g, cells = data(0, 300, 2, 2, "parity")
    same = np.tile(np.bincount(g) / g.size, (g.size, 1))
    found = solve(X, y, cells, cell_chances=same, slack=0.0, l2=0.01)

    assert not found.converged
    assert spread(found, cells) > 0.01
    assert found.gap > 1e-3


def test_a_certificate_of_a_point_off_the_optimum_has_all_of_its_distance() -> None:
    """The bound is no more than the saddle value from points beside it, in coefficients as in prices."""
    X, y, _, cells = data(4, 150, 2, 2, "parity")
    chances, w = guesses(X, cells, 3, 1.0), np.full(y.size, 1 / y.size)
    best = solve(X, y, cells, l2=0.05)
    full = np.column_stack([X, np.ones(y.size)])
    ridge = np.append(np.full(2, 0.05), game.FREE)
    own = game.LogLossSaddle(full, y, w, cells, chances, 0.0, ridge)
    theta = np.append(best.coef, best.intercept)
    for prices in (best.prices, 0.9 * best.prices, 1.1 * best.prices):
        at = own.at(np.concatenate([theta, prices, np.zeros(1)]))
        at = own.at(np.concatenate([theta, prices, [at.rates.mean()]]))
        # the free intercept has next to no ridge, so only the price side of the bound is in scale
        at = replace(at, gradient=np.append(at.gradient[:-1], 0.0))
        assert abs(own.value(at) - best.objective) <= own.certified(at) + 1e-9
