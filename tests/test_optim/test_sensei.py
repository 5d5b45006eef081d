"""Sensitive set invariance against general solvers, brute force, finite differences and its invariances."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import cvxpy as cp
import numpy as np
import numpy.typing as npt
import pytest
from fairfix.optim.blind_rates import Rows, held_rates
from fairfix.optim.sensei import (
    Network,
    _Draw,
    distinct_rows,
    equal_rates,
    fit_linear,
    fit_network,
    free_steps,
    linear_regularizer,
    network_gradient,
    network_regularizer,
    regularizer_empirical,
    regularizer_flips,
    stopped_network,
    worst_variant,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize
from scipy.sparse import csr_matrix, vstack
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from tests.strategies import examples

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Listed:
    """Moves and variants that are held in full, shape (K, n, d)."""

    X: Floats
    others: Floats

    @property
    def many(self) -> int:
        return len(self.others)

    def delta(self, k: int) -> Floats:
        return np.asarray(self.others[k] - self.X)

    def variant(self, k: int, rows: Ints) -> Floats:
        return np.asarray(self.others[k, rows])


def none_for(X: Floats) -> Listed:
    return Listed(X, np.zeros((0, *X.shape)))


def flips_of(X: Floats) -> Listed:
    """Return the settings of a column of two values and of one of three, in two columns."""
    others = []
    for a in (0, 1):
        for r in (0, 1, 2):
            Z = X.copy()
            Z[:, 0], Z[:, 1], Z[:, 2] = a, r == 1, r == 2
            others.append(Z)
    return Listed(X, np.array(others))


def data(seed: int, rows: int = 200, d: int = 5) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, d))
    r = rng.integers(0, 3, rows)
    X[:, 0], X[:, 1], X[:, 2] = rng.integers(0, 2, rows), r == 1, r == 2
    form = X @ np.linspace(1.2, -0.8, d) - 0.3
    return X, (rng.random(rows) < 1 / (1 + np.exp(-form))).astype(float)


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
    found = linear_regularizer(w, moves, eps=eps)
    D = np.abs(np.array([moves.delta(k) @ w for k in range(moves.many)])).max(axis=0)
    q = float(w @ w)

    assert found.value == pytest.approx(dual_by_scan(D, q, eps), rel=1e-3)
    assert found.dual(eps) == pytest.approx(found.value, rel=1e-10)
    t = D * q / (found.multiplier - q)
    assert np.mean(t**2 / q) == pytest.approx(eps, rel=1e-10)  # what the steps (t / q) w cost
    assert np.mean((D + t) ** 2) == pytest.approx(found.value, rel=1e-10)


@given(st.integers(0, 10_000), st.sampled_from([0.0, 1e-4, 0.3]), st.sampled_from([0.01, 3.0]))
@settings(max_examples=examples(30))
def test_the_root_of_r_is_a_seminorm(seed: int, eps: float, scale: float) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(20, 3))
    moves = Listed(X, X + rng.normal(size=(2, 20, 3)))
    a, b = rng.normal(size=(2, 3))

    def root(w: Floats) -> float:
        return math.sqrt(linear_regularizer(w, moves, eps=eps).value)

    assert root(scale * a) == pytest.approx(scale * root(a), rel=1e-12)
    assert root(a + b) <= root(a) + root(b) + 1e-12


def test_r_in_its_special_cases() -> None:
    X, _ = data(1)
    moves, w = flips_of(X), np.array([0.5, 0.0, 0.0, 2.0, 1.0])
    rest = np.array([0, 0, 0, 2.0, 1.0])

    assert linear_regularizer(w, moves).value == pytest.approx(0.25)
    assert math.isinf(linear_regularizer(w, moves).multiplier)
    alone = linear_regularizer(rest, moves, eps=0.1)
    assert (alone.value, alone.multiplier) == (pytest.approx(0.5), pytest.approx(5.0))
    assert alone.dual(0.1) == pytest.approx(0.5)
    metric = np.diag([1.0, 1.0, 1.0, 0.0, 0.25])
    assert math.isinf(linear_regularizer(w, moves, metric).value)
    assert math.isinf(linear_regularizer(w, moves, metric).dual(0.1))
    assert linear_regularizer(rest * [1, 1, 1, 0, 1], moves, metric, eps=0.4).value == pytest.approx(0.1)
    assert linear_regularizer(np.zeros(5), moves, eps=1.0).value == 0.0
    only = Listed(X, np.where(X[:, [0]] == 1, moves.others[:1], X))  # the move applies to rows of 1
    assert linear_regularizer(w, only).value == pytest.approx(0.25 * X[:, 0].mean())
    assert linear_regularizer(w, only, weight=X[:, 0]).value == pytest.approx(0.25)


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
    assert found.dual == pytest.approx(found.regularizer, rel=1e-9, abs=1e-14)
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
    assert found.flips < 1e-12
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
    assert found.gradient < 1e-9
    assert found.regularizer > 0.1


def test_an_infinite_rho_leaves_no_change_and_is_the_limit() -> None:
    X, y = data(5)
    moves = flips_of(X)
    span = np.array([[0, 0, 0, 1.0, 1.0], [0, 0, 0, 2.0, 2.0]])
    exact = fit_linear(X, y, None, moves, span, rho=math.inf)
    near = fit_linear(X, y, None, moves, span, rho=1e7)
    loose = fit_linear(X, y, None, moves, span, rho=0.1)

    for k in range(moves.many):
        assert np.abs(moves.delta(k) @ exact.coef).max() < 1e-14
    assert exact.regularizer < 1e-28
    assert np.abs(span @ exact.coef).max() < 1e-14
    assert np.abs(exact.coef).max() > 0.1  # one direction is left
    assert np.abs(near.coef - exact.coef).max() < 1e-4
    assert loose.regularizer > 1e-3
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
    s = found.logit(X)

    assert np.abs(found.coef - other.coef_[0]).max() < 1e-6
    assert np.abs(span[:3] @ found.coef).max() < 1e-13
    assert found.regularizer == pytest.approx(0.01 * found.coef @ found.coef)
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
        assert np.isfinite([*found.coef, found.intercept, found.objective, found.gradient]).all()
        assert found.gap <= 1e-9


def test_wrong_arguments_of_the_linear_fit() -> None:
    X, y = data(9, 10)
    with pytest.raises(ValueError, match="must not be negative"):
        fit_linear(X, y, None, none_for(X), rho=-1.0)
    with pytest.raises(ValueError, match="weights"):
        fit_linear(X, y, np.zeros(10), none_for(X), rho=1.0)
    with pytest.raises(ValueError, match="move 0"):
        fit_linear(X, y, None, Listed(X, np.full((1, 10, 5), np.nan)), rho=1.0)


# ---------------------------------------------------------------------- network


def small_network(seed: int, d: int = 5, hidden: int = 4, scale: float = 1.0) -> Network:
    rng = np.random.default_rng(seed)
    first, bias, second = rng.normal(size=(d, hidden)), rng.normal(size=hidden), rng.normal(size=hidden)
    return Network(scale * first, bias, scale * second, 0.3)


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_the_gradient_is_that_of_finite_differences(scale: float) -> None:
    X, y = data(10, 30)
    network = small_network(0, scale=scale)
    moved = worst_variant(network, X, flips_of(X), np.arange(30)).rows
    share = np.random.default_rng(1).dirichlet(np.ones(30))
    value, gradient = network_gradient(network, X, y, share, moved, 1.7)
    s, other = network.logit(X), network.logit(moved)
    assert (np.abs([s, other]) > 8).any() == (scale > 1)  # both sides of the cut are met
    change = (np.clip(s, -8, 8) - np.clip(other, -8, 8)) ** 2
    written = share @ (np.logaddexp(0, s) - y * s + 1.7 * change)
    assert value == pytest.approx(float(written), rel=1e-12)

    parts: list[Any] = [network.W1, network.b1, network.w2, np.array(network.b2)]
    for place, (name, part) in enumerate(zip(("W1", "b1", "w2", "b2"), parts, strict=True)):
        for index in np.ndindex(part.shape):
            ends = []
            for sign in (1, -1):
                new = part.copy()
                new[index] += sign * 1e-6
                changed: dict[str, Any] = {name: new if part.shape else float(new)}
                ends.append(network_gradient(replace(network, **changed), X, y, share, moved, 1.7)[0])
            slope = (ends[0] - ends[1]) / 2e-6
            assert np.asarray(gradient[place])[index] == pytest.approx(slope, rel=1e-5, abs=1e-6)


def test_the_worst_variant_is_found_by_brute_force() -> None:
    X, _ = data(11, 50)
    moves, network = flips_of(X), small_network(1)
    rows = np.arange(50)[::-2]
    worst = worst_variant(network, X[rows], moves, rows)
    s = np.clip(network.logit(X), -8, 8)
    for i, row in enumerate(rows):
        changes = [(np.clip(network.logit(one[[row]])[0], -8, 8) - s[row]) ** 2 for one in moves.others]
        assert worst.change[i] == pytest.approx(max(changes), abs=1e-12)
        assert changes[worst.which[i]] == pytest.approx(max(changes), abs=1e-12)
        assert (worst.rows[i] == moves.others[worst.which[i], row]).all()
    table = np.array([network.logit(one) for one in moves.others]).T
    every = worst_variant(network, X, moves, np.arange(50))
    assert regularizer_flips(network.logit(X), table) == pytest.approx(every.change.mean())
    still = worst_variant(network, X, none_for(X), np.arange(50))
    assert (still.which == -1).all()
    assert (still.rows == X).all()
    assert regularizer_flips(network.logit(X), table[:, :0]) == 0.0


@given(st.integers(0, 10**6), st.integers(0, 40), st.integers(1, 4))
@settings(max_examples=examples(30))
def test_distinct_rows_are_those_of_a_sort_of_whole_rows(seed: int, rows: int, columns: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(-1, 2, size=(rows, columns)) * rng.choice([1.0, -0.0, 1e-9], size=columns)
    first, kind = distinct_rows(values)
    want, at, same = np.unique(values, axis=0, return_index=True, return_inverse=True)
    assert (first == at).all()
    assert (kind == same.reshape(-1)).all()
    assert len(first) == len(want)


def test_distinct_rows_of_many_columns_do_not_overflow() -> None:
    values = np.random.default_rng(0).normal(size=(3000, 12))
    values[1500:] = values[:1500]
    first, kind = distinct_rows(values)
    assert np.sort(first).tolist() == list(range(1500))
    assert (kind[:1500] == kind[1500:]).all()
    assert (values[first][kind] == values).all()


@pytest.mark.parametrize("eps", [1e-3, 0.1, 5.0])
@pytest.mark.parametrize("still", [False, True])
def test_free_steps_are_the_best_for_linear_logits(eps: float, still: bool) -> None:
    """They spend ``eps`` and attain the dual of the linearised problem; so no other steps are better."""
    rng = np.random.default_rng(3)
    slopes, share, delta = rng.normal(size=(40, 4)), rng.dirichlet(np.ones(40)), rng.normal(size=40)
    metric = np.diag([1.0, 0.5, 2.0, 0.0])
    q = np.einsum("ij,jk,ik->i", slopes, metric, slopes)
    if still:
        delta[np.argsort(q)[-20:]] = 0.0  # the steepest rows have no move: lambda may end at the greatest q
    steps = free_steps(delta, slopes, metric, share, eps)
    cost = np.einsum("ij,jk,ik->i", steps, np.linalg.pinv(metric), steps)
    gain = share @ (delta + np.einsum("ij,ij->i", steps, slopes)) ** 2

    def dual(log: float) -> float:
        lam = q.max() + math.exp(log)
        return float(lam * eps + share @ (delta**2 * lam / (lam - q)))

    least = min(dual(log) for log in np.linspace(-20, 15, 20001))
    assert share @ cost == pytest.approx(eps, rel=1e-6)
    assert (steps[:, 3] == 0).all()
    assert gain == pytest.approx(least, rel=1e-5)
    assert (free_steps(delta, slopes, metric, share, 0.0) == 0).all()
    assert (free_steps(delta, np.zeros((40, 4)), metric, share, eps) == 0).all()


@pytest.mark.parametrize("eps", [0.0, 0.01, 0.3, 3.0])
@pytest.mark.parametrize("listed", [True, False])
def test_the_regularizer_of_a_network_is_between_its_bounds(eps: float, listed: bool) -> None:
    """The plan keeps the radius and the bounds and has the value that it says; no other plan exceeds the bound."""
    rng = np.random.default_rng(9)
    X, network = rng.normal(size=(40, 5)), small_network(2, hidden=8, scale=1.5)
    X[:, 0] = X[:, 0] > 0
    both = np.array([np.column_stack([np.full(40, v), X[:, 1:]]) for v in (0.0, 1.0)])
    moves = Listed(X, both) if listed else none_for(X)
    weight, inverse = rng.gamma(2.0, size=40), np.diag([0.0, 1.0, 2.0, 0.5, 1.0])
    bounds = np.stack([X.min(axis=0), X.max(axis=0)])
    found = network_regularizer(
        network, X, moves, eps=eps, bounds=bounds, weight=weight, metric_inverse=inverse
    )
    share = weight / weight.sum()

    def cut(rows: Any) -> Any:
        return np.clip(network.logit(rows), -8, 8)

    def cost(rows: Any) -> Any:  # the first column moves by its listed variants alone
        return ((rows - X)[:, 1:] ** 2 / np.diag(inverse)[1:]).sum(axis=1)

    plan, value, spent = found.plan, 0.0, 0.0
    for rows, part in ((plan.near, 1 - plan.mixed), (plan.far, plan.mixed)):
        value += part * float(share @ (cut(rows) - cut(X)) ** 2)
        spent += part * float(share @ cost(rows))
        assert (rows >= bounds[0]).all()
        assert (rows <= bounds[1]).all()
        assert np.isin(rows[:, 0], (0.0, 1.0)).all()
        assert listed or (rows[:, 0] == X[:, 0]).all()
    assert spent <= eps * (1 + 1e-6)
    assert value == pytest.approx(plan.value)
    assert found.trained <= plan.value * (1 + 1e-2) + 1e-12
    slopes = [
        np.linalg.norm(np.sqrt(inverse) @ (network.W1 * network.w2) @ np.array(on))
        for on in product((0, 1), repeat=8)
    ]
    assert eps == 0 or max(slopes) <= found.slope <= 1.3 * max(slopes)

    gains, costs = [np.zeros(40)], [np.zeros(40)]
    for start in moves.others if listed else [X]:
        for _ in range(60):
            away = (
                rng.normal(size=X.shape) * np.sqrt(np.diag(inverse)) * rng.choice([0.0, 0.1, 0.5, 1.0, 3.0])
            )
            rows = np.where(np.diag(inverse) > 0, np.clip(start + away, *bounds), start)
            gains, costs = [*gains, (cut(rows) - cut(X)) ** 2], [*costs, cost(rows)]
    number = np.repeat(np.arange(40), len(gains))
    other = regularizer_empirical(
        number, np.stack(gains, axis=1).ravel(), np.stack(costs, axis=1).ravel(), eps, many=40, weight=weight
    )
    assert other.value - other.gap <= found.upper * (1 + 1e-9)
    assert plan.value <= found.upper
    assert eps > 0 or plan.value == pytest.approx(found.upper)
    assert (
        found.upper <= (1.3 if listed and eps <= 0.01 else 20.0) * plan.value
    )  # sharp where steps are short


@pytest.mark.parametrize("moved", [0.0, 0.7])
def test_the_bound_of_a_network_that_is_linear_is_the_closed_form(
    moved: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ReLU that is on everywhere: no plan exceeds the closed form of R, which the bound may not be below."""
    rng = np.random.default_rng(3)
    X, w, eps = rng.normal(size=(50, 3)), np.array([0.3, -0.2, 0.1]), 0.5
    network = Network(w[:, None], np.array([50.0]), np.ones(1), -50.0)
    wide, moves = np.array([np.full(3, -100.0), np.full(3, 100.0)]), Listed(X, np.array([X + moved * w]))
    plan = network_regularizer(network, X, moves, eps=eps, bounds=wide).plan
    monkeypatch.setattr("fairfix.optim.sensei._searched", lambda *_: replace(plan, value=0.0))
    found = network_regularizer(network, X, moves, eps=eps, bounds=wide)  # by the bound alone, without a plan
    exact = (np.sqrt(eps * (w @ w)) + moved * (w @ w)) ** 2

    assert plan.value <= exact * (1 + 1e-9)
    assert exact <= found.upper <= exact * (1 + 1e-6)


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
    assert held.regularizer == pytest.approx(
        (np.sqrt(held.flips) + np.sqrt(0.4 * (held.coef[:3] ** 2).sum())) ** 2
    )
    assert plain.gap < 1e-8
    np.testing.assert_allclose(scaled.coef * scale, plain.coef, atol=1e-5)


def test_training_stops_by_rows_that_it_does_not_learn_from() -> None:
    """The objective is that of these rows and of the network that is returned; more l2 means less weight."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(300, 5))
    y = (rng.random(300) < 1 / (1 + np.exp(-2 * X[:, 1]))).astype(float)
    judged = np.arange(0, 300, 5)
    found, heavy = (
        stopped_network(X, y, None, flips_of(X), judged, rho=0.0, l2=l2, seed=1) for l2 in (0.0, 1.0)
    )
    s = found.network.logit(X[judged])

    assert found.converged
    assert found.objective == pytest.approx(float(np.mean(np.logaddexp(0, s) - y[judged] * s)))
    assert found.objective < 0.6
    assert (heavy.network.W1**2).sum() < 0.5 * (found.network.W1**2).sum()


def test_the_network_learns_and_rho_takes_the_change_out() -> None:
    X, y = data(12, 1500)
    moves = flips_of(X)
    kept: dict[str, Any] = {
        "hidden": 20, "steps": 300, "batch": 200, "rate": 1e-2, "seed": 0, "balanced": True
    }  # fmt: skip
    free = fit_network(X, y, None, moves, rho=0.0, **kept)
    fair = fit_network(X, y, None, moves, rho=10.0, **kept)
    wide = fit_network(X, y, None, moves, rho=10.0, eps=0.05, **kept)

    def change(network: Network) -> float:
        return float(worst_variant(network, X, moves, np.arange(len(y))).change.mean())

    def steepness(network: Network) -> float:
        on = X @ network.W1 + network.b1 > 0
        return float((((on * network.w2) @ network.W1.T) ** 2).mean())

    def accuracy(network: Network) -> float:
        accepted = network.logit(X) > 0
        return float((accepted[y == 1].mean() + 1 - accepted[y == 0].mean()) / 2)

    assert accuracy(free) > 0.67
    assert accuracy(fair) > 0.57
    assert change(free) > 0.5
    assert change(fair) < 0.02 * change(free)
    assert change(wide) < 0.02 * change(free)
    assert steepness(wide) < 0.8 * steepness(fair)


def test_metric_and_bounds_hold_the_free_steps() -> None:
    X, y = data(13, 100)
    moves = flips_of(X)
    kept: dict[str, Any] = {
        "hidden": 5, "steps": 20, "batch": 50, "rho": 3.0, "seed": 1, "balanced": False
    }  # fmt: skip
    flips = fit_network(X, y, None, moves, eps=0.0, **kept)
    fixed = fit_network(X, y, None, moves, eps=0.1, metric_inverse=np.zeros((5, 5)), **kept)
    wide = fit_network(X, y, None, moves, eps=0.1, **kept)
    named = fit_network(X, y, None, moves, eps=0.1, bounds=np.array([X.min(axis=0), X.max(axis=0)]), **kept)
    tight = fit_network(X, y, None, moves, eps=0.1, bounds=np.array([[-0.1] * 5, [0.1] * 5]), **kept)

    assert pytest.approx(flips.W1, rel=1e-9) == fixed.W1  # whole rows, and only what the variants add
    assert fixed.b1 == pytest.approx(flips.b1, abs=1e-12)
    assert fixed.w2 == pytest.approx(flips.w2, rel=1e-9)
    assert fixed.b2 == pytest.approx(flips.b2, abs=1e-12)
    assert (wide.W1 != flips.W1).any()
    assert (named.W1 == wide.W1).all()
    assert (tight.W1 != wide.W1).any()


@pytest.mark.parametrize("eps", [0.0, 0.01])
def test_weights_are_the_same_bits_for_any_number_of_threads(eps: float) -> None:
    X, y = data(14, 600, 40)
    moves = flips_of(X)
    kept: dict[str, Any] = {"rho": 5.0, "eps": eps, "steps": 8, "batch": 512, "balanced": True}
    runs = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            network = fit_network(X, y, None, moves, seed=3, **kept)
            runs.append((network, network.logit(X).tobytes()))
    one, two = runs
    for name in ("W1", "b1", "w2"):
        assert getattr(one[0], name).tobytes() == getattr(two[0], name).tobytes()
    assert one[0].b2 == two[0].b2
    assert one[1] == two[1]
    assert (fit_network(X, y, None, moves, seed=4, **kept).W1 != one[0].W1).any()


@pytest.mark.parametrize(("balanced", "share"), [(True, 0.5), (False, 15 / 179)])
def test_batches_follow_weights_and_classes(balanced: bool, share: float) -> None:
    y, weight = np.zeros(300), np.ones(300)
    y[:30], weight[::2], weight[31] = 1.0, 0.0, 30.0
    draw = _Draw.of(y, weight / weight.sum(), balanced=balanced)
    rng = np.random.default_rng(0)
    drawn = np.concatenate([draw.rows(101, rng) for _ in range(40)])
    assert drawn.size == 40 * 101
    assert (weight[drawn] > 0).all()
    assert y[drawn].mean() == pytest.approx(share, abs=0.02)
    assert (drawn[y[drawn] == 0] == 31).mean() == pytest.approx(30 / 164, abs=0.03)


def test_rows_without_weight_teach_a_network_nothing() -> None:
    X, y = data(15, 300)
    weight = np.ones(300)
    weight[::3] = 0.0
    other = np.where(weight[:, None] == 0, X + 100.0 * (X[:, :1] > 0), X)
    kept: dict[str, Any] = {
        "hidden": 5, "rho": 2.0, "steps": 10, "batch": 64, "seed": 1, "balanced": False
    }  # fmt: skip
    here, there, whole = (
        fit_network(rows, y, w, Listed(rows, flips_of(X).others), **kept)
        for rows, w in ((X, weight), (other, weight), (X, None))
    )
    assert (here.W1 == there.W1).all()
    assert (here.W1 != whole.W1).any()


def test_degenerate_networks() -> None:
    X, y = data(16, 30)
    for rows, labels, variants in [
        (X[:1], y[:1], flips_of(X[:1])),
        (X, np.ones(30), flips_of(X)),
        (X, y, none_for(X)),
        (np.zeros((30, 5)), y, none_for(np.zeros((30, 5)))),
    ]:
        network = fit_network(
            rows, labels, None, variants, hidden=3, rho=1.0, eps=0.1, steps=5, batch=8, seed=0, balanced=True
        )
        assert np.isfinite(network.logit(rows)).all()
    with pytest.raises(ValueError, match="finite"):
        fit_network(X, y, None, none_for(X), rho=math.inf, steps=1, seed=0, balanced=True)


# ---------------------------------------------------------------------- observed rows


def transport(rows: Ints, gains: Floats, distances: Floats, eps: float, share: Floats) -> float:
    """Return the linear program over transport plans."""
    plans = csr_matrix((np.ones(rows.size), (rows, np.arange(rows.size))), shape=(share.size, rows.size))
    found: Any = linprog(
        -gains, A_ub=vstack([plans, csr_matrix(distances[None])]), b_ub=np.append(share, eps), method="highs"
    )
    return -float(found.fun)


@pytest.mark.parametrize("eps", [0.0, 1e-3, 0.02, 0.2, 5.0])
@pytest.mark.parametrize("seed", range(examples(4)))
def test_the_empirical_r_is_the_linear_program(seed: int, eps: float) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 60, 500)
    rows[rows == 7] = 8  # a row without candidates
    gains, distances = rng.random(500) ** 3, rng.random(500)
    gains[::9] *= -1.0
    distances[::11] = 0.0
    if seed == 3:  # many ties
        gains, distances = np.round(gains, 1), np.round(distances, 1)
    weight = rng.random(60)
    share = weight / weight.sum()
    found = regularizer_empirical(rows, gains, distances, eps, many=60, weight=weight)

    assert found.value == pytest.approx(transport(rows, gains, distances, eps, share), abs=1e-9)
    assert 0 <= found.gap <= 1e-12
    left = np.zeros(60)
    np.maximum.at(left, rows, gains - found.multiplier * distances)
    assert found.multiplier * eps + share @ left == pytest.approx(found.value, abs=1e-12)


def test_the_empirical_r_grows_with_eps_and_ignores_order() -> None:
    rng = np.random.default_rng(9)
    rows, gains, distances = np.repeat(np.arange(30), 4), rng.random(120), rng.random(120)
    values = [regularizer_empirical(rows, gains, distances, eps, many=30).value for eps in (0, 0.01, 0.1, 9)]
    order = rng.permutation(120)
    turned = regularizer_empirical(rows[order], gains[order], distances[order], 0.1, many=30)

    assert values[0] < values[1] < values[2] < values[3]
    assert values[3] == pytest.approx(gains.reshape(30, 4).max(axis=1).mean())
    assert turned.value == pytest.approx(values[2], rel=1e-14)
    assert regularizer_empirical(rows, -gains, distances, 0.1, many=30).value == 0.0
    assert regularizer_empirical(rows[:0], gains[:0], distances[:0], 0.1, many=30).value == 0.0
    one = regularizer_empirical(np.array([0]), np.array([2.0]), np.array([4.0]), 1.0, many=1)
    assert (one.value, one.multiplier) == (pytest.approx(0.5), pytest.approx(0.5))
    with pytest.raises(ValueError, match="finite"):
        regularizer_empirical(rows, np.full(120, np.inf), distances, 0.1, many=30)
    with pytest.raises(ValueError, match="eps"):
        regularizer_empirical(rows, gains, distances, -0.1, many=30)


def test_flips_are_cut_weighted_means() -> None:
    logit = np.array([0.0, 20.0])
    variants = np.array([[1.0, -2.0], [9.0, 7.0]])
    assert regularizer_flips(logit, variants) == pytest.approx((4 + 1) / 2)
    assert regularizer_flips(logit, variants, np.array([1.0, 3.0])) == pytest.approx((4 + 3) / 4)


# ---------------------------------------------------------------------- equal rates

Groups = list[tuple[Floats, Floats]]


def chances(seed: int, rows: int, sizes: tuple[int, ...]) -> tuple[Floats, Groups]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3))

    def softmax(form: Floats) -> Floats:
        out = np.exp(form)
        return np.asarray(out / out.sum(axis=1, keepdims=True))

    groups = [(softmax(x @ rng.normal(size=(3, k))), softmax(x @ rng.normal(size=(3, k)))) for k in sizes]
    return 1 / (1 + np.exp(-x @ [1.0, 0.5, 0.3] + 0.8)), groups


def gaps_by_hand(p: Floats, groups: Groups, share: Floats) -> tuple[Floats, Floats]:
    """Return the gain of accepting each row, and what it adds to each gap, from their definitions."""
    columns = []
    for g1, g0 in groups:
        for q, g in ((p, g1), (1 - p, g0)):
            for k in range(g.shape[1]):
                cell = share * q * g[:, k]
                columns.append(cell / cell.sum() - share * q / (share @ q))
    return 0.5 * share * (p / (share @ p) - (1 - p) / (share @ (1 - p))), np.array(columns)


@pytest.mark.parametrize("tolerance", [0.0, 0.02, 0.1, 1.0])
@pytest.mark.parametrize("sizes", [(2,), (2, 3), (4,)])
def test_equal_rates_are_the_linear_program(sizes: tuple[int, ...], tolerance: float) -> None:
    p, groups = chances(1, 2000, sizes)
    weight = np.random.default_rng(0).uniform(0.5, 1.5, 2000)
    found = equal_rates(p, groups, tolerance=tolerance, weight=weight)
    share = weight / weight.sum()
    gain, gaps = gaps_by_hand(p, groups, share)
    room = np.full(2 * len(gaps), tolerance)
    program: Any = linprog(-gain, np.concatenate([gaps, -gaps]), room, bounds=(0, 1), method="highs")
    best = 0.5 - program.fun

    assert found.converged
    assert found.value == pytest.approx(best, abs=1e-6)
    assert found.bound >= best - 1e-9
    assert found.bound == pytest.approx(best, abs=1e-6)
    c = found.score(p, groups)
    assert np.abs(gaps @ (c > 0)).max() == pytest.approx(found.largest, abs=1e-12)
    assert found.largest <= tolerance + 5e-3  # as many rows as constraints may lie on the edge
    assert found.tied <= (len(gaps) + 1) * share.max()
    assert 0.5 + gain @ (c > 0) == pytest.approx(best, abs=2e-3)
    assert (found.mu[0][0].shape, found.mu[0][1].shape) == ((sizes[0],), (sizes[0],))
    mu = np.concatenate([part for pair in found.mu for part in pair])
    dual = 0.5 + share @ np.maximum(c, 0) + tolerance * np.abs(mu).sum()
    assert dual == pytest.approx(found.bound, abs=1e-12)


@pytest.mark.parametrize("slack", [0.0, 0.02, 0.1, 1.0])
def test_rates_held_on_rows_are_the_linear_program_over_kinds_of_rows(slack: float) -> None:
    """Where chances are the frequencies of few kinds of rows, none of the kinds do better, and both sides hold."""
    rng = np.random.default_rng(3)
    many = rng.multinomial(900, rng.dirichlet(np.ones(7 * 2 * 3))) + 1
    kind, label, code = (np.repeat(at, many) for at in np.indices((7, 2, 3)).reshape(3, -1))
    counts = many.reshape(7, 2, 3)
    p = (counts[:, 1].sum(1) / counts.sum((1, 2)))[kind]
    groups = [tuple((counts[:, y] / counts[:, y].sum(1, keepdims=True))[kind] for y in (1, 0))]
    known = Rows(label.astype(float), (code,), np.full(code.size, 1 / code.size))
    found = held_rates(equal_rates(p, groups, tolerance=slack), [(p, groups)], known, slack).mixture
    accepted = found.chance(p, groups)

    # a chance for each kind; rates given the label by group, and of everybody
    everybody = counts.sum(2) / counts.sum((0, 2))
    gaps = np.concatenate([(counts[:, y] / counts[:, y].sum(0)).T - everybody[:, y] for y in (1, 0)])
    gain = (everybody[:, 1] - everybody[:, 0]) / 2
    room = np.full(2 * len(gaps), slack)
    best: Any = linprog(-gain, np.concatenate([gaps, -gaps]), room, bounds=(0, 1), method="highs")
    shown = np.array([accepted[kind == k].mean() for k in range(7)])

    assert np.abs(gaps @ shown).max() <= slack + 1e-6
    assert gain @ shown == pytest.approx(-best.fun, abs=1.1e-3)  # a rule without draws may cost a thousandth


def test_without_groups_or_with_room_it_is_the_plain_rule() -> None:
    p, groups = chances(2, 500, (2,))
    plain = equal_rates(p, [], tolerance=0.1)
    loose = equal_rates(p, groups, tolerance=2.0)

    assert plain.mu == ()
    assert ((plain.score(p, []) > 0) == (p > p.mean())).all()
    assert ((loose.score(p, groups) > 0) == (p > p.mean())).all()
    assert plain.value == pytest.approx(loose.value, abs=1e-7)


def test_equal_rates_keep_their_invariances() -> None:
    """Order of rows, scale of weights, names of groups, a group nobody is in."""
    p, groups = chances(3, 800, (3,))
    one = equal_rates(p, groups, tolerance=0.02)
    order = np.random.default_rng(0).permutation(800)
    turned = equal_rates(p[order], [(g[order], h[order]) for g, h in groups], tolerance=0.02)
    renamed = equal_rates(p, [(g[:, ::-1], h[:, ::-1]) for g, h in groups], tolerance=0.02)
    more = [(np.column_stack([g, 0 * p]), np.column_stack([h, 0 * p])) for g, h in groups]
    empty = equal_rates(p, more, tolerance=0.02)

    for other in (turned, renamed, empty, equal_rates(p, groups, tolerance=0.02, weight=np.full(800, 3.0))):
        assert other.value == pytest.approx(one.value, abs=1e-7)
        assert other.bound == pytest.approx(one.bound, abs=1e-7)
    assert one.value < equal_rates(p, groups, tolerance=0.05).value - 1e-3
    assert empty.mu[0][0][3] == pytest.approx(0.0, abs=1e-6)


def test_two_groups_differ_by_what_the_docstring_says() -> None:
    p, groups = chances(4, 3000, (2,))
    found = equal_rates(p, groups, tolerance=0.03)
    accept = found.score(p, groups) > 0
    for q, g in ((p, groups[0][0]), (1 - p, groups[0][1])):
        cells = q @ g
        rates = (q * accept) @ g / cells
        assert abs(rates[0] - rates[1]) <= 0.03 / (cells.max() / cells.sum()) + 5e-3


def test_degenerate_chances() -> None:
    """Few values of x: rows are tied, which is said; and what has no answer is refused."""
    same = equal_rates(np.full(10, 0.3), [(np.full((10, 2), 0.5),) * 2], tolerance=0.01)
    assert same.converged
    assert same.value == pytest.approx(0.5, abs=1e-8)
    known = np.column_stack([[1.0, 1, 0, 0], [0.0, 0, 1, 1]])
    exact = equal_rates(np.array([0.0, 1.0, 0.0, 1.0]), [(known, known)], tolerance=0.0)
    assert exact.value == pytest.approx(1.0, abs=1e-6)
    two = np.repeat([[0.9, 0.1], [0.2, 0.8]], 50, axis=0)
    tied = equal_rates(np.repeat([0.2, 0.8], 50), [(two, two)], tolerance=0.01)
    assert tied.converged
    assert tied.tied > 0.4
    assert tied.largest > 0.01
    with pytest.raises(ValueError, match="all 0"):
        equal_rates(np.zeros(5), [], tolerance=0.1)
    with pytest.raises(ValueError, match="tolerance"):
        equal_rates(np.full(5, 0.5), [], tolerance=-0.1)
