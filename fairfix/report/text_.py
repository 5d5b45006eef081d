"""Text: tables for a terminal, the layout drawn with rich."""

from __future__ import annotations

import io

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fairfix.report.layout import Grid, Json, Verdict, layout
from fairfix.report.words import harmless, readable

COLOURS = {"pass": "green", "fail": "bold red", "undecided": "yellow", "waived": "yellow"}


def render(
    result: Json,
    *,
    width: int = 120,
    color: bool = False,
    detail: bool = False,
    ascii_only: bool = False,
) -> str:
    """Return the report as text of at most ``width`` columns where the words allow it."""
    out = io.StringIO()
    console = Console(
        file=out, width=width, force_terminal=color, no_color=not color, highlight=False, legacy_windows=False
    )
    for section in layout(readable(result), detail=detail):
        console.print(Text(section.title, style="bold"))
        for line in section.lines:
            console.print(Text("  " + line))
        for grid in section.grids:
            console.print(_table(grid, ascii_only=ascii_only))
        console.print()
    lines = (line.rstrip() for line in out.getvalue().splitlines())
    text = harmless("\n".join(lines) + "\n")
    return text.replace("–", "-").replace("±", "+-") if ascii_only else text


def _table(grid: Grid, *, ascii_only: bool) -> Table:
    from rich import box

    table = Table(box=box.ASCII if ascii_only else box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for i, heading in enumerate(grid.headings):
        table.add_column(heading, justify="left" if i < grid.text_columns else "right", overflow="fold")
    for row in grid.rows:
        table.add_row(
            *(Text(cell, style=COLOURS[cell.code] if isinstance(cell, Verdict) else "") for cell in row)
        )
    return table
