"""Predicted classes of people, and of their counterfactual copies.

References
----------
Yurochkin and Sun (2021), SenSeI, ICLR: prediction consistency is the share whose class does not change, counterfactual
token fairness of classes the squared distance of their probabilities.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fairfix.auditing.multiclass import CHANGES
from fairfix.data.classes import named
from fairfix.data.data_spec import ColumnRoles, DataSpec
from fairfix.data.files import Source
from fairfix.data.names import attribute_name
from fairfix.data.scan import read_table
from fairfix.data.table import Table
from fairfix.errors import DataError
from fairfix.individual.by_model import mean_of, mean_share, unchanged
from fairfix.individual.counterfactuals import Counterfactuals, read_predictions
from fairfix.individual.flips import Flip, concerned, flipped, protected_flips
from fairfix.individual.similar import Comparable
from fairfix.models.predictors import RepairedPredictor
from fairfix.schema.common import Comparison, comparison

CHANGED, DISTANCE = CHANGES[0], CHANGES[-1]

BLIND = "the rule does not use the changed columns: constant by construction"


def classes_of_copies(
    source: Source, data_spec: DataSpec, data: Any, confidence: float
) -> tuple[dict[str, list[Comparison]], Counterfactuals]:
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
    row, changed = copies.of(table)
    people, of = np.unique(row, return_inverse=True)
    here, there = (_classes(one, name) for one in (table, changed))
    differs = np.zeros(people.size)
    np.maximum.at(differs, of.ravel(), (there != here[row]).astype(np.float64))
    reason = f"{row.size:,} copies of {people.size:,} people"
    value = mean_share(differs, table.weight[people], (0.0, 1.0), 1.0 - confidence, reason)
    return {attribute_name(columns.protected): [comparison(CHANGED, value)]}, copies


def of_predicted_classes(
    table: Table,
    predictor: RepairedPredictor,
    comparable: Comparable,
    confidence: float,
    copies: Counterfactuals | None = None,
) -> dict[str, list[Comparison]]:
    """Return the fractions of people whose predicted class depends on what must not count: attribute -> comparisons.

    Flips are of all levels of the attribute's columns; comparable values, and copies of people, are with the last
    attribute, which is of all columns.
    """
    columns, alpha = table.data_spec.columns.protected, 1.0 - confidence
    looks_at = {*predictor.inputs, *predictor.features}

    def share(scope: str, rows: Table, flips: Sequence[Flip], same: Comparable = ()) -> Comparison:
        name = f"decision_flips.{scope}"
        if looks_at.isdisjoint(part for flip in flips for part in (*flip.protected, *flip.comparable)):
            return comparison(name, unchanged(BLIND))
        every = [predictor.predict(flipped(rows, flip, same)) for flip in flips]
        if scope == "under_flips":  # what people get whose group is missing counts too
            every.append(predictor.predict(rows))
        differs = (np.stack(every) != every[0]).any(axis=0).astype(np.float64)
        return comparison(name, mean_share(differs, rows.weight, (0.0, 1.0), alpha))

    out = {}
    for own in dict.fromkeys([*((name,) for name in columns), columns]):
        out[attribute_name(own)] = [share("under_flips", table, protected_flips(table, own))]
    last = out[attribute_name(columns)]
    if comparable:
        flips = protected_flips(table, (), comparable)
        inside = np.all([concerned(table, name, alike) for name, alike in comparable], axis=0)
        if inside.any():
            last.append(share("under_comparable", table.take(np.flatnonzero(inside)), flips, comparable))
        last.append(
            share("under_everybody", table, [replace(flip, everybody=True) for flip in flips], comparable)
        )
    if copies is not None:
        row, changed = copies.of(table)
        if row.size:
            people, of = np.unique(row, return_inverse=True)
            of = of.reshape(-1)
            other = predictor.predict(changed) != predictor.predict(table)[row]
            differs = np.zeros(people.size)
            np.maximum.at(differs, of, other.astype(np.float64))
            weight, reason = table.weight[people], f"{row.size:,} copies of {people.size:,} people"
            last.append(comparison(CHANGED, mean_share(differs, weight, (0.0, 1.0), alpha, reason)))
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


def _classes(table: Table, name: str) -> npt.NDArray[np.str_]:
    """Return the predicted class of each row, (n,)."""
    at = table.data_spec.columns.cell_keys.index(name)
    levels = np.array(named(name, "prediction", [cell[at] for cell in table.rows.cells]))
    return np.asarray(levels[table.rows.cell])
