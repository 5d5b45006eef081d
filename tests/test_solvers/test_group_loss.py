"""Bounded group loss against general solvers, its certificates and its invariances."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import numpy.typing as npt
import pytest
from fairfix.solvers.exponentiated_gradient import Game
from fairfix.solvers.group_loss import GroupLossSolution, Infeasible, solve_linear
from fairfix.solvers.group_loss_members import MembersSolution, solve_members
from fairfix.solvers.mixtures import matrix_game
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import examples

Floats = npt.NDArray[np.float64]
Data = tuple[Floats, Floats, npt.NDArray[np.int64]]

REACHED = {"tol_gap_abs": 1e-7, "tol_gap_rel": 1e-7, "tol_feas": 1e-7}
"""What the conic solver reaches on any processor, a tenth of what is asked of values here; its own 1e-8 it may miss."""


def data(seed: int, groups: int = 3, rows: int = 120, *, binary: bool = False) -> Data:
    """Return rows whose groups follow different lines."""
    rng = np.random.default_rng(seed)
    codes = np.concatenate([np.arange(groups), rng.integers(0, groups, rows - groups)])
    X = rng.normal(size=(rows, 3))
    form = X @ [1.0, -0.5, 0.2] + codes * (X[:, 0] - 0.7) + 0.3 * rng.normal(size=rows)
    return X, (rng.random(rows) < 1 / (1 + np.exp(-form))).astype(float) if binary else form, codes


def losses_at(
    v: Floats, X: Floats, y: Floats, codes: npt.NDArray[np.int64], loss: str, groups: int
) -> Floats:
    """Return the mean loss of each group."""
    form = X @ v[:-1] + v[-1]
    each = (form - y) ** 2 if loss == "square" else np.logaddexp(0, form) - y * form
    return np.array([each[codes == k].mean() for k in range(groups)])


def least_level(
    X: Floats, y: Floats, codes: npt.NDArray[np.int64], weight: Floats | None, groups: int, loss: str
) -> float:
    """Return the least bound that one linear model holds in every group: the excess over one no loss is below."""
    below = -float(np.average((y - np.average(y, weights=weight)) ** 2, weights=weight))
    found = solve_linear(X, y, codes, weight, np.full(groups, below), loss=loss)
    assert isinstance(found, Infeasible)
    return found.excess + below


def averaged(given: Data, bounds: Floats, **more: Any) -> tuple[MembersSolution | Infeasible, Floats]:
    """Return the average of weighted least squares within bounds, and all coefficients that were fitted."""
    X, y, codes = given
    A, seen = np.column_stack([X, np.ones(len(X))]), []

    def fit(weight: Floats) -> tuple[Floats, Floats]:
        root = np.sqrt(weight)
        seen.append(np.linalg.lstsq(A * root[:, None], root * y, rcond=None)[0])
        return seen[-1], A @ seen[-1]

    found = solve_members(fit, lambda u: ((u - y) ** 2, 2 * (u - y)), codes, None, bounds, **more)
    return found, np.array(seen)


@pytest.mark.parametrize("loss", ["square", "logistic"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_optimum_is_that_of_a_general_solver(loss: str, seed: int) -> None:
    """The objective equals a conic solver's on the convex program, and the gap is certified."""
    X, y, codes = data(seed, binary=loss == "logistic")
    level = least_level(X, y, codes, None, 3, loss)
    bounds = np.full(3, 1.03 * level)
    found = solve_linear(X, y, codes, None, bounds, loss=loss, l2=1e-3)
    assert isinstance(found, GroupLossSolution)
    w, b = cp.Variable(3), cp.Variable()
    form = X @ w + b
    each = cp.square(form - y) if loss == "square" else cp.logistic(form) - cp.multiply(y, form)
    held = [cp.sum(each[codes == k]) / (codes == k).sum() <= bounds[k] for k in range(3)]
    other = cp.Problem(cp.Minimize(cp.sum(each) / y.size + 1e-3 * cp.sum_squares(w)), held)
    other.solve(solver=cp.CLARABEL, **REACHED)

    assert found.objective == pytest.approx(other.value, abs=1e-6)
    assert 0 <= found.objective - found.bound + 1e-12 <= 1e-7
    assert (found.losses <= bounds + 1e-12).all()
    assert found.converged
    np.testing.assert_allclose(
        found.losses, losses_at(np.append(found.coef, found.intercept), X, y, codes, loss, 3), rtol=1e-9
    )


@settings(max_examples=examples(40))
@given(
    seed=st.integers(0, 10**6),
    groups=st.integers(2, 5),
    factor=st.sampled_from([0.9, 0.999, 1.000001, 1.05, 2.0]),
)
def test_bounds_are_held_or_refused_with_a_proof(seed: int, groups: int, factor: float) -> None:
    """Above the best level the bounds hold; below it a weighting of groups proves that they cannot."""
    X, y, codes = data(seed, groups)
    level = least_level(X, y, codes, None, groups, "square")
    found = solve_linear(X, y, codes, None, np.full(groups, factor * level), loss="square")

    if factor > 1:
        assert isinstance(found, GroupLossSolution)
        assert (found.losses <= factor * level * (1 + 1e-9)).all()
        assert found.objective - found.bound <= 1e-6 * found.objective
    else:
        assert isinstance(found, Infeasible)
        assert found.excess == pytest.approx((1 - factor) * level, rel=1e-4)
        row = (found.weights / np.bincount(codes))[
            codes
        ]  # the least weighted loss of any model, by least squares
        A = np.column_stack([X, np.ones(len(X))]) * np.sqrt(row)[:, None]
        least = np.sum((A @ np.linalg.lstsq(A, np.sqrt(row) * y, rcond=None)[0] - np.sqrt(row) * y) ** 2)
        assert least - factor * level >= found.excess * (1 - 1e-6)


def test_loose_bounds_leave_the_least_squares_fit() -> None:
    """Without a bound that binds the model is the ordinary one, with multipliers of 0."""
    X, y, codes = data(3)
    found = solve_linear(X, y, codes, None, np.array([np.inf, 1e9, 1e9]), loss="square")
    plain = np.linalg.lstsq(np.column_stack([X, np.ones(len(X))]), y, rcond=None)[0]

    assert isinstance(found, GroupLossSolution)
    np.testing.assert_allclose(np.append(found.coef, found.intercept), plain, atol=1e-6)
    assert not found.multipliers.any()


def test_weights_are_repeated_rows_and_labels_of_groups_mean_nothing() -> None:
    """Whole weights act as repeated rows, and renamed groups have renamed multipliers."""
    X, y, codes = data(4)
    weight = np.random.default_rng(0).integers(1, 4, len(y)).astype(float)
    level = least_level(X, y, codes, weight, 3, "square")
    bounds = np.full(3, 1.02 * level)
    one = solve_linear(X, y, codes, weight, bounds, loss="square")
    i = np.repeat(np.arange(len(y)), weight.astype(int))
    two = solve_linear(X[i], y[i], codes[i], None, bounds, loss="square")
    three = solve_linear(X, y, (codes + 1) % 3, weight, bounds, loss="square")

    assert isinstance(one, GroupLossSolution)
    assert isinstance(two, GroupLossSolution)
    assert isinstance(three, GroupLossSolution)
    np.testing.assert_allclose(two.coef, one.coef, atol=1e-7)
    np.testing.assert_allclose(np.roll(one.multipliers, 1), three.multipliers, atol=1e-6)


def test_members_are_averaged_within_the_bounds() -> None:
    """Reweighted fits of a linear learner come near its class's optimum; bounds that it cannot hold are refused."""
    X, y, codes = data(5)
    level = least_level(X, y, codes, None, 3, "square")
    bounds = np.full(3, 1.05 * level)
    best = solve_linear(X, y, codes, None, bounds, loss="square")
    found, _ = averaged((X, y, codes), bounds, rounds=15)
    refused, _ = averaged((X, y, codes), np.full(3, 0.9 * level), rounds=15)

    assert isinstance(best, GroupLossSolution)
    assert isinstance(found, MembersSolution)
    assert (found.losses <= bounds + 1e-9).all()
    assert found.objective <= 1.01 * best.objective
    np.testing.assert_allclose(
        found.scores, np.column_stack([X, np.ones(len(X))]) @ (found.weights @ found.models)
    )
    assert isinstance(refused, Infeasible)
    assert refused.excess == 0  # nothing is proven of models that were not tried
    assert refused.losses.max() > 0.95 * level


def test_a_game_comes_to_what_column_generation_comes_to() -> None:
    """Algorithm 2 over a linear learner: within 2 nu of the optimum, within the bounds, and not so where cut short."""
    X, y, codes = data(5)
    bounds = np.full(3, 1.05 * least_level(X, y, codes, None, 3, "square"))
    best = solve_linear(X, y, codes, None, bounds, loss="square")
    found, short = (averaged((X, y, codes), bounds, game=Game(2.0, 0.05, rounds))[0] for rounds in (2000, 1))

    assert isinstance(best, GroupLossSolution)
    assert isinstance(found, MembersSolution)
    assert found.converged
    assert found.saddle is not None
    assert found.saddle.gap <= 0.05
    assert (found.losses <= bounds * (1 + 1e-6)).all()
    assert found.objective <= 1.1 * best.objective
    assert not isinstance(short, MembersSolution) or not short.converged


def test_the_bound_of_averages_is_below_all_of_them() -> None:
    """No average within the bounds of the models found has less loss than is certified, by a conic solver."""
    X, y, codes = data(6)
    level = least_level(X, y, codes, None, 3, "square")
    bounds = np.full(3, 1.05 * level)
    found, seen = averaged((X, y, codes), bounds)
    q = cp.Variable(len(seen))
    off = np.column_stack([X, np.ones(len(X))]) @ (seen.T @ q) - y
    held = [cp.sum_squares(off[codes == k]) / (codes == k).sum() <= bounds[k] for k in range(3)]
    cost = cp.Minimize(cp.sum_squares(off) / y.size)
    least = cp.Problem(cost, [*held, q >= 0, cp.sum(q) == 1]).solve(solver=cp.CLARABEL, **REACHED)

    assert isinstance(found, MembersSolution)
    assert found.bound - 1e-6 <= least <= found.objective + 1e-6
    assert found.objective - found.bound <= 1e-3 * found.objective


@pytest.mark.parametrize("wrong", [0, 1])
@pytest.mark.parametrize("seed", range(3))
def test_values_moved_into_a_range_hold_what_no_line_does(seed: int, wrong: int) -> None:
    """Between the least bound of moved lines, by brute force, and that of lines, by a conic solver, a line is found.

    Its losses and its objective are those of the moved values, far outside as the line may be. A ``wrong`` row lies far
    on the side of the other label, which costs 1 where it is given up, and more by the hinge.
    """
    rng = np.random.default_rng(seed)
    codes = np.repeat([0, 1], [25, 40])
    x = (rng.normal(size=65) + 0.5 * codes) * np.where(rng.random(65) < 0.2, 20.0, 1.0)
    y = (x + 0.3 * rng.normal(size=65) > 0).astype(float)
    x[:wrong] = np.where(y[:wrong] == 1, -3.0, 3.0)

    def moved(slope: Floats, level: Floats) -> Floats:
        each = (np.clip(np.multiply.outer(x, slope) + level, 0, 1) - y[:, None]) ** 2
        return np.stack([each[codes == k].mean(axis=0) for k in (0, 1)])

    w, b, t = cp.Variable(), cp.Variable(), cp.Variable()
    own = [cp.sum_squares(w * x[codes == k] + b - y[codes == k]) / (codes == k).sum() <= t for k in (0, 1)]
    least = cp.Problem(cp.Minimize(t), own).solve(solver=cp.CLARABEL, **REACHED)
    grid = [one.ravel() for one in np.meshgrid(np.geomspace(0.01, 10, 120), np.linspace(-2, 3, 120))]
    reached = moved(*grid).max(axis=0).min()
    bound = 1.3 * reached
    assert bound < 0.8 * least
    plain = solve_linear(x[:, None], y, codes, None, np.full(2, bound), loss="square")
    found = solve_linear(x[:, None], y, codes, None, np.full(2, bound), loss="square", into=(0, 1))

    assert isinstance(plain, Infeasible)
    assert isinstance(found, GroupLossSolution)
    told = moved(found.coef, np.array([found.intercept]))[:, 0]
    assert (told <= bound * (1 + 1e-6)).all()
    np.testing.assert_allclose(found.losses, told, rtol=1e-9)
    assert found.objective == pytest.approx(float(np.bincount(codes) @ told) / 65)
    assert np.isnan(found.bound)
    assert not 0 <= found.coef[0] * x.max() + found.intercept <= 1


def test_a_game_of_numbers_in_the_thousands_is_solved_like_one_of_ones() -> None:
    """Excess over bounds of next to nothing, in their units; the solver's own status was once no answer there."""
    for seed in range(230, 245):
        rng, at = np.random.default_rng(seed), [0, 1, 3, 4]
        cuts = 1000 + rng.normal(size=(60, 5)) * np.geomspace(30, 0.03, 60)[:, None]
        cuts[:, 2] /= 150
        cuts[0] = [1000, 1000, 6.6, 1000, 1000]
        cuts[:, at] += 0.8 * np.abs((cuts - 1000)[:, at].min(1, keepdims=True))

        mixture, weights = matrix_game(cuts)

        assert (mixture @ cuts).max() == pytest.approx((cuts @ weights).min(), abs=1e-6)
