"""Memberships: the probabilities of a row to be of each group, where no group is recorded (BISG and the like)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fairfix.data.counts import Floats, Ints
from fairfix.data.encoder import numbers
from fairfix.data.table import Table
from fairfix.errors import ColumnError, DataError

ROUNDED = 1e-3
"""Sums of probabilities may differ from 1 by this, as those of rounded numbers do."""


CORRECT = "correct it, or leave the row out"
"""Remedy for a row that has none."""

NO_POLICY = (
    f"{CORRECT}; `unseen` does not apply to rows without membership probabilities, since it "
    "is about recorded groups"
)
"""Remedy for a row to predict on that has none."""


def memberships(
    table: Table,
    columns: Sequence[str],
    rows: Ints | None = None,
    where: str = " of those used",
    remedy: str = CORRECT,
) -> Floats:
    """Return the probabilities in feature columns of a table, each row of sum 1, shape (n, K).

    A DataError or ColumnError names the column and the row that holds none, by its number among ``rows``, shape (n,).
    """
    z = np.stack([numbers_of(table, name, "membership probabilities") for name in columns], -1)
    return checked(z, columns, np.arange(1, len(table) + 1) if rows is None else rows, where, remedy)


def numbers_of(table: Table, name: str, what: str = "numbers") -> Floats:
    """Return the entries of a feature column, shape (n,), NaN where one is missing; a ColumnError where it has none.

    ``what``: what it holds, for messages.
    """
    if name not in table.features.column_names:
        raise ColumnError(f"there is no feature column {name!r} of {what}")
    column = table.features.column(name).combine_chunks()
    return np.asarray(numbers(column, name, what.split()[-1], remedy="; convert it"), dtype=np.float64)


def checked(
    vectors: Floats,
    columns: Sequence[str],
    rows: Ints,
    where: str,
    remedy: str = CORRECT,
) -> Floats:
    """Return probabilities, (n, K), with sums of 1, or say which are none, by the numbers of their rows."""
    bad = ~((vectors >= 0) & (vectors <= 1 + ROUNDED))
    if bad.any():
        i, j = (int(at[0]) for at in np.nonzero(bad))
        value = vectors[i, j]
        what = "is missing" if math.isnan(value) else f"is {value:g}, which is not a probability,"
        raise DataError(f"column {columns[j]!r} {what} in row {rows[i]:,}{where}; {remedy}")
    sums = np.zeros(len(vectors))
    for part in vectors.T:  # one by one, as exported rules add up
        sums += part
    off = np.flatnonzero(np.abs(sums - 1) > ROUNDED)
    if off.size:
        i = int(off[0])
        raise DataError(
            f"the probabilities of {', '.join(columns)} sum to {sums[i]:.6g} in row {rows[i]:,}{where}, and not to 1 "
            f"(within {ROUNDED:g}); correct them, or name a column for the other groups too"
        )
    return np.asarray(vectors / sums[:, None])
