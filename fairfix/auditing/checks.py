"""Checks: a metric, a limit, and one of three verdicts.

A check states what must hold::

    dp.difference<=0.1                  largest difference in selection rate between two groups
    dp.ratio>=0.8                       smallest ratio of selection rates
    dp.covariance<=0.01                 covariance of the selection with membership of a group
    eo.difference.to_overall<=0.05      scope: between_groups (default), to_overall, to_reference, within_strata
    ks[race]<=0.05                      only for the protected column race
    dp.difference.true_groups<=0.1      of the groups behind noisy ones (``noise``); under_n1: by the table alone
    decision_covariance<=0.05           with a protected number, per standard deviation (``covariance``)
    decision_flips<=0.01                fraction of rows whose decision changes with the group (``individual``)
    tpr.difference.rms_of_classes<=0.1  over the classes of a label (``task=multiclass``); mean_of_classes too
    accuracy.min>=0.7                   the worst group: min or max
    true_positive_rate[race=Black]>=0.6 one group
    true_positive_rate.true_groups[race=Black]>=0.6  one true group (``noise``)
    slices.accuracy.min>=0.6            the worst slice (``slices``, :mod:`fairfix.tasks.slices`)
    dp.difference.change<=0.02          change since the baseline (:mod:`fairfix.auditing.baseline`)

Where the catalogue says which way a number gets worse, a check in the other direction is refused.

With a confidence interval ``[low, high]`` of the value, a check *passes* when the whole interval meets the condition,
*fails* when none of it does, and is *undecided* otherwise. ``gate_on="point"`` compares the value alone. An undefined
value never passes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from fairfix.auditing.comparisons import CLASS_SCOPES, KINDS, NOISE_SCOPES, TRUE_GROUPS, Comparison
from fairfix.auditing.grammar import (
    MIRRORED,
    Condition,
    read_one,
    read_or_meant,
    respelled,
    turned,
    with_quotes,
)
from fairfix.auditing.metrics import ALIASES, CLASS_METRICS, METRICS, NOISE_METRICS, SCOPES
from fairfix.data.choices import Code, GateOn, Operator, Severity, Undecided
from fairfix.data.names import did_you_mean
from fairfix.errors import ExitStatus, UsageError

if TYPE_CHECKING:
    from fairfix.schema import common

Verdict = Literal["pass", "fail", "undecided"]

SEVERITIES: Mapping[str, Severity] = {
    "fail": "error",
    "undecided": "warning",
    "waived": "note",
    "pass": "none",
}
"""Level of a verdict where a format has levels; the worst verdict first."""

OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}

AT_ANY_LIMIT = frozenset(
    ("not_computed", "not_shown", "not_comparable", "few_common_rows", "fit_only", "not_proven")
)
"""Codes of checks that are undecided whatever the limit is, also where there is a value."""


SLICES = "slices"
"""First part of a check of slices, and the name that it has in place of a protected column."""


@dataclass(frozen=True)
class Check:
    """A condition that must hold."""

    text: str
    """As the user wrote it."""
    comparison: Comparison
    """Quantity that is limited: a comparison of the report, or a metric of one group."""
    operator: Operator
    limit: float
    """The check holds where ``value operator limit``."""
    each: bool = False
    """Whether it is about each protected column by itself, and not about their intersections."""

    @classmethod
    def parse(cls, text: str, protected: Sequence[str] = ()) -> Check:
        """Read a check.

        Where the ``protected`` columns are known, an error proposes no check of another name, which may be a group.

        Raises
        ------
        UsageError
            The text is no check, names something that does not exist, or demands what is worse.
        """
        one = read_one(text)
        if one is None or not one.operator:
            right = turned(text) or with_quotes(text) or respelled(text)
            if right and (meant := read_one(right)) and meant.operator:
                right = read_or_meant(right, lambda text: cls.parse(text, protected))
            like = f"write '{right}'" if right else "write it like 'dp.difference<=0.1' or 'ks[race]<=0.05'"
            error = UsageError(f"cannot read the check {text!r}; {like}")
            raise error.proposing(*([(text, right)] if right else []))
        try:
            of = compared(one)
            check = cls(text.strip(), of, one.operator, one.limit_on(of), one.each)
            _require_direction(check, one)
        except UsageError as error:
            of_column = not protected or one.attribute in (None, *protected)
            instead = (error.instead or _instead(one)) if of_column else ()
            raise UsageError(f"check {text!r}: {error}").proposing(*instead) from None
        return check

    @property
    def true_groups(self) -> str:
        """The same condition on true groups, as the user would write it."""
        of = self.comparison
        where = f"[{of.attribute}]" if of.attribute else ""
        return f"{of.to(TRUE_GROUPS).id}{where}{self.operator}{self.limit:g}"

    def violated_by(self, value: float) -> bool:
        """Return whether a value breaks the condition."""
        return not OPERATORS[self.operator](value, self.limit)

    def judge(self, value: common.Number, *, complete: bool, gate_on: GateOn) -> Ruling:
        """Judge a value and its interval.

        ``complete`` is False when some group's value is undefined: then the check can fail but not pass. Within the
        numerical error of a value it is open on which side of a limit it lies.
        """

        def ruling(verdict: Verdict, code: Code, reason: str) -> Ruling:
            return Ruling(verdict, code, f"{reason} ({value.reason})" if value.reason else reason)

        if value.value is None:
            return ruling("undecided", "value_undefined", "the value is undefined")
        at_point = gate_on == "point"
        off = value.bound or 0.0
        reach = value.value - off, value.value + off
        beyond = [self.violated_by(end) for end in (reach if at_point else (value.lower, value.upper))]
        subject = "the value is" if at_point else "the whole interval lies"
        if all(beyond):
            return ruling("fail", "beyond_limit", f"{subject} beyond the limit")
        if not complete:
            return ruling("undecided", "group_undefined", "a group's value is undefined")
        if not any(beyond):
            return ruling("pass", "within_limit", f"{subject} within the limit")
        if at_point:
            return ruling("undecided", "within_error", "the limit is within the numerical error of the value")
        why = "" if self.comparison.of_true_groups else ": too few rows to decide"
        return ruling("undecided", "limit_inside", f"the limit lies inside the interval{why}")


@dataclass(frozen=True)
class Ruling:
    """A verdict, its reason as a code, and the reason in words."""

    verdict: Verdict
    code: Code
    reason: str


def ruled(judged: common.SavedCheck, ruling: Ruling) -> common.SavedCheck:
    """Return a judged check with another verdict."""
    import msgspec

    return msgspec.structs.replace(
        judged,
        verdict=ruling.verdict,
        severity=SEVERITIES[ruling.verdict],
        code=ruling.code,
        reason=ruling.reason,
    )


def named(text: str) -> Comparison:
    """Return what a check without its limit looks at: ``dp.difference[race]``; ``UsageError`` where it is nothing."""
    one = read_one(text)
    if one is None or one.operator:
        raise UsageError(f"cannot read {text!r}; write it like 'dp.difference' or 'ks[race]'")
    return compared(one)


def compared(one: Condition) -> Comparison:
    """Return what a condition is about; UsageError where it is nothing."""
    metric, parts = _metric(one.metric), list(one.parts)
    comparison = _of_one_group(metric, parts) if one.group else _comparison(metric, parts)
    return replace(comparison, attribute=one.attribute, group=one.group)


def _instead(one: Condition) -> list[tuple[str, str]]:
    """Return the checks that may be meant by a metric without a kind, or by a name such as ``dp_difference``."""
    metric, ending = one.metric, ""
    if metric not in ALIASES and metric not in METRICS:
        metric, _, ending = metric.rpartition("_")
    name = ALIASES.get(metric, metric)
    if one.parts or name not in METRICS or (ending and ending not in KINDS):
        return []
    better, least = METRICS[name].better, one.operator.startswith(">")
    of_one = (["min"] if better == "larger" else []) if least else (["max"] if better == "smaller" else [])
    kinds = [ending] if ending else [*of_one, "ratio"] if least else ["difference", *of_one]
    meant = [f"{metric}.{kind}{one.text()[len(one.metric) :]}" for kind in kinds]
    return [(one.written, text) for text in meant if _is_check(text)]


def _is_check(text: str) -> bool:
    try:
        return Check.parse(text).comparison.exists
    except UsageError:
        return False


def _require_direction(check: Check, one: Condition) -> None:
    """Raise where a condition demands what is worse, and give the right one; not for what cannot exist."""
    of, worse = check.comparison, check.comparison.worse
    if not (of.group or of.exists) or not worse or (worse == "larger") == check.operator.startswith("<"):
        return
    right = one.text(operator=MIRRORED[one.operator])
    error = UsageError(
        f"a check is the condition that must hold, and a {worse} {of.id} is worse; write `check={right}`"
    )
    raise error.proposing((one.written, right))


def _metric(name: str) -> str:
    metric = ALIASES.get(name, name)
    if metric == SLICES:
        raise UsageError(
            "a check of slices needs a search for them; add `slices=all`, or its columns, to an audit"
        )
    if metric not in METRICS:
        hint = did_you_mean(metric, (*METRICS, *ALIASES)) or "."
        raise UsageError(f"unknown metric {metric!r}{hint} The metrics are {', '.join(METRICS)}")
    return metric


def _comparison(metric: str, rest: list[str]) -> Comparison:
    """Return what a check compares, whose parts after the metric are ``rest``."""
    entry, scopes = METRICS[metric], (*SCOPES, *NOISE_SCOPES, *CLASS_SCOPES)
    if entry.scopes and not set(entry.scopes) & set(SCOPES):  # of flips, or of a number
        scope = rest.pop(0) if rest else entry.scopes[0]
        if rest or scope not in entry.scopes:
            raise UsageError(f"write {metric} or {metric}.SCOPE with {', '.join(entry.scopes)}")
        return Comparison(metric, "", scope)
    if entry.kinds == ("difference",) and not rest:
        return Comparison(metric, "difference", *entry.scopes)
    kind = rest.pop(0) if rest and rest[0] in KINDS else ""
    usual = "to_overall" if kind == "covariance" else "between_groups"
    scope = rest.pop(0) if rest and rest[0] in scopes else usual
    if rest:
        raise UsageError(
            f"unknown part {rest[0]!r}; after the metric comes a kind ({', '.join(KINDS)}) "
            f"and then a scope ({', '.join(scopes)})"
        )
    if scope in NOISE_SCOPES:
        if metric not in NOISE_METRICS or kind not in ("difference", "ratio", "min", "max"):
            raise UsageError(
                f"for true groups, use difference, ratio, min or max of {', '.join(NOISE_METRICS)}"
            )
    elif scope in CLASS_SCOPES:
        if not Comparison(metric, kind, scope).exists:
            raise UsageError(f"over the classes, use differences of {', '.join(CLASS_METRICS)}")
    elif kind in ("min", "max"):
        scope = ""
    if not entry.kinds and kind in ("", "difference"):
        return Comparison(metric, "", scope)
    if not entry.kinds:
        raise UsageError(
            f"{metric} is a difference already; write '{metric}<=0.05' or '{metric}.to_overall<=0.05'"
        )
    if not kind:
        group = f", or one group, such as '{metric}[race=Black]>=0.5'" if entry.of_groups else ""
        raise UsageError(
            f"name the comparison of {metric} to limit, for example '{metric}.difference<=0.1'{group}"
        )
    return Comparison(metric, kind, scope)


def _of_one_group(metric: str, rest: list[str]) -> Comparison:
    """Return the value of one group."""
    if len(rest) == 1 and rest[0] in NOISE_SCOPES:
        rates = [name for name in NOISE_METRICS if METRICS[name].of_groups]
        if metric not in rates:
            raise UsageError(f"for one true group, use {', '.join(rates)}")
        return Comparison(metric, "", rest[0])
    if rest:
        raise UsageError(f"one group has a value, not a {rest[0]}; drop '.{'.'.join(rest)}'")
    if not METRICS[metric].of_groups:
        raise UsageError(
            f"{metric} compares groups, so it has no value for one group; drop the group, or limit a rate"
        )
    return Comparison(metric)


def exit_status(verdicts: Iterable[str], undecided: Undecided = "exit3") -> ExitStatus:
    """Return the exit status of a run with these verdicts: fail beats undecided beats pass."""
    seen = set(verdicts)
    if "fail" in seen or ("undecided" in seen and undecided == "fail"):
        return ExitStatus.FAILED
    return ExitStatus.UNDECIDED if "undecided" in seen and undecided == "exit3" else ExitStatus.OK


def worst(verdicts: Iterable[common.Verdict]) -> common.Verdict | None:
    """Return the worst verdict; None when nothing was gated."""
    return min(verdicts, key=list(SEVERITIES).index, default=None)


def of_slice(text: str) -> str | None:
    """Return a check of slices as a check of one slice, whose largest gap is its gap; None where it is of others."""
    head, dot, right = text.strip().partition(".")
    return right.replace(".difference.max", ".difference") if dot and head == SLICES else None
