"""Section of a state: its batches, the gaps in each and in the total so far, and changes of gaps."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fairfix.auditing.metrics import METRICS
from fairfix.auditing.results import in_percent
from fairfix.report.answer import sentence
from fairfix.report.layout import Section, TextTable, interval, points, show
from fairfix.schema.audit import Audit, StateBatches, Trace
from fairfix.schema.common import Number

SHORT = 8
"""Number of last batches in the table of the short report."""


SCOPE = (
    "An interval below is of the difference between two named groups. A check is of the largest gap between any "
    "two groups, so its interval can differ."
)


def section(result: Audit, state: StateBatches, *, detail: bool) -> Section:
    """Return the gaps of each batch, and their changes."""
    lines = tuple(_changes(result, state))
    if state.traces:
        lines += (SCOPE,)
    if any(total.value is None for trace in state.traces for total in trace.totals):
        lines += ("A gap is undefined until both groups have rows that it counts.",)
    first = 0 if detail else max(len(state.batches) - SHORT, 0)
    if first:
        lines += (f"{first:,} earlier batches: use --detail or JSON",)
    grids = tuple(_grid(state, one, first) for one in state.traces)
    return Section("History", lines, grids, "history", state)


def title_of(trace: Trace) -> str:
    """Return the gap of a trace in words."""
    first, second = trace.groups
    return f"{METRICS[trace.metric].title}, {first} minus {second}"


def _changes(result: Audit, state: StateBatches) -> Iterator[str]:
    """Yield a sentence for each gap that has changed, or that no change was detected."""
    sure = f"{in_percent(result.settings.confidence)} always-valid CI"
    for one in state.drifts:
        batch = state.batches[one.since - 1]
        before, after = (_ends(end, _written(one.metric)) for end in (one.before, one.after))
        yield sentence(
            f"by {one.attribute}, the gap in {METRICS[one.metric].phrase} has changed: {one.groups[0]} minus "
            f"{one.groups[1]} was {before} before batch {one.since} (added {batch.added}) and is {after} since then "
            f"({sure}s)"
        )
    if len(state.batches) > 1 and not state.drifts:
        yield "No change in a gap between two groups was detected."


def _written(metric: str) -> Callable[[float], str]:
    return points if METRICS[metric].percent else show


def _ends(one: Number, write: Callable[[float], str]) -> str:
    """Return a number with its interval."""
    value, low, high = (write(end) for end in (one.value or 0.0, one.low or 0.0, one.high or 0.0))
    return f"{value} [{low.removesuffix(' points')} to {high.removesuffix(' points')}]"


def _grid(state: StateBatches, trace: Trace, first: int) -> TextTable:
    """Return the table of a gap."""
    rows = tuple(
        (
            str(i + 1),
            batch.source,
            batch.added.removesuffix("+00:00"),
            f"{batch.rows:,}",
            show(own),
            interval(total),
        )
        for i, (batch, own, total) in enumerate(zip(state.batches, trace.batches, trace.totals, strict=True))
        if i >= first
    )
    headings = ("batch", "data", "added (UTC)", "rows", "in the batch", "in the total so far")
    return TextTable(headings, rows, 3, f"By {trace.attribute}: {title_of(trace)}")
