"""Waivers: a check that is known not to hold, accepted in writing until a day.

A waiver names a check without its limit (``dp.difference[race]``, ``ks.change``), and says why and until when.
While it holds, a check that fails or is undecided is reported as *waived* and does not fail the run. A waiver with
a ``limit`` goes no further than that: the check is judged at the waiver's limit, and what is beyond it fails. After
its day a waiver covers nothing. Every waiver is in every report, with what it did; one that is used and ends within
:data:`SOON` days has the days that are left, and is a warning.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any, Literal

import msgspec

from fairfix.auditing.baseline import without_change
from fairfix.auditing.checks import AT_ANY_LIMIT, SEVERITIES, SLICES, Check, Ruling, named, of_slice, ruled
from fairfix.auditing.comparisons import Comparison
from fairfix.errors import ConfigError, UsageError
from fairfix.schema import common

KEYS = ("check", "reason", "expires", "limit")
State = Literal["used", "not needed", "expired", "exceeded", "matches nothing"]
STATES: tuple[State, ...] = ("exceeded", "used", "not needed")
"""Effects of a waiver on a check, the strongest first, while it holds; else it is expired, or matches nothing."""

SOON = 14
"""Days before its end in which a used waiver warns: time to correct the model or to renew it."""


@dataclass(frozen=True)
class Waiver:
    """One waiver."""

    text: str
    """The check it names, as written."""
    check: Check
    """The same, parsed; its operator and limit mean nothing unless ``exact``."""
    of_change: bool
    """Whether it is about a change since a baseline."""
    exact: bool
    """Whether it names operator and limit too, and covers that check alone."""
    reason: str
    expires: date
    """Why, and the last day on which it holds."""
    limit: float | None = None
    """Largest distance of the check beyond its own limit; None for any distance."""

    @classmethod
    def parse(cls, table: Any, where: str) -> Waiver:
        """Read one table of the configuration; ``ConfigError`` where a key is unknown, missing or cannot be read."""
        if not isinstance(table, Mapping):
            raise ConfigError(f"{where}: a waiver is a table, [[waivers]], with {', '.join(KEYS)}")
        unknown = [key for key in table if key not in KEYS]
        if unknown:
            raise ConfigError(
                f"{where}: a waiver has no key {unknown[0]!r}; it has {', '.join(KEYS[:-1])} and limit"
            )
        text, reason = table.get("check"), table.get("reason")
        if not isinstance(text, str) or not text.strip():
            raise ConfigError(f'{where}: a waiver names its check, as check = "dp.difference[race]"')
        if not isinstance(reason, str) or not reason.strip():
            raise ConfigError(f"{where}: the waiver of {text!r} needs a reason")
        limit = table.get("limit")
        if limit is not None and (
            isinstance(limit, bool) or not isinstance(limit, (int, float)) or not math.isfinite(limit)
        ):
            raise ConfigError(f"{where}: the limit of the waiver of {text!r} is not a number")
        of_value = without_change(text)
        of_change, condition = of_value is not None, text.strip() if of_value is None else of_value
        exact = re.search("[<>]", condition) is not None
        in_slice = of_slice(condition)
        condition = condition if in_slice is None else in_slice
        try:
            check = Check.parse(condition) if exact else Check(condition, named(condition), "<=", 0.0)
        except UsageError as error:
            raise ConfigError(f"{where}: the waiver of {text!r}: {error}") from error
        if in_slice is not None:
            check = replace(check, comparison=replace(check.comparison, attribute=SLICES))
        return cls(
            text.strip(),
            check,
            of_change,
            exact,
            " ".join(reason.split()),
            _day(table.get("expires"), text, where),
            None if limit is None else float(limit),
        )

    def covers(self, judged: common.SavedCheck) -> bool:
        """Return whether a judged check is the one that is meant."""
        of = Comparison.of(judged)
        if of.attribute == SLICES != self.check.comparison.attribute:
            return False
        alike = (judged.of == "change") == self.of_change and self.check.comparison.covers(of)
        same = (self.check.operator, self.check.limit) == (judged.operator, judged.limit)
        return alike and (same or not self.exact)


def _day(value: Any, text: str, where: str) -> date:
    if isinstance(value, str):
        try:
            value = date.fromisoformat(value.strip())
        except ValueError:
            value = None
    if not isinstance(value, date) or isinstance(value, datetime):
        raise ConfigError(
            f"{where}: the waiver of {text!r} needs its last valid day, as expires = 2026-12-31"
        )
    return value


def apply(
    checks: Sequence[common.SavedCheck], waivers: Sequence[Waiver], today: date
) -> tuple[tuple[common.SavedCheck, ...], tuple[common.SavedWaiver, ...]]:
    """Return the checks with what is waived, and every waiver with what it did.

    A check under several waivers has the mildest of their verdicts. ``ConfigError`` where the limit of a waiver is
    stricter than that of the check.
    """
    out, used = list(checks), list[common.SavedWaiver]()
    for waiver in waivers:
        states = dict[int, State]()
        for i, one in enumerate(checks):
            if waiver.covers(one):
                out[i], states[i] = _waived(out[i], one, waiver, today)
        state: State = next((one for one in STATES if one in states.values()), "matches nothing")
        covers = tuple(out[i].id for i, one in states.items() if one == "used")
        if states and waiver.expires < today:
            state = "expired"
        left = (waiver.expires - today).days
        used.append(
            common.SavedWaiver(
                check=waiver.text,
                reason=waiver.reason,
                expires=waiver.expires.isoformat(),
                limit=waiver.limit,
                state=state,
                covers=covers,
                days_left=left if state == "used" and left <= SOON else None,
            )
        )
    return tuple(out), tuple(used)


def _waived(
    check: common.SavedCheck, unwaived: common.SavedCheck, waiver: Waiver, today: date
) -> tuple[common.SavedCheck, State]:
    """Return a check that a waiver covers with its verdict, and a state; without waivers it is ``unwaived``."""
    own = Check(check.check, Comparison.of(check), check.operator, check.limit)
    if waiver.limit is not None and not own.violated_by(waiver.limit) and waiver.limit != own.limit:
        raise ConfigError(
            f"the waiver of {waiver.text!r} has the limit {waiver.limit:g}, which is stricter than the check "
            f"{check.check!r} itself"
        )
    if check.verdict not in ("fail", "undecided"):
        return check, "not needed"
    if waiver.expires < today:
        reason = f"{check.reason} (its waiver has expired on {waiver.expires})"
        return msgspec.structs.replace(check, reason=reason), "expired"
    if waiver.limit is not None:
        ruling = Ruling("undecided", unwaived.code, unwaived.reason)
        if unwaived.code not in AT_ANY_LIMIT:
            value = common.Number(**{**unwaived.numbers, "reason": ""})
            at = replace(own, limit=waiver.limit)
            ruling = at.judge(value, complete=unwaived.complete, gate_on=unwaived.gate_on)
        if ruling.verdict != "pass":
            if (ruling.verdict, check.verdict) != ("fail", "undecided"):
                reason = f"checked at the waiver's limit {waiver.limit:g}: {ruling.reason}"
                check = ruled(check, replace(ruling, reason=reason))
            return check, "exceeded"
    assert unwaived.verdict == "fail" or unwaived.verdict == "undecided"
    assert unwaived.severity == "error" or unwaived.severity == "warning"
    bound = "" if waiver.limit is None else f" up to {waiver.limit:g}"
    waived = common.Waived(
        verdict=unwaived.verdict,
        code=unwaived.code,
        severity=unwaived.severity,
        reason=waiver.reason,
        expires=waiver.expires.isoformat(),
        limit=waiver.limit,
    )
    return msgspec.structs.replace(
        check,
        waived=waived,
        reason=f"waived{bound} until {waiver.expires}: {waiver.reason} ({unwaived.reason})",
        verdict="waived",
        severity=SEVERITIES["waived"],
    ), "used"
