"""Columns that alone tell the score are found in any form, unit and weighting; inputs of a score are not."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from fairfix.individual.copied import alone_tells

Floats = npt.NDArray[np.float64]

FORMS = ("itself", "squared", "deciles", "numbered", "halves", "noise")


def score_of(shape: str, rows: int, rng: np.random.Generator) -> Floats:
    """Return scores that are even, skewed, or have few values."""
    plain = rng.normal(size=rows)
    skewed = {"normal": plain, "skewed": np.exp(2 * plain), "probability": 1 / (1 + np.exp(-3 * plain))}
    return skewed.get(shape, np.round(plain))


def made_from(score: Floats, form: str, rng: np.random.Generator) -> Floats:
    """Return a column that is made of the score."""
    share = np.searchsorted(np.sort(score), score, side="right") / score.size - 1e-9
    deciles = np.floor(10 * share)
    return {
        "itself": score,
        "squared": -(share**2),
        "deciles": deciles,
        "numbered": rng.permutation(10)[deciles.astype(int)].astype(float),
        "halves": (score > np.median(score)).astype(float),
        "noise": share + 0.05 * rng.normal(size=score.size),
    }[form]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", ["normal", "skewed", "probability", "few"])
@pytest.mark.parametrize("rows", [150, 4000])
def test_what_is_made_of_the_score_is_found(form: str, shape: str, rows: int) -> None:
    """In any unit of both, in any order of rows, and by weights as by repeated rows."""
    rng = np.random.default_rng(rows)
    score = score_of(shape, rows, rng)
    column = made_from(score, form, rng)
    order, times = rng.permutation(rows), rng.integers(1, 4, rows)

    told = alone_tells(score, column, None)
    assert told
    assert alone_tells(1e-9 * score + 5e-9, -1e6 * column, None) == told
    assert alone_tells(score[order], column[order], None) == told
    assert alone_tells(score, column, times.astype(float))
    assert alone_tells(np.repeat(score, times), np.repeat(column, times), None)
    assert alone_tells(np.append(score, 0.0), np.append(column, 1e3), np.append(np.ones(rows), 0.0)) == told


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rows", [60, 150, 4000])
def test_inputs_of_a_score_are_not(seed: int, rows: int) -> None:
    """Nor are columns that have nothing to do with it, names, a column of one person, or one without a value."""
    rng = np.random.default_rng(seed)
    inputs = np.column_stack([rng.normal(size=(rows, 2)), rng.integers(0, 2, rows), rng.integers(0, 5, rows)])
    score = 1 / (1 + np.exp(-(inputs @ np.array([1.0, 0.8, 0.9, 0.4]) - 1.0)))
    decision = (rng.random(rows) < score).astype(float)
    others = np.column_stack(
        [np.arange(rows), np.arange(rows) == 0, np.zeros(rows), rng.integers(0, rows // 3, rows)]
    )
    for column in (*inputs.T, *rng.permutation(others).T, decision):
        assert not alone_tells(score, column.astype(float), None)
    for column in inputs.T:
        assert not alone_tells(decision, column, None)


def test_of_scores_that_are_all_the_same_nothing_is_made() -> None:
    assert not alone_tells(np.ones(100), np.arange(100.0), None)
