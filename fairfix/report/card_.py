"""Card: a model card in Markdown: whose model, on which data, how groups fare, what is not known."""

from __future__ import annotations

from collections.abc import Iterator

from fairfix.report.layout import WORDS, Json, Section, layout, read_and_used
from fairfix.report.markdown_ import unrun, written
from fairfix.report.words import readable

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


def render(result: Json) -> str:
    """Return the model card."""
    return written(_sections(readable(result)))


def _sections(result: Json) -> Iterator[Section]:
    heading, *rest = layout(result)
    record = result.get("record", {})
    yield Section(f"Model card: {record.get('model') or heading.title}")
    yield Section("The model", tuple(_model(result)))
    yield Section("Summary", heading.lines)
    yield Section("The data", tuple(_data(result)))
    yield from (section for section in rest if section.kind in GROUPS)
    yield Section("Limits", LIMITS)
    yield Section("How this was made", (heading.title, *_made(result)))


def _model(result: Json) -> Iterator[str]:
    record = result.get("record", {})
    for name, word in WORDS.items():
        if name != "date":
            yield f"{word}: {record.get(name, 'not stated')}"
    if "requires" in result:
        yield f"repaired by {result['method']}; needed for predictions: {', '.join(result['requires']['columns'])}"
    cut = result.get("settings", {}).get("threshold")
    if cut is not None:
        when = " before the repair" if "requires" in result else ""
        yield f"a score of at least {cut:g} is a positive decision{when}"


def _data(result: Json) -> Iterator[str]:
    data, record = result["data"], result.get("record", {})
    yield f"source: {data['source']}; {read_and_used(result)}"
    yield from (f"left out: {one['rows']:,} rows, {one['reason']}" for one in data["rows"]["excluded"])
    yield f"{WORDS['date']}: {record.get('date', 'not stated')}"
    for part, names in data["columns"].items():
        yield f"{part}: {', '.join(names) if isinstance(names, list) else names}"
    if "fingerprint" in data:
        yield f"fingerprint of counts and columns: {data['fingerprint']}"
    if "data_sha256" in record:
        yield f"SHA-256 of the file: {record['data_sha256']}"


def _made(result: Json) -> Iterator[str]:
    record = result.get("record", {})
    if "command" in record:
        yield f"command: {record['command']}"
    versions = record.get("versions", {"fairfix": result["fairfix"]})
    yield "versions: " + ", ".join(f"{name} {number}" for name, number in versions.items())
