"""Comment: the verdict and what did not pass in short Markdown, the rest folded, for a comment on a pull request.

It begins with a mark that no reader sees, by which a script finds the comment of an earlier run.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairfix.report import headline, markdown_
from fairfix.report.layout import MARKS, Columns, TextTable, class_of, interval
from fairfix.report.verdicts import cautions, judged, waivers
from fairfix.report.words import plain, readable
from fairfix.schema.common import SavedCheck, SavedResult
from fairfix.schema.unrun import Unrun

GATED = True
ENDING = ".md"

LONGEST = 60_000
"""Characters of a comment with the whole report in it; GitHub takes some 65,000."""

COLUMNS: Columns = {
    "verdict": lambda one: MARKS[one.verdict],
    "check": "check",
    "attribute": "attribute",
    "value": interval,
    "groups": lambda one: ", ".join(one.groups),
    "why": "reason",
}


def render(result: SavedResult) -> str:
    """Return the checks as a comment."""
    shown = readable(result)
    of = judged(shown, "comment")
    verdict = f": {MARKS[of.verdict]}" if of.verdict else ""
    passed = [check for check in of.checks if check.verdict == "pass"]
    others = [check for check in of.checks if check.verdict != "pass"]
    parts = [_mark(of.command), f"### fairfix {of.command}{verdict}", markdown_.safe(of.summary)]
    pressing = [f"warning: {text} [{code}]" for code, text in cautions(shown)]
    pressing += [text for _, urgent, text in waivers(shown) if urgent]
    parts += ["\n".join(f"- {markdown_.safe(text)}" for text in pressing)] if pressing else []
    parts += [_checks(others)] if others else []
    parts += [_folded(f"{len(passed)} passed", _checks(passed))] if passed else []
    whole = _folded("Full report", markdown_.render(result))
    if sum(map(len, parts)) + len(whole) < LONGEST:
        parts.append(whole)
    return "\n\n".join(parts) + "\n"


def unrun(problem: Unrun) -> str:
    """Return a comment of the message."""
    message = markdown_.safe(plain(problem.message))
    return (
        f"{_mark(problem.command)}\n\n### {markdown_.safe(headline(problem))}\n\n{message} ({problem.code})\n"
    )


def _mark(command: str) -> str:
    return f"<!-- fairfix {command} -->"


def _checks(checks: Sequence[SavedCheck]) -> str:
    columns = dict(COLUMNS)
    if any(one.of_class for one in checks):
        columns = {"verdict": COLUMNS["verdict"], "class": class_of, **COLUMNS}
    return markdown_.table(TextTable.of(columns, checks, len(columns), ""))


def _folded(title: str, text: str) -> str:
    return f"<details>\n<summary>{title}</summary>\n\n{text.rstrip()}\n\n</details>"
