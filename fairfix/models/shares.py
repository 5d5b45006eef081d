"""A source of a share of another one's rows; see :mod:`fairfix.data.row_hash`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from fairfix.data.data_spec import DataSpec
from fairfix.data.encoder import arrow_array
from fairfix.data.files import NO_TYPES, DerivedSource, Source, SourcePart, Types
from fairfix.data.row_hash import Share
from fairfix.errors import DataError
from fairfix.models.identity import IDENTITY_TYPES, identities, identity_columns


class SharedSource(DerivedSource):
    """The rows of another source that are in a share; rows are numbered within it."""

    def __init__(self, source: Source, data_spec: DataSpec, text: str, seed: int) -> None:
        if data_spec.columns.id is not None:
            source.require([data_spec.columns.id])
        self._identity = identity_columns(source.schema, data_spec)
        by_id = data_spec.columns.id is not None
        self.share = Share.parse(text, tuple(self._identity), by_id=by_id, seed=seed)
        super().__init__(source)
        self.about_rows = int(source.about_rows * (self.share.high - self.share.low))

    def parts(self, columns: Sequence[str], types: Types = NO_TYPES) -> list[SourcePart]:
        """Return the parts of the source with the rows of the share."""
        own = {name: IDENTITY_TYPES[kind] for name, kind in self._identity.items()}
        inner = list(dict.fromkeys((*columns, *own)))
        where = f"share {self.share.low:g}:{self.share.high:g} of "
        return [
            part.mapped(
                partial(self._inside, columns=list(columns), of=part.where),
                where=where + part.where,
                first_row=0,
            )
            for part in self.source.parts(inner, {**own, **types})
        ]

    def _inside(self, batch: pa.RecordBatch, columns: list[str], of: str) -> pa.RecordBatch:
        identity = batch.select(list(self._identity)).columns
        if self.share.by_id and identity[0].null_count:
            raise DataError(
                f"id column {self.share.columns[0]!r} is missing in {identity[0].null_count:,} rows of {of}; `part` "
                "selects rows by ID, so fill them"
            )
        inside = self.share.holds(identities(identity, self._identity))
        return batch.select(columns).filter(arrow_array(inside))
