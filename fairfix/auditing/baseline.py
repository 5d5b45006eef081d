"""Baselines: how much worse a model has become than a saved result says it was.

A saved audit and a new one are compared number by number. The change is the new value minus the old one. The two
audits are taken as independent samples, so their limits ``v [l, u]`` and ``v' [l', u']`` combine as MOVER does it
(Newcombe's *square and add*)::

    low  = v' - v - sqrt((v' - l')² + (u - v)²)          high = v' - v + sqrt((u' - v')² + (v - l)²)

Each end of a largest gap already counts how many groups were compared, so no further correction is made. A gap is never
negative: as long as its new interval reaches down to 0, ``low`` is at most ``-v``, so a change between two fair models
is called worse only where the new gap itself is called positive. Where the two audits share rows, their errors go up
and down together; the interval is then too wide, never too narrow, as long as the two models err alike. Where both
files of rows are at hand, :mod:`fairfix.auditing.paired_differences` gives the limits of a change on the same rows.

An audit whose every number is the baseline's has not changed: its changes are 0 without an interval. Two samples could
give the same numbers by chance, so this holds only where that has a probability of at most :data:`COINCIDENCE`: the
counts of each group are binomial, and equal with at most the probability of their most probable outcome.

Which way is worse depends on the comparison: a gap is worse when it is larger, a ratio when it is smaller. What cannot
be compared is listed, and never passes.

References
----------
Newcombe (1998), Statistics in Medicine 17. Zou and Donner (2008), Statistics in Medicine 27.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from fairfix.auditing.checks import Check, Ruling
from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.grammar import read_one
from fairfix.auditing.results import cut_words, judged
from fairfix.data.choices import GateOn, Operator
from fairfix.data.codec import LONGEST_FAULT, shortened
from fairfix.errors import DataError, UsageError
from fairfix.schema import common, schema_id
from fairfix.schema.audit import Audit
from fairfix.schema.common import NOTHING, Estimate, Number, numbers

PairedEnds = tuple[float, float, bool] | str
"""Limits of a change, and whether those of independent samples hold as well; or why rows cannot be paired."""

Limits = Callable[[Comparison, Sequence[str]], PairedEnds]
"""From a comparison and the columns of its attribute to the ends of its change on the same rows."""


@dataclass(frozen=True)
class Allowance:
    """Allowed changes for the worse."""

    text: str
    """As the user wrote it."""
    amount: float
    """The largest change for the worse that is allowed."""
    check: Check | None = None
    """The comparison and its worse direction; None for every comparison of the short report and of the checks."""

    @classmethod
    def parse(cls, text: str) -> Allowance:
        """Read ``change<=0.02`` or ``dp.difference.change<=0.02``.

        Raises
        ------
        UsageError
            The text is no check of a change, or demands that a number gets better.
        """
        of_value = without_change(text)
        if of_value is None:
            raise UsageError(f"cannot read the check {text!r}; write it like 'dp.difference.change<=0.02'")
        if of_value[:1].isalpha():
            check = Check.parse(of_value)
            amount = check.limit if check.operator.startswith("<") else -check.limit
            out = cls(text.strip(), amount, replace(check, text=text.strip()))
        else:
            # read as a gap, which is worse where it is larger; ratios may fall by as much
            if not of_value.startswith("<="):
                raise UsageError(
                    f"check {text!r}: write 'change<=0.02', or 'dp.difference.change[race]<=0.02'"
                )
            out = cls(text.strip(), Check.parse(f"dp.difference{of_value}").limit)
        if out.amount < 0:
            raise UsageError(
                f"check {text!r}: it would fail without any change; write how much worse the number may get"
            )
        return out

    @property
    def larger(self) -> bool | None:
        """Whether larger is worse, as the condition says; None for every comparison."""
        return None if self.check is None else self.check.operator.startswith("<")


def without_change(text: str) -> str | None:
    """Return the text of a check of a change without its word ``change``; None of another check."""
    one = read_one(text)
    return None if one is None else one.of_change


def read_checks(
    texts: Iterable[str], protected: Sequence[str] = ()
) -> tuple[tuple[Check, ...], tuple[Allowance, ...]]:
    """Return the checks of values, and those of changes since a baseline; see :meth:`Check.parse`."""
    listed = list(dict.fromkeys(texts))
    changes = [text for text in listed if without_change(text) is not None]
    return (
        tuple(Check.parse(text, protected) for text in listed if text not in changes),
        tuple(map(Allowance.parse, changes)),
    )


ALIKE = (
    "task",
    "score_scale",
    "confidence",
    "always_valid",
    "positive_label",
    "positive_prediction",
    "label_threshold",
)
"""Settings that two audits have in common where they are compared."""


def require_comparable(old: Any, new: Audit, name: str) -> Audit:
    """Return a baseline, a saved result.

    A DataError where it is no valid audit, was not made alike, or audits none of the attributes.
    """
    from fairfix.auditing.saved_results import checked_result  # an audit without a baseline reads no result

    schema = old.get("schema") if isinstance(old, Mapping) else type(old).__struct_config__.tag
    if schema != schema_id("audit"):
        raise DataError(
            f"{name} is not a JSON result of 'fairfix audit' of this version (schema {schema!r}); write one with "
            "`out=json=FILE`"
        )
    try:
        saved = checked_result(old)
    except ValueError as error:
        raise changed(name, shortened(str(error), LONGEST_FAULT)) from error
    assert isinstance(saved, Audit)
    if text := other_settings(saved, new):
        raise DataError(f"the baseline {name} was made with {text}; use the same for both")
    ours = [block.attribute for block in new.attributes]
    if not {block.attribute for block in saved.attributes} & set(ours):
        raise DataError(f"the baseline {name} audits none of the attributes {', '.join(ours)}")
    return saved


def other_settings(old: Audit, new: Audit) -> str:
    """Return the first setting that makes two audits incomparable, with both of its values; empty without any."""
    for key in ALIKE:
        before, after = getattr(old.settings, key), getattr(new.settings, key)
        if key.startswith("positive_"):
            before, after = before or ("1",), after or ("1",)  # a value that nobody names is the 1 of 0/1
        if before != after and key.startswith("positive_"):
            then, own = (" and ".join(one) for one in (before, after))
            part = key.removeprefix("positive_")
            return f"the positive values {then} of {part} instead of {own}"
        if before != after:
            return f"`{key}={before}` instead of {after}"
    return ""


def changed(name: str, fault: str) -> DataError:
    """Return the refusal of a baseline that is not as fairfix wrote it."""
    return DataError(
        f"`baseline`: {name} is incomplete or was changed: {fault}; make it again, or use an unchanged copy"
    )


def compare(
    old: Audit,
    new: Audit,
    allowances: Sequence[Allowance],
    usual: Sequence[str],
    gate_on: GateOn,
    paired: Limits | None = None,
    *,
    same: bool | None = None,
) -> tuple[common.Baseline, tuple[common.SavedCheck, ...]]:
    """Return the changes since a baseline, and the judged checks of changes.

    An allowance for one comparison goes before one for all; ``usual`` are identifiers of the short report's
    comparisons; ``paired`` gives limits on the same rows, None those of independent samples; ``same`` says whether
    nothing has changed, None has it found out. ``UsageError`` where an allowance names an attribute that is not
    audited, or a number without a worse way.
    """
    limited = {Comparison.of(check): check for check in new.checks}
    columns = {block.attribute: block.columns for block in new.attributes}
    if same is None:  # the same numbers, and hardly by chance
        same = paired is None and is_alike(old, new) and coincidence(new) <= COINCIDENCE
    changes, incomparable, checks = (
        list[common.Change](),
        list[common.NotComparable](),
        list[common.SavedCheck](),
    )
    for of in _wanted(new, allowances, usual, limited):
        named, amount = _allowed(allowances, of)
        reason, was, now = _entries(old, new, of)
        larger: bool | None = of.worse != "smaller"
        value, complete, groups = NOTHING, False, tuple[str, ...]()
        names: dict[str, Any] = {
            "id": str(of),
            "comparison": of.id,
            "attribute": of.attribute,
            "group": of.group or "",
        }
        if was is None or now is None:
            incomparable.append(common.NotComparable(**names, reason=reason))
        else:
            larger = _larger_is_worse(of, limited.get(of), named)
            ends = None if paired is None else paired(of, columns[of.attribute or ""])
            value = change(was[0], now[0], ends)
            if same and value.value is not None:
                value = Number(value=0.0, low=0.0, high=0.0)
            changes.append(
                common.Change(
                    **names,
                    old=was[0],
                    new=now[0],
                    **value.numbers,
                    worse=None if larger is None else ("larger" if larger else "smaller"),
                    not_paired=ends if isinstance(ends, str) else "",
                )
            )
            complete, groups = was[1] and now[1], now[2]
        if named is None and (amount < 0 or larger is None or was is None):
            continue
        check = _check(of, amount, bool(larger), named)
        # what is undefined for a group is so in both, where nothing has changed
        ruling = check.judge(value, complete=complete or same, gate_on=gate_on)
        if was is None:
            ruling = Ruling("undecided", "not_comparable", f"not comparable: {reason}")
        elif same and ruling.verdict == "pass":
            ruling = Ruling("pass", "unchanged", "unchanged: every number equals that of the baseline")
        attribute = of.attribute or ""
        about = attribute, columns[attribute]
        checks.append(
            judged(check, about, value, groups, ruling, complete=complete, gate_on=gate_on, of="change")
        )
    section = common.Baseline(
        source=old.data.source,
        fairfix=old.fairfix,
        rows=old.data.rows.used,
        allowed=tuple(allowance.text for allowance in allowances),
        changes=tuple(changes),
        not_comparable=tuple(incomparable),
        unchanged=same,
    )
    return section, tuple(checks)


SAME = ("overall", "attributes", "strata", "noise")
"""Parts of a result that hold its numbers."""

COINCIDENCE = 1e-3
"""Probability that is small compared with the miscoverage of the intervals."""


def is_alike(old: Audit, new: Audit) -> bool:
    """Return whether two audits have the same numbers, be it by chance."""
    settings = msgspec.structs.replace(old.settings, gate_on=new.settings.gate_on)
    alike = settings == new.settings and all(getattr(old, part) == getattr(new, part) for part in SAME)
    return alike and (old.data.rows, old.data.weight) == (new.data.rows, new.data.weight)


def coincidence(result: Audit) -> float:
    """Return a bound on the probability with which another sample gives the same counts for all groups of an audit."""
    return min(map(_coincidence, result.attributes), default=1.0)


def _coincidence(block: common.Block) -> float:
    out = 1.0
    for one in block.groups:
        rate, rows = {name: value.value for name, value in one.metrics.items()}, one.rows
        share, selected = rate.get("base_rate"), rate.get("selection_rate")
        true, false = rate.get("true_positive_rate"), rate.get("false_positive_rate")
        if true is not None and false is not None and share is not None:
            positive = share * rows
            out *= likeliest(positive, true) * likeliest(rows - positive, false)
        elif selected is not None:
            out *= likeliest(rows, selected)
        if share is not None:
            out *= likeliest(rows, share)
    return out


def likeliest(rows: float, rate: float) -> float:
    """Return the largest probability, over all rates, of this number of successes among the rows."""
    if not 0 < rate < 1:
        return 1.0
    hits = rate * rows
    ways = math.lgamma(rows + 1) - math.lgamma(hits + 1) - math.lgamma(rows - hits + 1)
    return math.exp(ways + hits * math.log(rate) + (rows - hits) * math.log1p(-rate))


def change(old: Number, new: Number, ends: PairedEnds | None = None) -> Number:
    """Return new minus old; undefined without limits where one is undefined.

    The limits are those of independent samples, by square and add, or with ``ends`` those on the same rows; both where
    both hold.
    """
    bound = (old.bound or 0.0) + (new.bound or 0.0)  # both numerical errors may point the same way
    if old.value is None or new.value is None:
        when = "in the baseline" if old.value is None else "now"
        return msgspec.structs.replace(NOTHING, reason=f"undefined {when}", bound=bound or None)
    value = new.value - old.value
    (old_down, old_up), (new_down, new_up) = (
        (max(one.point - one.lower, 0.0), max(one.upper - one.point, 0.0)) for one in (old, new)
    )
    low, high = value - math.hypot(new_down, old_up), value + math.hypot(new_up, old_down)
    if ends is not None and not isinstance(ends, str):
        down, up, independent = ends
        low, high = (max(low, down), min(high, up)) if independent else (down, up)
        low, high = min(low, value), max(high, value)
    return Number(**numbers(value, low, high, bound=bound))


def _wanted(
    new: Audit,
    allowances: Sequence[Allowance],
    usual: Sequence[str],
    limited: Mapping[Comparison, common.SavedCheck],
) -> Iterator[Comparison]:
    """Yield what is to be compared: the usual comparisons, those limited, those named."""
    asked = [one.check.comparison for one in allowances if one.check is not None]
    for block in new.attributes:
        attribute, there = block.attribute, block.by_id
        chosen = [Comparison.parse(name, attribute) for name in usual if name in there]
        chosen += [of for of in limited if of.attribute == attribute]
        chosen += [replace(of, attribute=attribute) for of in asked if of.attribute in (None, attribute)]
        yield from dict.fromkeys(chosen)
    audited = [block.attribute for block in new.attributes]
    for allowance in allowances:
        if allowance.check is not None and allowance.check.comparison.attribute not in (None, *audited):
            raise UsageError(
                f"check {allowance.text!r}: {allowance.check.comparison.attribute!r} is not audited; "
                f"this audit has {', '.join(audited)}"
            )


def _allowed(allowances: Sequence[Allowance], of: Comparison) -> tuple[Allowance | None, float]:
    """Return the allowance that names a comparison, and the amount; -1 where nothing limits it."""
    amount = -1.0
    for allowance in allowances:
        if allowance.check is None:
            amount = allowance.amount
        elif allowance.check.comparison.covers(of):
            return allowance, allowance.amount
    return None, amount


Entry = tuple[Estimate, bool, tuple[str, ...]]
"""A value, whether no group's value is undefined, and the groups that reach it."""


def _entries(old: Audit, new: Audit, of: Comparison) -> tuple[str, Entry | None, Entry | None]:
    """Return why two numbers cannot be compared, or both."""
    was, now = (
        next((block for block in result.attributes if block.attribute == of.attribute), None)
        for result in (old, new)
    )
    if was is None or now is None:
        return "only one of the two audits has this attribute", None, None
    levels = ({one.group for one in block.groups} for block in (was, now))
    if reason := ("" if of.group else unlike("groups", *levels)) or _other_question(old, new, of):
        return reason, None, None
    first, second = (_entry(block, of) for block in (was, now))
    if first is None or second is None:
        return f"it is not in {'the earlier' if first is None else 'this'} audit", None, None
    return "", first, second


def unlike(what: str, then: set[str], now: set[str]) -> str:
    """Return which names only one of two audits has; empty where both have the same."""
    apart = ((then - now, "in the earlier audit"), (now - then, "now"))
    parts = [f"{', '.join(sorted(names))} only {where}" for names, where in apart if names]
    return f"the {what} are not the same: {'; '.join(parts)}" if parts else ""


def _other_question(old: Audit, new: Audit, of: Comparison) -> str:
    """Return which setting gives a number another meaning in the two audits."""
    was, now = old.settings, new.settings
    if bool(old.data.columns.weight) != bool(new.data.columns.weight):
        return "only one of the two is weighted"
    if of.entry.of == "decisions" and (was.threshold, was.group_thresholds) != (
        now.threshold,
        now.group_thresholds,
    ):
        then, today = (cut_words(one) or "none" for one in (was, now))
        return f"the thresholds of decisions differ: {then} in the earlier audit, {today} now"
    definitions = [result.definitions.get(of.id) for result in (old, new)]
    if all(definitions) and definitions[0] != definitions[1]:
        return "the two have different definitions"
    attribute = of.attribute or ""
    if of.scope == "to_reference" and was.reference.get(attribute) != now.reference.get(attribute):
        return "the reference groups differ"
    if of.scope == "within_strata":
        strata = [
            {block.stratum for block in result.strata if block.attribute == of.attribute}
            for result in (old, new)
        ]
        if strata[0] != strata[1]:
            return "the strata are not the same"
    return ""


def _entry(block: common.Block, of: Comparison) -> Entry | None:
    if of.group:
        value = next((one.metrics.get(of.metric) for one in block.groups if one.group == of.group), None)
        return None if value is None else (_plain(value), True, (of.group,))
    one = block.by_id.get(of.id)
    return None if one is None else (_plain(one), not one.undefined, one.groups)


def _plain(one: Estimate) -> Estimate:
    """Return a number alone, without its interval given the scores."""
    return Estimate(**{**one.numbers, "given_scores": None})


def _larger_is_worse(
    of: Comparison, limited: common.SavedCheck | None, named: Allowance | None
) -> bool | None:
    """Return whether larger is worse: by the catalogue, or as a check of the change or of the value says; else None."""
    if of.worse:
        return of.worse == "larger"
    if named is not None:
        return named.larger
    return None if limited is None else limited.operator.startswith("<")


def _check(of: Comparison, amount: float, larger: bool, named: Allowance | None) -> Check:
    """Return the condition on the change: at most the amount, or at least minus it."""
    sign: Operator = "<=" if larger else ">="
    limit = amount if larger else 0.0 - amount
    if named is not None and named.check is not None:
        return replace(named.check, comparison=of)
    return Check(f"{of.id}.change{sign}{limit:g}", of, sign, limit)
