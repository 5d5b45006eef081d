"""Stata files of version 5 on, some rows at a time; value labels are the names of groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from fairfix.data.sources.typed_file import FrameFile
from fairfix.data.typed import Labels

if TYPE_CHECKING:
    from pandas import DataFrame


class StataSource(FrameFile):
    """One or more Stata files with the same columns."""

    kind = "Stata"
    endings = (".dta",)
    signatures: ClassVar[tuple[tuple[int, bytes], ...]] = (
        (0, b"<stata_dta>"),
        *((0, bytes([version, order, 1, 0])) for version in (113, 114, 115) for order in (1, 2)),
    )

    @classmethod
    def frames(
        cls, file: pa.NativeFile, rows: int, columns: Sequence[str] | None
    ) -> Iterator[tuple[DataFrame, Mapping[str, Labels]]]:
        """Yield pandas' reading of frames, and the labels of the values of columns."""
        import pandas as pd

        opened: Any = pd.read_stata(file, iterator=True, convert_categoricals=False)
        with opened as reader:
            sets = reader.value_labels()
            # pandas has no public way to the set of labels that a column has
            named = zip(reader._varlist, reader._lbllist, strict=True)
            labels: dict[str, Labels] = {name: sets[own] for name, own in named if sets.get(own)}
            with suppress(StopIteration):  # the end of the file, where it has rows
                while len(frame := reader.read(rows, columns=columns)):
                    yield frame, labels
                yield frame, labels
