r"""Equal rates that hold on the rows of the fit: a mixture of blind rules, chosen by what these rows show.

:func:`fairfix.optim.sensei.equal_rates` makes rates alike *as chances say* that were learned. Where the chances are
off, or many rows share one value, the rates of the rows are not. Rules are still the right ones to choose among:
whatever prices ``mu`` the constraints on the rows have, the blind rule that is best at these prices accepts where
``c_0 + z' mu > 0``, with the chances for what cannot be seen. So the linear program

.. math::
    \max_{t \ge 0,\, \sum t = 1} \sum_r t_r\, BA_r \quad\text{s.t.}\quad
    \Big| \sum_r t_r\, g_{r, yk} \Big| \le slack

over rules ``r``, with the balanced accuracies ``BA_r`` and the gaps ``g`` that the rows themselves have, is solved with
columns that its own prices make, as in the reduction of Agarwal et al. (2018). To accept all and to accept none are
among its columns and have no gap, so it always has a solution.

References
----------
A. Agarwal et al., *A reductions approach to fair classification*, ICML 2018.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog

from fairfix.optim.sensei import Chances, EqualRates

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

ROUNDS = 60
"""Linear programs at most; on all data tried the value stood still after 10 to 30."""

STILL = 8
"""Linear programs without any gain after which the search ends: prices jump about before they settle."""

GAIN = 1e-5
"""Balanced accuracy that counts as a gain: a thousandth of a point."""

WORTH = 1e-3
"""Balanced accuracy that a decision without chance may cost against one that draws: a tenth of a point."""

LEAST = 1e-7
"""Share of a mixture below which a rule is rounding of the linear program."""


@dataclass(frozen=True, eq=False)
class BlindMixture:
    """Blind rules with shares; of what these leave of 1, ``always`` accepts whatever, and the rest nobody.

    Attributes
    ----------
    rule
        What the rules have in common: all but the prices.
    prices
        ``mu`` of each, shape (R, J); it accepts where its score is above 0.
    shares
        Shape (R,), positive.
    always
        Share that accepts whatever.
    """

    rule: EqualRates
    prices: Floats
    shares: Floats
    always: float

    def chance(self, p: Floats, groups: Chances) -> Floats:
        """Return the chance of a positive decision from ``P(y=1|x)``, shape (n,), and the chances of the groups."""
        out = np.full(p.shape, self.always)
        for mu, share in zip(self.prices, self.shares, strict=True):
            out += share * (self.rule.priced(mu).score(p, groups) > 0)
        return np.clip(out, 0.0, 1.0)

    @property
    def randomized(self) -> bool:
        """Whether decisions are drawn: there is more than one rule."""
        return len(self.shares) != 1 or float(self.shares[0]) < 1.0


@dataclass(frozen=True, eq=False)
class HeldRates:
    """A mixture and how it was found.

    Attributes
    ----------
    mixture
        The rule.
    rounds
        Linear programs.
    """

    mixture: BlindMixture
    rounds: int


@dataclass(frozen=True, eq=False)
class Rows:
    """What is known of rows: labels, groups and weights.

    Attributes
    ----------
    y, weight
        Labels, 0 or 1, and weights of sum 1, shape (n,).
    codes
        Group of each row for each attribute, shape (n,) each, all from 0 on.
    """

    y: Floats
    codes: tuple[Ints, ...]
    weight: Floats

    def gaps(self, accepted: Floats) -> Floats:
        """Return by how much rates of groups are above everybody's: per attribute for ``y = 1``, then 0; shape (J,)."""
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


def held_rates(start: EqualRates, views: Sequence[View], rows: Rows, slack: float) -> HeldRates:
    """Return the mixture of the greatest balanced accuracy whose rates on the rows are within the slack.

    Parameters
    ----------
    start
        The rule from which prices start; each group has rows of both labels.
    views
        How members see the rows; the bound holds for the decisions of each view. The last one judges.
    rows
        Labels and groups.
    slack
        Largest difference of a rate of a group from everybody's.
    """
    first = np.concatenate([part for pair in start.mu for part in pair])
    search = _Search(start, views, rows, slack)
    for factor in (0.0, 0.5, 0.75, 1.0, 1.25, 1.5):
        search.add(factor * first)
    best, still, rounds = -np.inf, 0, 0
    while rounds < ROUNDS and still < STILL:
        rounds += 1
        value, price = search.solve()
        still = 0 if value > best + GAIN else still + 1
        best = max(best, value)
        search.add(price)
        search.add(0.5 * (price + first))
    search.solve()
    return HeldRates(search.chosen(), rounds)


class _Search:
    """The linear program and its columns."""

    def __init__(self, start: EqualRates, views: Sequence[View], rows: Rows, slack: float) -> None:
        self.start, self.views, self.rows, self.slack = start, views, rows, slack
        self.prices: list[Floats] = []
        self.accuracy: list[float] = []
        self.gaps: list[Floats] = []
        self.shares = np.zeros(0)

    def add(self, mu: Floats) -> None:
        """Add the rule of some prices, unless it decides as one that is there."""
        rule = self.start.priced(mu)
        accepted = [(rule.score(*view) > 0).astype(float) for view in self.views]
        gaps, accuracy = (
            np.concatenate([self.rows.gaps(a) for a in accepted]),
            self.rows.balanced(accepted[-1]),
        )
        for there, known in zip(self.accuracy, self.gaps, strict=True):
            if there == accuracy and np.array_equal(gaps, known):
                return
        self.prices.append(mu)
        self.accuracy.append(accuracy)
        self.gaps.append(gaps)

    def solve(self) -> tuple[float, Floats]:
        """Return the value of the program, and the prices of its bounds as multipliers; keeps the shares."""
        gaps = np.column_stack([*self.gaps, np.zeros((self.gaps[0].size, 2))])
        worth = np.array([*self.accuracy, 0.5, 0.5])
        found = linprog(
            -worth,
            np.vstack([gaps, -gaps]),
            np.full(2 * len(gaps), self.slack),
            np.ones((1, worth.size)),
            [1.0],
            bounds=(0.0, 1.0),
            method="highs",
        )
        assert found.x is not None  # to accept none is feasible
        self.shares = np.where(found.x > LEAST, found.x, 0.0)
        self.shares /= self.shares.sum()
        up, down = np.split(-np.asarray(found.ineqlin.marginals), 2)
        return -float(found.fun), (down - up).reshape(len(self.views), -1).sum(axis=0)

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
        return BlindMixture(self.start, prices, shares, always)
