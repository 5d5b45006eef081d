"""Excel: the tables of CSV as a workbook, a sheet for each; no cell is a formula."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from io import BytesIO
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from markupsafe import escape

from fairfix.report import headline
from fairfix.report.csv_ import FORMULA
from fairfix.report.frames import tables_of
from fairfix.report.words import plain, shortened
from fairfix.schema.common import SavedResult
from fairfix.schema.unrun import Unrun

HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
KIND = "application/vnd.openxmlformats-officedocument.spreadsheetml"

STYLES = (
    f'<styleSheet xmlns="{MAIN}"><fonts count="1"><font><sz val="11"/><name val="Calibri"/></font></fonts>'
    '<fills count="1"><fill><patternFill/></fill></fills><borders count="1"><border/></borders>'
    '<cellStyleXfs count="1"><xf/></cellStyleXfs><cellXfs count="2"><xf/><xf quotePrefix="1"/></cellXfs>'
    '<cellStyles count="1"><cellStyle name="Normal" xfId="0" builtinId="0"/></cellStyles></styleSheet>'
)
"""Styles of cells; the second keeps a text that looks like a formula a text, also after it is edited."""

ESCAPED = re.compile(r"_(?=x[0-9A-Fa-f]{4}_)")
"""The sign that would make a character of what follows it."""

NO_CHARACTERS = re.compile("[\ufffe\uffff]")
"""Characters that XML cannot hold, besides what :func:`fairfix.report.words.plain` writes out."""


def render(result: SavedResult) -> bytes:
    """Return a workbook of the tables that have rows, with the columns of the data frames."""
    sheets: list[tuple[str, list[Sequence[Any]]]] = [
        (name, [columns, *rows(result)]) for name, (columns, rows) in tables_of(result).items()
    ]
    filled = [(name, lines) for name, lines in sheets if len(lines) > 1]
    return _workbook(filled or [("fairfix", [["the result has no table"]])])


def unrun(problem: Unrun) -> bytes:
    """Return a workbook that says that there is no result."""
    return _workbook([("fairfix", [[headline(problem), problem.message]])])


def _workbook(sheets: Sequence[tuple[str, Sequence[Sequence[Any]]]]) -> bytes:
    """Return the file: its parts in a ZIP without times, so that the same result gives the same bytes."""
    numbers = range(1, len(sheets) + 1)
    related = f'<Relationships xmlns="{PACKAGE}/relationships">'
    kinds = {f"worksheets/sheet{i}": "worksheet" for i in numbers} | {"styles": "styles"}
    parts = {
        "[Content_Types].xml": f'<!-- fairfix --><Types xmlns="{PACKAGE}/content-types"><Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Override PartName="/xl/workbook.xml" '
        f'ContentType="{KIND}.sheet.main+xml"/>'
        + "".join(
            f'<Override PartName="/xl/{part}.xml" ContentType="{KIND}.{kind}+xml"/>'
            for part, kind in kinds.items()
        )
        + "</Types>",
        "_rels/.rels": f'{related}<Relationship Id="r1" Type="{OFFICE}/officeDocument" Target="xl/workbook.xml"/>'
        "</Relationships>",
        "xl/_rels/workbook.xml.rels": related
        + "".join(
            f'<Relationship Id="r{i}" Type="{OFFICE}/{kind}" Target="{part}.xml"/>'
            for i, (part, kind) in enumerate(kinds.items(), 1)
        )
        + "</Relationships>",
        "xl/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{OFFICE}"><sheets>'
        + "".join(
            f'<sheet name="{name}" sheetId="{i}" r:id="r{i}"/>'
            for i, (name, _) in zip(numbers, sheets, strict=True)
        )
        + "</sheets></workbook>",
        "xl/styles.xml": STYLES,
    }
    parts |= {
        f"xl/worksheets/sheet{i}.xml": _sheet(rows) for i, (_, rows) in zip(numbers, sheets, strict=True)
    }
    out = BytesIO()
    with ZipFile(out, "w") as file:
        for name, text in parts.items():
            part = ZipInfo(name)
            part.compress_type = (
                ZIP_DEFLATED if name.startswith("xl/") else 0
            )  # the mark is among the first bytes
            file.writestr(part, HEAD + text)
    return out.getvalue()


def _sheet(rows: Iterable[Sequence[Any]]) -> str:
    lines = (f"<row>{''.join(map(_cell, row))}</row>" for row in rows)
    return f'<worksheet xmlns="{MAIN}"><sheetData>{"".join(lines)}</sheetData></worksheet>'


def _cell(value: Any) -> str:
    """Return a cell: a number whole, an empty one where it is undefined, a text as a text."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "<c/>"
    if isinstance(value, bool):
        return f'<c t="b"><v>{int(value)}</v></c>'
    if isinstance(value, (int, float)) and math.isfinite(value):
        return f"<c><v>{value!r}</v></c>"
    text = NO_CHARACTERS.sub(lambda one: f"\\u{ord(one[0]):04x}", plain(shortened(str(value))))
    style = ' s="1"' if text.startswith(FORMULA) else ""
    return f'<c t="inlineStr"{style}><is><t xml:space="preserve">{escape(ESCAPED.sub("_x005F_", text))}</t></is></c>'
