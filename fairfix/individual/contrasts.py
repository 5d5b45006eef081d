r"""The direct effect of a group on a score, from scores alone: what belonging to it changes, all else being equal.

No model is needed, only scores, groups and the other columns ``x``. Both estimates are of a mean difference of groups
at equal ``x``, weighted by overlap: rows like which only one group has any count nothing.

===========================  =================================================================================
:func:`matched_effect`       compares rows that are *equal* in all other columns. Nothing is modelled and a blind
                             score has effect 0 to the bit, but it speaks of the rows that have an equal only
:func:`residual_effect`      takes off score and group what linear models and trees foretell of them from ``x``, and
                             compares what is left (the partially linear model). It speaks of all rows where groups
                             overlap, and tries itself on a blind score first
===========================  =================================================================================

Both take scores (decisions, probabilities or real ones), codes of groups, counted from 0, and weights, not negative, of
n rows (None for 1 each), and the other columns as numbers, shape (n, d). ``confidence`` is of each interval by itself.
They raise a DataError where a score is not a number, lengths differ, or there are fewer than two groups.

The estimand, the derivations and their sources are in docs/methods/direct-effects.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fairfix.data.counts import Floats, Ints
from fairfix.errors import DataError
from fairfix.models.learners import hashed


@dataclass(frozen=True)
class Contrast:
    """The difference between the scores of two groups, adjusted for other columns.

    ``first`` and ``second`` are codes of groups (None: all others). The value is the mean of the first minus that
    of the second, NaN where the data say nothing of it; ``low`` and ``high`` are the ends of its interval.
    ``undecided`` says why the value should not be judged; None if it may be.
    """

    first: int
    second: int | None
    value: float
    standard_error: float
    low: float
    high: float
    undecided: str | None


def cells_of(keys: npt.NDArray[Any]) -> Ints:
    """Return a number for each different row, counted from 0, shape (n,), independent of the order of rows.

    Parameters
    ----------
    keys
        Shape (n, d) or (n,); NaN is a value like any other, and -0 is 0.
    """
    if keys.ndim == 1 and keys.dtype.kind in "iub":
        return np.asarray(np.unique(keys, return_inverse=True)[1].reshape(-1), dtype=np.int64)
    X = np.asarray(keys, dtype=np.float64).reshape(len(keys), -1)
    _, chosen, cells = np.unique(hashed(X), return_index=True, return_inverse=True)
    for column in X.T:
        other = column[chosen][cells]
        if not np.all((column == other) | (np.isnan(column) & np.isnan(other))):
            break  # two rows of one hash, once in 2**64: compare them whole
    else:
        return np.asarray(cells.reshape(-1), dtype=np.int64)
    plain = np.where(np.isnan(X), np.inf, X + 0.0)
    both = np.column_stack([plain, np.isnan(X)])
    return np.asarray(np.unique(both, axis=0, return_inverse=True)[1].reshape(-1), dtype=np.int64)


def ordered(
    score: npt.ArrayLike,
    group: npt.ArrayLike,
    X: npt.NDArray[Any],
    weight: npt.ArrayLike | None,
    keys: Callable[[npt.NDArray[Any]], npt.NDArray[Any]],
) -> tuple[Floats, Ints, Ints, Floats, Ints, npt.NDArray[Any]]:
    """Return scores, levels of the group, codes, weights, numbers and keys of the rows that have weight, checked.

    Rows are in the order of the ``keys`` of ``X``, then of group, score and weight, so that sums do not depend on their
    original order.
    """
    scores, codes = np.asarray(score, dtype=np.float64), np.asarray(group, dtype=np.int64)
    w = np.ones(len(X)) if weight is None else np.asarray(weight, dtype=np.float64)
    if not scores.shape == codes.shape == w.shape == (len(X),):
        raise DataError(
            f"scores, groups, columns and weights are of different rows; {len(X):,} columns' rows were given"
        )
    if not np.isfinite(scores).all():
        row = int(np.argmin(np.isfinite(scores)))
        raise DataError(f"the score of row {row + 1:,} is {scores[row]}; leave out rows without a score")
    if not (np.isfinite(w).all() and (w >= 0).all()):
        raise DataError("weights must be numbers of at least 0")
    rows = np.flatnonzero(w > 0)
    levels, codes = np.unique(codes[rows], return_inverse=True)
    if levels.size < 2:
        raise DataError("an effect of a group needs rows of at least two groups")
    key = keys(X[rows])
    order = np.lexsort((w[rows], scores[rows], codes, key))
    rows = rows[order]
    return scores[rows], levels, np.asarray(codes[order], dtype=np.int64), w[rows], rows, key[order]
