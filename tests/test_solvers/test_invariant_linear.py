"""Linear logits that moves hardly change: laws for one logit and for those of classes."""

from __future__ import annotations

import math
from typing import Any

import cvxpy as cp
import numpy as np
import numpy.typing as npt
import pytest
from fairfix.solvers.arrays import distinct_rows
from fairfix.solvers.invariant_linear import LinearFit, fit_linear, linear_regularizer
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from tests.strategies import examples
from tests.test_solvers.moves import Listed, data, flips_of, none_for

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def drawn(seed: int, logits: int, rows: int = 120) -> tuple[Floats, Ints]:
    """Return rows and labels of one logit or of several classes."""
    X, y = data(seed, rows)
    if logits > 1:
        rng = np.random.default_rng(seed + 100)
        y = (1.5 * X @ rng.normal(size=(5, logits)) + rng.gumbel(size=(rows, logits))).argmax(axis=1)
    return X, y.astype(np.int64)


def log_losses(s: Floats, y: Ints) -> Floats:
    """Return the log loss of rows from logits, shape (n, K)."""
    every = np.column_stack([np.zeros(len(s)), s]) if s.shape[1] == 1 else s
    return np.asarray(np.logaddexp.reduce(every, axis=1) - every[np.arange(len(y)), y])


def objective(
    coef: Floats, intercept: Floats, X: Floats, y: Ints, share: Floats, moves: Listed, *, rho: float,
    l2: float, eps: float = 0.0, inverse: Floats | None = None
) -> float:  # fmt: skip
    """Return the objective as it is written in the docstring, by the formula of ``R``."""
    loss = share @ log_losses(X @ coef + intercept, y)
    moved = np.array([moves.delta(k) @ coef for k in range(moves.many)])
    if coef.shape[1] > 1:
        moved -= moved.mean(axis=2, keepdims=True)
    m = share @ (moved**2).mean(axis=2).max(axis=0)
    q = float((coef.T @ (np.eye(len(coef)) if inverse is None else inverse) @ coef).sum()) if eps else 0.0
    return float(loss + rho * (math.sqrt(eps * q) + math.sqrt(m)) ** 2 + l2 * (coef**2).sum())


def conic(
    X: Floats, y: Ints, share: Floats, moves: Listed, logits: int, *, rho: float, l2: float, eps: float = 0.0
) -> float:
    """Return the optimum of the smooth form, a bound of each row's worst change, by a conic solver."""
    first, kind = distinct_rows(np.concatenate(moves.others, axis=1) - np.tile(X, moves.many))
    mass, K = np.bincount(kind, share), logits
    W, b, theta, u = cp.Variable((X.shape[1], K)), cp.Variable((1, K)), cp.Variable(), cp.Variable(mass.size)
    s = X @ W + np.ones((len(X), 1)) @ b
    centre = np.eye(K) - (1.0 / K if K > 1 else 0.0)
    held = [cp.norm(moves.delta(k)[first] @ W @ centre, 2, axis=1) <= u for k in range(moves.many)]
    flips = cp.multiply(np.sqrt(mass / K), u)
    R = (
        eps * cp.quad_over_lin(W, theta) + cp.quad_over_lin(flips, 1 - theta)
        if eps
        else cp.sum_squares(flips)
    )
    of_rows = cp.logistic(s[:, 0]) if K == 1 else cp.log_sum_exp(s, axis=1)
    right = y[:, None] == (np.arange(K) if K > 1 else 1)
    loss = share @ of_rows - cp.sum(cp.multiply(share[:, None] * right, s))
    problem = cp.Problem(cp.Minimize(loss + rho * R + l2 * cp.sum_squares(W)), held)
    return float(problem.solve(solver=cp.CLARABEL))


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


# ---------------------------------------------------------------------- optima


@given(
    st.integers(0, 10**6), st.sampled_from([1, 2, 3, 5]), st.sampled_from([0.01, 0.3, 5.0]),
    st.sampled_from([0.0, 1e-3, 0.1]), st.booleans()
)  # fmt: skip
@settings(max_examples=examples(20), deadline=None)
def test_no_logits_are_below_the_bound(seed: int, logits: int, rho: float, eps: float, single: bool) -> None:
    """The objective is that of the docstring; the bound is near it, and below it is nothing near the optimum."""
    rng, eps = np.random.default_rng(seed), eps if logits == 1 else 0.0
    X, y = drawn(seed, logits, int(rng.integers(20, 120)))
    moves = Listed(X, flips_of(X).others[: 1 if single else None])
    share = rng.dirichlet(np.ones(len(y)))
    found = fit_linear(X, y, share, moves, logits=logits, rho=rho, eps=eps, l2=1e-3)
    given: Any = X, y, share, moves
    strength: Any = {"rho": rho, "l2": 1e-3, "eps": eps}

    assert found.converged
    assert found.gap <= 1e-9
    assert found.objective == pytest.approx(
        objective(found.coef, found.intercept, *given, **strength), abs=1e-12
    )
    for size in (1e-5, 1e-3, 0.1, 1.0):
        coef = found.coef + size * rng.normal(size=found.coef.shape)
        other = objective(coef, found.intercept + size * rng.normal(size=logits), *given, **strength)
        assert other >= found.objective - found.gap - 1e-12


@pytest.mark.parametrize(
    ("logits", "rho", "eps"), [(1, 0.05, 0.0), (1, 0.05, 0.05), (1, 5.0, 1e-3), (3, 0.3, 0.0), (4, 3.0, 0.0)]
)
def test_the_optimum_is_that_of_a_conic_solver(logits: int, rho: float, eps: float) -> None:
    X, y = drawn(2, logits, 60)
    share, moves = np.random.default_rng(0).dirichlet(np.ones(60)), flips_of(X)
    found = fit_linear(X, y, share, moves, logits=logits, rho=rho, eps=eps, l2=1e-3)
    assert found.objective == pytest.approx(
        conic(X, y, share, moves, logits, rho=rho, l2=1e-3, eps=eps), abs=2e-6
    )


@pytest.mark.parametrize("logits", [1, 2, 4])
def test_without_r_it_is_logistic_regression(logits: int) -> None:
    X, y = drawn(4, logits, 400)
    weight = np.random.default_rng(1).uniform(0.2, 2.0, len(y))
    found = fit_linear(X, y, weight, flips_of(X), logits=logits, rho=0.0, l2=0.01)
    two = logits == 2  # scikit-learn fits two classes with one logit, their difference
    C = 1 / (2 * (0.5 if two else 1.0) * 0.01 * weight.sum())
    other = LogisticRegression(C=C, tol=1e-10, max_iter=1000).fit(X, y, weight)
    ours = np.vstack([found.coef, found.intercept])
    theirs = np.vstack([other.coef_.T, other.intercept_])
    if logits > 2:
        theirs[-1] -= theirs[-1].mean()
    assert (ours[:, 1:] - ours[:, :1] if two else ours) == pytest.approx(theirs, abs=1e-5)


@pytest.mark.parametrize("rho", [0.0, 0.5, 20.0, np.inf])
def test_two_classes_are_one_logit(rho: float) -> None:
    """With logits of h / 2 and -h / 2 the regularizer is a quarter of that of h, and the penalty half of it."""
    X, y = drawn(1, 1, 300)
    weight = np.random.default_rng(1).uniform(0.5, 2.0, y.size)
    classes = fit_linear(X, y, weight, flips_of(X), logits=2, rho=rho, l2=0.02)
    one = fit_linear(X, y, weight, flips_of(X), rho=rho / 4, l2=0.01)
    assert classes.objective == pytest.approx(one.objective, abs=1e-9)
    assert classes.coef[:, 1:] - classes.coef[:, :1] == pytest.approx(one.coef, abs=1e-4)


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


@pytest.mark.parametrize("logits", [1, 3])
def test_paths_end_at_every_scale(logits: int) -> None:
    """The barrier's path ends converged, whatever the strengths and the units of columns."""
    for seed, scale in enumerate((1.0, 10.0, 0.01, 1e3)):
        X, y = drawn(seed, logits, 80)
        moves = Listed(X * scale, flips_of(X).others * scale)
        for rho in (1e-3, 0.1, 10.0, 1e5):
            for eps in (0.0, 1e-6, 1.0) if logits == 1 else (0.0,):
                found = fit_linear(moves.X, y, None, moves, logits=logits, rho=rho, eps=eps, l2=0.0)
                assert found.converged
                assert found.gap <= 1e-9
                assert found.steps <= 140


# ---------------------------------------------------------------------- invariances


@pytest.mark.parametrize("logits", [1, 3])
def test_an_infinite_rho_leaves_no_change_and_is_the_limit(logits: int) -> None:
    X, y = drawn(5, logits, 200)
    moves = flips_of(X)
    span = np.array([[0, 0, 0, 1.0, 1.0], [0, 0, 0, 2.0, 2.0]])
    exact, near, loose = (
        fit_linear(X, y, None, moves, span, logits=logits, rho=rho) for rho in (math.inf, 1e7, 0.1)
    )
    for k in range(moves.many):
        assert np.abs(moves.delta(k) @ exact.coef).max() < 1e-14
    assert np.abs(span @ exact.coef).max() < 1e-14
    assert np.abs(exact.coef).max() > 0.1  # one direction is left
    assert np.abs(near.coef - exact.coef).max() < 1e-4
    assert np.abs(moves.delta(0) @ loose.coef).max() > 0.01
    assert loose.objective < near.objective < exact.objective + 1e-9


def test_free_directions_alone_leave_projection_and_ridge() -> None:
    X, y = data(6, 300)
    span = np.random.default_rng(2).normal(size=(2, 5))
    span = np.concatenate([span, [span[0] - 3 * span[1], 1e-7 * span[0]], np.zeros((1, 5))])
    found = fit_linear(X, y, None, none_for(X), span, rho=2.0, eps=0.01, l2=0.005)
    P = np.linalg.pinv(span[:2]) @ span[:2]
    other = LogisticRegression(C=1 / (2 * 0.025 * len(y)), tol=1e-11, max_iter=1000).fit(X - X @ P, y)

    assert found.coef[:, 0] == pytest.approx(other.coef_[0], abs=1e-6)
    assert np.abs(span[:3] @ found.coef).max() < 1e-13


@pytest.mark.parametrize(("logits", "eps"), [(1, 0.01), (3, 0.0)])
def test_the_fit_does_not_depend_on_how_rows_moves_and_classes_are_listed(logits: int, eps: float) -> None:
    X, y = drawn(7, logits, 200)
    n, moves, order = len(y), flips_of(X), np.random.default_rng(0).permutation(200)
    Q = np.linalg.qr(np.random.default_rng(1).normal(size=(5, 5)))[0]

    def fit(rows: Floats, labels: Ints, weight: Floats | None, others: Floats) -> LinearFit:
        return fit_linear(
            rows, labels, weight, Listed(rows, others), logits=logits, rho=0.3, eps=eps, l2=1e-3
        )

    one = fit(X, y, None, moves.others)
    twice = np.where(np.arange(n) < 50, 2.0, 1.0)
    more = np.concatenate([np.arange(n), np.arange(50)])
    ignored = np.vstack([X, 50 * np.ones(5)]), np.append(y, 0), np.append(np.ones(n), 0.0)
    turned = fit(X @ Q, y, None, moves.others @ Q)
    pairs = [
        (one, fit(X[order], y[order], None, moves.others[::-1][:, order])),
        (one, fit(X, y, np.full(n, 7.0), moves.others)),
        (one, fit(X, y, None, np.concatenate([moves.others, moves.others]))),
        (one, fit(*ignored, np.concatenate([moves.others, np.zeros((6, 1, 5))], axis=1))),
        (fit(X, y, twice, moves.others), fit(X[more], y[more], None, moves.others[:, more])),
    ]
    for own, other in pairs:
        assert other.objective == pytest.approx(own.objective, abs=1e-9)
        assert np.abs(other.coef - own.coef).max() < 1e-3
    assert turned.objective == pytest.approx(one.objective, abs=1e-9)
    assert np.abs(Q @ turned.coef - one.coef).max() < 1e-3
    if logits > 1:
        other = fit(X, logits - 1 - y, None, moves.others)
        assert other.objective == pytest.approx(one.objective, abs=1e-9)
        assert np.abs(other.coef[:, ::-1] - one.coef).max() < 1e-3


@pytest.mark.parametrize("logits", [1, 2, 3])
@pytest.mark.parametrize(("rho", "eps"), [(0.0, 0.0), (1.0, 0.0), (1.0, 0.1), (math.inf, 0.0)])
def test_degenerate_rows(rho: float, eps: float, logits: int) -> None:
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
        eps = eps if logits == 1 else 0.0
        found = fit_linear(rows, labels, None, moves, logits=logits, rho=rho, eps=eps, l2=1e-3)
        assert found.converged
        assert np.isfinite([*found.coef.ravel(), *found.intercept, found.objective]).all()
        assert found.gap <= 1e-9


def test_wrong_arguments() -> None:
    X, y = data(9, 10)
    for match, weight, moves, more in [
        ("must not be negative", None, none_for(X), {"rho": -1.0}),
        ("weights", np.zeros(10), none_for(X), {"rho": 1.0}),
        ("variant 0", None, Listed(X, np.full((1, 10, 5), np.nan)), {"rho": 1.0}),
        ("eps to 0", None, none_for(X), {"rho": math.inf, "eps": 0.1}),
        ("eps to 0", None, none_for(X), {"rho": 1.0, "eps": 0.1, "logits": 2}),
    ]:
        asked: Any = more
        with pytest.raises(ValueError, match=match):
            fit_linear(X, y, weight, moves, **asked)


def test_columns_have_a_metric_of_their_own() -> None:
    """A linear logit whose steps may not change a column pays nothing for it; scaling column and metric is nothing."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(300, 4))
    y = (rng.random(300) < 1 / (1 + np.exp(-X @ [1.0, 1.0, 0.5, -1.0]))).astype(np.int64)
    kept: dict[str, Any] = {"rho": 0.3, "eps": 0.4, "l2": 0.0}
    moves, share, inverse = flips_of(X), np.full(300, 1 / 300), np.diag([1.0, 1.0, 1.0, 0.0])
    plain = fit_linear(X, y, None, moves, **kept)
    held = fit_linear(X, y, None, moves, **kept, metric_inverse=inverse)
    scale = np.array([1.0, 10.0, 0.1, 3.0])
    wide = Listed(X * scale, moves.others * scale)
    scaled = fit_linear(X * scale, y, None, wide, **kept, metric_inverse=np.diag(scale**2))

    assert held.coef[3, 0] < plain.coef[3, 0] - 0.1
    written = objective(held.coef, held.intercept, X, y, share, moves, **kept, inverse=inverse)
    assert held.objective == pytest.approx(written, abs=1e-12)
    np.testing.assert_allclose(scaled.coef[:, 0] * scale, plain.coef[:, 0], atol=1e-5)
