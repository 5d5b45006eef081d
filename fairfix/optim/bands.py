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

``gamma > 0`` gives ramps (:func:`solve_ramps`), ``gamma = 0`` thresholds (:func:`solve_thresholds`). With multipliers
``u_r`` per unit of ``W_r``, above 0 at an upper edge and below 0 at a lower one, and ``t_i = sum_r u_r z_ri``, a ramp
is

.. math:: q_i = \mathrm{clip}\left((f_i - t_i) / \gamma, 0, 1\right)

and a threshold is 1 where ``f_i > t_i`` and 0 where ``f_i < t_i``. A free centre leaves ``sum_r W_r e_r u_r = 0`` over
its rows, with ``e_r = 1`` at an upper edge and ``R`` at a lower one. For any such multipliers, weak duality bounds the
objective of all feasible shares; both solvers return the distance of their own objective from that bound, computed from
the multipliers alone, so a certificate does not trust the solver.

References
----------
I. Alabdulmohsin and M. Lucic, *A near-optimal algorithm for debiasing trained machine learning models* (2021), theorem
3 and appendix E.1, for the form of ``q``. S. Mehrotra, *On the implementation of a primal-dual interior point method*
(1992). M. Hardt, E. Price and N. Srebro, *Equality of opportunity in supervised learning* (2016), for thresholds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.linalg import lu_factor, lu_solve
from scipy.optimize import linprog

from fairfix.optim.arrays import Bools, Floats, Ints, locked, positive_weights

PROMISED = 1e-9
"""Distance of means from their bands, and gap, with which a solution has converged."""

STEPS = 80
"""Steps of the interior point method at most; 10 to 30 in practice."""

COMPLEMENTARY = 1e-14
"""Mean product of slacks and multipliers at which the interior point method ends: rounding of scores of size 1."""

TINY = 1e-300
"""Least diagonal of a system, which is scaled by it."""

STEADY = 1e-13
"""What is added to the diagonal of a scaled system, a thousand roundings; refinement takes it back."""

INSIDE = 0.995
"""Part of the way to the boundary that a step takes at most."""

POLISH = 15
"""Steps of the polish at most; two or three in practice."""

PLACES = 64
"""Thresholds of a cell that the linear program begins with, and that are added between two neighbours."""

_below: Any = sparse.vstack
_beside: Any = sparse.hstack

ROUNDS = 60
"""Linear programs at most; three to six in practice."""

FINEST = 1e-10
"""Feasibility that is asked of a linear program, the finest that HiGHS takes."""

SCALED = 1e4
"""What values of a linear program are multiplied by, so that it is exact to 1e-14 of a value."""

TIE = 5e-10
"""Largest value that is given away where several rules are nearly the best."""

PROVEN = 1e-14
"""Gap of a linear program at which no more thresholds are added: rounding of sums."""

NOTHING = 1e-11
"""Weight of a threshold in a mixture that is rounding of the linear program."""


@dataclass(frozen=True, eq=False)
class Bands:
    """Rows of means that lie within bands, over weighted points.

    Made by :meth:`of_groups` or :meth:`of_parts`; ``|`` joins the rows of two over the same points.
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
        places, parts = np.arange(len(code)), []
        for own, steep in zip(code.T, z.T, strict=True):
            size = int(own.max()) + 1
            parts.append(sparse.csr_array((steep, (own, places)), (size, len(code))))
        mass = np.concatenate([np.bincount(own, w) for own in code.T])
        if not mass.all():
            raise ValueError("every group needs a point")
        kind = np.repeat(np.arange(len(parts)), [part.shape[0] for part in parts])
        return cls._of(w, _below(parts), mass, slack / 2, kind, centre, ratio)

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
        # no mean is further from another than all of its slopes allow, so a wider band is no constraint
        widest = 2.0 * float((abs(z) @ w / mass).max())
        given = centre is not None
        return cls(
            locked(w),
            z,
            locked(mass),
            locked(np.full(mass.size, min(half, widest + 1.0))),
            np.full(mass.size, -1) if given else kind,
            np.full(mass.size, centre if given else 0.0),
            ratio,
        )

    def __or__(self, other: Bands) -> Bands:
        free = other.centre >= 0
        centre = np.where(free, other.centre + self.centres, -1)
        return replace(
            self,
            slopes=_below([self.slopes, other.slopes]).tocsr(),
            mass=np.concatenate([self.mass, other.mass]),
            half=np.concatenate([self.half, other.half]),
            centre=np.concatenate([self.centre, centre]),
            target=np.concatenate([self.target, other.target]),
        )

    @property
    def centres(self) -> int:
        """How many free centres there are."""
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
        """Return multipliers, (m,), of which free centres have no pull: the side that pulls more is scaled down."""
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


# ---------------------------------------------------------------------- ramps


@dataclass(frozen=True, eq=False)
class Ramps:
    """The optimum with ``gamma > 0``, and its proof."""

    multipliers: Floats
    """``u``, shape (m,)."""
    centres: Floats
    """``c`` of the free centres, shape (J,)."""
    means: Floats
    """``m`` of the rows at these multipliers, shape (m,)."""
    objective: float
    """Least value of the objective, divided by the total weight."""
    gap: float
    """Objective minus dual bound, divided by the total weight: no feasible shares are better by more."""
    converged: bool
    """Whether the means lie within their bands and the gap is small, both to 1e-9."""
    iterations: int
    """Steps of the interior point method; 0 if no multiplier was needed."""
    missed: float
    """Largest of the distance of means from their bands, the gap, and the pull of free centres."""


def solve_ramps(scores: npt.ArrayLike, bands: Bands, gamma: float) -> Ramps:
    """Return the optimal multipliers of all rows.

    ``scores``: finite, shape (n,). ``gamma``: width of the ramp, above 0.
    """
    f = np.asarray(scores, dtype=np.float64)
    if f.shape != bands.weights.shape:
        raise ValueError(f"there must be one score per point, got {f.shape} and {bands.weights.shape}")
    if not np.isfinite(f).all():
        raise ValueError("scores must be finite: drop or fill missing and infinite ones first")
    if not 0 < gamma < np.inf:
        raise ValueError(f"gamma must be positive and finite, got {gamma!r}")
    problem = _RampProblem(f, bands, gamma)
    none = np.zeros(bands.mass.size)
    if (centres := bands.idle(bands.means(problem.shares(none)))) is not None:
        return problem.certified(none, centres, 0)
    u, centres, steps = problem.interior()
    tried = [problem.certified(u, centres, steps)]
    # what is off by 1e-9 in a multiplier is off by 1e-9 over gamma in a mean, so some edges are hard to tell
    for near in (1e-6, 1e-4, 1e-2):
        tried.append(problem.certified(*problem.polished(u, centres, near), steps))
        if tried[-1].converged:
            break
    return min(tried, key=lambda one: one.missed)


@dataclass(frozen=True, eq=False)
class _RampProblem:
    """Scores, bands, and the width of the ramp."""

    f: Floats
    bands: Bands
    gamma: float

    def shares(self, u: Floats) -> Floats:
        """Return ``q`` at the multipliers."""
        return np.clip((self.f - self.bands.prices(u)) / self.gamma, 0.0, 1.0)

    def certified(self, u: Floats, centres: Floats, steps: int) -> Ramps:
        """Return the solution with its value and the proof of its optimality, without cancellation.

        The gap is ``sum_r W_r (d_r |u_r| - u_r (m_r - e_r c_r))``.
        """
        bands = self.bands
        q = self.shares(u)
        means, moves = bands.means(q), bands.moves(u)
        off = means - moves * bands.around(centres)
        objective = float((bands.weights * (self.gamma / 2 * q - self.f) * q).sum())
        gap = float((bands.mass * (bands.half * np.abs(u) - u * off)).sum())
        pulls = np.abs(bands.belongs.T @ (bands.mass * moves * u))
        missed = max(bands.outside(means, centres), abs(gap), float(pulls.max(initial=0.0)))
        return Ramps(u, centres, means, objective, gap, missed <= PROMISED, steps, missed)

    def interior(self) -> tuple[Floats, Floats, int]:
        """Return multipliers, centres and steps, by Mehrotra's interior point method: the most exact point seen."""
        scale = max(1.0, float(np.abs(self.f).max()))
        at = _Point.start(self.bands, scale)
        best, least, steps = at, np.inf, 0
        while steps < STEPS:
            steps += 1
            system = _System(self, at)
            ahead = system.direction(_Point(*np.zeros(len(at))))
            there = at.moved(at.reach(ahead, system.loose), ahead)
            mu, after = (system.complementarity(one) for one in (at, there))
            aim = mu * (max(after, 0.0) / mu) ** 3
            change = system.direction(ahead, aim)
            at = at.moved(min(1.0, INSIDE * at.reach(change, system.loose)), change)
            off = max(system.complementarity(at), self.unbalanced(at))
            if off < least:
                best, least = at, off
            if off <= COMPLEMENTARY * scale or off > 1e3 * least:
                break
        return best.up - best.down, best.centres, steps

    def unbalanced(self, at: _Point) -> float:
        """Return the largest slope of the Lagrangian in a share, per unit of weight."""
        slope = self.gamma * at.q - self.f + self.bands.prices(at.up - at.down) - at.low + at.high
        return float(np.abs(slope).max())

    def polished(self, u: Floats, centres: Floats, near: float) -> tuple[Floats, Floats]:
        """Return multipliers and centres after Newton's method on the edges that means lie on, or nearly so."""
        bands = self.bands
        tie, moves = bands.tied, bands.moves(u)
        off = bands.means(self.shares(u)) - moves * bands.around(centres)
        active = tie | ((np.abs(u) > 1e-9) & (np.abs(off - np.sign(u) * bands.half) < near))
        edge = np.where(tie, 0.0, np.sign(u) * bands.half)
        u = np.where(active, u, 0.0)
        pull = (bands.mass * moves)[:, None] * bands.belongs
        best, least = (u, centres), np.inf
        for _ in range(POLISH):
            q = self.shares(u)
            rest = np.where(active, bands.means(q) - moves * bands.around(centres) - edge, 0.0)
            balance = pull.T @ u
            violation = float(max(np.abs(rest).max(), np.abs(balance).max(initial=0.0)))
            if violation < least:
                best, least = (u, centres), violation
            if violation <= 1e-15:
                break
            curved = bands.curvature(((q > 0) & (q < 1)) / self.gamma)
            step, moved = _newton(curved, pull, bands.mass, active, rest, -balance)
            u, centres = u + step, centres + moved
        return best


class _Point(NamedTuple):
    """Unknowns of the interior point method, or a change of them.

    A row with a band of no width has one multiplier of any sign, in ``up``.
    """

    q: Any
    """Shares, shape (n,)."""
    centres: Any
    """Shape (J,)."""
    above: Any
    below: Any
    """``above`` and ``below``: distances of means from their upper and lower edges, shape (m,)."""
    up: Any
    down: Any
    """``up`` and ``down``: multipliers of the edges, shape (m,)."""
    low: Any
    high: Any
    """``low`` and ``high``: multipliers of ``q >= 0`` and ``q <= 1``, shape (n,)."""

    @classmethod
    def start(cls, bands: Bands, scale: float) -> _Point:
        """Return the first point, with multipliers of the size of the scores."""
        rows, points = bands.mass.size, bands.weights.size
        q = np.full(points, 0.5)
        means = bands.means(q)
        centres = np.array([means[bands.centre == j].mean() for j in range(bands.centres)])
        edge = np.where(bands.tied, 0.0, scale)
        wide, outer = np.full(rows, 0.5), np.full(points, scale)
        return cls(q, centres, wide, wide, edge, edge, outer, outer)

    def moved(self, step: float, change: _Point) -> _Point:
        """Return the point a step further."""
        return _Point(*(one + step * by for one, by in zip(self, change, strict=True)))

    def reach(self, change: _Point, loose: Bools) -> float:
        """Return the longest step, at most 1, that leaves slacks and multipliers at 0 or more."""
        most = 1.0
        for value, by in (
            (self.q, change.q),
            (1 - self.q, -change.q),
            (self.low, change.low),
            (self.high, change.high),
            *(
                (getattr(self, name)[loose], getattr(change, name)[loose])
                for name in ("above", "below", "up", "down")
            ),
        ):
            falls = by < 0
            most = min(most, float((-value[falls] / by[falls]).min(initial=1.0)))
        return most


class _System:
    """The equations of a step: ``m + J`` of them, for the new ``u`` and the change of the centres."""

    def __init__(self, problem: _RampProblem, at: _Point) -> None:
        bands, ratio = problem.bands, problem.bands.ratio
        self.problem, self.at, self.loose = problem, at, ~bands.tied
        means, centre = bands.means(at.q), bands.around(at.centres)
        self.miss_above = centre + bands.half - means - at.above
        self.miss_below = means - ratio * centre + bands.half - at.below
        self.off = means - centre
        self.inner = 1.0 / (problem.gamma + at.low / at.q + at.high / (1 - at.q))
        self.by_above = np.where(self.loose, at.up / at.above, 0.0)
        self.by_below = np.where(self.loose, at.down / at.below, 0.0)
        stiff = self.by_above + self.by_below
        pull = self.by_above + ratio * self.by_below
        self.give = np.where(self.loose, 1.0 / np.where(self.loose, stiff, 1.0), 0.0)
        self.part = np.where(self.loose, pull * self.give, 1.0)
        rest = np.where(self.loose, self.by_above + ratio**2 * self.by_below - pull * self.part, 0.0)
        rows, many = bands.mass.size, bands.mass.size + bands.centres
        matrix = np.zeros((many, many))
        matrix[:rows, :rows] = bands.curvature(self.inner) + np.diag(bands.mass * self.give)
        matrix[:rows, rows:] = (bands.mass * self.part)[:, None] * bands.belongs
        matrix[rows:, :rows] = matrix[:rows, rows:].T
        matrix[rows:, rows:] = -(bands.belongs.T * (bands.mass * rest)) @ bands.belongs
        root = np.sqrt(np.maximum(np.diag(matrix), TINY))
        root[rows:] = np.abs(matrix[:rows, rows:] / root[:rows, None]).max(axis=0, initial=0.0)
        self.root, self.matrix = root, matrix / np.outer(root, root)
        # a little more than rounding on the diagonal, which makes rows that depend on others solvable
        self.steady = lu_factor(self.matrix + np.diag(np.where(np.arange(many) < rows, STEADY, -STEADY)))

    def complementarity(self, at: _Point) -> float:
        """Return the mean product of slacks and multipliers, by mass."""
        bands, loose = self.problem.bands, self.loose
        edges = (at.above * at.up + at.below * at.down)[loose]
        inner = bands.weights @ (at.q * at.low + (1 - at.q) * at.high) + bands.mass[loose] @ edges
        return float(inner) / (2.0 + 2.0 * float(bands.mass[loose].sum()))

    def direction(self, ahead: _Point, aim: float = 0.0) -> _Point:
        """Return the change that makes all products ``aim``, given the change ``ahead`` for terms of second order."""
        at, bands, loose, ratio = self.at, self.problem.bands, self.loose, self.problem.bands.ratio
        q, other = at.q, 1 - at.q
        low, high = aim - ahead.q * ahead.low, aim + ahead.q * ahead.high
        above = (aim - ahead.above * ahead.up) / at.above - self.by_above * self.miss_above
        below = (aim - ahead.below * ahead.down) / at.below - self.by_below * self.miss_below
        lift, pull = above - below, above - ratio * below
        worth = self.problem.f - self.problem.gamma * q + low / q - high / other
        right = np.concatenate(
            [
                bands.slopes @ (bands.weights * worth * self.inner)
                + bands.mass * np.where(loose, lift * self.give, self.off),
                bands.belongs.T @ (bands.mass * np.where(loose, self.part * lift - pull, 0.0)),
            ]
        )
        right = right / self.root
        answer = lu_solve(self.steady, right)
        for _ in range(2):  # takes back what the diagonal was raised by
            answer = answer + lu_solve(self.steady, right - self.matrix @ answer)
        answer = answer / self.root
        u, moved = answer[: bands.mass.size], answer[bands.mass.size :]
        dq = (worth - bands.prices(u)) * self.inner
        means, centre = bands.means(dq), bands.belongs @ moved
        to_above, to_below = centre - means + self.miss_above, means - ratio * centre + self.miss_below
        up = (aim - ahead.above * ahead.up) / at.above - at.up - self.by_above * to_above
        down = (aim - ahead.below * ahead.down) / at.below - at.down - self.by_below * to_below
        # of the nearer edge, the multiplier is what the other leaves of u, and the slack follows from it: computed from
        # a slack near 0 it would lose all digits
        turn, nearer = u - (at.up - at.down), self.by_above > self.by_below
        up, down = np.where(nearer, turn + down, up), np.where(nearer, down, up - turn)
        by_up, by_down = np.where(at.up, at.up, 1.0), np.where(at.down, at.down, 1.0)
        to_above = np.where(
            nearer, (aim - ahead.above * ahead.up - at.above * (at.up + up)) / by_up, to_above
        )
        to_below = np.where(
            nearer, to_below, (aim - ahead.below * ahead.down - at.below * (at.down + down)) / by_down
        )
        return _Point(
            dq,
            moved,
            np.where(loose, to_above, 0.0),
            np.where(loose, to_below, 0.0),
            np.where(loose, up, turn),
            np.where(loose, down, 0.0),
            low / q - at.low - at.low / q * dq,
            high / other - at.high + at.high / other * dq,
        )


def _newton(
    curved: Floats, pull: Floats, mass: Floats, active: Bools, rest: Floats, balance: Floats
) -> tuple[Floats, Floats]:
    """Return (du, dc): ``curved du + pull dc = mass rest`` where active, else ``du`` 0, and ``pull' du = balance``.

    Scaled to be symmetric and of size 1; the least solution where the system is singular.
    """
    size, many = mass.size, mass.size + balance.size
    root = np.sqrt(mass)
    system = np.zeros((many, many))
    system[:size, :size] = curved / np.outer(root, root)
    system[:size, size:] = pull / root[:, None]
    system[size:, :size] = system[:size, size:].T
    right = np.concatenate([root * rest, balance])
    keep = np.concatenate([active, (pull[active] != 0).any(axis=0)])
    out = np.zeros(many)
    out[keep] = np.linalg.lstsq(system[np.ix_(keep, keep)], right[keep], rcond=1e-15)[0]
    return out[:size] / root, out[size:]


# ---------------------------------------------------------------------- thresholds


@dataclass(frozen=True, eq=False)
class Thresholds:
    """The optimum with ``gamma = 0``, and its proof."""

    shares: Floats
    """``q`` of each point, shape (n,): falling with the score inside a cell, and between 0 and 1 for few scores."""
    centres: Floats
    """``c`` of the free centres, shape (J,)."""
    means: Floats
    """``m`` of the rows, shape (m,)."""
    value: float
    """Largest value of ``sum w f q``, divided by the total weight."""
    gap: float
    """No feasible shares that rise with the score inside every cell have a value that is larger by more."""
    converged: bool
    """Whether the means lie within their bands and the gap is small, both to 1e-9."""
    rounds: int
    """Linear programs that were solved; 0 if no multiplier was needed."""


@dataclass(frozen=True, eq=False)
class _Curve:
    """The thresholds of a cell: what its best points give, and what they add to its rows."""

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
    bent: Floats
    """The value less a little that grows with the rate: of equal rules, that of the lowest rates is taken."""
    adds: Floats
    """What the points above each threshold add to the means of the rows, shape (l, s + 1)."""

    @classmethod
    def of(cls, f: Floats, bands: Bands, columns: Any, points: Ints) -> _Curve:
        order = points[np.argsort(-f[points], kind="stable")]
        falls = f[order]
        ends = np.concatenate([[0], np.flatnonzero(falls[1:] != falls[:-1]) + 1, [order.size]])
        w = bands.weights[order]
        part = columns[:, order]
        rows = np.unique(part.indices)
        each = part.tocsr()[rows].toarray() * (w / bands.mass[rows, None])
        value = np.concatenate([[0.0], np.cumsum(w * falls)])[ends]
        taken = np.concatenate([[0.0], np.cumsum(w)])[ends]
        bent = value - TIE * taken**2 / taken[-1]
        adds = np.concatenate([np.zeros((rows.size, 1)), np.cumsum(each, axis=1)], axis=1)[:, ends]
        return cls(order, ends, rows, value, taken, bent, adds)

    def spread(self, low: int, high: int) -> Ints:
        """Return at most so many thresholds from one to another, both among them."""
        return np.unique(np.linspace(low, high, PLACES + 1).round().astype(np.int64))


def solve_thresholds(scores: npt.ArrayLike, bands: Bands, cells: npt.ArrayLike) -> Thresholds:
    """Return the optimal shares of all points, by column generation over the thresholds of each cell.

    ``scores``: finite, shape (n,); what points add to a row per unit of value must fall with the score inside a cell.
    ``cells``: number of each point's cell, shape (n,); points of a cell are in the same rows.
    """
    f, cell = np.asarray(scores, dtype=np.float64), np.asarray(cells, dtype=np.int64)
    if f.shape != bands.weights.shape or cell.shape != f.shape:
        raise ValueError(f"there must be one score and one cell per point, got {f.shape} and {cell.shape}")
    if not np.isfinite(f).all():
        raise ValueError("scores must be finite: drop or fill missing and infinite ones first")
    order = np.argsort(cell, kind="stable")
    columns = bands.slopes.tocsc()
    curves = [
        _Curve.of(f, bands, columns, part)
        for part in np.split(order, np.cumsum(np.bincount(cell))[:-1])
        if part.size
    ]
    free = [int(np.argmax(curve.value)) for curve in curves]
    mixed = [{at: 1.0} for at in free]
    means = _means(curves, mixed, bands)
    centres, rounds, bound = bands.idle(means), 0, -np.inf
    if centres is None:
        mixed, centres, bound, rounds = _mixtures(curves, bands)
        mixed = [_nearest(curve, own) for curve, own in zip(curves, mixed, strict=True)]
        means = _means(curves, mixed, bands)
    value = sum(_mean(curve.value, own) for curve, own in zip(curves, mixed, strict=True))
    gap = max(bound - value, 0.0)
    shares = np.zeros(f.size)
    for curve, own in zip(curves, mixed, strict=True):
        for at, part in own.items():
            shares[curve.points[: curve.ends[at]]] += part
    converged = bands.outside(means, centres) <= PROMISED and abs(gap) <= PROMISED
    shares = np.where(shares > 1 - NOTHING, 1.0, shares)  # parts sum to 1 but for rounding
    return Thresholds(shares, centres, means, value, gap, bool(converged), rounds)


Mixture = dict[int, float]
"""Threshold of a cell -> its part in the rule; parts of sum 1."""


def _means(curves: list[_Curve], mixed: list[Mixture], bands: Bands) -> Floats:
    out = np.zeros(bands.mass.size)
    for curve, own in zip(curves, mixed, strict=True):
        for at, part in own.items():
            out[curve.rows] += part * curve.adds[:, at]
    return out


def _mixtures(curves: list[_Curve], bands: Bands) -> tuple[list[Mixture], Floats, float, int]:
    """Return the mixtures of all cells, the centres, a bound on the value, and how many programs were solved."""
    kept = [curve.spread(0, curve.ends.size - 1) for curve in curves]
    proven, rounds = np.inf, 0
    while True:
        rounds += 1
        mixed, centres, prices = _program(curves, kept, bands)
        prices = bands.balanced(prices)
        # weak duality: no shares have a value above what each cell takes at these prices, and what the bands allow
        allowed = np.abs(prices) * bands.half + bands.moves(prices) * prices * bands.target
        left, bound, asked = float(bands.mass @ allowed), float(bands.mass @ allowed), []
        for curve, own in zip(curves, mixed, strict=True):
            paid = (bands.mass * prices)[curve.rows] @ curve.adds
            asked.append(int(np.argmax(curve.bent - paid)))
            bound += float((curve.value - paid).max())
            left += float((curve.bent - paid)[asked[-1]]) - _mean(curve.bent, own)
        proven = min(proven, bound)
        more = [_more(*one) for one in zip(curves, kept, mixed, asked, strict=True)]
        if left <= PROVEN or rounds == ROUNDS or sum(map(len, more)) == sum(map(len, kept)):
            return mixed, centres, proven, rounds
        kept = more


def _nearest(curve: _Curve, own: Mixture) -> Mixture:
    """Return the mixture with the same means whose thresholds are nearest: the least mean square of the rate taken.

    Where a cell gives up more than one threshold can, many mixtures have its means, and this one leaves the fewest
    points to chance.
    """
    if len(own) == 1 or (len(own) == 2 and max(own) - min(own) == 1):
        return own
    adds = curve.adds / np.abs(curve.adds).max(axis=1, keepdims=True)
    wanted = sum(adds[:, at] * part for at, part in own.items())
    square = (curve.taken / curve.taken[-1]) ** 2
    places = np.unique(
        np.concatenate([curve.spread(0, curve.ends.size - 1), np.fromiter(own, dtype=np.int64)])
    )
    program: Any = linprog
    for _ in range(ROUNDS):
        answer = program(
            square[places],
            A_eq=np.vstack([adds[:, places], np.ones(places.size)]),
            b_eq=np.append(wanted, 1.0),
            bounds=(0, None),
            method="highs",
            options={"primal_feasibility_tolerance": FINEST, "dual_feasibility_tolerance": FINEST},
        )
        if answer.x is None:
            return own
        parts = np.where(answer.x > NOTHING, answer.x, 0.0)
        found = {int(at): float(part / parts.sum()) for at, part in zip(places, parts, strict=True) if part}
        prices = answer.eqlin.marginals
        spare = square - prices[:-1] @ adds - prices[-1]
        more = _more(curve, places, found, int(np.argmin(spare)))
        if spare.min() >= -FINEST or more.size == places.size:
            break
        places = more
    return found


def _mean(values: Floats, own: Mixture) -> float:
    """Return the mean of a mixture."""
    return sum(float(values[at]) * part for at, part in own.items())


def _more(curve: _Curve, places: Ints, own: Mixture, asked: int) -> Ints:
    """Return thresholds with those that prices ask for, and with more beside those of the mixture."""
    last = curve.ends.size - 1
    out = [places, np.clip(np.arange(asked - 1, asked + 2), 0, last)]
    for at in (asked, *own):
        k = int(np.searchsorted(places, at))
        out.append(curve.spread(int(places[max(k - 1, 0)]), int(places[min(k + 1, places.size - 1)])))
    return np.unique(np.concatenate(out))


def _program(curves: list[_Curve], kept: list[Ints], bands: Bands) -> tuple[list[Mixture], Floats, Floats]:
    """Return mixtures of the kept thresholds, centres, and multipliers per unit of mass, of the linear program."""
    sizes = [places.size for places in kept]
    owner = np.repeat(np.arange(len(curves)), sizes)
    value = SCALED * np.concatenate([curve.bent[places] for curve, places in zip(curves, kept, strict=True)])
    total, free = owner.size, bands.centres
    rows = np.concatenate([np.repeat(c.rows, p.size) for c, p in zip(curves, kept, strict=True)])
    starts = np.concatenate([[0], np.cumsum(sizes)])
    columns = np.concatenate(
        [
            np.tile(np.arange(a, b), c.rows.size)
            for c, a, b in zip(curves, starts[:-1], starts[1:], strict=True)
        ]
    )
    adds = np.concatenate([c.adds[:, p].ravel() for c, p in zip(curves, kept, strict=True)])
    means = sparse.csr_array((adds, (rows, columns)), (bands.mass.size, total))
    belongs = bands.belongs
    above = _beside([means, -belongs])
    below = _beside([-means, bands.ratio * belongs])
    one = _beside(
        [sparse.csr_array((np.ones(total), (owner, np.arange(total)))), np.zeros((len(curves), free))]
    )
    program: Any = linprog
    answer = program(
        np.concatenate([-value, np.zeros(free)]),
        A_ub=_below([above, below]).tocsr(),
        b_ub=np.concatenate([bands.half + bands.target, bands.half - bands.ratio * bands.target]),
        A_eq=one.tocsr(),
        b_eq=np.ones(len(curves)),
        bounds=[(0, None)] * total + [(None, None)] * free,
        method="highs",
        options={"primal_feasibility_tolerance": FINEST, "dual_feasibility_tolerance": FINEST},
    )
    if answer.x is None:
        raise ValueError(f"the linear program of thresholds found no solution: {answer.message}")
    paid = -answer.ineqlin.marginals / SCALED
    size = bands.mass.size
    parts = np.where(answer.x[:total] > NOTHING, answer.x[:total], 0.0)
    parts /= np.bincount(owner, parts, len(curves))[owner]
    places = np.concatenate(kept)
    mixed: list[Mixture] = [
        {int(at): float(part) for at, part in zip(places[owner == k], parts[owner == k], strict=True) if part}
        for k in range(len(curves))
    ]
    return mixed, answer.x[total:], (paid[:size] - paid[size:]) / bands.mass
