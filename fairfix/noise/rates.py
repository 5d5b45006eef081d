"""Rates as ratios of cells, and the constraints of repairs as sides of rates.

The cells of decisions are TP, FN, FP, TN, in this order; their masses in noisy groups have shape (..., K, 4). A rate is
``A / (A + B)`` of two sets of cells, as the catalogue of :mod:`fairfix.auditing.metrics` defines it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fairfix.auditing import metrics
from fairfix.auditing.criteria import CRITERIA, label_of, rates_of

Floats = npt.NDArray[np.float64]
Mask = tuple[bool, bool, bool, bool]

TP, FN, FP, TN = range(4)

CELLS_OF_LABEL = ([FP, TN], [TP, FN])
"""Cells of label 0, and of label 1."""

Parity = Literal[
    "demographic_parity",
    "equal_opportunity",
    "predictive_equality",
    "equalized_odds",
    "minimax",
    "one_sided_demographic_parity",
    "one_sided_equal_opportunity",
    "one_sided_predictive_equality",
    "one_sided_equalized_odds",
]


@dataclass(frozen=True)
class Ratio:
    """A rate ``A / (A + B)``: which of TP, FN, FP, TN are in A and which in B."""

    a: Mask
    b: Mask

    @property
    def rows(self) -> Mask:
        """The cells that the rate is about: A or B."""
        return tuple(x or y for x, y in zip(self.a, self.b, strict=True))  # type: ignore[return-value]  # four

    def masses(self, cells: Floats) -> tuple[Floats, Floats]:
        """Return the masses of A and of B; ``cells`` has shape (..., 4)."""
        return cells @ np.array(self.a, dtype=np.float64), cells @ np.array(self.b, dtype=np.float64)

    def of(self, cells: Floats) -> Floats:
        """Return the rate of cell masses, shape (..., 4) to (...); NaN without a denominator."""
        a, b = self.masses(cells)
        return quotient(a, a + b)


def quotient(top: Floats, bottom: Floats, empty: float = np.nan) -> Floats:
    """Return ``top / bottom``, and ``empty`` where the bottom is not positive."""
    good = bottom > 0
    return np.where(good, top / np.where(good, bottom, 1.0), empty)


def cells_of(accepted: Floats, refused: Floats) -> Floats:
    """Return the masses of TP, FN, FP, TN, shape (..., 4), from those by label, shape (..., 2)."""
    return np.stack([accepted[..., 1], refused[..., 1], accepted[..., 0], refused[..., 0]], -1)


def flipped(ratio: Ratio) -> Ratio:
    """Return the rate's complement, whose lowest value has the weights of the rate's highest."""
    return Ratio(ratio.b, ratio.a)


RATIOS: Mapping[str, Ratio] = {
    name: Ratio(
        *(
            tuple(cell in part for cell in (metrics.TP, metrics.FN, metrics.FP, metrics.TN))  # type: ignore[arg-type]  # four
            for part in (metrics.RATES[name].success, metrics.RATES[name].failure)
        )
    )
    for name in (
        "true_positive_rate",
        "false_positive_rate",
        "selection_rate",
        "accuracy",
        "positive_predictive_value",
    )
}
"""Rates that have bounds behind noise."""

LABELS: Mapping[str, tuple[int, ...]] = {
    name: {None: (0, 1), 0: (0,), 1: (1,)}[label_of(name)]
    for name in RATIOS
    if name != "positive_predictive_value"  # it is about those selected, whatever their label
}
"""Labels of the rows that a rate is a mean over."""

DEMANDS: Mapping[str, tuple[tuple[str, float], ...]] = {
    **{name: tuple((rate, sign) for rate in rates_of(name) for sign in (1.0, -1.0)) for name in CRITERIA},
    **{
        f"one_sided_{name}": tuple(
            (rate, -1.0 if rate == "false_positive_rate" else 1.0) for rate in rates_of(name)
        )
        for name in CRITERIA
    },
    "minimax": (("accuracy", 1.0),),
}
"""Constraint -> rate and side: 1 for ``rate_j >= rate - slack``, -1 for ``rate_j <= rate + slack``.

One-sided constraints are those of the paper: a group must not be worse off. Under minimax no group's accuracy is
compared with the overall one but with 1: the distance is the error rate, and the largest is minimized.
"""


def shortfalls(
    demands: Iterable[tuple[str, float]],
    overall: Callable[[str], Any],
    bounds: Callable[[str], tuple[Floats, Floats]],
) -> list[Floats]:
    """Return by how much the worst rate of each true group is on the wrong side of the overall rate, by demand.

    Of accuracy: the largest error rate of each true group.
    """

    def level(rate: str) -> Any:
        return 1.0 if rate == "accuracy" else overall(rate)

    return [sign * (level(rate) - bounds(rate)[0 if sign > 0 else 1]) for rate, sign in demands]


def require_labels(mass: Floats, parity: Parity) -> None:
    """Refuse data without a row that a constraint is about; ``mass`` of labels 0 and 1, shape (2,)."""
    if any(mass[list(LABELS[rate])].sum() <= 0 for rate, _ in DEMANDS[parity]):
        raise ValueError("the data have no row with a label that the constraint needs")


def bounded_in_words(demands: Iterable[tuple[str, float]]) -> str:
    """Return in words what a constraint bounds, for a number to follow."""
    held = set(demands)
    if held == set(DEMANDS["minimax"]):
        return "the largest error rate of a true group is"
    differs = (
        "differs from" if all((rate, -sign) in held for rate, sign in held) else "is on the wrong side of"
    )
    return f"the worst true group {differs} the overall rate by"
