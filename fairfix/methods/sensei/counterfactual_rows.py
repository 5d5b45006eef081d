"""Rows under flips, as the solvers of :mod:`fairfix.solvers` ask for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fairfix.data.counts import Bools, Floats, Ints
from fairfix.solvers.arrays import distinct_rows


@dataclass(frozen=True, eq=False)
class FlippedRows:
    """Rows under flips, as :mod:`fairfix.solvers` asks for them: the few columns and values that a flip leaves.

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

    def of_others(self, X: Floats) -> tuple[FlippedRows, Bools]:
        """Return other rows, shape (m, d), under these flips, and for which of them all flips are known, shape (m,).

        A flip does to a row what it does to rows of the same values in the columns that it changes. Where there are
        none, nobody can tell, and the row stays as it is. Copies are left out: they are of single people.
        """
        shared, flips, n = np.ones(len(X), dtype=bool), [], len(self.X)
        for columns, after, kind in self.flips[: self.many - self.copied]:
            first, code = distinct_rows(np.concatenate([self.X[:, columns], X[:, columns]]))
            like = first[code[n:]]
            there = like < n
            shared &= there
            flips.append((columns, after, np.where(there, kind[np.where(there, like, 0)], -1)))
        return FlippedRows(X, tuple(flips)), shared

    def take(self, rows: Ints) -> FlippedRows:
        """Return the rows at the given positions."""
        flips = tuple((columns, after, kind[rows]) for columns, after, kind in self.flips)
        return FlippedRows(self.X[rows], flips, self.copied)
