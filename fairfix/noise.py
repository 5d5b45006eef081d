"""Noise tables: what is known of how recorded groups differ from true ones, from a file to masses that fit the data.

A table has a row per (``true``, ``noisy``[, ``label``]) with a ``count`` or a ``probability``. Probabilities are joint
(of total 1), or given the true group (and the label), or given the noisy group: their sums tell which.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fairfix.errors import DataError
from fairfix.io import open_source
from fairfix.optim.noisy_groups import transport_columns, transport_rows

Floats = npt.NDArray[np.float64]

Given = Literal["nothing", "true", "noisy"]

TRUTHS = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}
"""How labels of a noise table may be written."""

ROUNDING = 1e-3
"""What sums of written probabilities may be off by."""


@dataclass(frozen=True, eq=False)
class NoiseTable:
    """Masses of true and noisy groups.

    Attributes
    ----------
    true, noisy
        Names of the groups, sorted.
    masses
        Shape (J, K), or (2, J, K) by label; joint masses of any total, or what ``given`` says.
    given
        Whether masses are joint, or probabilities given the true or the noisy group (and the label).
    """

    true: tuple[str, ...]
    noisy: tuple[str, ...]
    masses: Floats
    given: Given = "nothing"

    @property
    def by_label(self) -> bool:
        """Whether there is a table for each label."""
        return self.masses.ndim == 3

    def fitted(self, names: Sequence[str], own: Floats) -> Floats:
        """Return joint masses whose columns are the masses of the data's noisy groups.

        ``P(true | noisy)`` is kept; where the table gives ``P(noisy | true)``, that is kept instead as far as can be.

        Parameters
        ----------
        names
            Noisy groups of the data.
        own
            Their masses, shape (K',), or (2, K') by label.

        Returns
        -------
        Shape (J, K') or (2, J, K').

        Raises
        ------
        DataError
            A noisy group of the data is not in the table, or has no mass there.
        """
        for name in names:
            if name not in self.noisy:
                raise DataError(
                    f"the noise table knows nothing of the group {name!r}; it has {', '.join(self.noisy)}"
                )
        at = [self.noisy.index(name) for name in names]
        mass = np.zeros((*own.shape[:-1], len(self.noisy)))
        mass[..., at] = own
        if self.given == "true":
            table = transport_rows(self.masses, mass)[..., at]
        else:
            empty = (mass > 0) & (self.masses.sum(-2) <= 0)
            if empty.any():
                name = self.noisy[int(np.argwhere(empty)[0][-1])]
                raise DataError(
                    f"the noise table has no mass for the group {name!r} with a label that the data have"
                    if self.by_label
                    else f"the noise table has no mass for the group {name!r}"
                )
            table = transport_columns(self.masses, mass)[..., at]
        return np.asarray(table)


def read_noise(path: str | os.PathLike[str]) -> NoiseTable:
    """Return the noise table of a CSV or Parquet file.

    Raises
    ------
    DataError
        A column is missing, or a number or a label cannot be used.
    """
    source = open_source(os.fspath(path))
    values = [name for name in ("count", "probability") if name in source.columns]
    if "true" not in source.columns or "noisy" not in source.columns or len(values) != 1:
        raise DataError(
            f"{source.name}: a noise table has the columns true, noisy and either count or probability, and label if "
            f"it is by label; this one has {', '.join(source.columns)}"
        )
    named = ["true", "noisy", *(["label"] if "label" in source.columns else [])]
    import pyarrow as pa

    types: dict[str, pa.DataType] = {**dict.fromkeys(named, pa.string()), values[0]: pa.float64()}
    rows: list[dict[str, Any]] = []
    for part in source.parts([*named, values[0]], types):
        for batch in part.batches():
            rows += batch.to_pylist()
    return noise_of(rows, values[0], source.name)


def noise_of(rows: Sequence[dict[str, Any]], value: str, where: str) -> NoiseTable:
    """Return the noise table of rows with ``true``, ``noisy``, maybe ``label``, and a value; repeated rows add up.

    Raises
    ------
    DataError
        A group is missing, or a number or a label cannot be used.
    """
    if not rows:
        raise DataError(f"{where}: the noise table has no rows")
    labelled = "label" in rows[0]
    for number, row in enumerate(rows, 1):
        mass = row[value]
        if row["true"] is None or row["noisy"] is None:
            raise DataError(f"{where}: row {number} of the noise table names no group")
        if mass is None or not 0 <= mass < np.inf:
            raise DataError(
                f"{where}: row {number} of the noise table has the {value} {mass}; it must be 0 or more"
            )
        if labelled and str(row["label"]).lower() not in TRUTHS:
            raise DataError(
                f"{where}: row {number} of the noise table has the label {row['label']!r}; it must be 0 or 1"
            )
    true, noisy = (tuple(sorted({str(row[part]) for row in rows})) for part in ("true", "noisy"))
    masses = np.zeros((2, len(true), len(noisy)))
    for row in rows:
        label = TRUTHS[str(row["label"]).lower()] if labelled else 0
        masses[label, true.index(str(row["true"])), noisy.index(str(row["noisy"]))] += row[value]
    if not masses.sum() > 0:
        raise DataError(f"{where}: the noise table has no mass")
    if not labelled:
        masses = masses[0]
    return NoiseTable(true, noisy, masses, "nothing" if value == "count" else _given(masses, where))


def _given(masses: Floats, where: str) -> Given:
    """Return what probabilities are given, by their sums."""

    def ones(sums: Floats) -> bool:
        some = sums[sums > 0]
        return bool(np.abs(some - 1).max() <= ROUNDING)

    if abs(float(masses.sum()) - 1) <= ROUNDING:
        return "nothing"
    if ones(masses.sum(-1)):
        return "true"
    if ones(masses.sum(-2)):
        return "noisy"
    raise DataError(
        f"{where}: the probabilities of a noise table add up to 1 altogether, for each true group or for each noisy "
        "group (and label); these do not. Give counts, or mend them"
    )
