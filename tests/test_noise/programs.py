"""Joint masses of true groups, noisy groups and cells as one plain program: what closed forms and solvers are held to.

The masses ``q_jk(c)`` satisfy ``q >= 0``, ``sum_j q_jk(c) = m_k(c)``, ``sum_c q_jk(c) = C_jk`` and, with ``T_jk = C_jk
/ sum_k C_jk``, ``|q_jk(c) - T_jk Q_j(c)| <= eps Q_j(c)`` where ``Q_j(c) = sum_k q_jk(c)``. Totals are no variables of
their own, as they are in :mod:`fairfix.noise.uncertainty_set`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from fairfix.noise.rates import Floats
from scipy import sparse
from scipy.optimize import linprog


@dataclass(frozen=True, eq=False)
class Polytope:
    """All joint masses ``q >= 0`` with ``equal @ q = right`` and ``under @ q <= 0``; matrices are sparse.

    ``shapes`` are those of each part of ``q``, (J, K, cells); parts follow one another, in C order.
    """

    equal: Any
    right: Floats
    under: Any
    shapes: tuple[tuple[int, int, int], ...]

    def place(self, parts: Sequence[Floats]) -> Floats:
        """Return a vector over ``q`` from one array of the shape of each part."""
        return np.concatenate(
            [np.broadcast_to(p, s).ravel() for p, s in zip(parts, self.shapes, strict=True)]
        )

    @property
    def limits(self) -> dict[str, Any]:
        """The rows below 0, as arguments of a linear program; none, where there are none."""
        many = self.under.shape[0]
        return {"A_ub": self.under, "b_ub": np.zeros(many)} if many else {}


def joint_masses(parts: Sequence[tuple[Floats, Floats]], eps: float) -> Polytope:
    """Return the joint masses that fit one or more parts of the data, each with a table of its own.

    Parameters
    ----------
    parts
        Pairs of masses by noisy group and cell, shape (K, cells), and table, shape (J, K), with equal columns.
    eps
        Largest difference of ``P(noisy = k | true = j, cell)`` to ``T_jk`` in each part.
    """
    equal, right, under, shapes = [], [], [], []
    for mass, table in parts:
        groups, (noisy, cells) = table.shape[0], mass.shape
        one = sparse.identity(cells, format="csr")
        of_cells = sparse.kron(np.ones((1, groups)), sparse.identity(noisy * cells))
        of_table = sparse.kron(sparse.identity(groups * noisy), np.ones((1, cells)))
        equal.append(sparse.vstack([of_cells, of_table]))
        right.append(np.concatenate([mass.ravel(), table.ravel()]))
        shapes.append((groups, noisy, cells))
        rows: list[Any] = [sparse.csr_matrix((0, groups * noisy * cells))]
        for sign in (1.0, -1.0) if eps < 1 else ():
            near = [
                sparse.kron(sign * np.eye(noisy) - np.outer(sign * t + eps, np.ones(noisy)), one)
                for t in row_shares(table)
            ]
            rows.append(sparse.block_diag(near))
        under.append(sparse.vstack(rows))
    return Polytope(
        sparse.block_diag(equal, format="csr"),
        np.concatenate(right),
        sparse.block_diag(under, format="csr"),
        tuple(shapes),
    )


def row_shares(table: Floats) -> Floats:
    """Return ``T``, shape (J, K): rows of a table divided by their sums; uniform for a true group without mass."""
    true = table.sum(1, keepdims=True)
    return np.where(true > 0, table / np.where(true > 0, true, 1.0), 1.0 / table.shape[1])


def ratio_range(space: Polytope, top: Floats, bottom: Floats) -> tuple[float, float] | None:
    """Return the least and the largest ``top @ q / bottom @ q``; None if there is no ``q`` with a denominator."""
    low = ratio_end(space, top, bottom, 1.0)
    if low is None:
        return None
    high = ratio_end(space, top, bottom, -1.0)
    return None if high is None else (low, high)  # a solver may see an all but empty space in two ways


def ratio_end(space: Polytope, top: Floats, bottom: Floats, sign: float) -> float | None:
    """Return the least (sign 1) or the largest (-1) of :func:`ratio_range` alone."""
    equal = sparse.vstack(
        [
            sparse.hstack([space.equal, sparse.csr_matrix(-space.right[:, None])]),
            sparse.csr_matrix(np.append(bottom, 0.0)[None, :]),
        ],
        format="csr",
    )
    under = sparse.hstack([space.under, sparse.csr_matrix((space.under.shape[0], 1))], format="csr")
    scaled = Polytope(equal, np.append(np.zeros(space.right.size), 1.0), under, ())
    found: Any = linprog(
        sign * np.append(top, 0.0), A_eq=scaled.equal, b_eq=scaled.right, method="highs", **scaled.limits
    )
    if found.status == 2:
        return None
    if found.status:
        raise ArithmeticError(f"the solver failed: {found.message}")
    return sign * float(found.fun)
