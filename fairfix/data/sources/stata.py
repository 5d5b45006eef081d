"""Stata files of version 5 on, some rows at a time; value labels are the names of groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import pyarrow as pa

from fairfix.data.sources.frames import FrameFile, Frames
from fairfix.data.typed import Labels


class StataSource(FrameFile):
    """One or more Stata files with the same columns."""

    kind = "Stata"
    endings = (".dta",)
    signatures: ClassVar[tuple[tuple[int, bytes], ...]] = (
        (0, b"<stata_dta>"),
        *((0, bytes([version, order, 1, 0])) for version in (113, 114, 115) for order in (1, 2)),
    )

    @classmethod
    @contextmanager
    def frames(cls, file: pa.NativeFile) -> Iterator[tuple[Frames, Mapping[str, Labels]]]:
        """Yield pandas' reading of chunks, and the labels of the values of columns."""
        import pandas as pd

        opened: Any = pd.read_stata(file, iterator=True, convert_categoricals=False)
        with opened as reader:
            sets = reader.value_labels()
            # pandas has no public way to the set of labels that a column has
            labels: dict[str, Labels] = {
                name: sets[own]
                for name, own in zip(reader._varlist, reader._lbllist, strict=True)
                if sets.get(own)
            }

            def chunks(rows: int, columns: Sequence[str] | None) -> Iterator[pd.DataFrame]:
                """Yield frames until pandas raises StopIteration."""
                while True:
                    try:
                        frame = reader.read(rows, columns=columns)
                    except StopIteration:
                        return
                    yield frame
                    if not len(frame):
                        return

            yield chunks, labels
