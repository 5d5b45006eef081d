r"""The best mixture over a small class of rules whose true groups are alike whatever the noise.

A rule refuses the lowest ``c_k`` of the ``B`` bins of the score in noisy group ``k`` and accepts the rest, so that
there are ``(B + 1)^K`` rules, or ``B + 1`` with one cut for all groups. All of them are looked at. For rule ``r`` let
``e_r`` be its error, and ``g_rj`` what the worst noise for *this* rule makes of the constraint of true group ``j``.
Wanted is the distribution ``p`` over rules

.. math:: \min_p \sum_r p_r e_r \quad\text{s.t.}\quad \sum_r p_r g_{rj} \le 0 \text{ for all } j, \qquad p \ge 0,
    \; \sum_r p_r = 1 ,

a linear program whose vertices mix no more rules than there are rows; or the best single rule, for decisions without a
draw. It bounds any noise, also one that knows which rule was drawn (``docs/methods/noise.md``).

References
----------
S. Wang, W. Guo, H. Narasimhan, A. Cotter, M. Gupta and M. I. Jordan, *Robust optimization for fairness with noisy
protected groups* (2020), for the game; A. Cotter and others, *Two-player games for efficient non-convex constrained
optimization* (2019), for the program that replaces it where the rules are at hand.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fairfix.noise.rates import Floats, Parity, cells_of, require_labels
from fairfix.noise.thresholds import NoisyRepair
from fairfix.noise.training import HOLDS, Adversary, excess_of
from fairfix.solvers.mixtures import best_mixture as least_cost_mixture
from fairfix.solvers.mixtures import matrix_game

Ints = npt.NDArray[np.int64]

MOST = 200_000
"""Rules of a class that is small."""

USUAL = 50_000
"""Rules of the class that is taken if nobody says how many bins there are."""

AT_ONCE = 10_000
"""Rules whose worst cases are in memory together."""


def rules_of(bins: int, groups: int) -> int:
    """Return how many rules there are."""
    return int((bins + 1) ** groups)


def usual_bins(groups: int, most: int) -> int:
    """Return the largest number of bins whose rules are no more than usual."""
    return next((bins for bins in range(most, 1, -1) if rules_of(bins, groups) <= USUAL), 1)


def solve_ideal(
    mass: Floats,
    adversary: Adversary,
    parity: Parity,
    slack: float,
    *,
    blind: bool = False,
    single: bool = False,
) -> NoisyRepair:
    """Return the mixture of least error whose constraint holds for the worst noise of each of its rules.

    Masses are by noisy group, bin in increasing order of the score and label, shape (K, B, 2), of total 1; if
    ``blind``, all noisy groups have one cut, and if ``single``, one rule is wanted and no mixture. ``excess`` of the
    result is the mean over the rules that are mixed, ``programs`` the number of rules.
    """
    noisy, bins, _ = mass.shape
    free = 1 if blind else noisy
    many = rules_of(bins, free)
    if many > MOST:
        raise ValueError(f"{bins} bins of {noisy} groups make {many:,} rules; at most {MOST:,} are supported")
    require_labels(mass.sum((0, 1)), parity)
    cuts = np.indices((bins + 1,) * free).reshape(free, -1)
    cuts = np.broadcast_to(cuts, (noisy, many))
    errors, excess = judged_cuts(mass, cuts, adversary, parity, slack)
    over = np.nan_to_num(excess.reshape(many, -1), nan=0.0)
    if single:
        share, feasible = _best(errors, over)
    else:
        best = best_mixture(errors, over)
        share, feasible = best.share, best.feasible
    mixed = np.flatnonzero(share > 0)
    F = (np.arange(bins)[:, None] >= cuts[:, None, mixed]) @ share[mixed]
    error = float(share[mixed] @ errors[mixed])
    over = np.tensordot(share[mixed], excess[mixed], axes=1)
    return NoisyRepair(F, error, over, feasible, error if feasible else np.nan, many)


def judged_cuts(
    mass: Floats, cuts: Ints, adversary: Adversary, parity: Parity, slack: float
) -> tuple[Floats, Floats]:
    """Return the errors of rules, shape (R,), and by how much their worst cases miss limits, shape (R, rates, J).

    Masses as in :func:`solve_ideal`; ``cuts`` say how many of the lowest bins each rule refuses, shape (K, R).
    """
    below = np.concatenate([np.zeros_like(mass[:, :1]), np.cumsum(mass, axis=1)], axis=1)
    above = np.maximum(below[:, -1:] - below, 0.0)
    above[:, -1], above[:, 0] = 0.0, below[:, -1]
    errors, over = [], []
    for first in range(0, cuts.shape[1], AT_ONCE):
        at = cuts[:, first : first + AT_ONCE].T
        taken, left = (part[np.arange(len(mass)), at] for part in (above, below))
        cells = cells_of(taken, left)
        errors.append(cells[..., [1, 2]].sum((1, 2)))
        over.append(excess_of(cells, adversary, parity, slack))
    return np.concatenate(errors), np.concatenate(over)


@dataclass(frozen=True, eq=False)
class RuleMixture:
    """A mixture of rules."""

    share: Floats
    """Probability of each rule, shape (R,)."""
    feasible: bool
    """Whether the constraint holds; if not, it is missed by the least."""
    prices: Floats
    """Decrease of the error for a limit that is less strict by 1, shape of a rule's worst cases."""
    level: float
    """Limit that the error and the priced excess of another rule must be below to improve the mixture."""


def best_mixture(errors: Floats, excess: Floats) -> RuleMixture:
    """Return the best mixture of rules of errors (R,) and excess (R, M).

    The right-hand sides of its limits are 0, so that the least error is also the multiplier of the sum of the shares.
    """
    solved = least_cost_mixture(errors, excess.T, np.zeros(excess.shape[1]))
    if solved is not None:
        share, prices, level = solved
    else:
        share, prices = matrix_game(excess)
        level = float((share @ excess).max())
    share = np.where(share > HOLDS, share, 0.0)
    return RuleMixture(share / share.sum(), solved is not None, prices, level)


def _best(errors: Floats, excess: Floats) -> tuple[Floats, bool]:
    """Return all of the share at the best single rule, and whether the constraint holds."""
    over = np.maximum(excess.max(1), 0.0)
    over[over <= HOLDS] = 0.0
    share = np.zeros(errors.size)
    at = int(np.lexsort((errors, over))[0])
    share[at] = 1.0
    return share, bool(over[at] == 0)
