"""Domains: the values that a parameter of a request, a parameter of a method or a key of a spec may take.

This module imports no numpy, since every ``--help`` needs it.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from fairfix.data.names import did_you_mean, initials, joined_names, nearest, quoted_name
from fairfix.errors import UsageError

TRUTHS = ("bool", "bool_")
"""Types of True and False, those of numpy among them, which is not imported here."""


@dataclass(frozen=True)
class Domain:
    """Domain of a parameter, its default, and its form in help."""

    help: str
    metavar: str = ""
    default: Any = field(default=None, kw_only=True)
    kind: type = str
    """Type of a value: text, a number, a flag; ``object`` for data, which may be a path or in memory."""
    many: bool = False
    """Whether it takes several values."""
    listed: bool = False
    """Whether the command line splits its text at commas."""
    choices: Sequence[str] = ()
    words: Sequence[str] = ()
    """Texts that may replace a number."""
    above: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    below: float | None = None
    finite: bool = True
    """Whether infinity is none of its numbers."""
    selectable: bool = False
    """Whether validation rows choose one of several values."""
    positional: bool = False
    common: bool = False
    """Whether most people need it; ``--help`` shows these only."""
    without: str | None = None
    """Value of the option given without one; None where it needs one."""
    living: bool = False
    """Whether it may also be an object that is no text, such as the client of a cluster."""

    @property
    def text(self) -> bool:
        """Whether it takes any text."""
        return self.kind is str and not self.choices

    def split(self, text: str) -> list[str]:
        """Return the values that a text gives; commas separate several, except in a parameter that takes any text."""
        return [one.strip() for one in ([text] if self.text else text.split(","))]

    def value_of(self, name: str, value: Any) -> Any:
        """Return a value, or several, in the type of the parameter; a :class:`~fairfix.errors.UsageError` if wrong."""
        if value is None or value is self.default:
            return self.default
        if not self.many or (hasattr(value, "iloc") and self.kind is not object):
            return self.one_of(name, value)
        if self.kind is object:  # data in memory may have entries of its own
            entries = value if isinstance(value, (list, tuple)) else [value]
        elif isinstance(value, (str, int, float)) or _is_iterable(value):
            entries = texts_of(value)
        else:
            raise UsageError(f"{name}: {type(value).__name__} is neither text nor a list")
        return tuple(self.one_of(name, one) for one in entries)

    def one_of(self, name: str, value: Any) -> Any:
        """Return one value in the type of the parameter.

        All that is asked of fairfix passes here, from the command line, the environment, a configuration or Python. A
        :class:`~fairfix.errors.UsageError` gives the name, the rule and the value, and proposes the nearest choice.
        """
        if hasattr(value, "iloc") and self.kind is not object:  # of pandas: the entries instead of their name
            raise UsageError(f"{name}: give the name of the column in `data`, not its entries")
        if self.living and not isinstance(value, (str, os.PathLike, int, float)):
            return value
        if self.kind is object:
            return os.fspath(value) if isinstance(value, os.PathLike) else value
        if self.kind is bool:
            if type(value).__name__ not in TRUTHS:
                raise UsageError(f"{name} must be True or False, got {value!r}")
            return bool(value)
        if self.kind is str:
            value = ",".join(texts_of(value)) if isinstance(value, Mapping) else str(value)
            return self._chosen(name, value) if self.choices else value
        return value if isinstance(value, str) and value in self.words else self._number(name, value)

    def _chosen(self, name: str, value: str) -> str:
        """Return one of the choices."""
        if value in self.choices:
            return value
        hint = did_you_mean(value, self.choices)
        error = UsageError(f"{name} must be one of {', '.join(self.choices)}, got {value!r}{hint}")
        short = [one for one in self.choices if initials(one) == value.lower()]
        raise error.proposing(*((value, one) for one in short or nearest(value, tuple(self.choices))))

    def _number(self, name: str, value: Any) -> int | float:
        """Return a number of the parameter's kind within its limits, from a number or the text of one."""
        whole = self.kind is int
        text, truth = isinstance(value, str), type(value).__name__ in TRUTHS
        read: Callable[[Any], int | float] = operator.index if whole and not text else self.kind
        kind = "whole " if whole else "finite " if self.finite else ""
        wanted = ", ".join((*self.words, f"or a {kind}number" if self.words else f"a {kind}number"))
        error = UsageError(f"{name} must be {wanted}, got {value!r}")
        try:
            number: int | float = read(value if (text or hasattr(value, "__float__")) and not truth else "")
        except (TypeError, ValueError, OverflowError):
            raise error from None
        if not whole and (math.isnan(number) or (self.finite and math.isinf(number))):
            raise error
        for words, limit, holds in (
            ("above", self.above, operator.gt),
            ("at least", self.at_least, operator.ge),
            ("at most", self.at_most, operator.le),
            ("below", self.below, operator.lt),
        ):
            if limit is not None and not holds(number, limit):
                raise UsageError(f"{name} must be {words} {limit:g}, got {number:g}")
        return number


def _is_iterable(value: Any) -> bool:
    """Tell whether a value has entries, as an array without dimensions and a class have not."""
    try:
        iter(value)
    except TypeError:
        return False
    return True


def texts_of(value: Any) -> list[Any]:
    """Return the entries of a parameter with several values; those of a mapping as ``name=value`` or ``name=a,b``."""
    if isinstance(value, Mapping):
        return [f"{quoted_name(str(key), '=')}={_listed(own)}" for key, own in value.items()]
    return [value] if isinstance(value, (str, int, float)) else list(value)


def _listed(value: Any) -> str:
    """Return a value of a mapping as text: a text as it is, unless it has blanks at its ends; others as a list."""
    if isinstance(value, str) and value == value.strip():
        return value
    return joined_names(map(str, [value] if isinstance(value, (str, int, float)) else value))


def domain(default: Any, help: str, metavar: str = "", **more: Any) -> Domain:  # noqa: A002  as click has it
    """Return a domain; ``more`` are other fields of :class:`Domain`.

    Its kind is that of the default, or a number where words may replace one; a default that is a tuple takes several
    values.
    """
    many = isinstance(default, tuple)
    if default is not None and default != () and "kind" not in more:
        more["kind"] = float if "words" in more else type(default[0] if many else default)
    return Domain(help, metavar, default=default, many=many, **more)


def parameter(default: Any, help: str, metavar: str = "", **more: Any) -> Any:  # noqa: A002  as click has it
    """Return a dataclass field with the domain that :func:`domain` makes."""
    made = domain(default, help, metavar, **more)
    return field(default=default, metadata={"domain": made}, kw_only=not made.positional)


def parameters_of(kind: type) -> dict[str, Domain]:
    """Return the domain of every parameter of a dataclass by its name, in order."""
    return {part.name: part.metadata["domain"] for part in fields(kind) if "domain" in part.metadata}
