"""Search for multipliers: the parameters of exponentiated gradient, and messages about it.

The mathematics is in :mod:`fairfix.solvers.exponentiated_gradient`.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairfix.errors import UsageError
from fairfix.methods.learned import Learning
from fairfix.models.trace import Quantity
from fairfix.solvers.exponentiated_gradient import Game, Saddle

OF_GAME = ("nu", "rounds")
"""Parameters of exponentiated gradient."""

SEEN = "the training rows"
UNSEEN = "the training rows, each predicted by models not fitted to it"
"""``SEEN`` and ``UNSEEN``: the rows on which a constraint holds."""


class Searched(Learning):
    """A method whose prices exponentiated gradient can find."""

    search: str
    nu: float
    rounds: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.search == "auto":
            for name in OF_GAME:
                if (given := getattr(self, name)) != getattr(type(self), name):
                    raise UsageError(
                        f"fair-regression: `{name}={given}` needs `search=exponentiated-gradient`; add it, or "
                        f"leave out `{name}`"
                    )

    @property
    def cross_fitted(self) -> bool:
        """Whether a model counts on a training row by the prediction of a model that was not fitted to it.

        Linear models, and all models of the paper's algorithms, count as they are fitted. Others may repeat the labels
        of their training rows, so that a constraint on these says little.
        """
        return self.search == "auto" and self.model != "linear"

    def game(self, bound: float, nu: float) -> Game:
        """Return how exponentiated gradient is played, with the largest sum of prices and the last gap."""
        return Game(bound, nu, self.rounds)


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
