"""Checks in the formats of CI: which were checked, and one sentence for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from fairfix.auditing.comparisons import Comparison
from fairfix.errors import UsageError
from fairfix.report import NO_CHECKS
from fairfix.report.layout import MARKS, interval, kind_of, waiver_state
from fairfix.schema.audit import Audit
from fairfix.schema.common import Baseline, CheckedResult, SavedCheck, SavedResult

NOTHING_GATED = "no checks were set, so there is no pass or fail"
OPERATORS = {"<=": "above", "<": "at or above", ">=": "below", ">": "at or below"}
"""Operator of a check -> the side of the limit where it fails."""
WORDS = {"fail": "failed", "undecided": "undecided", "waived": "waived", "pass": "passed"}


def gated(result: SavedResult, name: str) -> CheckedResult:
    """Return a result of an audit or a repair; a comparison has no checks, which is a usage error."""
    if not isinstance(result, CheckedResult):
        raise UsageError(NO_CHECKS.format(name=name))
    return result


def command_of(result: CheckedResult) -> str:
    """Return the command that makes such a result."""
    return kind_of(result).replace("slices", "audit")


def in_numbers(checks: Iterable[SavedCheck]) -> str:
    """Return how many checks have each verdict; empty without any."""
    many = Counter[str](check.verdict for check in checks)
    return ", ".join(f"{many[verdict]} {word}" for verdict, word in WORDS.items() if many[verdict])


def summary(result: CheckedResult) -> str:
    """Return how many checks have each verdict, and the name of the data."""
    return f"checks of {result.data.source}: {in_numbers(result.checks) or NOTHING_GATED}"


def waivers(result: CheckedResult) -> list[tuple[str, bool, str]]:
    """Return every waiver as (its check, whether it needs somebody's attention, a sentence)."""
    own = result.waivers
    return [
        (
            one.check,
            one.state not in ("used", "not needed") or one.days_left is not None,
            f"the waiver of {one.check}, until {one.expires}, {waiver_state(one)}: {one.reason}",
        )
        for one in (() if own is None else own.waivers)
    ]


def baseline(result: SavedResult) -> Baseline | None:
    """Return the changes since a baseline, where the result is an audit that has one."""
    return result.baseline if isinstance(result, Audit) else None


def cautions(result: SavedResult) -> list[tuple[str, str]]:
    """Return every warning of a result as (code, text)."""
    return [(one.code, one.text) for one in result.messages if one.severity == "warning"]


def title(check: SavedCheck) -> str:
    """Return the check with its attribute."""
    text = check.check
    text = text if f"[{check.attribute}" in text else f"{text} [{check.attribute}]"
    return f"{text}, class {check.of_class}" if check.of_class else text


def sentence(check: SavedCheck) -> str:
    """Return the value of a check and the reason for its verdict."""
    groups = check.groups
    among = f", {'between ' if len(groups) > 1 else ''}{' and '.join(groups)}" if groups else ""
    return f"{MARKS[check.verdict]}: {check.id} is {interval(check)}{among}; {check.reason}"


def limit(check: SavedCheck) -> str:
    """Return the limit of a check in words."""
    return f"fails when {check.id} is {OPERATORS[check.operator]} {check.limit:g}"


def rule(check: SavedCheck) -> str:
    """Return the name of the number that is limited, without the attribute."""
    return check.comparison + (".change" if check.of == "change" else "")


def measured(check: SavedCheck, result: SavedResult) -> str:
    """Return the definition of the number that is limited."""
    change = "the new value minus that of the baseline; " if check.of == "change" else ""
    return change + meaning(check.comparison, result)


def meaning(identifier: str, result: SavedResult) -> str:
    """Return the definition of a comparison or a metric: the result's own, else the one of this version."""
    own = result.definitions.get(identifier) if isinstance(result, Audit) else None
    try:
        return own or Comparison.parse(identifier).definition
    except KeyError:
        return identifier
