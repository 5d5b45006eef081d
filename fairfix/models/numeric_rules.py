"""Ramps on the model's score that move with numbers of the row: probabilities of membership, or protected numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairfix.data.codec import ABOVE_0, Array, Part, Setting, list_of, real, text
from fairfix.data.counts import Bools, Floats
from fairfix.data.memberships import memberships
from fairfix.data.scales import Scale, scaled
from fairfix.data.table import Table
from fairfix.models.predictors import CURVES, RepairedPredictor
from fairfix.solvers.piecewise import Piecewise


@dataclass(frozen=True, eq=False)
class OfMemberships(RepairedPredictor):
    """A predictor that looks at each row's probabilities to be of each group."""

    randomized: ClassVar[bool] = True

    groups: tuple[str, ...]
    columns: tuple[str, ...]
    """The groups, and the column of the probabilities of each."""

    @property
    def sound(self) -> bool:
        """Whether each group has a column of its own."""
        return len(self.columns) >= 2 and len(set(self.columns)) == len(self.columns)

    @property
    def features(self) -> Mapping[str, str]:
        """The columns of probabilities."""
        return dict.fromkeys(self.columns, "number")

    @property
    def memberships(self) -> tuple[str, ...]:
        """The columns of probabilities."""
        return self.columns

    @property
    def needs_protected(self) -> bool:
        """Whether it looks at the group: at what is known of it."""
        return True


@dataclass(frozen=True, eq=False)
class SoftRamp(OfMemberships):
    r"""A ramp on the score ``f = 2 p - 1`` for groups of which each row has probabilities of membership ``z_k``.

    .. math:: P(\text{decision} = 1 \mid f, z) = \mathrm{clip}((f - \textstyle\sum_k t_k z_k) / \gamma,\, 0,\, 1)
    """

    kind: ClassVar[str] = "soft_ramp"
    parts: ClassVar[Mapping[str, Part]] = {
        "groups": Setting(list_of(text), "groups"),
        "columns": Setting(list_of(text), "groups"),
        "offsets": Array("<f8", ("groups",)),
        "gamma": Setting(real(ABOVE_0)),
    }

    offsets: Floats
    """``t``, shape (K,)."""
    gamma: float
    """Width of the ramp."""

    def predict(self, table: Table) -> Floats:
        """Return the ramp of each row; a DataError where probabilities of membership are none."""
        z = memberships(table, self.columns)
        price = np.zeros(len(z))
        for part, offset in zip(z.T, self.offsets.tolist(), strict=True):  # in this order, as exports add up
            price += part * offset
        return np.clip((2.0 * table.probability - 1.0 - price) / self.gamma, 0.0, 1.0)


@dataclass(frozen=True, eq=False)
class SoftRates(OfMemberships):
    r"""A ramp on a score that is recalibrated for groups of which each row has probabilities of membership ``z_k``.

    .. math:: P(\text{decision} = 1 \mid f, z)
        = \mathrm{clip}((g - \textstyle\sum_k z_k (t_k + s_k g)) / \gamma,\, 0,\, 1), \qquad
        g = 2 \textstyle\sum_k z_k \eta_k(f) - 1
    """

    kind: ClassVar[str] = "soft_rates"
    parts: ClassVar[Mapping[str, Part]] = {
        "groups": Setting(list_of(text), "groups"),
        "columns": Setting(list_of(text), "groups"),
        "curves": CURVES,
        "offsets": Array("<f8", ("groups",)),
        "slopes": Array("<f8", ("groups",)),
        "gamma": Setting(real(ABOVE_0)),
    }

    curves: tuple[Piecewise, ...]
    """``eta_k``: the probability of label 1 of each group at a score ``f = 2 p - 1``."""
    offsets: Floats
    slopes: Floats
    """``t`` and ``s``, shape (K,) each."""
    gamma: float
    """Width of the ramp."""

    def predict(self, table: Table) -> Floats:
        """Return the ramp of each row; a DataError where probabilities of membership are none."""
        z = memberships(table, self.columns)
        g = 2.0 * mean_curve(self.curves, z, 2.0 * table.probability - 1.0) - 1.0
        price, rise = np.zeros(len(z)), np.zeros(len(z))
        for part, offset, slope in zip(z.T, self.offsets.tolist(), self.slopes.tolist(), strict=True):
            price += part * offset
            rise += part * slope
        return np.clip((g - price - rise * g) / self.gamma, 0.0, 1.0)


def mean_curve(curves: Sequence[Piecewise], z: Floats, score: Floats) -> Floats:
    """Return the mean of curves at scores, (n,), weighted by probabilities of sum 1, (n, K), within [0, 1]."""
    mean: Floats = np.zeros(score.size)
    for curve, part in zip(curves, z.T, strict=True):  # in this order, as exports add up
        mean += part * curve(score)
    return np.clip(mean, 0.0, 1.0)  # shares that sum to 1 may do so but for rounding


@dataclass(frozen=True, eq=False)
class NumberRamp(RepairedPredictor):
    r"""A ramp on the score ``f = 2 p - 1`` that moves with numbers ``x_j``, as their scales count them.

    .. math:: P(\text{decision} = 1 \mid f, x)
        = \mathrm{clip}((f - t - \textstyle\sum_j \lambda_j x_j) / \gamma,\, 0,\, 1)

    A row that lacks a number has no prediction.
    """

    kind: ClassVar[str] = "number_ramp"
    parts: ClassVar[Mapping[str, Part]] = {
        "columns": Setting(list_of(text, least=1), "numbers"),
        **{name: Array("<f8", ("numbers",)) for name in ("low", "high", "mean", "deviation", "prices")},
        "offset": Setting(real()),
        "gamma": Setting(real(ABOVE_0)),
    }
    randomized: ClassVar[bool] = True

    columns: tuple[str, ...]
    low: Floats
    high: Floats
    mean: Floats
    deviation: Floats
    """``columns``, ``low``, ``high``, ``mean`` and ``deviation``: of the scales, shape (J,) each."""
    prices: Floats
    """``lambda``, per standard deviation, shape (J,)."""
    offset: float
    """``t``."""
    gamma: float
    """Width of the ramp."""

    @property
    def sound(self) -> bool:
        """Whether columns differ, and scales are some."""
        return len(set(self.columns)) == len(self.columns) and bool(
            (self.low < self.high).all() and (self.deviation > 0).all()
        )

    @property
    def features(self) -> Mapping[str, str]:
        """The columns."""
        return dict.fromkeys(self.columns, "number")

    @property
    def scales(self) -> tuple[Scale, ...]:
        """How each column is counted."""
        numbers = (part.tolist() for part in (self.low, self.high, self.mean, self.deviation))
        return tuple(Scale(*one) for one in zip(self.columns, *numbers, strict=True))

    @property
    def needs_protected(self) -> bool:
        """Whether it looks at what is protected: at the numbers."""
        return True

    def unseen(self, table: Table) -> Bools:
        """Return which rows lack a number, shape (n,)."""
        return np.asarray(np.isnan(scaled(table, self.scales)).any(axis=1))

    def predict(self, table: Table) -> Floats:
        """Return the ramp of each row; NaN where a number is missing."""
        price: Floats = np.full(len(table), self.offset)
        for part, own in zip(
            scaled(table, self.scales).T, self.prices.tolist(), strict=True
        ):  # as exports add up
            price += part * own
        return np.clip((2.0 * table.probability - 1.0 - price) / self.gamma, 0.0, 1.0)
