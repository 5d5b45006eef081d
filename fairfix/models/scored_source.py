"""Scores from a model file: a source whose score column a model fills in, batch by batch.

:class:`Averaged` is a model that scores every row under several changes and takes the mean, so that the mean is the
same for rows that differ in what is changed alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Meta
from msgspec.structs import asdict

from fairfix.data.codec import converted, need, plain
from fairfix.data.data_spec import to_probability
from fairfix.data.encoder import arrow_array
from fairfix.data.files import NO_TYPES, DerivedSource, Source, SourcePart, Types
from fairfix.data.table import PLAIN_SCORE, Table
from fairfix.errors import ArtifactError, ColumnError
from fairfix.schema.common import Part

if TYPE_CHECKING:
    import pandas as pd

    from fairfix.models.user_file import ScoringModel

MODEL_SCORE = "model score"
"""Name of the column that the model fills in."""


Entry = str | bool | int | float | None
"""Value of a column in a row."""


class RowChange(Part, frozen=True):
    """A change of rows, and its share of the mean."""

    share: Annotated[float, Meta(gt=0, le=1)]
    """Weight, of sum 1 over all changes."""
    everybody: dict[str, Entry]
    """Column -> value that every row gets."""
    among: dict[str, tuple[Entry, tuple[Entry, ...]]]
    """Column -> (value, others): rows that have one of the others get the value."""


@dataclass(frozen=True)
class Averaged:
    """A model whose score is the mean over changes of the row."""

    model: ScoringModel
    changes: tuple[RowChange, ...]

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Columns that the model looks at."""
        return self.model.feature_names

    def score(self, frame: pd.DataFrame) -> npt.NDArray[np.float64]:
        """Return the mean score of every row, shape (n,)."""
        from pandas import Series

        total = np.zeros(len(frame))
        for change in self.changes:
            changed = frame.copy(deep=False)
            for name, value in change.everybody.items():
                if name in frame:
                    everybody = np.full(len(frame), value, dtype=object)
                    changed[name] = Series(everybody, index=frame.index).astype(frame[name].dtype)
                elif name in self.feature_names:
                    changed[name] = Series(value, index=frame.index)
            for name, (value, others) in change.among.items():
                here = frame[name].isin(others).to_numpy()
                mixed = np.where(here, np.array(value, dtype=object), frame[name].to_numpy(dtype=object))
                changed[name] = Series(mixed, index=frame.index).astype(frame[name].dtype)
            total += change.share * self.model.score(changed[list(self.feature_names)])
        return total

    def rescored(self, table: Table) -> Table:
        """Return a table that has all columns of the model, with the scores of these as they are now."""
        frame = table.features.select(list(self.feature_names)).to_pandas()
        scale, real = table.data_spec.score_scale, table.data_spec.task == "regression"
        score = self.score(frame)
        place = table.features.schema.get_field_index(PLAIN_SCORE)
        unaveraged = arrow_array(self.model.score(frame))
        features = table.features.set_column(place, PLAIN_SCORE, unaveraged)
        rows = replace(table.rows, score=score if real else to_probability(score, scale))
        return replace(table, rows=rows, features=features)

    def state(self) -> list[dict[str, Any]]:
        """Return the changes as JSON values."""
        return [plain(asdict(one)) for one in self.changes]


def read_changes(state: Any) -> tuple[RowChange, ...]:
    """Return the changes of a saved state."""
    try:
        changes = converted(state, tuple[RowChange, ...])
        need(abs(sum(one.share for one in changes) - 1.0) <= 1e-9, "the shares do not sum to 1")
    except ValueError as error:
        raise ArtifactError(
            f"the artifact does not say what its scores are averaged over: {error}"
        ) from error
    return changes


def replaced(changes: Sequence[RowChange]) -> frozenset[str]:
    """Return the columns that every change sets for all rows: their own values do not count."""
    return frozenset.intersection(*(frozenset(one.everybody) for one in changes))


class ScoredSource(DerivedSource):
    """Another source with one column more: the model's score of each row.

    In addition to scores that are a mean over changes, another column has the model's scores of the rows as they are;
    but not where the source has no column that the mean can do without.
    """

    def __init__(self, source: Source, model: ScoringModel | Averaged) -> None:
        if MODEL_SCORE in source.columns:
            raise ColumnError(
                f"{source.name} has a column {MODEL_SCORE!r}, the name of the model's scores; rename it"
            )
        super().__init__(source)
        self.rows, self.about_rows = source.rows, source.about_rows
        self.left_out, self.notes = source.left_out, source.notes
        self.schema = source.schema.append(pa.field(MODEL_SCORE, pa.float64()))
        self._model = model
        spared = replaced(model.changes) - set(source.columns) if isinstance(model, Averaged) else frozenset()
        self._features = tuple(name for name in model.feature_names if name not in spared)
        self._plain = model.model if isinstance(model, Averaged) and not spared else None
        if self._plain is not None:
            self.schema = self.schema.append(pa.field(PLAIN_SCORE, pa.float64()))
        source.require(self._features)

    def parts(self, columns: Sequence[str], types: Types = NO_TYPES) -> list[SourcePart]:
        """Return the parts of the source, scored; features keep the types they come with."""
        own = [name for name in columns if name not in (MODEL_SCORE, PLAIN_SCORE)]
        inner = list(dict.fromkeys((*own, *self._features)))
        wanted = {name: kind for name, kind in types.items() if name in {*own} - {*self._features}}
        scored = partial(self._scored, columns=list(columns))
        return [part.mapped(scored) for part in self.source.parts(inner, wanted)]

    @property
    def averaged(self) -> Averaged | None:
        """The mean over changes, where the model has all of its columns, so that it can score changed rows."""
        return self._model if isinstance(self._model, Averaged) and self._plain is not None else None

    def files(self) -> list[tuple[str, Source]]:
        """Return (path, source) of each file, scored."""
        out: list[tuple[str, Source]] = []
        for path, unscored in self.source.files():
            one = copy(self)
            one.source, one.rows = unscored, None
            out.append((path, one))
        return out

    def _scored(self, batch: pa.RecordBatch, columns: list[str]) -> pa.RecordBatch:
        frame = batch.select(list(self._features)).to_pandas()
        out = batch.append_column(MODEL_SCORE, arrow_array(self._model.score(frame)))
        if self._plain is not None and PLAIN_SCORE in columns:
            out = out.append_column(PLAIN_SCORE, arrow_array(self._plain.score(frame)))
        return out.select(columns)
