"""Card: a model card in Markdown: whose model, on which data, how groups fare, what is not known."""

from __future__ import annotations

from collections.abc import Iterator

from fairfix.auditing.results import cut_words
from fairfix.report.layout import WORDS, Section, layout, named_columns, read_and_used
from fairfix.report.markdown_ import unrun, written
from fairfix.report.words import readable
from fairfix.schema.common import Record, SavedResult
from fairfix.schema.repair import Repair

ENDING = ".md"

__all__ = ("render", "unrun")

GROUPS = (
    "checks",
    "waivers",
    "baseline",
    "people",
    "attribute",
    "true groups",
    "rule",
    "gap",
    "classes",
    "slices",
)
"""Kinds of sections that a card has as they are."""

LIMITS = (
    "The numbers describe the rows named here, not other people, places and times.",
    "Groups that are not in the data, and harms other than those measured, are not covered.",
    "fairfix computes numbers. It does not show whether the model complies with any law.",
)


def render(result: SavedResult) -> str:
    """Return the model card."""
    return written(_sections(readable(result)))


def _sections(result: SavedResult) -> Iterator[Section]:
    heading, *rest = layout(result)
    record = result.record or Record(versions={"fairfix": result.fairfix})
    yield Section(f"Model card: {record.model or heading.title}")
    yield Section("The model", tuple(_model(result, record)))
    yield Section("Summary", heading.lines)
    yield Section("The data", tuple(_data(result, record)))
    yield from (section for section in rest if section.kind in GROUPS)
    yield Section("Limits", LIMITS)
    yield Section("How this was made", (heading.title, *_made(record)))


def _model(result: SavedResult, record: Record) -> Iterator[str]:
    for word, entry in (("model", record.model), ("owner", record.owner), ("purpose", record.purpose)):
        yield f"{word}: {entry or 'not stated'}"
    when = ""
    if isinstance(result, Repair):
        yield f"repaired by {result.method}; needed for predictions: {', '.join(result.requires.columns)}"
        when = " before the repair"
    if cut := cut_words(result.settings):
        yield f"a score of at least {cut} is a positive decision{when}"


def _data(result: SavedResult, record: Record) -> Iterator[str]:
    data = result.data
    yield f"source: {data.source}; {read_and_used(result)}"
    yield from (f"left out: {one.rows:,} rows, {one.reason}" for one in data.rows.excluded)
    yield f"{WORDS['date']}: {record.date or 'not stated'}"
    yield from (f"{part}: {names}" for part, names in named_columns(data.columns).items())
    if isinstance(result, Repair):
        yield f"fingerprint of counts and columns: {result.data.fingerprint}"
    if record.data_sha256:
        yield f"SHA-256 of the file: {record.data_sha256}"


def _made(record: Record) -> Iterator[str]:
    if record.command:
        yield f"command: {record.command}"
    yield "versions: " + ", ".join(f"{name} {number}" for name, number in record.versions.items())
