"""The effect of a group on scores, from rows that are equal in all other columns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fairfix.data.counts import Floats, Ints
from fairfix.data.table import Table
from fairfix.errors import ColumnError
from fairfix.individual.contrasts import Contrast, cells_of, checked
from fairfix.stats.quantiles import student_quantile

LEAST_MATCHED = 30
"""Matched rows of each side, below which a matched effect is undecided."""


LEAST_COVERAGE = 0.01
"""Share of rows with a match, below which a matched effect is undecided."""


MANY_CELLS = 20
"""Cells (by their weights' effective number) from which on they are clusters; fewer are strata."""


@dataclass(frozen=True)
class MatchedContrast(Contrast):
    """A contrast of equal rows; its value is NaN without a match.

    Attributes
    ----------
    squared
        Mean squared difference of two equal rows, one of each side, weighted as the value is. It is 0 only if equal
        rows have equal scores; what scores owe to columns that are not among the keys is in it.
    rows
        Matched rows.
    coverage
        Share of the rows of both sides that are matched.
    cells
        Different rows of keys that both sides have.
    clustered
        Whether cells are taken as drawn from many, so that the interval speaks of cells not seen, too.
    undecided
        Why the value should not be judged; None if it may be.
    """

    squared: float
    rows: int
    coverage: float
    cells: int
    clustered: bool
    undecided: str | None


@dataclass(frozen=True)
class MatchedEffect:
    """Contrasts of groups over rows that are equal in all other columns.

    Attributes
    ----------
    pairs
        Every two groups, in order.
    groups
        Every group against everybody else in its cells; empty for two groups, which the one pair says all of.
    rows
        Rows of positive weight.
    coverage
        Share of them (by weight) that are in a cell of more than one group.
    confidence
        Of each interval by itself.
    """

    pairs: tuple[MatchedContrast, ...]
    groups: tuple[MatchedContrast, ...]
    rows: int
    coverage: float
    confidence: float


def keys_of(table: Table, names: Sequence[str]) -> Floats:
    """Return a number per row and column, equal where the values are, shape (n, d); missing is a value of its own.

    No category is merged with another and no number rounded, as may happen in a matrix to learn from.

    Raises
    ------
    ColumnError
        A column is not there, or its values have no order.
    """
    keys = np.zeros((len(table), len(names)))
    for j, name in enumerate(names):
        if name not in table.features.column_names:
            raise ColumnError(f"there is no feature column {name!r}; name the features with --features")
        column = table.features.column(name).combine_chunks()
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        if pa.types.is_null(column.type):  # no value in a text file: all are the same
            continue
        column = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        try:
            places = pc.rank(column.dictionary, tiebreaker="dense").to_numpy()
        except pa.ArrowNotImplementedError:
            message = f"feature column {name!r} is of type {column.type.value_type}, which cannot be compared"
            raise ColumnError(f"{message}; leave it out with --features") from None
        codes = np.asarray(column.indices.fill_null(-1).to_numpy(zero_copy_only=False), dtype=np.int64)
        keys[:, j] = np.append(places, 0)[codes]
    return keys


@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums over the rows of a side in each of C cells, scores counted from a score of their cell; each shape (C,).

    Attributes
    ----------
    rows
        Number of rows.
    w, ws, wss
        Sums of weights, times scores, times their squares.
    v, vs, vss
        The same with squared weights.
    """

    rows: Floats
    w: Floats
    ws: Floats
    wss: Floats
    v: Floats
    vs: Floats
    vss: Floats


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

    Parameters
    ----------
    score
        Decisions, probabilities or real scores, shape (n,).
    group
        Code of the group of each row, from 0 on, shape (n,).
    keys
        All other columns as numbers, shape (n, d), from :func:`keys_of`, say; or a number per row, shape (n,).
    weight
        Shape (n,), not negative; None for 1 each.
    confidence
        Of each interval by itself.

    Raises
    ------
    DataError
        A score is not a number, lengths differ, or there are fewer than two groups.
    """
    score, group, w = checked(score, group, weight, len(keys))
    cells = cells_of(keys[w > 0])
    score, group, w = score[w > 0], group[w > 0], w[w > 0]
    order = np.lexsort((w, score, group, cells))  # sums do not hang on the order of rows
    score, w, cells = score[order], w[order], cells[order]
    levels, codes = np.unique(group[order], return_inverse=True)
    many = levels.size

    first = np.flatnonzero(np.diff(cells, prepend=-1))
    new = np.diff(cells * many + codes, prepend=-1) != 0
    mixed = np.add.reduceat(new.astype(np.int64), first) > 1
    inside = mixed[cells]
    mass = np.bincount(codes, w, many)
    away = (score - score[first][cells])[inside]  # exactly 0 where equal rows have equal scores
    at = (np.cumsum(mixed) - 1)[cells[inside]] * many + codes[inside]
    u, size = w[inside], int(mixed.sum()) * many

    def summed(values: Floats | None) -> Floats:
        return np.bincount(at, values, size).reshape(-1, many).astype(np.float64)

    parts = [summed(x) for x in (None, u, u * away, u * away**2, u**2, u**2 * away, (u * away) ** 2)]

    def side(columns: Sequence[int]) -> _Sums:
        return _Sums(*(part[:, columns].sum(axis=1) for part in parts))

    def contrast(a: int, others: Sequence[int], second: int | None) -> MatchedContrast:
        both = float(mass[[a, *others]].sum())
        return _matched(side([a]), side(others), both, int(levels[a]), second, 1.0 - confidence)

    pairs = [contrast(a, [b], int(levels[b])) for a, b in combinations(range(many), 2)]
    rest = [contrast(a, [b for b in range(many) if b != a], None) for a in range(many)] if many > 2 else []
    coverage = float(u.sum() / w.sum())
    return MatchedEffect(tuple(pairs), tuple(rest), int(score.size), coverage, confidence)


def _matched(
    a: _Sums, b: _Sums, mass: float, first: int, second: int | None, alpha: float
) -> MatchedContrast:
    """Return the contrast of two sides of given sums, whose rows weigh ``mass``, matched or not."""
    use = (a.rows > 0) & (b.rows > 0)
    a, b = (_Sums(*(getattr(one, part)[use] for part in one.__dataclass_fields__)) for one in (a, b))
    cells, sizes = int(use.sum()), [int(one.rows.sum()) for one in (a, b)]
    rows = sum(sizes)
    coverage = float((a.w.sum() + b.w.sum()) / mass)
    if not cells:
        nothing = "no row of one side equals a row of the other in all other columns"
        bad = (math.nan, math.inf, -math.inf, math.inf, math.nan)
        return MatchedContrast(first, second, *bad, 0, 0.0, 0, False, nothing)
    h = a.w * b.w / (a.w + b.w)
    h = h / h.sum()
    d = a.ws / a.w - b.ws / b.w
    spread = sum((np.maximum(s.wss / s.w - (s.ws / s.w) ** 2, 0.0) for s in (a, b)), np.zeros(cells))
    value, squared = float(h @ d), float(h @ (spread + d**2))
    effective = 1.0 / float(h @ h)
    clustered = effective >= MANY_CELLS
    if clustered:
        error = math.sqrt(cells / (cells - 1) * float(h**2 @ (d - value) ** 2))
        freedom = effective - 1.0
    else:
        error = math.sqrt(float(h**2 @ _variance_of_means(a, b)))
        freedom = max(1.0, rows - 2.0 * cells)
    margin = float(student_quantile(alpha / 2, freedom)) * error if error else 0.0
    why = "; ".join(_too_few_matched(min(sizes), coverage)) or None
    ends = (value - margin, value + margin)
    return MatchedContrast(first, second, value, error, *ends, squared, rows, coverage, cells, clustered, why)


def _too_few_matched(fewest: int, coverage: float) -> Iterator[str]:
    """Yield why a matched effect is undecided, from the matched rows of the smaller side and the share matched."""
    if fewest < LEAST_MATCHED:
        yield f"only {fewest:,} matched rows of one side; {LEAST_MATCHED} are needed"
    if coverage < LEAST_COVERAGE:
        yield f"{coverage:.2%} of rows have a match; {LEAST_COVERAGE:.0%} are needed"


def _variance_of_means(a: _Sums, b: _Sums) -> Floats:
    """Return the variance of the difference of mean scores in each cell, shape (C,), from the spread within cells."""
    several = [one.rows > 1 for one in (a, b)]
    deviation = freedom = 0.0
    for one, some in zip((a, b), several, strict=True):
        deviation += float(np.maximum(one.wss - one.ws**2 / one.w, 0.0)[some].sum())
        freedom += float((one.w * (1.0 - 1.0 / np.maximum(one.rows, 1.0)))[some].sum())
    common = deviation / freedom if freedom else math.inf
    total = np.zeros(a.w.size)
    for one, some in zip((a, b), several, strict=True):
        mean = one.ws / one.w
        off = np.maximum(one.vss - 2.0 * mean * one.vs + mean**2 * one.v, 0.0)
        own = off * one.rows / np.maximum(one.rows - 1.0, 1.0)
        alone = np.zeros(a.w.size) if common == 0.0 else common * one.v
        total += np.where(some, own, alone) / one.w**2
    return total
