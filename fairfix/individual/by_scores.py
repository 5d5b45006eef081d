r"""The direct effect of a group on a score, from scores alone: what belonging to it changes, all else being equal.

No model is needed, only scores, groups and the other columns ``x``. With ``f_a(x)`` the mean score of group ``a`` at
``x`` and ``p_a(x)`` its share there, both estimates are of a mean of differences,

.. math::
    \theta_{ab} = \frac{E[h(x)\, (f_a(x) - f_b(x))]}{E[h(x)]}, \qquad
    h(x) = \frac{p_a(x)\, p_b(x)}{p_a(x) + p_b(x)} ,

weighted by overlap: rows like which only one group has any count nothing, for nothing can be seen there. For a score
that is a function of ``x`` and the group, ``f_a(x) - f_b(x)`` is what a change of the group alone does to the score.
Against everybody else, ``b`` is all other groups together and ``h = p_a (1 - p_a)``.

===========================  =================================================================================
:func:`matched_effect`       compares rows that are *equal* in all other columns. Nothing is modelled and a blind
                             score has effect 0 to the bit, but it speaks of the rows that have an equal only
:func:`residual_effect`      takes off score and group what linear models and trees foretell of them from ``x``, and
                             compares what is left (the partially linear model). It speaks of all rows where groups
                             overlap, and tries itself on a blind score first
===========================  =================================================================================

Neither looks at how fast a score changes with ``x``: a steep score that is blind to the group has no effect. What a
column that is not among ``x`` changes, and what goes through a column that is (a proxy), is not told apart from what
it comes with: the effect is that of the group *given* the columns.

**Weights** are shares of the population: a row of weight 2 stands for two, in every mean. They do not add evidence.

References
----------
Robinson (1988), Econometrica 56. Chernozhukov et al. (2018), Econometrics Journal 21. Li, Morgan and Zaslavsky (2018),
JASA 113 (overlap weights). Ahrens, Hansen, Schaffer and Wiemann (2025), Journal of Applied Econometrics 40
(short-stacking). Van der Laan, Luedtke and Carone (2024), arXiv 2411.02771 (calibration). Papke and Wooldridge (1996),
Journal of Applied Econometrics 11 (fractional logit). Cameron and Miller (2015), Journal of Human Resources 50
(clusters).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fairfix.data.counts import Bools, Floats, Ints
from fairfix.data.table import Table
from fairfix.errors import ColumnError, DataError
from fairfix.models.learners import binnable, folds_of, hashed
from fairfix.stats.quantiles import normal_quantile, student_quantile

LEAST_MATCHED = 30
"""Matched rows of each side, below which a matched effect is undecided."""

LEAST_COVERAGE = 0.01
"""Share of rows with a match, below which a matched effect is undecided."""

MANY_CELLS = 20
"""Cells (by their weights' effective number) from which on they are clusters; fewer are strata."""

LEAST_ROWS = 5_000
"""Effective rows below which a residual effect is undecided: what trees have not learned draws it from its place."""

OVERLAP = (0.05, 0.95)
"""Chances of a group between which a row is said to be where groups overlap."""

LEAST_OVERLAP = 0.1
"""Share of rows where groups overlap, were both sides equally many, below which a residual effect is undecided."""

LEAST_LEFT = 0.05
"""Share of a group's variance that the other columns leave open, below which a residual effect is undecided."""

LEAST_INFORMATION = 50.0
"""Effective rows times the variance of the group that is left open, below which a residual effect is undecided."""

BINS = 255
"""Values of a column that trees tell apart."""

ROUNDING = 1e-9
"""Part of the scale of a number below which it may be nothing but rounding."""

NEGLIGIBLE = 1e-4
"""Part of a score's deviation that is the least standard error of an effect on it: what is learned is never exact."""

RIDGE = 1e-6
"""Penalty of linear models per unit of weight, of standardised columns: it settles which of equal columns counts."""

FARTHEST = 30.0
"""Log-odds are kept within this of 0: beyond, chances are 0 and 1 to rounding."""

LEAVES = 15
"""Leaves of a tree, half the usual: larger ones learn noise, which widens the residuals that all is divided by."""

ROUNDS = 100
"""Trees of a mean, or of the chance of a group."""

FIRST_ROUNDS = 40
"""Trees of the mean that only starts the two steps; its errors cancel in the second."""

DEALT = 40
"""Rows equal in all columns that are dealt out over folds. Fewer stay in one: trees keep no leaf of less than 20."""


# ---------------------------------------------------------------------- results


@dataclass(frozen=True)
class Contrast:
    """How scores of one group differ from those of another, other columns accounted for.

    Attributes
    ----------
    first, second
        Codes of the groups; the value is that of the first minus that of the second. None: everybody else.
    value
        Mean difference; NaN where the data say nothing of it.
    standard_error
        Of the value; infinite where nothing tells of it.
    low, high
        Ends of the interval.
    """

    first: int
    second: int | None
    value: float
    standard_error: float
    low: float
    high: float


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


@dataclass(frozen=True)
class ResidualContrast(Contrast):
    """A contrast by residuals: overlap-weighted, NaN where the group can be told without error.

    Its standard error is robust to unequal variances, and has what the blind score showed in it.

    Attributes
    ----------
    overlap
        Share of rows whose chance of the first group is between .05 and .95.
    balanced_overlap
        The same with the chance that it would be, were both sides equally many: a small group is not held against it.
    left
        Share of the variance of the group that the other columns leave open: 1 (or, by what trees learn of noise, more)
        if they tell nothing of it, 0 if all.
    blind
        The same contrast of a score that is blind by construction, whose effect is 0.
    blind_error
        Standard error of that.
    undecided
        Why the value should not be judged; None if it may be.
    """

    overlap: float
    balanced_overlap: float
    left: float
    blind: float
    blind_error: float
    undecided: str | None


@dataclass(frozen=True)
class ResidualEffect:
    """Contrasts of groups, other columns accounted for out of fold.

    Attributes
    ----------
    contrasts
        Every group against everybody else; for two groups the one difference.
    rows
        Rows of positive weight.
    effective_rows
        Rows of equal weight that would tell as much.
    explained
        Share of the variance of the score that the other columns foretell out of fold; below 0 if worse than its mean.
    confidence
        Of each interval by itself.
    """

    contrasts: tuple[ResidualContrast, ...]
    rows: int
    effective_rows: float
    explained: float
    confidence: float


# ---------------------------------------------------------------------- equal rows


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


def cells_of(keys: npt.NDArray[Any]) -> Ints:
    """Return a number from 0 on for each different row, shape (n,); in an order that row order has no part in.

    Parameters
    ----------
    keys
        Shape (n, d) or (n,); NaN is a value like any other, and -0 is 0.
    """
    if keys.ndim == 1 and keys.dtype.kind in "iub":
        return np.asarray(np.unique(keys, return_inverse=True)[1].reshape(-1), dtype=np.int64)
    X = np.asarray(keys, dtype=np.float64).reshape(len(keys), -1)
    _, chosen, cells = np.unique(hashed(X), return_index=True, return_inverse=True)
    for column in X.T:
        other = column[chosen][cells]
        if not np.all((column == other) | (np.isnan(column) & np.isnan(other))):
            break  # two rows of one hash, once in 2**64: compare them whole
    else:
        return np.asarray(cells.reshape(-1), dtype=np.int64)
    plain = np.where(np.isnan(X), np.inf, X + 0.0)
    both = np.column_stack([plain, np.isnan(X)])
    return np.asarray(np.unique(both, axis=0, return_inverse=True)[1].reshape(-1), dtype=np.int64)


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
    score, group, w = _checked(score, group, weight, len(keys))
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


# ---------------------------------------------------------------------- residuals


def residual_effect(
    score: Floats,
    group: Ints,
    X: Floats,
    weight: Floats | None = None,
    *,
    folds: int = 5,
    seed: int = 0,
    confidence: float = 0.95,
) -> ResidualEffect:
    r"""Return how scores of groups differ once the other columns are accounted for.

    With ``m(x) = E[score | x]`` and ``e(x) = P(group | x)`` learned from other rows,

    .. math::
        \hat\theta = \frac{\sum_i w_i r_i (s_i - m(x_i))}{\sum_i w_i r_i^2}, \qquad
        \widehat{se}^2 = \frac{\sum_i w_i^2 r_i^2 (s_i - m(x_i) - \hat\theta r_i)^2}{(\sum_i w_i r_i^2)^2}, \qquad
        r_i = 1[i \in \text{group}] - e(x_i) .

    Where ``e`` is wrong by ``d(x)``, the denominator grows by ``d^2``, and the numerator only if ``m`` is wrong along
    with it: the value is drawn to 0, by several standard errors for scores that are functions of ``x`` and the group,
    without noise to hide it. So ``m`` is learned in two steps: first values ``b`` with a mean of the score itself,
    then ``m = f + b e`` with the mean ``f`` of ``score - b 1[group]``. Now ``m`` is wrong by ``b d``, and both cancel.

    Trees alone are wrong in the same places for score and group where both lean on sums of many columns. So a linear
    model comes first, and trees learn what it leaves, with its index as one more column; how far the trees are trusted
    is chosen on rows that neither has seen (short-stacking).

    What is learned may still be too steep or too flat along itself, ``m`` and ``e`` in the same places. So whatever
    ``m(x)`` and ``e(x)`` tell of both residuals, in a line and in steps of equal weight, is taken off before they are
    compared (calibration): the bias is gone if either is right but for a change of scale. The steps are the cube root
    of the rows, as many as are best for a mean by steps.

    **The blind score.** ``m`` plus the residuals of the score in random order is a score like the one judged, made of
    the other columns and chance alone: its effect is 0. It goes through the same estimator. Its value is a bias that is
    seen, and is squared into the standard error, as is ``NEGLIGIBLE`` of the score's deviation; where its own interval
    does not hold 0, the effect is undecided. A part of the score that nothing here learns is dealt out as chance, and
    so not seen by it.

    Where the effect differs from row to row this is its mean with weights ``e(x) (1 - e(x))``, and not that of all
    rows: where the group is certain, nothing is seen. The value is *undecided*, with the reason, where

    - fewer than ``LEAST_ROWS`` effective rows are there to learn ``m`` and ``e`` from;
    - the columns leave less than ``LEAST_LEFT`` of the group's variance open: the group can be told nearly perfectly;
    - fewer than ``LEAST_OVERLAP`` of the rows would have a chance of the group between .05 and .95, were both sides
      equally many;
    - what is left open amounts to less than ``LEAST_INFORMATION``: effective rows times the mean of ``r^2``;
    - the blind score would be called unfair.

    Parameters
    ----------
    score
        Decisions, probabilities or real scores, shape (n,).
    group
        Code of the group of each row, from 0 on, shape (n,).
    X
        All other columns as numbers, shape (n, d); NaN is a missing value.
    weight
        Shape (n,), not negative; None for 1 each.
    folds
        Parts of the rows, each foretold by members fitted to the others.
    seed
        Of the trees, and of the order of the blind score's residuals.
    confidence
        Of each interval by itself.

    Raises
    ------
    DataError
        A score is not a number, lengths differ, or there are fewer than two groups.
    """
    score, group, w = _checked(score, group, weight, len(X))
    some = w > 0
    score, X, w = score[some], np.asarray(X, dtype=np.float64)[some], w[some]
    levels, codes = np.unique(group[some], return_inverse=True)
    codes = np.asarray(codes, dtype=np.int64).reshape(-1)
    order = np.lexsort((w, score, codes, hashed(X)))  # sums do not hang on the order of rows
    score, X, w, codes = score[order], X[order], w[order], codes[order]
    w = w / w.mean()
    learner = _Learner(X, codes, w, _folds(X, folds), seed)
    many = levels.size
    level = float(w @ score / w.sum())

    member = (codes[:, None] == np.arange(many)).astype(np.float64)
    chances = learner.chances()
    root = np.sqrt(w)
    rest = (member - chances)[:, 1:]  # of all groups but one: together they are certain
    plain = score - learner.mean(score, score, FIRST_ROUNDS)
    steps = np.linalg.lstsq(root[:, None] * rest, root * plain, rcond=1e-10)[0]
    steps = np.append(0.0, steps)
    known = learner.mean(score - member @ steps, score) + chances @ steps
    away = score - known
    explained = _share_explained(score - level, away, w)
    effective = float(w.sum() ** 2 / (w @ w))
    least = NEGLIGIBLE * math.sqrt(float(w @ (score - level) ** 2) / float(w.sum()))
    blind_known = blind_away = np.zeros(score.size)
    if effective >= LEAST_ROWS:  # else undecided anyhow
        order = np.random.default_rng(seed).permutation(score.size)
        blind = np.clip(known + away[order], score.min(), score.max())
        blind_known = learner.mean(blind, blind)
        blind_away = blind - blind_known
    told = ((known, away), (blind_known, blind_away))

    def contrast(k: int, second: int | None) -> ResidualContrast:
        ends = (int(levels[k]), second, 1.0 - confidence)
        return _residual(codes == k, chances[:, k], told, w, effective, least, *ends)

    found = [contrast(0, int(levels[1]))] if many == 2 else [contrast(k, None) for k in range(many)]
    return ResidualEffect(tuple(found), int(score.size), effective, explained, confidence)


def _residual(
    member: Bools,
    chance: Floats,
    scores: tuple[tuple[Floats, Floats], tuple[Floats, Floats]],
    w: Floats,
    effective: float,
    least: float,
    first: int,
    second: int | None,
    alpha: float,
) -> ResidualContrast:
    """Return the contrast of a group, from its chance at each row.

    ``scores`` has what is known of each score, real and blind, and what is left of it. ``least`` is the least standard
    error.
    """
    mass = float(w.sum())
    share = float(w @ member) / mass
    rest = member - chance
    square = float(w @ rest**2)
    left = square / mass / (share * (1.0 - share))
    (value, own), (blind, blind_error) = (
        _slope(_calibrated(away, known, chance, w), _calibrated(rest, known, chance, w), w)
        for known, away in scores
    )
    error = math.hypot(own, blind, least) if square else math.inf
    z = normal_quantile(alpha / 2)
    ends = (value - z * error, value + z * error) if square else (-math.inf, math.inf)

    towards, against = chance / share, (1.0 - chance) / (1.0 - share)
    overlap, balanced = (
        float(w @ ((p > OVERLAP[0]) & (p < OVERLAP[1]))) / mass
        for p in (chance, towards / (towards + against))
    )
    why = [*_too_little_left(effective, left, balanced, effective * square / mass)]
    if abs(blind) > z * math.hypot(blind_error, least):
        why.append(
            f"a score made blind of these columns would be called unfair (by {blind:.2g} ± {z * blind_error:.2g}): "
            "they tell of score and group what is not accounted for"
        )
    told = (overlap, balanced, left, blind, blind_error)
    return ResidualContrast(first, second, value, error, *ends, *told, "; ".join(why) or None)


def _calibrated(rest: Floats, known: Floats, chance: Floats, w: Floats) -> Floats:
    """Return residuals without what the predictions tell of them, in a line and in steps."""
    told = np.column_stack([known, chance])
    steps = _binned(told, w, round(rest.size ** (1 / 3)))
    Z = _standardised(
        np.column_stack([told, *(column[:, None] == np.unique(column) for column in steps.T)]), w
    )
    found = _least_squares(Z, rest, w)
    return np.asarray(rest - found[0] - Z @ found[1:])


def _slope(away: Floats, rest: Floats, w: Floats) -> tuple[float, float]:
    """Return the slope of a score's residuals on a group's, and its standard error; NaN where the group has none."""
    square = float(w @ rest**2)
    if not square:
        return math.nan, math.inf
    value = float(w @ (rest * away)) / square
    return value, math.sqrt(float(np.sum((w * rest * (away - value * rest)) ** 2))) / square


def _too_little_left(effective: float, left: float, balanced: float, information: float) -> Iterator[str]:
    """Yield why a residual effect is undecided, from what the data hold to learn it from."""
    if effective < LEAST_ROWS:
        yield f"{effective:,.0f} effective rows; {LEAST_ROWS:,} are needed to learn from"
    if left < LEAST_LEFT:
        yield (
            f"the group can be told nearly perfectly from the other columns: they leave {left:.1%} of its variance "
            f"open; {LEAST_LEFT:.0%} is needed"
        )
    if balanced < LEAST_OVERLAP:
        yield f"groups overlap in {balanced:.1%} of rows; {LEAST_OVERLAP:.0%} is needed"
    if information < LEAST_INFORMATION:
        yield (
            f"what is left open of the group tells as much as {information:.0f} rows; "
            f"{LEAST_INFORMATION:.0f} are needed"
        )


def _binned(X: Floats, w: Floats, bins: int = BINS) -> Floats:
    """Return columns with at most ``bins`` values, in the same order; NaN stays. Bins of one column weigh alike.

    Trees bin columns themselves, but where rows have weights that takes longer than growing the trees.
    """
    out = np.full(X.shape, np.nan)
    for j, column in enumerate(X.T):
        there = ~np.isnan(column)
        values, at = np.unique(column[there], return_inverse=True)
        if values.size > bins:
            mass = np.bincount(at, w[there])
            end = np.cumsum(mass)
            at = np.floor((end - mass / 2.0) / end[-1] * bins)[at]
        out[there, j] = at
    return out


def _bundled(X: Floats) -> tuple[Floats, Bools]:
    """Return columns in which indicators that exclude one another are one column of categories, and which these are.

    Nothing is lost, and trees look at one column instead of many.

    Parameters
    ----------
    X
        From :func:`_binned`, shape (n, d): a column of two values has 0 and 1.
    """
    plain: list[Floats] = []
    taken: list[Bools] = []
    names: list[tuple[Floats, int]] = []
    for column in X.T:
        on = column == 1.0
        if not (on | (column == 0.0)).all():
            plain.append(column)
            continue
        for i, used in enumerate(taken):
            if names[i][1] < BINS - 1 and not (used & on).any():
                break
        else:
            i = len(taken)
            taken.append(np.zeros(len(X), dtype=bool))
            names.append((np.zeros(len(X)), 0))
        codes, many = names[i]
        codes[on] = many + 1.0
        names[i] = (codes, many + 1)
        taken[i] |= on
    columns = [*plain, *(codes for codes, _ in names)]
    named = np.arange(len(columns)) >= len(plain)
    return (np.stack(columns, axis=1) if columns else X), named


class _Learner:
    """Means of scores and chances of groups at each row, by linear models and trees that were fitted without it.

    Parameters
    ----------
    X
        Columns, shape (n, d); NaN is a missing value.
    codes
        Groups from 0 on, shape (n,).
    w
        Weights, shape (n,).
    drawn
        Fold of each row, shape (n,).
    seed
        Of the trees.
    """

    def __init__(self, X: Floats, codes: Ints, w: Floats, drawn: Ints, seed: int) -> None:
        self.Z = _standardised(X, w)
        self.X, self.named = _bundled(_binned(X, w))
        self.codes, self.w, self.seed = codes, w, seed
        self.member = (codes[:, None] == np.arange(codes.max() + 1)).astype(np.float64)
        self.parts = [
            (np.flatnonzero(drawn != part), np.flatnonzero(drawn == part)) for part in np.unique(drawn)
        ]
        if len(self.parts) == 1:  # one fold only: foretold with the row itself
            self.parts = [(self.parts[0][1], self.parts[0][1])]

    def mean(self, y: Floats, score: Floats, rounds: int = ROUNDS) -> Floats:
        """Return the mean of ``y`` at each row, shape (n,); ``score`` is what tells the index that it may hang on."""
        linear, trees = np.empty(y.size), np.empty(y.size)
        for fitted, new in self.parts:
            index = self._index(score, fitted)
            Z = np.column_stack([self.Z, index])
            straight = _least_squares(Z[fitted], y[fitted], self.w[fitted])
            by_line = straight[0] + Z @ straight[1:]
            linear[new] = by_line[new]
            bend = self._grow_mean((y - by_line)[fitted], fitted, index, rounds)
            trees[new] = by_line[new] + bend(new)
        return _stacked(linear[:, None], trees[:, None], y[:, None], self.w)[:, 0]

    def _index(self, score: Floats, rows: Ints) -> Floats:
        """Return the mean that a linear index of the columns gives the score, the groups set aside, shape (n, 1).

        Logistic for scores in [0, 1] (fractional logit), linear for others. Fitted with the groups, so that what is
        theirs is not put on the columns that come with them.
        """
        Z = np.column_stack([self.Z, self.member[:, 1:]])
        y, w, d = score[rows], self.w[rows], self.Z.shape[1]
        if y.min() < 0 or y.max() > 1 or not 0 < y.mean() < 1:
            found = _least_squares(Z[rows], y, w)
            return np.asarray(found[0] + self.Z @ found[1 : d + 1])[:, None]
        found = _fractional_logit(Z[rows], y, w)
        centre = float(w @ self.member[rows, 1:] @ found[d + 1 :] / w.sum())
        line = np.clip(found[0] + centre + self.Z @ found[1 : d + 1], -FARTHEST, FARTHEST)
        return np.asarray(1.0 / (1.0 + np.exp(-line)))[:, None]

    def _grow_mean(self, y: Floats, rows: Ints, more: Floats, rounds: int) -> Callable[[Ints], Floats]:
        from sklearn.ensemble import HistGradientBoostingRegressor

        X, model = self._grown(HistGradientBoostingRegressor, y, rows, more, rounds)
        return lambda new: np.asarray(model.predict(X[new]), dtype=np.float64)

    def _grown(self, kind: Any, target: Any, rows: Ints, more: Floats, rounds: int) -> tuple[Floats, Any]:
        """Return all columns with more of them, and trees that foretell a target from these, fitted to rows."""
        X = np.column_stack([self.X, more])
        added = np.zeros(X.shape[1] - self.X.shape[1], dtype=bool)
        model = kind(
            max_iter=rounds,
            max_leaf_nodes=LEAVES,
            categorical_features=np.append(self.named, added),
            early_stopping=False,
            random_state=self.seed,
        )
        return X, model.fit(binnable(X[rows]), target, sample_weight=self.w[rows])

    def chances(self) -> Floats:
        """Return the chances of the groups at each row, shape (n, K).

        No trees are stopped early: chances that stay short of the extremes leave behind what scores owe to other
        columns.
        """
        linear, trees = np.zeros(self.member.shape), np.zeros(self.member.shape)
        for fitted, new in self.parts:
            seen = np.unique(self.codes[fitted])
            if seen.size == 1:
                linear[np.ix_(new, seen)] = trees[np.ix_(new, seen)] = 1.0
                continue
            by_line = self._logistic(fitted)
            linear[np.ix_(new, seen)] = by_line[new]
            with np.errstate(divide="ignore"):
                logs = np.clip(np.log(by_line), -FARTHEST, 0.0)
            trees[np.ix_(new, seen)] = self._grow_chances(fitted, logs[:, 1:] - logs[:, :1])(new)
        return _stacked(linear, trees, self.member, self.w)

    def _logistic(self, rows: Ints) -> Floats:
        from sklearn.linear_model import LogisticRegression

        # a penalty only against columns that tell the group for sure: slopes of 30 deviations are to be learned
        model = LogisticRegression(C=100.0, max_iter=300, tol=1e-6)
        model.fit(self.Z[rows], self.codes[rows], sample_weight=self.w[rows])
        return np.asarray(model.predict_proba(self.Z), dtype=np.float64)

    def _grow_chances(self, rows: Ints, more: Floats) -> Callable[[Ints], Floats]:
        from sklearn.ensemble import HistGradientBoostingClassifier

        X, model = self._grown(HistGradientBoostingClassifier, self.codes[rows], rows, more, ROUNDS)
        return lambda new: np.asarray(model.predict_proba(X[new]), dtype=np.float64)


def _stacked(first: Floats, second: Floats, truth: Floats, w: Floats) -> Floats:
    """Return the mixture of two out-of-fold predictions (n, m) that is nearest to the truth in mean square."""
    step = second - first
    square = float(w @ (step**2).sum(axis=1))
    part = float(w @ (step * (truth - first)).sum(axis=1)) / square if square else 0.0
    return first + min(max(part, 0.0), 1.0) * step


def _standardised(X: Floats, w: Floats) -> Floats:
    """Return columns of mean 0 and deviation 1, missing values at the mean and with a column of their own."""
    gone = np.isnan(X)
    mass = w @ ~gone
    mean = np.divide(w @ np.where(gone, 0.0, X), mass, out=np.zeros(X.shape[1]), where=mass > 0)
    both = np.column_stack([np.where(gone, mean, X), gone[:, gone.any(axis=0)]])
    scale = np.abs(both).max(axis=0)
    both -= w @ both / w.sum()
    spread = np.sqrt(w @ both**2 / w.sum())
    varies = spread > ROUNDING * scale
    return np.asarray(both[:, varies] / spread[varies])


def _least_squares(Z: Floats, y: Floats, w: Floats) -> Floats:
    """Return intercept and slopes of a weighted linear fit; columns that others give already get the least slopes."""
    root = np.sqrt(w)
    Z = np.column_stack([np.ones(y.size), Z])
    gram = (Z * w[:, None]).T @ Z
    gram[np.diag_indices_from(gram)] += _penalty(Z, w)
    return np.asarray(np.linalg.solve(gram, (Z * root[:, None]).T @ (root * y)))


def _penalty(Z: Floats, w: Floats) -> Floats:
    """Return the penalty of each coefficient: none of the first, the intercept."""
    return np.append(0.0, np.full(Z.shape[1] - 1, RIDGE * float(w.sum())))


def _fractional_logit(Z: Floats, y: Floats, w: Floats) -> Floats:
    """Return intercept and slopes of the logistic mean of a score in [0, 1], by Newton's method with halved steps."""
    Z = np.column_stack([np.ones(y.size), Z])
    mean, penalty = float(w @ y / w.sum()), _penalty(Z, w)
    found = np.zeros(Z.shape[1])
    found[0] = math.log(mean / (1.0 - mean))

    def loss(at: Floats) -> float:
        line = Z @ at
        return float(w @ (np.logaddexp(0.0, line) - y * line)) + 0.5 * float(penalty @ at**2)

    known = loss(found)
    for _ in range(30):
        chance = 1.0 / (1.0 + np.exp(-np.clip(Z @ found, -FARTHEST, FARTHEST)))
        slope = Z.T @ (w * (chance - y)) + penalty * found
        bend = (Z * (w * chance * (1.0 - chance))[:, None]).T @ Z
        bend[np.diag_indices_from(bend)] += penalty
        step = np.linalg.solve(bend, slope)
        size = 1.0
        while (new := loss(found - size * step)) > known and size > 1e-6:
            size /= 2.0
        if not new < known:
            break
        found, gained, known = found - size * step, known - new, new
        if gained < 1e-10 * abs(known):
            break
    return found


def _folds(X: Floats, folds: int) -> Ints:
    """Return a fold for each row, shape (n,): equal rows stay together, but where they are many they are dealt out.

    Trees can learn what is peculiar to ``DEALT`` equal rows; were all of them in one fold, none would be left to learn
    it from. Rows come in the order of their values, so that what is dealt out does not hang on the order of rows.
    """
    drawn = folds_of(X, folds)
    cells = cells_of(X)
    order = np.argsort(cells, kind="stable")
    sizes = np.bincount(cells)
    place = np.empty_like(cells)
    place[order] = np.arange(cells.size) - (np.cumsum(sizes) - sizes)[cells[order]]
    return np.asarray(np.where(sizes[cells] >= DEALT, (drawn + place) % folds, drawn))


def _share_explained(before: Floats, after: Floats, w: Floats) -> float:
    """Return the share of the spread that is gone; 0 where there was none."""
    spread = float(w @ before**2)
    return 1.0 - float(w @ after**2) / spread if spread else 0.0


def _checked(
    score: npt.ArrayLike, group: npt.ArrayLike, weight: npt.ArrayLike | None, rows: int
) -> tuple[Floats, Ints, Floats]:
    """Return scores, codes of groups and weights as arrays, checked."""
    values = np.asarray(score, dtype=np.float64)
    codes = np.asarray(group, dtype=np.int64)
    w = np.ones(rows) if weight is None else np.asarray(weight, dtype=np.float64)
    if not values.shape == codes.shape == w.shape == (rows,):
        raise DataError(
            f"scores, groups, columns and weights are of different rows; {rows:,} columns' rows were given"
        )
    if not np.isfinite(values).all():
        row = int(np.argmin(np.isfinite(values)))
        raise DataError(f"the score of row {row + 1:,} is {values[row]}; leave out rows without a score")
    if not (np.isfinite(w).all() and (w >= 0).all()):
        raise DataError("weights have to be numbers from 0 on")
    if np.unique(codes[w > 0]).size < 2:
        raise DataError("an effect of a group needs rows of two groups at least")
    return values, codes, w
