r"""Distances between the score distributions of groups, exact or with a certified bound.

With :math:`F_g` the weighted empirical distribution function of the scores of group ``g`` and ``F`` that of
everybody, the Kolmogorov-Smirnov distances are

.. math:: D_g = \sup_x |F_g(x) - F(x)|,\qquad D_{gh} = \sup_x |F_g(x) - F_h(x)| .

**From bins.** At bin edges both functions are known exactly. Inside a bin ``[e, e')`` they are monotone, so
``F_g - F`` is at most ``F_g(e') - F(e)`` and at least ``F_g(e) - F(e')``: the supremum lies between the
largest value on an edge and the largest of these bounds (no assumption on ties).

**Exactly.** Only bins whose bound reaches the best edge value can hold the supremum. Their rows are sorted
and the distance is evaluated at every distinct score in them.

**AUC** of a group is :math:`P(s^+ > s^-) + P(s^+ = s^-)/2` over its positives and negatives. From bins the
pairs inside a bin are undecided: the value is certified to :math:`\pm\tfrac12\sum_b P_b N_b/(PN)`. With all
rows at hand it is exact.

The **pooled median** is the middle score of everybody (mean of the two middle ones where they differ); a
group's *scoring rate* is its share of rows strictly above it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairfix.auditing.results import GroupShares, ScoreGap, ScoreShares
from fairfix.data.counts import Bools, Counts, Floats, Ints
from fairfix.data.scan import KeptRows

ALL_PAIRS = 12
"""Up to this many groups every pair's distance is exact; beyond, the largest one is."""

BLOCK = 1 << 18
"""Entries of a (groups x distinct scores) table evaluated at a time."""


@dataclass(frozen=True)
class View:
    """A partition of the cells into groups: ``group_of_cell`` (C,), -1 where the cell is left out."""

    group_of_cell: Ints
    size: int


@dataclass(frozen=True)
class Distances:
    """Kolmogorov-Smirnov distances of ``k`` groups.

    Attributes
    ----------
    to_overall, between
        Distances, shapes (k,) and (k, k). With more than ``ALL_PAIRS`` groups only the largest entry of
        ``between`` is certain to be exact; the others are lower bounds from bin edges.
    to_overall_at, between_at
        Score where the distance is reached, NaN where it is known from bins only.
    to_overall_slack, between_slack
        How far the true distance may lie above the value: 0 where exact.
    """

    to_overall: Floats
    to_overall_at: Floats
    to_overall_slack: Floats
    between: Floats
    between_at: Floats
    between_slack: Floats


def _cumulated(counts: Counts, view: View) -> tuple[Floats, Floats]:
    """Return group weights up to each bin edge, shape (k, B + 1), and their totals, shape (k,)."""
    weights = counts.fold(view.group_of_cell, view.size).weights.sum(axis=1)
    edges = np.concatenate([np.zeros((view.size, 1)), np.cumsum(weights, axis=1)], axis=1)
    return edges, edges[:, -1]


@dataclass(frozen=True)
class _Bounds:
    """Distribution functions on the bin edges: groups (k, B + 1) and everybody (B + 1,)."""

    groups: Floats
    overall: Floats

    @classmethod
    def of(cls, counts: Counts, view: View) -> _Bounds:
        edges, totals = _cumulated(counts, view)
        return cls(edges / totals[:, None], edges.sum(axis=0) / totals.sum())

    def pair(self, a: Floats, b: Floats) -> tuple[Floats, Floats]:
        """Return (largest distance on an edge, upper bound per bin) of two functions or stacks of them."""
        known = np.abs(a - b).max(axis=-1)
        bound = np.maximum(a[..., 1:] - b[..., :-1], b[..., 1:] - a[..., :-1])
        return known, bound


def candidate_bins(counts: Counts, view: View) -> Bools:
    """Return the bins that can hold a supremum of the view, shape (B,)."""
    bounds = _Bounds.of(counts, view)
    filled = counts.rows.any(axis=(0, 1))
    known, bound = bounds.pair(bounds.groups, bounds.overall[None])
    chosen = np.asarray((bound >= known[:, None] - 1e-12).any(axis=0))
    if view.size > ALL_PAIRS:
        spread = bounds.groups.max(axis=0) - bounds.groups.min(axis=0)
        reach = bounds.groups[:, 1:].max(axis=0) - bounds.groups[:, :-1].min(axis=0)
        chosen |= reach >= spread.max() - 1e-12
    else:
        for g in range(view.size - 1):
            known, bound = bounds.pair(bounds.groups[g + 1 :], bounds.groups[g][None])
            chosen |= (bound >= known[:, None] - 1e-12).any(axis=0)
    return np.asarray(chosen & filled)


def distances(counts: Counts, view: View, kept: KeptRows | None) -> Distances:
    """Return the distances of a view: exact with the rows of its candidate bins, else from bins with slack.

    ``kept`` must be sorted by score.
    """
    if kept is not None:
        return _exact(counts, view, kept)
    bounds = _Bounds.of(counts, view)
    k = view.size
    known, bound = bounds.pair(bounds.groups, bounds.overall[None])
    between, slack = np.zeros((k, k)), np.zeros((k, k))
    for g in range(k - 1):
        near, far = bounds.pair(bounds.groups[g + 1 :], bounds.groups[g][None])
        between[g, g + 1 :] = between[g + 1 :, g] = near
        slack[g, g + 1 :] = slack[g + 1 :, g] = np.maximum(far.max(axis=1) - near, 0.0)
    nowhere = np.full(k, np.nan)
    return Distances(
        known, nowhere, np.maximum(bound.max(axis=1) - known, 0.0), between, np.full((k, k), np.nan), slack
    )


def _exact(counts: Counts, view: View, kept: KeptRows) -> Distances:
    """Evaluate the distribution functions at every distinct score of the candidate bins."""
    grid = counts.grid
    assert grid is not None
    edges, totals = _cumulated(counts, view)
    chosen = candidate_bins(counts, view)
    bins = grid.index(kept.score)
    group = view.group_of_cell[kept.cell]
    inside = chosen[bins] & (group >= 0)
    score, group, bins = kept.score[inside], group[inside], bins[inside]
    weight = np.ones(score.size) if kept.weight is None else kept.weight[inside]

    # what lies in unchosen bins below a chosen one, per group: the edge value minus the chosen bins' share
    weights = np.diff(edges, axis=1)
    before = edges[:, :-1] - (np.cumsum(weights * chosen, axis=1) - weights * chosen)
    best = _Best(view.size)
    running = np.zeros(view.size)
    step = max(BLOCK // max(view.size, 1), 1)
    for start, stop in _blocks_of_ties(score, step):
        new = np.concatenate([[True], score[start + 1 : stop] != score[start : stop - 1]])
        place = np.cumsum(new) - 1
        many = int(place[-1]) + 1
        table = np.bincount(group[start:stop] * many + place, weight[start:stop], view.size * many)
        cumulated = np.cumsum(table.reshape(view.size, many), axis=1) + running[:, None]
        running = cumulated[:, -1].copy()
        at = np.flatnonzero(new) + start
        mass = cumulated + before[:, bins[at]]
        best.update(mass / totals[:, None], mass.sum(axis=0) / totals.sum(), score[at])
    return best.distances()


def _blocks_of_ties(score: Floats, step: int) -> list[tuple[int, int]]:
    """Return ranges of about ``step`` sorted scores that never part equal ones."""
    out, start = [], 0
    while start < score.size:
        stop = min(start + step, score.size)
        if stop < score.size:
            stop = int(np.searchsorted(score, score[stop - 1], side="right"))
        out.append((start, stop))
        start = stop
    return out


class _Best:
    """The largest distances seen so far and where."""

    def __init__(self, k: int) -> None:
        self.k = k
        self.overall, self.overall_at = np.zeros(k), np.full(k, np.nan)
        self.pairs, self.pairs_at = np.zeros((k, k)), np.full((k, k), np.nan)

    def update(self, groups: Floats, overall: Floats, score: Floats) -> None:
        """Take in the distribution functions at some scores."""
        self._raise(self.overall, self.overall_at, np.abs(groups - overall), score)
        if self.k > ALL_PAIRS:
            self._extremes(groups, score)
            return
        for g in range(self.k - 1):
            self._raise(
                self.pairs[g, g + 1 :], self.pairs_at[g, g + 1 :], np.abs(groups[g + 1 :] - groups[g]), score
            )

    def _raise(self, best: Floats, best_at: Floats, found: Floats, score: Floats) -> None:
        where = found.argmax(axis=-1)
        value = np.take_along_axis(found, where[..., None], -1)[..., 0]
        better = value > best
        best[better] = value[better]
        best_at[better] = score[where][better]

    def _extremes(self, groups: Floats, score: Floats) -> None:
        """Find the largest pair only: at each score it is the highest against the lowest function."""
        spread = groups.max(axis=0) - groups.min(axis=0)
        at = int(spread.argmax())
        g, h = sorted((int(groups[:, at].argmax()), int(groups[:, at].argmin())))
        if spread[at] > self.pairs.max():
            self.pairs[g, h], self.pairs_at[g, h] = spread[at], score[at]

    def distances(self) -> Distances:
        """Return what was found, pairs made symmetric."""
        upper = np.triu(np.ones((self.k, self.k), dtype=bool), 1)
        pairs = np.where(upper, self.pairs, self.pairs.T)
        at = np.where(upper, self.pairs_at, self.pairs_at.T)
        return Distances(
            self.overall, self.overall_at, np.zeros(self.k), pairs, at, np.zeros((self.k, self.k))
        )


# ---------------------------------------------------------------------- a few points


def score_shares(
    counts: Counts, view: View, names: Sequence[str], found: Distances, kept: KeptRows | None, points: int
) -> ScoreShares:
    """Return the distribution functions at no more than ``points`` edges near quantiles of everybody's score.

    ``found`` are the distances of the view; the edges around the largest are among the points. Each share is known
    exactly; at the largest distance it is of scores at or below, or below where only bins are known.
    """
    grid = counts.grid
    assert grid is not None
    bounds = _Bounds.of(counts, view)
    filled = np.flatnonzero(np.diff(bounds.overall) > 0)
    first, last = int(filled[0]), int(filled[-1]) + 1
    levels = np.linspace(0.0, 1.0, points - 2)[1:-1]
    inner = np.searchsorted(bounds.overall, levels, side="left")
    gap, near = None, np.zeros(0, dtype=np.int64)
    if view.size > 1:
        g, h = sorted(int(i) for i in np.unravel_index(found.between.argmax(), found.between.shape))
        score = float(found.between_at[g, h])
        if kept is not None and np.isfinite(score):
            near = grid.index(np.array([score]))[0] + np.arange(2)
            shares = _shares_up_to(counts, view, kept, (g, h), score)
        else:
            near = np.abs(bounds.groups[g] - bounds.groups[h]).argmax(keepdims=True)
            score = float(grid.edges[near[0]])
            shares = (float(bounds.groups[g, near[0]]), float(bounds.groups[h, near[0]]))
        gap = ScoreGap((names[g], names[h]), score, shares)
    chosen = np.unique(np.clip([first, *inner, *near, last], first, last))
    most = np.finfo(np.float64).max
    return ScoreShares(
        tuple(np.clip(grid.edges[chosen], -most, most).tolist()),
        tuple(bounds.overall[chosen].tolist()),
        tuple(GroupShares(name, tuple(bounds.groups[g, chosen].tolist())) for g, name in enumerate(names)),
        gap,
    )


def _shares_up_to(
    counts: Counts, view: View, kept: KeptRows, pair: tuple[int, int], score: float
) -> tuple[float, float]:
    """Return the shares of two groups with at most this score, whose bin's rows are all kept."""
    grid = counts.grid
    assert grid is not None
    at = int(grid.index(np.array([score]))[0])
    edges, totals = _cumulated(counts, view)
    inside = (grid.index(kept.score) == at) & (kept.score <= score)
    group = view.group_of_cell[kept.cell[inside]]
    weight = np.ones(group.size) if kept.weight is None else kept.weight[inside]
    g, h = ((edges[one, at] + weight[group == one].sum()) / totals[one] for one in pair)
    return float(g), float(h)


# ---------------------------------------------------------------------- areas


def areas(counts: Counts, view: View, kept: KeptRows | None) -> tuple[Floats, Floats]:
    """Return (AUC, slack) per group, shape (k,): exact with all rows sorted by score; NaN without both labels."""
    if kept is not None and kept.label is not None:
        return _exact_areas(view, kept), np.zeros(view.size)
    weights = counts.fold(view.group_of_cell, view.size).weights
    negative, positive = weights[:, 0], weights[:, 1]
    below = np.cumsum(negative, axis=1) - negative
    total = positive.sum(axis=1) * negative.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = (positive * (below + negative / 2)).sum(axis=1) / total
        slack = (positive * negative).sum(axis=1) / (2 * total)
    return np.where(total > 0, value, np.nan), np.where(total > 0, slack, 0.0)


def _exact_areas(view: View, kept: KeptRows) -> Floats:
    """Sort by group (the scores stay in order), merge ties, and count the negatives below each positive."""
    assert kept.label is not None
    group = view.group_of_cell[kept.cell]
    inside = group >= 0
    group, score, label = group[inside], kept.score[inside], kept.label[inside]
    weight = np.ones(score.size) if kept.weight is None else kept.weight[inside]
    small = group.astype(np.int16 if view.size < 30_000 else np.int64)  # few bytes: a radix sort
    order = np.argsort(small, kind="stable")
    group, score, label, weight = group[order], score[order], label[order], weight[order]
    first = np.flatnonzero(np.concatenate([[True], (score[1:] != score[:-1]) | (group[1:] != group[:-1])]))
    positive = np.add.reduceat(np.where(label == 1, weight, 0.0), first)
    negative = np.add.reduceat(np.where(label == 1, 0.0, weight), first)
    owner = group[first]
    positives, negatives = (np.bincount(owner, part, view.size) for part in (positive, negative))
    below = np.cumsum(negative) - negative
    below -= np.concatenate([[0.0], np.cumsum(negatives)])[owner]
    area = np.bincount(owner, positive * (below + negative / 2), view.size)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(positives * negatives > 0, area / (positives * negatives), np.nan))


# ---------------------------------------------------------------------- pooled median


def median_bins(counts: Counts) -> Bools:
    """Return the bins that hold the middle score or scores of everybody, shape (B,)."""
    weights = counts.weights.sum(axis=(0, 1))
    cumulated = np.cumsum(weights)
    half = cumulated[-1] / 2
    edge = 1e-12 * cumulated[-1]
    chosen = np.zeros(weights.size, dtype=bool)
    chosen[int(np.searchsorted(cumulated, half - edge))] = True
    chosen[min(int(np.searchsorted(cumulated, half + edge)), weights.size - 1)] = True
    return chosen


def scoring_counts(counts: Counts, kept: KeptRows) -> tuple[float, Floats]:
    """Return the pooled median and, per cell, sums of w and w^2 of rows above and not above it.

    The second result has shape (C, 2, 2): (above, not above) x (w, w^2).
    """
    grid = counts.grid
    assert grid is not None
    chosen = median_bins(counts)
    bins = grid.index(kept.score)
    inside = chosen[bins]
    score, cell = kept.score[inside], kept.cell[inside]
    weight = np.ones(score.size) if kept.weight is None else kept.weight[inside]
    square = weight if not counts.weighted else weight * weight
    if kept.square_weight is not None:
        square = kept.square_weight[inside]
    first = int(np.argmax(chosen))
    below = float(counts.weights.sum(axis=(0, 1))[:first].sum())
    median = _median(score, weight, below, float(counts.weights.sum()))
    cells = len(counts.cells)
    last = counts.rows.shape[2] - 1 - int(np.argmax(chosen[::-1]))
    above = score > median
    out = np.zeros((cells, 2, 2))
    for p, table, power in ((0, counts.weights, weight), (1, counts.square_weights, square)):
        out[:, 0, p] = table[:, :, last + 1 :].sum(axis=(1, 2)) + np.bincount(
            cell[above], power[above], cells
        )
        out[:, 1, p] = table.sum(axis=(1, 2)) - out[:, 0, p]
    return median, np.maximum(out, 0.0)


def _median(score: Floats, weight: Floats, below: float, total: float) -> float:
    """Return the middle score given the weight below the sorted candidates."""
    order = np.argsort(score, kind="stable")
    score, cumulated = score[order], below + np.cumsum(weight[order])
    edge = 1e-12 * total
    low = min(int(np.searchsorted(cumulated, total / 2 - edge)), score.size - 1)
    high = min(int(np.searchsorted(cumulated, total / 2 + edge)), score.size - 1)
    return float(score[low] + (score[high] - score[low]) / 2)
