"""The effect of a group on scores, from what other columns do not foretell of either."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fairfix.data.counts import Bools, Floats, Ints
from fairfix.individual.contrasts import Contrast, ordered
from fairfix.individual.nuisances import ROUNDS, Nuisances, binned, fitted_line, folds_of_equals, standardised
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

FOLDS = 5
"""Parts of the rows, each foretold by members fitted to the others."""

SEED = 0
"""Seed of the trees, and of the order of the blind score's residuals."""

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
    blind, blind_error
        The contrast of a score that is blind by construction, whose effect is 0, and its standard error.
    """

    overlap: float
    balanced_overlap: float
    left: float
    blind: float
    blind_error: float


def residual_effect(
    score: Floats,
    group: Ints,
    X: Floats,
    weight: Floats | None = None,
    *,
    confidence: float = 0.95,
) -> tuple[ResidualContrast, ...]:
    r"""Return how scores of groups differ once the other columns are accounted for.

    With ``m(x) = E[score | x]`` and ``e(x) = P(group | x)`` learned from other rows,

    .. math::
        \hat\theta = \frac{\sum_i w_i r_i (s_i - m(x_i))}{\sum_i w_i r_i^2}, \qquad
        \widehat{se}^2 = \frac{\sum_i w_i^2 r_i^2 (s_i - m(x_i) - \hat\theta r_i)^2}{(\sum_i w_i r_i^2)^2}, \qquad
        r_i = 1[i \in \text{group}] - e(x_i) .

    How ``m`` and ``e`` are learned and calibrated so that their errors cancel, and the blind score that tries the
    estimator, are in docs/methods/direct-effects.md. Where the effect differs from row to row this is its mean with
    weights ``e(x) (1 - e(x))``: where the group is certain, nothing is seen. A value is *undecided*, with the reason,
    where the ``LEAST_`` limits say so or the blind score would be called unfair.

    NaN is a missing value of ``X``. The contrasts compare every group with all others; two groups have
    one difference.
    """
    X = np.asarray(X, dtype=np.float64)
    score, levels, codes, w, rows, _ = ordered(score, group, X, weight, hashed)
    X, w = X[rows], w / w.mean()
    learner = Nuisances(X, codes, w, folds_of_equals(X, FOLDS, w), SEED)
    many = levels.size
    level = float(w @ score / w.sum())

    member, shares, root = np.eye(many)[codes], learner.shares(), np.sqrt(w)
    rest = (member - shares)[:, 1:]  # of all groups but one: together they are certain
    plain = score - learner.mean(score, score, FIRST_ROUNDS)
    steps = np.append(0.0, np.linalg.lstsq(root[:, None] * rest, root * plain, rcond=1e-10)[0])
    foretold = learner.mean(score - member @ steps, score, ROUNDS) + shares @ steps
    away = score - foretold
    effective = float(w.sum() ** 2 / (w @ w))
    least = NEGLIGIBLE * math.sqrt(float(w @ (score - level) ** 2) / float(w.sum()))
    blind = blind_foretold = np.zeros(score.size)
    if effective >= LEAST_ROWS:  # else undecided anyhow
        order = np.random.default_rng(SEED).permutation(score.size)
        blind = np.clip(foretold + away[order], score.min(), score.max())
        blind_foretold = learner.mean(blind, blind, ROUNDS)
    both = ((foretold, away), (blind_foretold, blind - blind_foretold))
    sides = [(0, int(levels[1]))] if many == 2 else [(k, None) for k in range(many)]
    return tuple(
        _residual(
            codes == k, shares[:, k], both, w, effective, least, (int(levels[k]), second), 1.0 - confidence
        )
        for k, second in sides
    )


def _residual(
    member: Bools,
    chance: Floats,
    scores: tuple[tuple[Floats, Floats], tuple[Floats, Floats]],
    w: Floats,
    effective: float,
    least: float,
    groups: tuple[int, int | None],
    alpha: float,
) -> ResidualContrast:
    """Return the contrast of a group, from its chance at each row.

    ``scores`` has the part of each score, real and blind, that is foretold, and what is left of it. ``least`` is the
    least standard error.
    """
    mass = float(w.sum())
    share = float(w @ member) / mass
    rest = member - chance
    square = float(w @ rest**2)
    left = square / mass / (share * (1.0 - share))
    (value, own), (blind, blind_error) = (
        _slope(_calibrated(away, foretold, chance, w), _calibrated(rest, foretold, chance, w), w)
        for foretold, away in scores
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
            f"a group-blind score of these columns would be called unfair (by {blind:.2g} ± {z * blind_error:.2g}): "
            "they explain part of score and group that the adjustment does not remove"
        )
    of_blind = (blind, blind_error)
    return ResidualContrast(
        *groups, value, error, *ends, "; ".join(why) or None, overlap, balanced, left, *of_blind
    )


def _calibrated(rest: Floats, foretold: Floats, chance: Floats, w: Floats) -> Floats:
    """Return residuals without what the predictions tell of them, in a line and in steps."""
    both = np.column_stack([foretold, chance])
    steps = binned(both, w, round(rest.size ** (1 / 3)))
    Z = standardised(np.column_stack([both, *(c[:, None] == np.unique(c) for c in steps.T)]), w)
    return rest - fitted_line(Z, rest, w, np.arange(rest.size))


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
            f"the other columns predict the group nearly perfectly: they leave {left:.1%} of its variance "
            f"unexplained; {LEAST_LEFT:.0%} is needed"
        )
    if balanced < LEAST_OVERLAP:
        yield f"groups overlap in {balanced:.1%} of rows; {LEAST_OVERLAP:.0%} is needed"
    if information < LEAST_INFORMATION:
        yield (
            f"the unexplained part of the group is worth {information:.0f} rows; "
            f"{LEAST_INFORMATION:.0f} are needed"
        )
