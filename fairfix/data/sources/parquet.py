"""Parquet files, a run of row groups at a time.

On this machine they are read with ``pre_buffer=False`` and a small buffer: the default caches the column chunks of the
whole file, about 1 GB at 100 million rows. From a store the column chunks of a part are cached.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from fairfix.data import files
from fairfix.data.files import PiecedFile, Write, readable
from fairfix.data.storage import FileLocation


class ParquetSource(PiecedFile):
    """One or more Parquet files with the same columns."""

    kind = "Parquet"
    endings = (".parquet", ".pq")
    signatures = ((0, b"PAR1"), (0, b"PARE"))

    @classmethod
    def look(cls, place: FileLocation) -> tuple[pa.Schema, list[int], Any]:
        """Return columns, rows of row groups, and the metadata."""
        import pyarrow.parquet as pq

        with readable(place, cls.kind), place.opened() as file:
            meta = pq.read_metadata(file)
            # as it is read: the metadata's own schema takes a UUID for 16 bytes
            schema = pq.ParquetFile(file, metadata=meta).schema_arrow
        return schema, [meta.row_group(i).num_rows for i in range(meta.num_row_groups)], meta

    @classmethod
    def read(
        cls, place: FileLocation, about: Any, run: list[int], columns: list[str], coded: list[str]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the columns of a run of row groups."""
        import pyarrow.parquet as pq

        # from a store, neighbouring ranges of the part come in one request each, and nothing else comes
        how = {"pre_buffer": True} if place.is_remote else {"pre_buffer": False, "buffer_size": 1 << 20}
        with (
            readable(place, cls.kind),
            place.opened() as data,
            pq.ParquetFile(data, metadata=about, read_dictionary=coded, **how) as file,
        ):
            yield from file.iter_batches(files.BATCH_ROWS, run, columns, use_threads=False)

    @classmethod
    @contextmanager
    def writer(cls, file: IO[bytes], path: Path, schema: pa.Schema) -> Iterator[Write]:
        """Yield Arrow's writing of a batch."""
        import pyarrow.parquet as pq

        with pq.ParquetWriter(file, schema) as writer:
            yield writer.write_batch
