"""Similar people, whose difference must not count, as a user writes them in ``similar``.

=============================  ==========================================================================
``flips``                      people who differ in nothing but the protected columns
``relationship=Husband,Wife``  people with one of these values of a column
``near(radius=0.1)``           people whose features differ little
``learned(by=means)``          people along directions that reveal the group
a file                         counterfactual copies, pairs of people or directions, by its columns
=============================  ==========================================================================

A text may hold several, with semicolons between. ``near`` and ``learned`` may be there several times: a repair chooses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from fairfix.data.canonical import canonical_text
from fairfix.data.domain import domain
from fairfix.data.files import Source, open_source
from fairfix.data.names import INDEX_NAME, did_you_mean, split_names
from fairfix.data.spec import Form, Spec, parse_spec, split_specs
from fairfix.errors import ColumnError, UsageError

Comparable = tuple[tuple[str, tuple[str, ...]], ...]
"""Columns with the values that are comparable in each."""

FORMS: Mapping[str, Form] = {
    "flips": Form("people who differ in nothing but the protected columns", {}),
    "near": Form(
        "people whose features differ little",
        {
            "radius": domain(
                None,
                "largest mean squared distance; numbers count in standard deviations, a different category counts 1",
                kind=float,
                at_least=0.0,
            ),
            "cost": domain(
                0.0,
                "squared distance of a step of length 1 along directions that must not count; 0: no distance, the "
                "score is constant along them",
                at_least=0.0,
            ),
        },
    ),
    "learned": Form(
        "people along directions that reveal the group; can cost much accuracy",
        {
            "by": domain(
                "logistic",
                "directions that reveal the group. logistic: from a logistic regression for the group; means: "
                "between the group means of each label; pooled: between the group means of both labels together",
                choices=("logistic", "means", "pooled"),
            )
        },
    ),
}
"""Words that ``similar`` takes in addition to files and values of columns."""

FILE = Form(
    "a file of copies, pairs or directions",
    {
        "directions": domain(
            0,
            "number of directions along which pairs differ most, in either sense (files of pairs); by default, the "
            "mean difference is the direction",
            at_least=1,
            at_most=1000,
            kind=int,
        )
    },
)

PIECE = re.compile(r'(?:[^;"]|"(?:[^"]|"")*"|")+?(?=;|\Z)')
"""A part of a text with semicolons, which double quotes may hold too."""

COLUMN = re.compile(r'\s*(?:"((?:[^"]|"")*)"|([^="]*?))\s*=(.*)', re.DOTALL)
"""A column, perhaps in double quotes, and its values."""

WORD = re.compile(r"\s*([\w-]+)\s*(?:\(.*\))?\s*", re.DOTALL)
"""A name that may be one of the forms, perhaps with brackets."""

OF_FILE = re.compile(r"(.+?)\s*(\(\s*directions\s*=[^()]*\))\s*", re.DOTALL)

UNPLAIN = re.compile(r'[=;,"()]|^\s|\s$|^$')


@dataclass(frozen=True)
class SimilarFile:
    """A file, or rows in memory, with the number of directions of its pairs; 0 for their mean difference."""

    data: Any
    directions: int = 0

    @property
    def shown(self) -> str:
        """Name for messages."""
        return self.data if isinstance(self.data, str) else f"<{type(self.data).__name__}>"

    def __str__(self) -> str:
        plain = not (WORD.fullmatch(self.shown) or UNPLAIN.search(self.shown))
        text = self.shown if plain else _in_quotes(self.shown)
        return f"{text}(directions={self.directions})" if self.directions else text


@dataclass(frozen=True)
class Similar:
    """People whose difference must not count."""

    flips: bool = False
    comparable: Comparable = ()
    near: tuple[Spec, ...] = ()
    learned: tuple[Spec, ...] = ()
    files: tuple[SimilarFile, ...] = ()

    @staticmethod
    def parse(given: Iterable[Any]) -> Similar:
        """Return who is similar by texts, rows in memory, and mappings.

        Mappings are column -> values, or ``data`` and ``directions`` of rows in memory.

        Raises
        ------
        UsageError
            A text is none of the forms; names it, and what to write.
        """
        out = Similar()
        for one in given:
            if isinstance(one, Mapping) and {*one} == {"data", "directions"}:
                many = parse_spec("similar", f"data(directions={one['directions']})", {"data": FILE})
                out = replace(out, files=(*out.files, SimilarFile(one["data"], int(many["directions"]))))
            elif isinstance(one, Mapping):
                for column, alike in one.items():
                    listed = alike.split(",") if isinstance(alike, str) else alike
                    out = out._with(written_values(str(column), map(str, listed)))
            elif isinstance(one, str):
                for piece in PIECE.findall(one):
                    out = out._with(piece.strip())
            else:
                out = replace(out, files=(*out.files, SimilarFile(one)))
        return out

    def _with(self, text: str) -> Similar:
        """Return who is similar by one text more."""
        if not text:
            return self
        specs = split_specs(text)
        if all(_name(one) in FORMS for one in specs):
            made = self
            for one in specs:
                made = made._with_spec(parse_spec("similar", one, FORMS))
            return made
        if (of_file := _file(text)) is not None:
            return replace(self, files=(*self.files, of_file))
        if WORD.fullmatch(text):  # a word that is none, and no file either
            parse_spec("similar", text, FORMS)
        column, alike = _values(text)
        if column in dict(self.comparable):
            raise UsageError(f"`similar`: column {column!r} is named twice; list all its values once")
        return replace(self, comparable=(*self.comparable, (column, alike)))

    def _with_spec(self, spec: Spec) -> Similar:
        """Return who is similar by one form more."""
        if spec.name == "flips":
            return replace(self, flips=True)
        if spec.name == "learned":
            return replace(self, learned=(*self.learned, spec))
        if spec["radius"] is None:
            raise UsageError(f"`similar={spec}`: give the radius, such as near(radius=0.1)")
        if spec["cost"] and not spec["radius"]:
            raise UsageError(
                f"`similar={spec}`: cost is that of steps within the radius, and the radius is 0; give a radius"
            )
        return replace(self, near=(*self.near, spec))

    @property
    def alternatives(self) -> list[Similar]:
        """Each choice of one ``near`` and one ``learned``, where there are several."""
        each: list[list[tuple[Spec, ...]]] = [
            [(one,) for one in dict.fromkeys(specs)] or [()] for specs in (self.near, self.learned)
        ]
        return [replace(self, near=near, learned=learned) for near, learned in product(*each)]

    @property
    def radius(self) -> float | None:
        """The mean squared distance by which features may differ, where there is one."""
        return next((float(one["radius"]) for one in self.near), None)

    @property
    def cost(self) -> float:
        """The squared distance of a step of length 1 along directions that must not count."""
        return next((float(one["cost"]) for one in self.near), 0.0)

    @property
    def learned_by(self) -> str:
        """Rule that learns directions which reveal the group; empty where none are learned."""
        return next((str(one["by"]) for one in self.learned), "")

    @property
    def changes_rows(self) -> bool:
        """Whether more is similar than files say, so that rows are changed to see what they get."""
        return bool(self.flips or self.comparable or self.near or self.learned)

    @property
    def of_features(self) -> list[str]:
        """The parts that are about more than flips and values of columns, as texts."""
        return [*map(str, (*self.near, *self.learned, *self.files))]

    def __str__(self) -> str:
        columns = [written_values(*one) for one in self.comparable]
        return "; ".join((*["flips"] * self.flips, *columns, *self.of_features))


def written_values(column: str, alike: Iterable[str]) -> str:
    """Return comparable values of a column as ``similar`` takes them: ``relationship=Husband,Wife``."""
    return f"{_quoted(column)}={','.join(map(_quoted, alike))}"


def _quoted(name: str) -> str:
    return _in_quotes(name) if UNPLAIN.search(name) else name


def _in_quotes(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _name(text: str) -> str:
    """Return the name before brackets."""
    word = WORD.fullmatch(text)
    return word[1] if word else ""


def _file(text: str) -> SimilarFile | None:
    """Return the file that a text names; None where it names none."""
    of_file = OF_FILE.fullmatch(text)
    name, brackets = (of_file[1], of_file[2]) if of_file and not Path(text).exists() else (text, "")
    quoted = re.fullmatch(r'"((?:[^"]|"")*)"', name)
    there = Path(name).exists()
    if not (quoted or there or "://" in name) and ("=" in name or re.fullmatch(r"[\w-]+", name)):
        return None if name != "-" else SimilarFile(name)
    if not there and not brackets and not quoted and text.endswith(")") and WORD.fullmatch(text):
        return None
    many = parse_spec("similar", f"file{brackets}", {"file": FILE})["directions"]
    return SimilarFile(quoted[1].replace('""', '"') if quoted else name, int(many))


def _values(text: str) -> tuple[str, tuple[str, ...]]:
    """Return a column and its comparable values; a UsageError where there are not two."""
    match = COLUMN.fullmatch(text)
    column = (match[2] if match[1] is None else match[1].replace('""', '"')) if match else ""
    alike = tuple(dict.fromkeys(canonical_text(one) for one in split_names(match[3]) if one)) if match else ()
    if not column or len(alike) < 2:
        raise UsageError(
            f"`similar={text}`: write COLUMN=VALUE,VALUE with two or more values, such as relationship=Husband,Wife"
        )
    return column, alike


# ---------------------------------------------------------------------- files


@dataclass(frozen=True, eq=False)
class SimilarFiles:
    """Files told apart by their columns."""

    copies: Source | None = None
    pairs: Source | None = None
    directions: Source | None = None


def files_of(similar: Similar, columns: Sequence[str], own: str | None) -> SimilarFiles:
    """Return the files by what they hold.

    Copies have the column of ids ``own`` and others of the data, ``columns``; directions have columns of the data
    alone; pairs have two columns of ids, whatever they are called.

    Raises
    ------
    ColumnError, UsageError
        A file is none of these, or two are the same.
    """
    out: dict[str, Source] = {}
    for one in similar.files:
        source = open_source(one.data)
        kind = _kind(source, columns, own)
        if kind in out:
            raise UsageError(
                f"`similar`: {out[kind].name} and {source.name} both have {kind}; put the rows of both into one file"
            )
        if one.directions and kind != "pairs":
            raise UsageError(
                f"`similar={one}`: directions are between the people of pairs, and the file has {kind}; leave them out"
            )
        if kind != "directions" and own is None:
            raise UsageError(f"`similar={one}` names people by their row IDs; give their column with `id`")
        out[kind] = source
    return SimilarFiles(**out)


def _kind(source: Source, columns: Sequence[str], own: str | None) -> str:
    """Return what a file holds: copies, pairs or directions."""
    names = [name for name in source.columns if name in columns or not INDEX_NAME.fullmatch(name)]
    others = [name for name in names if name != own]
    strange = [name for name in others if name not in columns]
    if len(names) == 2 and len(strange) == len(others):
        return "pairs"
    if own in names:
        return "copies"
    if not strange:
        return "directions"
    hint = did_you_mean(strange[0], columns)
    raise ColumnError(
        f"{source.name} has a column {strange[0]!r}, which the data lack{hint}; `similar` takes a file of copies (the "
        "column of IDs and others of the data), of pairs (two columns of IDs) or of directions (columns of features)"
    )
