"""Rows with listed moves, which are also listed variants."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Listed:
    """Moves and variants that are held in full, shape (K, n, d)."""

    X: Floats
    others: Floats

    @property
    def many(self) -> int:
        return len(self.others)

    def delta(self, k: int) -> Floats:
        return np.asarray(self.others[k] - self.X)

    def variant(self, k: int, rows: Ints) -> Floats:
        return np.asarray(self.others[k, rows])


def none_for(X: Floats) -> Listed:
    return Listed(X, np.zeros((0, *X.shape)))


def flips_of(X: Floats) -> Listed:
    """Return the settings of a column of two values and of one of three, in two columns."""
    others = []
    for a in (0, 1):
        for r in (0, 1, 2):
            Z = X.copy()
            Z[:, 0], Z[:, 1], Z[:, 2] = a, r == 1, r == 2
            others.append(Z)
    return Listed(X, np.array(others))


def data(seed: int, rows: int = 200, d: int = 5) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, d))
    r = rng.integers(0, 3, rows)
    X[:, 0], X[:, 1], X[:, 2] = rng.integers(0, 2, rows), r == 1, r == 2
    form = X @ np.linspace(1.2, -0.8, d) - 0.3
    return X, (rng.random(rows) < 1 / (1 + np.exp(-form))).astype(float)
