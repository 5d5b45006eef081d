r"""Columns that alone tell the score: copies of it, transformed, rounded, with noise, or in bands.

The effect of a group *given* such a column is 0 whatever the score does with the group, since little of the score is
left to differ. Scores alone cannot tell a column that is made of the score from one that the score is made of. So
where there is one, nothing is said of the effect.

A column is one if

* it tells ``MOSTLY`` of the variance of the score, or of its ranks, which no monotone transform changes. A copy that
  tells the share ``r`` leaves ``1 - r`` of an effect, about; or
* its levels are bands of the score, such as deciles or decisions: of pairs that differ in both, ``IN_ORDER`` more are
  in order than not, with levels in the order of their mean rank (Goodman and Kruskal's gamma). They tell ``HALF`` of
  the variance, or ``SOME`` of it where next to no pair of two levels has one score (Somers' D). A reason to refuse all
  people of one level has such a gamma too, but neither of the others.

Several columns that tell the score together are what every model makes a score of, and are not refused.
"""

from __future__ import annotations

import numpy as np

from fairfix.data.counts import Floats, Ints

MOSTLY = 0.9
"""Least part of the variance of a column that is taken for a copy: at most a tenth of an effect would be left."""

IN_ORDER = 0.98
"""Least gamma, and Somers' D, of levels that are bands: one pair of a hundred may be out of order."""

HALF, SOME = 0.5, 0.1
"""Part of the variance that bands tell at least: less than that of an effect could be explained away by them."""

BINS, EACH = 255, 20
"""Most levels of a column, and rows of each on average, at least; neighbours are one where there are more levels."""

STEPS = 1000
"""Parts of the score that pairs are counted between: its own ties apart, a pair in a thousand is tied by them."""

FEWEST = 30
"""Rows beyond one for each level that are needed to see what varies within levels."""


def alone_tells(score: Floats, keys: Floats, weight: Floats | None) -> str:
    """Return what a column does that may be a copy of the score; empty for other columns.

    ``score``: shape (n,). ``keys``: a number for each row, equal where the column is, in its order, shape (n,).
    ``weight``: shape (n,), not negative; None for 1 each.
    """
    w = np.ones(score.size) if weight is None else weight
    rows = w > 0
    score, keys, w = score[rows], keys[rows], w[rows] / w[rows].sum()
    ranks = _ranks(score, w)
    _, levels = np.unique(keys, return_inverse=True)
    bins = _bins(levels, w, int(min(BINS, score.size // EACH)))
    explained = max(_explained(y, own, w) for y in (score, ranks) for own in (levels, bins))
    if explained >= MOSTLY:
        return f"alone explains {explained:.1%} of its variance"
    of_ranks, (gamma, somers) = _explained(ranks, bins, w), _in_order(ranks, bins, w)
    if (of_ranks >= HALF and gamma >= IN_ORDER) or (of_ranks >= SOME and somers >= IN_ORDER):
        return "alone divides it into bands"
    return ""


def _ranks(score: Floats, w: Floats) -> Floats:
    """Return the share of rows below each score, and half of those at it, shape (n,)."""
    _, at = np.unique(score, return_inverse=True)
    mass = np.bincount(at, w)
    return np.asarray((np.cumsum(mass) - mass / 2)[at])


def _bins(levels: Ints, w: Floats, most: int) -> Ints:
    """Return the levels, or at most about ``most`` runs of them that weigh alike."""
    mass = np.bincount(levels, w)
    if mass.size <= most:
        return levels
    return np.asarray(np.minimum((np.cumsum(mass) - mass / 2) * most, most - 1).astype(np.int64)[levels])


def _explained(y: Floats, levels: Ints, w: Floats) -> float:
    """Return the part of the variance that is between levels, without what is so by chance; 0 where nobody can see."""
    mass = np.bincount(levels, w)
    seen = int(np.count_nonzero(mass))
    if seen < 2 or y.size - seen < FEWEST:
        return 0.0
    away = y - w @ y
    within = away - (np.bincount(levels, w * away) / np.where(mass > 0, mass, 1.0))[levels]
    whole = float(w @ away**2) / (y.size - 1)
    return 1.0 - float(w @ within**2) / (y.size - seen) / whole if whole > 0 else 0.0


def _in_order(ranks: Floats, levels: Ints, w: Floats) -> tuple[float, float]:
    """Return gamma and Somers' D, of pairs of different levels, of ranks and levels in the order of their mean rank."""
    mass = np.bincount(levels, w)
    mean = np.bincount(levels, w * ranks) / np.where(mass > 0, mass, 1.0)
    place = np.empty(mass.size, dtype=np.int64)
    place[np.argsort(mean, kind="stable")] = np.arange(mass.size)
    _, parts = np.unique(np.minimum((ranks * STEPS).astype(np.int64), STEPS - 1), return_inverse=True)
    both = np.zeros((mass.size, int(parts.max()) + 1))
    np.add.at(both, (place[levels], parts), w)
    less = np.pad(np.cumsum(both, axis=0)[:-1], ((1, 0), (0, 0)))  # of lower levels, for each part
    below = np.pad(np.cumsum(less, axis=1)[:, :-1], ((0, 0), (1, 0)))
    above = less.sum(axis=1, keepdims=True) - below - less
    right, wrong = (float((both * side).sum()) for side in (below, above))
    return (right - wrong) / max(right + wrong, 1e-300), (right - wrong) / max(
        float((both * less.sum(axis=1, keepdims=True)).sum()), 1e-300
    )
