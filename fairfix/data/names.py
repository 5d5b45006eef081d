"""Names: of several columns or levels, made here for people and as keys, never taken apart; and the nearest of some."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

INDEX_NAME = re.compile(r"__index_level_\d+__")
"""What pandas calls the index of a frame in a Parquet file; row numbers are no feature."""


def attribute_name(columns: Iterable[str]) -> str:
    """Return the name of an attribute of one or more columns: ``race x sex``."""
    return " x ".join(columns)


def group_name(levels: Iterable[str]) -> str:
    """Return the name of a group: ``Black & female``."""
    return " & ".join(levels)


def each_and_crossed(columns: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return columns one by one, and all of them crossed where there are several."""
    return [*((name,) for name in columns), *([columns] if len(columns) > 1 else [])]


def stratum_name(columns: Iterable[str], levels: Iterable[str]) -> str:
    """Return the name of a stratum: ``town=Elm & product=car``."""
    return " & ".join(f"{column}={level}" for column, level in zip(columns, levels, strict=True))


def written_attribute(text: str) -> str | None:
    """Return the name of an attribute as a user writes it: ``race*sex`` and ``race x sex`` are one."""
    return re.sub(r"\s+x\s+|\s*\*\s*", " x ", text) or None


def did_you_mean(name: Any, names: Iterable[str], most: int = 1) -> str:
    """Return the question that follows a name which is none of some names; empty where none is like it."""
    near = nearest(str(name), tuple(names), most)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def nearest(name: str, names: Sequence[str], most: int = 1) -> list[str]:
    """Return those of some names, such as columns, that are like a name, capitals aside: the nearest first."""
    from difflib import get_close_matches

    plain = {one.casefold(): one for one in reversed(names)}
    return [plain[near] for near in get_close_matches(name.casefold(), plain, most)]
