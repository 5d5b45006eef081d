"""Rows drawn anew, with one more imagined row in each recorded group, at the place that is worst for a limit.

A sample in which all rows of a group are alike is alike in every resample, and yet the next person may differ. So
masses are drawn as by the Bayesian bootstrap: a Dirichlet distribution over the rows. Each recorded group gets one more
row, in ``B`` for the lower limit of a rate ``A / (A + B)``, and in ``A`` for the upper limit. Of one group's rate the
quantiles are then the limits of Clopper and Pearson: those of ``Beta(a, b + 1)`` and of ``Beta(a + 1, b)``. With a
table by label, each label of a recorded group has an imagined row.

References
----------
D. B. Rubin, *The Bayesian bootstrap* (1981). N. Gaffke, *Three test statistics for a nonparametric one-sided hypothesis
on the mean of a nonnegative variable* (2005), for one imagined row at the end of a bounded variable. M. P. Fay, M. A.
Proschan and E. Brittain, *Combining one-sample confidence procedures for inference in the two-sample case* (2015), for
several groups.
"""

from __future__ import annotations

import numpy as np

from fairfix.noise.rates import CELLS_OF_LABEL, RATIOS, Floats, Ratio

LOWER, UPPER = 0, 1
"""Ends of a range: the place of each in a pair."""

ACCEPTED, LABEL = [1, 0, 1, 0], [1, 1, 0, 0]
"""Decision and label of TP, FN, FP, TN."""


def drawn_rows(masses: Floats, one: Floats, draws: int, rng: np.random.Generator) -> Floats:
    """Return masses of other samples, up to their total, shape (draws, ...); ``one`` is the mass of a row there."""
    return rng.standard_gamma(masses / one, (draws, *masses.shape)) * one


def drawn_row(one: Floats, draws: int, rng: np.random.Generator) -> Floats:
    """Return the mass of an imagined row in other samples, shape (draws, ...)."""
    return rng.standard_exponential((draws, *one.shape)) * one


def place(ratio: Ratio, end: int, label: int | None = None) -> int:
    """Return the cell, among those of a label or all, in which one more row moves an end of a rate furthest."""
    among = list(range(4)) if label is None else CELLS_OF_LABEL[label]
    return (max if end == UPPER else min)(among, key=lambda cell: ratio.a[cell] - ratio.b[cell])


def _placed(ratio: Ratio, end: int, imagined: Floats, *, by_label: bool) -> list[tuple[int, Floats]]:
    """Return cells, and the imagined masses in them, shape (..., K) each; see :func:`with_row`."""
    if not by_label:
        return [(place(ratio, end), imagined)]
    return [(place(ratio, end, y), imagined[..., y, :]) for y in range(2)]


def with_row(cells: Floats, imagined: Floats, ratio: Ratio, end: int, *, by_label: bool) -> Floats:
    """Return cells with the imagined rows where they are worst for an end of a rate.

    Parameters
    ----------
    cells
        Masses of TP, FN, FP, TN, shape (..., K, 4).
    imagined
        Masses of the imagined rows by recorded group, shape (..., K), or by label (..., 2, K).
    """
    out = cells.copy()
    for cell, mass in _placed(ratio, end, imagined, by_label=by_label):
        out[..., cell] += mass
    return out


def level_with_row(levels: Floats, imagined: Floats, rate: str, end: int, *, by_label: bool) -> Floats:
    """Return masses by level, (..., K, I, 2) to (..., K, I + 2, 2), as :func:`with_row` does.

    At the new levels nobody and everyone is accepted: see :func:`with_ends`.
    """
    more = np.zeros((*levels.shape[:-2], 2, 2))
    for cell, mass in _placed(RATIOS[rate], end, imagined, by_label=by_label):
        more[..., ACCEPTED[cell], LABEL[cell]] += mass
    return np.concatenate([levels, more], -2)


def with_ends(accepted: Floats) -> Floats:
    """Return probabilities to be accepted by level, shape (K, I), with the levels 0 and 1 at the end."""
    return np.concatenate([accepted, np.tile([0.0, 1.0], (len(accepted), 1))], -1)


def inverted_with_row(
    masses: Floats, weights: Floats, imagined: Floats, ratio: Ratio, end: int, *, by_label: bool
) -> Floats:
    """Return cells of true groups, (..., J, 4), with the imagined rows where they are worst for an end of a rate.

    A row of recorded group ``k`` counts ``A_jk`` in true group ``j``, which may be less than 0: then the worst place is
    that of the other end. ``weights`` are the ``A``, shape (..., J, K), or by label (..., 2, J, K).
    """
    out = masses.copy()
    for sign, side in ((1.0, end), (-1.0, 1 - end)):
        own = sign * np.maximum(sign * weights, 0.0)
        for label, (cell, mass) in enumerate(_placed(ratio, side, imagined, by_label=by_label)):
            of_label = own[..., label, :, :] if by_label else own
            out[..., cell] += (of_label @ mass[..., None])[..., 0]
    return out
