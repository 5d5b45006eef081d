"""Changes of an audit of many classes since a saved one: class by class, and of all together.

Each class is compared as two audits of two classes are (:mod:`fairfix.auditing.baseline`), by limits that hold for all
classes at once in both; so do the limits of their changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from fairfix.auditing.baseline import (
    COINCIDENCE,
    Allowance,
    coincidence,
    compare,
    is_alike,
    is_of,
    require_alike,
)
from fairfix.auditing.comparisons import CLASS_SCOPES, Comparison
from fairfix.auditing.metrics import CLASS_METRICS
from fairfix.auditing.multiclass import ACCURACY, of_all
from fairfix.auditing.results import in_class
from fairfix.data.choices import GateOn
from fairfix.errors import DataError
from fairfix.schema import common
from fairfix.schema.audit import Audit
from fairfix.schema.classes import Classes

USUAL_OF_ALL = tuple(
    Comparison(metric, "difference", scope).id for metric in CLASS_METRICS for scope in CLASS_SCOPES
)
"""Comparisons of all classes together that are compared, in addition to those of accuracy."""

UNLIKE = "the classes are not the same"


def part_of(result: Classes, name: str) -> Audit:
    """Return the audit of a class in a result, or of all together where the name is empty, as of two classes."""
    mine = result if not name else next(one for one in result.classes if one.of_class == name)
    confidence = result.settings.confidence_of_class if name else None
    return Audit(
        fairfix=result.fairfix,
        verdict=result.verdict,
        data=result.data,
        settings=replace(
            result.settings, task="classification", confidence=confidence or result.settings.confidence
        ),
        checks=tuple(check for check in result.checks if check.of_class == name),
        overall=mine.overall,
        attributes=mine.attributes,
        strata=mine.strata,
        not_computed=result.not_computed,
        definitions=result.definitions,
        pooled_median=None,
    )


def require_classes(old: Any, new: Classes, name: str) -> Classes:
    """Return a baseline; a DataError where it is no audit of many classes, or no number of it can be compared."""
    if not is_of("classes", old):
        raise DataError(
            f"{name} is not a JSON result of a multiclass audit; write one with `task=multiclass` `out=json=FILE`"
        )
    out = require_alike(old, new, name, ("confidence",))
    assert isinstance(out, Classes)
    return out


def compare_classes(
    old: Classes,
    new: Classes,
    allowances: Sequence[Allowance],
    usual: Sequence[str],
    gate_on: GateOn,
) -> tuple[common.Baseline, tuple[common.Check, ...]]:
    """Return the changes since a baseline, and the judged checks of changes, each with its class.

    Arguments are those of :func:`fairfix.auditing.baseline.compare`. Where the classes are not the same, nothing can be
    compared: limits hold for all classes of an audit at once, and gaps are means over them.
    """
    names = tuple(one.of_class for one in new.classes)
    unlike = _unlike(tuple(one.of_class for one in old.classes), names)
    pieces = [(one, part_of(new, one)) for one in ("", *names)]
    before = {
        one: replace(part_of(old, ""), attributes=()) if unlike else part_of(old, one) for one, _ in pieces
    }
    alike = not unlike and all(is_alike(before[one], piece) for one, piece in pieces)
    # a sample that gives the same counts of all classes gives those of the class where that is least likely
    unchanged = alike and min(coincidence(piece) for one, piece in pieces if one) <= COINCIDENCE
    changes, incomparable, checks = list[common.Change](), list[common.NotComparable](), list[common.Check]()
    section: common.Baseline | None = None
    for name, piece in pieces:
        mine = [a for a in allowances if a.check is None or bool(name) != of_all(a.check)]
        asked = [one for one in usual if (Comparison.parse(one).metric == ACCURACY) != bool(name)]
        asked = asked if name else [*USUAL_OF_ALL, *asked]
        section, judged = compare(before[name], piece, mine, asked, gate_on, same=unchanged)
        changes += [in_class(one, name) for one in section.changes]
        incomparable += [
            in_class(replace(one, reason=unlike or one.reason), name) for one in section.not_comparable
        ]
        checks += [
            in_class(replace(one, reason=f"not comparable: {unlike}" if unlike else one.reason), name)
            for one in judged
        ]
    assert section is not None
    section = replace(
        section,
        changes=tuple(changes),
        not_comparable=tuple(incomparable),
        allowed=tuple(one.text for one in allowances),
    )
    return section, tuple(checks)


def _unlike(old: Sequence[str], new: Sequence[str]) -> str:
    """Return in which way classes are not the same; empty where they are."""
    parts = [
        f"{', '.join(map(repr, sorted(names)))} only {where}"
        for names, where in (({*old} - {*new}, "in the baseline"), ({*new} - {*old}, "now"))
        if names
    ]
    return f"{UNLIKE}: {'; '.join(parts)}" if parts else ""
