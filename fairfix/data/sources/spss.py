"""SPSS files, whose value labels are the names of groups; user missing values are missing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import BytesIO
from typing import Any, ClassVar

import pyarrow as pa

from fairfix.data.confined import read_confined
from fairfix.data.sources.whole import WholeFile
from fairfix.data.storage import FileLocation
from fairfix.data.typed import Labels, column_of, whole


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

    def table(self, place: FileLocation) -> tuple[pa.Table, dict[str, Labels]]:
        """Return the rows of a file, and its value labels."""
        table = read_confined(place, self.kind, f"{__name__}:read")
        labels: dict[str, Labels] = {
            name: dict(pairs) for name, pairs in json.loads(table.schema.metadata[b"labels"]).items()
        }
        return table, labels


def read(file: BytesIO) -> pa.Table:
    """Return the table of a file, with its value labels in the metadata."""
    import pyreadstat

    portable = not file.getvalue().startswith(b"$FL")
    reader = pyreadstat.read_por if portable else pyreadstat.read_sav
    try:
        data, meta = reader(file, output_format="dict")
    except Exception:  # a date that Python has not stops no run: dates are then numbers
        file.seek(0)
        data, meta = reader(file, output_format="dict", disable_datetime_conversion=True)
    columns = {name: whole(column_of(_entries(column))) for name, column in data.items()}
    labels = {
        name: list(pairs.items()) for name, pairs in meta.variable_value_labels.items() if name in columns
    }
    return pa.table(columns).replace_schema_metadata({"labels": json.dumps(labels)})


def _entries(column: Sequence[Any]) -> list[Any]:
    """Return the values of a column, None where one is missing, as blank texts are."""
    listed = column.tolist() if hasattr(column, "tolist") else column
    return [None if one != one or one == "" else one for one in listed]
