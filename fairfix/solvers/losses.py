r"""Losses of a number ``u`` for a label ``y``, convex in ``u``: their values, their slopes, and their units.

A loss is named by a text, with its number after a colon where it has one:

==============  ============================================  =====================================================
name            loss                                          least for a known distribution of the label at
==============  ============================================  =====================================================
``square``      ``(y - u)^2``                                 the mean
``logistic``    ``- y log u - (1 - y) log(1 - u)``            the mean, a probability
``poisson``     ``2 (y log(y / u) - y + u)``, the deviance    the mean, of labels that are not negative
``absolute``    ``|y - u|``                                   the median
``quantile:q``  ``max(q (y - u), (q - 1) (y - u))``           the quantile of level ``q``
``huber:d``     ``r^2 / 2`` for ``r = |y - u| <= d``, beyond  between median (small ``d``) and mean (large ``d``)
                it ``d (r - d / 2)``
==============  ============================================  =====================================================

The first three are Bregman divergences, up to what no ``u`` changes: what is expected of them depends on the mean of
the label alone. The last three depend on ``y - u`` alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from fairfix.solvers.arrays import Floats

EDGE = 1e-6
"""Probabilities are kept this far from 0 and 1 before the log loss is taken; and means of counts from 0, as a share
of the largest, where a mixture's deviance is to be finite."""

OF_MEAN = ("square", "logistic", "poisson")
"""Losses whose expectation depends on the mean of the label alone."""


@dataclass(frozen=True)
class RowLoss:
    """A loss of a score, convex in it: its values and its slopes; shapes broadcast."""

    value: Callable[[Floats, Floats], Floats]
    slope: Callable[[Floats, Floats], Floats]
    title: str
    """Name, as a noun without an article."""
    power: int = 0
    """The power of a unit of the label that the loss is multiplied with where labels and scores are."""


def name_of(loss: str) -> str:
    """Return the name of a loss without its number."""
    return loss.partition(":")[0]


def number_of(loss: str) -> float:
    """Return the number of a loss that has one."""
    return float(loss.partition(":")[2])


def in_units(loss: str, unit: float) -> str:
    """Return the loss of labels that are divided by a unit: Huber's number is one of them."""
    return f"huber:{number_of(loss) / unit!r}" if name_of(loss) == "huber" else loss


@cache
def row_loss(loss: str) -> RowLoss:
    """Return the loss of a name."""
    name = name_of(loss)
    if name == "quantile":
        level = number_of(loss)
        return RowLoss(
            lambda y, u: np.maximum(level * (y - u), (level - 1.0) * (y - u)),
            lambda y, u: np.where(u > y, 1.0, np.where(u < y, 0.0, level)) - level,
            f"pinball loss at level {level:g}",
            1,
        )
    if name == "huber":
        delta = number_of(loss)
        return RowLoss(
            lambda y, u: np.where(
                np.abs(u - y) <= delta, 0.5 * (u - y) ** 2, delta * (np.abs(u - y) - 0.5 * delta)
            ),
            lambda y, u: np.clip(u - y, -delta, delta),
            f"Huber loss with delta {delta:.6g}",
            2,
        )
    return PLAIN[name]


def _log_value(y: Floats, u: Floats) -> Floats:
    v = np.clip(u, EDGE, 1 - EDGE)
    return np.asarray(-y * np.log(v) - (1 - y) * np.log1p(-v))


def _log_slope(y: Floats, u: Floats) -> Floats:
    v = np.clip(u, EDGE, 1 - EDGE)
    return np.asarray((v - y) / (v * (1 - v)))


def deviance(y: Floats, u: Floats) -> Floats:
    """Return the Poisson deviance, infinite where the score is 0 and the label is not; shapes broadcast."""
    from scipy.special import kl_div

    return np.asarray(2.0 * kl_div(y, u))


PLAIN = {
    "square": RowLoss(lambda y, u: (u - y) ** 2, lambda y, u: 2 * (u - y), "square loss", 2),
    "logistic": RowLoss(_log_value, _log_slope, "logistic loss"),
    "absolute": RowLoss(lambda y, u: np.abs(u - y), lambda y, u: np.sign(u - y), "absolute loss", 1),
    "poisson": RowLoss(
        deviance,
        lambda y, u: 2.0 * (1.0 - y / np.maximum(u, 1e-300)),
        "Poisson deviance",
        1,
    ),
}
"""Losses without a number, by name."""
