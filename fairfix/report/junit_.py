"""JUnit XML: one test case per check, for the test reports of CI systems.

A failed check is a ``failure``, an undecided or waived one is ``skipped`` with its reason. There are no times in it:
the same result gives the same bytes.
"""

from __future__ import annotations

import re
from collections import Counter
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from fairfix.report import headline
from fairfix.report.verdicts import (
    baseline,
    cautions,
    command_of,
    gated,
    limit,
    measured,
    rule,
    sentence,
    title,
    waivers,
)
from fairfix.report.words import UNSEEN_IN_LINES, as_references, plain
from fairfix.schema.common import CheckedResult, SavedResult
from fairfix.schema.unrun import Unrun

GATED = True
ENDING = ".xml"

FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML cannot hold, not even escaped."""

ATTACHMENT = re.compile(r"\[(?=\[ATTACHMENT\|)", re.IGNORECASE)
"""The beginning of ``[[ATTACHMENT|file]]``, by which Jenkins and GitLab publish a file of the machine."""


def render(result: SavedResult) -> str:
    """Return the checks as JUnit XML."""
    result = gated(result, "junit")
    command, many = command_of(result), Counter(check.verdict for check in result.checks)
    numbers = {"tests": str(len(result.checks)), "failures": str(many["fail"]), "errors": "0", "time": "0"}
    skipped = str(many["undecided"] + many["waived"])
    root = Element("testsuites", {"name": "fairfix", **numbers})
    suite = _add(root, "testsuite", name=f"fairfix {command}", **numbers, skipped=skipped)
    properties = _add(suite, "properties")
    for name, value in _properties(result).items():
        _add(properties, "property", name=name, value=value)
    for check in result.checks:
        classname = f"fairfix.{command}.{check.attribute}"
        case = _add(suite, "testcase", classname=classname, name=title(check), time="0")
        # a line's end inside a name is none of the text
        text = "\n".join(map(plain, (sentence(check), limit(check), measured(check, result))))
        if check.verdict == "fail":
            _add(case, "failure", text, message=sentence(check), type=rule(check))
            continue
        if check.verdict != "pass":
            _add(case, "skipped", message=sentence(check))
        _add(case, "system-out", text)
    return _xml(root)


def _add(parent: Element, tag: str, text: str | None = None, /, **attributes: str) -> Element:
    """Add an element, without the characters that XML cannot hold."""
    element = SubElement(parent, tag, {name: _clean(value) for name, value in attributes.items()})
    element.text = None if text is None else _clean(text)
    return element


def _clean(text: str) -> str:
    return ATTACHMENT.sub(r"\\x5b", FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text))


def _properties(result: CheckedResult) -> dict[str, str]:
    rows = result.data.rows
    properties = {
        "fairfix": result.fairfix,
        "source": result.data.source,
        "protected": ", ".join(result.data.columns.protected),
        "rows read": str(rows.read),
        "rows used": str(rows.used),
        "verdict": result.verdict or "no checks gated",
        **{f"warning {code}": text for code, text in cautions(result)},
        **{f"waiver {i}": text for i, (_, _, text) in enumerate(waivers(result), 1)},
    }
    since = baseline(result)
    if since is not None:
        properties |= {"baseline": since.source, "baseline rows": str(since.rows)}
        missing = "; ".join(f"{one.id}: {one.reason}" for one in since.not_comparable)
        properties |= {"not comparable": missing} if missing else {}
    return properties


def unrun(problem: Unrun) -> str:
    """Return a suite whose one case is that the command runs, with an error."""
    numbers = {"tests": "1", "failures": "0", "errors": "1", "time": "0"}
    root = Element("testsuites", {"name": "fairfix", **numbers})
    suite = _add(root, "testsuite", name=f"fairfix {problem.command}", **numbers, skipped="0")
    _add(_add(suite, "properties"), "property", name="fairfix", value=problem.fairfix)
    case = _add(suite, "testcase", classname=f"fairfix.{problem.command}", name="runs", time="0")
    _add(case, "error", headline(problem), message=problem.message, type=problem.code)
    return _xml(root)


def _xml(root: Element) -> str:
    indent(root)
    text = as_references(tostring(root, encoding="unicode"))
    text = UNSEEN_IN_LINES.sub(lambda match: f"&#{ord(match[0])};", text)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + text + "\n"
