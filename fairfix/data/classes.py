"""Classes: labels and predictions of many values, counted once and read as one class against the rest.

Both columns are counted like groups, so one scan holds every class: the rows of a group by true and predicted class.
The counts of one class are sums of these, and equal to what a scan with that class as the positive value would count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fairfix.data.counts import Bools, Counts, Floats, Ints, groups_of_cells
from fairfix.data.data_spec import DataSpec
from fairfix.data.encoder import MOST_CLASSES
from fairfix.data.numeric_groups import as_number
from fairfix.data.scan import Scan
from fairfix.data.table import Table
from fairfix.errors import DataError


def of_classes(data_spec: DataSpec) -> DataSpec:
    """Return the reading that counts labels, if there are any, and predictions like groups."""
    columns = data_spec.columns
    names = tuple(name for name in (columns.label, columns.prediction) if name)
    return replace(data_spec, columns=replace(columns, label=None, prediction=None, classes=names))


@dataclass(frozen=True, eq=False)
class ClassCounts:
    """Rows by cell of strata and protected columns, true and predicted class: C entries, one for each that there is."""

    names: tuple[str, ...]
    """The classes: numbers by size, then texts."""
    data_spec: DataSpec
    """With ``label``, if there are labels, and ``prediction``."""
    counts: Counts
    """Counts of the entries, without scores."""
    cells: tuple[tuple[str, ...], ...]
    """Levels of strata and protected columns."""
    cell: Ints
    truth: Ints | None
    decided: Ints
    """Index of the cell, of the true and of the predicted class of each entry, shape (C,); no labels are None."""

    @classmethod
    def of(cls, counts: Counts, data_spec: DataSpec) -> ClassCounts:
        """Return the classes of counts that were taken as :func:`of_classes` says of the reading.

        Raises
        ------
        DataError
            There are fewer than two classes or more than :data:`MOST_CLASSES`, fractional numbers are none, or no
            prediction is a class of the labels.
        """
        columns, keys = data_spec.columns, counts.keys
        truth = None
        if columns.label:
            truth = named(columns.label, "label", [cell[keys.index(columns.label)] for cell in counts.cells])
        name = str(columns.prediction)
        decided = named(name, "prediction", [cell[keys.index(name)] for cell in counts.cells])
        names = sorted({*(truth or ()), *decided}, key=_rank)
        if len(names) < 2:
            raise DataError(
                f"prediction column {name!r} has only the class {names[0]!r}; a multiclass audit needs two or more"
            )
        if len(names) > MOST_CLASSES:
            raise DataError(
                f"label and prediction have {len(names)} classes together, and the largest supported number is "
                f"{MOST_CLASSES}; merge rare ones into one class, or name a single class with "
                "`label=COLUMN=VALUE`"
            )
        if truth is not None and not {*truth} & {*decided}:
            first = [", ".join(map(repr, sorted(set(one), key=_rank)[:3])) for one in (truth, decided)]
            raise DataError(
                f"no prediction is a class of the labels: label column {columns.label!r} holds {first[0]}, prediction "
                f"column {name!r} {first[1]}; spell the classes the same way in both columns"
            )
        own = (*columns.strata, *columns.protected)
        cells, cell = groups_of_cells(keys, counts.cells, own)
        order = sorted(
            range(len(cells)), key=cells.__getitem__
        )  # as counts are, whatever the order of groups
        place = {name: i for i, name in enumerate(names)}

        def coded(levels: Sequence[str]) -> Ints:
            return np.array([place[level] for level in levels], dtype=np.int64)

        return cls(
            tuple(names),
            data_spec,
            counts,
            tuple(cells[i] for i in order),
            np.argsort(order)[cell],
            None if truth is None else coded(truth),
            coded(decided),
        )

    @property
    def never_true(self) -> tuple[str, ...]:
        """Classes that are predicted and that no row has as its label; none without labels."""
        if self.truth is None:
            return ()
        return tuple(self.names[i] for i in np.setdiff1d(np.arange(len(self.names)), self.truth))

    def against_rest(self, name: str) -> Scan:
        """Return what a scan with this class as the positive label and decision would count."""
        place = self.names.index(name)
        truth = None if self.truth is None else self.truth == place
        data_spec = replace(
            self.data_spec,
            positive_label=() if truth is None else (name,),
            positive_prediction=(name,),
        )
        return Scan(self._binary(truth, self.decided == place), None, data_spec)

    def right(self) -> Scan:
        """Return counts whose accuracy is that of all classes together; nothing else in them means anything.

        All labels are positive in them, and so are the right decisions.
        """
        if self.truth is None:
            return Scan(self._binary(None, np.zeros(self.decided.size, dtype=bool)), None, self.data_spec)
        right = self.truth == self.decided
        return Scan(self._binary(np.ones_like(right), right), None, self.data_spec)

    def _binary(self, truth: Bools | None, decided: Bools) -> Counts:
        """Return the counts by cell of strata and protected columns, of labels and decisions of the entries, (C,)."""
        counts, labels = self.counts, 1 if truth is None else 2
        code = 2 * self.cell * labels + (0 if truth is None else 2 * truth) + ~decided

        def added(table: npt.NDArray[Any]) -> Floats:
            whole = np.bincount(code, table[:, 0, 0], 2 * labels * len(self.cells))
            return np.asarray(whole.reshape(len(self.cells), labels, 2))

        rows = added(counts.rows)
        weights = rows if counts.mass is None else added(counts.mass)
        squares = rows if counts.square_mass is None else added(counts.square_mass)

        def of_labels(table: Floats) -> Floats:
            return np.asarray(table.sum(axis=2, keepdims=True))

        return replace(
            counts,
            keys=(*self.data_spec.columns.strata, *self.data_spec.columns.protected),
            cells=self.cells,
            rows=of_labels(rows).astype(np.int64),
            mass=None if counts.mass is None else of_labels(weights),
            square_mass=None if counts.square_mass is None else of_labels(squares),
            decisions=np.concatenate([weights, squares], axis=2),
        )


def classes_of_rows(table: Table, column: str, part: str) -> tuple[tuple[str, ...], Ints]:
    """Return the classes that a column of classes has in a table, in order, and the number of each row's, shape (n,).

    ``part``: what the column is, for messages. The order is that of the classes of an audit.
    """
    groups = table.groups([column])
    levels = named(column, part, [level for (level,) in groups.levels])
    names = tuple(sorted({*levels}, key=_rank))
    place = np.array([names.index(level) for level in levels], dtype=np.int64)
    return names, place[groups.codes]


def named(column: str, part: str, levels: Sequence[str]) -> tuple[str, ...]:
    """Return the class of each level of a column; numbers with a fraction are a DataError."""
    for level in set(levels):
        number = as_number(level)
        if number is not None and not float(number).is_integer():
            raise DataError(
                f"{part} column {column!r} holds {level}, and numbers with a fraction are not classes; a real-valued "
                "target needs `task=regression`"
            )
    return tuple(levels)


def _rank(name: str) -> tuple[bool, float, str]:
    number = as_number(name)
    return number is None, number or 0.0, name
