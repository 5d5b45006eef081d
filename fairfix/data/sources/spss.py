"""SPSS files, whose value labels are the names of groups; user missing values are missing."""

from __future__ import annotations

from io import BytesIO
from typing import Any, ClassVar

import pyarrow as pa

from fairfix.data.sources.typed_file import WholeFile
from fairfix.data.typed import column_of, whole, with_labels, without_blanks


class SpssSource(WholeFile):
    """One or more SPSS files with the same columns."""

    kind = "SPSS"
    endings = (".sav", ".zsav", ".por")
    signatures: ClassVar[tuple[tuple[int, bytes], ...]] = (
        (0, b"$FL2"),
        (0, b"$FL3"),
        (40, b"ASCII SPSS PORT FILE"),
    )
    needs = ("pyreadstat", "spss")


def read(file: BytesIO, **_: Any) -> pa.Table:
    """Return the table of a file, with its value labels."""
    import pyreadstat

    portable = not file.getvalue().startswith(b"$FL")
    reader = pyreadstat.read_por if portable else pyreadstat.read_sav
    try:
        data, meta = reader(file, output_format="dict")
    except Exception:  # a date that Python has not stops no run: dates are then numbers
        file.seek(0)
        data, meta = reader(file, output_format="dict", disable_datetime_conversion=True)
    data = {name: column.tolist() if hasattr(column, "tolist") else column for name, column in data.items()}
    columns = {name: whole(column_of(without_blanks(column))) for name, column in data.items()}
    labels = {name: own for name, own in meta.variable_value_labels.items() if name in columns}
    return with_labels(pa.table(columns), labels)
