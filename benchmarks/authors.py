r"""The ramp by the schedule that its authors published: stochastic, then full dual gradient steps.

For each group ``k`` the problem of :mod:`fairfix.methods.ramp` has two multipliers, ``lambda`` for ``m_k <= rho + d``
and ``mu`` for ``m_k >= rho - d`` (``d = slack / 2``), and the rule ``q = clip((f - lambda + mu) / gamma, 0, 1)``.
The dual gradients are ``d + rho - mean(q)`` and ``d - rho + mean(q)``. The schedule, facts only:

1. ``rho`` is given, or the mean score carried to [0, 1]: ``(mean f + 1) / 2``.
2. From ``lambda = mu = 0``, 10,000 steps on batches of 256 rows of the group, drawn with replacement. The step is
   ``gamma sqrt(batch / steps)``. What is kept is the mean of all iterates.
3. From that mean, 1,000 steps on all rows of the group with step ``gamma / 2``.
4. With ``d > 0.001`` both multipliers are kept nonnegative after each step; below, ``lambda`` alone moves, with any
   sign, while its gradient keeps its ``d``.

The fourth rule has a consequence: for ``0 < slack <= 0.002`` the rates go to ``rho + d`` rather than into the band.

Written anew from the paper and from what the published code does. A step does the same array operations: the rows of
the group, or of the batch, are gathered from the whole data in every step. What the published code does once per fit
in Python loops over the rows (checks, mean, members of the groups) is done on whole arrays here, so a fit measured
against this module is measured against no more than the original. The original predicts row by row, as
:meth:`AuthorsRule.predict_by_row` does; :meth:`AuthorsRule.predict` is the same rule on whole arrays.

Sources: I. Alabdulmohsin and M. Lucic, *A near-optimal algorithm for debiasing trained machine learning models*
(2021), algorithm 1; and their code, ``ml_debiaser/randomized_threshold.py`` in ``google-research/google-research``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

BOTH_MOVE = 1e-3
"""Half width of the band above which both multipliers are kept."""

GAMMAS = tuple(float(gamma) for gamma in np.geomspace(0.01, 1.0, 13))
"""Widths to choose from on a validation part."""

RATES = (-0.1, -0.05, 0.0, 0.05, 0.1)
"""Common rates to choose from, as the paper has them: distances from the base rate."""


def grid(label: Ints) -> list[tuple[float, float]]:
    """Return the 65 pairs of width and common rate for labels 0/1."""
    base = float(np.mean(label))
    return [(gamma, min(max(base + more, 0.0), 1.0)) for gamma in GAMMAS for more in RATES]


@dataclass(frozen=True)
class AuthorsRule:
    """A ramp per group: ``q = clip((f - lambda + mu) / gamma, 0, 1)``.

    Attributes
    ----------
    upper, lower
        ``lambda`` and ``mu`` per group, shape (K,) each.
    gamma
        Width of the ramp.
    """

    upper: Floats
    lower: Floats
    gamma: float

    @property
    def offsets(self) -> Floats:
        """``lambda - mu`` per group, shape (K,)."""
        return self.upper - self.lower

    def predict(self, scores: Floats, groups: Ints) -> Floats:
        """Return the probability of a positive decision per row, shape (n,)."""
        return np.clip((scores - self.offsets[groups]) / self.gamma, 0.0, 1.0)

    def predict_by_row(self, scores: Floats, groups: Ints) -> Floats:
        """Return the same, one row after the other as in the original."""
        chance = np.zeros(len(scores))
        for i in range(len(scores)):
            offset = self.upper[groups[i]] - self.lower[groups[i]]
            if scores[i] >= offset + self.gamma:
                chance[i] = 1.0
            elif scores[i] >= offset:
                chance[i] = (scores[i] - offset) / self.gamma
        return chance


@dataclass(frozen=True)
class Schedule:
    """The parameters, with the published defaults where there are any.

    Attributes
    ----------
    gamma
        Width of the ramp, in units of the score ``f`` in [-1, 1].
    slack
        Largest allowed difference between two selection rates.
    rho
        Common rate, in [0, 1]; None for the mean score.
    steps, batch
        Stochastic steps, and rows in each.
    epochs
        Steps on all rows.
    """

    gamma: float
    slack: float = 0.0
    rho: float | None = None
    steps: int = 10_000
    batch: int = 256
    epochs: int = 1_000

    def fit(self, scores: Floats, groups: Ints, *, rng: np.random.Generator) -> AuthorsRule:
        """Return the rule of scores in [-1, 1] and group codes 0, 1, ..., shape (n,) each."""
        rho = (float(np.mean(scores)) + 1.0) / 2.0 if self.rho is None else self.rho
        found = [
            self._multipliers(scores, np.flatnonzero(groups == k), rho, rng)
            for k in range(int(np.max(groups, initial=-1)) + 1)
        ]
        upper, lower = np.array(found).reshape(-1, 2).T
        return AuthorsRule(upper, lower, self.gamma)

    def _multipliers(
        self, scores: Floats, rows: Ints, rho: float, rng: np.random.Generator
    ) -> tuple[float, float]:
        """Return ``lambda`` and ``mu`` of the group that has the given rows."""
        upper = lower = upper_mean = lower_mean = 0.0
        step = self.gamma * math.sqrt(self.batch / self.steps)
        for _ in range(self.steps):
            some = rows[rng.integers(0, rows.size, self.batch)]
            upper, lower = self._moved(scores[some], rho, step, upper, lower)
            upper_mean += upper / self.steps
            lower_mean += lower / self.steps
        for _ in range(self.epochs):
            upper_mean, lower_mean = self._moved(scores[rows], rho, self.gamma / 2, upper_mean, lower_mean)
        return upper_mean, lower_mean

    def _moved(self, f: Floats, rho: float, step: float, upper: float, lower: float) -> tuple[float, float]:
        """Return ``lambda`` and ``mu`` after one projected step on the rows ``f``."""
        d, offset = self.slack / 2, upper - lower
        over = np.minimum(np.maximum(f, offset), offset + self.gamma)
        rate = (float(np.mean(over)) - offset) / self.gamma
        upper -= step * (d + rho - rate)
        if d <= BOTH_MOVE:
            return upper, lower
        return max(0.0, upper), max(0.0, lower - step * (d - rho + rate))
