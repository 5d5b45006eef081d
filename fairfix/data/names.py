"""Names: of several columns or levels, made here for people and as keys, never taken apart; and the nearest of some."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from fairfix.data.canonical import canonical_text
from fairfix.errors import UsageError

QUOTED = r'"(?:[^"]|"")*"'
"""A name in double quotes, in which a double quote is doubled."""

LISTED = re.compile(r'\s*([^,"=]*=)?"((?:[^"]|"")*)"\s*(?:,|$)|([^,]*)(?:,|$)')
"""A name of a list with commas: in double quotes, which may follow KEY=, or up to the next comma."""

THRESHOLD = re.compile(r"(.+?)\s*(>=|<=|>|<)\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*")
"""A column whose numbers are compared with one."""

BEGUN = 3
"""Letters of a name that are enough for its beginning to be meant."""

INDEX_NAME = re.compile(r"__index_level_\d+__")
"""Name of the index of a pandas frame in a Parquet file; row numbers are no feature."""


def split_names(text: str) -> list[str]:
    """Return the names of a list with commas, without the double quotes that hold those with a comma in them."""
    names = list[str]()
    for part in LISTED.finditer(text):  # the second way takes any text
        key, quoted, plain = part.groups()
        names.append(plain.strip() if quoted is None else (key or "").lstrip() + quoted.replace('""', '"'))
        if not part[0].endswith(","):
            break
    return names


def joined_names(names: Iterable[str]) -> str:
    """Return names as a list with commas, from which :func:`split_names` gets them back."""
    return ",".join(map(quoted_name, names))


def quoted_name(name: str, signs: str = "") -> str:
    """Return a name as one of a list: in double quotes if empty or with a comma, a quote or one of the ``signs``."""
    plain = name and name == name.strip() and not set(name).intersection(f',"{signs}')
    return name if plain else in_quotes(name)


def in_quotes(text: str, quote: str = '"') -> str:
    """Return a text in quotes, in which those that it has are doubled, as in SQL."""
    return quote + text.replace(quote, quote * 2) + quote


def shell_line(words: Iterable[str]) -> str:
    """Return words as one line that a shell reads as these words; names in single quotes stay readable."""
    return " ".join(map(_shell_word, words))


def _shell_word(word: str) -> str:
    plain = "'" in word and not set(word).intersection('"$`\\!')  # a shell reads these in double quotes, too
    return f'"{word}"' if plain else shlex.quote(word)


def unquoted(text: str) -> str:
    """Return the name that a text is, with or without double quotes around it."""
    name = text.strip()
    return name[1:-1].replace('""', '"') if re.fullmatch(QUOTED, name) else name


def key_and_rest(text: str, *, last: bool = False) -> tuple[str, str, str]:
    """Return ``KEY``, ``=`` and the rest of ``KEY=REST``, as :meth:`str.partition` does; a key may be in quotes.

    ``last``: a key without quotes ends at the last sign, since there is none in the rest.
    """
    match = re.match(rf"\s*({QUOTED})\s*(=|$)", text)
    if match is None:
        key, sign, rest = text.rpartition("=") if last else text.partition("=")
        return key.strip(), sign, rest
    return unquoted(match[1]), match[2], text[match.end() :]


def keyed(
    option: str,
    texts: Iterable[str],
    form: str,
    *,
    last: bool = False,
    bare: bool = False,
    again: bool = False,
) -> Iterator[tuple[str, str]]:
    """Yield key and value of each ``KEY=VALUE`` of an option, which begins like ``bands=``; ``last``: see above.

    ``bare``: a text may be a value alone, with an empty key. ``again``: a key may come again. A UsageError names option
    and text where a key or a value is missing, or a key comes twice; ``form`` is the remedy.
    """
    keys = set[str]()
    for text in texts:
        key, sign, value = key_and_rest(text, last=last)
        if bare and not sign:
            key, value = "", key or value
        if not value.strip() or not (key or (bare and not sign)):
            raise UsageError(f"`{option}{text}`: write {form}")
        if key in keys and not again:
            raise UsageError(f"`{option}{text}`: {key or 'it'} is given twice; give one value")
        keys.add(key)
        yield key, value.strip()


class ValuedColumn(NamedTuple):
    """A column, and which of its entries are positive: some values, or numbers that meet a comparison; else 1."""

    column: str
    positive: tuple[str, ...] = ()
    threshold: str = ""
    """Comparison such as ``>=50000``."""

    @classmethod
    def parse(cls, text: str, columns: Sequence[str], parameter: str) -> ValuedColumn:
        """Read ``class``, ``class=good,fair`` or ``income>=50000``; a text that is the name of a column is the column.

        A value with a comma or blanks at its ends is in double quotes. A UsageError where the values are left out.
        """
        if text in columns:
            return cls(text)
        if compared := _compared(text, columns):
            return cls(compared[0], (), compared[1])
        places = [at for at, sign in enumerate(text) if sign == "="]
        at = next((at for at in reversed(places) if text[:at].strip() in columns), -1)
        column, sign, listed = (text[:at].strip(), "=", text[at + 1 :]) if at >= 0 else key_and_rest(text)
        if not sign:
            return cls(column if text.lstrip().startswith('"') else text)
        names = [canonical_text(value) for value in split_names(listed)]
        if not listed.strip() or not column:
            raise UsageError(f"`{parameter}={text}`: write COLUMN=VALUE, such as {column or 'class'}=yes")
        return cls(column, tuple(dict.fromkeys(names)))

    def __str__(self) -> str:
        """Return the text that :meth:`parse` reads."""
        return with_values(self.column, self.positive) if self.positive else self.column + self.threshold


def _compared(text: str, columns: Sequence[str]) -> tuple[str, str] | None:
    """Return the column and the comparison of ``income>=50000``, such as ``>=50000``; None where there is none.

    ``band=>50`` names the value ``>50``.
    """
    if (match := THRESHOLD.fullmatch(text)) is None:
        return None
    column, sign, number = match.groups()
    name = unquoted(column)
    return (name, sign + number) if name in columns or "=" not in column or name != column.strip() else None


def kept_threshold(text: str) -> str:
    """Return a comparison as it was saved, or an empty text; a ValueError where it is neither."""
    if text and _compared(f"label{text}", ()) != ("label", text):
        raise ValueError(f"{text!r} is not a threshold of a label")
    return text


def threshold_sign(text: str) -> str:
    """Return the sign of a comparison such as ``>=50000``."""
    return text.rstrip("+-.eE0123456789")


def with_values(column: str, levels: Iterable[str]) -> str:
    """Return what :meth:`ValuedColumn.parse` reads: ``class=good``."""
    return f"{quoted_name(column, '=')}={joined_names(levels)}"


def attribute_name(columns: Iterable[str]) -> str:
    """Return the name of an attribute of one or more columns: ``race x sex``."""
    return " x ".join(columns)


def group_name(levels: Iterable[str]) -> str:
    """Return the name of a group: ``Black & female``."""
    return " & ".join(levels)


def each_and_crossed(columns: tuple[str, ...], *, crossed: bool = True) -> list[tuple[str, ...]]:
    """Return columns one by one, and all of them ``crossed`` where there are several."""
    return [*((name,) for name in columns), *([columns] if crossed and len(columns) > 1 else [])]


def stratum_name(columns: Iterable[str], levels: Iterable[str]) -> str:
    """Return the name of a stratum: ``town=Elm & product=car``."""
    return " & ".join(f"{column}={level}" for column, level in zip(columns, levels, strict=True))


def written_attribute(text: str) -> str | None:
    """Return the name of an attribute as a user writes it: ``race*sex`` and ``race x sex`` are one."""
    return re.sub(r"\s+x\s+|\s*\*\s*", " x ", text) or None


def few(names: Sequence[Any], most: int = 3, write: Callable[[Any], str] = repr) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(write, names[:most])) + more


def did_you_mean(name: Any, names: Iterable[str], most: int = 1) -> str:
    """Return the question that follows a name which is none of some names; empty where none is like it."""
    near = nearest(str(name), tuple(names), most)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def initials(name: str) -> str:
    """Return the first letters of the words of a name: ``dp`` of ``demographic_parity``."""
    return "".join(word[:1] for word in name.split("_"))


def nearest(name: str, names: Sequence[str], most: int = 1) -> list[str]:
    """Return those of some names, such as columns, that are like a name, capitals aside: the nearest first.

    Names that begin with it come before all others, the shortest first. In a table without a header, whose columns are
    called c1, c2 and so on, a number is like the name of the column at that place.
    """
    from difflib import get_close_matches

    if name.isdecimal() and f"c{name}" in names and all(map(re.compile(r"c\d+").fullmatch, names)):
        return [f"c{name}"]
    folded, plain = name.casefold(), {one.casefold(): one for one in reversed(names)}
    begun = sorted((one for one in plain if one.startswith(folded)), key=len) if len(name) >= BEGUN else []
    near = [*begun, *get_close_matches(folded, plain, most)]
    return [plain[one] for one in dict.fromkeys(near)][:most]


def listed(names: Sequence[str], most: int = 40) -> str:
    """Return names with commas between them, on one line, those behind the first few left out."""
    shown = (repr(name) if {*name} & {*"\r\n\t`"} else name for name in names[:most])
    return ", ".join(shown) + (", ..." if len(names) > most else "")
