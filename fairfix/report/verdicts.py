"""What the formats of CI say of each check: which were judged, and one sentence for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairfix.auditing.comparisons import Comparison
from fairfix.errors import UsageError
from fairfix.report import NO_CHECKS
from fairfix.report.layout import MARKS, STATES, interval

NOTHING_GATED = "no limits were given, so nothing was gated"
OPERATORS = {">": "above", ">=": "at or above", "<": "below", "<=": "at or below"}


@dataclass(frozen=True)
class Judged:
    """The checks of a result and what it is the result of."""

    command: str
    source: str
    columns: tuple[str, ...]
    checks: Sequence[Mapping[str, Any]]

    def count(self, verdict: str) -> int:
        """Return how many checks have this verdict."""
        return sum(check["verdict"] == verdict for check in self.checks)

    @property
    def summary(self) -> str:
        """How many checks there are of each verdict, in words."""
        told = [f"{self.count(v)} {word}" for v, word in WORDS.items() if self.count(v)]
        return f"checks of {self.source}: {', '.join(told) if told else NOTHING_GATED}"


WORDS = {"fail": "failed", "undecided": "undecided", "waived": "waived", "pass": "passed"}


def judged(result: Mapping[str, Any], name: str) -> Judged:
    """Return the checks of an audit or a repair.

    Raises
    ------
    UsageError
        The result is one of a comparison, which has none.
    """
    command = str(result["schema"]).rpartition("/")[0].removeprefix("fairfix.")
    if command == "compare":
        raise UsageError(NO_CHECKS.format(name=name))
    columns = result["data"]["columns"].get("protected", ())  # none where groups are known by chances alone
    return Judged(command, str(result["data"]["source"]), tuple(columns), result["checks"])


def waivers(result: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return every waiver as (its check, what it does, a sentence)."""
    return [
        (
            str(one["check"]),
            str(one["state"]),
            f"the waiver of {one['check']}, until {one['expires']}, {STATES[one['state']]}: {one['reason']}",
        )
        for one in result.get("waivers", {}).get("waivers", ())
    ]


def title(check: Mapping[str, Any]) -> str:
    """Return the check with its attribute."""
    text = str(check["check"])
    return text if f"[{check['attribute']}" in text else f"{text} [{check['attribute']}]"


def sentence(check: Mapping[str, Any]) -> str:
    """Return what was found and why that is the verdict."""
    groups = f", between {' and '.join(check['groups'])}" if len(check["groups"]) > 1 else ""
    if len(check["groups"]) == 1:
        groups = f", {check['groups'][0]}"
    return f"{MARKS[check['verdict']]}: {check['id']} is {interval(check)}{groups}; {check['reason']}"


def limit(check: Mapping[str, Any]) -> str:
    """Return the limit of a check in words."""
    return f"fails when {check['id']} is {OPERATORS[check['operator']]} {check['limit']:g}"


def rule(check: Mapping[str, Any]) -> str:
    """Return what is measured, without the attribute."""
    change = "change." if check["of"] == "change" else ""
    return change + str(check["comparison"])


def measured(check: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """Return the definition of what a check is about."""
    change = "the new value minus that of the baseline; " if check["of"] == "change" else ""
    return change + meaning(str(check["comparison"]), result)


def meaning(identifier: str, result: Mapping[str, Any]) -> str:
    """Return the definition of a comparison or a metric: the result's own, else the one of this version."""
    told = result.get("definitions", {}).get(identifier)
    if told:
        return str(told)
    try:
        return Comparison.parse(identifier).definition
    except KeyError:
        return identifier
