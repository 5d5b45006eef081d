r"""Nearly equal rates of groups by rules that see chances of groups, but not groups.

With ``p = P(y=1|x)``, ``p_1 = p``, ``p_0 = 1 - p``, and ``P(a=k|x,y)`` for each value of each protected attribute,
balanced accuracy and the rates of a decision ``A(x)`` in [0, 1] are linear in it:

.. math::
    BA = \tfrac12 + E\, c_0 A,\quad c_0 = \tfrac12 \left[ \frac{p_1}{\pi_1} - \frac{p_0}{\pi_0} \right], \qquad
    r_{yk} - r_y = E\, z_{yk} A,\quad z_{yk} = \frac{p_y P(a=k|x,y)}{\pi_{yk}} - \frac{p_y}{\pi_y} ,

``pi`` the means of the numerators. So the blind rule that is best at prices ``mu`` of the rates accepts where
``c = c_0 + z' mu > 0``. Where the chances are off, or many rows share one value, the rates of the rows are not those
by chances, but whatever prices the constraints on the rows have, these are the rules to choose among.
:func:`held_rates` solves the linear program

.. math::
    \max_{t \ge 0,\, \sum t = 1} \sum_r t_r\, BA_r \quad\text{s.t.}\quad
    \Big| \sum_r t_r\, g_{r, yk} \Big| \le slack

over rules ``r``, with the balanced accuracies ``BA_r`` and the gaps ``g`` that the rows themselves have, with columns
that its own prices make: at the prices, at a slow mean of all so far, which jumps about less, and halfway between. To
accept all and to accept none are among its columns and have no gap, so it always has a solution.

References
----------
M. Yurochkin and Y. Sun, *SenSeI: Sensitive set invariance for enforcing individual fairness*, ICLR 2021, for the
balanced accuracy; A. Agarwal et al., *A reductions approach to fair classification*, ICML 2018, for the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fairfix.solvers.arrays import Floats, Ints, shares_of
from fairfix.solvers.mixtures import best_mixture

ROUNDS = 60
"""Linear programs at most; on all data tried the value stood still after 10 to 30."""

STILL = 8
"""Linear programs without any gain after which the search ends: prices jump about before they settle."""

PACE = 0.2
"""Part of the new prices in the slow mean."""

GAIN = 1e-5
"""Balanced accuracy that counts as a gain: a thousandth of a point."""

WORTH = 1e-3
"""Balanced accuracy that a decision without chance may cost against one that draws: a tenth of a point."""

LEAST = 1e-7
"""Share of a mixture below which a rule is rounding of the linear program."""

Chances = Sequence[tuple[Floats, Floats]]
"""For each protected attribute ``P(a=k | x, y=1)`` and ``P(a=k | x, y=0)``, shape (n, K) each."""


@dataclass(frozen=True, eq=False)
class GroupBlindRule:
    """A rule that pays for rates by chances of groups: accept where :meth:`score` > 0."""

    mu: tuple[tuple[Floats, Floats], ...]
    """Multiplier of each group of each attribute: of ``y = 1``, then of ``y = 0``, shape (K,) each."""
    prior: tuple[float, float]
    """``pi_0`` and ``pi_1``."""
    cells: tuple[tuple[Floats, Floats], ...]
    """``pi_1k`` and ``pi_0k`` of each attribute."""

    @classmethod
    def of(cls, p: Floats, groups: Chances, weight: Floats | None = None) -> GroupBlindRule:
        """Return the rule without prices.

        ``p``: ``P(y=1|x)``, shape (n,). ``groups``: for each attribute ``P(a=k | x, y=1)`` and ``P(a=k | x, y=0)``,
        shape (n, K) each; K may differ. ``weight``: of rows, shape (n,); None for 1 each.
        """
        share = shares_of(weight, p.size)
        prior = (float(share @ (1.0 - p)), float(share @ p))
        if min(prior) <= 0 or p.min() < 0 or p.max() > 1:
            raise ValueError("p must lie in [0, 1] and not be all 0 or all 1")
        cells = tuple((share @ (p[:, None] * g1), share @ ((1.0 - p)[:, None] * g0)) for g1, g0 in groups)
        return cls(tuple((0.0 * g1, 0.0 * g0) for g1, g0 in cells), prior, cells)

    def score(self, p: Floats, groups: Chances) -> Floats:
        """Return ``c`` of rows from ``P(y=1|x)``, shape (n,), and the chances of their groups.

        Added column by column, so that ``c`` of a row is independent of the other rows: at the optimum many equal
        rows may lie at 0.
        """
        out = np.asarray(0.5 * (p / self.prior[1] - (1.0 - p) / self.prior[0]))
        for mu, gap in zip(self.prices, _gaps(p, groups, self.prior, self.cells), strict=True):
            out += mu * gap
        return out

    @property
    def prices(self) -> Floats:
        """All multipliers, shape (J,)."""
        return np.concatenate([np.zeros(0), *(part for pair in self.mu for part in pair)])

    def priced(self, mu: Floats) -> GroupBlindRule:
        """Return the rule of other multipliers, shape (J,): of each attribute those of ``y = 1``, then of ``y = 0``."""
        sizes = np.cumsum([part.size for pair in self.cells for part in pair])
        parts = np.split(mu, sizes[:-1]) if sizes.size else []
        return replace(self, mu=tuple(zip(parts[::2], parts[1::2], strict=True)))


def _gaps(
    p: Floats, groups: Chances, prior: tuple[float, float], cells: Sequence[tuple[Floats, Floats]]
) -> list[Floats]:
    """Return ``z_yk``, of each attribute those of ``y = 1`` first, shape (n,) each; 0 for groups without rows."""
    out: list[Floats] = []
    for of_labels, sizes in zip(groups, cells, strict=True):
        for y in (1, 0):
            q, held = (p if y else 1.0 - p), sizes[1 - y] > 0
            ratio = np.where(held, of_labels[1 - y] / np.where(held, sizes[1 - y], 1.0), 1.0 / prior[y])
            out.extend((q[:, None] * (ratio - 1.0 / prior[y])).T)
    return out


@dataclass(frozen=True, eq=False)
class BlindMixture:
    """Blind rules with shares; of what these leave of 1, ``always`` accepts whatever, and the rest nobody."""

    rule: GroupBlindRule
    """The rule without prices, which are below."""
    prices: Floats
    """``mu`` of each, shape (R, J); it accepts where its score is above 0."""
    shares: Floats
    """Shape (R,), positive."""
    always: float
    """Share that accepts whatever."""

    def chance(self, p: Floats, groups: Chances) -> Floats:
        """Return the chance of a positive decision from ``P(y=1|x)``, shape (n,), and the chances of the groups."""
        out = np.full(p.shape, self.always)
        for mu, share in zip(self.prices, self.shares, strict=True):
            out += share * (self.rule.priced(mu).score(p, groups) > 0)
        return np.where(out > 1.0 - LEAST, 1.0, out)  # shares add up to 1 but for rounding

    @property
    def randomized(self) -> bool:
        """Whether decisions are drawn: there is more than one rule."""
        return len(self.shares) != 1 or float(self.shares[0]) < 1.0


@dataclass(frozen=True, eq=False)
class WeightedSample:
    """Labels, groups and weights of rows."""

    y: Floats
    codes: tuple[Ints, ...]
    """Group of each row for each attribute, shape (n,) each, counted from 0."""
    weight: Floats
    """``y`` and ``weight``: labels, 0 or 1, and weights of sum 1, shape (n,)."""

    def gaps(self, accepted: Floats) -> Floats:
        """Return the excess of rates of groups over the overall ones, shape (J,): per attribute ``y = 1``, then 0."""
        out = []
        for codes in self.codes:
            for label in (1.0, 0.0):
                mass = np.where(self.y == label, self.weight, 0.0)
                sizes, mean = np.bincount(codes, mass), float(mass @ accepted) / float(mass.sum())
                each = np.bincount(codes, mass * accepted) / np.where(sizes > 0, sizes, 1.0)
                out.append(np.where(sizes > 0, each - mean, 0.0))  # a group without weight has no rate
        return np.concatenate(out)

    def balanced(self, accepted: Floats) -> float:
        """Return the balanced accuracy."""
        right = np.where(self.y == 1, accepted, 1.0 - accepted)
        parts = [np.where(self.y == label, self.weight, 0.0) for label in (1.0, 0.0)]
        return float(np.mean([part @ right / part.sum() for part in parts]))


View = tuple[Floats, Chances]
"""``P(y=1|x)`` of the rows and the chances of their groups, as some members see them."""


def held_rates(
    rule: GroupBlindRule, views: Sequence[View], rows: WeightedSample, slack: float
) -> tuple[BlindMixture, int]:
    """Return the mixture of most balanced accuracy whose rates on the rows are within the slack, and how many programs.

    ``rule``: the rule without prices; each group has rows of both labels. ``views``: how members see the rows; the
    bound holds for the decisions of each view. The last one judges. ``rows``: labels and groups. ``slack``: largest
    difference of a rate of a group from the overall one.
    """
    slow = rule.prices
    search = _RateSearch(rule, views, rows, slack)
    search.add(slow)
    best, still, rounds = -np.inf, 0, 0
    while rounds < ROUNDS and still < STILL:
        rounds += 1
        value, price = search.solve()
        still = 0 if value > best + GAIN else still + 1
        best = max(best, value)
        slow = (1.0 - PACE) * slow + PACE * price
        for mu in (price, slow, 0.5 * (price + slow)):
            search.add(mu)
    search.solve()
    return search.chosen(), rounds


class _RateSearch:
    """The linear program and its columns."""

    def __init__(
        self, rule: GroupBlindRule, views: Sequence[View], rows: WeightedSample, slack: float
    ) -> None:
        self.rule, self.views, self.rows, self.slack = rule, views, rows, slack
        self.prices: list[Floats] = []
        self.accuracy: list[float] = []
        self.gaps: list[Floats] = []
        self.shares = np.zeros(0)

    def add(self, mu: Floats) -> None:
        """Add the rule of some prices, unless it decides as one that is there."""
        rule = self.rule.priced(mu)
        accepted = [(rule.score(*view) > 0).astype(float) for view in self.views]
        gaps = np.concatenate([self.rows.gaps(a) for a in accepted])
        accuracy = self.rows.balanced(accepted[-1])
        for there, gaps_there in zip(self.accuracy, self.gaps, strict=True):
            if there == accuracy and np.array_equal(gaps, gaps_there):
                return
        self.prices.append(mu)
        self.accuracy.append(accuracy)
        self.gaps.append(gaps)

    def solve(self) -> tuple[float, Floats]:
        """Return the value of the program, and the prices of its bounds as multipliers; keeps the shares."""
        gaps = np.column_stack([*self.gaps, np.zeros((self.gaps[0].size, 2))])
        worth = np.array([*self.accuracy, 0.5, 0.5])
        # to accept none keeps the slack
        best = best_mixture(-worth, np.vstack([gaps, -gaps]), np.full(2 * len(gaps), self.slack))
        assert best is not None
        self.shares = np.where(best[0] > LEAST, best[0], 0.0)
        self.shares /= self.shares.sum()
        up, down = np.split(best[1], 2)
        return -best[2], (down - up).reshape(len(self.views), -1).sum(axis=0)

    def chosen(self) -> BlindMixture:
        """Return the mixture: one rule alone, where that keeps the slack and costs next to nothing."""
        value = float(self.shares @ [*self.accuracy, 0.5, 0.5])
        alone = [
            r
            for r, gaps in enumerate(self.gaps)
            if np.abs(gaps).max() <= self.slack and self.accuracy[r] >= value - WORTH
        ]
        if alone:
            kept, shares, always = [max(alone, key=lambda r: self.accuracy[r])], np.ones(1), 0.0
        else:
            kept = np.flatnonzero(self.shares[:-2]).tolist()
            shares, always = self.shares[kept], float(self.shares[-2])
        prices = np.array([self.prices[r] for r in kept]).reshape(len(kept), self.prices[0].size)
        return BlindMixture(self.rule, prices, shares, always)
