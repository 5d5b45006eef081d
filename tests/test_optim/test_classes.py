"""Linear logits and a network of many classes: two classes are the binary logit, optima those of another solver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from fairfix.optim.arrays import Floats, Ints
from fairfix.optim.invariant_classes import classes_regularizer, fit_linear_classes
from fairfix.optim.invariant_linear import Patterns, fit_linear
from fairfix.optim.network import Candidates
from fairfix.optim.network_classes import ClassNetwork, class_gradient, fit_class_network
from scipy.optimize import minimize
from scipy.special import logsumexp


@dataclass(frozen=True)
class Moves:
    """Rows whose first two columns take listed values."""

    X: Floats
    values: Floats

    @property
    def many(self) -> int:
        return len(self.values)

    def variant(self, k: int, rows: Ints) -> Floats:
        out = self.X[rows].copy()
        out[:, :2] = self.values[k]
        return out


def rows(many: int = 300, classes: int = 3, seed: int = 0) -> tuple[Floats, Ints, Moves]:
    """Return rows whose class hangs on the columns that move, too."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(many, 4))
    values = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    X[:, :2] = values[rng.integers(0, 3, many)]
    s = X @ rng.normal(size=(4, classes)) * 1.5 + rng.gumbel(size=(many, classes))
    return X, s.argmax(axis=1), Moves(X, values)


@pytest.mark.parametrize("rho", [0.0, 0.5, 20.0, np.inf])
def test_two_classes_are_the_binary_logit(rho: float) -> None:
    """With logits of h / 2 and -h / 2 the regularizer is a quarter of that of h, and the penalty half of it."""
    X, y, moves = rows(classes=2)
    weight = np.random.default_rng(1).uniform(0.5, 2.0, y.size)
    ours = fit_linear_classes(X, y, 2, weight, moves, rho=rho, l2=0.02)
    binary = fit_linear(X, y.astype(float), weight, moves, rho=rho / 4, l2=0.01)
    assert ours.converged
    assert ours.objective == pytest.approx(binary.objective, abs=2e-6)
    assert ours.coef[:, 1] - ours.coef[:, 0] == pytest.approx(binary.coef, abs=2e-3)


@pytest.mark.parametrize("rho", [0.3, 3.0])
def test_the_optimum_is_that_of_another_solver(rho: float) -> None:
    """Of the problem with a bound for each row's worst move, by sequential quadratic programming."""
    X, y, moves = rows(60)
    n, K, l2 = y.size, 3, 0.05
    patterns = Patterns.of(X, moves, np.full(n, 1 / n))
    G, d = patterns.shares.size, X.shape[1]
    centre = np.eye(K) - 1 / K

    def parts(z: Floats) -> tuple[Floats, Floats, Floats]:
        return z[: d * K].reshape(d, K), z[d * K : d * K + K], z[d * K + K :]

    def value(z: Floats) -> float:
        W, b, t = parts(z)
        s = X @ W + b
        loss = (logsumexp(s, axis=1) - s[np.arange(n), y]).mean()
        return float(loss + l2 * (W**2).sum() + rho * patterns.shares @ t)

    def room(z: Floats) -> Floats:
        W, _, t = parts(z)
        return (t[:, None] - ((patterns.deltas @ W @ centre) ** 2).mean(axis=2)).ravel()

    start = np.concatenate([np.zeros(d * K + K), np.ones(G)])
    end = minimize(
        value,
        start,
        method="SLSQP",
        constraints={"type": "ineq", "fun": room},
        options={"maxiter": 500, "ftol": 1e-11},
    )
    ours = fit_linear_classes(X, y, K, None, moves, rho=rho, l2=l2)
    assert end.success
    assert ours.objective == pytest.approx(end.fun, abs=1e-5)
    assert end.fun >= ours.objective - ours.gap - 1e-6


@pytest.mark.parametrize("seed", range(3))
def test_no_logits_are_below_the_bound(seed: int) -> None:
    X, y, moves = rows(seed=seed)
    ours = fit_linear_classes(X, y, 3, None, moves, rho=2.0, l2=0.01)
    patterns = Patterns.of(X, moves, np.full(y.size, 1 / y.size))
    rng = np.random.default_rng(seed)
    for size in (1e-4, 1e-3, 1e-2, 0.1, 1.0):
        W = ours.coef + size * rng.normal(size=ours.coef.shape)
        s = X @ W + ours.intercept + size * rng.normal(size=3)
        loss = (logsumexp(s, axis=1) - s[np.arange(y.size), y]).mean()
        whole = loss + 0.01 * (W**2).sum() + 2.0 * classes_regularizer(patterns, W)
        assert whole >= ours.objective - ours.gap


def test_what_is_added_to_all_logits_does_not_count() -> None:
    X, y, moves = rows()
    patterns = Patterns.of(X, moves, np.full(y.size, 1 / y.size))
    W = np.random.default_rng(0).normal(size=(4, 3))
    same = W + np.random.default_rng(1).normal(size=(4, 1))
    assert classes_regularizer(patterns, same) == pytest.approx(classes_regularizer(patterns, W), rel=1e-12)


def test_an_infinite_weight_leaves_no_part_along_the_moves() -> None:
    X, y, moves = rows()
    coef = fit_linear_classes(X, y, 3, None, moves, np.array([[0.0, 0, 1, 1]]), rho=np.inf).coef
    assert np.abs(coef[:2]).max() < 1e-12
    assert np.abs(coef[2] + coef[3]).max() < 1e-12


def test_a_weight_of_two_is_a_row_twice_and_classes_have_no_order() -> None:
    X, y, _ = rows()
    values = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    weight = np.where(np.arange(y.size) < 50, 2.0, 1.0)
    twice = np.concatenate([np.arange(y.size), np.arange(50)])
    one = fit_linear_classes(X, y, 3, weight, Moves(X, values), rho=1.0, l2=0.01)
    other = fit_linear_classes(X[twice], 2 - y[twice], 3, None, Moves(X[twice], values), rho=1.0, l2=0.01)
    assert one.coef == pytest.approx(other.coef[:, ::-1], abs=1e-3)
    assert one.objective == pytest.approx(other.objective, abs=2e-6)


def test_the_gradient_of_the_network_is_the_numerical_one() -> None:
    X, y, moves = rows(40)
    rng = np.random.default_rng(2)
    parts = [rng.normal(size=shape) for shape in ((4, 5), (5,), (5, 3), (3,))]
    share, listed = np.full(40, 1 / 40), Candidates.of(X, moves).take(np.arange(40))

    def at(step: float, way: list[Floats]) -> tuple[float, Any]:
        moved = [part + step * one for part, one in zip(parts, way, strict=True)]
        return class_gradient(ClassNetwork(*moved), X, y, share, listed, 1.5)

    way = [rng.normal(size=part.shape) for part in parts]
    slope = sum(float((g * one).sum()) for g, one in zip(at(0.0, way)[1], way, strict=True))
    assert slope == pytest.approx((at(1e-6, way)[0] - at(-1e-6, way)[0]) / 2e-6, rel=1e-5)


def test_a_heavy_weight_makes_the_network_hardly_change() -> None:
    X, y, moves = rows(200, seed=3)
    changed = []
    for rho in (0.0, 100.0):
        fit = fit_class_network(
            X, y, 3, None, moves, np.arange(0, 200, 5), rho=rho, seed=0, hidden=8, batch=40
        )
        every = np.arange(200)
        variants = [fit.network.sums(moves.variant(k, every)) for k in range(3)]
        classes = np.stack([fit.network.rectified(sums)[1].argmax(axis=1) for sums in variants])
        changed.append((classes != classes[0]).any(axis=0).mean())
    assert changed[0] > 5 * changed[1]
