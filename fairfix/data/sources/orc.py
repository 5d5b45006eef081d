"""ORC files, streamed in batches: a stripe may be as large as the file, so it is not read as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa

from fairfix.data import files
from fairfix.data.files import FileSource, Part, readable, require
from fairfix.data.storage import FileLocation
from fairfix.data.typed import rebatched


class OrcSource(FileSource):
    """One or more ORC files with the same columns."""

    kind = "ORC"
    endings = (".orc",)
    signatures: ClassVar[tuple[tuple[int, bytes], ...]] = ((0, b"ORC"),)

    def __init__(self, places: Sequence[FileLocation], name: str) -> None:
        super().__init__(places, name)
        self._columns: dict[FileLocation, list[str]] = {}
        self.rows = 0
        for place in places:
            with _opened(place) as data:
                from pyarrow import orc

                file = orc.ORCFile(data)
                self._columns[place] = file.schema.names
                if place is places[0]:
                    self.schema = file.schema
                self.rows += file.nrows
        self.about_rows = self.rows

    def parts(self, columns: Sequence[str], types: Mapping[str, pa.DataType] | None = None) -> list[Part]:
        """Return one part per file."""
        for place in self.places:
            require(columns, self._columns[place], f"{place.name} (of {self.name})")
        return [Part(place.name, partial(_batches, place, list(columns))) for place in self.places]


@contextmanager
def _opened(place: FileLocation) -> Iterator[Any]:
    with readable(place, OrcSource.kind), place.opened() as data:
        yield data


def _batches(place: FileLocation, columns: list[str]) -> Iterator[pa.RecordBatch]:
    from pyarrow.dataset import OrcFileFormat

    with _opened(place) as data:
        batches = (
            OrcFileFormat()
            .make_fragment(data)
            .to_batches(columns=columns, batch_size=files.BATCH_ROWS, batch_readahead=1, use_threads=False)
        )
        yield from rebatched((batch.select(columns) for batch in batches), files.BATCH_ROWS)
