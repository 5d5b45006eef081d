"""The effect of a group on scores, from rows that are equal in all other columns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fairfix.data.counts import Floats, Ints
from fairfix.data.table import Table
from fairfix.errors import ColumnError
from fairfix.individual.contrasts import Contrast, cells_of, ordered
from fairfix.models.features import column_of
from fairfix.stats.quantiles import student_quantile

LEAST_MATCHED = 30
"""Matched rows of each side, below which a matched effect is undecided."""

LEAST_COVERAGE = 0.01
"""Share of rows with a match, below which a matched effect is undecided."""

MANY_CELLS = 20
"""Least number of cells (by their weights' effective number) that are clusters; fewer are strata."""


@dataclass(frozen=True)
class MatchedContrast(Contrast):
    """A contrast of equal rows; its value is NaN without a match.

    ``coverage`` is the share of the rows of both sides that are matched, ``cells`` the number of different rows of keys
    that both sides have, and ``clustered`` whether these are taken as drawn from many, so that the interval speaks of
    cells not seen, too.
    """

    coverage: float
    cells: int
    clustered: bool


class MatchedEffect(NamedTuple):
    """Contrasts of every two groups, in order; the share of rows (by weight) in a cell of more than one group."""

    pairs: tuple[MatchedContrast, ...]
    coverage: float


def keys_of(table: Table, names: Sequence[str]) -> Floats:
    """Return a number per row and column, equal where the values are, shape (n, d); missing is a value of its own.

    No category is merged with another and no number rounded, as may happen in a matrix to learn from. ColumnError where
    a column is not there, or its values have no order.
    """
    keys = np.zeros((len(table), len(names)))
    for j, name in enumerate(names):
        column = column_of(table, name)
        if pa.types.is_null(column.type):  # no value in a text file: all are the same
            continue
        column = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        try:
            places = pc.rank(column.dictionary, tiebreaker="dense").to_numpy()
        except pa.ArrowNotImplementedError:
            message = f"feature column {name!r} is of type {column.type.value_type}, which cannot be compared"
            raise ColumnError(f"{message}; leave it out with `features`") from None
        codes = np.asarray(column.indices.fill_null(-1).to_numpy(zero_copy_only=False), dtype=np.int64)
        keys[:, j] = np.append(places, 0)[codes]
    return keys


def matched_effect(
    score: Floats,
    group: Ints,
    keys: npt.NDArray[Any],
    weight: Floats | None = None,
    *,
    confidence: float = 0.95,
) -> MatchedEffect:
    r"""Return how scores of groups differ among rows that are equal in all other columns.

    In a cell ``c`` of equal rows let the sides weigh ``W_a`` and ``W_b`` and differ by ``d_c`` in mean score. Then

    .. math::
        \hat\theta = \frac{\sum_c h_c d_c}{\sum_c h_c}, \qquad h_c = \frac{W_a W_b}{W_a + W_b},

    the coefficient of the group in a regression with an intercept for each cell. Its squared standard error is

    .. math::
        \frac{C}{C - 1} \frac{\sum_c h_c^2 (d_c - \hat\theta)^2}{(\sum_c h_c)^2}
        \quad\text{or}\quad \frac{\sum_c h_c^2 (v_{ac} + v_{bc})}{(\sum_c h_c)^2},

    the first where cells are many (``MANY_CELLS``), which takes them as clusters and lets the effect differ between
    them, the second where they are few, which takes them as given and only rows as drawn: ``v`` is the variance of a
    mean within a cell, that of all cells for a row without its like.

    ``keys`` are from :func:`keys_of`, say, or a number per row, shape (n,); NaN is a value like any other.
    """
    score, levels, codes, w, _, cells = ordered(score, group, keys, weight, cells_of)
    many, total = levels.size, float(w.sum())
    mass = np.bincount(codes, w, many)
    new = np.diff(cells * many + codes, prepend=-1) != 0
    mixed = np.bincount(cells[new]) > 1
    inside = mixed[cells]
    away = (score - score[np.flatnonzero(np.diff(cells, prepend=-1))][cells])[
        inside
    ]  # 0 to the bit for equal scores
    at, w = (np.cumsum(mixed) - 1)[cells[inside]] * many + codes[inside], w[inside]
    parts = (None, w, w * away, w * away**2, w**2, w**2 * away, (w * away) ** 2)
    size = int(mixed.sum()) * many
    sums = np.stack([np.bincount(at, part, size).astype(np.float64) for part in parts]).reshape(7, -1, many)
    pairs = tuple(
        _matched(
            sums[:, :, [a, b]], float(mass[[a, b]].sum()), (int(levels[a]), int(levels[b])), 1.0 - confidence
        )
        for a, b in combinations(range(many), 2)
    )
    return MatchedEffect(pairs, float(w.sum()) / total)


def _matched(sums: Floats, mass: float, groups: tuple[int, int], alpha: float) -> MatchedContrast:
    """Return the contrast of two groups whose rows weigh ``mass``, matched or not.

    ``sums``, shape (7, C, 2), are over the rows of each group in a cell: their number; weights, times scores, times
    their squares; squared weights, times scores, times their squares. Scores count from one of their cell.
    """
    rows, w, ws, wss, *squared = sums[:, (sums[0] > 0).all(axis=1)]
    cells, coverage = len(rows), float(w.sum() / mass)
    if not cells:
        nothing = "no row of one side equals a row of the other in all other columns"
        return MatchedContrast(*groups, math.nan, math.inf, -math.inf, math.inf, nothing, 0.0, 0, False)
    h = w.prod(axis=1) / w.sum(axis=1)
    h /= h.sum()
    d = ws[:, 0] / w[:, 0] - ws[:, 1] / w[:, 1]
    value, effective = float(h @ d), 1.0 / float(h @ h)
    clustered = effective >= MANY_CELLS
    if clustered:
        error = math.sqrt(cells / (cells - 1) * float(h**2 @ (d - value) ** 2))
        freedom = effective - 1.0
    else:
        error = math.sqrt(float(h**2 @ _variance_of_means(rows, w, ws, wss, *squared).sum(axis=1)))
        freedom = max(1.0, float(rows.sum()) - 2.0 * cells)
    margin = float(student_quantile(alpha / 2, freedom)) * error if error else 0.0
    why = "; ".join(_too_few_matched(int(rows.sum(axis=0).min()), coverage)) or None
    ends = (value - margin, value + margin)
    return MatchedContrast(*groups, value, error, *ends, why, coverage, cells, clustered)


def _too_few_matched(fewest: int, coverage: float) -> Iterator[str]:
    """Yield why a matched effect is undecided, from the matched rows of the smaller side and the share matched."""
    if fewest < LEAST_MATCHED:
        yield f"only {fewest:,} matched rows of one side; {LEAST_MATCHED} are needed"
    if coverage < LEAST_COVERAGE:
        yield f"{coverage:.2%} of rows have a match; {LEAST_COVERAGE:.0%} are needed"


def _variance_of_means(
    rows: Floats, w: Floats, ws: Floats, wss: Floats, v: Floats, vs: Floats, vss: Floats
) -> Floats:
    """Return the variance of the mean score of each group in each cell, shape (C, 2), from the spread within cells."""
    several, mean = rows > 1, ws / w
    deviation = float(np.maximum(wss - ws * mean, 0.0)[several].sum())
    freedom = float((w * (1.0 - 1.0 / rows))[several].sum())
    own = np.maximum(vss - 2.0 * mean * vs + mean**2 * v, 0.0) * rows / np.maximum(rows - 1.0, 1.0)
    alone = v * (deviation / freedom if freedom else math.inf)
    return np.asarray(np.where(several, own, alone) / w**2)
