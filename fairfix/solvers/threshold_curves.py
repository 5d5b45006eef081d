"""The thresholds of one cell: their values, what they add to means, and mixtures of them.

Terms are those of :mod:`fairfix.solvers.bands`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fairfix.solvers.arrays import Floats, Ints, run_starts
from fairfix.solvers.bands import Bands

TIE = 5e-10
"""Largest value that is given away where several rules are nearly the best."""

NOTHING = 1e-11
"""Weight of a threshold in a mixture that is rounding."""

PIVOTS = 1000
"""Changes of a basis at most; some ten in practice."""

SPARE = 1e-10
"""Least saving of a better mixture, as a mean square of rates."""

Mixture = dict[int, float]
"""Threshold of a cell -> its part in the rule; parts of sum 1."""


@dataclass(frozen=True, eq=False)
class ThresholdCurve:
    """The thresholds of a cell: the value of its best points, and what they add to its rows."""

    points: Ints
    """Points of the cell by falling score, shape (k,)."""
    ends: Ints
    """Number of points above each threshold, which no tie is split by, shape (s + 1,), from 0 to k."""
    rows: Ints
    """Rows that points of the cell are in, shape (l,)."""
    value: Floats
    """``sum w f`` of the points above each threshold, shape (s + 1,)."""
    taken: Floats
    """Weight of the points above each threshold, shape (s + 1,)."""
    adds: Floats
    """Sums of the points above each threshold in the means of the rows, shape (l, s + 1)."""

    @classmethod
    def of(cls, f: Floats, bands: Bands, columns: Any, points: Ints) -> ThresholdCurve:
        """Return the thresholds of a cell.

        ``f``: scores, shape (n,). ``columns``: ``z`` by columns. ``points``: numbers of the points, all of the same
        rows.
        """
        order = points[np.argsort(-f[points], kind="stable")]
        falls, w = f[order], bands.weights[order]
        starts = run_starts(falls)
        begin = columns.indptr[order]
        rows = columns.indices[begin[0] : columns.indptr[order[0] + 1]]
        if (columns.indptr[order + 1] - begin != rows.size).any():
            raise ValueError("points of a cell must be in the same rows")
        entries = begin + np.arange(rows.size)[:, None]
        if (columns.indices[entries] != rows[:, None]).any():
            raise ValueError("points of a cell must be in the same rows")
        steps = np.add.reduceat(columns.data[entries] * (w / bands.mass[rows, None]), starts, axis=1)
        weight, worth = np.add.reduceat(w, starts), np.add.reduceat(w * falls, starts)
        ends = np.append(starts, order.size)
        return cls(order, ends, rows.astype(np.int64), _summed(worth), _summed(weight), _summed(steps))

    @cached_property
    def bent(self) -> Floats:
        """The value less a little that grows with the rate: of equal rules, that of the lowest rates is taken."""
        return np.asarray(self.value - TIE * self.taken**2 / self.taken[-1])

    @cached_property
    def pair(self) -> tuple[Floats, Floats, tuple[int, int]]:
        """Sum and difference of the two rows that differ most, shape (s + 1,) each, and which rows these are.

        Rows are scaled so that the sum ends at 2 and the difference at 0; no difference lies further below than above.
        """
        scaled: Floats = self.adds / self.adds[:, -1:]
        apart = scaled - scaled[0]
        other = int(np.argmax(np.abs(apart).max(axis=1)))
        rows = (0, other) if -apart[other].min() >= apart[other].max() else (other, 0)
        return scaled[0] + scaled[other], np.asarray(scaled[rows[0]] - scaled[rows[1]]), rows


def _summed(steps: Floats) -> Floats:
    """Return sums of the steps before each threshold, shape (..., s + 1)."""
    out = np.zeros((*steps.shape[:-1], steps.shape[-1] + 1))
    np.cumsum(steps, axis=-1, out=out[..., 1:])
    return out


def mean_of(numbers: Floats, own: Mixture) -> Floats:
    """Return the mean of a mixture, shape (...), of numbers of each threshold, shape (..., s + 1)."""
    return np.asarray(numbers[..., list(own)] @ np.array(list(own.values())))


def _between(line: Floats, place: float) -> Mixture:
    """Return the two neighbours whose mixture is at a place of a line that does not fall, shape (s + 1,)."""
    at = int(np.clip(np.searchsorted(line, place, "right"), 1, line.size - 1))
    span = line[at] - line[at - 1]
    part = float(np.clip((place - line[at - 1]) / span, 0.0, 1.0)) if span > 0 else 0.0
    return {k: share for k, share in ((at - 1, 1.0 - part), (at, part)) if share > NOTHING}


def nearest(curve: ThresholdCurve, means: Floats) -> Mixture | None:
    """Return the mixture with these means whose thresholds are nearest: the least mean square of the rate taken.

    Where a cell gives up more than one threshold can, many mixtures have its means, and this one leaves the fewest
    points to chance. It is found by the simplex method, from a triangle of the first threshold and two neighbours.
    None where the means depend on more than two numbers, or points add nothing to one.
    """
    if curve.adds[:, -1].min() <= 0:
        return None
    sums, above, (one, other) = curve.pair
    scaled = means / curve.adds[:, -1]
    at, height = float(scaled[one] + scaled[other]), float(scaled[one] - scaled[other])
    if float(np.interp(at, sums, above)) - height <= NOTHING:
        mixed = _between(sums, at)
    else:
        columns, wanted = np.stack([sums, above, np.ones(sums.size)]), np.array([at, height, 1.0])
        square = (curve.taken / curve.taken[-1]) ** 2
        turn = max(int(np.argmax((above * at <= height * sums)[1:])) + 1, 2)
        basis = np.array([0, turn - 1, turn])
        for _ in range(PIVOTS):
            inverse = np.linalg.inv(columns[:, basis])
            spare = square - (square[basis] @ inverse) @ columns
            enters = int(np.argmin(spare))
            if spare[enters] >= -SPARE:
                break
            rooms = zip((inverse @ wanted).tolist(), (inverse @ columns[:, enters]).tolist(), strict=True)
            room = [part / falls if falls > NOTHING else np.inf for part, falls in rooms]
            basis[room.index(min(room))] = enters
        parts = np.linalg.solve(columns[:, basis], wanted)  # thin triangles: the inverse would lose the means
        parts = np.where(parts > NOTHING, parts, 0.0) / parts.sum(where=parts > NOTHING)
        mixed = {int(k): float(part) for k, part in zip(basis, parts, strict=True) if part}
    return mixed if np.abs(mean_of(curve.adds, mixed) - means).max() <= NOTHING else None
