"""GitHub Actions: a workflow command per check, which becomes an annotation of the run.

A failed check is an error, an undecided one a warning, a waived one a notice; so is how many passed. GitHub shows ten
annotations of a kind per step, so the full tables belong into the step summary: the command line appends the Markdown
report there.
"""

from __future__ import annotations

from fairfix.report import headline
from fairfix.report.verdicts import (
    baseline,
    cautions,
    command_of,
    gated,
    limit,
    sentence,
    summary,
    title,
    waivers,
)
from fairfix.report.words import harmless, plain, shortened
from fairfix.schema.common import SavedResult, Written
from fairfix.schema.unrun import Unrun

GATED = True
ENDING = ".txt"

LEVELS = {"error": "error", "warning": "warning", "note": "notice"}
"""Levels of checks by their severity."""


def render(result: SavedResult) -> str:
    """Return the checks as workflow commands, one line each."""
    result = gated(result, "github")
    lines = [_command("warning", code, text) for code, text in cautions(result)]
    lines += [
        _command(level, title(check), f"{sentence(check)}. It {limit(check)}.", check.written)
        for severity, level in LEVELS.items()
        for check in result.checks
        if check.severity == severity
    ]
    lines += [
        _command("warning" if pressing else "notice", f"waiver of {check}", text)
        for check, pressing, text in waivers(result)
    ]
    since = baseline(result)
    lines += [
        _command("notice", "baseline", f"{one.id} is not comparable: {one.reason}")
        for one in (() if since is None else since.not_comparable)
    ]
    heading = f"fairfix {command_of(result)}: {', '.join(result.data.columns.protected)}"
    lines.append(_command("notice", heading, summary(result)))
    return "\n".join(lines) + "\n"


def _command(level: str, heading: str, message: str, place: Written | None = None) -> str:
    """Return a line with texts escaped as the runner unescapes them; properties also end at colon and comma."""
    properties: dict[str, str | int] = {"title": heading}
    if place is not None:
        properties |= {"file": place.file, "line": place.line}
    texts = (
        f"{name}={_escaped(str(text)).replace(':', '%3A').replace(',', '%2C')}"
        for name, text in properties.items()
    )
    return f"::{level} {','.join(texts)}::{_escaped(message)}"


def _escaped(text: str) -> str:
    return harmless(plain(shortened(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")))


def unrun(problem: Unrun) -> str:
    """Return an error of the run."""
    return _command("error", headline(problem), f"{problem.message} [{problem.code}]") + "\n"
