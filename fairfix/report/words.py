"""Names of data as people can read them, and so that they do nothing: to a terminal, to a log of CI, to a line.

A group can be called by an empty text, by spaces, by a line break, by the codes that colour a terminal or turn the
direction of writing. Formats for people show all of these as what they are. JSON, JUnit and SARIF keep names as they
are, by escapes of their own.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from copy import copy
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from fairfix.data.names import shell_line

if TYPE_CHECKING:
    from msgspec import Struct

Kept = TypeVar("Kept")

ARGUMENTS = frozenset(("data", "result", "artifact"))
"""Parameters that the command line takes without a name."""

SETTINGS = frozenset(
    (
        *("balance", "bin_rows", "bins", "calibrate", "holds", "label_range", "mixture", "nu", "oracle"),
        *("quantile_level", "rho", "rounds", "search", "shape", "survey_confidence", "z"),
    )
)
"""Parameters of methods that few people change: the command line takes them by ``--set NAME=VALUE``."""

PARAMETER = re.compile(r"`([a-z_][a-z0-9_]*)(?:=([^`]*))?`")
"""A parameter in a message, a note or a help, perhaps with a value."""

IN_QUOTES = r"""(?<!\w)(?:'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")(?!\w)|\[`[^`]*`\]"""
"""A name of the user's in a message, as Python writes it (no apostrophe, which follows a letter), or in brackets."""

NAME_OR_PARAMETER = re.compile(f"{IN_QUOTES}|{PARAMETER.pattern}")

UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Characters that have no shape, break a line, or change how other characters look.

These are the controls, the marks of direction and the characters that Unicode lets programs ignore. Left out are the
two joiners and the variation selectors, which scripts and emoji are written with.
"""

UNSEEN_IN_LINES = re.compile(rf"(?!\n){UNSEEN.pattern}")
"""The same, but for the end of a line, where lines are meant."""

LONGEST = 2000
"""No text of a report for people has more characters; JSON has names of any length whole."""

NUMBER = (float, int, NoneType)
"""Types in JSON other than texts, lists and objects: the most frequent ones, so tested first."""

COMMAND = re.compile(r"^(\s*)(:)(?=:)|(#)(?=\w*\[)(?<=##)", re.MULTILINE)
"""The sign to escape in what a log of CI takes for a command.

That is ``::`` at the beginning of a line, and anywhere ``##[error]``, ``##vso[...]`` or ``##teamcity[...]``.
"""


def plain(text: str) -> str:
    r"""Return a text with every unseen character written as Python writes it, such as ``\n``."""
    if text.isascii() and text.isprintable():  # as nearly all are
        return text
    return UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def visible(text: str) -> str:
    r"""Return lines with every unseen character in them written as Python writes it."""
    return UNSEEN_IN_LINES.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def as_json(content: Any, indent: int | None = 2) -> str:
    """Return JSON that a terminal can show: what is unseen stands as the escapes that JSON has for it."""
    from fairfix.schema import to_json

    text = harmless(to_json(content, indent), as_escape)
    if text.isascii() and "\x7f" not in text:  # JSON escapes the other unseen characters of ASCII
        return text
    return UNSEEN_IN_LINES.sub(lambda match: json.dumps(match[0])[1:-1], text)


def named(name: str) -> str:
    """Return the name of a group for reading: in quotes where it is empty or has spaces at its ends."""
    name = plain(name)
    return name if name and name == name.strip() else f"'{name}'"


def shortened(text: str) -> str:
    """Return a text without its middle where it is too long to read, told from others like it by a hash."""
    if len(text) <= LONGEST:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{text[: LONGEST // 4]}...({len(text):,} characters, {digest})...{text[-LONGEST // 4 :]}"


def readable(value: Kept, key: str = "") -> Kept:
    """Return a result with names for reading, also where they are keys."""
    out: Any = value
    if isinstance(value, str):
        out = named(shortened(value)) if key in ("group", "groups") else plain(shortened(value))
    elif isinstance(value, dict):
        name = named if key == "per_group" else plain
        out = {
            name(shortened(k)): one if isinstance(one, NUMBER) else readable(one, k)
            for k, one in value.items()
        }
    elif not isinstance(value, NUMBER):
        out = _mapped(value, key, readable)
    return cast("Kept", out)


def _mapped(value: Any, key: str, change: Callable[[Any, str], Any]) -> Any:
    """Return a list, or a struct of a result, with other entries; the same one where none is another.

    A struct is not validated again: two names that differ can read alike.
    """
    if isinstance(value, (list, tuple)):
        listed = [change(one, key) for one in value]
        same = all(one is other for one, other in zip(value, listed, strict=True))
        return value if same else type(value)(listed)
    kind: type[Struct] = type(value)
    out, absent = value, _absent(kind)
    for name in value.__struct_fields__:
        old = getattr(value, name)
        new = old if old == "" and name in absent else change(old, name)
        if new is not old:
            from msgspec.structs import force_setattr

            out = copy(value) if out is value else out
            force_setattr(out, name, new)
    return out


AS_WRITTEN = ("where", "command")
"""Fields of conditions and commands, whose backquotes are around names of columns."""


@cache
def _absent(struct: type[Struct]) -> frozenset[str]:
    """Return the fields of a struct that are absent where they are empty."""
    from msgspec.structs import fields

    return frozenset(field.name for field in fields(struct) if field.default == "")


def as_options(value: Kept) -> Kept:
    """Return a text, or a result, with its parameters as a shell takes them: ``--noise FILE``, DATA.

    Names of the user's stay as they are, whatever they look like: in quotes, in the brackets of a comparison, and in
    a result where they stand alone.
    """
    out: Any = value
    if isinstance(value, str):
        out = NAME_OR_PARAMETER.sub(_option, value) if "`" in value else value
    elif isinstance(value, dict):
        # a key may be the name of a column, which stands as a value elsewhere
        out = {
            _named_or_with_options(key): one
            if isinstance(one, NUMBER) or key in AS_WRITTEN
            else _named_or_with_options(one)
            for key, one in value.items()
        }
    elif not isinstance(value, NUMBER):
        out = _mapped(value, "", _named_or_with_options)
    return cast("Kept", out)


def _named_or_with_options(value: Any, key: str = "") -> Any:
    """Return a part of a result; no sentence is a parameter alone, so that what is only looks like one."""
    if key in AS_WRITTEN:
        return value
    alone = isinstance(value, str) and ("`" not in value or PARAMETER.fullmatch(value))
    return value if alone else as_options(value)


def _option(match: re.Match[str]) -> str:
    if match[1] is None:
        return match[0]
    if match[1] in ARGUMENTS:
        return match[1].upper()
    truth = {"True": True, "False": False}.get(match[2]) if match[1] == "header" else None
    value: str | bool = (match[2] is None or match[2]) if truth is None else truth
    return shell_line(option_words(match[1], value))


def option_words(name: str, value: str | bool = True) -> list[str]:
    """Return the words by which the command line takes a parameter, such as ``--slack 0.02`` or ``--set rho=0.4``."""
    if name in SETTINGS:
        return ["--set", name if value is True else f"{name}={value}"]
    option = name.replace("_", "-")
    return [f"--{option}", value] if isinstance(value, str) else [f"--{'' if value else 'no-'}{option}"]


def harmless(text: str, escape: Callable[[str], str] = "\\{}".format) -> str:
    """Return printed text that holds no command to CI: the sign that makes one is escaped, usually by a backslash."""
    if "::" not in text and "##" not in text:
        return text
    return COMMAND.sub(lambda match: f"{match[1] or ''}{escape(match[2] or match[3])}", text)


def as_escape(sign: str) -> str:
    """Return a character as JSON and TOML escape it."""
    return f"\\u{ord(sign):04x}"


def as_references(text: str) -> str:
    """Return HTML or XML that holds no command to CI; the sign that makes one is a character reference."""
    return harmless(text, lambda sign: f"&#{ord(sign)};")
