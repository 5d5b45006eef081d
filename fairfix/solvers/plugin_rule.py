"""A drawn rule over cells of ``(eta, pi)``: a tree whose leaves have a distribution over values each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fairfix.solvers.arrays import Bools, Floats, Ints
from fairfix.solvers.losses import deviance

LAST_DRAW = 1.0 - 1e-12
"""Greatest draw: added to the number of a cell, it stays below the next number."""


def expected_loss(loss: str, eta: Floats, u: Floats) -> Floats:
    """Return the loss expected of scores where the label's mean is ``eta``; shapes broadcast.

    ``square`` and ``poisson`` are without what no score can change; ``logistic`` is infinite where a possible label
    gets chance 0.
    """
    if loss == "square":
        return np.asarray((eta - u) ** 2)
    if loss == "poisson":
        return deviance(eta, u)
    with np.errstate(divide="ignore", invalid="ignore"):
        yes = np.where(eta > 0, -eta * np.log(u), 0.0)
        return np.asarray(yes + np.where(eta < 1, -(1.0 - eta) * np.log1p(-u), 0.0))


def stationary(loss: str, eta: Floats, slope: Floats) -> Floats:
    """Return the score at which the loss expected of ``eta`` and a price of this slope are least; shapes broadcast."""
    if loss == "square":
        return np.asarray(eta - slope / 2)
    if loss == "poisson":
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.where(slope > -2.0, eta / (1.0 + slope / 2.0), np.inf))
    # eta / u - (1 - eta) / (1 - u) = s is a quadratic equation, whose root in [0, 1] is taken without cancellation
    b = slope + 1.0
    root = np.sqrt(np.maximum(b**2 - 4.0 * slope * eta, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(b > 0, 2.0 * eta / (b + root), (b - root) / (2.0 * slope)))


@dataclass(frozen=True, eq=False)
class PluginRule:
    """A tree over ``(eta, pi)`` whose leaves, the cells, have a distribution over values each.

    Node 0 is the root. A node with ``below`` -1 is a leaf.
    """

    part: Ints
    """Coordinate that a node looks at, shape (N,): 0 is ``eta``, ``a + 1`` is ``pi_a``; of a leaf, its number."""
    cut: Floats
    """Rows up to it go to node ``below``, others to the next, shape (N,)."""
    below: Ints
    """Shape (N,)."""
    upto: Floats
    """For each cell in order, its number plus the chance of this value or a lower one; increasing, shape (T,). The
    last of cell ``c`` is ``c + 1``.
    """
    values: Floats
    """Shape (T,); increasing within a cell. Empty where scores are left as they are."""

    @classmethod
    def free(cls) -> PluginRule:
        """Return the rule that leaves scores as they are."""
        none = np.zeros(0)
        return cls(np.zeros(1, dtype=np.int64), np.zeros(1), np.full(1, -1), none, none)

    @classmethod
    def of_constant(cls, value: float) -> PluginRule:
        """Return the rule that gives all rows one value."""
        return replace(cls.free(), upto=np.ones(1), values=np.full(1, value))

    @property
    def moves(self) -> bool:
        """Whether scores are changed at all."""
        return bool(self.values.size)

    @property
    def sound(self) -> bool:
        """Whether the parts make a tree whose leaves have distributions."""
        nodes = np.arange(self.part.size)
        inner = self.below >= 0
        leaves = np.sort(self.part[~inner])
        cells = self._cell_of_value if np.isfinite(self.upto).all() else np.full(1, -1)
        return bool(
            self.part.size == self.cut.size == self.below.size > 0
            and self.upto.size == self.values.size
            and np.isfinite(self.cut).all()
            and np.isfinite(self.values).all()
            and (self.below[inner] > nodes[inner]).all()
            and (self.below < nodes.size - 1).all()
            and (self.part >= 0).all()
            and np.array_equal(leaves, np.arange(leaves.size))
            and (
                not self.moves
                or (
                    (np.diff(self.upto, prepend=0.0) > 0).all()
                    and np.array_equal(np.unique(cells), leaves)
                    and np.isin(leaves + 1.0, self.upto).all()
                )
            )
        )

    @property
    def groups(self) -> int:
        """Least number of groups that rows need probabilities of."""
        return int(self.part[self.below >= 0].max(initial=0))

    @cached_property
    def spread(self) -> Bools:
        """Which cells have more than one value, shape (C,)."""
        return np.bincount(self._cell_of_value) > 1

    @property
    def _cell_of_value(self) -> Ints:
        """The cell of each value, shape (T,)."""
        return np.asarray(np.ceil(self.upto).astype(np.int64) - 1)

    def cells(self, eta: Floats, pi: Floats) -> Ints:
        """Return the cell of each row, shape (n,), from ``eta`` (n,) and ``pi`` (n, K)."""
        return leaves_of(self.part, self.cut, self.below, eta, pi)

    def score(self, eta: Floats, pi: Floats, draw: Floats) -> Floats:
        """Return the scores of rows, shape (n,), from ``eta`` (n,), ``pi`` (n, K) and draws in [0, 1), shape (n,)."""
        if not self.moves:
            return eta
        draw = np.minimum(draw, LAST_DRAW)
        return self.values[np.searchsorted(self.upto, self.cells(eta, pi) + draw, side="right")]

    def drawn(self, eta: Floats, pi: Floats) -> Bools:
        """Return which rows have a value that depends on the draw, shape (n,)."""
        if not self.moves:
            return np.zeros(eta.size, dtype=bool)
        return self.spread[self.cells(eta, pi)]

    def distributions(self) -> tuple[Floats, Floats]:
        """Return the distinct values (V,) and the chance of each in each cell (C, V)."""
        distinct, place = np.unique(self.values, return_inverse=True)
        cell = self._cell_of_value
        before = np.concatenate([[0.0], self.upto[:-1]])
        out = np.zeros((int(cell[-1]) + 1, distinct.size))
        np.add.at(out, (cell, place), self.upto - np.maximum(before, cell))
        return distinct, out


def leaves_of(part: Ints, cut: Floats, below: Ints, eta: Floats, pi: Floats) -> Ints:
    """Return the number of the leaf that each row comes to, shape (n,)."""
    rows = np.column_stack([eta, pi])
    node = np.zeros(eta.size, dtype=np.int64)
    left = np.arange(eta.size)
    while left.size:
        at = node[left]
        inner = below[at] >= 0
        left, at = left[inner], at[inner]
        node[left] = below[at] + (rows[left, part[at]] > cut[at])
    return part[node]
