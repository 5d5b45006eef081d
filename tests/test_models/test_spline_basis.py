"""Bases of a linear score: splines by scipy's, in any unit and weight; members of a basis saved and refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fairfix.errors import ArtifactError
from fairfix.models.learners import fit_mean
from fairfix.models.members import LinearMember, TreesMember
from fairfix.models.spline_basis import KNOTS, BoostedMember, Splines, SplinesMember, knots_of
from scipy.interpolate import CubicSpline

EACH = KNOTS - 2


def skewed(seed: int = 0, many: int = 2000) -> np.ndarray:
    """Return a matrix: a normal column, one of heavy tail, one that is mostly 0, and one of three values."""
    rng = np.random.default_rng(seed)
    mostly = np.where(rng.random(many) < 0.9, 0.0, rng.exponential(size=many))
    return np.column_stack(
        [rng.normal(size=many), rng.standard_t(2, many), mostly, rng.integers(0, 3, many).astype(float)]
    )


def learned(X: np.ndarray, weight: np.ndarray | None = None, gone: int | None = None) -> Splines:
    """Return the splines of all columns but that of missing entries, which ``gone`` says of the first."""
    columns = {j: gone if j == 0 else None for j in range(X.shape[1]) if j != gone}
    return Splines.learn(X, columns, np.ones(len(X)) if weight is None else weight)


def curves(splines: Splines, X: np.ndarray, i: int) -> np.ndarray:
    """Return the curves of the i-th spline at rows, shape (n, M)."""
    first = X.shape[1] + i * EACH
    return splines.expand(X)[:, first : first + EACH]


def test_they_are_natural_cubic_splines() -> None:
    """With the column and a constant they make every natural cubic spline through the knots, as scipy has it."""
    X = skewed()
    splines = learned(X)
    for i, column in enumerate(splines.column.tolist()[:3]):
        t = splines.knots[i]
        x = np.linspace(t[0], t[-1], 301)
        at = np.zeros((x.size, X.shape[1]))
        at[:, column] = x
        basis = np.column_stack([np.ones(x.size), x, curves(splines, at, i)])
        for k in range(KNOTS):
            natural = CubicSpline(t, np.eye(KNOTS)[k], bc_type="natural")(x)
            left = natural - basis @ np.linalg.lstsq(basis, natural, rcond=None)[0]
            assert np.abs(left).max() < 1e-8 * np.abs(natural).max()


def test_beyond_the_knots_they_are_lines_and_beyond_the_ends_constant() -> None:
    X = skewed()
    splines = learned(X)
    for i, column in enumerate(splines.column.tolist()):
        (low, high), last = splines.ends[i], splines.knots[i, -1]
        at = np.zeros((5, X.shape[1]))
        at[:, column] = np.append(np.linspace(last, high, 3), [1e9, -1e9])
        found = splines.expand(at)[:, [column, *range(X.shape[1] + i * EACH, X.shape[1] + (i + 1) * EACH)]]
        np.testing.assert_allclose(found[1], (found[0] + found[2]) / 2, rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(found[3], found[2])
        at[0, column] = low
        np.testing.assert_array_equal(splines.expand(at)[4], splines.expand(at)[0])


@pytest.mark.parametrize("weighted", [False, True])
def test_curves_are_uncorrelated_with_variance_one(weighted: bool) -> None:
    """On the rows a column and its curves have mean 0 but for the column's own, and each curve weighs as any other."""
    X = skewed()
    w = np.random.default_rng(1).integers(0, 4, len(X)).astype(float) if weighted else np.ones(len(X))
    splines = learned(X, w)
    for i, column in enumerate(splines.column.tolist()):
        own = curves(splines, X, i)
        own = own[:, np.abs(own).max(axis=0) > 0]
        x = (X[:, column] - np.average(X[:, column], weights=w))[:, None]
        np.testing.assert_allclose(w @ own / w.sum(), 0.0, atol=1e-8)
        np.testing.assert_allclose((w[:, None] * own).T @ own / w.sum(), np.eye(own.shape[1]), atol=1e-7)
        np.testing.assert_allclose((w[:, None] * x).T @ own / w.sum(), 0.0, atol=1e-7)


def test_weights_are_rows_so_often() -> None:
    X = skewed(many=600)
    w = np.random.default_rng(1).integers(0, 4, len(X))
    one, other = learned(X, w.astype(float)), learned(np.repeat(X, w, axis=0))

    np.testing.assert_allclose(one.knots, other.knots, rtol=0, atol=1e-12)
    np.testing.assert_allclose(one.expand(X), other.expand(X), rtol=0, atol=1e-7)


def test_units_and_origins_do_not_matter() -> None:
    """A column in another unit, from another origin on, has the same curves."""
    X = skewed()
    moved = X * [1000.0, 0.01, 7.0, 2.0] + [5.0, -3.0, 1e3, 0.0]
    for i in range(3):
        np.testing.assert_allclose(curves(learned(moved), moved, i), curves(learned(X), X, i), atol=1e-6)


def test_few_values_have_as_many_curves_as_tell_them_apart() -> None:
    """Of three values one curve does, so that each has a level of its own; of two none is left to make."""
    X = np.random.default_rng(0).choice([0.0, 1.0, 5.0], 300, p=[0.2, 0.5, 0.3])[:, None]
    three, two = learned(X), learned(np.minimum(X, 1.0))
    at = np.array([[0.0], [1.0], [5.0]])

    assert np.linalg.matrix_rank(np.column_stack([np.ones(3), three.expand(at)])) == 3
    assert np.count_nonzero(np.abs(three.expand(at)[:, 1:]).max(axis=0)) == 1
    assert two.column.size == 0
    np.testing.assert_array_equal(two.expand(at), at)


def test_knots_are_even_in_what_a_frequent_value_leaves() -> None:
    """Of even values they are Harrell's quantiles; where one value has most rows, the others share the rest."""
    even = knots_of(np.arange(10_000.0), np.ones(10_000))
    np.testing.assert_allclose(even, 1e4 * np.linspace(0.025, 0.975, KNOTS), atol=2)

    rest = np.sort(np.random.default_rng(0).random(1000))
    mostly = knots_of(np.append(0.0, rest), np.append(9000.0, np.ones(1000)))
    assert mostly.size == KNOTS
    np.testing.assert_allclose(mostly[1:], np.linspace(0, 0.75, KNOTS)[1:], atol=0.05)
    assert knots_of(np.array([0.0, 1.0]), np.array([99.0, 1.0])).size == 1
    assert knots_of(np.array([]), np.array([])).size == 0


def test_missing_entries_have_no_part_in_the_curves() -> None:
    """Knots, ends and curves are those of the rows that are there; a missing entry is as one in the middle."""
    rng = np.random.default_rng(0)
    x, gone = 3.0 + rng.normal(size=500), rng.random(500) < 0.3
    X = np.column_stack([np.where(gone, 0.0, x), gone])
    found, alone = learned(X, gone=1), learned(x[~gone, None])

    np.testing.assert_array_equal(found.knots, alone.knots)
    np.testing.assert_array_equal(found.curves, alone.curves)


def members() -> dict[str, Any]:
    """Return a member of each basis and rows for it."""
    rng, X = np.random.default_rng(0), skewed(many=400)
    y = (rng.random(400) < 1 / (1 + np.exp(-(X[:, 0] ** 2)))).astype(float)
    splines = learned(X)
    wide = X.shape[1] + splines.column.size * EACH
    trees = fit_mean(X, y, None, learner="trees", loss="logistic", l2=0.0, seed=0)
    assert isinstance(trees, TreesMember)
    return {
        "splines": SplinesMember(
            4, LinearMember(rng.normal(size=(wide, 1)), rng.normal(size=1), "sigmoid"), splines
        ),
        "boosted": BoostedMember(
            LinearMember(rng.normal(size=(5, 3)), rng.normal(size=3), "softmax"),
            replace(trees, link="identity"),
        ),
    }


@pytest.mark.parametrize("name", ["splines", "boosted"])
def test_saved_and_made_again_it_is_the_same(name: str) -> None:
    """To the bit, row by row as all at once; and what does not fit together is refused."""
    X, member = skewed(1, 60), members()[name]
    settings, arrays = member.state()
    again = type(member).from_state(settings, arrays)

    assert again.predict(X).tobytes() == member.predict(X).tobytes()
    assert (
        np.concatenate([again.predict(X[i : i + 1]) for i in range(60)]).tobytes()
        == member.predict(X).tobytes()
    )
    changes: dict[str, dict[str, Any]] = {
        "splines": {
            "column": [arrays.get("column", np.zeros(1)) + 4, np.zeros(4, dtype=np.int64)],
            "ends": arrays.get("ends", np.zeros((1, 2)))[None, :, ::-1].copy(),
            "curves": [arrays.get("curves", np.zeros((1, 1)))[:, :-1].copy()],
        },
        "boosted": {"left": [arrays.get("left", np.zeros(1)) * 0]},
    }
    each = {"more": [np.zeros(1)], "coef": [arrays["coef"][:-1]], **changes[name]}
    bad = [(settings, {**arrays, key: one}) for key, some in each.items() for one in some]
    bad += [({**settings, **more}, arrays) for more in ({"more": 1}, {"features": 2}, {"features": 7})]
    bad += [(settings, {key: one for key, one in arrays.items() if key != "intercept"})]
    for own in bad:
        with pytest.raises(ArtifactError):
            type(member).from_state(*own)
