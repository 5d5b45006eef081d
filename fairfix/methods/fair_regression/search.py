"""Reports of the search for multipliers: the rows on which a constraint holds, and the numbers of a game."""

from __future__ import annotations

from collections.abc import Iterator

from fairfix.models.trace import Quantity
from fairfix.solvers.exponentiated_gradient import Saddle

SEEN = "the training rows"
UNSEEN = "the training rows, each predicted by models not fitted to it"
"""``SEEN`` and ``UNSEEN``: the rows on which a constraint holds."""


def game_quantities(saddle: Saddle, unit: float, over: str) -> Iterator[Quantity]:
    """Yield what is known of the averages of a game, with losses in ``unit``; ``over`` is what a violation is."""
    yield Quantity(
        "nu_t",
        saddle.gap * unit,
        "gap of the averages of exponentiated gradient, by the models it got; they need not be the best, so this "
        "is not a bound",
    )
    yield Quantity("loss of the averages", saddle.loss * unit, "before they are brought within the slack")
    yield Quantity("violation of the averages", saddle.excess, over)
    yield Quantity("rounds", saddle.rounds, "of exponentiated gradient")
