"""Trends: the numbers of several saved audits of the same thing, in the order of time.

Every audit is compared with the last one, by the rules for baselines. A number that cannot be compared is undefined in
the trend, with the reason.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from fairfix import __version__
from fairfix.auditing.baseline import compare, other_settings
from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.custom_metrics import added
from fairfix.data.names import shell_line
from fairfix.errors import DataError
from fairfix.report.frames import NAMES
from fairfix.report.layout import HEADLINES, kind_of
from fairfix.schema.audit import Audit
from fairfix.schema.common import (
    Baseline,
    Change,
    Data,
    NextStep,
    NotComparable,
    SavedCheck,
    SavedSettings,
    no_number,
)
from fairfix.schema.trend import Line, Moment, MomentValue, Trend
from fairfix.tasks.result import load_result

ROLES = ("label", "score", "prediction", "probability", "weight", "strata")
"""Roles of columns that are the same in all audits of a trend."""

DAY = re.compile(r"\d{4}(-\d{2}(-\d{2})?)?")
"""A date by which audits are ordered."""


def trend_of(paths: Sequence[str | os.PathLike[str]]) -> Trend:
    """Return the trend of saved audits.

    Raises
    ------
    DataError
        A file holds no valid audit, or two files hold the same one; the message names the files.
    """
    return trend_of_audits([(os.fspath(path), _audit(path)) for path in paths])


def trend_of_audits(saved: Sequence[tuple[str, Audit]]) -> Trend:
    """Return the trend of audits with the names of their files."""
    for i, (path, one) in enumerate(saved):
        if twin := next((other for other, earlier in saved[:i] if earlier == one), ""):
            raise DataError(f"{twin} and {path} hold the same audit; name each audit once")
    days = [_date(one) for _, one in saved]
    dated = all(DAY.fullmatch(day) for day in days) and len(set(map(len, days))) == 1
    if dated:
        saved = sorted(saved, key=lambda one: _date(one[1]))
    newest = saved[-1][1]
    with added(newest.own_metrics):
        moments, lines = _joined(saved)
    turned = min((one.changed for one in lines if one.changed), default=0)
    words = "Read the audit in which a verdict changed first" if turned else "Read the last audit"
    file = saved[turned - 1][0]
    return Trend(
        fairfix=__version__,
        data=Data(**{name: getattr(newest.data, name) for name in Data.__struct_fields__}),
        settings=SavedSettings(
            **{name: getattr(newest.settings, name) for name in SavedSettings.__struct_fields__}
        ),
        order="date" if dated else "given",
        moments=moments,
        lines=lines,
        own_metrics=newest.own_metrics,
        next_step=NextStep(text=words, command=shell_line(["fairfix", "report", file])),
    )


def _audit(path: str | os.PathLike[str]) -> Audit:
    result = load_result(path)
    if not isinstance(result, Audit):
        raise DataError(
            f"{path}: this is {NAMES[kind_of(result)]}; a trend takes results of 'fairfix audit' only"
        )
    return result


def _date(audit: Audit) -> str:
    return "" if audit.record is None else audit.record.date


def _joined(saved: Sequence[tuple[str, Audit]]) -> tuple[tuple[Moment, ...], tuple[Line, ...]]:
    """Return the audits of a trend, and the numbers of the last one over time."""
    last = saved[-1][1]
    checks = {_key(check): check for check in last.checks if _is_joined(check, last)}
    last = replace(last, checks=tuple(checks.values()))
    since = [compare(one, last, (), tuple(HEADLINES), "interval", same=False)[0] for _, one in saved]
    moments, lines = list[Moment](), list[Line]()
    whole = [_other_data(one, last) for _, one in saved]
    for change in since[-1].changes:
        of = Comparison.of(change)
        own: list[SavedCheck | None] = [check for check in checks.values() if Comparison.of(check) == of]
        lines += [_line(change, check, saved, since, whole) for check in own or [None]]
    for (path, one), base, reason in zip(saved, since, whole, strict=True):
        missing = [NotComparable(id="all numbers", reason=reason)] if reason else [*base.not_comparable]
        missing += () if reason else _unjoined(one, last)
        moments.append(
            Moment(
                file=path,
                source=one.data.source,
                rows=one.data.rows.used,
                date=_date(one),
                where=one.settings.where,
                verdict=one.verdict,
                not_comparable=tuple(missing),
            )
        )
    return tuple(moments), tuple(lines)


def _key(check: SavedCheck) -> tuple[Any, ...]:
    """Return the question that a check asks."""
    return check.comparison, check.attribute, check.group, check.operator, check.limit, check.gate_on


def _is_joined(check: SavedCheck, audit: Audit) -> bool:
    """Return whether a trend has a check: one of a value of recorded groups, of all rows and classes."""
    of_all = check.of == "value" and not check.of_class and not check.since
    recorded = not Comparison.of(check).of_true_groups
    return of_all and recorded and any(block.attribute == check.attribute for block in audit.attributes)


def _other_data(old: Audit, new: Audit) -> str:
    """Return why no number of two audits can be compared; empty where some can."""
    if text := other_settings(old, new):
        return f"it was made with {text}"
    for role in ROLES:
        then, now = getattr(old.data.columns, role), getattr(new.data.columns, role)
        if then != now:
            both = (", ".join((one,) if isinstance(one, str) else one) or "none" for one in (then, now))
            return f"the columns for the role {role} differ: {' there, '.join(both)} in the last audit"
    if old.settings.suppress_below != new.settings.suppress_below:
        return "the two leave out groups of different sizes"
    for column, names in old.settings.merge.items():
        others = new.settings.merge.get(column, {})
        if name := next((name for name, into in names.items() if others.get(name, into) != into), ""):
            into = f"{names[name]!r} there and {others[name]!r} in the last audit"
            return f"{name!r} in column {column!r} is merged into {into}"
    return ""


def _unjoined(one: Audit, last: Audit) -> Iterator[NotComparable]:
    """Yield attributes and checks of an audit that the last one does not have, and checks that a trend leaves out."""
    audited, asked = {block.attribute for block in last.attributes}, set(map(_key, last.checks))
    gone = [block.attribute for block in one.attributes if block.attribute not in audited]
    for name in gone:
        yield NotComparable(id=name, attribute=name, reason="the last audit does not have this attribute")
    for check in one.checks:
        reason = "the last audit does not have this check" if _key(check) not in asked else ""
        if not _is_joined(check, one):
            reason = "a trend has only checks of recorded groups, of all rows and of all classes together"
        if reason and check.attribute not in gone:
            yield NotComparable(
                id=check.check, attribute=check.attribute, of_class=check.of_class, reason=reason
            )


def _line(
    now: Change,
    check: SavedCheck | None,
    saved: Sequence[tuple[str, Audit]],
    since: Sequence[Baseline],
    whole: Sequence[str],
) -> Line:
    """Return a number of the last audit over time, with the verdicts of one of its checks."""
    of, changes, line = Comparison.of(now), list[Change](), list[MomentValue]()
    for (_, audit), base, reason in zip(saved, since, whole, strict=True):
        change = next((one for one in base.changes if one.id == now.id), None)
        missing = next(
            (one.reason for one in base.not_comparable if one.id == now.id), "it is not in both audits"
        )
        if reason or change is None:
            line.append(MomentValue(**no_number(f"not comparable: {reason or missing}").numbers))
            continue
        changes.append(change)
        asked = (one for one in audit.checks if check is not None and _key(one) == _key(check))
        judged = next((one for one in asked if _is_joined(one, audit)), None)
        block = audit.block(of.attribute or "")
        groups = (of.group,) if of.group else block.by_id[of.id].groups
        verdict = None if judged is None else judged.verdict
        line.append(MomentValue(**change.old.numbers, groups=groups, verdict=verdict))
    verdicts = [(i, one.verdict) for i, one in enumerate(line, 1) if one.verdict is not None]
    turns = (
        i for (i, verdict), (_, before) in zip(verdicts[1:], verdicts, strict=False) if verdict != before
    )
    first = next((change for change in changes if change.value is not None), None)
    return Line(
        id=now.id,
        comparison=now.comparison,
        attribute=now.attribute or "",
        group=now.group,
        check="" if check is None else check.check,
        limit=None if check is None else check.limit,
        series=tuple(line),
        changed=next(turns, None),
        change=first if first is not None and first is not changes[-1] else None,
    )
