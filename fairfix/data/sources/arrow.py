"""Arrow IPC files, which are Feather files of version 2."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from fairfix.data import files
from fairfix.data.files import FileSource, Part, Write, joined, readable, require


class ArrowSource(FileSource):
    """One or more Arrow files with the same columns, mapped into memory."""

    kind = "Arrow"
    endings = (".arrow", ".feather")

    def __init__(self, paths: Sequence[Path], name: str) -> None:
        super().__init__(paths, name)
        self._rows = {path: _rows_of(path) for path in paths}
        with _open(paths[0]) as file:
            self.schema = file.schema
        self.rows = self.about_rows = sum(map(sum, self._rows.values()))

    def parts(self, columns: Sequence[str], types: Mapping[str, pa.DataType] | None = None) -> list[Part]:
        """Return runs of record batches of about a million rows."""
        out = []
        for path, rows in self._rows.items():
            with _open(path) as file:
                require(columns, file.schema.names, f"{path.name} (of {self.name})")
            before = [0, *accumulate(rows)]
            pieces = ((partial(_batches, path, run, list(columns)), before[run[0]]) for run in joined(rows))
            out += [Part(path.name, batches, first) for batches, first in pieces]
        return out

    @classmethod
    @contextmanager
    def writer(cls, file: IO[bytes], path: Path, schema: pa.Schema) -> Iterator[Write]:
        """Yield Arrow's writing of a batch."""
        with pa.ipc.new_file(file, schema) as writer:
            yield writer.write_batch


@contextmanager
def _open(path: Path, columns: list[int] | None = None) -> Iterator[Any]:
    """Yield the reader of a file, of all columns or of those at some places."""
    options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=columns)
    with readable(path, ArrowSource.kind), pa.memory_map(str(path)) as data:
        yield pa.ipc.open_file(data, options=options)


def _rows_of(path: Path) -> list[int]:
    """Return the number of rows of each record batch, for which one column is read."""
    with _open(path, [0]) as file:
        return [file.get_batch(i).num_rows for i in range(file.num_record_batches)]


def _batches(path: Path, run: list[int], columns: list[str]) -> Iterator[pa.RecordBatch]:
    with _open(path) as file:
        places = sorted({file.schema.get_field_index(name) for name in columns})
    with _open(path, places) as file:
        for i in run:
            batch = file.get_batch(i).select(columns)
            for start in range(0, batch.num_rows, files.BATCH_ROWS):
                yield batch.slice(start, files.BATCH_ROWS)
