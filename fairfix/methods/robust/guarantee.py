"""What may be promised of true groups: which an assumption allows, with the error of the survey that it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fairfix.data.choices import Keep
from fairfix.errors import UsageError
from fairfix.methods.robust.table_confidence_limits import range_of
from fairfix.noise.description import Noise, NoiseTable
from fairfix.noise.dual_certificates import Allowed, Behind, Columns, Members, Near, Recording, Rows
from fairfix.noise.rates import quotient
from fairfix.noise.total_variation_radii import balls_for

if TYPE_CHECKING:
    from fairfix.methods.robust import Robust


def behind(method: Robust, noise: Noise, names: Sequence[str], column: str, alpha: float) -> Behind:
    """Return the true groups that the assumption in force allows.

    Parameters
    ----------
    names
        Recorded groups of the data, of ``column``.
    alpha
        Chance that a survey's limits may be wrong with.

    Raises
    ------
    UsageError
        Nothing is known that holds for other people: the text says what could be promised.
    """
    noise = method.noise_in_force(noise)
    name, table = method.assumption_of(noise), noise.table
    if noise.membership is not None:
        members, independent = (Members(name == "identified"),), ""
        if name == "identified":
            independent = ", and that decisions and labels are independent of the true group given them"
        words = f", and that the membership probabilities are right{independent}"
        columns = tuple(noise.membership.values())
        true = tuple(noise.membership)
        return Behind(tuple(names), true, method.demands, members, members, False, words, columns)
    if name == "radii":
        if noise.radii is None:
            raise UsageError(
                "`guarantee`: radii computed from a noise table depend on how these rows were recorded; give them by "
                "`noise=radius:GROUP=NUMBER,...`, or use another `solver`, or `assume=none`"
            )
        balls = balls_for(noise.radii, names, column)
        near = (Near(balls.radii, balls.home),)
        its = "of its name" if balls.recorded(names) == balls.true else "that it is stated to be near"
        words = f", and that each true group is within its radius of the recorded group {its}"
        return Behind(tuple(names), balls.true, method.demands, near, near, False, words)
    assert table is not None
    noise, _ = noise.for_data(names, np.zeros(len(names)))
    table = noise.table
    assert table is not None
    ways: tuple[Keep, ...] = noise.ways
    if name in ("identified", "epsilon"):
        ways = ("noisy-given-true",)
        if noise.of_recording != "noisy-given-true":
            raise UsageError(
                f"`guarantee`: `assume={noise.assume}` needs a table whose P(noisy | true) holds for the "
                "population; write `noise=FILE(keep=noisy-given-true)`, or use `assume=none`"
            )
        if table.entries[..., len(names) :].any():
            lost = ", ".join(map(repr, table.noisy[len(names) :]))
            raise UsageError(
                f"`guarantee`: the noise table names {lost} as recorded, and no row is recorded so, so the "
                "rule's decisions there are unknown; leave these entries out, or use `assume=none`"
            )
    surveyed = table.form == "count"
    exact = tuple(_allowed(method, name, noise, table, way, None) for way in ways)
    allowed = tuple(_allowed(method, name, noise, table, way, alpha) for way in ways) if surveyed else exact
    kept = " or ".join(f"P({way.replace('-given-', ' | ')}{', label' * table.by_label})" for way in ways)
    counted = "from a survey of that population, whose error is included" if surveyed else "exact"
    assumed = {
        "identified": f", that recording depends on the true group{' and the label' * table.by_label} alone",
        "epsilon": f", that recording depends on the score by at most {noise.epsilon or 0:g}",
    }.get(name, "")
    words = f", that {kept} of the noise table also holds in the population{assumed}, and that the table is {counted}"
    return Behind(table.noisy, table.true, method.demands, exact, allowed, surveyed, words)


def _allowed(
    method: Robust, name: str, noise: Noise, table: NoiseTable, way: Keep, alpha: float | None
) -> Allowed:
    """Return what a table allows in one way; with ``alpha``, with the limits of its shares as a survey's."""
    axis = -2 if way == "true-given-noisy" else -1
    total = table.entries.sum(axis, keepdims=True)
    point = quotient(
        table.entries, np.broadcast_to(total, table.entries.shape), 1.0 / table.entries.shape[axis]
    )
    low, high = point, point
    if alpha is not None:
        survey = range_of(table.entries, way, 1.0 - alpha)
        low, high = survey.low, survey.high
    if way == "true-given-noisy":
        return Columns(low, high)
    if name not in ("identified", "epsilon"):
        return Rows(low, high, point)
    eps = noise.epsilon or 0.0
    return Recording(np.maximum(low - eps, 0.0), np.minimum(high + eps, 1.0), point)
