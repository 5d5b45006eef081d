"""Canonical: the one text of a value that names something, wherever the value comes from.

Groups, strata, classes, labels, categories and ids are names. A file, a frame, a database and a command line write one
name in several ways: pandas makes ``1.0`` of an integer column with a missing value, a database writes ``1.00``, CSV
files have ``true``, ``TRUE`` and ``True``. :func:`canonical` gives all of them one text. It looks at a single value,
not at its column, so a row that is decided alone, a file, a part of a file and a saved rule agree.

=========================================  ==================  ====================================================
value                                      text                not changed
=========================================  ==================  ====================================================
``1``, ``1.0``, ``"1.0"``, ``"1.00"``      ``1``               ``"01"``, ``"1e0"``, ``" 1"``, ``"v1.0"``, ``"1.0.0"``
``1.5``, ``"1.50"``, ``Decimal("1.50")``   ``1.5``             ``"1,5"``
``0.0``, ``-0.0``, ``"-0"``                ``0``
``True``, ``"true"``, ``"TRUE"``           ``True``            ``"yes"``, ``1``
a time at midnight without a zone          its date            other times, with a space before the time
bytes                                      as UTF-8            those that are none: with replacements
any other                                  ``str`` of it
=========================================  ==================  ====================================================

``standalone.py`` of the exports has a copy of :func:`canonical_text`, since it runs without fairfix; a law compares
both.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)\.[0-9]*")
"""A plain decimal number; a leading zero makes a code of it, such as a ZIP code, and an exponent may be part of one."""

TIME = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})[ T]([0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?)")
"""A time without a zone."""

TRUTHS = {"true": "True", "false": "False"}

WHOLE = 2.0**53
"""Whole floats below it are exact integers."""


def canonical(value: Any) -> str:
    """Return the text of a value that is not missing."""
    if isinstance(value, str):
        return canonical_text(value)
    if type(value) is int:  # as many ids are
        return str(value)
    if isinstance(value, float):
        # of numpy, too, whose repr names the type
        return str(int(value)) if value.is_integer() and abs(value) < WHOLE else float.__repr__(value)
    if isinstance(value, bytes):
        return canonical_text(value.decode("utf-8", "replace"))
    return canonical_text(format(value, "f") if isinstance(value, Decimal) else str(value))


def canonical_text(text: str) -> str:
    """Return the text of a value that is written as a text."""
    if "." in text and NUMBER.fullmatch(text):
        text = text.rstrip("0").rstrip(".")
    elif len(text) in (4, 5):
        text = TRUTHS.get(text.lower(), text)
    elif len(text) >= 19 and (time := TIME.fullmatch(text)):
        day, rest = time.groups()
        rest = rest.rstrip("0").rstrip(".") if "." in rest else rest
        text = day if rest == "00:00:00" else f"{day} {rest}"
    return "0" if text == "-0" else text


def canonical_group(text: str) -> str:
    """Return the name of a group as fairfix has it; it may be of several levels, as ``1 & True``."""
    return " & ".join(map(canonical_text, text.split(" & ")))


def spellings(name: str) -> tuple[str, ...]:
    """Return the texts that usual files and databases have for a name, itself first, for systems without patterns."""
    if name in TRUTHS.values():
        return (name, name.lower(), name.upper())
    if NUMBER.fullmatch(f"{name}."):
        return (name, f"{name}.0", *(("-0", "-0.0") if name == "0" else ()))
    if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", name):
        return (name, f"{name} 00:00:00", f"{name}T00:00:00")
    return (name,)


def stems(name: str) -> tuple[str, ...]:
    """Return what the decimal texts of a number are before the zeros at their end: ``1.`` of ``1.00``; else nothing."""
    if NUMBER.fullmatch(f"{name}."):
        return (f"{name}.", "-0.") if name == "0" else (f"{name}.",)
    return (name,) if NUMBER.fullmatch(name) else ()
