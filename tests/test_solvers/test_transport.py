"""The greatest gain of a transport of rows, against the linear program."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from fairfix.solvers.transport import regularizer_empirical
from scipy.optimize import linprog
from scipy.sparse import csr_matrix, vstack

from tests.strategies import examples

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


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
    value, multiplier = regularizer_empirical(rows, gains, distances, eps, many=60, weight=weight)

    assert value == pytest.approx(transport(rows, gains, distances, eps, share), abs=1e-9)
    left = np.zeros(60)
    np.maximum.at(left, rows, gains - multiplier * distances)
    assert multiplier * eps + share @ left == pytest.approx(value, abs=1e-12)


def test_the_empirical_r_grows_with_eps_and_ignores_order() -> None:
    rng = np.random.default_rng(9)
    rows, gains, distances = np.repeat(np.arange(30), 4), rng.random(120), rng.random(120)
    values = [regularizer_empirical(rows, gains, distances, eps, many=30)[0] for eps in (0, 0.01, 0.1, 9)]
    order = rng.permutation(120)
    turned = regularizer_empirical(rows[order], gains[order], distances[order], 0.1, many=30)

    assert values[0] < values[1] < values[2] < values[3]
    assert values[3] == pytest.approx(gains.reshape(30, 4).max(axis=1).mean())
    assert turned[0] == pytest.approx(values[2], rel=1e-14)
    assert regularizer_empirical(rows, -gains, distances, 0.1, many=30) == (0.0, 0.0)
    assert regularizer_empirical(rows[:0], gains[:0], distances[:0], 0.1, many=30) == (0.0, 0.0)
    one = regularizer_empirical(np.array([0]), np.array([2.0]), np.array([4.0]), 1.0, many=1)
    assert one == (pytest.approx(0.5), pytest.approx(0.5))
    with pytest.raises(ValueError, match="finite"):
        regularizer_empirical(rows, np.full(120, np.inf), distances, 0.1, many=30)
    with pytest.raises(ValueError, match="eps"):
        regularizer_empirical(rows, gains, distances, -0.1, many=30)
