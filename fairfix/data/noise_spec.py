"""Statements of a user about noise in recorded groups: ``noise=SPEC`` and ``assume=ASSUMPTION``.

========================================  ====================================================================
``table.csv``                             a table of true and recorded groups
``people.csv(true=race,recorded=seen)``   a file of people with both groups; ``label=COLUMN`` counts them by label
``radius:Black=0.05,White=0.02``          total variation between each true group and its recorded group
``membership:Black=p_black,White=p_w``    columns with the probability of belonging to each true group
========================================  ====================================================================

A file may also say what of it holds for the data: ``table.csv(keep=true-given-noisy)``. Texts repeat. This module
imports no numpy, since every request is checked by it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from fairfix.data.canonical import canonical_group
from fairfix.data.choices import Keep
from fairfix.data.domain import domain
from fairfix.data.names import did_you_mean, joined_names, keyed, nearest, quoted_name, split_names
from fairfix.data.spec import Form, parse_spec
from fairfix.errors import UsageError

FILE = Form(
    "a table of true and recorded groups, or people with both",
    {
        "true": domain("", "column of the true group, of people"),
        "recorded": domain("", "column of the recorded group, of people"),
        "label": domain("", "column of the label, of people"),
        "keep": domain("", "part of the table that also holds for the data", choices=get_args(Keep)),
    },
)
"""Keys that may follow a file's name in brackets."""

KINDS = ("radius", "membership")
"""Words before a colon, where no file is named."""

TABLE = "a noise table (`noise=FILE`)"
RADII = "radii (`noise=radius:GROUP=NUMBER,...`)"
MEMBERSHIP = "probabilities of membership (`noise=membership:GROUP=COLUMN,...`)"
"""Kinds of knowledge about noise."""

NEEDS: Mapping[str, tuple[str, ...]] = {
    "none": (TABLE, RADII, MEMBERSHIP),
    "eps": (TABLE,),
    "class-conditional": (TABLE,),
    "independent": (MEMBERSHIP,),
    "radii": (TABLE, RADII),
}
"""Word of an assumption -> what it can be made about."""

WORDS = ", ".join("eps=0.05" if word == "eps" else word for word in NEEDS)

CALL = re.compile(r"(.+)\((.*=.*)\)", re.DOTALL)
"""A name, and in brackets what is said of it."""


@dataclass(frozen=True)
class StatedAssumption:
    """Assumption about noise beyond what is known of it; ``word`` is empty where nothing was stated."""

    word: str = ""
    epsilon: float | None = None

    @classmethod
    def parse(cls, text: str | None) -> StatedAssumption:
        """Read ``none``, ``eps=0.05`` and so on."""
        word, sign, number = (text or "").strip().partition("=")
        if not word:
            return cls()
        if word not in NEEDS:
            raise UsageError(f"`assume={text}`: {word!r} is none of {WORDS}{did_you_mean(word, NEEDS)}")
        if word != "eps":
            if sign:
                raise UsageError(f"`assume={text}`: {word} takes no value; write `assume={word}`")
            return cls(word)
        if (value := _number(number)) is None:
            raise UsageError(
                f"`assume={text}`: eps is a difference of probabilities; write a number from 0 to 1, such as "
                "`assume=eps=0.05`"
            )
        return cls(word, value)

    def __str__(self) -> str:
        return f"eps={self.epsilon}" if self.epsilon is not None else self.word

    def require(self, described: Sequence[str]) -> None:
        """Raise a UsageError where the assumption needs something else than what is known; it names what fits."""
        if not self.word or set(NEEDS[self.word]) & set(described):
            return
        fitting = [f"`assume={word}`" for word, needs in NEEDS.items() if set(needs) & set(described)]
        of = described[0].partition(" (")[0]
        either = " or ".join(filter(None, (", ".join(fitting[:-1]), fitting[-1])))
        error = f"`assume={self}` needs {' or '.join(NEEDS[self.word])}; with {of}, use {either}"
        raise UsageError(error.replace("=eps`", "=eps=0.05`"))


UNSTATED = StatedAssumption()
"""Nothing was said."""


@dataclass(frozen=True)
class NoiseSpec:
    """Statements about noise in their text form."""

    file: Any = None
    """Path or data of a table, or of people; None where there is none."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Columns of a file of people: ``true``, ``recorded`` and ``label`` -> column."""
    keep: Keep | None = None
    """Part of the table that holds for the data too; None: either may."""
    radii: Mapping[str, float] | None = None
    """Group -> radius."""
    membership: Mapping[str, str] | None = None
    """True group -> column of each row's probability to be of it."""
    assume: StatedAssumption = UNSTATED

    @classmethod
    def parse(cls, entries: Sequence[Any], assume: str | None = None) -> NoiseSpec:
        """Return what texts, files in memory and mappings state; a UsageError names the part that is wrong."""
        files, parts = [], dict[str, list[str]]()
        for entry in entries:
            for kind, content in _parts(entry):
                if kind == "file":
                    files.append(content)
                else:
                    parts.setdefault(kind, []).extend(content)
        if len(files) > 1:
            raise UsageError("`noise` names several files; give one file, and also radii if they are known")
        file, written = files[0] if files else (None, {})
        keep = written.pop("keep", None)
        if written and not written.get("true"):
            raise UsageError(
                "`noise`: name the column of the true group of a file of people; write "
                "`noise=FILE(true=COLUMN,recorded=COLUMN)`"
            )
        spec = cls(
            file,
            written,
            keep,
            parse_radii(parts["radius"]) if "radius" in parts else None,
            parse_membership(parts["membership"]) if "membership" in parts else None,
            StatedAssumption.parse(assume),
        )
        if entries:
            spec.check()
        return spec

    def check(self) -> None:
        """Raise a UsageError where nothing is known, or parts of it contradict one another or what is assumed."""
        if not self.descriptions:
            raise UsageError(f"the noise is not described: give {TABLE}, {RADII} or {MEMBERSHIP}")
        if MEMBERSHIP in self.descriptions and len(self.descriptions) > 1:
            raise UsageError(
                "`noise`: probabilities of membership replace a file and radii, which are about recorded groups; give "
                "one description"
            )
        self.assume.require(self.descriptions)

    @property
    def descriptions(self) -> tuple[str, ...]:
        """Knowledge, in words."""
        given = ((TABLE, self.file), (RADII, self.radii), (MEMBERSHIP, self.membership))
        return tuple(words for words, one in given if one is not None)


def _parts(entry: Any) -> Iterator[tuple[str, Any]]:
    """Yield (kind, content) of an entry: a file with what is said of it, or the parts of a list."""
    if isinstance(entry, Mapping):
        given = dict(entry)
        for kind in KINDS:
            if (content := given.pop(kind, None)) is not None:
                yield kind, _listed(content)
        if "file" in given:
            file = given.pop("file")
            yield "file", (file, _said(joined_names(f"{own}={one}" for own, one in given.items())))
        elif given:
            allowed = ", ".join((*KINDS, "file", *FILE.keys))
            raise UsageError(f"`noise`: unknown key {next(iter(given))!r}; a mapping has {allowed}")
        return
    if not isinstance(entry, str):
        yield "file", (entry, {})
        return
    kind, sign, rest = entry.partition(":")
    if sign and kind in KINDS:
        yield kind, [part for part in split_names(rest) if part]
        return
    if sign and kind.isalpha() and not rest.startswith("/") and (near := nearest(kind, KINDS)):
        raise UsageError(
            f"`noise={entry}`: {kind!r} is not a kind of noise; did you mean `noise={near[0]}:{rest}`?"
        )
    file, written = file_of(entry)
    yield "file", (file, _said(written))


def _listed(content: Any) -> list[str]:
    """Return the parts of a mapping, of a list or of a text."""
    if isinstance(content, Mapping):
        return [f"{key}={one}" for key, one in content.items()]
    return split_names(content) if isinstance(content, str) else [str(one) for one in content]


def _said(listed: str) -> dict[str, str]:
    """Return key -> value of what is said of a file, in brackets behind it."""
    spec = parse_spec("noise", f"FILE({listed})", {"FILE": FILE})
    return {name: spec[name] for name in FILE.keys if name in spec.given}


def file_of(text: str) -> tuple[str, str]:
    """Return the file of a text, and what is said of it in brackets; both empty where it names none."""
    if text.partition(":")[0] in KINDS:
        return "", ""
    match = CALL.fullmatch(text)
    return (match[1], match[2]) if match else (text, "")


def with_file(text: str, place: Callable[[str], str]) -> str:
    """Return a text with its file put elsewhere."""
    file, written = file_of(text)
    return f"{place(file)}({written})" if written else place(file) if file else text


def parse_radii(parts: Sequence[str]) -> dict[str, float]:
    """Read ``GROUP=NUMBER`` of each part."""
    form = "GROUP=NUMBER with a number from 0 to 1, such as `noise=radius:Black=0.05,White=0.02`"
    out: dict[str, float] = {}
    for name, number in keyed("noise=radius:", parts, form, last=True):
        if (value := _number(number)) is None:
            raise UsageError(f"`noise=radius:{name}={number}`: write {form}")
        out[canonical_group(name)] = value
    return out


def parse_membership(parts: Sequence[str]) -> dict[str, str]:
    """Read ``COLUMN`` or ``GROUP=COLUMN`` of each part; return group -> column."""
    out: dict[str, str] = {}
    form = "COLUMN or GROUP=COLUMN, such as `noise=membership:Black=p_black,White=p_white`"
    for name, column in keyed("noise=membership:", parts, form, bare=True, again=True):
        group = canonical_group(name) if name else column
        if group in out or column in out.values():
            twice = f"group {group!r}" if group in out else f"column {column!r}"
            raise UsageError(f"`noise=membership:...` names the {twice} twice; each group has one column")
        out[group] = column
    if len(out) < 2:
        raise UsageError(
            f"`noise=membership:{','.join(parts)}`: name a column for each true group, two or more; for a group and "
            "all other rows, both are needed"
        )
    return out


def membership_text(members: Mapping[str, str]) -> str:
    """Return the text that :meth:`NoiseSpec.parse` reads as these columns."""
    listed = ",".join(quoted_name(f"{group}={column}") for group, column in members.items())
    return f"membership:{listed}" if members else ""


def _number(text: str) -> float | None:
    """Return a number from 0 to 1; None where a text is none."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    return value if 0 <= value <= 1 else None
