"""CSV: every number of a result, a row each, for spreadsheets and programs."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator
from io import StringIO
from typing import Any

from fairfix.report import headline
from fairfix.report.frames import tables_of
from fairfix.report.words import harmless, plain
from fairfix.schema.common import SavedResult
from fairfix.schema.unrun import Unrun

FORMULA = ("=", "+", "-", "@")
"""First characters of a cell that spreadsheets compute."""


def render(result: SavedResult) -> str:
    """Return the tables of a result below each other, with the name of the table in the first column.

    The columns are those of :func:`fairfix.report.frames.frame`. Numbers have all their digits. The cell of an
    undefined number is empty, and ``reason`` says why.
    """
    tables = [(name, names, list(rows(result))) for name, (names, rows) in tables_of(result).items()]
    columns = list(dict.fromkeys(name for _, names, rows in tables if rows for name in names))
    lines: list[list[Any]] = [["fairfix table", *columns]]
    for table, names, rows in tables:
        lines += [[table, *map(dict(zip(names, row, strict=True)).get, columns)] for row in rows]
    return _lines(lines)


def unrun(problem: Unrun) -> str:
    """Return a row that says that there is no result."""
    return _lines([[headline(problem), problem.message]])


def _lines(rows: Iterable[Iterable[Any]]) -> str:
    out = StringIO()
    csv.writer(out, lineterminator="\n").writerows(_cells(row) for row in rows)
    return out.getvalue()


def _cells(row: Iterable[Any]) -> Iterator[str]:
    """Yield the cells of a row: numbers whole, texts such that no reader takes them for a formula or a command."""
    for value in row:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            yield ""
        elif isinstance(value, bool):
            yield str(value).lower()
        elif isinstance(value, str):
            text = harmless(plain(value))
            yield f"'{text}" if text.startswith(FORMULA) else text
        else:
            yield repr(value)
