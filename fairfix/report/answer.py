"""The answer that a report opens with, in sentences: who gets less, by how much, how sure, against which limit.

:func:`statement` says what a number is and between whom,
:func:`judgement` what its limit says of it, :func:`rows_to_decide` how many rows would decide it, :func:`answer` puts
the three together for an audit. Numbers are rounded only so far that none reads as its limit, as zero or as another
number of the same sentence that it is not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fairfix.auditing.comparisons import NOISE_SCOPES, TRUE_GROUPS, WITH_NUMBER, Comparison
from fairfix.auditing.metrics import EQUALIZED_ODDS, FLIP_SCOPES
from fairfix.auditing.results import in_percent
from fairfix.report.layout import MARKS, ROUNDING
from fairfix.schema.audit import Audit
from fairfix.schema.common import Block, CheckedResult, Number, SavedCheck
from fairfix.schema.common import SavedComparison as SavedComparison

HEADLINE = (
    *("selection_rate.difference.between_groups", "mean_score.difference.between_groups"),
    *("ks.between_groups", "base_rate.difference.between_groups", "mean_label.difference.between_groups"),
)
"""Comparisons shown for an attribute without a limit: the first of these that there is."""

OTHERS = 4
"""Number of further checks of an attribute that are named; more are counted."""

MOST = 12
"""Number of attributes that the answer has a line for."""

BREAKS = {"<=": "exceed", "<": "reach", ">=": "fall below", ">": "do not exceed"}
"""Operator of a check -> verb of values that break it."""

FURTHER = 6
"""Decimals that may be added to keep numbers apart."""

CUT = (0.0, 1.0)
"""Ends of an interval where the scale of a share, a distance or a ratio may have cut it off."""

SURER = 2.0
"""Factor on the number of rows whose interval would just reach the limit, since half of all samples are nearer to it.

With twice the rows the interval ends 0.29 of the distance before the limit, and a standard deviation is 0.36 of that
distance (95%). So the check is decided 4 times in 5, or every other time where chance makes the largest gap larger.
"""

NOT_CHECKED = "No checks were set, so there is no pass or fail."

CHANGED = {
    "under_flips": "with {attribute} alone, all other columns being equal,",
    "under_comparable": "with the comparable value alone, in rows that have one of these values,",
    "under_everybody": "with the comparable value alone, if all rows get each of these values,",
    "under_counterfactuals": "with the counterfactual copies, for people who have any,",
    "within_radius": "with {attribute}, if rows may also move to near rows within the radius,",
}
"""Kind of flip -> with what something changes."""


@dataclass(frozen=True)
class Amounts:
    """Numbers as one sentence writes them: in percent or as they are, with a number of decimals."""

    percent: bool = False
    decimals: int = 2

    @classmethod
    def of(
        cls,
        numbers: Sequence[float | None],
        *,
        percent: bool = False,
        apart: Sequence[float | None] = (),
        whole: tuple[float, float] | None = None,
    ) -> Amounts:
        """Return how to write numbers so that those of ``apart`` that differ look different.

        ``whole`` are two numbers whose difference is the first one: it stays so after rounding where that can be.
        """
        factor = 100.0 if percent else 1.0
        finite = [factor * x for x in numbers if x is not None and math.isfinite(x)]
        others = [factor * x for x in apart if x is not None and math.isfinite(x)]
        largest = max(map(abs, (*finite, *others)), default=0.0)
        least = 0 if percent else max(0, 2 - math.floor(math.log10(largest))) if largest else 2
        fits = []
        for decimals in range(least, least + FURTHER + 1):
            shown = [round(x, decimals) for x in finite]
            zero = any(y == 0 and abs(x) > 1e-9 for x, y in zip(finite, shown, strict=True))
            every = [*others, *finite[:1]]
            alike = any(
                round(x, decimals) == round(y, decimals)
                and not math.isclose(x, y, rel_tol=1e-9, abs_tol=1e-9)
                for x in every
                for y in every
            )
            if not (zero or alike):
                fits.append(decimals)
        if whole and finite:
            high, low = (factor * x for x in whole)
            for decimals in fits[:2]:
                apart_by = round(high, decimals) - round(low, decimals)
                if math.isclose(apart_by, round(finite[0], decimals), abs_tol=1e-9):
                    return cls(percent, decimals)
        return cls(percent, fits[0] if fits else least + FURTHER)

    def bare(self, number: float) -> str:
        """Return the number without its unit."""
        scaled = number * (100.0 if self.percent else 1.0)
        if scaled and not 1e-6 < abs(scaled) < 1e9:
            return f"{scaled:.3g}"
        text = f"{scaled:,.{min(self.decimals, 9)}f}"
        return text.removeprefix("-") if not float(text.replace(",", "")) else text

    def share(self, number: float) -> str:
        """Return the number of a group."""
        return self.bare(number) + ("%" if self.percent else "")

    def gap(self, number: float) -> str:
        """Return a difference, a limit of one, or a distance."""
        text = self.bare(number)
        return f"{text} point{'' if text == '1' else 's'}" if self.percent else text

    def between(self, low: float | None, high: float | None) -> str:
        """Return the ends of an interval; one may be open."""
        if low is None and high is None:
            return "no limits"
        if low is None or high is None:
            return f"up to {self.bare(high)}" if high is not None else f"{self.bare(low or 0.0)} or more"
        return f"{self.bare(low)} to {self.bare(high)}"


# ---------------------------------------------------------------------- parts of a result


def block_of(result: CheckedResult, attribute: str, stratum: str = "") -> Block | None:
    """Return the part of a result about an attribute, in a stratum; None where there is none."""
    blocks = () if not isinstance(result, Audit) else result.strata if stratum else result.attributes
    return next((b for b in blocks if b.attribute == attribute and b.stratum == stratum), None)


def compared(check: SavedCheck, result: CheckedResult) -> SavedComparison | None:
    """Return the comparison that a check is about, which says in which stratum and at which score; None of a group."""
    block = block_of(result, check.attribute)
    return None if block is None else block.by_id.get(check.comparison)


@dataclass(frozen=True)
class Stated:
    """A number to speak of: a comparison of a result, or a check, with what is known of the comparison it is about."""

    of: Comparison
    """Name of the number, with the attribute."""
    number: Number
    groups: tuple[str, ...]
    """Groups that reach it."""
    stratum: str = ""
    at_score: float | None = None
    reason: str = ""
    """Why it is undefined, or what it leaves out."""
    since: int | None = None
    """Number of the batch since which rows count; None for all rows."""

    @classmethod
    def from_comparison(cls, one: SavedComparison, attribute: str, stratum: str = "") -> Stated:
        """Return a comparison of an attribute, perhaps in a stratum."""
        of = Comparison.parse(one.id, attribute)
        return cls(of, one, one.groups, one.stratum or stratum, one.at_score, one.reason)

    @classmethod
    def from_check(cls, check: SavedCheck, beside: SavedComparison | None = None) -> Stated:
        """Return what a check is about; ``beside`` is the comparison, where there is more to say of it."""
        of = Comparison.of(check)
        if beside is None or check.of == "change" or check.since:
            return cls(of, check, check.groups, reason=check.reason, since=check.since)
        reason = beside.reason or check.reason
        return cls(of, check, check.groups, beside.stratum, beside.at_score, reason)

    @property
    def where(self) -> str:
        """The attribute and the stratum, as the beginning of a sentence."""
        stratum = f" within {self.stratum}" if self.stratum else ""
        return f"by {self.of.attribute}{stratum}" + (
            f", in the rows since batch {self.since}" if self.since else ""
        )


@dataclass(frozen=True)
class Sides:
    """The two sides of a comparison, the smaller value first, and the phrase of what they are values of."""

    phrase: str
    low: tuple[str, float]
    high: tuple[str, float]


def sides(one: Stated, result: CheckedResult) -> Sides | None:
    """Return the values that a difference or a ratio compares; None where the result does not have both."""
    of, value = one.of, one.number.value
    block = block_of(result, of.attribute or "", one.stratum)
    if of.kind not in ("difference", "ratio") or block is None or not isinstance(result, Audit) or one.since:
        return None
    metrics = EQUALIZED_ODDS if of.metric == "equalized_odds" else (of.metric,)
    for metric in metrics:
        each = {group.group: group.value(metric) for group in block.groups}
        by_group = {name: number for name, number in each.items() if number is not None}
        pair = [(name, by_group[name]) for name in one.groups if name in by_group]
        everybody = result.overall.value(metric)
        reference = result.settings.reference.get(of.attribute or "")
        if of.scope == "to_overall" and everybody is not None:
            pair = [*pair[:1], ("all rows", everybody)]
        elif of.scope == "to_reference" and reference in by_group:
            pair = [*pair[:1], (f"{reference} (the reference)", by_group[reference])]
        if len(pair) != 2:
            continue
        low, high = sorted(pair, key=lambda side: side[1])
        gap = high[1] - low[1] if of.kind == "difference" else low[1] / high[1] if high[1] else 1.0
        off = 1e-9 + (one.number.bound or 0.0)
        if value is None or math.isclose(gap, value, rel_tol=1e-6, abs_tol=off):
            # of the two rates of equalized odds, the one whose gap this is
            return Sides(replace(of, metric=metric).entry.phrase, low, high)
    return None


# ---------------------------------------------------------------------- sentences


def sentence(text: str) -> str:
    """Return a text as a sentence."""
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def statement(one: Stated, result: CheckedResult, *, check: SavedCheck | None = None) -> str:
    """Return what a number is, between whom, and its interval.

    Parameters
    ----------
    one
        The number.
    result
        Has values of groups, the reference and the confidence.
    check
        The check whose limit is printed after the number.
    """
    of, number, where = one.of, one.number, one.where
    attribute, limit = of.attribute, None if check is None else check.limit
    always = isinstance(result, Audit) and result.settings.always_valid
    sure = f"{in_percent(result.settings.confidence)} {'always-valid ' * always}CI "
    if check is not None and check.of == "change":
        return _change(check, of, sure)
    value, low, high = number.value, number.low, number.high
    if value is None:
        why = one.reason or "it cannot be computed from the data"
        return sentence(f"{where}, {f'the {of.title}' if of.part else of.entry.phrase} is undefined: {why}")
    plain = of.kind in ("ratio", "covariance")
    two = sides(one, result)
    ends = (value, low, high, limit)
    amounts = Amounts.of(
        (value, low, high),
        percent=of.entry.percent and not plain,
        apart=ends,
        whole=(two.high[1], two.low[1]) if two and of.kind == "difference" else None,
    )
    given = ""
    if number.given_scores is not None:
        given = f"; {amounts.between(*number.given_scores)} given the scores of these rows"
    interval = f" ({sure}{amounts.between(low, high)}{given})"
    if attribute == "slices" and of.part:
        end = "smallest" if of.kind == "min" else "largest"
        gap = of.kind == "difference"
        what = f"the gap in {of.entry.phrase} between groups" if gap else of.entry.phrase
        much = amounts.gap(value) if gap else amounts.share(value)
        slice_ = f" for {one.groups[0]}" if one.groups else ""
        return sentence(f"over all slices, {what} is {end}{slice_}: {much}{interval}")
    if of.of_true_groups:
        return _of_true_groups(of, amounts, (value, low, high), result)
    if of.scope in FLIP_SCOPES:
        changed = CHANGED[of.scope].format(attribute=attribute)
        return sentence(f"{of.entry.phrase} {changed} is {amounts.share(value)}{interval}")
    if of.id == WITH_NUMBER:
        return sentence(
            f"{of.entry.phrase} {attribute}, per standard deviation, is {amounts.gap(value)}{interval}"
        )
    if two:
        return _of_two(two, of, amounts, where, value, interval)
    names = " and ".join(one.groups)
    phrase = of.entry.phrase
    if of.metric == "ks":
        pair = names if of.scope != "to_overall" else f"{names} and all rows"
        at = f", at score {one.at_score:.4g}" if one.at_score is not None else ""
        below = "the fraction of scores up to that score" if at else phrase
        text = (
            f"the scores of {pair} are furthest apart{at}: {below} differs by {amounts.gap(value)}{interval}"
        )
    elif of.of_classes:
        mean = of.scope.partition("_")[0].replace("rms", "root mean square")
        text = f"the {mean} of the gaps of all classes in {phrase} is {amounts.gap(value)}{interval}"
    elif of.kind == "covariance":
        text = (
            f"the fraction of rows in {names}, times its difference from all rows in {phrase}, is "
            f"{amounts.bare(value)}{interval}"
        )
    elif of.kind in ("min", "max"):
        end = "smallest" if of.kind == "min" else "largest"
        text = f"{phrase} is {end} for {names}: {amounts.share(value)}{interval}"
    elif not of.part:
        text = f"{phrase} is {amounts.share(value)}{interval} for {names}"
    else:
        much = amounts.bare(value) if plain else amounts.gap(value)
        text = f"the {of.kind} {'of' if of.kind == 'ratio' else 'in'} {phrase} between {names} is {much}{interval}"
    rest = f"; {one.reason}" if one.reason and check is None else ""
    return sentence(f"{where}, {text}{rest}")


def _of_two(two: Sides, of: Comparison, amounts: Amounts, where: str, value: float, interval: str) -> str:
    (less, low), (more, high) = two.low, two.high
    shares = Amounts.of((low, high), percent=of.entry.percent, apart=(low, high))
    if of.kind == "difference":
        shares = replace(shares, decimals=max(shares.decimals, amounts.decimals))
        gap = f"a difference of {amounts.gap(value)}"
    else:
        gap = f"{less} divided by {more} is {amounts.bare(value)}"
    return sentence(
        f"{where}, {two.phrase} is {shares.share(low)} for {less} and {shares.share(high)} for {more}: {gap}{interval}"
    )


def _of_true_groups(
    of: Comparison, amounts: Amounts, numbers: tuple[float, float | None, float | None], result: CheckedResult
) -> str:
    value, low, high = numbers
    noise = result.noise if isinstance(result, Audit) else None
    stated_level = noise.rests_on if noise is not None else ""
    level = of.scope.removeprefix("under_").upper() if of.scope in NOISE_SCOPES[1:] else stated_level
    stated = "" if noise is None else next((one for n, one in noise.assumptions.items() if n == level), "")
    under = (
        f"assuming {level}{f' ({stated})' if stated else ''}"
        if level
        else "under the assumption on the noise"
    )
    write = amounts.gap if of.kind == "difference" else amounts.bare if of.kind == "ratio" else amounts.share
    unit = "" if not amounts.percent else " points" if of.kind == "difference" else "%"
    whole = {"min": "smallest value of", "max": "largest value of"}.get(of.kind, f"{of.kind} in")
    what = f"the {whole} {of.entry.phrase}" if of.kind else of.entry.phrase
    whom = f"for the true group {of.group}" if of.group else f"between the true groups behind {of.attribute}"
    return sentence(
        f"{what} {whom} is estimated at {write(value)}; {under}, and with sampling error, it can be anything "
        f"{'from ' if None not in (low, high) else 'of '}{amounts.between(low, high)}{unit}"
    )


def _change(one: SavedCheck, of: Comparison, sure: str) -> str:
    attribute = of.attribute
    title = of.title if of.part else f"{of.entry.phrase} of {of.group}"
    if one.value is None:
        return sentence(f"by {attribute}, the change of {title} since the baseline is undefined")
    amounts = Amounts.of(
        (one.value, one.low, one.high),
        percent=of.entry.percent and of.kind != "ratio",
        apart=(one.value, one.low, one.high, one.limit),
    )
    way = "went up" if one.value > 0 else "went down" if one.value < 0 else "did not change"
    ends = amounts.between(one.low, one.high)
    return sentence(
        f"by {attribute}, since the baseline the {title} {way} (change {amounts.gap(one.value)}, {sure}{ends})"
    )


def limit_in_words(check: SavedCheck) -> str:
    """Return the limit of a check as its number is written."""
    of = Comparison.of(check)
    plain = of.kind in ("ratio", "covariance")
    percent = of.entry.percent and not plain
    scaled = 100.0 * check.limit if percent else check.limit
    gap = percent and (of.kind == "difference" or of.metric == "ks" or check.of == "change")
    return f"{scaled:.10g}" + ((" point" if scaled == 1 else " points") if gap else "%" if percent else "")


def judgement(check: SavedCheck, rows: int | None = None) -> str:
    """Return what the limit of a check says of its value; ``rows``, from which it comes, give what would decide it."""
    limit, breaks = limit_in_words(check), BREAKS[check.operator]
    if check.waived is not None:
        would = {"fail": "would fail", "undecided": "would be undecided"}[check.waived.verdict]
        return sentence(
            f"against your limit of {limit}, this check {would}; it is waived until {check.waived.expires}: "
            f"{check.waived.reason}"
        )
    at_point = check.gate_on == "point"
    if check.verdict == "fail":
        if at_point:
            return f"This exceeds your limit of {limit}; only the value is checked, not its interval."
        return f"The value and its whole interval {breaks} your limit of {limit}."
    if check.verdict == "pass":
        if at_point:
            return f"This meets your limit of {limit}; only the value is checked, not its interval."
        return f"The value and its whole interval meet your limit of {limit}."
    if check.value is None:
        return f"Against your limit of {limit} this is undecided, because an undefined value cannot pass."
    if check.code != "limit_inside":
        return sentence(f"against your limit of {limit} this is undecided: {check.reason}")
    text = f"Your limit of {limit} lies inside the interval, so this is undecided."
    return f"{text} {_what_decides(check, rows)}".rstrip()


def _what_decides(check: SavedCheck, rows: int | None) -> str:
    if Comparison.of(check).of_true_groups:
        return "More rows alone may not decide it, because it is unknown how the groups were recorded."
    needed = None if rows is None else rows_to_decide(check, rows)
    if needed is None:
        return ""
    return f"If the population value equals this estimate, about {needed:,} rows would be needed to decide."


def rows_to_decide(check: SavedCheck, rows: int) -> int | None:
    """Return about how many rows would decide a check whose limit lies inside the interval of its value.

    The part of the interval between value and limit shrinks with one over the root of the rows: where it is ``w`` wide
    up to its end and the limit ``d`` away, it is as wide as that with ``rows * (w / d)**2``; of a ratio, as logarithms.
    Values of that many new rows lie on both sides of the population value, so it takes :data:`SURER` times as many,
    rounded up to two digits. An end at 0 or 1, where the scale may have cut the interval off, is taken to be as far
    away as the other one at least. None where the value lies at the limit, both ends are cut off or open, the number
    does not come from rows alone, or a group is undefined.
    """
    value, limit = check.value, check.limit
    if value is None or check.code != "limit_inside" or check.of == "change":
        return None
    away = abs(value - limit) - (check.bound or 0.0)
    if away <= 1e-9 * max(1.0, abs(limit)):
        return None
    near, far = (check.high, check.low) if value < limit else (check.low, check.high)
    of_ratio = Comparison.of(check).kind == "ratio"
    if of_ratio and not (value > 0 and limit > 0):
        return None

    def apart(end: float) -> float:
        if not of_ratio:
            return float(abs(end - value))
        return abs(math.log(end / value)) if end > 0 else 0.0

    reached = (near,) if near not in CUT else (near, far) if far not in CUT else ()
    ends = [end for end in reached if end is not None]
    if len(ends) < max(len(reached), 1):
        return None
    needed = SURER * rows * (max(map(apart, ends)) / apart(limit)) ** 2
    if not math.isfinite(needed) or needed > 1e15:
        return None
    step = 10 ** max(0, math.floor(math.log10(max(needed, 1.0))) - 1)
    return int(max(math.ceil(needed / step) * step, rows + 1))


# ---------------------------------------------------------------------- the answer of an audit


def answer(result: Audit) -> tuple[str, ...]:
    """Return the lines with which the report of an audit opens: one for each attribute, the worst verdict first."""
    noisy = any(one.code == "private_counts" for one in result.messages)  # more rows do not lessen the noise
    checked = judged(result, None if noisy else result.data.rows.used)
    lines = [*checked, *_unchecked(result)]
    more = (f"{len(lines) - MOST:,} more attributes are in the tables.",) if len(lines) > MOST else ()
    return (*lines[:MOST], *more, *(() if result.checks else (NOT_CHECKED,)))


def judged(result: CheckedResult, rows: int | None = None) -> list[str]:
    """Return a line for each checked attribute: its worst check in full, and the others in a few words."""
    asked: dict[str, list[SavedCheck]] = {}
    for check in sorted(result.checks, key=lambda check: ORDER.index(check.verdict)):
        asked.setdefault(check.attribute, []).append(check)
    lines = []
    for checks in asked.values():
        first = leading_check(checks)
        others = _counted([check for check in checks if check is not first])
        line = " ".join((judged_statement(first, result, rows), *others))
        lines.append(f"{MARKS[first.verdict]}: {line}")
    return lines


ORDER = ("fail", "undecided", "waived", "pass")
OTHER_CHECKS = {"fail": "Also failing", "undecided": "Also undecided", "waived": "Also waived", "pass": ""}
"""Verdict, the worst first -> opening of the list of further checks; none where they are counted."""


def judged_statement(check: SavedCheck, result: CheckedResult, rows: int | None = None) -> str:
    """Return the statement and the judgement of a check."""
    where = f"Class {check.of_class}: " if check.of_class else ""
    one = Stated.from_check(check, compared(check, result))
    return f"{where}{statement(one, result, check=check)} {judgement(check, rows)}"


def leading_check(checks: Sequence[SavedCheck]) -> SavedCheck:
    """Return the check to speak of: of the worst verdict the one that was asked first, where it is worst."""
    asked = [c for c in checks if (c.verdict, c.check) == (checks[0].verdict, checks[0].check)]
    return max(asked, key=beyond)


def beyond(check: SavedCheck) -> float:
    """Return how far the value of a check is beyond its limit; negative within it, and 0 where it is undefined."""
    over = 0.0 if check.value is None else check.value - check.limit
    return over if check.operator.startswith("<") else -over


def _counted(checks: Sequence[SavedCheck]) -> Iterator[str]:
    """Yield the other checks of each verdict: those that pass as a number, all others by their titles."""
    for verdict, words in OTHER_CHECKS.items():
        these = [check for check in checks if check.verdict == verdict]
        if these and not words:
            yield "1 other check passes." if len(these) == 1 else f"{len(these):,} other checks pass."
        elif these:
            more = f", and {len(these) - OTHERS:,} more" if len(these) > OTHERS else ""
            yield f"{words}: {'; '.join(map(brief, these[:OTHERS]))}{more}."


def brief(check: SavedCheck) -> str:
    """Return a check in a few words: title and limit."""
    of = Comparison.of(check)
    title = of.title if of.part else f"{of.title} of {check.group}"
    change = "change of " if check.of == "change" else ""
    where = f" of {check.of_class}" if check.of_class else ""
    return f"{change}{title}{where} (limit {limit_in_words(check)})"


def _unchecked(result: Audit) -> Iterator[str]:
    """Yield a statement for each attribute without a check."""
    checked = {check.attribute for check in result.checks}
    for block in result.attributes:
        if block.attribute in checked:
            continue
        leading = headline(block)
        gaps = (
            one for one in block.comparisons if Comparison.parse(one.id).part == f"difference.{TRUE_GROUPS}"
        )
        true = next(gaps, None)
        first = statement(Stated.from_comparison(leading, block.attribute), result) if leading else ""
        second = statement(Stated.from_comparison(true, block.attribute), result) if true else ""
        if first or second:
            none = "" if leading is None else _perhaps_none(leading)
            yield " ".join(filter(None, (first + none, second, "No check was set." if checked else "")))


def headline(block: Block) -> SavedComparison | None:
    """Return the comparison that stands for an attribute; None where it has none."""
    by_id = block.by_id
    return next((by_id[name] for name in HEADLINE if name in by_id), None)


def _perhaps_none(one: Number) -> str:
    """Return a sentence where the interval of a difference reaches 0."""
    if one.value is None or one.low is None or one.low > 0:
        return ""
    return " The interval includes 0, so there may be no difference."


# ---------------------------------------------------------------------- in tables


def decimal(number: float) -> str:
    """Return a number for a cell: .462, without the 0 before the point; a small one with the digits that it has."""
    usual = f"{number:.3f}" if abs(number) < 1000 else f"{number:,.4g}"
    text = f"{number:.3g}" if ROUNDING < abs(number) < 0.0005 else usual
    text = text.removeprefix("-") if not text.strip("-0.") else text
    return re.sub(r"^(-?)0\.", r"\1.", text)


def between_whom(one: Stated, result: Audit) -> str:
    """Return which groups a comparison is between, less first: ``Black .462 against Asian .704 (highest)``."""
    if one.number.value is None:
        return one.reason
    of, two = one.of, sides(one, result)
    if two:
        (less, low), (more, high) = two.low, two.high
        top = " (highest shown)" if result.suppressed is not None else " (highest)"
        top = top if of.scope in ("between_groups", "within_strata") and high > low else ""
        text = f"{less} {decimal(low)} against {more} {decimal(high)}{top}"
    else:
        text = " and ".join(one.groups) + (" against all rows" if of.scope == "to_overall" else "")
    if one.stratum:
        text += f" in {one.stratum}"
    if one.at_score is not None:
        text += f", at score {one.at_score:.4g}"
    return text + (f" ({one.reason})" if one.reason else "")
