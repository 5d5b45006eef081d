"""Damped Newton's method for smooth convex functions of one vector.

A step ``s`` promises the decrease ``-g's / 2`` of the quadratic model (the *decrement*). It is halved until the value
falls by a tenth of the promise (Armijo's rule). Close to the minimum the promise drowns in the rounding of the values;
there whole steps are taken as long as each at least halves the decrement, which Newton's method does by far.

References
----------
S. Boyd and L. Vandenberghe, *Convex optimization* (2004), sections 9.5 and 11.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fairfix.optim.arrays import Floats

STEPS = 400
"""Steps at most; one path of a barrier takes about a hundred."""

PROMISE = 0.1
"""Share of the promised decrease that a step has to keep."""

SHORTEST = 1e-9
"""Part of a step below which halving ends: the values are then rounding."""


@dataclass(frozen=True, eq=False)
class Descent:
    """The end of a descent: the point, the step and decrement there, the steps made, and whether it converged."""

    x: Floats
    step: Floats
    decrement: float
    steps: int
    converged: bool


def newton_step(hessian: Floats, gradient: Floats) -> Floats:
    """Return the Newton step, shape (d,); the least one where the Hessian is singular."""
    scale = np.sqrt(np.maximum(np.diag(hessian), 1e-300))
    scaled = hessian / np.outer(scale, scale)
    scaled[np.diag_indices_from(scaled)] += 1e-14  # a hundred roundings: no more than solving loses anyway
    try:
        step = np.linalg.solve(scaled, -gradient / scale) / scale
    except np.linalg.LinAlgError:
        step = np.full(gradient.size, np.nan)
    if not np.isfinite(step).all() or step @ gradient > 0:
        step = np.linalg.lstsq(scaled, -gradient / scale, rcond=1e-12)[0] / scale
    return np.asarray(step)


def descend(
    x: Floats,
    value: Callable[[Floats], float],
    direction: Callable[[Floats], tuple[Floats, float]],
    *,
    tolerance: float,
    rough: float,
    most: int = STEPS,
    room: Callable[[Floats, Floats], float] | None = None,
) -> Descent:
    """Return the end of damped Newton steps.

    Parameters
    ----------
    x
        Start, shape (d,), inside the domain.
    value
        The function.
    direction
        Takes a point and returns the Newton step and its decrement.
    tolerance
        Decrement at which the descent has converged.
    rough
        Decrement below which values no longer tell points apart.
    most
        Steps at most.
    room
        Takes a point and a step, and returns how many of these steps lead to the edge of the domain; None for no edge.
    """
    now, before, steps = value(x), math.inf, 0
    while True:
        step, decrement = direction(x)
        steps += 1
        if decrement <= tolerance:
            return Descent(x, step, decrement, steps, True)
        if steps >= most:
            return Descent(x, step, decrement, steps, False)
        edge = math.inf if room is None else room(x, step)
        if decrement <= rough:
            if not decrement < 0.5 * before:
                return Descent(x, step, decrement, steps, True)
            x, before = x + min(1.0, 0.9 * edge) * step, decrement
            continue
        length = min(1.0, 0.99 * edge)
        ahead = x + length * step
        while not (new := value(ahead)) <= now - PROMISE * length * decrement:
            length *= 0.5
            if length <= SHORTEST:
                return Descent(x, step, decrement, steps, False)
            ahead = x + length * step
        x, now = ahead, new
