"""Rows that steps take across a level: what it costs at least, and how many can get there."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from fairfix.solvers.invariant_linear import linear_crossings
from fairfix.solvers.network import Network, basis_of
from fairfix.solvers.network_fit import fit_network
from fairfix.solvers.relu_change_bounds import network_crossings, network_regularizer
from fairfix.solvers.transport import left_across, share_across
from scipy.optimize import linprog, minimize

from tests.strategies import examples
from tests.test_solvers.moves import data, flips_of, none_for

Floats = npt.NDArray[np.float64]


def greedy(costs: Floats, eps: float, share: Floats) -> float:
    """Return the linear program: which part of each row crosses, at a mean cost of at most ``eps``."""
    there = np.isfinite(costs)
    found: Any = linprog(
        -share[there],
        (share * np.where(there, costs, 0.0))[None, there],
        [eps],
        bounds=(0, 1),
        method="highs",
    )
    return -float(found.fun)


@pytest.mark.parametrize("seed", range(examples(6)))
def test_the_share_that_crosses_is_the_linear_program(seed: int) -> None:
    """With rows that cross for nothing and rows that never do; any multiplier bounds it from above."""
    rng = np.random.default_rng(seed)
    costs = rng.exponential(size=80)
    costs[rng.random(80) < 0.2], costs[rng.random(80) < 0.2] = 0.0, np.inf
    weight = rng.random(80)
    share = weight / weight.sum()
    for eps in (1e-6, 0.01, 0.2, 10.0):
        most, multiplier = share_across(costs, eps, weight)
        assert most == pytest.approx(greedy(costs, eps, share), abs=1e-9)
        assert multiplier * eps + share @ left_across(costs, multiplier) == pytest.approx(most, abs=1e-9)
        for other in (0.0, 0.3, 3.0, 100.0):
            assert other * eps + share @ left_across(costs, other) >= most - 1e-9
    assert share_across(np.full(5, np.inf), 1.0) == (0.0, 0.0)


def test_a_linear_logit_is_crossed_at_the_distance_of_the_level() -> None:
    """The nearest variant decides, by an optimiser over the steps; a variant on the other side costs nothing."""
    X, _ = data(3, 40)
    moves, w = flips_of(X), np.array([0.1, 0.2, -0.1, 0.8, -1.1])
    inverse = np.diag([0.0, 0.0, 0.0, 2.0, 0.5])
    logits = np.stack([X @ w, *(one @ w for one in moves.others)])
    found = linear_crossings(logits, 0.15, float(w @ inverse @ w))
    across = ((logits >= 0.15) != (logits[0] >= 0.15)).any(axis=0)
    assert 0 < across.sum() < 40
    assert (found[across] == 0.0).all()
    for i in np.flatnonzero(~across)[:8]:
        least = min(
            minimize(
                lambda u: u @ u,
                np.zeros(2) + 0.1,
                constraints={
                    "type": "eq",
                    "fun": lambda u, z=z: z - 0.15 + w[3:] @ (np.sqrt([2.0, 0.5]) * u),
                },
            ).fun
            for z in logits[:, i]
        )
        assert found[i] == pytest.approx(least, rel=1e-3)
    assert (linear_crossings(np.array([[1.0, -1.0]]), 0.0, 0.0) == np.inf).all()


@pytest.mark.parametrize("seed", range(examples(4)))
def test_no_step_crosses_a_network_for_less(seed: int) -> None:
    """Steps in all directions, from the row and from its variants; and the bound is not far below the best of them."""
    rng = np.random.default_rng(seed)
    X, _ = data(seed, 60)
    moves = flips_of(X) if seed % 2 else none_for(X)
    network = Network(rng.normal(size=(5, 6)), rng.normal(size=6), rng.normal(size=(6, 1)), np.array([0.2]))
    inverse = np.diag([0.0, 0.0, 0.0, 1.0, 3.0])
    level = float(np.quantile(network.logit(X), 0.4))
    least = network_crossings(network, X, moves, level=level, eps=0.1, metric_inverse=inverse)
    own, best = network.logit(X) >= level, np.full(60, np.inf)
    angles = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    ways = np.zeros((40, 1, 1, 5))
    ways[:, 0, 0, 3:] = np.sqrt([1.0, 3.0]) * np.column_stack([np.cos(angles), np.sin(angles)])
    lengths = np.sqrt(0.1) * 10.0 ** np.linspace(-2, 1.5, 60)
    for start in (X, *moves.others):
        best[(network.logit(start) >= level) != own] = 0.0
        there = start + lengths[:, None, None] * ways
        over = ((network.logit(there.reshape(-1, 5)) >= level).reshape(40, 60, 60) != own).any(axis=0)
        best = np.minimum(best, np.where(over, lengths[:, None] ** 2, np.inf).min(axis=0))
    assert (least <= best * (1 + 1e-9)).all()
    assert (least[best == 0.0] == 0.0).all()
    near = np.isfinite(best) & (best > 0) & (best < 10)
    assert np.median(least[near] / best[near]) > 0.25


@pytest.mark.parametrize("eps", [0.0, pytest.param(0.05, marks=pytest.mark.slow)])
def test_networks_are_constant_along_a_span(eps: float) -> None:
    """With free steps and without, of two classes and of three; and a plan and a bound hold the regularizer."""
    X, y = data(5, 200)
    moves, judged = flips_of(X), np.arange(0, 200, 5)
    span = basis_of(np.array([[1.0, 0.0, 0.5, -1.0, 0.3], [2.0, 0.0, 1.0, -2.0, 0.6]]))
    along = 3.0 * np.random.default_rng(0).normal(size=(200, 1)) * span.T
    asked: dict[str, Any] = {"rho": 0.5, "seed": 1, "hidden": 4, "batch": 40, "span": span}
    fit = fit_network(X, y, None, moves, judged, eps=eps, **asked)
    assert span.shape == (5, 1)
    assert fit.network.logit(X + along) == pytest.approx(fit.network.logit(X), abs=1e-9)
    assert np.ptp(fit.network.logit(X)) > 0.1
    if not eps:
        classes = fit_network(X, y + (X[:, 4] > 1), None, moves, judged, logits=3, **asked).network
        s, moved = (classes.forward(one)[1] for one in (X, X + along))
        assert moved == pytest.approx(s, abs=1e-9)
        return
    bounds = np.array([X.min(axis=0), X.max(axis=0)])
    found = network_regularizer(fit.network, X, moves, eps=eps, bounds=bounds)
    assert found.plan.cost <= eps * (1 + 1e-9)
    assert 0 < found.plan.value <= found.upper
    assert fit.objective < np.log(2.0)
