"""Markdown: headings and pipe tables of the layout, for pull requests and step summaries."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fairfix.report import headline
from fairfix.report.layout import Command, Section, TextTable, layout
from fairfix.report.words import harmless, plain, readable
from fairfix.schema.common import SavedResult
from fairfix.schema.unrun import Unrun

ENDING = ".md"


def render(result: SavedResult, *, detail: bool = False) -> str:
    """Return the report as GitHub-flavoured Markdown."""
    return written(layout(readable(result), detail=detail))


def written(sections: Iterable[Section]) -> str:
    """Return sections as Markdown, under the title of the first."""
    parts = []
    for level, section in enumerate(sections):
        parts.append(f"{'#' if level == 0 else '##'} {safe(section.title)}")
        if section.lines:
            parts.append(
                "\n".join(
                    f"- {code(line) if isinstance(line, Command) else safe(line)}" for line in section.lines
                )
            )
        parts.extend(table(grid) for grid in section.grids)
    return "\n\n".join(parts) + "\n"


def table(grid: TextTable) -> str:
    """Return a table of pipes."""
    rule = ["---" if i < grid.text_columns else "---:" for i in range(len(grid.headings))]
    rows = [grid.headings, rule, *grid.rows]
    return "\n".join("| " + " | ".join(safe(cell) for cell in row) + " |" for row in rows)


ENTITY = re.compile(r"&(?=#?\w+;)")

REFERENCE = re.compile(r"""([@#!$%~]|(?<!\\)&|\bGH-)(?=[\w"])""", re.IGNORECASE)
"""Signs that turn the next word into a mention, an issue, a merge request or a label on GitHub and GitLab."""

ADDRESS = re.compile(r":(?=//)|(?<=\bwww)\.|(?<=\bmailto):|(?<=\bxmpp):", re.IGNORECASE)
"""The sign that makes a link of a text."""


def safe(text: str) -> str:
    """Keep group names from breaking out of a cell or becoming markup."""
    if text in ("---", "---:"):
        return text
    for mark in ("\\", "|", "<", "*", "_", "`", "~"):
        text = text.replace(mark, "\\" + mark)
    text = text.replace("](", r"]\(")  # neither a link nor a picture that is fetched
    text = ADDRESS.sub(r"\\\g<0>", ENTITY.sub(r"\\&", text).replace("---", r"\---"))
    return harmless(
        REFERENCE.sub(r"\1&#8203;", text)
    )  # a backslash does not end a mention, a space without width does


def code(text: str) -> str:
    """Return a text as code, in which nothing is markup: between more backquotes than stand together in it."""
    runs = re.findall("`+", text)
    ticks, pad = "`" * (max(map(len, runs), default=0) + 1), " " if runs else ""
    return harmless(f"{ticks}{pad}{text}{pad}{ticks}")


def unrun(problem: Unrun) -> str:
    """Return a heading and the message."""
    return f"# {safe(headline(problem))}\n\n{safe(plain(problem.message))} ({safe(problem.code)})\n"
