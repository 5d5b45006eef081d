"""Names that are made of several columns or levels: made here, for people and as keys, and never taken apart."""

from __future__ import annotations

import re
from collections.abc import Iterable


def attribute_name(columns: Iterable[str]) -> str:
    """Return the name of an attribute of one or more columns: ``race x sex``."""
    return " x ".join(columns)


def group_name(levels: Iterable[str]) -> str:
    """Return the name of a group: ``Black & female``."""
    return " & ".join(levels)


def stratum_name(columns: Iterable[str], levels: Iterable[str]) -> str:
    """Return the name of a stratum: ``town=Elm & product=car``."""
    return " & ".join(f"{column}={level}" for column, level in zip(columns, levels, strict=True))


def written_attribute(text: str) -> str | None:
    """Return the name of an attribute as a user writes it: ``race*sex`` and ``race x sex`` are one."""
    return re.sub(r"\s+x\s+|\s*\*\s*", " x ", text) or None
