"""SARIF 2.1.0: a rule per metric that was limited, a result per check that failed or is undecided.

A failed check has the level ``error``, an undecided one ``warning``; a waived one keeps its own and is suppressed.
All are of kind ``fail``: the standard allows levels to no other kind, so the verdict itself is among the properties
of a result.
"""

from __future__ import annotations

import hashlib
from typing import Any
from urllib.parse import quote

from fairfix.report import headline
from fairfix.report.verdicts import baseline, cautions, command_of, gated, limit, measured, rule, sentence
from fairfix.report.words import as_json
from fairfix.schema.common import SavedCheck, SavedResult
from fairfix.schema.unrun import Unrun

GATED = True

PROPERTIES = (
    *("value", "low", "high", "limit", "operator", "attribute", "columns", "groups"),
    *("verdict", "code", "reason", "gate_on", "complete"),
)
"""Parts of a check that a result has as properties."""

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def render(result: SavedResult) -> str:
    """Return the checks as a SARIF log."""
    result = gated(result, "sarif")
    about = {rule(check): measured(check, result) for check in result.checks}
    rules = list(about)
    uri = _uri(result.data.source) or "data"
    written = sorted(
        {_uri(check.written.file) for check in result.checks if check.written is not None} - {uri}
    )
    run = {
        "tool": {
            "driver": {
                "name": "fairfix",
                "version": result.fairfix,
                "rules": [_rule(*one) for one in about.items()],
            }
        },
        "automationDetails": {"id": f"fairfix/{command_of(result)}/"},
        "invocations": [{"executionSuccessful": True, **_notifications(result)}],
        "artifacts": [
            {"location": {"uri": uri}, "roles": ["analysisTarget"]},
            *({"location": {"uri": one}, "roles": ["userSpecifiedConfiguration"]} for one in written),
        ],
        "results": [
            _result(check, rules.index(rule(check)), [uri, *written])
            for check in result.checks
            if check.severity != "none"
        ],
        "columnKind": "unicodeCodePoints",
        "properties": {
            "verdict": result.verdict,
            "protected": result.data.columns.protected,
            "rows": result.data.rows,
            "passed": sum(check.verdict == "pass" for check in result.checks),
            **({"baseline": since} if (since := baseline(result)) is not None else {}),
            **({"waivers": result.waivers} if result.waivers is not None else {}),
        },
    }
    return _log(run)


def _notifications(result: SavedResult) -> dict[str, Any]:
    """Return the warnings about the run as a whole, which are no results."""
    notes = [
        {"level": "warning", "descriptor": {"id": code}, "message": {"text": _message(text)}}
        for code, text in cautions(result)
    ]
    return {"toolExecutionNotifications": notes} if notes else {}


def _rule(identifier: str, definition: str) -> dict[str, Any]:
    return {
        "id": identifier,
        "shortDescription": {"text": identifier.replace("_", " ").replace(".", ", ")},
        "fullDescription": {"text": definition},
        "help": {"text": definition},
        "defaultConfiguration": {"level": "error"},
    }


def _uri(path: str) -> str:
    return quote(path.replace("\\", "/"), safe="/")


def _result(check: SavedCheck, index: int, uris: list[str]) -> dict[str, Any]:
    """Return a check where its limit is written, or at the first line of the data."""
    at, line = (0, 1) if check.written is None else (uris.index(_uri(check.written.file)), check.written.line)
    print_ = hashlib.sha256(f"{check.id} {check.operator} {check.limit}".encode()).hexdigest()
    out = {
        "ruleId": rule(check),
        "ruleIndex": index,
        "kind": "fail",
        "level": (check.waived or check).severity,
        "message": {"text": _message(f"{sentence(check)}. It {limit(check)}.")},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": uris[at], "index": at},
                    "region": {"startLine": line},
                },
                "logicalLocations": [{"fullyQualifiedName": check.id, "kind": "member"}],
            }
        ],
        "partialFingerprints": {"fairfixCheck/v1": print_},
        "properties": {name: getattr(check, name) for name in PROPERTIES},
    }
    if check.waived is not None:
        why = f"{check.waived.reason} (until {check.waived.expires})"
        out["suppressions"] = [{"kind": "external", "status": "accepted", "justification": why}]
    return out


def _message(text: str) -> str:
    """Keep group names from becoming links or placeholders, which the standard knows in messages."""
    return text.replace("{", "{{").replace("}", "}}").replace("](", "] (")


def unrun(problem: Unrun) -> str:
    """Return a log of a tool that failed: it has no results, so a viewer does not take old ones for fixed."""
    notice = {
        "level": "error",
        "message": {"text": _message(f"{headline(problem)}: {problem.message}")},
        "descriptor": {"id": problem.code},
    }
    invocation = {
        "executionSuccessful": False,
        "exitCode": problem.status,
        "toolExecutionNotifications": [notice],
    }
    run = {
        "tool": {"driver": {"name": "fairfix", "version": problem.fairfix}},
        "automationDetails": {"id": f"fairfix/{problem.command}/"},
        "invocations": [invocation],
    }
    return _log(run)


def _log(run: dict[str, Any]) -> str:
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return as_json(log) + "\n"
