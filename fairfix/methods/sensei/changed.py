"""Rows under flips, and without what does not count, as the solvers of :mod:`fairfix.optim` ask for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fairfix.data.counts import Bools, Floats, Ints
from fairfix.optim.arrays import distinct_rows
from fairfix.optim.invariant_linear import CUT


@dataclass(frozen=True, eq=False)
class FlippedRows:
    """Rows under flips, as :mod:`fairfix.optim` asks for them: the few columns and values that a flip leaves.

    ``flips`` has for each flip the columns that it changes, shape (C,), their values afterwards, each once, shape
    (G, C), and which of these each row gets, shape (n,); -1 where it stays as it is. The last ``copied`` of them are no
    flips: the first copy of every person who has one, the second, and so on.
    """

    X: Floats
    flips: tuple[tuple[Ints, Floats, Ints], ...]
    copied: int = 0

    @classmethod
    def of(cls, X: Floats, matrices: Iterable[Floats]) -> FlippedRows:
        """Return it for the matrices of all rows under each flip."""
        flips = []
        for whole in matrices:
            own = np.flatnonzero((whole != X).any(axis=0))
            first, kind = distinct_rows(whole[:, own])
            flips.append((own, whole[np.ix_(first, own)], kind))
        return cls(X, tuple(flips))

    def with_copies(self, rows: Ints, copies: Floats) -> FlippedRows:
        """Return it with copies, shape (c, d), of some rows, shape (c,), in any order and number."""
        order = np.argsort(rows, kind="stable")
        rows, copies = rows[order], copies[order]
        rank = np.arange(rows.size) - np.searchsorted(rows, rows)
        flips = list(self.flips)
        for k in range(int(rank.max(initial=-1)) + 1):
            here, after = rows[rank == k], copies[rank == k]
            own = np.flatnonzero((after != self.X[here]).any(axis=0))
            first, among = distinct_rows(after[:, own])
            kind = np.full(len(self.X), -1)
            kind[here] = among
            flips.append((own, after[np.ix_(first, own)], kind))
        return FlippedRows(self.X, tuple(flips), len(flips) - len(self.flips))

    @property
    def many(self) -> int:
        """Number of flips, and of copies of one person at most."""
        return len(self.flips)

    @property
    def has_copies(self) -> Bools:
        """Which rows have copies, shape (n,)."""
        return self.flips[-self.copied][2] >= 0 if self.copied else np.zeros(len(self.X), dtype=bool)

    def variant(self, k: int, rows: Ints) -> Floats:
        """Return rows after a flip, or the copy of this number where they have one."""
        columns, after, kind = self.flips[k]
        out, place = self.X[rows], kind[rows]
        there = np.flatnonzero(place >= 0)
        out[np.ix_(there, columns)] = after[place[there]]
        return np.asarray(out)

    def take(self, rows: Ints) -> FlippedRows:
        """Return the rows at the given positions."""
        flips = tuple((columns, after, kind[rows]) for columns, after, kind in self.flips)
        return FlippedRows(self.X[rows], flips, self.copied)


@dataclass(frozen=True, eq=False)
class WithoutPart:
    """Rows and their variants without their part along directions, whose orthonormal basis is ``span``, (d, r)."""

    changed: FlippedRows
    span: Floats

    @classmethod
    def of(cls, changed: FlippedRows, span: Floats) -> WithoutPart:
        """Return it for directions in any number, shape (m, d), dependent or not."""
        size = np.linalg.norm(span, axis=1)
        left, value, _ = np.linalg.svd((span[size > 0] / size[size > 0, None]).T, full_matrices=False)
        return cls(changed, left[:, value > CUT * value.max(initial=0.0)])

    def without(self, X: Floats) -> Floats:
        """Return rows, shape (n, d), without the part."""
        return X if not self.span.size else np.asarray(X - (X @ self.span) @ self.span.T)

    @property
    def many(self) -> int:
        """Number of variants."""
        return self.changed.many

    def variant(self, k: int, rows: Ints) -> Floats:
        """Return rows after a flip, or a copy of them, without the part."""
        return self.without(self.changed.variant(k, rows))
