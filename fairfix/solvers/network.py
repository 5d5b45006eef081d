"""A network of one hidden layer of ReLUs and K logits, and the worst listed variants of rows.

One logit is that of label 1 against label 0. Several are those of K classes: a number that is added to all of a row
changes nothing, so they are centred from the start.

References
----------
M. Yurochkin and Y. Sun, *SenSeI: Sensitive set invariance for enforcing individual fairness*, ICLR 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fairfix.solvers.arrays import CUT, Floats, Ints, joint_kinds

CLIP = 8.0
"""Logits are cut at plus and minus this before they are compared: a chance of 3e-4 and of 0 are alike."""


class Variants(Protocol):
    """Listed variants of rows."""

    @property
    def many(self) -> int:
        """Number of variants."""

    def variant(self, k: int, rows: Ints) -> Floats:
        """Return a variant of some rows, shape (len(rows), d); the row itself where it does not apply."""


def basis_of(directions: Floats) -> Floats:
    """Return an orthonormal basis, shape (d, r), of directions in any number, shape (m, d), dependent or not."""
    size = np.linalg.norm(directions, axis=1)
    left, value, _ = np.linalg.svd((directions[size > 0] / size[size > 0, None]).T, full_matrices=False)
    return np.asarray(left[:, value > CUT * value.max(initial=0.0)])


def constant_along(span: Floats | None, weights: Floats) -> Floats:
    """Return weights of columns, shape (d, h), less their part along a span: an orthonormal basis, shape (d, r)."""
    return weights if span is None or not span.size else np.asarray(weights - span @ (span.T @ weights))


def centred(s: Floats) -> Floats:
    """Return logits, shape (..., K), less their mean over the classes; one logit is of no classes, and stays."""
    return s if s.shape[-1] == 1 else np.asarray(s - s.mean(axis=-1, keepdims=True))


@dataclass(frozen=True, eq=False)
class Network:
    """One hidden layer of ReLUs and K logits."""

    W1: Floats
    b1: Floats
    """``W1`` and ``b1``: of the hidden layer, shape (d, h) and (h,)."""
    W2: Floats
    b2: Floats
    """``W2`` and ``b2``: of the logits, shape (h, K) and (K,)."""

    @classmethod
    def of(cls, vector: Floats, shape: tuple[int, int, int]) -> Network:
        """Return the network whose :attr:`vector` is given; ``shape``: d, h and K."""
        d, h, K = shape
        W1, b1, W2, b2 = np.split(vector, np.cumsum([d * h, h, h * K]))
        return cls(W1.reshape(d, h), b1, W2.reshape(h, K), b2)

    @property
    def vector(self) -> Floats:
        """All weights in one vector."""
        return np.concatenate([np.ravel(part) for part in (self.W1, self.b1, self.W2, self.b2)])

    def sums(self, X: Floats) -> Floats:
        """Return the hidden layer before it is cut at 0, shape (n, h), of rows, shape (n, d)."""
        sums = X @ self.W1
        sums += self.b1
        return np.asarray(sums)

    def rectified(self, sums: Floats) -> tuple[Floats, Floats]:
        """Return the hidden layer, which takes the place of its sums, and the logits, shape (n, K)."""
        np.maximum(sums, 0.0, out=sums)
        return sums, centred(sums @ self.W2 + self.b2)

    def forward(self, X: Floats) -> tuple[Floats, Floats]:
        """Return the hidden layer, shape (n, h), and the logits, shape (n, K)."""
        return self.rectified(self.sums(X))

    def logit(self, X: Floats) -> Floats:
        """Return the logit of rows, shape (n,), where there is one only."""
        return self.forward(X)[1][:, 0]

    def slopes(self, X: Floats) -> tuple[Floats, Floats]:
        """Return the only logits of rows, shape (n,), and their slopes, shape (n, d)."""
        return self.slopes_at(self.sums(X))

    def slopes_at(self, sums: Floats) -> tuple[Floats, Floats]:
        """Return the same for rows of these hidden sums, which are overwritten, shape (n, h)."""
        hidden, s = self.rectified(sums)
        return s[:, 0], ((hidden > 0) * self.W2[:, 0]) @ self.W1.T


def change(s: Floats, other: Floats) -> Floats:
    """Return the squared change of cut logits."""
    return np.asarray((np.clip(s, -CLIP, CLIP) - np.clip(other, -CLIP, CLIP)) ** 2)


@dataclass(frozen=True, eq=False)
class RowVariants:
    """Variants of all rows in the columns that any of them changes, once for all rows that share them.

    ``columns`` has shape (C,), ``own`` (n, C), ``places`` (G, K, C), ``kind``, which says those of each row, (n,).
    """

    columns: Ints
    own: Floats
    places: Floats
    kind: Ints

    @classmethod
    def of(cls, X: Floats, variants: Variants) -> RowVariants:
        """Return the variants of all rows."""
        rows, changed = np.arange(len(X)), np.zeros(X.shape[1], dtype=bool)
        for k in range(variants.many):
            changed |= (variants.variant(k, rows) != X).any(axis=0)
        columns = np.flatnonzero(changed)
        kind = joint_kinds((variants.variant(k, rows)[:, columns] for k in range(variants.many)), len(X))
        first = np.unique(kind, return_index=True)[1]
        places = np.zeros((first.size, variants.many, columns.size))
        for k in range(variants.many):
            places[:, k] = variants.variant(k, first)[:, columns]
        return cls(columns, X[:, columns], places, kind)

    def take(self, rows: Ints) -> Listed:
        """Return the variants of a part of the rows."""
        own, places = self.own[rows], self.places[self.kind[rows]]
        return Listed(self.columns, own, places, places - own[:, None])


@dataclass(frozen=True, eq=False)
class Listed:
    """Variants of rows in few columns: their numbers, shape (C,), entries of the rows (n, C), and of the variants.

    ``places`` and ``added``, which is what a variant adds to its row, have shape (n, K, C).
    """

    columns: Ints
    own: Floats
    places: Floats
    added: Floats

    def worst(self, network: Network, sums: Floats, s: Floats) -> Ints:
        """Return the number of the variant of each row that changes the logits most, -1 where none does, shape (n,).

        ``sums``, ``s``: hidden sums and logits of the rows.
        """
        weights = network.W1[self.columns]
        which, most = np.full(len(s), -1), np.zeros(len(s))
        for k in range(self.added.shape[1]):
            there = self.added[:, k] @ weights
            there += sums
            moved = change(s, network.rectified(there)[1]).mean(axis=1)
            worse = moved > most
            which[worse], most[worse] = k, moved[worse]
        return which

    def steps(self, which: Ints) -> Floats:
        """Return the change of the rows by variants of these numbers, shape (n, C)."""
        out = np.zeros(self.own.shape)
        rows = np.flatnonzero(which >= 0)
        out[rows] = self.added[rows, which[rows]]
        return out

    def rows(self, X: Floats, which: Ints) -> Floats:
        """Return variants of these numbers as whole rows, of rows ``X``."""
        out, rows = X.copy(), np.flatnonzero(which >= 0)
        out[np.ix_(rows, self.columns)] = self.places[rows, which[rows]]
        return out
