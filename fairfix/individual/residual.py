"""The effect of a group on scores, from what other columns do not foretell of either."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fairfix.data.counts import Bools, Floats, Ints
from fairfix.individual.contrasts import Contrast, checked
from fairfix.individual.nuisances import Nuisances, binned, folds_of_equals, least_squares, standardised
from fairfix.models.learners import hashed
from fairfix.stats.quantiles import normal_quantile

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


NEGLIGIBLE = 1e-4
"""Part of a score's deviation that is the least standard error of an effect on it: what is learned is never exact."""


FIRST_ROUNDS = 40
"""Trees of the mean that only starts the two steps; its errors cancel in the second."""


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
    score, group, w = checked(score, group, weight, len(X))
    some = w > 0
    score, X, w = score[some], np.asarray(X, dtype=np.float64)[some], w[some]
    levels, codes = np.unique(group[some], return_inverse=True)
    codes = np.asarray(codes, dtype=np.int64).reshape(-1)
    order = np.lexsort((w, score, codes, hashed(X)))  # sums do not hang on the order of rows
    score, X, w, codes = score[order], X[order], w[order], codes[order]
    w = w / w.mean()
    learner = Nuisances(X, codes, w, folds_of_equals(X, folds), seed)
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
    steps = binned(told, w, round(rest.size ** (1 / 3)))
    Z = standardised(
        np.column_stack([told, *(column[:, None] == np.unique(column) for column in steps.T)]), w
    )
    found = least_squares(Z, rest, w)
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


def _share_explained(before: Floats, after: Floats, w: Floats) -> float:
    """Return the share of the spread that is gone; 0 where there was none."""
    spread = float(w @ before**2)
    return 1.0 - float(w @ after**2) / spread if spread else 0.0
