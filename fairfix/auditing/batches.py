"""Batches of a state: the rows added to its counts, with their times."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fairfix.data import codec
from fairfix.data.codec import Json


@dataclass(frozen=True)
class Batch:
    """Rows that were added to a state at once."""

    source: str
    """Name of their data."""
    added: str
    """Time at which they were added, in UTC, to the second: ``2026-05-01T12:00:00+00:00``."""
    fingerprint: str
    """Hash of the rows, to reject the same rows a second time."""


def _time(value: Any) -> str:
    """Return a time as it was saved, or raise a ValueError."""
    text: str = codec.text(value)
    codec.need(datetime.fromisoformat(text).isoformat() == text, "a time is not in the written form")
    return text


def _batches(value: Any) -> tuple[Batch, ...]:
    """Return the batches of a manifest, or raise a ValueError."""
    each = codec.list_of(codec.record(source=codec.text, added=_time, fingerprint=codec.text))(value)
    codec.need(len({one["fingerprint"] for one in each}) == len(each), "a batch occurs twice")
    return tuple(Batch(**one) for one in each)


BATCHES: Json = _batches
"""Reader of the batches of a manifest."""
