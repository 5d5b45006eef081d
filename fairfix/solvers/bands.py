r"""Rules whose mean rates lie within bands: one problem behind every constraint on rates.

Point ``i`` has a score ``f_i``, a weight ``w_i > 0`` and gets a share ``q_i``, its probability of a positive decision.
Row ``r`` is a mean of shares with slopes ``z_ri`` and the mass ``W_r``; it lies in a band of half width ``d_r`` around
a centre, which is free and common to several rows, or given:

.. math::
    \min_{q, c} \sum_i w_i \left(\tfrac{\gamma}{2} q_i^2 - f_i q_i\right)
    \quad\text{s.t.}\quad 0 \le q_i \le 1,\quad R\, c_{j(r)} - d_r \le m_r \le c_{j(r)} + d_r,\quad
    m_r = \frac{1}{W_r} \sum_i w_i z_{ri} q_i .

======================================  =============================================================================
constraint                              rows
======================================  =============================================================================
demographic parity                      one a group, ``z = 1`` in it; one free centre
true, false positive rates              the same with ``z = eta``, ``1 - eta`` over their means
equalized odds                          both, a free centre each
several attributes, each by itself      one a group of every attribute, a free centre for each attribute
ratio ``R`` (four-fifths rule)          the same without ``d``
covariance of decisions and groups      one a group and one of all points with ``d = 0``; one free centre
covariance with a number                ``z = x``, of mean 0, around 0
groups by membership probabilities      ``z`` the probability of the group
======================================  =============================================================================

``gamma > 0`` gives ramps (:mod:`fairfix.solvers.band_ramps`), ``gamma = 0`` thresholds
(:mod:`fairfix.solvers.band_thresholds`). With multipliers ``u_r`` per unit of ``W_r``, above 0 at an upper edge and
below 0 at a lower one, and ``t_i = sum_r u_r z_ri``, a ramp is

.. math:: q_i = \mathrm{clip}\left((f_i - t_i) / \gamma, 0, 1\right)

and a threshold is 1 where ``f_i > t_i`` and 0 where ``f_i < t_i``. A free centre leaves ``sum_r W_r e_r u_r = 0`` over
its rows, with ``e_r = 1`` at an upper edge and ``R`` at a lower one. For any such multipliers, weak duality bounds the
objective of all feasible shares; both solvers return the distance of their own objective from that bound, computed from
the multipliers alone, so a certificate does not trust the solver.

References
----------
I. Alabdulmohsin and M. Lucic, *A near-optimal algorithm for debiasing trained machine learning models* (2021), theorem
3 and appendix E.1, for the form of ``q``. M. Hardt, E. Price and N.
Srebro, *Equality of opportunity in supervised learning* (2016), for thresholds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from fairfix.solvers.arrays import Bools, Floats, Ints, locked, positive_weights

PROMISED = 1e-9
"""Distance of means from their bands, and gap, with which a solution has converged."""

_below: Any = sparse.vstack


@dataclass(frozen=True, eq=False)
class Bands:
    """Rows of means that lie within bands, over weighted points.

    Made by :meth:`of_groups`, :meth:`of_parts` or :meth:`of_covariances`.
    """

    weights: Floats
    """``w`` of sum 1, shape (n,)."""
    slopes: Any
    """``z``, a sparse matrix of shape (m, n)."""
    mass: Floats
    """``W``, shape (m,), in units of all weights."""
    half: Floats
    """``d``, shape (m,)."""
    centre: Ints
    """Number of the free centre of each row, shape (m,); -1 where it is given."""
    target: Floats
    """The given centre of each row, shape (m,); 0 where it is free."""
    ratio: float = 1.0
    """``R``, in [0, 1]."""

    @classmethod
    def of_groups(
        cls,
        groups: npt.ArrayLike,
        slack: float,
        weights: npt.ArrayLike | None = None,
        slopes: npt.ArrayLike | None = None,
        *,
        centre: float | None = None,
        ratio: float = 1.0,
    ) -> Bands:
        """Return the rows of groups.

        ``groups``: number of each point's group, from 0 to K_j - 1, each with a point; shape (n,), or (n, J) for
        attributes or rates with a free centre each. ``slack``: largest allowed difference of two groups, 0 or more.
        ``weights``: positive, shape (n,); None for 1 each. ``slopes``: ``z``, of the shape of ``groups``; None for 1.
        ``centre``: the given centre of all bands; None for free ones. ``ratio``: ``R``.
        """
        code = np.asarray(groups, dtype=np.int64)
        code = code[:, None] if code.ndim == 1 else code
        if code.ndim != 2 or not code.size or code.min() < 0:
            raise ValueError(f"groups must be numbers from 0, shape (n,) or (n, J), got shape {code.shape}")
        z = np.ones(code.shape) if slopes is None else np.asarray(slopes, dtype=np.float64)
        z = z[:, None] if z.ndim == 1 else z
        if z.shape != code.shape:
            raise ValueError(f"groups and slopes must have one shape, got {code.shape} and {z.shape}")
        w = positive_weights(weights, code.shape[:1])
        w = w / w.sum()
        sizes = code.max(axis=0) + 1
        rows = (code + np.cumsum(sizes) - sizes).ravel()
        mass: Floats = np.bincount(rows, np.repeat(w, code.shape[1]), int(sizes.sum())).astype(np.float64)
        if not mass.all():
            raise ValueError("every group needs a point")
        ends = np.arange(0, rows.size + 1, code.shape[1])
        by_row = sparse.csc_array((z.ravel(), rows, ends), (mass.size, len(code)))
        kind = np.repeat(np.arange(sizes.size), sizes)
        return cls._of(w, by_row, mass, slack / 2, kind, centre, ratio)

    @classmethod
    def of_parts(
        cls,
        parts: npt.ArrayLike,
        slack: float,
        weights: npt.ArrayLike | None = None,
        *,
        centre: float | None = None,
    ) -> Bands:
        """Return the rows of groups to which every point belongs in part, or of covariances with numbers.

        ``parts``: how much of each point belongs to each group, 0 or more, each group with some, shape (n, K), or
        (n, K, J) for J rates with a free centre each; the mass of a group is the sum of its parts. With a given
        ``centre``: numbers of any sign, shape (n, K), whose mass is that of all points, and ``slack`` is the largest
        allowed distance from that centre. ``weights``: positive, shape (n,); None for 1 each.
        """
        z = np.asarray(parts, dtype=np.float64)
        if z.ndim not in (2, 3) or not np.isfinite(z).all():
            raise ValueError(f"parts must be finite, of shape (n, K) or (n, K, J), got {z.shape}")
        w = positive_weights(weights, z.shape[:1])
        w = w / w.sum()
        if centre is not None:
            many = z.shape[1]
            return cls._of(w, z.T, np.ones(many), slack, np.zeros(many, dtype=np.int64), centre, 1.0)
        if z.min() < 0:
            raise ValueError("parts must be 0 or more")
        z = z[:, :, None] if z.ndim == 2 else z
        kind = np.repeat(np.arange(z.shape[2]), z.shape[1])
        z = z.transpose(0, 2, 1).reshape(len(z), -1)
        mass = w @ z
        if not mass.all():
            raise ValueError("every group needs a part of a point")
        return cls._of(w, z.T, mass, slack / 2, kind, None, 1.0)

    @classmethod
    def of_covariances(
        cls, groups: npt.ArrayLike, slack: float, weights: npt.ArrayLike | None = None
    ) -> Bands:
        """Return the rows of the covariances of decisions and groups, ``p_k |m_k - m| <= slack``.

        ``groups``: number of each point's group, shape (n,). ``weights``: positive, shape (n,); None for 1 each.
        """
        own = cls.of_groups(groups, 0.0, weights)
        half = np.append(np.minimum(slack / own.mass, 1.0), 0.0)
        slopes = _below([own.slopes, np.ones((1, own.weights.size))]).tocsr()
        centre = np.zeros(half.size, dtype=np.int64)
        return cls(own.weights, slopes, np.append(own.mass, 1.0), locked(half), centre, np.zeros(half.size))

    @classmethod
    def _of(
        cls, w: Floats, z: Any, mass: Floats, half: float, kind: Ints, centre: float | None, ratio: float
    ) -> Bands:
        if not half >= 0:
            raise ValueError(f"slack must be 0 or more, got {half!r}")
        if not 0 <= ratio <= 1:
            raise ValueError(f"ratio must be in [0, 1], got {ratio!r}")
        z = sparse.csr_array(z)
        if (
            half > 1
        ):  # no mean is further from another than all of its slopes allow: a wider band is no constraint
            half = min(half, 1.0 + 2.0 * float((abs(z) @ w / mass).max()))
        given = centre is not None
        return cls(
            locked(w),
            z,
            locked(mass),
            locked(np.full(mass.size, half)),
            np.full(mass.size, -1) if given else kind,
            np.full(mass.size, centre if given else 0.0),
            ratio,
        )

    @property
    def centres(self) -> int:
        """Number of free centres."""
        return int(self.centre.max(initial=-1)) + 1

    @property
    def tied(self) -> Bools:
        """Which rows have a band of no width, shape (m,)."""
        return np.asarray((self.half == 0) & (self.ratio == 1))

    @cached_property
    def belongs(self) -> Floats:
        """Which free centre each row has, shape (m, J)."""
        return np.asarray(self.centre[:, None] == np.arange(self.centres), dtype=np.float64)

    def means(self, shares: Floats) -> Floats:
        """Return ``m``, shape (m,)."""
        return np.asarray(self.slopes @ (self.weights * shares)) / self.mass

    def prices(self, multipliers: Floats) -> Floats:
        """Return ``t``, shape (n,): what the score of each point is lowered by."""
        return np.asarray(self.slopes.T @ multipliers)

    def curvature(self, each: Floats) -> Floats:
        """Return the sums of ``w each z_r z_s`` over the points, shape (m, m)."""
        scaled = self.slopes * (self.weights * each)
        return np.asarray((scaled @ self.slopes.T).todense())

    def moves(self, multipliers: Floats) -> Floats:
        """Return ``e``, how fast the edge of each row moves with its centre, shape (m,)."""
        return np.where(multipliers < 0, self.ratio, 1.0)

    def around(self, centres: Floats) -> Floats:
        """Return the centre of each row, shape (m,), from the free ones, shape (J,)."""
        return self.target + self.belongs @ centres

    def ranges(self, means: Floats) -> tuple[Floats, Floats]:
        """Return the least and the greatest centre, (J,), whose bands hold the means; reversed if none does."""
        low, high = np.full(self.centres, -np.inf), np.full(self.centres, np.inf)
        free = self.centre >= 0
        np.maximum.at(low, self.centre[free], (means - self.half)[free])
        if self.ratio:
            np.minimum.at(high, self.centre[free], ((means + self.half) / self.ratio)[free])
        return low, high

    def outside(self, means: Floats, centres: Floats) -> float:
        """Return how far means are beyond their bands around the free centres, (J,)."""
        at = self.around(centres)
        beyond = np.maximum(means - at - self.half, self.ratio * at - self.half - means)
        return float(beyond.max(initial=0.0))

    def idle(self, means: Floats) -> Floats | None:
        """Return the centres, (J,), around which all means lie within their bands; None if there are none."""
        low, high = self.ranges(means)
        high = np.where(np.isfinite(high), high, np.maximum(low, 0.0))
        if (low > high).any():
            return None
        centres = low + (high - low) / 2 if self.ratio == 1 else np.maximum(low, 0.0)
        return centres if self.outside(means, centres) <= 0 else None

    def balanced(self, multipliers: Floats) -> Floats:
        """Return multipliers, (m,), that leave free centres without pull: the side that pulls more is scaled down."""
        pull = self.mass * self.moves(multipliers) * multipliers
        out = multipliers.copy()
        for j in range(self.centres):
            own = self.centre == j
            up, down = own & (multipliers > 0), own & (multipliers < 0)
            above, below = float(pull[up].sum()), -float(pull[down].sum())
            if above > below:
                out[up] *= below / above
            elif below > above:
                out[down] *= above / below
        return out
