"""The sections of a comparison of two models: the change of every quality and every gap, on the same people."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.metrics import METRICS
from fairfix.auditing.results import cut_words, in_percent
from fairfix.report.comparisons import LEADING
from fairfix.report.layout import (
    CHANGES_MOST,
    Columns,
    Section,
    TextTable,
    data_lines,
    ends_of,
    first_groups,
    interval,
    message_lines,
    percent,
    points,
    show,
    show_signed,
    signed,
    titled,
)
from fairfix.schema.common import Change
from fairfix.schema.compare import GroupOfModels, Models

CHANGES: Columns = {
    "number": lambda one: titled(one.comparison or one.id),
    "before": lambda one: show(one.old.value),
    "now": lambda one: show(one.new.value),
    "change": lambda one: show(None) if one.value is None else signed(one),
    "is": "direction",
}

GOOD = ("accuracy", "square_loss", "absolute_loss")
"""The quality that the report opens with: the first that there is."""


def sections(result: Models, *, detail: bool) -> Iterator[Section]:
    """Yield the sections of a comparison of two models."""
    old, new = _names(result)
    opening = (*message_lines(result.messages), *answer(result))
    yield Section(f"fairfix comparison of {new} with {old}", opening, kind="answer")
    yield Section("Quality, all rows", (), (TextTable.of(CHANGES, result.qualities, 1, "Qualities"),))
    for attribute in dict.fromkeys(one.attribute for one in result.changes):
        shown = [one for one in result.changes if one.attribute == attribute]
        apart = {one.not_paired for one in shown if one.not_paired}
        lines = [
            f"these gaps have intervals of independent samples, since {why}: "
            + "; ".join(titled(one.comparison) for one in shown if one.not_paired == why)
            for why in sorted(apart)
        ]
        grids = [TextTable.of(CHANGES, shown, 1, f"Gaps of {attribute}")]
        if groups := _groups(result, attribute or ""):
            groups, more = first_groups(groups, _rank, CHANGES_MOST)
            lines += more
            grids.insert(0, TextTable.of(_given(groups[0].metric), groups, 1, f"Groups of {attribute}"))
        yield Section(f"Groups of {attribute}", tuple(lines), tuple(grids))
    if result.not_comparable:
        lines = [f"{one.id}: {one.reason}" for one in result.not_comparable]
        yield Section("Not comparable", tuple(lines))
    yield Section("Data and settings", tuple(_facts(result)), kind="facts")


def _names(result: Models) -> tuple[str, str]:
    """Return how the other model and the one compared with it are called: with their data where these differ."""
    old, new = result.models
    if old.source == new.source:
        return old.score, new.score
    return f"{old.score} ({old.source})", f"{new.score} ({new.source})"


def _rank(group: GroupOfModels) -> float:
    old, new = group.old.value, group.new.value
    return 0.0 if old is None or new is None else -abs(new - old)


def _groups(result: Models, attribute: str) -> Sequence[GroupOfModels]:
    return [one for one in result.groups if one.attribute == attribute]


def _given(metric: str) -> Columns:
    """Return the columns of what groups get: the metric from both models."""
    title = METRICS[metric].title
    return {
        "group": "group",
        "rows": lambda one: f"{one.rows:,}",
        f"{title} before": lambda one: interval(one.old),
        f"{title} now": lambda one: interval(one.new),
    }


def answer(result: Models) -> Iterator[str]:
    """Yield what changes from one model to the other: the leading gap of every attribute, and the quality."""
    confidence = in_percent(result.settings.confidence)
    for attribute in dict.fromkeys(one.attribute for one in result.changes):
        of = [one for one in result.changes if one.attribute == attribute]
        leading = next((one for name in LEADING for one in of if one.comparison == name), of[0])
        yield from _furthest(result, leading)
        title = f"by {attribute}, the {titled(leading.comparison)}"
        yield movement(leading, title, writer_of(leading), confidence)
    quality = next((one for name in GOOD for one in result.qualities if one.id == name), None)
    if quality is not None:
        write = percent if quality.id == "accuracy" else show_signed
        yield movement(quality, METRICS[quality.id].title, write, confidence)
    yield (
        "Both models (before: {}; now: {}) are evaluated ".format(*_names(result))
        + f"on the same {result.data.rows.used:,} people. Nothing is fitted. Each interval "
        f"is for one change alone ({confidence}): with many comparisons, some look significant by chance."
    )


def writer_of(one: Change) -> Callable[..., str]:
    """Return how a gap is written: in points where it is of shares, else in units of the scores."""
    of = Comparison.of(one)
    return points if of.metric == "ks" or (of.kind == "difference" and of.entry.percent) else show_signed


def _furthest(result: Models, leading: Change) -> Iterator[str]:
    """Yield who gets least and most from either model, where the leading gap is between these two."""
    of, groups = Comparison.of(leading), _groups(result, leading.attribute or "")
    groups = [one for one in groups if one.metric == of.metric]
    if len(groups) < 2 or (of.kind, of.scope) != ("difference", "between_groups"):
        return
    write = percent if METRICS[of.metric].percent else show
    parts = []
    both = [(one.old.value, one.group) for one in groups], [(one.new.value, one.group) for one in groups]
    for each, name in zip(both, _names(result), strict=True):
        given = [(value, group) for value, group in each if value is not None]
        if not given:
            return
        low, high = min(given), max(given)
        parts.append(f"{write(low[0])} for {low[1]} to {write(high[0])} for {high[1]} with {name}")
    yield f"By {leading.attribute}, {METRICS[of.metric].phrase} ranges from {parts[0]}, and from {parts[1]}."


def movement(one: Change, title: str, write: Callable[..., str], confidence: str) -> str:
    """Return a number with both models, and whether the interval of its change is on one side of 0."""
    title = title[0].upper() + title[1:]
    old, new = one.old.value, one.new.value
    if one.value is None or old is None or new is None:
        return f"{title} is undefined with one of the models."
    sign = points if write in (points, percent) else show_signed
    before, now = write(old), write(new)
    moved = new - old
    way = "rises" if moved > 0 else "falls"
    first = before.removesuffix(" points")
    text = f"{title} stays at {now}" if before == now else f"{title} {way} from {first} to {now}"
    low, high = one.low, one.high
    if low is None or high is None:
        return f"{text}; there is no interval for the change."
    change = f"change {sign(moved, sign=True)}, {confidence} CI {ends_of(low, high, sign)}"
    verdict = (
        f"It gets {one.direction}" if one.direction else "We cannot say whether it changes in the population"
    )
    return f"{text}. {verdict} ({change})."


def _facts(result: Models) -> Iterator[str]:
    yield from data_lines(result)
    if match := result.paired:
        old, new = _names(result)
        aside = (
            (match.only_in_baseline, f"only with {old}"),
            (match.only_now, f"only with {new}"),
            (match.other_group, "with another group in each"),
        )
        left = ", ".join(f"{rows:,} {why}" for rows, why in aside if rows)
        yield f"matched by {match.id}; rows left out: {left or 'none'}"
    if cut := cut_words(result.settings):
        yield f"a score of at least {cut} is a positive decision, for both models"
