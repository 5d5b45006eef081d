"""Predicted classes of people, and of their counterfactual copies.

References
----------
Yurochkin and Sun (2021), SenSeI, ICLR: prediction consistency is the share whose class does not change, counterfactual
token fairness of classes the squared distance of their probabilities.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fairfix.auditing.multiclass import CHANGES
from fairfix.data.classes import named
from fairfix.data.counts import Bools, Floats, Ints
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.files import Source
from fairfix.data.names import attribute_name
from fairfix.data.scan import read_table
from fairfix.data.table import Table
from fairfix.errors import DataError
from fairfix.individual.by_model import mean_of, mean_share, of_each_attribute, unchanged
from fairfix.individual.counterfactuals import Counterfactuals, read_predictions
from fairfix.individual.flips import Flip, flipped
from fairfix.individual.similar import Comparable
from fairfix.models.predictors import RepairedPredictor
from fairfix.schema.common import Estimate, SavedComparison, comparison

CHANGED, DISTANCE = CHANGES[0], CHANGES[-1]

BLIND = "the rule does not use the changed columns: constant by construction"


def classes_of_copies(
    source: Source, data_spec: DataSpec, data: Any, confidence: float
) -> tuple[dict[str, list[SavedComparison]], Counterfactuals]:
    """Return the share of people who are predicted another class than some copy of theirs, and the copies.

    Parameters
    ----------
    source, reading
        The rows, with columns of ids and of predicted classes.
    data
        The copies: rows of an id and a predicted class.
    confidence
        Of the limits; each person counts once, with their weight.

    Returns
    -------
    All protected columns together -> the comparison, as :func:`fairfix.auditing.audit.judge` takes it.
    """
    columns = data_spec.columns
    name = str(columns.prediction)
    own = DataSpec(
        ColumnRoles((), weight=columns.weight, id=columns.id, classes=(name,)),
        missing_rows="drop" if data_spec.policy(name) == "drop" else "error",
    )
    table = read_table(source, own, (), {str(columns.id): pa.string(), name: source.schema.field(name).type})
    copies = read_predictions(data, table, name)
    people, of, changed, reason = copies.by_person(table)
    here, there = (_classes(one, name) for one in (table, changed))
    value = _share(there != here[people[of]], of, table.weight[people], 1.0 - confidence, reason)
    return {attribute_name(columns.protected): [comparison(CHANGED, value)]}, copies


def of_predicted_classes(
    table: Table,
    predictor: RepairedPredictor,
    comparable: Comparable,
    confidence: float,
    copies: Counterfactuals | None = None,
) -> dict[str, list[SavedComparison]]:
    """Return the fractions of people whose predicted class depends on what must not count: attribute -> comparisons.

    Flips are of all levels of the attribute's columns; comparable values, and copies of people, are with the last
    attribute, which is of all columns.
    """
    alpha, looks_at = 1.0 - confidence, {*predictor.inputs, *predictor.features}

    def share(rows: Table, flips: Sequence[Flip], scope: str, same: Comparable) -> Iterator[SavedComparison]:
        name = f"decision_flips.{scope}"
        if looks_at.isdisjoint(part for flip in flips for part in (*flip.protected, *flip.comparable)):
            yield comparison(name, unchanged(BLIND))
            return
        every = [predictor.predict(flipped(rows, flip, same)) for flip in flips]
        if scope == "under_flips":  # what people get whose group is missing counts too
            every.append(predictor.predict(rows))
        differs = (np.stack(every) != every[0]).any(axis=0).astype(np.float64)
        yield comparison(name, mean_share(differs, rows.weight, (0.0, 1.0), alpha))

    out = of_each_attribute(table, comparable, share)
    if copies is not None:
        people, of, changed, reason = copies.by_person(table)
        if people.size:
            last, weight = out[attribute_name(table.data_spec.columns.protected)], table.weight[people]
            other = predictor.predict(changed) != predictor.predict(table)[people[of]]
            last.append(comparison(CHANGED, _share(other, of, weight, alpha, reason)))
            before, after = (predictor.class_probabilities(one) for one in (table.take(people), changed))
            moved = ((after - before[of]) ** 2).sum(axis=1)
            each = np.bincount(of, moved) / np.bincount(of)
            last.append(comparison(DISTANCE, mean_of(each, weight, (0.0, 2.0), alpha, reason)))
    return out


def require_known(copies: Counterfactuals, names: Collection[str]) -> None:
    """Raise a DataError where no copy is predicted a class of the data, its labels and predictions together."""
    for column, levels in copies.levels.items():
        predicted = {*named(column, "prediction", levels)}
        if predicted.isdisjoint(names):
            here, there = (", ".join(map(repr, sorted(one)[:3])) for one in (names, predicted))
            raise DataError(
                f"no copy is predicted a class of the data: column {column!r} of {copies.source} holds {there}, the "
                f"classes of the data are {here}; spell the classes the same way in both"
            )


def _share(changed: Bools, of: Ints, weight: Floats, alpha: float, reason: str) -> Estimate:
    """Return the share of people, (p,), some copy of whom is changed, from that of each copy and its person, (c,)."""
    differs = (np.bincount(of, changed, weight.size) > 0).astype(np.float64)
    return mean_share(differs, weight, (0.0, 1.0), alpha, reason)


def _classes(table: Table, name: str) -> npt.NDArray[np.str_]:
    """Return the predicted class of each row, (n,)."""
    at = table.data_spec.columns.cell_keys.index(name)
    levels = np.array(named(name, "prediction", [cell[at] for cell in table.rows.cells]))
    return np.asarray(levels[table.rows.cell])
