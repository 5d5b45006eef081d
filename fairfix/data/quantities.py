"""Quantities that are summed exactly in addition to the score bins, such as losses."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from fairfix.data.counts import Floats
from fairfix.data.data_spec import DataSpec, to_probability
from fairfix.data.encoder import Rows

SUMMED = 1e-6
"""Relative difference that sums of the same numbers in another order may have."""

LEAST = 1e-300
"""Numbers below it have squares with few digits."""


def quantities(rows: Rows, data_spec: DataSpec, *, losses: bool) -> Iterator[tuple[str, Floats]]:
    """Yield (name, value per row) of the quantities that are summed exactly in addition to the bins.

    ``score`` and ``label`` (regression), ``square_loss``, ``absolute_loss`` (regression) and
    ``log_loss`` (probabilities), each only where it is defined.
    """
    score, label = rows.score, rows.label
    if score is None or not losses:
        return
    if data_spec.task == "regression":
        yield "score", score
        if label is not None:
            error = score - label
            yield "label", label
            yield "square_loss", error * error
            yield "absolute_loss", np.abs(error)
        return
    if data_spec.score_scale == "raw":
        yield "score", score
        return
    chance = to_probability(score, data_spec.score_scale)
    yield "score", chance
    if label is None:
        return
    # products with 0 and 1 are exact, and cost less than a choice by labels, which no processor can foresee
    positive = label.astype(np.float64)
    error = positive - chance
    yield "square_loss", error * error
    if data_spec.score_scale == "logit":  # exact where the probability itself rounds to 0 or 1
        loss: Floats = np.logaddexp(0.0, (1.0 - 2.0 * positive) * score)
    else:
        with np.errstate(divide="ignore"):  # infinite where the observed label had the probability 0
            loss = positive * chance
            loss += (1.0 - positive) * (1.0 - chance)
            np.abs(np.log(loss, out=loss), out=loss)
    yield "log_loss", loss


def range_of(name: str, data_spec: DataSpec) -> tuple[float, float]:
    """Return the least and the largest value that a row can have of a quantity."""
    if (
        data_spec.task == "classification"
        and data_spec.score_scale != "raw"
        and name in ("score", "square_loss")
    ):
        return 0.0, 1.0
    return (0.0 if name.endswith("_loss") else -math.inf), math.inf


def summed(data_spec: DataSpec) -> tuple[str, ...]:
    """Return the names of what :func:`quantities` yields with losses."""
    none, columns = np.zeros(0), data_spec.columns
    label, score = none if columns.label else None, none if columns.score else None
    rows = Rows(none.astype(np.int64), (), label, score, None, None, 0)
    return tuple(name for name, _ in quantities(rows, data_spec, losses=True))


def are_sums(pair: npt.NDArray[Any], total: npt.NDArray[Any], low: float, high: float) -> bool:
    """Return whether numbers from ``low`` to ``high`` of these total weights can have such sums and squares.

    What is not finite is one, of losses without end.
    """
    if not pair.size:  # without weights there are no squared ones
        return True
    first, square = pair.T
    with np.errstate(all="ignore"):
        spread = np.sqrt(np.abs(square)) * np.sqrt(total) * (1 + SUMMED) + total * LEAST**0.5
        fits = (square >= 0) & (np.abs(first) <= spread)
        for end, sign in ((low, -1), (high, 1)):
            fits &= sign * first <= sign * end * total + SUMMED * total if math.isfinite(end) else True
    endless = not math.isfinite(high)
    return bool((fits | (endless & ~np.isfinite(first + square))).all())
