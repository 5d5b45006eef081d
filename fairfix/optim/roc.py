r"""Points of common ROC: the best rules whose two rates are nearly the same in every cell.

Point ``i`` of cell ``k`` has a probability ``eta_i`` of label 1, a weight ``w_i`` and gets a share ``q_i``. The two
rates of a cell and the objective are

.. math::
    y_k = \frac{\sum_i w_i \eta_i q_i}{P_k},\quad x_k = \frac{\sum_i w_i (1 - \eta_i) q_i}{N_k},\qquad
    \max \sum_k P_k y_k - N_k x_k, \quad
    P_k = \sum_i w_i \eta_i,\; N_k = \sum_i w_i (1 - \eta_i),

subject to ``|x_k - x_l| <= slack`` and ``|y_k - y_l| <= slack`` for any two cells. If ``eta`` is the isotonic
regression of the labels, ``y`` and ``x`` are the true and false positive rates over the rows. Without slack all cells
stand on the best vertex or crossing of the lower envelope of their curves; with it, the points are a linear program
with the faces of the curves as constraints, which starts from some and adds those that a solution violates.

**The rule at a point.** The rule on the curve at the same ``x``, mixed with the constant rule ``x``:
``q = beta q_roc + (1 - beta) x`` has rates ``(x, beta roc(x) + (1 - beta) x)``.

References
----------
M. Hardt, E. Price and N. Srebro, *Equality of opportunity in supervised learning* (2016), section 3.2, for the
geometry. The reduction to vertices and crossings is derived in docs/methods/ramp.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog

from fairfix.optim.arrays import Floats, check_band, falling, locked
from fairfix.optim.step import Step

FACES = 48
"""Faces of each curve that the linear program starts with."""

ROUNDS = 60
"""Linear programs at most."""

TOLERANCE = 1e-12
"""Distance below which rates are one: ten thousand roundings."""

SAME_VALUE = 1e-6
"""Distance below which values are one: linear programs keep their constraints to 1e-7 each."""


@dataclass(frozen=True, eq=False)
class Roc:
    """The concave curve of a cell; made by :meth:`Roc.of`."""

    eta: Floats
    """Distinct probabilities, decreasing, shape (n,)."""
    x: Floats
    y: Floats
    """``x`` and ``y``: vertices, shape (n + 1,) or, where the first points have ``eta = 1``, (n,); ``x`` does not
    decrease.
    """
    positives: float
    negatives: float
    """``positives`` and ``negatives``: ``P`` and ``N``."""

    @classmethod
    def of(cls, eta: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> Roc:
        """Sort the points of a cell: probabilities, not all 0 or all 1, and positive weights, shape (n,) each."""
        p = np.asarray(eta, dtype=np.float64)
        if p.ndim != 1 or not p.size or not (p.min() >= 0 and p.max() <= 1):
            raise ValueError("eta must be a row of probabilities")
        p, w = falling(p, weights)
        up, right = w * p, w * (1.0 - p)
        positives, negatives = float(up.sum()), float(right.sum())
        if not (positives > 0 and negatives > 0):
            raise ValueError("a curve needs points of both labels")
        x = np.minimum(np.concatenate([[0.0], np.cumsum(right)]) / negatives, 1.0)
        y = np.minimum(np.concatenate([[0.0], np.cumsum(up)]) / positives, 1.0)
        x[-1] = y[-1] = 1.0
        start = 1 if p[0] == 1.0 else 0  # a vertical face: its top is all that counts
        return cls(locked(p), locked(x)[start:], locked(y)[start:], positives, negatives)

    def height(self, x: npt.ArrayLike) -> Floats:
        """Return the curve at ``x``."""
        return np.interp(np.asarray(x, dtype=np.float64), self.x, self.y)

    def rule(self, x: float, y: float) -> Mixture:
        """Return the rule whose rates are (x, y), for a point between the curve and the diagonal."""
        top = float(self.height(x))
        near = top - x <= TOLERANCE or top - y <= TOLERANCE
        mix = 1.0 if near else float(np.clip((y - x) / (top - x), 0, 1))
        vertex = int(np.searchsorted(self.x, x - TOLERANCE, side="left"))
        at = vertex + self.eta.size + 1 - self.x.size  # points before it
        if abs(self.x[vertex] - x) <= TOLERANCE:
            step = Step.after(self.eta, at)
        else:
            share = (x - self.x[vertex - 1]) / (self.x[vertex] - self.x[vertex - 1])
            step = Step(float(self.eta[at - 1]), float(share))
        return Mixture(step, mix, x)


@dataclass(frozen=True)
class Mixture:
    """Shares by probability: ``mix * step + (1 - mix) * constant``."""

    step: Step
    mix: float
    constant: float

    def shares(self, eta: npt.ArrayLike) -> Floats:
        """Return the shares of points."""
        return self.mix * self.step.shares(eta) + (1.0 - self.mix) * self.constant


@dataclass(frozen=True, eq=False)
class RocSolution:
    """The optimum: a point per cell."""

    x: Floats
    y: Floats
    """``x`` and ``y``: rates of each cell, shape (K,)."""
    value: float
    """The objective, divided by ``sum_k P_k + N_k``."""
    bound: float
    """Bound on all points within the slack: that of the last linear program, whose faces lie above the curves; the
    value itself where no program was needed.
    """
    rounds: int
    """Linear programs that were solved; 0 without slack."""

    @property
    def converged(self) -> bool:
        """Whether value and bound are one, to the tolerance of linear programs."""
        return self.bound - self.value <= SAME_VALUE


def solve_roc(cells: Sequence[Roc], slack: float, lift: float = 0.0) -> RocSolution:
    """Return the best points within the slack of one another.

    ``cells``: at least one. ``slack``: largest allowed difference of each rate. ``lift``: added to the worth ``2 eta
    - 1`` of every point, in [-1, 1]: the objective becomes ``sum_k (1 + lift) P_k y_k - (1 - lift) N_k x_k``.
    """
    check_band(cells, slack)
    if not -1 <= lift <= 1:
        raise ValueError(f"lift must be in [-1, 1], got {lift!r}")
    up = (1 + lift) * np.array([cell.positives for cell in cells])
    right = (1 - lift) * np.array([cell.negatives for cell in cells])
    total = sum(cell.positives + cell.negatives for cell in cells)
    free = np.array([_best_point(cell, u, r) for cell, u, r in zip(cells, up, right, strict=True)])
    rounds, least = 0, None
    if np.ptp(free, axis=0).max() <= slack:
        x, y = free.T
    elif slack == 0:
        common = _common_point(cells, float(up.sum()), float(right.sum()))
        x, y = (np.full(len(cells), part) for part in common)
    else:
        x, y, least, rounds = _program(cells, min(slack, 1.0), up, right)
    value = float((up * y - right * x).sum() / total)
    return RocSolution(x, y, value, value if least is None else max(least / total, value), rounds)


def _best_point(cell: Roc, up: float, right: float) -> tuple[float, float]:
    """Return the vertex of the highest objective of a cell; the first of equals."""
    at = int(np.argmax(up * cell.y - right * cell.x))
    return float(cell.x[at]), float(cell.y[at])


def _common_point(cells: Sequence[Roc], up: float, right: float) -> tuple[float, float]:
    """Return the best point under all curves."""
    places = np.unique(np.concatenate([c.x for c in cells]))
    heights = np.stack([c.height(places) for c in cells])
    value = up * heights.min(axis=0) - right * places
    best = int(np.argmax(value))
    x, most = float(places[best]), float(value[best])
    for i in (best - 1, best):
        if not 0 <= i < places.size - 1:
            continue
        width = places[i + 1] - places[i]
        base, slope = heights[:, i], (heights[:, i + 1] - heights[:, i]) / width
        with np.errstate(divide="ignore", invalid="ignore"):
            meet = ((base[:, None] - base[None, :]) / (slope[None, :] - slope[:, None])).ravel()
        meet = meet[(meet > 0) & (meet < width)]
        if meet.size:
            low = (base[:, None] + slope[:, None] * meet[None, :]).min(axis=0)
            crossing = up * low - right * (places[i] + meet)
            j = int(np.argmax(crossing))
            if crossing[j] > most:
                x, most = float(places[i] + meet[j]), float(crossing[j])
    return x, min(float(c.height(x)) for c in cells)


def _program(
    cells: Sequence[Roc], slack: float, up: Floats, right: Floats
) -> tuple[Floats, Floats, float, int]:
    """Return the points by linear programs with cutting planes, and a bound on the objective.

    Variables: x_1..x_K, y_1..y_K, and the lower corner (a, b) of the band.
    """
    size = len(cells)
    cost = np.concatenate([right, -up, [0.0, 0.0]]) / (up + right).sum()
    ends = [cell.x.size - 1 for cell in cells]
    faces = [set(np.linspace(0, end - 1, min(FACES, end)).astype(int).tolist()) for end in ends]
    fixed, limit = _band(size, slack)
    done, x, y = 0, np.zeros(size), np.zeros(size)
    while done < ROUNDS:
        done += 1
        rows, bounds = _faces(cells, faces)
        answer = linprog(cost, np.vstack([fixed, rows]), np.concatenate([limit, bounds]), bounds=(0.0, 1.0))
        assert answer.x is not None  # the constant rules are feasible, and rates are bounded
        x, y = answer.x[:size], answer.x[size : 2 * size]
        before = sum(map(len, faces))
        for k, cell in enumerate(cells):
            if y[k] > cell.height(x[k]) + TOLERANCE:  # the faces at and beside the point
                at = int(np.searchsorted(cell.x, x[k], side="right")) - 1
                faces[k] |= {i for i in (at - 1, at, at + 1) if 0 <= i < ends[k]}
        if sum(map(len, faces)) == before:
            break
    heights = np.array([min(b, float(c.height(a))) for a, b, c in zip(x, y, cells, strict=True)])
    return x, heights, -float(cost @ answer.x) * float((up + right).sum()), done


def _band(size: int, slack: float) -> tuple[Floats, Floats]:
    """Return the constraints that hold all points in one band, above the diagonal."""
    eye, zero, one, none = np.eye(size), np.zeros((size, size)), np.ones((size, 1)), np.zeros((size, 1))
    rows = [
        [eye, zero, -one, none],
        [-eye, zero, one, none],
        [zero, eye, none, -one],
        [zero, -eye, none, one],
    ]
    return np.block([*rows, [eye, -eye, none, none]]), np.repeat([slack, 0.0, slack, 0.0, 0.0], size)


def _faces(cells: Sequence[Roc], faces: Sequence[set[int]]) -> tuple[Floats, Floats]:
    """Return the constraints ``width * y <= rise * (x - x_i) + width * y_i`` of the chosen faces."""
    size, rows, bounds = len(cells), [], []
    for k, (cell, chosen) in enumerate(zip(cells, faces, strict=True)):
        i = np.array(sorted(chosen))
        width, rise = cell.x[i + 1] - cell.x[i], cell.y[i + 1] - cell.y[i]
        scale = np.maximum(width, rise)
        row = np.zeros((i.size, 2 * size + 2))
        row[:, k], row[:, size + k] = -rise / scale, width / scale
        rows.append(row)
        bounds.append((width * cell.y[i] - rise * cell.x[i]) / scale)
    return np.vstack(rows), np.concatenate(bounds)
