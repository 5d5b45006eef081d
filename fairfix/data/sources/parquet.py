"""Parquet files, a run of row groups at a time.

They are read with ``pre_buffer=False`` and a small buffer: the default caches the column chunks of the whole file,
about 1 GB at 100 million rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

import pyarrow as pa

from fairfix.data import files
from fairfix.data.files import FileSource, Part, Write, joined, readable, require


class ParquetSource(FileSource):
    """One or more Parquet files with the same columns."""

    kind = "Parquet"
    endings = (".parquet", ".pq")

    def __init__(self, paths: Sequence[Path], name: str) -> None:
        import pyarrow.parquet as pq

        super().__init__(paths, name)
        self._files = []
        for path in paths:
            with readable(path, self.kind):
                self._files.append((path, pq.read_metadata(path)))
        self.schema = self._files[0][1].schema.to_arrow_schema()
        self.rows = self.about_rows = sum(meta.num_rows for _, meta in self._files)

    def parts(self, columns: Sequence[str], types: Mapping[str, pa.DataType] | None = None) -> list[Part]:
        """Return runs of row groups of about a million rows."""
        out = []
        for path, meta in self._files:
            require(columns, meta.schema.to_arrow_schema().names, f"{path.name} (of {self.name})")
            coded = [name for name, kind in (types or {}).items() if pa.types.is_dictionary(kind)]
            rows = [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]
            for run in joined(rows):
                batches = partial(_batches, path, run, list(columns), coded)
                out.append(Part(path.name, batches, sum(rows[: run[0]])))
        return out

    @classmethod
    @contextmanager
    def writer(cls, file: IO[bytes], path: Path, schema: pa.Schema) -> Iterator[Write]:
        """Yield Arrow's writing of a batch."""
        import pyarrow.parquet as pq

        with pq.ParquetWriter(file, schema) as writer:
            yield writer.write_batch


def _batches(path: Path, groups: list[int], columns: list[str], coded: list[str]) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    with (
        readable(path, ParquetSource.kind),
        pq.ParquetFile(path, read_dictionary=coded, pre_buffer=False, buffer_size=1 << 20) as file,
    ):
        yield from file.iter_batches(files.BATCH_ROWS, groups, columns, use_threads=False)
