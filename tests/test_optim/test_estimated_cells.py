"""The fair logistic game by chances of cells: beside the one that sees them, and beside an independent solver."""

from __future__ import annotations

import math
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from fairfix.optim.estimated_cells import EstimatedGame, solve_estimated
from fairfix.optim.robust_log_loss import FREE, Cells, Solution, solve, truncated
from scipy.special import expit

from tests.test_optim.test_robust_log_loss import CONSTRAINTS, data, spread


def free(X: np.ndarray, y: np.ndarray, cells: Cells, l2: float) -> Solution:
    """Return the model without prices."""
    return solve(X, y, cells, slack=math.inf, l2=l2)


def guesses(X: np.ndarray, cells: Cells, seed: int, trust: float) -> np.ndarray:
    """Return chances of cells that are partly the truth, partly a wrong function of the features."""
    rng = np.random.default_rng(seed)
    wrong = np.exp(X @ rng.normal(size=(X.shape[1], cells.events.size)))
    truth = (cells.codes[:, None] == np.arange(cells.events.size)).astype(float)
    return np.asarray(trust * truth + (1 - trust) * wrong / wrong.sum(axis=1, keepdims=True))


def rule(found: Solution, X: np.ndarray, chances: np.ndarray) -> np.ndarray:
    """Return P of the rows by the definition."""
    return truncated(expit(X @ found.coef + found.intercept), chances @ (found.prices / found.shares))


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("slack", [0.0, 0.05])
def test_certain_chances_lead_where_known_cells_lead(constraint: str, slack: float) -> None:
    """Chances of 0 and 1 are the game in which the cell is seen: the same optimum, by another solver."""
    X, y, _, cells = data(1, 400, 3, 3, constraint)
    seen = solve(X, y, cells, slack=slack, l2=0.01)
    found = solve_estimated(
        X, y, cells, guesses(X, cells, 0, 1.0), slack=slack, l2=0.01, start=free(X, y, cells, 0.01)
    )

    assert found.objective == pytest.approx(seen.objective, abs=1e-9)
    np.testing.assert_allclose(found.prices, seen.prices, atol=1e-6)
    np.testing.assert_allclose(found.coef, seen.coef, atol=1e-6)


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("slack", [0.0, 0.05])
def test_recorded_rates_hold_and_the_game_corrected_by_them_is_solved(constraint: str, slack: float) -> None:
    """A conic solver of the game whose rates are those by chances less what they differ finds the same value."""
    X, y, _, cells = data(9, 60, 2, 2, constraint)
    chances = guesses(X, cells, 1, 0.8)
    found = solve_estimated(X, y, cells, chances, slack=slack, l2=0.05, start=free(X, y, cells, 0.05))
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
    ridge = np.append(np.full(X.shape[1], 0.05), FREE)
    cost = w * cp.sum(t - cp.multiply(z, y)) + 0.5 * cp.sum_squares(cp.multiply(np.sqrt(ridge), theta))
    best = float(cp.Problem(cp.Minimize(cost), held).solve(solver=cp.CLARABEL))

    assert found.objective == pytest.approx(best, abs=1e-6)
    assert 0 <= found.gap < 1e-9


def test_the_derivative_is_that_of_the_residual() -> None:
    """By finite differences, at a point where some rows are capped, some lifted and some left."""
    X, y, _, cells = data(3, 200, 3, 3, "parity")
    chances, recorded = guesses(X, cells, 2, 0.5), np.eye(3)[cells.codes]
    full, w = np.column_stack([X, np.ones(y.size)]), np.full(y.size, 1 / y.size)
    game = EstimatedGame(full, y, w, chances, recorded, cells, 0.02, np.full(4, 0.01))
    place, sizes = np.array([0.4, -0.3, 0.8, 0.2, 1.9, -1.2, -0.7, 0.45]), [4, 7]

    def residual(at: np.ndarray) -> np.ndarray:
        there = game.at(*np.split(at, sizes))
        return np.concatenate([there.gradient, there.residual, game.matrix @ there.prices])

    at = game.at(*np.split(place, sizes))
    moved = [(residual(place + h) - residual(place - h)) / 2e-6 for h in 1e-6 * np.eye(8)]

    assert 0.05 < at.between.mean() < 0.95
    np.testing.assert_allclose(game.derivative(at, 0.0), np.transpose(moved), atol=1e-5)


def test_where_chances_tell_nothing_nothing_is_claimed() -> None:
    """Chances that are the same for all rows make no price move one group alone: not converged, and no certificate."""
    X, y, g, cells = data(0, 300, 2, 2, "parity")
    same = np.tile(np.bincount(g) / g.size, (g.size, 1))
    found = solve_estimated(X, y, cells, same, slack=0.0, l2=0.01, start=free(X, y, cells, 0.01))

    assert not found.converged
    assert spread(found, cells) > 0.01
    assert found.gap > 1e-3


def test_a_certificate_of_a_point_off_the_optimum_has_all_of_its_distance() -> None:
    """The bound is no more than the saddle value from points beside it, in coefficients as in prices."""
    X, y, _, cells = data(4, 150, 2, 2, "parity")
    chances, w = guesses(X, cells, 3, 1.0), np.full(y.size, 1 / y.size)
    best = solve(X, y, cells, l2=0.05)
    full = np.column_stack([X, np.ones(y.size)])
    ridge = np.append(np.full(2, 0.05), FREE)
    game = EstimatedGame(full, y, w, chances, chances, cells, 0.0, ridge)
    theta = np.append(best.coef, best.intercept)
    for prices in (best.prices, 0.9 * best.prices, 1.1 * best.prices):
        at = game.at(theta, prices, np.zeros(1))
        at = game.at(theta, prices, np.array([at.rates.mean()]))
        # the free intercept has next to no ridge, so only the price side of the bound is in scale
        at = replace(at, gradient=np.append(at.gradient[:-1], 0.0))
        assert abs(game.value(at) - best.objective) <= game.certified(at) + 1e-9
