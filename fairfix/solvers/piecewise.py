r"""Functions of one number made of straight pieces, with jumps: the rules that thresholds, ramps and steps make.

A function is given by increasing knots ``x_1 < ... < x_m`` and, at each, the limit from the left, the value and
the limit from the right:

.. math::
    g(x) = \begin{cases}
    \text{left}_1 & x < x_1 \\
    \text{at}_j & x = x_j \\
    \text{right}_j + (\text{left}_{j+1} - \text{right}_j) \frac{x - x_j}{x_{j+1} - x_j} & x_j < x < x_{j+1} \\
    \text{right}_m & x > x_m .
    \end{cases}
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fairfix.solvers.arrays import Floats, locked, run_starts


@dataclass(frozen=True, eq=False)
class Piecewise:
    """A piecewise linear function with values in [0, 1]."""

    knots: Floats
    """Increasing, shape (m,), m >= 1."""
    left: Floats
    at: Floats
    right: Floats
    """``left``, ``at`` and ``right``: limit from the left, value, limit from the right at the knots, shape (m,)
    each.
    """

    @classmethod
    def line(cls, slope: float, intercept: float) -> Piecewise:
        """Return ``clip(slope x + intercept, 0, 1)``."""
        if slope == 0.0:
            level = float(np.clip(intercept, 0.0, 1.0))
            return _made([0.0], [level], [level], [level])
        ends = np.array([-intercept / slope, (1.0 - intercept) / slope])
        if not np.isfinite(ends).all() or ends[0] == ends[1]:  # steeper or flatter than floats can tell
            return cls.line(0.0, intercept)
        levels = np.array([0.0, 1.0]) if slope > 0 else np.array([1.0, 0.0])
        return _made(np.sort(ends), levels, levels, levels)

    @classmethod
    def steps(cls, edges: npt.ArrayLike, levels: npt.ArrayLike) -> Piecewise:
        """Return the function that is ``levels[j]`` from ``edges[j]`` on, and ``levels[0]`` below."""
        level = np.asarray(levels, dtype=np.float64)
        before = np.concatenate([level[:1], level[:-1]])
        keep = np.concatenate([[True], level[1:] != level[:-1]])
        return _made(np.asarray(edges, dtype=np.float64)[keep], before[keep], level[keep], level[keep])

    @classmethod
    def separating(cls, x: npt.ArrayLike, share: npt.ArrayLike) -> Piecewise:
        """Return the stairs that give points their shares: 0 below all of them, 1 above.

        A share between 0 and 1 is left right beyond the points that have it, if 0 or 1 follows. Other jumps are midway
        between the last point of the one share and the first of the other.

        ``x``, ``share``: shape (n,), in any order; shares do not decrease with ``x``.
        """
        order = np.argsort(x, kind="stable")
        points, q = np.asarray(x, dtype=np.float64)[order], np.asarray(share, dtype=np.float64)[order]
        starts = run_starts(q)
        levels, first = q[starts].tolist(), points[starts].tolist()
        last = points[np.append(starts[1:], q.size) - 1].tolist()
        jumps = [(first[0], 0.0, levels[0], levels[0])] if levels[0] > 0 else []
        for low, high, below, above in zip(levels, levels[1:], last, first[1:], strict=False):
            if low == 0 and high < 1:
                jumps.append((above, low, high, high))
            elif low > 0 and high == 1:
                jumps.append((below, low, low, high))
            else:
                middle = below + (above - below) / 2
                jumps.append((middle if middle > below else above, low, high, high))
        if levels[-1] < 1:
            jumps.append((last[-1], levels[-1], levels[-1], 1.0))
        joined = jumps[:1]
        for jump in jumps[1:]:
            if jump[0] == joined[-1][0]:  # a share of a single point: what is right of it is what follows
                joined[-1] = (*joined[-1][:3], jump[3])
            else:
                joined.append(jump)
        return _made(*np.array(joined).T)

    @cached_property
    def variation(self) -> float:
        """Total variation: the lengths of all ways up and down together; 1 at most where the function only rises."""
        jumps = np.abs(self.at - self.left) + np.abs(self.right - self.at)
        return float(jumps.sum() + np.abs(self.left[1:] - self.right[:-1]).sum())

    def __call__(self, x: npt.ArrayLike) -> Floats:
        """Return the function at ``x``, same shape."""
        x = np.asarray(x, dtype=np.float64)
        at = np.minimum(np.searchsorted(self.knots, x), self.knots.size - 1)
        return np.where(self.knots[at] == x, self.at[at], np.interp(x, *self._corners))

    @cached_property
    def _corners(self) -> tuple[Floats, Floats]:
        """Where straight pieces begin and end, and the limits there, shape (2m,) each."""
        return np.repeat(self.knots, 2), np.stack([self.left, self.right], axis=1).ravel()

    @property
    def sharp(self) -> bool:
        """Whether all values are 0 or 1."""
        ends = np.concatenate([self.left, self.at, self.right])
        flat = self.right[:-1] == self.left[1:]
        return bool(((ends == 0) | (ends == 1)).all() and flat.all())


def _made(knots: npt.ArrayLike, *parts: npt.ArrayLike) -> Piecewise:
    return Piecewise(*(locked(np.array(part, dtype=np.float64)) for part in (knots, *parts)))
