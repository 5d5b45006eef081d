r"""The direct effect of a group on a score, from scores alone: what belonging to it changes, all else being equal.

No model is needed, only scores, groups and the other columns ``x``. With ``f_a(x)`` the mean score of group ``a`` at
``x`` and ``p_a(x)`` its share there, both estimates are of a mean of differences,

.. math::
    \theta_{ab} = \frac{E[h(x)\, (f_a(x) - f_b(x))]}{E[h(x)]}, \qquad
    h(x) = \frac{p_a(x)\, p_b(x)}{p_a(x) + p_b(x)} ,

weighted by overlap: rows like which only one group has any count nothing, for nothing can be seen there. For a score
that is a function of ``x`` and the group, ``f_a(x) - f_b(x)`` is what a change of the group alone does to the score.
Against everybody else, ``b`` is all other groups together and ``h = p_a (1 - p_a)``.

===========================  =================================================================================
:func:`matched_effect`       compares rows that are *equal* in all other columns. Nothing is modelled and a blind
                             score has effect 0 to the bit, but it speaks of the rows that have an equal only
:func:`residual_effect`      takes off score and group what linear models and trees foretell of them from ``x``, and
                             compares what is left (the partially linear model). It speaks of all rows where groups
                             overlap, and tries itself on a blind score first
===========================  =================================================================================

Neither looks at how fast a score changes with ``x``: a steep score that is blind to the group has no effect. What a
column that is not among ``x`` changes, and what goes through a column that is (a proxy), is not told apart from what
it comes with: the effect is that of the group *given* the columns.

**Weights** are shares of the population: a row of weight 2 stands for two, in every mean. They do not add evidence.

References
----------
Robinson (1988), Econometrica 56. Chernozhukov et al. (2018), Econometrics Journal 21. Li, Morgan and Zaslavsky (2018),
JASA 113 (overlap weights). Ahrens, Hansen, Schaffer and Wiemann (2025), Journal of Applied Econometrics 40
(short-stacking). Van der Laan, Luedtke and Carone (2024), arXiv 2411.02771 (calibration). Papke and Wooldridge (1996),
Journal of Applied Econometrics 11 (fractional logit). Cameron and Miller (2015), Journal of Human Resources 50
(clusters).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fairfix.data.counts import Floats, Ints
from fairfix.errors import DataError
from fairfix.models.learners import hashed


@dataclass(frozen=True)
class Contrast:
    """How scores of one group differ from those of another, other columns accounted for.

    Attributes
    ----------
    first, second
        Codes of the groups; the value is that of the first minus that of the second. None: everybody else.
    value
        Mean difference; NaN where the data say nothing of it.
    standard_error
        Of the value; infinite where nothing tells of it.
    low, high
        Ends of the interval.
    """

    first: int
    second: int | None
    value: float
    standard_error: float
    low: float
    high: float


def cells_of(keys: npt.NDArray[Any]) -> Ints:
    """Return a number from 0 on for each different row, shape (n,); in an order that row order has no part in.

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


def checked(
    score: npt.ArrayLike, group: npt.ArrayLike, weight: npt.ArrayLike | None, rows: int
) -> tuple[Floats, Ints, Floats]:
    """Return scores, codes of groups and weights as arrays, checked."""
    values = np.asarray(score, dtype=np.float64)
    codes = np.asarray(group, dtype=np.int64)
    w = np.ones(rows) if weight is None else np.asarray(weight, dtype=np.float64)
    if not values.shape == codes.shape == w.shape == (rows,):
        raise DataError(
            f"scores, groups, columns and weights are of different rows; {rows:,} columns' rows were given"
        )
    if not np.isfinite(values).all():
        row = int(np.argmin(np.isfinite(values)))
        raise DataError(f"the score of row {row + 1:,} is {values[row]}; leave out rows without a score")
    if not (np.isfinite(w).all() and (w >= 0).all()):
        raise DataError("weights have to be numbers from 0 on")
    if np.unique(codes[w > 0]).size < 2:
        raise DataError("an effect of a group needs rows of two groups at least")
    return values, codes, w
