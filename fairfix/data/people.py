"""People: a source whose rows each come once for every person that a column of counts says.

So a table of frequencies is read as the people it counts, and whatever is made of rows is made of people: intervals,
splits, fits and draws. The column itself is gone: it is no feature, and part of no identity.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from fairfix.data.counts import Ints
from fairfix.data.data_spec import DataSpec
from fairfix.data.encoder import Encoder, arrow_array, numbers, row_name
from fairfix.data.files import BATCH_ROWS, NO_TYPES, DerivedSource, Source, SourcePart, Types
from fairfix.data.scan import column_types
from fairfix.data.urls import is_dry
from fairfix.errors import DataError

MOST_PEOPLE = 1 << 53
"""Largest sum of counts, so that it is exact in floating point."""


class PeopleSource(DerivedSource):
    """Another source with each row repeated as often as its count, without the column of counts.

    The people of a part come in batches of a fixed size, so memory does not grow with their number.

    Parameters
    ----------
    source
        The rows.
    count
        Its column of counts: whole numbers of at least 0.

    Raises
    ------
    DataError
        A count is missing, negative or no whole number, or all of them are 0; names column, value and row.
    """

    def __init__(self, source: Source, count: str) -> None:
        source.require([count])
        super().__init__(source)
        self.count, self.notes = count, source.notes
        self.schema = pa.schema([field for field in source.schema if field.name != count])
        if is_dry():
            return
        people = 0
        for part in self._parts([]):
            row = part.first_row
            for batch in part.batches():
                people += sum(self._times(batch, part.where, row).tolist())
                row += batch.num_rows
        if not 0 < people <= MOST_PEOPLE:
            what = "is 0 in every row" if not people else f"sums to {people:,}, too many people to count"
            raise DataError(f"count column {count!r} {what}")
        self.rows = self.about_rows = people

    def parts(self, columns: Sequence[str], types: Types = NO_TYPES) -> list[SourcePart]:
        """Return the parts of the source, with a row for each person; messages count people."""
        return [
            replace(
                part,
                where=f"the people of {part.where or self.name}",
                first_row=0,
                batches=partial(self._repeated, part, list(columns)),
            )
            for part in self._parts(columns, types)
        ]

    def _parts(self, columns: Sequence[str], types: Types = NO_TYPES) -> list[SourcePart]:
        own = {self.count: pa.float64()} if self.source.text else {}
        return self.source.parts([*columns, self.count], {**types, **own})

    def _repeated(self, part: SourcePart, columns: list[str]) -> Iterator[pa.RecordBatch]:
        row = part.first_row
        for batch in part.batches():
            last = np.cumsum(self._times(batch, part.where, row))
            row += batch.num_rows
            people, rows = int(last[-1]) if last.size else 0, batch.select(columns)
            for first in range(0, people, BATCH_ROWS):
                person = np.arange(first, min(first + BATCH_ROWS, people))
                yield rows.take(arrow_array(np.searchsorted(last, person, side="right")))

    def _times(self, batch: pa.RecordBatch, where: str, before: int) -> Ints:
        """Return the counts of a batch, shape (n,)."""
        column = numbers(batch.column(self.count), self.count, "count")
        bad = ~((column >= 0) & (column <= MOST_PEOPLE) & (column == np.floor(column)))  # NaN is bad too
        if bad.any():
            row = int(np.argmax(bad))
            entry = "nothing" if np.isnan(column[row]) else f"{column[row]:g}"
            raise DataError(
                f"count column {self.count!r} holds {entry} at {row_name(where, before, row)}; a count is the number "
                "of people in a row, a whole number of at least 0: correct it, or name weights with `weight`"
            )
        return column.astype(np.int64)


def check_entries(source: Source, data_spec: DataSpec) -> None:
    """Raise a DataError where an entry of a counted row is none that its column may hold; it names the row of the data.

    Columns that the source has not, such as the scores of a model, are left out.
    """
    columns = data_spec.columns
    parts = ("label", "score", "prediction", "probability", "weight")
    gone: dict[str, Any] = {part: None for part in parts if getattr(columns, part) not in source.columns}
    own = replace(data_spec, columns=replace(columns, **gone))
    for part in source.parts(own.columns.counted, column_types(own, source)):
        encoder = Encoder(own, part.where, part.first_row)
        for batch in part.batches():
            encoder.encode(batch)
