"""Thresholds of many points: only the points near the thresholds are looked at one by one.

A small sample says where to look:

1. Solve a sample, points of each cell at equal steps.
2. Take room on both sides of each cell's rate in the sample. All points above this window become one point of their
   weight and mean score, and all points below it another one.
3. Solve what is left. A threshold between two points of the window is a threshold of all points, with the same value
   and the same means.
4. If a threshold lies at an end of its window, the sample was misleading, and all points are solved.

What a point adds to a mean per unit of its weight must not depend on its score. Then the value of a threshold, less
what its means cost, is concave in the rate. So prices that are right inside the windows prove the optimum of all
points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from fairfix.data.counts import Bools, Floats
from fairfix.methods.cells import Points

SAMPLE = 1 << 16
"""Points of each cell that are solved first."""

ROOM = 0.01
"""Rate on either side of the sample's: five standard errors of its rate."""

MANY = 4 * SAMPLE
"""Fewer points than this in the largest cell are solved at once."""

WIDE = 0.6
"""If more than this share of the points is near, solving all is as fast."""

Fit = TypeVar("Fit")


class _Window(NamedTuple):
    """Points of a cell inside a window of scores, with one point for all above it and one for all below it."""

    points: Points
    above: int
    """1 where there is a point for those above, the first one; else 0."""
    below: int
    """1 where there is a point for those below, the last one; else 0."""

    def holds(self, shares: Floats) -> bool:
        """Return whether the threshold of these shares, (n,), lies between two points inside the window."""
        inside = shares[self.above : shares.size - self.below]
        return bool(
            (not self.above or (shares[0] == 1.0 and inside.any()))
            and (not self.below or (shares[-1] == 0.0 and (inside < 1.0).any()))
        )


def near_thresholds(
    points: Sequence[Points], solve: Callable[[Sequence[Points]], tuple[Fit, list[Floats]]]
) -> Fit | None:
    """Return the fit of all points from those near the thresholds; None where there are few, or the sample misled.

    ``points``: of each cell, not recalibrated. ``solve``: returns the fit of points, and the share of each by cell.
    """
    if max(p.score.size for p in points) < MANY:
        return None
    samples = [_sample(p) for p in points]
    windows = []
    for p, sample, shares in zip(points, samples, solve(samples)[1], strict=True):
        window = _window(p, *_ends(sample, shares)) if sample.score.size < p.score.size else _Window(p, 0, 0)
        if window is None:
            return None
        windows.append(window)
    fit, near = solve([one.points for one in windows])
    return fit if all(one.holds(own) for one, own in zip(windows, near, strict=True)) else None


def _sample(p: Points) -> Points:
    """Return points of a cell at equal steps, with the cell's weight."""
    step = max(p.score.size // SAMPLE, 1)
    score = p.score[::step]
    heavy = np.ones(score.size) if p.weight is None else p.weight[::step]
    return Points(score, heavy * (p.mass / heavy.sum()), score)


def _ends(sample: Points, shares: Floats) -> tuple[float, float]:
    """Return the least and the greatest score of a window around the threshold of a sample; infinite without an end."""
    order = np.argsort(-sample.score, kind="stable")
    weight = sample.weights
    reached = np.cumsum(weight[order]) / weight.sum()
    rate = float(weight @ shares / weight.sum())
    low, high = (
        float(sample.score[order[min(int(np.searchsorted(reached, one)), order.size - 1)]])
        for one in (rate + ROOM, rate - ROOM)
    )
    return low if rate + ROOM < 1 else -np.inf, high if rate > ROOM else np.inf


def _window(p: Points, low: float, high: float) -> _Window | None:
    """Return the points of a cell in [low, high]; None where these are most of them."""
    over, under = p.score > high, p.score < low
    inside = ~(over | under)
    if np.count_nonzero(inside) > WIDE * p.score.size:
        return None
    above, below = (_merged(p, mask) for mask in (over, under))
    score = np.concatenate([above[0], p.score[inside], below[0]])
    own = np.ones(np.count_nonzero(inside)) if p.weight is None else p.weight[inside]
    weight = np.concatenate([above[1], own, below[1]])
    return _Window(Points(score, weight, score), above[0].size, below[0].size)


def _merged(p: Points, mask: Bools) -> tuple[Floats, Floats]:
    """Return mean score and weight of some points, as arrays of one; empty without such points."""
    many = np.count_nonzero(mask)
    if not many:
        return np.zeros(0), np.zeros(0)
    if p.weight is None:
        return np.array([p.score.sum(where=mask) / many]), np.array([float(many)])
    heavy = np.where(mask, p.weight, 0.0)
    mass = float(heavy.sum())
    return np.array([float(heavy @ p.score) / mass]), np.array([mass])
