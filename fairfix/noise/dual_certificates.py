r"""Prices of rows: worst cases of true groups bounded by means over rows, for a population that is known by a sample.

The rate of true group ``j`` is at most ``h`` in a population if no masses ``z`` of the group that the noise allows have
``sum z v > 0``, with ``v = q - h`` for rows that the rate is about, ``q`` their chance, and 0 for others; it is at
least ``h`` if that is so of ``-v``. This largest sum is a linear program whose right-hand side are masses of the rows.
By weak duality it is at most ``E[u]``, the mean of a price ``u`` for each row, for *any* multipliers, wherever the
masses come from. So multipliers are chosen on some rows, and ``E[u] <= 0`` is then a statement about the mean of a
number with ends, which other rows prove without a word of the noise.

With boxes ``low <= table <= high``, such as Clopper and Pearson's limits of a survey:

=========================  =================================================  =========================================
noise                      masses                                             dual value of a row of group k
=========================  =================================================  =========================================
``TrueGivenRecorded``      ``sum z_jk = C_jk n_k``, ``z <= n``                ``(v - t_k)+ + max(t_k C_jk)``
``RecordedGivenTrue``      ``sum z_jk = T_jk p_j``, ``sum_j T_jk p_j = n_k``  ``(v - t_k)+ + b_k + e``
``ClassConditionalProof``  ``z_jk(c) = T_jk w_j(c)``, ``sum_j = n_k(c)``      ``b_k(c) + e(c)``
``TotalVariationProof``    of ``j``: within total variation ``r_j``           ``1[k = j] {max(v, t) + r_j (vmax - t)}``
``KnownMembershipProof``   ``sum z = p_j n`` among rows of equal ``p``        ``(v - t(p))+ + t(p) p_j``
=========================  =================================================  =========================================

``e = max_i max_T sum_k T_ik (x_k 1[i = j] - b_k)`` with ``x = t``, or ``x = v``, is what multipliers ``b`` leave over:
nothing for ``b = g max_T sum_k T_jk x_k`` with ``sum_k T_ik g_k >= 1[i = j]`` for all tables of the box (``<=`` where
that sum is negative). The mean of ``g`` bounds the share of group ``j``. Labels of a recorded group are recorded
groups of their own where the table is by label. Derivation in docs/guarantee.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog

from fairfix.noise.rates import LABELS, Floats

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RuledRows:
    """Rows by recorded group, label and what each recorded group's rule gives them; equal ones are one entry."""

    group: Ints
    label: Ints
    """Shape (m,) both."""
    chance: Floats
    """Shape (m, K)."""
    mass: Floats
    """Shape (m,), of sum 1."""
    member: Floats
    """Probabilities to be of each true group, shape (m, J), or (m, 0) where rows have none."""

    @classmethod
    def of(cls, group: Ints, label: Ints, chance: Floats, member: Floats | None = None) -> RuledRows:
        """Return the entries of rows, shapes (n,), (n,), (n, K) and (n, J)."""
        each = np.column_stack([group, label, chance, *([] if member is None else [member])])
        keys, number = np.unique(each, axis=0, return_inverse=True)
        many, end = np.bincount(number.ravel(), minlength=len(keys)), 2 + chance.shape[1]
        group, label = (keys[:, at].astype(np.int64) for at in (0, 1))
        return cls(group, label, keys[:, 2:end], many / len(each), keys[:, end:])

    @cached_property
    def own(self) -> Floats:
        """The chance of each entry by its own group's rule."""
        return np.asarray(self.chance[np.arange(self.group.size), self.group])

    @cached_property
    def inside(self) -> dict[str, npt.NDArray[np.bool_]]:
        """Rate -> which entries it is about."""
        return {rate: np.isin(self.label, labels) for rate, labels in LABELS.items()}


@dataclass(frozen=True)
class RateHypothesis:
    """The rate of true group ``group`` is at most ``limit`` (side 1), or at least (-1)."""

    rate: str
    group: int
    side: float
    limit: float = 1.0

    def at(self, distance: float) -> RateHypothesis:
        """Return it with a limit at a distance from the end that says nothing less: 0 above, 1 below."""
        return replace(self, limit=distance if self.side > 0 else 1.0 - distance)

    def violation(self, rows: RuledRows, chance: Floats) -> Floats:
        """Return ``v`` of chances, shape (m,) or (m, K): above 0 where a row speaks against it."""
        about = rows.inside[self.rate]
        return np.where(about if chance.ndim == 1 else about[:, None], self.side * (chance - self.limit), 0.0)

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the largest ``v`` of any row, 0 among them."""
        both = sorted((self.side * (0.0 - self.limit), self.side * (1.0 - self.limit)))
        return min(both[0], 0.0), max(both[1], 0.0)


DualValues = tuple[Floats, Floats, float, float]
"""Prices of the rows by which multipliers were chosen, those of other rows, and ends that no row's price is beyond."""


class AllowedGroups(ABC):
    """All true groups that an assumption allows."""

    @abstractmethod
    def dual_values(self, asked: RateHypothesis, fit: RuledRows, other: RuledRows) -> DualValues:
        """Return prices by the multipliers that are best for the training rows."""


@dataclass(frozen=True, eq=False)
class TrueGivenRecorded(AllowedGroups):
    """``P(true | recorded)`` is that of a table, or ``P(true | recorded, label)``."""

    low: Floats
    high: Floats
    """Shape (J, K), or by label (2, J, K)."""

    def dual_values(self, asked: RateHypothesis, fit: RuledRows, other: RuledRows) -> DualValues:
        """Choose a threshold for each recorded group, or group and label: each is a knapsack."""
        low, high = (one[..., asked.group, :] for one in (self.low, self.high))  # (K,), or (2, K)
        low, high, where = low.ravel(), high.ravel(), [_block(rows, low) for rows in (fit, other)]
        v = asked.violation(fit, fit.own)
        t = np.zeros(low.size)
        for k in np.unique(where[0]):
            inside = where[0] == k
            t[k] = _threshold(v[inside], fit.mass[inside], low[k], high[k])
        fixed = np.maximum(t * low, t * high)
        prices = [
            np.maximum(asked.violation(rows, rows.own) - t[at], 0.0) + fixed[at]
            for rows, at in zip((fit, other), where, strict=True)
        ]
        least, most = (np.maximum(end - t, 0.0) + fixed for end in asked.ends)
        return prices[0], prices[1], float(least.min()), float(most.max())


@dataclass(frozen=True, eq=False)
class RecordingTable(AllowedGroups):
    """Joint masses that a table of ``P(recorded | true)`` allows, or of ``P(recorded | true, label)``."""

    low: Floats
    high: Floats
    table: Floats
    """The most likely of those within the box, shape (J, K), or by label (2, J, K)."""
    _priced_shares: dict[tuple[RuledRows, int | None, int], tuple[Floats, Floats]] = field(
        default_factory=dict
    )
    """Shares that were asked for."""

    def _parts(self) -> list[tuple[int | None, Floats, Floats, Floats]]:
        """Return the tables of each label, or the one of both."""
        if self.table.ndim == 2:
            return [(None, self.low, self.high, self.table)]
        return [(label, self.low[label], self.high[label], self.table[label]) for label in (0, 1)]

    def _shares(
        self, fit: RuledRows, part: int | None, low: Floats, high: Floats, group: int
    ) -> tuple[Floats, Floats]:
        """Return prices of recorded groups, (K,) each, whose means are above and below the share of a true group.

        ``g`` is no less if every table of the box gives group ``group`` at least 1 by ``g``, and the others at least 0.
        """
        key = fit, part, group
        if key not in self._priced_shares:
            own = np.where(_of_part(fit, part), fit.mass, 0.0)
            mass = np.asarray(np.bincount(fit.group, own, low.shape[1]), dtype=np.float64)
            ends = [sign * _dearest(mass, low, high, group, sign) for sign in (1.0, -1.0)]
            self._priced_shares[key] = ends[0], ends[1]
        return self._priced_shares[key]


@dataclass(frozen=True, eq=False)
class RecordedGivenTrue(RecordingTable):
    """Recording may depend on anything; only the number of each true group recorded as each group is fixed."""

    def dual_values(self, asked: RateHypothesis, fit: RuledRows, other: RuledRows) -> DualValues:
        """Choose a threshold for each recorded group, or group and label, for a group of the size of the fit's."""
        v, j = asked.violation(fit, fit.own), asked.group
        prices, ends = [np.zeros(rows.group.size) for rows in (fit, other)], [(0.0, 0.0)]
        for part, low, high, table in self._parts():
            inside = _of_part(fit, part)
            most, least = self._shares(fit, part, low, high, j)
            mass = np.bincount(fit.group[inside], fit.mass[inside], low.shape[1])
            t = np.zeros(low.shape[1])
            for k in np.flatnonzero(mass > 0):
                here = inside & (fit.group == k)
                budget = [table[j, k] * max(float(mass @ g), 0.0) / mass[k] for g in (least, most)]
                t[k] = _threshold(v[here], fit.mass[here], *budget)
            worst = float(_most(low[j][None], high[j][None], t[None, None])[0])
            fixed = _left_over(worst, most, least, low, high, t[None], j)[0]
            for rows, into in zip((fit, other), prices, strict=True):
                at = _of_part(rows, part)
                of = rows.group[at]
                into[at] = np.maximum(asked.violation(rows, rows.own)[at] - t[of], 0.0) + fixed[of]
            lows, highs = (np.maximum(end - t, 0.0) + fixed for end in asked.ends)
            ends.append((float(lows.min()), float(highs.max())))
        return prices[0], prices[1], min(low for low, _ in ends), max(high for _, high in ends)


@dataclass(frozen=True, eq=False)
class ClassConditionalProof(RecordingTable):
    """Recording is the same whatever the score is, but for what the box leaves open."""

    def dual_values(self, asked: RateHypothesis, fit: RuledRows, other: RuledRows) -> DualValues:
        """Undo the recording; nothing is chosen but what a row of a recorded group tells of the true one's share."""
        prices, largest = [np.zeros(rows.group.size) for rows in (fit, other)], 0.0
        for part, low, high, _ in self._parts():
            most, least = self._shares(fit, part, low, high, asked.group)
            largest = max(largest, float(np.abs([most, least]).max()))
            for rows, into in zip((fit, other), prices, strict=True):
                at = _of_part(rows, part)
                v = asked.violation(rows, rows.chance)[at]
                worst = _most(low[asked.group][None], high[asked.group][None], v[:, None, :])
                fixed = _left_over(worst[:, None], most, least, low, high, v, asked.group)
                into[at] = fixed[np.arange(len(fixed)), rows.group[at]]
        worst_of_all = max(
            abs(end) for end in asked.ends
        )  # prices are at most as many times it, and as much left over
        far = worst_of_all * (2.0 * largest + 1.0)
        return prices[0], prices[1], -far, far


@dataclass(frozen=True, eq=False)
class TotalVariationProof(AllowedGroups):
    """A true group is within total variation of a recorded group."""

    radii: Floats
    """Shape (J,)."""
    home: Ints
    """Number of the recorded group that each is near, shape (J,)."""

    def dual_values(self, asked: RateHypothesis, fit: RuledRows, other: RuledRows) -> DualValues:
        """Choose the worth below which mass is moved to where it is largest."""
        home, radius, (least, most) = (
            int(self.home[asked.group]),
            float(self.radii[asked.group]),
            asked.ends,
        )
        v, mine = asked.violation(fit, fit.own), fit.group == home
        ways = np.unique(np.append(v[mine], least))
        total = [
            float(fit.mass[mine] @ np.maximum(v[mine], t)) + radius * (most - t) * float(fit.mass[mine].sum())
            for t in ways
        ]
        t = float(ways[int(np.argmin(total))])
        prices = [
            np.where(
                rows.group == home, np.maximum(asked.violation(rows, rows.own), t) + radius * (most - t), 0.0
            )
            for rows in (fit, other)
        ]
        return prices[0], prices[1], min(t + radius * (most - t), 0.0), max(most + radius * (most - t), 0.0)


PARTS = 20
"""Parts of the rows, by their probability to be of a group, that have a threshold each; any number is allowed."""


@dataclass(frozen=True, eq=False)
class KnownMembershipProof(AllowedGroups):
    """Among rows of equal membership probabilities, a fraction of the probability is of a true group."""

    independent: bool
    """Whether that is so whatever the rule and the label are."""

    def dual_values(self, asked: RateHypothesis, fit: RuledRows, other: RuledRows) -> DualValues:
        """Choose a threshold for each part of the rows; who is independent is of a group by the probability."""
        least, most = asked.ends
        p, v = zip(
            *((rows.member[:, asked.group], asked.violation(rows, rows.own)) for rows in (fit, other)),
            strict=True,
        )
        if self.independent:
            return v[0] * p[0], v[1] * p[1], least, most
        edges = np.unique(p[0])[1:]
        if edges.size >= PARTS:
            edges = np.unique(np.quantile(p[0], np.arange(1, PARTS) / PARTS))
        at = [np.searchsorted(edges, one, side="right") for one in p]
        t = np.zeros(edges.size + 1)
        for k in np.unique(at[0]):
            inside = at[0] == k
            share = float(np.average(p[0][inside], weights=fit.mass[inside]))
            t[k] = _threshold(v[0][inside], fit.mass[inside], share, share)
        prices = [np.maximum(w - t[part], 0.0) + t[part] * one for w, part, one in zip(v, at, p, strict=True)]
        low, high = (np.maximum(end - t, 0.0) for end in (least, most))
        return (
            prices[0],
            prices[1],
            float((low + np.minimum(t, 0.0)).min()),
            float((high + np.maximum(t, 0.0)).max()),
        )


@dataclass(frozen=True, eq=False)
class PossibleTrueGroups:
    """True groups behind recorded ones, as far as an assumption tells."""

    recorded: tuple[str, ...]
    true: tuple[str, ...]
    demands: tuple[tuple[str, float], ...]
    """Rates, with 1 where no group may be below the overall rate, -1 where above."""
    exact: tuple[AllowedGroups, ...]
    """Joint masses that are possible, the table taken as known."""
    allowed: tuple[AllowedGroups, ...]
    """The same, with what a survey leaves open."""
    surveyed: bool
    """Whether the table is a survey."""
    words: str
    """Assumptions, as the end of a sentence."""
    columns: tuple[str, ...] = ()
    """Those of probabilities of membership of each true group, where rows have such."""


def _block(rows: RuledRows, entries: Floats) -> Ints:
    """Return the number of each row's recorded group, or of its group and label where the table is by label."""
    groups = rows.chance.shape[1]
    return rows.group if entries.size == groups else rows.group + groups * rows.label


def _of_part(rows: RuledRows, label: int | None) -> npt.NDArray[np.bool_]:
    return np.full(rows.group.size, True) if label is None else rows.label == label


def _threshold(v: Floats, mass: Floats, low: float, high: float) -> float:
    """Return the ``t`` of least ``sum mass (v - t)+ + sum mass max(t low, t high)``: one of ``v``, or 0."""
    ways, at = np.unique(np.append(v, 0.0), return_inverse=True)
    mass = np.append(mass, 0.0)
    above = np.cumsum(np.bincount(at, mass)[::-1])[::-1]  # mass of what is at least each of them
    steps = np.append(np.diff(ways) * above[1:], 0.0)
    over = np.cumsum(steps[::-1])[::-1]
    return float(ways[int(np.argmin(over + mass.sum() * np.maximum(ways * low, ways * high)))])


def _most(low: Floats, high: Floats, worth: Floats) -> Floats:
    """Return the largest ``sum_k T_ik worth_ik`` of any row ``i`` of a table in the box, worth (m, J, K) to (m,)."""
    order = np.argsort(-worth, axis=-1, kind="stable")
    low, high = np.broadcast_to(low, worth.shape), np.broadcast_to(high, worth.shape)
    sorted_low, room = np.take_along_axis(low, order, -1), np.take_along_axis(high - low, order, -1)
    left = 1.0 - low.sum(-1, keepdims=True)
    taken = np.clip(left - (np.cumsum(room, -1) - room), 0.0, room)
    return np.asarray(((sorted_low + taken) * np.take_along_axis(worth, order, -1)).sum(-1).max(-1))


def _left_over(
    worst: Floats | float, most: Floats, least: Floats, low: Floats, high: Floats, x: Floats, group: int
) -> Floats:
    """Return prices ``b`` of recorded groups, (m, K), that no table of the box leaves below ``T x`` of the group.

    ``worst``: the largest ``T x`` of the group, (m, 1), with ``x`` of shape (m, K). What the solver of the shares has
    left over is added.
    """
    b = np.where(np.asarray(worst) > 0, worst * most, worst * least)
    b = np.broadcast_to(b, x.shape)
    left = np.repeat(-b[:, None, :], len(low), axis=1)
    left[:, group] += x
    return np.asarray(b + np.maximum(_most(low, high, left), 0.0)[:, None])


FARTHEST = 100.0
"""Prices of shares are no larger, so that few rows do not make them so; any are allowed."""


def _dearest(mass: Floats, low: Floats, high: Floats, group: int, least: float) -> Floats:
    """Return the cheapest ``g`` by which every table of the box has at least ``least`` for a group, and 0 for others.

    The least of ``T g`` over a row of the box is the largest ``m + sum_k low (g - m)+ - high (m - g)+``.
    """
    groups, width = low.shape
    size = width + groups + groups * width  # g, the level m of each row, and (m - g)+
    rows, right = [], []
    for i in range(groups):
        row = np.zeros(size)
        row[:width] = -low[i]
        row[width + i] = -(1.0 - low[i].sum())
        first = width + groups + i * width
        row[first : first + width] = high[i] - low[i]
        rows.append(row)
        right.append(-least if i == group else 0.0)
        for k in range(width):
            under = np.zeros(size)
            under[k], under[width + i], under[first + k] = -1.0, 1.0, -1.0
            rows.append(under)
            right.append(0.0)
    bounds = [(-FARTHEST, FARTHEST)] * (width + groups) + [(0.0, None)] * (groups * width)
    goal = np.append(mass, np.zeros(size - width))
    answer = linprog(goal, A_ub=np.array(rows), b_ub=np.array(right), bounds=bounds, method="highs")
    if answer.status == 0 and answer.x is not None:
        return np.asarray(answer.x[:width])
    return np.full(width, max(least, 0.0))  # a share is at most 1, and at least 0
