"""Merging: names of a column that mean one group, as the user says, and names that look as if they did.

``race=Native,native,NATIVE`` makes one group of three names, called by the first. ``race=(missing),?,N/A`` makes them
missing values, which meet the policy for these. ``race=Native`` says that a name is a group of its own. Nothing is
merged that nobody asked for: ``NA`` may be Namibia, and ``none`` a religion. Names that differ in nothing but case,
blanks or the way Unicode writes a letter, and the usual marks of missing values, are found here and said first.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from fairfix.data.canonical import canonical_text
from fairfix.data.names import keyed, split_names
from fairfix.errors import UsageError

MISSING = "(missing)"
"""The level of rows whose group is missing, under ``missing_group="group"``."""

Merges = Mapping[str, Mapping[str, str]]
"""Column -> name -> the name that it is taken for; a name of its own is taken for itself."""

SIGNS = frozenset(("", "?", "-", "--", ".", "na", "n/a", "#n/a", "<na>", "nan", "nat", "null", "nil", "none"))
WORDS = frozenset(
    ("missing", "unknown", "unk", "not known", "not available", "not specified", "unspecified", "undefined")
)
MARKS = SIGNS | WORDS
"""Usual marks of missing values, in small letters."""

UNKNOWN = frozenset(("?", "na", "n/a", "#n/a", "<na>", "nan", "nat", "null"))
"""Marks that are no value of a label, whatever its values are: ``-`` and ``none`` may be the negative one."""


def parse_merge(parts: Iterable[str]) -> dict[str, dict[str, str]]:
    """Read ``COLUMN=NAME,NAME`` of each part; a name with a comma or blanks at its ends is in double quotes."""
    out: dict[str, dict[str, str]] = {}
    form = "COLUMN=NAME,NAME,... such as race=Black,African American"
    for column, listed in keyed("merge=", parts, form, again=True):
        names, own = [canonical_text(one) for one in split_names(listed)], out.setdefault(column, {})
        for one in names:
            if own.get(one, names[0]) != names[0]:
                raise UsageError(
                    f"`merge={column}={listed}`: {one!r} is already merged into {own[one]!r}; name it once"
                )
            own[one] = names[0]
    for column, own in out.items():
        for one, into in own.items():
            if own[into] != into:
                raise UsageError(
                    f"`merge`: {one!r} of {column!r} is merged into {into!r}, and that into {own[into]!r}; name all "
                    "of them in one list"
                )
    return out


def plain_form(name: str) -> str:
    """Return a name without what people do not see as a difference."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    return canonical_text(" ".join(folded.split())).casefold()


def look_alikes(levels: Iterable[str], stated: Mapping[str, Any]) -> list[list[str]]:
    """Return names that differ only in case or blanks, those of each plain form together, sorted.

    Names that are all ``stated`` by the user are left out; marks of missing values are another matter.
    """
    alike: dict[str, list[str]] = {}
    for level in sorted(levels):
        alike.setdefault(plain_form(level), []).append(level)
    return [
        names
        for form, names in alike.items()
        if len(names) > 1 and form not in MARKS and not all(one in stated for one in names)
    ]


def marks_in(levels: Iterable[str], stated: Mapping[str, Any]) -> list[str]:
    """Return the names that are usual marks of missing values, sorted, without those that the user has ``stated``."""
    return sorted(one for one in levels if plain_form(one) in MARKS and one not in stated)
