"""Parts of gaps on arrays: independent solutions, uniqueness, and Shapley values by their definition."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from fairfix.stats.gap_parts import Regression, UniqueParts, of_model, of_regression, solved


def regressed(
    X: np.ndarray, y: np.ndarray, first: np.ndarray, w: np.ndarray, feature: list[int], pieces: int = 1
) -> tuple[np.ndarray, UniqueParts]:
    """Return the parts of one outcome, of rows that come in pieces."""
    of = np.array(feature)

    def rows() -> list[tuple[np.ndarray, ...]]:
        return [(X[at], y[at, None], first[at], w[at]) for at in np.array_split(np.arange(len(y)), pieces)]

    own = Regression.of(rows())  # type: ignore[arg-type]  # tuples of four arrays
    solution = solved(own, of)
    return of_regression(rows, own, solution, of, 0.05)[0], solution  # type: ignore[arg-type]  # tuples of four arrays


def world(rows: int = 300, columns: int = 5, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Return correlated columns that differ between two groups, an outcome, the first group and weights."""
    rng = np.random.default_rng(seed)
    first = rng.random(rows) < 0.4
    X = rng.normal(size=(rows, columns)) @ rng.normal(size=(columns, columns)) + first[:, None] * rng.normal(
        size=columns
    )
    return X, X @ rng.normal(size=columns) + first + rng.normal(size=rows), first, rng.gamma(2.0, size=rows)


def difference(values: np.ndarray, first: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return the mean of the first group minus that of the second."""
    return np.average(values[first], 0, w[first]) - np.average(values[~first], 0, w[~first])


def test_parts_are_those_of_the_normal_equations_and_add_up() -> None:
    """The oracle solves a regression with an intercept and the group; pieces of the rows change nothing."""
    X, y, first, w = world()
    parts, solution = regressed(X, y, first, w, [0, 1, 1, 2, 3], pieces=7)
    design = np.column_stack([np.ones(len(y)), first, X])
    coefficients = np.linalg.solve((design * w[:, None]).T @ design, (design * w[:, None]).T @ y)
    each = difference(X, first, w) * coefficients[2:]
    assert solution.sets == ((0,), (1,), (2,), (3,))
    np.testing.assert_allclose(parts[0, :-1], [each[0], each[1] + each[2], each[3], each[4]], rtol=1e-9)
    assert parts[0, -1] == pytest.approx(coefficients[1], rel=1e-9)
    assert parts[0].sum() == pytest.approx(difference(y, first, w), abs=1e-12)


def test_limits_are_those_of_leaving_out_each_row() -> None:
    """They are as many of the jackknife's standard errors as three numbers at once need, by few degrees of freedom."""
    X, y, first, w = world(400, 2, 3)
    parts, _ = regressed(X, y, first, w, [0, 1])
    kept = ~np.eye(len(y), dtype=bool)
    again = np.array([regressed(X[k], y[k], first[k], w[k], [0, 1])[0][0, :-1] for k in kept])
    error = np.sqrt(((again - again.mean(axis=0)) ** 2).sum(axis=0))
    half = (parts[2] - parts[1])[:-1] / 2
    assert np.all(half > 2.3 * error)
    assert np.all(half < 3.0 * error)


def test_columns_that_cannot_be_told_apart_are_one_part() -> None:
    """Of a sum of two others the three have one part; the sum over all is that without the third."""
    X, y, first, w = world(seed=1)
    more = np.column_stack([X, X[:, 0] - 2.0 * X[:, 3] + 5.0])
    parts, solution = regressed(more, y, first, w, [0, 1, 2, 3, 4, 5])
    plain, _ = regressed(X, y, first, w, [0, 1, 2, 3, 4])
    assert solution.sets == ((0, 3, 5), (1,), (2,), (4,))
    expected = plain[0, [0, 1, 2, 4, 5]] + np.array([plain[0, 3], 0, 0, 0, 0])
    np.testing.assert_allclose(parts[0], expected, rtol=1e-7)


def test_all_levels_of_a_column_have_one_part_whichever_is_left_out() -> None:
    X, y, first, w = world(seed=2)
    level = np.digitize(X[:, 0], [-1.0, 0.0, 1.0])
    dummies = (level[:, None] == np.arange(4)).astype(float)
    sums = []
    for kept in ([0, 1, 2, 3], [1, 2, 3], [0, 1, 3]):
        columns = np.column_stack([X[:, 1], dummies[:, kept]])
        parts, solution = regressed(columns, y, first, w, [0, *(1 for _ in kept)])
        assert solution.sets == ((0,), (1,))
        sums.append(parts[0])
    np.testing.assert_allclose(sums[1:], [sums[0], sums[0]], rtol=1e-9)


def test_what_only_the_group_tells_apart_is_set_aside() -> None:
    """A column of the group, and two whose difference is the group's: the other parts are those with one of these."""
    X, y, first, w = world(seed=4)
    noise = np.random.default_rng(0).normal(size=len(y))
    more = np.column_stack([first * 3.0, X, noise, noise + 2.0 * first])
    parts, solution = regressed(more, y, first, w, [0, 1, 2, 3, 4, 5, 6, 7])
    plain, _ = regressed(np.column_stack([X, noise]), y, first, w, [0, 1, 2, 3, 4, 5])
    assert solution.aside == ((0,), (6, 7))
    np.testing.assert_allclose(parts[0, :5], plain[0, :5], rtol=1e-7)


def asked(
    columns: int, sizes: tuple[int, int], seed: int = 0, span: float = math.inf, **more: object
) -> tuple[object, ...]:
    """Return the parts of a function of the rows, which is a product of columns unless it is given."""
    rng = np.random.default_rng(seed)
    rows = [rng.normal(size=(size, columns)) + place for place, size in enumerate(sizes)]
    weights = [np.ones(size) for size in sizes]
    of = more.get("of", lambda x: x.prod(axis=1))

    def mixed(first: np.ndarray, second: np.ndarray, inside: np.ndarray) -> np.ndarray:
        return of(np.where(inside, rows[0][first], rows[1][second]))[:, None]  # type: ignore[operator]  # a function of rows

    outcomes = tuple(of(one)[:, None] for one in rows)  # type: ignore[operator]  # a function of rows
    (parts,), *drawn = of_model(mixed, outcomes, tuple(weights), columns, 0.05, [span], rng)  # type: ignore[arg-type]  # two outcomes
    return parts, drawn, rows, outcomes


def test_parts_of_a_model_are_shapley_values_by_their_definition() -> None:
    """One pair of rows: the mean over all orders; and the parts of any drawing add up to the gap of all rows."""
    parts, drawn, (a, b), _ = asked(4, (1, 1))  # type: ignore[misc]  # four parts
    each = np.zeros(4)
    for order in permutations(range(4)):
        row = b[0].copy()
        for j in order:
            before = row.prod()
            row[j] = a[0, j]
            each[j] += (row.prod() - before) / 24
    assert drawn[1] == 0
    np.testing.assert_allclose(parts[0], each, rtol=1e-12)
    for columns, sizes in ((4, (300, 1000)), (15, (900, 400)), (1, (50, 70))):
        parts, _, _, (first, second) = asked(
            columns, sizes, of=lambda x: np.tanh(x).sum(axis=1) * (x[:, 0] > 0)
        )
        assert parts[0].sum() == pytest.approx(first.mean() - second.mean(), abs=1e-12)


@pytest.mark.parametrize("columns", [4, 14])
def test_parts_of_a_linear_model_are_its_coefficients_by_the_differences(columns: int) -> None:
    """Where all rows are drawn this is exact, whatever the orders; a column that is not used has part 0."""
    slopes = np.arange(columns) - 2.0
    parts, drawn, (a, b), _ = asked(columns, (400, 400), of=lambda x: x @ slopes)  # type: ignore[misc]  # four parts
    assert drawn[0] == 400
    np.testing.assert_allclose(parts[0], slopes * (a.mean(axis=0) - b.mean(axis=0)), atol=1e-10)
    assert (parts[:, 2] == 0.0).all()


def test_a_column_of_no_drawn_effect_may_have_one_where_the_outcome_is_bounded() -> None:
    parts, *_ = asked(3, (500, 500), of=lambda x: (x[:, 0] > 0.5) * 1.0, span=1.0)
    assert parts[0, 1] == 0.0 < parts[2, 1] < 0.02  # type: ignore[attr-defined]  # an array
