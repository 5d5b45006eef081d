"""Record of a ramp's fit: the trace with its certificates, and the cautions that all solvers share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from fairfix.data.counts import Floats
from fairfix.data.names import attribute_name
from fairfix.methods.cells import GroupScores, miscalibration
from fairfix.models.trace import Caution, Certificate, FitTrace, Note, Quantity

if TYPE_CHECKING:
    from fairfix.methods.ramp.strata import StratumFit
    from fairfix.solvers.band_ramps import Ramps

MISCALIBRATED = 0.02
"""Least mean miscalibration, beyond chance, for a caution."""


def proven_trace(
    gamma: float,
    best: Ramps | StratumFit,
    held: str,
    notes: Iterable[Note],
    quantities: Iterable[Quantity],
    *,
    over: str = "",
) -> FitTrace:
    """Return how a fit went, and what it proves of all chances that ``held`` is true of.

    ``over``: which rows count by the score, and how, where it is not each by its weight.
    """
    width = f"{gamma:g} q^2 / 2 - " if gamma else "-"
    proven = Certificate(
        f"mean of {width}f q (q: probability of a positive decision, f: its value by the score{over})",
        best.objective,
        best.objective - best.gap,
        f"all probabilities of a positive decision for these rows that {held}",
    )
    return FitTrace(
        best.converged,
        best.iterations,
        best.objective,
        best.gap,
        tuple(notes),
        certificates=(proven,),
        quantities=tuple(quantities),
    )


def offsets(levels: Iterable[tuple[str, ...]], thresholds: Iterable[float]) -> Iterator[Quantity]:
    """Yield the multipliers of groups, which are the thresholds of their ramps."""
    meaning = (
        "group threshold offset, on the scale 2 p - 1: the probability of yes rises from 0 there to 1 one "
        "gamma above"
    )
    for level, threshold in zip(levels, thresholds, strict=True):
        yield Quantity("offset", threshold, meaning, attribute_name(level))


def alike_for_all(chance: Floats) -> Iterator[Note]:
    """Yield a caution where all chances of a positive decision are 0, or all are 1."""
    for decision, alike in (("negative", chance.max() <= 0.0), ("positive", chance.min() >= 1.0)):
        if alike:
            yield Caution(f"the repaired rule makes a {decision} decision for all rows", "selection")


def uncalibrated(cells: GroupScores, does: str, where: str, remedies: str) -> Iterator[Note]:
    """Yield a caution where labels show the scores to be off: what that does, ``where`` they are, and the remedies."""
    off, chance = miscalibration(cells.cells)
    if off - chance > MISCALIBRATED:
        yield Caution(
            f"the scores are not calibrated. They differ from the rates of label 1 by {off:.3f} on average{where} "
            f"(random variation alone gives {chance:.3f}). Therefore, {does}. Recalibrate with {remedies}",
            "uncalibrated",
        )


NOT_OF_LABELS = "the equalized rates are not those of the labels"
"""Effect of uncalibrated scores on rates by label."""
