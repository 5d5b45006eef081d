"""SARIF 2.1.0: a rule per metric that was limited, a result per check that failed or is undecided.

A failed check has the level ``error``, an undecided one ``warning``; a waived one keeps its own and is suppressed.
All are of kind ``fail``: the standard allows levels to no other kind, so the verdict itself is among the properties
of a result.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from fairfix.report.verdicts import judged, limit, measured, rule, sentence

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def render(result: Mapping[str, Any]) -> str:
    """Return the checks as a SARIF log."""
    found = judged(result, "sarif")
    about = {rule(check): measured(check, result) for check in found.checks}
    rules = list(about)
    uri = quote(found.source.replace("\\", "/"), safe="/") or "data"
    run = {
        "tool": {
            "driver": {
                "name": "fairfix",
                "version": str(result["fairfix"]),
                "rules": [_rule(*one) for one in about.items()],
            }
        },
        "automationDetails": {"id": f"fairfix/{found.command}/"},
        "invocations": [{"executionSuccessful": True}],
        "artifacts": [{"location": {"uri": uri}, "roles": ["analysisTarget"]}],
        "results": [
            _result(check, rules.index(rule(check)), uri)
            for check in found.checks
            if check["severity"] != "none"
        ],
        "columnKind": "unicodeCodePoints",
        "properties": {
            "verdict": result["verdict"],
            "protected": list(found.columns),
            "rows": dict(result["data"]["rows"]),
            "passed": found.count("pass"),
            **{part: result[part] for part in ("baseline", "waivers") if part in result},
        },
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _rule(identifier: str, told: str) -> dict[str, Any]:
    return {
        "id": identifier,
        "shortDescription": {"text": identifier.replace("_", " ").replace(".", ", ")},
        "fullDescription": {"text": told},
        "help": {"text": told},
        "defaultConfiguration": {"level": "error"},
    }


def _result(check: Mapping[str, Any], index: int, uri: str) -> dict[str, Any]:
    told = (
        "value",
        "low",
        "high",
        "limit",
        "operator",
        "attribute",
        "columns",
        "groups",
        "verdict",
        "code",
        "reason",
        "gate_on",
        "complete",
    )
    print_ = hashlib.sha256(f"{check['id']} {check['operator']} {check['limit']}".encode()).hexdigest()
    return {
        "ruleId": rule(check),
        "ruleIndex": index,
        "kind": "fail",
        "level": check.get("waived", check)["severity"],
        "message": {"text": _message(f"{sentence(check)}. It {limit(check)}.")},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": uri, "index": 0},
                    "region": {"startLine": 1},
                },
                "logicalLocations": [{"fullyQualifiedName": check["id"], "kind": "member"}],
            }
        ],
        "partialFingerprints": {"fairfixCheck/v1": print_},
        "properties": {name: check[name] for name in told},
        **_suppressed(check),
    }


def _suppressed(check: Mapping[str, Any]) -> dict[str, Any]:
    """Return the waiver of a check as the standard's suppression."""
    if "waived" not in check:
        return {}
    waived = check["waived"]
    why = f"{waived['reason']} (until {waived['expires']})"
    return {"suppressions": [{"kind": "external", "status": "accepted", "justification": why}]}


def _message(text: str) -> str:
    """Keep group names from becoming links or placeholders, which the standard knows in messages."""
    return text.replace("{", "{{").replace("}", "}}").replace("](", "] (")
