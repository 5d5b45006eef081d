"""Linear programs over mixtures of columns: weights that are not negative and sum to 1."""

from __future__ import annotations

from typing import Any

import numpy as np

from fairfix.solvers.arrays import Floats

EXACT: Any = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
"""Tolerances of linear programs whose numbers are of the size of 1; the solver's own are 1e-7."""


def best_mixture(
    cost: Floats, table: Floats, limits: Floats, options: Any = None
) -> tuple[Floats, Floats, float] | None:
    """Return the mixture of least cost within limits, the prices of the limits and the cost; None where none is.

    ``cost``: of each column, shape (M,). ``table``, ``limits``: what each column has of what is limited, shape (J, M),
    and the limits, shape (J,). ``options``: of the solver.
    """
    from scipy.optimize import linprog

    answer: Any = linprog(cost, table, limits, np.ones((1, cost.size)), [1.0], options=options)
    if answer.status:
        return None
    mixture = np.maximum(answer.x, 0.0)
    return mixture / mixture.sum(), np.maximum(-answer.ineqlin.marginals, 0.0), float(answer.fun)


def matrix_game(cuts: Floats) -> tuple[Floats, Floats]:
    """Return the mixture of rows with the least greatest column, and the weights of columns against it."""
    from scipy.optimize import linprog

    rows, columns = cuts.shape
    far = float(np.ptp(cuts)) or 1.0
    cuts = (cuts - cuts.min()) / far  # the same game, where numbers in the thousands may get no answer
    answer: Any = linprog(
        np.append(np.zeros(rows), 1.0),
        np.column_stack([cuts.T, -np.ones(columns)]),
        np.zeros(columns),
        [np.append(np.ones(rows), 0.0)],
        [1.0],
        [(0, None)] * rows + [(None, None)],
        options=EXACT,
    )
    weights = np.maximum(-answer.ineqlin.marginals, 0.0)
    mixture = np.maximum(answer.x[:-1], 0.0)
    return mixture / mixture.sum(), weights / weights.sum()
