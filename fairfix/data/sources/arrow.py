"""Arrow IPC files, which are Feather files of version 2."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import IO, Any

import pyarrow as pa

from fairfix.data import files
from fairfix.data.files import PiecedFile, Write, readable
from fairfix.data.storage import FileLocation


class ArrowSource(PiecedFile):
    """One or more Arrow files with the same columns."""

    kind = "Arrow"
    endings = (".arrow", ".feather")
    signatures = ((0, b"ARROW1"),)

    @classmethod
    def look(cls, place: FileLocation) -> tuple[pa.Schema, list[int], Any]:
        """Return columns, and rows of record batches, for which one column is read."""
        with _open(place, [0]) as file:
            rows = [file.get_batch(i).num_rows for i in range(file.num_record_batches)]
        with _open(place) as file:
            return file.schema, rows, None

    @classmethod
    def read(
        cls, place: FileLocation, about: Any, run: list[int], columns: list[str], coded: list[str]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the columns of a run of record batches."""
        with _open(place) as file:
            wanted = sorted({file.schema.get_field_index(name) for name in columns})
        with _open(place, wanted) as file:
            for i in run:
                batch = file.get_batch(i).select(columns)
                batch.validate(full=True)  # Arrow would follow any offset in the file
                for start in range(0, batch.num_rows, files.BATCH_ROWS):
                    yield batch.slice(start, files.BATCH_ROWS)

    @classmethod
    @contextmanager
    def writer(cls, file: IO[bytes], path: Path, schema: pa.Schema) -> Iterator[Write]:
        """Yield Arrow's writing of a batch."""
        with pa.ipc.new_file(file, schema) as writer:
            yield writer.write_batch


@contextmanager
def _open(place: FileLocation, columns: list[int] | None = None) -> Iterator[Any]:
    """Yield the reader of a file, of all columns or of those at some places."""
    options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=columns)
    with readable(place, ArrowSource.kind), place.opened() as data:
        with _without_pandas_types():
            file = pa.ipc.open_file(data, options=options)
        yield file


OPENING = Lock()


@contextmanager
def _without_pandas_types() -> Iterator[None]:
    """Leave intervals and periods of pandas what they are stored as, while a schema is read.

    Once pandas has told Arrow of its types, Arrow takes the codes of a categorical of periods for periods, and cannot
    open a file with one of intervals. :mod:`fairfix.data.arrow_normalize` reads both by the metadata of their fields.
    """
    own = sys.modules.get("pandas.core.arrays.arrow.extension_types")
    with OPENING:
        taken = []
        for name, make in PANDAS_TYPES.items() if own else ():
            with suppress(KeyError):  # not registered
                pa.unregister_extension_type(name)
                taken.append(make(own))
        try:
            yield
        finally:
            for one in taken:
                pa.register_extension_type(one)


PANDAS_TYPES: Mapping[str, Callable[[Any], Any]] = {
    "pandas.interval": lambda own: own.ArrowIntervalType(pa.int64(), "left"),
    "pandas.period": lambda own: own.ArrowPeriodType("D"),
}
"""Name of an extension type -> what makes the one that pandas registers; its settings are those of no column."""
