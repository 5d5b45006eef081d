"""Changes of an audit of many classes since a saved one: class by class, and of all together.

Each class is compared as two audits of two classes are (:mod:`fairfix.auditing.baseline`), by limits that hold for all
classes at once in both; so do the limits of their changes.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from fairfix.auditing.baseline import COINCIDENCE, Allowance, coincidence, compare, is_alike, unlike
from fairfix.auditing.comparisons import CLASS_GAPS, Comparison
from fairfix.auditing.multiclass import ACCURACY, of_all
from fairfix.auditing.results import in_class
from fairfix.data.choices import GateOn
from fairfix.schema import common
from fairfix.schema.audit import Audit


def compare_classes(
    old: Audit,
    new: Audit,
    allowances: Sequence[Allowance],
    usual: Sequence[str],
    gate_on: GateOn,
) -> tuple[common.Baseline, tuple[common.Check, ...]]:
    """Return the changes since a baseline, and the judged checks of changes, each with its class.

    Arguments are those of :func:`fairfix.auditing.baseline.compare`. Where the classes are not the same, nothing can be
    compared: limits hold for all classes of an audit at once, and gaps are means over them.
    """
    then, names = ([one.of_class for one in result.classes] for result in (old, new))
    apart = unlike("classes", {*then}, {*names})
    pieces = [(one, new.part(one)) for one in ("", *names)]
    before = {one: replace(old.part(""), attributes=()) if apart else old.part(one) for one, _ in pieces}
    alike = not apart and all(is_alike(before[one], piece) for one, piece in pieces)
    # a sample that gives the same counts of all classes gives those of the class where that is least likely
    unchanged = alike and min(coincidence(piece) for one, piece in pieces if one) <= COINCIDENCE
    changes, incomparable, checks = list[common.Change](), list[common.NotComparable](), list[common.Check]()
    section: common.Baseline | None = None
    for name, piece in pieces:
        mine = [a for a in allowances if a.check is None or bool(name) != of_all(a.check)]
        asked = [one for one in usual if (Comparison.parse(one).metric == ACCURACY) != bool(name)]
        asked = asked if name else [*CLASS_GAPS, *asked]
        section, judged = compare(before[name], piece, mine, asked, gate_on, same=unchanged)
        changes += [in_class(one, name) for one in section.changes]
        incomparable += [
            in_class(replace(one, reason=apart or one.reason), name) for one in section.not_comparable
        ]
        checks += [
            in_class(replace(one, reason=f"not comparable: {apart}" if apart else one.reason), name)
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
