r"""The ramp from a stream: scores are counted in fine bins, for data larger than memory.

The problem is that of :mod:`fairfix.solvers.ramp`. A first pass adds up weights and scores by cell and bin, and each
bin becomes one point of its weight and mean score. A ramp is linear in the score except at its two ends, so this is
exact except for the bins that hold an end: with ``n`` bins over a density of 1 the error of a mean is about ``1 / (n^2
gamma)``. Scores of few distinct values have bins of their own. A second pass measures the means of all points at the
solution. Trials are in docs/methods/ramp.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from fairfix.solvers.arrays import Floats, Ints, finite_scores, positive_weights
from fairfix.solvers.ramp import Cell, ramp, solve

BINS = 1 << 14
"""Bins of the scores from -1 to 1; with their sums, a quarter of a megabyte per cell."""

PROMISED_RATE = 1e-3
"""Distance from the band up to which the solution counts as converged."""

PASSES = 2
"""Passes over the stream."""


@dataclass(frozen=True, eq=False)
class StreamBatch:
    """Points of the stream: scores from -1 to 1, cell of each (any whole numbers from 0) and weights, shape (n,)."""

    scores: Floats
    cells: Ints
    weights: Floats


@dataclass(frozen=True, eq=False)
class StreamSolution:
    """Offsets learned from a stream, with their means over all points."""

    offsets: Floats
    """Multiplier per cell number, for scores without the lift; NaN for numbers without points."""
    rho: float
    """Centre of the band."""
    rates: Floats
    """Mean share per cell at these offsets, over all points."""
    objective: float
    """At these offsets, divided by the total weight."""
    off: float
    """Largest distance of a mean from the band."""
    points: int
    """Number of points in one pass."""

    @property
    def converged(self) -> bool:
        """Whether the means are within 1e-3 of the band."""
        return self.off <= PROMISED_RATE


def learn(
    batches: Callable[[], Iterable[StreamBatch]],
    gamma: float,
    slack: float,
    rho: float | None = None,
    *,
    mean_share: bool = False,
    lift: float = 0.0,
) -> StreamSolution:
    """Return offsets learned from a stream, in two passes.

    ``batches``: starts the stream again at each call, with the same points and numbers of cells. ``gamma``: width of
    the ramp, above 0. ``slack``: largest allowed difference between the means of two cells. ``rho``: centre of the
    band, in [0, 1]; None for the best. ``mean_share``: take the mean of ``(1 + score)/2`` over all points for
    ``rho``. ``lift``: added to every score, but not to that mean.
    """
    weight, total, points = _counted(batches())
    mass = weight.sum(1)
    there = np.flatnonzero(mass)
    if mean_share:
        rho = float(1 + total.sum() / mass.sum()) / 2
    cells = []
    for own, sums in zip(weight[there], total[there], strict=True):
        seen = own > 0
        cells.append(Cell.of(sums[seen] / own[seen] + lift, own[seen]))
    best = solve(cells, gamma, slack, rho)
    offsets, taken, value = np.full(mass.size, np.nan), np.zeros(mass.size), 0.0
    offsets[there] = best.offsets - lift
    for batch in batches():
        q = ramp(batch.scores, offsets[batch.cells], gamma)
        value += float((batch.weights * (gamma / 2 * q - batch.scores - lift)) @ q)
        taken += np.bincount(batch.cells, batch.weights * q, mass.size)
    rates = np.full(mass.size, np.nan)
    rates[there] = taken[there] / mass[there]
    centre = best.rho
    if rho is None:
        centre = float(np.nanmax(rates) + np.nanmin(rates)) / 2
    off = float(max(np.nanmax(np.abs(rates - centre)) - slack / 2, 0.0))
    return StreamSolution(offsets, best.rho, rates, value / float(mass.sum()), off, points)


def _counted(batches: Iterable[StreamBatch]) -> tuple[Floats, Floats, int]:
    """Return sums of weights and of weighted scores by cell and bin, shape (K, BINS) each, and the number of points."""
    sums, points = np.zeros((2, 0)), 0
    for batch in batches:
        if not batch.scores.size:
            continue
        scores = finite_scores(batch.scores, batch.cells.shape)
        more = (int(batch.cells.max()) + 1) * BINS - sums.shape[1]
        sums = np.pad(sums, ((0, 0), (0, max(more, 0))))
        bin_ = np.clip((scores + 1.0) * (BINS / 2), 0, BINS - 1).astype(np.int64)
        place, w = batch.cells * BINS + bin_, positive_weights(batch.weights, scores.shape)
        np.add.at(sums[0], place, w)
        np.add.at(sums[1], place, w * scores)
        points += scores.size
    if not points:
        raise ValueError("the stream has no points")
    weight, total = sums.reshape(2, -1, BINS)
    return weight, total, points
