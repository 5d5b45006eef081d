"""Recalibration maps and piecewise linear rules."""

from __future__ import annotations

import numpy as np
import pytest
from fairfix.solvers import monotone
from fairfix.solvers.monotone import isotonic, sigmoid
from fairfix.solvers.piecewise import Piecewise
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from tests.strategies import examples


def sample(seed: int, rows: int = 400) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return scores 2p-1 (tied in every other instance), labels and whole weights."""
    rng = np.random.default_rng(seed)
    p = rng.beta(2, 3, rows)
    p = np.round(p, 1) if seed % 2 else p
    return 2 * p - 1, (rng.random(rows) < p**1.5).astype(int), rng.integers(1, 4, rows).astype(float)


@given(st.integers(0, 10**6), st.booleans())
@settings(max_examples=examples(40))
def test_isotonic_is_that_of_scikit_learn(seed: int, weighted: bool) -> None:
    """The same values at the fitted scores, with and without weights."""
    f, y, w = sample(seed)
    found = isotonic(f, y, w if weighted else None)
    known = IsotonicRegression().fit(f, y, w if weighted else None).predict(f)

    np.testing.assert_allclose(found.shares[found.block(f)], known, atol=1e-12)
    assert (np.diff(found.shares) > 0).all()
    assert (np.diff(found.edges) > 0).all()


@given(st.integers(0, 10**6), st.booleans(), st.sampled_from([1, 256, 1024]))
@settings(max_examples=examples(30))
def test_isotonic_pools_in_any_stretches(seed: int, weighted: bool, stretch: int) -> None:
    """Points that are pooled a few at a time, ties or not, make the blocks that all make at once."""
    rng = np.random.default_rng(seed)
    f = rng.integers(0, rng.choice([2, 50, 10**6]), rng.integers(1, 3000)) / 8
    y, w = rng.integers(0, 2, f.size), rng.random(f.size) + 0.01 if weighted else None
    whole = isotonic(f, y, w)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(monotone, "STRETCH", stretch)
        parts = isotonic(f, y, w)

    np.testing.assert_array_equal(parts.edges, whole.edges)
    np.testing.assert_allclose(parts.shares, whole.shares, rtol=1e-12)
    np.testing.assert_allclose(parts.mass, whole.mass, rtol=1e-12)


def test_blocks_count_labels_like_their_values() -> None:
    """In each block the mean label is the value, so a rule constant on blocks has the same rates by either."""
    f, y, w = sample(1)
    found = isotonic(f, y, w)
    block = found.block(f)

    np.testing.assert_allclose(np.bincount(block, w), found.mass, atol=1e-12)
    np.testing.assert_allclose(np.bincount(block, w * y) / np.bincount(block, w), found.shares, atol=1e-14)


def test_new_scores_fall_into_the_block_below_the_midpoint() -> None:
    """Edges stand midway between blocks; everything below the first block belongs to it."""
    found = isotonic([-0.5, 0.5], [0, 1])

    assert found.edges.tolist() == [-0.5, 0.0]
    assert found.block([-1.0, -0.1, 0.0, 1.0]).tolist() == [0, 0, 1, 1]


def test_sigmoid_is_platts() -> None:
    """Without regularisation it is logistic regression on the log-odds against Platt's targets."""
    f, y, w = sample(0)
    found = sigmoid(f, y, w)
    ones, zeros = w[y == 1].sum(), w[y == 0].sum()
    target = np.where(y == 1, (ones + 1) / (ones + 2), 1 / (zeros + 2))
    x = logit((1 + f) / 2)[:, None]
    both = np.concatenate([x, x]), np.repeat([1, 0], f.size), np.concatenate([w * target, w * (1 - target)])
    known = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(both[0], both[1], both[2])

    assert found.slope == pytest.approx(known.coef_[0, 0], abs=1e-5)
    assert found.intercept == pytest.approx(known.intercept_[0], abs=1e-5)
    np.testing.assert_allclose(found.apply(f), expit(found.slope * x[:, 0] + found.intercept), atol=1e-12)


def test_sigmoid_stays_finite_and_keeps_the_order() -> None:
    """Separated labels give a finite slope; scores that point the wrong way give a constant."""
    f = np.array([-1.0, -0.9, 0.9, 1.0])
    assert 0 < sigmoid(f, [0, 0, 1, 1]).slope < np.inf
    upside_down = sigmoid(f, [1, 1, 0, 0])
    assert upside_down.slope == 0.0
    assert upside_down.apply(f) == pytest.approx(0.5)


# ---- piecewise -----------------------------------------------------------------------------------------


@given(st.floats(-50, 50), st.floats(-5, 5), st.lists(st.floats(-2, 2), min_size=1, max_size=20))
def test_a_line_is_clipped(slope: float, intercept: float, x: list[float]) -> None:
    """The two knots give back the clipped line, rising, falling or flat."""
    found = Piecewise.line(slope, intercept)(x)

    np.testing.assert_allclose(found, np.clip(slope * np.array(x) + intercept, 0, 1), atol=1e-9)


@given(st.integers(0, 10**6))
@settings(max_examples=examples(60))
def test_separating_gives_points_their_shares(seed: int) -> None:
    """Whatever the order and the number of tied points, each gets its share back."""
    rng = np.random.default_rng(seed)
    x = np.unique(rng.uniform(-1, 1, rng.integers(1, 12)))
    low, high = sorted(rng.integers(0, x.size + 1, 2))
    share = np.where(np.arange(x.size) < low, 0.0, np.where(np.arange(x.size) < high, 0.3, 1.0))
    order = rng.permutation(x.size)
    found = Piecewise.separating(x[order], share[order])

    np.testing.assert_array_equal(found(x), share)
    assert found.sharp == (low == high)


def test_steps_and_values_at_knots() -> None:
    """A step function from edges, and a value of its own at a knot."""
    stairs = Piecewise.steps([-0.5, 0.0, 0.5], [0.0, 0.5, 1.0])
    assert stairs([-0.9, -0.5, -0.1, 0.0, 0.2, 0.5, 0.9]).tolist() == [0, 0, 0, 0.5, 0.5, 1, 1]
    tie = Piecewise.separating([0.1, 0.1, 0.4], [0.25, 0.25, 1.0])
    assert tie([0.0, 0.1, 0.10001]).tolist() == [0.0, 0.25, 1.0]
    assert Piecewise.separating([0.1, 0.4], [1, 1])([0.05, 0.1]).tolist() == [0, 1]
    assert Piecewise.separating([0.1, 0.4], [0, 0])([0.4, 0.5]).tolist() == [0, 1]
    assert not Piecewise.line(2.0, 0.1).sharp
