"""Comment: the verdict and what did not pass in short Markdown, the rest folded, for a comment on a pull request.

It begins with a mark that no reader sees, by which a script finds the comment of an earlier run.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairfix.report import headline, markdown_
from fairfix.report.layout import CHECKS, MARKS, TextTable, class_of
from fairfix.report.verdicts import cautions, command_of, gated, summary, waivers
from fairfix.report.words import plain, readable
from fairfix.schema.common import SavedCheck, SavedResult
from fairfix.schema.unrun import Unrun

GATED = True
ENDING = ".md"

LONGEST = 60_000
"""Characters of a comment with the whole report in it; GitHub takes some 65,000."""


def render(result: SavedResult) -> str:
    """Return the checks as a comment."""
    shown = gated(readable(result), "comment")
    command, verdict = command_of(shown), f": {MARKS[shown.verdict]}" if shown.verdict else ""
    passed = [check for check in shown.checks if check.verdict == "pass"]
    others = [check for check in shown.checks if check.verdict != "pass"]
    parts = [_mark(command), f"### fairfix {command}{verdict}", markdown_.safe(summary(shown))]
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
    columns = CHECKS
    if any(one.of_class for one in checks):
        columns = {"verdict": CHECKS["verdict"], "class": class_of, **CHECKS}
    return markdown_.table(TextTable.of(columns, checks, len(columns), ""))


def _folded(title: str, text: str) -> str:
    return f"<details>\n<summary>{title}</summary>\n\n{text.rstrip()}\n\n</details>"
