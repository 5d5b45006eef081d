"""Newton's method: damped for smooth convex functions of a vector, guarded for falling functions of a number.

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

from fairfix.solvers.arrays import Floats

EPS = float(np.finfo(np.float64).eps)

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

    ``x``: start, shape (d,), inside the domain. ``value``: the function. ``direction``: takes a point and returns the
    Newton step and its decrement. ``tolerance``: decrement at which the descent has converged. ``rough``: decrement
    below which values no longer tell points apart. ``most``: steps at most. ``room``: takes a point and a step, and
    returns how many of these steps lead to the edge of the domain; None for no edge.
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


def falling_root(
    f: Callable[[float], tuple[float, float]],
    low: float,
    high: float,
    start: float | None = None,
    *,
    near: float = 0.0,
    width: float = 0.0,
    most: int = 240,
) -> float:
    """Return the root of a function that never increases, in (low, high), or the place where it jumps over 0.

    Newton's method; a step that leaves the bracket, or is longer than half the step before, is replaced by bisection.

    ``f``: returns the value at a number and how fast it falls there, 0 or infinite where a step would tell nothing.
    ``low``, ``high``: where the function is positive, or 0, and negative, or 0. ``start``: a guess; the middle in place
    of none or one outside. ``near``: absolute value that is taken for 0. ``width``: length of a step, or of the
    bracket, at which the search ends at the latest; never below a rounding. ``most``: steps; floats run out after some
    60 bisections, and Newton steps between two must shrink.
    """
    x = start if start is not None and low < start < high else _between(low, high)
    before = high - low
    for _ in range(most):
        value, fall = f(x)
        step = value / fall if 0 < fall < math.inf else math.inf
        low, high = (x, high) if value > 0 else (low, x)
        if abs(value) <= near or abs(step) <= max(width, EPS * abs(x)) or high - low <= width:
            break
        if not (low < x + step < high and abs(step) <= before / 2):
            step = _between(low, high) - x
        if x + step in (low, high):
            break
        x, before = x + step, abs(step)
    return x


def least_holding(
    holds: Callable[[float], bool], low: float = 0.0, *, halvings: int = 60, width: float = 0.0
) -> float:
    """Return, from above, the least number between ``low`` and 1 from which something holds that holds at 1.

    After 60 halvings no float is left in between; ``width``: of the interval that is halved no more.
    """
    high = 1.0
    for _ in range(halvings):
        if high - low <= width:
            break
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _between(low: float, high: float) -> float:
    """Return a point between two floats: the middle, or the geometric middle where they differ in size.

    Far apart on one side of zero the middle is found in the size of the numbers, not in between.
    """
    if low > 0 and high > 16 * low:
        return math.sqrt(low) * math.sqrt(high)
    if high < 0 and low < 16 * high:
        return -math.sqrt(-low) * math.sqrt(-high)
    return low + (high - low) / 2
