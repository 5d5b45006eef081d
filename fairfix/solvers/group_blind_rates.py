r"""Nearly equal rates of groups by rules that see chances of groups, but not groups.

**By chances.** With ``p = P(y=1|x)``, ``p_1 = p``, ``p_0 = 1 - p``, and ``P(a=k|x,y)`` for each value of each
protected attribute, balanced accuracy and the rates of a decision ``A(x)`` in [0, 1] are linear in it:

.. math::
    BA = \tfrac12 + E\, c_0 A,\quad c_0 = \tfrac12 \left[ \frac{p_1}{\pi_1} - \frac{p_0}{\pi_0} \right], \qquad
    r_{yk} - r_y = E\, z_{yk} A,\quad z_{yk} = \frac{p_y P(a=k|x,y)}{\pi_{yk}} - \frac{p_y}{\pi_y} ,

``pi`` the means of the numerators. The greatest ``BA`` with ``|r_{yk} - r_y| <= tol`` for all ``y`` and ``k`` is a
linear program, whose prices ``mu`` make the rule: it accepts where ``c = c_0 + z' mu > 0``. By its dual no decision
exceeds ``E max(0, c) + tol |mu|_1``.

**On the rows.** Where the chances are off, or many rows share one value, the rates of the rows are not equal. Rules are
still the right ones to choose among: whatever prices ``mu`` the constraints on the rows have, the blind rule that is
best at these prices accepts where ``c_0 + z' mu > 0``. So :func:`held_rates` solves the linear program

.. math::
    \max_{t \ge 0,\, \sum t = 1} \sum_r t_r\, BA_r \quad\text{s.t.}\quad
    \Big| \sum_r t_r\, g_{r, yk} \Big| \le slack

over rules ``r``, with the balanced accuracies ``BA_r`` and the gaps ``g`` that the rows themselves have, with columns
that its own prices make. To accept all and to accept none are among its columns and have no gap, so it always has a
solution.

References
----------
M. Yurochkin and Y. Sun, *SenSeI: Sensitive set invariance for enforcing individual fairness*, ICLR 2021, for the
balanced accuracy; A. Agarwal et al., *A reductions approach to fair classification*, ICML 2018, for the columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import linprog

from fairfix.solvers.arrays import Floats, Ints, shares_of
from fairfix.solvers.mixtures import EXACT, best_mixture

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

Chances = Sequence[tuple[Floats, Floats]]
"""For each protected attribute ``P(a=k | x, y=1)`` and ``P(a=k | x, y=0)``, shape (n, K) each."""

# ---------------------------------------------------------------------- by chances


@dataclass(frozen=True, eq=False)
class EqualRates:
    """A rule of nearly equal rates by chances of groups: accept where :meth:`score` > 0."""

    mu: tuple[tuple[Floats, Floats], ...]
    """Multiplier of each group of each attribute: of ``y = 1``, then of ``y = 0``, shape (K,) each."""
    prior: tuple[float, float]
    """``pi_0`` and ``pi_1``."""
    cells: tuple[tuple[Floats, Floats], ...]
    """``pi_1k`` and ``pi_0k`` of each attribute."""
    value: float
    bound: float
    """``value`` and ``bound``: balanced accuracy of the best randomised decision, by the chances it was given, and the
    one that no decision within the tolerance exceeds.
    """
    converged: bool
    """Whether that decision keeps the tolerance, to rounding. Where many rows have the same chances and lie at ``c =
    0``, the rule itself may be off by up to their weight.
    """

    def score(self, p: Floats, groups: Chances) -> Floats:
        """Return ``c`` of rows from ``P(y=1|x)``, shape (n,), and the chances of their groups.

        Added column by column, so that ``c`` of a row is independent of the other rows: at the optimum many equal
        rows may lie at 0.
        """
        out = _gain(p, self.prior)
        for mu, gap in zip(self.prices, _gaps(p, groups, self.prior, self.cells), strict=True):
            out += mu * gap
        return out

    @property
    def prices(self) -> Floats:
        """All multipliers, shape (J,)."""
        return np.concatenate([np.zeros(0), *(part for pair in self.mu for part in pair)])

    def priced(self, mu: Floats) -> EqualRates:
        """Return the rule of other multipliers, shape (J,): of each attribute those of ``y = 1``, then of ``y = 0``."""
        sizes = np.cumsum([part.size for pair in self.cells for part in pair])
        parts = np.split(mu, sizes[:-1]) if sizes.size else []
        return replace(self, mu=tuple(zip(parts[::2], parts[1::2], strict=True)))


def _gain(p: Floats, prior: tuple[float, float]) -> Floats:
    """Return ``c_0``, shape (n,)."""
    return np.asarray(0.5 * (p / prior[1] - (1.0 - p) / prior[0]))


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


def equal_rates(p: Floats, groups: Chances, *, tolerance: float, weight: Floats | None = None) -> EqualRates:
    """Return the rule of the greatest balanced accuracy whose rates in groups are nearly the overall ones.

    The tolerance bounds, for every attribute, every one of its groups and ``y`` in (0, 1), how far the rate of the
    group among rows of label ``y`` is from the rate of all rows of that label: rates are shares accepted. Two groups
    then differ by at most twice as much; where there are two groups with shares ``s`` and ``1 - s`` of a label, by at
    most ``tolerance / max(s, 1 - s)``. Rates are those that the chances imply.

    ``p``: ``P(y=1|x)``, shape (n,). ``groups``: for each attribute ``P(a=k | x, y=1)`` and ``P(a=k | x, y=0)``, shape
    (n, K) each; K may differ. ``tolerance``: at least 0. ``weight``: of rows, shape (n,); None for 1 each.
    """
    share = shares_of(weight, p.size)
    if not 0 <= tolerance < math.inf:
        raise ValueError(f"the tolerance must be finite and not negative: {tolerance}")
    prior = (float(share @ (1.0 - p)), float(share @ p))
    if min(prior) <= 0 or p.min() < 0 or p.max() > 1:
        raise ValueError("p must lie in [0, 1] and not be all 0 or all 1")
    cells = tuple((share @ (p[:, None] * g1), share @ ((1.0 - p)[:, None] * g0)) for g1, g0 in groups)
    start = _gain(p, prior)
    z = np.array(_gaps(p, groups, prior, cells)).reshape(-1, p.size).T.copy()
    # in units of a row, so that the solver's tolerances are those of c
    pulls, limit = p.size * share * z.T, np.full(z.shape[1], p.size * tolerance)
    held: Any = {"A_ub": np.vstack([pulls, -pulls]), "b_ub": np.tile(limit, 2)}
    if tolerance == 0:  # a quarter of the time
        held = {"A_eq": pulls, "b_eq": limit}
    answer: Any = linprog(-p.size * share * start, **held, bounds=(0.0, 1.0), options=EXACT)
    accept = answer.x
    if tolerance == 0:
        mu = np.asarray(answer.eqlin.marginals)
    else:
        up, down = np.split(np.asarray(answer.ineqlin.marginals), 2)
        mu = up - down
    bound = 0.5 + float(share @ np.maximum(start + z @ mu, 0.0)) + tolerance * float(np.abs(mu).sum())
    gap = float(np.abs((share * accept) @ z).max(initial=0.0))
    value = 0.5 + float(share @ (start * accept))
    return EqualRates((), prior, cells, value, bound, gap <= tolerance + 1e-7).priced(mu)


# ---------------------------------------------------------------------- on the rows


@dataclass(frozen=True, eq=False)
class BlindMixture:
    """Blind rules with shares; of what these leave of 1, ``always`` accepts whatever, and the rest nobody."""

    rule: EqualRates
    """The rules but for their prices, which are below."""
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
class HeldRates:
    """A mixture and how it was found."""

    mixture: BlindMixture
    """The rule."""
    rounds: int
    """Linear programs."""


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


def held_rates(start: EqualRates, views: Sequence[View], rows: WeightedSample, slack: float) -> HeldRates:
    """Return the mixture of the greatest balanced accuracy whose rates on the rows are within the slack.

    ``start``: the rule from which prices start; each group has rows of both labels. ``views``: how members see the
    rows; the bound holds for the decisions of each view. The last one judges. ``rows``: labels and groups. ``slack``:
    largest difference of a rate of a group from the overall one.
    """
    first = start.prices
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

    def __init__(self, start: EqualRates, views: Sequence[View], rows: WeightedSample, slack: float) -> None:
        self.start, self.views, self.rows, self.slack = start, views, rows, slack
        self.prices: list[Floats] = []
        self.accuracy: list[float] = []
        self.gaps: list[Floats] = []
        self.shares = np.zeros(0)

    def add(self, mu: Floats) -> None:
        """Add the rule of some prices, unless it decides as one that is there."""
        rule = self.start.priced(mu)
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
        return BlindMixture(self.start, prices, shares, always)
