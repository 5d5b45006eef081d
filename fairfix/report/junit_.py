"""JUnit XML: one test case per check, for the test reports of CI systems.

A failed check is a ``failure``, an undecided or waived one is ``skipped`` with its reason. There are no times in it:
the same result gives the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from fairfix.report.verdicts import Judged, judged, limit, measured, rule, sentence, title, waivers

FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML cannot hold, not even escaped."""


def render(result: Mapping[str, Any]) -> str:
    """Return the checks as JUnit XML."""
    found = judged(result, "junit")
    numbers = {
        "tests": str(len(found.checks)),
        "failures": str(found.count("fail")),
        "errors": "0",
        "time": "0",
    }
    root = Element("testsuites", {"name": "fairfix", **numbers})
    about = {
        "name": _clean(f"fairfix {found.command}"),
        **numbers,
        "skipped": str(found.count("undecided") + found.count("waived")),
    }
    suite = SubElement(root, "testsuite", about)
    properties = SubElement(suite, "properties")
    for name, value in _properties(result, found).items():
        SubElement(properties, "property", {"name": name, "value": _clean(value)})
    for check in found.checks:
        _case(suite, check, found, result)
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _properties(result: Mapping[str, Any], found: Judged) -> dict[str, str]:
    rows = result["data"]["rows"]
    return {
        "fairfix": str(result["fairfix"]),
        "source": found.source,
        "protected": ", ".join(found.columns),
        "rows read": str(rows["read"]),
        "rows used": str(rows["used"]),
        "verdict": str(result["verdict"] or "nothing gated"),
        **{f"waiver {i}": told for i, (_, _, told) in enumerate(waivers(result), 1)},
        **_baseline(result),
    }


def _baseline(result: Mapping[str, Any]) -> dict[str, str]:
    """Return what is compared with, and what cannot be."""
    found = result.get("baseline")
    if found is None:
        return {}
    missing = "; ".join(f"{one['id']}: {one['reason']}" for one in found["not_comparable"])
    told = {"baseline": str(found["source"]), "baseline rows": str(found["rows"])}
    return {**told, **({"not comparable": missing} if missing else {})}


def _case(suite: Element, check: Mapping[str, Any], found: Judged, result: Mapping[str, Any]) -> None:
    name = f"fairfix.{found.command}.{check['attribute']}"
    case = SubElement(
        suite, "testcase", {"classname": _clean(name), "name": _clean(title(check)), "time": "0"}
    )
    told = f"{sentence(check)}\n{limit(check)}\n{measured(check, result)}"
    if check["verdict"] == "fail":
        inner = SubElement(case, "failure", {"message": _clean(sentence(check)), "type": _clean(rule(check))})
        inner.text = _clean(told)
    elif check["verdict"] in ("undecided", "waived"):
        SubElement(case, "skipped", {"message": _clean(sentence(check))})
    if check["verdict"] != "fail":
        SubElement(case, "system-out").text = _clean(told)


def _clean(text: str) -> str:
    return FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
