"""Ramps on the model's score that move with numbers of the row: probabilities of membership, or protected numbers."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta

from fairfix.data.codec import Array, Setting
from fairfix.data.counts import Bools, Floats
from fairfix.data.memberships import ROUNDED, memberships
from fairfix.data.scales import Scale, scaled
from fairfix.data.table import Table
from fairfix.models.array_interpreter import TableInputs, run
from fairfix.models.predictors import CURVES, PER_GROUP, RepairedPredictor
from fairfix.models.program import Program
from fairfix.solvers.piecewise import Piecewise


@dataclass(frozen=True, eq=False)
class OfMemberships(RepairedPredictor):
    """A predictor that looks at each row's probabilities to be of each group."""

    randomized: ClassVar[bool] = True
    needs_protected: ClassVar[bool] = True

    groups: Annotated[tuple[str, ...], Setting("groups")]
    columns: Annotated[tuple[str, ...], Setting("groups")]
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

    def predict(self, table: Table) -> Floats:
        """Return the probability of each row; a DataError where probabilities of membership are none."""
        memberships(table, self.columns)
        return run(self.compiled_rule, TableInputs(table), len(table))

    def write(self, program: Program) -> int:
        """Write the rule; missing where probabilities of membership are none."""
        parts = [program.number(name) for name in self.columns]
        total, zero, one = program.total(parts), program.constant(0.0), program.constant(1.0)
        whole = program.add("maximum", total, program.constant(0.5))  # sums are near 1; none divides by 0
        ends = [(part, zero, program.constant(1.0 + ROUNDED)) for part in parts]
        over = program.add("subtract", total, one)
        ends.append((over, program.constant(-ROUNDED), program.constant(ROUNDED)))
        wrong = []
        for part, low, high in ends:
            below = program.add("choose", program.add("at_most", part, high), zero, one)
            wrong.append(program.add("choose", program.add("at_most", low, part), below, one))
        out = self.of_memberships(program, [program.add("divide", part, whole) for part in parts])
        sound = program.add("at_most", program.total(wrong), zero)
        return program.add("choose", sound, out, program.constant(math.nan))

    @abstractmethod
    def of_memberships(self, program: Program, z: Sequence[int]) -> int:
        """Write the rule for the steps of probabilities of membership, which sum to 1."""


@dataclass(frozen=True, eq=False)
class SoftRamp(OfMemberships):
    r"""A ramp on the score ``f = 2 p - 1`` for groups in which each row has membership probabilities ``z_k``.

    .. math:: P(\text{decision} = 1 \mid f, z) = \mathrm{clip}((f - \textstyle\sum_k t_k z_k) / \gamma,\, 0,\, 1)
    """

    kind: ClassVar[str] = "soft_ramp"

    offsets: Annotated[Floats, PER_GROUP]
    """``t``, shape (K,)."""
    gamma: Annotated[float, Meta(gt=0), Setting()]
    """Width of the ramp."""

    def of_memberships(self, program: Program, z: Sequence[int]) -> int:
        """Write the ramp."""
        return program.ramp(program.ranking, program.dot(z, self.offsets), self.gamma)


@dataclass(frozen=True, eq=False)
class SoftRates(OfMemberships):
    r"""A ramp on a recalibrated score, for groups in which each row has membership probabilities ``z_k``.

    .. math:: P(\text{decision} = 1 \mid f, z)
        = \mathrm{clip}((g - \textstyle\sum_k z_k (t_k + s_k g)) / \gamma,\, 0,\, 1), \qquad
        g = 2 \textstyle\sum_k z_k \eta_k(f) - 1
    """

    kind: ClassVar[str] = "soft_rates"

    curves: Annotated[tuple[Piecewise, ...], CURVES]
    """``eta_k``: the probability of label 1 of each group at a score ``f = 2 p - 1``."""
    offsets: Annotated[Floats, PER_GROUP]
    slopes: Annotated[Floats, PER_GROUP]
    """``t`` and ``s``, shape (K,) each."""
    gamma: Annotated[float, Meta(gt=0), Setting()]
    """Width of the ramp."""

    def of_memberships(self, program: Program, z: Sequence[int]) -> int:
        """Write the ramp."""
        curves = [program.curve(one, program.ranking) for one in self.curves]
        each = [program.add("multiply", part, one) for part, one in zip(z, curves, strict=True)]
        eta = program.clip(program.total(each), 0.0, 1.0)  # within, but for rounding
        g = program.affine(eta, 2.0, -1.0)
        price, rise = program.dot(z, self.offsets), program.dot(z, self.slopes)
        return program.ramp(program.add("subtract", g, price), program.add("multiply", rise, g), self.gamma)


PER_NUMBER = Array("<f8", ("numbers",))


@dataclass(frozen=True, eq=False)
class NumberRamp(RepairedPredictor):
    r"""A ramp on the score ``f = 2 p - 1`` that moves with numbers ``x_j``, as their scales count them.

    .. math:: P(\text{decision} = 1 \mid f, x)
        = \mathrm{clip}((f - t - \textstyle\sum_j \lambda_j x_j) / \gamma,\, 0,\, 1)

    A row that lacks a number has no prediction.
    """

    kind: ClassVar[str] = "number_ramp"
    randomized: ClassVar[bool] = True
    needs_protected: ClassVar[bool] = True

    columns: Annotated[tuple[str, ...], Meta(min_length=1), Setting("numbers")]
    low: Annotated[Floats, PER_NUMBER]
    high: Annotated[Floats, PER_NUMBER]
    mean: Annotated[Floats, PER_NUMBER]
    deviation: Annotated[Floats, PER_NUMBER]
    """``columns``, ``low``, ``high``, ``mean`` and ``deviation``: of the scales, shape (J,) each."""
    prices: Annotated[Floats, PER_NUMBER]
    """``lambda``, per standard deviation, shape (J,)."""
    offset: Annotated[float, Setting()]
    """``t``."""
    gamma: Annotated[float, Meta(gt=0), Setting()]
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
        """Scale of each column."""
        numbers = (part.tolist() for part in (self.low, self.high, self.mean, self.deviation))
        return tuple(Scale(*one) for one in zip(self.columns, *numbers, strict=True))

    def unseen(self, table: Table) -> Bools:
        """Return which rows lack a number, shape (n,)."""
        return np.asarray(np.isnan(scaled(table, self.scales)).any(axis=1))

    def write(self, program: Program) -> int:
        """Write the ramp; missing where a number is."""
        entries = [program.number(name) for name in self.columns]
        parts = []
        for entry, one in zip(entries, self.scales, strict=True):
            inside = program.clip(entry, one.low, one.high)
            moved = program.add("subtract", inside, program.constant(one.mean))
            parts.append(program.add("divide", moved, program.constant(one.deviation)))
        price = program.dot([program.constant(self.offset), *parts], [1.0, *self.prices])
        out = program.ramp(program.ranking, price, self.gamma)
        for entry in entries:  # whatever a language makes of the greater of a number and none
            gone = program.add("is_missing", entry)
            out = program.add("choose", gone, program.constant(math.nan), out)
        return out
