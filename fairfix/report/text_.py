"""Text: tables for a terminal. Rich tells how wide a text is and writes its colours."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from textwrap import wrap

from rich.cells import cell_len

from fairfix.report.layout import Grid, Interval, Json, Verdict, layout
from fairfix.report.words import harmless, readable

COLOURS = {"pass": "green", "fail": "bold red", "undecided": "yellow", "waived": "yellow"}

GUTTER = 3
"""Columns between two columns of a table."""

TOGETHER = re.compile(r"(?<=\d) (?=%|points?\b)|(?<=\bnot) (?=[^\s<>]+[<>])")
"""The blank between a number and its unit, or a condition and its ``not``, where no line may break."""

FIXED = "\u00a0"


def render(
    result: Json,
    *,
    width: int = 120,
    color: bool = False,
    detail: bool = False,
    ascii_only: bool = False,
) -> str:
    """Return the report as text of at most ``width`` columns where the words allow it.

    No number, interval or name is broken. Columns that do not fit go into a further table below, which repeats the
    column that names the rows.
    """
    lines: list[str] = []
    for section in layout(readable(result), detail=detail):
        lines += [_styled(line, "bold", color) for line in _wrapped(section.title, width)]
        lines += ["  " + part for line in section.lines for part in _wrapped(line, width - 2)]
        for grid in section.grids:
            for part in _parts(grid, width):
                lines += _table(part, width, color=color, ascii_only=ascii_only)
        lines.append("")
    text = harmless("\n".join(line.rstrip() for line in lines) + "\n")
    return text.replace("–", "-").replace("±", "+-") if ascii_only else text


def _styled(text: str, style: str, color: bool) -> str:
    """Return a text with the codes of a terminal for its style, where there are to be any."""
    if not color or not style:
        return text
    from rich.console import Console
    from rich.text import Text

    out = io.StringIO()
    console = Console(file=out, force_terminal=True, highlight=False, legacy_windows=False)
    console.print(Text(text, style=style), end="", soft_wrap=True)
    return out.getvalue()


def _wrapped(text: str, width: int) -> list[str]:
    """Return the lines of a text, of which only single words are longer than ``width``."""
    fixed = TOGETHER.sub(FIXED, text)
    lines = wrap(fixed, max(width, 1), break_long_words=False, break_on_hyphens=False) or [""]
    return [line.replace(FIXED, " ") for line in lines]


def _least(cell: str) -> int:
    """Return the least width of a cell: a number with its interval and a verdict stay in one line."""
    if isinstance(cell, (Interval, Verdict)):
        return len(cell)
    return max(map(len, TOGETHER.sub(FIXED, cell).split(" ")), default=0)


def _columns(grid: Grid) -> list[tuple[str, ...]]:
    return list(zip(grid.headings, *grid.rows, strict=True))


def _minima(grid: Grid) -> list[int]:
    """Return the least width of each column; numbers do not wrap."""
    numbers = (
        max([_least(column[0]), *map(len, column[1:])] if i >= grid.text_columns else map(_least, column))
        for i, column in enumerate(_columns(grid))
    )
    return list(numbers)


def _span(widths: Sequence[int]) -> int:
    return sum(widths) + GUTTER * (len(widths) - 1)


def _parts(grid: Grid, width: int) -> Iterator[Grid]:
    """Yield a table, in parts that are no wider than ``width`` where a column beside the names can be."""
    least = _minima(grid)
    if _span(least) <= width or len(least) < 2:
        yield grid
        return
    named = _naming(grid)
    chosen: list[int] = []
    for i in (i for i in range(len(least)) if i not in named):
        if chosen and _span([least[j] for j in (*named, *chosen, i)]) > width:
            yield _part(grid, named, chosen)
            chosen = []
        chosen.append(i)
    yield _part(grid, named, chosen)


def _naming(grid: Grid) -> list[int]:
    """Return the columns that tell the rows of a table apart: those that name them."""
    columns, named = _columns(grid), [grid.named_by]
    for i in range(grid.text_columns):
        rows = list(zip(*(columns[j][1:] for j in named), strict=True))
        if len(set(rows)) == len(rows):
            break
        if i not in named and not any(isinstance(cell, (Verdict, Interval)) for cell in columns[i]):
            named.append(i)
    return named


def _part(grid: Grid, named: Sequence[int], chosen: Sequence[int]) -> Grid:
    order = [*named, *chosen]
    return replace(
        grid,
        headings=tuple(grid.headings[i] for i in order),
        rows=tuple(tuple(row[i] for i in order) for row in grid.rows),
        text_columns=sum(i < grid.text_columns for i in order),
        named_by=0,
    )


def _table(grid: Grid, width: int, *, color: bool, ascii_only: bool) -> Iterator[str]:
    """Yield the lines of a table, headings at the bottom of theirs."""
    least = _minima(grid)
    widths = [max(map(cell_len, column)) for column in _columns(grid)]
    while _span(widths) > width and any(w > m for w, m in zip(widths, least, strict=True)):
        widest = max((i for i, w in enumerate(widths) if w > least[i]), key=lambda i: widths[i])
        widths[widest] -= 1
    dash, cross, between = ("-", "-+-", " | ") if ascii_only else ("─", "─" * GUTTER, " " * GUTTER)
    for place, row in enumerate((grid.headings, *grid.rows)):
        parts = [
            [cell] if cell_len(cell) <= wide else _wrapped(cell, wide)
            for cell, wide in zip(row, widths, strict=True)
        ]
        styles = [
            "bold" if place == 0 else COLOURS[cell.code] if isinstance(cell, Verdict) else "" for cell in row
        ]
        high = max(map(len, parts))
        for line in range(high):
            cells = []
            for i, (part, wide, style) in enumerate(zip(parts, widths, styles, strict=True)):
                at = line - (high - len(part) if place == 0 else 0)
                cell = part[at] if 0 <= at < len(part) else ""
                blank = " " * (wide - cell_len(cell))
                cell = _styled(cell, style, color)
                cells.append(cell + blank if i < grid.text_columns else blank + cell)
            yield between.join(cells)
        if place == 0:
            yield cross.join(dash * wide for wide in widths)
