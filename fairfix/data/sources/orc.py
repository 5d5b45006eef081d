"""ORC files, streamed in batches: a stripe may be as large as the file, so it is not read as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pyarrow as pa

from fairfix.data import files
from fairfix.data.files import PiecedFile, readable
from fairfix.data.storage import FileLocation
from fairfix.data.typed import rebatched


class OrcSource(PiecedFile):
    """One or more ORC files with the same columns; each is one piece."""

    kind = "ORC"
    endings = (".orc",)
    signatures: ClassVar[tuple[tuple[int, bytes], ...]] = ((0, b"ORC"),)

    @classmethod
    def look(cls, place: FileLocation) -> tuple[pa.Schema, list[int], Any]:
        """Return columns and rows."""
        from pyarrow import orc

        with readable(place, cls.kind), place.opened() as data:
            file = orc.ORCFile(data)
            return file.schema, [file.nrows], None

    @classmethod
    def read(
        cls, place: FileLocation, about: Any, run: list[int], columns: list[str], coded: list[str]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the columns of a file."""
        from pyarrow.dataset import OrcFileFormat

        with readable(place, cls.kind), place.opened() as data:
            fragment, size = OrcFileFormat().make_fragment(data), files.BATCH_ROWS
            how = {"batch_size": size, "batch_readahead": 1, "use_threads": False}
            batches = fragment.to_batches(columns=columns, **how)
            yield from rebatched((batch.select(columns) for batch in batches), size)
