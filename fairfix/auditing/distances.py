r"""Distances between the score distributions of groups, exact or with a certified bound.

With :math:`F_g` the weighted empirical distribution function of the scores of group ``g`` and ``F`` that of
all rows, the Kolmogorov-Smirnov distances are

.. math:: D_g = \sup_x |F_g(x) - F(x)|,\qquad D_{gh} = \sup_x |F_g(x) - F_h(x)| .

**From bins.** At bin edges both functions are known exactly. Inside a bin ``[e, e')`` they are monotone, so
``F_g - F`` is at most ``F_g(e') - F(e)`` and at least ``F_g(e) - F(e')``: the supremum lies between the
largest value on an edge and the largest of these bounds (no assumption on ties).

**Exactly.** Only bins whose bound reaches the best edge value can hold the supremum. Their rows are sorted
and the distance is evaluated at every distinct score in them.

**AUC** of a group is :math:`P(s^+ > s^-) + P(s^+ = s^-)/2` over its positives and negatives. From bins the
pairs inside a bin are undecided: the value is certified to :math:`\pm\tfrac12\sum_b P_b N_b/(PN)`. With all
rows at hand it is exact.

The **pooled median** is the middle of all scores (mean of the two middle ones where they differ); a
group's *scoring rate* is its share of rows strictly above it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from fairfix.data.counts import Bools, Counts, Floats, Ints
from fairfix.data.scan import KeptRows
from fairfix.schema.common import Distribution, GroupCdf, LargestGap

ALL_PAIRS = 12
"""Up to this many groups every pair's distance is exact; beyond, the largest one is."""

ROUNDING = 1e-12
"""A bound this far below the best distance on an edge may reach it, as sums are rounded."""

EVERY = slice(None)

BLOCK = 1 << 18
"""Entries of a (groups x distinct scores) table evaluated at a time."""

CELLS = 256
"""Cells whose weights are added up at a time, so that a copy of them is small."""


@dataclass(frozen=True)
class Partition:
    """A partition of the cells into groups: ``group_of_cell`` (C,), -1 where the cell is left out."""

    group_of_cell: Ints
    size: int


@dataclass(frozen=True)
class Distances:
    """Kolmogorov-Smirnov distances of ``k`` groups to all rows, (k,), and of ``m`` pairs of groups, (m,).

    ``..._at`` is the score where a distance is reached, NaN where it is known from bins only; ``..._slack`` how far the
    true distance may lie above the value, 0 where exact. ``pairs`` (m, 2) are all up to ``ALL_PAIRS`` groups. Beyond
    there is one, the farthest, and its slack holds for every pair: memory does not grow with the square of the groups.
    """

    to_overall: Floats
    to_overall_at: Floats
    to_overall_slack: Floats
    pairs: Ints
    between: Floats
    between_at: Floats
    between_slack: Floats

    @classmethod
    def zero(cls, k: int) -> Distances:
        """Return distances of 0, reached nowhere, to be filled in."""
        pairs = np.array(
            list(combinations(range(k), 2)) if k <= ALL_PAIRS else [(0, 1)], dtype=np.int64
        ).reshape(-1, 2)
        zeros, between = np.zeros(k), np.zeros(len(pairs))
        own = pairs, between, between + np.nan, between.copy()
        return cls(zeros, zeros + np.nan, zeros.copy(), *own)

    def raised(self, groups: Floats, overall: Floats, score: Floats) -> None:
        """Take in the distribution functions at scores (n,): of groups (k, n) and overall (n,)."""
        _raise(self.to_overall, self.to_overall_at, np.abs(groups - overall), score)
        if len(groups) <= ALL_PAIRS:
            first, second = self.pairs.T
            _raise(self.between, self.between_at, np.abs(groups[first] - groups[second]), score)
            return
        pair, far, at = _farthest(groups)
        if far > self.between[0]:
            self.pairs[0], self.between[0], self.between_at[0] = pair, far, score[at]

    @property
    def farthest(self) -> int:
        """The place of the farthest pair."""
        return int(self.between.argmax())


def _farthest(groups: Floats) -> tuple[tuple[int, int], float, int]:
    """Return the pair of distribution functions (k, n) that are farthest apart, how far, and where.

    They are the highest and the lowest of all at some score, so no pair is formed.
    """
    spread = groups.max(axis=0) - groups.min(axis=0)
    at = int(spread.argmax())
    pair = int(groups[:, at].argmax()), int(groups[:, at].argmin())
    g, h = sorted(pair) if spread[at] > 0 else (0, 1)  # where all are alike, any two
    return (g, h), float(spread[at]), at


def _raise(best: Floats, best_at: Floats, distances: Floats, score: Floats) -> None:
    where = distances.argmax(axis=-1)
    value = np.take_along_axis(distances, where[..., None], -1)[..., 0]
    better = value > best
    best[better] = value[better]
    best_at[better] = score[where][better]


def _weights(counts: Counts, view: Partition, labels: slice = EVERY) -> Floats:
    """Return the weight of each group in each bin, shape (k, B), without a second table of the cells."""
    cells = counts.held_weights
    out, group = np.zeros((view.size, cells.shape[-1])), view.group_of_cell
    for start in range(0, len(group), CELLS):
        part, into = cells[start : start + CELLS, labels].sum(axis=1), group[start : start + CELLS]
        if into.min(initial=0) >= 0 and np.unique(into).size == into.size:
            out[into] += part
        else:
            for own, weights in zip(into.tolist(), part, strict=True):
                if own >= 0:
                    out[own] += weights
    return out


def _weight_of_bins(counts: Counts) -> Floats:
    """Return the weight of each bin, shape (B,), without a second table of the cells."""
    return np.asarray(counts.held_weights.sum(axis=(0, 1)), dtype=np.float64)


def _cumulated(counts: Counts, view: Partition) -> tuple[Floats, Floats]:
    """Return group weights up to each bin edge, shape (k, B + 1), and their totals, shape (k,)."""
    weights = _weights(counts, view)
    edges = np.concatenate([np.zeros((view.size, 1)), np.cumsum(weights, axis=1)], axis=1)
    return edges, edges[:, -1]


def _functions(counts: Counts, view: Partition) -> tuple[Floats, Floats]:
    """Return the distribution functions on the bin edges: groups (k, B + 1) and overall (B + 1,)."""
    edges, totals = _cumulated(counts, view)
    return edges / totals[:, None], edges.sum(axis=0) / totals.sum()


def _bounds(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return (largest distance on an edge, upper bound per bin) of two functions or stacks of them."""
    return np.abs(a - b).max(axis=-1), np.maximum(a[..., 1:] - b[..., :-1], b[..., 1:] - a[..., :-1])


def _can_hold(best: Distances, groups: tuple[Floats, Floats], overall: tuple[Floats, Floats]) -> Bools:
    """Return which ranges of scores can hold a distance as large as the best that is known, shape (n,).

    Given are the functions below and up to the end of each range: of groups, (k, n) each, and overall, (n,) each.
    """
    low, high = groups
    chosen = np.zeros(low.shape[1], dtype=bool)
    if len(low) < 2:
        return chosen
    step = max(1, BLOCK // max(1, low.shape[1]))
    for start in range(0, len(low), step):
        own = slice(start, start + step)
        reach = np.maximum(high[own] - overall[0], overall[1] - low[own])
        chosen |= (reach >= best.to_overall[own, None] - ROUNDING).any(axis=0)
    if len(low) > ALL_PAIRS:
        chosen |= high.max(axis=0) - low.min(axis=0) >= best.between.max() - ROUNDING
        return chosen
    for (g, h), least in zip(best.pairs, best.between, strict=True):
        chosen |= np.maximum(high[g] - low[h], high[h] - low[g]) >= least - ROUNDING
    return chosen


def candidate_bins(counts: Counts, view: Partition) -> Bools:
    """Return the bins that can hold a supremum of the view, shape (B,)."""
    groups, overall = _functions(counts, view)
    best = Distances.zero(view.size)
    best.raised(groups, overall, counts.bins.edges)
    both = ((one[..., :-1], one[..., 1:]) for one in (groups, overall))
    return np.asarray(_can_hold(best, *both) & (_weight_of_bins(counts) > 0))


def candidate_rows(counts: Counts, view: Partition, kept: KeptRows) -> Bools:
    """Return which rows are to be known by themselves, where each stands for those above the next score below it.

    ``kept``, sorted by score, must have all rows of the candidate bins; what is returned has its shape (n,).
    """
    best, chosen = Distances.zero(view.size), np.zeros(kept.score.size, dtype=bool)
    _fill_exactly(best, counts, view, kept)
    for rows, place, _, below, upto in _at_scores(counts, view, kept):
        both = ((below[i], upto[i]) for i in range(2))
        chosen[rows] = _can_hold(best, *both)[place]
    return chosen


def distances(counts: Counts, view: Partition, kept: KeptRows | None) -> Distances:
    """Return the distances of a view: exact with the rows of its candidate bins, else from bins with slack.

    ``kept`` must be sorted by score.
    """
    out = Distances.zero(view.size)
    if kept is not None:
        _fill_exactly(out, counts, view, kept)
        return out
    groups, overall = _functions(counts, view)
    out.to_overall[:], far = _bounds(groups, overall)
    out.to_overall_slack[:] = np.maximum(far.max(axis=1) - out.to_overall, 0.0)
    if view.size <= ALL_PAIRS:
        first, second = out.pairs.T
        out.between[:], far = _bounds(groups[first], groups[second])
        out.between_slack[:] = np.maximum(far.max(axis=1, initial=0.0) - out.between, 0.0)
    else:
        out.pairs[0], out.between[0], _ = _farthest(groups)
        out.between_slack[0] = max(_farthest_bound(groups) - out.between[0], 0.0)
    return out


def _farthest_bound(groups: Floats) -> float:
    """Return what no distance of two groups is above: of one at the end of a bin, and another at its begin."""
    ends, begins = groups[:, 1:], groups[:, :-1]
    top, bottom = ends.argmax(axis=0), begins.argmin(axis=0)
    alone, bins = np.flatnonzero(top == bottom), np.arange(top.size)
    far = ends[top, bins] - begins[bottom, bins]
    if alone.size:  # the highest is the lowest too: it or its partner is the next
        next_top, next_bottom = ends[:, alone], begins[:, alone]  # copies, since picked by places
        next_top[top[alone], np.arange(alone.size)] = -np.inf
        next_bottom[bottom[alone], np.arange(alone.size)] = np.inf
        highest, lowest = ends[top[alone], alone], begins[bottom[alone], alone]
        far[alone] = np.maximum(highest - next_bottom.min(axis=0), next_top.max(axis=0) - lowest)
    return float(far.max())


Functions = tuple[Floats, Floats]
"""Distribution functions at n scores: of the groups, (k, n), and overall, (n,)."""


def _fill_exactly(out: Distances, counts: Counts, view: Partition, kept: KeptRows) -> None:
    """Evaluate the distribution functions at every distinct score of the candidate bins."""
    if view.size > ALL_PAIRS:
        _fill_by_steps(out, counts, view, kept)
        return
    for _, _, score, _, upto in _at_scores(counts, view, kept):
        out.raised(*upto, score)


def _fill_by_steps(out: Distances, counts: Counts, view: Partition, kept: KeptRows) -> None:
    """Do so for many groups: in time and memory that grow with rows and groups, and not with their product.

    Between two steps of a group its function stays and the overall one rises, so their distance is largest at an end of
    that range. The highest of all functions at a score is the largest that a step up to it has reached. The lowest is
    the smallest that a later step starts from: a group's later steps start higher, and its next one where it is now.
    """
    weights, chosen = _weights(counts, view), candidate_bins(counts, view)
    kept = kept.take(chosen[counts.bins.index(kept.score)] & (view.group_of_cell[kept.cell] >= 0))
    new = np.concatenate([[True], kept.score[1:] != kept.score[:-1]])
    score = kept.score[new]
    many = score.size
    weights[:, chosen] = (
        0.0  # whose rows are kept; the others make one step a bin, which the next score above it sees
    )
    whose, bins = np.nonzero(weights)
    group = np.concatenate([view.group_of_cell[kept.cell], whose])
    place = np.concatenate(
        [np.cumsum(new) - 1, np.searchsorted(counts.bins.index(score), bins, side="right")]
    )
    weight = np.concatenate([kept.mass, weights[whose, bins]])
    del weights
    mass = np.bincount(place, weight, many + 1)
    overall = np.cumsum(mass)[:many] / mass.sum()

    order = np.lexsort((place, group))
    group, place = group[order], place[order]
    new_group = np.concatenate([[True], group[1:] != group[:-1]])
    step = np.flatnonzero(new_group | np.concatenate([[True], place[1:] != place[:-1]]))
    mass, group, place, new_group = (
        np.add.reduceat(weight[order], step),
        group[step],
        place[step],
        new_group[step],
    )
    first = np.flatnonzero(new_group)
    # group by group, since the difference of two sums over all groups would lose digits
    upto = np.concatenate([np.cumsum(part) for part in np.split(mass, first[1:])])
    last = np.append(first[1:], group.size) - 1
    upto /= np.repeat(upto[last], last - first + 1)
    before = np.where(new_group, 0.0, np.concatenate([[0.0], upto[:-1]]))

    after = np.append(place[1:], many)
    after[last] = many
    whose, level = np.concatenate([group[first], group]), np.concatenate([np.zeros(first.size), upto])
    start, end = np.concatenate([np.zeros_like(first), place]), np.concatenate([place[first], after])
    there = np.flatnonzero(end > start)
    whose, level = np.tile(whose[there], 2), np.tile(level[there], 2)
    at = np.concatenate([start[there], end[there] - 1])
    far = np.abs(level - overall[at])
    np.maximum.at(out.to_overall, whose, far)
    reached = np.flatnonzero((far == out.to_overall[whose]) & (far > 0))
    earliest = np.full(view.size, many)
    np.minimum.at(earliest, whose[reached], at[reached])
    out.to_overall_at[:] = np.append(score, np.nan)[earliest]

    highest, lowest = np.zeros(many + 1), np.ones(many + 1)
    np.maximum.at(highest, place, upto)
    np.minimum.at(lowest, place, before)
    spread = np.maximum.accumulate(highest[:many]) - np.minimum.accumulate(lowest[::-1])[::-1][1:]
    widest = int(spread.argmax())
    if spread[widest] > 0:
        here = np.zeros(view.size)
        np.maximum.at(here, group[place <= widest], upto[place <= widest])
        out.pairs[0] = sorted((int(here.argmax()), int(here.argmin())))
        out.between[0], out.between_at[0] = spread[widest], score[widest]


def _at_scores(
    counts: Counts, view: Partition, kept: KeptRows
) -> Iterator[tuple[Ints, Ints, Floats, Functions, Functions]]:
    """Yield rows by number, the place of each among distinct scores, these scores, functions below and up to them."""
    weights, chosen = _weights(counts, view), candidate_bins(counts, view)
    totals = weights.sum(axis=1)
    own = np.flatnonzero(kept.in_bins(counts.bins, chosen) & (view.group_of_cell[kept.cell] >= 0))
    kept = kept if own.size == kept.score.size else kept.take(own)
    score = kept.score
    weights[:, chosen] = 0.0  # whose rows are kept
    before = np.cumsum(weights, axis=1, out=weights)
    running = np.zeros(view.size)
    for start, stop in _blocks_of_ties(score, max(BLOCK // max(view.size, 1), 1)):
        new = np.concatenate([[True], score[start + 1 : stop] != score[start : stop - 1]])
        place = np.cumsum(new) - 1
        many, inside = int(place[-1]) + 1, kept.take(slice(start, stop))
        group = view.group_of_cell[inside.cell]
        table = np.bincount(group * many + place, inside.mass, view.size * many)
        table = table.reshape(view.size, many)
        cumulated = np.cumsum(table, axis=1) + running[:, None]
        running = cumulated[:, -1].copy()
        at = np.flatnonzero(new) + start
        mass = cumulated + before[:, counts.bins.index(score[at])]
        below, upto = (
            (one / totals[:, None], one.sum(axis=0) / totals.sum()) for one in (mass - table, mass)
        )
        yield own[start:stop], place, score[at], below, upto


def _blocks_of_ties(score: Floats, step: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of about ``step`` sorted scores that never part equal ones."""
    start = 0
    while start < score.size:
        last = score[min(start + step, score.size) - 1]
        stop = int(np.searchsorted(score, last, side="right"))
        yield start, stop
        start = stop


# ---------------------------------------------------------------------- a few points


def score_shares(
    counts: Counts, view: Partition, names: Sequence[str], far: Distances, kept: KeptRows | None, points: int
) -> Distribution:
    """Return the distribution functions at no more than ``points`` edges near quantiles of all scores.

    ``far`` are the distances of the view; the edges around the largest are among the points. Each share is known
    exactly; at the largest distance it is of scores at or below, or below where only bins are known.
    """
    grid = counts.bins
    groups, overall = _functions(counts, view)
    filled = np.flatnonzero(np.diff(overall) > 0)
    first, last = int(filled[0]), int(filled[-1]) + 1
    levels = np.linspace(0.0, 1.0, points - 2)[1:-1]
    inner = np.searchsorted(overall, levels, side="left")
    gap, near = None, np.zeros(0, dtype=np.int64)
    if view.size > 1:
        g, h = far.pairs[far.farthest].tolist()
        score = float(far.between_at[far.farthest])
        if kept is not None and np.isfinite(score):
            near = grid.index(np.array([score]))[0] + np.arange(2)
            shares = _shares_up_to(counts, view, kept, (g, h), score)
        else:
            near = np.abs(groups[g] - groups[h]).argmax(keepdims=True)
            score = float(grid.edges[near[0]])
            shares = (float(groups[g, near[0]]), float(groups[h, near[0]]))
        gap = LargestGap(groups=(names[g], names[h]), score=score, shares=shares)
    chosen = np.unique(np.clip([first, *inner, *near, last], first, last))
    most = np.finfo(np.float64).max
    return Distribution(
        scores=tuple(np.clip(grid.edges[chosen], -most, most).tolist()),
        everybody=tuple(overall[chosen].tolist()),
        groups=tuple(
            GroupCdf(group=name, below=tuple(groups[g, chosen].tolist())) for g, name in enumerate(names)
        ),
        gap=gap,
    )


def _shares_up_to(
    counts: Counts, view: Partition, kept: KeptRows, pair: tuple[int, int], score: float
) -> tuple[float, float]:
    """Return the shares of two groups with at most this score, whose bin's rows are all kept."""
    grid = counts.bins
    at = int(grid.index(np.array([score]))[0])
    edges, totals = _cumulated(counts, view)
    kept = kept.take((grid.index(kept.score) == at) & (kept.score <= score))
    group, weight = view.group_of_cell[kept.cell], kept.mass
    g, h = ((edges[one, at] + weight[group == one].sum()) / totals[one] for one in pair)
    return float(g), float(h)


# ---------------------------------------------------------------------- areas


def areas(counts: Counts, view: Partition, kept: KeptRows | None) -> tuple[Floats, Floats]:
    """Return (AUC, slack) per group, shape (k,): exact with all rows sorted by score; NaN without both labels."""
    if kept is not None and kept.label is not None:
        return _exact_areas(view, kept), np.zeros(view.size)
    negative, positive = (_weights(counts, view, slice(label, label + 1)) for label in (0, 1))
    below = np.cumsum(negative, axis=1) - negative
    total = positive.sum(axis=1) * negative.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = (positive * (below + negative / 2)).sum(axis=1) / total
        slack = (positive * negative).sum(axis=1) / (2 * total)
    return np.where(total > 0, value, np.nan), np.where(total > 0, slack, 0.0)


def _exact_areas(view: Partition, kept: KeptRows) -> Floats:
    """Sort by group (the scores stay in order), merge ties, and count the negatives below each positive."""
    kept = kept.take(view.group_of_cell[kept.cell] >= 0)
    group = view.group_of_cell[kept.cell]
    small = group.astype(np.int16 if view.size < 30_000 else np.int64)  # few bytes: a radix sort
    order = np.argsort(small, kind="stable")
    group, kept = group[order], kept.take(order)
    score, weight = kept.score, kept.mass
    first = np.flatnonzero(np.concatenate([[True], (score[1:] != score[:-1]) | (group[1:] != group[:-1])]))
    positive = np.add.reduceat(np.where(kept.labels == 1, weight, 0.0), first)
    negative = np.add.reduceat(np.where(kept.labels == 1, 0.0, weight), first)
    owner = group[first]
    positives, negatives = (np.bincount(owner, part, view.size) for part in (positive, negative))
    below = np.cumsum(negative) - negative
    below -= np.concatenate([[0.0], np.cumsum(negatives)])[owner]
    area = np.bincount(owner, positive * (below + negative / 2), view.size)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(positives * negatives > 0, area / (positives * negatives), np.nan))


# ---------------------------------------------------------------------- pooled median


def median_bins(counts: Counts) -> Bools:
    """Return the bins that hold the middle score or scores of all rows, shape (B,)."""
    cumulated = np.cumsum(_weight_of_bins(counts))
    chosen = np.zeros(cumulated.size, dtype=bool)
    chosen[_middle(cumulated, cumulated[-1])] = True
    return chosen


def scoring_counts(counts: Counts, kept: KeptRows) -> tuple[float, Floats]:
    """Return the pooled median and, per cell, sums of w and w^2 of rows above and not above it.

    The second result has shape (C, 2, 2): (above, not above) x (w, w^2).
    """
    chosen = median_bins(counts)
    kept = kept.take(kept.in_bins(counts.bins, chosen))
    weight, square = kept.mass, kept.square_weight
    if square is None:
        square = weight * weight if counts.weighted else weight
    first, last = np.flatnonzero(chosen)[[0, -1]]
    of_bins = _weight_of_bins(counts)
    median = _median(kept.score, weight, float(of_bins[:first].sum()), float(of_bins.sum()))
    above, cells = kept.score > median, len(counts.cells)
    out = np.zeros((cells, 2, 2))
    for p, table, power in ((0, counts.held_weights, weight), (1, counts.held_square_weights, square)):
        beyond = np.bincount(kept.cell[above], power[above], cells)
        out[:, 0, p] = table[:, :, last + 1 :].sum(axis=(1, 2)) + beyond
        out[:, 1, p] = table.sum(axis=(1, 2)) - out[:, 0, p]
    return median, np.maximum(out, 0.0)


def _median(score: Floats, weight: Floats, below: float, total: float) -> float:
    """Return the middle score given the weight below the candidates."""
    order = np.argsort(score, kind="stable")
    low, high = score[order][_middle(below + np.cumsum(weight[order]), total)]
    return float(low + (high - low) / 2)


def _middle(cumulated: Floats, total: float) -> Ints:
    """Return the two places, or twice the one, where cumulated weights reach half the total."""
    halves = total / 2 + ROUNDING * total * np.array([-1, 1])
    return np.minimum(np.searchsorted(cumulated, halves), cumulated.size - 1)
