r"""Expected loss of ``y - u`` where a score is known: by labels of rows of about the same score.

Scores are cut into bands. In a band ``b`` the residuals ``y - s``, shifted by a number ``c_b``, are taken for what may
be added to any score ``s`` of the band, so that

.. math::
    \bar l(s, u) = \frac{1}{W_b} \sum_{i \in b} w_i\, l(s + r_i, u), \qquad r_i = y_i - s_i - c_b ,

a function of ``u - s`` alone. ``c_b`` makes it least at ``u = s``: the score is taken for the quantile, or whatever
number it is that the loss is least at, as a score is taken for the mean by losses of the mean. How far the labels are
from bearing that out is measured.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairfix.solvers.arrays import Bools, Floats, Ints
from fairfix.solvers.losses import name_of, number_of, row_loss
from fairfix.solvers.newton import falling_root

BANDS = 32
"""Most bands."""

ROWS = 200
"""Least rows of a band: their quantile of level 0.9 is mostly that of a level from 0.86 to 0.94."""


@dataclass(frozen=True, eq=False)
class Residuals:
    """Residuals of one band, of least expected loss at 0."""

    loss: str
    places: Floats
    """Increasing, shape (m,)."""
    mass: Floats
    first: Floats
    second: Floats
    """``mass``, ``first`` and ``second``: sums of shares, and of them times residuals and their squares, over all
    residuals before each, shape (m + 1,); the whole mass is 1."""

    @classmethod
    def of(cls, loss: str, residual: Floats, share: Floats) -> tuple[Residuals, float]:
        """Return the residuals of rows, shifted, and the shift."""
        order = np.argsort(residual, kind="stable")
        places, part = residual[order], share[order] / share.sum()
        plain = cls._made(loss, places, part)
        shift = plain.middle
        return cls._made(loss, places - shift, part), shift

    @classmethod
    def _made(cls, loss: str, places: Floats, part: Floats) -> Residuals:
        sums = [np.append(0.0, np.cumsum(part * places**power)) for power in (0, 1, 2)]
        sums[0][-1] = 1.0
        return cls(loss, places, *sums)

    @property
    def middle(self) -> float:
        """Where the expected loss is least; the least such number but for rounding, if there are several."""
        if name_of(self.loss) == "huber":
            low, high = float(self.places[0]), float(self.places[-1])
            if low == high:
                return low
            return falling_root(lambda d: (-float(self.slope(np.full(1, d))[0]), 0.0), low, high)
        level, _ = self._pinball
        at = int(np.searchsorted(self.mass[1:], level - 1e-12))
        return float(self.places[min(at, self.places.size - 1)])

    @property
    def _pinball(self) -> tuple[float, float]:
        """The level of the pinball loss that this is a multiple of."""
        return (0.5, 2.0) if self.loss == "absolute" else (number_of(self.loss), 1.0)

    def cost(self, d: Floats) -> Floats:
        """Return the loss that is expected of ``u - s = d``, same shape."""
        if name_of(self.loss) == "huber":
            delta = number_of(self.loss)
            below, upto = self._within(d, delta)
            near = (self.second[upto] - self.second[below]) / 2.0 - d * (self.first[upto] - self.first[below])
            near += d**2 / 2.0 * (self.mass[upto] - self.mass[below])
            short = d * self.mass[below] - self.first[below]
            far = self.first[-1] - self.first[upto] - d * (1.0 - self.mass[upto])
            ends = self.mass[below] + 1.0 - self.mass[upto]
            return np.asarray(near + delta * (short + far - delta / 2.0 * ends))
        level, factor = self._pinball
        at = np.searchsorted(self.places, d, side="right")
        short = d * self.mass[at] - self.first[at]
        return np.asarray(factor * (level * (self.first[-1] - d) + short))

    def slope(self, d: Floats) -> Floats:
        """Return a slope of that, same shape: that to the right, where there is a kink."""
        if name_of(self.loss) == "huber":
            delta = number_of(self.loss)
            below, upto = self._within(d, delta)
            near = d * (self.mass[upto] - self.mass[below]) - (self.first[upto] - self.first[below])
            return np.asarray(near + delta * (self.mass[below] - (1.0 - self.mass[upto])))
        level, factor = self._pinball
        at = np.searchsorted(self.places, d, side="right")
        return np.asarray(factor * (self.mass[at] - level))

    def _within(self, d: Floats, delta: float) -> tuple[Ints, Ints]:
        """Return how many residuals are more than ``delta`` below ``d``, and how many not more than it above."""
        return (
            np.searchsorted(self.places, d - delta, side="left"),
            np.searchsorted(self.places, d + delta, side="right"),
        )


@dataclass(frozen=True, eq=False)
class Around:
    """Expected labels around any score."""

    edges: Floats
    """Greatest score of each band but the last, increasing, shape (B - 1,)."""
    bands: tuple[Residuals, ...]
    off: float
    """Part of the loss of the scores on their own labels that goes away where they are shifted band by band."""

    @classmethod
    def of(cls, loss: str, score: Floats, label: Floats, share: Floats, rows: float) -> Around:
        """Return what rows tell; ``rows`` is for how many of them they stand."""
        weighed = share > 0
        score, label, share = score[weighed], label[weighed], share[weighed]
        order = np.argsort(score, kind="stable")
        many = int(np.clip(rows // ROWS, 1, BANDS))
        upto = np.cumsum(share[order])
        at = np.searchsorted(upto, upto[-1] * np.arange(1, many) / many - 1e-12)
        edges = np.unique(score[order[at]])
        edges = edges[edges < score.max()]
        band = np.searchsorted(edges, score, side="left")
        of_row, made = row_loss(loss), []
        own = shifted = 0.0
        for b in range(edges.size + 1):
            inside: Bools = band == b
            residuals, shift = Residuals.of(loss, label[inside] - score[inside], share[inside])
            made.append(residuals)
            own += float(share[inside] @ of_row.value(label[inside], score[inside]))
            shifted += float(share[inside] @ of_row.value(label[inside], score[inside] + shift))
        return cls(edges, tuple(made), (own - shifted) / own if own > 0 else 0.0)

    def cost(self, score: Floats, u: Floats) -> Floats:
        """Return the loss that is expected of scores ``u``, shape (n, V), of rows of scores (n,); (V,) is for all."""
        return self._each("cost", score, u)

    def slope(self, score: Floats, u: Floats) -> Floats:
        """Return a slope of that in ``u``, shape (n, V)."""
        return self._each("slope", score, u)

    def least_priced(self, score: Floats, grid: Floats, price: Floats) -> Floats:
        """Return no more than the least loss and price of any ``u``, shape (n,), for scores (n,).

        ``price``: at the points of ``grid``, shape (n, Z), a line in between, and beyond all points what it is at the
        last. Between two points the loss, which is convex, lies above the tangents at both.
        """
        at, slope, step = self.cost(score, grid), self.slope(score, grid), np.diff(grid)
        left, right, turn = at[:, :-1], at[:, 1:], slope[:, 1:] - slope[:, :-1]
        # where the tangents meet, as a part of the way
        part = np.divide(
            right - left - slope[:, 1:] * step, -turn * step, out=np.zeros_like(turn), where=turn > 0
        ).clip(0.0, 1.0)
        meet = left + slope[:, :-1] * part * step + price[:, :-1] + part * np.diff(price, axis=1)
        ends = np.clip(score[:, None], [-np.inf, grid[-1]], [grid[0], np.inf])
        outer = self.cost(score, ends) + price[:, [0, -1]]
        return np.asarray(np.concatenate([meet, at + price, outer], axis=1).min(axis=1))

    def _each(self, what: str, score: Floats, u: Floats) -> Floats:
        d = u - score[:, None]
        out = np.empty(d.shape)
        band = np.searchsorted(self.edges, score, side="left")
        for b in np.unique(band):
            inside = band == b
            out[inside] = getattr(self.bands[b], what)(d[inside])
        return out
