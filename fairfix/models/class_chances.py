"""A predictor of one of many classes: a scorer's probability of each, and the most probable class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
import pyarrow as pa
from msgspec import Meta

from fairfix.data.choices import Unseen
from fairfix.data.codec import Setting
from fairfix.data.counts import Bools, Floats
from fairfix.data.encoder import arrow_array
from fairfix.data.table import Table
from fairfix.errors import DataError
from fairfix.models.predictors import RepairedPredictor, unseen_error
from fairfix.models.program import Program
from fairfix.models.score_models import OfScorers, Scorer, ScorerPart

LONGEST_NUMBER = 18
"""Digits of a whole number that fits into 64 bits whatever they are."""


@dataclass(frozen=True, eq=False)
class ClassChances(OfScorers):
    """Probabilities of classes; the prediction is the most probable, the first in order among equals."""

    kind: ClassVar[str] = "class_chances"
    gives: ClassVar[Literal["class"]] = "class"

    scorer: Annotated[Scorer, ScorerPart(one_number=False)]
    names: Annotated[tuple[str, ...], Meta(min_length=2), Setting()]
    """The classes: numbers by size, then texts."""

    @property
    def sound(self) -> bool:
        """Whether the scorer gives a chance for each class, and no two classes have one name."""
        return self.scorer.classes_given == len(self.names) == len({*self.names})

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes that there are to predict."""
        return self.names

    def class_probabilities(self, table: Table) -> Floats:
        """Return the chance of each class, shape (n, K)."""
        return self.scorer(table)

    def write(self, program: Program) -> int:
        """Write the number of the most probable class among the names; of equals the first."""
        most, *others = program.class_scores(self.scorer)
        place = program.constant(0.0)
        for k, chance in enumerate(others, 1):
            higher = program.add("below", most, chance)
            place = program.add("choose", higher, program.constant(float(k)), place)
            most = program.add("maximum", most, chance)
        return place

    def unseen(self, table: Table) -> Bools:
        """Return which rows are of a used group that was not in the training rows, shape (n,)."""
        return self.scorer.features.unseen(table)

    def unrepaired(self, table: Table) -> Floats:
        """Return the number of each row's class: there is no other score."""
        return self.predict(table)


def as_column(names: tuple[str, ...]) -> pa.Array:
    """Return names of classes as a column of predictions has them: whole numbers where all are, else texts."""
    digits = [name.removeprefix("-") for name in names]
    whole = all(one.isdigit() and one.isascii() and len(one) <= LONGEST_NUMBER for one in digits)
    if whole and all(str(int(name)) == name for name in names):
        return pa.array([int(name) for name in names], pa.int64())
    return pa.array(names, pa.string())


def class_schema(names: tuple[str, ...]) -> pa.Schema:
    """Return the columns that prediction of classes adds: the class, the chance of each, and that nothing is drawn."""
    each = [pa.field(f"p_{name}", pa.float64()) for name in names]
    return pa.schema([("prediction", as_column(names).type), *each, ("randomized", pa.bool_())])


def classified(
    batch: pa.RecordBatch, table: Table, predictor: RepairedPredictor, policy: Unseen, where: str
) -> pa.RecordBatch:
    """Return a batch, whose rows are those of the table, with the columns of :func:`class_schema`.

    Rows of a group that was not in the training rows get nothing with ``abstain``, and with ``original`` what the rule
    makes of a row of no group. A DataError where there are such rows and neither is said, or where a row has no
    chances; ``where``: the first row of the batch, for its message.
    """
    names, unseen = predictor.classes, predictor.unseen(table)
    if unseen.any() and policy == "error":
        raise unseen_error(table, predictor.inputs, unseen, where, "the rule's result for a row of no group")
    chance = predictor.class_probabilities(table) if len(table) else np.zeros((0, len(names)))
    if not (sound := np.isfinite(chance).all(axis=1)).all():
        raise DataError(
            f"the rule gives no class probabilities for one of the {len(table):,} rows from row {where} (the "
            f"{int(np.argmin(sound)) + 1:,}th of these). One of its features is too large, or the artifact was "
            "changed; correct the row, or repair again"
        )
    lost = unseen & (policy == "abstain")
    columns = [as_column(names).take(arrow_array(chance.argmax(axis=1), lost))]
    columns += [
        *(arrow_array(own, lost) for own in np.ascontiguousarray(chance.T)),
        arrow_array(np.zeros(len(table), dtype=bool)),
    ]
    fields = [*batch.schema, *class_schema(names)]
    return pa.RecordBatch.from_arrays([*batch.columns, *columns], schema=pa.schema(fields))
