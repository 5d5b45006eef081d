"""Classes: labels and predictions of many values, counted once and read as one class against the rest.

Both columns are counted like groups, so one scan holds every class: the rows of a group by true and predicted class.
The counts of one class are sums of these, and equal to what a scan with that class as the positive value would count.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fairfix.data.bands import as_number
from fairfix.data.counts import Bools, Counts, groups_of_cells
from fairfix.data.encoder import MOST_CLASSES
from fairfix.data.reading import Reading
from fairfix.data.scan import Scan
from fairfix.errors import DataError

WHOLE = re.compile(r"([+-]?\d+)\.0*")
"""A whole number as columns of real numbers write it."""


def of_classes(reading: Reading) -> Reading:
    """Return the reading that counts labels, if there are any, and predictions like groups."""
    columns = reading.columns
    names = tuple(name for name in (columns.label, columns.prediction) if name)
    return replace(reading, columns=replace(columns, label=None, prediction=None, classes=names))


@dataclass(frozen=True)
class Classes:
    """The rows of every cell by true and predicted class."""

    names: tuple[str, ...]
    """The classes: numbers by size, then texts."""
    reading: Reading
    """With ``label``, if there are labels, and ``prediction``."""
    counts: Counts
    """One cell for strata, protected columns, label and prediction: C in all, without scores."""
    truth: tuple[str, ...] | None
    decided: tuple[str, ...]
    """Class of the label and of the prediction of each cell, (C,); no labels are None."""

    @classmethod
    def of(cls, counts: Counts, reading: Reading) -> Classes:
        """Return the classes of counts that were taken as :func:`of_classes` says of the reading.

        Raises
        ------
        DataError
            There are fewer than two classes or more than :data:`MOST_CLASSES`, fractional numbers are none, or no
            prediction is a class of the labels.
        """
        columns, keys = reading.columns, counts.keys
        truth = None
        if columns.label:
            truth = _named(columns.label, "label", [cell[keys.index(columns.label)] for cell in counts.cells])
        name = str(columns.prediction)
        decided = _named(name, "prediction", [cell[keys.index(name)] for cell in counts.cells])
        names = sorted({*(truth or ()), *decided}, key=_rank)
        if len(names) < 2:
            raise DataError(
                f"prediction column {name!r} has the single class {names[0]!r}; an audit of classes needs two or more"
            )
        if len(names) > MOST_CLASSES:
            raise DataError(
                f"label and prediction have {len(names)} classes together, and classes are compared up to "
                f"{MOST_CLASSES}; fold rare ones into one class, or name a single class with `positive_label=VALUE`"
            )
        if truth is not None and not {*truth} & {*decided}:
            true, predicted = (
                ", ".join(map(repr, sorted(set(one), key=_rank)[:3])) for one in (truth, decided)
            )
            raise DataError(
                f"no prediction is a class of the labels: label column {columns.label!r} holds {true}, prediction "
                f"column {name!r} {predicted}; spell the classes alike in both columns"
            )
        return cls(tuple(names), reading, counts, truth, decided)

    @property
    def never_true(self) -> tuple[str, ...]:
        """Classes that are predicted and that no row has as its label; none without labels."""
        return () if self.truth is None else tuple(n for n in self.names if n not in {*self.truth})

    @property
    def never_decided(self) -> tuple[str, ...]:
        """Classes that no row is predicted to be."""
        return tuple(name for name in self.names if name not in {*self.decided})

    def against_rest(self, name: str) -> Scan:
        """Return what a scan with this class as the positive label and decision would count."""
        truth = None if self.truth is None else np.array([one == name for one in self.truth])
        reading = replace(
            self.reading,
            positive_label=None if truth is None else name,
            positive_prediction=name,
        )
        return Scan(self._binary(truth, np.array([one == name for one in self.decided])), None, reading)

    def right(self) -> Scan:
        """Return counts whose accuracy is that of all classes together; nothing else in them means anything.

        All labels are positive in them, and so are the right decisions.
        """
        truth = self.truth or ("",) * len(self.decided)
        right = np.array([one == other for one, other in zip(truth, self.decided, strict=True)], dtype=bool)
        labels = None if self.truth is None else np.ones_like(right)
        return Scan(self._binary(labels, right), None, self.reading)

    def _binary(self, truth: Bools | None, decided: Bools) -> Counts:
        """Return the counts of cells of strata and protected columns, by label and decision, (C,) each."""
        counts = self.counts
        keys = (*self.reading.columns.strata, *self.reading.columns.protected)
        at = [counts.keys.index(name) for name in keys]
        cells = tuple(sorted({tuple(cell[i] for i in at) for cell in counts.cells}))
        _, cell = groups_of_cells(counts.keys, counts.cells, keys, cells)
        labels = 1 if truth is None else 2
        label = np.zeros(len(cell), dtype=np.int64) if truth is None else truth.astype(np.int64)

        def added(table: npt.NDArray[Any]) -> npt.NDArray[Any]:
            out = np.zeros((len(cells), labels, 1), dtype=table.dtype)
            np.add.at(out[..., 0], (cell, label), table[:, 0, 0])
            return out

        decisions = np.zeros((len(cells), labels, 4))
        against = (~decided).astype(np.int64)
        for place, weights in enumerate((counts.weights, counts.square_weights)):
            np.add.at(decisions[..., 2 * place :], (cell, label, against), weights[:, 0, 0])
        tables: Any = {
            name: added(table)
            for name in ("rows", "mass", "square_mass")
            if (table := getattr(counts, name)) is not None
        }
        return replace(counts, keys=keys, cells=cells, decisions=decisions, **tables)


def _named(column: str, part: str, levels: Sequence[str]) -> tuple[str, ...]:
    """Return the class of each level; 1.0 and 1 are one class, and numbers with a fraction are none."""
    wholes = {level: WHOLE.fullmatch(level) for level in set(levels)}
    for level, whole in wholes.items():
        number = as_number(level)
        if number is not None and not whole and not float(number).is_integer():
            raise DataError(
                f"{part} column {column!r} holds {level}, and numbers with a fraction are no classes; a real-valued "
                "target has `task=regression`"
            )
    return tuple(whole[1] if (whole := wholes[level]) else level for level in levels)


def _rank(name: str) -> tuple[bool, float, str]:
    number = as_number(name)
    return number is None, number or 0.0, name
