"""Linear logits that moves hardly change, against general solvers and their invariances."""

from __future__ import annotations

import math
from typing import Any

import cvxpy as cp
import numpy as np
import numpy.typing as npt
import pytest
from fairfix.optim.invariant_linear import fit_linear, linear_regularizer
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from tests.strategies import examples
from tests.test_optim.moves import Listed, data, flips_of, none_for

Floats = npt.NDArray[np.float64]


def objective(
    x: Floats, X: Floats, y: Floats, share: Floats, moves: Listed, rho: float, eps: float, l2: float
) -> float:
    """Return the objective as it is written in the docstring, by the formula of ``R``."""
    w, s = x[:-1], X @ x[:-1] + x[-1]
    worst = np.max([(moves.delta(k) @ w) ** 2 for k in range(moves.many)], axis=0)
    R = (math.sqrt(eps * float(w @ w)) + math.sqrt(float(share @ worst))) ** 2
    return float(share @ (np.logaddexp(0, s) - y * s) + rho * R + l2 * w @ w)


# ---------------------------------------------------------------------- R of a linear logit


def dual_by_scan(D: Floats, q: float, eps: float) -> float:
    """Return the infimum over a grid of ``lambda``, the inner supremum over a grid of steps: no formula."""
    t = np.linspace(-40, 40, 16001)
    t = t[t != 0]
    grid = q * (1 + np.geomspace(0.06, 60, 400))
    squared = [((abs(one) + t) ** 2, one**2) for one in D]
    return min(
        lam * eps
        + float(np.mean([max(still, float((gain - lam * t**2 / q).max())) for gain, still in squared]))
        for lam in grid
    )


@pytest.mark.parametrize("eps", [0.01, 0.1, 0.5])
def test_r_is_the_dual_and_a_transport_attains_it(eps: float) -> None:
    X, _ = data(0, 12)
    moves, w = flips_of(X), np.array([0.7, -0.4, 0.9, 0.3, -0.2])
    D = np.abs(np.array([moves.delta(k) @ w for k in range(moves.many)])).max(axis=0)
    m, q = float((D**2).mean()), float(w @ w)
    value, multiplier = linear_regularizer(m, q, eps), q + math.sqrt(m * q / eps)

    assert value == pytest.approx(dual_by_scan(D, q, eps), rel=1e-3)
    t = D * q / (multiplier - q)
    assert np.mean(t**2 / q) == pytest.approx(eps, rel=1e-10)  # what the steps (t / q) w cost
    assert np.mean((D + t) ** 2) == pytest.approx(value, rel=1e-10)


@given(st.integers(0, 10_000), st.sampled_from([0.0, 1e-4, 0.3]), st.sampled_from([0.01, 3.0]))
@settings(max_examples=examples(30))
def test_the_root_of_r_is_a_seminorm(seed: int, eps: float, scale: float) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(20, 3))
    moves = Listed(X, X + rng.normal(size=(2, 20, 3)))
    a, b = rng.normal(size=(2, 3))

    def root(w: Floats) -> float:
        m = np.max([(moves.delta(k) @ w) ** 2 for k in range(moves.many)], axis=0).mean()
        return math.sqrt(linear_regularizer(float(m), float(w @ w), eps))

    assert root(scale * a) == pytest.approx(scale * root(a), rel=1e-12)
    assert root(a + b) <= root(a) + root(b) + 1e-12


def test_r_in_its_special_cases() -> None:
    assert linear_regularizer(0.25, 3.0, 0.0) == 0.25  # invariance to the moves alone
    assert linear_regularizer(0.0, 5.0, 0.1) == pytest.approx(0.5)  # a ridge
    assert linear_regularizer(0.25, 0.0, 0.1) == 0.25
    X, y = data(1)
    only = Listed(X, np.where(X[:, [0]] == 1, flips_of(X).others[:1], X))  # the move applies to rows of 1
    one = fit_linear(X, y, None, only, rho=0.5)
    s = X @ one.coef + one.intercept
    assert one.objective == pytest.approx(
        np.mean(np.logaddexp(0, s) - y * s) + 0.5 * np.mean((only.delta(0) @ one.coef) ** 2), abs=1e-12
    )


# ---------------------------------------------------------------------- linear fit


def epigraph(X: Floats, y: Floats, share: Floats, moves: Listed, rho: float, eps: float, l2: float) -> float:
    """Return the optimum of the smooth form, a ``u`` for each distinct row of protected values, by a conic solver."""
    d = X.shape[1]
    _, first, code = np.unique(X[:, :3], axis=0, return_index=True, return_inverse=True)
    mass = np.bincount(code.reshape(-1), share)
    D = np.array([moves.delta(k)[first] for k in range(moves.many)])  # (K, G, d)
    w, b, theta, u = cp.Variable(d), cp.Variable(), cp.Variable(), cp.Variable(mass.size)
    s = X @ w + b
    held = [cp.abs(change @ w) <= u for change in D]
    if eps:
        R = eps * cp.quad_over_lin(w, theta) + cp.quad_over_lin(cp.multiply(np.sqrt(mass), u), 1 - theta)
    else:
        R = cp.sum_squares(cp.multiply(np.sqrt(mass), u))
    loss = share @ (cp.logistic(s) - cp.multiply(y, s))
    return float(
        cp.Problem(cp.Minimize(loss + rho * R + l2 * cp.sum_squares(w)), held).solve(solver=cp.CLARABEL)
    )


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize(("rho", "eps"), [(0.05, 0.0), (0.05, 0.05), (0.5, 0.0), (0.5, 1e-3), (5.0, 1e-3)])
def test_the_linear_fit_is_that_of_general_solvers(rho: float, eps: float, single: bool) -> None:
    """No search from three starts gets lower, and a conic solver on the smooth form ends at the same objective."""
    X, y = data(2, 120)
    moves = flips_of(X) if not single else Listed(X, flips_of(X).others[:1])
    share = np.random.default_rng(0).uniform(0.5, 1.5, len(y))
    share /= share.sum()
    found = fit_linear(X, y, share, moves, rho=rho, eps=eps, l2=1e-3)
    own = np.append(found.coef, found.intercept)
    args = (X, y, share, moves, rho, eps, 1e-3)

    assert found.converged
    assert found.gap <= 1e-9
    assert found.objective == pytest.approx(objective(own, *args), abs=1e-12)
    for start in (own, own + 0.05, np.zeros(own.size)):
        for method in ("Nelder-Mead", "Powell"):
            other = minimize(objective, start, args, method=method, options={"maxiter": 1500})
            assert found.objective <= other.fun + 1e-9
    assert found.objective == pytest.approx(epigraph(*args), abs=2e-6)


def test_a_kink_is_reached() -> None:
    """Where the ridge pulls hard, the best logit ignores the listed move, as does the projected one."""
    X, y = data(3, 300)
    moves = Listed(X, flips_of(X).others[:1])
    found = fit_linear(X, y, None, moves, rho=1.0, eps=0.1)
    ignored = fit_linear(X, y, None, none_for(X), np.eye(5)[:3], rho=1.0, eps=0.1)

    assert found.converged
    assert np.mean((moves.delta(0) @ found.coef) ** 2) < 1e-12
    assert found.objective == pytest.approx(ignored.objective, abs=1e-9)
    assert np.abs(found.coef - ignored.coef).max() < 1e-4


def test_paths_end_at_every_scale() -> None:
    """The barrier's path ends converged, whatever the strengths and the units of columns."""
    for seed, scale in enumerate((1.0, 10.0, 0.01, 1e3)):
        X, y = data(seed, 80)
        moves = Listed(X * scale, flips_of(X).others * scale)
        for rho in (1e-3, 0.1, 10.0, 1e5):
            for eps in (0.0, 1e-6, 1.0):
                found = fit_linear(moves.X, y, None, moves, rho=rho, eps=eps, l2=0.0)
                assert found.converged
                assert found.gap <= 1e-9
                assert found.steps <= 110


def test_without_r_it_is_logistic_regression() -> None:
    X, y = data(4, 400)
    weight = np.random.default_rng(1).uniform(0.2, 2.0, len(y))
    found = fit_linear(X, y, weight, flips_of(X), rho=0.0, l2=0.01)
    other = LogisticRegression(C=1 / (2 * 0.01 * weight.sum()), tol=1e-10, max_iter=1000).fit(X, y, weight)

    assert np.abs(found.coef - other.coef_[0]).max() < 1e-6
    assert found.intercept == pytest.approx(other.intercept_[0], abs=1e-6)
    s = X @ found.coef + found.intercept
    share = weight / weight.sum()
    slope = (share * (1 / (1 + np.exp(-s)) - y)) @ X + 0.02 * found.coef
    assert np.abs(slope).max() < 1e-9


def test_an_infinite_rho_leaves_no_change_and_is_the_limit() -> None:
    X, y = data(5)
    moves = flips_of(X)
    span = np.array([[0, 0, 0, 1.0, 1.0], [0, 0, 0, 2.0, 2.0]])
    exact = fit_linear(X, y, None, moves, span, rho=math.inf)
    near = fit_linear(X, y, None, moves, span, rho=1e7)
    loose = fit_linear(X, y, None, moves, span, rho=0.1)

    for k in range(moves.many):
        assert np.abs(moves.delta(k) @ exact.coef).max() < 1e-14
    assert np.abs(span @ exact.coef).max() < 1e-14
    assert np.abs(exact.coef).max() > 0.1  # one direction is left
    assert np.abs(near.coef - exact.coef).max() < 1e-4
    assert np.abs(moves.delta(0) @ loose.coef).max() > 0.01
    assert loose.objective < near.objective < exact.objective + 1e-9
    with pytest.raises(ValueError, match="eps to 0"):
        fit_linear(X, y, None, moves, rho=math.inf, eps=0.1)


def test_free_directions_alone_leave_projection_and_ridge() -> None:
    X, y = data(6, 300)
    span = np.random.default_rng(2).normal(size=(2, 5))
    span = np.concatenate([span, [span[0] - 3 * span[1], 1e-7 * span[0]], np.zeros((1, 5))])
    found = fit_linear(X, y, None, none_for(X), span, rho=2.0, eps=0.01, l2=0.005)
    P = np.linalg.pinv(span[:2]) @ span[:2]
    other = LogisticRegression(C=1 / (2 * 0.025 * len(y)), tol=1e-11, max_iter=1000).fit(X - X @ P, y)
    s = X @ found.coef + found.intercept

    assert np.abs(found.coef - other.coef_[0]).max() < 1e-6
    assert np.abs(span[:3] @ found.coef).max() < 1e-13
    assert found.objective == pytest.approx(
        float(np.mean(np.logaddexp(0, s) - y * s) + 0.025 * found.coef @ found.coef)
    )


def test_the_linear_fit_does_not_depend_on_order_copies_or_how_moves_are_listed() -> None:
    X, y = data(7)
    moves = flips_of(X)
    one = fit_linear(X, y, None, moves, rho=0.3, eps=0.01)
    order = np.random.default_rng(0).permutation(len(y))
    turned = Listed(X[order], moves.others[::-1][:, order])
    twice = Listed(np.tile(X, (2, 1)), np.tile(moves.others, (1, 2, 1)))
    listed = Listed(X, np.concatenate([moves.others, moves.others]))
    others = [
        fit_linear(X[order], y[order], None, turned, rho=0.3, eps=0.01),
        fit_linear(twice.X, np.tile(y, 2), None, twice, rho=0.3, eps=0.01),
        fit_linear(X, y, np.full(len(y), 7.0), moves, rho=0.3, eps=0.01),
        fit_linear(X, y, None, listed, rho=0.3, eps=0.01),
    ]
    Q = np.linalg.qr(np.random.default_rng(1).normal(size=(5, 5)))[0]
    rotated = fit_linear(X @ Q, y, None, Listed(X @ Q, moves.others @ Q), rho=0.3, eps=0.01)
    without = np.append(np.ones(len(y)), 0.0)
    far = Listed(np.vstack([X, 50 * np.ones(5)]), np.concatenate([moves.others, np.zeros((6, 1, 5))], axis=1))
    ignored = fit_linear(far.X, np.append(y, 1.0), without, far, rho=0.3, eps=0.01)

    for other in (*others, ignored):
        assert other.objective == pytest.approx(one.objective, abs=1e-9)
        assert np.abs(other.coef - one.coef).max() < 1e-3
    assert rotated.objective == pytest.approx(one.objective, abs=1e-9)
    assert np.abs(Q @ rotated.coef - one.coef).max() < 1e-3


@pytest.mark.parametrize(("rho", "eps"), [(0.0, 0.0), (1.0, 0.0), (1.0, 0.1), (math.inf, 0.0)])
def test_degenerate_rows(rho: float, eps: float) -> None:
    """One row, one class, a constant column, moves that move nothing: finite answers."""
    X, y = data(8, 40)
    constant = np.column_stack([X, np.ones(40)])
    for rows, labels, moves in [
        (X[:1], y[:1], flips_of(X[:1])),
        (X, np.ones(40), flips_of(X)),
        (constant, y, flips_of(constant)),
        (X, y, Listed(X, np.array([X, X]))),
        (X, y, none_for(X)),
    ]:
        found = fit_linear(rows, labels, None, moves, rho=rho, eps=eps, l2=1e-3)
        assert found.converged
        assert np.isfinite([*found.coef, found.intercept, found.objective]).all()
        assert found.gap <= 1e-9


def test_wrong_arguments_of_the_linear_fit() -> None:
    X, y = data(9, 10)
    with pytest.raises(ValueError, match="must not be negative"):
        fit_linear(X, y, None, none_for(X), rho=-1.0)
    with pytest.raises(ValueError, match="weights"):
        fit_linear(X, y, np.zeros(10), none_for(X), rho=1.0)
    with pytest.raises(ValueError, match="variant 0"):
        fit_linear(X, y, None, Listed(X, np.full((1, 10, 5), np.nan)), rho=1.0)


def test_columns_have_a_metric_of_their_own() -> None:
    """A linear logit whose steps may not change a column pays nothing for it; scaling column and metric is nothing."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(300, 4))
    y = (rng.random(300) < 1 / (1 + np.exp(-X @ [1.0, 1.0, 0.5, -1.0]))).astype(float)
    kept: dict[str, Any] = {"rho": 0.3, "eps": 0.4, "l2": 0.0}
    plain = fit_linear(X, y, None, flips_of(X), **kept)
    held = fit_linear(X, y, None, flips_of(X), **kept, metric_inverse=np.diag([1.0, 1.0, 1.0, 0.0]))
    scale = np.array([1.0, 10.0, 0.1, 3.0])
    wide = Listed(X * scale, flips_of(X).others * scale)
    scaled = fit_linear(X * scale, y, None, wide, **kept, metric_inverse=np.diag(scale**2))

    assert held.coef[3] < plain.coef[3] - 0.1
    moves, s = flips_of(X), X @ held.coef + held.intercept
    m = np.max([(moves.delta(k) @ held.coef) ** 2 for k in range(moves.many)], axis=0).mean()
    free = np.sqrt(0.4 * (held.coef[:3] ** 2).sum())
    assert held.objective == pytest.approx(
        np.mean(np.logaddexp(0, s) - y * s) + 0.3 * (np.sqrt(m) + free) ** 2, abs=1e-12
    )
    assert plain.gap < 1e-8
    np.testing.assert_allclose(scaled.coef * scale, plain.coef, atol=1e-5)
