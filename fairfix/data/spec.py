"""Specs: texts such as ``linear(l2=cv,basis=splines)``, a name with keys.

One grammar for every option that takes a name with settings of its own. The name stands alone or before brackets;
entries ``KEY=VALUE`` stand between commas. A value with a comma is in double quotes, in which a double quote is
doubled. Blanks around names, keys and values do not count. Nothing here imports numpy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from fairfix.data.domain import Domain
from fairfix.data.names import did_you_mean, nearest, quoted_name, split_names
from fairfix.errors import UsageError

WHOLE = re.compile(r"([^()]*)(?:\((.*)\)\s*)?", re.DOTALL)
"""A name, perhaps with brackets around its entries."""


@dataclass(frozen=True)
class Form:
    """A name that a spec may have: its help and its keys."""

    help: str
    keys: Mapping[str, Domain]


@dataclass(frozen=True)
class Spec:
    """A name and the settings of all its keys; those that were not given have their defaults."""

    name: str
    settings: tuple[tuple[str, Any], ...] = ()
    given: frozenset[str] = frozenset()
    """Keys that were given."""

    def __getitem__(self, key: str) -> Any:
        """Return the value of a key."""
        return dict(self.settings)[key]

    def __str__(self) -> str:
        """Return the text of the spec, with the keys that were given."""
        entries = [f"{key}={_written(value)}" for key, value in self.settings if key in self.given]
        return f"{self.name}({','.join(entries)})" if entries else self.name


def parse_spec(parameter: str, text: str, forms: Mapping[str, Form]) -> Spec:
    """Return the spec that a text writes, as one of some forms by their names.

    Raises
    ------
    UsageError
        The name is none of them, or an entry is no KEY=VALUE of the form; names the key, the value and what is
        allowed, and proposes the nearest.
    """
    shown, match = f"`{parameter}={text}`", WHOLE.fullmatch(text)
    if match is None:
        raise UsageError(f"{shown}: write NAME or NAME(KEY=VALUE,...), with one closing bracket at the end")
    name, listed = match[1].strip(), match[2]
    if name not in forms:
        error = UsageError(f"{shown}: {name!r} is none of {', '.join(forms)}{did_you_mean(name, forms)}")
        raise error.proposing(*((text, text.replace(name, one, 1)) for one in nearest(name, tuple(forms))))
    keys, given = forms[name].keys, dict[str, Any]()
    allowed = f"its keys are {', '.join(keys)}" if keys else "it has none"
    for entry in split_names(listed) if (listed or "").strip() else ():
        own, sign, value = (part.strip() for part in entry.partition("="))
        if not sign:
            raise UsageError(f"{shown}: {entry!r} is not a KEY=VALUE of {name}; {allowed}")
        if own not in keys:
            error = UsageError(f"{shown}: {name} has no key {own!r}; {allowed}{did_you_mean(own, keys)}")
            raise error.proposing(*((text, text.replace(own, one, 1)) for one in nearest(own, tuple(keys))))
        if own in given:
            raise UsageError(f"{shown}: {own!r} is given twice; give it once")
        try:
            given[own] = keys[own].one_of(f"{parameter} {name}: {own}", value)
        except UsageError as error:
            own_text = ((text, text.replace(old, new, 1)) for old, new in error.instead)
            raise error.proposing(*own_text) from None
    settings = tuple((own, given.get(own, one.default)) for own, one in keys.items())
    return Spec(name, settings, frozenset(given))


def split_specs(text: str) -> list[str]:
    """Return the specs of a list with commas: ``trees,linear(l2=0.1,basis=splines)`` has two."""
    cuts, depth, quoted = [-1], 0, False
    for at, sign in enumerate(text):
        quoted ^= sign == '"'
        if not quoted:
            depth += (sign == "(") - (sign == ")")
            if sign == "," and depth == 0:
                cuts.append(at)
    return [text[begin + 1 : end].strip() for begin, end in pairwise([*cuts, len(text)])]


def _written(value: Any) -> str:
    """Return a value of a spec as its text has it."""
    return quoted_name(value if isinstance(value, str) else f"{value:.12g}")
