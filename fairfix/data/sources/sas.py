"""SAS files, some rows at a time: data sets, and transport files of version 5."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from fairfix.data.sources.typed_file import FrameFile
from fairfix.data.typed import Labels, decoded

if TYPE_CHECKING:
    from pandas import DataFrame

TRANSPORT = b"HEADER RECORD*******LIBRARY"
"""First bytes of a transport file, ..."""

NEWER = b"HEADER RECORD*******LIBV8"
"""... and of one of version 8."""

ZERO = 16.0**-65
"""Number that pandas makes of a zero in a transport file."""

CARD = 80
"""Bytes that the length of a transport file is a multiple of."""

DAYS = ("DATE", "YYMMDD", "MMDDYY", "DDMMYY", "E8601DA")
"""Formats of days since 1960 in a transport file, ..."""

SECONDS = ("DATETIME", "E8601DT")
"""... and of seconds."""


class SasSource(FrameFile):
    """One or more SAS files with the same columns."""

    kind = "SAS"
    endings = (".sas7bdat", ".xpt", ".ssp")
    signatures: ClassVar[tuple[tuple[int, bytes], ...]] = (
        (0, TRANSPORT),
        (12, b"\xc2\xea\x81\x60\xb3\x14\x11\xcf\xbd\x92\x08\x00\x09\xc7\x31\x8c\x18\x1f\x10\x11"),
    )

    @classmethod
    def frames(
        cls, file: pa.NativeFile, rows: int, columns: Sequence[str] | None
    ) -> Iterator[tuple[DataFrame, Mapping[str, Labels]]]:
        """Yield pandas' reading of frames; labels of values are in another file of SAS, so there are none."""
        import pandas as pd

        head = file.read(len(TRANSPORT))
        file.seek(0)
        portable = head == TRANSPORT
        if head.startswith(NEWER):
            raise ValueError("it is a transport file of version 8, and fairfix reads version 5")
        encoding = None if portable else "infer"  # a transport file does not say
        how: dict[str, Any] = {"format": "xport" if portable else "sas7bdat", "encoding": encoding}
        warnings.filterwarnings("error", message="xport file may be corrupted")  # a row is incomplete
        opened: Any = pd.read_sas(file, iterator=True, **how)
        with opened as reader:
            convert = _converted(reader) if portable else lambda frame: frame
            if portable:
                reader.nobs = _records(reader)
            with suppress(StopIteration):
                while (frame := reader.read(rows)) is not None and len(frame):
                    yield convert(frame), {}


def _records(reader: Any) -> int:
    """Return the number of records of a transport file, whose end is padded with blanks to 80 bytes.

    Pandas takes each eight blanks of the last 80 bytes for padding, also those of a text that is missing in the last
    record, which it then drops.
    """
    file, length = reader.filepath_or_buffer, reader.record_length
    file.seek(0, 2)
    size = file.tell() - reader.record_start
    file.seek(-min(size, CARD), 2)
    blanks = size if not size else len(end := file.read(CARD)) - len(end.rstrip(b" "))
    file.seek(reader.record_start)
    return int(-(-(size - blanks) // length))


def _converted(reader: Any) -> Callable[[DataFrame], DataFrame]:
    """Return what makes texts and dates of the bytes and numbers of a transport file."""
    import pandas as pd

    formats = {one["name"].decode(): one["nform"].decode("ascii", "replace") for one in reader.fields}

    def convert(frame: DataFrame) -> DataFrame:
        out: dict[Any, Any] = {}
        parse: Any = pd.to_datetime
        for name, column in frame.items():
            if column.dtype.kind != "f":
                out[name] = column.map(decoded)
                continue
            column = column.where(column.abs() != ZERO, 0.0)  # noqa: PLW2901  one step after another
            if unit := "D" if formats[name] in DAYS else "s" if formats[name] in SECONDS else "":
                column = parse(column, unit=unit, origin="1960-01-01", errors="coerce")  # noqa: PLW2901  one step after another
            out[name] = column
        return pd.DataFrame(out)

    return convert
