"""How much worse an audit of many classes has become than a saved one: class by class, and of all together.

Each class is compared as two audits of two classes are (:mod:`fairfix.auditing.baseline`), by limits that hold for all
classes at once in both; so do the limits of their changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fairfix.auditing.as_json import CLASSES_SCHEMA
from fairfix.auditing.baseline import COINCIDENCE, Allowance, coincidence, compare, is_alike, require_alike
from fairfix.auditing.comparisons import CLASS_SCOPES, Comparison
from fairfix.auditing.metrics import CLASS_METRICS
from fairfix.auditing.multiclass import ACCURACY, of_all
from fairfix.data.choices import GateOn
from fairfix.errors import DataError

USUAL_OF_ALL = tuple(
    Comparison(metric, "difference", scope).id for metric in CLASS_METRICS for scope in CLASS_SCOPES
)
"""Comparisons of all classes together that are compared, beside those of accuracy."""

UNLIKE = "the classes are not the same"


def part_of(result: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the audit of a class in a result, or of all together where the name is empty, as of two classes."""
    mine = result if not name else next(one for one in result["classes"] if one["class"] == name)
    confidence = result["settings"]["confidence_of_class" if name else "confidence"]
    settings = {
        **result["settings"],
        "task": "classification",
        "score_scale": "probability",
        "threshold": None,
    }
    parts = {part: mine[part] for part in ("overall", "attributes", "strata")}
    checks = [check for check in result["checks"] if check.get("class", "") == name]
    return {**result, **parts, "settings": {**settings, "confidence": confidence}, "checks": checks}


def names_of(result: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the classes of a result."""
    return tuple(one["class"] for one in result["classes"])


def require_classes(old: Any, new: Mapping[str, Any], name: str) -> None:
    """Raise a DataError where a baseline is no audit of many classes, or no number of it can be compared."""
    if not isinstance(old, Mapping) or old.get("schema") != CLASSES_SCHEMA:
        raise DataError(
            f"{name} is not a JSON result of a multiclass audit; write one with `task=multiclass` `out=json=FILE`"
        )
    require_alike(old, new, name, ("confidence",))


def compare_classes(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    allowances: Sequence[Allowance],
    usual: Sequence[str],
    gate_on: GateOn,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the ``baseline`` section of a result, and the judged checks of changes, each with its class.

    Arguments are those of :func:`fairfix.auditing.baseline.compare`. Where the classes are not the same, nothing can be
    compared: limits hold for all classes of an audit at once, and gaps are means over them.
    """
    names = names_of(new)
    unlike = _unlike(names_of(old), names)
    pieces = [(one, {**part_of(new, one)}) for one in ("", *names)]
    before = {
        one: part_of(old, one) if not unlike else {**part_of(old, ""), "attributes": []} for one, _ in pieces
    }
    alike = not unlike and all(is_alike(before[one], piece) for one, piece in pieces)
    # a sample that gives the same counts of all classes gives those of the class where that is least likely
    unchanged = alike and min(coincidence(piece) for one, piece in pieces if one) <= COINCIDENCE
    changes, incomparable, checks, section = [], [], [], dict[str, Any]()
    for one, piece in pieces:
        mine = [a for a in allowances if a.check is None or bool(one) != of_all(a.check)]
        asked = [name for name in usual if (Comparison.parse(name).metric == ACCURACY) != bool(one)]
        asked = asked if one else [*USUAL_OF_ALL, *asked]
        section, judged = compare(before[one], piece, mine, asked, gate_on, same=unchanged)
        label = {"class": one} if one else {}
        changes += [{**change, **label, **_named(change, one)} for change in section["changes"]]
        why = {"reason": unlike} if unlike else {}
        incomparable += [{**gone, **label, **_named(gone, one), **why} for gone in section["not_comparable"]]
        more = {"reason": f"not comparable: {unlike}"} if unlike else {}
        checks += [{**check, **label, **_named(check, one), **more} for check in judged]
    section |= {
        "changes": changes,
        "not_comparable": incomparable,
        "allowed": [one.text for one in allowances],
    }
    return section, checks


def _unlike(old: Sequence[str], new: Sequence[str]) -> str:
    """Return in which way classes are not the same; empty where they are."""
    parts = [
        f"{', '.join(map(repr, sorted(names)))} only {where}"
        for names, where in (({*old} - {*new}, "in the baseline"), ({*new} - {*old}, "now"))
        if names
    ]
    return f"{UNLIKE}: {'; '.join(parts)}" if parts else ""


def _named(entry: Mapping[str, Any], name: str) -> dict[str, str]:
    """Return the identifier of an entry with its class."""
    return {"id": f"{entry['id']}, class {name}"} if name else {}
