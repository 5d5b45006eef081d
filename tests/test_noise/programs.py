"""Programs that are written anew, which closed forms and solvers are held to: joint masses, balls, and cutting planes.

Rows are known by recorded group, bin (or decision) and label, shape (K, B, 2). Joint masses ``q`` of true groups, shape
(J, K, B, 2), satisfy ``q >= 0``, ``sum_j q_jk(c) = n_k(c)``, ``sum_c q_jk(c) = C_jk`` and, with ``T_jk = C_jk / sum_k
C_jk``, ``|q_jk(c) - T_jk Q_j(c)| <= eps Q_j(c)`` where ``Q_j(c) = sum_k q_jk(c)``; with a table by label, each label
does by itself. Totals are no variables of their own, as they are in :mod:`fairfix.noise.uncertainty_set`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from fairfix.noise.rates import RATIOS, Floats
from scipy import sparse
from scipy.optimize import linprog

CELLS = np.array([[2, 0], [3, 1]])
"""Place of each decision (yes, no) and label among TP, FN, FP, TN: ``m[..., CELLS]`` has decisions for bins."""


def rates_of(true: npt.NDArray[np.int64], label: Any, yhat: Any) -> dict[str, Floats]:
    """Return the rates of groups, by hand, from rows."""
    y, d = label == 1, yhat == 1
    cells = [y & d, y & ~d, ~y & d, ~y & ~d]
    m = np.array([[(c & (true == j)).sum() for c in cells] for j in range(true.max() + 1)], dtype=float)
    return {name: ratio.of(m) for name, ratio in RATIOS.items()}


@dataclass(frozen=True, eq=False)
class Joint:
    """All joint masses that fit masses of rows, and a table, shape (J, K), or by label (2, J, K)."""

    n: Floats
    table: Floats
    eps: float = 1.0

    def flat(self, x: Floats) -> Floats:
        """Return numbers of joint masses, shape (J, K, B, 2), in the order of the variables."""
        parts = np.moveaxis(x, -1, 0) if self.table.ndim == 3 else [x]
        return np.concatenate([part.ravel() for part in parts])

    @cached_property
    def program(self) -> dict[str, Any]:
        """Constraints of the masses, as arguments of a linear program: those of each label, or of both together."""
        by_label = self.table.ndim == 3
        noisy, every = len(self.n), [self.n[..., y] for y in (0, 1)] if by_label else [self.n]
        equal, right, under = [], [], []
        for mass, table in zip(every, self.table if by_label else [self.table], strict=True):
            groups, cells = len(table), mass[0].size
            of_cells = sparse.kron(np.ones((1, groups)), sparse.identity(noisy * cells))
            of_table = sparse.kron(sparse.identity(groups * noisy), np.ones((1, cells)))
            equal.append(sparse.vstack([of_cells, of_table]))
            right.append(np.concatenate([mass.ravel(), table.ravel()]))
            true = table.sum(1, keepdims=True)
            shares = np.where(true > 0, table / np.where(true > 0, true, 1.0), 1.0 / noisy)
            rows: list[Any] = [sparse.csr_matrix((0, groups * noisy * cells))]
            for sign in (1.0, -1.0) if self.eps < 1 else ():
                near = [sign * np.eye(noisy) - np.outer(sign * t + self.eps, np.ones(noisy)) for t in shares]
                rows.append(sparse.kron(sparse.block_diag(near), sparse.identity(cells)))
            under.append(sparse.vstack(rows))
        limits = sparse.block_diag(under, format="csr")
        return {
            "A_eq": sparse.block_diag(equal, format="csr"),
            "b_eq": np.concatenate(right),
            **({"A_ub": limits, "b_ub": np.zeros(limits.shape[0])} if limits.shape[0] else {}),
            "method": "highs",
        }

    def least(self, cost: Floats) -> Floats | None:
        """Return joint masses of least cost, shape (J, K, B, 2); None if none fit."""
        found = linprog(self.flat(cost), **self.program)
        if found.status:
            return None
        groups, (noisy, bins, _) = self.table.shape[-2], self.n.shape
        if self.table.ndim == 2:
            return np.asarray(found.x.reshape(groups, noisy, bins, 2))
        return np.moveaxis(found.x.reshape(2, groups, noisy, bins), 0, -1)

    def ends(self, top: Floats, bottom: Floats) -> tuple[float, float] | None:
        """Return the least and the largest ``top @ q / bottom @ q``; None if no ``q`` has a denominator."""
        given = self.program
        equal = sparse.hstack([given["A_eq"], sparse.csr_matrix(-given["b_eq"][:, None])])
        equal = sparse.vstack([equal, sparse.csr_matrix(np.append(self.flat(bottom), 0.0))], format="csr")
        more = {"A_eq": equal, "b_eq": np.append(np.zeros(given["b_eq"].size), 1.0)}
        if "A_ub" in given:
            more["A_ub"] = sparse.hstack([given["A_ub"], sparse.csr_matrix((given["A_ub"].shape[0], 1))])
        found: list[float] = []
        for sign in (1.0, -1.0):
            one: Any = linprog(sign * np.append(self.flat(top), 0.0), **{**given, **more})
            if one.status == 2:  # a solver may see an all but empty space in two ways
                return None
            assert one.status == 0, one.message
            found.append(sign * float(one.fun))
        return found[0], found[1]

    def range_of(self, group: int, value: Floats, about: Floats) -> tuple[float, float]:
        """Return the range of a group's mean value of the rows that a rate is about; NaN where there are none."""
        own = np.zeros((self.table.shape[-2], *self.n.shape))
        own[group] = 1.0
        return self.ends(own * value * about, own * about) or (np.nan, np.nan)


def near(n: Floats, group: int, radius: float, value: Floats, about: Floats, sign: float) -> Floats | None:
    """Return the distribution near a recorded group, in total variation, with the least (1) or largest (-1) mean value.

    It has rows where the data have some, and its mass that the rate is about is scaled to 1 (Charnes, Cooper); None if
    it can have none. Variables are the distribution, what is above the group's, and the scale.
    """
    centre = np.zeros(n.shape)
    centre[group] = n[group] / n[group].sum()
    about, size = np.broadcast_to(about, n.shape).ravel() * 1.0, n.size
    eye, ones, zero = np.eye(size), np.ones(size), np.zeros(size)
    found = linprog(
        np.r_[sign * np.broadcast_to(value, n.shape).ravel() * about, zero, 0.0],
        A_ub=np.array([*np.c_[eye, -eye, -centre.ravel()], np.r_[zero, ones, -radius]]),
        b_ub=np.zeros(size + 1),
        A_eq=np.array([np.r_[ones, zero, -1.0], np.r_[about, zero, 0.0]]),
        b_eq=[0.0, 1.0],
        bounds=[(0, None if some else 0) for some in (n > 0).ravel()] + [(0, None)] * (size + 1),
        method="highs",
    )
    return None if found.status else found.x[:size].reshape(n.shape) * about.reshape(n.shape)


Cut = tuple[Floats, float]
"""A row and the limit that it has to keep to."""


def least_by_cuts(
    cost: Floats, shape: tuple[int, int], cuts: Callable[[Floats], Iterable[Cut]], fixed: Sequence[Cut] = ()
) -> Any:
    """Return the least cost over nondecreasing F, shape (K, B), by asking for broken limits again and again.

    A cost of more numbers has more variables behind those of F. None if nothing keeps to the limits.
    """
    noisy, bins = shape
    rising = np.kron(np.eye(noisy), np.eye(bins)[:-1] - np.eye(bins)[1:])
    rows = [*np.pad(rising, ((0, 0), (0, cost.size - noisy * bins))), *(row for row, _ in fixed)]
    right = [*np.zeros(len(rising)), *(limit for _, limit in fixed)]
    for _ in range(300):
        found = linprog(cost, A_ub=np.array(rows), b_ub=right, bounds=(0, 1), method="highs")
        if found.status:
            return None
        fresh = [(row, limit) for row, limit in cuts(found.x) if row @ found.x > limit + 1e-9]
        if not fresh:
            return found
        rows += [row for row, _ in fresh]
        right += [limit for _, limit in fresh]
    raise AssertionError
