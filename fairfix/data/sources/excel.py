"""Excel and OpenDocument spreadsheets: one sheet, whose header is found below title lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from io import BytesIO
from itertools import islice
from typing import Any, ClassVar
from zipfile import ZipFile, is_zipfile

import pyarrow as pa

from fairfix.data.canonical import canonical
from fairfix.data.confined import BYTES, TOO_LARGE
from fairfix.data.names import did_you_mean
from fairfix.data.sources.typed_file import WholeFile
from fairfix.data.typed import column_of, told_apart, whole
from fairfix.errors import DataError

TITLES = 50
"""Lines above a header, at most."""

CELLS = 20_000_000
"""Cells of a sheet, which are all in memory."""

Row = list[Any]


class ExcelSource(WholeFile):
    """One or more spreadsheets with the same columns."""

    kind = "Excel"
    endings = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
    signatures: ClassVar[tuple[tuple[int, bytes], ...]] = (
        (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"),  # .xls, in a compound file
        (30, b"[Content_Types].xml"),  # ZIP archives of Office and of OpenDocument
        (30, b"mimetypeapplication/vnd.oasis.opendocument.spreadsheet"),
    )
    has_tables = True
    needs = ("python_calamine", "excel")


def read(file: BytesIO, sheet: str | None, name: str) -> pa.Table:
    """Return the table of a sheet, with a remark in its metadata."""
    from python_calamine import CalamineError, CalamineWorkbook, PasswordError

    if is_zipfile(file) and sum(one.file_size for one in ZipFile(file).infolist()) > BYTES:
        raise DataError(TOO_LARGE)
    file.seek(0)
    try:
        book = CalamineWorkbook.from_filelike(file)
    except PasswordError:
        raise DataError("is protected by a password; save a copy without one") from None
    except CalamineError:
        raise DataError("is not a workbook, or is damaged; save it again as .xlsx or CSV") from None
    names = book.sheet_names
    remarks = []
    if sheet is not None:
        if sheet not in names:
            shown = ", ".join(map(repr, names))
            raise DataError(f"has no sheet {sheet!r}{did_you_mean(sheet, names) or f'; it has: {shown}'}")
        rows, first = _rows(book, sheet)
    else:
        rows, first, sheet = _only(book, name)
        if len(names) > 1:
            remarks.append(f"read from sheet {sheet!r}, the only one with a table")
    if not rows:
        raise DataError(f"has no rows in sheet {sheet!r}")
    at = _header(rows)
    if at:
        lines = "the line" if at == 1 else f"the {at} lines"
        remarks.append(f"left out {lines} above the header in row {first + at + 1}")
    data = [row for row in rows[at + 1 :] if any(entry is not None for entry in row)]
    columns = [list(column) for column in zip(*data, strict=True)] or [[] for _ in rows[at]]
    held = [rows[at], *data]
    kept = [i for i in range(len(columns)) if any(row[i] is not None for row in held)]
    heads = told_apart(f"Unnamed: {i}" if rows[at][i] is None else canonical(rows[at][i]) for i in kept)
    arrays = [whole(column_of(columns[i], numerals=True)) for i in kept]
    return pa.table(arrays, names=heads).replace_schema_metadata({"remark": "; ".join(remarks)})


def _only(book: Any, name: str) -> tuple[list[Row], int, str]:
    """Return the rows of the one sheet that has a table; a DataError lists several."""
    from python_calamine import SheetTypeEnum, SheetVisibleEnum

    sheets = [one for one in book.sheets_metadata if one.typ == SheetTypeEnum.WorkSheet]
    shown = [one.name for one in sheets if one.visible == SheetVisibleEnum.Visible]
    filled = {one: read for one in shown or [one.name for one in sheets] if (read := _rows(book, one))[0]}
    tables = {one: read for one, read in filled.items() if len(read[0]) > 1 and len(read[0][0]) > 1} or filled
    if len(tables) > 1:
        listed = ", ".join(map(repr, tables))
        raise DataError(
            f"has tables in {len(tables)} sheets: {listed}; name one, as in '{name}#{next(iter(tables))}'"
        )
    if not tables:
        raise DataError("has no sheet with rows")
    ((sheet, (rows, first)),) = tables.items()
    return rows, first, sheet


def _rows(book: Any, name: str) -> tuple[list[Row], int]:
    """Return the rows of a sheet between the first and the last with an entry, and the number of rows above."""
    sheet = book.get_sheet_by_name(name)
    if sheet.start is None:
        return [], 0
    if sheet.height * sheet.width > CELLS:
        raise DataError(TOO_LARGE)
    skipped, left = sheet.start
    rows: list[Row] = [
        [None if isinstance(one, str) and not one.strip() else one for one in row]
        for row in islice(sheet.iter_rows(), skipped, None)
    ]
    _fill(rows, sheet.merged_cell_ranges or (), skipped, left)
    filled = [i for i, row in enumerate(rows) if any(one is not None for one in row)]
    if not filled:
        return [], 0
    rows = rows[filled[0] : filled[-1] + 1]
    width = max(
        len(row) - next((i for i, one in enumerate(reversed(row)) if one is not None), len(row))
        for row in rows
    )
    return [row[:width] for row in rows], skipped + filled[0]


def _fill(
    rows: list[Row], merged: Iterable[tuple[tuple[int, int], tuple[int, int]]], top: int, left: int
) -> None:
    """Give every row of a merged cell its value, which the file has for the first row alone."""
    for (first, column), (last, _) in merged:
        begin, at = first - top, column - left
        if 0 <= begin < len(rows) and 0 <= at < len(rows[begin]):
            for row in rows[begin + 1 : last - top + 1]:
                row[at] = rows[begin][at]


def _header(rows: Sequence[Row]) -> int:
    """Return which row is the header: the first with entries in more than half of the columns."""
    head = rows[: TITLES + 1]
    used = sum(any(row[i] is not None for row in rows[: 2 * TITLES]) for i in range(len(rows[0])))
    return next((i for i, row in enumerate(head) if 2 * sum(one is not None for one in row) > used), 0)
