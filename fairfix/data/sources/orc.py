"""ORC files, a run of stripes at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa

from fairfix.data import files
from fairfix.data.files import FileSource, Part, joined, readable, require
from fairfix.data.places import Place
from fairfix.errors import DataError

STRIPE_ROWS = 50_000_000
"""Rows of a stripe, which is read as a whole, on average at most; usual are a million."""


class OrcSource(FileSource):
    """One or more ORC files with the same columns."""

    kind = "ORC"
    endings = (".orc",)
    signatures: ClassVar[tuple[tuple[int, bytes], ...]] = ((0, b"ORC"),)

    def __init__(self, places: Sequence[Place], name: str) -> None:
        super().__init__(places, name)
        self._facts: dict[Place, tuple[int, int, list[str]]] = {}
        for place in places:
            with _open(place) as file:
                self._facts[place] = file.nrows, file.nstripes, file.schema.names
                if place is places[0]:
                    self.schema = file.schema
                if file.nrows > STRIPE_ROWS * file.nstripes:
                    raise DataError(f"{place.name} has {file.nrows:,} rows in {file.nstripes} stripes; save it as Parquet")
        self.rows = self.about_rows = sum(rows for rows, _, _ in self._facts.values())

    def parts(self, columns: Sequence[str], types: Mapping[str, pa.DataType] | None = None) -> list[Part]:
        """Return runs of stripes of about a million rows; of a file of several runs, each has a name of its own."""
        out = []
        for place in self.places:
            rows, stripes, names = self._facts[place]
            require(columns, names, f"{place.name} (of {self.name})")
            runs = list(joined([rows // max(stripes, 1)] * stripes))
            for run in runs:
                where = place.name if len(runs) == 1 else f"stripes {run[0] + 1} to {run[-1] + 1} of {place.name}"
                out.append(Part(where, partial(_batches, place, run, list(columns))))
        return out


@contextmanager
def _open(place: Place) -> Iterator[Any]:
    from pyarrow import orc

    with readable(place, OrcSource.kind), place.opened() as data:
        yield orc.ORCFile(data)


def _batches(place: Place, run: list[int], columns: list[str]) -> Iterator[pa.RecordBatch]:
    with _open(place) as file:
        for i in run:
            stripe = file.read_stripe(i, columns=columns).select(columns)
            for start in range(0, stripe.num_rows, files.BATCH_ROWS):
                yield stripe.slice(start, files.BATCH_ROWS)
