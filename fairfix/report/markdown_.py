"""Markdown: headings and pipe tables of the layout, for pull requests and step summaries."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fairfix.report.layout import Grid, Json, Section, layout
from fairfix.report.words import readable


def render(result: Json, *, detail: bool = False) -> str:
    """Return the report as GitHub-flavoured Markdown."""
    return written(layout(readable(result), detail=detail))


def written(sections: Iterable[Section]) -> str:
    """Return sections as Markdown, under the title of the first."""
    parts = []
    for level, section in enumerate(sections):
        parts.append(f"{'#' if level == 0 else '##'} {_safe(section.title)}")
        if section.lines:
            parts.append("\n".join(f"- {_safe(line)}" for line in section.lines))
        parts.extend(_table(grid) for grid in section.grids)
    return "\n\n".join(parts) + "\n"


def _table(grid: Grid) -> str:
    rule = ["---" if i < grid.text_columns else "---:" for i in range(len(grid.headings))]
    rows = [grid.headings, rule, *grid.rows]
    return "\n".join("| " + " | ".join(_safe(cell) for cell in row) + " |" for row in rows)


ENTITY = re.compile(r"&(?=#?\w+;)")


def _safe(text: str) -> str:
    """Keep group names from breaking out of a cell or becoming markup."""
    if text in ("---", "---:"):
        return text
    for mark in ("\\", "|", "<", "*", "_", "`", "~"):
        text = text.replace(mark, "\\" + mark)
    text = text.replace("](", r"]\(")  # neither a link nor a picture that is fetched
    return ENTITY.sub(r"\\&", text).replace("---", r"\---")
