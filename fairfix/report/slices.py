"""The sections of a search for slices: what was searched, which slices are worse, and how that is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fairfix.auditing.comparisons import Comparison
from fairfix.auditing.results import in_percent
from fairfix.report.answer import NOT_CHECKED, judged, sentence
from fairfix.report.layout import (
    Columns,
    Command,
    Section,
    TextTable,
    data_lines,
    interval,
    judgements,
    message_lines,
    percent,
    points,
    show,
)
from fairfix.schema.common import SavedResult
from fairfix.schema.slices import Slice, Slices, SliceSearch

ERRORS = {"selection_rate": "negative decisions"}
"""Metric -> what is counted as its error, where it is not called an error."""


def sections(result: Slices, *, detail: bool) -> Iterator[Section]:
    """Yield the sections of a search without protected columns."""
    checked = judged(result) if result.checks else (NOT_CHECKED,)
    lines = (*message_lines(result.messages), *answer(result, result.slices), *checked)
    yield Section(f"fairfix slices of {result.data.source}", lines, kind="answer")
    yield from judgements(result)
    yield section(result, result.slices, answered=True)
    yield Section("Data and settings", tuple(data_lines(result)), kind="facts")


def section(result: SavedResult, search: SliceSearch, *, answered: bool = False) -> Section:
    """Return the table of slices; ``answered``: the report says already what it shows."""
    said_before = () if answered else tuple(answer(result, search))
    grids = (TextTable.of(_columns(search), search.slices, 1, "Slices"),) if search.slices else ()
    lines = (*said_before, *_scope(search, in_percent(result.settings.confidence)))
    return Section("Slices", lines, grids, "slices", search)


def named(search: SliceSearch) -> str:
    """Return the number of slices in words: a metric, or a gap between groups."""
    phrase = Comparison.parse(search.metric).entry.phrase
    return f"the gap in {phrase} between groups of {search.attribute}" if search.attribute else phrase


def answer(result: SavedResult, search: SliceSearch) -> Iterator[str]:
    """Yield whether there are slices that are worse, and the worst of them."""
    shown = [one for one in search.slices if one.shown]
    yield _reach(search)
    gap = bool(search.attribute)
    worse = "have a larger gap than all rows together" if gap else "be worse than all other rows"
    if not shown:
        yield f"No slice is shown to {worse}, by {named(search)}."
        return
    first = shown[0]
    write = (points if gap else percent) if Comparison.parse(search.metric).entry.percent else show
    sure = in_percent(result.settings.confidence)
    low, high = (write(end).removesuffix("%").removesuffix(" points") for end in (first.low, first.high))
    number = f"{write(first.value)} ({sure} CI {low} to {high})"
    many = "1 slice is" if len(shown) == 1 else f"{len(shown)} slices are"
    more = ", and so are others that are not listed" if search.more else ""
    yield f"{many} shown to {worse}{more}."
    yield sentence(
        f"the worst is {first.where}, with {first.rows:,} rows: {named(search)} is {number}, and "
        f"{write(search.overall.value)} overall"
    )
    if command := first.command:
        yield "To audit it:"
        yield Command(command)


def _reach(search: SliceSearch) -> str:
    """Return how many slices were searched."""
    many, columns = search.searched, len(search.columns)
    return (
        f"{many:,} slices of at least {search.min_rows:,} rows were searched: all combinations of up to three "
        f"conditions on {columns} column{'s' * (columns != 1)}."
    )


def _scope(search: SliceSearch, confidence: str) -> Iterator[str]:
    """Yield for which slices the intervals hold, and which columns make none."""
    if (share := search.validation) and not search.slices:
        yield f"{percent(1 - share)} of the rows proposed no slice to test on the other {search.rows:,} rows"
    elif share:
        many = len(search.slices)
        yield (
            f"{percent(1 - share)} of the rows proposed {many} slice{'s' * (many != 1)}, and the other "
            f"{search.rows:,} rows test them. With {confidence} confidence, none of those shown to be worse is a "
            "chance result (Holm). The intervals hold for all proposed slices at once"
        )
    else:
        yield (
            f"the {confidence} intervals hold for all {search.searched:,} slices at once, so they allow for the "
            "choice of the worst"
        )
    for one in search.columns:
        if one.pooled:
            few = f"{one.pooled:,} level{'s' * (one.pooled != 1)}"
            yield f"{one.column}: {few} of fewer than {search.min_rows:,} rows are not used as conditions"
    yield from (f"{one.column} is left out: {one.reason}" for one in search.left_out)


def _columns(search: SliceSearch) -> Columns:
    """Return the columns of the table of slices."""
    title = Comparison.parse(search.metric).entry.title
    out: dict[str, str | Callable[[Slice], str]] = {
        "slice": "where",
        "rows": lambda one: f"{one.rows:,}",
        f"gap in {title}" if search.attribute else title: interval,
    }
    if any(one.error is not None for one in search.slices):
        of = ERRORS.get(search.metric, "all errors")
        out[f"fraction of {of}"] = lambda one: percent(one.error)
    if search.validation:
        out["when proposed"] = lambda one: show(None if one.proposed is None else one.proposed.value)
        out["shown to be worse"] = lambda one: "yes" if one.shown else "no"
    return out
