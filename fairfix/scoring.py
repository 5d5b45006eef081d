"""Scores from a model file: a source whose score column a model fills in, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from fairfix.errors import ColumnError
from fairfix.io import Part, Source
from fairfix.table import arrow_array

if TYPE_CHECKING:
    from fairfix.models import ScoringModel

MODEL_SCORE = "model score"
"""Name of the column that the model fills in."""


class ScoredSource(Source):
    """Another source with one column more: the model's score of each row."""

    def __init__(self, source: Source, model: ScoringModel) -> None:
        if MODEL_SCORE in source.columns:
            raise ColumnError(
                f"{source.name} has a column {MODEL_SCORE!r}, the name of the model's scores; rename it"
            )
        self.name = source.name
        self.text = source.text
        self.schema = source.schema.append(pa.field(MODEL_SCORE, pa.float64()))
        self._source = source
        self._model = model
        source.require(model.feature_names)

    @property
    def rows(self) -> int | None:
        """Number of rows where it is known without reading."""
        return self._source.rows

    @property
    def about_rows(self) -> int:
        """Roughly how many rows there are."""
        return self._source.about_rows

    def parts(self, columns: Sequence[str], types: Mapping[str, pa.DataType] | None = None) -> list[Part]:
        """Return the parts of the source, scored; features keep the types they come with."""
        features = self._model.feature_names
        inner = list(dict.fromkeys((*(name for name in columns if name != MODEL_SCORE), *features)))
        wanted = {
            name: kind for name, kind in (types or {}).items() if name in inner and name not in features
        }
        return [self._scored(part, list(columns)) for part in self._source.parts(inner, wanted)]

    def _scored(self, part: Part, columns: list[str]) -> Part:
        def batches() -> Iterator[pa.RecordBatch]:
            for batch in part.batches():
                scores = self._model.score(batch.select(list(self._model.feature_names)).to_pandas())
                yield batch.append_column(MODEL_SCORE, arrow_array(scores)).select(columns)

        return replace(part, batches=batches)
