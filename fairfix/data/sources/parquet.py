"""Parquet files, a run of row groups at a time.

On this machine they are read with ``pre_buffer=False`` and a small buffer: the default caches the column chunks of the
whole file, about 1 GB at 100 million rows. From a store the column chunks of a part are cached.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from fairfix.data import files
from fairfix.data.files import FileSource, Part, Write, joined, readable, require
from fairfix.data.storage import FileLocation


class ParquetSource(FileSource):
    """One or more Parquet files with the same columns."""

    kind = "Parquet"
    endings = (".parquet", ".pq")
    signatures = ((0, b"PAR1"), (0, b"PARE"))

    def __init__(self, places: Sequence[FileLocation], name: str) -> None:
        import pyarrow.parquet as pq

        super().__init__(places, name)
        self._facts = {}
        for place in places:
            with readable(place, self.kind), place.opened() as file:
                self._facts[place] = meta = pq.read_metadata(file)
                if place is places[0]:  # as it is read: the metadata's own schema takes a UUID for 16 bytes
                    self.schema = pq.ParquetFile(file, metadata=meta).schema_arrow
        self.rows = self.about_rows = sum(meta.num_rows for meta in self._facts.values())

    def parts(self, columns: Sequence[str], types: Mapping[str, pa.DataType] | None = None) -> list[Part]:
        """Return runs of row groups of about a million rows."""
        out = []
        for place in self.places:
            meta = self._facts[place]
            require(columns, meta.schema.to_arrow_schema().names, f"{place.name} (of {self.name})")
            coded = [
                name
                for name, kind in (types or {}).items()
                if pa.types.is_dictionary(kind) and not pa.types.is_nested(self.schema.field(name).type)
            ]
            rows = [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]
            for run in joined(rows):
                batches = partial(_batches, place, meta, run, list(columns), coded)
                out.append(Part(place.name, batches, sum(rows[: run[0]])))
        return out

    @classmethod
    @contextmanager
    def writer(cls, file: IO[bytes], path: Path, schema: pa.Schema) -> Iterator[Write]:
        """Yield Arrow's writing of a batch."""
        import pyarrow.parquet as pq

        with pq.ParquetWriter(file, schema) as writer:
            yield writer.write_batch


def _batches(
    place: FileLocation, meta: Any, groups: list[int], columns: list[str], coded: list[str]
) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    # from a store, neighbouring ranges of the part come in one request each, and nothing else comes
    how = {"pre_buffer": True} if place.is_remote else {"pre_buffer": False, "buffer_size": 1 << 20}
    with (
        readable(place, ParquetSource.kind),
        place.opened() as data,
        pq.ParquetFile(data, metadata=meta, read_dictionary=coded, **how) as file,
    ):
        yield from file.iter_batches(files.BATCH_ROWS, groups, columns, use_threads=False)
