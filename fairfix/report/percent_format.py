"""Shares and their differences as they are read: in per cent and in points, with their ends."""

from __future__ import annotations

from collections.abc import Callable

from fairfix.schema.common import Number

CERTAIN = 1e-6
"""A chance that is nearer to 0 or 1 is certain."""


def percent(share: float | None) -> str:
    """Return a share for reading, in per cent."""
    return "–" if share is None else f"{100 * share:.1f}%"


def points(difference: float | None, *, sign: bool = False) -> str:
    """Return a difference of shares for reading, in percentage points."""
    if difference is None:
        return "–"
    return f"{round(100 * difference, 1) + 0.0:{'+' if sign else ''}.1f} points"


def ends_of(low: float, high: float, write: Callable[..., str]) -> str:
    """Return the ends of a change for reading, with their signs, without the unit."""
    first, last = (write(end, sign=True).removesuffix(" points") for end in (low, high))
    return f"{first} to {last}"


def with_ends(value: Number, write: Callable[..., str]) -> str:
    """Return a value with its interval for reading, and the unit once."""
    if value.value is None:
        return "undefined"
    low, high = (write(end).removesuffix(" points") for end in (value.low, value.high))
    return f"{write(value.value)} ({low} to {high})"
