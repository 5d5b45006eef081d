"""Common points of ROC curves, held against a linear program over all shares."""

from __future__ import annotations

import numpy as np
import pytest
from fairfix.optim.roc import Roc, solve_roc
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from tests.strategies import examples


def draw(seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return probabilities and weights of a few cells; every third instance has ties, zeros and ones."""
    rng = np.random.default_rng(seed)
    etas, weights = [], []
    for _ in range(rng.integers(1, 5)):
        eta = rng.random(rng.integers(2, 12))
        if seed % 3 == 0:
            eta = np.clip(np.round(1.4 * eta - 0.2, 1), 0, 1)
        if not 0 < eta.mean() < 1:
            eta[0] = 0.5
        etas.append(eta)
        weights.append(rng.uniform(0.1, 2, eta.size))
    return etas, weights


def best_value(etas: list, weights: list, slack: float) -> float:
    """Return the optimum over all shares, monotone or not; the last two variables are the centres."""
    many, total = sum(e.size for e in etas), sum(w.sum() for w in weights)
    rows, start = [], 0
    for e, w in zip(etas, weights, strict=True):
        for j, mass in enumerate((w * e, w * (1 - e))):
            row = np.zeros(many + 2)
            row[start : start + e.size] = mass / mass.sum()
            row[many + j] = -1
            rows += [row, -row]
        start += e.size
    cost = np.concatenate([*(-w * (2 * e - 1) / total for e, w in zip(etas, weights, strict=True)), [0, 0]])
    bounds = [(0, 1)] * many + [(None, None)] * 2
    return -linprog(cost, np.array(rows), np.full(len(rows), slack / 2), bounds=bounds).fun


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.03, 0.2, 2.0]))
@settings(max_examples=examples(100))
def test_value_is_that_of_a_linear_program(seed: int, slack: float) -> None:
    """No shares within the slack have a larger value, and the rules attain it."""
    etas, weights = draw(seed)
    curves = [Roc.of(e, w) for e, w in zip(etas, weights, strict=True)]
    found = solve_roc(curves, slack)
    points = zip(curves, found.x, found.y, etas, strict=True)
    shares = [curve.rule(x, y).shares(e) for curve, x, y, e in points]
    up = [np.average(q, weights=w * e) for q, e, w in zip(shares, etas, weights, strict=True)]
    right = [np.average(q, weights=w * (1 - e)) for q, e, w in zip(shares, etas, weights, strict=True)]
    total = sum(w.sum() for w in weights)
    value = sum((w * (2 * e - 1) * q).sum() for q, e, w in zip(shares, etas, weights, strict=True)) / total

    assert value == pytest.approx(best_value(etas, weights, slack), abs=1e-9)
    assert value == pytest.approx(found.value, abs=1e-12)
    assert up == pytest.approx(found.y, abs=1e-12)
    assert right == pytest.approx(found.x, abs=1e-12)
    assert max(np.ptp(up), np.ptp(right)) <= slack + 1e-9


def test_many_faces_are_found_by_cuts() -> None:
    """With more faces than a program starts with, slack still buys value, up to the unconstrained optimum."""
    rng = np.random.default_rng(0)
    curves = [Roc.of(np.clip(rng.beta(2, 3, 3000) + s, 0, 1)) for s in (0.0, 0.15)]
    found = [solve_roc(curves, slack) for slack in (0.0, 0.02, 0.05, 0.2, 1.0)]
    values = [f.value for f in found]
    free = [c.positives * c.y - c.negatives * c.x for c in curves]

    assert values == sorted(values)
    assert max(f.rounds for f in found) > 1
    assert values[-1] == pytest.approx(sum(v.max() for v in free) / 6000, abs=1e-12)
    for f in found:
        for c, x, y in zip(curves, f.x, f.y, strict=True):
            assert y <= c.height(x) + 1e-9


def test_equal_cells_keep_their_own_rule() -> None:
    """Cells of one curve stand on its best vertex: accepting what is more likely than not."""
    eta = np.array([0.9, 0.6, 0.4, 0.1])
    found = solve_roc([Roc.of(eta), Roc.of(eta, [3.0] * 4)], 0.0)

    assert Roc.of(eta).rule(found.x[0], found.y[0]).shares(eta).tolist() == [1, 1, 0, 0]


def test_a_better_cell_is_mixed_with_a_constant() -> None:
    """A perfect score shares the point of a useless one only by giving up what it knows."""
    perfect, useless = Roc.of([1.0, 0.0]), Roc.of([0.5])
    found = solve_roc([perfect, useless], 0.0)
    rule = perfect.rule(float(found.x[0]), float(found.y[0]))

    assert found.y == pytest.approx(found.x, abs=1e-12)
    assert found.value == pytest.approx(0.0, abs=1e-12)
    assert rule.shares([1.0]) == pytest.approx(rule.shares([0.0]), abs=1e-12)


@pytest.mark.parametrize(
    ("eta", "weight", "message"),
    [([], None, "row"), ([1.2], None, "row"), ([0.5], [0.0], "positive"), ([1.0], None, "both labels")],
)
def test_bad_points_are_refused(eta: list, weight: list | None, message: str) -> None:
    """A curve that exists is valid."""
    with pytest.raises(ValueError, match=message):
        Roc.of(eta, weight)


def test_numbers_out_of_range_are_refused() -> None:
    """No cell, and a negative slack."""
    with pytest.raises(ValueError, match="cell"):
        solve_roc([], 0.0)
    with pytest.raises(ValueError, match="slack"):
        solve_roc([Roc.of([0.5])], -0.1)
