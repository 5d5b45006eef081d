"""The sections of explained gaps: the part of each column, and the limits of such an explanation."""

from __future__ import annotations

import math
from collections.abc import Iterator

from fairfix.auditing.metrics import METRICS
from fairfix.auditing.results import in_percent
from fairfix.report.answer import sentence
from fairfix.report.layout import Interval, Section, TextTable, interval, percent, points, show
from fairfix.schema.audit import Audit, ExplainedGap
from fairfix.schema.common import Estimate

MOST = 10
"""Parts that a report for people shows; the JSON form has all."""

UNEXPLAINED = "unexplained"

CAUTION = (
    "A part is neither a cause nor a justification: a column may itself result from unfair treatment, and columns that "
    "vary together share their effect."
)
MEANING = {
    "regression": "An unexplained rest is no proof of discrimination, and no rest is no proof of fairness. Both depend "
    "on the columns, and on a linear regression that holds for both groups.",
    "model": "A part is the mean change of the model's result if a column takes the entry of a person in the other "
    "group. Mixing the columns of two people makes some rows that no person would have.",
}
"""Limits of an explanation, by how it was made."""


def sections(result: Audit) -> Iterator[Section]:
    """Yield a section for each explained gap; what holds for all is said in the first."""
    explained = result.explained_gaps
    if explained is None:
        return
    for place, one in enumerate(explained.gaps):
        lines = [*_answer(one, result)]
        if not place:
            lines += [MEANING[explained.by], CAUTION]
        left_out = explained.left_out if not place else ()
        if one.attribute not in {other.attribute for other in explained.gaps[:place]}:
            left_out += one.left_out
            lines += map(sentence, one.notes)
        lines += [f"{name.column!r} is left out: it {name.text}." for name in left_out]
        yield Section(title(one), tuple(lines), (_table(one),), "gap parts", one)


def title(one: ExplainedGap) -> str:
    """Return the name of a gap."""
    return f"Parts of the gap in {METRICS[one.metric].title} by {one.attribute}"


def rows(one: ExplainedGap) -> list[tuple[str, Estimate | float]]:
    """Return the parts with the names of their columns, the largest first; all others and the rest are last."""
    out: list[tuple[str, Estimate | float]] = [(" + ".join(part.columns), part) for part in one.parts[:MOST]]
    if others := one.parts[MOST:]:
        out.append((f"{len(others):,} other columns", math.fsum(part.point for part in others)))
    return out if one.rest is None else [*out, (UNEXPLAINED, one.rest)]


def _answer(one: ExplainedGap, result: Audit) -> Iterator[str]:
    """Yield the gap, the part of it that is explained, and how."""
    metric, probable = METRICS[one.metric], one.metric == "selection_rate"
    write, gap = (percent, points) if probable else (show, show)
    (high, low), (first, second) = one.groups, one.means
    yield sentence(
        f"{metric.phrase} is {write(first)} for {high} and {write(second)} for {low}: a gap of {gap(one.value)}"
    )
    confidence = in_percent(result.settings.confidence)
    hold = f"The {confidence} intervals hold for all parts of this gap at once"
    if one.rest is None:
        orders = "all orders" if not one.orders else f"{2 * one.orders:,} random orders"
        yield (
            f"The parts are Shapley values of the model, from {one.pairs:,} random pairs of people and {orders} of the "
            f"columns. {hold}, and allow for these draws."
        )
        return
    low, high = (gap(end).removesuffix(" points") for end in (one.rest.low, one.rest.high))
    yield (
        f"In a linear regression on the columns and the group, the columns account for "
        f"{gap(math.fsum(part.point for part in one.parts))}. The rest of {gap(one.rest.value)} ({confidence} CI {low} "
        f"to {high}) is unexplained. {hold}."
    )


def _table(one: ExplainedGap) -> TextTable:
    """Return the table of parts, with the gap as their sum."""
    cells = tuple(
        (name, Interval(interval(part)) if isinstance(part, Estimate) else show(part))
        for name, part in rows(one)
    )
    return TextTable(
        ("column", "part [interval]"), (*cells, ("the whole gap", show(one.value))), 1, title(one)
    )
