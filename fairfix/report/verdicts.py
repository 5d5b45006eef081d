"""What the formats of CI say of each check: which were judged, and one sentence for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fairfix.auditing.comparisons import Comparison
from fairfix.errors import UsageError
from fairfix.report import NO_CHECKS
from fairfix.report.layout import MARKS, Json, interval, kind_of, waiver_state

NOTHING_GATED = "no checks were set, so there is no pass or fail"
OPERATORS = {"<=": "above", "<": "at or above", ">=": "below", ">": "at or below"}
"""Operator of a check -> the side of the limit where it fails."""
WORDS = {"fail": "failed", "undecided": "undecided", "waived": "waived", "pass": "passed"}


@dataclass(frozen=True)
class Judged:
    """The checks of a result and what it is the result of."""

    command: str
    source: str
    columns: tuple[str, ...]
    checks: Sequence[Json]

    def count(self, verdict: str) -> int:
        """Return how many checks have this verdict."""
        return sum(check["verdict"] == verdict for check in self.checks)

    @property
    def summary(self) -> str:
        """How many checks there are of each verdict, in words."""
        counts = [f"{self.count(v)} {word}" for v, word in WORDS.items() if self.count(v)]
        return f"checks of {self.source}: {', '.join(counts) or NOTHING_GATED}"


def judged(result: Json, name: str) -> Judged:
    """Return the checks of an audit or a repair; a comparison has none, which is a usage error."""
    command = kind_of(result)
    if command in ("compare", "models"):
        raise UsageError(NO_CHECKS.format(name=name))
    command = "audit" if command in ("classes", "slices") else command
    columns = result["data"]["columns"].get("protected", ())  # none where groups are known by probabilities
    return Judged(command, str(result["data"]["source"]), tuple(columns), result["checks"])


def waivers(result: Json) -> list[tuple[str, bool, str]]:
    """Return every waiver as (its check, whether it needs somebody's attention, a sentence)."""
    text = "the waiver of {check}, until {expires}, {does}: {reason}"
    return [
        (
            str(one["check"]),
            one["state"] not in ("used", "not needed") or "days_left" in one,
            text.format(**one, does=waiver_state(one)),
        )
        for one in result.get("waivers", {}).get("waivers", ())
    ]


def cautions(result: Json) -> list[tuple[str, str]]:
    """Return every warning of a result as (code, text)."""
    return [
        (str(one.get("code", "warning")), str(one["text"]))
        for one in result.get("messages", ())
        if one["severity"] == "warning"
    ]


def title(check: Json) -> str:
    """Return the check with its attribute."""
    text = str(check["check"])
    text = text if f"[{check['attribute']}" in text else f"{text} [{check['attribute']}]"
    return f"{text}, class {check['class']}" if "class" in check else text


def sentence(check: Json) -> str:
    """Return the value of a check and the reason for its verdict."""
    groups = check["groups"]
    among = f", {'between ' if len(groups) > 1 else ''}{' and '.join(groups)}" if groups else ""
    return f"{MARKS[check['verdict']]}: {check['id']} is {interval(check)}{among}; {check['reason']}"


def limit(check: Json) -> str:
    """Return the limit of a check in words."""
    return f"fails when {check['id']} is {OPERATORS[check['operator']]} {check['limit']:g}"


def rule(check: Json) -> str:
    """Return the name of the number that is limited, without the attribute."""
    return str(check["comparison"]) + (".change" if check["of"] == "change" else "")


def measured(check: Json, result: Json) -> str:
    """Return the definition of the number that is limited."""
    change = "the new value minus that of the baseline; " if check["of"] == "change" else ""
    return change + meaning(str(check["comparison"]), result)


def meaning(identifier: str, result: Json) -> str:
    """Return the definition of a comparison or a metric: the result's own, else the one of this version."""
    try:
        return str(result.get("definitions", {}).get(identifier) or Comparison.parse(identifier).definition)
    except KeyError:
        return identifier
