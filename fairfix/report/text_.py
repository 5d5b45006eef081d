"""Text: tables for a terminal, a file or a pipe."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from textwrap import wrap

from fairfix.report.layout import Command, Interval, TextTable, Verdict, layout
from fairfix.report.words import harmless, readable
from fairfix.schema.common import SavedResult

ENDING = ".txt"

BOLD = "1"
COLOURS = {"pass": "32", "fail": "1;31", "undecided": "33", "waived": "33"}
"""Verdict -> what terminals know its colour by: green, bold red, yellow."""

INDENT = "  "
"""Before each line that could begin with a name of the data: who reads lines, as Python does .pth files, obeys none."""

OF_NAMES = ("attribute", "stratum", "classes")
"""Kinds of sections that have a name of the data as their title."""

GUTTER = 3
"""Columns between two columns of a table."""

NARROW = re.compile("[ -~\xa0-\xac\xae-\u02ff\u2010-\u2027\u2190-\u22ff]*")
"""Text of characters that take one column each; only for others is it looked up how wide they are."""

FILLER = "\u2060"
"""Stands behind a character of two columns while lines are broken; names have it as an escape."""

TOGETHER = re.compile(r"(?<=\d) (?=%|points?\b)|(?<=\bnot) (?=[^\s<>]+[<>])")
"""The blank between a number and its unit, or a condition and its ``not``, where no line may break."""

WORD = re.compile(r"(?:'[^']*'|\"[^\"]*\"|\S)+")
"""A word of a command, with its quotes."""

FIXED = "\u00a0"


def render(
    result: SavedResult,
    *,
    width: int = 120,
    color: bool = False,
    detail: bool = False,
    ascii_only: bool = False,
) -> str:
    """Return the report as text of at most ``width`` columns where the words allow it.

    Every line begins with a word of fairfix or with blanks, none with a name of the data. No number, interval or name
    is broken. Columns that do not fit go into a further table below, which repeats the
    column that names the rows.
    """
    lines: list[str] = []
    for section in layout(readable(result), detail=detail):
        title = f"By {section.title}" if section.kind in OF_NAMES else section.title
        for i, line in enumerate(_wrapped(title, width - len(INDENT))):
            lines.append(INDENT * (i > 0) + _styled(line, BOLD if color else ""))
        for line in section.lines:
            wrapped = _continued if isinstance(line, Command) else _wrapped
            lines += (INDENT + part for part in wrapped(line, width - len(INDENT)))
        for grid in section.grids:
            before = "" if _begins_with_verdicts(grid, width) else INDENT
            for part in _parts(grid, width - len(before)):
                rows = _table(part, width - len(before), color=color, ascii_only=ascii_only)
                lines += (before + row for row in rows)
        lines.append("")
    text = harmless("\n".join(line.rstrip() for line in lines) + "\n")
    return text.replace("–", "-").replace("±", "+-") if ascii_only else text


def _begins_with_verdicts(grid: TextTable, width: int) -> bool:
    """Return whether every line of a table begins with a verdict, or with blanks, as scripts find them."""
    return bool(grid.rows) and isinstance(grid.rows[0][0], Verdict) and _span(_minima(grid)) <= width


def _styled(text: str, style: str) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if style else text


def _span_of(text: str) -> int:
    """Return how many columns a text takes on a terminal: letters of East Asia two, marks above a letter none."""
    if NARROW.fullmatch(text):
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _wrapped(text: str, width: int) -> list[str]:
    """Return the lines of a text; only single words are longer than ``width``."""
    fixed = TOGETHER.sub(FIXED, text)
    if not NARROW.fullmatch(fixed):
        fixed = "".join(one + FILLER * (_span_of(one) - 1) for one in fixed)
    lines = wrap(fixed, max(width, 1), break_long_words=False, break_on_hyphens=False) or [""]
    return [line.replace(FIXED, " ").replace(FILLER, "") for line in lines]


def _continued(command: str, width: int) -> list[str]:
    """Return the lines of a command that a shell reads as one: broken between words only, each with a backslash."""
    lines = [""]
    for word in WORD.findall(command):
        if lines[-1] and _span_of(f"{lines[-1]} {word} \\") > width:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".lstrip()
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


def _least(cell: str) -> int:
    """Return the least width of a cell: a number with its interval and a verdict stay in one line."""
    if isinstance(cell, (Interval, Verdict)):
        return len(cell)
    return max(map(_span_of, TOGETHER.sub(FIXED, cell).split(" ")), default=0)


def _columns(grid: TextTable) -> list[tuple[str, ...]]:
    return list(zip(grid.headings, *grid.rows, strict=True))


def _minima(grid: TextTable) -> list[int]:
    """Return the least width of each column; numbers do not wrap."""
    numbers = (
        max(
            [_least(column[0]), *map(_span_of, column[1:])] if i >= grid.text_columns else map(_least, column)
        )
        for i, column in enumerate(_columns(grid))
    )
    return list(numbers)


def _span(widths: Sequence[int]) -> int:
    return sum(widths) + GUTTER * (len(widths) - 1)


def _parts(grid: TextTable, width: int) -> Iterator[TextTable]:
    """Yield a table, in parts that are no wider than ``width`` where the names and one column fit."""
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


def _naming(grid: TextTable) -> list[int]:
    """Return the columns that tell the rows of a table apart: those that name them."""
    columns, named = _columns(grid), [grid.named_by]
    for i in range(grid.text_columns):
        rows = list(zip(*(columns[j][1:] for j in named), strict=True))
        if len(set(rows)) == len(rows):
            break
        if i not in named and not any(isinstance(cell, (Verdict, Interval)) for cell in columns[i]):
            named.append(i)
    return named


def _part(grid: TextTable, named: Sequence[int], chosen: Sequence[int]) -> TextTable:
    order = [*named, *chosen]
    return replace(
        grid,
        headings=tuple(grid.headings[i] for i in order),
        rows=tuple(tuple(row[i] for i in order) for row in grid.rows),
        text_columns=sum(i < grid.text_columns for i in order),
        named_by=0,
    )


def _widths(grid: TextTable, width: int) -> list[int]:
    """Return the width of each column: as its cells need, less where the table would be wider than ``width``."""
    least = _minima(grid)
    widths = [max(map(_span_of, column)) for column in _columns(grid)]
    while _span(widths) > width and any(w > m for w, m in zip(widths, least, strict=True)):
        widest = max((i for i, w in enumerate(widths) if w > least[i]), key=lambda i: widths[i])
        widths[widest] -= 1
    return widths


def _table(grid: TextTable, width: int, *, color: bool, ascii_only: bool) -> Iterator[str]:
    """Yield the lines of a table: headings stand on its rule, cells hang from the lines of their rows."""
    widths = _widths(grid, width)
    between, rule = (" | ", "-+-") if ascii_only else (" " * GUTTER, "─" * GUTTER)

    def drawn(row: Sequence[str], *, heading: bool = False) -> Iterator[str]:
        cells = [
            _wrapped(cell, wide) if heading or _span_of(cell) > wide else [cell]
            for cell, wide in zip(row, widths, strict=True)
        ]
        if heading:
            high = max(map(len, cells))
            cells = [[""] * (high - len(lines)) + lines for lines in cells]
        styles = [BOLD if heading else COLOURS[c.code] if isinstance(c, Verdict) else "" for c in row]
        for line in zip_longest(*cells, fillvalue=""):
            parts = zip(line, widths, styles, strict=True)
            yield between.join(
                _placed(text, wide, style if color and text else "", right=i >= grid.text_columns)
                for i, (text, wide, style) in enumerate(parts)
            )

    yield from drawn(grid.headings, heading=True)
    yield rule.join(rule[0] * wide for wide in widths)
    for row in grid.rows:
        yield from drawn(row)


def _placed(text: str, wide: int, style: str, *, right: bool) -> str:
    blank = " " * (wide - _span_of(text))
    return blank + _styled(text, style) if right else _styled(text, style) + blank
