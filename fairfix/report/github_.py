"""GitHub Actions: a workflow command per check, which becomes an annotation of the run.

A failed check is an error, an undecided one a warning, a waived one a notice; so is how many passed. GitHub shows ten
annotations of a kind per step, so the full tables belong into the step summary: the command line appends the Markdown
report there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairfix.report.verdicts import judged, limit, sentence, title, waivers

LEVELS = {"error": "error", "warning": "warning", "note": "notice"}
"""Levels of checks by their severity."""

WAIVERS = {"used": "notice", "not needed": "notice"}
"""Levels of waivers by what they do; all others are warnings."""


def render(result: Mapping[str, Any]) -> str:
    """Return the checks as workflow commands, one line each."""
    found = judged(result, "github")
    lines = [
        _command(level, title(check), f"{sentence(check)}. It {limit(check)}.")
        for severity, level in LEVELS.items()
        for check in found.checks
        if check["severity"] == severity
    ]
    lines += [
        _command(WAIVERS.get(state, "warning"), f"waiver of {check}", told)
        for check, state, told in waivers(result)
    ]
    lines += [
        _command("notice", "baseline", f"{one['id']} is not comparable: {one['reason']}")
        for one in result.get("baseline", {}).get("not_comparable", ())
    ]
    about = f"fairfix {found.command}: {', '.join(found.columns)}"
    return "\n".join([*lines, _command("notice", about, found.summary)]) + "\n"


def _command(level: str, heading: str, message: str) -> str:
    return f"::{level} title={_property(heading)}::{_data(message)}"


def _data(text: str) -> str:
    """Escape a message as the runner unescapes it."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Escape the value of a property, which also ends at a colon or a comma."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
